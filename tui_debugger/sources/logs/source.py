"""Logs with statistics of tensors as a Source: steps are read when they are asked for.

Operations of all steps of a rank are rows of one node table. An edge on which steps disagree is none: nobody knows it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.errors import NotADumpError
from tui_debugger.graph.build import MAX_SLOTS, build_table
from tui_debugger.graph.categories import categorise
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
from tui_debugger.opener import why_not
from tui_debugger.sources.base import Capability, Changes, Columns, TensorFlag, TensorPlaces, TensorTable, file_states
from tui_debugger.sources.logs.entries import Entry, LoggedStep, Operation
from tui_debugger.sources.logs.layout import Kind, read_layout
from tui_debugger.stats.records import Specs

if TYPE_CHECKING:
    from tui_debugger.graph.messages import ParsedGraph

GRAPH: Final = "log"
ROOT: Final = 0
_WATCHED: Final = 16
_State = tuple[tuple[str, int, int], ...]


class StepTable(Columns):
    """The tensors of one step. See ``base.TensorTable``."""

    def __init__(self, places: TensorPlaces, entries: Sequence[Entry], state: _State) -> None:
        super().__init__(places, np.zeros(len(entries), np.int64))
        self._entries, self._state = entries, state

    def spec(self, index: int) -> ReadSpec:
        """Tells how to read the values."""
        path, member = self._entries[index].file or ("", "")
        return ReadSpec(path, "pt", member=member)

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> Specs:
        """``spec`` of several rows, as columns."""
        paths, numbers, kind = list[bytes](), dict[ReadSpec, int](), np.zeros(len(indices), np.int32)
        for at, index in enumerate(indices.tolist()):
            spec = self.spec(index)
            paths.append(os.fsencode(spec.path))
            kind[at] = numbers.setdefault(replace(spec, path=""), len(numbers))
        return Specs(paths, tuple(numbers), kind)

    @property
    def digest(self) -> bytes:
        """Names the logs as they were when they were read, and what each row is of."""
        hasher = blake2b(repr(self._state).encode("utf-8", "surrogateescape"), digest_size=16)
        for column in (self.node, self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest() if len(self) else b""

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times of the files with values."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        at = np.flatnonzero((self.flags[indices] & int(TensorFlag.STAT_ONLY)) == 0)
        sizes[at], times[at] = file_states(os.fsencode(self.spec(index).path) for index in indices[at].tolist())
        return sizes, times

    def recorded(self, index: int) -> TensorStats | None:
        """The statistics that follow from the log."""
        return self._entries[index].stats()

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) as logged; empty where the log does not say."""
        entry = self._entries[index]
        return entry.dtype, entry.shape or ()

    def rows_as_text(self, nodes: NodeTable) -> Iterator[dict[str, str]]:
        """What was logged, by the titles that statistic files have."""
        for index, entry in enumerate(self._entries):
            if entry.numbers is None:
                continue
            node = int(self.node[index])
            numbers = {
                "Max Value": entry.numbers.maximum,
                "Min Value": entry.numbers.minimum,
                "Avg Value": entry.numbers.mean,
                "L1Norm Value": entry.numbers.l1,
                "L2Norm Value": entry.numbers.l2,
            }
            yield {
                "Op Type": nodes.op_type(node),
                "Op Name": nodes.names[node],
                "IO": "input" if entry.side is Side.INPUT else "output",
                "Slot": str(entry.slot),
                **({"Round": str(entry.round)} if entry.round else {}),
                "Data Type": entry.dtype,
                "Shape": "" if entry.shape is None else str(entry.shape),
                **{title: "" if value is None else repr(value) for title, value in numbers.items()},
                **entry.others,
            }


