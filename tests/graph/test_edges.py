"""Data flow with the nodes that only route values skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.graph.graphs import DUMPS, OLD_DUMPS, graph, number, op, real_table, row
from tui_debugger.graph.build import build_table
from tui_debugger.graph.table import NodeTable, edges, holders, real_consumers, real_inputs, resolve

Dumps = Callable[[str], Path]


def named(table: NodeTable, pairs: list[tuple[int, int]]) -> list[tuple[str, int]]:
    return [(table.names[node] if node >= 0 else "?", slot) for node, slot in pairs]


def test_load_and_depend_lead_to_their_first_input() -> None:
    nodes = [
        op(1, "Load-op1", ["w", "u"]),
        op(2, "A-op2"),
        op(3, "Depend-op3", ["1", "2"]),
        op(4, "B-op4", ["3"]),
    ]
    table = build_table([graph(nodes, ["w", "u"])])
    assert named(table, real_inputs(table, table.find("B-op4"))) == [("w", 0)]
    assert named(table, real_consumers(table, table.find("w"))) == [("B-op4", 0)]
    assert real_consumers(table, table.find("A-op2")) == []  # it only comes before, it flows nowhere


def test_an_item_of_a_tuple_leads_to_the_slot_that_made_it() -> None:
    nodes = [
        op(1, "Split-op1", outputs=3),
        op(2, "Depend-op2", ["1", "1"]),
        op(3, "TupleGetItem-op3", ["2", "cst1"]),
        op(4, "TupleGetItem-op4", ["1"], item=1),
        op(5, "Add-op5", ["3", "4"]),
    ]
    table = build_table([graph(nodes, constants=[number("cst1", 2)])])
    add = table.find("Add-op5")
    assert named(table, real_inputs(table, add)) == [("Split-op1", 2), ("Split-op1", 1)]
    assert named(table, real_consumers(table, 0)) == [("Add-op5", 0), ("Add-op5", 1)]
    assert named(table, real_consumers(table, 0, slot=1)) == [("Add-op5", 1)]


def test_an_item_of_a_made_tuple_leads_to_what_was_put_in() -> None:
    nodes = [
        op(1, "A-op1"),
        op(2, "MakeTuple-op2", ["w", "1"]),
        op(3, "TupleGetItem-op3", ["2", "cst1"]),
        op(4, "B-op4", ["3"]),
    ]
    table = build_table([graph(nodes, ["w"], [number("cst1", 1)])])
    assert named(table, real_inputs(table, table.find("B-op4"))) == [("A-op1", 0)]
    assert resolve(table, 1, 5) == (-1, 0)


def test_an_operator_that_takes_a_tuple_is_fed_by_all_of_it() -> None:
    nodes = [
        op(1, "A-op1"),
        op(2, "MakeTuple-op2", ["1", "w"]),
        op(3, "MakeTuple-op3", ["2", "1"]),
        op(4, "Depend-op4", ["3", "w"]),
        op(5, "AddN-op5", ["4", "w"]),
    ]
    table = build_table([graph(nodes, ["w"])])
    made = named(table, real_inputs(table, table.find("AddN-op5")))
    assert made == [("A-op1", 0), ("w", 0), ("A-op1", 0), ("w", 0)]


def test_what_only_orders_execution_is_no_input() -> None:
    nodes = [op(1, "UpdateState-op1", ["w"]), op(2, "A-op2", ["w", "1"]), op(3, "B-op3", ["99"])]
    table = build_table([graph(nodes, ["w"])])
    assert named(table, real_inputs(table, 1)) == [("w", 0)]
    assert named(table, real_inputs(table, 2)) == [("?", 0)]


@pytest.mark.parametrize(
    "nodes",
    [
        [op(1, "Depend-op1", ["2"]), op(2, "Load-op2", ["1"]), op(3, "A-op3", ["1", "2"])],
        [op(1, "MakeTuple-op1", ["1", "2"]), op(2, "MakeTuple-op2", ["1"]), op(3, "A-op3", ["1"])],
        [op(1, "TupleGetItem-op1", ["1"], item=0), op(3, "A-op3", ["1"])],
        [op(1, "Depend-op1"), op(3, "A-op3", ["1"])],
    ],
)
def test_a_broken_graph_with_a_cycle_ends(nodes: list) -> None:  # type: ignore[type-arg]
    table = build_table([graph(nodes)])
    assert all(node in {-1, *range(len(table))} for node, _ in real_inputs(table, row(table, "A-op3")))


def test_backward_normalisation_is_fed_by_the_forward_one(dumps: Dumps) -> None:
    table = real_table(dumps, "mindspore-2.0-nan")
    forward = row(table, "0-Block/ln1-LayerNorm/LayerNorm-op386")
    backward = row(table, "LayerNormGrad-op537")
    assert named(table, real_inputs(table, backward))[2:] == [
        (table.names[forward], 2),
        (table.names[forward], 1),
        ("blocks.0.ln1.gamma", 0),
    ]


@pytest.mark.parametrize("dump", DUMPS)
def test_real_edges_join_only_nodes_that_make_tensors(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    flow = edges(table)
    assert not table.structural[flow.in_node].any()
    assert (flow.in_node >= 0).all()
    assert (flow.in_slot < table.outputs[flow.in_node]).all()
    assert len(flow.out_node) == len(flow.in_node)
    for node in range(len(table)):
        for consumer, position in real_consumers(table, node):
            assert real_inputs(table, consumer)[position][0] == node


@pytest.mark.parametrize("dump", DUMPS)
def test_holders_are_the_real_inputs_of_many_slots_at_once(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    asked = [(node, slot) for node in range(len(table)) for slot in range(-1, len(real_inputs(table, node)) + 2)]
    asked += [(-1, 0), (-1, 3)]
    expected = []
    for node, slot in asked:
        inputs = real_inputs(table, node) if node >= 0 else []
        expected.append(inputs[slot] if 0 <= slot < len(inputs) else (-1, 0))
    rows, slots = holders(table, *zip(*asked, strict=True))
    assert list(zip(rows.tolist(), slots.tolist(), strict=True)) == expected


def test_holders_of_nothing_and_of_a_table_without_a_graph() -> None:
    table = build_table([])
    assert [len(column) for column in holders(table, [], [])] == [0, 0]
    assert [column.tolist() for column in holders(table, [-1], [0])] == [[-1], [0]]


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_every_input_file_holds_what_the_edge_says(dumps: Dumps, dump: str) -> None:
    """Input N on disk is real input N: it has the bytes of that producer's output.

    Parameters are left out: they are written after the optimizer changed them.
    """
    table = real_table(dumps, dump)
    by_leaf = {name.rpartition("/")[2]: node for node, name in enumerate(table.names)}
    checked = 0
    for step in range(6):
        (folder,) = dumps(dump).glob(f"rank_0/*/0/{step}")
        files: dict[tuple[int, str, int], Path] = {}
        for path in folder.glob("*.npy"):
            # type.name.task.stream.time.side.slot.format.npy; only the name may hold dots
            name, _, _, _, side, slot, _, _ = path.name.partition(".")[2].rsplit(".", 7)
            files[by_leaf[name], side, int(slot)] = path
        for (node, side, position), path in files.items():
            if side == "output":
                continue
            producer, made = real_inputs(table, node)[position]
            if table.op_type(producer) not in {"Parameter", "Constant"}:
                assert path.read_bytes() == files[producer, "output", made].read_bytes(), path.name
                checked += 1
    assert checked > 250
