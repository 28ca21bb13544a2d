"""Reads what ``torch.save`` wrote, without PyTorch, and without executing anything of the file.

Such a file is a pickle (see ``restricted_pickle``) beside the bytes of storages: in a zip archive, or one after the
other behind it (before PyTorch 1.6). A tensor is a view of a storage: an offset, sizes, strides, perhaps the bits that
say that its values are to be conjugated or negated. Sizes and strides are checked against the storage, and that against
the file, before anything is read; then values are read where they lie. A tensor that repeats its elements over and over
is never laid out.

Tensors are found by their place in the tree of dictionaries and lists that was saved. As ``ReadSpec.member`` a place is
written as a JSON pointer is: ``/optimizer/state/[0]/exp_avg``. In ``[...]`` stands what is no text: the number of an
item of a list, a number that is a key. A tensor that was saved by itself is at ``""``.

The checksum of a storage is compared where zeros are in it, as a page that was lost would be; torch never does, and has
an option to write none.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.model import ReadSpec
from tui_debugger.stats.archive import (
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
from tui_debugger.stats.dtypes import DType, dtype_of
from tui_debugger.stats.npy import WHOLE_FILE, boxes, checked_layout
from tui_debugger.stats.restricted_pickle import (
    Foreign,
    Global,
    Instance,
    PickleEndsError,
    PickleError,
    load,
    load_plain,
    no_names,
    shown_name,
)
from tui_debugger.stats.torch_pickle import (
    ARRAY,
    COMPLEX32,
    FLOAT4,
    SIZES,
    StorageRef,
    TensorRef,
    array_of,
    end_of,
    global_of,
    storage_of,
)

MAX_PICKLE: Final = 1 << 27
"""Bytes of the longest pickle of a file, without its values: that of a million tensors."""
MAX_TENSORS: Final = 1 << 18
"""Tensors of a file."""
MAX_DEPTH: Final = 64
"""Dictionaries and lists within each other, down to a tensor."""
MAX_MEMBER: Final = 1 << 12
"""Characters of the place of a tensor."""
_KEPT: Final = 32
"""Trees that are kept: the tensors of one file are read one after the other."""
_KEPT_PICKLES: Final = 256
"""Short pickles that are kept with what they hold: one for each shape and type in a dump of many small files."""
_FIRST_PICKLE: Final = 1 << 16
_MAGIC: Final = 0x1950A86A20F9469CFC6C
_VERSION: Final = 1001
_COUNT: Final = 8
"""Bytes that state the number of elements of a storage in a file of before PyTorch 1.6."""
_PIECE: Final = 1 << 18
_LONG: Final = 80
_SHORT_PICKLE: Final = 1 << 12
"""Bytes of the longest pickle that is kept with what it holds."""
_POINTER: Final = b"version https://git-lfs"
_NOT_FINISHED: Final = "the file was probably never written to the end"

Path = tuple[Any, ...]
"""The keys of dictionaries and the numbers of items of lists that lead to a tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """All that was saved in one file.

    Attributes:
        value: dictionaries, lists, tuples, text, numbers, ``TensorRef``, and stand-ins for a few other objects.
        tensors: its tensors with their places, in the order of the file.
        members: the same by the text of their places.
        window: what of the file it is.
        folder: the directory of the archive that everything is in.
        storages: the bytes of each storage in a file of before PyTorch 1.6, by key; None in an archive.
        big_endian: the first byte of each element is the highest.
        archive: what holds the storages otherwise.
    """

    value: Any
    tensors: list[tuple[Path, TensorRef]]
    members: Mapping[str, TensorRef]
    window: Window
    folder: str = ""
    storages: Mapping[str, Window] | None = None
    big_endian: bool = False
    archive: Archive | None = None


def read_tree(path: str, window: Window | None = None) -> Tree:
    """Returns what was saved in a file; no values are read.

    Args:
        path: the file.
        window: first byte and number of bytes of what is looked at; None: the whole file.

    Raises:
        UnreadableTensorError: it is missing, damaged, no file of torch, too much, or names anything that no file of
            tensors needs.
    """
    with opened(path) as (descriptor, status):
        return _tree(descriptor, status, path, window or (0, status.st_size))


