"""The source of dumps without a graph: nodes become known with every step that is listed.

A layout tells where its steps are (``directories.DumpLayout``) and lists the tensors of a step when asked. The node
table of a rank grows: nodes that a later step adds stand behind the nodes that they followed there.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int16, Int32, Int64, Integers, UInt8
from tui_debugger.graph.build import MAX_SLOTS, FileNode, append_nodes, build_table, clean_path
from tui_debugger.graph.categories import categorise
from tui_debugger.graph.table import CONSTANT, PARAMETER, GraphInfo, NodeTable, pointers
from tui_debugger.model import (
    Frame,
    GraphRun,
    Progress,
    ProgressFn,
    ReadSpec,
    RunInfo,
    Side,
    UnreadablePart,
    no_progress,
    sorted_parts,
    turns,
)
from tui_debugger.sources.base import (
    Capability,
    Changes,
    Names,
    Source,
    StepEntries,
    StepPlace,
    TensorPlaces,
    TensorTable,
    claimed_by,
    file_states,
    no_garbage_collection,
)
from tui_debugger.sources.directories import DumpLayout, U
from tui_debugger.sources.scope import RunPart, Scope, scope_at
from tui_debugger.stats.records import ReadSpecs

if TYPE_CHECKING:
    pass

ROOT: Final = 0
"""The number of the graph of all nodes, whose name is the source's ``graph``."""
_WATCHED: Final = 16
T = TypeVar("T")

FileState = tuple[tuple[str, int, int], ...]
"""(path, modification time in ns, size) of files; -1, -1 for a missing one."""


def state_of_files(paths: Iterable[str]) -> FileState:
    found = []
    for path in paths:
        try:
            status = opener.stat(path)
            found.append((path, max(status.st_mtime_ns, status.st_ctime_ns), status.st_size))
        except (OSError, ValueError):  # noqa: PERF203 - each by itself
            found.append((path, -1, -1))
    return tuple(found)


# -- tables of tensors ----------------------------------------------------------------------------------------


