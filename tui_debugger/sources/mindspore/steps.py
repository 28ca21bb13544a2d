"""The listings of one rank's steps, and the times at which the runs in a step's directory were written.

The store keeps listings of earlier sessions in two kinds of payloads and trusts neither. ``names``: a pattern (see
``names.KnownNames``) with its texts, found by the digest of its content, so that the steps of a run share one.
``listing``: the stamps of a directory, the digest of its pattern and its timestamps, found by its path.

A dump may have thousands of directories with thousands of files, and the order of runs needs times from each. So only
some names are read first: all of a small directory, of a big one enough to tell when it ran.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int32, Int64, Mask
from tui_debugger.cache.columns import StoredColumns
from tui_debugger.cache.store import DiskCache
from tui_debugger.last_result import LastResult
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.sources.base import Names
from tui_debugger.sources.mindspore.layout import NEVER, RankLayout, Stamp, stamp
from tui_debugger.sources.mindspore.listing import (
    DirectoryContents,
    IrregularNames,
    MindSporeStepListing,
    Place,
    list_directory,
)
from tui_debugger.sources.mindspore.names import (
    MAX_TIMESTAMP,
    MEMBER,
    PARAMETER,
    SUFFIX,
    DirectoryNames,
    KnownNames,
    are_operators,
    decode,
    generation,
    is_later_slice,
    split_device_name,
    split_name,
    split_prefix,
)
from tui_debugger.sources.mindspore.overflow import is_record
from tui_debugger.sources.mindspore.run_order import (
    DAY,
    NO_SPAN,
    RunOrder,
    Span,
    begins,
    is_ascending,
    run_order,
    runs_at,
    span,
)
from tui_debugger.sources.mindspore.statistics import FILE as STATISTICS
from tui_debugger.sources.mindspore.statistics import Statistics, read_statistics
from tui_debugger.sources.named_files import MAPPING, is_short, original_name, read_mapping

KIND: Final = "listing"
KIND_NAMES: Final = "names"
WORTHWHILE: Final = 200
"""Number of entries from which a directory is worth remembering."""
_KEPT = 4
"""Number of patterns that are kept unpacked: the steps of a run follow one another."""

_LISTING: Final = StoredColumns(b"tdbL6", "<i8", "u1", "<i8", "<i8", "<i8", "<i8", "u1", "u1", "u1")
"""Stamps, key of the pattern, numbers of entries and of statistic files, timestamps; places and ends of odd names, odd
names; complaints, names of other entries.
"""
_NAMES: Final = StoredColumns(b"tdbN6", "<i4", "<i4", "<i4", "u1", "u1", "u1")
"""Numbers of prefixes, devices and endings by file, and the texts of each."""
_BLANK: Final = b"\0"


@dataclass(frozen=True, slots=True)
class _UnpackedNames:
    """A pattern from the store."""

    pattern: DirectoryNames
    by: Int64 | None
    """Sorts columns in the stored order into the pattern's order; None: they agree."""


_MOST_KEPT: Final = 1 << 27
"""Limit in bytes of statistics that are kept until ``take``: all of many ranks do not fit in memory."""


