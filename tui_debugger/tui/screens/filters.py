"""Filters of the node list and of the hit list."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tui_debugger.graph.query import NodeQuery
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category
from tui_debugger.tui.kinds import CATEGORIES
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.tui.screens.toggles import Switch, TogglesScreen
from tui_debugger.words.clean import clean

ONLY, ALSO = "Only", "Also"
WATCHED, CATEGORY, GRAPH, TYPE = "Watched by", "Category", "Graph", "Operator type"
WATCHPOINT, RANK = "Watchpoint", "Rank"
HIT, LINE, STRUCTURAL, QUIET = "hit", "line", "structural", "quiet"


class FilterScreen(TogglesScreen[NodeQuery]):
    """Filters nodes. Search text and its options stay as they are."""

    heading = "Filter nodes"

    def __init__(self, current: NodeQuery, nodes: NodeTable, watchpoints: Mapping[int, str]) -> None:
        """Starts with the switches of ``current`` on.

        Args:
            current: the query that is in force.
            nodes: its graphs, categories and operator types can be chosen.
            watchpoints: text by watchpoint id.
        """
        self.current = current
        switches = [Switch(ONLY, HIT, "nodes with a hit")]
        if current.line is not None:
            switches.append(Switch(ONLY, LINE, f"nodes of {clean(current.line[0])}:{current.line[1]}"))
        switches += [Switch(WATCHED, 0, "any enabled watchpoint", single=True)]
        switches += [Switch(WATCHED, number, text, single=True) for number, text in watchpoints.items()]
        present = {Category(int(value)) for value in np.unique(nodes.category)} | current.categories
        switches += [Switch(CATEGORY, category, CATEGORIES[category]) for category in Category if category in present]
        if len(nodes.graphs) > 1:
            switches += [Switch(GRAPH, info.name, info.name) for info in nodes.graphs]
        shown = {nodes.types[int(number)] for number in np.unique(nodes.type_id)}
        switches += [Switch(TYPE, name.lower(), name) for name in sorted(shown, key=str.lower)]
        switches += [Switch(ALSO, STRUCTURAL, "nodes that only pass values on (Depend, MakeTuple …)")]
        super().__init__(switches, _turned(current))

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> NodeQuery:
        """The query with these filters."""
        only = chosen.get(ONLY, frozenset())
        return replace(
            self.current,
            categories=frozenset(key for key in chosen.get(CATEGORY, ()) if isinstance(key, Category)),
            types=frozenset(map(str, chosen.get(TYPE, ()))),
            graphs=frozenset(map(str, chosen.get(GRAPH, ()))),
            watched=next(iter(_numbers(chosen.get(WATCHED))), None),
            hit=HIT in only,
            line=self.current.line if LINE in only else None,
            structural=ALSO in chosen,
        )


def _turned(query: NodeQuery) -> set[tuple[str, Hashable]]:
    turned: set[tuple[str, Hashable]] = {(CATEGORY, category) for category in query.categories}
    turned |= {(TYPE, name) for name in query.types} | {(GRAPH, graph) for graph in query.graphs}
    turned |= {(WATCHED, query.watched)} if query.watched is not None else set()
    turned |= {(ONLY, HIT)} if query.hit else set()
    turned |= {(ONLY, LINE)} if query.line is not None else set()
    return turned | ({(ALSO, STRUCTURAL)} if query.structural else set())


class HitFilterScreen(TogglesScreen[HitFilter]):
    """Filters hits."""

    heading = "Filter hits"

    def __init__(
        self, current: HitFilter, watchpoints: Mapping[int, str], graphs: Sequence[str], ranks: Sequence[int]
    ) -> None:
        """Starts with the switches of ``current`` on; the rest is what can be chosen."""
        self.current = current
        switches = [Switch(WATCHPOINT, number, text) for number, text in watchpoints.items()]
        if len(ranks) > 1:
            switches += [Switch(RANK, rank, f"rank {rank}") for rank in ranks]
        if len(graphs) > 1:
            switches += [Switch(GRAPH, graph, graph) for graph in graphs]
        switches += [Switch(ALSO, QUIET, "rows where there was nothing to compare with")]
        turned: set[tuple[str, Hashable]] = {(WATCHPOINT, number) for number in current.watchpoints}
        turned |= {(RANK, rank) for rank in current.ranks} | {(GRAPH, graph) for graph in current.graphs}
        super().__init__(switches, turned | ({(ALSO, QUIET)} if current.quiet else set()))

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> HitFilter:
        """The filter with these switches on."""
        return replace(
            self.current,
            watchpoints=_numbers(chosen.get(WATCHPOINT)),
            graphs=frozenset(map(str, chosen.get(GRAPH, ()))),
            ranks=_numbers(chosen.get(RANK)),
            quiet=ALSO in chosen,
        )


def _numbers(keys: frozenset[Hashable] | None) -> frozenset[int]:
    return frozenset(key for key in keys or () if isinstance(key, int))
