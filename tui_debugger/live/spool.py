"""The files of fetched values, in a temporary directory of limited size and lifetime.

A client may declare any size, so the bytes really written count. When there is no room, the oldest steps are dropped.
The directory is removed at the end, or by the next start if its owner was killed.
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
"""The file that a living owner holds a lock on; it contains the process number for users."""

Key = tuple[int, int]
"""(rank, step)."""
Dropped = Callable[[Key], None]


@dataclass(frozen=True, slots=True)
class SpooledTensor:
    """Values in a .npy file, and their element type, which its header may be unable to state."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


NO_ROOM: Final = "there was no room within --spool-limit"
GONE: Final = "their files were removed from the temporary directory"


class Spool:
    """Files by (rank, step). Safe to use from several threads."""

    def __init__(self, limit: int = LIMIT, on_drop: Dropped | None = None, parent: Path | None = None) -> None:
        """Makes the directory, by default in the user's temporary directory, and removes abandoned ones.

        ``on_drop`` is called for each dropped step with the lock of the spool held: it must be quick.
        """
        place = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(place)
        self.limit = limit
        self._on_drop = on_drop
        self._lock = threading.RLock()
        self._bytes: dict[Key, int] = {}
        self._written: Counter[Key] = Counter()
        """Steps whose files are being written: they stay."""
        self.lost: Counter[str] = Counter()  # tensors without kept values, by reason
        self._number = 0
        self._closed = False
        self.path, self._owner = _made(place)

    @property
    def size(self) -> int:
        with self._lock:
            return sum(self._bytes.values())

    def of_rank(self, rank: int) -> int:
        with self._lock:
            return sum(size for (of, _), size in self._bytes.items() if of == rank)

    def open(self, key: Key, dtype: str, shape: tuple[int, ...]) -> SpoolFile | None:
        """A file for values; None when they cannot be kept: an unknown type, or never enough room."""
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
        with self._lock:
            left = self._bytes.get(key, 0) - nbytes
            if left > 0:
                self._bytes[key] = left
            else:
                self._bytes.pop(key, None)

    def lose(self, error: Exception | None) -> None:
        """Counts a tensor whose values were not kept; None: there was no room."""
        self._count_lost(NO_ROOM if error is None else reason_of(error))

    def _count_lost(self, why: str, count: int = 1) -> None:
        with self._lock:
            self.lost[why] += count

    def gone(self, key: Key) -> None:
        """Counts a missing file of a step, unless the spool dropped the step itself."""
        with self._lock:
            if key in self._bytes and not self._closed:
                self._count_lost(GONE)

    def remove(self, key: Key, kept: SpooledTensor) -> None:
        with suppress(OSError):
            kept.path.unlink()
            self.give_back(key, kept.nbytes + _BLOCK)

    def ended(self, key: Key) -> None:
        with self._lock:
            self._written[key] -= 1
            if not self._written[key]:
                del self._written[key]

    def drop(self, key: Key) -> None:
        """Removes the values of a step. Open files can still be read."""
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
        """Counts bytes for a step, and drops the oldest steps until they fit."""
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
        self._spool, self._key, self._file = spool, key, file
        self._dtype, self._shape = dtype, shape
        self._taken = _BLOCK
        self._ended = False

    def write(self, chunk: bytes) -> bool:
        """Adds bytes. False, now and from then on: no room, or more than declared. Never raises."""
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
        """Returns the complete file; None when something is missing. Never raises."""
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
    """Removes the directories of dead owners; returns how many."""
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
    """Makes and locks a directory, and names it only then, so that it is never taken for abandoned."""
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
    """Locks a file for as long as this process has it open; False when another process holds the lock."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
