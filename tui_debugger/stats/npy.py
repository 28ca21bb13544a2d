"""Reads tensor files of any format; .npy, members of .npz archives and raw bytes are read here, without numpy's loader.

numpy's loader unpickles on request, costs 60 µs a file and knows neither declared element types nor MindSpore's
``<E2``. This module parses the header strictly, once per distinct header: thousands of files share a handful of
headers. Every other format is a row of ``FORMATS`` and a module of its own; callers see a ``TensorFile`` for each.
"""

from __future__ import annotations

import ast
import errno
import math
import os
import pkgutil
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Protocol, cast

import ml_dtypes
import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.errors import UnreadableTensorError, reason_of
from tui_debugger.model import ReadSpec, TensorMeta
from tui_debugger.opener import NotRegularError, open_regular
from tui_debugger.stats.archive import Archive, FileBytes, MemberFile, open_archive, opened, unreadable
from tui_debugger.stats.dtypes import DType, declared_view, dtype_of, name_of
from tui_debugger.stats.formats import LOOKED_AT, Holds, LookedAt, looked_at

SUFFIX: Final = ".npz"
ARRAY: Final = ".npy"
"""The suffix of an archive member that is an array."""


_CHECKED_AT_ONCE: Final = 1 << 16
"""Values of float128 whose range is checked together."""


def look_at(path: str) -> LookedAt:
    """Recognizes a format by the first and last bytes of a file, or raises UnreadableTensorError."""
    with opened(path) as (descriptor, status):
        content, size = FileBytes(descriptor, 0, status.st_size, path), status.st_size
        head = content.read(0, LOOKED_AT)
        tail = content.read(size - LOOKED_AT, LOOKED_AT) if size > LOOKED_AT else head
        return looked_at(head, tail, size, path)


def array_keys(path: str) -> dict[str, int]:
    """Returns the key of each array of a .npz archive and its bytes, or raises UnreadableTensorError.

    A member not named ``*.npy`` counts, under its whole name, when its bytes look like tensors (of any format) or are
    damaged: reading it says why it cannot be read.
    """
    with opened(path) as (descriptor, status):
        archive = open_archive(descriptor, status, path)
        return {
            name.removesuffix(ARRAY): member.size
            for name, member in archive.members.items()
            if name.endswith(ARRAY) or _looked_at(descriptor, archive, name).holds in (Holds.TENSORS, Holds.DOUBT)
        }


def _looked_at(descriptor: int, archive: Archive, name: str) -> LookedAt:
    try:
        member = MemberFile(descriptor, archive, name)
        head = member.read(0, LOOKED_AT)
        tail = b"" if member.deflated else member.read(max(member.size - LOOKED_AT, 0), LOOKED_AT)
    except UnreadableTensorError as error:
        return LookedAt(Holds.DOUBT, why=error.what)
    return looked_at(head, head if len(head) == member.size else tail, member.size, name)


MAGIC: Final = b"\x93NUMPY"
_VERSION_1: Final = MAGIC + b"\x01\x00"
MAX_HEADER: Final = 1 << 16
"""Longest header accepted. Real ones have 118 bytes; a parser should not be fed megabytes."""
FIRST_READ: Final = 1 << 15
"""One read of this size brings the header and, for most tensors of a run, all values."""
FETCHED_WHOLE: Final = 1 << 18
"""Tensors up to this many bytes are fetched over a network as a whole."""
FETCHED: Final = 1 << 14
"""Elements of a tensor that are fetched over a network together although only some of them are wanted."""
WHOLE_FILE: Final = 1 << 24
"""Files up to this many bytes are read even where only a part of them may be looked at; longer files are mapped."""
_IN_MEMORY: Final = 1 << 28
"""Bytes that ``open_array`` reads into memory; longer files are mapped."""
_READ_AT_ONCE: Final = 1 << 22
"""Bytes that ``open_array`` asks for at once."""
_LOST: Final = 512
"""Least bytes of zeros that a lost page leaves in a tensor: with fewer, the header before it would be lost, too."""
_HEADER_KEYS: Final = {"descr", "fortran_order", "shape"}


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """The place and the form of the values in a file.

    ``dtype`` reads the elements, ``name`` is the type to show (bfloat16 stored as float32 shows as bfloat16).
    ``fortran`` (first index fastest) is never set when the order makes no difference.
    """

    dtype: DType
    name: str
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def meta(self) -> TensorMeta:
        return TensorMeta(self.name, self.shape, self.nbytes)


