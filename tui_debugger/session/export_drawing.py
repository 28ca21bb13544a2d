"""Writes a graph as .dot for graphviz; nodes with findings are coloured.

Nodes that only route values are left out: an edge goes from the producer of a tensor to its reader. Names come from a
run and may hold anything: every character that the grammar could interpret is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.graph.table import CONSTANT, NodeTable, edges
from tui_debugger.model import PARAMETERS, Verdict
from tui_debugger.session.export_files import fresh_text
from tui_debugger.session.export_graph import EVERYTHING, GraphPart
from tui_debugger.text.clean import clean
from tui_debugger.text.tables import cut_middle

if TYPE_CHECKING:
    from tui_debugger.check.types import CheckResult
    from tui_debugger.session.session import Session

LONGEST: Final = 60
"""Cells of a value in a drawing."""


class Mark(Enum):
    """The findings on a node; a value is the sign of the mark and the name of its colours."""

    ORIGIN = "◆ ", "origin"
    FINDING = "✗ ", "finding"
    DOUBT = "? ", "doubt"
    NONE = "", ""

    @property
    def sign(self) -> str:
        """The text before the name: a colour is never the only sign."""
        return self.value[0]

    @property
    def kind(self) -> str:
        return self.value[1]


COLOURS: Final = {
    "origin": ("#ff9f1c", "#8a4b00", 3),
    "finding": ("#ffd9a0", "#b35c00", 1),
    "doubt": ("#eeeeee", "#b35c00", 1),
}
"""The colours of the marks: fill, edge, and the width of the edge."""


@dataclass(frozen=True, eq=False)
class DrawnGraph:
    """The graph of one rank; ``rows`` are in execution order, ``centre`` is what the drawing is around."""

    rank: int
    nodes: NodeTable
    rows: tuple[int, ...]
    marks: Mapping[int, Mark] = field(default_factory=dict)
    centre: frozenset[int] = frozenset()

    def edges(self) -> Iterator[tuple[int, int, str]]:
        """Yields (producer, consumer, input slots), ordered by consumer and by its first slot with that producer."""
        flow, drawn = edges(self.nodes), set(self.rows)
        for row in self.rows:
            start, stop = int(flow.in_ptr[row]), int(flow.in_ptr[row + 1])
            slots: dict[int, list[int]] = {}
            for at, producer in enumerate(flow.in_node[start:stop].tolist()):
                if producer in drawn:
                    slots.setdefault(producer, []).append(at)
            for producer, taken in slots.items():
                yield producer, row, ",".join(map(str, taken))

    def labels(self) -> dict[int, str]:
        """Returns the text of each node: its name, with its scope where several nodes share the name."""
        names = {row: clean(self.nodes.names[row]) for row in self.rows}
        leaves = Counter(name.rpartition("/")[2] for name in names.values())
        found = {}
        for row, name in names.items():
            leaf = name.rpartition("/")[2]
            text = leaf if leaves[leaf] == 1 else name
            value = self.nodes.constants.get(row, "")
            text += f" = {cut_middle(clean(value), LONGEST)}" if value and self.is_constant(row) else ""
            found[row] = self.marks.get(row, Mark.NONE).sign + text
        return found

    def is_constant(self, row: int) -> bool:
        return self.nodes.op_type(row) == CONSTANT

    def is_parameter(self, row: int) -> bool:
        """Whether a row is a weight or another parameter."""
        return self.nodes.category_of(row) in PARAMETERS


def drawn_graphs(
    session: Session,
    ranks: Iterable[int],
    result: CheckResult | None,
    part: GraphPart = EVERYTHING,
) -> Iterator[DrawnGraph]:
    """Yields the graphs of ranks, restricted to ``part`` of the session's scope; ``result`` is None without a check."""
    for rank in part.ranks(ranks):
        nodes = session.nodes(rank)
        mask = part.mask(session, rank) & ~nodes.structural
        for row in nodes.constants:
            mask[row] &= not nodes.orders_only(row)
        centre = frozenset[int]() if part.around is None else frozenset({part.around[rank]})
        rows = np.flatnonzero(mask)
        order = np.where(nodes.order[rows] < 0, np.iinfo(np.int32).max, nodes.order[rows])
        rows = rows[np.argsort(order, kind="stable")]
        yield DrawnGraph(rank, nodes, tuple(rows.tolist()), _marks(result, rank, len(nodes)), centre)


