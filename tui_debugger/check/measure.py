"""Reads files tensor by tensor, each through its steps, so that tensors to compare are read once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int64, Mask
from tui_debugger.check.flow import DataFlow
from tui_debugger.check.plan import RequiredByStep
from tui_debugger.check.records import RankStats, StepStats, StoredStats
from tui_debugger.model import Progress, ProgressFn, ReadSpec, TensorMeta, TensorStats, no_progress
from tui_debugger.sources.base import TensorFlag, TensorTable, tensor_keys
from tui_debugger.stats.records import (
    CHANGE_ASKED,
    NOT_ASKED,
    ONLY_COMPARED,
    Before,
    ReadRequests,
    ReadSpecs,
    Record,
    Records,
    RecordState,
    RequiredStats,
    derive,
    derive_ranges,
)
from tui_debugger.stats.scan import Meanwhile, no_other_work, scan
from tui_debugger.stats.workers import MeasureWorkers

Tables = Callable[[int], TensorTable]
"""The table of a step."""
Keeper = Callable[[int], object]
"""Returns the object that keeps the records of a step."""

_ENTRY: Final = np.dtype(
    [
        ("key", "<i8"),
        ("step", "<i8"),
        ("index", "<i8"),
        ("before", "<i8"),
        ("before_index", "<i8"),
        ("need", "<i2"),
        ("valueless", "?"),
    ]
)
"""A file: its tensor, its place, and the file that it is compared with (-1: none)."""


class FileReading:
    """Files in the order in which they are read.

    ``valueless`` marks files whose counterpart to compare with has statistics only. ``by_step``: the files are ordered
    by step, as nothing is compared. ``sizes`` are approximate bytes, -1 without a file.
    """

    def __init__(
        self,
        entries: Array,
        needs: tuple[RequiredStats, ...],
        specs: ReadSpecs,
        sizes: Int64,
        keeper: Keeper,
    ) -> None:
        """``entries`` hold every file once: sorted by tensor, then step, if any are compared; else by step."""
        self.step: Int64 = entries["step"].copy()  # a column of its own does not keep the others
        self.index: Int64 = entries["index"].copy()
        self.valueless: Mask = entries["valueless"].copy()
        self.sizes = sizes
        self.by_step = bool((np.diff(self.step) >= 0).all())
        self._keeper = keeper
        previous = np.full(len(entries), -1, np.int32)
        compared = np.flatnonzero(entries["before"] >= 0)
        if len(compared):
            places = _places(self.step, self.index)
            by = np.argsort(places)
            before = _places(entries["before"][compared], entries["before_index"][compared])
            previous[compared] = by[np.searchsorted(places[by], before)]
        self.requests = ReadRequests(specs, previous, needs, entries["need"].copy())

    def answers(self, step: int, keeper: object, need: RequiredStats, rows: Int64) -> Mask:
        """Tells which rows of a step's table are read for a need (or more), and will be kept by ``keeper``."""
        enough = np.array(
            [*(each.covers(need) for each in self.requests.needs), False]
        )  # the last one is for ONLY_COMPARED
        found = self.index[(self.step == step) & enough[self.requests.need]]
        if not len(found) or self._keeper(step) is not keeper:  # another rank's, or listed anew meanwhile
            return np.zeros(len(rows), np.bool_)
        return np.isin(rows, found)

    def before(self, at: int) -> list[str]:
        before = int(self.requests.previous[at])
        return [os.fsdecode(self.requests.specs.paths[before])] if before >= 0 else []


