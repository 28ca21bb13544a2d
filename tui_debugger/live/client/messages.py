"""Makes the messages that a training sends: its graph as MindSpore's ``GraphProto``, statistics, hits, values.

Categories follow from names and types as in MindSpore's graphs (see ``graph.categories``): operators below
``Gradients/`` are gradients, operators of an activation's type are activations, and parameters that an optimizer's
update operator reads are weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tui_debugger.graph.messages import CALL, RANKS, type_name
from tui_debugger.live import wire
from tui_debugger.live.client.probe import ClientHit, ClientValue, Identity
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded, text_of
from tui_debugger.model import ParamResult, TensorMeta, TensorStats
from tui_debugger.notes import Note, Notes
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.stats.fields import SENT
from tui_debugger.version import __version__

_LAST_NUMBER = 49


def type_number(dtype: str) -> int:
    return _numbers().get(dtype, 0)


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    named = {type_name(number): number for number in range(1, _LAST_NUMBER)}
    return {name: number for name, number in named.items() if canonical_name(name)} | wire.OWN_TYPES


SPOKEN: Final = b"2.3.0"
"""``ms_version``: the last version of MindSpore that spoke this protocol; ``client`` names the real program."""
ALIVE: Final = b"Debugger is alive"
PERIOD: Final = 30
"""Seconds between heartbeats, as announced."""
_PREVIOUS: Final = b"prev"
_FLOAT32_MAX: Final = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Process:
    """The content of every ``Metadata`` of this process; ``session`` is random per process, ``run`` see ``run_of``."""

    identity: Identity
    session: str
    host: str
    pid: int
    run: str


def metadata(
    process: Process,
    step: int,
    node: str = "",
    *,
    graphs: int | None = None,
    done: bool = False,
    cause: str = "",
    unrecorded: Iterable[Unrecorded] = (),
    notes: Iterable[tuple[int, Notes]] = (),
) -> Any:
    """Tells where a training stands.

    ``step`` ended last (or ``node`` belongs to it); -1 before the first. ``cur_step`` is what MindSpore's client says
    from 1.6 on: 0 before and after the first step. ``graphs`` is their number, for ``SendMetadata``. ``notes`` are
    those of ended steps that were not sent yet.
    """
    who = process.identity
    features = wire.FULL_STATISTICS | wire.RUNS_AHEAD | wire.OWN_CONDITIONS
    features |= wire.RUNS_TO_NODES * who.stops_at_nodes | wire.ANY_PREVIOUS * who.every_previous
    message = wire.message("Metadata")(
        device_name=f"{who.device}:0".encode(),
        cur_step=min(max(step, 0), 2**31 - 1),
        backend=who.backend.encode(),
        cur_node=node.encode(),
        rank=who.rank,
        client=f"{who.program} (tdbg {__version__})".encode(),
        features=features,
        step=step,
        host=process.host.encode(),
        pid=process.pid,
        session=process.session.encode(),
        run=process.run.encode("utf-8", "replace"),
    )
    if who.world_size is not None:
        message.world_size = who.world_size
    if graphs is not None:
        message.graph_num, message.ms_version = graphs, SPOKEN
    if done:
        message.training_done = True
    if cause:
        message.cause = cause.encode("utf-8", "replace")
    for each in unrecorded:
        message.unrecorded.add(
            what=each.what.encode(), count=each.count, example=each.example.encode("utf-8", "replace"), step=each.step
        )
    for number, of_step in notes:
        step_notes = message.notes.add(step=number)
        for name, value in of_step.items():
            _set_note(step_notes.notes.add(name=name.encode("utf-8", "replace")), value)
    return message


def _set_note(message: Any, value: Note) -> None:
    if isinstance(value, bool):
        message.truth = value
    elif isinstance(value, int):
        message.integer = value
    elif isinstance(value, float):
        message.real = value
    else:
        message.text = value.encode("utf-8", "replace")


def heartbeat() -> Any:
    return wire.message("Heartbeat")(message=ALIVE, period=PERIOD)


def graph_chunks(graphs: Sequence[bytes]) -> Iterator[Any]:
    """Graphs in chunks; with several graphs, the last chunk of each is marked."""
    chunk = wire.message("Chunk")
    for graph in graphs:
        for start in range(0, max(len(graph), 1), wire.CHUNK):
            last = len(graphs) > 1 and start + wire.CHUNK >= len(graph)
            piece = graph[start : start + wire.CHUNK]
            yield chunk(buffer=piece, finished=True) if last else chunk(buffer=piece)


def hit_messages(hits: Iterable[ClientHit], watchpoints: Mapping[int, RemoteWatchpoint]) -> Iterator[Any]:
    """Messages of hits; hits of removed watchpoints are left out."""
    for hit in hits:
        watchpoint = watchpoints.get(hit.result.watchpoint)
        if watchpoint is not None:
            yield _hit(hit, watchpoint)


def _hit(hit: ClientHit, watchpoint: RemoteWatchpoint) -> Any:
    message = wire.message("WatchpointHit")(id=watchpoint.id, error_code=int(hit.result.error))
    message.tensor.node_name, message.tensor.slot = hit.node.encode(), str(hit.slot).encode()
    message.tensor.finished = True
    message.inputs_unknown = hit.inputs_unknown
    for name, state in hit.operands:
        message.operands.add(name=name.encode(), state=int(state))
    message.watch_condition.condition = watchpoint.condition
    results = {result.name: result for result in hit.result.params}
    for name, value, disabled in watchpoint.params:
        result = results.get(name, ParamResult(name, value, hit=False, actual=None))
        param = message.watch_condition.params.add(name=name.encode(), disabled=disabled)
        if isinstance(value, str):
            param.text = value.encode()
            _set_quantities(param, result)
        else:
            param.value = value
        param.hit = result.hit
        if result.actual is not None:
            param.actual_value = result.actual
    if hit.meta is not None:
        message.base.CopyFrom(base(hit.meta))
    if hit.stats is not None:
        _set_statistics(message.statistics, hit.meta, hit.stats)
    return message


def _set_quantities(param: Any, result: ParamResult) -> None:
    for name, value in result.quantities:
        quantity = param.quantities.add(name=name.encode())
        if isinstance(value, str):
            quantity.text = value.encode()
        elif value is not None:
            quantity.value = value


def base(meta: TensorMeta | None) -> Any:
    """Type and shape of a tensor; a missing tensor is described as by MindSpore's client."""
    message = wire.message("TensorBase")
    if meta is None:
        return message(data_type=0, shape=[0], data_size=0)
    return message(data_type=type_number(meta.dtype), shape=meta.shape, data_size=meta.nbytes)


