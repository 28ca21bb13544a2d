"""Puts together what is worth knowing about a bad tensor: what it was made from, what came out, the source line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tui_debugger.model import (
    PARAMETERS,
    Category,
    Hit,
    ProgressFn,
    Side,
    TensorKey,
    Verdict,
    WatchResult,
    no_progress,
)
from tui_debugger.session.flow import Located
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.origin.examine import Examined, Judged
from tui_debugger.session.origin.making import Start
from tui_debugger.session.origin.search import Fed, Missing, NotJudged, Origin
from tui_debugger.session.tensors import measured, tensor_row
from tui_debugger.session.types import TensorRow
from tui_debugger.sources.base import TensorFlag
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_OVERFLOW


def findings(hit: Hit) -> list[WatchResult]:
    """What makes a tensor a finding: what watchpoints found on it, and what its NaN blocks where none looked for it."""
    found = [result for result in hit.results if result.verdict is Verdict.FINDING]
    if any(CONDITIONS[result.condition].wire == WIRE_OVERFLOW for result in found):
        return found
    return [result for result in hit.results if result.verdict in (Verdict.FINDING, Verdict.BLOCKED)]


class Teller:
    """Puts together what is worth knowing about the tensors where something starts."""

    def __init__(
        self,
        measurements: Measurements,
        step: int,
        is_bad: Callable[[TensorKey], bool],
        progress: ProgressFn = no_progress,
    ) -> None:
        """``is_bad`` says of a tensor whether it counts as a finding; measuring is told to ``progress``."""
        self.measurements = measurements
        self.flow = measurements.flow
        self.step = step
        self.is_bad = is_bad
        self.progress = progress

    def tell(self, group: Sequence[Examined]) -> Origin:
        """One origin from the tensors that start at one node; what is not bad has no results."""
        lead, nodes = group[0], self.flow.nodes
        row, other = lead.row, lead.other
        inputs = [self._source_row(each) for each in lead.sources]
        rows = self._measured([*inputs, *self._output_rows(group)])
        found = findings(lead.hit)
        stack_of = self._with_stack(row, other, lead.hit.row)
        return Origin(
            start=lead.start,
            graph=nodes.graph_of(row).name,
            node=nodes.names[row],
            type=nodes.op_type(row),
            row=row,
            other=nodes.names[other] if other >= 0 else "",
            hits=tuple(each.hit for each in group),
            results=tuple(found[number] for number in lead.asked if number < len(found)),
            inputs=tuple(
                Fed(
                    given,
                    each.state,
                    each.constant,
                    each.before or self._earlier(each, lead.hit.key.round),
                    each.designed,
                )
                for given, each in zip(rows, lead.sources, strict=False)
            ),
            outputs=rows[len(inputs) :],
            stack=tuple(frame for frame in nodes.stack(stack_of) if not frame.context) if stack_of >= 0 else (),
            stack_of=nodes.names[stack_of] if stack_of >= 0 else "",
            missing=self._missing(lead),
            exchanged=lead.making.exchanged,
        )

    def not_judged(self, group: Sequence[Examined]) -> NotJudged:
        """The tensors of a node that may be where something starts, and may not."""
        lead, nodes = group[0], self.flow.nodes
        return NotJudged(
            graph=nodes.graph_of(lead.row).name,
            node=nodes.names[lead.row],
            type=nodes.op_type(lead.row),
            row=lead.row,
            hits=tuple(each.hit for each in group),
            missing=self._missing(lead),
            exchanged=lead.making.exchanged,
        )

    def _missing(self, lead: Examined) -> tuple[Missing, ...]:
        if lead.start is not Start.UNKNOWN:
            return ()
        found = [self._missing_of(each) for each in lead.missing if each.source.side is Side.INPUT]
        key = lead.hit.key
        if not lead.sources and key.side is Side.INPUT:  # an input file, and no graph says what feeds it
            found.append(Missing(key.slot, "", "has no known producer", self.flow.nodes.names[lead.hit.row]))
        return tuple(found)

    def _missing_of(self, each: Judged) -> Missing:
        source, nodes = each.source, self.flow.nodes
        holder = self.flow.holder(source.node, source.slot)
        name = f"{nodes.names[holder.row]}:{holder.slot}" if holder.row >= 0 else ""
        operator = holder.row >= 0 and nodes.category_of(holder.row) not in {*PARAMETERS, Category.CONSTANT}
        why = "was not dumped" if each.at is None else "cannot be read"
        if each.at is not None and source.after:
            why = "is known after its update only"
        elif each.at is not None and int(self.flow.table(each.at.step).flags[each.at.index]) & TensorFlag.UNKNOWN:
            why = "was not fetched"
        return Missing(source.slot, name, why, nodes.names[holder.row if operator else source.node])

    def _measured(self, rows: Sequence[TensorRow]) -> tuple[TensorRow, ...]:
        return measured(self.measurements, rows, self.progress)

    def _source_row(self, each: Judged) -> TensorRow:
        source = each.source
        at = each.at or Located(self.step, -1, source.node, source.side, source.slot)
        text = self._producer(source.node, source.slot) if source.side is Side.INPUT else ""
        return self._row(at, "in" if source.side is Side.INPUT else "out", source.slot, text)

    def _producer(self, row: int, slot: int) -> str:
        """``node:slot`` of what feeds an input, or the value of a constant."""
        holder, nodes = self.flow.holder(row, slot), self.flow.nodes
        if holder.row < 0:
            return ""
        if self.flow.is_constant(holder.row):
            value = nodes.constants.get(holder.row, "")
            return f"{nodes.names[holder.row]} = {value}" if value else nodes.names[holder.row]
        return f"{nodes.names[holder.row]}:{holder.slot}"

    def _earlier(self, each: Judged, round: int) -> bool:  # noqa: A002 - see TensorKey
        at = each.at
        return each.source.initial or (
            at is not None and (at.step, at.round or round) != (self.step, round or at.round)
        )

    def _output_rows(self, group: Sequence[Examined]) -> list[TensorRow]:
        lead = group[0]
        if lead.making.node == lead.hit.row and lead.hit.key.side is Side.OUTPUT:
            row, number = lead.hit.row, lead.hit.key.round
            slots = self.flow.slots(self.step, row, Side.OUTPUT, number)
            places = [self.flow.located(self.step, row, Side.OUTPUT, slot, number) for slot in slots]
        else:
            places = [self._place_of(each.hit) for each in group]
        return [
            self._row(at, at.side.label, at.slot, self._producer(at.row, at.slot) if at.side is Side.INPUT else "")
            for at in places
        ]

    def _place_of(self, hit: Hit) -> Located:
        return self.flow.located(self.step, hit.row, hit.key.side, hit.key.slot, hit.key.round)

    def _row(self, at: Located, role: str, slot: int, text: str) -> TensorRow:
        return tensor_row(self.flow, at, (role, slot, text), self.is_bad)

    def _with_stack(self, *rows: int) -> int:
        """The first of some nodes (or else of a parameter's consumers) that comes from a line of a program."""
        candidates = [row for row in rows if row >= 0]
        candidates += [consumer for row in candidates for consumer, _ in self.flow.consumers(row)]
        return next((row for row in candidates if self.flow.nodes.stack(row)), -1)
