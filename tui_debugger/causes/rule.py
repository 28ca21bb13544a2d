"""The rule that says of every bad tensor: origin, passed on, not judged, or by design. Nothing else decides that.

An origin is a bad tensor whose node was made from clean values only, all of them known. Dumps and trainings that run
are asked in the same way: what a training said of a tensor is a record like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int8, Int64, Mask
from tui_debugger.causes.by_design_readers import stated
from tui_debugger.causes.by_design_steps import StepDesigns
from tui_debugger.causes.made_from import made_from
from tui_debugger.causes.table import (
    BAD,
    CLEAN,
    OVERFLOW,
    STARTS,
    STATES,
    UNKNOWN,
    Causes,
    Criterion,
    Examined,
    JudgedValue,
    OriginKind,
)
from tui_debugger.check.hits import StepHits
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import draws_updates
from tui_debugger.model import PARAMETERS, Hit, OperandState, ProgressFn, Side, no_progress
from tui_debugger.stats.records import RecordState as RowState
from tui_debugger.stats.records import RequiredStats, holds_bad


@dataclass(eq=False)
class Ruling:
    """What the rule says, as columns."""

    start: Int8  # of each tensor, ``OriginKind.code``
    state: Int8  # of each value, as what follows: a number of ``STATES``
    step: Int64  # where the value stands that was judged
    index: Int64
    constant: Mask  # see ``JudgedValue``, also for what follows
    missing: Mask
    overwritten: Mask
    designed: Mask


def ruling(causes: Causes, criterion: Criterion, progress: ProgressFn = no_progress, text: str = "") -> Ruling:
    """Decides why each tensor is bad, and measures what that needs. Raises CancelledError from ``progress``."""
    return _OriginJudge(causes, criterion, progress, text).ruling()


class _OriginJudge:
    def __init__(self, causes: Causes, criterion: Criterion, progress: ProgressFn, text: str) -> None:
        self._causes = causes
        self._criterion = criterion
        self._progress, self._text = progress, text
        self._measurements = causes.measurements
        self._values, self._tensors = causes.values, causes.tensors
        self._designs: dict[int, StepDesigns] = {}

    def ruling(self) -> Ruling:
        values = self._values
        step, index = values["step"].copy(), values["index"].copy()
        state = self._states(step, index)
        designed = self._designed(state, step, index)
        constant = values["constant"] | self._are_attributes(step, index) | self._are_given()
        open_values = np.isin(values["of"], np.flatnonzero(~self._surely_passed_on(state, constant, designed)))
        self._measure(step, index, open_values)
        self._measure(values["held_step"], values["held_index"], open_values & values["after"])
        state[open_values] = self._states(step[open_values], index[open_values])
        self._judge_by_later(state, open_values)
        overwritten = self._overwritten(state, open_values)
        state[overwritten] = CLEAN
        step[overwritten], index[overwritten] = values["held_step"][overwritten], values["held_index"][overwritten]
        designed = self._designed(state, step, index)
        constant |= self._are_attributes(step, index)
        held = np.where(values["after"] & ~values["own"], values["held_index"], -1)
        left = (state == BAD) | (self._states(values["held_step"], held) == BAD) | (not self._criterion.overflow)
        state[left & values["after"]] = UNKNOWN  # what is left there, or what was there: maybe not what the node got
        state[designed] = CLEAN
        given, given_state = self._stated()
        state[given] = np.where(state[given] == UNKNOWN, given_state, state[given])
        self._believe(state, designed)
        missing = (state == UNKNOWN) & ~(constant & ~values["constant"])
        if not self._criterion.overflow:
            missing &= ~values["stated"]
        start = self._decide(state, constant, missing)
        self._pass_on(start, designed)
        return Ruling(start, state, step, index, constant, missing, overwritten, designed)

    def _decide(self, state: Int8, constant: Mask, missing: Mask) -> Int8:
        causes, values, criterion = self._causes, self._values, self._criterion
        start: Int8 = self._tensors["start"].copy()
        bad = state == BAD
        if not criterion.overflow:
            bad &= ~constant
        any_bad = causes.any_of(bad)
        unknown = (self._tensors["exchanged"] | causes.any_of(missing)) & ~any_bad
        start[unknown] = OriginKind.UNKNOWN.code
        start[any_bad] = OriginKind.CONSTANT.code
        start[causes.any_of(bad & ~constant)] = OriginKind.TAINTED.code
        start[causes.any_of(bad & values["initial"] & values["before"])] = OriginKind.BEFORE.code
        if criterion.need.previous:
            # That a parameter changed (or did not) is its own matter: what updated it has no such value.
            own = self._tensors["parameter"] >= 0
            source = self._tensors["start"] == OriginKind.SOURCE.code
            start[own] = np.where(source, OriginKind.SOURCE.code, OriginKind.UPDATED.code)[own]
        if criterion is OVERFLOW:
            steps = np.full(len(causes), causes.step, np.int64)
            may_be = np.where(start != OriginKind.TAINTED.code, self._tensors["index"], -1)
            start[self._designed(np.full(len(causes), BAD), steps, may_be)] = OriginKind.DESIGNED.code
        return start

    def _pass_on(self, start: Int8, designed: Mask) -> None:
        """Of several tensors that an intended Inf made bad, only those of the first node are origins."""
        made = self._causes.any_of(designed) & (start == OriginKind.MADE.code)
        for number in np.flatnonzero(made).tolist():
            of = self._tensors[number]
            if self._designs_of(self._causes.step).of_round(int(of["round"])).broke_before(int(of["row"])):
                start[number] = OriginKind.TAINTED.code

    # -- what is known -------------------------------------------------------------------------------

    def _states(self, step: Int64, index: Int64) -> Int8:
        """The states of values, as far as they are measured. A tensor that is asked about is bad."""
        found = np.full(len(step), UNKNOWN, np.int8)
        with self._measurements.locked():
            for each in np.unique(step[index >= 0]).tolist():
                of = np.flatnonzero((step == each) & (index >= 0))
                rows, which = np.unique(index[of], return_inverse=True)
                found[of] = self._criterion.states(self._measurements.records(each), rows)[which]
        asked = (step == self._causes.step) & (index >= 0) & np.isin(index, self._tensors["index"])
        found[asked & (found == UNKNOWN)] = BAD
        return found

    def _judge_by_later(self, state: Int8, open_values: Mask) -> None:
        """Counts parameters of unknown value as clean if they are clean after their update."""
        unknown = open_values & (state == UNKNOWN) & (self._values["later"] >= 0)
        if self._criterion.overflow and unknown.any():
            step = np.full(len(state), self._causes.step, np.int64)
            self._measure(step, self._values["later"], unknown)
            later = self._states(step, np.where(unknown, self._values["later"], -1))
            state[unknown & (later == CLEAN)] = CLEAN

    def _believe(self, state: Int8, designed: Mask) -> None:
        """Adopts the states that a training reported for values that a node read; an Inf may be by design."""
        if not self._criterion.overflow:
            return
        told = self._values["told"]
        state[told == OperandState.CLEAN] = CLEAN
        state[(told == OperandState.NAN) & ~designed] = BAD
        # What was told to write an Inf into a tensor stands beside it.
        written = self._causes.any_of(designed)[self._values["of"]] & (state == CLEAN)
        state[(told == OperandState.INFINITE) & ~designed & ~written & (self._values["index"] >= 0)] = BAD

    def _stated(self) -> tuple[Int64, Int8]:
        at = np.flatnonzero(self._values["stated"]) if self._criterion.overflow else np.zeros(0, np.int64)
        nodes = self._causes.flow.nodes
        rows, which = np.unique(self._values["holder"][at], return_inverse=True)
        held = [stated(nodes, row) for row in rows.tolist()]
        # In a graph of our client a constant is a number of the program: the operator that got it brings it in.
        nan = CLEAN if draws_updates(nodes) else BAD
        states = [UNKNOWN if each is None else nan if each.nan else CLEAN for each in held]
        return at, np.array(states, np.int8)[which]

    def _measure(self, step: Int64, index: Int64, wanted: Mask) -> None:
        at = np.flatnonzero(wanted & (index >= 0))
        places = zip(step[at].tolist(), index[at].tolist(), strict=True)
        self._measurements.ensure(dict.fromkeys(places, self._criterion.need), self._progress, self._text)

    def _surely_passed_on(self, state: Int8, constant: Mask, designed: Mask) -> Mask:
        """Tensors with an input that is bad for certain, whatever a closer look would show."""
        values = self._values
        may_be_its_own = values["own"] & (values["held_index"] >= 0)
        held = self._states(values["held_step"], np.where(may_be_its_own, values["held_index"], -1))
        sure = (state == BAD) & ~constant & ~designed & ~values["after"] & (~may_be_its_own | (held == BAD))
        first = self._causes.any_of(values["initial"] & values["before"])
        return self._causes.any_of(sure) & ~first

    def _overwritten(self, state: Int8, open_values: Mask) -> Mask:
        """Input files that show the node's own result: in-place operators are dumped after the kernel ran."""
        values, found = self._values, np.zeros(len(self._values), np.bool_)
        likely = np.flatnonzero(open_values & (state == BAD) & values["own"] & (values["held_index"] >= 0))
        if not len(likely) or draws_updates(self._causes.flow.nodes):  # our client says nothing of such inputs
            return found
        round_ = self._tensors["round"][values["of"]]
        places = [(int(values["node"][at]), int(round_[at])) for at in likely.tolist()]
        outputs = {place: list(self._outputs(*place)) for place in dict.fromkeys(places)}
        self._measurements.ensure(
            {(self._causes.step, at): RequiredStats() for each in outputs.values() for at in each},
            self._progress,
            self._text,
        )
        same = [at for at, place in zip(likely.tolist(), places, strict=True) if self._equals_one(at, outputs[place])]
        at = np.array(same, np.int64)
        held = np.zeros(len(values), np.bool_)
        held[at] = True
        self._measure(values["held_step"], values["held_index"], held)
        found[at] = self._states(values["held_step"][at], values["held_index"][at]) == CLEAN
        return found

    def _outputs(self, node: int, round_: int) -> Iterator[int]:
        flow, step = self._causes.flow, self._causes.step
        for slot in flow.slots(step, node, Side.OUTPUT, round_) if node >= 0 else ():
            yield flow.located(step, node, Side.OUTPUT, slot, round_).index

    def _equals_one(self, at: int, outputs: Sequence[int]) -> bool:
        record = self._measurements.record(int(self._values["step"][at]), int(self._values["index"][at]))
        others = (self._measurements.record(self._causes.step, each) for each in outputs)
        return (
            record is not None
            and record.stats is not None
            and any(other is not None and other.stats == record.stats for other in others)
        )

    def _designed(self, state: Int8, step: Int64, index: Int64) -> Mask:
        found = np.zeros(len(step), np.bool_)
        if self._criterion is not OVERFLOW:
            return found
        likely = np.flatnonzero((state == BAD) & (index >= 0))
        for each in np.unique(step[likely]).tolist():
            of = likely[step[likely] == each]
            with self._measurements.locked():
                rows = self._measurements.records(each).rows[index[of]]
            bad = holds_bad(rows)
            places, first, which = np.unique(index[of[bad]], return_index=True, return_inverse=True)
            nan = (rows["nan"][bad][first] > 0).tolist()
            answers = [self._is_intended(each, *place) for place in zip(places.tolist(), nan, strict=True)]
            found[of[bad]] = np.array(answers, np.bool_)[which]
        return found

    def _is_intended(self, step: int, index: int, nan: bool) -> bool:
        if (at := self._causes.located(step, index)) is None:
            return False
        return self._designs_of(step).of_round(at.round).intended_at(at.row, at.side, at.slot, nan=nan)

    def _designs_of(self, step: int) -> StepDesigns:
        if step not in self._designs:
            self._designs[step] = StepDesigns(self._measurements, step)
        return self._designs[step]

    def _are_attributes(self, step: Int64, index: Int64) -> Mask:
        """Without a graph: an operator's flag or axis rather than a tensor."""
        found = np.zeros(len(step), np.bool_)
        unclaimed = (self._values["holder"] < 0) & (self._values["side"] == int(Side.INPUT)) & (index >= 0)
        for each in np.unique(step[unclaimed]).tolist():
            of = np.flatnonzero(unclaimed & (step == each))
            with self._measurements.locked():
                records = self._measurements.records(each)
                flags = [meta.shape == () and meta.dtype.startswith(("bool", "int", "uint")) for meta in records.metas]
                known = records.rows["state"][index[of]] == RowState.MEASURED
                found[of] = known & np.array([*flags, False], np.bool_)[records.rows["meta"][index[of]]]
        return found

    def _are_given(self) -> Mask:
        """Values that the run does not make, for conditions on small changes: a learning rate, for example."""
        found = np.zeros(len(self._values), np.bool_)
        if self._criterion.unchanged:
            flow = self._causes.flow
            held = (self._values["holder"] >= 0) & (self._values["side"] == int(Side.INPUT))
            for at in np.flatnonzero(held).tolist():
                row = int(self._values["holder"][at])
                found[at] = flow.nodes.category_of(row) in PARAMETERS and not flow.updated(row)
        return found


