"""A debugger that is not there, dies, freezes or hangs never stops a training: in every state of the conversation."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.live.client.debugger import Debugger, run, view
from tests.live.client.processes import Process, debugger, training
from tests.patience import PATIENCE
from tui_debugger.live import wire

WIDE = ("--width", "150000", "--steps", "1")
"""One step with tensors of 19 MB."""
DEATHS = pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])


def _trained(process: Process) -> list[str]:
    """Waits until a training has done all its steps; what it printed to people."""
    process.until("trained")
    status, errors = process.finish()
    assert status == 0, errors
    return errors


def test_no_debugger_at_the_address() -> None:
    with socket.socket() as taken:  # a port where nobody answers: bound, not listening
        taken.bind(("127.0.0.1", 0))
        with training(f"127.0.0.1:{taken.getsockname()[1]}") as process:
            lines = _trained(process)
    assert len(lines) == 1
    assert "no debugger at 127.0.0.1:" in lines[0]


def test_a_debugger_that_accepts_connections_and_says_nothing() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        training(f"127.0.0.1:{silent.getsockname()[1]}") as process,
    ):
        lines = _trained(process)
    assert len(lines) <= 1  # none when the training was done before that was sure
    assert all("no debugger at" in line for line in lines)


@pytest.mark.turns("blow")
@DEATHS
def test_while_it_waits_for_a_command(blow: signal.Signals) -> None:
    server, address = debugger()
    with server, training(address) as process:
        assert server.line() == "stop -1"
        server.signal(blow)
        lines = _trained(process)
    assert [line.split(":")[0] for line in lines] == ["tdbg", "tdbg"]
    assert "attached to the debugger at" in lines[0]
    assert "training goes on with its first step" in lines[1]
    assert ("gives no sign of life" if blow is signal.SIGSTOP else "is gone") in lines[1]


@pytest.mark.turns("blow")
@DEATHS
@pytest.mark.parametrize("call", ["SendMetadata", "SendGraph"])
def test_in_the_middle_of_the_introduction(call: str, blow: signal.Signals) -> None:
    server, address = debugger(hold=call)
    with server, training(address) as process:
        assert server.line() == "held"
        server.signal(blow)
        lines = _trained(process)
    assert len(lines) == 1  # it was never attached
    assert "training goes on" in lines[0]


@pytest.mark.turns("blow")
@DEATHS
def test_between_two_steps(blow: signal.Signals) -> None:
    server, address = debugger()
    with server, training(address, "--wait-for", "1") as process:
        assert server.line() == "stop -1"
        server.say("run")
        assert server.line() == "stop 0"
        server.say("run")
        process.until("step 0")
        server.signal(blow)
        process.say("")
        lines = _trained(process)
    assert "training goes on after step 1" in lines[-1]


@pytest.mark.turns("blow")
@DEATHS
def test_while_it_sends_values(blow: signal.Signals) -> None:
    """They do not fit into what the system keeps for a connection."""
    server, address = debugger(hold="SendTensors")
    with server, training(address, *WIDE) as process:
        server.say("run")
        server.say("view fc1/relu")
        server.until("held")
        server.signal(blow)
        lines = _trained(process)
    assert "detached" in lines[-1]


@pytest.mark.turns("blow")
@DEATHS
def test_while_it_sends_hits(blow: signal.Signals) -> None:
    server, address = debugger(hold="SendWatchpointHits")
    with server, training(address) as process:
        server.say("watch loss")
        server.say("run")
        server.until("held")
        server.signal(blow)
        lines = _trained(process)
    assert "training goes on after step 0" in lines[-1]


def test_values_that_nobody_takes() -> None:
    """The debugger lives, but hangs in the call that should take the values."""
    with Debugger(hold="SendTensors") as server, training(server.address, *WIDE) as process:
        server.stop(run())
        server.stop(view(wire.VALUE, "fc1/relu"))
        lines = _trained(process)
    assert "does not take what it asked for" in lines[-1]


@pytest.mark.parametrize("call", ["SendMetadata"])
def test_a_call_that_is_never_answered(call: str) -> None:
    """The debugger hangs in one call, although it is alive."""
    server, address = debugger(hold=call)
    with server, training(address) as process:
        lines = _trained(process)
    assert "gives no sign of life" in lines[0]


def test_a_person_may_think_as_long_as_it_takes() -> None:
    """A time-out passes while the debugger lives and nobody says run: the training waits.

    It is long enough for a machine that is busy: a debugger that really says nothing for so long would be given up.
    """
    with Debugger() as server, training(server.address, "--steps", "2", timeout=3) as process:
        server.stop()
        server.give(run())
        server.stop()
        for _ in range(6):  # a time-out has at most five of them
            assert server.beats.acquire(timeout=PATIENCE)
        server.give(run(), run())
        process.until("trained")
        assert "detached" not in "".join(process.finish()[1])


def test_a_debugger_that_comes_back_is_found_in_the_background() -> None:
    server, address = debugger()
    with training(address, "--steps", "1000000", "--pause", "0.01") as process:
        with server:
            assert server.line() == "stop -1"
            server.signal(signal.SIGKILL)
        process.until("step 3")
        again, _ = debugger(address)
        with again:
            stop = again.line()
            assert stop.startswith("stop ")
            assert int(stop.split()[1]) > 3
            again.say("run")
            assert again.line() == f"stop {int(stop.split()[1]) + 1}"
    assert sum("attached to" in line for line in process.errors) == 2


def test_a_frozen_debugger_that_thaws_is_found_again() -> None:
    server, address = debugger()
    with server, training(address, "--steps", "1000000", "--pause", "0.01") as process:
        assert server.line() == "stop -1"
        server.signal(signal.SIGSTOP)
        process.until("step 3")
        server.signal(signal.SIGCONT)
        while not (line := server.line()).startswith("stop"):
            pass
        assert int(line.split()[1]) > 3


def test_over_a_unix_socket(tmp_path: Path) -> None:
    server, address = debugger(f"unix:{tmp_path}/debugger")
    with server, training(address, "--steps", "2") as process:
        assert server.line() == "stop -1"
        server.say("run")
        assert server.line() == "stop 0"
        server.signal(signal.SIGKILL)
        _trained(process)


def test_the_end_of_the_process_does_not_wait_for_a_frozen_debugger() -> None:
    server, address = debugger()
    with server, training(address, "--steps", "1", "--wait-for", "1", timeout=2.0) as process:
        assert server.line() == "stop -1"
        server.say("run")
        assert server.line() == "stop 0"
        server.say("run")
        process.until("step 0")
        server.signal(signal.SIGSTOP)
        process.until("trained")
        assert process.finish()[0] == 0