def tensors(tree: Tree) -> list[tuple[Path, TensorRef]]:
    """Returns the tensors of a tree with their places, in the order of the file."""
    return tree.tensors


def read_objects(path: str) -> Any:
    """Returns what a file holds that is a pickle and nothing else, such as ``.metadata`` of a distributed checkpoint.

    Raises:
        UnreadableTensorError: see ``read_tree``.
    """
    with opened(path) as (descriptor, status):
        if status.st_size > MAX_PICKLE:
            raise unreadable(path, f"has a pickle of {status.st_size:,} bytes: that is not plausible")
        try:
            return load_plain(FileBytes(descriptor, 0, status.st_size, path).read(0, status.st_size), global_of)
        except PickleError as error:
            raise unreadable(path, str(error)) from error


def member_of(path: Path) -> str:
    """Returns the text of the place of a tensor."""
    return "".join("/" + _escaped(key if type(key) is str else f"[{key!r}]", type(key) is str) for key in path)


def path_of(member: str) -> Path:
    """Returns the place of a tensor from its text.

    Raises:
        ValueError: it is no such text.
    """
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

_trees: dict[tuple[str, State, Window], Tree] = {}


def _tree(descriptor: int, status: os.stat_result, path: str, window: Window) -> Tree:
    """Returns what was saved in an open file; the last ones are kept.

    Raises:
        UnreadableTensorError: see ``read_tree``.
    """
    key = (path, state_of(status), window)
    found = _trees.get(key)
    if found is None:
        first, size = window
        if first < 0 or size < 0 or first + size > status.st_size:
            raise unreadable(path, f"ends before byte {first + size:,}", _NOT_FINISHED)
        if not size:
            raise unreadable(path, "is empty", _NOT_FINISHED)
        content = FileBytes(descriptor, first, size, path)
        try:
            zipped = content.read(0, 2) == b"PK"
            found = _zipped_tree(descriptor, status, path, window) if zipped else _legacy_tree(content, window)
        except PickleError as error:
            raise unreadable(path, str(error)) from error
        while len(_trees) >= _KEPT:
            _trees.pop(next(iter(_trees)), None)
        _trees[key] = found
    return found


def _zipped_tree(descriptor: int, status: os.stat_result, path: str, window: Window) -> Tree:
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
    data = pickled.read(0, pickled.size)
    pickled.check(may_lack=True)
    found = _loaded(data) if len(data) <= _SHORT_PICKLE else _found_in(load(data, global_of, storage_of)[0])
    return Tree(*found, window, folder, big_endian=order == b"big", archive=archive)


@lru_cache(_KEPT_PICKLES)
def _loaded(data: bytes) -> _Found:
    """Returns what a short pickle holds: thousands of files of one tensor have the same one."""
    return _found_in(load(data, global_of, storage_of)[0])


