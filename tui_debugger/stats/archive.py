"""Members of zip archives, read where they lie: arrays of .npz files, storages of torch files.

Members are found by the archive's directory, and the archive is never loaded. A stored member is a file that begins
somewhere inside another file. A deflated one is unpacked in pieces, never beyond the size that the directory states.
Nothing that an archive says about itself is trusted: names that occur twice, members that overlap, sizes that do not
fit, checksums that differ, and members that unpack to far more than any tensor does are refused by name. An archive
may itself be a window of a bigger file.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, UInt8
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.opener import open_regular
from tui_debugger.stats.dtypes import DType

MAX_DIRECTORY: Final = 1 << 24
"""Longest directory of an archive, in bytes: that of more than 100,000 members."""
PLAUSIBLE: Final = 1 << 28
"""Up to so many bytes a member may unpack to, whatever its packed size."""
MOST_PACKED: Final = 200
"""Beyond ``PLAUSIBLE``, so many times its packed size."""
_PIECE: Final = 1 << 18
_UNPACKED: Final = 1 << 24
"""Bytes that are unpacked at once."""
_LOCAL: Final = struct.Struct("<4s22xHH")
"""The fixed part of what stands before a member: magic, lengths of its name and of what else there is."""
_ENCRYPTED: Final = 1
_KEPT: Final = 32
"""The number of directories of archives that are kept: the tensors of one archive are read one after the other."""
_KEPT_CHECKS: Final = 4096

State = tuple[int, int, int, int]
"""Device, number, size and modification time of a file: the same ones, the same contents."""
Window = tuple[int, int]
"""First byte and number of bytes of what is looked at in a file."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive.

    Attributes:
        name: with its directory.
        header: where its local header stands.
        packed: its bytes in the archive.
        size: its bytes.
        checksum: CRC-32 of these.
        deflated: it is packed.
        problem: why it is not read; empty: it may be.
    """

    name: str
    header: int
    packed: int
    size: int
    checksum: int
    deflated: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """The directory of an archive.

    Attributes:
        path: its file.
        state: the state of this.
        window: what of the file is the archive.
        members: its files by name, in the order in which they were written. Of a name that occurs twice there is one,
            which has a problem.
    """

    path: str
    state: State
    window: Window
    members: Mapping[str, Member]


_archives: dict[tuple[str, State, Window], Archive] = {}
_checked: dict[tuple[str, State, int], bool] = {}


def state_of(status: os.stat_result) -> State:
    """Returns what tells a file from any other, and from what it was before it was written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_archive(path: str) -> Archive:
    """Returns what the directory of an archive lists.

    Raises:
        UnreadableTensorError: it is missing, no regular file, no archive, or damaged.
    """
    try:
        descriptor, status = open_regular(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, f"cannot be read: {reason(error)}") from error
    try:
        return open_archive(descriptor, status, path)
    finally:
        opener.close(descriptor)


def open_archive(descriptor: int, status: os.stat_result, path: str, window: Window | None = None) -> Archive:
    """Returns what the directory of an archive lists that is open already; the last ones are kept.

    Args:
        descriptor: its file.
        status: the state of this.
        path: its name.
        window: what of the file is the archive; None: all.

    Raises:
        UnreadableTensorError: it is no archive, or damaged.
    """
    key = (path, state_of(status), window or (0, status.st_size))
    found = _archives.get(key)
    if found is None:
        found = Archive(*key, _read(descriptor, path, key[2]))
        while len(_archives) >= _KEPT:
            _archives.pop(next(iter(_archives)), None)
        _archives[key] = found
    return found


class FileBytes:
    """A stretch of an open file: all of it, or a member that is stored as it is. Not thread-safe.

    Attributes:
        start: its first byte.
        size: number of its bytes.
    """

    __slots__ = ("_descriptor", "_stream", "_where", "size", "start")

    def __init__(self, descriptor: int, start: int, size: int, where: str) -> None:
        """Takes a stretch that lies inside the file; the caller keeps that open.

        Args:
            descriptor: the file.
            start: first byte.
            size: number of bytes.
            where: what errors call it.
        """
        self._descriptor, self._where = descriptor, where
        self._stream: io.RawIOBase | None = None
        self.start, self.size = start, size

    def read(self, first: int, count: int) -> bytes:
        """Returns some bytes, fewer where the stretch or the file ends.

        Raises:
            UnreadableTensorError: the device fails.
        """
        if first >= self.size:
            return b""
        try:
            return opener.pread(self._descriptor, min(count, self.size - first), self.start + first)
        except OSError as error:
            raise unreadable(self._where, f"cannot be read: {reason(error)}") from error

    def read_into(self, first: int, target: UInt8) -> None:
        """Fills an array with bytes from a place on.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, or the device fails.
        """
        try:
            if self._stream is None:
                self._stream = opener.raw(self._descriptor)
            self._stream.seek(self.start + first)
            done = 0
            while done < len(target):
                got = self._stream.readinto(target[done:].data)
                if not got:
                    what = "became shorter while it was read"
                    raise unreadable(self._where, what, "look again when it is written")
                done += got
        except OSError as error:
            raise unreadable(self._where, f"cannot be read: {reason(error)}") from error

    def mapped(self) -> tuple[mmap.mmap, int]:
        """Returns a map of the stretch, and where it begins in that."""
        return opener.mapped(self._descriptor, self.start, self.size)


