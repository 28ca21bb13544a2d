"""MindInsight's words lead to something that is there."""

from __future__ import annotations

import re

import pytest

from tests.cli.running import run
from tui_debugger.cli.help import PAGES
from tui_debugger.cli.main import COMMANDS
from tui_debugger.text.old_words import OLD_WORDS, OldWord, old_words
from tui_debugger.tui.actions import ACTIONS, LIVE_ACTIONS, START_ACTIONS, VALUE_ACTIONS
from tui_debugger.tui.views.compare import CompareView

EVERY = (*ACTIONS, *LIVE_ACTIONS, *START_ACTIONS, *VALUE_ACTIONS)


def test_every_action_that_is_named_is_one() -> None:
    named = {action for word in OLD_WORDS for action in word.actions}
    assert named <= {action.id for action in EVERY}
    assert old_words("recheck") == "RECHECK, outdated"
    assert not old_words("zoom")


@pytest.mark.parametrize("word", OLD_WORDS, ids=lambda word: word.old)
def test_keys_and_commands_of_a_row_are_those_of_the_program(word: OldWord) -> None:
    keys = {key for action in (*EVERY, *CompareView.OWN_ACTIONS) for key in action.label.split()}
    for code in re.findall(r"`([^`]+)`", word.here):
        if code.startswith("tdbg "):
            assert code.split()[1] in COMMANDS
        elif len(code) == 1:
            assert code in keys


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["summary-base-dir"], "tdbg open DIR"),
        (["debugger-port"], "tdbg listen --port N"),
        (["OK"], "] runs one step"),
        (["TERMINATE"], "T, after a question"),
        (["tensor", "check", "view"], "Enter on a tensor"),
        (["execution", "history"], "y, tdbg ls --steps"),
        (["session", "limits"], "no limit"),
    ],
)
def test_tdbg_help_finds_an_old_word(capsys: pytest.CaptureFixture[str], words: list[str], row: str) -> None:
    answer = run(capsys, "help", *words)
    assert answer.code == 0
    assert "tdbg help mindinsight" in answer.out
    assert row in answer.out


def test_the_page_has_every_row() -> None:
    page = (PAGES / "mindinsight.md").read_text("utf-8")
    assert all(f"| {word.old} | {word.here} |" in page for word in OLD_WORDS)
