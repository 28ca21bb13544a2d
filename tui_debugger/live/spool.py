"""The files of fetched values: in a temporary directory that never grows beyond its limit nor outlives its owner.

Values come from a process that may declare anything: what counts is what was really written. When there is no room,
the oldest steps go first. The directory is removed at the end; one whose owner was killed, by the next start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tui_debugger.errors import reason_of
from tui_debugger.live.dump_writer import NpyFile, size_of

LIMIT: Final = 4 << 30
"""Most bytes by default."""
_BLOCK: Final = 4096
"""The bytes that even the smallest file takes."""
_PREFIX: Final = "tdbg-live-"
_NEW: Final = "tdbg-new-"
_OWNER: Final = "pid"
"""The file that a living owner holds a lock on; it holds the number of the process, for people."""

Key = tuple[int, int]
"""(rank, step)."""
Dropped = Callable[[Key], None]


@dataclass(frozen=True, slots=True)
class SpooledTensor:
    """Values that are there: a .npy file, and the element type that its header may be unable to state."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


NO_ROOM: Final = "there was no room within --spool-limit"
GONE: Final = "their files were removed from the temporary directory"


class Spool:
    """Files by (rank, step). Safe to use from several threads.

    Attributes:
        path: the directory.
        limit: most bytes.
        lost: tensors whose values were not kept, or had to go, by the reason in words.
    """

    def __init__(self, limit: int = LIMIT, on_drop: Dropped | None = None, parent: Path | None = None) -> None:
        """Makes the directory, and removes those whose owners are gone.

        Args:
            limit: most bytes on disk.
            on_drop: called when a step had to go, with the lock of the spool held: must be quick.
            parent: where the directory is made; None: the user's temporary directory.

        Raises:
            OSError: it cannot be made.
        """
        place = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(place)
        self.limit = limit
        self._on_drop = on_drop
        self._lock = threading.RLock()
        self._bytes: dict[Key, int] = {}
        self._written: Counter[Key] = Counter()
        """Steps of which files are being written: they stay."""
        self.lost: Counter[str] = Counter()
        self._number = 0
        self._closed = False
        self.path, self._owner = _made(place)

    @property
    def size(self) -> int:
        """Bytes that are taken."""
        with self._lock:
            return sum(self._bytes.values())

    def of_rank(self, rank: int) -> int:
        """Bytes that the values of a rank take."""
        with self._lock:
            return sum(size for (of, _), size in self._bytes.items() if of == rank)

    def open(self, key: Key, dtype: str, shape: tuple[int, ...]) -> SpoolFile | None:
        """A file for values that come now; None when they cannot be kept: no such type, or never enough room."""
        nbytes = size_of(dtype, shape)
        if nbytes is None or nbytes + 2 * _BLOCK > self.limit:
            self._count_lost(f"{dtype} values are not stored" if nbytes is None else NO_ROOM)
            return None
        with self._lock:
            if self._closed:
                return None
            self._number += 1
            path = self.path / f"rank_{key[0]}" / str(key[1]) / f"{self._number}.npy"
            if not self._make_room(key, _BLOCK):
                self._count_lost(NO_ROOM)
                return None
            try:
                file = NpyFile(path, dtype, shape)
            except (OSError, ValueError) as error:
                self.lose(error)
                self.give_back(key, _BLOCK)
                return None
            self._written[key] += 1
            return SpoolFile(self, key, file, dtype, shape)

    def take(self, key: Key, nbytes: int) -> bool:
        """Counts bytes that are about to be written; False when there is no room even without all older steps."""
        with self._lock:
            return not self._closed and self._make_room(key, nbytes)

    def give_back(self, key: Key, nbytes: int) -> None:
        """The bytes were not written after all, or are gone."""
        with self._lock:
            left = self._bytes.get(key, 0) - nbytes
            if left > 0:
                self._bytes[key] = left
            else:
                self._bytes.pop(key, None)

    def lose(self, error: Exception | None) -> None:
        """Counts a tensor whose values were not kept; None: there was no room for them."""
        self._count_lost(NO_ROOM if error is None else reason_of(error))

    def _count_lost(self, why: str, count: int = 1) -> None:
        with self._lock:
            self.lost[why] += count

    def gone(self, key: Key) -> None:
        """A file of a step is not there: counted, unless the spool let the step go itself."""
        with self._lock:
            if key in self._bytes and not self._closed:
                self._count_lost(GONE)

    def remove(self, key: Key, kept: SpooledTensor) -> None:
        """Removes one file."""
        with suppress(OSError):
            kept.path.unlink()
            self.give_back(key, kept.nbytes + _BLOCK)

    def ended(self, key: Key) -> None:
        """A file of a step is complete, or given up."""
        with self._lock:
            self._written[key] -= 1
            if not self._written[key]:
                del self._written[key]

    def drop(self, key: Key) -> None:
        """Removes the values of a step. Whoever has them open goes on reading them."""
        with self._lock:
            self._bytes.pop(key, None)
            shutil.rmtree(self.path / f"rank_{key[0]}" / str(key[1]), ignore_errors=True)

    def close(self) -> None:
        """Removes everything. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._bytes.clear()
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._owner)

    def _kept_of(self, key: Key) -> int:
        try:
            return len(os.listdir(self.path / f"rank_{key[0]}" / str(key[1])))  # noqa: PTH208 - names are counted
        except OSError:
            return 0

    def _make_room(self, key: Key, nbytes: int) -> bool:
        """Counts bytes for a step, and lets the steps that came first go until they fit."""
        self._bytes.setdefault(key, 0)
        while self.size + nbytes > self.limit:
            oldest = next((each for each in self._bytes if each != key and not self._written[each]), None)
            if oldest is None:
                return False
            self._count_lost(NO_ROOM, self._kept_of(oldest))
            self.drop(oldest)
            if self._on_drop is not None:
                self._on_drop(oldest)
        self._bytes[key] += nbytes
        return True


class SpoolFile:
    """Values that are being written."""

    def __init__(self, spool: Spool, key: Key, file: NpyFile, dtype: str, shape: tuple[int, ...]) -> None:
        """Made by ``Spool.open``, which has counted the first block."""
        self._spool, self._key, self._file = spool, key, file
        self._dtype, self._shape = dtype, shape
        self._taken = _BLOCK
        self._ended = False

    def write(self, chunk: bytes) -> bool:
        """Adds bytes. False, now and from then on: no room, or more than were declared. Never raises."""
        if self._ended:
            return False
        if not self._spool.take(self._key, len(chunk)):
            self._spool.lose(None)
            return self._fail()
        self._taken += len(chunk)
        try:
            self._file.write(chunk)
        except (OSError, ValueError) as error:
            self._spool.lose(error)
            return self._fail()
        return True

    def finish(self, complete: bool = True) -> SpooledTensor | None:
        """Returns what is kept; None when something is missing. Never raises."""
        if self._ended:
            return None
        try:
            whole = complete and self._file.close()
        except OSError as error:
            self._spool.lose(error)
            whole = False
        if not whole:
            self._fail()
            return None
        self._ended = True  # nothing more is taken
        self._spool.ended(self._key)
        return SpooledTensor(self._file.path, self._dtype, self._shape, self._file.nbytes)

    def _fail(self) -> bool:
        self._ended = True
        self._file.discard()
        self._spool.give_back(self._key, self._taken)
        self._spool.ended(self._key)
        return False


def remove_abandoned(place: Path) -> int:
    """Removes the directories of owners that are gone; returns how many."""
    removed = 0
    for path in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.stat().st_uid != os.getuid() or path.is_symlink():
                continue
            owner = os.open(path / _OWNER, os.O_RDWR)
            try:
                if _locked(owner):
                    shutil.rmtree(path, ignore_errors=True)
                    removed += 1
            finally:
                os.close(owner)
    return removed


def _made(place: Path) -> tuple[Path, int]:
    """A directory of our own and its lock: it is named once it is locked, so that nobody takes it for abandoned."""
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=place))
    owner = os.open(new / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _locked(owner)
        os.write(owner, f"{os.getpid()}\n".encode())
        path = new.with_name(_PREFIX + new.name.removeprefix(_NEW))
        new.rename(path)
    except BaseException:
        os.close(owner)
        shutil.rmtree(new, ignore_errors=True)
        raise
    return path, owner


def _locked(descriptor: int) -> bool:
    """Locks a file for as long as this process has it open; False when another one has."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
