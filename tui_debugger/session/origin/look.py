"""Looks at one step of one rank: what is bad there, where it starts, and what is worth knowing about that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, Verdict, Watchpoint, WatchResult
from tui_debugger.session.checking import Checker
from tui_debugger.session.flow import Flow, Located
from tui_debugger.session.origin.examine import Examined, Examiner, Judged, question_of
from tui_debugger.session.origin.making import Start
from tui_debugger.session.origin.search import Fed, Look, Origin
from tui_debugger.session.origin.spread import knows_edges, spread_from
from tui_debugger.session.tensors import measured, tensor_row
from tui_debugger.session.types import Pair, TensorRow
from tui_debugger.session.undisturbed import undisturbed

CheckerOf = Callable[[int, Sequence[Watchpoint], ProgressFn], Checker]
"""Makes the checker of a rank with some watchpoints."""


def look_at(
    checker_of: CheckerOf, spread: int, pair: Pair, watchpoints: Sequence[Watchpoint], progress: ProgressFn
) -> Look:
    """Looks at one step of one rank: ``LookAt`` of the search, once its first two arguments are given.

    Args:
        checker_of: makes the checker of a rank.
        spread: how many of the following bad tensors are wanted.
        pair: (rank, step).
        watchpoints: what is bad.
        progress: receives snapshots.

    Raises:
        CancelledError: from ``progress``.
    """
    rank, step = pair
    return undisturbed(lambda: _look(checker_of(rank, watchpoints, progress), step, watchpoints, spread, progress))


def _look(checker: Checker, step: int, watchpoints: Sequence[Watchpoint], spread: int, progress: ProgressFn) -> Look:
    """Checks one step of one rank and finds its origins.

    Raises:
        CancelledError: from ``progress``.
        RenumberedError: the nodes were read anew meanwhile.
    """
    result = checker.check(step, progress)
    pair = (checker.flow.rank, step)
    hits = result.hits.with_verdict(Verdict.FINDING)
    if not hits:
        return Look(pair, result)
    questions = {watchpoint.id: question_of(watchpoint) for watchpoint in watchpoints}
    asked = [(hit, [questions[found.watchpoint] for found in _findings(hit)]) for hit in hits]
    examined = Examiner(checker.measurements).examine(step, asked, progress)
    teller = _Teller(checker, step, hits, progress)
    starting = [each for each in examined if each.start in Start.origins()]
    told = [teller.tell(list(group)) for group in _by_node(starting)]
    origins = tuple(origin for origin in told if origin.starts_here)
    first = None if origins else teller.tell([examined[0]])
    row = origins[0].row if origins else hits[0].row
    return Look(
        pair=pair,
        result=result,
        origins=origins,
        before=tuple(origin for origin in told if not origin.starts_here),
        first=first,
        bad=len(hits),
        parameters=sum(_is_carried(checker.flow, hit) for hit in hits),
        spread=spread_from(checker.flow, row, origins[0].hit if origins else hits[0], hits, spread),
        by_graph=knows_edges(checker.flow, row),
    )


def _findings(hit: Hit) -> list[WatchResult]:
    return [result for result in hit.results if result.verdict is Verdict.FINDING]


def _by_node(examined: Sequence[Examined]) -> list[list[Examined]]:
    """The tensors that start at one node in one way, together; by their first tensor."""

    def kind(each: Examined) -> tuple[int, str]:
        return each.row, each.start.value

    first: dict[tuple[int, str], int] = {}
    for number, each in enumerate(examined):
        first.setdefault(kind(each), number)
    ordered = sorted(examined, key=lambda each: first[kind(each)])
    return [list(group) for _, group in groupby(ordered, key=kind)]


def _is_carried(flow: Flow, hit: Hit) -> bool:
    """Whether the next step starts with it: the value of a parameter that steps change."""
    row = flow.holder(hit.row, hit.key.slot).row if hit.key.side is Side.INPUT else hit.row
    return row >= 0 and flow.nodes.category_of(row) in PARAMETERS and flow.updated(row)


class _Teller:
    """Puts together what is worth knowing about the tensors where something starts."""

    def __init__(self, checker: Checker, step: int, hits: Sequence[Hit], progress: ProgressFn) -> None:
        self.measurements = checker.measurements
        self.flow = checker.flow
        self.step = step
        self.keys = {hit.key for hit in hits}
        self.progress = progress

    def tell(self, group: Sequence[Examined]) -> Origin:
        """One origin from the tensors that start at one node."""
        lead, nodes = group[0], self.flow.nodes
        row, other = lead.row, lead.other
        inputs = [self._source_row(each) for each in lead.sources]
        rows = self._measured([*inputs, *self._output_rows(group)])
        findings = _findings(lead.hit)
        stack_of = self._with_stack(row, other, lead.hit.row)
        return Origin(
            start=lead.start,
            graph=nodes.graph_of(row).name,
            node=nodes.names[row],
            type=nodes.op_type(row),
            row=row,
            other=nodes.names[other] if other >= 0 else "",
            hits=tuple(each.hit for each in group),
            results=tuple(findings[number] for number in lead.asked),
            inputs=tuple(
                Fed(given, each.state, each.constant, each.before or self._earlier(each))
                for given, each in zip(rows, lead.sources, strict=False)
            ),
            outputs=rows[len(inputs) :],
            stack=tuple(frame for frame in nodes.stack(stack_of) if not frame.context) if stack_of >= 0 else (),
            stack_of=nodes.names[stack_of] if stack_of >= 0 else "",
        )

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

    def _earlier(self, each: Judged) -> bool:
        return each.source.initial or (each.at is not None and each.at.step != self.step)

    def _output_rows(self, group: Sequence[Examined]) -> list[TensorRow]:
        lead = group[0]
        if lead.making.node == lead.hit.row and lead.hit.key.side is Side.OUTPUT:
            table = self.flow.table(self.step)
            indices = [int(i) for i in table.of_node(lead.hit.row) if int(table.side[i]) == Side.OUTPUT]
            places = [Located(self.step, i, lead.hit.row, Side.OUTPUT, int(table.slot[i])) for i in indices]
        else:
            places = [self._place_of(each.hit) for each in group]
        return [
            self._row(at, at.side.label, at.slot, self._producer(at.row, at.slot) if at.side is Side.INPUT else "")
            for at in places
        ]

    def _place_of(self, hit: Hit) -> Located:
        index = self.flow.table(self.step).find(hit.row, hit.key.side, hit.key.slot)
        return Located(self.step, index, hit.row, hit.key.side, hit.key.slot)

    def _row(self, at: Located, role: str, slot: int, text: str) -> TensorRow:
        return tensor_row(self.flow, at, (role, slot, text), self.keys.__contains__)

    def _with_stack(self, *rows: int) -> int:
        """The first of some nodes (or else of a parameter's consumers) that comes from a line of a program."""
        candidates = [row for row in rows if row >= 0]
        candidates += [consumer for row in candidates for consumer, _ in self.flow.consumers(row)]
        return next((row for row in candidates if self.flow.nodes.stack(row)), -1)
