"""What stands above table and list: which tensors, and the answer."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from tui_debugger.analysis.difference.differences import Differences
from tui_debugger.analysis.difference.pairs import Fit
from tui_debugger.model import TensorKey, TensorMeta
from tui_debugger.session.diagnosis.comparing import Couple, Side
from tui_debugger.tui.theme import BLUE, GREY, HIT_GLYPH, ORANGE
from tui_debugger.words import differences as words
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import NONE
from tui_debugger.words.steps import BEFORE_FIRST, step_text
from tui_debugger.words.tensors import shape_text

EQUAL_GLYPH = "="
_GAP = "   "


def sides(key: TensorKey, other: Side | None, couple: Couple | None, *, working: bool = False) -> Content:
    """Two lines: this tensor, and the other one by what tells it apart; while that is looked for, dots."""
    step = step_text(key.step)
    here = [step if step == BEFORE_FIRST else f"step {step}", f"rank {key.rank}", clean(key.graph)]
    there = [other.text(key) if other is not None else "…" if working else NONE]
    if couple is not None:
        here.append(_type(couple.here.meta))
        there.append(_type(couple.there.meta))
        if couple.fit is not Fit.SAME:
            there.append(f"({couple.fit.value})")
    lines = (("here   ", here), ("there  ", there))
    return Content("\n").join([Content.assemble((name, GREY), "  ".join(parts)) for name, parts in lines])


def answer(found: Differences, hint: str, width: int) -> Content:
    """Whether they are equal, and every measure of the whole tensors in as few lines as they fit into."""
    glyph, colour = (HIT_GLYPH, ORANGE) if found.outside else (EQUAL_GLYPH, BLUE)
    tolerance = words.tolerance_text(found.tolerance, found.boundary)
    verdict = (f"{glyph} {words.verdict(found)}", f"bold {colour}")
    beside = f"{_GAP}tolerance {tolerance}"
    fits = len(verdict[0]) + len(beside) <= width
    first = Content.assemble(verdict, (beside, GREY)) if fits else Content.styled(*verdict)
    rest = [words.counts_text(found), words.error_text(found), words.vector_text(found), words.ulp_text(found)]
    lines = _joined(["" if fits else beside.strip(), *rest, f"note: {hint}" if hint else ""], width)
    return Content("\n").join([first, *(Content(line) for line in lines)])


def _type(meta: TensorMeta) -> str:
    return f"{clean(meta.dtype)} {shape_text(meta.shape)}"


def _joined(texts: Iterable[str], width: int) -> list[str]:
    """Texts, as many in a line as fit."""
    lines: list[str] = []
    for text in filter(None, texts):
        if lines and len(lines[-1]) + len(_GAP) + len(text) <= width:
            lines[-1] += _GAP + text
        else:
            lines.append(text)
    return lines