class ReadingList:
    """Collects the files to read."""

    def __init__(self) -> None:
        self._entries: list[Array] = []
        self._needs: dict[RequiredStats, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries))

    def add(
        self, step: int, table: TensorTable, rows: Int64, need: RequiredStats, compared: tuple[Int64, Int64, Mask]
    ) -> None:
        """Adds rows of a step with the same need; ``compared``: see ``Measurements._compared``."""
        entries = np.zeros(len(rows), _ENTRY)
        entries["key"] = tensor_keys(table.node[rows], table.side[rows], table.slot[rows])
        entries["step"], entries["index"] = step, rows
        entries["before"], entries["before_index"], entries["valueless"] = compared
        entries["need"] = self._needs.setdefault(need, len(self._needs))
        self._entries.append(entries)

    def sorted(self, table: Tables, sizes: Callable[[int], Int64], keeper: Keeper) -> FileReading:
        """Every file once: by tensor, then step, including files that are only compared with; else by step."""
        entries = self._entries[0] if len(self._entries) == 1 else np.concatenate(self._entries)
        self._entries.clear()
        compared = np.take(entries, np.flatnonzero(entries["before"] >= 0))
        only = np.zeros(len(compared), _ENTRY)
        only["key"], only["step"], only["index"] = compared["key"], compared["before"], compared["before_index"]
        only["need"], only["before"], only["before_index"] = ONLY_COMPARED, -1, -1
        if len(only):
            entries = np.concatenate([entries, only])
        if not (np.diff(_places(entries["step"], entries["index"])) > 0).all():  # else each is there once, in order
            entries = np.take(entries, np.argsort(-entries["need"], kind="stable"))  # the largest need comes first
            _, first = np.unique(_places(entries["step"], entries["index"]), return_index=True)
            entries = np.take(entries, first)
        if len(only):  # else step by step: a file may hold all tensors of its step
            entries = np.take(entries, np.lexsort((entries["index"], entries["step"], entries["key"])))
        specs, own = _specs(entries, table, sizes)
        return FileReading(entries, tuple(self._needs), specs, own, keeper)


def _places(step: Int64, index: Int64) -> Int64:
    """One number for each file; a step has fewer than 2³² files."""
    places: Int64 = (step << 32) + index
    return places


def _specs(entries: Array, table: Tables, sizes: Callable[[int], Int64]) -> tuple[ReadSpecs, Int64]:
    steps = np.unique(entries["step"]).tolist()
    if len(steps) == 1:
        rows = entries["index"]
        return table(steps[0]).specs(rows), sizes(steps[0])[rows]
    kinds: dict[ReadSpec, int] = {}
    paths: list[bytes] = []
    members: list[str] = []
    kind, own = np.zeros(len(entries), np.int32), np.zeros(len(entries), np.int64)
    by_step = np.argsort(entries["step"], kind="stable")
    for step in steps:
        of = np.flatnonzero(entries["step"] == step)
        rows = entries["index"][of]
        specs = table(step).specs(rows)
        numbers = np.array([kinds.setdefault(spec, len(kinds)) for spec in specs.kinds], np.int32)
        kind[of] = numbers[specs.kind]
        members += specs.members or [""] * len(rows)
        paths += specs.paths
        own[of] = sizes(step)[rows]
    at = np.empty(len(by_step), np.int64)
    at[by_step] = np.arange(len(by_step))
    places = at.tolist()
    own_members = [members[place] for place in places] if any(members) else ()
    return ReadSpecs([paths[place] for place in places], tuple(kinds), kind, own_members), own


Needs = Mapping[tuple[int, int], RequiredStats]
"""The statistics that have to be known, by (step, index in that step's table)."""


SAMPLE: Final = 16
"""Files whose sizes are asked for to find out whether two steps are alike."""


