"""The one way to list, stat and open the files of a dump, and to explain why a path cannot be read.

A dump may hold anything in place of a file: a pipe without a writer, a link to an endless device, an absurd size. Only
regular files are opened, none of them blocks, and files without tensors are read up to a plausible size. Below the path
of a registered ``Mount`` (a tar, a URL; see ``mounts``) these functions ask the mount. A file of a mount has a negative
descriptor, which only the functions here accept.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat as modes
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, AnyStr, Final, Generic, Protocol, TypeVar, cast

from tui_debugger.errors import reason_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

OPEN_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
)
"""Non-blocking, because opening a named pipe would wait for a writer forever."""
_KINDS: Final = (
    (modes.S_ISREG, "a file"),
    (modes.S_ISDIR, "a directory"),
    (modes.S_ISFIFO, "a FIFO"),
    (modes.S_ISSOCK, "a socket"),
)


METADATA_LIMIT: Final = 1 << 24
"""Most bytes of a file about a run: settings, versions, a table of devices."""
GRAPH_LIMIT: Final = 1 << 29
"""Most bytes of a graph file: a hundred times those of 100,000 nodes with stacks."""
LINE_LIMIT: Final = 1 << 16
"""Most bytes of a line of a table."""


class NotRegularError(OSError):
    """The path is no regular file; ``strerror`` says what it is."""


class FileTooLargeError(OSError):
    """A file is larger than plausible for its kind; ``strerror`` has its size."""


AnyPath = str | bytes | Path
"""A path as callers have it."""


class MountedFile(Protocol):
    """An open file of a mount. Thread-safe."""

    @property
    def status(self) -> os.stat_result:
        """Its size and times."""

    @property
    def waits(self) -> bool:
        """Tells whether reading waits for a network, so that only wanted bytes should be read."""

    def read(self, first: int, size: int) -> bytes:
        """Returns ``size`` bytes from ``first`` on, fewer only at the end of the file; or raises OSError."""

    def mapped(self, first: int, size: int) -> tuple[mmap.mmap, int]:
        """Returns a memory map and the stretch's offset in it; or raises OSError or ValueError."""

    def close(self) -> None:
        """Closes it."""


class Mount(Protocol):
    """Answers for the paths below its own, relative to it, without ``.`` and ``..``; the empty path is itself."""

    @property
    def waits(self) -> bool:
        """Tells whether reading waits for a network, so that files are best read in parallel."""

    def stat(self, path: str) -> os.stat_result:
        """Returns the status of a path, following links within the mount; or raises OSError."""

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        """Returns (name, is a directory) of a directory's entries; or raises OSError."""

    def open(self, path: str) -> MountedFile:
        """Opens a regular file; or raises OSError."""


