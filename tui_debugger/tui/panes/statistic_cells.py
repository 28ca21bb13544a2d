"""The columns of statistics, the same in every list of tensors, and their cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from tui_debugger.config import in_use
from tui_debugger.stats.fields import TENSOR_TABLE, Field, Form
from tui_debugger.text.numbers import count, number, percent
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tui_debugger.model import TensorStats

_WIDTHS: Final = {Form.COUNT: 5, Form.REAL: 10, Form.PERCENT: 6}


def _columns(fields: Sequence[Field]) -> tuple[Column, ...]:
    return tuple(Column(field.on_screen, _WIDTHS[field.form], right=True) for field in fields)


COUNTS: Final = _columns(TENSOR_TABLE[:2])
ENDS: Final = _columns(TENSOR_TABLE[2:4])


def statistic_columns() -> tuple[Column, ...]:
    """Returns the columns that the user chose, or the usual ones."""
    return _columns(in_use().table("tensors"))


def count_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """Returns the numbers of NaN and Inf; ``unknown`` stands where nothing is known."""
    if stats is None:
        return _nothing(unknown, len(COUNTS))
    return [_cell(field, stats) for field in TENSOR_TABLE[:2]]


def end_cells(stats: TensorStats | None) -> list[Cell]:
    """Returns the least and the greatest finite element."""
    return _nothing(theme.NONE, len(ENDS)) if stats is None else [_cell(field, stats) for field in TENSOR_TABLE[2:4]]


def statistic_cells(stats: TensorStats | None, unknown: str = theme.NONE) -> list[Cell]:
    """Returns the cells of ``statistic_columns``."""
    fields = in_use().table("tensors")
    return _nothing(unknown, len(fields)) if stats is None else [_cell(field, stats) for field in fields]


def _cell(field: Field, stats: TensorStats) -> Cell:
    value = field.value(stats)
    if field.form is Form.REAL:
        return number(value)
    if field.form is Form.PERCENT:
        return percent(value or 0.0)
    amount = int(value or 0)
    if not amount:
        return Text("0", theme.DIM)
    return Text(count(amount), theme.FINDING) if field.alarm else count(amount)


def _nothing(text: str, cells: int) -> list[Cell]:
    return [Text(text, theme.DIM)] * cells
