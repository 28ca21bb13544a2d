"""Immutable results that a Session hands to front ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tui_debugger.check.hits import HitList
from tui_debugger.model import Coverage, TensorKey, TensorMeta, TensorStats, Watchpoint

Pair = tuple[int, int]
"""(rank, step)."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One line of the tensor table.

    Attributes:
        key: handle for reading values. For an input without a file of its own this is the producer's output
            (for a parameter, its value of the previous step).
        rounds: how often the tensor was written in its step, when several times; ``key.round`` is this round.
        overflow: the device's record of an overflow of the operator that read or wrote it; else empty.
    """

    key: TensorKey
    role: str  # ``in``, ``out``, or ``param`` for the current value of a parameter that feeds the node
    slot: int  # input or output index at the selected node
    index: int  # row in the step's TensorTable, -1 when this tensor has no file at this step
    has_value: bool  # whether values can be read (a file exists, or a training has them)
    has_previous: bool  # whether the same tensor exists at the previous step
    hit: bool = False
    uncertain: bool = False  # the file may belong to another node
    origin_text: str = ""  # for an input its producer as ``node:slot``
    meta: TensorMeta | None = None  # like ``stats`` filled by ``Session.measure``
    stats: TensorStats | None = None
    error: str = ""
    recorded: bool = False  # statistics come from the dump's own statistic.csv or from a training, not from values
    remote: bool = False  # the values are at a training that runs: reading fetches them
    rounds: int = 0
    placement: str = ""  # for a part of a larger tensor which part, in words
    overflow: str = ""
    remark: str = ""  # a problem of the statistics in the dump

    @property
    def earlier(self) -> bool:
        return 0 < self.key.round < self.rounds


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of checking some (rank, step) pairs with one state of the watchpoint list.

    Attributes:
        silent: steps that a training judged without a hit: they are in ``coverage``, and not in ``pairs``.
        silent_pairs: such steps with kept tensors, so that they are pairs of the run.
        silent_before: steps without a hit under another list: they are not in ``coverage``.
    """

    pairs: tuple[Pair, ...]  # what was checked, in checking order
    hits: HitList  # sorted by step, then execution order, then rank
    coverage: Coverage
    watchpoints: tuple[Watchpoint, ...]
    version: int  # ``WatchpointList.version``; results of an older version are outdated
    seconds: float = 0.0
    cancelled: bool = False
    asked: int = 0  # how many pairs were to be checked; 0 without such a number
    outdated: frozenset[Pair] = frozenset()  # pairs whose results other watchpoints gave
    silent: int = 0
    silent_pairs: frozenset[Pair] = frozenset()
    silent_before: int = 0

    def not_checked(self, run: Iterable[Pair]) -> set[Pair]:
        return set(run) - set(self.pairs) - self.silent_pairs

    @property
    def ranks(self) -> set[int]:
        return {rank for rank, _ in self.pairs}

    @property
    def stopped(self) -> bool:
        return len(self.pairs) < self.asked


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """Lines around a frame from a local source file; control characters are removed."""

    path: str
    first: int  # number of the first line
    lines: tuple[str, ...]
    focus: int  # number of the frame's line
