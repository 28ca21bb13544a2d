"""The nodes of several ranks in one table."""

from __future__ import annotations

import pytest

from tests.sources.memory import MemorySource, Op
from tui_debugger.graph.build import together
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import build_tree


def table_of(*names: str, graph: str = "g0") -> NodeTable:
    return MemorySource({0: {}}, ops=[Op(name, graph=graph) for name in names]).nodes(0)


def test_ranks_of_one_program_share_their_rows() -> None:
    one, two = table_of("a", "b"), table_of("a", "b")
    table, rows = together({0: one, 3: two})
    assert table is one
    assert rows == {0: None, 3: None}


def test_a_rank_with_fewer_nodes_shares_them_too() -> None:
    _, rows = together({0: table_of("a", "b"), 1: table_of("a")})
    assert rows[1] is None


def test_nodes_of_other_ranks_come_behind() -> None:
    table, rows = together({0: table_of("a", "b"), 1: table_of("b", "c"), 2: table_of("c", "a")})
    assert list(table.names) == ["a", "b", "c"]
    assert rows[0] is None
    assert rows[1] is not None
    assert rows[2] is not None
    assert (rows[1].tolist(), rows[2].tolist()) == ([1, 2], [2, 0])
    assert len(build_tree(table).paths) == 3


def test_the_same_name_in_another_graph_is_another_node() -> None:
    table, rows = together({0: table_of("a"), 1: table_of("a", graph="g1")})
    assert [table.graph_of(row).name for row in range(len(table))] == ["g0", "g1"]
    assert rows[1] is not None
    assert rows[1].tolist() == [1]


def test_no_rank_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rank"):
        together({})
