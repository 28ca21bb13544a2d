"""The names that the pickle of a torch file may hold; tensors become descriptions without values.

Functions that make tensors, storages, arrays and Python's containers are known. Other classes and functions stay names:
a checkpoint has settings beside its tensors, and a whole saved model has its classes. ``is_not_known`` tells which of
them may hide something. Descriptions of tensors are checked against the stated size of their storage. A known object
that cannot be read, such as a quantized tensor, gets a ``problem``; the rest of its file is read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from tui_debugger.arrays import Array
from tui_debugger.model import word_pairs, words
from tui_debugger.stats.dtensor import SPEC, TensorPart, part_of
from tui_debugger.stats.dtypes import dtype_of, name_of
from tui_debugger.stats.pickled_arrays import ARRAY, ELEMENT_TYPE, FUNCTIONS
from tui_debugger.stats.restricted_pickle import Global, Instance, PickleError, load, no_names, stand_in

MAX_REPEATED: Final = 1 << 32
"""Most elements of a tensor that has far more of them than its storage: measuring so many takes some seconds."""
_REPEATED: Final = 1000
_OTHERS: Final = 3
_LONG: Final = 80


@dataclass(frozen=True, slots=True, eq=False)
class StorageRef:
    """A storage as a pickle names it; ``dtype`` is empty for an untyped one.

    ``nbytes`` is None where the element size is not known. ``content`` has its bytes if the pickle itself holds them.
    """

    dtype: str
    key: str
    location: str
    nbytes: int | None
    content: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SavedTensorRef:
    """A tensor as a file describes it: a view of a storage, in elements.

    Attributes:
        conj, neg: the values are the storage's, conjugated, negated.
        problem: why it cannot be read; empty: nothing is known against it.
        values: its values if the pickle itself holds them.
        attributes: further state, usually attributes by name.
        part: the part of a larger tensor that it is; None: it is whole.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()
    offset: int = 0
    storage: StorageRef | None = None
    conj: bool = False
    neg: bool = False
    requires_grad: bool = False
    problem: str = ""
    values: Array | None = None
    attributes: Any = None
    part: TensorPart | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, limited to its storage; -1 where they are not known."""
        if self.storage is None or self.storage.nbytes is None:
            return -1
        return min(math.prod(self.shape) * SIZES.get(self.dtype, 1), self.storage.nbytes)


def in_pickle(values: Array) -> SavedTensorRef:
    return SavedTensorRef(name_of(values.dtype), values.shape, values=values)


def not_read(problem: str) -> SavedTensorRef:
    """Returns the entry for an object that cannot be understood."""
    return SavedTensorRef("", (), problem=problem)


_STORED: Final = word_pairs("""
    Double float64  Float float32  Half float16  Long int64  Int int32  Short int16  Char int8  Byte uint8  Bool bool
    BFloat16 bfloat16  ComplexDouble complex128  ComplexFloat complex64  QInt8 qint8  QInt32 qint32  QUInt8 quint8
    QUInt4x2 quint4x2  QUInt2x4 quint2x4
    """)
"""Element types by the first part of the names of storage classes."""
COMPLEX32: Final = "complex32"
FLOAT4: Final = "float4_e2m1fn_x2"
_READ: Final = (
    *words("""
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 float8_e4m3fn float8_e5m2
    float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu complex64 complex128
    """),
    COMPLEX32,
    FLOAT4,
)
_NOT_READ: Final = frozenset(
    (
        *words("bits8 bits16 bits1x8 bits2x4 bits4x2 qint8 qint32 quint8 quint4x2 quint2x4"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    )
)
"""Element types that are known by name only."""
SIZES: Final = {"qint8": 1, "quint8": 1, "qint32": 4, COMPLEX32: 4, FLOAT4: 1} | {
    name: dtype.itemsize for name in _READ if (dtype := dtype_of(name)) is not None
}
"""Bytes of an element in a storage."""


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> SavedTensorRef:
    """See ``torch._utils._rebuild_tensor_v2``; ``others``: requires_grad, hooks, bits."""
    requires_grad, _, bits = (*others, False, None, None)[:3] if len(others) < _OTHERS else others
    return _described(storage, (offset, size, stride), storage.dtype, requires_grad, bits)


def _typed_tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> SavedTensorRef:
    """See ``torch._utils._rebuild_tensor_v3``: the tensor, not its storage, states the element type."""
    requires_grad, _, dtype, *bits = others
    return _described(storage, (offset, size, stride), _dtype(dtype), requires_grad, bits[0] if bits else None)


def _described(storage: Any, place: tuple[Any, Any, Any], dtype: str, requires_grad: Any, bits: Any) -> SavedTensorRef:
    offset, size, stride = place
    if type(storage) is not StorageRef or type(offset) is not int:
        raise PickleError("has a damaged pickle: a tensor in it has no storage")
    bits = bits or {}
    conj, neg = bool(bits.get("conj")), bool(bits.get("neg"))
    shape, steps = _integers(size), _integers(stride)
    ref = SavedTensorRef(dtype, shape, steps, offset, storage, conj, neg, bool(requires_grad))
    problem = _problem(ref)
    return replace(ref, problem=problem) if problem else ref


def _integers(values: Any = ()) -> tuple[int, ...]:
    if type(values) not in (tuple, list) or not all(type(value) is int for value in values):
        raise PickleError("has a damaged pickle: a tensor in it has sizes that are no numbers")
    return tuple(values)


def _dtype(value: Any) -> str:
    if type(value) is not Global or not value.name.startswith("torch."):
        raise PickleError("has a damaged pickle: a tensor in it has no element type")
    return value.name.removeprefix("torch.")


def _problem(ref: SavedTensorRef) -> str:
    """Returns why a description is impossible or not readable; empty: it is neither."""
    shape, stride, storage = ref.shape, ref.stride, ref.storage
    if ref.dtype not in SIZES or ref.dtype in _NOT_READ:
        return f"has elements of type {ref.dtype or '(none)'}, which are not read; its shape is {_shown(shape)}"
    if len(shape) != len(stride):
        return f"has {len(shape)} sizes and {len(stride)} strides: it is damaged"
    if min(shape, default=0) < 0 or min(stride, default=0) < 0 or ref.offset < 0:
        what = f"shape {_shown(shape)}, strides {_shown(stride)}, offset {ref.offset}"
        return f"has a negative size, stride or offset: {what}"
    end = end_of(ref) * SIZES[ref.dtype]
    if storage is not None and storage.nbytes is not None and end > storage.nbytes:
        return f"reaches to byte {end:,} of a storage of {storage.nbytes:,}: it is damaged"
    count = math.prod(shape)
    if count > MAX_REPEATED and count > (end // SIZES[ref.dtype] - ref.offset) * _REPEATED:
        return f"repeats its elements to {count:,}: too many to look at"
    return ""


def _shown(values: tuple[int, ...]) -> str:
    text = str(values)
    return text if len(text) < _LONG else f"{text[:_LONG]}..."


def end_of(ref: SavedTensorRef) -> int:
    """Returns how many elements of the storage a tensor reaches over, from the storage's first one."""
    if not all(ref.shape):
        return 0
    return ref.offset + sum((n - 1) * step for n, step in zip(ref.shape, ref.stride, strict=True)) + 1


