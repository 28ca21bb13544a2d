"""Guidance as lines: what the view shows, what the command prints, what goes to the clipboard."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tui_debugger.session.guidance.types import Advice, Guidance, Section
from tui_debugger.session.hazards.cause import Standing
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import place_text, step_text, tensor_line
from tui_debugger.watch.condition_table import CONDITIONS

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
        yield from _section(section)
    if guidance.missing:
        yield Line(Kind.BLANK, "")
        yield Line(Kind.HEADING, "Not known")
        yield from (Line(Kind.MISSING, clean(text), 2, 2) for text in guidance.missing)


def section_title(section: Section) -> str:
    """``Gradient vanishing (GV)``."""
    abbreviations = " ".join(CONDITIONS[condition].abbr for condition in section.conditions)
    return f"{section.title} ({abbreviations})" if abbreviations else section.title


def _section(section: Section) -> Iterator[Line]:
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
