"""Space on a node or scope: the selection of a watchpoint with that part put in or taken out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui_debugger.model import NodeKind, NodeSelection, NodeSelector

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree


@dataclass(frozen=True)
class Selecting:
    """Edits selections in terms of one rank's nodes."""

    nodes: NodeTable
    tree: Tree

    def selector(self, index: int) -> NodeSelector:
        """What names a tree entry: a node by its id, a scope by its path."""
        row = int(self.tree.row[index])
        if row >= 0:
            return NodeSelector(NodeKind.NODE, self.nodes.names[row])
        return NodeSelector(NodeKind.SCOPE, self.tree.path(index))

    def without(self, selection: NodeSelection, index: int) -> NodeSelection:
        """The entry taken out: what names it or something below it goes, what still covers it gets an exception."""
        include = tuple(each for each in selection.include if not self._inside(each, index))
        exclude = tuple(each for each in selection.exclude if not self._inside(each, index))
        return NodeSelection(include, (*exclude, self.selector(index)) if include else ())

    def having(self, selection: NodeSelection, index: int) -> NodeSelection:
        """The entry put in: exceptions about it go, exceptions around it shrink to what is beside it."""
        exclude: list[NodeSelector] = []
        for each in selection.exclude:
            if self._inside(each, index):
                continue
            around = self._scope_around(each, index)
            exclude += [each] if around < 0 else self._beside(around, index)
        include = tuple(each for each in selection.include if not self._inside(each, index))
        return NodeSelection((*include, self.selector(index)), tuple(dict.fromkeys(exclude)))

    def _inside(self, selector: NodeSelector, index: int) -> bool:
        """Whether a selector names the entry or something below it."""
        at = self._find(selector)
        return index <= at < index + int(self.tree.size[index])

    def _scope_around(self, selector: NodeSelector, index: int) -> int:
        at = self._find(selector)
        return at if 0 <= at < index < at + int(self.tree.size[at]) else -1

    def _find(self, selector: NodeSelector) -> int:
        if selector.kind is NodeKind.SCOPE:
            return self.tree.index_of_scope(selector.text)
        if selector.kind is NodeKind.NODE:
            row = self.nodes.find(selector.text)
            return self.tree.index_of_row(row) if row >= 0 else -1
        return -1

    def _beside(self, around: int, index: int) -> Iterator[NodeSelector]:
        """Everything in a scope but the way down to an entry."""
        child = around + 1
        end = around + int(self.tree.size[around])
        while child < end:
            after = child + int(self.tree.size[child])
            if child <= index < after:
                if child != index:
                    yield from self._beside(child, index)
            else:
                yield self.selector(child)
            child = after
