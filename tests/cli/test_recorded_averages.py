"""Averages that MindSpore 1.6 to 2.3 recorded of large tensors: those of their first part; said wherever they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import MLP, DumpWriter, Generation
from tests.tui.driver import opened
from tui_debugger.cli.main import main

Capture = pytest.CaptureFixture[str]
RELU = MLP.nodes[1].name
MIXED = np.repeat(np.array([0, 1], np.float32), (10_000, 15_000))
"""As seen: MindSpore 2.0 divides 25,000 elements into two and says 0.2, the mean of the first 12,500."""
WHY = "MindSpore 1.6 to 2.3 averages a part of large tensors"


def as_recorded(values: np.ndarray) -> float:
    chunks = min(values.size // 10_000, 32)
    return float(values[: values.size // chunks].mean()) if chunks > 1 else float(values.mean())


def written(
    root: Path, values: np.ndarray, *, with_values: bool = True, generation: Generation = Generation.V2_0
) -> Path:
    writer = DumpWriter(root, generation)
    writer.metadata()
    writer.graph(MLP)
    writer.history((0,))
    if with_values:
        writer.tensor(0, "ReLU", RELU, values)
    path = writer.statistics(0, [("ReLU", RELU.rpartition("/")[2], "output", 0, values)])
    head, row = path.read_text().splitlines()
    cells = row.split(",")
    cells[head.split(",").index("Avg Value")] = f"{as_recorded(values):.6g}"
    path.write_text(f"{head}\n{','.join(cells)}\n")
    return root


def ask(capsys: Capture, *words: object) -> str:
    code = main([str(word) for word in (*words, "--no-cache")])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return " ".join(captured.out.split())


@pytest.mark.parametrize(
    ("with_values", "remark"),
    [
        (True, f"recorded average 0.2 is wrong, 0.6 by the values: {WHY}"),
        (False, f"recorded average 0.2 is not believed: {WHY}"),
    ],
)
def test_a_wrong_average_is_said(tmp_path: Path, capsys: Capture, with_values: bool, remark: str) -> None:
    dump = written(tmp_path, MIXED, with_values=with_values)
    assert remark in ask(capsys, "show", dump, RELU)
    assert remark in ask(capsys, "stat", dump)
    *_, tensor = json.loads(ask(capsys, "show", dump, RELU, "--json"))["tensors"]
    (row,) = json.loads(ask(capsys, "stat", dump, "--json"))["tensors"]
    assert tensor["remark"] == row["remark"] == remark
    assert tensor["stats"]["mean"] == row["mean"] == (0.6 if with_values else None)


@pytest.mark.parametrize(
    "values", [np.ones(25_000, np.float32), MIXED[:19_999], np.tile(np.array([0, 1], np.float32), 12_500)]
)
def test_a_right_one_is_not(tmp_path: Path, capsys: Capture, values: np.ndarray) -> None:
    assert "recorded average" not in ask(capsys, "stat", written(tmp_path, values))


async def test_the_tensor_pane_says_it(tmp_path: Path) -> None:
    async with opened(written(tmp_path, MIXED), size=(200, 50)) as screen:
        await screen.press("1", "slash")
        await screen.type("ReLU-op2")
        await screen.press("enter", "enter")
        await screen.settled()
        await screen.press("5", "end")
        await screen.settled()
        assert "recorded average 0.2 is wrong, 0.6 by the values" in screen.text
