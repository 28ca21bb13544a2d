"""The context of the controllers: the run, the position in it, the panes, the filter of the node list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tui_debugger.graph.search import NodeQuery
from tui_debugger.tui.actions import key_of, methods_of_keys
from tui_debugger.tui.dialogs.prompts import TextPrompt, typed_path
from tui_debugger.tui.work import JobProgress

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from textual.app import App
    from textual.timer import Timer

    from tui_debugger.arrays import Mask
    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.model import TensorKey
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.cells import ResultCounts
    from tui_debugger.tui.panes.hits import HitsPane
    from tui_debugger.tui.panes.nodes import NodesPane
    from tui_debugger.tui.panes.pane import Pane
    from tui_debugger.tui.panes.stack import StackPane
    from tui_debugger.tui.panes.tensors import TensorsPane
    from tui_debugger.tui.panes.watchpoints import WatchpointsPane
    from tui_debugger.tui.work import JobRunner


T = TypeVar("T")
_CHIP_ROOM = 56
"""Terminal cells that a pane needs to show the full name of a watchpoint in its filter line."""


@dataclass
class ScreenState:
    """The position in the run and the last results: controllers change these values, panes are drawn from them.

    Attributes:
        step: None while no step is dumped.
        row: the selected node's row in the node table of the rank; -1 for none.
        query: what restricts the node list.
        watchpoint: id of the selected watchpoint.
        result: everything that checks found in the whole run, whatever step is shown; None before the first check.
        headline: the answer in one line.
        outdated: some hits of ``result`` come from other watchpoints than those in the list now.
        unchecked: number of steps that were not checked.
        stopped: progress text of the last check if it was stopped, else empty.
        touched: a key was pressed, so nothing may move the cursor by itself any more.
        too_large: bytes that a check of this step would read, if it did not start by itself for that reason.
        gone: steps of the rank that were listed, and are no longer in the dump.
        unordered: some step of the rank ran after a step with a larger number.
        overflowed: nodes that overflowed on the device at this step; also 0 where the device does not report overflows.
        pending_tensor: a tensor and its node's row, to go to once the nodes of its rank are loaded.
    """

    rank: int = 0
    step: int | None = None
    row: int = -1
    query: NodeQuery = field(default_factory=NodeQuery)
    watchpoint: int | None = None
    result: CheckResult | None = None
    tally: ResultCounts | None = None
    headline: Headline | None = None
    outdated: bool = False
    unchecked: int = 0
    stopped: str = ""
    touched: bool = False
    too_large: int = 0
    gone: frozenset[int] = frozenset()
    unordered: bool = False
    overflowed: int = 0
    pending_tensor: tuple[TensorKey, int] | None = None


class ShowMessage(Protocol):
    """Shows one line in the footer, until the next key."""

    def __call__(self, text: str, *, bad: bool = False) -> None:
        """``bad`` marks refusals and errors."""


class SetTimer(Protocol):
    """Calls a callback on the event loop after ``delay`` seconds, or (``set_interval``) every ``delay`` seconds."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Returns a timer that can be stopped."""


class CallIn(Protocol):
    """Calls a callback on the event loop after ``seconds``."""

    def __call__(self, seconds: float, callback: Callable[[], None], /) -> TimerHandle:
        """Returns a handle that can cancel the call."""


