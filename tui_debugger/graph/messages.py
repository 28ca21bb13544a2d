"""The messages of a graph file (``ms_output_trace_code_graph_*.pb``), built at run time, and their parsing.

Generated modules would refuse other major versions of protobuf, and training environments pin 3.20 to 7. The tables are
MindSpore's ``anf_ir.proto`` (proto2) with two changes that keep the wire: enumerations are ``int32`` (new numbers stay
visible) and texts are ``bytes`` (Python refuses invalid UTF-8 in a ``string``). Fields from 100 on are our own. Output
slots and references between nodes were checked against real files of MindSpore 2.0 and 2.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tui_debugger.errors import BadGraphError, reason_of
from tui_debugger.graph.categories import EXCHANGES
from tui_debugger.graph.table import STRUCTURAL_TYPES
from tui_debugger.model import word_pairs, words
from tui_debugger.opener import GRAPH_LIMIT, read_regular

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool


Messages = Mapping[str, str]
"""Message name to its fields: ``number name type`` separated by ``;``, ``type*`` for a repeated field."""

GRAPH_PACKAGE = "tdbg.graph"
GRAPH_FILE = "tdbg/graph.proto"

RANKS = "group_ranks"
"""Attribute of a node: the ranks between which it exchanges values."""
CALL = "call"
"""Attribute of a node of our own client: its arguments, as JSON (see ``sources/mindspore/recorded_calls``)."""

GRAPH_MESSAGES: Messages = {
    "TensorProto": """1 node_name bytes; 2 slot bytes; 3 tensor_content bytes; 4 dims int64*; 5 data_type int32;
        6 finished bool; 7 iter bytes; 8 truncate bool""",
    "Dimension": "1 size int64; 2 name bytes",
    "TensorShapeProto": "1 dim Dimension*",
    "TensorType": "1 elem_type int32; 2 shape TensorShapeProto",
    "SequenceType": "1 elem_types TypeProto*",
    "TypeProto": "1 data_type int32; 2 tensor_type TensorType; 3 sequence_type SequenceType",
    "ValueProto": """1 dtype int32; 2 bool_val bool; 3 int_val int64; 4 uint_val uint64; 5 float_val float;
        6 double_val double; 7 str_val bytes; 8 tensor_val TensorProto; 9 graph GraphProto; 10 bool_vals bool*;
        11 int_vals int64*; 12 uint_vals uint64*; 13 float_vals float*; 14 double_vals double*; 15 str_vals bytes*;
        16 tensor_vals TensorProto*; 17 graphs GraphProto*; 18 values ValueProto*; 19 dict_val NamedValueProto*;
        20 type_val TypeProto""",
    "NamedValueProto": "1 key bytes; 2 value ValueProto; 3 full_name bytes",
    "AttributeProto": "1 name bytes; 2 value ValueProto",
    "InputProto": "1 name bytes; 2 type int32",
    "OutputProto": "1 name bytes; 2 type TypeProto",
    "ParameterProto": "1 name bytes; 2 type TypeProto; 3 default_val ValueProto; 100 placement bytes",
    "NodeProto": """1 input InputProto*; 2 name bytes; 3 op_type bytes; 4 scope bytes; 5 attribute AttributeProto*;
        6 output_type TypeProto; 7 output_i uint64; 8 full_name bytes; 9 source_address bytes""",
    "GraphProto": """1 node NodeProto*; 2 name bytes; 3 parameters ParameterProto*; 4 outputs OutputProto*;
        5 const_vals NamedValueProto*; 6 root_name bytes""",
    "OperatorProto": "1 name bytes; 2 config bytes; 3 obj_info bytes",
    "OperatorSetProto": "1 operators OperatorProto*; 2 summary bytes",
    "ModelProto": "1 ir_version int64; 2 domain bytes; 3 model_version int64; 4 graph GraphProto; 5 metadata_operators OperatorSetProto",  # noqa: E501 (one row of the table)
}


def describe(file: str, package: str, messages: Messages, imports: Mapping[str, str] | None = None) -> Any:
    """Returns a proto2 file descriptor for a message table; ``imports`` has packages of other messages by name."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    built = FileDescriptorProto(name=file, package=package, syntax="proto2")
    packages = {**(imports or {}), **dict.fromkeys(messages, package)}
    for name, fields in messages.items():
        message = built.message_type.add(name=name)
        for entry in fields.split(";"):
            number, field_name, kind = entry.split()
            field = message.field.add(name=field_name, number=int(number))
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            if kind in packages:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{packages[kind]}.{kind}"
            else:
                field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
    return built


