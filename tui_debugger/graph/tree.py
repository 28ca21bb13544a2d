"""The scope tree of a rank as arrays in preorder, for the node list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tui_debugger.arrays import Int16, Int32, Int64, Mask, UInt8
from tui_debugger.graph.table import NodeTable

_UNKNOWN_ORDER = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class ScopeTree:
    """Scopes and nodes in preorder: the subtree of entry i is ``i .. i + size[i] - 1``.

    A scope and a node may share a path (``a/b`` and ``a/b/c``): they are two entries. With several graphs every graph
    has one top entry, and paths begin with the graph's name. ``label`` is the last component of the path, unsanitised.
    Top entries have ``depth`` 0 and ``parent`` -1. ``row`` is -1 for a scope, ``scope`` -1 for a node; they index into
    ``paths`` and ``scopes``. ``watchable`` is a mask over node rows, the denominator of ``coverage``.
    """

    label: Sequence[str]
    depth: Int16
    parent: Int32
    size: Int32
    row: Int32
    watchable: Mask = field(repr=False)
    scopes: Sequence[str] = field(repr=False)
    scope: Int32 = field(repr=False)
    paths: Sequence[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.row)

    def path(self, index: int) -> str:
        scope = int(self.scope[index])
        return self.scopes[scope] if scope >= 0 else self.paths[int(self.row[index])]

    def is_scope(self, index: int) -> bool:
        return bool(self.scope[index] >= 0)

    def index_of_row(self, row: int) -> int:
        return int(self.index_of_rows[row])

    def index_of_scope(self, path: str) -> int:
        """Returns the tree index of a scope path, or -1: finds open scopes again after the table grew."""
        return self._scope_index.get(path, -1)

    def ancestors(self, index: int) -> list[int]:
        found = []
        above = int(self.parent[index])
        while above >= 0:
            found.append(above)
            above = int(self.parent[above])
        return found

    def rows_below(self, index: int, keep: Mask | None = None) -> Int32:
        """Returns the node rows in a subtree in tree order; ``keep``: of these entries only."""
        below = slice(index, index + int(self.size[index]))
        rows = self.row[below]
        return rows[rows >= 0] if keep is None else rows[(rows >= 0) & keep[below]]

    def visible(self, open: Mask, keep: Mask | None = None) -> Int32:  # noqa: A002 (the word on screen)
        """Returns the entries on screen: all ancestors are open, and ``keep`` has the entry; ``open`` ignores nodes."""
        n = len(self)
        closed = np.flatnonzero(~open & (self.size > 1))
        hides = np.zeros(n + 1, np.int32)
        hides[closed + 1] += 1  # each start occurs once, ends may coincide
        hides -= np.bincount(closed + self.size[closed], minlength=n + 1).astype(np.int32)
        shown = np.cumsum(hides[:n]) == 0
        if keep is not None:
            shown &= keep
        return np.flatnonzero(shown).astype(np.int32)

    def keep_mask(self, rows: Mask) -> Mask:
        """Returns the entries to keep under a filter: marked nodes and all their ancestors."""
        mask: Mask = self._count(rows) > 0
        return mask

    def coverage(self, rows: Mask) -> UInt8:
        """Tells how much of each entry's subtree is marked, of watchable nodes: 0 none, 1 partial, 2 total."""
        marked = self._count(rows & self.watchable)
        return np.where(marked == 0, 0, np.where(marked < self._watchable_below, 1, 2)).astype(np.uint8)

    def _count(self, rows: Mask) -> Int64:
        before = np.zeros(len(self) + 1, np.int64)
        leaves = np.zeros(len(self), np.bool_)
        leaves[self.index_of_rows] = rows
        np.cumsum(leaves, out=before[1:])
        first = np.arange(len(self))
        counts: Int64 = before[first + self.size] - before[:-1]
        return counts

    @cached_property
    def index_of_rows(self) -> Int64:
        index = np.zeros(len(self.paths), np.int64)
        nodes = np.flatnonzero(self.row >= 0)
        index[self.row[nodes]] = nodes
        return index

    @cached_property
    def _watchable_below(self) -> Int64:
        return self._count(self.watchable)

    @cached_property
    def _scope_index(self) -> dict[str, int]:
        return {self.scopes[int(self.scope[i])]: int(i) for i in np.flatnonzero(self.scope >= 0)}


def build_tree(table: NodeTable) -> ScopeTree:
    """Builds the scope tree. Children are in execution order of their first descendants."""
    return tree_of(tree_paths(table), _sort_keys(table), table.watchable)


