"""Decides by quick numbers which tensors may hit: interval arithmetic with room for rounding, many tensors at once.

Counts and extremes are exact. A sum in float32 may be off by ``SLACK`` of the sum of magnitudes, one over a half type
by ``COARSE``; conditions within that room are decided in float64.

Values that were changed in place before an exact look get a record from quick numbers alone. That happens once to a
tensor: from the next step on it is measured exactly when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from tui_debugger.arrays import Mask
from tui_debugger.live.client.agent import ClientHit
from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.model import AtLeast, ErrorBits, OperandState, TensorStats, Verdict, WatchResult
from tui_debugger.stats.records import Record, RequiredStats
from tui_debugger.torch import exact
from tui_debugger.torch.captures import (
    OVERWRITTEN,
    Capture,
    CapturedOperand,
    CapturedStep,
    TensorGroup,
    WatchPlan,
    offsets,
)
from tui_debugger.torch.exact import Doubles, HostNumbers, Waiting
from tui_debugger.watch.evaluate import JudgingPlan, judging_plan

SLACK: Final = 1e-3
COARSE: Final = 0.05
_HALF: Final = 2
"""Bytes of an element of a half type."""
_TINY: Final = {"float16": 6.2e-5, "bfloat16": 1.2e-38, "float32": 1.2e-38}
"""Smallest normal number: differences below it may be lost."""


def suspects(captures: Sequence[Capture], fetched: HostNumbers) -> list[Capture]:
    """The screened tensors that have to be measured exactly, by ``fetched`` or their own fetched numbers."""
    groups: dict[tuple[int, int], tuple[WatchPlan, HostNumbers, list[int]]] = {}
    for number, capture in enumerate(captures):
        if capture.plan is not None:
            own = capture.fetched or fetched
            groups.setdefault((id(capture.plan), id(own)), (capture.plan, own, []))[2].append(number)
    found: list[int] = []
    with np.errstate(all="ignore"):
        for plan, own, members in groups.values():
            numbers = _CaptureNumbers([captures[number] for number in members], own)
            found += np.array(members)[numbers.suspicious(plan)].tolist()
    return [captures[number] for number in sorted(found)]


def lines(entries: Iterable[Capture | TensorGroup], fetched: HostNumbers) -> Iterator[Capture]:
    """The captures of a step; of groups only those that have to be measured exactly."""
    for entry in entries:
        if isinstance(entry, Capture):
            yield entry
        elif entry.plan is not None:
            with np.errstate(all="ignore"):
                found = _Grouped(entry, fetched).suspicious(entry.plan)
            yield from (entry.capture(number) for number in np.flatnonzero(found).tolist())


class _QuickColumns:
    """The quick numbers of some tensors as columns; unknown numbers are NaN."""

    captures: Sequence[Capture] = ()
    fetched: HostNumbers
    count: Doubles
    slack: Doubles
    low: Doubles
    high: Doubles
    magnitude: Doubles
    energy: Doubles
    total: Doubles
    zeros: Doubles
    normed: Mask
    ranged: Mask
    summed: Mask

    def suspicious(self, plan: WatchPlan) -> Mask:
        """Mask of the tensors that some watchpoint may hit, or cannot judge because of NaN or Inf."""
        found: Mask = ~(np.isfinite(self.low) & np.isfinite(self.high)) & self.ranged
        found |= ~np.isfinite(self.magnitude) & self.summed
        found |= ~np.isfinite(self.energy) & self.normed
        found |= plan.exactly
        for each in plan.plans:
            if each.need.previous:
                found |= self._changes(each)
            else:
                for quantity, threshold, holds in each.checks:
                    if holds is not None:
                        found |= self._may(quantity, threshold, holds, each)
        return found & (self.count > 0)

    def _may(self, quantity: str, threshold: float, holds: str, plan: JudgingPlan) -> Mask:
        low, high = self._between(quantity, plan)
        if holds in {"gt", "ge"}:
            return ~(high < threshold) if holds == "ge" else ~(high <= threshold)
        return ~(low > threshold) if holds == "le" else ~(low >= threshold)

    def _between(self, quantity: str, plan: JudgingPlan) -> tuple[Doubles, Doubles]:
        """Least and greatest possible value of a quantity; NaN (unknown) makes everything possible."""
        if quantity == "abs_mean":
            low = np.where(self.summed, self.magnitude, self.energy) / self.count
            high = np.where(self.summed, self.magnitude / self.count, self.energy / np.sqrt(self.count))
            return low * (1 - self.slack), high * (1 + self.slack)
        if quantity == "mean":
            room = self.magnitude / self.count * self.slack
            return self.total / self.count - room, self.total / self.count + room
        if quantity == "zero_percentage":
            return self._zeros()
        known = self._known(quantity, plan)
        return known, known

    def _known(self, quantity: str, plan: JudgingPlan) -> Doubles:
        if quantity == "range_percentage":
            places = [each.ranges.get(plan.bounds, -1) for each in self.captures]
            return self.fetched.first(np.array(places, np.int64)) * 100.0 / self.count
        columns = {"max": self.high, "min": self.low, "max_min": self.high - self.low}
        return columns.get(quantity, np.full(len(self.count), np.nan))

    def _zeros(self) -> tuple[Doubles, Doubles]:
        """Bounds of the percentage of zeros: counted, or only whether all are zero, which extremes and norms show."""
        some = (self.low < 0) | (self.high > 0) | (self.magnitude > 0) | (self.energy > 0)
        most = np.where(some, 100.0 * (self.count - 1) / self.count, 100.0)
        counted = 100.0 * self.zeros / self.count
        known = ~np.isnan(counted)
        return np.where(known, counted, 0.0), np.where(known, counted, most)

    def _changes(self, plan: JudgingPlan) -> Mask:
        """Mask for conditions on the change since the step before; tensors without one do not hit."""
        known = np.array([bool(each.difference) for each in self.captures], np.bool_)
        changed = self._sums([each.difference for each in self.captures]) / self.count
        least, most = self._before()
        tiny = np.array([_TINY.get(each.meta.dtype, 0.0) for each in self.captures])
        low, high = changed * (1 - self.slack) - tiny, changed * (1 + self.slack) + tiny
        if plan.condition.is_not_changed:
            rtol, atol, _ = plan.closeness
            close: Mask = known & ~(low > atol + rtol * most)
            return close
        found = np.zeros(len(known), np.bool_)
        for _, threshold, holds in plan.checks:
            if holds == "gt":
                found |= ~(high / (least + plan.epsilon) <= threshold)
            elif holds == "lt":
                found |= ~(low / (most + plan.epsilon) >= threshold)
        return known & found

    def _before(self) -> tuple[Doubles, Doubles]:
        measured = self._sums([each.reference for each in self.captures])
        given = [each.between or (np.nan, np.nan) for each in self.captures]
        least, most = np.array(given, np.float64).T
        known = np.array([each.between is not None for each in self.captures], np.bool_)
        least = np.where(known, least, measured * (1 - self.slack)) / self.count
        return least, np.where(known, most, measured * (1 + self.slack)) / self.count

    def _sums(self, places: Sequence[tuple[int, ...]]) -> Doubles:
        flat = self.fetched.first(np.array([each for some in places for each in some], np.int64))
        owner = np.repeat(np.arange(len(places)), [len(each) for each in places])
        sums: Doubles = np.bincount(owner, flat, len(places)).astype(np.float64)
        return sums


class _CaptureNumbers(_QuickColumns):
    def __init__(self, captures: Sequence[Capture], fetched: HostNumbers) -> None:
        def column(places: list[int]) -> Doubles:
            return fetched.first(np.array(places, np.int64))

        self.captures = captures
        self.fetched = fetched
        self.count = np.array([math.prod(each.meta.shape) for each in captures], np.float64)
        self.slack = np.array([SLACK if "16" not in each.meta.dtype else COARSE for each in captures])
        self.low = column([each.extremes for each in captures])
        self.high = column([each.extremes + (each.extremes >= 0) for each in captures])
        self.magnitude = column([each.magnitude for each in captures])
        self.energy = column([each.energy for each in captures])
        self.total = column([each.total for each in captures])
        self.zeros = column([each.zeros for each in captures])
        self.normed = np.array([each.energy >= 0 for each in captures], np.bool_)
        self.ranged = np.array([each.extremes >= 0 for each in captures], np.bool_)
        self.summed = np.array([each.magnitude >= 0 for each in captures], np.bool_)


class _Grouped(_QuickColumns):
    def __init__(self, group: TensorGroup, fetched: HostNumbers) -> None:
        size, places, known = len(group.names), np.array(group.places, np.int64), offsets(group.kinds)

        def column(name: str, later: int = 0) -> Doubles:
            at = known.get(name)
            return np.full(size, np.nan) if at is None else fetched.first(places + (at + later))

        self.fetched = fetched
        self.count = np.array([each.numel() for each in group.tensors], np.float64)
        self.slack = np.full(size, SLACK if group.tensors[0].element_size() > _HALF else COARSE)
        self.low, self.high = column("extremes"), column("extremes", 1)
        self.magnitude, self.energy = column("magnitude"), column("energy")
        self.total, self.zeros = column("total"), column("zeros")
        self.normed, self.ranged, self.summed = (
            np.full(size, name in known) for name in ("energy", "extremes", "magnitude")
        )


_SUMMED_WIDER: Final = frozenset({"float16"})
"""Element types whose squares never overflow the sum."""


def rough_record(capture: Capture, fetched: HostNumbers) -> Record:
    """The record of a screened capture from its quick numbers; counts only say whether there are some."""

    def number(place: int) -> float:
        return float(fetched.all(place)[0]) if place >= 0 else math.nan

    count = math.prod(capture.meta.shape)
    low, high = number(capture.extremes), number(capture.extremes + 1) if capture.extremes >= 0 else math.nan
    energy = number(capture.energy)
    magnitude, total, zeros = number(capture.magnitude), number(capture.total), number(capture.zeros)
    if magnitude == 0 or energy == 0:
        low = high = 0.0
    nan = (capture.extremes >= 0 and math.isnan(low)) or (capture.magnitude >= 0 and math.isnan(magnitude))
    nan |= capture.energy >= 0 and math.isnan(energy)
    above = high == math.inf or (math.inf in {magnitude, energy} and capture.extremes < 0)
    if above and math.isnan(high) and magnitude != math.inf and capture.meta.dtype not in _SUMMED_WIDER:
        return Record(capture.meta, None)  # squares of large numbers may be infinite
    finite = math.isfinite(low) and math.isfinite(high)
    all_zero = finite and low == high == 0
    stats = TensorStats(
        count=count,
        nan=int(nan),
        pos_inf=int(above),
        neg_inf=int(low == -math.inf),
        zero=count if all_zero else 0 if math.isnan(zeros) else int(zeros),
        negative=int(low < 0),
        positive=int(high > 0),
        minimum=low if finite else None,
        maximum=high if finite else None,
        mean=total / count if finite and math.isfinite(total) else None,
        abs_mean=magnitude / count if math.isfinite(magnitude) else None,
        variance=None,
        sum_squares=0.0,
    )
    ranges = {bounds: int(number(place)) for bounds, place in capture.ranges.items()}
    return Record(capture.meta, stats, ranges)


def judge_step(step: CapturedStep, judge: ClientJudge, *, recheck: bool) -> list[ClientHit]:
    """Judges a step with one transfer, or two if some tensors are suspicious; ``recheck``: measures all exactly."""
    return _hits(look_now(step, judge, recheck=recheck), judge, step)


def look_now(step: CapturedStep, judge: ClientJudge, *, recheck: bool = False) -> list[Capture]:
    """The captures of a step that may be findings, with their records: see ``judge_step``."""
    step.fetched = step.waiting.fetch(step.fetched)  # more may have come since they were fetched last
    seen = step if recheck else sorted(lines(step.entries, step.fetched), key=lambda each: each.order)
    watched = [each for each in seen if judge.need(each.name) is not None and (recheck or not each.told)]
    if recheck:
        chosen = watched
    else:
        screened = [
            each
            for each in watched
            if each.plan is not None and each.screened and each.pending is None and each.record is None
        ]
        clean = {id(each) for each in screened} - {id(each) for each in suspects(screened, step.fetched)}
        chosen = [each for each in watched if id(each) not in clean]
    find_records(step, chosen, judge)
    return chosen


def judge_one(
    step: CapturedStep,
    capture: Capture,
    waiting: Waiting,
    judge: ClientJudge,
    operands: Callable[[], Sequence[CapturedOperand]],
) -> list[ClientHit]:
    """Judges a tensor that was just made, whose numbers wait separately; asks for ``operands`` if it is bad."""
    fetched = waiting.fetch()
    capture.told, capture.fetched = True, fetched
    if capture.screened and capture.pending is None and not suspects([capture], fetched):
        return []
    if capture.pending is not None:
        capture.record, capture.pending = exact.finish([capture.pending], fetched)[0], None
    elif capture.tensor is not None:
        need = judge.need(capture.name) or RequiredStats()
        capture.record = exact.records([(capture.tensor, need, capture.previous)])[0]
    if capture.record is not None and capture.record.stats is not None and capture.record.stats.bad:
        capture.operands = operands()
    return _hits([capture], judge, step)


def find_records(step: CapturedStep, captures: Sequence[Capture], judge: ClientJudge) -> None:
    """Gives captures exact records if their values are unchanged, else from what was measured when they were seen."""
    step.fetched = step.waiting.fetch(step.fetched)  # more may have come since they were fetched last
    pending: list[Capture] = []
    for capture in captures:
        need = judge.need(capture.name) or RequiredStats()
        if capture.record is not None and capture.record.need.covers(need):
            continue
        if capture.pending is not None:
            own = capture.fetched or step.fetched
            capture.record, capture.pending = exact.finish([capture.pending], own)[0], None
        elif capture.intact:
            pending.append(capture)
        elif capture.screened and capture.record is None:
            capture.record, capture.rough = rough_record(capture, capture.fetched or step.fetched), True
    values = [(each.tensor, judge.need(each.name) or RequiredStats(), each.previous) for each in pending]
    found = exact.records([(tensor, need, before) for tensor, need, before in values if tensor is not None])
    for capture, record in zip(pending, found, strict=True):
        fetched = capture.fetched or step.fetched
        if _agree(capture, record, fetched):
            capture.record = record
        else:
            capture.version = OVERWRITTEN
            capture.record, capture.rough = rough_record(capture, fetched), True


def values_of(step: CapturedStep, capture: Capture) -> torch.Tensor | None:
    """The values of a capture, if they are there and unchanged."""
    fetched = capture.fetched or step.fetched
    if not capture.intact or capture.tensor is None:
        return None
    if fetched is not None and not _agree(
        capture, exact.records([(capture.tensor, RequiredStats(), None)])[0], fetched
    ):
        capture.version = OVERWRITTEN
        return None
    return capture.tensor


_SAME: Final = 0.01
"""The largest relative difference of sums of the same values."""
_PLAIN_ROOTS: Final = (1e-12, 1e15)
"""Between these bounds √Σx² in float32 has neither lost its squares nor overflowed."""


def _agree(capture: Capture, record: Record, fetched: HostNumbers) -> bool:
    """Tells whether values may be those of a capture's quick numbers: some writes leave the version unchanged."""
    stats = record.stats
    if stats is None or not capture.screened or not stats.count:
        return True
    numbers = _CaptureNumbers([capture], fetched)
    known = [float(each[0]) for each in (numbers.magnitude, numbers.energy) if not math.isnan(each[0])]
    low, high, energy = float(numbers.low[0]), float(numbers.high[0]), float(numbers.energy[0])
    if capture.extremes >= 0:
        if stats.bad or not (math.isfinite(low) and math.isfinite(high)):
            return bool(stats.bad) != (math.isfinite(low) and math.isfinite(high))
        far = max(abs(low - (stats.minimum or 0.0)), abs(high - (stats.maximum or 0.0)))
        return far <= _SAME * max(abs(low), abs(high))
    if stats.bad:
        return not known or not all(map(math.isfinite, known))
    if len(known) < (capture.magnitude >= 0) + (capture.energy >= 0):
        return False  # a number is NaN, but no element is
    root = math.sqrt(stats.sum_squares)
    return not _PLAIN_ROOTS[0] < energy < _PLAIN_ROOTS[1] or abs(energy - root) <= _SAME * energy