class StatisticFiles:
    """Reads the statistic files of a run; a file read for the order of runs is kept for its listing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Path, tuple[Stamp, Statistics]] = {}
        self._size = 0

    def look(self, path: Path) -> Statistics:
        """Reads a file or raises OSError; keeps the rows until ``take``, or until others need the room."""
        before = stamp(path)
        read = read_statistics(path)
        if stamp(path) == before and not young((before,)):
            with self._lock:
                self._remove(path)
                self._kept[path] = before, read
                self._size += read.nbytes
                while self._size > _MOST_KEPT and len(self._kept) > 1:
                    self._remove(next(iter(self._kept)))
        return read

    def take(self, path: Path, progress: ProgressFn) -> Statistics:
        """Returns the rows of a file, and keeps them no longer; raises OSError when it cannot be read."""
        with self._lock:
            kept = self._remove(path)
        return kept[1] if kept is not None and kept[0] == stamp(path) else read_statistics(path, progress)

    def _remove(self, path: Path) -> tuple[Stamp, Statistics] | None:
        kept = self._kept.pop(path, None)
        self._size -= kept[1].nbytes if kept is not None else 0
        return kept


class ListingCache:
    """Listings in the store. Not thread-safe: its owner locks."""

    def __init__(self, store: DiskCache, known_names: KnownNames, statistics: StatisticFiles) -> None:
        self._store, self._known_names, self._statistics = store, known_names, statistics
        self._unpacked: OrderedDict[tuple[bytes, int], _UnpackedNames] = OrderedDict()
        self._keys: WeakKeyDictionary[DirectoryNames, bytes] = WeakKeyDictionary()
        self._real_parents: dict[bytes, bytes] = {}

    def recall(
        self, path: Path, place: int, stamps: tuple[Stamp, ...], progress: ProgressFn
    ) -> DirectoryContents | None:
        """Returns the listing of a directory whose stamps are unchanged; its ``statistic.csv`` is read anew."""
        found = _LISTING.unpack(self._store.get(KIND, self._key(path)))
        if found is None or found[0].tolist() != [*chain.from_iterable(stamps)] or len(found[2]) != 2:
            return None
        key, (entries, recorded), timestamp, odd_at, odd_ends = found[1].tobytes(), found[2].tolist(), *found[3:6]
        names, complaints, others = (column.tobytes() for column in found[6:])
        unpacked = self._pattern(key, place)
        if unpacked is None or len(unpacked.pattern) != len(timestamp) or entries < len(timestamp):
            return None
        if not _sound(timestamp, odd_at, odd_ends, names):
            return None
        if unpacked.by is not None:
            timestamp = timestamp[unpacked.by]
            odd_at = np.argsort(unpacked.by)[odd_at]
        try:
            statistics = self._statistics.take(path / STATISTICS, progress) if recorded else None
        except OSError:
            return None
        irregular = IrregularNames.sorted(odd_at, Names(names, odd_ends))
        return DirectoryContents(
            *(os.fsencode(path), place, unpacked.pattern, timestamp, irregular, statistics),
            *(_complaints(complaints), entries),
            others=tuple(others.split(_BLANK)) if others else (),
        )

    def keep(self, path: Path, stamps: tuple[Stamp, ...], part: DirectoryContents) -> None:
        """Remembers a directory that looks the same now as before it was listed."""
        # An incomplete listing is made again every time, and so is one with the few records of overflows.
        if part.entries < WORTHWHILE or part.missing or part.damaged or part.overflows:
            return
        key = self._keys.get(part.pattern)
        if key is None:
            names = _pack_names(self._known_names, part.pattern)
            key = self._keys[part.pattern] = blake2b(names, digest_size=16).digest()
            if self._store.get(KIND_NAMES, key) is None:
                self._store.put(KIND_NAMES, key, names)
        odd = list(part.odd.names)
        others = _BLANK.join(part.others)
        complaints = "\n".join(f"{count} {text}" for text, count in part.complaints.items()).encode()
        payload = _LISTING.pack(
            *([*chain.from_iterable(stamps)], key, (part.entries, part.statistics is not None), part.timestamp),
            *(part.odd.at, np.cumsum([len(name) for name in odd]), b"".join(odd), complaints, others),
        )
        self._store.put(KIND, self._key(path), payload)

    def _key(self, path: Path) -> bytes:
        """Key of a directory's real path; parents are resolved once, since steps lie beside each other."""
        parent, name = os.path.split(os.fsencode(path))
        if parent not in self._real_parents:
            self._real_parents[parent] = os.path.realpath(parent)
        real = self._real_parents[parent].rstrip(b"/") + b"/" + name
        return blake2b(os.path.realpath(real) if opener.islink(real) else real, digest_size=16).digest()

    def _pattern(self, key: bytes, place: int) -> _UnpackedNames | None:
        found = self._unpacked.get((key, place))
        if found is None:
            found = _unpack_names(self._known_names, place, self._store.get(KIND_NAMES, key))
            if found is None:
                return None
            self._unpacked[key, place] = found
            if len(self._unpacked) > _KEPT:
                self._unpacked.popitem(last=False)
            if found.by is None:
                self._keys[found.pattern] = key
        self._unpacked.move_to_end((key, place))
        return found


def _sound(timestamp: Int64, odd_at: Int64, odd_ends: Int64, names: bytes) -> bool:
    if len(timestamp) and timestamp.min() < 0:
        return False
    if len(odd_at) != len(odd_ends) or len(odd_at) > len(timestamp):
        return False
    if not len(odd_at):
        return not names
    ascending = bool((np.diff(odd_at) > 0).all()) and bool((np.diff(odd_ends) > 0).all())
    inside = odd_at[0] >= 0 and odd_at[-1] < len(timestamp) and odd_ends[0] > 0 and odd_ends[-1] == len(names)
    return ascending and bool(inside) and b"/" not in names and _BLANK not in names


