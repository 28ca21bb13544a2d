"""One part of a real dump that cannot be looked at: every command says so, also as a process of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.linked import linked
from tests.unprivileged import forbidden, unprivileged
from tests.unreadable import wound
from tui_debugger.cli.main import main

Dumps = Callable[[str], Path]
Run = Callable[..., tuple[int, str]]

ONE, SEVERAL = "mindspore-2.10-mlp", "mindspore-2.10-multi-eval"
COMMANDS = ("check", "origin", "health", "stat", "ls --steps", "ls")
CHECK = ("--watch", "TO")


@pytest.fixture
def copy(dumps: Dumps, tmp_path: Path) -> Callable[[str], Path]:
    """A copy that may be changed."""

    def made(name: str) -> Path:
        return linked(dumps(name), tmp_path / name)

    return made


def step_of(root: Path, graph: int, step: int) -> Path:
    (path,) = root.glob(f"rank_0/[NMm]*/{graph}/{step}")
    return path


def process(*words: str) -> tuple[int, str]:
    """Exit code and output of a process; it has the rights that its thread has."""
    done = subprocess.run([sys.executable, "-m", "tui_debugger", *words], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def here(*words: str) -> tuple[int, str]:
    """The same of ``tdbg`` in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        code = main(list(words))
    return code, out.getvalue()


def tdbg(command: str, root: Path, *more: str, run: Run = here) -> tuple[int, str]:
    return run(*command.split(), str(root), *(CHECK if command == "check" else ()), *more)


def document(command: str, root: Path, *more: str, run: Run = here) -> tuple[int, dict[str, Any]]:
    code, out = tdbg(command, root, "--json", *more, run=run)
    found: dict[str, Any] = json.loads(out)
    assert found["exit_code"] == code
    return code, found


@pytest.mark.turns("command")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_step_that_is_something_else(copy: Callable[[str], Path], command: str) -> None:
    root = copy(ONE)
    why = wound(step_of(root, 0, 3), "fifo")
    code, found = document(command, root, run=process)
    where = str(step_of(root, 0, 3).relative_to(root))
    assert code == 2
    assert [(each["kind"], f"{where} ({why})" in each["text"]) for each in found["reasons"]] == [("unreadable", True)]
    if command in ("check", "origin", "health"):
        assert [pair["step"] for pair in found["coverage"]["pairs"]] == [0, 1, 2, 4, 5]


@pytest.mark.turns("command")
@pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_step_that_may_not_be_read(copy: Callable[[str], Path], command: str) -> None:
    root = copy(ONE)
    path = step_of(root, 0, 3)
    with forbidden(path):
        code, found = unprivileged(lambda: document(command, root, run=process))
    assert code == 2
    assert f"{path.relative_to(root)} (permission denied)" in found["reasons"][0]["text"]


@pytest.mark.parametrize("command", COMMANDS)
def test_half_a_step_of_several_graphs(copy: Callable[[str], Path], command: str) -> None:
    root = copy(SEVERAL)
    where = str(step_of(root, 0, 3).relative_to(root))
    wound(root / where, "dangling")
    code, found = document(command, root)
    assert code in ((1,) if command in ("check", "origin", "health") else (2,))
    (part,) = found["unreadable"]
    assert (part["where"], part["why"]) == (where, "a dangling link")
    assert any(part["where"] in each["text"] for each in found["reasons"])
    if command in ("check", "health"):
        assert 3 in [pair["step"] for pair in found["coverage"]["pairs"]]  # the other graph's half was looked at


