"""Graphs for graphviz: a small parser reads back every node, edge and name, for any name."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import graph, op
from tests.session.opened import opened
from tui_debugger.graph.build import build_table
from tui_debugger.graph.table import NodeTable, real_inputs
from tui_debugger.session.export_drawing import (
    DrawnGraph,
    Mark,
    dot_text,
    drawn_graphs,
    write_drawing,
)
from tui_debugger.session.export_graph import GraphPart, near
from tui_debugger.text.clean import clean

HOSTILE = (
    'say "hi"',
    "a\nb\r\tc",
    "x --> y",
    "[(brackets)] {curly} <b>html</b> &amp; &lt;",
    "back\\slash\\",
    "\\N\\G\\n\\",
    "#35; #quot; ;",
    "%%{init: {}}%% end subgraph",
    "`code` **bold** | pipe |",
    "]; n0_0 -> n0_1; //",
    '"]\nclick n0_0 "javascript:alert(1)"',
    "\x1b]0;owned\x07\u202e",
    b"\xff".decode("utf-8", "surrogateescape"),
    "n" * 4096,
    "宽字符",
    "---",
    " ",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=30))


@dataclass
class Read:
    """What a file says."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)


TOKEN = re.compile(
    r'\s*(?:(//[^\n]*)|("(?:[^"\\]|\\.)*")|(->|[\[\]{};=,])|([A-Za-z_][A-Za-z_0-9]*|[0-9.]+))', re.DOTALL
)


def shown(literal: str) -> str:
    """What graphviz shows of a string of its language."""
    return html.unescape(re.sub(r"\\(.)", r"\1", literal[1:-1], flags=re.DOTALL))


def read_dot(text: str) -> Read:
    """Reads the part of the dot language that is written; anything else is an error."""
    tokens, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        assert match is not None, text[at : at + 40]
        at = match.end()
        if match[1] is None:
            tokens.append(match[2] or match[3] or match[4])
    found = Read()

    def attributes() -> dict[str, str]:
        assert tokens.pop(0) == "["
        read = {}
        while True:
            name, equals, value = tokens.pop(0), tokens.pop(0), tokens.pop(0)
            assert equals == "="
            read[name] = shown(value) if value.startswith('"') else value
            if tokens.pop(0) == "]":
                return read

    assert [tokens.pop(0) for _ in range(3)] == ["digraph", "tdbg", "{"]
    depth = 1
    while depth:
        word = tokens.pop(0)
        if word == "}":
            depth -= 1
        elif word == "subgraph":
            assert tokens.pop(0).startswith("cluster_")
            assert [tokens.pop(0) for _ in range(3)] == ["{", "label", "="]
            found.parts.append(shown(tokens.pop(0)))
            assert tokens.pop(0) == ";"
            depth += 1
        elif word in {"node", "edge"}:
            attributes()
            assert tokens.pop(0) == ";"
        elif tokens[0] == "->":
            tokens.pop(0)
            target = tokens.pop(0)
            found.edges.append((word, target, attributes()["label"]))
            assert tokens.pop(0) == ";"
        else:
            assert word not in found.nodes
            found.nodes[word] = attributes()
            assert tokens.pop(0) == ";"
    assert not tokens
    return found