def _complaints(payload: bytes) -> dict[str, int]:
    found = {}
    for line in payload.decode("utf-8", "replace").splitlines():
        count, _, text = line.partition(" ")
        if count.isdecimal():
            found[text] = int(count)
    return found


def _pack_names(known_names: KnownNames, pattern: DirectoryNames) -> bytes:
    blobs: list[bytes] = []
    columns: list[Int64] = []
    for column, texts in (
        (pattern.prefix, known_names.prefixes),
        (pattern.device, known_names.devices),
        (pattern.ending, known_names.endings),
    ):
        used, numbers = np.unique(column, return_inverse=True)
        columns.append(numbers)
        blobs.append(_BLANK.join([texts[number] for number in used.tolist()]))
    return _NAMES.pack(*columns, *blobs)


def _unpack_names(known_names: KnownNames, place: int, payload: bytes | None) -> _UnpackedNames | None:
    found = _NAMES.unpack(payload)
    if found is None or len(set(map(len, found[:3]))) > 1:
        return None
    columns = []
    enter: tuple[Callable[[bytes], int], ...] = (
        lambda text: _prefix(known_names, place, text),
        lambda text: _device(known_names, text),
        known_names.ending_number,
    )
    for column, blob, number in zip(found[:3], found[3:], enter, strict=True):
        texts = blob.tobytes().split(_BLANK) if len(blob) else []
        numbers = np.array([-1 if b"/" in text else number(text) for text in texts], np.int32)
        if (numbers < 0).any() or (len(column) and not 0 <= column.min() <= column.max() < len(texts)):
            return None
        columns.append(numbers[column])
    return _in_order(known_names, *columns)


def _in_order(known_names: KnownNames, prefix: Int32, device: Int32, ending: Int32) -> _UnpackedNames:
    """Makes a pattern; sorts its columns where the known names stand in another order than when stored."""
    by: Int64 | None = None
    keys = (prefix.astype(np.int64) << 32) | ending
    if (keys[1:] < keys[:-1]).any():
        by = np.argsort(keys, kind="stable")
        prefix, device, ending = prefix[by], device[by], ending[by]
    if len(device) and (device == device[0]).all():
        device = np.broadcast_to(device[0], device.shape)
    return _UnpackedNames(known_names.pattern(prefix, device, ending), by)


def _prefix(known_names: KnownNames, place: int, text: bytes) -> int:
    return known_names.prefix_number(place, text) if 0 < text.find(b".") < len(text) - 1 else -1


def _device(known_names: KnownNames, text: bytes) -> int:
    fields = split_name(b"Type.name" + text + b"0.output.0.F.npy")
    return known_names.device_number(text) if fields is not None and fields[0] == b"Type.name" else -1


YOUNG_NS = 5 * 10**9
"""Age below which a directory may change again within one tick of its clock."""
Stamps = tuple[Stamp, ...]
_GUESSES = 1000
"""Number of names that are looked at to guess the version that wrote them."""


@dataclass(frozen=True, slots=True)
class _DirectoryState:
    """The state of a step's directories when they were listed."""

    stamps: Stamps
    """Stamps of the directories, and of the files in them that are appended to."""
    entries: int
    settled: bool
    """Whether no change can have escaped the stamps."""
    damaged: tuple[tuple[Path, Stamp], ...] = ()
    """Files whose header could not be read: they may still be being written."""


