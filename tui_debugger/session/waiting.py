"""What somebody has to set so that a training finds the debugger."""

from __future__ import annotations

import socket
from typing import Final

_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - recognised, not bound to
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def waiting_text(address: str) -> str:
    """The environment variables to copy, a line for each kind of training.

    Args:
        address: where the server listens: ``127.0.0.1:50051``, ``unix:/run/tdbg.sock``.
    """
    if address.startswith("unix:"):
        return f"PyTorch and others:  TDBG_HOST={address}"
    host, _, port = address.rpartition(":")
    token = "" if host in _LOCAL else " TDBG_TOKEN=..."
    host = this_machine() if host in _EVERYWHERE else host
    lines = []
    if ":" not in host:
        there = "127.0.0.1" if host == "localhost" else host
        lines.append(f"MindSpore 1.1 to 2.3:  ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST={there} MS_DEBUGGER_PORT={port}")
    lines.append(f"PyTorch and others:    TDBG_HOST={host} TDBG_PORT={port}{token}")
    return "\n".join(lines)


def this_machine() -> str:
    """An address of this machine, as far as it knows one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "ADDRESS-OF-THIS-MACHINE"
