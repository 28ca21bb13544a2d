"""A training that lives in the test: it judges nothing by itself, and says what it is told to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.live.controlled import Server, need_stopped, send
from tui_debugger.errors import UnsupportedError
from tui_debugger.graph.messages import message_class
from tui_debugger.live import wire
from tui_debugger.live.graph_runs import GraphRuns
from tui_debugger.live.server.training import Listener
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
from tui_debugger.model import Progress, ProgressFn, TensorMeta, no_progress
from tui_debugger.notes import RunNotes
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.dtypes import name_of

Array = npt.NDArray[Any]
Values = Mapping[str, Array]
"""Node name to its only output."""


def graph(nodes: Sequence[tuple[str, str, Sequence[str], tuple[int, ...]]], parameters: Sequence[str] = ()) -> bytes:
    """A graph of float32 nodes: (full name, type, inputs, shape); parameters are (2, 3)."""
    proto = message_class("GraphProto")(name=b"kernel_graph_0", root_name=b"0")
    index = {name: str(number) for number, (name, *_) in enumerate(nodes, 1)}
    for name in parameters:
        _float32(proto.parameters.add(name=name.encode()).type, (2, 3))
    for name, kind, inputs, shape in nodes:
        node = proto.node.add(name=index[name].encode(), op_type=kind.encode(), full_name=name.encode())
        node.scope = name.rpartition("/")[0].encode()
        _float32(node.output_type, shape)
        for producer in inputs:
            node.input.add(name=index.get(producer, producer).encode())
    return bytes(proto.SerializeToString())


def _float32(kind: Any, shape: Sequence[int]) -> None:
    kind.data_type = 14
    kind.tensor_type.elem_type = 11
    for size in shape:
        kind.tensor_type.shape.dim.add(size=size)


MATMUL, RELU, LOSS, UPDATE = "Default/net/MatMul-op1", "Default/net/ReLU-op2", "Default/Log-op3", "Default/Adam-op4"
WEIGHT = "fc.weight"
NET = graph(
    [
        (MATMUL, "MatMul", ["x", WEIGHT], (2, 3)),
        (RELU, "ReLU", [MATMUL], (2, 3)),
        (LOSS, "Log", [RELU], (2, 3)),
        (UPDATE, "ApplyMomentum", [WEIGHT, LOSS], (2, 3)),
    ],
    ["x", WEIGHT],
)


def ones(step: int) -> dict[str, Array]:
    """Every tensor of ``NET`` filled with the number of the step."""
    return {name: np.full((2, 3), step, np.float32) for name in (MATMUL, RELU, LOSS, UPDATE, "x", WEIGHT)}


class ScriptedTraining:
    """See ``control.Training``; runs in the calling thread, as far as ``end``."""

    def __init__(
        self,
        *,
        number: int = 1,
        rank: int = 0,
        graphs: Sequence[bytes] = (NET,),
        values: Callable[[int], Values] = ones,
        hits: Callable[[int, Sequence[RemoteWatchpoint]], Sequence[ReceivedHit]] = lambda _step, _list: (),
        features: int = 0,
        program: str = "MindSpore 2.0.0",
        end: int = 10**9,
    ) -> None:
        self.info = TrainingInfo(number, rank, None, "127.0.0.1:5", "0", "GPU", program, features)
        self.phase = Phase.RECEIVING
        self.stop: TrainingStop | None = None
        self.graphs: Sequence[bytes] = graphs
        self.hits: Sequence[ReceivedHit] = ()
        self.unrecorded: Sequence[Unrecorded] = ()
        self.cause = ""
        self.notes = RunNotes()
        self.graph_runs = GraphRuns()
        self.watchpoints: Sequence[RemoteWatchpoint] = ()
        self.asked: list[tuple[str, tuple[RemoteTensor, ...]]] = []
        self.said: list[str] = []
        self.end = end
        self.before_answer: Callable[[], None] = lambda: None
        self.listener: Listener = lambda _training, _event: None
        self._values, self._hits = values, hits

    # -- what the test does ------------------------------------------------------------------------

    def arrive(self) -> None:
        """Sends the graph and waits before the first step."""
        self.emit(Event.CONNECTED)
        self.emit(Event.GRAPH)
        self.stop_at(START)

    def stop_at(self, step: int, node: str = "") -> None:
        """Waits at a step."""
        self.stop = TrainingStop((self.stop.count if self.stop else 0) + 1, step, node)
        self.hits = tuple(self._hits(step, self.watchpoints)) if step >= 0 else ()
        self.phase = Phase.STOPPED
        self.emit(Event.STOPPED)

    def reports(self, *hits: ReceivedHit) -> None:
        """From now on it says this, whatever it is asked to watch."""
        self._hits = lambda _step, _list: hits

    def lose(self) -> None:
        """Is gone."""
        self.phase = Phase.LOST
        self.emit(Event.LOST)

    def back(self) -> None:
        """Is heard of again."""
        self.phase = Phase.STOPPED
        self.emit(Event.BACK)

    def come_back(self, step: int) -> None:
        """Introduces itself again after it ran alone, or for the first time after that step."""
        self.phase = Phase.RECEIVING
        self.emit(Event.BACK)
        self.stop = TrainingStop((self.stop.count if self.stop else 0) + 1, step, alone=True)
        self.hits, self.phase = (), Phase.STOPPED
        self.emit(Event.STOPPED)

    def finish(self) -> None:
        """Is done."""
        self.phase = Phase.DONE
        self.emit(Event.DONE)

    def emit(self, event: Event) -> None:
        """Tells the listener."""
        self.listener(self, event)

    # -- Training ----------------------------------------------------------------------------------

    def set_watchpoints(self, watchpoints: Sequence[RemoteWatchpoint]) -> int:
        self.watchpoints = tuple(watchpoints)
        return 0

    @property
    def listed(self) -> int:
        return 0

    def run(
        self,
        steps: int | None = 1,
        *,
        stop_on_hit: bool = True,
        stop_on_new_nodes: bool = False,
        stop_at_nodes: bool = True,
    ) -> None:
        del stop_on_new_nodes, stop_at_nodes  # its graph stays as it is
        need_stopped(self.phase)
        self.said.append(f"run {steps}")
        self.phase = Phase.RUNNING
        self.emit(Event.RUNNING)
        left = steps
        while left is None or left > 0:
            step = self.stop.ended + 1 if self.stop else 0
            if step >= self.end:
                self.finish()
                return
            hits = tuple(self._hits(step, self.watchpoints))
            left = None if left is None else left - 1
            if (hits and stop_on_hit) or left == 0:
                self.stop_at(step)
                return
            self.stop = TrainingStop((self.stop.count if self.stop else 0) + 1, step)
            if hits:
                self.hits = hits
                self.emit(Event.HITS)

    def run_to_node(self, name: str = "") -> None:
        need_stopped(self.phase)
        if not self.info.features & wire.RUNS_TO_NODES:
            raise UnsupportedError("stops at the end of steps only")
        self.said.append(f"run to {name}")
        self.emit(Event.RUNNING)
        self.stop_at((self.stop.step if self.stop else START) + 1, name)

    def pause(self) -> None:
        self.said.append("pause")

    def terminate(self) -> None:
        self.said.append("terminate")
        self.finish()

    def release(self) -> None:
        self.said.append("release")
        if self.phase is Phase.STOPPED:
            self.phase = Phase.RUNNING

    def recheck(self, progress: ProgressFn = no_progress) -> Sequence[ReceivedHit]:
        need_stopped(self.phase)
        progress(Progress(0, 0))
        self.said.append("recheck")
        self.hits = tuple(self._hits(self.stop.step if self.stop else 0, self.watchpoints))
        self.emit(Event.HITS)
        return self.hits

    def statistics(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        need_stopped(self.phase)
        progress(Progress(0, len(tensors)))
        self.asked.append(("statistics", tuple(tensors)))
        self.before_answer()
        return [self._statistics(tensor) for tensor in tensors]

    def bases(self, tensors: Sequence[RemoteTensor], progress: ProgressFn = no_progress) -> Sequence[RemoteStats]:
        return self.statistics(tensors, progress)

    def values(
        self, tensors: Sequence[RemoteTensor], sink: ValueSink, progress: ProgressFn = no_progress
    ) -> Sequence[bool]:
        need_stopped(self.phase)
        self.asked.append(("values", tuple(tensors)))
        came = [send(sink, number, self._find(tensor), progress) for number, tensor in enumerate(tensors)]
        self.before_answer()
        return came

    def _find(self, tensor: RemoteTensor) -> Array | None:
        step = self.stop.step if self.stop else START
        parameter = "/" not in tensor.node
        if (tensor.previous and not parameter and not self.info.features & wire.ANY_PREVIOUS) or tensor.slot:
            return None
        return self._values(step - tensor.previous).get(tensor.node)

    def _statistics(self, tensor: RemoteTensor) -> RemoteStats:
        values = self._find(tensor)
        if values is None:
            return RemoteStats(None)
        stats, _ = measure_stats(values)
        complete = bool(self.info.features & wire.FULL_STATISTICS)
        return RemoteStats(TensorMeta(name_of(values.dtype), values.shape, values.nbytes), stats, complete)


class ScriptedTrainings(Server[ScriptedTraining]):
    """See ``control.Trainings``."""

    def __init__(self, *trainings: ScriptedTraining, address: str = "127.0.0.1:50051") -> None:
        super().__init__(address)
        self.closed = threading.Event()
        for training in trainings:
            self.add(training)

    def add(self, training: ScriptedTraining) -> None:
        self.trainings.append(training)
        training.listener = self.tell

    def close(self, *, terminate: bool = False) -> None:
        for training in self.trainings:
            if training.phase is not Phase.DONE:
                training.terminate() if terminate else training.release()
        self.closed.set()
