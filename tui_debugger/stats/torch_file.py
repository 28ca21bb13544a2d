"""Reads files of ``torch.save`` without PyTorch, and without executing anything of the file.

Such a file is a pickle (see ``restricted_pickle``) and the bytes of storages: in a zip archive, or one after the other
behind the pickles (before PyTorch 1.6). A tensor is a view of a storage, perhaps with a bit for conjugation or
negation. Views are checked against the storage, and the storage against the file, before values are read. A tensor that
repeats its elements (stride 0) is never expanded.

A tensor is found by its place in the saved object: see ``saved_objects``. ``ReadSpec.member`` writes a place like a
JSON pointer: ``/optimizer/state/[0]/exp_avg``. ``[...]`` holds keys that are no text: a list index, a number as a key,
or (first element, shape) of a part of a flat tensor. A tensor that was saved alone is at ``""``. Checksums are compared
for the pickle, and for a storage in which a page of zeros was read (it may be lost); PyTorch may have written none.
"""

from __future__ import annotations

import ast
import io
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array, UInt8
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats.archive import (
    MOST_PACKED,
    Archive,
    FileBytes,
    MemberFile,
    State,
    Window,
    open_archive,
    opened,
    state_of,
    temporary_array,
    unreadable,
)
from tui_debugger.stats.blocks import boxes
from tui_debugger.stats.decoded_types import DECODED
from tui_debugger.stats.dtypes import DType, dtype_of, name_of
from tui_debugger.stats.formats import LFS_POINTER, TORCH_MAGIC
from tui_debugger.stats.kept import Kept
from tui_debugger.stats.npy import WHOLE_FILE, ValueReader, checked_layout
from tui_debugger.stats.restricted_pickle import (
    Global,
    PickleEndsError,
    PickleError,
    load,
    load_plain,
    no_names,
)
from tui_debugger.stats.saved_objects import MARKS, Path, SavedTensors, saved_tensors, storage_without_tensor
from tui_debugger.stats.torch_pickle import (
    COMPLEX32,
    FLOAT4,
    SIZES,
    SavedTensorRef,
    StorageRef,
    end_of,
    global_of,
    in_pickle,
    not_read,
    storage_of,
)

ONLY: Final = "*"
"""``ReadSpec.member`` of the only tensor of a file that was not opened, because files of the same name hold one."""
MAX_PICKLE: Final = 1 << 27
"""Longest pickle of a file, in bytes, without tensor values: enough for a million tensors."""
MAX_MEMBER: Final = 1 << 12
"""Characters of the longest place of a tensor."""
_EACH: Final = 1000
"""Approximate bytes of memory for each tensor: its places and facts, and its storage."""
_KEPT_PICKLES: Final = 256
"""Short pickles that are cached with their content: one for each shape and type in a dump of many small files."""
_FIRST_PICKLE: Final = 1 << 16
_LEAST_FILE: Final = 64
"""Bytes of the shortest file that holds a tensor."""
_VERSION: Final = 1001
_COUNT: Final = 8
"""Bytes that state the number of elements of a storage in a file of before PyTorch 1.6."""
_PIECE: Final = 1 << 18
_LONG: Final = 80
_SHORT_PICKLE: Final = 1 << 12
"""Bytes of the longest pickle that is cached with its content."""
_NOT_FINISHED: Final = "the file was probably never written to the end"


@dataclass(frozen=True, slots=True, eq=False)
class SavedTree:
    """The content of one file.

    Attributes:
        value: dictionaries, lists, tuples, text, numbers, ``SavedTensorRef``, and stand-ins for other objects.
        tensors: in the order of the file; an entry that cannot be understood has a ``problem``.
        members: the tensors by the text of their places.
        apart: places of infinite numbers that are settings, no findings, with their count.
        folder: the directory of the archive that holds everything.
        storages: the bytes of each storage in a file of before PyTorch 1.6, by key; None in an archive.
        settings: indices of tensors that are single numbers within settings.
        numbers: finite numbers with names by their places.
    """

    value: Any
    tensors: list[tuple[Path, SavedTensorRef]]
    members: Mapping[str, SavedTensorRef]
    apart: Sequence[tuple[Path, int]]
    window: Window
    folder: str = ""
    storages: Mapping[str, Window] | None = None
    big_endian: bool = False
    archive: Archive | None = None
    settings: Sequence[int] = ()
    numbers: Mapping[Path, int | float] = field(default_factory=dict)


