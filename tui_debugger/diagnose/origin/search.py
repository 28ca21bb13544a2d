"""Searches for the first origin of bad tensors, step by step over all ranks.

Steps are looked at in the order in which they began to run; the first origin is the one in the earliest run. A step can
hold runs that began long after those of later steps. So the search ends at a run with an origin only when each step of
each rank that holds an earlier or simultaneous run was looked at: this makes "rank 3 was first" true. It also ends at a
run without an origin that leaves bad parameters behind: later runs are made from them, so none can tell where it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.causes.rule import Asked, Examination
from tui_debugger.causes.table import OVERFLOW, Criterion, Examined, InputState, JudgedValue, OriginKind, criterion_of
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.check.progress import retry_when_renumbered, scaled
from tui_debugger.check.results import merged
from tui_debugger.check.step import PairResult, StepChecker
from tui_debugger.check.tensors import measured, tensor_row
from tui_debugger.check.types import CheckResult, Pair, TensorRow
from tui_debugger.errors import CancelledError
from tui_debugger.graph.table import NodeFlag, NodeTable, edges
from tui_debugger.model import (
    PARAMETERS,
    Category,
    Frame,
    Hit,
    NodeKind,
    NodeSelection,
    NodeSelector,
    ProgressFn,
    Side,
    TensorKey,
    Verdict,
    Watchpoint,
    WatchResult,
    no_progress,
    turn_of,
)
from tui_debugger.sources.base import TensorFlag
from tui_debugger.watch.condition_table import CONDITIONS

OVERFLOW_ANYWHERE = Watchpoint(
    1, "tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
)
"""The default watchpoint: NaN or Inf in any tensor."""


@dataclass(frozen=True, slots=True)
class OriginInput:
    """One of the tensors that the origin was made from.

    Attributes:
        row: the tensor with its statistics; without a value when it was not dumped.
        state: whether it is bad, by the watchpoints that start at the origin.
        constant: a graph constant, or an operator's attribute.
        before: it is the value before the node overwrote it, or before the step changed it.
        designed: its Inf was written by intent: see ``by_design``.
    """

    row: TensorRow
    state: InputState
    constant: bool = False
    before: bool = False
    designed: bool = False


@dataclass(frozen=True, slots=True)
class MissingValue:
    """An unknown input of a node, because of which the node cannot be called an origin.

    Attributes:
        name: its source by the graph, as ``node:slot``; empty where unknown.
        why: ``was not dumped``, ``cannot be read``, ``is known after its update only`` ...
        node: the node to dump in order to know it; the reading node where the producer is no operator.
    """

    slot: int
    name: str
    why: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJudged:
    """A node that may be an origin: some inputs are unknown, or other ranks had a part in it.

    Attributes:
        graph, node, type: of the node that made it, or at which it changed.
        row: that node's row in the rank's node table.
        hits: the bad tensors, in order; it starts at the first.
        missing: unknown inputs.
        exchanged: other ranks had a part in it.
    """

    graph: str
    node: str
    type: str
    row: int
    hits: tuple[Hit, ...]
    missing: tuple[MissingValue, ...]
    exchanged: bool = False

    @property
    def hit(self) -> Hit:
        return self.hits[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(NotJudged):
    """A node where something bad starts, or the first bad tensor of a step that has no origin.

    Attributes:
        start: how it starts, or why it does not start here.
        other: the producer of an input that changed, the reader of an undumped tensor, or the node that updates a
            parameter; else empty.
        results: the findings of the watchpoints that start at the first tensor.
        outputs: the outputs of the node, or the bad tensors where they were seen.
        stack: source lines, innermost first, without enclosing functions.
        stack_of: the node that the stack belongs to.
    """

    start: OriginKind
    other: str
    results: tuple[WatchResult, ...]
    inputs: tuple[OriginInput, ...]
    outputs: tuple[TensorRow, ...]
    stack: tuple[Frame, ...]
    stack_of: str

    @property
    def rank(self) -> int:
        return self.hit.key.rank

    @property
    def step(self) -> int:
        return self.hit.key.step

    @property
    def starts_here(self) -> bool:
        """Whether it is an origin. Bad values before the first dumped step are one only if that is step 0."""
        return self.start.is_origin(self.step)


@dataclass(frozen=True, slots=True)
class StepSearch:
    """The result of the search in one step of one rank.

    Attributes:
        result: the check behind it.
        origins: in execution order.
        before: tensors that were bad before the first dumped step, if that is not step 0.
        first: the first bad tensor when there is no origin; else None.
        bad: number of bad tensors.
        parameters: number of bad parameter values that the next run starts with.
        carried: the turn of the first run that leaves such a value behind; None without one.
        spread: the next bad tensors after the first origin.
        by_graph: ``spread`` follows the graph, not only the order of execution.
        not_judged: nodes that may be origins, in execution order.
    """

    pair: Pair
    result: PairResult
    origins: tuple[Origin, ...] = ()
    before: tuple[Origin, ...] = ()
    first: Origin | None = None
    bad: int = 0
    parameters: int = 0
    carried: int | None = None
    spread: tuple[Hit, ...] = ()
    by_graph: bool = False
    not_judged: tuple[NotJudged, ...] = ()

    @property
    def beginning(self) -> Origin | None:
        """The first origin, else the first bad tensor."""
        return self.origins[0] if self.origins else self.first


class SearchEnd(Enum):
    """Why the search ended."""

    ORIGIN = "origin"
    """The step has an origin."""
    CARRIED = "carried"
    """The step has no origin, but leaves bad parameters behind."""
    ALL = "all"
    """Every step was looked at."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class OriginReport:
    """The result of the search.

    Attributes:
        origins: those of the earliest run and of its step, in the order of time, then by rank.
        searches: all searched steps with bad tensors, in the order in which they began, then by rank.
        check: the checks behind it, merged.
        left: (rank, step) pairs that were not looked at.
        graphs: the names of the run's graphs if there are several, so that a name alone may mean two nodes.
        advice: how to make the run's recorder write more inputs and outputs; empty: unknown.
    """

    origins: tuple[Origin, ...]
    searches: tuple[StepSearch, ...]
    check: CheckResult
    left: tuple[Pair, ...]
    end: SearchEnd
    graphs: tuple[str, ...] = ()
    advice: str = ""

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """The nodes of all steps that may be origins, in execution order, then by rank."""
        found = [each for searched in self.searches for each in searched.not_judged]
        return tuple(sorted(found, key=lambda each: (each.hit.order, each.hit.key.rank)))

    @property
    def first_known(self) -> Origin | None:
        """The earliest bad tensor that is no origin, if no origin is as early."""
        first = [searched.first for searched in self.searches if searched.first is not None]
        earliest = min(first, key=lambda each: (each.hit.order, each.rank), default=None)
        if earliest is None or any(origin.hit.order <= earliest.hit.order for origin in self.origins):
            return None
        return earliest

    @property
    def first_searches(self) -> tuple[StepSearch, ...]:
        """For each rank its step with an origin, else its first bad step; the earliest rank first."""
        best: dict[int, StepSearch] = {}
        for searched in self.searches:
            kept = best.get(searched.pair[0])
            if kept is None or _place(searched) < _place(kept):
                best[searched.pair[0]] = searched
        return tuple(sorted(best.values(), key=_place))

    @property
    def earlier(self) -> tuple[StepSearch, ...]:
        """The steps without an origin that became bad in an earlier run than that of the first origin."""
        until = self.origins[0].hit.order[0] if self.origins else None
        found = [
            (searched.first.hit.order[0], searched.pair[0], number)
            for number, searched in enumerate(self.searches)
            if searched.first is not None and (until is None or searched.first.hit.order[0] < until)
        ]
        return tuple(self.searches[number] for *_, number in sorted(found))

    @property
    def shown_search(self) -> StepSearch | None:
        """The step whose propagation is shown: the first one with an origin, else the first one."""
        return next(
            (searched for searched in self.first_searches if searched.origins),
            self.searches[0] if self.searches else None,
        )

    @property
    def leading(self) -> tuple[StepSearch, ...]:
        """The first of ``first_searches``, and those that begin with the same tensor at the same step."""
        searches = self.first_searches
        return tuple(searched for searched in searches if _same(searched, searches[0])) if searches else ()


