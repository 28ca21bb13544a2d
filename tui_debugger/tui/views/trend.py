"""Shows tensors over all dumped steps: plots, a table, and a cursor that moves along the steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from textual import on
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from tui_debugger.check.progress import scaled
from tui_debugger.diagnose.trend import (
    MARKS,
    MOST,
    Point,
    PointState,
    Series,
    TrendPlot,
    about,
    full_text,
    groups_for,
    joined,
    name,
    note_groups,
    related,
    rows,
    step_words,
    trend,
    unchecked,
    with_hits,
    worth_marking,
)
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.stats.health import Health
from tui_debugger.text.clean import clean
from tui_debugger.text.notes import notes_text
from tui_debugger.text.phrases import tail
from tui_debugger.text.plot import BLOCKS, BRAILLE
from tui_debugger.text.tensors import place_text
from tui_debugger.tui.actions import SEARCH_VIEW, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.dialogs.prompts import ChoiceScreen
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.trend_plots import COLOURS, COLUMNS, WIDTH, Plots, SeriesRows, TrendTable
from tui_debugger.tui.views.view import View, ViewHost
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.tui.views.view import ViewChanges


ACTIONS: Final[tuple[Action, ...]] = (
    SEARCH_VIEW,
    *view_actions(
        "Through the steps",
        ("next_plot", "m", "More", "Another statistic comes first: norm, NaN and Inf, mean |x|, σ, zeros."),
        ("notes", "", "Notes", "Puts the program's notes (loss, learning rate) first, or last again."),
        ("log", "y", "Logarithmic", "A logarithmic axis, symmetric for values of both signs, and back."),
        ("dots", "", "Dots", "Braille dots, or quarter blocks."),
        ("over('any')", "a", "Add a tensor", "Lays another tensor over these, found by name."),
        ("over('node')", "", "Of this node", "Lays another input, output or parameter of this node over these."),
        ("over('related')", "w", "Other side", "Lays the weight, gradient or optimizer state over it."),
        ("over('rank')", "", "Another rank", "Lays the same tensor of another rank over it."),
        ("remove", "d", "Remove", "Removes the tensor whose table is shown."),
        ("turn", "tab", "Next pane", "The table shows the next tensor."),
        ("bad(1)", "n", "Next", "To the next step with a finding, NaN or Inf."),
        ("bad(-1)", "N", "Previous", "To the bad step before."),
        ("check", "r", "Recheck", "Checks all steps that were not checked with the enabled watchpoints."),
        ("zoom", "z", "Zoom", "The whole room for the plots, or for the table, and back."),
    ),
)
HINTS: Final = (
    ("← →", "steps"),
    ("Enter", "values"),
    ("m", "statistic"),
    ("y", "log"),
    ("a", "add"),
    ("w", "weight/gradient"),
    ("r", "check"),
    ("?", "keys"),
    ("Esc", "back"),
)


Offers = Mapping[TensorKey, str]
"""The tensors that can be added, with their texts."""


def _short(key: TensorKey, *, with_graph: bool = False) -> str:
    """Returns the tensor's name with its last part first: it distinguishes the tensor from others."""
    scope, _, leaf = place_text(key, with_graph=with_graph).rpartition("/")
    return f"{leaf}  {scope}" if scope else leaf


def any_node(session: Session, key: TensorKey, _row: int) -> Offers:
    """Returns the first output of every node of the rank, in execution order."""
    nodes = session.nodes(key.rank)
    rows = np.flatnonzero(nodes.watchable)
    several = len(nodes.graphs) > 1
    offers = {}
    for row in rows[np.argsort(nodes.order[rows], kind="stable")].tolist():
        found = TensorKey(key.rank, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, key.step)
        offers[found] = _short(found, with_graph=several)
    return offers