def tree_of(paths: Sequence[str], keys: Int64, watchable: Mask) -> ScopeTree:
    """Builds the scope tree of anything with paths; children are in the order of ``keys``, unique for each row."""
    scopes, scope_parent, node_parent = _scopes_of(paths)
    n_scopes, n_nodes = len(scopes), len(paths)
    # Entry numbers before sorting: scopes (a parent before its children), then nodes.
    parent = np.concatenate([scope_parent, node_parent])
    depth = _depths(scope_parent, node_parent)
    size, key = _sizes_and_keys(scope_parent, node_parent, keys)
    position = _preorder(parent, depth, size, key)

    def placed(values: Int64) -> Int64:
        out = np.empty_like(values)
        out[position] = values
        return out

    nothing = np.full(n_scopes, -1)
    return ScopeTree(
        label=_labels(scopes, paths, position),
        depth=placed(depth).astype(np.int16),
        parent=placed(np.where(parent >= 0, position[parent], -1) if len(parent) else parent).astype(np.int32),
        size=placed(size).astype(np.int32),
        row=placed(np.concatenate([nothing, np.arange(n_nodes)])).astype(np.int32),
        watchable=watchable,
        scopes=scopes,
        scope=placed(np.concatenate([np.arange(n_scopes), np.full(n_nodes, -1)])).astype(np.int32),
        paths=paths,
    )


def tree_paths(table: NodeTable) -> Sequence[str]:
    if len(table.graphs) < 2:
        return table.paths
    names = [info.name for info in table.graphs]
    return [f"{names[graph]}/{path}" for graph, path in zip(table.graph.tolist(), table.paths, strict=True)]


def _scopes_of(paths: Sequence[str]) -> tuple[list[str], Int64, Int64]:
    """Returns scope paths (parents first), the parent of each scope and the scope of each node (-1: none)."""
    known: dict[str, int] = {"": -1}
    scopes: list[str] = []
    parents: list[int] = []

    def enter(scope: str) -> int:
        missing = []
        while scope not in known:
            missing.append(scope)
            scope = scope.rpartition("/")[0]
        above = known[scope]
        for name in reversed(missing):
            known[name] = len(scopes)
            scopes.append(name)
            parents.append(above)
            above = known[name]
        return above

    nodes = [
        enter(scope) if (number := known.get(scope := path.rpartition("/")[0])) is None else number for path in paths
    ]
    return scopes, np.array(parents, np.int64), np.array(nodes, np.int64)


def _depths(scope_parent: Int64, node_parent: Int64) -> Int64:
    depth = np.zeros(len(scope_parent) + 1, np.int64)
    depth[-1] = -1  # index -1 is "no parent"
    for index, above in enumerate(scope_parent.tolist()):
        depth[index] = depth[above] + 1
    return np.concatenate([depth[:-1], depth[node_parent] + 1])


def _sort_keys(table: NodeTable) -> Int64:
    order: Int64 = np.where(table.order < 0, _UNKNOWN_ORDER, table.order).astype(np.int64)
    keys: Int64 = order * max(len(table), 1) + np.arange(len(table))
    return keys


def _sizes_and_keys(scope_parent: Int64, node_parent: Int64, node_keys: Int64) -> tuple[Int64, Int64]:
    """Returns subtree sizes and the smallest key of each subtree, for scopes then nodes."""
    n_scopes = len(scope_parent)
    below = node_parent >= 0
    size = 1 + np.bincount(node_parent[below], minlength=n_scopes)
    key = np.full(n_scopes, np.iinfo(np.int64).max)
    np.minimum.at(key, node_parent[below], node_keys[below])
    for index in range(n_scopes - 1, -1, -1):
        above = scope_parent[index]
        if above >= 0:
            size[above] += size[index]
            key[above] = min(key[above], key[index])
    return np.concatenate([size, np.ones(len(node_parent), np.int64)]), np.concatenate([key, node_keys])


def _preorder(parent: Int64, depth: Int64, size: Int64, key: Int64) -> Int64:
    """Returns the position of every entry: its parent's, plus one, plus the sizes of the siblings before it."""
    by_sibling = np.lexsort((key, parent))
    first = np.ones(len(parent), np.bool_)
    first[1:] = parent[by_sibling][1:] != parent[by_sibling][:-1]
    before = np.cumsum(size[by_sibling]) - size[by_sibling]
    group = np.cumsum(first) - 1
    offset: Int64 = np.empty(len(parent), np.int64)
    offset[by_sibling] = before - before[first][group] if len(parent) else before
    position: Int64 = offset.copy()
    for level in range(1, int(depth.max(initial=0)) + 1):
        entries = np.flatnonzero(depth == level)
        position[entries] = position[parent[entries]] + 1 + offset[entries]
    return position


def _labels(scopes: Sequence[str], paths: Sequence[str], position: Int64) -> list[str]:
    labels = [""] * len(position)
    for index, text in zip(position.tolist(), [*scopes, *paths], strict=True):
        labels[index] = text.rpartition("/")[2]
    return labels