def _place(searched: StepSearch) -> tuple[bool, tuple[int, int], int]:
    beginning = searched.beginning
    order = beginning.hit.order if beginning is not None else (turn_of(searched.pair[1]), 0)
    return (not searched.origins, order, searched.pair[0])


def _same(one: StepSearch, other: StepSearch) -> bool:
    a, b = one.beginning, other.beginning
    if a is None or b is None or a.starts_here != b.starts_here:
        return False
    return (a.graph, a.node, replace(a.hit.key, rank=b.rank)) == (b.graph, b.node, b.hit.key)


SearchStep = Callable[[Pair, Sequence[Watchpoint], ProgressFn], StepSearch]
Span = Callable[[Pair], tuple[int, int]]
"""Returns the turns of the first and the last run of a step of a rank: see ``model.turns``."""


def one_run(pair: Pair) -> tuple[int, int]:
    """The span of a step that is one run, in ascending order."""
    return turn_of(pair[1]), turn_of(pair[1])


def search(
    pairs: Sequence[Pair],
    watchpoints: Sequence[Watchpoint],
    search_step: SearchStep,
    progress: ProgressFn = no_progress,
    span: Span = one_run,
) -> OriginReport:
    """Searches (rank, step) pairs for the first origin; when cancelled, the report holds what was finished."""
    started = time.monotonic()
    asked = tuple(watchpoints) or (OVERFLOW_ANYWHERE,)
    ordered = sorted(dict.fromkeys(pairs), key=lambda pair: (span(pair)[0], pair))
    searches: list[StepSearch] = []
    end = SearchEnd.ALL
    try:
        for number, pair in enumerate(ordered):
            searches.append(search_step(pair, asked, scaled(progress, number, len(ordered))))
            found = _end(searches)
            # Every step that holds an earlier or simultaneous run has to be looked at.
            if found is not None and (len(searches) == len(ordered) or span(ordered[len(searches)])[0] > found[1]):
                end = found[0]
                break
    except CancelledError:
        end = SearchEnd.CANCELLED
    seconds, cancelled = time.monotonic() - started, end is SearchEnd.CANCELLED
    results = [(searched.pair, searched.result) for searched in searches]
    origins = [origin for searched in searches for origin in searched.origins]
    return OriginReport(
        origins=_earliest(origins),
        searches=tuple(searched for searched in searches if searched.bad),
        check=merged(results, asked, 0, seconds, cancelled),
        left=tuple(ordered[len(searches) :]),
        end=end,
    )


