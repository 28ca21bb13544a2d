"""``tdbg open``, and what every command that opens the screen shares."""

from __future__ import annotations

import argparse
import gc
import math
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_appearance,
    add_command,
    add_comparison,
    add_config,
    add_opening,
    add_watches,
    add_work,
    at_least_zero,
    begin_opening,
    flag,
    given_path,
    given_watchpoints,
    refuse_comparison,
    repeated,
    screen_config,
    workers_of,
    working_directory,
)
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.config import Config
    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.model import ProgressFn, Watchpoint
    from tui_debugger.session import Session
    from tui_debugger.session.comparison import ComparedRun


def add_options(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--rank", type=int, metavar="N", help="start at this rank")
    parser.add_argument("--step", type=int, metavar="N", help="start at this step")
    flag(parser, "--no-state", "do not restore or keep watchpoints for this dump, nor remember that it was opened")
    add_opening(parser)
    add_work(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every screen, including the screen of ``listen``."""
    recommended = parser.add_mutually_exclusive_group()
    recommended.add_argument(
        "--recommended",
        action="store_true",
        default=None,
        help="add the recommended watchpoints that are missing (a run that never had any gets them anyway)",
    )
    recommended.add_argument(
        "--no-recommended", dest="recommended", action="store_false", help="do not add the recommended watchpoints"
    )
    add_watches(
        parser,
        "add a watchpoint, for example 'TL abs_mean_gt=0.001 @ category=gradient' (may be repeated)",
        "add the watchpoints of a TOML file (may be repeated)",
    )
    repeated(
        parser,
        "--source-map",
        "OLD=NEW",
        "where the training's source tree lies on this machine (may be repeated)",
        source_map,
    )
    add_appearance(parser)
    add_config(parser)


def source_map(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new


def run(path: Path | None, arguments: Namespace, *, remember: bool = False) -> int:
    """Opens the screen and returns the exit code.

    A ``path`` with several dumps opens a start page of them; None opens a start page with recent dumps and those below
    the working directory. ``remember``: the dump becomes a recent one. Raises TdbgError if the path holds no dump, a
    --watch text or file or the configuration is wrong, or stdout is no terminal.
    """
    config = screen_config(arguments)
    begin_opening(arguments, config)
    watches = given_watchpoints(arguments)
    more: Sequence[Path] = getattr(arguments, "more", ())
    there = _the_one_dump(path, more)
    against = _against(arguments)
    require_terminal()
    opening = partial(opener, arguments=arguments, watches=watches, config=config, remember=remember)
    gc.disable()  # until the first frame: everything made before it stays, and looking for garbage takes its time
    try:
        from tui_debugger.tui.app import StartSettings, run_app

        return run_app(
            opening(there)
            if there is not None
            else StartSettings(path or working_directory(), opening, with_recent=path is None),
            title=str(path or ""),
            judged=_remember_verdict if remember and not more else None,
            recommended=arguments.recommended,
            rank=arguments.rank,
            step=arguments.step,
            config=config,
            against=against,
            opening=opening,
        )
    finally:
        gc.enable()


def _the_one_dump(path: Path | None, more: Sequence[Path] = ()) -> Path | None:
    """Returns the path if it holds one dump, as ``more`` must; None if the user has to choose one on the screen.

    Looks at a few directories only, so that a wrong path is answered in the shell. Raises NotADumpError if there is no
    dump, or there are several and no screen to choose one on.
    """
    from tui_debugger.errors import SeveralDumpsError
    from tui_debugger.sources.registry import find_run

    if path is None:
        return None
    try:
        for each in (path, *more):
            find_run(each)
    except SeveralDumpsError:
        if on_terminal() and not more:
            return None
        raise
    return path


def _against(arguments: Namespace) -> ComparedRun | None:
    """Returns the other run and the options of the comparison; None without ``--against``.

    Raises TdbgError if there is not one dump, or a name is mapped without another run.
    """
    other: Path | None = getattr(arguments, "against", None)
    if other is None:
        refuse_comparison(arguments, ("rtol", "atol"), hint="name the other one with --against")
        return None
    from tui_debugger.cli.diff_runs import how_compared
    from tui_debugger.session.comparison import ComparedRun
    from tui_debugger.sources.registry import find_run

    find_run(other)
    if arguments.noise is not None:
        find_run(arguments.noise)
    repeat = str(arguments.noise) if arguments.noise is not None else ""
    return ComparedRun(str(other), how_compared(arguments), repeat)


def on_terminal() -> bool:
    """Tells whether there is a terminal for the screen."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))  # Textual draws on stderr


def require_terminal() -> None:
    """Raises TdbgError if there is no terminal."""
    if not on_terminal():
        raise TdbgError("the screen needs a terminal", hint="run it in an interactive shell, in ssh -t, tmux or screen")


def opener(
    path: Path,
    arguments: Namespace,
    watches: Sequence[Watchpoint],
    config: Config,
    *,
    remember: bool = False,
) -> Callable[[ProgressFn], Session]:
    """Returns the slow part, for a worker: it reads the first rank and restores the watchpoints."""

    def open_session(progress: ProgressFn) -> Session:
        from tui_debugger.session.session import open_dump

        session = open_dump(
            path,
            workers=workers_of(arguments),
            remember=not arguments.no_cache,
            keep_watchpoints=not arguments.no_state,
            source_map=arguments.source_map,
            more=getattr(arguments, "more", ()),
            enter_environments=getattr(arguments, "no_default_ignore", False),
        )
        session.recommended_changes = config.recommended
        session.open(progress)
        session.watchpoints.add_missing(watches)
        if remember and not getattr(arguments, "more", ()):
            from tui_debugger.session.dumps import RecentDumps

            RecentDumps().opened(session.info.path)
        return session

    return open_session


def _remember_verdict(path: str, headline: Headline) -> None:
    from tui_debugger.session.dumps import LastVerdict, RecentDumps

    RecentDumps().judged(path, LastVerdict.of(headline))


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "open",
        "open a dump directory in the terminal",
        "Opens a tensor dump. PATH may be the dump directory, one or two levels above it, "
        "or a part of it (a rank, graph, step, checkpoint, file), which is shown alone. Where several dumps lie below "
        "PATH, a page lists them; without PATH it lists the dumps that were opened before and those below the working "
        "directory.",
        without_path="a page lists dumps",
        several=True,
    )
    add_options(parser)
    runs = parser.add_argument_group("two runs")
    runs.add_argument(
        "--against",
        type=given_path,
        metavar="B",
        help="compare with this run at once, as D does on the screen (tdbg diff)",
    )
    add_comparison(runs)
    runs.add_argument("--rtol", type=at_least_zero(math.inf), default=0.0, metavar="X", help="relative tolerance")
    runs.add_argument("--atol", type=at_least_zero(math.inf), default=0.0, metavar="X", help="absolute tolerance")
    parser.set_defaults(run=_run)


def _run(arguments: Namespace) -> int:
    return run(arguments.path, arguments, remember=not arguments.no_state)
