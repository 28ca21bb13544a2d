"""What workers found out about an open run: past-tense messages with immutable results, see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.tui.messages import Finished

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.check.types import CheckResult, TensorRow
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.panes.stack import RunRows
    from tui_debugger.tui.panes.watch_rows import Tally
    from tui_debugger.tui.watcher import Marks


@dataclass(eq=False)
class NodesLoaded(Finished):
    """Nodes of a rank.

    Attributes:
        rank, nodes, tree: what was loaded.
        notes: the dim text that the tree shows after each label.
        dull: which tree entries hold nothing but constants, and stay closed at first.
    """

    rank: int
    nodes: NodeTable
    tree: Tree
    notes: tuple[str, ...]
    dull: npt.NDArray[np.bool_]


@dataclass(eq=False)
class NodesFiltered(Finished):
    """The answer to a node query: what to keep, over tree indices (None: everything), and how many nodes that is."""

    rank: int
    keep: npt.NDArray[np.bool_] | None
    count: int


@dataclass(eq=False)
class NodesMarked(Finished):
    """Which nodes are watched, hit, origins; and how many nodes each watchpoint covers, by id."""

    rank: int
    marks: Marks
    covered: dict[int, int]


@dataclass(eq=False)
class StackIndexed(Finished):
    """Source lines of a rank, searched."""

    rank: int
    rows: RunRows


@dataclass(eq=False)
class TensorsListed(Finished):
    """The tensors of a node, before (``measured`` False) or after they were read."""

    rank: int
    step: int
    row: int
    rows: tuple[TensorRow, ...]
    measured: bool


@dataclass(eq=False)
class Checked(Finished):
    """Some (rank, step) pairs were checked; ``final`` is False for a part of a running check."""

    result: CheckResult
    tally: Tally
    final: bool = True


@dataclass(eq=False)
class HitsFound(Finished):
    """A search of the hit list: which hits of a result it found, None when there was nothing to search for."""

    result: CheckResult
    found: npt.NDArray[np.bool_] | None


@dataclass(eq=False)
class CheckTooLarge(Finished):
    """A step reset did not check by itself, because so many bytes would have to be read."""

    size: int


@dataclass(eq=False)
class StepFound(Finished):
    """Continue ended: at a step with a hit, or at the last step."""

    result: CheckResult
    tally: Tally
    searched_to: int


@dataclass(eq=False)
class Saved(Finished):
    """A tensor was written."""

    path: Path


@dataclass(eq=False)
class Refreshed(Finished):
    """The directory was looked at again."""

    changes: Changes
