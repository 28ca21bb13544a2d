"""What follows from statistics is what a look at the values finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.records import Record, Records, RequiredStats, derive
from tui_debugger.stats.side_by_side import compare

Array = npt.NDArray[Any]

values = st.sampled_from([-math.inf, -3.0, -1.0, -1e-9, 0.0, 1e-9, 0.5, 1.0, 1.0, 2.0, math.inf, math.nan])
tensors = arrays.arrays(np.float32, arrays.array_shapes(max_dims=1, max_side=6, min_side=0), elements=values)
edges = st.sampled_from([-math.inf, -1.0, 0.0, 1.0, 2.5, math.inf])
META = TensorMeta("float32", (1,), 4)
PARTIAL = TensorStats(2, 0, 0, 0, 0, 1, 1, -1.0, 3.0, 1.0, None, None, 10.0)
"""As a dump records them: some are not known."""


def known(array: Array, previous: Array | None = None) -> Records:
    """A table of one row: statistics, and how the tensor changed."""
    stats, _ = measure_stats(array)
    change = compare(array, previous)[0] if previous is not None else None
    table = Records(1)
    table.put(0, Record(META, stats, change=change, previous="ok", need=RequiredStats(change=change is not None)))
    return table


@given(tensors, edges, edges)
def test_a_range_that_is_derived_is_counted_right(array: Array, start: float, end: float) -> None:
    bounds = (min(start, end), max(start, end))
    table = known(array)
    derive(table, RequiredStats(ranges=frozenset({bounds})), np.array([0]))
    record = table.get(0)
    assert record is not None
    if bounds in record.ranges:
        assert record.ranges[bounds] == int(((array >= bounds[0]) & (array <= bounds[1])).sum())


def test_ranges_around_and_beside_all_elements_need_no_look() -> None:
    table = known(np.array([1.0, 2.0, math.inf], np.float32))
    wide, beside, across = (0.0, math.inf), (-5.0, 0.5), (1.5, 3.0)
    derive(table, RequiredStats(ranges=frozenset({wide, beside, across})), np.array([0]))
    record = table.get(0)
    assert record is not None
    assert record.ranges == {wide: 3, beside: 0}
    assert not table.covers(RequiredStats(ranges=frozenset({across})), np.array([0]))[0]


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(*[arrays.arrays(np.float32, (n,), elements=values) for _ in range(2)])
    ),
    st.sampled_from([0.0, 1e-9, 1e-5, 0.5]),
    st.sampled_from([0.0, 1e-8, 1.0]),
    st.booleans(),
)
def test_a_closeness_that_is_derived_is_answered_right(
    pair: tuple[Array, Array], rtol: float, atol: float, equal_nan: bool
) -> None:
    closeness = (rtol, atol, equal_nan)
    table = known(*pair)
    derive(table, RequiredStats(closeness=frozenset({closeness})), np.array([0]))
    record = table.get(0)
    assert record is not None
    assert not record.close or np.isfinite(pair[0]).all()
    if closeness in record.close:
        assert record.close[closeness] == compare(*pair, [closeness])[1][closeness]


def test_what_did_not_change_or_changed_much_needs_no_look() -> None:
    need = RequiredStats(closeness=frozenset({(0.1, 0.0, False)}))
    for factor, answer in ((1.0, True), (2.0, False)):
        before = np.array([1.0, 2.0, 3.0], np.float32)
        table = known(before * np.float32(factor), before)
        derive(table, need, np.array([0]))
        record = table.get(0)
        assert record is not None
        assert record.close == {(0.1, 0.0, False): answer}


def test_recorded_rows_are_set_at_once_as_one_by_one() -> None:
    bounds, closeness = (0.0, 1.0), (1e-5, 1e-8, True)
    need = RequiredStats(frozenset({bounds}), change=True, closeness=frozenset({closeness}), previous_stats=True)
    known = Record(TensorMeta("float32", (2,), 0), PARTIAL, previous="no value", need=need)
    broken = Record(None, None, error="it was not sent", need=need)
    one_by_one, at_once = Records(4), Records(4)
    for table in (one_by_one, at_once):
        table.put(1, Record(None, None, error="it was broken"))
    for index, record in ((3, known), (1, known), (0, broken)):
        one_by_one.put(index, record)
    at_once.put_recorded(np.array([3, 1, 0]), [known, known, broken], need)
    assert [at_once.get(index) for index in range(4)] == [one_by_one.get(index) for index in range(4)]
    assert at_once.errors == one_by_one.errors == {0: "it was not sent"}
    assert at_once.covers(need, np.arange(4)).tolist() == [True, True, False, True]


def test_who_changes_rows_that_several_tables_share_changes_its_own() -> None:
    record = Record(TensorMeta("float64", (2, 3), 48), PARTIAL)
    known: dict[bytes, npt.NDArray[Any]] = {}
    one, other, apart = (Records.of([record, each, record]) for each in (record, record, None))
    for each in (one, other, apart):
        each.share(known)
    assert one.rows is other.rows is not apart.rows
    changes: list[Callable[[], None]] = [
        lambda: other.forget(np.array([1])),
        lambda: other.put(0, Record(None, None, error="gone")),
        lambda: other.forget_changes(np.array([2])),
        lambda: other.place(one, np.array([0]), np.array([1])),
        lambda: other.put_recorded(np.array([0]), [record], RequiredStats(change=True)),
    ]
    for change in changes:
        other.rows = one.rows
        change()
        assert other.rows is not one.rows
        assert [one.get(at) for at in range(3)] == [record] * 3
