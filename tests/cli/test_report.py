"""``tdbg report``: the document for a bug report, where it goes, what it leaves out, its exit codes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import Answer, run
from tests.session.opened import writable_copy
from tests.sources.writer import DumpWriter, Graph, Node
from tui_debugger.diagnose.report import LIMIT

Dumps = Callable[[str], Path]
Capture = pytest.CaptureFixture[str]
GOLDEN = Path(__file__).with_name("report.golden.md")


def headings(answer: Answer) -> list[str]:
    return [line for line in answer.lines if line.startswith("## ")]


def test_the_report_of_the_demo_is_as_it_was(dumps: Dumps, capsys: Capture) -> None:
    root = dumps("mindspore-2.0-nan")
    answer = run(capsys, "report", root, "--step", "0-3", "--watch", "TO", "--max-hits", "3")
    assert answer.code == 1
    text = answer.out.replace(str(root), "DUMP").replace(f"| tdbg | {version()} |", "| tdbg | VERSION |")
    assert text == GOLDEN.read_text("utf-8")


def version() -> str:
    from tui_debugger import __version__

    return __version__


def test_the_parts_come_in_the_order_in_which_they_are_wanted(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-nan"))
    assert headings(answer) == [
        "## Where it begins",
        "## How it spread",
        "## Hits (914)",
        "## What usually causes it, by the numbers of this run",
        "## Watchpoints",
        "## The same again",
    ]
    assert len(answer.out) < LIMIT


def test_a_clean_dump_gives_a_short_report_and_exit_code_0(dump: Path, capsys: Capture) -> None:
    answer = run(capsys, "report", dump, "--watch", "TO")
    assert answer.code == 0
    assert "**clean**" in answer.lines
    assert headings(answer) == ["## Watchpoints", "## The same again"]


def test_findings_that_are_no_nan_have_their_origin_and_one_explanation_per_condition(
    dumps: Dumps, capsys: Capture
) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-mlp"))
    assert answer.code == 1
    assert "act3-ReLU/MatMulBiasAddReluFusion-op89` (MatMulBiasAddReluFusion), step 0, rank 0" in answer.out
    for title in ("activation range", "Gradient vanishing", "Weight not changed"):
        assert title in answer.out


def test_the_commands_at_the_end_work(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-nan"), "--watch", "TO", "--step", "3")
    commands = [line for line in answer.lines if line.startswith("tdbg ")]
    assert len(commands) == 4
    for command in commands:
        _, *arguments = shlex.split(command)
        assert run(capsys, *arguments).code == 1, command


def test_what_was_restricted_is_restricted_again(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-nan"), "--watch", "TO", "--filter", "Log|ReduceSum")
    assert next(line for line in answer.lines if line.startswith("tdbg ")).endswith("--filter 'Log|ReduceSum'")


def test_it_is_written_to_a_file_and_never_over_another_one(dumps: Dumps, tmp_path: Path, capsys: Capture) -> None:
    root, target = dumps("mindspore-2.0-nan"), tmp_path / "report.md"
    answer = run(capsys, "report", root, "--out", target)
    assert (answer.code, answer.out) == (1, "")
    written = target.read_text("utf-8")
    assert written.startswith("# tdbg: TinyTrans\n")
    again = run(capsys, "report", root, "-o", target)
    assert again.code == 2
    assert "the file exists already" in again.err
    assert "--force to replace it" in again.err
    assert target.read_text("utf-8") == written
    assert run(capsys, "report", root, "-o", target, "--force", "--step", "0").code == 0
    assert target.read_text("utf-8") != written


def test_nothing_is_written_into_the_dump(dumps: Dumps, tmp_path: Path, capsys: Capture) -> None:
    root = writable_copy(dumps("mindspore-2.0-mlp"), tmp_path / "dump")
    answer = run(capsys, "report", root, "-o", root / "report.md")
    assert answer.code == 2
    assert "a dump is never written to" in answer.err
    assert not (root / "report.md").exists()


def test_the_json_document_holds_the_same(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-nan"), "--json", "--max-hits", "2")
    document = answer.json
    assert (answer.code, document["exit_code"], document["verdict"]) == (1, 1, "finding")
    assert document["findings"] == 914
    assert len(document["hits"]) == 2
    assert [origin["type"] for origin in document["origins"]["origins"]] == ["Log", "Div"]
    assert document["explained"][0]["sections"][0]["causes"][0]["title"] == "the logarithm of 0"


def test_names_that_are_markup_stay_names(tmp_path: Path, capsys: Capture) -> None:
    evil = "Default/a|b`c<b>[x](y)*z_/Log-op1"
    graph = Graph(nodes=(Node(evil, "Log", (("x", 0),)),), parameters=("x",))
    writer = DumpWriter(tmp_path / "dump")
    writer.metadata()
    writer.graph(graph)
    writer.tensor(0, "Log", evil, np.zeros(2, np.float32), at=("input", 0))
    writer.tensor(0, "Log", evil, np.full(2, -np.inf, np.float32))
    writer.tensor(0, "Parameter", "x", np.zeros(2, np.float32))
    writer.history([0])
    answer = run(capsys, "report", writer.root, "--watch", "TO")
    assert answer.code == 1
    outside = fences_removed(answer.lines)
    assert "<b>" not in outside
    assert "](y)" not in outside
    for line in outside.splitlines():
        if line.startswith("| 0 | 0 |"):
            assert line.count("|") == 13


def fences_removed(lines: list[str]) -> str:
    kept, inside = [], False
    for line in lines:
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def test_the_user_s_home_directory_is_told_if_asked_only(
    tmp_path: Path, dumps: Dumps, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home/alice"))
    for user in ("alice", "bob"):
        link = tmp_path / "home" / user / "run"
        link.parent.mkdir(parents=True)
        link.symlink_to(dumps("mindspore-2.0-nan"))
        asked = ("report", link, "--step", "0", "--watch", "TO")
        answer, whole = run(capsys, *asked), run(capsys, *asked, "--full-paths")
        assert str(link) in whole.out
        assert answer.out == whole.out.replace(str(tmp_path / "home/alice"), "~")


def test_a_report_always_fits_into_an_issue(dumps: Dumps, capsys: Capture) -> None:
    answer = run(capsys, "report", dumps("mindspore-2.0-nan"), "--max-hits", "100000")
    assert len(answer.out) <= LIMIT
    assert "more rows left out" in answer.out


def test_a_path_without_a_dump_is_an_error_and_json_says_so_too(tmp_path: Path, capsys: Capture) -> None:
    answer = run(capsys, "report", tmp_path / "none", "--json")
    assert answer.code == 2
    assert answer.json["verdict"] == "cannot_judge"


def test_of_several_ranks_the_commands_name_the_one_that_is_meant(dump: Path, capsys: Capture) -> None:
    path = next(dump.glob("rank_1/Net/0/2/ReLU*output*"))
    np.save(path, np.array([np.nan, 1], np.float32))
    answer = run(capsys, "report", dump, "--watch", "TO")
    (command,) = [line for line in answer.lines if line.startswith("tdbg explain ")]
    assert "--rank 1" in command
    assert run(capsys, *shlex.split(command)[1:]).lines[1] == "rank 1, step 2"
