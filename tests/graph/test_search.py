"""Queries of the node list and selections of watchpoints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import OLD_DUMPS, graph, number, op, real_table
from tui_debugger.errors import BadQueryError
from tui_debugger.graph.build import FileNode, append_nodes, build_table
from tui_debugger.graph.search import NodeQuery, match, select
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import build_tree
from tui_debugger.model import CATEGORY_WORDS, Category, NodeKind, NodeSelection, NodeSelector

Dumps = Callable[[str], Path]
Golden = Callable[[str], dict[str, Any]]


def matched(table: NodeTable, **query: Any) -> list[str]:
    return [table.names[i] for i in np.flatnonzero(match(table, NodeQuery(**query))).tolist()]


def selected(table: NodeTable, *include: tuple[str, str], exclude: tuple[tuple[str, str], ...] = ()) -> list[str]:
    clauses = [tuple(NodeSelector(NodeKind(kind), text) for kind, text in part) for part in (include, exclude)]
    return [table.names[i] for i in np.flatnonzero(select(table, NodeSelection(*clauses))).tolist()]


@pytest.fixture(scope="module")
def small() -> NodeTable:
    nodes = [
        op(1, "Default/net/Load-op1", ["fc.weight"]),
        op(2, "Default/net/fc-Dense/MatMul-op2", ["x", "1"]),
        op(3, "Default/net/fc-Dense2/ReLU-op3", ["2"]),
        op(4, "Gradients/Default/net/ReluGrad-op4", ["3", "cst1"]),
    ]
    return build_table([graph(nodes, ["fc.weight", "x"], [number("cst1", 1)])])


def test_an_empty_query_matches_all_but_structural_nodes(small: NodeTable) -> None:
    assert set(small.names) - set(matched(small)) == {"Default/net/Load-op1"}
    assert len(matched(small, structural=True)) == len(small)


def test_text_is_found_in_the_id_and_in_the_display_path_whatever_the_case(small: NodeTable) -> None:
    assert matched(small, text="MATMUL") == ["Default/net/fc-Dense/MatMul-op2"]
    assert matched(small, text="dense/fc.w") == ["fc.weight"]
    assert matched(small, text="fc.w", case_sensitive=True) == ["fc.weight"]
    assert matched(small, text="FC.W", case_sensitive=True) == []


def test_text_is_no_regular_expression(small: NodeTable) -> None:
    assert matched(small, text=".*") == []
    assert matched(small, text="[") == []


def test_regular_expressions_see_id_and_path_apart(small: NodeTable) -> None:
    assert matched(small, text="^fc", regex=True) == ["fc.weight"]
    assert matched(small, text="^default.*WEIGHT$", regex=True) == ["fc.weight"]
    assert matched(small, text="^default", regex=True, case_sensitive=True) == []


@pytest.mark.parametrize("text", ["(", "[", "*", "a{99999999999}", "(?P<n>", "\\"])
def test_a_broken_regular_expression_is_explained(small: NodeTable, text: str) -> None:
    with pytest.raises(BadQueryError, match="not a regular expression") as caught:
        match(small, NodeQuery(text=text, regex=True))
    assert caught.value.hint
    with pytest.raises(BadQueryError):
        selected(small, ("regex", text))


@given(st.text(max_size=20))
def test_no_text_makes_a_search_fail(text: str) -> None:
    table = build_table([graph([op(1, "a/[b]/Mul-op1"), op(2, "\x1b[0m/Add-op2")])])
    match(table, NodeQuery(text=text))
    with contextlib.suppress(BadQueryError):
        match(table, NodeQuery(text=text, regex=True))


def test_all_parts_of_a_query_must_hold(small: NodeTable) -> None:
    assert matched(small, categories=frozenset({Category.ACTIVATION})) == ["Default/net/fc-Dense2/ReLU-op3"]
    assert matched(small, types=frozenset({"matmul", "relu"}), text="dense2") == ["Default/net/fc-Dense2/ReLU-op3"]
    assert matched(small, types=frozenset({"matmul"}), categories=frozenset({Category.GRADIENT})) == []
    assert matched(small, graphs=frozenset({"kernel_graph_0"}), types=frozenset({"constant"})) == ["cst1"]
    assert matched(small, graphs=frozenset({"other"})) == []


def test_selection_by_category(small: NodeTable) -> None:
    assert selected(small, ("category", "weight")) == ["fc.weight"]
    assert selected(small, ("category", "gradient")) == ["Gradients/Default/net/ReluGrad-op4"]
    assert selected(small, ("category", "parameter")) == ["fc.weight", "x"]
    assert selected(small, ("category", "other")) == ["Default/net/fc-Dense/MatMul-op2"]


def test_constants_and_structural_nodes_are_never_selected(small: NodeTable) -> None:
    everything = set(small.names) - {"cst1", "Default/net/Load-op1"}
    assert set(selected(small, ("category", "tensor"))) == everything
    assert selected(small, ("category", "constant")) == []
    assert selected(small, ("node", "cst1"), ("type", "load")) == []
    assert set(selected(small, ("regex", ""))) == everything


def test_a_scope_covers_what_is_displayed_below_it(small: NodeTable) -> None:
    below = ["Default/net/fc-Dense/MatMul-op2", "fc.weight", "x"]
    assert selected(small, ("scope", "Default/net/fc-Dense")) == below
    assert selected(small, ("scope", "Default/net/fc-Dense/")) == below
    assert selected(small, ("scope", "Default/net/fc-Dense/fc.weight")) == ["fc.weight"]
    assert selected(small, ("scope", "Default/net/fc")) == []


def test_types_have_no_case_and_regular_expressions_look_at_the_id(small: NodeTable) -> None:
    assert selected(small, ("type", "relu")) == selected(small, ("regex", "ReLU")) == ["Default/net/fc-Dense2/ReLU-op3"]
    assert selected(small, ("regex", "^fc")) == ["fc.weight"]
    assert selected(small, ("regex", "relu")) == []


def test_includes_are_united_and_excludes_taken_away(small: NodeTable) -> None:
    both = (("category", "weight"), ("type", "ReLU"))
    assert selected(small, *both) == ["Default/net/fc-Dense2/ReLU-op3", "fc.weight"]
    assert selected(small, *both, exclude=(("node", "fc.weight"),)) == ["Default/net/fc-Dense2/ReLU-op3"]
    assert selected(small) == []


def test_an_unknown_category_is_explained(small: NodeTable) -> None:
    with pytest.raises(BadQueryError, match="unknown category") as caught:
        selected(small, ("category", "wieght"))
    assert "weight" in caught.value.hint


def test_category_words_cover_every_category() -> None:
    assert set().union(*CATEGORY_WORDS.values()) == set(Category)


def test_paths_of_a_tree_select_what_hangs_there_with_several_graphs_too() -> None:
    graphs = [
        graph([op(1, "a/A-op1"), op(2, "a/b/B-op2", ["w"])], ["w"]),
        graph([op(1, "a/A-op1")], name="kernel_graph_1", root="1"),
    ]
    for table in (build_table(graphs[:1]), build_table(graphs)):
        tree = build_tree(table)
        for i in range(len(tree)):
            mask = select(table, NodeSelection((NodeSelector(NodeKind.SCOPE, tree.path(i)),)))
            assert np.flatnonzero(mask).tolist() == sorted(tree.rows_below(i).tolist())


def test_a_node_is_selected_in_every_graph_or_in_the_named_one() -> None:
    graphs = [graph([op(1, "A-op1")]), graph([op(1, "A-op1")], name="kernel_graph_1", root="1")]
    table = build_table(graphs)
    assert selected(table, ("node", "A-op1")) == ["A-op1", "A-op1"]
    assert selected(table, ("node", "kernel_graph_1/A-op1")) == ["A-op1"]
    assert selected(table, ("node", "kernel_graph_1/none")) == []


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_regular_expressions_select_what_the_old_tool_selects(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    seen = 0
    for key, answer in golden(dump)["select"].items():
        text, options = json.loads(key)
        if options.get("use_regex") and "select_by" not in options:
            wanted = {each[2] for each in answer["nodes"]}
            found = set(selected(table, ("regex", text)))
            assert found == {name for name in wanted if table.watchable[table.find(name)]}
            seen += 1
    assert seen == 2


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_text_finds_at_least_what_the_old_tool_finds(dumps: Dumps, golden: Golden, dump: str) -> None:
    """More is found by display path: a parameter is shown in its layer's scope."""
    table = real_table(dumps, dump)
    for key, answer in golden(dump)["select"].items():
        text, options = json.loads(key)
        if not options.get("use_regex") and "select_by" not in options:
            sensitive = options.get("case_sensitive", True)
            found = matched(table, text=text, case_sensitive=sensitive, structural=True)
            assert {each[2] for each in answer["nodes"]} <= set(found)


def test_a_hundred_thousand_nodes() -> None:
    scope = "Default/network-WithLossCell/_backbone-Net/{}-Block/attn-Attention/"
    names = [f"{scope.format(i // 200)}MatMul-op{i}" for i in range(100_000)]
    table = append_nodes(build_table([]), [FileNode("g", 0, name, name, "MatMul") for name in names])[0]
    tree = build_tree(table)
    found = match(table, NodeQuery(text="499-block/attn-attention/matmul-op999"))
    shown = tree.visible(np.ones(len(tree), np.bool_), tree.keep_mask(found))
    assert found.sum() == 100
    assert len(shown) == 105
