"""The node tree: a flat list of visible entries over preorder arrays. A toggle computes one index array."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from rich.text import Text
from textual.binding import BindingType

from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings_for
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable

Bools = npt.NDArray[np.bool_]
_INDENT = 2
_OPEN_ALL_LIMIT = 100
"""A fresh tree opens scopes from the top until this many lines show."""


class TreeLike(Protocol):
    """What the widget needs of ``graph.tree.Tree``; all arrays are in preorder."""

    @property
    def label(self) -> Sequence[str]:
        """Last part of the path."""

    @property
    def depth(self) -> npt.NDArray[np.int16]:
        """0 at the top."""

    @property
    def parent(self) -> npt.NDArray[np.int32]:
        """Tree index of the parent, -1 at the top."""

    @property
    def size(self) -> npt.NDArray[np.int32]:
        """Entries of the subtree including itself."""

    @property
    def row(self) -> npt.NDArray[np.int32]:
        """Node row, -1 for a scope."""

    def path(self, i: int) -> str:
        """Display path."""

    def index_of_row(self, row: int) -> int:
        """Tree index of a node row."""

    def visible(self, open: Bools, keep: Bools | None = None) -> npt.NDArray[np.int32]:  # noqa: A002
        """Tree indices on screen."""


@dataclass(frozen=True)
class Marks:
    """What the glyphs of the tree say, over tree indices.

    Attributes:
        watch: 0 none, 1 some, 2 all nodes below are watched.
        hit: something below has a finding.
        origin: something below is an origin.
        uncertain, file_only: marks of single nodes.
    """

    watch: npt.NDArray[np.uint8]
    hit: Bools
    origin: Bools
    uncertain: Bools
    file_only: Bools

    def same(self, other: Marks) -> bool:
        """Whether two sets of marks draw the same."""
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.watch, other.watch),
                (self.hit, other.hit),
                (self.origin, other.origin),
                (self.uncertain, other.uncertain),
                (self.file_only, other.file_only),
            )
        )

    @classmethod
    def none(cls, size: int) -> Marks:
        """Nothing marked."""
        no = np.zeros(size, np.bool_)
        return cls(np.zeros(size, np.uint8), no, no, no, no)


class _Visible:
    """The visible entries as rows; the key of a row is its tree index."""

    def __init__(self, owner: NodeTree, visible: npt.NDArray[np.int32]) -> None:
        self.visible = visible
        self._owner = owner

    @property
    def row_count(self) -> int:
        return len(self.visible)

    def key(self, index: int) -> Hashable:
        return int(self.visible[index])

    def find(self, key: Hashable) -> int:
        if not isinstance(key, int):
            return -1
        row = int(np.searchsorted(self.visible, key))
        return row if row < len(self.visible) and int(self.visible[row]) == key else -1

    def cells(self, index: int) -> Sequence[Cell]:
        return self._owner.draw(int(self.visible[index]))


class NodeTree(VirtualTable):
    """Scopes that open and close, and nodes, with marks for watched, hit and origin."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings_for("tree"))

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        """An empty tree."""
        columns = (Column("", 2, frozen=True), Column("", 8, elastic=1))
        super().__init__(columns, header=False, empty=empty, id=id)
        self._tree: TreeLike | None = None
        self._open = np.zeros(0, np.bool_)
        self._open_kept = np.zeros(0, np.bool_)
        self._keep: Bools | None = None
        self._expanded = False
        self._marks = Marks.none(0)
        self._notes: Sequence[str] | None = None

    # -- contents --------------------------------------------------------------------------------

    @property
    def tree_shown(self) -> TreeLike | None:
        """The tree."""
        return self._tree

    @property
    def current(self) -> int:
        """Tree index under the cursor, -1 when the tree is empty."""
        key = self.cursor_key
        return key if isinstance(key, int) else -1

    def set_tree(self, tree: TreeLike, notes: Sequence[str] | None = None) -> None:
        """Shows a tree. What was open stays open and the cursor stays on its entry (both by path).

        Args:
            tree: the tree.
            notes: dim text after the label, over node rows.
        """
        old, old_current = self._tree, self.current
        size = len(tree.row)
        opened = np.zeros(size, np.bool_)
        current = -1
        if old is None or not self._open.any():
            self._open_first(tree, opened)
        else:
            paths = {old.path(int(i)) for i in np.flatnonzero(self._open)}
            scopes = np.flatnonzero(np.asarray(tree.row) < 0)
            opened[[int(i) for i in scopes if tree.path(int(i)) in paths]] = True
        if old is not None and old_current >= 0:
            current = _same_entry(old, old_current, tree)
        self._tree, self._notes = tree, notes
        self._open, self._keep, self._expanded = opened, None, False
        self._marks = Marks.none(size)
        if current >= 0:
            self._key, self._keyed = current, True
        else:
            self._keyed = False
        self._show()

    def _open_first(self, tree: TreeLike, opened: Bools) -> None:
        """Opens scopes level by level while the lines still fit on a screen or so."""
        shown = int(np.count_nonzero(tree.depth == 0))
        for depth in range(int(tree.depth.max(initial=0)) + 1):
            level = np.flatnonzero((tree.depth == depth) & (np.asarray(tree.row) < 0))
            children = int(np.count_nonzero(tree.depth == depth + 1))
            if shown + children > _OPEN_ALL_LIMIT and depth > 0:
                return
            opened[level] = True
            shown += children

    def set_keep(self, keep: Bools | None, *, expand: bool = False) -> None:
        """Shows only some entries, or all again.

        Args:
            keep: mask over tree indices; None keeps everything.
            expand: open every scope while this filter lasts. What was open before comes back afterwards.
        """
        if self._tree is None:
            return
        if expand:
            self._open_kept = np.ones(len(self._tree.row), np.bool_)
        self._keep, self._expanded = keep, expand
        self._show()

    def set_marks(self, marks: Marks) -> None:
        """Replaces the marks; draws only when they differ."""
        if not marks.same(self._marks):
            self._marks = marks
            self.redraw()

    def reveal(self, index: int) -> bool:
        """Opens the scopes around an entry and moves the cursor there; False when a filter hides it."""
        tree = self._tree
        if tree is None or not 0 <= index < len(tree.row) or (self._keep is not None and not self._keep[index]):
            return False
        opened = self._opened
        parent = int(tree.parent[index])
        changed = False
        while parent >= 0:
            changed |= not opened[parent]
            opened[parent] = True
            parent = int(tree.parent[parent])
        if changed:
            self._show()
        return self.move_to_key(index)

    @property
    def _opened(self) -> Bools:
        return self._open_kept if self._expanded else self._open

    def _show(self) -> None:
        if self._tree is not None:
            self.set_rows(_Visible(self, self._tree.visible(self._opened, self._keep)))

    # -- keys ------------------------------------------------------------------------------------

    def _is_scope(self, index: int) -> bool:
        return self._tree is not None and index >= 0 and int(self._tree.size[index]) > 1

    def toggle(self, index: int, opened: bool) -> None:
        """Opens or closes one entry."""
        if self._is_scope(index) and bool(self._opened[index]) != opened:
            self._opened[index] = opened
            self._show()

    def action_open_scope(self) -> None:
        """Opens; when open goes to the first entry; on a node shows more of its name."""
        index = self.current
        if not self._is_scope(index):
            self.action_pan_right()
        elif self._opened[index]:
            self.action_cursor_down()
        else:
            self.toggle(index, True)

    def action_close_scope(self) -> None:
        """Shows the name from its start again; else closes; else goes to the scope around."""
        index = self.current
        if self._tree is None or index < 0:
            return
        if self._pan:
            self.action_pan_left()
        elif self._is_scope(index) and self._opened[index]:
            self.toggle(index, False)
        else:
            self.move_to_key(int(self._tree.parent[index]))

    def action_open_all(self) -> None:
        """Opens everything below the cursor, or closes it when all is open."""
        index = self.current
        if self._tree is None or not self._is_scope(index):
            return
        below = slice(index, index + int(self._tree.size[index]))
        opened = self._opened
        scopes = np.asarray(self._tree.size[below]) > 1
        opened[below] = scopes & (not bool(opened[below][scopes].all()))
        self._show()

    def action_select(self) -> None:
        """Enter: a scope opens or closes, a node is announced as selected."""
        index = self.current
        if self._is_scope(index):
            self.toggle(index, not bool(self._opened[index]))
        else:
            super().action_select()

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self, index: int) -> Sequence[Cell]:
        """The marks and the label of one entry."""
        tree, marks = self._tree, self._marks
        if tree is None:
            return ("", "")
        origin, hit = bool(marks.origin[index]), bool(marks.hit[index])
        gutter = Text(no_wrap=True)
        if origin:
            gutter.append(theme.ORIGIN_GLYPH, theme.FINDING)
        else:
            gutter.append(theme.HIT_GLYPH if hit else " ", theme.FINDING if hit else "")
        gutter.append(theme.WATCH_GLYPHS[int(marks.watch[index])], theme.WATCHED)
        return gutter, self._label(tree, index, hit=hit or origin)

    def _label(self, tree: TreeLike, index: int, *, hit: bool) -> Text:
        scope = self._is_scope(index)
        text = Text(" " * (_INDENT * int(tree.depth[index])), no_wrap=True)
        if scope:
            text.append((theme.OPEN_GLYPH if self._opened[index] else theme.CLOSED_GLYPH) + " ", theme.DIM)
        else:
            text.append("  ")
        text.append(tree.label[index], theme.FINDING if hit and not scope else "")
        row = int(tree.row[index])
        if row < 0:
            text.append(f" {int(tree.size[index]) - 1}", theme.DIM)
            return text
        if self._marks.uncertain[index]:
            text.append(" " + theme.UNCERTAIN_GLYPH, theme.DOUBT)
        if self._marks.file_only[index]:
            text.append(" " + theme.FILE_GLYPH, theme.DIM)
        if self._notes is not None and self._notes[row]:
            text.append(" " + self._notes[row], theme.DIM)
        return text


def _same_entry(old: TreeLike, index: int, new: TreeLike) -> int:
    """Where an entry of the old tree is in the new one, or -1. Node rows stay valid when a run grows."""
    row, path = int(old.row[index]), old.path(index)
    if row >= 0:
        found = new.index_of_row(row)
        if found >= 0 and new.path(found) == path:
            return found
    candidates = np.flatnonzero((new.depth == old.depth[index]) & ((np.asarray(new.row) >= 0) == (row >= 0)))
    return next((int(i) for i in candidates if new.path(int(i)) == path), -1)
