"""The output of ``tdbg origin``: origins, how they spread, and the path upstream of a tensor; or one JSON document."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui_debugger import __version__
from tui_debugger.causes.by_design_steps import by_design_text
from tui_debugger.causes.table import InputState, OriginKind
from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.check.results import parts_text
from tui_debugger.check.verdicts import CheckJudgement, Outcome, coverage_line
from tui_debugger.cli.options import chosen
from tui_debugger.cli.output import Answer, meaning_of, outcome_of, print_exit, print_text, unseen
from tui_debugger.diagnose.origin.path import Path as OriginPath
from tui_debugger.diagnose.origin.path import PathEnd, Tracer, with_nearest
from tui_debugger.diagnose.origin.search import (
    OVERFLOW_ANYWHERE,
    NotJudged,
    Origin,
    OriginReport,
    SearchEnd,
    StepSearch,
)
from tui_debugger.diagnose.origin.text import (
    WIDTH,
    advice_words,
    first_known_words,
    found_words,
    last_part,
    node_words,
    not_judged_words,
    origin_lines,
    path_lines,
    path_rows,
    report_rows,
    when_words,
    wrapped,
)
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, Watchpoint
from tui_debugger.session.naming import find_in, no_such_tensor
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import Row, row_of, rows_of
from tui_debugger.text.numbers import first_of, named, plural
from tui_debugger.text.rows import coverage_row, key_row, part_rows, watch_row
from tui_debugger.text.tables import Column, Cut, table_lines
from tui_debugger.text.tensors import place_text
from tui_debugger.text.writer import Line, Meaning, Terminal, meant, terminal_of
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.text import format_watch

if TYPE_CHECKING:
    from argparse import Namespace

    from tui_debugger.check.types import Pair, TensorRow
    from tui_debugger.session import Session
    from tui_debugger.session.naming import FoundNode


_BLOCKS = 5
"""Origins that are shown in full; further origins are only named."""
_NAMES = 20
"""The number of further origins, and of ranks, that are named."""
_UNJUDGED = 5
"""The number of nodes that are named among those that cannot be judged."""
_LAST = 3
"""Origins whose short names are repeated in the last line."""


@dataclass(frozen=True, slots=True)
class FoundOrigins:
    """A finished or interrupted search; ``limits`` are sentences that say what no verdict on this dump can tell."""

    report: OriginReport
    judgement: CheckJudgement
    notices: tuple[str, ...]
    limits: tuple[str, ...] = ()

    def answer(self) -> Answer:
        outcome = self.judgement.outcome
        return Answer(
            code=outcome.exit_code,
            verdict=outcome.value,
            notices=self.notices,
            document=lambda: document(self),
            show=lambda code: _print(self, code),
        )

    @property
    def overflow(self) -> bool:
        """Tells whether the search looks for NaN and Inf only."""
        return all(CONDITIONS[watch.condition].is_overflow for watch in self.report.check.watchpoints)


def _print(found: FoundOrigins, code: int) -> None:
    verdict = meant(_verdict(found), meaning_of(code))
    print_text(*itertools.dropwhile(lambda line: not line, _lines(found, terminal_of())), *found.limits, verdict)
    print_exit(code)


# -- for machines ----------------------------------------------------------------------------------


def document(found: FoundOrigins) -> Row:
    check, judgement = found.report.check, found.judgement
    watched = dict(check.coverage.watched)
    return {
        **report_rows(found.report),
        "watchpoints": [watch_row(watch, watched.get(watch.id, 0)) for watch in check.watchpoints],
        "coverage": coverage_row(check.coverage),
        "by_design": by_design_text(check.hits) or None,
        "reasons": rows_of(judgement.doubts, "kind", "text"),
        "unreadable": part_rows(check.coverage.parts),
        "cannot_judge": [{**key_row(hit.key), "detail": hit.detail} for hit in judgement.unsure],
        "notices": list(found.notices),
        "limits": list(found.limits),
        "seconds": round(check.seconds, 3),
        "cancelled": check.cancelled,
        "version": __version__,
    }


# -- for people ------------------------------------------------------------------------------------


def _lines(found: FoundOrigins, terminal: Terminal | None) -> Iterator[Line]:
    """All lines but the verdict."""
    report = found.report
    if report.origins:
        yield from _origins(found, terminal)
    yield from _without_origin(found, terminal)
    yield from _not_judged(report)
    if report.shown_search is not None:
        yield from _spread(report, report.shown_search, terminal)
    yield from _ranks(found)
    if report.searches:
        yield ""
    counts, _, where = coverage_line(report.check).partition("; ")
    yield counts
    for line in (where, *filter(None, [by_design_text(report.check.hits)]), *_remarks(found)):
        yield from wrapped(line)


def _without_origin(found: FoundOrigins, terminal: Terminal | None) -> Iterator[Line]:
    """Yields bad tensors without an origin: bad before the dump begins, or at steps without an origin."""
    report = found.report
    for searched in report.searches:
        if searched.before:
            names = [node_words(origin, report.graphs) for origin in searched.before]
            yield ""
            first_one = "the first dumped one" + (" of its graph" if report.graphs else "")
            yield f"bad already before step {searched.pair[1]}, {first_one} (rank {searched.pair[0]}):"
            yield from (f"  {name}" for name in names[:_NAMES])
            yield from [f"  … {len(names) - _NAMES:,} more (--json lists them all)"] if len(names) > _NAMES else []
    bare = report.earlier
    if bare and bare[0].first is not None:
        first = bare[0].first
        head = "first known bad" if first.start is OriginKind.UNKNOWN else "bad, but no origin"
        yield from origin_lines(first, head, overflow=found.overflow, graphs=report.graphs, terminal=terminal)
        if advice := advice_words(first, report.advice):
            yield from wrapped(f"to know more, {advice}", indent="  ")
        steps = sorted({searched.pair[1] for searched in bare} - {bare[0].pair[1]})
        if steps:
            yield f"  the same at {named('step', steps)}"


def _not_judged(report: OriginReport) -> Iterator[str]:
    """The nodes that may be origins but cannot be judged; the first known bad one is shown in full."""
    shown = report.first_known
    known = None if shown is None else _node_place(shown)
    nodes = [each for each in report.not_judged if _node_place(each) != known]
    if not nodes:
        return
    yield ""
    yield f"not judged: {plural(len(nodes), 'bad node')}: not everything that they were made from is known"
    for each in nodes[:_UNJUDGED]:
        yield f"  {node_words(each, report.graphs)}"
        yield from wrapped(not_judged_words(each).partition(": ")[2], indent="    ")
    if len(nodes) > _UNJUDGED:
        yield f"  … {len(nodes) - _UNJUDGED:,} more (--json lists them all)"


def _node_place(each: Origin | NotJudged) -> tuple[object, ...]:
    key = each.hit.key
    return (key.rank, key.step, key.round, each.graph, each.node)


def _origins(found: FoundOrigins, terminal: Terminal | None) -> Iterator[Line]:
    report = found.report
    first = report.origins[0]
    others = [origin for origin in report.origins[1:] if origin.rank == first.rank]
    for origin in (first, *others[: _BLOCKS - 1]):
        head = "origin" if origin is first else "also independent"
        yield from origin_lines(origin, head, overflow=found.overflow, graphs=report.graphs, terminal=terminal)
    yield from _named(others[_BLOCKS - 1 :], report.graphs)


def _named(origins: Sequence[Origin], graphs: Sequence[str]) -> Iterator[str]:
    if not origins:
        return
    yield f"also independent: {plural(len(origins), 'more node')}"
    for origin in origins[:_NAMES]:
        yield f"  {node_words(origin, graphs)}  ({clean(origin.type)}): {found_words(origin)}"
    if len(origins) > _NAMES:
        yield f"  … {len(origins) - _NAMES:,} more (--json lists them all)"


def _spread(report: OriginReport, searched: StepSearch, terminal: Terminal | None) -> Iterator[Line]:
    rank, step = searched.pair
    several = len(report.check.ranks) > 1
    where = f"step {step}" + (f" of rank {rank}" if several else "")
    parameters = f" (parameters among them: {searched.parameters:,})" if searched.parameters else ""
    yield ""
    if searched.bad == 1:
        yield f"spread: nowhere; it is the only bad tensor of {where}"
        return
    yield f"spread: {plural(searched.bad, 'tensor')} of {where} are bad{parameters}"
    if not searched.spread:
        return
    yield "  next along the graph:" if searched.by_graph else "  next in execution order (no graph tells what follows):"
    columns = [Column(""), Column("", cut=Cut.END, weight=7, label="found"), Column("", cut=Cut.MIDDLE, weight=9)]
    rows = [
        ["  ", meant(found_words(hit), Meaning.FINDING), place_text(hit.key, with_graph=bool(report.graphs))]
        for hit in searched.spread
    ]
    yield from table_lines(columns, rows, terminal)


def _ranks(found: FoundOrigins) -> Iterator[str]:
    report = found.report
    ranks = sorted(report.check.ranks)
    if len(ranks) < 2 or not report.searches:
        return
    leading = report.leading
    same = [searched.pair[0] for searched in leading]
    yield ""
    beginning = leading[0].beginning
    at = f"step {leading[0].pair[1]}" if beginning is None else _beginning(beginning, report.graphs)
    if len(same) == 1:
        yield f"rank {same[0]} was first: {at}"
    else:
        yield f"{named('rank', same)} begin together: {at}"
    others = [searched for searched in report.first_searches if searched.pair[0] not in same]
    for searched in others[:_NAMES]:
        yield f"  rank {searched.pair[0]}: {_later(searched, leading[0], report.graphs)}"
    if len(others) > _NAMES:
        yield f"  … {len(others) - _NAMES:,} more ranks (--json lists them all)"
    seen = report.check.coverage.steps
    silent = sorted({rank for rank, _ in seen} - {searched.pair[0] for searched in report.searches})
    if silent:
        steps = sorted({step for rank, step in seen if rank in silent})
        yield f"  {named('rank', silent)}: nothing bad in {named('step', steps)}"


def _beginning(origin: Origin, graphs: Sequence[str]) -> str:
    """``step 3, NODE``; with several graphs ``step 1#2, kernel_graph_0, NODE``."""
    return f"{when_words(origin, graphs)}, {clean(origin.node)}"


