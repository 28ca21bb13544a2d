"""Writes what a flight recorder kept as a dump directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.graph.reader import parse_graph
from tui_debugger.live.client.probe import Identity
from tui_debugger.live.dump_writer import PARAMETER, DumpWriter, TensorName

if TYPE_CHECKING:
    from tui_debugger.live.client.flight import KeptStep, Row

LINE: Final = 250
"""Bytes of a line of statistic.csv, about."""
_PART: Final = ".part"
REASON: Final = "why.txt"
"""A file at the top of the dump: what made it be written."""


def write_flight(
    directory: Path, identity: Identity, graphs: Sequence[bytes], steps: Iterable[KeptStep], *, room: int, reason: str
) -> tuple[Path, int]:
    """Writes one dump. It has its name only when all of it is there.

    Args:
        directory: where the dump's own directory is made.
        identity: who trains.
        graphs: serialized ``GraphProto`` messages.
        steps: ascending.
        room: bytes that may be written, newest steps first: statistics, then values where there is room left.
        reason: for people.

    Returns:
        The dump's directory, and how many bytes it has.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    kept, room = _fitting(list(steps), room)
    name = _free_name(directory, f"flight-rank{identity.rank}-step{kept[-1].step}-{os.getpid()}")
    part = directory / f"{name}{_PART}"
    part.mkdir(parents=True)
    try:
        writer = DumpWriter(part, rank=identity.rank, net="flight", program=identity.program, device=identity.backend)
        writer.metadata()
        writer.graphs(graphs)
        writer.history(each.step for each in kept)
        types = _types(graphs)
        for each in reversed(kept):
            room -= _write_step(writer, each, types, room)
        (part / REASON).write_text(reason + "\n", encoding="utf-8", errors="backslashreplace")
        nbytes = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        part.rename(directory / name)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return directory / name, nbytes


def _fitting(kept: Sequence[KeptStep], room: int) -> tuple[Sequence[KeptStep], int]:
    """The newest steps whose statistics there is room for, one at least; and the room that is left for values."""
    start = len(kept)
    while start and (start == len(kept) or room >= LINE * len(kept[start - 1].rows)):
        start -= 1
        room -= LINE * len(kept[start].rows)
    return kept[start:], room


def _free_name(directory: Path, name: str) -> str:
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(
        each for each in names if not (directory / each).exists() and not (directory / f"{each}{_PART}").exists()
    )


def _write_step(writer: DumpWriter, kept: KeptStep, types: dict[str, str], room: int) -> int:
    """Writes one step; returns the bytes of its values."""
    names = [TensorName(types.get(row.name, "Tensor"), row.name, row.slot) for row in kept.rows]
    used = 0
    for name, row in zip(names, kept.rows, strict=True):
        if row.values is not None and used + row.values.nbytes <= room and _store(writer, kept.step, name, row):
            used += row.values.nbytes
    pairs = zip(names, kept.rows, strict=True)
    writer.statistics(kept.step, [(name, row.meta, row.stats) for name, row in pairs if row.stats is not None])
    return used


def _store(writer: DumpWriter, step: int, name: TensorName, row: Row) -> bool:
    try:
        if row.values is not None:
            writer.array(step, name, row.values)
    except ValueError:  # an element type that files cannot hold: it has statistics
        return False
    return True


def _types(graphs: Sequence[bytes]) -> dict[str, str]:
    """Operator type by full name; parameters have one of their own."""
    types: dict[str, str] = {}
    for graph in map(parse_graph, graphs):
        types.update((node.full_name, node.op_type) for node in graph.nodes)
        types.update((parameter.name, PARAMETER) for parameter in graph.parameters)
    return types
