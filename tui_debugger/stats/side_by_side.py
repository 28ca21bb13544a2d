"""Measures a tensor, and its change against another tensor, span by span: each is read once, in float64.

A tensor of many gigabytes has many spans, which several workers can measure at once. The bounds of spans are fixed, so
a tensor has the same statistics to the last bit with any number of workers. Within a span both tensors are read piece
by piece into reused buffers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Mask
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats.blocks import BLOCK, Accumulator, pieces
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.fields import OTHERS, STORED_NAMES
from tui_debugger.stats.kernel import available, is_known, kind_of
from tui_debugger.stats.kernel.files import Stored, StoredSums
from tui_debugger.stats.kernel.pairs import change
from tui_debugger.stats.npy import TensorFile, ValueLayout, open_array
from tui_debugger.stats.records import (
    CHANGE_ASKED,
    CHANGE_KNOWN,
    NOT_KNOWN,
    Before,
    Closeness,
    Records,
    RecordState,
    RequiredStats,
    StepChange,
)


class BlockComparison:
    """|cur − prev| of all pairs of blocks added so far, and ``closenesses``: tests that all elements must pass."""

    __slots__ = ("_close", "_count", "_difference", "_previous")

    def __init__(self, closenesses: Iterable[Closeness] = ()) -> None:
        self._count = 0
        self._difference = self._previous = 0.0
        self._close: dict[Closeness, bool] = dict.fromkeys(closenesses, True)

    def add(self, current: Array, previous: Array) -> None:
        """Adds two 1-D arrays of equal length, elements in the same order."""
        if not is_known(current.dtype, previous.dtype):
            with np.errstate(all="ignore"):
                for start in range(0, len(current), BLOCK):
                    self._add_block(current[start : start + BLOCK], previous[start : start + BLOCK])
            return
        asked = [closeness for closeness, so_far in self._close.items() if so_far]
        self.add_change(len(current), *change(current, previous, asked), asked)

    def add_change(
        self, count: int, difference: float, previous: float, close: Iterable[bool], asked: Iterable[Closeness]
    ) -> None:
        """Adds the sums of more elements, and whether they pass the ``asked`` tests."""
        self._count += count
        self._difference += difference
        self._previous += previous
        for closeness, passed in zip(asked, close, strict=True):
            self._close[closeness] &= passed

    def merge(self, other: BlockComparison) -> None:
        self._count += other._count
        self._difference += other._difference
        self._previous += other._previous
        for closeness, close in other._close.items():
            self._close[closeness] = self._close.get(closeness, True) and close

    def result(self) -> tuple[StepChange, dict[Closeness, bool]]:
        """Returns the means, and for each closeness whether all elements are close. Empty tensors are never close."""
        if not self._count:
            return StepChange(math.nan, math.nan), dict.fromkeys(self._close, False)
        return StepChange(self._difference / self._count, self._previous / self._count), dict(self._close)

    def _add_block(self, current: Array, previous: Array) -> None:
        now, before = (
            each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (current, previous)
        )
        difference, magnitude = np.abs(now - before), np.abs(before)
        self._count += len(now)
        self._difference += float(difference.sum())
        self._previous += float(magnitude.sum())
        finite = np.isfinite(before)  # an infinite tolerance must not make an infinite value close
        same = now == before
        for (rtol, atol, equal_nan), so_far in self._close.items():
            if so_far:
                close = (difference <= magnitude * rtol + atol) & finite | same
                if equal_nan:
                    close |= np.isnan(now) & np.isnan(before)
                self._close[rtol, atol, equal_nan] = bool(close.all())


def compare(
    current: Array, previous: Array, closenesses: Iterable[Closeness] = ()
) -> tuple[StepChange, dict[Closeness, bool]]:
    """Compares two numeric arrays of the same shape (else ValueError), cast to float64 or complex128 first.

    Close means |cur − prev| ≤ atol + rtol·|prev|, or equal; with equal_nan also NaN on both sides. Unlike in
    MindInsight, an Inf that became finite is not close, although Inf ≤ Inf.
    """
    if current.shape != previous.shape:
        msg = f"shapes differ: {current.shape} and {previous.shape}"
        raise ValueError(msg)
    comparison = BlockComparison(closenesses)
    for piece, other in pieces(current, previous):
        comparison.add(piece, other)
    return comparison.result()


Bytes = npt.NDArray[np.uint8]
Checkpoint = Callable[[], None]

PIECE: Final = 1 << 19
"""Bytes that are read at once, two blocks of float32: they stay in the L2 cache until they are measured."""
STRETCH: Final = 16
"""Pieces that the kernel reads in one call, some milliseconds of work."""
SPAN: Final = 1 << 24
"""Elements of a span: 64 MiB of float32, some 30 ms of work."""


class _Pieces(threading.local):
    """Read buffers of one thread, for a tensor and for the tensor that it is compared with."""

    def __init__(self) -> None:
        self.pair = (np.empty(PIECE, np.uint8), np.empty(PIECE, np.uint8))


_pieces = _Pieces()


class ValueStretches(Protocol):
    """The elements of a tensor, read stretch by stretch: an open file, or values in memory."""

    @property
    def layout(self) -> ValueLayout:
        """The layout of the values."""

    def read(self, start: int, count: int, buffer: Bytes | None = None) -> Array:
        """Returns ``count`` elements from ``start`` on, in the order of the file."""


@dataclass(frozen=True, slots=True)
class HeldValues:
    """The values of a file that was just read."""

    layout: ValueLayout
    values: Array

    def read(self, start: int, count: int, buffer: Bytes | None = None) -> Array:  # noqa: ARG002 - as files have it
        return self.values[start : start + count]


class OtherUnreadableError(Exception):
    """The tensor to compare with cannot be read to its end."""


@dataclass(slots=True)
class PartialResult:
    """The sums of a stretch of a tensor; ``change`` is None without a tensor to compare with."""

    stats: Accumulator
    change: BlockComparison | None = None

    def merge(self, other: PartialResult) -> None:
        """Adds the next stretch."""
        self.stats.merge(other.stats)
        if self.change is not None and other.change is not None:
            self.change.merge(other.change)


def spans(count: int) -> Iterator[tuple[int, int]]:
    """Yields the first element and the end of every span; one empty span for a tensor without elements."""
    for start in range(0, max(count, 1), SPAN):
        yield start, min(start + SPAN, count)


def measure_span(
    file: ValueStretches,
    other: ValueStretches | None,
    need: RequiredStats,
    span: tuple[int, int],
    checkpoint: Checkpoint | None,
    *,
    into: Bytes | None = None,
) -> PartialResult:
    """Reads a span of both tensors, each once; ``other`` has the same shape and element order.

    ``checkpoint`` is called between the pieces and may raise to stop. ``into`` keeps the values, each at its place in
    the whole tensor. Raises UnreadableTensorError, or OtherUnreadableError for ``other``.
    """
    sums = PartialResult(Accumulator(need.ranges), BlockComparison(need.closeness) if other is not None else None)
    buffer, other_buffer = _pieces.pair
    first, end = span
    size = file.layout.dtype.itemsize
    step = PIECE // max(size, other.layout.dtype.itemsize if other is not None else 1)
    if (
        not OTHERS
        and available()
        and _add_by_kernel(sums, (file, other, into), need, span, step, checkpoint=checkpoint)
    ):
        return sums
    for start in range(first, end, step):
        if start and checkpoint is not None:
            checkpoint()
        count = min(step, end - start)
        block = file.read(start, count, buffer if into is None else into[start * size :])
        sums.stats.add(block)
        if other is not None and sums.change is not None:
            sums.change.add(block, _read_other(other, start, count, other_buffer))
    return sums


def _add_by_kernel(
    to: PartialResult,
    read: tuple[ValueStretches, ValueStretches | None, Bytes | None],
    need: RequiredStats,
    span: tuple[int, int],
    step: int,
    *,
    checkpoint: Checkpoint | None,
) -> bool:
    """Does the work of ``measure_span``, equal to the last bit; False, with nothing added, where the kernel cannot."""
    file, other, into = read
    sums = StoredSums(tuple(need.ranges), tuple(need.closeness))
    (first, end), (buffer, other_buffer) = span, _pieces.pair
    for start in range(first, end, STRETCH * step):
        if start and checkpoint is not None:
            checkpoint()
        now = _stored(file, start, buffer, into)
        before = _stored(other, start, other_buffer) if other is not None else None
        if now is None or (before is None) != (other is None):
            return False
        if not sums.add(now, before, min(STRETCH * step, end - start), step):
            return False
    to.stats.add_moments(*sums.moments())
    if to.change is not None:
        to.change.add_change(end - first, *sums.change(), need.closeness)
    return True


def _stored(values: ValueStretches, start: int, buffer: Bytes, into: Bytes | None = None) -> Stored | None:
    """Returns elements from ``start`` on in the form that the kernel reads; None where it cannot."""
    kind = kind_of(values.layout.dtype)
    if kind is None:
        return None
    if isinstance(values, HeldValues):
        return Stored(kind, values.values.view(np.uint8)[start * kind.size :])
    place = values.place if isinstance(values, TensorFile) else None
    if place is None:
        return None
    descriptor, offset = place
    target = buffer if into is None else into[start * kind.size :]
    return Stored(kind, target, descriptor, offset + start * kind.size, into is not None)


def _read_other(other: ValueStretches, start: int, count: int, buffer: Bytes) -> Array:
    try:
        return other.read(start, count, buffer)
    except UnreadableTensorError as error:
        raise OtherUnreadableError from error


FileState = tuple[int, int]
"""Size of a file and ``opener.state_of``; ``UNSURE`` when these do not prove later that the file is unchanged."""
UNSURE: Final[FileState] = (0, 0)


def file_state(path: str | bytes) -> FileState:
    """Returns the state of a file. Call it before reading, so that a write during the read is noticed later."""
    try:
        status = opener.stat(path)
    except (OSError, ValueError):
        return UNSURE
    state = opener.state_of(status)
    return (status.st_size, state) if state else UNSURE


Identity = tuple[int, int, int, int]
"""Size, times of modification and change (ns), and inode of a file: a new file in its place differs, too."""


def identity(path: str | bytes) -> Identity | None:
    """Returns the identity of a file; None when it is not there."""
    try:
        status = opener.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@dataclass(slots=True)
class OtherTensor:
    """The tensor to compare with; ``held`` are its values if it was just read, ``state`` the state of its file then."""

    spec: ReadSpec
    held: HeldValues | None = None
    state: FileState = UNSURE


@dataclass(slots=True)
class ChangeResult:
    """The result of a comparison; fields as in ``Record``, ``state`` is the state of the other file."""

    before: int = Before.NONE
    state: FileState = UNSURE
    change: StepChange | None = None
    close: dict[Closeness, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairReader:
    """Reads a tensor and the tensor to compare with, if any; ``span`` (first element, end) limits the measurement."""

    spec: ReadSpec
    other: OtherTensor | None
    need: RequiredStats
    checkpoint: Checkpoint | None = None
    span: tuple[int, int] | None = None

    def measure(self, file: TensorFile, into: Bytes | None = None) -> tuple[PartialResult, ChangeResult]:
        """Reads both, each once wherever possible; ``into`` keeps the values of ``file``.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, or the device fails.
        """
        other = self.other
        if other is None:
            return self._sums(file, None, into), ChangeResult()
        if other.held is not None:
            return self._against(file, other.held, other.state, into)
        state = file_state(other.spec.path)
        try:
            opened = TensorFile(other.spec)
        except UnreadableTensorError:
            return self._sums(file, None, into), ChangeResult(Before.UNREADABLE, state)
        with opened:
            return self._against(file, opened, state, into)

    def _against(
        self, file: TensorFile, other: ValueStretches, state: FileState, into: Bytes | None
    ) -> tuple[PartialResult, ChangeResult]:
        mine, theirs = file.layout, other.layout
        if mine.shape != theirs.shape:
            return self._sums(file, None, into), ChangeResult(Before.SHAPE, state)
        if is_numeric(theirs.dtype) and mine.fortran == theirs.fortran:
            try:
                sums = self._sums(file, other, into)
            except OtherUnreadableError:
                pass
            else:
                return sums, compared(sums, state)
        sums, answer = self._sums(file, None, into), ChangeResult(Before.UNREADABLE, state)
        if is_numeric(theirs.dtype) and mine.fortran != theirs.fortran and self.other is not None:
            try:
                pair = open_array(self.spec), open_array(self.other.spec)
            except UnreadableTensorError:
                return sums, answer
            change, close = compare(*pair, self.need.closeness)
            answer = ChangeResult(Before.OK, state, change, close)
        return sums, answer

    def _sums(self, file: ValueStretches, other: ValueStretches | None, into: Bytes | None) -> PartialResult:
        wanted = spans(file.layout.count) if self.span is None else (self.span,)
        parts = (measure_span(file, other, self.need, span, self.checkpoint, into=into) for span in wanted)
        total = next(parts)
        for part in parts:
            total.merge(part)
        return total


def compared(sums: PartialResult, state: FileState) -> ChangeResult:
    """Returns the result of a successful comparison; an empty result without a tensor to compare with."""
    if sums.change is None:
        return ChangeResult()
    return ChangeResult(Before.OK, state, *sums.change.result())


def put_file(records: Records, row: int, state: int, layout: ValueLayout, seen: FileState) -> None:
    at = records.rows[row]
    at["state"], at["meta"] = state, records.meta_number(layout.meta)
    at["size"], at["identity"] = seen


def put_error(records: Records, row: int, error: str, seen: FileState) -> None:
    at = records.rows[row]
    at["state"] = RecordState.UNREADABLE
    at["size"], at["identity"] = seen
    records.errors[row] = error


def put_stats(records: Records, row: int, sums: PartialResult) -> None:
    at = records.rows[row]
    for name, value in zip(STORED_NAMES, sums.stats.values(), strict=True):
        at[name] = value
    for bounds, inside in sums.stats.ranges.items():
        records.ranges[bounds][row] = inside


def put_compared(records: Records, row: int, answer: ChangeResult) -> None:
    at = records.rows[row]
    at["before"] = answer.before
    at["before_size"], at["before_identity"] = answer.state
    if answer.change is not None:
        at["asked"] |= CHANGE_KNOWN
        at["difference"], at["reference"] = answer.change.mean_abs_difference, answer.change.mean_abs_previous
    for closeness, close in answer.close.items():
        records.close[closeness][row] = close


def put_asked(records: Records, rows: Mask, need: RequiredStats) -> None:
    """Marks the need of rows as asked but not known; results replace that."""
    if need.change:
        records.rows["asked"][rows] = CHANGE_ASKED
    for bounds in need.ranges:
        records.range_column(bounds)[rows] = NOT_KNOWN
    for closeness in need.closeness:
        records.close_column(closeness)[rows] = NOT_KNOWN
