"""Whatever a client and people do, in any order: what always holds of the state machine."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.live.server.test_conversation import VIEW, watchpoint
from tests.thorough import examples
from tui_debugger.errors import LostError, NotStoppedError
from tui_debugger.live import wire
from tui_debugger.live.server.conversation import (
    ClientQuestion,
    Command,
    Exit,
    Recheck,
    RunNode,
    RunPlan,
    RunStep,
    TensorRequest,
    TrainingConversation,
    TrainingReport,
    Unwatch,
    Watch,
)
from tui_debugger.live.wire import START, Event, Phase, RemoteWatchpoint


class Talk(RuleBasedStateMachine):
    """Any order of what a client and people may do; a client only ever does one thing at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.it = TrainingConversation(0.0, features=wire.RUNS_TO_NODES)
        self.now = 0.0
        self.call = 0
        self.inside = False
        self.answered_calls: set[int] = set()
        self.told: list[Command] = []
        self.known: dict[int, RemoteWatchpoint] = {}
        self.wanted_slot: dict[int, RemoteWatchpoint] = {}
        self.questions: list[ClientQuestion] = []
        self.unanswered_view = False
        self.count = 0
        self.fresh = True
        self.ending = False

    def _take(self, call: int) -> None:
        command = self.it.command(call)
        if command is None:
            return
        assert call == self.call
        assert call not in self.answered_calls, "a call is answered at most once"
        self.answered_calls.add(call)
        self.inside = False
        assert not (isinstance(command, RunStep | RunNode) and self.unanswered_view)
        if isinstance(command, Watch):
            self.known[command.watchpoint.id] = command.watchpoint
        elif isinstance(command, Unwatch):
            assert command.id in self.known
            del self.known[command.id]
        elif isinstance(command, RunStep | RunNode | Recheck):
            assert self.known == self.wanted_slot, "what is watched is told before it is judged"
        self.unanswered_view = isinstance(command, TensorRequest)
        self.told.append(command)
        self.it.after(command)

    @rule(node=st.sampled_from(["", "a", "b"]))
    def enters(self, node: str) -> None:
        before = self.it.stop
        ran = bool(self.told) and isinstance(self.told[-1], RunStep | RunNode)
        self.call += 1
        self.inside = True
        self.unanswered_view = False
        fresh, self.fresh = self.fresh, False
        events = self.it.enter(self.call, TrainingReport(node=node), self.now)
        if self.it.stop != before:
            assert ran or fresh, "a stop is made by running only"
        assert events.count(Event.STOPPED) <= 1
        self._take(self.call)
        if self.ending:
            assert self.told[-1] == Exit()
        assert not (self.inside and (self.it.released or self.ending)), "who is let go is never kept waiting"

    @precondition(lambda self: self.inside)
    @rule()
    def is_answered(self) -> None:
        self._take(self.call)

    @rule(call=st.integers(1, 50))
    def an_old_call_looks(self, call: int) -> None:
        if call != self.call:
            assert self.it.command(call) is None

    @precondition(lambda self: self.inside)
    @rule()
    def breaks_off(self) -> None:
        self.it.leave(self.call)
        self.inside = False
        assert self.it.command(self.call) is None

    @rule(resumes=st.booleans())
    def shakes_hands(self, resumes: bool) -> None:
        before = self.it.phase
        self.it.introduce_again(self.now, resumes=resumes, features=wire.RUNS_TO_NODES)
        self.known = {}
        self.fresh = True
        self.ending = self.ending and before is not Phase.DONE
        self.inside = self.unanswered_view = False
        self.told = self.told if resumes else []

    @precondition(lambda self: self.it.stop is not None and self.it.phase is not Phase.DONE)
    @rule()
    def opens_a_network(self) -> None:
        assert Event.STOPPED not in self.it.open_graph(self.now)
        self.fresh = True
        self.inside = self.unanswered_view = False

    @rule()
    def reports_hits(self) -> None:
        self.it.report_hits()

    @rule(period=st.integers(-5, 60), later=st.floats(0, 300))
    def beats(self, period: int, later: float) -> None:
        self.now += later
        self.it.heartbeat.beat(period, self.now)
        self.it.heard(self.now)

    @rule(later=st.floats(0, 300))
    def time_passes(self, later: float) -> None:
        self.now += later
        self.it.tick(self.now)

    @rule()
    def finishes(self) -> None:
        self.it.finish()
        self.fresh = True

    @rule(numbers=st.dictionaries(st.integers(1, 4), st.sampled_from([1.0, 2.0])))
    def watches(self, numbers: dict[int, float]) -> None:
        if not self.it.released:
            self.wanted_slot = {number: watchpoint(number, limit) for number, limit in numbers.items()}
        self.it.watch([watchpoint(number, limit) for number, limit in numbers.items()])

    @rule(steps=st.one_of(st.none(), st.integers(1, 3)), stop_on_hit=st.booleans())
    def runs(self, steps: int | None, stop_on_hit: bool) -> None:
        stopped = self.it.phase is Phase.STOPPED
        try:
            self.it.run(RunPlan(steps, stop_on_hit=stop_on_hit))
        except NotStoppedError:
            assert self.it.phase is not Phase.RUNNING or not stopped
        else:
            assert stopped
            assert self.it.phase is Phase.RUNNING

    @rule()
    def pauses(self) -> None:
        self.it.pause()

    @rule(kind=st.sampled_from([VIEW, Recheck()]))
    def asks(self, kind: TensorRequest | Recheck) -> None:
        try:
            self.questions.append(self.it.ask(kind))
        except (NotStoppedError, LostError):
            pass
        else:
            assert self.it.phase is Phase.STOPPED

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def withdraws(self, data: st.DataObject) -> None:
        self.it.withdraw(data.draw(st.sampled_from(self.questions)))

    @rule()
    def releases(self) -> None:
        self.it.release()
        self.wanted_slot = {}

    @rule()
    def terminates(self) -> None:
        self.it.terminate()
        self.ending = True

    @invariant()
    def counts_only_grow(self) -> None:
        count = self.it.stop.count if self.it.stop else 0
        assert count >= self.count
        self.count = count

    @invariant()
    def steps_are_never_before_the_start(self) -> None:
        assert self.it.stop is None or self.it.stop.step >= START

    @invariant()
    def questions_stay_open_only_while_they_can_be_answered(self) -> None:
        if self.it.phase in (Phase.LOST, Phase.DONE):
            assert not any(question.open for question in self.questions)

    @invariant()
    def a_call_that_was_answered_waits_no_more(self) -> None:
        assert self.it.waiting not in self.answered_calls


TestTalk = Talk.TestCase
TestTalk.settings = examples(150, stateful_step_count=40)
