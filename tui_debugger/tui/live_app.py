"""The program behind ``tdbg listen``: the same screen, with trainings that run in place of a dump."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.collector import settle
from tui_debugger.tui.live_answers import Noted
from tui_debugger.tui.live_desk import LiveDesk

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.session.live import LiveSession


class LiveApp(TdbgApp):
    """Shows the waiting page, then the panes."""

    def __init__(
        self, session: LiveSession, *, title: str = "", warning: str = "", stays: bool = False, **given: Any
    ) -> None:
        """The session listens already.

        Args:
            session: is closed with the screen: every training that waits goes on.
            title: where it listens.
            warning: what the waiting page warns of.
            stays: whoever runs this goes on answering trainings that depend on it, see ``LiveDesk.staying``; the
                session is then let go, and closed by them.
            given: what ``TdbgApp`` takes.
        """
        self._live = session
        self._warning, self._stays = warning, stays
        super().__init__(self._opened, title=title, **given)

    def _opened(self, _: ProgressFn) -> Session:
        return self._live

    def make_desk(self, **given: Any) -> LiveDesk:
        """The screen of trainings."""
        return LiveDesk(self._live, warning=self._warning, stays=self._stays, **given)

    @property
    def live_desk(self) -> LiveDesk:
        """The main screen, as what it is."""
        if not isinstance(self.desk, LiveDesk):
            msg = "not the screen of trainings"
            raise TypeError(msg)
        return self.desk

    def note(self, text: str) -> None:
        """One line in the footer; may be called from any thread."""
        self.desk.post_message(Noted(text))

    def _start(self) -> None:
        self._settle()
        self.live_desk.wait()

    def shut(self) -> None:
        """Stops threads and lets go of trainings."""
        desk = self.live_desk
        if desk.runner is not None:
            desk.runner.close()
        desk.bridge.close()
        if desk.staying:
            self._live.release()
        else:
            self._live.close()


def run_live(
    session: LiveSession,
    *,
    title: str,
    warning: str = "",
    recommended: bool | None = None,
    mouse: bool = True,
    started: Callable[[LiveApp], None] | None = None,
    stay: Callable[[LiveSession], None] | None = None,
) -> int:
    """Runs the screen and returns the exit code.

    Args:
        session: see ``LiveApp``.
        title: where it listens.
        warning: what the waiting page warns of.
        recommended: True adds the recommended watchpoints, False does not offer them, None asks once.
        mouse: whether the screen takes the mouse.
        started: called with the program before its first frame.
        stay: answers trainings that depend on it, once the screen was left, until they end; None: nobody does.
    """
    app = LiveApp(session, title=title, warning=warning, stays=stay is not None, recommended=recommended, settle=settle)
    if started is not None:
        started(app)
    try:
        app.run(mouse=mouse)
        if stay is not None and app.live_desk.staying:
            stay(session)
    finally:
        session.close()
    return app.return_code or 0
