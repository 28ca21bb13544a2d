"""The scope tree: preorder arrays, visibility, marks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import DUMPS, graph, number, op, real_table, row
from tui_debugger.graph.build import FileNode, append_nodes, build_table
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import ScopeTree, build_tree

Dumps = Callable[[str], Path]


def table_of(*paths: str, types: dict[str, str] | None = None) -> NodeTable:
    nodes = [FileNode("g", 0, path, path, (types or {}).get(path, "Mul")) for path in paths]
    return append_nodes(build_table([]), nodes)[0]


def outline(tree: ScopeTree, shown: np.ndarray | None = None) -> list[str]:
    rows = range(len(tree)) if shown is None else shown
    return ["  " * int(tree.depth[i]) + tree.label[i] + ("/" if tree.is_scope(i) else "") for i in rows]


def test_nodes_hang_in_their_scopes_in_execution_order() -> None:
    tree = build_tree(table_of("b/x/Mul-op1", "a/Add-op2", "b/Sub-op3", "top"))
    assert outline(tree) == ["b/", "  x/", "    Mul-op1", "  Sub-op3", "a/", "  Add-op2", "top"]
    assert tree.size.tolist() == [4, 2, 1, 1, 2, 1, 1]
    assert tree.parent.tolist() == [-1, 0, 1, 0, -1, 4, -1]


def test_a_scope_and_a_node_may_share_a_path() -> None:
    tree = build_tree(table_of("a/b", "a/b/c"))
    assert outline(tree) == ["a/", "  b", "  b/", "    c"]
    assert tree.path(1) == tree.path(2) == "a/b"
    assert tree.index_of_scope("a/b") == 2


def test_an_empty_table_is_an_empty_tree() -> None:
    tree = build_tree(build_table([]))
    assert len(tree) == 0
    assert tree.visible(np.zeros(0, np.bool_)).tolist() == []
    assert tree.coverage(np.zeros(0, np.bool_)).tolist() == []


def test_several_graphs_have_one_top_entry_each() -> None:
    graphs = [graph([op(1, "a/A-op1")]), graph([op(1, "a/A-op1")], name="kernel_graph_1", root="1")]
    tree = build_tree(build_table(graphs))
    assert outline(tree) == ["kernel_graph_0/", "  a/", "    A-op1", "kernel_graph_1/", "  a/", "    A-op1"]
    assert [tree.path(i) for i in (1, 5)] == ["kernel_graph_0/a", "kernel_graph_1/a/A-op1"]


def test_only_what_lies_under_open_scopes_is_visible() -> None:
    tree = build_tree(table_of("a/b/x", "a/y", "c/z"))
    opened = np.zeros(len(tree), np.bool_)
    assert outline(tree, tree.visible(opened)) == ["a/", "c/"]
    opened[tree.index_of_scope("a/b")] = True
    assert outline(tree, tree.visible(opened)) == ["a/", "c/"]
    opened[tree.index_of_scope("a")] = True
    assert outline(tree, tree.visible(opened)) == ["a/", "  b/", "    x", "  y", "c/"]


def test_a_filter_keeps_matching_nodes_and_the_scopes_above() -> None:
    table = table_of("a/b/x", "a/y", "c/z")
    tree = build_tree(table)
    rows = np.array([True, False, False])
    everything = np.ones(len(tree), np.bool_)
    assert outline(tree, tree.visible(everything, tree.keep_mask(rows))) == ["a/", "  b/", "    x"]


def test_marks_spread_to_scopes() -> None:
    tree = build_tree(table_of("a/b/x", "a/y", "c/z"))
    assert tree.coverage(np.array([True, False, False])).tolist() == [1, 2, 2, 0, 0, 0]
    assert tree.coverage(np.array([True, True, False])).tolist() == [2, 2, 2, 2, 0, 0]


def test_what_cannot_be_watched_does_not_make_a_scope_partial() -> None:
    nodes = [op(1, "a/Load-op1", ["w"]), op(2, "a/Mul-op2", ["1", "cst1"])]
    table = build_table([graph(nodes, ["w"], [number("cst1", 1)])])
    tree = build_tree(table)
    watched = table.watchable & np.array([name != "w" for name in table.names])
    assert tree.coverage(watched)[tree.index_of_scope("a")] == 1
    assert tree.coverage(table.watchable)[tree.index_of_scope("a")] == 2
    assert tree.coverage(np.ones(len(table), np.bool_))[tree.index_of_row(row(table, "cst1"))] == 0


def test_rows_below_a_scope_are_in_tree_order() -> None:
    table = table_of("a/x", "b/y", "a/c/z")
    tree = build_tree(table)
    assert tree.rows_below(tree.index_of_scope("a")).tolist() == [0, 2]
    assert tree.rows_below(tree.index_of_row(1)).tolist() == [1]
    assert tree.ancestors(tree.index_of_row(2)) == [tree.index_of_scope("a/c"), tree.index_of_scope("a")]
    assert tree.index_of_scope("nowhere") == -1


def test_strange_paths_stay_themselves() -> None:
    paths = ["[bold]x[/bold]/\x1b[31mred", "a" * 300 + "/" + "b" * 300, "\ufffd/é", " /x", "plain"]
    tree = build_tree(table_of(*paths))
    assert {tree.path(tree.index_of_row(i)) for i in range(len(paths))} == {
        "[bold]x[/bold]/\x1b[31mred",
        *paths[1:],
    }


@pytest.mark.parametrize("dump", DUMPS)
def test_every_row_of_a_real_dump_is_found_at_its_path(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    tree = build_tree(table)
    check_invariants(tree, table)
    assert tree.label[0] == "Default"


_PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map("/".join), max_size=30)


@given(_PATHS, st.randoms(use_true_random=False))
def test_invariants_of_any_tree(paths: list[str], dice: object) -> None:
    table = table_of(*paths)
    tree = build_tree(table)
    check_invariants(tree, table)
    opened = np.array([dice.random() < 0.6 for _ in range(len(tree))], np.bool_)  # type: ignore[attr-defined]
    rows = np.array([dice.random() < 0.4 for _ in range(len(table))], np.bool_)  # type: ignore[attr-defined]
    keep = tree.keep_mask(rows)
    wanted = [i for i in range(len(tree)) if all(opened[above] for above in tree.ancestors(i))]
    assert tree.visible(opened).tolist() == wanted
    assert tree.visible(opened, keep).tolist() == [i for i in wanted if keep[i]]
    for i in range(len(tree)):
        below = tree.rows_below(i)
        assert keep[i] == rows[below].any()
        marks = 0 if not rows[below].any() else 2 if rows[below].all() else 1
        assert tree.coverage(rows)[i] == marks


def check_invariants(tree: ScopeTree, table: NodeTable) -> None:
    assert sorted(tree.row[tree.row >= 0].tolist()) == list(range(len(table)))
    for i in range(len(tree)):
        parent = int(tree.parent[i])
        assert parent < i
        assert tree.depth[i] == (tree.depth[parent] + 1 if parent >= 0 else 0)
        assert tree.is_scope(i) == (tree.size[i] > 1)
        if parent >= 0:
            assert i + tree.size[i] <= parent + tree.size[parent]
            assert tree.path(i) == f"{tree.path(parent)}/{tree.label[i]}"
    children = np.bincount(tree.parent[tree.parent >= 0], weights=tree.size[tree.parent >= 0], minlength=len(tree))
    assert (children + 1 == tree.size).all()
    first = [int(table.order[tree.rows_below(i)].min()) for i in range(len(tree))]
    for i in range(len(tree)):
        following = i + int(tree.size[i])
        if following < len(tree) and tree.parent[following] == tree.parent[i]:
            assert first[i] < first[following]
    for node in range(len(table)):
        assert tree.path(tree.index_of_row(node)) == table.paths[node]
