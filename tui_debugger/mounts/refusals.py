"""Answers of stores that are not taken, and the redirects to other hosts that the user allows."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final


class RefusedError(OSError):
    """An answer of a store that is not taken; to ask once more would not help. ``strerror`` says why."""

    def __init__(self, why: str) -> None:
        """``why`` is a sentence."""
        super().__init__(errno.EIO, why)


class ElsewhereError(RefusedError):
    """A server redirects to another host, and nobody allowed that.

    Attributes:
        host: the other one, with its port where that is not the usual one.
    """

    def __init__(self, host: str) -> None:
        """``host`` is what the option would have to name."""
        super().__init__(f"the server redirects to another host, {host}; only --redirect-to {host} allows that")
        self.host = host


_redirects: Final[set[str]] = set()


def allow_redirects(hosts: Iterable[str], *, besides: bool = False) -> None:
    """Lets servers redirect to some other hosts (``HOST`` or ``HOST:PORT``) from now on, by the user's own word.

    ``besides``: what was allowed before stays allowed.
    """
    if not besides:
        _redirects.clear()
    _redirects.update(map(str.lower, hosts))


def may_redirect_to(host: str) -> bool:
    """Tells whether servers may redirect to a host."""
    return host.lower() in _redirects
