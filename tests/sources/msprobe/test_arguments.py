"""What calls were called with comes out as it went in: values by value, tensors by the slot of their file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import CallArguments, OtherArgument, TensorSlot

TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": 0.0,
    "Mean": 0.5,
    "Norm": 1,
}


def value(kind: str, of: object) -> dict[str, object]:
    return {"type": kind, "value": of}


def called(directory: Path, **entry: Any) -> CallArguments:
    rank = directory / "step0" / "rank0"
    rank.mkdir(parents=True)
    data = {"Torch.some.0.forward": {"input_args": [], "input_kwargs": {}, "output": [TENSOR], **entry}}
    top = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (rank / "dump.json").write_text(json.dumps(top))
    source = open_source(directory)
    found = source.arguments(0, 0, source.nodes(0).find("Torch.some.0"))
    assert found is not None
    table = source.tensors(0, 0)
    node = source.nodes(0).find("Torch.some.0")
    dumped = {int(table.slot[i]) for i in table.of_node(node) if table.side[i] == int(Side.INPUT)}
    assert dumped == {each.slot for each in found.positional if isinstance(each, TensorSlot)} | {
        each.slot for each in found.keywords.values() if isinstance(each, TensorSlot)
    } | {
        each.slot
        for part in found.positional
        if isinstance(part, tuple)
        for each in part
        if isinstance(each, TensorSlot)
    }
    return found


def test_slots_count_values_and_lists_are_entered(tmp_path: Path) -> None:
    found = called(
        tmp_path,
        input_args=[value("int", 3), TENSOR, None, [TENSOR, value("bool", True), []], TENSOR],
        input_kwargs={"eps": value("float", 1e-5), "out": TENSOR},
    )
    assert found.positional == (3, TensorSlot(1), None, (TensorSlot(3), True, ()), TensorSlot(5))
    assert found.keywords == {"eps": 1e-5, "out": TensorSlot(7)}


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (value("float", -math.inf), -math.inf),
        (value("float", 2), 2.0),
        (value("int", 2), 2),
        (value("str", "none"), "none"),
        (value("torch.dtype", "torch.float16"), OtherArgument("torch.dtype", "torch.float16")),
        (value("slice", [0, None, 2]), slice(0, None, 2)),
        (value("NoneType", None), None),
    ],
)
def test_values_keep_their_type(tmp_path: Path, record: object, wanted: object) -> None:
    assert called(tmp_path, input_args=[record]).positional == (wanted,)


@pytest.mark.parametrize("content", [None, "{"])
def test_calls_that_cannot_be_read_again_are_a_doubt(tmp_path: Path, content: str | None) -> None:
    called(tmp_path)
    source = open_source(tmp_path)
    source.tensors(0, 0)
    file = tmp_path / "step0/rank0/dump.json"
    if content is None:
        file.unlink()
        file.symlink_to("nowhere")
    else:
        file.write_text(content)
    for _ in range(2):
        assert source.arguments(0, 0, source.nodes(0).find("Torch.some.0")) is None
    (part,) = source.unreadable()
    assert part.where == "step0/rank0"
    assert part.why.startswith("arguments of calls: dump.json")