def _end(searches: Sequence[StepSearch]) -> tuple[SearchEnd, int] | None:
    """Returns why no later run can be the beginning, and the turn of the run that shows it; else None."""
    origins = [origin.hit.order[0] for searched in searches for origin in searched.origins]
    carried = [searched.carried for searched in searches if searched.carried is not None]
    if not origins and not carried:
        return None
    return SearchEnd.ORIGIN if origins else SearchEnd.CARRIED, min(origins + carried)


def _earliest(origins: Sequence[Origin]) -> tuple[Origin, ...]:
    """The origins of the earliest run, the others of its step, and simultaneous ones on other ranks."""
    ordered = sorted(origins, key=lambda origin: (origin.hit.order, origin.rank))
    if not ordered:
        return ()
    first = ordered[0]
    return tuple(each for each in ordered if each.step == first.step or each.hit.order[0] == first.hit.order[0])


def knows_edges(flow: DataFlow, row: int) -> bool:
    """Tells whether a graph tells where a node's values are used."""
    return not int(flow.nodes.flags[row]) & NodeFlag.FILE_ONLY


def downstream(flow: DataFlow, rows: Sequence[int]) -> Mask:
    """Mask over node rows that the values of some nodes reach within a step, with the parameters that they update."""
    graph = edges(flow.nodes)
    reached = np.zeros(len(flow.nodes), np.bool_)
    front = np.array(rows, np.int64)
    reached[front] = True
    while len(front):
        starts, counts = graph.out_ptr[front], np.diff(graph.out_ptr)[front]
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        following = np.unique(graph.out_node[places])
        front = following[~reached[following]]
        reached[front] = True
    for row in np.flatnonzero(reached).tolist():
        holders = flow.holders(row)
        for slot in flow.in_place(row):
            if slot < len(holders) and holders[slot].row >= 0:
                reached[holders[slot].row] = True
    return reached


