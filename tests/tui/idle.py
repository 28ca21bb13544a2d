"""Waiting until a program of Textual has nothing left to do, by what it has to do and not by the clock.

Textual's own Pilot sleeps 20 milliseconds at a time, twice a key and more, until the process looks idle: that is most
of the time of a test that presses keys, and on a busy machine it sleeps up to a second each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from textual._context import active_app

from tests.patience import PATIENCE
from tui_debugger.tui import inspector
from tui_debugger.tui.dialogs import watchpoint_form


@contextmanager
def never_sleeping() -> Iterator[None]:
    """Pilot does not sleep after each key."""
    with patch("textual.app.wait_for_idle", wait_for_idle), patch("textual.pilot.wait_for_idle", wait_for_idle):
        yield


@contextmanager
def waiting_on_conditions() -> Iterator[None]:
    """As above, and the screen does not wait whether another key follows."""
    with (
        never_sleeping(),
        patch.object(inspector, "QUIET", 0.001),
        patch.object(watchpoint_form, "COUNT_AFTER", 0.001),
    ):
        yield


async def wait_for_idle(_least: float = 0, _most: float = 1) -> None:
    """Waits until the loop has nothing that it could run now, and no screen anything that it has yet to draw.

    In the place of ``textual._wait.wait_for_idle``. Timers that are due later are not waited for, and neither is what
    other threads do: whoever needs that waits on a condition of its own.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while loop.time() < end:
        await asyncio.sleep(0)  # lets everything run that is ready, and looks what has come in from other threads
        if not loop._ready and not drawn():  # type: ignore[attr-defined]  # asyncio has no public name for it
            return


def drawn() -> bool:
    """Draws what would be drawn at the next 60th of a second, and returns whether there was anything."""
    app = active_app.get()
    due = [screen for screen in app._screen_stack if screen._update_timer._active.is_set()]
    for screen in due:  # those in the background, too: what they leave undrawn makes the one in front draw later
        screen._on_timer_update()
    if app._resize_event is not None:
        app._check_resize()
        return True
    return bool(due)
