"""Small graphs, and arrays in place of dump files, for tests of the matcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import ParsedConstant, ParsedGraph, ParsedNode, ParsedParameter, SlotType
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.assign import DigestStore, Load
from tui_debugger.sources.mindspore.match import ContentReading, FileGroup, GroupMatch, match_names

FLOAT = SlotType("float32", (4,))
Array = npt.NDArray[Any]


def match_files(
    table: NodeTable,
    groups: Sequence[FileGroup],
    load: Load,
    *,
    root: int | None = None,
    earlier: GroupMatch | None = None,
    known: DigestStore | None = None,
) -> GroupMatch:
    """Matches groups that are made already: see ``match_names``."""
    keys = tuple(group.key for group in groups)
    return match_names(table, keys, lambda: groups, ContentReading(load, known), root=root, earlier=earlier)


class Files:
    """Arrays in place of dump files."""

    def __init__(self) -> None:
        self.arrays: list[Array | None] = []
        self.read: list[int] = []

    def add(self, array: Array | float | None) -> int:
        self.arrays.append(np.full(4, array, np.float32) if isinstance(array, (int, float)) else array)
        return len(self.arrays) - 1

    def load(self, index: int) -> Array:
        self.read.append(index)
        array = self.arrays[index]
        if array is None:
            raise UnreadableTensorError("cut off")
        return array

    def group(
        self, op_type: str, op_name: str, inputs: Sequence[Any], outputs: Sequence[Any], timestamp: int = 0
    ) -> FileGroup:
        files = [(side, slot, self.add(a)) for side, of in enumerate((inputs, outputs)) for slot, a in enumerate(of)]
        return FileGroup(op_type, op_name, tuple(files), timestamp)


def node(index: int, full_name: str, *inputs: str, op_type: str = "", outputs: int = 1) -> ParsedNode:
    scope, _, leaf = full_name.rpartition("/")
    kind = op_type or leaf.partition("-op")[0]
    return ParsedNode(str(index), full_name, kind, scope, tuple(inputs), (FLOAT,) * outputs)


def graph(
    *nodes: ParsedNode, parameters: Sequence[str] = (), constants: Sequence[str] = (), name: str = "kernel_graph0"
) -> NodeTable:
    parsed = ParsedGraph(
        name,
        "0",
        nodes,
        tuple(ParsedParameter(each, FLOAT) for each in parameters),
        tuple(
            ParsedConstant(f"cst{i}", f"Default_data-{i - 1}", FLOAT, value or None, int(value) if value else None)
            for i, value in enumerate(constants, 1)
        ),
    )
    return build_table([parsed])


def names(table: NodeTable, match: GroupMatch) -> list[str | None]:
    return [table.names[row] if row >= 0 else None for row in match.node.tolist()]
