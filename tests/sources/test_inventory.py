"""Everything under PATH is accounted for: what no reader claims and holds tensors is a doubt, all else is no doubt."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.writer import write_dump
from tui_debugger import opener
from tui_debugger.model import UnreadablePart
from tui_debugger.session.session import Session, open_dump

Capsys = pytest.CaptureFixture[str]

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(100)
"""A format that is not read: nobody claims such a file."""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two ranks of two steps, each with one healthy array."""
    for step in (1, 2):
        for rank in (0, 1):
            directory = tmp_path / "run" / f"step_{step}" / f"rank_{rank}"
            directory.mkdir(parents=True)
            np.save(directory / "a.npy", np.ones(3))
    return tmp_path / "run"


@pytest.fixture
def shown() -> Iterator[None]:
    """Nothing is hidden any more afterwards."""
    yield
    opener.hide(())


def parts_of(session: Session) -> tuple[UnreadablePart, ...]:
    for rank in session.ranks():
        for step in session.steps(rank):
            session.source.tensors(rank, step)
    return session.unreadable()


def wheres(path: Path) -> list[str]:
    session = open_dump(path, remember=False)
    try:
        return [part.where for part in parts_of(session)]
    finally:
        session.close()


@pytest.mark.parametrize("where", ["x.h5", "more/x", "step_1/x.h5", "step_1/other/x.h5", "step_1/rank_0/deep/.x.h5"])
def test_a_file_with_tensors_that_nobody_reads_is_a_doubt_wherever_it_lies(
    capsys: Capsys, dump: Path, where: str
) -> None:
    (dump / where).parent.mkdir(parents=True, exist_ok=True)
    (dump / where).write_bytes(HDF5)
    answer = run(capsys, "check", dump, "--watch", "TO", "--json", "--no-cache")
    assert answer.code == 2
    assert [part["where"] for part in answer.json["unreadable"]] == [where]


@pytest.mark.parametrize("where", ["README.md", "step_1/log.txt", "step_1/rank_0/notes", "tokenizer.json"])
def test_text_is_counted_and_no_doubt(capsys: Capsys, dump: Path, where: str) -> None:
    (dump / where).write_text("nothing but words\n")
    answer = run(capsys, "check", dump, "--watch", "TO", "--json", "--no-cache")
    assert answer.code == 0
    assert answer.json["inventory"]["kinds"] == {"no tensors": 1}


def test_a_doubt_belongs_to_the_rank_and_the_step_that_it_lies_in(capsys: Capsys, dump: Path) -> None:
    (dump / "step_1" / "rank_1" / "x.h5").write_bytes(HDF5)
    codes = {
        choice: run(capsys, "check", dump, "--watch", "TO", "--no-cache", *choice.split()).code
        for choice in ("--rank 0", "--rank 1", "--step 1", "--step 2")
    }
    assert codes == {"--rank 0": 0, "--rank 1": 2, "--step 1": 2, "--step 2": 0}


def test_a_finding_outranks_the_doubt_and_the_doubt_is_still_said(capsys: Capsys, dump: Path) -> None:
    np.save(dump / "step_2" / "rank_0" / "a.npy", np.array([np.nan]))
    (dump / "x.h5").write_bytes(HDF5)
    answer = run(capsys, "check", dump, "--watch", "TO", "--json", "--no-cache")
    assert answer.code == 1
    assert [reason["kind"] for reason in answer.json["reasons"]] == ["not looked at"]


def test_only_ignore_leaves_it_out_and_the_verdict_says_so(capsys: Capsys, dump: Path, shown: None) -> None:  # noqa: ARG001 - cleans up
    (dump / "old").mkdir()
    (dump / "old" / "x.h5").write_bytes(HDF5)
    check = ("check", dump, "--watch", "TO", "--json", "--no-cache")
    assert run(capsys, *check, "--allow-unreadable").code == 2
    for glob in ("*.h5", "old", "old/*"):
        answer = run(capsys, *check, "--ignore", glob)
        assert answer.code == 0
        assert len(answer.json["inventory"]["ignored"]) == 1
        assert any(notice.startswith("ignored, by --ignore") for notice in answer.json["notices"])
    assert run(capsys, *check, "--ignore", "*.bak").code == 2


def test_what_is_ignored_is_not_judged_either(capsys: Capsys, dump: Path, shown: None) -> None:  # noqa: ARG001 - cleans up
    np.save(dump / "step_2" / "rank_0" / "bad.npy", np.array([np.nan]))
    check = ("check", dump, "--watch", "TO", "--no-cache")
    assert run(capsys, *check).code == 1
    assert run(capsys, *check, "--ignore", "rank_0/bad.npy").code == 0


@pytest.mark.parametrize("where", ["x.bin", "step_1/x.dat", "step_1/rank_0/x.v2.raw"])
def test_raw_values_are_known_by_the_file_beside_them(capsys: Capsys, dump: Path, where: str) -> None:
    (dump / where).write_bytes(np.array([1, np.nan], np.float32).tobytes())
    check = ("check", dump, "--watch", "TO", "--json", "--no-cache")
    for about, code in (('{"version": 1}', 0), ('{"dtype": "float32", "shape": [2]}', 2)):
        (dump / where).with_suffix(".json").write_text(about)
        answer = run(capsys, *check)
        assert answer.code == code
        assert [part["where"] for part in answer.json["unreadable"]] == [where] * (code == 2)