class ValueReader:
    """Reads the values of one tensor of an open file. The caller that opened the file closes it, after ``close``.

    ``layout``: element type, shape, and order in which ``read_into`` delivers the values: C order, except for .npy
    files. ``packed``: the values must be unpacked or decoded from the first one on, so that nothing can be mapped.
    """

    __slots__ = ()
    layout: ValueLayout
    packed: bool = False

    def read_into(self, start: int, target: Array) -> None:
        """Fills a 1-D array from element ``start`` on.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, the device fails, or a checksum differs.
        """
        raise NotImplementedError

    def array(self) -> Array:
        """Returns all values in their shape: read when they are few, else a view of a memory map where possible."""
        flat = np.empty(self.layout.count, self.layout.dtype)
        self.read_into(0, flat)
        return flat.reshape(self.layout.shape)

    def lazy_array(self) -> Array:
        """Returns all values; where converting is costly, a long tensor comes as a ``FileArray``, which stays valid."""
        return self.array()

    def check(self, _: int) -> None:
        """See ``TensorFile.check``; does nothing where reading compares the checksum."""

    def close(self) -> None:
        """Releases everything but the file."""


class ElementReader(Protocol):
    """Reads any elements of a tensor, in any thread, as long as the reader lives."""

    @property
    def layout(self) -> ValueLayout:
        """Element type and shape of the values."""

    def read_into(self, start: int, target: Array) -> None:
        """See ``ValueReader``."""

    def gather(self, elements: Int64) -> Array:
        """Returns the elements with the given numbers (in C order), in the shape of ``elements``."""