class _RankNodes:
    """The nodes of one rank while steps add to them.

    Attributes:
        table: as it is now.
    """

    def __init__(self) -> None:
        self.table = build_table(())
        self._rows: dict[str, int] = {}
        self._operations: list[Operation] = []
        self._inputs: list[list[tuple[int, int]]] = []
        self._outputs: list[int] = []
        self._inferred: list[bool] = []
        self._constants: dict[int, str] = {}
        self._sequence: list[int] = []

    def add(self, step: LoggedStep) -> list[int]:
        """Appends the nodes that are new; returns the row of each operation of a step."""
        before = len(self._operations)
        rows = [self._row(each) for each in step.operations]
        self._place([row for row in rows if self._operations[row].type != PARAMETER], before)
        changed = len(self._operations) > before
        for row, operation in zip(rows, step.operations, strict=True):
            inputs = [self._input(each, rows) for each in operation.inputs[:MAX_SLOTS]]
            outputs = max((each.slot + 1 for each in operation.tensors if each.side is Side.OUTPUT), default=1)
            if row >= before:
                self._inputs[row], self._outputs[row] = inputs, outputs
                self._inferred[row] = operation.inferred > 0
                continue
            known = self._inputs[row]
            agreed = [one if one == other else (-1, 0) for one, other in zip(known, inputs, strict=False)]
            agreed += [(-1, 0)] * (max(len(known), len(inputs)) - len(agreed))
            changed = changed or agreed != known or outputs > self._outputs[row]
            self._inputs[row], self._outputs[row] = agreed, max(outputs, self._outputs[row])
        if changed:
            self.table = self._built()
        return rows

    def _row(self, operation: Operation) -> int:
        row = self._rows.setdefault(operation.name, len(self._operations))
        if row == len(self._operations):
            self._operations.append(operation)
            self._inputs.append([])
            self._outputs.append(1)
            self._inferred.append(False)
        return row

    def _input(self, made: tuple[int, int] | str, rows: Sequence[int]) -> tuple[int, int]:
        if not isinstance(made, str):
            return (rows[made[0]], made[1]) if made[0] >= 0 else (-1, 0)
        row = self._row(Operation(f"scalar {made}", f"Constants/scalar {made}", CONSTANT))
        self._constants[row] = made
        return row, 0

    def _place(self, rows: Sequence[int], before: int) -> None:
        """Puts new operators behind those that they followed in their step."""
        inserted: dict[int, list[int]] = {}
        last = -1
        for row in rows:
            if row < before:
                last = row
            else:
                inserted.setdefault(last, []).append(row)
        sequence = inserted.get(-1, [])
        for row in self._sequence:
            sequence.append(row)
            sequence += inserted.get(row, ())
        self._sequence = sequence

    def _built(self) -> NodeTable:
        count = len(self._operations)
        types: dict[str, int] = {}
        stacks: dict[tuple[Frame, ...], int] = {}
        type_id = [types.setdefault(each.type, len(types)) for each in self._operations]
        stack_id = [stacks.setdefault(each.stack, len(stacks)) if each.stack else -1 for each in self._operations]
        order = np.full(count, -1, np.int32)
        others = sorted(set(range(count)).difference(self._sequence), key=lambda row: (row in self._constants, row))
        order[np.array([*self._sequence, *others], np.int64)] = np.arange(count)
        edges = [edge for inputs in self._inputs for edge in inputs]
        flags = [
            int(NodeFlag.INFERRED if inferred else NodeFlag.NONE if operation.flows else NodeFlag.FILE_ONLY)
            for operation, inferred in zip(self._operations, self._inferred, strict=True)
        ]
        table = NodeTable(
            graphs=(GraphInfo(GRAPH, ROOT),),
            names=[each.name for each in self._operations],
            paths=[each.path for each in self._operations],
            types=tuple(types),
            graph=np.zeros(count, np.int16),
            type_id=np.array(type_id, np.int32),
            category=np.zeros(count, np.uint8),
            flags=np.array(flags, np.uint8),
            order=order,
            outputs=np.minimum(np.array(self._outputs, np.int64), MAX_SLOTS).astype(np.int16),
            in_ptr=pointers(np.array([len(each) for each in self._inputs], np.int64)),
            in_node=np.array([row for row, _ in edges], np.int32),
            in_slot=np.array([slot for _, slot in edges], np.int16),
            stack_id=np.array(stack_id, np.int32),
            stacks=list(stacks),
            constants=dict(self._constants),
            lineage=self.table.lineage,
        )
        return replace(table, category=categorise(table))


@dataclass(slots=True)
class _Read:
    """What was read of one log, or of all logs of a rank: its state before, the steps, what was wrong."""

    state: _State
    steps: Mapping[int, LoggedStep] = field(default_factory=dict)
    parts: list[UnreadablePart] = field(default_factory=list)


