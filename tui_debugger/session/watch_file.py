r"""Watchpoints as a TOML file: what the screen saves, ``--watch-file`` takes, and people write by hand.

One entry per watchpoint; ``watch`` is the text that ``--watch`` takes (``watch.text``), the rest is optional::

    [[watchpoint]]
    watch = 'TL abs_mean_gt=0.001 @ category=gradient'
    name = "gradients"
    enabled = true

File names of a dump may hold bytes that are no UTF-8, and TOML cannot spell the surrogates that stand for them. An
entry with such a text says ``escaped = true``: then ``\udcff`` is such a byte, and ``\\`` a backslash.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import Watchpoint
from tui_debugger.session.exporting.files import fresh_file
from tui_debugger.text.clean import clean
from tui_debugger.watch.conditions import validate
from tui_debugger.watch.text import format_watch, parse_watch

FORMAT = 1
"""Version of the file; a file that names none is of this one."""

_TITLE = (
    "# tdbg watchpoints: for `tdbg check --watch-file`, `tdbg open --watch-file`, and the watchpoint list on screen"
)
_EXAMPLE = "write [[watchpoint]] and below it watch = 'TL abs_mean_gt=0.001 @ category=gradient'"
_HEAD: Mapping[str, type] = {"format": int, "run": str, "offered": bool, "watchpoint": list}
_ENTRY: Mapping[str, type] = {"watch": str, "name": str, "enabled": bool, "escaped": bool}
_TYPES = {int: "a whole number", str: "a text in quotes", bool: "true or false", list: "written as [[watchpoint]]"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|u[0-9a-fA-F]{4}|)")

Drop = Callable[[BadWatchpointError], None]


@dataclass(frozen=True, slots=True)
class WatchFile:
    """What a watchpoint file holds.

    Attributes:
        watchpoints: in their order, numbered from 1.
        offered: whether the recommended set was offered before; only the program's own state says so.
    """

    watchpoints: tuple[Watchpoint, ...]
    offered: bool = False


def watchpoints_from(texts: Iterable[str] = (), files: Iterable[Path] = ()) -> tuple[Watchpoint, ...]:
    """The watchpoints of ``--watch`` texts and ``--watch-file`` files, with id 0.

    Raises:
        BadWatchpointError: naming the text, or the file and the entry.
    """
    found = []
    for text in texts:
        try:
            condition, params, selection = parse_watch(text)
        except BadWatchpointError as error:
            raise _located(error, "--watch", text) from None
        found.append(Watchpoint(0, condition, params, selection))
    for path in files:
        of_file = read_watch_file(path)
        if not of_file:  # beside other rules it would go unnoticed that these are gone
            raise BadWatchpointError("the file holds no watchpoint", where=clean(str(path)), hint=_EXAMPLE)
        found += of_file
    return tuple(found)


def read_watch_file(path: Path) -> tuple[Watchpoint, ...]:
    """The watchpoints of a file, numbered from 1, disabled ones included.

    Raises:
        BadWatchpointError: the file cannot be read, is no TOML, or an entry is wrong; nothing is ever ignored.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadWatchpointError(
            f"the watchpoint file cannot be read: {reason}", where=clean(str(path)), hint="check the path"
        ) from None
    return parse_watch_file(data, clean(str(path))).watchpoints


def parse_watch_file(data: bytes, where: str, drop: Drop | None = None) -> WatchFile:
    """Reads the bytes of a watchpoint file.

    Args:
        data: the bytes.
        where: name of the file, for errors.
        drop: takes the error of a wrong entry, which is then left out; None raises it.

    Raises:
        BadWatchpointError: no TOML, an unknown key, a value of a wrong type, another version, or a wrong entry.
    """
    document = _document(data, where)
    _check_keys(document, _HEAD, where)
    if document.get("format", FORMAT) != FORMAT:
        raise BadWatchpointError(
            f"the file has format {document['format']}", where=where, hint=f"this version of tdbg reads format {FORMAT}"
        )
    entries = enumerate(document.get("watchpoint", ()), 1)
    read = [_entry_or_drop(entry, f"{where}, watchpoint {number}", drop) for number, entry in entries]
    kept = [watchpoint for watchpoint in read if watchpoint is not None]
    numbered = tuple(replace(watchpoint, id=number) for number, watchpoint in enumerate(kept, 1))
    return WatchFile(numbered, document.get("offered", False))


