"""``tdbg ls`` without PATH: the dumps below the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import Answer, run
from tests.json_page import assert_described
from tests.sources.writer import write_dump
from tests.unprivileged import forbidden, unprivileged
from tui_debugger.session.dumps import LastVerdict, RecentDumps

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_dump_is_a_line(capsys: Capsys, here: Path) -> None:
    write_dump(here / "runs/one", steps=(0, 1, 2), ranks=(0, 1))
    write_dump(here / "two", steps=(0, 5))
    RecentDumps().judged(str(here / "two"), LastVerdict("Clean: 3 tensors looked at", "clean", 0, 9e9))
    RecentDumps().judged("/elsewhere", LastVerdict("Clean", "clean", 0, 9e9))
    answer = run(capsys, "ls")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.lines[0].split() == ["layout", "framework", "steps", "ranks", "written", "last", "verdict", "path"]
    assert [line.split() for line in answer.lines[1:]] == [
        ["MindSpore", "MindSpore", "2.10.0", "0,5", "1", "now", *["Clean:", "3", "tensors", "looked", "at"], "two"],
        ["MindSpore", "MindSpore", "2.10.0", "0-2", "2", "now", "–", "runs/one"],
    ]


def test_a_verdict_from_before_the_last_step_says_so(capsys: Capsys, here: Path) -> None:
    write_dump(here / "dump", steps=(0,))
    RecentDumps().judged(str(here / "dump"), LastVerdict("Clean", "clean", 0, 1e9))
    assert "Clean (of before)" in run(capsys, "ls").out


def test_the_document_says_all_of_it(capsys: Capsys, here: Path) -> None:
    write_dump(here / "dump", steps=(0, 1))
    RecentDumps().judged(str(here / "dump"), LastVerdict("Clean", "clean", 0, 1e9))
    answer = run(capsys, "ls", "--json")
    document = answer.json
    assert (answer.code, document["exit_code"], document["path"]) == (0, 0, str(here))
    assert (document["looked"], document["notices"], document["unreadable"]) == (2, [], [])
    (dump,) = document["dumps"]
    assert (dump["path"], dump["layout"], dump["steps"], dump["ranks"]) == (
        str(here / "dump"),
        "MindSpore",
        [0, 1],
        [0],
    )
    verdict = dump["last_verdict"]
    assert (verdict["words"], verdict["verdict"], verdict["exit_code"], verdict["outdated"]) == (
        "Clean",
        "clean",
        0,
        True,
    )
    assert verdict["judged"].startswith("2001-09-0")
    assert_described(document, "ls")


def test_no_dump_is_an_error_in_three_parts(capsys: Capsys, here: Path) -> None:
    answer = run(capsys, "ls")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "tdbg: no dump found in 1 directory",
        f"  where: {here}",
        "  do:    name the directory that training dumped to: tdbg ls PATH",
    ]
    assert run(capsys, "ls", "--json").json["error"]["what"] == "no dump found in 1 directory"


def test_a_working_directory_that_is_gone_is_an_error_too(capsys: Capsys, here: Path) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    answer = run(capsys, "ls", "--json")
    assert answer.code == 2
    assert answer.json["error"]["what"] == "the working directory cannot be found: No such file or directory"
    assert answer.json["path"] is None


@pytest.mark.parametrize("option", [["--files"], ["--category", "weight"], ["--step", "3"], ["--filter", "x"]])
def test_options_about_nodes_need_a_dump(capsys: Capsys, option: list[str]) -> None:
    answer = run(capsys, "ls", *option)
    assert answer.code == 2
    assert f"{option[0]} is about the nodes of a dump, and no dump is named" in answer.err


def test_what_could_not_be_listed_is_no_success(capsys: Capsys, here: Path) -> None:
    write_dump(here / "dump", steps=(0,))
    (here / "secret").mkdir()

    def ls(*more: str) -> Answer:
        with forbidden(here / "secret"):
            return unprivileged(lambda: run(capsys, "ls", *more))

    answer = ls()
    assert answer.code == 2
    assert "tdbg: secret cannot be listed: permission denied" in answer.err
    assert answer.lines[-1].endswith("dump")
    (part,) = ls("--json").json["unreadable"]
    assert (part["where"], part["why"]) == (str(here / "secret"), "permission denied")


def test_several_dumps_below_a_path_stay_an_error(capsys: Capsys, here: Path) -> None:
    for name in ("one", "two"):
        write_dump(here / name, steps=(0,))
    for command in ("check", "ls", "open"):
        answer = run(capsys, command, os.curdir)
        assert answer.code == 2
        assert answer.err.splitlines() == [
            "tdbg: Several dumps here: one, two",
            f"  where: {here}",
            "  do:    name one of them",
        ]


def test_a_screen_without_a_terminal_is_an_error(capsys: Capsys) -> None:
    answer = run(capsys, "open")
    assert answer.code == 2
    assert "tdbg: the screen needs a terminal" in answer.err
