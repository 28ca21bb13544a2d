"""Judges the named outputs of nodes with the named watchpoints, for the Python API.

A check of the session judges every tensor under its watchpoints, including inputs and copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from tui_debugger.arrays import Array, Int32
from tui_debugger.check.flow import holds_tensors
from tui_debugger.check.hits import facts_of, overflow_text, overflowed
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.table import PARAMETER, NodeFlag, real_consumers
from tui_debugger.model import (
    PARAMETERS,
    Coverage,
    ErrorBits,
    Hit,
    ProgressFn,
    Side,
    TensorKey,
    TensorMeta,
    Verdict,
    Watchpoint,
    WatchResult,
    no_progress,
)
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.npy import TensorFile, open_array
from tui_debugger.stats.records import Record, Records, RequiredStats
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.evaluate import ColumnEvaluator, needs

Output = tuple[int, int]
"""(node row, output slot)."""


@dataclass(frozen=True, slots=True, eq=False)
class WatchedOutputs:
    """A watchpoint and the outputs of one step that it judges: slot ``slots[i]`` of node row ``rows[i]``."""

    watchpoint: Watchpoint
    rows: Int32
    slots: Int32


@dataclass(frozen=True, slots=True)
class OutputHits:
    """The hits of some outputs of one step, by the number of the watchpoint.

    An output that no watchpoint could look at counts as skipped in ``coverage``, also when its statistics were dumped
    but the condition needs values.
    """

    hits: tuple[tuple[int, Hit], ...]  # each with one result, in execution order, then by watchpoint
    valueless: tuple[tuple[int, Output], ...]  # not judged because no values were dumped
    coverage: Coverage


class OutputTensors:
    """The outputs of the nodes of one rank. Make a new one per question, as with ``DataFlow``; not thread-safe."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        self.flow = measurements.flow
        self._inputs_only: dict[int, bool] = {}

    def locate(self, step: int, row: int, slot: int) -> int:
        """Index in the step's table of the file that holds an output; -1 when no file does.

        If only inputs were dumped, that is the first consumer's input file: a parameter's value *before* the step's
        update.
        """
        index = self.flow.table(step).find(row, Side.OUTPUT, slot)
        return index if index >= 0 or not self._only_inputs(step) else self._first_read(step, row, slot)

    def read(self, step: int, row: int, slot: int) -> Array | None:
        """The values of an output; None when they were not dumped. UnreadableTensorError: the file is broken."""
        table, index = self.flow.table(step), self.locate(step, row, slot)
        return open_array(table.spec(index)) if index >= 0 and self.flow.has_values(table, index) else None

    def meta(self, step: int, row: int, slot: int) -> TensorMeta | None:
        """Element type and shape of an output; None when it was not dumped. UnreadableTensorError: broken file."""
        table, index = self.flow.table(step), self.locate(step, row, slot)
        if index < 0:
            return None
        if not self.flow.has_values(table, index):
            described = table.recorded_meta(index)
            return TensorMeta(described[0], described[1], 0) if described else None
        known = self._measurements.record(step, index)
        if known is not None and known.meta is not None:
            return known.meta
        with TensorFile(table.spec(index)) as file:
            return file.layout.meta

    def records(self, step: int, outputs: Sequence[Output]) -> list[Record | None]:
        places = [(step, self.locate(step, row, slot)) for row, slot in outputs]
        self._measurements.ensure(
            {place: RequiredStats() for place in places if place[1] >= 0}, no_progress, "statistics"
        )
        return [self._measurements.record(*place) if place[1] >= 0 else None for place in places]

    def judge(self, step: int, watches: Sequence[WatchedOutputs], progress: ProgressFn = no_progress) -> OutputHits:
        """Judges outputs of one step, each with the watchpoints that name it; every file is read at most once.

        A weight-initialization watchpoint judges only the input of a parameter's first consumer at the first dumped
        step.
        """
        requests, valueless = self._requests(step, watches)
        wanted: dict[tuple[int, int], RequiredStats] = {}
        for number, index, _ in requests:
            place = (step, index)
            wanted[place] = wanted.get(place, RequiredStats()) | needs(watches[number].watchpoint)
        self._measurements.ensure(wanted, progress, f"rank {self.flow.rank} step {step}")
        hits = self._hits(step, watches, requests)
        hits.sort(key=lambda each: (each[1].order, each[1].key.slot, each[0]))
        return OutputHits(tuple(hits), tuple(valueless), self._coverage(step, watches, requests, hits))

    def _coverage(
        self,
        step: int,
        watches: Sequence[WatchedOutputs],
        requests: Sequence[tuple[int, int, Output]],
        hits: Sequence[tuple[int, Hit]],
    ) -> Coverage:
        named = [each.rows.astype(np.int64) << 32 | each.slots for each in watches]
        unknown = {
            (number, (hit.row, hit.key.slot))
            for number, hit in hits
            if hit.verdict is Verdict.CANNOT_JUDGE and hit.results[0].error & ErrorBits.NO_VALUE
        }
        judged = [(number, output) for number, _, output in requests if (number, output) not in unknown]
        looked_at = len({output for _, output in judged})
        unreadable = len({hit.key for _, hit in hits if hit.detail and hit.stats is None})
        watched = Counter({each.watchpoint.id: 0 for each in watches})
        watched.update(watches[number].watchpoint.id for number, _ in judged)
        blocked = Counter(hit.results[0].watchpoint for _, hit in hits if hit.results[0].verdict is Verdict.BLOCKED)
        return Coverage(
            checked=looked_at - unreadable,
            unreadable=unreadable,
            not_comparable=len({hit.key for _, hit in hits if hit.verdict is Verdict.NOT_COMPARABLE}),
            skipped=len(np.unique(np.concatenate(named))) - looked_at if named else 0,
            steps=((self.flow.rank, step),) if holds_tensors(self.flow.table(step)) else (),
            watched=tuple(sorted(watched.items())),
            blocked=tuple(sorted(blocked.items())),
        )

    def _requests(
        self, step: int, watches: Sequence[WatchedOutputs]
    ) -> tuple[list[tuple[int, int, Output]], list[tuple[int, Output]]]:
        """Returns (watchpoint, table row, output) of outputs with values; (watchpoint, output) of the others."""
        located: dict[tuple[Callable[[int, int, int], int], Output], int] = {}
        requests: list[tuple[int, int, Output]] = []
        valueless: list[tuple[int, Output]] = []
        for number, watch in enumerate(watches):
            condition = CONDITIONS[watch.watchpoint.condition]
            for output in zip(watch.rows.tolist(), watch.slots.tolist(), strict=True):
                if condition.initial_only and not self._starts(step, output[0]):
                    continue
                locate = self._first_read if condition.initial_only else self.locate
                if condition.is_device_overflow:
                    locate = self._own_file
                if (locate, output) not in located:
                    located[locate, output] = locate(step, *output)
                index = located[locate, output]
                if index < 0 or self.flow.is_constant(output[0]):
                    valueless.append((number, output))
                elif not condition.is_device_overflow or self.flow.table(step).tells_overflow:
                    requests.append((number, index, output))
        return requests, valueless

    def _hits(
        self, step: int, watches: Sequence[WatchedOutputs], requests: Sequence[tuple[int, int, Output]]
    ) -> list[tuple[int, Hit]]:
        """Returns (watchpoint, hit with the one result) of every output with a verdict."""
        hits = []
        with self._measurements.locked():
            records = self._measurements.records(step)
            for number, group in groupby(requests, key=itemgetter(0)):
                watchpoint = watches[number].watchpoint
                places = [(index, output) for _, index, output in group]
                first = np.array([self.flow.previous_step(row, step) is None for _, (row, _) in places])
                initial = CONDITIONS[watchpoint.condition].initial_only
                evaluator = self._evaluator(step, records, places)
                for place, result in zip(places, evaluator.results(watchpoint, first, initial=initial), strict=True):
                    if result is not None:
                        hits.append((number, self._hit(step, *place, result)))
        return hits

    def _evaluator(self, step: int, records: Records, places: Sequence[tuple[int, Output]]) -> ColumnEvaluator:
        pair, rows = (self.flow.rank, step), np.array([index for index, _ in places], np.int64)
        node, slot = (np.array([output[part] for _, output in places], np.int64) for part in (0, 1))
        side = np.full(len(places), int(Side.OUTPUT))
        marked = overflowed(self.flow.table(step), rows)
        return ColumnEvaluator(records, rows, lambda: facts_of(self.flow.nodes, pair, node, side, slot), marked)

    def _hit(self, step: int, index: int, output: Output, result: WatchResult) -> Hit:
        record = self._measurements.record(step, index)
        table = self.flow.table(step)
        order = int(table.order[index])
        found = overflow_text(table, index) if overflowed(table, np.array([index]))[0] else ""
        stats, detail = (record.stats, record.error) if record is not None else (None, "")
        if not detail and CONDITIONS[result.condition].is_device_overflow:
            detail = found
        return Hit(self.key(step, output), output[0], (result,), (step, order), stats, detail=detail, overflow=found)

    def _own_file(self, step: int, row: int, slot: int) -> int:
        """Index of the file of an output, or of its operator's first file if only inputs were dumped."""
        table = self.flow.table(step)
        index = table.find(row, Side.OUTPUT, slot)
        if index >= 0 or not self._only_inputs(step):
            return index
        own = table.of_node(row)
        return int(own[0]) if len(own) else -1

    def unknown(self, step: int) -> int:
        """Counts outputs on disk whose node or slot the graph does not have; only for ranks with a graph."""
        table, nodes = self.flow.table(step), self.flow.nodes
        stray = (nodes.flags & int(NodeFlag.FILE_ONLY)).astype(np.bool_)
        outputs = (table.side == int(Side.OUTPUT)) & (table.flags & int(TensorFlag.CONSTANT) == 0)
        return int((outputs & (stray[table.node] | (table.slot >= nodes.outputs[table.node]))).sum())

    def key(self, step: int, output: Output) -> TensorKey:
        row, slot = output
        return self.flow.nodes.key(self.flow.rank, step, row, slot=slot)

    def _starts(self, step: int, row: int) -> bool:
        """Tells whether a parameter is at its first dumped step: its first reader saw its initial value."""
        return self.flow.nodes.category_of(row) in PARAMETERS and self.flow.previous_step(row, step) is None

    def _only_inputs(self, step: int) -> bool:
        known = self._inputs_only.get(step)
        if known is None:
            table, nodes = self.flow.table(step), self.flow.nodes
            outputs = (table.side == int(Side.OUTPUT)) & ((table.flags & int(TensorFlag.CONSTANT)) == 0)
            operator = np.array([name != PARAMETER for name in (*nodes.types, "")], np.bool_)
            known = not bool(operator[nodes.type_id[table.node[outputs]]].any())
            self._inputs_only[step] = known
        return known

    def _first_read(self, step: int, row: int, slot: int) -> int:
        """Index of the first input file, in execution order, of a consumer of an output; -1 without any."""
        table = self.flow.table(step)
        readers = real_consumers(self.flow.nodes, row, slot)
        found = [index for reader, at in readers if (index := table.find(reader, Side.INPUT, at)) >= 0]
        return min(found, key=lambda index: int(table.order[index]), default=-1)