class MemberFile:
    """One member of an open archive, as a file of its own. Not thread-safe.

    Attributes:
        size: its bytes.
        deflated: they are packed in the archive, so that nothing can be mapped.
    """

    def __init__(self, descriptor: int, archive: Archive, name: str, where: str = "") -> None:
        """Looks the member up; the caller keeps the archive open.

        Args:
            descriptor: the archive's file.
            archive: its directory.
            name: the member.
            where: what errors call it; empty: path and name.

        Raises:
            UnreadableTensorError: the member is damaged, or the archive does not hold it.
        """
        self._where = where or f"{archive.path}:{name}"
        member = archive.members.get(name)
        if member is None:
            raise unreadable(self._where, "is not in the archive", "the file was written anew: look again")
        if member.problem:
            raise unreadable(self._where, member.problem)
        self._member = member
        self._key = (archive.path, archive.state, archive.window[0] + member.header)
        start = self._data_start(descriptor, archive.window)
        self._bytes = FileBytes(descriptor, start, member.packed, self._where)
        self.size, self.deflated = member.size, member.deflated
        self._restart()

    def read(self, first: int, count: int) -> bytes:
        """Returns some bytes, fewer where the member ends.

        Raises:
            UnreadableTensorError: the member is damaged.
        """
        target = np.empty(max(min(count, self.size - first), 0), np.uint8)
        self.read_into(first, target)
        return target.tobytes()

    def read_into(self, first: int, target: UInt8) -> None:
        """Fills an array with bytes from a place on.

        Raises:
            UnreadableTensorError: the member is damaged.
        """
        if self.deflated:
            self._unpack_into(first, target)
        else:
            self._bytes.read_into(first, target)

    def mapped(self) -> tuple[mmap.mmap, int]:
        """Returns a map of the member, and where it begins in that.

        What is packed is unpacked into a temporary file that goes with the map.

        Raises:
            UnreadableTensorError: the member is damaged.
        """
        if not self.deflated:
            return self._bytes.mapped()
        with tempfile.TemporaryFile() as file:
            piece = np.empty(min(_UNPACKED, self.size), np.uint8)
            for start in range(0, self.size, max(len(piece), 1)):
                part = piece[: min(len(piece), self.size - start)]
                self.read_into(start, part)
                file.write(part.data)
            file.flush()
            return mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ), 0

    def check(self) -> None:
        """Compares a stored member with its checksum, once for every state of the archive.

        A deflated one is compared when its last byte is unpacked.

        Raises:
            UnreadableTensorError: it differs.
        """
        if self.deflated:
            return
        good = _checked.get(self._key)
        if good is None:
            total, piece = 0, np.empty(min(_PIECE, self.size), np.uint8)
            for start in range(0, self.size, _PIECE):
                part = piece[: min(_PIECE, self.size - start)]
                self._bytes.read_into(start, part)
                total = zlib.crc32(part.data, total)
            good = total == self._member.checksum
            if len(_checked) >= _KEPT_CHECKS:
                _checked.clear()
            _checked[self._key] = good
        if not good:
            raise self._differs()

    def _data_start(self, descriptor: int, window: Window) -> int:
        """Returns where its bytes begin: what its directory says of the length of a local header is not so."""
        member = self._member
        begin = window[0] + member.header
        head = opener.pread(descriptor, _LOCAL.size, begin)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\3\4"):
            raise unreadable(self._where, "has a damaged header in the archive")
        _, name, extra = _LOCAL.unpack(head)
        start = int(begin + _LOCAL.size + name + extra)
        if start + member.packed > sum(window):
            raise unreadable(self._where, "is truncated: the archive ends before it does")
        return start

    def _restart(self) -> None:
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        self._at = self._more = self._sum = 0

    def _unpack_into(self, first: int, target: UInt8) -> None:
        if first < self._at:
            self._restart()
        while self._at < first:
            self._unpack(min(first - self._at, _PIECE))
        done = 0
        while done < len(target):
            piece = self._unpack(min(len(target) - done, _PIECE))
            target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)

    def _unpack(self, most: int) -> bytes:
        """Returns the next bytes, at least one."""
        piece = b""
        while not piece:
            waiting = self._unpacker.unconsumed_tail or self._packed_piece()
            if self._unpacker.eof or not waiting:
                raise unreadable(self._where, "is damaged: it ends before all of it is unpacked")
            try:
                piece = self._unpacker.decompress(waiting, most)
            except zlib.error as error:
                raise unreadable(self._where, "is damaged: it cannot be unpacked") from error
        self._at += len(piece)
        self._sum = zlib.crc32(piece, self._sum)
        if self._at == self.size and self._sum != self._member.checksum:
            raise self._differs()
        return piece

    def _packed_piece(self) -> bytes:
        piece = self._bytes.read(self._more, _PIECE)
        if not piece and self._more < self._member.packed:
            raise unreadable(self._where, "became shorter while it was read", "look again when it is written")
        self._more += len(piece)
        return piece

    def _differs(self) -> UnreadableTensorError:
        return unreadable(self._where, "does not have the checksum that the archive states: it is damaged")