def _later(searched: StepSearch, lead: StepSearch, graphs: Sequence[str]) -> str:
    here, first = searched.beginning, lead.beginning
    if here is None or first is None:
        return f"step {searched.pair[1]}"
    kind = "" if here.starts_here else " (bad, but no origin there)"
    when = ", later in execution order" if here.step == first.step and here.hit.order > first.hit.order else ""
    return f"{_beginning(here, graphs)}{kind}{when}"


def _remarks(found: FoundOrigins) -> Iterator[str]:
    report = found.report
    if report.left and report.end in (SearchEnd.ORIGIN, SearchEnd.CARRIED):
        steps = sorted({step for _, step in report.left})
        yield f"{named('step', steps)} not looked at: {_why_left(report)}"
    doubts = found.judgement.doubts
    shown = doubts[:-1] if found.judgement.outcome is Outcome.CANNOT_JUDGE else doubts
    for doubt in shown:
        yield f"cannot judge: {clean(doubt.text)}"


def _why_left(report: OriginReport) -> str:
    """Says why the search ended before the last step; "after" only if steps ran in order."""
    if report.end is SearchEnd.CARRIED:
        carried = [(searched.carried, searched.pair) for searched in report.searches if searched.carried is not None]
        _, (_, step) = min(carried)
        return f"step {step} leaves bad parameters behind, and later steps compute with these"
    first = report.origins[0]
    in_order = max(step for _, step in report.check.pairs) == first.step < min(step for _, step in report.left)
    if in_order and not first.hit.key.round:
        return "the search ends with the first step that has an origin"
    return f"what ran in them ran after the origin, {when_words(first, report.graphs)}"


