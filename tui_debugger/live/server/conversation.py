"""The conversation with one training: what to tell it, and when. A state machine without sockets, threads or clocks.

A training enters ``WaitCMD`` (``enter``), is answered at most once (``command``), follows the command and enters again.
That it has run is known from the command that it got, never from ``cur_step``, which MindSpore's clients repeat. Its
answers to questions come between two entries, so an entry also ends the question that was put before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Final

from tui_debugger.errors import LostError, NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.graph_runs import GraphRuns
from tui_debugger.live.wire import START, Event, Phase, RemoteTensor, RemoteWatchpoint, TrainingStop
from tui_debugger.watch.condition_table import WIRE_NOT_CHANGED

SHORTEST, LONGEST = 5, 3600
"""Seconds that a client may leave between two heartbeats; other numbers are ignored."""
MISSES: Final = 3
ANSWER_SECONDS: Final = 120.0
"""Seconds that a client may be silent after a command when it does not train."""


class Heartbeat:
    """Signs of life of one client; a client that never sent a heartbeat is never missed."""

    def __init__(self, now: float) -> None:
        self.period: int | None = None
        self._last = now

    def heard(self, now: float) -> None:
        self._last = max(self._last, now)

    def beat(self, period: int, now: float) -> None:
        """A heartbeat, which says when the next will come."""
        if SHORTEST <= period <= LONGEST:
            self.period = period
        self.heard(now)

    def silent(self, now: float) -> bool:
        """Tells whether a client that only has to answer has not been heard of for ``ANSWER_SECONDS``."""
        return now - self._last > ANSWER_SECONDS

    def missed(self, now: float) -> bool:
        """Tells whether ``MISSES`` heartbeats in a row did not come."""
        return self.period is not None and now - self._last > MISSES * (self.period + 0.5)


class QuestionState(Enum):
    """The state of a question."""

    QUEUED = "queued"
    SENT = "sent"
    ANSWERED = "answered"
    LOST = "lost"
    """The training went away, or will be ended."""


@dataclass(slots=True)
class ClientQuestion:
    """A question to a client while it waits; ``answer`` belongs to the caller and is not looked at here."""

    command: TensorRequest | Recheck
    answer: object = None
    state: QuestionState = QuestionState.QUEUED

    @property
    def open(self) -> bool:
        return self.state in (QuestionState.QUEUED, QuestionState.SENT)


@dataclass(slots=True)
class RunPlan:
    """How a training goes on."""

    steps: int | None = 1  # that are still to run, with the one that is asked for now; None: no end
    stop_on_hit: bool = True  # hits end it
    node: str | None = None  # a node to stop at (empty: the next one); None: run by steps
    stop_on_new_nodes: bool = False  # a graph that is sent anew interrupts it
    stop_at_nodes: bool = True  # hits end it inside a step, too

    @property
    def together(self) -> bool:
        """Whether hits inside a step, after the first ones, wait for its end: nobody stops at each."""
        return not (self.stop_on_hit and self.stop_at_nodes)


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The report of a training that enters."""

    step: int | None = None  # None from clients that cannot be trusted to count
    node: str = ""  # where it stands inside a step
    root: int | None = None  # the root graph that ran or is about to run; None from clients that do not say


_REQUEST_BYTES: Final = 1024 * 1024


class Level(IntEnum):
    """The detail that a view asks for; the numbers of the wire."""

    VALUE = wire.VALUE
    STATISTICS = wire.STATISTICS
    BASE = wire.BASE


@dataclass(frozen=True, slots=True)
class Exit:
    """The process is to end."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Goes on to the end of the step, and up to ``ahead`` steps more as long as no watchpoint hits."""

    ahead: int = 0
    together: bool = False


@dataclass(frozen=True, slots=True)
class RunNode:
    """Goes on to a node; empty: the next one."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Judges the present values again."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watchpoint that is new or changed."""

    watchpoint: RemoteWatchpoint


@dataclass(frozen=True, slots=True)
class Unwatch:
    """A watchpoint that is gone."""

    id: int


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """A request for tensors."""

    level: Level
    tensors: tuple[RemoteTensor, ...]


Command = Exit | RunStep | RunNode | Recheck | Watch | Unwatch | TensorRequest


