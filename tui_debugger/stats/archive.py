"""Members of zip archives, read where they lie: arrays of .npz files, storages of torch files.

The directory of the archive finds a member; the archive is never loaded. A stored member is a stretch of the file. A
deflated member is unpacked in pieces, never beyond the size that the directory states. Nothing that an archive states
is trusted: duplicate names, overlapping members, wrong sizes or checksums, and members that unpack to implausibly many
bytes are refused by name. An archive may be a window of a bigger file.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, UInt8
from tui_debugger.errors import UnreadableTensorError, reason_of
from tui_debugger.opener import open_regular
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kept import Kept
from tui_debugger.stats.kernel.checksum import crc32

MAX_DIRECTORY: Final = 1 << 24
"""Longest directory of an archive, in bytes: enough for 100,000 members."""
PLAUSIBLE: Final = 1 << 28
"""Bytes that any member may unpack to, however small it is packed."""
MOST_PACKED: Final = 200
"""A member above ``PLAUSIBLE`` may unpack to this many times its packed size."""
_PIECE: Final = 1 << 18
_UNPACKED: Final = 1 << 24
"""Bytes that are unpacked or reserved at once."""
_LOCAL: Final = struct.Struct("<4s22xHH")
"""The local header before a member: magic, length of its name, length of its extra field."""
_ENCRYPTED: Final = 1
_EACH: Final = 400
"""Approximate bytes of memory for each member."""
_KEPT_CHECKS: Final = 4096
_PAGE: Final = 1 << 12
"""Bytes that a file system writes, and loses, together."""
_FEW: Final = 1 << 16
"""Bytes up to which a copy costs less than a stream to read them into place."""
_SMALL: Final = 1 << 14
"""An archive up to this many bytes is kept in memory with its directory: dumps have thousands of such archives."""
_TAIL: Final = 4096
"""Bytes at the end of an archive that hold the whole directory of a small one."""
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
"""End, zip64 locator, zip64 end and directory entry of an archive, as the specification of zip files lays them out."""
_KNOWN_VERSION: Final = 63
"""The newest version of the zip format that ``zipfile`` reads."""

State = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file: equal states mean equal contents."""
Window = tuple[int, int]
"""First byte and number of bytes of the part of a file that is read."""


class ArchiveMember(NamedTuple):
    """One file of an archive.

    ``header`` is the offset of its local header; ``packed`` and ``size`` are its bytes in the archive and unpacked;
    ``checksum`` is the CRC-32 of the unpacked bytes. ``problem`` says why the member is not read.
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
    """The directory of an archive: a ``window`` of the file ``path``, whose ``state`` is known.

    ``members`` are in archive order; a name that occurs twice has one entry, with a problem. ``content`` has all bytes
    of a small archive, so that it is read once.
    """

    path: str
    state: State
    window: Window
    members: Mapping[str, ArchiveMember]
    content: bytes = b""


_archives: Kept[tuple[str, State, Window], Archive] = Kept(
    lambda archive: len(archive.members) * _EACH + len(archive.content)
)
_checked: dict[tuple[str, State, int], bool] = {}


def state_of(status: os.stat_result) -> State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Opens a file as (descriptor, status) and closes it; raises UnreadableTensorError if missing or not regular."""
    try:
        descriptor, status = open_regular(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, f"cannot be read: {reason_of(error, within=True)}") from error
    try:
        yield descriptor, status
    finally:
        opener.close(descriptor)


def open_archive(descriptor: int, status: os.stat_result, path: str, window: Window | None = None) -> Archive:
    """Returns the directory of an archive in an open file, cached; ``window`` None is the whole file.

    Raises:
        UnreadableTensorError: the bytes are no archive, or damaged.
    """
    key = (path, state_of(status), window or (0, status.st_size))
    return _archives.get(key, lambda: Archive(*key, *_read(descriptor, path, key[2])))