def _verdict(found: FoundOrigins) -> str:
    report, outcome = found.report, found.judgement.outcome
    if outcome is Outcome.INTERRUPTED:
        asked = len(report.check.pairs) + len(report.left)
        return f"interrupted: {len(report.check.pairs):,} of {plural(asked, 'step')} looked at; {_found(report)}"
    if outcome is Outcome.CANNOT_JUDGE:
        return f"cannot judge: {clean(found.judgement.doubts[-1].text)}"
    if outcome is Outcome.FINDING:
        return f"FOUND: {_found(report)}"
    what = "NaN or Inf" if found.overflow else _any(format_watch(watch) for watch in report.check.watchpoints)
    return f"clean: no {clean(what)}"


def _found(report: OriginReport) -> str:
    if not report.searches:
        return "nothing bad so far"
    if not report.origins:
        first = report.first_known
        known = ""
        if first is not None and first.start is OriginKind.UNKNOWN:
            what, _, why = first_known_words(first).partition("; ")
            known = f"; {what}: {last_part(first.node)}; {why}"
        at = f"step {report.searches[0].pair[1]}" if first is None else when_words(first, report.graphs)
        return f"bad tensors at {at}, but no origin{known}"
    nodes = {(origin.graph, origin.node) for origin in report.origins}
    origins = "1 origin" if len(nodes) == 1 else f"{len(nodes):,} independent origins"
    ranks = sorted({origin.rank for origin in report.origins})
    where = f" of {named('rank', ranks)}" if len(report.check.ranks) > 1 else ""
    names = list(dict.fromkeys(clean("/".join(origin.node.split("/")[-2:])) for origin in report.origins))
    shown = first_of(names, _LAST)
    at = " and ".join(dict.fromkeys(when_words(origin, report.graphs) for origin in report.origins))
    return f"{origins} at {at}{where}: {shown}"


def _any(texts: Iterable[str]) -> str:
    return "finding of " + ", ".join(texts)


