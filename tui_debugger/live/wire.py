"""The messages of the live protocol, built at run time from one table: MindSpore's ``debug_grpc.proto`` and ours.

Field numbers up to 99 are MindSpore's (1.1 to 2.3); those from 100 on are additions that only our own client and
server speak: the other side skips what it does not know. As in ``graph.proto``, texts are bytes and enumerations
``int32``, which is the same on the wire.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from tui_debugger.graph.messages import GRAPH_PACKAGE, Messages, add_file, describe, message_class, pool

PACKAGE: Final = "tdbg.live"
SERVICE: Final = "debugger.EventListener"
CHUNK: Final = 3 * 1024 * 1024
"""Bytes of a tensor or graph in one message: gRPC refuses messages above 4 MiB unless told otherwise."""
TOKEN_HEADER: Final = "tdbg-token"  # noqa: S105 - the name of the key, not a token
"""Metadata key of a call in which our client shows its token."""
SESSION_HEADER: Final = "tdbg-session"
"""Metadata key of every call of our client: the text of ``Metadata.session``, by which its calls are told apart."""

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
"""Bits of ``Metadata.features``: run_level node stops inside a step; ``Statistics`` and hits carry what the table below
has from 100 on; previous values exist for every tensor, not for parameters only; ``RunCMD.ahead`` is understood."""

MESSAGES: Final[Messages] = {
    "Metadata": """1 device_name bytes; 2 cur_step int32; 3 backend bytes; 4 cur_node bytes; 5 training_done bool;
        6 graph_num int32; 7 ms_version bytes; 100 rank int32; 101 world_size int32; 102 client bytes;
        103 features int32; 104 step int64; 105 host bytes; 106 pid int64; 107 session bytes;
        108 unrecorded Unrecorded*""",
    "Unrecorded": "1 what bytes; 2 count int64; 3 example bytes; 4 step int64",
    "Chunk": "1 buffer bytes; 2 finished bool",
    "EventReply": """1 status int32; 2 exit bool; 3 run_cmd RunCMD; 4 set_cmd SetCMD; 5 view_cmd ViewCMD;
        6 version_matched bool""",
    "RunCMD": "1 run_level bytes; 2 run_steps int32; 3 node_name bytes; 100 ahead int32",
    "SetCMD": "1 watch_nodes WatchNode*; 2 watch_condition WatchCondition; 3 delete bool; 4 id int32",
    "ViewCMD": "1 tensors TensorProto*; 2 level int32",
    "WatchNode": "1 node_name bytes; 2 node_type bytes; 3 graph_name bytes; 4 rank_id int32; 5 device_id int32",
    "Parameter": "1 name bytes; 2 disabled bool; 3 value double; 4 hit bool; 5 actual_value double",
    "WatchCondition": "1 condition int32; 2 value float; 4 params Parameter*",
    "WatchpointHit": """1 tensor TensorProto; 2 watch_condition WatchCondition; 3 id int32; 4 error_code int32;
        100 base TensorBase; 101 statistics Statistics""",
    "Heartbeat": "1 message bytes; 2 period int32",
    "TensorBase": "1 data_type int32; 2 shape int64*; 3 data_size int64",
    "Statistics": """1 is_bool bool; 2 max_value float; 3 min_value float; 4 avg_value float; 5 count uint64;
        6 neg_zero_count uint64; 7 pos_zero_count uint64; 8 nan_count uint64; 9 neg_inf_count uint64;
        10 pos_inf_count uint64; 11 zero_count uint64; 100 minimum double; 101 maximum double; 102 mean double;
        103 abs_mean double; 104 variance double; 105 sum_squares double""",
    "TensorSummary": "1 tensor_base TensorBase; 2 statistics Statistics",
}
"""``Metadata.step`` is the step that the training stands after (or in, with ``cur_node``), -1 before the first;
``unrecorded`` is all that the training ran so far and could not show, with ``step`` the first step of it; ``session``
is random and the same as long as a training process lives, so that one that comes back is known again.
``RunCMD.ahead`` is how many more steps it may run without asking, as long as no watchpoint has anything to say of them.
In ``Statistics`` neg_zero_count and pos_zero_count are the numbers of negative and positive elements; a field from 100
on that is absent has no value (no finite element)."""

UNSENT_NODES: Final = "nodes that came after the graph had been sent"
"""How our client's ``Unrecorded.what`` begins when its graph is no longer that of the step: from then on what the graph
says that a node was made from may be that of another step."""
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


def method(name: str) -> str:
    """Path of a call on the wire."""
    return f"/{SERVICE}/{name}"
