"""Members of .npz archives: found by the archive's directory, read without loading the archive.

A stored member is a .npy file that begins somewhere inside another file. A deflated one is unpacked in pieces, never
beyond the size that the directory states. Nothing that an archive says about itself is trusted: names that occur twice,
members that overlap, sizes that do not fit, checksums that differ, and members that unpack to far more than any tensor
does are refused by name.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.opener import open_regular

SUFFIX: Final = ".npz"
ARRAY: Final = ".npy"
"""How the name of a member that is an array ends."""
MAX_DIRECTORY: Final = 1 << 24
"""Longest directory of an archive, in bytes: that of more than 100,000 members."""
PLAUSIBLE: Final = 1 << 28
"""Up to so many bytes a member may unpack to, whatever its packed size."""
MOST_PACKED: Final = 200
"""Beyond ``PLAUSIBLE``, so many times its packed size."""
_PIECE: Final = 1 << 18
_LOCAL: Final = struct.Struct("<4s22xHH")
"""The fixed part of what stands before a member: magic, lengths of its name and of what else there is."""
_ENCRYPTED: Final = 1
_KEPT: Final = 32
"""So many directories of archives are kept: the tensors of one archive are read one after the other."""
_KEPT_CHECKS: Final = 4096

_State = tuple[int, int, int, int]
"""Device, number, size and modification time of a file: the same ones, the same contents."""


@dataclass(frozen=True, slots=True)
class Member:
    """One array of an archive.

    Attributes:
        name: key, without ``.npy``.
        header: where its local header stands.
        packed: its bytes in the archive.
        size: its bytes as a .npy file.
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
    """What the directory of an archive lists.

    Attributes:
        members: arrays by name, in the order in which they were written; what is no array is left out. Of a name that
            occurs twice there is one, which has a problem.
    """

    members: Mapping[str, Member]


_archives: dict[tuple[str, _State], Archive] = {}
_checked: dict[tuple[str, _State, int], bool] = {}


def read_archive(path: str) -> Archive:
    """Returns what the directory of an archive lists.

    Raises:
        UnreadableTensorError: it is missing, no regular file, no archive, or damaged.
    """
    try:
        descriptor, status = open_regular(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"cannot be read: {_reason(error)}") from error
    try:
        return _archive(descriptor, path, _state(status))
    finally:
        os.close(descriptor)


