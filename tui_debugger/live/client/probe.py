"""The interface between the protocol loop and a framework: ``Probe``, and its types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import OperandState, TensorMeta, TensorStats, WatchResult


class TrainingTerminated(SystemExit):
    """The debugger told this training process to end.

    Raised in the thread that trains, from ``step``, ``node_end`` or ``begin``. If it is not caught, the process ends
    with exit status 0, after ``finally`` blocks and ``atexit`` functions. MindSpore's client ends the process at once;
    here there is a chance to save a checkpoint::

        try:
            train()
        except TrainingTerminated:
            save_checkpoint()
            raise

    ``step`` is the step after (or in) which the debugger said so, -1 before the first.
    """

    def __init__(self, step: int) -> None:
        super().__init__(0)
        self.step = step

    def __str__(self) -> str:
        return "the debugger ended this training"


@dataclass(frozen=True, slots=True)
class Identity:
    """The training, as it introduces itself."""

    program: str  # framework and version: ``PyTorch 2.13.0``; the version of tdbg is added
    rank: int = 0
    world_size: int | None = None  # processes of the run, None when unknown
    backend: str = "CPU"  # ``CPU``, ``GPU``, ``Ascend`` ...
    device: str = "0"
    stops_at_nodes: bool = False  # the framework calls ``Agent.node_end``
    every_previous: bool = False  # every tensor, not only parameters, has values of the step before on request


@dataclass(frozen=True, slots=True)
class ClientHit:
    """One result of a watchpoint on one tensor; ``meta`` and ``stats`` save the debugger a question.

    Attributes:
        inputs_unknown: in this step the inputs of the node differ, or may differ, from the graph that was sent last.
        operands: names of the tensors that the node read (``name`` or ``name:slot``; empty: not recorded), each with
            its state (clean, NaN, Inf) when the node ran.
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
    """The values of one tensor; ``dtype`` is a name of ``stats.dtypes``.

    ``chunks`` are the elements, little-endian and in C order, in pieces of any size. They are made while they are sent,
    so that no copy of the whole tensor is needed.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: Iterator[bytes | memoryview]


class Probe(Protocol):
    """A framework's tensors, as the protocol asks for them.

    Every method is called in the thread that trains, from inside ``Agent.begin``, ``step_end``, ``node_end`` or
    ``close``: no locks are needed, and tensors do not change meanwhile. An exception of a method ends the connection
    for good, and training goes on.
    """

    def identity(self) -> Identity:
        """Asked at every (re)connection."""

    def attached(self) -> None:
        """A debugger is there: install hooks. Called before ``graphs``."""

    def detached(self) -> None:
        """The debugger is gone: removes every hook and drops its watchpoints and previous values."""

    def unrecorded(self) -> Sequence[Unrecorded]:
        """Everything that could not be recorded since the process began, each kind once."""

    def graphs(self) -> Sequence[bytes]:
        """The present graphs, each a serialized ``GraphProto`` (see ``messages.GraphBuilder``)."""

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """Takes the whole list of watchpoints. Called before the next ``evaluate``, only when it changed."""

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        """Judges every watched tensor of the step that just ended, in execution order.

        ``recheck``: judge again what was judged already in this step. ``initial``: no step has run.
        """

    def unfinished(self) -> bool:
        """Tells whether anything was recorded after the last step ended."""

    def rest(self) -> Sequence[ClientHit]:
        """Judges these recordings, in execution order: the training ends inside a step."""

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        """Type and shape; None when there is no such tensor (now, or with ``previous``)."""

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """Type, shape and statistics (None: its elements are no numbers); None when there is no such tensor."""

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        """Values; None when there is no such tensor."""
