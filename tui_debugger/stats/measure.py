"""Measures a batch of tensors: reads each file once, in order, and fills in records.

Most tensors of real dumps have at most a hundred elements, in a file of a few hundred bytes. With the kernel such a
file costs one open, fstat, read, call and close; known headers are looked up, and the sums of all small files become
columns of records at once. Bigger tensors, and all where there is no kernel, are read piece by piece: ``side_by_side``.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Int32, Int64
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.stats import kernel
from tui_debugger.stats.blocks import Accumulator
from tui_debugger.stats.dtypes import DType, is_numeric
from tui_debugger.stats.fields import OTHERS
from tui_debugger.stats.kernel import ElementKind, Kinds, address, bytes_at, kind_of
from tui_debugger.stats.kernel.elements import moments_of_each
from tui_debugger.stats.kernel.files import read_files
from tui_debugger.stats.kernel.pairs import changes
from tui_debugger.stats.npy import FIRST_READ, TensorFile, ValueLayout, header_layout, is_whole_file, raw_layout
from tui_debugger.stats.records import (
    CHANGE_KNOWN,
    NOT_KNOWN,
    ONLY_COMPARED,
    Before,
    ReadRequests,
    Records,
    RecordState,
)
from tui_debugger.stats.side_by_side import (
    UNSURE,
    Bytes,
    ChangeResult,
    Checkpoint,
    FileState,
    HeldValues,
    OtherTensor,
    PairReader,
    file_state,
    put_asked,
    put_compared,
    put_error,
    put_file,
    put_stats,
)

WINDOW: Final = 1 << 20
"""Bytes of small files that are read and measured at once; also of small members of files with several tensors."""
AHEAD: Final = 512
"""The most rows of a window: enough to spread the cost of a call."""
SMALL_MEMBER: Final = 1 << 14
"""Bytes up to which a tensor in a file of several is small."""


@dataclass(frozen=True, slots=True)
class SharedHeader:
    """The facts shared by all small files with one header; ``start`` and ``end`` are the place of the elements."""

    layout: ValueLayout
    meta: int
    kind: ElementKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Small files in memory, as columns; ``header`` is -1 for a file that is not small, or odd.

    ``place`` is the address of the elements; ``size`` and ``state`` are a ``FileState``.
    """

    header: Int64
    place: Int64
    size: Int64
    state: Int64

    @classmethod
    def none(cls, count: int) -> SmallFiles:
        return cls(np.full(count, -1, np.int64), *(np.zeros(count, np.int64) for _ in range(3)))

    def __getitem__(self, at: Int64) -> SmallFiles:
        return SmallFiles(self.header[at], self.place[at], self.size[at], self.state[at])

    def put(self, at: Int64, files: SmallFiles) -> None:
        self.header[at], self.place[at], self.size[at], self.state[at] = (
            files.header,
            files.place,
            files.size,
            files.state,
        )


