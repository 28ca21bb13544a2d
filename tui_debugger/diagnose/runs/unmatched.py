"""Nodes that only one run has: whether they make a difference, and what they made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.flow import Located
from tui_debugger.diagnose.runs.results import JudgedNode, NodeJudgement, OneSided
from tui_debugger.diagnose.runs.step import Asked, Feed
from tui_debugger.diagnose.runs.unrecorded import KEEPS_VALUES, UnrecordedTensors
from tui_debugger.graph.table import real_consumers
from tui_debugger.model import TensorKey
from tui_debugger.text.numbers import and_more

BLAMED: Final = "a difference begins here"
"""Covers a node that a finding names."""
_FEW: Final = 3
"""The most names that a sentence lists."""
_MOST_FOLLOWERS: Final = 8
"""The most one-sided calls that are looked at after a node whose outputs differ."""


class UnmatchedNodes(UnrecordedTensors):
    """The nodes of a step that have no partner, and their neighbours.

    Attributes:
        dy_of: distance of the outputs of judged nodes, by row of the first run.
        blamed: (side, row) of nodes at which a difference begins.
        finished: (side, row) of nodes that are explained, with a sentence.
    """

    def __init__(self, asked: Asked, before: UnrecordedTensors | None) -> None:
        super().__init__(asked, before)
        self.dy_of: dict[int, float] = {}
        self.blamed: set[tuple[int, int]] = set()
        self.finished: dict[tuple[int, int], str] = {}

    def one_sided(self, judged: Sequence[JudgedNode]) -> tuple[OneSided, ...]:
        passing = [each.match.rows for each in judged if each.judgement is NodeJudgement.INHERITED]
        alike = {NodeJudgement.SAME, NodeJudgement.ROUNDING, NodeJudgement.INHERITED}
        pairs = {each.match.rows for each in judged if each.judgement in alike}
        pairs |= {(row, self.matching.to_b[row]) for row in self.bridged(judged)}
        agreed = [{pair[side] for pair in pairs} for side in (0, 1)]
        found = []
        for side, rows in enumerate(self.matching.only):
            nodes = self.flows[side].nodes
            around = defaultdict(list)
            for container, inner in self.containers[side].items():
                for row in inner:
                    around[row].append(container)
            for row in rows:
                if self._dumped(side, row):
                    passed = {pair[side] for pair in passing}
                    covered = self._covered(side, row, (agreed[side], passed), around[row])
                    found.append(OneSided(side, row, nodes.names[row], int(nodes.order[row]), covered))
        return tuple(found)

    def _covered(self, side: int, row: int, known: tuple[set[int], set[int]], around: Sequence[int]) -> str:
        """Returns why a one-sided node makes no difference; empty where unknown.

        ``known`` has the nodes that agree or pass on a difference, and those that pass on. ``around`` has its modules.
        """
        agreed, passing = known
        told = BLAMED if (side, row) in self.blamed else self.finished.get((side, row), "")
        if told or row in self.containers[side]:
            return told or "a module: what runs inside is compared"
        if self.sides[side].is_parameter(row):
            readers = self._readers(side, row)
            return "nodes that read it agree" if readers and readers <= agreed else ""
        names = self.flows[side].nodes.names
        for container in around:
            if container in agreed:
                how = "passes on what differs before it" if container in passing else "agrees"
                return f"the module around it {how}: {names[container]}"
        readers = self._readers(side, row)
        if readers and readers <= agreed:
            how = "passes on what differs before it" if readers & passing else "agrees"
            return f"what reads its outputs {how}"
        if not real_consumers(self.flows[side].nodes, row) and self.kind_of(side, row) in KEEPS_VALUES:
            return "it only rearranges its input, and nothing reads it"
        return "its output is its input" if self._is_identity(side, row) else ""

    def _readers(self, side: int, row: int) -> set[int]:
        """The paired nodes that read a node's outputs, maybe through one-sided nodes and views that nobody dumped."""
        partner = self.matching.partner[side]
        found: set[int] = set()
        waiting, seen = [row], {row}
        while waiting:
            for reader, _ in real_consumers(self.flows[side].nodes, waiting.pop()):
                if reader in seen:
                    continue
                seen.add(reader)
                if reader in partner and (self._dumped(side, reader) or self._dumped(1 - side, partner[reader])):
                    found.add(reader)
                elif reader in partner or self._dumped(side, reader):
                    waiting.append(reader)
        return found

    def _is_identity(self, side: int, row: int) -> bool:
        arrays = [array for at in self.inputs(side, row) if (array := self.files[side].array(at)) is not None]
        made = [self.files[side].array(at) for at in self.outputs(side, row)]
        return bool(made) and all(one is not None and any(are_same(one, other) for other in arrays) for one in made)

    def inputs(self, side: int, row: int) -> list[Located | None]:
        flow = self.flows[side]
        slots = range(max(len(flow.holders(row)), 1))
        return [flow.locate_input(self.steps[side], row, slot) for slot in slots]

    def followers(self, side: int, row: int) -> list[int]:
        """Returns the one-sided calls that run directly after a node."""
        rows, place = self.sides[side].rows, self.sides[side].place
        partner = self.matching.partner[side]
        found: list[int] = []
        for each in rows[place[row] + 1 :]:
            if each in self.containers[side] or self.sides[side].is_parameter(each):
                continue
            if each in partner or len(found) == _MOST_FOLLOWERS:
                break
            found.append(each)
        return found

    def region(self, feed: Feed) -> tuple[list[tuple[int, int]], float | None]:
        """Returns the one-sided nodes (side, row) that made an input, and the distance of their inputs, if known."""
        region: list[tuple[int, int]] = []
        boundary: float | None = None
        waiting = [(side, feed.holders[side]) for side in (0, 1) if feed.holders[side] >= 0]
        seen = set(waiting)
        while waiting:
            side, row = waiting.pop()
            partner = self.matching.partner[side]
            if row in partner or self.sides[side].is_parameter(row):
                own = row if side == 0 else partner.get(row, -1)
                boundary = max(boundary or 0.0, self.dy_of.get(own, 0.0))
                continue
            if row in self.files[side].elsewhere:
                boundary = max(boundary or 0.0, self.files[side].elsewhere[row])
                continue
            region.append((side, row))
            for made in self.sides[side].producers(row):
                if (side, made) not in seen:
                    seen.add((side, made))
                    waiting.append((side, made))
        return region, boundary

    def is_one_sided(self, feed: Feed) -> bool:
        """Tells whether a one-sided node made an input; never where parts are put together."""
        return self.ranks == 1 and any(
            row >= 0
            and row in self.sides[side].place
            and not self.sides[side].is_parameter(row)
            and row not in self.matching.partner[side]
            and row not in self.files[side].elsewhere
            and (side, row) not in self.finished
            for side, row in enumerate(feed.holders)
        )

    def read_by(self, side: int, row: int) -> str:
        """Returns which paired nodes a node reads, in words; empty where unknown."""
        partner = self.matching.partner[side]
        read = [self.names[side][each] for each in sorted(self.sides[side].producers(row)) if each in partner]
        return f", which reads {and_more(read, _FEW)}" if read else ""

    def turned_bad(self, side: int, row: int) -> bool:
        return any(self._is_bad(side, at) for at in self.outputs(side, row)) and not any(
            self._is_bad(side, at) for at in self.inputs(side, row)
        )

    def _is_bad(self, side: int, at: Located | None) -> bool:
        array = self.files[side].array(at)
        return array is not None and array.dtype.kind not in "biu" and not np.isfinite(array.astype(np.float64)).all()

    def output_key(self, side: int, row: int) -> TensorKey | None:
        outputs = self.outputs(side, row)
        return self.flows[side].key(outputs[0]) if outputs else None


def are_same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
