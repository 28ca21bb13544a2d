"""The real program in a real (pseudo) terminal: start, keys, screen, exit, and the terminal as it was."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.program import KEYS, Program
from tests.terminal.terminal import Terminal
from tui_debugger.session.watchpoints import read_watch_file

pytestmark = pytest.mark.terminal


def restored(terminal: Terminal) -> None:
    """The alternate screen is left, the cursor shown, the mouse off, the line settings as before."""
    output = bytes(terminal.output)
    assert output.rfind(b"\x1b[?1049l") > output.rfind(b"\x1b[?1049h") >= 0
    assert output.rfind(b"\x1b[?25h") > output.rfind(b"\x1b[?25l")
    for mode in (b"1000", b"1003", b"1006", b"2004"):
        if b"\x1b[?" + mode + b"h" in output:
            assert output.rfind(b"\x1b[?" + mode + b"l") > output.rfind(b"\x1b[?" + mode + b"h")
    assert terminal.settings() == terminal.before


GREYS = {0, 7, 8, 15, 16, 59, 102, 145, 188, *range(231, 256)}
"""Entries of the 256-colour table without a hue."""


def colours(terminal: Terminal) -> set[int]:
    """Colour numbers (256-colour table) that were ever sent."""
    return {int(number) for number in re.findall(rb"[34]8;5;(\d+)[;m]", bytes(terminal.output))}


def test_a_tour_at_80x24(dumps: Callable[[str], Path]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"]) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.send("4")
        names = ("Log-op381", "ReduceSum-op382", "Mul-op383", "Div-op385")

        def hits(text: str) -> list[str]:
            rows = [line for line in text.splitlines() if "out:0" in line]
            return [name for line in rows for name in names if name in line]

        screen = terminal.wait_for(lambda text: len(hits(text)) == len(names))
        assert hits(screen) == list(names)
        terminal.send("enter")
        terminal.send("2")
        terminal.wait_for("e = self.log(self.energy(self.abs(x")
        terminal.send("5")
        terminal.wait_for(lambda text: "out" in text and "float32" in text)
        terminal.send("?")
        terminal.wait_for("Help: keys")
        terminal.send("esc")
        terminal.wait_for(lambda text: "Help: keys" not in text)  # Esc and a letter in one go would be Alt+letter
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_all_five_panes_at_200x50(dumps: Callable[[str], Path]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.10-mlp")), "--recommended"], columns=200, rows=50) as terminal:
        terminal.wait_for(
            lambda text: all(title in text for title in ("1 Nodes", "2 Stack", "3 Watchpoints", "4 Hits", "5 Tensors"))
        )
        terminal.wait_for("fc2.weight")
        terminal.resize(80, 24)
        terminal.wait_for(lambda text: any("1 Nodes" in line and "5 Tensors" in line for line in text.splitlines()))
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, {"TERM": "xterm"}, {"TERM": "xterm-16color"}, {"TERM": "screen-256color", "TMUX": "x"}]
)
def test_poor_terminals_show_the_same_words(dumps: Callable[[str], Path], env: dict[str, str]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--recommended"], env=env) as terminal:
        terminal.send("4")
        terminal.wait_for("Log-op381")
        if "NO_COLOR" in env:
            assert colours(terminal) <= GREYS
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_of_keys_that_come_together_the_last_place_is_drawn_and_not_all_between(
    dumps: Callable[[str], Path], size: tuple[int, int]
) -> None:
    """What is written before a slow line has taken it would be replayed there, key by key."""
    keys = 20
    with Terminal(
        ["open", str(dumps("mindspore-2.0-nan")), "--recommended"], columns=size[0], rows=size[1]
    ) as terminal:

        def under_cursor(text: str) -> str:
            found = re.search(r"▌[✗◆] +\d+ \S.*", text)
            return found[0] if found else ""

        terminal.wait_for("Begins at step 3")
        terminal.wait_for("steps 0–5 checked")  # columns are as wide as what is in them
        terminal.send("4", "home")
        first = under_cursor(terminal.wait_for(lambda text: bool(under_cursor(text))))
        start, name = len(terminal.output), first
        for _ in range(keys):
            terminal.send("down")
            name = under_cursor(terminal.wait_for(lambda text, last=name: under_cursor(text) not in {"", last}))
        one_by_one = len(terminal.output) - start
        terminal.send("home")
        terminal.wait_for(lambda text: under_cursor(text) == first)
        start = len(terminal.output)
        terminal.send(KEYS["down"] * keys)
        terminal.wait_for(lambda text: under_cursor(text) == name)
        assert len(terminal.output) - start < one_by_one


def test_ctrl_c_leaves_at_once(dumps: Callable[[str], Path]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--no-recommended"]) as terminal:
        terminal.wait_for("1 Nodes")
        terminal.send("ctrl+c")
        terminal.wait_exit()
        restored(terminal)


def test_a_wrong_directory_is_answered_in_the_shell(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with Terminal(["open", str(tmp_path)], columns=120) as terminal:
        assert terminal.wait_exit() == 2
        screen = terminal.wait_for("Looked for MindSpore")
        assert "tdbg:" in screen
        assert "Traceback" not in screen
        assert b"\x1b[?1049h" not in terminal.output


@pytest.mark.parametrize("arguments", [["check"], ["open", "/nowhere", "--watch", "XX"], ["nonsense"]])
def test_a_wrong_command_line_exits_2(arguments: list[str]) -> None:
    with Terminal(arguments, columns=120) as terminal:
        assert terminal.wait_exit() == 2
        assert "Traceback" not in terminal.text()


def test_watchpoints_survive_a_restart(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    dump = str(dumps("mindspore-2.10-mlp"))
    with Terminal(["open", dump, "--no-recommended", "--watch", "TZ @ type=ReLU"], env=env) as terminal:
        terminal.send("3")
        terminal.wait_for("tensor all zero")
        terminal.send("q")
        assert terminal.wait_exit() == 0
    (kept,) = tmp_path.glob("tdbg/*.toml")
    assert [w.condition for w in read_watch_file(kept)] == ["tensor_all_zero"]
    with Terminal(["open", dump, "--no-recommended"], env=env) as terminal:
        terminal.send("3")
        terminal.wait_for("tensor all zero")
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_a_terminal_that_goes_away_ends_the_program(dumps: Callable[[str], Path]) -> None:
    with Terminal(["open", str(dumps("mindspore-2.0-nan")), "--no-recommended"]) as terminal:
        terminal.wait_for("1 Nodes")
        os.kill(terminal.process.pid, signal.SIGTERM)
        terminal.wait_exit()


BROKEN = """
import sys
from tui_debugger.cli.main import main
from tui_debugger.tui.app import TdbgApp

def broken(app):
    raise RuntimeError("a mistake of the screen")

TdbgApp.on_mount = broken
sys.exit(main(["open", sys.argv[1]]))
"""


def test_a_screen_that_breaks_is_no_finding(dumps: Callable[[str], Path]) -> None:
    """Exit code 1 would say that something was found in the run."""
    with Program(["-c", BROKEN, str(dumps("mindspore-2.0-mlp"))]) as program:
        said = b""
        while program.process.poll() is None:
            said += program.read(0.05)
        while more := program.read(0):
            said += more
        assert b"a mistake of the screen" in said
        assert program.wait_exit() == 2
        assert program.settings() == program.before
