"""Inputs that hold a constant of the graph: judged by every condition that names their node, else counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.check.test_duplicate_inputs import ADD, MUL, TWO_READERS
from tests.session.opened import opened
from tests.sources.writer import DumpWriter
from tui_debugger.check.verdicts import Outcome, coverage_line, judge
from tui_debugger.session import CheckResult, Session

LARGE = np.full((2, 3), 1e9, np.float32)


def reading(tmp_path: Path, *watches: str, only: bool = False) -> tuple[Session, CheckResult]:
    """A check of one step of two operators that read one large constant; of nothing but that input when ``only``."""
    writer = DumpWriter(tmp_path)
    writer.graph(TWO_READERS)
    rng = np.random.default_rng(0)
    for node in TWO_READERS.nodes:
        for slot, (producer, _) in enumerate(node.inputs):
            if producer == "cst1":
                writer.tensor(0, node.type, node.name, LARGE, at=("input", slot))
        if not only:
            writer.tensor(0, node.type, node.name, rng.standard_normal((2, 3)).astype(np.float32))
    writer.constant(0, LARGE)
    session = opened(tmp_path, *watches)
    return session, session.check(session.pairs())


def places(result: CheckResult) -> list[tuple[str, str, int]]:
    return [(hit.key.node, hit.key.side.label, hit.key.slot) for hit in result.hits]


@pytest.mark.parametrize(
    "selection",
    [f"node={MUL}", "type=Mul", "type=mul", "scope=Default/Mul-op1", "Mul-op1$", f"category=other, node={MUL}"],
)
def test_a_selection_that_names_the_node_judges_them(tmp_path: Path, selection: str) -> None:
    _, result = reading(tmp_path, f"TL max_gt=100 @ {selection}")
    assert places(result) == [(MUL, "in", 1)]
    assert judge(result).outcome is Outcome.FINDING


@pytest.mark.parametrize("selection", ["category=tensor", "category=other"])
def test_a_selection_by_category_counts_them(tmp_path: Path, selection: str) -> None:
    _, result = reading(tmp_path, f"TL max_gt=100 @ {selection}")
    assert places(result) == []
    assert result.coverage.constants == 2
    assert coverage_line(result).endswith("; 2 inputs hold graph constants: judged for NaN and Inf only")


def test_what_is_excluded_is_not_named(tmp_path: Path) -> None:
    _, result = reading(tmp_path, f"TL max_gt=100 @ type=Mul, type=Add, -node={MUL}")
    assert places(result) == [(ADD, "in", 1)]
    assert result.coverage.constants == 0


def test_those_that_one_watchpoint_names_and_another_does_not_are_counted(tmp_path: Path) -> None:
    _, result = reading(tmp_path, f"TL max_gt=100 @ node={MUL}", "TZ @ category=tensor")
    assert (places(result), result.coverage.constants) == ([(MUL, "in", 1)], 2)


def test_conditions_on_overflow_judge_them_all(tmp_path: Path) -> None:
    _, result = reading(tmp_path, "TO @ category=tensor")
    assert result.coverage.constants == 0


def test_a_rule_under_which_there_is_nothing_else_looked_at_nothing(tmp_path: Path) -> None:
    session, result = reading(tmp_path, "TL max_gt=100 @ category=other", "TO", only=True)
    judgement = judge(result, rules=[each.id for each in session.watchpoints.items()])
    assert judgement.outcome is Outcome.CANNOT_JUDGE
    assert [doubt.kind for doubt in judgement.doubts] == ["unmatched"]
    assert "inputs that hold graph constants" in judgement.doubts[0].text


def test_adams_constants_in_a_real_dump(dumps: Callable[[str], Path]) -> None:
    """Epsilon is 1e-8, the decay rates are 0.9 and 0.999: constants of the graph."""
    session = opened(dumps("mindspore-2.0-nan"), "TS max_lt=1e-7 @ Adam-op540$", "TS max_lt=1e-7 @ category=tensor")
    result = session.check(session.pairs(steps=(1,)))
    found = [hit for hit in result.hits if hit.key.node.endswith("Adam-op540") and hit.key.slot == 8]
    assert [[each.watchpoint for each in hit.results] for hit in found] == [[1]]
    assert result.coverage.constants > 0
