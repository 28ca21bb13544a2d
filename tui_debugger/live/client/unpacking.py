"""Finds the arrays of numbers in any value that a program hands to ``Recorder.record``.

Structured arrays are searched by field, arrays of objects, lists and sets by element, mappings and dataclasses by
value. The path of each array is below the recorded name: ``batch/image``, ``hidden/0``. Plain numbers of one list are
one array, under the name of the list. Dates and time spans become numbers, and NaT becomes NaN, as in dumps. Masked
elements are left out. Text, None and types hold no numbers. All other values without a readable array are listed as
unread, with the reason. Generators and other iterators are not consumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import math
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.live.client.agent import of_the_training
from tui_debugger.stats.dtypes import is_numeric

MOST: Final = 10_000
"""Values inside one recorded value that are looked at; a list of numbers counts as one."""
_MOST_NUMBERS: Final = 1 << 28
"""Numbers in nested lists that become an array: the same list may stand in many places."""
DEPTH: Final = 50
"""Levels of a nested value that are looked at."""
LONGEST_NAME: Final = 500
UNNAMED: Final = "unnamed"
_TIMES: Final = (dt.date, dt.time, dt.timedelta)
_NO_NUMBERS: Final = (type(None), str, bytes, bytearray, type, np.dtype, PurePath, dt.tzinfo, *_TIMES)
_CONTAINERS: Final = (Sequence, AbstractSet, MappingView, deque)
_PROTOCOLS: Final = ("__array__", "__array_interface__", "__array_struct__", "__dlpack__", "tocoo")
"""A class that converts to an array has one of these; sparse matrices have ``tocoo``."""
_CONVERSIONS: Final = ("__float__", "__complex__", "__index__")
_NOT_A_TIME: Final = np.iinfo(np.int64).min


@dataclasses.dataclass(slots=True)
class UnpackedValue:
    """The content of one recorded value."""

    arrays: list[tuple[str, Array]] = dataclasses.field(default_factory=list)  # by path below the recorded name
    unread: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # (path, reason)
    beyond: int = 0  # values that were skipped, as too many or too deep


def unpack(value: Any) -> UnpackedValue:
    """Returns the arrays in a value; raises only exceptions of the program's own signal handlers."""
    walk = _ValueWalk()
    walk.visit("", value)
    return walk.found


