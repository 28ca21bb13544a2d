"""The program behind ``tdbg open``: wiring, and garbage collection at moments when no key waits."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast, runtime_checkable

from rich.console import Console, RenderableType
from textual import events, on
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.driver import Driver

from tui_debugger.config import Config
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.signals import ENDING, exit_code
from tui_debugger.text.old_words import OLD, old_words
from tui_debugger.text.writer import error_stream
from tui_debugger.tui import actions, settings, theme
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.work import presentable
from tui_debugger.tui.written_lines import PartsUpdate, ScreenDifference, WrittenLines

if TYPE_CHECKING:
    from textual.await_remove import AwaitRemove
    from textual.dom import DOMNode
    from textual.filter import LineFilter
    from textual.screen import Screen
    from textual.widget import Widget

    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.session.comparison import ComparedRun
    from tui_debugger.session.live import LiveSession
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.live import LiveControl
    from tui_debugger.tui.start_page import StartPage

    OpenSession = Callable[[ProgressFn], Session]

THRESHOLDS = (1_000, 2, 1_000)
"""Thresholds of Python's collector: it collects the youngest generation often (below 1 ms), all objects hardly ever."""
FULL_WHEN_QUIET = 30
"""Full collections run in a quiet moment, after this many collections of the middle generation."""
SWITCH_INTERVAL = 0.001
"""Seconds that a thread computes before the event loop may answer a key; Python's default is five times as long."""
QUIET = 0.15
"""Seconds without output that count as a quiet moment: longer than the panes take to follow the cursor."""


