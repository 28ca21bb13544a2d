from __future__ import annotations

import numpy as np
import pytest

from tests.sources.memory import Op, table_of
from tui_debugger.errors import TdbgError
from tui_debugger.graph.search import NodeQuery, match
from tui_debugger.graph.table import GraphInfo, NodeTable
from tui_debugger.session.naming import FoundNode, NamedSlots, find_node, split_slot
from tui_debugger.text.tables import cut_middle

BLOCK = "Default/network-Net/0-Block"
TABLE = table_of(
    [
        Op(f"{BLOCK}/norm-RowNorm/Div-op385", "Div"),
        Op(f"{BLOCK}/attn-Attention/Div-op38", "Div"),
        Op(f"{BLOCK}/attn-Attention/MatMul-op1", "MatMul"),
        Op(f"{BLOCK}/up-Dense/MatMul-op1", "MatMul"),
        Op(f"{BLOCK}/up-Dense/Load-op4", "Load", structural=True),
        Op("fc1.weight", "Parameter", path=f"{BLOCK}/up-Dense/fc1.weight"),
        Op("accum.fc1.weight", "Parameter"),
        Op("odd:in:1", "Parameter"),
    ]
)


def find(text: str, table: NodeTable = TABLE, query: NodeQuery | None = None) -> FoundNode:
    scope = match(table, query) if query is not None else np.ones(len(table), np.bool_)
    return find_node({0: table}, {0: scope}, text)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (f"{BLOCK}/attn-Attention/Div-op38", f"{BLOCK}/attn-Attention/Div-op38"),
        ("kernel_graph_0/fc1.weight", "fc1.weight"),
        (f"{BLOCK}/up-Dense/fc1.weight", "fc1.weight"),
        ("Div-op385", f"{BLOCK}/norm-RowNorm/Div-op385"),
        ("Div-op38", f"{BLOCK}/attn-Attention/Div-op38"),
        ("up-Dense/MatMul-op1", f"{BLOCK}/up-Dense/MatMul-op1"),
        ("RowNorm", f"{BLOCK}/norm-RowNorm/Div-op385"),
        ("rownorm", f"{BLOCK}/norm-RowNorm/Div-op385"),
        ("fc1.weight", "fc1.weight"),
        ("accum", "accum.fc1.weight"),
        (f"{BLOCK}/up-Dense/Load-op4", f"{BLOCK}/up-Dense/Load-op4"),
    ],
)
def test_exact_id_then_its_end_then_any_part(text: str, node: str) -> None:
    assert find(text).node == node
    assert find(text).rows == {0: list(TABLE.names).index(node)}
    assert find(f"{text}:2").asked == NamedSlots("out", 2)


@pytest.mark.parametrize("graph", ["", "kernel_graph_0/"])
@pytest.mark.parametrize("width", range(16, 60, 3))
def test_a_name_that_a_narrow_terminal_cut_finds_its_node(width: int, graph: str) -> None:
    for name in ("norm-RowNorm/Div-op385", "attn-Attention/Div-op38"):
        found = find(cut_middle(f"{graph}{BLOCK}/{name}:out:0", width))
        assert (found.node, found.asked) == (f"{BLOCK}/{name}", NamedSlots("out", 0))


def test_a_cut_name_that_fits_several_nodes_names_them() -> None:
    with pytest.raises(TdbgError) as raised:
        find("Default/…/MatMul-op1:out:0")
    assert raised.value.what == "2 nodes match 'Default/…/MatMul-op1'"
    assert f"{BLOCK}/up-Dense/MatMul-op1" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("x", NamedSlots()),
        ("x:0", NamedSlots("out", 0)),
        ("x:in0", NamedSlots("in", 0)),
        ("x:in:12", NamedSlots("in", 12)),
        ("x:input:1", NamedSlots("in", 1)),
        ("x:out3", NamedSlots("out", 3)),
        ("x:output:3", NamedSlots("out", 3)),
        ("x:param1", NamedSlots("param", 1)),
        ("x:in", NamedSlots("in")),
        ("x:out", NamedSlots("out")),
        ("x:param", NamedSlots("param")),
    ],
)
def test_slots(text: str, asked: NamedSlots) -> None:
    assert split_slot(text) == ("x", asked)


@pytest.mark.parametrize("text", ["x:", ":0", "x:inner", "x:-1", "x:0x"])
def test_what_is_no_slot_belongs_to_the_name(text: str) -> None:
    assert split_slot(text) == (text, NamedSlots())


def test_a_name_that_looks_like_a_slot_is_found_first() -> None:
    assert find("odd:in:1") == FoundNode("odd:in:1", "kernel_graph_0", {0: 7}, NamedSlots())
    assert find("odd:in:1:in:0") == FoundNode("odd:in:1", "kernel_graph_0", {0: 7}, NamedSlots("in", 0))


def test_several_nodes_are_named() -> None:
    with pytest.raises(TdbgError, match="2 nodes match 'MatMul-op1'") as caught:
        find("MatMul-op1")
    assert f"{BLOCK}/attn-Attention/MatMul-op1" in caught.value.hint
    assert f"{BLOCK}/up-Dense/MatMul-op1" in caught.value.hint


def test_ten_candidates_are_enough() -> None:
    table = table_of([Op(f"Add-op{i}", "Add") for i in range(25)])
    with pytest.raises(TdbgError, match="25 nodes match") as caught:
        find("Add", table)
    assert caught.value.hint.count("Add-op") == 10
    assert "and 15 more" in caught.value.hint


def test_a_name_in_two_graphs_needs_its_graph() -> None:
    table = table_of([Op("Add-op1", graph="g0"), Op("Add-op1", graph="g1")], [GraphInfo("g0", 0), GraphInfo("g1", 1)])
    with pytest.raises(TdbgError, match="2 nodes match") as caught:
        find("Add-op1", table)
    assert "g1/Add-op1" in caught.value.hint
    assert find("g1/Add-op1", table) == FoundNode("Add-op1", "g1", {0: 1}, NamedSlots())
    assert find("Add-op1", table, NodeQuery(graphs=frozenset({"g0"}))).rows == {0: 0}


def test_nothing_found_names_what_looks_alike() -> None:
    with pytest.raises(TdbgError, match=r"no node is called 'fc1\.wieght'") as caught:
        find("fc1.wieght")
    assert caught.value.hint.split() == ["did", "you", "mean:", "fc1.weight", "accum.fc1.weight"]
    with pytest.raises(TdbgError) as caught:
        find("qqqqqq")
    assert caught.value.hint == "`tdbg ls` lists the nodes"
    assert caught.value.exit_code == 2


def test_nodes_that_only_route_values_and_nodes_out_of_scope_are_not_meant() -> None:
    with pytest.raises(TdbgError, match="no node"):
        find("Load-op4")
    with pytest.raises(TdbgError, match="no node"):
        find("fc1.weight", TABLE, NodeQuery(text="Div"))


def test_candidates_are_safe_to_print() -> None:
    table = table_of([Op("bad\x1b[31m-op1"), Op("bad\x1b[31m-op2")])
    with pytest.raises(TdbgError) as caught:
        find("bad\x1b", table)
    assert "\x1b" not in str(caught.value)


def test_ranks_may_have_a_node_at_other_rows_or_not_at_all() -> None:
    tables = {0: table_of([Op("Add-op1")]), 1: table_of([Op("Mul-op2"), Op("Add-op1")]), 2: table_of([Op("Mul-op2")])}
    scope = {rank: np.ones(len(table), np.bool_) for rank, table in tables.items()}
    assert find_node(tables, scope, "Add-op1").rows == {0: 0, 1: 1}
