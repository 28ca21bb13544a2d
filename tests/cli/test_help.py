"""``tdbg help``: the manual in the terminal, whole, readable, and found by a search."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.cli.help import PAGES, TOPICS
from tui_debugger.cli.main import COMMANDS

Capsys = pytest.CaptureFixture[str]
Env = pytest.MonkeyPatch

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: Env) -> None:
    """A terminal of 80x24 that shows colours, whatever the tests run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "PAGER", "LESS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")


def on_terminal(*arguments: str, rows: int = 24) -> str:
    """What ``tdbg ...`` writes when stdout is a terminal of 80 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
    # Readline, which debuggers load, puts LINES into the environment that a child would inherit, not into os.environ.
    process = subprocess.Popen(
        [sys.executable, "-m", "tui_debugger", *arguments], stdin=slave, stdout=slave, env=dict(os.environ)
    )
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 65536):
            shown += data
    except OSError:  # the other end is closed: Linux says EIO
        pass
    os.close(master)
    assert process.wait(timeout=60) == 0
    return shown.decode().replace("\r\n", "\n")


# -- topics ----------------------------------------------------------------------------------------


def test_every_page_is_a_topic() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(TOPICS)


def test_the_page_of_a_command_says_where_its_options_are() -> None:
    """A topic hides the options of a command of the same name from ``tdbg help``."""
    for name in set(TOPICS) & set(COMMANDS):
        assert f"`tdbg {name} --help`" in (PAGES / f"{name}.md").read_text("utf-8")


def test_the_list_has_a_line_for_every_topic_and_fits_a_small_screen(capsys: Capsys) -> None:
    answer = run(capsys, "help")
    assert (answer.code, answer.err) == (0, "")
    for topic in TOPICS:
        (line,) = [line for line in answer.lines if line.split()[:1] == [topic]]
        assert line.endswith("."), "a whole sentence on one line"
    assert all(command in answer.out for command in COMMANDS)
    assert len(answer.lines) < 24
    assert all(len(line) <= 80 for line in answer.lines)


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_plain_text_of_eighty_columns_when_piped(capsys: Capsys, topic: str) -> None:
    answer = run(capsys, "help", topic)
    assert (answer.code, answer.err) == (0, "")
    source = (PAGES / f"{topic}.md").read_text("utf-8")
    assert answer.lines[0] == source.splitlines()[0]
    assert "\x1b" not in answer.out
    assert all(len(line) <= 80 for line in answer.lines)
    for mark in ("<!--", "](", "|---", "```", "**"):
        assert mark not in answer.out


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_loses_no_word(capsys: Capsys, topic: str) -> None:
    """Every word of the source is shown, but for pictures and targets of links."""
    source = re.sub(r"!\[.*?\]\(.*?\)|<!--.*?-->|\]\([^)]*\)", " ", (PAGES / f"{topic}.md").read_text("utf-8"))
    shown = run(capsys, "help", topic).out
    words = set(re.findall(r"[a-z]{3,}", source)) - {"text", "python", "toml", "yaml"}  # names of fences
    assert words - set(re.findall(r"[a-z]{3,}", shown)) <= broken(source)
    assert shown.count("…") == source.count("…"), "nothing is cut"


def broken(source: str) -> set[str]:
    """The pieces of words that are too long for a line of 80 columns."""
    return {piece for word in source.split() if len(word) > 36 for piece in re.findall(r"[a-z]{3,}", word)}


@pytest.mark.parametrize("topic", TOPICS)
def test_code_fits_eighty_columns(topic: str) -> None:
    """What is to be copied is not wrapped. What the program writes about itself is as wide as ``--help``."""
    source = re.sub(r"<!-- (\w+):.*?<!-- /\1 -->", "", (PAGES / f"{topic}.md").read_text("utf-8"), flags=re.DOTALL)
    code = [
        line
        for fence in re.findall(r"^ *```\w*\n(.*?)^ *```", source, re.DOTALL | re.MULTILINE)
        for line in fence.splitlines()
    ]
    assert [line for line in code if len(line) > 76] == []


def test_a_command_shows_its_own_help(capsys: Capsys) -> None:
    assert run(capsys, "help", "check").out == run(capsys, "check", "--help").out
    assert run(capsys, "help", "help").out == run(capsys, "help", "--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_eighty_columns(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in run(capsys, command, "--help").lines if len(line) > 80] == []


def test_capital_letters_open_a_page_too(capsys: Capsys) -> None:
    assert run(capsys, "help", "Keys").out == run(capsys, "help", "keys").out


# -- search ----------------------------------------------------------------------------------------


def test_words_that_are_no_topic_are_looked_for(capsys: Capsys) -> None:
    answer = run(capsys, "help", "flight", "recorder")
    assert answer.code == 0
    assert answer.lines[:2] == ["tdbg help live", "  The flight recorder"], "the page with most of it comes first"
    assert answer.lines[2].startswith("    The flight recorder (also Recorder(flight=...)) keeps the statistics")
    assert all(len(line) <= 80 for line in answer.lines)


def test_a_topic_can_be_searched_for(capsys: Capsys) -> None:
    answer = run(capsys, "help", "--search", "conditions")
    assert "tdbg help conditions" in answer.lines
    assert len([line for line in answer.lines if line.startswith("tdbg help ")]) > 1


def test_capital_letters_are_meant(capsys: Capsys) -> None:
    found = [line for line in run(capsys, "help", "WCL").lines if line.startswith("    ")]
    assert found
    assert all("WCL" in line for line in found)


def test_an_option_is_looked_for_with_its_dashes(capsys: Capsys) -> None:
    answer = run(capsys, "help", "--stop-on-hit")
    assert answer.code == 0
    assert "tdbg help live" in answer.lines
    assert all("--stop-on-hit" in line for line in answer.lines if line.startswith("    ") and "more" not in line)


def test_an_option_that_nobody_has_is_a_word_that_no_page_has(capsys: Capsys) -> None:
    answer = run(capsys, "help", "--no-such-option")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("tdbg: no topic, command or page has '--no-such-option'")


def test_a_long_line_is_cut_around_what_was_found(capsys: Capsys) -> None:
    found = [line for line in run(capsys, "help", "subnormal").lines if line.startswith("    ")]
    assert found
    assert all("subnormal" in line for line in found)


def test_what_is_left_out_is_counted(capsys: Capsys) -> None:
    assert re.search(r"^    … \d+ more$", run(capsys, "help", "--search", "step").out, re.MULTILINE)


@pytest.mark.parametrize(
    ("asked", "near"),
    [("conditons", "conditions"), ("chek", "check"), ("kyes", "keys"), ("trobleshooting", "troubleshooting")],
)
def test_near_names_are_named(capsys: Capsys, asked: str, near: str) -> None:
    answer = run(capsys, "help", asked)
    assert (answer.code, answer.out) == (2, "")
    what, where, do = answer.err.splitlines()
    assert what == f"tdbg: no topic, command or page has '{asked}'"
    assert where == f"  where: tdbg help {asked}"
    assert f"did you mean {near}" in do


def test_nothing_near_leads_to_the_list(capsys: Capsys) -> None:
    answer = run(capsys, "help", "xyzzy\x1b[31m")
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == "  do:    `tdbg help` lists the topics"
    assert "\x1b" not in answer.err


def test_a_search_needs_words(capsys: Capsys) -> None:
    answer = run(capsys, "help", "--search")
    assert answer.code == 2
    assert "no words to search for" in answer.err


# -- terminals -------------------------------------------------------------------------------------


def test_a_short_page_is_printed_with_styles(monkeypatch: Env) -> None:
    monkeypatch.setenv("PAGER", "false")
    shown = on_terminal("help")
    assert "\x1b[1m" in shown
    assert STYLE.sub("", shown).startswith("topics:\n")


def test_no_color_is_respected(monkeypatch: Env) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*38;5;")
    assert colour.search(on_terminal("help", "formats", rows=5000))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(on_terminal("help", "formats", rows=5000))


def pager(folder: Path) -> Path:
    """A pager that says so, and what it was told, before it shows its input."""
    program = folder / "pager"
    program.write_text('#!/bin/sh\necho "PAGED $LESS $*"\ncat\n')
    program.chmod(0o755)
    return program


def test_a_long_page_goes_through_the_pager(monkeypatch: Env, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGER", f"{pager(tmp_path)} -x")
    first, title, *_ = STYLE.sub("", on_terminal("help", "formats")).splitlines()
    assert (first[:8], first[-3:], title) == ("PAGED -R", " -x", "What it reads")
    assert "PAGED" not in on_terminal("help", "formats", rows=5000), "it is no longer than this screen"


def test_the_options_of_less_that_people_chose_stay(monkeypatch: Env, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGER", str(pager(tmp_path)))
    monkeypatch.setenv("LESS", "-S")
    assert on_terminal("help", "formats").startswith("PAGED -S \n")


@pytest.mark.parametrize("without", ["", "/nosuch/pager", "never-installed-pager"])
def test_without_a_pager_a_long_page_is_printed(monkeypatch: Env, without: str) -> None:
    monkeypatch.setenv("PAGER", without)
    assert STYLE.sub("", on_terminal("help", "formats")).startswith("What it reads\n")


def test_a_pager_that_leaves_early_is_no_error(monkeypatch: Env) -> None:
    monkeypatch.setenv("PAGER", "true")
    assert on_terminal("help", "commands") == ""
