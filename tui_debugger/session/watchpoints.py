r"""Watchpoints as a TOML file, which the screen saves, ``--watch-file`` reads, and people write by hand.

One entry per watchpoint; ``watch`` is the text that ``--watch`` takes (``watch.text``), the rest is optional::

    [[watchpoint]]
    watch = 'TL abs_mean_gt=0.001 @ category=gradient'
    name = "gradients"
    enabled = true

File names of a dump may hold bytes that are no UTF-8, and TOML cannot spell the surrogates that stand for them. An
entry with such a text says ``escaped = true``: then ``\udcff`` is such a byte, and ``\\`` a backslash.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tui_debugger.errors import BadWatchpointError, reason_of
from tui_debugger.model import NodeSelection, ParamValue, Watchpoint
from tui_debugger.opener import METADATA_LIMIT, read_given
from tui_debugger.session.dumps import file_number, state_directory, write_state
from tui_debugger.session.export_files import fresh_file
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import watchpoint_name
from tui_debugger.text.numbers import plural
from tui_debugger.watch.condition_table import validate
from tui_debugger.watch.text import format_watch, parse_watch

FORMAT = 1
"""Version of the file; a file without a version counts as this one."""

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
    """The contents of a watchpoint file; ``offered`` is only in the program's own state: see ``WatchpointList``."""

    watchpoints: tuple[Watchpoint, ...]
    offered: bool = False


def watchpoints_from(texts: Iterable[str] = (), files: Iterable[Path] = ()) -> tuple[Watchpoint, ...]:
    """The watchpoints of ``--watch`` texts and files, with id 0; BadWatchpointError names the text or entry."""
    found = []
    for text in texts:
        try:
            condition, params, selection = parse_watch(text)
        except BadWatchpointError as error:
            raise _located(error, "--watch", text) from None
        found.append(Watchpoint(0, condition, params, selection))
    for path in files:
        of_file = read_watch_file(path)
        if not of_file:  # among other rules nobody would notice that these are missing
            raise BadWatchpointError("the file holds no watchpoint", where=clean(str(path)), hint=_EXAMPLE)
        found += of_file
    return tuple(found)


def read_watch_file(path: Path) -> tuple[Watchpoint, ...]:
    """The watchpoints of a file, numbered from 1, disabled ones included; BadWatchpointError: nothing is ignored."""
    try:
        data = read_given(path, METADATA_LIMIT)
    except (OSError, ValueError) as error:
        raise BadWatchpointError(
            f"the watchpoint file cannot be read: {reason_of(error)}", where=clean(str(path)), hint="check the path"
        ) from None
    return parse_watch_file(data, clean(str(path))).watchpoints


def parse_watch_file(data: bytes, where: str, drop: Drop | None = None) -> WatchFile:
    """Parses a watchpoint file; ``drop`` takes the error of a wrong entry, which is left out. None raises it."""
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
    """The text of a watchpoint file; ``head`` holds the keys of the program's own state: ``run`` and ``offered``."""
    lines = [_TITLE, f"format = {FORMAT}"]
    for key, value in (head or {}).items():
        text = str(value).lower() if isinstance(value, bool) else _string(clean(value))
        lines.append(f"{key} = {text}")
    for watchpoint in watchpoints:
        lines += ["", "[[watchpoint]]", *_entry(watchpoint)]
    return "\n".join(lines) + "\n"