def freeze_objects() -> None:
    """Excludes all present objects from later garbage collections.

    These are the screen itself, and later the names of hundreds of thousands of nodes. Objects frozen earlier are
    unfrozen and collected first, since some may be garbage by now (a closed dialog).
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def collect_garbage() -> None:
    """Collects younger generations, and all objects that are not frozen once ``FULL_WHEN_QUIET`` is reached."""
    gc.collect(2 if gc.get_count()[2] >= FULL_WHEN_QUIET else 1)


class QuietCollector:
    """Calls ``collect_garbage`` once after each burst of output."""

    def __init__(self) -> None:
        self._due: asyncio.TimerHandle | None = None

    def written(self) -> None:
        """Restarts the wait for a quiet moment; call it on the event loop after each output."""
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(QUIET, collect_garbage)


class Runnable(Protocol):
    """A follower of the dump directory, with a thread of its own."""

    def start(self) -> None:
        """Starts the thread."""

    def stop(self, timeout: float = ...) -> None:
        """Stops the thread, waiting at most ``timeout`` seconds."""


@dataclass(frozen=True, slots=True)
class StartSettings:
    """The start page searches below ``directory``, and opens the chosen dump with ``opening`` (see ``TdbgApp``)."""

    directory: Path
    opening: Callable[[Path], OpenSession]
    with_recent: bool = True


Follow = Callable[["Session", Callable[["Changes"], None]], Runnable]


@runtime_checkable
class ListsActions(Protocol):
    """A screen whose actions the command palette lists."""

    def keys_here(self) -> list[actions.Action]:
        """Returns the actions that are in reach, most useful first."""

    def run_listed(self, action: actions.Action) -> None:
        """Does an action that was chosen in a list of actions."""


class Commands(Provider):
    """The command palette: the actions of the registry."""

    _used: ClassVar[Counter[str]] = Counter()

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        asked = query.lower().split()
        for place, (action, run) in enumerate(self._commands()):
            named = query.lower() in action.title.lower()
            score = matcher.match(action.title) + matcher.match(action.help) * 0.5 + 9 * named
            if score > 0 or all(word in action.words for word in asked):
                old = old_words(action.id)
                said = f"{action.help} {OLD}: {old}" if query.lower() in old.lower() else action.help
                yield Hit(
                    max(score, 0.1) - place * 1e-6, matcher.highlight(f"{action.title}  {action.label}"), run, help=said
                )

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        for action, run in self._commands():
            yield DiscoveryHit(f"{action.title}  {action.label}", run, help=action.help)

    def _commands(self) -> list[tuple[actions.Action, Callable[[], None]]]:
        """Returns the actions of the screen below: those used in the palette first, then the most useful."""
        below = self.screen
        if not isinstance(below, ListsActions):
            return []
        found = [each for each in below.keys_here() if each.id not in actions.NOT_IN_PALETTE and not each.moves]
        found.sort(key=lambda action: -self._used[action.id])

        def run(action: actions.Action) -> None:
            self._used[action.id] += 1
            below.run_listed(action)

        return [(action, partial(run, action)) for action in found]


class TdbgApp(App[int | Path]):
    """Opens a session in a worker and shows it, or waits for trainings and shows them."""

    TITLE = "tdbg"
    CSS_PATH = "tdbg.tcss"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Commands}
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", show=False, priority=True)]

    def __init__(
        self,
        open_session: OpenSession | StartSettings | None = None,
        *,
        live: LiveControl | None = None,
        title: str = "",
        recommended: bool | None = None,
        rank: int | None = None,
        step: int | None = None,
        follow: Follow | None = None,
        freeze: Callable[[], None] | None = None,
        config: Config | None = None,
        judged: Callable[[str, Headline], None] | None = None,
        against: ComparedRun | None = None,
    ) -> None:
        """Reads nothing of the run before the first frame.

        ``open_session`` opens the run in a worker and raises TdbgError; ``StartSettings`` shows the start page first;
        None with ``live``. ``title`` is shown until the run's name is known. ``recommended``: True adds the recommended
        watchpoints, False does not, None adds them to a run that never had any. ``rank`` and ``step`` are shown first
        if they exist. ``freeze``: see ``freeze_objects``; None if the process is not the screen's own. ``judged`` gets
        the dump's path and headline when the screen is left. ``against``: another run, compared at once.

        Raises:
            ConfigError: the configuration gives a key to two actions, or keys to an unknown action.
        """
        config = config or Config()
        keymap = settings.apply(config)
        shown = _theme_shown(config.theme)
        super().__init__(ansi_color=True if shown == "terminal" else None)
        self.set_keymap(keymap)
        self._colors = _colors_of(shown)
        # Textual writes the traceback of a crash here; it may contain names of the run.
        self.error_console = Console(file=error_stream(), color_system=None, markup=False, highlight=False)
        self.register_theme(theme.THEME)
        self.theme = "tdbg"
        self.animation_level = "none"
        self._written = WrittenLines()
        self._open_session = None if isinstance(open_session, StartSettings) else open_session
        self._judged = judged
        self._against = against
        self._live = live
        self._make_follower = follow
        self._follower: Runnable | None = None
        self._freeze = freeze or (lambda: None)
        self._tidying = None if freeze is None else QuietCollector()
        self.main = MainScreen(
            title=title,
            recommended=recommended,
            rank=rank,
            step=step,
            live=live,
            settled=self._freeze,
            forget=self._written.forget,
        )
        self.start_page = self._make_start_page(open_session) if isinstance(open_session, StartSettings) else None

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return filters if self._colors is None else [self._colors, *filters]

    def get_default_screen(self) -> Screen[Any]:
        """Returns the start page or the main screen: an empty default screen below it would cost a paint."""
        return self.start_page or self.main

    def get_driver_class(self) -> type[Driver]:
        """Returns a driver that gives the terminal back to the shell on Ctrl-Z, on Unix."""
        found = super().get_driver_class()
        if sys.platform == "win32" or found.__name__ != "LinuxDriver":
            return found
        from tui_debugger.tui.driver import TerminalDriver

        return TerminalDriver

    def action_suspend_process(self) -> None:
        suspend = getattr(self._driver, "suspend", None)
        if suspend is not None:
            suspend()
        elif self.screen is self.main:
            self.main.say("there is no shell to go back to", bad=True)

    def on_load(self) -> None:
        """Installs handlers so that a signal that ends the process restores the terminal as ``q`` does."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            with suppress(NotImplementedError, RuntimeError, ValueError):  # no signals here, or not the main thread
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self._end, exit_code(number))

    def _end(self, code: int) -> None:
        self.exit(code, return_code=code)

    def on_mount(self) -> None:
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self._freeze()
        if self.start_page is not None:
            self.start_page.look()
        elif self._live is not None:
            self.main.wait_for_trainings(self._live)
        elif self._open_session is not None:
            self.main.work.run("open", self._open_session, self._opened, self._unopened)

    def _make_start_page(self, start: StartSettings) -> StartPage:
        from tui_debugger.tui.start_page import StartPage

        def chosen(path: Path) -> None:
            self.start_page = None
            self._open_session = start.opening(path)
            self.main.run_title = str(path)
            self.push_screen(self.main)
            self.call_after_refresh(self._start)

        return StartPage(start.directory, chosen, with_recent=start.with_recent)

    def _opened(self, session: Session) -> None:
        self.main.start(session)
        if self._make_follower is not None:
            self._follower = self._make_follower(session, self._changed)
            self._follower.start()
        if self._against is not None:
            self.main.views.compare_with(self._against)

    def _changed(self, changes: Changes) -> None:
        self.main.work.call(lambda: self.main.refreshed(changes))

    def note(self, text: str) -> None:
        """Shows one line in the footer; may be called from any thread."""
        self.main.work.call(lambda: self.main.say(text))

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        """Removes widgets without Textual's paint of the whole screen: 20 KB for every Esc over a slow line."""
        return super()._prune(*nodes, parent=None if parent is self else parent)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, LayoutUpdate | ChopsUpdate | PartsUpdate):
            difference = ScreenDifference(renderable, self._written)
            if self._writes_nothing(difference):
                return
            renderable = cast("RenderableType", difference)
        super()._display(screen, renderable)

    def _writes_nothing(self, difference: ScreenDifference) -> bool:
        """Tells whether the terminal shows the whole frame already and its cursor is in the right place."""
        if self.is_headless or self._batch_count or self._driver is None:
            return False
        cursor = self.screen.outer_size.clamp_offset(self.cursor_position)
        return cursor == self._previous_cursor_position and not difference.render_segments(self.console)

    async def on_event(self, event: events.Event) -> None:
        """Forgets what the terminal shows when its size changes: terminals rewrap their lines then."""
        if isinstance(event, events.Resize):
            self._written.forget()
            if event.size == self.screen.outer_size:  # resized and back again: Textual lays out nothing
                self.screen.refresh()
        await super().on_event(event)

    @on(Driver.SignalResume)
    def _terminal_is_back(self) -> None:
        """Forgets what the terminal shows: the shell wrote to it after Ctrl-Z."""
        self._written.forget()

    def post_display_hook(self) -> None:
        if self._tidying is not None:
            self._tidying.written()

    def _unopened(self, error: Exception) -> None:
        """Shows the error until a key, then leaves with its exit code; leaves at once after a cancelled opening."""
        from tui_debugger.tui.dialogs.modal import ErrorScreen

        shown = presentable(error)
        if isinstance(shown, CancelledError):
            self.exit(shown.exit_code, return_code=shown.exit_code)
            return
        self.push_screen(ErrorScreen(shown), lambda _: self.exit(shown.exit_code, return_code=shown.exit_code))

    def shut(self) -> None:
        """Stops threads, and closes the session or releases trainings; does not wait for running jobs."""
        if self._follower is not None:
            self._follower.stop(0.1)
        if self.start_page is not None:
            self.start_page.work.close()
        self.main.work.close()
        if self._live is not None:
            self._live.close()
        elif self.main.session is not None:
            if self._judged is not None and self.main.state.headline is not None:
                self._judged(self.main.session.info.path, self.main.state.headline)
            self.main.views.close()
            self.main.session.close()

    async def on_unmount(self) -> None:
        self.shut()


