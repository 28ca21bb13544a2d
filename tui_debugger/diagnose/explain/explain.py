"""Explains the findings of one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.diagnose.explain.evidence import MOST_INPUTS, Evidence
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Guidance, GuidanceSection, Standing
from tui_debugger.diagnose.explain.rules import DUMP_VALUES, ERROR_RULES, OVERFLOW, condition_rule
from tui_debugger.model import ErrorBits, Hit, ProgressFn, TensorKey, Verdict, WatchResult, no_progress
from tui_debugger.text.numbers import and_more
from tui_debugger.text.phrases import every, finite_words, part_of, range_words
from tui_debugger.text.rows import reasons_of
from tui_debugger.text.tensors import place_text
from tui_debugger.watch.condition_table import CONDITIONS

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


_KEPT: Final = (Verdict.BLOCKED, Verdict.BY_DESIGN)
"""Verdicts of conditions that NaN or Inf kept from being judged."""


def explain(
    session: DiagnosedRun, key: TensorKey, hit: Hit | None = None, progress: ProgressFn = no_progress
) -> Guidance:
    """Returns what was found on a tensor, the evidence for each cause, and what to look at next.

    A ``hit`` of None means that of the last check, if known; a tensor without a finding is still checked for NaN and
    Inf. Raises UnreadableTensorError where the run has no such node, and CancelledError from ``progress``.
    """
    return retry_when_renumbered(lambda: _explained(Evidence(session, key, progress), hit))


def known_hit(session: DiagnosedRun, key: TensorKey) -> tuple[Hit | None, bool]:
    """The last check's hit on a tensor, and whether its step was checked with the present watchpoints."""
    known = session.known([(key.rank, key.step)])
    if known is None:
        return None, False
    row = session.nodes(key.rank).find(key.node, key.graph)
    return next((hit for hit in known.hits.of_nodes([row]) if hit.key == key), None), True


def _explained(evidence: Evidence, hit: Hit | None) -> Guidance:
    checked = hit is not None
    if hit is None:
        hit, checked = known_hit(evidence.session, evidence.key)
    results = hit.results if hit is not None else ()
    sections = _merged(_sections(evidence, results, checked=checked))
    bad = evidence.stats is not None and evidence.stats.bad
    intended = any(result.verdict is Verdict.BY_DESIGN for result in results)
    finding = (bad and not intended) or (hit is not None and hit.verdict is Verdict.FINDING)
    graphs = len(evidence.flow.nodes.graphs) > 1
    return Guidance(evidence.tensor, evidence.type, sections, tuple(_missing(evidence)), finding, graphs)


def _sections(evidence: Evidence, results: Sequence[WatchResult], *, checked: bool) -> list[GuidanceSection]:
    found: list[GuidanceSection] = []
    bad = evidence.stats is not None and evidence.stats.bad
    if bad:
        section = _overflow(evidence, results)
        found.append(replace(section, facts=(*section.facts, *_not_judged(results))))
    found += [
        _section(evidence, result)
        for result in results
        if result.error == ErrorBits.NONE and result.condition not in OVERFLOW
    ]
    by_error: dict[ErrorBits, list[WatchResult]] = {}
    for result in results:
        if result.error and not (bad and result.verdict in _KEPT):  # the section on NaN and Inf explains these
            by_error.setdefault(result.error, []).append(result)
    found += [_not_compared(evidence, group) for group in by_error.values()]
    if not bad and not any(result.verdict in (Verdict.FINDING, Verdict.BLOCKED) for result in results):
        found.append(_no_finding(evidence, _watched_words(evidence.session, checked=checked)))
    return found


def _section(evidence: Evidence, result: WatchResult) -> GuidanceSection:
    asked = evidence.asked(result)
    rule = condition_rule(asked)
    causes = rule.weigh(asked)
    return GuidanceSection(
        conditions=(result.condition,),
        title=CONDITIONS[result.condition].title,
        found=rule.found(asked),
        causes=causes,
        advice=_with_commands(evidence, rule.advise(asked, causes)),
        facts=tuple(fact for facts in rule.facts for fact in facts(asked)),
    )


def _overflow(evidence: Evidence, results: Sequence[WatchResult]) -> GuidanceSection:
    """Returns the section on NaN and Inf, for all conditions that look for them, or for none."""
    conditions = tuple(dict.fromkeys(each.condition for each in results if each.condition in OVERFLOW))
    section = _section(evidence, WatchResult(0, (conditions or OVERFLOW)[0], Verdict.FINDING))
    return replace(section, conditions=conditions, title=section.title if conditions else "NaN or Inf")


def _not_compared(evidence: Evidence, results: Sequence[WatchResult]) -> GuidanceSection:
    error = results[0].error
    rules = [rule for rule in ERROR_RULES if rule.error & error]
    names = ", ".join(CONDITIONS[result.condition].abbr for result in results)
    words = ", ".join(dict.fromkeys(text for each in results for text in reasons_of(each))) or "nothing to compare with"
    advice = dict.fromkeys(rule.advice for rule in rules)
    return GuidanceSection(
        conditions=tuple(result.condition for result in results),
        title="Not compared",
        found=f"{names} could not be judged: {words}",
        causes=tuple(Cause(rule.title, rule.evidence(evidence), Standing.LIKELY) for rule in rules),
        advice=_with_commands(evidence, (_with_recorder_advice(evidence, each) for each in advice)),
    )


