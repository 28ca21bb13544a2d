"""Sketches of a graph: what one reads in the picture are the edges, all of them and no others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.sketch import (
    ASCII,
    HEAVY,
    UNICODE,
    Edge,
    Ink,
    Sketch,
    SketchBox,
    SketchGraph,
    draw_sketch,
    layers_of,
)
from tui_debugger.text.tables import width_of

LEFT, RIGHT, UP, DOWN = (-1, 0), (1, 0), (0, -1), (0, 1)
ARMS = {
    "─": {LEFT, RIGHT},
    "│": {UP, DOWN},
    "┐": {LEFT, DOWN},
    "┌": {RIGHT, DOWN},
    "┘": {LEFT, UP},
    "└": {RIGHT, UP},
    "┬": {LEFT, RIGHT, DOWN},
    "┴": {LEFT, RIGHT, UP},
    "├": {RIGHT, UP, DOWN},
    "┤": {LEFT, UP, DOWN},
    "┼": {LEFT, RIGHT, UP, DOWN},
}
"""Where the lines of a character lead; a line that meets one which does not lead back passes below it."""
NAMES = st.one_of(
    st.sampled_from(
        ["Log-op381", "ReduceSum-op382", "head.weight", "x", "MatMulBiasAddFusion-op7", "宽字符层" * 3, ""]
    ),
    st.text(
        st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"), exclude_characters="\xad"), max_size=40
    ),
)
BOXES = st.builds(
    SketchBox,
    NAMES,
    st.sampled_from(["", "◆", "✗"]),
    st.sampled_from(["", "@2"]),
    st.sampled_from(["", "out:1"]),
    st.booleans(),
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[SketchBox], list[Edge]]:
    boxes = draw(st.lists(BOXES, min_size=1, max_size=14))
    ends = st.tuples(st.integers(0, len(boxes) - 1), st.integers(0, len(boxes) - 1))
    pairs = draw(st.lists(ends, max_size=26, unique=True))
    labels = st.sampled_from(["", "0", "1", "0,3"])
    return boxes, [Edge(start, end, draw(labels)) for start, end in pairs if start != end]


def read(sketch: Sketch) -> list[tuple[int, int, int]]:
    """Every line as one reads it: the box it leaves, the box and the row of it where it ends."""
    found = []
    for box in sketch.boxes:
        for y in range(box.y, box.y + box.height):
            right = box.x + box.width - 1
            if sketch.cells[y][right] in "├╟":
                found += [(box.box, *end) for end in followed(sketch, right + 1, y)]
    return found


def followed(sketch: Sketch, x: int, y: int) -> list[tuple[int, int]]:
    """The arrows that a line leads to from a cell that one enters from the left: the box, and the row."""
    ends, seen, todo = [], set(), [(x, y, RIGHT)]
    while todo:
        x, y, way = todo.pop()
        if (x, y, way) in seen:
            continue
        seen.add((x, y, way))
        glyph = sketch.cells[y][x]
        if glyph == "▶":
            ends.append((sketch.at(x + 1, y), y))
            continue
        back = (-way[0], -way[1])
        arms = ARMS[glyph] - {back} if back in ARMS[glyph] else {way}
        todo += [(x + dx, y + dy, (dx, dy)) for dx, dy in arms]
    return ends


def check(sketch: Sketch, graph: SketchGraph, width: int, height: int) -> None:
    boxes, edges, centre = graph.boxes, graph.edges, graph.centre
    assert len(sketch.cells) <= height
    for row in sketch.cells:
        assert len(row) <= width
        assert width_of("".join(row)) == len(row)
    shown = {each.box for each in sketch.boxes}
    assert centre in shown
    for each in sketch.boxes:
        owned = {(x, y) for y in range(each.y, each.y + each.height) for x in range(each.x, each.x + each.width)}
        drawn = {(x, y) for y, row in enumerate(sketch.owners.tolist()) for x, who in enumerate(row) if who == each.box}
        assert drawn == owned, "no box lies on another one, or on a line"
    lines = read(sketch)
    assert sorted(line[:2] for line in lines) == sorted((edges[n].source, edges[n].target) for n in sketch.edges)
    assert len({line[1:] for line in lines}) == len(lines), "every line has a row of its own where it ends"
    between = {n for n, edge in enumerate(edges) if edge.source in shown and edge.target in shown}
    assert between == {*sketch.edges, *sketch.left_out}
    assert not {*sketch.edges} & {*sketch.left_out}
    layer = {each.box: each.layer for each in sketch.boxes}
    assert all(layer[edges[n].source] >= layer[edges[n].target] for n in sketch.left_out)
    assert len(boxes) >= len(shown)


@given(graphs(), st.data(), st.integers(8, 130), st.integers(3, 50))
def test_one_reads_the_edges_in_the_picture_and_it_fits(
    graph: tuple[list[SketchBox], list[Edge]], data: st.DataObject, width: int, height: int
) -> None:
    boxes, edges = graph
    centre = data.draw(st.integers(0, len(boxes) - 1))
    hidden = {-1: data.draw(st.integers(0, 1)) * 37, 1: data.draw(st.integers(0, 1)) * 1234}
    whole = SketchGraph(boxes, edges, centre, hidden, data.draw(st.integers(1, 5)))
    check(draw_sketch(whole, width, height), whole, width, height)


@given(graphs(), st.data(), st.integers(8, 200), st.integers(3, 200))
def test_one_reads_the_edges_with_given_layers_too(
    graph: tuple[list[SketchBox], list[Edge]], data: st.DataObject, width: int, height: int
) -> None:
    boxes, edges = graph
    layers = [0, *(data.draw(st.integers(-3, 3)) for _ in boxes[1:])]
    whole = SketchGraph(boxes, edges, layers=layers, comfortable=20)
    sketch = draw_sketch(whole, width, height)
    check(sketch, whole, width, height)
    assert all(each.layer == layers[each.box] for each in sketch.boxes)
    wide = draw_sketch(whole, 600, 200)
    more = [int(word) for word in re.findall(r"and (\d+) more", "\n".join(wide.rows))]
    assert len(wide.boxes) + wide.beyond + sum(more) == len(boxes), "what is not drawn is counted"


@given(graphs(), st.integers(8, 130), st.integers(3, 50))
def test_without_unicode_the_picture_is_the_same_in_ascii(
    graph: tuple[list[SketchBox], list[Edge]], width: int, height: int
) -> None:
    boxes, edges = graph
    boxes = [SketchBox(ascii(box.name), box.mark, box.note, box.foot) for box in boxes]
    whole = SketchGraph(boxes, edges)
    plain = draw_sketch(whole, width, height, ink=ASCII)
    assert all(row.isascii() for row in plain.rows)
    assert plain.boxes == draw_sketch(whole, width, height).boxes


BOX = [SketchBox(name) for name in ("x", "Sigmoid-op1", "Mul-op2", "Log-op3", "Exp-op4", "Add-op5")]
X, SIGMOID, MUL, LOG, EXP, ADD = range(6)
EDGES = [
    Edge(X, SIGMOID, "0"),
    Edge(X, MUL, "0"),
    Edge(SIGMOID, MUL, "1"),
    Edge(MUL, LOG, "0"),
    Edge(MUL, EXP, "0"),
    Edge(LOG, ADD, "0"),
    Edge(EXP, ADD, "1"),
    Edge(MUL, ADD, "2"),
]
GRAPH = SketchGraph(BOX, EDGES, MUL)


def test_what_feeds_its_neighbour_stands_before_it() -> None:
    assert layers_of(6, EDGES, MUL, 3) == {MUL: 0, SIGMOID: -1, X: -2, LOG: 1, EXP: 1, ADD: 2}


PICTURES = {
    (80, UNICODE): """\
                                                    ┌─────────┐
                                               ┌───▶│0 Log-op3├─┐
                                               │    └─────────┘ │
              ┌─────────────┐                  │                │    ┌─────────┐
