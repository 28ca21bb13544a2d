"""Measures a stretch of one tensor, together with what it is compared with: piece by piece, in buffers that stay.

A tensor of many gigabytes is many such spans, which several workers can measure at once. Spans are always the same, so
that a tensor has the same statistics to the last bit whoever measures it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.comparison import Comparison
from tui_debugger.analysis.npy import Layout
from tui_debugger.analysis.record import Need
from tui_debugger.analysis.stats import Accumulator
from tui_debugger.arrays import Array
from tui_debugger.errors import UnreadableTensorError

Bytes = npt.NDArray[np.uint8]
Checkpoint = Callable[[], None]

PIECE: Final = 1 << 19
"""Bytes that are read at once, two blocks of float32: they stay in the L2 cache until they are measured."""
SPAN: Final = 1 << 24
"""Elements of a span: of float32 64 MiB, some 30 ms of work."""


class _Pieces(threading.local):
    """Read buffers of one thread, for a tensor and for what it is compared with."""

    def __init__(self) -> None:
        self.pair = (np.empty(PIECE, np.uint8), np.empty(PIECE, np.uint8))


_pieces = _Pieces()


class Values(Protocol):
    """The elements of a tensor, to be had stretch by stretch: an open file, or what is held of one."""

    @property
    def layout(self) -> Layout:
        """Element type, shape, order."""

    def read(self, start: int, count: int, buffer: Bytes | None = None) -> Array:
        """Some elements in the order of the file."""


@dataclass(frozen=True, slots=True)
class HeldValues:
    """The values of a file that was just read."""

    layout: Layout
    values: Array

    def read(self, start: int, count: int, buffer: Bytes | None = None) -> Array:  # noqa: ARG002 - as files have it
        """Some elements in the order of the file."""
        return self.values[start : start + count]


class OtherUnreadableError(Exception):
    """What a tensor is compared with cannot be read to its end."""


@dataclass(slots=True)
class Sums:
    """What a stretch of a tensor adds up to.

    Attributes:
        stats: of the elements.
        change: against the tensor that it is compared with; None without one.
    """

    stats: Accumulator
    change: Comparison | None = None

    def merge(self, other: Sums) -> None:
        """Adds the next stretch."""
        self.stats.merge(other.stats)
        if self.change is not None and other.change is not None:
            self.change.merge(other.change)


def spans(count: int) -> Iterator[tuple[int, int]]:
    """First element and end of every span of a tensor; one that is empty for a tensor without elements."""
    for start in range(0, max(count, 1), SPAN):
        yield start, min(start + SPAN, count)


def measure_span(
    file: Values,
    other: Values | None,
    need: Need,
    span: tuple[int, int],
    checkpoint: Checkpoint | None,
    *,
    room: Bytes | None = None,
) -> Sums:
    """Reads both side by side, each once.

    Args:
        file: the tensor.
        other: what it is compared with: of its shape, elements in the same order.
        need: what is asked.
        span: first element and end.
        checkpoint: called between the pieces; may raise to stop.
        room: takes the values, each at its place in the whole tensor, instead of a buffer for one piece.

    Raises:
        UnreadableTensorError: the file became shorter meanwhile, or the device fails.
        OtherUnreadableError: so it is with ``other``.
    """
    sums = Sums(Accumulator(need.ranges), Comparison(need.closeness) if other is not None else None)
    buffer, other_buffer = _pieces.pair
    first, end = span
    size = file.layout.dtype.itemsize
    step = PIECE // max(size, other.layout.dtype.itemsize if other is not None else 1)
    for start in range(first, end, step):
        if start and checkpoint is not None:
            checkpoint()
        count = min(step, end - start)
        block = file.read(start, count, buffer if room is None else room[start * size :])
        sums.stats.add(block)
        if other is not None and sums.change is not None:
            sums.change.add(block, _read_other(other, start, count, other_buffer))
    return sums


def _read_other(other: Values, start: int, count: int, buffer: Bytes) -> Array:
    try:
        return other.read(start, count, buffer)
    except UnreadableTensorError as error:
        raise OtherUnreadableError from error
