"""Steps across the screen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.health import column_width, header, span_text


@given(st.lists(st.integers(-1, 10**6), min_size=1, max_size=80), st.integers(1, 6), st.integers(1, 300))
def test_labels_begin_at_their_columns_and_never_touch(steps: list[int], width: int, room: int) -> None:
    labels = [span_text([step]) for step in steps]
    line = header(labels, width, room)
    assert len(line) <= room
    at = 0
    for word in line.split():
        at = line.index(word, at)
        assert at % width == 0
        assert word == labels[at // width]
        at += len(word)


def test_columns_are_as_wide_as_their_labels_where_there_is_room() -> None:
    assert column_width(["100", "101"], 80) == 4
    assert column_width(["1000"] * 30, 80) == 2
    assert column_width(["1000"] * 60, 80) == 1
    assert column_width([], 80) == 2


def test_a_span_names_both_ends() -> None:
    assert span_text([3]) == "3"
    assert span_text([3, 4, 8]) == "3–8"
    assert span_text([-1, 0]) == "start–0"
