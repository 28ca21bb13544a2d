"""``tdbg demo --live`` and ``tdbg listen`` in a real (pseudo) terminal."""

from __future__ import annotations

import pytest

from tests.terminal.terminal import Terminal
from tests.terminal.test_terminal import restored

pytestmark = pytest.mark.terminal


def test_a_recorded_training_is_attached_to_and_run_to_its_nan_at_80x24() -> None:
    with Terminal(["demo", "--live"]) as terminal:
        terminal.wait_for("stopped before the first step")
        terminal.send("c")
        terminal.wait_for("running, until a hit")
        terminal.wait_for("stopped after step 3")
        terminal.wait_for("step 3: 314 hits")  # the first one is under the cursor
        terminal.send("5")
        terminal.wait_for(lambda text: "Log-op415" in text and "4.476" in text)
        terminal.send("q")
        terminal.wait_for("let it go on")
        terminal.send("enter")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_the_waiting_page_sends_nothing_while_nobody_comes_and_is_left_with_esc() -> None:
    with Terminal(["listen", "--port", "0"]) as terminal:
        terminal.wait_for("MS_DEBUGGER_PORT=")
        with terminal._changed:
            while terminal._changed.wait(0.5):
                pass  # the end of the first frame
            assert not terminal._changed.wait(1.5)
        terminal.send("esc")
        assert terminal.wait_exit() == 0
        restored(terminal)
