"""``tdbg listen``: waits for trainings, with or without a screen; opens the server and the session for both."""

from __future__ import annotations

import argparse
import gc
import os
import re
import secrets
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.cli.listen_log import ANSWER
from tui_debugger.cli.open_ import add_common, require_terminal
from tui_debugger.cli.options import Commands, add_judging, configured, flag, given_watchpoints, screen_config, whole
from tui_debugger.errors import TdbgError
from tui_debugger.opener import METADATA_LIMIT, read_given
from tui_debugger.text.writer import write_data, write_lines

if TYPE_CHECKING:
    from tui_debugger.config import Config
    from tui_debugger.live.server.serving import Certificate
    from tui_debugger.model import Watchpoint
    from tui_debugger.session.live import LiveSession
    from tui_debugger.tui.app import TdbgApp


def open_live(arguments: Namespace) -> LiveSession:
    """Listens; closing the session at the end of the command lets every training go on.

    Raises TdbgError if the address is taken, anybody could connect without a token, or values have no place.
    """
    from tui_debugger.live.server import serve
    from tui_debugger.session.live import LiveSession

    changes = configured(arguments).recommended
    trainings = serve(
        arguments.host,
        arguments.port,
        token=arguments.token,
        allow_unauthenticated=arguments.allow_unauthenticated,
        certificate=_certificate(arguments.tls_cert, arguments.tls_key),
    )
    try:
        session = LiveSession(trainings, spool_limit=arguments.spool_limit, source_map=arguments.source_map)
    except BaseException:
        trainings.close()
        raise
    session.recommended_changes = changes
    arguments.at_exit.callback(session.close)
    return session


def _certificate(chain: Path | None, key: Path | None) -> Certificate | None:
    """Reads ``--tls-cert`` and ``--tls-key``. Raises TdbgError if one is missing or unreadable."""
    if chain is None and key is None:
        return None
    from tui_debugger.live.server.serving import Certificate

    if chain is None or key is None:
        there, missing = ("--tls-key", "--tls-cert") if chain is None else ("--tls-cert", "--tls-key")
        raise TdbgError(f"{there} needs {missing}, too", where=str(key or chain), hint=f"add {missing} FILE")
    return Certificate(_pem(chain, "CERTIFICATE"), _pem(key, "PRIVATE KEY"))


def _pem(path: Path, kind: str) -> bytes:
    try:
        found = read_given(path, METADATA_LIMIT)
    except OSError as error:
        raise TdbgError(
            f"cannot be read: {error.strerror}", where=str(path), hint=f"name a file in PEM with a {kind.lower()}"
        ) from None
    if f"{kind}-----".encode() not in found:
        raise TdbgError(f"holds no {kind.lower()}", where=str(path), hint="name a file in PEM")
    return found


def exposed(arguments: Namespace) -> str:
    """Returns a warning if other machines can reach the server, else an empty text."""
    host: str = arguments.host
    if host.startswith(("unix:", "127.")) or host in {"localhost", "::1", "[::1]"}:
        return ""
    open_to_all = arguments.allow_unauthenticated or not arguments.token
    who = ", and any process that reaches this port can pose as a training" if open_to_all else ""
    sent = "encrypted" if arguments.tls_cert is not None else "not encrypted"
    return f"listens at {host}, not at this machine alone: what trainings send is {sent}{who}"


LOOK: Final = 1.0
"""Seconds between two checks that a training still runs; its events are noticed at once."""


def run_screen(arguments: Namespace) -> int:
    """Listens and runs the screen; returns the exit code.

    Raises TdbgError if the address cannot be used, a --watch text or file is wrong, or there is no terminal.
    """
    config = screen_config(arguments)
    watches = given_watchpoints(arguments)
    require_terminal()
    from tui_debugger.tui.job_control import leave_to_stand_in

    leave_to_stand_in()  # Ctrl-Z stops the stand-in; trainings are answered on

    session = open_live(arguments)
    return show(
        session,
        watches,
        title=f"listens at {session.address}",
        warning=exposed(arguments),
        recommended=arguments.recommended,
        config=config,
        stay=stay,
    )


def run_demo(arguments: Namespace) -> int:
    """Plays the recorded training. Raises as ``run_screen``."""
    config = screen_config(arguments)
    watches = given_watchpoints(arguments)
    require_terminal()
    from tui_debugger.tui.job_control import leave_to_stand_in

    leave_to_stand_in()  # Ctrl-Z stops the stand-in; trainings are answered on
    from tui_debugger.demo.live import playing

    apps: list[TdbgApp] = []

    def missing(text: str) -> None:
        for app in apps:
            app.note(text)

    def started(app: TdbgApp) -> None:
        apps.append(app)
        training.start()

    with playing(missing, source_map=arguments.source_map) as (session, training):
        session.recommended_changes = config.recommended
        return show(
            session,
            watches,
            title="a recorded training of MindSpore 2.0.0",
            recommended=arguments.recommended,
            config=config,
            started=started,
        )


def show(
    session: LiveSession,
    watches: Sequence[Watchpoint],
    *,
    title: str,
    recommended: bool | None,
    config: Config,
    warning: str = "",
    started: Callable[[TdbgApp], None] | None = None,
    stay: Callable[[LiveSession], None] | None = None,
) -> int:
    session.watchpoints.add_missing(watches)
    gc.disable()  # until the first frame, see ``open_.run``
    try:
        from tui_debugger.tui.app import run_live

        return run_live(
            session,
            title=title,
            warning=warning,
            recommended=recommended,
            config=config,
            started=started,
            stay=stay,
        )
    finally:
        gc.enable()


