"""What listening with and without a screen share: the server and the session."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui_debugger.session.live import LiveSession


def open_live(arguments: argparse.Namespace) -> LiveSession:
    """Listens; the session is closed when the command ends, which lets every training go on.

    Raises:
        TdbgError: the address cannot be had, anybody could come in without a token, or there is no place for values.
    """
    from tui_debugger.live.server import serve
    from tui_debugger.session.live import LiveSession

    trainings = serve(
        arguments.host,
        arguments.port,
        token=arguments.token,
        allow_unauthenticated=arguments.allow_unauthenticated,
    )
    try:
        session = LiveSession(trainings, spool_limit=arguments.spool_limit, source_map=arguments.source_map)
    except BaseException:
        trainings.close()
        raise
    arguments.at_exit.callback(session.close)
    return session


def exposed(arguments: argparse.Namespace) -> str:
    """What to warn of when others than this machine can reach the server; empty when they cannot."""
    host: str = arguments.host
    if host.startswith(("unix:", "127.")) or host in {"localhost", "::1", "[::1]"}:
        return ""
    open_to_all = arguments.allow_unauthenticated or not arguments.token
    who = ", and anybody who reaches this port can pose as a training" if open_to_all else ""
    return f"listens at {host}, not at this machine alone: what trainings send is not encrypted{who}"
