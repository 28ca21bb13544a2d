"""Looks at one step of one rank: what is bad there, where it starts, and what is worth knowing about that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np

from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, Verdict, Watchpoint, WatchResult
from tui_debugger.session.checking import Checker
from tui_debugger.session.flow import Flow
from tui_debugger.session.origin.by_design import StepDesigns
from tui_debugger.session.origin.examine import OVERFLOW, Examined, Examiner, Question, question_of
from tui_debugger.session.origin.fed import surely_fed
from tui_debugger.session.origin.making import Start
from tui_debugger.session.origin.search import Look
from tui_debugger.session.origin.spread import knows_edges, spread_from
from tui_debugger.session.origin.telling import Teller, findings
from tui_debugger.session.types import Pair
from tui_debugger.session.undisturbed import undisturbed

CheckerOf = Callable[[int, Sequence[Watchpoint], ProgressFn], Checker]
"""Makes the checker of a rank with some watchpoints."""
Asked = tuple[Hit, Sequence[Question]]
"""A bad tensor, and what makes it bad."""


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
    asked: list[Asked] = [(hit, [_question(found, questions) for found in findings(hit)]) for hit in hits]
    if all(question is OVERFLOW for question in questions.values()):
        asked = _left(checker, step, asked)
    examined = Examiner(checker.measurements).examine(step, asked, progress)
    teller = Teller(checker.measurements, step, {hit.key for hit in hits}.__contains__, progress)
    starting = [each for each in examined if each.start in Start.origins()]
    told = [teller.tell(list(group)) for group in _by_node(starting)]
    origins = tuple(origin for origin in told if origin.starts_here)
    first = None if origins else teller.tell([examined[0]])
    row = origins[0].row if origins else hits[0].row
    carried = [hit for hit in hits if _is_carried(checker.flow, hit)]
    return Look(
        pair=pair,
        result=result,
        origins=origins,
        before=tuple(origin for origin in told if not origin.starts_here),
        first=first,
        bad=len(hits),
        parameters=len(carried),
        carried=min((hit.order[0] for hit in carried), default=None),
        spread=spread_from(checker.flow, row, origins[0].hit if origins else hits[0], hits, spread),
        by_graph=knows_edges(checker.flow, row),
        not_judged=tuple(
            teller.not_judged(group) for group in _by_node([each for each in examined if each.start is Start.UNKNOWN])
        ),
    )


def _question(found: WatchResult, questions: Mapping[int, Question]) -> Question:
    """What makes a tensor bad: where NaN or Inf kept a condition from being judged, they do."""
    return OVERFLOW if found.verdict is Verdict.BLOCKED else questions[found.watchpoint]


def _by_node(examined: Sequence[Examined]) -> list[list[Examined]]:
    """The tensors that start at one node in one way, together; by their first tensor."""

    def kind(each: Examined) -> tuple[int, str]:
        return each.row, each.start.value

    first: dict[tuple[int, str], int] = {}
    for number, each in enumerate(examined):
        first.setdefault(kind(each), number)
    ordered = sorted(examined, key=lambda each: first[kind(each)])
    return [list(group) for _, group in groupby(ordered, key=kind)]


def _left(checker: Checker, step: int, asked: list[Asked]) -> list[Asked]:
    """The first of some tensors with NaN or Inf, and all that may be where it starts."""
    keys = [hit.key for hit, _ in asked]
    node = np.array([hit.row for hit, _ in asked], np.int64)
    designed = StepDesigns(checker.measurements, step).rows
    sides, slots = [key.side for key in keys], [key.slot for key in keys]
    with checker.measurements.undisturbed():
        fed = surely_fed(checker.measurements, step, node, sides, slots, designed)
    fed[0] = False
    return [each for each, known in zip(asked, fed.tolist(), strict=True) if not known]


def _is_carried(flow: Flow, hit: Hit) -> bool:
    """Whether the next step starts with it: the value of a parameter that steps change."""
    row = flow.holder(hit.row, hit.key.slot).row if hit.key.side is Side.INPUT else hit.row
    return row >= 0 and flow.nodes.category_of(row) in PARAMETERS and flow.updated(row)
