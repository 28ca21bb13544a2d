"""Pane 5: the tensors of the selected node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.text import Text
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import round_text, shape_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane
from tui_debugger.tui.widgets.text import Cell, ScopedName
from tui_debugger.tui.widgets.virtual_table import LazyRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import TensorStats
    from tui_debugger.session import TensorRow


def _columns(*, rounds: bool, overflows: bool, steps: bool) -> tuple[TableColumn, ...]:
    # Imported here, because the first frame does without the table of statistics.
    from tui_debugger.tui.cells import statistic_columns

    return (
        TableColumn("", 2 if overflows else 1, frozen=True, searched=False),
        TableColumn("io", 5, frozen=True),
        TableColumn("slot", 6 if rounds else 4, right=True, frozen=True),
        TableColumn("shape", 9, elastic=1, searched=False),
        TableColumn("dtype", 8),
        *(replace(column, searched=False) for column in statistic_columns()),
        *((TableColumn("step", 4, right=True, searched=False),) if steps else ()),
        TableColumn("from", 12, elastic=2),
    )


class TensorsPane(Pane):
    """Inputs, outputs and parameters of a node, with statistics."""

    PANE = "tensors"

    @dataclass
    class TensorChosen(Message):
        """Asks to show the values of a tensor."""

        row: TensorRow

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable((), empty="no node selected", id="tensor-table")
        self._rows: tuple[TensorRow, ...] = ()
        self._shown: tuple[TensorRow, ...] = ()
        self._node_name = self._empty = ""
        self._measured = False
        self._wide: tuple[bool, bool, bool] | None = None
        """Whether there is room for rounds, for overflows, and a column of steps; None before there are columns."""
        self.absent = "not dumped"
        self.recorded_in = ""
        """The name of the file with statistics without values; empty if not known."""

    def show(self, name: str, rows: tuple[TensorRow, ...], *, measured: bool, empty: str) -> None:
        self._node_name, self._rows, self._measured, self._empty = name, rows, measured, empty
        self.refresh_rows()

    def refresh_rows(self) -> None:
        from tui_debugger.tui.cells import statistic_cells  # see _columns

        pattern = self.pattern
        if self._empty:
            self.table.set_empty("no tensor matches" if self._rows else self._empty)
        self._shown = tuple(row for row in self._rows if pattern is None or pattern.test(_search_text(row)))
        rounds, overflows = any(row.key.round for row in self._rows), any(row.overflow for row in self._rows)
        steps = len({row.key.step for row in self._rows}) > 1
        if (rounds, overflows, steps) != self._wide:
            self._wide = rounds, overflows, steps
            self.table.set_columns(_columns(rounds=rounds, overflows=overflows, steps=steps))
        rows = LazyRows(
            self._shown,
            lambda row: self._cells(row, statistic_cells),
            lambda row: (row.role, row.slot, row.key.node, row.key.round),
            lambda row: (row, self._measured, self.absent),
        )
        self.table.set_rows(rows)
        self.set_count(f"· {self._node_name}" if self._node_name else "")
        self.show_row()

    @property
    def rows(self) -> tuple[TensorRow, ...]:
        return self._rows

    @property
    def rows_shown(self) -> tuple[TensorRow, ...]:
        return self._shown

    @property
    def current(self) -> TensorRow | None:
        return self._shown[self.table.cursor_row] if self.table.cursor_row < len(self._shown) else None

    def move_to_slot(self, role: str, slot: int, round: int = 0) -> bool:  # noqa: A002 - see TensorKey
        """Moves the cursor to a tensor (``round`` 0: the newest); False if it is not in the list."""
        for place, row in enumerate(self._shown):
            if (row.role, row.slot) == (role, slot) and round in (0, row.key.round):
                self.table.move_to(place)
                return True
        return False

    def _cells(self, row: TensorRow, statistics: Callable[[TensorStats | None, str], list[Cell]]) -> Sequence[Cell]:
        mark = Text(theme.HIT_GLYPH if row.hit else " ", theme.FINDING)
        if row.overflow:
            mark.append(theme.OVERFLOW_GLYPH)
        name = Text(f"{row.slot}{round_text(row.key.round)}", theme.DIM if row.earlier else theme.NORMAL)
        head: list[Cell] = [mark, Text(row.role, theme.DIM if row.earlier else theme.STRONG), name]
        if row.error:
            return [*head, Text(f"{row.error} (step {step_text(row.key.step)})", theme.DOUBT)]
        if row.index < 0:
            return [*head, Text(f"{self.absent}{'  ' + row.origin_text if row.origin_text else ''}", theme.DIM)]
        shape = shape_text(row.meta.shape) if row.meta is not None else ""
        dtype = clean(row.meta.dtype) if row.meta is not None else ""
        values = statistics(row.stats, theme.NONE if self._measured else "…")
        step = [step_text(row.key.step)] if self._wide is not None and self._wide[2] else []
        return [*head, shape, dtype, *values, *step, _source(row)]

    def show_row(self) -> None:
        row = self.current
        if row is None:
            self.set_detail("")
            return
        overflow = f"{theme.OVERFLOW_GLYPH} {row.overflow}" if row.overflow else ""
        words = [
            overflow,
            row.origin_text and f"from {row.origin_text}",
            "? may belong to another node" if row.uncertain else "",
        ]
        if row.rounds:
            words.insert(0, f"{round_text(row.key.round, row.rounds)} in step {step_text(row.key.step)}")
        words.append(clean(row.placement))
        if row.remote:
            words.append("Enter fetches the values")
        elif row.recorded:
            where = f" in {self.recorded_in}" if self.recorded_in else ""
            words.append(f"only statistics were recorded{where}, no values")
        words += [row.remark, row.error]
        self.set_detail(" · ".join(word for word in words if word))

    def on_virtual_table_row_selected(self) -> None:
        row = self.current
        if row is not None:
            self.post_message(self.TensorChosen(row))


def _source(row: TensorRow) -> ScopedName:
    text = Text(no_wrap=True)
    if row.uncertain:
        text.append("? ", theme.DOUBT)
    if row.remark:
        text.append("! ", theme.DOUBT)
    if row.recorded and not row.remote:
        text.append("recorded ", theme.DIM)
    scope, _, name = row.origin_text.rpartition("/")
    return ScopedName(text.append(clean(name), theme.NORMAL), scope, theme.DIM)


def _search_text(row: TensorRow) -> str:
    dtype = row.meta.dtype if row.meta is not None else ""
    return f"{row.role} {row.slot} {dtype} {row.key.node} {row.origin_text}"