class FileArray:
    """The values of a long tensor, converted only where they are indexed, as with arrays of h5py and zarr.

    It can be indexed, sliced, flattened and reshaped like an array in C order, and reads only the elements asked for.
    ``np.asarray`` and all other operations of numpy convert the whole tensor.
    """

    __slots__ = ("_reader", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides")

    def __init__(self, reader: ElementReader, shape: tuple[int, ...] | None = None) -> None:
        layout = reader.layout
        self._reader = reader
        self.dtype, self.itemsize = layout.dtype, layout.dtype.itemsize
        self.size, self.nbytes = layout.count, layout.nbytes
        self.shape = layout.shape if shape is None else shape
        self.ndim = len(self.shape)
        self.strides = tuple(math.prod(self.shape[axis + 1 :]) * self.itemsize for axis in range(self.ndim))
        self.flags = SimpleNamespace(c_contiguous=True, f_contiguous=False, writeable=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("the values have to be converted")
        flat = np.empty(self.size, self.dtype)
        self._reader.read_into(0, flat)
        array = flat.reshape(self.shape)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __getitem__(self, index: Any) -> Any:
        """Returns a part as an array in memory, or one element, by numpy's rules."""
        entries = self._entries(index if isinstance(index, tuple) else (index,))
        if entries is not None:
            return self._part(entries)[()]
        if isinstance(index, tuple) and len(index) == self.ndim and all(map(_are_indices, index)):
            return self._reader.gather(np.asarray(np.ravel_multi_index(index, self.shape), np.int64))
        return np.asarray(self)[index]

    def __getattr__(self, name: str) -> Any:
        """Converts the whole tensor for any other attribute of an array."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    @property
    def flat(self) -> FileArray:
        return self.reshape(-1)

    def reshape(self, *shape: int | tuple[int, ...]) -> FileArray:
        asked = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        # numpy resolves -1, and refuses a shape that does not fit
        return FileArray(self._reader, np.broadcast_to(np.zeros((), np.bool_), self.shape or (1,)).reshape(asked).shape)

    def _entries(self, index: tuple[Any, ...]) -> list[int | range] | None:
        """Returns an index or a range for each dimension; None for an index with other entries (arrays, None ...)."""
        if not all(map(_is_simple, index)):
            return None
        at = next((number for number, entry in enumerate(index) if entry is Ellipsis), len(index))
        index = index if at < len(index) else (*index, Ellipsis)
        missing = self.ndim - len(index) + 1
        if missing < 0:
            msg = f"too many indices for an array of {self.ndim} dimensions"
            raise IndexError(msg)
        entries: list[int | range] = []
        for entry, length in zip((*index[:at], *[slice(None)] * missing, *index[at + 1 :]), self.shape, strict=True):
            if isinstance(entry, slice):
                entries.append(range(*entry.indices(length)))
            elif -length <= entry < length:
                entries.append(int(entry) % length)
            else:
                msg = f"index {entry} is out of bounds for a dimension of {length}"
                raise IndexError(msg)
        return entries

    def _part(self, entries: list[int | range]) -> Array:
        part = np.empty(tuple(len(entry) for entry in entries if isinstance(entry, range)), self.dtype)
        self._fill(entries, part)
        part.flags.writeable = False
        return part

    def _fill(self, entries: list[int | range], target: Array) -> None:
        if not target.size:
            return
        run, axis, first = 1, self.ndim, 0
        while axis and entries[axis - 1] == range(self.shape[axis - 1]):
            axis -= 1
            run *= self.shape[axis]
        entry = entries[axis - 1] if axis else 0
        if isinstance(entry, range) and entry.step == 1:
            axis -= 1
            first = run * entry.start
            run *= len(entry)
        if run < _LEAST_RUN and target.size > _GATHERED:
            self._fill_in_parts(entries, target)
            return
        starts = np.full(1, first, np.int64)
        for entry, step in zip(entries[:axis], self.strides[:axis], strict=True):
            indices = np.arange(entry.start, entry.stop, entry.step) if isinstance(entry, range) else np.array([entry])
            starts = (starts[:, None] + indices * (step // self.itemsize)).reshape(-1)
        flat = target.reshape(-1)  # a view: it is a whole array, or leading indices of one
        if run >= _LEAST_RUN or len(starts) == 1:
            for number, start in enumerate(starts.tolist()):
                self._reader.read_into(start, flat[number * run : (number + 1) * run])
        else:
            flat[:] = self._reader.gather((starts[:, None] + np.arange(run)).reshape(-1))

    def _fill_in_parts(self, entries: list[int | range], target: Array) -> None:
        """Fills a big part in pieces along its first dimension: int64 element numbers take more room than values."""
        axis, whole = next((at, each) for at, each in enumerate(entries) if isinstance(each, range) and len(each) > 1)
        rest = target.size // len(whole)
        most, rows = max(1, _GATHERED // rest), target.reshape(len(whole), rest)  # a view, as above
        for start in range(0, len(whole), most):
            stop = start + most
            self._fill([*entries[:axis], whole[start:stop], *entries[axis + 1 :]], rows[start:stop])


_GATHERED: Final = 1 << 18
"""Elements that are read by their numbers at once."""
_LEAST_RUN: Final = 1 << 9
"""From this many elements on, a contiguous run is read faster by itself than by the numbers of its elements."""


def _is_simple(entry: object) -> bool:
    return entry is Ellipsis or (isinstance(entry, (slice, int, np.integer)) and not isinstance(entry, bool))


def _are_indices(entry: object) -> bool:
    return isinstance(entry, np.ndarray) and entry.dtype.kind in "iu"


def part_of(array: Array, entries: Sequence[int | range]) -> Array:
    """Returns a view of an array: one index or range for each of its leading dimensions."""
    cut = (_python_slice(entry) if isinstance(entry, range) else entry for entry in entries)
    index = (*cut, Ellipsis)
    return array[index]


def _python_slice(entry: range) -> slice:
    if not entry:
        return slice(0, 0)
    # A backward range that reaches index 0 has stop -1, which slice() would read as "the last".
    return slice(entry.start, entry.stop if entry.stop >= 0 else None, entry.step)


OpenValue = Callable[[int, os.stat_result, ReadSpec], ValueReader]
"""Makes a reader of an open file; arguments: descriptor, ``os.stat_result``, spec.

May raise UnreadableTensorError, OSError, ValueError.
"""


class StoredValues(ValueReader):
    """Values that lie contiguously in a file or archive member: a ``ValueReader``."""

    __slots__ = ("_bytes", "_head", "_spec", "_stored", "layout", "packed")

    def __init__(self, content: FileBytes | MemberFile, spec: ReadSpec, *, header: bool = True) -> None:
        """Reads the header, or with ``header=False`` takes the layout of raw bytes from the spec."""
        self._bytes, self._spec = content, spec
        self._head = content.read(0, FIRST_READ) if header else b""
        self.packed = isinstance(content, MemberFile) and content.deflated
        self.layout = self._read_header() if header else _raw_layout(spec)
        _check_size(spec, self.layout, content.size)
        self._stored = self.layout.dtype
        if self._stored.kind in "mM":
            self.layout = replace(self.layout, dtype=np.dtype(np.float64))

    @property
    def place(self) -> tuple[int, int] | None:
        """See ``TensorFile.place``."""
        content = self._bytes
        if isinstance(content, MemberFile) or content.descriptor < 0 or self._stored != self.layout.dtype:
            return None
        return content.descriptor, content.start + self.layout.offset

    def read_into(self, start: int, target: Array) -> None:
        """See ``ValueReader``. Dates are read as float64 numbers of their unit, and NaT as NaN."""
        self._read_stored(start, target)
        if self._stored.kind in "mM":
            dates = target.view(self._stored)
            target[:] = np.where(np.isnat(dates), np.nan, dates.astype(np.int64))

    def _read_stored(self, start: int, target: Array) -> None:
        if isinstance(self._bytes, MemberFile):
            self._bytes.check()
        first, nbytes = self.layout.offset + start * self._stored.itemsize, target.nbytes
        if first + nbytes <= len(self._head) and not self.packed:  # unpacking the last byte compares the checksum
            target.view(np.uint8)[:] = np.frombuffer(self._head, np.uint8, nbytes, first)
        else:
            self._bytes.read_into(first, target.view(np.uint8))
        _check_range(self._spec, target)

    def array(self) -> Array:
        """See ``ValueReader``.

        Up to ``_IN_MEMORY`` bytes are read: a map of a file that becomes shorter ends the process.
        """
        layout = self.layout
        if layout.nbytes > _IN_MEMORY:
            return self._mapped()
        flat = np.empty(layout.count, self._stored)
        piece = max(_READ_AT_ONCE // max(self._stored.itemsize, 1), 1)
        for start in range(0, layout.count, piece):
            self._read_stored(start, flat[start : start + piece])
        return flat.reshape(layout.shape, order="F" if layout.fortran else "C")

    def lazy_array(self) -> Array:
        """Returns all values, mapped from ``WHOLE_FILE`` bytes on: looking at a part need not wait for the whole."""
        return self.array() if self.layout.nbytes <= WHOLE_FILE else self._mapped()

    def _mapped(self) -> Array:
        layout = self.layout
        if isinstance(self._bytes, MemberFile):
            self._bytes.check()
        mapped, start = self._bytes.mapped()
        flat = np.frombuffer(mapped, self._stored, layout.count, start + layout.offset)
        _check_range(self._spec, flat)
        return flat.reshape(layout.shape, order="F" if layout.fortran else "C")

    def _read_header(self) -> ValueLayout:
        spec = self._spec
        start, length = _preamble(self._head, spec)
        if len(self._head) < start + length:
            self._head += self._bytes.read(len(self._head), start + length - len(self._head))
            if len(self._head) < start + length:
                raise _unreadable(spec, "ends inside its header", "the file was probably still being written")
        return _npy_layout(self._head[start : start + length], start, self._head[6] >= 3, spec)


_PADDING: Final = 1 << 16
"""Up to this many zero bytes behind an array are padding; more could be another array."""


def _open_npy(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    content = FileBytes(descriptor, 0, status.st_size, spec.path)
    values = StoredValues(content, spec)
    end = values.layout.offset + values.layout.nbytes
    more = status.st_size - end
    if more > _PADDING or (more > 0 and content.read(end, more).strip(b"\0")):
        what = f"has {more:,} bytes behind its values"
        raise _unreadable(spec, what, "a second array that was saved into the same file, or the file is damaged")
    return values


def _open_raw(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    values = StoredValues(FileBytes(descriptor, 0, status.st_size, spec.path), spec, header=False)
    more = status.st_size - values.layout.offset - values.layout.nbytes
    if more > 0 and is_whole_file(spec):
        what = f"has {more:,} bytes behind the values that its name states"
        raise _unreadable(spec, what, "the name states another shape or element type, or the file is damaged")
    return values


def is_whole_file(spec: ReadSpec) -> bool:
    """Tells whether the values reach to the end of their file, so that no bytes may follow."""
    return spec.format == "npy" or (spec.format == "raw" and not spec.offset)


def _open_member(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    archive = open_archive(descriptor, status, spec.path)
    name = spec.member + ARRAY
    if name not in archive.members and spec.member in archive.members:
        name = spec.member
        found = _looked_at(descriptor, archive, name)
        if found.reader != "npy":
            raise _unreadable(spec, found.why or f"is {found.format}, which is not read in an archive")
    member = MemberFile(descriptor, archive, name, f"{spec.path}:{spec.member}")
    values = StoredValues(member, spec)
    if member.size > values.layout.offset + values.layout.nbytes:
        raise _unreadable(spec, "has bytes behind its values: it is damaged")  # no checksum would be compared
    return values


FORMATS: Final[dict[str, OpenValue | str]] = {
    "npy": _open_npy,
    "npz": _open_member,
    "raw": _open_raw,
    "pt": "tui_debugger.stats.torch_file:open_value",
    "safetensors": "tui_debugger.stats.safetensors:open_value",
    "dcp": "tui_debugger.stats.sharded:open_indexed",
    "shards": "tui_debugger.stats.sharded:open_shards",
    "ascend": "tui_debugger.stats.ascend_file:open_value",
    "atb": "tui_debugger.stats.atb_file:open_value",
    "log": "tui_debugger.stats.training_log:open_value",
}
"""What opens tensors, by ``ReadSpec.format``: a function, or ``module:function``, imported when first needed."""


def _opener(spec: ReadSpec) -> OpenValue:
    """Raises UnreadableTensorError for an unknown format, or one whose module cannot be imported."""
    found = FORMATS.get(spec.format)
    if found is None:
        raise _unreadable(spec, f"is of a format that is not read: {spec.format}")
    if isinstance(found, str):
        try:
            found = cast("OpenValue", pkgutil.resolve_name(found))
        except ImportError as error:
            why = f"is of a format that is not read: {spec.format} ({reason_of(error, within=True)})"
            raise _unreadable(spec, why) from error
        FORMATS[spec.format] = found
    return found


class TensorFile:
    """An open tensor file of any format. Use as a context manager.

    ``layout`` includes the order of ``read``. ``packed``: values must be unpacked from the first on, so that reading
    from several places at once is no use.
    """

    __slots__ = ("__weakref__", "_descriptor", "_spec", "_values", "layout", "packed")

    def __init__(self, spec: ReadSpec, opened: tuple[int, os.stat_result] | None = None) -> None:
        """Opens the file and reads its header; a file that the caller has ``opened`` stays open.

        Raises:
            UnreadableTensorError: missing, not a file, not an array, pickled, truncated ...
        """
        self._descriptor, self._spec = -1, spec
        try:
            if opened is None:
                opened = open_regular(spec.path)
                self._descriptor = opened[0]
            self._values = _opener(spec)(*opened, spec)
            self.layout, self.packed = self._values.layout, self._values.packed
        except NotRegularError as error:
            self.close()
            kind = "a directory" if error.errno == errno.EISDIR else "not a regular file"
            raise _unreadable(spec, f"expected a tensor file, found {kind}") from None
        except (OSError, ValueError) as error:
            self.close()
            raise _unreadable(spec, f"cannot be read: {reason_of(error, within=True)}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TensorFile:  # noqa: PYI034  # typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._values.close()
        self.close()

    def close(self) -> None:
        """Closes the file; arrays that were handed out stay valid."""
        if self._descriptor != -1:
            opener.close(self._descriptor)
            self._descriptor = -1

    def read(self, start: int, count: int, buffer: UInt8 | None = None) -> Array:
        """Returns ``count`` elements from ``start`` on, in the order of the file, as a 1-D array.

        The range must lie inside the tensor. With ``buffer`` (big enough) the result is a view of it. Raises
        UnreadableTensorError as ``ValueReader.read_into``.
        """
        dtype = self.layout.dtype
        target = np.empty(count, dtype) if buffer is None else buffer[: count * dtype.itemsize].view(dtype)
        self._values.read_into(start, target)
        return target

    def check(self, zeros: int) -> None:
        """Compares the file's checksum, if any, after ``zeros`` zeros were read: a page may be lost.

        Raises:
            UnreadableTensorError: the checksum differs.
        """
        size = self.layout.dtype.itemsize
        if zeros * size >= min(_LOST, max(self.layout.nbytes // 2, 1)):
            self._values.check(zeros)

    @property
    def place(self) -> tuple[int, int] | None:
        """The descriptor and the offset of the first value; None unless the values lie bare in a local file."""
        return self._values.place if isinstance(self._values, StoredValues) else None

    def array(self) -> Array:
        """Returns all values in their shape, read-only: read when they are few, else memory-mapped where possible."""
        array = self._values.array()
        array.flags.writeable = False
        return array

    def lazy_array(self) -> Array:
        """Returns all values as ``array`` does, or a ``FileArray`` for a long tensor that is converted or fetched."""
        values = self._values
        if isinstance(values, StoredValues) and opener.waits(self._descriptor):
            fetched = values.layout.nbytes > FETCHED_WHOLE and not values.layout.fortran
            return cast("Array", FileArray(_NetworkReader(self._spec))) if fetched else self.array()
        lazy = values.lazy_array()
        if isinstance(lazy, np.ndarray):
            lazy.flags.writeable = False
        return lazy


class _NetworkReader:
    """An ``ElementReader`` of a tensor on a network file: it fetches little more than the elements asked for."""

    def __init__(self, spec: ReadSpec) -> None:
        self._file = TensorFile(spec)  # an open file of its own, for the life of this reader
        self._finalizer = weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self.layout = self._file.layout

    def read_into(self, start: int, target: Array) -> None:
        with self._lock:
            target[:] = self._file.read(start, len(target))

    def gather(self, elements: Int64) -> Array:
        wanted, found = elements.reshape(-1), np.empty(elements.size, self.layout.dtype)
        for number in np.unique(wanted // FETCHED).tolist():
            here = wanted // FETCHED == number
            first = number * FETCHED
            piece = np.empty(min(FETCHED, self.layout.count - first), self.layout.dtype)
            self.read_into(first, piece)
            found[here] = piece[wanted[here] - first]
        return found.reshape(elements.shape)


@contextmanager
def _opened_for_values(spec: ReadSpec) -> Iterator[TensorFile]:
    with TensorFile(spec) as file:
        try:
            yield file
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise _unreadable(spec, f"cannot be mapped: {reason_of(error, within=True)}") from error


def open_window(spec: ReadSpec, entries: Sequence[int | range]) -> Array:
    """Returns a part of a tensor, read-only, for the shape known so far.

    Raises:
        UnreadableTensorError: as ``open_array``, or the file has another shape by now.
    """
    with _opened_for_values(spec) as file:
        shape = file.layout.shape
        ends = [max(entry, default=-1) if isinstance(entry, range) else entry for entry in entries]
        if len(ends) != len(shape) or any(end >= length for end, length in zip(ends, shape, strict=True)):
            raise _unreadable(spec, "has another shape than before", "the file was written anew: look again")
        return part_of(file.lazy_array(), entries)


def open_array(spec: ReadSpec) -> Array:
    """Returns the values of a tensor: read-only, in shape, memory-mapped when long; or raises UnreadableTensorError.

    bfloat16 stored as float32 stays float32; raw bfloat16 and fp8 come as ``ml_dtypes`` types; big-endian and
    Fortran-ordered files keep their order.
    """
    with _opened_for_values(spec) as file:
        return file.array()


def open_lazily(spec: ReadSpec) -> Array:
    """Does as ``open_array``, but a long tensor that must be converted or fetched comes as a ``FileArray``."""
    with _opened_for_values(spec) as file:
        return file.lazy_array()


def read_meta(spec: ReadSpec) -> TensorMeta:
    """Reads element type, shape and size from the header and checks the length; or raises UnreadableTensorError."""
    with TensorFile(spec) as file:
        return file.layout.meta


def header_layout(header: bytes, declared: str) -> ValueLayout | None:
    """Returns the layout stated by a complete .npy header of version 1; None when anything is odd."""
    if header[:8] != _VERSION_1 or len(header) != 10 + int.from_bytes(header[8:10], "little"):
        return None  # a file without elements may end inside its header
    parsed = _parse_header(header[10:], 10, False, declared)
    return None if isinstance(parsed, str) else parsed


def raw_layout(spec: ReadSpec) -> ValueLayout | None:
    """Returns the layout of raw bytes; None when the spec does not state element type and shape."""
    try:
        return _raw_layout(spec)
    except UnreadableTensorError:
        return None


def _unreadable(spec: ReadSpec, what: str, hint: str = "") -> UnreadableTensorError:
    return unreadable(f"{spec.path}:{spec.member}" if spec.member else spec.path, what, hint)


def _check_range(spec: ReadSpec, values: Array) -> None:
    """Raises UnreadableTensorError for float128 values that become infinite or 0 in float64, the type of all checks."""
    dtype = values.dtype
    if dtype.kind not in "fc" or dtype.itemsize <= (8 if dtype.kind == "f" else 16):
        return
    large = small = 0
    for start in range(0, values.size, _CHECKED_AT_ONCE):
        piece = values[start : start + _CHECKED_AT_ONCE]
        for part in (piece.real, piece.imag) if dtype.kind == "c" else (piece,):
            with np.errstate(over="ignore", under="ignore"):
                narrow = part.astype(np.float64)
            large += int((np.isinf(narrow) & np.isfinite(part)).sum())
            small += int(((narrow == 0) & (part != 0)).sum())
    if large or small:
        counts = [f"{count:,} too {kind}" for count, kind in ((large, "large"), (small, "small")) if count]
        raise _unreadable(
            spec,
            f"{dtype.name} values outside the range of float64: {', '.join(counts)}",
            "everything is judged in float64: dump the tensor divided by a constant, or as float64",
        )


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


def _npy_layout(header: bytes, start: int, utf8: bool, spec: ReadSpec) -> ValueLayout:
    parsed = _parse_header(header, start, utf8, spec.dtype)
    if isinstance(parsed, str):
        raise _unreadable(spec, parsed)
    return parsed


@lru_cache(maxsize=1024)
def _parse_header(header: bytes, start: int, utf8: bool, declared: str) -> ValueLayout | str:
    """Returns the layout, or a text of the error: failures are cached, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's parser would warn on stderr and garble the screen
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
"""The only fp8 type that numpy takes for a float; numpy writes it as ``<f1``."""
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


def _raw_layout(spec: ReadSpec) -> ValueLayout:
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


def _layout(dtype: DType, name: str, shape: tuple[int, ...], fortran: bool, offset: int) -> ValueLayout | str:
    # Even a tensor without elements must have a shape that numpy can represent.
    if len(shape) > 32 or math.prod(n for n in shape if n) * dtype.itemsize >= 1 << 62:
        return "has an impossible shape"
    if any(n < 0 for n in shape):
        return f"has a negative dimension: {shape}"
    matters = fortran and sum(n != 1 for n in shape) > 1
    return ValueLayout(dtype, name, shape, matters, offset, math.prod(shape))


def checked_layout(dtype: DType, name: str, shape: tuple[int, ...], where: str) -> ValueLayout:
    """Returns the layout of values in C order at offset 0; UnreadableTensorError: the shape is impossible."""
    layout = _layout(dtype, name, shape, False, 0)
    if isinstance(layout, str):
        raise unreadable(where, layout)
    return layout


def _check_size(spec: ReadSpec, layout: ValueLayout, size: int) -> None:
    missing = layout.offset + layout.nbytes - size
    if missing > 0:
        what = f"is truncated: {missing} of {layout.nbytes} bytes of values are missing"
        raise _unreadable(spec, what, "the dump was interrupted, or is still being written")
