"""The index of earlier sessions: finds or makes its file, replaces a damaged one, gives up after repeated failures.

An index that is damaged, cleared or of another version is never emptied in place: it is removed, and the next one has a
new name. So no process that still has the old file open can write its journal beside the new one, and no process waits
for another. The newest file of this version is the index; a new one gets its name only when it is complete.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tui_debugger.cache.files import (
    Trouble,
    contradicts,
    current,
    expected,
    fresh,
    reason_of,
    remove,
    remove_all,
    sweep,
    taken,
    trouble_of,
)
from tui_debugger.environment import Size, size_of, user_directory

if TYPE_CHECKING:
    from tui_debugger.cache.database import Database


LIMIT = 10**9
"""Default limit of the index in bytes: statistics of about 6,000 steps of a small transformer."""
DIRECTORY = "TDBG_CACHE_DIR"
"""Environment variable with the place of the index; empty: no index."""
SIZE = "TDBG_CACHE_LIMIT"
"""Environment variable with the limit in bytes, as ``500M`` or ``2 GiB``; 0: no index."""


def default_directory(dump: Path | None = None) -> tuple[Path | None, str]:
    """The directory of the index, or None and why there is none."""
    base, why = _base()
    if base is None:
        return None, why
    directory = base / "index"
    if dump is not None and _inside(directory, dump):
        return None, "the cache directory lies inside the dump"
    return directory, ""


def why_off() -> str:
    """Why nothing is remembered although there is a place for it; empty when all is well."""
    if find_spec("_sqlite3") is None:
        return "this Python has no sqlite3"
    return "" if default_limit().bytes else f"{SIZE} is 0"


def default_limit() -> Size:
    return size_of(SIZE, LIMIT)


def _base() -> tuple[Path | None, str]:
    chosen = os.environ.get(DIRECTORY)
    if chosen is not None:
        return (Path(chosen).absolute(), "") if chosen else (None, f"{DIRECTORY} is empty")
    try:
        return user_directory("XDG_CACHE_HOME", ".cache"), ""
    except RuntimeError:
        return None, "there is no home directory"


def _inside(directory: Path, dump: Path) -> bool:
    try:
        return directory.resolve().is_relative_to(dump.resolve())
    except (OSError, RuntimeError):  # links that lead in circles
        return True


T = TypeVar("T")

WAIT: Final = 0.2
"""Seconds to wait for other writers."""
SHARE: Final = 0.1
"""Share of the time that may be spent waiting in vain: a stuck process must not cost ``WAIT`` each time."""
STRIKES: Final = 3
"""Number of successive failures after which the index is left alone for this session."""

_COUNTED: Final = (Trouble.DAMAGED, Trouble.REFUSED)
"""All other troubles go away by themselves."""


class Index:
    """One directory's index, for all threads of a process; its methods never raise errors of the index."""

    def __init__(self, directory: Path) -> None:
        self.trouble = ""
        """One line; empty when all is well."""
        self._directory = directory
        self._lock = threading.RLock()  # the last reference to a store may go while this thread holds it for a fork
        self._database: Database | None = None
        self._patience = WAIT
        self._asked = time.monotonic()
        self._waits = WAIT
        self._failed_reads = 0
        self._failed_writes = 0
        self._swept = False
        _all.add(self)

    def read(self, work: Callable[[Database], T]) -> T | None:
        """Asks the index; None without an index, or without an answer."""
        with self._lock:
            if self._failed_reads >= STRIKES:
                return None
            try:
                database = self._opened()
                answer = None if database is None else work(database)
            except expected() as error:
                self._failed_reads += self._failed(error) in _COUNTED
                return None
            self._failed_reads = 0
            self._settled()
            return answer

    def write(self, work: Callable[[Database], None], *, make: bool) -> None:
        """Changes the index; ``make`` makes a missing one. A damaged index is replaced first."""
        with self._lock:
            for _ in range(2):
                if max(self._failed_reads, self._failed_writes) >= STRIKES:
                    return
                try:
                    database = self._opened() or (self._made() if make else None)
                    if database is not None:
                        work(database)
                except expected() as error:
                    trouble = self._failed(error)
                    self._failed_writes += trouble in _COUNTED
                    if trouble in (Trouble.BUSY, Trouble.REFUSED):
                        return
                else:
                    self._failed_writes = 0
                    self._settled()
                    self._sweep()
                    return

    def clear(self) -> tuple[int, str]:
        """Removes every file; returns freed bytes, and why some are left, if so."""
        with self._lock:
            self._drop()
            self._failed_reads = self._failed_writes = 0
            self.trouble = ""
            return remove_all(self._directory)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _opened(self) -> Database | None:
        from tui_debugger.cache.database import Database

        if self._database is not None and not self._database.is_there():  # cleared, or replaced by another process
            self._drop()
        wait = self._wait()
        if self._database is None:
            path = current(self._directory)
            if path is not None:
                with suppress(FileNotFoundError):  # another process was faster, and has removed it
                    self._database = Database(path, wait)
                    self._swept = False
        elif wait != self._waits:
            self._database.wait(wait)
        self._waits = wait
        return self._database

    def _wait(self) -> float:
        now = time.monotonic()
        self._patience = min(WAIT, self._patience + (now - self._asked) * SHARE)
        self._asked = now
        return self._patience

    def _made(self) -> Database | None:
        """Returns the new index, or the index that a faster process made meanwhile."""
        from tui_debugger.cache.database import Database

        draft, path = fresh(self._directory)
        try:
            Database.create(draft)
            if current(self._directory) is None:
                draft.rename(path)
        except expected():
            if draft.exists():
                raise
            return None  # another process has cleared the directory meanwhile, drafts included
        finally:
            draft.unlink(missing_ok=True)
        return self._opened()

    def _failed(self, error: Exception) -> Trouble:
        """Handles an error: forgets, or removes, the index as needed."""
        path = None if self._database is None else self._database.path
        trouble = trouble_of(error)
        if self._database is not None and not self._database.is_there():
            trouble = Trouble.GONE
        elif path is not None and trouble is Trouble.REFUSED and contradicts(str(error), path):
            trouble = Trouble.DAMAGED
        if trouble is Trouble.GONE:
            self._drop()
            return trouble
        self.trouble = reason_of(error)
        if trouble is Trouble.BUSY:
            self._patience, self._asked = 0.0, time.monotonic()
            return trouble
        self._drop()
        if trouble is Trouble.DAMAGED:
            with suppress(OSError):
                path = path or current(self._directory)
                if path is not None:
                    remove(path)
        return trouble

    def _settled(self) -> None:
        """After a success: clears the trouble, unless writing goes on failing while reading works."""
        self._patience = WAIT
        if not self._failed_reads and not self._failed_writes:
            self.trouble = ""

    def _sweep(self) -> None:
        if not self._swept and self._database is not None:
            self._swept = True
            with suppress(OSError):
                sweep(self._directory, self._database.path)

    def _drop(self) -> None:
        if self._database is not None:
            database, self._database = self._database, None
            database.close()

    def hold(self) -> None:
        """Before a fork: waits for the running transaction, or the child would inherit half of it."""
        self._lock.acquire()

    def release(self, *, child: bool) -> None:
        """After the fork. The child opens the file anew: a connection belongs to the process that made it."""
        if child:
            self._database = None
        self._lock.release()