_VERDICTS = {InputState.BAD: "finding", InputState.CLEAN: "clean", InputState.UNKNOWN: "cannot_judge"}


@dataclass(frozen=True, slots=True)
class Looked:
    """The steps that were judged until something bad was found, or to the end, with the number of their tensors."""

    tensors: int
    ranks: tuple[int, ...]
    steps: tuple[int, ...]

    def places_text(self) -> str:
        """``steps 0-5; rank 0``."""
        return f"{named('step', self.steps)}; {named('rank', self.ranks)}"


def upstream(
    session: Session,
    pairs: Sequence[Pair],
    arguments: Namespace,
    watchpoints: Sequence[Watchpoint],
    progress: ProgressFn,
) -> Answer:
    """Finds the path from one tensor; without watchpoints NaN and Inf are bad.

    Raises TdbgError for no such node or tensor, CancelledError after Ctrl-C.
    """
    path, looked = _find(session, pairs, arguments, watchpoints or (OVERFLOW_ANYWHERE,), progress)
    missing, info = unseen(session), session.info
    code = missing.code(outcome_of(finding=path.state is InputState.BAD, doubt=path.state is InputState.UNKNOWN))

    def show(code: int) -> None:
        *lines, last = path_lines(path, terminal_of())
        if code == TdbgError.exit_code and path.state is InputState.CLEAN:  # the last line says "clean"
            lines += textwrap.wrap(f"cannot judge: {clean(parts_text(missing.parts))}", WIDTH)
        else:
            lines.append(last)
        if path.state is InputState.CLEAN:
            print_text(f"{plural(looked.tensors, 'tensor')} looked at, {looked.places_text()}")
        print_text(*lines, *info.limits)
        print_exit(code)

    return Answer(
        code=code,
        verdict="cannot_judge" if code == TdbgError.exit_code else _VERDICTS[path.state],
        missing=missing,
        notices=info.notices,
        document=lambda: {**_document(path, looked), "limits": list(info.limits)},
        show=show,
    )


def _find(
    session: Session,
    pairs: Sequence[Pair],
    arguments: Namespace,
    watchpoints: Sequence[Watchpoint],
    progress: ProgressFn,
) -> tuple[OriginPath, Looked]:
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    found = find_in(session, ranks, arguments.start, progress)
    pairs = [pair for pair in pairs if pair[0] in found.rows]
    path, looked = retry_when_renumbered(lambda: _first_bad(session, found, pairs, watchpoints, progress))
    if path.ending is not PathEnd.CLEAN:
        return path, looked
    report = session.find_origin(session.pairs(), watchpoints, progress, 0)
    return with_nearest(session, path, report.origins[0].hit if report.origins else None), looked


def _first_bad(
    session: Session,
    found: FoundNode,
    pairs: Sequence[Pair],
    watchpoints: Sequence[Watchpoint],
    progress: ProgressFn,
) -> tuple[OriginPath, Looked]:
    """The path from the earliest bad tensor among those that were asked for.

    If none is bad: from one that cannot be read, else from the last one. Raises TdbgError if there is no such tensor,
    CancelledError, and RenumberedError if the nodes were read again meanwhile.
    """
    tracers = [Tracer(session, watchpoint, progress) for watchpoint in watchpoints]
    judged: list[tuple[TensorRow, InputState]] = []
    for rank, step in pairs:
        for row in found.meant(found.tensors(session, rank, step)):
            for tracer in tracers:
                state = tracer.state(row.key)
                judged.append((row, state))
                if state is InputState.BAD:
                    return tracer.trace(row.key), _looked(judged)
    if not judged:
        raise no_such_tensor(found, (row for pair in pairs for row in found.tensors(session, *pair)))
    doubtful = [row for row, state in judged if state is InputState.UNKNOWN and row.index >= 0]
    broken = [row for row in session.measure(doubtful, progress) if row.error]
    known = [row for row, state in judged if state is InputState.CLEAN]
    last = (broken or known or [row for row, _ in judged])[-1]
    return tracers[0].trace(last.key), _looked(judged)


def _looked(judged: Iterable[tuple[TensorRow, InputState]]) -> Looked:
    keys = {row.key for row, state in judged if state is not InputState.UNKNOWN}
    return Looked(len(keys), tuple(sorted({key.rank for key in keys})), tuple(sorted({key.step for key in keys})))


# -- for machines ----------------------------------------------------------------------------------


def _document(path: OriginPath, looked: Looked) -> Row:
    return {
        "from": key_row(path.start.tensor.key),
        "looked_at": row_of(looked, "tensors", "ranks", "steps"),
        **path_rows(path),
        "nearest_origin": key_row(path.nearest.tensor.key) if path.nearest is not None else None,
        "version": __version__,
    }
