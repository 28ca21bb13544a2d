"""Judges where two runs begin to differ: which nodes introduce a difference, and which only pass it on.

Let dx be the largest distance of a node's inputs, dy that of its outputs, and u the relative rounding error of the
coarser type. q = dy / (dx + u) stays below 2 in healthy runs, for all kernels and precisions; above ``INTRODUCED`` the
node made a difference. Modules are never named for that, because parameters of inner calls are not among their inputs.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.check.flow import Located
from tui_debugger.diagnose.recompute.check import OperatorCheck, check_operator
from tui_debugger.diagnose.runs.arguments import other_arguments
from tui_debugger.diagnose.runs.distance import INTRODUCED, ComparedBy, Distance, error_over_expected
from tui_debugger.diagnose.runs.matching import GRADIENTS, NodeMatch
from tui_debugger.diagnose.runs.other_ranks import OtherRanks
from tui_debugger.diagnose.runs.rescaled import without_rescaled
from tui_debugger.diagnose.runs.results import (
    COVERED,
    NO_OUTPUT,
    DiffFinding,
    DiffKind,
    JudgedNode,
    NodeJudgement,
    StepReport,
)
from tui_debugger.diagnose.runs.step import Asked, Feed, NodePair, Noise, PairKey, key_of
from tui_debugger.diagnose.runs.unmatched import BLAMED
from tui_debugger.diagnose.runs.updates import ParameterCauses
from tui_debugger.graph.categories import (
    PARAMETER_GRADIENTS,
    gradient_of,
    is_collective,
    is_random,
    update_of,
)
from tui_debugger.graph.table import NodeFlag
from tui_debugger.text.numbers import plural

SUSPICIOUS: Final = 1.7
"""Above this q, both sides are recomputed where the operator is known: bfloat16 hides faults of 2 % from q alone."""
ONE_ELEMENT: Final = 200.0
"""The limit for a single element relative to its size: it varies much more, but the norm hides a single wrong
element."""

_SUMS: Final = frozenset({"add", "sub", "rsub", "sum", "reducesum", "mean", "reducemean", "addn", "biasaddgrad"})
"""Operators whose output may be much smaller than their inputs, by cancelling."""
_PRODUCTS: Final = frozenset({"matmul", "batchmatmul", "matmulv2", "batchmatmulv2", "mm", "bmm"})
"""Operators that also multiply their first two inputs."""
_GRADIENT: Final = re.compile(r"Grad(?=#\d+$|$)")
"""The suffix of names of modules' gradients."""
_NO_INPUTS: Final = "it differs by more than anything before it; what goes into it was not recorded"


class EarlierJudgements(NamedTuple):
    """The step before of the same rank (None at the first), the last steps of other ranks, and the noise."""

    before: StepJudge | None = None
    others: Sequence[StepJudge] = ()
    noise: Noise | None = None


class _NodeInputs(NamedTuple):
    """The inputs of a node in both runs.

    Attributes:
        dx: largest distance of the inputs.
        element: largest distance of one of their elements.
        unknown: some input could not be compared.
        vague: some distance is only a lower bound.
    """

    dx: float
    element: float
    unit: float
    unknown: bool
    vague: bool = False

    def explain(self, found: Distance) -> bool:
        """Tells whether an output differs no more than the inputs make it."""
        unit = max(self.unit, found.unit)
        return found.compared and error_over_expected(found.relative, self.dx, unit) <= INTRODUCED


def _far(distance: Distance) -> float:
    """Returns an upper bound of an input's distance; rounding moves a norm much less than many elements."""
    if distance.how is not ComparedBy.STATISTICS:
        return distance.relative
    return distance.relative * math.sqrt(max(distance.count, 1))