class _Bounded:
    """Lets ``zipfile`` read the directory of an archive, and no more than ``MAX_DIRECTORY`` bytes at once."""

    def __init__(self, descriptor: int, window: Window) -> None:
        self._descriptor, (self._first, self._size), self._at = descriptor, window, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._size)[whence]
        if at < 0:
            raise OSError("before the start")
        self._at = at
        return at

    def read(self, count: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        count = left if count is None or count < 0 else min(count, left)
        if count > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has more than {MAX_DIRECTORY:,} bytes")
        found = b""
        while len(found) < count:
            piece = opener.pread(self._descriptor, count - len(found), self._first + self._at)
            if not piece:
                break
            found += piece
            self._at += len(piece)
        return found


def _read(descriptor: int, path: str, window: Window) -> dict[str, Member]:
    if not window[1]:
        raise unreadable(path, "is empty", "the file was probably never written to the end")
    try:
        with zipfile.ZipFile(_Bounded(descriptor, window)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError, struct.error) as error:
        what = "is no zip archive" if str(error) == "File is not a zip file" else f"is damaged: {reason(error)}"
        raise unreadable(path, what, "it was probably not written to its end") from error
    members: dict[str, Member] = {}
    for member in _without_overlaps([_member(info) for info in infos if not info.filename.endswith("/")], window[1]):
        twice = "is in the archive several times: which one counts is not known"
        members[member.name] = replace(member, problem=twice) if member.name in members else member
    return members


def _member(info: zipfile.ZipInfo) -> Member:
    """Returns what the directory says of one member."""
    problem = ""
    if info.flag_bits & _ENCRYPTED:
        problem = "is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = f"is packed in a way that is not read (method {info.compress_type})"
    elif info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        problem = "has two sizes in the archive: it is damaged"
    elif info.file_size > max(PLAUSIBLE, MOST_PACKED * info.compress_size):
        problem = f"would unpack from {info.compress_size:,} to {info.file_size:,} bytes: it is not unpacked"
    deflated = info.compress_type != zipfile.ZIP_STORED
    return Member(info.filename, info.header_offset, info.compress_size, info.file_size, info.CRC, deflated, problem)


def _without_overlaps(members: list[Member], size: int) -> list[Member]:
    """Marks members that share bytes of the archive, and those that lie outside of it."""
    by = sorted(range(len(members)), key=lambda index: members[index].header)
    marked = list(members)
    end, last = 0, -1
    for index in by:
        member = members[index]
        if member.header < 0 or member.header + _LOCAL.size + member.packed > size:
            marked[index] = replace(member, problem="is truncated: the archive ends before it does")
            continue
        if member.header < end:
            for each in (index, last):
                marked[each] = replace(members[each], problem="shares its bytes with another member: it is damaged")
        if member.header + _LOCAL.size + member.packed > end:
            end, last = member.header + _LOCAL.size + member.packed, index
    return marked


def temporary_array(count: int, dtype: DType, in_memory: int) -> Array:
    """Returns an array to be filled: in memory up to so many bytes, else in a temporary file that goes with it."""
    size = count * dtype.itemsize
    if size <= in_memory:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def unreadable(where: str, what: str, hint: str = "") -> UnreadableTensorError:
    """Returns what to raise for something that cannot be read."""
    return UnreadableTensorError(what, where=where, hint=hint)


def reason(error: BaseException) -> str:
    """Returns what the system or a library says, as a part of a sentence."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__