def written(graphs: list[DrawnGraph]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.dot"
        drawing = write_drawing(graphs, path, Path(folder) / "dump")
        text = path.read_text("utf-8")
    read = read_dot(text)
    assert (drawing.nodes, drawing.edges) == (len(read.nodes), len(read.edges))
    return text


@given(TEXTS)
def test_a_text_reads_back_as_it_is_shown(text: str) -> None:
    assert shown(dot_text(text)) == clean(text)


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    names = draw(st.lists(TEXTS, min_size=1, max_size=8, unique=True))
    nodes = []
    for number, name in enumerate(names):
        inputs = draw(st.lists(st.integers(0, number - 1), max_size=4)) if number else []
        nodes.append(op(number, f"Default/{name}-op{number}", [str(each) for each in inputs], op_type="Add"))
    return build_table([graph(nodes)], {})


@given(table=tables(), data=st.data())
def test_every_node_edge_and_mark_is_in_the_file_and_nothing_else(table: NodeTable, data: st.DataObject) -> None:
    rows = tuple(range(len(table)))
    marks = {row: data.draw(st.sampled_from(Mark)) for row in rows}
    drawn = DrawnGraph(0, table, rows, marks, frozenset({0}))
    text = written([drawn])
    assert text == written([drawn])
    read = read_dot(text)
    assert list(read.nodes) == [f"n0_{row}" for row in rows]
    for row in rows:
        node = read.nodes[f"n0_{row}"]
        assert node["label"].startswith(marks[row].sign)
        assert node["label"].endswith(clean(table.names[row].rpartition("/")[2])), "the name is whole"
        assert node["tooltip"] == f"Add  {clean(table.names[row])}"
        assert ("fillcolor" in node) == (marks[row] is not Mark.NONE)
        assert node.get("penwidth") == "4" or row
    expected = {
        (f"n0_{source}", f"n0_{row}", slot)
        for row in rows
        for slot, (source, _) in enumerate(real_inputs(table, row))
        if source >= 0
    }
    assert {(a, b, int(slot)) for a, b, label in read.edges for slot in label[3:].split(",")} == expected


def test_several_graphs_stand_apart(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-multi-eval"))
    found = read_dot(written(list(drawn_graphs(session, [0], None))))
    assert found.parts == [f"rank 0  {each}" for each in session.graph_names()]


def test_the_whole_graph_and_what_is_around_a_node(dumps: Callable[[str], Path]) -> None:
    session = opened(dumps("mindspore-2.0-nan"), "TO")
    result = session.check(session.pairs())
    nodes = session.nodes(0)
    log = next(row for row in range(len(nodes)) if nodes.names[row].endswith("Log-op381"))
    (whole,) = drawn_graphs(session, [0], result)
    assert {whole.marks[row] for row in whole.rows if row in whole.marks} == {Mark.ORIGIN, Mark.FINDING}
    assert whole.marks[log] is Mark.ORIGIN
    assert not any(nodes.structural[row] for row in whole.rows)
    assert list(whole.rows) == sorted(whole.rows, key=lambda row: (nodes.order[row] < 0, nodes.order[row]))
    (around,) = drawn_graphs(session, [0], result, GraphPart(around={0: log}, hops=1))
    names = {nodes.names[row].rpartition("/")[2] for row in around.rows}
    assert names == {"ReduceSum-op380", "Log-op381", "ReduceSum-op382"}
    assert not list(drawn_graphs(session, [0], result, GraphPart(around={7: log})))
    (scope,) = drawn_graphs(session, [0], result, GraphPart(scope="norm-RowNorm"))
    assert scope.rows
    assert all("/norm-RowNorm/" in nodes.paths[row] for row in scope.rows)


def test_hops_go_both_ways_but_not_forth_and_back() -> None:
    names = ("Neg-op0", "Abs-op1", "Log-op2", "Exp-op3", "Sin-op4")
    inputs = ((), ("0",), ("1",), ("1",), ("2",))
    table = build_table([graph([op(at, name, inputs[at]) for at, name in enumerate(names)])], {})
    assert near(table, [2], 1).tolist() == [False, True, True, False, True]
    assert near(table, [2], 2).tolist() == [True, True, True, False, True], "Exp is a sibling, no relative"


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_graphviz_draws_hostile_names(tmp_path: Path) -> None:
    nodes = [
        op(at, f"Default/{name}-op{at}", [str(at - 1)] * (at > 0), op_type="Add") for at, name in enumerate(HOSTILE)
    ]
    table = build_table([graph(nodes)], {})
    path = tmp_path / "x.dot"
    write_drawing([DrawnGraph(0, table, tuple(range(len(table))))], path, tmp_path / "dump")
    done = subprocess.run(["dot", "-Tsvg", path], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b'class="node"') == len(HOSTILE)
