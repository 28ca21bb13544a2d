"""The TensorTable of one (rank, step): a listing, resolved to node rows, in the order of writing.

Rows stand in blocks: the operators of one run of one graph, the parameters of one run (MindSpore writes them when the
run of their root graph ends), constants last. Blocks are ordered by time, see ``listing.StepRuns``; in a block nodes
come in execution order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int16, Int32, Int64, Integers, Mask, UInt8, UInt16
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable
from tui_debugger.last_result import LastResult
from tui_debugger.model import ReadSpec, TensorMeta
from tui_debugger.sources.base import (
    MOST_ROUNDS,
    NO_NUMBER,
    Names,
    OverflowRecord,
    RecordedMeta,
    TensorFlag,
    TensorPlaces,
    TensorTable,
    latest,
    tensor_keys,
)
from tui_debugger.sources.mindspore.listing import (
    NO_FILE,
    NO_IRREGULAR_NAMES,
    Files,
    IrregularNames,
    MindSporeStepListing,
    RecordedRows,
    RunBlock,
    joined,
)
from tui_debugger.sources.mindspore.names import KnownNames, split_device_name
from tui_debugger.stats.records import ROW, ReadSpecs, RecordedColumns

_OPERATOR, _PARAMETER, _CONSTANT = 0, 1, 2
_KINDS = {PARAMETER: _PARAMETER, CONSTANT: _CONSTANT}

Writing = tuple[int, int]
"""The writer of a file: numbers of the prefix and of the device in the table of known names."""


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The files of a listing that are the rows of its table, in their order."""

    known_names: KnownNames
    places: TensorPlaces
    file: Int32
    """Number of each row's file in the listing, -1 for a row of statistics alone."""
    stat: Int32 | None
    """Number of each row's statistics, -1 without; None when no row has any."""
    prefix: Int32
    device: Int32
    ending: Int32
    directory: Int16
    timeless: bool
    """Timestamps decided only the order of the blocks, so that another step with the same names and blocks has the same
    arrangement.
    """

    @cached_property
    def names_digest(self) -> bytes:
        """Digest of the names of all rows but for timestamps and directories."""
        hasher = blake2b(digest_size=16)
        known_names, places = self.known_names, self.places
        for column, texts in (
            (self.prefix, known_names.prefixes),
            (self.device, known_names.devices),
            (self.ending, known_names.endings),
        ):
            used, numbers = np.unique(column, return_inverse=True)
            words = [texts[number] if number >= 0 else b"" for number in used.tolist()]
            by_text = sorted(range(len(words)), key=words.__getitem__)
            rank = np.empty(len(words), np.int32)
            rank[by_text] = np.arange(len(words))
            joined = b"\n".join(words[number] for number in by_text)
            hasher.update(b"%d %d " % (len(words), len(joined)) + joined)
            hasher.update(rank[numbers].data)
        # The ending tells neither side nor slot of rows without a file.
        for each in (places.side, places.slot, np.ascontiguousarray(self.directory)):
            hasher.update(each.data)
        if places.repeated:
            hasher.update(places.round.data)
        return hasher.digest()


_of_statistics: Final = LastResult[Arrangement]()


