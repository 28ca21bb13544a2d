"""A directory of tensor files as a Source: .npy, .npz, .safetensors, and what torch saved.

There is no graph: nodes are named by directories, files and keys, in the order of these names (keys in the order in
which they were written). A name that ends in a side and a number (``fc1.out.0``, ``in_1``) is that output or input of
the node before it, ``arr_1`` in an archive is output 1 of what the archive is called; all others are output 0 of their
own node. Files that hold a model, whole or in parts (``model-00001-of-00002.safetensors``), do not name its tensors.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Int64
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.build import FileNode, append_nodes, build_table
from tui_debugger.graph.categories import parameter_by_name
from tui_debugger.graph.table import PARAMETER, NodeTable
from tui_debugger.model import (
    Category,
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
from tui_debugger.opener import GRAPH_LIMIT, read_regular, why_not
from tui_debugger.sources.base import (
    Capability,
    Changes,
    Columns,
    Names,
    TensorFlag,
    TensorPlaces,
    TensorTable,
    file_states,
)
from tui_debugger.sources.registry import Has, Order, Shows, shows_of
from tui_debugger.sources.tensor_files.contents import Held, held_by, holds_several, is_whole
from tui_debugger.sources.tensor_files.converted import NAME as INDEX_OF_STEP
from tui_debugger.sources.tensor_files.converted import IndexedTensor, is_index
from tui_debugger.sources.tensor_files.converted import read_index as read_indexed
from tui_debugger.sources.tensor_files.layout import (
    INDEX,
    PART,
    READER,
    Layout,
    Unit,
    is_array,
    is_beside,
    is_shard,
    natural,
    read_layout,
)
from tui_debugger.stats.npy import SUFFIX as ARCHIVE
from tui_debugger.stats.records import Specs

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph


GRAPH: Final = "arrays"
"""The name of the one graph that all nodes are in."""
ROOT: Final = 0
_SIDES: Final = {"in": Side.INPUT, "input": Side.INPUT, "out": Side.OUTPUT, "output": Side.OUTPUT}
_SLOT: Final = re.compile(r"(?:(.*)[./:])?(input|in|output|out)s?[._:](\d{1,4})", re.DOTALL)
_POSITION: Final = re.compile(r"arr_(\d{1,4})")
_GRADIENT: Final = re.compile(r"(?:^|[./_])(?:grads?|gradients?)(?:[./_]|$)", re.IGNORECASE)
_UNREAD: Final = (".bin", ".h5", ".hdf5", ".ckpt", ".pkl", ".pickle")
"""Files that hold tensors, and are not read."""
ORDER: Final = "model.safetensors.index.json"
"""Says which file each tensor of a model is in."""
_YOUNG_NS: Final = 5 * 10**9
"""A file that changed more recently than this may change again within one tick of the clock."""
_PROGRESS_EVERY: Final = 1024
_WATCHED: Final = 16
_SHOWS: Final = shows_of(READER)

_Name = tuple[str, str]
"""Graph and name of a node."""
_State = tuple[tuple[str, int, int], ...]
"""Path, modification time and size of all that a listing depends on."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A tensor of which the name of its file says everything.

    Attributes:
        node, side, slot: whose it is.
        op_type: type of the operator; empty where the name does not tell it.
        spec: how it is read, without the path.
    """

    node: str
    op_type: str
    side: Side
    slot: int
    spec: ReadSpec


@dataclass(frozen=True, slots=True)
class FileTree:
    """A layout in which each file is one tensor, and its name says everything.

    Attributes:
        layout: what it is called.
        read: lists what stands above the files.
        parse: tells what the name of a file says; None where it is no tensor's.
        shows: what the layout shows.
    """

    layout: str
    read: Callable[[Path], Layout]
    parse: Callable[[str], NamedFile | None]
    shows: Shows


@dataclass(frozen=True, slots=True)
class _Found:
    """One array: its node's name, its side and slot, its file, how it is read from that, its operator's type.

    ``row`` is what an index of ``tdbg convert`` says of it.
    """

    node: str
    side: Side
    slot: int
    path: str
    spec: ReadSpec
    op_type: str = ""
    row: IndexedTensor | None = None

    @property
    def name(self) -> _Name:
        return (self.row.graph if self.row is not None else GRAPH, self.node)


@dataclass(slots=True)
class _Listing:
    """The arrays of one step.

    Attributes:
        arrays: in the order of their names.
        parts: what could not be looked at.
        state: what it depends on, and how that looked before it was listed.
        names: digest of all names; tells whether something changed that the state does not show.
    """

    arrays: list[_Found] = field(default_factory=list)
    parts: list[UnreadablePart] = field(default_factory=list)
    state: _State = ()
    names: bytes = b""


class StepTable(Columns):
    """The arrays of one step. See ``base.TensorTable``."""

    def __init__(
        self,
        places: TensorPlaces,
        files: Names,
        file: Int32,
        kinds: tuple[ReadSpec, ...],
        kind: Int32,
        *,
        rows: Sequence[IndexedTensor] = (),
    ) -> None:
        """``files`` are distinct paths, ``kinds`` distinct specs without one; ``file`` and ``kind`` tell each row's.

        ``rows`` are those of an index; without one there are none.
        """
        when = np.array([row.timestamp for row in rows], np.int64) if rows else np.zeros(len(file), np.int64)
        super().__init__(places, when)
        self._rows = {number: row for number, row in enumerate(rows) if row.marks & TensorFlag.STAT_ONLY}
        self._files, self._file, self._kinds, self._kind = files, file, kinds, kind

    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the values."""
        return replace(self._kinds[int(self._kind[index])], path=os.fsdecode(self._files[int(self._file[index])]))

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> Specs:
        """``spec`` of several rows, as columns."""
        used, kind = np.unique(self._kind[indices], return_inverse=True)
        paths = [self._files[number] for number in self._file[indices].tolist()]
        return Specs(paths, tuple(self._kinds[number] for number in used.tolist()), kind.astype(np.int32))

    @property
    def digest(self) -> bytes:
        """Names the files, the keys in them, and what they are of."""
        hasher = blake2b(b"\0".join(self._files), digest_size=16)
        hasher.update(repr(self._kinds).encode("utf-8", "surrogateescape"))
        hasher.update(repr(list(self._rows.items())).encode("utf-8", "surrogateescape"))
        for column in (self._file, self._kind, self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest()

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times as they are now; each file is asked once."""
        used, of = np.unique(self._file[indices], return_inverse=True)
        sizes, times = file_states(self._files[number] for number in used.tolist())
        return sizes[of], times[of]

    def recorded(self, index: int) -> TensorStats | None:
        """The statistics of a tensor whose values were not dumped, from an index; else there are values only."""
        row = self._rows.get(index)
        return None if row is None else row.stats

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """Its type and shape, likewise."""
        row = self._rows.get(index)
        return None if row is None or row.shape is None else (row.dtype, row.shape)


class TensorFilesSource:
    """See ``base.Source``. Steps are listed when they are asked for."""

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = (), tree: FileTree | None = None) -> None:
        """Lists the directories above the steps.

        Args:
            root: the directory of the dump.
            given: the path as the user wrote it.
            notices: what people have to know besides.
            tree: how to read names; None where directories, files and keys name nodes.
        """
        self._lock = threading.RLock()
        self._root, self._given, self._notices = root, given, tuple(notices)
        self._tree = tree
        self._layout = self._read_layout()
        self._empty = build_table(())
        self._nodes: dict[int, NodeTable] = {}
        self._rows: dict[int, dict[_Name, int]] = {}
        self._categories: dict[int, dict[int, int]] = {}
        self._listings: dict[tuple[int, int], _Listing] = {}
        self._tables: dict[tuple[int, int], StepTable] = {}
        self._grew = False

    @property
    def info(self) -> RunInfo:
        """The facts about the run."""
        notices = (*self._notices, *self._layout.notices)
        layout = "directory of tensor files" if self._tree is None else self._tree.layout
        return RunInfo(str(self._root), layout, self._root.name, notices=notices)

    @property
    def shows(self) -> Shows:
        """What the layout shows; an index of ``tdbg convert`` also tells the order, and where statistics are all."""
        if self._tree is not None:
            return self._tree.shows
        if not any(is_index(unit.path) for unit in self._first_units()):
            return _SHOWS
        with self._lock:
            tables = list(self._tables.values())
        valued = not tables or any(bool((table.flags & int(TensorFlag.STAT_ONLY) == 0).any()) for table in tables)
        return replace(
            _SHOWS,
            order=Order.EXECUTION,
            statistics=Has.SOME,
            values=Has.SOME if valued else Has.NO,
        )

    def _first_units(self) -> Sequence[Unit]:
        return next((units for steps in self._layout.units.values() for units in steps.values()), [])

    @property
    def capabilities(self) -> Capability:
        """A directory may grow."""
        return Capability.GROWS

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """(rank, step) of the directory that was opened; None where it holds several."""
        given, root = (os.path.abspath(path) for path in (self._given, self._root))  # noqa: PTH100 - keeps links
        inside = [
            (rank, step)
            for rank, steps in self._layout.units.items()
            for step, units in steps.items()
            if any(_is_inside(unit.path, given) or _is_inside(given, unit.path) for unit in units)
        ]
        ranks, steps = {rank for rank, _ in inside}, {step for _, step in inside}
        if given == root or len(ranks) != 1:
            return None, None
        return ranks.pop(), steps.pop() if len(steps) == 1 else None

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending; 0 where no name tells one."""
        return list(self._layout.units)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending: nothing tells when they ran."""
        return list(self._layout.units.get(rank, ()))

    def history(self, rank: int) -> Sequence[GraphRun]:
        """One run for each step."""
        steps = self.steps(rank)
        return tuple(
            GraphRun(step, ROOT, GRAPH, True, turn=turn) for step, turn in zip(steps, turns(steps), strict=True)
        )

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002, ARG002 - see base.Source; every step is one run
    ) -> tuple[int, int] | None:
        """The step before."""
        before = [each for each in self.steps(rank) if each < step] if root_graph == ROOT else []
        return (before[-1], 0) if before else None

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Returns what could not be listed, of the directories above the steps and of the steps that were listed."""
        with self._lock:
            listed = [part for listing in self._listings.values() for part in listing.parts]
            return tuple(sorted({*self._layout.parts, *listed}, key=lambda part: (part.where, part.why)))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """The nodes of the steps that were listed, at least of the first one."""
        with self._lock:
            if rank not in self._nodes:
                for step in self.steps(rank)[:1]:
                    self.tensors(rank, step, progress)
            return self._nodes.get(rank, self._empty)

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """The arrays of a step."""
        with self._lock:
            table = self._tables.get((rank, step))
            if table is not None:
                return table
            first = self.steps(rank)[:1]
            if first and first[0] != step and rank not in self._nodes:
                self.tensors(rank, first[0], progress)  # the nodes are those of the first step, and what others add
            units = self._layout.units.get(rank, {}).get(step, [])
            listing = self._list(units, rank, step, progress)
            table = self._table(rank, listing)
            if units:
                self._listings[rank, step], self._tables[rank, step] = listing, table
            return table

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:  # noqa: ARG002 - see base.Source
        """There are none that could be read anew."""
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
        """Nothing is recorded."""

    def notes(self, rank: int) -> RunNotes:  # noqa: ARG002 - see base.Source
        """There are none."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> None:
        """Names do not say it."""

    def refresh(self) -> Changes:
        """Lists the directories above the steps anew, and looks at the files of steps that were listed."""
        with self._lock:
            before = self._layout.units
            self._layout = self._read_layout()
            after = self._layout.units
            looked = {rank for rank, _ in self._listings}
            grown = [at for at, listing in self._listings.items() if self._changed(before, at, listing)]
            for at in grown:
                del self._listings[at], self._tables[at]
            known = {(rank, step) for rank, steps in before.items() for step in steps}
            fresh = [(rank, step) for rank, steps in after.items() for step in steps if rank in before]
            new_nodes, self._grew = self._grew, False
            return Changes(
                new_steps=tuple(at for at in fresh if at not in known and (at[0] in looked or at[0] in before)),
                grown_steps=tuple(grown),
                new_nodes=new_nodes,
                new_ranks=tuple(rank for rank in after if rank not in before),
            )

    def watch_paths(self) -> Sequence[Path]:
        """The directories above the steps, and those of the newest steps."""
        newest = [
            unit.path
            for steps in self._layout.units.values()
            for step in list(steps)[-1:]
            for unit in steps[step]
            if unit.directory
        ]
        above = self._layout.directories or [str(self._root)]
        return [Path(path) for path in dict.fromkeys((*above[:_WATCHED], *newest[-_WATCHED:]))]

    def close(self) -> None:
        """Nothing is open between calls."""

    def _changed(self, before: dict[int, dict[int, list[Unit]]], at: tuple[int, int], listing: _Listing) -> bool:
        units = self._layout.units.get(at[0], {}).get(at[1], [])
        if units != before.get(at[0], {}).get(at[1], []) or _state(listing.state) != listing.state:
            return True
        now = time.time_ns()
        if all(abs(now - changed) >= _YOUNG_NS for _, changed, _ in listing.state):
            return False
        return self._list(units, *at, no_progress).names != listing.names

    def _read_layout(self) -> Layout:
        return read_layout(self._root) if self._tree is None else self._tree.read(self._root)

    def _list(self, units: Sequence[Unit], rank: int, step: int, progress: ProgressFn) -> _Listing:
        """Lists the arrays of a step.

        Raises:
            CancelledError: from ``progress``.
        """
        lister = _Lister(self._root, rank, step, progress, self._tree.parse if self._tree is not None else None)
        for unit in units:
            lister.add(unit)
        return lister.listing()

    def _table(self, rank: int, listing: _Listing) -> StepTable:
        """The table of a listing; unknown nodes are appended."""
        rows = self._rows.setdefault(rank, {})
        nodes = self._nodes.get(rank, self._empty)
        outputs: dict[_Name, int] = {}
        first: dict[_Name, _Found] = {}
        for each in listing.arrays:
            name = each.name
            first.setdefault(name, each)
            outputs[name] = max(outputs.get(name, 1), each.slot + 1 if each.side is Side.OUTPUT else 1)
        fresh = {name: _file_node(first[name], count) for name, count in outputs.items() if name not in rows}
        if fresh:
            self._grew = self._grew or rank in self._nodes
            nodes, numbers = append_nodes(nodes, fresh.values())
            rows.update(zip(fresh, numbers.tolist(), strict=True))
            nodes = self._with_categories(rank, nodes, {rows[name]: first[name].row for name in fresh})
        self._nodes[rank] = nodes
        of = np.array([rows[each.name] for each in listing.arrays], np.int32)
        side = np.array([int(each.side) for each in listing.arrays], np.uint8)
        slot = np.array([each.slot for each in listing.arrays], np.int16)
        indexed = [each.row for each in listing.arrays if each.row is not None]
        whole = bool(indexed) and len(indexed) == len(listing.arrays)
        flags = np.array([each.row.marks if each.row is not None else 0 for each in listing.arrays], np.uint8)
        rounds = np.array([each.row.round if each.row is not None else 0 for each in listing.arrays], np.uint16)
        # An index stands in the order in which tensors were made; names have no other order than their own.
        order = nodes.order[of] if len(of) else of
        by = np.arange(len(of)) if whole else np.lexsort((rounds, slot, side, order))
        paths = list(dict.fromkeys(each.path for each in listing.arrays))
        kinds = tuple(dict.fromkeys(each.spec for each in listing.arrays))
        path_numbers = {path: number for number, path in enumerate(paths)}
        kind_numbers = {kind: number for number, kind in enumerate(kinds)}
        file = np.array([path_numbers[each.path] for each in listing.arrays], np.int32)
        kind = np.array([kind_numbers[each.spec] for each in listing.arrays], np.int32)
        places = TensorPlaces(of[by], side[by], slot[by], flags[by], rounds[by])
        files = Names.of([os.fsencode(path) for path in paths])
        return StepTable(places, files, file[by], kinds, kind[by], rows=indexed if whole else ())

    def _with_categories(self, rank: int, nodes: NodeTable, fresh: Mapping[int, IndexedTensor | None]) -> NodeTable:
        """Gives nodes the categories that an index says."""
        known = self._categories.setdefault(rank, {})
        known.update({row: int(said.category) for row, said in fresh.items() if said is not None})
        if not known:
            return nodes
        category = nodes.category.copy()
        category[list(known)] = list(known.values())
        return replace(nodes, category=category)


def node_of(scope: Sequence[str], key: str | None = None) -> tuple[str, Side, int]:
    """Returns (node, side, slot) of an array.

    Args:
        scope: directories, and the name of the file.
        key: of an array in an archive; None in a .npy file.
    """
    position = _POSITION.fullmatch(key) if key is not None and scope else None
    if position is not None:
        return _node_name("/".join(scope)), Side.OUTPUT, int(position[1])
    full = "/".join(part for part in (*scope, *([key] if key else [])) if part)
    match = _SLOT.fullmatch(full)
    if match is not None and match[1]:
        return _node_name(match[1]), _SIDES[match[2]], int(match[3])
    return _node_name(full), Side.OUTPUT, 0


def _node_name(text: str) -> str:
    """The name of a node; that of a parameter has dots, as everywhere."""
    name = "/".join(part for part in text.split("/") if part) or "array"
    dotted = name.replace("/", ".")
    return dotted if _is_parameter(dotted) else name


def _is_parameter(name: str) -> bool:
    return not _GRADIENT.search(name) and parameter_by_name(name) is not Category.PARAMETER


def _file_node(found: _Found, outputs: int) -> FileNode:
    name, row = found.node, found.row
    if row is not None:
        return FileNode(row.graph, ROOT, name, row.path, row.type, outputs)
    if found.op_type:
        return FileNode(GRAPH, ROOT, name, name, found.op_type, outputs)
    path = name.replace(".", "/")
    if _is_parameter(name):
        return FileNode(GRAPH, ROOT, name, path, PARAMETER, outputs)
    if _GRADIENT.search(name):
        return FileNode(GRAPH, ROOT, name, f"Gradients/{path}", "Gradient", outputs)
    return FileNode(GRAPH, ROOT, name, path, "Array", outputs)


class _Lister:
    """Lists the directories and archives of one step."""

    def __init__(
        self,
        root: Path,
        rank: int,
        step: int,
        progress: ProgressFn,
        parse: Callable[[str], NamedFile | None] | None = None,
    ) -> None:
        self._root, self._rank, self._step, self._progress = root, rank, step, progress
        self._parse = parse
        self._found: dict[tuple[object, ...], _Found] = {}
        self._parts: list[UnreadablePart] = []
        self._state: list[str] = []
        self._visited: set[tuple[int, int]] = set()
        self._sharded: set[str] = set()
        self._order: dict[str, int] = {}
        self._done = 0
        self._first = ""
        progress(Progress(0, 0, f"listing step {step}"))

    def add(self, unit: Unit) -> None:
        self._first = self._first or unit.path
        if unit.directory:
            self._directory(unit.path, unit.scope)
        else:
            self._file(unit.path, unit.scope)

    def listing(self) -> _Listing:
        # Looked at after the listing: what changed in between is so young that it is listed once more.
        state = _state((path, 0, 0) for path in self._state)
        arrays = sorted(self._found.values(), key=lambda each: self._order.get(each.spec.member, len(self._order)))
        if not arrays and not self._parts:
            self._miss(self._first or str(self._root), f"no array in step {self._step}")
        names = blake2b(digest_size=16)
        for each in arrays:
            names.update(f"{each.path}\0{each.spec}\0{each.row}\0".encode("utf-8", "surrogateescape"))
        for part in self._parts:
            names.update(os.fsencode(f"{part.where}\0{part.why}\0"))
        return _Listing(arrays, self._parts, state, names.digest())

    def _directory(self, path: str, scope: tuple[str, ...]) -> None:
        self._state.append(path)
        try:
            status = os.stat(path)  # noqa: PTH116 - text all the way, for many
            if (status.st_dev, status.st_ino) in self._visited:
                return  # a link led here before
            self._visited.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: natural(entry.name))
        except OSError as error:
            self._miss(path, why_not(path, error))
            return
        if is_index(path):
            self._indexed(path)
            return
        if self._parse is not None:
            for entry in found:
                self._named(entry, self._parse(entry.name))
            return
        self._any(path, scope, found)

    def _any(self, path: str, scope: tuple[str, ...], found: list[os.DirEntry[str]]) -> None:
        """Takes in a directory of any program: arrays below each other, and what its files are called."""
        self._read_order(path, {entry.name for entry in found})
        for entry in found:
            if entry.name == INDEX and self._has_parts(found):
                self._file(entry.path, scope)
            if entry.name.startswith("."):
                continue
            directory = _is_directory(entry)
            if is_array(entry.name) and directory:
                self._miss(entry.path, "a directory in place of a file")
            elif is_array(entry.name):
                self._file(entry.path, (*scope, os.path.splitext(entry.name)[0]))  # noqa: PTH122 - see above
            elif directory:
                self._directory(entry.path, (*scope, entry.name))
            elif entry.name.endswith(_UNREAD) and not is_beside(entry.name):
                self._miss(entry.path, "a file that cannot be read yet")
            elif entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110 - never raises
                self._miss(entry.path, why_not(entry.path))

    def _named(self, entry: os.DirEntry[str], says: NamedFile | None) -> None:
        """Takes a file whose name says everything."""
        if says is None:
            if entry.name.endswith(_UNREAD) or _is_directory(entry):
                self._miss(entry.path, "no tensor's name")
            return
        at = says.node, says.side, says.slot
        if _is_directory(entry):
            self._miss(entry.path, "a directory in place of a file")
        elif at in self._found:
            self._miss(entry.path, f"the same tensor as one in {os.path.relpath(self._found[at].path, self._root)}")
        else:
            self._found[at] = _Found(*at, entry.path, says.spec, says.op_type)

    def _indexed(self, path: str) -> None:
        """Takes in what an index of ``tdbg convert`` lists: nothing else of the directory is looked at."""
        index = f"{path}/{INDEX_OF_STEP}"
        self._state.append(index)
        try:
            for number, row in enumerate(read_indexed(path)):
                if number % _PROGRESS_EVERY == 0:
                    self._progress(Progress(number, 0, f"listing step {self._step}"))
                where = f"{path}/{row.file}" if row.file else index
                at = (row.graph, row.node, row.side, row.slot, row.round)
                if row.error:
                    self._miss(f"{path}/{row.node}", f"not converted: {row.error}")
                elif at in self._found:
                    self._miss(index, f"two rows of one tensor: {row.node}")
                else:
                    self._found[at] = _Found(row.node, row.side, row.slot, where, ReadSpec(""), row=row)
        except (OSError, ValueError) as error:
            self._miss(index, why_not(index, error) if isinstance(error, OSError) else str(error))

    def _file(self, path: str, scope: tuple[str, ...]) -> None:
        self._done += 1
        if self._done % _PROGRESS_EVERY == 0:
            self._progress(Progress(self._done, 0, f"listing step {self._step}"))
        folder, name = os.path.split(path)
        if name.endswith(PART):
            if not os.path.exists(f"{folder}/{INDEX}"):  # noqa: PTH110 - never raises
                self._miss(path, "a part of a checkpoint whose index .metadata is missing")
            return
        if is_shard(name):
            whole = os.path.basename(folder) == "sharded" and os.path.exists(f"{folder}/../{ORDER}")  # noqa: PTH110,PTH119
            if whole or folder in self._sharded:
                return  # the same tensors as those beside it, or as those that were listed with the first shard
            self._sharded.add(folder)
            scope = scope[:-1]
        if holds_several(path):
            self._state.append(path)
        try:
            found = held_by(path)
        except UnreadableTensorError as error:
            self._miss(path, error.what)
            return
        if found and found[0].place and scope and is_whole(scope[-1]):
            scope = scope[:-1]
        for held in found:
            self._take(path, scope, held)
        if not found and path.endswith(ARCHIVE):
            self._miss(path, "no array in it")

    def _take(self, path: str, scope: tuple[str, ...], held: Held) -> None:
        at = node_of(scope, held.key)
        if at in self._found:
            first = os.path.relpath(self._found[at].path, self._root)
            where = path if held.key is None else f"{path}:{held.key}"
            self._miss(where, f"the same tensor as one in {first}")
        else:
            self._found[at] = _Found(*at, path, held.spec)

    def _has_parts(self, found: list[os.DirEntry[str]]) -> bool:
        return any(entry.name.endswith(PART) for entry in found)

    def _read_order(self, path: str, names: set[str]) -> None:
        """Reads which file each tensor of a model is in: shards that are missing, and the order of the model."""
        if ORDER not in names:
            return
        try:
            files = json.loads(read_regular(f"{path}/{ORDER}", GRAPH_LIMIT))["weight_map"]
            wanted = {name for name in files.values() if isinstance(name, str)}
            self._order |= {name: number for number, name in enumerate(files, len(self._order))}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._miss(f"{path}/{ORDER}", "cannot be read: whether all files of the model are there is not known")
            return
        for name in sorted(wanted - names):
            self._miss(f"{path}/{name}", "a file of the model that is missing")

    def _miss(self, path: str, why: str) -> None:
        self._parts.append(UnreadablePart(os.path.relpath(path, self._root), why, self._rank, self._step))


def _state(paths: Iterator[tuple[str, int, int]] | _State) -> _State:
    """Tells how directories and archives look now."""
    found = []
    for path, _, _ in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - text all the way, for many
            found.append((path, max(status.st_mtime_ns, status.st_ctime_ns), status.st_size))
        except OSError:  # noqa: PERF203 - each by itself
            found.append((path, -1, -1))
    return tuple(found)


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
