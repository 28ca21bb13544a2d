"""Values as programs hand them to a recorder: healthy ones, and the same with one NaN somewhere inside.

A leaf is a pair of twins, a layer is a container that holds a value among healthy others.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

NAN: Final = float("nan")


class Holder:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._array


class Exchanged:
    """An array of a library that speaks DLPack only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Sparse:
    """A sparse matrix as SciPy has them."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def tocoo(self) -> Sparse:
        return self


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


class OnDevice:
    """An array that does not convert."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        msg = "it is on a device\nand stays there"
        raise TypeError(msg)


class Silent(Exception):  # noqa: N818 - an error whose text cannot be had
    def __str__(self) -> str:
        raise RuntimeError


class Nameless:
    """Neither an array nor anything that can be written as text."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Silent

    def __repr__(self) -> str:
        raise Silent

    __hash__ = object.__hash__


def _three(last: float, kind: Any = np.float64) -> Any:
    return np.array([1.0, 2.0, last], kind)


def _cycle() -> Any:
    around: dict[str, Any] = {"x": np.ones(2)}
    around["list"] = [around]
    return around


def _objects(*elements: Any) -> Any:
    found = np.empty(len(elements), object)
    for index, each in enumerate(elements):
        found[index] = each
    return found


def _read_only(last: float) -> Any:
    found = _three(last)
    found.flags.writeable = False
    return found


def _struct(last: float) -> Any:
    kind = [("id", "i4"), ("text", "U3"), ("inner", [("x", "f4", (2,)), ("y", "f8")])]
    return np.array([(1, "a", ((0, 1), 2.0)), (2, "b", ((0, last), 2.0))], kind)


LEAVES: Final[dict[str, Callable[[float], Any]]] = {
    "float": lambda last: last,
    "complex": lambda last: complex(1.0, last),
    "decimal": lambda last: decimal.Decimal(str(last)),
    "numpy scalar": np.float32,
    "0-d": np.array,
    "float16": lambda last: _three(last, np.float16),
    "bfloat16": lambda last: _three(last, ml_dtypes.bfloat16),
    "fp8": lambda last: _three(last, ml_dtypes.float8_e4m3fn),
    "long double": lambda last: _three(last, np.longdouble),
    "complex64": lambda last: _three(last, np.complex64),
    "big-endian": lambda last: _three(last, ">f4"),
    "strided": lambda last: np.array([[0.0, 1.0, 2.0], [0.0, 1.0, last]])[:, ::2],
    "read-only": _read_only,
    "in Fortran order": lambda last: np.asfortranarray([[1.0, 2.0], [3.0, last]]),
    "broadcast": lambda last: np.broadcast_to(np.array([last]), (4, 3)),
    "masked": lambda last: np.ma.array([NAN, 1.0, last], mask=[True, False, False]),
    "masked struct": lambda last: np.ma.array([(NAN, last)], [("a", "f8"), ("b", "f8")], mask=[(True, False)]),
    "structured": _struct,
    "structured scalar": lambda last: _struct(last)[1],
    "record array": lambda last: _struct(last).view(np.recarray),
    "objects": lambda last: _objects(1, 2.5, last),
    "objects and text": lambda last: _objects("a", None, last, b"b"),
    "objects without axes": lambda last: np.array(last, object),
    "arrays in objects": lambda last: _objects(_three(1.0), np.float16(last), "a"),
    "date": lambda last: np.array([1, 2 if last == last else "NaT"], "M8[s]"),  # noqa: PLR0124 - NaN
    "big-endian date": lambda last: np.array([1, 2 if last == last else "NaT"], ">M8[s]"),  # noqa: PLR0124 - NaN
    "span of time": lambda last: np.timedelta64(2 if last == last else "NaT", "D"),  # noqa: PLR0124 - NaN
    "nested lists": lambda last: [[1, 2.5], [True, last]],
    "one list twice": lambda last: [[1.0, last]] * 2,
    "ragged lists": lambda last: [[1], [2, last], []],
    "buffer": lambda last: array.array("d", [1.0, last]),
    "memory": lambda last: memoryview(array.array("f", [1.0, last])),
    "sparse": lambda last: Sparse(_three(last)),
    "library": lambda last: Holder(_three(last)),
    "library of objects": lambda last: Holder(_objects("a", 1, last)),
    "DLPack": lambda last: Exchanged(_three(last)),
}
"""By name what makes a value of a number."""

LAYERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "list": lambda value, other: [other, value],
    "tuple": lambda value, other: (value, other),
    "named tuple": lambda value, other: Pair(other, value),
    "dictionary": lambda value, other: {"other": other, "value": value},
    "numbered": lambda value, other: {0: value, ("a", 1): other, None: 3},
    "ordered": lambda value, other: collections.OrderedDict(a=value, b=other),
    "read-only mapping": lambda value, _: types.MappingProxyType({"a": value}),
    "view of a mapping": lambda value, other: {"a": value, "b": other}.values(),
    "queue": lambda value, other: collections.deque([value, other]),
    "user list": lambda value, other: collections.UserList([other, value]),
    "dataclass": Sample,
    "namespace": lambda value, other: types.SimpleNamespace(a=value, b=other),
    "objects": lambda value, other: _objects(other, value),
    "objects in a field": lambda value, _: np.array([(1, value)], [("a", "i4"), ("b", object)]),
}
"""By name what holds a value, and a healthy other one."""

OTHERS: Final[dict[str, Callable[[], Any]]] = {
    "text": lambda: "nan",
    "bytes": lambda: b"nan",
    "None": lambda: None,
    "numbers": lambda: [1, 2.5, True, 3 + 4j],
    "words": lambda: np.array(["nan", "inf"]),
    "large": lambda: [2**63, 2**64, -(2**100)],
    "fraction": lambda: fractions.Fraction(1, 3),
    "date": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    "path": lambda: Path("nan"),
    "type": lambda: np.float32,
    "empty": dict,
    "nothing": lambda: np.zeros((0, 3), np.float16),
    "masked": lambda: np.ma.masked_invalid([1.0, NAN]),
    "masked number": lambda: np.ma.masked,
    "set": lambda: {1.0, 2.0},
    "cycle": _cycle,
}
"""By name what is healthy, and holds no number that could be bad."""


def _numbers() -> Iterator[float]:
    yield 1.0


UNREADABLE: Final[dict[str, Callable[[], Any]]] = {
    "on a device": OnDevice,
    "silent": Nameless,
    "generator": _numbers,
    "map": lambda: map(float, "12"),
    "object": object,
    "raw bytes": lambda: np.zeros(2, "V8"),
    "beyond float64": lambda: 10**400,
    "decimal beyond float64": lambda: decimal.Decimal("1e400"),
    "signalling": lambda: decimal.Decimal("sNaN"),
}
"""By name what nobody can look into."""