def _without_values(what: str, dtype: Any, size: Any) -> SavedTensorRef:
    shape = tuple(size) if type(size) in (tuple, list) and all(type(n) is int for n in size) else ()
    return SavedTensorRef(dtype, shape, problem=f"{what}; its shape is {_shown(shape)}")


def whole_storage(storage: StorageRef) -> SavedTensorRef:
    """Returns a storage as a tensor of all its elements."""
    if storage.dtype not in SIZES or storage.nbytes is None:
        return replace(not_read("is a storage without an element type: its numbers are not read"), storage=storage)
    count = storage.nbytes // SIZES[storage.dtype]
    ref = SavedTensorRef(storage.dtype, (count,), (1,), 0, storage)
    return replace(ref, problem=_problem(ref))


def _meta_tensor(dtype: Any, size: Any, *_: Any) -> SavedTensorRef:
    return _without_values("was on the device meta, which has no values", _dtype(dtype), size)


_SPARSE: Final[dict[str, tuple[str, ...]]] = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""The tensors that a sparse tensor consists of, by its layout."""


def _sparse_tensor(layout: Any, data: Any) -> Instance:
    """See ``torch._utils._rebuild_sparse_tensor``: its parts hold all numbers."""
    name = str(layout).removeprefix("torch.")
    parts = _SPARSE.get(name)
    if parts is None or type(data) is not tuple or any(type(part) is not SavedTensorRef for part in data[: len(parts)]):
        raise PickleError("has a damaged pickle: a sparse tensor in it is made of no tensors")
    return Instance(f"torch.{name}", (), state=dict(zip(parts, data, strict=False)))


def _quantized_tensor(storage: Any, _: Any, size: Any, __: Any, parameters: Any = None, *___: Any) -> SavedTensorRef:
    if type(storage) is not StorageRef:
        raise PickleError("has a damaged pickle: a tensor in it has no storage")
    what = f"is quantized ({storage.dtype}): its numbers are not read"
    found = _without_values(what, storage.dtype, size)
    return replace(found, storage=storage, attributes=[*parameters] if type(parameters) is tuple else None)


def _nested_tensor(buffer: Any, *parts: Any) -> Instance:
    """See ``torch._utils._rebuild_nested_tensor``: one tensor holds all numbers, the others the layout."""
    return Instance("torch.nested", (), state={"values": buffer, "layout": list(parts)})


def _wrapped_tensor(kind: Any, dtype: Any, size: Any, *_: Any) -> SavedTensorRef:
    return _without_values(f"is a {kind.name}, whose values lie elsewhere", _dtype(dtype), size)


def _moved_tensor(data: Any, dtype: Any, *_: Any) -> SavedTensorRef:
    """See ``torch._utils._rebuild_device_tensor_from_cpu_tensor``."""
    if type(data) is not SavedTensorRef:
        raise PickleError("has a damaged pickle: a tensor in it has no values")
    name = _dtype(dtype)
    return (
        data if name == data.dtype else replace(data, problem=f"has elements of type {data.dtype} in place of {name}")
    )


@lru_cache(16)
def _saved_storage(content: Any) -> StorageRef | Instance:
    """See ``torch.storage._load_from_bytes``: a file of before PyTorch 1.6 with one storage."""
    at = 0
    for _ in range(3):  # magic number, version, facts about the machine
        at = load(content, no_names, storage_of, at).end
    stored = load(content, global_of, storage_of, at)
    end = load(content, no_names, storage_of, stored.end).end  # the list of storages
    if type(stored.value) is not StorageRef:
        return Instance("torch.storage._load_from_bytes", (content,))
    return replace(stored.value, content=content[end + _COUNT :])


_COUNT: Final = 8
"""Bytes of the number of elements before a storage."""


def _parameter(data: Any, requires_grad: Any, _: Any = None, state: Any = None) -> SavedTensorRef | Instance:
    if type(data) is Instance:
        return Instance("torch.nn.parameter.Parameter", (data,), state=state)
    if type(data) is not SavedTensorRef:
        raise PickleError("has a damaged pickle: a parameter in it is no tensor")
    return replace(data, requires_grad=bool(requires_grad), attributes=_both(data.attributes, state))


def _of_class(function: Any, _: Any, arguments: Any, state: Any = None, *__: Any) -> SavedTensorRef | Instance:
    """See ``torch._tensor._rebuild_from_type_v2``: a tensor of any class, with attributes."""
    if type(function) is not Global or type(arguments) is not tuple:
        raise PickleError("has a damaged pickle: it makes a tensor with something that is no function")
    if function.name not in _TENSORS or function.call is None:
        return Instance(function.name, arguments, called=True, state=state)
    found = function.call(*arguments)
    if type(found) is not SavedTensorRef:
        return Instance(function.name, (found,), state=state)
    local, others = _local_part(state)
    if local is None or found.storage is not None:
        return replace(found, attributes=_both(found.attributes, state))
    part = part_of(next((each[SPEC] for each in others if SPEC in each), None))
    attributes = _both(local.attributes, others)
    return replace(local, requires_grad=found.requires_grad, attributes=attributes, part=part)


def _both(first: Any, second: Any) -> Any:
    """Combines the attributes that were set in two places."""
    return [first, second] if first and second else first or second or None


_LOCAL: Final = "_local_tensor"


def _local_part(state: Any) -> tuple[SavedTensorRef | None, list[dict[Any, Any]]]:
    """Returns a DTensor's local part, and its other attributes, with mesh and placements."""
    attributes = [part for part in (state if type(state) is tuple else (state,)) if type(part) is dict]
    local = next((part[_LOCAL] for part in attributes if type(part.get(_LOCAL)) is SavedTensorRef), None)
    others = [{key: value for key, value in part.items() if key != _LOCAL} for part in attributes]
    return local, [part for part in others if part]


