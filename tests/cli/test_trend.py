"""``tdbg trend``: tensors over the steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of, run
from tests.sources.writer import write_dump

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]


def test_a_plot_and_a_table(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "trend", dumps("mindspore-2.0-nan"), "head.weight", "--width", "80", "--height", "10")
    assert answer.code == 0
    assert answer.lines[0] == "head.weight:out:0"
    assert answer.lines[1] == "  float32 4×16, 6 steps: 6 measured"
    assert answer.lines[3] == "max, mean, min   ○ max  △ mean  □ min"
    axis = next(line for line in answer.lines if "└" in line)
    assert axis.count("N") == 3
    table = [line.split() for line in answer.lines[-6:]]
    assert [row[0] for row in table] == ["0", "1", "2", "3", "4", "5"]
    assert table[3][1:] == ["N", "–", "–", "–", "–", "64", "0"]


def test_the_document_has_every_digit(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps("mindspore-2.0-nan")
    document = run(capsys, "trend", path, "head.weight", "Log-op381", "--json").json
    assert [(each["node"].rpartition("/")[2], each["side"], each["slot"]) for each in document["tensors"]] == [
        ("head.weight", "output", 0),
        ("Log-op381", "output", 0),
    ]
    weight, log = document["tensors"]
    values = np.load(file_of(path / "rank_0", "*/0/1/Parameter.head.weight.*")).astype(np.float64)
    row = weight["steps"][1]
    assert (row["step"], row["state"], row["nan"]) == (1, "measured", 0)
    assert row["min"] == values.min()
    assert np.isclose(row["norm"], np.sqrt((values**2).sum()), rtol=1e-12)
    assert weight["steps"][3]["min"] is None
    assert (log["steps"][3]["inf"], log["steps"][3]["nan"]) == (1, 0)


def test_several_tensors_share_a_plot(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path, ranks=(0, 1))
    answer = run(capsys, "trend", tmp_path, "fc1.weight", "--metric", "norm,max", "--width", "90")
    assert answer.code == 0
    assert [line for line in answer.lines if line.startswith("rank")][:2] == [
        "rank 0 fc1.weight:out:0",
        "rank 1 fc1.weight:out:0",
    ]
    assert sum("norm   ○" in line for line in answer.lines) == 1
    assert sum("max   ○" in line for line in answer.lines) == 1


def test_a_slot_names_inputs_too(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path)
    answer = run(capsys, "trend", tmp_path, "MatMul-op1:in1", "--json")
    (tensor,) = answer.json["tensors"]
    assert (tensor["side"], tensor["slot"]) == ("input", 1)
    assert [row["state"] for row in tensor["steps"]] == ["measured"] * 3


def test_only_the_last_rows_unless_all_are_wanted(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path, steps=range(30))
    answer = run(capsys, "trend", tmp_path, "ReLU-op2", "--limit", "5")
    assert answer.lines[-1] == "… 25 steps before (--limit 0 prints all)"
    assert answer.lines[-2].split()[0] == "29"
    assert run(capsys, "trend", tmp_path, "ReLU-op2", "--limit", "0").lines[-1].split()[0] == "29"


def test_chosen_steps(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path, steps=range(6))
    document = run(capsys, "trend", tmp_path, "ReLU-op2", "--step", "2-4", "--json").json
    assert [row["step"] for row in document["tensors"][0]["steps"]] == [2, 3, 4]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody",), "no node is called 'nobody'"),
        (("ReLU-op2", "--metric", "beauty"), "'beauty' is not one of min, mean"),
        (("ReLU-op2:7",), "no such tensor was dumped"),
    ],
)
def test_mistakes_are_told(capsys: Capsys, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    write_dump(tmp_path)
    answer = run(capsys, "trend", tmp_path, *words)
    assert answer.code == 2
    assert said in answer.err


def test_nothing_readable_is_no_answer(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    (file,) = (tmp_path / "rank_0" / writer.net / "0" / "0").glob("ReLU*output*")
    file.write_bytes(b"broken")
    answer = run(capsys, "trend", tmp_path, "ReLU-op2")
    assert answer.code == 2
    assert "no step has a value that could be read" in answer.err