_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that mean that a path leads nowhere; other errors leave it open."""

_refusals = 0


def refusals() -> int:
    """Returns how often the system refused to stat a path or list a directory, since the program began.

    The functions here that never raise then return False: a search that meets a refusal has not seen everything.
    """
    return _refusals


def _refused() -> None:
    global _refusals  # noqa: PLW0603 - a count for the whole process, as file systems are
    _refusals += 1


_mounts: Final[dict[str, Mount]] = {}
_files: Final[dict[int, MountedFile]] = {}
_numbers: Final = count(-2, -1)


class _Nothing:
    """Answers for paths that lead out of a mount: nothing is there."""

    waits = False

    def stat(self, path: str) -> os.stat_result:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def open(self, path: str) -> MountedFile:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


_NOTHING: Final = _Nothing()


def register(point: str, mount: Mount) -> None:
    _mounts[point] = mount


def forget(point: str) -> None:
    _mounts.pop(point, None)


def mount_at(point: str) -> Mount | None:
    return _mounts.get(point)


def mount_of(path: AnyPath) -> Mount | None:
    found = _found(path) if _mounts else None
    return found[0] if found is not None else None


def is_mounted(path: AnyPath) -> bool:
    return bool(_mounts) and _found(path) is not None


def is_any_mounted(paths: Iterable[AnyPath]) -> bool:
    return bool(_mounts) and any(map(is_mounted, paths))


def _found(path: AnyPath | int) -> tuple[Mount, str] | None:
    if isinstance(path, int):
        return None
    text = os.fsdecode(path)
    if not text.startswith("/"):
        return None  # mounts have absolute paths only
    for point, mount in _mounts.items():
        if text.startswith(point) and text[len(point) : len(point) + 1] in {"", "/"}:
            inside = text[len(point) + 1 :].rstrip("/")
            if "//" in text or "/." in text:
                inside = os.path.normpath(inside) if inside else ""
                if inside.split("/", 1)[0] == "..":
                    return _NOTHING, inside  # not even a file of the operating system is reached through a mount
            return mount, "" if inside == "." else inside
    return None


_globs: Final[list[str]] = []
_hidden: Final[set[str]] = set()


def hide(globs: Iterable[str]) -> None:
    """Hides entries that match a glob (``PurePath.match``) from every later listing, as the user asked."""
    _globs[:] = globs
    _hidden.clear()


def hidden_entries() -> list[str]:
    return sorted(_hidden)


def is_hidden(path: str) -> bool:
    """Tells whether a path or a directory above it is hidden; pass a relative path, because all its parts count."""
    return bool(_globs) and any(_matches(each) for each in (PurePath(path), *PurePath(path).parents))


def _matches(path: PurePath) -> bool:
    return any(path.match(glob) for glob in _globs)


def stat(path: AnyPath) -> os.stat_result:
    """Returns the status of a path, following links; or raises OSError."""
    if _mounts and (found := _found(path)) is not None:
        return found[0].stat(found[1])
    return os.stat(path)  # noqa: PTH116 - a path of bytes


def scandir(path: AnyStr | os.PathLike[AnyStr]) -> AbstractContextManager[Iterator[os.DirEntry[AnyStr]]]:
    """Lists a directory as ``os.scandir`` does, without hidden entries; or raises OSError."""
    return _VisibleEntries(_listed(path)) if _globs else _listed(path)


def _listed(path: AnyStr | os.PathLike[AnyStr]) -> AbstractContextManager[Iterator[os.DirEntry[AnyStr]]]:
    if _mounts:
        given = os.fspath(path)
        if (found := _found(given)) is not None:
            mount, inside = found
            entries = (_MountEntry(mount, given, inside, name, directory) for name, directory in mount.entries(inside))
            return cast("AbstractContextManager[Iterator[os.DirEntry[AnyStr]]]", _Scan(entries))
    try:
        return cast("AbstractContextManager[Iterator[os.DirEntry[AnyStr]]]", _DirectoryListing(os.scandir(path)))
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            _refused()
        raise


def listdir(path: AnyStr | os.PathLike[AnyStr]) -> list[AnyStr]:
    if not _mounts and not _globs:
        return os.listdir(path)  # noqa: PTH208 - names are wanted
    with scandir(path) as entries:
        return [entry.name for entry in entries]


def exists(path: AnyPath) -> bool:
    return _has(path)


def lexists(path: AnyPath) -> bool:
    """Tells whether something, even a dangling link, is at a path; never raises.

    A path that the system refuses to stat counts as there: opening it says why it cannot be read.
    """
    if is_mounted(path):
        return _has(path)
    try:
        os.lstat(path)
    except ValueError:  # a path that no file can have
        return False
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return False
        _refused()
    return True


def isdir(path: AnyPath) -> bool:
    return _has(path, modes.S_ISDIR)


def isfile(path: AnyPath) -> bool:
    return _has(path, modes.S_ISREG)


def islink(path: AnyPath) -> bool:
    """Tells whether a path is a link; mounts resolve their links. Never raises."""
    return not is_mounted(path) and os.path.islink(path)  # noqa: PTH114 - never raises


def may_list(path: AnyPath) -> bool:
    return is_mounted(path) or os.access(path, os.R_OK | os.X_OK)


def _has(path: AnyPath, is_kind: Any = None) -> bool:
    try:
        status = stat(path)
    except ValueError:  # a path that no file can have
        return False
    except OSError as error:  # a listed entry exists, although its status cannot be read
        if error.errno in _NOTHING_THERE:
            return False
        _refused()
        if not is_mounted(path):
            return False
        folder, _, name = os.fsdecode(path).rstrip("/").rpartition("/")
        try:
            return is_kind is None and name in listdir(folder)
        except OSError:
            return False
    return is_kind is None or bool(is_kind(status.st_mode))


class _DirectoryListing(Generic[AnyStr]):
    """The entries of a directory of the operating system; counts a refusal in the middle."""

    __slots__ = ("_entries", "_listing")

    def __init__(self, listing: Any) -> None:
        self._listing = self._entries = listing

    def __iter__(self) -> Iterator[os.DirEntry[AnyStr]]:
        try:  # a step of a generator takes a fourth of the time of a call of ``__next__``
            for entry in self._entries:  # noqa: UP028 - yield from closes them where it is given up: the rest is lost
                yield entry
        except OSError:
            _refused()
            raise

    def __next__(self) -> os.DirEntry[AnyStr]:
        try:
            entry: os.DirEntry[AnyStr] = next(self._entries)
            return entry
        except OSError:
            _refused()
            raise

    def __enter__(self) -> _DirectoryListing[AnyStr]:
        self._entries = self._listing.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._listing.__exit__(None, None, None)

    def close(self) -> None:
        self._listing.close()


class _VisibleEntries(Generic[AnyStr]):
    """The entries of a listing that are not hidden."""

    def __init__(self, listing: AbstractContextManager[Iterator[os.DirEntry[AnyStr]]]) -> None:
        self._listing: AbstractContextManager[Iterator[os.DirEntry[AnyStr]]] = listing

    def __enter__(self) -> Iterator[os.DirEntry[AnyStr]]:
        return self._shown(self._listing.__enter__())

    def __exit__(self, *_: object) -> None:
        self._listing.__exit__(None, None, None)

    @staticmethod
    def _shown(entries: Iterator[os.DirEntry[AnyStr]]) -> Iterator[os.DirEntry[AnyStr]]:
        for entry in entries:
            path = os.fsdecode(entry.path)
            if _matches(PurePath(path)):
                _hidden.add(path)
            else:
                yield entry


class _Scan:
    def __init__(self, entries: Iterator[_MountEntry[Any]]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[_MountEntry[Any]]:
        return self._entries

    def __next__(self) -> _MountEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> _Scan:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


class _MountEntry(Generic[AnyStr]):
    __slots__ = ("_directory", "_folder", "_inside", "_mount", "name")

    def __init__(self, mount: Mount, folder: AnyStr, inside: str, name: str, directory: bool) -> None:
        self._mount, self._inside, self._directory = mount, inside, directory
        self._folder: AnyStr = folder
        self.name: AnyStr = name if isinstance(folder, str) else os.fsencode(name)

    @property
    def path(self) -> AnyStr:
        return os.path.join(self._folder, self.name)  # noqa: PTH118 - text or bytes

    def __fspath__(self) -> AnyStr:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as os.DirEntry has it
        return self._directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as os.DirEntry has it
        return not self._directory and modes.S_ISREG(self.stat().st_mode)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 - as os.DirEntry has it
        name = os.fsdecode(self.name)
        return self._mount.stat(f"{self._inside}/{name}" if self._inside else name)


SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a rewritten file has another time on any file system."""
_TIMES_BEGIN: Final = 315_619_200_000_000_000
"""1980-01-02 in ns: stores without times say 0, 1, or the first day of a ZIP's calendar."""
_SECOND: Final = 1_000_000_000
_STATE_BITS: Final = (1 << 62) - 1
_FACTOR: Final = 0x1E3779B97F4A7C15
"""Odd, below 2⁶²: in a product every bit affects the bits above it."""


