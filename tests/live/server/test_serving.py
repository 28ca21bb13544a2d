"""A port is opened, and closed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.conftest import Happened
from tests.live.scripted import Script, ScriptedClient, ScriptedTraining
from tui_debugger.errors import TdbgError
from tui_debugger.live.server import Server, serve
from tui_debugger.live.server.service import Gate, is_private
from tui_debugger.live.wire import Event, Phase

TOKEN = "a-secret-of-these-tests"  # noqa: S105 - of these tests
EVERYBODY = "0.0.0.0"  # noqa: S104 - that is what is tested


def complaint(call: Callable[[], object]) -> TdbgError:
    with pytest.raises(TdbgError) as caught:
        call()
    assert caught.value.what
    assert caught.value.where
    assert caught.value.hint
    return caught.value


def test_a_free_port_is_found(server: Server) -> None:
    host, port = server.address.split(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


def test_a_port_that_is_taken(server: Server) -> None:
    port = int(server.address.rpartition(":")[2])
    assert "in use" in complaint(lambda: serve(port=port)).what


def test_a_port_that_somebody_else_took() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in complaint(lambda: serve(port=taken.getsockname()[1])).what


@pytest.mark.parametrize("host", ["", "no.such.host.invalid", "203.0.113.7", "not a host", "ü" * 80])
def test_hosts_that_are_not_here(host: str) -> None:
    complaint(lambda: serve(host, 0, token=TOKEN))


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_that_are_none(port: int) -> None:
    complaint(lambda: serve(port=port))


def test_other_machines_need_a_token_or_a_decision() -> None:
    assert "TDBG_TOKEN" in complaint(lambda: serve("0.0.0.0", 0)).hint  # noqa: S104 - that is what is tested
    with pytest.raises(TdbgError):
        serve(token="")
    with pytest.raises(TdbgError):
        serve(token="line\nline")  # noqa: S106 - of this test


@pytest.mark.parametrize("length", [1, 8, 15])
def test_a_token_that_can_be_guessed_is_refused_where_others_may_guess(length: int) -> None:
    refused = complaint(lambda: serve(EVERYBODY, 0, token="x" * length))
    assert f"a token of {length} characters" in refused.what
    assert "--new-token" in refused.hint


def test_a_short_token_is_enough_where_nobody_else_comes() -> None:
    serve("127.0.0.1", 0, token="x").close()  # noqa: S106 - of this test


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]", "unix:/tmp/x"])
def test_addresses_of_this_machine_only(host: str) -> None:
    assert is_private(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "localhost.example.org"])  # noqa: S104 - of this test
def test_addresses_that_others_can_reach(host: str) -> None:
    assert not is_private(host)


def test_a_token_in_bytes_is_compared_too() -> None:
    gate = Gate("secret", private=False, allow_unauthenticated=False)
    assert not gate.refusal(b"secret")
    assert gate.refusal(b"\xff")
    assert gate.refusal("ünicode")


class TestUnixSocket:
    """``unix:PATH``."""

    def test_several_clients_and_only_for_its_owner(self, serving: Callable[..., Server], tmp_path: Path) -> None:
        path = tmp_path / "tdbg.sock"
        server = serving(f"unix:{path}")
        happened = Happened(server)
        assert server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        for rank in range(2):
            own = {"client": "x", "session": f"s{rank}", "rank": rank, "pid": rank + 1}
            ScriptedTraining(server.address, Script(own=True, hello=own, fields=own), session=f"s{rank}")
        happened.wait(Event.STOPPED, 2)
        assert sorted(each.info.rank for each in server.all()) == [0, 1]
        assert {each.info.address for each in server.all()} == {"unix"}
        server.close(terminate=True)
        assert not path.exists()

    def test_one_that_is_listened_on_is_not_taken_over(self, serving: Callable[..., Server], tmp_path: Path) -> None:
        host = f"unix:{tmp_path}/tdbg.sock"
        serving(host)
        assert "in use" in complaint(lambda: serve(host)).what

    def test_one_that_a_dead_process_left_is(self, serving: Callable[..., Server], tmp_path: Path) -> None:
        path = tmp_path / "tdbg.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        server = serving(f"unix:{path}")
        assert ScriptedClient(server.address).hello().version_matched

    @pytest.mark.parametrize("name", ["no/such/directory/x.sock", "x" * 200, "file"])
    def test_paths_that_will_not_do(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").write_text("mine")
        complaint(lambda: serve(f"unix:{tmp_path}/{name}"))
        assert (tmp_path / "file").read_text() == "mine"


class TestClose:
    """Nothing hangs, and trainings go on or end."""

    def test_lets_trainings_that_wait_go_on(self, server: Server, happened: Happened) -> None:
        own = {"client": "x", "session": "s1"}
        made = ScriptedTraining(server.address, Script(own=True, hello=own, fields=own), session="s1")
        happened.wait(Event.STOPPED)
        server.close()
        made.join()
        assert not made.exited
        assert made.step >= 0

    def test_ends_trainings_when_asked_to(self, server: Server, happened: Happened) -> None:
        made = ScriptedTraining(server.address)
        training = happened.training(Event.STOPPED)
        server.close(terminate=True)
        made.join()
        assert made.exited
        assert training.phase is Phase.DONE

    def test_twice_and_with_clients_in_any_state(self, server: Server, happened: Happened) -> None:
        ScriptedClient(server.address).hello()
        ScriptedClient(server.address).hello("9.0", device_name="1:0")
        ScriptedTraining(server.address, Script(hello={"device_name": "2:0"}))
        happened.wait(Event.STOPPED)
        server.close()
        server.close()
        port = int(server.address.rpartition(":")[2])
        serve(port=port).close()

    def test_a_program_that_forgets_it_ends_all_the_same(self) -> None:
        code = (
            "import threading\n"
            "from tui_debugger.live.server import serve\n"
            "from tui_debugger.live.wire import Event\n"
            "from tests.live.scripted import ScriptedTraining\n"
            "server, stopped = serve(port=0), threading.Event()\n"
            "server.listen(lambda training, event: stopped.set() if event is Event.STOPPED else None)\n"
            "training = ScriptedTraining(server.address)\n"
            "assert stopped.wait(20)\n"
            "print('waits')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
        )
        assert done.stdout == "waits\n"
        assert done.returncode == 0, done.stderr


def test_limits_are_named_without_loading_grpc() -> None:
    code = "import sys; from tui_debugger.live.server import ServerLimits; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
