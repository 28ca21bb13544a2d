"""The main screen: five panes, header and footer. It lays out, and passes on keys, messages and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from tui_debugger.errors import CancelledError
from tui_debugger.tui import actions, messages
from tui_debugger.tui.panes.hits import HitsPane
from tui_debugger.tui.panes.nodes import NodesPane
from tui_debugger.tui.panes.pane import TITLES, Pane
from tui_debugger.tui.panes.stack import StackPane
from tui_debugger.tui.panes.tensors import TensorsPane
from tui_debugger.tui.panes.watchpoints import WatchpointsPane
from tui_debugger.tui.widgets.bars import FooterBar, HeaderBar, TabStrip, opening_lines
from tui_debugger.tui.widgets.line_window import Kept, KeptColumn, KeptRow
from tui_debugger.tui.work import Workers

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.tui import answers
    from tui_debugger.tui.checker import Checker
    from tui_debugger.tui.context import State
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.navigator import Navigator
    from tui_debugger.tui.views.opener import Views
    from tui_debugger.tui.watcher import Watcher
    from tui_debugger.tui.widgets.bars import HeaderLines


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who waits for which request of a lane."""

    request: int
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    told: Callable[[Progress], None]


class Routes(Kept, Screen[None]):
    """Gives every answer to the controller that asked, unless something newer was asked meanwhile.

    Attributes:
        session: None until the run is open.
        bridge: where work is started.
        progress: how far the work of each lane is.
        state: what is shown. It and the controllers come with the session: the first frame does without.
    """

    state: State
    navigator: Navigator
    checker: Checker
    watcher: Watcher
    inspector: Inspector
    views: Views

    def __init__(self, title: str) -> None:
        """``title`` is the path as the user typed it, shown until the run says its name."""
        super().__init__()
        self.run_title = title
        self.session: Session | None = None
        self.bridge = Workers(self.post_message)
        self.progress: dict[str, Progress] = {}
        self.header = HeaderBar()
        self.footer = FooterBar()
        self._waiting: dict[str, _Asked] = {}

    @property
    def opened_session(self) -> Session:
        """The session; only used where one is open."""
        if self.session is None:
            msg = "no session is open"
            raise RuntimeError(msg)
        return self.session

    def update_header(self) -> None:
        """Draws the header again, where it changed."""
        if self.session is None:
            self.header.show(*opening_lines(self.run_title, self.progress))
        else:
            self.header.show(*self.header_text())

    def header_text(self) -> HeaderLines:
        """Both lines, once a session is there."""
        from tui_debugger.tui.header import header_lines

        return header_lines(self.opened_session, self.state, self.progress, self.checker.status())

    def stop_work(self) -> bool:
        """Stops what runs; False when nothing does."""
        return bool([lane for lane in {"check", "open", *self.progress} if self.bridge.cancel(lane)])

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line in the footer, until the next key."""
        self.footer.say(text, bad=bad)

    def ask(self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Does work for a dialog; ``done`` or ``failed`` is called on the event loop."""
        self.ask_in("dialog", lambda _: work(), done, failed)

    def ask_in(
        self,
        lane: str,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        told: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Does work for a screen above this one, on a lane that answers nobody else; newer work replaces it.

        ``done``, ``failed`` and ``told`` (how far it is) are called on the event loop.
        """
        request = self.bridge.run(lane, lambda report: messages.Answered(work(report)))
        self._waiting[lane] = _Asked(request, done, failed, told)

    def on_progressed(self, message: messages.Progressed) -> None:
        """Long work tells how far it is."""
        asked = self._waiting.get(message.lane)
        if asked is not None:
            if asked.request == message.request:
                asked.told(message.progress)
        elif self.bridge.fresh(message) and self.bridge.busy(message.lane):
            self.progress[message.lane] = message.progress
            self.update_header()

    def _route(self, message: messages.Finished, handler: Callable[[Any], None]) -> None:
        if self.bridge.fresh(message):
            if not self.bridge.busy(message.lane):
                self.progress.pop(message.lane, None)
            handler(message)
            self.update_header()

    def on_opened(self, message: messages.Opened) -> None:
        """Routes to the app, which also starts to follow the directory."""
        if self.bridge.fresh(message):
            self.post_message(messages.Started(message.session))

    def on_nodes_loaded(self, message: answers.NodesLoaded) -> None:
        """Routes to the navigator."""
        self._route(message, self.navigator.nodes_loaded)

    def on_nodes_filtered(self, message: answers.NodesFiltered) -> None:
        """Routes to the navigator."""
        self._route(message, self.navigator.nodes_filtered)

    def on_nodes_marked(self, message: answers.NodesMarked) -> None:
        """Routes to the watcher."""
        self._route(message, self.watcher.marked)

    def on_refreshed(self, message: answers.Refreshed) -> None:
        """The directory changed; told by the follower, so there is no request to compare with."""
        from tui_debugger.tui.views.view import ViewChanges

        self.navigator.refreshed(message.changes)
        self.views.tell(ViewChanges.of_dump(message.changes))
        self.update_header()

    def on_checked(self, message: answers.Checked) -> None:
        """Routes to the checker."""
        self._route(message, self.checker.checked)
        self._tell_checked()

    def _tell_checked(self) -> None:
        """What a check found is in open views as well."""
        from tui_debugger.tui.views.view import ViewChanges

        self.views.tell(ViewChanges())

    def on_check_too_large(self, message: answers.CheckTooLarge) -> None:
        """Routes to the checker."""
        self._route(message, self.checker.too_large)

    def on_hits_found(self, message: answers.HitsFound) -> None:
        """Routes to the checker."""
        self._route(message, self.checker.searched)

    def on_step_found(self, message: answers.StepFound) -> None:
        """Routes to the checker."""
        self._route(message, self.checker.step_found)
        self._tell_checked()

    def on_tensors_listed(self, message: answers.TensorsListed) -> None:
        """Routes to the inspector."""
        self._route(message, self.inspector.listed)

    def on_stack_indexed(self, message: answers.StackIndexed) -> None:
        """Routes to the inspector."""
        self._route(message, self.inspector.indexed)

    def on_saved(self, message: answers.Saved) -> None:
        """A tensor was written."""
        self._route(message, lambda saved: self.say(f"wrote {saved.path}"))

    def on_answered(self, message: messages.Answered) -> None:
        """Work for a dialog or a view is done."""
        asked = self._answered(message)
        if asked is not None:
            asked.done(message.value)

    def _answered(self, message: messages.Finished) -> _Asked | None:
        """Who waits for a message; None when they have asked something newer meanwhile."""
        asked = self._waiting.get(message.lane)
        return self._waiting.pop(message.lane) if asked is not None and asked.request == message.request else None

    def on_failed(self, message: messages.Failed) -> None:
        """Something went wrong in a worker."""
        if message.lane == "open":
            self.post_message(messages.Unopened(message.error))
            return
        asked = self._answered(message)
        if asked is not None:
            asked.failed(message.error)
        elif message.lane not in self._waiting:
            self._route(message, self._failed)

    def _failed(self, message: messages.Failed) -> None:
        error = message.error
        if isinstance(error, CancelledError):
            self.checker.stopped()
        elif message.lane == "filter":
            self.navigator.bad_query(error)
        else:
            self.show_error(error)
            if message.lane == "check":
                self.watcher.mark()  # they waited for the answer

    def show_error(self, error: Exception) -> None:
        """What, where and what to do, until Enter or Esc."""
        from tui_debugger.tui.dialogs.modal import ErrorScreen

        self.app.push_screen(ErrorScreen(messages.presentable(error)))


WIDE, HIGH = 110, 30
"""From this size on all five panes are shown."""
WITHOUT_SESSION = frozenset(
    {"quit", "help", "palette", "back", "pause", "redraw", "zoom", "next_pane", "previous_pane"}
)
Handler = Callable[[], None]


class MainScreen(Routes):
    """The screen of a run."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings_for("global"))
    # Textual repaints the whole screen whenever the focus moves; the panes draw their own focus.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    KEPT: ClassVar[str] = "dumped"
    """What became of the steps and tensors that are there."""
    AUTO_FOCUS = ""  # focus_pane decides: the first thing that can have the focus is a search box

    def __init__(self, *, title: str, recommended: bool | None, rank: int | None, step: int | None) -> None:
        """Shows empty panes until ``opened``.

        Args:
            title: the path as the user typed it, until the run says its name.
            recommended: True adds the recommended watchpoints, False does not offer them, None asks once.
            rank: where to start, when the run has it.
            step: likewise.
        """
        super().__init__(title)
        self.nodes_pane = NodesPane()
        self.stack_pane = StackPane()
        self.watchpoints_pane = WatchpointsPane()
        self.hits_pane = HitsPane()
        self.tensors_pane = TensorsPane()
        self.panes: dict[str, Pane] = {
            pane.PANE: pane
            for pane in (self.nodes_pane, self.stack_pane, self.watchpoints_pane, self.hits_pane, self.tensors_pane)
        }
        self.tabs = TabStrip()
        self.current_pane = "nodes"
        self.zoomed = False
        self._recommended, self._first_rank, self._first_step = recommended, rank, step
        self.handlers: dict[str, Handler] = self._own_handlers()

    def compose(self) -> ComposeResult:
        """Left: what is there and what to look for. Right: what was found, its values, its source."""
        yield self.header
        yield self.tabs
        with KeptRow(id="panes"):
            with KeptColumn(id="left", classes="column"):
                yield self.nodes_pane
                yield self.watchpoints_pane
            with KeptColumn(id="right", classes="column"):
                yield self.hits_pane
                yield self.tensors_pane
                yield self.stack_pane
        yield self.footer

    def on_mount(self) -> None:
        """Starts in the node list."""
        self.focus_pane("nodes")
        self.update_header()

    def start(self, session: Session) -> None:
        """The run is open: shows it, offers the recommended watchpoints once, checks what is quick to check."""
        from tui_debugger.tui.context import State
        from tui_debugger.tui.copy_and_report import Copier, Reporter
        from tui_debugger.tui.navigator import Navigator
        from tui_debugger.tui.views.opener import Views
        from tui_debugger.tui.watcher import Watcher

        self.session = session
        self.state = State()
        self.progress.clear()
        self.navigator = Navigator(self, self._first_rank, self._first_step)
        self.checker = self.make_checker()
        self.watcher = Watcher(self, self._recommended)
        self.inspector = self.make_inspector()
        self.views = Views(self)
        helpers = (Copier(self), Reporter(self))
        for controller in (self.navigator, self.checker, self.watcher, self.inspector, self.views, *helpers):
            self.handlers |= controller.handlers()
        self.navigator.opened()
        self.watcher.show_list()
        self.watcher.opened(self.checker.opened)
        self.update_header()

    def make_checker(self) -> Checker:
        """Who checks."""
        from tui_debugger.tui.checker import Checker

        return Checker(self)

    def make_inspector(self) -> Inspector:
        """Who shows tensors and values."""
        from tui_debugger.tui.inspector import Inspector

        return Inspector(self)

    def keys_here(self) -> list[actions.Action]:
        """The actions that the focused pane's keys reach, for the palette."""
        return actions.reachable(self.current_pane)

    def keys_of_footer(self) -> list[actions.Action]:
        """What the footer shows."""
        return actions.footer(self.current_pane)

    def keys_of_help(self) -> tuple[actions.Action, ...]:
        """What the help page lists."""
        return actions.ACTIONS

    # -- layout and focus ------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Five panes or one, by size."""
        self._lay_out(event.size.width, event.size.height)

    def _lay_out(self, width: int, height: int) -> None:
        single = self.zoomed or width < WIDE or height < HIGH
        self.set_class(single, "-single")
        for name, pane in self.panes.items():
            current = name == self.current_pane
            pane.set_look(active=current, single=single)
            # With five panes on the screen a class would only restyle, and so repaint, for nothing.
            pane.set_class(single and current, "-current")
        for column in {pane.parent for pane in self.panes.values()}:
            if isinstance(column, KeptColumn):
                column.set_class(single and self.panes[self.current_pane] in column.children, "-current")
        self.tabs.display = single
        self._update_tabs()

    def _update_tabs(self) -> None:
        tabs = []
        for number, (name, title) in enumerate(actions.PANES, 1):
            count = self.panes[name].count.split(" ")[0] if name in {"hits", "watchpoints"} else ""
            tabs.append((name, f"{number} {title}" + (f" {count}" if count else "")))
        self.tabs.show(tabs, self.current_pane)

    def focus_pane(self, name: str) -> None:
        """Goes to a pane; when one pane is shown, to that one."""
        self.current_pane = name
        self._lay_out(self.size.width, self.size.height)
        self.set_focus(self.panes[name].table, scroll_visible=False)  # its own focus() draws all of it
        self._update_footer()

    def on_descendant_focus(self, _: events.DescendantFocus) -> None:
        """The mouse may have moved the focus."""
        pane = (
            next((a for a in self.focused.ancestors_with_self if isinstance(a, Pane)), None) if self.focused else None
        )
        if pane is not None and self.current_pane != pane.PANE:
            self.current_pane = pane.PANE
            self._lay_out(self.size.width, self.size.height)
            self._update_footer()

    def on_tab_strip_chosen(self, event: TabStrip.Chosen) -> None:
        """A click on a tab."""
        self.focus_pane(event.pane)

    def _update_footer(self) -> None:
        self.footer.show([(action.main_key, action.title) for action in self.keys_of_footer()])

    def update_header(self) -> None:
        """Draws header and tabs again, where they changed."""
        super().update_header()
        self._update_tabs()

    # -- keys ------------------------------------------------------------------------------------

    def _own_handlers(self) -> dict[str, Handler]:
        panes: dict[str, Handler] = {f"pane_{name}": partial(self.focus_pane, name) for name in TITLES}
        return panes | {
            "next_pane": lambda: self._neighbour(1),
            "previous_pane": lambda: self._neighbour(-1),
            "zoom": self._zoom,
            "search": self._search,
            "back": self._back,
            "pause": self._pause,
            "help": self._help,
            "palette": self._palette,
            "redraw": self._redraw,
            "quit": self._quit,
        }

    def action_act(self, action: str) -> None:
        """Does one action of the registry."""
        self.footer.hush()
        if self.session is None and action not in WITHOUT_SESSION and not action.startswith("pane_"):
            self.footer.say("still opening", bad=True)
            return
        self.handlers[action]()

    def on_key(self, _: events.Key) -> None:
        """A message lasts until the next key."""
        self.footer.hush()

    def _pause(self) -> None:
        if not self.stop_work():
            self.say("nothing is running")

    def _neighbour(self, by: int) -> None:
        names = list(self.panes_in_order)
        self.focus_pane(names[(names.index(self.current_pane) + by) % len(names)])

    @property
    def panes_in_order(self) -> list[str]:
        """Pane ids as they stand on the screen."""
        return [name for name, _ in actions.PANES]

    def _zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._lay_out(self.size.width, self.size.height)

    def _search(self) -> None:
        self.panes[self.current_pane].open_search()

    def _palette(self) -> None:
        self.app.action_command_palette()

    def _redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def _quit(self) -> None:
        self.app.exit()

    def _back(self) -> None:
        """Esc: stops work, else ends a search, else unzooms."""
        if self.stop_work():
            return
        if self.panes[self.current_pane].clear_search():
            return
        if self.zoomed:
            self._zoom()

    def _help(self) -> None:
        from tui_debugger.tui.actions import VALUE_ACTIONS
        from tui_debugger.tui.dialogs.help import HelpScreen

        self.app.push_screen(HelpScreen((*self.keys_of_help(), *VALUE_ACTIONS)))

    # -- what the panes say ----------------------------------------------------------------------

    def on_pane_searched(self, event: Pane.Searched) -> None:
        """Search boxes: short lists at once, the others in a worker."""
        if self.session is None:
            return
        if event.pane is self.nodes_pane:
            self.navigator.search(event.text)
        elif event.pane is self.stack_pane:
            self.inspector.search_stack(event.text)
        elif event.pane is self.hits_pane:
            self.checker.search()
        elif isinstance(event.pane, TensorsPane | WatchpointsPane):
            event.pane.refresh_rows()

    def on_nodes_pane_node_highlighted(self, event: NodesPane.NodeHighlighted) -> None:
        """The selected node's tensors and stack follow."""
        if event.row >= 0:
            self.inspector.show_node(event.row)
        if event.opened:
            self._drill_in("nodes")

    def on_stack_pane_line_chosen(self, event: StackPane.LineChosen) -> None:
        """Restricts the node list to a source line."""
        self.navigator.restrict_to_line(event.path, event.line)

    def on_stack_pane_mode_changed(self, _: StackPane.ModeChanged) -> None:
        """The run's lines are read when they are first looked at."""
        self.inspector.search_stack(self.stack_pane.search_text)

    def on_watchpoints_pane_watchpoint_highlighted(self, event: WatchpointsPane.WatchpointHighlighted) -> None:
        """The node list marks what the selected watchpoint covers."""
        self.watcher.selected(event.watchpoint)
        if event.opened:
            self.watcher.edit()

    def on_hits_pane_hit_chosen(self, event: HitsPane.HitChosen) -> None:
        """Enter on a hit goes to its node and tensors."""
        self.navigator.go_to_hit(event.hit)
        self._drill_in("hits")

    def _drill_in(self, origin: str) -> None:
        """To the tensors, unless the next key already went elsewhere: a fast typist is ahead of messages."""
        if self.current_pane == origin:
            self.focus_pane("tensors")

    def on_tensors_pane_tensor_chosen(self, event: TensorsPane.TensorChosen) -> None:
        """Enter on a tensor shows its values."""
        self.inspector.show_values(event.row)