def propagation_from(flow: DataFlow, row: int, first: Hit, hits: Sequence[Hit], count: int) -> tuple[Hit, ...]:
    """The next bad tensors after an origin, at most ``count``, one for each node, in execution order.

    Only those that the graph reaches from the origin; without a graph, all that follow it.
    """
    reached = downstream(flow, [row]) if knows_edges(flow, row) else np.ones(len(flow.nodes), np.bool_)
    found: dict[int, Hit] = {}
    for hit in hits:
        if len(found) >= count:
            break
        if hit.row != row and hit.order > first.order and reached[hit.row]:
            found.setdefault(hit.row, hit)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class OriginSpread:
    """The findings of a step behind an origin, as far as checks know.

    ``tensors`` are findings of later nodes without origins (behind NaN or Inf, only NaN or Inf); ``next`` names the
    first nodes; some may come from the other ``origins``.
    """

    tensors: int
    next: tuple[str, ...]
    origins: int


_NAMED_NODES = 3
"""The most nodes behind an origin that are named."""


def spread_in(result: CheckResult, nodes: NodeTable, row: int, key: TensorKey) -> OriginSpread | None:
    """Returns the other findings of a step behind an origin, by checks only; None where ``key`` is no finding."""
    hits = result.hits
    first = hits.find(key)
    if first < 0:
        return None
    others = hits.at(key.rank, key.step) & hits.found() & (hits.node != row)
    overflow = hits.overflow()
    there = others & ~hits.origin
    if overflow[first]:
        there &= overflow
    there[:first] = False
    rows, at = np.unique(hits.node[there], return_index=True)
    named = rows[np.argsort(at)][:_NAMED_NODES].tolist()
    origins = len(np.unique(hits.node[others & hits.origin]))
    return OriginSpread(int(there.sum()), tuple(nodes.names[each] for each in named), origins)


def findings(hit: Hit) -> list[WatchResult]:
    """Returns what makes a tensor a finding: hits, and conditions that its NaN or Inf keeps from being judged."""
    found = [result for result in hit.results if result.verdict is Verdict.FINDING]
    if any(CONDITIONS[result.condition].is_overflow for result in found):
        return found
    return [result for result in hit.results if result.verdict in (Verdict.FINDING, Verdict.BLOCKED)]


