"""The numbers of a tensor as lines that fill the width, without breaking a number from its name."""

from __future__ import annotations

from textual.content import Content

from tui_debugger.session.diagnosis.distribution import Spread
from tui_debugger.tui.theme import ORANGE
from tui_debugger.words.distribution import (
    counts_items,
    counts_of,
    headroom_items,
    moments_items,
    packed,
    percentile_items,
    range_text,
)
from tui_debugger.words.numbers import plural, size

UNLIMITED = 1 << 20
_BAD = frozenset({"NaN", "-Inf", "+Inf"})


def counts_line(spread: Spread, width: int) -> Content:
    """Every element once; NaN and Inf stand out. The shares are left out where there is no room for them."""
    lines = _counts(spread, width)
    if len(lines) > 1:
        lines = _counts(spread, width, shares=False)
    text = "\n".join(lines)
    content = Content(text)
    for name, count in counts_of(spread.stats) if spread.stats is not None else ():
        if count and name in _BAD:
            word = f"{name} {count:,}"
            at = text.index(word)
            content = content.stylize(f"bold {ORANGE}", at, at + len(word))
    return content


def _counts(spread: Spread, width: int, *, shares: bool = True) -> list[str]:
    stats = spread.stats
    if stats is None:
        return ["no statistics are known"]
    return packed(f"{plural(stats.count, 'element')}: ", counts_items(stats, shares=shares), width)


def moments_lines(spread: Spread, width: int) -> list[str]:
    """Smallest, greatest, mean and so on of the finite elements."""
    stats = spread.stats
    if stats is None:
        return []
    items = moments_items(stats)
    one_line = packed("", items, width, "  ")
    return one_line if len(one_line) == 1 else packed("", items, width)


def percentile_lines(spread: Spread, width: int) -> list[str]:
    """The percentiles, or how to get them."""
    if spread.classes is None:
        return []
    found = spread.quantiles
    if found is None:
        nbytes = spread.row.meta.nbytes if spread.row.meta is not None else 0
        return [f"percentiles: t finds them, exactly, reading {size(nbytes)} a few times"]
    if not found.values:
        return ["no percentiles: no element is finite"]
    return packed("exact percentiles: ", percentile_items(found), width, "  ")


def headroom_lines(spread: Spread, width: int) -> list[str]:
    """How far the values are from the limits of their type and of others."""
    if spread.headroom is not None:
        return [line for items in headroom_items(spread.headroom, spread.dtype) for line in packed("", items, width)]
    stats = spread.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return []
    text = range_text(max(abs(stats.minimum), abs(stats.maximum)), spread.dtype)
    return [text] if text else []


def all_lines(spread: Spread, width: int = UNLIMITED) -> list[str]:
    """All numbers."""
    return [
        *_counts(spread, width),
        *moments_lines(spread, width),
        *percentile_lines(spread, width),
        *headroom_lines(spread, width),
    ]
