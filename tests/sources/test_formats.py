"""``tdbg ls --formats``, and what a layout cannot tell: in the header, in every verdict, in every document."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.arrays import write_arrays
from tests.sources.writer import write_dump
from tests.tui.driver import opened
from tests.unreadable import WOUNDS, wound
from tui_debugger.sources.registry import (
    EDGES_INFERRED,
    HASHES_ONLY,
    NO_EDGES,
    ORDER_OF_NAMES,
    READERS,
    STATISTICS_ONLY,
    Edges,
    Has,
    Order,
    Shows,
    limits_of,
    own_reader,
    shows_of,
    word_of,
)

Capsys = pytest.CaptureFixture[str]

READER = """
from tests.sources.memory import MemorySource
from tui_debugger.sources.registry import Edges, Has, Recognised, Shows, Sureness

class Reader:
    name = "Their own"
    looked_for = "a file called theirs.txt"
    shows = Shows(values=Has.NO, statistics=Has.YES, edges=Edges.NONE, limits=("four decimals: rounded",))
    def recognises(self, path):
        return Recognised(path, Sureness.SURE) if (path / "theirs.txt").exists() else None
    def open(self, path, store=None, notices=()):
        return MemorySource({0: {3: {("a", 1, 0): __import__("numpy").ones(2)}}}, notices=notices)
