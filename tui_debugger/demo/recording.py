"""The recorded session of a real MindSpore 2.0.0 client, and what the demo dump adds to it.

The session was recorded at the client's socket: who it is and its graph are in it as bytes. The dump that ships with
the package is of the same training, bit for bit (the weights that the session holds are those of the dump), so that
every tensor of it can be looked at, not only the few that were asked for when it was recorded.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tui_debugger.arrays import Array
from tui_debugger.graph.build import build_table
from tui_debugger.graph.edges import real_consumers
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable
from tui_debugger.live import wire
from tui_debugger.live.wire import START
from tui_debugger.model import Side
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.stats.npy import open_array

SESSION: Final = Path(__file__).with_name("mindspore-2.0-nan-live.jsonl.xz")
"""One line a message, as it was on the wire: number of the call, its name, which part of it, base64."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the client sent."""

    call: int
    rpc: str
    message: Any


def recorded(path: Path = SESSION) -> Iterator[Sent]:
    """What the client sent, in its order."""
    kinds = {**wire.UNARY, **wire.STREAMS}
    with lzma.open(path, "rt", encoding="ascii") as file:
        for line in file:
            row = json.loads(line)
            if row["kind"] in {"request", "stream"}:
                message = wire.message(kinds[row["rpc"]])()
                message.ParseFromString(base64.b64decode(row["raw"]))
                yield Sent(row["call"], row["rpc"], message)


class Recording:
    """The training as it was: graph, and the values of every step."""

    def __init__(self, dump: Source) -> None:
        """``dump``: the demo dump, open. Whoever opened it closes it."""
        self._dump = dump
        sent = list(recorded())
        self.metadata = next(each.message for each in sent if each.rpc == "SendMetadata")
        self.chunks = tuple(each.message for each in sent if each.rpc == "SendGraph")

    @cached_property
    def table(self) -> NodeTable:
        """The nodes by the names that the client uses."""
        return build_table([parse_graph(b"".join(chunk.buffer for chunk in self.chunks))])

    @property
    def steps(self) -> int:
        """How many steps there are; they are numbered from 0."""
        return len(self._dump.steps(0))

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters: their previous values are there, too."""
        return frozenset(self.table.names[row] for row in range(len(self.table)) if _is(self.table, row, PARAMETER))

    def value(self, node: str, slot: int, step: int) -> Array | None:
        """An output of a node after a step (``START``: a parameter before the first); None where nobody knows."""
        row = self._rows.get(node)
        if row is None or step >= self.steps:
            return None
        if step <= START:
            return self._initial(row) if step == START and node in self.parameters else None
        table = self._dump.tensors(0, step)
        return self._read(step, table.find(row, Side.OUTPUT, slot))

    @cached_property
    def run_order(self) -> Sequence[int]:
        """Rows of the graph as MindSpore's client goes through them: parameters, then operators as they ran."""
        order = self._dump.nodes(0).order
        ran = {name: int(order[row]) for name, row in self._rows.items() if name not in self.parameters}
        return sorted(range(len(self.table)), key=lambda row: ran.get(self.table.names[row], -1))

    def _initial(self, row: int) -> Array | None:
        """What the first operator that reads a parameter read in the first step."""
        table = self._dump.tensors(0, 0)
        readers = real_consumers(self._dump.nodes(0), row)
        found = [index for reader, at in readers if (index := table.find(reader, Side.INPUT, at)) >= 0]
        first = min(found, key=lambda index: int(table.order[index]), default=-1)
        return self._read(0, first)

    def _read(self, step: int, index: int) -> Array | None:
        table = self._dump.tensors(0, step)
        if index < 0 or int(table.flags[index]) & TensorFlag.STAT_ONLY:
            return None
        return open_array(table.spec(index))

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Rows of the dump by the client's names: the compiler numbered the operators anew, in the same order."""
        dump = self._dump.nodes(0)
        ours = [row for row in range(len(self.table)) if _is_operator(self.table, row)]
        theirs = [row for row in range(len(dump)) if _is_operator(dump, row)]
        rows = {self.table.names[mine]: row for mine, row in zip(ours, theirs, strict=True)}
        return rows | {name: dump.find(name) for name in self.parameters}


def _is(table: NodeTable, row: int, kind: str) -> bool:
    return table.op_type(row) == kind


def _is_operator(table: NodeTable, row: int) -> bool:
    return not _is(table, row, PARAMETER) and not _is(table, row, CONSTANT)
