"""A directory of tensor files as a Source: .npy, .npz, .safetensors, and files of torch.save.

There is no graph: nodes are named by directories, files and keys, and ordered by these names (keys as written). A name
that ends in a side and a number (``fc1.out.0``, ``in_1``) is that output or input of the node before it; ``arr_1`` in
an archive is output 1 of the archive's node; any other name is output 0 of its own node. Files that hold a model, whole
or in parts (``model-00001-of-00002.safetensors``), are no part of its tensors' names.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int32, Int64, Integers
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import (
    GraphRun,
    ProgressFn,
    Side,
    TensorStats,
    UnreadablePart,
    no_progress,
    sorted_parts,
)
from tui_debugger.notes import NO_NOTES, NOTES_FILE, Notes, RunNotes, limited, read_notes
from tui_debugger.opener import why_not
from tui_debugger.said import SAID_FILE, SaidOfRank
from tui_debugger.sources.base import RankPlaces, RecordedMeta, TensorFlag, TensorPlaces
from tui_debugger.sources.graphless import (
    FilesTable,
    GraphlessSource,
    InferredRankNodes,
    ListedStep,
)
from tui_debugger.sources.registry import Has, Order, Shows
from tui_debugger.sources.tensor_files.contents import (
    LOG_FORMAT,
)
from tui_debugger.sources.tensor_files.converted import NAME as INDEX_OF_STEP
from tui_debugger.sources.tensor_files.converted import IndexedTensor, is_index
from tui_debugger.sources.tensor_files.converted_nodes import ConvertedNodes, path_of, read_nodes
from tui_debugger.sources.tensor_files.layout import (
    INDEXES,
    LOG_OF_TRAINER,
    SHOWS,
    Layout,
    Unit,
    lone_file,
    narrowed,
    read_layout,
)
from tui_debugger.sources.tensor_files.listing import (
    GRAPH,
    FileTree,
    FoundArray,
    NodeName,
    StepLister,
    any_there,
    file_node,
    indexed_files,
    node_name,
    reason,
    without_other_forms,
)
from tui_debugger.text.numbers import first_of, plural

if TYPE_CHECKING:
    from tui_debugger.stats.training_log import TrainingLog

_YOUNG_NS: Final = 5 * 10**9
"""Age below which a file may change again within one tick of the clock."""
_NEWEST: Final = 2
"""Number of checkpoints whose logs are read for the notes: a killed training left the last one without."""
_TOLD: Final = 3
"""Number of files outside of the steps that a notice names."""


class TensorFileStepTable(FilesTable):
    """The arrays of one step, some with a row of an index of ``tdbg convert``. See ``base.TensorTable``."""

    def __init__(self, places: TensorPlaces, arrays: Sequence[FoundArray]) -> None:
        rows = [each.row for each in arrays]
        when = np.array([0 if row is None else row.timestamp for row in rows], np.int64)
        nbytes = np.array([each.nbytes for each in arrays], np.int64)
        columns = ([each.path for each in arrays], [each.spec for each in arrays], when, nbytes)
        super().__init__(places, *columns, members=[each.member for each in arrays])
        marked = enumerate(rows)
        self._rows = {at: row for at, row in marked if row is not None and row.marks & TensorFlag.STAT_ONLY}

    @property
    def digest(self) -> bytes:
        said = repr(list(self._rows.items())).encode("utf-8", "surrogateescape")
        return blake2b(super().digest + said, digest_size=16).digest()

    def file_states(self, indices: Integers) -> tuple[Int64, Int64]:
        sizes, times = super().file_states(indices)
        without = (self.flags[indices] & int(TensorFlag.STAT_ONLY)) > 0
        sizes[without], times[without] = -1, 0
        return sizes, times

    def recorded(self, index: int) -> TensorStats | None:
        row = self._rows.get(index)
        return None if row is None else row.stats

    def recorded_meta(self, index: int) -> RecordedMeta | None:
        row = self._rows.get(index)
        return None if row is None or row.shape is None else (row.dtype, row.shape)


class _TensorFileNodes(InferredRankNodes):
    def __init__(self) -> None:
        super().__init__()
        self._categories: dict[int, int] = {}

    def take(self, nodes: NodeTable) -> None:
        """Begins with nodes that were converted."""
        self.table = nodes
        self.rows = {node_name(nodes.graph_of(row).name, name): row for row, name in enumerate(nodes.names)}

    def add(self, arrays: Sequence[FoundArray]) -> Int32:
        """Adds the nodes that are new; returns the row of each array."""
        outputs: dict[NodeName, int] = {}
        first: dict[NodeName, FoundArray] = {}
        for each in arrays:
            name = each.name
            first.setdefault(name, each)
            if each.slot and each.side is Side.OUTPUT:
                outputs[name] = max(outputs.get(name, 1), each.slot + 1)
        fresh = [name for name in first if name not in self.rows]
        if fresh:
            made = (
                file_node(first[name], outputs.get(name, 1)) for name in fresh
            )  # one at a time: there may be a million
            self.append_nodes(fresh, made)
            self._categorise({self.rows[name]: first[name].row for name in fresh})
        self.place_parts({self.rows[each.name]: each.part.text for each in arrays if each.part is not None})
        return np.array([self.rows[each.name] for each in arrays], np.int32)

    def _categorise(self, fresh: Mapping[int, IndexedTensor | None]) -> None:
        """Gives nodes their categories in an index."""
        self._categories.update({row: int(said.category) for row, said in fresh.items() if said is not None})
        if self._categories:
            category = self.table.category.copy()
            category[list(self._categories)] = list(self._categories.values())
            self.table = replace(self.table, category=category)


class TensorFilesSource(GraphlessSource[list[Unit], _TensorFileNodes]):
    """See ``base.Source``."""

    graph = GRAPH

    def __init__(
        self,
        root: Path,
        given: Path,
        notices: Sequence[str] = (),
        tree: FileTree | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Lists the directories above the steps.

        ``tree`` tells how to read names; None where directories, files and keys name nodes. ``alone``: the given path
        is a file without a step in any name around it.
        """
        self._alone = alone
        self._tree = tree
        self._converted: dict[int, ConvertedNodes | None] = {}
        self._said: dict[int, SaidOfRank] = {}
        self._noted: dict[int, RunNotes] = {}
        self._broken: set[UnreadablePart] = set()
        self._indexed: bool | None = None
        self._apart: dict[tuple[int, int], list[str]] = {}
        self._numbers: dict[tuple[int, int], Mapping[str, int | float]] = {}
        self._meshes: dict[int, dict[str, set[tuple[int, int]]]] = {}
        super().__init__(root, given, notices)

    @property
    def shows(self) -> Shows:
        """The layout's abilities; after ``tdbg convert`` the original's, but its own for values."""
        if self._tree is not None:
            return self._tree.shows
        indexed = self._indexed  # as listed, without asking the system again
        if not (any(is_index(unit.path) for unit in self._first_units()) if indexed is None else indexed):
            return SHOWS
        with self._lock:
            tables = [listed.table for listed in self._listed.values()]
        valued = not tables or any(bool((table.flags & int(TensorFlag.STAT_ONLY) == 0).any()) for table in tables)
        converted = self._any_converted()
        return replace(
            converted.shows if converted is not None else replace(SHOWS, order=Order.EXECUTION),
            hashes=Has.NO,
            record=SHOWS.record,
            recorded_in=INDEX_OF_STEP,
            statistics=Has.SOME,
            values=Has.SOME if valued else Has.NO,
        )

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """The place of a rank in the meshes of its tensors, else by names; empty where these do not cover all ranks."""
        with self._lock:
            self.nodes(rank)  # looks into the files of a step
            meshes = self._meshes.get(rank, {})
            found = {axis: next(iter(places)) for axis, places in meshes.items()}
            known = all(len(places) == 1 for places in meshes.values())
            if not found and rank in self._layout.places:
                return self._layout.places[rank], "names of files"
            if not found or not known or math.prod(size for _, size in found.values()) != len(self.ranks()):
                return {}, ""
            return found, "meshes of DTensors"

    def _first_units(self) -> Sequence[Unit]:
        return next((units for steps in self._layout.units.values() for units in steps.values()), [])

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The step before; every step is one run, unless a converted dump tells its runs.

        None before the final state outside of the steps: that is the last state once more, or the best.
        """
        if step == self._layout.final:
            return None
        converted = self._converted_nodes(rank)
        if converted is not None and (root_graph, step, round) in converted.before:
            return converted.before[root_graph, step, round]
        if converted is not None and converted.runs:
            ran = [run for run in self.history(rank) if run.has_data and run.root_graph == root_graph]
            return max(((run.step, run.round) for run in ran if run.step < step), default=None)
        before = super().previous_run(rank, root_graph, step, round)
        return None if before is None else (before[0], 0)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending, except in a converted dump, which tells when they ran."""
        there = super().steps(rank)
        converted = self._converted_nodes(rank)
        if converted is None:
            return there
        ran = (run.step for run in converted.runs if run.has_data)
        return list(dict.fromkeys(step for step in (*ran, *there) if step in there))

    def history(self, rank: int) -> Sequence[GraphRun]:
        """One run for each step, unless a converted dump tells its runs."""
        converted, steps = self._converted_nodes(rank), self.steps(rank)
        if converted is not None and set(steps) <= {run.step for run in converted.runs}:
            return tuple(replace(run, has_data=run.has_data and run.step in steps) for run in converted.runs)
        return super().history(rank)

    def unreadable(self) -> Sequence[UnreadablePart]:
        with self._lock:
            return sorted_parts((*super().unreadable(), *self._broken))

    def notes(self, rank: int) -> RunNotes:
        """The notes of a converted dump, or the log of Hugging Face's Trainer."""
        with self._lock:
            if rank not in self._noted:
                self._noted[rank] = NO_NOTES
                is_converted = self._converted_nodes(rank) is not None
                self._noted[rank] = self._converted_notes(rank) if is_converted else self._logged_notes(rank)
            return self._noted[rank]

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]:
        with self._lock:
            self.tensors(rank, step)
            return self._numbers.get((rank, step), {})

    def _converted_notes(self, rank: int) -> RunNotes:
        path, notes = os.path.join(os.path.dirname(self._first_path(rank)), NOTES_FILE), NO_NOTES  # noqa: PTH118, PTH120 - text
        if path in self._layout.beside or opener.lexists(path):
            try:
                notes, wrong = read_notes(Path(path))
                why = f"{plural(wrong, 'line')} without a note" if wrong else ""
            except OSError as error:
                why = why_not(path, error)
            if why:
                self._broken.add(self._part(path, why, rank))
        return notes

    def _said_of(self, rank: int) -> SaidOfRank:
        """What a training said of its steps, of whose dump this one was converted."""
        if rank not in self._said:
            self._said[rank], why = SaidOfRank(), ""
            if self._converted_nodes(rank) is not None:
                path = os.path.join(os.path.dirname(self._first_path(rank)), SAID_FILE)  # noqa: PTH118, PTH120 - text
                self._said[rank], why = SaidOfRank.looked_at(Path(path))
                damage = [self._part(path, why, rank)] if why else []
                self._broken.update(self._said[rank].doubts, damage)
        return self._said[rank]

    def _logged_notes(self, rank: int) -> RunNotes:
        """Reads the logs beside the newest checkpoints and the final state; each holds all earlier steps."""
        if self._tree is not None:
            return NO_NOTES
        steps = [units for units in self._layout.units.get(rank, {}).values() if any(unit.directory for unit in units)]
        logs = [f"{unit.path}/{LOG_OF_TRAINER}" for units in steps[-_NEWEST:] for unit in units if unit.directory]
        found = [*(path for path in logs if opener.lexists(path)), *self._logs_beside()]
        if not found:
            return NO_NOTES
        return _notes_of_logs(found)

    def _logs_beside(self) -> list[str]:
        """Logs of trainings outside of the directories of steps."""
        return sorted(path for path in self._layout.beside if path.endswith(f"/{LOG_OF_TRAINER}"))

    def _first_path(self, rank: int) -> str:
        """The directory of the first step of a rank; empty without one."""
        units = next(iter(self._layout.units.get(rank, {}).values()), [])
        return next((unit.path for unit in units if unit.directory), "")

    def _converted_nodes(self, rank: int) -> ConvertedNodes | None:
        """The nodes that ``tdbg convert`` wrote; None without them, or when they cannot be read."""
        with self._lock:
            if rank in self._converted:
                return self._converted[rank]
            first = self._first_path(rank)
            path, found = path_of(first), None
            listed = path in self._layout.beside
            if first and self._tree is None and (listed or (is_index(first) and opener.lexists(path))):
                try:
                    found = read_nodes(path)
                except (OSError, ValueError) as error:
                    self._broken.add(self._part(path, reason(path, error), rank))
            self._converted[rank] = found
            return found

    def _any_converted(self) -> ConvertedNodes | None:
        return next((found for rank in self.ranks() if (found := self._converted_nodes(rank)) is not None), None)

    def _layout_notices(self) -> Iterable[str]:
        final = self._layout.final
        if final is not None and self.scope.holds(step=final):
            units = (unit for steps in self._layout.units.values() for unit in steps.get(final, ()))
            told = first_of([os.path.relpath(unit.path, self._root) for unit in units], _TOLD)
            yield f"final: what lies outside of the steps is shown as step {final}: {told}"
        if apart := list(dict.fromkeys(place for each in self._apart.values() for place in each)):
            told = first_of(apart, _TOLD)
            yield f"settings and logs: {plural(len(apart), 'number')} not finite, no finding there: {told}"
        converted = self._any_converted()
        yield from () if converted is None else converted.notices
        if converted is None and any(self._noted.values()):
            for rank, notes in self._noted.items():
                yield from _notices_of(rank, notes)

    def _ranks_with_edges(self) -> Sequence[int]:
        return () if self._any_converted() is None else self.ranks()[:1]

    def _nodes_of(self, rank: int) -> _TensorFileNodes:
        fresh = rank not in self._nodes
        nodes = super()._nodes_of(rank)
        if fresh:
            if (converted := self._converted_nodes(rank)) is not None:
                nodes.take(converted.nodes)
            self.notes(rank)  # here, where the caller expects to wait
        return nodes

    def _find(self) -> Layout:
        self._noted = {rank: notes for rank, notes in self._noted.items() if self._converted.get(rank) is not None}
        if self._tree is not None:
            return self._tree.read(self._root)
        path = Path(os.path.abspath(self._given))  # noqa: PTH100 - keeps links
        if self._alone:
            return lone_file(path)
        layout = narrowed(read_layout(self._root), path)
        indexes = sorted(path for path in layout.beside if path.endswith(INDEXES))
        for index in without_other_forms(indexes):
            folder, files = os.path.dirname(index), indexed_files(index)  # noqa: PTH120 - text all the way
            if files is None or (files and not any_there(folder, files)):
                layout.miss(index, "cannot be read" if files is None else "names files of a model, and none is there")
        return layout

    def _name(self) -> str:
        return "directory of tensor files" if self._tree is None else self._tree.layout

    _new_nodes = _TensorFileNodes

    def _paths(self, unit: list[Unit]) -> Iterable[str]:
        return (each.path for each in unit)

    def _newest(self) -> Iterator[str]:
        for steps in self._layout.units.values():
            for step in list(steps)[-1:]:
                yield from (unit.path for unit in steps[step] if unit.directory)

    def _changed(self, at: tuple[int, int], listed: ListedStep, before: list[Unit] | None) -> bool:
        if super()._changed(at, listed, before):
            return True
        now = time.time_ns()
        if all(abs(now - changed) >= _YOUNG_NS for _, changed, _ in listed.state):
            return False
        return self._list(*at, no_progress).names() != listed.names

    def _list(self, rank: int, step: int, progress: ProgressFn) -> StepLister:
        lister = StepLister(self._root, rank, step, progress, self._tree)
        units = self._layout.units[rank][step]
        lister.take_indexes(units, [path for path in self._layout.beside if path.endswith(INDEXES)])
        for unit in units:
            lister.add(unit, indexed=path_of(unit.path) in self._layout.beside)
        if self.scope.whole and rank == self.ranks()[0] and step == self.steps(rank)[-1]:
            for path in self._logs_beside():
                lister.add_log(path)
        lister.end(final=step == self._layout.final)
        return lister

    def _read(self, rank: int, step: int, nodes: _TensorFileNodes, progress: ProgressFn) -> ListedStep:
        lister = self._list(rank, step, progress)
        self._indexed = bool(self._indexed) or lister.indexed
        self._apart[rank, step] = lister.apart
        self._numbers[rank, step] = lister.numbers
        arrays = lister.arrays
        for part in dict.fromkeys(each.part for each in arrays if each.part is not None):
            for axis, place in part.places:
                self._meshes.setdefault(rank, {}).setdefault(axis, set()).add(place)
        of = nodes.add(arrays)
        side, slot = np.array([each.side for each in arrays]), np.array([each.slot for each in arrays])
        flags = np.array([0 if each.row is None else each.row.marks for each in arrays])
        rounds = np.array([0 if each.row is None else each.row.round for each in arrays])
        # An index has the order in which tensors were made; names have no order but their own.
        indexed = bool(arrays) and all(each.row is not None for each in arrays)
        if self._tree is None:
            order = nodes.table.order[of] if len(of) else of
        else:  # order of this step: a node that an earlier step lacks may run before nodes of both
            first, at = np.unique(of, return_index=True, return_inverse=True)[1:]
            order = first[at].astype(np.int32)
        logged = np.array([each.spec.format == LOG_FORMAT for each in arrays], np.bool_)  # last: results of the step
        by = np.arange(len(of)) if indexed else np.lexsort((rounds, slot, side, order, logged))
        places = TensorPlaces(of[by], side[by], slot[by], flags[by], rounds[by])
        table = TensorFileStepTable(places, [arrays[at] for at in by.tolist()])
        said = self._said_of(rank).of(step, nodes.table.find)
        table.inputs_unknown, table.operands, table.by_design = said.inputs_unknown, said.operands, said.by_design
        return ListedStep(table, lister.parts, lister.state, lister.names(), lister.claimed)


def _notes_of_logs(paths: Iterable[str]) -> RunNotes:
    """Logged values by step; of two logs of a step the later one counts.

    An unreadable log is left out: the listing of its step reports it.
    """
    from tui_debugger.stats.training_log import read_log  # only with logs

    notes = RunNotes()
    for path in paths:
        try:
            notes.add(_noted_in(read_log(path)))
        except UnreadableTensorError:  # noqa: PERF203 - of a few files
            continue
    return notes


def _noted_in(log: TrainingLog) -> Iterator[tuple[int, Notes]]:
    for entry in log.entries:
        step = entry.get("step") if type(entry) is dict else None
        if type(step) is int and 0 <= step < 1 << 63:
            yield step, limited((name, value) for name, value in entry.items() if name != "step")


def _notices_of(rank: int, notes: RunNotes) -> Iterator[str]:
    """Yields the steps at which a logged number was not finite."""
    for name in notes.curves():
        steps, values = notes.curve(name)
        if bad := np.array(steps)[~np.isfinite(values)].tolist():
            yield f"log of rank {rank}: {name} is not finite at step {first_of(list(map(str, bad)), _TOLD)}"
