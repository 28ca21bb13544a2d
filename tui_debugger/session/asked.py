"""Which nodes and tensor rows are asked about: the selections of watchpoints, the scope, and the opened path."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.graph.search import NodeQuery, match, select
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import NodeSelection, Watchpoint
from tui_debugger.sources.base import Source, TensorFlag, TensorTable
from tui_debugger.sources.scope import Scope

_KEPT = 256
"""Selections whose masks are kept per node table: a form asks for a new selection with every key."""


def known_selections(_: NodeTable) -> dict[NodeSelection, Mask]:
    """The ``memo`` of a node table that holds the masks of its selections; empty at first."""
    return {}


class Selections:
    """Masks over node rows by selection, within a scope. Safe to use from several threads."""

    def __init__(self, asked: Callable[[NodeTable], Mask | None]) -> None:
        """``asked`` returns a mask of the nodes below the opened path, or None for all nodes."""
        self._asked = asked
        self._lock = threading.Lock()
        self._scope: NodeQuery | None = None
        self._scopes: dict[int, tuple[NodeTable, Mask]] = {}

    def restrict(self, scope: NodeQuery | None) -> None:
        """Lets selections cover nodes of ``scope`` only; raises BadQueryError for a wrong regular expression."""
        with self._lock:
            self._scope = scope
            self._scopes = {}

    def in_scope(self, nodes: NodeTable) -> Mask:
        with self._lock:
            scope, kept = self._scope, self._scopes.get(id(nodes.lineage))
        asked = self._asked(nodes)
        if scope is None:
            return np.ones(len(nodes), np.bool_) if asked is None else asked
        if kept is None or kept[0] is not nodes:
            kept = (nodes, match(nodes, scope))
            with self._lock:
                if self._scope is scope:
                    self._scopes = {**dict(list(self._scopes.items())[-_KEPT:]), id(nodes.lineage): kept}
        return kept[1] if asked is None else kept[1] & asked

    def mask(self, nodes: NodeTable, selection: NodeSelection) -> Mask:
        return self.selected(nodes, selection) & self.in_scope(nodes)

    def selected(self, nodes: NodeTable, selection: NodeSelection) -> Mask:
        """Node rows that a selection names, in scope or not."""
        masks = nodes.memo(known_selections)
        with self._lock:
            mask = masks.get(selection)
        if mask is None:
            mask = select(nodes, selection)
            with self._lock:
                while len(masks) >= _KEPT:
                    del masks[next(iter(masks))]
                masks[selection] = mask
        return mask

    def watched(self, nodes: NodeTable, watchpoints: Iterable[Watchpoint]) -> Mask:
        watched = np.zeros(len(nodes), np.bool_)
        for watchpoint in watchpoints:
            watched |= self.mask(nodes, watchpoint.selection)
        return watched


def asked_rows(scope: Scope, rank: int, nodes: NodeTable, table: TensorTable) -> Mask | None:
    """Returns a mask of the rows of a step that lie below the opened path, or None for all rows."""
    graphs = scope.graphs(rank)
    if not scope.files and graphs is None:
        return None
    asked = np.ones(len(table), np.bool_)
    if graphs is not None:
        asked &= _in_graphs(nodes, graphs)[table.node]
    if scope.files:
        asked &= _in_files(scope, table)
    return asked


def asked_nodes(source: Source, nodes: NodeTable) -> Mask | None:
    """Returns a mask of the nodes with tensors below the opened path, or None for all nodes."""
    scope = source.scope
    if not (scope.files or any(place.graph is not None for place in scope.places or ())):
        return None
    asked = np.zeros(len(nodes), np.bool_)
    for rank in scope.ranks(source):
        if source.nodes(rank).lineage is not nodes.lineage:
            continue
        graphs = scope.graphs(rank)
        if not scope.files and graphs is not None:
            asked |= _in_graphs(nodes, graphs)
            continue
        for step in scope.steps(source, rank):
            table = source.tensors(rank, step)
            rows = asked_rows(scope, rank, source.nodes(rank), table)
            found = table.node if rows is None else table.node[rows]
            asked[found[found < len(nodes)]] = True
    return asked


def _in_graphs(nodes: NodeTable, graphs: set[int]) -> Mask:
    roots = np.array([info.root_id in graphs for info in nodes.graphs], np.bool_)
    return roots[nodes.graph] if len(roots) else np.zeros(len(nodes), np.bool_)


def _in_files(scope: Scope, table: TensorTable) -> Mask:
    """Returns a mask of the tensors with values in the asked files, or if there are none, of those without values."""
    statistics: Mask = (table.flags & int(TensorFlag.STAT_ONLY)) > 0
    valued = np.flatnonzero(~statistics)
    paths = [os.fsdecode(path) for path in table.specs(valued).paths]
    inside = {path: scope.holds_path(path) for path in set(paths)}
    asked = np.zeros(len(table), np.bool_)
    asked[valued] = [inside[path] for path in paths]
    return asked if asked.any() else statistics
