"""Two node trees in one: what stands where, what a scope says, where a difference is passed on to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.results import JudgedNode, OneSided, RunsReport
from tui_debugger.diagnose.runs.tree import BOTH, Show, StepTree, TimesMap, TreeState, steps_of

Dumps = Callable[[str], Path]


@contextmanager
def compared(dumps: Dumps, name: str, *, swapped: bool = False) -> Iterator[RunsReport]:
    pair = dumps("msprobe-pairs") / name
    sessions = [opened(pair / side) for side in ("BA" if swapped else "AB")]
    yield compare_runs(sessions[0], sessions[1])
    for session in sessions:
        session.close()


def trees(report: RunsReport) -> list[StepTree]:
    return [StepTree.of(report, step) for step in report.steps]


@pytest.mark.parametrize("name", ["e_mul", "d_sdpa", "n_prefix"])
def test_every_node_of_both_runs_has_one_row_and_a_scope_says_the_worst_below_it(dumps: Dumps, name: str) -> None:
    with compared(dumps, name) as report:
        for both in trees(report):
            tree = both.tree
            assert len(both.items) == len(both.step.judged) + len(both.step.one_sided)
            assert sorted(tree.row[tree.row >= 0].tolist()) == list(range(len(both.items)))
            for entry in range(len(tree)):
                below = tree.rows_below(entry)
                assert both.states[entry] == both.state[below].max()
                sides = {int(both.side[row]) for row in below}
                assert both.sides[entry] == (sides.pop() if len(sides) == 1 else BOTH)


def test_nodes_stand_in_the_order_in_which_they_ran(dumps: Dumps) -> None:
    with compared(dumps, "d_sdpa") as report:
        both = trees(report)[0]
        order = report.runs[0].nodes(0).order
        by_scope: dict[int, list[int]] = {}
        for entry in range(len(both.tree)):
            row = int(both.tree.row[entry])
            item = both.items[row] if row >= 0 else None
            if isinstance(item, JudgedNode) and order[item.match.a] >= 0:
                by_scope.setdefault(int(both.tree.parent[entry]), []).append(int(order[item.match.a]))
        assert all(each == sorted(each) for each in by_scope.values())


@pytest.mark.parametrize("swapped", [False, True])
def test_what_only_one_run_has_stands_beside_what_is_before_it(dumps: Dumps, *, swapped: bool) -> None:
    with compared(dumps, "d_sdpa", swapped=swapped) as report:
        both = trees(report)[0]
        tree = both.tree
        fused = "Functional.scaled_dot_product_attention"
        (entry,) = [
            entry for entry in range(len(tree)) if tree.label[entry] == fused and tree.path(entry).startswith("b/0")
        ]
        assert tree.path(entry) == f"b/0/attn/{fused}"
        item = both.items[int(tree.row[entry])]
        assert isinstance(item, OneSided)
        assert item.side == (0 if swapped else 1)
        around = int(tree.parent[entry])
        inner = [tree.label[each] for each in range(len(tree)) if tree.parent[each] == around]
        assert inner.index("v") < inner.index(fused) < inner.index("o")


def test_scopes_that_were_renamed_take_what_is_new_in_them(dumps: Dumps) -> None:
    with compared(dumps, "n_prefix", swapped=True) as report:
        both = trees(report)[0]
        paths = [both.tree.path(entry) for entry in range(len(both.tree)) if both.tree.row[entry] >= 0]
        assert len(paths) == len(set(paths))


def test_the_filters_show_what_they_say(dumps: Dumps) -> None:
    with compared(dumps, "e_mul") as report:
        before, both = trees(report)
        assert [before.count(show) for show in Show] == [0, 0, 196, 0, 0]
        assert both.count(Show.FINDINGS) == 1
        judged = [judged for judged in both.step.judged if judged.judgement.name in {"INHERITED", "INTRODUCED"}]
        assert both.count(Show.DIFFERENCES) == len(judged) == 108


def test_a_finding_has_a_row_the_tensors_of_both_runs_and_a_path(dumps: Dumps) -> None:
    with compared(dumps, "e_mul") as report:
        both = trees(report)[1]
        (finding,) = both.findings
        row = both.row_of(finding)
        assert both.state[row] == TreeState.INTRODUCED
        assert both.finding_at(row) is finding
        assert both.keys(row) == both.keys(row, finding)
        here, there = both.keys(row)
        assert here is not None
        assert there is not None
        assert here.node == there.node == finding.name
        names = [both.name(hop.row) for hop in both.path_from(finding)]
        assert names[:3] == ["b/1/mlp/act/GELU", "b/1/mlp/fc2/Functional.linear", "b/1/mlp/fc2/Linear"]
        assert len(names) == len(set(names))
        assert all(both.state[hop.row] >= TreeState.INHERITED for hop in both.path_from(finding))


def test_what_is_known_is_told_after_each_step(dumps: Dumps) -> None:
    pair = dumps("msprobe-pairs") / "e_mul"
    sessions = [opened(pair / side) for side in "AB"]
    told: list[RunsReport] = []
    whole = compare_runs(sessions[0], sessions[1], so_far=told.append)
    assert [len(report.steps) for report in told] == [1, 2]
    assert [len(report.findings) for report in told] == [0, 1]
    assert told[-1].headline is whole.headline
    for session in sessions:
        session.close()


def test_the_map_has_every_node_and_step(dumps: Dumps) -> None:
    with compared(dumps, "e_mul") as report:
        map_ = TimesMap.of(report, (0, 0))
        assert map_.times.shape == (196, 2)
        row, column = np.unravel_index(np.nanargmax(map_.times), map_.times.shape)
        assert (map_.names[row], map_.places[column].step_a) == ("b/1/mlp/act/Functional.gelu", 1)
        assert float(np.nanmin(map_.levels)) == 0
        assert "error ÷ expected 166000×" in map_.cell_text(int(row), int(column))
        assert [len(steps) for steps in steps_of(report).values()] == [2]