class MindSporeStepTable(TensorTable):
    """The tensors of one step of MindSpore."""

    def __init__(
        self,
        arrangement: Arrangement,
        files: Files,
        statistics: tuple[RecordedRows, ...],
        right_mean: bool,
        overflows: Mapping[Writing, tuple[OverflowRecord, ...]] | None = None,
    ) -> None:
        """Made by ``step_table``: ``files`` by row, ``overflows`` by writer."""
        super().__init__(arrangement.places, files.timestamp)
        self.tells_overflow = overflows is not None
        self._overflows = overflows or {}
        self.arrangement = arrangement
        self._files = files
        self._statistics = statistics
        self._right_mean = right_mean
        self._stat_starts = np.cumsum([0, *(len(entry.rows) for entry in statistics)])

    def spec(self, index: int) -> ReadSpec:
        """For a STAT_ONLY row the path of its statistic file, which is no tensor."""
        files = self._files
        ending = int(files.ending[index])
        if ending == NO_FILE:
            recorded = self._recorded_at(index)
            return ReadSpec(os.fsdecode(self._statistics[recorded[0]].path) if recorded else "")
        return files.spec(index)

    def specs(self, indices: Integers) -> ReadSpecs:
        files, known_names = self._files, self._files.known_names
        if not len(indices):
            return ReadSpecs([], (), np.zeros(0, np.int32))
        ending = files.ending[indices]
        real = ending != NO_FILE
        numbers, number = np.unique(ending, return_inverse=True)
        kinds = [known_names.kinds[each] if each != NO_FILE else ReadSpec("") for each in numbers.tolist()]
        distinct = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        kind: Int32 = np.array([distinct[each] for each in kinds], np.int32)[number]
        if real.all():
            paths = files.paths(indices)
        else:
            paths = [b""] * len(indices)
            for at, path in zip(np.flatnonzero(real).tolist(), files.paths(indices[real]), strict=True):
                paths[at] = path
            for at in np.flatnonzero(~real).tolist():
                recorded = self._recorded_at(int(indices[at]))
                paths[at] = self._statistics[recorded[0]].path if recorded else b""
        return ReadSpecs(paths, tuple(distinct), kind)

    @cached_property
    def digest(self) -> bytes:
        """See ``base.TensorTable``; directories count by their real path."""
        hasher = blake2b(self.arrangement.names_digest, digest_size=16)
        for directory in self._files.directories:
            path = os.path.realpath(directory)
            hasher.update(b"%d " % len(path) + path)
        hasher.update(self.timestamp.data)
        hasher.update(self._files.odd.at.data)
        for name in self._files.odd.names:
            hasher.update(b"%d " % len(name) + name)
        return hasher.digest()

    def file_states(self, indices: Integers) -> tuple[Int64, Int64]:
        return self._files.states(indices)

    def recorded_columns(self, indices: Integers) -> RecordedColumns | None:
        stat = self.arrangement.stat
        if stat is None:
            return None
        rows = stat[indices].astype(np.int64)
        of = np.searchsorted(self._stat_starts, rows, side="right") - 1
        found, right = np.zeros(len(rows), ROW), np.zeros(len(rows), np.bool_)
        metas: list[TensorMeta] = []
        for number, entry in enumerate(self._statistics):
            mine = np.flatnonzero(of == number)
            columns = entry.rows.columns(rows[mine] - self._stat_starts[number], right_mean=self._right_mean)
            columns.rows["meta"] += len(metas)
            found[mine], right[mine] = columns.rows, columns.right
            metas += columns.metas
        return RecordedColumns(found, tuple(metas), right)

    def doubtful_mean(self, index: int) -> float | None:
        """``Avg Value`` from ``statistic.csv`` where it may cover a part of the tensor only, else None."""
        at = self._recorded_at(index)
        return self._statistics[at[0]].rows.doubtful_mean(at[1], right_mean=self._right_mean) if at else None

    def recorded_meta(self, index: int) -> RecordedMeta | None:
        at = self._recorded_at(index)
        return self._statistics[at[0]].rows.meta(at[1]) if at else None

    def overflows(self, index: int) -> Sequence[OverflowRecord]:
        marked = int(self.flags[index]) & TensorFlag.OVERFLOWED
        files = self._files
        return self._overflows.get((int(files.prefix[index]), int(files.device[index])), ()) if marked else ()

    def _recorded_at(self, index: int) -> tuple[int, int] | None:
        """(number of the statistic file, row in it)."""
        row = -1 if self.arrangement.stat is None else int(self.arrangement.stat[index])
        if row < 0:
            return None
        number = int(np.searchsorted(self._stat_starts, row, side="right")) - 1
        return number, row - int(self._stat_starts[number])


@dataclass
class _TensorRows:
    """Tensor rows while they are joined: -1 in ``file`` or ``stat`` means there is none."""

    node: Int32
    side: UInt8
    slot: Int16
    timestamp: Int64
    prefix: Int32
    file: Int32
    stat: Int32
    run: UInt16
    round: UInt16

    def keys(self) -> Int64:
        return tensor_keys(self.node, self.side, self.slot)

    def rounds(self) -> Int64:
        """``keys`` with the round; nodes below 2³⁰."""
        keys: Int64 = (self.keys() << 16) | self.round
        return keys

    def take(self, which: Array | slice) -> _TensorRows:
        return _TensorRows(*(getattr(self, each.name)[which] for each in fields(self)))


