"""Opens the screen on a dump, waits until it is idle, and says what its first line says."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.session.opened import watch
from tests.tui import idle
from tests.tui.driver import Driver
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source
from tui_debugger.tui.app import TdbgApp


async def opened(path: Path) -> int:
    """Prints the headline; returns 0 when it calls the dump clean, else 2."""

    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(path))
        session.open(progress)
        watch(session, "TO")
        return session

    app = TdbgApp(open_session, title=str(path), recommended=False)
    with idle.waiting_on_conditions():
        async with app.run_test(size=(120, 40)) as pilot:
            screen = Driver(app, pilot)
            await screen.until(lambda: app.main.session is not None or app.screen is not app.main)
            if app.main.session is None:  # the dialog that says why
                headline = screen.text
            else:
                await screen.settled()
                headline = screen.lines[1].strip() or screen.text  # a dump without a tensor has none
            mistaken = "a mistake in tdbg" in screen.text
    sys.stdout.write(headline + ("\ninternal error\n" if mistaken else "\n"))
    return 0 if "clean" in headline.lower() else 2
