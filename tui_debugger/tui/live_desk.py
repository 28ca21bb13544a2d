"""The screen of trainings that run: the five panes over a live session; the waiting page before the first graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType

from tui_debugger.errors import CancelledError
from tui_debugger.live.wire import Phase, Stop
from tui_debugger.text.numbers import plural
from tui_debugger.tui import live_actions, messages
from tui_debugger.tui.actions import Action
from tui_debugger.tui.desk import Desk
from tui_debugger.tui.live_answers import Followed, Noted, Ordered, Stirred
from tui_debugger.tui.live_checker import LiveChecker
from tui_debugger.tui.live_header import live_lines, waiting_lines
from tui_debugger.tui.live_runner import Runner
from tui_debugger.tui.live_words import status, who
from tui_debugger.tui.views.view import News

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.session import Session
    from tui_debugger.session.live import LiveSession
    from tui_debugger.tui.dialogs.waiting import WaitingScreen
    from tui_debugger.tui.opening import HeaderLines

REFUSALS = 20
"""Refusals that the waiting page lists."""


class LiveDesk(Desk):
    """See ``Desk``.

    Attributes:
        live: the session, there from the beginning; ``session`` only once the first graph is.
        staying: the user left, and trainings depend on somebody who answers them.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(live_actions.added_bindings())
    KEPT = "kept"

    def __init__(self, live: LiveSession, *, warning: str = "", stays: bool = False, **given: Any) -> None:
        """Shows empty panes until ``wait``.

        Args:
            live: the session.
            warning: what the waiting page warns of.
            stays: the program goes on without the screen as long as a training depends on it.
            given: what ``Desk`` takes.
        """
        super().__init__(**given)
        self.live = live
        self.tensors_pane.absent = "not kept"
        self.runner: Runner | None = None
        self._warning = warning
        self._opening = False
        self._stays = stays
        self.staying = False
        self._waiting_page: WaitingScreen | None = None
        self._stops: dict[int, Stop] = {}

    # -- waiting for the first training --------------------------------------------------------------

    def wait(self) -> None:
        """The first frame is there: listens, and shows where trainings find this program."""
        from tui_debugger.tui.dialogs.waiting import WaitingScreen

        self.runner = Runner(self)
        self.handlers |= {"pause": self.runner.pause, "quit": self._quit}
        terminate = self.runner.ask_terminate
        self._waiting_page = WaitingScreen(self.live.waiting_text, self._warning, self._quit, terminate)
        self.app.push_screen(self._waiting_page)
        self.runner.opened()  # what came before anybody listened

    def open_run(self) -> None:
        """A training came: its graph is read as soon as it is there."""
        live = self.live
        self._show_waiting()
        if live.ranks() and not self._opening:
            self._opening = True

            def work(report: Any) -> messages.Opened:
                live.refresh()
                live.open(report)
                return messages.Opened(live)

            self.bridge.run("open", work)

    def start(self, session: Session) -> None:
        """The first graph is there."""
        if self._waiting_page is not None:
            self._waiting_page.leave()
            self._waiting_page = None
        super().start(session)
        if self.runner is not None:
            self.handlers |= self.runner.handlers()
            self.runner.opened()

    def refused(self, text: str) -> None:
        """A client was turned away."""
        if text:
            self.say(f"refused: {text}", bad=True)
            self._show_waiting()

    def _show_waiting(self) -> None:
        if self._waiting_page is not None:
            self._waiting_page.show(self.live.trainings(), self.live.refusals[-REFUSALS:])

    # -- what is different from a dump ---------------------------------------------------------------

    @property
    def live_checker(self) -> LiveChecker:
        """The checker of trainings."""
        if not isinstance(self.checker, LiveChecker):
            msg = "no training is there"
            raise TypeError(msg)
        return self.checker

    def make_checker(self) -> LiveChecker:
        """The trainings themselves say what hits."""
        return LiveChecker(self)

    def keys_here(self) -> list[Action]:
        """With those that drive trainings."""
        return live_actions.live_reachable(self.current_pane)

    def keys_of_footer(self) -> list[Action]:
        """Likewise."""
        return live_actions.live_footer(self.current_pane)

    def keys_of_help(self) -> tuple[Action, ...]:
        """Likewise."""
        return live_actions.live_help()

    def update_header(self) -> None:
        """Who and where; what the training does."""
        if self.session is None:
            self.header.show(*waiting_lines(self.run_title, len(self.live.trainings())))
            self._update_tabs()
        else:
            super().update_header()

    def header_text(self) -> HeaderLines:
        """The lines of the rank that is shown."""
        one = self.runner is not None and not self.runner.all_ranks
        return live_lines(self.live, self.state, self.progress, self.checker.status(), one_rank=one)

    # -- answers -------------------------------------------------------------------------------------

    def on_stirred(self, _: Stirred) -> None:
        """Something happened to a training."""
        if self.runner is not None:
            self.runner.stirred()

    def on_noted(self, message: Noted) -> None:
        """Whoever plays the training says something."""
        self.say(message.text)

    def on_ordered(self, message: Ordered) -> None:
        """A command was taken."""
        self._route(message, lambda ordered: self.say(ordered.text) if ordered.text else None)

    def on_followed(self, message: Followed) -> None:
        """What trainings sent was taken in."""
        if self.runner is not None:
            self._route(message, self.runner.followed)
            if self.session is not None:
                self.views.tell(News.of_training(message.changes, self._renewed()))

    def _renewed(self) -> list[Pair]:
        """Where trainings went on within a step since the last call: what they hold of it may be different."""
        stops = {state.rank: state.stop for state in self.live.trainings() if state.stop is not None}
        before, self._stops = self._stops, stops
        both = ((rank, before.get(rank), stop) for rank, stop in stops.items())
        return [(rank, stop.step) for rank, old, stop in both if old and old.step == stop.step and old != stop]

    def on_failed(self, message: messages.Failed) -> None:
        """A graph that cannot be read ends nothing: another training may come."""
        message.prevent_default()  # Textual would call the handler that this one calls once more
        if message.lane == "open" and self.bridge.fresh(message):
            self._opening = False
            self.show_error(message.error)
        else:
            super().on_failed(message)

    def _failed(self, message: messages.Failed) -> None:
        if message.lane == "follow" and self.runner is not None:
            self.runner.failed()
        if message.lane in {"order", "end", "check"} and not isinstance(message.error, CancelledError):
            error = messages.presentable(message.error)
            self.say(" — ".join(part for part in (error.what, error.hint) if part), bad=True)
            self.checker.changed()
        else:
            super()._failed(message)

    # -- leaving -------------------------------------------------------------------------------------

    def _quit(self) -> None:
        """Asks once what becomes of trainings that wait, or that end with this program."""
        from tui_debugger.tui.dialogs.prompts import ConfirmScreen

        depends = self.live.dependents() if self._stays else ()
        held = {
            state.rank: state
            for state in self.live.trainings()
            if state.phase in {Phase.STOPPED, Phase.MISMATCH} or state.rank in depends
        }
        if not held:
            self.app.exit()
            return
        lines = [f"{who(state)}: {status(state)[1]}" for state in held.values()]
        if depends:
            lines.append("MindSpore ends a training that nobody answers: tdbg stays, without the screen, until its end")
        it = "it" if len(held) == 1 else "them"
        answers = (("g", f"let {it} go on", "go"), ("t", f"terminate {it}", "terminate"))
        screen = ConfirmScreen(f"Leave {plural(len(held), 'training')}", lines, answers)
        self.app.push_screen(screen, lambda answer: self._leave(answer, tuple(held), stay=bool(depends)))

    def _leave(self, answer: str | None, ranks: Sequence[int], *, stay: bool) -> None:
        if answer is None:
            return
        if answer == "terminate":
            self.live.terminate(ranks)
        self.staying = stay and answer == "go"
        self.app.exit()  # then the session lets everything go on
