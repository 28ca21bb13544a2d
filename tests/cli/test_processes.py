"""Headless commands as processes: the bar on a terminal, pagers, full disks, Ctrl-C at any time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.every import COMMANDS, words
from tests.cli.running import run
from tests.cli.terminals import Terminal
from tests.sources.writer import MLP, huge_file
from tui_debugger.errors import CancelledError

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]

NAN = "mindspore-2.0-nan"
RELU = MLP.nodes[1].name


def test_output_that_cannot_be_written_is_no_internal_error(dump: Path) -> None:
    for command in ("ls", "check", "stat"):
        with Path("/dev/full").open("w") as full:
            terminal = Terminal(80, *words(command, dump, "--json"), stdout=full)
        assert terminal.end() == 2
        assert terminal.err.replace("\r\n", "\n").endswith(
            "tdbg: the output could not be written: No space left on device\n"
            "  where: stdout\n  do:    make room, or send it somewhere else\n"
        )
        assert "Traceback" not in terminal.err


CHECK = "check DUMP --watch 'TL max_gt=-9'"


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2> >(exec true)"])
def test_stderr_has_no_say_in_the_result(dump: Path, stderr: str) -> None:
    whole = shell(dump, f"tdbg {CHECK}")
    assert (whole.returncode, whole.stderr) == (1, "")
    alone = shell(dump, f"tdbg {CHECK} {stderr}")
    assert (alone.returncode, alone.stdout) == (1, whole.stdout)
    mistake = shell(dump, f"tdbg ls DUMP/nowhere {stderr}")
    assert (mistake.returncode, mistake.stdout) == (2, "")


@pytest.mark.covering
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    "command", [CHECK, "--help", "--version", "check --help", "help check", "config --completion bash"]
)
def test_a_result_that_cannot_be_written_is_none(dump: Path, command: str, stdout: str) -> None:
    done = shell(dump, f"tdbg {command} {stdout}")
    assert done.returncode == 2
    assert done.stderr.startswith("tdbg: the output could not be written: ")
    assert "Traceback" not in done.stderr


def test_what_was_closed_is_not_taken_by_the_files_of_a_dump(dump: Path) -> None:
    done = shell(dump, f"tdbg {CHECK} --json <&- 2>&-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["coverage"]["unreadable"] == 0


def test_ctrl_c_while_a_document_is_written_leaves_all_of_it() -> None:
    program = [sys.executable, "-c", LONG_DOCUMENT]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        first = writing.stdout.read(1)  # the rest waits for a reader: a pipe holds less
        writing.send_signal(signal.SIGINT)
        found = json.loads(first + writing.stdout.read())
        assert len(found["rows"]) == 100_000
        assert writing.wait() == 0


LONG_DOCUMENT = """
from tui_debugger.cli.output import print_json
from tui_debugger.text.writer import open_streams
open_streams()
print_json({"rows": ["a row"] * 100_000})
"""


def shell(dump: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of a shell, where ``tdbg`` is this program."""
    line = line.replace("tdbg", f"'{sys.executable}' -m tui_debugger").replace("DUMP", f"'{dump}'")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=120)


def test_ctrl_c_that_became_another_error_on_its_way_is_still_ctrl_c(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch, dump: Path
) -> None:
    def pressed(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except CancelledError as error:  # as numpy does when Ctrl-C hits its import
            msg = "numpy could not be imported"
            raise ImportError(msg) from error

    monkeypatch.setattr("tui_debugger.session.session.open_source", pressed)
    answer = run(capsys, "ls", dump, "--json")
    assert (answer.code, answer.json["exit_code"], answer.err) == (130, 130, "tdbg: interrupted\n")


CTRL_C_IN = """
import builtins, os, signal, sys
real = builtins.__import__
def spy(name, *more, **named):
    if name == {module!r}:
        builtins.__import__ = real
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *more, **named)
builtins.__import__ = spy
from tui_debugger.cli.start import start
sys.exit(start())
"""
"""Presses Ctrl-C when a module is first asked for."""


@pytest.mark.parametrize("module", ["argparse", "tui_debugger.cli.main", "csv"])
def test_ctrl_c_while_the_program_is_still_being_read(dump: Path, module: str) -> None:
    command = [sys.executable, "-c", CTRL_C_IN.format(module=module), *words("check", dump)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tdbg: interrupted\n")


@pytest.mark.parametrize("module", ["argparse", "tui_debugger.cli.main", "csv"])
def test_ctrl_c_while_a_class_is_made_from_a_text(dump: Path, tmp_path: Path, module: str) -> None:
    """As dataclasses are: of ``python -m`` Python takes it for one that nobody handled, and would end by the signal."""
    pressed = "os.kill(os.getpid(), signal.SIGINT)"
    program = CTRL_C_IN.format(module=module).replace(pressed, f"exec({pressed!r})")
    (tmp_path / "pressing.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pressing", *words("check", dump)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tdbg: interrupted\n")


@pytest.mark.covering
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("module", ["numpy", "datetime", "_multiarray_umath"])
def test_ctrl_c_while_numpy_is_being_read(dump: Path, command: str, module: str) -> None:
    line = [sys.executable, "-c", CTRL_C_IN.format(module=module), *words(command, dump, "--json")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr in ("tdbg: interrupted\n", ""), "stat has begun its document: it ends by saying so"
    assert json.loads(done.stdout)["exit_code"] == 130


def huge(dump: Path) -> Path:
    """With one tensor so big that nobody waits for it."""
    huge_file(next(dump.glob("rank_0/Net/0/1/ReLU*output*")))
    return dump


@pytest.mark.parametrize("arguments", [("show", "PATH", RELU, "--step", "1"), ("export", "PATH", "hits", "-o", "OUT")])
def test_ctrl_c_leaves_nothing_of_the_bar(dump: Path, arguments: tuple[str, ...]) -> None:
    named = {"PATH": str(huge(dump)), "OUT": str(dump.with_name("out.csv"))}
    terminal = Terminal(80, *(named.get(word, word) for word in arguments))
    terminal.until("█")
    assert terminal.interrupt() == 130
    last = terminal.err.rpartition("\r\x1b[K")[2]
    assert re.fullmatch(r"tdbg: interrupted(: nothing is written)?\r\n", last)


def test_the_bar_never_breaks_over_two_lines(dump: Path) -> None:
    terminal = Terminal(32, "check", huge(dump), "--watch", "TO")
    terminal.until("█")
    assert terminal.interrupt() == 130
    drawn = [part.partition("\r")[0] for part in terminal.err.split("\x1b[K") if "░" in part]
    assert drawn
    assert max(map(len, drawn)) == 31


def test_rows_that_stream_into_a_pager_are_alone_on_the_terminal(dumps: Dumps, tmp_path: Path) -> None:
    piped = Terminal(80, "stat", dumps(NAN), "--csv", "--step", "3")
    assert piped.end() == 0
    assert "░" not in piped.err
    assert piped.err.endswith("tdbg: 950 tensors, 0 unreadable\r\n")
    with (tmp_path / "stat.json").open("w") as file:
        assert Terminal(80, "stat", dumps(NAN), "--json", "--step", "3", stdout=file).end() == 0
    assert len(json.loads((tmp_path / "stat.json").read_text())["tensors"]) == 950
