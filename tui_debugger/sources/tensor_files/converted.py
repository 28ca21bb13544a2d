"""The index of a step that ``tdbg convert`` wrote: a row for each tensor, in the order in which they were made.

A row describes the tensor in the original dump: node, graph, type and category, side, slot and round, element type,
file, source line. Tensors without values, whose statistics were dumped, are rows without a file.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tui_debugger import opener
from tui_debugger.model import AtLeast, Category, Side, TensorStats
from tui_debugger.opener import read_regular
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.tensor_files.layout import CONVERTED

NAME: Final = CONVERTED
_LIMIT: Final = 1 << 30
"""Largest size of an index in bytes."""
_COUNTS: Final = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "positive")
_MOMENTS: Final = ("minimum", "maximum", "mean", "abs_mean", "variance")
_NUMBERS: Final = (*_COUNTS, *_MOMENTS, "sum_squares")
COLUMNS: Final = (
    *("file", "graph", "node", "path", "type", "category", "side", "slot", "round", "marks", "timestamp"),
    *("dtype", "shape", "original", "stack", "error"),
    *_NUMBERS,
)
"""The titles of an index; its first line."""
_MARKS: Final = (TensorFlag.CONSTANT, TensorFlag.STAT_ONLY, TensorFlag.UNCERTAIN, TensorFlag.EXACT)
"""The marks that are kept; others are about a running training, or about records that are not converted."""
_AT_LEAST: Final = "at_least_"
"""The prefix of marks of counts that are lower bounds: ``at_least_nan``."""
_MOST: Final = 2**62


@dataclass(frozen=True, slots=True)
class IndexedTensor:
    """A row of an index."""

    file: str
    """.npy file below the step; empty: there are statistics only, or ``error`` says why there is none."""
    graph: str
    node: str
    path: str
    """Display path of the node."""
    type: str
    category: Category
    side: Side
    slot: int
    round: int = 0
    marks: TensorFlag = TensorFlag.NONE
    timestamp: int = 0
    """When it was written, in microseconds since the epoch; 0: unknown."""
    dtype: str = ""
    """Original element type; bfloat16 and fp8 are written as float32."""
    shape: tuple[int, ...] | None = None
    original: str = ""
    """Its file below the original dump, and its name in the file."""
    stack: str = ""
    """Innermost source line outside of frameworks, ``train.py:31``."""
    error: str = ""
    stats: TensorStats | None = None
    """Recorded statistics of a tensor without values."""

    def cells(self) -> tuple[object, ...]:
        """The row, in the order of ``COLUMNS``."""
        shape = "" if self.shape is None else f"({'x'.join(map(str, self.shape))})"
        words = [mark.name.lower() for mark in _MARKS if mark & self.marks and mark.name]
        at_least = AtLeast.NONE if self.stats is None else self.stats.at_least
        marks = " ".join(
            [*words, *(f"{_AT_LEAST}{bit.name.lower()}" for bit in AtLeast if bit & at_least and bit.name)]
        )
        numbers = [None if self.stats is None else getattr(self.stats, name) for name in _NUMBERS]
        return (
            *(self.file, self.graph, self.node, self.path, self.type, self.category.name.lower()),
            *(self.side.name.lower(), self.slot, self.round, marks, self.timestamp),
            *(self.dtype, shape, self.original, self.stack, self.error),
            *("" if number is None else repr(number) for number in numbers),
        )


def is_index(path: str) -> bool:
    return opener.lexists(f"{path}/{NAME}")


def read_index(directory: str) -> Iterator[IndexedTensor]:
    """Yields the rows of an index.

    Raises OSError when it cannot be read, and ValueError, with the number of the line, when it makes no sense.
    """
    text = read_regular(f"{directory}/{NAME}", _LIMIT).decode("utf-8", "surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        if tuple(next(rows, ())) != COLUMNS:
            raise ValueError("not the titles of an index")
        for cells in rows:
            yield _row(cells)
    except (csv.Error, ValueError, KeyError, OverflowError) as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None


def _row(cells: list[str]) -> IndexedTensor:
    if len(cells) != len(COLUMNS):
        raise ValueError("a row of another length")
    at = dict(zip(COLUMNS, cells, strict=True))
    file = at["file"]
    if file and (os.path.isabs(file) or ".." in file.split("/") or not file.endswith(".npy") or "\0" in file):  # noqa: PTH117 - text
        raise ValueError("a file that is not below the step")
    marks = TensorFlag.NONE
    at_least = AtLeast.NONE
    for word in at["marks"].split():
        if word.startswith(_AT_LEAST):
            at_least |= AtLeast[word.removeprefix(_AT_LEAST).upper()]
        else:
            marks |= TensorFlag[word.upper()]
    found = IndexedTensor(
        file,
        at["graph"],
        at["node"],
        at["path"],
        at["type"],
        Category[at["category"].upper()],
        Side[at["side"].upper()],
        _whole(at["slot"], 1 << 15),
        _whole(at["round"], 1 << 16),
        marks & ~TensorFlag.STAT_ONLY if file else marks,
        _whole(at["timestamp"], _MOST),
        at["dtype"],
        _shape(at["shape"]),
        at["original"],
        at["stack"],
        at["error"],
    )
    if not found.node:
        raise ValueError("a row without a node")
    if file or found.error:
        return found
    return replace(found, marks=marks | TensorFlag.STAT_ONLY, stats=_stats(at, at_least) if at["count"] else None)


def _stats(at: dict[str, str], at_least: AtLeast) -> TensorStats:
    def number(name: str) -> float | None:
        return float(at[name]) if at[name] else None

    numbers: dict[str, Any] = {name: _whole(at[name], _MOST) for name in _COUNTS}
    numbers |= {name: number(name) for name in _MOMENTS}
    total = number("sum_squares")
    return TensorStats(**numbers, sum_squares=math.nan if total is None else total, at_least=at_least)


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < most):
        raise ValueError(f"{text[:20]!r} is no number")
    return int(text)


def _shape(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    inner = text.removeprefix("(").removesuffix(")")
    return tuple(_whole(size, _MOST) for size in inner.split("x")) if inner else ()
