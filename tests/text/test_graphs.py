"""Graphs in as few cells as possible."""

from __future__ import annotations

import pytest

from tui_debugger.text.tensors import short_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["kernel_graph_0", "kernel_graph_12"], ["0", "12"]),
        (["kernel_graph0", "kernel_graph1"], ["0", "1"]),
        (["a_1", "b_1"], ["a_1", "b_1"]),
        (["train", "eval"], ["train", "eval"]),
        (["net_1", "eval"], ["net_1", "eval"]),
        (["a\x1b"], ["a\\x1b"]),
    ],
)
def test_the_number_at_the_end_where_that_tells_them_apart(names: list[str], short: list[str]) -> None:
    assert [short_names(names)[name] for name in names] == short
