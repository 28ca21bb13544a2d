"""What is kept of the screen is what would be drawn now, and what the collector sets aside is let go of again."""

from __future__ import annotations

import subprocess
import sys

import pytest
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tests.tui.meter import MeteredDriver, metered
from tui_debugger.tui.widgets.line_window import CachedLines

NODES, STEPS = 300, 2
TOUR = (
    *("asterisk", "home", "down", "pagedown", "up", "left", "right", "end", "tab", "tab", "4", "down", "pagedown"),
    *(
        "right_square_bracket",
        "z",
        "down",
        "tab",
        "z",
        "1",
        "slash",
        "b",
        "escape",
        "escape",
        "2",
        "m",
        "3",
        "5",
        "down",
    ),
)
"""Touches every pane, with and without sides, search box and filter line."""


def drawn(driver: MeteredDriver) -> list[list[Strip]]:
    """Every widget's lines as the screen has them."""
    return [widget.render_lines(Region(0, 0, *widget.outer_size)) for widget in kept(driver)]


def kept(driver: MeteredDriver) -> list[Widget]:
    """The widgets on the screen that keep lines."""
    return [widget for widget in driver.app.screen._compositor.visible_widgets if isinstance(widget, CachedLines)]


async def test_kept_lines_are_those_that_textual_would_draw_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(NODES, STEPS, monkeypatch) as screen:
        for key in TOUR:
            await screen.press(key)
            await screen.settled()
            assert len(kept(screen)) > 4
            before = drawn(screen)
            for widget in kept(screen):
                widget._styles_cache.clear()
            by_textual = [Widget.render_lines(widget, Region(0, 0, *widget.outer_size)) for widget in kept(screen)]
            for widget, ours, theirs in zip(kept(screen), before, by_textual, strict=True):
                assert [list(line.simplify()) for line in ours] == [list(line.simplify()) for line in theirs], (
                    key,
                    widget,
                )


LOOP = """
import gc, weakref
from tui_debugger.tui import app

class Loop:  # garbage that only the collector finds
    def __init__(self):
        self.own = self

loop = Loop()
seen = weakref.ref(loop)
"""


def run_alone(program: str) -> None:
    """Runs a program in a process of its own: in ours the collector would look at all tests, and be set up anew."""
    done = subprocess.run([sys.executable, "-c", LOOP + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_garbage_that_was_set_aside_is_found_when_more_is_set_aside() -> None:
    run_alone("""
app.freeze_objects()
del loop
gc.collect()
assert seen() is not None
app.freeze_objects()
assert seen() is None
""")


def test_garbage_is_found_when_it_is_quiet_however_long_it_lived() -> None:
    run_alone("""
app.freeze_objects()
old = Loop()
seen = weakref.ref(old)
gc.collect(1)  # it lives through this, and belongs to the oldest from now on
del old
for _ in range(app.FULL_WHEN_QUIET + 1):
    app.collect_garbage()
assert seen() is None
""")