def summary(found: tuple[TensorMeta, TensorStats | None] | None) -> Any:
    message = wire.message("TensorSummary")()
    message.tensor_base.CopyFrom(base(found[0] if found else None))
    if found is None or found[1] is None:
        message.statistics.SetInParent()
    else:
        _set_statistics(message.statistics, found[0], found[1])
    return message


def _set_statistics(message: Any, meta: TensorMeta | None, stats: TensorStats) -> None:
    message.is_bool = meta is not None and meta.dtype == "bool"
    for field, sent in SENT:
        value = field.value(stats)
        if value is not None:
            setattr(message, sent.name, value)
        if sent.rounded:
            setattr(message, sent.rounded, _single(value, sent.nothing))
    if stats.at_least:
        message.at_least = int(stats.at_least)


def _single(value: float | None, absent: float) -> float:
    """A number that fits into float32: some versions of protobuf refuse others."""
    if value is None:
        return absent
    return math.copysign(math.inf, value) if abs(value) > _FLOAT32_MAX else value


def asked(view: Any) -> list[RemoteTensor]:
    return [
        RemoteTensor(text_of(each.node_name), _slot(each.slot), each.iter == _PREVIOUS, each.truncate)
        for each in view.tensors
    ]


def tensor_messages(tensor: RemoteTensor, value: ClientValue | None) -> Iterator[Any]:
    """One tensor in chunks. An empty tensor still has a message with its type and shape."""
    message = wire.message("TensorProto")
    about = {"node_name": tensor.node.encode(), "slot": str(tensor.slot).encode(), "truncate": tensor.truncate}
    about["iter"] = _PREVIOUS if tensor.previous else b""
    if value is None:
        yield message(**about, finished=True)
        return
    about |= {"dims": value.shape, "data_type": type_number(value.dtype)}
    waiting = b""
    for piece in cut(value.chunks, wire.CHUNK):
        if waiting:
            yield message(**about, tensor_content=waiting, finished=False)
        waiting = piece
    yield message(**about, tensor_content=waiting, finished=True)


