"""A person in front of the screen: drives the app through Pilot, waits on conditions, reads the terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.patience import PATIENCE
from tests.tui import idle
from tui_debugger.check.records import StatsCache
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.model import ProgressFn, RunInfo, Watchpoint, no_progress
from tui_debugger.session import Session
from tui_debugger.session.following import RunFollower
from tui_debugger.sources.base import Source
from tui_debugger.sources.registry import open_source
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.widgets.virtual_table import VirtualTable


class Person:
    """A person in front of any screen of the program."""

    def __init__(self, app: TdbgApp, pilot: Pilot[int | Path]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)

    async def type(self, text: str) -> None:
        await self.press(*("space" if c == " " else c for c in text))

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits until something holds and the workers are idle."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"never happened; the screen shows:\n{self.text}"
            await asyncio.sleep(0.002)
        await self.pilot.pause()

    @property
    def lines(self) -> list[str]:
        """What stands on the terminal."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Driver(Person):
    """A person in front of the main screen."""

    @property
    def main(self) -> MainScreen:
        return self.app.main

    @property
    def session(self) -> Session:
        assert self.main.session is not None
        return self.main.session

    async def settled(self) -> None:
        """Waits until no work is running and the quiet time of the inspector is over."""
        while True:
            await self.until(self._idle)
            if self._idle():
                return

    async def press_each(self, *keys: str) -> None:
        """Presses keys, each after the work that the one before began."""
        for key in keys:
            await self.press(key)
            await self.settled()

    def _idle(self) -> bool:
        main = self.main
        if main.session is None:  # a training that was heard of, and is not on the screen yet
            return False
        return not (main.inspector.pending or main.watcher.pending or main._header_due) and main.work.idle

    def rows(self, table: VirtualTable) -> list[str]:
        """All rows of a table as text, cells joined by blanks."""
        rows = table.rows
        return [" ".join(str(cell) for cell in rows.cells(i)) for i in range(rows.row_count)]

    def pane(self, name: str) -> list[str]:
        return self.rows(self.main.panes[name].table)


@dataclass(frozen=True)
class Measured:
    """A dump that nobody changes, with all that one screen after the other has measured of it, and found in it.

    What a file holds is measured once, and a step is judged once by the same watchpoints, as in a program whose first
    screen was closed. Each screen still asks for its checks, and puts what they found together for itself.
    """

    source: Source
    stats: StatsCache = field(default_factory=StatsCache)
    judged: dict[tuple[Pair, tuple[Watchpoint, ...]], PairResult] = field(default_factory=dict)

    @classmethod
    @cache
    def of(cls, path: Path) -> Measured:
        """The dump of a path, the same one every time."""
        return cls(open_source(path))


class ShownSession(Session):
    """A session whose dump is said to lie somewhere else."""

    def __init__(self, source: Source, shown_as: str = "", source_map: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(source, source_map=source_map)
        self._shown_as = shown_as

    @property
    def info(self) -> RunInfo:
        return replace(super().info, path=self._shown_as or super().info.path)


class KnownSession(ShownSession):
    """The session of a dump that nobody changes: see ``Measured``."""

    def __init__(self, path: Path, shown_as: str = "", source_map: Sequence[tuple[str, str]] = ()) -> None:
        self._measured = Measured.of(path)
        super().__init__(self._measured.source, shown_as, source_map)
        self._cache = self._measured.stats
        self._follower = RunFollower(self.source, self._cache)

    def check(
        self,
        pairs: Sequence[Pair],
        progress: ProgressFn = no_progress,
        on_result: Callable[[CheckResult], None] | None = None,
    ) -> CheckResult:
        """Checks; what another session has judged by the same watchpoints is known already."""
        (version, watchpoints), known = self._checks.listed(), self._checks.known_results
        judged = self._measured.judged
        for pair in pairs:
            if known.fresh(pair, version) is None and (pair, watchpoints) in judged:
                with known.judging(pair) as ticket:
                    known.put(ticket, version, judged[pair, watchpoints])
        checked = super().check(pairs, progress, on_result)
        for pair in pairs:
            if (result := known.fresh(pair, version)) is not None:
                judged[pair, watchpoints] = result
        return checked

    def close(self) -> None:
        """Leaves the dump as it is."""
        self.workers.close()


@asynccontextmanager
async def opened(
    path: Path,
    *,
    measured: bool = False,
    size: tuple[int, int] = (200, 50),
    recommended: bool | None = True,
    source_map: Sequence[tuple[str, str]] = (),
    title: str = "",
    shown_as: str = "",
    **options: Any,
) -> AsyncIterator[Driver]:
    """The screen on a dump: opened, checked and idle. ``shown_as`` stands for the path of the dump.

    With ``measured`` it knows of the files what screens before it have measured: see ``Measured``.
    """

    def open_session(progress: ProgressFn) -> Session:
        session = (
            KnownSession(path, shown_as, source_map)
            if measured
            else ShownSession(open_source(path), shown_as, source_map)
        )
        session.open(progress)
        return session

    async with opened_by(open_session, size=size, title=title or str(path), recommended=recommended, **options) as it:
        yield it


@asynccontextmanager
async def opened_by(
    open_session: Callable[[ProgressFn], Session], *, size: tuple[int, int] = (200, 50), **options: Any
) -> AsyncIterator[Driver]:
    """The screen on any session: opened, checked and idle."""
    app = TdbgApp(open_session, **options)
    with idle.never_sleeping():
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            await driver.until(lambda: app.main.session is not None)
            await driver.settled()
            yield driver
