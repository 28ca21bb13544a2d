"""File names of every generation, parsed from the right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.file_names import ParsedFileName, parse_name
from tui_debugger.model import Side
from tui_debugger.sources.mindspore.names import generation, logical_dtype


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "MatMul.MatMul-op101.0.0.1795193381283413.input.0.DefaultFormat.npy",
            ParsedFileName("MatMul", "MatMul-op101", 0, 0, 1795193381283413, Side.INPUT, 0, "DefaultFormat"),
        ),
        (
            "Conv2D.Default--network-Net--conv1-Conv2d--Conv2D-op12.7.3.99.output.1.NC1HWC0.npy",
            ParsedFileName(
                "Conv2D", "Default--network-Net--conv1-Conv2d--Conv2D-op12", 7, 3, 99, Side.OUTPUT, 1, "NC1HWC0"
            ),
        ),
        (
            "Add.Default--Add-op1.0.0.5.output.0.DefaultFormat.bfloat16.npy",
            ParsedFileName("Add", "Default--Add-op1", 0, 0, 5, Side.OUTPUT, 0, "DefaultFormat", "bfloat16"),
        ),
        (
            "BiasAdd.Default_network_fc1-Dense_BiasAdd-op0.0.0.5.input.2.DefaultFormat.Int64.npy",
            ParsedFileName(
                "BiasAdd", "Default_network_fc1-Dense_BiasAdd-op0", 0, 0, 5, Side.INPUT, 2, "DefaultFormat", "int64"
            ),
        ),
        (
            "Parameter.moments.conv1.weight.0.0.5.output.0.DefaultFormat.npy",
            ParsedFileName("Parameter", "moments.conv1.weight", 0, 0, 5, Side.OUTPUT, 0, "DefaultFormat"),
        ),
        (
            "Parameter.moments.conv1.weight.0.0.5.output.0.DefaultFormat.float32.npy",
            ParsedFileName("Parameter", "moments.conv1.weight", 0, 0, 5, Side.OUTPUT, 0, "DefaultFormat", "float32"),
        ),
        (
            "Parameter.data-12.0.0.5.output.0.DefaultFormat.npy",
            ParsedFileName("Parameter", "data-12", 0, 0, 5, Side.OUTPUT, 0, "DefaultFormat"),
        ),
        (
            "Parameter.a.input.0.b.0.0.5.output.0.ND.Float8E4M3FN.npy",
            ParsedFileName("Parameter", "a.input.0.b", 0, 0, 5, Side.OUTPUT, 0, "ND", "float8_e4m3fn"),
        ),
    ],
)
def test_every_generation(name: str, expected: ParsedFileName) -> None:
    assert parse_name(name) == expected
    assert parse_name(name.encode()) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".npy",
        "x.npy",
        "statistic.csv",
        "123456.npy",
        "MatMul.MatMul-op1.0.0.5",
        "MatMul.0.0.5.input.0.DefaultFormat.npy",
        ".name.0.0.5.input.0.DefaultFormat.npy",
        "MatMul..0.0.5.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.5.middle.0.DefaultFormat.npy",
        "MatMul.op.0.0.now.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.-5.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.5.input.70000.DefaultFormat.npy",
        "MatMul.op.0.0.99999999999999999999.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.9999999999999999999.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.٣.input.0.DefaultFormat.npy",
        "MatMul.op.0.0.5.input.0.DefaultFormat.npz",
    ],
)
def test_other_names_are_no_tensors(name: str) -> None:
    assert parse_name(name) is None


def test_timestamps_are_numbers() -> None:
    early = parse_name("A.b.0.0.99.output.0.ND.npy")
    late = parse_name("A.b.0.0.104.output.0.ND.npy")
    assert early is not None
    assert late is not None
    assert early.timestamp < late.timestamp


def test_invalid_utf8_escape_sequences_and_brackets_survive() -> None:
    parsed = parse_name(b"Add.\xff[red]\x1b[31m.0.0.5.output.0.ND.npy")
    assert parsed is not None
    assert parsed.op_name.encode("utf-8", "surrogateescape") == b"\xff[red]\x1b[31m"


@given(
    op_type=st.from_regex(r"[A-Za-z_]{1,20}", fullmatch=True),
    op_name=st.text(min_size=1, max_size=300).filter(lambda text: "\0" not in text and "\ud800" not in text),
    numbers=st.tuples(st.integers(0, 32767), st.integers(0, 2**63 - 1)),
    side=st.sampled_from(["input", "output"]),
    dtype=st.sampled_from(["", "Float32", "bfloat16", "Bool"]),
)
def test_whatever_the_operator_is_called_the_ends_are_found(
    op_type: str, op_name: str, numbers: tuple[int, int], side: str, dtype: str
) -> None:
    slot, timestamp = numbers
    tail = f".{dtype}" if dtype else ""
    raw = f"{op_type}.{op_name}.0.0.{timestamp}.{side}.{slot}.DefaultFormat{tail}.npy".encode("utf-8", "surrogatepass")
    parsed = parse_name(raw)
    assert parsed is not None
    assert (parsed.op_type, parsed.slot, parsed.timestamp, parsed.dtype) == (op_type, slot, timestamp, dtype.lower())
    assert parsed.op_name.encode("utf-8", "surrogateescape") == op_name.encode("utf-8", "surrogatepass")


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail(name: bytes) -> None:
    parse_name(name)
    parse_name(name + b".0.0.5.output.0.ND.npy")


def test_dtype_tokens_of_all_generations_mean_the_same() -> None:
    assert logical_dtype("Float32") == logical_dtype(b"float32") == "float32"
    assert logical_dtype("BFloat16") == "bfloat16"
    assert logical_dtype("Int4") == "int4"
    assert logical_dtype("Weird99") == "weird99"
    assert logical_dtype("Weird99", unknown="") == ""


def test_the_generation_can_be_guessed_from_a_name() -> None:
    assert generation("MatMul-op101", "") == "2.2 or older"
    assert generation("Default--MatMul-op1", "") == "2.3"
    assert generation("Default--MatMul-op1", "float32") == "2.4 to 2.6"
    assert generation("Default_MatMul-op1", "Float32") == "2.7 or newer"
