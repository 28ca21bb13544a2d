"""The messages of the live protocol, built at run time from one table: MindSpore's ``debug_grpc.proto`` and ours.

Field numbers up to 99 are MindSpore's (1.1 to 2.3). Those from 100 on are additions of our own client and server: the
other side skips unknown fields. As in ``graph.proto``, texts are bytes and enumerations ``int32``, which is the same
on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol

from tui_debugger.graph.messages import GRAPH_PACKAGE, Messages, add_file, describe, message_class, pool
from tui_debugger.model import OperandState, ParamResult, TensorMeta, TensorStats
from tui_debugger.stats.fields import SENT, Form
from tui_debugger.watch.condition_table import CONDITIONS

PACKAGE: Final = "tdbg.live"
SERVICE: Final = "debugger.EventListener"
CHUNK: Final = 3 * 1024 * 1024
"""Bytes of a tensor or graph in one message: gRPC refuses messages above 4 MiB unless told otherwise."""
TOKEN_HEADER: Final = "tdbg-token"  # noqa: S105 - the name of the key, not a token
"""Metadata key of a call in which our client shows its token."""
SESSION_HEADER: Final = "tdbg-session"
"""Metadata key of every call of our client: the text of ``Metadata.session``, unique for each client."""

UNARY: Final = {"WaitCMD": "Metadata", "SendMetadata": "Metadata", "SendHeartbeat": "Heartbeat"}
"""Calls with one request, and its message. Every call is answered by one ``EventReply``."""
STREAMS: Final = {
    "SendGraph": "Chunk",
    "SendMultiGraphs": "Chunk",
    "SendTensors": "TensorProto",
    "SendTensorBase": "TensorBase",
    "SendTensorStats": "TensorSummary",
    "SendWatchpointHits": "WatchpointHit",
}
"""Calls with a stream of requests, and their message."""

OK, FAILED, PENDING = 0, 1, 2
"""``EventReply.status``."""
VALUE, STATISTICS, BASE = 0, 1, 2
"""``ViewCMD.level``."""
LEVEL_STEP, LEVEL_NODE, LEVEL_RECHECK = b"step", b"node", b"recheck"
"""``RunCMD.run_level``."""

RUNS_TO_NODES, FULL_STATISTICS, ANY_PREVIOUS, RUNS_AHEAD = 1, 2, 4, 8
"""Bits of ``Metadata.features``.

