"""Reads tensor files: .npy, members of .npz archives, and raw bytes, without numpy's loader.

numpy's loader unpickles on request, costs 60 µs a file and knows neither declared element types nor MindSpore's
``<E2``. The header is parsed strictly instead, once per distinct header: a dump has thousands of files and a handful of
headers.

Members are found by the archive's directory, and the archive is never loaded. A stored member is a .npy file that
begins somewhere inside another file. A deflated one is unpacked in pieces, never beyond the size that the directory
states. Nothing that an archive says about itself is trusted: names that occur twice, members that overlap, sizes that
do not fit, checksums that differ, and members that unpack to far more than any tensor does are refused by name.
"""

from __future__ import annotations

import ast
import errno
import io
import math
import mmap
import os
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, TensorMeta
from tui_debugger.opener import NotRegularError, open_regular
from tui_debugger.stats.dtypes import DType, declared_view, dtype_of, name_of

SUFFIX: Final = ".npz"
ARRAY: Final = ".npy"
"""The end of the name of a member that is an array."""
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
"""The number of directories of archives that are kept: the tensors of one archive are read one after the other."""
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
    """The entries of an archive's directory.

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
        raise _unreadable_member(path, f"cannot be read: {_reason(error)}") from error
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
            raise _unreadable_member(self._where, "is not in the archive", "the file was written anew: look again")
        if member.problem:
            raise _unreadable_member(self._where, member.problem)
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
            raise _unreadable_member(self._where, "has a damaged header in the archive")
        _, name, extra = _LOCAL.unpack(head)
        start = int(member.header + _LOCAL.size + name + extra)
        if start + member.packed > size:
            raise _unreadable_member(self._where, "is truncated: the archive ends before it does")
        return start

    def _bytes(self, place: int, count: int) -> bytes:
        try:
            piece = os.pread(self._descriptor, count, place)
        except OSError as error:
            raise _unreadable_member(self._where, f"cannot be read: {_reason(error)}") from error
        if not piece:
            raise _unreadable_member(self._where, "became shorter while it was read", "look again when it is written")
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
                raise _unreadable_member(self._where, "is damaged: it ends before all of it is unpacked")
            try:
                piece = self._unpacker.decompress(waiting, most)
            except zlib.error as error:
                raise _unreadable_member(self._where, "is damaged: it cannot be unpacked") from error
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
        return _unreadable_member(self._where, "does not have the checksum that the archive states: it is damaged")


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
        raise _unreadable_member(path, "is empty", "the file was probably never written to the end")
    try:
        with zipfile.ZipFile(_Bounded(descriptor, size)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError, struct.error) as error:
        what = "is not a .npz file" if str(error) == "File is not a zip file" else f"is damaged: {_reason(error)}"
        raise _unreadable_member(path, what, "it was probably not written to its end") from error
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


def _unreadable_member(where: str, what: str, hint: str = "") -> UnreadableTensorError:
    return UnreadableTensorError(what, where=where, hint=hint)


MAGIC: Final = b"\x93NUMPY"
_VERSION_1: Final = MAGIC + b"\x01\x00"
MAX_HEADER: Final = 1 << 16
"""Longest header accepted. Real ones have 118 bytes; a parser should not be fed megabytes."""
FIRST_READ: Final = 1 << 15
"""One read of this size brings the header and, for most tensors of a run, all values."""
WHOLE_FILE: Final = 1 << 24
"""Files up to this size are read by ``open_array``; longer ones are mapped."""
_HEADER_KEYS: Final = {"descr", "fortran_order", "shape"}


@dataclass(frozen=True, slots=True)
class Layout:
    """The place and the form of the values in a file.

    Attributes:
        dtype: type that reads the elements.
        name: element type to show (bfloat16 stored as float32 shows as bfloat16).
        shape: dimensions.
        fortran: first index fastest; never set when the order makes no difference.
        offset: bytes before the first element.
        count: number of elements.
    """

    dtype: DType
    name: str
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.count * self.dtype.itemsize

    @property
    def meta(self) -> TensorMeta:
        """The facts that the tensor table shows."""
        return TensorMeta(self.name, self.shape, self.nbytes)


class TensorFile:
    """An open tensor file. Use as a context manager."""

    __slots__ = ("_fd", "_head", "_member", "_spec", "_stream", "layout")

    def __init__(self, spec: ReadSpec) -> None:
        """Opens the file and reads its header.

        Raises:
            UnreadableTensorError: missing, not a file, not an array, pickled, truncated ...
        """
        self._spec = spec
        self._stream: io.FileIO | None = None
        self._member: MemberFile | None = None
        self._fd = -1
        try:
            self._fd, status = open_regular(spec.path)
            if spec.format == "npz":
                self._member = MemberFile(self._fd, status, spec.path, spec.member)
            self._head = self._start(FIRST_READ)
            self.layout = _raw_layout(spec) if spec.format == "raw" else self._npy_layout()
            _check_size(spec, self.layout, status.st_size if self._member is None else self._member.size)
            if self._member is not None and self._member.size > self.layout.offset + self.layout.nbytes:
                raise _unreadable(spec, "has bytes behind its values: it is damaged")  # no checksum would be compared
        except NotRegularError as error:
            self.close()
            kind = "a directory" if error.errno == errno.EISDIR else "not a regular file"
            raise _unreadable(spec, f"expected a tensor file, found {kind}") from None
        except (OSError, ValueError) as error:
            self.close()
            raise _unreadable(spec, f"cannot be read: {_reason(error)}") from error
        except BaseException:
            self.close()
            raise

    @property
    def packed(self) -> bool:
        """True if the values have to be unpacked from the first on: they are not read from several places at once."""
        return self._member is not None and self._member.deflated

    def __enter__(self) -> TensorFile:  # noqa: PYI034  # typing.Self needs Python 3.11
        """Returns the file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self.close()

    def close(self) -> None:
        """Closes the file; arrays that were handed out stay valid."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, start: int, count: int, buffer: npt.NDArray[np.uint8] | None = None) -> Array:
        """Returns the elements ``start`` to ``start + count`` in the order of the file, as a 1-D array.

        Args:
            start: first element.
            count: number of elements; start + count must not exceed the tensor's.
            buffer: bytes to read into, at least as many as needed; the result is then a view of it. Without one, a
                new array is returned.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, the device fails, or a checksum differs.
        """
        if self._member is not None:
            self._member.check()
        layout = self.layout
        size = layout.dtype.itemsize
        first, nbytes = layout.offset + start * size, count * size
        there = first + nbytes <= len(self._head)
        if self._member is not None and self._member.deflated:
            there = False  # unpacking the last byte compares the checksum
        if there and buffer is None:
            return np.frombuffer(self._head, layout.dtype, count, first)
        target = np.empty(nbytes, np.uint8) if buffer is None else buffer[:nbytes]
        if there:
            target[:] = np.frombuffer(self._head, np.uint8, nbytes, first)
        else:
            self._read_into(first, target)
        return target.view(layout.dtype)

    def array(self) -> Array:
        """Returns all values in their shape, read-only: read when the file is small, else memory-mapped.

        What is packed is unpacked into a temporary file for that.
        """
        layout = self.layout
        if layout.nbytes <= WHOLE_FILE:
            flat = self.read(0, layout.count)
        else:
            member = self._member
            if member is not None:
                member.check()
            before = layout.offset + (member.start if member is not None and not member.deflated else 0)
            if member is not None and member.deflated:
                mapped = _unpacked(member)
            else:
                mapped = mmap.mmap(self._fd, before + layout.nbytes, access=mmap.ACCESS_READ)
            flat = np.frombuffer(mapped, layout.dtype, layout.count, before)
        flat.flags.writeable = False
        return flat.reshape(layout.shape, order="F" if layout.fortran else "C")

    def _npy_layout(self) -> Layout:
        spec, head = self._spec, self._head
        start, length = _preamble(head, spec)
        while len(head) < start + length:
            more = self._start(start + length, len(head))
            if not more:
                raise _unreadable(spec, "ends inside its header", "the file was probably still being written")
            head += more
        self._head = head
        return _npy_layout(head[start : start + length], start, head[6] >= 3, spec)

    def _start(self, end: int, first: int = 0) -> bytes:
        """Returns the bytes of the file, or of its member, up to a place; they are asked for one after the other."""
        return os.read(self._fd, end - first) if self._member is None else self._member.read(first, end - first)

    def _read_into(self, first: int, target: npt.NDArray[np.uint8]) -> None:
        if self._member is not None:
            self._member.read_into(first, target)
            return
        try:
            if self._stream is None:
                self._stream = io.FileIO(self._fd, closefd=False)
            self._stream.seek(first)
            done = 0
            while done < len(target):
                got = self._stream.readinto(target[done:].data)
                if not got:
                    raise _unreadable(self._spec, "became shorter while it was read", "look again when it is written")
                done += got
        except OSError as error:
            raise _unreadable(self._spec, f"cannot be read: {_reason(error)}") from error


def _unpacked(member: MemberFile) -> mmap.mmap:
    """Returns all of a packed member in a temporary file that goes with the map."""
    with tempfile.TemporaryFile() as file:
        piece = np.empty(WHOLE_FILE, np.uint8)
        for start in range(0, member.size, len(piece)):
            part = piece[: min(len(piece), member.size - start)]
            member.read_into(start, part)
            file.write(part.data)
        file.flush()
        return mmap.mmap(file.fileno(), member.size, access=mmap.ACCESS_READ)


def open_array(spec: ReadSpec) -> Array:
    """Returns the values of a tensor: read-only, in shape, memory-mapped unless the file is small.

    bfloat16 that is stored as float32 stays float32; raw bfloat16 and fp8 come as their ``ml_dtypes`` types; big-endian
    and Fortran-ordered files come as they are.

    Raises:
        UnreadableTensorError: anything wrong with the file; pickled objects are refused.
    """
    with TensorFile(spec) as file:
        try:
            return file.array()
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise _unreadable(spec, f"cannot be mapped: {_reason(error)}") from error


def read_meta(spec: ReadSpec) -> TensorMeta:
    """Reads element type, shape and size from the header; the length of the file is checked as well.

    Raises:
        UnreadableTensorError: anything wrong with the file.
    """
    with TensorFile(spec) as file:
        return file.layout.meta


def header_layout(header: bytes, declared: str) -> Layout | None:
    """Reads the layout from all bytes before the first element, version 1 only; None when anything is odd."""
    if header[:8] != _VERSION_1:
        return None
    parsed = _parse_header(header[10:], 10, False, declared)
    return None if isinstance(parsed, str) else parsed


def raw_layout(spec: ReadSpec) -> Layout | None:
    """Returns the layout of raw bytes; None when the spec does not say enough."""
    try:
        return _raw_layout(spec)
    except UnreadableTensorError:
        return None


def _unreadable(spec: ReadSpec, what: str, hint: str = "") -> UnreadableTensorError:
    return UnreadableTensorError(what, where=f"{spec.path}:{spec.member}" if spec.member else spec.path, hint=hint)


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__


def _preamble(head: bytes, spec: ReadSpec) -> tuple[int, int]:
    """Returns offset and length of the header text."""
    if not head:
        raise _unreadable(spec, "is empty", "the file was probably never written to the end")
    if not head.startswith(MAGIC):
        raise _unreadable(spec, "is not a .npy file", "it does not start with the bytes \\x93NUMPY")
    width = 2 if len(head) > 6 and head[6] == 1 else 4
    if len(head) < 8 + width:
        raise _unreadable(spec, "ends inside its header", "the file was probably still being written")
    if head[6] not in (1, 2, 3) or head[7] != 0:
        raise _unreadable(spec, f"has .npy version {head[6]}.{head[7]}", "versions 1.0, 2.0 and 3.0 are known")
    length = int.from_bytes(head[8 : 8 + width], "little")
    if length > MAX_HEADER:
        raise _unreadable(spec, f"has a header of {length} bytes", "that is not plausible: the file is damaged")
    return 8 + width, length


def _npy_layout(header: bytes, start: int, utf8: bool, spec: ReadSpec) -> Layout:
    parsed = _parse_header(header, start, utf8, spec.dtype)
    if isinstance(parsed, str):
        raise _unreadable(spec, parsed)
    return parsed


@lru_cache(maxsize=1024)
def _parse_header(header: bytes, start: int, utf8: bool, declared: str) -> Layout | str:
    """Returns the layout, or what is wrong: failures are cached like the rest."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's parser warns on stderr, in the middle of the screen
            fields = ast.literal_eval(header.decode("utf-8" if utf8 else "latin-1").strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return "has a damaged header"
    if not isinstance(fields, dict) or set(fields) != _HEADER_KEYS:
        return "has a header without descr, fortran_order and shape"
    descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if not isinstance(fortran, bool) or not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        return "has a header with a damaged shape"
    stored = _stored_type(descr)
    if isinstance(stored, str):
        return stored
    dtype, name = (stored, "bfloat16") if descr in _RAW_BFLOAT16 else declared_view(stored, declared)
    if dtype.kind == "V" and dtype != _BFLOAT16 and name == name_of(stored):
        return f"has raw elements of {dtype.itemsize} bytes whose type nothing declares"
    return _layout(dtype, name, shape, fortran, start + len(header))


_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
_RAW_BFLOAT16: Final = ("<E2", "|E2", "E2")
"""The types by which MindSpore 2.3 and later writes raw bfloat16."""
_FP8: Final = np.dtype(ml_dtypes.float8_e5m2)
"""The one fp8 type that numpy takes for a float, and writes as ``<f1``."""
_SPECIAL: Final[dict[str, DType]] = dict.fromkeys(_RAW_BFLOAT16, _BFLOAT16) | {"<f1": _FP8, "|f1": _FP8}


def _stored_type(descr: object) -> DType | str:
    if not isinstance(descr, str):
        return "has a structured element type, which is no tensor"
    if descr in _SPECIAL:
        return _SPECIAL[descr]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old spellings such as a5
            dtype: DType = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        return f"has the unknown element type {descr[:40]!r}"
    if dtype.hasobject:
        return "holds pickled Python objects, which are never loaded"
    if dtype.fields is not None or dtype.subdtype is not None or not dtype.itemsize:
        return f"has the element type {descr[:40]!r}, which is no tensor"
    return dtype


def _raw_layout(spec: ReadSpec) -> Layout:
    stored = dtype_of(spec.dtype)
    if stored is None:
        raise _unreadable(spec, f"has the unknown element type {spec.dtype!r}")
    if spec.shape is None:
        raise _unreadable(spec, "has an unknown shape")
    dtype, name = declared_view(stored, spec.dtype)
    layout = _layout(dtype, name, spec.shape, False, spec.offset)
    if isinstance(layout, str):
        raise _unreadable(spec, layout)
    return layout


def _layout(dtype: DType, name: str, shape: tuple[int, ...], fortran: bool, offset: int) -> Layout | str:
    # Even a tensor without elements must have a shape that numpy can represent.
    if len(shape) > 32 or math.prod(n for n in shape if n) * dtype.itemsize >= 1 << 62:
        return "has an impossible shape"
    if any(n < 0 for n in shape):
        return f"has a negative dimension: {shape}"
    matters = fortran and sum(n != 1 for n in shape) > 1
    return Layout(dtype, name, shape, matters, offset, math.prod(shape))


def _check_size(spec: ReadSpec, layout: Layout, size: int) -> None:
    missing = layout.offset + layout.nbytes - size
    if missing > 0:
        what = f"is truncated: {missing} of {layout.nbytes} bytes of values are missing"
        raise _unreadable(spec, what, "the dump was interrupted, or is still being written")
