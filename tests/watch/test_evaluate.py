"""``ColumnEvaluator`` says of many tensors at once what the rules say of each (``scalar_judge``)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import examples
from tests.watch.expressions import expressions
from tests.watch.scalar_judge import judge_scalar
from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import AtLeast, TensorMeta, TensorStats, Verdict, Watchpoint
from tui_debugger.stats.records import (
    BEFORE_WORDS,
    Bounds,
    Closeness,
    PreviousStats,
    Record,
    Records,
    RequiredStats,
    StepChange,
)
from tui_debugger.watch.condition_table import CONDITIONS, ParamSpec, validate
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, needs

numbers = st.sampled_from([-math.inf, -1e30, -2.5, -1.0, 0.0, 1e-12, 0.5, 1.0, 99.9, 100.0, 1e30, math.inf])
counts = st.integers(0, 5)


@st.composite
def statistics(draw: st.DrawFn) -> TensorStats:
    """Statistics as values give them, or as a statistic.csv may leave them: any field may be missing."""
    nan, pos_inf, neg_inf = (draw(st.sampled_from([0, 0, 0, 1, 3])) for _ in range(3))
    zero, negative, positive = (draw(counts) for _ in range(3))
    reals = [draw(st.none() | numbers) for _ in range(5)]
    count = nan + pos_inf + neg_inf + zero + negative + positive
    at_least = AtLeast(draw(st.sampled_from([0, 0, 0, 1, 2, 4, 7])))
    return TensorStats(count, nan, pos_inf, neg_inf, zero, negative, positive, *reals, draw(numbers), at_least)


@st.composite
def records(draw: st.DrawFn, need: RequiredStats) -> Record:
    """A record that was made for a need, of whatever fate."""
    meta = TensorMeta("float32", (2, 3), 24)
    before = draw(st.builds(PreviousStats, st.just("ok"), statistics()) | gone) if need.previous_stats else None
    if draw(st.integers(0, 9)) == 0:
        return Record(None, None, error="is empty", need=need, previous_stats=before)
    if draw(st.integers(0, 9)) == 0:
        return Record(meta, None, need=need, previous_stats=before)
    previous = draw(st.sampled_from(BEFORE_WORDS)) if need.previous else "none"
    compared = previous == "ok"
    return Record(
        meta,
        draw(statistics()),
        ranges={bounds: draw(counts) for bounds in need.ranges if draw(st.booleans())},
        change=StepChange(draw(numbers | st.just(math.nan)), draw(numbers)) if need.change and compared else None,
        close={closeness: draw(st.booleans()) for closeness in need.closeness} if compared else {},
        previous=previous,
        need=need,
        previous_stats=before,
    )


gone = st.sampled_from(["none", "unreadable", "no value"]).map(PreviousStats)


@st.composite
def watchpoints(draw: st.DrawFn) -> Watchpoint:
    """Any condition with any allowed parameters."""

    def value(spec: ParamSpec) -> st.SearchStrategy[float | bool]:
        return st.booleans() if spec.name == "equal_nan" else st.sampled_from([0.0, 1e-12, 0.5, 1.0, 50.0, 100.0])

    condition = draw(st.sampled_from(sorted([*CONDITIONS, "expression", "expression"])))
    if condition == "expression":
        return Watchpoint(1, condition, validate(condition, {condition: draw(expressions).text}))
    specs = CONDITIONS[condition].params
    chosen = draw(st.lists(st.sampled_from(specs), unique_by=lambda spec: spec.name)) if specs else []
    try:
        return Watchpoint(1, condition, validate(condition, {spec.name: draw(value(spec)) for spec in chosen}))
    except BadWatchpointError:
        plain = [spec.name for spec in specs if spec.check and not spec.needs][:1]
        return Watchpoint(1, condition, validate(condition, dict.fromkeys(plain, 1.0)))


@examples(400)
@given(st.data())
def test_columns_agree_with_the_rules_on_every_record(data: st.DataObject) -> None:
    watchpoint = data.draw(watchpoints())
    each = data.draw(st.lists(records(needs(watchpoint)), min_size=1, max_size=12))
    first = np.array(data.draw(st.lists(st.booleans(), min_size=len(each), max_size=len(each))))
    initial = data.draw(st.booleans())
    evaluator = ColumnEvaluator(Records.of(each), np.arange(len(each)))
    said = evaluator.evaluate(watchpoint, first, initial=initial)
    details = evaluator.results(watchpoint, first, initial=initial)
    for index, record in enumerate(each):
        result = judge_scalar(watchpoint, record, first_step=bool(first[index]), initial=initial)
        assert details[index] == result
        assert int(said.verdict[index]) == (SILENT if result is None else result.verdict)
        if result is not None:
            assert int(said.error[index]) == result.error
        finding = result is not None and result.verdict in (Verdict.FINDING, Verdict.BLOCKED)
        assert int(said.finding[index]) == (int(result.error) if finding and result is not None else -1)


def test_a_change_of_zeros_is_as_large_as_can_be_where_nothing_is_added_to_the_divisor() -> None:
    watchpoint = Watchpoint(1, "weight_change_too_large", validate("WCL", {"epsilon": 0.0}))
    stats = TensorStats(2, 0, 0, 0, 0, 0, 2, 1.0, 1.0, 1.0, 1.0, 0.0, 2.0)
    meta, need = TensorMeta("float32", (2,), 8), needs(watchpoint)
    records = [Record(meta, stats, change=StepChange(moved, 0.0), previous="ok", need=need) for moved in (1.0, 0.0)]
    grown, same = ColumnEvaluator(Records.of(records), np.arange(2)).results(watchpoint, first_step=False)
    assert grown is not None
    assert grown.params[0].actual == math.inf
    assert same is None


def test_rows_that_were_not_looked_at_stay_silent() -> None:
    table = Records(3)
    table.put(1, Record(None, None, error="is empty"))
    for condition in CONDITIONS:
        if condition == "weight_initialization":
            continue
        params = (("expression", "max > 1"),) if condition == "expression" else ()
        watchpoint = Watchpoint(1, condition, params)
        said = ColumnEvaluator(table, np.array([0, 2])).evaluate(watchpoint, np.zeros(2, np.bool_))
        assert (said.verdict == SILENT).all()


ranges: st.SearchStrategy[Bounds] = st.sampled_from([(-math.inf, 0.0), (0.0, 1.0), (1e-5, math.inf)])
closenesses: st.SearchStrategy[Closeness] = st.sampled_from([(1e-5, 1e-8, False), (0.0, 0.0, True)])
asked = st.builds(RequiredStats, st.frozensets(ranges), st.booleans(), st.frozensets(closenesses), st.booleans())


@given(st.data())
def test_records_side_by_side_are_a_table_of_them(data: st.DataObject) -> None:
    each = data.draw(st.lists(st.none() | asked.flatmap(records), max_size=6))
    made, filled = Records.of(each), Records(len(each))
    for index, record in enumerate(each):
        if record is not None:
            filled.put(index, record)
    for index, record in enumerate(each):
        assert comparable(made.get(index)) == comparable(filled.get(index)) == comparable(record)


def comparable(record: Record | None) -> tuple[Record | None, str]:
    """A record in a form in which NaN equals NaN."""
    return (None, "") if record is None else (replace(record, change=None), repr(record.change))


@given(st.data())
def test_a_record_comes_out_of_the_columns_as_it_went_in(data: st.DataObject) -> None:
    table = Records(4)
    written: dict[int, Record] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.integers(0, 3))
        written[index] = data.draw(asked.flatmap(records))
        table.put(index, written[index])
    for index in range(4):
        assert comparable(table.get(index)) == comparable(written.get(index))


@given(st.data())
def test_placed_rows_are_those_of_the_other_table(data: st.DataObject) -> None:
    one, other = Records(5), Records(4)
    for index in range(5):
        one.put(index, data.draw(asked.flatmap(records)))
    for index in range(4):
        other.put(index, data.draw(asked.flatmap(records)))
    source = np.array(data.draw(st.lists(st.integers(0, 3), max_size=4)), np.int64)
    target = np.array(data.draw(st.permutations(range(5)))[: len(source)], np.int64)
    expected = {index: one.get(index) for index in range(5)}
    expected |= {to: other.get(at) for at, to in zip(source.tolist(), target.tolist(), strict=True)}
    one.place(other, source, target)
    for index in range(5):
        assert comparable(one.get(index)) == comparable(expected[index])


@given(st.data(), asked)
def test_a_row_covers_the_needs_that_its_record_covers(data: st.DataObject, need: RequiredStats) -> None:
    table = Records(5)
    for index in range(4):
        table.put(index, data.draw(asked.flatmap(records)))
    covered = table.covers(need, np.arange(5)).tolist()
    for index in range(4):
        record = table.get(index)
        assert record is not None
        assert covered[index] == (record.need.covers(need) or record.stats is None)
    assert not covered[4]
