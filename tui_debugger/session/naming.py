"""Finds a node, and a slot of it, by the text that a user typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.check.types import TensorRow
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import NodeFlag, NodeTable
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.tables import CUT
from tui_debugger.text.tensors import round_text

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun

_ROUND = r"(?:#(\d{1,5}))?"
_SLOT = re.compile(rf"(.+?)(?::(?:(in|input|out|output|param)(?::?(\d{{1,5}}))?|(\d{{1,5}})))?{_ROUND}", re.DOTALL)
_ROLE = re.compile(rf"(?:in|input|out|output|param)(?::?\d{{1,5}})?{_ROUND}")
_MOST = 10
"""Candidates that are named in an error."""
_LIKELY = 64
"""Names that share the most letter groups with the text: only these are compared letter by letter."""


@dataclass(frozen=True, slots=True)
class NamedSlots:
    """The wanted tensors of a node.

    Attributes:
        role: ``in``, ``out`` or ``param``; empty for all.
        slot: number of the input or output; None for all.
        round: which round of the step, from 1; 0 for the newest.
    """

    role: str = ""
    slot: int | None = None
    round: int = 0

    def covers(self, row: TensorRow) -> bool:
        return self.role in ("", row.role) and self.slot in (None, row.slot)

    def __str__(self) -> str:
        return (self.role if self.slot is None else f"{self.role} {self.slot}") + (
            f"#{self.round}" if self.round else ""
        )


@dataclass(frozen=True, slots=True)
class FoundNode:
    """A node and the wanted tensors of it; ``rows`` holds its node row in every rank that has the node."""

    node: str
    graph: str
    rows: Mapping[int, int]
    asked: NamedSlots

    def tensors(self, run: DiagnosedRun, rank: int, step: int) -> tuple[TensorRow, ...]:
        """Every tensor of the node at a step, in the round that was asked for."""
        return run.tensor_rows(rank, step, self.rows[rank], self.asked.round)

    def meant(self, rows: Iterable[TensorRow]) -> list[TensorRow]:
        """The rows that were asked for; of a node that was named without a slot its outputs, if there are any."""
        covered = [row for row in rows if self.asked.covers(row)]
        return covered if self.asked.role else [row for row in covered if row.role == "out"] or covered


def no_such_tensor(found: FoundNode, there: Iterable[TensorRow], what: str = "") -> TdbgError:
    """The error when a node has no tensor that was asked for; lists the tensors (``there``) that it has."""
    slots = dict.fromkeys(f"{row.role}:{row.slot}{round_text(row.key.round)}" for row in there)
    hint = f"it has {', '.join(slots)}" if slots else "nothing of it was dumped"
    return TdbgError(what or f"this node has no tensor {found.asked}".rstrip(), where=clean(found.node), hint=hint)


def is_slot(text: str) -> bool:
    """Tells whether a text names a tensor of a node: ``out:0``, ``in``, ``param:1``."""
    return _ROLE.fullmatch(text.strip()) is not None


def split_slot(text: str) -> tuple[str, NamedSlots]:
    """Splits ``NODE[:slot][#round]``: ``:0`` is output 0, ``:in0`` and ``:in:0`` input 0, ``:in`` all inputs."""
    match = _SLOT.fullmatch(text)
    if match is None:
        return text, NamedSlots()
    name, role, slot, bare, number = match.groups()
    which = int(number) if number else 0
    if role is None:
        return name, NamedSlots("out" if bare else "", int(bare) if bare else None, which)
    return name, NamedSlots(role.removesuffix("put"), None if slot is None else int(slot), which)


class UnknownNodeError(TdbgError):
    """No node has this name."""


def find_in(run: DiagnosedRun, ranks: Iterable[int], text: str, progress: ProgressFn = no_progress) -> FoundNode:
    """``find_node`` in some ranks; where only dumped tensors name nodes, all steps are listed before it fails."""
    chosen = list(ranks)

    def found() -> FoundNode:
        tables = {rank: run.nodes(rank, progress) for rank in chosen}
        return find_node(tables, {rank: run.in_scope(rank) for rank in chosen}, text)

    try:
        return found()
    except UnknownNodeError:
        dumped = int(NodeFlag.FILE_ONLY | NodeFlag.INFERRED)
        grows = [rank for rank in chosen if not len(run.nodes(rank)) or (run.nodes(rank).flags & dumped).any()]
        for rank in grows:
            for step in run.steps(rank):
                run.flow(rank, progress).table(step)
        if not grows:
            raise
    return found()


def find_node(tables: Mapping[int, NodeTable], scope: Mapping[int, Mask], text: str) -> FoundNode:
    """The one node that a text (``NODE[:slot][#round]``) means, in every rank that has it.

    The attempts in their order: the exact id (or ``graph/id``, or the path in the tree); the id as it is printed, with
    pictures for control characters, or without its middle (``Default/…/Div-op385``); the end of an id or path after a
    slash; any part of an id; any part in any case; any part of a path in any case. Nodes that only route values match
    their exact id alone. ``scope`` is by rank a mask over node rows. TdbgError: no node, or several; the hint names
    candidates.
    """
    name, asked = split_slot(text)
    whole = (
        (_exact, _printed, _ending) if asked == NamedSlots(round=asked.round) else (_exact,)
    )  # a name may end with #2
    attempts = [
        *((text, NamedSlots(), way) for way in whole),
        *((name, asked, way) for way in (_exact, _printed, _without_middle, _ending, _holding, _caseless, _below)),
    ]
    for words, wanted, way in attempts:
        found: dict[tuple[str, str], dict[int, int]] = {}
        for rank, table in tables.items():
            for row in way(table, scope[rank], words):
                found.setdefault((table.graph_of(row).name, table.names[row]), {}).setdefault(rank, row)
        if len(found) > 1:
            raise _several(words, list(found))
        for (graph, node), rows in found.items():
            return FoundNode(node, graph, rows, wanted)
    raise _none(tables, scope, name)


def _exact(table: NodeTable, scope: Mask, text: str) -> list[int]:
    rows = {table.find(text, info.name) for info in table.graphs}
    graph, _, rest = text.partition("/")
    rows.add(table.find(rest, graph))
    rows = {row for row in rows if row >= 0 and (scope[row] or table.structural[row])}
    return sorted(rows) or _rows(table, scope, lambda _, path: path == text)


def _printed(table: NodeTable, scope: Mask, text: str) -> list[int]:
    if text.isascii() and "\\" not in text:  # clean() changed no character
        return []
    rows = _rows(table, scope, lambda name, _: text.endswith(clean(name)))
    return [
        row
        for row in rows
        if text in (clean(table.names[row]), clean(f"{table.graph_of(row).name}/{table.names[row]}"))
    ]


def _without_middle(table: NodeTable, scope: Mask, text: str) -> list[int]:
    """The nodes that a narrow terminal abbreviates to this text."""
    if CUT not in text:
        return []
    parts = text.split(CUT)
    pattern = re.compile("(?:.*/)?" + ".*".join(map(re.escape, parts)), re.DOTALL)
    rows = _rows(table, scope, lambda name, _: clean(name).endswith(parts[-1]))
    return [row for row in rows if pattern.fullmatch(clean(f"{table.graph_of(row).name}/{table.names[row]}"))]


def _ending(table: NodeTable, scope: Mask, text: str) -> list[int]:
    tail = "/" + text
    return _rows(table, scope, lambda name, path: name.endswith(tail) or path.endswith(tail))


def _holding(table: NodeTable, scope: Mask, text: str) -> list[int]:
    return _rows(table, scope, lambda name, _: text in name)


def _caseless(table: NodeTable, scope: Mask, text: str) -> list[int]:
    needle = text.lower()
    return _rows(table, scope, lambda name, _: needle in name.lower())


def _below(table: NodeTable, scope: Mask, text: str) -> list[int]:
    needle = text.lower()
    return _rows(table, scope, lambda _, path: needle in path.lower())


def _rows(table: NodeTable, scope: Mask, test: Callable[[str, str], bool]) -> list[int]:
    pairs = zip(table.names, table.paths, strict=True)
    named = np.fromiter((test(name, path) for name, path in pairs), np.bool_, len(table))
    rows: list[int] = np.flatnonzero(named & scope & ~table.structural).tolist()
    return rows


def _several(text: str, found: list[tuple[str, str]]) -> TdbgError:
    graphs = len({graph for graph, _ in found}) > 1
    names = [f"{graph}/{node}" if graphs else node for graph, node in found]
    more = f"\n         and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return TdbgError(f"{len(names):,} nodes match {clean(text)!r}", hint=f"say which:{_listed(names[:_MOST])}{more}")


def _none(tables: Mapping[int, NodeTable], scope: Mapping[int, Mask], text: str) -> UnknownNodeError:
    names: dict[str, None] = {}
    for rank, table in tables.items():
        names.update(
            dict.fromkeys(table.names[row] for row in np.flatnonzero(scope[rank] & ~table.structural).tolist())
        )
    close = _close(names, text)
    hint = f"did you mean:{_listed(close)}" if close else "`tdbg ls` lists the nodes"
    return UnknownNodeError(f"no node is called {clean(text)!r}", hint=hint)


def _listed(names: Iterable[str]) -> str:
    return "".join(f"\n         {clean(name)}" for name in names)


def _close(names: Iterable[str], text: str) -> list[str]:
    """Names whose end looks like the text, the most similar first; only names with common letter groups are tried."""
    needle = text.rpartition("/")[2].lower()
    groups = {needle[i : i + 3] for i in range(max(1, len(needle) - 2))}
    ends = [(name.rpartition("/")[2].lower(), name) for name in names]
    likely = sorted(ends, key=lambda end: -sum(group in end[0] for group in groups))[:_LIKELY]
    by_end: dict[str, list[str]] = {}
    for end, name in likely:
        by_end.setdefault(end, []).append(name)
    close = difflib.get_close_matches(needle, by_end, n=_MOST)
    return [name for end in close for name in by_end[end]][:_MOST]
