"""Pane 1: the nodes as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane, pane_bindings
from tui_debugger.tui.widgets.node_tree import NodeTree
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from tui_debugger.graph.search import NodeQuery
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree
    from tui_debugger.tui.answers import NodesFiltered, NodesLoaded, NodesMarked


class NodesPane(Pane):
    """The node list of the current rank."""

    PANE = "nodes"
    BINDINGS: ClassVar[list[BindingType]] = pane_bindings("nodes")

    class NodeHighlighted(Message):
        """The cursor came to a node or a scope (``row`` -1)."""

        def __init__(self, row: int, *, opened: bool = False) -> None:
            """``opened``: Enter was pressed on the node."""
            super().__init__()
            self.row = row
            self.opened = opened

    def __init__(self) -> None:
        """An empty tree."""
        super().__init__()
        self.tree_widget = NodeTree(empty="no nodes yet", id="node-tree")
        self.table = self.tree_widget
        self.nodes: NodeTable | None = None
        self.scopes: Tree | None = None

    def show(self, message: NodesLoaded) -> None:
        """Nodes of a rank; marks and filters come after."""
        self.nodes, self.scopes = message.nodes, message.tree
        self.tree_widget.set_tree(message.tree, message.notes, message.dull)
        self.set_count(f"{len(message.nodes):,}")

    def filter(self, message: NodesFiltered, query: NodeQuery, watchpoint_names: dict[int, str]) -> None:
        """Keeps what a query found."""
        active = bool(summary(query, watchpoint_names))
        self.tree_widget.set_empty("no node matches: Backspace clears the filter" if active else "no nodes")
        self.tree_widget.set_keep(message.keep, expand=active)
        total = len(self.nodes) if self.nodes is not None else 0
        self.set_count(f"{message.count:,} of {total:,}" if active else f"{message.count:,}")

    def show_query(self, query: NodeQuery, watchpoint_names: dict[int, str]) -> None:
        """The line that says what restricts the list."""
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

    def mark(self, message: NodesMarked) -> None:
        """Watched, hit, origin."""
        if self.scopes is not None and len(message.marks.watch) == len(self.scopes.row):
            self.tree_widget.set_marks(message.marks)

    def reveal(self, row: int) -> bool:
        """Goes to a node; False when a filter hides it."""
        return self.scopes is not None and self.tree_widget.reveal(self.scopes.index_of_row(row))

    @property
    def current(self) -> int:
        """Tree index under the cursor, -1 for none."""
        return self.tree_widget.current

    @property
    def current_row(self) -> int:
        """Node row under the cursor, -1 on a scope."""
        index = self.current
        return int(self.scopes.row[index]) if self.scopes is not None and index >= 0 else -1

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Shows the whole path and says which node it is."""
        event.stop()
        if self.scopes is not None:
            self.set_detail(self._describe())
        self.post_message(self.NodeHighlighted(self.current_row))

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter on a node."""
        event.stop()
        if self.current_row >= 0:
            self.post_message(self.NodeHighlighted(self.current_row, opened=True))

    def _describe(self) -> str:
        from tui_debugger.graph.table import NodeFlag
        from tui_debugger.tui.kinds import CATEGORIES

        row = self.current_row
        if self.scopes is None or self.nodes is None or self.current < 0:
            return ""
        if row < 0:
            return self.scopes.path(self.current)
        flags = int(self.nodes.flags[row])
        words = [CATEGORIES[self.nodes.category_of(row)]]
        if flags & NodeFlag.UNCERTAIN:
            words.append("? files may belong to another node")
        if flags & NodeFlag.FILE_ONLY:
            words.append("≈ from file names")
        return " · ".join(words)


def summary(query: NodeQuery, watchpoint_names: dict[int, str], *, with_text: bool = True) -> list[str]:
    """What a query restricts, one part each; empty when it keeps everything."""
    from tui_debugger.tui.kinds import CATEGORIES  # with the model: not before there is a query

    parts = []
    if query.text and with_text:
        parts.append(("~" if query.regex else "/") + clean(query.text))
    if query.line is not None:
        path, line = query.line
        parts.append(f"line {shorten(path.rpartition('/')[2], 24)}:{line}")
    parts += sorted(CATEGORIES[category] for category in query.categories)
    parts += sorted(clean(name) for name in query.types)
    parts += sorted(clean(name) for name in query.graphs)
    if query.watched is not None:
        parts.append("watched by " + watchpoint_names.get(query.watched, "any"))
    if query.hit:
        parts.append("hit")
    if query.structural:
        parts.append("with structural nodes")
    return parts