def _theme_shown(name: str) -> str:
    """Returns ``terminal`` for any theme on a terminal of 16 colours, whose nearest colours cannot be told apart."""
    few = Console(force_terminal=True).color_system in {"standard", "windows"}
    return "terminal" if few else name


def _colors_of(name: str) -> LineFilter | None:
    """Returns the filter from drawn colours to a theme's; None for ``dark``, the theme that everything is drawn in."""
    if name == "dark":
        return None
    from tui_debugger.tui.palettes import recoloring

    return recoloring(name)


def follow_directory(session: Session, on_change: Callable[[Changes], None]) -> Runnable:
    from tui_debugger.sources.follow import DiskFollower

    return DiskFollower(session, on_change)


def run_app(
    open_session: OpenSession | StartSettings,
    *,
    title: str = "",
    recommended: bool | None = None,
    rank: int | None = None,
    step: int | None = None,
    config: Config | None = None,
    judged: Callable[[str, Headline], None] | None = None,
    against: ComparedRun | None = None,
    opening: Callable[[Path], OpenSession] | None = None,
) -> int:
    """Runs the screen and returns the exit code: 0, or 2 when the run could not be opened or the screen broke.

    The process must be the screen's own: its garbage collector is changed, see ``freeze_objects``. ``opening`` opens
    the whole run when the path was a part of it and the user asks for all.
    """
    while True:
        app = TdbgApp(
            open_session,
            title=title,
            recommended=recommended,
            rank=rank,
            step=step,
            follow=follow_directory,
            freeze=freeze_objects,
            config=config,
            judged=judged,
            against=against,
        )
        _run(app, config)
        wider = app.return_value
        if opening is None or not isinstance(wider, Path):
            return _exit_code(app)
        open_session, title = opening(wider), str(wider)


def _run(app: TdbgApp, config: Config | None) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        app.run(mouse=config is None or config.mouse)
    finally:
        sys.setswitchinterval(before)


def _ended(app: TdbgApp) -> bool:
    return (app.return_code or 0) in map(exit_code, ENDING)


def _exit_code(app: TdbgApp) -> int:
    """Returns the exit code of a screen; maps Textual's 1 for a crash to 2, because 1 means "a finding" here."""
    code = app.return_code or 0
    return TdbgError.exit_code if code == 1 else code


def run_live(
    session: LiveSession,
    *,
    title: str,
    warning: str = "",
    recommended: bool | None = None,
    config: Config | None = None,
    started: Callable[[TdbgApp], None] | None = None,
    stay: Callable[[LiveSession], None] | None = None,
) -> int:
    """Runs the screen of live trainings and returns the exit code.

    ``session`` listens already, at ``title``; it is closed with the screen, and every training that waits goes on.
    ``warning`` is shown on the waiting page. ``started`` gets the program before its first frame. ``stay`` is called
    after the screen was left, to answer trainings that depend on this program until they end.
    """
    from tui_debugger.tui.live import LiveControl

    live = LiveControl(session, warning=warning, stays=stay is not None)
    app = TdbgApp(live=live, title=title, recommended=recommended, freeze=freeze_objects, config=config)
    if started is not None:
        started(app)
    try:
        _run(app, config)
        if stay is not None and live.staying and not _ended(app):
            stay(session)
    finally:
        session.close()
    return _exit_code(app)