def write_watch_file(watchpoints: Iterable[Watchpoint], path: Path, dump: Path) -> Path:
    """Writes a new watchpoint file and returns its path; errors as of ``fresh_file``."""
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
    """Returns a TOML string: a literal string if that avoids escaping backslashes or quotes, else with escapes.

    tomli-w is not used: it doubles the backslashes of regular expressions, which people edit here, writes short entries
    inline in place of ``[[watchpoint]]``, and leaves C1 and bidi controls in a file that people will ``cat``.
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


class WatchpointStore:
    """Keeps a dump's watchpoint list in the user's state directory, one small file per run.

    The file is a watchpoint file with two more keys (``run``, ``offered``), so that ``--watch-file`` takes it as it is.
    Errors of the state directory are not raised but kept in ``problem``: only convenience is lost.
    """

    def __init__(self, run_path: str, directory: Path | None = None) -> None:
        real = os.path.realpath(run_path)
        self.path = (directory or state_directory()) / f"watch-{file_number(real)}.toml"
        self.run_path = real
        self.problem = ""
        self._spoilt = False

    def load(self) -> tuple[tuple[Watchpoint, ...], bool]:
        """The stored watchpoints and whether the recommended set was already offered."""
        try:
            found = parse_watch_file(self.path.read_bytes(), str(self.path), self._dropped)
        except FileNotFoundError:
            return (), False
        except (OSError, BadWatchpointError) as error:
            self.problem = f"the saved watchpoints could not be read ({_one_line(error)})"
            self._spoilt = True
            return (), False
        return found.watchpoints, found.offered

    def _dropped(self, error: BadWatchpointError) -> None:
        self.problem = f"a saved watchpoint was dropped ({_one_line(error)})"
        self._spoilt = True

    def save(self, watchpoints: Iterable[Watchpoint], offered: bool) -> None:
        """Writes the list atomically; a failure is kept in ``problem``.

        A file that was not wholly usable may hold a person's work: it is renamed to ``.old``, not overwritten.
        """
        try:
            if self._spoilt:
                self.path.replace(self.path.with_suffix(".old"))
                self._spoilt = False
            write_state(self.path, format_watch_file(watchpoints, {"run": self.run_path, "offered": offered}))
        except OSError as error:
            self.problem = f"the watchpoints could not be saved ({error})"


def _one_line(error: Exception) -> str:
    return f"{error.what}: {error.where}" if isinstance(error, BadWatchpointError) else str(error)


UNDONE_AT_MOST = 1000
"""Changes of a list that can be undone; older changes are forgotten."""


@dataclass(frozen=True, slots=True)
class WatchpointChange:
    """One change of a watchpoint list, which can be undone; ``words`` describes it, such as ``TO #6 deleted``."""

    words: str
    before: tuple[Watchpoint, ...]
    after: tuple[Watchpoint, ...]


