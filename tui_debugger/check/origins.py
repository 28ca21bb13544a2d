"""Finds where something bad starts: tensors that are bad although nothing they were made from is.

What "bad" means is a ``Criterion``: NaN or Inf, or a finding of a watchpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from tui_debugger.check.by_design import StepDesigns
from tui_debugger.check.flow import Located
from tui_debugger.check.measure import Measurements
from tui_debugger.check.provenance import Provenance, Provenances, Start, ValueSource
from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, TensorKey, Verdict, Watchpoint, no_progress
from tui_debugger.stats.records import Record, Records, RequiredStats
from tui_debugger.stats.records import State as RowState
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, needs


class State(Enum):
    """The state of a tensor that another one was made from, as far as it is known."""

    CLEAN = "clean"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Criterion:
    """The criterion by which a tensor is bad.

    Attributes:
        watchpoint: it would have a finding; its selection is not asked.
    """

    watchpoint: Watchpoint

    @property
    def need(self) -> RequiredStats:
        """Returns what a record must hold to answer it."""
        return needs(self.watchpoint)

    @property
    def overflow(self) -> bool:
        """Tells whether it asks for NaN and Inf, which are wrong in a constant too."""
        return CONDITIONS[self.watchpoint.condition].is_overflow

    @property
    def unchanged(self) -> bool:
        """Tells whether it asks for what hardly changes: of a constant or a graph input that says nothing."""
        return CONDITIONS[self.watchpoint.condition].is_small_change

    def states(self, records: Records, rows: Sequence[int]) -> list[State]:
        """Returns what some tensors are, by their rows."""
        at = np.array(rows, np.int64)
        # Whether a step came before tells apart only why nothing is known.
        verdict = ColumnEvaluator(records, at).evaluate(self.watchpoint, first_step=False).verdict
        known = (records.rows["state"][at] == RowState.MEASURED) & records.covers(self.need, at)
        return [
            _STATES.get(each, State.UNKNOWN) if answered else State.UNKNOWN
            for each, answered in zip(verdict.tolist(), known.tolist(), strict=True)
        ]


# A tensor that NaN or Inf kept from being judged is bad as well: what is made of it may be a finding.
_STATES: Final = {SILENT: State.CLEAN, int(Verdict.FINDING): State.BAD, int(Verdict.BLOCKED): State.BAD}
OVERFLOW: Final = Criterion(Watchpoint(0, "tensor_overflow"))
"""Any NaN or Inf."""


def criterion_of(watchpoint: Watchpoint) -> Criterion:
    """Returns what makes a tensor bad in the eyes of a watchpoint; all conditions on NaN and Inf ask the same."""
    return OVERFLOW if CONDITIONS[watchpoint.condition].is_overflow else Criterion(watchpoint)


@dataclass(frozen=True, slots=True)
class Judged:
    """A source with its verdict.

    Attributes:
        source: the tensor that was used.
        at: where the value stands that was judged; None when it was not dumped.
        state: what it is.
        constant: it is the value of a graph constant or an operator's attribute.
        before: ``at`` is the value of before the node wrote over it.
        designed: it has an Inf, which an operator was told to write: clean as far as what is made from it goes.
    """

    source: ValueSource
    at: Located | None
    state: State
    constant: bool = False
    before: bool = False
    designed: bool = False

    @property
    def missing(self) -> bool:
        """Tells whether it is not known, so that it cannot be said that something does not start elsewhere."""
        stated = self.source.stated or (self.constant and not self.source.constant)  # an operator's attribute
        return self.state is State.UNKNOWN and not stated


@dataclass(frozen=True, slots=True)
class Examined:
    """A bad tensor, and why it is (or is not) where things start.

    Attributes:
        hit: the tensor.
        provenance: which node made it, from what.
        start: the answer for the first criterion by which it starts here, else for the first criterion.
        criteria: the numbers of the criteria by which it starts here; without any, of all.
        sources: the verdicts behind ``start``.
    """

    hit: Hit
    provenance: Provenance
    start: Start
    criteria: tuple[int, ...]
    sources: tuple[Judged, ...]

    @property
    def missing(self) -> tuple[Judged, ...]:
        """Returns the unknown sources: without them it cannot be said that it starts here. Other ranks are left out."""
        return tuple(each for each in self.sources if each.missing)

    @property
    def row(self) -> int:
        """The node to be named."""
        updated = self.start is Start.UPDATED and self.provenance.parameter >= 0
        return self.provenance.parameter if updated else self.provenance.row

    @property
    def other(self) -> int:
        """The node to be named beside it, or -1."""
        return self.provenance.other if self.row == self.provenance.row else self.provenance.row


_MARKED = frozenset({Start.MADE, Start.UNSEEN, Start.CHANGED, Start.SOURCE, Start.BEFORE})


def find_origins(
    measurements: Measurements, step: int, hits: Sequence[Hit], progress: ProgressFn = no_progress
) -> set[TensorKey]:
    """The tensors of one step with NaN or Inf whose node had only clean inputs, all of them known.

    Beside them a node that has no inputs at all, and a parameter that was bad before the first dumped step or that no
    optimizer changes. What never is a value (an order of execution) and constants that the graph states do not count.

    Raises:
        CancelledError: from ``progress``.
    """
    bad = [(hit, (OVERFLOW,)) for hit in hits if hit.stats is not None and hit.stats.bad]
    return {each.hit.key for each in Examiner(measurements).examine(step, bad, progress) if each.start in _MARKED}


class Examiner:
    """Asks of bad tensors of one rank whether something that they were made from is bad as well."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.flow = measurements.flow
        self._records: dict[tuple[int, int], Record | None] = {}
        self._states: dict[tuple[Criterion, int, int], State] = {}
        self._designs: dict[int, StepDesigns] = {}

    def examine(
        self, step: int, hits: Sequence[tuple[Hit, Sequence[Criterion]]], progress: ProgressFn = no_progress
    ) -> list[Examined]:
        """The answers for tensors of one step, each with the criteria by which it is bad.

        Raises:
            CancelledError: from ``progress``.
        """
        provenances = Provenances(self.measurements, step)
        made = [(hit, provenances.of(hit), tuple(criteria)) for hit, criteria in hits]
        text = f"rank {self.flow.rank} step {step}: origins"
        self._ensure(((q, s.at) for _, m, q in made for s in m.sources), progress, text)
        own = {(m.node, m.round) for _, m, _ in made if any(source.own for source in m.sources)}
        self._ensure((((OVERFLOW,), at) for node in own for at in provenances.outputs(*node)), progress, text)
        replaced = ((q, s.held) for _, m, q in made for s in m.sources if self._replaced(provenances, m, s, q))
        self._ensure(replaced, progress, text)
        return [self._examined(provenances, *each) for each in made]

    def _ensure(
        self, requested: Iterable[tuple[Sequence[Criterion], Located | None]], progress: ProgressFn, text: str
    ) -> None:
        wanted: dict[tuple[int, int], RequiredStats] = {}
        places: dict[tuple[Criterion, int], set[int]] = {}
        for criteria, at in requested:
            if at is None:
                continue
            need = wanted.get((at.step, at.index), RequiredStats())
            for criterion in criteria:
                need = need | criterion.need
                places.setdefault((criterion, at.step), set()).add(at.index)
            wanted[at.step, at.index] = need
        self.measurements.ensure(wanted, progress, text)
        self._records.clear()
        for (criterion, step), rows in places.items():
            self._find_states(criterion, step, sorted(rows))

    def _find_states(self, criterion: Criterion, step: int, rows: Sequence[int]) -> None:
        with self.measurements.locked():
            states = criterion.states(self.measurements.records(step), rows)
        self._states.update(((criterion, step, row), state) for row, state in zip(rows, states, strict=True))

    def _replaced(
        self, provenances: Provenances, provenance: Provenance, source: ValueSource, criteria: Sequence[Criterion]
    ) -> bool:
        bad = any(self._state(source.at, criterion) is State.BAD for criterion in criteria)
        return bad and source.own and source.held is not None and self._overwritten(provenances, provenance, source)

    def _examined(
        self, provenances: Provenances, hit: Hit, provenance: Provenance, criteria: Sequence[Criterion]
    ) -> Examined:
        answers = []
        for criterion in criteria:
            sources = tuple(self._judge(provenances, provenance, source, criterion) for source in provenance.sources)
            start = _decide(provenance, sources, criterion)
            if criterion is OVERFLOW and start is not Start.TAINTED and self._is_designed(provenances, hit):
                start = Start.DESIGNED
            answers.append((start, sources))
        starts = [number for number, (start, _) in enumerate(answers) if start in Start.origins()]
        start, sources = answers[starts[0] if starts else 0]
        return Examined(hit, provenance, start, tuple(starts or range(len(criteria))), sources)

    def _judge(
        self, provenances: Provenances, provenance: Provenance, source: ValueSource, criterion: Criterion
    ) -> Judged:
        state = self._state(source.at, criterion)
        bad = state is State.BAD
        if source.after and (bad or not criterion.overflow):  # what is left there, not what the node got
            return Judged(source, source.at, State.UNKNOWN)
        if (
            bad
            and self._replaced(provenances, provenance, source, (criterion,))
            and self._state(source.held, criterion) is State.CLEAN
        ):
            return Judged(source, source.held, State.CLEAN, before=True)
        designed = criterion is OVERFLOW and state is State.BAD and source.at is not None and self._designed(source.at)
        state = State.CLEAN if designed else state
        constant = source.constant or self._is_attribute(source) or (criterion.unchanged and self._is_given(source))
        return Judged(source, source.at, state, constant, designed=designed)

    def _is_given(self, source: ValueSource) -> bool:
        """Tells whether nothing in the run makes it: a learning rate, the data."""
        row = self.flow.holder(source.node, source.slot).row if source.side is Side.INPUT else -1
        return row >= 0 and self.flow.nodes.category_of(row) in PARAMETERS and not self.flow.updated(row)

    def _designed(self, at: Located) -> bool:
        """Tells whether a tensor has an Inf that an operator was told to write."""
        record = self._record(at)
        if record is None or record.stats is None or record.stats.nan or not record.stats.inf:
            return False
        if at.step not in self._designs:
            self._designs[at.step] = StepDesigns(self.measurements, at.step)
        return self._designs[at.step].of_round(at.round).intended_at(at.row, at.side, at.slot)

    def _is_designed(self, provenances: Provenances, hit: Hit) -> bool:
        key = hit.key
        at = self.flow.located(provenances.step, hit.row, key.side, key.slot, key.round)
        return at.index >= 0 and self._designed(at)

    def _is_attribute(self, source: ValueSource) -> bool:
        """Without a graph: an operator's flag or axis rather than a tensor."""
        record = self._record(source.at) if source.unclaimed else None
        meta = record.meta if record is not None else None
        return meta is not None and meta.shape == () and meta.dtype.startswith(("bool", "int", "uint"))

    def _record(self, at: Located | None) -> Record | None:
        """Returns what is known about a tensor; everything that a weight or activation went into asks for it."""
        if at is None:
            return None
        place = at.step, at.index
        if place not in self._records:
            self._records[place] = self.measurements.record(*place)
        return self._records[place]

    def _state(self, at: Located | None, criterion: Criterion) -> State:
        if at is None:
            return State.UNKNOWN
        place = criterion, at.step, at.index
        if place not in self._states:
            self._find_states(criterion, at.step, [at.index])
        return self._states[place]

    def _overwritten(self, provenances: Provenances, provenance: Provenance, source: ValueSource) -> bool:
        """Tells whether an input file shows the node's own result: in-place operators are dumped after the kernel."""
        record = self._record(source.at)
        if record is None or record.stats is None:
            return False
        outputs = map(self._record, provenances.outputs(provenance.node, provenance.round))
        return any(output is not None and output.stats == record.stats for output in outputs)


def _decide(provenance: Provenance, sources: Sequence[Judged], criterion: Criterion) -> Start:
    if provenance.parameter >= 0 and criterion.need.previous:
        # That a parameter changed (or did not) is its own matter: what it was fed with has no such value to compare.
        return Start.SOURCE if provenance.start is Start.SOURCE else Start.UPDATED
    counted = [each for each in sources if criterion.overflow or not each.constant]
    bad = [each for each in counted if each.state is State.BAD]
    if any(each.source.initial and each.source == provenance.before for each in bad):
        return Start.BEFORE
    if bad:
        return Start.CONSTANT if all(each.constant for each in bad) else Start.TAINTED
    return Start.UNKNOWN if provenance.exchanged or any(each.missing for each in sources) else provenance.start