class OriginDescriber:
    """Describes the tensors where something starts; ``is_bad`` tells whether a tensor is a finding."""

    def __init__(
        self,
        measurements: Measurements,
        step: int,
        is_bad: Callable[[TensorKey], bool],
        progress: ProgressFn = no_progress,
    ) -> None:
        self.measurements = measurements
        self.flow = measurements.flow
        self.step = step
        self.is_bad = is_bad
        self.progress = progress

    def describe(self, group: Sequence[Examined]) -> Origin:
        head, nodes = group[0], self.flow.nodes
        other = head.other
        inputs = [self._source_row(each) for each in head.values]
        rows = measured(self.measurements, [*inputs, *self._output_rows(group)], self.progress)
        found = findings(head.hit)
        stack_of = self._with_stack(head.row, other, head.hit.row)
        return Origin(
            **self._node(group),
            start=head.start,
            other=nodes.names[other] if other >= 0 else "",
            results=tuple(found[number] for number in head.criteria if number < len(found)),
            inputs=tuple(
                OriginInput(
                    given,
                    each.state,
                    each.constant,
                    each.overwritten or self._earlier(each, head.hit.key.round),
                    each.designed,
                )
                for given, each in zip(rows, head.values, strict=False)
            ),
            outputs=rows[len(inputs) :],
            stack=tuple(frame for frame in nodes.stack(stack_of) if not frame.context) if stack_of >= 0 else (),
            stack_of=nodes.names[stack_of] if stack_of >= 0 else "",
        )

    def not_judged(self, group: Sequence[Examined]) -> NotJudged:
        return NotJudged(**self._node(group))

    def _node(self, group: Sequence[Examined]) -> dict[str, Any]:
        head, nodes = group[0], self.flow.nodes
        return {
            "graph": nodes.graph_of(head.row).name,
            "node": nodes.names[head.row],
            "type": nodes.op_type(head.row),
            "row": head.row,
            "hits": tuple(each.hit for each in group),
            "missing": self._missing(head),
            "exchanged": head.exchanged,
        }

    def _missing(self, head: Examined) -> tuple[MissingValue, ...]:
        if head.start is not OriginKind.UNKNOWN:
            return ()
        found = [self._missing_of(each) for each in head.missing if each.side is Side.INPUT]
        key = head.hit.key
        if not head.values and key.side is Side.INPUT:  # an input file whose producer no graph tells
            found.append(MissingValue(key.slot, "", "has no known producer", self.flow.nodes.names[head.hit.row]))
        return tuple(found)

    def _missing_of(self, each: JudgedValue) -> MissingValue:
        nodes = self.flow.nodes
        holder = self.flow.holder(each.node, each.slot)
        name = f"{nodes.names[holder.row]}:{holder.slot}" if holder.row >= 0 else ""
        operator = holder.row >= 0 and nodes.category_of(holder.row) not in {*PARAMETERS, Category.CONSTANT}
        why = "was not dumped" if each.at is None else "cannot be read"
        if each.at is not None and each.after:
            why = "is known after its update only"
        elif each.at is not None and int(self.flow.table(each.at.step).flags[each.at.index]) & TensorFlag.UNKNOWN:
            why = "was not fetched"
        return MissingValue(each.slot, name, why, nodes.names[holder.row if operator else each.node])

    def _source_row(self, each: JudgedValue) -> TensorRow:
        at = each.at or Located(self.step, -1, each.node, each.side, each.slot)
        return self._row(at, each.node, each.side, each.slot)

    def _producer(self, row: int, slot: int) -> str:
        """``node:slot`` of what feeds an input, or the value of a constant."""
        holder, nodes = self.flow.holder(row, slot), self.flow.nodes
        if holder.row < 0:
            return ""
        if self.flow.is_constant(holder.row):
            value = nodes.constants.get(holder.row, "")
            return f"{nodes.names[holder.row]} = {value}" if value else nodes.names[holder.row]
        return f"{nodes.names[holder.row]}:{holder.slot}"

    def _earlier(self, each: JudgedValue, round: int) -> bool:  # noqa: A002 - see TensorKey
        at = each.at
        return each.initial or (at is not None and (at.step, at.round or round) != (self.step, round or at.round))

    def _output_rows(self, group: Sequence[Examined]) -> list[TensorRow]:
        head = group[0]
        if head.node == head.hit.row and head.hit.key.side is Side.OUTPUT:
            row, number = head.hit.row, head.hit.key.round
            slots = self.flow.slots(self.step, row, Side.OUTPUT, number)
            places = [self.flow.located(self.step, row, Side.OUTPUT, slot, number) for slot in slots]
        else:
            hits = [each.hit for each in group]
            places = [self.flow.located(self.step, hit.row, hit.key.side, hit.key.slot, hit.key.round) for hit in hits]
        return [self._row(at, at.row, at.side, at.slot) for at in places]

    def _row(self, at: Located, node: int, side: Side, slot: int) -> TensorRow:
        text = self._producer(node, slot) if side is Side.INPUT else ""
        return tensor_row(self.flow, at, (side.label, slot, text), self.is_bad)

    def _with_stack(self, *rows: int) -> int:
        """The first of some nodes, or else of their readers, that has a stack; -1 without one."""
        candidates = [row for row in rows if row >= 0]
        candidates += [consumer for row in candidates for consumer, _ in self.flow.consumers(row)]
        return next((row for row in candidates if self.flow.nodes.stack(row)), -1)


