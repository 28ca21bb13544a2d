"""Measures a batch of tensors: reads each file once, in order, small ones together, and fills in records.

Most tensors of real dumps have a hundred elements or fewer and lie in a file of a few hundred bytes. A call of numpy
costs about 1 µs whatever it is given, and the statistics of one tensor take fifteen of them, so the elements of many
small tensors stand side by side in one array, and one call serves all of them. Their files cost one open, one fstat,
one read and one close each; headers are looked up among those seen before.

Bigger tensors are read piece by piece (see ``side_by_side``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Float64, Int64, Mask
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.opener import open_regular
from tui_debugger.stats.dtypes import DType, is_numeric
from tui_debugger.stats.fields import OTHERS, STORED, Made, sums_of
from tui_debugger.stats.npy import FIRST_READ, Layout, TensorFile, header_layout, raw_layout
from tui_debugger.stats.records import (
    CHANGE_KNOWN,
    NOT_KNOWN,
    ONLY_COMPARED,
    Before,
    Bounds,
    Closeness,
    ReadRequests,
    Records,
    Specs,
    State,
)
from tui_debugger.stats.side_by_side import (
    UNSURE,
    YOUNG,
    Bytes,
    Checkpoint,
    Compared,
    FileState,
    HeldValues,
    Other,
    PairReader,
    file_state,
    put_asked,
    put_compared,
    put_error,
    put_file,
    put_stats,
)

SMALL: Final = 1 << 11
"""Most elements of a small tensor. Beyond it the calls that one tensor takes by itself weigh little."""

CANCELLED: Final = 1e-7
"""Part of the sum of squares that has to be left by what the mean takes away: 9 digits of the variance are right."""
ROUNDING: Final = 1e-9
"""Relative error of a mean, by far not reached."""


@dataclass(frozen=True, slots=True)
class SmallTensors:
    """Tensors of one real element type, none of them empty, as one array.

    Attributes:
        values: all elements, cast to float64.
        counts: elements of each tensor.
        starts: where each begins.
    """

    values: Float64
    counts: Int64
    starts: Int64

    @classmethod
    def of(cls, values: Array, counts: Int64) -> SmallTensors:
        """Casts the elements of tensors that lie one after the other."""
        return cls(values.astype(np.float64), counts, np.cumsum(counts) - counts)

    def columns(self) -> dict[str, Array]:
        """Returns the statistics of ``fields.STORED``, one column each; NaN stands for None."""
        x, starts, amount = self.values, self.starts, self.counts
        columns: dict[str, Array] = {"count": amount} | dict.fromkeys(("nan", "pos_inf", "neg_inf"), 0 * amount)
        lowest, highest = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
        if not (np.isfinite(lowest) & np.isfinite(highest)).all():
            finite = np.isfinite(x)
            amount = _count(finite, starts)
            columns["pos_inf"], columns["neg_inf"] = _count(x == np.inf, starts), _count(x == -np.inf, starts)
            columns["nan"] = self.counts - amount - columns["pos_inf"] - columns["neg_inf"]
            lowest = np.minimum.reduceat(np.where(finite, x, np.inf), starts)
            highest = np.maximum.reduceat(np.where(finite, x, -np.inf), starts)
            x = np.where(finite, x, 0.0)
        columns["negative"], columns["positive"] = _count(x < 0, starts), _count(x > 0, starts)
        columns["zero"] = amount - columns["negative"] - columns["positive"]
        some = amount > 0
        columns["minimum"], columns["maximum"] = np.where(some, lowest, np.nan), np.where(some, highest, np.nan)
        columns["mean"], columns["abs_mean"] = self._mean(x, amount), self._mean(np.abs(x), amount)
        columns["sum_squares"] = np.add.reduceat(x * x, starts)
        columns["variance"] = self._variance(columns, amount)
        for name, made in OTHERS:
            columns[name] = self._one_by_one(made)
        return columns

    def _one_by_one(self, made: Made) -> Float64:
        """Returns a statistic of each tensor that there is no faster way to make."""
        results = []
        for x in np.split(self.values, self.starts[1:]):
            sums = sums_of(made, x if made.every else x[np.isfinite(x)])
            results.append(made.result(sums))
        return np.array(results, np.float64)

    def _mean(self, x: Float64, amount: Int64) -> Float64:
        """Returns the means, 0 / 0 = NaN where nothing is finite."""
        mean: Float64 = np.add.reduceat(x, self.starts) / amount
        overflown = (amount > 0) & ~np.isfinite(mean)
        if overflown.any():  # the sum of huge doubles does; every tensor is measured by itself, whatever the others are
            some = SmallTensors(x, self.counts, self.starts).some(overflown)
            shares = some.values / np.repeat(amount[overflown], some.counts)
            mean[overflown] = np.add.reduceat(shares, some.starts)
        return mean

    def _variance(self, columns: dict[str, Array], amount: Int64) -> Float64:
        """Takes it from the sum of squares, unless that comes mostly from the mean: then from all elements."""
        mean, squares = columns["mean"], columns["sum_squares"]
        deviations = squares - amount * mean * mean
        variance: Float64 = np.where(columns["minimum"] == columns["maximum"], 0.0, deviations / amount)
        lost = (columns["minimum"] < columns["maximum"]) & ~(deviations > CANCELLED * squares)
        if lost.any():
            some = self.some(lost)
            away = some.values - np.repeat(mean[lost], some.counts)
            away[~np.isfinite(away)] = 0.0
            variance[lost] = np.add.reduceat(away * away, some.starts) / amount[lost]
        return variance

    def some(self, rows: Mask) -> SmallTensors:
        """Returns some of the tensors."""
        if rows.all():
            return self
        counts = self.counts[rows]
        return SmallTensors(self.values[np.repeat(rows, self.counts)], counts, np.cumsum(counts) - counts)

    def inside(self, bounds: Bounds, columns: dict[str, Array]) -> Int64:
        """Counts elements within a range, both ends included; NaN is outside. ``columns``: their statistics."""
        start, end = bounds
        finite = columns["count"] - columns["nan"] - columns["pos_inf"] - columns["neg_inf"] == columns["count"]
        all_in = finite & (columns["minimum"] >= start) & (columns["maximum"] <= end)
        if all_in.all():
            return self.counts
        return _count((self.values >= start) & (self.values <= end), self.starts)

    def compared(
        self, previous: SmallTensors, closenesses: Iterable[Closeness]
    ) -> tuple[Float64, Float64, dict[Closeness, Mask]]:
        """Returns mean |cur − prev|, mean |prev|, and for each closeness whether all elements are close."""
        now, before = self.values, previous.values
        difference = np.abs(now - before)
        magnitude = np.abs(before)
        change = np.add.reduceat(difference, self.starts) / self.counts
        reference = np.add.reduceat(magnitude, self.starts) / self.counts
        answers = {}
        for rtol, atol, equal_nan in closenesses:
            # What holds for every element holds for their means, but for what rounding does to those.
            may = ~(change > (reference * rtol + atol) * (1 + ROUNDING))
            close = may & (change == 0) & (rtol >= 0) & (atol >= 0)
            left = may & ~close
            if left.any():
                close[left] = _all_close(self.some(left), previous.some(left), (rtol, atol, equal_nan))
            answers[rtol, atol, equal_nan] = close
        return change, reference, answers


def _all_close(now: SmallTensors, before: SmallTensors, closeness: Closeness) -> Mask:
    rtol, atol, equal_nan = closeness
    x, y = now.values, before.values
    # The tolerance of an infinite previous value is infinite, so closeness counts only where that is finite.
    close = (np.abs(x - y) <= np.abs(y) * rtol + atol) & np.isfinite(y)
    close |= x == y
    if equal_nan:
        close |= np.isnan(x) & np.isnan(y)
    answer: Mask = np.logical_and.reduceat(close, now.starts)
    return answer


def _count(mask: Mask, starts: Int64) -> Int64:
    counts: Int64 = np.add.reduceat(mask, starts, dtype=np.int64)
    return counts


ELEMENTS: Final = 1 << 17
"""Elements of a window: their float64 copies stay in the L2 cache, or nearly."""
LIKE_ELEMENTS: Final = 256
"""The cost of a tensor besides its elements, in elements: 500 tensors are enough to share the calls of numpy."""


Tensor = tuple[int, bytes, int, int, int, int]
"""Row, elements as bytes, their number, number of their type and shape, size and modification time of the file."""
Pair = tuple[int, bytes, bytes, int, int, int]
"""Row, elements and those that they are compared with as bytes, their number, size and time of the other's file."""


