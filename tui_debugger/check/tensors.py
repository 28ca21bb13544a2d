"""The tensor table of a node: its inputs, outputs and parameters at one step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tui_debugger.arrays import Array
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.hits import overflow_text
from tui_debugger.check.measure import Measurements
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import TensorRow
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import PARAMETERS, ProgressFn, ReadSpec, Side, TensorKey, no_progress
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.blocks import peak
from tui_debugger.stats.records import Record, RequiredStats
from tui_debugger.text.numbers import number
from tui_debugger.text.tensors import slot_text

IsHit = Callable[[TensorKey], bool]
HitsOf = Callable[[Sequence[int]], IsHit]
"""Returns a predicate that tells which tensors of some nodes, by row, have a finding."""


def hits_in(known: PairResult | None) -> HitsOf:
    def of_nodes(rows: Sequence[int]) -> IsHit:
        found = known.hits.tensors_found(rows) if known is not None else frozenset[TensorKey]()
        return found.__contains__

    return of_nodes


def tensor_rows(
    flow: DataFlow,
    step: int,
    row: int,
    hits_of: HitsOf,
    round: int = 0,  # noqa: A002 - see TensorKey
    *,
    every: bool = False,
) -> tuple[TensorRow, ...]:
    """Inputs by slot, outputs by slot, then the parameters that feed the node with their value of this step.

    Nothing is read. Inputs without a file show the producer's tensor. ``round`` is a run of the node, 0 the newest.
    With ``every``, each tensor is followed by its values of earlier runs in this step, the youngest first.
    """
    if row >= len(flow.nodes):  # of a table that was longer
        return ()
    is_hit = hits_of([row, *(holder.row for holder in flow.holders(row))])
    rows = _RowMaker(flow, step, row, is_hit, round).rows()
    if not every:
        return tuple(rows)
    table = flow.table(step)
    newest = round or int(table.round[table.of_node(row)].max(initial=0))
    earlier = [_RowMaker(flow, step, row, is_hit, number).rows() for number in range(newest - 1, 0, -1)]
    return tuple(_with_earlier(rows, [each for of_round in earlier for each in of_round if each.index >= 0]))


def _with_earlier(rows: Sequence[TensorRow], earlier: Sequence[TensorRow]) -> Iterator[TensorRow]:
    """Yields each row, followed by the tensors in its place in earlier runs."""
    for row in rows:
        yield row
        seen = {row.key}
        for each in earlier:
            if (each.role, each.slot) == (row.role, row.slot) and each.key not in seen:
                seen.add(each.key)
                yield each


class _RowMaker:
    def __init__(
        self,
        flow: DataFlow,
        step: int,
        row: int,
        is_hit: IsHit,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> None:
        self.round = round
        self.flow = flow
        self.step = step
        self.row = row
        self.is_hit = is_hit
        self.table = flow.table(step)
        self.holders = flow.holders(row)

    def rows(self) -> list[TensorRow]:
        return [*self.inputs(), *self.outputs(), *self.parameters()]

    def _slots(self, side: Side) -> set[int]:
        return {int(self.table.slot[i]) for i in self.table.of_node(self.row) if int(self.table.side[i]) == side}

    def inputs(self) -> list[TensorRow]:
        slots = self._slots(Side.INPUT) | set(range(len(self.holders)))
        return [self._input(slot) for slot in sorted(slots)]

    def _input(self, slot: int) -> TensorRow:
        at = self.flow.locate_input(self.step, self.row, slot, self.round)
        if at is None:
            at = Located(self.step, -1, self.row, Side.INPUT, slot, self.round)
        return self.make(at, "in", slot, self._producer_text(slot))

    def _producer_text(self, slot: int) -> str:
        if slot >= len(self.holders) or self.holders[slot].row < 0:
            return ""
        holder = self.holders[slot]
        name = self.flow.nodes.names[holder.row]
        if self.flow.is_constant(holder.row):
            value = self.flow.nodes.constants.get(holder.row, "")
            return f"{name} = {value}" if value else name
        return f"{name}:{holder.slot}"

    def outputs(self) -> list[TensorRow]:
        slots = self._slots(Side.OUTPUT)
        if not slots:
            slots = set(range(int(self.flow.nodes.outputs[self.row])))
        return [self._output(slot) for slot in sorted(slots)]

    def _output(self, slot: int) -> TensorRow:
        at = self.flow.located(self.step, self.row, Side.OUTPUT, slot, self.round)
        text = self.flow.nodes.constants.get(self.row, "") if self.flow.is_constant(self.row) else ""
        return self.make(at, "out", slot, text)

    def parameters(self) -> list[TensorRow]:
        nodes, rows = self.flow.nodes, []
        for slot, holder in enumerate(self.holders):
            if holder.row >= 0 and nodes.category_of(holder.row) in PARAMETERS and self.flow.updated(holder.row):
                at = self.flow.located(self.step, holder.row, Side.OUTPUT, holder.slot, self.round)
                if at.index >= 0:
                    rows.append(self.make(at, "param", slot, f"{nodes.names[holder.row]}:{holder.slot}"))
        return rows

    def make(self, at: Located, role: str, slot: int, origin: str) -> TensorRow:
        table = self.flow.table(at.step)
        key = self.flow.key(at)
        has_file = at.index >= 0
        flags = int(table.flags[at.index]) if has_file else 0
        return TensorRow(
            key=key,
            role=role,
            slot=slot,
            index=at.index,
            has_value=has_file and bool(not flags & TensorFlag.STAT_ONLY or flags & TensorFlag.REMOTE),
            has_previous=has_file and self._has_previous(at),
            hit=self.is_hit(key),
            uncertain=bool(flags & TensorFlag.UNCERTAIN),
            origin_text=origin,
            recorded=bool(flags & TensorFlag.STAT_ONLY) and not flags & (TensorFlag.UNKNOWN | TensorFlag.EXACT),
            remote=bool(flags & TensorFlag.REMOTE),
            rounds=self._rounds(at) if key.round else 0,
            placement=self.flow.nodes.placements.get(at.row, ""),
            overflow=overflow_text(table, at.index) if flags & TensorFlag.OVERFLOWED else "",
        )

    def _rounds(self, at: Located) -> int:
        table = self.flow.table(at.step)
        newest = table.find(at.row, at.side, at.slot)
        return int(table.round[newest]) if newest >= 0 else 0

    def _has_previous(self, at: Located) -> bool:
        before = self.flow.before(at.row, at.side, at.slot, at.step, at.round)
        return before is not None and before.index >= 0


def tensor_row(flow: DataFlow, at: Located, labels: tuple[str, int, str], is_hit: IsHit) -> TensorRow:
    """The row of one located tensor; ``labels`` are ``role``, ``slot`` and ``origin_text`` of the row."""
    return _RowMaker(flow, at.step, at.row, is_hit).make(at, *labels)


def row_of(flow: DataFlow, key: TensorKey, hits_of: HitsOf) -> TensorRow:
    """The row of one tensor at its own node; UnreadableTensorError when the run has no such node."""
    row = flow.row_of(key)
    at = flow.located(key.step, row, key.side, key.slot, key.round)
    return tensor_row(flow, at, (key.side.label, key.slot, ""), hits_of([row]))


def measured(
    measurements: Measurements, rows: Sequence[TensorRow], progress: ProgressFn = no_progress
) -> tuple[TensorRow, ...]:
    places = [_place(measurements.flow, row) for row in rows]
    known = {place: measurements.known(*place) for place in places if place is not None}
    unknown = [place for place, record in known.items() if record is None]
    if unknown:
        measurements.ensure({place: RequiredStats() for place in unknown}, progress, "statistics")
        known |= {place: measurements.record(*place) for place in unknown}
    found = []
    for row, place in zip(rows, places, strict=True):
        record = known[place] if place is not None else None
        if place is None or record is None:
            found.append(row)
            continue
        remark = mean_remark(measurements.flow.table(place[0]), place[1], record)
        found.append(dataclasses.replace(row, remark=remark, meta=record.meta, stats=record.stats, error=record.error))
    return tuple(found)


def mean_remark(table: TensorTable, index: int, record: Record) -> str:
    """Says what is wrong with the mean that a dump recorded; empty where nothing is."""
    recorded = table.doubtful_mean(index)
    if recorded is None:
        return ""
    why = "MindSpore 1.6 to 2.3 averages a part of large tensors"
    stats = record.stats
    if int(table.flags[index]) & TensorFlag.STAT_ONLY or stats is None:
        return f"recorded average {number(recorded)} is not believed: {why}"
    if stats.mean is None or math.isclose(
        recorded, stats.mean, rel_tol=_ROUNDED, abs_tol=_ROUNDED * (peak(stats) or 0)
    ):
        return ""
    return f"recorded average {number(recorded)} is wrong, {number(stats.mean)} by the values: {why}"


_ROUNDED: Final = 1e-5
"""Recorded statistics have six digits."""


def _place(flow: DataFlow, row: TensorRow) -> tuple[int, int] | None:
    """The present (step, index) of a row's tensor, as the step may have been listed anew."""
    key = row.key
    flow.table(key.step)  # first: it may bring the node
    at = flow.located(key.step, flow.nodes.find(key.node, key.graph), key.side, key.slot, key.round)
    return (key.step, at.index) if at.index >= 0 else None


def opened(key: TensorKey, spec: ReadSpec | None) -> Array:
    """The values of a tensor, read-only and maybe memory-mapped; UnreadableTensorError when they cannot be read."""
    from tui_debugger.stats.npy import open_lazily

    if spec is None:
        raise UnreadableTensorError(
            "this tensor was not dumped",
            where=f"rank {key.rank} step {key.step} {key.node} {slot_text(key)}",
            hint="choose a step at which it was, or record it as well: `tdbg ls --formats` says how",
        )
    return open_lazily(spec)
