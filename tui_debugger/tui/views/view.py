"""The base of the views: work beside the event loop, one key each for the other views, copy and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from textual.binding import BindingType

from tui_debugger.errors import CancelledError
from tui_debugger.tui.screens.modal import Modal
from tui_debugger.tui.views.keys import VIEW_ACTIONS, bindings, opening_bindings
from tui_debugger.words.numbers import percent

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn
    from tui_debugger.session import Session
    from tui_debugger.tui.actions import Action
    from tui_debugger.tui.views.extract import Extract
    from tui_debugger.tui.views.focus import Focus

T = TypeVar("T")


class Host(Protocol):
    """Who opens views and works for them: the main screen, or a test."""

    @property
    def session(self) -> Session:
        """The open session."""

    def open(self, view: str, focus: Focus) -> None:
        """Opens a view (an id of ``kinds.VIEWS``, or ``values``) above the current one."""

    def go_to(self, focus: Focus) -> None:
        """Closes every view and shows the tensor on the main screen: its rank, step, node and slot."""

    def run(
        self,
        view: View,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        told: Callable[[Progress], None],
    ) -> None:
        """Does ``work`` beside the event loop; newer work of the same view replaces it.

        ``done``, ``failed`` and ``told`` (how far it is) are called on the event loop, ``told`` at most 4 times a
        second. The function that ``work`` gets raises CancelledError once nobody waits any more.
        """

    def stop(self, view: View) -> bool:
        """Cancels the work of a view; False when there is none."""


class View(Modal[None]):
    """A screen about one tensor (or the run). Esc stops work, then goes back.

    Attributes:
        host: who opened it.
        about: the tensor it is about.
    """

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [*opening_bindings(), *bindings(VIEW_ACTIONS)]
    OWN_ACTIONS: ClassVar[tuple[Action, ...]] = ()
    """The keys of this view alone, for its help page; bind them with ``keys.bindings``."""

    def __init__(self, host: Host, about: Focus) -> None:
        """Nothing is read before the view shows: start with :meth:`work` in ``on_mount``."""
        super().__init__()
        self.host = host
        self.about = about
        self._job: object = None

    # -- what a view may override ------------------------------------------------------------------

    @property
    def focus_here(self) -> Focus:
        """The tensor under the cursor, which the other views open on. By default the one it is about."""
        return self.about

    def extract(self) -> Extract | None:
        """What can be copied and exported; None while there is nothing."""
        return None

    # -- work beside the event loop ----------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Whether something is under way."""
        return self._job is not None

    def work(self, what: str, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Runs ``job`` and hands its result to ``done``, unless newer work was started or Esc pressed.

        Args:
            what: two or three words, shown with the progress.
            job: called in a worker with a function to be called with progress; touches no widget.
            done: called on the event loop.
        """
        mine = self._job = object()
        self.say(f"{what} …  Esc stops", note=True)

        def current() -> bool:
            return self._job is mine and self.is_attached

        def finished(result: T) -> None:
            if current():
                self._job = None
                self.say("")
                done(result)

        def failed(error: Exception) -> None:
            if current():
                self._job = None
                self.failed(error)

        def told(progress: Progress) -> None:
            if current():
                self.say(f"{what} {_how_far(progress)} …  Esc stops", note=True)

        self.host.run(self, job, finished, failed, told)

    def failed(self, error: Exception) -> None:
        """Says why the work ended without a result."""
        self.say("stopped" if isinstance(error, CancelledError) else str(error), note=isinstance(error, CancelledError))

    def action_cancel(self) -> None:
        """Esc: stops what is under way, else goes back."""
        if self._job is not None:
            self._job = None
            self.host.stop(self)
            self.say("stopped", note=True)
        else:
            self.dismiss(None)

    # -- keys of every view ------------------------------------------------------------------------

    def action_open(self, view: str) -> None:
        """Another view of the tensor under the cursor."""
        self.host.open(view, self.focus_here)

    def action_keys(self) -> None:
        """All keys of this view."""
        from tui_debugger.tui.screens.help import HelpScreen
        from tui_debugger.tui.views.keys import opening_actions

        common = (replace(action, group="Every view") for action in (*opening_actions(), *VIEW_ACTIONS))
        shown = (*self.OWN_ACTIONS, *common)
        self.app.push_screen(HelpScreen(shown, conditions=False, heading=f"Keys: {self.heading}"))

    def action_copy(self) -> None:
        """What is under the cursor, to the clipboard."""
        from tui_debugger.tui.views.handing_out import copy

        copy(self, everything=False)

    def action_copy_all(self) -> None:
        """Everything, to the clipboard."""
        from tui_debugger.tui.views.handing_out import copy

        copy(self, everything=True)

    def action_export(self) -> None:
        """To a file."""
        from tui_debugger.tui.views.handing_out import export

        export(self)

    def action_screenshot(self) -> None:
        """A picture of the screen."""
        from tui_debugger.tui.views.handing_out import screenshot

        if not self.working:
            self.say("")  # what was said before is no part of the picture
        self.call_after_refresh(screenshot, self.app, lambda text: self.say(text, note=True), self.say)


def _how_far(progress: Progress) -> str:
    if progress.total:
        return f"{percent(100 * min(progress.done / progress.total, 1.0))} %"
    return progress.text
