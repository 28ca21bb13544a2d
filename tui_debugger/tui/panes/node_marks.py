"""The marks of the node tree: watched, hit, origin. They are columns, and loaded only when there is a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Verdict

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree
    from tui_debugger.session import CheckResult


@dataclass(frozen=True)
class Marks:
    """The meaning of the glyphs of the tree, over tree indices.

    Attributes:
        watch: 0 none, 1 some, 2 all nodes below are watched.
        hit: something below has a finding at the step that is shown.
        origin: something below is an origin there.
        hit_elsewhere, origin_elsewhere: the same at some other step.
        uncertain, file_only: marks of single nodes.
    """

    watch: npt.NDArray[np.uint8]
    hit: Mask
    origin: Mask
    hit_elsewhere: Mask
    origin_elsewhere: Mask
    uncertain: Mask
    file_only: Mask

    def same(self, other: Marks) -> bool:
        """Tells whether two sets of marks draw the same."""
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.watch, other.watch),
                (self.hit, other.hit),
                (self.origin, other.origin),
                (self.hit_elsewhere, other.hit_elsewhere),
                (self.origin_elsewhere, other.origin_elsewhere),
                (self.uncertain, other.uncertain),
                (self.file_only, other.file_only),
            )
        )

    @classmethod
    def none(cls, size: int) -> Marks:
        """Returns marks where nothing is marked."""
        no = np.zeros(size, np.bool_)
        return cls(np.zeros(size, np.uint8), no, no, no, no, no, no)


def make_marks(
    nodes: NodeTable,
    tree: Tree,
    watched: npt.NDArray[np.uint8] | None,
    result: CheckResult | None,
    place: tuple[int, int | None],
) -> Marks:
    """Returns marks over tree indices, from columns over node rows and the findings of a run.

    Args:
        nodes: of the rank that is shown.
        tree: likewise.
        watched: which nodes the selected watchpoint covers; None where none is selected.
        result: the findings.
        place: the rank and step that are shown.
    """
    marked = [np.zeros(len(nodes), np.bool_) for _ in range(4)]
    if result is not None:
        hits = result.hits
        # A table that was just built anew may be shorter than the last check's.
        found = (hits.node < len(nodes)) & (hits.rank == place[0]) & (hits.verdict == Verdict.FINDING)
        here = hits.at(*place)
        for mask, which in zip(marked, (here, here & hits.origin, ~here, ~here & hits.origin), strict=True):
            mask[hits.node[found & which]] = True
    hit, origin, hit_elsewhere, origin_elsewhere = (tree.any_below(mask) for mask in marked)
    leaves = np.asarray(tree.row)
    flags = np.where(leaves >= 0, nodes.flags[leaves], 0) if len(nodes) else np.zeros(len(leaves), np.uint8)
    return Marks(
        watch=tree.spread(watched > 0 if watched is not None else np.zeros(len(nodes), np.bool_)),
        hit=hit,
        origin=origin,
        hit_elsewhere=hit_elsewhere,
        origin_elsewhere=origin_elsewhere,
        uncertain=(flags & NodeFlag.UNCERTAIN) > 0,
        file_only=(flags & NodeFlag.FILE_ONLY) > 0,
    )
