"""Marks of the node tree are made from hits that may be older than the nodes."""

from __future__ import annotations

from tui_debugger.graph.tree import build_tree
from tui_debugger.model import Coverage, Hit, Side, TensorKey, Verdict, WatchResult
from tui_debugger.session import CheckResult
from tui_debugger.sources.memory import Op, table_of
from tui_debugger.tui.marks import make_marks


def test_a_hit_on_a_row_that_is_gone_marks_nothing() -> None:
    nodes = table_of([Op("a"), Op("b")])
    found = (WatchResult(1, "tensor_overflow", Verdict.FINDING),)
    hits = tuple(Hit(TensorKey(0, "g", "x", Side.OUTPUT, 0, 0), row, found, (0, row)) for row in (1, 2, 99))
    result = CheckResult(((0, 0),), hits, Coverage(), (), 0)
    tree = build_tree(nodes)
    marks = make_marks(nodes, tree, None, result, 0)
    assert [int(tree.row[i]) for i in marks.hit.nonzero()[0] if tree.row[i] >= 0] == [1]