class SmallTensors:
    """Measures many small tensors in one call, and writes the results as columns."""

    def __init__(self, records: Records, headers: Sequence[SharedHeader]) -> None:
        self._records = records
        self._headers = headers
        self._kinds = Kinds.of([each.kind for each in headers])
        self._nbytes, self._counts, self._metas = (
            np.array(column, np.int64)
            for column in (
                [each.end - each.start for each in headers],
                [each.layout.count for each in headers],
                [each.meta for each in headers],
            )
        )
        self._bounds, self._tests = tuple(records.ranges), tuple(records.close)

    def measure(self, rows: Int64, files: SmallFiles) -> None:
        if not len(rows):
            return
        of, table = files.header, self._records.rows
        nbytes = self._nbytes[of]
        sums, inside = moments_of_each(files.place, nbytes, self._kinds.at(of), self._bounds)
        table["state"][rows], table["meta"][rows] = RecordState.MEASURED, self._metas[of]
        table["size"][rows], table["identity"][rows] = files.size, files.state
        for name, column in columns_of(sums).items():
            table[name][rows] = column
        for bounds, counts in zip(self._bounds, inside.T, strict=True):
            counted = self._records.ranges[bounds]
            counted[rows] = np.where(counted[rows] == NOT_KNOWN, counts, counted[rows])
        if OTHERS:
            held = map(bytes_at, files.place.tolist(), nbytes.tolist())
            types = (self._headers[number].layout.dtype for number in of.tolist())
            others = [_one_by_one(each.view(dtype)) for each, dtype in zip(held, types, strict=True)]
            for (name, _), column in zip(OTHERS, np.array(others).T, strict=True):
                table[name][rows] = column

    def compare(self, rows: Int64, files: SmallFiles, others: SmallFiles) -> None:
        """Compares tensors with others of the same shape, type and element order."""
        if not len(rows):
            return
        of, table = files.header, self._records.rows
        count = self._counts[of]
        sums, close = changes(files.place, others.place, count, self._kinds.at(of), self._tests)
        table["before"][rows] = Before.OK
        table["before_size"][rows], table["before_identity"][rows] = others.size, others.state
        table["asked"][rows] |= CHANGE_KNOWN
        table["difference"][rows], table["reference"][rows] = (sums / count[:, None]).T
        for test, passed in zip(self._tests, close.T, strict=True):
            column = self._records.close[test]
            column[rows] = np.where(column[rows] == NOT_KNOWN, passed & (count > 0), column[rows])


def columns_of(sums: npt.NDArray[Any]) -> dict[str, Array]:
    """Returns the statistics of ``fields.FAST`` by name, from the sums of several arrays; NaN stands for None."""
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
"""The cost of opening a file, expressed in bytes to measure."""
MOST: Final = 1 << 25
"""Bytes of the biggest batch (a bigger file has its own batch): some 20 ms of work."""
LEAST: Final = 1 << 22
"""Bytes of the smallest batch that is worth handing to a worker: 256 small files."""
SHARES: Final = 6
"""Least number of batches for each worker, so that all workers end at about the same time."""


def costs(sizes: Int64) -> Int64:
    """Returns the cost of files in bytes; size -1 stands for a missing file."""
    cost: Int64 = np.maximum(sizes, 0) + LIKE_BYTES
    return cost


def compared_with(requests: ReadRequests, rows: Int64 | slice = slice(None)) -> Int64:
    """Returns the row that each file is compared with, -1 where its need asks for no comparison."""
    asking = np.array([*(need.previous for need in requests.needs), False])  # ONLY_COMPARED is the last one
    return np.where(asking[requests.need[rows]], requests.previous[rows], -1).astype(np.int64)


def batch_bounds(requests: ReadRequests, sizes: Int64, workers: int) -> Iterator[tuple[int, int]]:
    """Yields the first file and the end of every batch.

    The steps of a tensor (neighbours in ``requests``) stay together unless they are too much for one batch.
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
    """Returns the requests of ascending ``rows``, and the original row of each of their files.

    Previous files that are not in ``rows`` are added, only for comparison.
    """
    compared = compared_with(requests, rows)
    more = np.setdiff1d(compared[compared >= 0], rows)
    every = np.sort(np.concatenate([rows, more]))
    previous = np.full(len(every), -1, np.int32)
    mine = np.searchsorted(every, rows)
    previous[mine] = np.where(compared >= 0, np.searchsorted(every, compared), -1)
    need = np.full(len(every), ONLY_COMPARED, np.int16)
    need[mine] = requests.need[rows]
    return ReadRequests(requests.specs.take(every), previous, requests.needs, need), every


KEPT_BIG: Final = 1 << 24
"""Bytes up to which a big tensor's values are kept for the comparison with the next tensor."""


def read_all(requests: ReadRequests, checkpoint: Checkpoint | None = None) -> Records:
    """Reads every file of a batch and measures its need.

    A bad file raises nothing: its row has the error. Elements that are no numbers give a row without statistics. Files
    that are only compared get no row. ``checkpoint`` is called between files (small files: a few hundred) and between
    the pieces of a big tensor; it may raise to stop.
    """
    batch = _ReadBatch(requests, checkpoint)
    with np.errstate(all="ignore"):
        batch.run()
    return batch.records


