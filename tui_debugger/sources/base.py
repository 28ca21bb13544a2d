"""``Source`` is the protocol of everything that can be debugged, ``TensorTable`` its tensors of a step as columns."""

# ruff: noqa: ARG002 - a default answer needs no arguments

from __future__ import annotations

import gc
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Int16, Int32, Int64, Integers, UInt8, UInt16
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import (
    GraphRun,
    OperandState,
    ProgressFn,
    ReadSpec,
    RunInfo,
    Side,
    TensorStats,
    UnreadablePart,
    no_progress,
)
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel.files import look_at_files
from tui_debugger.stats.records import ReadSpecs, RecordedColumns

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph
    from tui_debugger.sources.scope import Scope

T = TypeVar("T")

MOST_ROUNDS: Final = (1 << 16) - 1
"""The most that the column of rounds holds."""


RecordedMeta = tuple[str, tuple[int, ...]]
"""Element type and shape."""
StepPlace = tuple[int | None, int | None, str]
"""Rank, step and path of a file or directory; None where it belongs to several."""


class TensorFlag(IntFlag):
    """Marks of a tensor row."""

    NONE = 0
    CONSTANT = 1
    """Lives in the constants directory; never watched."""
    STAT_ONLY = 2
    """Only a statistic.csv row exists, no values."""
    UNCERTAIN = 4
    """The file may belong to another node (see NodeFlag.UNCERTAIN)."""
    REMOTE = 8
    """STAT_ONLY, but the training still has the values: they can be fetched."""
    UNKNOWN = 16
    """REMOTE, and not even statistics are here."""
    EXACT = 32
    """STAT_ONLY, but the statistics are as complete as if they had been computed from the values here."""
    OVERFLOWED = 64
    """The device recorded an overflow of the operator run that wrote this tensor: see ``TensorTable.overflows``."""


NO_NUMBER: Final = 65535
"""Stands for an unknown task, stream, context or thread of a device."""

_BITS_OF_CORES: Final = {
    0x8: "negation of the smallest integer",
    0x10: "integer arithmetic",
    0x20: "floating-point arithmetic",
    0x80: "conversion of a negative float to an unsigned integer",
    0x100: "conversion of float32 or int32 to float16",
    0x400: "accumulation in the cube",
}
_SOURCES: Final = ("the source is NaN", "the destination is NaN", "source and destination are NaN")
_KINDS_OF_UNITS: Final = {
    "DHA Atomic Add": (8, 0xFF, dict(enumerate(("above the range", "below the range", *_SOURCES), 9))),
    "L2 Atomic Add": (16, 0x7, dict(enumerate(("above the range", "below the range", *_SOURCES), 1))),
}
"""By unit: shift and mask of the kind of overflow within the status, and the meaning of each kind."""


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """A device's record of an operator that overflowed; unknown numbers are ``NO_NUMBER``."""

    unit: str
    """Part of the device: ``AI Core``, ``L2 Atomic Add``, ``DHA Atomic Add``, ``AI Vector Core`` ..."""
    task: int
    stream: int
    status: tuple[int, ...]
    """Several words where each pipe of a core reports its own."""
    context: int = NO_NUMBER
    thread: int = NO_NUMBER
    """``context`` and ``thread`` number the part of an operator that the device divided."""
    model: int = 0
    kernel: int = 0
    block: int | None = None
    pc_start: int = 0
    para_base: int = 0
    """``pc_start`` and ``para_base`` are addresses of the operator's code and of its parameters."""

    def __str__(self) -> str:
        """``AI Core status 0x20 (task 5, stream 2, block 0)``."""
        numbers = [("task", self.task), ("stream", self.stream)]
        parts = [("context", self.context), ("thread", self.thread)]
        numbers += [part for part in parts if part[1] != NO_NUMBER]
        numbers += [("block", self.block)] if self.block is not None else []
        status = " ".join(f"{word:#x}" for word in self.status)
        return f"{self.unit} status {status} ({', '.join(f'{name} {number}' for name, number in numbers)})"

    @property
    def reports(self) -> bool:
        """Whether an overflow is reported: a status of zeros reports none."""
        return any(self.status)

    @property
    def meaning(self) -> str:
        """The vendor's words for the status; empty where nothing is published."""
        if len(self.status) != 1:
            return ""
        (status,) = self.status
        if self.unit in _KINDS_OF_UNITS:
            shift, mask, kinds = _KINDS_OF_UNITS[self.unit]
            return kinds.get(status >> shift & mask, "")
        if not self.unit.endswith("Core"):
            return ""
        return ", ".join(words for bit, words in _BITS_OF_CORES.items() if status & bit)


