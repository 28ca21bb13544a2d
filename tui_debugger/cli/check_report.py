"""The output of ``tdbg check``: rows of hits, what was covered, the verdict; or one JSON document."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from tui_debugger import __version__
from tui_debugger.causes.by_design_steps import by_design_text
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.check.verdicts import (
    CheckJudgement,
    Doubt,
    Outcome,
    Tally,
    coverage_line,
    findings_line,
    tally_table,
)
from tui_debugger.cli.output import Answer, meaning_of, print_exit, print_table, print_text
from tui_debugger.model import Hit, Verdict
from tui_debugger.notes import ShownNote
from tui_debugger.sources.inventory import Inventory
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import Row, row_of, rows_of
from tui_debugger.text.hits import hit_text, said_words, watch_line
from tui_debugger.text.notes import notes_row, notes_text
from tui_debugger.text.numbers import named, plural
from tui_debugger.text.rows import coverage_row, hit_row, key_row, part_rows, watch_row
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.tensors import place_text, step_text
from tui_debugger.text.writer import Meaning, meant, write_lines
from tui_debugger.watch.condition_table import CONDITIONS, not_finite_words

OUTCOMES = {outcome: meaning_of(outcome.exit_code) for outcome in Outcome}
_ALLOW = {
    "unmatched": " (--allow-unmatched accepts that)",
    "unreadable": " (--allow-unreadable accepts that)",
    "uncomparable": " (--allow-unreadable accepts that)",
}
_NEAR = 5
"""Up to this number of hits the table can be read at a glance; the beginnings of a longer one are repeated below."""
_FIRST = 3
"""The number of beginnings that are repeated next to the verdict."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A finished or interrupted check.

    ``pairs`` counts the (rank, step) to check; ``asked``: the user chose the watchpoints; an empty ``fail_on`` means
    all conditions; ``limits``: what no verdict on this dump can tell, in sentences; ``notes``: scalars by step.
    """

    result: CheckResult
    judgement: CheckJudgement
    pairs: int
    recommended: bool
    asked: bool
    fail_on: tuple[str, ...]
    disabled: int
    notices: tuple[str, ...]
    inventory: Inventory
    limits: tuple[str, ...] = ()
    graphs: bool = False
    notes: Mapping[Pair, tuple[ShownNote, ...]] = field(default_factory=dict)


def answer(report: CheckReport, arguments: Namespace) -> Answer:
    disabled = [f"{plural(report.disabled, 'disabled watchpoint')} left out"] if report.disabled else []
    outcome = report.judgement.outcome
    return Answer(
        code=outcome.exit_code,
        verdict=outcome.value,
        notices=[*report.notices, *disabled],
        document=lambda: document(report),
        show=lambda code: _print(report, arguments.limit, code),
    )


def _print(report: CheckReport, limit: int, code: int) -> None:
    verdict = meant(verdict_line(report), OUTCOMES[report.judgement.outcome])
    _print_hits(report, limit)
    _print_watchpoints(report)
    print_text("", coverage_line(report.result))
    if designed := by_design_text(report.result.hits):
        print_text(designed)
    print_text(*_remarks(report), *report.limits, *_notes(report), *_beginnings(report), verdict)
    print_exit(code)


# -- for machines ----------------------------------------------------------------------------------


def document(report: CheckReport) -> Row:
    result, judgement = report.result, report.judgement
    return {
        "reasons": rows_of(judgement.doubts, "kind", "text"),
        "unreadable": part_rows(result.coverage.parts),
        "recommended": report.recommended,
        "fail_on": [CONDITIONS[condition].abbr for condition in report.fail_on],
        "watchpoints": [_tally_row(tally) for tally in judgement.tallies],
        "coverage": {**coverage_row(result.coverage), "pairs_asked": report.pairs},
        "by_design": by_design_text(result.hits) or None,
        "findings": len(judgement.failing) + len(judgement.others),
        "failing": len(judgement.failing),
        "origins": [key_row(hit.key) for hit in result.hits if hit.origin],
        "hits": (hit_row(hit) for hit in result.hits),
        "notes": [{"rank": rank, "step": step, **notes_row(notes)} for (rank, step), notes in report.notes.items()],
        "seconds": round(result.seconds, 3),
        "cancelled": result.cancelled,
        "notices": list(report.notices),
        "inventory": {
            "kinds": dict(report.inventory.kinds),
            "not_entered": list(report.inventory.environments),
            "ignored": list(report.inventory.ignored),
        },
        "limits": list(report.limits),
        "version": __version__,
    }


def _tally_row(tally: Tally) -> Row:
    return {
        **watch_row(tally.watchpoint, tally.tensors),
        **row_of(tally, "judged", "findings", "not_comparable", "cannot_judge"),
        "blocked": tally.blocked.tensors,
        "by_design": tally.by_design,
    }


# -- for people ------------------------------------------------------------------------------------


def _print_hits(report: CheckReport, limit: int) -> None:
    judgement = report.judgement
    lists = judgement.failing, judgement.others, judgement.unsure
    count = sum(map(len, lists))
    if not count:
        return
    shown = list(islice(chain.from_iterable(lists), limit or None))  # only these are made
    ranks = len(report.result.ranks.union(*(hits.rank.tolist() for hits in lists))) > 1
    columns = [
        Column("step", right=True, weight=8),
        *([Column("rank", right=True, weight=6)] if ranks else []),
        Column("watch", weight=5),
        Column("", weight=7, label="origin"),
        Column("found", cut=Cut.END, weight=6),
        Column("tensor", cut=Cut.MIDDLE, weight=9),
    ]
    print_table(columns, [_row(hit, ranks=ranks, graphs=report.graphs) for hit in shown])
    if len(shown) < count:
        print_text(f"… {count - len(shown):,} more (--limit 0 prints all)")
    write_lines("")


_VERDICTS = {Verdict.FINDING: Meaning.FINDING, Verdict.CANNOT_JUDGE: Meaning.DOUBT}


def _row(hit: Hit, *, ranks: bool, graphs: bool) -> list[str]:
    """The cells of a hit. The name comes last and stays whole, so that it can be copied into ``tdbg show``."""
    key = hit.key
    origin = Meaning.FINDING if hit.origin else None
    return [
        str(key.step),
        *([str(key.rank)] if ranks else []),
        said_words(hit),
        meant("◆" if hit.origin else "", origin),
        meant(hit_text(hit), _VERDICTS.get(hit.verdict)),
        meant(place_text(key, with_graph=graphs), origin),
    ]


def _print_watchpoints(report: CheckReport) -> None:
    if not report.asked:
        print_text("no watchpoint was given: these are the recommended ones")
    titles, rows = tally_table(report.judgement.tallies)
    columns = [Column(title, right=True, weight=_WEIGHTS[title]) for title in titles[:-1]]
    print_table([*columns, Column(titles[-1], cut=Cut.FOLD, weight=8)], [_colored(titles, row) for row in rows])


_WEIGHTS = {"tensors": 6, "findings": 9, "not judged": 7, "by design": 5}


_TOLD = {"findings": Meaning.FINDING, "not judged": Meaning.DOUBT}


def _colored(titles: Sequence[str], row: Sequence[str]) -> list[str]:
    cells = zip(titles, row, strict=True)
    return [meant(cell, _TOLD.get(title) if cell != "0" else None) for title, cell in cells]


def _remarks(report: CheckReport) -> list[str]:
    """Returns the remarks that limit what "clean" means."""
    judgement = report.judgement
    lines = [
        f"{what}: {watch_line(tally.watchpoint)} {why}"
        for tally in judgement.tallies
        if tally.idle
        for what, why in (_idle(tally),)
    ]
    if report.fail_on and judgement.others:
        lines.append(f"{plural(len(judgement.others), 'tensor')} with findings that --fail-on does not name")
    if judgement.outcome is Outcome.CLEAN and len(report.result.ranks) > 1:
        lines.append("each rank was judged by itself: tdbg ranks compares what ranks must have in common")
    doubts = judgement.doubts if judgement.outcome is Outcome.FINDING else judgement.doubts[:-1]
    return lines + [meant(f"cannot judge: {_doubt(doubt)}", Meaning.DOUBT) for doubt in doubts]


def _notes(report: CheckReport) -> list[str]:
    """Returns the scalars of the step with the first findings."""
    failing = report.judgement.failing
    if not failing:
        return []
    first = next(iter(failing.chosen(failing.origin)), failing[0]).key
    notes = report.notes.get((first.rank, first.step))
    return [f"step {step_text(first.step)}: {notes_text(notes)}"] if notes else []


def _beginnings(report: CheckReport) -> list[str]:
    """Names the origins, else the first finding, when the top of the table is out of sight."""
    failing = report.judgement.failing
    if len(failing) <= _NEAR:
        return []
    origins = failing.chosen(failing.origin)
    word, hits = ("origin ◆", origins) if origins else ("first finding", failing[:1])
    ranks = len(report.result.ranks) > 1
    lines = []
    for hit in hits[:_FIRST]:
        rank = f" rank {hit.key.rank}" if ranks else ""
        meaning = Meaning.FINDING
        lines.append(meant(f"{word} at step {hit.key.step}{rank}: {hit_text(hit, apart=False)}", meaning))
        lines.append(f"  {place_text(hit.key, with_graph=report.graphs)}")
    if len(hits) > _FIRST:
        lines.append(f"… {plural(len(hits) - _FIRST, 'more origin')} ◆")
    return lines


def _idle(tally: Tally) -> tuple[str, str]:
    """Returns the label for a watchpoint that judged nothing, and the reason."""
    tensors = plural(tally.tensors, "tensor")
    if tally.cannot_judge:
        return "NOT COMPARED", f"could judge none of its {tensors}"
    if tally.not_comparable:
        return "NOT COMPARED", f"compared none of its {tensors}: there is no step before the first dumped one"
    return "NOT JUDGED", f"could judge none of its {tensors}: {not_finite_words(tally.blocked.error) or 'Inf'} in all"


def _doubt(doubt: Doubt) -> str:
    return doubt.text + _ALLOW.get(doubt.kind, "")


def verdict_line(report: CheckReport) -> str:
    """The last line: ``FINDINGS: 314 tensors at step 3, 2 origins ◆``, ``clean``, ``cannot judge: ...``."""
    judgement = report.judgement
    outcome = judgement.outcome
    if outcome is Outcome.INTERRUPTED:
        found = findings_line(judgement.failing, report.result) if judgement.failing else "no finding so far"
        return f"interrupted: {len(report.result.pairs):,} of {_steps(report)} checked; {found}"
    if outcome is Outcome.FINDING:
        of = f" of {_counted(report)}" if report.fail_on else ""
        return f"FINDINGS{of}: {findings_line(judgement.failing, report.result)}"
    if outcome is Outcome.CANNOT_JUDGE:
        return clean(f"cannot judge: {_doubt(judgement.doubts[-1])}")
    return _clean_line(report)


def _clean_line(report: CheckReport) -> str:
    words = [f"no finding of {_counted(report)}"] if report.fail_on else []
    unsure = report.result.coverage.unreadable or report.judgement.unsure
    words += ["tensors that could not be judged are allowed"] if unsure else []
    incomplete = [part.incomplete for part in report.result.coverage.parts]
    words += ["steps that are incomplete are allowed"] if any(incomplete) else []
    words += ["parts of the dump that cannot be listed are allowed"] if not all(incomplete) else []
    return "clean" + (f": {'; '.join(words)}" if words else "")


def _counted(report: CheckReport) -> str:
    return ", ".join(CONDITIONS[condition].abbr for condition in report.fail_on)


def _steps(report: CheckReport) -> str:
    ranks = report.result.ranks
    return plural(report.pairs, "step") + (f" ({named('rank', sorted(ranks))} so far)" if len(ranks) > 1 else "")
