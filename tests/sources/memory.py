"""A run that lives in memory: the test double of every layer above the sources."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.graph.table import GraphInfo, NodeFlag, NodeTable
from tui_debugger.model import (
    Category,
    Frame,
    GraphRun,
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
from tui_debugger.sources.base import (
    Capability,
    Changes,
    TensorFlag,
    TensorPlaces,
    TensorTable,
    file_states,
)
from tui_debugger.sources.scope import Scope, whole_run
from tui_debugger.stats.records import ReadSpecs

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph


GRAPH = "kernel_graph_0"

Key = tuple[str, Side, int] | tuple[str, Side, int, int]
"""(node id, side, slot), and from 1 on which run of its graph within the step wrote it, where there were several.

A node that several graphs have is named ``graph:node id``.
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A tensor of which only statistics exist, as in a statistic.csv without values."""

    stats: TensorStats
    dtype: str = "float32"
    shape: tuple[int, ...] = ()


Value = npt.NDArray[Any] | bytes | Recorded
"""An array; the verbatim content of a (broken) .npy file; or statistics alone."""


@dataclass(frozen=True, slots=True)
class Op:
    """One node of a graph made by hand.

    Attributes:
        name: canonical id.
        type: operator type, ``Parameter`` or ``Constant`` included.
        inputs: producers as (node id, slot), in input order; an unknown id means an unknown producer.
        category: see ``model.Category``.
        graph: name of its graph.
        path: display path, the name when empty.
        outputs: number of output slots.
        stack: source stack, innermost first.
        structural: never has files.
    """

    name: str
    type: str = "Op"
    inputs: Sequence[tuple[str, int]] = ()
    category: Category = Category.OTHER
    graph: str = GRAPH
    path: str = ""
    outputs: int = 1
    stack: tuple[Frame, ...] = ()
    structural: bool = False


def table_of(ops: Sequence[Op], graphs: Sequence[GraphInfo] = ()) -> NodeTable:
    """A node table from a list of operators; their order is the execution order."""
    named = {info.name: info for info in graphs}
    for op in ops:
        named.setdefault(op.graph, GraphInfo(op.graph, len(named)))
    graph_ids = {name: i for i, name in enumerate(named)}
    types = tuple(dict.fromkeys(op.type for op in ops))
    rows = {(op.graph, op.name): i for i, op in enumerate(ops)}
    edges = [(rows.get((op.graph, name), -1), slot) for op in ops for name, slot in op.inputs]
    stacks = list(dict.fromkeys(op.stack for op in ops if op.stack))
    flags = [NodeFlag.STRUCTURAL if op.structural else NodeFlag.NONE for op in ops]
    return NodeTable(
        graphs=tuple(named.values()),
        names=[op.name for op in ops],
        paths=[op.path or op.name for op in ops],
        types=types,
        graph=np.array([graph_ids[op.graph] for op in ops], np.int16),
        type_id=np.array([types.index(op.type) for op in ops], np.int32),
        category=np.array([op.category for op in ops], np.uint8),
        flags=np.array(flags, np.uint8),
        order=np.arange(len(ops), dtype=np.int32),
        outputs=np.array([op.outputs for op in ops], np.int16),
        in_ptr=np.cumsum([0, *(len(op.inputs) for op in ops)], dtype=np.int32),
        in_node=np.array([node for node, _ in edges], np.int32),
        in_slot=np.array([slot for _, slot in edges], np.int16),
        stack_id=np.array([stacks.index(op.stack) if op.stack else -1 for op in ops], np.int32),
        stacks=stacks,
    )


class MemoryTable(TensorTable):
    """The tensors of one step; values are written to a temporary directory when a spec is asked for."""

    def __init__(
        self, source: MemorySource, rows: Sequence[tuple[int, Key]], values: Mapping[Key, Value], times: Sequence[int]
    ) -> None:
        """``rows`` (node row, key) in execution order; ``times`` when each was written, 0 where that is not known."""
        self._source = source
        self._values = [values[key] for _, key in rows]
        self._paths: dict[int, str] = {}
        flags = [TensorFlag.STAT_ONLY if isinstance(value, Recorded) else TensorFlag.NONE for value in self._values]
        places = TensorPlaces(
            np.array([row for row, _ in rows], np.int32),
            np.array([key[1] for _, key in rows], np.uint8),
            np.array([key[2] for _, key in rows], np.int16),
            np.array(flags, np.uint8),
            _rounds(rows),
        )
        super().__init__(places, np.array(times, np.int64))

    def spec(self, index: int) -> ReadSpec:
        """Writes the value to the temporary directory on first use."""
        value = self._values[index]
        if index not in self._paths:
            self._paths[index] = self._source.spill(value)
        declared = value.dtype.name if isinstance(value, np.ndarray) and _is_extension(value.dtype) else ""
        return ReadSpec(self._paths[index], dtype=declared)

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> ReadSpecs:
        """``spec`` of several rows, as columns."""
        return ReadSpecs.of(map(self.spec, indices.tolist()))

    @property
    def digest(self) -> bytes:
        """Nothing: another session has other files."""
        return b""

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times of the spilled files; writes those that are not there yet."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        real = np.flatnonzero((self.flags[indices] & int(TensorFlag.STAT_ONLY)) == 0)
        sizes[real], times[real] = file_states(self.specs(indices[real]).paths)
        return sizes, times

    def recorded(self, index: int) -> TensorStats | None:
        """Statistics of a ``Recorded`` value."""
        value = self._values[index]
        return value.stats if isinstance(value, Recorded) else None

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) of a ``Recorded`` value."""
        value = self._values[index]
        return (value.dtype, value.shape) if isinstance(value, Recorded) else None


