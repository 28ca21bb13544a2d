"""Guidance as plain dicts, for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.check.progress import undisturbed
from tui_debugger.diagnose.explain import activations, gradients, overflow, sizes, weights
from tui_debugger.diagnose.explain.evidence import MOST_INPUTS, Advice, Evidence, Guidance, Section, with_command
from tui_debugger.diagnose.explain.operator_rules import Cause, Standing
from tui_debugger.model import ErrorBits, Hit, ProgressFn, Side, TensorKey, Verdict, WatchResult, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.rows import key_row, meta_row, stats_row
from tui_debugger.text.tensors import place_text, step_text, tensor_line
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_OVERFLOW

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import Run


Row = dict[str, Any]


def guidance_row(guidance: Guidance) -> Row:
    """Everything that is said about one tensor."""
    row = guidance.tensor
    return {
        **key_row(row.key),
        "type": guidance.node_type,
        **meta_row(row.meta),
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "error": row.error or None,
        "finding": guidance.finding,
        "sections": [_section_rows(section) for section in guidance.sections],
        "not_known": list(guidance.missing),
    }


def _section_rows(section: Section) -> Row:
    return {
        "conditions": list(section.conditions),
        "abbr": [CONDITIONS[condition].abbr for condition in section.conditions],
        "title": section.title,
        "found": section.found,
        "causes": [
            {"title": cause.title, "evidence": cause.evidence, "standing": cause.standing.name.lower()}
            for cause in section.causes
        ],
        "look_next": [_advice(advice) for advice in section.advice],
        "facts": list(section.facts),
    }


def _advice(advice: Advice) -> Row:
    return {
        "text": advice.text,
        "view": advice.view or None,
        "tensor": key_row(advice.about) if advice.about is not None else None,
        "arguments": list(advice.arguments),
    }


GLYPHS: Final = {
    Standing.LIKELY: "●",
    Standing.POSSIBLE: "○",
    Standing.UNKNOWN: "?",
    Standing.RULED_OUT: "–",
}
"""How strong a cause is, without words."""


class Kind(Enum):
    """What a line is, for its colour."""

    NAME = "name"
    TENSOR = "tensor"
    TITLE = "title"
    FOUND = "found"
    HEADING = "heading"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "unknown"
    RULED_OUT = "ruled out"
    EVIDENCE = "evidence"
    ADVICE = "advice"
    FACT = "fact"
    MISSING = "missing"
    BLANK = "blank"


@dataclass(frozen=True, slots=True)
class Line:
    """One line before it is broken to a width.

    Attributes:
        kind: what it is.
        text: safe to print.
        indent: cells before it, also of the lines it is broken into.
        hang: further cells before every line but the first.
        advice: what Enter does here.
    """

    kind: Kind
    text: str
    indent: int = 0
    hang: int = 0
    advice: Advice | None = None

    def wrapped(self, width: int) -> list[str]:
        """The line broken to a width; words that are longer (names) are broken too."""
        room = max(width, self.indent + self.hang + 8)
        before = " " * self.indent
        return textwrap.wrap(
            self.text,
            room,
            initial_indent=before,
            subsequent_indent=before + " " * self.hang,
            break_on_hyphens=False,
        ) or [""]


_OF_STANDING = {
    Standing.LIKELY: Kind.LIKELY,
    Standing.POSSIBLE: Kind.POSSIBLE,
    Standing.UNKNOWN: Kind.UNKNOWN,
    Standing.RULED_OUT: Kind.RULED_OUT,
}


def lines(guidance: Guidance) -> Iterator[Line]:
    """Everything that the guidance says."""
    row = guidance.tensor
    yield Line(Kind.NAME, clean(place_text(row.key, with_graph=guidance.graphs)))
    yield Line(Kind.TENSOR, f"rank {row.key.rank}, step {step_text(row.key.step)}")
    yield Line(Kind.TENSOR, f"{clean(guidance.node_type)}  {tensor_line(row.meta, row.stats)}".strip(), hang=2)
    for section in guidance.sections:
        yield Line(Kind.BLANK, "")
        yield from _section_lines(section)
    if guidance.missing:
        yield Line(Kind.BLANK, "")
        yield Line(Kind.HEADING, "Not known")
        yield from (Line(Kind.MISSING, clean(text), 2, 2) for text in guidance.missing)


def section_title(section: Section) -> str:
    """``Gradient vanishing (GV)``."""
    abbreviations = " ".join(CONDITIONS[condition].abbr for condition in section.conditions)
    return f"{section.title} ({abbreviations})" if abbreviations else section.title


def _section_lines(section: Section) -> Iterator[Line]:
    yield Line(Kind.TITLE, section_title(section))
    yield Line(Kind.FOUND, clean(section.found), 2)
    if section.causes:
        yield Line(Kind.HEADING, "Causes, by what speaks for them", 2)
    for cause in section.causes:
        text = f"{GLYPHS[cause.standing]} {cause.standing.word}: {clean(cause.title)}"
        yield Line(_OF_STANDING[cause.standing], text, 2, 2)
        yield Line(Kind.EVIDENCE, clean(cause.evidence), 6)
    if section.advice:
        yield Line(Kind.HEADING, "Look next", 2)
        yield from (Line(Kind.ADVICE, clean(advice.text), 4, 2, advice) for advice in section.advice)
    if section.facts:
        yield Line(Kind.HEADING, "Numbers", 2)
        yield from (Line(Kind.FACT, clean(fact), 4, 2) for fact in section.facts)


Explain = Callable[[Evidence, WatchResult], Section]

_BY_CONDITION: Final[Mapping[str, Explain]] = {
    "operator_overflow": overflow.operator_overflow,
    "tensor_all_zero": activations.all_zero,
    "tensor_range": sizes.out_of_range,
    "tensor_too_large": sizes.too_large,
    "tensor_too_small": sizes.too_small,
    "weight_change_too_large": weights.changed,
    "weight_change_too_small": weights.stayed,
    "weight_initialization": overflow.initial,
    "weight_not_changed": weights.stayed,
    "weight_too_large": sizes.too_large,
    "weight_too_small": sizes.too_small,
    "activation_range": activations.activation_range,
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