┌──────┐ ┌───▶│0 Sigmoid-op1├─┐    ╔═════════╗ │    ┌─────────┐ └───▶│0 Add-op5│
│x     ├─┤    └─────────────┘ └───▶║1 Mul-op2╟─┼───▶│0 Exp-op4├─────▶│1        │
└──────┘ │                    ┌───▶║0        ║ │    └─────────┘ ┌───▶│2        │
         └────────────────────┘    ╚═════════╝ │                │    └─────────┘
                                               └────────────────┘""",
    (80, ASCII): """\
                                                    +---------+
                                               +--->|0 Log-op3+-+
                                               |    +---------+ |
              +-------------+                  |                |    +---------+
+------+ +--->|0 Sigmoid-op1+-+    #=========# |    +---------+ +--->|0 Add-op5|
|x     +-+    +-------------+ +--->#1 Mul-op2#-+--->|0 Exp-op4+----->|1        |
+------+ |                    +--->#0        # |    +---------+ +--->|2        |
         +--------------------+    #=========# |                |    +---------+
                                               +----------------+""",
    (38, UNICODE): """\
                           ┌─────────┐
                         ┌▶│0 Log-op3│
┌─────────┐  ╔═════════╗ │ └─────────┘
│Sig…d-op1├─▶║1 Mul-op2╟─┤
└─────────┘  ╚═════════╝ │ ┌─────────┐
                         └▶│0 Exp-op4│
                           └─────────┘""",
}


@pytest.mark.parametrize(("width", "ink"), PICTURES)
def test_pictures(width: int, ink: Ink) -> None:
    assert "\n".join(draw_sketch(GRAPH, width, 30, ink=ink).rows) == PICTURES[width, ink]


def test_what_there_is_no_room_for_is_counted_and_findings_stay() -> None:
    boxes = [SketchBox("w"), *(SketchBox(f"Neg-op{n}", important=n == 29) for n in range(30))]
    edges = [Edge(0, n, "0") for n in range(1, 31)]
    graph = SketchGraph(boxes, edges, 0, {1: 7})
    sketch = draw_sketch(graph, 60, 15)
    assert sketch.box(30) is not None, "the finding"
    shown = len(sketch.boxes) - 1
    assert shown == 4
    assert f"and {37 - shown} more" in "\n".join(sketch.rows)
    wide = draw_sketch(graph, 200, 15)
    assert any("and" in row for row in wide.rows)


def test_layers_without_room_are_counted() -> None:
    boxes = [SketchBox(f"Neg-op{n}") for n in range(9)]
    edges = [Edge(n, n + 1, "0") for n in range(8)]
    graph = SketchGraph(boxes, edges, 4, hops=4)
    assert draw_sketch(graph, 200, 9).beyond == 0
    narrow = draw_sketch(graph, 50, 9)
    assert narrow.beyond == 9 - len(narrow.boxes) > 0
    assert {each.layer for each in narrow.boxes} >= {-1, 0, 1}


def test_a_way_back_is_left_out_and_named() -> None:
    sketch = draw_sketch(SketchGraph([SketchBox("a"), SketchBox("b")], [Edge(0, 1), Edge(1, 0)]), 40, 9)
    assert (len(sketch.edges), len(sketch.left_out)) == (1, 1)


def test_arrow_keys_lead_through_all_boxes() -> None:
    sketch = draw_sketch(GRAPH, 120, 30)
    assert sketch.beside(MUL, -1, 0) == SIGMOID
    assert sketch.beside(SIGMOID, -1, 0) == X
    assert sketch.beside(X, -1, 0) == X
    one = sketch.beside(MUL, 1, 0)
    other = sketch.beside(one, 0, 1) if sketch.beside(one, 0, 1) != one else sketch.beside(one, 0, -1)
    assert {one, other} == {LOG, EXP}
    assert sketch.beside(one, 1, 0) == ADD


def test_the_box_under_the_cursor_has_heavy_edges() -> None:
    assert "┌╔├╟".translate(HEAVY) == "┏┏┣┣"