class Measurements:
    """Records of the tensors that a data flow has pinned."""

    def __init__(self, flow: DataFlow, rank_stats: RankStats, workers: MeasureWorkers, memory: StoredStats) -> None:
        """``rank_stats`` holds and takes records, ``memory`` has the records of earlier sessions."""
        self.flow = flow
        self._rank_stats = rank_stats
        self._workers = workers
        self._memory = memory

    def locked(self) -> AbstractContextManager[object]:
        """While this lock is held, no other thread adds records, which makes rows unknown for a moment."""
        return self._rank_stats.lock

    def record(self, step: int, index: int) -> Record | None:
        return self._rank_stats.get(step, self.flow.table(step), index)

    def known(self, step: int, index: int) -> Record | None:
        self.kept(step)
        return self.record(step, index)

    def records(self, step: int) -> Records:
        """The records of all tensors of a step; row numbers are those of its table."""
        return self.kept(step).records

    def kept(self, step: int) -> StepStats:
        """The records of a step, including those of earlier sessions."""
        kept = self._rank_stats.at(step, self.flow.table(step))
        if not kept.remembered:
            with self._rank_stats.lock:
                self._memory.recall(step, kept, lambda rows: self.befores(step, rows), self._states)
        return kept

    def verified(self, step: int) -> Iterator[bool | None]:
        kept = self.kept(step)
        known = np.flatnonzero(kept.records.rows["state"] == RecordState.MEASURED)
        return self._memory.verified(kept, known, self._states(step))

    def ensure(self, needs: Needs, progress: ProgressFn = no_progress, text: str = "") -> None:
        """Measures every tensor of ``needs`` that is not known well enough; keeps what it measured when cancelled."""
        required, looking_back = RequiredByStep(), dict[int, list[int]]()
        for (step, index), need in needs.items():
            required.ask(step, self.flow.table(step), np.array([index]), replace(need, previous_stats=False))
            if need.previous_stats:
                looking_back.setdefault(step, []).append(index)
        for step, indices in looking_back.items():
            before, found = self.befores(step, np.array(indices))
            for earlier in np.unique(before[before >= 0]).tolist():
                required.ask(earlier, self.flow.table(earlier), np.unique(found[before == earlier]), RequiredStats())
        self.ensure_all(required, progress, text)
        for step, indices in looking_back.items():
            self.fill_previous_stats(step, np.array(indices))

    def ensure_all(self, required: RequiredByStep, progress: ProgressFn = no_progress, text: str = "") -> None:
        reading = self.missing(required)
        if reading is not None:
            self.read(reading, progress, text)

    def missing(self, required: RequiredByStep, under_way: FileReading | None = None) -> FileReading | None:
        """Returns the files to read for ``required``; None if nothing has to be read. ``under_way`` is being read."""
        readings = ReadingList()
        for step in required.steps():
            table, kept = self.flow.table(step), self.kept(step)
            for need, rows in self._missing(required, step):
                left = rows if under_way is None else rows[~under_way.answers(step, kept, need, rows)]
                if len(left):
                    readings.add(step, table, left, need, self._compared(step, left, need))
        return readings.sorted(self.flow.table, self._sizes, self.kept) if readings else None

    def read(
        self,
        reading: FileReading,
        progress: ProgressFn = no_progress,
        text: str = "",
        meanwhile: Meanwhile = no_other_work,
    ) -> None:
        """Measures the files that ``missing`` found; when ``progress`` cancels, finished measurements are kept."""

        def tell(snapshot: Progress) -> None:
            progress(Progress(snapshot.done, snapshot.total, text))

        place = partial(self._place, reading)
        # A second table of a million tensors takes 160 MB; a batch that spans many steps would touch each table.
        result = None if reading.by_step else Records(len(reading.requests))
        to = place if result is None else result.place
        try:
            scan(reading.requests, reading.sizes, self._workers, to, tell, meanwhile=meanwhile)
        finally:
            if result is not None:
                done = np.flatnonzero(result.rows["state"] != RecordState.UNKNOWN)
                place(result, done, done)
            self._memory.keep(self._kept_of(step) for step in np.unique(reading.step).tolist())

    def cost(self, required: RequiredByStep) -> int:
        """Bytes of the tensors that ``ensure_all`` would read, without previous steps; 0 when everything is known."""
        total = 0
        for step in required.steps():
            rows = [rows for _, rows in self._missing(required, step)]
            if rows:
                sizes = self._sizes(step)
                total += int(np.maximum(sizes[np.concatenate(rows)], 0).sum())
        return total

    def size(self, step: int) -> int:
        return int(np.maximum(self._sizes(step), 0).sum())

    def look_at(self, step: int) -> None:
        """Lists a step and finds out the sizes of its files in advance, so that a check need not wait for that."""
        self._sizes(step)

    def _sizes(self, step: int) -> Int64:
        """The approximate sizes of a step's files; only the order of the work depends on them.

        Asking for every file costs a tenth of reading them. If another step has the same tensors, and the largest are
        as large here, its sizes are used.
        """
        kept = self._rank_stats.at(step, self.flow.table(step))
        if kept.sizes is None:
            kept.sizes = self._sizes_as_elsewhere(kept) if kept.states is None else None
        if kept.sizes is None:
            kept.sizes = kept.table.own_sizes(self._states(step)[0])
        return kept.sizes

    def _sizes_as_elsewhere(self, kept: StepStats) -> Int64 | None:
        for other in self._rank_stats.steps().values():
            if other.table.node is kept.table.node and other.states is not None:
                sizes = other.states[0]
                largest = np.argsort(sizes, kind="stable")[-SAMPLE:]
                alike = np.array_equal(kept.table.file_states(largest)[0], sizes[largest])
                return kept.table.own_sizes(sizes) if alike else None
        return None

    def befores(self, step: int, rows: Int64) -> tuple[Int64, Int64]:
        """The step and table row of each row's previous value; -1, -1 where there is none."""
        table = self.flow.table(step)
        node = table.node[rows].astype(np.int64)
        return self.flow.befores(step, node, table.side[rows], table.slot[rows], table.round[rows])

    def fill_previous_stats(self, step: int, rows: Int64) -> None:
        """Copies the statistics of previous values, which must be known by now, to rows of a step."""
        if not len(rows):
            return
        before, index = self.befores(step, rows)
        records = self.records(step)
        records.put_previous_stats(rows, records, np.full(len(rows), -1))
        for earlier in np.unique(before[before >= 0]).tolist():
            of = before == earlier
            records.put_previous_stats(rows[of], self.records(earlier), index[of])

    def _states(self, step: int) -> tuple[Int64, Int64]:
        kept = self._rank_stats.at(step, self.flow.table(step))
        if kept.states is None:
            kept.states = kept.table.file_states(np.arange(len(kept.table)))
        return kept.states

    def _missing(self, required: RequiredByStep, step: int) -> list[tuple[RequiredStats, Int64]]:
        """Returns (need, rows) of a step that have to be read; fills in rows of recorded statistics on the way."""
        kept = self.kept(step)
        valueless = (kept.table.flags & int(TensorFlag.STAT_ONLY)) != 0
        missing = []
        for need, rows in required.of_step(step):
            derive(kept.records, need, rows[~valueless[rows]])
            open_rows = rows[~kept.records.covers(need, rows)]
            recorded = open_rows[valueless[open_rows]]
            self._put_recorded(kept, step, recorded, need)
            derive_ranges(kept.records, need, recorded)
            open_rows = open_rows[~valueless[open_rows]]
            if len(open_rows):
                # The amount of change costs nothing once a change is looked for, and answers more questions later.
                change = RequiredStats(change=need.previous)
                missing.append((need | change | _asked(kept.records, open_rows), open_rows))
        return missing

    def _put_recorded(self, kept: StepStats, step: int, rows: Int64, need: RequiredStats) -> None:
        if not len(rows):
            return
        table, whole = kept.table, need | _asked(kept.records, rows)
        first = self.flow.starts(step, table.node[rows].astype(np.int64), table.side[rows], table.round[rows])
        columns = table.recorded_columns(rows)
        right = columns.right if columns is not None else np.zeros(len(rows), np.bool_)
        found = [
            _recorded(table, index, whole, first_step=alone)
            for index, alone in zip(rows[~right].tolist(), first[~right].tolist(), strict=True)
        ]
        with self._rank_stats.lock:
            if columns is not None and right.any():
                kept.records.put_recorded_columns(
                    rows[right], columns.only_right(), whole.previous & ~first[right], whole
                )
            if found:
                kept.records.put_recorded(rows[~right], found, whole)
            if table.memo is not None:
                kept.records.share(table.memo.setdefault(Records, {}))

    def _compared(self, step: int, rows: Int64, need: RequiredStats) -> tuple[Int64, Int64, Mask]:
        """For each row the step and row that it is compared with (-1), and whether that has no values."""
        nothing = np.full(len(rows), -1, np.int64)
        valueless = np.zeros(len(rows), np.bool_)
        if not need.previous:
            return nothing, nothing, valueless
        before, index = self.befores(step, rows)
        for earlier in np.unique(before[before >= 0]).tolist():
            of = np.flatnonzero(before == earlier)
            valueless[of] = (self.flow.table(earlier).flags[index[of]] & int(TensorFlag.STAT_ONLY)) != 0
        return np.where(valueless, -1, before), np.where(valueless, -1, index), valueless

    def _place(self, reading: FileReading, records: Records, source: Int64, files: Int64) -> None:
        """Stores measured records: row ``source[i]`` belongs to file ``files[i]`` of the reading."""
        records.rows["before"][source[reading.valueless[files]]] = Before.NO_VALUE
        steps = reading.step[files]
        for step in np.unique(steps).tolist():
            of = steps == step
            kept, target = self._kept_of(step), reading.index[files[of]]
            with self._rank_stats.lock:
                kept.records.place(records, source[of], target)
                kept.fresh[target] = True
        rows = records.rows[["state", "before"]][source]
        broken = (rows["state"] == RecordState.UNREADABLE) | (rows["before"] == Before.UNREADABLE)
        for at in files[broken].tolist():
            step, index = int(reading.step[at]), int(reading.index[at])
            self._rank_stats.note_failure(step, self.flow.table(step), index, reading.before(at))

    def _kept_of(self, step: int) -> StepStats:
        return self._rank_stats.at(step, self.flow.table(step))