run_level node stops inside a step; ``Statistics`` and hits carry the fields from 100 on; previous values exist for
every tensor, not only for parameters; ``RunCMD.ahead`` is understood.
"""
OWN_CONDITIONS: Final = sum({condition.feature for condition in CONDITIONS.values()})
"""Further bits: our client judges all conditions of ours. Each has its ``Condition.feature``, from 16 on."""

_WIRE_TYPES: Final = {Form.COUNT: "uint64", Form.REAL: "double"}
MESSAGES: Final[Messages] = {
    "Metadata": """1 device_name bytes; 2 cur_step int32; 3 backend bytes; 4 cur_node bytes; 5 training_done bool;
        6 graph_num int32; 7 ms_version bytes; 100 rank int32; 101 world_size int32; 102 client bytes;
        103 features int32; 104 step int64; 105 host bytes; 106 pid int64; 107 session bytes;
        108 unrecorded Unrecorded*; 109 notes StepNotes*; 110 cause bytes; 111 run bytes""",
    "StepNotes": "1 step int64; 2 notes Note*",
    "Note": "1 name bytes; 2 real double; 3 integer int64; 4 truth bool; 5 text bytes",
    "Unrecorded": "1 what bytes; 2 count int64; 3 example bytes; 4 step int64",
    "Chunk": "1 buffer bytes; 2 finished bool",
    "EventReply": """1 status int32; 2 exit bool; 3 run_cmd RunCMD; 4 set_cmd SetCMD; 5 view_cmd ViewCMD;
        6 version_matched bool""",
    "RunCMD": "1 run_level bytes; 2 run_steps int32; 3 node_name bytes; 100 ahead int32; 101 together bool",
    "SetCMD": "1 watch_nodes WatchNode*; 2 watch_condition WatchCondition; 3 delete bool; 4 id int32",
    "ViewCMD": "1 tensors TensorProto*; 2 level int32",
    "WatchNode": """1 node_name bytes; 2 node_type bytes; 3 graph_name bytes; 4 rank_id int32; 5 device_id int32;
        100 category int32""",
    "Parameter": """1 name bytes; 2 disabled bool; 3 value double; 4 hit bool; 5 actual_value double;
        100 text bytes; 101 quantities Quantity*""",
    "Quantity": "1 name bytes; 2 value double; 3 text bytes",
    "WatchCondition": "1 condition int32; 2 value float; 4 params Parameter*",
    "WatchpointHit": """1 tensor TensorProto; 2 watch_condition WatchCondition; 3 id int32; 4 error_code int32;
        100 base TensorBase; 101 statistics Statistics; 102 inputs_unknown bool; 103 operands Operand*""",
    "Operand": "1 name bytes; 2 state int32",
    "Heartbeat": "1 message bytes; 2 period int32",
    "TensorBase": "1 data_type int32; 2 shape int64*; 3 data_size int64",
    "Statistics": """1 is_bool bool; 2 max_value float; 3 min_value float; 4 avg_value float; 5 count uint64;
        6 neg_zero_count uint64; 7 pos_zero_count uint64; 8 nan_count uint64; 9 neg_inf_count uint64;
        10 pos_inf_count uint64; 11 zero_count uint64; """
    + "; ".join(f"{sent.number} {sent.name} {_WIRE_TYPES[field.form]}" for field, sent in SENT if sent.ours)
    + "; 200 at_least int32",
    "TensorSummary": "1 tensor_base TensorBase; 2 statistics Statistics",
}
"""``Metadata.step`` is the step that the training stands after (or in, with ``cur_node``), -1 before the first;
``unrecorded`` is all that the training ran so far and could not show, with ``step`` the first step of it; ``session``
is random and the same as long as a training process lives, so that one that comes back is known again; ``notes`` are
those of steps that ended, of which nothing was said before: each has one of the four values. ``cause`` comes with
``training_done``, and is what ended the training before its time; ``run`` is the same for all processes that one
launcher started, and empty where no launcher is known.
``Parameter.text`` is an expression, and ``quantities`` what the names in it stood for: a number, a text, or unknown.
``WatchpointHit.inputs_unknown`` is set where the graph may say of another step what the node was made from;
``operands`` are the values that the node read, as they were when it ran: ``name`` is that of a node of the graph, with
``:slot`` of an output other than the first, or empty for all that the graph does not name; ``state`` a
``model.OperandState``.
``RunCMD.ahead`` is how many more steps it may run without asking, as long as no watchpoint has anything to say of them.
``RunCMD.together``: of the hits inside a step the training reports the first ones at once, all later ones at its end.
In ``Statistics`` neg_zero_count and pos_zero_count are the numbers of negative and positive elements; the fields from
100 on are those of ``stats.fields``: one that is absent has no value (no finite element), or the client is older;
``at_least`` is a ``model.AtLeast``: of values that were gone before somebody asked only that some are bad is known."""

UNSENT_NODES: Final = "nodes that came after the graph had been sent"
"""The beginning of our client's ``Unrecorded.what`` when its graph differs from that of the step: then the inputs of a

node in the graph may be those of another step.
"""
OWN_TYPES: Final = {
    "float8_e4m3fn": 100,
    "float8_e5m2": 101,
    "float8_e4m3fnuz": 102,
    "float8_e5m2fnuz": 103,
    "complex64": 104,
    "complex128": 105,
}
"""Element types that MindSpore's ``DataType`` has no number for."""


@lru_cache(maxsize=1)
def _added() -> None:
    add_file(pool(), _file())


def _file() -> Any:
    described = describe("tdbg/live.proto", PACKAGE, MESSAGES, {"TensorProto": GRAPH_PACKAGE})
    described.dependency.append("tdbg/graph.proto")
    return described


@lru_cache(maxsize=64)
def message(name: str) -> Any:
    """The class of a message of this protocol, or of a graph message by its name."""
    if name not in MESSAGES:
        return message_class(name)
    _added()
    return message_class(name, PACKAGE)


def text_of(value: bytes) -> str:
    return bytes(value).decode("utf-8", "replace")


def method(name: str) -> str:
    return f"/{SERVICE}/{name}"


START: Final = -1
"""The step number of the stop before the first step."""


class Phase(Enum):
    """The phase of a training."""

    RECEIVING = "receiving the graph"
    STOPPED = "stopped"
    """The training waits for a command."""
    RUNNING = "running"
    MISMATCH = "another version"
    """The training speaks an unknown version of the protocol; it can only be terminated."""
    LOST = "lost"
    """The connection broke, or no sign of life came for a while. The training may come back."""
    DONE = "finished"
    """The training said that it ended, or was terminated."""


@dataclass(frozen=True, slots=True)
class TrainingInfo:
    """The training at the other end."""

    number: int  # 1, 2, ... in the order of the first contact; never used again
    rank: int  # process number; 0 when it does not say and no other has it
    world_size: int | None  # processes of the run, None when it does not say
    address: str  # of the client, as people read it (``10.0.0.7:52114``, ``unix``)
    device: str  # device number as text, empty when unknown
    backend: str  # ``GPU``, ``Ascend``, ``CPU`` ...
    program: str  # framework and version: ``MindSpore 2.0.0``, ``PyTorch 2.13.0 (tdbg 0.5)``
    features: int = 0  # bits of ``RUNS_TO_NODES`` and so on
    warning: str = ""  # for users, about this version

    @property
    def own_client(self) -> bool:
        """Whether it is a client of ours, and not MindSpore's."""
        return not self.program.startswith("MindSpore ")