def read_tree(path: str, window: Window | None = None) -> SavedTree:
    """Returns the content of a file, or of a window of it, without values; or raises UnreadableTensorError."""
    with opened(path) as (descriptor, status):
        return _tree(descriptor, status, path, window or (0, status.st_size))


def read_objects(path: str) -> Any:
    """Returns the object of a file that is only a pickle, such as ``.metadata`` of a distributed checkpoint."""
    with opened(path) as (descriptor, status):
        if status.st_size > MAX_PICKLE:
            raise unreadable(path, f"has a pickle of {status.st_size:,} bytes: that is not plausible")
        try:
            data = FileBytes(descriptor, 0, status.st_size, path).read(0, status.st_size)
            return load_plain(data, global_of).value
        except PickleError as error:
            raise unreadable(path, str(error)) from error


def member_of(path: Path) -> str:
    """Returns the text of the place of a tensor."""
    return "".join("/" + _escaped(key if type(key) is str else f"[{key!r}]", type(key) is str) for key in path)


def member_of_range(path: Path, start: int, shape: tuple[int, ...]) -> str:
    """Returns the text for elements of the flat tensor at ``path`` as a tensor: from ``start`` on, in ``shape``."""
    return member_of((*path, (start, shape)))


def path_of(member: str) -> Path:
    """Returns the place of a tensor from its text; raises ValueError for any other text."""
    if member and not member.startswith("/"):
        raise ValueError(f"no place of a tensor: {member!r}")
    return tuple(_key(part) for part in member.split("/")[1:])


def _escaped(text: str, is_text: bool) -> str:
    text = text.replace("~", "~0").replace("/", "~1")
    return f"~2{text[1:]}" if is_text and text.startswith("[") else text


def _key(part: str) -> Any:
    if part.startswith("["):
        try:
            return ast.literal_eval(part.replace("~1", "/").replace("~0", "~")[1:-1])
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError(f"no key: {part!r}") from error
    return part.replace("~2", "[").replace("~1", "/").replace("~0", "~")


# -- trees -----------------------------------------------------------------------------------------

_trees: Kept[tuple[str, State, Window], SavedTree] = Kept(lambda tree: len(tree.members) * _EACH)


def _tree(descriptor: int, status: os.stat_result, path: str, window: Window) -> SavedTree:
    """Returns the content of an open file; the last ones are cached. Raises UnreadableTensorError."""
    return _trees.get((path, state_of(status), window), lambda: _read_tree((descriptor, status, path), window))


def _read_tree(file: _Open, window: Window) -> SavedTree:
    (descriptor, status, path), (first, size) = file, window
    if first < 0 or size < 0 or first + size > status.st_size:
        raise unreadable(path, f"ends before byte {first + size:,}", _NOT_FINISHED)
    if not size:
        raise unreadable(path, "is empty", _NOT_FINISHED)
    content = FileBytes(descriptor, first, size, path)
    try:
        zipped = content.read(0, 2) == b"PK"
        found = _zipped_tree(*file, window) if zipped else _legacy_tree(content, window)
        return _with_files_in_tensors(_without_settings(found, file), file)
    except PickleError as error:
        raise unreadable(path, str(error)) from error