class FileBytes:
    """A stretch of an open file, ``size`` bytes from ``start`` on. Not thread-safe."""

    __slots__ = ("_descriptor", "_held", "_stream", "_where", "size", "start")

    def __init__(self, descriptor: int, start: int, size: int, where: str, held: bytes = b"") -> None:
        """Takes a stretch inside a file, which the caller keeps open.

        ``where`` is the name in errors; ``held`` has all bytes, if they were read already.
        """
        self._descriptor, self._where, self._held = descriptor, where, held
        self._stream: io.RawIOBase | None = None
        self.start, self.size = start, size

    @property
    def descriptor(self) -> int:
        """The open file; -1 when the operating system has no descriptor for it (bytes in memory, file at a URL)."""
        return -1 if self._held else max(self._descriptor, -1)

    def read(self, first: int, count: int) -> bytes:
        """Returns up to ``count`` bytes, fewer at the end; raises UnreadableTensorError when the device fails."""
        if first >= self.size:
            return b""
        if self._held:
            return self._held[first : first + count]
        try:
            return opener.pread(self._descriptor, min(count, self.size - first), self.start + first)
        except OSError as error:
            raise unreadable(self._where, f"cannot be read: {reason_of(error, within=True)}") from error

    def read_into(self, first: int, target: UInt8) -> None:
        """Fills an array; raises UnreadableTensorError when the file became shorter, or the device fails."""
        try:
            done = 0
            if len(target) <= _FEW or self._held:
                found = self.read(first, len(target))
                done = len(found)
                target[:done] = np.frombuffer(found, np.uint8)
            if done == len(target):
                return
            if self._stream is None:
                self._stream = opener.raw(self._descriptor)
            self._stream.seek(self.start + first + done)
            while done < len(target):
                got = self._stream.readinto(target[done:].data)
                if not got:
                    what = "became shorter while it was read"
                    raise unreadable(self._where, what, "look again when it is written")
                done += got
        except OSError as error:
            raise unreadable(self._where, f"cannot be read: {reason_of(error, within=True)}") from error

    def mapped(self) -> tuple[mmap.mmap, int]:
        """Returns a memory map and the offset of the stretch in it."""
        return opener.mapped(self._descriptor, self.start, self.size)


