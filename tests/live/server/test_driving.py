"""A training is driven: steps, hits, watchpoints, nodes, its end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from tests.live.conftest import Happened
from tests.live.scripted import Script, ScriptedClient, ScriptedTraining, graph_bytes, hit_message
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.server import Server
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import START, Event, Phase, RemoteWatchpoint, TrainingStop
from tui_debugger.model import Progress

OVERFLOW = RemoteWatchpoint(3, 13, (), (("net/Log-op1", "Log", "kernel_graph_0"),))
UNCHANGED = RemoteWatchpoint(
    4, 20, (("rtol", 1e-5, False), ("atol", 1e-8, False), ("equal_nan", 0.0, False)), (("fc1.weight", "Parameter", ""),)
)


def hits_at(*steps: int) -> Callable[..., list[object]]:
    """Hits at these steps, for every watchpoint that is known."""
    return lambda step, watched: [hit_message("net/Log-op1", number) for number in watched] if step in steps else []


def test_one_step_several_steps_and_until_a_hit(server: Server, happened: Happened) -> None:
    ScriptedTraining(server.address, Script(hits=hits_at(7)))
    training = happened.training(Event.STOPPED)
    assert training.stop == TrainingStop(1, START)
    training.set_watchpoints([OVERFLOW])
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert training.stop == TrainingStop(2, 0)
    training.run(3)
    happened.wait(Event.STOPPED, 3)
    assert training.stop == TrainingStop(5, 3)
    assert training.hits == ()
    training.run(None)
    happened.wait(Event.STOPPED, 4)
    assert training.stop == TrainingStop(9, 7)
    assert [(hit.node, hit.watchpoint) for hit in training.hits] == [("net/Log-op1", 3)]
    training.run()
    happened.wait(Event.STOPPED, 5)
    assert training.hits == (), "hits are those of the last stop"


def test_hits_are_logged_while_it_goes_on(server: Server, happened: Happened) -> None:
    seen: list[tuple[int, int]] = []

    def note(training: RemoteTraining | None, event: Event) -> None:
        if event is Event.HITS and training is not None and training.stop is not None:
            seen.append((training.stop.step, len(training.hits)))

    server.listen(note)
    ScriptedTraining(server.address, Script(hits=hits_at(1, 2, 4)))
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([OVERFLOW])
    training.run(6, stop_on_hit=False)
    happened.wait(Event.STOPPED, 2)
    assert seen == [(1, 1), (2, 1), (4, 1)]
    assert training.stop == TrainingStop(7, 5)


def test_pause(server: Server, happened: Happened) -> None:
    gate = threading.Event()

    def values_of_a_slow_step(step: int, _watched: object) -> list[object]:
        if step == 3:
            gate.wait(20)
        return []

    made = ScriptedTraining(server.address, Script(hits=values_of_a_slow_step))
    training = happened.training(Event.STOPPED)
    training.pause()
    training.run(None)
    training.pause()
    gate.set()
    happened.wait(Event.STOPPED, 2)
    assert training.phase is Phase.STOPPED
    assert made.step == training.stop.step


def test_what_runs_cannot_be_asked_or_run_again(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.stand()
    training = happened.training(Event.STOPPED)
    training.run(1)
    for refused in (training.run, training.recheck, lambda: training.statistics([])):
        if refused is training.run or refused is training.recheck:
            with pytest.raises(NotStoppedError):
                refused()
    with pytest.raises(UnsupportedError):
        training.run_to_node("net/Log-op1")


def test_the_list_is_told_as_it_changes(server: Server, happened: Happened) -> None:
    made = ScriptedTraining(server.address)
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([OVERFLOW, UNCHANGED])
    assert made.watched == {}
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert sorted(made.watched) == [3, 4]
    assert [p.name for p in made.watched[4].watch_condition.params] == [b"rtol", b"atol", b"equal_nan"]
    training.set_watchpoints([UNCHANGED])
    training.run()
    happened.wait(Event.STOPPED, 3)
    assert sorted(made.watched) == [4]


def test_clients_before_1_6_read_the_tolerances_the_other_way_round(server: Server, happened: Happened) -> None:
    made = ScriptedTraining(server.address, Script(hello={"version": "1.5.0"}))
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([UNCHANGED])
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert [p.name for p in made.watched[4].watch_condition.params] == [b"atol", b"rtol", b"equal_nan"]


def test_a_watchpoint_of_very_many_nodes_fits_into_messages(server: Server, happened: Happened) -> None:
    nodes = tuple((f"net/{'layer' * 20}-{number}", "Add", "kernel_graph_0") for number in range(50_000))
    made = ScriptedTraining(server.address, Script(hits=hits_at(0)))
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([RemoteWatchpoint(2, 13, (), nodes)])
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert len(made.watched) > 1
    assert sum(len(each.watch_nodes) for each in made.watched.values()) == len(nodes)
    assert max(len(each.SerializeToString()) for each in made.watched.values()) < wire.CHUNK
    assert {hit.watchpoint for hit in training.hits} == {2}
    training.set_watchpoints([])
    training.run()
    happened.wait(Event.STOPPED, 3)
    assert made.watched == {}


def test_recheck_with_hits_and_without(server: Server, happened: Happened) -> None:
    made = ScriptedTraining(server.address, Script(hits=hits_at(0)))
    training = happened.training(Event.STOPPED)
    assert training.recheck() == ()
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert training.hits == ()
    training.set_watchpoints([OVERFLOW])
    assert [hit.watchpoint for hit in training.recheck()] == [3]
    assert [hit.watchpoint for hit in training.hits] == [3]
    assert happened.count(Event.HITS) == 2
    training.set_watchpoints([])
    assert training.recheck() == ()
    assert training.stop == TrainingStop(2, 0), "a recheck is no stop"
    assert made.step == 0


def test_a_recheck_that_is_cancelled_leaves_the_wire_clean(server: Server, happened: Happened) -> None:
    gate = threading.Event()

    def slow(_step: int, watched: object) -> list[object]:
        gate.wait(20)
        return [hit_message("net/Log-op1", 3)] if watched else []

    ScriptedTraining(server.address, Script(hits=slow))
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([OVERFLOW])

    def cancel(_: Progress) -> None:
        raise CancelledError("that is enough")

    with pytest.raises(CancelledError):
        training.recheck(cancel)
    gate.set()
    assert [hit.watchpoint for hit in training.recheck()] == [3]
    training.run()
    happened.wait(Event.STOPPED, 2)
    assert training.stop == TrainingStop(2, 0)


def test_terminate_while_it_waits_and_while_it_runs(server: Server, happened: Happened) -> None:
    gate = threading.Event()

    def long_step(_step: int, _watched: object) -> list[object]:
        gate.wait(20)
        return []

    waits = ScriptedTraining(server.address, Script(hello={"device_name": "1:0"}, fields={"device_name": "1:0"}))
    first = happened.training(Event.STOPPED)
    runs = ScriptedTraining(server.address, Script(hits=long_step))
    second = happened.training(Event.STOPPED, 2)
    second.run(None)
    for training in (first, second):
        training.terminate()
    gate.set()
    for made in (waits, runs):
        made.join()
        assert made.exited
    happened.wait(Event.DONE, 2)
    assert first.phase is second.phase is Phase.DONE
    with pytest.raises(NotStoppedError):
        first.run()
    with pytest.raises(LostError):
        first.recheck()


def test_release_lets_it_train_to_its_end(server: Server, happened: Happened) -> None:
    made = ScriptedTraining(server.address, Script(steps=6, hits=hits_at(0, 1, 2, 3)))
    training = happened.training(Event.STOPPED)
    training.set_watchpoints([OVERFLOW])
    training.run()
    happened.wait(Event.STOPPED, 2)
    training.release()
    assert happened.training(Event.DONE) is training
    made.join()
    assert made.step == 5
    assert made.watched == {}
    assert happened.count(Event.STOPPED) == 2
    assert happened.count(Event.HITS) == 0


def test_training_that_ends_by_itself_is_done(server: Server, happened: Happened) -> None:
    made = ScriptedTraining(server.address, Script(steps=2))
    training = happened.training(Event.STOPPED)
    training.run(None)
    assert happened.training(Event.DONE) is training
    made.join()
    assert made.error is None


def test_run_to_a_node_where_the_client_can(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.hello("1.3.0")
    client.graph(graph_bytes())
    first = client.wait_later()
    training = happened.training(Event.STOPPED)
    assert training.info.features & wire.RUNS_TO_NODES, "the runtime of that time, on GPU"
    training.run_to_node("net/Log-op1")
    run = wire.message("EventReply").FromString(first.result(20)).run_cmd
    assert (run.run_level, run.node_name) == (wire.LEVEL_NODE, b"net/Log-op1")
    client.wait_later(cur_node="net/Log-op1")
    happened.wait(Event.STOPPED, 2)
    assert training.stop == TrainingStop(2, 0, "net/Log-op1")
    training.terminate()


def test_events_come_in_order(server: Server, happened: Happened) -> None:
    ScriptedTraining(server.address, Script(steps=2))
    training = happened.training(Event.STOPPED)
    training.run(1)
    happened.wait(Event.STOPPED, 2)
    training.run(1)
    happened.wait(Event.DONE)
    assert [event.name for _, event in happened.events] == [
        "CONNECTED", "GRAPH", "STOPPED", "RUNNING", "STOPPED", "RUNNING", "DONE",
    ]  # fmt: skip


def test_a_listener_may_drive(server: Server, happened: Happened) -> None:
    def go_on(training: RemoteTraining | None, event: Event) -> None:
        if event is Event.STOPPED and training is not None:
            training.run(1)

    server.listen(go_on)
    made = ScriptedTraining(server.address, Script(steps=20))
    happened.wait(Event.DONE)
    made.join()
    assert made.step == 19


def test_calls_are_over_without_a_search_for_garbage(server: Server, happened: Happened) -> None:
    """gRPC counts a call as open while anything holds it, and refuses the 17th of a connection."""

    def go_on(training: RemoteTraining | None, event: Event) -> None:
        if event is Event.STOPPED and training is not None:
            training.run(1)

    server.listen(go_on)
    gc.disable()
    try:
        ScriptedTraining(server.address, Script(steps=40)).join()
    finally:
        gc.enable()
    happened.wait(Event.DONE)


def test_a_listener_that_fails_harms_nobody(
    server: Server, happened: Happened, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(training: RemoteTraining | None, event: Event) -> None:
        raise ValueError(training, event)

    happened.end()
    server.listen(fails)
    after = Happened(server)
    ScriptedTraining(server.address, Script(steps=1))
    after.training(Event.STOPPED).run()
    after.wait(Event.DONE)
    assert "a listener failed" in caplog.text