def same_node(session: Session, key: TensorKey, row: int) -> Offers:
    """Returns the stored inputs, outputs and parameters of the node at a step."""
    rows = session.tensor_rows(key.rank, key.step, row)
    found: dict[TensorKey, str] = {}
    for each in rows:
        if each.index >= 0:
            words = f"{each.role}:{each.slot}"
            found.setdefault(each.key.at_step(key.step), f"{words:<8} {_short(each.key)}")
    return found


def relatives_of(session: Session, key: TensorKey, _row: int) -> Offers:
    """Returns the tensor's weight, gradient and optimizer state."""
    return {tensor: f"{word:<9} {_short(tensor)}" for word, tensor in related(session, key)}


def other_ranks(session: Session, key: TensorKey, _row: int) -> Offers:
    return {
        replace(key, rank=rank): f"rank {rank}"
        for rank in session.ranks()
        if rank != key.rank and session.nodes(rank).find(key.node, key.graph) >= 0
    }


@dataclass(frozen=True, slots=True)
class TensorSwitch:
    """A way to choose another tensor.

    ``offers`` returns the choices for a tensor (its key, the row of its node); ``nothing`` is the message if there are
    none.
    """

    title: str
    offers: Callable[[Session, TensorKey, int], Offers]
    nothing: str = "there is no other one"


KINDS: Final[Mapping[str, TensorSwitch]] = {
    "any": TensorSwitch("Add which tensor?", any_node),
    "node": TensorSwitch("Which tensor of this node?", same_node),
    "related": TensorSwitch("What belongs to it", relatives_of, "no update operator reads this tensor directly"),
    "rank": TensorSwitch("Which rank?", other_ranks, "no other rank has this tensor"),
}
"""By the argument of ``action_over``."""

FIRST_PART: Final = 32
"""Steps that are read before the first plot; each further part has twice as many."""
LARGEST_PART: Final = 4096


@dataclass(frozen=True, slots=True)
class PendingSteps:
    """Some ascending steps of one tensor to be read next; ``done`` of ``total`` steps are read already."""

    key: TensorKey
    steps: Sequence[int]
    done: int
    total: int