# -- hits -----------------------------------------------------------------------------------------------


_IS_ORIGIN: Final = np.array([each in OriginKind.origins() for each in STARTS], np.bool_)


def mark_hits(measurements: Measurements, hits: StepHits, progress: ProgressFn = no_progress) -> int:
    """Marks hits as origins or by design; the number by design. Raises CancelledError from ``progress``."""
    by_design = StepDesigns(measurements, hits.step, progress).mark(hits)
    bad = np.flatnonzero(hits.bad())
    if len(bad):
        causes = made_from(measurements, hits.step, hits.node[bad], hits.side[bad], hits.slot[bad], hits.round[bad])
        text = f"rank {hits.rank} step {hits.step}: origins"
        start = ruling(causes, OVERFLOW, progress, text).start
        origin = _IS_ORIGIN[start]
        if hits.step:
            origin &= start != OriginKind.BEFORE.code
        hits.origin[bad] = origin
    return by_design


Asked = tuple[Hit, Sequence[Criterion]]
"""A bad tensor, and what makes it bad."""


class Examination:
    """The rulings on bad tensors of a step, each asked by one criterion or several."""

    def __init__(
        self, measurements: Measurements, step: int, asked: Sequence[Asked], progress: ProgressFn = no_progress
    ) -> None:
        """Asks; raises CancelledError from ``progress``."""
        self._asked = asked
        places = [(hit.row, int(hit.key.side), hit.key.slot, hit.key.round) for hit, _ in asked]
        causes = made_from(measurements, step, *np.array(places, np.int64).reshape(-1, 4).T)
        self._rulings: dict[Criterion, tuple[Causes, Int64, Ruling]] = {}
        text = f"rank {measurements.flow.rank} step {step}: origins"
        for criterion in dict.fromkeys(each for _, criteria in asked for each in criteria):
            of = np.flatnonzero([criterion in criteria for _, criteria in asked])
            some = causes if len(of) == len(asked) else causes.some(of)
            self._rulings[criterion] = some, of, ruling(some, criterion, progress, text)
        self.start = [self._answer(number)[0] for number in range(len(asked))]  # see ``Examined``

    def _answer(self, number: int) -> tuple[OriginKind, tuple[int, ...], Criterion]:
        criteria = self._asked[number][1]
        starts = [self._start(number, criterion) for criterion in criteria]
        origins = [at for at, start in enumerate(starts) if start in OriginKind.origins()]
        at = origins[0] if origins else 0
        return starts[at], tuple(origins or range(len(criteria))), criteria[at]

    def _start(self, number: int, criterion: Criterion) -> OriginKind:
        _, of, found = self._rulings[criterion]
        return STARTS[int(found.start[np.searchsorted(of, number)])]

    def of(self, number: int) -> Examined:
        start, numbers, criterion = self._answer(number)
        causes, of, found = self._rulings[criterion]
        at = int(np.searchsorted(of, number))
        tensor = causes.tensors[at]
        values = np.flatnonzero(causes.values["of"] == at).tolist()
        return Examined(
            hit=self._asked[number][0],
            start=start,
            criteria=numbers,
            values=tuple(_judged(causes, found, each) for each in values),
            made_by=int(tensor["named"]),
            beside=int(tensor["other"]),
            node=int(tensor["node"]),
            parameter=int(tensor["parameter"]),
            exchanged=bool(tensor["exchanged"]),
        )


def _judged(causes: Causes, found: Ruling, at: int) -> JudgedValue:
    value: npt.NDArray[np.void] = causes.values[at]
    told = ("node", "slot", "own", "initial", "after", "before")
    ruled = ("constant", "missing", "overwritten", "designed")
    return JudgedValue(
        side=Side(int(value["side"])),
        at=causes.located(int(found.step[at]), int(found.index[at])),
        held=causes.located(int(value["held_step"]), int(value["held_index"])),
        state=STATES[int(found.state[at])],
        **{name: value[name].item() for name in told},
        **{name: bool(getattr(found, name)[at]) for name in ruled},
    )