class StepListings:
    """Lists steps and remembers how their directories looked. Not thread-safe: its owner locks."""

    def __init__(self, store: DiskCache | None = None, statistics: StatisticFiles | None = None) -> None:
        self._store = store
        self._statistics = statistics if statistics is not None else StatisticFiles()
        self.generation = ""
        """MindSpore versions that write such names; empty when the names do not tell."""
        self.complaints: dict[bytes, dict[str, int]] = {}
        """By directory, how often each kind of entry was ignored."""
        self._states: dict[int, _DirectoryState] = {}
        self._kept: dict[int, MindSporeStepListing] = {}
        self._constants: dict[Path, tuple[Stamps, DirectoryContents]] = {}
        self._missing: dict[int, tuple[tuple[Path, str, int | None], ...]] = {}
        self._others: dict[int, tuple[tuple[str, int | None], ...]] = {}
        self.forget_all()

    @property
    def steps(self) -> Collection[int]:
        return self._states.keys()

    def listing(self, step: int, places: Sequence[Place], progress: ProgressFn) -> MindSporeStepListing:
        """Returns the listing of a step, kept until ``drop``."""
        if step not in self._kept:
            self._kept[step] = self._list(step, places, progress)
        return self._kept[step]

    def drop(self, step: int) -> None:
        """Frees a listing; ``changed`` still works."""
        self._kept.pop(step, None)

    def forget(self, step: int) -> None:
        self._kept.pop(step, None)
        self._states.pop(step, None)
        self._missing.pop(step, None)
        self._others.pop(step, None)

    def forget_all(self) -> None:
        self._kept.clear()
        self._states.clear()
        self._most_entries = 0
        self._missing.clear()
        self._others.clear()
        self._constants.clear()  # the numbers in it refer to the old table of known names
        self.known_names = KnownNames()
        self._remembered = (
            ListingCache(self._store, self.known_names, self._statistics) if self._store is not None else None
        )

    def missing(self) -> list[tuple[Path, str, int | None]]:
        """(path, reason, step or None for constants) of entries that could not be looked at in the listed steps."""
        return [each for found in list(self._missing.values()) for each in found]

    def others(self) -> Iterator[tuple[str, int | None]]:
        """Yields path and step (None for constants) of entries that are no part of the layout."""
        return chain.from_iterable(list(self._others.values()))

    def changed(self, step: int, places: Sequence[Place]) -> bool:
        state = self._states[step]
        if _stamps(places) != state.stamps or any(stamp(path) != look for path, look in state.damaged):
            return True
        if state.settled:
            return False
        settled = not young(state.stamps)
        if sum(_count(path) for _, path, _ in places) != state.entries:
            return True
        self._states[step] = replace(state, settled=settled)
        return False

    def _list(self, step: int, places: Sequence[Place], progress: ProgressFn) -> MindSporeStepListing:
        expected = self._most_entries
        parts: list[DirectoryContents] = []
        stamps: list[Stamp] = []
        for place in places:
            found = place_stamps(place[1])
            parts.append(self._part(place, found, progress, (sum(part.entries for part in parts), expected)))
            stamps += found
        listing = MindSporeStepListing(self.known_names, parts)
        self._most_entries = max(expected, listing.entries)
        damaged = [
            place[1] / os.fsdecode(name) for place, part in zip(places, parts, strict=True) for name in part.damaged
        ]
        damage_stamps = tuple((path, stamp(path)) for path in damaged)
        self._states[step] = _DirectoryState(tuple(stamps), listing.entries, not young(stamps), damage_stamps)
        for part in parts:
            self.complaints[part.directory] = part.complaints
        self._missing[step] = tuple(
            (place[1] / os.fsdecode(name), why, None if place[2] else step)
            for place, part in zip(places, parts, strict=True)
            for name, why in part.missing or _nothing(place, part)
        )
        self._others[step] = tuple(
            (os.fsdecode(part.directory + b"/" + name), None if place[2] else step)
            for place, part in zip(places, parts, strict=True)
            for name in part.others
        )
        if not self.generation:
            self.generation = _generation(listing)
        return listing

    def _part(self, place: Place, stamps: Stamps, progress: ProgressFn, done: tuple[int, int]) -> DirectoryContents:
        shared = self._constants.get(place[1])
        if shared is not None and shared[0] == stamps and not young(stamps):  # the same constants in every step
            return shared[1]
        part = self._listed(place, stamps, progress, done)
        if place[2]:
            self._constants[place[1]] = stamps, part
        return part

    def _listed(self, place: Place, stamps: Stamps, progress: ProgressFn, done: tuple[int, int]) -> DirectoryContents:
        remembered, path = self._remembered, place[1]
        worthwhile = remembered is not None and not young(stamps)
        if remembered is not None and worthwhile:
            progress(Progress(*done, f"listing {path.parent.name}/{path.name}"))
            number = self.known_names.place(place[0].root_graph, place[2])
            part = remembered.recall(path, number, stamps, progress)
            if part is not None:
                return part
        part = list_directory(self.known_names, place, progress, done, self._statistics.take)
        if remembered is not None and worthwhile and place_stamps(path) == stamps:
            remembered.keep(path, stamps, part)
        return part


