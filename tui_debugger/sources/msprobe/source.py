"""A dump of msprobe as a Source: steps are read when they are asked for, their calls become rows of a node table.

Data flow is inferred (see ``edges``) from the first step in which a node appears, which is a healthy one more often
than a later step: NaN equals nothing.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Int64
from tui_debugger.graph.build import MAX_SLOTS, build_table, clean_path
from tui_debugger.graph.categories import BACKWARD, categorise
from tui_debugger.graph.table import CONSTANT, PARAMETER, GraphInfo, NodeFlag, NodeTable, pointers
from tui_debugger.model import (
    Frame,
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
from tui_debugger.opener import open_regular
from tui_debugger.sources.base import (
    CallArguments,
    Capability,
    Changes,
    Columns,
    TensorFlag,
    TensorPlaces,
    TensorTable,
    directory_states,
)
from tui_debugger.sources.msprobe.arguments import StepArguments
from tui_debugger.sources.msprobe.calls import SAVED_TYPE, SCALAR, BadCallsError, NodeInfo, StepCalls, read_calls
from tui_debugger.sources.msprobe.edges import differ, infer_edges, infer_producers, written_in
from tui_debugger.sources.msprobe.layout import CALLS, SAVED, TENSORS, read_layout
from tui_debugger.stats.records import Specs

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph

GRAPH: Final = "calls"
"""The name of the one graph that all nodes are in."""
ROOT: Final = 0
INFERRED: Final = (
    "edges are inferred from tensors that look the same and from modules around calls: nothing in the dump says what "
    "flows where"
)
_FRAMEWORKS: Final = {"pytorch": "PyTorch", "mindspore": "MindSpore"}
_HEAD_BYTES: Final = 4096
_HEAD: Final = re.compile(rb'"(task|level|framework)"\s*:\s*"([a-zA-Z0-9_]{1,40})"')
_SLICED_FROM: Final = 16
"""Tensors from which an equal first dimension of all of them is no chance."""
_WATCHED: Final = 16

_State = tuple[tuple[str, int, int], ...]
"""Path, modification time and size of the files that a table was made of."""


class StepTable(Columns):
    """The tensors of one step. See ``base.TensorTable``."""

    def __init__(self, places: TensorPlaces, step: StepCalls, directory: str, state: _State) -> None:
        """``directory`` is that of the step and rank, ``state`` how its files looked."""
        super().__init__(places, np.zeros(len(step), np.int64))
        self._directory, self._state = directory, state
        self._files = step.files
        self._largest, self._smallest, self._mean, self._norm = step.largest, step.smallest, step.mean, step.norm
        self._nan, self._known, self._sizes = step.nan, step.known, step.sizes()
        self._dtypes, self._dtype, self._shapes, self._shape = step.dtypes, step.dtype, step.shapes, step.shape

    @property
    def _data(self) -> str:
        return f"{self._directory}/{TENSORS}"

    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the values."""
        name = os.fsdecode(self._files[index])
        return replace(self._kind(name, index), path=f"{self._data}/{name}")

    def _kind(self, name: str, index: int) -> ReadSpec:
        if name.endswith(".npy"):
            declared = self._dtypes[int(self._dtype[index])]
            return ReadSpec("", dtype=declared if declared.startswith(("bfloat", "float8", "int4")) else "")
        return ReadSpec("", "pt")

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> Specs:
        """``spec`` of several rows, as columns."""
        data = os.fsencode(self._data) + b"/"
        paths, numbers, kind = list[bytes](), dict[ReadSpec, int](), np.zeros(len(indices), np.int32)
        for at, index in enumerate(indices.tolist()):
            name = self._files[index]
            paths.append(data + name)
            kind[at] = numbers.setdefault(self._kind(os.fsdecode(name), index), len(numbers))
        return Specs(paths, tuple(numbers), kind)

    @property
    def digest(self) -> bytes:
        """Names the files of the calls as they were when they were read, and what each row is of."""
        hasher = blake2b(repr((self._directory, self._state)).encode("utf-8", "surrogateescape"), digest_size=16)
        for column in (self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest()

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times of the files with values as they are now."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        at = np.flatnonzero((self.flags[indices] & int(TensorFlag.STAT_ONLY)) == 0)
        names = [self._files[index] for index in np.asarray(indices)[at].tolist()]
        sizes[at], times[at] = directory_states(os.fsencode(self._data), names)
        return sizes, times

    def recorded(self, index: int) -> TensorStats | None:
        """The statistics of ``dump.json``: extremes, mean and norm; what they leave open is 0 or None.

        One NaN makes all of them NaN, so a NaN or Inf among the extremes counts as one such element.
        """
        count = int(self._sizes[index])
        if not self._known[index] or count < 0:
            return None
        largest, smallest = float(self._largest[index]), float(self._smallest[index])
        mean, norm = float(self._mean[index]), float(self._norm[index])
        nan = int(self._nan[index])
        pos_inf = 0 if largest != math.inf else count if smallest == math.inf else 1
        neg_inf = 0 if smallest != -math.inf else count if largest == -math.inf else 1
        bad = nan or pos_inf or neg_inf
        # Where the extremes do not tell the sign of all: each of them is an element.
        zero = count if largest == smallest == 0 else int(largest == 0 or smallest == 0)
        return TensorStats(
            count=count,
            nan=nan,
            pos_inf=pos_inf,
            neg_inf=neg_inf,
            zero=zero,
            negative=count if largest < 0 and not bad else int(-math.inf < smallest < 0),
            positive=count if smallest > 0 and not bad else int(0 < largest < math.inf),
            minimum=smallest if math.isfinite(smallest) else None,
            maximum=largest if math.isfinite(largest) else None,
            mean=mean if math.isfinite(mean) else None,
            abs_mean=None if bad or not math.isfinite(mean) or smallest < 0 < largest else abs(mean),
            variance=None,
            sum_squares=norm * norm if math.isfinite(norm) else 0.0,
        )

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) as recorded."""
        shape = int(self._shape[index])
        return (self._dtypes[int(self._dtype[index])], self._shapes[shape]) if shape >= 0 else None

    def rows_as_text(self, nodes: NodeTable) -> Iterator[dict[str, str]]:
        """The recorded statistics, by the titles that statistic files have."""
        columns = (
            ("Max Value", self._largest),
            ("Min Value", self._smallest),
            ("Avg Value", self._mean),
            ("L2Norm Value", self._norm),
        )
        for index in np.flatnonzero(self._known).tolist():
            node, meta = int(self.node[index]), self.recorded_meta(index)
            dtype, shape = meta if meta is not None else ("", ())
            yield {
                "Op Type": nodes.op_type(node),
                "Op Name": nodes.names[node],
                "IO": "input" if self.side[index] == int(Side.INPUT) else "output",
                "Slot": str(int(self.slot[index])),
                "Data Type": dtype,
                "Shape": str(shape),
                **{title: repr(float(column[index])) for title, column in columns},
            }


class _RankNodes:
    """The nodes of one rank while steps add to them.

    Attributes:
        table: as it is now.
    """

    def __init__(self) -> None:
        self.table = build_table(())
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._paths: list[str] = []
        self._types: dict[str, int] = {}
        self._type_of: list[int] = []
        self._stack_of: list[int] = []
        self._stacks: list[tuple[Frame, ...]] = []
        self._stack_numbers: dict[tuple[Frame, ...], int] = {}
        self._sequence: list[int] = []
        """Operators in the order in which they run."""
        self._outputs = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._in_node = np.zeros(0, np.int32)
        self._in_slot = np.zeros(0, np.int16)
        self._flags = np.zeros(0, np.uint8)
        self._constants: dict[int, str] = {}
        self._group_ranks: dict[int, tuple[int, ...]] = {}

    def add(self, step: StepCalls) -> Int32:
        """Appends the nodes that are new; returns the row of each node of a step."""
        before = len(self._names)
        stacks = [self._stack(frames) for frames in step.stacks]
        rows = np.array([self._row(step, info, stacks) for info in step.nodes], np.int32)
        fresh = bool((rows >= before).any())
        if fresh:
            self._place(rows, before)
            self._connect(step, rows, before)
        if self._correct(step, rows, before) or fresh:
            self.table = self._built()
        return rows

    def _row(self, step: StepCalls, info: NodeInfo, stacks: Sequence[int]) -> int:
        row = self._rows.setdefault(info.name, len(self._names))
        if row == len(self._names):
            self._append(info.name, info.path, info.type)
            stack = step.stack_of.get(info.call, -1)
            self._stack_of[row] = stacks[stack] if stack >= 0 else -1
            if info.ranks:
                self._group_ranks[row] = info.ranks
        return row

    def _append(self, name: str, path: str, kind: str) -> None:
        self._names.append(name)
        self._paths.append(clean_path(path) or name)
        self._type_of.append(self._types.setdefault(kind, len(self._types)))
        self._stack_of.append(-1)

    def _stack(self, frames: tuple[Frame, ...]) -> int:
        number = self._stack_numbers.setdefault(frames, len(self._stacks))
        if number == len(self._stacks):
            self._stacks.append(frames)
        return number

    def _constant(self, text: str) -> int:
        """The row that stands for arguments of one value that are no tensors."""
        name = f"scalar {text}" if text != SCALAR else "scalar"
        row = self._rows.setdefault(name, len(self._names))
        if row == len(self._names):
            self._append(name, f"Constants/{name}", CONSTANT)
            self._constants[row] = text
        return row

    def _place(self, rows: Int32, before: int) -> None:
        """Puts new operators behind those that they followed in their step."""
        inserted: dict[int, list[int]] = {}
        parameter = self._types.get(PARAMETER, -1)
        last = -1
        for row in rows.tolist():
            if self._type_of[row] == parameter:
                continue
            if row < before:
                last = row
            else:
                inserted.setdefault(last, []).append(row)
        sequence = inserted.get(-1, [])
        for row in self._sequence:
            sequence.append(row)
            sequence += inserted.get(row, ())
        self._sequence = sequence

    def _connect(self, step: StepCalls, rows: Int32, before: int) -> None:
        """Sets the inputs of the new nodes."""
        found = infer_edges(step)
        fresh = rows >= before
        scalars = [(rows[node], slot, self._constant(text)) for node, slot, text in step.scalars if fresh[node]]
        count = len(self._names)
        counts = np.zeros(count, np.int64)
        counts[: len(self._counts)] = self._counts
        counts[rows[fresh]] = np.minimum(found.inputs[fresh], MAX_SLOTS)
        mine = fresh[found.node] & (found.position < MAX_SLOTS)
        ptr = pointers(counts)
        in_node, in_slot = np.full(int(ptr[-1]), -1, np.int32), np.zeros(int(ptr[-1]), np.int16)
        in_node[: len(self._in_node)], in_slot[: len(self._in_slot)] = self._in_node, self._in_slot
        at = ptr[rows[found.node[mine]]] + found.position[mine]
        producer = found.producer[mine]
        in_node[at] = np.where(producer >= 0, rows[producer], -1)
        in_slot[at] = found.slot[mine]
        for row, slot, constant in scalars:
            in_node[ptr[row] + slot] = constant
        flags = np.zeros(count, np.uint8)
        flags[: len(self._flags)] = self._flags
        flags[rows[fresh]] = int(NodeFlag.INFERRED if mine.any() else NodeFlag.FILE_ONLY)
        saved = self._types.get(SAVED_TYPE, -1), self._types.get(SAVED_TYPE + BACKWARD, -1)
        flags[np.isin(self._type_of, saved)] = int(NodeFlag.FILE_ONLY)
        outputs = np.ones(count, np.int64)
        outputs[: len(self._outputs)] = self._outputs
        is_output = step.side == int(Side.OUTPUT)
        np.maximum.at(outputs, rows[step.node[is_output]], step.slot[is_output].astype(np.int64) + 1)
        self._counts, self._in_node, self._in_slot, self._flags, self._outputs = (
            counts,
            in_node,
            in_slot,
            flags,
            outputs,
        )

    def _correct(self, step: StepCalls, rows: Int32, before: int) -> bool:
        """Takes back edges that a step speaks against; tells whether there were any.

        A call that only some steps have may stand between two that were neighbours before: it is the producer then.
        """
        ptr = pointers(self._counts)
        asked = np.flatnonzero((step.side == int(Side.INPUT)) & (rows[step.node] < before))
        edge = ptr[rows[step.node[asked]]] + step.slot[asked]
        inside = (edge < ptr[rows[step.node[asked]] + 1]) & (step.slot[asked] >= 0)
        asked, edge = asked[inside], edge[inside]
        holder, slot = self._in_node[edge], self._in_slot[edge]
        local = np.full(len(self._names), -1, np.int64)
        local[rows] = np.arange(len(rows))
        producer = np.where(holder >= 0, local[holder], -1)
        made = written_in(step, producer, slot.astype(np.int64), asked)
        wrong = np.flatnonzero((made >= 0) & differ(step, asked, np.maximum(made, 0)))
        if not len(wrong):
            return False
        found = infer_producers(step, asked[wrong])
        new = np.where(found >= 0, rows[step.node[np.maximum(found, 0)]], -1)
        new = np.where(new >= before, new, -1)  # one that other steps have as well was not it there
        self._in_node, self._in_slot = self._in_node.copy(), self._in_slot.copy()
        self._in_node[edge[wrong]] = new
        self._in_slot[edge[wrong]] = np.where(new >= 0, step.slot[np.maximum(found, 0)], 0)
        return True

    def _built(self) -> NodeTable:
        count = len(self._names)
        order = np.full(count, -1, np.int32)
        others = sorted(set(range(count)).difference(self._sequence), key=lambda row: (row in self._constants, row))
        order[np.array([*self._sequence, *others], np.int64)] = np.arange(count)
        table = NodeTable(
            graphs=(GraphInfo(GRAPH, ROOT),),
            names=list(self._names),
            paths=list(self._paths),
            types=tuple(self._types),
            graph=np.zeros(count, np.int16),
            type_id=np.array(self._type_of, np.int32),
            category=np.zeros(count, np.uint8),
            flags=self._flags,
            order=order,
            outputs=np.minimum(self._outputs, MAX_SLOTS).astype(np.int16),
            in_ptr=pointers(self._counts),
            in_node=self._in_node,
            in_slot=self._in_slot,
            stack_id=np.array(self._stack_of, np.int32),
            stacks=list(self._stacks),
            constants=dict(self._constants),
            group_ranks=dict(self._group_ranks),
            lineage=self.table.lineage,
        )
        return replace(table, category=categorise(table))


@dataclass(slots=True)
class _Listing:
    """What was read of a step.

    Attributes:
        parts: what could not be read.
        state: how its files looked before they were read.
    """

    parts: list[UnreadablePart] = field(default_factory=list)
    state: _State = ()


class MsprobeSource:
    """See ``base.Source``. Steps are read when they are asked for."""

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        """Lists the directories above the steps.

        Args:
            root: the directory of the dump.
            given: the path as the user wrote it.
            notices: what people have to know besides.
        """
        self._lock = threading.RLock()
        self._root, self._given = root, given
        self._layout = read_layout(root)
        self._found_notices: dict[str, None] = dict.fromkeys(notices)
        self._nodes: dict[int, _RankNodes] = {}
        self._listings: dict[tuple[int, int], _Listing] = {}
        self._tables: dict[tuple[int, int], StepTable] = {}
        self._rows: dict[tuple[int, int], Int32] = {}
        self._arguments: tuple[tuple[int, int, _State], StepArguments] | None = None
        self._empty = StepTable(_places(StepCalls(), np.zeros(0, np.int32)), StepCalls(), "", ())
        self._grew = False

    @property
    def info(self) -> RunInfo:
        """The facts about the run."""
        head = self._head
        framework = _FRAMEWORKS.get(head.get("framework", ""), "")
        parts = [f"level {head['level']}"] if "level" in head else []
        parts += [f"task {head['task']}"] if "task" in head else []
        layout = ", ".join((f"msprobe dump of {framework}" if framework else "msprobe dump", *parts))
        notices = dict.fromkeys((*self._found_notices, *self._layout.notices, *self._told_by_head()))
        return RunInfo(str(self._root), layout, self._root.name, notices=tuple(notices))

    @cached_property
    def _head(self) -> dict[str, str]:
        """Task, level and framework as the first bytes of the first step say."""
        units = [path for steps in self._layout.units.values() for path in list(steps.values())[:1]]
        for path in units[:1]:
            for name in (CALLS, SAVED):
                try:
                    descriptor, _ = open_regular(f"{path}/{name}")
                except (OSError, ValueError):
                    continue
                with os.fdopen(descriptor, "rb") as file:
                    found = _HEAD.findall(file.read(_HEAD_BYTES).partition(b'"data"')[0])
                return {key.decode(): value.decode() for key, value in found}
        return {}

    def _told_by_head(self) -> Iterator[str]:
        task, level = self._head.get("task", ""), self._head.get("level", "")
        if task == "structure":
            yield "task structure: calls and their order were recorded, no tensors"
        elif task and task != "tensor":
            yield f"task {task}: extremes, means and norms were recorded, no values; one NaN hides all of them"
        if level == "L1":
            yield "level L1: calls are named by their numbers in the step; micro-batches are not told apart"
        if level != "debug":
            yield INFERRED
        else:
            yield "level debug: tensors that the program saved by name; there are no edges"

    @property
    def capabilities(self) -> Capability:
        """A directory may grow; edges are inferred."""
        with self._lock:
            edges = any(len(self.nodes(rank).in_node) for rank in self.ranks()[:1])
        return Capability.GROWS | (Capability.GRAPH if edges else Capability.NONE)

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """(rank, step) of the directory that was opened; None where it holds several."""
        given = os.path.abspath(self._given)  # noqa: PTH100 - keeps links
        inside = [
            (rank, step)
            for rank, steps in self._layout.units.items()
            for step, path in steps.items()
            if _is_inside(path, given) or _is_inside(given, path)
        ]
        ranks, steps = {rank for rank, _ in inside}, {step for _, step in inside}
        if given == os.path.abspath(self._root) or len(ranks) != 1:  # noqa: PTH100 - as above
            return None, None
        return ranks.pop(), steps.pop() if len(steps) == 1 else None

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        return list(self._layout.units)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending."""
        return list(self._layout.units.get(rank, ()))

    def history(self, rank: int) -> Sequence[GraphRun]:
        """One run for each step: micro-batches are rounds of its nodes."""
        steps = self.steps(rank)
        return tuple(
            GraphRun(step, ROOT, GRAPH, True, turn=turn) for step, turn in zip(steps, turns(steps), strict=True)
        )

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The step before, and of that the same micro-batch."""
        before = [each for each in self.steps(rank) if each < step] if root_graph == ROOT else []
        return (before[-1], round) if before else None

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Returns what could not be read, of the directories above the steps and of the steps that were read."""
        with self._lock:
            read = [part for listing in self._listings.values() for part in listing.parts]
            return tuple(sorted({*self._layout.parts, *read}, key=lambda part: (part.where, part.why)))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """The nodes of the steps that were read, at least of the first one that can be read."""
        with self._lock:
            for step in self.steps(rank):
                if rank in self._nodes and len(self._nodes[rank].table):
                    break
                self._read(rank, step, progress)
            return self._nodes[rank].table if rank in self._nodes else _RankNodes().table

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """The tensors of a step."""
        with self._lock:
            if step not in self._layout.units.get(rank, {}):
                return self._empty
            if (rank, step) not in self._tables:
                self.nodes(rank, progress)  # the nodes are those of the first step, and what others add
            return self._read(rank, step, progress)

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:  # noqa: ARG002 - see base.Source
        """There are none that could be read anew."""
        return ()

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> CallArguments | None:
        """What ``dump.json`` says; it is read anew for the step that was asked last."""
        with self._lock:
            self.tensors(rank, step)
            rows = self._rows.get((rank, step))
            if rows is None:
                return None
            state = self._listings[rank, step].state
            if self._arguments is None or self._arguments[0] != (rank, step, state):
                try:
                    found = StepArguments(self._layout.units[rank][step], rows)
                except BadCallsError:
                    return None
                self._arguments = (rank, step, state), found
            return self._arguments[1].of(row, round)

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        """The statistics of ``dump.json``."""
        with self._lock:
            table = self.tensors(rank, step)
            if not isinstance(table, StepTable) or not len(table):
                return None
            return table.rows_as_text(self.nodes(rank))

    def notes(self, rank: int) -> RunNotes:  # noqa: ARG002 - see base.Source
        """There are none."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> None:
        """Names do not say when."""

    def refresh(self) -> Changes:
        """Lists the directories above the steps anew, and looks at the files of steps that were read."""
        with self._lock:
            before = self._layout.units
            self._layout = read_layout(self._root)
            after = self._layout.units
            grown = [
                (rank, step)
                for (rank, step), listing in self._listings.items()
                if (path := after.get(rank, {}).get(step)) is None or _state(path) != listing.state
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
        """The directories above the steps, and those of the newest steps."""
        newest = [steps[step] for steps in self._layout.units.values() for step in list(steps)[-1:]]
        above = self._layout.directories[:1] + self._layout.directories[1:][-_WATCHED:]
        return [Path(path) for path in dict.fromkeys((*above, *newest[-_WATCHED:]))]

    def close(self) -> None:
        """Nothing is open between calls."""

    # -- reading -------------------------------------------------------------------------------------

    def _read(self, rank: int, step: int, progress: ProgressFn) -> StepTable:
        known = self._tables.get((rank, step))
        if known is not None:
            return known
        directory = self._layout.units[rank][step]
        progress(Progress(0, 0, f"reading the calls of step {step}"))
        listing = _Listing(state=_state(directory))
        where = os.path.relpath(directory, self._root)
        try:
            calls = read_calls(directory)
        except BadCallsError as error:
            listing.parts.append(UnreadablePart(where, str(error), rank, step))
            calls = StepCalls()
        for name, why in calls.problems:
            listing.parts.append(UnreadablePart(f"{where}/{name}", why, rank, step, graph=name not in {CALLS, SAVED}))
        if not len(calls) and not listing.parts:
            listing.parts.append(UnreadablePart(where, "no tensor in it", rank, step))
        data = f"{directory}/{TENSORS}"
        if calls.has_file.any() and not os.path.lexists(data):
            calls.has_file[:] = False
            self._found_notices[f"no {TENSORS}: of tensors there are only the statistics of {CALLS}"] = None
        self._tell(calls)
        nodes = self._nodes.setdefault(rank, _RankNodes())
        size = len(nodes.table)
        rows = nodes.add(calls)
        self._grew = self._grew or 0 < size < len(nodes.table)
        table = StepTable(_places(calls, rows), calls, directory, listing.state)
        self._rows[rank, step] = rows
        self._listings[rank, step], self._tables[rank, step] = listing, table
        return table

    def _tell(self, calls: StepCalls) -> None:
        """Notes what people have to know about a step."""
        if any(node.recomputed for node in calls.nodes):
            self._found_notices["calls that ran a second time for the backward pass are below Recomputed/"] = None
        if len(calls) and not calls.known.any() and not calls.has_file.any():
            self._found_notices["only digests were recorded: nothing is known of values, not even NaN"] = None
        first = {shape[0] for shape in calls.shapes if shape}
        if len(first) == 1 and len({shape for shape in calls.shapes if shape}) > 1 and len(calls) >= _SLICED_FROM:
            size = first.pop()
            self._found_notices[
                f"the first dimension of every tensor is {size}, also that of weights: msprobe's option slice seems to "
                "have cut them; what lies outside was not recorded"
            ] = None


def _places(calls: StepCalls, rows: Int32) -> TensorPlaces:
    flags = np.where(calls.has_file, 0, int(TensorFlag.STAT_ONLY)).astype(np.uint8)
    node = rows[calls.node] if len(calls) else np.zeros(0, np.int32)
    rounds = calls.round.astype(np.uint16)
    return TensorPlaces(
        node.astype(np.int32),
        calls.side.astype(np.uint8),
        calls.slot.astype(np.int16),
        flags,
        rounds if rounds.any() else None,
    )


def _state(directory: str) -> _State:
    """Tells how the files of a step look now."""
    found = []
    for name in (CALLS, SAVED, "construct.json", "stack.json"):
        path = f"{directory}/{name}"
        try:
            status = os.stat(path)  # noqa: PTH116 - text all the way
            found.append((path, max(status.st_mtime_ns, status.st_ctime_ns), status.st_size))
        except OSError:
            found.append((path, -1, -1))
    return tuple(found)


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