"""


@pytest.fixture
def mindspore(tmp_path: Path) -> Path:
    write_dump(tmp_path / "all/first", steps=(0,))
    return tmp_path / "all/first"


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "all/second/step_0", {"a": np.ones(3), "b": np.array([np.nan, 1.0])})
    return tmp_path / "all/second"


class TestList:
    def test_every_layout_says_what_it_shows_and_how_it_is_recorded(self, capsys: Capsys) -> None:
        listed = run(capsys, "ls", "--formats", "--json").json["formats"]
        assert [row["title"] for row in listed] == [own_reader(text).name for text in READERS]
        for row in listed:
            assert None not in (row[name] for name in ("values", "statistics", "hashes", "order", "edges", "stacks"))
            assert 1 <= len(row["record"]) <= 3
            assert run(capsys, "ls", "--formats", row["name"]).code == 0
        table = run(capsys, "ls", "--formats").out
        assert all(row["name"] in table for row in listed)

    def test_one_by_its_name_in_any_case(self, capsys: Capsys) -> None:
        said = run(capsys, "ls", "--formats", "Tensor-Files")
        assert said.code == 0
        assert NO_EDGES in said.out
        assert "numpy.savez" in said.out

    def test_the_beginning_of_one_name_is_enough(
        self, capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(capsys, "ls", "--formats", "tens", "--json").json["formats"][0]["name"] == "tensor-files"
        assert run(capsys, "ls", "--formats", "sglang").code == 2, "there are two"

    def test_a_reader_of_another_package(self, capsys: Capsys, tmp_path: Path, install) -> None:
        install("theirs_described", READER)
        (row,) = (row for row in run(capsys, "ls", "--formats", "--json").json["formats"] if row["name"] == "their-own")
        assert (row["values"], row["statistics"], row["gradients"]) == ("no", "yes", None)
        assert "theirs_described" in row["package"]
        (tmp_path / "theirs.txt").touch()
        said = run(capsys, "check", tmp_path, "--json").json
        assert said["limits"] == [STATISTICS_ONLY, NO_EDGES, "four decimals: rounded"]

    def test_of_a_reader_that_says_nothing_nothing_is_known(self) -> None:
        class Silent:
            name = looked_for = "silent"

        assert shows_of(Silent()) == Shows()  # type: ignore[arg-type]  # it need not be a whole reader


class TestPath:
    def test_it_says_who_opens_it_and_by_which_names(self, capsys: Capsys, mindspore: Path, arrays: Path) -> None:
        (row, *_) = run(capsys, "ls", "--formats", mindspore / "rank_0", "--json").json["found"]
        assert (row["name"], row["opens"], row["sureness"], row["root"]) == ("mindspore", True, "sure", str(mindspore))
        assert (mindspore / row["why"]).exists()
        (row,) = run(capsys, "ls", "--formats", arrays, "--json").json["found"]
        assert (row["name"], row["sureness"]) == ("tensor-files", "likely")
        assert row["why"] in {"step_0/a.npy", "step_0/b.npy"}  # whichever the directory lists first
        assert row["limits"] == [NO_EDGES, ORDER_OF_NAMES]

    def test_whoever_knows_the_layout_of_another_reader_does_not_call_it_unreadable(
        self, capsys: Capsys, dumps: Callable[[str], Path]
    ) -> None:
        said = run(capsys, "ls", "--formats", dumps("msprobe-mix") / "nan")
        assert said.lines[0].startswith("msprobe opens ")
        (other,) = (line for line in said.lines if line.startswith("MindSpore recognises "))
        assert other.endswith("This looks like an msprobe dump; no complete dump of MindSpore's own is here")

    def test_another_dump_beside_the_one_that_opens_is_a_doubt(
        self, capsys: Capsys, mindspore: Path, arrays: Path
    ) -> None:
        notice = f"{arrays} is another dump (tensor files) that is not looked at: name it to open it"
        assert f"tdbg: {notice}" in run(capsys, "ls", "--formats", mindspore.parent).err
        answer = run(capsys, "check", mindspore.parent, "--watch", "TO", "--json")
        assert answer.code == 2
        (part,) = answer.json["unreadable"]
        assert (part["where"], part["unclaimed"]) == (os.path.relpath(arrays, mindspore), True)
        assert run(capsys, "check", mindspore, "--watch", "TO").code == 0

    @pytest.mark.parametrize("kind", WOUNDS)
    @pytest.mark.parametrize("place", ["other", "other/rank_0", "more/other"])
    def test_what_cannot_be_looked_at_beside_the_one_that_opens_is_named(
        self, capsys: Capsys, mindspore: Path, kind: str, place: str
    ) -> None:
        broken = mindspore.parent / "beside" / place
        broken.parent.mkdir(parents=True)
        if kind == "file":
            broken.touch()  # any file may lie there
            expected = []
        else:
            why = wound(broken, kind)
            expected = [f"{broken} ({why}) cannot be looked at: whether another dump lies there is not known"]
        err = run(capsys, "ls", "--formats", mindspore.parent).err
        assert all(f"tdbg: {notice}" in err for notice in expected)

    def test_a_directory_that_nobody_reads_is_named_by_its_parts(self, capsys: Capsys, tmp_path: Path) -> None:
        for name in ("a.h5", "b.h5", "c.log", "LICENSE"):
            (tmp_path / name).touch()
        said = run(capsys, "ls", "--formats", tmp_path)
        assert said.code == 2
        parts = "It holds 2 .h5 files (not read; .npy or .npz would be), 1 file without a suffix, 1 .log file"
        assert parts in said.err
        assert parts in run(capsys, "check", tmp_path).err

    def test_several_dumps_are_not_guessed_at(self, capsys: Capsys, tmp_path: Path) -> None:
        for name in ("one", "two"):
            write_dump(tmp_path / name, steps=(0,))
        said = run(capsys, "ls", "--formats", tmp_path, "--json")
        assert said.code == 2
        assert said.json["found"][0]["opens"] is False
        assert "one, two" in said.json["found"][0]["refusal"]["what"]

    def test_neither_a_layout_nor_a_path(self, capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        said = run(capsys, "ls", "--formats", "keras")
        assert said.code == 2
        assert all(f"{word_of(own_reader(text).name)}" in said.err for text in READERS)


@pytest.mark.parametrize(
    ("shows", "graph", "limits"),
    [
        (Shows(), True, ()),
        (Shows(edges=Edges.KNOWN, order=Order.EXECUTION, values=Has.SOME), True, ()),
        (Shows(edges=Edges.KNOWN), False, (NO_EDGES,)),
        (Shows(edges=Edges.INFERRED), True, (EDGES_INFERRED,)),
        (Shows(edges=Edges.INFERRED), False, (NO_EDGES,)),
        (Shows(order=Order.NAMES), True, (ORDER_OF_NAMES,)),
        (Shows(values=Has.NO, statistics=Has.YES), True, (STATISTICS_ONLY,)),
        (Shows(values=Has.NO, statistics=Has.NO, hashes=Has.YES), True, (HASHES_ONLY,)),
        (Shows(limits=("four decimals: rounded",)), False, (NO_EDGES, "four decimals: rounded")),
    ],
)
def test_what_no_verdict_can_tell(shows: Shows, graph: bool, limits: tuple[str, ...]) -> None:
    assert limits_of(shows, graph=graph) == limits


@pytest.mark.parametrize("limit", [NO_EDGES, EDGES_INFERRED, ORDER_OF_NAMES, STATISTICS_ONLY, HASHES_ONLY])
def test_a_limit_begins_with_two_or_three_words_for_the_header(limit: str) -> None:
    words, colon, meaning = limit.partition(": ")
    assert colon
    assert meaning
    assert 2 <= len(words.split()) <= 3


@pytest.mark.parametrize("command", ["check", "origin", "health", "report"])
def test_every_verdict_says_what_the_layout_cannot_tell(
    capsys: Capsys, mindspore: Path, arrays: Path, command: str
) -> None:
    assert run(capsys, command, arrays, "--json").json["limits"] == [NO_EDGES, ORDER_OF_NAMES]
    assert run(capsys, command, mindspore, "--json").json["limits"] == []
    if command != "health":  # whose table has no room for sentences
        assert NO_EDGES in run(capsys, command, arrays).out


async def test_the_header_names_the_limits_in_short(arrays: Path) -> None:
    async with opened(arrays, size=(160, 40)) as screen:
        assert "no edges · order of names" in screen.text


def test_names_are_typed_without_blanks() -> None:
    assert word_of("Tensor  files") == "tensor-files"
