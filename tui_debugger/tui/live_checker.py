"""Checking while trainings are attached: of the newest stop of every rank, the trainings themselves say what hits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui_debugger.live.wire import Phase
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import live_words
from tui_debugger.tui.answers import Checked
from tui_debugger.tui.bridge import Report
from tui_debugger.tui.checker import Checker, check_parts, counted

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.session import CheckResult
    from tui_debugger.session.live import LiveSession
    from tui_debugger.tui.live_desk import LiveDesk


class LiveChecker(Checker):
    """Keeps the hits of all ranks in one list."""

    def __init__(self, desk: LiveDesk) -> None:
        """Nothing checked."""
        super().__init__(desk)
        self._live: LiveSession = desk.live
        self._announced = True

    @property
    def at_newest(self) -> bool:
        """Whether the newest step of the rank is shown."""
        steps, step = self._live.steps(self._desk.state.rank), self._desk.state.step
        return not steps or step is None or step >= steps[-1]

    def _pairs(self) -> tuple[Pair, ...]:
        """The newest stop of every rank, which need not be the same step; of an older step the ranks that kept it."""
        if not self.at_newest:
            return super()._pairs()
        return tuple((rank, steps[-1]) for rank in self._live.ranks() if (steps := self._live.steps(rank)))

    def opened(self) -> None:
        """The first graph is there."""
        self.arrived(announce=False)

    def arrived(self, *, announce: bool = True) -> None:
        """A training stopped: shows what it found."""
        session, pairs = self._live, self._pairs()
        if not pairs:
            self._show(None)
            return
        self._announced = not announce
        self._desk.bridge.run(
            "check", lambda report: counted(session.known(pairs) or check_parts(session, pairs, report))
        )

    def recheck(self) -> None:
        """At the newest stop the trainings that wait look again; earlier steps are judged here."""
        session, pairs, desk = self._live, self._pairs(), self._desk
        states = {state.rank: state for state in session.trainings()}
        waiting = [rank for rank in session.ranks() if states[rank].phase is Phase.STOPPED]
        if not self.at_newest or not pairs or self._nothing_to_check:
            super().recheck()
        elif not waiting:
            desk.say(live_words.refusal(states.get(desk.state.rank)), bad=True)
        else:

            def work(report: Report) -> Checked:
                session.recheck(waiting, report)
                return counted(session.known(pairs) or check_parts(session, pairs, report))

            desk.bridge.run("check", work)

    def checked(self, message: Checked) -> None:
        """Says how many hits a stop has."""
        super().checked(message)
        if not message.final or self._announced:
            return
        self._announced = True
        shown = self._desk.hits_pane.shown
        if shown and message.result.pairs:
            steps = {step for _, step in message.result.pairs}
            place = f"step {step_text(min(steps))}" if len(steps) == 1 else plural(len(message.result.pairs), "rank")
            self._desk.say(f"{place}: {plural(shown, 'hit')}, n goes to the first")

    def _empty(self, result: CheckResult | None) -> str:
        """The words of an empty list."""
        if self._nothing_to_check or result is None or not result.pairs:
            return super()._empty(result) if self._pairs() else "nothing to check yet: ] runs a step"
        return f"no hit in {self._where(result)}: c runs to the next step with one"