def step_table(
    listing: MindSporeStepListing,
    node_of: Int32,
    doubtful: Mask,
    nodes: NodeTable,
    *,
    right_mean: bool,
    like: Arrangement | None = None,
    overflows: Mapping[Writing, tuple[OverflowRecord, ...]] | None = None,
) -> MindSporeStepTable:
    """Joins files and statistic rows of a step.

    Args:
        listing: contents of the directories.
        node_of: node row by prefix, -1 for a prefix to leave out.
        doubtful: by prefix, whether it is uncertain that the files are that node's.
        nodes: node table of the rows.
        right_mean: recorded means can be believed (MindSpore 2.4 and newer).
        like: the timeless arrangement of a step with the same patterns, blocks and nodes.
        overflows: records of the device, by operator; None: overflows are not recorded.
    """
    arrangement = like if like is not None else _arrange(listing, node_of, doubtful, nodes)
    if overflows:
        arrangement = _overflowed(arrangement, overflows)
    files, file = listing.files, arrangement.file
    if arrangement.stat is None:
        timestamp = files.timestamp[file]
    else:
        real = file >= 0
        stamps = joined([entry.rows.timestamp for entry in listing.statistics], np.int64)
        timestamp = np.empty(len(file), np.int64)
        timestamp[real], timestamp[~real] = files.timestamp[file[real]], stamps[arrangement.stat[~real]]
    mine = replace(
        files,
        prefix=arrangement.prefix,
        device=arrangement.device,
        ending=arrangement.ending,
        timestamp=timestamp,
        directory=arrangement.directory,
        odd=_odd_rows(files.odd, file, len(files)),
    )
    return MindSporeStepTable(arrangement, mine, listing.statistics, right_mean, overflows)


def overflowed_operator(listing: MindSporeStepListing, record: OverflowRecord, path: bytes) -> Writing | None:
    """The operator of a record: the first that ran under its numbers, in its directory or below.

    None where that operator is not known: it was not dumped, or the numbers are not those of one operator. A record
    that lies apart is about all directories of its step.
    """
    if NO_NUMBER in {record.task, record.stream}:
        return None
    files = listing.files
    rows = np.flatnonzero(files.device == listing.known_names.find_device(record.task, record.stream))
    here = path.rpartition(b"/")[0] + b"/"
    beside = [(each + b"/").startswith(here) for each in files.directories]
    if any(beside):
        rows = rows[np.array(beside)[files.directory[rows]]]
    if record.context != NO_NUMBER or record.thread != NO_NUMBER:
        rows = rows[np.array([_ran_in(each, record) for each in files.paths(rows)], np.bool_)]
    several = len(np.unique(files.prefix[rows])) > 1
    if not len(rows) or (several and record.task == record.stream == 0):  # numbers that are given to any operator
        return None
    first = rows[np.argmin(files.timestamp[rows])]
    return int(files.prefix[first]), int(files.device[first])


def _ran_in(path: bytes, record: OverflowRecord) -> bool:
    """Whether a file is of the part of an operator that a record is about."""
    fields = split_device_name(path.rpartition(b"/")[2])
    found = (fields.context, fields.thread) if fields is not None else (NO_NUMBER, NO_NUMBER)
    wanted = record.context, record.thread
    return all(number in (NO_NUMBER, other) for number, other in zip(wanted, found, strict=True))


def _overflowed(arrangement: Arrangement, overflows: Mapping[Writing, object]) -> Arrangement:
    """Marks the rows of operators that overflowed. An operator that ran several times is marked as a whole."""
    places = arrangement.places
    keys = (arrangement.prefix.astype(np.int64) << 32) | arrangement.device
    marked = np.isin(keys, [prefix << 32 | device for prefix, device in overflows]) & (arrangement.file >= 0)
    flags = places.flags | np.where(marked, np.uint8(TensorFlag.OVERFLOWED), np.uint8(0))
    marked_places = TensorPlaces(places.node, places.side, places.slot, flags, places.round)
    return replace(arrangement, places=marked_places, timeless=False)


def _arrange(listing: MindSporeStepListing, node_of: Int32, doubtful: Mask, nodes: NodeTable) -> Arrangement:
    """The arrangement of a step; for statistics alone that of the previous rank, if all its input is equal."""
    names, recorded = listing.known_names, listing.statistics
    by_order = np.array_equal(np.sort(nodes.order), np.arange(len(nodes)))  # else times count
    if len(listing.files) or len(recorded) != 1 or not by_order or any(constant for _, constant in names.places):
        return _arranged(listing, node_of, doubtful, nodes)
    prefix, rows, runs = recorded[0].prefix, recorded[0].rows, listing.runs
    alike = _of_statistics.of(
        *(prefix, rows.side, rows.slot, node_of[prefix], doubtful[prefix], names.operators()[prefix]),
        *(tuple(names.places), names.places_of()[prefix], runs.run, runs.round, runs.blocks),
        *(nodes.order, nodes.type_id, nodes.types),
        make=lambda: _arranged(listing, node_of, doubtful, nodes),
    )
    return replace(alike, known_names=names)


