"""Where it went wrong first."""

from __future__ import annotations

import numpy as np

from tui_debugger.analysis.origin import origins


def test_a_node_with_clean_inputs_and_a_bad_output_is_an_origin() -> None:
    # node 7: clean input, bad output; node 8: fed by it; node 9: clean; node 5: nothing known about its input
    rows = np.array([7, 7, 8, 8, 9, 9, 5], np.int32)
    bad_out = np.array([False, True, False, True, False, False, True])
    bad_in = np.array([False, False, True, False, False, False, False])
    known = np.array([True, False, True, False, True, False, False])
    assert origins(rows, bad_out, bad_in, known).tolist() == [7]


def test_one_bad_input_among_clean_ones_is_enough_to_be_no_origin() -> None:
    rows = np.array([3, 3, 3], np.int32)
    result = origins(
        rows, np.array([False, False, True]), np.array([False, True, False]), np.array([True, True, False])
    )
    assert result.tolist() == []


def test_columns_may_hold_one_entry_per_node() -> None:
    rows = np.array([4, 2], np.int32)
    both = np.array([True, True])
    assert origins(rows, both, ~both, both).tolist() == [2, 4]


def test_nothing_gives_nothing() -> None:
    none = np.zeros(0, np.bool_)
    assert origins(np.zeros(0, np.int32), none, none, none).tolist() == []
