"""An app with nothing in it, to open one screen and see what it shows and returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rich.cells import cell_len
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from tui_debugger.tui.theme import THEME

HOSTILE = (
    "[red]x[/]",
    "\x1b[2J\x1b]0;owned\x07",
    "n" * 300,
    b"bad-\xff-utf8".decode("utf-8", "surrogateescape"),
    "宽字符/层" * 20,
    "a\nb\tc\r\u202eevil",
)
PENDING = object()


class Host(App[None]):
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self.opened = screen
        self.result: Any = PENDING

    def on_mount(self) -> None:
        self.animation_level = "none"
        self.register_theme(THEME)
        self.theme = "tdbg"
        self.push_screen(self.opened, self.keep)

    def keep(self, result: Any) -> None:
        self.result = result


class Opened:
    """A screen under test."""

    def __init__(self, app: Host, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*text)

    async def command(self, action: str) -> None:
        """Does an action as the command palette does."""
        await self.app.screen.run_action(action)
        await self.pilot.pause()

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.pilot.pause()

    @property
    def lines(self) -> Sequence[str]:
        """What stands on the terminal, line by line."""
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)

    @property
    def result(self) -> Any:
        return self.app.result

    @property
    def open(self) -> bool:
        return self.app.result is PENDING

    def check_clean(self) -> None:
        """Nothing of the user's data may reach the terminal raw, and no line may be wider than the screen."""
        width = self.app.size.width
        for line in self.lines:
            assert cell_len(line) == width, ascii(line)
            assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in line), ascii(line)
            assert "\u202e" not in line, ascii(line)


@asynccontextmanager
async def opened(screen: Screen[Any], size: tuple[int, int] = (80, 24)) -> AsyncIterator[Opened]:
    app = Host(screen)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Opened(app, pilot)
