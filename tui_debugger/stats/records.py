"""Requests for statistics and their answers as columns, and answers that follow from known statistics without reading.

A batch of ``ReadRequests`` is the work of one executor task: small and picklable, it names files and holds no values.
Conditions are judged from records alone, so numpy (offline), torch (live, on the device) and a statistic.csv only have
to make ``Records``. ``derive`` fills in answers that follow from measured rows: a check with other thresholds reads no
tensor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Float64, Int8, Int32, Int64, Integers, Mask
from tui_debugger.model import AtLeast, ReadSpec, TensorMeta, TensorStats
from tui_debugger.stats.fields import STORED, STORED_NAMES

Bounds = tuple[float, float]
"""Inclusive (start, end) of a range; ±inf when a bound is not set."""
Closeness = tuple[float, float, bool]
"""(rtol, atol, equal_nan) of |cur − prev| ≤ atol + rtol·|prev|."""


@dataclass(frozen=True, slots=True)
class RequiredStats:
    """The quantities that the watchpoints on a tensor need beyond plain statistics.

    ``ranges``: count elements inside. ``change``: compare element by element with the previous step. ``closeness``: are
    all elements this close to the previous step's. ``previous_stats``: statistics at the previous step, read from its
    records.
    """

    ranges: frozenset[Bounds] = frozenset()
    change: bool = False
    closeness: frozenset[Closeness] = frozenset()
    previous_stats: bool = False

    @property
    def previous(self) -> bool:
        """Tells whether the previous step's tensor must be read as well."""
        return self.change or bool(self.closeness)

    def __or__(self, other: RequiredStats) -> RequiredStats:
        return RequiredStats(
            self.ranges | other.ranges,
            self.change or other.change,
            self.closeness | other.closeness,
            self.previous_stats or other.previous_stats,
        )

    def covers(self, other: RequiredStats) -> bool:
        """Tells whether a record made for this need also answers ``other``."""
        return (
            self.ranges >= other.ranges
            and (self.change or not other.change)
            and self.closeness >= other.closeness
            and (self.previous_stats or not other.previous_stats)
        )


@dataclass(frozen=True, slots=True)
class StepChange:
    """Comparison with the previous step's tensor of the same shape, in float64: mean |cur − prev| and mean |prev|.

    The first mean is NaN when either side has NaN, or when Inf meets the same Inf.
    """

    mean_abs_difference: float
    mean_abs_previous: float

    def ratio(self, epsilon: float) -> float:
        """Returns abs_mean_update_ratio: mean |cur − prev| / (mean |prev| + epsilon)."""
        return self.mean_abs_difference / (self.mean_abs_previous + epsilon)


