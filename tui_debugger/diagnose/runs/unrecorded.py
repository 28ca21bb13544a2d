"""Tensors that neither run recorded: evidence that they agree, and bounds of their distance.

An unrecorded tensor, such as a view of a weight, is covered where its inputs and its readers all agree. A state that an
optimizer has not made yet is covered by what the optimizer makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from tui_debugger.check.flow import Located
from tui_debugger.diagnose.recompute.table import find_operator
from tui_debugger.diagnose.runs.distance import INTRODUCED, ComparedBy, Distance
from tui_debugger.diagnose.runs.results import JudgedNode, NodeJudgement
from tui_debugger.diagnose.runs.step import Asked, Feed, NodePair, Places, StepTensors
from tui_debugger.graph.categories import DRAWN_UPDATES, is_random, update_of
from tui_debugger.graph.table import real_consumers
from tui_debugger.sources.base import NOT_RECORDED, OtherArgument

_AGREES: Final = frozenset({NodeJudgement.SAME, NodeJudgement.ROUNDING})
KEEPS_VALUES: Final = frozenset({"reshape", "transpose", "expand", "copy", "fill"})
"""Kinds of operators that only rearrange their input, or do not depend on one."""
_COPIES: Final = frozenset({"cast", "copy"})
_SAYS_NOTHING: Final = frozenset({"unchanged"})
"""Arguments of gradient nodes that do not tell what they compute."""
_ASKED: Final = 200
"""The number of nodes that are checked for recorded calls."""
_NOTHING_DIFFERS: Final = Distance(ComparedBy.VALUES)


class UnrecordedTensors(StepTensors):
    """The tensors of a step that neither run recorded; all rows are those of the first run.

    ``entries_of`` has a pair of nodes for each time they ran; outputs of ``seen`` agreed at this step or before.
    """

    def __init__(self, asked: Asked, before: UnrecordedTensors | None) -> None:
        super().__init__(asked, before)
        self.entries_of: dict[int, list[NodePair]] = {}
        self.seen: set[int] = set(before.seen) if before is not None else set()

    def note_entries(self, entries: Iterable[NodePair]) -> None:
        for entry in entries:
            self.entries_of.setdefault(entry.a, []).append(entry)

    # -- what is known of an input -----------------------------------------------------------------

    def known(self, feed: Feed, through: frozenset[int] = frozenset()) -> Distance | None:
        """Returns the distance of an input, or of the tensor that it is a view of; ``through`` stops cycles."""
        found = self.distance(*feed.at)
        if (found is not None and found.compared) or not self._is_bare(feed.at):
            return found
        row = feed.holders[0]
        if row < 0 or self.matching.to_b.get(row, -1) != feed.holders[1]:
            return found
        if self.is_parameter(row):
            return self._as_read.get(row, found)
        entries = self.entries_of.get(row, [])
        if row in through or len(entries) != 1 or not self.keeps_values(entries[0]):
            return found
        behind = [self.known(each, through | {row}) for each in entries[0].feeds]
        inputs = [each for each in behind if each is not None and each.compared]
        return (
            max(inputs, key=lambda each: each.relative, default=_NOTHING_DIFFERS)
            if len(inputs) == len(behind)
            else found
        )

    @cached_property
    def _as_read(self) -> dict[int, Distance]:
        """The largest recorded distance of each parameter where a node of the step read it."""
        found: dict[int, Distance] = {}
        for entries in self.entries_of.values():
            for feed in (feed for entry in entries for feed in entry.feeds if feed.own):
                distance, row = self.distance(*feed.at), feed.holders[0]
                if row < 0 or distance is None or not distance.compared or not self.is_parameter(row):
                    continue
                if row not in found or distance.relative > found[row].relative:
                    found[row] = distance
        return found

    def keeps_values(self, entry: NodePair) -> bool:
        """Tells whether a node only moves the values of its input, in the same way in both runs."""
        if not self._called_alike(entry.a):
            return False
        types = [flow.nodes.op_type(row) for flow, row in zip(self.flows, entry.match.rows, strict=True)]
        return types[0] == types[1] and self.kind_of(0, entry.a) in KEEPS_VALUES

    def kind_of(self, side: int, row: int) -> str:
        """The kind of an operator of PyTorch, as the rules that recompute it call it; empty where there is none."""
        operator = find_operator(self.flows[side].nodes.op_type(row), is_module=False, is_graph=False, is_aten=True)
        return operator.kind if operator is not None else ""

    def _called_alike(self, row: int) -> bool:
        """Tells whether an operator was recorded with the same arguments in both runs."""
        one, other = self.calls((row, self.matching.to_b[row]))
        if one is None or other is None or not one.aten:
            return False
        return (one.positional, one.keywords) == (other.positional, other.keywords)

    def reads_nothing_known(self, entry: NodePair) -> bool:
        """Tells whether a node reads only constants and tensors that the recorder lacks."""
        if any(self.matters(feed) and not self.is_constant(feed) for feed in entry.feeds):
            return False
        call = self.call(0, entry.a, entry.rounds[0])
        given = () if call is None else (*call.positional, *call.keywords.values())
        return any(isinstance(each, OtherArgument) and each.kind == NOT_RECORDED for each in given)

    def is_constant(self, feed: Feed) -> bool:
        return all(flow.is_constant(row) for flow, row in zip(self.flows, feed.holders, strict=True))

    def matters(self, feed: Feed) -> bool:
        """Tells whether an input that cannot be compared may explain the output."""
        return any(holder >= 0 or at is not None for holder, at in zip(feed.holders, feed.at, strict=True))

    def is_only_bounded(self, feed: Feed, distance: Distance) -> bool:
        """Tells whether an input's distance is only a lower bound; statistics of random masks are alike."""
        if distance.how is not ComparedBy.STATISTICS:
            return False
        drawn = feed.holders[0] >= 0 and is_random(self.op_type(feed.holders[0]))
        return drawn or distance.relative > INTRODUCED * distance.unit

    def is_composite(self, entry: NodePair) -> bool:
        """Tells whether a node may stand for several operators, so that its effect on a difference is unknown."""
        if not self._calls_are_recorded:
            return False
        call = self.call(0, entry.a)
        return call is None or (not call.positional and not call.parameters and call.keywords.keys() <= _SAYS_NOTHING)

    @cached_property
    def _calls_are_recorded(self) -> bool:
        """The recorder tells of some node which operator or module it calls."""
        calls = (self.call(0, row) for row in self.sides[0].rows)
        return any(call is not None and (call.aten or call.parameters is not None) for call in islice(calls, _ASKED))

    def left_before(self, entry: NodePair) -> set[int]:
        """Returns the parameters that a node reads, but of which only the value after the step before was recorded."""
        if self.is_backward(entry.a):
            return set()  # the forward pass has shown already what it read
        return {
            feed.holders[0]
            for feed in entry.feeds
            if feed.holders[0] >= 0 and self.is_parameter(feed.holders[0]) and self.is_of_before(feed)
        }

    def is_of_before(self, feed: Feed) -> bool:
        """Tells whether a tensor was recorded at another step than the one that read it."""
        return any(at is not None and at.step != step for at, step in zip(feed.at, self.steps, strict=True))

    # -- what nobody recorded ----------------------------------------------------------------------

    def _is_bare(self, at: Places) -> bool:
        """Tells whether neither run recorded more of a tensor than its type and shape, and these are the same."""
        return all(one is None or one.index < 0 or self._nothing_of(side, one) for side, one in enumerate(at)) and (
            None in at or self.distance(*at) is None or not _unlike(self.distance(*at))
        )

    def _nothing_of(self, side: int, at: Located) -> bool:
        files = self.files[side]
        if not files.is_stat_only(at):
            return False
        stats, _ = files.statistics(at)
        if stats is None or not stats.count:
            return stats is None
        measured = (stats.minimum, stats.maximum, stats.mean, stats.abs_mean, stats.variance)
        counted = stats.nan + stats.inf + stats.zero + stats.negative + stats.positive
        return not counted and all(each is None for each in measured) and not files.flow.table(at.step).hashed(at.index)

    def covered(self, judged: Sequence[JudgedNode]) -> tuple[set[int], set[int]]:
        """Returns the rows of the first run that agree, and the unrecorded ones that are covered."""
        agreed = {each.match.a for each in judged}
        agreed -= {each.match.a for each in judged if each.judgement not in _AGREES}
        self.seen |= agreed
        if all(each.compared for each in self.distances.values()):
            return agreed, set()
        all_bare = {row for row, entries in self.entries_of.items() if all(map(self._has_bare, entries))}
        bare, partial = all_bare - agreed, all_bare & agreed
        while wrong := {row for row in bare if not self._fits(row, agreed, bare)}:
            bare -= wrong
        return agreed, bare | {row for row in partial if self._fits(row, agreed, bare)}

    def bridged(self, judged: Sequence[JudgedNode]) -> set[int]:
        """Returns the rows of views that some run did not record, and that show in both runs what was compared."""
        compared = {each.match.a for each in judged if each.worst is not None}
        found: set[int] = set()
        for row, entries in self.entries_of.items():
            if not all(self._lacks_values(entry) and self.keeps_values(entry) for entry in entries):
                continue
            if len(self._rounds(0, row)) != len(self._rounds(1, self.matching.to_b[row])):
                continue
            shown = self._shown(0, row), self._shown(1, self.matching.to_b[row])
            same = self.matching.to_b.get(shown[0], -2) == shown[1] and shown[0] in compared | found
            if same or self.kind_of(0, row) == "fill":
                found.add(row)
        return found

    def _lacks_values(self, entry: NodePair) -> bool:
        """Tells whether nothing of the outputs can be compared as some run did not record them."""
        if self.is_parameter(entry.a) or not (entry.missing or entry.outputs):
            return False
        for _, *at in entry.outputs:
            found = self.distance(at[0], at[1])
            if found is None or found.compared or len(set(found.shapes)) > 1:
                return False
            if not any(one.index < 0 or self._nothing_of(side, one) for side, one in enumerate(at)):
                return False
        return True

    def _shown(self, side: int, row: int) -> int:
        """The paired node that feeds a view, through casts and copies that only one run has; -1 without one."""
        partner = self.matching.partner[side]
        while len(producers := self.sides[side].producers(row)) == 1:
            (row,) = producers
            if row in partner or self.kind_of(side, row) not in _COPIES:
                return row if row in partner else -1
        return -1

    def _has_bare(self, entry: NodePair) -> bool:
        """Tells whether all outputs of a node that do not agree are unrecorded."""
        if self.is_parameter(entry.a) or entry.missing:
            return False
        distances = [(at, self.distance(*at)) for _, *at in entry.outputs]
        return all(
            (found is not None and found.compared and not found.relative) or self._is_bare((at[0], at[1]))
            for at, found in distances
        )

    def _fits(self, row: int, agreed: set[int], bare: set[int]) -> bool:
        """Tells whether the inputs and readers of a node agree or are covered as well."""
        good = agreed | bare
        inputs = all(self.feed_fits(feed, agreed, good) for entry in self.entries_of[row] for feed in entry.feeds)
        if not inputs or not self._writes_what_agrees(row, agreed):
            return False
        readers: set[int] = set()
        for side, own in enumerate((row, self.matching.to_b[row])):
            of, place = self.flows[side].nodes, self.sides[side].place
            read = {each for each, _ in real_consumers(of, own) if each in place}
            readers |= {self.matching.to_a.get(each, -1) for each in read} if side else read
        if not readers and not self._is_update(row):  # only what it was asked for tells
            return row in self.seen if is_random(self.op_type(row)) else self._called_alike(row)
        return readers <= good

    def _is_update(self, row: int) -> bool:
        op_type = self.op_type(row)
        return op_type in DRAWN_UPDATES or update_of(op_type) is not None

    def feed_fits(self, feed: Feed, agreed: set[int], good: set[int]) -> bool:
        """Tells whether an input agrees, or is known by its producer."""
        found, row = self.distance(*feed.at), feed.holders[0]
        if found is not None and found.compared:
            return found.relative <= found.unit
        if not self._is_bare(feed.at):
            return False
        if row < 0 or self.matching.to_b.get(row, -1) != feed.holders[1]:
            return max(feed.holders) < 0 and feed.at == (None, None)
        return row in (agreed if self.is_parameter(row) else good)

    def _writes_what_agrees(self, row: int, agreed: set[int]) -> bool:
        """Tells whether the parameters that an update operator writes agree afterwards."""
        op_type = self.op_type(row)
        update, held = update_of(op_type), [each.row for each in self.flows[0].holders(row)]
        if not self._is_update(row):
            return True
        slots = range(len(held)) if update is None else {update.weight, *update.states}
        written = [held[slot] for slot in slots if 0 <= slot < len(held) and held[slot] >= 0]
        return all(each in agreed for each in written if self.is_parameter(each))


def _unlike(distance: Distance | None) -> bool:
    return distance is not None and (len(set(distance.shapes)) > 1 or len(set(distance.types)) > 1)
