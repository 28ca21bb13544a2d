"""The recorded training of the demo, over a real socket: what is seen live is what its dump says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.live.session.conftest import Told
from tui_debugger.demo.live import playing
from tui_debugger.live.wire import Event
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.session.live import LiveSession
from tui_debugger.session.session import open_dump


@pytest.fixture
def stopped() -> Iterator[LiveSession]:
    """At the step at which values go to NaN."""
    with playing(lambda _: None, pace=0) as (session, training):
        told = Told(session)
        training.start()
        told.wait(Event.STOPPED)
        session.watchpoints.add("tensor_overflow", selection=everything())
        session.run(None)
        told.wait(Event.STOPPED, 2)
        yield session


@pytest.fixture
def dump(dumps: Callable[[str], Path]) -> Iterator[Session]:
    """What the same program dumped."""
    session = open_dump(dumps("mindspore-2.0-nan"), remember=False)
    session.watchpoints.add("tensor_overflow", selection=everything())
    yield session
    session.close()


def everything() -> NodeSelection:
    return NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))


def unnumbered(name: str) -> str:
    """A name without the number at its end, which is another one in every run."""
    return re.sub(r"-op\d+$", "", name)


def test_the_client_finds_the_origins_that_a_check_of_the_dump_finds(stopped: LiveSession, dump: Session) -> None:
    assert stopped.state(0).step == 3
    live = stopped.known([(0, 3)])
    assert live is not None
    offline = dump.check([(0, 3)])
    origins = {unnumbered(hit.key.node) for hit in live.hits if hit.origin}
    assert origins == {unnumbered(hit.key.node) for hit in offline.hits if hit.origin}
    assert sorted(name.rpartition("/")[2] for name in origins) == ["Div", "Log"]
    bad = {unnumbered(hit.key.node) for hit in offline.hits if hit.key.side is Side.OUTPUT}
    assert {unnumbered(hit.key.node) for hit in live.hits} == bad


def test_values_are_those_of_the_dump(stopped: LiveSession, dump: Session) -> None:
    (graph,) = {info.name for info in dump.nodes(0).graphs}
    live = stopped.read(TensorKey(0, "kernel_graph_0", "head.weight", Side.OUTPUT, 0, 3))
    np.testing.assert_array_equal(live, dump.read(TensorKey(0, graph, "head.weight", Side.OUTPUT, 0, 3)))


def test_what_is_saved_is_checked_to_the_same_findings(stopped: LiveSession, tmp_path: Path) -> None:
    live = stopped.known([(0, 3)])
    assert live is not None
    for hit in live.hits[:20]:
        stopped.measure([row for row in stopped.tensor_rows(0, 3, hit.row) if row.role == "out"])
    stopped.save(tmp_path / "dump")
    saved = open_dump(tmp_path / "dump", remember=False)
    saved.watchpoints.add("tensor_overflow", selection=everything())
    found = {hit.key.node for hit in saved.check(saved.pairs()).hits}
    assert {hit.key.node for hit in live.hits[:20]} <= found <= {hit.key.node for hit in live.hits}
    saved.close()


def test_what_is_saved_names_the_same_origins_in_the_same_order(stopped: LiveSession, tmp_path: Path) -> None:
    """The graph lists Div first; the client saw Log run first."""
    live = stopped.known([(0, 3)])
    assert live is not None
    stopped.save(tmp_path / "dump")
    saved = open_dump(tmp_path / "dump", remember=False)
    named = [origin.hit.key.node for origin in saved.find_origin(saved.pairs()).origins]
    saved.close()
    assert named == [hit.key.node for hit in live.hits if hit.origin]
    assert [name.rpartition("/")[2].partition("-")[0] for name in named] == ["Log", "Div"]