def _distinct(values: Iterable[T]) -> tuple[list[T], Int32]:
    numbers: dict[T, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(found, np.int32)


class FilesTable(TensorTable):
    """The tensors of one step, each of them in a file or a member of one. See ``base.TensorTable``."""

    def __init__(
        self,
        places: TensorPlaces,
        paths: Sequence[str],
        specs: Sequence[ReadSpec],
        timestamp: Int64 | None = None,
        nbytes: Int64 | None = None,
        *,
        members: Sequence[str] = (),
    ) -> None:
        """Takes the columns of the rows.

        ``specs`` leave the path open, and the member where ``members`` has a text for the row. ``nbytes`` are bytes of
        each tensor, -1 where unknown.
        """
        super().__init__(places, np.zeros(len(paths), np.int64) if timestamp is None else timestamp)
        self._nbytes = np.full(len(paths), -1, np.int64) if nbytes is None else nbytes
        files, self._file = _distinct(paths)
        self._files = Names.of([os.fsencode(path) for path in files])
        self._kinds, self._kind = _distinct(specs)
        self._members = members if any(members) else ()

    def spec(self, index: int) -> ReadSpec:
        member = self._members[index] if self._members else ""
        return self._kinds[int(self._kind[index])].at(os.fsdecode(self._files[int(self._file[index])]), member)

    def specs(self, indices: Integers) -> ReadSpecs:
        used, kind = np.unique(self._kind[indices], return_inverse=True)
        paths = [self._files[number] for number in self._file[indices].tolist()]
        members = [self._members[index] for index in indices.tolist()] if self._members else ()
        return ReadSpecs(paths, tuple(self._kinds[number] for number in used.tolist()), kind.astype(np.int32), members)

    @property
    def digest(self) -> bytes:
        hasher = blake2b(digest_size=16)
        for name in self._files:
            hasher.update(b"%d " % len(name) + name)
        hasher.update(repr(self._kinds).encode("utf-8", "surrogateescape"))
        for member in self._members:
            hasher.update(f"{member}\0".encode("utf-8", "surrogatepass"))
        for column in (self._file, self._kind, self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest()

    def file_states(self, indices: Integers) -> tuple[Int64, Int64]:
        """Each file is asked once."""
        used, of = np.unique(self._file[indices], return_inverse=True)
        sizes, times = file_states(self._files[number] for number in used.tolist())
        return sizes[of], times[of]

    def own_sizes(self, sizes: Int64) -> Int64:
        """Tensors of one file whose bytes are unknown share its size equally."""
        sharing = np.bincount(self._file, minlength=1)[self._file]
        own = np.where(self._nbytes >= 0, np.minimum(self._nbytes, sizes), sizes // np.maximum(sharing, 1))
        return np.where(sharing > 1, own, sizes)


class StatisticsTable(TensorTable):
    """The tensors of one step whose statistics are in the dump. Subclasses add what ``base.TensorTable`` asks for."""

    def rows_as_text(self, nodes: NodeTable) -> Iterator[dict[str, str]]:
        """The recorded statistics, unchanged, by the titles of statistic files."""
        raise NotImplementedError

    def named(self, index: int, nodes: NodeTable) -> dict[str, str]:
        """The cells of a row that identify its tensor."""
        node = int(self.node[index])
        return {
            "Op Type": nodes.op_type(node),
            "Op Name": nodes.names[node],
            "IO": "input" if self.side[index] == int(Side.INPUT) else "output",
            "Slot": str(int(self.slot[index])),
        }


@dataclass(slots=True)
class ListedStep:
    """The tensors that were listed of a step."""

    table: TensorTable
    parts: list[UnreadablePart] = field(default_factory=list)
    state: FileState = ()
    """State of the listed files, before they were read."""
    names: bytes = b""
    """Digest of the listing; empty where ``state`` shows every change."""
    claimed: Collection[str] = ()
    """Files that the listing accounts for, besides the files that the table's tensors are read from."""


# -- tables of nodes ------------------------------------------------------------------------------------------


_NOTHING: Final = build_table(())


class InferredRankNodes:
    """The nodes of one rank while steps add to them."""

    def __init__(self) -> None:
        self.table = _NOTHING.of_lineage(object())
        self.rows: dict[Any, int] = {}
        """Row by identity of the node."""
        self.sequence: list[int] = []
        """Rows of operators in the order in which they ran."""

    def append_nodes(self, names: Iterable[Any], nodes: Iterable[FileNode]) -> None:
        """Adds nodes whose identities (``names``) are new."""
        self.table, rows = append_nodes(self.table, nodes)
        self.rows.update(zip(names, rows.tolist(), strict=True))

    def place_parts(self, placements: Mapping[int, str]) -> None:
        """Notes, by row, which part of a larger tensor a node holds, in words."""
        if placements.items() - self.table.placements.items():
            self.table = replace(self.table, placements={**self.table.placements, **placements})

    def insert(self, rows: Iterable[int], before: int) -> None:
        """Puts new nodes (``before`` is the first new row) behind the nodes that they followed in their step."""
        inserted: dict[int, list[int]] = {}
        last = -1
        for row in rows:
            if row < before:
                last = row
            else:
                inserted.setdefault(last, []).append(row)
        sequence = inserted.get(-1, [])
        for row in self.sequence:
            sequence.append(row)
            sequence += inserted.get(row, ())
        self.sequence = sequence


class InferredNodes(InferredRankNodes):
    """Nodes of a rank whose edges the layout infers. ``type_of`` and ``stack_of`` number ``types`` and ``stacks``."""

    def __init__(self, graph: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.paths: list[str] = []
        self.types: dict[str, int] = {}
        self.type_of: list[int] = []
        self.stacks: dict[tuple[Frame, ...], int] = {}
        self.stack_of: list[int] = []
        self.constants: dict[int, str] = {}
        """Texts of the rows that stand for arguments that are no tensors."""
        self._graph = graph

    def stack(self, frames: tuple[Frame, ...]) -> int:
        return self.stacks.setdefault(frames, len(self.stacks)) if frames else -1

    def extend(self, names: Sequence[str], paths: Sequence[str], kinds: Iterable[str], stacks: Iterable[int]) -> None:
        """Adds nodes whose names are new; a stack number of -1 means no stack."""
        self.rows.update(zip(names, range(len(self.names), len(self.names) + len(names)), strict=True))
        self.names += names
        self.paths += [clean_path(path) or name for path, name in zip(paths, names, strict=True)]
        self.type_of += [self.types.setdefault(kind, len(self.types)) for kind in kinds]
        self.stack_of += stacks

    def append(self, name: str, path: str, kind: str, stack: int = -1) -> int:
        self.extend((name,), (path,), (kind,), (stack,))
        return len(self.names) - 1

    def constant(self, text: str, name: str) -> int:
        """Returns the row that stands for arguments of one value that are no tensors."""
        row = self.rows.get(name, -1)
        if row < 0:
            row = self.append(name, f"Constants/{name}", CONSTANT)
            self.constants[row] = text
        return row

    def place(self, rows: Iterable[int], before: int) -> None:
        """``insert`` for all but parameters."""
        parameter = self.types.get(PARAMETER, -1)
        self.insert((row for row in rows if self.type_of[row] != parameter), before)

    def build(  # noqa: PLR0917 - columns
        self,
        outputs: Int64,
        flags: UInt8,
        inputs: Int64,
        in_node: Int32,
        in_slot: Int16,
        group_ranks: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        """Makes the table anew. ``inputs`` counts the inputs per node; the others are columns of ``NodeTable``."""
        count = len(self.names)
        order = np.full(count, -1, np.int32)
        behind = np.ones(count, np.int8)  # nodes that do not run stand behind nodes that do, constants last
        behind[list(self.constants)] = 2
        behind[self.sequence] = 0
        others = np.argsort(behind, kind="stable")[len(self.sequence) :]
        order[np.concatenate([np.array(self.sequence, np.int64), others])] = np.arange(count)
        table = NodeTable(
            graphs=(GraphInfo(self._graph, ROOT),),
            names=list(self.names),
            paths=list(self.paths),
            types=tuple(self.types),
            graph=np.zeros(count, np.int16),
            type_id=np.array(self.type_of, np.int32),
            category=np.zeros(count, np.uint8),
            flags=flags,
            order=order,
            outputs=np.minimum(outputs, MAX_SLOTS).astype(np.int16),
            in_ptr=pointers(inputs),
            in_node=in_node,
            in_slot=in_slot,
            stack_id=np.array(self.stack_of, np.int32),
            stacks=list(self.stacks),
            constants=dict(self.constants),
            group_ranks=dict(group_ranks or {}),
            lineage=self.table.lineage,
        )
        self.table = replace(table, category=categorise(table))


N = TypeVar("N", bound=InferredRankNodes)


# -- the source -----------------------------------------------------------------------------------------------


def _claimed(listed: ListedStep) -> set[str]:
    return claimed_by(listed.table) | set(listed.claimed)


class GraphlessSource(Source, Generic[U, N]):
    """A ``base.Source`` that lists steps when asked; its nodes are the nodes of the steps listed so far.

    A layout implements ``_find`` (where the steps are) and ``_read`` (what is in a step).
    """

    graph: ClassVar[str]
    """The name of the graph of all nodes."""
    _new_nodes: Callable[[], N]
    """Makes the nodes of a rank before any step was listed."""

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        """Looks for the steps. ``given`` is the path as the user wrote it."""
        self._lock = threading.RLock()
        self._root, self._given, self._notices = root, given, tuple(notices)
        self._scope: tuple[DumpLayout[U], Scope] | None = None
        self._layout = self._find()
        self._nodes: dict[int, N] = {}
        self._listed: dict[tuple[int, int], ListedStep] = {}
        self._empty = FilesTable(TensorPlaces((), (), (), ()), (), ())
        self._grew = False

    # -- what layouts say ----------------------------------------------------------------------------

    @abstractmethod
    def _find(self) -> DumpLayout[U]:
        """Looks for the steps, by names only."""

    @abstractmethod
    def _read(self, rank: int, step: int, nodes: N, progress: ProgressFn) -> ListedStep:
        """Lists the tensors of a step, and adds its nodes."""

    @abstractmethod
    def _name(self) -> str:
        """The layout's name for people."""

    @abstractmethod
    def _paths(self, unit: U) -> Iterable[str]:
        """The files and directories of a step that hold nothing of another step."""

    def _layout_notices(self) -> Iterable[str]:
        """Notices about the layout and what was listed."""
        return ()

    def _framework(self) -> str:
        return ""

    def _ranks_with_edges(self) -> Sequence[int]:
        """The ranks whose nodes tell whether there are edges."""
        return ()

    def _newest(self) -> Iterator[str]:
        """Yields the directories of each rank's last step, in which more of it may appear."""
        return iter(())

    def _graphs(self, rank: int) -> Sequence[tuple[int, str, Sequence[int]]]:
        """Number, name and steps of each graph."""
        return ((ROOT, self.graph, self.steps(rank)),)

    def _changed(self, at: tuple[int, int], listed: ListedStep, before: U | None) -> bool:
        """Whether a step must be listed anew; ``before`` is its place when it was listed."""
        unit = self._layout.units.get(at[0], {}).get(at[1])
        return unit != before or state_of_files(path for path, _, _ in listed.state) != listed.state

    # -- the run -------------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        with self._lock:
            notices = tuple(dict.fromkeys((*self._notices, *self._layout.notices, *self._layout_notices())))
            return RunInfo(str(self._root), self._name(), self._root.name, notices=notices, framework=self._framework())

    @property
    def capabilities(self) -> Capability:
        with self._lock:
            edges = any(len(self.nodes(rank).in_node) for rank in self._ranks_with_edges())
        return Capability.GROWS | (Capability.GRAPH if edges else Capability.NONE)

    @property
    def scope(self) -> Scope:
        """Files and directories of steps at the opened path."""
        scope, layout = self._scope, self._layout  # no lock: a list of ranks does not wait for a step
        if scope is None or scope[0] is not layout:
            places = ((RunPart(rank or 0, step), path) for rank, step, path in self.places())
            scope = self._scope = layout, scope_at(self._root, self._given, places)
        return scope[1]

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending; 0 where no name tells one."""
        return list(self._layout.units)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending: nothing tells when they ran."""
        return list(self._layout.units.get(rank, ()))

    def history(self, rank: int) -> Sequence[GraphRun]:
        """One run of each graph for each step: micro-batches are rounds of its nodes."""
        graphs = [(number, name, set(steps)) for number, name, steps in self._graphs(rank)]
        runs = [(step, number, name) for step in self.steps(rank) for number, name, steps in graphs if step in steps]
        by_turn = zip(runs, turns([step for step, _, _ in runs]), strict=True)
        return tuple(GraphRun(*run, has_data=True, turn=turn) for run, turn in by_turn)

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The same round of the step before in which the graph ran."""
        held = {number: steps for number, _, steps in self._graphs(rank)}
        before = max((each for each in held.get(root_graph, ()) if each < step), default=None)
        return None if before is None else (before, round)

    def unreadable(self) -> Sequence[UnreadablePart]:
        with self._lock:
            listed = [part for each in self._listed.values() for part in each.parts]
            return sorted_parts((*self._layout.parts, *listed))

    @property
    def listed(self) -> int:
        return len(self._listed)

    def step_entries(self) -> Iterable[StepEntries]:
        with self._lock:
            listed = dict(self._listed)
            places: dict[tuple[int, int], list[str]] = {at: [] for at in listed}
            for rank, step, path in self.places():
                if rank is not None and step is not None and (rank, step) in places:
                    places[rank, step].append(path)
        for at, each in listed.items():
            yield StepEntries(*at, places[at], partial(_claimed, each))

    def places(self) -> Iterator[StepPlace]:
        """See ``base.AccountingSource``; the step is None where a path belongs to all steps of its rank."""
        for rank, steps in self._layout.units.items():
            for step, unit in steps.items():
                yield from ((rank, step, path) for path in self._paths(unit))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """The nodes of all listed steps; lists steps of the scope until one has nodes."""
        with self._lock:
            nodes = self._nodes_of(rank)
            for step in dict.fromkeys((*self.scope.steps(self, rank), *self.steps(rank))):
                if len(nodes.table):
                    break
                self._step(rank, step, progress)
            return nodes.table

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        with self._lock:
            if step not in self.steps(rank):
                return self._empty
            if (rank, step) not in self._listed:
                self.nodes(rank, progress)  # rows begin with the nodes of the first step
            return self._step(rank, step, progress).table

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        with self._lock:
            table = self.tensors(rank, step)
            return table.rows_as_text(self.nodes(rank)) if isinstance(table, StatisticsTable) and len(table) else None

    def refresh(self) -> Changes:
        with self._lock:
            units, before = self._layout.units, {rank: set(self.steps(rank)) for rank in self.ranks()}
            self._layout = self._find()
            grown = [
                (rank, step)
                for (rank, step), listed in self._listed.items()
                if self._changed((rank, step), listed, units.get(rank, {}).get(step))
            ]
            for at in grown:
                del self._listed[at]
            after = {rank: self.steps(rank) for rank in self.ranks()}
            new_nodes, self._grew = self._grew, False
            return Changes(
                new_steps=tuple(
                    (rank, step)
                    for rank, steps in after.items()
                    for step in steps
                    if rank in before and step not in before[rank]
                ),
                grown_steps=tuple(grown),
                new_nodes=new_nodes,
                new_ranks=tuple(rank for rank in after if rank not in before),
            )

    def watch_paths(self) -> Sequence[Path]:
        """The directories in which steps, ranks and files appear, and the newest steps."""
        found = (str(self._root), *self._layout.directories[-_WATCHED:], *list(self._newest())[-_WATCHED:])
        return [Path(path) for path in dict.fromkeys(found)]

    def _part(self, path: str, why: str, rank: int | None = None, step: int | None = None) -> UnreadablePart:
        return UnreadablePart(os.path.relpath(path, self._root), why, rank, step)

    def _nodes_of(self, rank: int) -> N:
        if rank not in self._nodes:
            self._nodes[rank] = self._new_nodes()
        return self._nodes[rank]

    def _step(self, rank: int, step: int, progress: ProgressFn) -> ListedStep:
        listed = self._listed.get((rank, step))
        if listed is None:
            progress(Progress(0, 0, f"listing step {step}"))
            nodes = self._nodes_of(rank)
            size = len(nodes.table)
            with no_garbage_collection():
                listed = self._listed[rank, step] = self._read(rank, step, nodes, progress)
            self._grew = self._grew or 0 < size < len(nodes.table)
        return listed
