"""Which training a call belongs to, who is let in, and what listeners are told."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tui_debugger.live import wire
from tui_debugger.live.server.identity import VIEWS_NUMBERS, Admission, Caller, Hello
from tui_debugger.live.server.limits import Limits, Memory
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event, Listener, Phase, Training, TrainingInfo

_REFUSALS: Final = 100
_STRANGERS: Final = 1024
"""Clients that are remembered without being trainings: turned away, or not introduced yet."""
_MINUTE: Final = 60.0
_GONE: Final = (Phase.LOST, Phase.DONE)

V = TypeVar("V")


class Remembered(OrderedDict[str, V]):
    """The newest entries."""

    def put(self, key: str, value: V) -> None:
        """Adds an entry and forgets the oldest when there are too many."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > _STRANGERS:
            self.popitem(last=False)


class Registry:
    """All trainings of a server."""

    def __init__(self, clock: Callable[[], float], limits: Limits, memory: Memory) -> None:
        self._clock, self._limits, self._memory = clock, limits, memory
        self._lock = threading.Lock()
        self._trainings: list[RemoteTraining] = []
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
        """Why clients were turned away."""
        with self._lock:
            return tuple(self._refusals)

    def all(self) -> Sequence[RemoteTraining]:
        """Every training."""
        with self._lock:
            return tuple(self._trainings)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls ``listener`` for every event from now on."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return end

    def tell(self, training: Training | None, event: Event) -> None:
        """Tells listeners. One that fails harms neither the others nor the training that is being answered."""
        for listener in self._listeners:
            try:
                listener(training, event)
            except Exception:  # noqa: PERF203 - each by itself
                logging.getLogger(__name__).exception("a listener failed at %s", event)

    # For the calls -------------------------------------------------------------------------------------------------

    def refuse(self, who: str, why: str, training: RemoteTraining | None = None) -> None:
        """Notes why a client is turned away; the same is noted once."""
        line = f"{who}: {why}"
        with self._lock:
            if line in self._refusals:
                return
            self._refusals.append(line)
        self.tell(training, Event.REFUSED)

    def turn_away(self, caller: Caller, hello: Hello) -> None:
        """A client that knows of no versions: it is told to exit when it waits."""
        with self._lock:
            self._turned_away.put(caller.key, True)
        self.refuse(caller.address, hello.judged.refusal)

    def is_turned_away(self, caller: Caller) -> bool:
        """Tells whether this client was."""
        with self._lock:
            return caller.key in self._turned_away

    def early_beat(self, caller: Caller, period: int) -> None:
        """A heartbeat of a client that has not introduced itself yet: MindSpore's first one."""
        with self._lock:
            self._periods.put(caller.key, period)

    def strike(self, caller: Caller, why: str) -> bool:
        """A broken rule; True when the client is cut off now."""
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
        """Tells whether this client broke too many rules."""
        with self._lock:
            return self._strikes.get(caller.key, 0) >= self._limits.strikes

    def find(self, caller: Caller) -> RemoteTraining | None:
        """The training that a call belongs to."""
        with self._lock:
            training = self._callers.get(caller.key)
        return None if training is None or training.hidden else training

    def adopt(self, caller: Caller, device: str) -> RemoteTraining | None:
        """The training of a client of MindSpore whose connection broke: it goes on without introducing itself.

        Only when there is no doubt: one training of that machine and device that waits in no other connection, or one
        of them that is known to be lost.
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

    def greet(self, caller: Caller, hello: Hello) -> RemoteTraining | None:
        """A handshake: a training that is new, or comes back. None when there are too many."""
        with self._lock:
            if not self._may_greet(caller):
                return None
            known = self._known(caller, hello)
            period = self._periods.pop(caller.key, None)
            training = known or self._add(caller, hello)
            if training is None:
                return None
            self._rebind(training, caller)
        if known is None:
            self._welcome(training, caller, hello)
        else:
            info = self._info(known.info.number, known.info.rank, caller, hello)
            known.shake(info, hello, caller, resumes=hello.own and known.hello.session == hello.session)
        if period is not None:
            training.beat(period)
        return training

    # How ----------------------------------------------------------------------------------------------------------

    def _may_greet(self, caller: Caller) -> bool:
        now = self._clock()
        times = self._handshakes.get(caller.key) or deque(maxlen=self._limits.handshakes)
        self._handshakes.put(caller.key, times)
        full = len(times) == times.maxlen and now - times[0] < _MINUTE
        times.append(now)
        return not full

    def _known(self, caller: Caller, hello: Hello) -> RemoteTraining | None:
        for training in reversed(self._trainings):
            before = training.hello
            if training.hidden or before.own != hello.own or before.judged.admission is not hello.judged.admission:
                continue
            if hello.own:
                if hello.session and before.session == hello.session:
                    return training
                if hello.place and (before.place, before.rank) == (hello.place, hello.rank):
                    return training
                if hello.session or hello.place:
                    continue
            if training.caller.key == caller.key:
                return training
        return None

    def _add(self, caller: Caller, hello: Hello) -> RemoteTraining | None:
        if sum(each.phase not in _GONE for each in self._trainings) >= self._limits.clients:
            return None
        if len(self._trainings) >= max(self._limits.remembered, self._limits.clients + 1):
            self._forget(next(each for each in self._trainings if each.phase in _GONE))
        self._number += 1
        info = self._info(self._number, self._rank(caller, hello), caller, hello)
        training = RemoteTraining(
            info,
            hello,
            caller,
            clock=self._clock,
            limits=self._limits,
            memory=self._memory,
            listener=self.tell,
        )
        self._trainings.append(training)
        return training

    def _forget(self, training: RemoteTraining) -> None:
        self._trainings.remove(training)
        self._callers = {key: each for key, each in self._callers.items() if each is not training}
        training.hidden = True
        training.forget()

    def _rebind(self, training: RemoteTraining, caller: Caller) -> None:
        self._callers = {key: each for key, each in self._callers.items() if each is not training}
        self._callers[caller.key] = training

    def _welcome(self, training: RemoteTraining, caller: Caller, hello: Hello) -> None:
        training.announce(Event.CONNECTED)
        if hello.judged.admission is Admission.MISMATCH:
            self.refuse(caller.address, hello.judged.refusal, training)

    def _rank(self, caller: Caller, hello: Hello) -> int:
        """Its own rank when it says one that no other holds, else the next free one.

        One that is lost keeps its rank, unless it is plain that this is its successor.
        """
        held = {
            each.info.rank
            for each in self._trainings
            if each.phase is not Phase.DONE
            and not (each.phase is Phase.LOST and (hello.rank is not None or each.caller.host == caller.host))
        }
        if hello.rank is not None and hello.rank not in held:
            return hello.rank
        return next(rank for rank in range(len(held) + 1) if rank not in held)

    def _info(self, number: int, rank: int, caller: Caller, hello: Hello) -> TrainingInfo:
        info = TrainingInfo(
            number=number,
            rank=rank,
            world_size=hello.world_size,
            address=caller.address,
            device=hello.device,
            backend=hello.backend,
            program=hello.program,
            features=hello.features,
            warning=hello.judged.warning or hello.judged.refusal,
        )
        # Kernel by kernel on GPU: the runtime before 1.5 could.
        old_gpu = not hello.own and hello.backend == "GPU" and hello.judged.version < VIEWS_NUMBERS
        return replace(info, features=wire.RUNS_TO_NODES) if old_gpu else info


def _same_place(training: RemoteTraining, caller: Caller, device: str) -> bool:
    """Tells whether a training of MindSpore ran on this machine and device, and waits in no call."""
    return (
        not training.hello.own
        and training.caller.host == caller.host
        and training.hello.device == device
        and not training.waiting
    )
