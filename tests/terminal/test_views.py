"""From a hit to its cause in a real (pseudo) terminal: the five keys of README, and the way back."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal
from tests.terminal.test_terminal import restored
from tests.thorough import later

pytestmark = pytest.mark.terminal


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), later(120, 40), later(200, 50)])
def test_the_first_screen_of_the_demo_leads_to_the_bug(columns: int, rows: int) -> None:
    with Terminal(["demo"], columns=columns, rows=rows) as terminal:
        terminal.wait_for("Begins at step 3: Log-op381, -Inf 1 of 4 (the logarithm of 0)")
        terminal.send("o")
        terminal.wait_for("the logarithm of 0: 1 of 4 elements")
        terminal.send("E")
        terminal.wait_for("likely: the logarithm of 0")
        terminal.send("enter")
        terminal.wait_for(lambda text: "zero 1" in text and "[0] = 96.88262" in text)
        terminal.send("m")
        terminal.wait_for("[2] = 0.0")
        for gone in ("[2] = 0.0", "likely: the logarithm of 0", "starts here"):
            terminal.send("esc")
            terminal.wait_for(lambda text, gone=gone: gone not in text)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_two_runs_are_compared_from_the_command_line_to_the_tensor(dumps: Callable[[str], Path]) -> None:
    pair = dumps("msprobe-pairs") / "e_mul"
    with Terminal(["open", str(pair / "A"), "--against", str(pair / "B"), "--no-state"]) as terminal:
        terminal.wait_for("b/1/mlp/act/Functional.gelu at step 1: its inputs agree and its output does")
        terminal.wait_for("166000×")
        terminal.send("enter")
        terminal.wait_for("different: 768 of 768")
        terminal.send("esc")
        terminal.wait_for("passed on to")
        terminal.send("t")
        terminal.wait_for("2 steps across")
        terminal.send("esc")
        terminal.wait_for("passed on to")
        terminal.send("esc")
        terminal.wait_for("Enter Tensors")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_the_demo_of_pytorch_opens_at_the_cause() -> None:
    with Terminal(["demo", "--pytorch"]) as terminal:
        terminal.wait_for("Begins at step 1: Torch.log, NaN 13 of 512")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_what_is_under_the_cursor_goes_to_the_clipboard_of_the_terminal() -> None:
    with Terminal(["demo"]) as terminal:
        terminal.wait_for("the logarithm of 0")
        terminal.send("1")
        terminal.send("Y")
        terminal.wait_for("copied")
        sent = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", bytes(terminal.output))
        assert [base64.b64decode(each).decode() for each in sent] == [
            "Default/network-WithLossCell/_backbone-Net/Log-op381"
        ]
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)
