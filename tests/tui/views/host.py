"""Who opens a view in a test: works at once, and remembers what the view asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.tui.screens_host import Opened, opened
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.comparison import RunComparison
from tui_debugger.tui.view_opener import NOWHERE
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import View

V = TypeVar("V", bound=View)


class PlainHost:
    """See ``tui.views.view.Host``.

    Attributes:
        opened: (view, focus) of every view that was asked for.
        gone: where ``go_to`` led.
        busy: the view that is worked for.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened: list[tuple[str, ViewTarget]] = []
        self.gone: list[ViewTarget] = []
        self.busy: View | None = None
        self.comparison: RunComparison | None = None

    def open(self, view: str, focus: ViewTarget) -> None:
        self.opened.append((view, focus))

    def go_to(self, focus: ViewTarget) -> None:
        self.gone.append(focus)

    def run(
        self,
        view: View,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        progressed: Callable[[Progress], None],
    ) -> None:
        try:
            self.busy = view
            result = work(progressed)
        except Exception as error:  # noqa: BLE001 - handed on, as a worker would
            failed(error)
        else:
            done(result)
        finally:
            self.busy = None

    def stop(self, view: View) -> bool:
        return view is self.busy


@asynccontextmanager
async def opened_view(
    kind: type[V], session: Session, size: tuple[int, int], about: ViewTarget | None = None
) -> AsyncIterator[tuple[Opened, PlainHost, V]]:
    """A view of a run, or of something in it."""
    host = PlainHost(session)
    view = kind(host, about or ViewTarget(NOWHERE, -1))
    async with opened(view, size) as screen:
        await screen.pilot.pause()
        yield screen, host, view
