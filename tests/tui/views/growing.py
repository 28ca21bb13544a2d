"""A run that goes on while views of it are open, without a follower and without waiting for one."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np

from tests.sources.writer import MLP, DumpWriter
from tests.tui.driver import Driver
from tui_debugger.model import Side, TensorKey
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import View

MATMUL, RELU, _ = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)
MARK = "○ the run has changed: r looks again"
WIDE, NARROW = (200, 50), (80, 24)
V = TypeVar("V", bound=View)


def focus_on(screen: Driver, node: str, step: int) -> ViewTarget:
    nodes = screen.session.nodes(0)
    row = nodes.find(node)
    return ViewTarget(TensorKey(0, nodes.graph_of(row).name, node, Side.OUTPUT, 0, step), row)


async def look(screen: Driver, kind: type[V], id_: str, node: str = RELU, step: int = 1) -> V:
    """Opens a view and waits until it has nothing more to do."""
    screen.main.views.open(id_, focus_on(screen, node, step))
    await screen.until(lambda: isinstance(screen.app.screen, kind))
    await screen.settled()
    view = screen.app.screen
    assert isinstance(view, kind)
    return view


async def changed(screen: Driver) -> None:
    """What the follower of a dump does when something happened on disk."""
    changes = screen.session.refresh()
    assert changes
    screen.main.refreshed(changes)
    await screen.pilot.pause()
    await screen.settled()


def output_of(writer: DumpWriter, node: str, step: int) -> Path:
    (file,) = writer.step(step).glob(f"*{node.replace('/', '_')}*output*")
    return file


def overwrite(file: Path, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """In place: the directory does not notice."""
    with file.open("r+b") as open_file:
        np.save(open_file, values)
        open_file.write(b"\0")  # another size: the clock of a file system may not have moved
        open_file.truncate()