_ALIGNED: Final = 16
"""Alignment of small members in their buffer."""
_PLAIN: Final = ("npy", "raw")
"""Formats of files whose values lie unchanged behind an optional header."""


class _ThreadBuffers(threading.local):
    """Buffers of a thread for the values of the current tensor and of the one before."""

    def __init__(self) -> None:
        self._pair = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._windows = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._members = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def take(self, nbytes: int) -> Bytes:
        """Returns a buffer; the buffer of the previous call stays unchanged."""
        self._pair.reverse()
        if len(self._pair[0]) < nbytes:
            self._pair[0] = np.empty(nbytes, np.uint8)
        return self._pair[0]

    def window(self) -> tuple[Bytes, Bytes]:
        """Returns buffers for small files and for small members; the buffers of the previous call stay unchanged."""
        for pair in (self._windows, self._members):
            pair.reverse()
            if not len(pair[0]):
                pair[0] = np.empty(WINDOW, np.uint8)
        return self._windows[0], self._members[0]


_buffers = _ThreadBuffers()


class _ReadBatch:
    def __init__(self, requests: ReadRequests, checkpoint: Checkpoint | None) -> None:
        self.records = Records(len(requests))
        self._requests = requests
        self._checkpoint = checkpoint
        self._paths = requests.specs.paths
        self._kind = requests.specs.kind
        self._raw = np.array([spec.format == "raw" for spec in requests.specs.kinds], np.bool_)
        self._whole = np.array([is_whole_file(spec) for spec in requests.specs.kinds], np.bool_)
        self._plain = np.array([spec.format in _PLAIN for spec in requests.specs.kinds], np.bool_)
        self._headers: list[SharedHeader] = []
        self._header_numbers: dict[int, dict[bytes, int]] = defaultdict(dict)
        self._layout_numbers: dict[tuple[DType, str, tuple[int, ...], bool], int] = {}
        self._files = SmallFiles.none(len(requests))
        self._held: tuple[int, OtherTensor] | None = None
        self._began = time.time_ns()
        self._before = compared_with(requests)
        self._again = np.zeros(len(requests), np.bool_)
        self._again[self._before[self._before >= 0]] = True
        for number, need in enumerate(requests.needs):
            put_asked(self.records, requests.need == number, need)

    def run(self) -> None:
        asked = self._requests.need != ONLY_COMPARED
        if not kernel.available():
            self._measure_others(np.flatnonzero(asked))
        else:
            kept = start = 0
            while start < len(asked):
                self._check()
                end = self._read_window(start)
                rows = start + np.flatnonzero(asked[start:end])
                among = self._files.header[rows] >= 0
                small = SmallTensors(self.records, self._headers)
                small.measure(rows[among], self._files[rows[among]])
                self._compare_small(small, rows[among & (self._before[rows] >= 0)], kept)
                self._measure_others(rows[~among])
                kept, start = start, end
        self._check()

    def _check(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint()

    def _spec(self, row: int) -> ReadSpec:
        return self._requests.specs.spec(row)

    # -- small tensors -----------------------------------------------------------------------------

    def _read_window(self, start: int) -> int:
        """Reads the small files from row ``start`` on into the buffers of the window before the last; returns end."""
        end = min(start + AHEAD, len(self._paths))
        window = slice(start, end)
        needed = self._again[window] | (self._requests.need[window] != ONLY_COMPARED)
        plain, (files_buffer, members_buffer) = self._plain[self._kind[window]], _buffers.window()
        rows = start + np.flatnonzero(needed & plain)
        files = self._read_small(rows, files_buffer)
        self._files.put(rows[: len(files.header)], files)
        end = int(rows[len(files.header)]) if len(files.header) < len(rows) else end
        self._read_members(start + np.flatnonzero(needed & ~plain)[: end - start], end, members_buffer)
        return end

    def _read_members(self, rows: Int64, end: int, buffer: Bytes) -> None:
        """Reads small tensors of files that hold several tensors; each file is opened once.

        Rows whose tensors are large, odd or damaged, or for which no room is left, stay without a header.
        """
        of_path: dict[bytes, list[int]] = {}
        for row in rows[rows < end].tolist():
            of_path.setdefault(self._paths[row], []).append(row)
        filled, place = 0, address(buffer)
        for path, members in of_path.items():
            state = file_state(path)
            try:
                opened = opener.open_regular(path)
            except (OSError, ValueError):
                continue
            try:
                for row in members:
                    taken = self._read_member(row, opened, buffer[filled:])
                    if taken >= 0:
                        self._files.place[row] = place + filled
                        self._files.size[row], self._files.state[row] = state
                        filled += taken
            finally:
                opener.close(opened[0])

    def _read_member(self, row: int, opened: tuple[int, os.stat_result], buffer: Bytes) -> int:
        """Reads a tensor if it is small; returns the bytes that its values take in the buffer, or -1."""
        try:
            with TensorFile(self._spec(row), opened) as file:
                layout = file.layout
                nbytes = layout.nbytes
                if nbytes > min(SMALL_MEMBER, len(buffer)) or (number := self._layout_number(layout)) < 0:
                    return -1
                held = file.read(0, layout.count, buffer).view(np.uint8)
                file.check(held.tobytes().count(0) // max(layout.dtype.itemsize, 1))
        except (UnreadableTensorError, MemoryError):
            return -1
        self._files.header[row] = number
        return -(-nbytes // _ALIGNED) * _ALIGNED

    def _layout_number(self, layout: ValueLayout) -> int:
        """Returns the header's index for a tensor in a file of several; -1: the kernel does not measure it."""
        key = layout.dtype, layout.name, layout.shape, layout.fortran
        number = self._layout_numbers.get(key)
        if number is None:
            number = self._layout_numbers[key] = self._header_of(replace(layout, offset=0))
        return number

    def _read_small(self, rows: Int64, buffer: Bytes) -> SmallFiles:
        """Reads files until a buffer is full; returns the files that were read."""
        if not len(rows):
            return SmallFiles.none(0)
        table = read_files([self._paths[row] for row in rows.tolist()], FIRST_READ, buffer)
        start, size, modified, changed, number = table.T
        there, kind = size > 10, self._kind[rows[: len(table)]]
        at = np.where(there, start, 0)
        length = 10 + buffer[at + 8].astype(np.int64) + (buffer[at + 9].astype(np.int64) << 8)
        header = self._numbers(buffer, kind, start, np.where(there, np.minimum(length * ~self._raw[kind], size), -1))
        found = np.flatnonzero(header >= 0)
        first, last = np.array([(each.start, each.end) for each in self._headers], np.int64).reshape(-1, 2).T
        more = size[found] - last[header[found]]
        header[found[(more < 0) | ((more > 0) & self._whole[kind[found]])]] = -1
        place = start + address(buffer)
        place[found] += first[header[found]]
        state = opener.state_of_times(modified, changed, number, self._began)
        sure = state > 0
        return SmallFiles(header, place, np.where(sure, size, UNSURE[0]), np.where(sure, state, UNSURE[1]))

    def _numbers(self, buffer: Bytes, kind: Int32, start: Int64, length: Int64) -> Int64:
        """Returns header indices for headers of these lengths; -1 for an invalid header or a negative length."""
        numbers = np.full(len(kind), -1, np.int64)
        end = start + length
        content = buffer[: int(end.max(initial=0))].tobytes()
        for each in np.unique(kind).tolist():
            mine, known = np.flatnonzero((kind == each) & (length >= 0)), self._header_numbers[each]
            keys = [content[first:last] for first, last in zip(start[mine].tolist(), end[mine].tolist(), strict=True)]
            for key in dict.fromkeys(keys):
                if key not in known:
                    known[key] = self._new_header(each, key)
            numbers[mine] = [known[key] for key in keys]
        return numbers

    def _new_header(self, kind: int, key: bytes) -> int:
        spec = self._requests.specs.kinds[kind]
        layout = raw_layout(spec) if self._raw[kind] else header_layout(key, spec.dtype)
        return self._header_of(layout) if layout is not None else -1

    def _header_of(self, layout: ValueLayout) -> int:
        """Returns the index of a new header with a layout; -1 where the kernel does not measure its type."""
        if not is_numeric(layout.dtype) or (elements := kind_of(layout.dtype)) is None:
            return -1
        number = self.records.meta_number(layout.meta)
        self._headers.append(SharedHeader(layout, number, elements, layout.offset, layout.offset + layout.nbytes))
        return len(self._headers) - 1

    def _compare_small(self, small: SmallTensors, rows: Int64, kept: int) -> None:
        """Compares small tensors with the previous step; files from row ``kept`` on are still in memory."""
        before = self._before[rows]
        others = self._files[before]
        others.header[before < kept] = -1
        singles: list[Bytes] = []
        alike = others.header == self._files.header[rows]
        for at in np.flatnonzero(~alike).tolist():
            if others.header[at] < 0 and self._plain[self._kind[before[at]]]:
                singles.append(np.empty(FIRST_READ, np.uint8))
                others.put(np.array([at]), self._read_small(before[at : at + 1], singles[-1]))
            alike[at] = self._is_alike(int(rows[at]), int(before[at]), others[np.array([at])])
        small.compare(rows[alike], self._files[rows[alike]], others[np.flatnonzero(alike)])

    def _is_alike(self, row: int, before: int, other: SmallFiles) -> bool:
        """Tells whether two small tensors agree in shape, type and order; if not, puts the answer for ``row``."""
        number = int(other.header[0])
        if number >= 0:
            mine, theirs = self._headers[int(self._files.header[row])].layout, self._headers[number].layout
            if mine.shape != theirs.shape:
                put_compared(self.records, row, ChangeResult(Before.SHAPE, (int(other.size[0]), int(other.state[0]))))
                return False
            if (mine.dtype, mine.fortran) == (theirs.dtype, theirs.fortran):
                return True
        self._compare_odd(row, before)
        return False

    def _compare_odd(self, row: int, before: int) -> None:
        """Compares a small tensor with a tensor of another type or order, or in an odd file."""
        sides = self._sides(row, before)
        try:
            with TensorFile(sides.spec) as file:
                _, answer = sides.measure(file)
        except (UnreadableTensorError, MemoryError):  # although it could be read a moment ago
            answer = ChangeResult(Before.UNREADABLE)
        put_compared(self.records, row, answer)

    # -- big tensors -------------------------------------------------------------------------------

    def _measure_others(self, rows: Int64) -> None:
        for row, before in zip(rows.tolist(), self._before[rows].tolist(), strict=True):
            self._measure_big(row, before)

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
        """Returns the reader of a tensor together with the tensor that it is compared with."""
        need = self._requests.needs[int(self._requests.need[row])]
        other = None
        if before >= 0:
            held = self._held
            other = held[1] if held is not None and held[0] == before else OtherTensor(self._spec(before))
        return PairReader(self._spec(row), other, need, self._checkpoint)

    def _measure_file(self, row: int, file: TensorFile, sides: PairReader, state: FileState) -> None:
        layout = file.layout
        if not is_numeric(layout.dtype):
            put_file(self.records, row, RecordState.NO_NUMBERS, layout, state)
        elif self._again[row] and layout.nbytes <= KEPT_BIG:
            self._held = None  # its values are valid until `take` is called again
            into = _buffers.take(layout.nbytes)
            self._put_big(row, file, sides, state, into)
            self._held = (
                row,
                OtherTensor(sides.spec, HeldValues(layout, into[: layout.nbytes].view(layout.dtype)), state),
            )
        else:
            self._put_big(row, file, sides, state)

    def _put_big(
        self, row: int, file: TensorFile, sides: PairReader, state: FileState, into: Bytes | None = None
    ) -> None:
        sums, answer = sides.measure(file, into)
        file.check(sums.stats.zeros)
        put_file(self.records, row, RecordState.MEASURED, file.layout, state)
        put_stats(self.records, row, sums)
        put_compared(self.records, row, answer)