def stay(session: LiveSession) -> None:
    """Answers trainings after the screen closed, until they end by themselves, or Ctrl-C."""
    ended = threading.Event()
    unsubscribe = session.subscribe(lambda _: ended.set())
    write_lines(
        "tdbg: the training goes on without watchpoints; this process stays until its end, because MindSpore ends",
        "tdbg: a training that gets no answer (Ctrl-C leaves, and with it the training ends)",
        flush=True,
    )
    try:
        while session.dependents():
            ended.wait(LOOK)
            ended.clear()
    finally:
        unsubscribe()


DESCRIPTION = """\
Waits for training processes that attach: MindSpore 1.1 to 2.3 by its own
debugger protocol, PyTorch and any Python loop through tdbg's client. Several
processes of one run are several ranks. With --no-screen, for batch jobs, the
watchpoints are judged while the training runs. Of a step with findings stdout
gets the origins, then a line with counts (--all-hits: every finding). What is
not read in time never makes a training wait: it is counted. At the end the
training is let go.
"""
EPILOG = """\
how a training finds its way here:
  MindSpore           ENABLE_MS_DEBUGGER=1
                      MS_DEBUGGER_HOST=... MS_DEBUGGER_PORT=...
  PyTorch and others  TDBG_HOST=... TDBG_PORT=...
                      (TDBG_TOKEN=... TDBG_TLS_CA=...)

exit codes with --no-screen:
  0    clean: no finding in what was judged, and something was
  1    a finding; it outranks "cannot judge"
  2    cannot judge: no training came, it died or was lost before --steps, no
       step ran, something that ran was not recorded or not judged, a watchpoint
       of --watch or --watch-file that looked at no tensor, --save could not
       write everything, stdout could not be written; a wrong argument
  130  interrupted: the training is let go, what was found is summed up

examples:
  tdbg listen
  tdbg listen --no-screen --recommended --stop-on-hit --save nan-dump
  tdbg listen --no-screen --watch 'GV abs_mean_lt=1e-9' --steps 100 --json
"""
_SIZE = re.compile(r"(\d{1,12})\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BATCH_ONLY = ("steps", "stop_on_hit", "log_hits", "save", "all_hits", "json", "timeout", "ranks", "fail_on")


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "listen",
        help="attach to training that runs",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_address(parser)
    add_common(parser)
    parser.add_argument(
        "--spool-limit",
        type=size,
        default=4 << 30,
        metavar="SIZE",
        help="most room on disk for what trainings send, for example 500M (default: 4G)",
    )
    _add_batch(parser)
    parser.set_defaults(run=_run)


def _add_address(parser: argparse.ArgumentParser) -> None:
    address = parser.add_argument_group("where to listen")
    address.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="an address of this machine, or unix:PATH (default: 127.0.0.1, which no other machine can reach)",
    )
    address.add_argument(
        "--port",
        type=whole("a port from 0 to 65535", 0, 65535),
        default=50051,
        metavar="N",
        help="default: 50051; 0: any that is free",
    )
    address.add_argument(
        "--token-from",
        default="TDBG_TOKEN",
        metavar="VARIABLE",
        help="the environment variable with the token that our clients have to show when others can reach the port",
    )
    flag(
        address,
        "--allow-unauthenticated",
        "let clients in that show no token, such as MindSpore's, although others can reach the port",
    )
    flag(address, "--new-token", "print a token that cannot be guessed, and end")
    address.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="encrypt connections by TLS: the certificate in PEM (with those that signed it); our clients find what "
        "vouches for it by TDBG_TLS_CA, MindSpore's client cannot",
    )
    address.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key in PEM")


def _add_batch(parser: argparse.ArgumentParser) -> None:
    batch = parser.add_argument_group("without a screen")
    flag(batch, "--no-screen", "no screen: for batch jobs")
    batch.add_argument(
        "--steps", type=whole("a number of steps from 1 on", 1), metavar="N", help="let the training go after N steps"
    )
    hits = batch.add_mutually_exclusive_group()
    flag(
        hits,
        "--stop-on-hit",
        "end at the first finding, when all ranks have judged that step, and let the training go; a rank that has "
        f"not after {ANSWER:g} s is named",
    )
    flag(hits, "--log-hits", "go on after findings, to the end (default)")
    batch.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="write the tensors around every finding as a dump, for tdbg open; with --steps also the last step",
    )
    flag(batch, "--all-hits", "a line for every finding, not for origins and steps only")
    flag(batch, "--json", "a JSON object per line: every hit, at last a summary")
    batch.add_argument(
        "--timeout", type=seconds, metavar="S", help="give up when no training came for so many seconds (default: wait)"
    )
    batch.add_argument(
        "--ranks",
        type=whole("a number of processes from 1 on", 1),
        metavar="N",
        help="begin when so many processes are there (default: 1); those that come later are watched as well",
    )
    add_judging(batch)


def size(text: str) -> int:
    """Parses ``500M``: powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        msg = f"{text!r} is not a size such as 500M or 4G"
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]) << _UNITS[match[2].lower()]


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        msg = f"{text!r} is not a number of seconds above 0"
        raise argparse.ArgumentTypeError(msg)
    return value


def _run(arguments: Namespace) -> int:
    if arguments.new_token:
        write_data(f"{secrets.token_urlsafe(24)}\n")
        return 0
    arguments.token = os.environ.get(arguments.token_from) or None
    if arguments.no_screen:
        from tui_debugger.cli.listen_batch import run_batch

        return run_batch(arguments, lambda: open_live(arguments), exposed(arguments))
    given = [name for name in _BATCH_ONLY if getattr(arguments, name)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise TdbgError(f"{option} is about listening without a screen", where=option, hint="add --no-screen")

    return run_screen(arguments)
