"""The files of one (rank, step) as columns, before their nodes are known.

There is one ``scandir`` per directory and about two microseconds per name; kept are a handful of arrays, and an entry
per distinct ``type.name``. ``Files`` makes names, paths and states from the columns; ``StepRuns`` tells the runs of a
step apart.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Int16, Int32, Int64, Integers, Mask, UInt8, UInt16
from tui_debugger.last_result import LastResult
from tui_debugger.model import Progress, ProgressFn, ReadSpec, Side
from tui_debugger.opener import why_not
from tui_debugger.sources.base import Names, States, directory_states, tensor_keys
from tui_debugger.sources.mindspore.layout import GraphDirectory
from tui_debugger.sources.mindspore.names import (
    SUFFIX,
    DirectoryNames,
    KnownNames,
    is_later_slice,
    names_values,
    split_device_name,
)
from tui_debugger.sources.mindspore.overflow import is_record
from tui_debugger.sources.mindspore.run_order import Span, begins, numbered, runs_at, span
from tui_debugger.sources.mindspore.statistics import FILE as STATISTICS
from tui_debugger.sources.mindspore.statistics import OperatorFiles, Statistics, read_statistics
from tui_debugger.sources.named_files import MAPPING, is_short, original_name, read_mapping
from tui_debugger.stats.ascend_file import is_converted, is_readable, read_header
from tui_debugger.stats.ascend_nano import BadHeaderError
from tui_debugger.text.numbers import plural


class IrregularNames:
    """The few names that are kept whole: those from ``mapping.csv``, and those with zeros before a timestamp."""

    __slots__ = ("at", "names")

    def __init__(self, at: Int64, names: Names) -> None:
        """``at`` are the numbers of the files, ascending."""
        self.at, self.names = at, names

    @classmethod
    def sorted(cls, at: Int64, names: Names) -> IrregularNames:
        """Sorts numbers in any order."""
        if not len(at):
            return NO_IRREGULAR_NAMES
        if (at[1:] > at[:-1]).all():
            return cls(at, names)
        by = np.argsort(at)
        return cls(at[by], Names.of([names[number] for number in by.tolist()]))

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yields (number of the file, name)."""
        return ((at, self.names[number]) for number, at in enumerate(self.at.tolist()))

    def find(self, index: int) -> bytes | None:
        """The name of a file; None for a file without such a name."""
        place = int(np.searchsorted(self.at, index)) if len(self.at) else 0
        return self.names[place] if place < len(self.at) and self.at[place] == index else None

    def among(self, indices: Integers) -> list[tuple[int, bytes]]:
        """(position in ``indices``, name) of the files that have such a name."""
        if not len(self.at):
            return []
        place = np.minimum(np.searchsorted(self.at, indices), len(self.at) - 1)
        found = np.flatnonzero(self.at[place] == indices)
        return [(int(position), self.names[int(place[position])]) for position in found]


NO_IRREGULAR_NAMES = IrregularNames(np.zeros(0, np.int64), Names.of([]))
_BATCH = 1 << 14
"""Number of names that are made at once: all names of a step with a million files would take 200 MB."""
NO_FILE = -1
"""In place of an ending: a row of statistics without a file."""


