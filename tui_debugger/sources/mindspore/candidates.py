"""Candidates by name: which nodes a group of files may belong to, before any byte is read.

Each generation spells an operator differently (see ``names``). Scope-less names and names with ``--`` say
exactly which node they mean. Names of 2.7 to 2.10 do not: ``/`` became ``_``, and inside one scope and
operator type the ``-opN`` numbers of files and graph can be permuted or shifted against each other. So all nodes of
one scope and type are candidates for all groups of that scope and type: a ``Slate``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable

Key = tuple[str, str]

_NUMBER = re.compile(r"-op\d+$")
_DATA = re.compile(r"data-\d+$")
_FLATTENED = re.compile(r"--|[/.\\ ]")


def flatten(name: str) -> str:
    """A full name as 2.7 to 2.10 spell it in files: scope separators and dots become ``_``."""
    return _FLATTENED.sub("_", name)


def stem(name: str) -> str:
    """A flattened name without its number: what is the same for all operators of one scope and type."""
    return _NUMBER.sub("", flatten(name))


@dataclass(slots=True)
class Slate:
    """Nodes and file groups that belong to each other, pair by pair not yet known.

    Attributes:
        rows: candidate node rows, each takes at most one group.
        groups: indices of file groups, each goes to at most one row.
        named: the row whose name a group's name spells exactly, by group index.
    """

    rows: tuple[int, ...]
    groups: list[int] = field(default_factory=list)
    named: dict[int, int] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether names alone decide: one node, one group, spelled alike."""
        return len(self.rows) == 1 == len(self.groups) and self.named.get(self.groups[0]) == self.rows[0]


class NameIndex:
    """Nodes of one root graph by every spelling their files can have."""

    def __init__(self, table: NodeTable, root: int | None) -> None:
        """Indexes the rows of the graphs under ``root`` (all graphs for None, or when none has that root)."""
        self.flat: list[str] = [""] * len(table)
        self._exact: dict[str, list[int]] = defaultdict(list)
        self._leaf: dict[str, list[int]] = defaultdict(list)
        self._stem: dict[Key, list[int]] = defaultdict(list)
        self._parameter: dict[str, list[int]] = defaultdict(list)
        self._types = [table.op_type(row) for row in range(len(table))]
        for row in _rows(table, root):
            if self._types[row] in (PARAMETER, CONSTANT):
                self._add_parameter(row, table.file_names.get(row, table.names[row]))
            else:
                self._add_operator(row, table.names[row])

    def _add_operator(self, row: int, name: str) -> None:
        self.flat[row] = flatten(name)
        self._exact[name.replace("/", "--")].append(row)
        self._leaf[name.rpartition("/")[2]].append(row)
        base = _NUMBER.sub("", self.flat[row])
        for op_type in (self._types[row], ""):
            self._stem[op_type, base].append(row)

    def _add_parameter(self, row: int, name: str) -> None:
        self.flat[row] = flatten(name)
        spellings = {name, self.flat[row]}
        if self._types[row] == CONSTANT:
            spellings.update(_DATA.findall(name))
        for spelling in spellings:
            self._parameter[spelling].append(row)

    def candidates(self, op_type: str, op_name: str) -> tuple[str, list[int]]:
        """(key of the slate, candidate rows) for one file name; no rows when the graph does not know it."""
        if op_type == PARAMETER:
            rows = self._parameter.get(op_name) or self._parameter.get(flatten(op_name), [])
            return f"parameter {op_name}", rows
        for spelled in (self._exact.get(op_name), self._leaf.get(op_name)):
            if spelled:
                typed = [row for row in spelled if self._types[row].lower() == op_type.lower()]
                return f"name {op_name}", typed or spelled
        base = stem(op_name)
        for known_type in (op_type, ""):
            if (known_type, base) in self._stem:
                return f"stem {known_type} {base}", self._stem[known_type, base]
        return "", []


def _rows(table: NodeTable, root: int | None) -> Iterable[int]:
    """Rows that can have files; of a parameter that several graphs share, the first (root graphs come first)."""
    known = {info.root_id for info in table.graphs}
    graphs = {i for i, info in enumerate(table.graphs) if root is None or root not in known or info.root_id == root}
    skip = int(NodeFlag.FILE_ONLY | NodeFlag.STRUCTURAL)
    shared: set[str] = set()
    for row in np.argsort([not table.graphs[graph].is_root for graph in table.graph.tolist()], kind="stable").tolist():
        if int(table.graph[row]) not in graphs or int(table.flags[row]) & skip:
            continue
        if table.op_type(row) == PARAMETER:
            if table.names[row] in shared:
                continue
            shared.add(table.names[row])
        yield row


def slates(index: NameIndex, keys: Sequence[Key]) -> list[Slate]:
    """Slates of the file names ``keys`` ((op_type, op_name) per group). Names the graph does not know are in none."""
    found: dict[str, Slate] = {}
    for group, (op_type, op_name) in enumerate(keys):
        key, rows = index.candidates(op_type, op_name)
        if not rows:
            continue
        slate = found.setdefault(key, Slate(tuple(rows)))
        slate.groups.append(group)
        if len(rows) == 1 and not key.startswith("stem"):
            slate.named[group] = rows[0]
        else:
            flat = flatten(op_name)
            spelled = [row for row in rows if index.flat[row] == flat]
            if len(spelled) == 1:
                slate.named[group] = spelled[0]
    return list(found.values())
