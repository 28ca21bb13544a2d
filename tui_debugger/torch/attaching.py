"""Attaches to a PyTorch training: ``attach`` and ``step`` for programs, and the ``Probe`` behind them."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from tui_debugger.errors import TdbgError
from tui_debugger.live.client.agent import Agent, ClientHit, ClientValue, Identity
from tui_debugger.live.client.flight import Flight
from tui_debugger.live.client.judging import ClientJudge, resolve
from tui_debugger.live.client.link import TIMEOUT, LinkSettings, Notice, settings
from tui_debugger.live.client.notebook import Notebook
from tui_debugger.live.wire import START, UNSENT_NODES, RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.records import RequiredStats
from tui_debugger.torch import exact
from tui_debugger.torch.captures import Capture
from tui_debugger.torch.distributed import ExchangeHooks
from tui_debugger.torch.drawing import parameters_of
from tui_debugger.torch.flight import TrainingFlight
from tui_debugger.torch.internals import chunks, compiles, local, meta_of, readable, type_name, uncompiled
from tui_debugger.torch.module_hooks import ModuleHooks
from tui_debugger.torch.operators import Operators
from tui_debugger.torch.optimizers import Stepped, Steps, optimizer_in
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import GRADIENTS
from tui_debugger.torch.training import Scalers, TrainingState, unscales
from tui_debugger.torch.unseen import tell_debugger
from tui_debugger.torch.verdicts import find_records, initial_hits, judge_step, values_of


class TorchProbe:
    """Answers questions about the present step, even after the program has ended; its computations count as our own."""

    def __init__(
        self,
        training: TrainingState,
        attached: Callable[[], None],
        detached: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._training = training
        self._ended = ended
        self._attached = attached
        self._detached = detached
        self._resting = False
        """The running step will never end: weights and gradients are those of the step before."""
        self.initial = False
        """For the debugger the training stands before its first step: see ``Attachment``."""

    def identity(self) -> Identity:
        return self._training.identity()

    def attached(self) -> None:
        self._attached()

    def detached(self) -> None:
        self._detached()

    def unrecorded(self) -> Sequence[Unrecorded]:
        return self._training.recording.unrecorded.all()

    def graphs(self) -> Sequence[bytes]:
        with self._training.recording.at_work():
            graph = self._training.graph()
            self._training.recording.structure.sent()
            return [graph]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        with self._training.recording.at_work():
            self._training.recording.plans = self._training.plans(watchpoints)

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        training = self._training
        judge = training.recording.plans.judge
        with training.recording.at_work():
            if initial or self.initial:
                return self._judge_initial(judge)
            if not self._resting:
                training.see_weights()
            training.expectation.look_at(training.recording.step, training.recording.structure)
            return training.recording.told(judge_step(training.recording.step, judge, recheck=recheck))

    def unfinished(self) -> bool:
        recording = self._training.recording
        return bool(len(recording.step) or recording.passes)

    def rest(self) -> Sequence[ClientHit]:
        """Parameters are unchanged; their gradients are there if a backward pass ran."""
        training = self._training
        recording = training.recording
        self._resting = True
        with recording.at_work():
            self._ended()
            if any(name.startswith(GRADIENTS) for name in recording.step.names()):
                training.see_gradients()
            training.expectation.look_at(recording.step, recording.structure)
            return recording.told(judge_step(recording.step, recording.plans.judge, recheck=False))

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        with self._training.recording.at_work():
            values, capture = self._find(tensor)
        if values is not None:
            return meta_of(values)
        return capture.meta if capture is not None else None

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """Statistics of the values, or from the record that was made when they existed."""
        recording = self._training.recording
        with recording.at_work():
            values, capture = self._find(tensor)
            if values is not None:
                return meta_of(values), exact.records([(values, RequiredStats(), None)])[0].stats
            if capture is None:
                return None
            seen = recording.passes.find((capture.name, capture.slot))
            if capture.record is None and capture.pending is not None and seen is not None:
                find_records(seen[0], [capture], recording.plans.judge)
        record = capture.record
        return None if record is None or capture.rough else (capture.meta, record.stats)

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        with self._training.recording.at_work():
            values, _ = self._find(tensor)
            if values is None:
                return None
            part = local(values)
        return ClientValue(type_name(part.dtype), tuple(part.shape), self._chunks(part))

    # -- inside --------------------------------------------------------------------------------------

    def _chunks(self, values: torch.Tensor) -> Iterator[bytes]:
        pieces = chunks(values)
        while True:
            with self._training.recording.at_work():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _judge_initial(self, judge: ClientJudge) -> list[ClientHit]:
        weights = [(name, each) for name, each in self._training.initial() if judge.need(name) is not None]
        found = exact.records([(values, RequiredStats(), None) for _, values in weights])
        return initial_hits([name for name, _ in weights], found, judge)

    def _find(self, tensor: RemoteTensor) -> tuple[torch.Tensor | None, Capture | None]:
        training = self._training
        name = resolve(tensor.node, training.names())
        if self.initial or tensor.previous:
            return (training.previous.get(name) if not (self.initial and tensor.previous) else None), None
        seen = training.recording.passes.find((name, tensor.slot))
        if seen is not None:
            return values_of(*seen), seen[1]
        found = training.parameter(name) if not tensor.slot else None
        return (found if found is not None and readable(found) else None), None


CHANGES: Final = 20
"""How often a growing graph (of a program whose steps differ) is sent again."""
RIVAL: Final = 2
"""Steps of an optimizer that shares parameters with the one that ends steps, after which it ends them instead."""
STRANGER: Final = 20
"""The same for an optimizer of other parameters, if the one that ends steps never made a step."""
JOINED: Final = "steps of a new optimizer before it was known that it ends the steps (give it to tdbg.attach)"
"""A kind of unrecorded steps."""
_GIB: Final = 1 << 30


class Handle:
    """What ``attach`` returns without an address: nothing is installed, and no method does anything."""

    def __enter__(self) -> Handle:  # noqa: PYI034 - typing.Self needs Python 3.11
        """``with tdbg.attach(...):`` around the loop: the flight recorder sees what ends it; then all is removed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.failed(error)
        self.detach()

    @property
    def on(self) -> bool:
        return False

    @property
    def attached(self) -> bool:
        return False

    @property
    def unrecorded(self) -> Sequence[Unrecorded]:
        """What ran and could not be recorded so far: with it the training cannot be called clean."""
        return ()

    def step_end(self) -> None:
        """A step has ended."""

    def note(self, **notes: Any) -> None:
        """Adds scalars to the running step: see ``tui_debugger.torch.note``."""

    def failed(self, error: BaseException) -> None:
        """An exception ends the training: the flight recorder writes what it has."""

    def detach(self) -> None:
        """Removes everything. Idempotent."""