class TypeQueue:
    """The waiting tensors of one element type."""

    __slots__ = ("dtype", "pairs", "tensors")

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.tensors: list[Tensor] = []
        self.pairs: list[Pair] = []


class SmallTensorQueue:
    """The waiting tensors of a batch.

    Attributes:
        free: what may be added yet; it is time to measure when nothing is left.
    """

    def __init__(self, requests: ReadRequests, records: Records) -> None:
        """``records`` has a row for each of ``requests``, which says what was asked."""
        self._records = records
        self._need = requests.need
        self._asking = {
            bounds: np.array([bounds in need.ranges for need in requests.needs]) for bounds in records.ranges
        }
        self._groups: dict[DType, TypeQueue] = {}
        self.free = ELEMENTS

    def group(self, dtype: DType) -> TypeQueue:
        """Returns where tensors of an element type wait."""
        return self._groups.setdefault(dtype, TypeQueue(dtype))

    def add(self, group: TypeQueue, tensor: Tensor) -> None:
        """Lets a tensor wait."""
        group.tensors.append(tensor)
        self.free -= tensor[2] + LIKE_ELEMENTS

    def measure(self) -> None:
        """Measures all that wait."""
        for group in self._groups.values():
            if group.tensors:
                self._measure(group.dtype, group.tensors)
                group.tensors = []
            if group.pairs:
                self._compare(group.dtype, group.pairs)
                group.pairs = []
        self.free = ELEMENTS

    def _measure(self, dtype: DType, tensors: list[Tensor]) -> None:
        rows_, values, counts_, metas, sizes, times = zip(*tensors, strict=True)
        rows, counts, table = np.array(rows_), np.array(counts_), self._records.rows
        table["state"][rows], table["meta"][rows] = State.MEASURED, metas
        table["size"][rows], table["mtime"][rows] = sizes, times
        filled = counts > 0
        if not filled.all():
            self._put_empty(rows[~filled])
            rows, counts = rows[filled], counts[filled]
        if not len(rows):
            return
        small = SmallTensors.of(_joined(values, dtype), counts)
        columns = small.columns()
        for name, column in columns.items():
            table[name][rows] = column
        for bounds, counted in self._records.ranges.items():
            asked = self._asking[bounds][self._need[rows]]
            if asked.any():
                counted[rows[asked]] = small.inside(bounds, columns)[asked]

    def _put_empty(self, rows: Int64) -> None:
        for name in _NAN_WHEN_EMPTY:
            self._records.rows[name][rows] = np.nan
        for bounds, counted in self._records.ranges.items():
            counted[rows[self._asking[bounds][self._need[rows]]]] = 0

    def _compare(self, dtype: DType, pairs: list[Pair]) -> None:
        rows_, values, befores, counts_, sizes, times = zip(*pairs, strict=True)
        rows, counts, table = np.array(rows_), np.array(counts_), self._records.rows
        table["before"][rows] = Before.OK
        table["before_size"][rows], table["before_mtime"][rows] = sizes, times
        table["asked"][rows] |= CHANGE_KNOWN
        filled = counts > 0
        difference, reference = np.full((2, len(rows)), np.nan)
        close = {closeness: np.zeros(len(rows), np.bool_) for closeness in self._records.close}
        if filled.any():
            now, before = (SmallTensors.of(_joined(each, dtype), counts[filled]) for each in (values, befores))
            difference[filled], reference[filled], answers = now.compared(before, close)
            for closeness, answer in answers.items():
                close[closeness][filled] = answer
        table["difference"][rows], table["reference"][rows] = difference, reference
        for closeness, answer in close.items():
            column = self._records.close[closeness]
            asked = column[rows] == NOT_KNOWN
            column[rows[asked]] = answer[asked]