@lru_cache(maxsize=1)
def pool() -> DescriptorPool:
    """Returns our own pool: the default one may hold the framework's messages of the same file name."""
    from google.protobuf.descriptor_pool import DescriptorPool

    own = DescriptorPool()
    add_file(own, describe(GRAPH_FILE, GRAPH_PACKAGE, GRAPH_MESSAGES))
    return own


def add_file(target: DescriptorPool, file: FileDescriptorProto) -> None:
    """Adds a descriptor file; serialized, because every protobuf version accepts that."""
    target.AddSerializedFile(file.SerializeToString())


@lru_cache(maxsize=64)
def message_class(name: str, package: str = GRAPH_PACKAGE) -> Any:
    from google.protobuf import message_factory

    descriptor = pool().FindMessageTypeByName(f"{package}.{name}")
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later; 5 removed MessageFactory.GetPrototype
        return message_factory.GetMessageClass(descriptor)
    old_factory: Any = message_factory.MessageFactory(pool())
    return old_factory.GetPrototype(descriptor)


_CONTROL_EDGE = 1
_MAX_VALUE_TEXT = 1024

_FIRST_TYPES = words("""
    undefined bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 string tensor
    """)
_LATER_TYPES = """
    31 tuple  32 list  33 dict  34 none  39 type  40 any  41 refkey  42 ref  43 umonad  44 iomonad  46 bfloat16
    48 int4  49 slice
    """
_OWN_TYPES = """
    100 float8_e4m3fn  101 float8_e5m2  102 float8_e4m3fnuz  103 float8_e5m2fnuz  104 complex64  105 complex128
    """
"""Types of our own client: see ``live.wire.OWN_TYPES``."""
_NUMBERED = word_pairs(_LATER_TYPES + _OWN_TYPES)
_TYPE_NAMES = dict(enumerate(_FIRST_TYPES)) | {int(number): name for number, name in _NUMBERED.items()}
_NONE, _MONADS = 34, frozenset({43, 44})


class SlotType(NamedTuple):
    """Element type (by name) and shape of one output slot; the shape is None when the file does not say."""

    dtype: str
    shape: tuple[int, ...] | None


