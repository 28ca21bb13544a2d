"""The node list: a tree in preorder arrays, drawn as a flat list of its visible entries, with marks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings_for, key_of
from tui_debugger.tui.panes.pane import Pane
from tui_debugger.tui.widgets.text import Cell, shorten
from tui_debugger.tui.widgets.virtual_table import TableColumn, VirtualTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.arrays import Mask
    from tui_debugger.graph.search import NodeQuery
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import ScopeTree
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.widgets.open_tree import OpenTree, Visible
    from tui_debugger.tui.widgets.text import SearchPattern, Spans


@dataclass(frozen=True)
class TreeMarks:
    """The marks of the tree, one element for each tree index.

    ``hit``, ``origin`` and ``overflowed`` are True if some node at or below the entry has a finding, is an origin, or
    overflowed on the device at the current step; ``*_elsewhere`` at other steps. ``watch``: 0 no, 1 some, 2 all nodes
    below are watched. ``uncertain`` and ``file_only`` mark single nodes. ``overflowed`` is None if overflows are not
    known. NumPy is imported in functions, because the first frame does without.
    """

    watch: npt.NDArray[np.uint8]
    hit: Mask
    origin: Mask
    hit_elsewhere: Mask
    origin_elsewhere: Mask
    uncertain: Mask
    file_only: Mask
    overflowed: Mask | None = None

    def same(self, other: TreeMarks) -> bool:
        import numpy as np

        return all(map(np.array_equal, vars(self).values(), vars(other).values()))

    @classmethod
    def none(cls, size: int) -> TreeMarks:
        import numpy as np

        no = np.zeros(size, np.bool_)
        return cls(np.zeros(size, np.uint8), no, no, no, no, no, no)


def make_marks(
    nodes: NodeTable,
    tree: ScopeTree,
    watched: Mask | None,
    result: CheckResult | None,
    place: tuple[int, int | None],
    *,
    overflowed: Mask | None = None,
) -> TreeMarks:
    """Returns the marks of a rank at ``place`` (rank and step); ``watched`` and ``overflowed`` are over node rows."""
    import numpy as np

    from tui_debugger.graph.table import NodeFlag

    nothing = np.zeros(len(nodes), np.bool_)
    # A node table that was just read again may be shorter than the table of the last check.
    marked = [nothing] * 4 if result is None else result.hits.found_by_node(*place, len(nodes))
    hit, origin, hit_elsewhere, origin_elsewhere = (tree.keep_mask(mask) for mask in marked)
    leaves = np.asarray(tree.row)
    flags = np.where(leaves >= 0, nodes.flags[leaves], 0) if len(nodes) else np.zeros(len(leaves), np.uint8)
    return TreeMarks(
        watch=tree.coverage(watched if watched is not None else nothing),
        hit=hit,
        origin=origin,
        hit_elsewhere=hit_elsewhere,
        origin_elsewhere=origin_elsewhere,
        uncertain=(flags & NodeFlag.UNCERTAIN) > 0,
        file_only=tree.keep_mask(nodes.beside_graph) & (leaves >= 0),
        overflowed=None if overflowed is None else tree.keep_mask(overflowed),
    )


@dataclass(frozen=True, eq=False)
class SpaceTarget:
    """The watchpoint that Space changes; masks are over rows of the node table.

    Attributes:
        covered: nodes that the watchpoint covers.
        addable: nodes that it would cover after Space on them.
        excluded: nodes that its categories, types and expressions exclude.
        foreign: nodes of another kind than the watchpoint looks for.
    """

    name: str
    long_name: str
    covered: Mask
    addable: Mask
    excluded: Mask
    foreign: Mask

    def change(self, tree: ScopeTree, index: int, shown: Mask | None) -> tuple[bool, int]:
        """Returns whether Space on an entry adds nodes (else removes them), and how many; 0 if it does nothing.

        Nodes are removed if no node below can be added. ``shown`` restricts the change to entries that a search or
        filter keeps (None: all).
        """
        rows = tree.rows_below(index, shown)
        more = int(self.addable[rows].sum())
        return (True, more) if more else (False, int(self.covered[rows].sum()))


_INDENT = 2
_PAGE = 16
"""Lines of the list in the smallest terminal, until its size is known."""


class _Lines:
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
        super().__init__(_columns(overflows=False), header=False, empty=empty, id=id)
        self._view: OpenTree | None = None
        self._marks: TreeMarks | None = None
        self._notes: Sequence[str] | None = None

    # -- contents --------------------------------------------------------------------------------

    @property
    def current(self) -> int:
        key = self.cursor_key
        return key if isinstance(key, int) else -1

    def set_tree(self, tree: ScopeTree, notes: Sequence[str] | None = None, closed: Mask | None = None) -> None:
        """Shows a tree; open scopes stay open and the cursor stays on its entry, both by path.

        ``notes``: dim text after the label, by row of the node table. ``closed``: tree entries that stay closed at
        first.
        """
        from tui_debugger.tui.widgets.open_tree import OpenTree, same_entry

        old, old_current = self._view, self.current
        self._view = OpenTree.fresh(tree, closed) if old is None else old.carried_to(tree, closed)
        current = same_entry(old.tree, old_current, tree) if old is not None and old_current >= 0 else -1
        self._notes = notes
        self._marks = TreeMarks.none(len(tree.row))
        if current >= 0:
            self._key, self._keyed = current, True
        else:
            self._keyed = False
        self._show()

    def set_keep(self, keep: Mask | None, *, expand: bool = False) -> None:
        """Shows only some entries (a mask over tree indices), or with None all.

        ``expand`` opens every scope while this filter lasts. Afterwards the old scopes are open again, and the scopes
        around the cursor, unless the cursor goes back to its place before a search.
        """
        if self._view is not None:
            was = self._view.expanded
            self._view.keep(keep, expand=expand)
            returning = self.search is not None and self.search.returning
            if was and not (expand or returning) and not self._view.hides(self.current):
                self._view.open_around(self.current)
            self._show()

    def set_marks(self, marks: TreeMarks) -> None:
        if self._marks is None or not marks.same(self._marks):
            if self._marks is None or (self._marks.overflowed is None) != (marks.overflowed is None):
                self.set_columns(_columns(overflows=marks.overflowed is not None))
            self._marks = marks
            self.redraw()

    def overflowed(self, index: int) -> bool:
        marked = None if self._marks is None else self._marks.overflowed
        return marked is not None and 0 <= index < len(marked) and bool(marked[index])

    def reveal(self, index: int) -> bool:
        """Opens the scopes around an entry and moves the cursor to it; False if a filter hides it."""
        if self._view is None or self._view.hides(index):
            return False
        if self._view.open_around(index):
            self._show()
        top = self.top
        found = self.move_to_key(index)
        if self.top != top or not self.size.height:
            self._show_scopes()
        return found

    def _show_scopes(self) -> None:
        """Scrolls the scopes around the cursor into sight, as many as fit on the page with the cursor."""
        if self._view is None or self.current < 0:
            return
        page = self.page if self.size.height else _PAGE
        parents, first, entry = self._view.tree.parent, self.cursor_row, int(self._view.tree.parent[self.current])
        while entry >= 0 and self.cursor_row - self.rows.find(entry) < page:
            first, entry = self.rows.find(entry), int(parents[entry])
        if first < self.top or not self.size.height:
            self.show_above(self.cursor_row - first)

    # -- a search in it --------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The tree index under the cursor: matches are tree indices, whether their scope is open or not."""
        return self.current

    def go_to(self, position: int) -> None:
        self.reveal(position)

    def place(self) -> object:
        return None if self._view is None or self.current < 0 else (self._view.tree, self.current, self.top)

    def go_back(self, place: object) -> None:
        """Moves the cursor back to an entry, also in a tree that has grown since."""
        from tui_debugger.tui.widgets.open_tree import same_entry

        if self._view is not None and isinstance(place, tuple):
            tree, index, top = place
            self.reveal(index if tree is self._view.tree else same_entry(tree, index, self._view.tree))
            self.show_from(top)
            self._reveal()

    def match_spans(self, row: int, column: TableColumn, cell: Cell, pattern: SearchPattern) -> Spans:  # noqa: ARG002 - the path says more
        """Returns the part of the label where the whole path matches."""
        index = self.rows.key(row)
        if self._view is None or not column.elastic or not isinstance(index, int):
            return []
        tree = self._view.tree
        label, path = clean(tree.label[index]), clean(tree.path(index))
        start = len(path) - len(label)
        shift = _INDENT * (int(tree.depth[index]) + 1)  # with the glyph of an open or closed scope
        spans = [(max(first - start, 0), last - start) for first, last in pattern.spans(path)]
        return [(shift + first, shift + last) for first, last in spans if first < last]

    def _show(self, *, alike: bool = False) -> None:
        if self._view is not None:
            self.set_rows(_Lines(self, self._view.visible()), alike=alike)

    def line_key(self, row: int) -> int:
        """Returns the tree index: opening a scope moves the lines below without changing them."""
        key = self.rows.key(row)
        return key if isinstance(key, int) else row

    # -- keys ------------------------------------------------------------------------------------

    def _is_scope(self, index: int) -> bool:
        return self._view is not None and self._view.is_scope(index)

    def _is_open(self, index: int) -> bool:
        return self._view is not None and bool(self._view.opened[index])

    def toggle(self, index: int, opened: bool) -> None:
        if self._view is not None and self._is_scope(index) and self._is_open(index) != opened:
            self._view.opened[index] = opened
            self._forget(index)
            self._show(alike=True)

    def action_open_scope(self) -> None:
        """Opens the scope, or goes to its first entry; on a node shows more of its name."""
        index = self.current
        if not self._is_scope(index):
            self.action_pan_right()
        elif self._is_open(index):
            self.action_cursor_down()
        else:
            self.toggle(index, True)

    def action_close_scope(self) -> None:
        """Moves long text back; else closes the scope; else goes to the scope around."""
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
        if self._view is not None and self._is_scope(self.current):
            self._view.toggle_below(self.current)
            self._show()

    def action_select(self) -> None:
        index = self.current
        if self._is_scope(index):
            self.toggle(index, not self._is_open(index))
        else:
            super().action_select()

    # -- drawing ---------------------------------------------------------------------------------

    def entry_cells(self, index: int) -> Sequence[Cell]:
        if self._view is None or self._marks is None:
            return ("", "")
        marks = self._marks
        origin, hit = bool(marks.origin[index]), bool(marks.hit[index])
        gutter = Text(no_wrap=True)
        if origin or hit:
            gutter.append(theme.ORIGIN_GLYPH if origin else theme.HIT_GLYPH, theme.FINDING)
        elif marks.origin_elsewhere[index]:
            gutter.append(theme.ORIGIN_ELSEWHERE_GLYPH, theme.DOUBT)
        else:
            gutter.append(theme.HIT_ELSEWHERE_GLYPH if marks.hit_elsewhere[index] else " ", theme.DIM)
        if marks.overflowed is not None:
            gutter.append(theme.OVERFLOW_GLYPH if marks.overflowed[index] else " ", theme.FINDING)
        gutter.append(theme.WATCH_GLYPHS[int(marks.watch[index])], theme.WATCHED)
        return gutter, self._label(self._view, marks, index, hit=hit or origin)

    def _label(self, view: OpenTree, marks: TreeMarks, index: int, *, hit: bool) -> Text:
        tree, scope = view.tree, view.is_scope(index)
        text = Text(" " * (_INDENT * int(tree.depth[index])), no_wrap=True)
        if scope:
            text.append((theme.OPEN_GLYPH if view.opened[index] else theme.CLOSED_GLYPH) + " ", theme.DIM)
        else:
            text.append("  ")
        text.append(clean(tree.label[index]), theme.FINDING if hit and not scope else "")
        row = int(tree.row[index])
        if row < 0:
            text.append(f" {view.nodes_below(index):,}", theme.DIM)
            return text
        if marks.uncertain[index]:
            text.append(" " + theme.UNCERTAIN_GLYPH, theme.DOUBT)
        if marks.file_only[index]:
            text.append(" " + theme.FILE_GLYPH, theme.DIM)
        if self._notes is not None and self._notes[row]:
            text.append(" " + clean(self._notes[row]), theme.DIM)
        return text


