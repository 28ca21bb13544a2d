"""Writes what a flight recorder kept as a dump directory."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.graph.messages import parse_graph
from tui_debugger.live.client.probe import Identity
from tui_debugger.live.dump_writer import PARAMETER, DumpWriter, TensorName
from tui_debugger.model import TensorMeta, TensorStats

if TYPE_CHECKING:
    from tui_debugger.live.client.flight import KeptStep, Row

LINE: Final = 250
"""Bytes of a line of statistic.csv, about."""
_PART: Final = ".part"
Line = tuple[TensorName, TensorMeta | None, TensorStats]
REASON: Final = "why.txt"
"""A file at the top of the dump: what made it be written."""


def write_flight(
    directory: Path,
    identity: Identity,
    graphs: Sequence[bytes],
    steps: Sequence[KeptStep],
    *,
    most: int,
    weights_read: Callable[[], Iterable[tuple[str, int, str]]],
    room: int,
    reason: str,
) -> tuple[Path, int]:
    """Writes one dump. It has its name only when all of it is there.

    Args:
        directory: where the dump's own directory is made; other processes may write there, too.
        identity: who trains.
        graphs: serialized ``GraphProto`` messages.
        steps: ascending.
        most: steps that are written, the newest ones. Of the one before them there are the weights, as inputs of the
            nodes that read them: without them nobody could tell whether these nodes were fed with something bad.
        weights_read: (node, input, weight) of the graph.
        room: bytes that may be written, newest steps first: statistics, then values where there is room left.
        reason: for people.

    Returns:
        The dump's directory, and how many bytes it has.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    kept, room = _fitting(steps[-most:], room)
    before = steps[-len(kept) - 1] if len(steps) > len(kept) else None
    part = _begin(directory, f"flight-rank{identity.rank}-step{kept[-1].step}-{os.getpid()}")
    try:
        writer = DumpWriter(part, rank=identity.rank, net="flight", program=identity.program, device=identity.backend)
        writer.metadata()
        writer.graphs(graphs)
        writer.history(each.step for each in kept)
        types = _types(graphs)
        for each in reversed(kept):
            read = _read(each, before, weights_read(), types) if each is kept[0] and before is not None else ()
            room -= _write_step(writer, each, types, room, read)
        (part / REASON).write_text(reason + "\n", encoding="utf-8", errors="backslashreplace")
        nbytes = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        return _finish(part), nbytes
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _fitting(kept: Sequence[KeptStep], room: int) -> tuple[Sequence[KeptStep], int]:
    """The newest steps whose statistics there is room for, one at least; and the room that is left for values."""
    start = len(kept)
    while start and (start == len(kept) or room >= LINE * len(kept[start - 1].rows)):
        start -= 1
        room -= LINE * len(kept[start].rows)
    return kept[start:], room


def _read(
    kept: KeptStep, before: KeptStep, weights_read: Iterable[tuple[str, int, str]], types: dict[str, str]
) -> list[Line]:
    """The weights of the step before, as inputs of the nodes that ran."""
    ran = {row.name for row in kept.rows}
    weights = {row.name: row for row in before.rows}
    return [
        (TensorName(types.get(node, "Tensor"), node, number, side="input"), row.meta, row.stats)
        for node, number, name in weights_read
        if node in ran and (row := weights.get(name)) is not None and row.stats is not None
    ]


def _begin(directory: Path, name: str) -> Path:
    """A directory of one's own for a dump that is being written."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        each = name if number == 1 else f"{name}-{number}"
        if not (directory / each).exists():
            with contextlib.suppress(FileExistsError):  # another process writes there now
                part = directory / f"{each}{_PART}"
                part.mkdir()
                return part
    raise AssertionError


def _finish(part: Path) -> Path:
    """Gives a dump that is all there its name, or one like it where another process took that meanwhile."""
    name = part.with_name(part.name.removesuffix(_PART))
    for number in count(1):
        path = name if number == 1 else name.with_name(f"{name.name}.{number}")
        try:
            part.rename(path)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
        else:
            return path
    raise AssertionError


def _write_step(writer: DumpWriter, kept: KeptStep, types: dict[str, str], room: int, read: Sequence[Line] = ()) -> int:
    """Writes one step; returns the bytes of its values. ``read``: inputs whose producers are not there."""
    names = [TensorName(types.get(row.name, "Tensor"), row.name, row.slot) for row in kept.rows]
    used = 0
    for place in kept.by_importance():
        name, row = names[place], kept.rows[place]
        if row.values is not None and used + row.values.nbytes <= room and _store(writer, kept.step, name, row):
            used += row.values.nbytes
    pairs = zip(names, kept.rows, strict=True)
    lines = [(name, row.meta, row.stats) for name, row in pairs if row.stats is not None]
    writer.statistics(kept.step, [*read, *lines])
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
