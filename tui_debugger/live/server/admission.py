"""Who may call: the token, and when it is asked for."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

UNIX = "unix:"


def is_private(host: str) -> bool:
    """Whether only this machine can reach an address: loopback, or a Unix socket."""
    if host.startswith(UNIX) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets calls in.

    Attributes:
        token: what clients of ours have to show; None: there is none.
        private: only this machine can reach the server.
        allow_unauthenticated: clients that show no token (MindSpore's cannot) come in although others reach it.
    """

    token: str | None
    private: bool
    allow_unauthenticated: bool

    def refusal(self, shown: str | bytes | None) -> str:
        """Why a call is turned away, empty when it is let in. A wrong token is never let in."""
        if shown is None:
            if self.private or self.allow_unauthenticated:
                return ""
            return "it shows no token; MindSpore's client cannot, and is let in with --allow-unauthenticated only"
        if self.token is None:
            return ""
        given = shown.encode() if isinstance(shown, str) else shown
        return "" if hmac.compare_digest(given, self.token.encode()) else "it shows a wrong token"

    def own_refusal(self, shown: str | bytes | None) -> str:
        """As ``refusal`` for a client of ours, which can show a token and so has to."""
        if shown is None and self.token is not None and not self.private:
            return "it shows no token: set TDBG_TOKEN where it runs"
        return self.refusal(shown)
