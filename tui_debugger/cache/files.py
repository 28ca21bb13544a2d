"""The files of an index: names, the file in use, access rights, and errors."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple


class Trouble(Enum):
    """The consequence of an error."""

    BUSY = "busy"
    """Another process is writing: it will work later."""
    DAMAGED = "damaged"
    """The index file is damaged and has to be removed."""
    GONE = "gone"
    """The file was removed while it was used: look again."""
    REFUSED = "refused"
    """The system refuses: no room, no permission, no such device ..."""


class DamagedIndexError(Exception):
    """A file with the name of an index, and other content."""


_BUSY = ("is locked", "locking protocol", "schema has changed")
_DAMAGED = (
    "no such table",
    "no such column",
    "has no column",
    "malformed",
    "could not decode",
    "unsupported file format",
)


def expected() -> tuple[type[Exception], ...]:
    """Errors that opening and using an index may raise; any other is a bug. Imports SQLite."""
    # ValueError: a path that no file can have.
    ours = (OSError, MemoryError, ImportError, ValueError, DamagedIndexError)
    try:
        import sqlite3
    except ImportError:
        return ours
    return (*ours, sqlite3.Error)


def trouble_of(error: Exception) -> Trouble:
    """Judges an expected error, by its words if needed: Python 3.10 does not tell SQLite's number."""
    if isinstance(
        error, (DamagedIndexError, UnicodeDecodeError)
    ):  # SQLite's own words about a damaged file may be damaged
        return Trouble.DAMAGED
    if isinstance(error, (OSError, MemoryError, ImportError, ValueError)):
        return Trouble.REFUSED
    import sqlite3

    if isinstance(error, sqlite3.OperationalError):
        text = str(error).lower()
        if any(words in text for words in _BUSY):
            return Trouble.BUSY
        return Trouble.DAMAGED if any(words in text for words in _DAMAGED) else Trouble.REFUSED
    # Two rows of one key, or SQLite's "malformed" and "not a database", which have no class of their own.
    damaged = isinstance(error, sqlite3.IntegrityError) or type(error) is sqlite3.DatabaseError
    return Trouble.DAMAGED if damaged else Trouble.REFUSED


def reason_of(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(text.split())


VERSION: Final = 2
"""Of the tables *and* of the meaning of payloads. Raise it when an algorithm gives other numbers."""
PLENTY: Final = 2 * 10**9
"""Bytes of free space with which a disk is not full."""
STALE: Final = 3600
"""Age in seconds of a half-made file that nobody still writes: it is removed."""

_NAME = re.compile(r"(?P<new>\.new-)?index-(?P<version>\d{1,9})-(?P<born>[0-9a-f]{16})\.sqlite(?P<part>-[a-z]+)?")


class Generation(NamedTuple):
    """The number of an index in the name of its file; greater is newer."""

    version: int
    born: str


class IndexFile(NamedTuple):
    """A file in the directory that is, was or will be an index, or its journal."""

    path: Path
    generation: Generation
    new: bool
    part: str


def listed(directory: Path) -> Iterator[IndexFile]:
    """Yields the regular files of this user that have our names; none without the directory. Raises OSError."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    except ValueError as error:  # a name that no file can have
        raise OSError(str(error)) from None
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is not None and _is_ours(Path(entry.path)):
            generation = Generation(int(match["version"]), match["born"])
            yield IndexFile(Path(entry.path), generation, bool(match["new"]), match["part"] or "")


def current(directory: Path) -> Path | None:
    """The index of this version, None without one; raises OSError when the directory cannot be listed."""
    found = [file for file in listed(directory) if _is_index(file)]
    return max(found, key=lambda file: file.generation).path if found else None


def fresh(directory: Path) -> tuple[Path, Path]:
    """Makes an empty file for a new index, or raises OSError; returns its path and the path of the complete index."""
    prepare(directory)
    newest = max((int(file.generation.born, 16) for file in listed(directory)), default=0)
    born = max(time.time_ns(), newest + 1) & (2**64 - 1)
    name = f"index-{VERSION}-{born:016x}.sqlite"
    draft = directory / f".new-{name}"
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return draft, directory / name


def prepare(directory: Path) -> None:
    """Makes the directory, or raises OSError; for this user alone: others must not see names and statistics."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid():  # root, too, leaves no files of its own there
        raise PermissionError(0, "the directory belongs to another user")
    if found.st_mode & 0o077:
        directory.chmod(0o700)


def sweep(directory: Path, kept: Path) -> None:
    """Removes everything older than the index in use: earlier versions, replaced or half-made files; raises OSError."""
    files = sorted(listed(directory), key=lambda file: file.part)  # an index before its journal
    mine = max((file.generation for file in files if file.path == kept), default=None)
    for file in files:
        if _is_forgotten(file) or (not file.new and mine is not None and file.generation < mine):
            with suppress(OSError):
                file.path.unlink()


def remove(index: Path) -> None:
    """Removes an index, or raises OSError; its journal last: without the index no process opens it."""
    for path in (index, index.with_name(index.name + "-journal")):
        with suppress(FileNotFoundError):
            path.unlink()


def remove_all(directory: Path) -> tuple[int, str]:
    """Removes the indexes of all versions; returns freed bytes, and why some are left, if so."""
    freed = 0
    trouble = ""
    try:
        found = sorted(listed(directory), key=lambda file: file.part)
    except OSError as error:
        return 0, reason_of(error)
    for file in found:
        if file.new and not _is_forgotten(file):
            continue  # it is still empty
        size, why = _removed(file.path)
        freed += size
        trouble = trouble or why
    return freed, trouble


def taken(directory: Path) -> int:
    """Bytes of all files; 0 where the directory cannot be listed."""
    total = 0
    with suppress(OSError):
        for file in listed(directory):
            with suppress(OSError):
                total += file.path.lstat().st_size
    return total


def room(directory: Path) -> int:
    """Bytes that this user may still write there."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def contradicts(complaint: str, index: Path) -> bool:
    """Whether the system contradicts SQLite's complaint: then the file is damaged.

    A damaged header says "read-only" by itself, and a page number beyond all bounds looks like a full disk.
    """
    with suppress(OSError):
        if "readonly" in complaint:
            return os.access(index, os.W_OK) and os.access(index.parent, os.W_OK)
        return "is full" in complaint and room(index.parent) > PLENTY
    return False


def _removed(path: Path) -> tuple[int, str]:
    try:
        size = path.lstat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0, ""
    except OSError as error:
        return 0, reason_of(error)
    return size, ""


def _is_index(file: IndexFile) -> bool:
    return file.generation.version == VERSION and not file.new and not file.part


def _is_ours(path: Path) -> bool:
    """Whether it is a regular file of this user: no directory, no link, no file of another user."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _is_forgotten(file: IndexFile) -> bool:
    with suppress(OSError):
        return file.new and time.time() - file.path.lstat().st_mtime > STALE
    return False
