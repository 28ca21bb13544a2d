"""Who is let in, and how the others are told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.live.conftest import Happened
from tests.live.scripted import Script, ScriptedClient, ScriptedTraining, graph_bytes, graph_chunks, metadata
from tests.live.server.watching import wait_until, wait_until_it_reads
from tui_debugger.errors import NotStoppedError
from tui_debugger.live import wire
from tui_debugger.live.server import Server
from tui_debugger.live.server.identity import Admission, judge
from tui_debugger.live.wire import START, Event, Phase, TrainingInfo, TrainingStop

TOKEN = "a-secret-of-these-tests"  # noqa: S105 - of these tests
EVERYBODY = "0.0.0.0"  # noqa: S104 - that is what is tested
OWN = {"client": "PyTorch 2.13.0 (tdbg 0.5)", "session": "s1", "pid": 4711, "host": "node7"}


@pytest.mark.parametrize("version", ["1.1.0", "1.1", "1.5.2", "1.10.0", "2.0.0", "2.0.0-rc1", "2.3.1"])
def test_versions_1_1_to_2_3_are_admitted(version: str) -> None:
    assert judge(version).admission is Admission.ADMITTED
    assert not judge(version).warning


def test_a_newer_minor_version_is_admitted_with_a_warning() -> None:
    judged = judge("2.9.0")
    assert judged.admission is Admission.ADMITTED
    assert "2.9.0" in judged.warning


@pytest.mark.parametrize("version", ["", "1.0.1", "0.7.0"])
def test_versions_before_the_handshake_are_too_old(version: str) -> None:
    assert judge(version).admission is Admission.TOO_OLD


@pytest.mark.parametrize("version", ["3.0.0", "what", "٣.1"])
def test_versions_that_nobody_knows_do_not_match(version: str) -> None:
    assert judge(version).admission is Admission.MISMATCH


def test_a_client_without_a_version_is_refused_and_told_to_exit(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    reply = client.call("SendMetadata", metadata())
    assert reply.HasField("version_matched")
    assert not reply.version_matched
    happened.wait(Event.REFUSED)
    assert "1.1 to 2.3" in server.refusals[-1]
    client.graph(b"what it calls a graph")
    assert client.wait().exit
    assert server.all() == ()


def test_another_major_version_waits_until_it_is_ended(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    assert not client.hello("3.1.0").version_matched
    training = happened.training(Event.REFUSED)
    assert training.phase is Phase.MISMATCH
    assert "3.1.0" in server.refusals[-1]
    waiting = client.wait_later()
    with pytest.raises(NotStoppedError):
        training.run()
    training.terminate()
    assert wire.message("EventReply").FromString(waiting.result(20)).exit
    assert happened.training(Event.DONE) is training


def test_what_mindspore_says_of_itself(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    assert client.hello("2.9.1", device_name="3:0", backend="Ascend").version_matched
    client.graph(graph_bytes())
    info = happened.training(Event.CONNECTED).info
    assert info.address.startswith("127.0.0.1:")
    assert "2.9.1" in info.warning
    assert info == TrainingInfo(1, 0, None, info.address, "3", "Ascend", "MindSpore 2.9.1", 0, info.warning)


def test_what_our_client_says_of_itself(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address, session="s1")
    features = wire.RUNS_TO_NODES | wire.FULL_STATISTICS
    assert client.hello("2.3.0", rank=5, world_size=8, features=features, **OWN).version_matched
    client.graph(graph_bytes())
    info = happened.training(Event.CONNECTED).info
    assert (info.rank, info.world_size, info.program) == (5, 8, "PyTorch 2.13.0 (tdbg 0.5)")
    assert info.features == features
    assert not info.warning


def test_names_that_would_move_the_cursor_are_cleaned(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address, session="s1")
    client.hello(client="\x1b[2Jevil", session="s1")
    client.graph(graph_bytes())
    assert "\x1b" not in happened.training(Event.CONNECTED).info.program


def test_graphs_count_when_all_are_there(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.hello(graphs=2)
    first, second = graph_bytes(wire.CHUNK * 2 + 5), graph_bytes(10)
    client.graph(first)
    assert server.all() == ()
    client.graph(second)
    assert happened.training(Event.GRAPH).graphs == (first, second)


def test_several_graphs_come_back_to_back_in_one_stream(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    graphs = (graph_bytes(wire.CHUNK + 1), graph_bytes(wire.CHUNK - 5), graph_bytes())
    client.hello(graphs=3)
    client.graph(*graphs)
    assert happened.training(Event.GRAPH).graphs == graphs


def test_fewer_graphs_than_announced_count_when_the_client_waits(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.hello(graphs=3)
    client.graph(graph_bytes())
    client.wait_later()
    training = happened.training(Event.STOPPED)
    assert training.graphs == (graph_bytes(),)
    assert happened.count(Event.GRAPH) == 1


def test_a_broken_stream_leaves_no_graph(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.hello(graphs=1)

    def chunks() -> Iterator[Any]:
        yield next(graph_chunks(graph_bytes(10), finished=False))
        wait_until_it_reads(server)
        client.close()

    with pytest.raises((grpc.RpcError, ValueError)):
        client.stream("SendGraph", chunks())
    wait_until(lambda: not server._patience._heard)
    assert server.all() == ()
    assert happened.events == []


def test_a_graph_that_changes_in_mid_training_replaces_the_old_one(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address, session="s1")
    client.hello(**OWN)
    client.graph(graph_bytes(1))
    waiting = client.wait_later(client="x")
    training = happened.training(Event.STOPPED)
    training.run(1)
    waiting.result(20)
    client.hello(**OWN)
    assert training.graphs == ()
    client.graph(graph_bytes(2))
    assert happened.training(Event.GRAPH, 2) is training
    assert training.graphs == (graph_bytes(2),)
    assert training.phase is Phase.RECEIVING
    client.wait_later(client="x")
    happened.wait(Event.STOPPED, 2)


def test_a_network_that_mindspore_compiles_later_comes_to_the_first(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    client.hello()
    client.graph(first := graph_bytes(1, b"d"))
    waiting = client.wait_later()
    training = happened.training(Event.STOPPED)
    training.run(1, stop_on_new_nodes=True)
    waiting.result(20)
    client.hello(device_name="0:1")
    assert training.graphs == (first,), "nothing is forgotten meanwhile"
    client.graph(second := graph_bytes(1, b"g"))
    assert happened.training(Event.GRAPH, 2) is training
    assert training.graphs == (first, second)
    client.wait_later(device_name="0:1")
    happened.wait(Event.STOPPED, 2)
    assert training.stop == TrainingStop(2, START)
    assert (training.stop.opens, training.stop.root) == (True, 1)


class TestStrays:
    """A client counts when its graph has come; one that goes away takes nothing with it."""

    def stray(self, server: Server, how: str) -> None:
        client = ScriptedClient(server.address, session="stray" if "own" in how else None)
        host, _, port = server.address.rpartition(":")
        if how in ("scan", "garbage", "http"):
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall({"scan": b"", "garbage": bytes(range(256)), "http": b"GET / HTTP/1.1\r\n\r\n"}[how])
            return
        client.hello(**(OWN if "own" in how else {}))
        if "waits" in how:
            if "nothing" in how:
                client.graph(b"\x12\x01g")
            assert client.wait().run_cmd.run_level == wire.LEVEL_STEP, "it goes on"
        elif "half" in how:
            with pytest.raises(grpc.RpcError) as caught:
                client.stream("SendGraph", graph_chunks(graph_bytes(100)[:50], finished=False))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        elif "stays" in how:
            return
        client.close()

    @pytest.mark.parametrize(
        "how",
        [
            "scan",
            "garbage",
            "http",
            "waits",
            "own waits",
            "own waits with a graph of nothing",
            "half",
            "own half",
            "own stays",
        ],
    )
    def test_leave_the_listener_to_the_training_that_comes(self, server: Server, happened: Happened, how: str) -> None:
        self.stray(server, how)
        assert server.all() == ()
        own = {**OWN, "session": "s2", "pid": 1, "run": "", "rank": 0}
        ScriptedTraining(server.address, Script(own=True, hello=own, fields=own), session="s2")
        training = happened.training(Event.STOPPED)
        assert server.all() == (training,)
        assert (training.info.number, training.info.rank) == (1, 0)
        self.stray(server, how)
        training.run(2)
        happened.wait(Event.STOPPED, 2)
        assert {each for each, event in happened.events if event is not Event.REFUSED} == {training}


class TestRuns:
    """Trainings at one listener are ranks of one run."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"run": "torchrun 7"}, {"run": "torchrun 7"}),
            ({"run": "", "rank": 0, "world_size": 2}, {"run": "", "rank": 1, "world_size": 2}),
            ({"run": ""}, {"run": "", "pid": 4711}),  # two models of one process
            ({"run": "torchrun 7"}, {}),  # a client that is older than this
        ],
    )
    def test_ranks_of_one_run_join(
        self, server: Server, happened: Happened, first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        self.come(server, "s1", {"rank": 0, "pid": 4711, **first})
        self.come(server, "s2", {"rank": 1, "pid": 4712, **second})
        happened.wait(Event.STOPPED, 2)
        assert sorted(each.info.rank for each in server.all()) == [0, 1]
        assert server.refusals == ()

    def test_trainings_of_one_process_at_once_are_ranks_that_no_other_process_asks_for(
        self, server: Server, happened: Happened
    ) -> None:
        """Such as a generator and its discriminator, on each of two processes."""
        own = {"run": "torchrun 7", "world_size": 2}
        for number, rank in enumerate((0, 0, 1, 1)):
            self.come(server, f"s{number}", {**own, "rank": rank, "pid": 4711 + rank})
            happened.wait(Event.STOPPED, number + 1)
        assert [each.info.rank for each in server.all()] == [0, 2, 1, 3]
        assert server.refusals == ()

    def test_a_training_that_its_process_begins_after_another_one_has_ended_is_another_one(
        self, server: Server, happened: Happened
    ) -> None:
        one = self.come(server, "s1", {"run": "", "rank": 0})
        happened.training(Event.STOPPED).run(3)
        happened.wait(Event.STOPPED, 2)
        one.kill()
        happened.wait(Event.LOST)
        self.come(server, "s2", {"run": "", "rank": 0})
        happened.wait(Event.STOPPED, 3)
        assert [each.stop.step for each in server.all() if each.stop] == [2, -1], "the steps of the first one stay"
        assert happened.count(Event.BACK) == 0

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"run": ""}, {"run": ""}),
            ({"run": "torchrun 7"}, {"run": "torchrun 8"}),
            ({"run": "torchrun 7"}, {"run": ""}),
            ({"run": "", "rank": 0, "world_size": 2}, {"run": "", "rank": 0, "world_size": 2}),
            ({"run": "", "rank": 0, "world_size": 2}, {"run": "", "rank": 1, "world_size": 4}),
        ],
    )
    def test_another_one_is_refused_until_the_first_has_ended(
        self, server: Server, happened: Happened, first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        one = self.come(server, "s1", {"rank": 0, "pid": 4711, **first})
        happened.wait(Event.STOPPED)
        other = self.come(server, "s2", {"rank": 0, "pid": 4712, **second})
        other.join()
        assert isinstance(other.error, grpc.RpcError)
        assert other.error.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "process 4711 on node7" in other.error.details()
        assert len(server.refusals) == len(server.all()) == 1
        one.kill()
        happened.wait(Event.LOST)
        self.come(server, "s3", {"rank": 0, "pid": 4713, **second})
        happened.wait(Event.STOPPED, 2)
        assert [each.phase for each in server.all()] == [Phase.LOST, Phase.STOPPED]

    def test_of_two_that_come_at_once_the_first_graph_counts(self, server: Server) -> None:
        clients = [ScriptedClient(server.address, session=f"s{number}") for number in (1, 2)]
        for number, client in enumerate(clients):
            client.hello(**{**OWN, "session": f"s{number + 1}", "pid": number + 1, "run": ""})
        clients[1].graph(graph_bytes())
        with pytest.raises(grpc.RpcError) as caught:
            clients[0].graph(graph_bytes())
        assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert [each.handshake.session for each in server.all()] == ["s2"]

    @staticmethod
    def come(server: Server, session: str, fields: dict[str, Any]) -> ScriptedTraining:
        own = {**OWN, **fields, "session": session}
        return ScriptedTraining(server.address, Script(own=True, hello=own, fields=own), session=session)


def test_our_client_that_the_server_does_not_know_is_told_so(server: Server) -> None:
    client = ScriptedClient(server.address, session="from before")
    assert client.wait().status == wire.FAILED
    assert client.beat().status == wire.FAILED
    assert client.call("SendTensorBase").status == wire.FAILED
    assert server.all() == ()


def test_a_mindspore_client_from_before_the_server_is_let_go_on(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address)
    assert client.wait(5).run_cmd.run_level == wire.LEVEL_STEP
    happened.wait(Event.REFUSED)
    assert "before this debugger was started" in server.refusals[-1]


def test_methods_that_do_not_exist_and_messages_that_are_none(server: Server) -> None:
    client = ScriptedClient(server.address)
    client.hello()
    with pytest.raises(grpc.RpcError) as caught:
        client.raw("SendEverything", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as caught:
        client.raw("WaitCMD", b"\xff\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class TestToken:
    """Asked for where other machines can reach the server."""

    def refused(self, caller: ScriptedClient, **hello: Any) -> bool:
        try:
            caller.hello(**hello)
        except grpc.RpcError as error:
            return bool(error.code() is grpc.StatusCode.UNAUTHENTICATED)
        return False

    def open(self, serving: Callable[..., Server], **options: object) -> str:
        server = serving(EVERYBODY, **options)
        return server.address.replace(EVERYBODY, "127.0.0.1")

    def test_is_compared_when_others_can_reach_the_server(self, serving: Callable[..., Server]) -> None:
        address = self.open(serving, token=TOKEN)
        assert not self.refused(ScriptedClient(address, token=TOKEN, session="s1"), **OWN)
        assert self.refused(ScriptedClient(address, token=TOKEN.upper(), session="s2"), **OWN)
        assert self.refused(ScriptedClient(address, session="s3"), **OWN)
        assert self.refused(ScriptedClient(address)), "MindSpore's client cannot show one"

    def test_mindspore_comes_in_without_one_where_that_is_allowed(self, serving: Callable[..., Server]) -> None:
        address = self.open(serving, token=TOKEN, allow_unauthenticated=True)
        assert not self.refused(ScriptedClient(address))
        assert self.refused(ScriptedClient(address, session="s3"), **OWN), "ours can show one, and so has to"
        assert self.refused(ScriptedClient(address, token=TOKEN + "x"))

    def test_is_not_needed_on_this_machine_but_never_wrong(
        self, server: Server, serving: Callable[..., Server]
    ) -> None:
        assert not self.refused(ScriptedClient(server.address, session="s1"), **OWN)
        with_token = serving(token=TOKEN)
        assert not self.refused(ScriptedClient(with_token.address))
        assert self.refused(ScriptedClient(with_token.address, token=TOKEN + "x"))

    def test_every_call_is_checked(self, serving: Callable[..., Server]) -> None:
        address = self.open(serving, token=TOKEN)
        stranger = ScriptedClient(address)
        for name in (*wire.UNARY, *wire.STREAMS):
            with pytest.raises(grpc.RpcError) as caught:
                stranger.raw(name, b"" if name in wire.UNARY else [b""])
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    def test_the_same_refusal_is_noted_once(self, serving: Callable[..., Server]) -> None:
        server = serving(EVERYBODY, token=TOKEN)
        for _ in range(3):
            assert self.refused(ScriptedClient(server.address.replace(EVERYBODY, "127.0.0.1")))
        assert len(server.refusals) == 1


class TestSeveral:
    """Several trainings at once, each with a rank of its own."""

    def test_ranks_that_nobody_says_are_the_next_free(self, server: Server, happened: Happened) -> None:
        for device in range(3):
            client = ScriptedClient(server.address)
            client.hello(device_name=f"{device}:0")
            client.graph(graph_bytes())
        happened.wait(Event.CONNECTED, 3)
        assert [each.info.rank for each in server.all()] == [0, 1, 2]
        assert [each.info.number for each in server.all()] == [1, 2, 3]

    def test_each_is_driven_by_itself(self, server: Server, happened: Happened) -> None:
        own = {**OWN, "world_size": 3}
        made = [
            ScriptedTraining(
                server.address,
                Script(own=True, hello={**own, "session": f"s{rank}", "pid": rank + 1, "rank": rank}, fields=own),
                session=f"s{rank}",
            )
            for rank in range(3)
        ]
        happened.wait(Event.STOPPED, 3)
        trainings = sorted(server.all(), key=lambda each: each.info.rank)
        assert [each.info.rank for each in trainings] == [0, 1, 2]
        trainings[1].run(4)
        happened.wait(Event.STOPPED, 4)
        assert [each.stop.step for each in trainings if each.stop] == [-1, 3, -1]
        assert [each.step for each in made] == [-1, 3, -1]

    def test_a_training_that_is_started_again_gets_its_rank_back(self, server: Server, happened: Happened) -> None:
        first = ScriptedTraining(server.address)
        happened.wait(Event.STOPPED)
        first.kill()
        happened.wait(Event.LOST)
        ScriptedTraining(server.address)
        happened.wait(Event.STOPPED, 2)
        assert [each.info.rank for each in server.all()] == [0, 0]
        assert [each.phase for each in server.all()] == [Phase.LOST, Phase.STOPPED]

    def test_two_of_the_same_device_number_are_two(self, server: Server, happened: Happened) -> None:
        """In containers every process may see a device 0, from one address."""
        first = ScriptedClient(server.address)
        waiting = first.stand()
        running = happened.training(Event.STOPPED)
        running.run(None)
        waiting.result(20)
        ScriptedTraining(server.address)
        happened.wait(Event.STOPPED, 2)
        assert [(each.info.rank, each.phase) for each in server.all()] == [(0, Phase.RUNNING), (1, Phase.STOPPED)]
