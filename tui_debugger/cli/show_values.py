"""The values of a tensor as ``tdbg show`` prints them: as numbers in brackets, or as a heat map."""

from __future__ import annotations

import math
import os
import shutil
import sys
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.errors import BadSliceError
from tui_debugger.model import ProgressFn
from tui_debugger.stats.slicing import Slice, apply, default_slice, parse_slice
from tui_debugger.text.documents import plain_values
from tui_debugger.text.heat_map import (
    ColoredText,
    Colors,
    Drawer,
    HeatPage,
    Room,
    Scale,
    colors_named,
    halves,
    heat_table_of,
    is_drawable,
    zooms,
)
from tui_debugger.text.tables import width_of
from tui_debugger.text.values import Family, NumberFormat, ValueTable, family, format_window
from tui_debugger.text.writer import terminal_of

WHOLE, WHOLE_LINES = 100, 12
"""Tensors of so many elements, in so many lines, are printed whole."""
EDGES = (3, 3, 3, 2)
"""Of bigger ones, so many elements at both ends of every dimension, by number of dimensions; 1 for more of them."""
MOST_ELEMENTS = 1_000_000
"""Elements that a slice may have."""
JSON_WHOLE = 1000
"""Tensors of so many elements are in a JSON document without being asked for by a slice."""
WIDTH = 78


def cut(array: Array, text: str) -> tuple[Array, Slice]:
    """The window that a slice chooses, as a view.

    Raises:
        BadSliceError: the slice does not fit the tensor, or chooses more than anybody can read.
    """
    window = parse_slice(text, array.shape)
    size = math.prod(window.shape)
    if size > MOST_ELEMENTS:
        msg = f"{window.text} has {size:,} elements: at most {MOST_ELEMENTS:,} are printed"
        raise BadSliceError(msg, where=text, hint="choose fewer, or write the tensor to a file with `tdbg export`")
    return apply(array, window), window


def window_text(window: Array, precision: int) -> str:
    """All elements in brackets."""
    return _brackets(_texts(np.asarray(window), precision))


def excerpt_text(array: Array, precision: int) -> str:
    """All elements of a small tensor; of a bigger one those at the ends of every dimension, with dots between."""
    if array.size <= WHOLE and math.prod(array.shape[:-1]) <= WHOLE_LINES:
        return window_text(array, precision)
    edge = EDGES[array.ndim] if array.ndim < len(EDGES) else 1
    # One element more than is printed marks where numpy has to put its dots: all others are never read.
    kept = [_ends(length, edge) for length in array.shape]
    return _brackets(_texts(array[np.ix_(*kept)], precision), edge)


def nested(window: Array) -> Any:
    """Elements as nested lists, with every digit; NaN and Inf as text, complex numbers as [real, imaginary]."""
    kind = family(window.dtype)
    if kind is Family.COMPLEX:
        wide = window.astype(np.complex128)
        return plain_values(np.stack([wide.real, wide.imag], axis=-1).tolist())
    if kind is Family.FLOAT:
        found = window.astype(np.float64)
        return found.tolist() if np.isfinite(found).all() else plain_values(found.tolist())
    if kind is Family.INT:
        return window.astype(np.int64 if window.dtype.kind not in "iu" else window.dtype).tolist()
    if kind is Family.BOOL:
        return window.tolist()
    return np.vectorize(str, otypes=[object])(window).tolist() if window.size else window.tolist()


def _ends(length: int, edge: int) -> list[int]:
    if length <= 2 * edge:
        return list(range(length))
    return [*range(edge + 1), *range(length - edge, length)]


def _texts(values: Array, precision: int) -> npt.NDArray[np.str_]:
    """The elements as text, all equally wide."""
    cells = format_window(values.reshape(1, -1), NumberFormat(precision))[0]
    width = max((len(text) for text, _ in cells), default=0)
    return np.array([text.rjust(width) for text, _ in cells], dtype=np.str_).reshape(values.shape)


def _room() -> int:
    """Cells for values, beside the blanks before them."""
    terminal = terminal_of()
    return WIDTH if terminal is None else max(min(WIDTH, terminal.columns - INDENT), 10)


def _brackets(texts: npt.NDArray[np.str_], edge: int = 0) -> str:
    """Everything, or with ``edge`` dots in every dimension that is longer than twice that."""
    return np.array2string(
        texts,
        max_line_width=_room(),
        separator=" ",
        formatter={"all": str},
        threshold=0 if edge else sys.maxsize,
        edgeitems=edge or 1,
    )


