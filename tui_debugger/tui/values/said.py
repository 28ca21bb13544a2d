"""The lines of text around the values: what the tensor is, which part shows, what is under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.content import Content

from tui_debugger.analysis.heat import Kind, strongest
from tui_debugger.tui.theme import GREY, ORANGE
from tui_debugger.tui.values.legend import counts_text
from tui_debugger.tui.values.stats import stats_text
from tui_debugger.words.bits import bits_text
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import number
from tui_debugger.words.steps import step_text
from tui_debugger.words.tensors import round_text
from tui_debugger.words.values import exact_text

if TYPE_CHECKING:
    from tui_debugger.arrays import Array
    from tui_debugger.model import TensorStats
    from tui_debugger.session.types import TensorRow
    from tui_debugger.tui.values.heat import HeatMap
    from tui_debugger.tui.values.sheet import Index, Sheet

LOOKED_UP = 1 << 19
"""Elements of a cell up to which it is looked up at every move which of them it shows: a millisecond."""
_NAMES = {Kind.NAN: "NaN", Kind.POS_INF: "+Inf", Kind.NEG_INF: "-Inf", Kind.BOTH_INF: "+Inf and -Inf"}


def slot_of(row: TensorRow) -> str:
    """``out:0``, with the round where the tensor was written several times in its step."""
    return f"{row.role}:{row.slot}{round_text(row.key.round)}"


def facts(row: TensorRow, array: Array | None, *, previous: bool) -> Content:
    """Type, shape, step, rank, graph."""
    key = row.key
    words = [f"{array.dtype.name} {array.shape}" if array is not None else "", f"step {step_text(key.step)}"]
    words += [round_text(key.round, row.rounds), f"rank {key.rank}", clean(key.graph)]
    step = [("  ◀ PREVIOUS STEP", f"bold reverse {ORANGE}")] if previous else []
    return Content.assemble("  ".join(filter(None, words)), *step)


def statistics(row: TensorRow, *, previous: bool) -> Content:
    """Those of the whole tensor, never of the slice."""
    if previous:
        return Content.styled("statistics are those of the current step: p", GREY)
    return Content(stats_text(row))


def count_of(stats: TensorStats, kind: str) -> int:
    """How many NaN, Inf or both a tensor has."""
    inf = stats.pos_inf + stats.neg_inf
    return {"NaN": stats.nan, "Inf": inf}.get(kind, stats.nan + inf)


def is_index(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a tensor has an element with this index."""
    return len(index) == len(shape) and all(0 <= at < size for at, size in zip(index, shape, strict=True))


def element(index: Index, value: Any, place: str) -> Content:
    """An element with its full index and every digit."""
    text = f"[{', '.join(map(str, index))}] = "
    return Content.assemble(text, exact_text(value), (f"   {place}", f"not bold {GREY}"))


def cell(sheet: Sheet, heat: HeatMap) -> tuple[Content, Any]:
    """The cursor's cell of a heat map: its full index range and the element that it shows; the latter too, if known."""
    field, picture, covered, place = heat.field, heat.picture, heat.cell, heat.cursor
    if field is None or picture is None or covered is None:
        return Content(""), None
    rows, columns = covered
    size = len(rows) * len(columns)
    found = strongest(field.read, rows, columns) if size <= LOOKED_UP else None
    if size == 1:
        index = sheet.element(rows.start, columns.start)
        return element(index, sheet.array[index], ""), sheet.array[index]
    kind = Kind(int(picture.kinds[place]))
    text, where, value = _NAMES.get(kind) or number(float(picture.values[place])), "", None
    if found is not None:
        index = sheet.element(*found)
        value = sheet.array[index]
        text, where = exact_text(value), f" at [{', '.join(map(str, index))}]"
    shown = f"{sheet.rectangle_text(rows, columns)} shows {text}{where}"
    return Content.assemble(shown, (f"   {counts_text(picture, place)}", f"not bold {GREY}")), value


def bits(value: Any) -> str:
    """The bytes of the value under the cursor."""
    return "no single element is looked at: zoom in" if value is None else bits_text(value)
