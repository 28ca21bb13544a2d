"""The data flow between scopes: the boxes around one box of a tree of which some scopes are open.

An entry of the tree is a box if the scopes around it are open, and it is a node or a closed scope. Parameters and
constants are no boxes: a weight stands in the scope of its first reader, from which nothing flows to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Int64, Mask
from tui_debugger.graph.table import NodeTable, edges, pointers
from tui_debugger.graph.tree import ScopeTree, build_tree

MOST_OF_A_HOP = 12
"""The most boxes of a hop that are shown; marked boxes come first, then those with most edges."""


@dataclass(frozen=True, slots=True)
class ScopesAround:
    """The boxes some hops around a box.

    Attributes:
        entries: tree indices, the one in the middle first.
        layers: by box, 0 in the middle. An edge leads to a higher layer, unless it closes a circle.
        edges: number of the source, number of the target, how many tensors.
        hidden: how many more boxes there are within these hops.
    """

    entries: tuple[int, ...]
    layers: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]
    hidden: int


def drawn_entries(table: NodeTable) -> Mask:
    """Returns the entries that may be boxes: operators, and scopes with operators in them."""
    operators = table.watchable & ~table.are_parameters(np.arange(len(table)))
    return table.memo(build_tree).keep_mask(operators)


@dataclass(frozen=True, eq=False)
class _EntryTensors:
    """The tensors between operators, twice: what entry i makes goes to ``targets[made[i]:made[i + 1]]``.

    What it reads comes from ``sources[read[i]:read[i + 1]]``. A box is a range of entries, so its tensors are one, too.
    """

    made: Int32
    targets: Int32
    read: Int32
    sources: Int32

    @classmethod
    def of(cls, table: NodeTable) -> _EntryTensors:
        flow, entry, drawn = edges(table), table.memo(build_tree).index_of_rows, table.memo(drawn_entries)
        source, target = np.repeat(entry, np.diff(flow.out_ptr)), entry[flow.out_node]
        kept = drawn[source] & drawn[target]
        source, target = source[kept], target[kept]
        made, read = (pointers(np.bincount(ends, minlength=len(drawn))) for ends in (source, target))
        by_source, by_target = (np.argsort(ends, kind="stable") for ends in (source, target))
        return cls(made, target[by_source].astype(np.int32), read, source[by_target].astype(np.int32))


class ScopeFlow:
    """The flow between all boxes, with some scopes open (a mask over the entries of the tree)."""

    def __init__(self, table: NodeTable, opened: Mask) -> None:
        self.tree: ScopeTree = table.memo(build_tree)
        self._tensors = table.memo(_EntryTensors.of)
        shown = self.tree.visible(opened)
        boxes = shown[~(opened & (self.tree.size > 1))[shown]]
        box = np.zeros(len(self.tree), np.int32)
        box[boxes] = boxes
        self._box: Int32 = np.maximum.accumulate(box)  # in preorder what is below a box follows it

    def readers(self, entry: int) -> Int32:
        """Returns for every tensor that leaves a box the box that reads it."""
        return self._others(entry, self._tensors.made, self._tensors.targets)

    def makers(self, entry: int) -> Int32:
        """Returns for every tensor that a box reads the other box that makes it."""
        return self._others(entry, self._tensors.read, self._tensors.sources)

    def _others(self, entry: int, first: Int32, ends: Int32) -> Int32:
        found: Int32 = self._box[ends[first[entry] : first[entry + int(self.tree.size[entry])]]]
        others: Int32 = found[found != entry]
        return others

    def _ends(self, boxes: Sequence[int], *ways: Callable[[int], Int32]) -> Int32:
        return np.concatenate([np.zeros(0, np.int32), *(way(box) for box in boxes for way in ways)])

    def around(self, middle: int, hops: int, marked: Mask) -> ScopesAround:
        """Returns the boxes some hops around a box: what leads there, what it leads to, and beside them its siblings.

        A box that stands in another scope, and is only fed by the same as the middle, is no neighbour.
        """
        sibling, size = self.tree.parent == self.tree.parent[middle], len(self.tree)
        number = np.full(size, -1, np.int32)  # -2: hidden
        number[middle] = 0
        found = front = up = down = [middle]
        for _ in range(hops):
            before, after = self._ends(up, self.makers), self._ends(down, self.readers)
            beside = self._ends(front, self.makers, self.readers)
            near = np.concatenate([before, after, beside[sibling[beside]]])
            count = np.bincount(near[number[near] == -1], minlength=size)
            new = np.flatnonzero(count)
            kept = np.sort(new[np.lexsort((-count[new], ~marked[new]))[:MOST_OF_A_HOP]])
            number[new] = -2
            number[kept] = np.arange(len(kept)) + len(found)
            up, down = kept[np.isin(kept, before)].tolist(), kept[np.isin(kept, after)].tolist()
            front = kept.tolist()
            found = found + front
        ends = [number[self.readers(box)] for box in found]
        counts = np.stack([np.bincount(each[each >= 0], minlength=len(found)) for each in ends])
        return ScopesAround(
            tuple(found),
            tuple(_layers(counts, np.array(found)).tolist()),
            tuple((int(one), int(other), int(counts[one, other])) for one, other in np.argwhere(counts)),
            int(np.count_nonzero(number == -2)),
        )


def _layers(counts: Int64, entries: Int64) -> Int64:
    """Returns the layer of every box: after all that feeds it, and a box that nothing feeds just before its readers.

    A circle is cut where the fewest tensors flow, then before the box that runs first.
    """
    size = len(entries)
    waits: npt.NDArray[np.float64] = counts.sum(0).astype(np.float64)
    layers, turn = np.zeros(size, np.int64), np.full(size, size)
    for at in range(size):
        box = int(np.lexsort((entries, waits))[0])
        layers[box] = layers[(counts[:, box] > 0) & (turn < at)].max(initial=-1) + 1
        turn[box] = at
        waits -= counts[box]
        waits[box] = np.inf
    for box in np.argsort(-turn).tolist():
        later = (counts[box] > 0) & (turn > turn[box])
        if later.any() and not layers[box]:
            layers[box] = layers[later].min() - 1
    result: Int64 = layers - layers[0]
    return result