def _legacy_tree(content: FileBytes, window: Window) -> Tree:
    """Reads a file of before PyTorch 1.6: five pickles, then the storages that the last one lists.

    Nothing tells how long the pickles are: more is read as long as that is too little.
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


def _legacy_tree_in(data: bytes, content: FileBytes, window: Window) -> Tree:
    refs: dict[str, StorageRef] = {}

    def storage(name: Any) -> StorageRef:
        ref = storage_of(name)
        refs.setdefault(ref.key, ref)
        return ref

    if data.startswith(_POINTER):
        raise PickleError("is a pointer of Git LFS: the file itself was not fetched")
    try:
        magic, at = load(data, no_names, storage)
    except PickleError as error:
        if isinstance(error, PickleEndsError) or str(error).startswith("refuses"):
            raise
        raise PickleError(f"is no file that torch.save wrote: it {error}") from error
    if magic != _MAGIC:
        raise PickleError("is no file that torch.save wrote: it does not begin as one does")
    version, at = load(data, no_names, storage, at)
    if version != _VERSION:
        raise PickleError(f"is of version {version!r:.20}, and {_VERSION} is known")
    _, at = load(data, no_names, storage, at)  # about the machine; values have the lowest byte first on all of them
    value, at = load(data, global_of, storage, at)
    keys, at = load(data, no_names, storage, at)
    if type(keys) is not list:
        raise PickleError("has no list of storages")
    storages: dict[str, Window] = {}
    for key in keys:
        ref = refs.get(key) if type(key) is str else None
        stated = content.read(at, _COUNT)
        if ref is None or ref.nbytes is None or len(stated) < _COUNT:
            break  # nothing tells where the others are
        size = int.from_bytes(stated, "little") * (SIZES[ref.dtype] if ref.dtype else 1)
        storages[key] = (content.start + at + _COUNT, min(size, max(content.size - at - _COUNT, 0)))
        at += _COUNT + size
    return Tree(*_found_in(value), window, storages=storages)


_Found = tuple[Any, list[tuple[Path, TensorRef]], Mapping[str, TensorRef]]
"""``value``, ``tensors`` and ``members`` of a tree."""


def _found_in(value: Any) -> _Found:
    found = list(_walk(value))
    members = {member_of(place): ref for place, ref in found}
    if len(members) < len(found):
        raise PickleError("has two tensors at one place")
    if any(len(member) > MAX_MEMBER for member in members):
        raise PickleError(f"has a tensor with a name of more than {MAX_MEMBER:,} characters")
    return value, found, members


@dataclass(slots=True)
class _Frame:
    """A dictionary or list on the way to what is looked at.

    Attributes:
        container: it.
        children: what in it is left to look at.
        place: its own.
        before: number of tensors that were found before it.
        maker: who made something else of what is in it; empty: nobody, it is as it was saved.
    """

    container: int
    children: Iterator[tuple[Any, Any]]
    place: Path
    before: int
    maker: str


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """The arguments of a call."""

    maker: str
    arguments: tuple[Any, ...]


_CONTAINERS: Final = (dict, list, tuple, Instance, Foreign, _Given)


def _walk(root: Any) -> Iterator[tuple[Path, TensorRef]]:
    """Yields all tensors of what was saved, with their places.

    What is in the tree several times is looked at each time, unless there is no tensor in it; not within itself.
    """
    if type(root) is TensorRef:
        yield (), root
        return
    known: dict[int, list[tuple[Any, Any]]] = {}
    without, around = set[int](), set[int]()
    found = steps = 0

    def frame(container: Any, place: Path, maker: str) -> _Frame:
        if len(place) > MAX_DEPTH:
            raise PickleError(f"nests deeper than {MAX_DEPTH} dictionaries and lists")
        if id(container) not in known:
            known[id(container)] = list(_children(container))
        around.add(id(container))
        maker = container.maker if type(container) is _Given else maker
        return _Frame(id(container), iter(known[id(container)]), place, found, maker)

    frames = [frame(root, (), "")]
    while frames:
        top = frames[-1]
        steps += 1
        for key, child in top.children:
            if type(child) is TensorRef:
                found += 1
                yield (*top.place, key), _as_made(child, top.maker)
            elif id(child) not in without and id(child) not in around:
                frames.append(frame(child, (*top.place, key), top.maker))
                break
        else:
            frames.pop()
            around.discard(top.container)
            if top.before == found:
                without.add(top.container)
        if found > MAX_TENSORS or steps > 4 * MAX_TENSORS:
            raise PickleError(f"holds more than {MAX_TENSORS:,} tensors")


def _as_made(ref: TensorRef, maker: str) -> TensorRef:
    """Returns a tensor, or the same with a problem where somebody unknown made something else of it."""
    if not maker or ref.problem:
        return ref
    return replace(ref, problem=f"went into {shown_name(maker)}, which is not known: what that made is not read")


def _children(container: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the tensors in a container and the containers, with their keys."""
    if type(container) is Foreign:
        items = _attributes(container)
    elif type(container) is _Given:
        items = list(enumerate(container.arguments))
    else:
        items = _items(container.state if type(container) is Instance else container)
    for key, value in items:
        if type(value) is Instance and value.kind == ARRAY:
            if (found := array_of(value)) is not None:
                yield _plain(key), found
        elif type(value) is TensorRef or type(value) in _CONTAINERS:
            yield _plain(key), value