def _columns(*, overflows: bool) -> tuple[TableColumn, ...]:
    return TableColumn("", 3 if overflows else 2, frozen=True), TableColumn("", 8, elastic=1)


_BETWEEN = " · "
_READABLE = 10
"""Fewest cells of a path or a category that are worth showing."""


class NodesPane(Pane):
    """The node list of the current rank."""

    PANE = "nodes"
    CLEARS_SEARCH = True

    @dataclass
    class NodeHighlighted(Message):
        """The cursor came to a node or a scope (``row`` -1)."""

        row: int
        opened: bool = False
        """Enter was pressed on the node."""

    def __init__(self) -> None:
        super().__init__()
        self.tree_widget = NodeTree(empty="no nodes yet", id="node-tree")
        self.table = self.tree_widget
        self.nodes: NodeTable | None = None
        self.scopes: ScopeTree | None = None
        self._target: SpaceTarget | None = None
        self._target_known = False
        self._kept: Mask | None = None
        self.shown: Mask | None = None
        """Mask of the tree entries that a search or a filter keeps; None without both."""

    def show(self, nodes: NodeTable, tree: ScopeTree, notes: Sequence[str], closed: Mask) -> None:
        """Shows the nodes of a rank; set marks and filters afterwards. See ``NodeTree.set_tree``."""
        self.nodes, self.scopes, self.shown = nodes, tree, None
        self.tree_widget.set_tree(tree, notes, closed)
        self.set_count(f"{self._listed(structural=False):,}")

    def filter(self, keep: Mask | None, count: int, query: NodeQuery, watchpoint_names: dict[int, str]) -> None:
        """Keeps the result of a query: a mask over tree indices (None: all), and the number of nodes in it."""
        self._kept = keep
        active = bool(summary(query, watchpoint_names))
        self.shown = keep if active else None
        self.tree_widget.set_empty(f"no node matches: {key_of('clear_filter')} shows all" if active else "no nodes")
        self.tree_widget.set_keep(keep, expand=active)
        self.set_count(f"{count:,} of {self._listed(structural=query.structural):,}" if active else f"{count:,}")

    def _listed(self, *, structural: bool) -> int:
        """Returns the number of nodes without a filter; ``structural`` includes nodes that only route values."""
        nodes = self.nodes
        if nodes is None:
            return 0
        return len(nodes) if structural else len(nodes) - int(nodes.structural.sum())

    def matches(self) -> Sequence[int]:
        """Returns the tree indices of the kept nodes, without the scopes around them."""
        if self.scopes is None or self.pattern is None:
            return ()
        import numpy as np

        nodes = np.asarray(self.scopes.row) >= 0
        found = nodes if self._kept is None or len(self._kept) != len(nodes) else nodes & self._kept
        return cast("Sequence[int]", np.flatnonzero(found))

    def show_query(self, query: NodeQuery, watchpoint_names: dict[int, str]) -> None:
        parts = summary(query, watchpoint_names, with_text=not self.search_text)
        if not parts:
            self.set_filters(None)
            return
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        for part in parts:
            text.append(f" {part} ", theme.CHIP)
            text.append(" ")
        text.append("⌫ clears", theme.DIM)
        self.set_filters(text)

    def mark(self, marks: TreeMarks) -> None:
        if self.scopes is not None and len(marks.watch) == len(self.scopes.row):
            self.tree_widget.set_marks(marks)

    def show_target(self, target: SpaceTarget | None) -> None:
        """Sets the watchpoint that Space changes, for the detail line; None: there is none."""
        self._target, self._target_known = target, True
        self._show_detail()

    def first_node(self) -> int:
        """Returns the row of the first visible node that may have tensors, -1 for none."""
        rows = self.table.rows
        for line in range(rows.row_count if self.scopes is not None else 0):
            entry = rows.key(line)
            row = int(self.scopes.row[entry]) if self.scopes is not None and isinstance(entry, int) else -1
            if row >= 0 and self.nodes is not None and self.nodes.watchable[row]:
                return row
        return -1

    def reveal(self, row: int) -> bool:
        return self.scopes is not None and self.tree_widget.reveal(self.scopes.index_of_row(row))

    @property
    def current(self) -> int:
        return self.tree_widget.current

    @property
    def current_row(self) -> int:
        index = self.current
        return int(self.scopes.row[index]) if self.scopes is not None and index >= 0 else -1

    def first_operator(self) -> int:
        """Returns the row of the operator that runs first below the scope under the cursor, -1 for none."""
        import numpy as np

        if self.scopes is None or self.nodes is None or self.current < 0:
            return -1
        rows = np.asarray(self.scopes.rows_below(self.current))
        rows = rows[~self.nodes.are_parameters(rows) & self.nodes.watchable[rows]]
        return int(rows[np.argmin(self.nodes.order[rows])]) if len(rows) else -1

    def show_row(self) -> None:
        self._show_detail()
        self.screen.post_message(self.NodeHighlighted(self.current_row))

    def on_virtual_table_row_selected(self) -> None:
        if self.current_row >= 0:
            self.post_message(self.NodeHighlighted(self.current_row, opened=True))

    def on_resize(self) -> None:
        self._show_detail()

    def _show_detail(self) -> None:
        """Shows the entry under the cursor and the effect of Space; the effect is never cut."""
        if self.scopes is None:
            return
        words, room = self._describe(), self.detail_room
        long, short = self._space()
        space = long if cell_len(words) + cell_len(long) + len(_BETWEEN) <= room else short
        room -= cell_len(space) + len(_BETWEEN)
        parts = [shorten(words, room) if room >= _READABLE else "", space] if space else [words]
        self.set_detail(_BETWEEN.join(part for part in parts if part))

    def _space(self) -> tuple[str, str]:
        """Returns the effect of Space, with the watchpoint's long name and with its short name."""
        target, index = self._target, self.current
        if self.scopes is None or index < 0 or not self._target_known:
            return "", ""
        if target is None:
            return (f"{key_of('toggle_watch')} makes a watchpoint of it",) * 2
        if len(target.covered) != len(self.scopes.paths):
            return "", ""  # the nodes were read again; a new target comes with their marks
        adds, count = target.change(self.scopes, index, self.shown if self.scopes.is_scope(index) else None)
        if not count:
            return "", ""
        what = plural(count, "node") if self.scopes.is_scope(index) else "it"
        key = key_of("toggle_watch")
        does = f"{key} adds {what} to" if adds else f"{key} takes {what} out of"
        return f"{does} {target.long_name}", f"{does} {target.name}"

    def _describe(self) -> str:
        from tui_debugger.graph.table import NodeFlag
        from tui_debugger.tui.cells import CATEGORY_LABELS

        row = self.current_row
        if self.scopes is None or self.nodes is None or self.current < 0:
            return ""
        overflowed = self.tree_widget.overflowed(self.current)
        if row < 0:
            path = self.scopes.path(self.current)
            return f"{theme.OVERFLOW_GLYPH} {path}" if overflowed else path
        flags = int(self.nodes.flags[row])
        words = [CATEGORY_LABELS[self.nodes.category_of(row)]]
        if overflowed:
            words.append(f"{theme.OVERFLOW_GLYPH} overflowed on the device")
        if flags & NodeFlag.UNCERTAIN:
            words.append("? files may belong to another node")
        if self.nodes.beside_graph[row]:
            words.append(f"{theme.FILE_GLYPH} known from names of files, not in the graph")
        return " · ".join(words)


def summary(query: NodeQuery, watchpoint_names: dict[int, str], *, with_text: bool = True) -> list[str]:
    """Returns one part for each restriction of a query; empty if it keeps everything."""
    from tui_debugger.tui.cells import CATEGORY_LABELS  # with the model: not before there is a query

    parts = []
    if query.text and with_text:
        parts.append(("~" if query.regex else "/") + clean(query.text))
    if query.line is not None:
        path, line = query.line
        parts.append(f"line {shorten(path.rpartition('/')[2], 24)}:{line}")
    parts += sorted(CATEGORY_LABELS[category] for category in query.categories)
    parts += sorted(clean(name) for name in query.types)
    parts += sorted(clean(name) for name in query.graphs)
    if query.watched is not None:
        parts.append("watched by " + watchpoint_names.get(query.watched, "any"))
    if query.hit:
        parts.append("hit")
    if query.structural:
        parts.append("with structural nodes")
    return parts
