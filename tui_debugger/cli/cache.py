"""``tdbg cache``: what is remembered between runs, and how to forget it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import given_path, open_session
from tui_debugger.cli.output import documented, interruptible, print_json, print_table, progress_bar
from tui_debugger.errors import TdbgError
from tui_debugger.text.numbers import moment, plural
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from tui_debugger.cache.store import StoreInfo

DESCRIPTION = """\
Tells what is remembered between runs, or forgets it.

Statistics of tensors, listings, digests and what two runs differ by are kept in
the user's cache directory, so that what was read once is not read again; values
of tensors never are, and nothing is written into a dump. A file is the same one
while its size, number, and times of modification and change are; some of what
is remembered is measured again by every command, and a difference empties the
index.

exit codes: 0 done, or the index is right; 1 verify: it was wrong; 2 cannot
judge

TDBG_CACHE_DIR    where (default: $XDG_CACHE_HOME/tdbg or ~/.cache/tdbg); empty:
                  nowhere
TDBG_CACHE_LIMIT  bytes at most, as 500M or 2 GiB (default: 1G); what was not
                  used for the longest time goes first; 0: nothing is remembered
"""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "cache",
        help="show or clear what is remembered between runs",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("info", "clear", "verify"),
        default="info",
        metavar="ACTION",
        help="info: where it lies, how large it is, what is in it (default); clear: forget all of it; verify: measure "
        "again what it says of DUMP, and forget all of it where that differs",
    )
    parser.add_argument("dump", nargs="?", type=given_path, metavar="DUMP", help="with verify: where the dump is")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of a table")
    whole: dict[str, object] = {
        "rank": None,
        "step": None,
        "filter": None,
        "graph": None,
        "jobs": None,
        "executor": None,
    }
    whole |= {"no_config": False, "ignore": (), "no_default_ignore": False}
    parser.set_defaults(run=_run, path=None, no_cache=False, **whole)


def _run(arguments: argparse.Namespace) -> int:
    from tui_debugger.cache.store import default_directory

    with documented("cache", arguments):
        directory, why = default_directory()
        arguments.path = directory
        if (arguments.action == "verify") != (arguments.dump is not None):
            raise TdbgError(
                "verify is about a dump, and nothing else is",
                where=f"tdbg cache {arguments.action}",
                hint="tdbg cache verify DUMP",
            )
        if arguments.action == "verify":
            return _verify(arguments)
        return _clear(directory, why, arguments) if arguments.action == "clear" else _info(directory, why, arguments)


def _info(directory: Path | None, why: str, arguments: argparse.Namespace) -> int:
    from tui_debugger.cache.store import DiskCache, default_limit, why_off

    limit, note = default_limit()
    found = None
    if directory is not None:
        store = DiskCache(directory, limit=limit, note=note)
        found = store.info()
        store.close()
        why = why_off()
    if arguments.json:
        print_json({**_head(arguments), "enabled": not why, **_document(found), "trouble": why or _trouble(found)})
    else:
        from tui_debugger.text.tables import Column, Cut

        first, *rows = _lines(found, why)
        print_table([Column(first[0], weight=9), Column(first[1], cut=Cut.FOLD)], rows)
    return 0


def _clear(directory: Path | None, why: str, arguments: argparse.Namespace) -> int:
    from tui_debugger.cache.store import DIRECTORY, DiskCache
    from tui_debugger.text.numbers import size

    if directory is None:
        raise TdbgError(f"there is nothing to clear: {why}", where="the cache directory", hint=f"set {DIRECTORY}")
    cleared = DiskCache(directory).clear()
    if cleared.trouble:
        raise TdbgError(
            f"not all could be cleared: {cleared.trouble}",
            where=str(directory),
            hint="remove the directory, or ask its owner to",
        )
    if arguments.json:
        print_json({**_head(arguments), "freed": cleared.freed})
    else:
        write_lines(f"{size(cleared.freed)} freed" if cleared.freed else "nothing was remembered")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    arguments.path = arguments.dump
    with progress_bar() as bar, interruptible(bar) as progress:
        found = open_session(arguments.dump, arguments, progress).verify_index(progress)
    code = 1 if found.lie else TdbgError.exit_code if found.unread else 0
    if arguments.json:
        print_json({**_head(arguments), "exit_code": code, **found._asdict()})
        return code
    known = plural(found.right + found.unread, "tensor")
    if found.lie:
        write_lines(f"the index is wrong about {found.lie}: it was emptied; check the dump again")
    elif found.unread:
        write_lines(f"cannot judge: of {known} that are remembered {found.unread:,} cannot be read any more")
    elif found.right:
        write_lines(f"the index is right: {known} measured again")
    else:
        write_lines("nothing is remembered of this dump as it is now")
    return code


def _head(arguments: argparse.Namespace) -> dict[str, Any]:
    path = None if arguments.path is None else str(arguments.path)
    return {"command": "cache", "path": path, "exit_code": 0, "action": arguments.action}


def _document(found: StoreInfo | None) -> dict[str, Any]:
    if found is None:
        return {"size": 0, "limit": 0, "kinds": {}, "oldest": None, "newest": None}
    return {
        "size": found.size,
        "limit": found.limit,
        "kinds": {name: {"entries": kind.entries, "size": kind.size} for name, kind in found.kinds.items()},
        "oldest": moment(found.oldest),
        "newest": moment(found.newest),
    }


def _lines(found: StoreInfo | None, why: str) -> list[Sequence[str]]:
    from tui_debugger.text.numbers import size

    if found is None:
        return [("index", f"none: {why}")]
    lines: list[Sequence[str]] = [
        ("index", str(found.path)),
        ("size", f"{size(found.size)} of at most {size(found.limit)}"),
    ]
    for name, kind in found.kinds.items():
        lines.append((name, f"{kind.entries:,} of {size(kind.size)} together"))
    if found.oldest is not None:
        lines.append(("used", f"between {moment(found.oldest)} and {moment(found.newest)}"))
    if why or found.trouble:
        lines.append(("trouble", why or found.trouble))
    return lines


def _trouble(found: StoreInfo | None) -> str:
    return "" if found is None else found.trouble