def _zipped_tree(descriptor: int, status: os.stat_result, path: str, window: Window) -> SavedTree:
    archive = open_archive(descriptor, status, path, window)
    folder = next(iter(archive.members), "").partition("/")[0]
    if f"{folder}/data.pkl" not in archive.members:
        raise unreadable(path, "is a zip archive, but none that torch.save wrote: it has no data.pkl")
    if f"{folder}/constants.pkl" in archive.members:
        raise unreadable(path, "is a TorchScript program, no file of tensors")
    order = b"little"
    if f"{folder}/byteorder" in archive.members:
        order = MemberFile(descriptor, archive, f"{folder}/byteorder").read(0, _LONG)
        if order not in (b"little", b"big"):
            raise unreadable(path, f"has the unknown byte order {order!r}")
    pickled = MemberFile(descriptor, archive, f"{folder}/data.pkl")
    if pickled.size > MAX_PICKLE:
        raise unreadable(path, f"has a pickle of {pickled.size:,} bytes: that is not plausible")
    pickled.check(may_lack=True)
    data = pickled.read(0, pickled.size)
    value, found, members = _loaded(data) if len(data) <= _SHORT_PICKLE else _load_all(data)
    expected = {f"{folder}/data/{key}" for key in found.storages}.union(f"{folder}/{name}" for name in _BESIDE)
    left = []
    for name in sorted(archive.members.keys() - expected):
        kind, _, key = name.removeprefix(f"{folder}/").partition("/")
        if kind == "data" and (size := archive.members[name].size):
            left.append(storage_without_tensor(key, size))
        elif kind not in ("data", _OF_TORCH):
            left.append(((f"<{name}>",), not_read("is a part of the archive that torch.save does not write")))
    listed, members = _with(found.tensors, members, left)
    big = order == b"big"
    return SavedTree(
        value, listed, members, found.apart, window, folder, None, big, archive, found.settings, found.numbers
    )


_BESIDE: Final = ("data.pkl", "byteorder", "version", ".format_version", ".storage_alignment")
_OF_TORCH: Final = ".data"
"""Member of an archive of PyTorch that holds no numbers."""

_Open = tuple[int, os.stat_result, str]
"""Descriptor, state and path of an open file."""
_Members = Mapping[str, SavedTensorRef]
_Listed = list[tuple[Path, SavedTensorRef]]


def _load_all(data: bytes) -> tuple[Any, SavedTensors, _Members]:
    """Returns of an archive's pickle: its value, its tensors, and the tensors by member."""
    loaded = load(data, global_of, storage_of)
    found = saved_tensors(loaded, _inside)
    return loaded.value, found, _named(found.tensors)


_loaded = lru_cache(_KEPT_PICKLES)(_load_all)
"""The same, cached: thousands of files of one tensor have the same pickle."""


def _named(listed: _Listed) -> _Members:
    """Returns tensors by the text of their places; a second tensor at the same place gets another name."""
    members = {member_of(place): ref for place, ref in listed}
    if len(members) < len(listed):
        members.clear()
        for number, (place, ref) in enumerate(listed):
            if member_of(place) in members:
                place = (*place[:-1], f"{place[-1] if place else ''} ({number})")  # noqa: PLW2901 - the same tensor
                listed[number] = place, ref
            members[member_of(place)] = ref
    if any(len(member) > MAX_MEMBER for member in members):
        raise PickleError(f"has a tensor with a name of more than {MAX_MEMBER:,} characters")
    return members


def _with(listed: _Listed, members: _Members, left: _Listed) -> tuple[_Listed, _Members]:
    """Adds entries for bytes that belong to no tensor."""
    return ([*listed, *left], {**members, **_named(left)}) if left else (listed, members)


def _without_settings(tree: SavedTree, file: _Open) -> SavedTree:
    """Moves single infinite numbers within settings from the tensors to ``apart``; NaN stays a finding."""
    apart = []
    for number in tree.settings:
        ref = tree.tensors[number][1]
        if not ref.problem and ref.dtype in _MAY_BE_INFINITE:
            try:
                value = _values(tree, ref, file, file[2]).array()
            except (UnreadableTensorError, OSError, ValueError):
                continue  # whoever reads the tensor is told
            wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
            if np.isinf(wide).all() and not np.isnan(wide).any():
                apart.append(number)
    if not apart:
        return tree
    out = set(apart)
    listed = [each for number, each in enumerate(tree.tensors) if number not in out]
    more = [(tree.tensors[number][0], 1) for number in apart]
    return replace(tree, tensors=listed, members=_named(listed), apart=[*tree.apart, *more])