class StepJudge(ParameterCauses):
    """Judges one step of one rank."""

    def __init__(self, asked: Asked, earlier: EarlierJudgements) -> None:
        super().__init__(asked, earlier.before)
        self.before: StepJudge | None = earlier.before
        self.others = earlier.others
        self.noise = earlier.noise or {}
        self.dx_of: dict[int, float] = {}
        self._held: tuple[dict[Shape, dict[bytes, list[int]]], ...] = {}, {}
        self.odd = False
        self.suspected: set[int] = set()
        self.found_before = False
        self.proven = set(earlier.before.proven) if earlier.before is not None else set()

    # -- judging -----------------------------------------------------------------------------------

    def report(self) -> StepReport:
        entries = self._entries()
        self._measure(entries, self.before)
        entries = self.with_proof(entries)
        is_parameter = self.is_parameter  # judged where they are read, if anybody reads them
        entries.sort(key=lambda entry: (entry.rounds[0], is_parameter(entry.a), entry.order, entry.a))
        self.note_entries(entries)
        updates = self._updated_in_place()
        judged = [self._judge(entry, updates) for entry in entries]
        judged = self._look_into_containers(judged, {entry.a: entry for entry in entries})
        distances = (*self.distances.values(), *(each.distance for each in self.converted))
        compared = Counter(each.how for each in distances)
        doubtful = tuple(match for match in self.matching.matches if match.doubtful)
        doubtful += tuple(each.match for each in judged if each.match.a in self.unproven)
        one_sided = self.one_sided(judged)
        self.note_missing(one_sided)
        one_sided = tuple(
            replace(one, covered=BLAMED) if not one.covered and (one.side, one.row) in self.blamed else one
            for one in one_sided
        )
        self._name_first_known(judged, entries)
        judged = self._without_rescaled(judged)
        agreed, covered = self.covered(judged)
        unjudged = NodeJudgement.NOT_COMPARED
        judged = [
            replace(each, why=COVERED)
            if each.judgement is unjudged and each.why != NO_OUTPUT and each.match.a in covered
            else each
            for each in judged
        ]
        failed, bare = self._failed(entries, agreed, covered, self.bridged(judged))
        joined = dict(self.joiner.counts)
        self.joiner.counts.clear()
        failed += tuple((each.made, each.doubt) for each in self.converted if each.doubt)
        told = self.place, tuple(judged), one_sided, dict(compared), failed, doubtful
        return StepReport(*told, joined=joined, converted=tuple(self.converted), covered=bare)

    def _name_first_known(self, judged: Sequence[JudgedNode], entries: Sequence[NodePair]) -> None:
        """Makes the first NaN or infinity of one run only a finding, even if not all inputs are known.

        Rounding does not explain it. Only where there is no other finding so far.
        """
        before = self.before
        self.found_before = before is not None and (before.found_before or bool(before.findings))
        odd = [each for each in judged if each.judgement is NodeJudgement.UNPROVEN and each.worst and each.worst.odd]
        if self.findings or self.found_before or not odd:
            return
        first = odd[0]
        entry = next(each for each in entries if each.match is first.match)
        at = next((one, other) for slot, one, other in entry.outputs if slot == first.slot)
        text = "NaN or infinities in one run only: the first known ones, not all that goes into it was recorded"
        self.findings.append(
            self._finding(DiffKind.INPUT, entry, at, first.worst, given=first.dx, times=first.times, text=text)
        )

    def _without_rescaled(self, judged: list[JudgedNode]) -> list[JudgedNode]:
        """Withdraws findings of gradients that differ by one factor for all gradients."""
        names = self.flows[0].nodes.names
        gradients = {gradient_of(names[row]) for row in self.matching.to_b if self.is_parameter(row)}
        found = [each for each in self.findings if each.kind is DiffKind.INTRODUCED and each.name in gradients]
        kept = without_rescaled(found, (self.files[0].run, self.files[1].run))
        rows = {each.row_a for each in found} - {each.row_a for each in kept}
        if rows:
            self.findings = [each for each in self.findings if each not in found] + kept
        passed = NodeJudgement.INHERITED
        return [replace(each, judgement=passed) if each.match.a in rows else each for each in judged]

    def forget(self) -> None:
        """Releases the step before the previous one."""
        self.others = ()
        if self.before is not None:
            self.before.before = None

    def _failed(
        self, entries: Sequence[NodePair], agreed: set[int], covered: set[int], bridged: set[int]
    ) -> tuple[tuple[tuple[str, str], ...], int]:
        """Returns what could not be compared, with reasons, and how many tensors needed no comparison."""
        found: dict[str, str] = {}
        behind: list[str] = []
        bare: set[PairKey] = set()
        good = agreed | covered
        shown = {(row, self.matching.to_b[row]) for row in bridged}
        for entry in entries:
            if self._other_shape_is_found(entry):
                continue
            name, view = self.names[0][entry.a], entry.a in bridged
            if entry.missing and not view:
                found[name] = "an output was dumped in one run only"
            elif not (entry.outputs or view) and self._dumped(0, entry.a) != self._dumped(1, entry.b):
                found[name] = "it was dumped in one run only"
            pairs: list[tuple[str, Located | None, Located | None, Feed | None]]
            pairs = [(f"{name}:{slot}", one, other, None) for slot, one, other in entry.outputs]
            pairs += [(f"{name}:in{feed.slot}", *feed.at, feed) for feed in entry.feeds]
            for tensor, one, other, feed in pairs:
                distance = self.distance(one, other)
                if one is None or other is None or distance is None or distance.compared:
                    continue
                is_bridged = view if feed is None else feed.holders in shown
                if is_bridged or (
                    entry.a in (covered if feed is None else good)
                    and (feed is None or self.feed_fits(feed, agreed, good))
                ):
                    bare.add(key_of(one, other))
                else:
                    unlike = len(set(distance.shapes)) > 1
                    shapes = " and ".join(str(list(shape)) for shape in distance.shapes) if unlike else ""
                    if unlike and not self.is_parameter(entry.a):
                        behind.append(tensor)
                        if len(behind) > 1:
                            continue  # it follows from the first
                    found[tensor] = f"{distance.why} {shapes}".strip()
            if len(self._rounds(0, entry.a)) != len(self._rounds(1, entry.b)):
                found[name] = "it ran a different number of times within the step"
        if len(behind) > 1:
            found[behind[0]] += f", and so do {plural(len(behind) - 1, 'tensor')} behind it"
        return tuple(found.items()), len(bare)

    def _other_shape_is_found(self, entry: NodePair) -> bool:
        return any(
            each.kind is DiffKind.PARAMETER
            and each.row_a == entry.a
            and each.distance is not None
            and not each.distance.compared
            for each in self.findings
        )

    def _updated_in_place(self) -> dict[int, int]:
        """The update operators of parameters (rows of the first run) whose files hold the updated value."""
        found: dict[int, int] = {}
        nodes = self.flows[0].nodes
        for row in self.sides[0].rows:
            update = update_of(nodes.op_type(row)) if not self.is_parameter(row) else None
            if update is None or row not in self.matching.to_b:
                continue
            for slot, holder in enumerate(self.flows[0].holders(row)):
                if slot in {update.weight, *update.states} and holder.row >= 0:
                    found[holder.row] = row
        return found

    def _judge(self, entry: NodePair, updates: Mapping[int, int]) -> JudgedNode:
        match, a = entry.match, entry.a
        outputs = [(slot, found) for slot, one, other in entry.outputs if (found := self.distance(one, other))]
        compared = [(slot, found) for slot, found in outputs if found.compared]
        if self.is_parameter(a) and a not in updates:
            return self._judge_parameter(entry, compared)
        given = self._given(entry)
        if self.is_parameter(a):
            given = _NodeInputs(max(given.dx, self.dx_of.get(updates[a], math.inf)), given.element, given.unit, False)
        self.dx_of[a] = given.dx
        outputs, why = self._finish(entry, outputs, given)
        compared = [(slot, found) for slot, found in outputs if found.compared]
        if not compared:
            why = outputs[0][1].why if outputs else NO_OUTPUT
            return JudgedNode(match, NodeJudgement.NOT_COMPARED, entry.order, given.dx, 0.0, 0.0, None, why=why)
        given = given._replace(unit=max(given.unit, *(found.unit for _, found in compared)))
        slot, worst = max(compared, key=lambda each: self._times(entry, each[1], given))
        self.dy_of[a] = dy = max(found.relative for _, found in compared)
        times = self._times(entry, worst, given)
        judgement = self._judgement(entry, given, times, worst)
        wrong = -1
        if (times > SUSPICIOUS or why) and self.options.tolerance is None:
            judgement, wrong = self._recomputed(entry, judgement, slot, worst, given)
        if judgement is NodeJudgement.UNPROVEN and self._diverges(entry, worst, times):
            judgement = NodeJudgement.INHERITED
        self.most = max(self.most, dy if math.isfinite(dy) else 0.0)
        self.odd = self.odd or bool(worst.odd)
        if judgement is NodeJudgement.INTRODUCED and self.reads_nothing_known(entry):
            judgement = NodeJudgement.UNPROVEN
        if judgement is NodeJudgement.INTRODUCED and is_collective(self.op_type(a)):
            judgement = self._after_exchange(a)
        if judgement is NodeJudgement.INTRODUCED and self._changed_parameter(entry, slot, worst):
            judgement = NodeJudgement.INHERITED
        if judgement is NodeJudgement.INTRODUCED:
            finding = self._introduced(entry, slot, worst, given.dx, times)
            self.findings.append(replace(finding, side=wrong))
        return JudgedNode(match, judgement, entry.order, given.dx, dy, times, worst, slot, why)

    def _finish(
        self, entry: NodePair, outputs: list[tuple[int, Distance]], given: _NodeInputs
    ) -> tuple[list[tuple[int, Distance]], str]:
        """Returns the outputs to compare, where one run finishes by extra calls what the other does in one call.

        Such calls add a bias, or reduce the output of a row-parallel layer; then their output is compared, and a
        sentence says so.
        """
        if self.is_parameter(entry.a) or len(entry.outputs) != 1:
            return outputs, ""
        ((slot, *at),) = entry.outputs
        if any(given.explain(found) for _, found in outputs):
            return outputs, ""
        for side, row in enumerate(entry.match.rows):
            between: list[int] = []
            for follower in self.followers(side, row):
                between.append(follower)
                made = self.output(side, follower, 0, entry.rounds[side])
                if made.index < 0:
                    continue
                found = self.measured(made, at[1]) if side == 0 else self.measured(at[0], made)
                if given.explain(found):
                    name = self.names[side][follower]
                    own = self.names[1 - side][(entry.b, entry.a)[side]]
                    text = f"{own} of {'BA'[side]} makes at once what ends with it"
                    self.finished.update({(side, each): text for each in between})
                    self.distances[key_of(*at)] = found
                    return [(slot, found)], f"compared with what {name} of {'AB'[side]} makes of it"
        return outputs, ""

    def _judgement(self, entry: NodePair, given: _NodeInputs, times: float, worst: Distance) -> NodeJudgement:
        if not worst.relative:
            return NodeJudgement.SAME
        if times <= INTRODUCED:
            return NodeJudgement.ROUNDING if worst.relative <= INTRODUCED * given.unit else NodeJudgement.INHERITED
        if entry.a in self.containers[0] or entry.b in self.containers[1]:
            return NodeJudgement.INSIDE
        if (
            (given.vague and not worst.odd)
            or (worst.exact and given.dx > 0)
            or self._is_lenient(entry, given.dx, worst)
        ):
            return NodeJudgement.INHERITED
        return NodeJudgement.UNPROVEN if given.unknown else NodeJudgement.INTRODUCED

    def _recomputed(
        self, entry: NodePair, judgement: NodeJudgement, slot: int, worst: Distance, given: _NodeInputs
    ) -> tuple[NodeJudgement, int]:
        """Recomputes both sides from their own inputs; returns the judgement and the wrong side (-1: unknown).

        Where one side alone is wrong, the difference begins here, whatever its inputs. Where both are right, it does
        not, unless the calls differ in arguments or random numbers. Equal inputs pass no difference on: what both make
        of them differs by rounding, unless a weight may have been changed since it was recorded.
        """
        if judgement is NodeJudgement.INSIDE or not self._is_operator(entry):
            return judgement, -1
        checks = [
            [
                check_operator(of.run, of.rank, step, at, round=round_)
                for of, at in files.nodes_like(self.flows[side].nodes, row)
            ]
            for side, (files, step, row, round_) in enumerate(
                zip(self.files, self.steps, entry.match.rows, entry.rounds, strict=True)
            )
        ]
        wrong = [any(isinstance(each, OperatorCheck) and each.wrong for each in of) for of in checks]
        if wrong[0] != wrong[1]:
            return NodeJudgement.INTRODUCED, wrong.index(True)
        judged = [
            all(isinstance(each, OperatorCheck) and slot in {output.slot for output in each.outputs} for each in of)
            for of in checks
        ]
        update = update_of(self.op_type(entry.a)) is not None  # judged by what it wrote over
        if update or any(wrong) or not all(judged) or self._is_random(entry) or self._other_arguments(entry):
            return judgement, -1
        if judgement not in {NodeJudgement.INTRODUCED, NodeJudgement.UNPROVEN} or not math.isfinite(worst.relative):
            return judgement, -1
        if given.dx or given.unknown:
            return NodeJudgement.INHERITED, -1
        return (judgement if self.left_before(entry) else NodeJudgement.ROUNDING), -1

    def _after_exchange(self, row: int) -> NodeJudgement:
        """Judges a collective operation whose output differs more than its input on this rank."""
        runs = self.files[0].run, self.files[1].run
        alike = OtherRanks(runs, self.place, self.progress).put_in_alike(self.flows[0], row)
        return {True: NodeJudgement.INTRODUCED, False: NodeJudgement.INHERITED, None: NodeJudgement.UNPROVEN}[alike]

    def _is_operator(self, entry: NodePair) -> bool:
        return not (self.is_parameter(entry.a) or self.is_backward(entry.a))

    def _is_random(self, entry: NodePair) -> bool:
        return is_random(self.op_type(entry.a))

    def _is_lenient(self, entry: NodePair, dx: float, worst: Distance) -> bool:
        """Tells whether an optimizer such as Adam may have made a full step from a gradient that is noise."""
        row = entry.a
        nodes = self.flows[0].nodes
        if update_of(nodes.op_type(row)) is None and not self.is_parameter(row):
            return False
        return worst.relative <= 10 * math.sqrt(dx)

    def _times(self, entry: NodePair, found: Distance, given: _NodeInputs) -> float:
        """Returns error over what is expected for one output; for sums that cancel, by the size of their terms."""
        times = error_over_expected(found.relative, given.dx, given.unit)
        is_sum = found.relative > 0 and math.isfinite(found.relative) and self._is_sum(entry, found)
        if times > INTRODUCED and is_sum:
            expected = self._uncancelled(entry, found, given)
            times = min(times, found.relative * found.size / expected) if expected else times
        if is_sum:
            return times
        return max(times, INTRODUCED * error_over_expected(found.element, given.element, given.unit) / ONE_ELEMENT)

    def _is_sum(self, entry: NodePair, found: Distance) -> bool:
        """Tells whether an output is a sum of inputs, or of parts of one, such as the gradient of a bias."""
        row = entry.a
        if self.sides[0].type_of(row) in _SUMS | _PRODUCTS or self.op_type(row) in PARAMETER_GRADIENTS:
            return True
        counts = [each.count for feed in entry.feeds if (each := self.distance(*feed.at)) is not None]
        return self.is_backward(row) and found.count < max(counts, default=0)

    def _uncancelled(self, entry: NodePair, found: Distance, given: _NodeInputs) -> float:
        """Returns how far an output may be off, by the size of its terms."""
        feeds = [(self._size(feed), each.count) for feed in entry.feeds if (each := self.distance(*feed.at))]
        if self.sides[0].type_of(entry.a) in _PRODUCTS and len(feeds) >= 2:
            (one, n), (other, m) = feeds[:2]
            terms = math.sqrt(max(n * m / max(found.count, 1), 1))
            return (given.dx + given.unit / math.sqrt(terms)) * one * other
        whole = sum(self._size(feed) for feed in self._summed(entry))
        parts = max((count for _, count in feeds), default=0)
        together = math.sqrt(max(parts / max(found.count, 1), 1))  # input errors may add up instead of cancelling
        return (given.dx * together + given.unit) * whole

    def _summed(self, entry: NodePair) -> Sequence[Feed]:
        """Returns the terms of a sum; in the backward pass only the gradients among the inputs."""
        if not self.is_backward(entry.a):
            return entry.feeds
        gradients = [each for each in entry.feeds if each.holders[0] < 0 or self.is_backward(each.holders[0])]
        return gradients or entry.feeds

    def _size(self, feed: Feed) -> float:
        distance = self.distance(*feed.at)
        if distance is None or feed.at[0] is None:
            return 0.0
        return distance.size or self.files[0].size(feed.at[0])

    def _diverges(self, entry: NodePair, worst: Distance, times: float) -> bool:
        """Tells whether a node reads the output of a one-sided node; the difference then begins there."""
        feeds = [feed for feed in entry.feeds if min(feed.holders) < 0 and self.is_one_sided(feed)]
        for feed in feeds:
            region, _ = self.region(feed)
            if not self.blamed.issuperset(region):
                self.blamed.update(region)
                self.findings.append(self._region_finding(entry, feed, worst, region, times))
        return bool(feeds)

    def _changed_parameter(self, entry: NodePair, slot: int, worst: Distance) -> bool:
        """Tells whether a node only views a parameter that changed since the step before."""
        if len(entry.feeds) != 1 or not self.keeps_values(entry):
            return False
        ((one, other),) = ((feed.holders) for feed in entry.feeds)
        if min(one, other) < 0 or not self.is_parameter(one) or self.matching.to_b.get(one, -1) != other:
            return False
        at = next((of_a, of_b) for number, of_a, of_b in entry.outputs if number == slot)
        self._cause_of_parameter(one, worst, entry, entry.feeds[0]._replace(at=at), left=True)
        return True

    # -- what goes in ------------------------------------------------------------------------------

    def _given(self, entry: NodePair) -> _NodeInputs:
        """Looks at all inputs; an input that differs without a cause becomes a finding."""
        dx = ex = unit = 0.0
        unknown = vague = False
        for feed in entry.feeds:
            distance = self.known(feed)
            if distance is None or not distance.compared:
                unknown = unknown or self.matters(feed)
                continue
            self._look_at_input(entry, feed, distance)
            vague = vague or feed.holders[0] in self.suspected
            vague = vague or self.is_only_bounded(feed, distance)
            dx, ex, unit = max(dx, _far(distance)), max(ex, distance.element), max(unit, distance.unit)
        if self.is_backward(entry.a):
            forward = [
                row
                for row in self.sides[0].producers(entry.a)
                if not self.is_backward(row) and not self.is_parameter(row)
            ]
            dx = max([dx, *(self.dx_of.get(row, 0.0) for row in forward), *map(self._drawn, entry.feeds)])
        if self._is_without_inputs(entry):
            dx = max(dx, self.most, self.before.most if self.before is not None else 0.0)
            if self.odd or (self.before is not None and self.before.odd):
                dx = math.inf  # NaN may have come from any tensor before
            ex = math.inf if dx else ex
        vague = vague or (dx > INTRODUCED * unit and self.is_composite(entry))
        return _NodeInputs(dx, ex, unit, unknown, vague)

    def _drawn(self, feed: Feed) -> float:
        """Returns the distance of random numbers that an operator of the forward pass keeps for its gradient."""
        found = 0.0
        for side, row in enumerate(feed.holders):
            nodes = self.flows[side].nodes
            if row < 0 or not self.sides[side].backward(row) or not is_random(_GRADIENT.sub("", nodes.op_type(row))):
                continue
            forward = nodes.find(_GRADIENT.sub("", nodes.names[row].removeprefix(GRADIENTS)))
            found = max(found, self.dy_of.get(forward if side == 0 else self.matching.to_a.get(forward, -1), 0.0))
        return found

    def _is_without_inputs(self, entry: NodePair) -> bool:
        """Tells whether no inputs of a node were recorded, so that any earlier difference may be in them."""
        if entry.feeds:
            return False
        unsure = int(NodeFlag.INFERRED | NodeFlag.FILE_ONLY | NodeFlag.PARTIAL)
        return all(int(flow.nodes.flags[row]) & unsure for flow, row in zip(self.flows, entry.match.rows, strict=True))

    def _look_at_input(self, entry: NodePair, feed: Feed, distance: Distance) -> None:
        unit = distance.unit
        holders = feed.holders
        elsewhere = not feed.own and not self._read_other_nodes(feed)
        if distance.relative <= INTRODUCED * unit or elsewhere:
            self.most = max(self.most, distance.relative)
            return
        if any(flow.is_constant(row) for flow, row in zip(self.flows, holders, strict=True)):
            if self.is_constant(feed):
                text = "a constant that goes into it differs"
                self.findings.append(self._finding(DiffKind.ARGUMENT, entry, feed.at, distance, text=text))
            return
        parameter = next(
            (holders[side] for side in (0, 1) if holders[side] >= 0 and self.sides[side].is_parameter(holders[side])),
            None,
        )
        if parameter is not None:
            row = holders[0] if holders[0] >= 0 else self.matching.to_a.get(holders[1], -1)
            if row >= 0 and self.is_parameter(row):
                self._cause_of_parameter(row, distance, entry, feed, left=self.is_of_before(feed))
        elif max(holders) < 0:
            behind = self._parameter_behind(entry, feed, distance)
            if behind >= 0:
                self._cause_of_parameter(behind, distance, entry, feed)
            else:
                self._cause_of_input(entry, feed, distance)
        else:
            self._cause_between(entry, feed, distance)
        self.most = max(self.most, distance.relative if math.isfinite(distance.relative) else 0.0)

    def _read_other_nodes(self, feed: Feed) -> bool:
        """Tells whether one run reads a one-sided node or a parameter, which is not compared elsewhere."""
        if min(feed.holders) < 0:
            return False
        parameters = [of.is_parameter(row) for of, row in zip(self.sides, feed.holders, strict=True)]
        return all(parameters) or (not any(parameters) and self.is_one_sided(feed))

    def _parameter_behind(self, entry: NodePair, feed: Feed, distance: Distance) -> int:
        """Returns the parameter (no edge leads to it) with the values of an input in both runs; else -1."""
        if self.ranks == 1 and len(distance.shapes) == 2 and not all(map(self._held_in, (0, 1), distance.shapes)):
            return -1  # no parameter has this shape: the values need not be read
        holding = [
            self._held_in(side, array.shape).get(_digest(array), []) if array is not None else []
            for side, array in enumerate(self.arrays(feed.at))
        ]
        found = [row for row in holding[0] if self.matching.to_b.get(row, -1) in holding[1]]
        paths = self.flows[0].nodes.paths
        scope = paths[entry.a].rpartition("/")[0]
        return min(found, key=lambda row: (paths[row].rpartition("/")[0] != scope, row), default=-1)

    def _held_in(self, side: int, shape: Shape) -> Mapping[bytes, Sequence[int]]:
        """Returns the parameters of a run with a shape, by digest of their values; reads each once a step."""
        found = self._held[side].get(shape)
        if found is None:
            found = self._held[side][shape] = defaultdict(list)
            for match in self.matching.matches:
                row = match.rows[side]
                if not self.is_parameter(match.a) or self.sides[side].shapes(row) not in {None, (shape,)}:
                    continue
                at = self.output(side, row, 0)
                own = self.files[side].array(at)
                if own is not None and own.shape == shape:
                    found[_digest(own)].append(row)
        return found

    def _cause_of_input(self, entry: NodePair, feed: Feed, distance: Distance) -> None:
        """Makes an input without a recorded producer a finding, unless something earlier differs as much."""
        odd_before = any(math.isinf(each) for each in self.dy_of.values())
        times = error_over_expected(distance.relative, self.most, distance.unit)
        if math.isinf(distance.relative):
            if odd_before:
                return
        elif times <= INTRODUCED:
            return
        text = "an input differs that no recorded node made"
        self.findings.append(self._finding(DiffKind.INPUT, entry, feed.at, distance, times=times, text=text))

    def _cause_between(self, entry: NodePair, feed: Feed, distance: Distance) -> None:
        """Looks for the cause of an input's difference between its producer and this node."""
        region, boundary = self.region(feed)
        if boundary is None:
            boundary = self.most
        allowed = INTRODUCED * max(len(region), 1)
        times = error_over_expected(distance.relative, boundary, distance.unit)
        if times <= allowed or (math.isinf(distance.relative) and math.isinf(boundary)):
            return
        infinite = math.isinf(distance.relative) and any(
            each.distance is not None and math.isinf(each.distance.relative) for each in self.findings
        )
        if not region and (infinite or max(self.dy_of.values(), default=0.0) > distance.relative / INTRODUCED):
            return  # where nothing one-sided lies between, another node than the inferred one may have made it
        if region and self.blamed.issuperset(region):
            return
        self.blamed.update(region)
        self.findings.append(self._region_finding(entry, feed, distance, region, times))

    def _region_finding(
        self, entry: NodePair, feed: Feed, distance: Distance, region: Sequence[tuple[int, int]], times: float
    ) -> DiffFinding:
        """The finding for one-sided nodes; it names the first of them that is bad, or the last."""
        base = self._finding(DiffKind.REGION, entry, feed.at, distance, times=times)
        if not region:
            return replace(base, text="it differs from what its producer made: something in between was not recorded")
        region = sorted(region, key=lambda each: (each[0], int(self.flows[each[0]].nodes.order[each[1]])))
        side, row = next((each for each in region if self.turned_bad(*each)), region[-1])
        name = self.names[side][row]
        own, others = (
            ", ".join(self.names[each][number] for each, number in region if each == of) for of in (side, 1 - side)
        )
        return replace(
            base.only_in(side, row, name, self.output_key(side, row)),
            consumer=self.names[0][entry.a],
            text=f"only {'AB'[side]} has {own}{self.read_by(side, row)}"
            + (f", and only {'BA'[side]} has {others}" if others else "")
            + "; what comes out of it differs",
        )

    # -- parameters --------------------------------------------------------------------------------

    def _judge_parameter(self, entry: NodePair, compared: Sequence[tuple[int, Distance]]) -> JudgedNode:
        """Judges a parameter that no node has read yet; others are judged at their first reader."""
        match, order = entry.match, entry.order
        if not compared:
            shaped = self.other_shape(entry)
            if shaped is None:
                return JudgedNode(match, NodeJudgement.NOT_COMPARED, order, 0.0, 0.0, 0.0, None, why=NO_OUTPUT)
            self.findings.append(shaped)
            self.causes[match.a] = False
            return JudgedNode(match, NodeJudgement.INTRODUCED, order, 0.0, math.inf, math.inf, shaped.distance)
        slot, worst = compared[0]
        differs = worst.relative > INTRODUCED * worst.unit
        if differs and match.a not in self.causes:
            self._cause_of_parameter(match.a, worst)
        self.dy_of[match.a] = worst.relative
        judgement = NodeJudgement.SAME if not worst.relative else NodeJudgement.ROUNDING
        if differs:
            judgement = NodeJudgement.INHERITED if self.causes.get(match.a) else NodeJudgement.INTRODUCED
            judgement = NodeJudgement.UNPROVEN if match.a in self.unproven else judgement
        return JudgedNode(
            match,
            judgement,
            order,
            0.0,
            worst.relative,
            error_over_expected(worst.relative, 0.0, worst.unit),
            worst,
            slot,
        )

    # -- modules and regions -----------------------------------------------------------------------

    def _look_into_containers(self, judged: Sequence[JudgedNode], entries: Mapping[int, NodePair]) -> list[JudgedNode]:
        """Judges modules by their inner calls.

        Where these are all known, the output may differ as much as any of them. Else a module whose inputs agree and
        whose output differs is a finding.
        """
        verdicts = {each.match.a: each.judgement for each in judged}
        result = []
        for each in judged:
            entry, worst = entries[each.match.a], each.worst
            if worst is None or each.judgement not in {NodeJudgement.INSIDE, NodeJudgement.INHERITED}:
                result.append(each)
                continue
            own = [found for feed in entry.feeds if feed.own and (found := self.distance(*feed.at))]
            dx = max((found.relative for found in own), default=0.0)
            if self._opaque(each, verdicts):
                inner = self._inner(each.match)
                times = error_over_expected(each.dy, dx, worst.unit)
                if own and times > INTRODUCED * max(len(inner), 1) and all(found.compared for found in own):
                    finding = self._introduced(entry, each.slot, worst, dx, times)
                    self._found_inside(replace(finding, kind=DiffKind.REGION, text=self._inside_text(inner)), each)
            elif each.judgement is NodeJudgement.INSIDE:
                inside = self.containers[0].get(each.match.a, ())
                dx = max([dx, *(max(self.dx_of.get(row, 0.0), self.dy_of.get(row, 0.0)) for row in inside)])
                times = error_over_expected(each.dy, dx, worst.unit)
                if times > INTRODUCED:
                    finding = self._introduced(entry, each.slot, worst, dx, times)
                    text = "its inputs agree, and so does what runs inside; its output does not"
                    self.findings.append(replace(finding, text=finding.text or text))
                    result.append(replace(each, judgement=NodeJudgement.INTRODUCED, times=times))
                    continue
            result.append(each)
        return result

    def _inner(self, match: NodeMatch) -> list[str]:
        return [
            self.names[side][row]
            for side, module in enumerate(match.rows)
            for row in self.containers[side].get(module, ())
            if row in self.matching.only[side]
        ]

    def _inside_text(self, inner: Sequence[str]) -> str:
        only = f"; only one run has {', '.join(inner[:5])}" if inner else ""
        return f"its inputs agree and its output does not; what runs inside cannot be compared{only}"

    def _opaque(self, each: JudgedNode, verdicts: dict[int, NodeJudgement]) -> bool:
        """Tells whether a module holds calls that could not be judged."""
        match = each.match
        if match.a not in self.containers[0] and match.b not in self.containers[1]:
            return False
        unjudged = {NodeJudgement.NOT_COMPARED, NodeJudgement.UNPROVEN}
        return bool(self._inner(match)) or any(
            verdicts.get(row) in unjudged for row in self.containers[0].get(match.a, ()) if self._dumped(0, row)
        )

    def _found_inside(self, finding: DiffFinding, each: JudgedNode) -> None:
        inside = set(self.containers[0].get(each.match.a, ()))
        if not any(found.row_a in inside or found.consumer in self._names(inside) for found in self.findings):
            self.findings.append(finding)

    def _names(self, rows: Iterable[int]) -> set[str]:
        return {self.names[0][row] for row in rows}

    # -- findings ----------------------------------------------------------------------------------

    def _introduced(self, entry: NodePair, slot: int, worst: Distance | None, dx: float, times: float) -> DiffFinding:
        at = next((one, other) for number, one, other in entry.outputs if number == slot)
        kind, text = DiffKind.INTRODUCED, _NO_INPUTS if self._is_without_inputs(entry) else ""
        if self._is_random(entry):
            idle = [self._is_identity(side, row) for side, row in enumerate(entry.match.rows)]
            kind, text = DiffKind.RANDOM, "a random operator whose inputs agree: the runs have other random streams"
            if idle[0] != idle[1]:
                text = f"it is switched off in {'AB'[idle.index(True)]}, where its output is its input"
        elif arguments := self._other_arguments(entry):
            kind, text = DiffKind.ARGUMENT, f"it is called with other arguments: {arguments}"
        elif left := self.left_before(entry):
            self.suspected |= left
            text = text or (
                f"its inputs agree, weights as step {self.steps[0] if self.before is None else self.before.steps[0]} "
                "left them, and its output does not: it computes otherwise, or a weight was changed between"
            )
        return self._finding(kind, entry, at, worst, given=dx, times=times, text=text)

    def _other_arguments(self, entry: NodePair) -> str:
        return other_arguments(*self.calls(entry.match.rows, entry.rounds))


def _digest(array: Array) -> bytes:
    found = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
