"""The flow between scopes: which boxes stand around one, their layers, and how many tensors flow between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import DUMPS, graph, number, op, real_table
from tui_debugger.arrays import Mask
from tui_debugger.graph.build import FileNode, append_nodes, build_table
from tui_debugger.graph.scopes import MOST_OF_A_HOP, ScopeFlow, ScopesAround
from tui_debugger.graph.table import NodeTable, edges
from tui_debugger.graph.tree import ScopeTree, build_tree
from tui_debugger.model import Category


def table_of(inputs: dict[str, Sequence[str]]) -> NodeTable:
    """Operators by path, and what each reads."""
    paths = list(inputs)
    table = append_nodes(build_table([]), [FileNode("g", 0, path, path, "Mul") for path in paths])[0]
    return with_inputs(table, [[paths.index(each) for each in read] for read in inputs.values()])


def with_inputs(table: NodeTable, reads: Sequence[Sequence[int]]) -> NodeTable:
    node = np.array([row for read in reads for row in read], np.int32)
    ends = np.cumsum([0, *map(len, reads)]).astype(np.int32)
    return replace(table, in_ptr=ends, in_node=node, in_slot=np.zeros(len(node), np.int16))


def opened(tree: ScopeTree, *scopes: str) -> Mask:
    mask = np.zeros(len(tree), np.bool_)
    mask[[tree.index_of_scope(scope) for scope in scopes]] = True
    return mask


def around(table: NodeTable, path: str, *scopes: str, hops: int = 2, marked: Sequence[str] = ()) -> ScopesAround:
    tree = table.memo(build_tree)
    paths = [tree.path(entry) for entry in range(len(tree))]
    marks = np.isin(paths, list(marked)) if marked else np.zeros(len(tree), np.bool_)
    return ScopeFlow(table, opened(tree, *scopes)).around(paths.index(path), hops, marks)


def said(table: NodeTable, found: ScopesAround) -> dict[str, int]:
    tree = table.memo(build_tree)
    return {tree.path(entry): layer for entry, layer in zip(found.entries, found.layers, strict=True)}


def links(table: NodeTable, found: ScopesAround) -> dict[tuple[str, str], int]:
    tree = table.memo(build_tree)
    names = [tree.path(entry) for entry in found.entries]
    return {(names[source], names[target]): count for source, target, count in found.edges}


ATTENTION = {
    "in/x": (),
    "attn/q": ("in/x",),
    "attn/k": ("in/x",),
    "attn/v": ("in/x",),
    "attn/mul": ("attn/q", "attn/k"),
    "attn/out": ("attn/mul", "attn/v", "attn/v"),
    "loss": ("attn/out", "in/x"),
}


def test_a_closed_scope_is_one_box_and_its_tensors_are_counted() -> None:
    table = table_of(ATTENTION)
    found = around(table, "attn")
    assert said(table, found) == {"attn": 0, "in": -1, "loss": 1}
    assert links(table, found) == {("in", "attn"): 3, ("attn", "loss"): 1, ("in", "loss"): 1}


def test_an_open_scope_gives_way_to_what_is_in_it_and_siblings_stand_beside() -> None:
    table = table_of(ATTENTION)
    found = around(table, "attn/q", "attn", hops=3)
    assert said(table, found) == {
        "in": -1,
        "attn/q": 0,
        "attn/k": 0,
        "attn/v": 0,
        "attn/mul": 1,
        "attn/out": 2,
        "loss": 3,
    }
    assert links(table, found)["attn/v", "attn/out"] == 2


def test_what_reads_the_same_in_another_scope_is_no_neighbour() -> None:
    """Else everything that a loss or an optimizer reads would stand around each of its producers."""
    blocks = {f"net/{at}/x": () for at in range(5)}
    table = table_of({**blocks, "loss/x": tuple(blocks)})
    assert said(table, around(table, "net/2", "net")).keys() == {f"net/{at}" for at in range(5)} | {"loss"}
    assert said(table, around(table, "net/2/x", "net", "net/2")).keys() == {"net/2/x", "loss"}


def test_parameters_and_constants_are_no_boxes() -> None:
    nodes = [op(1, "a/Mul-op1", ["w", "c"]), op(2, "b/Add-op2", ["1", "w"])]
    table = build_table([graph(nodes, parameters=["w"], constants=[number("c", 3)])])
    assert links(table, around(table, "a")) == {("a", "b"): 1}, "the weight stands in a, but nothing of a feeds b twice"


def test_a_circle_is_cut_where_the_fewest_tensors_flow() -> None:
    table = table_of({"a/1": (), "b/1": ("a/1",), "a/2": ("b/1", "b/1"), "b/2": ("a/2", "a/2", "a/1")})
    found = around(table, "a")
    assert links(table, found) == {("a", "b"): 4, ("b", "a"): 2}
    assert said(table, found) == {"a": 0, "b": 1}


def test_of_many_neighbours_marked_ones_and_those_with_most_tensors_are_kept() -> None:
    many = {f"n{at}/x": ("hub/x",) * (2 if at == 50 else 1) for at in range(100)}
    table = table_of({"hub/x": (), **many})
    found = around(table, "hub", hops=1, marked=["n77"])
    assert len(found.entries) == 1 + MOST_OF_A_HOP
    assert {"n77", "n50"} < said(table, found).keys()
    assert found.hidden == 100 - MOST_OF_A_HOP


def test_without_flow_a_box_stands_alone() -> None:
    table = table_of({"a/x": (), "b/y": ()})
    assert around(table, "a") == ScopesAround((0,), (0,), (), 0)


SCOPES = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    scopes = draw(st.lists(SCOPES, min_size=1, max_size=25))
    paths = ["/".join((*scope, f"op{at}")) for at, scope in enumerate(scopes)]
    reads = [draw(st.lists(st.integers(0, len(paths) - 1), max_size=3)) for _ in paths]
    table = append_nodes(build_table([]), [FileNode("g", 0, path, path, "Mul") for path in paths])[0]
    return with_inputs(table, reads)


def boxes_of(tree: ScopeTree, mask: Mask) -> list[int]:
    """For every node row the outermost closed scope around it, else the node: one by one."""
    found = []
    for row in range(len(tree.paths)):
        at = tree.index_of_row(row)
        closed = [scope for scope in tree.ancestors(at) if not mask[scope]]
        found.append(closed[-1] if closed else at)
    return found


def check(table: NodeTable, mask: Mask, middle: int, hops: int) -> None:
    tree = table.memo(build_tree)
    found = ScopeFlow(table, mask).around(middle, hops, np.zeros(len(tree), np.bool_))
    assert found == ScopeFlow(table, mask).around(middle, hops, np.zeros(len(tree), np.bool_)), "the same every time"
    assert found.entries[0] == middle
    assert found.layers[0] == 0
    assert len(set(found.entries)) == len(found.entries)
    box, flow = boxes_of(tree, mask), edges(table)
    operator = table.watchable & ~table.are_parameters(np.arange(len(table)))
    readers = np.repeat(np.arange(len(table)), np.diff(flow.in_ptr)).tolist()
    between = Counter(
        (box[made], box[read])
        for made, read in zip(flow.in_node.tolist(), readers, strict=True)
        if made >= 0 and operator[made] and operator[read] and box[made] != box[read]
    )
    counted = {(found.entries[source], found.entries[target]): count for source, target, count in found.edges}
    drawn = {*found.entries}
    assert counted == {pair: count for pair, count in between.items() if drawn.issuperset(pair)}, "each edge is counted"
    reached = brute(tree, middle, hops, {*between})
    assert drawn <= reached
    if len(reached) <= MOST_OF_A_HOP:
        assert drawn == reached
        assert found.hidden == 0
    layer = dict(zip(found.entries, found.layers, strict=True))
    back = [pair for pair in counted if layer[pair[0]] >= layer[pair[1]]]
    assert not back or circular(counted), "without a circle every edge leads on"


def brute(tree: ScopeTree, middle: int, hops: int, pairs: set[tuple[int, int]]) -> set[int]:
    """What is around a box: its makers' makers, its readers' readers, and siblings of it beside them."""
    ways = {middle: {-1, 1}}
    for _ in range(hops):
        new: dict[int, set[int]] = {}
        for source, target in pairs:
            for here, there, way in ((source, target, 1), (target, source, -1)):
                if here in ways and there not in ways:
                    if way in ways[here]:
                        new.setdefault(there, set()).add(way)
                    elif tree.parent[there] == tree.parent[middle]:
                        new.setdefault(there, set())
        ways |= new
    return {*ways}


def circular(pairs: Iterable[tuple[int, int]]) -> bool:
    sorter = TopologicalSorter[int]()
    for source, target in pairs:
        sorter.add(target, source)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


@given(tables(), st.data(), st.integers(1, 4))
def test_boxes_cover_the_nodes_and_every_edge_is_counted(table: NodeTable, data: st.DataObject, hops: int) -> None:
    tree = table.memo(build_tree)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(tree), max_size=len(tree))))
    check(table, mask, data.draw(st.sampled_from(boxes_of(tree, mask))), hops)


@pytest.mark.parametrize("dump", DUMPS)
def test_every_box_of_a_real_dump(dumps: Callable[[str], Path], dump: str) -> None:
    table = real_table(dumps, dump)
    tree = table.memo(build_tree)
    mask = (tree.depth < 3) & (tree.size > 1)
    operators = [row for row in range(len(table)) if table.category_of(row) is Category.OTHER and table.watchable[row]]
    for middle in {boxes_of(tree, mask)[row] for row in operators}:
        check(table, mask, middle, 2)


def test_a_hundred_thousand_nodes_cost_little_more_than_their_tree() -> None:
    names = [f"Default/{at // 500}-Block/{at % 500 // 125}-Layer/Mul-op{at}" for at in range(100_000)]
    flat = append_nodes(build_table([]), [FileNode("g", 0, name, name, "Mul") for name in names])[0]
    reads = np.maximum(np.arange(100_000)[:, None] - np.array([1, 7, 300]), 0)
    table = with_inputs(flat, reads.tolist())
    tree = table.memo(build_tree)
    mask = opened(tree, "Default", "Default/100-Block")
    middle, unmarked = tree.index_of_scope("Default/100-Block/1-Layer"), np.zeros(len(tree), np.bool_)

    def seconds(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    ScopeFlow(table, mask)
    plain = min(seconds(lambda: np.cumsum(tree.visible(np.ones(len(tree), np.bool_)))) for _ in range(20))
    assert min(seconds(lambda: ScopeFlow(table, mask).around(middle, 3, unmarked)) for _ in range(20)) < 20 * plain
