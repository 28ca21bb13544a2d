"""Candidates by name: which nodes a group of files may belong to, before any byte is read.

Each generation spells an operator differently (see ``names``). Scope-less names and names with ``--`` say
exactly which node they mean. Names of 2.7 to 2.10 do not: ``/`` became ``_``, and inside one scope and
operator type the ``-opN`` numbers of files and graph can be permuted or shifted against each other. So all nodes of
one scope and type are candidates for all groups of that scope and type: a ``Slate``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable

Key = tuple[str, str]
Rows = tuple[int, ...]
Spelling = TypeVar("Spelling", bound=Hashable)

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

    rows: Rows
    groups: list[int] = field(default_factory=list)
    named: dict[int, int] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether names alone decide: one node, one group, spelled alike."""
        return len(self.rows) == 1 == len(self.groups) and self.named.get(self.groups[0]) == self.rows[0]


class _Spelled(Generic[Spelling]):
    """Rows by spelling; nearly all spellings have one row."""

    def __init__(self, pairs: Iterable[tuple[Spelling, int]]) -> None:
        self._first: dict[Spelling, int] = {}
        self._all: dict[Spelling, list[int]] = {}
        for spelling, row in pairs:
            first = self._first.setdefault(spelling, row)
            if first != row:
                self._all.setdefault(spelling, [first]).append(row)

    def get(self, spelling: Spelling) -> Rows:
        """The rows, in the order given."""
        rows = self._all.get(spelling)
        if rows is not None:
            return tuple(rows)
        first = self._first.get(spelling)
        return () if first is None else (first,)


class NameIndex:
    """Nodes of one root graph by every spelling their files can have. An index is made when a name asks for it."""

    def __init__(self, table: NodeTable, root: int | None) -> None:
        """Indexes the rows of the graphs under ``root`` (all graphs for None, or when none has that root)."""
        self._type_of: list[int] = table.type_id.tolist()
        self._types = table.types
        self._folded = [name.lower() for name in table.types]
        held = {number for number, name in enumerate(table.types) if name in (PARAMETER, CONSTANT)}
        self._names, self._file_names = table.names, table.file_names
        rows = _rows(table, root)
        self._operators = [row for row in rows if self._type_of[row] not in held]
        self._held = [row for row in rows if self._type_of[row] in held]

    def candidates(self, op_type: str, op_name: str) -> tuple[str, Rows]:
        """(key of the slate, candidate rows) for one file name; no rows when the graph does not know it."""
        if op_type == PARAMETER:
            rows = self._parameter.get(op_name) or self._parameter.get(flatten(op_name))
            return f"parameter {op_name}", rows
        rows = self._exact.get(op_name) or self._leaf.get(op_name)
        if rows:
            folded = op_type.lower()
            return f"name {op_name}", tuple([r for r in rows if self._folded[self._type_of[r]] == folded]) or rows
        base = stem(op_name)
        for known_type in (op_type, ""):
            rows = self._stem.get((known_type, base))
            if rows:
                return f"stem {known_type} {base}", rows
        return "", ()

    def flattened(self, op_name: str) -> Rows:
        """Rows whose name is this one as 2.7 to 2.10 spell it."""
        return self._flat.get(flatten(op_name))

    @cached_property
    def _exact(self) -> _Spelled[str]:
        return _Spelled((self._names[row].replace("/", "--"), row) for row in self._operators)

    @cached_property
    def _leaf(self) -> _Spelled[str]:
        return _Spelled((self._names[row].rpartition("/")[2], row) for row in self._operators)

    @cached_property
    def _parameter(self) -> _Spelled[str]:
        spellings = []
        for row in self._held:
            name = self._file_names.get(row, self._names[row])
            each = {name, flatten(name)}
            if self._types[self._type_of[row]] == CONSTANT:
                each.update(_DATA.findall(name))
            spellings += [(spelling, row) for spelling in each]
        return _Spelled(spellings)

    @cached_property
    def _flat(self) -> _Spelled[str]:
        names = ((self._file_names.get(row, self._names[row]), row) for row in (*self._operators, *self._held))
        return _Spelled((flatten(name), row) for name, row in names)

    @cached_property
    def _stem(self) -> _Spelled[Key]:
        bases = ((stem(self._names[row]), row) for row in self._operators)
        both = ((key, row) for base, row in bases for key in ((self._types[self._type_of[row]], base), ("", base)))
        return _Spelled(both)


def _rows(table: NodeTable, root: int | None) -> list[int]:
    """Rows that can have files; of a parameter that several graphs share, the first (root graphs come first)."""
    known = {info.root_id for info in table.graphs}
    wanted = [root is None or root not in known or info.root_id == root for info in table.graphs]
    first = [not info.is_root for info in table.graphs]
    skip = int(NodeFlag.FILE_ONLY | NodeFlag.STRUCTURAL)
    able = np.array([*wanted, False])[table.graph] & ((table.flags & skip) == 0)
    order = np.argsort(np.array([*first, False])[table.graph], kind="stable")
    rows: list[int] = order[able[order]].tolist()
    parameter = np.array([name == PARAMETER for name in (*table.types, "")])[table.type_id]
    shared: dict[str, int] = {}
    for at in np.flatnonzero(parameter[rows]).tolist() if len(table.graphs) > 1 else ():
        shared.setdefault(table.names[rows[at]], at)
    if not shared:
        return rows
    kept = set(shared.values())
    return [row for at, row in enumerate(rows) if at in kept or not parameter[row]]


def by_names(index: NameIndex, keys: Sequence[Key]) -> tuple[dict[int, int], list[Slate]]:
    """What file names say of ``keys`` ((op_type, op_name) per group).

    Returns:
        The group of each row that names alone decide, and slates of the others. Names the graph does not know are in
        neither.
    """
    settled: dict[int, int] = {}
    found: dict[str, Slate] = {}
    often = Counter([op_name for _, op_name in keys])
    for group, (op_type, op_name) in enumerate(keys):
        key, rows = index.candidates(op_type, op_name)
        if not rows:
            continue
        alone = len(rows) == 1 and not key.startswith("stem")
        if alone and often[op_name] == 1 and settled.setdefault(rows[0], group) == group:
            continue
        slate = found.get(key)
        if slate is None:
            slate = found[key] = Slate(rows)
        slate.groups.append(group)
        spelled = rows if alone else tuple([row for row in index.flattened(op_name) if row in rows])
        if len(spelled) == 1:
            slate.named[group] = spelled[0]
    slates = list(found.values())
    for row in [row for slate in slates for row in slate.rows if row in settled]:
        group = settled.pop(row, -1)
        if group >= 0:  # several spellings claim a node: the last of them has it
            slates.append(Slate((row,), [group], {group: row}))
    return settled, sorted(slates, key=lambda slate: slate.groups[0])
