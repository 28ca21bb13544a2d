"""A server over ssh is trusted when ``ssh`` knows its key, and not before."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.cli.running import run

paramiko: Any = pytest.importorskip("paramiko")
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[tuple[int, Any]]:
    """The port of a server that lets nobody in, and its key."""
    key, over = paramiko.ECDSAKey.generate(), Event()
    listening = socket.create_server(("127.0.0.1", 0))
    transports: list[Any] = []

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transports.append(transport)
            transport.add_server_key(key)
            with suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(server=paramiko.ServerInterface())

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1], key
    over.set()
    with suppress(OSError):
        socket.create_connection(listening.getsockname(), 5).close()
    thread.join(10)
    listening.close()
    for transport in transports:
        transport.close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def test_a_server_that_ssh_does_not_know_is_not_trusted(capsys: Capsys, server: tuple[int, Any]) -> None:
    port, _ = server
    answer = run(capsys, "check", f"ssh://somebody@127.0.0.1:{port}/run")
    assert answer.code == 2
    assert "not in ~/.ssh/known_hosts" in answer.err


def test_one_that_it_knows_is_asked_to_let_us_in(capsys: Capsys, server: tuple[int, Any], home: Path) -> None:
    port, key = server
    (home / ".ssh").mkdir()
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    answer = run(capsys, "check", f"ssh://somebody@127.0.0.1:{port}/run")
    assert answer.code == 2
    assert "known_hosts" not in answer.err
    assert "uthentication" in answer.err
