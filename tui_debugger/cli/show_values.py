"""The values of a tensor as ``tdbg show`` prints them: numpy's brackets, read no further than what is printed."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.errors import BadSliceError
from tui_debugger.session.tables import plain
from tui_debugger.stats.slicing import Slice, apply, parse_slice
from tui_debugger.text.values import Family, NumberFormat, exact_text, family, format_window

WHOLE, WHOLE_LINES = 100, 12
"""Tensors of so many elements, in so many lines, are printed whole."""
EDGES = (3, 3, 3, 2)
"""Of bigger ones, so many elements at both ends of every dimension, by number of dimensions; 1 for more of them."""
MOST = 1_000_000
"""Elements that a slice may have."""
JSON_WHOLE = 1000
"""Tensors of so many elements are in a JSON document without being asked for by a slice."""
WIDTH = 78


def cut(array: Array, text: str) -> tuple[Array, Slice]:
    """The window that a slice chooses, as a view.

    Raises:
        BadSliceError: the slice does not fit the tensor, or chooses more than anybody can read.
    """
    window = parse_slice(text, array.shape)
    size = math.prod(window.shape)
    if size > MOST:
        msg = f"{window.text} has {size:,} elements: at most {MOST:,} are printed"
        raise BadSliceError(msg, where=text, hint="choose fewer, or write the tensor to a file with `tdbg export`")
    return apply(array, window), window


def window_text(window: Array, precision: int) -> str:
    """All elements in brackets."""
    return _brackets(_texts(np.asarray(window), precision))


def excerpt_text(array: Array, precision: int) -> str:
    """All elements of a small tensor; of a bigger one those at the ends of every dimension, with dots between."""
    if array.size <= WHOLE and math.prod(array.shape[:-1]) <= WHOLE_LINES:
        return window_text(array, precision)
    edge = EDGES[array.ndim] if array.ndim < len(EDGES) else 1
    # One element more than is printed marks where numpy has to put its dots: all others are never read.
    kept = [_ends(length, edge) for length in array.shape]
    return _brackets(_texts(array[np.ix_(*kept)], precision), edge)


def nested(window: Array) -> Any:
    """Elements as nested lists, with every digit; NaN and Inf as text, complex numbers as [real, imaginary]."""
    kind = family(window.dtype)
    if kind is Family.COMPLEX:
        wide = window.astype(np.complex128)
        return _plain(np.stack([wide.real, wide.imag], axis=-1).tolist())
    if kind is Family.FLOAT:
        found = window.astype(np.float64)
        return found.tolist() if np.isfinite(found).all() else _plain(found.tolist())
    if kind is Family.INT:
        return window.astype(np.int64 if window.dtype.kind not in "iu" else window.dtype).tolist()
    if kind is Family.BOOL:
        return window.tolist()
    return _plain(np.vectorize(exact_text, otypes=[object])(window).tolist()) if window.size else window.tolist()


def _plain(values: Any) -> Any:
    return [_plain(value) for value in values] if isinstance(values, list) else plain(values)


def _ends(length: int, edge: int) -> list[int]:
    if length <= 2 * edge:
        return list(range(length))
    return [*range(edge + 1), *range(length - edge, length)]


def _texts(values: Array, precision: int) -> npt.NDArray[np.str_]:
    """The elements as text, all equally wide."""
    cells = format_window(values.reshape(1, -1), NumberFormat(precision))[0]
    width = max((len(text) for text, _ in cells), default=0)
    return np.array([text.rjust(width) for text, _ in cells], dtype=np.str_).reshape(values.shape)


def _brackets(texts: npt.NDArray[np.str_], edge: int = 0) -> str:
    """Everything, or with ``edge`` dots in every dimension that is longer than twice that."""
    return np.array2string(
        texts,
        max_line_width=WIDTH,
        separator=" ",
        formatter={"all": str},
        threshold=0 if edge else sys.maxsize,
        edgeitems=edge or 1,
    )