def _arranged(listing: MindSporeStepListing, node_of: Int32, doubtful: Mask, nodes: NodeTable) -> Arrangement:
    known_names, runs = listing.known_names, listing.runs
    constant = np.array([is_constant for _, is_constant in known_names.places] or [False])[known_names.places_of()]
    every, recorded = _tensor_rows(listing, node_of)
    rows = files = _distinct(every, constant)
    if listing.statistics:
        rows = _join(files, _distinct(recorded, constant))
    order, timed = _in_order(nodes, rows, known_names, runs.blocks)
    rows = _unique_rounds(rows.take(order))
    flags = (
        TensorFlag.CONSTANT * constant[rows.prefix]
        + TensorFlag.STAT_ONLY * (rows.file < 0)
        + TensorFlag.UNCERTAIN * doubtful[rows.prefix]
    )
    columns = listing.files
    return Arrangement(
        known_names=known_names,
        places=TensorPlaces(rows.node, rows.side, rows.slot, flags.astype(np.uint8), rows.round),
        file=rows.file,
        stat=rows.stat if listing.statistics else None,
        prefix=rows.prefix,
        device=_taken(columns.device, rows.file, NO_FILE),
        ending=_taken(columns.ending, rows.file, NO_FILE),
        directory=_taken(columns.directory, rows.file, 0),
        timeless=not timed
        and not listing.statistics
        and not rows.round.any()
        and len(files.file) == int((every.node >= 0).sum()),
    )


def _taken(column: Array, at: Int32, missing: int) -> Array:
    """The column at some places; ``missing`` where the place is -1."""
    if not len(column):
        return np.full(len(at), missing, column.dtype)
    if column.strides == (0,) and (at >= 0).all():
        return np.broadcast_to(column[0], at.shape)
    taken = column[at]
    taken[at < 0] = missing
    return taken


def _odd_rows(odd: IrregularNames, file: Int32, files: int) -> IrregularNames:
    """The names that were kept whole, by row."""
    if not len(odd):
        return NO_IRREGULAR_NAMES
    row_of = np.full(files, -1, np.int64)
    row_of[file[file >= 0]] = np.flatnonzero(file >= 0)
    rows = row_of[odd.at]
    kept = np.flatnonzero(rows >= 0)
    return IrregularNames.sorted(rows[kept], Names.of([odd.names[number] for number in kept.tolist()]))


def _tensor_rows(listing: MindSporeStepListing, node_of: Int32) -> tuple[_TensorRows, _TensorRows]:
    """The rows of files, and those of statistics."""
    files, entries, runs = listing.files, listing.statistics, listing.runs
    prefix = joined([files.prefix, *(entry.prefix for entry in entries)], np.int32)
    numbers = np.arange(len(prefix), dtype=np.int32)
    of_file = numbers < len(files)
    rows = _TensorRows(
        node=node_of[prefix],
        side=joined([listing.side, *(entry.rows.side for entry in entries)], np.uint8),
        slot=joined([listing.slot, *(entry.rows.slot for entry in entries)], np.int16),
        timestamp=joined([files.timestamp, *(entry.rows.timestamp for entry in entries)], np.int64),
        prefix=prefix,
        file=np.where(of_file, numbers, np.int32(-1)),
        stat=np.where(of_file, np.int32(-1), numbers - len(files)),
        run=runs.run if runs.run is not None else np.ones(len(prefix), np.uint16),
        round=runs.round if runs.round is not None else np.zeros(len(prefix), np.uint16),
    )
    return rows.take(slice(len(files))), rows.take(slice(len(files), None))


def _distinct(rows: _TensorRows, constant: Mask) -> _TensorRows:
    """The rows of known nodes, sorted by node, side, slot and round; of a constant's writings only the latest."""
    keys = np.where(constant[rows.prefix], rows.keys(), -1 - np.arange(len(rows.node)))
    if constant[rows.prefix].any():
        rows = rows.take(latest(keys, rows.timestamp))
    known = np.flatnonzero(rows.node >= 0)
    return rows.take(known[np.argsort(rows.rounds()[known], kind="stable")])


