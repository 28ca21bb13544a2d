"""The inputs of other ranks to a collective operation: a difference there shows on all ranks that take part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tui_debugger.check.contents import Content, KnownBy
from tui_debugger.check.flow import DataFlow
from tui_debugger.diagnose.runs.results import BothRuns, StepPlace
from tui_debugger.graph.table import real_inputs
from tui_debugger.model import PARAMETERS, ProgressFn, Side

_DEEPEST: Final = 8
"""The longest chain of unrecorded nodes that is followed."""


class OtherRanks:
    """The same step on the other ranks of two runs."""

    def __init__(self, runs: BothRuns, place: StepPlace, progress: ProgressFn) -> None:
        self._runs, self._place, self._progress = runs, place, progress

    def put_in_alike(self, flow: DataFlow, row: int) -> bool | None:
        """Tells whether all other ranks gave the same input in both runs; None: unknown."""
        name, graph = flow.nodes.names[row], flow.nodes.graph_of(row).name
        own, (here, there) = self._place.rank_a, self._runs
        members = flow.nodes.group_ranks.get(row) or tuple(here.ranks())
        if own != self._place.rank_b or len(members) < 2:
            return None
        found: list[bool | None] = []
        for rank in (rank for rank in members if rank != own):
            known = [
                rank in run.ranks() and step in run.steps(rank)
                for run, step in ((here, self._place.step_a), (there, self._place.step_b))
            ]
            if not all(known):
                found.append(None)
                continue
            flows = here.flow(rank, self._progress), there.flow(rank, self._progress)
            at = flows[0].nodes.find(name, graph)
            found.append(self._made_of_the_same(flows, at, 0) if at >= 0 else None)
        return _all_of(found)

    def _made_of_the_same(self, flows: tuple[DataFlow, DataFlow], row: int, depth: int) -> bool | None:
        nodes = flows[0].nodes
        inputs = [] if depth > _DEEPEST else real_inputs(nodes, row)
        return _all_of([self._is_alike(flows, of, slot, depth) for of, slot in inputs] or [None])

    def _is_alike(self, flows: tuple[DataFlow, DataFlow], row: int, slot: int, depth: int) -> bool | None:
        """Tells whether a tensor is the same in both runs: by itself, else by what it was made of."""
        if row < 0:
            return None
        name, graph = flows[0].nodes.names[row], flows[0].nodes.graph_of(row).name
        if flows[0].nodes.category_of(row) in PARAMETERS:
            return None  # what was recorded of a weight is what the step left in it
        one = self._content(0, flows[0], row, slot)
        other = self._content(1, flows[1], flows[1].nodes.find(name, graph), slot)
        if one is not None and other is not None and one.by is other.by:
            if one.value != other.value:
                return False
            if one.by > KnownBy.STATISTICS:
                return True
        return self._made_of_the_same(flows, row, depth + 1)

    def _content(self, side: int, flow: DataFlow, row: int, slot: int) -> Content | None:
        step = (self._place.step_a, self._place.step_b)[side]
        index = flow.located(step, row, Side.OUTPUT, slot).index if row >= 0 else -1
        if index < 0:
            return None
        (found,) = self._runs[side].contents.of(flow, step, [index], self._progress)
        return found if found.by else None


def _all_of(found: Sequence[bool | None]) -> bool | None:
    """False if any is False, else None if any is None."""
    if False in found:
        return False
    return None if None in found else True
