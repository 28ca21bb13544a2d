"""What is said to one training, and when: a state machine without sockets, threads or clocks.

A training enters ``WaitCMD`` (``enter``), is answered at most once (``command``), does what it was told and enters
again. Everything else follows: that it has run is known from the command that it was answered with, never from
``cur_step``, which clients of MindSpore repeat. Its answers to questions come between two entries, so an entry also
ends the question that was put before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tui_debugger.errors import LostError, NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.control import Event
from tui_debugger.live.server.commands import Command, Exit, Recheck, RunNode, RunStep, Unwatch, View, Watch
from tui_debugger.live.server.exchange import Asked, Course, Question, Report
from tui_debugger.live.server.heartbeat import Heartbeat
from tui_debugger.live.server.watchlist import as_sent, difference
from tui_debugger.live.types import START, Phase, RemoteWatchpoint, Stop

Events = list[Event]
ENDLESS: Final = 2**31 - 1
"""Steps that a training which was told to run until a hit may run without asking. It asks now and then all the same."""


class Conversation:
    """One training, from its first handshake to its end. Not thread-safe: the owner locks.

    Attributes:
        phase: what it is doing.
        stop: where it stopped last.
        waiting: the call that waits for a command, None when there is none.
        released: it goes on by itself, for good.
    """

    def __init__(self, now: float, *, mismatch: bool = False, features: int = 0) -> None:
        """A training that has shaken hands at time ``now``."""
        self.phase = Phase.MISMATCH if mismatch else Phase.RECEIVING
        self.stop: Stop | None = None
        self.waiting: int | None = None
        self.released = False
        self.features = features
        self.heartbeat = Heartbeat(now)
        self._mismatch = mismatch
        self._before = self.phase
        self._broken = False
        self._terminate = False
        self._pause = False
        self._course: Course | None = None
        self._installed: dict[int, RemoteWatchpoint] = {}
        self._wanted: dict[int, RemoteWatchpoint] = {}
        self._last: Command | None = None
        self._questions: deque[Question] = deque()
        self._open: Question | None = None
        self._arrived_hits = False
        self._grown = False

    # What the client does ------------------------------------------------------------------------------------------

    def shake(self, now: float, *, resumes: bool = False, features: int = 0) -> Events:
        """It introduced itself again: it knows no watchpoint any more, and will send its graphs.

        Args:
            now: the time.
            resumes: it is still the same training (its graph changed, or it was cut off for a while), and counts its
                steps itself; else a new one begins in the same process.
            features: what it can do.
        """
        events = [Event.BACK] if self.phase in (Phase.LOST, Phase.DONE) else []
        if self.phase is Phase.DONE:
            self.released = self._terminate = False
        if events or not resumes:
            self._course = self._last = None
            self._arrived_hits = False
        self._grown = resumes and self._course is not None and not self.released
        if not resumes and self.stop is not None:
            self.stop = Stop(self.stop.count, START)
        self._lose_questions()
        self.heartbeat = Heartbeat(now)
        self.features = features
        self.waiting = None
        self._installed = {}
        self._broken = False
        self.phase = Phase.MISMATCH if self._mismatch else Phase.RECEIVING
        return events

    def moved(self) -> None:
        """It came back on another connection: the last answer may never have arrived, and is given again.

        Only a command to run is not repeated: it may have been followed, and a client that does not count its steps
        would run twice.
        """
        if isinstance(self._last, Watch):
            self._installed.pop(self._last.watchpoint.id, None)
        if self._open is not None:
            self._open.state = Asked.QUEUED
            self._questions.appendleft(self._open)
            self._open = None

    def heard(self, now: float) -> Events:
        """Any call of it arrived."""
        self.heartbeat.heard(now)
        if self.phase is not Phase.LOST or self._broken:
            return []
        self.phase = self._before
        return [Event.BACK]

    def enter(self, call: int, report: Report, now: float) -> Events:
        """It waits for a command, in the call with this number."""
        self._broken = False
        events = self.heard(now)
        if self.phase is Phase.DONE and not self._terminate:
            self.phase = Phase.RECEIVING  # it said that it was done, and goes on
            events.append(Event.BACK)
        self.waiting = call
        self._end_question(events)
        if self._mismatch:
            self.phase = Phase.MISMATCH
            return events
        last, self._last = self._last, None
        if self.phase is Phase.DONE or self._repeats(last, report):
            return events
        first = self.phase is Phase.RECEIVING and self._course is None
        if first or isinstance(last, RunStep | RunNode):
            return events + self._arrive(first, report)
        if self.phase is Phase.RECEIVING:  # it is to go on, but did not get to hear of it
            self.stop = self.stop or Stop(1, START if report.step is None else report.step, alone=True)
            self.phase = Phase.RUNNING
        if self.released and self.phase is Phase.STOPPED:  # let go while it was lost
            self.phase = Phase.RUNNING
        return events

    def leave(self, call: int) -> Events:
        """The connection of a call that waits broke before it was answered."""
        if call != self.waiting:
            return []
        self.waiting = None
        return self.lose()

    def lose(self) -> Events:
        """The connection broke, or nothing was heard for too long."""
        self._lose_questions()
        if self.phase in (Phase.LOST, Phase.DONE):
            return []
        self._before, self.phase, self._broken = self.phase, Phase.LOST, True
        return [Event.LOST]

    def cut(self) -> Events:
        """It is turned away: a call that waits is ended."""
        self.waiting = None
        return self.lose()

    def tick(self, now: float) -> Events:
        """Looks at the time: a training that has not been heard of for too long is lost until it is."""
        if self.waiting is not None:
            self.heartbeat.heard(now)  # a call that waits is a sign of life: gRPC pings
        # One that was asked and died before it answered leaves no call behind that could break.
        silent = not isinstance(self._last, RunStep | RunNode) and self.heartbeat.silent(now)
        if self.phase in (Phase.LOST, Phase.DONE) or not (silent or self.heartbeat.missed(now)):
            return []
        events = self.lose()
        self._broken = False  # only silent: any sign of life brings it back
        return events

    def finish(self, step: int | None = None) -> Events:
        """It said that it is done; ``step`` ended last, where it counts them: it may have run ahead to its end."""
        self._lose_questions()
        if self.phase is Phase.DONE:
            return []
        if step is not None and self.stop is not None and step > self.stop.step and self.phase is Phase.RUNNING:
            self.stop = Stop(self.stop.count, step)
        self.phase = Phase.DONE
        return [Event.DONE]

    def report_hits(self) -> bool:
        """A stream of hits arrived whole; False when hits make no sense now, and are to be dropped."""
        if isinstance(self._last, RunStep | RunNode | Recheck):
            self._arrived_hits = True
            return True
        return False

    # What it is answered -------------------------------------------------------------------------------------------

    def command(self, call: int) -> Command | None:
        """The answer for a call that waits; None when it has to go on waiting, or waits no more."""
        if call != self.waiting:
            return None
        command = self._next()
        if command is not None:
            self.waiting, self._last = None, command
        return command

    def after(self, command: Command) -> Events:
        """What follows from a command that was just given."""
        return self.finish() if isinstance(command, Exit) else []

    # What people want ----------------------------------------------------------------------------------------------

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """The list as it should be."""
        if not self.released:
            self._wanted = as_sent(watchpoints)

    def run(self, steps: int | None, *, stop_on_hit: bool = True) -> Events:
        """Goes on for some steps.

        Raises:
            NotStoppedError: it is not waiting.
        """
        return self._go(Course(None if steps is None else max(steps, 1) - 1, stop_on_hit))

    def run_to_node(self, name: str = "") -> Events:
        """Goes on to a node, or to the next one.

        Raises:
            NotStoppedError: it is not waiting.
            UnsupportedError: it stops at the end of steps only.
        """
        if not self.features & wire.RUNS_TO_NODES:
            raise UnsupportedError(
                "this training stops at the end of steps only",
                hint="MindSpore before 1.5 on GPU and PyTorch with level='op' stop at nodes",
            )
        return self._go(Course(0, node=name))

    def pause(self) -> None:
        """Stops at the end of the step that runs."""
        self._pause = self._course is not None and not self.released

    def terminate(self) -> None:
        """Ends it at once when it waits, else at its next stop."""
        self._terminate = True
        self._lose_questions()

    def release(self) -> Events:
        """Lets it go on by itself, without watchpoints."""
        self._wanted, self.released = {}, True
        self._course = Course(None, stop_on_hit=False)
        if self.phase is not Phase.STOPPED:
            return []
        self.phase = Phase.RUNNING
        return [Event.RUNNING]

    def ask(self, command: View | Recheck, answer: object = None) -> Question:
        """Puts a question, which is sent when its turn comes.

        Raises:
            NotStoppedError: it is not waiting.
            LostError: it is gone.
        """
        self._need_stopped()
        question = Question(command, answer)
        self._questions.append(question)
        return question

    @property
    def asked(self) -> int:
        """Questions that have not been sent yet."""
        return len(self._questions)

    def withdraw(self, question: Question) -> None:
        """A question that nobody waits for any more; one that was sent is answered all the same."""
        if question in self._questions:
            self._questions.remove(question)
            question.state = Asked.LOST

    @property
    def hits_are_coming(self) -> bool:
        """Whether hits have arrived whose stop has not."""
        return self._arrived_hits

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: no call waits, and none is about to, for the rest of a list."""
        if self.phase in (Phase.LOST, Phase.DONE):
            return True
        return self.waiting is None and not isinstance(self._last, Watch | Unwatch | View)

    @property
    def open_question(self) -> Question | None:
        """The question that the client is answering."""
        return self._open

    def answered(self, question: Question) -> None:
        """The answer to a view came whole."""
        if self._open is question:
            self._open = None
            question.state = Asked.ANSWERED

    # How ----------------------------------------------------------------------------------------------------------

    def _need_stopped(self) -> None:
        if self.phase is Phase.LOST or self.phase is Phase.DONE:
            raise LostError(
                "the training has ended" if self.phase is Phase.DONE else "the connection to the training was lost",
                hint="" if self.phase is Phase.DONE else "it is taken up again when it comes back",
            )
        if self.phase is not Phase.STOPPED or self._terminate:
            raise NotStoppedError(f"the training is not waiting for a command: {self.phase.value}")

    def _go(self, course: Course) -> Events:
        if self.phase is not Phase.STOPPED or self._terminate:
            raise NotStoppedError(f"the training is not waiting for a command: {self.phase.value}")
        self._course, self._pause = course, False
        self.phase = Phase.RUNNING
        return [Event.RUNNING]

    def _next(self) -> Command | None:
        if self._terminate or self.phase is Phase.DONE:
            return Exit()
        if self._mismatch:
            return RunStep() if self.released else None
        if self._questions:
            return self._next_question(self._questions[0])
        if self.phase is not Phase.RUNNING or self._course is None:
            return None
        return self._change() or self._onward(self._course)

    def _onward(self, course: Course) -> Command:
        if course.node is not None:
            return RunNode(course.node)
        alone = self.features & wire.RUNS_AHEAD and not self._pause
        return RunStep((ENDLESS if course.left is None else course.left) if alone else 0)

    def _next_question(self, question: Question) -> Command:
        if isinstance(question.command, Recheck) and (change := self._change()) is not None:
            return change
        self._questions.popleft()
        question.state, self._open = Asked.SENT, question
        return question.command

    def _change(self) -> Watch | Unwatch | None:
        change = difference(self._installed, self._wanted)
        if isinstance(change, Watch):
            self._installed[change.watchpoint.id] = change.watchpoint
        elif isinstance(change, Unwatch):
            del self._installed[change.id]
        return change

    def _end_question(self, events: Events) -> None:
        if self._open is None:
            return
        question, self._open = self._open, None
        question.state = Asked.ANSWERED
        if isinstance(question.command, Recheck):
            self._arrived_hits = False
            events.append(Event.HITS)

    def _repeats(self, last: Command | None, report: Report) -> bool:
        """Whether the command to go on never arrived: a client that counts stands where it stood."""
        return (
            isinstance(last, RunStep)
            and self.stop is not None
            and report.step is not None
            and not self._arrived_hits
            and (report.step, report.node) == (self.stop.step, self.stop.node)
        )

    def _arrive(self, first: bool, report: Report) -> Events:
        before, step = self.stop, self._step(first, report)
        grown, self._grown = self._grown, False
        self.stop = Stop((before.count if before else 0) + 1, step, report.node, alone=first, grown=grown)
        ran = max(step - before.step, 1) if before is not None else 1
        hits, self._arrived_hits = self._arrived_hits, False
        self.phase = Phase.RUNNING
        if self.released:
            self._course = Course(None, stop_on_hit=False)
            return []
        goes_on = not first and self._continues(hits, ran)
        if goes_on and grown:
            self.stop = replace(self.stop, passing=True)
        elif goes_on:
            return [Event.HITS] if hits else []
        self._course, self._pause = None, False
        self.phase = Phase.STOPPED
        return [Event.STOPPED]

    def _step(self, first: bool, report: Report) -> int:
        if report.step is not None:
            return max(report.step, START)
        if self.stop is None:
            return START
        # The first stop has no step before it; inside a step, its end is the same step.
        return self.stop.step if first or self.stop.node else self.stop.step + 1

    def _continues(self, hits: bool, ran: int) -> bool:
        course = self._course
        if course is None or self._terminate or self._pause or (hits and course.stop_on_hit):
            return False
        if course.node is not None:
            assert self.stop is not None  # noqa: S101 - set just before
            here = self.stop.node
            return bool(course.node and here and here != course.node)
        if course.left is None:
            return True
        course.left -= ran
        return course.left >= 0

    def _lose_questions(self) -> None:
        for question in (*self._questions, *([self._open] if self._open else ())):
            question.state = Asked.LOST
        self._questions.clear()
        self._open = None
