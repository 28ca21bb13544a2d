"""The files of one (rank, step) as columns, before it is known which nodes they hang on.

One ``scandir`` per directory and about three microseconds per name; what stays is a handful of arrays, one blob of
the ends of names, and one entry per distinct ``type.name``.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.sources.base import Names
from tui_debugger.sources.mindspore.layout import GraphDirectory
from tui_debugger.sources.mindspore.names import SUFFIX, split_name
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS
from tui_debugger.sources.mindspore.statcsv import Statistics, read_statistics

MAPPING = "mapping.csv"
_PROGRESS_EVERY = 4096
_SILENT = frozenset({STATISTICS.encode(), MAPPING.encode()})

Prefix = tuple[int, bool, bytes]
"""(root graph, whether from the constants directory, ``type.name``): what names a node on disk."""


@dataclass(frozen=True)
class RecordedRows:
    """One ``statistic.csv``: its rows, their prefix in the listing, and where it lies."""

    rows: Statistics
    prefix: npt.NDArray[np.int32]
    path: bytes


@dataclass(frozen=True)
class Listing:
    """Tensor files of one step in columns; duplicates are still there.

    Attributes:
        prefixes: distinct node names; ``prefix`` indexes into it.
        tails: file names without their prefix (a file's name is ``prefix + tail``, and prefixes are shared by the
            files of all steps); the whole name for the rows in ``mapped``.
        mapped: rows whose file has a name of digits.
        prefix, side, slot, timestamp: what the name says.
        directories: directories as ``os.fsencode`` bytes; ``directory`` indexes into it.
        dtypes: distinct dtype tokens as written, ``b""`` for none; ``dtype`` indexes into it.
        statistics: one entry per ``statistic.csv``.
        complaints: how often what was ignored, by directory and text, for notices.
        entries: entries in the directories, of whatever kind.
    """

    prefixes: tuple[Prefix, ...]
    tails: Names
    mapped: frozenset[int]
    prefix: npt.NDArray[np.int32]
    side: npt.NDArray[np.uint8]
    slot: npt.NDArray[np.int16]
    timestamp: npt.NDArray[np.int64]
    directories: tuple[bytes, ...]
    directory: npt.NDArray[np.int16]
    dtypes: tuple[bytes, ...]
    dtype: npt.NDArray[np.uint8]
    statistics: tuple[RecordedRows, ...] = ()
    complaints: dict[tuple[bytes, str], int] = field(default_factory=dict)
    entries: int = 0

    def __len__(self) -> int:
        """Number of files."""
        return len(self.prefix)

    def path(self, index: int) -> str:
        """Path of a file; invalid UTF-8 survives as surrogates."""
        prefix = b"" if index in self.mapped else self.prefixes[int(self.prefix[index])][2]
        return os.fsdecode(self.directories[int(self.directory[index])] + b"/" + prefix + self.tails[index])


def list_directories(
    places: Sequence[tuple[GraphDirectory, Path, bool]],
    progress: ProgressFn = no_progress,
    *,
    expected: int = 0,
    shared: dict[Prefix, Prefix] | None = None,
) -> Listing:
    """Lists step (or constants) directories; one that is gone or closed to us counts as empty, with a complaint.

    Args:
        places: (graph directory, directory to list, whether it holds constants).
        progress: called every few thousand names.
        expected: how many names there will probably be, for the progress bar.
        shared: prefixes of earlier listings, so that those of many steps are the same objects; grows.

    Raises:
        CancelledError: from ``progress``.
    """
    collector = _Collector(progress, expected, {} if shared is None else shared)
    for graph, path, constants in places:
        collector.take(graph, path, constants)
    return collector.listing()


def read_mapping(path: Path) -> tuple[dict[bytes, bytes], int]:
    """``mapping.csv``: rows ``digits.npy,original name.npy`` without a header.

    Returns:
        original name by name on disk, and the number of rows that make no sense.
    """
    mapping: dict[bytes, bytes] = {}
    broken = 0
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return {}, 0
    for line in lines:
        short, comma, original = line.strip().partition(b",")
        if comma and short.removesuffix(SUFFIX).isdigit() and original:
            mapping[short.removesuffix(SUFFIX)] = original.strip().strip(b'"')
        elif line.strip():
            broken += 1
    return mapping, broken


class _Collector:
    """Appends rows to flat arrays while directories are read."""

    def __init__(self, progress: ProgressFn, expected: int, shared: dict[Prefix, Prefix]) -> None:
        self._progress = progress
        self._expected = expected
        self._shared = shared
        self._prefixes: dict[Prefix, int] = {}
        self._dtypes: dict[bytes, int] = {b"": 0}
        self._directories: list[bytes] = []
        self._tails: list[bytes] = []
        self._mapped: list[int] = []
        self._prefix = array("i")
        self._side = array("B")
        self._slot = array("h")
        self._timestamp = array("q")
        self._directory = array("h")
        self._dtype = array("B")
        self._statistics: list[tuple[Statistics, int, bytes]] = []
        self._complaints: dict[tuple[bytes, str], int] = {}
        self._done = 0

    def take(self, graph: GraphDirectory, path: Path, constants: bool) -> None:
        number = len(self._directories)
        self._directories.append(os.fsencode(path))
        mapping: dict[bytes, bytes] | None = None
        local: dict[bytes, int] = {}
        for name, regular in self._entries(path):
            fields = split_name(name)
            whole = fields is None and name.removesuffix(SUFFIX).isdigit()
            if whole:
                if mapping is None:
                    mapping, broken = read_mapping(path / MAPPING)
                    self._complain("broken lines in mapping.csv", broken)
                fields = split_name(_with_suffix(mapping.get(name.removesuffix(SUFFIX), b"")))
            if fields is None or not regular:
                self._ignore(name, graph, path, regular)
                continue
            prefix, _, _, timestamp, side, slot, _, dtype = fields
            index = local.get(prefix)
            if index is None:
                index = local[prefix] = self._prefix_id((graph.root_graph, constants, prefix))
            if whole:
                self._mapped.append(len(self._tails))
            self._tails.append(name if whole else name[len(prefix) :])
            self._prefix.append(index)
            self._side.append(side)
            self._slot.append(slot)
            self._timestamp.append(timestamp)
            self._directory.append(number)
            self._dtype.append(self._dtype_id(dtype) if dtype else 0)

    def listing(self) -> Listing:
        statistics = []
        for rows, root, path in self._statistics:
            ids = np.array([self._statistic_prefix(root, prefix) for prefix in rows.prefixes], np.int32)
            statistics.append(RecordedRows(rows, ids[rows.prefix], path))
        return Listing(
            prefixes=tuple(self._prefixes),
            tails=Names.of(self._tails),
            mapped=frozenset(self._mapped),
            prefix=np.frombuffer(self._prefix, np.int32) if self._prefix else np.zeros(0, np.int32),
            side=np.frombuffer(self._side, np.uint8) if self._side else np.zeros(0, np.uint8),
            slot=np.frombuffer(self._slot, np.int16) if self._slot else np.zeros(0, np.int16),
            timestamp=np.frombuffer(self._timestamp, np.int64) if self._timestamp else np.zeros(0, np.int64),
            directories=tuple(self._directories),
            directory=np.frombuffer(self._directory, np.int16) if self._directory else np.zeros(0, np.int16),
            dtypes=tuple(self._dtypes),
            dtype=np.frombuffer(self._dtype, np.uint8) if self._dtype else np.zeros(0, np.uint8),
            statistics=tuple(statistics),
            complaints={key: count for key, count in self._complaints.items() if count},
            entries=self._done,
        )

    def _entries(self, path: Path) -> Iterator[tuple[bytes, bool]]:
        """(name, whether it is a file) of a directory's entries."""
        text = f"listing {path.parent.name}/{path.name}"
        self._progress(Progress(self._done, self._expected, text))
        try:
            with os.scandir(os.fsencode(path)) as entries:
                for entry in entries:
                    self._done += 1
                    if not self._done % _PROGRESS_EVERY:
                        self._progress(Progress(self._done, self._expected, text))
                    yield entry.name, _is_file(entry)
        except FileNotFoundError:
            self._complain("directories that vanished")
        except OSError:
            self._complain("directories that cannot be listed")

    def _ignore(self, name: bytes, graph: GraphDirectory, path: Path, regular: bool) -> None:
        """Notes a name that is no tensor file; the statistic file is read on the way."""
        if not regular:
            self._complain("directories where files should be")
        elif name == STATISTICS.encode():
            try:
                statistics = read_statistics(path / STATISTICS, self._progress)
            except OSError:
                self._complain("statistic.csv that cannot be read")
            else:
                self._statistics.append((statistics, graph.root_graph, os.fsencode(path / STATISTICS)))
                self._complain("broken lines in statistic.csv", statistics.broken)
        elif name not in _SILENT:
            self._complain(_kind(name))

    def _statistic_prefix(self, root: int, prefix: bytes) -> int:
        """Index of a statistic row's node, whose name may be the full one with ``/`` where files have another form."""
        op_type, dot, op_name = prefix.partition(b".")
        forms = (op_name, op_name.replace(b"/", b"--"), op_name.replace(b"/", b"_"), op_name.rpartition(b"/")[2])
        keys = [(root, False, op_type + dot + form) for form in forms]
        key = next((key for key in keys if key in self._prefixes), keys[1])
        return self._prefix_id(key)

    def _prefix_id(self, key: Prefix) -> int:
        return self._prefixes.setdefault(self._shared.setdefault(key, key), len(self._prefixes))

    def _complain(self, text: str, count: int = 1) -> None:
        key = (self._directories[-1], text)
        self._complaints[key] = self._complaints.get(key, 0) + count

    def _dtype_id(self, token: bytes) -> int:
        index = self._dtypes.get(token)
        if index is None:
            # A dump knows some twenty element types; names made up by someone else share one entry.
            index = self._dtypes.setdefault(token if len(self._dtypes) < 250 else b"?", len(self._dtypes))
        return index


def _kind(name: bytes) -> str:
    """What an entry that is no tensor file is called in a notice."""
    if name.startswith(b"Opdebug."):
        return "overflow records (not read yet)"
    if name.endswith(SUFFIX):
        return "files whose name makes no sense"
    parts = name.rsplit(b".", 3)
    if len(parts) == 4 and all(part.isdigit() for part in parts[1:]):
        return "Ascend .bin files (not read yet)"
    return "other files"


def _with_suffix(name: bytes) -> bytes:
    return name if name.endswith(SUFFIX) else name + SUFFIX


def _is_file(entry: os.DirEntry[bytes]) -> bool:
    """Whether an entry is not a directory; a dangling link is a file that cannot be read."""
    try:
        return not entry.is_dir()
    except OSError:
        return True
