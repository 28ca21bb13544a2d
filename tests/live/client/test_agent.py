"""What may reach a training from the client: nothing but what the debugger or the training itself asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.live.client.debugger import Debugger, run, view, watch
from tests.live.client.processes import Process
from tests.live.client.test_recorder import Loop
from tests.patience import PATIENCE
from tui_debugger.errors import TdbgError
from tui_debugger.live import wire
from tui_debugger.live.client import Recorder, TrainingTerminated
from tui_debugger.live.client.agent import Agent, ClientHit, ClientValue, Identity
from tui_debugger.live.client.link import LinkSettings, settings
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import TensorMeta, TensorStats, Verdict, WatchResult


class Scripted:
    """A framework whose methods do what a test wants."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.watched: Sequence[RemoteWatchpoint] = ()
        self.on_value: Callable[[], ClientValue | None] = lambda: None
        self.on_evaluate: Callable[[], Sequence[ClientHit]] = lambda: ()

    def identity(self) -> Identity:
        return Identity("Scripted", stops_at_nodes=True)

    def attached(self) -> None:
        self.told.append("attached")

    def unfinished(self) -> bool:
        """Nothing."""
        return False

    def rest(self) -> Sequence[ClientHit]:
        """Nothing."""
        return ()

    def unrecorded(self) -> Sequence[Unrecorded]:
        return ()

    def detached(self) -> None:
        self.told.append("detached")

    def graphs(self) -> Sequence[bytes]:
        builder = GraphBuilder()
        for name in ("a", "b"):
            builder.add_node(name, "Add", (), [("float32", (2,))])
        return [builder.serialize()]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        self.watched = watchpoints
        self.told.append("watch")

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        self.told.append(f"evaluate{' again' * recheck}{' initial' * initial}")
        return self.on_evaluate()

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        del tensor
        return None

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        del tensor
        return None

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        del tensor
        return self.on_value()


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    with Debugger() as server:
        yield server


@pytest.fixture
def probe() -> Scripted:
    return Scripted()


def _trains(agent: Agent, steps: int = 3, nodes: Sequence[str] = ("a", "b")) -> Loop:
    def train() -> None:
        for _ in range(steps):
            for name in nodes:
                agent.node_end(name)
            agent.step_end()
        agent.close()

    return Loop(train)


# -- node level ----------------------------------------------------------------------------------------


def test_runs_to_the_next_node_and_to_a_named_one(debugger: Debugger, probe: Scripted) -> None:
    agent = Agent(probe, LinkSettings(debugger.address))
    loop = _trains(agent)
    assert debugger.stop(run(wire.LEVEL_NODE, b"")).cur_node == b""
    stop = debugger.stop(run(wire.LEVEL_NODE, b"b"))
    assert (stop.cur_node, stop.step) == (b"a", 1)
    stop = debugger.stop(run(wire.LEVEL_NODE, b"nowhere"))
    assert (stop.cur_node, stop.step) == (b"b", 1)
    stop = debugger.stop(run())  # a node that does not come: the end of the step
    assert (stop.cur_node, stop.step) == (b"", 1)
    assert debugger.stop(run()).step == 2
    assert loop.end() is None
    assert debugger.calls[0][1].features & wire.RUNS_TO_NODES


def test_stops_at_a_node_that_hits(debugger: Debugger, probe: Scripted) -> None:
    agent = Agent(probe, LinkSettings(debugger.address))
    hit = ClientHit("b", 0, WatchResult(1, "tensor_overflow", Verdict.FINDING))

    def train() -> None:
        agent.step_end()
        assert not agent.wants_nodes
        agent.node_end("a")
        agent.node_end("b", [hit])
        agent.step_end()
        agent.close()

    loop = Loop(train)
    debugger.stop(watch(1, 13, ["b"]), run())
    stop = debugger.stop(run())
    assert stop.cur_node == b"b"
    assert [each.tensor.node_name for each in debugger.answer("SendWatchpointHits")] == [b"b"]
    assert debugger.stop(run()).cur_node == b""
    assert loop.end() is None


