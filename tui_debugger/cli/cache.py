"""``tdbg config --cache``: the index of statistics."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import open_session
from tui_debugger.cli.output import document_head, interruptible, print_json, print_table, progress_bar
from tui_debugger.errors import TdbgError
from tui_debugger.text.documents import row_of
from tui_debugger.text.numbers import moment, plural
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from tui_debugger.cache.store import StoreInfo


def run(arguments: argparse.Namespace) -> int:
    """Shows, empties or verifies the index. Raises TdbgError if the words after ``--cache`` are no action."""
    from tui_debugger.cache.store import default_directory

    arguments.path, why = default_directory()
    match arguments.cache:
        case [] | ["info"]:
            return _info(arguments.path, why, arguments)
        case ["clear"]:
            return _clear(arguments.path, why, arguments)
        case ["verify", dump]:
            return _verify(Path(dump), arguments)
        case words:
            raise TdbgError(
                f"this is no action of the index: {' '.join(words)}",
                where=" ".join(["--cache", *words]),
                hint="tdbg config --cache, tdbg config --cache clear, tdbg config --cache verify DUMP",
            )


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


def _verify(dump: Path, arguments: argparse.Namespace) -> int:
    arguments.path = dump
    with progress_bar() as bar, interruptible(bar) as progress:
        found = open_session(arguments.path, arguments, progress).verify_index(progress)
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
    return {**document_head("config", arguments.path, 0), "action": (arguments.cache or ["info"])[0]}


def _document(found: StoreInfo | None) -> dict[str, Any]:
    if found is None:
        return {"size": 0, "limit": 0, "kinds": {}, "oldest": None, "newest": None}
    return {
        **row_of(found, "size", "limit"),
        "kinds": {name: row_of(kind, "entries", "size") for name, kind in found.kinds.items()},
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
