"""The rule of the program once more, for one bad tensor of a dump at a time: no columns, every value measured first.

``tests/causes/rule.py`` has the rule in plain words, of steps that are made up. This one asks the data flow of a real
dump the same questions as the program, and decides for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tui_debugger.causes.by_design_readers import stated
from tui_debugger.causes.by_design_steps import StepDesigns
from tui_debugger.causes.made_from import _OF_TWO
from tui_debugger.causes.table import OVERFLOW, Criterion, InputState, OriginKind
from tui_debugger.check.flow import Holder, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import (
    BUFFER_UPDATE,
    INPUT_UPDATE,
    assigned,
    draws_updates,
    is_collective,
    is_receiving,
    may_be_written,
    outlives_steps,
)
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import PARAMETERS, TRAINABLE, Category, Side
from tui_debugger.stats.records import Record, RequiredStats

Bad = tuple[int, Side, int, int]
"""A bad tensor of a step: row of its node, side, slot, round."""
Value = tuple[int, int, Side, tuple[int, int] | None, InputState, bool, bool]
"""A value that a tensor was made from: node, slot and side, step and index of what was judged, state, whether it is a
constant, whether it is missing."""


@dataclass(frozen=True)
class Answer:
    """The answer for one tensor, as in ``Examined``."""

    start: OriginKind
    made_by: int
    beside: int
    node: int
    parameter: int
    exchanged: bool
    values: tuple[Value, ...]


@dataclass(frozen=True)
class _Source:
    """A value that a tensor was made from; as in ``VALUE``."""

    node: int
    slot: int
    at: Located | None
    side: Side = Side.INPUT
    holder: int = -1
    held: Located | None = None
    later: Located | None = None
    constant: bool = False
    initial: bool = False
    before: bool = False
    after: bool = False


@dataclass(frozen=True)
class _Made:
    """The way in which a tensor came to be; ``start``: the answer where no value is bad."""

    row: int
    start: OriginKind
    sources: tuple[_Source, ...] = ()
    other: int = -1
    node: int = -1
    parameter: int = -1
    exchanged: bool = False


class OneByOne:
    """Asks of the bad tensors of one step whether something that they were made from is bad as well."""

    def __init__(self, measurements: Measurements, step: int, bad: Sequence[Bad], criterion: Criterion) -> None:
        """Nothing is measured here: see ``measure_all``."""
        self._measurements, self._flow, self._nodes = measurements, measurements.flow, measurements.flow.nodes
        self._step, self._criterion, self._bad = step, criterion, dict.fromkeys(bad)
        self._designs: dict[int, StepDesigns] = {}
        self._round = 0

    def answers(self) -> Iterator[Answer]:
        """The answers, in the order of the tensors."""
        for row, side, slot, round_ in self._bad:
            self._round = round_
            made = self._made(row, side, slot)
            if made.start is OriginKind.SOURCE and made.parameter >= 0:
                written = may_be_written(self._nodes, made.parameter)
                more = self._averaged(made.parameter) if written else self._carried_over(made.parameter)
                made = replace(made, sources=(*made.sources, *more))
            judged: list[tuple[_Source, InputState, bool, bool]] = []
            values: list[Value] = []
            for each in made.sources:
                at, state, constant, missing = self._judge(each)
                place = None if at is None or at.index < 0 else (at.step, at.index)
                values.append((each.node, each.slot, each.side, place, state, constant, missing))
                judged.append((each, state, constant, missing))
            start = self._start(made, judged)
            if start is OriginKind.MADE and any(self._is_intended(self._judge(each)[0]) for each in made.sources):
                designs = self._designs.setdefault(self._step, StepDesigns(self._measurements, self._step))
                start = OriginKind.TAINTED if designs.of_round(round_).broke_before(row) else start
            own = self._flow.located(self._step, row, side, slot, round_)
            if start is not OriginKind.TAINTED and self._is_intended(own):
                start = OriginKind.DESIGNED
            yield Answer(start, made.row, made.other, made.node, made.parameter, made.exchanged, ordered(values))

    # -- which node made a tensor, and from what -----------------------------------------------------

    def _made(self, row: int, side: Side, slot: int) -> _Made:
        if side is Side.INPUT:
            return self._seen(row, slot)
        return self._parameter(row) if self._is_parameter(row) else self._operator(row)

    def _operator(self, row: int, seen_by: int = -1) -> _Made:
        sources = tuple(replace(each, before=False) for each in self._inputs(row))
        start = OriginKind.MADE if seen_by < 0 else OriginKind.UNSEEN
        if not sources:
            start = OriginKind.UNKNOWN if int(self._nodes.flags[row]) & NodeFlag.FILE_ONLY else OriginKind.SOURCE
        kind = self._nodes.op_type(row)
        return _Made(row, start, sources, seen_by, row, exchanged=is_collective(kind) or is_receiving(kind))

    def _seen(self, row: int, slot: int) -> _Made:
        """An input file that is no copy of what its producer wrote."""
        holder, flow = self._flow.holder(row, slot), self._flow
        if holder.row < 0:
            return _Made(row, OriginKind.UNKNOWN)
        if self._is_parameter(holder.row) and flow.updated(holder.row):
            return self._parameter_seen(row, slot, holder)
        constant = flow.is_constant(holder.row)
        wrote = flow.locate_held(self._step, holder, self._round, row)
        record = self._record(wrote)
        if wrote is not None and (record is None or record.stats is not None):
            source = _Source(row, slot, wrote, holder=holder.row, constant=constant)
            return _Made(row, OriginKind.CHANGED, (source,), holder.row)
        if constant:
            return _Made(holder.row, OriginKind.CONSTANT, other=row)
        if self._is_parameter(holder.row):
            return _Made(holder.row, OriginKind.SOURCE, other=row, parameter=holder.row)
        return self._operator(holder.row, seen_by=row)

    def _parameter_seen(self, row: int, slot: int, holder: Holder) -> _Made:
        if slot in self._flow.in_place(row):
            return self._parameter(holder.row)
        if self._starts(holder.row):
            return _Made(holder.row, OriginKind.BEFORE, other=row, parameter=holder.row)
        # A consumer that runs after the optimizer reads the new value: only a value that is neither was changed.
        places = self._flow.locate_held(self._step, holder, self._round), self._now(holder)
        sources = tuple(_Source(row, slot, at, holder=holder.row) for at in places)
        if not all(places):
            return _Made(holder.row, OriginKind.UNKNOWN, sources, row, parameter=holder.row)
        return _Made(row, OriginKind.CHANGED, sources, holder.row, parameter=holder.row)

    def _parameter(self, row: int) -> _Made:
        """A parameter at the end of the step."""
        made, flow = assigned(self._nodes, row), self._flow
        if made == []:  # the program itself wrote it
            at = flow.before(row, Side.OUTPUT, 0, self._step, self._round)
            sources = (_Source(row, 0, at, holder=row),) if at is not None and at.index >= 0 else ()
            return _Made(row, OriginKind.SOURCE, sources, parameter=row)
        if made is not None and self._nodes.category_of(row) not in TRAINABLE:
            return self._made_by_modules(row)
        if not flow.updated(row):
            return _Made(row, OriginKind.SOURCE, parameter=row)
        updater, _ = flow.updater(row)
        if updater < 0:
            return _Made(row, OriginKind.UNKNOWN, self._known_before(row), parameter=row)
        inputs = tuple(replace(each, before=each.before and each.holder == row) for each in self._inputs(updater))
        outputs = tuple(
            _Source(updater, slot, flow.located(self._step, updater, Side.OUTPUT, slot, self._round), Side.OUTPUT)
            for slot in flow.slots(self._step, updater, Side.OUTPUT, self._round)
        )
        return _Made(
            row, OriginKind.UPDATED, (*inputs, *outputs, *self._bad_states(row, updater)), updater, updater, row
        )

    def _bad_states(self, row: int, updater: int) -> Iterator[_Source]:
        """The states of an optimizer that are bad after its update, of which it made a weight."""
        for slot in self._flow.in_place(updater) if self._nodes.category_of(row) in TRAINABLE else ():
            held = self._flow.holder(updater, slot)
            if held.row in {row, -1} or self._nodes.category_of(held.row) is not Category.OPTIMIZER_STATE:
                continue
            at = self._flow.located(self._step, held.row, Side.OUTPUT, held.slot, self._round)
            if (record := self._record(at)) is not None and record.stats is not None and record.stats.bad:
                yield _Source(updater, slot, at, holder=held.row)

    def _made_by_modules(self, row: int) -> _Made:
        """A buffer that modules change in the step, or an input of the model that the program made of their outputs."""
        flow, change = self._flow, -1
        sources = list(self._known_before(row)) if outlives_steps(self._nodes, row) else []
        for consumer, at in flow.consumers(row):
            if at == 0 and self._nodes.op_type(consumer) in {BUFFER_UPDATE, INPUT_UPDATE}:
                change = consumer
                for slot, holder in list(enumerate(flow.holders(change)))[1:]:
                    value = flow.locate_input(self._step, change, slot, self._round)
                    sources.append(_Source(change, slot, value, holder=holder.row))
        return _Made(row, OriginKind.UPDATED, tuple(sources), change, parameter=row)

    def _averaged(self, row: int) -> list[_Source]:
        """What a program wrote while other parameters were bad may have been made of those, as averages are."""
        for other in filter(self._is_parameter, range(len(self._nodes))):
            at = self._flow.before(other, Side.OUTPUT, 0, self._step)
            if at is not None and self._overflowed(at):
                return [_Source(row, 0, at, after=True)]
        return []

    def _carried_over(self, row: int) -> list[_Source]:
        """What the model is called with may be made of what was bad in the step before, as a state of it is."""
        run = self._flow.previous_run(row, self._step, self._round)
        if run is None or not draws_updates(self._nodes):
            return []
        table = self._flow.table(run[0])
        places = [(int(table.node[at]), Side(int(table.side[at])), int(table.slot[at])) for at in range(len(table))]
        held = (self._flow.located(run[0], *each, run[1]) for each in places if each[0] >= 0)
        return [_Source(row, 0, at, after=True) for at in held if at.index >= 0 and self._overflowed(at)]

    # -- the inputs of a node ------------------------------------------------------------------------

    def _inputs(self, row: int) -> tuple[_Source, ...]:
        """The inputs of a node by slot, those that were not dumped included."""
        holders, flow = self._flow.holders(row), self._flow
        slots = set(flow.slots(self._step, row, Side.INPUT, self._round))
        slots |= {slot for slot, held in enumerate(holders) if not self._nodes.orders_only(held.row)}
        if not holders and slots:  # further ones: below dumped ones, by its type, in the run before
            more = set(range(max(slots)))
            if int(self._nodes.flags[row]) & NodeFlag.PARTIAL:
                more.add(max(slots) + 1)
            if self._nodes.op_type(row) in _OF_TWO:
                more |= {0, 1}
            run = flow.previous_run(row, self._step, self._round)
            slots |= more if run is None else more.union(flow.slots(run[0], row, Side.INPUT, run[1]))
        return tuple(self._input(row, slot) for slot in sorted(slots))

    def _input(self, row: int, slot: int) -> _Source:
        flow, holder = self._flow, self._flow.holder(row, slot)
        own = self._dumped(flow.located(self._step, row, Side.INPUT, slot, self._round))
        if slot in flow.in_place(row):  # the node itself updates it: its input file shows the new value
            before = self._known_before(holder.row) if holder.row >= 0 else ()
            if before:
                return replace(before[0], node=row, slot=slot)
            return _Source(row, slot, own, holder=holder.row, before=True, after=True)
        held = flow.locate_held(self._step, holder, self._round, row)
        source = _Source(row, slot, own or held, holder=holder.row, constant=flow.is_constant(holder.row))
        if own is not None:
            return replace(source, held=held)
        if not self._is_parameter(holder.row):
            return source
        return self._parameter_read(source, holder)

    def _parameter_read(self, source: _Source, holder: Holder) -> _Source:
        """A parameter without an input file: the program wrote it, or only the value after its update is there."""
        made, updated = assigned(self._nodes, holder.row), self._flow.updated(holder.row)
        if updated:
            source = replace(source, later=self._now(holder))
        if made == []:
            return replace(source, at=self._now(holder))
        trained = self._nodes.category_of(holder.row) in TRAINABLE
        read_again = bool(made) and (trained or source.node not in (made or ()))
        if read_again or (source.at is None and updated):
            return replace(source, at=self._now(holder), after=self._now(holder) is not None, held=source.at)
        return source

    def _known_before(self, row: int) -> tuple[_Source, ...]:
        """The value of a parameter before this step; at the first dumped step what a consumer was fed with."""
        flow = self._flow
        held = flow.locate_held(self._step, Holder(row, 0), self._round)
        if held is not None:
            return (_Source(row, 0, held, holder=row, before=True),)
        for consumer, slot in flow.consumers(row) if self._starts(row) else ():
            seen = self._dumped(flow.located(self._step, consumer, Side.INPUT, slot, self._round))
            if seen is not None and slot not in flow.in_place(consumer):
                return (_Source(row, 0, seen, holder=row, before=True, initial=True),)
        return ()

    def _now(self, holder: Holder) -> Located | None:
        return self._dumped(self._flow.located(self._step, holder.row, Side.OUTPUT, holder.slot, self._round))

    def _starts(self, row: int) -> bool:
        return self._flow.before(row, Side.OUTPUT, 0, self._step, self._round) is None

    def _is_parameter(self, row: int) -> bool:
        return row >= 0 and self._nodes.category_of(row) in PARAMETERS

    # -- verdicts ------------------------------------------------------------------------------------

    def _judge(self, source: _Source) -> tuple[Located | None, InputState, bool, bool]:
        """The place that is judged, its state, whether it is a constant, whether it is missing."""
        at, state, overflow = source.at, self._state(source.at), self._criterion.overflow
        if state is InputState.UNKNOWN and overflow and self._state(source.later) is InputState.CLEAN:
            state = InputState.CLEAN
        overwritten = not source.after and self._is_own_work(source)
        if state is InputState.BAD and overwritten and self._state(source.held) is InputState.CLEAN:
            at, state = source.held, InputState.CLEAN
        if state is InputState.BAD and self._is_intended(at):
            state = InputState.CLEAN
        elif source.after and (InputState.BAD in {state, self._state(source.held)} or not overflow):
            state = InputState.UNKNOWN  # what is left there, or what was there: maybe not what the node got
        told = source.constant and source.holder in self._nodes.constants
        if told and overflow and state is InputState.UNKNOWN:
            held = stated(self._nodes, source.holder)
            bad = held is not None and held.nan and not draws_updates(self._nodes)
            state = InputState.UNKNOWN if held is None else InputState.BAD if bad else InputState.CLEAN
        attribute = self._is_attribute(source) or self._is_given(source)
        missing = state is InputState.UNKNOWN and (source.constant or not attribute) and (overflow or not told)
        return at, state, source.constant or attribute, missing

    def _start(self, made: _Made, judged: list[tuple[_Source, InputState, bool, bool]]) -> OriginKind:
        if made.parameter >= 0 and self._criterion.need.previous:
            return OriginKind.SOURCE if made.start is OriginKind.SOURCE else OriginKind.UPDATED
        bad = [
            (source, constant)
            for source, state, constant, _ in judged
            if state is InputState.BAD and (self._criterion.overflow or not constant)
        ]
        if any(source.initial and source.before for source, _ in bad):
            return OriginKind.BEFORE
        if bad:
            return OriginKind.CONSTANT if all(constant for _, constant in bad) else OriginKind.TAINTED
        return OriginKind.UNKNOWN if made.exchanged or any(missing for *_, missing in judged) else made.start

    def _is_own_work(self, source: _Source) -> bool:
        """An input file may show the node's own result: in-place operators are dumped after the kernel."""
        record = self._record(source.at) if source.held is not None else None
        slots = self._flow.slots(self._step, source.node, Side.OUTPUT, self._round) if record is not None else ()
        outputs = [self._flow.located(self._step, source.node, Side.OUTPUT, slot, self._round) for slot in slots]
        others = [self._record(each) for each in outputs]
        return record is not None and any(each is not None and each.stats == record.stats for each in others)

    def _is_attribute(self, source: _Source) -> bool:
        """Without a graph: an operator's flag or axis rather than a tensor."""
        record = self._record(source.at) if source.holder < 0 and source.side is Side.INPUT else None
        meta = record.meta if record is not None and record.stats is not None else None
        return meta is not None and meta.shape == () and meta.dtype.startswith(("bool", "int", "uint"))

    def _is_given(self, source: _Source) -> bool:
        """Nothing in the run makes it: a learning rate, the data."""
        given = self._is_parameter(source.holder) and not self._flow.updated(source.holder)
        return self._criterion.unchanged and source.side is Side.INPUT and given

    def _is_intended(self, at: Located | None) -> bool:
        """A tensor has an Inf that an operator was told to write, or what a backward pass selects away."""
        record = self._record(at)
        if at is None or self._criterion is not OVERFLOW or not self._overflowed(at):
            return False
        if record is None or record.stats is None:
            return False
        if at.step not in self._designs:
            self._designs[at.step] = StepDesigns(self._measurements, at.step)
        nan = record.stats.nan > 0
        return self._designs[at.step].of_round(at.round).intended_at(at.row, at.side, at.slot, nan=nan)

    # -- what is known -------------------------------------------------------------------------------

    def _dumped(self, at: Located) -> Located | None:
        return at if at.index >= 0 else None

    def _record(self, at: Located | None) -> Record | None:
        return None if at is None or at.index < 0 else self._measurements.record(at.step, at.index)

    def _overflowed(self, at: Located) -> bool:
        record = self._record(at)
        return record is not None and record.stats is not None and bool(record.stats.bad)

    def _state(self, at: Located | None) -> InputState:
        if at is None or at.index < 0:
            return InputState.UNKNOWN
        state = self._criterion.state(self._measurements.records(at.step), at.index)
        asked = at.step == self._step and (at.row, at.side, at.slot, at.round) in self._bad
        return InputState.BAD if asked and state is InputState.UNKNOWN else state


def ordered(values: Sequence[Value]) -> tuple[Value, ...]:
    """The values of a tensor in an order that does not depend on how they were found."""
    return tuple(sorted(values, key=lambda value: (*value[:3], value[3] or (-1, -1), value[4].value, *value[5:])))


def measure_all(measurements: Measurements, steps: Sequence[int], need: RequiredStats) -> None:
    """Measures all that was dumped of some steps."""
    places = [(step, at) for step in steps for at in range(len(measurements.flow.table(step)))]
    measurements.ensure(dict.fromkeys(places, need))


def bad_tensors(measurements: Measurements, step: int, criterion: Criterion) -> list[Bad]:
    """The tensors of a step that are bad, all of which are measured."""
    table = measurements.flow.table(step)
    states = criterion.states(measurements.records(step), np.arange(len(table)))
    bad = np.flatnonzero((states == InputState.BAD.code) & (table.node >= 0)).tolist()
    return [(int(table.node[at]), Side(int(table.side[at])), int(table.slot[at]), int(table.round[at])) for at in bad]
