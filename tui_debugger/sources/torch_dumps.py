"""What dumps of torch files have in common: modules record one after the other, and nothing says what flows where.

A layout says which files belong to a step of a rank, and lists the tensors in them in the order in which they were
recorded. Here they become rows of a node table. A tensor that a step recorded several times, such as one for each
micro-batch, has as many rounds.

A module whose inputs and outputs were recorded is one node with both sides: clean inputs and a bad output tell that it
starts there, if it is known to have no weights. Of a module around others the inputs are a node of their own, for they
were recorded before what is in it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Int64
from tui_debugger.graph.build import FileNode, append_nodes, build_table, ranks
from tui_debugger.graph.categories import gradient_of
from tui_debugger.graph.table import PARAMETER, NodeFlag, NodeTable
from tui_debugger.model import (
    BIAS,
    GraphRun,
    Progress,
    ProgressFn,
    ReadSpec,
    RunInfo,
    Side,
    TensorStats,
    UnreadablePart,
    no_progress,
    turns,
)
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.sources.base import Capability, Changes, Columns, Names, TensorPlaces, TensorTable, file_states
from tui_debugger.stats.records import Specs

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph

GRAPH: Final = "model"
"""The graph of all nodes but parameters."""
ROOT: Final = 0
PARAMETERS, PARAMETERS_ROOT = "parameters", 1
"""The graph of parameters: they are often recorded at some steps only, and have a step before of their own."""
NO_EDGES: Final = (
    "no edges: origins are the first bad in order, but modules without weights whose recorded inputs are clean"
)
ROOT_MODULE: Final = "(root)"
"""What the outermost module is called where it has no name."""
MODULE, MODULE_INPUT, TENSOR = "Module", "ModuleInput", "Tensor"
GRADIENT, WEIGHT_GRADIENT, BIAS_GRADIENT = "ActivationGradient", "WeightGradient", "BiasGradient"
_RECOMPUTED: Final = "recomputed"
_MOST_ROUNDS: Final = (1 << 16) - 1
_WATCHED: Final = 16

FileState = tuple[tuple[str, int, int], ...]
"""Path, modification time in ns and size of files; -1, -1 of one that is not there."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One tensor as it was recorded.

    Attributes:
        node: id of its node.
        path: display path of the node.
        kind: type of the node.
        file: where it is.
        member: its place in the file.
        side, slot: which input or output of the node it is.
        partial: the node may be made of more than its recorded inputs, such as weights.
    """

    node: str
    path: str
    kind: str
    file: str
    member: str
    side: Side = Side.OUTPUT
    slot: int = 0
    partial: bool = False


def module_tensor(
    module: str,
    side: Side,
    slot: int,
    file: str,
    member: str,
    *,
    around: bool = False,
    recomputed: bool = False,
    partial: bool = False,
) -> Recorded:
    """Returns an input or output of a module.

    Args:
        module: its name.
        side: which one.
        slot: the same.
        file: where it is.
        member: its place there.
        around: there are other modules in it.
        recomputed: it ran a second time, for the backward pass.
        partial: it may have weights.
    """
    name, kind = module or ROOT_MODULE, MODULE
    if around and side is Side.INPUT:
        name, kind, side = f"{name}.inputs", MODULE_INPUT, Side.OUTPUT
    path = name.replace(".", "/")
    if recomputed:
        name, path = f"{_RECOMPUTED}/{name}", f"Recomputed/{path}"
    return Recorded(name, path, kind, file, member, side, slot, partial)


def named_tensor(name: str, scope: str, file: str, member: str, slot: int = 0, recomputed: bool = False) -> Recorded:  # noqa: PLR0917 - a row
    """Returns a tensor that the program recorded by a name, such as ``attn_out`` in the scope ``layer_id=1``."""
    full = f"{scope}/{name}" if scope else name
    path = full.replace(".", "/")
    if recomputed:
        full, path = f"{_RECOMPUTED}/{full}", f"Recomputed/{path}"
    return Recorded(full, path, TENSOR, file, member, slot=slot)


def parameter(name: str, file: str, member: str) -> Recorded:
    """Returns a parameter."""
    return Recorded(name, name.replace(".", "/"), PARAMETER, file, member)


def weight_gradient(name: str, file: str, member: str) -> Recorded:
    """Returns the gradient of a parameter."""
    kind = BIAS_GRADIENT if re.search(BIAS, name) else WEIGHT_GRADIENT
    return Recorded(gradient_of(name), gradient_of(name), kind, file, member)


def gradient(name: str, file: str, member: str, slot: int = 0) -> Recorded:
    """Returns the gradient of an activation."""
    full = gradient_of(name or ROOT_MODULE)
    return Recorded(full, full, GRADIENT, file, member, slot=slot)


class Slots:
    """The slots of what is called by more than a number, such as keyword arguments: behind those that are."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, Side], dict[str, int]] = {}

    def of(self, module: str, side: Side, label: str) -> int:
        """Returns the slot of an input or output: the number that it is called by, unless that is taken."""
        slots = self._slots.setdefault((module, side), {})
        if label not in slots:
            number = int(label) if label.isdecimal() and len(label) < 4 else -1
            taken = set(slots.values())
            slots[label] = number if number >= 0 and number not in taken else max(taken, default=-1) + 1
        return slots[label]