@dataclass(frozen=True)
class Files:
    """Files as numbers of a table of known names."""

    known_names: KnownNames = field(repr=False)
    prefix: Int32
    device: Int32
    ending: Int32
    """Index into the endings, or ``NO_FILE``."""
    timestamp: Int64
    directory: Int16
    directories: tuple[bytes, ...]
    """As ``os.fsencode`` bytes; ``directory`` indexes into them."""
    odd: IrregularNames = NO_IRREGULAR_NAMES
    """Names that the parts do not spell."""

    def __len__(self) -> int:
        return len(self.prefix)

    def path(self, index: int) -> str:
        """Path of a file; invalid UTF-8 survives as surrogates."""
        known_names, head = self.known_names, self.directories[int(self.directory[index])] + b"/"
        odd = self.odd.find(index)
        if odd is not None:
            return os.fsdecode(head + odd)
        prefix, device = known_names.prefixes[int(self.prefix[index])], known_names.devices[int(self.device[index])]
        ending = known_names.tails[int(self.ending[index])]
        return os.fsdecode(head + prefix + device + b"%d" % int(self.timestamp[index]) + ending)

    def spec(self, index: int) -> ReadSpec:
        return replace(self.known_names.kinds[int(self.ending[index])], path=self.path(index))

    def paths(self, indices: Integers) -> list[bytes]:
        heads = [directory + b"/" for directory in self.directories]
        if len(heads) == 1:
            return [heads[0] + name for name in self._names(indices)]
        return [heads[d] + name for d, name in zip(self.directory[indices].tolist(), self._names(indices), strict=True)]

    def states(self, indices: Integers) -> States:
        """Sizes and ``opener.state_of`` as they are now; -1, 0 without a file."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        real = np.flatnonzero(self.ending[indices] != NO_FILE)
        numbers = self.directory[indices[real]]
        for number in np.unique(numbers).tolist():
            mine = real[numbers == number]
            for start in range(0, len(mine), _BATCH):
                at = mine[start : start + _BATCH]
                sizes[at], times[at] = directory_states(self.directories[number], self._names(indices[at]))
        return sizes, times

    def _names(self, indices: Integers) -> list[bytes]:
        prefixes, devices, endings = self.known_names.prefixes, self.known_names.devices, self.known_names.tails
        columns = (self.prefix, self.device, self.timestamp, self.ending)
        parts = zip(*(column[indices].tolist() for column in columns), strict=True)
        names = [prefixes[p] + devices[v] + b"%d" % t + endings[e] for p, v, t, e in parts]
        for position, name in self.odd.among(indices):
            names[position] = name
        return names


class RunBlock(NamedTuple):
    """The operators, or the parameters, of one run, which stand together in a table."""

    root: int
    """Number of the graph's directory."""
    run: int
    """Which run of the step, from 1."""
    parameters: bool
    """Whether it holds the parameters of the run, not its operators."""


@dataclass(frozen=True, eq=False)
class StepRuns:
    """The runs of a step's files, followed by its recorded rows, by timestamps."""

    run: UInt16 | None
    """The run of its graph within the step that wrote each, from 1; None where every directory holds one run."""
    round: UInt16 | None
    """See ``base.TensorTable``; None where every tensor was written once."""
    spans: Mapping[int, tuple[Span, ...]]
    """By number of the graph's directory, the times of its runs, oldest first."""
    blocks: tuple[RunBlock, ...]
    """In the order of writing; parameters of a run after its operators."""


def runs_of_step(listing: MindSporeStepListing) -> StepRuns:
    """Tells the runs of a step apart: see ``run_order``. Constants belong to no run."""
    columns = _FileColumns(listing)
    if columns.repeated():
        run, rounds, spans = columns.divided()
    else:
        run, rounds, spans = None, None, {root: (span(*columns.of(rows)),) for root, rows in columns.roots.items()}
    return StepRuns(run, rounds, spans, in_order(spans))


def in_order(spans: Mapping[int, Sequence[Span]]) -> tuple[RunBlock, ...]:
    """The blocks of a step by time of writing; within one graph operators, parameters, next run.

    A graph without known times is placed by its number.
    """
    placed: list[tuple[int, int, int, RunBlock]] = []
    for root, runs in sorted(spans.items()):
        latest, sequence = 0, 0
        for number, each in enumerate(runs, 1):
            for parameters, began in ((False, each.began), (True, each.parameters)):
                latest = max(latest, began)
                placed.append((latest, root, sequence, RunBlock(root, number, parameters)))
                sequence += 1
    known = {root for root, runs in spans.items() if any(each.began for each in runs)}
    placed.sort(key=lambda each: each[:3])
    ordered = [block for *_, block in placed if block.root in known]
    for *_, block in placed:
        if block.root not in known:
            before = [at for at, each in enumerate(ordered) if (each.root, each) <= (block.root, block)]
            ordered.insert(before[-1] + 1 if before else 0, block)
    return tuple(ordered)


_repeated: Final = LastResult[bool]()


