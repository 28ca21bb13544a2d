"""Bars of blocks and the axis below them, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tui_debugger.analysis.spread.bins import Bin
from tui_debugger.words.drawing.axis import labels
from tui_debugger.words.numbers import number
from tui_debugger.words.tensors import BARS

_GAP = 2
"""Cells between two labels of the axis."""
_WIDEST = 12
"""Cells of a bar, at most: two bars of a third of the screen each say less than two slim ones."""


def bar_width(bins: int, room: int) -> int:
    """Cells of a bar with so many bins in so many cells."""
    return max(1, min(_WIDEST, room // max(bins, 1)))


def bar_rows(counts: Sequence[int], height: int, cells: int, *, top: int, log: bool) -> list[str]:
    """The bars line by line, the uppermost line first.

    Args:
        counts: elements of each bin.
        height: lines.
        cells: width of a bar; from 3 on, one of them is the gap to the next bar.
        top: the count of a bar of full height.
        log: the height is that of the logarithm of the count.
    """
    eighths = [_eighths(count, height, top, log) for count in counts]
    gap = " " if cells > 2 else ""
    lines = []
    for line in range(height - 1, -1, -1):
        glyphs = [_glyph(each - 8 * line) for each in eighths]
        lines.append("".join(glyph * (cells - len(gap)) + gap for glyph in glyphs))
    return lines


def _eighths(count: int, height: int, top: int, log: bool) -> int:
    """Height of a bar in eighths of a line; something is never nothing."""
    if not count or not top:
        return 0
    part = math.log1p(count) / math.log1p(top) if log else count / top
    return max(1, round(8 * height * part))


def _glyph(eighths: int) -> str:
    return " " if eighths <= 0 else BARS[min(eighths, 8) - 1]


def height_label(line: int, height: int, top: int, *, log: bool) -> str:
    """What the count axis says beside a line: the greatest count above, the half (or its logarithm's) in the middle."""
    if line == 0:
        return f"{top:,}" if top < 1e6 else number(float(top))
    if height > 4 and line == height // 2:
        part = (height - line) / height
        value = math.expm1(part * math.log1p(top)) if log else part * top
        return number(float(f"{value:.3g}"))
    return ""


def axis_line(bins: int, cells: int, cursor: int, ticks: Sequence[int]) -> str:
    """The line below the bars: a tick above each label, and the cursor."""
    line = ["─"] * (bins * cells)
    for tick in ticks:
        line[tick] = "┬"
    if 0 <= cursor < bins:
        middle = cursor * cells + max(cells - 1, 0) // 2
        line[middle] = "▲"
    return "".join(line)


def axis_labels(bins: Sequence[Bin], cells: int, room: int) -> tuple[str, list[int]]:
    """The labels below the axis, and where their ticks are: lower edges, as many as fit, and 0 before all others."""
    taken: list[tuple[int, int, str]] = []
    texts = labels([each.low for each in bins])
    for index in _by_worth(bins):
        start = index * cells
        text = texts[index]
        end = start + len(text)
        if end <= room and all(end + _GAP <= other or start >= stop + _GAP for other, stop, _ in taken):
            taken.append((start, end, text))
    line = ""
    for start, _, text in sorted(taken):
        line = line.ljust(start) + text
    return line, sorted(start for start, _, _ in taken)


def _by_worth(bins: Sequence[Bin]) -> Iterator[int]:
    """Zero first, then the first bin, then all from the left: what comes later fills the gaps."""
    zero = next((i for i, each in enumerate(bins) if each.low == 0), None)
    if zero is not None:
        yield zero
    yield from (i for i in range(len(bins)) if i != zero)
