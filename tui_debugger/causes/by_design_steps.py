"""Applies the rule of ``by_design`` to the tensors of a step, of a dump or a training, and marks excused hits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tui_debugger.causes.by_design import Designs
from tui_debugger.causes.by_design_readers import (
    ElementCounts,
    holds_the_same,
    is_infinite,
    is_known,
    same_infinities,
    same_signs,
    stated,
    unmade,
)
from tui_debugger.causes.by_design_table import NOTHING
from tui_debugger.check.flow import Holder
from tui_debugger.check.hits import HitList, StepHits
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import assigned, draws_updates
from tui_debugger.graph.table import real_consumers, real_inputs
from tui_debugger.model import (
    PARAMETERS,
    AtLeast,
    OperandState,
    ProgressFn,
    Side,
    TensorMeta,
    TensorStats,
    Verdict,
    no_progress,
)
from tui_debugger.stats.records import Record, RequiredStats, holds_bad
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import first_of, plural
from tui_debugger.text.phrases import limits_of
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.evaluate import SILENT

_COLUMNS: Final = (("Inf", "pos_inf"), ("-Inf", "neg_inf"), ("NaN", "nan"))
_NAMES: Final = 4
"""Operator types that are named of those that absorb."""
_NEAREST: Final = 16
"""Other steps in which a node is looked for that has nothing in a step."""


class StepDesigns(Designs):
    """``Designs`` with the recorded tensors of a step: of one round, or of all rounds together."""

    def __init__(
        self,
        measurements: Measurements,
        step: int,
        progress: ProgressFn = no_progress,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> None:
        super().__init__(measurements.flow.nodes, self._held)
        self._round = round
        self._rounds: dict[int, StepDesigns] = {round: self}
        self._measurements = measurements
        self._flow = measurements.flow
        self._step = step
        self._table = self._flow.table(step)
        self._progress = progress
        self._known: dict[tuple[int, int], ElementCounts | None] = {}

    def of_round(self, round: int) -> StepDesigns:  # noqa: A002 - see TensorKey
        """Returns the ``StepDesigns`` of one round: another micro-batch may hold NaN where this round has a mask."""
        if round not in self._rounds:
            self._rounds[round] = StepDesigns(self._measurements, self._step, self._progress, round)
        return self._rounds[round]

    def intended(self, row: int, slot: int, depth: int = 0) -> bool:
        """See ``Designs``; answers that were found while the training was stopped are reused."""
        return bool(self._table.by_design.get((row, slot))) or super().intended(row, slot, depth)

    def absorbed_by(self, row: int, slot: int, depth: int = 0) -> frozenset[str]:
        found = self._table.by_design.get((row, slot))
        return super().absorbed_by(row, slot, depth) if found is None else found

    def intended_at(self, row: int, side: Side, slot: int, *, nan: bool = False) -> bool:
        """``intended`` of an input or output of a node; ``nan``: it is known to hold NaN."""
        if nan and not self.may_hide(row):
            return bool(self._said(row, side, slot))
        if side is Side.INPUT and not draws_updates(self._nodes):
            row_of = self._flow.holder(row, slot).row
            if not self.may_be_intended(row_of):
                return False
        place = self._place(row, side, slot)
        return place is not None and self.intended(*place)

    def absorbed_at(self, row: int, side: Side, slot: int) -> frozenset[str]:
        place = self._place(row, side, slot)
        return frozenset() if place is None else self.absorbed_by(*place)

    def mark(self, hits: StepHits) -> int:
        """Marks the hits of this step that are by design as such, and counts them."""
        rows = hits.records.rows
        for at in np.flatnonzero(holds_bad(rows)).tolist():
            place = int(hits.node[at]), Side(int(hits.side[at])), int(hits.slot[at])
            if rows["nan"][at] and not self.may_hide(place[0]):
                types = self._said(*place)
            else:
                types = self.of_round(int(hits.round[at])).absorbed_at(*place)
            if types:
                mark(hits, at, types)
        return len(hits.designed)

    def _said(self, row: int, side: Side, slot: int) -> frozenset[str]:
        """The kinds that absorb an output or leave it out, as found while the training was stopped."""
        return self._table.by_design.get((row, slot), frozenset()) if side is Side.OUTPUT else frozenset()

    def _ran(self, row: int) -> bool:
        """See ``Designs``: a node that has tensors in another step and none in this one did not run in this one."""
        if len(self._table.of_node(row, every=True)):
            return True
        steps = dict.fromkeys(step for step, _ in self._flow.runs_of(row) if step != self._step)
        nearest = sorted(steps, key=lambda step: abs(step - self._step))[:_NEAREST]
        return not any(len(self._flow.table(step).of_node(row, every=True)) for step in nearest)

    def _place(self, row: int, side: Side, slot: int) -> tuple[int, int] | None:
        """The output that an input or output is; None where that is not known, or an input differs from it."""
        if side is Side.OUTPUT:
            return row, slot
        holder = self._flow.holder(row, slot)
        if holder.row < 0:
            return unmade(row, slot)
        if self.copied(row) is not None:
            return row, 0
        wrote, got = self._held(holder.row, holder.slot), self._file(row, side, slot)
        if wrote is None or got is None:
            return None
        nan = bool(got.nan and not wrote.nan)
        if same_infinities(got, wrote) and not nan:
            return holder.row, holder.slot
        # What was written into some elements since: what wrote it is listed behind the operands.
        found = [(each, self._held(*each)) for each in self._put_in_part(row, slot)]
        alike = (each for each, held in found if not got.counted or same_signs(got, held))
        return next((each for each, held in found if held is not None and held.nan) if nan else alike, None)

    def _read_clean(self, row: int, slot: int) -> bool:
        if not draws_updates(self._nodes):
            return False
        if self._table.operands.get((row, slot)) == OperandState.CLEAN:
            return True
        read = self._file(row, Side.INPUT, slot)
        return read is not None and not read.bad

    def _is_boolean(self, row: int, slot: int) -> bool:
        index = self._table.find(row, Side.OUTPUT, slot, self._round)
        meta = self._table.recorded_meta(index) if index >= 0 else None
        return meta is not None and meta[0] == "bool"

    def _put_in_part(self, row: int, slot: int) -> list[tuple[int, int]]:
        others = real_inputs(self._nodes, row) if draws_updates(self._nodes) else []
        return [each for at, each in enumerate(others) if at != slot and each[0] >= 0 and self.intended(*each)]

    def _held(self, row: int, slot: int) -> ElementCounts | None:
        """Returns what an output holds, by its own file or else a consumer's; of a constant what the graph says."""
        place = row, slot
        if place not in self._known:
            self._known[place] = self._found(row, slot)
        return self._known[place]

    def _found(self, row: int, slot: int) -> ElementCounts | None:
        if row < 0:
            reader, at = unmade(row, slot)
            return self._file(reader, Side.INPUT, at)
        if self._flow.is_constant(row):
            return self._constant(row, slot)
        if self._nodes.category_of(row) in PARAMETERS and self._flow.updated(row):
            before = self._flow.locate_held(self._step, Holder(row, slot), self._round)
            held = None if before is None else elements_of(self._record(before.index, before.step))
            # What reads a buffer that operators of the step change may have read what they put there.
            put = self._file(row, Side.OUTPUT, slot) if assigned(self._nodes, row) else None
            if held is None or put is None or not put.bad:
                return held or put
            return put if held == put else replace(put, nan=put.nan + held.nan, counted=False)
        found = self._file(row, Side.OUTPUT, slot)
        if found is None:
            for consumer, at in real_consumers(self._flow.nodes, row, slot):
                found = self._file(consumer, Side.INPUT, at)
                if found is not None:
                    break
        return found

    def _constant(self, row: int, slot: int) -> ElementCounts | None:
        """The content of a graph constant; None when its files differ, as those of a constant never do."""
        readers = real_consumers(self._flow.nodes, row, slot)
        places = [(row, Side.OUTPUT, slot), *((reader, Side.INPUT, at) for reader, at in readers)]
        found = [record for place in places for record in self._records_of(self._step, *place)]
        if any(is_infinite(elements_of(record)) for record in found):
            found += next((records for place in places if (records := self._of_another_run(*place))), [])
        held = [elements_of(record) for record in found]
        if not held:
            return stated(self._flow.nodes, row)
        first = held[0]
        same = {None if each is None else (each.nan, each.positive, each.negative) for each in held}
        return first if len(same) == 1 else None

    def _of_another_run(self, row: int, side: Side, slot: int) -> list[Record | None]:
        for step in dict.fromkeys(step for step, _ in self._flow.runs_of(row)):
            if step != self._step and (records := self._records_of(step, row, side, slot)):
                return records
        return []

    def _records_of(self, step: int, row: int, side: Side, slot: int) -> list[Record | None]:
        table = self._flow.table(step)
        rows = table.of_node(row, every=True)
        rows = rows[(table.side[rows] == int(side)) & (table.slot[rows] == slot)]
        if self._round and step == self._step:
            mine = rows[np.isin(table.round[rows], (0, self._round))]
            rows = mine if len(mine) else rows
        return [self._record(int(at), step) for at in rows]

    def _same_inside(self, row: int, slot: int) -> list[tuple[int, int]]:
        if row >= 0:
            return []
        table, (reader, at), mine = self._table, unmade(row, slot), self._held(row, slot)
        index = table.find(reader, Side.INPUT, at, self._round)
        meta = table.recorded_meta(index) if index >= 0 else None
        if mine is None or meta is None or is_known(self._kind(reader)):
            return []
        found: dict[tuple[int, int], None] = {}
        for other in np.flatnonzero((table.side == int(Side.INPUT)) & (table.node >= 0)).tolist():
            node, place = int(table.node[other]), int(table.slot[other])
            if table.recorded_meta(other) != meta or not is_known(self._kind(node)):
                continue
            if self._flow.holder(node, place).row < 0 and holds_the_same(mine, self._held(*unmade(node, place))):
                found[unmade(node, place)] = None
        return list(found)

    def _file(self, row: int, side: Side, slot: int) -> ElementCounts | None:
        """Returns what was dumped as an input or output; of all rounds, or where this one has none: together."""
        found = [elements_of(each) for each in self._records_of(self._step, row, side, slot)]
        known = [each for each in found if each is not None]
        if not known or len(known) < len(found):
            return None
        if len(known) == 1:
            return known[0]
        peaks = [each.peak for each in known if each.peak is not None]
        return ElementCounts(
            sum(each.nan for each in known),
            sum(each.positive for each in known),
            sum(each.negative for each in known),
            sum(each.count for each in known),
            max(peaks) if len(peaks) == len(known) else None,
            known[0].largest,
            all(each.counted for each in known),
            all(each.lowest for each in known),
        )

    def _record(self, index: int, step: int) -> Record | None:
        record = self._measurements.record(step, index)
        if record is None:
            self._measurements.ensure({(step, index): RequiredStats()}, self._progress)
            record = self._measurements.record(step, index)
        return record


