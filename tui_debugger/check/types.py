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
        role: ``in``, ``out``, or ``param`` for the current value of a parameter that feeds the node.
        slot: input or output index at the selected node.
        index: index in the step's TensorTable, -1 when this tensor has no file at this step.
        has_value: whether values can be read (a file exists, or a training has them).
        has_previous: whether the same tensor exists at the previous step.
        uncertain: the file may belong to another node.
        origin_text: for an input its producer as ``node:slot``; else empty.
        meta, stats: filled by ``Session.measure``; None until then or when unreadable.
        recorded: statistics come from the dump's own statistic.csv (or from a training), not from values.
        remote: the values are at a training that runs: reading fetches them.
        rounds: how often the tensor was written in its step, when several times; ``key.round`` is this round.
        placement: for a part of a larger tensor which part, in words.
        overflow: the device's record of an overflow of the operator that read or wrote it; else empty.
        remark: a problem of the statistics in the dump, or empty.
    """

    key: TensorKey
    role: str
    slot: int
    index: int
    has_value: bool
    has_previous: bool
    hit: bool = False
    uncertain: bool = False
    origin_text: str = ""
    meta: TensorMeta | None = None
    stats: TensorStats | None = None
    error: str = ""
    recorded: bool = False
    remote: bool = False
    rounds: int = 0
    placement: str = ""
    overflow: str = ""
    remark: str = ""

    @property
    def earlier(self) -> bool:
        """Whether the tensor was written again later in the step."""
        return 0 < self.key.round < self.rounds


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of checking some (rank, step) pairs with one state of the watchpoint list.

    Attributes:
        pairs: what was checked, in checking order.
        hits: sorted by step, then execution order, then rank.
        watchpoints: the enabled watchpoints as they were.
        version: their ``WatchpointList.version``; results of an older version are outdated.
        seconds: wall time.
        cancelled: the user stopped the check; ``pairs`` holds the finished ones.
        asked: how many (rank, step) pairs were to be checked; 0 without such a number.
        outdated: pairs whose results other watchpoints gave.
        silent: steps that a training judged without a hit: they are in ``coverage``, and not in ``pairs``.
        silent_pairs: such steps with kept tensors, so that they are pairs of the run.
        silent_before: steps without a hit under another list: they are not in ``coverage``.
    """

    pairs: tuple[Pair, ...]
    hits: HitList
    coverage: Coverage
    watchpoints: tuple[Watchpoint, ...]
    version: int
    seconds: float = 0.0
    cancelled: bool = False
    asked: int = 0
    outdated: frozenset[Pair] = frozenset()
    silent: int = 0
    silent_pairs: frozenset[Pair] = frozenset()
    silent_before: int = 0

    def not_checked(self, run: Iterable[Pair]) -> set[Pair]:
        return set(run) - set(self.pairs) - self.silent_pairs

    @property
    def stopped(self) -> bool:
        """Whether pairs that were asked for are missing."""
        return len(self.pairs) < self.asked


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """Lines around a frame from a local source file; control characters are removed.

    ``first`` is the number of the first line, ``focus`` that of the frame's line.
    """

    path: str
    first: int
    lines: tuple[str, ...]
    focus: int
