"""The messages of a graph file, built at run time: no generated code, so any protobuf from 3.20 on works.

Training environments pin protobuf anywhere from 3.20 to 7, and generated modules refuse to load with
another major version. The tables below are MindSpore's ``anf_ir.proto`` (syntax proto2) with two liberties
that do not change the wire: enumerations are ``int32`` (a number that a newer release added stays visible)
and texts are ``bytes`` (Python refuses a message whose ``string`` is not valid UTF-8, and names, paths and
code are whatever the user's program held). Fields from 100 on are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

Messages = Mapping[str, str]
"""Message name to its fields: ``number name type`` separated by ``;``, ``type*`` for a repeated field."""

GRAPH_PACKAGE = "tdbg.graph"
GRAPH_FILE = "tdbg/graph.proto"

RANKS = "group_ranks"
"""Attribute of a node: the ranks between which it exchanges values."""

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
    """A proto2 file descriptor from a message table.

    Args:
        file: name of the descriptor file.
        package: package its messages live in.
        messages: the table.
        imports: messages of other files that fields may use, by name: ``{"TensorProto": "other.package"}``.
    """
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
    """A pool of our own: the default one may hold the framework's messages of the same file name."""
    from google.protobuf.descriptor_pool import DescriptorPool

    own = DescriptorPool()
    add_file(own, describe(GRAPH_FILE, GRAPH_PACKAGE, GRAPH_MESSAGES))
    return own


def add_file(target: DescriptorPool, file: FileDescriptorProto) -> None:
    """Adds a descriptor file; serialized, which every protobuf version takes."""
    target.AddSerializedFile(file.SerializeToString())


@lru_cache(maxsize=64)
def message_class(name: str, package: str = GRAPH_PACKAGE) -> Any:
    """The class of a message of ``pool()``."""
    from google.protobuf import message_factory

    descriptor = pool().FindMessageTypeByName(f"{package}.{name}")
    if hasattr(message_factory, "GetMessageClass"):  # from 4.22 on; the other was removed in 5
        return message_factory.GetMessageClass(descriptor)
    old_factory: Any = message_factory.MessageFactory(pool())
    return old_factory.GetPrototype(descriptor)
