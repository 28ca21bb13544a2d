"""Signals that end the real program: the terminal is given back, nothing is left behind, the exit code says which."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal
from tests.terminal.test_terminal import restored
from tui_debugger.signals import ENDING

pytestmark = pytest.mark.terminal
SOME = ENDING[:3]
"""Signals of which each must also end the program at awkward moments."""


@pytest.mark.parametrize("number", ENDING)
def test_the_screen_of_a_dump_is_left(dumps: Callable[[str], Path], number: int) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        os.kill(terminal.process.pid, number)
        assert terminal.wait_exit() == 128 + number
        restored(terminal)
        assert "Traceback" not in terminal.text()


@pytest.mark.parametrize("number", SOME)
def test_an_open_dialog_does_not_hold_it_up(dumps: Callable[[str], Path], number: int) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.send("?")
        terminal.wait_for("Help: keys")
        os.kill(terminal.process.pid, number)
        assert terminal.wait_exit() == 128 + number
        restored(terminal)


@pytest.mark.parametrize("number", SOME)
def test_the_screen_of_trainings_is_left_and_its_files_are_gone(tmp_path: Path, number: int) -> None:
    with Terminal(["listen", "--host", f"unix:{tmp_path}/s"], env={"TMPDIR": str(tmp_path)}) as terminal:
        terminal.wait_for("TDBG_HOST=")
        os.kill(terminal.process.pid, number)
        assert terminal.wait_exit() == 128 + number
        restored(terminal)
    assert not list(tmp_path.iterdir()), "neither a spool nor a socket"


def test_a_terminal_that_hangs_up_ends_the_program(dumps: Callable[[str], Path]) -> None:
    """As a lost SSH connection does: there is nothing left to write to, and nobody to tell."""
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.hang_up()
        assert terminal.wait_exit() == 128 + signal.SIGHUP


@pytest.mark.parametrize("ended_by", ["q", *SOME])
def test_a_terminal_that_takes_nothing_does_not_hold_it_up(
    dumps: Callable[[str], Path], ended_by: str | signal.Signals
) -> None:
    """As after Ctrl-S, or at the end of a line that hangs: what was not taken is dropped."""
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        termios.tcflow(terminal.slave, termios.TCOOFF)
        terminal.send("4", "pgdn", "1")
        if isinstance(ended_by, str):
            terminal.send(ended_by)
        else:
            os.kill(terminal.process.pid, ended_by)
        assert terminal.wait_exit() == (0 if isinstance(ended_by, str) else 128 + ended_by)
        restored(terminal)


def test_a_terminal_that_nobody_reads_does_not_hold_it_up(dumps: Callable[[str], Path]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.stop_reading()
        terminal.send("4")
        while select.select([], [terminal.slave], [], 0)[1]:  # until it is full
            terminal.send("pgdn", "pgup")
            select.select([], [], [terminal.slave], 0.01)
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait_exit() == 128 + signal.SIGTERM
        while data := terminal.read(0):
            terminal.output += data
        restored(terminal)


WRITING = """
import os, signal, sys
from tui_debugger.cli.main import main
from tui_debugger.session import export_files

written = export_files.write_npy

def interrupted(file, values):
    written(file, values)
    os.kill(os.getpid(), int(sys.argv[1]))

export_files.write_npy = interrupted
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.covering
@pytest.mark.parametrize("number", SOME)
@pytest.mark.parametrize("target", ["x.npz", "all/"])
def test_no_part_of_a_file_stays(dumps: Callable[[str], Path], tmp_path: Path, number: int, target: str) -> None:
    export = ["export", str(dumps("mindspore-2.0-mlp")), "tensors", "--step", "1", "-o", f"{tmp_path}/{target}"]
    done = subprocess.run(
        [sys.executable, "-c", WRITING, str(int(number)), *export], capture_output=True, text=True, check=False
    )
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