def _rounds(rows: Sequence[tuple[int, Key]]) -> list[int]:
    """The round of each row: 0 where a key names none; nothing when every tensor was written once."""
    count = Counter((row, key[1], key[2]) for row, key in rows)
    if max(count.values(), default=0) < 2:
        return []
    return [_round(key) for _, key in rows]


def _round(key: Key) -> int:
    return key[3] if len(key) > 3 else 0


def _row(table: NodeTable, name: str) -> int:
    """The row of a node by its name in a key."""
    graph, _, rest = name.partition(":")
    found = table.find(rest, graph) if rest and any(info.name == graph for info in table.graphs) else -1
    return found if found >= 0 else table.find(name)


def _is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether numpy itself cannot name the type in a header (bfloat16, float8 ...)."""
    return dtype.isbuiltin == 2


class MemorySource:
    """A Source over arrays in memory.

    Nodes that have tensors but are in no table are appended with type ``Op``, in order of appearance.
    """

    def __init__(
        self,
        tensors: Mapping[int, Mapping[int, Mapping[Key, Value]]],
        *,
        ops: Sequence[Op] = (),
        table: NodeTable | None = None,
        history: Sequence[GraphRun] | None = None,
        title: str = "memory",
        notices: Sequence[str] = (),
    ) -> None:
        """``tensors`` is {rank: {step: {(node, side, slot): value}}}; ``table`` wins over ``ops``.

        ``history`` is in the order in which the runs began. Where it says when, every tensor of a run was written that
        many microseconds later as its place in the execution order.
        """
        self._lock = threading.RLock()
        self._tensors = {
            rank: {step: dict(values) for step, values in steps.items()} for rank, steps in tensors.items()
        }
        self._base = table if table is not None else table_of(ops)
        self._graph = bool(len(self._base))
        self._history = None if history is None else tuple(history)
        self._info = RunInfo("memory", "in memory", title=title, notices=tuple(notices))
        self._nodes: dict[int, NodeTable] = {}
        self._tables: dict[tuple[int, int], MemoryTable] = {}
        self._runs: dict[int, tuple[GraphRun, ...]] = {}
        self._changes = Changes()
        self._directory: Path | None = None
        self._files = 0

    @property
    def info(self) -> RunInfo:
        """Title and notices as given."""
        return self._info

    @property
    def capabilities(self) -> Capability:
        """Grows through ``add``; a graph when nodes were given."""
        return Capability.GROWS | (Capability.GRAPH if self._graph else Capability.NONE)

    @property
    def scope(self) -> Scope:
        """All of it."""
        return whole_run("memory")

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        with self._lock:
            return sorted(self._tensors)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps of a rank in the order of the given history; without one, ascending."""
        with self._lock:
            steps = sorted(self._tensors.get(rank, {}))
        ran = {run.step: place for place, run in reversed(list(enumerate(self._history or ())))}
        return sorted(steps, key=lambda step: (ran.get(step, len(ran)), step)) if ran else steps

    def history(self, rank: int) -> Sequence[GraphRun]:
        """The given history in the given order, else one run of every root graph per step."""
        with self._lock:
            if rank not in self._runs:  # checks ask for it at each step
                runs = self._one_run_a_step(rank) if self._history is None else self._history
                in_turn = zip(runs, turns([run.step for run in runs]), strict=True)
                self._runs[rank] = tuple(replace(run, turn=turn) for run, turn in in_turn)
            return self._runs[rank]

    def _one_run_a_step(self, rank: int) -> tuple[GraphRun, ...]:
        roots = [info for info in self.nodes(rank).graphs if info.is_root]
        return tuple(GraphRun(step, info.root_id, info.name, True) for step in self.steps(rank) for info in roots)

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The run before, of those whose step has tensors."""
        steps = set(self.steps(rank))
        ran = [
            (run.step, run.round) for run in self.history(rank) if run.root_graph == root_graph and run.step in steps
        ]
        mine = [place for place, run in enumerate(ran) if run[0] == step and round in (0, run[1])]
        if mine:
            return ran[mine[-1] - 1] if mine[-1] else None
        return max((run for run in ran if run[0] < step), default=None)

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Nothing."""
        return ()

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:  # noqa: ARG002 - nothing takes long here
        """The given table plus a row for every unknown node."""
        with self._lock:
            if rank not in self._nodes:
                self._nodes[rank] = self._with_unknown(self._base, rank)
            return self._nodes[rank]

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:  # noqa: ARG002 - as above
        """Tensors of a step by the order of their nodes."""
        with self._lock:
            at = (rank, step)
            if at not in self._tables:
                table = self.nodes(rank)
                values = self._tensors.get(rank, {}).get(step, {})
                began = self._began(step)
                rows = [(_row(table, key[0]), key) for key in values]

                def place(item: tuple[int, Key]) -> tuple[int, ...]:
                    row, key = item
                    run = began.get((table.graph_of(row).root_id, _round(key)), (_round(key), 0))
                    return (run[0], int(table.order[row]), row, int(key[1]), key[2])

                def written(item: tuple[int, Key]) -> int:
                    row, key = item
                    run = began.get((table.graph_of(row).root_id, _round(key)), (0, 0))
                    return run[1] + int(table.order[row]) if run[1] else 0

                rows.sort(key=place)
                self._tables[at] = MemoryTable(self, rows, values, [written(item) for item in rows])
            return self._tables[at]

    def _began(self, step: int) -> dict[tuple[int, int], tuple[int, int]]:
        """For (root graph, round) of a step the place of the run, and when it began; places only where it matters."""
        runs = [run for run in self._history or () if run.step == step]
        if not any(run.began or run.round for run in runs):
            return {}
        found = {(run.root_graph, run.round): (place, run.began) for place, run in enumerate(runs)}
        for place, run in enumerate(runs):
            found[run.root_graph, 0] = (place, run.began)
        return found

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
        """Nothing was noted."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> None:
        """Names do not say it."""

    def add(self, rank: int, step: int, values: Mapping[Key, Value]) -> None:
        """Adds tensors as a training process would; the next ``refresh`` reports them."""
        with self._lock:
            steps = self._tensors.get(rank)
            fresh = steps is None or step not in steps
            was = self._changes
            length = len(self._nodes[rank]) if rank in self._nodes else -1
            self._tensors.setdefault(rank, {}).setdefault(step, {}).update(values)
            self._tables.pop((rank, step), None)
            self._runs.clear()
            if length >= 0:
                self._nodes[rank] = self._with_unknown(self._nodes[rank], rank)
            at = (rank, step)
            self._changes = Changes(
                new_steps=tuple(dict.fromkeys((*was.new_steps, at))) if fresh else was.new_steps,
                grown_steps=was.grown_steps if fresh else tuple(dict.fromkeys((*was.grown_steps, at))),
                new_nodes=was.new_nodes or (length >= 0 and len(self._nodes[rank]) > length),
                new_ranks=(*was.new_ranks, rank) if steps is None else was.new_ranks,
            )

    def refresh(self) -> Changes:
        """What ``add`` brought since the last call."""
        with self._lock:
            changes, self._changes = self._changes, Changes()
            return changes

    def watch_paths(self) -> Sequence[Path]:
        """Nothing to watch."""
        return ()

    def close(self) -> None:
        """Deletes what was spilled."""
        with self._lock:
            if self._directory is not None:
                _remove(self._directory, os.getpid())
                self._directory = None
            self._tables.clear()

    def spill(self, value: Value) -> str:
        """Writes a value to the temporary directory and returns its path; MindSpore stores bfloat16 as float32 too."""
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="tdbg-memory-"))
                weakref.finalize(self, _remove, self._directory, os.getpid())  # for who forgets to close
            self._files += 1
            path = self._directory / f"{self._files}.npy"
        if isinstance(value, bytes):
            path.write_bytes(value)
        elif isinstance(value, np.ndarray):
            np.save(path, value.astype(np.float32) if _is_extension(value.dtype) else value, allow_pickle=True)
        return str(path)

    def _with_unknown(self, table: NodeTable, rank: int) -> NodeTable:
        used = dict.fromkeys(key[0] for values in self._tensors.get(rank, {}).values() for key in values)
        unknown = [name for name in used if _row(table, name) < 0]
        return _append(table, unknown) if unknown else table


def _remove(directory: Path, pid: int) -> None:
    """Deletes what was spilled, in the process that did it: a forked one has a copy of the source."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def _append(table: NodeTable, names: Sequence[str]) -> NodeTable:
    """Rows of type ``Op`` for names that no graph knows."""
    graphs = table.graphs or (GraphInfo(GRAPH, 0),)
    types = table.types if "Op" in table.types else (*table.types, "Op")
    count = len(names)
    first = int(table.order.max(initial=-1)) + 1

    def grown(column: npt.NDArray[Any], value: int) -> npt.NDArray[Any]:
        return np.concatenate([column, np.full(count, value, column.dtype)])

    return replace(
        table,
        graphs=graphs,
        names=[*table.names, *names],
        paths=[*table.paths, *names],
        types=types,
        graph=grown(table.graph, 0),
        type_id=grown(table.type_id, types.index("Op")),
        category=grown(table.category, Category.OTHER),
        flags=grown(table.flags, NodeFlag.FILE_ONLY),
        order=np.concatenate([table.order, np.arange(first, first + count, dtype=np.int32)]),
        outputs=grown(table.outputs, 1),
        in_ptr=grown(table.in_ptr, int(table.in_ptr[-1])),
        stack_id=grown(table.stack_id, -1),
    )
