"""Labels of an axis: no two ticks say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.plot import labels


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=12, unique=True))
def test_different_ticks_have_different_labels_and_equal_ones_the_same(values: list[float]) -> None:
    assert len(set(labels(values))) == len(values)
    assert labels([*values, *values]) == labels(values) * 2


def test_digits_are_added_only_where_they_tell_ticks_apart() -> None:
    assert labels([-0.0, 0.5, 1e-9]) == ["0", "0.5", "1e-9"]
    assert labels([0.06250011, 0.06250019]) == ["0.0625001", "0.0625002"]
    assert labels([1000.0012, 1000.0024]) == ["1000.001", "1000.002"]
