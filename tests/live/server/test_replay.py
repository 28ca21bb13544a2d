"""The recorded sessions of the real client, played to our server: it says what the recorded server said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.live.conftest import Happened
from tests.live.recordings import RecordedCall, recorded_graph
from tests.live.scripted import ScriptedClient
from tests.live.server.sinks import Arrays
from tui_debugger.live import wire
from tui_debugger.live.server import Server
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event, Phase, RemoteTensor, RemoteWatchpoint


def watchpoint_of(command: Any) -> RemoteWatchpoint:
    """What the recorded server was asked to watch."""
    return RemoteWatchpoint(
        id=command.id,
        condition=command.watch_condition.condition,
        params=tuple((p.name.decode(), p.value, p.disabled) for p in command.watch_condition.params),
        nodes=tuple((n.node_name.decode(), n.node_type.decode(), n.graph_name.decode()) for n in command.watch_nodes),
    )


class Driver:
    """Does through ``RemoteTraining`` what the recorded commands say was done then."""

    def __init__(self, training: RemoteTraining, happened: Happened) -> None:
        self.training, self.happened = training, happened
        self.watched: dict[int, RemoteWatchpoint] = {}
        self.stops = 0
        self.fetched: list[Any] = []

    def follow(self, calls: Sequence[RecordedCall]) -> None:
        for call in calls:
            if call.name == "WaitCMD":
                self._do(call.command)

    def _do(self, command: Any) -> None:
        if command.HasField("set_cmd"):
            if command.set_cmd.delete:
                del self.watched[command.set_cmd.id]
            else:
                self.watched[command.set_cmd.id] = watchpoint_of(command.set_cmd)
            self.training.set_watchpoints(tuple(self.watched.values()))
            return
        if not self.stops:
            self._stopped()
        if command.exit:
            self.training.terminate()
        elif command.HasField("view_cmd"):
            self._view(command.view_cmd)
        elif command.run_cmd.run_level == wire.LEVEL_RECHECK:
            self.fetched.append(self.training.recheck())
        else:
            self.training.run(1, stop_on_new_nodes=True)
            self._stopped()

    def _stopped(self) -> None:
        self.stops += 1
        self.happened.wait(Event.STOPPED, self.stops)

    def _view(self, view: Any) -> None:
        tensors = [RemoteTensor(t.node_name.decode(), int(t.slot), t.iter == b"prev", t.truncate) for t in view.tensors]
        if view.level == wire.VALUE:
            arrays = Arrays()
            assert self.training.values(tensors, arrays) == [True] * len(tensors)
            self.fetched.append(arrays)
        elif view.level == wire.STATISTICS:
            self.fetched.append(self.training.statistics(tensors))
        else:
            self.fetched.append(self.training.bases(tensors))


def play(server: Server, calls: Sequence[RecordedCall], replies: list[bytes]) -> None:
    client = ScriptedClient(server.address)
    replies.extend(client.raw(call.name, call.sent[0] if call.name in wire.UNARY else call.sent) for call in calls)
    client.close()


@pytest.mark.parametrize("name", ["mlp", "nan"])
def test_a_recorded_session_is_answered_byte_for_byte(
    name: str, server: Server, happened: Happened, recording: Callable[[str], tuple[RecordedCall, ...]]
) -> None:
    calls = recording(name)
    replies: list[bytes] = []
    client = threading.Thread(target=play, args=(server, calls, replies), daemon=True)
    client.start()
    training = happened.training(Event.GRAPH)
    driver = Driver(training, happened)
    driver.follow(calls)
    client.join(20)
    assert replies == [call.reply for call in calls]

    assert training.phase is Phase.DONE
    assert happened.count(Event.DONE) == 1
    assert list(training.graphs) == [recorded_graph(name)]
    info = training.info
    assert (info.program, info.backend, info.device, info.rank) == ("MindSpore 2.0.0", "GPU", "0", 0)
    runs = sum(call.command.run_cmd.run_level == wire.LEVEL_STEP for call in calls if call.name == "WaitCMD")
    assert training.stop is not None
    assert (training.stop.count, training.stop.step) == (runs + 1, runs - 1)


def test_hits_statistics_and_values_arrive_as_recorded(
    server: Server, happened: Happened, recording: Callable[[str], tuple[RecordedCall, ...]]
) -> None:
    calls = recording("nan")
    replies: list[bytes] = []
    threading.Thread(target=play, args=(server, calls, replies), daemon=True).start()
    training = happened.training(Event.GRAPH)
    driver = Driver(training, happened)
    driver.follow(calls)
    bases, statistics, values, rechecked, _ = driver.fetched

    assert [(base.meta.dtype, base.meta.shape) for base in bases] == [("float32", (4, 16))] * 2
    assert statistics[0].stats.negative, statistics[0].stats.positive == (28, 36)
    assert not statistics[0].complete
    now, before = values.arrays[0], values.arrays[1]
    assert now.shape == (4, 16)
    assert now.max() == pytest.approx(statistics[0].stats.maximum)
    assert before.min() == pytest.approx(statistics[1].stats.minimum)
    assert not np.array_equal(now, before)

    sent = [call for call in calls if call.name == "SendWatchpointHits"]
    assert len(rechecked) == len(sent[3].sent)
    first, second = rechecked[:2]
    assert (first.node, first.slot, first.watchpoint, first.condition) == ("head.weight", 0, 1, 15)
    assert [(p.name, p.hit) for p in first.params] == [("abs_mean_gt", True)]
    assert first.params[0].actual == pytest.approx(0.0076003927824785933)
    assert second.params[0].value == pytest.approx(1e-4)
    # At the last stops every weight is NaN: nothing is measured, and the client says why.
    unmeasured = next(hit for hit in training.hits if hit.watchpoint == 3)
    assert unmeasured.error == 1
    assert unmeasured.params[0].actual is None


def renumbered(call: RecordedCall, number: int) -> RecordedCall:
    """A call of a session as the same client makes it for the root graph of another number."""
    messages = call.messages()
    for message in messages:
        if call.name in ("SendMetadata", "WaitCMD"):
            message.device_name = f"0:{number}".encode()
    if call.name == "SendGraph":
        graph = wire.message("GraphProto").FromString(b"".join(message.buffer for message in messages))
        graph.name, graph.root_name = f"kernel_graph_{number}".encode(), str(number).encode()
        messages = [wire.message("Chunk")(buffer=graph.SerializeToString())]
    return RecordedCall(call.name, [message.SerializeToString() for message in messages], call.reply)


def test_two_recorded_networks_in_one_session_are_one_training(
    server: Server, happened: Happened, recording: Callable[[str], tuple[RecordedCall, ...]]
) -> None:
    """The second network's messages follow those of the first, without its exit, as one process sends them."""
    first = [call for call in recording("mlp") if not call.command.exit]
    first = first[: 1 + max(at for at, call in enumerate(first) if call.name == "WaitCMD" and runs_on(call))]
    second = [renumbered(call, 1) for call in recording("nan") if call.name != "SendHeartbeat"]
    replies: list[bytes] = []
    client = threading.Thread(target=play, args=(server, [*first, *second], replies), daemon=True)
    client.start()
    training = happened.training(Event.GRAPH)
    driver = Driver(training, happened)
    driver.follow([*first, *second])
    client.join(20)

    steps = [sum(map(runs_on, calls)) for calls in (first, second)]
    assert happened.count(Event.CONNECTED) == 1
    assert [wire.message("GraphProto").FromString(graph).root_name for graph in training.graphs] == [b"0", b"1"]
    assert training.graphs[0] == recorded_graph("mlp")
    assert training.stop is not None
    ran = [training.graph_runs.root(step, (0, 1)) for step in range(training.stop.step + 1)]
    assert ran == [0] * (steps[0] - 1) + [1] * steps[1], "the first network went on into the second"
    assert training.phase is Phase.DONE


def runs_on(call: RecordedCall) -> bool:
    return call.name == "WaitCMD" and bool(call.command.run_cmd.run_level == wire.LEVEL_STEP)