@pytest.mark.parametrize("ends", [True, False])
def test_hits_after_the_first_ones_of_a_step_come_together_when_nobody_stops_at_them(
    debugger: Debugger, probe: Scripted, *, ends: bool
) -> None:
    hits = {name: ClientHit(name, 0, WatchResult(1, "tensor_overflow", Verdict.FINDING)) for name in "abcd"}
    agent = Agent(probe, LinkSettings(debugger.address))
    probe.unfinished = lambda: not ends  # type: ignore[method-assign]
    probe.on_evaluate = lambda: [hits["d"]]

    def trains() -> None:
        agent.begin()
        for name in "abc":
            agent.node_end(name, [hits[name]])
        if ends:
            agent.step_end()
        agent.close()

    loop = Loop(trains)
    debugger.stop(watch(1, 13, [*hits]), run(ahead=5, together=True))
    assert debugger.stop(run(ahead=5, together=True)).cur_node == b"a"
    assert [each.tensor.node_name for each in debugger.answer("SendWatchpointHits")] == [b"a"]
    stop = debugger.stop(run())
    assert (stop.step, stop.cur_node) == ((0, b"") if ends else (0, b"b"))
    later = [each.tensor.node_name for each in debugger.answer("SendWatchpointHits")]
    assert later == [b"b", b"c", *([b"d"] if ends else [])]
    assert loop.end() is None


# -- steps of which there is nothing to say ------------------------------------------------------------