@dataclass(frozen=True, slots=True)
class TrainingStop:
    """The place where a training waits.

    Attributes:
        count: stops of this training so far; grows whenever it has run (a recheck or a fetch is no stop).
        step: the step that it stands after, or in; ``START`` before the first. Counted, not taken from ``cur_step``:
            MindSpore's client repeats numbers.
        alone: it came here by itself, when it was new or after it was lost: nobody judged what it ran before.
        grown: it sent its graph anew at the end of this step: nobody judged the new nodes.
        passing: it stands only for that, and is to go on as it was told.
        root: the root graph that ran in the step, or is about to run (see ``opens``); None: unknown.
        opens: it ran nothing since its last stop: it sent one more root graph, and stands before its first run.
    """

    count: int
    step: int
    node: str = ""  # full name of the node that it stands at, empty at the end of a step
    alone: bool = field(default=False, compare=False)
    grown: bool = field(default=False, compare=False)
    passing: bool = field(default=False, compare=False)
    root: int | None = field(default=None, compare=False)
    opens: bool = field(default=False, compare=False)

    @property
    def ended(self) -> int:
        """The step that ended last; ``START`` before the first step ended."""
        return self.step - 1 if self.node else self.step


@dataclass(frozen=True, slots=True)
class RemoteTensor:
    """A tensor in the terms of a client: full name without graph, or name of a parameter or constant."""

    node: str
    slot: int = 0
    previous: bool = False  # its value of the step before
    truncate: bool = False  # the client looks only for the last component of the name: parameters and constants


@dataclass(frozen=True, slots=True)
class RemoteWatchpoint:
    """A watchpoint as it is sent; ``condition`` is a wire number."""

    id: int
    condition: int
    params: tuple[tuple[str, float | str, bool], ...]  # (name, value, disabled) in the order that clients read
    nodes: tuple[tuple[str, str, str], ...]  # (full name or parameter name, type, graph name), scopes expanded
    categories: Mapping[str, int] = field(default_factory=dict)  # ``model.Category`` by node, for expressions


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Something that a training ran and its client could not record: the training cannot be called clean."""

    what: str  # the kind, in the plural: ``passes inside torch.compile``, ``tensors beyond 50,000``
    count: int
    example: str = ""  # the name of the first, may be empty; ``step`` is its step
    step: int = 0


@dataclass(frozen=True, slots=True)
class ReceivedHit:
    """A hit as a client reported it; ``node`` is the client's name, ``condition`` a wire number."""

    node: str
    slot: int
    watchpoint: int
    condition: int
    params: tuple[ParamResult, ...]  # without actual values when ``error`` is not 0
    error: int = 0  # ``model.ErrorBits``
    meta: TensorMeta | None = None
    stats: TensorStats | None = None
    inputs_unknown: bool = False  # in this step the inputs of the node differ, or may differ, from the graph
    operands: tuple[tuple[str, OperandState], ...] = ()  # as they were when the node ran: see below ``MESSAGES``


@dataclass(frozen=True, slots=True)
class RemoteStats:
    """Statistics of a tensor that a client sends without its values."""

    meta: TensorMeta | None  # None when it does not have the tensor
    stats: TensorStats | None = None
    complete: bool = False  # all statistics are there, in float64


class ValueSink(Protocol):
    """Takes values as they arrive, chunk by chunk: they may be larger than memory."""

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        """Begins the values of a tensor, by its number in the request; False: they are not wanted (no room)."""

    def write(self, number: int, chunk: bytes) -> None:
        """The next bytes, little-endian and in C order."""

    def end(self, number: int, complete: bool) -> None:
        """All bytes came, or some are missing: the client does not have the tensor, or the stream broke."""


class Event(Enum):
    """Something happened to a training."""

    CONNECTED = "connected"
    GRAPH = "graph"
    """Its graphs are there: ``RemoteTraining.graphs``."""
    STOPPED = "stopped"
    """The training waits at a new stop; hits that came with it are in ``RemoteTraining.hits``."""
    HITS = "hits"
    """The training reported hits while it goes on by itself (``stop_on_hit=False``), or in a recheck."""
    RUNNING = "running"
    LISTED = "listed"
    """The running training has the new list of watchpoints, and judges the next steps by it."""
    LOST = "lost"
    BACK = "back"
    """A lost training came back."""
    DONE = "done"
    REFUSED = "refused"
    """A client was turned away: see ``Server.refusals``."""
    FETCHED = "fetched"
    """Of a session: values or statistics came in, and tables of its steps grew."""
