"""Trainings without a wire: a test says what they do next. What is under test is whoever drives them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.live.controlled import Server, need_stopped, send
from tui_debugger.errors import UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.client.judging import watched
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.client.recorded import measure, meta_of
from tui_debugger.live.graph_runs import GraphRuns
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import (
    START,
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
from tui_debugger.stats.records import RequiredStats

Array = np.ndarray[Any, Any]


NODES = ("fc.weight", "Default/fc/MatMul-op1", "Default/Log-op2")
WEIGHT, MATMUL, LOG = NODES
Shape = tuple[int, ...]


def small_graph(shape: Shape) -> bytes:
    """A weight, an operator that reads it, and what is made of that."""
    graph = GraphBuilder()
    graph.add_parameter(WEIGHT, ("float32", shape))
    graph.add_node(MATMUL, "MatMul", [WEIGHT], [("float32", shape)])
    graph.add_node(LOG, "Log", [MATMUL], [("float32", shape)])
    return graph.serialize()


def values_of(step: int, shape: Shape) -> dict[str, Array]:
    """The tensors after a step: the last operator's are infinite from step 3 on."""
    base = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + step
    log = np.full(shape, -np.inf, np.float32) if step >= 3 else base / 10
    return dict(zip(NODES, (base, base * 2, log), strict=True))


@dataclass
class FakeTraining:
    """A training whose steps take as long as a test wants: ``arrive`` ends them.

    Attributes:
        orders: what it was told, in words.
        slow: set by a test to hold up every question until it is cleared again.
    """

    info: TrainingInfo
    tell: Callable[[RemoteTraining | None, Event], None]
    phase: Phase = Phase.RECEIVING
    stop: TrainingStop | None = None
    graphs: Sequence[bytes] = ()
    hits: Sequence[ReceivedHit] = ()
    unrecorded: Sequence[Unrecorded] = ()
    cause: str = ""
    notes: RunNotes = field(default_factory=RunNotes)
    graph_runs: GraphRuns = field(default_factory=GraphRuns)
    orders: list[str] = field(default_factory=list)
    shape: Shape = (2, 3)
    watched: tuple[RemoteWatchpoint, ...] = ()
    open: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.open.set()

    # -- what a test makes it do ---------------------------------------------------------------------

    def send_graph(self, graph: bytes = b"") -> None:
        self.graphs = (graph or small_graph(self.shape),)
        self.tell(self, Event.GRAPH)

    def arrive(self, step: int, *, node: str = "") -> None:
        """Stops after a step (or in it), with what the watchpoints say of its values."""
        self.stop = TrainingStop((self.stop.count if self.stop else 0) + 1, step, node)
        self.hits = self._judged()
        self.phase = Phase.STOPPED
        self.tell(self, Event.STOPPED)

    def become(self, phase: Phase, event: Event) -> None:
        self.phase = phase
        self.tell(self, event)

    def _judged(self) -> tuple[ReceivedHit, ...]:
        if self.stop is None:
            return ()
        judge = watched(self.watched, NODES)
        wires = {each.id: each.condition for each in self.watched}
        found = []
        for name, value in values_of(self.stop.step, self.shape).items():
            need = judge.need(name)
            if need is not None:
                for result in judge.results(name, measure(value, need), initial=self.stop.step == START):
                    at = (name, 0, result.watchpoint, wires[result.watchpoint])
                    found.append(ReceivedHit(*at, params=result.params, error=int(result.error)))
        return tuple(found)

    # -- what drives it ------------------------------------------------------------------------------

    def set_watchpoints(self, watchpoints: Sequence[RemoteWatchpoint]) -> int:
        self.watched = tuple(watchpoints)
        return 0

    @property
    def listed(self) -> int:
        return 0

    def _go(self, order: str) -> None:
        need_stopped(self.phase)
        self.orders.append(order)
        self.become(Phase.RUNNING, Event.RUNNING)

    def run(
        self,
        steps: int | None = 1,
        *,
        stop_on_hit: bool = True,
        stop_on_new_nodes: bool = False,
        stop_at_nodes: bool = True,
    ) -> None:
        del stop_on_new_nodes, stop_at_nodes  # a test says when it stops
        self._go(f"run {steps}" + ("" if stop_on_hit else " through hits"))

    def run_to_node(self, name: str = "") -> None:
        if not self.info.features & wire.RUNS_TO_NODES:
            raise UnsupportedError("it stops at the end of steps only")
        self._go(f"run to {name or 'the next node'}")

    def pause(self) -> None:
        self.orders.append("pause")

    def terminate(self) -> None:
        self.orders.append("terminate")
        self.become(Phase.DONE, Event.DONE)

    def release(self) -> None:
        self.orders.append("release")

    def _ask(self, progress: ProgressFn) -> None:
        need_stopped(self.phase)
        while not self.open.wait(0.01):
            progress(Progress(1, 4, "slow"))

    def recheck(self, progress: ProgressFn = no_progress) -> Sequence[ReceivedHit]:
        self._ask(progress)
        if self.stop is not None and self.stop.step > START:  # before the first step it comes with every order to run
            self.orders.append("recheck")
        self.hits = self._judged()
        return self.hits

    def _value(self, tensor: RemoteTensor) -> Array | None:
        assert self.stop is not None
        name = tensor.node.rpartition("/")[2] if tensor.truncate else tensor.node
        if tensor.previous and name != WEIGHT:
            return None
        return values_of(self.stop.step - tensor.previous, self.shape).get(name)

    def statistics(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        self._ask(progress)
        values = [self._value(tensor) for tensor in tensors]
        return [
            RemoteStats(None)
            if v is None
            else RemoteStats(meta_of(v), measure(v, RequiredStats()).stats, complete=True)
            for v in values
        ]

    def bases(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        self._ask(progress)
        values = [self._value(tensor) for tensor in tensors]
        return [RemoteStats(None if v is None else meta_of(v)) for v in values]

    def values(
        self, tensors: Sequence[RemoteTensor], sink: ValueSink, progress: ProgressFn = no_progress
    ) -> Sequence[bool]:
        self._ask(progress)
        return [send(sink, number, self._value(tensor)) for number, tensor in enumerate(tensors)]


class FakeTrainings(Server[FakeTraining]):
    """Their server."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[bool] = []

    def close(self, *, terminate: bool = False) -> None:
        self.closed.append(terminate)

    # -- what a test makes happen --------------------------------------------------------------------

    def connect(
        self,
        rank: int = 0,
        *,
        features: int = 0,
        program: str = "PyTorch 2.13.0",
        ranks: int = 1,
        shape: Shape = (2, 3),
    ) -> FakeTraining:
        """A training comes; its graph and first stop are up to the test."""
        number = len(self.trainings) + 1
        info = TrainingInfo(number, rank, ranks, f"10.0.0.{number}:4711", str(rank), "GPU", program, features)
        training = FakeTraining(info, self.tell, shape=shape)
        self.trainings.append(training)
        self.tell(training, Event.CONNECTED)
        return training

    def begin(self, rank: int = 0, **more: Any) -> FakeTraining:
        """A training that stands before its first step."""
        training = self.connect(rank, **more)
        training.send_graph()
        training.arrive(START)
        return training