CheckerOf = Callable[[int, Sequence[Watchpoint], ProgressFn], StepChecker]
"""Makes the checker of a rank with some watchpoints."""


def search_step(
    checker_of: CheckerOf, spread: int, pair: Pair, watchpoints: Sequence[Watchpoint], progress: ProgressFn
) -> StepSearch:
    """Searches one step of one rank for its origins and, at most ``spread``, the next bad tensors."""
    rank, step = pair
    return retry_when_renumbered(
        lambda: _search_step(checker_of(rank, watchpoints, progress), step, watchpoints, spread, progress)
    )


def _search_step(
    checker: StepChecker, step: int, watchpoints: Sequence[Watchpoint], spread: int, progress: ProgressFn
) -> StepSearch:
    """Checks one step of one rank and finds its origins; may raise RenumberedError."""
    result = checker.check(step, progress)
    pair = (checker.flow.rank, step)
    hits = result.hits.with_verdict(Verdict.FINDING)
    if not hits:
        return StepSearch(pair, result)
    questions = {watchpoint.id: criterion_of(watchpoint) for watchpoint in watchpoints}
    asked: list[Asked] = [(hit, [_question(found, questions) for found in findings(hit)]) for hit in hits]
    examination = Examination(checker.measurements, step, asked, progress)
    starts = list(enumerate(examination.start))
    describer = OriginDescriber(checker.measurements, step, {hit.key for hit in hits}.__contains__, progress)
    starting = [examination.of(number) for number, start in starts if start in OriginKind.origins()]
    origin = [describer.describe(list(group)) for group in _by_node(starting)]
    origins = tuple(origin for origin in origin if origin.starts_here)
    first = None if origins else describer.describe([examination.of(0)])
    row = origins[0].row if origins else hits[0].row
    carried = [hit for hit in hits if _is_carried(checker.flow, hit)]
    return StepSearch(
        pair=pair,
        result=result,
        origins=origins,
        before=tuple(origin for origin in origin if not origin.starts_here),
        first=first,
        bad=len(hits),
        parameters=len(carried),
        carried=min((hit.order[0] for hit in carried), default=None),
        spread=propagation_from(checker.flow, row, origins[0].hit if origins else hits[0], hits, spread),
        by_graph=knows_edges(checker.flow, row),
        not_judged=tuple(
            describer.not_judged(group)
            for group in _by_node([examination.of(number) for number, start in starts if start is OriginKind.UNKNOWN])
        ),
    )


def _question(found: WatchResult, questions: Mapping[int, Criterion]) -> Criterion:
    """Returns the criterion of a finding: NaN or Inf, where these kept a condition from being judged."""
    return OVERFLOW if found.verdict is Verdict.BLOCKED else questions[found.watchpoint]


def _by_node(examined: Sequence[Examined]) -> list[list[Examined]]:
    """Groups the tensors that start at one node in one way; groups are in the order of their first tensors."""

    def kind(each: Examined) -> tuple[int, str]:
        return each.row, each.start.value

    first: dict[tuple[int, str], int] = {}
    for number, each in enumerate(examined):
        first.setdefault(kind(each), number)
    ordered = sorted(examined, key=lambda each: first[kind(each)])
    return [list(group) for _, group in groupby(ordered, key=kind)]


def _is_carried(flow: DataFlow, hit: Hit) -> bool:
    """Tells whether the next step starts with it: the value of a parameter that steps change."""
    row = flow.holder(hit.row, hit.key.slot).row if hit.key.side is Side.INPUT else hit.row
    return row >= 0 and flow.nodes.category_of(row) in PARAMETERS and flow.updated(row)