def _with_files_in_tensors(tree: SavedTree, file: _Open) -> SavedTree:
    """Adds the tensors of files that lie in a uint8 tensor, such as the state of a layer of TransformerEngine.

    Bytes that only begin like such a file stay a tensor and nothing else.
    """
    more: _Listed = []
    for place, ref in tree.tensors:
        if ref.dtype != "uint8" or len(ref.shape) != 1 or ref.problem or not _LEAST_FILE <= ref.shape[0] <= WHOLE_FILE:
            continue
        try:
            reader = _values(tree, ref, file, file[2])
            head = np.empty(_LEAST_FILE, np.uint8)
            reader.read_into(0, head)
            content = reader.array().tobytes() if head.tobytes().startswith(MARKS) else b""
        except (UnreadableTensorError, OSError, ValueError):
            continue  # whoever reads the tensor is told
        if content:
            below = _inside(content)
            more += [((*place, *rest), held) for rest, held in below if rest or not held.problem]
    if not more:
        return tree
    listed, members = _with(tree.tensors, tree.members, more)
    return replace(tree, tensors=listed, members=members)


# -- files within a pickle -------------------------------------------------------------------------


def _inside(content: bytes) -> _Listed:
    """Returns the tensors, with values, of a file that lies in a pickle as bytes, such as states of quantized layers.

    Unreadable content becomes an entry with a ``problem``.
    """
    try:
        if content.startswith(b"PK"):
            return _inside_archive(content)
        if content.startswith(_LEGACY):
            held = FileBytes(-1, 0, len(content), "", content)
            tree = _legacy_tree_in(content, held, (0, len(content)))
            places = tree.storages or {}
            parts = {key: content[first : first + size] for key, (first, size) in places.items()}
            return [(place, _read_inside(ref, parts, big_endian=False)) for place, ref in tree.tensors]
        if not content.startswith(b"\x80"):
            raise PickleError("is of another format than torch.save writes")
        held_tensors = saved_tensors(load_plain(content, global_of), _inside).tensors
        return [(place, _read_inside(ref, {}, big_endian=False)) for place, ref in held_tensors]
    except (PickleError, UnreadableTensorError, zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        why = error.what if isinstance(error, UnreadableTensorError) else str(error)
        return [((), not_read(f"is a file within the pickle, or looks like one: it {why}"))]
    except (RecursionError, NotImplementedError, RuntimeError, EOFError, zlib.error):
        return [((), not_read("is a file within the pickle, or looks like one, and cannot be read"))]


_LEGACY: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle of a file of before PyTorch 1.6."""


def _inside_archive(content: bytes) -> _Listed:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "data.pkl" not in members:
            raise PickleError("is a zip archive, but none that torch.save wrote")
        if sum(info.file_size for info in members.values()) > max(WHOLE_FILE, MOST_PACKED * len(content)):
            raise PickleError("would unpack to far more than it has bytes")
        parts = {name.removeprefix("data/"): archive.read(info) for name, info in members.items()}
    found = saved_tensors(load(parts["data.pkl"], global_of, storage_of), _inside)
    left = [
        storage_without_tensor(key, len(part))
        for key, part in parts.items()
        if f"data/{key}" in members and key not in found.storages and part
    ]
    big = parts.get("byteorder") == b"big"
    return [*((place, _read_inside(ref, parts, big_endian=big)) for place, ref in found.tensors), *left]


def _read_inside(ref: SavedTensorRef, parts: Mapping[str, bytes], *, big_endian: bool) -> SavedTensorRef:
    """Returns a tensor of a file within a pickle with its values."""
    if ref.problem or ref.values is not None or ref.storage is None:
        return ref
    part = parts.get(ref.storage.key) if ref.storage.content is None else ref.storage.content
    if part is None or len(part) != ref.storage.nbytes:
        return not_read("has no storage, or one of another size than stated: it is damaged")
    content = FileBytes(-1, 0, len(part), "", part)
    return in_pickle(TorchValues(ref, content, big_endian, "").array())


_MAY_BE_INFINITE: Final = frozenset(name for name in SIZES if "float" in name or "complex" in name)


def _legacy_tree(content: FileBytes, window: Window) -> SavedTree:
    """Reads a file of before PyTorch 1.6: five pickles, then the storages that the last pickle lists.

    Nothing states the length of the pickles: more is read until they are complete.
    """
    length = min(_FIRST_PICKLE, content.size)
    while True:
        data = content.read(0, length)
        try:
            return _legacy_tree_in(data, content, window)
        except PickleEndsError:
            if length >= min(content.size, MAX_PICKLE):
                raise
        length = min(4 * length, content.size, MAX_PICKLE)


def _legacy_tree_in(data: bytes, content: FileBytes, window: Window) -> SavedTree:
    refs: dict[str, StorageRef] = {}

    def storage(name: Any) -> StorageRef | Global:
        ref = storage_of(name)
        if type(ref) is StorageRef:
            refs.setdefault(ref.key, ref)
        return ref

    if data.startswith(LFS_POINTER):
        raise PickleError("is a pointer of Git LFS: the file itself was not fetched")
    try:
        magic, at, _ = load(data, no_names, storage)
    except PickleError as error:
        if isinstance(error, PickleEndsError):
            raise
        raise PickleError(f"is no file that torch.save wrote: it {error}") from error
    if magic != TORCH_MAGIC:
        raise PickleError("is no file that torch.save wrote: it does not begin as one does")
    version, at, _ = load(data, no_names, storage, at)
    if version != _VERSION:
        raise PickleError(f"is of version {version!r:.20}, and {_VERSION} is known")
    _, at, _ = load(data, no_names, storage, at)  # facts about the machine; all known ones are little-endian
    loaded = load(data, global_of, storage, at)
    keys, at, _ = load(data, no_names, storage, loaded.end)
    if type(keys) is not list:
        raise PickleError("has no list of storages")
    found = saved_tensors(loaded, _inside)
    storages: dict[str, Window] = {}
    left = []
    for key in keys:
        ref = refs.get(key) if type(key) is str else None
        stated = content.read(at, _COUNT)
        if ref is None or ref.nbytes is None or len(stated) < _COUNT:
            break  # without its size the next storages cannot be found
        size = int.from_bytes(stated, "little") * (SIZES[ref.dtype] if ref.dtype else 1)
        storages[key] = (content.start + at + _COUNT, min(size, max(content.size - at - _COUNT, 0)))
        if ref.key not in found.storages and size:
            left.append(storage_without_tensor(ref.key, size))
        at += _COUNT + size
    if at < content.size:
        what = f"are {content.size - at:,} bytes behind all storages that the file names: they are not read"
        left.append((("<end of the file>",), not_read(what)))
    listed, members = _with(found.tensors, _named(found.tensors), left)
    return SavedTree(
        loaded.value,
        listed,
        members,
        found.apart,
        window,
        storages=storages,
        settings=found.settings,
        numbers=found.numbers,
    )


# -- values ----------------------------------------------------------------------------------------


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> ValueReader:
    """Returns the reader of one tensor: a ``npy.OpenValue``."""
    is_named = spec.member not in ("", ONLY)
    where = f"{spec.path}:{spec.member}" if is_named else spec.path
    tree = _tree(descriptor, status, spec.path, (spec.offset, spec.length or status.st_size - spec.offset))
    if spec.member == ONLY and len(tree.members) != 1:
        raise unreadable(where, f"holds {len(tree.members):,} tensors, and others of its name one")
    ref = tree.members.get(next(iter(tree.members)) if spec.member == ONLY else spec.member)
    if ref is None:
        ref = _range_in(tree, spec.member)
    if ref is None:
        raise unreadable(where, "is not in the file", "the file was written anew: look again")
    return _values(tree, ref, (descriptor, status, spec.path), where)


def _range_in(tree: SavedTree, member: str) -> SavedTensorRef | None:
    """Returns elements of a flat tensor (see ``member_of_range``); None when the member names no such range."""
    try:
        *place, (start, shape) = path_of(member)
        ref = tree.members[member_of(tuple(place))]
        end = start + math.prod(shape)
    except (KeyError, TypeError, ValueError):
        return None
    if ref.problem or ref.values is not None or ref.stride != (1,) or start < 0 or end > ref.shape[0]:
        return None
    strides = tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))
    return replace(ref, shape=shape, stride=strides, offset=ref.offset + start)


def _values(tree: SavedTree, ref: SavedTensorRef, file: _Open, where: str) -> ValueReader:
    """Returns the reader of one tensor of an open file; raises UnreadableTensorError if damaged or not understood."""
    if ref.values is not None and not ref.problem:
        return PickledValues(ref.values, where)
    if ref.problem or ref.storage is None:
        raise unreadable(where, ref.problem or "has no values")
    storage, (descriptor, status, path) = ref.storage, file
    content: FileBytes | MemberFile
    if storage.content is not None:
        content = FileBytes(-1, 0, len(storage.content), where, storage.content)
    elif tree.storages is None:
        archive = tree.archive or open_archive(descriptor, status, path, tree.window)
        name = f"{tree.folder}/data/{storage.key}"
        if name not in archive.members:
            raise unreadable(where, f"has no storage {storage.key!r:.40} in its file: it is damaged")
        content = MemberFile(descriptor, archive, name, where)
    else:
        if storage.key not in tree.storages:
            raise unreadable(where, "is truncated: the file ends before its storage", _NOT_FINISHED)
        content = FileBytes(descriptor, *tree.storages[storage.key], where)
    if content.size != storage.nbytes:
        what = f"has a storage of {content.size:,} bytes in place of {storage.nbytes or 0:,}: it is damaged"
        raise unreadable(where, what, _NOT_FINISHED)
    return TorchValues(ref, content, tree.big_endian, where)


class PickledValues(ValueReader):
    """Values that lie in a pickle: a ``npy.ValueReader``."""

    __slots__ = ("_values", "layout")

    def __init__(self, values: Array, where: str) -> None:
        """Takes values of any byte and memory order; UnreadableTensorError: their shape cannot be represented."""
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        self.layout = checked_layout(native.dtype, name_of(native.dtype), native.shape, where)
        self._values = np.ascontiguousarray(native).reshape(native.shape)

    def read_into(self, start: int, target: Array) -> None:
        target[:] = self._values.reshape(-1)[start : start + len(target)]

    def array(self) -> Array:
        found: Array = self._values.copy()
        return found


_PACKED: Final = 2
"""Values in a byte of ``float4_e2m1fn_x2``."""
_FLOAT4_VALUES: Final = DECODED["float4_e2m1"].decode(np.arange(16))
_FLOAT4_PAIRS: Final = np.stack([np.tile(_FLOAT4_VALUES, 16), np.repeat(_FLOAT4_VALUES, 16)], axis=1)
"""The two values of each byte; the lower half is the first value."""


class TorchValues(ValueReader):
    """The values of one tensor in a storage: a ``npy.ValueReader``."""

    __slots__ = ("_base", "_content", "_contiguous", "_decoded", "_each", "_ref", "_stored", "layout", "packed")

    def __init__(self, ref: SavedTensorRef, content: FileBytes | MemberFile, big_endian: bool, where: str) -> None:
        """Takes a tensor, and the bytes of its storage, which it fits; ``where`` is the name in errors."""
        self._ref, self._content = ref, content
        self._stored, self._each = _stored_type(ref.dtype, big_endian, where), 1
        dtype, shape = self._stored, ref.shape
        if ref.dtype == COMPLEX32:
            dtype = np.dtype(np.complex64)
        elif ref.dtype == FLOAT4:
            dtype, self._each = np.dtype(np.float32), _PACKED
            shape = (*shape[:-1], shape[-1] * _PACKED) if shape else (_PACKED,)
        self.layout = checked_layout(dtype, ref.dtype, shape, where)
        self.packed = isinstance(content, MemberFile) and content.deflated
        self._decoded = ref.conj or ref.neg or dtype != self._stored
        self._contiguous = _is_contiguous(ref)
        self._base: Array | None = None

    def read_into(self, start: int, target: Array) -> None:
        each = self._each
        first, end = start // each, -(-(start + len(target)) // each)
        plain = self.layout.dtype == self._stored
        stored = target if plain else np.empty(end - first, self._stored)
        if self._contiguous:
            self._read((self._ref.offset + first) * self._stored.itemsize, stored.view(np.uint8))
        else:
            view, done = self._view(self._stored_base(), self._stored), 0
            for box in boxes(self._ref.shape, first, len(stored)):
                part = view[tuple(slice(*each) for each in box)]
                stored[done : done + part.size].reshape(part.shape)[...] = part
                done += part.size
        if self._decoded:
            values = self._decode(stored)
            target[:] = values if each == 1 else values.reshape(-1)[start - first * each :][: len(target)]

    def array(self) -> Array:
        layout = self.layout
        if self._contiguous and layout.nbytes <= WHOLE_FILE:
            return super().array()
        base = self._stored_base()
        if not self._decoded:
            return self._view(base, self._stored)
        decoded = temporary_array(len(base) * self._each, layout.dtype, WHOLE_FILE)
        for first in range(0, len(base), _PIECE):
            piece = self._decode(np.array(base[first : first + _PIECE])).reshape(-1)
            decoded[first * self._each :][: len(piece)] = piece
        return self._view(decoded.reshape(-1, self._each), layout.dtype)

    def check(self, _: int) -> None:
        """See ``TensorFile.check``."""
        if isinstance(self._content, MemberFile):
            self._content.check(may_lack=True)

    def close(self) -> None:
        """Drops the map of the storage; arrays that were handed out keep it alive."""
        self._base = None

    def _read(self, first: int, target: UInt8) -> None:
        """Fills an array with bytes of the storage; raises UnreadableTensorError for bytes that the file lost."""
        self._content.read_into(first, target)
        if isinstance(self._content, MemberFile):
            self._content.check_zeros(first, target)

    def _stored_base(self) -> Array:
        """Returns the storage's elements from the tensor's first to its last, mapped if many."""
        if self._base is None:
            size = self._stored.itemsize
            first, count = self._ref.offset, max(end_of(self._ref) - self._ref.offset, 0)
            if count * size <= WHOLE_FILE:
                self._base = np.empty(count, self._stored)
                self._read(first * size, self._base.view(np.uint8))
            else:
                mapped, begin = self._content.mapped()
                self._base = np.frombuffer(mapped, self._stored, count, begin + first * size)
                if isinstance(self._content, MemberFile):
                    self._content.check_zeros(first * size, self._base.view(np.uint8))
        return self._base

    def _view(self, base: Array, dtype: DType) -> Array:
        """Returns the tensor as a view of its elements, of which each may be a row of several values."""
        shape, steps = self._ref.shape, self._ref.stride
        each = base.shape[1] if base.ndim > 1 else 1
        strides = tuple(step * each * dtype.itemsize for step in steps)
        if not all(shape):
            return np.empty(self.layout.shape, dtype)
        octets = base.reshape(-1).view(np.uint8)
        pairs: Array = np.ndarray((*shape, each), dtype, octets, 0, (*strides, dtype.itemsize))  # checks the bounds
        return pairs[..., 0] if each == 1 else pairs.reshape(self.layout.shape)

    def _decode(self, stored: Array) -> Array:
        """Returns the values of stored elements; may overwrite ``stored``."""
        ref, values = self._ref, stored
        if ref.dtype == FLOAT4:
            values = _FLOAT4_PAIRS[stored]
        elif ref.dtype == COMPLEX32:
            parts = stored.view(self._stored.str[0] + "f2").astype(np.float32)
            values = parts.view(np.complex64)
        if ref.conj and values.dtype.kind == "c":
            values = np.conjugate(values, out=values)
        if ref.neg:
            values = np.negative(values, out=values)
        return values


_STORED_AS: Final = {COMPLEX32: "uint32", FLOAT4: "uint8"}


def _stored_type(name: str, big_endian: bool, where: str) -> DType:
    dtype = dtype_of(_STORED_AS.get(name, name))
    if dtype is None:
        raise unreadable(where, f"has elements of type {name}, which this version of ml_dtypes does not know")
    if not big_endian or dtype.itemsize == 1:
        return dtype
    if dtype == np.dtype(ml_dtypes.bfloat16):
        raise unreadable(where, "has bfloat16 elements with the highest byte first, which are not read")
    swapped: DType = dtype.newbyteorder(">")
    return swapped


def _is_contiguous(ref: SavedTensorRef) -> bool:
    expected = 1
    for size, step in zip(reversed(ref.shape), reversed(ref.stride), strict=True):
        if size != 1 and step != expected:
            return not all(ref.shape)
        expected *= size
    return True