def to_numpy(value: Any) -> Array:
    """A NumPy array of the same values, without a copy where possible; for sparse matrices the stored elements.

    Takes NumPy arrays, objects with ``__array__`` (JAX, TensorFlow, CPU tensors of PyTorch, MindSpore ...) or
    ``__dlpack__``, numbers, and nested lists of numbers. The library's exceptions pass on, for example for an array on
    a device.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(type(value), "tocoo"):
        return np.asarray(value.tocoo().data)
    if hasattr(value, "detach"):  # a tensor of PyTorch that requires a gradient refuses to convert
        value = value.detach()
    layout = str(getattr(value, "layout", ""))
    if layout.startswith("torch.sparse"):
        value = (value.coalesce() if layout == "torch.sparse_coo" else value).values()
    if hasattr(value, "resolve_conj") and hasattr(value, "resolve_neg"):
        value = value.resolve_conj().resolve_neg()
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(value)
    except TypeError:
        if not hasattr(value, "detach") or not hasattr(value, "float") or value.is_complex():
            raise
        return np.asarray(value.float())  # bfloat16 and fp8 of PyTorch, of which NumPy knows nothing


def name_text(name: Any) -> str:
    """A name as text that every file and message can hold, the same for the same name.

    Control characters and halves of surrogate pairs are escaped, spaces around a scope are removed, and a very long
    name is cut and gets a checksum.
    """
    text = str.__str__(name) if isinstance(name, str) else str(name)
    if not text.isprintable():
        text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    text = "/".join(filter(None, (each.strip() for each in text.split("/")))) or UNNAMED
    if text == "*":  # stands for all nodes in MindSpore's protocol
        return "\\*"
    if len(text) > LONGEST_NAME:
        text = f"{text[: LONGEST_NAME - 9].rstrip('/ ')}~{zlib.crc32(text.encode()):08x}"
    return text


def in_words(error: BaseException) -> str:
    text = ""
    with contextlib.suppress(Exception):
        text = str(error).strip().partition("\n")[0][:LONGEST_NAME]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _ValueWalk:
    def __init__(self) -> None:
        self.found = UnpackedValue()
        self._visits = 0
        self._within: list[int] = []
        """The ids of the enclosing values: a cycle leads back to one of them."""

    def visit(self, path: str, value: Any) -> None:
        if self._visits >= MOST or len(self._within) >= DEPTH:
            self.found.beyond += 1
            return
        if id(value) in self._within:
            return
        self._visits += 1
        self._within.append(id(value))
        try:
            self._visit(path, value)
        except Exception as error:  # classes of the program may do anything
            if of_the_training(error):
                raise
            self.found.unread.append((path, in_words(error)))
        finally:
            self._within.pop()

    def _visit(self, path: str, value: Any) -> None:
        if isinstance(value, np.ndarray | np.generic):
            self._array(path, value)
        elif _is_number(value):
            self._numbers(path, [value], ())
        elif isinstance(value, _TIMES) and value != value:  # noqa: PLR0124 - NaT of pandas is not equal to itself
            self._take(path, np.array(math.nan))
        elif isinstance(value, _NO_NUMBERS):
            return
        elif (named := _named_values(value)) is not None:
            for name, each in named:
                self.visit(f"{path}/{name_text(name)}", each)
        elif any(hasattr(type(value), each) for each in _PROTOCOLS) or _is_buffer(value):
            self._array(path, to_numpy(value))
        elif isinstance(value, _CONTAINERS):
            self._list(path, value)
        elif any(hasattr(type(value), each) for each in _CONVERSIONS):
            self._numbers(path, [value], ())
        else:
            kind = "an iterator, which is left alone" if isinstance(value, Iterator) else "no array, number or list"
            self.found.unread.append((path, f"{type(value).__name__} is {kind}"))

    def _take(self, path: str, array: Array) -> None:
        self.found.arrays.append((path, array))

    def _array(self, path: str, value: Any) -> None:
        """Takes an array of any element type; an array of a subclass as it is in memory."""
        dtype = value.dtype
        if dtype.names is not None:
            for name in dtype.names:
                self.visit(f"{path}/{name_text(name)}", value[name])
            return
        if isinstance(value, np.ma.MaskedArray):
            value = value.compressed() if np.ma.is_masked(value) else value.data
        array = np.asarray(value)
        if dtype.kind in "mM":
            ticks = array.astype(dtype.newbyteorder("=")).view("i8")
            self._take(path, np.where(ticks == _NOT_A_TIME, np.nan, ticks.astype(np.float64)))
        elif is_numeric(dtype):
            self._take(path, self._within_float64(path, array) if dtype.kind in "fc" else array)
        elif dtype.kind in "OT":
            self._elements(path, array.astype(object).reshape(-1).tolist(), array.shape)
        elif dtype.kind not in "SU":
            self._take(path, array.astype(np.float64))  # types that a library adds to NumPy

    def _within_float64(self, path: str, array: Array) -> Array:
        """Removes finite elements beyond the range of float64, in which everything is measured."""
        plain = np.dtype(np.complex128 if array.dtype.kind == "c" else np.float64)
        if array.dtype.itemsize <= plain.itemsize:
            return array
        with np.errstate(all="ignore"):
            fits = np.isfinite(array.astype(plain)) | ~np.isfinite(array)
        if fits.all():
            return array
        self.found.unread.append((path, f"it has numbers of type {array.dtype} that float64 cannot hold"))
        return array[fits]

    def _list(self, path: str, value: Any) -> None:
        array = _nested_numbers(value)
        if array is not None:
            self._take(path, array)
        else:
            self._elements(path, list(value))

    def _elements(self, path: str, elements: Sequence[Any], shape: tuple[int, ...] | None = None) -> None:
        """Takes the numbers among elements as one array (of ``shape``, if all are numbers), and visits the others."""
        numbers = [each for each in elements if _is_number(each)]
        if numbers:
            self._numbers(
                path, numbers, shape if shape is not None and len(numbers) == len(elements) else (len(numbers),)
            )
        if len(numbers) < len(elements):
            for index, each in enumerate(elements):
                if not _is_number(each):
                    self.visit(f"{path}/{index}", each)

    def _numbers(self, path: str, numbers: Sequence[Any], shape: tuple[int, ...]) -> None:
        array = np.asarray(numbers)
        if not is_numeric(array.dtype):
            array = np.array([_converted(each) for each in numbers])
        self._array(path, array.reshape(shape))


def _named_values(value: Any) -> Sequence[tuple[Any, Any]] | None:
    """The (name, value) pairs of a mapping, dataclass or named tuple; None for other values."""
    if isinstance(value, Mapping) and not hasattr(type(value), "tocoo"):
        return list(value.items())
    if isinstance(value, tuple) and (names := getattr(type(value), "_fields", None)) is not None:
        return list(zip(names, value, strict=False))
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    if dataclasses.is_dataclass(value):
        return [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) or (isinstance(value, np.generic) and is_numeric(value.dtype))


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def _nested_numbers(values: Any) -> Array | None:
    """The array of nested lists of numbers; None for other values, or lists of different lengths."""
    counts: dict[int, int] = {}

    def count(value: Any) -> int:
        """Counts numbers; -1 for anything else, or a list inside itself."""
        if type(value) not in (list, tuple, range):
            return -1
        if id(value) not in counts:
            counts[id(value)] = -1
            found = [1 if _is_number(each) else count(each) for each in value]
            counts[id(value)] = -1 if -1 in found else sum(found)
        return counts[id(value)]

    if not 0 <= count(values) <= _MOST_NUMBERS:
        return None
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    return array if is_numeric(array.dtype) else None


def _converted(value: Any) -> float | complex:
    """A number of any class as float or complex; OverflowError if it is finite and float64 cannot hold it."""
    if not hasattr(type(value), "__float__") and hasattr(type(value), "__complex__"):
        return complex(value)
    if isinstance(value, complex):
        return value
    number = float(value)
    if math.isinf(number) and value != number:
        msg = "float64 cannot hold it"
        raise OverflowError(msg)
    return number