def elements_of(record: Record | None) -> ElementCounts | None:
    """Returns how many NaN and Inf a record has, and its peak; None where nothing was measured."""
    if record is None or record.stats is None:
        return None
    return elements_of_stats(record.stats, record.meta.dtype if record.meta is not None else "")


def elements_of_stats(stats: TensorStats, dtype: str) -> ElementCounts:
    largest, counted = _largest(dtype), stats.counted and not stats.at_least & AtLeast.INF
    elements = ElementCounts(stats.nan, stats.pos_inf, stats.neg_inf, stats.count, largest=largest, counted=counted)
    if stats.minimum is None and stats.count > stats.nan + stats.pos_inf + stats.neg_inf:
        return elements  # a training says of a clean tensor only that it is clean
    least, most = stats.minimum or 0.0, stats.maximum or 0.0
    lowest = largest is not None and least == -largest and most <= 0
    return replace(elements, peak=max(abs(least), abs(most)), lowest=lowest)


def _largest(dtype: str) -> float | None:
    limits = limits_of(TensorMeta(dtype, (), 0))
    return None if limits is None else limits.largest


# -- hits -----------------------------------------------------------------------------------------------


def mark(hits: StepHits, at: int, types: frozenset[str]) -> None:
    """Marks a hit as by design, with the operator types that absorb its Inf."""
    hits.designed[at] = types
    verdicts = {result.watchpoint: result.verdict for result in hits.results_of(at)}
    for number, (watchpoint, _) in enumerate(hits.watchpoints):
        if hits.verdicts[number, at] != SILENT and verdicts.get(watchpoint.id) is Verdict.BY_DESIGN:
            hits.verdicts[number, at] = Verdict.BY_DESIGN


