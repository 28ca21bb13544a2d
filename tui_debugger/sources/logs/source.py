"""Logs with statistics of tensors as a Source: steps are read when they are asked for.

Operations of all steps of a rank are rows of one node table. An edge on which steps disagree becomes unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from tui_debugger.errors import NotADumpError
from tui_debugger.graph.build import MAX_SLOTS
from tui_debugger.graph.table import NodeFlag, NodeTable
from tui_debugger.model import ProgressFn, ReadSpec, Side, TensorStats, UnreadablePart, sorted_parts
from tui_debugger.opener import why_not
from tui_debugger.sources.base import RecordedMeta, StepPlace, TensorFlag, TensorPlaces
from tui_debugger.sources.graphless import (
    FileState,
    GraphlessSource,
    InferredNodes,
    ListedStep,
    StatisticsTable,
    state_of_files,
)
from tui_debugger.sources.logs.entries import NO_TRACE, LoggedStep, LogOperation, LogTensor
from tui_debugger.sources.logs.layout import LogKind, LogLayout, read_layout
from tui_debugger.sources.registry import Has, Shows

GRAPH: Final = "log"


class LogStepTable(StatisticsTable):
    """The tensors of one step of a log."""

    def __init__(self, places: TensorPlaces, entries: Sequence[LogTensor], state: FileState) -> None:
        super().__init__(places, np.zeros(len(entries), np.int64))
        self._entries, self._state = entries, state

    def spec(self, index: int) -> ReadSpec:
        path, member = self._entries[index].file or ("", "")
        return ReadSpec(path, "pt", member=member)

    @property
    def digest(self) -> bytes:
        """Identifies the logs as they were when they were read, and the place of each row."""
        hasher = blake2b(repr(self._state).encode("utf-8", "surrogateescape"), digest_size=16)
        for column in (self.node, self.side, self.slot, self.round):
            hasher.update(np.ascontiguousarray(column).data)
        return hasher.digest() if len(self) else b""

    def recorded(self, index: int) -> TensorStats | None:
        return self._entries[index].stats()

    hashes_are_sums = True

    def hashed(self, index: int) -> int:
        """The norm of an input without a logged shape, which the recorder calls a hash."""
        entry = self._entries[index]
        norm = entry.numbers.l1 if entry.numbers is not None and entry.shape is None else None
        return 0 if norm is None else hash(f"l1 {norm!r}") or 1

    def recorded_meta(self, index: int) -> RecordedMeta | None:
        entry = self._entries[index]
        return None if entry.shape is None else (entry.dtype, entry.shape)

    def rows_as_text(self, nodes: NodeTable) -> Iterator[dict[str, str]]:
        for index, entry in enumerate(self._entries):
            if entry.numbers is None:
                continue
            numbers = {
                "Max Value": entry.numbers.maximum,
                "Min Value": entry.numbers.minimum,
                "Avg Value": entry.numbers.mean,
                "L1Norm Value": entry.numbers.l1,
                "L2Norm Value": entry.numbers.l2,
            }
            yield {
                **self.named(index, nodes),
                **({"Round": str(entry.round)} if entry.round else {}),
                "Data Type": entry.dtype,
                "Shape": "" if entry.shape is None else str(entry.shape),
                **{title: "" if value is None else repr(value) for title, value in numbers.items()},
                **entry.others,
            }


class _LogNodes(InferredNodes):
    def __init__(self) -> None:
        super().__init__(GRAPH)
        self._inputs: list[list[tuple[int, int]]] = []
        self._outputs: list[int] = []
        self._flags: list[NodeFlag] = []

    def add(self, step: LoggedStep) -> list[int]:
        """Adds the nodes that are new; returns the row of each operation of a step."""
        before = len(self.names)
        rows = [self._row(each) for each in step.operations]
        self.place(rows, before)
        changed = len(self.names) > before
        for row, operation in zip(rows, step.operations, strict=True):
            inputs = [self._input(each, rows) for each in operation.inputs[:MAX_SLOTS]]
            outputs = max((each.slot + 1 for each in operation.tensors if each.side is Side.OUTPUT), default=1)
            if row >= before:
                self._inputs[row], self._outputs[row] = inputs, outputs
                continue
            known = self._inputs[row]
            agreed = _agreed(known, inputs)
            changed = changed or agreed != known or outputs > self._outputs[row]
            self._inputs[row], self._outputs[row] = agreed, max(outputs, self._outputs[row])
        if changed:
            edges = [edge for inputs in self._inputs for edge in inputs]
            self.build(
                np.array(self._outputs, np.int64),
                np.array([int(flag) for flag in self._flags], np.uint8),
                np.array([len(each) for each in self._inputs], np.int64),
                np.array([max(row, -1) for row, _ in edges], np.int32),
                np.array([slot for _, slot in edges], np.int16),
            )
        return rows

    def _row(self, operation: LogOperation) -> int:
        row = self.rows.get(operation.name, -1)
        if row < 0:
            row = self.append(operation.name, operation.path, operation.type, self.stack(operation.stack))
            flows = NodeFlag.NONE if operation.flows else NodeFlag.FILE_ONLY
            partial = NodeFlag.PARTIAL if operation.partial else NodeFlag.NONE
            self._add_columns((NodeFlag.INFERRED if operation.inferred else flows) | partial)
        return row

    def _add_columns(self, flag: NodeFlag) -> None:
        self._inputs.append([])
        self._outputs.append(1)
        self._flags.append(flag)

    def _input(self, made: tuple[int, int] | str, rows: Sequence[int]) -> tuple[int, int]:
        if not isinstance(made, str):
            return (rows[made[0]], made[1]) if made[0] >= 0 else made
        row = self.constant(made, f"scalar {made}")
        if row == len(self._inputs):
            self._add_columns(NodeFlag.NONE)
        return row, 0


def _agreed(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The inputs of an operation on which two steps agree; unknown where they differ."""
    for said, silent in ((one, other), (other, one)):
        if silent and all(made == NO_TRACE for made in silent):
            return [*said, *silent[len(said) :]]
    found = [
        second if first == NO_TRACE else first if second in {first, NO_TRACE} else (-1, 0)
        for first, second in zip(one, other, strict=False)
    ]
    return found + [(-1, 0)] * (max(len(one), len(other)) - len(found))