def _join(files: _TensorRows, statistics: _TensorRows) -> _TensorRows:
    """Files with their statistic row, then statistic rows without a file; both sorted by key and round."""
    keys, others = files.rounds(), statistics.rounds()
    at = np.minimum(np.searchsorted(others, keys), max(len(others) - 1, 0))
    if len(others):
        files.stat = np.where(others[at] == keys, statistics.stat[at], np.int32(-1))
    alone = statistics.take(~np.isin(others, keys))
    return _TensorRows(
        *(np.concatenate([getattr(files, each.name), getattr(alone, each.name)]) for each in fields(files))
    )


def _in_order(
    nodes: NodeTable, rows: _TensorRows, known_names: KnownNames, blocks: Sequence[RunBlock]
) -> tuple[Int64, bool]:
    """Row numbers by block; in a block by execution order, then time; a node's inputs first.

    Also returns whether time decided more than the order of the blocks.
    """
    used, of = np.unique(rows.node, return_inverse=True)
    kinds = np.array([_KINDS.get(name, _OPERATOR) for name in nodes.types], np.int64)
    kind = kinds[nodes.type_id[used]] if len(used) else np.zeros(0, np.int64)
    order = nodes.order[used]
    timed = bool((order < 0).any()) or not np.diff(np.sort(order)).all()
    when = np.zeros(len(used), np.int64)
    if timed:
        when = np.full(len(used), np.iinfo(np.int64).max)
        np.minimum.at(when, of, rows.timestamp)
        order = _gaps_by_time(order, when, kind == _OPERATOR)
    place = np.empty(len(used), np.int64)
    place[np.lexsort((used, when, order, kind))] = np.arange(len(used))
    block = _block_of(rows, known_names, blocks)
    block[kind[of] == _CONSTANT] = len(blocks)
    if rows.round.any():
        return np.lexsort((rows.slot, rows.side, rows.round, place[of], block)), timed
    by: Int64 = np.argsort((block << 48) | tensor_keys(place[of], rows.side, rows.slot), kind="stable")
    return by, timed


def _block_of(rows: _TensorRows, known_names: KnownNames, blocks: Sequence[RunBlock]) -> Int64:
    """Index of the block of each row; of constants the index after the last."""
    places, most = known_names.places, int(rows.run.max(initial=1))
    number = np.full((len(places), most + 1, 2), len(blocks), np.int64)
    at = {place: index for index, place in enumerate(places)}
    for index, block in enumerate(blocks):
        if block.run <= most and (block.root, False) in at:
            number[at[block.root, False], block.run, int(block.parameters)] = index
    parameter = (~known_names.operators()[rows.prefix]).astype(np.intp)
    found: Int64 = number[known_names.places_of()[rows.prefix], rows.run, parameter]
    return found


def _unique_rounds(rows: _TensorRows) -> _TensorRows:
    """Renumbers the rounds of tensors that have files of several directories, or of several names."""
    keys = rows.rounds()
    by = np.argsort(keys, kind="stable")
    same = keys[by[1:]] == keys[by[:-1]]
    if not same.any():
        return rows
    tensors = rows.keys()
    wrong = np.unique(tensors[by[1:][same]])
    mine = np.flatnonzero(np.isin(tensors, wrong))
    mine = mine[np.argsort(tensors[mine], kind="stable")]
    starts = np.flatnonzero(np.append(True, tensors[mine][1:] != tensors[mine][:-1]))
    counts = np.diff(np.append(starts, len(mine)))
    numbers = np.arange(len(mine)) - np.repeat(starts, counts) + 1
    rounds = rows.round.copy()
    rounds[mine] = np.minimum(numbers, MOST_ROUNDS)
    return replace(rows, round=rounds)


def _gaps_by_time(order: Int32, when: Int64, operator: Mask) -> Int32:
    """Gives operators of unknown order the place of the operator dumped last before them."""
    known = operator & (order >= 0)
    gaps = operator & (order < 0)
    if not gaps.any() or not known.any():
        return order
    by_time = np.argsort(when[known], kind="stable")
    before = np.searchsorted(when[known][by_time], when[gaps], side="right") - 1
    filled: Int32 = order.copy()
    filled[gaps] = np.where(before >= 0, order[known][by_time[np.maximum(before, 0)]], -1)
    return filled
