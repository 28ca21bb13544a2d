"""The screen of ``tdbg listen``, and of ``tdbg demo --live``."""

from __future__ import annotations

import argparse
import gc
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tui_debugger.cli.open_ import require_terminal
from tui_debugger.cli.options import given_watchpoints

if TYPE_CHECKING:
    from tui_debugger.model import Watchpoint
    from tui_debugger.session.live import LiveSession
    from tui_debugger.tui.live_app import LiveApp

LOOK: Final = 1.0
"""Seconds between two looks at whether a training still runs; what happens to it is noticed at once."""


def run_screen(arguments: argparse.Namespace) -> int:
    """Listens, and shows what comes.

    Returns:
        The exit code.

    Raises:
        TdbgError: nothing can listen at that address, a --watch text or file is wrong, or there is no terminal.
    """
    watches = given_watchpoints(arguments)
    require_terminal()
    from tui_debugger.cli.listen_common import exposed, open_live

    session = open_live(arguments)
    return show(
        session,
        watches,
        title=f"listens at {session.address}",
        warning=exposed(arguments),
        recommended=arguments.recommended,
        mouse=not arguments.no_mouse,
        stay=stay,
    )


def run_demo(arguments: argparse.Namespace) -> int:
    """Plays the recorded training. Raises as ``run_screen``."""
    watches = given_watchpoints(arguments)
    require_terminal()
    from tui_debugger.demo.live import playing

    apps: list[LiveApp] = []

    def missing(text: str) -> None:
        for app in apps:
            app.note(text)

    def started(app: LiveApp) -> None:
        apps.append(app)
        training.start()

    with playing(missing, source_map=arguments.source_map) as (session, training):
        return show(
            session,
            watches,
            title="a recorded training of MindSpore 2.0.0",
            recommended=arguments.recommended,
            mouse=not arguments.no_mouse,
            started=started,
        )


def show(
    session: LiveSession,
    watches: Sequence[Watchpoint],
    *,
    title: str,
    recommended: bool | None,
    mouse: bool,
    warning: str = "",
    started: Callable[[LiveApp], None] | None = None,
    stay: Callable[[LiveSession], None] | None = None,
) -> int:
    """Runs the screen on a session that listens already; returns the exit code."""
    session.watchpoints.add_missing(watches)
    gc.disable()  # until the first frame, see ``cli.screen``
    try:
        from tui_debugger.tui.live_app import run_live

        return run_live(
            session,
            title=title,
            warning=warning,
            recommended=recommended,
            mouse=mouse,
            started=started,
            stay=stay,
        )
    finally:
        gc.enable()


def stay(session: LiveSession) -> None:
    """Answers trainings that would end without anybody who does, until they end by themselves, or Ctrl-C."""
    ended = threading.Event()
    unsubscribe = session.subscribe(lambda _: ended.set())
    print("tdbg: the training goes on without watchpoints; this process stays until its end, because MindSpore ends")
    print("tdbg: a training that nobody answers (Ctrl-C leaves, and with it the training ends)", flush=True)
    try:
        while session.dependents():
            ended.wait(LOOK)
            ended.clear()
    finally:
        unsubscribe()