def modules_around(modules: Iterable[str]) -> set[str]:
    """Returns the modules that have others of them in them."""
    found: set[str] = set()
    for module in modules:
        inner = module
        while inner:
            inner = inner.rpartition(".")[0]
            found.add(inner)
    return found


@dataclass(slots=True)
class Layout:
    """The steps of a dump.

    Attributes:
        files: what is looked at to list a step of a rank, by rank and step.
        parameters: the steps of a rank that recorded parameters.
        parts: what could not be looked at.
        directories: where new files appear.
        notices: what was assumed.
    """

    files: dict[int, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    parameters: dict[int, set[int]] = field(default_factory=dict)
    parts: list[UnreadablePart] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def sort(self) -> None:
        """Puts ranks and steps in ascending order."""
        self.files = {rank: dict(sorted(steps.items())) for rank, steps in sorted(self.files.items())}


@dataclass(slots=True)
class Listing:
    """The tensors of one step of a rank.

    Attributes:
        tensors: in the order in which they were recorded.
        parts: what could not be looked at.
        state: how the files looked that were read to list them.
        placements: of nodes that are a part of a larger tensor which part, in words, by node.
    """

    tensors: list[Recorded] = field(default_factory=list)
    parts: list[UnreadablePart] = field(default_factory=list)
    state: FileState = ()
    placements: dict[str, str] = field(default_factory=dict)


class StepTable(Columns):
    """The tensors of one step. See ``base.TensorTable``."""

    def __init__(self, places: TensorPlaces, tensors: Sequence[Recorded]) -> None:
        """``tensors`` are in the order of ``places``."""
        super().__init__(places, np.zeros(len(tensors), np.int64))
        files, members = (list(dict.fromkeys(column)) for column in _columns(tensors))
        file_numbers, member_numbers = ({each: n for n, each in enumerate(column)} for column in (files, members))
        self._files = Names.of([os.fsencode(path) for path in files])
        self._members = tuple(members)
        self._file: Int32 = np.array([file_numbers[each.file] for each in tensors], np.int32)
        self._member: Int32 = np.array([member_numbers[each.member] for each in tensors], np.int32)

    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the values."""
        path = os.fsdecode(self._files[int(self._file[index])])
        return ReadSpec(path, "pt", member=self._members[int(self._member[index])])

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> Specs:
        """``spec`` of several rows, as columns."""
        used, kind = np.unique(self._member[indices], return_inverse=True)
        paths = [self._files[number] for number in self._file[indices].tolist()]
        kinds = tuple(ReadSpec("", "pt", member=self._members[number]) for number in used.tolist())
        return Specs(paths, kinds, kind.astype(np.int32))

    @property
    def digest(self) -> bytes:
        """Names the files, the places in them, and what they are of."""
        hasher = blake2b(b"\0".join(self._files), digest_size=16)
        hasher.update(repr(self._members).encode("utf-8", "surrogateescape"))
        for column in (self._file, self._member, self.node, self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest()

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times as they are now; each file is asked once."""
        used, of = np.unique(self._file[indices], return_inverse=True)
        sizes, times = file_states(self._files[number] for number in used.tolist())
        return sizes[of], times[of]

    def recorded(self, index: int) -> TensorStats | None:  # noqa: ARG002 - see base.TensorTable
        """Nothing: there are values only."""
        return None

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:  # noqa: ARG002 - as above
        """Nothing."""
        return None


def _columns(tensors: Sequence[Recorded]) -> tuple[list[str], list[str]]:
    return [each.file for each in tensors], [each.member for each in tensors]


class _RankNodes:
    """The nodes of one rank while steps add to them.

    Attributes:
        table: as it is now.
    """

    def __init__(self) -> None:
        self.table = build_table(())
        self._rows: dict[str, int] = {}
        self._sequence: list[int] = []
        """Rows in the order in which they were recorded."""

    def add(self, tensors: Sequence[Recorded], placements: dict[str, str]) -> Int32:
        """Appends the nodes that are new behind those that they followed; returns the row of each tensor."""
        fresh: dict[str, FileNode] = {}
        for each in tensors:
            if each.node not in self._rows:
                before = fresh[each.node].outputs if each.node in fresh else 1
                outputs = max(before, each.slot + 1 if each.side is Side.OUTPUT else 1)
                graph = (PARAMETERS, PARAMETERS_ROOT) if each.kind == PARAMETER else (GRAPH, ROOT)
                fresh[each.node] = FileNode(*graph, each.node, each.path, each.kind, outputs)
        if fresh:
            self.table, numbers = append_nodes(self.table, fresh.values())
            graphs = tuple(replace(each, is_root=True) for each in self.table.graphs)
            self.table = replace(self.table, graphs=graphs)
            self._rows.update(zip(fresh, numbers.tolist(), strict=True))
            self._place(tensors, fresh)
        self._flag(tensors)
        new = {self._rows[node]: text for node, text in placements.items() if node in self._rows}
        if new.items() - self.table.placements.items():
            self.table = replace(self.table, placements={**self.table.placements, **new})
        return np.array([self._rows[each.node] for each in tensors], np.int32)

    def _flag(self, tensors: Sequence[Recorded]) -> None:
        """Marks the nodes that may be made of more than their inputs."""
        flags = self.table.flags.copy()
        rows = [self._rows[each.node] for each in tensors if each.partial]
        flags[rows] |= int(NodeFlag.PARTIAL)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)

    def _place(self, tensors: Sequence[Recorded], fresh: dict[str, FileNode]) -> None:
        """Puts new nodes where they were recorded first: where their first output was, else their first input."""
        first: dict[str, tuple[bool, int]] = {}
        for at, each in enumerate(tensors):
            place = (each.side is Side.INPUT, at)
            first[each.node] = min(first.get(each.node, place), place)
        inserted: dict[int, list[int]] = {}
        last = -1
        for node in sorted(first, key=lambda node: first[node][1]):
            if node in fresh:
                inserted.setdefault(last, []).append(self._rows[node])
            else:
                last = self._rows[node]
        sequence = inserted.get(-1, [])
        for row in self._sequence:
            sequence.append(row)
            sequence += inserted.get(row, ())
        self._sequence = sequence
        positions = np.zeros(len(self.table), np.int64)
        positions[sequence] = np.arange(len(sequence))
        self.table = replace(self.table, order=ranks(self.table, positions))