class Attachment(Handle):
    """A training that looks for its debugger.

    The first step that a debugger sees runs before the debugger is told anything, because the graph of an eager program
    is known only after a run. Then the debugger stops "before the first step", with the initial weights; when it says
    go on, the first step is judged, and stopped in or after.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[Stepped],
        settings: LinkSettings,
        *,
        level: str,
        keep: str,
        memory: int | None,
        flight: Flight | None,
    ) -> None:
        self._say = Notice()
        self._failed = False
        self._changes = 0
        self._unsent = 0
        self._iterated = False
        self._skipped = False
        self._watching_optimizers: list[RemovableHandle] = []
        self._watching_model: list[RemovableHandle] = []
        for handles in (self._watching_optimizers, self._watching_model):
            weakref.finalize(self, _without, handles)
        self._budget = memory if memory is not None else room_of(model)
        self._recording = StepRecording(self._budget, values=keep == "values", at_once=level == "op")
        self._recording.measuring = flight is not None
        self._given = tuple(each for given in optimizers if (each := optimizer_in(given)) is not None)
        self._training = TrainingState(model, self._given, self._recording)
        self._probe = TorchProbe(self._training, self._install, self._remove, self._end_of_recording)
        self._notes = Notebook(self._say)
        self._flying = None if flight is None else TrainingFlight(flight, self._training, self._say, self._notes)
        self._agent = self._recording.agent = Agent(self._probe, settings, self._notes)
        self._scalers = Scalers(_weakly(self._scaler_stepped))
        weakref.finalize(self, self._scalers.remove)
        self._training.expectation.at_once = level == "op"
        self._ends = optimizer_in(optimizers[-1]) if optimizers else None
        self._ended = self._running = False
        self._since: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        """Steps of other optimizers since the last step of the one that ends steps."""
        self._usual = 0
        self._told_of_compiler = False
        self._recording.at_backward_end = _weakly(self._backward_ended)
        hooks = Operators if level == "op" else ModuleHooks
        self._exchanges = ExchangeHooks(self._recording, self._guard)
        self._hooks: Operators | ModuleHooks = hooks(self._recording, self._training.tree, self._guard)
        self._steps = Steps(optimizers[-1], self._optimizer_ended_step) if optimizers else None
        compiled = self._training.tree.compiled
        if compiled and self._agent.on:
            self._say(f"torch.compile hides the {self._training.tree.hidden} modules inside {', '.join(compiled)}")
        self._guard(lambda: self._prepare(ended=False))

    @property
    def on(self) -> bool:
        return not self._failed and (self._agent.on or self._flying is not None)

    @property
    def attached(self) -> bool:
        return self._agent.attached

    @property
    def unrecorded(self) -> Sequence[Unrecorded]:
        return self._recording.unrecorded.all()

    def step_end(self) -> None:
        """Judges the step that ended, and follows the debugger's commands; may raise TrainingTerminated."""
        if not self.on:
            self.detach()
            return
        with self._recording.at_work():
            if self._hooks.installed:
                self._guard(self._end_of_recording)
                self._notes.end(self._agent.step + 1, send=self._agent.on)
                if self._agent.step == START:
                    self._stop_at_start()
                    if self._agent.wants_nodes:
                        self._agent.nodes_ended(dict.fromkeys(each.name for each in self._recording.step))
                self._guard(self._give_to_flight)
            attached = self._agent.attached
            self._agent.step_end()
            if attached and not self._agent.attached:
                self._guard(self._judge_withheld)
        self._guard(self._prepare)

    def note(self, **notes: Any) -> None:
        if not self._hooks.installed:
            return
        recording = self._recording
        before, recording.paused = recording.paused, True  # autocast must not cast our computations
        try:
            self._notes.add(notes)
        finally:
            recording.paused = before

    def failed(self, error: BaseException) -> None:
        flying = self._flying
        if flying is not None:
            self._guard(lambda: flying.failed(error))

    def detach(self) -> None:
        """Removes everything, and tells the debugger that this training is done."""
        if self._flying is not None:
            self._guard(self._flying.close)
            self._flying = None
        with self._recording.at_work():
            self._agent.close()
        self._remove()
        if self._steps is not None:
            self._steps.remove()

    # -- inside --------------------------------------------------------------------------------------

    def _prepare(self, *, ended: bool = True) -> None:
        with self._recording.at_work():
            self._begin_step(ended)

    def _begin_step(self, ended: bool) -> None:
        self._training.next_step()
        self._hooks.new_step(ended=ended)
        if not self._agent.expected and self._flying is None:
            self._remove()
            return
        self._install()
        if self._flying is not None:
            self._flying.begins(self._agent.step + 1, attached=self._agent.attached)
            if not self._agent.attached:
                self._recording.plans = self._flying.plans()
        if self._recording.learning:
            self._training.look_again()
            self._training.start(self._budget)

    def _install(self) -> None:
        if self._hooks.installed:
            return
        self._training.look_again()
        self._hooks.install(self._training.tree)
        self._exchanges.install(self._training.tree, self._training.distribution)
        self._scalers.install()
        self._watching_model += [
            register_module_buffer_registration_hook(_weakly(self._put_in)),
            register_module_module_registration_hook(_weakly(self._put_in)),
            register_module_parameter_registration_hook(_weakly(self._put_in)),
        ]
        self._watching_optimizers += [
            register_optimizer_step_pre_hook(_weakly(self._optimizer_begins)),
            register_optimizer_step_post_hook(_weakly(self._other_optimizer_is_done)),
        ]

    def _remove(self) -> None:
        """Removes all hooks and held tensors, except for the hook that tells when a step ends."""
        self._hooks.remove()
        self._exchanges.remove()
        self._scalers.remove()
        _without(self._watching_model)
        if not self._iterated:
            _without(self._watching_optimizers)
        self._training.let_go()

    def _end_of_recording(self) -> None:
        self._recording.end_pass()
        self._count_unseen()
        self._learn()

    def _count_unseen(self) -> None:
        recording, compiled = self._recording, self._training.tree.compiled
        losses = recording.structure.losses
        for scope in compiled:
            recording.lost("passes of modules inside torch.compile", scope)
        ran = (
            recording.step.starts
            or recording.passes
            or any(not name.startswith(GRADIENTS) and name not in losses for name in recording.step.names())
        )
        if not compiled and not ran:
            recording.lost("steps in which no module was seen to run", "")
        if compiles():
            self._count_compiled(known=bool(compiled), ran=bool(ran))

    def _count_compiled(self, *, known: bool, ran: bool) -> None:
        """Counts functions that torch.compile took, maybe after the model was attached: hooks do not run in them."""
        hooks, what = self._hooks, ""
        if isinstance(hooks, Operators):
            what = "torch.compile stands back while every operator is recorded: the training is slower"
        elif not known:
            hidden = hooks.hidden() if ran else []
            for scope in hidden:
                self._recording.lost("passes of modules inside torch.compile", scope)
            if hidden:
                what = f"torch.compile hides {', '.join(hidden[:3])}{' ...' if hidden[3:] else ''}"
        if what and not self._told_of_compiler:
            self._told_of_compiler = True
            self._say(what)

    def _learn(self) -> None:
        """The graph is known now, or has grown: the debugger gets it again, at most ``CHANGES`` times."""
        if self._recording.learning:
            self._training.learned()
            if self._training.unseen and not self._told_of_compiler:
                self._told_of_compiler = True
                self._say(
                    "no module was seen to run (torch.compile or a CUDA graph hides them): weights and gradients only"
                )
        elif not self._recording.structure.changed:
            return
        if self._agent.attached and self._changes < CHANGES:
            self._changes += 1
            self._agent.graph_changed()
        elif self._agent.attached:
            self._count_unsent()
        self._recording.structure.changed = self._flying is not None

    def _count_unsent(self) -> None:
        new = [each for each in self._recording.structure.nodes if each not in self._training.names()]
        if len(new) > self._unsent:
            what = f"{UNSENT_NODES} {CHANGES} times"
            self._recording.lost(what, new[self._unsent], len(new) - self._unsent)
            self._unsent = len(new)

    def _give_to_flight(self) -> None:
        if self._flying is not None:
            self._flying.take(self._agent.step + 1, attached=self._agent.attached)

    def _judge_withheld(self) -> None:
        if self._flying is not None:
            self._flying.lost(self._agent.step)

    def _stop_at_start(self) -> None:
        """The stop before the first step; its weights are the copies from the beginning of that step."""
        self._probe.initial = True
        try:
            self._agent.begin()
        finally:
            self._probe.initial = False

    def _put_in(self, module: torch.nn.Module, name: str, new: torch.nn.Module | torch.Tensor | None) -> None:
        if self._training.owns(module) and new is not None:
            self._guard(lambda: self._training.put_in(module, name, new))

    def _optimizer_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Gradients are complete: summed over microbatches and processes, unscaled, clipped.

        With a closure they are looked at when the step ends; with an optimizer that unscales them, after it has run.
        """
        if self._steps is not None and self._steps.wraps(optimizer):
            return
        self._running |= optimizer is self._ends
        closure = any(callable(each) for each in (*args[1:], kwargs.get("closure")))
        self._recording.flow.updating = not closure
        if isinstance(self._hooks, Operators):
            self._hooks.optimizing(True, closure=closure)
        if closure:
            self._recording.evaluates(self._training.names_of(parameters_of(optimizer)))
            self._guard(lambda: self._training.see_rates(optimizer))
            return
        see = self._training.begins if unscales(optimizer) else self._see_gradients
        self._iterated = True  # PyTorch iterates over these hooks: none can be removed now
        try:
            self._guard(lambda: see(optimizer))
        finally:
            self._iterated = False

    def _backward_ended(self) -> None:
        if self._hooks.installed:
            self._guard(self._training.backward_ended)

    def _see_gradients(self, optimizer: torch.optim.Optimizer | None) -> None:
        with self._recording.at_work():
            self._training.see_gradients(optimizer)

    def _other_optimizer_is_done(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._steps is None or not self._steps.are_of(optimizer):  # else a hook of its own has ended the step by now
            self._optimizer_is_done(optimizer)

    def _optimizer_is_done(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(self._hooks, Operators):
            self._hooks.optimizing(False)
        self._recording.flow.updating = False
        self._recording.evaluates(())
        if unscales(optimizer):
            self._guard(lambda: self._see_gradients(optimizer))
        self._guard(lambda: self._training.stepped(optimizer))
        self._report_skipped()
        found: list[bool] = []
        self._guard(lambda: found.append(self._takes_over(optimizer)))
        if not any(found):
            return
        self._iterated = True  # see _optimizer_begins
        try:
            self._take_over(optimizer)
        finally:
            self._iterated = False

    def _takes_over(self, optimizer: torch.optim.Optimizer) -> bool:
        """Tells whether an optimizer that has stepped is the one that ends the steps from now on.

        Programs make a new one for another phase. One with several steps per step (the critic of a GAN), or with steps
        inside a step, does not take over.
        """
        ends = self._ends
        if optimizer is ends:
            self._usual = max(self._usual, *self._since.values(), 0)
            self._ended, self._running = True, False
            self._since.clear()
            return False
        if ends is None or self._running or not self.on or not self._training.expectation.holds(optimizer):
            return False
        since = self._since[optimizer] = self._since.get(optimizer, 0) + 1
        rival = not set(map(id, parameters_of(optimizer))).isdisjoint(map(id, parameters_of(ends)))
        if not rival and (not self._ended or any(optimizer is each for each in self._given)):
            return False
        return since >= max(RIVAL if rival and self._ended else STRANGER, 2 * self._usual + 1)

    def _take_over(self, optimizer: torch.optim.Optimizer) -> None:
        """The steps of this optimizer are the steps from now on. Its steps so far are seen as one."""
        self._recording.lost(JOINED, type(optimizer).__name__, self._since[optimizer] - 1)
        if self._steps is not None:
            self._steps.remove()
        self._ends, self._ended, self._usual = optimizer, True, 0
        self._since.clear()
        self._steps = Steps(optimizer, self._optimizer_ended_step)
        self.step_end()

    def _scaler_stepped(self, optimizer: torch.optim.Optimizer, stepped: bool) -> None:
        """A gradient scaler let its optimizer step, or skipped a step, which is a step without change of weights."""
        self._guard(lambda: self._know_scaler(optimizer, stepped))
        if not stepped and self._steps is not None and self._steps.are_of(optimizer) and self.on:
            self.step_end()

    def _know_scaler(self, optimizer: torch.optim.Optimizer, stepped: bool) -> None:
        expectation = self._training.expectation
        if not expectation.holds(optimizer):
            return
        self._recording.scaled = expectation.scaled = True
        if not stepped:
            self._see_gradients(optimizer if isinstance(optimizer, torch.optim.Optimizer) else None)
            expectation.skipped = True
            self._report_skipped()

    def _report_skipped(self) -> None:
        if self._training.expectation.skipped and not self._skipped:
            self._skipped = True
            self._say("a GradScaler skipped a step: gradients that overflowed in it are no findings")

    def _optimizer_ended_step(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None:
            self._optimizer_is_done(optimizer)
        if self.on:
            self.step_end()
        else:
            self._remove()  # except this hook, over which PyTorch iterates

    def _guard(self, act: Callable[[], None]) -> None:
        """Runs our own code inside the training: if it fails, tdbg switches off, and training goes on."""
        if self._failed:
            return
        try:
            with uncompiled():
                act()
        except Exception as error:
            if error is self._recording.escaped or _of_a_signal(error):
                raise
            self._failed = True
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            self._say(f"switched off: recording failed ({what}); training goes on")
            with contextlib.suppress(Exception):
                self._remove()
            self._recording.lost("steps after recording failed", what)
            with contextlib.suppress(Exception):
                self._agent.close("")  # our own failure is no cause


def _weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Makes a hook from a method without keeping its training, which may be over, and the model alive."""
    found = weakref.WeakMethod(method)

    def hook(*arguments: Any) -> None:
        call = found()
        if call is not None:
            call(*arguments)

    return hook