def initial_hits(names: Iterable[str], records: Iterable[Record], judge: ClientJudge) -> list[ClientHit]:
    """The hits of the condition on initial values on weights before the first step."""
    weights = list(zip(names, records, strict=True))
    found = judge.evaluate(weights, initial=True)
    return [
        ClientHit(name, 0, result, record.meta, record.stats)
        for (name, record), results in zip(weights, found, strict=True)
        for result in results
    ]


def _hits(captures: Sequence[Capture], judge: ClientJudge, step: CapturedStep) -> list[ClientHit]:
    hits: list[ClientHit] = []
    said: set[tuple[str, int, int]] = set()
    known = [(capture, capture.record) for capture in captures if capture.record is not None]
    slots = [capture.slot for capture, _ in known]
    found = judge.evaluate([(capture.name, record) for capture, record in known], slots=slots)
    for (capture, record), results in zip(known, found, strict=True):
        stats = _some(record.stats) if capture.rough else record.stats
        if results:
            step.found(capture)
        operands = _operands(capture, step) if stats is not None and stats.bad else ()
        for result in _unknown_where_rough(results, capture, judge) if capture.rough else results:
            key = (capture.name, capture.slot, result.watchpoint)
            if key not in said:  # several passes of one step: the first one counts
                said.add(key)
                hits.append(ClientHit(capture.name, capture.slot, result, capture.meta, stats, operands=operands))
    return hits


