"""Arrays and numbers of NumPy whose values lie in the pickle itself.

A pickled array is a call that makes an empty array, and a state: shape, element type, order, bytes. Structured arrays
become dictionaries of fields, object arrays lists, dates and durations numbers, and NaT becomes NaN.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.stats.dtypes import DType, dtype_of
from tui_debugger.stats.restricted_pickle import Global, Instance, PickleError, shown_name

ARRAY: Final = "numpy.ndarray"
"""The kind of the stand-in for an array; ``_BUFFER`` is the same in protocol 5, ``SCALAR`` a single number."""
_BUFFER: Final = "numpy.frombuffer"
SCALAR: Final = "numpy.generic"
ELEMENT_TYPE: Final = "numpy.dtype"
KINDS: Final = frozenset({ARRAY, _BUFFER, SCALAR})
FUNCTIONS: Final = {
    f"numpy.{core}.{name}": kind
    for core in ("core", "_core")
    for name, kind in (
        ("multiarray._reconstruct", ARRAY),
        ("multiarray.scalar", SCALAR),
        ("numeric._frombuffer", _BUFFER),
    )
}
"""The kind of a function's result, by the function's name."""
_WORDS: Final = re.compile(r"([fiubcmMSUVO])(\d{1,9})")
_NUMBERS: Final = frozenset("fiubc")
_LONG_FLOATS: Final = {"f": 8, "c": 16}
"""Bytes of the longest element of a kind that is read."""
_DEPTH: Final = 8
_NOT_A_TIME: Final = np.iinfo(np.int64).min


def array_in(found: Instance) -> Any:
    """Returns the content of a NumPy array or number: array, dictionary of fields, list, object; None for text."""
    try:
        shape, kind, fortran, content = _stated(found)
        if type(content) in (list, tuple) or (found.kind == SCALAR and type(content) is not bytes):
            return content  # an array of objects
        dtype = _dtype_in(kind, _DEPTH)
        if type(content) is str:
            content = content.encode("latin1")  # as Python 2 wrote it
        if not dtype.itemsize or dtype.kind in "SU":
            return None
        if type(content) is not bytes or len(content) != math.prod(shape) * dtype.itemsize:
            raise PickleError("is an array of NumPy whose bytes do not fit its shape: it is damaged")
        whole = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
        return _in_fields(whole)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError, UnicodeError) as error:
        if isinstance(error, PickleError):
            raise
        raise PickleError("is an array of NumPy without a shape or an element type: it is damaged") from error


def _stated(found: Instance) -> tuple[tuple[int, ...], Any, bool, Any]:
    """Returns shape, element type, whether the first index is the fastest, and values."""
    if found.kind == SCALAR:
        kind, content = (*found.arguments, b"")[:2]
        return (), kind, False, content
    if found.kind == _BUFFER:
        content, kind, shape, order = found.arguments
        return _sizes(shape), kind, order == "F", content
    if found.state is None:
        return (0,), None, False, []
    shape, kind, fortran, content = found.state[-4:]
    return _sizes(shape), kind, bool(fortran), content


def _sizes(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or not all(type(size) is int and size >= 0 for size in shape):
        raise PickleError("is an array of NumPy with an impossible shape: it is damaged")
    return shape


def _dtype_in(found: Any, depth: int) -> DType:
    if type(found) is not Instance or found.kind != ELEMENT_TYPE or not depth:
        raise PickleError("is an array of NumPy without an element type: it is damaged")
    words: Any = found.arguments[0]
    state: Any = found.state or (3, "=", None, None, None)
    if type(words) is Global:  # a type that a library adds to those of NumPy
        added = dtype_of(words.name.removeprefix("ml_dtypes.")) if words.name.startswith("ml_dtypes.") else None
        if added is None:
            raise PickleError(f"is an array of elements of type {shown_name(words.name)}, which are not read")
        return added
    _, order, part, names, fields = state[:5]
    if names:
        types = [_dtype_in(fields[name][0], depth - 1) for name in names]
        offsets = [fields[name][1] for name in names]
        fields_of: Any = {"names": list(names), "formats": types, "offsets": offsets, "itemsize": state[5]}
        structured: DType = np.dtype(fields_of)
        return structured
    if part:
        return np.dtype((_dtype_in(part[0], depth - 1), _sizes(part[1] if type(part[1]) is tuple else (part[1],))))
    match = _WORDS.fullmatch(words)
    if match is None or int(match[2]) > _LONG_FLOATS.get(match[1], 1 << 30):
        raise PickleError(f"is an array of elements of type {shown_name(str(words))}, which are not read")
    return np.dtype(f"{'<' if order == '<' else '>' if order == '>' else '='}{words}")


def _in_fields(whole: Array) -> Any:
    dtype = whole.dtype
    if dtype.names:
        return {name: _in_fields(whole[name]) for name in dtype.names}
    if dtype.kind in "mM":
        ticks = whole.view(dtype.str[0] + "i8")
        return np.where(ticks == _NOT_A_TIME, np.nan, ticks.astype(np.float64))
    if dtype.kind in "SU":
        return None
    if dtype.kind not in _NUMBERS and dtype_of(dtype.name) is None:
        raise PickleError(f"is an array of elements of {dtype.itemsize:,} bytes that nothing declares")
    return whole
