"""The one line that people see when a debugger comes or goes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tui_debugger.errors import TdbgError
from tui_debugger.text.writer import write_errors


class Notice:
    """Writes lines to the standard error, never the same twice in a row, and never fails."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        """Says something."""
        if text == self._last:
            return
        self._last = text
        with contextlib.suppress(Exception):  # no standard error, a closed pipe ...
            write_errors(f"tdbg: {text}")


HOST: Final = "TDBG_HOST"
PORT: Final = "TDBG_PORT"
TOKEN: Final = "TDBG_TOKEN"  # noqa: S105 - the name of the variable
DEFAULT_PORT: Final = 50051
DEFAULT_HOST: Final = "127.0.0.1"
TIMEOUT: Final = 5.0
_UNIX: Final = "unix:"
_IPV6: Final = re.compile(r"\[[0-9A-Fa-f:.]+(%\w+)?\]")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a training reaches its debugger.

    Attributes:
        address: ``host:port`` or ``unix:/path``; empty: there is none, and nothing is started.
        token: shown to the debugger with every call; may be empty.
        timeout: seconds after which a debugger that cannot be reached, or gives no sign of life, is given up.
    """

    address: str = ""
    token: str = ""
    timeout: float = TIMEOUT


def settings(
    address: str | None = None, *, timeout: float = TIMEOUT, environment: Mapping[str, str] | None = None
) -> Settings:
    """The address given, else that of the environment (``TDBG_HOST``, ``TDBG_PORT``), else none.

    Either variable alone is enough: the port is 50051 and the host 127.0.0.1 unless given. ``TDBG_HOST`` may be
    ``unix:/path``. ``TDBG_TOKEN`` is the token.

    Args:
        address: ``host:port``, ``host``, ``[::1]:port`` or ``unix:/path``; empty: off, whatever the environment says.
        timeout: see ``Settings``.
        environment: instead of ``os.environ``.

    A wrong address in the environment is told in one line, and then there is none.

    Raises:
        TdbgError: ``address`` is none.
    """
    variables = os.environ if environment is None else environment
    if timeout <= 0:
        raise TdbgError(f"the time-out must be above 0, not {timeout}", hint=f"{TIMEOUT:g} seconds is usual")
    token = variables.get(TOKEN, "")
    if address is not None:
        return Settings(_checked(address.strip()), token, timeout)
    try:
        return Settings(_checked(_from_environment(variables)), token, timeout)
    except TdbgError as error:  # set for a whole cluster, perhaps: no reason for a training not to start
        Notice()(f"{HOST} and {PORT} are {error.what} ({error.where}); training goes on without a debugger")
        return Settings("", token, timeout)


def _from_environment(variables: Mapping[str, str]) -> str:
    host, port = variables.get(HOST, "").strip(), variables.get(PORT, "").strip()
    if not host and not port:
        return ""
    host = host or DEFAULT_HOST
    if host.startswith(_UNIX):
        return host
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port or DEFAULT_PORT}"


def _checked(address: str) -> str:
    if not address:
        return ""
    if address.startswith(_UNIX):
        if len(address) == len(_UNIX):
            raise TdbgError("the path of the socket is empty", where=address, hint="write unix:/run/tdbg.sock")
        return address
    host, port = _split(address)
    bad_host = not host or (":" in host and not _IPV6.fullmatch(host))
    if bad_host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise TdbgError(
            "not the address of a debugger", where=address, hint="write host:port (127.0.0.1:50051) or unix:/path"
        )
    return f"{host}:{int(port)}"


def _split(address: str) -> tuple[str, str]:
    """Host and port; an address with more than one colon and no bracket is an IPv6 host alone."""
    if address.startswith("["):
        host, _, rest = address.partition("]")
        return host + "]", rest.removeprefix(":") or str(DEFAULT_PORT)
    if address.count(":") > 1:
        return f"[{address}]", str(DEFAULT_PORT)
    host, colon, port = address.partition(":")
    return host, port if colon else str(DEFAULT_PORT)