@dataclass(slots=True)
class _Read:
    state: FileState
    steps: Mapping[int, LoggedStep] = field(default_factory=dict)
    parts: list[UnreadablePart] = field(default_factory=list)


class LogSource(GraphlessSource[str, _LogNodes]):
    """A ``base.Source`` of one kind of log. A log that holds all steps is read to list these."""

    graph = GRAPH
    _layout: LogLayout

    def __init__(self, kind: LogKind, root: Path, given: Path, notices: Sequence[str] = (), *, only: str = "") -> None:
        """``only`` is the one log that was asked for; empty: all."""
        self._kind, self._only = kind, only
        reader = import_module(f"tui_debugger.sources.logs.{kind.module}")
        self._read_log: Callable[..., Any] = reader.read
        self._notices_of_reader: tuple[str, ...] = reader.NOTICES
        self._logs: dict[tuple[int, int], _Read] = {}
        """By rank and step; step -1 where a log holds all steps."""
        self._tabled: dict[tuple[int, int], LoggedStep] = {}
        """The steps that the tables were made of."""
        super().__init__(root, given, notices)

    @property
    def shows(self) -> Shows:
        """The abilities of this log: values only where files of tensors lie beside it."""
        shows = self._kind.shows
        without = shows.values is Has.SOME and not self._layout.tensors
        return replace(shows, values=Has.NO) if without else shows

    def ranks(self) -> Sequence[int]:
        return list(self._layout.logs or self._layout.units)

    def steps(self, rank: int) -> Sequence[int]:
        """Steps, ascending; a log of all steps is read to know them."""
        if not self._kind.whole:
            return super().steps(rank)
        with self._lock:
            return sorted(self._log(rank, -1).steps) if rank in self._layout.logs else []

    def unreadable(self) -> Sequence[UnreadablePart]:
        with self._lock:
            return sorted_parts((*self._layout.parts, *(part for log in self._logs.values() for part in log.parts)))

    def _name(self) -> str:
        return self._kind.name

    def _framework(self) -> str:
        return "" if self._kind.ranks is not None else "PyTorch"  # msprobe records MindSpore, too

    def _layout_notices(self) -> Iterable[str]:
        return self._notices_of_reader

    def _ranks_with_edges(self) -> Sequence[int]:
        return self.ranks() if self._kind.edges else ()

    def _paths(self, unit: str) -> Iterable[str]:
        return (unit,)

    def places(self) -> Iterator[StepPlace]:
        for rank, paths in self._layout.logs.items():
            yield from ((rank, None, path) for path in paths)
        yield from super().places()
        for rank, steps in self._layout.tensors.items():
            yield from ((rank, step, path) for step, path in steps.items())

    _new_nodes = _LogNodes

    def _find(self) -> LogLayout:
        try:
            layout = read_layout(self._kind, os.fspath(self._root), self._only)
        except NotADumpError:
            if not hasattr(self, "_layout"):
                raise
            layout = self._layout  # a second log of a step appeared: the old layout stays
        for at, log in list(self._logs.items()):
            if _state(self._kind, layout, *at) != log.state:
                del self._logs[at]
        return layout

    def _changed(self, at: tuple[int, int], listed: ListedStep, before: str | None) -> bool:  # noqa: ARG002 - what was logged of it is compared
        return self._logged(*at) != self._tabled[at]

    # -- reading -------------------------------------------------------------------------------------

    def _log(self, rank: int, step: int) -> _Read:
        """Reads the log of a step, or the logs of a rank (step -1), once."""
        known = self._logs.get((rank, step))
        if known is not None:
            return known
        layout, read = self._layout, _Read(_state(self._kind, self._layout, rank, step))
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
            why = why_not(path, error, wanted="a file")
            read.parts.append(self._part(path, why, rank, at))
        except ValueError as error:
            read.parts.append(self._part(path, str(error), rank, at))
        if self._kind.whole and not read.steps and not read.parts:
            read.parts.append(self._part(path, "no statistic in it", rank))
        for number, found in read.steps.items():
            problems = found.problems or ([] if found.operations else ["no tensor in it"])
            read.parts += [self._part(path, why, rank, number) for why in problems]
        self._logs[rank, step] = read
        return read

    def _logged(self, rank: int, step: int) -> LoggedStep:
        if step not in self.steps(rank):
            return LoggedStep()
        return self._log(rank, -1 if self._kind.whole else step).steps.get(step, LoggedStep())

    def _read(self, rank: int, step: int, nodes: _LogNodes, progress: ProgressFn) -> ListedStep:  # noqa: ARG002 - one log
        found = self._tabled[rank, step] = self._logged(rank, step)
        log = self._log(rank, -1 if self._kind.whole else step)
        rows = nodes.add(found)
        held = [(row, entry) for row, each in zip(rows, found.operations, strict=True) for entry in each.tensors]
        order = nodes.table.order
        held = [each for each in held if 0 <= each[1].slot < MAX_SLOTS]
        held.sort(key=lambda each: (int(order[each[0]]), int(each[1].side), each[1].slot, each[1].round))
        entries = [entry for _, entry in held]
        state = (*log.state, (str(step), rank, 0))
        return ListedStep(LogStepTable(_places([row for row, _ in held], entries), entries, state))


def _state(kind: LogKind, layout: LogLayout, rank: int, step: int) -> FileState:
    """State of the files of a step's log (step -1: of the logs of a rank)."""
    if kind.whole:
        others = [layout.messages[rank]] if rank in layout.messages else []
        return state_of_files((*layout.logs.get(rank, ()), *others, *layout.tensors.get(rank, {}).values()))
    path = layout.units.get(rank, {}).get(step)
    return state_of_files(() if path is None else (path,))


def _places(rows: Sequence[int], entries: Sequence[LogTensor]) -> TensorPlaces:
    return TensorPlaces(
        rows,
        [each.side for each in entries],
        [each.slot for each in entries],
        [0 if each.file is not None else TensorFlag.STAT_ONLY for each in entries],
        [each.round for each in entries],
    )