def _items(container: Any) -> list[tuple[Any, Any]]:
    if type(container) is dict:
        return list(container.items())
    return list(enumerate(container)) if type(container) in (list, tuple) else []


def _attributes(found: Foreign) -> list[tuple[Any, Any]]:
    """Returns what is in an object: its attributes, and what is in it as a dictionary or a list.

    Parameters, buffers and modules of a module are attributes of it, as they are to who uses it.
    """
    state = _items(found.state)
    if type(found.state) is dict and "_parameters" in found.state:
        parts = [found.state.get(name) for name in _OF_A_MODULE]
        state = [(key, value) for key, value in state if key not in _OF_A_MODULE]
        state += [item for part in parts for item in _items(part)]
    made_of = _Given(found.kind, found.arguments) if found.called else found.arguments
    arguments = [("arguments", made_of)] if found.called else _items(made_of)
    items = [*arguments, *state, *_items(found.items)]
    if len({_plain(key) for key, _ in items}) == len(items):
        return items
    return [("arguments", made_of), ("state", found.state), ("items", found.items)]


def _plain(key: Any) -> Any:
    """Returns a key as a place can hold it."""
    if type(key) is Global:
        return f"<{shown_name(key.name)}>"
    if type(key) in (Instance, Foreign):
        arguments = ", ".join(str(each) for each in key.arguments if type(each) in (str, int, float, bool))
        return f"<{shown_name(f'{key.kind}({arguments})')}>"
    return key


_OF_A_MODULE: Final = ("_parameters", "_buffers", "_modules")
"""See ``torch.nn.Module.__init__``."""


# -- values ----------------------------------------------------------------------------------------


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> TorchValues:
    """Returns the reader of one tensor: see ``npy.FORMATS``.

    Raises:
        UnreadableTensorError: the file or the tensor is damaged, refused, or not there.
    """
    where = f"{spec.path}:{spec.member}" if spec.member else spec.path
    window = (spec.offset, spec.length or status.st_size - spec.offset)
    tree = _tree(descriptor, status, spec.path, window)
    ref = tree.members.get(spec.member)
    if ref is None:
        raise unreadable(where, "is not in the file", "the file was written anew: look again")
    if ref.problem or ref.storage is None:
        raise unreadable(where, ref.problem or "has no values")
    storage = ref.storage
    content: FileBytes | MemberFile
    if tree.storages is None:
        archive = tree.archive or open_archive(descriptor, status, spec.path, window)
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


_PACKED: Final = 2
"""Values in a byte of ``float4_e2m1fn_x2``."""
_FLOAT4_VALUES: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_FLOAT4_PAIRS: Final = np.stack([np.tile(_FLOAT4_VALUES, 16), np.repeat(_FLOAT4_VALUES, 16)], axis=1)
"""Both values of each byte; the lower half is the first one."""


