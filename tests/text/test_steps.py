"""Steps in the order in which they ran."""

from __future__ import annotations

from tui_debugger.text.tensors import order_text


def test_steps_in_another_order_than_that_of_their_numbers() -> None:
    assert order_text([2, 1, 4, 3, 6, 5]) == "2,1,4,3,6,5"
    assert order_text([0, 1, 2, 5, 4]) == "0-2,5,4"
    assert order_text([3, 1, 2, 0], 2) == "3,1,…"
