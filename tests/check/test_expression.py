"""Conditions of one's own on whole runs: the previous step's statistics, facts, and what is read for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.explain.training import MATMUL, MATMUL_GRAD, RELU, Array, training, values
from tests.opened_files import opened_tensor_files
from tests.session.opened import checked, found, opened, watch
from tui_debugger.check.verdicts import Outcome, judge
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.model import ErrorBits, TensorMeta, TensorStats, Verdict, Watchpoint
from tui_debugger.session import Session
from tui_debugger.stats.records import Record, Records
from tui_debugger.text.hits import hit_text
from tui_debugger.text.rows import param_row
from tui_debugger.watch.evaluate import ColumnEvaluator


def growing(*sizes: float | None) -> Session:
    """A training whose first operator makes values of these sizes, step by step; None: they were not dumped."""
    steps: dict[int, dict[str, Array]] = {}
    for step, size in enumerate(sizes):
        steps[step] = values(step)
        if size is None:
            del steps[step][MATMUL]
        else:
            steps[step][MATMUL] = np.array([size, -size / 2, 0, 0], np.float32)
    return training(steps)


def test_a_tensor_is_held_against_its_own_previous_step() -> None:
    session = growing(1.0, 2.0, 30.0, 30.0)
    watch(session, f"EX norm > 10*prev.norm @ node={MATMUL}")
    hits = checked(session)
    assert found(hits) == [(MATMUL, 2)]
    (hit,) = [hit for hit in hits if hit.verdict is Verdict.FINDING]
    assert hit_text(hit) == "norm > 10·prev.norm → 33.541 > 10·2.2361"
    (param,) = hit.results[0].params
    assert param_row(param)["quantities"] == {
        "norm": pytest.approx(30 * 1.25**0.5),
        "prev.norm": pytest.approx(2 * 1.25**0.5),
    }


def test_a_step_alone_finds_what_the_whole_run_finds() -> None:
    alone, whole = growing(1.0, 30.0), growing(1.0, 30.0)
    for session in (alone, whole):
        watch(session, f"EX norm > 10*prev.norm @ node={MATMUL}")
    assert found(checked(alone, 1)) == found(checked(whole)) == [(MATMUL, 1)]


def test_the_first_step_is_not_comparable_and_a_missing_one_later_is_a_doubt() -> None:
    session = growing(1.0, None, 30.0)
    watch(session, f"EX norm > 10*prev.norm @ node={MATMUL}")
    result = session.check(session.pairs())
    assert result.coverage.not_comparable == 1
    judgement = judge(result)
    assert judgement.outcome is Outcome.CANNOT_JUDGE
    assert "1 tensor could not be compared: no previous step" in [doubt.text for doubt in judgement.doubts]


def test_what_has_nothing_to_compare_with_is_not_clean() -> None:
    session = growing(1.0)
    watch(session, f"EX norm > 10*prev.norm @ node={MATMUL}")
    assert judge(session.check(session.pairs())).outcome is Outcome.CANNOT_JUDGE


def test_what_decides_without_the_previous_step_is_a_finding_at_the_first_one() -> None:
    session = growing(5.0, 1.0)
    watch(session, f"EX max > 4 or norm > 10*prev.norm @ node={MATMUL}")
    assert found(checked(session)) == [(MATMUL, 0)]


def test_facts_choose_among_tensors() -> None:
    session = training({0: values(0), 1: values(1)})
    watch(session, "EX step == 1 and category == 'activation' and zero_pct > 0", "EX type == 'matmul' and rank == 0")
    first = [(hit.key.node, hit.key.step) for hit in checked(session) if any(r.watchpoint == 1 for r in hit.results)]
    second = [(hit.key.node, hit.key.step) for hit in checked(session) if any(r.watchpoint == 2 for r in hit.results)]
    assert first == [(RELU, 1)]
    assert sorted(second) == sorted((node, step) for node in (MATMUL, MATMUL_GRAD) for step in (0, 1))


def test_nan_is_a_finding_as_what_it_is_and_of_what_asks_for_it() -> None:
    session = growing(1.0, float("nan"))
    watch(session, f"EX max > 100 @ node={MATMUL}", f"EX nan >= 2 and step > 0 @ node={MATMUL}")
    (hit,) = [hit for hit in checked(session) if hit.verdict is Verdict.FINDING]
    assert [(each.verdict, each.error) for each in hit.results] == [
        (Verdict.BLOCKED, ErrorBits.NAN),
        (Verdict.FINDING, ErrorBits.NONE),
    ]


def test_explain_shows_every_quantity() -> None:
    session = growing(1.0, 2.0, 30.0)
    watch(session, f"EX norm > 10*prev.norm and size == 4 @ node={MATMUL}")
    (hit,) = [hit for hit in checked(session) if hit.verdict is Verdict.FINDING]
    (section,) = explain(session, hit.key, hit).sections
    assert section.found == "norm > 10·prev.norm and size == 4 holds: 33.541 > 10·2.2361 and 4 == 4"
    assert "prev.norm = 2.2361: root of the sum of squares of the finite values at the previous step" in section.facts
    assert "size = 4: number of elements, by the shape" in section.facts


def test_statistics_of_the_previous_step_cost_no_more_files(dumps: Callable[[str], Path]) -> None:
    """They are those that were measured for that step itself."""

    def opened_for(text: str) -> list[str]:
        session = opened(dumps("mindspore-2.10-mlp"), text)
        with opened_tensor_files() as files:
            checked(session)
        return sorted(files)

    plain = opened_for("TL max_gt=1e30")
    assert plain
    assert opened_for("EX norm > 1e6*prev.norm") == plain


def test_what_a_dump_of_statistics_does_not_tell_cannot_be_judged() -> None:
    """Recorded statistics without a variance decide what they decide, and leave the rest open."""
    recorded = TensorStats(4, 0, 0, 0, 0, 2, 2, -1.0, 3.0, 1.0, None, None, math.nan)
    record = Record(TensorMeta("float32", (4,), 16), recorded)
    evaluator = ColumnEvaluator(Records.of([record]), np.arange(1))

    def verdict(text: str) -> Verdict | None:
        (result,) = evaluator.results(Watchpoint(1, "expression", (("expression", text),)), first_step=False)
        return None if result is None else result.verdict

    assert verdict("max > 2") is Verdict.FINDING
    assert verdict("max > 4") is None
    assert verdict("max > 6*std") is Verdict.CANNOT_JUDGE
    assert verdict("norm > 0 or max > 2") is Verdict.FINDING