class TorchValues:
    """The values of one tensor: see ``npy.ValueReader``."""

    __slots__ = ("_base", "_content", "_contiguous", "_decoded", "_each", "_ref", "_stored", "layout", "packed")

    def __init__(self, ref: TensorRef, content: FileBytes | MemberFile, big_endian: bool, where: str) -> None:
        """Takes a tensor that fits its storage.

        Args:
            ref: the tensor.
            content: the bytes of its storage; their file stays open.
            big_endian: the first byte of each element is the highest.
            where: what errors call it.

        Raises:
            UnreadableTensorError: its elements or its shape cannot be represented.
        """
        self._ref, self._content = ref, content
        self._stored, self._each = _stored_type(ref.dtype, big_endian, where), 1
        dtype, shape = self._stored, ref.shape
        if ref.dtype == COMPLEX32:
            dtype = np.dtype(np.complex64)
        elif ref.dtype == FLOAT4:
            dtype, self._each = np.dtype(np.float32), _PACKED
            shape = (*shape[:-1], shape[-1] * _PACKED) if shape else (_PACKED,)
        layout = checked_layout(dtype, ref.dtype, shape)
        if isinstance(layout, str):
            raise unreadable(where, layout)
        self.layout = layout
        self.packed = isinstance(content, MemberFile) and content.deflated
        self._decoded = ref.conj or ref.neg or dtype != self._stored
        self._contiguous = _is_contiguous(ref)
        self._base: Array | None = None

    def read_into(self, start: int, target: Array) -> None:
        """See ``npy.ValueReader``."""
        each = self._each
        first, end = start // each, -(-(start + len(target)) // each)
        plain = self.layout.dtype == self._stored
        stored = target if plain else np.empty(end - first, self._stored)
        if self._contiguous:
            self._content.read_into((self._ref.offset + first) * self._stored.itemsize, stored.view(np.uint8))
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
        """See ``npy.ValueReader``."""
        layout = self.layout
        if self._contiguous and layout.nbytes <= WHOLE_FILE:
            flat = np.empty(layout.count, layout.dtype)
            self.read_into(0, flat)
            return flat.reshape(layout.shape)
        base = self._stored_base()
        if not self._decoded:
            return self._view(base, self._stored)
        decoded = temporary_array(len(base) * self._each, layout.dtype, WHOLE_FILE)
        for first in range(0, len(base), _PIECE):
            piece = self._decode(np.array(base[first : first + _PIECE])).reshape(-1)
            decoded[first * self._each :][: len(piece)] = piece
        return self._view(decoded.reshape(-1, self._each), layout.dtype)

    def check(self) -> None:
        """See ``npy.CheckedReader``."""
        if isinstance(self._content, MemberFile):
            self._content.check(may_lack=True)

    def close(self) -> None:
        """Lets go of the map of the storage; arrays that were handed out keep it."""
        self._base = None

    def _stored_base(self) -> Array:
        """Returns the elements of the storage from the first to the last that belongs to the tensor, mapped if many."""
        if self._base is None:
            size = self._stored.itemsize
            first, count = self._ref.offset, max(end_of(self._ref) - self._ref.offset, 0)
            if count * size <= WHOLE_FILE:
                self._base = np.empty(count, self._stored)
                self._content.read_into(first * size, self._base.view(np.uint8))
            else:
                mapped, begin = self._content.mapped()
                self._base = np.frombuffer(mapped, self._stored, count, begin + first * size)
        return self._base

    def _view(self, base: Array, dtype: DType) -> Array:
        """Returns the tensor over all elements from its first one on, which may be in a row of several each."""
        shape, steps = self._ref.shape, self._ref.stride
        each = base.shape[1] if base.ndim > 1 else 1
        strides = tuple(step * each * dtype.itemsize for step in steps)
        if not all(shape):
            return np.empty(self.layout.shape, dtype)
        octets = base.reshape(-1).view(np.uint8)
        pairs: Array = np.ndarray((*shape, each), dtype, octets, 0, (*strides, dtype.itemsize))  # checks the bounds
        return pairs[..., 0] if each == 1 else pairs.reshape(self.layout.shape)

    def _decode(self, stored: Array) -> Array:
        """Returns the values of elements as they are stored; may write over these."""
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
    """Returns the type of the elements of a storage."""
    dtype = dtype_of(_STORED_AS.get(name, name))
    if dtype is None:
        raise unreadable(where, f"has elements of type {name}, which this version of ml_dtypes does not know")
    if not big_endian or dtype.itemsize == 1:
        return dtype
    if dtype == np.dtype(ml_dtypes.bfloat16):
        raise unreadable(where, "has bfloat16 elements with the highest byte first, which are not read")
    swapped: DType = dtype.newbyteorder(">")
    return swapped


def _is_contiguous(ref: TensorRef) -> bool:
    """Returns whether the elements of a tensor lie one after the other in C order."""
    expected = 1
    for size, step in zip(reversed(ref.shape), reversed(ref.stride), strict=True):
        if size != 1 and step != expected:
            return not all(ref.shape)
        expected *= size
    return True
