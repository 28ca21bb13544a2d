"""Steps across the screen: how wide their columns are, and what stands above them."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.words.steps import step_text


def span_text(steps: Sequence[int]) -> str:
    """``3``, ``3–8``: the steps of one column."""
    first, last = step_text(steps[0]), step_text(steps[-1])
    return first if first == last else f"{first}–{last}"


def column_width(labels: Sequence[str], room: int) -> int:
    """Cells for each column: room for its label where there is, else 2 or 1."""
    widest = max(map(len, labels), default=1) + 1
    return next((width for width in (widest, 2) if len(labels) * width <= room), 1)


def header(labels: Sequence[str], width: int, room: int) -> str:
    """Labels above columns of ``width`` cells, each beginning at its column; those without room are left out."""
    line = ""
    for number, label in enumerate(labels):
        start = number * width
        if (not line or start > len(line)) and start + len(label) <= room:
            line = line.ljust(start) + label
    return line
