"""The recorder: shows any training loop whose arrays convert to NumPy."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from tui_debugger.arrays import Array
from tui_debugger.live.client.agent import Agent, call_if_alive, of_the_training
from tui_debugger.live.client.endings import EndListener
from tui_debugger.live.client.flight import Flight, FlightRecorder, FlightRow
from tui_debugger.live.client.forked import ForkedCounts
from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.live.client.link import TIMEOUT, Notice, settings
from tui_debugger.live.client.notebook import Notebook
from tui_debugger.live.client.probe import ClientHit, Identity, TrainingTerminated
from tui_debugger.live.client.recorded import NO_NAME, NOT_ANNOUNCED, NOT_TAKEN, TOO_NESTED, CopyBudget, Recordings
from tui_debugger.live.client.unpacking import UnpackedValue, in_words, name_text, unpack
from tui_debugger.live.wire import START

KEPT: Final = 2 << 30
"""Default of the bytes of copies that are kept for a debugger."""
_CHANGES: Final = 100
"""How often new names are sent to the debugger: each time the whole graph is sent."""
_COMPLAINTS: Final = 20
"""Names whose problems are reported."""


class Recorder:
    """Shows the values of a training loop to a debugger.

    ::

        recorder = Recorder()              # TDBG_HOST, TDBG_PORT; does nothing without them
        for batch in batches:
            ...
            recorder.record("fc1/out", h, kind="activation", inputs=("x", "fc1.weight"))
            recorder.record("fc1.weight", g, kind="gradient")
            recorder.record("fc1.weight", w, kind="weight")
            recorder.note(loss=loss, lr=lr)
            recorder.step()                # may stop here, as long as the debugger says

    Instead of the last line the body can stand in ``with recorder.step():``. The graph in the debugger is made of the
    names seen in the first step, with ``/`` between scopes; later names are added at the end of their step.

    ``begin()`` after recording the initial weights stops before the first step and has them judged; without it the
    debugger stops before the first step all the same, but has no initial values.

    Every step is judged, including the first one and recordings after the last ``step()``. A debugger that comes later
    sees the steps from the next one on. Without an address and a flight recorder every method returns at once. Errors
    of the debugger never reach the loop; see ``Agent``. All methods are for the thread that trains.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        rank: int = 0,
        world_size: int | None = None,
        program: str = "",
        device: str = "0",
        backend: str = "CPU",
        timeout: float = TIMEOUT,
        keep_bytes: int = KEPT,
        flight: Flight | None = None,
    ) -> None:
        """Starts to look for a debugger in the background when there is an address.

        Args:
            address: ``host:port`` or ``unix:/path``; None: ``TDBG_HOST`` and ``TDBG_PORT``; empty: off.
            rank: number of this process.
            world_size: number of processes, None when unknown.
            program: the name of the training; Python and its version unless given.
            device: number of the device, for display.
            backend: ``CPU``, ``GPU`` ..., for display.
            timeout: seconds after which a debugger that does not answer is given up.
            keep_bytes: for copies of values while a debugger is attached. Further tensors have statistics only.
            flight: also keep statistics of the last steps, and write them when something goes wrong without a debugger:
                at the end of the step, at an exception, at exit, or at SIGTERM and SIGHUP.

        Raises:
            TdbgError: ``address`` or a watch text of ``flight`` is wrong.
        """
        where = settings(address, timeout=timeout)
        self._identity = Identity(program or f"Python {platform.python_version()}", rank, world_size, backend, device)
        self._keep_bytes = keep_bytes
        self._settings = flight
        self._say = Notice()
        self._blocks = False
        """Steps are ``with`` blocks."""
        self._error: BaseException | None = None
        """The exception that was written last."""
        self._closed = False
        self._forked: ForkedCounts | None = None
        self._in_child = False
        """This process was forked from the one that speaks with the debugger."""
        self._start()
        self._agent = Agent(self._recordings, where, self._notes)
        if self._agent.on:
            self._forked = ForkedCounts()
            self._recordings.forked = self._forked.all
            atexit.register(call_if_alive, weakref.WeakMethod(self.__del__))

    def _start(self) -> None:
        """Starts with empty recordings, also after a fork."""
        self._process = os.getpid()
        self._recordings = recordings = Recordings(self._identity, CopyBudget(self._keep_bytes))
        recordings.memory.rank = self._identity.rank
        recordings.evidence = self._settings is not None
        self._flight: FlightRecorder | None = None
        if self._settings is not None:
            self._flight = FlightRecorder(
                self._settings, self._identity, recordings.unrecorded, recordings.patience, recordings.memory
            )
        self._notes = Notebook(self._say)
        self._complaints: set[str] = set()
        """The names whose problems were reported."""
        self._fresh = True
        """True while nothing was recorded since the step ended."""
        self._pending: _StepBlock | None = None
        self._announced = 0
        """Names that the debugger has heard of."""
        self._changes = 0
        """How often the debugger was told of new names."""
        self._flown = 0
        """Names that the flight recorder has heard of."""
        self._withheld: Sequence[ClientHit] = ()
        self._ending = EndListener(self._ended) if self._flight is not None else None

    @property
    def attached(self) -> bool:
        return self._agent.attached

    @property
    def steps(self) -> int:
        return self._agent.step + 1

    def record(self, name: Any, array: Any, kind: str = "tensor", inputs: Sequence[str] = ()) -> None:
        """Shows one tensor of this step. Of two with one name both are judged; the later one can be looked at.

        Args:
            name: ``encoder/block0/attention``; the same in every step. A gradient may have the name of its weight: it
                is shown as ``Gradients/<name>``. Other objects than strings are converted to text.
            array: see ``to_numpy``. Kept values are copied: change it afterwards as you like. Every array inside of
                structured arrays, arrays of objects, mappings, lists and dataclasses is a tensor of its own, below this
                name: ``batch/image``. Values that NumPy cannot read are counted as not recorded. None and text hold no
                numbers.
            kind: ``weight`` (trained), ``parameter`` (not trained), ``gradient``, ``activation``, ``tensor``; any other
                word is the type of the operator that made it (``relu``, ``softmax``: these are activations,
                ``matmul``).
            inputs: names of the tensors it was made from, if known: they tell where a NaN comes from.
        """
        if not self._ready():
            return
        self._settle()
        if self._fresh:
            self._fresh = False
            self._begin_step()
        try:
            self._record(name_text(name), _text(kind, "tensor"), array, _names(inputs))
        except Exception as error:
            if of_the_training(error):
                raise
            self._lose(NO_NAME, f"a name of type {type(name).__name__}", in_words(error))

    def note(self, **notes: Any) -> None:
        """Takes scalars of this step, which are shown beside its findings: ``note(loss=loss, lr=lr, batch=7)``.

        They are numbers, bools, short texts, or arrays of one element; at most 64 names a step. A later note of the
        same name replaces an earlier one. Other values are left out, with one warning.
        """
        if not self._ready() or not (self._flight is not None or self._agent.expected):
            return
        self._settle()
        self._notes.add(notes)

    def begin(self) -> None:
        """Before the first step: the recordings so far are initial values. Stops when the debugger is there."""
        if self._ready() and self._agent.step == START:
            self._agent.begin()
            if self._flight is not None:
                self._flight.begin(self._rows(with_values=False))
            self._recordings.next_step()
            self._fresh = True

    def step(self) -> _StepBlock:
        """Ends the step. As ``with recorder.step():`` it ends at the end of the block instead.

        Which form is meant shows by itself, except that recordings before the first ``with`` block must be followed by
        ``begin()``. Like ``begin`` and ``close`` it raises TrainingTerminated when the debugger ends the training.
        """
        if self._ready():
            self._settle()
        step = _StepBlock(self._begin_block, self._end_step, self._failed)
        if self._fresh or self._blocks:
            self._pending = step  # a block follows; if not, it was a step without recordings
        else:
            self._end_step()
        return step

    def close(self) -> None:
        """Tells the debugger that the training is done, and of findings since the last ``step()``. Idempotent.

        It is called at exit in any case. TrainingTerminated: the debugger ended the training.
        """
        if self._closed or os.getpid() != self._process:  # a process that was forked, and recorded nothing
            self._closed = True
            return
        try:
            self._settle()
        finally:
            self._closed = True
            self._announce()
            self._give_rest_to_flight()
            self._flush_flight(None, ends=True)
            if self._ending is not None:
                self._ending.close()
            self._flight = None
            self._recordings.unstarted = self._agent.step == START
            self._agent.close()

    def __del__(self) -> None:
        """For a loop that forgot ``close``."""
        with contextlib.suppress(Exception, TrainingTerminated):
            self.close()

    def __enter__(self) -> Recorder:  # noqa: PYI034 - typing.Self needs Python 3.11
        """``with Recorder() as recorder:`` around the loop: the flight recorder writes at an exception."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self._failed(error, ends=True)
        with contextlib.suppress(TrainingTerminated):  # it ends in any case
            self.close()

    # -- inside --------------------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Tells whether there is anything to do. A forked process starts anew with its first use of this."""
        if self._closed:
            return False
        if os.getpid() != self._process:
            self._in_child = self._forked is not None
            self._start()
        return self._agent.on or self._flight is not None or self._in_child

    def _record(self, name: str, kind: str, value: Any, inputs: Sequence[str]) -> None:
        if self._in_child and self._forked is not None:
            self._forked.add(name, self._agent.step + 1)
            self._complain("a forked process", "is not seen by the debugger: what it records is counted as unrecorded")
        if not self._recordings.wanted(name, kind):
            return
        found = unpack(value)
        names = [_below(name, path) for path, _ in found.arrays]
        if names != [name]:
            self._recordings.consists_of(name, kind, names)
        for full, (_, array) in zip(names, found.arrays, strict=True):
            self._add(full, kind, array, inputs)
        self._tell_unread(name, value, found)

    def _add(self, name: str, kind: str, array: Array, inputs: Sequence[str]) -> None:
        try:
            self._recordings.add(name, kind, array, inputs)
        except Exception as error:  # no memory for a copy ...
            if of_the_training(error):
                raise
            self._lose(NOT_TAKEN, name, in_words(error))

    def _tell_unread(self, name: str, value: Any, found: UnpackedValue) -> None:
        for path, why in found.unread:
            self._lose(NOT_TAKEN, _below(name, path), why)
        if found.beyond:
            self._lose(TOO_NESTED, name, f"{found.beyond:,} values are too many, or nested too deep", found.beyond)
        if value is not None and not (found.arrays or found.unread or found.beyond):
            self._complain(name, f"holds no numbers: nothing of it is judged ({type(value).__name__})")

    def _lose(self, what: str, name: str, why: str, count: int = 1) -> None:
        self._recordings.lose(what, name, count)
        self._complain(name, f"cannot be recorded ({why})")

    def _complain(self, name: str, text: str) -> None:
        if name not in self._complaints and len(self._complaints) < _COMPLAINTS:
            self._complaints.add(name)
            self._say(f"{name} {text}")

    def _settle(self) -> None:
        """``step()`` was called with nothing recorded, and no block followed: that was a step."""
        if self._pending is not None:
            self._pending = None
            self._end_step()

    def _begin_block(self) -> None:
        self._pending = None
        self._blocks = True

    def _begin_step(self) -> None:
        """Before the first tensor of a step: decides what is kept of it."""
        self._recordings.keeping = self._agent.expected
        self._recordings.step = self._recordings.memory.step = self._agent.step + 1
        flight = self._flight
        self._recordings.measuring = flight is not None
        # Values that the second step is compared with are needed before the graph tells what is watched.
        self._recordings.copying = flight is not None and (flight.flight.tensor_steps > 0 or not flight.knows_graph)
        if self._ending is not None:
            self._ending.thread = threading.get_ident()

    def _end_step(self) -> None:
        whole = self._fresh or self._recordings.keeping
        self._fresh = True
        self._notes.end(self._agent.step + 1, send=self._agent.on)
        self._announce()
        try:
            if whole and self._agent.step == START:
                self._stop_at_start()
            seen = self._recordings.judge if self._agent.attached else None
            self._give_to_flight(self._agent.step + 1, seen)
            self._agent.step_end()
            if seen is not None and not self._agent.attached:
                self._judge_withheld()
        finally:
            self._recordings.next_step()

    def _stop_at_start(self) -> None:
        """The stop before the first step, after that step has run: only then the graph is known."""
        self._recordings.unstarted = True
        try:
            self._agent.begin()
        finally:
            self._recordings.unstarted = False

    def _announce(self) -> None:
        """Has the graph sent again if there are new names."""
        new = len(self._recordings.nodes) - self._announced
        if not new:
            return
        if self._recordings.full:
            self._say(f"only the first {len(self._recordings.nodes)} names are shown")
        if self._agent.attached:
            if self._changes < _CHANGES:
                self._changes += 1
                self._agent.graph_changed()
            else:
                self._recordings.lose(NOT_ANNOUNCED, list(self._recordings.nodes)[self._announced], new)
        self._announced = len(self._recordings.nodes)

    # -- the flight recorder -------------------------------------------------------------------------

    def _at_work(self) -> contextlib.AbstractContextManager[None]:
        return self._ending.at_work() if self._ending is not None else contextlib.nullcontext()

    def _give_to_flight(self, step: int, seen: ClientJudge | None, *, partial: bool = False) -> None:
        """Hands a step to the flight recorder, without hits that the debugger's list (``seen``) covers."""
        flight, recordings = self._flight, self._recordings
        if flight is None:
            return
        try:
            with self._at_work():
                if self._flown != len(recordings.nodes) or not flight.knows_graph:
                    self._flown = len(recordings.nodes)
                    recordings.flight_judge = flight.know(recordings.graphs())
                rows = self._rows(with_values=flight.flight.tensor_steps > 0)
                flight.keep(step, rows, partial=partial, notes=self._notes.of(step))
                self._withheld = recordings.judged(flight.judge)
                hits = [hit for hit in self._withheld if seen is None or seen.need(hit.node) is None]
                values = {name: held.values for name, held in recordings.in_order()}
                self._report(flight.judged(step, hits, lambda name, _: values.get(name)))
        except Exception as error:
            if of_the_training(error):
                raise
            self._report(flight.missed(step, error))

    def _give_rest_to_flight(self) -> None:
        """Hands over the recordings since the last step ended."""
        if not self._fresh and self._recordings.held:
            self._give_to_flight(
                self._agent.step + 1, self._recordings.judge if self._agent.attached else None, partial=True
            )

    def _judge_withheld(self) -> None:
        """The debugger left at the end of this step, maybe before it saw the hits."""
        if self._flight is not None:
            with self._at_work():
                self._report(self._flight.judged(self._agent.step, self._withheld))

    def _flush_flight(self, error: BaseException | None, *, ends: bool) -> None:
        flight = self._flight
        if flight is not None:
            with self._at_work():
                self._report(flight.flush(ends=ends))
                if isinstance(error, Exception) and error is not self._error and not self._agent.attached:
                    self._error = error
                    self._report(flight.failed(error, ends=ends))

    def _ended(self, error: BaseException | None, ends: bool) -> None:
        """The process is about to end, or a signal came."""
        if ends:
            self._give_rest_to_flight()
        self._flush_flight(error, ends=ends)

    def _report(self, text: str) -> None:
        if text:
            self._say(text)

    def _rows(self, *, with_values: bool) -> list[FlightRow]:
        return [
            FlightRow(name, held.meta, held.record.stats if held.record else None, held.values if with_values else None)
            for name, held in self._recordings.in_order()
        ]

    def _failed(self, error: BaseException, *, ends: bool = False) -> None:
        """An exception leaves the loop, or one step."""
        if self._flight is not None and os.getpid() == self._process:
            self._give_rest_to_flight()  # the unfinished step
            self._flush_flight(error, ends=ends)


def _below(name: str, path: str) -> str:
    return name_text(name + path) if path else name


def _names(names: Any) -> tuple[str, ...]:
    several = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    given = list(names) if several else [] if names is None else [names]
    return tuple(_text(each, "an input without a name") for each in given)


def _text(name: Any, otherwise: str) -> str:
    try:
        return name_text(name)
    except Exception as error:
        if of_the_training(error):
            raise
        return otherwise


class _StepBlock:
    def __init__(
        self, begin: Callable[[], None], end: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._begin, self._end, self._failed = begin, end, failed

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The step ends; after an exception it does not count."""
        if error is None:
            self._end()
        else:
            self._failed(error)
