"""A generated step as a graph, in the form in which a training sends one and a dump has one as a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.causes.generated import Case, Holds, Node, Place, Told
from tui_debugger.graph.messages import message_class

_TENSOR: Final = 14
_TUPLE: Final = 31
_FLOAT32: Final = 11
_NUMBERS: Final = {Holds.CLEAN: 1.5, Holds.NAN: float("nan"), Holds.INF: float("inf"), Holds.ALL: float("-inf")}


def graph_of(case: Case) -> bytes:
    """The case as a ``GraphProto``, which a training sends and a dump has as a file."""
    proto = message_class("GraphProto")(name=b"kernel_graph_0", root_name=b"0")
    keys: dict[str, str] = {}
    for node in case.nodes.values():
        if node.type == "Parameter":
            keys[node.name] = node.name
            _tensor_type(proto.parameters.add(name=node.name.encode()).type)
        elif node.type == "Constant":
            keys[node.name] = node.name
            _add_constant(proto, node)
    items: dict[Place, str] = {}
    for node in case.nodes.values():
        if node.type in ("Parameter", "Constant"):
            continue
        inputs = [_item(proto, case, items, keys, place) for place in node.inputs]
        keys[node.name] = str(len(proto.node) + 1)
        message = proto.node.add(
            name=keys[node.name].encode(), op_type=node.type.encode(), full_name=node.name.encode()
        )
        message.scope = node.name.rpartition("/")[0].encode()
        for key in inputs:
            message.input.add(name=key.encode(), type=0)
        _output_type(message.output_type, node)
    return bytes(proto.SerializeToString())


def _item(proto: Any, case: Case, items: dict[Place, str], keys: Mapping[str, str], place: Place) -> str:
    """The key of one output: of a node of several, that of the node that takes it out of the tuple."""
    node = case.nodes.get(place[0])
    if node is None or len(node.outputs) < 2:
        return keys.get(place[0], "")
    if place not in items:
        items[place] = str(len(proto.node) + 1)
        name = f"Default/TupleGetItem-op{1000 + len(items)}"
        item = proto.node.add(name=items[place].encode(), op_type=b"TupleGetItem", full_name=name.encode())
        item.input.add(name=keys[place[0]].encode(), type=0)
        item.attribute.add(name=b"index").value.int_val = place[1]
        _tensor_type(item.output_type)
    return items[place]


def _add_constant(proto: Any, node: Node) -> None:
    number = len(proto.const_vals)
    constant = proto.const_vals.add(key=node.name.encode(), full_name=f"Default--data-{number}".encode())
    (tensor,) = node.outputs
    if tensor.told is Told.STATED:
        constant.value.dtype, constant.value.float_val = _FLOAT32, _NUMBERS[tensor.holds]
    else:
        constant.value.dtype = _TENSOR
        constant.value.tensor_val.data_type = _FLOAT32
        constant.value.tensor_val.dims.extend((2, 3))


def _output_type(kind: Any, node: Node) -> None:
    if node.type in ("OptimizerUpdate", "BufferUpdate"):
        _tensor_type(kind)  # drawn with the type of the parameter; there is no such tensor
    elif len(node.outputs) == 1:
        _tensor_type(kind)
    else:
        kind.data_type = _TUPLE
        for _ in node.outputs:
            _tensor_type(kind.sequence_type.elem_types.add())


def _tensor_type(kind: Any) -> None:
    kind.data_type = _TENSOR
    kind.tensor_type.elem_type = _FLOAT32
    for size in (2, 3):
        kind.tensor_type.shape.dim.add(size=size)
