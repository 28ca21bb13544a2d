"""Takes a batch of looks: reads each file once, in order, and fills in a row of records.

Most tensors of real dumps are small and lie in a file of a few hundred bytes. Such a file costs one open, one fstat,
one read and one close; its header is looked up among those seen before, and its values wait to be measured together
with others (see ``window``). Bigger tensors are read piece by piece (see ``spans``).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Final

import numpy as np

from tui_debugger.analysis.cut import compared_with
from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.looks import ONLY_COMPARED, Looks
from tui_debugger.analysis.npy import FIRST_READ, Layout, TensorFile, header_layout, raw_layout
from tui_debugger.analysis.records import Before, Records, State
from tui_debugger.analysis.sides import (
    UNSURE,
    YOUNG,
    Compared,
    FileState,
    Other,
    SideBySide,
    file_state,
    put_asked,
    put_compared,
    put_error,
    put_file,
    put_stats,
)
from tui_debugger.analysis.spans import Bytes, Checkpoint, HeldValues
from tui_debugger.analysis.window import LIKE_ELEMENTS, Group, Window, fits
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.opener import open_regular

HELD: Final = 1 << 24
"""Bytes up to which the values of a big tensor are kept for the next one to be compared with."""
KEPT_SMALL: Final = 1 << 20
"""Bytes of small files that are kept for the same purpose."""


def look_all(looks: Looks, checkpoint: Checkpoint | None = None) -> Records:
    """Reads every file of a batch and measures what its need asks for.

    Never raises for a bad file: its row says what is wrong. Elements without numbers (text, dates) give a row with type
    and shape and no statistics. Files that are only compared with get no row.

    Args:
        looks: what to read.
        checkpoint: called between files (small ones: between a few hundred of them) and between the pieces of a big
            tensor; may raise to stop.
    """
    batch = _Batch(looks, checkpoint)
    with np.errstate(all="ignore"):
        batch.run()
    return batch.records


_Header = tuple[Layout, int, Group, int, int, int]
"""What is known of all small files with one header: layout, number of type and shape, where their values wait, where
they begin and end in the file, how many there are. A plain tuple: it is taken apart for every file."""
_START: Final = 3
_END: Final = 4

_File = tuple[_Header, bytes, int, int]
"""A small file that was read: header, bytes of its elements, size and modification time."""


class _Buffers(threading.local):
    """Where a thread keeps the values of the tensor that it reads, and those of the one before."""

    def __init__(self) -> None:
        self._pair = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def room(self, nbytes: int) -> Bytes:
        """A buffer; that of the call before stays as it is."""
        self._pair.reverse()
        if len(self._pair[0]) < nbytes:
            self._pair[0] = np.empty(nbytes, np.uint8)
        return self._pair[0]


_buffers = _Buffers()


class _Batch:
    """The work on one batch."""

    def __init__(self, looks: Looks, checkpoint: Checkpoint | None) -> None:
        self.records = Records(len(looks))
        self._looks = looks
        self._checkpoint = checkpoint
        self._paths = looks.specs.paths
        self._kind: list[int] = looks.specs.kind.tolist()
        self._raw = [spec.format == "raw" for spec in looks.specs.kinds]
        self._headers: list[dict[bytes, _Header | None]] = [{} for _ in looks.specs.kinds]
        self._files: dict[int, _File] = {}
        self._files_room = KEPT_SMALL
        self._held: tuple[int, Other] | None = None
        self._believed = time.time_ns() - YOUNG
        self._before = compared_with(looks).tolist()
        self._again = set(self._before)
        for number, need in enumerate(looks.needs):
            put_asked(self.records, looks.need == number, need)
        self._window = Window(looks, self.records)

    def run(self) -> None:
        """Looks at everything."""
        window, read_small, files, again = self._window, self._read_small, self._files, self._again
        for row, (need, before) in enumerate(zip(self._looks.need.tolist(), self._before, strict=True)):
            if need == ONLY_COMPARED:
                continue
            file = read_small(row)
            if file is None:
                self._look_big(row, before)
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
            window.room -= count + LIKE_ELEMENTS
            if window.room <= 0:
                self._measure_window()
        self._measure_window()

    def _measure_window(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint()
        self._window.measure()

    def _spec(self, row: int) -> ReadSpec:
        return replace(self._looks.specs.kinds[self._kind[row]], path=os.fsdecode(self._paths[row]))

    # -- small tensors -----------------------------------------------------------------------------

    def _read_small(self, row: int) -> _File | None:
        """A small file in one go; None when it is not small, or anything about it is odd."""
        try:
            fd, status = open_regular(self._paths[row])
        except (OSError, ValueError):
            return None
        try:
            size = status.st_size
            if size > FIRST_READ:
                return None
            data = os.read(fd, size)
        except OSError:
            return None
        finally:
            os.close(fd)
        if len(data) < size or size <= 10:
            return None
        kind = self._kind[row]
        key = b"" if self._raw[kind] else data[: 10 + data[8] + (data[9] << 8)]
        known = self._headers[kind]
        header = known[key] if key in known else self._new_header(kind, key)
        if header is None or size < header[_END]:
            return None
        time_ns = status.st_mtime_ns
        values = data[header[_START] : header[_END]]
        return (header, values, size, time_ns) if time_ns <= self._believed else (header, values, *UNSURE)

    def _new_header(self, kind: int, key: bytes) -> _Header | None:
        spec = self._looks.specs.kinds[kind]
        layout = raw_layout(spec) if self._raw[kind] else header_layout(key, spec.dtype)
        header = None
        if layout is not None and fits(layout):
            number, group = self.records.meta_number(layout.meta), self._window.group(layout.dtype)
            header = (layout, number, group, layout.offset, layout.offset + layout.nbytes, layout.count)
        self._headers[kind][key] = header
        return header

    def _keep_file(self, row: int, file: _File) -> None:
        self._files_room -= len(file[1])
        if self._files_room < 0:
            self._files.clear()
            self._files_room = KEPT_SMALL
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

    def _look_big(self, row: int, before: int) -> None:
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

    def _sides(self, row: int, before: int) -> SideBySide:
        """How a tensor is read together with what it is compared with."""
        need = self._looks.needs[int(self._looks.need[row])]
        other = None
        if before >= 0:
            held = self._held
            other = held[1] if held is not None and held[0] == before else Other(self._spec(before))
        return SideBySide(self._spec(row), other, need, self._checkpoint)

    def _measure_file(self, row: int, file: TensorFile, sides: SideBySide, state: FileState) -> None:
        layout = file.layout
        if not is_numeric(layout.dtype):
            put_file(self.records, row, State.NO_NUMBERS, layout, state)
        elif fits(layout):  # a small tensor in a big file, or under a header of another version
            meta, values = self.records.meta_number(layout.meta), file.read(0, layout.count).tobytes()
            self._window.add(self._window.group(layout.dtype), (row, values, layout.count, meta, *state))
            if sides.other is not None:
                put_compared(self.records, row, sides.measure(file)[1])
        elif row in self._again and layout.nbytes <= HELD:
            self._held = None  # its values stay where they are until the next room is asked for
            room = _buffers.room(layout.nbytes)
            self._put_big(row, file, sides, state, room)
            self._held = (row, Other(sides.spec, HeldValues(layout, room[: layout.nbytes].view(layout.dtype)), state))
        else:
            self._put_big(row, file, sides, state)

    def _put_big(
        self, row: int, file: TensorFile, sides: SideBySide, state: FileState, room: Bytes | None = None
    ) -> None:
        sums, answer = sides.measure(file, room)
        put_file(self.records, row, State.MEASURED, file.layout, state)
        put_stats(self.records, row, sums)
        put_compared(self.records, row, answer)
