"""Slice text such as ``[0, :, 3:9, -1]``: which 2-D window of an N-D tensor to show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tui_debugger.errors import BadSliceError

MAX_FREE = 2
"""A screen has rows and columns."""
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class Slice:
    """A checked slice of a tensor of known shape.

    Attributes:
        entries: one per dimension: an index (never negative) or a range of indices, possibly running backwards.
        text: canonical text, parses to an equal slice.
    """

    entries: tuple[int | range, ...]
    text: str

    @property
    def free(self) -> tuple[int, ...]:
        """The dimensions that stay: the last one runs along the columns, the one before along the rows."""
        return tuple(i for i, entry in enumerate(self.entries) if isinstance(entry, range))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the window: as many numbers as there are free dimensions."""
        return tuple(len(entry) for entry in self.entries if isinstance(entry, range))

    def index(self, *cell: int) -> tuple[int, ...]:
        """Returns the tensor's own index of a cell of the window (one number per free dimension)."""
        position = iter(cell)
        return tuple(entry[next(position)] if isinstance(entry, range) else entry for entry in self.entries)


def default_slice(shape: Sequence[int]) -> str:
    """Returns the first plane: the last two dimensions free, index 0 in the others.

    A dimension without elements cannot be indexed, so it is free in place of another one. With more than two
    such dimensions no slice is possible; ``parse_slice`` then says that the tensor is empty.
    """
    order = sorted(range(len(shape)), key=lambda i: (shape[i] != 0, -i))
    free = set(order[:MAX_FREE])
    return "[" + ", ".join(":" if i in free else "0" for i in range(len(shape))) + "]"


def parse_slice(text: str, shape: Sequence[int]) -> Slice:
    """Reads slice text for a tensor of this shape.

    Entries are separated by commas: an index, or ``:``, ``a:b``, ``a:b:k`` by Python's rules (open ends, negative
    numbers), or once ``...`` for all dimensions not written. The brackets may be left out.

    Raises:
        BadSliceError: not a slice, too many or too few entries, more than two free dimensions, out of bounds.
    """
    words = _words(text)
    words = _expand(words, len(shape), text)
    entries = tuple(_entry(word, size, i, text) for i, (word, size) in enumerate(zip(words, shape, strict=True)))
    free = sum(isinstance(entry, range) for entry in entries)
    if free > MAX_FREE:
        msg = f"at most two dimensions can stay free, here {free}"
        raise BadSliceError(msg, where=text, hint=f"give an index in the others, for example {default_slice(shape)}")
    return Slice(entries, "[" + ", ".join(_canonical(e, n) for e, n in zip(entries, shape, strict=True)) + "]")


def apply(array: npt.NDArray[Any], window: Slice) -> npt.NDArray[Any]:
    """Returns the window as a view (no copy, at most two dimensions) of an array of the slice's shape."""
    cut = (_python_slice(entry) if isinstance(entry, range) else entry for entry in window.entries)
    index = (*cut, Ellipsis)
    return array[index]


def range_text(entry: range) -> str:
    """Returns a range of indices as an entry of a slice."""
    if not entry:
        return "0:0"
    stop = "" if entry.stop < 0 else str(entry.stop)
    step = "" if entry.step == 1 else f":{entry.step}"
    return f"{entry.start}:{stop}{step}"


def _words(text: str) -> list[str]:
    body = text.strip()
    if body.startswith("[") != body.endswith("]"):
        msg = "the brackets do not match"
        raise BadSliceError(msg, where=text, hint="write it like [0, :, 3:9, :]")
    if body.startswith("["):
        body = body[1:-1].strip()
    return [word.strip() for word in body.split(",")] if body else []


def _expand(words: list[str], rank: int, text: str) -> list[str]:
    dots = words.count("...")
    if dots > 1:
        msg = "'...' can stand only once"
        raise BadSliceError(msg, where=text)
    if dots and len(words) - 1 <= rank:
        at = words.index("...")
        return [*words[:at], *[":"] * (rank - len(words) + 1), *words[at + 1 :]]
    if len(words) != rank:
        msg = f"the tensor has {rank} dimensions, the slice {len(words) - dots} entries"
        raise BadSliceError(msg, where=text, hint="one entry per dimension, or '...' for the rest")
    return words


def _entry(word: str, size: int, dimension: int, text: str) -> int | range:
    if ":" in word:
        parts = [_number(part, text) if part.strip() else None for part in word.split(":")]
        if len(parts) > 3:
            msg = f"{word!r} has too many colons"
            raise BadSliceError(msg, where=text, hint="start:stop or start:stop:step")
        if len(parts) == 3 and parts[2] == 0:
            msg = "a step of 0 goes nowhere"
            raise BadSliceError(msg, where=text)
        return range(size)[slice(*parts)]
    index = _number(word, text)
    if not -size <= index < size:
        what = f"index {index} is outside dimension {dimension}, which has {size} elements"
        raise BadSliceError(what if size else "the tensor is empty", where=text)
    return index % size


def _number(word: str, text: str) -> int:
    if not _INTEGER.fullmatch(word.strip()):
        msg = f"{word!r} is not a whole number"
        raise BadSliceError(msg, where=text, hint="write it like [0, :, 3:9, :]")
    return int(word)


def _python_slice(entry: range) -> slice:
    if not entry:
        return slice(0, 0)
    # A backward range that reaches index 0 has stop -1, which slice() would read as "the last".
    return slice(entry.start, entry.stop if entry.stop >= 0 else None, entry.step)


def _canonical(entry: int | range, size: int) -> str:
    if isinstance(entry, int):
        return str(entry)
    if entry == range(size):
        return ":"
    return range_text(entry)
