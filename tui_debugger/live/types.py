"""What crosses the seam between a connection to a training and whoever drives it. Immutable, without protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from tui_debugger.model import ParamResult, TensorMeta, TensorStats

START: Final = -1
"""The step number of the stop before the first step."""


class Phase(Enum):
    """What a training is doing."""

    RECEIVING = "receiving the graph"
    STOPPED = "stopped"
    """It waits for a command."""
    RUNNING = "running"
    MISMATCH = "another version"
    """It speaks a version of the protocol that is not understood; it can only be terminated."""
    LOST = "lost"
    """The connection broke, or no sign of life came for a while. It may come back."""
    DONE = "finished"
    """It said so, or was terminated."""


@dataclass(frozen=True, slots=True)
class TrainingInfo:
    """Who is at the other end.

    Attributes:
        number: 1, 2, ... in the order of the first contact; never used again.
        rank: process number; 0 when it does not say and no other has it.
        world_size: processes of the run, None when it does not say.
        address: of the client, as people read it (``10.0.0.7:52114``, ``unix``).
        device: device number as text, empty when unknown.
        backend: ``GPU``, ``Ascend``, ``CPU`` ...
        program: framework and version: ``MindSpore 2.0.0``, ``PyTorch 2.13.0 (tdbg 0.5)``.
        features: bits of ``wire.RUNS_TO_NODES`` and so on.
        warning: what people should know about this version, or empty.
    """

    number: int
    rank: int
    world_size: int | None
    address: str
    device: str
    backend: str
    program: str
    features: int = 0
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a training waits.

    Attributes:
        count: stops of this training so far; grows by one whenever it has run (a recheck or a fetch is no stop).
        step: the step that it stands after, or in; ``START`` before the first. Counted, not taken from ``cur_step``:
            the client of MindSpore repeats numbers.
        node: full name of the node that it stands at, empty at the end of a step.
        alone: it came here by itself, when it was new or after it was lost: nobody judged what it ran before.
        grown: it sent its graph anew at the end of this step: nobody judged the nodes that are new.
        passing: it stands for that alone, and is to go on as it was told.
    """

    count: int
    step: int
    node: str = ""
    alone: bool = field(default=False, compare=False)
    grown: bool = field(default=False, compare=False)
    passing: bool = field(default=False, compare=False)

    @property
    def ended(self) -> int:
        """The step that ended last; ``START`` before the first one did."""
        return self.step - 1 if self.node else self.step


@dataclass(frozen=True, slots=True)
class RemoteTensor:
    """A tensor as a client is asked for it.

    Attributes:
        node: full name without the graph's name in front, or parameter or constant name.
        slot: output slot.
        previous: its value of the step before.
        truncate: the client looks for the last component of the name only: parameters and constants.
    """

    node: str
    slot: int = 0
    previous: bool = False
    truncate: bool = False


@dataclass(frozen=True, slots=True)
class RemoteWatchpoint:
    """A watchpoint as it is sent.

    Attributes:
        id: its number.
        condition: wire number of the condition.
        params: (name, value, disabled) of every parameter of the condition, in the order in which clients read them.
        nodes: (full name or parameter name, node type, graph name) of every node, scopes expanded.
    """

    id: int
    condition: int
    params: tuple[tuple[str, float, bool], ...]
    nodes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Something that a training ran and that its client could not record: nobody can say whether it was clean.

    Attributes:
        what: in words, the kind of thing in the plural: ``passes inside torch.compile``, ``tensors beyond 50,000``.
        count: how many so far.
        example: the name of the first one, may be empty.
        step: the step in which that was.
    """

    what: str
    count: int
    example: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class ReceivedHit:
    """A hit as a client reported it.

    Attributes:
        node, slot: the tensor, by the name that the client uses.
        watchpoint: id of the watchpoint.
        condition: wire number of its condition.
        params: what the client says of each parameter; without actual values when ``error`` is not 0.
        error: ``model.ErrorBits``.
        meta, stats: from a client that sends them, else None.
    """

    node: str
    slot: int
    watchpoint: int
    condition: int
    params: tuple[ParamResult, ...]
    error: int = 0
    meta: TensorMeta | None = None
    stats: TensorStats | None = None


@dataclass(frozen=True, slots=True)
class RemoteStats:
    """What a client says of a tensor without sending its values.

    Attributes:
        meta: None when it does not have the tensor.
        stats: None when only the base was asked for; partial from MindSpore, whose numbers are float32.
        complete: the statistics are all there, in float64.
    """

    meta: TensorMeta | None
    stats: TensorStats | None = None
    complete: bool = False


class ValueSink(Protocol):
    """Takes values as they arrive, chunk by chunk: they may be larger than memory."""

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        """The values of a tensor come, by its number in the request; False: they are not wanted (no room)."""

    def write(self, number: int, chunk: bytes) -> None:
        """The next bytes, little-endian and in C order."""

    def end(self, number: int, complete: bool) -> None:
        """All came, or something is missing (the client does not have it, or the stream broke)."""
