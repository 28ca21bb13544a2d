"""``tdbg show --heat``: a window of a tensor as a heat map, as wide as the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.cli.show_values import nested
from tui_debugger.model import ProgressFn
from tui_debugger.stats.slicing import default_slice, parse_slice
from tui_debugger.text.heat_map import (
    Colors,
    Drawer,
    HeatPage,
    Room,
    Run,
    Scale,
    colors_named,
    halves,
    heat_table_of,
    is_drawable,
    zooms,
)
from tui_debugger.text.values import Sheet

BAR: Final = 23
INDENT: Final = 2
OTHER_LINES: Final = 8
"""Lines of a terminal that are left for what stands around a map."""
LEAST, MOST = 8, 40
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
    """What the terminal has to offer; colours only when the output goes there."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    system = Console(file=sys.stdout).color_system if sys.stdout.isatty() else None
    colors = colors_named(system, plain="NO_COLOR" in os.environ)
    lines = max(LEAST, min(MOST, size.lines - OTHER_LINES))
    return Canvas(lines, max(20, size.columns - INDENT), colors, progress)


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
    sheet = Sheet(array, window)
    if sheet.empty:
        return Heat(window.text, error="no elements")
    if not is_drawable(array):
        return Heat(window.text, error=f"{array.dtype.name} elements are no numbers: there is no heat map of them")
    field = heat_table_of(sheet)
    room = Room(on.lines - 2, on.columns - field.margin, halves(on.colors))
    zoom = zooms(field.shape, room, folded=field.folded)[0]
    picture = field.picture(zoom.window(field.shape, (0, 0), room), on.progress)
    page = HeatPage(field, picture, zoom, room, Drawer(Scale(*(picture.bounds or (0.0, 0.0))), on.colors))
    return Heat(window.text, _text(page, on.colors), _cells(page, sheet))


def _text(page: HeatPage, colors: Colors) -> str:
    def write(run: Run) -> str:
        return _colored(run, colors)

    legend = [*page.scale(BAR), Run(f"  {page.size_text}  "), *page.bads()]
    return "\n".join([*page.text(write), "".join(map(write, legend))])


def _colored(run: Run, colors: Colors) -> str:
    """Text with its escape sequences; without colours it is the text."""
    if colors is Colors.NONE or not (run.ink or run.ground):
        return run.text
    from rich.color import ColorSystem
    from rich.style import Style

    system = {Colors.TRUE: ColorSystem.TRUECOLOR, Colors.MANY: ColorSystem.EIGHT_BIT}.get(colors, ColorSystem.STANDARD)
    style = Style(color=run.ink or None, bgcolor=run.ground or None)
    return style.render(run.text, color_system=system)


def _cells(page: HeatPage, sheet: Sheet) -> dict[str, Any]:
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