def _nothing(place: Place, part: DirectoryContents) -> tuple[tuple[bytes, str], ...]:
    """Reports a step's directory without a tensor: a copy without its files, or one about to be written."""
    held = len(part.timestamp) or part.overflows or (part.statistics is not None and len(part.statistics))
    return () if place[2] or held else ((b"", "no tensor in it"),)


def place_stamps(path: Path) -> Stamps:
    """Returns stamps that change when the listing of a directory would."""
    return stamp(path), stamp(f"{path}/{STATISTICS}"), stamp(f"{path}/{MAPPING}")


def young(stamps: Iterable[Stamp]) -> bool:
    """Whether a further change may leave the stamps equal: the last one is too recent, or nothing keeps times."""
    now = time.time_ns()
    there = (each for each in stamps if each != NEVER)
    return any(abs(now - each[0]) < YOUNG_NS or opener.made_up(each[0], each[1]) for each in there)


def _stamps(places: Sequence[Place]) -> Stamps:
    return tuple(each for _, path, _ in places for each in place_stamps(path))


def _count(path: Path) -> int:
    try:
        with opener.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0


def _generation(listing: MindSporeStepListing) -> str:
    known_names = listing.known_names
    tokens = (token for token in known_names.dtypes if token)
    token = decode(next(tokens, b""))
    return _generation_of(tuple([known_names.prefixes[at] for at in listing.prefixes[:_GUESSES].tolist()]), token)


@lru_cache(maxsize=1)
def _generation_of(prefixes: tuple[bytes, ...], token: str) -> str:
    """The steps and ranks of a run have the same names."""
    names = (split_prefix(prefix)[1] for prefix in prefixes)
    return next(filter(None, (generation(name, token) for name in names)), "")


GLANCE: Final = 32
"""Number of names that are looked at first."""

Key = tuple[bytes, bytes, bytes]
"""(``type.name``, side, slot)."""


class DirectoryTimes(NamedTuple):
    """The result of a look at a directory."""

    spans: tuple[Span, ...]
    """Runs, oldest first; of a big directory only as far as its names were read."""
    whole: bool
    """Whether all of its names were read."""
    stamps: Stamps
    """Stamps of the directory before the look."""


def read_times(path: Path, *, whole: bool = False, statistics: StatisticFiles | None = None) -> DirectoryTimes:
    """Reads some names of a directory, or its ``whole``; one that cannot be listed has one run of unknown time."""
    stamps = place_stamps(path)
    names, complete = _names(path, None if whole else GLANCE)
    seen = _parsed(path, names)
    keys = [key for key, _ in seen]
    if not complete and len(set(keys)) < len(keys):
        names, complete = _names(path, None)
        seen = _parsed(path, names)
    if not seen and complete and STATISTICS.encode() in names:
        return DirectoryTimes(_recorded(path / STATISTICS, statistics or StatisticFiles()), True, stamps)
    return DirectoryTimes(_spans(seen), complete, stamps)


def _names(path: Path, most: int | None) -> tuple[list[bytes], bool]:
    try:
        with opener.scandir(os.fsencode(path)) as entries:
            names = [entry.name for entry in islice(entries, most)]
            return names, most is None or len(names) < most or next(entries, None) is None
    except OSError:
        return [], True


def _parsed(path: Path, names: list[bytes]) -> list[tuple[Key, int]]:
    found, others = [], []
    for name in names:
        parsed = _parts(name)
        if parsed is not None:
            found.append(parsed)
        elif is_short(name):
            others.append(name)
    if others:
        mapping = _mapping(path)
        originals = (_parts(original) for name in others if (original := original_name(mapping, name)) != name)
        found += [parsed for parsed in originals if parsed is not None]
    return found


def _mapping(path: Path) -> dict[bytes, bytes]:
    try:
        return read_mapping(path / MAPPING)[0]
    except OSError:
        return {}


