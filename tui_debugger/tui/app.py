"""The program behind ``tdbg open``: wiring, and a garbage collector that stays out of the way of keys."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui_debugger.errors import CancelledError
from tui_debugger.tui import actions, messages, theme
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.work import Report

THRESHOLDS = (1_000, 2, 1_000)
"""When the collector runs by itself: often, on little (below 1 ms), and hardly ever on everything (a page or two)."""
FULL_WHEN_QUIET = 30
"""Collections of the middle generation between two of everything, where nobody waits."""
QUIET = 0.15
"""Seconds without output that make a quiet moment: longer than the panes take to follow the cursor."""


def settle() -> None:
    """What is there now stays: the collector need not look at it ever again.

    That is the screen itself, and later the names of hundreds of thousands of nodes. What was set aside before and is
    garbage since, such as a dialog that was open then, is found first.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def tidy() -> None:
    """Looks for garbage among what is new, and from time to time among all that did not stay for good."""
    gc.collect(2 if gc.get_count()[2] >= FULL_WHEN_QUIET else 1)


class Tidying:
    """Calls ``tidy`` once after each burst of output."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._due: asyncio.TimerHandle | None = None

    def written(self) -> None:
        """Something was written by the event loop: the quiet begins anew."""
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(QUIET, tidy)


if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.sources.base import Changes

    OpenSession = Callable[[ProgressFn], Session]


class Runnable(Protocol):
    """A follower of the dump directory, with a thread of its own."""

    def start(self) -> None:
        """Starts."""

    def stop(self, timeout: float = ...) -> None:
        """Stops, waiting at most so many seconds."""


Follow = Callable[["Session", Callable[["Changes"], None]], Runnable]


class Commands(Provider):
    """The command palette: the actions of the registry."""

    async def search(self, query: str) -> Hits:
        """Actions whose title or help matches."""
        matcher = self.matcher(query)
        for action, run in self._commands():
            text = f"{action.title}  {action.label}"
            score = max(matcher.match(action.title), matcher.match(action.help) * 0.5)
            if score > 0:
                yield Hit(score, matcher.highlight(text), run, help=action.help)

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        """All actions."""
        for action, run in self._commands():
            yield DiscoveryHit(f"{action.title}  {action.label}", run, help=action.help)

    def _commands(self) -> list[tuple[actions.Action, Callable[[], None]]]:
        desk = self.screen
        if not isinstance(desk, MainScreen):
            return []
        reachable = desk.keys_here()
        hidden = actions.NOT_IN_PALETTE
        found = [action for action in reachable if action.id not in hidden and action.where not in {"list", "tree"}]
        return [(action, partial(desk.action_act, action.id)) for action in found]


class TdbgApp(App[int]):
    """Opens a session in a worker and shows it."""

    TITLE = "tdbg"
    CSS_PATH = "tdbg.tcss"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Commands}
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"

    def __init__(
        self,
        open_session: OpenSession,
        *,
        title: str = "",
        recommended: bool | None = None,
        rank: int | None = None,
        step: int | None = None,
        follow: Follow | None = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is read before the first frame.

        Args:
            open_session: the slow part, called in a worker; raises TdbgError for what people can understand.
            title: shown until the run says its name.
            recommended: True adds the recommended watchpoints, False does not offer them, None asks once.
            rank: where to start, when the run has it.
            step: likewise.
            follow: makes a follower that tells of changes on disk; None follows nothing.
            settle: called whenever much was made that stays, in a process whose garbage collector is the screen's own:
                see ``settle``.
        """
        super().__init__()
        self.register_theme(theme.THEME)
        self.theme = "tdbg"
        self.animation_level = "none"
        self._open_session = open_session
        self._make_follower = follow
        self._follower: Runnable | None = None
        self._settle = settle or (lambda: None)
        self._tidying = None if settle is None else Tidying()
        self.desk = self.make_desk(title=title, recommended=recommended, rank=rank, step=step)

    def make_desk(self, **given: Any) -> MainScreen:
        """The screen, from what ``MainScreen`` takes."""
        return MainScreen(**given)

    def get_default_screen(self) -> MainScreen:
        """The only screen there is at first; an empty one below it would cost a paint of its own."""
        return self.desk

    def on_mount(self) -> None:
        """First frame, then the worker."""
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self._settle()
        opener = self._open_session
        bridge = self.desk.bridge

        def work(report: Report) -> messages.Opened:
            return messages.Opened(opener(report))

        bridge.run("open", work)

    def on_started(self, event: messages.Started) -> None:
        """The session is there."""
        session = event.session
        self.desk.start(session)
        if self._make_follower is not None:
            self._follower = self._make_follower(session, self._changed)
            self._follower.start()

    def _changed(self, changes: Changes) -> None:
        """Called in the follower's thread."""
        from tui_debugger.tui.answers import Refreshed

        self.desk.post_message(Refreshed(changes))

    def on_settled(self) -> None:
        """Nodes are there, and stay."""
        self._settle()

    def post_display_hook(self) -> None:
        """Something was written."""
        if self._tidying is not None:
            self._tidying.written()

    def on_unopened(self, event: messages.Unopened) -> None:
        """Says why, waits for a key, leaves with exit code 2 (130 when the user stopped it)."""
        from tui_debugger.tui.dialogs.modal import ErrorScreen

        shown = messages.presentable(event.error)
        if isinstance(shown, CancelledError):
            self.exit(shown.exit_code, return_code=shown.exit_code)
            return
        self.push_screen(ErrorScreen(shown), lambda _: self.exit(shown.exit_code, return_code=shown.exit_code))

    def shut(self) -> None:
        """Stops threads and closes the session; quick, whatever is running."""
        if self._follower is not None:
            self._follower.stop(0.1)
        self.desk.bridge.close()
        if self.desk.session is not None:
            self.desk.session.close()

    async def on_unmount(self) -> None:
        """The last thing that happens."""
        self.shut()


def follow_directory(session: Session, on_change: Callable[[Changes], None]) -> Runnable:
    """A follower for sources that can grow."""
    from tui_debugger.sources.follow import Follower

    return Follower(session, on_change)


def run_app(
    open_session: OpenSession,
    *,
    title: str = "",
    recommended: bool | None = None,
    rank: int | None = None,
    step: int | None = None,
    mouse: bool = True,
) -> int:
    """Runs the screen and returns the exit code: 0, or 2 when the run could not be opened.

    The process is the screen's own: its garbage collector is set up for it, see ``settle``.
    """
    app = TdbgApp(
        open_session,
        title=title,
        recommended=recommended,
        rank=rank,
        step=step,
        follow=follow_directory,
        settle=settle,
    )
    app.run(mouse=mouse)
    return app.return_code or 0
