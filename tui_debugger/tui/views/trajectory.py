"""The weights over the steps: a row for each weight, with a bar for every step and remarks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from rich.style import Style
from rich.text import Text
from textual import on
from textual.widget import Widget

from tui_debugger.diagnose.trajectory import (
    LEGEND,
    SUMMARY,
    TITLES,
    Trajectory,
    WeightPath,
    bars,
    cells,
    coverage_text,
    doubts,
    headline,
    point_in,
    summary,
    trajectory,
)
from tui_debugger.model import ProgressFn
from tui_debugger.text.tensors import shape_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import RUN_CHANGED, View, ViewChanges
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

_SHOWN: Final = ("weight", "steps", "growth", "update", "remarks", "last norm", "last update", "cosine", "eff. rank")
"""The columns, the most useful first; shape and first norm are shown for the weight under the cursor only."""
_ROOM: Final = 12, 60
"""Fewest and most cells of the bars; in between a fifth of the screen."""
_GROUP = "Weights over the steps"
OWN: tuple[Action, ...] = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        _GROUP,
        ("values", "v", "Values", "Opens the values of the weight."),
        ("remarks_only", "x", "Findings only", "Only weights that something sets apart, or all again."),
        ("sort", "comma", "Sort", "Those that move most first, or in the order of the run again."),
    ),
)


class TrajectoryView(View):
    """Follows all weights over all steps. Enter opens the trend of the weight under the cursor."""

    OWN_ACTIONS = OWN
    DEFAULT_CSS = """
    TrajectoryView {
        #answer { max-height: 4; text-style: bold; }
        #weights { height: 1fr; min-height: 3; }
        #here { max-height: 2; }
        #legend, #covered { color: $text-muted; max-height: 2; }
    }
    """
    heading = "Weights over the steps"
    hints = (
        *(("Enter", "trend"), ("v", "values"), ("x", "remarks only"), (",", "order"), ("/", "search"), ("r", "anew")),
        *(("?", "keys"), ("Esc", "back")),
    )

    found: Trajectory | None = None
    remarks_only = False
    most_first = False
    _placed = False

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="answer")
        yield VirtualTable((), empty="", id="weights")
        yield from plain_lines("here", "legend", "covered")

    @property
    def table(self) -> VirtualTable:
        return self.query_one("#weights", VirtualTable)

    def on_mount(self) -> None:
        self.table.focus()
        self.look_again()

    def look_again(self) -> None:
        session = self.session

        def job(progress: ProgressFn) -> Trajectory:
            return trajectory(session, session.pairs(), progress)

        self.work_anew("following the weights", job, self._show)

    def outdated_by(self, changes: ViewChanges) -> str:
        return RUN_CHANGED if changes.anywhere else ""

    # -- showing -----------------------------------------------------------------------------------

    def _show(self, found: Trajectory) -> None:
        self.found = found
        self.show_line("answer", headline(found))
        self.show_line(
            "covered", "\n".join([coverage_text(found), *(f"cannot judge: {each}" for each in doubts(found))])
        )
        self.show_line("legend", LEGEND if found.weights else "")
        self._show_rows()
        if not self._placed:
            self._placed = True
            self.table.move_to_key(next((at for at, each in enumerate(found.weights) if self._is_about(each)), 0))
        self._show_here()

    def _is_about(self, weight: WeightPath) -> bool:
        key = self.about.key
        return (weight.key.rank, weight.key.graph, weight.key.node) == (key.rank, key.graph, key.node)

    def on_resize(self) -> None:
        if self.found is not None:
            self._show_rows()

    def _show_rows(self) -> None:
        found = self.found
        if found is None:
            return
        room = min(max(self.size.width // 5, _ROOM[0]), _ROOM[1], max(len(found.steps), len("steps")))
        places = [at for at in range(len(found.weights)) if not self.remarks_only or found.remarks_of(at)]
        if self.most_first:
            places.sort(key=lambda at: -_or_zero(found.weights[at].usual))
        self.table.set_columns(_columns(room))
        self.table.set_rows(ListRows([self._cells(found, at, room) for at in places], places))

    def _cells(self, found: Trajectory, at: int, room: int) -> tuple[Text, ...]:
        row = dict(zip(TITLES, cells(found, at, room), strict=True))
        style = theme.FINDING if found.remarks_of(at) else theme.NORMAL
        texts = {title: Text(row[title]) for title in _SHOWN}
        texts["steps"] = _coloured(bars(found, found.weights[at], room))
        texts["remarks"] = Text(row["remarks"], style)
        return tuple(texts[title] for title in _SHOWN)

    def _show_here(self) -> None:
        found, weight = self.found, self.weight
        if found is None or weight is None:
            self.show_line("here", "")
            return
        at = int(str(self.table.cursor_key))
        row = dict(zip(TITLES, cells(found, at, 1), strict=True))
        words = [f"{row['weight']}  {row['shape']}  norm {row['first norm']} to {row['last norm']}"]
        words += [f"update {row['update']}, last {row['last update']}", f"cosine {row['cosine']}"]
        words += [f"effective rank {row['eff. rank']}"] if weight.meta and len(weight.meta.shape) > 1 else []
        self.show_line("here", "  ·  ".join([*words, *filter(None, [row["remarks"]])]))

    @property
    def weight(self) -> WeightPath | None:
        at = self.table.cursor_key
        return self.found.weights[at] if self.found is not None and isinstance(at, int) else None

    @property
    def target_here(self) -> ViewTarget:
        """The weight under the cursor, at the view's step if it was dumped then."""
        weight = self.weight
        if weight is None:
            return self.about
        return ViewTarget(point_in(weight, self.about.key.step), weight.row)

    @on(VirtualTable.RowHighlighted)
    def _moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self._show_here()

    @on(VirtualTable.RowSelected)
    def _chosen(self) -> None:
        self._open("trend")

    def action_values(self) -> None:
        self._open("values")

    def _open(self, view: str) -> None:
        if self.weight is None:
            self.say("no weight under the cursor", note=True)
            return
        self.host.open(view, self.target_here)

    def action_remarks_only(self) -> None:
        self.remarks_only = not self.remarks_only
        self._show_rows()
        self._show_here()
        self.say("only weights that something sets apart: x shows all" if self.remarks_only else "", note=True)

    def action_sort(self) -> None:
        self.most_first = not self.most_first
        self._show_rows()
        self.say("those that move most first: , takes the order of the run" if self.most_first else "", note=True)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        found = self.found
        if found is None:
            return None
        every = range(len(found.weights))
        lines = [headline(found), "", "\t".join(TITLES)]
        lines += ["\t".join(cells(found, at, _ROOM[1])) for at in every]
        rows = []
        for at in every:
            row = summary(found, at)
            for title in ("shape", "effective_rank_of"):
                row[title] = shape_text(row[title]) if row[title] is not None else None
            rows.append((*list(row.values())[:-1], "; ".join(row["remarks"])))
        return Extract(
            stem="trajectory",
            text="\n".join([*lines, LEGEND, coverage_text(found)]),
            one=found.name(self.weight) if self.weight is not None else headline(found),
            header=SUMMARY,
            rows=rows,
        )


def _columns(room: int) -> tuple[TableColumn, ...]:
    widths = {"growth": 7, "update": 8, "last norm": 9, "last update": 11, "cosine": 6, "eff. rank": 11}
    found = []
    for title in _SHOWN:
        if title == "weight":
            found.append(TableColumn(title, 20, elastic=3, frozen=True))
        elif title == "steps":
            found.append(TableColumn(title, room))
        elif title == "remarks":
            found.append(TableColumn(title, 20, elastic=2))
        else:
            found.append(TableColumn(title, widths[title], right=title != "eff. rank"))
    return tuple(found)


def _coloured(text: str) -> Text:
    styles: dict[str, Style] = {"!": theme.FINDING, "?": theme.DOUBT, "·": theme.DOUBT}
    found = Text()
    for style, run in groupby(text, lambda each: styles.get(each, theme.WATCHED)):
        found.append("".join(run), style)
    return found


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
