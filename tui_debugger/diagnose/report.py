"""The report of a check: gathered once, written as Markdown or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.causes.by_design_steps import by_design_text
from tui_debugger.check.hits import is_overflow
from tui_debugger.check.types import CheckResult
from tui_debugger.check.verdicts import CheckJudgement, Outcome, coverage_line, findings_line, tally_table
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import (
    GLYPHS,
    Advice,
    Guidance,
    GuidanceSection,
    guidance_row,
    section_title,
)
from tui_debugger.diagnose.origin.search import Origin, OriginReport
from tui_debugger.diagnose.origin.text import found_words, origin_lines, report_rows, when_words
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Hit, ProgressFn, RunInfo, TensorKey, Verdict, no_progress, turn_of
from tui_debugger.text.distribution import STATISTIC_TITLES, statistic_texts
from tui_debugger.text.documents import row_of, rows_of
from tui_debugger.text.hits import hit_text, said_words
from tui_debugger.text.markdown import code, fenced, prose, table, with_tilde
from tui_debugger.text.numbers import brief, plural
from tui_debugger.text.rows import coverage_row, hit_row, part_rows, watch_row
from tui_debugger.text.tensors import place_text, step_text
from tui_debugger.text.writer import line_text
from tui_debugger.version import __version__
from tui_debugger.watch.recommended import RECOMMENDED
from tui_debugger.watch.text import format_watch

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


MOST_EXPLAINED: Final = 6
"""The most tensors whose causes are weighed: the origins, then one for each other condition."""
_LOOKED_AT: Final = 1000
"""The number of hits that are searched for what the report is about."""
_SEARCHED: Final = 20_000
"""The number of hits that are searched for one of each condition."""
SPREAD: Final = 10
"""The number of bad tensors after the origin that are named."""


@dataclass(frozen=True, slots=True)
class Material:
    """The material of a report.

    Attributes:
        path: of the run, as it was given; empty for a live training.
        steps: dumped steps of any rank, ascending.
        origins: where it begins; None when nothing is bad, or the search failed.
        overflow: ``origins`` are about NaN and Inf, else about findings of the watchpoints.
        explained: guidance for the first hits.
        troubles: what could not be found out, a sentence each.
        graphs: there are several graphs, so that a name alone may mean two nodes.
        scope: the options that restricted the check to some nodes, to repeat it.
    """

    path: str
    info: RunInfo
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    result: CheckResult
    judgement: CheckJudgement
    origins: OriginReport | None
    overflow: bool
    explained: tuple[Guidance, ...]
    troubles: tuple[str, ...] = ()
    graphs: bool = False
    scope: tuple[str, ...] = ()

    @property
    def beginnings(self) -> tuple[Origin, ...]:
        """The origins; without any, the first bad tensors of each rank."""
        if self.origins is None:
            return ()
        found = self.origins.origins
        return found or tuple(
            o for searched in self.origins.first_searches for o in (searched.beginning, *searched.before) if o
        )


def gather(
    session: DiagnosedRun,
    path: str,
    result: CheckResult,
    judgement: CheckJudgement,
    progress: ProgressFn = no_progress,
    *,
    scope: Sequence[str] = (),
) -> Material:
    """Puts together what there is to say about a result; judges nothing again, but measures neighbours."""
    troubles: list[str] = []
    hits = judgement.failing or judgement.others
    overflow = any(map(is_overflow, hits[:_LOOKED_AT]))
    origins = _origins(session, result, hits, troubles, progress, overflow=overflow) if hits else None
    origin = [_explained_tensors(session, hit, troubles, progress) for hit in _first(hits, origins)]
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
        explained=tuple(each for each in origin if each is not None),
        troubles=tuple(troubles),
        graphs=bool(session.graph_names(ranks)),
        scope=tuple(scope),
    )


def _origins(
    session: DiagnosedRun,
    result: CheckResult,
    hits: Sequence[Hit],
    troubles: list[str],
    progress: ProgressFn,
    *,
    overflow: bool,
) -> OriginReport | None:
    """Searches where it begins: NaN and Inf if there are any, else what the watchpoints found."""
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


def _measure_origins(session: DiagnosedRun, hits: Sequence[Hit], progress: ProgressFn) -> None:
    """Measures inputs and outputs of the origins: a live training sends statistics only on request."""
    for hit in [hit for hit in hits if hit.origin and hit.stats is None][:MOST_EXPLAINED]:
        session.measure(session.tensor_rows(hit.key.rank, hit.key.step, hit.row, hit.key.round), progress)


def _first(hits: Sequence[Hit], origins: OriginReport | None) -> list[Hit]:
    """The hits to be explained: the origins, then the first one of each other condition."""
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
    """Conditions with a finding of their own; without one (NaN kept them from being compared), ``error``."""
    return {each.condition for each in hit.results if each.verdict is Verdict.FINDING and not each.error} or {"error"}


def _explained_tensors(session: DiagnosedRun, hit: Hit, troubles: list[str], progress: ProgressFn) -> Guidance | None:
    try:
        return explain(session, hit.key, hit, progress)
    except CancelledError:
        raise
    except TdbgError as error:
        troubles.append(f"{hit.key.node} could not be explained: {error.what}")
        return None


Row = dict[str, Any]


def material_row(material: Material, most: int) -> Row:
    judgement, info = material.judgement, material.info
    hits = [*judgement.failing[:most], *judgement.others[:most]][:most]
    return {
        "run": {
            **row_of(info, "title", "layout", "framework_version", "device"),
            **row_of(material, "ranks", "steps"),
        },
        "reasons": rows_of(judgement.doubts, "kind", "text"),
        "unreadable": part_rows(material.result.coverage.parts),
        "watchpoints": [
            {
                **watch_row(tally.watchpoint, tally.tensors),
                "findings": tally.findings,
                "blocked": tally.blocked.tensors,
                "by_design": tally.by_design,
            }
            for tally in judgement.tallies
        ],
        "coverage": coverage_row(material.result.coverage),
        "findings": len(judgement.failing) + len(judgement.others),
        "hits": [hit_row(hit) for hit in hits],
        "origins": report_rows(material.origins) if material.origins is not None else None,
        "explained": [guidance_row(each) for each in material.explained],
        "notices": [*info.notices, *material.troubles],
        "limits": list(info.limits),
        "cancelled": material.result.cancelled,
    }


MOST_HITS: Final = 50
"""The default number of rows in the hits table."""
LIMIT: Final = 60_000
"""The most characters: GitHub takes 65,536 in an issue."""
_ORIGINS: Final = 5
_TELLING: Final = frozenset({"origin", "explain", "values"})
"""Views whose commands are part of a report."""
_HEAD: Final = 3
"""Lines at the start of ``origin_lines`` that are left out: a blank, the place, the node."""
_NAMED: Final = 20
"""The most watchpoints, notices and the like that are listed."""


@dataclass(frozen=True, slots=True)
class Style:
    """The most rows of the hits table, and whether home directories stay in paths."""

    hits: int = MOST_HITS
    homes: bool = False


def markdown(material: Material, style: Style = Style()) -> str:
    """The report; rows of the hits table are left out, with a note, until it fits into an issue."""
    rows = style.hits
    while True:
        text = "\n".join(_single_blanks(_document(material, rows))).strip() + "\n"
        if len(text) <= LIMIT or not rows:
            break
        rows //= 2
    return text if style.homes else with_tilde(text)


def _single_blanks(lines: Iterable[str]) -> Iterator[str]:
    before = ""
    for line in lines:
        if line or before:
            yield line
        before = line


def _document(material: Material, rows: int) -> Iterator[str]:
    yield f"# tdbg: {prose(material.info.title or material.info.layout or 'a run')}"
    yield ""
    yield f"**{prose(verdict(material))}**"
    yield ""
    yield from _facts(material)
    yield from _beginnings(material)
    yield from _spread(material)
    yield from _hits(material, rows)
    yield from _explained(material)
    yield from _watchpoints(material)
    yield from _notices(material)
    yield from _again(material)


def verdict(material: Material) -> str:
    """One line: ``FINDINGS: ...``, ``clean``, ``cannot judge: ...``, ``interrupted ...``."""
    judgement, result = material.judgement, material.result
    if judgement.outcome is Outcome.FINDING:
        return f"FINDINGS: {findings_line(judgement.failing, result)}"
    if judgement.outcome is Outcome.CANNOT_JUDGE:
        return f"cannot judge: {judgement.doubts[-1].text}"
    if judgement.outcome is Outcome.INTERRUPTED:
        found = findings_line(judgement.failing, result) if judgement.failing else "no finding so far"
        return f"interrupted after {plural(len(result.pairs), 'step')}: {found}"
    return "clean"


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"## {text}"
    yield ""


# -- the run ---------------------------------------------------------------------------------------


def _facts(material: Material) -> Iterator[str]:
    info = material.info
    framework = " ".join(filter(None, [info.framework_version, info.device]))
    doubts = [doubt.text for doubt in material.judgement.doubts]
    facts = [
        *([("run", code(material.path))] if material.path else []),
        ("layout", prose(info.layout)),
        ("framework", prose(framework)),
        ("ranks", prose(brief(material.ranks))),
        ("steps", prose(_steps(material))),
        ("checked", prose(coverage_line(material.result))),
        ("by design", prose(by_design_text(material.result.hits).partition(": ")[2])),
        *(("cannot judge", prose(doubt)) for doubt in doubts[:_NAMED]),
        ("tdbg", __version__),
    ]
    yield from table(("", ""), [(name, text) for name, text in facts if text])


def _steps(material: Material) -> str:
    steps = [step for step in material.steps if step >= 0]
    return brief(steps) + (f" ({len(steps):,})" if len(steps) > 2 else "")


def _watchpoints(material: Material) -> Iterator[str]:
    tallies = material.judgement.tallies
    yield from _heading("Watchpoints")
    titles, rows = tally_table(tallies[:_NAMED])
    yield from table(titles, [(*numbers, prose(words)) for *numbers, words in rows], right=titles[:-1])
    yield from _left_out(len(tallies) - _NAMED, "watchpoint")


def _left_out(more: int, word: str) -> Iterator[str]:
    if more > 0:
        yield ""
        yield f"… {plural(more, word)} left out."


# -- where it begins, how it spread ----------------------------------------------------------------


def _beginnings(material: Material) -> Iterator[str]:
    found = material.beginnings
    if not found:
        return
    starts = bool(material.origins and material.origins.origins)
    graphs = material.origins.graphs if material.origins is not None else ()
    yield from _heading("Where it begins" if starts else "What is bad first (no origin was found)")
    for number, origin in enumerate(found[:_ORIGINS], 1):
        yield ""
        when = prose(when_words(origin, graphs))
        yield f"### {number}. {code(origin.node)} ({prose(origin.type)}), {when}, rank {origin.rank}"
        yield ""
        yield from fenced([*map(line_text, origin_lines(origin, "", overflow=material.overflow))][_HEAD:])
    yield from _left_out(len(found) - _ORIGINS, "independent origin")


def _spread(material: Material) -> Iterator[str]:
    searched = material.origins.shown_search if material.origins is not None else None
    if searched is None or not searched.spread:
        return
    yield from _heading("How it spread")
    carried = (
        f", {searched.parameters:,} of them parameters that the next step starts with" if searched.parameters else ""
    )
    yield (
        f"{plural(searched.bad, 'tensor')} of step {searched.pair[1]}, rank {searched.pair[0]}, are bad{carried}. "
        + ("Next along the graph:" if searched.by_graph else "Next in execution order:")
    )
    yield ""
    rows = [(prose(found_words(hit)), code(place_text(hit.key, with_graph=material.graphs))) for hit in searched.spread]
    yield from table(("found", "tensor"), rows)


# -- hits ------------------------------------------------------------------------------------------


def _hits(material: Material, most: int) -> Iterator[str]:
    judgement = material.judgement
    hits = (*judgement.failing[:most], *judgement.others[:most], *judgement.unsure[:most])[:most]
    total = len(judgement.failing) + len(judgement.others) + len(judgement.unsure)
    if not total:
        return
    yield from _heading(f"Hits ({total:,})")
    if hits:
        titles = ("step", "rank", "", "watch", "found", *STATISTIC_TITLES, "tensor")
        rows = [_hit(hit, graphs=material.graphs) for hit in hits]
        yield from table(titles, rows, right=("step", "rank", *titles[5:11]))
    if total > len(hits):
        yield ""
        how = ": `tdbg check` with `--limit 0` lists them" if material.path else ""
        yield f"… {total - len(hits):,} more rows left out{how}."


def _hit(hit: Hit, *, graphs: bool) -> tuple[str, ...]:
    key = hit.key
    return (
        step_text(key.step),
        str(key.rank),
        "◆" if hit.origin else "",
        said_words(hit),
        prose(hit_text(hit)),
        *map(prose, statistic_texts(hit.stats)),
        code(place_text(key, with_graph=graphs)),
    )


# -- why -------------------------------------------------------------------------------------------


def _explained(material: Material) -> Iterator[str]:
    if not material.explained:
        return
    yield from _heading("What usually causes it, by the numbers of this run")
    for guidance in material.explained:
        yield from _guidance(guidance, material)


def _guidance(guidance: Guidance, material: Material) -> Iterator[str]:
    key = guidance.tensor.key
    name = code(place_text(key, with_graph=material.graphs))
    yield f"### {name}, step {step_text(key.step)}, rank {key.rank}"
    yield ""
    for section in guidance.sections:
        yield from _section(section, material.path)
    if guidance.missing:
        yield "Not known: " + prose("; ".join(guidance.missing)) + "."
        yield ""


def _section(section: GuidanceSection, path: str) -> Iterator[str]:
    yield f"**{prose(section_title(section))}**: {prose(section.found)}."
    yield ""
    for cause in section.causes:
        yield f"- {GLYPHS[cause.standing]} {cause.standing.word}: **{prose(cause.title)}**: {prose(cause.evidence)}"
    for fact in section.facts:
        yield f"- {prose(fact)}"
    origin = [advice for advice in section.advice if advice.arguments and path and advice.view in _TELLING]
    plain = [advice for advice in section.advice if not advice.view and not advice.arguments]
    if origin or plain:
        yield ""
        yield "Look next:"
        yield ""
        yield from (f"- {prose(advice.text)} {_command(advice, path)}".rstrip() for advice in (*origin, *plain))
    yield ""


def _command(advice: Advice, path: str) -> str:
    return code(_shell(advice.arguments, path)) if advice.arguments else ""


def _shell(arguments: Sequence[str], path: str) -> str:
    name, *rest = arguments
    return shlex.join(["tdbg", name, path, *rest])


# -- the rest --------------------------------------------------------------------------------------


def _notices(material: Material) -> Iterator[str]:
    notices = (*material.info.limits, *material.info.notices, *material.troubles)
    if notices:
        yield from _heading("Notices")
        yield from (f"- {prose(notice)}" for notice in notices[:_NAMED])
        yield from _left_out(len(notices) - _NAMED, "notice")


def _again(material: Material) -> Iterator[str]:
    if not material.path:
        return
    yield from _heading("The same again")
    yield from fenced(_commands(material), "sh")


def _commands(material: Material) -> Iterable[str]:
    watches: list[str] = []
    for watch in material.result.watchpoints:
        if not watch.name.startswith(RECOMMENDED):
            watches += ["--watch", format_watch(watch)]
    recommended = any(watch.name.startswith(RECOMMENDED) for watch in material.result.watchpoints)
    both = ["--recommended"] if watches and recommended else []
    pairs = material.result.pairs
    ranks, steps = sorted({rank for rank, _ in pairs}), sorted({step for _, step in pairs if step >= 0})
    where = ["--rank", brief(ranks)] if tuple(ranks) != material.ranks and ranks else []
    where += ["--step", brief(steps)] if steps and tuple(steps) != material.steps else []
    where += material.scope
    yield _shell(["check", *watches[: 2 * _NAMED], *both, *where], material.path)
    if material.overflow:
        yield _shell(["origin", *where], material.path)
    for key in [each.tensor.key for each in material.explained[:2]]:
        if key.step >= 0:
            place = place_text(key, with_graph=material.graphs)
            at = ["--step", str(key.step), *(["--rank", str(key.rank)] if len(material.ranks) > 1 else [])]
            yield _shell(["explain", place, *at, *watches[: 2 * _NAMED]], material.path)