def may_be_absorbed(hits: HitList) -> bool:
    """Tells whether every finding of an unfinished step is an Inf or NaN that later nodes may absorb."""
    for part, _, places in hits.with_verdict(Verdict.FINDING).by_step():
        designs = Designs(part.nodes, lambda *_: None)
        for at in places:
            found = [each for each in part.results_of(at) if each.verdict is Verdict.FINDING]
            stats = part.get(at).stats
            may_be = designs.may_hide if stats is not None and stats.nan else designs.may_be_intended
            if stats is None or not may_be(int(part.node[at])):
                return False
            if any(not CONDITIONS[each.condition].is_overflow for each in found):
                return False
    return True


def by_design_text(hits: HitList) -> str:
    """``-Inf by design: 12 tensors, absorbed by Softmax``; empty where there are none."""
    types: dict[str, None] = {}
    signs: set[str] = set()
    count = 0
    for part, _, places in hits.by_step():
        wanted = set(places.tolist())
        for at, absorbing in sorted(part.designed.items()):
            if at in wanted:
                count += 1
                types.update(dict.fromkeys(sorted(absorbing)))
                row = part.records.rows[at]
                signs |= {name for name, column in _COLUMNS if row[column]}
    if not count:
        return ""
    infinite = "±Inf" if signs >= {"Inf", "-Inf"} else "".join(signs - {"NaN"})
    sign = " and ".join(filter(None, [infinite, *(signs & {"NaN"})]))
    names = [clean(each) for each in types if each != NOTHING]
    by = f"absorbed by {first_of(names, _NAMES)}" if names else "read by nothing"
    return f"{sign} by design: {plural(count, 'tensor')}, {by}"