class WatchpointList:
    """The watchpoints of one session, in id order. Safe to use from several threads.

    The list is an immutable tuple, and a change replaces it; undo restores the previous tuple, with the same ids. The
    store always holds the current list. ``version`` grows with every change that can change a result; ``on_change`` is
    called with every such change and has to be quick.
    """

    def __init__(self, store: WatchpointStore | None = None) -> None:
        self._lock = threading.RLock()
        self._store = store
        self._items: tuple[Watchpoint, ...] = ()
        self._next = 1
        self._offered = False
        self._done: deque[WatchpointChange] = deque(maxlen=UNDONE_AT_MOST)
        self._undone: list[WatchpointChange] = []
        self.version = 0
        self.on_change: Callable[[], None] = _do_nothing
        if store is not None:
            self._items, self._offered = store.load()
            self._next = max((each.id for each in self._items), default=0) + 1

    def __len__(self) -> int:
        return len(self._items)

    @property
    def problem(self) -> str:
        return self._store.problem if self._store else ""

    @property
    def offered(self) -> bool:
        """Whether the recommended set was offered (and answered) for this run before."""
        return self._offered

    @offered.setter
    def offered(self, value: bool) -> None:
        with self._lock:
            self._offered = value
            self._keep()

    def items(self) -> tuple[Watchpoint, ...]:
        return self._items

    def enabled(self) -> tuple[Watchpoint, ...]:
        return tuple(w for w in self.items() if w.enabled)

    def snapshot(self) -> tuple[int, tuple[Watchpoint, ...]]:
        """The version, and the enabled watchpoints of this version."""
        with self._lock:
            return self.version, self.enabled()

    def get(self, watchpoint_id: int) -> Watchpoint | None:
        return next((each for each in self._items if each.id == watchpoint_id), None)

    # -- changes ---------------------------------------------------------------------------------

    def add(
        self,
        condition: str,
        params: Mapping[str, ParamValue] | Iterable[tuple[str, ParamValue]] = (),
        selection: NodeSelection | None = None,
        name: str = "",
    ) -> Watchpoint:
        """Creates a watchpoint with the next id; BadWatchpointError when a rule of the condition table is broken."""
        with self._lock:
            made = Watchpoint(
                id=self._next,
                condition=condition,
                params=validate(condition, dict(params)),
                selection=selection or NodeSelection(),
                name=name,
            )
            self._next += 1
            self._put((*self._items, made), f"{watchpoint_name(made)} added")
            return made

    def add_missing(self, watchpoints: Iterable[Watchpoint]) -> int:
        """Adds watchpoints, disabled ones as well, whose condition, parameters and nodes are new; returns how many."""
        with self._lock:
            present = {(w.condition, w.params, w.selection) for w in self._items}
            added: list[Watchpoint] = []
            for each in watchpoints:
                rule = (each.condition, each.params, each.selection)
                if rule in present:
                    continue
                present.add(rule)
                checked = validate(each.condition, dict(each.params))
                added.append(replace(each, id=self._next + len(added), params=checked))
            if added:
                self._next += len(added)
                self._put((*self._items, *added), f"{_all_of(added)} added")
            return len(added)

    def replace(self, watchpoint: Watchpoint, words: str = "") -> Watchpoint:
        """Replaces the watchpoint with the same id; BadWatchpointError: unknown id, a broken rule."""
        with self._lock:
            if self.get(watchpoint.id) is None:
                raise BadWatchpointError(
                    f"there is no watchpoint {watchpoint.id}", hint="it was deleted; create a new one"
                )
            checked = replace(watchpoint, params=validate(watchpoint.condition, dict(watchpoint.params)))
            self._put_in_place(checked, words or f"{watchpoint_name(checked)} edited")
            return checked

    def set_enabled(self, watchpoint_id: int, enabled: bool) -> None:
        """Switches one watchpoint on or off; unknown ids are ignored."""
        with self._lock:
            current = self.get(watchpoint_id)
            if current is not None:
                words = f"{watchpoint_name(current)} {'enabled' if enabled else 'disabled'}"
                self._put_in_place(replace(current, enabled=enabled), words)

    def delete(self, watchpoint_id: int) -> None:
        """Deletes one watchpoint; its id is not used again in this session."""
        with self._lock:
            current = self.get(watchpoint_id)
            if current is not None:
                rest = tuple(each for each in self._items if each is not current)
                self._put(rest, f"{watchpoint_name(current)} deleted")

    def clear(self) -> None:
        with self._lock:
            self._put((), f"{_all_of(self._items)} deleted")

    # -- undo and redo ---------------------------------------------------------------------------

    @property
    def last_change(self) -> WatchpointChange | None:
        """The change that ``undo`` would undo; None when there is none."""
        with self._lock:
            return self._done[-1] if self._done else None

    def undo(self) -> WatchpointChange | None:
        """Restores the list from before the last change; returns that change, None when there was none."""
        with self._lock:
            if not self._done:
                return None
            change = self._done.pop()
            self._undone.append(change)
            self._set(change.before)
            return change

    def redo(self) -> WatchpointChange | None:
        """Applies the change that was undone last once more; returns it, None when nothing is undone."""
        with self._lock:
            if not self._undone:
                return None
            change = self._undone.pop()
            self._done.append(change)
            self._set(change.after)
            return change

    def forget_changes(self) -> None:
        """Makes the current list the one that ``undo`` ends at."""
        with self._lock:
            self._done.clear()
            self._undone.clear()

    def _put_in_place(self, watchpoint: Watchpoint, words: str) -> None:
        self._put(tuple(watchpoint if each.id == watchpoint.id else each for each in self._items), words)

    def _put(self, items: tuple[Watchpoint, ...], words: str) -> None:
        if items != self._items:
            self._done.append(WatchpointChange(words, self._items, items))
            self._undone.clear()
            self._set(items)

    def _set(self, items: tuple[Watchpoint, ...]) -> None:
        self._items = items
        self.version += 1
        self._keep()
        self.on_change()

    def _keep(self) -> None:
        if self._store is not None:
            self._store.save(self._items, self._offered)


def _do_nothing() -> None:
    """Does nothing."""


def _all_of(watchpoints: Sequence[Watchpoint]) -> str:
    return watchpoint_name(watchpoints[0]) if len(watchpoints) == 1 else plural(len(watchpoints), "watchpoint")
