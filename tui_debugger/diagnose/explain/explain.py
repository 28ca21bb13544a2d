"""Explains the findings of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tui_debugger.check.progress import undisturbed
from tui_debugger.diagnose.explain import gradients, overflow, values, weights
from tui_debugger.diagnose.explain.evidence import MOST_INPUTS, Evidence
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Guidance, Section
from tui_debugger.model import ErrorBits, Hit, ProgressFn, Side, TensorKey, Verdict, WatchResult, no_progress
from tui_debugger.text.tensors import place_text
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_OVERFLOW

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import Run


Explain = Callable[[Evidence, WatchResult], Section]

_BY_CONDITION: Final[Mapping[str, Explain]] = {
    "operator_overflow": overflow.operator_overflow,
    "tensor_all_zero": values.all_zero,
    "tensor_range": values.out_of_range,
    "tensor_too_large": values.too_large,
    "tensor_too_small": values.too_small,
    "weight_change_too_large": weights.changed,
    "weight_change_too_small": weights.stayed,
    "weight_initialization": overflow.initial,
    "weight_not_changed": weights.stayed,
    "weight_too_large": values.too_large,
    "weight_too_small": values.too_small,
    "activation_range": values.activation_range,
    "gradient_too_large": gradients.too_large,
    "gradient_vanishing": gradients.vanishing,
}
"""What explains a hit of each condition; the overflow conditions (NaN, Inf) share one section of their own."""
EXPLAINED: Final = frozenset(_BY_CONDITION) | {
    condition.id for condition in CONDITIONS.values() if condition.wire == WIRE_OVERFLOW
}
"""Conditions that have guidance: all of them."""
_KEPT: Final = (Verdict.BLOCKED, Verdict.BY_DESIGN)
"""Verdicts of conditions that NaN or Inf kept from being judged."""


def explain(session: Run, key: TensorKey, hit: Hit | None = None, progress: ProgressFn = no_progress) -> Guidance:
    """Returns what was found on a tensor, what speaks for which cause, and what to look at next.

    Args:
        session: an open session, offline or live.
        key: the tensor.
        hit: what was found on it; None takes what the session's last check found, if that is known.
        progress: receives snapshots; may raise CancelledError.

    Returns:
        The guidance. A tensor without a finding is looked at for NaN and Inf all the same.

    Raises:
        UnreadableTensorError: the run has no such node.
        CancelledError: from ``progress``.
    """
    return undisturbed(lambda: _explained(Evidence(session, key, progress), hit))


def known_hit(session: Run, key: TensorKey) -> tuple[Hit | None, bool]:
    """The hit that the last check found on a tensor, and whether its step is known by the present watchpoints."""
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
    sections = _merged([_ordered(evidence, each) for each in _sections(evidence, results, checked=checked)])
    bad = evidence.stats is not None and evidence.stats.bad
    intended = any(result.verdict is Verdict.BY_DESIGN for result in results)
    finding = (bad and not intended) or (hit is not None and hit.verdict is Verdict.FINDING)
    graphs = len(evidence.flow.nodes.graphs) > 1
    return Guidance(evidence.tensor, evidence.type, sections, tuple(_missing(evidence)), finding, graphs)


def _sections(evidence: Evidence, results: Sequence[WatchResult], *, checked: bool) -> list[Section]:
    found: list[Section] = []
    bad = evidence.stats is not None and evidence.stats.bad
    if bad:
        of_overflow = [result.condition for result in results if CONDITIONS[result.condition].wire == WIRE_OVERFLOW]
        section = overflow.overflow(evidence, tuple(dict.fromkeys(of_overflow)))
        found.append(replace(section, facts=(*section.facts, *_kept(results))))
    found += [
        _BY_CONDITION[result.condition](evidence, result)
        for result in results
        if result.error == ErrorBits.NONE and result.condition in _BY_CONDITION
    ]
    by_error: dict[ErrorBits, list[WatchResult]] = {}
    for result in results:
        if result.error and not (bad and result.verdict in _KEPT):  # NaN and Inf are explained, and nothing else is
            by_error.setdefault(result.error, []).append(result)
    found += [overflow.not_compared(evidence, group) for group in by_error.values()]
    if not bad and not any(result.verdict in (Verdict.FINDING, Verdict.BLOCKED) for result in results):
        found.append(overflow.clean(evidence, _judged(evidence.session, checked=checked)))
    return found


def _kept(results: Sequence[WatchResult]) -> list[str]:
    """Tells which conditions NaN or Inf kept from being judged, as a fact."""
    names = dict.fromkeys(CONDITIONS[each.condition].abbr for each in results if each.error and each.verdict in _KEPT)
    return [f"not judged because of that: {', '.join(names)}"] if names else []


def _judged(session: Run, *, checked: bool) -> str:
    if not session.watchpoints.enabled():
        return "no watchpoint is enabled: only NaN and Inf were looked for"
    if not checked:
        return "whether a watchpoint has a finding here was not checked: only NaN and Inf were looked for"
    return "no watchpoint of the list has a finding here"


def _merged(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Sections with the same causes as one: two conditions often say the same about a tensor."""
    found: list[Section] = []
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


def _ordered(evidence: Evidence, section: Section) -> Section:
    """Likely causes first, ruled out ones last; each said once. Advice gets the command that does the same."""
    seen: dict[tuple[str, str], Cause] = {}
    for cause in section.causes:
        seen.setdefault((cause.title, cause.evidence), cause)
    causes = tuple(sorted(seen.values(), key=lambda cause: cause.standing))
    return replace(section, causes=causes, advice=tuple(with_command(evidence, each) for each in section.advice))


def _missing(evidence: Evidence) -> list[str]:
    """Returns what could not be looked at."""
    tensor, found = evidence.tensor, []
    if tensor.error:
        found.append(f"the tensor itself: {tensor.error}")
    if tensor.recorded:
        found.append("the values: only statistics were dumped")
    if tensor.uncertain:
        found.append("certainty about the name: the file may belong to another node")
    if not evidence.has_graph:
        found.append("the graph: what this tensor was made from is known from its own input files only")
    if evidence.parameter < 0 and evidence.maker >= 0:
        silent = [given.label for given in evidence.inputs if given.stats is None and not given.constant]
        if silent:
            more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
            found.append(f"inputs that were not dumped or cannot be read: {', '.join(silent[:4])}{more}")
        if len(evidence.inputs) == MOST_INPUTS:
            found.append(f"inputs beyond the first {MOST_INPUTS}")
    if evidence.key.side is Side.INPUT and not evidence.known_source:
        found.append("the node that made this input: no graph names it")
    return found


def with_command(evidence: Evidence, advice: Advice) -> Advice:
    """The advice with the command that shows the same as its view; one that has a command of its own keeps it."""
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
"""By view: command, what stands before and after the tensor (None: it takes no tensor), whether it is of a step."""