def _with_recorder_advice(evidence: Evidence, advice: Advice) -> Advice:
    """Adds to the advice to dump values how the recorder of the run does it."""
    how = evidence.session.info.values_advice
    if advice is not DUMP_VALUES or not how:
        return advice
    return replace(advice, text=f"Dump values ({how}).")


def _no_finding(evidence: Evidence, watched: str) -> GuidanceSection:
    stats = evidence.stats
    if stats is None:
        why = evidence.tensor.error or "it was not dumped at this step"
        neighbours = with_command(evidence, Advice("See its neighbours.", "relations"))
        return GuidanceSection((), "Nothing is known about its values", why, (), (neighbours,))
    source = " (by the statistics that the dump recorded)" if evidence.tensor.recorded else ""
    are = "is" if stats.count == 1 and stats.sized else "are"
    found = f"{every(stats)} {are} finite{source}, {finite_words(stats)}"
    if not stats.count:
        found = "the tensor has no elements"
    advice = (
        Advice("See how the values are distributed.", "distribution"),
        Advice("See it over all steps.", "trend"),
    )
    zeros = f"{part_of(stats, 'zero')} are 0" if stats.zero > 1 else ""
    near = range_words(evidence.tensor.meta, stats, only_near=True)
    facts = tuple(fact for fact in (watched, zeros, near) if fact)
    return GuidanceSection((), "No NaN or Inf", found, (), _with_commands(evidence, advice), facts)


def _not_judged(results: Sequence[WatchResult]) -> list[str]:
    names = dict.fromkeys(CONDITIONS[each.condition].abbr for each in results if each.error and each.verdict in _KEPT)
    return [f"not judged because of that: {', '.join(names)}"] if names else []


def _watched_words(session: DiagnosedRun, *, checked: bool) -> str:
    if not session.watchpoints.enabled():
        return "no watchpoint is enabled: only NaN and Inf were looked for"
    if not checked:
        return "whether a watchpoint has a finding here was not checked: only NaN and Inf were looked for"
    return "no watchpoint of the list has a finding here"


def _merged(sections: Sequence[GuidanceSection]) -> tuple[GuidanceSection, ...]:
    """Merges sections with the same causes: two conditions often say the same about a tensor."""
    found: list[GuidanceSection] = []
    for section in sections:
        at = next((n for n, other in enumerate(found) if section.causes and other.causes == section.causes), None)
        if at is None:
            found.append(section)
            continue
        other = found[at]
        found[at] = replace(
            other,
            conditions=other.conditions + section.conditions,
            title=f"{other.title}, {section.title[:1].lower()}{section.title[1:]}",
            found=f"{other.found}; {section.found[:1].lower()}{section.found[1:]}",
            advice=tuple(dict.fromkeys((*other.advice, *section.advice))),
            facts=tuple(dict.fromkeys((*other.facts, *section.facts))),
        )
    return tuple(found)


def _missing(evidence: Evidence) -> list[str]:
    tensor, found = evidence.tensor, []
    if tensor.error:
        found.append(f"the tensor itself: {tensor.error}")
    if tensor.recorded:
        found.append("the values: only statistics were dumped")
    if tensor.uncertain:
        found.append("which node the values belong to: the name of the file fits another node as well")
    if not evidence.has_graph:
        found.append("the graph: what this tensor was made from is known from its own input files only")
    if evidence.parameter < 0 and evidence.producer >= 0:
        silent = [operand.label for operand in evidence.inputs if operand.stats is None and not operand.constant]
        if silent:
            found.append(f"inputs that were not dumped or cannot be read: {and_more(silent, 4)}")
        if len(evidence.inputs) == MOST_INPUTS:
            found.append(f"inputs beyond the first {MOST_INPUTS}")
    if evidence.maker < 0:
        found.append("the node that made this input: no graph names it")
    return found


_OF_VALUES: Final = frozenset({"values", "compare", "distribution"})
"""Views that show nothing where only statistics were recorded."""


def _with_commands(evidence: Evidence, advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """The advice with commands, without views that show nothing because there are no values."""
    run = evidence.session

    def can_be_followed(each: Advice) -> bool:
        return each.view not in _OF_VALUES or not run.row_of(each.about or evidence.key).recorded

    return tuple(with_command(evidence, each) for each in advice if can_be_followed(each))


def with_command(evidence: Evidence, advice: Advice) -> Advice:
    """The advice with the command that shows the same as its view; a command that it has stays."""
    if advice.arguments or advice.view not in _COMMANDS or evidence.key.step < 0:
        return advice
    key = advice.about or evidence.key
    name, before, after, of_step = _COMMANDS[advice.view]
    place = place_text(key, with_graph=len(evidence.flow.nodes.graphs) > 1)
    where = ["--step", str(key.step)] if of_step else []
    where += ["--rank", str(key.rank)] if len(evidence.session.ranks()) > 1 else []
    return replace(advice, arguments=(name, *before, *([place] if after is not None else []), *(after or ()), *where))


_COMMANDS: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...] | None, bool]]] = {
    "origin": ("origin", ("--from",), (), True),
    "explain": ("explain", (), (), True),
    "relations": ("relations", (), (), True),
    "trend": ("trend", (), (), False),
    "compare": ("diff", (), (), True),
    "distribution": ("show", (), ("--distribution",), True),
    "values": ("show", (), (), True),
    "health": ("health", (), None, False),
}
"""By view: the command, its arguments before and after the tensor (after = None: no tensor), whether it takes a
step."""
