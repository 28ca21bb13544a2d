"""Answers of stores that are refused, and the redirects to other hosts that the user allows."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final


class RefusedError(OSError):
    """An answer of a store that is refused, and not asked for again; ``strerror`` tells the reason as a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EIO, why)


class ElsewhereError(RefusedError):
    """A server redirects to another host without the user's permission."""

    def __init__(self, host: str) -> None:
        """``host`` is the value that the option would need."""
        super().__init__(f"the server redirects to another host, {host}; only --redirect-to {host} allows that")
        self.host = host
        """Target host, with its port where that is not the usual one."""


_redirects: Final[set[str]] = set()


def allow_redirects(hosts: Iterable[str], *, besides: bool = False) -> None:
    """Lets servers redirect to these hosts (``HOST`` or ``HOST:PORT``), which the user named.

    ``besides``: hosts that were allowed before stay allowed.
    """
    if not besides:
        _redirects.clear()
    _redirects.update(map(str.lower, hosts))


def may_redirect_to(host: str) -> bool:
    return host.lower() in _redirects
