"""Everything that a report of a check says: gathered once, written as Markdown or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Hit, ProgressFn, RunInfo, TensorKey, Verdict, no_progress, turn_of
from tui_debugger.session.guidance.explain import explain
from tui_debugger.session.guidance.types import Guidance
from tui_debugger.session.hits import is_overflow
from tui_debugger.session.origin.search import Look, Origin, OriginReport
from tui_debugger.session.types import CheckResult
from tui_debugger.session.verdicts import Judgement

if TYPE_CHECKING:
    from tui_debugger.session.session import Session

MOST_EXPLAINED: Final = 6
"""Tensors whose causes are weighed: the origins, then one for every condition that these do not have."""
_LOOKED_AT: Final = 1000
"""Hits in which to look for what the report is about."""
_SEARCHED: Final = 20_000
"""Hits in which to look for one of every condition."""
SPREAD: Final = 10
"""Bad tensors after the origin that are named."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a report is made of.

    Attributes:
        path: what a command finds the run by: the path as it was given; empty for a training that runs.
        info: the run.
        ranks: of the run.
        steps: dumped steps of any rank, ascending.
        result: the check.
        judgement: what it comes to.
        origins: where it begins; None when there is nothing to look for, or it could not be found out.
        overflow: ``origins`` are about NaN and Inf; otherwise about findings of the watchpoints.
        explained: guidance for the first hits.
        troubles: what could not be found out, a sentence each.
        graphs: whether there are several, so that a name alone may mean two nodes.
        scope: the options that restricted the check to some nodes, for whoever repeats it.
    """

    path: str
    info: RunInfo
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    result: CheckResult
    judgement: Judgement
    origins: OriginReport | None
    overflow: bool
    explained: tuple[Guidance, ...]
    troubles: tuple[str, ...] = ()
    graphs: bool = False
    scope: tuple[str, ...] = ()

    @property
    def shown_look(self) -> Look | None:
        """The look whose spread is told: the first one with an origin."""
        return None if self.origins is None else self.origins.shown_look

    @property
    def beginnings(self) -> tuple[Origin, ...]:
        """The origins; without any what each rank began with."""
        if self.origins is None:
            return ()
        found = self.origins.origins
        return found or tuple(o for look in self.origins.first_looks for o in (look.beginning, *look.before) if o)


def gather(
    session: Session,
    path: str,
    result: CheckResult,
    judgement: Judgement,
    progress: ProgressFn = no_progress,
    *,
    scope: Sequence[str] = (),
) -> Material:
    """Puts together what there is to say about a result; nothing is judged again, neighbours are measured.

    Args:
        session: the session that the result is of, offline or live.
        path: what a command finds the run by; empty for a training that runs.
        result: a finished or interrupted check.
        judgement: what it comes to.
        progress: receives snapshots; may raise CancelledError.
        scope: see ``Material``.
    """
    troubles: list[str] = []
    hits = judgement.failing or judgement.others
    overflow = any(map(is_overflow, hits[:_LOOKED_AT]))
    origins = _origins(session, result, hits, troubles, progress, overflow=overflow) if hits else None
    told = [_explained(session, hit, troubles, progress) for hit in _first(hits, origins)]
    ranks = tuple(session.ranks())
    return Material(
        path=path,
        info=session.info,
        ranks=ranks,
        steps=tuple(sorted({step for rank in ranks for step in session.steps(rank)})),
        result=result,
        judgement=judgement,
        origins=origins,
        overflow=overflow,
        explained=tuple(each for each in told if each is not None),
        troubles=tuple(troubles),
        graphs=bool(session.graph_names(ranks)),
        scope=tuple(scope),
    )


def _origins(
    session: Session,
    result: CheckResult,
    hits: Sequence[Hit],
    troubles: list[str],
    progress: ProgressFn,
    *,
    overflow: bool,
) -> OriginReport | None:
    """Where it begins: NaN and Inf if there are any, else what the watchpoints found."""
    bad = [hit for hit in hits[:_LOOKED_AT] if is_overflow(hit)] if overflow else hits[:_LOOKED_AT]
    until = min(hit.order[0] for hit in bad)
    spans = {rank: session.turn_spans(rank) for rank in {rank for rank, _ in result.pairs}}
    pairs = [(rank, step) for rank, step in result.pairs if spans[rank].get(step, (turn_of(step), 0))[0] <= until]
    found = {each.condition for hit in hits[:_LOOKED_AT] for each in hit.results if each.verdict is Verdict.FINDING}
    asked = [] if overflow else [watch for watch in result.watchpoints if watch.condition in found]
    try:
        _measure_origins(session, bad, progress)
        report = session.find_origin(pairs, asked, progress, SPREAD)
    except CancelledError:
        raise
    except TdbgError as error:
        troubles.append(f"where it begins could not be found out: {error.what}")
        return None
    if report.check.cancelled:
        raise CancelledError("interrupted")
    return report


def _measure_origins(session: Session, hits: Sequence[Hit], progress: ProgressFn) -> None:
    """Gets what went into the origins and came out of them: a training that runs says only what it is asked for."""
    for hit in [hit for hit in hits if hit.origin and hit.stats is None][:MOST_EXPLAINED]:
        session.measure(session.tensor_rows(hit.key.rank, hit.key.step, hit.row, hit.key.round), progress)


def _first(hits: Sequence[Hit], origins: OriginReport | None) -> list[Hit]:
    """The hits to be explained: the origins, then the first one of every condition that is not among them."""
    begin = {origin.hit.key for origin in origins.origins} if origins is not None else set[TensorKey]()
    by_key = {hit.key: hit for hit in hits if hit.key in begin}
    chosen = [by_key[origin.hit.key] for origin in origins.origins if origin.hit.key in by_key] if origins else []
    chosen = chosen[: MOST_EXPLAINED - 1]
    seen = {condition for hit in chosen for condition in _conditions(hit)}
    for hit in hits[:_SEARCHED]:
        if len(chosen) >= MOST_EXPLAINED:
            break
        if not _conditions(hit) <= seen:
            chosen.append(hit)
            seen |= _conditions(hit)
    return chosen


def _conditions(hit: Hit) -> set[str]:
    """Conditions with a finding of their own; what NaN kept from being compared is no matter of its condition."""
    return {each.condition for each in hit.results if each.verdict is Verdict.FINDING and not each.error} or {"error"}


def _explained(session: Session, hit: Hit, troubles: list[str], progress: ProgressFn) -> Guidance | None:
    try:
        return explain(session, hit.key, hit, progress)
    except CancelledError:
        raise
    except TdbgError as error:
        troubles.append(f"{hit.key.node} could not be explained: {error.what}")
        return None