def _dictionary(*items: Any) -> dict[Any, Any] | Instance:
    """See ``collections.OrderedDict``: filled later, or made of pairs, as Python 2 wrote it."""
    if not items or not items[0]:
        return {}
    pairs = items[0]
    if type(pairs) is not list or any(len(pair) != 2 or type(pair[0]) is not str for pair in pairs):
        return Instance("collections.OrderedDict", items)
    return {key: value for key, value in pairs}  # noqa: C416 - a pair may be a list


def _counter(items: Any = None) -> dict[Any, Any]:
    if items is not None and type(items) is not dict:
        raise PickleError("has a counter in its pickle that counts nothing")
    return items or {}


def _items(values: Any = (), _: Any = None) -> list[Any] | Instance:
    return list(values) if type(values) in (list, tuple) else Instance("builtins.set", (values,))


def _frozen(values: Any = ()) -> tuple[Any, ...] | Instance:
    return tuple(values) if type(values) in (list, tuple) else Instance("builtins.frozenset", (values,))


def _attribute(owner: Any, name: Any) -> Global | Instance:
    """See ``getattr``, by which pickles name members of enumerations and methods."""
    if type(owner) is Global and type(name) is str:
        return Global(f"{owner.name}.{name}", foreign=True)
    return Instance("builtins.getattr", (owner, name))