def state_of(status: os.stat_result, now: int | None = None) -> int:
    """Returns a number that changes when a file is rewritten or replaced; compare the size, too.

    It mixes the times of modification and change, and the inode. 0: not reliable, because the file was just written or
    its file system keeps no times. ``status`` must be from before the read; ``now`` is ``time.time_ns()``.
    """
    return state_of_times(status.st_mtime_ns, status.st_ctime_ns, status.st_ino, time.time_ns() if now is None else now)


Numbers = TypeVar("Numbers", int, "npt.NDArray[np.int64]")


def state_of_times(modified: Numbers, changed: Numbers, number: Numbers, now: int) -> Numbers:
    """Returns ``state_of`` for times in ns and inodes, also for columns of files."""
    relied = (modified <= now - SETTLED) & ((modified >= _TIMES_BEGIN) | (changed >= _TIMES_BEGIN))
    mixed = _mixed(_mixed(_mixed(modified) ^ changed) ^ number)
    state: Numbers = (mixed | (mixed == 0)) * relied
    return state


def _mixed(value: Numbers) -> Numbers:
    """Returns a different number for every 62-bit number; higher bits are ignored."""
    mixed = (value * _FACTOR) & _STATE_BITS
    return mixed ^ (mixed >> 31)


def made_up(modified: int, changed: int) -> bool:
    """Tells whether times (ns) look invented by a store: a whole second, the same for both."""
    return modified < _TIMES_BEGIN or (modified == changed and not modified % _SECOND)