_NAN_WHEN_EMPTY: Final = tuple(each.name for each in STORED if each.unknown is None)


def _joined(values: tuple[Any, ...], dtype: DType) -> npt.NDArray[Any]:
    return np.frombuffer(b"".join(values), dtype)


def fits(layout: Layout) -> bool:
    """Returns whether tensors like this are measured in windows; complex elements need more than a cast."""
    return layout.count <= SMALL and layout.dtype.kind != "c" and is_numeric(layout.dtype)


LIKE_BYTES: Final = 1 << 14
"""The cost of a file beyond its bytes, in bytes: opening it takes as long as measuring so many."""
MOST: Final = 1 << 25
"""Bytes of the biggest batch (a bigger file has one of its own): some 20 ms of work, which nobody minds waiting for."""
LEAST: Final = 1 << 22
"""Bytes of the smallest batch that is worth handing over: 256 small files."""
SHARES: Final = 6
"""Batches for each worker, at least, so that they end at about the same time."""


def costs(sizes: Int64) -> Int64:
    """Returns what looking at files costs, in bytes, by their sizes; -1 stands for a missing file."""
    cost: Int64 = np.maximum(sizes, 0) + LIKE_BYTES
    return cost


def compared_with(requests: ReadRequests) -> Int64:
    """Returns for each file the number of the one it is compared with, -1 where nothing is asked about that."""
    asking = np.array([*(need.previous for need in requests.needs), False])  # ONLY_COMPARED is the last one
    return np.where(asking[requests.need], requests.previous, -1).astype(np.int64)