def _reconstructed(kind: Any, base: Any = None, content: Any = None) -> Instance:
    """See ``copyreg._reconstructor``, which makes objects in protocols 0 and 1."""
    if type(kind) is not Global:
        raise PickleError("has a damaged pickle: it makes an object of something that is no class")
    return Instance(kind.name, () if content is None else (base, content))


def _new_object(kind: Any, *arguments: Any) -> Instance:
    return Instance(_reconstructed(kind).kind, arguments)


def _words(*words: Any) -> str:
    return ":".join(str(word) for word in words if type(word) in (str, int))


def _octets(content: Any = b"", encoding: Any = "latin1") -> bytes:
    """See ``_codecs.encode``, by which pickles of protocol 2 hold bytes."""
    if type(content) is bytes:
        return content
    if type(content) is not str or encoding not in ("latin1", "latin-1"):
        raise PickleError("has bytes in its pickle that are no bytes")
    return content.encode("latin1")


def _no_bytes(*arguments: Any) -> bytes | Instance:
    """See ``bytes``, by which pickles of protocol 2 hold empty bytes, as of an empty array."""
    return Instance("builtins.bytes", arguments, called=True) if arguments else b""


def _results(kind: str) -> Callable[..., tuple[Any, ...] | Instance]:
    """Returns the maker of a named tuple with the results of a torch function."""

    def make(values: Any = (), others: Any = None) -> tuple[Any, ...] | Instance:
        return values if type(values) is tuple and not others else Instance(kind, (values, others), called=True)

    return make