def test_it_runs_ahead_without_a_word_and_stops_at_a_hit(
    debugger: Debugger, probe: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_debugger.live.client.agent.UNASKED", PATIENCE)
    monkeypatch.setattr("tui_debugger.live.client.agent.ASKING", 0)
    agent = Agent(probe, LinkSettings(debugger.address))
    hit = ClientHit("b", 0, WatchResult(1, "tensor_overflow", Verdict.FINDING))
    probe.on_evaluate = lambda: [hit] if agent.step == 7 else ()
    loop = _trains(agent, steps=13, nodes=())
    assert debugger.stop(watch(1, 13, ["b"]), run(ahead=3)).step == 0
    assert debugger.stop(run(ahead=100)).step == 4
    assert debugger.stop(run()).step == 7
    assert [each.tensor.node_name for each in debugger.answer("SendWatchpointHits")] == [b"b"]
    assert debugger.stop(run(ahead=100)).step == 8
    assert debugger.done().step == 12
    assert loop.end() is None
    assert probe.told.count("evaluate") == 12  # every step was judged, whether or not there was anything to say


def test_it_asks_now_and_then_however_far_it_may_run(
    debugger: Debugger, probe: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_debugger.live.client.agent.UNASKED", 0.0)
    agent = Agent(probe, LinkSettings(debugger.address))
    loop = _trains(agent, steps=3, nodes=())
    assert [debugger.stop(run(ahead=100)).step for _ in range(3)] == [0, 1, 2]
    assert loop.end() is None


def test_watchpoints_are_handed_on_when_they_change_and_before_they_are_judged(
    debugger: Debugger, probe: Scripted
) -> None:
    loop = _trains(Agent(probe, LinkSettings(debugger.address)))
    debugger.stop(watch(1, 13, ["a"]), watch(2, 13, ["b"]), run(wire.LEVEL_RECHECK), run())
    debugger.stop(run())
    debugger.stop(run())
    assert loop.end() is None
    assert probe.told == ["attached", "watch", "evaluate again", "evaluate", "evaluate", "detached"]
    assert [each.id for each in probe.watched] == [1, 2]


# -- what goes wrong ------------------------------------------------------------------------------------


def test_an_error_of_the_framework_ends_the_debugging_and_not_the_training(
    debugger: Debugger, probe: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> ClientValue | None:
        msg = "out of memory"
        raise MemoryError(msg)

    probe.on_value = broken
    agent = Agent(probe, LinkSettings(debugger.address))
    loop = _trains(agent)
    debugger.stop(view(wire.VALUE, "a"))
    assert loop.end() is None
    assert probe.told[-1] == "detached"
    assert not agent.on
    assert "detached for good: the debugger's client failed (MemoryError: out of memory)" in capsys.readouterr().err
    assert [each.what for each in debugger.done().unrecorded] == [b"steps after the debugger's client failed"]


@contextmanager
def _signal_at_the_stop(debugger: Debugger, number: signal.Signals) -> Iterator[None]:
    """Sends this process a signal as soon as the debugger sees it wait."""

    def send() -> None:
        debugger.stop()
        os.kill(os.getpid(), number)

    waiting = threading.Thread(target=send)
    waiting.start()
    yield
    waiting.join(PATIENCE)


def test_ctrl_c_reaches_the_training_while_it_waits(debugger: Debugger, probe: Scripted) -> None:
    """In the main thread: signals arrive nowhere else."""
    agent = Agent(probe, LinkSettings(debugger.address))
    with _signal_at_the_stop(debugger, signal.SIGINT), pytest.raises(KeyboardInterrupt):
        agent.step_end()
    assert not agent.attached
    agent.close()


def test_what_a_signal_handler_of_the_training_raises_reaches_it(debugger: Debugger, probe: Scripted) -> None:
    class PreemptedError(Exception):
        pass

    def handler(*_: object) -> None:
        raise PreemptedError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        agent = Agent(probe, LinkSettings(debugger.address))
        with _signal_at_the_stop(debugger, signal.SIGUSR1), pytest.raises(PreemptedError):
            agent.step_end()
        agent.close()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_may_close_what_it_interrupts(debugger: Debugger, probe: Scripted) -> None:
    """As handlers of SIGTERM do before they end a process."""
    agent = Agent(probe, LinkSettings(debugger.address))

    def handler(*_: object) -> None:
        agent.close()
        sys.exit(3)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with _signal_at_the_stop(debugger, signal.SIGUSR1), pytest.raises(SystemExit):
            agent.step_end()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert debugger.done().training_done


def test_signals_are_left_as_they_are(debugger: Debugger, probe: Scripted) -> None:
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    agent = Agent(probe, LinkSettings(debugger.address))
    loop = _trains(agent, steps=1)
    debugger.stop(run())
    assert loop.end() is None
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


def test_a_debugger_that_fails_again_and_again_is_left(
    debugger: Debugger, probe: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = wire.message("EventReply")(status=wire.FAILED)
    debugger.give(*[failure] * 10)
    assert _trains(Agent(probe, LinkSettings(debugger.address)), steps=1).end() is None
    assert "nothing but failures" in capsys.readouterr().err


def test_a_debugger_that_has_never_heard_of_it_is_told_everything_again(debugger: Debugger, probe: Scripted) -> None:
    debugger.give(wire.message("EventReply")(status=wire.FAILED), run())
    assert _trains(Agent(probe, LinkSettings(debugger.address)), steps=1).end() is None
    names = [name for name, _ in debugger.calls]
    assert names == ["SendMetadata", "SendGraph", "WaitCMD"] * 2 + ["SendMetadata"]


def test_unknown_and_empty_commands_are_passed_over(debugger: Debugger, probe: Scripted) -> None:
    empty = wire.message("EventReply")()
    odd = wire.message("EventReply").FromString(b"\xca\x3e\x03abc")  # a field of a later version
    debugger.give(empty, odd, watch(1, 3, ["a"]), run())
    assert _trains(Agent(probe, LinkSettings(debugger.address)), steps=1).end() is None


def test_exit_ends_in_the_thread_that_trains_and_for_good(debugger: Debugger, probe: Scripted) -> None:
    agent = Agent(probe, LinkSettings(debugger.address))
    loop = _trains(agent)
    debugger.stop(wire.message("EventReply")(exit=True))
    assert isinstance(loop.end(), TrainingTerminated)
    assert not agent.on
    agent.step_end()  # whoever catches it may go on


def test_a_process_that_is_told_to_exit_ends_with_status_0(debugger: Debugger) -> None:
    host, _, port = debugger.address.rpartition(":")
    with Process("tests.live.client.training", environment={"TDBG_HOST": host, "TDBG_PORT": port}) as process:
        debugger.stop(wire.message("EventReply")(exit=True))
        process.until("terminated")
        status, errors = process.finish()
    assert status == 0
    assert errors[1:] == ["tdbg: the debugger ended this training (with its first step)"]


def test_a_forked_child_says_nothing_and_ends(debugger: Debugger) -> None:
    host, _, port = debugger.address.rpartition(":")
    with Process("tests.live.client.forking", environment={"TDBG_HOST": host, "TDBG_PORT": port}) as process:
        for _ in range(3):
            debugger.stop(run())
        assert process.until("trained") == ["child off", "child ended with 0", "trained"]
        status, errors = process.finish()
    assert status == 0
    assert [line for line in errors if not line.startswith("tdbg: attached")] == []
    assert {message.pid for name, message in debugger.calls if name != "SendGraph"} == {process.popen.pid}


# -- nothing without an address ---------------------------------------------------------------------------


def test_without_an_address_nothing_is_started(monkeypatch: pytest.MonkeyPatch, probe: Scripted) -> None:
    monkeypatch.delenv("TDBG_HOST", raising=False)
    monkeypatch.delenv("TDBG_PORT", raising=False)
    before = threading.active_count()
    agent = Agent(probe, settings())
    agent.begin()
    agent.node_end("a")
    agent.step_end()
    agent.close()
    assert (agent.on, agent.attached, agent.step) == (False, False, 0)
    assert threading.active_count() == before
    assert probe.told == []


def test_the_client_loads_nothing_that_a_training_does_not_need() -> None:
    code = (
        "import sys, numpy as np; from tui_debugger.live.client import Recorder; r = Recorder('');"
        "r.record('x', np.ones(3)); r.step(); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = ("textual", "rich", "grpc", "sqlite3", "watchfiles")
    assert not [name for name in loaded if name.split(".")[0] in unwanted]
    own = ("sources", "session", "cache", "tui", "cli")
    assert not [name for name in loaded if name.startswith(tuple(f"tui_debugger.{part}" for part in own))]


def test_nothing_is_left_behind(debugger: Debugger, probe: Scripted) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        loop = _trains(Agent(probe, LinkSettings(debugger.address)), steps=1)
        debugger.stop(run())
        assert loop.end() is None
    own = [each for each in threading.enumerate() if each.name.startswith("tdbg-") and each not in before]
    for each in own:
        each.join(PATIENCE)
    assert not any(each.is_alive() for each in own)


def test_arrays_are_not_converted_while_nobody_is_there() -> None:
    converted = []

    class OnDevice:
        def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
            converted.append(1)
            return np.ones(3)

    recorder = Recorder("127.0.0.1:1", timeout=0.1)
    for _ in range(5):
        recorder.record("x", OnDevice())
        recorder.step()
    recorder.close()
    assert len(converted) == 1


def test_a_recorder_that_is_off_keeps_nothing() -> None:
    recorder = Recorder("")
    recorder.record("x", np.ones(3))
    recorder.step()
    assert not recorder._recordings.nodes


# -- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ""),
        ({"TDBG_HOST": "node7"}, "node7:50051"),
        ({"TDBG_PORT": "1234"}, "127.0.0.1:1234"),
        ({"TDBG_HOST": "::1", "TDBG_PORT": "1234"}, "[::1]:1234"),
        ({"TDBG_HOST": "unix:/run/x.sock", "TDBG_PORT": "1234"}, "unix:/run/x.sock"),
        ({"TDBG_HOST": " ", "TDBG_PORT": ""}, ""),
    ],
)
def test_address_of_the_environment(variables: dict[str, str], expected: str) -> None:
    assert settings(environment=variables).address == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("h", "h:50051"), ("h:1", "h:1"), ("[::1]:7", "[::1]:7"), ("::1", "[::1]:50051"), ("unix:/a b", "unix:/a b")],
)
def test_address_that_is_given_comes_first(given: str, expected: str) -> None:
    assert settings(given, environment={"TDBG_HOST": "other", "TDBG_TOKEN": "t"}) == LinkSettings(expected, "t")


def test_a_wrong_address_in_the_environment_is_told_and_no_reason_not_to_train(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert settings(environment={"TDBG_PORT": "many"}).address == ""
    (line,) = capsys.readouterr().err.splitlines()
    assert "127.0.0.1:many" in line


def test_empty_address_is_off_whatever_the_environment_says() -> None:
    assert settings("", environment={"TDBG_HOST": "other"}).address == ""


@pytest.mark.parametrize("wrong", ["h:", "h:0", "h:65536", "h:x", ":1", "unix:", "h:1:2]"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(TdbgError):
        settings(wrong)
