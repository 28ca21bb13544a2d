"""The history of the run: which graph ran at which step, and what was missing or odd in the dump."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from tui_debugger.model import GraphRun
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import round_text
from tui_debugger.tui.dialogs.modal import Line, Modal
from tui_debugger.tui.dialogs.prompts import ChoiceScreen
from tui_debugger.tui.theme import DIM, DOUBT, STRONG
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable


class GraphRunRows:
    """Runs as rows on demand: a history of a long training has hundreds of thousands."""

    def __init__(
        self, runs: Sequence[GraphRun], current: int, closed: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        """``current`` is the step on the screen; (step, root graph) of ``closed`` cannot be listed."""
        self.runs = runs
        self._current = current
        self._closed = closed
        self._row = {(run.step, run.root_graph, run.round): i for i, run in enumerate(runs)}

    @property
    def row_count(self) -> int:
        """Number of runs."""
        return len(self.runs)

    def cells(self, index: int) -> tuple[Cell, Cell, Cell, Cell]:
        """Returns mark, step, data, graph."""
        run = self.runs[index]
        here = run.step == self._current
        style = STRONG if here else "" if run.has_data else DIM
        closed = (run.step, run.root_graph) in self._closed
        data = "? unreadable" if closed else "● dumped" if run.has_data else "○ no data"
        step = f"{run.step}{round_text(run.round)}"
        return Text("▶" if here else " ", STRONG), Text(step, style), Text(data, style), Text(run.graph, style)

    def key(self, index: int) -> tuple[int, int, int]:
        """Returns step, root graph and round."""
        run = self.runs[index]
        return run.step, run.root_graph, run.round

    def find(self, key: object) -> int:
        """Returns the row of a (step, root graph, round), or -1."""
        return self._row.get(key, -1) if isinstance(key, tuple) else -1


class HistoryScreen(Modal[GraphRun]):
    """Lists runs; Enter goes to the step of one that has data."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "data_only", show=False),
        Binding("f", "graph", show=False),
        Binding("backspace", "clear", show=False),
    ]
    heading = "Run history"
    hints = (
        ("Enter", "go to step"),
        ("d", "with data only"),
        ("f", "graph"),
        ("Backspace", "all"),
        ("Esc", "back"),
    )

    def __init__(
        self, runs: Sequence[GraphRun], current_step: int, closed: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        """Shows runs in the order given; the cursor starts at the current step; ``closed`` ones cannot be listed."""
        super().__init__()
        self.runs = runs
        self.closed = closed
        self.current_step = current_step
        self.unordered = any(later.step < earlier.step for earlier, later in pairwise(runs))
        self.data_only = False
        self.graph: str | None = None

    def body(self) -> Iterable[Widget]:
        """Lays out the summary and the runs."""
        yield Line(id="shown")
        yield VirtualTable(
            (Column("", 1), Column("step", 10, right=True), Column("data", 12), Column("graph", 16, elastic=1)),
            empty="no run matches",
            id="runs",
        )

    def on_mount(self) -> None:
        """The cursor starts at the current step, else at the step nearest to it."""
        self._show()
        table = self.query_one(VirtualTable)
        table.focus()
        if self.runs:
            at = min(range(len(self.runs)), key=lambda number: abs(self.runs[number].step - self.current_step))
            self.call_after_refresh(table.move_to, at)

    def _show(self) -> None:
        runs = self.runs
        if self.data_only or self.graph is not None:
            runs = [
                run
                for run in runs
                if (run.has_data or not self.data_only) and (self.graph is None or run.graph == self.graph)
            ]
        self.query_one(VirtualTable).set_rows(GraphRunRows(runs, self.current_step, self.closed))
        parts = [f"{len(runs)} of {len(self.runs)} runs"]
        parts += ["in the order in which they ran"] if self.unordered else []
        parts += ["with data only"] if self.data_only else []
        parts += [f"graph {clean(self.graph)}"] if self.graph is not None else []
        self.query_one("#shown", Line).show(", ".join(parts))
        self.say("")

    def action_data_only(self) -> None:
        """Hides or shows runs without data."""
        self.data_only = not self.data_only
        self._show()

    def action_clear(self) -> None:
        """Shows every run again."""
        self.data_only, self.graph = False, None
        self._show()

    def action_graph(self) -> None:
        """Chooses one graph, or all."""
        graphs = sorted({run.graph for run in self.runs})
        current = graphs.index(self.graph) + 1 if self.graph in graphs else 0

        def chosen(index: int | None) -> None:
            if index is not None:
                self.graph = graphs[index - 1] if index else None
                self._show()

        self.app.push_screen(ChoiceScreen("Runs of which graph?", ["all graphs", *graphs], current), chosen)

    @on(VirtualTable.RowSelected)
    def _go(self, event: VirtualTable.RowSelected) -> None:
        event.stop()
        rows = event.table.rows
        run = rows.runs[event.row] if isinstance(rows, GraphRunRows) else None
        if run is not None and run.has_data:
            self.dismiss(run)
        elif run is not None:
            self.say(f"nothing was dumped of {run.graph} at step {run.step}")


class NoticesScreen(Modal[None]):
    """A scrollable list of sentences."""

    FULL = True
    hints = (("Esc", "back"), ("↑ ↓", "scroll"))

    def __init__(self, notices: Sequence[str]) -> None:
        super().__init__()
        self.notices = notices
        self.heading = f"Notices ({len(notices)})" if notices else "Notices"

    def body(self) -> Iterable[Widget]:
        """Lays out the list."""
        yield VirtualTable(
            (Column("", 1), Column("", 10, elastic=1)),
            header=False,
            empty="nothing to report: everything that was looked for is there",
        )

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VirtualTable).focus()

    def on_resize(self) -> None:
        """Sentences are wrapped to the new width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        table = self.query_one(VirtualTable)
        rows: list[tuple[Cell, Cell]] = []
        for notice in self.notices:
            lines = textwrap.wrap(clean(notice), max(20, table.size.width - 6)) or [""]
            rows += [(Text("!" if i == 0 else " ", DOUBT), line) for i, line in enumerate(lines)]
        table.set_rows(ListRows(rows), keep=False)