class _FileColumns:
    """The files of a listing, then its recorded rows."""

    def __init__(self, listing: MindSporeStepListing) -> None:
        known_names, files, recorded = listing.known_names, listing.files, listing.statistics
        self._files, self._parts, self._odd = len(files), listing.parts, files.odd
        self.prefix: Int32 = joined([files.prefix, *(each.prefix for each in recorded)], np.int32)
        self.side: UInt8 = joined([listing.side, *(each.rows.side for each in recorded)], np.uint8)
        self.slot: Int16 = joined([listing.slot, *(each.rows.slot for each in recorded)], np.int16)
        self.time: Int64 = joined([files.timestamp, *(each.rows.timestamp for each in recorded)], np.int64)
        self.operator: Mask = known_names.operators()[self.prefix]
        places = known_names.places_of()[self.prefix]
        self.roots: dict[int, Int64] = {}
        for root in dict.fromkeys(known_names.places[part.place][0] for part in listing.parts):
            numbers = [at for at, place in enumerate(known_names.places) if place == (root, False)]
            self.roots[root] = np.flatnonzero(np.isin(places, numbers))

    def of(self, rows: Int64) -> tuple[Int64, Mask]:
        return self.time[rows], self.operator[rows]

    def repeated(self) -> bool:
        return _repeated.of(
            *(self.prefix, self.side, self.slot, self._files, *self.roots, *self.roots.values()), make=self._is_repeated
        )

    def _is_repeated(self) -> bool:
        for rows in self.roots.values():
            for some in (rows[rows < self._files], rows[rows >= self._files]):
                keys = np.sort(tensor_keys(self.prefix[some], self.side[some], self.slot[some]))
                if (keys[1:] == keys[:-1]).any():
                    return True
        return False

    @cached_property
    def _slices(self) -> Int64:
        """Files of all but the first of the threads that share an operator: they are writings of one run."""
        return np.array([at for at, name in self._odd if is_later_slice(split_device_name(name))], np.int64)

    def divided(self) -> tuple[UInt16, UInt16, dict[int, tuple[Span, ...]]]:
        """Run and round of every row, and the spans of the runs."""
        run, rounds = np.ones(len(self.time), np.uint16), np.zeros(len(self.time), np.uint16)
        spans: dict[int, tuple[Span, ...]] = {}
        for root, rows in self.roots.items():
            time, operator = self.of(rows)
            key, recorded = tensor_keys(self.prefix[rows], self.side[rows], self.slot[rows]), rows >= self._files
            whole = ~np.isin(rows, self._slices)
            kinds = [each for each in (~recorded & whole, recorded) if each.any()]
            each_began = [begins(key[kind], time[kind], operator[kind]) for kind in kinds]
            began = max(each_began, key=len, default=np.zeros(0, np.int64))
            run[rows] = runs_at(time, began)
            several = np.full(len(rows), len(began) > 0)
            if len(rows):
                rounds[rows] = numbered(key, time, run[rows], several, recorded)
            by = np.argsort(run[rows], kind="stable")
            ends = np.searchsorted(run[rows][by], np.arange(1, len(began) + 1), side="right")
            spans[root] = tuple([span(time[mine], operator[mine]) for mine in np.split(by, ends)])
        return run, rounds, spans


_VANISHED, _CLOSED = "directories that vanished", "directories that cannot be listed"
_NONSENSE = "files whose name makes no sense"
_IN_DEVICE_ORDER = "tensors that stay as the device held them, padding included: their format is not converted"
_UNCONVERTED = "files that the recorder left as the device held them: they are put in order where their sizes agree"
_EMPTY = "files of devices without any tensor"
NOT_IGNORED = frozenset({_VANISHED, _CLOSED, _IN_DEVICE_ORDER, _UNCONVERTED})
"""Complaints about entries that could not be looked at, or are read nevertheless; others are about ignored entries."""
_PROGRESS_EVERY = 4096
_SOME = b"*"
"""Stands for the name of several files."""
_TABLE: Final = b".csv"
_TORCH = b".pt"
_SILENT = frozenset({STATISTICS.encode(), MAPPING.encode()})

Place = tuple[GraphDirectory, Path, bool]
"""(graph directory, directory to list, whether it holds constants)."""


@dataclass(frozen=True)
class RecordedRows:
    """One ``statistic.csv``."""

    rows: Statistics
    prefix: Int32
    """Number of each row's prefix in the table of known names."""
    distinct: Int32
    """The distinct prefixes, ascending."""
    path: bytes


