"""A recorder that was killed: tensors that dump.json does not name, a dump.json that ends in the middle, lost files."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import Answer, file_of, run
from tests.linked import linked, own
from tests.sources.msprobe.written import forward, tensor, write
from tui_debugger.model import Side
from tui_debugger.sources import open_source

Dumps = Callable[[str], Path]
SAMPLES = {"msprobe-mix": "good/step1", "msprobe-mindspore": "dump/step2"}
"""A healthy step of each."""
CALLS = {f"Torch.f.{at}.forward": forward([tensor(at)], [tensor(at + 1)]) for at in range(9)}


def killed(dumps: Dumps, target: Path, name: str) -> tuple[Path, Path, str]:
    """A dump of one healthy step, the directory of its rank, and a call: the second half of its calls has no entry."""
    part = SAMPLES[name]
    whole = linked(dumps(name), target)
    for step in (whole / part).parent.iterdir():
        if step.name != Path(part).name:
            shutil.rmtree(step)
    directory = file_of(whole, f"{part}/*/dump.json").parent
    calls = directory / "dump.json"
    top = json.loads(calls.read_text())
    kept = list(top["data"].items())[: len(top["data"]) // 2]
    own(calls).write_text(json.dumps({**top, "data": dict(kept)}))
    gone = [call for call in list(top["data"])[len(kept) :] if ".backward" in call]
    return (whole / part).parent, directory, gone[0]


def spoil(file: Path) -> None:
    """Puts one NaN into a tensor."""
    own(file)
    if file.suffix == ".npy":
        values = np.load(file)
        values.flat[0] = np.nan
        np.save(file, values)
    else:
        with zipfile.ZipFile(file) as archive:
            (name,) = (each for each in archive.namelist() if "/data/" in each)
            values = archive.read(name)
        file.write_bytes(file.read_bytes().replace(values, np.array([np.nan], "<f4").tobytes() + values[4:]))


def nodes_of(answer: Answer) -> set[str]:
    return {hit["node"] for hit in answer.json["hits"]}


def rows_of(root: Path) -> dict[str, tuple[str, str, int]]:
    """Of every file with values what it is said to be."""
    source = open_source(root)
    (rank,), found = source.ranks(), {}
    for step in source.steps(rank):
        table, nodes = source.tensors(rank, step), source.nodes(rank)
        for at in range(len(table)):
            name = nodes.names[int(table.node[at])]
            side, slot = Side(int(table.side[at])).name, int(table.slot[at])
            found[Path(table.spec(at).path).name] = (name, side, slot)
    return found


class TestTensorsWithoutAnEntry:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_they_are_judged(self, dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
        root, directory, call = killed(dumps, tmp_path / "whole", name)
        healthy = run(capsys, "check", root, "--watch", "TO", "--json")
        assert (healthy.code, nodes_of(healthy)) == (0, set())
        assert any("does not name all files" in notice for notice in healthy.json["notices"])
        spoil(next((directory / "dump_tensor_data").glob(f"{call}.output.0.*")))
        bad = run(capsys, "check", root, "--watch", "TO", "--json")
        assert bad.code == 1
        assert len(nodes_of(bad)) == 1

    @pytest.mark.parametrize("name", SAMPLES)
    @pytest.mark.parametrize("left", ["half of dump.json", "no dump.json", "an empty dump.json", "no JSON"])
    def test_the_names_of_files_tell_what_dump_json_would(
        self, dumps: Dumps, tmp_path: Path, name: str, left: str
    ) -> None:
        root, directory, _ = killed(dumps, tmp_path / "whole", name)
        if left != "half of dump.json":
            for file in directory.glob("*.json"):
                if left != "no JSON" and file.name != "dump.json":
                    continue
                file.unlink()
            if left == "an empty dump.json":
                (directory / "dump.json").write_bytes(b"")
        found, known = rows_of(root), rows_of((dumps(name) / SAMPLES[name]).parent)
        assert set(found) == {each for each in known if each in found}
        assert set(found) == {each.name for each in (directory / "dump_tensor_data").iterdir()}
        if left == "no JSON":  # nothing tells which modules were around the calls
            return
        same = [each for each in found if found[each] == known[each]]
        assert len(same) > 0.8 * len(found)

    def test_a_name_that_tells_nothing_is_a_call_of_its_own(self, tmp_path: Path) -> None:
        directory = write(tmp_path, {"Torch.f.0.forward": forward([tensor(1)], [tensor(2)])})
        values = directory / "dump_tensor_data"
        values.mkdir()
        names = (
            "loose",
            "Torch.f.0.forward.output.0",  # of a call that has an entry
            "Torch.g.0.forward.output.0.1",
            "Torch.g.0.forward.output.0",
            "Torch.g.0.forward.input.99999999",
            "Torch.g.0.forward.input.mask",
            "Torch.g.0.forward.input.shape",
            "Torch.g.0.forward.input.dtype",
            "Torch.h.0.forward.output" + ".0" * 90,
        )
        for name in names:
            np.save(values / f"{name}.npy", np.ones(3))
        source = open_source(tmp_path)
        table = source.tensors(0, 0)
        read = {Path(table.spec(at).path).stem for at in range(len(table)) if not table.recorded(at)}
        lost = set(names) - read
        assert {"loose", "Torch.f.0.forward.output.0", "Torch.g.0.forward.input.99999999"} <= read
        assert bool(lost) == bool(source.unreadable())


class TestADumpJsonThatEndsInTheMiddle:
    @pytest.mark.parametrize("damage", ["cut", "zeros"])
    def test_the_calls_in_front_of_the_end_count(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
    ) -> None:
        bad: dict[str, Any] = dict.fromkeys(("Max", "Min", "Mean", "Norm"), float("nan"))
        for name, call in (
            ("good", CALLS),
            ("bad", {**CALLS, "Torch.f.1.forward": forward([], [bad | tensor(1) | bad])}),
        ):
            file = write(tmp_path / name, call) / "dump.json"
            raw = file.read_bytes()
            middle = len(raw) // 2
            file.write_bytes(raw[:middle] if damage == "cut" else raw[:middle] + b"\0" * 90 + raw[middle + 90 :])
        good = run(capsys, "check", tmp_path / "good", "--watch", "TO")
        assert good.code == 2
        assert "calls stand in front of that" in good.out
        found = run(capsys, "check", tmp_path / "bad", "--watch", "TO", "--json")
        assert (found.code, nodes_of(found)) == (1, {"Torch.f.1"})


class TestValuesThatAreGone:
    def test_the_statistics_count(self, dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        root = linked(dumps("msprobe-mix"), tmp_path / "whole") / "nan"
        known = nodes_of(run(capsys, "check", root, "--watch", "TO", "--json"))
        for file in list(root.glob("step1/*/dump_tensor_data/*"))[1:]:
            file.unlink()
        answer = run(capsys, "check", root, "--watch", "TO", "--json")
        assert answer.code == 1
        assert nodes_of(answer) == known
        assert any("gone" in part["why"] for part in answer.json["unreadable"])

    def test_without_statistics_each_is_unreadable(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        nothing = dict.fromkeys(("Max", "Min", "Mean", "Norm"))
        record = tensor(1, data_name="a.npy") | nothing
        directory = write(tmp_path, {"Torch.f.0.forward": forward([], [record, tensor(2, data_name="b.npy")])})
        (directory / "dump_tensor_data").mkdir()
        np.save(directory / "dump_tensor_data/b.npy", np.ones((2, 3)))
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert (answer.code, answer.json["coverage"]["unreadable"]) == (2, 1)


@pytest.mark.parametrize("unit", ["rank_0", "rank00", "Rank1", "rank-1", "rank0.bak"])
def test_a_directory_that_is_no_rank_of_its_own_is_a_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str
) -> None:
    calls = {"Torch.f.0.forward": forward([tensor(1)], [tensor(2)])}
    write(tmp_path, calls)
    assert run(capsys, "check", tmp_path, "--watch", "TO").code == 0
    write(tmp_path, calls, unit=unit)
    assert run(capsys, "check", tmp_path, "--watch", "TO").code == 2


@pytest.mark.parametrize("place", ["Step1", "step-1", "old/step0", "old"])
def test_calls_in_a_directory_that_is_no_step_are_a_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    calls = {"Torch.f.0.forward": forward([tensor(1)], [tensor(2)])}
    write(tmp_path, calls)
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "notes.txt").write_text("nothing")
    assert run(capsys, "check", tmp_path / "step0", "--watch", "TO").code == 0
    assert run(capsys, "check", tmp_path, "--watch", "TO").code == 0
    (write(tmp_path / "other", calls)).rename(tmp_path / place / "rank0")
    assert run(capsys, "check", tmp_path, "--watch", "TO").code == 2