class MemberFile:
    """One member of an open archive, as a file of its own. Not thread-safe.

    Attributes:
        start: where its bytes begin in the archive.
        size: its bytes as a .npy file.
        deflated: they are packed in the archive, so that nothing can be mapped.
    """

    def __init__(self, descriptor: int, status: os.stat_result, path: str, name: str) -> None:
        """Looks the member up; the caller keeps the archive open.

        Raises:
            UnreadableTensorError: the archive or the member is damaged, or the archive does not hold it.
        """
        self._where = f"{path}:{name}"
        state = _state(status)
        member = _archive(descriptor, path, state).members.get(name)
        if member is None:
            raise _unreadable(self._where, "is not in the archive", "the file was written anew: look again")
        if member.problem:
            raise _unreadable(self._where, member.problem)
        self._descriptor, self._member = descriptor, member
        self._key = (path, state, member.header)
        self.start = self._data_start(status.st_size)
        self.size, self.deflated = member.size, member.deflated
        self._restart()

    def read(self, first: int, count: int) -> bytes:
        """Returns some bytes, fewer where the member ends.

        Raises:
            UnreadableTensorError: the member is damaged.
        """
        count = max(min(count, self.size - first), 0)
        target = np.empty(count, np.uint8)
        self.read_into(first, target)
        return target.tobytes()

    def read_into(self, first: int, target: npt.NDArray[np.uint8]) -> None:
        """Fills an array with bytes from a place on.

        Raises:
            UnreadableTensorError: the member is damaged.
        """
        if self.deflated:
            self._unpack_into(first, target)
            return
        done = 0
        while done < len(target):
            piece = self._bytes(self.start + first + done, min(len(target) - done, _PIECE))
            target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)

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
            total = 0
            for start in range(0, self.size, _PIECE):
                total = zlib.crc32(self._bytes(self.start + start, min(_PIECE, self.size - start)), total)
            good = total == self._member.checksum
            if len(_checked) >= _KEPT_CHECKS:
                _checked.clear()
            _checked[self._key] = good
        if not good:
            raise self._differs()

    def _data_start(self, size: int) -> int:
        member = self._member
        head = os.pread(self._descriptor, _LOCAL.size, member.header)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\3\4"):
            raise _unreadable(self._where, "has a damaged header in the archive")
        _, name, extra = _LOCAL.unpack(head)
        start = int(member.header + _LOCAL.size + name + extra)
        if start + member.packed > size:
            raise _unreadable(self._where, "is truncated: the archive ends before it does")
        return start

    def _bytes(self, place: int, count: int) -> bytes:
        try:
            piece = os.pread(self._descriptor, count, place)
        except OSError as error:
            raise _unreadable(self._where, f"cannot be read: {_reason(error)}") from error
        if not piece:
            raise _unreadable(self._where, "became shorter while it was read", "look again when it is written")
        return piece

    def _restart(self) -> None:
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        self._at = self._more = self._sum = 0

    def _unpack_into(self, first: int, target: npt.NDArray[np.uint8]) -> None:
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
                raise _unreadable(self._where, "is damaged: it ends before all of it is unpacked")
            try:
                piece = self._unpacker.decompress(waiting, most)
            except zlib.error as error:
                raise _unreadable(self._where, "is damaged: it cannot be unpacked") from error
        self._at += len(piece)
        self._sum = zlib.crc32(piece, self._sum)
        if self._at == self.size and self._sum != self._member.checksum:
            raise self._differs()
        return piece

    def _packed_piece(self) -> bytes:
        count = min(_PIECE, self._member.packed - self._more)
        piece = self._bytes(self.start + self._more, count) if count > 0 else b""
        self._more += len(piece)
        return piece

    def _differs(self) -> UnreadableTensorError:
        return _unreadable(self._where, "does not have the checksum that the archive states: it is damaged")


class _Bounded:
    """Lets ``zipfile`` read the directory of an archive, and no more than ``MAX_DIRECTORY`` bytes at once."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size, self._at = descriptor, size, 0

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
        count = max(self._size - self._at, 0) if count is None or count < 0 else count
        if count > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has more than {MAX_DIRECTORY:,} bytes")
        found = b""
        while len(found) < count:
            piece = os.pread(self._descriptor, count - len(found), self._at)
            if not piece:
                break
            found += piece
            self._at += len(piece)
        return found


def _archive(descriptor: int, path: str, state: _State) -> Archive:
    found = _archives.get((path, state))
    if found is None:
        found = _read(descriptor, path, state[2])
        while len(_archives) >= _KEPT:
            _archives.pop(next(iter(_archives)), None)
        _archives[path, state] = found
    return found


def _read(descriptor: int, path: str, size: int) -> Archive:
    if not size:
        raise _unreadable(path, "is empty", "the file was probably never written to the end")
    try:
        with zipfile.ZipFile(_Bounded(descriptor, size)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError, struct.error) as error:
        what = "is not a .npz file" if str(error) == "File is not a zip file" else f"is damaged: {_reason(error)}"
        raise _unreadable(path, what, "it was probably not written to its end") from error
    arrays = [_member(info) for info in infos if info.filename.endswith(ARRAY)]
    members: dict[str, Member] = {}
    for member in _without_overlaps(arrays, size):
        twice = "is in the archive several times: which one counts is not known"
        members[member.name] = replace(member, problem=twice) if member.name in members else member
    return Archive(members)


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
    name = info.filename.removesuffix(ARRAY)
    return Member(name, info.header_offset, info.compress_size, info.file_size, info.CRC, deflated, problem)


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
                marked[each] = replace(members[each], problem="shares its bytes with another array: it is damaged")
        if member.header + _LOCAL.size + member.packed > end:
            end, last = member.header + _LOCAL.size + member.packed, index
    return marked


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _unreadable(where: str, what: str, hint: str = "") -> UnreadableTensorError:
    return UnreadableTensorError(what, where=where, hint=hint)


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__