def _operands(capture: Capture, step: CapturedStep) -> tuple[tuple[str, OperandState], ...]:
    """The known states of the operands of a node, by their sources.

    The first source of a bad operand counts as bad. The sources of a clean operand count as clean, unless another
    operand with them is not clean.
    """
    found: dict[str, OperandState] = {}
    clean: dict[str, bool] = {}
    gradient = step.collected.get(capture.name)
    for operand in capture.operands if gradient is None else (gradient,):
        state = _state_of(operand, capture.fetched or step.fetched)
        if state in {OperandState.NAN, OperandState.INFINITE}:
            found[operand.sources[0]] = max(state, found.get(operand.sources[0], state), key=_WORSE.index)
        for each in operand.sources:
            clean[each] = clean.get(each, True) and state is OperandState.CLEAN
    return (*found.items(), *((each, OperandState.CLEAN) for each, known in clean.items() if known))


_WORSE: Final = (OperandState.CLEAN, OperandState.INFINITE, OperandState.NAN)


def _state_of(operand: CapturedOperand, fetched: HostNumbers | None) -> OperandState | None:
    if operand.state is not None:
        return operand.state
    if operand.seen is not None:
        record = operand.seen.record
        if record is None:  # no exact look was needed
            return OperandState.CLEAN if operand.seen.screened and operand.seen.plan is not None else None
        if record.stats is None:
            return None
        nan, infinite = record.stats.nan > 0, record.stats.inf > 0
    elif operand.extremes is not None:
        nan, infinite = _bad(*map(float, operand.extremes))
    elif operand.place >= 0 and fetched is not None:
        nan, infinite = _bad(*(float(fetched.all(operand.place + at)[0]) for at in range(2)))
    else:
        return None
    return OperandState.NAN if nan else OperandState.INFINITE if infinite else OperandState.CLEAN


def _bad(low: float, high: float) -> tuple[bool, bool]:
    return math.isnan(low) or math.isnan(high), math.isinf(low) or math.isinf(high)


def _some(stats: TensorStats | None) -> TensorStats | None:
    """The statistics of a rough record with bad elements, which only says that there are some; None if clean."""
    if stats is None or not stats.bad:
        return None
    return replace(stats, sum_squares=math.nan, at_least=AtLeast.NAN | AtLeast.INF)


def _unknown_where_rough(results: Sequence[WatchResult], capture: Capture, judge: ClientJudge) -> list[WatchResult]:
    """The results on a rough record, by which no expression can be judged."""
    expressions = [each for each in judge.watchpoints(capture.name) if judging_plan(each).expression is not None]
    unknown = [WatchResult(each.id, each.condition, Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE) for each in expressions]
    others = [each for each in results if each.watchpoint not in {watchpoint.id for watchpoint in expressions}]
    return sorted([*others, *unknown], key=lambda each: each.watchpoint)
