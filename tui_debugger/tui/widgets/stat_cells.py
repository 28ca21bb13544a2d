"""The columns of a tensor's statistics, and what stands in them: the same in every list of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column
from tui_debugger.words.numbers import count, number, percent

if TYPE_CHECKING:
    from tui_debugger.model import TensorStats

COUNTS: Final = (Column("NaN", 5, right=True), Column("Inf", 5, right=True))
ENDS: Final = (Column("min", 10, right=True), Column("max", 10, right=True))
STATISTICS: Final = (*COUNTS, *ENDS, Column("mean", 10, right=True), Column("zero %", 6, right=True))


def count_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """How many NaN and Inf; ``unknown`` stands where nothing is known."""
    if stats is None:
        return _nothing(unknown, len(COUNTS))
    return [Text(count(amount), theme.FINDING) if amount else Text("0", theme.DIM) for amount in (stats.nan, stats.inf)]


def end_cells(stats: TensorStats | None) -> list[Cell]:
    """The least and the greatest finite element."""
    return _nothing(theme.NONE, len(ENDS)) if stats is None else [number(stats.minimum), number(stats.maximum)]


def statistic_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """All of ``STATISTICS``."""
    if stats is None:
        return _nothing(unknown, len(STATISTICS))
    return [*count_cells(stats), *end_cells(stats), number(stats.mean), percent(stats.zero_percentage)]


def _nothing(text: str, cells: int) -> list[Cell]:
    return [Text(text, theme.DIM)] * cells