def test_what_was_looked_at_is_said(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    wound(step_of(root, 0, 3), "file")
    assert "steps 0-2,4,5; rank 0" in tdbg("check", root)[1]
    assert "checked in 5 of 6 steps" in tdbg("health", root)[1]
    rows = document("health", root)[1]["rows"]
    dumped = [row["cells"] for row in rows if row["cells"][2] != "absent"]
    assert dumped
    assert {cells[3] for cells in dumped} == {"unreadable"}
    runs = document("ls --steps", root)[1]["runs"]
    assert [run["step"] for run in runs if run["unreadable"]] == [3]


def test_the_half_that_is_missing_is_in_the_map(copy: Callable[[str], Path]) -> None:
    root = copy(SEVERAL)
    wound(step_of(root, 0, 3), "file")
    cells = [row["cells"][3] for row in document("health", root, "--nodes", "--step", "0-5")[1]["rows"]]
    assert "unreadable" in cells
    assert "clean" in cells


def test_nodes_are_counted_at_the_last_step_that_can_be_listed(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    before = document("ls", root)[1]["nodes"]
    wound(step_of(root, 0, 5), "loop")
    code, found = document("ls", root)
    assert code == 2
    assert {node["step"] for node in found["nodes"]} == {4}
    assert [node["dumped_outputs"] for node in found["nodes"]] == [node["dumped_outputs"] for node in before]


def _subdirectory(step: Path) -> None:
    inside = step / "more"
    inside.mkdir()
    (inside / "Tensor.npy").write_bytes(b"")


def _renamed(step: Path) -> None:
    step.rename(step.with_name("3.tmp"))


def _emptied(step: Path) -> None:
    shutil.rmtree(step)
    step.mkdir()


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (_emptied, "3 (no tensor in it)"),
    "renamed": (_renamed, "3.tmp/* ("),
    "inside": (_subdirectory, "3/more/Tensor.npy (is empty)"),
    "twice": (lambda step: shutil.copytree(step, step.with_name("03")), "03 (the same step as 3)"),
    "beside": (lambda step: (step.parent / "a.npy").write_bytes(b""), "a.npy (is empty)"),
    "above": (lambda step: (step.parents[1] / "a.npy").write_bytes(b""), "a.npy (is empty)"),
    "bin": (lambda step: (step / "Relu.Relu-op1.1.2.16").write_bytes(b"1"), "1 tensor cannot be read"),
}
"""What may hold tensors that nobody looks at, and the words for it."""


@pytest.mark.parametrize("kind", ODD)
def test_tensors_in_odd_places_are_a_doubt(copy: Callable[[str], Path], kind: str) -> None:
    root = copy(ONE)
    make, words = ODD[kind]
    make(step_of(root, 0, 3))
    code, found = document("check", root)
    assert code == 2
    assert words in found["reasons"][0]["text"]


def test_other_directories_and_links_are_no_doubt(copy: Callable[[str], Path], tmp_path: Path) -> None:
    root = copy(ONE)
    step = step_of(root, 0, 3)
    file = min(step.glob("*.npy"))
    file.rename(tmp_path / "outside.npy")
    file.symlink_to(tmp_path / "outside.npy")
    (step.parent / "notes").mkdir()
    code, found = document("check", root)
    assert (code, found["reasons"]) == (0, [])


def test_an_overflow_record_that_makes_no_sense_is_a_doubt(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    (step_of(root, 0, 3) / "Opdebug.Node_OpDebug.1.0.16.output.0.json").write_text("{}")
    code, found = document("check", root)
    assert code == 2
    assert "an overflow record that makes no sense" in found["reasons"][0]["text"]


def test_a_rank_twice_or_of_too_many_digits_is_a_doubt(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    for name, words in (("rank_00", "the same rank as rank_0"), ("rank_1234567890", "more than 9 digits")):
        other = Path(shutil.copytree(root / "rank_0", root / name, copy_function=os.link))
        code, found = document("check", root)
        assert code == 2
        assert words in found["reasons"][0]["text"]
        shutil.rmtree(other)


def test_ranks_that_are_not_looked_at_are_told(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    (root / "rank_2" / "graphs").mkdir(parents=True)
    table = {"server_list": [{"device": [{"rank_id": str(rank)} for rank in range(8)]}]}
    (root / "rank_0" / ".dump_metadata" / "hccl.json").write_text(json.dumps(table))
    code, found = document("check", root)
    assert code == 0
    assert "rank_2: no tensors are dumped (yet)" in found["notices"]
    assert "the training had 8 ranks, 2 are here" in found["notices"]


@pytest.mark.parametrize("name", ["rank_1_copy", "rank1", "Rank_1", "RANK_1"])
def test_a_rank_that_is_called_otherwise_is_a_doubt(copy: Callable[[str], Path], name: str) -> None:
    root = copy(ONE)
    (root / "ranking").mkdir()  # no rank lies in it
    assert document("check", root)[0] == 0
    shutil.copytree(root / "rank_0", root / name, copy_function=os.link)
    code, found = document("check", root)
    assert code == 2
    assert "a rank is called rank_N" in found["reasons"][0]["text"]


def test_a_step_that_ran_and_was_not_dumped_is_no_doubt(copy: Callable[[str], Path]) -> None:
    root = copy(ONE)
    shutil.rmtree(step_of(root, 0, 3))
    assert document("check", root)[0] == 0
    assert [run["step"] for run in document("ls --steps", root)[1]["runs"] if not run["has_data"]] == [3]
