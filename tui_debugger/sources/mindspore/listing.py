"""The files of one (rank, step) as columns, before it is known which nodes they hang on.

One ``scandir`` per directory and about two microseconds per name; what stays is a handful of arrays, and one entry per
distinct ``type.name``.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16, Int32, Int64, UInt8
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.opener import read_regular, why_not
from tui_debugger.sources.base import Names
from tui_debugger.sources.mindspore.files import NO_ODDITIES, Files, Oddities
from tui_debugger.sources.mindspore.layout import GraphDirectory, may_hold_tensors
from tui_debugger.sources.mindspore.lexicon import Lexicon, Parts, Pattern
from tui_debugger.sources.mindspore.names import SUFFIX
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS
from tui_debugger.sources.mindspore.statcsv import Statistics, read_statistics
from tui_debugger.sources.mindspore.writings import Writings, writings_of

MAPPING = "mapping.csv"
_VANISHED, _CLOSED = "directories that vanished", "directories that cannot be listed"
NOT_LISTED = frozenset({_VANISHED, _CLOSED})
"""Complaints about what could not be looked at; all others are about what was left out."""
_NONSENSE = "files whose name makes no sense"
_BINARY = "Ascend .bin files (not read yet)"
_PROGRESS_EVERY = 4096
_SOME = b"*"
"""Stands for the name of several files."""
_SILENT = frozenset({STATISTICS.encode(), MAPPING.encode()})

Place = tuple[GraphDirectory, Path, bool]
"""(graph directory, directory to list, whether it holds constants)."""


@dataclass(frozen=True)
class RecordedRows:
    """One ``statistic.csv``: its rows, their prefix in the lexicon, and where it lies."""

    rows: Statistics
    prefix: Int32
    path: bytes


@dataclass(frozen=True, eq=False)
class Part:
    """What one directory holds; duplicates are still there.

    Attributes:
        directory: as ``os.fsencode`` bytes.
        place: number of its kind in the lexicon.
        pattern: names of tensor files but for their timestamps.
        timestamp: of the files, in the pattern's order.
        odd: names that pattern and timestamps do not spell.
        statistics: the rows of ``statistic.csv``.
        complaints: how often what was ignored, for notices.
        entries: entries in the directory, of whatever kind.
        missing: (name, empty for the directory itself and ``*`` for several files; why) of what may hold tensors and
            could not be looked at.
    """

    directory: bytes
    place: int
    pattern: Pattern
    timestamp: Int64
    odd: Oddities = NO_ODDITIES
    statistics: Statistics | None = None
    complaints: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    missing: tuple[tuple[bytes, str], ...] = ()


class Listing:
    """The directories of one step together.

    Attributes:
        lexicon: what the numbers of the parts mean.
        parts: one per directory; file numbers count through all of them.
    """

    def __init__(self, lexicon: Lexicon, parts: Sequence[Part]) -> None:
        """Joins directories."""
        self.lexicon, self.parts = lexicon, tuple(parts)

    def __len__(self) -> int:
        """Number of files."""
        return sum(len(part.timestamp) for part in self.parts)

    @cached_property
    def files(self) -> Files:
        """All files."""
        parts = self.parts
        starts = np.cumsum([0, *(len(part.timestamp) for part in parts)])
        odd = [(part.odd, start) for part, start in zip(parts, starts.tolist(), strict=False) if len(part.odd)]
        return Files(
            self.lexicon,
            prefix=_joined([part.pattern.prefix for part in parts], np.int32),
            device=_joined([part.pattern.device for part in parts], np.int32),
            ending=_joined([part.pattern.ending for part in parts], np.int32),
            timestamp=_joined([part.timestamp for part in parts], np.int64),
            directory=np.repeat(np.arange(len(parts), dtype=np.int16), np.diff(starts)),
            directories=tuple(part.directory for part in parts),
            odd=Oddities(
                _joined([names.at + start for names, start in odd], np.int64),
                Names.of([name for names, _ in odd for name in names.names]),
            ),
        )

    @cached_property
    def side(self) -> UInt8:
        """Side of every file."""
        return self.lexicon.sides()[self.files.ending]

    @cached_property
    def slot(self) -> Int16:
        """Slot of every file."""
        return self.lexicon.slots()[self.files.ending]

    @cached_property
    def statistics(self) -> tuple[RecordedRows, ...]:
        """One entry per ``statistic.csv``."""
        if all(part.statistics is None for part in self.parts):
            return ()
        known = {number for part in self.parts for number in part.pattern.prefixes.tolist()}
        found = []
        for part in self.parts:
            if part.statistics is not None:
                place = self.lexicon.place(self.lexicon.places[part.place][0], constants=False)
                ids = np.array([self._recorded(place, text, known) for text in part.statistics.prefixes], np.int32)
                path = part.directory + b"/" + STATISTICS.encode()
                found.append(RecordedRows(part.statistics, ids[part.statistics.prefix], path))
        return tuple(found)

    @cached_property
    def writings(self) -> Writings:
        """Which run wrote what."""
        return writings_of(self)

    @cached_property
    def prefixes(self) -> Int32:
        """The distinct prefixes of files and statistic rows, ascending."""
        columns = [part.pattern.prefixes for part in self.parts] + [np.unique(each.prefix) for each in self.statistics]
        return columns[0] if len(columns) == 1 else np.unique(_joined(columns, np.int32))

    @property
    def entries(self) -> int:
        """Entries in the directories, of whatever kind."""
        return sum(part.entries for part in self.parts)

    def _recorded(self, place: int, text: bytes, known: set[int]) -> int:
        """Prefix of a statistic row, whose name may be the full one with ``/`` where files have another form."""
        op_type, dot, op_name = text.partition(b".")
        forms = (op_name, op_name.replace(b"/", b"--"), op_name.replace(b"/", b"_"), op_name.rpartition(b"/")[2])
        numbers = (self.lexicon.find_prefix(place, op_type + dot + form) for form in forms)
        number = next((number for number in numbers if number in known), -1)
        if number < 0:
            number = self.lexicon.prefix_number(place, op_type + dot + forms[1])
        known.add(number)
        return number


def list_directory(lexicon: Lexicon, place: Place, progress: ProgressFn, done: tuple[int, int] = (0, 0)) -> Part:
    """Lists one directory; ``done`` are the entries before it and the expected ones, for the progress bar.

    Raises:
        CancelledError: from ``progress``.
    """
    return _Collector(lexicon, place, progress, done).part()


def read_mapping(path: Path) -> tuple[dict[bytes, bytes], int]:
    """``mapping.csv``: rows ``digits.npy,original name.npy`` without a header.

    Returns:
        original name by name on disk, and the number of rows that make no sense.

    Raises:
        OSError: it cannot be read.
    """
    mapping: dict[bytes, bytes] = {}
    broken = 0
    for line in read_regular(path).splitlines():
        short, comma, original = line.strip().partition(b",")
        if comma and short.removesuffix(SUFFIX).isdigit() and original:
            mapping[short.removesuffix(SUFFIX)] = original.strip().strip(b'"')
        elif line.strip():
            broken += 1
    return mapping, broken


class _Collector:
    """Appends rows to flat arrays while a directory is read."""

    def __init__(self, lexicon: Lexicon, place: Place, progress: ProgressFn, done: tuple[int, int]) -> None:
        self._lexicon = lexicon
        self._graph, self._path, constants = place
        self._place = lexicon.place(self._graph.root_graph, constants)
        self._progress = progress
        self._before, self._expected = done
        self._entries = 0
        self._mapping: dict[bytes, bytes] | None = None
        self._prefix, self._device, self._ending = array("i"), array("i"), array("i")
        self._timestamp = array("q")
        self._odd_at: list[int] = []
        self._odd_names: list[bytes] = []
        self._statistics: Statistics | None = None
        self._complaints: dict[str, int] = {}
        self._missing: list[tuple[bytes, str]] = []

    def part(self) -> Part:
        """Reads the directory."""
        parts_of, place = self._lexicon.parts, self._place
        prefixes, devices, endings = self._prefix.append, self._device.append, self._ending.append
        timestamps = self._timestamp.append
        for name, regular in self._listed():
            parts = parts_of(place, name) if regular else None
            if parts is None:
                parts = self._mapped(name) if regular else None
                if parts is None:
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

    def _keep_name(self, name: bytes) -> None:
        """Keeps the next file's name whole."""
        if not self._odd_at or self._odd_at[-1] < len(self._prefix):
            self._odd_at.append(len(self._prefix))
            self._odd_names.append(name)

    def _sorted(self) -> Part:
        """The rows in the order of patterns."""
        prefix, device, ending = (_column(each, np.int32) for each in (self._prefix, self._device, self._ending))
        timestamp = _column(self._timestamp, np.int64)
        keys = (prefix.astype(np.int64) << 32) | ending
        by = np.argsort(keys)
        if (keys[by[1:]] == keys[by[:-1]]).any():
            by = np.lexsort((device, timestamp, keys))
        alike = len(device) > 0 and bool((device == device[0]).all())
        device = np.broadcast_to(device[0], device.shape) if alike else device[by]
        return Part(
            os.fsencode(self._path),
            self._place,
            self._lexicon.pattern(prefix[by], device, ending[by]),
            timestamp[by],
            self._odd(by),
            self._statistics,
            {text: count for text, count in self._complaints.items() if count},
            self._entries,
            (*self._missing, *self._not_understood()),
        )

    def _not_understood(self) -> Iterator[tuple[bytes, str]]:
        """Files that hold tensors, nobody knows of what."""
        for text, words in ((_NONSENSE, "whose name makes no sense"), (_BINARY, "that cannot be read yet")):
            count = self._complaints.get(text, 0)
            if count:
                yield _SOME, f"{count:,} {'file' if count == 1 else 'files'} {words}"

    def _odd(self, by: Int64) -> Oddities:
        place = np.empty(len(by), np.int64)
        place[by] = np.arange(len(by))
        return Oddities.sorted(place[np.array(self._odd_at, np.int64)], Names.of(self._odd_names))

    def _listed(self) -> Iterator[tuple[bytes, bool]]:
        """(name, whether it is a file) of the entries."""
        text = f"listing {self._path.parent.name}/{self._path.name}"
        self._progress(Progress(self._before, self._expected, text))
        try:
            with os.scandir(os.fsencode(self._path)) as entries:
                for entry in entries:
                    self._entries += 1
                    if not self._entries % _PROGRESS_EVERY:
                        self._progress(Progress(self._before + self._entries, self._expected, text))
                    yield entry.name, _is_file(entry)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            self._complain(_VANISHED if gone else _CLOSED)
            self._missing.append((b"", why_not(self._path, error)))

    def _mapped(self, name: bytes) -> Parts | None:
        """What ``mapping.csv`` says about a name of digits; None for another name, or when it says nothing."""
        if not name.removesuffix(SUFFIX).isdigit():
            return None
        return self._lexicon.parts(self._place, _with_suffix(self._names().get(name.removesuffix(SUFFIX), b"")))

    def _names(self) -> dict[bytes, bytes]:
        """The names in ``mapping.csv``."""
        if self._mapping is None:
            self._mapping = {}
            try:
                self._mapping, broken = read_mapping(self._path / MAPPING)
            except FileNotFoundError:
                if os.path.islink(self._path / MAPPING):  # noqa: PTH114 - never raises
                    self._miss(MAPPING.encode(), None)
            except OSError as error:
                self._miss(MAPPING.encode(), error)
            else:
                self._broken(MAPPING, broken)
        return self._mapping

    def _ignore(self, name: bytes, regular: bool) -> None:
        """Notes a name that is no tensor file; the statistic file is read on the way."""
        if not regular:
            self._complain("directories where files should be")
            if name.endswith(SUFFIX) or name in _SILENT:
                self._miss(name, None)
            elif may_hold_tensors(os.fsencode(self._path) + b"/" + name):
                self._missing.append((name, "tensors in a directory inside a step"))
        elif name == STATISTICS.encode():
            try:
                self._statistics = read_statistics(self._path / STATISTICS, self._progress)
            except OSError as error:
                self._complain("statistic.csv that cannot be read")
                self._miss(name, error)
            else:
                self._broken(STATISTICS, self._statistics.broken)
        elif name == MAPPING.encode():
            self._names()
        else:
            self._complain(_kind(name))

    def _miss(self, name: bytes, error: OSError | None) -> None:
        wanted = "a file" if name in _SILENT else "a tensor file"
        self._missing.append((name, why_not(os.fsencode(self._path) + b"/" + name, error, wanted=wanted)))

    def _broken(self, name: str, lines: int) -> None:
        """Notes lines that make no sense: the tensors that they tell of are not known."""
        self._complain(f"broken lines in {name}", lines)
        if lines:
            self._missing.append((name.encode(), f"{lines:,} broken {'line' if lines == 1 else 'lines'}"))

    def _complain(self, text: str, count: int = 1) -> None:
        self._complaints[text] = self._complaints.get(text, 0) + count


def _column(values: array[int], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(values, dtype) if values else np.zeros(0, dtype)


def _joined(columns: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The columns behind each other; a single one as it is."""
    return columns[0] if len(columns) == 1 else np.concatenate([np.zeros(0, dtype), *columns])


def _kind(name: bytes) -> str:
    """What an entry that is no tensor file is called in a notice."""
    if name.startswith(b"Opdebug."):
        return "overflow records (not read yet)"
    if name.endswith(SUFFIX):
        return _NONSENSE
    parts = name.rsplit(b".", 3)
    if len(parts) == 4 and all(part.isdigit() for part in parts[1:]):
        return _BINARY
    return "other files"


def _with_suffix(name: bytes) -> bytes:
    return name if name.endswith(SUFFIX) else name + SUFFIX


def _is_file(entry: os.DirEntry[bytes]) -> bool:
    """Whether an entry is not a directory; a dangling link is a file that cannot be read."""
    try:
        return not entry.is_dir()
    except OSError:
        return True