_all: weakref.WeakSet[Index] = weakref.WeakSet()
_held: list[Index] = []
_forking = threading.Lock()
"""Lets one thread fork at a time: two threads that each hold some of the indexes would deadlock."""


def _before_fork() -> None:
    _forking.acquire()
    _held.extend(_all)
    for index in _held:
        index.hold()


def _after_fork(*, child: bool) -> None:
    for index in _held:
        index.release(child=child)
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )


@dataclass(frozen=True, slots=True)
class KindInfo:
    """Entries of one kind: how many, and bytes of their payloads."""

    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The contents of a store."""

    path: Path
    size: int = 0
    """Bytes of its files."""
    limit: int = LIMIT
    """Largest size in bytes."""
    kinds: dict[str, KindInfo] = field(default_factory=dict)
    oldest: float | None = None
    newest: float | None = None
    """Latest last use of an entry (``oldest``: the earliest), in seconds since 1970, to about a minute; None without
    entries.
    """
    trouble: str = ""
    """One line; empty when all is well."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The bytes that clearing a store freed, and why it is not empty (one line), if so."""

    freed: int
    trouble: str = ""


class DiskCache:
    """Payloads by (kind, key), for every thread and any number of processes at once.

    Nothing here raises: unreadable payloads are unknown, payloads that cannot be written are dropped. Another process
    may have written, or the disk may have been full, so ``get`` may return any payload that was ever put under the key:
    a payload must state its own validity.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT, note: str = "") -> None:
        """Makes nothing before the first ``put``. ``path`` is for the store alone; ``note``: default ``trouble``."""
        self.path = path
        self.limit = limit
        self._index = Index(path)
        self.note = note
        weakref.finalize(self, self._index.close)  # at the end of the process at the latest

    @property
    def trouble(self) -> str:
        return self._index.trouble or self.note

    def get(self, kind: str, key: bytes) -> bytes | None:
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(keys)
        if not wanted:
            return {}
        found = self._index.read(lambda database: database.get(kind, wanted))
        if found is None:
            return {}
        payloads, damaged = found
        if damaged:
            self._index.write(lambda database: database.drop(damaged), make=False)
        return payloads

    def put(self, kind: str, key: bytes, payload: bytes) -> None:
        self.put_many(kind, {key: payload})

    def put_many(self, kind: str, payloads: Mapping[bytes, bytes]) -> None:
        """Remembers payloads, all at once or none; not those that alone are larger than the limit."""
        if payloads:
            self._index.write(lambda database: database.put(kind, payloads, self.limit), make=True)

    def info(self) -> StoreInfo:
        rows = self._index.read(lambda database: database.kinds()) or []
        return StoreInfo(
            self.path,
            size=taken(self.path),
            limit=self.limit,
            kinds={row.kind: KindInfo(row.entries, row.size) for row in rows},
            oldest=min((row.oldest for row in rows), default=None),
            newest=max((row.newest for row in rows), default=None),
            trouble=self.trouble,
        )

    def clear(self) -> Cleared:
        """Forgets everything, of other versions too, and forgets failures."""
        return Cleared(*self._index.clear())

    def close(self) -> None:
        """Closes the file; the next use opens it again. Happens by itself at the end of the process."""
        self._index.close()


def default_store(dump: Path | None = None) -> DiskCache | None:
    """The store of this user, not opened yet; None without a store.

    It lies in ``index`` below ``$TDBG_CACHE_DIR``, else ``$XDG_CACHE_HOME/tdbg``, else ``~/.cache/tdbg``, and may take
    ``$TDBG_CACHE_LIMIT`` bytes (``500M``, ``2 GiB``; default 1 GB). There is none when a variable is empty or 0,
    without a home directory or sqlite3, and for a place inside ``dump``: a store never lies in a dump.
    """
    directory, _ = default_directory(dump)
    if directory is None or why_off():
        return None
    limit, note = default_limit()
    return DiskCache(directory, limit=limit, note=note)