class LogSource:
    """See ``base.Source``. Logs are read when they are asked for."""

    def __init__(self, kind: Kind, root: Path, given: Path, notices: Sequence[str] = (), *, only: str = "") -> None:
        """Lists the logs.

        Args:
            kind: of log.
            root: the directory of the run.
            given: the path as the user wrote it.
            notices: what people have to know besides.
            only: the one log that was asked for; empty: all.
        """
        self._lock = threading.RLock()
        self._kind, self._root, self._given, self._only = kind, root, given, only
        self._layout = read_layout(kind, os.fspath(root), only)
        self._notices = tuple(notices)
        reader = import_module(f"tui_debugger.sources.logs.{kind.module}")
        self._read_log: Callable[..., Any] = reader.read
        self._told: tuple[str, ...] = reader.NOTICES
        self._nodes: dict[int, _RankNodes] = {}
        self._logs: dict[tuple[int, int], _Read] = {}
        """By rank and step; step -1 where a log holds all steps."""
        self._tables: dict[tuple[int, int], StepTable] = {}
        self._empty = StepTable(_places([], []), [], ())
        self._grew = False

    @property
    def info(self) -> RunInfo:
        """The facts about the run."""
        notices = dict.fromkeys((*self._notices, *self._layout.notices, *self._told))
        framework = "" if self._kind.ranks is not None else "PyTorch"  # msprobe records MindSpore, too
        return RunInfo(str(self._root), self._kind.name, self._root.name, notices=tuple(notices), framework=framework)

    @property
    def capabilities(self) -> Capability:
        """A log may grow; some have edges."""
        with self._lock:
            edges = self._kind.edges and any(len(self.nodes(rank).in_node) for rank in self.ranks())
        return Capability.GROWS | (Capability.GRAPH if edges else Capability.NONE)

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """(rank, step) of the log that was opened; None where there are several."""
        given = os.path.realpath(self._given)
        if Path(os.path.realpath(self._root)).is_relative_to(given):
            return None, None
        for rank, paths in self._layout.logs.items():
            if len(self._layout.logs) > 1 and list(self._layout.logs.values()).count(paths) > 1:
                break  # one file of several ranks
            if any(given in {real, os.path.dirname(real)} for real in map(os.path.realpath, paths)):  # noqa: PTH120 - text
                return rank, None
        inside = [
            (rank, step)
            for rank, steps in self._layout.units.items()
            for step, path in steps.items()
            if (real := os.path.realpath(path)) == given or real.startswith(given.rstrip("/") + "/")
        ]
        ranks, steps = {rank for rank, _ in inside}, {step for _, step in inside}
        if len(ranks) != 1:
            return None, None
        return ranks.pop(), steps.pop() if len(steps) == 1 else None

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        return list(self._layout.logs or self._layout.units)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending; a log of all steps is read to know them."""
        if not self._kind.whole:
            return list(self._layout.units.get(rank, ()))
        with self._lock:
            return sorted(self._log(rank, -1).steps) if rank in self._layout.logs else []

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
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        """The step before."""
        before = [each for each in self.steps(rank) if each < step] if root_graph == ROOT else []
        return (before[-1], round) if before else None

    def unreadable(self) -> Sequence[UnreadablePart]:
        """Returns what could not be read of the logs that were looked at."""
        with self._lock:
            return tuple(sorted({part for log in self._logs.values() for part in log.parts}))

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """The nodes of the steps that were read, at least of the first one."""
        with self._lock:
            for step in self.steps(rank):
                if rank in self._nodes and len(self._nodes[rank].table):
                    break
                self._table(rank, step, progress)
            return self._nodes[rank].table if rank in self._nodes else self._nodes.setdefault(rank, _RankNodes()).table

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        """The tensors of a step."""
        with self._lock:
            if step not in self.steps(rank):
                return self._empty
            if (rank, step) not in self._tables:
                self.nodes(rank, progress)  # the nodes are those of the first step, and what others add
            return self._table(rank, step, progress)

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

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        """The numbers of the log."""
        with self._lock:
            table = self.tensors(rank, step)
            return table.rows_as_text(self.nodes(rank)) if isinstance(table, StepTable) and len(table) else None

    def notes(self, rank: int) -> RunNotes:  # noqa: ARG002 - see base.Source
        """There are none."""
        return NO_NOTES

    def written_by(self, spec: ReadSpec) -> None:
        """Names do not say when."""

    def refresh(self) -> Changes:
        """Lists the logs anew, and looks at those that were read."""
        with self._lock:
            before = {rank: set(self.steps(rank)) for rank in self.ranks()}
            with contextlib.suppress(NotADumpError):  # a second log of a step appeared: what was opened stays
                self._layout = read_layout(self._kind, os.fspath(self._root), self._only)
            old = {at: log for at, log in self._logs.items() if self._state(*at) != log.state}
            for at in old:
                del self._logs[at]
            grown = []
            for rank, step in list(self._tables):
                log = old.get((rank, -1 if self._kind.whole else step))
                if log is None:
                    continue
                if not self._kind.whole or self._log(rank, -1).steps.get(step) != log.steps.get(step):
                    del self._tables[rank, step]
                    grown.append((rank, step))
            after = {rank: set(self.steps(rank)) for rank in self.ranks()}
            new_nodes, self._grew = self._grew, False
            return Changes(
                new_steps=tuple(
                    (rank, step) for rank, steps in after.items() for step in sorted(steps - before.get(rank, steps))
                ),
                grown_steps=tuple((rank, step) for rank, step in grown if step in after.get(rank, ())),
                new_nodes=new_nodes,
                new_ranks=tuple(rank for rank in after if rank not in before),
            )

    def watch_paths(self) -> Sequence[Path]:
        """The directories of the logs."""
        return [Path(path) for path in self._layout.directories[:1] + self._layout.directories[1:][-_WATCHED:]]

    def close(self) -> None:
        """Nothing is open between calls."""

    # -- reading -------------------------------------------------------------------------------------

    def _paths(self, rank: int, step: int) -> list[str]:
        layout = self._layout
        if self._kind.whole:
            others = [layout.messages[rank]] if rank in layout.messages else []
            return [*layout.logs.get(rank, ()), *others, *layout.tensors.get(rank, {}).values()]
        path = layout.units.get(rank, {}).get(step)
        return [] if path is None else [path]

    def _state(self, rank: int, step: int) -> _State:
        paths = self._paths(rank, step)
        sizes, times = file_states(map(os.fsencode, paths))
        return tuple(zip(paths, sizes.tolist(), times.tolist(), strict=True))

    def _log(self, rank: int, step: int) -> _Read:
        """The log of a step, or the logs of a rank (step -1)."""
        known = self._logs.get((rank, step))
        if known is not None:
            return known
        layout, read = self._layout, _Read(self._state(rank, step))
        path = layout.logs[rank][0] if self._kind.whole else layout.units[rank][step]
        at = None if self._kind.whole else step
        try:
            if self._kind.ranks is not None:
                read.steps = self._read_log(layout.logs[rank], rank)
            elif self._kind.whole:
                read.steps = self._read_log(
                    layout.logs[rank], layout.messages.get(rank, ""), layout.tensors.get(rank, {})
                )
            else:
                read.steps = {step: self._read_log(path)}
        except OSError as error:
            plain = type(error) is not OSError and error.strerror
            why = str(plain) if plain else why_not(path, error, wanted="a file")
            read.parts.append(UnreadablePart(self._where(path), why, rank, at))
        except ValueError as error:
            read.parts.append(UnreadablePart(self._where(path), str(error), rank, at))
        if self._kind.whole and not read.steps and not read.parts:
            read.parts.append(UnreadablePart(self._where(path), "no statistic in it", rank))
        for number, found in read.steps.items():
            problems = found.problems or ([] if found.operations else ["no tensor in it"])
            read.parts += [UnreadablePart(self._where(path), why, rank, number) for why in problems]
        self._logs[rank, step] = read
        return read

    def _where(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _table(self, rank: int, step: int, progress: ProgressFn) -> StepTable:
        known = self._tables.get((rank, step))
        if known is not None:
            return known
        progress(Progress(0, 0, f"reading the log of step {step}"))
        log = self._log(rank, -1 if self._kind.whole else step)
        found = log.steps.get(step, LoggedStep())
        nodes = self._nodes.setdefault(rank, _RankNodes())
        size = len(nodes.table)
        rows = nodes.add(found)
        self._grew = self._grew or 0 < size < len(nodes.table)
        held = [(row, entry) for row, each in zip(rows, found.operations, strict=True) for entry in each.tensors]
        order = nodes.table.order
        held = [each for each in held if 0 <= each[1].slot < MAX_SLOTS]
        held.sort(key=lambda each: (int(order[each[0]]), int(each[1].side), each[1].slot, each[1].round))
        entries = [entry for _, entry in held]
        state = (*log.state, (str(step), rank, 0))
        table = self._tables[rank, step] = StepTable(_places([row for row, _ in held], entries), entries, state)
        return table


def _places(rows: Sequence[int], entries: Sequence[Entry]) -> TensorPlaces:
    return TensorPlaces(
        np.array(rows, np.int32),
        np.array([int(each.side) for each in entries], np.uint8),
        np.array([each.slot for each in entries], np.int16),
        np.array([0 if each.file is not None else int(TensorFlag.STAT_ONLY) for each in entries], np.uint8),
        np.array([each.round for each in entries], np.uint16),
    )
