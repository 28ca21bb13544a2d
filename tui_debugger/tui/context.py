"""The things that the controllers of the main screen share: the run, the position in it, the panes, ways to speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tui_debugger.graph.search import NodeQuery

if TYPE_CHECKING:
    from textual.app import App
    from textual.timer import Timer

    from tui_debugger.model import TensorKey, Watchpoint
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.panes.hits import HitsPane
    from tui_debugger.tui.panes.nodes import NodesPane
    from tui_debugger.tui.panes.stack import StackPane
    from tui_debugger.tui.panes.tensors import TensorsPane
    from tui_debugger.tui.panes.watch_rows import Tally
    from tui_debugger.tui.panes.watchpoints import WatchpointsPane
    from tui_debugger.tui.work import Workers

T = TypeVar("T")


@dataclass
class ScreenState:
    """The position in the run and the last results: values that controllers change and panes are drawn from.

    Attributes:
        rank, step: where we are; step None while nothing is dumped.
        row: selected node, -1 for none.
        query: what restricts the node list.
        watchpoint: id of the selected watchpoint.
        result: what the hit list shows; None when nothing was checked.
        tally: what there is to count in it.
        current: whether ``result`` is what the watchpoints say about the files as they are.
        too_large: bytes that a check of this step would read, when it did not start by itself.
        unordered: whether some run of the rank ran after one of a later step.
        pending_tensor: a tensor, with its node's row, to go to as soon as its rank's nodes are there.
    """

    rank: int = 0
    step: int | None = None
    row: int = -1
    query: NodeQuery = field(default_factory=NodeQuery)
    watchpoint: int | None = None
    result: CheckResult | None = None
    tally: Tally | None = None
    current: bool = False
    too_large: int = 0
    unordered: bool = False
    pending_tensor: tuple[TensorKey, int] | None = None

    @property
    def fresh(self) -> bool:
        """Tells whether the hits are current, and of all that was asked for."""
        return self.current and not (self.result is not None and self.result.stopped)


class Say(Protocol):
    """Shows one line in the footer, until the next key."""

    def __call__(self, text: str, *, bad: bool = False) -> None:
        """``bad`` lines are refusals and errors."""


class SetTimer(Protocol):
    """Calls something on the event loop after so many seconds, or every so many seconds."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Returns the timer, which can be stopped."""


@dataclass(frozen=True)
class Context:
    """The main screen as a controller sees it.

    Attributes:
        app: where dialogs and views are opened.
        session: the run.
        state: the position in it.
        work: runs what takes time.
        kept: what became of the steps and tensors that are there: ``dumped`` or ``kept``.
        say: see ``Say``.
        show_error: says what, where and what to do, until Enter or Esc.
        update_header: draws header and tabs again, where they changed.
        settled: called when much was made that stays.
        set_timer, set_interval: see ``SetTimer``.
        current_pane: returns the id of the pane that has the focus.
        focus_pane: goes to a pane.
    """

    app: App[Any]
    session: Session
    state: ScreenState
    work: Workers
    nodes_pane: NodesPane
    stack_pane: StackPane
    watchpoints_pane: WatchpointsPane
    hits_pane: HitsPane
    tensors_pane: TensorsPane
    kept: str
    say: Say
    show_error: Callable[[Exception], None]
    update_header: Callable[[], None]
    settled: Callable[[], None]
    set_timer: SetTimer
    set_interval: SetTimer
    current_pane: Callable[[], str]
    focus_pane: Callable[[str], None]

    def ask(self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Runs a job for a dialog; newer jobs of dialogs replace it."""
        self.work.run("dialog", lambda _: job(), done, failed)

    def watchpoint_names(self) -> dict[int, str]:
        """Returns ``TO #3`` by id, for chips and filters."""
        return {each.id: watchpoint_name(each) for each in self.session.watchpoints.items()}


def watchpoint_name(watchpoint: Watchpoint) -> str:
    """Returns ``TO #3``."""
    from tui_debugger.watch.condition_table import CONDITIONS

    condition = CONDITIONS.get(watchpoint.condition)
    return f"{condition.abbr if condition else '?'} #{watchpoint.id}"
