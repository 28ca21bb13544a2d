"""The heat map of two runs: nodes down, steps across, error divided by the expected error in colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
from textual import events, on
from textual.widget import Widget

from tui_debugger.diagnose.runs.results import RunsReport, StepPlace
from tui_debugger.diagnose.runs.text import times_text
from tui_debugger.diagnose.runs.tree import TimesMap, pair_text, steps_of
from tui_debugger.text.clean import clean
from tui_debugger.text.heat_map import HeatTable
from tui_debugger.text.numbers import plural
from tui_debugger.tui.actions import FINE, MOVES, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import Extract
from tui_debugger.tui.values.heat_map import HeatMap, legend_of
from tui_debugger.tui.views.view import View
from tui_debugger.tui.widgets.text import shorten

if TYPE_CHECKING:
    from tui_debugger.tui.views.registry import ViewTarget
    from tui_debugger.tui.views.view import ViewHost

GROUP: Final = "Heat map of two runs"
ACTIONS: Final[tuple[Action, ...]] = (
    *view_actions(
        GROUP,
        *(row for row in MOVES if row[0] not in {"page(0,-1)", "page(0,1)"}),
        ("zoom(1)", "+ =", "More detail", "Larger cells."),
        ("zoom(-1)", "-", "Less detail", "Smaller cells."),
        ("strongest(1)", "n", "Next", "To the next node and step with more error than is expected."),
        ("strongest(-1)", "N", "Previous", "To the one before."),
        ("rank(-1)", "<", "Previous rank", "One compared rank back."),
        ("rank(1)", ">", "Next rank", "One compared rank on."),
        FINE,
        ("choose", "enter", "Open", "Back to both trees, to this node and step."),
    ),
)
EXPECTED: Final = 3.0
"""Error divided by the expected error from which ``n`` stops at a cell: see ``diagnose.runs.judge.INTRODUCED``."""


class RunsMapView(View):
    """All steps of two runs at once."""

    OWN_ACTIONS = ACTIONS
    DEFAULT_CSS = """
    RunsMapView {
        #where { height: 1; text-wrap: nowrap; text-overflow: ellipsis; color: $text-muted; }
        #map { height: 1fr; }
        #cell { height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: bold; }
        #legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    heading = "Two runs: error ÷ expected"
    hints = (
        *(("Enter", "go there"), ("n", "next"), ("+ -", "zoom"), ("< >", "rank")),
        *(("?", "keys"), ("Esc", "back")),
    )

    def __init__(  # noqa: PLR0917 - what a view is opened with, and where its cursor starts
        self,
        host: ViewHost,
        about: ViewTarget,
        report: RunsReport,
        place: StepPlace,
        node: int,
        chosen: Callable[[StepPlace, int], None],
    ) -> None:
        """``chosen`` gets the step and the node (a row of the first run) that Enter takes."""
        super().__init__(host, about)
        self.report = report
        self.times: TimesMap | None = None
        self._place = place
        self._node = node
        self._chosen = chosen

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="where")
        yield HeatMap(self.work)
        yield from plain_lines("cell", "legend")

    def on_mount(self) -> None:
        self.map.focus()
        self._load(self._place[:2])

    @property
    def map(self) -> HeatMap:
        return self.query_one(HeatMap)

    def take_in(self, changes: object) -> None:
        """Ignores changes of the run: the comparison stays as it is."""

    def _load(self, ranks: tuple[int, int]) -> None:
        report = self.report
        self.work("collecting", lambda _: TimesMap.of(report, ranks), self._show)

    def _show(self, times: TimesMap) -> None:
        self.times = times
        levels = np.nan_to_num(times.levels, nan=0.0, posinf=np.inf)
        width = max(min(self.size.width // 3, 40), 12)
        if not levels.size:
            self.show_line("cell", "no node was compared")
            return
        row = times.nodes.index(self._node) if self._node in times.nodes else 0
        column = next((at for at, place in enumerate(times.places) if place.step_a == self._place.step_a), 0)
        table = HeatTable(
            lambda rows, columns: levels[rows.start : rows.stop, columns.start : columns.stop],
            (len(times.nodes), len(times.places)),
            row_name=lambda at: shorten(times.names[at], width).ljust(width),
            column_name=lambda at: str(times.places[at].step_a),
        )
        self.map.set_table(table, (row, column))
        rank = f"{pair_text('rank', *times.places[0][:2])}  ·  " if len(steps_of(self.report)) > 1 else ""
        size = f"{plural(len(times.nodes), 'node')} down, {plural(len(times.places), 'step')} across"
        self.show_line("where", f"{rank}{size}  ·  colours are powers of ten above what is expected")
        self._show_cell()

    @on(HeatMap.CursorMoved)
    def _moved(self, event: HeatMap.CursorMoved) -> None:
        event.stop()
        self._show_cell()

    def on_resize(self, _: events.Resize) -> None:
        self._show_cell()

    @property
    def here(self) -> tuple[int, int] | None:
        """Node and step (as indices) under the cursor; in a cell of several, those with the largest error."""
        times, cell = self.times, self.map.cell
        if times is None or cell is None or not times.times.size:
            return None
        rows, columns = cell
        if self.map.element[0] in rows and self.map.element[1] in columns and len(rows) == len(columns) == 1:
            return self.map.element
        part = np.nan_to_num(times.times[rows.start : rows.stop, columns.start : columns.stop], nan=-1.0)
        down, across = np.unravel_index(int(np.argmax(part)), part.shape)
        return rows.start + int(down), columns.start + int(across)

    def _show_cell(self) -> None:
        times, here, cell = self.times, self.here, self.map.cell
        if times is None or here is None or cell is None:
            return
        many = len(cell[0]) * len(cell[1])
        worst = f"worst of {many}: " if many > 1 else ""
        value, step = float(times.times[here]), times.places[here[1]].step_a
        how = "not compared" if np.isnan(value) else f"error ÷ expected {times_text(value)}"
        head = f"{worst}step {step}  {how}  "
        self.show_line("cell", clean(head) + shorten(times.names[here[0]], max(self.size.width - len(head) - 4, 12)))
        self.show_line("legend", legend_of(self.map))

    # -- keys ----------------------------------------------------------------------------------------

    def action_move(self, rows: int, columns: int) -> None:
        self.map.move_by(rows, columns)

    def action_page(self, rows: int, columns: int) -> None:
        self.map.page(rows, columns)

    def action_to_end(self, axis: int, last: bool) -> None:
        self.map.to_end(axis, last)

    def action_zoom(self, by: int) -> None:
        self.map.zoom_by(by)

    def action_fine(self) -> None:
        self.map.toggle_fine()

    @on(HeatMap.Chosen)
    def _zoomed_in(self, event: HeatMap.Chosen) -> None:
        event.stop()

    def action_strongest(self, by: int) -> None:
        times, here = self.times, self.here
        if times is None or here is None:
            return
        found = [(int(column), int(row)) for column, row in np.argwhere((times.times > EXPECTED).T)]
        if not found:
            self.say("nothing is above what is expected", note=True)
            return
        at = (here[1], here[0])
        rest = [each for each in found if (each > at if by > 0 else each < at)]
        column, row = (rest or found)[0 if by > 0 else -1]
        self.map.go_to(row, column)

    def action_rank(self, by: int) -> None:
        ranks = sorted(steps_of(self.report))
        if len(ranks) < 2 or self.times is None or not self.times.places:
            self.say("one rank only is compared", note=True)
            return
        now = self.times.places[0][:2]
        self._load(ranks[(ranks.index(now) + by) % len(ranks)])

    def action_choose(self) -> None:
        times, here = self.times, self.here
        if times is not None and here is not None:
            place, node = times.places[here[1]], times.nodes[here[0]]
            self.dismiss(None)
            self._chosen(place, node)

    def extract(self) -> Extract | None:
        times, here = self.times, self.here
        if times is None or here is None:
            return None
        header = ("node", *(f"step {place.step_a}" for place in times.places))
        rows = [(name, *values) for name, values in zip(times.names, times.times.tolist(), strict=True)]
        one = times.cell_text(*here)
        text = "\n".join(times.cell_text(row, column) for row, column in np.argwhere(times.times > EXPECTED).tolist())
        return Extract("tdbg-diff-map", clean(one) + "\n" + text, clean(one), header, rows, array=lambda: times.times)
