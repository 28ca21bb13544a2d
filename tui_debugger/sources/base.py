"""The one seam for data: everything that can be debugged is a Source, and its tensors are a table of columns.

The states of many files are asked for by directory: a path is walked once, not for each file.
"""

from __future__ import annotations

import gc
import os
import time
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
from tui_debugger.arrays import Int64, Integers
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
from tui_debugger.notes import RunNotes
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel.files import look_at_files
from tui_debugger.stats.records import ReadSpecs, RecordedColumns

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph
    from tui_debugger.sources.scope import Scope

T = TypeVar("T")

MOST_ROUNDS: Final = (1 << 16) - 1
"""The most that the column of rounds holds."""


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
    """REMOTE, and nothing of it is here, not even statistics."""
    EXACT = 32
    """STAT_ONLY, but its statistics are complete: as if they had been taken from the values here."""
    OVERFLOWED = 64
    """The device recorded that the operator whose run wrote this overflowed: see ``TensorTable.overflows``."""


NO_NUMBER: Final = 65535
"""A task, stream, context or thread of a device that is not known."""

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
"""By unit, where in its status the kind of overflow stands, which bits that are, and the kinds."""


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """A record that a device wrote of an operator that overflowed.

    Attributes:
        unit: the part of the device: ``AI Core``, ``L2 Atomic Add``, ``DHA Atomic Add``, ``AI Vector Core`` ...
        task, stream: the numbers that the operator ran under; ``NO_NUMBER`` where they are not known.
        status: the words that the unit reported; several where each pipe of a core has its own.
        context, thread: numbers of the part of an operator that is divided; else ``NO_NUMBER``.
        model, kernel, block: numbers of the model, the kernel's code and the block of data.
        pc_start, para_base: addresses of its code and of its parameters.
    """

    unit: str
    task: int
    stream: int
    status: tuple[int, ...]
    context: int = NO_NUMBER
    thread: int = NO_NUMBER
    model: int = 0
    kernel: int = 0
    block: int | None = None
    pc_start: int = 0
    para_base: int = 0

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
        """Tells whether an overflow is reported: a status of zeros reports none."""
        return any(self.status)

    @property
    def meaning(self) -> str:
        """Returns what the vendor says of the status; empty where nothing is published."""
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
    """A column of file names as one byte blob: no Python object per file.

    Names are kept as the bytes the file system gave (``os.fsencode``), so that invalid UTF-8 survives.
    """

    __slots__ = ("_blob", "_ends")

    def __init__(self, blob: bytes, ends: npt.NDArray[np.int64]) -> None:
        """``ends[i]`` is the end of name i in ``blob``; it starts where name i-1 ended."""
        self._blob = blob
        self._ends = ends

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Names:
        """Packs a sequence."""
        ends = np.cumsum(np.fromiter((len(n) for n in names), np.int64, len(names))) if names else np.zeros(0, np.int64)
        return cls(b"".join(names), ends.astype(np.int64))

    def __len__(self) -> int:
        """Number of names."""
        return len(self._ends)

    def __iter__(self) -> Iterator[bytes]:
        """All names."""
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> bytes:
        """Name at an index."""
        start = int(self._ends[index - 1]) if index else 0
        return self._blob[start : int(self._ends[index])]


ZEROS_DIGEST: Final = 1
"""A digest of zeros: tensors of any shape have it, so it does not tell where one comes from."""


