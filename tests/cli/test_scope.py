"""PATH asks about what lies at and below it: one file, one checkpoint, a rank, a graph, a step. Nothing else counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import Answer, run
from tests.sources.arrays import write_safetensors
from tests.sources.writer import DumpWriter, write_dump
from tui_debugger.api import DumpAnalyzer

Capsys = pytest.CaptureFixture[str]
NAN = np.array([1.0, np.nan], np.float32)
FINE = np.array([1.0, 2.0], np.float32)
OTHER = np.array([1.0, 3.0], np.float32)
MODEL = "model.safetensors"


def write(root: Path, files: Mapping[str, Any]) -> Path:
    """Writes arrays: each file of a model holds ``w.weight``, the others are .npy or .npz."""
    for name, values in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".safetensors"):
            write_safetensors(path, {"w.weight": values})
        elif name.lower().endswith(".npz"):
            with path.open("wb") as file:
                np.savez(file, x=values)
        else:
            with path.open("wb") as file:
                np.save(file, values)
    return root


def check(capsys: Capsys, path: Path, *more: str) -> Answer:
    return run(capsys, "check", path, "--watch", "TO", "--no-cache", *more)


class TestFile:
    def test_a_file_is_that_file(self, tmp_path: Path, capsys: Capsys) -> None:
        write(tmp_path, {"good.npz": FINE, "twin.npz": FINE, "bad.npz": NAN})
        assert [check(capsys, tmp_path / f"{name}.npz").code for name in ("good", "twin", "bad")] == [0, 0, 1]
        assert run(capsys, "diff", tmp_path / "good.npz", tmp_path / "twin.npz").code == 0
        assert run(capsys, "diff", tmp_path / "good.npz", tmp_path / "bad.npz").code == 1
        assert check(capsys, tmp_path).code == 1

    def test_a_file_that_its_bytes_tell(self, tmp_path: Path, capsys: Capsys) -> None:
        write(tmp_path, {"good.bin": FINE, "bad.bin": NAN, "run/step_1/a.npy": FINE, "run/step_1/bad.bin": NAN})
        names = ("good.bin", "bad.bin", "run/step_1/a.npy", "run/step_1/bad.bin")
        assert [check(capsys, tmp_path / name).code for name in names] == [0, 1, 0, 1]

    def test_every_command_speaks_of_it_alone(self, tmp_path: Path, capsys: Capsys) -> None:
        write(tmp_path, {"one.npz": FINE, "two.npz": NAN})
        assert len(run(capsys, "stat", tmp_path / "one.npz", "--json", "--no-cache").json["tensors"]) == 1
        assert [node["node"] for node in run(capsys, "ls", tmp_path / "one.npz", "--json").json["nodes"]] == ["x"]
        assert run(capsys, "origin", tmp_path / "one.npz", "--no-cache").code == 0
        assert run(capsys, "origin", tmp_path / "two.npz", "--no-cache").code == 1
        assert run(capsys, "report", tmp_path / "one.npz", "--watch", "TO", "--no-cache").code == 0
        assert "2" in run(capsys, "show", tmp_path / "one.npz", "x").out

    @pytest.mark.parametrize("runs", [["run"], ["run", "another"]])
    def test_dumps_below_its_directory_are_not_asked_about(
        self, tmp_path: Path, capsys: Capsys, runs: list[str]
    ) -> None:
        write(tmp_path, {f"{run}/step_{step}/a.npy": FINE for run in runs for step in (1, 2)})
        write_dump(tmp_path / "dump", steps=(0,))
        write(tmp_path, {"good.npz": FINE, "bad.npz": NAN})
        (tmp_path / "notes.txt").write_text("")
        names = ("good.npz", "bad.npz", "notes.txt")
        assert [check(capsys, tmp_path / name).code for name in names] == [0, 1, 2]

    def test_a_broken_file_beside_it_is_no_doubt(self, tmp_path: Path, capsys: Capsys) -> None:
        write(tmp_path, {"step_1/good.npy": FINE, "step_1/model.safetensors": FINE})
        (tmp_path / "step_1/broken.npz").write_bytes(b"PK")
        assert check(capsys, tmp_path / "step_1/good.npy").code == 0
        assert check(capsys, tmp_path / "step_1" / MODEL).code == 0
        assert check(capsys, tmp_path / "step_1/broken.npz").code == 2
        assert check(capsys, tmp_path / "step_1").code == 2

    def test_the_same_names_in_a_file_beside_it_do_not_hide_it(self, tmp_path: Path, capsys: Capsys) -> None:
        write(tmp_path, {"step_1/consolidated.safetensors": FINE, "step_1/model.safetensors": NAN})
        assert check(capsys, tmp_path / "step_1/consolidated.safetensors").code == 0
        assert check(capsys, tmp_path / "step_1" / MODEL).code == 1

    @pytest.mark.parametrize("name", ["README.md", "step_1/config.json", "notes/a.txt", "notes"])
    def test_what_holds_no_tensor_is_not_clean(self, tmp_path: Path, capsys: Capsys, name: str) -> None:
        write(tmp_path, {"step_1/a.npy": FINE, "step_2/a.npy": FINE})
        (tmp_path / "notes").mkdir()
        for each in ("README.md", "step_1/config.json", "notes/a.txt"):
            (tmp_path / each).write_text("{}")
        answer = check(capsys, tmp_path / name)
        assert answer.code == 2
        assert check(capsys, tmp_path).code == 0


def test_models_without_a_name_in_common_are_not_the_same(tmp_path: Path, capsys: Capsys) -> None:
    for name, tensors in (("one", "enc.a"), ("two", "head.proj"), ("three", "model.enc.a")):
        (tmp_path / name).mkdir()
        write_safetensors(tmp_path / name / MODEL, {f"{tensors}.{each}": FINE for each in ("weight", "bias")})
    assert run(capsys, "diff", tmp_path / "one", tmp_path / "two").code == 2
    assert run(capsys, "diff", tmp_path / "one", tmp_path / "three").code == 0


class TestCheckpoints:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        states = {"checkpoint-4": FINE, "checkpoint-6": OTHER, "checkpoint-8": NAN}
        return write(tmp_path / "run", {f"{name}/{MODEL}": values for name, values in states.items()})

    def test_each_is_judged_by_itself(self, root: Path, capsys: Capsys) -> None:
        assert [check(capsys, root / f"checkpoint-{step}").code for step in (4, 6, 8)] == [0, 0, 1]
        assert check(capsys, root).code == 1

    def test_two_of_them_are_compared(self, root: Path, capsys: Capsys) -> None:
        write(root, {f"checkpoint-9/{MODEL}": FINE})
        four = root / "checkpoint-4"
        assert run(capsys, "diff", four, root / "checkpoint-6").code == 1
        assert run(capsys, "diff", four, root / "checkpoint-9").code == 0
        assert run(capsys, "diff", four / MODEL, root / "checkpoint-9" / MODEL).code == 0

    def test_the_first_line_and_the_document_say_it(
        self, root: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(root.parent)
        says = "checkpoint-6 of run/, one of 3: give run/ for all"
        assert check(capsys, Path("run/checkpoint-6")).lines[0] == says
        document = check(capsys, Path("run/checkpoint-6"), "--json").json
        assert document["scope"] == [says]
        assert says in document["notices"]
        whole = check(capsys, Path("run"), "--json").json
        assert "scope" not in whole

    def test_what_is_broken_elsewhere_is_no_doubt_here(self, root: Path, capsys: Capsys) -> None:
        (root / "checkpoint-4" / MODEL).write_bytes(b"cut")
        assert check(capsys, root / "checkpoint-6").code == 0
        assert check(capsys, root / "checkpoint-4").code == 2

    def test_a_directory_in_one(self, root: Path, capsys: Capsys) -> None:
        write(root, {"checkpoint-6/grads/a.npy": NAN, "checkpoint-6/more/a.npy": FINE})
        assert check(capsys, root / "checkpoint-6").code == 1
        assert check(capsys, root / "checkpoint-6/more").code == 0
        assert check(capsys, root / "checkpoint-6/grads").code == 1

    def test_the_step_before_is_read_to_compare_with(self, root: Path, capsys: Capsys) -> None:
        write(root, {f"checkpoint-5/{MODEL}": FINE})
        unchanged = run(capsys, "check", root / "checkpoint-5", "--watch", "WNC", "--no-cache")
        assert unchanged.code == 1
        assert run(capsys, "check", root / "checkpoint-6", "--watch", "WNC", "--no-cache").code == 0

    def test_the_final_state_is_one_more(self, root: Path, capsys: Capsys) -> None:
        write(root, {MODEL: NAN})
        assert [each["step"] for each in run(capsys, "ls", "--steps", root, "--json").json["runs"]] == [4, 6, 8, 9]
        assert check(capsys, root / MODEL).code == 1
        assert check(capsys, root / "checkpoint-6").code == 0
        assert "NaN" in run(capsys, "show", root / MODEL, "w.weight").out

    def test_a_final_state_that_is_the_last_checkpoint_is_no_finding(self, root: Path, capsys: Capsys) -> None:
        write(root, {f"checkpoint-8/{MODEL}": FINE, MODEL: FINE})
        (root / "latest").symlink_to("checkpoint-8")
        answer = run(capsys, "check", root, "--no-cache")
        assert answer.code == 0
        assert [each["step"] for each in run(capsys, "ls", "--steps", root, "--json").json["runs"]] == [4, 6, 8, 9]
        assert check(capsys, root / "latest").code == 0

    def test_a_file_with_two_names_is_one_file(self, root: Path, capsys: Capsys) -> None:
        os.link(root / "checkpoint-4" / MODEL, root / "checkpoint-4/consolidated.safetensors")
        (root / "checkpoint-6/weights.safetensors").symlink_to(MODEL)
        assert [check(capsys, root / f"checkpoint-{step}").code for step in (4, 6)] == [0, 0]
        for values, code in ((FINE, 0), (NAN, 1)):  # another form of the model: both count
            write(root, {"checkpoint-6/consolidated.safetensors": values})
            assert check(capsys, root / "checkpoint-6").code == code

    def test_a_cache_of_the_hub_opens_its_snapshot(self, tmp_path: Path, capsys: Capsys) -> None:
        for name, values in (("good", FINE), ("bad", NAN)):
            cache = tmp_path / f"models--org--{name}"
            write(cache, {"blobs/file.safetensors": values})
            (cache / "blobs/file.safetensors").rename(cache / "blobs/0f0f")
            (cache / "refs").mkdir()
            (cache / "refs/main").write_text("abc")
            (cache / "snapshots/abc").mkdir(parents=True)
            (cache / "snapshots/abc" / MODEL).symlink_to("../../blobs/0f0f")
            assert [node["node"] for node in run(capsys, "ls", cache, "--json").json["nodes"]] == ["w.weight"]
        places = ("", "snapshots/abc", f"snapshots/abc/{MODEL}")
        assert {check(capsys, tmp_path / "models--org--good" / each).code for each in places} == {0}
        assert {check(capsys, tmp_path / "models--org--bad" / each).code for each in places} == {1}


@pytest.mark.parametrize(
    "name",
    [
        "optimizer/x.npy",
        "grads/rank_0/x.npy",
        "rank_0/sampler.npz",
        "rank_0/x.NPY",
        "Rank_2/x.npy",
        "rank3/x.npy",
        "x.npy",
        "x.NPZ",
        "x.bin",
    ],
)
@pytest.mark.parametrize("bad", [False, True])
def test_what_lies_beside_ranks_is_judged(tmp_path: Path, capsys: Capsys, name: str, bad: bool) -> None:
    write(tmp_path, {"step_1/rank_0/a.npy": FINE, "step_1/rank_1/a.npy": FINE, f"step_1/{name}": NAN if bad else FINE})
    assert check(capsys, tmp_path).code == bad
    assert check(capsys, tmp_path / "step_1" / name).code == bad
    assert check(capsys, tmp_path / "step_1/rank_1").code == 0


class TestDump:
    """A dump of MindSpore with two ranks, two graphs, two steps; step 3 of rank 1 has a NaN in graph 1."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        writer = DumpWriter(tmp_path / "dump")
        for rank in (0, 1):
            for graph in (0, 1):
                for step in (2, 3):
                    bad = (rank, graph, step) == (1, 1, 3)
                    writer.tensor(step, "Add", f"Default/Add-op{graph}", FINE, rank=rank, graph=graph)
                    writer.tensor(step, "Mul", f"Default/Mul-op{graph}", NAN if bad else FINE, rank=rank, graph=graph)
        return writer.root

    @pytest.mark.parametrize(
        ("inside", "code", "judged"),
        [
            ("", 1, 16),
            ("rank_0", 0, 8),
            ("rank_1", 1, 8),
            ("rank_1/Net/0", 0, 4),
            ("rank_1/Net/1", 1, 4),
            ("rank_1/Net/1/2", 0, 2),
            ("rank_1/Net/0/3", 0, 2),
            ("rank_1/Net/1/3", 1, 2),
        ],
    )
    def test_a_rank_a_graph_a_step(self, root: Path, capsys: Capsys, inside: str, code: int, judged: int) -> None:
        answer = check(capsys, root / inside, "--json")
        assert answer.code == code
        assert len(run(capsys, "stat", root / inside, "--json", "--no-cache").json["tensors"]) == judged

    def test_a_file(self, root: Path, capsys: Capsys) -> None:
        for path in (root / "rank_1/Net/1/3").iterdir():
            answer = check(capsys, path)
            assert answer.code == (1 if path.name.startswith("Mul") else 0)
            assert len(run(capsys, "stat", path, "--json", "--no-cache").json["tensors"]) == 1

    def test_two_ranks_are_compared_and_two_steps(self, root: Path, capsys: Capsys) -> None:
        assert run(capsys, "diff", root / "rank_0", root / "rank_1").code == 1
        assert run(capsys, "diff", root / "rank_0/Net/0/2", root / "rank_1/Net/0/3").code == 0
        assert run(capsys, "diff", root / "rank_1/Net/1/2", root / "rank_1/Net/1/3").code == 1

    def test_a_tensor_is_compared_with_the_step_before(self, root: Path, capsys: Capsys) -> None:
        path = root / "rank_1/Net/1/3"
        assert run(capsys, "diff", path, "Add-op1").code == 0
        assert run(capsys, "diff", path, "Mul-op1").code == 1
        assert run(capsys, "diff", path, "Mul-op1", "--with", "rank=0").code == 1

    def test_what_is_closed_elsewhere_is_no_doubt_here(self, root: Path, capsys: Capsys) -> None:
        closed = root / "rank_1/Net/0/9"
        os.mkfifo(closed)
        assert check(capsys, root / "rank_0").code == 0
        assert check(capsys, root / "rank_1/Net/0/2").code == 0
        assert check(capsys, root / "rank_1/Net/0").code == 2

    def test_parts_of_a_dump_are_one_run(self, root: Path, capsys: Capsys) -> None:
        write_dump(root.parent / "another", steps=(2,))
        answer = run(capsys, "check", root / "rank_0", root / "rank_1", "--watch", "TO", "--no-cache")
        assert answer.code == 1
        assert "rank_0 of dump/, one of 2; rank_1 of dump/, one of 2" in answer.lines[0]

    def test_the_python_interface(self, root: Path) -> None:
        assert list(DumpAnalyzer(root / "rank_1").get_ranks()) == [1]
