"""``tdbg config --cache``: the index of statistics."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import open_session
from tui_debugger.cli.output import Answer, outcome_of, print_table
from tui_debugger.errors import TdbgError
from tui_debugger.text.documents import row_of
from tui_debugger.text.numbers import moment, plural
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from tui_debugger.cache.store import StoreInfo
    from tui_debugger.model import ProgressFn
    from tui_debugger.session.session import VerifiedIndex


def index(arguments: Namespace, progress: ProgressFn) -> Answer:
    """Shows, empties or verifies the index. Raises TdbgError if the words after ``--cache`` are no action."""
    from tui_debugger.cache.store import default_directory

    arguments.path, why = default_directory()
    match arguments.cache:
        case [] | ["info"]:
            return _info(arguments.path, why)
        case ["clear"]:
            return _clear(arguments.path, why)
        case ["verify", dump]:
            arguments.path = Path(dump)
            return _verify(open_session(arguments, progress).verify_index(progress))
        case words:
            raise TdbgError(
                f"this is no action of the index: {' '.join(words)}",
                where=" ".join(["--cache", *words]),
                hint="tdbg config --cache, tdbg config --cache clear, tdbg config --cache verify DUMP",
            )


def _info(directory: Path | None, why: str) -> Answer:
    from tui_debugger.cache.store import DiskCache, default_limit, why_off
    from tui_debugger.text.tables import Column, Cut

    limit, note = default_limit()
    found = None
    if directory is not None:
        store = DiskCache(directory, limit=limit, note=note)
        found = store.info()
        store.close()
        why = why_off()
    first, *rows = _lines(found, why)
    trouble = why or ("" if found is None else found.trouble)
    return Answer(
        document=lambda: {"action": "info", "enabled": not why, **_document(found), "trouble": trouble},
        show=lambda _: print_table([Column(first[0], weight=9), Column(first[1], cut=Cut.FOLD)], rows),
    )


def _clear(directory: Path | None, why: str) -> Answer:
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
    return Answer(
        document=lambda: {"action": "clear", "freed": cleared.freed},
        show=lambda _: write_lines(f"{size(cleared.freed)} freed" if cleared.freed else "nothing was remembered"),
    )


def _verify(found: VerifiedIndex) -> Answer:
    known = plural(found.right + found.unread, "tensor")
    if found.lie:
        text = f"the index is wrong about {found.lie}: it was emptied; check the dump again"
    elif found.unread:
        text = f"cannot judge: of {known} that are remembered {found.unread:,} cannot be read any more"
    elif found.right:
        text = f"the index is right: {known} measured again"
    else:
        text = "nothing is remembered of this dump as it is now"
    return Answer(
        code=outcome_of(finding=found.lie, doubt=found.unread),
        document=lambda: {"action": "verify", **found._asdict()},
        show=lambda _: write_lines(text),
    )


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
