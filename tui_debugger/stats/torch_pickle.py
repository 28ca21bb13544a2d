"""The names that the pickle of a torch file may hold. Tensors become descriptions, without their values.

Names of Python's own library, of torch and of NumPy are known, or refused. Those of other libraries and of the user's
own program are taken as they are: a checkpoint has its settings beside its tensors, and a model that was saved whole
has its classes.

A tensor is a view of a storage: an offset, sizes, strides, perhaps the bits that say that its values are to be
conjugated or negated. It is checked here against what is stated of its storage. What is known and cannot be read, such
as a sparse tensor, says so by itself; the others of its file are read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.stats.restricted_pickle import Global, Instance, PickleError, refuses, stand_ins

MAX_REPEATED: Final = 1 << 32
"""Elements of a tensor that has far more of them than its storage: measuring so many takes some seconds."""
_REPEATED: Final = 1000
ARRAY: Final = "numpy.ndarray"
"""The kind of what stands for an array of NumPy, such as the state of its random numbers in a checkpoint."""
_NUMPY_DTYPE: Final = "numpy.dtype"
_NUMPY_SCALAR: Final = "numpy.generic"
_ARRAY_TYPE: Final = re.compile(r"([fc])(\d{1,2})")
_OTHERS: Final = 3
_LONG: Final = 80


@dataclass(frozen=True, slots=True, eq=False)
class StorageRef:
    """A storage as a pickle names it.

    Attributes:
        dtype: element type; empty where tensors say it themselves.
        key: its name in the file.
        location: the device that it was on.
        nbytes: number of its bytes, as stated; None where the size of its elements is not known.
    """

    dtype: str
    key: str
    location: str
    nbytes: int | None


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor as a file describes it.

    Attributes:
        dtype: element type by its name in torch.
        shape: dimensions.
        stride: elements from one index to the next, for each dimension.
        offset: elements before the first one.
        storage: what it is a view of; None where it has no values.
        conj: its values are the conjugates of those of the storage.
        neg: its values are those of the storage, negated.
        requires_grad: as it was saved.
        problem: why it cannot be read; empty: as far as is known it can.
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


_STORED: Final = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "BFloat16": "bfloat16",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "QInt8": "qint8",
    "QInt32": "qint32",
    "QUInt8": "quint8",
    "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4",
}
"""Element types by the first part of the names of storage classes."""
COMPLEX32: Final = "complex32"
FLOAT4: Final = "float4_e2m1fn_x2"
_READ: Final = (
    *(
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("complex64", "complex128", COMPLEX32, FLOAT4),
)
_NOT_READ: Final = (
    *("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "qint8", "qint32", "quint8", "quint4x2", "quint2x4"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
)
"""Element types that are known by name only."""
SIZES: Final = {"qint8": 1, "quint8": 1, "qint32": 4, COMPLEX32: 4, FLOAT4: 1} | {
    name: dtype.itemsize for name in _READ if (dtype := dtype_of(name)) is not None
}
"""Bytes of an element in a storage."""


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> TensorRef:
    """See ``torch._utils._rebuild_tensor_v2``; the others: requires_grad, hooks, bits."""
    requires_grad, _, bits = (*others, False, None, None)[:3] if len(others) < _OTHERS else others
    return _described(storage, (offset, size, stride), storage.dtype, requires_grad, bits)


def _typed_tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> TensorRef:
    """See ``torch._utils._rebuild_tensor_v3``: the element type is that of the tensor, not of its storage."""
    requires_grad, _, dtype, *bits = others
    return _described(storage, (offset, size, stride), _dtype(dtype), requires_grad, bits[0] if bits else None)


def _described(storage: Any, place: tuple[Any, Any, Any], dtype: str, requires_grad: Any, bits: Any) -> TensorRef:
    offset, size, stride = place
    if type(storage) is not StorageRef or type(offset) is not int:
        raise PickleError("has a damaged pickle: a tensor in it has no storage")
    bits = bits or {}
    conj, neg = bool(bits.get("conj")), bool(bits.get("neg"))
    shape, steps = _integers(size), _integers(stride)
    ref = TensorRef(dtype, shape, steps, offset, storage, conj, neg, bool(requires_grad))
    problem = _problem(ref)
    return replace(ref, problem=problem) if problem else ref


def _integers(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list) or not all(type(value) is int for value in values):
        raise PickleError("has a damaged pickle: a tensor in it has sizes that are no numbers")
    return tuple(values)


def _dtype(value: Any) -> str:
    if type(value) is not Global or not value.name.startswith("torch."):
        raise PickleError("has a damaged pickle: a tensor in it has no element type")
    return value.name.removeprefix("torch.")


def _problem(ref: TensorRef) -> str:
    """Returns why a tensor cannot be what it says; empty: it can."""
    shape, stride, storage = ref.shape, ref.stride, ref.storage
    if ref.dtype not in SIZES or ref.dtype in _NOT_READ:
        return f"has elements of type {ref.dtype or '(none)'}, which are not read; its shape is {_shown(shape)}"
    if len(shape) != len(stride):
        return f"has {len(shape)} sizes and {len(stride)} strides: it is damaged"
    if any(n < 0 for n in shape) or any(n < 0 for n in stride) or ref.offset < 0:
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


def end_of(ref: TensorRef) -> int:
    """Returns the number of elements of its storage up to the last one of a tensor."""
    if not all(ref.shape):
        return 0
    return ref.offset + sum((n - 1) * step for n, step in zip(ref.shape, ref.stride, strict=True)) + 1


def _without_values(what: str, dtype: Any, size: Any) -> TensorRef:
    shape = tuple(size) if type(size) in (tuple, list) and all(type(n) is int for n in size) else ()
    return TensorRef(dtype, shape, problem=f"{what}; its shape is {_shown(shape)}")


def _meta_tensor(dtype: Any, size: Any, *_: Any) -> TensorRef:
    return _without_values("was on the device meta, which has no values", _dtype(dtype), size)


def _sparse_tensor(layout: Any, data: Any) -> TensorRef:
    sizes = [part for part in data if type(part) is tuple]
    types = [part.dtype for part in data if type(part) is TensorRef]
    name = str(layout).removeprefix("torch.")
    return _without_values(f"is sparse ({name}): only dense tensors are read", types[-1] if types else "", sizes[0])


def _quantized_tensor(storage: Any, _: Any, size: Any, *others: Any) -> TensorRef:
    if type(storage) is not StorageRef or not others:
        raise PickleError("has a damaged pickle: a tensor in it has no storage")
    return _without_values(f"is quantized ({storage.dtype}): its numbers are not read", storage.dtype, size)


def _nested_tensor(buffer: Any, *_: Any) -> TensorRef:
    return _without_values("is nested: only dense tensors are read", buffer.dtype, ())


def _wrapped_tensor(kind: Any, dtype: Any, size: Any, *_: Any) -> TensorRef:
    return _without_values(f"is a {kind.name}, whose values lie elsewhere", _dtype(dtype), size)


def _moved_tensor(data: Any, dtype: Any, *_: Any) -> TensorRef:
    """See ``torch._utils._rebuild_device_tensor_from_cpu_tensor``."""
    if type(data) is not TensorRef:
        raise PickleError("has a damaged pickle: a tensor in it has no values")
    name = _dtype(dtype)
    return (
        data if name == data.dtype else replace(data, problem=f"has elements of type {data.dtype} in place of {name}")
    )


def array_of(found: Instance) -> TensorRef | None:
    """Returns an array of NumPy, whose values lie in the pickle itself; None of whole numbers, as states of random are.

    Raises:
        PickleError: it is none.
    """
    try:
        _, shape, kind, _, _ = found.state
        words = kind.arguments[0]
        plain = _ARRAY_TYPE.fullmatch(words) if kind.kind == _NUMPY_DTYPE else None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise PickleError("has a damaged pickle: an array in it has no shape or no type") from error
    if plain is None:
        return None
    dtype = f"{'complex' if plain[1] == 'c' else 'float'}{8 * int(plain[2])}"
    return _without_values("is an array of NumPy within a pickle: its values are not read", dtype, shape)


def _parameter(data: Any, requires_grad: Any, *_: Any) -> TensorRef:
    if type(data) is not TensorRef:
        raise PickleError("has a damaged pickle: a parameter in it is no tensor")
    return replace(data, requires_grad=bool(requires_grad))


def _of_class(function: Any, _: Any, arguments: Any, *__: Any) -> TensorRef:
    """See ``torch._tensor._rebuild_from_type_v2``: a tensor with attributes, which do not matter here."""
    if type(function) is not Global or function.name not in _TENSORS or function.call is None:
        raise PickleError("has a damaged pickle: it makes a tensor with a function that makes none")
    found: TensorRef = function.call(*arguments)
    return found


def _dictionary(items: Any = ()) -> dict[Any, Any]:
    if items != ():
        raise PickleError("has a dictionary that is not filled key by key")
    return {}


def _counter(items: Any = None) -> dict[Any, Any]:
    if items is not None and type(items) is not dict:
        raise PickleError("has a counter in its pickle that counts nothing")
    return items or {}


def _items(values: Any = ()) -> list[Any]:
    if type(values) not in (list, tuple):
        raise PickleError("has a set in its pickle that is made of no list")
    return list(values)


def _default_dictionary(_: Any = None, items: Any = ()) -> dict[Any, Any]:
    return _dictionary(items)


def _queue(values: Any = (), _: Any = None) -> list[Any]:
    return _items(values)


def _attribute(owner: Any, name: Any) -> Global:
    """See ``getattr``: how members of enumerations and methods of classes are named."""
    if type(owner) is not Global or not owner.foreign or type(name) is not str:
        raise refuses("builtins.getattr")
    return Global(f"{owner.name}.{name}", foreign=True)


def _size(values: Any = ()) -> tuple[int, ...]:
    return _integers(values)


def _words(*words: Any) -> str:
    return ":".join(str(word) for word in words if type(word) in (str, int))


def _octets(content: Any = b"", encoding: Any = "latin1") -> bytes:
    """See ``_codecs.encode``: how pickles of protocol 2 hold bytes."""
    if type(content) is bytes:
        return content
    if type(content) is not str or encoding not in ("latin1", "latin-1"):
        raise PickleError("has bytes in its pickle that are no bytes")
    return content.encode("latin1")


_TENSORS: Final[dict[str, Callable[..., TensorRef]]] = {
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
    "collections.defaultdict": _default_dictionary,
    "collections.deque": _queue,
    "builtins.getattr": _attribute,
    "builtins.set": _items,
    "builtins.frozenset": _items,
    "builtins.bytearray": _octets,
    "builtins.complex": complex,
    "_codecs.encode": _octets,
    "torch.Size": _size,
    "torch.device": _words,
    "torch.serialization._get_layout": _words,
}
_STORAGES: Final = {
    f"{module}.{word}Storage": name for module in ("torch", "torch.cuda") for word, name in _STORED.items()
} | dict.fromkeys(
    (
        "torch.storage.UntypedStorage",
        "torch.storage._UntypedStorage",
        "torch.UntypedStorage",
        "torch.cuda.UntypedStorage",
    ),
    "",
)
"""Element types by the names of storage classes; empty: bytes."""
_CONSTANTS: Final = (
    *(f"torch.{name}" for name in (*_READ, *_NOT_READ)),
    *("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"),
    *("torch.per_tensor_affine", "torch.per_tensor_symmetric", "torch.per_channel_affine"),
    *("torch.per_channel_symmetric", "torch.per_channel_affine_float_qparams"),
    *("torch.strided", "torch.contiguous_format", "torch.preserve_format", "torch.channels_last"),
    *(f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "int", "list", "long", "object")),
    *(f"builtins.{name}" for name in ("str", "tuple", "unicode")),  # this one and long: of Python 2, and protocol 2
)
_DISTRIBUTED: Final = "torch.distributed.checkpoint."
STAND_INS: Final = (
    *(
        f"{_DISTRIBUTED}metadata.{name}"
        for name in (
            *("Metadata", "TensorStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING", "StorageMeta"),
            *("ChunkStorageMetadata", "BytesStorageMetadata", "MetadataIndex"),
        )
    ),
    *(f"{_DISTRIBUTED}filesystem.{name}" for name in ("_StorageInfo", "_StoragePrefix")),
    *(
        f"{module}.{name}"
        for module in ("pathlib", "pathlib._local")  # Python 3.13 writes the second one
        for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
    ),
    *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
    *("argparse.Namespace", "types.SimpleNamespace", "functools.partial", "uuid.UUID", "decimal.Decimal"),
    "torch_npu.npu._format.Format",
)
"""Classes whose objects are kept as what they were made of: settings, and the index of a distributed checkpoint."""
GLOBALS: Final[dict[str, Global]] = {
    **{name: Global(name, call) for name, call in _CALLS.items()},
    **{name: Global(name) for name in (*_CONSTANTS, *_STORAGES)},
    **stand_ins((*STAND_INS, _NUMPY_DTYPE)),
    **{
        f"numpy.{core}.multiarray.{name}": made
        for core in ("core", "_core")
        for name, made in (
            ("_reconstruct", stand_ins((ARRAY,))[ARRAY]),
            ("scalar", stand_ins((_NUMPY_SCALAR,))[_NUMPY_SCALAR]),
        )
    },
    ARRAY: Global(ARRAY),
}
"""The known classes and functions, by their names in a pickle."""
_OURS: Final = sys.stdlib_module_names | {"numpy", "torch", "__torch__", "__builtin__", "copy_reg", "commands"}
"""Modules of which nothing is taken that is not known."""
_OF_MODELS: Final = ("torch.nn.modules.", "torch.nn.functional.", "torch._C._nn.")
"""Classes and functions of torch that a model holds which was saved whole."""


def global_of(name: str) -> Global | None:
    """Returns the class or function that a pickle names; None where it is refused."""
    found = GLOBALS.get(name)
    if found is None and (name.partition(".")[0] not in _OURS or name.startswith(_OF_MODELS)):
        found = Global(name, foreign=True)
    return found


def storage_of(name: Any) -> StorageRef:
    """Returns the storage that a pickle names: ("storage", class, key, device, number of elements)."""
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