def _asked(records: Records, rows: Int64) -> RequiredStats:
    """All needs that any of the rows was asked before, so that measuring it again loses nothing."""
    return RequiredStats(
        frozenset(bounds for bounds, column in records.ranges.items() if (column[rows] != NOT_ASKED).any()),
        bool((records.rows["asked"][rows] & CHANGE_ASKED).any()),
        frozenset(closeness for closeness, column in records.close.items() if (column[rows] != NOT_ASKED).any()),
    )


_MOST_ELEMENTS: Final = 1 << 62
"""More than any tensor has: see ``stats.npy`` for what can be read."""


def _counts(stats: TensorStats) -> tuple[int, ...]:
    kinds = stats.nan, stats.pos_inf, stats.neg_inf, stats.zero, stats.negative, stats.positive
    return (stats.count, *kinds)


def _recorded(table: TensorTable, index: int, need: RequiredStats, *, first_step: bool) -> Record:
    stats = table.recorded(index)
    if stats is None and int(table.flags[index]) & int(TensorFlag.UNKNOWN):
        return Record(None, None, error="the training did not send it", need=need)
    if stats is None:
        return Record(None, None, error="the dump has no values of it, and no statistics that can be read", need=need)
    if odd := next((each for each in _counts(stats) if not 0 <= each < _MOST_ELEMENTS), None):
        what = f"the dump recorded a count of {odd:.3g}, which no tensor has: its row of statistics is damaged"
        return Record(None, None, error=what, need=need)
    described = table.recorded_meta(index)
    meta = TensorMeta(described[0], described[1], 0) if described else None
    previous = "no value" if need.previous and not first_step else "none"
    return Record(meta, stats, previous=previous, need=need)