class Names:
    """A column of file names, the bytes that the file system gave, as one blob: no Python object per file."""

    __slots__ = ("_blob", "_ends")

    def __init__(self, blob: bytes, ends: Int64) -> None:
        """``ends[i]`` is the end of name i in ``blob``; it starts where name i-1 ended."""
        self._blob = blob
        self._ends = ends

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Names:
        ends = np.cumsum(np.fromiter((len(n) for n in names), np.int64, len(names))) if names else np.zeros(0, np.int64)
        return cls(b"".join(names), ends.astype(np.int64))

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> bytes:
        start = int(self._ends[index - 1]) if index else 0
        return self._blob[start : int(self._ends[index])]


ZEROS_DIGEST: Final = 1
"""The ``hashed`` number of a tensor of zeros. Zeros of any shape share it: it does not tell where a tensor comes from.
"""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a refresh found."""

    new_steps: tuple[tuple[int, int], ...] = ()
    """(rank, step) pairs that appeared."""
    grown_steps: tuple[tuple[int, int], ...] = ()
    """(rank, step) pairs whose file list changed."""
    new_nodes: bool = False
    """Whether some NodeTable grew or was rebuilt."""
    new_ranks: tuple[int, ...] = ()
    rebuilt: tuple[int, ...] = ()
    """Ranks whose NodeTable was made anew: a graph arrived, or a first step that was half written is complete. Earlier
    row numbers are invalid there, and all listed steps count as grown. For all other ranks ``new_nodes`` means that
    rows were appended.
    """

    def __bool__(self) -> bool:
        return bool(self.new_steps or self.grown_steps or self.new_nodes or self.new_ranks)


@dataclass(frozen=True, slots=True)
class Writer:
    """The operator that wrote a file, by the file's name; its type and name are spelled as there."""

    op_type: str
    op_name: str
    task: int
    stream: int
    """``task`` and ``stream`` are numbers of the device, 0 on CPU and GPU."""
    timestamp: int
    """Microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """An argument that is the tensor at an input slot of the node."""

    slot: int


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """An argument that is neither a tensor nor a plain value."""

    kind: str
    """The recorder's name of its type: ``torch.dtype``, ``slice`` ..."""
    text: str = ""
    """Empty where no value was recorded."""


NOT_RECORDED: Final = "not recorded"
"""The kind of an argument without a record: its text says why."""