_TENSORS: Final[dict[str, Callable[..., SavedTensorRef | Instance]]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch_npu.utils.storage._rebuild_npu_tensor": lambda *found: _tensor(*found[:6]),
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _moved_tensor,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta_tensor,
    "torch._utils._rebuild_sparse_tensor": _sparse_tensor,
    "torch._utils._rebuild_qtensor": _quantized_tensor,
    "torch._utils._rebuild_nested_tensor": _nested_tensor,
    "torch._utils._rebuild_wrapper_subclass": _wrapped_tensor,
}
_CALLS: Final[dict[str, Callable[..., Any]]] = {
    **_TENSORS,
    "torch._tensor._rebuild_from_type_v2": _of_class,
    "collections.OrderedDict": _dictionary,
    "collections.Counter": _counter,
    "collections.defaultdict": lambda _=None, *items: _dictionary(*items),
    "collections.deque": _items,
    "builtins.getattr": _attribute,
    "builtins.set": _items,
    "builtins.frozenset": _frozen,
    "torch.storage._load_from_bytes": _saved_storage,
    "copyreg._reconstructor": _reconstructed,
    "copyreg.__newobj__": _new_object,
    "copyreg.__newobj_ex__": _new_object,
    "builtins.bytearray": _octets,
    "builtins.bytes": _no_bytes,
    "builtins.complex": complex,
    "_codecs.encode": _octets,
    "torch.Size": _integers,
    "torch.device": _words,
    "torch.serialization._get_layout": _words,
}
_STORAGES: Final = {
    f"{module}.{word}Storage": name for module in ("torch", "torch.cuda") for word, name in _STORED.items()
} | dict.fromkeys(
    words("""
    torch.storage.UntypedStorage torch.storage._UntypedStorage torch.UntypedStorage torch.cuda.UntypedStorage
    """),
    "",
)
"""Element types by the names of storage classes; empty: untyped."""
_CONSTANTS: Final = (
    *(f"torch.{name}" for name in (*_READ, *_NOT_READ)),
    *words("""
    torch.Tensor torch.nn.parameter.Parameter torch.nn.parameter.Buffer torch.per_tensor_affine
    torch.per_tensor_symmetric torch.per_channel_affine torch.per_channel_symmetric
    torch.per_channel_affine_float_qparams torch.strided torch.contiguous_format torch.preserve_format
    torch.channels_last
    """),
)
# Python 3.13 writes pathlib._local.
_STAND_INS: Final = words("""
    torch.distributed.checkpoint.metadata.Metadata torch.distributed.checkpoint.metadata.TensorStorageMetadata
    torch.distributed.checkpoint.metadata.TensorProperties torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING
    torch.distributed.checkpoint.metadata.StorageMeta torch.distributed.checkpoint.metadata.ChunkStorageMetadata
    torch.distributed.checkpoint.metadata.BytesStorageMetadata torch.distributed.checkpoint.metadata.MetadataIndex
    torch.distributed.checkpoint.filesystem._StorageInfo torch.distributed.checkpoint.filesystem._StoragePrefix
    pathlib.PosixPath pathlib.PurePosixPath pathlib.WindowsPath pathlib.PureWindowsPath pathlib.Path pathlib.PurePath
    pathlib._local.PosixPath pathlib._local.PurePosixPath pathlib._local.WindowsPath pathlib._local.PureWindowsPath
    datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone zoneinfo.ZoneInfo._unpickle
    builtins.range builtins.xrange builtins.slice re._compile logging.getLogger fractions.Fraction decimal.Decimal
    operator.attrgetter operator.itemgetter operator.methodcaller functools.partial argparse.Namespace
    types.SimpleNamespace uuid.UUID torch._C.Generator torch_npu.npu._format.Format
    """)