def _of_a_signal(error: Exception) -> bool:
    """Tells whether a signal handler of the program raised while our code ran, such as a time-out."""
    handlers = (signal.getsignal(each) for each in signal.valid_signals())
    codes = {getattr(each, "__code__", None) for each in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _without(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


def room_of(model: torch.nn.Module) -> int:
    """Bytes of outputs that are held by default: 1 GiB, on a GPU at most an eighth of its free memory."""
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    if device.type != "cuda":
        return _GIB
    free, _ = torch.cuda.mem_get_info(device)
    return min(_GIB, int(free) // 8)


LEVELS: Final = ("module", "op")
KEEPS: Final = ("values", "statistics")

_lock = threading.Lock()
_attached: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Handle]] = weakref.WeakKeyDictionary()
_current: list[Handle] = []
"""Handles whose steps ``step`` ends."""
_noting: tuple[weakref.ref[Handle], ...] = ()
"""Handles that ``note`` speaks to."""


def attach(
    model: torch.nn.Module,
    optimizer: Stepped | Sequence[Stepped] | None = None,
    address: str | None = None,
    *,
    level: str = "module",
    keep: str = "values",
    memory: int | None = None,
    flight: Flight | None = None,
    timeout: float = TIMEOUT,
) -> Handle:
    """Lets a debugger (``tdbg listen``) watch a training.

    Args:
        model: of any kind; also inside DistributedDataParallel.
        optimizer: ends a step whenever it has stepped; of several the last one does. None: put ``with tdbg.step():``
            around each step. A step that a GradScaler skips counts, too. In a wrapper (accelerate's, Lightning's) the
            optimizer inside is used; of other objects with a ``step`` each call is a step.
        address: ``host:port`` or ``unix:/path``; None: from ``TDBG_HOST`` and ``TDBG_PORT``; empty, or neither: off.
        level: ``module``: outputs of modules, their gradients, weights; ``op``: every operator call, with the line of
            the program that made it. That is slow. Watchpoints stop the training at the operator; if nobody stops
            there, the findings of a step after its first one come together at its end.
        keep: ``values``: outputs of modules are held until the debugger lets the step go, so that they can be looked
            at; ``statistics``: they are not, and everything about watched outputs is measured when they are made.
        memory: bytes of outputs and their gradients that are held at most, on their own device; further ones are
            treated as with ``statistics``. None: 1 GiB, on a GPU at most an eighth of its free memory. In addition, one
            copy of the weights that are compared with the step before is kept.
        flight: also keep the statistics of the last steps, and write them as a dump when a watchpoint hits or an
            exception ends the loop while no debugger is attached. Needs no address. Looks at every tensor exactly.
        timeout: seconds after which a debugger that does not answer is given up.

    A model that is attached already is detached first.

    Returns:
        A handle; ``handle.detach()`` removes everything.

    Raises:
        TdbgError: an argument cannot be used.
    """
    for name, value, allowed in (("level", level, LEVELS), ("keep", keep, KEEPS)):
        if value not in allowed:
            raise TdbgError(f"{name} is {' or '.join(allowed)}, not {value!r}")
    found = settings(address, timeout=timeout)
    if not found.address and flight is None:
        return Handle()
    optimizers = [] if optimizer is None else [*optimizer] if isinstance(optimizer, Sequence) else [optimizer]
    try:
        _check(model, optimizers)
    except TdbgError as error:
        tell_debugger(model, error.what, found)
        raise
    reference = _attached.get(model)
    earlier = reference() if reference is not None else None
    if earlier is not None:
        earlier.detach()
    try:
        handle = Attachment(model, optimizers, found, level=level, keep=keep, memory=memory, flight=flight)
    except TdbgError:
        raise
    except Exception as error:  # noqa: BLE001 - a model that cannot be looked at is trained all the same
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        Notice()(f"switched off: the model cannot be looked at ({what}); training goes on")
        tell_debugger(model, what, found)
        return Handle()
    _attached[model] = weakref.ref(handle)
    with _lock:
        _current[:] = [each for each in _current if each.on] + ([] if optimizers else [handle])
        global _noting  # noqa: PLW0603 - read without a lock at every note
        known = [each for each in _noting if (other := each()) is not None and other.on]
        _noting = (*known, weakref.ref(handle))
    return handle


def note(**notes: Any) -> None:
    """Adds scalars to the running step, which are shown beside its findings, and as curves over the steps.

    ::

        loss = criterion(model(x), y)
        tdbg.note(loss=loss, lr=scheduler.get_last_lr()[0], batch=number)
        loss.backward()
        optimizer.step()                   # ends the step: a later note belongs to the next step

    They are numbers, bools, short texts, or tensors of one element; at most 64 names a step. A later note of the same
    name replaces an earlier one; other values are left out, with one warning. A tensor is read when the step ends:
    nothing waits for the device here. Does nothing without a debugger and a flight recorder. With several trainings in
    one process each gets the note; ``handle.note`` is for one.
    """
    for reference in _noting:
        handle = reference()
        if handle is not None:
            handle.note(**notes)


def step() -> StepContext:
    """``with tdbg.step():`` around one step of every training that was attached without an optimizer."""
    return _STEP


class StepContext:
    """Around one step. A step that an exception ends does not count."""

    def __enter__(self) -> None:
        """A step begins."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for handle in tuple(_current):
            if error is None:
                handle.step_end()
            else:
                handle.failed(error)
            if not handle.on:
                with _lock:
                    _current[:] = [each for each in _current if each is not handle]


_STEP: Final = StepContext()


_BY_HAND: Final = "leave the optimizer out, and put `with tdbg.step():` around each step"


def _check(model: Any, optimizers: Sequence[Any]) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TdbgError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    for each in optimizers:
        if not callable(getattr(each, "step", None)):
            raise TdbgError(f"the optimizer must have a method `step`; {type(each).__name__} has none", hint=_BY_HAND)
        steps = Steps(each, lambda _: None)
        seen = steps.seen
        steps.remove()
        if not seen:
            raise TdbgError(f"the steps of a {type(each).__name__} cannot be counted", hint=_BY_HAND)
