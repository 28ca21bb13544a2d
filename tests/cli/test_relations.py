"""``tdbg relations``: what it prints, its document, which tensor is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import Answer, run
from tests.session.runs import LOG, MATMUL, write_run

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]


def relations(capsys: Capsys, *arguments: object) -> Answer:
    return run(capsys, "relations", *arguments)


def test_producers_and_consumers_stand_around_the_tensor(dumps: Dumps, capsys: Capsys) -> None:
    answer = relations(
        capsys, dumps("mindspore-2.0-nan"), "Log-op381", "--step", "3", "--watch", "TO @ category=tensor"
    )
    assert answer.code == 0
    text = [line.strip() for line in answer.lines]
    made, tensor, used = text.index("made by Log-op381 from:"), text.index("tensor:"), text.index("used by:")
    assert text[made + 1].split() == ["ReduceSum-op380:out:0", "3", "0", "0", "0", "99.55", "TO"]
    assert text[made + 2] == "in:0 of Log-op381"
    assert text[tensor + 1].split() == ["◆", "Log-op381:out:0", "3", "0", "1", "4.476", "4.601", "✗TO"]
    assert text[used + 1].split()[:2] == ["✗", "ReduceSum-op382:out:0"]


def test_further_hops_are_indented(dumps: Dumps, capsys: Capsys) -> None:
    answer = relations(capsys, dumps("mindspore-2.0-nan"), "Log-op381", "--step", "3", "--hops", "3")
    assert any(line.startswith("    Abs-op379:out:0") or "  Abs-op379:out:0" in line for line in answer.lines)
    found = relations(capsys, dumps("mindspore-2.0-nan"), "Log-op381", "--step", "3", "--hops", "2", "--json").json
    (producer,) = found["producers"]
    assert {each["tensor"]["node"].rpartition("/")[2] for each in producer["producers"]} >= {"Abs-op379"}
    assert "producers" not in found["consumers"][0]


def test_the_document_says_steps_and_ties(tmp_path: Path, capsys: Capsys) -> None:
    dump = write_run(tmp_path, {}, steps=(0, 1))
    found = relations(capsys, dump, MATMUL, "--json").json
    assert (found["command"], found["exit_code"], found["maker"]) == ("relations", 0, MATMUL)
    assert found["tensor"]["tensor"]["step"] == 1, "the last one"
    assert [(each["tensor"]["step"], each["tie"], each["slots"]) for each in found["producers"]] == [
        (1, "input", [0]),
        (0, "weight", [1]),
    ]
    assert [each["tensor"]["node"] for each in found["consumers"]] == [LOG]
    assert found["producers"][0]["stats"]["count"] == 6


def test_the_sketch_shows_two_hops_with_the_findings(dumps: Dumps, capsys: Capsys) -> None:
    where = (dumps("mindspore-2.0-nan"), "Log-op381", "--step", "3", "--sketch", "--watch", "TO @ category=tensor")
    answer = relations(capsys, *where)
    assert answer.code == 0
    assert "\n".join(answer.lines) == PICTURE
    one = relations(capsys, *where, "--hops", "1")
    assert "Abs-op379" in answer.out
    assert "Abs-op379" not in one.out
    assert "╔◆" in one.out


PICTURE = """\
Default/network-WithLossCell/_backbone-Net/Log-op381:out:0  step 3  rank 0
┌─────────┐
│Abs-op379├─┐
└─────────┘ │     ┌─────────────────┐       ╔◆══════════╗       ┌✗────────────────┐       ┌✗──────────┐
            └────▶│0 ReduceSum-op380├──────▶║0 Log-op381╟──────▶│0 ReduceSum-op382├──────▶│1 Mul-op383│
┌─────────┐ ┌────▶│1                │       ╚═══════════╝       └─────────────────┘       └───────────┘
│cst14    ├─┘     └─────────────────┘
└─────────┘"""


def test_mistakes_are_said(tmp_path: Path, capsys: Capsys) -> None:
    dump = write_run(tmp_path, {})
    for arguments in (
        ("nosuch",),
        (MATMUL + ":7",),
        (MATMUL, "--step", "9"),
        (MATMUL, "--hops", "0"),
        (MATMUL, "--sketch", "--json"),
    ):
        answer = relations(capsys, dump, *arguments)
        assert answer.code == 2
        assert (answer.out == "") == ("--json" not in arguments)
        assert "tdbg" in answer.err
