"""Health as glyphs and words, and steps as columns, the same for map, command and plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from tui_debugger.stats.health import Health
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import step_text
from tui_debugger.text.writer import Meaning, Pieces, meant

GLYPHS: Final[Mapping[Health, str]] = {
    Health.ABSENT: " ",
    Health.NOT_JUDGED: "-",
    Health.CLEAN: "·",
    Health.UNCHECKED: "…",
    Health.UNREADABLE: "?",
    Health.HIT: "✗",
    Health.NOT_FINITE: "!",
    Health.INF: "∞",
    Health.NAN: "N",
    Health.ORIGIN: "◆",
}
"""One cell each; different without colour. Findings, origins and doubts have the glyphs of the lists."""
MEANINGS: Final[Mapping[Health, Meaning]] = {
    Health.UNREADABLE: Meaning.DOUBT,
    Health.HIT: Meaning.FINDING,
    Health.NOT_FINITE: Meaning.FINDING,
    Health.INF: Meaning.FINDING,
    Health.NAN: Meaning.FINDING,
    Health.ORIGIN: Meaning.FINDING,
}
MEANING_OF_GLYPH: Final[Mapping[str, Meaning]] = {GLYPHS[health]: meaning for health, meaning in MEANINGS.items()}
WORDS: Final[Mapping[Health, str]] = {
    Health.ABSENT: "not dumped",
    Health.NOT_JUDGED: "not judged",
    Health.CLEAN: "clean",
    Health.UNCHECKED: "not checked",
    Health.UNREADABLE: "cannot judge",
    Health.HIT: "hit",
    Health.NOT_FINITE: "NaN/Inf",
    Health.INF: "Inf",
    Health.NAN: "NaN",
    Health.ORIGIN: "origin",
}


def glyph_pieces(glyphs: str) -> Pieces:
    runs = groupby(glyphs, MEANING_OF_GLYPH.get)
    return tuple(meant("".join(run), meaning) for meaning, run in runs)


def legend_pieces(legend: str) -> Pieces:
    """Returns a legend in pieces: its glyphs have their colours, letters in its words have none."""
    return tuple(meant(word, MEANING_OF_GLYPH.get(word)) for word in re.split("( +)", legend))


def legend_text(room: int = 1 << 10, *, vague: bool = False) -> str:
    """Returns ``◆ origin  N NaN  ∞ Inf ...``, shorter in a small ``room``; ``vague``: "NaN or Inf" is one mark."""
    shown = [health for health in reversed(Health) if vague or health is not Health.NOT_FINITE]
    pairs = [f"{GLYPHS[health] if GLYPHS[health].strip() else '␣'} {WORDS[health]}" for health in shown]
    text = "  ".join(pairs)
    while len(text) > room and len(pairs) > 1:
        text = " ".join(pairs := pairs[:-1])
    return text


def covered_text(
    *,
    tensors: int,
    checked: int,
    pairs: int,
    ranks: int,
    each: int,
    findings: int,
    unreadable: int,
    not_comparable: int,
    parts: Sequence[str] = (),
) -> str:
    """Returns ``2,292 tensors checked in 12 of 12 steps, 918 findings; 3 unreadable``; ``pairs``: (rank, step).

    ``each``: the number of steps of each rank; 0: they differ.
    """
    if checked < pairs:
        of = f"{checked:,} of {_pairs(pairs, ranks)}"
    elif ranks > 1 and each:
        of = f"{'all ' if each > 1 else ''}{plural(each, 'step')} of each of {ranks:,} ranks"
    else:
        of = f"{'all ' if pairs > 1 else ''}{_pairs(pairs, ranks)}"
    doubts = [*parts]
    doubts += [f"{unreadable:,} unreadable"] if unreadable else []
    doubts += [f"{not_comparable:,} not comparable"] if not_comparable else []
    if not checked:
        return "; ".join([f"nothing is checked yet of {_pairs(pairs, ranks)}", *doubts])
    found = plural(findings, "finding") if findings else "the watchpoints found nothing"
    return "; ".join([f"{plural(tensors, 'tensor')} checked in {of}, {found}", *doubts])


def _pairs(pairs: int, ranks: int) -> str:
    return plural(pairs, "step") + (f" of {ranks:,} ranks together" if ranks > 1 else "")


def span_text(steps: Sequence[int]) -> str:
    first, last = step_text(steps[0]), step_text(steps[-1])
    return first if first == last else f"{first}–{last}"


def column_width(labels: Sequence[str], room: int) -> int:
    """Returns the cells for each column: the width of a label if there is room, else 2 or 1."""
    widest = max(map(len, labels), default=1) + 1
    return next((width for width in (widest, 2) if len(labels) * width <= room), 1)


def header(labels: Sequence[str], width: int, room: int) -> str:
    """Returns labels, each above its column of ``width`` cells; leaves out labels without room."""
    line = ""
    for number, label in enumerate(labels):
        start = number * width
        if (not line or start > len(line)) and start + len(label) <= room:
            line = line.ljust(start) + label
    return line
