"""What a client may send is bounded; one that floods is cut off, and the others do not notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.live.conftest import Happened
from tests.live.scripted import ScriptedClient, ScriptedTraining, graph_bytes, hit_message
from tests.live.server.clock import Clock
from tests.live.server.watching import wait_until, wait_until_it_reads
from tui_debugger.live import wire
from tui_debugger.live.server import Server, ServerLimits
from tui_debugger.live.server.answers import AnswerTooLargeError, GraphAssembly
from tui_debugger.live.server.identity import MemoryLimit
from tui_debugger.live.wire import Event, Phase

SMALL = ServerLimits(
    graph_bytes=1000, hits=5, memory_bytes=20_000, stray_bytes=1000, strikes=3, handshakes=10, clients=3
)


def code_of(call: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    code: grpc.StatusCode = caught.value.code()
    return code


@pytest.fixture
def small(serving: Callable[..., Server]) -> Server:
    return serving(limits=SMALL)


def endless(message: Any) -> Iterator[Any]:
    return itertools.repeat(message)


def test_graphs_larger_than_allowed_are_not_kept(small: Server) -> None:
    happened = Happened(small)
    client = ScriptedClient(small.address)
    client.hello()
    chunk = wire.message("Chunk")(buffer=b"x" * 100)
    assert code_of(lambda: client.stream("SendGraph", endless(chunk))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    empty = wire.message("Chunk")()
    assert code_of(lambda: client.stream("SendMultiGraphs", endless(empty))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert small.all() == ()
    assert "its graphs are larger" in small.refusals[-1]
    assert client.graph(graph_bytes(70)).status == wire.OK, "what the others took is free again"
    happened.wait(Event.GRAPH)


def test_a_message_that_is_too_large_is_not_even_read(small: Server) -> None:
    client = ScriptedClient(small.address)
    client.hello()
    huge = wire.message("Chunk")(buffer=b"x" * (5 * 1024 * 1024))
    with pytest.raises(grpc.RpcError):
        client.stream("SendGraph", [huge])
    assert client.beat().status == wire.OK


def test_hits_beyond_the_limit_are_counted_and_endless_ones_cut(small: Server) -> None:
    happened = Happened(small)
    client = ScriptedClient(small.address)
    waiting = client.stand()
    training = happened.training(Event.STOPPED)
    training.run(1)
    waiting.result(20)
    client.call("SendWatchpointHits", *[hit_message(f"n{number}", 1) for number in range(9)])
    client.wait_later()
    happened.wait(Event.STOPPED, 2)
    assert [hit.node for hit in training.hits] == ["n0", "n1", "n2", "n3", "n4"]
    assert training.info.warning.startswith("4 hits")
    hits = endless(hit_message("n", 1))
    assert code_of(lambda: client.stream("SendWatchpointHits", hits)) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("call", ["SendTensors", "SendTensorStats", "SendTensorBase"])
def test_what_nobody_asked_for_is_cut(small: Server, call: str) -> None:
    client = ScriptedClient(small.address)
    client.hello()
    message = wire.message(wire.STREAMS[call])()
    assert code_of(lambda: client.stream(call, endless(message))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.stream(call, [message]).status == wire.OK


def test_a_client_that_goes_on_is_cut_off_and_the_others_are_not(small: Server) -> None:
    happened = Happened(small)
    other = ScriptedTraining(small.address)
    patient = happened.training(Event.STOPPED)
    client = ScriptedClient(small.address)
    client.hello(device_name="1:0")
    client.graph(graph_bytes())
    waiting = client.wait_later()
    flooding = happened.training(Event.STOPPED, 2)
    for _ in range(SMALL.strikes):
        with pytest.raises(grpc.RpcError):
            client.stream("SendTensors", endless(wire.message("TensorProto")(node_name=b"x" * 100)))
    happened.wait(Event.LOST)
    assert flooding.phase is Phase.LOST
    assert "cut off" in small.refusals[-1]
    assert code_of(lambda: waiting.result(20)) is grpc.StatusCode.CANCELLED
    assert code_of(client.beat) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert code_of(client.hello) is grpc.StatusCode.RESOURCE_EXHAUSTED
    patient.run(1)
    happened.wait(Event.STOPPED, 3)
    assert other.step == 0


def test_a_flood_of_heartbeats_is_cut(small: Server) -> None:
    client = ScriptedClient(small.address)
    client.hello()
    beat = wire.message("Heartbeat")(period=30)
    assert code_of(lambda: client.stream("SendHeartbeat", endless(beat))) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_only_so_many_clients(small: Server) -> None:
    happened = Happened(small)
    clients = [ScriptedClient(small.address) for _ in range(SMALL.clients)]
    for device, client in enumerate(clients):
        client.hello(device_name=f"{device}:0")
        client.graph(graph_bytes())
        client.wait_later()
    happened.wait(Event.STOPPED, SMALL.clients)
    one_more = ScriptedClient(small.address)
    assert code_of(lambda: one_more.hello(device_name="9:0")) is grpc.StatusCode.RESOURCE_EXHAUSTED
    clients[0].close()
    happened.wait(Event.LOST)
    assert one_more.hello(device_name="9:0").version_matched


def test_only_so_many_handshakes_in_a_minute(serving: Callable[..., Server]) -> None:
    clock = Clock()
    server = serving(limits=SMALL, clock=clock)
    client = ScriptedClient(server.address)
    for _ in range(SMALL.handshakes):
        client.hello()
    assert code_of(client.hello) is grpc.StatusCode.RESOURCE_EXHAUSTED
    clock.now += 61
    assert client.hello().version_matched


def test_the_oldest_that_are_gone_are_forgotten(serving: Callable[..., Server]) -> None:
    server = serving(limits=ServerLimits(clients=2, remembered=4))
    happened = Happened(server)
    for number in range(1, 8):
        client = ScriptedClient(server.address, session=f"s{number}")
        client.hello(client="x", session=f"s{number}", pid=number)
        client.graph(graph_bytes())
        client.wait_later(client="x")
        happened.wait(Event.STOPPED, number)
        client.close()
        happened.wait(Event.LOST, number)
    assert [each.info.number for each in server.all()] == [4, 5, 6, 7]


def test_a_stream_that_falls_silent_does_not_hold_its_thread(serving: Callable[..., Server]) -> None:
    clock = Clock()
    server = serving(limits=ServerLimits(idle=30), clock=clock)
    client = ScriptedClient(server.address)
    client.hello()

    def silent() -> Iterator[Any]:
        yield wire.message("Chunk")(buffer=b"x")
        wait_until_it_reads(server)
        wait_until(lambda: clock.pass_by(31) and not server._patience._heard)

    assert code_of(lambda: client.stream("SendGraph", silent())) is grpc.StatusCode.CANCELLED


def test_memory_is_given_back() -> None:
    memory = MemoryLimit(1000)
    broken = GraphAssembly(memory, 600)
    broken.take(b"x" * 500, finished=False)
    with pytest.raises(AnswerTooLargeError):
        broken.take(b"x" * 101, finished=False)
    whole = GraphAssembly(memory, 600)
    with pytest.raises(AnswerTooLargeError):
        whole.take(b"x" * 501, finished=False)
    broken.drop()
    broken.drop()
    assert memory.left == 1000
    whole.take(b"x" * 501, finished=True)
    graphs, size = whole.end()
    assert (graphs, size) == ((b"x" * 501,), 501)
    whole.drop()
    assert memory.left == 1000 - 501