def _marks(result: CheckResult | None, rank: int, count: int) -> dict[int, Mark]:
    """Returns the worst finding on each node, over all steps."""
    found: dict[int, Mark] = {}
    if result is None:
        return found
    hits = result.hits
    here = (hits.rank == rank) & (hits.node < count)
    for mark, mask in (
        (Mark.DOUBT, hits.verdict == Verdict.CANNOT_JUDGE),
        (Mark.FINDING, hits.found()),
        (Mark.ORIGIN, hits.found() & hits.origin),
    ):
        found |= dict.fromkeys(np.unique(hits.node[here & mask]).tolist(), mark)
    return found


@dataclass(frozen=True, slots=True)
class DrawingSize:
    """The number of nodes and edges that were drawn."""

    nodes: int
    edges: int


def write_drawing(graphs: Iterable[DrawnGraph], path: Path, dump: Path, *, force: bool = False) -> DrawingSize:
    """Writes graphs in the language of graphviz; errors as of ``fresh_file``."""
    number = [0, 0]
    with fresh_text(path, dump, force=force) as file:
        file.writelines(f"{line}\n" for line in _dot(list(graphs), number))
    return DrawingSize(*number)


_LEGEND: Final = "◆ origin, ✗ finding, ? could not be judged"


def _parts(graph: DrawnGraph) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {info.name: [] for info in graph.nodes.graphs}
    for row in graph.rows:
        found[graph.nodes.graph_of(row).name].append(row)
    return [(name, rows) for name, rows in found.items() if rows]


def dot_text(text: str) -> str:
    """Returns a string literal of the dot language that shows exactly this text, cleaned."""
    escaped = clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return f'"{escaped}"'


def _dot(graphs: list[DrawnGraph], number: list[int]) -> Iterator[str]:
    several = sum(len(_parts(graph)) for graph in graphs) > 1
    yield f"// {_LEGEND}"
    yield "digraph tdbg {"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];'
    yield '  edge [fontname="Helvetica", fontsize=10];'
    for graph in graphs:
        labels = graph.labels()
        for name, rows in _parts(graph):
            if several:
                yield f"  subgraph cluster_{graph.rank}_{graph.nodes.graph[rows[0]]} {{"
                yield f"    label={dot_text(f'rank {graph.rank}  {name}')};"
            for row in rows:
                number[0] += 1
                yield f"  n{graph.rank}_{row} [{', '.join(_dot_node(graph, row, labels[row]))}];"
            if several:
                yield "  }"
        for source, target, slots in graph.edges():
            number[1] += 1
            yield f"  n{graph.rank}_{source} -> n{graph.rank}_{target} [label={dot_text(f'in:{slots}')}];"
    yield "}"


def _dot_node(graph: DrawnGraph, row: int, label: str) -> Iterator[str]:
    nodes = graph.nodes
    yield f"label={dot_text(label)}"
    yield f"tooltip={dot_text(f'{nodes.op_type(row)}  {nodes.names[row]}')}"
    if graph.is_constant(row):
        yield "shape=plaintext"
    elif graph.is_parameter(row):
        yield "shape=ellipse"
    mark = graph.marks.get(row, Mark.NONE)
    width = 4 if row in graph.centre else COLOURS[mark.kind][2] if mark.kind else 0
    if mark.kind:
        inside, edge, _ = COLOURS[mark.kind]
        yield f'fillcolor="{inside}"'
        yield f'color="{edge}"'
    if width:
        yield f"penwidth={width}"
