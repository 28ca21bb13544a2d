"""The node tree: a flat list of visible entries over preorder arrays. A toggle computes one index array."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType

from tui_debugger.text.clean import clean
from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings_for
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.arrays import Mask
    from tui_debugger.tui.watcher import Marks
    from tui_debugger.tui.widgets.open_tree import OpenTree, TreeLike, Visible

_INDENT = 2


class _Lines:
    """The visible entries as rows of the table."""

    def __init__(self, owner: NodeTree, visible: Visible) -> None:
        self._visible = visible
        self._owner = owner
        self.row_count = visible.row_count
        self.find = visible.find

    def key(self, index: int) -> Hashable:
        return self._visible.key(index)

    def cells(self, index: int) -> Sequence[Cell]:
        return self._owner.entry_cells(self._visible.key(index))


class NodeTree(VirtualTable):
    """Scopes that open and close, and nodes, with marks for watched, hit and origin."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings_for("tree"))

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        """An empty tree."""
        columns = (Column("", 2, frozen=True), Column("", 8, elastic=1))
        super().__init__(columns, header=False, empty=empty, id=id)
        self._view: OpenTree | None = None
        self._marks: Marks | None = None
        self._notes: Sequence[str] | None = None

    # -- contents --------------------------------------------------------------------------------

    @property
    def current(self) -> int:
        """Tree index under the cursor, -1 when the tree is empty."""
        key = self.cursor_key
        return key if isinstance(key, int) else -1

    def set_tree(self, tree: TreeLike, notes: Sequence[str] | None = None, dull: Mask | None = None) -> None:
        """Shows a tree. What was open stays open and the cursor stays on its entry (both by path).

        Args:
            tree: the tree.
            notes: dim text after the label, over node rows.
            dull: entries that stay closed at first, over tree indices.
        """
        from tui_debugger.tui.watcher import Marks  # NumPy: not before there is a tree
        from tui_debugger.tui.widgets.open_tree import OpenTree, same_entry

        old, old_current = self._view, self.current
        self._view = OpenTree.fresh(tree, dull) if old is None else old.carried_to(tree, dull)
        current = same_entry(old.tree, old_current, tree) if old is not None and old_current >= 0 else -1
        self._notes = notes
        self._marks = Marks.none(len(tree.row))
        if current >= 0:
            self._key, self._keyed = current, True
        else:
            self._keyed = False
        self._show()

    def set_keep(self, keep: Mask | None, *, expand: bool = False) -> None:
        """Shows only some entries, or all again.

        Args:
            keep: mask over tree indices; None keeps everything.
            expand: open every scope while this filter lasts. What was open before comes back afterwards.
        """
        if self._view is not None:
            self._view.keep(keep, expand=expand)
            self._show()

    def set_marks(self, marks: Marks) -> None:
        """Replaces the marks; draws only when they differ."""
        if self._marks is None or not marks.same(self._marks):
            self._marks = marks
            self.redraw()

    def reveal(self, index: int) -> bool:
        """Opens the scopes around an entry and moves the cursor there; False when a filter hides it."""
        if self._view is None or self._view.hides(index):
            return False
        if self._view.open_around(index):
            self._show()
        return self.move_to_key(index)

    def _show(self, *, alike: bool = False) -> None:
        if self._view is not None:
            self.set_rows(_Lines(self, self._view.visible()), alike=alike)

    def line_key(self, row: int) -> int:
        """The tree index: opening a scope moves what is below it, and changes nothing of it."""
        key = self.rows.key(row)
        return key if isinstance(key, int) else row

    # -- keys ------------------------------------------------------------------------------------

    def _is_scope(self, index: int) -> bool:
        return self._view is not None and self._view.is_scope(index)

    def _is_open(self, index: int) -> bool:
        return self._view is not None and bool(self._view.opened[index])

    def toggle(self, index: int, opened: bool) -> None:
        """Opens or closes one entry."""
        if self._view is not None and self._is_scope(index) and self._is_open(index) != opened:
            self._view.opened[index] = opened
            self._forget(index)
            self._show(alike=True)

    def action_open_scope(self) -> None:
        """Opens; when open goes to the first entry; on a node shows more of its name."""
        index = self.current
        if not self._is_scope(index):
            self.action_pan_right()
        elif self._is_open(index):
            self.action_cursor_down()
        else:
            self.toggle(index, True)

    def action_close_scope(self) -> None:
        """Shows the name from its start again; else closes; else goes to the scope around."""
        index = self.current
        if self._view is None or index < 0:
            return
        if self._pan:
            self.action_pan_left()
        elif self._is_scope(index) and self._is_open(index):
            self.toggle(index, False)
        else:
            self.move_to_key(int(self._view.tree.parent[index]))

    def action_open_all(self) -> None:
        """Opens everything below the cursor, or closes it when all is open."""
        if self._view is not None and self._is_scope(self.current):
            self._view.toggle_below(self.current)
            self._show()

    def action_select(self) -> None:
        """Enter: a scope opens or closes, a node is announced as selected."""
        index = self.current
        if self._is_scope(index):
            self.toggle(index, not self._is_open(index))
        else:
            super().action_select()

    # -- drawing ---------------------------------------------------------------------------------

    def entry_cells(self, index: int) -> Sequence[Cell]:
        """The marks and the label of one entry."""
        if self._view is None or self._marks is None:
            return ("", "")
        marks = self._marks
        origin, hit = bool(marks.origin[index]), bool(marks.hit[index])
        gutter = Text(no_wrap=True)
        if origin:
            gutter.append(theme.ORIGIN_GLYPH, theme.FINDING)
        else:
            gutter.append(theme.HIT_GLYPH if hit else " ", theme.FINDING if hit else "")
        gutter.append(theme.WATCH_GLYPHS[int(marks.watch[index])], theme.WATCHED)
        return gutter, self._label(self._view, marks, index, hit=hit or origin)

    def _label(self, view: OpenTree, marks: Marks, index: int, *, hit: bool) -> Text:
        tree, scope = view.tree, view.is_scope(index)
        text = Text(" " * (_INDENT * int(tree.depth[index])), no_wrap=True)
        if scope:
            text.append((theme.OPEN_GLYPH if view.opened[index] else theme.CLOSED_GLYPH) + " ", theme.DIM)
        else:
            text.append("  ")
        text.append(clean(tree.label[index]), theme.FINDING if hit and not scope else "")
        row = int(tree.row[index])
        if row < 0:
            text.append(f" {int(tree.size[index]) - 1}", theme.DIM)
            return text
        if marks.uncertain[index]:
            text.append(" " + theme.UNCERTAIN_GLYPH, theme.DOUBT)
        if marks.file_only[index]:
            text.append(" " + theme.FILE_GLYPH, theme.DIM)
        if self._notes is not None and self._notes[row]:
            text.append(" " + clean(self._notes[row]), theme.DIM)
        return text