class MemberFile:
    """One member of an open archive, as a file of ``size`` (unpacked) bytes. Not thread-safe.

    ``deflated`` members cannot be mapped. Reading a damaged member raises UnreadableTensorError.
    """

    def __init__(self, descriptor: int, archive: Archive, name: str, where: str = "") -> None:
        """Finds a member of an archive, whose file the caller keeps open; ``where`` is the name in errors."""
        self._where = where or f"{archive.path}:{name}"
        member = archive.members.get(name)
        if member is None:
            raise unreadable(self._where, "is not in the archive", "the file was written anew: look again")
        if member.problem:
            raise unreadable(self._where, member.problem)
        self._member = member
        self._key = (archive.path, archive.state, archive.window[0] + member.header)
        start = self._data_start(descriptor, archive)
        held = archive.content[start - archive.window[0] :][: member.packed] if archive.content else b""
        self._bytes = FileBytes(descriptor, start, member.packed, self._where, held)
        self.size, self.deflated = member.size, member.deflated
        if self.deflated:
            self._restart()

    def read(self, first: int, count: int) -> bytes:
        """Returns up to ``count`` bytes, fewer at the end of the member."""
        count = max(min(count, self.size - first), 0)
        if not self.deflated and len(found := self._bytes.read(first, count)) == count:
            return found
        target = np.empty(count, np.uint8)
        self.read_into(first, target)
        return target.tobytes()

    def read_into(self, first: int, target: UInt8) -> None:
        if self.deflated:
            self._unpack_into(first, target)
        else:
            self._bytes.read_into(first, target)

    def mapped(self) -> tuple[mmap.mmap, int]:
        """Returns a memory map and the member's offset in it; a deflated member is unpacked into a temporary file."""
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

    def check(self, *, may_lack: bool = False) -> None:
        """Compares a stored member with its checksum, once for every state of the archive.

        A deflated member is compared when its last byte is unpacked. With ``may_lack`` a checksum of 0 means none:
        PyTorch can omit it. Raises UnreadableTensorError when the checksum differs.
        """
        if self.deflated or (may_lack and not self._member.checksum):
            return
        good = _checked.get(self._key)
        if good is None:
            total, piece = 0, np.empty(min(_PIECE, self.size), np.uint8)
            for start in range(0, self.size, _PIECE):
                part = piece[: min(_PIECE, self.size - start)]
                self._bytes.read_into(start, part)
                total = crc32(part, total)
            good = total == self._member.checksum
            if len(_checked) >= _KEPT_CHECKS:
                _checked.clear()
            _checked[self._key] = good
        if not good:
            raise self._differs()

    def check_zeros(self, first: int, found: UInt8) -> None:
        """Compares a stored member with its checksum (0: none) if the bytes from ``first`` on have a page of zeros.

        The page may be lost. Raises UnreadableTensorError when the checksum differs.
        """
        if self.deflated or not self._member.checksum or not len(found):
            return
        head = min(-(self._bytes.start + first) % _PAGE, len(found))
        if head == len(found):  # most members are small, within one page
            if not found.any():
                self.check()
            return
        count = (len(found) - head) // _PAGE
        pages, tail = found[head:][: count * _PAGE].reshape(count, _PAGE), found[head + count * _PAGE :]
        zero = pages[pages[:, 0] == 0]
        if any(len(part) and not part.any() for part in (found[:head], tail)) or not zero.any(axis=1).all():
            self.check()

    def _data_start(self, descriptor: int, archive: Archive) -> int:
        """Returns the offset of the member's bytes; only the local header tells its own length, not the directory."""
        member, window = self._member, archive.window
        begin, end = window[0] + member.header, member.header + _LOCAL.size
        head = archive.content[member.header : end] or opener.pread(descriptor, _LOCAL.size, begin)
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
        """Returns the next bytes, at least one and at most ``most``."""
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


class SeekableBytes:
    """Lets ``zipfile`` read ``size`` bytes, but no more than ``most`` at once.

    ``read_at`` returns a number of bytes from a place on.
    """

    def __init__(self, size: int, most: int, read_at: Callable[[int, int], bytes]) -> None:
        self._size, self._most, self._read_at, self._at = size, most, read_at, 0

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
        if count > self._most:
            raise zipfile.BadZipFile(f"its directory has more than {self._most:,} bytes")
        found = self._read_at(self._at, count)
        self._at += len(found)
        return found


def _read(descriptor: int, path: str, window: Window) -> tuple[dict[str, ArchiveMember], bytes]:
    """Returns ``members`` and ``content`` of an archive."""
    if not window[1]:
        raise unreadable(path, "is empty", "the file was probably never written to the end")
    try:
        count = window[1] if window[1] <= _SMALL else _TAIL
        tail = opener.pread(descriptor, count, sum(window) - count)
        listed, start = _plain_directory(tail, window[1] - count) or _any_directory(descriptor, window)
        listed = _without_overlaps(listed, window[1])
        hidden = 0 if any(member.problem for member in listed) else _hidden(descriptor, window[0], listed, start)
        hidden += _behind(descriptor, window, tail)
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError, struct.error) as error:
        what = (
            "is no zip archive"
            if str(error) == "File is not a zip file"
            else f"is damaged: {reason_of(error, within=True)}"
        )
        raise unreadable(path, what, "it was probably not written to its end") from error
    if hidden:
        what = f"has {hidden:,} bytes that belong to none of its members: it is damaged"
        raise unreadable(
            path, what, "or it is several archives one behind the other, of which only the last one counts"
        )
    listed = [member for member in listed if not member.name.endswith("/")]
    members = {member.name: member for member in listed}
    if len(members) < len(listed):
        often, twice = (
            Counter(member.name for member in listed),
            "is in the archive several times: which one counts is not known",
        )
        members |= {each.name: each._replace(problem=twice) for each in listed if often[each.name] > 1}
    return members, tail if count == len(tail) == window[1] else b""