BAR: Final = 23
INDENT: Final = 2
OTHER_LINES: Final = 8
"""Lines of a terminal that are left for what stands around a map."""
LEAST_LINES, MOST_LINES = 8, 40
"""Lines of a map."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """What maps are drawn on.

    Attributes:
        lines, columns: room for a map.
        colors: those of the terminal; none for a file or a pipe.
        progress: told how far a large tensor is; may raise to stop.
    """

    lines: int
    columns: int
    colors: Colors
    progress: ProgressFn


@dataclass(frozen=True, slots=True)
class Heat:
    """A map.

    Attributes:
        window: canonical text of the slice.
        text: the map for people.
        cells: the same as numbers, for JSON.
        error: why there is none.
    """

    window: str = ""
    text: str = ""
    cells: dict[str, Any] | None = None
    error: str = ""


def canvas(progress: ProgressFn) -> Canvas:
    """Returns what the terminal has to offer; colours only when the output goes there."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    system = Console(file=sys.stdout).color_system if sys.stdout.isatty() else None
    colors = colors_named(system, plain="NO_COLOR" in os.environ)
    lines = max(LEAST_LINES, min(MOST_LINES, size.lines - OTHER_LINES))
    return Canvas(lines, max(16, size.columns - INDENT), colors, progress)


def heat_of(array: npt.NDArray[Any], wanted: str | None, on: Canvas) -> Heat:
    """Draws a slice of a tensor.

    Args:
        array: the whole tensor, usually a memory map.
        wanted: text of the slice; None for the first plane.
        on: where to.

    Raises:
        BadSliceError: the slice does not fit.
    """
    if wanted is None and not array.size:
        return Heat(error="no elements")
    window = parse_slice(wanted or default_slice(array.shape), array.shape)
    sheet = ValueTable(array, window)
    if sheet.empty:
        return Heat(window.text, error="no elements")
    if not is_drawable(array):
        return Heat(window.text, error=f"{array.dtype.name} elements are no numbers: there is no heat map of them")
    field = heat_table_of(sheet)
    room = Room(on.lines - 2, on.columns - field.margin, halves(on.colors))
    zoom = zooms(field.shape, room, folded=field.folded)[0]
    picture = field.picture(zoom.window(field.shape, (0, 0), room), on.progress)
    page = HeatPage(field, picture, zoom, room, Drawer(Scale(*(picture.bounds or (0.0, 0.0))), on.colors))
    return Heat(
        window.text, _text(page, on.colors, on.columns if terminal_of() is not None else None), _cells(page, sheet)
    )


def _text(page: HeatPage, colors: Colors, narrow: int | None) -> str:
    """A map and its legend, which takes several lines where there is less room than ``narrow``."""

    def write(piece: ColoredText) -> str:
        return _colored(piece, colors)

    scale, rest = page.scale(BAR), [ColoredText(f"  {page.size_text}  "), *page.bad_legend()]
    legends = [[*scale, *rest]]
    if narrow is not None and sum(width_of(piece.text) for piece in legends[0]) > narrow:
        first, *others = rest
        legends = [list(scale), [replace(first, text=first.text.strip())], others]
    return "\n".join([*page.text(write), *("".join(map(write, legend)).rstrip() for legend in legends)])


def _colored(piece: ColoredText, colors: Colors) -> str:
    """Text with its escape sequences; without colours it is the text."""
    if colors is Colors.NONE or not (piece.ink or piece.ground):
        return piece.text
    from rich.color import ColorSystem
    from rich.style import Style

    system = {Colors.TRUE: ColorSystem.TRUECOLOR, Colors.MANY: ColorSystem.EIGHT_BIT}.get(colors, ColorSystem.STANDARD)
    style = Style(color=piece.ink or None, bgcolor=piece.ground or None)
    return style.render(piece.text, color_system=system)


def _cells(page: HeatPage, sheet: ValueTable) -> dict[str, Any]:
    """Rows of cells, each with the first index that it covers, how many it covers, and what it shows."""
    picture, lines = page.picture, sheet.lines
    window = picture.window
    down = lines[0] if len(lines) == 2 else range(1)
    across = lines[-1] if lines else range(1)
    shown = np.where(picture.kinds > 0, np.nan, picture.values)
    return {
        "rows": [down[at] for at in window.rows],
        "columns": [across[at] for at in window.columns],
        "cell": [window.rows.step, window.columns.step],
        "values": nested(shown),
        "nan": picture.nan.tolist(),
        "pos_inf": picture.pos_inf.tolist(),
        "neg_inf": picture.neg_inf.tolist(),
        "bounds": None if picture.bounds is None else list(picture.bounds),
    }