class TensorTable(Protocol):
    """The tensors of one (rank, step) as columns, sorted by ``order``. Immutable.

    Attributes:
        node: int32 row in the rank's NodeTable.
        side: uint8, ``model.Side``.
        slot: int16.
        flags: uint8, ``TensorFlag``.
        order: int32 position of this tensor within the step: runs of graphs by the time at which they began; in a run
            by execution order of its node, ties and gaps by timestamp; the parameters of a run when they were written,
            after its operators; constants last. Inputs of a node come before its outputs.
        timestamp: int64, microseconds since the epoch, 0 when unknown.
        round: uint16, which run of its graph within the step wrote it, from 1 in the order of time; 0 where the tensor
            was written once. Later rounds come later in the table.

        tells_overflow: whether an operator that overflowed on the device would be known to have: then
            ``TensorFlag.OVERFLOWED`` marks what it read and wrote.
        inputs_unknown: rows of the nodes that may have been made from something else in this step than the graph says.
        operands: by node and input slot what a training said of a value as it was when the node read it.
        by_design: by node and output slot what made an Inf of a training finite; nothing where that is not meant.
        unfinished: the step has not ended: parameters still hold what its nodes were fed with.

    Rows are unique by (node, side, slot, round). Who names no round means the newest one.
    """

    node: npt.NDArray[np.int32]
    side: npt.NDArray[np.uint8]
    slot: npt.NDArray[np.int16]
    flags: npt.NDArray[np.uint8]
    order: npt.NDArray[np.int32]
    timestamp: npt.NDArray[np.int64]
    round: npt.NDArray[np.uint16]
    tells_overflow: bool
    inputs_unknown: frozenset[int]
    operands: Mapping[tuple[int, int], OperandState]
    by_design: Mapping[tuple[int, int], frozenset[str]]
    unfinished: bool

    def __len__(self) -> int:
        """Number of tensors."""

    def find(self, node: int, side: Side, slot: int, round: int = 0) -> int:  # noqa: A002 - the word for it
        """Index of a tensor, or -1; round 0 is the newest one."""

    def find_all(
        self, node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike, at: npt.ArrayLike | None = None
    ) -> npt.NDArray[np.int64]:
        """Indices of several tensors, given as columns; -1 where there is none.

        Of several rounds the newest one that was written at a time ``at`` or before (the first one, where all were
        written later); without ``at`` the newest one.
        """

    def of_node(self, node: int, *, every: bool = False) -> npt.NDArray[np.int64]:
        """Indices of a node's tensors: inputs by slot, then outputs by slot; the newest round, or every one."""

    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the tensor's values. Undefined for STAT_ONLY rows."""

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> ReadSpecs:
        """``spec`` of several rows, as columns."""

    @property
    def digest(self) -> bytes:
        """16 bytes that name the files of the table in the order of its rows, directories included.

        Equal digests mean the same files in the same rows; their contents may have changed (``file_states``).
        Empty when what was measured is not worth remembering: the files will not be there another time.
        """

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sizes, and ``opener.state_of``, of the files of several rows as they are now; -1, 0 without a file."""

    def own_sizes(self, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes of the tensors of all rows, about, by the sizes of their files: several may lie in one file."""

    def recorded(self, index: int) -> TensorStats | None:
        """Statistics that the dump itself recorded (statistic.csv), or that a training sent; else None.

        Their counts may be partial: a field that was not recorded is 0 or None.
        """

    def recorded_columns(self, indices: npt.NDArray[np.integer[Any]]) -> RecordedColumns | None:
        """``recorded`` and ``recorded_meta`` of several rows; None where they are known one by one only."""

    def doubtful_mean(self, index: int) -> float | None:
        """A mean that the dump recorded, but as a version does that is known to get it wrong; else None."""

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) of STAT_ONLY rows where they were recorded; of UNKNOWN ones from the graph; else None."""

    def hashed(self, index: int) -> int:
        """A number for the digest that the dump recorded of a tensor's values, ``ZEROS_DIGEST``; 0 where there is none.

        Equal digests have equal numbers, in other runs too, as long as this process lives.
        """

    @property
    def hashes_are_sums(self) -> bool:
        """Tells whether ``hashed`` is a sum or an exclusive or: other values, or another order, may have the same."""

    def overflows(self, index: int) -> Sequence[OverflowRecord]:
        """Returns what the device recorded of the operator that wrote a row; nothing unless it is ``OVERFLOWED``."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a refresh found.

    Attributes:
        new_steps: (rank, step) pairs that appeared.
        grown_steps: (rank, step) pairs whose file list changed.
        new_nodes: whether some NodeTable grew or was rebuilt.
        new_ranks: ranks that appeared.
        rebuilt: ranks whose NodeTable was made anew, because a graph arrived or a first step that was half written
            is complete: row numbers of before mean nothing there, and all their listed steps count as grown.
            Elsewhere ``new_nodes`` only means that rows were appended.
    """

    new_steps: tuple[tuple[int, int], ...] = ()
    grown_steps: tuple[tuple[int, int], ...] = ()
    new_nodes: bool = False
    new_ranks: tuple[int, ...] = ()
    rebuilt: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Tells whether anything changed."""
        return bool(self.new_steps or self.grown_steps or self.new_nodes or self.new_ranks)