def format_watch_file(watchpoints: Iterable[Watchpoint], head: Mapping[str, str | bool] | None = None) -> str:
    """The text of a watchpoint file; ``parse_watch_file`` gives every watchpoint back, its number aside.

    Args:
        watchpoints: in their order.
        head: what the program's own state keeps beside them: ``run`` and ``offered``.
    """
    lines = [_TITLE, f"format = {FORMAT}"]
    for key, value in (head or {}).items():
        text = str(value).lower() if isinstance(value, bool) else _string(clean(value))
        lines.append(f"{key} = {text}")
    for watchpoint in watchpoints:
        lines += ["", "[[watchpoint]]", *_entry(watchpoint)]
    return "\n".join(lines) + "\n"


def write_watch_file(watchpoints: Iterable[Watchpoint], path: Path, dump: Path) -> Path:
    """Writes a new watchpoint file and returns its path.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    with fresh_file(path, dump, what="the watchpoints") as file:
        file.write(format_watch_file(watchpoints).encode("utf-8"))
    return path.expanduser()


def _document(data: bytes, where: str) -> dict[str, Any]:
    # Loaded where it is used: starting the program needs no parser. tomli is the same module for Python 3.10.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: dict[str, Any] = toml.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadWatchpointError(
            f"the file is no UTF-8 text: byte {error.start} cannot be read", where=where, hint="save it as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        raise BadWatchpointError(f"the file is no TOML: {clean(str(error))}", where=where, hint=_EXAMPLE) from None
    return document


def _check_keys(table: Mapping[str, Any], known: Mapping[str, type], where: str) -> None:
    for key, value in table.items():
        if key not in known:
            raise BadWatchpointError(
                f"unknown key {clean(key)!r}", where=where, hint=f"the keys are {', '.join(known)}; {_EXAMPLE}"
            )
        wanted = known[key]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise BadWatchpointError(f"{key} must be {_TYPES[wanted]}", where=where, hint=_EXAMPLE)


def _entry_or_drop(entry: Any, where: str, drop: Drop | None) -> Watchpoint | None:
    try:
        return _watchpoint(entry, where)
    except BadWatchpointError as error:
        if drop is None:
            raise
        drop(error)
        return None


def _watchpoint(entry: Any, where: str) -> Watchpoint:
    if not isinstance(entry, dict):
        raise BadWatchpointError("an entry must be a table", where=where, hint=_EXAMPLE)
    _check_keys(entry, _ENTRY, where)
    if "watch" not in entry:
        raise BadWatchpointError("an entry has no watch text", where=where, hint=_EXAMPLE)
    text, name = entry["watch"], entry.get("name", "")
    if entry.get("escaped", False):
        text, name = _unescaped(text, where), _unescaped(name, where)
    try:
        condition, params, selection = parse_watch(text)
        return Watchpoint(
            id=0,
            condition=condition,
            params=validate(condition, dict(params)),
            selection=selection,
            enabled=entry.get("enabled", True),
            name=name,
        )
    except BadWatchpointError as error:
        raise _located(error, where, text) from None


def _located(error: BadWatchpointError, where: str, text: str) -> BadWatchpointError:
    """The same mistake with its place and its whole text."""
    spot = error.where.strip()
    part = f" ({clean(spot)})" if spot and spot not in text else ""
    return BadWatchpointError(
        clean(error.what),
        where=f"{where}: {clean(text)}{part}",
        hint=error.hint or "`tdbg check --help` shows examples",
    )


def _entry(watchpoint: Watchpoint) -> list[str]:
    text, name = format_watch(watchpoint), watchpoint.name
    escaped = _SURROGATE.search(text + name) is not None
    if escaped:
        text, name = _escaped(text), _escaped(name)
    lines = [f"watch = {_string(text)}"]
    lines += [f"name = {_string(name)}"] if name else []
    lines += [] if watchpoint.enabled else ["enabled = false"]
    return lines + (["escaped = true"] if escaped else [])


def _string(text: str) -> str:
    r"""Returns a TOML string: a literal one where that keeps backslashes single, else with escapes.

    Ours, not tomli-w's: that doubles the backslashes of regular expressions, which people edit here, writes short
    entries inline in place of ``[[watchpoint]]``, and leaves C1 and bidi controls in a file that people will ``cat``.
    """
    if text.isprintable() and "'" not in text and ("\\" in text or '"' in text):
        return f"'{text}'"
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(text: str) -> str:
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\\", "\\\\"))


def _unescaped(text: str, where: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if not match[1]:
            raise BadWatchpointError(
                "a backslash stands alone in an escaped text",
                where=f"{where}: {clean(text)}",
                hint="write \\\\ for a backslash and \\udcff for the byte ff, or take escaped = true away",
            )
        return "\\" if match[1] == "\\" else chr(int(match[1][1:], 16))

    return _ESCAPE.sub(plain, text)
