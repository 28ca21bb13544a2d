"""MindInsight's words lead to something that is there."""

from __future__ import annotations

import re

import pytest

from tests.cli.running import run
from tui_debugger.cli.help import PAGES
from tui_debugger.cli.main import build_parser
from tui_debugger.text.old_words import OLD_WORDS, OldWord, old_words
from tui_debugger.tui.actions import ACTIONS, LIVE_ACTIONS, START_ACTIONS, VALUE_ACTIONS
from tui_debugger.tui.views.compare import CompareView
from tui_debugger.watch.text import parse_watch

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
            command, *given = code.replace(" N", " 7").replace("FILE:LINE", "net.py:53").split()[1:]
            build_parser(command).parse_args([command, *given])  # leaves where there is no such option
        elif re.match(r"[A-Z]{2,3}\b", code):
            assert parse_watch(code)
        elif len(code) == 1:
            assert code in keys


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["summary-base-dir"], "tdbg open DIR"),
        (["debugger-port"], "tdbg listen --port N"),
        (["--summary-base-dir"], "tdbg open DIR"),
        (["--summary-base-dir=./summary"], "tdbg open DIR"),
        (["--enable-debugger"], "tdbg listen"),
        (["--port"], "none: the screen is the terminal"),
        (["OK"], "] runs one step"),
        (["TERMINATE"], "T, after a question"),
        (["tensor", "check", "view"], "Enter on a tensor"),
        (["execution", "history"], "y, tdbg ls DUMP --steps"),
        (["session", "limits"], "no limit"),
    ],
)
def test_tdbg_help_finds_an_old_word(capsys: pytest.CaptureFixture[str], words: list[str], row: str) -> None:
    answer = run(capsys, "help", *words)
    assert answer.code == 0
    assert "tdbg help mindinsight" in answer.out
    assert row in answer.out


@pytest.mark.parametrize("option", sorted({each for word in OLD_WORDS for each in re.findall(r"--[a-z-]+", word.old)}))
def test_tdbg_help_finds_every_old_option_with_its_dashes(capsys: pytest.CaptureFixture[str], option: str) -> None:
    answer = run(capsys, "help", option)
    assert answer.code == 0
    assert "tdbg help mindinsight" in answer.out


@pytest.mark.parametrize(
    ("words", "page", "says"),
    [
        (["dataset_sink_mode"], "live", "Data sinking hides steps."),
        (["dataset_sink_mode"], "dump-config", "needs dataset_sink_mode=False"),
        (
            ["out of memory", "MS_DEBUGGER_PARTIAL_MEM"],
            "live",
            "runs out of memory then: a smaller batch, or MS_DEBUGG",
        ),
        (["reserve_class_name_in_scope"], "dump-config", "reserve_class_name_in_scope=False"),
        (["optimised"], "live", "The graph is the optimised one"),
        (["overflows", "PyNative"], "dump-config", 'are found with iteration "all" only'),
    ],
)
def test_notes_of_the_old_manual_that_still_bite_are_found(
    capsys: pytest.CaptureFixture[str], words: list[str], page: str, says: str
) -> None:
    answer = run(capsys, "help", *words)
    assert f"tdbg help {page}" in answer.lines
    assert says in answer.out


def test_the_page_has_every_row() -> None:
    page = (PAGES / "mindinsight.md").read_text("utf-8")
    assert all(f"| {word.old} | {word.here} |" in page for word in OLD_WORDS)
