"""``tdbg trend`` without NODE: the answer in every form; exit codes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import Answer, run
from tests.cli.test_help import on_terminal
from tests.json_page import assert_described
from tests.linked import linked, own
from tui_debugger.diagnose.trajectory import SUMMARY

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
MLP = "mindspore-2.10-mlp"


def trajectory(capsys: Capsys, *words: object) -> Answer:
    return run(capsys, "trend", *words, "--jobs", "1")


def test_a_row_for_every_weight_and_the_answer_last(capsys: Capsys, dumps: Dumps) -> None:
    answer = trajectory(capsys, dumps(MLP))
    assert answer.code == 0
    assert answer.lines[0].split("  ")[0] == "weight"
    rows = {line.split()[0]: line for line in answer.lines[1:11]}
    assert rows["fc2.weight"].endswith("·····  never moves")
    assert rows["head.weight"].split()[1:5] == ["3×16", "1.04", "1.03", "0.995×"]
    assert answer.lines[-1].startswith("4 of 10 weights never move: fc2.bias, fc2.weight, fc3.bias, fc3.weight")


def test_only_those_that_something_sets_apart(capsys: Capsys, dumps: Dumps) -> None:
    answer = trajectory(capsys, dumps(MLP), "--remarks")
    assert [line.split()[0] for line in answer.lines[1:5]] == ["fc2.bias", "fc2.weight", "fc3.bias", "fc3.weight"]
    assert "3 more (--top 0 lists all)" in trajectory(capsys, dumps(MLP), "--remarks", "--top", "1").out


def test_a_narrow_terminal_shows_every_remark_and_which_layer_it_is_about(dumps: Dumps) -> None:
    nan = dumps("mindspore-2.0-nan")
    said = on_terminal("trend", str(nan), "--jobs", "1", rows=200)
    lines = re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", said).splitlines()
    (table,) = (at for at, line in enumerate(lines) if line.startswith("weight  "))
    (first,) = (at for at, line in enumerate(lines) if "attn.q.weight  " in line and ".1.attn" in line)
    assert table < first
    assert all(len(line) <= 80 for line in lines[table:])
    start = lines[table].index("remarks")
    remarks = " ".join(line[start:].strip() for line in lines[first : first + 3])
    assert remarks.startswith("NaN or Inf from step 3, changes 7"), "what a cut would have hidden"


def test_the_document(capsys: Capsys, dumps: Dumps) -> None:
    document = trajectory(capsys, dumps(MLP), "--json").json
    assert_described(document, "trend without NODE")
    assert [each["kind"] for each in document["remarks"]] == ["still"] * 4
    weight = next(each for each in document["weights"] if each["node"] == "head.weight")
    assert set(SUMMARY) | {"steps"} == set(weight)
    assert [point["step"] for point in weight["steps"]] == [0, 1, 2, 3, 4, 5]
    assert weight["steps"][0]["update_ratio"] is None
    norms = [point["norm"] for point in weight["steps"]]
    assert weight["growth"] == norms[-1] / norms[0]
    assert document["coverage"]["with_values"] == 10


def test_the_table_for_programs_has_every_digit(capsys: Capsys, dumps: Dumps) -> None:
    path = dumps(MLP)
    rows = list(csv.DictReader(io.StringIO(trajectory(capsys, path, "--csv").out)))
    weights = trajectory(capsys, path, "--json").json["weights"]
    assert [row["node"] for row in rows] == [each["node"] for each in weights]
    assert [float(row["norm_last"]) for row in rows] == [each["norm_last"] for each in weights]
    assert [row["remarks"] for row in rows if row["still"] == "bytes"] == ["never moves"] * 4


def test_chosen_steps(capsys: Capsys, dumps: Dumps) -> None:
    document = trajectory(capsys, dumps(MLP), "--step", "2-4", "--json").json
    assert document["coverage"]["steps"] == [2, 3, 4]
    assert {len(each["steps"]) for each in document["weights"]} == {3}


def test_one_step_cannot_be_compared(capsys: Capsys, dumps: Dumps) -> None:
    answer = trajectory(capsys, dumps(MLP), "--step", "2")
    assert answer.code == 2
    assert answer.lines[-1] == "nothing to compare: no weight of 10 has two steps"


def test_a_weight_that_cannot_be_read_is_no_success(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    copy = linked(dumps(MLP), tmp_path / "copy")
    file = own(next(copy.rglob("3/Parameter.head_weight.*")))
    file.write_bytes(b"broken")
    answer = trajectory(capsys, copy)
    assert answer.code == 2
    assert "cannot judge: head.weight: " in answer.out
    assert "1 tensor unreadable" in answer.out
    assert trajectory(capsys, copy, "--json").json["reasons"][0]["kind"] == "unreadable"


def test_checkpoints_are_steps(capsys: Capsys, tmp_path: Path) -> None:
    for step in (100, 200, 300):
        directory = tmp_path / f"step_{step}"
        directory.mkdir()
        np.savez(directory / "model.npz", **{"a.weight": np.eye(4), "b.weight": np.eye(4) * step})
    answer = trajectory(capsys, tmp_path)
    assert answer.code == 0
    assert answer.lines[-1].startswith("1 of 2 weights never moves: ")
    assert "grows 3×" in answer.lines[-1]


def test_both_forms_at_once_are_refused(capsys: Capsys, dumps: Dumps) -> None:
    assert trajectory(capsys, dumps(MLP), "--json", "--csv").code == 2