def encode(command: Command, *, swap_tolerances: bool = False) -> bytes:
    """The ``EventReply`` of a command; ``swap_tolerances`` for MindSpore before 1.6, which reads atol before rtol."""
    answer: Any = wire.message("EventReply")()
    match command:
        case Exit():
            answer.exit = True
        case RunStep(ahead, together):
            answer.run_cmd.run_level, answer.run_cmd.run_steps = wire.LEVEL_STEP, 1
            if together:
                answer.run_cmd.together = True
            if ahead:
                answer.run_cmd.ahead = ahead
        case RunNode(name):
            answer.run_cmd.run_level, answer.run_cmd.node_name = wire.LEVEL_NODE, name.encode()
        case Recheck():
            answer.run_cmd.run_level = wire.LEVEL_RECHECK
        case Watch(watchpoint):
            _watch(answer.set_cmd, watchpoint, swap_tolerances)
        case Unwatch(number):
            answer.set_cmd.delete, answer.set_cmd.id = True, number
        case TensorRequest(level, tensors):
            _view(answer.view_cmd, level, tensors)
    return bytes(answer.SerializeToString())


def reply(**fields: int | bool) -> bytes:
    """An ``EventReply`` of a few fields."""
    return bytes(wire.message("EventReply")(**fields).SerializeToString())


def _watch(target: Any, watchpoint: RemoteWatchpoint, swap_tolerances: bool) -> None:
    for name, kind, graph in watchpoint.nodes:
        node = target.watch_nodes.add(node_name=name.encode(), node_type=kind.encode())
        if graph:
            node.graph_name = graph.encode()
        if name in watchpoint.categories:
            node.category = watchpoint.categories[name]
    target.watch_condition.condition = watchpoint.condition
    params = list(watchpoint.params)
    if swap_tolerances and watchpoint.condition == WIRE_NOT_CHANGED and len(params) > 1:
        params[0], params[1] = params[1], params[0]
    for name, value, disabled in params:
        param = target.watch_condition.params.add(name=name.encode())
        # As MindSpore's client writes it: zeros take no bytes.
        if disabled:
            param.disabled = True
        elif isinstance(value, str):
            param.text = value.encode()
        elif value:
            param.value = value
    target.id = watchpoint.id


def _view(target: Any, level: Level, tensors: Sequence[RemoteTensor]) -> None:
    for tensor in tensors:
        added = target.tensors.add(node_name=tensor.node.encode(), slot=str(tensor.slot).encode())
        added.iter = b"prev" if tensor.previous else b""
        if tensor.truncate:
            added.truncate = True
    if level:
        target.level = int(level)


def groups(tensors: Sequence[RemoteTensor], most: int) -> list[tuple[RemoteTensor, ...]]:
    """Cuts a request into commands of bounded size."""
    cut: list[tuple[RemoteTensor, ...]] = []
    group: list[RemoteTensor] = []
    size = 0
    for tensor in tensors:
        bytes_here = 32 + 4 * len(tensor.node)
        if group and (len(group) == most or size + bytes_here > _REQUEST_BYTES):
            cut.append(tuple(group))
            group, size = [], 0
        group.append(tensor)
        size += bytes_here
    if group:
        cut.append(tuple(group))
    return cut


PART_BYTES: Final = 2 * 1024 * 1024
"""Nodes of one command: clients refuse messages above 4 MiB, and a definition cannot be continued by a second one."""
_PART_IDS: Final = 1 << 30
_PARTS: Final = 64


def as_sent(watchpoints: Iterable[RemoteWatchpoint]) -> dict[int, RemoteWatchpoint]:
    """The list by the numbers that clients know; a watchpoint of very many nodes is split (``own_id`` leads back).

    The name ``*`` is left out, under which MindSpore's client would report every hit.
    """
    sent: dict[int, RemoteWatchpoint] = {}
    for watchpoint in watchpoints:
        for part, nodes in enumerate(_parts(watchpoint.nodes)[:_PARTS]):
            number = watchpoint.id if part == 0 else _PART_IDS + watchpoint.id * _PARTS + part
            sent[number] = replace(watchpoint, id=number, nodes=nodes)
    return sent


def own_id(number: int) -> int:
    """The watchpoint of a number that a client reports."""
    return (number - _PART_IDS) // _PARTS if number >= _PART_IDS else number


def difference(
    installed: Mapping[int, RemoteWatchpoint], wanted: Mapping[int, RemoteWatchpoint]
) -> Watch | Unwatch | None:
    """The next command from one list to the other, deletions first; None when they are the same."""
    gone = min((number for number in installed if number not in wanted), default=None)
    if gone is not None:
        return Unwatch(gone)
    for number in sorted(wanted):
        if installed.get(number) != wanted[number]:
            return Watch(wanted[number])
    return None


