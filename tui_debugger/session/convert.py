"""Writes any dump as a directory of .npy files, with an index per step and the nodes per rank, that opens again."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.types import Pair
from tui_debugger.errors import TdbgError, UnreadableTensorError
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Progress, ProgressFn, ReadSpec, Side, TensorKey, no_progress
from tui_debugger.notes import NOTES_FILE, notes_line
from tui_debugger.said import SAID_FILE, Said, doubt_line
from tui_debugger.session.export_files import fresh_directory, safe_path, storable, write_npy
from tui_debugger.session.session import Session
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.sources.registry import Shows, shown_by
from tui_debugger.sources.tensor_files.converted import COLUMNS, NAME, IndexedTensor
from tui_debugger.sources.tensor_files.converted_nodes import NAME as NODES
from tui_debugger.sources.tensor_files.converted_nodes import ConvertedNodes, Run
from tui_debugger.stats.npy import open_lazily, read_meta
from tui_debugger.text.numbers import size

_EVERY = 64
"""Tensors between two snapshots of progress."""
_NPY_HEADER = 128
_ROW = 512
"""Bytes of a row of the index, about."""


@dataclass
class Converted:
    """The result of a conversion.

    Attributes:
        tensors, statistics: tensors with a file, and tensors with statistics only.
        widened: tensors written as float32 because .npy has no name for their type.
        failures: (tensor, why it is missing).
    """

    path: Path
    tensors: int = 0
    statistics: int = 0
    nbytes: int = 0
    widened: int = 0
    failures: list[tuple[TensorKey, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ConvertedTensor:
    """A tensor to write; ``spec`` is None when it has statistics only, and ``row`` names no file yet."""

    key: TensorKey
    spec: ReadSpec | None
    row: IndexedTensor


def convert(session: Session, pairs: Sequence[Pair], target: Path, progress: ProgressFn = no_progress) -> Converted:
    """Writes the tensors in scope of some (rank, step) pairs, constants included, into a new or empty directory.

    Nothing is left behind when ``progress`` raises. TdbgError is also raised when the disk is too small or no tensor is
    chosen.
    """
    dump = Path(session.info.path)
    written = Converted(target)
    with fresh_directory(target, dump) as directory:
        need, count = _needed(session, pairs, progress)
        if not count:
            raise TdbgError("no tensor is chosen", where=str(dump), hint="`tdbg ls` lists the nodes")
        free = shutil.disk_usage(directory).free
        if need > free:
            raise TdbgError(
                f"the disk has no room: {size(need)} are needed, {size(free)} are free",
                where=str(target),
                hint="choose fewer steps, ranks or nodes, or another disk",
            )
        done = 0
        for rank, step in pairs:
            folder = directory / f"rank_{rank}" / f"step_{step}"
            folder.mkdir(parents=True)
            with (folder / NAME).open("x", encoding="utf-8", errors="surrogateescape", newline="") as file:
                index = csv.writer(file)
                index.writerow(COLUMNS)
                for tensor in _tensors(session, dump, rank, step, progress):
                    here = Progress(done, count, f"rank {rank} step {step}")
                    if not done % _EVERY:
                        progress(here)
                    done += 1
                    row = _write(tensor, folder, written, _always(progress, here))
                    try:
                        index.writerow(row.cells())
                    except csv.Error as error:  # Python 3.10 writes no NUL
                        raise TdbgError(
                            "a name with a NUL character cannot be written to an index with this Python",
                            where=row.node,
                            hint="use Python 3.11 or newer, or choose other nodes",
                        ) from error
        for rank in dict.fromkeys(rank for rank, _ in pairs):
            steps = [step for each, step in pairs if each == rank]
            _write_rank(session, rank, steps, directory / f"rank_{rank}", progress)
    return written


def _write_rank(session: Session, rank: int, steps: Sequence[int], folder: Path, progress: ProgressFn) -> None:
    """Writes the nodes of a rank with their data flow, the order of its runs, and the notes of the program."""
    source, flow = session.source, session.flow(rank, progress)
    used: set[int] = set()
    rounds: dict[int, set[int]] = {}
    for step in steps:
        table = flow.table(step)
        used.update(table.node.tolist())
        rounds[step] = {0, *table.round.tolist()}
    nodes = session.nodes(rank)
    in_graph = nodes.flags & int(NodeFlag.FILE_ONLY) == 0
    kept = in_graph | (np.isin(np.arange(len(nodes)), list(used)) & session.in_scope(rank))
    roots = sorted({info.root_id for info in nodes.graphs})
    before = {
        (root, step, number): _run_before(source, rank, (root, step, number), steps)
        for root in roots
        for step in steps
        for number in sorted(rounds[step])
    }
    runs = [replace(run, has_data=run.has_data and run.step in rounds) for run in source.history(rank)]
    described = shown_by(source) or Shows()
    shown = ConvertedNodes(nodes, runs, before, described, session.info.notices)
    with (folder / NODES).open("x", encoding="ascii") as file:
        file.writelines(shown.lines(kept))
    notes = [(step, found) for step in steps if (found := source.notes(rank).at(step))]
    if notes:
        with (folder / NOTES_FILE).open("x", encoding="utf-8") as file:
            file.writelines(notes_line(step, found) for step, found in notes)
    if lines := _said_lines(session, rank, steps, progress):
        with (folder / SAID_FILE).open("x", encoding="utf-8") as file:
            file.writelines(lines)


def _said_lines(session: Session, rank: int, steps: Sequence[int], progress: ProgressFn) -> list[str]:
    """What the training said of its steps beside values, and what it could not record."""
    nodes, flow = session.nodes(rank), session.flow(rank, progress)
    lines: list[str] = []
    for step, table in ((step, flow.table(step)) for step in steps):
        said = Said(table.inputs_unknown, table.operands, table.by_design)
        lines += said.lines(step, lambda row: (nodes.names[row], nodes.graph_of(row).name))
    parts = (part for part in session.source.unreadable() if part.unrecorded and part.rank in {None, rank})
    return [*lines, *map(doubt_line, parts)]


def _run_before(source: Source, rank: int, run: Run, steps: Sequence[int]) -> tuple[int, int] | None:
    root, step, number = run
    seen = set[tuple[int, int]]()
    before = source.previous_run(rank, root, step, number)
    while before is not None and before[0] not in steps and before not in seen:
        seen.add(before)
        before = source.previous_run(rank, root, *before)
    return before if before is None or before[0] in steps else None


def _always(progress: ProgressFn, snapshot: Progress) -> ProgressFn:
    return lambda _: progress(snapshot)


def _write(tensor: _ConvertedTensor, folder: Path, written: Converted, progress: ProgressFn) -> IndexedTensor:
    row = tensor.row
    if tensor.spec is None:
        written.statistics += 1
        return row
    try:
        meta, values = read_meta(tensor.spec), open_lazily(tensor.spec)
    except (UnreadableTensorError, MemoryError) as error:
        why = error.what if isinstance(error, UnreadableTensorError) else "does not fit into memory"
        written.failures.append((tensor.key, why))
        return replace(row, error=why)
    name = _file_name(row)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("xb") as out:
        write_npy(out, values, progress)
    written.tensors += 1
    written.nbytes += values.size * _stored_size(values)
    written.widened += values.dtype.isbuiltin == 2
    return replace(row, file=name, dtype=meta.dtype, shape=meta.shape)


def _file_name(row: IndexedTensor) -> str:
    """``Default/network/MatMul-op1.output.0.npy``, below the name of its graph when the index has several graphs."""
    graph = f"{safe_path(row.graph.replace('/', '_'))}/" if row.graph else ""
    number = f".round{row.round}" if row.round else ""
    return f"{graph}{safe_path(row.node)}.{row.side.name.lower()}.{row.slot}{number}.npy"


def _needed(session: Session, pairs: Sequence[Pair], progress: ProgressFn) -> tuple[int, int]:
    """Returns the bytes that the files will take, and the number of tensors."""
    dump = Path(session.info.path)
    need = count = 0
    need += sum(_ROW * len(session.nodes(rank)) for rank in {rank for rank, _ in pairs})
    for rank, step in pairs:
        for tensor in _tensors(session, dump, rank, step, progress):
            if not count % _EVERY:
                progress(Progress(count, 0, f"rank {rank} step {step}: looking at sizes"))
            count += 1
            need += _ROW
            if tensor.spec is None:
                continue
            try:
                values = open_lazily(tensor.spec)
                need += _NPY_HEADER + values.size * _stored_size(values)
            except (UnreadableTensorError, MemoryError):
                continue
    return need, count


def _stored_size(values: Array) -> int:
    return storable(values[(slice(0, 0),) * values.ndim] if values.ndim else values).dtype.itemsize


def _tensors(session: Session, dump: Path, rank: int, step: int, progress: ProgressFn) -> Iterator[_ConvertedTensor]:
    """The tensors of a step that are in scope, in the order in which they were made."""
    flow = session.flow(rank, progress)
    table, nodes = flow.table(step), session.nodes(rank)
    wanted = session.in_scope(rank)[table.node]
    marks = ~int(TensorFlag.REMOTE | TensorFlag.UNKNOWN | TensorFlag.OVERFLOWED)
    for index in np.flatnonzero(wanted).tolist():
        row, side, slot = int(table.node[index]), Side(int(table.side[index])), int(table.slot[index])
        number = int(table.round[index])
        spec = table.spec(index) if flow.has_values(table, index) else None
        meta = table.recorded_meta(index) if spec is None else None
        described = IndexedTensor(
            file="",
            graph=nodes.graph_of(row).name,
            node=nodes.names[row],
            path=nodes.paths[row],
            type=nodes.op_type(row),
            category=nodes.category_of(row),
            side=side,
            slot=slot,
            round=number,
            marks=TensorFlag(int(table.flags[index]) & marks),
            timestamp=int(table.timestamp[index]),
            dtype=meta[0] if meta else "",
            shape=meta[1] if meta else None,
            original=_original(spec, dump) if spec is not None else "",
            stack=_line(session, rank, row),
            stats=table.recorded(index) if spec is None else None,
        )
        yield _ConvertedTensor(nodes.key(rank, step, row, side, slot, round=number), spec, described)


def _original(spec: ReadSpec, dump: Path) -> str:
    where = os.path.relpath(spec.path, dump)
    return f"{where}:{spec.member}" if spec.member else where


def _line(session: Session, rank: int, row: int) -> str:
    frames = session.nodes(rank).stack(row)
    frame = next((each for each in frames if not each.framework and not each.context), None)
    return "" if frame is None else f"{frame.path}:{frame.line}"
