"""The scopes around a node as a sketch: scopes that open and close, the data flow between them, and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.diagnose.relations import flow_words
from tui_debugger.graph.scopes import ScopeFlow, drawn_entries
from tui_debugger.graph.tree import build_tree
from tui_debugger.model import TensorKey
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.text.sketch import Edge, Sketch, SketchBox, SketchGraph, draw_sketch
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.relations_sketch import MOST_LINES, BoxPicture
from tui_debugger.tui.widgets.open_tree import OpenTree, same_entry

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.session import Session

_COMFORTABLE = 20
_CLOSED = f"{theme.CLOSED_GLYPH} "


class OpenScopes:
    """The open scopes of a rank's tree, and the box in the middle."""

    def __init__(self, session: Session, key: TensorKey, nodes: NodeTable, opened: OpenTree, middle: int) -> None:
        self._session, self._key = session, key
        self.nodes, self.tree, self._open = nodes, opened.tree, opened
        self._drawn = nodes.memo(drawn_entries)
        self._result = session.known([(key.rank, key.step)])
        nothing = np.zeros(len(nodes), np.bool_)
        self._hit = self._origin = nothing
        if self._result is not None:
            self._hit, self._origin, *_ = self._result.hits.found_by_node(key.rank, key.step, len(nodes))
        self._marked = self.tree.keep_mask(self._hit)
        ScopeFlow(nodes, self._marked)  # what takes long is known before a key asks for it
        self.centre(middle)

    @classmethod
    def at(cls, session: Session, key: TensorKey, row: int, scope: str = "") -> OpenScopes:
        """Begins at a scope, or at the one around a node."""
        nodes = session.nodes(key.rank)
        tree = nodes.memo(build_tree)
        entry = tree.index_of_row(row)
        around = tree.index_of_scope(scope) if scope else int(tree.parent[entry])
        opened = OpenTree(tree, np.zeros(len(tree), np.bool_))
        return cls(session, key, nodes, opened, around if around >= 0 else entry)

    def anew(self) -> OpenScopes:
        """Returns the nodes and the findings of now, with the same scopes open, as far as they are still there."""
        nodes = self._session.nodes(self._key.rank)
        tree = nodes.memo(build_tree)
        opened = self._open.carried_to(tree)
        return OpenScopes(self._session, self._key, nodes, opened, max(same_entry(self.tree, self.middle, tree), 0))

    # -- open and close ------------------------------------------------------------------------------

    def centre(self, entry: int) -> None:
        """Puts a box into the middle."""
        self.middle = entry
        self._open.open_around(entry)
        self._open.opened[entry] = False

    def open(self, entry: int) -> bool:
        """Opens a scope, and a single scope in it, too; False if no operator is in it."""
        inside = self._inside(entry)
        while len(inside) == 1 and self.tree.is_scope(int(inside[0])):
            inside = self._inside(int(inside[0]))
        if not len(inside):
            return False
        self.centre(int(inside[np.argmax(self._marked[inside])]))  # the first with a finding, else the first
        return True

    def close(self, entry: int) -> bool:
        """Closes the scope around a box, and further ones with this box alone; False if there is none."""
        around = self.tree.ancestors(entry)
        if not around:
            return False
        self.centre(next((scope for scope in around if len(self._inside(scope)) > 1), around[-1]))
        return True

    def _inside(self, entry: int) -> np.ndarray:
        found: np.ndarray = np.flatnonzero((self.tree.parent == entry) & self._drawn)
        return found

    # -- what is shown -------------------------------------------------------------------------------

    @property
    def _flow(self) -> ScopeFlow:
        return ScopeFlow(self.nodes, self._open.opened)

    def picture(self, hops: int) -> BoxPicture:
        """Returns the boxes around the one in the middle, by tree index."""
        around = self._flow.around(self.middle, hops, self._marked)
        names = self._names(around.entries)
        boxes = [self._box(entry, name) for entry, name in zip(around.entries, names, strict=True)]
        edges = [Edge(source, target, f"{count:,}" if count > 1 else "") for source, target, count in around.edges]
        graph = SketchGraph(boxes, edges, layers=around.layers, comfortable=_COMFORTABLE)

        def draw(width: int) -> tuple[Sketch, list[str]]:
            drawn = draw_sketch(graph, width, MOST_LINES)
            farther, back = around.hidden + drawn.beyond, [edges[number] for number in drawn.left_out]
            notes = [flow_words(self.nodes)]
            notes += [f"{plural(farther, 'box', 'boxes')} farther away: no room"] if farther else []
            ways = (f"{edge.label or 1} from {names[edge.source]} to {names[edge.target]}" for edge in back)
            notes += [f"{plural(len(back), 'link')} backwards, not drawn: {', '.join(ways)}"] if back else []
            return drawn, notes

        return BoxPicture(around.entries, [box.mark for box in boxes], draw)

    def _names(self, entries: Sequence[int]) -> list[str]:
        """Returns the ends of the paths, as short as they differ."""
        paths = [self.tree.path(entry).split("/") for entry in entries]
        ends = [["/".join(path[-part:]) for part in range(1, len(path) + 1)] for path in paths]
        count = Counter(end for each in ends for end in each)
        return [clean(next((end for end in each if count[end] == 1), each[-1])) for each in ends]

    def _box(self, entry: int, name: str) -> SketchBox:
        rows = self.tree.rows_below(entry)
        found, origins = int(self._hit[rows].sum()), bool(self._origin[rows].any())
        mark = theme.ORIGIN_GLYPH if origins else theme.HIT_GLYPH if found else ""
        if not self.tree.is_scope(entry):
            return SketchBox(name, mark, important=bool(mark))
        note = f"{found:,}" if found else ""
        return SketchBox(_CLOSED + name, mark, note, plural(len(rows), "node"), important=bool(mark))

    def words(self, entry: int) -> tuple[str, str, str]:
        """Returns the flow through a box, its findings, and its place."""
        rows, flow, step = self.tree.rows_below(entry), self._flow, step_text(self._key.step)
        found, origins = int(self._hit[rows].sum()), int(self._origin[rows].sum())
        hits = f"no finding at step {step}"
        if self._result is None:
            hits = f"step {step} was not checked: r on the main screen does"
        elif found:
            hits = f"{theme.HIT_GLYPH} {plural(found, 'node')} with findings at step {step}"
            hits += f", {theme.ORIGIN_GLYPH} {plural(origins, 'origin')}" if origins else ""
        kind = plural(len(rows), "node") if self.tree.is_scope(entry) else clean(self.nodes.op_type(int(rows[0])))
        reads, makes = len(flow.makers(entry)), len(flow.readers(entry))
        words = f"{kind}  reads {plural(reads, 'tensor')} of other boxes, they read {plural(makes, 'tensor')} of it"
        return words, hits, f"  step {step}  rank {self._key.rank}"

    def target(self, entry: int) -> ViewTarget:
        """Returns the tensor of the first origin in a box, else of its first finding, else of what runs first."""
        rows = self.tree.rows_below(entry)
        if self._result is not None and self._hit[rows].any():
            hits = self._result.hits.of_nodes(rows.tolist())
            found = np.flatnonzero(hits.found())
            return ViewTarget.of_hit(hits[int(found[np.argmax(hits.origin[found])])])
        rows = next(kept for keep in (self._drawn, None) if len(kept := self.tree.rows_below(entry, keep)))
        row = int(rows[0])
        return ViewTarget(self.nodes.key(self._key.rank, self._key.step, row), row)
