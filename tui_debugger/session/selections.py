"""Which nodes a watchpoint covers and a query keeps: the masks of one session, computed once per node table."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.graph.search import NodeQuery, match, select
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import NodeSelection, Watchpoint

_KEPT = 256
"""Selections whose nodes are kept: a form asks for another one with every key."""


class Selections:
    """Masks over node rows by rank and selection, within a scope. Safe to use from several threads."""

    def __init__(self) -> None:
        """Everything is in scope."""
        self._lock = threading.Lock()
        self._masks: dict[tuple[int, NodeSelection], tuple[NodeTable, Mask]] = {}
        self._scope: NodeQuery | None = None
        self._scopes: dict[int, tuple[NodeTable, Mask]] = {}

    def restrict(self, scope: NodeQuery | None) -> None:
        """Lets selections cover nodes of ``scope`` only.

        Raises:
            BadQueryError: a regular expression that does not compile.
        """
        with self._lock:
            self._scope = scope
            self._scopes = {}

    @property
    def restricted(self) -> bool:
        """Whether selections may cover some nodes only."""
        with self._lock:
            return self._scope is not None

    def in_scope(self, nodes: NodeTable) -> Mask:
        """The node rows that selections may cover."""
        with self._lock:
            scope, kept = self._scope, self._scopes.get(id(nodes.lineage))
        if scope is None:
            return np.ones(len(nodes), np.bool_)
        if kept is None or kept[0] is not nodes:
            kept = (nodes, match(nodes, scope))
            with self._lock:
                if self._scope is scope:
                    self._scopes = {**dict(list(self._scopes.items())[-_KEPT:]), id(nodes.lineage): kept}
        return kept[1]

    def mask(self, rank: int, nodes: NodeTable, selection: NodeSelection) -> Mask:
        """Node rows that a selection covers within the scope."""
        return self.selected(rank, nodes, selection) & self.in_scope(nodes)

    def selected(self, rank: int, nodes: NodeTable, selection: NodeSelection) -> Mask:
        """Node rows that a selection names, in scope or not."""
        with self._lock:
            kept = self._masks.get((rank, selection))
        if kept is None or kept[0] is not nodes:
            kept = (nodes, select(nodes, selection))
            with self._lock:
                masks = {key: mask for key, mask in self._masks.items() if key[0] != rank or mask[0] is nodes}
                while len(masks) >= _KEPT:
                    del masks[next(iter(masks))]
                masks[rank, selection] = kept
                self._masks = masks
        return kept[1]

    def watched(self, rank: int, nodes: NodeTable, watchpoints: Iterable[Watchpoint]) -> Mask:
        """Node rows that any of the watchpoints covers."""
        watched = np.zeros(len(nodes), np.bool_)
        for watchpoint in watchpoints:
            watched |= self.mask(rank, nodes, watchpoint.selection)
        return watched