def _rounds(tensors: Sequence[Recorded]) -> tuple[Int64, Int64]:
    """Returns the round of each tensor (0: recorded once), and the round in which it was recorded.

    What a node recorded less often than its other inputs or outputs belongs to the last rounds.
    """
    keys = [(each.node, each.side, each.slot) for each in tensors]
    counts: dict[tuple[str, Side, int], int] = {}
    numbers = np.zeros(len(tensors), np.int64)
    for at, key in enumerate(keys):
        numbers[at] = counts[key] = counts.get(key, 0) + 1
    most: dict[str, int] = {}
    for (node, _, _), count in counts.items():
        most[node] = max(most.get(node, 0), count)
    repeated = np.array([most[each.node] > 1 for each in tensors], np.bool_)
    numbers += np.array([most[key[0]] - counts[key] for key in keys], np.int64)
    during = np.maximum.accumulate(np.where(repeated, numbers, 1)) if len(tensors) else numbers
    return np.where(repeated, numbers, 0), np.where(repeated, numbers, during)


class TorchDumpSource:
    """See ``base.Source``. Steps are listed when they are asked for."""

    layout: ClassVar[str]
    """What people call the layout."""

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        """Looks for the files of steps.

        Args:
            root: the directory of the dump.
            given: the path as the user wrote it.
            notices: what people have to know besides.
        """
        self._lock = threading.RLock()
        self._root, self._given, self._notices = root, given, tuple(notices)
        self._layout = self._find()
        self._nodes: dict[int, _RankNodes] = {}
        self._listings: dict[tuple[int, int], Listing] = {}
        self._tables: dict[tuple[int, int], StepTable] = {}
        self._empty = StepTable(_places(np.zeros(0, np.int32), [], np.zeros(0, np.int64)), [])
        self._grew = False

    def _find(self) -> Layout:
        """Looks for the files of steps, by names only."""
        raise NotImplementedError

    def _list(self, rank: int, step: int, files: tuple[str, ...], progress: ProgressFn) -> Listing:
        """Lists the tensors of a step."""
        raise NotImplementedError

    def _own(self, files: tuple[str, ...]) -> tuple[str, ...]:
        """Returns those of the files of a step that hold nothing of another one."""
        return files

    def _told(self) -> Iterable[str]:
        """The notices that depend on what was listed."""
        return ()

    @property
    def info(self) -> RunInfo:
        """The facts about the run."""
        with self._lock:
            notices = dict.fromkeys((*self._notices, *self._layout.notices, *self._told(), NO_EDGES))
            return RunInfo(str(self._root), self.layout, self._root.name, notices=tuple(notices))

    @property
    def capabilities(self) -> Capability:
        """A directory may grow."""
        return Capability.GROWS

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """(rank, step) of the file or directory that was opened; None where it holds several."""
        given, root = (os.path.abspath(path) for path in (self._given, self._root))  # noqa: PTH100 - keeps links
        if _is_inside(root, given):
            return None, None
        inside = [
            (rank, step)
            for rank, steps in self._layout.files.items()
            for step, files in steps.items()
            if any(_is_inside(file, given) for file in self._own(files))
        ]
        ranks, steps = {rank for rank, _ in inside}, {step for _, step in inside}
        if len(ranks) != 1:
            return None, None
        return ranks.pop(), steps.pop() if len(steps) == 1 else None

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        return list(self._layout.files)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending."""
        return list(self._layout.files.get(rank, ()))

    def history(self, rank: int) -> Sequence[GraphRun]:
        """One run for each step, and one of the parameters where there are any; micro-batches are rounds of nodes."""
        parameters = self._layout.parameters.get(rank, set())
        runs = [
            run
            for step in self.steps(rank)
            for run in [(step, ROOT, GRAPH), (step, PARAMETERS_ROOT, PARAMETERS)][: 1 + (step in parameters)]
        ]
        by_turn = zip(runs, turns([step for step, _, _ in runs]), strict=True)
        return tuple(GraphRun(*run, has_data=True, turn=turn) for run, turn in by_turn)

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The step before, and of that the same round; for parameters the last step before that recorded them."""
        held = {ROOT: self.steps(rank), PARAMETERS_ROOT: sorted(self._layout.parameters.get(rank, ()))}
        before = [each for each in held.get(root_graph, ()) if each < step]
        return (before[-1], round) if before else None

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Returns what could not be listed, of the directories and of the steps that were listed."""
        with self._lock:
            listed = [part for listing in self._listings.values() for part in listing.parts]
            return tuple(sorted({*self._layout.parts, *listed}, key=lambda part: (part.where, part.why)))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """The nodes of the steps that were listed, at least of the first one that holds any."""
        with self._lock:
            for step in self.steps(rank):
                if rank in self._nodes and len(self._nodes[rank].table):
                    break
                self._read(rank, step, progress)
            return self._nodes.setdefault(rank, _RankNodes()).table

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """The tensors of a step."""
        with self._lock:
            if step not in self._layout.files.get(rank, {}):
                return self._empty
            if (rank, step) not in self._tables:
                self.nodes(rank, progress)  # the nodes are those of the first step, and what others add
            return self._read(rank, step, progress)

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:  # noqa: ARG002 - see base.Source
        """There are none."""
        return ()

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - as above
    ) -> None:
        """Nothing tells."""

    def recorded_rows(self, rank: int, step: int) -> None:
        """Nothing is recorded beside values."""

    def notes(self, rank: int) -> RunNotes:  # noqa: ARG002 - see base.Source
        """There are none."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> None:
        """Names do not say when."""

    def refresh(self) -> Changes:
        """Looks for files anew, and at those that steps were listed from."""
        with self._lock:
            before = self._layout.files
            self._layout = self._find()
            after = self._layout.files
            grown = [
                at
                for at, listing in self._listings.items()
                if before.get(at[0], {}).get(at[1]) != after.get(at[0], {}).get(at[1])
                or state_of_files(path for path, _, _ in listing.state) != listing.state
            ]
            for at in grown:
                del self._listings[at]
                self._tables.pop(at, None)
            known = {(rank, step) for rank, steps in before.items() for step in steps}
            new_nodes, self._grew = self._grew, False
            return Changes(
                new_steps=tuple(
                    (rank, step)
                    for rank, steps in after.items()
                    for step in steps
                    if rank in before and (rank, step) not in known
                ),
                grown_steps=tuple(grown),
                new_nodes=new_nodes,
                new_ranks=tuple(rank for rank in after if rank not in before),
            )

    def watch_paths(self) -> Sequence[Path]:
        """The directories in which files appear."""
        found = [str(self._root), *self._layout.directories[-_WATCHED:]]
        return [Path(path) for path in dict.fromkeys(found)]

    def close(self) -> None:
        """Nothing is open between calls."""

    def _read(self, rank: int, step: int, progress: ProgressFn) -> StepTable:
        known = self._tables.get((rank, step))
        if known is not None:
            return known
        progress(Progress(0, 0, f"listing step {step}"))
        listing = self._list(rank, step, self._layout.files[rank][step], progress)
        if not listing.tensors and not listing.parts:
            where = os.path.relpath((self._layout.files[rank][step] or (str(self._root),))[0], self._root)
            listing.parts.append(UnreadablePart(where, f"no tensor in step {step}", rank, step))
        number, during = _rounds(listing.tensors)
        listed = np.flatnonzero(number <= _MOST_ROUNDS)
        if len(listed) < len(listing.tensors):
            left = len(listing.tensors) - len(listed)
            why = f"{left:,} tensors that were recorded more than {_MOST_ROUNDS:,} times in one step"
            listing.parts.append(UnreadablePart(".", why, rank, step))
        tensors = [listing.tensors[at] for at in listed.tolist()]
        nodes = self._nodes.setdefault(rank, _RankNodes())
        size = len(nodes.table)
        rows = nodes.add(tensors, listing.placements)
        self._grew = self._grew or 0 < size < len(nodes.table)
        by = _in_order(tensors, nodes.table.order[rows], number[listed], during[listed])
        ordered = [tensors[at] for at in by.tolist()]
        table = StepTable(_places(rows[by], ordered, number[listed][by]), ordered)
        self._listings[rank, step], self._tables[rank, step] = listing, table
        return table


