"""Graph files: what real ones hold, and that broken ones are refused politely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import DUMPS, graph_file, model
from tests.thorough import examples
from tui_debugger.errors import BadGraphError
from tui_debugger.graph import messages
from tui_debugger.graph.messages import ParsedGraph, SlotType, parse_graph, parse_model, read_graph

Dumps = Callable[[str], Path]


@pytest.mark.parametrize(
    ("dump", "name", "counts"),
    [
        ("mindspore-2.0-mlp", "kernel_graph_0", (76, 35, 2)),
        ("mindspore-2.0-nan", "kernel_graph_0", (295, 107, 32)),
        ("mindspore-2.10-mlp", "kernel_graph0", (85, 36, 5)),
        ("mindspore-2.10-nan", "kernel_graph0", (356, 108, 136)),
    ],
)
def test_real_files_are_read(dumps: Dumps, dump: str, name: str, counts: tuple[int, int, int]) -> None:
    graph = read_graph(graph_file(dumps(dump)))
    assert (graph.name, graph.root_name) == (name, "0")
    assert (len(graph.nodes), len(graph.parameters), len(graph.constants)) == counts


def test_a_node_has_inputs_outputs_and_source(dumps: Dumps) -> None:
    graph = read_graph(graph_file(dumps("mindspore-2.0-nan")))
    norm = next(node for node in graph.nodes if node.op_type == "LayerNorm")
    assert norm.inputs == ("3", "4", "5")
    assert [slot.dtype for slot in norm.outputs] == ["float32"] * 3
    assert norm.source.count("In file") > 3
    division = next(node for node in graph.nodes if node.op_type == "Div")
    assert division.outputs == (SlotType("float32", (4, 8, 16)),)


def test_a_parameter_has_its_shape(dumps: Dumps) -> None:
    graph = read_graph(graph_file(dumps("mindspore-2.0-mlp")))
    shapes = {each.name: each.type for each in graph.parameters}
    assert shapes["head.weight"] == SlotType("float32", (3, 16))


def test_constants_have_value_and_file_name(dumps: Dumps) -> None:
    graph = read_graph(graph_file(dumps("mindspore-2.10-nan")))
    constants = {each.key: each for each in graph.constants}
    assert (constants["cst1"].value, constants["cst1"].full_name) == ("(-1,)", "Default_data-0")
    assert (constants["cst2"].value, constants["cst5"].number) == ("True", -1)
    assert constants["cst6"].value == "1e-07"  # a float32, not the double next to it
    assert constants["cst4"].value is None


def test_every_kind_of_constant_has_a_text() -> None:
    built = model()
    values = {
        b"bool": {"dtype": 1, "bool_val": False},
        b"float": {"dtype": 11, "float_val": 0.1},
        b"double": {"dtype": 12, "double_val": 0.1},
        b"text": {"dtype": 13, "str_val": b"a\xff"},
        b"ints": {"dtype": 20, "int_vals": [1, 2]},
        b"floats": {"dtype": 26, "float_vals": [0.5]},
        b"none": {"dtype": 34},
        b"empty": {"dtype": 31},
        b"monad": {"dtype": 43},
        b"long": {"dtype": 13, "str_val": b"x" * 5000},
    }
    for key, fields in values.items():
        built.graph.const_vals.add(key=key, value=fields)
    nested = built.graph.const_vals.add(key=b"nested", value={"dtype": 31}).value
    nested.values.add(dtype=5, int_val=-1)
    nested.values.add(dtype=31).values.add(dtype=34)
    texts = {each.key: each.value for each in parse_model(built.SerializeToString()).constants}
    assert texts.pop("long") == "'" + "x" * 1023 + "…"
    assert texts == {
        "bool": "False",
        "float": "0.1",
        "double": "0.1",
        "text": "'a\ufffd'",
        "ints": "(1, 2)",
        "floats": "(0.5,)",
        "none": "None",
        "empty": "()",
        "monad": "umonad",
        "nested": "(-1, (None,))",
    }


def test_slots_are_the_leaves_of_the_output_type() -> None:
    built = model()
    kind = built.graph.node.add(name=b"1", op_type=b"Split", full_name=b"Split-op1").output_type
    kind.data_type = 31
    first = kind.sequence_type.elem_types.add(data_type=14)
    first.tensor_type.elem_type = 46
    first.tensor_type.shape.dim.add(size=3)
    inner = kind.sequence_type.elem_types.add(data_type=31)
    inner.sequence_type.elem_types.add(data_type=5)
    inner.sequence_type.elem_types.add(data_type=77)
    (node,) = parse_model(built.SerializeToString()).nodes
    assert node.outputs == (SlotType("bfloat16", (3,)), SlotType("int64", ()), SlotType("type 77", ()))


def test_a_tuple_in_a_tuple_is_one_slot_of_a_node_that_only_routes_values() -> None:
    built = model()
    for name, op_type in ((b"1", b"MakeTuple"), (b"2", b"Split")):
        kind = built.graph.node.add(name=name, op_type=op_type, full_name=op_type + b"-op1").output_type
        kind.data_type = 31
        inner = kind.sequence_type.elem_types.add(data_type=31).sequence_type
        inner.elem_types.add(data_type=43).tensor_type.elem_type = 43
        inner.elem_types.add(data_type=43).tensor_type.elem_type = 43
        kind.sequence_type.elem_types.add(data_type=11)
    routes, splits = parse_model(built.SerializeToString()).nodes
    assert [slot.dtype for slot in routes.outputs] == ["tuple", "float32"]
    assert len(splits.outputs) == 3


def test_a_scalar_or_unknown_output_counts_as_one_slot() -> None:
    built = model()
    built.graph.node.add(name=b"1", op_type=b"A").output_type.data_type = 43
    built.graph.node.add(name=b"2", op_type=b"B")
    assert [len(node.outputs) for node in parse_model(built.SerializeToString()).nodes] == [1, 1]


def test_control_edges_are_no_inputs() -> None:
    built = model()
    node = built.graph.node.add(name=b"3", op_type=b"A")
    node.input.add(name=b"1", type=0)
    node.input.add(name=b"2", type=1)
    assert parse_model(built.SerializeToString()).nodes[0].inputs == ("1",)


def test_invalid_utf8_is_shown_not_refused() -> None:
    built = model()
    built.graph.node.add(name=b"1", op_type=b"Mul", full_name=b"a/\xff\xfe/Mul-op1", source_address=b"\x80")
    (node,) = parse_model(built.SerializeToString()).nodes
    assert node.full_name == "a/\ufffd\ufffd/Mul-op1"


def test_unknown_fields_are_skipped() -> None:
    built = model()
    built.graph.node.add(name=b"1", op_type=b"Mul", full_name=b"Mul-op1")
    unknown = bytes([15 << 3 | 2, 3]) + b"abc" + bytes([14 << 3, 7])
    (node,) = parse_model(built.SerializeToString() + unknown).nodes
    assert node.full_name == "Mul-op1"


def test_a_bare_graph_is_read_as_training_sends_it() -> None:
    built = model().graph
    built.node.add(name=b"1", op_type=b"Mul", full_name=b"Mul-op1")
    assert parse_graph(built.SerializeToString()).nodes[0].op_type == "Mul"


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x01"], ids=["empty", "text", "without a graph"])
def test_what_is_no_graph_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ms_output_trace_code_graph_0.pb"
    path.write_bytes(content)
    with pytest.raises(BadGraphError) as caught:
        read_graph(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_directory_or_nothing_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.pb"):
        with pytest.raises(BadGraphError, match="cannot be read"):
            read_graph(path)


@pytest.mark.parametrize("dump", DUMPS)
def test_a_truncated_file_is_refused_wherever_it_ends(dumps: Dumps, dump: str) -> None:
    data = graph_file(dumps(dump)).read_bytes()
    for end in range(0, len(data), max(1, len(data) // 97)):
        with pytest.raises(BadGraphError):
            parse_model(data[:end])


def test_damaged_bytes_give_a_graph_or_the_one_error(dumps: Dumps) -> None:
    data = graph_file(dumps("mindspore-2.0-mlp")).read_bytes()
    dice = np.random.default_rng(1)
    for count in range(1, 61):
        damaged = np.frombuffer(data, np.uint8).copy()
        damaged[dice.integers(0, len(damaged), count)] = dice.integers(0, 256, count)
        _graph_or_error(damaged.tobytes())


@given(st.binary(max_size=300))
@examples(300)
def test_random_bytes_give_a_graph_or_the_one_error(data: bytes) -> None:
    _graph_or_error(data)


def test_endless_nesting_is_refused() -> None:
    kind = b""
    for _ in range(2000):
        kind = _field(3, _field(1, kind))  # a tuple type of one tuple type
    node = _field(6, kind)
    with pytest.raises(BadGraphError):
        parse_model(_field(4, _field(1, node)))


def _field(number: int, value: bytes) -> bytes:
    length, size = bytearray(), len(value)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value


def _graph_or_error(data: bytes) -> None:
    try:
        graph = parse_model(data)
    except BadGraphError:
        return
    assert isinstance(graph, ParsedGraph)


def test_messages_live_in_a_pool_of_their_own() -> None:
    """The framework may be imported in the same process and brings messages of its own."""
    from google.protobuf import descriptor_pool

    descriptor = messages.message_class("GraphProto").DESCRIPTOR
    assert descriptor.full_name == "tdbg.graph.GraphProto"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tdbg.graph.GraphProto")


def test_other_tables_can_use_the_graph_messages() -> None:
    described = messages.describe(
        "tdbg/test.proto",
        "tdbg.test",
        {"Hit": "1 tensor TensorProto; 3 id int32"},
        {"TensorProto": messages.GRAPH_PACKAGE},
    )
    described.dependency.append(messages.GRAPH_FILE)
    messages.add_file(messages.pool(), described)
    hit = messages.message_class("Hit", "tdbg.test")()
    hit.tensor.node_name = b"a"
    again = messages.message_class("Hit", "tdbg.test")()
    again.ParseFromString(hit.SerializeToString())
    assert again.tensor.node_name == b"a"


def test_the_message_factory_of_protobuf_3_20_works(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf import message_factory

    modern = getattr(message_factory, "GetMessageClass", None)
    if modern is None:
        pytest.skip("this protobuf is that old")

    class OldFactory:
        def __init__(self, pool: object) -> None:
            assert pool is messages.pool()

        GetPrototype = staticmethod(modern)

    monkeypatch.delattr(message_factory, "GetMessageClass")
    monkeypatch.setattr(message_factory, "MessageFactory", OldFactory)
    messages.message_class.cache_clear()
    try:
        assert messages.message_class("InputProto")().SerializeToString() == b""
    finally:
        messages.message_class.cache_clear()