"""Classes whose objects are kept as their arguments: settings, and the index of a distributed checkpoint."""
GLOBALS: Final[dict[str, Global]] = {
    **{name: Global(name, call) for name, call in _CALLS.items()},
    **{name: Global(name) for name in (*_CONSTANTS, *_STORAGES)},
    **{name: stand_in(name) for name in (*_STAND_INS, ELEMENT_TYPE)},
    **{name: stand_in(kind) for name, kind in FUNCTIONS.items()},
    ARRAY: Global(ARRAY, foreign=True),
}
"""The known classes and functions, by their names in a pickle."""
_OURS: Final = sys.stdlib_module_names | {"numpy", "torch"}
_OF_MODELS: Final = ("torch.nn.modules.", "torch.nn.functional.", "torch._C._nn.")
"""Functions of torch that occur in a whole saved model."""
OF_GENERATORS: Final = "numpy.random."
"""Makers of NumPy's random generators, whose states are integers."""
_RESULTS: Final = "torch.return_types."
_PROGRAMS: Final = frozenset(words("os posix nt subprocess pty multiprocessing socket ctypes runpy"))
"""Modules whose objects are never values."""
_RENAMED: Final = {"copy_reg": "copyreg", "commands": "subprocess", "exceptions": "builtins"}
"""Modules of Python 2 that protocol 2 names."""


def global_of(name: str) -> Global | None:
    """Returns the class or function that a pickle names; None for a TorchScript program."""
    module, _, rest = name.partition(".")
    if module == "__torch__":
        return None
    name = f"{_RENAMED[module]}.{rest}" if module in _RENAMED else name
    if name.startswith(_RESULTS):
        return Global(name, _results(name))
    return GLOBALS.get(name) or Global(name, foreign=True)


def is_function(kind: str) -> bool:
    """Tells by its name whether a callable is no class, so that it may have made other numbers of its arguments.

    A class keeps its arguments, or says otherwise in its state.
    """
    name = kind.rpartition(".")[2].lstrip("_")
    return name[:1].islower() and kind not in _TYPES_OF_PYTHON and not kind.startswith(OF_GENERATORS)


def is_not_known(kind: str) -> bool:
    """Tells whether a call may have made anything: a function of Python, torch or NumPy that no table knows."""
    module, _, _ = kind.partition(".")
    if module not in _OURS or kind.startswith(_OF_MODELS):
        return False
    return module in _PROGRAMS or is_function(kind)


_TYPES_OF_PYTHON: Final = frozenset(
    f"builtins.{name}" for name in words("bool bytes dict float int list long object str tuple unicode iter")
)
"""Types with lower-case names; their objects hold only the arguments."""


def storage_of(name: Any) -> StorageRef | Global:
    """Returns the storage that a pickle names: ("storage", class, key, device, number of elements).

    Files of before PyTorch 1.6 name classes of models in the same way, with their source code.
    """
    if type(name) is tuple and name[:1] == ("module",) and len(name) == 4 and type(name[1]) is Global:
        return name[1]
    if type(name) is not tuple or len(name) not in (5, 6) or name[0] != "storage":
        raise PickleError("names something outside of its pickle that is no storage")
    _, kind, key, location, count = name[:5]
    known = type(kind) is Global and kind.name in _STORAGES
    if not known or type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
        raise PickleError("has a storage in its pickle that is none")
    if len(name) == 6 and name[5] is not None:
        raise PickleError("has a storage that is a part of another one, as PyTorch before 0.4 wrote it")
    dtype = _STORAGES[kind.name]
    size = SIZES.get(dtype, None if dtype else 1)
    return StorageRef(dtype, key, location, None if size is None else count * size)
