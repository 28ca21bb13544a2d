"""The visible entries of a tree: its open scopes and the entries that a filter keeps, as masks in preorder."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.graph.tree import ScopeTree

OPEN_LIMIT = 60
"""A new tree opens scopes from the top until it shows this many lines."""


class Visible:
    """The visible entries as rows of a table; the key of a row is its tree index."""

    def __init__(self, indices: npt.NDArray[np.int32]) -> None:
        self.indices = indices

    @property
    def row_count(self) -> int:
        return len(self.indices)

    def key(self, row: int) -> int:
        return int(self.indices[row])

    def find(self, key: Hashable) -> int:
        if not isinstance(key, int):
            return -1
        row = int(np.searchsorted(self.indices, key))
        return row if row < len(self.indices) and int(self.indices[row]) == key else -1


class OpenTree:
    """A tree with its open scopes and its filter."""

    def __init__(self, tree: ScopeTree, opened: Mask) -> None:
        """Takes the mask ``opened`` over: this object changes it."""
        self.tree = tree
        self._open = opened
        self._open_kept: Mask | None = None
        self._keep: Mask | None = None
        self._nodes_before: npt.NDArray[np.int32] | None = None

    @classmethod
    def fresh(cls, tree: ScopeTree, closed: Mask | None = None) -> OpenTree:
        """Opens scopes from the top, in execution order, up to ``OPEN_LIMIT`` lines.

        A scope with too many children stays closed, without closing its neighbours. Entries of ``closed`` (constants,
        for example) stay closed.
        """
        size = len(tree.row)
        opened = np.zeros(size, np.bool_)
        if not size:
            return cls(tree, opened)
        depth, parent = np.asarray(tree.depth), np.asarray(tree.parent)
        scopes = np.asarray(tree.size) > 1
        interesting = scopes if closed is None else scopes & ~closed
        children = np.bincount(parent[parent >= 0], minlength=size)
        shown = int(np.count_nonzero(depth == 0))
        for at in range(int(depth.max()) + 1):
            above = opened[parent] if at else True
            for index in np.flatnonzero((depth == at) & interesting & above).tolist():
                fits = shown + int(children[index]) <= OPEN_LIMIT or not at
                opened[index] = fits
                shown += int(children[index]) if fits else 0
        return cls(tree, opened)

    def carried_to(self, tree: ScopeTree, closed: Mask | None = None) -> OpenTree:
        """Returns a grown tree with the same scopes open, by path."""
        if not self._open.any():
            return self.fresh(tree, closed)
        paths = {self.tree.path(int(i)) for i in np.flatnonzero(self._open)}
        opened = np.zeros(len(tree.row), np.bool_)
        opened[[int(i) for i in np.flatnonzero(np.asarray(tree.row) < 0) if tree.path(int(i)) in paths]] = True
        return OpenTree(tree, opened)

    def keep(self, mask: Mask | None, *, expand: bool) -> None:
        """Shows only the entries of a mask (None: all); ``expand`` opens every scope as long as the mask is set."""
        self._keep, self._nodes_before = mask, None
        self._open_kept = np.ones(len(self.tree.row), np.bool_) if expand else None

    @property
    def expanded(self) -> bool:
        return self._open_kept is not None

    @property
    def opened(self) -> Mask:
        return self._open if self._open_kept is None else self._open_kept

    def visible(self) -> Visible:
        return Visible(self.tree.visible(self.opened, self._keep))

    def is_scope(self, index: int) -> bool:
        """Tells whether an entry has entries below it."""
        return index >= 0 and int(self.tree.size[index]) > 1

    def hides(self, index: int) -> bool:
        """Tells whether the entry does not exist or the filter hides it."""
        return not 0 <= index < len(self.tree.row) or (self._keep is not None and not self._keep[index])

    def nodes_below(self, index: int) -> int:
        """Returns the number of nodes in a subtree that the filter keeps."""
        if self._nodes_before is None:
            nodes = np.asarray(self.tree.row) >= 0
            kept = nodes if self._keep is None else nodes & self._keep
            self._nodes_before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
        end = index + int(self.tree.size[index])
        return int(self._nodes_before[end] - self._nodes_before[index])

    def open_around(self, index: int) -> bool:
        opened, parent, changed = self.opened, int(self.tree.parent[index]), False
        while parent >= 0:
            changed |= not opened[parent]
            opened[parent] = True
            parent = int(self.tree.parent[parent])
        return changed

    def toggle_below(self, index: int) -> None:
        """Opens all scopes of a subtree, or closes them if all are open."""
        below = slice(index, index + int(self.tree.size[index]))
        scopes = np.asarray(self.tree.size[below]) > 1
        self.opened[below] = scopes & (not bool(self.opened[below][scopes].all()))


def same_entry(old: ScopeTree, index: int, new: ScopeTree) -> int:
    """Returns the index in the new tree of an entry of the old tree, or -1."""
    row, path = int(old.row[index]), old.path(index)
    if row >= 0:
        found = new.index_of_row(row)
        if found >= 0 and new.path(found) == path:
            return found
    candidates = np.flatnonzero((new.depth == old.depth[index]) & ((np.asarray(new.row) >= 0) == (row >= 0)))
    return next((int(i) for i in candidates if new.path(int(i)) == path), -1)
