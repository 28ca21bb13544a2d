"""Walks the tensors of chosen steps, with or without statistics: lazily, a batch at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.flow import DataFlow
from tui_debugger.check.measure import Measurements
from tui_debugger.check.plan import RequiredByStep
from tui_debugger.check.progress import scaled
from tui_debugger.check.tensors import mean_remark
from tui_debugger.check.types import Pair
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import (
    CATEGORY_WORDS,
    Category,
    Progress,
    ProgressFn,
    ReadSpec,
    Side,
    TensorKey,
    TensorMeta,
    TensorStats,
    no_progress,
)
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.records import RequiredStats

BATCH = 512
"""Tensors that are measured together: enough to keep an executor busy, few enough to show something soon."""

Opened = Callable[[int, int, ProgressFn], Measurements]
"""(rank, step, progress) to measurements that hold that step's tensor table."""


@dataclass(frozen=True)
class TensorChoice:
    """Selects tensors of a step by side, slots and categories of the node, which all must hold; None: any."""

    side: Side | None = None
    slots: Collection[int] | None = None
    categories: frozenset[Category] = CATEGORY_WORDS["tensor"]  # without constants, which every step lists again


@dataclass(frozen=True, slots=True)
class SweptTensor:
    """One tensor of a sweep."""

    key: TensorKey
    row: int
    spec: ReadSpec | None  # None when only statistics were dumped
    meta: TensorMeta | None = None  # None until measured, or where unknown
    stats: TensorStats | None = None  # also None for elements that are no numbers
    error: str = ""  # why it could not be read
    remark: str = ""  # a problem of the statistics in the dump


class Sweep:
    """The chosen tensors of (rank, step) pairs in the given order, then in execution order; everything is lazy."""

    def __init__(
        self,
        opened: Opened,
        in_scope: Callable[[NodeTable], Mask],
        pairs: Sequence[Pair],
        choice: TensorChoice | None,
        asked: Callable[[DataFlow, int], Mask | None] = lambda *_: None,
    ) -> None:
        """Use ``Session.sweep``; ``asked`` returns the rows of a step that may be chosen, None for all rows."""
        self._asked = asked
        self._opened = opened
        self._in_scope = in_scope
        self._pairs = tuple(pairs)
        self._choice = choice or TensorChoice()
        self._rows: tuple[NodeTable, Mask] | None = None

    def count(self, progress: ProgressFn = no_progress) -> int:
        return sum(len(indices) for _, _, indices, _ in self._steps(progress))

    def listed(self, progress: ProgressFn = no_progress) -> Iterator[SweptTensor]:
        for measurements, step, indices, tell in self._steps(progress):
            table = measurements.flow.table(step)
            for number, index in enumerate(indices.tolist()):
                if not number % BATCH:
                    tell(Progress(number, len(indices), _text(measurements, step)))
                yield _placed(measurements, table, step, index)

    def measured(self, progress: ProgressFn = no_progress) -> Iterator[SweptTensor]:
        """The tensors with type, shape and statistics; known measurements are not repeated, and new ones are kept."""
        for measurements, step, indices, tell in self._steps(progress):
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH].tolist()
                part = _part(tell, start, len(indices))
                table = measurements.flow.table(step)
                required = RequiredByStep()
                required.ask(step, table, indices[start : start + BATCH], RequiredStats())
                measurements.ensure_all(required, part, _text(measurements, step))
                for index in batch:
                    yield _filled(_placed(measurements, table, step, index), measurements, index)

    def _steps(self, progress: ProgressFn) -> Iterator[tuple[Measurements, int, Int64, ProgressFn]]:
        for number, (rank, step) in enumerate(self._pairs):
            tell = scaled(progress, number, len(self._pairs))
            measurements = self._opened(rank, step, tell)
            flow = measurements.flow
            chosen, asked = self._chosen(flow.nodes, flow.table(step)), self._asked(flow, step)
            yield measurements, step, chosen if asked is None else chosen[asked[chosen]], tell

    def _chosen(self, nodes: NodeTable, table: TensorTable) -> Int64:
        choice = self._choice
        mask: Mask = self._wanted(nodes)[table.node]
        if Category.CONSTANT not in choice.categories:
            mask &= (table.flags & int(TensorFlag.CONSTANT)) == 0
        if choice.side is not None:
            mask &= table.side == int(choice.side)
        if choice.slots is not None:
            mask &= np.isin(table.slot, list(choice.slots))
        return np.flatnonzero(mask)

    def _wanted(self, nodes: NodeTable) -> Mask:
        """Node rows in scope of the chosen categories; cached until a node is added."""
        if self._rows is None or self._rows[0] is not nodes:
            wanted = np.zeros(256, np.bool_)
            wanted[[int(category) for category in self._choice.categories]] = True
            self._rows = (nodes, wanted[nodes.category] & self._in_scope(nodes))
        return self._rows[1]


def _part(tell: ProgressFn, start: int, total: int) -> ProgressFn:
    def of_batch(snapshot: Progress) -> None:
        tell(Progress(start + snapshot.done, total, snapshot.text))

    return of_batch


def _text(measurements: Measurements, step: int) -> str:
    return f"rank {measurements.flow.rank} step {step}"


def _placed(measurements: Measurements, table: TensorTable, step: int, index: int) -> SweptTensor:
    flow = measurements.flow
    row = int(table.node[index])
    side, slot, number = Side(int(table.side[index])), int(table.slot[index]), int(table.round[index])
    key = flow.nodes.key(flow.rank, step, row, side, slot, round=number)
    return SweptTensor(key, row, table.spec(index) if flow.has_values(table, index) else None)


def _filled(tensor: SweptTensor, measurements: Measurements, index: int) -> SweptTensor:
    record = measurements.record(tensor.key.step, index)
    if record is None:  # a refresh has just seen the broken file change
        return dataclasses.replace(tensor, error="the file is being written: look again")
    remark = mean_remark(measurements.flow.table(tensor.key.step), index, record)
    return dataclasses.replace(tensor, meta=record.meta, stats=record.stats, error=record.error, remark=remark)
