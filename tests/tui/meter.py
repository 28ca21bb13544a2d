"""What a key costs on a large run: bytes written, lines drawn, functions called. None of it is time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
from rich.color import ColorSystem
from rich.style import Style
from textual.drivers.headless_driver import HeadlessDriver
from textual.strip import Strip

import tui_debugger
from tests.terminal.large import open_large
from tests.tui.driver import Driver
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.widgets.bars import FooterBar, FrameLine, HeaderBar, TabStrip
from tui_debugger.tui.widgets.line_window import LineWindow

PACKAGE = str(Path(tui_debugger.__file__).parent)
DRAWN_BY_LINES = (LineWindow, HeaderBar, FrameLine, FooterBar, TabStrip)


class Terminal(HeadlessDriver):
    """A terminal that only counts what is written to it."""

    written = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        Terminal.written += len(data.encode())


@dataclass
class Cost:
    """What happened between two moments.

    Attributes:
        bytes: written to the terminal.
        lines: calls of ``render_line`` by id of the widget, or by its class.
        calls: functions of the package called in the thread that draws; a loop over a generator counts every turn.
    """

    bytes: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    calls: int = 0


class MeteredDriver(Driver):
    """A person whose keys are paid for."""

    drawn: Counter[str]

    async def cost(self, *keys: str) -> Cost:
        """Presses keys and waits until everything they lead to is done."""
        self.drawn.clear()
        before = Terminal.written
        with calls_counted() as calls:
            for key in keys:
                await self.press(key)
                await self.settled()
        return Cost(Terminal.written - before, Counter(self.drawn), calls[PACKAGE])

    def _idle(self) -> bool:
        """Asks as often as a thread is late: that is no part of what a key costs."""
        counting = sys.getprofile()
        sys.setprofile(None)
        try:
            return super()._idle()
        finally:
            sys.setprofile(counting)


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """Counts calls of functions of the package in this thread."""
    calls: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[PACKAGE] += 1

    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def in_256_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets programs think that this is a terminal of 256 colours."""
    for name in ("COLORTERM", "NO_COLOR", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    render = Strip.render_style

    def fresh(style: Style, text: str, color_system: ColorSystem) -> str:
        style._ansi = None  # styles keep the codes that they were drawn with first, which may be another test's
        return render(style, text, color_system)

    monkeypatch.setattr(Strip, "render_style", staticmethod(fresh))


class KeptSession(Session):
    """A session that one screen after the other is opened on: what the first has checked need not be checked again."""

    def close(self) -> None:
        """Leaves everything as it is."""


@cache
def kept_session(nodes: int, steps: int) -> Session:
    """The session of a large run for all who only look at it."""
    return open_large(nodes, steps, KeptSession)


@asynccontextmanager
async def metered(
    nodes: int, steps: int, monkeypatch: pytest.MonkeyPatch, open_run: Callable[[int, int], Session] = kept_session
) -> AsyncIterator[MeteredDriver]:
    """The screen of a large run at 200x50, in 256 colours, opened, checked and idle.

    Who changes watchpoints opens the run with ``open_large``: the session of the others stays as it is.
    """
    in_256_colours(monkeypatch)
    lines: Counter[str] = Counter()
    for kind in DRAWN_BY_LINES:
        draw = kind.render_line

        def counted(self: LineWindow, y: int, draw: object = draw) -> Strip:
            lines[self.id or type(self).__name__] += 1
            strip: Strip = draw(self, y)  # type: ignore[operator]  # a method of any of them
            return strip

        monkeypatch.setattr(kind, "render_line", counted)

    def open_session(progress: ProgressFn) -> Session:
        session = open_run(nodes, steps)
        session.open(progress)
        return session

    app = TdbgApp(open_session, title="large", recommended=False)
    app.driver_class = Terminal
    async with app.run_test(headless=False, size=(200, 50)) as pilot:
        driver = MeteredDriver(app, pilot)
        driver.drawn = lines
        await driver.until(lambda: app.main.session is not None)
        await driver.settled()
        yield driver