@dataclass(frozen=True, slots=True)
class Writer:
    """The operator that wrote a file, by the file's name.

    Attributes:
        op_type, op_name: as the file spells them.
        task, stream: numbers of the device, 0 on CPU and GPU.
        timestamp: microseconds since the epoch.
    """

    op_type: str
    op_name: str
    task: int
    stream: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """An argument that is a tensor: the one at an input slot of the node."""

    slot: int


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """An argument that is neither a tensor nor a plain value.

    Attributes:
        kind: its type, as the recorder calls it: ``torch.dtype``, ``slice`` ...
        text: its value as text; empty where that was not recorded.
    """

    kind: str
    text: str = ""


NOT_RECORDED: Final = "not recorded"
"""The kind of an argument of which only is known why it was not recorded: that is its text."""

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
    """The arguments that an operator was called with.

    Attributes:
        positional: in order.
        keywords: by name.
        attributes: what belongs to the operator itself, in MindSpore's graphs; some of it says nothing of the values.
            None where it is no operator of a graph.
        parameters: those of a module, by name; None where it is no module.
        doubt: why the recorded tensors may not be those that it read and made; empty where they are.
        several: there were several such calls in the step: recorded tensors may be of different ones.
        aten: of PyTorch's operators, by the names of its schema.
    """

    positional: tuple[Argument, ...] = ()
    keywords: Mapping[str, Argument] = field(default_factory=dict)
    attributes: Mapping[str, Argument] | None = None
    parameters: Mapping[str, Argument] | None = None
    doubt: str = ""
    several: bool = False
    aten: bool = False


class Capability(IntFlag):
    """The abilities of a source beyond reading."""

    NONE = 0
    GROWS = 1
    """More steps may appear; ``refresh`` and ``watch_paths`` are worth calling."""
    GRAPH = 2
    """At least one rank has a graph (edges, stacks)."""


class Source(Protocol):
    """A run: ranks × steps of tensors that hang on nodes. All methods are safe to call from any thread.

    Nothing is read before it is asked for; everything asked for is kept. Methods raise
    ``errors.TdbgError`` for what the user can understand and degrade with a notice where they can.
    """

    @property
    def info(self) -> RunInfo:
        """The facts about the run. Notices may grow while more is read."""

    @property
    def capabilities(self) -> Capability:
        """The abilities of this source."""

    @property
    def scope(self) -> Scope:
        """The part of the run that the opened path names; a run that grows may grow there, too."""

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""

    def steps(self, rank: int) -> Sequence[int]:
        """Dumped steps of a rank over all its graphs, in the order in which they began to run."""

    def history(self, rank: int) -> Sequence[GraphRun]:
        """The runs of a rank, in the order in which they ran: by the time stamps of what was dumped."""

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - the word for it
    ) -> tuple[int, int] | None:
        """(step, round) of the dumped run of a graph before the one that is named; None when there is none.

        Round 0 names the newest run of the step; in the answer it means that the step holds one run only.
        """

    def unreadable(self) -> Sequence[UnreadablePart]:
        """The parts of the run that could not be listed, as far as it was looked at; listing a step may find more."""

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """Node table of a rank."""

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """Tensor table of a step; empty when the step is not dumped. Lists the directory once.

        Its node rows are rows of ``nodes(rank)`` as it is *after* this call: a step with files of unknown nodes
        makes that table longer (and the next ``refresh`` says so). A table handed out stays as it is.
        """

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:
        """The graphs that the nodes of a rank come from, in the order of their rows, with the attributes of operators.

        They are read anew, for exports; empty without a graph. Broken ones are left out.
        """

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - the word for it
    ) -> CallArguments | None:
        """Returns what a node was called with in a round of a step (0: the newest); None where it is not known."""

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        """The statistics that the dump recorded of a step as they stand, by the titles of its own columns; else None.

        Every row has ``Op Name``, ``IO`` and ``Slot``.
        """

    def notes(self, rank: int) -> RunNotes:
        """The scalars that the program noted of its steps, as far as they are known by now; may grow. Quick."""

    def written_by(self, spec: ReadSpec) -> Writer | None:
        """Returns what the name of a tensor's file says of the operator that wrote it; None where it does not say."""

    def refresh(self) -> Changes:
        """Looks for what is new on disk."""

    def watch_paths(self) -> Sequence[Path]:
        """Directories whose changes are worth a ``refresh``."""

    def close(self) -> None:
        """Frees what is open. Idempotent."""


