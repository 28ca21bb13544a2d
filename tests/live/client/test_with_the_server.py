"""Our client and our server: a training in another process, driven to the step where it goes wrong, and ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.client.processes import Process, training
from tests.live.client.training import Network
from tests.live.conftest import Happened
from tests.live.server.sinks import Arrays
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.live import wire
from tui_debugger.live.client import Recorder
from tui_debugger.live.client.recorded import measure
from tui_debugger.live.server import Server
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import START, Event, Phase, RemoteTensor, RemoteWatchpoint, TrainingStop
from tui_debugger.stats.records import RequiredStats

OVERFLOW = 13
SECRET = "a long secret"  # noqa: S105 - of these tests only
TOO_FAST = "3.0"
"""A learning rate with which the loss is Inf after some steps."""


class Expected:
    """The same training in this process: what every tensor is at every step."""

    def __init__(self, steps: int) -> None:
        self.values: list[dict[str, np.ndarray[Any, Any]]] = []
        recorder = Recorder("127.0.0.1:1", timeout=0.1)
        network = Network(float(TOO_FAST))
        for _ in range(steps):
            recorder._recordings.keeping = True
            recorder._fresh = False
            network.step(recorder)
            held = recorder._recordings.held
            self.values.append({name: each.values.copy() for name, each in held.items() if each.values is not None})
        recorder.close()
        self.bad = next(
            step for step, values in enumerate(self.values) if not all(np.isfinite(v).all() for v in values.values())
        )


@pytest.fixture(scope="module")
def expected() -> Expected:
    return Expected(10)


def _watch_everything(process: RemoteTraining) -> None:
    names = [name for graph in process.graphs for name in build_table([parse_graph(graph)]).names]
    process.set_watchpoints([RemoteWatchpoint(1, OVERFLOW, (), tuple((name, "", "") for name in names))])


def _fetched(process: RemoteTraining, *tensors: RemoteTensor) -> list[np.ndarray[Any, Any]]:
    sink = Arrays()
    assert all(process.values(tensors, sink))
    return [sink.arrays[number] for number in range(len(tensors))]


def test_a_training_that_goes_wrong(server: Server, happened: Happened, expected: Expected) -> None:
    with training(server.address, "--rate", TOO_FAST, "--steps", "60") as process:
        found = happened.training(Event.STOPPED)
        assert found.info.program.startswith("NumPy (tdbg")
        assert found.info.features == wire.FULL_STATISTICS | wire.RUNS_AHEAD | wire.OWN_CONDITIONS
        assert found.stop == TrainingStop(1, START)
        _watch_everything(found)

        found.run(None)
        happened.wait(Event.STOPPED, 2)
        stop = found.stop
        assert stop is not None
        assert stop.step == expected.bad
        wrong = [name for name, value in expected.values[expected.bad].items() if not np.isfinite(value).all()]
        assert sorted(hit.node for hit in found.hits) == sorted(wrong)
        for hit in found.hits:
            assert hit.stats == measure(expected.values[expected.bad][hit.node], RequiredStats()).stats

        names = list(expected.values[expected.bad])
        for name, value in zip(names, _fetched(found, *map(RemoteTensor, names)), strict=True):
            np.testing.assert_array_equal(value, expected.values[expected.bad][name])
        (before,) = _fetched(found, RemoteTensor("fc1.weight", previous=True))
        np.testing.assert_array_equal(before, expected.values[expected.bad - 1]["fc1.weight"])
        for name, answer in zip(names, found.statistics([RemoteTensor(name) for name in names]), strict=True):
            assert answer.complete
            assert answer.stats == measure(expected.values[expected.bad][name], RequiredStats()).stats

        found.run(1)
        happened.wait(Event.STOPPED, 3)
        assert found.stop is not None
        assert found.stop.step == expected.bad + 1

        found.terminate()
        happened.wait(Event.DONE)
        process.until("terminated")
        assert process.finish()[0] == 0


def test_a_training_that_is_let_go(server: Server, happened: Happened) -> None:
    with training(server.address, "--steps", "50") as process:
        found = happened.training(Event.STOPPED)
        _watch_everything(found)
        found.release()
        process.until("trained")
        happened.wait(Event.DONE)
        assert found.phase is Phase.DONE
        assert process.finish()[0] == 0


def test_a_debugger_that_is_closed_and_opened_again(serving: Callable[..., Server]) -> None:
    first = serving()
    happened = Happened(first)
    with training(first.address, "--steps", "1000000", "--pause", "0.01") as process:
        found = happened.training(Event.STOPPED)
        session = found.info.program
        found.run(None)
        process.until("step 3")
        first.close()
        process.until("step 6")
        port = int(first.address.rpartition(":")[2])
        again = Happened(serving(port=port)).training(Event.STOPPED)
        assert again.info.program == session
        assert again.stop is not None
        assert again.stop.step > 6
        again.terminate()
        process.until("terminated")


def test_several_processes_at_once(server: Server, happened: Happened) -> None:
    with (
        training(server.address, "--steps", "3", run="1") as one,
        training(server.address, "--steps", "3", run="1") as other,
    ):
        happened.wait(Event.STOPPED, 2)
        first, second = server.all()
        assert (first.info.number, second.info.number) == (1, 2)
        for each in (first, second):
            each.run(None)
        one.until("trained")
        other.until("trained")


@pytest.mark.parametrize("runs", [("", ""), ("1", "2")])
def test_a_training_of_another_run_is_refused_and_goes_on_unharmed(
    server: Server, happened: Happened, runs: tuple[str, str]
) -> None:
    with training(server.address, "--steps", "3", run=runs[0]) as one:
        first = happened.training(Event.STOPPED)
        with training(server.address, "--steps", "3", run=runs[1]) as other:
            other.until("trained")
            status, errors = other.finish()
            assert status == 0
            assert len(errors) == 1
            assert "is no rank of the run that is debugged here (NumPy" in errors[0]
        assert len(server.refusals) == 1
        assert server.all() == (first,)
        first.run(None)
        one.until("trained")
        happened.wait(Event.DONE)
    with training(server.address, "--steps", "3", run=runs[1]) as later:
        assert happened.training(Event.STOPPED, 2).info.number == 2, "the one before it has ended"
        server.all()[1].run(None)
        later.until("trained")


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("end", ""),
        ("stop", ""),
        ("exit 0", ""),
        ("next", ""),
        ("again", ""),
        ("quit 0", ""),
        ("generator", ""),
        ("GeneratorExit", "GeneratorExit"),
        ("cancelled", "CancelledError: the data loader broke"),
        ("quit 4", "exit status 4"),
        ("raise", "ValueError: the data loader broke"),
        ("in a thread", "ValueError: the data loader broke"),
        ("close", "ValueError: the data loader broke"),
        ("SIGINT", "KeyboardInterrupt"),
        ("exit 3", "exit status 3"),
        ("exit text", "exit status 1"),
        ("exit after", "exit status 3 after ValueError: the data loader broke"),
        ("forked", ""),
        ("forked raise", "ValueError: the data loader broke"),
        ("forked exit after", "exit status 3 after ValueError: the data loader broke"),
    ],
)
def test_a_training_says_what_ended_it_before_its_time(
    server: Server, happened: Happened, how: str, cause: str
) -> None:
    with training(server.address, how, program="dying"):
        found = happened.training(Event.STOPPED)
        found.run(None)
        happened.wait(Event.DONE)
    assert found.cause == cause
    assert found.stop is not None
    assert found.stop.ended == (5 if how == "end" else 3)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGSEGV", "_exit"])
def test_of_one_that_dies_without_a_word_the_steps_are_known(server: Server, happened: Happened, how: str) -> None:
    with training(server.address, how, program="dying"):
        found = happened.training(Event.STOPPED)
        found.run(None)
        happened.wait(Event.LOST)
    assert found.cause == ""
    assert found.stop is not None
    assert found.stop.ended == 3


def test_initial_weights(server: Server, happened: Happened) -> None:
    recorder = Recorder(server.address)
    recorder.record("w", np.zeros(3), kind="weight")
    loop = threading.Thread(target=recorder.begin)
    loop.start()
    found = happened.training(Event.STOPPED)
    assert found.stop == TrainingStop(1, START)
    found.set_watchpoints(
        [
            RemoteWatchpoint(
                1,
                14,
                (("zero_percentage_ge", 100.0, False), ("max_gt", 0.0, True), ("min_lt", 0.0, True)),
                (("w", "Parameter", "kernel_graph_0"),),
            )
        ]
    )
    (hit,) = found.recheck()
    assert (hit.node, hit.watchpoint) == ("w", 1)
    found.release()
    loop.join()
    recorder.close()


@pytest.mark.parametrize("right", [True, False], ids=["right token", "wrong token"])
def test_token(serving: Callable[..., Server], right: bool) -> None:
    server = serving(token=SECRET)
    happened = Happened(server)
    host, _, port = server.address.rpartition(":")
    environment = {"TDBG_HOST": host, "TDBG_PORT": port, "TDBG_TOKEN": SECRET if right else "guessed"}
    with Process("tests.live.client.training", "--steps", "3", environment=environment) as process:
        if right:
            happened.training(Event.STOPPED).terminate()
            process.until("terminated")
        else:
            process.until("trained")
            status, errors = process.finish()
            assert status == 0
            assert len(errors) == 1
            assert "is TDBG_TOKEN right?" in errors[0]


def test_over_a_unix_socket(serving: Callable[..., Server], tmp_path: Path) -> None:
    server = serving(f"unix:{tmp_path}/d")
    happened = Happened(server)
    with training(server.address, run="1") as one, training(server.address, run="1") as other:
        happened.wait(Event.STOPPED, 2)
        for each in server.all():
            assert each.info.address.startswith("unix")
            each.terminate()
        one.until("terminated")
        other.until("terminated")


def test_a_training_that_is_killed_while_it_waits_is_noticed(server: Server, happened: Happened) -> None:
    with training(server.address) as process:
        happened.wait(Event.STOPPED)
        process.signal(signal.SIGKILL)
        assert happened.training(Event.LOST).phase is Phase.LOST


def test_a_training_that_is_killed_while_it_trains_is_noticed_at_once(server: Server, happened: Happened) -> None:
    with training(server.address, "--wait-for", "1") as process:
        found = happened.training(Event.STOPPED)
        found.run(None)
        happened.wait(Event.RUNNING)
        assert found.phase is Phase.RUNNING  # it waits for a line of input, inside a step
        process.signal(signal.SIGKILL)
        assert happened.training(Event.LOST) is found