@dataclass(frozen=True, slots=True)
class PreviousStats:
    """The statistics of the same tensor at the previous step, of any shape; ``state`` as ``Record.previous``."""

    state: str
    stats: TensorStats | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The measured statistics of one tensor.

    Attributes:
        meta: None when unreadable.
        stats: None when unreadable, or when the elements are no numbers (text, dates).
        ranges: number of elements inside each asked range (NaN is outside).
        change: None when not asked, or no previous tensor, or another shape.
        close: for each asked closeness whether *all* elements are close.
            previous: ``none`` (not asked or not dumped), ``ok``, ``shape`` (other shape), ``unreadable``, ``no value``
                (of this tensor or the previous one only statistics were dumped).
        error: why the tensor could not be read, one sentence; empty when it could.
        need: the need that this record answers.
    """

    meta: TensorMeta | None
    stats: TensorStats | None
    ranges: dict[Bounds, int] = field(default_factory=dict)
    change: StepChange | None = None
    close: dict[Closeness, bool] = field(default_factory=dict)
    previous: str = "none"
    error: str = ""
    need: RequiredStats = field(default_factory=RequiredStats)
    previous_stats: PreviousStats | None = None


ONLY_COMPARED = -1
"""Need of a file that is read only because another file is compared with it."""


@dataclass(frozen=True, slots=True)
class ReadSpecs:
    """Instructions to read several tensors: ``ReadSpec`` as columns.

    ``paths`` are ``os.fsencode`` bytes, so that names of any encoding survive. ``kind`` indexes into ``kinds``, the
    distinct specs without path; ``members`` names the tensor in each file, where ``kinds`` does not.
    """

    paths: Sequence[bytes]
    kinds: tuple[ReadSpec, ...]
    kind: Int32
    members: Sequence[str] = ()

    @classmethod
    def of(cls, specs: Iterable[ReadSpec]) -> ReadSpecs:
        """Makes columns from single specs; too slow for many."""
        paths, kinds, kind = list[bytes](), dict[ReadSpec, int](), list[int]()
        for spec in specs:
            paths.append(os.fsencode(spec.path))
            kind.append(kinds.setdefault(spec.at(""), len(kinds)))
        return cls(paths, tuple(kinds), np.array(kind, np.int32))

    def __len__(self) -> int:
        return len(self.paths)

    def spec(self, row: int) -> ReadSpec:
        member = self.members[row] if self.members else ""
        return self.kinds[int(self.kind[row])].at(os.fsdecode(self.paths[row]), member)

    def take(self, rows: Integers) -> ReadSpecs:
        used, kind = np.unique(self.kind[rows], return_inverse=True)
        at = rows.tolist()
        return ReadSpecs(
            [self.paths[row] for row in at],
            tuple(self.kinds[number] for number in used.tolist()),
            kind.astype(np.int32),
            [self.members[row] for row in at] if self.members else (),
        )


@dataclass(frozen=True, slots=True)
class ReadRequests:
    """A batch of requests. Neighbouring rows that are ascending steps of one tensor are read once each.

    ``previous`` is for each file the index (in ``specs``) of the same tensor at the previous step, -1 without one;
    usually smaller than the file's own index, best the index before it. ``need`` indexes into ``needs``, or is
    ``ONLY_COMPARED``.
    """

    specs: ReadSpecs
    previous: Int32
    needs: tuple[RequiredStats, ...]
    need: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.specs)


class RecordState:
    """States of a row; plain numbers, because comparing a column with an enumeration's member costs twice as much."""

    UNKNOWN: Final = 0
    """Not looked at."""
    MEASURED: Final = 1
    NO_NUMBERS: Final = 2
    """Elements are text, dates ...: type and shape are known, there are no statistics."""
    UNREADABLE: Final = 3
    COUNT: Final = 4
    """The number of states."""


class Before:
    """The state of the same tensor at the previous step, as numbers; ``BEFORE_WORDS`` has the words."""

    NONE: Final = 0
    OK: Final = 1
    SHAPE: Final = 2
    UNREADABLE: Final = 3
    NO_VALUE: Final = 4


BEFORE_WORDS: Final = ("none", "ok", "shape", "unreadable", "no value")
"""``Record.previous`` by ``Before``."""
_BEFORE_OF_STATE: Final = np.array([Before.NONE, Before.OK, Before.NO_VALUE, Before.UNREADABLE], np.int8)
"""``Before`` of a tensor, by the ``RecordState`` of the same tensor at the previous step."""

ROW: Final = np.dtype(
    [(each.name, f"<{each.form.value}") for each in STORED]
    + [
        ("difference", "<f8"),
        ("reference", "<f8"),
        ("size", "<i8"),
        ("identity", "<i8"),
        ("before_size", "<i8"),
        ("before_identity", "<i8"),
        ("meta", "<i4"),
        ("state", "u1"),
        ("before", "u1"),
        ("asked", "u1"),
        ("at_least", "u1"),
    ]
)
"""One tensor.

The statistics of ``fields.STORED`` (NaN stands for None), ``difference`` (mean |cur − prev|) and ``reference`` (mean
|prev|), size in bytes and modification time in ns of the file and of the previous step's file when they were read (0:
not reliable), index into ``metas``, ``RecordState``, ``Before``, bits ``CHANGE_ASKED`` and ``CHANGE_KNOWN``, bits of
``AtLeast``.
"""
_NAMES: Final = ROW.names or ()
_OPTIONAL: Final = tuple((each.name, each.unknown is None) for each in STORED)
"""Names of the stored statistics, and whether NaN stands for None."""
_PLACED: Final = 1 << 16
"""Rows that are copied at once: a copy of a million rows would take as much memory as everything else."""
_WHOLE: Final = np.dtype((np.void, ROW.itemsize))
"""A row as bytes: numpy copies selected rows 15 times as fast as this type (or by ``np.take``) as by field."""
CHANGE_ASKED: Final = 1
CHANGE_KNOWN: Final = 2
_stored_values: Final[Callable[[TensorStats], tuple[Any, ...]]] = attrgetter(*STORED_NAMES)
_NO_STATS: Final = (0,) * len(STORED)
_UNKNOWN_ROW: Final = (*_NO_STATS, 0.0, 0.0, 0, 0, 0, 0, -1, RecordState.UNKNOWN, 0, 0, 0)

