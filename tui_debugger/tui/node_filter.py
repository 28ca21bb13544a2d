"""The query that restricts the node list: search text, source line, graphs, watchpoint, categories, hits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tui_debugger.graph.search import NodeQuery
from tui_debugger.tui.work import Report

if TYPE_CHECKING:
    from tui_debugger.arrays import Mask
    from tui_debugger.tui.context import Context


@dataclass(frozen=True, eq=False)
class _Kept:
    """The nodes that a query keeps: over tree indices (None: everything), and how many nodes that is."""

    keep: Mask | None
    count: int


class NodeFilter:
    """Changes the query and has the node list show what it keeps."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Returns actions by id."""
        return {"filter_nodes": self.ask_filter, "clear_filter": self.clear_filter}

    def set_query(self, query: NodeQuery) -> None:
        """Replaces the query."""
        self._context.state.query = query
        self.apply_query()
        self._context.update_header()

    def search(self, text: str) -> None:
        """Takes the text of the search box; a leading ~ means a regular expression."""
        regex = text.startswith("~")
        self.set_query(replace(self._context.state.query, text=text[1:] if regex else text, regex=regex))

    def restrict_to_line(self, path: str, line: int) -> None:
        """Keeps only the nodes of a source line; the same line again takes the restriction away."""
        query = self._context.state.query
        same = query.line == (path, line)
        self.set_query(replace(query, line=None if same else (path, line)))
        if not same:
            self._context.say(f"nodes of {path.rpartition('/')[2]}:{line}; Backspace in the node list clears")

    def clear_filter(self) -> None:
        """Shows everything again, in the hit list every graph."""
        if self._context.state.query.graphs == self._context.hits_pane.filter.graphs:
            self.show_graphs_of_hits(frozenset())
        self.show_all()

    def show_all(self) -> None:
        """Removes search and query."""
        self._context.nodes_pane.clear_search()
        self.set_query(NodeQuery())

    def show_graphs_of_hits(self, graphs: frozenset[str]) -> None:
        """Shows only the hits of some graphs; none of them means all."""
        pane = self._context.hits_pane
        if graphs != pane.filter.graphs:
            pane.set_filter(replace(pane.filter, graphs=graphs), self._context.watchpoint_names())

    def apply_query(self) -> None:
        """Asks for the nodes that the query keeps."""
        context, session = self._context, self._context.session
        rank, step, query = context.state.rank, context.state.step, context.state.query
        context.nodes_pane.show_query(query, context.watchpoint_names())

        def work(_: Report) -> _Kept:
            rows = session.select(rank, query, step)
            keep = None if bool(rows.all()) else session.tree(rank).keep_mask(rows)
            return _Kept(keep, int(rows.sum()))

        context.work.run("filter", work, self._filtered, self._bad_query)

    def _filtered(self, kept: _Kept) -> None:
        pane, tree = self._context.nodes_pane, self._context.nodes_pane.scopes
        if tree is None or (kept.keep is not None and len(kept.keep) != len(tree.row)):
            return
        pane.mark_search(wrong=False)
        pane.filter(kept.keep, kept.count, self._context.state.query, self._context.watchpoint_names())

    def _bad_query(self, error: Exception) -> None:
        """A broken regular expression: the list stays, the box says so."""
        self._context.nodes_pane.mark_search(wrong=True)
        self._context.say(str(getattr(error, "what", error)), bad=True)

    def ask_filter(self) -> None:
        """Opens the filter dialog."""
        from tui_debugger.tui.dialogs.filters import FilterScreen

        nodes = self._context.nodes_pane.nodes
        if nodes is None:
            return
        screen = FilterScreen(self._context.state.query, nodes, self._context.watchpoint_names())
        self._context.app.push_screen(screen, lambda query: None if query is None else self.set_query(query))
