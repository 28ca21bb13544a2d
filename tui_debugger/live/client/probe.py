"""The seam between the protocol loop and a framework: ``Probe``, and what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import OperandState, TensorMeta, TensorStats, WatchResult


class TrainingTerminated(SystemExit):
    """The debugger told this training process to end.

    Raised in the thread that trains, from ``step``, ``node_end`` or ``begin``. Where it is not caught the process ends
    with exit status 0, after ``finally`` blocks and ``atexit`` functions. MindSpore's client ends the process on the
    spot; here there is a chance to save what was trained::

        try:
            train()
        except TrainingTerminated:
            save_checkpoint()
            raise

    Attributes:
        step: the step after (or in) which it was told, -1 before the first.
    """

    def __init__(self, step: int) -> None:
        super().__init__(0)
        self.step = step

    def __str__(self) -> str:
        """For people."""
        return "the debugger ended this training"


@dataclass(frozen=True, slots=True)
class Identity:
    """The training, as it introduces itself.

    Attributes:
        program: framework and version: ``PyTorch 2.13.0``; the version of tdbg is added.
        rank: process number.
        world_size: processes of the run, None when unknown.
        backend: ``CPU``, ``GPU``, ``Ascend`` ...
        device: device number as text.
        stops_at_nodes: the framework calls ``Agent.node_end``.
        every_previous: values of the step before exist for every tensor on request, not for parameters only.
    """

    program: str
    rank: int = 0
    world_size: int | None = None
    backend: str = "CPU"
    device: str = "0"
    stops_at_nodes: bool = False
    every_previous: bool = False


@dataclass(frozen=True, slots=True)
class ClientHit:
    """One watchpoint that has something to say about one tensor.

    Attributes:
        node: name of the node in the graph that was sent.
        slot: output slot.
        result: as ``judging.ClientJudge.results`` gives it.
        meta, stats: of the tensor, sent along so that the debugger need not ask.
        inputs_unknown: in this step the node was made from something else than the graph says that was sent last, or
            may have been.
        operands: outputs of nodes and parameters that the node read (``name`` or ``name:slot``; empty: whatever is not
            recorded), as they were when it ran.
    """

    node: str
    slot: int
    result: WatchResult
    meta: TensorMeta | None = None
    stats: TensorStats | None = None
    inputs_unknown: bool = False
    operands: tuple[tuple[str, OperandState], ...] = ()


@dataclass(frozen=True, slots=True)
class ClientValue:
    """The values of one tensor.

    Attributes:
        dtype: element type by the name that ``stats.dtypes`` knows.
        shape: dimensions.
        chunks: the elements, little-endian and in C order, in pieces of any size; made while they are sent, so that
            nothing of the tensor's size need be copied at once.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: Iterator[bytes | memoryview]


class Probe(Protocol):
    """A framework's tensors, as the protocol asks for them.

    Every method is called in the thread that trains, from inside ``Agent.begin``, ``step_end``, ``node_end`` or
    ``close``: nothing need be locked, and tensors stand still. What a method raises ends the connection for good, and
    training goes on.
    """

    def identity(self) -> Identity:
        """Tells who trains. Asked at every (re)connection."""

    def attached(self) -> None:
        """A debugger is there: install hooks. Called before ``graphs``."""

    def detached(self) -> None:
        """The debugger is gone: removes every hook and drops what was kept for it (watchpoints, previous values)."""

    def unrecorded(self) -> Sequence[Unrecorded]:
        """Everything that could not be recorded since the process began, each kind once."""

    def graphs(self) -> Sequence[bytes]:
        """The graphs as they are now, each a serialized ``GraphProto`` (see ``messages.GraphBuilder``)."""

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """The whole list of watchpoints, from now on. Called before the next ``evaluate``, only when it changed."""

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        """Judges every watched tensor of the step that just ended, in execution order.

        Args:
            recheck: judge again what was judged already in this step.
            initial: no step has run: only initial values are judged, as ``judging.ClientJudge.results`` knows them.
        """

    def unfinished(self) -> bool:
        """Tells whether anything was recorded after the last step ended."""

    def rest(self) -> Sequence[ClientHit]:
        """Judges that, in execution order: the training ends, and the step that it belongs to never will."""

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        """Type and shape; None when there is no such tensor (now, or with ``previous``)."""

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """Type, shape and statistics (None: its elements are no numbers); None when there is no such tensor."""

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        """Values; None when there is no such tensor."""
