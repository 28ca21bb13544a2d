"""A person in front of the screen of ``tdbg listen``, with trainings that a test drives from the other side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from tests.live.doubles import FakeTraining, FakeTrainings
from tests.tui.driver import Driver
from tui_debugger.demo.live import playing
from tui_debugger.live.wire import Event
from tui_debugger.session.live import LiveEvent, LiveSession
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.live import LiveControl, WaitingScreen


class LiveDriver(Driver):
    """See ``Driver``."""

    def __init__(self, app: TdbgApp, pilot: Pilot[int], trainings: FakeTrainings, control: LiveControl) -> None:
        super().__init__(app, pilot)
        self.trainings = trainings
        self.control = control
        self.live = live = control.session
        self._stops = 0
        live.subscribe(self._heard)

    def _heard(self, event: LiveEvent) -> None:
        self._stops += event.kind is Event.STOPPED

    def _idle(self) -> bool:
        return not self.control.busy and super()._idle()

    @property
    def header(self) -> str:
        return self.main.header.plain

    @property
    def notice(self) -> str:
        return self.main.footer.notice

    @property
    def orders(self) -> list[list[str]]:
        """What each training was told."""
        return [training.orders for training in self.trainings.trainings]

    async def ordered(self, *orders: str, rank: int = 0) -> None:
        """Waits until a training was told these things, in all, and forgets them."""
        told = self.trainings.trainings[rank].orders
        await self.until(lambda: tuple(told) == orders)
        told.clear()
        await self.settled()

    async def stopped(self, training: FakeTraining, step: int, *, node: str = "") -> None:
        """The training stops; waits until the session knows."""
        before = self._stops
        training.arrive(step, node=node)
        await self.until(lambda: self._stops > before)
        await self.settled()


@asynccontextmanager
async def listening(
    *, size: tuple[int, int] = (200, 50), recommended: bool | None = True, title: str = "", **options: Any
) -> AsyncIterator[LiveDriver]:
    """The screen before any training came."""
    trainings = FakeTrainings()
    live = LiveSession(trainings)
    control = LiveControl(live, **options)
    app = TdbgApp(live=control, title=title, recommended=recommended)
    async with app.run_test(size=size) as pilot:
        driver = LiveDriver(app, pilot, trainings, control)
        await driver.until(lambda: isinstance(app.screen, WaitingScreen))
        yield driver


@asynccontextmanager
async def attached(
    ranks: int = 1,
    *,
    size: tuple[int, int] = (200, 50),
    recommended: bool | None = True,
    stays: bool = False,
    **training: Any,
) -> AsyncIterator[LiveDriver]:
    """The panes, with trainings that stand before their first step."""
    async with listening(size=size, recommended=recommended, stays=stays) as screen:
        for rank in range(ranks):
            screen.trainings.begin(rank, ranks=ranks, **training)
        await screen.until(lambda: len(screen.live.ranks()) == ranks and screen.main.session is not None)
        await screen.until(lambda: screen.app.screen is screen.main)
        await screen.settled()
        yield screen


@asynccontextmanager
async def demo(size: tuple[int, int] = (200, 50)) -> AsyncIterator[Driver]:
    """The screen of ``tdbg demo --live``."""
    with playing(lambda _: None, pace=0.0) as (session, training):
        app = TdbgApp(live=LiveControl(session), recommended=True)
        async with app.run_test(size=size) as pilot:
            training.start()
            screen = Driver(app, pilot)
            await screen.until(lambda: app.main.session is not None and app.screen is app.main)
            await screen.settled()
            yield screen


async def to_first_hit(screen: Driver) -> None:
    """Lets the training of the demo run until it stops at its NaN."""
    await screen.press("c")
    await screen.until(lambda: "stopped after step 3" in screen.main.header.plain and screen.pane("hits"))
    await screen.settled()