class Overlay:
    """One or several tensors, in the order in which they were added.

    Attributes:
        keys: the tensors, at any step.
        current: index of the tensor whose table is shown.
    """

    def __init__(self, steps: Callable[[int], Sequence[int]]) -> None:
        """``steps`` returns the dumped steps of a rank."""
        self._steps = steps
        self.keys: list[TensorKey] = []
        self.current = 0
        self._series: dict[TensorKey, Series] = {}
        self._todo: dict[TensorKey, list[int]] = {}
        self._count = FIRST_PART

    @property
    def shown(self) -> list[Series]:
        return [self._series[key] for key in self.keys if key in self._series]

    @property
    def here(self) -> Series | None:
        """The tensor whose table is shown; None until a step of it was read."""
        return self._series.get(self.keys[self.current]) if self.keys else None

    def series_of(self, key: TensorKey) -> Series | None:
        return self._series.get(key)

    def has(self, key: TensorKey) -> bool:
        return self._find(key) is not None

    def is_complete(self, key: TensorKey) -> bool:
        return key not in self._todo

    @property
    def reading(self) -> TensorKey | None:
        """The first tensor with unread steps; None if there is none."""
        return next((key for key in self.keys if key in self._todo), None)

    def add(self, key: TensorKey) -> None:
        """Adds a tensor (at every step its newest round) and makes it the current one."""
        key = replace(key, round=0)
        self.keys.append(key)
        self.current = len(self.keys) - 1
        steps = sorted(self._steps(key.rank))
        # Steps around the current step are read first; the steps of each part are ascending.
        start = max(bisect_left(steps, key.step) - FIRST_PART // 2, 0)
        stop = start + FIRST_PART
        self._todo[key] = steps[start:stop] + steps[:start] + steps[stop:]
        self._count = FIRST_PART

    def renew(self, rank: int, steps: Iterable[int]) -> None:
        """Marks steps of a rank's tensors as unread."""
        there = set(self._steps(rank)).intersection(steps)
        for key in self.keys:
            if key.rank == rank and there:
                self._todo[key] = sorted(there.union(self._todo.get(key, ())))

    def drop(self, key: TensorKey) -> None:
        self.keys.remove(key)
        self._series.pop(key, None)
        self._todo.pop(key, None)
        self.current = min(self.current, len(self.keys) - 1)

    def turn(self) -> None:
        self.current = (self.current + 1) % len(self.keys)

    def next_part(self) -> PendingSteps | None:
        """Returns the steps to read next; None if everything was read."""
        key = self.reading
        if key is None:
            return None
        todo, total = self._todo[key], len(self._steps(key.rank))
        return PendingSteps(key, todo[: self._count], total - len(todo), max(total, 1))

    def arrived(self, part: PendingSteps, found: Series) -> None:
        """Takes the statistics of a part, unless its tensor was removed meanwhile."""
        if part.key not in self._todo:
            return
        known = self._series.get(part.key)
        self._series[part.key] = joined([known, found]) if known is not None else found
        self._count = min(2 * self._count, LARGEST_PART)
        self._todo[part.key] = self._todo[part.key][len(part.steps) :]
        if not self._todo[part.key]:
            del self._todo[part.key]

    def replace(self, found: Iterable[Series]) -> None:
        """Replaces series by the same series with other marks of hits."""
        for series in found:
            key = self._find(series.key)
            if key is not None:
                self._series[key] = series

    def _find(self, wanted: TensorKey) -> TensorKey | None:
        return next((key for key in self.keys if _tensor(key) == _tensor(wanted)), None)


def _tensor(key: TensorKey) -> tuple[object, ...]:
    """Returns a key without step and round."""
    return (key.rank, key.graph, key.node, key.side, key.slot)


def legend(overlay: Overlay, room: int, *, graphs: bool = False) -> Content:
    """Returns the tensors in order, the current one emphasised; ``graphs`` adds the names of their graphs."""
    ranks = [key.rank for key in overlay.keys]
    parts: list[Content | tuple[str, str] | str] = []
    for number, key in enumerate(overlay.keys):
        series = overlay.series_of(key)
        words = (
            name(series, ranks, with_graph=graphs) if series is not None else clean(place_text(key, with_graph=graphs))
        )
        colour = COLOURS[number].color
        mark = MARKS[number] if len(overlay.keys) > 1 else " "
        style = f"{'bold ' if number == overlay.current else ''}{colour.name if colour else ''}"
        parts += ["\n" if number else "", (f"{mark} {shorten(words, room)}", style)]
    return Content.assemble(*parts)


def extract_of(overlay: Overlay, drawings: Sequence[TrendPlot], under_cursor: str) -> Extract | None:
    """Returns plots and tables with every step; None before a step was read."""
    series = overlay.shown
    if not series:
        return None
    here, ranks = overlay.here, [each.key.rank for each in series]
    graphs = len({each.key.graph for each in series}) > 1
    table = [(name(each, ranks, with_graph=graphs), *row.values()) for each in series for row in rows(each)]
    header = ("tensor", *rows(series[0])[0]) if len(series[0].steps) else ()
    one = f"{name(here, ranks, with_graph=graphs)}  {under_cursor}" if here is not None else ""
    return Extract("trend", full_text(series, drawings), one, header, table)


NOTES_ROOM: Final = 60
"""Cells for the notes on the step under the cursor."""
WIDE: Final = 150
"""Columns from which the table stands beside the plots."""


class TrendView(View):
    """One or several tensors through the steps."""

    OWN_ACTIONS = ACTIONS
    DEFAULT_CSS = f"""
    TrendView {{
        #legend {{ height: auto; max-height: 9; }}
        #facts {{ height: 1; text-wrap: nowrap; text-overflow: ellipsis; color: $text-muted; }}
        #here {{ height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: bold; }}
        #both {{ layout: vertical; height: 1fr; }}
        #plots {{ height: 3fr; }}
        #steps {{ height: 2fr; }}
        &.-wide #both {{ layout: horizontal; }}
        &.-wide #plots {{ width: 1fr; height: 1fr; }}
        &.-wide #steps {{ width: {WIDTH}; height: 1fr; margin-left: 1; }}
        &.-plots #steps, &.-table #plots {{ display: none; }}
        &.-table #steps {{ width: 1fr; margin: 0; }}
    }}
    """
    heading = "Through the steps"
    hints = HINTS

    def __init__(self, host: ViewHost, about: ViewTarget, *, notes_first: bool = False) -> None:
        super().__init__(host, about)
        self._notes_first = notes_first
        self.overlay = Overlay(host.session.steps)
        self._several_graphs = about.key.rank >= 0 and len(host.session.nodes(about.key.rank).graphs) > 1
        self.overlay.add(about.key)
        self.log_axis = False
        self.dots = BRAILLE
        self._first_group = 0
        self._placed = False
        self._catching_up = False

    # -- contents ----------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="legend")
        with Container(id="both"):
            yield Plots()
            yield TrendTable(COLUMNS, empty="nothing was read yet", id="steps")
        yield from plain_lines("here", "facts")

    def on_mount(self) -> None:
        self.table.focus()
        self._read_on()

    def on_resize(self) -> None:
        self.set_class(self.app.size.width >= WIDE, "-wide")
        self._show_lines()

    @property
    def table(self) -> TrendTable:
        return self.query_one(TrendTable)

    @property
    def plots(self) -> Plots:
        return self.query_one(Plots)

    @property
    def step(self) -> int | None:
        point = self.point
        return None if point is None else point[0]

    @property
    def point(self) -> Point | None:
        key = self.table.cursor_key
        return key if isinstance(key, tuple) else None

    def say(self, text: str, *, note: bool = False) -> None:
        """Shows a line; notes replace the facts: a line that comes and goes would draw every plot again."""
        super().say("" if note else text, note=note)
        if note and text:
            self.put_line("facts", clean(text))
        else:
            self._show_facts()

    # -- reading -----------------------------------------------------------------------------------

    def _read_on(self, *, quietly: bool = False) -> None:
        """Reads the next part of the first incomplete tensor, shows it, and goes on."""
        part = self.overlay.next_part()
        if part is None:
            self._catching_up = False
            return
        self._catching_up = quietly
        session = self.session

        def job(progress: ProgressFn) -> Series:
            return trend(session, part.key, part.steps, scaled(progress, part.done, part.total, len(part.steps)))

        def done(found: Series) -> None:
            self.overlay.arrived(part, found)
            self._show()
            self._read_on(quietly=quietly)

        if quietly:
            self.work_quietly(job, done)
        else:
            self.work(f"reading {part.total:,} steps", job, done)

    def failed(self, error: Exception) -> None:
        """Removes a tensor of which nothing could be read, unless it is the only one."""
        super().failed(error)
        key = self.overlay.reading
        if key is not None and self.overlay.series_of(key) is None and len(self.overlay.keys) > 1:
            self._drop(key)

    def take_in(self, changes: ViewChanges) -> None:
        """Reads new steps, unless reading was stopped before; cursor and plots stay."""
        ranks = {key.rank for key in self.overlay.keys}
        if not (changes.results or ranks & changes.ranks or any(rank in ranks for rank, _ in changes.pairs)):
            return
        stopped = self.overlay.reading is not None and not self._catching_up
        for rank in ranks:
            every = rank in changes.ranks
            self.overlay.renew(rank, self.session.steps(rank) if every else changes.steps_of(rank))
        if changes.results:
            self.work_quietly(self._with_hits(), partial(self._followed, stopped=stopped))
        else:
            self._followed(stopped=stopped)

    def _followed(self, found: Sequence[Series] = (), *, stopped: bool) -> None:
        if found:
            self.overlay.replace(found)
            self._show()
        if stopped:
            self._show_facts()
        else:
            self._read_on(quietly=True)

    def _with_hits(self) -> Callable[[ProgressFn], list[Series]]:
        session, shown_now = self.session, tuple(self.overlay.shown)
        return lambda _: [with_hits(session, each) for each in shown_now]

    def _show(self) -> None:
        series = self.overlay.shown
        if not series:
            return
        notes = self.session.run_notes(series[0].key.rank)
        groups = (*groups_for(len(series)), *note_groups(notes))
        if self._notes_first:
            self._notes_first, self._first_group = False, len(groups_for(len(series)))
        first = self._first_group % len(groups)
        shown = [*groups[first:], *groups[:first]]
        self.plots.show_series(series, shown, log=self.log_axis, dots=self.dots, notes=notes)
        here = self.overlay.here
        if here is not None:
            self.table.set_rows(SeriesRows(here))
            if not self._placed:
                self._placed = self.table.move_to_key((self.about.key.step, self.about.key.round))
        self._show_lines()

    def _show_lines(self) -> None:
        content = legend(self.overlay, max(self.size.width - 6, 20), graphs=self._several_graphs)
        self.put_line("legend", content, anew=True)
        self._show_cursor()
        self._show_facts()

    def _show_cursor(self) -> None:
        series, point = self.overlay.here, self.point
        index = series.at(*point) if series is not None and point is not None else -1
        if series is None or point is None or index < 0:
            self.put_line("here", "")
            return
        notes = self.session.notes_at(series.key.rank, point[0])
        self.put_line("here", step_words(series, index, notes_text(notes, NOTES_ROOM)))

    def _show_facts(self) -> None:
        series = self.overlay.here
        if series is None:
            return
        session = self.session
        missing = int((series.health == Health.UNCHECKED).sum())
        words = [*self._recognised(series.key.rank), about(series)]
        if not (self.overlay.is_complete(series.key) or self._catching_up):
            words.append("not all steps are read: r reads on")
        elif missing and session.watchpoints.enabled():
            words.append(f"{missing:,} not checked: r checks them")
        self.put_line("facts", "  ·  ".join(words))

    def _recognised(self, rank: int) -> list[str]:
        """Returns where losses come from that the program did not note."""
        found = [] if self.step is None else self.session.notes_at(rank, self.step)
        return [
            clean(f"{each.name} recognised, not noted by the program: output of {tail(each.node)}")
            for each in found
            if each.recognised
        ]

    @on(VirtualTable.RowHighlighted)
    def _cursor_moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self.plots.move_to(self.step)
        self._show_cursor()

    @on(Plots.Clicked)
    def _pointed(self, event: Plots.Clicked) -> None:
        series = self.overlay.here
        if series is not None and len(series.steps):
            self.table.move_to(int(np.abs(series.steps - event.step).argmin()))

    # -- where it leads ----------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The current tensor at the step under the cursor, with its hit."""
        series, point = self.overlay.here, self.point
        if series is None or point is None:
            return self.about
        key = series.key_at(*point)
        known = self.session.known([(key.rank, key.step)])
        at = known.hits.find(key) if known is not None else -1
        return ViewTarget.of_hit(known.hits[at]) if known is not None and at >= 0 else ViewTarget(key, series.row)

    @on(VirtualTable.RowSelected)
    def _selected(self) -> None:
        series, point = self.overlay.here, self.point
        index = series.at(*point) if series is not None and point is not None else -1
        if series is None or index < 0 or series.state[index] == PointState.ABSENT:
            self.say("it was not dumped at this step", note=True)
        elif series.state[index] == PointState.RECORDED:
            self.say("only statistics were dumped at this step: there are no values to show", note=True)
        else:
            self.host.open("values", self.target_here)

    # -- keys --------------------------------------------------------------------------------------

    def action_next_plot(self) -> None:
        self._first_group += 1
        self._show()

    def action_notes(self) -> None:
        series = self.overlay.shown
        if not series:
            return
        own = len(groups_for(len(series)))
        if not note_groups(self.session.run_notes(series[0].key.rank)):
            self.say("nothing was noted of this run, and no loss was recognised", note=True)
            return
        self._first_group = 0 if self._first_group == own else own
        self._show()

    def action_log(self) -> None:
        self.log_axis = not self.log_axis
        self._show()

    def action_dots(self) -> None:
        self.dots = BLOCKS if self.dots is BRAILLE else BRAILLE
        self._show()

    def action_zoom(self) -> None:
        state = "-plots" if not (self.has_class("-plots") or self.has_class("-table")) else ""
        state = "-table" if self.has_class("-plots") else state
        self.set_class(state == "-plots", "-plots")
        self.set_class(state == "-table", "-table")

    def action_turn(self) -> None:
        self.overlay.turn()
        self._show()

    def action_bad(self, direction: int) -> None:
        series = self.overlay.here
        if series is None:
            return
        bad = np.flatnonzero(worth_marking(series))
        row = self.table.cursor_row
        bad = bad[bad > row] if direction > 0 else bad[bad < row][::-1]
        if len(bad):
            self.table.move_to(int(bad[0]))
        else:
            self.say(f"no bad step {'after' if direction > 0 else 'before'} this one", note=True)

    # -- other tensors -----------------------------------------------------------------------------

    def action_over(self, which: str) -> None:
        kind, target = KINDS[which], self.target_here
        offers = kind.offers(self.session, target.key, target.row)
        new = [key for key in offers if not self.overlay.has(key)]
        if not new:
            self.say(kind.nothing if not offers else "all of these are shown already", note=True)
        elif len(self.overlay.keys) >= MOST:
            self.say(f"{MOST} tensors are as many as can be told apart: d takes one away", note=True)
        elif len(new) == 1:
            self._add(new[0])
        else:
            screen = ChoiceScreen(kind.title, [offers[key] for key in new])
            screen.ask(self.app, lambda index: self._add(new[index]))

    def _add(self, key: TensorKey) -> None:
        self.overlay.add(key)
        self._first_group = 0
        self._show_lines()
        if not self.working:
            self._read_on()

    def action_remove(self) -> None:
        if len(self.overlay.keys) < 2:
            self.say("this is the only tensor", note=True)
        else:
            self._drop(self.overlay.keys[self.overlay.current])
            self._read_on()

    def _drop(self, key: TensorKey) -> None:
        self.overlay.drop(key)
        self._first_group = 0
        self._show()

    # -- checking ----------------------------------------------------------------------------------

    def action_check(self) -> None:
        if self.working:
            return
        if self.overlay.reading is not None:
            self._read_on()
            return
        session = self.session
        if not session.watchpoints.enabled():
            self.say("no watchpoint is enabled: NaN and Inf are marked anyway", note=True)
            return
        missing = sorted(
            {pair for each in self.overlay.shown for pair in unchecked(session, each)}, key=lambda pair: pair[::-1]
        )
        if not missing:
            self.say("all of these steps were checked with these watchpoints", note=True)
            return
        shown_now = tuple(self.overlay.shown)

        def job(progress: ProgressFn) -> list[Series]:
            session.check(missing, progress)
            return [with_hits(session, each) for each in shown_now]

        self.work(f"checking {len(missing):,} steps", job, self._checked)

    def _checked(self, found: list[Series]) -> None:
        self.overlay.replace(found)
        self._show()
        self._read_on()

    def action_cancel(self) -> None:
        """Stops work; after a check, shows the hits found so far."""
        was_working = self.working
        super().action_cancel()
        if was_working and self.overlay.shown and self.overlay.reading is None:
            self.work("reading results", self._with_hits(), self._checked)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        return extract_of(self.overlay, self.plots.drawings, str(self.text_line("here").content))