def open_regular(path: AnyPath) -> tuple[int, os.stat_result]:
    """Opens a regular file for reading, never waiting for a writer; the caller closes the descriptor.

    The descriptor (negative in a mount) is for the functions here. Raises OSError, NotRegularError, or ValueError for a
    character that no path can have.
    """
    if _mounts and (found := _found(path)) is not None:
        mount, inside = found
        status = mount.stat(inside)
        _require_regular(status)
        file, number = mount.open(inside), next(_numbers)
        _files[number] = file
        return number, file.status
    descriptor = os.open(path, OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        _require_regular(status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _require_regular(status: os.stat_result) -> None:
    if not modes.S_ISREG(status.st_mode):
        text = f"{kind_of(status.st_mode)} in place of a file"
        raise NotRegularError(errno.EISDIR if modes.S_ISDIR(status.st_mode) else errno.EINVAL, text)


def pread(descriptor: int, size: int, first: int) -> bytes:
    """Returns bytes of an open file, fewer only at its end; or raises OSError."""
    if descriptor < 0:
        return _files[descriptor].read(first, size)
    found = os.pread(descriptor, size, first)
    while found and len(found) < size:  # a read may stop anywhere, as network file systems do: only nothing is the end
        more = os.pread(descriptor, size - len(found), first + len(found))
        if not more:
            break
        found += more
    return found


def waits(descriptor: int) -> bool:
    """Tells whether reading an open file waits for a network, so that only wanted bytes should be read."""
    return descriptor < -1 and _files[descriptor].waits


def close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
    else:
        _files.pop(descriptor).close()


def first_bytes(path: AnyPath, size: int, first: int = 0) -> bytes:
    """Returns some bytes of a file, fewer only at its end; raises as ``open_regular`` and ``pread``."""
    descriptor, _ = open_regular(path)
    try:
        return pread(descriptor, size, first)
    finally:
        close(descriptor)


def mapped(descriptor: int, first: int, size: int) -> tuple[mmap.mmap, int]:
    """Returns a memory map and the stretch's offset in it; or raises OSError or ValueError."""
    if descriptor < 0:
        return _files[descriptor].mapped(first, size)
    begin = first - first % mmap.ALLOCATIONGRANULARITY
    return mmap.mmap(descriptor, first + size - begin, access=mmap.ACCESS_READ, offset=begin), first - begin


def raw(descriptor: int) -> io.RawIOBase:
    """Returns an open file as an unbuffered stream; closing the stream leaves the file open."""
    return io.FileIO(descriptor, closefd=False) if descriptor >= 0 else _Raw(descriptor, False)


def stream(descriptor: int) -> IO[bytes]:
    """Returns an open file as a stream; closing the stream closes the file."""
    return os.fdopen(descriptor, "rb") if descriptor >= 0 else io.BufferedReader(_Raw(descriptor, True))


class _Raw(io.RawIOBase):
    def __init__(self, descriptor: int, closes: bool) -> None:
        super().__init__()
        self._descriptor, self._closes, self._at = descriptor, closes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = (0, self._at, _files[self._descriptor].status.st_size)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        found = pread(self._descriptor, len(target), self._at)
        target[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closes:
                close(self._descriptor)


def read_regular(path: AnyPath, limit: int) -> bytes:
    """Returns all bytes of a regular file; raises as ``open_regular``, or FileTooLargeError beyond ``limit``."""
    descriptor, status = open_regular(path)
    with stream(descriptor) as file:
        if status.st_size > limit:
            raise FileTooLargeError(errno.EFBIG, f"{status.st_size:,} bytes, and {limit:,} are plausible")
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or is not of a kind whose size is known
        raise FileTooLargeError(errno.EFBIG, f"more than {limit:,} bytes")
    return content


def read_given(path: AnyPath, limit: int) -> bytes:
    """Returns all bytes of a file that the user named, which may be a pipe: ``<(program)``, ``/dev/stdin``.

    Files of a dump need ``read_regular``, which never blocks. Raises OSError, ValueError (impossible path), or
    FileTooLargeError beyond ``limit`` bytes.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - as Path.open
        content = file.read(limit + 1)
    if len(content) > limit:
        raise FileTooLargeError(errno.EFBIG, f"more than {limit:,} bytes")
    return content


def read_lines(path: AnyPath, *, cut: bool = False, ends: bool = False) -> Iterator[bytes]:
    """Yields the lines of a regular file of any size, with their ends if ``ends``.

    With ``cut`` a line beyond ``LINE_LIMIT`` is truncated, for callers that count bad lines; else it raises
    FileTooLargeError. Other errors as ``open_regular``.
    """
    descriptor, _ = open_regular(path)
    with stream(descriptor) as file:
        while line := file.readline(LINE_LIMIT + 1):
            long = len(line) > LINE_LIMIT
            if long and not cut:
                raise FileTooLargeError(errno.EFBIG, f"a line of more than {LINE_LIMIT:,} bytes")
            yield line if ends else line.rstrip(b"\r\n")
            while long and len(line) > LINE_LIMIT and not line.endswith(b"\n"):
                line = file.readline(LINE_LIMIT + 1)


def kind_of(mode: int) -> str:
    """Returns the kind of a file by its ``st_mode``: ``a FIFO``."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")


def why_not(path: AnyPath, error: OSError | None = None, *, wanted: str = "a directory") -> str:
    """Says in a few words why a path cannot be read: ``permission denied``, ``a FIFO in place of a directory``.

    ``error`` is the system's error, if any; ``wanted`` is the expected kind.
    """
    if isinstance(error, NotRegularError):
        return str(error.strerror)
    try:
        kind = kind_of(stat(path).st_mode)
    except FileNotFoundError:
        return "a dangling link" if os.path.islink(path) else "vanished"  # noqa: PTH114 - see above
    except (OSError, ValueError) as problem:
        return _words(error if error is not None else problem)
    if kind != wanted and not (kind == "a file" and wanted.endswith(" file")):
        return f"{kind} in place of {wanted}"
    if error is not None:
        return _words(error)
    return "cannot be read" if is_mounted(path) or os.access(path, os.R_OK) else "permission denied"


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "a loop of links"
    return reason_of(error, within=True)