@dataclass(frozen=True)
class Context:
    """The main screen as a controller sees it.

    Attributes:
        kept: the word for stored steps and tensors: ``dumped``, or ``kept`` for a live training.
        settled: called after much long-lived data was made: see ``app.freeze_objects``.
        call_next: calls a callback after the current message, before the screen is drawn.
        one_pane: tells whether only one pane is on the screen.
    """

    app: App[Any]
    session: Session
    state: ScreenState
    work: JobRunner
    nodes_pane: NodesPane
    stack_pane: StackPane
    watchpoints_pane: WatchpointsPane
    hits_pane: HitsPane
    tensors_pane: TensorsPane
    kept: str
    say: ShowMessage
    show_error: Callable[[Exception], None]
    update_header: Callable[[], None]
    settled: Callable[[], None]
    call_in: CallIn
    call_next: Callable[[Callable[[], None]], None]
    set_timer: SetTimer
    set_interval: SetTimer
    current_pane: Callable[[], str]
    focus_pane: Callable[[str], None]
    one_pane: Callable[[], bool]

    def ask(self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        self.work.run("dialog", lambda _: job(), done, failed)

    def chip_names(self, pane: Pane) -> dict[int, str]:
        """Returns the watchpoints' names for the filter line of a pane: in full where there is room."""
        return self.watchpoint_names(in_full=pane.detail_room >= _CHIP_ROOM)

    def watchpoint_names(self, *, in_full: bool = False) -> dict[int, str]:
        """Returns names by watchpoint id: ``TO #3``, or with ``in_full`` ``TO #3 tensor overflow``."""
        from tui_debugger.text.hits import long_watchpoint_name, watchpoint_name  # not in the first frame

        name = long_watchpoint_name if in_full else watchpoint_name
        return {each.id: name(each) for each in self.session.watchpoints.items()}


class Controller:
    """The base of the controllers: the parts of the main screen that all of them use."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def session(self) -> Session:
        return self._context.session

    @property
    def state(self) -> ScreenState:
        return self._context.state

    @property
    def work(self) -> JobRunner:
        return self._context.work

    def handlers(self) -> dict[str, Callable[[], None]]:
        return methods_of_keys(self)

    def ask_and_write(self, prompt: TextPrompt, write: Callable[[Path], object]) -> None:
        """Asks for a path and writes there, in a worker."""

        def given(text: str) -> None:
            path = typed_path(text)
            self.work.run("save", lambda _: write(path), lambda written: self.say(f"wrote {written}"))

        prompt.ask(self._context.app, given)

    def say(self, text: str, *, bad: bool = False) -> None:
        self._context.say(text, bad=bad)


class NodeFilter(Controller):
    """Changes the query and has the node list show what it keeps."""

    def set_query(self, query: NodeQuery) -> None:
        self.state.query = query
        self.apply_query()
        self._context.update_header()  # names the graphs of the query; footers have the key that ends it

    def search(self, text: str) -> None:
        """Searches the node list for a text; a leading ~ means a regular expression."""
        regex = text.startswith("~")
        self.set_query(replace(self.state.query, text=text[1:] if regex else text, regex=regex))

    def restrict_to_line(self, path: str, line: int) -> None:
        """Keeps only the nodes of a source line; the same line again takes the restriction away."""
        query = self.state.query
        same = query.line == (path, line)
        self.set_query(replace(query, line=None if same else (path, line)))
        if not same:
            self.say(f"nodes of {path.rpartition('/')[2]}:{line}; {key_of('clear_filter')} shows all")

    def act_clear_filter(self) -> None:
        """Shows all nodes again, and in the hit list all graphs if both lists were restricted to the same graphs."""
        if self.state.query.graphs == self._context.hits_pane.filter.graphs:
            self.show_graphs_of_hits(frozenset())
        self.show_all()

    def act_clear_line(self) -> None:
        self._context.stack_pane.clear_search()
        self.set_query(replace(self.state.query, line=None))

    def show_all(self) -> None:
        self._context.nodes_pane.clear_search()
        self.set_query(NodeQuery())

    def show_graphs_of_hits(self, graphs: frozenset[str]) -> None:
        """Shows only the hits of some graphs; an empty set means all graphs."""
        pane = self._context.hits_pane
        if graphs != pane.filter.graphs:
            pane.set_filter(replace(pane.filter, graphs=graphs), self._context.chip_names(pane))

    def apply_query(self) -> None:
        context, session, state = self._context, self.session, self.state
        rank, step, query = state.rank, state.step, state.query
        context.nodes_pane.show_query(query, context.chip_names(context.nodes_pane))

        def work(_: JobProgress) -> tuple[Mask | None, int]:
            rows = session.select(rank, query, step)
            keep = None if bool(rows.all()) else session.tree(rank).keep_mask(rows)
            return keep, int(rows.sum())

        def done(kept: tuple[Mask | None, int]) -> None:
            pane, (keep, count) = context.nodes_pane, kept
            if pane.scopes is not None and (keep is None or len(keep) == len(pane.scopes.row)):
                pane.filter(keep, count, context.state.query, context.watchpoint_names())
                pane.searched()

        context.work.run("filter", work, done, self._bad_query, in_header=False)

    def _bad_query(self, error: Exception) -> None:
        self._context.nodes_pane.search_failed()
        self.say(str(getattr(error, "what", error)), bad=True)

    def act_filter_nodes(self) -> None:
        from tui_debugger.tui.dialogs.filters import FilterScreen

        nodes = self._context.nodes_pane.nodes
        if nodes is None:
            return
        screen = FilterScreen(self.state.query, nodes, self._context.watchpoint_names(in_full=True))
        screen.ask(self._context.app, self.set_query)