@dataclass(frozen=True, eq=False)
class DirectoryContents:
    """The contents of one directory, with duplicates."""

    directory: bytes
    """As ``os.fsencode`` bytes."""
    place: int
    """Index into ``KnownNames.places``."""
    pattern: DirectoryNames
    """Names of tensor files but for their timestamps."""
    timestamp: Int64
    """Timestamps of the files, in the pattern's order."""
    odd: IrregularNames = NO_IRREGULAR_NAMES
    """Names that pattern and timestamps do not spell."""
    statistics: Statistics | None = None
    complaints: dict[str, int] = field(default_factory=dict)
    """By kind, how many entries were ignored."""
    entries: int = 0
    """Number of entries of any kind."""
    missing: tuple[tuple[bytes, str], ...] = ()
    """(name, why) of entries that may hold tensors and could not be looked at; the name is empty for the directory
    itself, and ``*`` for several files.
    """
    overflows: tuple[bytes, ...] = ()
    """Names of records of overflows."""
    damaged: tuple[bytes, ...] = ()
    """Names of files of several tensors whose header cannot be read: each stands for one tensor."""
    others: tuple[bytes, ...] = ()
    """Names of entries that are no part of the layout: the inventory looks at them."""


class MindSporeStepListing:
    """The directories of one step together; file numbers count through all ``parts``."""

    def __init__(self, known_names: KnownNames, parts: Sequence[DirectoryContents]) -> None:
        self.known_names, self.parts = known_names, tuple(parts)

    def __len__(self) -> int:
        return sum(len(part.timestamp) for part in self.parts)

    @cached_property
    def files(self) -> Files:
        parts = self.parts
        starts = np.cumsum([0, *(len(part.timestamp) for part in parts)])
        odd = [(part.odd, start) for part, start in zip(parts, starts.tolist(), strict=False) if len(part.odd)]
        return Files(
            self.known_names,
            prefix=joined([part.pattern.prefix for part in parts], np.int32),
            device=joined([part.pattern.device for part in parts], np.int32),
            ending=joined([part.pattern.ending for part in parts], np.int32),
            timestamp=joined([part.timestamp for part in parts], np.int64),
            directory=np.repeat(np.arange(len(parts), dtype=np.int16), np.diff(starts)),
            directories=tuple(part.directory for part in parts),
            odd=IrregularNames(
                joined([names.at + start for names, start in odd], np.int64),
                Names.of([name for names, _ in odd for name in names.names]),
            ),
        )

    @cached_property
    def side(self) -> UInt8:
        return self.known_names.sides()[self.files.ending]

    @cached_property
    def slot(self) -> Int16:
        return self.known_names.slots()[self.files.ending]

    @cached_property
    def statistics(self) -> tuple[RecordedRows, ...]:
        if all(part.statistics is None for part in self.parts):
            return ()
        known = {number for part in self.parts for number in part.pattern.prefixes.tolist()}
        alone = not known and len(self.parts) == 1
        found = []
        for part in self.parts:
            if part.statistics is not None:
                place = self.known_names.place(self.known_names.places[part.place][0], constants=False)
                # Without files beside it the numbers follow from the names, which are equal in every step of a rank.
                kept, key = self.known_names.recorded, (place, part.statistics.prefixes)
                ids = kept.get(key) if alone else None
                if ids is None and alone and not _any_path(part.statistics.prefixes):
                    ids = self.known_names.prefix_numbers(place, part.statistics.prefixes)
                elif ids is None:
                    ids = np.array([self._recorded(place, text, known) for text in part.statistics.prefixes], np.int32)
                if alone:
                    kept.clear()
                    kept[key] = ids
                path = part.directory + b"/" + STATISTICS.encode()
                distinct = ids if (ids[1:] > ids[:-1]).all() else np.unique(ids)
                found.append(RecordedRows(part.statistics, ids[part.statistics.prefix], distinct, path))
        return tuple(found)

    @cached_property
    def runs(self) -> StepRuns:
        return runs_of_step(self)

    @cached_property
    def prefixes(self) -> Int32:
        """The distinct prefixes of files and statistic rows, ascending."""
        columns = [part.pattern.prefixes for part in self.parts] + [each.distinct for each in self.statistics]
        return columns[0] if len(columns) == 1 else np.unique(joined(columns, np.int32))

    @property
    def entries(self) -> int:
        return sum(part.entries for part in self.parts)

    def _recorded(self, place: int, text: bytes, known: set[int]) -> int:
        """Prefix of a statistic row, whose name may be the full one with ``/`` where files have another form."""
        op_type, dot, op_name = text.partition(b".")
        forms = (op_name, op_name.replace(b"/", b"--"), op_name.replace(b"/", b"_"), op_name.rpartition(b"/")[2])
        numbers = (self.known_names.find_prefix(place, op_type + dot + form) for form in forms)
        number = next((number for number in numbers if number in known), -1)
        if number < 0:
            number = self.known_names.prefix_number(place, op_type + dot + forms[1])
        known.add(number)
        return number


