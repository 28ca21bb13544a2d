"""Clients die, fall silent, come back: nothing hangs, nothing is lost that can be kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.live.conftest import Happened
from tests.live.scripted import (
    Script,
    ScriptedClient,
    ScriptedTraining,
    graph_bytes,
    hit_message,
    metadata,
    tensor_messages,
)
from tests.live.server.clock import Clock
from tests.live.server.sinks import Arrays
from tests.live.server.watching import wait_until, wait_until_it_reads
from tui_debugger.errors import LostError, NotStoppedError
from tui_debugger.live import wire
from tui_debugger.live.server import Server
from tui_debugger.live.server.serving import gone
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event, Phase, RemoteTensor, RemoteWatchpoint, TrainingStop, Unrecorded

OWN = {"client": "PyTorch 2.13.0", "session": "s1", "pid": 4711, "host": "node7", "rank": 0}


def command(call: Any) -> Any:
    """What a call of ``WaitCMD`` was answered with."""
    return wire.message("EventReply").FromString(call.result(20))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(serving: Callable[..., Server], clock: Clock) -> Server:
    """A server whose time passes when a test says so."""
    return serving(clock=clock)


def test_three_missed_heartbeats_lose_a_running_training(timed: Server, clock: Clock) -> None:
    happened = Happened(timed)
    client = ScriptedClient(timed.address)
    client.beat(30)  # the client of MindSpore sends the first one before it introduces itself
    waiting = client.stand()
    training = happened.training(Event.STOPPED)
    clock.now += 1000
    timed.tick()
    assert training.phase is Phase.STOPPED, "a call that waits is a sign of life"
    training.run(None)
    command(waiting)
    clock.now += 91
    timed.tick()
    assert training.phase is Phase.RUNNING
    clock.now += 91.6
    happened.wait(Event.LOST)
    assert training.phase is Phase.LOST
    client.beat(30)
    assert happened.training(Event.BACK) is training
    assert training.phase is Phase.RUNNING


def test_a_silent_training_that_stops_is_back_and_goes_on_as_it_was_told(timed: Server, clock: Clock) -> None:
    """The client of MindSpore gives up its heartbeats after five failures, and trains on."""
    happened = Happened(timed)
    client = ScriptedClient(timed.address)
    client.beat(5)
    waiting = client.stand()
    training = happened.training(Event.STOPPED)
    training.run(2)
    command(waiting)
    clock.now += 17
    happened.wait(Event.LOST)
    assert command(client.wait_later()).run_cmd.run_level == wire.LEVEL_STEP
    client.wait_later()
    happened.wait(Event.STOPPED, 2)
    assert training.stop == TrainingStop(3, 1)
    assert [event.name for _, event in happened.events if event in (Event.LOST, Event.BACK)] == ["LOST", "BACK"]


class TestKilled:
    """The connection breaks in every state."""

    def test_before_its_graphs(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address, session="s1")
        client.hello(graphs=2, **OWN)
        client.graph(graph_bytes())
        client.close()
        again = ScriptedClient(server.address, session="s1")
        again.hello(graphs=2, **OWN)
        again.graph(graph_bytes(), graph_bytes(2))
        assert happened.training(Event.GRAPH).graphs == (graph_bytes(), graph_bytes(2))
        assert len(server.all()) == 1

    def test_while_it_waits(self, server: Server, happened: Happened) -> None:
        made = ScriptedTraining(server.address)
        training = happened.training(Event.STOPPED)
        made.kill()
        assert happened.training(Event.LOST) is training
        with pytest.raises(NotStoppedError):
            training.run()
        with pytest.raises(LostError):
            training.recheck()

    def test_while_it_runs(self, timed: Server, clock: Clock) -> None:
        happened = Happened(timed)
        gate = threading.Event()

        def long_step(_step: int, _watched: object) -> list[object]:
            gate.wait(20)
            return []

        made = ScriptedTraining(timed.address, Script(hits=long_step))
        training = happened.training(Event.STOPPED)
        made.client.beat(5)
        training.run(None)
        made.kill()
        gate.set()
        clock.now += 17
        assert happened.training(Event.LOST) is training

    def test_while_it_runs_and_holds_a_line_of_heartbeats(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address, session="s1")
        client.hello(**OWN)
        client.graph(graph_bytes())
        waiting = client.wait_later(client="x")
        training = happened.training(Event.STOPPED)
        training.run(None)
        command(waiting)

        def beats() -> Iterator[Any]:
            yield wire.message("Heartbeat")(period=30)
            yield wire.message("Heartbeat")(period=31)
            happened.wait(Event.LOST)

        line = threading.Thread(target=client.quietly, args=("SendHeartbeat", beats()), daemon=True)
        line.start()
        wait_until(lambda: training._conversation.heartbeat.period == 31)
        client.close()
        assert happened.training(Event.LOST) is training

    def test_while_it_sends_hits(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address)
        waiting = client.stand()
        training = happened.training(Event.STOPPED)
        training.run(1)
        command(waiting)

        def hits() -> Iterator[Any]:
            yield hit_message("a", 1)
            wait_until_it_reads(server)
            client.close()

        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever gRPC raises for a closed channel
            client.stream("SendWatchpointHits", hits())
        happened.wait(Event.LOST)
        assert training.hits == ()

    def test_while_it_answers(self, server: Server, happened: Happened) -> None:
        gate = threading.Event()

        class Slow(ScriptedTraining):
            def _show(self, _command: Any) -> None:
                def chunks() -> Iterator[Any]:
                    yield next(tensor_messages("a", np.ones(8, np.float32), chunk=4))
                    gate.set()
                    threading.Event().wait(20)

                self.client.stream("SendTensors", chunks())

        made = Slow(server.address)
        training = happened.training(Event.STOPPED)

        def kill() -> None:
            gate.wait(20)
            made.kill()

        threading.Thread(target=kill, daemon=True).start()
        with pytest.raises(LostError):
            training.values([RemoteTensor("a")], Arrays())
        assert training.phase is Phase.LOST

    def test_with_kill_9(self, server: Server, happened: Happened) -> None:
        code = (
            "import sys, threading; from tests.live.scripted import ScriptedTraining; "
            "ScriptedTraining(sys.argv[1]); threading.Event().wait(60)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, server.address])
        try:
            training = happened.training(Event.STOPPED)
            os.kill(process.pid, signal.SIGKILL)
            assert happened.training(Event.LOST) is training
        finally:
            process.kill()
            process.wait()

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists connections")
    def test_with_kill_9_while_it_runs_without_a_call(self, server: Server, happened: Happened) -> None:
        """Found out by the connection within 10 s; a heartbeat every 30 s would take more than 90."""
        code = (
            "import sys, threading; from tests.live.scripted import Script, ScriptedTraining\n"
            "def forever(step, watched):\n    print('runs', flush=True)\n    threading.Event().wait(60)\n"
            "it = ScriptedTraining(sys.argv[1], Script(hits=forever)); it.client.beat(30); threading.Event().wait(60)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, server.address], stdout=subprocess.PIPE, text=True)
        try:
            training = happened.training(Event.STOPPED)
            training.run(None)
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            server._look_at_connections()
            assert training.phase is Phase.RUNNING
            os.kill(process.pid, signal.SIGKILL)
            before = time.monotonic()
            assert happened.training(Event.LOST) is training
            assert time.monotonic() - before < 10
        finally:
            process.kill()
            process.communicate()


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:C383 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:C383 0100007F:CB94 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:C383 0100007F:CB95 08 00000000:00000000 00:00000000 00000000     0        0 3 1
   3: 0000000000000000FFFF00000100007F:C383 0000000000000000FFFF00000100007F:CB96 01 00000000:00000000 00:0
   4: broken
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a machine with little-endian words")
@pytest.mark.parametrize(
    ("peer", "lost"),
    [
        ("ipv4:127.0.0.1:52116", False),
        ("ipv4:127.0.0.1:52117", True),  # it closed, and nobody read that yet
        ("ipv4:127.0.0.1:52118", False),  # IPv4 through a socket of IPv6
        ("ipv4:127.0.0.1:52119", True),
        ("ipv4:10.0.0.7:52116", True),
        ("ipv6:%5B::1%5D:52116", True),
        ("unix:", False),
        ("what is this", False),
    ],
)
def test_which_connections_stand_is_read_from_the_system(peer: str, lost: bool) -> None:
    assert gone([peer], 50051, lambda: TABLE) == ({peer} if lost else set())
    assert gone([peer], 50052, lambda: TABLE) == set(), "the tables of another network"
    assert gone([peer], 50051, lambda: None) == set(), "a system without tables"


class TestUnrecorded:
    """What a client could not record is kept, and nothing of it is believed."""

    def test_comes_with_calls_that_wait_and_with_the_end(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address, session="s1")
        client.hello(**OWN)
        client.graph(graph_bytes())
        client.wait_later(**{**OWN, "unrecorded": unrecorded(("passes", 2, "blocks.1", 3))})
        training = happened.training(Event.STOPPED)
        assert training.unrecorded == (Unrecorded("passes", 2, "blocks.1", 3),)
        client.call(
            "SendMetadata",
            metadata(**OWN, training_done=True, unrecorded=unrecorded(("passes", 5, "x", 4), ("tensors", 1, "", 6))),
        )
        happened.wait(Event.DONE)
        assert training.unrecorded == (Unrecorded("passes", 5, "blocks.1", 3), Unrecorded("tensors", 1, "", 6))

    def test_is_bounded_and_clean(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address, session="s1")
        client.hello(**OWN)
        client.graph(graph_bytes())
        strange = [(f"kind {number}", 1, "", -5) for number in range(1000)]
        strange[0] = ("\x1b[31m" + 1000 * "long ", 1 << 62, "\x00", 0)
        strange[1] = ("nothing at all", 0, "", 0)
        client.wait_later(**{**OWN, "unrecorded": unrecorded(*strange)})
        kept = happened.training(Event.STOPPED).unrecorded
        assert 10 < len(kept) <= 32
        assert len(kept[0].what) <= 200
        assert not any("\x1b" in each.what or "\x00" in each.example or each.step < 0 for each in kept)
        assert "nothing at all" not in {each.what for each in kept}


def unrecorded(*entries: tuple[str, int, str, int]) -> list[Any]:
    """Messages of what could not be recorded: (what, count, example, step)."""
    new = wire.message("Unrecorded")
    return [
        new(what=what.encode(), count=count, example=example.encode(), step=step)
        for what, count, example, step in entries
    ]


class TestBack:
    """One that comes back is the same training."""

    def test_our_client_by_its_session_with_its_watchpoints_told_again(
        self, server: Server, happened: Happened
    ) -> None:
        first = ScriptedTraining(server.address, Script(own=True, hello=OWN, fields=OWN), session="s1")
        training = happened.training(Event.STOPPED)
        training.set_watchpoints([RemoteWatchpoint(1, 13, (), (("a", "Add", ""),))])
        training.run(3)
        happened.wait(Event.STOPPED, 2)
        first.kill()
        happened.wait(Event.LOST)
        second = ScriptedTraining(server.address, Script(own=True, hello=OWN, fields=OWN), session="s1")
        happened.wait(Event.STOPPED, 3)
        assert happened.training(Event.BACK) is training
        assert len(server.all()) == 1
        assert (training.info.number, training.info.rank) == (1, 0)
        second.step = 9
        training.run(1)
        happened.wait(Event.STOPPED, 4)
        assert training.stop is not None
        assert training.stop.step == 10
        assert list(second.watched) == [1]

    def test_mindspore_whose_connection_broke_goes_on_without_a_handshake(
        self, server: Server, happened: Happened
    ) -> None:
        client = ScriptedClient(server.address)
        client.stand()
        training = happened.training(Event.STOPPED)
        client.close()
        happened.wait(Event.LOST)
        again = ScriptedClient(server.address)
        waiting = again.wait_later()
        assert happened.training(Event.BACK) is training
        training.run(1)
        assert command(waiting).run_cmd.run_level == wire.LEVEL_STEP
        again.wait_later()
        happened.wait(Event.STOPPED, 2)
        assert training.stop == TrainingStop(2, 0)

    def test_a_second_training_in_the_same_process(self, server: Server, happened: Happened) -> None:
        client = ScriptedClient(server.address)
        for times in (1, 2):
            waiting = client.stand()
            training = happened.training(Event.STOPPED, 2 * times - 1)
            training.run(1)
            command(waiting)
            waiting = client.wait_later()
            happened.wait(Event.STOPPED, 2 * times)
            assert training.stop == TrainingStop(2 * times, 0)
            training.release()
            command(waiting)
            client.call("SendMetadata", wire.message("Metadata")(training_done=True))
            happened.wait(Event.DONE, times)
        assert len(server.all()) == 1


def test_a_second_call_that_waits_takes_the_place_of_the_first(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    first = client.stand()
    training = happened.training(Event.STOPPED)
    second = client.wait_later()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - a future that is an error
        first.result(20)
    assert caught.value.code().name == "CANCELLED"
    training.run(1)
    assert command(second).run_cmd.run_level == wire.LEVEL_STEP
    assert happened.count(Event.STOPPED) == 1


def test_heartbeats_get_through_while_many_calls_wait(server: Server, happened: Happened) -> None:
    many = 40
    clients = [ScriptedClient(server.address) for _ in range(many)]
    for device, client in enumerate(clients):
        client.hello(device_name=f"{device}:0")
        client.graph(graph_bytes())
        client.wait_later(device_name=f"{device}:0")
    happened.wait(Event.STOPPED, many)
    for client in clients:
        client.beat()
    trainings: list[RemoteTraining] = list(server.all())
    for training in trainings:
        training.terminate()
    happened.wait(Event.DONE, many)
