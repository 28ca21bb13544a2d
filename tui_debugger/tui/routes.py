"""What a screen with a session is made of, and the ways that the answers of workers take through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from tui_debugger.errors import CancelledError
from tui_debugger.tui import messages
from tui_debugger.tui.bridge import Bridge
from tui_debugger.tui.opening import opening_lines
from tui_debugger.tui.widgets.bars import FooterBar, HeaderBar
from tui_debugger.tui.widgets.line_window import Kept

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.tui import answers
    from tui_debugger.tui.checker import Checker
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.navigator import Navigator
    from tui_debugger.tui.opening import HeaderLines
    from tui_debugger.tui.state import State
    from tui_debugger.tui.views.opener import Views
    from tui_debugger.tui.watcher import Watcher


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
        self.bridge = Bridge(self.post_message)
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
        from tui_debugger.tui.views.view import News

        self.navigator.refreshed(message.changes)
        self.views.tell(News.of_dump(message.changes))
        self.update_header()

    def on_checked(self, message: answers.Checked) -> None:
        """Routes to the checker."""
        self._route(message, self.checker.checked)
        self._tell_checked()

    def _tell_checked(self) -> None:
        """What a check found is in open views as well."""
        from tui_debugger.tui.views.view import News

        self.views.tell(News())

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
