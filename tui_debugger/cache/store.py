"""The index of earlier sessions: finds or makes its file, replaces a damaged one, gives up when all is in vain.

An index that is damaged, cleared or of another version is never emptied in place: it is removed, and the next one has a
new name. So no process that still has the old file open can write its journal beside the new one, and nobody waits for
anybody. The newest file of this version is the index; a new one appears under its name only when it is complete.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tui_debugger.environment import Size, size_of, user_directory

if TYPE_CHECKING:
    from tui_debugger.cache.database import Database


class Trouble(Enum):
    """The consequence of an error."""

    BUSY = "busy"
    """Another process is writing: it will work later."""
    DAMAGED = "damaged"
    """The index file is damaged and has to be removed."""
    GONE = "gone"
    """The file was removed while it was used: look again."""
    REFUSED = "refused"
    """The system says no: no room, no permission, no such device ..."""


class DamagedError(Exception):
    """A file that is an index by its name, but not by what it says."""


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
    """Returns what opening and using an index may raise; everything else is a mistake of ours.

    SQLite is imported for it: ask when something was raised.
    """
    # ValueError: a path that no file can have.
    ours = (OSError, MemoryError, ImportError, ValueError, DamagedError)
    try:
        import sqlite3
    except ImportError:
        return ours
    return (*ours, sqlite3.Error)


def trouble_of(error: Exception) -> Trouble:
    """Judges one of the expected errors, by its words where need be: Python 3.10 does not tell SQLite's number."""
    if isinstance(error, (DamagedError, UnicodeDecodeError)):  # SQLite's own words about a damaged file may be damaged
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
    """One line for people."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(text.split())


LIMIT = 10**9
"""Bytes that the index may take by default: statistics of about 6,000 steps of a small transformer."""
DIRECTORY = "TDBG_CACHE_DIR"
"""Environment variable: where the index lies; empty: there is none."""
SIZE = "TDBG_CACHE_LIMIT"
"""Environment variable: how many bytes it may take, as ``500M`` or ``2 GiB``; 0: there is none."""


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
    """The reason why nothing is remembered although there is a place for it; empty when all is well."""
    if find_spec("_sqlite3") is None:
        return "this Python has no sqlite3"
    return "" if default_limit().bytes else f"{SIZE} is 0"


def default_limit() -> Size:
    """Tells how many bytes the index may take; and what is wrong with the variable that says it, if anything."""
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


VERSION: Final = 2
"""Of the tables *and* of what payloads mean. Raise it when an algorithm gives other numbers than before."""
PLENTY: Final = 2 * 10**9
"""Bytes of room in which no disk is full."""
STALE: Final = 3600
"""Seconds after which nobody still writes a half-made file: it is removed."""

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
    """The regular files of this user that have our names; none when there is no directory.

    Raises:
        OSError: the directory cannot be listed.
    """
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
    """The index of this version, None when there is none.

    Raises:
        OSError: the directory cannot be listed.
    """
    found = [file for file in listed(directory) if _is_index(file)]
    return max(found, key=lambda file: file.generation).path if found else None


def fresh(directory: Path) -> tuple[Path, Path]:
    """Makes an empty file for a new index; returns its path, and the path it shall have when it is complete.

    Raises:
        OSError: no room, no permission, or the directory belongs to another user.
    """
    prepare(directory)
    newest = max((int(file.generation.born, 16) for file in listed(directory)), default=0)
    born = max(time.time_ns(), newest + 1) & (2**64 - 1)
    name = f"index-{VERSION}-{born:016x}.sqlite"
    draft = directory / f".new-{name}"
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return draft, directory / name


def prepare(directory: Path) -> None:
    """Makes the directory, for this user alone: others must not see names and statistics of a training.

    Raises:
        OSError: it cannot be made, or belongs to another user.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid():  # root, too, leaves no files of its own there
        raise PermissionError(0, "the directory belongs to another user")
    if found.st_mode & 0o077:
        directory.chmod(0o700)


def sweep(directory: Path, kept: Path) -> None:
    """Removes what is older than the index in use: earlier versions, files replaced by it, half-made ones.

    Raises:
        OSError: the directory cannot be listed.
    """
    files = sorted(listed(directory), key=lambda file: file.part)  # an index before its journal
    mine = max((file.generation for file in files if file.path == kept), default=None)
    for file in files:
        if _is_forgotten(file) or (not file.new and mine is not None and file.generation < mine):
            with suppress(OSError):
                file.path.unlink()


def remove(index: Path) -> None:
    """Removes an index, and last its journal: without the index nobody opens it any more.

    Raises:
        OSError: it cannot be removed.
    """
    for path in (index, index.with_name(index.name + "-journal")):
        with suppress(FileNotFoundError):
            path.unlink()


def remove_all(directory: Path) -> tuple[int, str]:
    """Removes the indexes of all versions; returns how many bytes they had, and why some are left, if so."""
    freed = 0
    trouble = ""
    try:
        found = sorted(listed(directory), key=lambda file: file.part)
    except OSError as error:
        return 0, reason_of(error)
    for file in found:
        if file.new and not _is_forgotten(file):
            continue  # there is nothing in it yet
        size, why = _removed(file.path)
        freed += size
        trouble = trouble or why
    return freed, trouble


def taken(directory: Path) -> int:
    """Bytes of all files; 0 where nothing can be seen."""
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
    """Tells whether the system knows nothing of what SQLite complains about: then it is the file that is damaged.

    A damaged header says "read-only" by itself, and a page number beyond all bounds looks like a full disk.
    """
    with suppress(OSError):
        if "readonly" in complaint:
            return os.access(index, os.W_OK) and os.access(index.parent, os.W_OK)
        return "is full" in complaint and room(index.parent) > PLENTY
    return False


