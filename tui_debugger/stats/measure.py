"""Measures a batch of tensors: reads each file once, in order, and fills in records.

Most tensors of real dumps have a hundred elements or fewer and lie in a file of a few hundred bytes. With the kernel
such a file costs one open, one fstat, one read, one call and one close; headers are looked up among those seen before,
and the sums of all of them become columns of records at once. Bigger ones, and all where there is no kernel, are read
piece by piece (see ``side_by_side``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Int64
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import kernel
from tui_debugger.stats.blocks import Accumulator
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.fields import OTHERS
from tui_debugger.stats.kernel import Kind, address, bytes_at, kind_of
from tui_debugger.stats.kernel.files import read_files
from tui_debugger.stats.kernel.moments import moments_of_each
from tui_debugger.stats.kernel.pairs import changes
from tui_debugger.stats.npy import FIRST_READ, Layout, TensorFile, header_layout, raw_layout
from tui_debugger.stats.records import (
    CHANGE_KNOWN,
    NOT_KNOWN,
    ONLY_COMPARED,
    Before,
    ReadRequests,
    Records,
    Specs,
    State,
)
from tui_debugger.stats.side_by_side import (
    UNSURE,
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

WINDOW: Final = 1 << 20
"""Bytes of small files that are read, and measured, at once."""
AHEAD: Final = 512
"""The most of them: enough to share what a call takes."""


@dataclass(frozen=True, slots=True)
class Header:
    """The facts about all small files with one header.

    Attributes:
        layout: type and shape.
        meta: number of these in the records.
        kind: what the kernel calls the elements.
        start: where they begin in the file.
        end: where they end.
    """

    layout: Layout
    meta: int
    kind: Kind
    start: int
    end: int


SmallFile = tuple[Header, int, int, int]
"""A small file in memory: header, where its elements are, size and modification time."""


class SmallTensors:
    """The small tensors of a window that wait to be measured, all of them in one call."""

    def __init__(self, records: Records) -> None:
        """``records`` says what was asked of each row."""
        self._records = records
        self._bounds, self._tests = tuple(records.ranges), tuple(records.close)
        self._tensors: list[tuple[int, SmallFile]] = []
        self._pairs: list[tuple[int, SmallFile, SmallFile]] = []

    def add(self, row: int, file: SmallFile) -> None:
        """Lets a tensor wait."""
        self._tensors.append((row, file))

    def compare(self, row: int, file: SmallFile, other: SmallFile) -> None:
        """Lets a tensor wait for being compared with another one of its shape, type and order of elements."""
        self._pairs.append((row, file, other))

    def measure(self) -> None:
        """Measures all that wait."""
        if self._tensors:
            self._measure(*zip(*self._tensors, strict=True))
        if self._pairs:
            self._compare(*zip(*self._pairs, strict=True))
        self._tensors, self._pairs = [], []

    def _measure(self, numbers: Sequence[int], files: Sequence[SmallFile]) -> None:
        headers, places, sizes, times = zip(*files, strict=True)
        rows, table = np.array(numbers), self._records.rows
        nbytes, kinds = [each.end - each.start for each in headers], [each.kind for each in headers]
        sums, inside = moments_of_each(places, nbytes, kinds, self._bounds)
        table["state"][rows], table["meta"][rows] = State.MEASURED, [each.meta for each in headers]
        table["size"][rows], table["identity"][rows] = sizes, times
        for name, column in columns_of(sums).items():
            table[name][rows] = column
        for bounds, counts in zip(self._bounds, inside.T, strict=True):
            counted = self._records.ranges[bounds]
            counted[rows] = np.where(counted[rows] == NOT_KNOWN, counts, counted[rows])
        if OTHERS:
            held = (bytes_at(place, size) for place, size in zip(places, nbytes, strict=True))
            others = [_one_by_one(each.view(header.layout.dtype)) for each, header in zip(held, headers, strict=True)]
            for (name, _), column in zip(OTHERS, np.array(others).T, strict=True):
                table[name][rows] = column

    def _compare(self, numbers: Sequence[int], files: Sequence[SmallFile], others: Sequence[SmallFile]) -> None:
        headers, places, _, _ = zip(*files, strict=True)
        _, before, sizes, times = zip(*others, strict=True)
        rows, table = np.array(numbers), self._records.rows
        counts, kinds = [each.layout.count for each in headers], [each.kind for each in headers]
        sums, close = changes(places, before, counts, kinds, self._tests)
        table["before"][rows], table["before_size"][rows], table["before_identity"][rows] = Before.OK, sizes, times
        table["asked"][rows] |= CHANGE_KNOWN
        count = np.array(counts)
        table["difference"][rows], table["reference"][rows] = (sums / count[:, None]).T
        for test, passed in zip(self._tests, close.T, strict=True):
            column = self._records.close[test]
            column[rows] = np.where(column[rows] == NOT_KNOWN, passed & (count > 0), column[rows])


def columns_of(sums: npt.NDArray[Any]) -> dict[str, Array]:
    """Returns the statistics of ``fields.FAST`` by name, of arrays with these sums; NaN stands for None."""
    finite = sums["elements"] - sums["nan"] - sums["pos_inf"] - sums["neg_inf"]
    some = finite > 0
    columns = {name: sums[name] for name in ("nan", "pos_inf", "neg_inf", "negative", "positive")}
    reals = {name: sums[name] for name in ("minimum", "maximum", "mean", "abs_mean")}
    reals["variance"] = sums["deviations"] / finite
    columns |= {name: np.where(some, column, np.nan) for name, column in reals.items()}
    zero = finite - sums["negative"] - sums["positive"]
    return columns | {"count": sums["elements"], "zero": zero, "sum_squares": sums["squares"]}


def _one_by_one(values: Array) -> list[float]:
    """Returns the statistics of ``fields.OTHERS``; NaN stands for None."""
    sums = Accumulator()
    sums.add(values)
    return list(sums.values()[-len(OTHERS) :])


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


class _Buffers(threading.local):
    """The memory of a thread for the values of the tensor that it reads, and of the one before."""

    def __init__(self) -> None:
        self._pair = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._windows = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def take(self, nbytes: int) -> Bytes:
        """Returns a buffer; that of the call before stays as it is."""
        self._pair.reverse()
        if len(self._pair[0]) < nbytes:
            self._pair[0] = np.empty(nbytes, np.uint8)
        return self._pair[0]

    def window(self) -> Bytes:
        """Returns a buffer for small files; that of the call before stays as it is."""
        self._windows.reverse()
        if not len(self._windows[0]):
            self._windows[0] = np.empty(WINDOW, np.uint8)
        return self._windows[0]


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
        self._headers: list[dict[bytes, Header | None]] = [{} for _ in requests.specs.kinds]
        self._windows: tuple[dict[int, SmallFile], dict[int, SmallFile]] = {}, {}
        self._window_end = 0
        self._singles: list[Bytes] = []
        self._held: tuple[int, Other] | None = None
        self._began = time.time_ns()
        self._before = compared_with(requests).tolist()
        self._again = set(self._before)
        for number, need in enumerate(requests.needs):
            put_asked(self.records, requests.need == number, need)
        self._small = SmallTensors(self.records) if kernel.available() else None

    def run(self) -> None:
        """Measures everything."""
        small = self._small
        for row, (need, before) in enumerate(zip(self._requests.need.tolist(), self._before, strict=True)):
            if small is not None and row == self._window_end:
                self._next_window(small)
            if need == ONLY_COMPARED:
                continue
            file = self._windows[0].get(row)
            if file is None or small is None:
                self._measure_big(row, before)
                continue
            small.add(row, file)
            if before >= 0:
                self._compare_small(small, row, file, before)
        self._check()
        if small is not None:
            small.measure()

    def _check(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint()

    def _spec(self, row: int) -> ReadSpec:
        return replace(self._requests.specs.kinds[self._kind[row]], path=os.fsdecode(self._paths[row]))

    # -- small tensors -----------------------------------------------------------------------------

    def _next_window(self, small: SmallTensors) -> None:
        """Reads the next small files, into the memory of those before the last ones."""
        self._check()
        small.measure()
        self._singles.clear()
        end = min(self._window_end + AHEAD, len(self._paths))
        rows = [row for row in range(self._window_end, end) if self._plain[self._kind[row]] and self._is_needed(row)]
        looked, files = self._read_small(rows, _buffers.window())
        self._window_end = rows[looked] if looked < len(rows) else end
        self._windows = files, self._windows[0]

    def _is_needed(self, row: int) -> bool:
        return row in self._again or self._requests.need[row] != ONLY_COMPARED

    def _read_small(self, rows: Sequence[int], buffer: Bytes) -> tuple[int, dict[int, SmallFile]]:
        """Reads files until a buffer is full; returns how many were looked at, and those that are small and right."""
        if not rows:
            return 0, {}
        table = read_files([self._paths[row] for row in rows], FIRST_READ, buffer)
        view, first, files = buffer.data, address(buffer), dict[int, SmallFile]()
        starts, sizes, modified, changed, numbers = table.T
        states = opener.state_of_times(modified, changed, numbers, self._began).tolist()
        for row, start, size, state in zip(rows, starts.tolist(), sizes.tolist(), states, strict=False):
            if size <= 10:
                continue
            kind = self._kind[row]
            length = 0 if self._raw[kind] else 10 + view[start + 8] + (view[start + 9] << 8)
            key, known = view[start : start + min(length, size)].tobytes(), self._headers[kind]
            header = known[key] if key in known else self._new_header(kind, key)
            if header is not None and size >= header.end:
                seen = (size, state) if state else UNSURE
                files[row] = (header, first + start + header.start, *seen)
        return len(table), files

    def _new_header(self, kind: int, key: bytes) -> Header | None:
        spec = self._requests.specs.kinds[kind]
        layout = raw_layout(spec) if self._raw[kind] else header_layout(key, spec.dtype)
        header = None
        if layout is not None and is_numeric(layout.dtype) and (elements := kind_of(layout.dtype)) is not None:
            number = self.records.meta_number(layout.meta)
            header = Header(layout, number, elements, layout.offset, layout.offset + layout.nbytes)
        self._headers[kind][key] = header
        return header

    def _compare_small(self, small: SmallTensors, row: int, file: SmallFile, before: int) -> None:
        other = self._windows[0].get(before) or self._windows[1].get(before)
        if other is None and self._plain[self._kind[before]]:
            self._singles.append(np.empty(FIRST_READ, np.uint8))
            other = self._read_small([before], self._singles[-1])[1].get(before)
        if other is None:
            self._compare_odd(row, before)
            return
        mine, theirs = file[0].layout, other[0].layout
        if mine.shape != theirs.shape:
            put_compared(self.records, row, Compared(Before.SHAPE, other[2:]))
        elif (mine.dtype, mine.fortran) != (theirs.dtype, theirs.fortran):
            self._compare_odd(row, before)
        else:
            small.compare(row, file, other)

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
        self._check()
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