RankPlaces = Mapping[str, tuple[int, int]]
"""The place of a rank along each axis of the parallel layout, and how many there are: ``{"tp": (0, 2)}``."""


@runtime_checkable
class NumbersSource(Protocol):
    """A source whose files hold numbers beside tensors, such as the settings of an optimizer."""

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]:
        """The finite numbers beside the tensors of a step, by name."""


@runtime_checkable
class ParallelSource(Protocol):
    """A source whose recorder may have written how ranks share the work."""

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """The place of a rank along each axis (none where nobody wrote it), and what it was written in, in words."""


States = tuple[Int64, Int64]
"""Sizes in bytes, and ``opener.state_of``; -1, 0 where there is no file."""


def file_states(paths: Iterable[bytes]) -> States:
    """States of files anywhere; symbolic links are followed."""
    every = list(paths)
    return _states(every, None, mounted=opener.is_any_mounted(every))


def directory_states(directory: bytes, names: Sequence[bytes]) -> States:
    """States of files of one directory; symbolic links are followed. Without the directory there are no files."""
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
    """Does what ``look_at_files`` does, one by one, and in mounts too."""
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
    """Returns the first or last time of 64 bits for one beyond it."""
    return min(max(nanoseconds, ~_MOST), _MOST)


def states_of(sizes: Int64, modified: Int64, changed: Int64, numbers: Int64, now: int) -> Int64:
    """Returns ``opener.state_of`` files that lie together; 0 for one that is not there (size -1).

    0 for all of them when all have one and the same time: a store says when it was asked, or filled.
    """
    there = sizes >= 0
    first = np.flatnonzero(there)[:1]
    if there.sum() > 1 and opener.made_up(int(modified[first[0]]), int(changed[first[0]])):
        there &= bool((modified[there] != modified[first[0]]).any())
    return opener.state_of_times(modified, changed, numbers, now) * there


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Reading makes a million objects, none of them in a circle: looking for circles would take longer than that."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def made_once(table: TensorTable, key: object, make: Callable[[], T]) -> T:
    """``make()``, which asks a table for what it records: once for all tables that record the same."""
    memo = table.memo if isinstance(table, SortedTensorTable) else None
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
    """Of several rows with one key the one with the latest timestamp: row numbers, sorted by key."""
    by = np.lexsort((timestamp, keys))
    last = np.ones(len(by), np.bool_)
    last[:-1] = keys[by[1:]] != keys[by[:-1]]
    kept: Int64 = by[last]
    return kept


@dataclass(frozen=True, slots=True)
class StepEntries:
    """Entries of one step that the inventory walks.

    Attributes:
        rank, step: the step; None where the entries belong to several, such as the directory of a rank, which was one
            place until somebody looked at that rank.
        entries: files and directories. Those that are not ``claimed`` are looked at.
        claimed: returns the files that tensors are read from, and the files that the reader itself read.
    """

    rank: int | None
    step: int | None
    entries: Sequence[str]
    claimed: Callable[[], Collection[str]] = frozenset


@runtime_checkable
class AccountingSource(Protocol):
    """A source that says which files it claims, for the ``inventory``, which lists every step of any other source."""

    @property
    def listed(self) -> int:
        """The number of steps that were listed."""

    def places(self) -> Iterable[tuple[int | None, int | None, str]]:
        """Yields rank, step and path of every file and directory that belongs to a step, whether it was listed or not.

        A walk from above stops there: ``step_entries`` accounts for the entries inside.
        """

    def step_entries(self) -> Iterable[StepEntries]:
        """Yields the entries of the steps that were listed. Entries of other steps were not asked for."""


