"""The answer of Explain on one tensor: findings, causes with their evidence, and advice; as JSON or lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from tui_debugger.check.types import TensorRow
from tui_debugger.model import TensorKey
from tui_debugger.text.clean import clean
from tui_debugger.text.rows import key_row, meta_row, stats_row
from tui_debugger.text.tensors import place_text, step_text, tensor_line
from tui_debugger.watch.condition_table import CONDITIONS


class Standing(IntEnum):
    """How well the evidence supports a cause; the order is that of the output."""

    LIKELY = 0
    """A measurement speaks for it."""
    POSSIBLE = 1
    """No measurement speaks against it."""
    UNKNOWN = 2
    """The values that would tell were not dumped."""
    RULED_OUT = 3
    """A measurement speaks against it."""

    @property
    def word(self) -> str:
        return ("likely", "possible", "cannot be told", "ruled out")[self]


@dataclass(frozen=True, slots=True)
class Cause:
    """A usual reason for a finding, with the evidence for or against it in numbers of this tensor.

    ``remedy`` is a sentence on what to do, shown where the cause is likely; empty where none is known.
    """

    title: str
    evidence: str
    standing: Standing
    remedy: str = ""


def weighed(title: str, evidence: str, likely: bool) -> Cause:
    """A cause that a measurement speaks for, or against."""
    return Cause(title, evidence, Standing.LIKELY if likely else Standing.RULED_OUT)


@dataclass(frozen=True, slots=True)
class Advice:
    """A thing to look at next.

    Attributes:
        view: id of the view that shows it: ``origin``, ``trend``, ``values`` ...; empty: no view.
        about: the tensor to open the view on; None: the tensor of the guidance.
        arguments: a command line, the command first; empty: no command.
    """

    text: str
    view: str = ""
    about: TensorKey | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuidanceSection:
    """Guidance for one condition, or for several that say the same.

    Attributes:
        conditions: ids in the condition table; empty for a tensor without a finding.
        found: what was found, with the set and the actual numbers.
        causes: likely ones first, ruled out ones last.
        facts: numbers worth knowing that are no cause.
    """

    conditions: tuple[str, ...]
    title: str
    found: str
    causes: tuple[Cause, ...] = ()
    advice: tuple[Advice, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Guidance:
    """Everything that can be said about one tensor.

    Attributes:
        tensor: the tensor with its type, shape and statistics.
        sections: one per condition that was found, NaN and Inf first; without a finding, one section about clean
            values.
        missing: what could not be looked at, and why.
        graphs: the rank has several graphs, so that a name alone may mean two nodes.
    """

    tensor: TensorRow
    node_type: str
    sections: tuple[GuidanceSection, ...]
    missing: tuple[str, ...] = ()
    finding: bool = False
    graphs: bool = False


Row = dict[str, Any]


def guidance_row(guidance: Guidance) -> Row:
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


def _section_rows(section: GuidanceSection) -> Row:
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
"""One character for each standing."""


class LineKind(Enum):
    """The kind of a line, for its colour."""

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
class GuidanceLine:
    """One line, safe to print, before it is broken to a width; each part starts after ``indent`` cells.

    ``hang`` are further cells before all parts but the first; ``advice`` is what Enter does on this line.
    """

    kind: LineKind
    text: str
    indent: int = 0
    hang: int = 0
    advice: Advice | None = None

    def wrapped(self, width: int) -> list[str]:
        room = max(width, self.indent + self.hang + 8)
        before = " " * self.indent
        return textwrap.wrap(
            self.text,
            room,
            initial_indent=before,
            subsequent_indent=before + " " * self.hang,
            break_on_hyphens=False,
        ) or [""]


def lines(guidance: Guidance) -> Iterator[GuidanceLine]:
    row = guidance.tensor
    yield GuidanceLine(LineKind.NAME, clean(place_text(row.key, with_graph=guidance.graphs)))
    yield GuidanceLine(LineKind.TENSOR, f"rank {row.key.rank}, step {step_text(row.key.step)}")
    yield GuidanceLine(
        LineKind.TENSOR, f"{clean(guidance.node_type)}  {tensor_line(row.meta, row.stats)}".strip(), hang=2
    )
    for section in guidance.sections:
        yield GuidanceLine(LineKind.BLANK, "")
        yield from _section_lines(section)
    if guidance.missing:
        yield GuidanceLine(LineKind.BLANK, "")
        yield GuidanceLine(LineKind.HEADING, "Not known")
        yield from (GuidanceLine(LineKind.MISSING, clean(text), 2, 2) for text in guidance.missing)


def section_title(section: GuidanceSection) -> str:
    abbreviations = " ".join(CONDITIONS[condition].abbr for condition in section.conditions)
    return f"{section.title} ({abbreviations})" if abbreviations else section.title


def _section_lines(section: GuidanceSection) -> Iterator[GuidanceLine]:
    yield GuidanceLine(LineKind.TITLE, section_title(section))
    yield GuidanceLine(LineKind.FOUND, clean(section.found), 2)
    if section.causes:
        yield GuidanceLine(LineKind.HEADING, "Likely causes", 2)
    for cause in section.causes:
        text = f"{GLYPHS[cause.standing]} {cause.standing.word}: {clean(cause.title)}"
        yield GuidanceLine(LineKind[cause.standing.name], text, 2, 2)
        yield GuidanceLine(LineKind.EVIDENCE, clean(cause.evidence), 6)
    if section.advice:
        yield GuidanceLine(LineKind.HEADING, "Look next", 2)
        yield from (GuidanceLine(LineKind.ADVICE, clean(advice.text), 4, 2, advice) for advice in section.advice)
    if section.facts:
        yield GuidanceLine(LineKind.HEADING, "Numbers", 2)
        yield from (GuidanceLine(LineKind.FACT, clean(fact), 4, 2) for fact in section.facts)
