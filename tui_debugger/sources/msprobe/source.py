"""A dump of msprobe as a Source: steps are read when asked for, and their calls become rows of a node table.

Data flow is inferred (see ``edges``) from the first step in which a node appears, which is healthy more often than a
later step: one NaN hides the statistics by which equal tensors are found.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int32, Int64, Integers
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.graph.categories import BACKWARD
from tui_debugger.graph.table import NodeFlag, NodeTable, pointers
from tui_debugger.model import AtLeast, ProgressFn, ReadSpec, Side, TensorMeta, UnreadablePart
from tui_debugger.sources.base import (
    CallArguments,
    RecordedMeta,
    TensorFlag,
    TensorPlaces,
    directory_states,
    longer,
    no_garbage_collection,
)
from tui_debugger.sources.directories import DumpLayout
from tui_debugger.sources.graphless import (
    FileState,
    GraphlessSource,
    InferredNodes,
    ListedStep,
    StatisticsTable,
    state_of_files,
)
from tui_debugger.sources.msprobe.calls import (
    SAVED_TYPE,
    SCALAR,
    StepArguments,
    StepCalls,
    read_calls,
)
from tui_debugger.sources.msprobe.edges import (
    contents_of_nan,
    differ,
    how_to_read,
    infer_edges,
    infer_producers,
    written_in,
)
from tui_debugger.sources.msprobe.files import BadCallsError, content_of
from tui_debugger.sources.msprobe.layout import CALLS, READER, SAVED, TENSORS, read_layout
from tui_debugger.sources.registry import Has, Shows
from tui_debugger.stats.records import ROW, RecordedColumns, RecordState

GRAPH: Final = "calls"
"""The name of the one graph that all nodes are in."""
_FRAMEWORKS: Final = {"pytorch": "PyTorch", "mindspore": "MindSpore"}
_HEAD_BYTES: Final = 4096
_HEAD: Final = re.compile(rb'"(task|level|framework)"\s*:\s*"([a-zA-Z0-9_]{1,40})"')
_INEXACT: Final = 1 << 53
"""Number of elements above which a column may be inexact."""
_KEPT: Final = 1 << 16
"""Number of tensors of steps that are kept in case another rank has equal ones."""
_SLICED_FROM: Final = 16
"""Number of tensors from which an equal first dimension of all is no coincidence."""


class MsprobeStepTable(StatisticsTable):
    """The tensors of one step of msprobe."""

    def __init__(self, places: TensorPlaces, step: StepCalls, directory: str, state: FileState) -> None:
        super().__init__(places, np.zeros(len(step), np.int64))
        self._directory, self._state = directory, state
        self._files = step.files
        self._largest, self._smallest, self._mean, self._norm = step.largest, step.smallest, step.mean, step.norm
        self._nan, self._known, self._sizes, self._hashes = step.nan, step.known, step.sizes(), step.hashes
        self.hashes_are_sums = step.hashes_are_sums
        self._dtypes, self._dtype, self._shapes, self._shape = step.dtypes, step.dtype, step.shapes, step.shape

    def at(self, directory: str, state: FileState) -> MsprobeStepTable:
        """The same table for another rank, whose files have the same content."""
        other = copy.copy(self)
        other._directory, other._state = directory, state  # noqa: SLF001 - one of us
        return other

    @property
    def _data(self) -> str:
        return f"{self._directory}/{TENSORS}"

    def spec(self, index: int) -> ReadSpec:
        name = os.fsdecode(self._files[index])
        return how_to_read(name, self._dtypes[int(self._dtype[index])]).at(f"{self._data}/{name}")

    @property
    def digest(self) -> bytes:
        """Identifies the files of the calls as they were when they were read, and the place of each row."""
        hasher = blake2b(repr((self._directory, self._state)).encode("utf-8", "surrogateescape"), digest_size=16)
        for column in (self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest()

    def file_states(self, indices: Integers) -> tuple[Int64, Int64]:
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        at = np.flatnonzero((self.flags[indices] & int(TensorFlag.STAT_ONLY)) == 0)
        names = [self._files[index] for index in np.asarray(indices)[at].tolist()]
        sizes[at], times[at] = directory_states(os.fsencode(self._data), names)
        return sizes, times

    def recorded_columns(self, indices: Integers) -> RecordedColumns:
        """The extremes, means and norms of ``dump.json``; other fields are 0 or NaN.

        They tell that there are NaN and Inf, not how many: each counts as one such element.
        """
        count, shape = self._sizes[indices], self._shape[indices]
        columns = self._largest, self._smallest, self._mean, self._norm
        largest, smallest, mean, norm = (each[indices].astype(np.float64) for each in columns)
        right = self._known[indices] & (shape >= 0) & (count >= 0) & (count < _INEXACT)
        nan = self._nan[indices].astype(np.int64)
        with np.errstate(invalid="ignore", over="ignore"):
            pos_inf = np.where(largest == np.inf, np.where(smallest == np.inf, count, 1), 0)
            neg_inf = np.where(smallest == -np.inf, np.where(largest == -np.inf, count, 1), 0)
            infinite = pos_inf + neg_inf
            good = (nan == 0) & (infinite == 0)
            both_signs = (smallest < 0) & (largest > 0)
            hidden = (nan > 0) & (nan < count)
            few_infinite = (infinite > 0) & (infinite < count)
            known = {
                "count": count,
                "nan": nan,
                "pos_inf": pos_inf,
                "neg_inf": neg_inf,
                # The extremes may not tell the sign of all elements, but each is an element.
                "zero": np.where((largest == 0) & (smallest == 0), count, (largest == 0) | (smallest == 0)),
                "negative": np.where((largest < 0) & good, count, (smallest > -np.inf) & (smallest < 0)),
                "positive": np.where((smallest > 0) & good, count, (largest > 0) & (largest < np.inf)),
                "minimum": np.where(np.isfinite(smallest), smallest, np.nan),
                "maximum": np.where(np.isfinite(largest), largest, np.nan),
                "mean": np.where(np.isfinite(mean), mean, np.nan),
                "abs_mean": np.where(good & np.isfinite(mean) & ~both_signs, np.abs(mean), np.nan),
                "variance": np.nan,
                "sum_squares": np.where(np.isfinite(norm), norm * norm, 0.0),
                "state": RecordState.MEASURED * (self._known[indices] & (count >= 0)),
                "at_least": int(AtLeast.NAN) * hidden | int(AtLeast.INF) * (hidden | few_infinite),
            }
        found = np.zeros(len(indices), ROW)
        for name, column in known.items():
            found[name] = column
        told = np.flatnonzero(right)
        alike = self._dtype[indices][told].astype(np.int64) * len(self._shapes) + shape[told]
        _, first, found["meta"][told] = np.unique(alike, return_index=True, return_inverse=True)
        metas = (self.recorded_meta(int(indices[at])) for at in told[first].tolist())
        return RecordedColumns(found, tuple(TensorMeta(*each, 0) for each in metas if each is not None), right)

    def hashed(self, index: int) -> int:
        return int(self._hashes[index]) if self._hashes is not None else 0

    def recorded_meta(self, index: int) -> RecordedMeta | None:
        shape = int(self._shape[index])
        return (self._dtypes[int(self._dtype[index])], self._shapes[shape]) if shape >= 0 else None

    def rows_as_text(self, nodes: NodeTable) -> Iterator[dict[str, str]]:
        columns = (
            ("Max Value", self._largest),
            ("Min Value", self._smallest),
            ("Avg Value", self._mean),
            ("L2Norm Value", self._norm),
        )
        for index in np.flatnonzero(self._known).tolist():
            meta = self.recorded_meta(index)
            dtype, shape = meta if meta is not None else ("", ())
            yield {
                **self.named(index, nodes),
                "Data Type": dtype,
                "Shape": str(shape),
                **{title: repr(float(column[index])) for title, column in columns},
            }


class _MsprobeNodes(InferredNodes):
    """The nodes of one rank while steps add to them."""

    def __init__(self) -> None:
        super().__init__(GRAPH)
        self.state = 0
        """Equal for equal nodes of other ranks; 0 before the first step."""
        self._lent = False
        self._outputs = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._in_node = np.zeros(0, np.int32)
        self._in_slot = np.zeros(0, np.int16)
        self._flags = np.zeros(0, np.uint8)
        self._group_ranks: dict[int, tuple[int, ...]] = {}

    def lent(self) -> _MsprobeNodes:
        """Shares these nodes with other ranks: ``add`` copies them first."""
        self._lent = True
        return copy.copy(self)

    def become(self, other: _MsprobeNodes) -> None:
        """Takes over shared nodes, to which the same steps were added."""
        lineage = self.table.lineage
        self.__dict__.update(other.__dict__)
        self.table = other.table.of_lineage(lineage)

    def are_those_of(self, other: _MsprobeNodes) -> bool:
        apart = {"table", "state", "_lent"}
        mine, theirs = ({key: each for key, each in of.__dict__.items() if key not in apart} for of in (self, other))
        return all(
            np.array_equal(each, theirs[key]) if isinstance(each, np.ndarray) else each == theirs[key]
            for key, each in mine.items()
        )

    def _own(self) -> None:
        """Copies the columns that are shared with other ranks."""
        if self._lent:
            for name, value in self.__dict__.items():
                if isinstance(value, (list, dict)):
                    setattr(self, name, value.copy())
            self._lent = False

    def add(self, step: StepCalls, directory: str) -> Int32:
        """Adds the nodes that are new; returns the row of each node of the step in ``directory``."""
        self._own()
        before = len(self.names)
        stacks = [self.stack(frames) for frames in step.stacks]
        new = [info for info in step.nodes if info.name not in self.rows]
        numbers = (step.stack_of.get(info.call, -1) for info in new)
        self.extend(
            [info.name for info in new],
            [info.path for info in new],
            (info.type for info in new),
            (stacks[number] if number >= 0 else -1 for number in numbers),
        )
        self._group_ranks |= {self.rows[info.name]: info.ranks for info in new if info.ranks}
        rows = np.array([self.rows[info.name] for info in step.nodes], np.int32)
        fresh = bool((rows >= before).any())
        if fresh:
            self.place(rows.tolist(), before)
            step.contents = contents_of_nan(step, directory, (rows >= before)[step.node])
            self._connect(step, rows, before)
        if self._correct(step, rows, before) or fresh:
            self.build(self._outputs, self._flags, self._counts, self._in_node, self._in_slot, self._group_ranks)
        return rows

    def _scalar(self, text: str) -> int:
        return self.constant(text, f"scalar {text}" if text != SCALAR else "scalar")

    def _connect(self, step: StepCalls, rows: Int32, before: int) -> None:
        """Sets the inputs of the new nodes."""
        found = infer_edges(step)
        fresh = rows >= before
        scalars = [(rows[node], slot, self._scalar(text)) for node, slot, text in step.scalars if fresh[node]]
        count = len(self.names)
        counts = longer(self._counts, count)
        counts[rows[fresh]] = np.minimum(found.inputs[fresh], MAX_SLOTS)
        mine = fresh[found.node] & (found.position < MAX_SLOTS)
        ptr = pointers(counts)
        in_node, in_slot = longer(self._in_node, int(ptr[-1]), -1), longer(self._in_slot, int(ptr[-1]))
        at = ptr[rows[found.node[mine]]] + found.position[mine]
        producer = found.producer[mine]
        in_node[at] = np.where(producer >= 0, rows[producer], -1)
        in_slot[at] = found.slot[mine]
        for row, slot, constant in scalars:
            in_node[ptr[row] + slot] = constant
        flags = longer(self._flags, count)
        flags[rows[fresh]] = int(NodeFlag.INFERRED if mine.any() else NodeFlag.FILE_ONLY)
        saved = self.types.get(SAVED_TYPE, -1), self.types.get(SAVED_TYPE + BACKWARD, -1)
        flags[np.isin(self.type_of, saved)] = int(NodeFlag.FILE_ONLY)
        outputs = longer(self._outputs, count, 1)
        is_output = step.side == int(Side.OUTPUT)
        np.maximum.at(outputs, rows[step.node[is_output]], step.slot[is_output].astype(np.int64) + 1)
        self._counts, self._in_node, self._in_slot = counts, in_node, in_slot
        self._flags, self._outputs = flags, outputs

    def _correct(self, step: StepCalls, rows: Int32, before: int) -> bool:
        """Removes edges that a step contradicts; tells whether there were any.

        A call that only some steps have may stand between two that were neighbours before: then it is the producer.
        """
        ptr = pointers(self._counts)
        asked = np.flatnonzero((step.side == int(Side.INPUT)) & (rows[step.node] < before))
        edge = ptr[rows[step.node[asked]]] + step.slot[asked]
        inside = (edge < ptr[rows[step.node[asked]] + 1]) & (step.slot[asked] >= 0)
        asked, edge = asked[inside], edge[inside]
        holder, slot = self._in_node[edge], self._in_slot[edge]
        local = np.full(len(self.names), -1, np.int64)
        local[rows] = np.arange(len(rows))
        producer = np.where(holder >= 0, local[holder], -1)
        made = written_in(step, producer, slot.astype(np.int64), asked)
        wrong = np.flatnonzero((made >= 0) & differ(step, asked, np.maximum(made, 0)))
        if not len(wrong):
            return False
        found = infer_producers(step, asked[wrong])
        new = np.where(found >= 0, rows[step.node[np.maximum(found, 0)]], -1)
        new = np.where(new >= before, new, -1)  # an older node cannot be this producer
        self._in_node, self._in_slot = self._in_node.copy(), self._in_slot.copy()
        self._in_node[edge[wrong]] = new
        self._in_slot[edge[wrong]] = np.where(new >= 0, step.slot[np.maximum(found, 0)], 0)
        return True


@dataclass(slots=True)
class _Same:
    """Steps, of any ranks, whose files are equal byte by byte."""

    calls: StepCalls
    listed: dict[int, tuple[_MsprobeNodes, Int32, MsprobeStepTable]] = field(default_factory=dict)
    """By ``_MsprobeNodes.state`` before the step: the nodes after it, their rows in the step, the table."""


class MsprobeSource(GraphlessSource[str, _MsprobeNodes]):
    """See ``base.Source``."""

    graph = GRAPH

    def __init__(self, root: Path, given: Path, notices: Sequence[str] = ()) -> None:
        self._found_notices: dict[str, None] = {}
        self._recorded: set[str] = set()
        """The kinds of data that were found: values, statistics, hashes."""
        self._rows: dict[tuple[int, int], Int32] = {}
        self._same: dict[bytes, _Same] = {}
        """By content; the last ones only."""
        self._numbers = itertools.count(1)
        self._lent: deque[_MsprobeNodes] = deque(maxlen=4)
        """The nodes that were shared last."""
        self._arguments: tuple[tuple[int, int, FileState], StepArguments] | None = None
        super().__init__(root, given, notices)

    def _find(self) -> DumpLayout[str]:
        return read_layout(self._root)

    def _name(self) -> str:
        head = self._head
        framework = _FRAMEWORKS.get(head.get("framework", ""), "")
        parts = [f"level {head['level']}"] if "level" in head else []
        parts += [f"task {head['task']}"] if "task" in head else []
        return ", ".join((f"msprobe dump of {framework}" if framework else "msprobe dump", *parts))

    def _layout_notices(self) -> Iterable[str]:
        return (*self._found_notices, *self._head_notices())

    _new_nodes = _MsprobeNodes

    def _paths(self, unit: str) -> Iterable[str]:
        return (unit,)

    def _newest(self) -> Iterator[str]:
        return (steps[step] for steps in self._layout.units.values() for step in list(steps)[-1:])

    def _ranks_with_edges(self) -> Sequence[int]:
        return self.ranks()[:1]

    @property
    def shows(self) -> Shows:
        """The abilities of this dump: its task decides on values, statistics and hashes."""
        task = self._head.get("task", "")
        if task == "structure":
            return replace(READER.shows, values=Has.NO, statistics=Has.NO, hashes=Has.NO)
        if not self._recorded:  # nothing was listed yet
            return READER.shows if task in {"tensor", ""} else replace(READER.shows, values=Has.NO)
        return replace(
            READER.shows,
            values=Has.SOME if "values" in self._recorded else Has.NO,
            statistics=Has.YES if "statistics" in self._recorded else Has.NO,
            hashes=Has.YES if "hashes" in self._recorded else Has.NO,
        )

    @cached_property
    def _head(self) -> dict[str, str]:
        """Task, level and framework in the first bytes of the first step."""
        units = [path for steps in self._layout.units.values() for path in list(steps.values())[:1]]
        for path in units[:1]:
            for name in (CALLS, SAVED):
                try:
                    head = opener.first_bytes(f"{path}/{name}", _HEAD_BYTES)
                except (OSError, ValueError):
                    continue
                found = _HEAD.findall(head.partition(b'"data"')[0])
                return {key.decode(): value.decode() for key, value in found}
        return {}

    def _head_notices(self) -> Iterator[str]:
        task, level = self._head.get("task", ""), self._head.get("level", "")
        if task == "structure":
            yield "task structure: calls and their order were recorded, no tensors"
        elif task and task != "tensor" and self._recorded != {"hashes"}:
            yield f"task {task}: extremes, means and norms were recorded, no values; one NaN hides all of them"
        if level == "L1":
            yield "level L1: calls are named by their numbers in the step; micro-batches are not told apart"
        if level == "debug":
            yield "level debug: tensors that the program saved by name"

    def _read(self, rank: int, step: int, nodes: _MsprobeNodes, progress: ProgressFn) -> ListedStep:  # noqa: ARG002 - one file
        with no_garbage_collection():
            return self._read_calls(rank, step, nodes)

    def _read_calls(self, rank: int, step: int, nodes: _MsprobeNodes) -> ListedStep:
        directory = self._layout.units[rank][step]
        names = (CALLS, SAVED, "construct.json", "stack.json", TENSORS)
        files = [f"{directory}/{name}" for name in names]
        state = state_of_files(files)
        content = content_of(directory) if sum(map(len, self._layout.units.values())) > 1 else b""
        same = self._same.pop(content, None)
        parts: list[UnreadablePart] = []
        try:
            calls = same.calls if same is not None else read_calls(directory)
        except BadCallsError as error:
            parts.append(self._part(directory, str(error), rank, step))
            calls = StepCalls()
        for name, why in calls.problems:
            part = self._part(f"{directory}/{name}", why, rank, step)
            parts.append(replace(part, graph=name not in {CALLS, SAVED, TENSORS}))
        if not len(calls) and not parts:
            parts.append(self._part(directory, "no tensor in it", rank, step))
        if calls.has_file.any() and not calls.tensors_listed:
            calls.has_file[:] = False
            self._found_notices[f"no {TENSORS}: of tensors there are only the statistics of {CALLS}"] = None
        self._found_notices |= dict.fromkeys(calls.notices)
        self._tell(calls)
        if same is None and content and not parts and state_of_files(files) == state:
            same = _Same(calls)
        if same is None:
            nodes.state = next(self._numbers)
            rows = self._rows[rank, step] = nodes.add(calls, directory)
            return ListedStep(MsprobeStepTable(_places(calls, rows), calls, directory, state), parts, state)
        self._keep(content, same)
        before = nodes.state
        if before not in same.listed:
            rows = self._rows[rank, step] = nodes.add(calls, directory)
            nodes.state = next(self._numbers)
            table = MsprobeStepTable(_places(calls, rows), calls, directory, state)
            same.listed[before] = self._alike(nodes), rows, table
            return ListedStep(table.at(directory, state), parts, state)
        lent, self._rows[rank, step], table = same.listed[before]
        table.memo = {} if table.memo is None else table.memo
        nodes.become(lent)
        return ListedStep(table.at(directory, state), parts, state)

    def _alike(self, nodes: _MsprobeNodes) -> _MsprobeNodes:
        """Shares the nodes of a rank, or takes over equal ones of another rank."""
        known = next((each for each in self._lent if each.are_those_of(nodes)), None)
        if known is None:
            known = nodes.lent()
            self._lent.append(known)
        nodes.become(known)
        return known

    def _keep(self, content: bytes, same: _Same) -> None:
        """Keeps the steps that were met last, up to ``_KEPT`` tensors."""
        self._same[content] = same
        left = _KEPT
        for each in reversed([*self._same]):
            left -= len(self._same[each].calls)
            if left < 0 and each != content:
                del self._same[each]

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> CallArguments | None:
        """Reads ``dump.json`` again for each new step."""
        with self._lock:
            self.tensors(rank, step)
            listed = self._listed.get((rank, step))
            if listed is None:
                return None
            if self._arguments is None or self._arguments[0] != (rank, step, listed.state):
                directory = self._layout.units[rank][step]
                known = [os.path.basename(part.where) for part in listed.parts]  # noqa: PTH119 - text all the way
                try:
                    found = StepArguments(directory, self._rows[rank, step], known)
                except BadCallsError as error:
                    missed = self._part(directory, f"arguments of calls: {error}", rank, step)
                    listed.parts += [missed] if missed not in listed.parts else []
                    return None
                self._arguments = (rank, step, listed.state), found
            return self._arguments[1].of(row, round)

    def _tell(self, calls: StepCalls) -> None:
        """Notes what a step tells of the recorder."""
        statistics = calls.known.any() and not calls.digests_alone
        found = {"values": calls.has_file.any(), "statistics": statistics, "hashes": calls.hashes is not None}
        self._recorded.update(name for name, there in found.items() if there)
        if any(node.recomputed for node in calls.nodes):
            self._found_notices["calls that ran a second time for the backward pass are below Recomputed/"] = None
        if len(calls) and not statistics and not calls.has_file.any():
            beside = "; of scalars the value" if calls.known.any() else ""
            self._found_notices[f"only digests were recorded: nothing is known of values, not even NaN{beside}"] = None
        first = {shape[0] for shape in calls.shapes if shape}
        if len(first) == 1 and len({shape for shape in calls.shapes if shape}) > 1 and len(calls) >= _SLICED_FROM:
            size = first.pop()
            self._found_notices[
                f"the first dimension of every tensor is {size}, also that of weights: msprobe's option slice seems to "
                "have cut them; what lies outside was not recorded"
            ] = None


def _places(calls: StepCalls, rows: Int32) -> TensorPlaces:
    flags = np.where(calls.has_file, 0, int(TensorFlag.STAT_ONLY))
    return TensorPlaces(rows[calls.node] if len(calls) else (), calls.side, calls.slot, flags, calls.round)