def batch_bounds(requests: ReadRequests, sizes: Int64, workers: int) -> Iterator[tuple[int, int]]:
    """Yields the first file and the end of every batch.

    The steps of a tensor stay together, unless they are too much for one batch.

    Args:
        requests: neighbours that are steps of one tensor stand one after the other.
        sizes: bytes of each file.
        workers: how many work at the same time.
    """
    ends = np.cumsum(costs(sizes))
    if not len(ends):
        return
    most = min(max(int(ends[-1]) // (SHARES * workers), LEAST), MOST)
    compared = compared_with(requests)
    follows = (compared >= 0) & (compared == np.arange(len(requests)) - 1)
    chains = np.append(np.flatnonzero(~follows), len(requests))
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + most, "right")), start + 1)
        chain = int(chains[np.searchsorted(chains, end, "right") - 1])
        end = chain if chain > start else end
        yield start, end
        start = end


def subset(requests: ReadRequests, rows: Int64) -> tuple[ReadRequests, Int64]:
    """Returns some requests by themselves, and the row of each of their files in the whole.

    What they are compared with comes along: files that are not among them are read once more, only for that.

    Args:
        requests: the whole.
        rows: ascending.
    """
    compared = compared_with(requests)[rows] if len(rows) else rows
    more = np.setdiff1d(compared[compared >= 0], rows)
    every = np.sort(np.concatenate([rows, more]))
    previous = np.full(len(every), -1, np.int32)
    mine = np.searchsorted(every, rows)
    previous[mine] = np.where(compared >= 0, np.searchsorted(every, compared), -1)
    need = np.full(len(every), ONLY_COMPARED, np.int16)
    need[mine] = requests.need[rows]
    paths = requests.specs.paths
    specs = Specs([paths[row] for row in every.tolist()], requests.specs.kinds, requests.specs.kind[every])
    return ReadRequests(specs, previous, requests.needs, need), every


KEPT_BIG: Final = 1 << 24
"""Bytes up to which the values of a big tensor are kept for the next one to be compared with."""
KEPT_SMALL: Final = 1 << 20
"""Bytes of small files that are kept for the same purpose."""


def read_all(requests: ReadRequests, checkpoint: Checkpoint | None = None) -> Records:
    """Reads every file of a batch and measures what its need asks for.

    Never raises for a bad file: its row says what is wrong. Elements without numbers (text, dates) give a row with type
    and shape and no statistics. Files that are only compared with get no row.

    Args:
        requests: what to read.
        checkpoint: called between files (small ones: between a few hundred of them) and between the pieces of a big
            tensor; may raise to stop.
    """
    batch = _Batch(requests, checkpoint)
    with np.errstate(all="ignore"):
        batch.run()
    return batch.records


