"""A wrong command line: what is missing or meant is said in words. ``-h`` shows the usual options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.cli.main import COMMANDS, build_parser

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "COMMAND is missing"),
        (("check",), "PATH is missing: where the dump is\n"),
        (("diff", "A"), "B|NODE[:slot] is missing: another run, or a node"),
        (("explain", "A"), "NODE[:slot] is missing: id of a node"),
        (("chek", "A"), "did you mean check?"),
        (("check", "A", "--recomended"), "did you mean --recommended?"),
        (("open", "A", "--theme", "drak"), "did you mean dark?"),
        (("open", "A", "--theme", "x"), "one of dark, light"),
        (("check", "A", "--watch", "tensor_overflw"), "did you mean tensor_overflow"),
        (("check", "A", "--watch", "XY"), "one of "),
        (("check", "A", "--fail-on", "weight overflow"), "did you mean weight_overflow"),
    ],
)
def test_what_is_missing_or_meant_is_said(capsys: Capsys, words: tuple[str, ...], said: str) -> None:
    answer = run(capsys, *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "are required" not in answer.err


def test_what_can_be_left_out_is_not_missing(capsys: Capsys) -> None:
    assert "MORE is missing" not in run(capsys, "check").err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_the_usual_options_and_all_if_asked(capsys: Capsys, command: str) -> None:
    options = {each.option_strings[-1] for each in build_parser().commands[command]._actions if each.option_strings}
    usual, whole = (run(capsys, command, "-h", *more).out for more in ((), ("all",)))
    shown = [each for each in options if re.search(rf"^ +(-.( [A-Z]+)?, )?{each}( |$)", usual, re.MULTILINE)]
    assert len(shown) <= 14
    assert all(each in whole for each in options)
    left = len(options) - len(shown)
    assert (f"{left} more options: tdbg {command} -h all" in usual) is bool(left)


def test_a_link_is_never_written_through(capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine")
    (tmp_path / "link").symlink_to("mine.md")
    (tmp_path / "dump/step_0").mkdir(parents=True)
    answer = run(capsys, "report", tmp_path / "dump", "-o", tmp_path / "link", "--force")
    assert answer.code == 2
    assert (tmp_path / "mine.md").read_text() == "mine"
    assert (tmp_path / "link").is_symlink()
