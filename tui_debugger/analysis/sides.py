"""A tensor side by side with what it is compared with, and what that puts into a row of records."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Final

from tui_debugger.analysis.comparison import compare
from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.npy import Layout, TensorFile, open_array
from tui_debugger.analysis.record import Change, Closeness, Need
from tui_debugger.analysis.records import CHANGE_ASKED, CHANGE_KNOWN, COUNTS, NOT_KNOWN, REALS, Before, Records, State
from tui_debugger.analysis.spans import (
    Bytes,
    Checkpoint,
    HeldValues,
    OtherUnreadableError,
    Sums,
    Values,
    measure_span,
    spans,
)
from tui_debugger.arrays import Mask
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec

FileState = tuple[int, int]
"""Size and modification time (ns) of a file; ``UNSURE`` when they are not to be relied on later."""
UNSURE: Final[FileState] = (0, 0)
YOUNG: Final = 2_000_000_000
"""Nanoseconds: a file that was written so shortly before may be written again without its time telling."""


def file_state(path: str | bytes) -> FileState:
    """How a file looks now. To be asked before it is read, so that what is written meanwhile shows later."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a path of bytes
    except (OSError, ValueError):
        return UNSURE
    return (status.st_size, status.st_mtime_ns) if status.st_mtime_ns <= time.time_ns() - YOUNG else UNSURE


Identity = tuple[int, int, int, int]
"""Size, times of modification and of change (ns), and number of a file: also a new file in its place differs."""


def identity(path: str | bytes) -> Identity | None:
    """What tells a file from what it was and from another one in its place; None when it is not there."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a path that is no text would not survive pathlib
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@dataclass(slots=True)
class Other:
    """What a tensor is compared with.

    Attributes:
        spec: how it is read.
        held: its values, when they have just been read.
        state: how its file looked then.
    """

    spec: ReadSpec
    held: HeldValues | None = None
    state: FileState = UNSURE


@dataclass(slots=True)
class Compared:
    """What became of a comparison; the fields are those of ``Record``."""

    before: Before = Before.NONE
    state: FileState = UNSURE
    change: Change | None = None
    close: dict[Closeness, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """How a tensor and what it is compared with are read.

    Attributes:
        spec: the tensor.
        other: what it is compared with; None when nothing is asked about that, or there is none.
        need: what is asked.
        checkpoint: called between the pieces; may raise to stop.
        span: first element and end of what is to be measured; None for all.
    """

    spec: ReadSpec
    other: Other | None
    need: Need
    checkpoint: Checkpoint | None = None
    span: tuple[int, int] | None = None

    def measure(self, file: TensorFile, room: Bytes | None = None) -> tuple[Sums, Compared]:
        """Reads both, each once wherever that is possible.

        Args:
            file: the tensor, open; its elements are numbers.
            room: takes its values.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, or the device fails.
        """
        other = self.other
        if other is None:
            return self._sums(file, None, room), Compared()
        if other.held is not None:
            return self._against(file, other.held, other.state, room)
        state = file_state(other.spec.path)
        try:
            opened = TensorFile(other.spec)
        except UnreadableTensorError:
            return self._sums(file, None, room), Compared(Before.UNREADABLE, state)
        with opened:
            return self._against(file, opened, state, room)

    def _against(self, file: TensorFile, other: Values, state: FileState, room: Bytes | None) -> tuple[Sums, Compared]:
        mine, theirs = file.layout, other.layout
        if mine.shape != theirs.shape:
            return self._sums(file, None, room), Compared(Before.SHAPE, state)
        if is_numeric(theirs.dtype) and mine.fortran == theirs.fortran:
            try:
                sums = self._sums(file, other, room)
            except OtherUnreadableError:
                pass
            else:
                return sums, compared(sums, state)
        sums, answer = self._sums(file, None, room), Compared(Before.UNREADABLE, state)
        if is_numeric(theirs.dtype) and mine.fortran != theirs.fortran and self.other is not None:
            try:
                pair = open_array(self.spec), open_array(self.other.spec)
            except UnreadableTensorError:
                return sums, answer
            change, close = compare(*pair, self.need.closeness)
            answer = Compared(Before.OK, state, change, close)
        return sums, answer

    def _sums(self, file: Values, other: Values | None, room: Bytes | None) -> Sums:
        wanted = spans(file.layout.count) if self.span is None else (self.span,)
        parts = (measure_span(file, other, self.need, span, self.checkpoint, room=room) for span in wanted)
        total = next(parts)
        for part in parts:
            total.merge(part)
        return total


def compared(sums: Sums, state: FileState) -> Compared:
    """The outcome of a comparison that went well; of none when there was nothing to compare with."""
    if sums.change is None:
        return Compared()
    return Compared(Before.OK, state, *sums.change.result())


def put_file(records: Records, row: int, state: State, layout: Layout, seen: FileState) -> None:
    """What a file is."""
    at = records.rows[row]
    at["state"], at["meta"] = state, records.meta_number(layout.meta)
    at["size"], at["mtime"] = seen


def put_error(records: Records, row: int, error: str, seen: FileState) -> None:
    """Why a file cannot be read."""
    at = records.rows[row]
    at["state"] = State.UNREADABLE
    at["size"], at["mtime"] = seen
    records.errors[row] = error


def put_stats(records: Records, row: int, sums: Sums) -> None:
    """What its elements add up to."""
    at = records.rows[row]
    for name, value in zip((*COUNTS, *REALS), sums.stats.values(), strict=True):
        at[name] = value
    for bounds, inside in sums.stats.ranges.items():
        records.ranges[bounds][row] = inside


def put_compared(records: Records, row: int, answer: Compared) -> None:
    """What became of the comparison."""
    at = records.rows[row]
    at["before"] = answer.before
    at["before_size"], at["before_mtime"] = answer.state
    if answer.change is not None:
        at["asked"] |= CHANGE_KNOWN
        at["difference"], at["reference"] = answer.change.mean_abs_difference, answer.change.mean_abs_previous
    for closeness, close in answer.close.items():
        records.close[closeness][row] = close


def put_asked(records: Records, rows: Mask, need: Need) -> None:
    """What was asked about some rows; whatever is found replaces it."""
    if need.change:
        records.rows["asked"][rows] = CHANGE_ASKED
    for bounds in need.ranges:
        records.range_column(bounds)[rows] = NOT_KNOWN
    for closeness in need.closeness:
        records.close_column(closeness)[rows] = NOT_KNOWN
