"""``tdbg demo``: both dumps that ship with the package are unpacked once, and have what the manual says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.demo import PYTORCH

Capsys = pytest.CaptureFixture[str]


def test_the_dump_of_pytorch_begins_with_a_logarithm(capsys: Capsys) -> None:
    first = run(capsys, "demo", "--pytorch", "--unpack")
    assert first.code == 0
    path = Path(first.out.strip())
    assert path.name == "msprobe-nan"
    checked = run(capsys, "check", path, "--json")
    assert checked.code == 1
    origin = run(capsys, "origin", path, "--json")
    assert origin.code == 1
    assert [(each["step"], each["node"]) for each in origin.json["origins"]] == [(1, "Torch.log")]


def test_it_is_unpacked_once_and_beside_the_other(capsys: Capsys) -> None:
    mindspore, pytorch = (Path(run(capsys, "demo", *w, "--unpack").out.strip()) for w in ((), ("--pytorch",)))
    assert mindspore.parent == pytorch.parent
    assert mindspore != pytorch
    before = pytorch.stat().st_ino
    run(capsys, "demo", "--pytorch", "--unpack")
    assert pytorch.stat().st_ino == before


def test_it_is_small() -> None:
    assert PYTORCH.stat().st_size < 400_000


def test_there_is_no_recorded_training_of_pytorch(capsys: Capsys) -> None:
    answer = run(capsys, "demo", "--pytorch", "--live")
    assert answer.code == 2
    assert "not allowed with" in answer.err


@pytest.mark.parametrize("line", [("--rank", "0"), ("--step", "1"), ("--watch", "TZ"), ("--no-state",)])
def test_it_takes_what_the_other_takes(capsys: Capsys, line: tuple[str, ...]) -> None:
    answer = run(capsys, "demo", "--pytorch", *line)
    assert answer.code == 2
    assert "the screen needs a terminal" in answer.err
