"""The trainings that a server knows: the training of each call, what each sent, and its control from any thread."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from tui_debugger.errors import LostError, TdbgError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.graph_runs import GraphRuns
from tui_debugger.live.server.answers import NumbersAnswer, ValuesAnswer, ViewAnswer
from tui_debugger.live.server.conversation import (
    ClientQuestion,
    Events,
    Level,
    QuestionState,
    Recheck,
    RunPlan,
    TensorRequest,
    TrainingConversation,
    TrainingReport,
    encode,
    groups,
)
from tui_debugger.live.server.identity import (
    RIGHT_TOLERANCES,
    VIEWS_NUMBERS,
    Admission,
    Caller,
    Handshake,
    MemoryLimit,
    ServerLimits,
    together,
)
from tui_debugger.live.server.received_parts import ReceivedParts
from tui_debugger.live.wire import (
    Event,
    Phase,
    ReceivedHit,
    RemoteStats,
    RemoteTensor,
    RemoteWatchpoint,
    TrainingInfo,
    TrainingStop,
    Unrecorded,
    ValueSink,
)
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.notes import RunNotes

_LOOK_SECONDS: Final = 0.2
"""Seconds between reports of progress, at which the caller can cancel."""
_SAFETY_SECONDS: Final = 30.0
"""A waiting call checks its state this often, in case its end went unnoticed."""


Listener = Callable[["RemoteTraining | None", Event], None]
"""Called from threads of the server, without locks held: must be quick and must not raise."""


class RemoteTraining:
    """A training at the other end of a connection. All methods may be called from any thread."""

    def __init__(
        self,
        info: TrainingInfo,
        handshake: Handshake,
        caller: Caller,
        *,
        clock: Callable[[], float],
        limits: ServerLimits,
        memory: MemoryLimit,
        listener: Listener,
    ) -> None:
        self.handshake, self.caller = handshake, caller
        self.hidden = False  # turned away: every call of it is refused
        self.counted = False  # its graph has come; listeners learn nothing of it before
        self.connection = 0  # grows with every new connection: the end of an older one does not count
        self._info = info
        self._clock, self._limits, self._listener = clock, limits, listener
        self._changed = threading.Condition()
        self._speaking = threading.RLock()
        self._events: deque[Event] = deque()
        self._calls = count(1)
        self._parts = ReceivedParts(memory, limits.hits, handshake.graphs)
        self._unrecorded: tuple[Unrecorded, ...] = ()
        self._notes = RunNotes()
        self._cause = ""
        mismatch = handshake.judged.admission is Admission.MISMATCH
        self._conversation = TrainingConversation(clock(), mismatch=mismatch, features=info.features)

    # For people ----------------------------------------------------------------------------------------------------

    @property
    def info(self) -> TrainingInfo:
        """The training, as it introduced itself."""
        if not self._parts.left_out:
            return self._info
        return replace(self._info, warning=f"{self._parts.left_out:,} hits of this stop were too many to keep")

    @property
    def phase(self) -> Phase:
        """The phase of the training."""
        return self._conversation.phase

    @property
    def stop(self) -> TrainingStop | None:
        """The place where it stopped last; None before the first stop."""
        return self._conversation.stop

    @property
    def graphs(self) -> Sequence[bytes]:
        """Its graphs, each a serialized ``GraphProto``; empty until all are there. A later network adds its own."""
        return self._parts.graphs

    @property
    def graph_runs(self) -> GraphRuns:
        """Which root graph ran in each step, as far as the client says so."""
        return self._conversation.graph_runs

    @property
    def hits(self) -> Sequence[ReceivedHit]:
        """The hits of the last stop."""
        return self._parts.hits

    @property
    def unrecorded(self) -> Sequence[Unrecorded]:
        """Parts of the training that ran so far and could not be recorded."""
        return self._unrecorded

    @property
    def cause(self) -> str:
        """The cause of an early end, as the training reported it; empty without one, or when it could not report it."""
        return self._cause if self.phase is Phase.DONE else ""

    @property
    def notes(self) -> RunNotes:
        """The scalars that the program noted, by step."""
        return self._notes

    def set_watchpoints(self, watchpoints: Sequence[RemoteWatchpoint]) -> int:
        """Sets the wanted list; returns its number, from 1.

        The client gets the differences with the next ``run`` or ``recheck``, or after a running step: see
        ``Event.LISTED``.
        """
        with self._changed:
            return self._conversation.watch(watchpoints)

    @property
    def listed(self) -> int:
        """The number of the list that the client has."""
        return self._conversation.listed

    def run(
        self,
        steps: int | None = 1,
        *,
        stop_on_hit: bool = True,
        stop_on_new_nodes: bool = False,
        stop_at_nodes: bool = True,
    ) -> None:
        """Goes on for some steps (None: until a hit or ``pause``); NotStoppedError: it is not waiting.

        With ``stop_on_new_nodes`` it also stops after a step at whose end it sent its graph anew: see
        ``TrainingStop.grown``. Without ``stop_at_nodes``, or when hits do not stop it, hits inside a step after the
        first ones come at its end.
        """
        self._act(lambda it: it.run(RunPlan(steps, stop_on_hit, None, stop_on_new_nodes, stop_at_nodes)))

    def run_to_node(self, name: str = "") -> None:
        """Goes on to a node (empty: the next one), at most to the end of the step; UnsupportedError of some clients."""
        self._act(lambda it: it.run_to_node(name))

    def pause(self) -> None:
        """Stops at the end of the running step; does nothing when it is not running."""
        with self._changed:
            self._conversation.pause()

    def terminate(self) -> None:
        """Ends the training process, at once when it is waiting, else at its next stop."""
        with self._changed:
            self._conversation.terminate()
            self._changed.notify_all()

    def release(self) -> None:
        """Lets the training go on by itself, without watchpoints, until its end."""
        self._act(lambda it: it.release())

    def recheck(self, progress: ProgressFn = no_progress) -> Sequence[ReceivedHit]:
        """Has every watchpoint judge the tensors that the client holds now; ``progress`` is called often.

        NotStoppedError: it is not waiting. LostError: it went away meanwhile. CancelledError: from ``progress``.
        """
        question = self._ask(Recheck(), None, progress, lambda: Progress(0, 0))
        answer = question.answer
        return answer if isinstance(answer, tuple) else ()

    def statistics(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        """The client's statistics of tensors, in the order asked. Raises as ``recheck``."""
        return self._numbers(Level.STATISTICS, tensors, progress)

    def bases(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        """Types and shapes only. Raises as ``recheck``."""
        return self._numbers(Level.BASE, tensors, progress)

    def values(
        self, tensors: Sequence[RemoteTensor], sink: ValueSink, progress: ProgressFn = no_progress
    ) -> Sequence[bool]:
        """Fetches values into ``sink``; tells for each tensor whether all of it came. Raises as ``recheck``.

        ``progress`` counts bytes. The answer to a cancelled request is still received, and dropped.
        """
        done: list[bool] = []
        received = 0
        for group in groups(tensors, self._limits.view_tensors):
            answer = ValuesAnswer(group, len(done), sink)
            before = received

            def so_far(answer: ValuesAnswer = answer, before: int = before) -> Progress:
                whole = len(tensors) == 1
                return Progress(before + answer.received, answer.declared if whole else 0)

            self._ask(TensorRequest(Level.VALUE, group), answer, progress, so_far)
            received += answer.received
            progress(so_far())
            silent = [number for number, complete in enumerate(answer.done) if complete is None]
            empty = self._empty(group, silent, len(done), sink, progress)
            done.extend(bool(complete) or number in empty for number, complete in enumerate(answer.done))
        return done

    # For the calls -------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        return self._conversation.waiting is not None

    @property
    def settled(self) -> bool:
        """Whether no command is on its way to the training."""
        return self._conversation.settled

    def silent_connection(self) -> tuple[str, int] | None:
        """The host and connection of its last call, when only that connection can tell that the training is gone."""
        with self._changed:
            there = self._conversation.phase not in (Phase.LOST, Phase.DONE) and self._conversation.waiting is None
            return (self.caller.peer, self.connection) if there else None

    def introduce_again(self, info: TrainingInfo, handshake: Handshake, caller: Caller, *, resumes: bool) -> None:
        with self._changed:
            self.connection += 1
            self._info, self.handshake, self.caller = info, handshake, caller
            more = self._is_one_more_network(handshake)
            self._parts.expect(handshake.graphs, more=more)
            if more:
                self._notify(self._conversation.open_graph(self._clock()))
            else:
                self._notify(self._conversation.introduce_again(self._clock(), resumes=resumes, features=info.features))
            if not self._conversation.hits_are_coming:
                self._parts.drop_coming()
        self.emit()

    def moved(self, caller: Caller) -> None:
        with self._changed:
            self.connection += 1
            self.caller, self._info = caller, replace(self._info, address=caller.address)
            self._conversation.moved()

    def count(self, info: TrainingInfo) -> None:
        """Makes the training one of the listed trainings, and tells listeners."""
        with self._changed:
            self._info, self.counted = info, True
            self._events.clear()
            self._events.extend([Event.CONNECTED, *([Event.GRAPH] if self._parts.graphs else [])])
        self.emit()

    def has_graphs(self) -> bool:
        """Tells whether graphs are there; call it only when no more will come."""
        with self._changed:
            if self._parts.publish_late():
                self._notify([Event.GRAPH])
        self.emit()
        return bool(self._parts.graphs)

    def beat(self, period: int) -> None:
        with self._changed:
            self._conversation.heartbeat.beat(period, self._clock())
        self.heard()

    def heard(self) -> None:
        self._act(lambda it: it.heard(self._clock()))

    def tick(self) -> None:
        self._act(lambda it: it.tick(self._clock()))

    def lose(self, connection: int) -> None:
        """A connection broke; does nothing when the training uses another one by now."""
        self._act(lambda it: it.lose() if connection == self.connection else [])

    def cut(self) -> None:
        self.hidden = True
        self._act(TrainingConversation.cut)

    def finish(self, step: int | None = None, cause: str = "") -> None:
        """The training said that it is done, which step ended last, if it counts them, and what ended it."""
        with self._changed:
            stop = self._conversation.stop
            if self._conversation.phase is not Phase.DONE:
                self._cause = cause
            self._notify(self._conversation.finish(step))
            if self._conversation.stop is not stop:  # the training ran on without hits since its last stop
                self._parts.show_hits()
        self.emit()

    def lacks(self, unrecorded: Sequence[Unrecorded]) -> None:
        if unrecorded:
            with self._changed:
                self._unrecorded = together(self._unrecorded, unrecorded)

    def take_graphs(self, graphs: Sequence[bytes], size: int) -> bool:
        """Takes the graphs of one stream, and ``size`` reserved bytes; tells whether all are there."""
        with self._changed:
            complete = self._parts.add_graphs(graphs, size)
            if complete:
                self._notify([Event.GRAPH])
        self.emit()
        return complete

    def take_hits(self, hits: Sequence[ReceivedHit], size: int, left_out: int) -> None:
        """Takes the hits of one stream, and ``size`` reserved bytes."""
        with self._changed:
            wanted = bool(hits) and self._conversation.report_hits()
            self._parts.add_hits(hits if wanted else (), size, left_out if wanted else 0)

    def view(self, level: Level) -> tuple[ClientQuestion, ViewAnswer] | None:
        """The question that a stream of answers belongs to; None when it was not asked for."""
        with self._changed:
            question = self._conversation.open_question
        if question is None or not isinstance(question.command, TensorRequest) or question.command.level is not level:
            return None
        return (question, question.answer) if isinstance(question.answer, ViewAnswer) else None

    def viewed(self, question: ClientQuestion) -> None:
        with self._changed:
            self._conversation.answered(question)
            self._changed.notify_all()

    def wait(self, report: TrainingReport, on_end: Callable[[Callable[[], None]], bool]) -> bytes | None:
        """Waits for the command that answers a call of ``WaitCMD``; None when the call ended or was replaced.

        ``on_end`` registers a function to call when the call ends; False when it has ended.
        """
        number = next(self._calls)
        with self._changed:
            self._enter(number, report)
        self.emit()
        if not on_end(lambda: self._left(number)):
            self._left(number)
        with self._changed:
            conversation = self._conversation
            while (command := conversation.command(number)) is None and conversation.waiting == number:
                self._changed.wait(_SAFETY_SECONDS)
            if command is not None:
                self._notify(conversation.after(command))
        self.emit()
        if command is None:
            return None
        swapped = not self.handshake.own and self.handshake.judged.version < RIGHT_TOLERANCES
        return encode(command, swap_tolerances=swapped)

    def emit(self) -> None:
        """Calls the listener for new events, in order, without the lock."""
        with self._speaking:
            while True:
                with self._changed:
                    if not self.counted:
                        self._events.clear()
                    if not self._events:
                        return
                    event = self._events.popleft()
                self._listener(self, event)

    def forget(self) -> None:
        with self._changed:
            self._parts.clear()

    # How ----------------------------------------------------------------------------------------------------------

    def _is_one_more_network(self, handshake: Handshake) -> bool:
        """Tells whether a running process of MindSpore compiled another network: it sends its graphs."""
        trains = self._conversation.stop is not None and self._conversation.phase is not Phase.DONE
        return trains and not handshake.own and handshake.judged.admission is Admission.ADMITTED

    def _act(self, act: Callable[[TrainingConversation], Events]) -> None:
        with self._changed:
            self._notify(act(self._conversation))
        self.emit()

    def _notify(self, events: Sequence[Event]) -> None:
        if events:
            self._events.extend(events)
        self._changed.notify_all()

    def _enter(self, number: int, report: TrainingReport) -> None:
        conversation, stop = self._conversation, self._conversation.stop
        question = conversation.open_question
        events = conversation.enter(number, report, self._clock())
        rechecked = question is not None and isinstance(question.command, Recheck)
        if conversation.stop is not stop or rechecked:
            self._parts.show_hits()
        if rechecked and question is not None:
            question.answer = self._parts.hits
        self._notify(events)

    def _left(self, number: int) -> None:
        self._act(lambda it: it.leave(number))

    def _numbers(self, level: Level, tensors: Sequence[RemoteTensor], progress: ProgressFn) -> list[RemoteStats]:
        if not self.handshake.own and self.handshake.judged.version < VIEWS_NUMBERS:
            raise UnsupportedError(
                f"{self._info.program} cannot be asked for statistics or shapes", hint="fetch the values instead"
            )
        entries: list[RemoteStats] = []
        full = bool(self._info.features & wire.FULL_STATISTICS)
        for group in groups(tensors, self._limits.view_numbers):
            answer = NumbersAnswer(len(group), full=full)
            before = len(entries)

            def so_far(answer: NumbersAnswer = answer, before: int = before) -> Progress:
                return Progress(before + answer.come, len(tensors))

            self._ask(TensorRequest(level, group), answer, progress, so_far)
            entries.extend(answer.entries)
            progress(Progress(len(entries), len(tensors)))
        return entries

    def _empty(
        self, group: Sequence[RemoteTensor], silent: Sequence[int], first: int, sink: ValueSink, progress: ProgressFn
    ) -> set[int]:
        """The tensors without elements: clients of MindSpore send nothing for them."""
        if not silent:
            return set()
        try:
            bases: Sequence[RemoteStats] = self.bases([group[number] for number in silent], progress)
        except UnsupportedError:
            bases = [RemoteStats(None)] * len(silent)
        empty = set()
        for number, base in zip(silent, bases, strict=True):
            if base.meta is None or base.meta.nbytes:
                sink.end(first + number, complete=False)
            elif sink.begin(first + number, base.meta.dtype, base.meta.shape):
                sink.end(first + number, complete=True)
                empty.add(number)
        return empty

    def _ask(
        self,
        command: TensorRequest | Recheck,
        answer: ViewAnswer | None,
        progress: ProgressFn,
        so_far: Callable[[], Progress],
    ) -> ClientQuestion:
        with self._changed:
            if self._conversation.asked >= self._limits.questions:
                raise TdbgError("too many questions to this training wait for their turn", hint="wait a little")
            question = self._conversation.ask(command, answer)
            self._changed.notify_all()
        try:
            while not self._over(question):
                progress(so_far())
        except BaseException:
            if answer is not None:
                answer.cancel()
            with self._changed:
                self._conversation.withdraw(question)
            raise
        if answer is not None:
            answer.finish()
            if answer.failure is not None:
                raise answer.failure
        if question.state is QuestionState.LOST:
            raise LostError("the training went away before it answered", hint="it is taken up again when it comes back")
        return question

    def _over(self, question: ClientQuestion) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not question.open, _LOOK_SECONDS)