def _parts(name: bytes) -> tuple[Key, int] | None:
    """(tensor, time) of a tensor file's name, else None. Must be fast (0.5 µs): called for thousands of names."""
    if not name.endswith(SUFFIX):
        whole = split_device_name(name.removesuffix(b".csv")) if not is_record(name) else None
        if whole is None:
            return None
        slice_of = b"%d" % whole.thread if is_later_slice(whole) else b""  # slices of a run are different tensors
        return (whole.prefix, MEMBER, slice_of), whole.timestamp
    side = b".output."
    left, mark, right = name.rpartition(side)
    if not mark:
        side = b".input."
        left, mark, right = name.rpartition(side)
    fields = left.rsplit(b".", 3)
    _, dot, last = fields[0].rpartition(b".")
    if not dot or last.isdigit():  # without a stream, or with the numbers of a thread
        whole = split_device_name(left)
        return ((whole.prefix, side, right.partition(b".")[0]), whole.timestamp) if whole is not None else None
    if len(fields) < 4 or not fields[3].isdigit() or len(fields[3]) > 19:
        return None
    time = int(fields[3])
    return ((fields[0], side, right.partition(b".")[0]), time) if time <= MAX_TIMESTAMP else None


def _spans(seen: list[tuple[Key, int]]) -> tuple[Span, ...]:
    if not seen:
        return (NO_SPAN,)
    numbers: dict[Key, int] = {}
    key = [numbers.setdefault(each, len(numbers)) for each, _ in seen]
    if len(numbers) == len(seen):
        return (_span(seen),)
    time = np.array([each for _, each in seen], np.int64)
    operator = np.array([not text.startswith(PARAMETER) for (text, _, _), _ in seen], np.bool_)
    return _divided(np.array(key, np.int64), time, operator)


def _span(seen: list[tuple[Key, int]]) -> Span:
    """``run_order.span`` without arrays, for the few names of a brief look."""
    operators = [time for (text, _, _), time in seen if time and not text.startswith(PARAMETER)]
    parameters = [time for (text, _, _), time in seen if time and text.startswith(PARAMETER)]
    first, last = min(operators, default=0), max(operators, default=0)
    if not operators or last - first > DAY or (parameters and max(parameters) - min(parameters) > DAY):
        times = np.array([*operators, *parameters], np.int64)
        return span(times, np.arange(len(times)) < len(operators))
    return Span(first, last, min(parameters, default=0))


def _divided(key: Int64, time: Int64, operator: Mask) -> tuple[Span, ...]:
    began = begins(key, time, operator)
    run = runs_at(time, began)
    return tuple([span(time[run == at], operator[run == at]) for at in range(1, len(began) + 2)])


def _recorded(path: Path, statistics: StatisticFiles) -> tuple[Span, ...]:
    try:
        rows = statistics.look(path)
    except OSError:
        return (NO_SPAN,)
    operator = _operators(rows.prefixes)[rows.prefix]

    def key() -> Int64:
        found: Int64 = (rows.prefix.astype(np.int64) << 17) | (rows.side.astype(np.int64) << 16) | rows.slot
        return found

    once = _written_once.of(rows.prefix, rows.side, rows.slot, make=lambda: bool(np.diff(np.sort(key())).all()))
    if once and len(rows):
        return (span(rows.timestamp, operator),)
    return _divided(key(), rows.timestamp, operator)


_written_once: Final = LastResult[bool]()
"""Whether a file names every tensor once, and so holds one run."""


_operators: Final = lru_cache(maxsize=1)(are_operators)
"""The steps and ranks of a run have the same names."""


_Place = tuple[int, int]
"""(number of the graph's directory, step)."""