@lru_cache(maxsize=1)
def _any_path(names: tuple[bytes, ...]) -> bool:
    """Whether a name is a path; the steps and ranks of a run have the same names."""
    return any(b"/" in name for name in names)


ReadStatistics = Callable[[Path, ProgressFn], Statistics]
"""Returns the rows of a ``statistic.csv``."""


def list_directory(
    known_names: KnownNames,
    place: Place,
    progress: ProgressFn,
    done: tuple[int, int] = (0, 0),
    read: ReadStatistics = read_statistics,
) -> DirectoryContents:
    """Lists one directory. ``done``: the entries before it and the expected ones, for the progress bar."""
    return _Collector(known_names, place, progress, done, read).part()


class _Collector:
    """Appends rows to flat arrays while a directory is read."""

    def __init__(
        self,
        known_names: KnownNames,
        place: Place,
        progress: ProgressFn,
        done: tuple[int, int],
        read: ReadStatistics,
    ) -> None:
        self._read = read
        self._known_names = known_names
        self._graph, self._path, constants = place
        self._place = known_names.place(self._graph.root_graph, constants)
        self._progress = progress
        self._before, self._expected = done
        self._entries = 0
        self._mapping: dict[bytes, bytes] | None = None
        self._prefix, self._device, self._ending = array("i"), array("i"), array("i")
        self._timestamp = array("q")
        self._odd_at: list[int] = []
        self._odd_names: list[bytes] = []
        self._statistics: Statistics | None = None
        self._of_operators = OperatorFiles()
        self._complaints: dict[str, int] = {}
        self._missing: list[tuple[bytes, str]] = []
        self._overflows: list[bytes] = []
        self._damaged: list[bytes] = []
        self._others: list[bytes] = []
        self._of_devices: dict[int, bool] = {}
        """Rows of tensors in files of several, and whether their values can be read."""

    def part(self) -> DirectoryContents:
        parts_of, place = self._known_names.parts, self._place
        prefixes, devices, endings = self._prefix.append, self._device.append, self._ending.append
        timestamps = self._timestamp.append
        for name, regular in self._listed():
            parts = parts_of(place, name) if regular else None
            if parts is None:
                original = self._original(name) if regular else name
                parts = parts_of(place, original) if original != name else None
                if parts is None:
                    if not regular or not self._take_device_file(name, original):
                        self._ignore(name, regular)
                    continue
                self._keep_name(name)
            prefix, device, ending, timestamp, spelled = parts
            if not spelled:
                self._keep_name(name)
            prefixes(prefix)
            devices(device)
            endings(ending)
            timestamps(timestamp)
        return self._sorted()

    def _take_device_file(self, name: bytes, original: bytes) -> bool:
        """Takes the tensors of a file that a device wrote, or its record of an overflow; False for any other file."""
        if is_record(original):
            self._overflows.append(name)
            return True
        fields = split_device_name(original)
        if fields is None:
            return False
        device = b".%s.%s." % (fields.task, fields.stream)
        spelled = name == fields.prefix + device + b"%d" % fields.timestamp
        prefix = self._known_names.prefix_number(self._place, fields.prefix)
        for side, slot, readable in self._members(name):
            if not spelled:
                self._keep_name(name)
            self._of_devices[len(self._prefix)] = readable
            self._prefix.append(prefix)
            self._device.append(self._known_names.device_number(device))
            self._ending.append(self._known_names.member_number(side, slot))
            self._timestamp.append(fields.timestamp)
        return True

    def _members(self, name: bytes) -> list[tuple[int, int, bool]]:
        """(side, slot, whether its values can be read) of the tensors in a file; a damaged file has one output."""
        try:
            tensors = read_header(os.fsencode(self._path) + b"/" + name).tensors
        except (OSError, BadHeaderError):
            self._damaged.append(name)
            return [(Side.OUTPUT, 0, False)]
        given = [tensor for tensor in tensors if not tensor.absent]
        if not given:
            self._complain(_EMPTY)
        left = sum(not is_converted(tensor) for tensor in given)
        if left:
            self._complain(_IN_DEVICE_ORDER, left)
        return [(tensor.side, tensor.slot, is_readable(tensor)) for tensor in given]

    def _converted_beside(self) -> Int64:
        """Rows of tensors that lie here twice, as a device wrote them and converted by a tool: the ones to drop.

        A tool that left the order of the device's elements left the padding, too: then the device's file is read
        instead. In all other cases the converted file is read.
        """
        known, mine = self._known_names, self._of_devices
        sides, slots = known.sides(), known.slots()

        def key(row: int) -> tuple[int, ...]:
            ending = self._ending[row]
            place = self._prefix[row], self._device[row], self._timestamp[row]
            return (*place, int(sides[ending]), int(slots[ending]))

        if not mine or len(mine) == len(self._prefix):
            return np.zeros(0, np.int64)
        of_operators = {self._prefix[row] for row in mine}
        others = {
            key(row): row for row in range(len(self._prefix)) if row not in mine and self._prefix[row] in of_operators
        }
        dropped = []
        for row, readable in mine.items():
            other = others.get(key(row))
            if other is not None:
                dropped.append(other if readable and known.keeps_device_order(self._ending[other]) else row)
        return np.array(dropped, np.int64)

    def _keep_name(self, name: bytes) -> None:
        """Keeps the next file's name whole."""
        if not self._odd_at or self._odd_at[-1] < len(self._prefix):
            self._odd_at.append(len(self._prefix))
            self._odd_names.append(name)

    def _sorted(self) -> DirectoryContents:
        prefix, device, ending = (_column(each, np.int32) for each in (self._prefix, self._device, self._ending))
        timestamp = _column(self._timestamp, np.int64)
        self._count_unconverted(ending)
        dropped = self._converted_beside()
        keys = (prefix.astype(np.int64) << 32) | ending
        by = np.argsort(keys)
        if (keys[by[1:]] == keys[by[:-1]]).any():
            by = np.lexsort((device, timestamp, keys))
        if len(dropped):
            by = by[~np.isin(by, dropped)]
        alike = len(device) > 0 and bool((device == device[0]).all())
        device = np.broadcast_to(device[0], device.shape) if alike else device[by]
        return DirectoryContents(
            os.fsencode(self._path),
            self._place,
            self._known_names.pattern(prefix[by], device, ending[by]),
            timestamp[by],
            self._odd(by),
            self._recorded(),
            {text: count for text, count in self._complaints.items() if count},
            self._entries,
            (*self._missing, *self._not_understood()),
            tuple(sorted(self._overflows)),
            tuple(self._damaged),
            tuple(self._others),
        )

    def _count_unconverted(self, ending: Int32) -> None:
        """Counts .npy files whose name says that their values stand as a device held them."""
        known = self._known_names
        pairs = zip(known.kinds, known.tails, strict=True)
        of_device = [kind.format == "ascend" and tail != b"" for kind, tail in pairs]
        if any(of_device):
            self._complain(_UNCONVERTED, int(np.array(of_device)[ending].sum()))

    def _not_understood(self) -> Iterator[tuple[bytes, str]]:
        """Reports files of tensors with unknown nodes."""
        count = self._complaints.get(_NONSENSE, 0)
        if count:
            yield _SOME, f"{plural(count, 'file')} whose name makes no sense"

    def _odd(self, by: Int64) -> IrregularNames:
        place = np.full(len(self._prefix), -1, np.int64)
        place[by] = np.arange(len(by))
        at = place[np.array(self._odd_at, np.int64)]
        kept = np.flatnonzero(at >= 0).tolist()
        return IrregularNames.sorted(at[kept], Names.of([self._odd_names[number] for number in kept]))

    def _listed(self) -> Iterator[tuple[bytes, bool]]:
        text = f"listing {self._path.parent.name}/{self._path.name}"
        self._progress(Progress(self._before, self._expected, text))
        try:
            with opener.scandir(os.fsencode(self._path)) as entries:
                for entry in entries:
                    self._entries += 1
                    if not self._entries % _PROGRESS_EVERY:
                        self._progress(Progress(self._before + self._entries, self._expected, text))
                    yield entry.name, _is_file(entry)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            self._complain(_VANISHED if gone else _CLOSED)
            self._missing.append((b"", why_not(self._path, error)))

    def _original(self, name: bytes) -> bytes:
        return original_name(self._names(), name) if is_short(name) else name

    def _names(self) -> dict[bytes, bytes]:
        if self._mapping is None:
            self._mapping = {}
            try:
                self._mapping, broken = read_mapping(self._path / MAPPING)
            except FileNotFoundError:
                if opener.islink(self._path / MAPPING):
                    self._miss(MAPPING.encode(), None)
            except OSError as error:
                self._miss(MAPPING.encode(), error)
            else:
                self._broken(MAPPING, broken)
        return self._mapping

    def _ignore(self, name: bytes, regular: bool) -> None:
        """Notes a name that is no tensor file; reads the statistic file."""
        if not regular:
            self._complain("directories where files should be", not self._graph.is_around)
            if name.endswith(SUFFIX) or name in _SILENT:
                self._miss(name, None)
            else:
                self._others.append(name)
        elif name == STATISTICS.encode():
            try:
                self._statistics = self._read(self._path / STATISTICS, self._progress)
            except OSError as error:
                self._complain("statistic.csv that cannot be read")
                self._miss(name, error)
            else:
                self._broken(STATISTICS, self._statistics.broken)
        elif name == MAPPING.encode():
            self._names()
            self._others.append(name)
        elif name.endswith(_TABLE) and self._take_statistics(name):
            pass
        else:
            self._complain(_kind(name))
            if not name.endswith(SUFFIX):
                self._others.append(name)
            if not name.endswith((SUFFIX, _TORCH)) and names_values(self._original(name)):
                self._missing.append((name, "values of a tensor without a header: only those in .npy files are read"))
            elif b"." not in name and is_short(name) and self._original(name) == name:
                self._missing.append((name, f"no row in {MAPPING} says whose tensors these are"))

    def _take_statistics(self, name: bytes) -> bool:
        """Takes the statistics of one run of an operator; False when a file has none."""
        fields = split_device_name(name.removesuffix(_TABLE))
        operator = (fields.prefix, fields.timestamp) if fields is not None else (b"Unknown." + name, 0)
        try:
            taken = self._of_operators.take(self._path / os.fsdecode(name), *operator)
        except OSError as error:
            self._miss(name, error)
            return True
        if taken and fields is None:
            self._complain(_NONSENSE)
        return taken

    def _recorded(self) -> Statistics | None:
        found = self._statistics
        if not self._of_operators.count:
            return found
        if found is not None:
            why = f"{plural(self._of_operators.count, 'file')} of statistics of operators beside {STATISTICS}"
            self._missing.append((_SOME + _TABLE, f"{why}: not looked at"))
            return found
        found = self._of_operators.statistics()
        if found.broken:
            self._missing.append((_SOME + _TABLE, plural(found.broken, "broken line")))
        return found

    def _miss(self, name: bytes, error: OSError | None) -> None:
        wanted = "a file" if name in _SILENT else "a tensor file"
        self._missing.append((name, why_not(os.fsencode(self._path) + b"/" + name, error, wanted=wanted)))

    def _broken(self, name: str, lines: int) -> None:
        """Notes lines that make no sense: their tensors are unknown."""
        self._complain(f"broken lines in {name}", lines)
        if lines:
            self._missing.append((name.encode(), plural(lines, "broken line")))

    def _complain(self, text: str, count: int = 1) -> None:
        self._complaints[text] = self._complaints.get(text, 0) + count


def _column(values: array[int], dtype: type[np.generic]) -> Array:
    return np.frombuffer(values, dtype) if values else np.zeros(0, dtype)


def joined(columns: Sequence[Array], dtype: type[np.generic]) -> Array:
    return columns[0] if len(columns) == 1 else np.concatenate([np.zeros(0, dtype), *columns])


def _kind(name: bytes) -> str:
    return _NONSENSE if name.endswith(SUFFIX) else "other files"


def _is_file(entry: os.DirEntry[bytes]) -> bool:
    """Whether an entry is not a directory; a dangling link is a file that cannot be read."""
    try:
        return not entry.is_dir()
    except OSError:
        return True