_REFUSALS: Final = 100
_STRANGERS: Final = 1024
"""Clients that are remembered without being trainings: turned away, or not introduced yet."""
_MINUTE: Final = 60.0
_GONE: Final = (Phase.LOST, Phase.DONE)

V = TypeVar("V")


class Remembered(OrderedDict[str, V]):
    """The newest entries."""

    def put(self, key: str, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _STRANGERS:
            self.popitem(last=False)


class Registry:
    """All trainings of a server. A client counts as a training once its graph has come: see ``admit``."""

    def __init__(self, clock: Callable[[], float], limits: ServerLimits, memory: MemoryLimit) -> None:
        self._clock, self._limits, self._memory = clock, limits, memory
        self._lock = threading.Lock()
        self._trainings: list[RemoteTraining] = []
        self._arriving: list[RemoteTraining] = []
        self._callers: dict[str, RemoteTraining] = {}
        self._listeners: tuple[Listener, ...] = ()
        self._refusals: deque[str] = deque(maxlen=_REFUSALS)
        self._number = 0
        self._periods: Remembered[int] = Remembered()
        self._turned_away: Remembered[bool] = Remembered()
        self._strikes: Remembered[int] = Remembered()
        self._handshakes: Remembered[deque[float]] = Remembered()

    # For people ----------------------------------------------------------------------------------------------------

    @property
    def refusals(self) -> Sequence[str]:
        with self._lock:
            return tuple(self._refusals)

    def all(self) -> Sequence[RemoteTraining]:
        with self._lock:
            return tuple(self._trainings)

    def listen(self, listener: Listener) -> Callable[[], None]:
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return end

    def notify(self, training: RemoteTraining | None, event: Event) -> None:
        """Tells listeners. A failing listener harms neither the others nor the training that is being answered."""
        for listener in self._listeners:
            try:
                listener(training, event)
            except Exception:  # noqa: PERF203 - each by itself
                logging.getLogger(__name__).exception("a listener failed at %s", event)

    # For the calls -------------------------------------------------------------------------------------------------

    def refuse(self, who: str, why: str, training: RemoteTraining | None = None) -> None:
        """Notes why a client is turned away; the same reason is noted once."""
        line = f"{who}: {why}"
        with self._lock:
            if line in self._refusals:
                return
            self._refusals.append(line)
        self.notify(training, Event.REFUSED)

    def turn_away(self, caller: Caller, handshake: Handshake) -> None:
        """Notes a client that knows no versions: it gets the command to exit when it waits."""
        with self._lock:
            self._turned_away.put(caller.key, True)
        self.refuse(caller.address, handshake.judged.refusal)

    def is_turned_away(self, caller: Caller) -> bool:
        with self._lock:
            return caller.key in self._turned_away

    def early_beat(self, caller: Caller, period: int) -> None:
        """A heartbeat of a client that has not introduced itself yet, as MindSpore's first one."""
        with self._lock:
            self._periods.put(caller.key, period)

    def strike(self, caller: Caller, why: str) -> bool:
        """Counts a broken rule; True when the client is cut off now."""
        with self._lock:
            number = self._strikes.get(caller.key, 0) + 1
            self._strikes.put(caller.key, number)
            cut = number == self._limits.strikes
            training = self._callers.get(caller.key)
        if cut:
            self.refuse(caller.address, f"cut off: {why}", training)
            if training is not None:
                training.cut()
        return cut

    def is_cut_off(self, caller: Caller) -> bool:
        with self._lock:
            return self._strikes.get(caller.key, 0) >= self._limits.strikes

    def find(self, caller: Caller) -> RemoteTraining | None:
        with self._lock:
            training = self._callers.get(caller.key)
        return None if training is None or training.hidden else training

    def adopt(self, caller: Caller, device: str) -> RemoteTraining | None:
        """The training of a client of MindSpore whose connection broke: it goes on without introducing itself.

        Only the one lost training of that machine and device, or else the one without another connection.
        """
        with self._lock:
            fitting = [each for each in self._trainings if _same_place(each, caller, device)]
            fitting = [each for each in fitting if each.phase is not Phase.DONE and not each.hidden]
            fitting = [each for each in fitting if each.phase is Phase.LOST] or fitting
            if len(fitting) != 1:
                return None
            self._rebind(fitting[0], caller)
        fitting[0].moved(caller)
        return fitting[0]

    def greet(self, caller: Caller, handshake: Handshake) -> RemoteTraining | None:
        """A handshake: a client that is new, or comes back. None when there are too many."""
        with self._lock:
            if not self._may_greet(caller):
                return None
            known = self._known(caller, handshake)
            period = self._periods.pop(caller.key, None)
            training = known or self._add(caller, handshake)
            if training is None:
                return None
            self._rebind(training, caller)
        if known is not None:
            info = self._info(known.info.number, known.info.rank, caller, handshake)
            known.introduce_again(
                info, handshake, caller, resumes=handshake.own and known.handshake.session == handshake.session
            )
        elif handshake.judged.admission is Admission.MISMATCH:  # its graph never comes
            self.admit(training)
            self.refuse(caller.address, handshake.judged.refusal, training)
        if period is not None:
            training.beat(period)
        return training

    def admit(self, training: RemoteTraining) -> str:
        """Makes a client a training, as its graph has come; returns the reason if it cannot, else empty."""
        with self._lock:
            if training.counted:
                return ""
            handshake, caller = training.handshake, training.caller
            refusal = "there are too many trainings" if self._are_many() else self._other_run(handshake)
            if refusal:
                self._leave(training)
                return refusal
            if len(self._trainings) >= max(self._limits.remembered, self._limits.clients + 1):
                oldest = next(each for each in self._trainings if each.phase in _GONE)
                self._trainings.remove(oldest)
                self._drop(oldest)
            self._number += 1
            info = self._info(self._number, self._rank(caller, handshake), caller, handshake)
            self._arriving = [each for each in self._arriving if each is not training]
            self._trainings.append(training)
        training.count(info)
        return ""

    def refuses(self, caller: Caller, handshake: Handshake) -> str:
        """The reason to turn a client away that introduces itself, or empty."""
        with self._lock:
            known = self._known(caller, handshake)
            return "" if known is not None and known.counted else self._other_run(handshake)

    # How ----------------------------------------------------------------------------------------------------------

    def _other_run(self, handshake: Handshake) -> str:
        for each in self._trainings:
            there = each.phase not in _GONE and not each.hidden
            if there and not handshake.trains_with(each.handshake):
                place = each.handshake.place
                where = f", process {place[1]} on {place[0]}" if place is not None else ""
                return f"it is no rank of the run that is debugged here ({each.handshake.program}{where})"
        return ""

    def _are_many(self) -> bool:
        return sum(each.phase not in _GONE for each in self._trainings) >= self._limits.clients

    def _leave(self, training: RemoteTraining) -> None:
        self._arriving = [each for each in self._arriving if each is not training]
        self._drop(training)

    def _may_greet(self, caller: Caller) -> bool:
        now = self._clock()
        times = self._handshakes.get(caller.key) or deque(maxlen=self._limits.handshakes)
        self._handshakes.put(caller.key, times)
        full = len(times) == times.maxlen and now - times[0] < _MINUTE
        times.append(now)
        return not full

    def _known(self, caller: Caller, handshake: Handshake) -> RemoteTraining | None:
        for training in reversed([*self._trainings, *self._arriving]):
            before = training.handshake
            if (
                training.hidden
                or before.own != handshake.own
                or before.judged.admission is not handshake.judged.admission
            ):
                continue
            if handshake.own and handshake.session:  # a second training in a process is a new one
                same = before.session == handshake.session
            elif handshake.own and handshake.place:
                same = (before.place, before.rank) == (handshake.place, handshake.rank)
            else:
                same = training.caller.key == caller.key
            if same:
                return training
        return None

    def _add(self, caller: Caller, handshake: Handshake) -> RemoteTraining | None:
        if self._are_many():
            return None
        for each in [each for each in self._arriving if each.phase in _GONE]:
            self._leave(each)
        if len(self._arriving) >= self._limits.clients:
            self._leave(self._arriving[0])
        info = self._info(0, 0, caller, handshake)
        training = RemoteTraining(
            info,
            handshake,
            caller,
            clock=self._clock,
            limits=self._limits,
            memory=self._memory,
            listener=self.notify,
        )
        self._arriving.append(training)
        return training

    def _drop(self, training: RemoteTraining) -> None:
        self._unbind(training)
        training.hidden = True
        training.forget()

    def _rebind(self, training: RemoteTraining, caller: Caller) -> None:
        self._unbind(training)
        self._callers[caller.key] = training

    def _unbind(self, training: RemoteTraining) -> None:
        self._callers = {key: each for key, each in self._callers.items() if each is not training}

    def _rank(self, caller: Caller, handshake: Handshake) -> int:
        """Its own rank if no other holds it, else the next free rank that no other will ask for.

        A lost training keeps its rank, unless this is plainly its successor.
        """
        held = {
            each.info.rank
            for each in self._trainings
            if each.phase is not Phase.DONE
            and not (each.phase is Phase.LOST and (handshake.rank is not None or each.caller.host == caller.host))
        }
        if handshake.rank is not None and handshake.rank not in held:
            return handshake.rank
        first = 0 if handshake.rank is None else handshake.world_size or 0
        return next(rank for rank in count(first) if rank not in held)

    def _info(self, number: int, rank: int, caller: Caller, handshake: Handshake) -> TrainingInfo:
        info = TrainingInfo(
            number=number,
            rank=rank,
            world_size=handshake.world_size,
            address=caller.address,
            device=handshake.device,
            backend=handshake.backend,
            program=handshake.program,
            features=handshake.features,
            warning=handshake.judged.warning or handshake.judged.refusal,
        )
        # Kernel by kernel on GPU: the runtime before 1.5 could.
        old_gpu = not handshake.own and handshake.backend == "GPU" and handshake.judged.version < VIEWS_NUMBERS
        return replace(info, features=wire.RUNS_TO_NODES) if old_gpu else info


def _same_place(training: RemoteTraining, caller: Caller, device: str) -> bool:
    """Tells whether a training of MindSpore ran on this machine and device, and waits in no call."""
    return (
        not training.handshake.own
        and training.caller.host == caller.host
        and training.handshake.device == device
        and not training.waiting
    )