Argument = (
    TensorSlot
    | OtherArgument
    | bool
    | int
    | float
    | str
    | slice
    | tuple["Argument", ...]
    | dict[str, "Argument"]
    | None
)


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments that an operator was called with."""

    positional: tuple[Argument, ...] = ()
    keywords: Mapping[str, Argument] = field(default_factory=dict)
    attributes: Mapping[str, Argument] | None = None
    """Attributes of the operator in a MindSpore graph, some unrelated to values; None without a graph."""
    parameters: Mapping[str, Argument] | None = None
    """Parameters of a module, by name; None where the node is no module."""
    doubt: str = ""
    """Why the recorded tensors may not be the ones that the call read and made; empty without doubt."""
    several: bool = False
    """Whether the step had several such calls: the recorded tensors may come from different ones."""
    aten: bool = False
    """Whether it is an operator of PyTorch, with the argument names of its schema."""


class Capability(IntFlag):
    """What a source can do beyond reading."""

    NONE = 0
    GROWS = 1
    """More steps may appear; ``refresh`` and ``watch_paths`` are worth calling."""
    GRAPH = 2
    """At least one rank has a graph (edges, stacks)."""


class Source(Protocol):
    """A run: ranks × steps of tensors that hang on nodes. All methods are safe to call from any thread.

    Everything is read when it is asked for, and kept. Methods raise ``errors.TdbgError`` for problems that the user can
    understand; where they can go on, they add a notice instead.
    """

    @property
    def info(self) -> RunInfo:
        """Facts about the run. Notices may grow while more is read."""

    @property
    def capabilities(self) -> Capability:
        """What this source can do beyond reading."""

    @property
    def scope(self) -> Scope:
        """The part of the run that the opened path names; in a run that grows it may grow, too."""

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""

    def steps(self, rank: int) -> Sequence[int]:
        """Dumped steps of a rank over all its graphs, in the order in which they began to run."""

    def history(self, rank: int) -> Sequence[GraphRun]:
        """The runs of a rank in the order in which they ran, by the timestamps of the dumped files."""

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - the word for it
    ) -> tuple[int, int] | None:
        """(step, round) of the dumped run of a graph before the named run; None when there is none.

        Round 0 names the newest run of the step; in the answer it means that the step holds one run only.
        """

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Parts of the run that could not be listed, as far as known; listing a step may find more."""

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """Node table of a rank."""

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """Tensor table of a step; empty when the step is not dumped. Lists the directory once.

        Its node rows are rows of ``nodes(rank)`` *after* this call: files of unknown nodes append rows to that table
        (and the next ``refresh`` says so). A table handed out earlier stays as it is.
        """

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:
        """Graphs of a rank's nodes with attributes of operators, read anew for exports; broken ones are left out."""
        return ()

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - the word for it
    ) -> CallArguments | None:
        """The arguments of a node's call in a round of a step (0: the newest); None where unknown."""
        return None

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        """The recorded statistics of a step by column title, with ``Op Name``, ``IO`` and ``Slot``; else None."""
        return None

    def notes(self, rank: int) -> RunNotes:
        """Scalars that the program noted of its steps, as far as known; may grow. Quick."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> Writer | None:
        """The operator that the name of a tensor's file tells of; None where the name tells nothing."""
        return None

    def refresh(self) -> Changes:
        """Looks for changes on disk."""

    def watch_paths(self) -> Sequence[Path]:
        """Directories whose changes are worth a ``refresh``."""
        return ()

    def close(self) -> None:
        """Frees open resources. Idempotent."""
        return


RankPlaces = Mapping[str, tuple[int, int]]
"""By axis of the parallel layout (rank's place, number of places): ``{"tp": (0, 2)}``."""


@runtime_checkable
class NumbersSource(Protocol):
    """A source whose files hold numbers beside tensors, such as the settings of an optimizer."""

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]:
        """The finite numbers beside the tensors of a step, by name."""


@runtime_checkable
class ParallelSource(Protocol):
    """A source whose recorder may have written how ranks share the work."""

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """The place of a rank along each axis (empty if unrecorded), and the name of the record that tells it."""


States = tuple[Int64, Int64]
"""Sizes in bytes, and ``opener.state_of``; -1, 0 where there is no file."""


def file_states(paths: Iterable[bytes]) -> States:
    """States of files in any directories; symbolic links are followed."""
    every = list(paths)
    return _states(every, None, mounted=opener.is_any_mounted(every))