_PLAIN: Final = ("npy", "raw")
"""Formats of files whose values lie behind a header, if there is one, as they are."""
_Header = tuple[Layout, int, TypeQueue, int, int, int]
"""The facts about all small files with one header: layout, number of type and shape, where their values wait, where
they begin and end in the file, how many there are. A plain tuple: it is taken apart for every file."""
_START: Final = 3
_END: Final = 4

_File = tuple[_Header, bytes, int, int]
"""A small file that was read: header, bytes of its elements, size and modification time."""


class _Buffers(threading.local):
    """The memory of a thread for the values of the tensor that it reads, and of the one before."""

    def __init__(self) -> None:
        self._pair = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def take(self, nbytes: int) -> Bytes:
        """Returns a buffer; that of the call before stays as it is."""
        self._pair.reverse()
        if len(self._pair[0]) < nbytes:
            self._pair[0] = np.empty(nbytes, np.uint8)
        return self._pair[0]


_buffers = _Buffers()


class _Batch:
    """The work on one batch."""

    def __init__(self, requests: ReadRequests, checkpoint: Checkpoint | None) -> None:
        self.records = Records(len(requests))
        self._requests = requests
        self._checkpoint = checkpoint
        self._paths = requests.specs.paths
        self._kind: list[int] = requests.specs.kind.tolist()
        self._raw = [spec.format == "raw" for spec in requests.specs.kinds]
        self._plain = [spec.format in _PLAIN for spec in requests.specs.kinds]
        self._headers: list[dict[bytes, _Header | None]] = [{} for _ in requests.specs.kinds]
        self._files: dict[int, _File] = {}
        self._files_free = KEPT_SMALL
        self._held: tuple[int, Other] | None = None
        self._believed = time.time_ns() - YOUNG
        self._before = compared_with(requests).tolist()
        self._again = set(self._before)
        for number, need in enumerate(requests.needs):
            put_asked(self.records, requests.need == number, need)
        self._queue = SmallTensorQueue(requests, self.records)

    def run(self) -> None:
        """Measures everything."""
        queue, read_small, files, again = self._queue, self._read_small, self._files, self._again
        for row, (need, before) in enumerate(zip(self._requests.need.tolist(), self._before, strict=True)):
            if need == ONLY_COMPARED:
                continue
            file = read_small(row)
            if file is None:
                self._measure_big(row, before)
                continue
            header, values, size, time_ns = file
            _, meta, group, _, _, count = header
            group.tensors.append((row, values, count, meta, size, time_ns))
            if row in again:
                self._keep_file(row, file)
            if before >= 0:
                other = files.get(before)
                if other is not None and other[0] is header:
                    group.pairs.append((row, values, other[1], count, other[2], other[3]))
                else:
                    self._compare_small(row, file, before)
            queue.free -= count + LIKE_ELEMENTS
            if queue.free <= 0:
                self._measure_small()
        self._measure_small()

    def _measure_small(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint()
        self._queue.measure()

    def _spec(self, row: int) -> ReadSpec:
        return replace(self._requests.specs.kinds[self._kind[row]], path=os.fsdecode(self._paths[row]))

    # -- small tensors -----------------------------------------------------------------------------

    def _read_small(self, row: int) -> _File | None:
        """Returns a small file in one go; None when it is not small, of another format, or anything about it is odd."""
        kind = self._kind[row]
        if not self._plain[kind]:
            return None
        try:
            fd, status = open_regular(self._paths[row])
        except (OSError, ValueError):
            return None
        try:
            size = status.st_size
            data = opener.pread(fd, size, 0) if size <= FIRST_READ else b""
        except OSError:
            return None
        finally:
            opener.close(fd)
        if len(data) < size or size <= 10:
            return None
        key = b"" if self._raw[kind] else data[: 10 + data[8] + (data[9] << 8)]
        known = self._headers[kind]
        header = known[key] if key in known else self._new_header(kind, key)
        if header is None or size < header[_END]:
            return None
        time_ns = status.st_mtime_ns
        values = data[header[_START] : header[_END]]
        return (header, values, size, time_ns) if time_ns <= self._believed else (header, values, *UNSURE)

    def _new_header(self, kind: int, key: bytes) -> _Header | None:
        spec = self._requests.specs.kinds[kind]
        layout = raw_layout(spec) if self._raw[kind] else header_layout(key, spec.dtype)
        header = None
        if layout is not None and fits(layout):
            number, group = self.records.meta_number(layout.meta), self._queue.group(layout.dtype)
            header = (layout, number, group, layout.offset, layout.offset + layout.nbytes, layout.count)
        self._headers[kind][key] = header
        return header

    def _keep_file(self, row: int, file: _File) -> None:
        self._files_free -= len(file[1])
        if self._files_free < 0:
            self._files.clear()
            self._files_free = KEPT_SMALL
        self._files[row] = file

    def _compare_small(self, row: int, file: _File, before: int) -> None:
        other = self._files.get(before) or self._read_small(before)
        if other is None:
            self._compare_odd(row, before)
            return
        (mine, _, group, *_), theirs = file[0], other[0][0]
        if mine is theirs or (mine.shape, mine.dtype, mine.fortran) == (theirs.shape, theirs.dtype, theirs.fortran):
            group.pairs.append((row, file[1], other[1], mine.count, *other[2:]))
        elif mine.shape != theirs.shape:
            put_compared(self.records, row, Compared(Before.SHAPE, other[2:]))
        else:
            self._compare_odd(row, before)

    def _compare_odd(self, row: int, before: int) -> None:
        """Compares a small tensor with one of another element type or order, or with a file that is odd."""
        sides = self._sides(row, before)
        try:
            with TensorFile(sides.spec) as file:
                _, answer = sides.measure(file)
        except (UnreadableTensorError, MemoryError):  # it could be read a moment ago
            answer = Compared(Before.UNREADABLE)
        put_compared(self.records, row, answer)

    # -- big tensors -------------------------------------------------------------------------------

    def _measure_big(self, row: int, before: int) -> None:
        if self._checkpoint is not None:
            self._checkpoint()
        sides = self._sides(row, before)
        state = file_state(sides.spec.path)
        try:
            with TensorFile(sides.spec) as file:
                self._measure_file(row, file, sides, state)
        except UnreadableTensorError as error:
            put_error(self.records, row, error.what, state)
        except MemoryError:
            put_error(self.records, row, "does not fit into memory", UNSURE)

    def _sides(self, row: int, before: int) -> PairReader:
        """Returns how a tensor is read together with what it is compared with."""
        need = self._requests.needs[int(self._requests.need[row])]
        other = None
        if before >= 0:
            held = self._held
            other = held[1] if held is not None and held[0] == before else Other(self._spec(before))
        return PairReader(self._spec(row), other, need, self._checkpoint)

    def _measure_file(self, row: int, file: TensorFile, sides: PairReader, state: FileState) -> None:
        layout = file.layout
        if not is_numeric(layout.dtype):
            put_file(self.records, row, State.NO_NUMBERS, layout, state)
        elif fits(layout):  # a small tensor in a big file, or under a header of another version
            meta, values = self.records.meta_number(layout.meta), file.read(0, layout.count).tobytes()
            self._queue.add(self._queue.group(layout.dtype), (row, values, layout.count, meta, *state))
            if sides.other is not None:
                put_compared(self.records, row, sides.measure(file)[1])
        elif row in self._again and layout.nbytes <= KEPT_BIG:
            self._held = None  # its values stay where they are until the next into is asked for
            into = _buffers.take(layout.nbytes)
            self._put_big(row, file, sides, state, into)
            self._held = (row, Other(sides.spec, HeldValues(layout, into[: layout.nbytes].view(layout.dtype)), state))
        else:
            self._put_big(row, file, sides, state)

    def _put_big(
        self, row: int, file: TensorFile, sides: PairReader, state: FileState, into: Bytes | None = None
    ) -> None:
        sums, answer = sides.measure(file, into)
        put_file(self.records, row, State.MEASURED, file.layout, state)
        put_stats(self.records, row, sums)
        put_compared(self.records, row, answer)