@pytest.mark.parametrize(
    "name", ["optimizer.pt.tmp", ".optimizer.pt.AbCdEf", "m.safetensors.crdownload", "yolo.weights"]
)
def test_files_that_only_their_names_tell(capsys: Capsys, dump: Path, name: str) -> None:
    (dump / name).write_bytes(bytes(9000))
    (dump / "train.log.tmp").write_text("step 1\n")
    (dump / "note.weights").write_text("nothing but words\n")
    answer = run(capsys, "check", dump, "--watch", "TO", "--json", "--no-cache")
    assert answer.code == 2
    assert [part["where"] for part in answer.json["unreadable"]] == [name]


class TestLinks:
    """A file that is reached twice is one file."""

    @pytest.mark.parametrize("link", [os.symlink, os.link])
    def test_another_name_of_a_file_that_was_read(self, dump: Path, link: object) -> None:
        target = dump / "step_1" / "rank_0" / "a.npy"
        link(target, dump / "best")  # type: ignore[operator]  # os.symlink or os.link
        assert wheres(dump) == []

    def test_a_link_out_of_path_is_followed(self, dump: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "x.h5").write_bytes(HDF5)
        (dump / "more").symlink_to(tmp_path / "elsewhere")
        assert wheres(dump) == ["more/x.h5"]

    def test_a_link_upwards_ends(self, dump: Path) -> None:
        (dump / "up").symlink_to(dump.parent)
        assert wheres(dump) == []

    @pytest.mark.parametrize("name", ["debug.log", ".#train.py", "SingletonLock", "step_1/notes.txt"])
    def test_a_link_that_leads_nowhere_is_no_doubt_where_its_name_is_of_something_else(
        self, dump: Path, name: str
    ) -> None:
        (dump / name).symlink_to(dump / "gone")
        assert wheres(dump) == []

    @pytest.mark.parametrize("name", ["x.h5", "step_3", "pretrained", "weights.2", "m.pth.tar"])
    def test_a_link_that_leads_nowhere_is_a_doubt_where_tensors_may_have_been(self, dump: Path, name: str) -> None:
        (dump / name).symlink_to(dump / "gone")
        assert wheres(dump) == [name]


class TestEnvironments:
    """Installed environments, caches and object stores are named, and entered only when asked."""

    @pytest.fixture
    def venv(self, dump: Path) -> Path:
        inside = dump / ".venv" / "lib" / "python3" / "site-packages" / "numpy" / "tests"
        inside.mkdir(parents=True)
        (inside / "data.h5").write_bytes(HDF5)
        (dump / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
        return dump / ".venv"

    def test_it_is_not_entered_and_named(self, capsys: Capsys, dump: Path, venv: Path) -> None:
        answer = run(capsys, "check", dump, "--watch", "TO", "--json", "--no-cache")
        assert answer.code == 0
        assert answer.json["inventory"]["not_entered"] == [f"{venv.name} (pyvenv.cfg)"]
        assert run(capsys, "check", dump, "--watch", "TO", "--no-cache", "--no-default-ignore").code == 2

    def test_a_marker_hides_nothing_beside_it(self, dump: Path, venv: Path) -> None:
        (venv / "x.h5").write_bytes(HDF5)
        (venv / "grads").mkdir()
        (venv / "grads" / "y.h5").write_bytes(HDF5)
        assert wheres(dump) == [".venv/grads/y.h5", ".venv/x.h5"]

    def test_a_marker_needs_its_content(self, dump: Path, venv: Path) -> None:
        (venv / "pyvenv.cfg").write_text("")
        assert wheres(dump) == [".venv/lib/python3/site-packages/numpy/tests/data.h5"]


def test_many_files_of_one_directory_are_one_doubt(dump: Path) -> None:
    (dump / "more").mkdir()
    for number in range(50):
        (dump / "more" / f"{number}.h5").write_bytes(HDF5)
    assert wheres(dump) == ["more/*"]


def test_what_appears_later_is_found_by_a_refresh(dump: Path) -> None:
    session = open_dump(dump, remember=False)
    assert parts_of(session) == ()
    (dump / "x.h5").write_bytes(HDF5)
    session.refresh()
    assert [part.where for part in parts_of(session)] == ["x.h5"]
    session.close()


def test_a_file_that_tells_of_another_may_come_later(dump: Path) -> None:
    (dump / "x.bin").write_bytes(np.array([1, np.nan], np.float32).tobytes())
    session = open_dump(dump, remember=False)
    assert parts_of(session) == ()
    (dump / "x.json").write_text('{"dtype": "float32", "shape": [2]}')
    session.refresh()
    assert [part.where for part in parts_of(session)] == ["x.bin"]
    session.close()


def test_a_pipe_is_never_opened_and_no_doubt(dump: Path) -> None:
    os.mkfifo(dump / "x.h5")
    assert wheres(dump) == []


@pytest.mark.parametrize("where", [".", "Net", "Net/0", "graphs", "execution_order", "Net/0/1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_directory_of_every_rank_is_walked(tmp_path: Path, capsys: Capsys, rank: int, where: str) -> None:
    write_dump(tmp_path, steps=(0, 1), ranks=(0, 1))
    file = tmp_path / f"rank_{rank}" / where / "other.pkl"
    file.write_bytes(pickle.dumps({"loss": 1.0}))
    assert run(capsys, "check", tmp_path, "--watch", "TO").code == 0
    file.write_bytes(pickle.dumps({"loss": math.nan}))
    answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
    assert [(part["rank"], part["where"]) for part in answer.json["unreadable"]] == [
        (rank, str(file.relative_to(tmp_path)))
    ]
    assert answer.code == 2
    assert run(capsys, "check", tmp_path, "--watch", "TO", "--rank", str(1 - rank)).code == 0
