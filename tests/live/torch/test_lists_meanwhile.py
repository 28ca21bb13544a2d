"""A watchpoint that is made while a training runs is judged from its next steps on, without stopping it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.session.conftest import Told
from tests.live.session.test_recorded_session import everything
from tests.live.torch.driving import Driven
from tui_debugger.live.server import Server
from tui_debugger.live.wire import Event, Phase
from tui_debugger.session.live import LiveSession

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")


@pytest.mark.parametrize("level", ["module", "op"])
def test_a_watchpoint_that_comes_while_it_runs_stops_it_at_the_next_step(
    train: Callable[..., Driven], server: Server, level: str
) -> None:
    run = train("plain", steps=100_000, level=level)
    session = LiveSession(server)
    told = Told(session)
    session.run(None)
    told.wait(Event.RUNNING)
    made = session.watchpoints.add("tensor_too_large", [("max_gt", -1e9)], selection=everything())  # any is
    listed = told.wait(Event.LISTED)
    stop = told.wait(Event.STOPPED)
    assert run.training.phase is Phase.STOPPED
    assert listed.text == f"rank 0: the watchpoints as they are now count from step {stop.step} on"
    assert stop.result is not None
    assert {result.watchpoint for hit in stop.result.hits for result in hit.results} == {made.id}
    result = session.so_far()
    assert result is not None
    assert not result.silent, "the steps before were judged by an empty list"
    session.terminate()
    told.wait(Event.DONE)
    session.close()
