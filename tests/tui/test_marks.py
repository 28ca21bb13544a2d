"""Marks of the node tree are made from hits that may be older than the nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.sources.memory import MemorySource, Op, table_of
from tui_debugger.graph.table import NodeFlag
from tui_debugger.graph.tree import build_tree
from tui_debugger.model import Side
from tui_debugger.session import Session
from tui_debugger.tui.watcher import make_marks
from tui_debugger.watch.text import parse_watch


def test_a_hit_on_a_row_that_is_gone_marks_nothing() -> None:
    values = {(f"n{row}", Side.OUTPUT, 0): np.array([np.nan]) for row in (1, 2, 99)}
    session = Session(MemorySource({0: {0: values}}, ops=[Op(f"n{row}") for row in range(100)]))
    session.watchpoints.add(*parse_watch("TO"))
    result = session.check([(0, 0)])
    assert [hit.row for hit in result.hits] == [1, 2, 99]
    nodes = table_of([Op("a"), Op("b")])
    tree = build_tree(nodes)
    marks = make_marks(nodes, tree, None, result, (0, 0))
    assert [int(tree.row[i]) for i in marks.hit.nonzero()[0] if tree.row[i] >= 0] == [1]


def test_a_mark_that_every_node_would_have_is_no_mark() -> None:
    session = Session(MemorySource({0: {0: {}}}, ops=[Op("a"), Op("b")]))
    nodes = session.nodes(0)
    tree = build_tree(nodes)
    for files, marked in (([0, 0], 0), ([1, 0], 1), ([1, 1], 0)):
        some = replace(nodes, flags=np.array(files, nodes.flags.dtype) * int(NodeFlag.FILE_ONLY))
        assert make_marks(some, tree, None, None, (0, 0)).file_only.sum() == marked
