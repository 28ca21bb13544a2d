"""What the screen shows: a handful of values that the controllers change and the panes are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tui_debugger.graph.search import NodeQuery

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.panes.watch_rows import Tally


@dataclass
class State:
    """The position in the run and the last answers.

    Attributes:
        rank, step: where we are; step None while nothing is dumped.
        row: selected node, -1 for none.
        query: what restricts the node list.
        watchpoint: id of the selected watchpoint.
        result: what the hit list shows; None when nothing was checked.
        tally: what there is to count in it.
        too_large: bytes that a check of this step would read, when it did not start by itself.
        unordered: whether some run of the rank ran after one of a later step.
        goal: a tensor, with its node's row, to go to as soon as its rank's nodes are there.
    """

    rank: int = 0
    step: int | None = None
    row: int = -1
    query: NodeQuery = field(default_factory=NodeQuery)
    watchpoint: int | None = None
    result: CheckResult | None = None
    tally: Tally | None = None
    too_large: int = 0
    unordered: bool = False
    goal: tuple[TensorKey, int] | None = None
