"""``tdbg open`` without PATH in a real terminal: choose a dump, leave it, find it again with its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.linked import linked
from tests.sources.writer import write_dump
from tests.terminal.terminal import Terminal
from tests.terminal.test_terminal import restored
from tests.thorough import later

pytestmark = pytest.mark.terminal


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), later(120, 40), later(200, 50)])
def test_a_dump_is_chosen_and_found_again_with_its_verdict(
    dumps: Callable[[str], Path], tmp_path: Path, columns: int, rows: int
) -> None:
    linked(dumps("mindspore-2.0-nan"), tmp_path / "runs/nan")
    write_dump(tmp_path / "runs/other", steps=(0, 1))
    with Terminal(["open", str(tmp_path / "runs"), "--recommended"], columns=columns, rows=rows) as terminal:
        terminal.wait_for(lambda text: "2 dumps found" in text and "other" in text)
        terminal.send("enter")
        terminal.wait_for("Begins at step 3")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)
    with Terminal([], columns=columns, rows=rows) as terminal:  # no command, below the directory of the program
        terminal.wait_for(lambda text: "✗ Begins at step 3" in text and "1 opened before" in text)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        restored(terminal)


def test_no_state_remembers_nothing(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    with Terminal(["open", str(dumps("mindspore-2.0-mlp")), "--recommended", "--no-state"], env=env) as terminal:
        terminal.wait_for("checked")
        terminal.send("q")
        assert terminal.wait_exit() == 0
    assert not list(tmp_path.rglob("recent-*"))