def _in_order(tensors: Sequence[Recorded], order: Int32, number: Int64, during: Int64) -> Int64:
    """Returns the rows by rounds, in each by the order of nodes, parameters last; inputs before outputs.

    Args:
        tensors: the rows.
        order: of their nodes.
        number: their rounds; 0 of what was recorded once.
        during: the round in which those were recorded.
    """
    if not tensors:
        return np.zeros(0, np.int64)
    block = during.copy()
    once = np.flatnonzero(number == 0)
    once = once[np.argsort(order[once], kind="stable")]
    block[once] = np.maximum.accumulate(block[once]) if len(once) else block[once]
    parameters = np.array([each.kind == PARAMETER for each in tensors], np.bool_)
    block[parameters] = number[parameters] + _MOST_ROUNDS + 1
    side = np.array([int(each.side) for each in tensors])
    slot = np.array([each.slot for each in tensors])
    by: Int64 = np.lexsort((slot, side, order, block))
    return by


def _places(rows: Int32, tensors: Sequence[Recorded], number: Int64) -> TensorPlaces:
    side = np.array([int(each.side) for each in tensors], np.uint8)
    slot = np.array([each.slot for each in tensors], np.int16)
    rounds = number.astype(np.uint16)
    return TensorPlaces(rows, side, slot, np.zeros(len(tensors), np.uint8), rounds if rounds.any() else None)


def state_of_files(paths: Iterable[str]) -> FileState:
    """Tells how files look now."""
    found = []
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - text all the way, for many
            found.append((path, max(status.st_mtime_ns, status.st_ctime_ns), status.st_size))
        except (OSError, ValueError):  # noqa: PERF203 - each by itself
            found.append((path, -1, -1))
    return tuple(found)


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