def directory_states(directory: bytes, names: Sequence[bytes]) -> States:
    """States of files of one directory, whose path is resolved once; links are followed. Missing ones: -1, 0."""
    if os.stat not in os.supports_dir_fd or opener.is_mounted(directory):
        return file_states(directory + b"/" + name for name in names)
    try:
        descriptor = os.open(directory, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    except (OSError, ValueError):
        return np.full(len(names), -1, np.int64), np.zeros(len(names), np.int64)
    try:
        return _states(names, descriptor)
    finally:
        os.close(descriptor)


def _states(paths: Sequence[bytes], descriptor: int | None, *, mounted: bool = False) -> States:
    states = look_at_files(paths, descriptor) if kernel.available() and not mounted else None
    sizes, modified, changed, numbers = (_file_states(paths, descriptor) if states is None else states).T
    return sizes.copy(), states_of(sizes, modified, changed, numbers, time.time_ns())


def _file_states(paths: Sequence[bytes], descriptor: int | None) -> Int64:
    """``look_at_files`` without the kernel, also in mounts."""
    states = []
    for path in paths:
        try:
            status = opener.stat(path) if descriptor is None else os.stat(path, dir_fd=descriptor)
        except (OSError, ValueError):  # noqa: PERF203 - calling a function for each costs more
            states.append((-1, 0, 0, 0))
        else:
            times = _within(status.st_mtime_ns), _within(status.st_ctime_ns)
            states.append((status.st_size, *times, status.st_ino & _MOST))
    return np.array(states, np.int64).reshape(-1, 4)


_MOST: Final = (1 << 63) - 1


def _within(nanoseconds: int) -> int:
    return min(max(nanoseconds, ~_MOST), _MOST)


def states_of(sizes: Int64, modified: Int64, changed: Int64, numbers: Int64, now: int) -> Int64:
    """``opener.state_of`` of files that lie together; 0 for a missing file (size -1).

    0 for all files when all have the same time: then the store reports the time of the request or of its filling.
    """
    there = sizes >= 0
    first = np.flatnonzero(there)[:1]
    if there.sum() > 1 and opener.made_up(int(modified[first[0]]), int(changed[first[0]])):
        there &= bool((modified[there] != modified[first[0]]).any())
    return opener.state_of_times(modified, changed, numbers, now) * there


def longer(column: Array, count: int, fill: int = 0) -> Array:
    """A copy of a column with ``count`` rows or more, the new ones filled."""
    return np.append(column, np.full(max(count - len(column), 0), fill, column.dtype))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Stops the garbage collector: reading makes a million objects, none of them in a reference cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def made_once(table: TensorTable, key: object, make: Callable[[], T]) -> T:
    """The result of ``make()``, computed once for all tables that record the same (see ``TensorTable.memo``)."""
    memo = table.memo
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    found: T = memo[key]
    return found


def tensor_keys(node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike) -> Int64:
    """One int64 per (node, side, slot) that sorts like the triple; nodes below 2³¹, slots below 2¹⁶."""
    nodes, sides, slots = (np.asarray(column, dtype=np.int64) for column in (node, side, slot))
    keys: Int64 = (nodes << 17) | (sides << 16) | slots
    return keys


def latest(keys: Int64, timestamp: Int64) -> Int64:
    """Row numbers, sorted by key, of the row with the latest timestamp of each key."""
    by = np.lexsort((timestamp, keys))
    last = np.ones(len(by), np.bool_)
    last[:-1] = keys[by[1:]] != keys[by[:-1]]
    kept: Int64 = by[last]
    return kept


@dataclass(frozen=True, slots=True)
class StepEntries:
    """Entries of one step that the inventory walks; rank and step are None where the entries belong to several."""

    rank: int | None
    step: int | None
    entries: Sequence[str]
    """Files and directories. The inventory looks at each that is not ``claimed``."""
    claimed: Callable[[], Collection[str]] = frozenset
    """Returns the files that tensors are read from, and the files that the reader itself read."""


@runtime_checkable
class AccountingSource(Protocol):
    """A source that says which files it claims. The ``inventory`` lists every step of any other source."""

    @property
    def listed(self) -> int:
        """The number of steps that were listed."""

    def places(self) -> Iterable[StepPlace]:
        """Yields rank, step and path of every file and directory that belongs to a step, listed or not.

        A walk from above stops there: ``step_entries`` accounts for the entries inside.
        """

    def step_entries(self) -> Iterable[StepEntries]:
        """Yields the entries of the steps that were listed."""


def claimed_by(table: TensorTable) -> set[str]:
    rows = np.flatnonzero((table.flags & int(TensorFlag.STAT_ONLY)) == 0)
    claimed: set[str] = set()
    for start in range(0, len(rows), _CLAIMED):
        claimed.update(map(os.fsdecode, set(table.specs(rows[start : start + _CLAIMED]).paths)))
    return claimed


_CLAIMED: Final = 1 << 14
"""Number of rows whose files are named at once: a table may have a million."""


_TOGETHER: Final = 256


class TensorPlaces:
    """The columns of a tensor table that the steps of a run can share.

    Rows must be sorted by ``order`` and unique by (node, side, slot, round), later rounds behind earlier ones.
    """

    def __init__(
        self,
        node: npt.ArrayLike,
        side: npt.ArrayLike,
        slot: npt.ArrayLike,
        flags: npt.ArrayLike,
        round: npt.ArrayLike = (),  # noqa: A002 - the word for it
    ) -> None:
        """Takes ownership of the columns and makes them read-only; without ``round`` every tensor was written once."""
        self.node: Int32 = np.asarray(node, np.int32)
        """Row in the rank's NodeTable."""
        self.side: UInt8 = np.asarray(side, np.uint8)
        """``model.Side`` of the node."""
        self.slot: Int16 = np.asarray(slot, np.int16)
        """Number of the input or output of the node."""
        self.flags: UInt8 = np.asarray(flags, np.uint8)
        """``TensorFlag`` bits."""
        rounds: UInt16 = np.asarray(round, np.uint16)
        self.repeated = bool(rounds.any())
        self.round = rounds if self.repeated else np.zeros(len(self.node), np.uint16)
        """Which run of its graph within the step wrote the tensor, from 1 in the order of time; 0 where the tensor was
        written once. Later rounds come later in the table.
        """
        self.order: Int32 = np.arange(len(self.node), dtype=np.int32)
        """Position within the step. Runs of graphs by their beginning; in a run by the execution order of the nodes,
        ties and gaps by timestamp, inputs of a node before its outputs; then the parameters of the run; constants last.
        """
        for column in (self.node, self.side, self.slot, self.flags, self.order, self.round):
            column.flags.writeable = False

    @cached_property
    def lookup(self) -> tuple[Int64, Int32]:
        """Keys of the rows, ascending, and the rows in that order; rounds of one tensor from old to new."""
        keys = tensor_keys(self.node, self.side, self.slot)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[rows], rows


class TensorTable(ABC):
    """The tensors of one (rank, step) as columns, sorted by ``order``. Immutable.

    Rows are unique by (node, side, slot, round). A lookup that names no round means the newest one.
    """

    tells_overflow = False
    """Whether overflows on the device were recorded: ``TensorFlag.OVERFLOWED`` marks their tensors."""
    inputs_unknown: frozenset[int] = frozenset()
    """Rows of nodes whose inputs in this step may be other tensors than the graph says."""
    operands: Mapping[tuple[int, int], OperandState] = MappingProxyType({})
    """By (node, input slot) the state of a value when the node read it, as the training recorded it."""
    by_design: Mapping[tuple[int, int], frozenset[str]] = MappingProxyType({})
    """By (node, output slot) the operators that make an Inf finite in the training; empty for an unintended Inf."""
    unfinished = False
    """Whether the step has not ended: parameters still hold the values that its nodes read."""
    hashes_are_sums = False
    """Whether ``hashed`` is a sum or an exclusive or, which other values, or another order, may share."""
    memo: dict[object, Any] | None = None
    """Cache shared with tables of other ranks that record the same: see ``made_once``."""
    _kept: tuple[int, RecordedColumns | None] | None = None
    """The rows that were asked for last, and the first of them."""

    def __init__(self, places: TensorPlaces, timestamp: Int64) -> None:
        """``timestamp``: microseconds since the epoch, 0 when unknown."""
        self.tensor_places = places
        self.node, self.side, self.slot = places.node, places.side, places.slot
        self.flags, self.order, self.round = places.flags, places.order, places.round
        self.timestamp = timestamp
        timestamp.flags.writeable = False

    def __len__(self) -> int:
        return len(self.node)

    @abstractmethod
    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the tensor's values. Undefined for STAT_ONLY rows."""

    def specs(self, indices: Integers) -> ReadSpecs:
        """``spec`` of several rows, as columns."""
        return ReadSpecs.of(map(self.spec, indices.tolist()))

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the files of the rows, in order; empty when results are not worth caching.

        Equal digests mean the same files in the same rows; their contents may have changed (``file_states``).
        """
        return b""

    def file_states(self, indices: Integers) -> States:
        """Sizes and ``opener.state_of`` of the files of several rows, looked at now; -1 and 0 without a file."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        at = np.flatnonzero((self.flags[indices] & int(TensorFlag.STAT_ONLY)) == 0)
        sizes[at], times[at] = file_states(self.specs(indices[at]).paths)
        return sizes, times

    def own_sizes(self, sizes: Int64) -> Int64:
        """Approximate bytes of the tensors of all rows, by the sizes of their files: one may hold several tensors."""
        return sizes

    def recorded(self, index: int) -> TensorStats | None:
        """Statistics that the dump or the training recorded, else None; a count that was not recorded is 0 or None.

        By default a row of ``recorded_columns``, which is asked for some rows at once.
        """
        start = index - index % _TOGETHER
        kept = self._kept
        if kept is None or kept[0] != start:
            rows = np.arange(start, min(start + _TOGETHER, len(self)))
            kept = self._kept = start, self.recorded_columns(rows)
        return None if kept[1] is None else kept[1].stats(index - start)

    def recorded_columns(self, indices: Integers) -> RecordedColumns | None:
        """``recorded`` and ``recorded_meta`` of several rows; None where the rows must be asked one by one."""
        return None

    def doubtful_mean(self, index: int) -> float | None:
        """A recorded mean by a version that is known to compute it wrongly; else None."""
        return None

    def recorded_meta(self, index: int) -> RecordedMeta | None:
        """(dtype, shape) of a STAT_ONLY row as recorded, of an UNKNOWN row from the graph; else None."""
        return None

    def hashed(self, index: int) -> int:
        """A number for the recorded digest of a tensor's values: ``ZEROS_DIGEST`` for zeros, 0 without a digest.

        Equal digests have equal numbers, in other runs too, as long as this process lives.
        """
        return 0

    def overflows(self, index: int) -> Sequence[OverflowRecord]:
        """The device's records of the operator run that wrote a row; empty unless the row is ``OVERFLOWED``."""
        return ()

    def find(self, node: int, side: Side, slot: int, round: int = 0) -> int:  # noqa: A002 - the word for it
        """Index of a tensor, or -1; round 0 is the newest one."""
        if node < 0 or not 0 <= slot < 1 << 16:
            return -1
        keys, rows = self.tensor_places.lookup
        key = (node << 17) | (int(side) << 16) | slot
        end = int(np.searchsorted(keys, key, side="right"))
        if not end or int(keys[end - 1]) != key:
            return -1
        if not round:
            return int(rows[end - 1])
        start = int(np.searchsorted(keys, key))
        return next((int(row) for row in rows[start:end] if int(self.round[row]) == round), -1)

    def find_all(
        self, node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike, at: npt.ArrayLike | None = None
    ) -> Int64:
        """Indices of several tensors, given as columns; -1 where there is none.

        Of several rounds the newest one written no later than ``at`` (else the first); without ``at`` the newest one.
        """
        wanted = tensor_keys(node, side, slot)
        keys, rows = self.tensor_places.lookup
        if not len(keys):
            return np.full(len(wanted), -1, np.int64)
        if self.tensor_places.repeated:
            return self._rounds_at(wanted, None if at is None else np.asarray(at, np.int64))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, rows[place], np.int64(-1))

    def _rounds_at(self, wanted: Int64, at: Int64 | None) -> Int64:
        keys, rows = self.tensor_places.lookup
        start, end = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
        last = end - 1
        if at is not None:
            when = self.timestamp[rows]
            for number in np.flatnonzero(end - start > 1).tolist():
                earlier = np.searchsorted(when[start[number] : end[number]], at[number], side="right")
                last[number] = start[number] + max(int(earlier) - 1, 0)
        found: Int64 = np.where(end > start, rows[np.maximum(last, 0)], np.int64(-1))
        return found

    def of_node(self, node: int, *, every: bool = False) -> Int64:
        """Indices of a node's tensors: inputs by slot, then outputs by slot; the newest round unless ``every``."""
        keys, rows = self.tensor_places.lookup
        if node < 0:
            return np.zeros(0, np.int64)
        first, last = (int(each) for each in np.searchsorted(keys, [node << 17, (node + 1) << 17]))
        if self.tensor_places.repeated and not every:
            of = keys[first:last]
            newest: Int64 = rows[first:last][np.append(of[1:] != of[:-1], np.ones(min(len(of), 1), np.bool_))]
            return newest.astype(np.int64)
        found: Int64 = rows[first:last].astype(np.int64)
        return found
