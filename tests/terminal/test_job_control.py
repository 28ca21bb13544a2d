"""Ctrl-Z, ``bg`` and ``fg`` in a real shell with job control, in a real (pseudo) terminal."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal
from tests.thorough import later

pytestmark = pytest.mark.terminal

SHELL = (
    "-c",
    "import os; os.environ['PS1'] = 'shell> '; os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])",
)
TRAINING = """\
import sys
import time
from pathlib import Path
import numpy as np
from tui_debugger.live.client import Recorder

recorder = Recorder(sys.argv[1])
for step in range(100_000):
    recorder.record("fc1/out", np.ones((4, 4), np.float32) * (step + 1), kind="activation")
    recorder.step()
    Path(sys.argv[2]).write_text(str(step))
    time.sleep(0.005)
"""


def _state(pid: int) -> str:
    """The letter of a process' state; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.01)


class Shell(Terminal):
    """A shell in a terminal, in which a person types commands."""

    def __init__(self, *, columns: int = 80, rows: int = 24) -> None:
        super().__init__(SHELL, columns=columns, rows=rows, program=())
        self._asked = 0
        self.wait_for("shell>")

    def run(self, *words: str) -> None:
        self.send(shlex.join([sys.executable, "-m", "tui_debugger", *words]), "enter")

    def says(self, command: str, wanted: str) -> None:
        """Types a command at the prompt and waits for what it prints."""
        self._asked += 1
        self.send("clear; ", command, f"; echo done-$(({self._asked}+100))", "enter")
        assert wanted in self.wait_for(f"done-{self._asked + 100}")

    def __exit__(self, *failure: object) -> None:
        for pid in self.programs():
            os.kill(pid, signal.SIGKILL)
        super().__exit__(*failure)  # type: ignore[arg-type]  # as they come

    def programs(self) -> list[int]:
        """The processes of this terminal's session, the shell aside."""
        found = subprocess.run(
            ["ps", "-o", "pid=", "-s", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [pid for pid in map(int, found.stdout.split()) if pid != self.process.pid]

    def stopped(self) -> bool:
        """Whether all of these are stopped."""
        return all(_state(pid) == "T" for pid in self.programs())


@pytest.mark.parametrize("size", [(80, 24), later((120, 40)), later((200, 50))])
def test_ctrl_z_gives_the_terminal_back_and_fg_draws_the_screen_again(
    dumps: Callable[[str], Path], size: tuple[int, int]
) -> None:
    with Shell(columns=size[0], rows=size[1]) as shell:
        shell.run("open", str(dumps("mindspore-2.0-nan")), "--recommended")
        shell.wait_for("● steps 0–5 checked")
        shell.send("n")
        before = shell.wait_for("hit 2 of")
        shell.send("\x1a")
        shell.wait_for(lambda text: "Stopped" in text and "shell>" in text)
        shell.says("stty -a | grep -o -e ' icanon' -e ' echo '", "icanon")
        shell.says("jobs", "Stopped")
        shell.send("bg", "enter")
        shell.wait_for(lambda text: text.count("shell>") >= 2)
        until(shell.stopped)  # it went on, found no terminal, and stopped again
        shell.send("fg", "enter")
        shell.wait_for(lambda text: text.splitlines()[:3] == before.splitlines()[:3])
        shell.send("E")
        shell.wait_for("Look next")
        shell.send("\x1a")  # in a view as well
        shell.wait_for(lambda text: "Stopped" in text and "shell>" in text)
        shell.send("fg", "enter")
        shell.wait_for("Look next")
        shell.send("esc")
        shell.wait_for("1 Nodes")
        shell.send("q")
        shell.wait_for("shell>")
        shell.says("echo code $?", "code 0")
        shell.says("jobs; stty -a | grep -o -e ' icanon'", "icanon")


@contextmanager
def training(address: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, address, str(file)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_training_goes_on_while_the_screen_is_stopped(tmp_path: Path) -> None:
    address, file = f"unix:{tmp_path}/t.sock", tmp_path / "step"
    file.write_text("-1")
    with Shell() as shell:
        shell.run("listen", "--host", address, "--recommended")
        shell.wait_for("Waiting for a training")
        with training(address, file) as process:
            shell.wait_for("stopped before the first step")
            shell.send("c")
            shell.wait_for("running")
            shell.send("\x1a")
            shell.wait_for(lambda text: "Stopped" in text and "shell>" in text)
            shell.says("stty -a | grep -o -e ' icanon'", "icanon")
            reached = int(file.read_text() or 0)
            until(lambda: int(file.read_text() or 0) > reached + 200)
            assert process.poll() is None
            shell.send("fg", "enter")
            text = shell.wait_for("running, step")
            assert int(text.partition("running, step ")[2].split()[0]) > reached
            shell.send("p")
            shell.wait_for("stopped after step")
            shell.send("q")
            shell.wait_for("let it go on")
            shell.send("enter")
            shell.wait_for("shell>")
            shell.says("echo code $?", "code 0")
        until(lambda: not shell.programs())


def test_no_process_stays_when_the_one_that_the_shell_knows_is_killed(tmp_path: Path) -> None:
    with Shell() as shell:
        shell.run("listen", "--host", f"unix:{tmp_path}/t.sock")
        shell.wait_for("Waiting for a training")
        first, second = sorted(shell.programs())
        os.kill(first, signal.SIGKILL)
        until(lambda: not shell.programs())
        assert second != first


def test_without_a_shell_ctrl_z_changes_nothing(dumps: Callable[[str], Path]) -> None:
    """The program is the leader of its session: nobody could let it go on."""
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.send("\x1a", "E")
        terminal.wait_for("Look next")
        terminal.send("esc")
        terminal.wait_for("1 Nodes")
        terminal.send("q")
        assert terminal.wait_exit() == 0
