"""The context of the controllers: the run, the position in it, the panes, the filter of the node list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tui_debugger.graph.search import NodeQuery
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
"""Cells of a pane that the full name of a watchpoint takes with what stands beside it."""


@dataclass
class ScreenState:
    """The position in the run and the last results: values that controllers change and panes are drawn from.

    Attributes:
        rank, step: where we are; step None while nothing is dumped.
        row: selected node, -1 for none.
        query: what restricts the node list.
        watchpoint: id of the selected watchpoint.
        result: everything that checks found in the run; None when nothing was checked. A step is a filter over it.
        tally: what there is to count in it.
        headline: the answer in one line.
        outdated: whether some of it was found by other watchpoints than those of the list.
        unchecked: steps of the run that were not checked.
        stopped: how far the last check came, when it was stopped; empty when it was not.
        touched: a key was pressed: nothing moves the cursor by itself any more.
        too_large: bytes that a check of this step would read, when it did not start by itself.
        unordered: whether some run of the rank ran after one of a later step.
        overflowed: nodes of the step that overflowed on the device; 0 also where that would not be known.
        pending_tensor: a tensor, with its node's row, to go to as soon as its rank's nodes are there.
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
    unordered: bool = False
    overflowed: int = 0
    pending_tensor: tuple[TensorKey, int] | None = None


class ShowMessage(Protocol):
    """Shows one line in the footer, until the next key."""

    def __call__(self, text: str, *, bad: bool = False) -> None:
        """``bad`` lines are refusals and errors."""


class SetTimer(Protocol):
    """Calls something on the event loop after so many seconds, or every so many seconds."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Returns the timer, which can be stopped."""


class CallIn(Protocol):
    """Calls something on the event loop after so many seconds."""

    def __call__(self, seconds: float, callback: Callable[[], None], /) -> TimerHandle:
        """Returns what can be cancelled."""


@dataclass(frozen=True)
class Context:
    """The main screen as a controller sees it.

    Attributes:
        app: where dialogs and views are opened.
        session: the run.
        state: the position in it.
        work: runs what takes time.
        kept: what became of the steps and tensors that are there: ``dumped`` or ``kept``.
        say: see ``ShowMessage``.
        show_error: says what, where and what to do, until Enter or Esc.
        update_header: draws header and tabs again, where they changed.
        settled: called when much was made that stays.
        call_in: see ``CallIn``.
        call_next: calls something once the message at hand is done, before what it changed is drawn.
        set_timer, set_interval: see ``SetTimer``.
        current_pane: returns the id of the pane that has the focus.
        focus_pane: goes to a pane.
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
        """Runs a job for a dialog; newer jobs of dialogs replace it."""
        self.work.run("dialog", lambda _: job(), done, failed)

    def chip_names(self, pane: Pane) -> dict[int, str]:
        """Returns the watchpoints' names for the line about filters of a pane: in full where there is room."""
        return self.watchpoint_names(in_full=pane.detail_room >= _CHIP_ROOM)

    def watchpoint_names(self, *, in_full: bool = False) -> dict[int, str]:
        """Returns ``TO #3`` by id; in full ``TO #3 tensor overflow``, for dialogs."""
        from tui_debugger.text.hits import long_watchpoint_name, watchpoint_name  # not in the first frame

        name = long_watchpoint_name if in_full else watchpoint_name
        return {each.id: name(each) for each in self.session.watchpoints.items()}


@dataclass(frozen=True, eq=False)
class _KeptNodes:
    """The nodes that a query keeps: over tree indices (None: everything), and how many nodes that is."""

    keep: Mask | None
    count: int


class NodeFilter:
    """Changes the query and has the node list show what it keeps."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Returns actions by id."""
        return {"filter_nodes": self.ask_filter, "clear_filter": self.clear_filter}

    def set_query(self, query: NodeQuery) -> None:
        """Replaces the query."""
        state = self._context.state
        named, state.query = state.query.graphs, query
        self.apply_query()
        if query.graphs != named:  # of a query the header says the graph
            self._context.update_header()

    def search(self, text: str) -> None:
        """Takes the text that is searched; a leading ~ means a regular expression."""
        regex = text.startswith("~")
        self.set_query(replace(self._context.state.query, text=text[1:] if regex else text, regex=regex))

    def restrict_to_line(self, path: str, line: int) -> None:
        """Keeps only the nodes of a source line; the same line again takes the restriction away."""
        query = self._context.state.query
        same = query.line == (path, line)
        self.set_query(replace(query, line=None if same else (path, line)))
        if not same:
            self._context.say(f"nodes of {path.rpartition('/')[2]}:{line}; Backspace in the node list clears")

    def clear_filter(self) -> None:
        """Shows everything again, in the hit list every graph."""
        if self._context.state.query.graphs == self._context.hits_pane.filter.graphs:
            self.show_graphs_of_hits(frozenset())
        self.show_all()

    def show_all(self) -> None:
        """Removes search and query."""
        self._context.nodes_pane.clear_search()
        self.set_query(NodeQuery())

    def show_graphs_of_hits(self, graphs: frozenset[str]) -> None:
        """Shows only the hits of some graphs; none of them means all."""
        pane = self._context.hits_pane
        if graphs != pane.filter.graphs:
            pane.set_filter(replace(pane.filter, graphs=graphs), self._context.chip_names(pane))

    def apply_query(self) -> None:
        """Asks for the nodes that the query keeps."""
        context, session = self._context, self._context.session
        rank, step, query = context.state.rank, context.state.step, context.state.query
        context.nodes_pane.show_query(query, context.chip_names(context.nodes_pane))

        def work(_: JobProgress) -> _KeptNodes:
            rows = session.select(rank, query, step)
            keep = None if bool(rows.all()) else session.tree(rank).keep_mask(rows)
            return _KeptNodes(keep, int(rows.sum()))

        context.work.run("filter", work, self._filtered, self._bad_query, in_header=False)

    def _filtered(self, kept: _KeptNodes) -> None:
        pane, tree = self._context.nodes_pane, self._context.nodes_pane.scopes
        if tree is None or (kept.keep is not None and len(kept.keep) != len(tree.row)):
            return
        pane.filter(kept.keep, kept.count, self._context.state.query, self._context.watchpoint_names())
        pane.searched()

    def _bad_query(self, error: Exception) -> None:
        """The list stays as it is."""
        self._context.nodes_pane.search_failed()
        self._context.say(str(getattr(error, "what", error)), bad=True)

    def ask_filter(self) -> None:
        """Opens the filter dialog."""
        from tui_debugger.tui.dialogs.filters import FilterScreen

        nodes = self._context.nodes_pane.nodes
        if nodes is None:
            return
        screen = FilterScreen(self._context.state.query, nodes, self._context.watchpoint_names(in_full=True))
        self._context.app.push_screen(screen, lambda query: None if query is None else self.set_query(query))