PREVIOUS_ROW: Final = np.dtype(
    [*((each.name, f"<{each.form.value}") for each in STORED), ("before", "i1"), ("at_least", "u1")]
)
"""The statistics of the previous step, ``Before`` or ``NOT_ASKED``, and bits of ``AtLeast``."""

NOT_ASKED: Final = -1
"""In a column of ranges or closeness: not asked."""
NOT_KNOWN: Final = -2
"""Asked, but there was nothing to count or compare."""


def mean_tells_nan(largest: Float64, smallest: Float64, norm: Float64) -> Mask:
    """Tells for tensors whose recorded mean is NaN whether they hold NaN; NaN stands for a missing statistic.

    A mean is also NaN where infinities of both signs met, either elements or overflowed sums.
    """
    met = (largest == np.inf) & (smallest == -np.inf)
    overflowed = (norm == np.inf) & (largest > 0) & (smallest < 0)
    told: Mask = ~(met | overflowed)
    return told


class RecordedColumns(NamedTuple):
    """Statistics that a dump recorded of several tensors; ``rows`` are of type ``ROW``.

    ``right`` marks rows that are complete here; for other rows ask ``recorded`` of the table.
    """

    rows: npt.NDArray[Any]
    metas: tuple[TensorMeta, ...]
    right: Mask

    def stats(self, row: int) -> TensorStats | None:
        found = dict(zip(_NAMES, self.rows[row].item(), strict=True))
        return None if found["state"] == RecordState.UNKNOWN else _stats(found)

    def only_right(self) -> RecordedColumns:
        if self.right.all():
            return self
        at = np.flatnonzero(self.right)
        return RecordedColumns(np.take(self.rows, at), self.metas, self.right[at])