@dataclass(slots=True)
class ParsedNode:
    """One operator. Not frozen: a graph has a hundred thousand, and frozen ones take three times as long.

    Attributes:
        index: its name in references of other nodes: a decimal number.
        full_name: scope, operator type and number; empty in files that have none.
        inputs: producer index, parameter name or constant key, in input order, without control edges.
        outputs: one per output slot; for routing nodes one per item, where a nested tuple is one slot.
        item: the ``index`` attribute of a TupleGetItem that has it, else -1.
        attributes: (name, value as text), read on request only.
        ranks: ranks of a collective operation, if our own client wrote them.
    """

    index: str
    full_name: str
    op_type: str
    scope: str
    inputs: tuple[str, ...]
    outputs: tuple[SlotType, ...]
    source: str = ""
    item: int = -1
    attributes: tuple[tuple[str, str], ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedParameter:
    """A weight, optimizer state or graph input; ``placement``: which part of a larger tensor it is (empty: whole)."""

    name: str
    type: SlotType
    placement: str = ""


@dataclass(frozen=True, slots=True)
class ParsedConstant:
    """One constant of the graph; ``key`` is its canonical id, and its name in references (``cst1``).

    ``full_name``, the stem of its file, is ``Default--data-0`` (2.0) or ``Default_data-0`` (2.10), or empty. ``value``
    is None when only the file has it; ``number`` is the value when it is one integer.
    """

    key: str
    full_name: str
    type: SlotType
    value: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedGraph:
    """One graph of a file. ``root_name`` is the id of its root graph as text, may be empty."""

    name: str
    root_name: str
    nodes: tuple[ParsedNode, ...]
    parameters: tuple[ParsedParameter, ...]
    constants: tuple[ParsedConstant, ...]


def read_graph(path: Path | str, *, attributes: bool = False) -> ParsedGraph:
    """Reads a graph file, with ``attributes`` (only for exports) if asked; or raises BadGraphError."""
    path = Path(path)
    try:
        data = read_regular(path, GRAPH_LIMIT)
    except OSError as error:
        raise BadGraphError(
            f"the graph file cannot be read: {reason_of(error)}",
            where=str(path),
            hint="check that it is a file and that you may read it",
        ) from error
    return parse_model(data, where=str(path), attributes=attributes)


def parse_model(data: bytes, *, where: str = "", attributes: bool = False) -> ParsedGraph:
    """Parses a ModelProto, the content of a graph file; or raises BadGraphError."""
    if not data:
        raise BadGraphError("the graph file is empty", where=where, hint=_HINT)
    model = _parsed("ModelProto", data, where)
    if not model.HasField("graph"):
        raise BadGraphError("there is no graph in the graph file", where=where, hint=_HINT)
    return _graph(model.graph, attributes)


def parse_graph(data: bytes, *, where: str = "") -> ParsedGraph:
    """Parses a bare GraphProto, as training sends it; or raises BadGraphError."""
    return _graph(_parsed("GraphProto", data, where))


_HINT = "without it nodes come from file names; copy the file again if the run itself is complete"


def _parsed(name: str, data: bytes, where: str) -> Any:
    from google.protobuf.message import DecodeError

    message = message_class(name)()
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        raise BadGraphError("the graph file is broken or cut off", where=where, hint=_HINT) from error
    return message


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _graph(graph: Any, attributes: bool = False) -> ParsedGraph:
    texts, types = _Texts(), (_Types(flat=False), _Types(flat=True))
    return ParsedGraph(
        name=_text(graph.name),
        root_name=_text(graph.root_name),
        nodes=tuple([_node(node, texts, types, attributes) for node in graph.node]),
        parameters=tuple(
            ParsedParameter(_text(each.name), _slots(each.type)[0], _text(each.placement)) for each in graph.parameters
        ),
        constants=tuple(_constant(each) for each in graph.const_vals),
    )


class _Texts(dict[bytes, str]):
    """One copy of the texts that many nodes have in common, by their bytes."""

    def __missing__(self, data: bytes) -> str:
        text = self[data] = _text(data)
        return text


class _Types(dict[bytes, tuple[SlotType, ...]]):
    """Output slots by the bytes of the type: a graph has a few hundred distinct types. ``flat``: see ``_slots``."""

    def __init__(self, *, flat: bool) -> None:
        super().__init__()
        self._flat = flat

    def of(self, kind: Any) -> tuple[SlotType, ...]:
        data: bytes = kind.SerializeToString()
        found = self.get(data)
        if found is None:
            found = self[data] = _slots(kind, flat=self._flat)
        return found


def _node(node: Any, texts: _Texts, types: tuple[_Types, _Types], attributes: bool) -> ParsedNode:
    op_type = texts[node.op_type]
    return ParsedNode(
        texts[node.name],
        str(node.full_name, "utf-8", "replace"),
        op_type,
        texts[node.scope],
        tuple([texts[each.name] for each in node.input if each.type != _CONTROL_EDGE]),
        types[op_type.lower() not in STRUCTURAL_TYPES].of(node.output_type),
        texts[node.source_address],
        _item(node) if op_type == "TupleGetItem" else -1,
        tuple([(texts[each.name], _value(each.value) or "") for each in node.attribute]) if attributes else (),
        _ranks(node) if op_type in EXCHANGES else (),
    )


def _ranks(node: Any) -> tuple[int, ...]:
    found = (each.value.int_vals for each in node.attribute if each.name == RANKS.encode())
    return tuple(int(rank) for rank in next(found, ()))


def _item(node: Any) -> int:
    for attribute in node.attribute:
        if attribute.name in {b"index", b"output_index"} and attribute.value.HasField("int_val"):
            return int(attribute.value.int_val)
    return -1


def _slots(kind: Any, *, flat: bool = True) -> tuple[SlotType, ...]:
    """Returns the output slots of a type, at least one: the leaves of a tuple, or without ``flat`` its items."""
    if not flat and kind.HasField("sequence_type"):
        each_item = [
            (SlotType(type_name(each.data_type), None),) if each.HasField("sequence_type") else _slots(each)
            for each in kind.sequence_type.elem_types
        ]
        items = tuple(slot for (slot,) in each_item)
        return items or _slots(kind)
    leaves: list[SlotType] = []
    pending = [kind]
    while pending:
        each = pending.pop()
        if each.HasField("sequence_type"):
            pending.extend(reversed(each.sequence_type.elem_types))
        elif each.HasField("tensor_type"):
            tensor = each.tensor_type
            shape = tuple(int(dim.size) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
            leaves.append(SlotType(type_name(tensor.elem_type), shape))
        else:
            leaves.append(SlotType(type_name(each.data_type), ()))
    return tuple(leaves) or (SlotType(type_name(kind.data_type), None),)


def type_name(number: int) -> str:
    return _TYPE_NAMES.get(number, f"type {number}")


def _constant(each: Any) -> ParsedConstant:
    value = each.value
    kind = SlotType(type_name(value.dtype), ())
    if value.HasField("tensor_val"):
        kind = SlotType(type_name(value.tensor_val.data_type), tuple(int(dim) for dim in value.tensor_val.dims))
    elif value.HasField("type_val"):
        kind = _slots(value.type_val)[0]
    text = _value(value)
    if text is not None and len(text) > _MAX_VALUE_TEXT:
        text = text[:_MAX_VALUE_TEXT] + "…"
    number = int(value.int_val) if value.HasField("int_val") else None
    if number is None and value.HasField("uint_val"):
        number = int(value.uint_val)
    return ParsedConstant(_text(each.key), _text(each.full_name), kind, text, number)


_SCALARS = ("bool_val", "int_val", "uint_val", "double_val")
_LISTS = ("bool_vals", "int_vals", "uint_vals", "double_vals")


def _value(value: Any) -> str | None:  # noqa: PLR0911 (one return per kind of value)
    for name in _SCALARS:
        if value.HasField(name):
            return str(getattr(value, name))
    if value.HasField("float_val"):
        return str(np.float32(value.float_val))
    if value.HasField("str_val"):
        return repr(_text(value.str_val))
    for name in _LISTS:
        if getattr(value, name):
            return _tuple(str(each) for each in getattr(value, name))
    if value.float_vals:
        return _tuple(str(np.float32(each)) for each in value.float_vals)
    if value.str_vals:
        return _tuple(repr(_text(each)) for each in value.str_vals)
    if value.dict_val:
        return "{" + ", ".join(f"{_text(each.key)}: {_value(each.value)}" for each in value.dict_val) + "}"
    if value.values or type_name(value.dtype) in {"tuple", "list"}:
        return _tuple(_value(each) or type_name(each.dtype) for each in value.values)
    if value.dtype == _NONE:
        return "None"
    return type_name(value.dtype) if value.dtype in _MONADS else None


def _tuple(parts: Iterable[str]) -> str:
    texts = list(parts)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
