"""An asynchronous Ascend dump of two ranks in a real (pseudo) terminal: graph, stacks, history, overflow records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend_files import write_overflowing_dump
from tests.terminal.terminal import Terminal
from tests.terminal.test_terminal import restored

pytestmark = pytest.mark.terminal


def test_it_opens_with_its_graph_its_stacks_its_history_and_what_overflowed(tmp_path: Path) -> None:
    write_overflowing_dump(tmp_path)
    with Terminal(["open", str(tmp_path)], columns=200, rows=50) as terminal:
        terminal.wait_for("Begins at step 2 of rank 1: Default/network-Net/act-ReLU/ReLU-op2, +Inf 1 of 6")
        terminal.wait_for(lambda text: "▲1 overflowed" in text and "ReLU-op2 activation" in text)
        terminal.wait_for("train.py")
        terminal.wait_for("▲ overflowed on the device: AI Core status 0x8")
        terminal.send("y")
        terminal.wait_for(lambda text: "Run history" in text and text.count("● dumped") == 3)
        terminal.send("esc")
        terminal.wait_for(lambda text: "Run history" not in text)
        terminal.send("o")
        terminal.wait_for("train.py:31")
        terminal.send("esc")
        terminal.wait_for("▲1 overflowed")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)