def cut(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size; the last piece may be smaller, no piece is empty."""
    kept = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B") if len(chunk) else memoryview(b"")
        at = 0
        if kept:
            at = size - len(kept)
            kept += view[:at]
            if len(kept) < size:
                continue
            yield bytes(kept)
            kept.clear()
        while len(view) - at >= size:
            yield bytes(view[at : at + size])
            at += size
        kept += view[at:]
    if kept:
        yield bytes(kept)


def watchpoint_of(command: Any) -> RemoteWatchpoint:
    condition = command.watch_condition
    return RemoteWatchpoint(
        command.id,
        condition.condition,
        tuple((text_of(each.name), text_of(each.text) or each.value, each.disabled) for each in condition.params),
        tuple(
            (text_of(each.node_name), text_of(each.node_type), text_of(each.graph_name)) for each in command.watch_nodes
        ),
        {text_of(each.node_name): each.category for each in command.watch_nodes if each.HasField("category")},
    )


def _slot(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) < 6 else 0


GRADIENTS: Final = "Gradients/"
"""The beginning of the full names of gradients."""
ACTIVATION: Final = "Activation"
"""Operator type of an activation of unknown kind."""
UPDATE: Final = "WeightUpdate"
"""Operator type of weight updates: inputs are pairs of a weight and its gradient. It has no values."""
ITEM: Final = "TupleGetItem"
"""Operator type of taking one output of a node that has several."""
GRAPH_NAME: Final = "kernel_graph_0"
TENSOR: Final = 14
"""``DataType`` of a tensor."""
TUPLE: Final = 31
NONE: Final = 34

Slot = tuple[str, Sequence[int]]
"""Element type by name, and shape."""


class GraphBuilder:
    """Builds one graph. Nodes are numbered in the order in which they come; unknown inputs stay unknown."""

    def __init__(self) -> None:
        self._graph: Any = wire.message("GraphProto")(name=GRAPH_NAME.encode(), root_name=b"0")
        self._keys: dict[str, bytes] = {}
        self._inputs: list[tuple[Any, Sequence[str]]] = []

    def add_parameter(self, name: str, slot: Slot, placement: str = "") -> None:
        """A weight, optimizer state or graph input; only the first of a name counts.

        ``slot`` describes what this process has; ``placement`` says in words which part of a larger tensor that is.
        """
        if name in self._keys:
            return
        self._keys[name] = name.encode()
        parameter = self._graph.parameters.add(name=name.encode())
        _set_type(parameter.type, slot)
        if placement:
            parameter.placement = placement.encode()

    def add_constant(self, name: str, value: bool | float | str | Sequence[int]) -> None:
        """A value from the program: a number, or words for anything else. Only the first of a name counts."""
        if name in self._keys:
            return
        self._keys[name] = name.encode()
        constant = self._graph.const_vals.add(key=name.encode())
        if isinstance(value, bool):
            constant.value.bool_val = value
        elif isinstance(value, int):
            constant.value.int_val = min(max(value, -(2**63)), 2**63 - 1)
        elif isinstance(value, float):
            constant.value.double_val = value
        elif isinstance(value, str):
            constant.value.str_val = value.encode("utf-8", "replace")
        else:
            constant.value.int_vals.extend(value)

    def add_node(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[str] = (),
        outputs: Sequence[Slot] | None = (),
        source: str = "",
        *,
        ranks: Sequence[int] = (),
    ) -> None:
        """An operator or module, with ``/`` between scopes; only the first of a name counts.

        ``inputs`` are names of nodes and parameters, empty if unknown; ``outputs`` one per slot, more than one makes a
        tuple, None: not visible. ``source`` is a stack in MindSpore's form (``stack_text``), ``ranks`` those of a
        collective operation.
        """
        if name in self._keys:
            return
        self._keys[name] = str(len(self._graph.node) + 1).encode()
        node = self._graph.node.add(
            name=self._keys[name],
            op_type=op_type.encode(),
            scope=name.rpartition("/")[0].encode(),
            full_name=name.encode(),
        )
        if source:
            node.source_address = source.encode("utf-8", "replace")
        if ranks:
            node.attribute.add(name=RANKS.encode()).value.int_vals.extend(ranks)
        if outputs is None:
            node.output_type.data_type = NONE
        elif len(outputs) == 1:
            _set_type(node.output_type, outputs[0])
        elif outputs:
            node.output_type.data_type = TUPLE
            for slot in outputs:
                _set_type(node.output_type.sequence_type.elem_types.add(), slot)
        self._inputs.append((node, inputs))

    def add_call(self, name: str, inputs: Sequence[str], text: str) -> None:
        """Adds the arguments (``text``) of the node that was added last, if it has this name and these inputs."""
        if not self._inputs:  # the first node may be added with another one, later
            return
        node, known = self._inputs[-1]
        if self._keys.get(name) == node.name and list(known) == list(inputs):
            node.attribute.add(name=CALL.encode()).value.str_val = text.encode()

    def add_item(self, name: str, node: str, slot: int) -> None:
        """Adds a node, without values, that takes one output of a node with several."""
        if name in self._keys:
            return
        self.add_node(name, ITEM, [node])
        index = self._graph.node[-1].attribute.add(name=b"index")
        index.value.int_val = slot

    def add_update(self, weights: Iterable[tuple[str, str]]) -> None:
        """Adds an update of (parameter, gradient or empty), which marks the parameters as weights."""
        pairs = [each for pair in weights for each in pair]
        if pairs:
            self.add_node(f"optimizer/{UPDATE}", UPDATE, pairs)

    def serialize(self) -> bytes:
        for node, inputs in self._inputs:
            del node.input[:]
            for name in inputs:
                node.input.add(name=self._keys.get(name, b""), type=0)
        data: bytes = self._graph.SerializeToString()
        return data


def stack_text(frames: Iterable[tuple[str, int, str]]) -> str:
    """A source stack, (path, line, code) with the innermost first, in the form that graphs carry."""
    return "\n".join(f"# In file {path}:{line}/        {' '.join(code.split())}/" for path, line, code in frames)


def _set_type(proto: Any, slot: Slot) -> None:
    dtype, shape = slot
    proto.data_type = TENSOR
    proto.tensor_type.elem_type = type_number(dtype)
    proto.tensor_type.shape.SetInParent()
    for size in shape:
        proto.tensor_type.shape.dim.add(size=int(size))