class RunTimes:
    """Looks briefly at the directories of a rank, and takes exact times from listings. Thread-safe.

    A directory is read to its end where it may hold several runs: a tensor was seen twice, the history repeats the
    step, or another directory was written during the same time.
    """

    def __init__(self, statistics: StatisticFiles | None = None) -> None:
        self._statistics = statistics
        self._lock = threading.RLock()
        self._times: dict[Path, DirectoryTimes] = {}
        self._fresh: set[Path] = set()
        self._exact: dict[_Place, tuple[Span, ...]] = {}
        self._order: RunOrder | None = None
        self._certain = False
        self._assumed: dict[int, dict[int, Sequence[Span]]] = {}
        self._began: dict[_Place, int] = {}

    def order(self, layout: RankLayout, history: Mapping[int, Sequence[int]]) -> RunOrder:
        with self._lock:
            if self._order is None:
                self._certain = _is_certain(layout, history)
                if not self._certain:
                    self._read_times(layout, history)
                self._assumed = self._spans(layout)
                self._began = {}
                self._order = run_order(self._assumed, history)
            return self._order

    def began(self, root: int, step: int) -> int:
        """When the only run of a step began, where a listing knows this more exactly than the order; else 0."""
        return self._began.get((root, step), 0)

    def learn(self, step: int, spans: Mapping[int, tuple[Span, ...]]) -> None:
        with self._lock:
            for root, exact in spans.items():
                self._exact[root, step] = exact
                assumed = self._assumed[root].get(step) if root in self._assumed else None
                if self._order is None or assumed == exact:
                    continue
                if assumed is not None and len(assumed) == len(exact) == 1 and self._stays(root, step, exact[0]):
                    self._began[root, step] = exact[0].began
                else:
                    self._order = None

    def forget(self, steps: Iterable[int]) -> None:
        with self._lock:
            gone = set(steps)
            self._exact = {place: spans for place, spans in self._exact.items() if place[1] not in gone}
            self.look_again()

    def look_again(self) -> None:
        """Makes the next ``order`` look again at directories whose stamps changed."""
        with self._lock:
            self._fresh.clear()
            self._order = None

    def _stays(self, root: int, step: int, exact: Span) -> bool:
        """Whether a run keeps its place in the order when its listing tells an earlier, or the first known, start."""
        if self._certain:
            return True
        order = self._order
        number = order.places.get((root, step), -1) if order is not None else -1
        if order is None or number < 0 or not exact.began:
            return False
        before = max((run.began for run in order.runs[max(number - 1, 0) : number]), default=0)
        return before < exact.began <= order.runs[number].began

    def _read_times(self, layout: RankLayout, history: Mapping[int, Sequence[int]]) -> None:
        for _, path in _places(layout):
            seen = self._times.get(path)
            if seen is None or (path not in self._fresh and (seen.stamps != place_stamps(path) or young(seen.stamps))):
                self._times[path] = read_times(path, statistics=self._statistics)
            self._fresh.add(path)
        often = {root: Counter(lines) for root, lines in history.items()}
        partly = [(place, path) for place, path in _places(layout) if self._is_partly_known(place, path)]
        crossing = self._crossing(layout) if partly else set()
        for (root, step), path in partly:
            if (root, step) in crossing or often.get(root, Counter())[step] > 1:
                self._times[path] = read_times(path, whole=True, statistics=self._statistics)

    def _is_partly_known(self, place: _Place, path: Path) -> bool:
        return place not in self._exact and not self._times[path].whole

    def _crossing(self, layout: RankLayout) -> set[_Place]:
        """Directories whose runs overlap in time with a run of another directory."""
        known = [
            (each.began, each.ended, (root, step))
            for root, steps in self._spans(layout).items()
            for step, spans in steps.items()
            for each in spans
            if each.began
        ]
        found: set[_Place] = set()
        latest, holder = -1, (-1, -1)
        for began, ended, place in sorted(known):
            if began < latest and place != holder:
                found |= {place, holder}
            if ended > latest:
                latest, holder = ended, place
        return found

    def _spans(self, layout: RankLayout) -> dict[int, dict[int, Sequence[Span]]]:
        """Known runs of every step of every graph; where several nets have the step, the net that tells most."""
        found: dict[int, dict[int, Sequence[Span]]] = {}
        for (root, step), path in _places(layout):
            seen = self._times.get(path)
            spans = self._exact.get((root, step)) or (seen.spans if seen is not None else (NO_SPAN,))
            steps = found.setdefault(root, {})
            steps[step] = max(steps.get(step, ()), spans, key=_tells)
        return found


def _is_certain(layout: RankLayout, history: Mapping[int, Sequence[int]]) -> bool:
    """Whether the history alone gives the order: one graph, each dumped step named once, ascending."""
    if len(layout.graphs) != 1 or len(history) != 1:
        return False
    graph = layout.graphs[0]
    lines = history.get(graph.root_graph, ())
    return len(set(lines)) == len(lines) and is_ascending(lines, set(graph.steps))


def _tells(spans: Sequence[Span]) -> tuple[int, bool, int]:
    return len(spans), bool(spans) and spans[0].began > 0, -spans[0].began if spans else 0


def _places(layout: RankLayout) -> Iterator[tuple[_Place, Path]]:
    for graph in layout.graphs:
        for step, path in graph.steps.items():
            yield (graph.root_graph, step), path
