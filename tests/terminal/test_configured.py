"""The configuration in a real terminal: what goes to it is what the file and the options say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal

pytestmark = pytest.mark.terminal
COLOR = re.compile(rb"\x1b\[([0-9;]*)m")
MOUSE = b"\x1b[?1000h"
NAN = "mindspore-2.0-nan"


def seen(path: Path, config: str, *options: str, keys: str = "4q", wanted: str = "Log-op381", left: int = 0) -> bytes:
    """What the program wrote under a configuration; it is left with the last key."""
    file = path / "config.toml"
    file.write_text(config)
    env = {"TDBG_CONFIG": str(file), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with Terminal([*options, "--recommended"], columns=120, rows=36, env=env) as terminal:
        terminal.wait_for("Begins at step 3")
        terminal.send(keys[0])
        terminal.wait_for(wanted)
        terminal.send(keys[-1])
        assert terminal.wait_exit() == left
        return bytes(terminal.output)


def colors(output: bytes) -> set[str]:
    """Colours that were sent: ``38;2;R;G;B``, or a number of the 16."""
    found: set[str] = set()
    for codes in COLOR.findall(output):
        text = codes.decode()
        found.update(re.findall(r"[34]8;[25];[0-9;]*?(?=;[34]8|$)", text))
        found.update(code for code in re.sub(r"[34]8;(2;\d+;\d+;\d+|5;\d+)", "", text).split(";") if code)
    return found


def test_the_mouse_is_taken_unless_the_file_or_an_option_says_no(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    command = ("open", str(dumps(NAN)))
    assert MOUSE in seen(tmp_path, "", *command)
    assert MOUSE not in seen(tmp_path, "mouse = false", *command)
    assert MOUSE in seen(tmp_path, "mouse = false", *command, "--mouse")
    assert MOUSE not in seen(tmp_path, "mouse = true", *command, "--no-mouse")
    assert MOUSE in seen(tmp_path, "mouse = false", *command, "--no-config")


def test_the_theme_of_the_terminal_sends_no_colour_of_its_own(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    sent = colors(seen(tmp_path, 'theme = "terminal"', "open", str(dumps(NAN))))
    assert not [code for code in sent if code.startswith(("38", "48"))], sent
    assert {"31", "34"} <= sent, "findings, and what is well"
    assert "38;2;252;252;250" not in sent


def test_an_option_wins_over_the_theme_of_the_file(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    output = seen(tmp_path, 'theme = "terminal"', "open", str(dumps(NAN)), "--theme", "light")
    assert b"48;2;252;252;250" in output
    assert b"48;2;16;19;23" not in output


def test_a_chosen_key_leaves_the_program(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    seen(tmp_path, '[keys]\nquit = "&"\npane_hits = "H"\ntrend = "V"\n', "open", str(dumps(NAN)), keys="H&")


def test_a_wrong_key_is_answered_in_the_shell(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[keys]\nrecheck = "n"\n')
    env = {"TDBG_CONFIG": str(tmp_path / "config.toml")}
    with Terminal(["open", str(dumps(NAN))], columns=160, env=env) as terminal:
        assert terminal.wait_exit() == 2
        assert "the key n is taken twice" in terminal.text()
        assert b"\x1b[?1049h" not in terminal.output