class Records:
    """The measured statistics of ``n`` tensors. The creator of the table defines which tensor a row is.

    Attributes:
        rows: structured array of ``ROW``; ``rows["meta"]`` indexes into ``metas``, -1 = unknown.
        errors: why a row is unreadable.
        ranges: for each asked range the number of elements inside, ``NOT_ASKED`` or ``NOT_KNOWN``.
        close: for each asked closeness 1 (all elements are close), 0, ``NOT_ASKED`` or ``NOT_KNOWN``.
        previous_stats: array of ``PREVIOUS_ROW``, or None when not asked; never kept on disk.
    """

    __slots__ = ("_meta_numbers", "close", "errors", "metas", "previous_stats", "ranges", "rows")

    def __init__(self, n: int) -> None:
        self.rows: npt.NDArray[Any] = np.zeros(n, ROW)
        self.rows["meta"] = -1
        self.metas: list[TensorMeta] = []
        self.errors: dict[int, str] = {}
        self.ranges: dict[Bounds, Int64] = {}
        self.close: dict[Closeness, Int8] = {}
        self.previous_stats: npt.NDArray[Any] | None = None
        self._meta_numbers: dict[TensorMeta, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def share(self, known: dict[bytes, npt.NDArray[Any]]) -> None:
        """Shares the rows with an equal table in ``known``; they become read-only, and a change copies them first."""
        self.rows = known.setdefault(blake2b(self.rows.tobytes(), digest_size=16).digest(), self.rows)
        self.rows.flags.writeable = False

    def _changed(self) -> npt.NDArray[Any]:
        """Returns ``rows`` for writing, copied first when they are shared."""
        if not self.rows.flags.writeable:
            self.rows = self.rows.copy()
        return self.rows

    def meta_number(self, meta: TensorMeta) -> int:
        number = self._meta_numbers.setdefault(meta, len(self.metas))
        if number == len(self.metas):
            self.metas.append(meta)
        return number

    def covers(self, need: RequiredStats, indices: Integers) -> Mask:
        """Tells which rows answer a need; an unreadable row answers every need."""
        state = self.rows["state"][indices]
        full = np.ones(len(state), np.bool_)
        if need.change:
            full &= (self.rows["asked"][indices] & CHANGE_ASKED) != 0
        columns: list[Int64 | Int8 | None] = [self.ranges.get(bounds) for bounds in need.ranges]
        columns += [self.close.get(closeness) for closeness in need.closeness]
        for column in columns:
            full &= column[indices] != NOT_ASKED if column is not None else np.False_
        if need.previous_stats:
            previous = self.previous_stats
            full &= previous["before"][indices] != NOT_ASKED if previous is not None else np.False_
        answered: Mask = (state != RecordState.UNKNOWN) & (full | (state != RecordState.MEASURED))
        return answered

    def get(self, index: int) -> Record | None:
        """Returns one row as a record; None when it is unknown."""
        row = self._row(index)
        if row["state"] == RecordState.UNKNOWN:
            return None
        need = RequiredStats(
            frozenset(bounds for bounds, column in self.ranges.items() if column[index] != NOT_ASKED),
            bool(row["asked"] & CHANGE_ASKED),
            frozenset(closeness for closeness, column in self.close.items() if column[index] != NOT_ASKED),
            (previous_stats := self._previous_stats(index)) is not None,
        )
        return Record(
            meta=self.metas[row["meta"]] if row["meta"] >= 0 else None,
            stats=_stats(row) if row["state"] == RecordState.MEASURED else None,
            ranges={bounds: int(column[index]) for bounds, column in self.ranges.items() if column[index] >= 0},
            change=StepChange(row["difference"], row["reference"]) if row["asked"] & CHANGE_KNOWN else None,
            close={closeness: bool(column[index]) for closeness, column in self.close.items() if column[index] >= 0},
            previous=BEFORE_WORDS[row["before"]],
            error=self.errors.get(index, "unreadable") if row["state"] == RecordState.UNREADABLE else "",
            need=need,
            previous_stats=previous_stats,
        )

    def _previous_stats(self, index: int) -> PreviousStats | None:
        if self.previous_stats is None:
            return None
        row = dict(zip(PREVIOUS_ROW.names or (), self.previous_stats[index].item(), strict=True))
        if row["before"] == NOT_ASKED:
            return None
        return PreviousStats(BEFORE_WORDS[row["before"]], _stats(row) if row["before"] == Before.OK else None)

    def _row(self, index: int) -> dict[str, Any]:
        """Returns a row as Python numbers; all fields at once: reading them one by one takes ten times as long."""
        return dict(zip(_NAMES, self.rows[index].item(), strict=True))

    @classmethod
    def of(cls, records: Sequence[Record | None]) -> Records:
        """Returns a table of records in their order; None makes an unknown row."""
        table = cls(len(records))
        if records:
            table.rows = np.array([table._values(each) for each in records], ROW)
        for index, record in enumerate(records):
            if record is not None:
                table._put_beside(index, record)
        return table

    def put(self, index: int, record: Record) -> None:
        self.forget(np.array([index]))
        self._changed()[index] = self._values(record)
        self._put_beside(index, record)

    def put_recorded(self, indices: Integers, records: Sequence[Record], need: RequiredStats) -> None:
        """Sets distinct rows of which no more than these statistics will ever be known: other needs are NOT_KNOWN."""
        self._changed().view(_WHOLE)[indices] = np.array([self._values(each) for each in records], ROW).view(_WHOLE)
        self._drop_errors(indices)
        self.errors |= {at: each.error for at, each in zip(indices.tolist(), records, strict=True) if each.error}
        self._ask_in_vain(indices, need)

    def put_recorded_columns(
        self, indices: Integers, found: RecordedColumns, no_value: Mask, need: RequiredStats
    ) -> None:
        """Does as ``put_recorded`` with columns whose rows are all right.

        ``no_value`` marks rows for which the previous step has no values to compare with.
        """
        taken = found.rows.copy()
        numbers = np.array([self.meta_number(meta) for meta in found.metas], np.int32)
        taken["meta"] = numbers[taken["meta"]]
        taken["before"] = np.where(no_value, Before.NO_VALUE, Before.NONE)
        taken["asked"] = CHANGE_ASKED if need.change else 0
        self._changed().view(_WHOLE)[indices] = taken.view(_WHOLE)
        self._drop_errors(indices)
        self._ask_in_vain(indices, need)

    def _ask_in_vain(self, indices: Integers, need: RequiredStats) -> None:
        """Marks everything that the need asks beyond statistics as asked but not known."""
        for bounds in need.ranges:
            self.range_column(bounds)[indices] = NOT_KNOWN
        for closeness in need.closeness:
            self.close_column(closeness)[indices] = NOT_KNOWN
        if need.previous_stats:
            before = self.previous_stats_column()["before"]
            before[indices[before[indices] == NOT_ASKED]] = Before.NONE

    def _values(self, record: Record | None) -> tuple[float, ...]:
        if record is None:
            return _UNKNOWN_ROW
        change = record.change
        asked = (CHANGE_ASKED if record.need.change else 0) | (CHANGE_KNOWN if change is not None else 0)
        meta = -1 if record.meta is None else self.meta_number(record.meta)
        state, stats = RecordState.NO_NUMBERS, None
        if record.error:
            state = RecordState.UNREADABLE
        elif record.stats is not None:
            state, stats = RecordState.MEASURED, record.stats
        difference, reference = (
            (change.mean_abs_difference, change.mean_abs_previous) if change is not None else (0.0, 0.0)
        )
        before = BEFORE_WORDS.index(record.previous)
        at_least = _at_least(record.stats)
        return (*_stored(stats), difference, reference, 0, 0, 0, 0, meta, state, before, asked, at_least)

    def _put_beside(self, index: int, record: Record) -> None:
        """Sets the entries of a row outside of ``rows``."""
        if record.error:
            self.errors[index] = record.error
        for bounds in record.need.ranges | record.ranges.keys():
            self.range_column(bounds)[index] = record.ranges.get(bounds, NOT_KNOWN)
        for closeness in record.need.closeness | record.close.keys():
            self.close_column(closeness)[index] = record.close.get(closeness, NOT_KNOWN)
        if record.previous_stats is not None or record.need.previous_stats:
            previous = record.previous_stats or PreviousStats("none")
            before, at_least = BEFORE_WORDS.index(previous.state), _at_least(previous.stats)
            self.previous_stats_column()[index] = (*_stored(previous.stats), before, at_least)

    def previous_stats_column(self) -> npt.NDArray[Any]:
        if self.previous_stats is None:
            self.previous_stats = np.zeros(len(self), PREVIOUS_ROW)
            self.previous_stats["before"] = NOT_ASKED
        return self.previous_stats

    def put_previous_stats(self, indices: Integers, other: Records, found: Integers) -> None:
        """Sets the statistics of the previous step; ``found``: the rows of ``indices`` in its table, -1 for none."""
        column = self.previous_stats_column()
        column["before"][indices] = Before.NONE
        indices, found = indices[found >= 0], found[found >= 0]
        taken = np.take(other.rows, found)
        for name in (*STORED_NAMES, "at_least"):
            column[name][indices] = taken[name]
        column["before"][indices] = _BEFORE_OF_STATE[taken["state"]]

    def range_column(self, bounds: Bounds) -> Int64:
        if bounds not in self.ranges:
            self.ranges[bounds] = np.full(len(self), NOT_ASKED, np.int64)
        return self.ranges[bounds]

    def close_column(self, closeness: Closeness) -> Int8:
        if closeness not in self.close:
            self.close[closeness] = np.full(len(self), NOT_ASKED, np.int8)
        return self.close[closeness]

    def forget(self, indices: Integers) -> None:
        self._changed().view(_WHOLE)[indices] = np.zeros(1, ROW).view(_WHOLE)
        self._changed()["meta"][indices] = -1
        self._clear_beside(indices)

    def _clear_beside(self, indices: Integers) -> None:
        """Makes the entries of rows outside of ``rows`` unknown."""
        self._drop_errors(indices)
        columns: Iterable[Int64 | Int8] = (*self.ranges.values(), *self.close.values())
        for column in columns:
            column[indices] = NOT_ASKED
        if self.previous_stats is not None:
            self.previous_stats["before"][indices] = NOT_ASKED

    def _drop_errors(self, indices: Integers) -> None:
        for index in self.errors.keys() & set(indices.tolist() if self.errors else ()):
            del self.errors[index]

    def compared(self) -> Mask:
        """Tells which rows were asked for their change since the previous step."""
        asked: Mask = (self.rows["asked"] & CHANGE_ASKED) != 0
        for column in self.close.values():
            asked |= column != NOT_ASKED
        return asked

    def forget_changes(self, indices: Integers) -> None:
        """Drops only the comparison with the previous step."""
        for name in ("asked", "before", "difference", "reference", "before_size", "before_identity"):
            self._changed()[name][indices] = 0
        for column in self.close.values():
            column[indices] = NOT_ASKED

    def part(self, start: int, stop: int) -> Records:
        """Returns a table of rows ``start`` to ``stop`` that shares its arrays with this table."""
        other = Records(0)
        other.rows = self.rows[start:stop]
        other.metas, other._meta_numbers = self.metas, self._meta_numbers
        other.errors = {index - start: text for index, text in self.errors.items() if start <= index < stop}
        other.ranges = {bounds: column[start:stop] for bounds, column in self.ranges.items()}
        other.close = {closeness: column[start:stop] for closeness, column in self.close.items()}
        other.previous_stats = None if self.previous_stats is None else self.previous_stats[start:stop]
        return other

    def place(self, other: Records, source: Integers, target: Integers) -> None:
        """Copies rows ``source`` of another table to rows ``target``, which are distinct."""
        self._clear_beside(target)
        numbers = np.array([self.meta_number(meta) for meta in other.metas] + [-1], np.int32)
        rows = self._changed().view(_WHOLE)
        for start in range(0, len(source), _PLACED):
            part = slice(start, start + _PLACED)
            taken = np.take(other.rows, source[part])
            taken["meta"] = numbers[taken["meta"]]
            rows[target[part]] = taken.view(_WHOLE)
        if other.errors:
            for at, index in zip(source.tolist(), target.tolist(), strict=True):
                if at in other.errors:
                    self.errors[index] = other.errors[at]
        for bounds, counts in other.ranges.items():
            self.range_column(bounds)[target] = counts[source]
        for closeness, answers in other.close.items():
            self.close_column(closeness)[target] = answers[source]
        if other.previous_stats is not None:
            self.previous_stats_column()[target] = other.previous_stats[source]


def _stored(stats: TensorStats | None) -> tuple[Any, ...]:
    """Returns the stored statistics; NaN stands for None."""
    values = _NO_STATS if stats is None else _stored_values(stats)
    return tuple(math.nan if value is None else value for value in values) if None in values else values


def _at_least(stats: TensorStats | None) -> int:
    return int(stats.at_least) if stats is not None else 0


def _stats(row: Mapping[str, Any]) -> TensorStats:
    values: dict[str, Any] = {
        name: None if optional and math.isnan(row[name]) else row[name] for name, optional in _OPTIONAL
    }
    return TensorStats(**values, at_least=AtLeast(row["at_least"]))


def holds_inf(rows: npt.NDArray[np.void]) -> Mask:
    found: Mask = (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0)
    return found


def holds_bad(rows: npt.NDArray[np.void]) -> Mask:
    """Tells which rows hold NaN or an infinity: see ``TensorStats.bad``."""
    found: Mask = (rows["nan"] > 0) | holds_inf(rows)
    return found


MARGIN: Final = 1e-6
"""Sums of differences are rounded; a conclusion needs this relative margin."""
HUGE: Final = 1e280
"""Differences of close values below this cannot overflow, however many are added up."""


def derive(records: Records, need: RequiredStats, rows: Integers) -> None:
    """Fills in what ``need`` asks, where the measured statistics leave only one answer; ``rows`` are distinct."""
    rows = rows[records.rows["state"][rows] == RecordState.MEASURED]
    for bounds in need.ranges:
        _derive_range(records, bounds, rows)
    for closeness in need.closeness:
        _derive_closeness(records, closeness, rows)


def derive_ranges(records: Records, need: RequiredStats, rows: Integers) -> None:
    """Counts elements inside ranges from recorded extremes where these leave only one answer.

    Rows with NaN or Inf are skipped: their extremes say too little.
    """
    table = np.take(records.rows, rows)
    finite = (table["nan"] == 0) & (table["pos_inf"] == 0) & (table["neg_inf"] == 0)
    rows = rows[finite & (table["state"] == RecordState.MEASURED) & (table["count"] > 0)]
    for bounds in need.ranges:
        column = records.range_column(bounds)
        column[rows[column[rows] == NOT_KNOWN]] = NOT_ASKED
        _derive_range(records, bounds, rows)
        column[rows[column[rows] == NOT_ASKED]] = NOT_KNOWN


def _derive_range(records: Records, bounds: Bounds, rows: Integers) -> None:
    """Derives the count where all finite elements lie inside, or none does."""
    column = records.range_column(bounds)
    rows = rows[column[rows] == NOT_ASKED]
    table, (start, end) = np.take(records.rows, rows), bounds
    infinite = np.where(end == math.inf, table["pos_inf"], 0) + np.where(start == -math.inf, table["neg_inf"], 0)
    finite = table["count"] - table["nan"] - table["pos_inf"] - table["neg_inf"]
    inside = (finite == 0) | ((table["minimum"] >= start) & (table["maximum"] <= end))
    outside = (finite > 0) & ((table["maximum"] < start) | (table["minimum"] > end))
    column[rows[inside]] = (finite + infinite)[inside]
    column[rows[outside]] = infinite[outside]


def _derive_closeness(records: Records, closeness: Closeness, rows: Integers) -> None:
    """Uses two bounds: no element differs by more than the sum, and some element differs at least by the mean."""
    column = records.close_column(closeness)
    rows = rows[column[rows] == NOT_ASKED]
    table, (rtol, atol, equal_nan) = np.take(records.rows, rows), closeness
    infinite = (table["pos_inf"] > 0) | (table["neg_inf"] > 0)
    asked = (table["asked"] & CHANGE_ASKED) != 0
    # NaN and Inf are reported instead of any comparison: see ``watch.evaluate``.
    idle = infinite | ((table["nan"] > 0) & (not equal_nan))
    column[rows[asked & (idle | (table["before"] != Before.OK))]] = NOT_KNOWN
    if not 0 <= rtol <= 0.5 or not 0 <= atol < HUGE:
        return
    compared = asked & (table["before"] == Before.OK) & ((table["asked"] & CHANGE_KNOWN) != 0) & (table["count"] > 0)
    compared &= ~infinite & (table["nan"] == 0)
    with np.errstate(all="ignore"):
        most = table["difference"] * table["count"] * (1 + MARGIN)
        allowed = (atol + rtol * table["reference"]) * (1 + MARGIN)
        # Close values of this size do not add up to Inf: a non-finite sum comes from a previous NaN or Inf.
        small = np.maximum(np.abs(table["minimum"]), np.abs(table["maximum"])) < HUGE
        far = (~np.isfinite(table["difference"]) & small) | (table["difference"] > allowed)
    close = (table["difference"] == 0) | (most <= atol)
    column[rows[compared & close]] = 1
    column[rows[compared & ~close & far]] = 0