def _any_directory(descriptor: int, window: Window) -> tuple[list[ArchiveMember], int]:
    """Returns the members of any archive and the offset of its directory, by means of ``zipfile``."""

    def read_at(first: int, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = opener.pread(descriptor, count - len(found), window[0] + first + len(found))
            if not piece:
                break
            found += piece
        return found

    content: Any = SeekableBytes(window[1], MAX_DIRECTORY, read_at)
    with zipfile.ZipFile(content) as archive:
        return [_member(info) for info in archive.infolist()], archive.start_dir


def _hidden(descriptor: int, origin: int, listed: list[ArchiveMember], start: int) -> int:
    """Returns how many bytes before the directory (at ``start``) belong to no member; ``origin``: archive's offset."""
    hidden, end, last = 0, 0, None
    ordered = listed if all(map(_in_order, listed, listed[1:])) else sorted(listed, key=lambda member: member.header)
    for member in (*ordered, None):
        header = member.header if member is not None else start
        more = header - end
        if more > _LEAST_HIDDEN and last is not None:  # a long name, or padding that aligns the values to a page
            more -= sum(_LOCAL.unpack(opener.pread(descriptor, _LOCAL.size, origin + last.header))[1:])
        if more > _LEAST_HIDDEN or (more and last is None):
            hidden += more
        if member is not None and header + _LOCAL.size + member.packed >= end:
            end, last = header + _LOCAL.size + member.packed, member
    return hidden


def _behind(descriptor: int, window: Window, tail: bytes) -> int:
    """Returns how many bytes follow the end of an archive, not counting its comment and zero padding."""
    if tail.startswith(b"PK\5\6", max(len(tail) - _END.size, 0)) and tail.endswith(b"\0\0"):
        return 0
    if len(tail) < window[1]:
        count = min(_END.size + _LONGEST_COMMENT, window[1])
        tail = opener.pread(descriptor, count, sum(window) - count)
    end = tail.rfind(b"PK\5\6")
    rest = tail[end + _END.size :]
    length = _END.unpack_from(tail, end)[-1] if 0 <= end <= len(tail) - _END.size else 0
    behind = rest[length:].rstrip(b"\0")
    return len(behind) + (0 if _is_text(rest[:length]) else length)


def _is_text(comment: bytes) -> bool:
    try:
        return "\0" not in comment.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        return False


_LONGEST_COMMENT: Final = (1 << 16) - 1


def _in_order(one: ArchiveMember, other: ArchiveMember) -> bool:
    return one.header <= other.header


_LEAST_HIDDEN: Final = 128
"""Fewer bytes than this can be a long name and padding; an array of numpy with its header has more."""


def _plain_directory(tail: bytes, before: int) -> tuple[list[ArchiveMember], int] | None:
    """Does as ``_any_directory`` in a tenth of the time for a small, ordinary archive; else None.

    ``tail`` are the last bytes of the archive, ``before`` is the number of bytes before them.
    """
    start, end, count = _plain_end(tail, before)
    at, found = start, list[ArchiveMember]()
    while at + _ENTRY.size <= end:
        entry = _ENTRY.unpack_from(tail, at)
        magic, _, version, flags, method, _, _, checksum, packed, unpacked, length, extra, comment, *_, header = entry
        name = tail[at + _ENTRY.size : at + _ENTRY.size + length]
        special = extra or comment or version > _KNOWN_VERSION or b"\0" in name or not name.isascii()
        if magic != b"PK\1\2" or special or name.endswith(b"/"):
            return None
        member = ArchiveMember(name.decode("ascii"), header, packed, unpacked, checksum, method != zipfile.ZIP_STORED)
        ordinary = packed == unpacked and not method and not flags & _ENCRYPTED
        found.append(member if ordinary else _judged(member, flags, method))
        at += _ENTRY.size + length
    return (found, before + start) if at == end and count == len(found) else None


def _plain_end(tail: bytes, before: int) -> tuple[int, int, int]:
    """Returns offset and end (in ``tail``) of the directory and its number of entries; (1, 0, 0): not ordinary."""
    none, end = (1, 0, 0), len(tail) - _END.size
    if end < 0:
        return none
    magic, *numbers, comment = _END.unpack_from(tail, end)
    plain = magic == b"PK\5\6" and not comment
    locator = end - _LOCATOR.size
    if plain and tail.startswith(b"PK\6\7", max(locator, 0)):
        _, disk, where, disks = _LOCATOR.unpack_from(tail, locator)
        end = locator - _END64.size
        if end < 0 or disk or disks != 1 or where != before + end:
            return none
        magic, _, _, _, *numbers = _END64.unpack_from(tail, end)
        plain = magic == b"PK\6\6"
    disk, other, here, count, length, start = numbers
    plain = plain and not disk and not other and here == count and start == before + end - length
    return (end - length, end, count) if plain and length <= end else none


def _member(info: zipfile.ZipInfo) -> ArchiveMember:
    method = info.compress_type
    deflated = method != zipfile.ZIP_STORED
    found = ArchiveMember(info.filename, info.header_offset, info.compress_size, info.file_size, info.CRC, deflated)
    return _judged(found, info.flag_bits, method)


def _judged(member: ArchiveMember, flags: int, method: int) -> ArchiveMember:
    """Returns the member, with a ``problem`` if anything keeps it from being read."""
    problem, (packed, size) = "", member[2:4]
    if flags & _ENCRYPTED:
        problem = "is encrypted"
    elif method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = f"is packed in a way that is not read (method {method})"
    elif method == zipfile.ZIP_STORED and packed != size:
        problem = "has two sizes in the archive: it is damaged"
    elif size > max(PLAUSIBLE, MOST_PACKED * packed):
        problem = f"would unpack from {packed:,} to {size:,} bytes: it is not unpacked"
    return member._replace(problem=problem) if problem else member


def _without_overlaps(members: list[ArchiveMember], size: int) -> list[ArchiveMember]:
    """Marks members that share bytes of the archive, and members that lie outside of it."""
    reach = 0
    for member in members:
        if member.header < reach:
            break
        reach = member.header + _LOCAL.size + member.packed
    else:
        if reach <= size:
            return members  # one after the other, as they were written
    by = sorted(range(len(members)), key=lambda index: members[index].header)
    marked = list(members)
    end, last = 0, -1
    for index in by:
        member = members[index]
        if member.header < 0 or member.header + _LOCAL.size + member.packed > size:
            marked[index] = member._replace(problem="is truncated: the archive ends before it does")
            continue
        if member.header < end:
            for each in (index, last):
                marked[each] = members[each]._replace(problem="shares its bytes with another member: it is damaged")
        if member.header + _LOCAL.size + member.packed > end:
            end, last = member.header + _LOCAL.size + member.packed, index
    return marked


def temporary_array(count: int, dtype: DType, in_memory: int) -> Array:
    """Returns an empty array: in memory up to ``in_memory`` bytes, else in a temporary file (OSError: disk full)."""
    size = count * dtype.itemsize
    if size <= in_memory:
        return np.empty(count, dtype)
    with tempfile.TemporaryFile() as file:
        _reserve(file.fileno(), size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def _reserve(descriptor: int, size: int) -> None:
    """Takes room on the disk (OSError: there is none): a page of a map without room ends the process by a signal."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    for start in range(0, size, _UNPACKED):  # macOS
        os.write(descriptor, bytes(min(_UNPACKED, size - start)))


def unreadable(where: str, what: str, hint: str = "") -> UnreadableTensorError:
    return UnreadableTensorError(what, where=where, hint=hint)
