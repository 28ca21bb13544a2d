"""Node tables: the same nodes and edges as the old tool, our order, our display paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graph.graphs import DUMPS, OLD_DUMPS, graph, listing, number, op, real_table, row
from tui_debugger.graph.build import (
    FileNode,
    append_nodes,
    build_table,
    directory_names,
    graph_number,
    observed_order,
    order_graphs,
    reorder_rows,
    with_roots,
)
from tui_debugger.graph.table import GraphInfo, NodeFlag, NodeTable
from tui_debugger.model import Category
from tui_debugger.sources.mindspore.order_files import read_order

Dumps = Callable[[str], Path]
Golden = Callable[[str], dict[str, Any]]


def reordered(table: NodeTable, stamps: Mapping[int, int]) -> NodeTable:
    """With the timestamps by row."""
    return reorder_rows(table, np.array([*stamps], np.int64), np.array([*stamps.values()], np.int64))


def in_order(table: NodeTable) -> list[str]:
    return [table.names[i] for i in np.argsort(table.order, kind="stable").tolist()]


# The old tool's answers


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_nodes_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    assert sorted(table.names) == sorted(each["id"][2] for each in golden(dump)["neighbours"])
    assert {info.name for info in table.graphs} == {each["id"][1] for each in golden(dump)["neighbours"]}


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_kinds_and_slots_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    for each in golden(dump)["neighbours"]:
        node = table.find(each["id"][2])
        assert int(table.outputs[node]) == each["slots"]
        kind = each["type"].rpartition(".")[2]
        assert table.op_type(node).upper() == kind or kind == "OPERATOR"
        assert table.graph_of(node).root_id == each["root_graph_id"]


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_edges_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    consumers: dict[str, list[str]] = {name: [] for name in table.names}
    for node, name in enumerate(table.names):
        for producer, _ in table.inputs(node):
            if not assign_target(table, node, producer):
                consumers[table.names[producer]].append(name)
    for each in golden(dump)["neighbours"]:
        node = table.find(each["id"][2])
        inputs = [table.names[p] for p, _ in table.inputs(node) if not assign_target(table, node, p)]
        assert inputs == [other[2] for other in each["inputs"]]
        assert consumers[each["id"][2]] == [other[2] for other in each["outputs"]]


def assign_target(table: NodeTable, node: int, producer: int) -> bool:
    """The one difference: the old tool does not list the parameter that an Assign writes to as its input."""
    return table.op_type(node) == "Assign" and table.op_type(producer) == "Parameter"


def test_an_assign_has_the_parameter_it_writes_to_as_input_because_it_has_a_file(dumps: Dumps) -> None:
    table = real_table(dumps, "mindspore-2.0-nan")
    first, _ = table.inputs(row(table, "Assign-op533"))[0]
    assert table.names[first] == "beta1_power"
    assert list(dumps("mindspore-2.0-nan").glob("rank_0/*/0/1/Assign.Assign-op533.*.input.1.*"))


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_affected_nodes_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    for key, answer in golden(dump)["affected"].items():
        node = table.find(json.loads(key)[2])
        consumers = [
            other
            for other in range(len(table))
            for p, _ in table.inputs(other)
            if p == node and not assign_target(table, other, p)
        ]
        assert sorted({table.names[other] for other in consumers}) == sorted({each[2] for each in answer})


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_tensors_of_a_node_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    """The old tool lists all slots of a producer as inputs, also for the one item a TupleGetItem takes."""
    table = real_table(dumps, dump)
    for each in golden(dump)["io_tensors"]:
        node = table.find(each["id"][2])
        assert [[t[2], t[3]] for t in each["outputs"]] == [[table.names[node], s] for s in range(table.outputs[node])]
        producers = dict.fromkeys(p for p, _ in table.inputs(node) if not assign_target(table, node, p))
        wanted = {(table.names[p], slot) for p in producers for slot in range(table.outputs[p])}
        assert {(t[2], t[3]) for t in each["inputs"]} == wanted


# Order


@pytest.mark.parametrize("dump", DUMPS)
def test_listed_operators_stand_in_the_order_of_the_file(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    listed = [name for name in in_order(table) if table.flags[table.find(name)] & NodeFlag.LISTED]
    assert listed == listing(dumps(dump))
    assert sorted(table.order.tolist()) == list(range(len(table)))


@pytest.mark.parametrize("dump", DUMPS)
def test_parameters_come_after_operators_and_constants_last(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    kinds = [{"Parameter": 1, "Constant": 2}.get(table.op_type(table.find(name)), 0) for name in in_order(table)]
    assert kinds == sorted(kinds)


def test_an_unlisted_operator_follows_the_one_before_it_in_the_graph() -> None:
    nodes = [op(1, "A-op1"), op(2, "Load-op2", ["1"]), op(3, "B-op3"), op(4, "C-op4")]
    assert in_order(build_table([graph(nodes)], {0: ["C-op4", "A-op1", "B-op3"]})) == [
        "C-op4",
        "A-op1",
        "Load-op2",
        "B-op3",
    ]


def test_without_a_listing_the_graph_tells_the_order() -> None:
    nodes = [op(1, "A-op1"), op(2, "B-op2")]
    assert in_order(build_table([graph(nodes, ["w"])])) == ["A-op1", "B-op2", "w"]


def test_a_listing_may_name_a_node_twice_or_one_that_is_in_no_graph() -> None:
    nodes = [op(1, "A-op1"), op(2, "B-op2")]
    assert in_order(build_table([graph(nodes)], {0: ["B-op2", "X-op9", "A-op1", "B-op2"]})) == ["B-op2", "A-op1"]


def test_the_header_of_a_listing_is_no_node(tmp_path: Path) -> None:
    listed = tmp_path / "ms_execution_order_graph_0.csv"
    listed.write_bytes(b"NodeExecutionOrder-FullNameWithScope\nA-op1\r\n\nB-op2,\n")
    assert read_order(listed) == (("A-op1", "B-op2"), "")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 99, b"NodeExecutionOrder\nA-op1\nB-o", b"A-op1\nB\0-op2\n", b"\xff\n"]
)
def test_a_damaged_listing_is_told(tmp_path: Path, content: bytes) -> None:
    listed = tmp_path / "ms_execution_order_graph_0.csv"
    listed.write_bytes(content)
    order = read_order(listed)
    assert order.damage
    assert set(order.names) <= {"A-op1"}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((), "A-op1 B-op2 C-op3 D-op4 E-op5"),
        (("E-op5", "A-op1"), "D-op4 E-op5 A-op1 B-op2 C-op3"),  # with what it was made from
        (("C-op3", "p", "D-op4"), "A-op1 B-op2 C-op3 D-op4 E-op5"),
        (("B-op2", "A-op1"), "B-op2 A-op1 C-op3 D-op4 E-op5"),  # the graph may be that of another step
    ],
)
def test_what_was_seen_to_run_orders_what_the_graph_leaves_open(seen: tuple[str, ...], expected: str) -> None:
    nodes = [op(1, "A-op1"), op(2, "B-op2", ["1"]), op(3, "C-op3", ["2"]), op(4, "D-op4"), op(5, "E-op5", ["4", "p"])]
    table = build_table([graph(nodes, ["p"])])
    order = observed_order(table, [[table.find(name) for name in seen]])
    assert " ".join(table.names[row] for row in order) == expected


def test_rows_keep_their_meaning_when_a_table_grows_but_not_when_it_is_built_anew() -> None:
    parsed = [graph([op(1, "A-op1")])]
    table = build_table(parsed)
    longer = append_nodes(table, [FileNode(table.graphs[0].name, 0, "B-op2", "B-op2", "B")])[0]
    assert longer.lineage is table.lineage
    assert reordered(longer, {0: 2, 1: 1}).lineage is table.lineage
    assert build_table(parsed).lineage is not table.lineage


def test_timestamps_place_what_no_listing_places() -> None:
    table = build_table(
        [graph([op(1, "A-op1"), op(2, "B-op2"), op(3, "C-op3"), op(4, "D-op4")], ["p", "q"])], {0: ["A-op1", "D-op4"]}
    )
    assert in_order(table) == ["A-op1", "B-op2", "C-op3", "D-op4", "p", "q"]
    stamps = {"A-op1": 10, "C-op3": 40, "B-op2": 50, "D-op4": 20, "q": 90, "p": 95}
    moved = reordered(table, {table.find(name): stamp for name, stamp in stamps.items()})
    assert in_order(moved) == ["A-op1", "D-op4", "C-op3", "B-op2", "q", "p"]
    assert moved.names is table.names


def test_of_several_timestamps_of_one_node_the_first_counts() -> None:
    table = build_table([graph([op(number, f"A-op{number}") for number in range(3)])])
    rows, stamps = np.array([2, 0, 1, 2]), np.array([5, 20, 10, 30])
    assert reorder_rows(table, rows, stamps).order.tolist() == [2, 1, 0]
    assert reorder_rows(table, rows[::-1], stamps[::-1]).order.tolist() == [2, 1, 0]


def test_timestamps_do_not_move_what_is_listed() -> None:
    table = build_table([graph([op(1, "A-op1"), op(2, "B-op2")])], {0: ["B-op2", "A-op1"]})
    assert in_order(reordered(table, {0: 1, 1: 2})) == ["B-op2", "A-op1"]


def test_a_node_without_timestamp_stays_behind_the_node_it_followed() -> None:
    table = build_table([graph([op(1, "A-op1"), op(2, "Load-op2", ["1"]), op(3, "B-op3")])])
    assert in_order(reordered(table, {0: 30, 2: 20})) == ["B-op3", "A-op1", "Load-op2"]


# Names and display paths


@pytest.mark.parametrize(
    ("dump", "name", "path"),
    [
        ("mindspore-2.10-nan", "head.weight", "Default/network-WithLossCell/_backbone-Net/head-Dense/head.weight"),
        ("mindspore-2.0-nan", "moment1.head.weight", "Default/optimizer-Adam/moment1.head.weight"),
        ("mindspore-2.0-nan", "beta1_power", "Default/optimizer-Adam/beta1_power"),
        ("mindspore-2.0-nan", "cst1", "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/cst1"),
        ("mindspore-2.0-nan", "cst2", "cst2"),  # only structural nodes use it
    ],
)
def test_parameters_and_constants_are_shown_at_their_first_real_consumer(
    dumps: Dumps, dump: str, name: str, path: str
) -> None:
    table = real_table(dumps, dump)
    assert table.paths[table.find(name)] == path


def test_the_first_consumer_is_the_first_in_execution_order() -> None:
    nodes = [op(1, "late/Mul-op1", ["w"]), op(2, "x/Load-op2", ["w"]), op(3, "early/Add-op3", ["2"])]
    table = build_table([graph(nodes, ["w", "unused"])], {0: ["early/Add-op3", "late/Mul-op1"]})
    assert table.paths[table.find("w")] == "early/w"
    assert table.paths[table.find("unused")] == "unused"


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (op(7, "", op_type="Mul"), "Mul-op7"),
        (op(7, "a/Load-op99"), "a/Load-op7"),
        (op(7, "a/TensorSummary[:summary-plugin]", op_type="TensorSummary"), "a/TensorSummary-op7"),
        (op(7, "a/Mul-op99"), "a/Mul-op99"),
    ],
)
def test_operators_are_named_as_the_old_tool_names_them(node: Any, name: str) -> None:
    assert list(build_table([graph([node])]).names) == [name]


def test_names_stay_unique_in_a_broken_graph() -> None:
    table = build_table([graph([op(1, "A-op1"), op(1, "A-op1", ["1"])], ["A-op1"])])
    assert list(table.names) == ["A-op1", "A-op1#2", "A-op1#3"]
    assert table.inputs(1) == [(0, 0)]


def test_an_unknown_producer_stays_unknown() -> None:
    assert build_table([graph([op(1, "A-op1", ["77"])])]).inputs(0) == [(-1, 0)]


def test_nameless_scopes_are_not_shown() -> None:
    table = build_table([graph([op(1, "/a//b/Mul-op1")])])
    assert (table.names[0], table.paths[0]) == ("/a//b/Mul-op1", "a/b/Mul-op1")


# Several graphs


def test_several_graphs_keep_their_own_names_and_roots() -> None:
    graphs = [
        graph([op(1, "A-op1", ["w"])], ["w"], name="kernel_graph_0", root="0"),
        graph([op(1, "A-op1", ["w"])], ["w"], name="kernel_graph_3", root="0"),
        graph([op(1, "B-op1")], name="kernel_graph_1", root="1"),
    ]
    table = build_table(graphs, {0: ["A-op1"], "kernel_graph_1": ["B-op1"]})
    assert table.graphs == (
        GraphInfo("kernel_graph_0", 0, True),
        GraphInfo("kernel_graph_3", 0, False),
        GraphInfo("kernel_graph_1", 1, True),
    )
    first, second = table.find("A-op1", "kernel_graph_0"), table.find("A-op1", "kernel_graph_3")
    assert first != second
    assert table.inputs(second) == [(table.find("w", "kernel_graph_3"), 0)]
    assert table.find("B-op1") == table.find("B-op1", "kernel_graph_1")


def test_a_sub_graph_may_stand_in_the_listing_of_its_root() -> None:
    graphs = [
        graph([op(1, "A-op1"), op(2, "B-op2")], name="kernel_graph_0", root="0"),
        graph([op(1, "S-op1")], name="kernel_graph_3", root="0"),
    ]
    assert in_order(build_table(graphs, {0: ["A-op1", "S-op1", "B-op2"]})) == ["A-op1", "S-op1", "B-op2"]
    assert in_order(build_table(graphs, {0: ["A-op1", "B-op2"], 3: ["S-op1"]})) == ["A-op1", "B-op2", "S-op1"]


@pytest.mark.parametrize(
    ("name", "root", "info"),
    [
        ("kernel_graph_12", "12", GraphInfo("kernel_graph_12", 12, True)),
        ("kernel_graph12", "3", GraphInfo("kernel_graph12", 3, False)),
        ("kernel_graph_2", "", GraphInfo("kernel_graph_2", 2, True)),
        ("main", "main", GraphInfo("main", 0, True)),
        ("", "", GraphInfo("graph_0", 0, True)),
    ],
)
def test_roots_follow_the_old_rule(name: str, root: str, info: GraphInfo) -> None:
    assert build_table([graph([op(1, "A-op1")], name=name, root=root)]).graphs == (info,)
    assert graph_number("kernel_graph_" + "9" * 40) == 0


# Nodes that only files know


def test_without_a_graph_the_table_is_empty_and_can_grow() -> None:
    empty = build_table([])
    assert len(empty) == 0
    extra = [
        FileNode("kernel_graph_2", 2, "Default/a/Mul-op1", "Default/a/Mul-op1", "Mul"),
        FileNode("kernel_graph_2", 2, "accum_fc1_weight", "Parameter/accum_fc1_weight", "Parameter"),
        FileNode("kernel_graph_2", 2, "fc1_weight", "Parameter/fc1_weight", "Parameter", 2),
        FileNode("kernel_graph_2", 2, "Default/a/Mul-op1", "x", "Mul"),
    ]
    table = append_nodes(empty, extra)[0]
    assert list(table.names) == ["Default/a/Mul-op1", "accum_fc1_weight", "fc1_weight"]
    assert table.graphs == (GraphInfo("kernel_graph_2", 2),)
    assert [Category(each) for each in table.category] == [Category.OTHER, Category.OPTIMIZER_STATE, Category.WEIGHT]
    assert all(flag & NodeFlag.FILE_ONLY for flag in table.flags)
    assert table.outputs.tolist() == [1, 1, 2]
    assert table.inputs(1) == []


def test_appended_nodes_leave_every_row_where_it_was(dumps: Dumps) -> None:
    table = real_table(dumps, "mindspore-2.0-mlp")
    longer = append_nodes(table, [FileNode("kernel_graph_0", 0, "x/New-op1", "x/New-op1", "New")])[0]
    assert list(longer.names[: len(table)]) == list(table.names)
    assert longer.inputs(5) == table.inputs(5)
    new = longer.find("x/New-op1")
    parameters = [i for i in range(len(longer)) if longer.op_type(i) == "Parameter"]
    assert longer.order[new] < longer.order[parameters].min()
    assert longer.category[: len(table)].tolist() == table.category.tolist()


def test_an_appended_node_goes_where_its_timestamp_belongs() -> None:
    table = build_table([graph([op(1, "A-op1"), op(2, "B-op2")])], {0: ["A-op1", "B-op2"]})
    longer = append_nodes(table, [FileNode("kernel_graph_0", 0, "C-op3", "C-op3", "C")])[0]
    assert in_order(longer) == ["A-op1", "B-op2", "C-op3"]
    assert in_order(reordered(longer, {0: 1, 1: 5, 2: 3})) == ["A-op1", "C-op3", "B-op2"]


def test_nothing_to_append_changes_nothing() -> None:
    table = build_table([graph([op(1, "A-op1")], constants=[number("cst1", 3)])])
    assert append_nodes(table, [FileNode("kernel_graph_0", 0, "A-op1", "A-op1", "A")])[0] is table
    assert reordered(table, {}) is table
    assert table.constants == {1: "3"}


def test_only_graphs_that_training_starts_are_roots_where_that_is_known() -> None:
    graphs = [graph([op(1, "A-op1")], name=f"kernel_graph_{number}", root=str(number)) for number in (0, 3, 18)]
    assert [info.is_root for info in build_table(graphs).graphs] == [True, True, True]
    table = build_table(graphs, roots={0})
    assert [(info.root_id, info.is_root) for info in table.graphs] == [(0, True), (3, False), (18, False)]
    assert [info.is_root for info in with_roots(table, {0, 3}).graphs] == [True, True, False]
    assert with_roots(table, None) is with_roots(table, {0}) is table
    assert directory_names(table.graphs) == {0: "kernel_graph_0", 3: "kernel_graph_3", 18: "kernel_graph_18"}


def test_operators_can_be_put_in_the_order_in_which_their_graphs_ran() -> None:
    graphs = [
        graph([op(1, "A-op1", ["w"]), op(2, "B-op2")], ["w"], name="kernel_graph_0", root="0"),
        graph([op(1, "C-op1")], name="kernel_graph_1", root="1"),
        graph([op(1, "D-op1")], name="kernel_graph_2", root="2"),
    ]
    table = order_graphs(build_table(graphs), [2, 0])
    names = [table.names[row] for row in np.argsort(table.order)]
    assert names == ["D-op1", "A-op1", "B-op2", "C-op1", "w"]


def test_our_own_client_says_which_ranks_exchange_values_and_which_part_of_a_tensor_a_parameter_is() -> None:
    from tui_debugger.graph.messages import parse_graph
    from tui_debugger.live.client.messages import GraphBuilder

    graph = GraphBuilder()
    graph.add_parameter("w", ("float32", (8, 16)), "shard 1 of 2 along dimension 0 of [16, 16]")
    graph.add_parameter("b", ("float32", (16,)))
    graph.add_node("AllGather/w", "AllGather", ["w"], None, ranks=(1, 3))
    graph.add_node("up/Linear", "Linear", ["AllGather/w", "b"], [("float32", (4, 16))])
    parsed = parse_graph(graph.serialize())
    table = build_table([parsed])
    assert table.placements == {table.find("w"): "shard 1 of 2 along dimension 0 of [16, 16]"}
    assert table.group_ranks == {table.find("AllGather/w"): (1, 3)}
    assert [each.dtype for node in parsed.nodes for each in node.outputs] == ["none", "float32"]