def _removed(path: Path) -> tuple[int, str]:
    """Removes a file; returns the bytes it had, and why it is still there, if it is."""
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
    """Tells whether it is a regular file of this user: no directory, no link, nothing that another user put there."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _is_forgotten(file: IndexFile) -> bool:
    """Tells whether a file is half-made because its writer was interrupted."""
    with suppress(OSError):
        return file.new and time.time() - file.path.lstat().st_mtime > STALE
    return False


T = TypeVar("T")

WAIT: Final = 0.2
"""Seconds to wait for others that write."""
SHARE: Final = 0.1
"""Share of the time that may be spent waiting in vain: a process that is stuck must not cost ``WAIT`` each time."""
STRIKES: Final = 3
"""The number of failures in a row after which the index is left alone for this session."""

_COUNTED: Final = (Trouble.DAMAGED, Trouble.REFUSED)
"""The others go away by themselves."""


class Index:
    """One directory's index, for all threads of a process; no method raises what an index may raise.

    Attributes:
        trouble: what is wrong, one line; empty when all is well.
    """

    def __init__(self, directory: Path) -> None:
        self.trouble = ""
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
        """Asks the index; None when there is none, or no answer."""
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
        """Changes the index, with ``make`` a new one when there is none; a damaged one is replaced first."""
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
        """Removes every file; returns how many bytes that freed, and why not all of them, if so."""
        with self._lock:
            self._drop()
            self._failed_reads = self._failed_writes = 0
            self.trouble = ""
            return remove_all(self._directory)

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._lock:
            self._drop()

    def _opened(self) -> Database | None:
        """The index, None when there is none."""
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
        """Seconds to wait for others this time."""
        now = time.monotonic()
        self._patience = min(WAIT, self._patience + (now - self._asked) * SHARE)
        self._asked = now
        return self._patience

    def _made(self) -> Database | None:
        """The new index: ours, or that of another process that was faster."""
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
        """Draws the consequences of an error."""
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
        """After a success: what was wrong is over, unless writing goes on failing while reading works."""
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
        """Before this process forks: no transaction is under way that the child would have a half of."""
        self._lock.acquire()

    def release(self, *, child: bool) -> None:
        """After the fork. The child opens the file anew: a connection belongs to the process that made it."""
        if child:
            self._database = None
        self._lock.release()


_all: weakref.WeakSet[Index] = weakref.WeakSet()
_held: list[Index] = []
_forking = threading.Lock()
"""One thread forks at a time: two that hold some of the indexes each would wait for ever."""


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
    """The contents of a store.

    Attributes:
        path: its directory.
        size: bytes of its files.
        limit: bytes it may take.
        kinds: what there is, by kind.
        oldest, newest: when the entries that were not used for the longest and the shortest time were used, in seconds
            since 1970, to about a minute; None when there is none.
        trouble: what is wrong, one line; empty when all is well.
    """

    path: Path
    size: int = 0
    limit: int = LIMIT
    kinds: dict[str, KindInfo] = field(default_factory=dict)
    oldest: float | None = None
    newest: float | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The effect of clearing a store: the bytes that are free now, and why it is not empty (one line), if it is not."""

    freed: int
    trouble: str = ""


class DiskCache:
    """Payloads by (kind, key), for every thread and any number of processes at once.

    Nothing here raises: what cannot be read is not known, what cannot be written is dropped. Another process may have
    written meanwhile, or the disk may have been full, so ``get`` may answer with any payload that was ever put under
    that key: a payload must say itself what it is valid for.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT, note: str = "") -> None:
        """Nothing is opened before the first use, and nothing is made before the first ``put``.

        Args:
            path: a directory for the store alone: it is made for this user only.
            limit: bytes that it may take; payloads that were not used for the longest time go first.
            note: what to say in ``trouble`` while nothing else is wrong.
        """
        self.path = path
        self.limit = limit
        self._index = Index(path)
        self.note = note
        weakref.finalize(self, self._index.close)  # at the end of the process at the latest

    @property
    def trouble(self) -> str:
        """The problem, in one line; empty when all is well."""
        return self._index.trouble or self.note

    def get(self, kind: str, key: bytes) -> bytes | None:
        """The payload, or None when it is not known."""
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The payloads that are known."""
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
        """Remembers a payload."""
        self.put_many(kind, {key: payload})

    def put_many(self, kind: str, payloads: Mapping[bytes, bytes]) -> None:
        """Remembers payloads, all at once or none; not those that alone are larger than the store may be."""
        if payloads:
            self._index.write(lambda database: database.put(kind, payloads, self.limit), make=True)

    def info(self) -> StoreInfo:
        """Returns what lies in it."""
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
        """Forgets everything, of other versions too, and tries again what did not work before."""
        return Cleared(*self._index.clear())

    def close(self) -> None:
        """Lets go of the file; the next use opens it again. Happens by itself at the end of the process."""
        self._index.close()


def default_store(dump: Path | None = None) -> DiskCache | None:
    """The store of this user. Nothing is opened, read or written yet.

    It lies in ``index`` below ``$TDBG_CACHE_DIR``, else ``$XDG_CACHE_HOME/tdbg``, else ``~/.cache/tdbg``, and may take
    ``$TDBG_CACHE_LIMIT`` bytes (``500M``, ``2 GiB``; 1 GB when nothing is said).

    Args:
        dump: what is looked at. A store never lies in a dump, whatever the environment says.

    Returns:
        None when there is none: switched off (one of the variables is empty or 0), no home directory, a place inside
        the dump, a Python without sqlite3.
    """
    directory, _ = default_directory(dump)
    if directory is None or why_off():
        return None
    limit, note = default_limit()
    return DiskCache(directory, limit=limit, note=note)
