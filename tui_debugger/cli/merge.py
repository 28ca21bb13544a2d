"""``tdbg merge``: puts together what the jobs of ``tdbg check --shard`` measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import add_command, add_redirects
from tui_debugger.cli.output import documented, note, print_json, print_text
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Sequence

    from tui_debugger.check.shards import IndexPart

DESCRIPTION = """\
Puts the files that the jobs of tdbg check --shard wrote into the index of
statistics, so that tdbg check answers without reading a tensor again. The dump
must lie at the same path as it did for the jobs. What changed since is read
again.
"""
EPILOG = """\
exit codes:
  0    all parts are in the index
  2    a part is missing, damaged or of another dump; there is no index, or it
       is too small

example, of four jobs:
  tdbg check DUMP --shard 1/4     # and 2/4, 3/4, 4/4, each on its machine
  tdbg merge DUMP tdbg-part-*-of-4
  tdbg check DUMP
"""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_command(commands, "merge", "put together what several jobs measured", DESCRIPTION, EPILOG)
    parser.add_argument("parts", nargs="+", type=Path, metavar="PART", help="a file that tdbg check --shard wrote")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_redirects(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with documented("merge", arguments):
        return _merge(arguments)


def _merge(arguments: argparse.Namespace) -> int:
    from tui_debugger import __version__
    from tui_debugger.cache.store import default_directory, default_store, why_off
    from tui_debugger.check.shards import merge_parts
    from tui_debugger.sources.registry import open_source
    from tui_debugger.text.clean import clean
    from tui_debugger.text.numbers import named, plural

    source = open_source(arguments.path)
    run = Path(source.info.path).absolute()
    source.close()
    parts = [_part(path, run) for path in arguments.parts]
    missing = _missing(parts, arguments.parts)
    store = default_store(run)
    if store is None:
        why = why_off() or default_directory(run)[1]
        raise TdbgError(f"there is no index: {why}", where="TDBG_CACHE_DIR", hint="see tdbg cache --help")
    if store.note:
        note(store.note)
    lost = merge_parts(store, parts)
    trouble = store.trouble
    store.close()
    entries = sum(len(part.entries) for part in parts)
    code = TdbgError.exit_code if missing or lost else 0
    if arguments.json:
        print_json(
            {
                "command": "merge",
                "path": str(arguments.path),
                "exit_code": code,
                "parts": [
                    {"part": str(path), "number": part.shard, "of": part.of}
                    for path, part in zip(arguments.parts, parts, strict=True)
                ],
                "missing": missing,
                "entries": entries,
                "not_kept": lost,
                "version": __version__,
            }
        )
        return code
    print_text(f"{plural(len(parts), 'part')} of {parts[0].of} merged into the index")
    if missing:
        print_text(f"{named('part', missing)} of {parts[0].of} is missing: tdbg check will read its tensors")
    if lost:
        room = clean(trouble) or "it may not be that large (TDBG_CACHE_LIMIT)"
        print_text(f"{lost:,} of {entries:,} blocks of statistics were not kept: {room}")
    return code


def _part(path: Path, run: Path) -> IndexPart:
    """Reads a part.

    Raises:
        TdbgError: there is none, or it is of another dump.
    """
    from tui_debugger.check.shards import LARGEST, unpack_part
    from tui_debugger.opener import read_regular, why_not

    try:
        part = unpack_part(read_regular(path, LARGEST))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise TdbgError(
            f"the part cannot be read: {'no such file' if missing else why_not(path, error)}",
            where=str(path),
            hint="name the file that tdbg check --shard wrote",
        ) from error
    if part is None:
        raise TdbgError(
            "this is no part that tdbg check --shard wrote, or it is damaged, or of another version",
            where=str(path),
            hint="let its job run again",
        )
    if Path(part.run) != run:
        raise TdbgError(
            f"this part is of another dump: {part.run}",
            where=str(path),
            hint="merge it there; the dump must lie at the same path for all jobs",
        )
    return part


def _missing(parts: Sequence[IndexPart], paths: Sequence[Path]) -> list[int]:
    """Returns the numbers of the parts that were not given.

    Raises:
        TdbgError: they are of different divisions.
    """
    for part, path in zip(parts, paths, strict=True):
        if part.of != parts[0].of:
            raise TdbgError(
                f"this is a part of {part.of}, {paths[0]} is one of {parts[0].of}",
                where=str(path),
                hint="merge parts of one division at a time",
            )
    return sorted(set(range(1, parts[0].of + 1)) - {part.shard for part in parts})