def claimed_by(table: TensorTable) -> set[str]:
    """Returns the files that the tensors of a table are read from."""
    rows = np.flatnonzero((table.flags & int(TensorFlag.STAT_ONLY)) == 0)
    claimed: set[str] = set()
    for start in range(0, len(rows), _CLAIMED):
        claimed.update(map(os.fsdecode, set(table.specs(rows[start : start + _CLAIMED]).paths)))
    return claimed


_CLAIMED: Final = 1 << 14
"""Rows whose files are named at once: there may be a million."""


class TensorPlaces:
    """The places of a table's tensors: all about its rows that the steps of a run can share.

    Attributes:
        node, side, slot, flags, order, round: see ``base.TensorTable``.
        repeated: whether any tensor was written several times.
    """

    def __init__(
        self,
        node: npt.NDArray[np.int32],
        side: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.int16],
        flags: npt.NDArray[np.uint8],
        round: npt.NDArray[np.uint16] | None = None,  # noqa: A002 - see base.TensorTable
    ) -> None:
        """Takes ownership of the columns and makes them read-only; no ``round``: every tensor was written once."""
        self.node, self.side, self.slot, self.flags = node, side, slot, flags
        self.repeated = round is not None and bool(round.any())
        self.round = round if round is not None else np.zeros(len(node), np.uint16)
        self.order: npt.NDArray[np.int32] = np.arange(len(node), dtype=np.int32)
        for column in (node, side, slot, flags, self.order, self.round):
            column.flags.writeable = False

    @cached_property
    def lookup(self) -> tuple[Int64, npt.NDArray[np.int32]]:
        """The keys of the rows, ascending, and the rows in that order: rounds of one tensor by age."""
        keys = tensor_keys(self.node, self.side, self.slot)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[rows], rows


class SortedTensorTable:
    """The columns of ``base.TensorTable`` with lookups over one sorted key column.

    Rows must be sorted by ``order`` and unique by (node, side, slot, round), later rounds behind earlier ones.
    Subclasses add ``spec`` and ``recorded``; those of devices that record overflows say so.
    """

    tells_overflow = False
    inputs_unknown: frozenset[int] = frozenset()
    operands: Mapping[tuple[int, int], OperandState] = MappingProxyType({})
    by_design: Mapping[tuple[int, int], frozenset[str]] = MappingProxyType({})
    unfinished = False
    hashes_are_sums = False
    memo: dict[object, Any] | None = None
    """What was made of a table that has twins: tables of other ranks that record the same. See ``made_once``."""

    def own_sizes(self, sizes: Int64) -> Int64:
        """The sizes of the files: each holds one tensor."""
        return sizes

    def hashed(self, index: int) -> int:  # noqa: ARG002 - see base.TensorTable
        """Nothing is recorded."""
        return 0

    def overflows(self, index: int) -> Sequence[OverflowRecord]:  # noqa: ARG002 - see base.TensorTable
        """Nothing is recorded."""
        return ()

    def recorded_columns(self, indices: Integers) -> RecordedColumns | None:  # noqa: ARG002 - see base.TensorTable
        """Returns None: what is recorded is asked for row by row."""
        return None

    def doubtful_mean(self, index: int) -> float | None:  # noqa: ARG002 - see base.TensorTable
        """Recorded statistics are believed."""
        return None

    def __init__(self, places: TensorPlaces, timestamp: Int64) -> None:
        self.tensor_places = places
        self.node, self.side, self.slot = places.node, places.side, places.slot
        self.flags, self.order, self.round = places.flags, places.order, places.round
        self.timestamp = timestamp
        timestamp.flags.writeable = False

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    def find(self, node: int, side: Side, slot: int, round: int = 0) -> int:  # noqa: A002 - see base.TensorTable
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
        """Indices of several tensors, -1 where there is none; -1 as a node finds nothing. See ``base.TensorTable``."""
        wanted = tensor_keys(node, side, slot)
        keys, rows = self.tensor_places.lookup
        if not len(keys):
            return np.full(len(wanted), -1, np.int64)
        if self.tensor_places.repeated:
            return self._rounds_at(wanted, None if at is None else np.asarray(at, np.int64))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, rows[place], np.int64(-1))

    def _rounds_at(self, wanted: Int64, at: Int64 | None) -> Int64:
        """``find_all`` where tensors were written several times."""
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
        """Indices of a node's tensors: inputs by slot, then outputs by slot; the newest round, or every one."""
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