def _parts(nodes: tuple[tuple[str, str, str], ...]) -> list[tuple[tuple[str, str, str], ...]]:
    parts: list[tuple[tuple[str, str, str], ...]] = []
    begin = size = 0
    named = tuple(node for node in nodes if node[0] and node[0] != "*")
    for position, node in enumerate(named):
        # A character takes at most four bytes; most names are ASCII, which only makes the parts smaller than allowed.
        bytes_here = 16 + sum(len(text) if text.isascii() else 4 * len(text) for text in node)
        if size and size + bytes_here > PART_BYTES:
            parts.append(named[begin:position])
            begin, size = position, 0
        size += bytes_here
    if begin < len(named):
        parts.append(named[begin:])
    return parts


Events = list[Event]
ENDLESS: Final = 2**31 - 1
"""Steps that a training may run without asking when it runs until a hit. It asks now and then all the same."""


class TrainingConversation:
    """One training, from its first handshake to its end. Not thread-safe: the owner locks."""

    def __init__(self, now: float, *, mismatch: bool = False, features: int = 0) -> None:
        self.phase = Phase.MISMATCH if mismatch else Phase.RECEIVING
        self.stop: TrainingStop | None = None
        self.waiting: int | None = None  # the call that waits for a command
        self.released = False  # it goes on by itself, for good
        self.features = features
        self.heartbeat = Heartbeat(now)
        self.graph_runs = GraphRuns()
        self._mismatch = mismatch
        self._before = self.phase
        self._broken = False
        self._terminate = False
        self._pause = False
        self._course: RunPlan | None = None
        self._installed: dict[int, RemoteWatchpoint] = {}
        self._wanted: dict[int, RemoteWatchpoint] = {}
        self._last: Command | None = None
        self._questions: deque[ClientQuestion] = deque()
        self._open: ClientQuestion | None = None
        self._arrived_hits = False
        self._grown = False
        self._opens = False
        self.listed = self._lists = 0  # the number of the list that it has: see ``watch``
        self._lists_meanwhile = False

    # What the client does ------------------------------------------------------------------------------------------

    def introduce_again(self, now: float, *, resumes: bool = False, features: int = 0) -> Events:
        """The training introduced itself again: it has forgotten all watchpoints, and will send its graphs.

        ``resumes``: it is still the same training (its graph changed, or it was cut off for a while), and counts its
        steps itself; else a new training begins in the same process.
        """
        events = [Event.BACK] if self.phase in (Phase.LOST, Phase.DONE) else []
        if self.phase is Phase.DONE:
            self.released = self._terminate = False
        if events or not resumes:
            self._course = self._last = None
            self._arrived_hits = False
        self._grown = resumes and self._course is not None and self._course.stop_on_new_nodes
        if not resumes and self.stop is not None:
            self.stop = TrainingStop(self.stop.count, START)
            self.graph_runs.clear()
        self._fail_questions()
        self.heartbeat = Heartbeat(now)
        self.features = features
        self.waiting = None
        self._installed = {}
        self._opens = self._broken = False
        self.phase = Phase.MISMATCH if self._mismatch else Phase.RECEIVING
        return events

    def open_graph(self, now: float) -> Events:
        """The training sends one more root graph, and waits once before its first run to get watchpoints there."""
        events = self.heard(now)
        self._fail_questions()
        self.waiting, self._opens = None, True
        return events

    def moved(self) -> None:
        """It came back on another connection: the last answer may not have arrived, and is given again.

        Commands to run are not repeated: a client that does not count its steps might run twice.
        """
        if isinstance(self._last, Watch):
            self._installed.pop(self._last.watchpoint.id, None)
        if self._open is not None:
            self._open.state = QuestionState.QUEUED
            self._questions.appendleft(self._open)
            self._open = None

    def heard(self, now: float) -> Events:
        self.heartbeat.heard(now)
        if self.phase is not Phase.LOST or self._broken:
            return []
        self.phase = self._before
        return [Event.BACK]

    def enter(self, call: int, report: TrainingReport, now: float) -> Events:
        """The training waits for a command, in the call with this number."""
        self._broken = False
        events = self.heard(now)
        if self.phase is Phase.DONE and not self._terminate:
            self.phase = Phase.RECEIVING  # it said that it was done, but goes on
            events.append(Event.BACK)
        self.waiting = call
        self._end_question(events)
        if self._mismatch:
            self.phase = Phase.MISMATCH
            return events
        last, self._last = self._last, None
        if self.phase is Phase.DONE or self._repeats(last, report):
            return events
        if self._opens:
            return events + self._stand_before(report)
        first = self.phase is Phase.RECEIVING and self._course is None
        if first or isinstance(last, RunStep | RunNode):
            return events + self._arrive(first, report)
        if self.phase is Phase.RECEIVING:  # the command to go on did not arrive
            self.stop = self.stop or TrainingStop(1, START if report.step is None else report.step, alone=True)
            self.phase = Phase.RUNNING
        if self.released and self.phase is Phase.STOPPED:  # released while it was lost
            self.phase = Phase.RUNNING
        return events

    def leave(self, call: int) -> Events:
        """The connection of a waiting call broke before it was answered."""
        if call != self.waiting:
            return []
        self.waiting = None
        return self.lose()

    def lose(self) -> Events:
        """The connection broke, or nothing was heard for too long."""
        self._fail_questions()
        if self.phase in (Phase.LOST, Phase.DONE):
            return []
        self._before, self.phase, self._broken = self.phase, Phase.LOST, True
        return [Event.LOST]

    def cut(self) -> Events:
        """Refuses the training for good: a waiting call is ended."""
        self.waiting = None
        return self.lose()

    def tick(self, now: float) -> Events:
        """A training that has not been heard of for too long is lost until it is heard again."""
        if self.waiting is not None:
            self.heartbeat.heard(now)  # a call that waits is a sign of life: gRPC pings
        # A client that was asked and died before it answered has no call that could break.
        silent = not isinstance(self._last, RunStep | RunNode) and self.heartbeat.silent(now)
        if self.phase in (Phase.LOST, Phase.DONE) or not (silent or self.heartbeat.missed(now)):
            return []
        events = self.lose()
        self._broken = False  # only silent: any sign of life brings it back
        return events

    def finish(self, step: int | None = None) -> Events:
        """The training said that it is done; ``step`` ended last, if its client counts steps: it may have run ahead."""
        self._fail_questions()
        if self.phase is Phase.DONE:
            return []
        if step is not None and self.stop is not None and step > self.stop.ended and self.phase is Phase.RUNNING:
            self.stop = TrainingStop(self.stop.count, step)
        self.phase = Phase.DONE
        return [Event.DONE]

    def report_hits(self) -> bool:
        """Takes a whole stream of hits; False when hits make no sense now, and must be dropped."""
        if isinstance(self._last, RunStep | RunNode | Recheck):
            self._arrived_hits = True
            return True
        return False

    # What it is answered -------------------------------------------------------------------------------------------

    def command(self, call: int) -> Command | None:
        """The answer for a waiting call; None while the call has to wait, or when it does not wait any more."""
        if call != self.waiting:
            return None
        command = self._next()
        if command is not None:
            self.waiting, self._last = None, command
        return command

    def after(self, command: Command) -> Events:
        """The events that follow from a command that was just given."""
        if isinstance(command, Exit):
            return self.finish()
        if not isinstance(command, RunStep | RunNode | Recheck):
            return []
        self.listed, meanwhile = self._lists, self._lists_meanwhile
        self._lists_meanwhile = False
        return [Event.LISTED] if meanwhile and self.phase is Phase.RUNNING else []

    # What people want ----------------------------------------------------------------------------------------------

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> int:
        """Sets the wanted list; returns its number."""
        if not self.released:
            self._wanted = as_sent(watchpoints)
            self._lists += 1
            self._lists_meanwhile = self.phase is Phase.RUNNING
        return self._lists

    def run(self, plan: RunPlan) -> Events:
        """Goes on; NotStoppedError: the training is not waiting."""
        self._need_waiting()
        self._course, self._pause = plan, False
        self.phase = Phase.RUNNING
        return [Event.RUNNING]

    def run_to_node(self, name: str = "") -> Events:
        """Goes on to a node, or to the next one. UnsupportedError: the client stops at the end of steps only."""
        if not self.features & wire.RUNS_TO_NODES:
            raise UnsupportedError(
                "this training stops at the end of steps only",
                hint="MindSpore before 1.5 on GPU and PyTorch with level='op' stop at nodes",
            )
        return self.run(RunPlan(node=name, stop_on_new_nodes=True))

    def pause(self) -> None:
        self._pause = self._course is not None and not self.released

    def terminate(self) -> None:
        """Ends the training at once when it waits, else at its next stop."""
        self._terminate = True
        self._fail_questions()

    def release(self) -> Events:
        """Lets the training go on by itself, without watchpoints."""
        self._wanted, self.released = {}, True
        self._course = RunPlan(None, stop_on_hit=False)
        if self.phase is not Phase.STOPPED:
            return []
        self.phase = Phase.RUNNING
        return [Event.RUNNING]

    def ask(self, command: TensorRequest | Recheck, answer: object = None) -> ClientQuestion:
        """Queues a question. NotStoppedError: the training is not waiting; LostError: the training is gone."""
        if self.phase in (Phase.LOST, Phase.DONE):
            done = self.phase is Phase.DONE
            raise LostError(
                "the training has ended" if done else "the connection to the training was lost",
                hint="" if done else "it is taken up again when it comes back",
            )
        self._need_waiting()
        question = ClientQuestion(command, answer)
        self._questions.append(question)
        return question

    @property
    def asked(self) -> int:
        return len(self._questions)

    def withdraw(self, question: ClientQuestion) -> None:
        """Withdraws a question; a sent question is answered all the same."""
        if question in self._questions:
            self._questions.remove(question)
            question.state = QuestionState.LOST

    @property
    def hits_are_coming(self) -> bool:
        return self._arrived_hits

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: no call waits, and none is about to, for the rest of a list."""
        if self.phase in (Phase.LOST, Phase.DONE):
            return True
        return self.waiting is None and not isinstance(self._last, Watch | Unwatch | TensorRequest)

    @property
    def open_question(self) -> ClientQuestion | None:
        return self._open

    def answered(self, question: ClientQuestion) -> None:
        if self._open is question:
            self._open = None
            question.state = QuestionState.ANSWERED

    # How ----------------------------------------------------------------------------------------------------------

    def _need_waiting(self) -> None:
        if self.phase is not Phase.STOPPED or self._terminate:
            raise NotStoppedError(f"the training is not waiting for a command: {self.phase.value}")

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

    def _onward(self, course: RunPlan) -> Command:
        if course.node is not None:
            return RunNode(course.node)
        alone = self.features & wire.RUNS_AHEAD and not self._pause
        ahead = ENDLESS if course.steps is None else max(course.steps - 1, 0)
        return RunStep(ahead if alone else 0, course.together)

    def _next_question(self, question: ClientQuestion) -> Command:
        if isinstance(question.command, Recheck) and (change := self._change()) is not None:
            return change
        self._questions.popleft()
        question.state, self._open = QuestionState.SENT, question
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
        question.state = QuestionState.ANSWERED
        if isinstance(question.command, Recheck):
            self._arrived_hits = False
            events.append(Event.HITS)

    def _repeats(self, last: Command | None, report: TrainingReport) -> bool:
        """Tells whether the command to go on was lost: a client that counts steps is at the same step again."""
        return (
            isinstance(last, RunStep)
            and self.stop is not None
            and report.step is not None
            and not self._arrived_hits
            and (report.step, report.node) == (self.stop.step, self.stop.node)
        )

    def _stand_before(self, report: TrainingReport) -> Events:
        """The training stands before the first run of a root graph: the driver gives it its list, and lets it go."""
        self._opens = False
        before, course = self.stop or TrainingStop(0, START), self._course
        goes_on = course is not None and not (self._terminate or self._pause)
        self.stop = TrainingStop(before.count + 1, before.step, root=report.root, opens=True, passing=goes_on)
        if self.released or (goes_on and course is not None and not course.stop_on_new_nodes):
            self.phase = Phase.RUNNING
            return []
        self._course, self._pause = None, False
        self.phase = Phase.STOPPED
        return [Event.STOPPED]

    def _arrive(self, first: bool, report: TrainingReport) -> Events:
        before, step = self.stop, self._step(first, report)
        grown, self._grown = self._grown, False
        count = (before.count if before else 0) + 1
        self.stop = TrainingStop(
            count, step, report.node, alone=first, grown=grown, root=None if first else report.root
        )
        if report.root is not None and step > (before.step if before is not None else step):
            self.graph_runs.add(step, report.root)
        ran = max(self.stop.ended - before.ended, 0) if before is not None else 1
        hits, self._arrived_hits = self._arrived_hits, False
        self.phase = Phase.RUNNING
        if self.released:
            self._course = RunPlan(None, stop_on_hit=False)
            return []
        goes_on = not first and self._continues(hits, ran)
        if goes_on and grown:
            self.stop = replace(self.stop, passing=True)
        elif goes_on:
            return [Event.HITS] if hits else []
        self._course, self._pause = None, False
        self.phase = Phase.STOPPED
        return [Event.STOPPED]

    def _step(self, first: bool, report: TrainingReport) -> int:
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
        if course.steps is None:
            return True
        course.steps -= ran
        return course.steps > 0

    def _fail_questions(self) -> None:
        for question in (*self._questions, *([self._open] if self._open else ())):
            question.state = QuestionState.LOST
        self._questions.clear()
        self._open = None
