"""What NaN or Inf kept from being judged: no hit of that condition, yet the tensor is a finding, as what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.check.test_duplicate_inputs import file
from tests.session.opened import checked, opened
from tests.sources.writer import MLP, write_dump
from tui_debugger.causes.table import OriginKind
from tui_debugger.check.hits import Blocked, HitList
from tui_debugger.check.types import CheckResult as Result
from tui_debugger.check.verdicts import Outcome, coverage_line, findings_line, judge, tally_table
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.model import ErrorBits, Hit, Verdict
from tui_debugger.session import CheckResult, Session
from tui_debugger.text.hits import abbreviations, hit_text, said_words
from tui_debugger.watch.condition_table import CONDITIONS

SEVEN = (
    "TO @ category=tensor", "WCL @ category=weight", "WNC @ category=weight", "WCS @ category=weight",
    "GV abs_mean_lt=1e-12 @ category=gradient", "TZ @ category=tensor", "TL max_gt=1e30 @ category=tensor",
)  # fmt: skip
MATMUL, RELU, _ = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)


@pytest.fixture(scope="module")
def demo(dumps: Callable[[str], Path]) -> tuple[Session, CheckResult]:
    session = opened(dumps("mindspore-2.0-nan"), *SEVEN)
    return session, session.check(session.pairs())


def spoiled(root: Path, step: int = 1, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = NAN) -> Path:
    """A dump in which one operator's output is NaN at one step."""
    write_dump(root)
    np.save(file(root, step, RELU, "output", 0), values)
    return root


def results_of(hits: Sequence[Hit]) -> set[tuple[str, Verdict]]:
    return {(CONDITIONS[each.condition].abbr, each.verdict) for hit in hits for each in hit.results}


def test_a_condition_is_blocked_exactly_where_there_is_nan_or_inf(demo: tuple[Session, CheckResult]) -> None:
    for hit in demo[1].hits:
        for result in hit.results:
            overflow = CONDITIONS[result.condition].is_overflow
            bad = hit.stats is not None and hit.stats.bad
            assert (result.verdict is Verdict.BLOCKED) == (bad and not overflow)
            assert overflow <= (result.verdict is Verdict.FINDING)


def test_the_counts_are_those_of_the_hits(demo: tuple[Session, CheckResult]) -> None:
    result = demo[1]
    judgement = judge(result)
    said = [(each.watchpoint, each.verdict) for hit in result.hits for each in hit.results]
    for tally in judgement.tallies:
        number = tally.watchpoint.id
        assert tally.findings == said.count((number, Verdict.FINDING))
        assert tally.blocked.tensors == said.count((number, Verdict.BLOCKED))
        assert dict(result.coverage.blocked).get(number, 0) == tally.blocked.tensors
        left = tally.not_comparable + tally.cannot_judge + tally.blocked.tensors
        assert tally.judged == tally.tensors - left
    assert [tally.blocked.tensors for tally in judgement.tallies][:2] == [0, 78]
    assert sum(tally.findings for tally in judgement.tallies if tally.watchpoint.condition == "tensor_too_large") == 0


def test_the_line_says_the_one_kind_of_finding(demo: tuple[Session, CheckResult]) -> None:
    session, _ = demo
    result = session.check(session.pairs(steps=(3,)))
    overflow = judge(result, fail_on={"tensor_overflow"})
    assert findings_line(overflow.failing, result) == "NaN or Inf in 314 tensors at step 3, 2 origins ◆"
    everything = demo[1]
    failing = judge(everything).failing
    line = f"NaN or Inf in 910 tensors, other findings in {len(failing) - 910}, at steps 0-5, 2 origins ◆"
    assert findings_line(failing, everything) == line


def test_nan_is_one_finding_also_when_only_another_condition_was_asked(tmp_path: Path) -> None:
    session = opened(spoiled(tmp_path), f"TL max_gt=1e30 @ node={RELU}", f"TZ @ node={RELU}")
    result = session.check(session.pairs(steps=(1,)))
    (hit,) = result.hits
    assert hit.verdict is Verdict.FINDING
    assert results_of([hit]) == {("TL", Verdict.BLOCKED), ("TZ", Verdict.BLOCKED)}
    assert hit_text(hit) == "NaN 6 of 6 · TL TZ not judged"
    assert (said_words(hit), hit_text(hit, apart=False)) == ("", "NaN 6 of 6")
    assert result.hits.findings == 1
    judgement = judge(result)
    assert (judgement.outcome, len(judgement.failing)) == (Outcome.FINDING, 1)
    assert result.coverage.blocked == ((1, 1), (2, 1))
    titles, rows = tally_table(judgement.tallies)
    assert titles == ("tensors", "findings", "not judged", "watchpoint")
    assert [row[:3] for row in rows] == [("1", "0", "1: NaN"), ("1", "0", "1: NaN")]


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ({"tensor_too_large"}, Outcome.FINDING),
        ({"tensor_overflow"}, Outcome.FINDING),
        ({"tensor_all_zero"}, Outcome.CLEAN),
    ],
)
def test_what_is_blocked_fails_for_the_conditions_that_it_blocks(
    tmp_path: Path, asked: set[str], outcome: Outcome
) -> None:
    session = opened(spoiled(tmp_path), f"TL max_gt=1e30 @ node={RELU}", f"TO @ node={RELU}", f"TZ @ node={MATMUL}")
    result = session.check(session.pairs(steps=(1,)))
    assert judge(result, fail_on=asked).outcome is outcome


def test_nan_without_a_step_before_is_still_blocked_by_nan(tmp_path: Path) -> None:
    (hit,) = [each for each in checked(opened(spoiled(tmp_path, 0), "WNC"), 0) if each.verdict is Verdict.FINDING]
    (result,) = hit.results
    assert (result.verdict, result.error) == (Verdict.BLOCKED, ErrorBits.NAN | ErrorBits.NO_PREVIOUS)
    assert hit_text(hit) == "NaN 6 of 6 · WNC not judged"


def test_a_changed_shape_stays_a_finding_of_its_condition(tmp_path: Path) -> None:
    session = opened(spoiled(tmp_path, 1, NAN.reshape(3, 2)), f"WNC @ node={RELU}", f"TL max_gt=1 @ node={RELU}")
    (hit,) = checked(session, 1)
    assert results_of([hit]) == {("WNC", Verdict.FINDING), ("TL", Verdict.BLOCKED)}
    assert (said_words(hit), hit_text(hit)) == ("WNC", "NaN 6 of 6, shape changed · TL not judged")


def test_what_is_only_blocked_is_explained_as_nan(tmp_path: Path) -> None:
    session = opened(spoiled(tmp_path), f"WNC @ node={RELU}")
    (hit,) = checked(session, 1)
    guidance = explain(session, hit.key, hit)
    assert [section.title for section in guidance.sections] == ["NaN or Inf"]
    assert guidance.finding
    assert "not judged because of that: WNC" in guidance.sections[0].facts


def test_nan_begins_where_it_is_made_whatever_was_asked(tmp_path: Path) -> None:
    session = opened(spoiled(tmp_path))
    for text in ("WNC", "TL max_gt=1e30", "TO"):
        asked = opened(tmp_path, text).watchpoints.enabled()
        report = session.find_origin(session.pairs(steps=(1,)), asked)
        assert [(origin.node, origin.start) for origin in report.origins] == [(RELU, OriginKind.MADE)], text


def test_a_weight_that_was_fed_nan_is_no_origin_of_a_weight_that_did_not_change(
    demo: tuple[Session, CheckResult], dumps: Callable[[str], Path]
) -> None:
    session, _ = demo
    asked = opened(dumps("mindspore-2.0-nan"), "WNC @ category=weight").watchpoints.enabled()
    report = session.find_origin(session.pairs(steps=(3,)), asked)
    assert not report.origins
    (first,) = [searched.first for searched in report.searches if searched.first is not None]
    assert first.start is OriginKind.TAINTED


# -- by design ---------------------------------------------------------------------------------------


def by_design(result: CheckResult) -> Result:
    """The same check, had its NaN been meant: what a verdict of every column that is set so comes to."""
    parts = []
    for part in result.hits.parts:
        verdicts = part.verdicts.copy()
        verdicts[(verdicts == Verdict.FINDING) | (verdicts == Verdict.BLOCKED)] = Verdict.BY_DESIGN
        parts.append(replace(part, verdicts=verdicts, _made={}))
    coverage = replace(result.coverage, by_design=len(result.hits), blocked=())
    return replace(result, hits=HitList(parts), coverage=coverage)


def test_what_is_by_design_is_no_finding_and_is_counted(tmp_path: Path) -> None:
    session = opened(spoiled(tmp_path, values=-np.inf * np.ones((2, 3), np.float32)), "TO", "TL max_gt=1e30")
    found = session.check(session.pairs(steps=(1,)))
    assert judge(found).outcome is Outcome.FINDING
    result = by_design(found)
    (hit,) = result.hits
    assert {each.verdict for each in hit.results} == {Verdict.BY_DESIGN}
    assert (hit.verdict, result.hits.verdict.tolist()) == (Verdict.BY_DESIGN, [Verdict.BY_DESIGN])
    assert hit_text(hit) == "-Inf 6 of 6 by design · TL not judged"
    assert said_words(hit) == ""
    judgement = judge(result)
    assert (judgement.outcome, result.hits.findings) == (Outcome.CLEAN, 0)
    overflow, large = judgement.tallies
    assert (overflow.findings, overflow.by_design, overflow.judged) == (0, 1, overflow.tensors)
    assert (large.findings, large.by_design, large.judged) == (0, 1, large.tensors - 1)
    assert "1 with Inf by design" in coverage_line(result)


def test_a_condition_that_judged_nothing_but_inf_by_design_does_not_say_clean(tmp_path: Path) -> None:
    values = -np.inf * np.ones((2, 3), np.float32)
    session = opened(spoiled(tmp_path, values=values), f"TL max_gt=1e30 @ node={RELU}")
    judgement = judge(by_design(session.check(session.pairs(steps=(1,)))))
    assert judgement.outcome is Outcome.CANNOT_JUDGE


# -- columns -----------------------------------------------------------------------------------------


def test_columns_and_objects_agree(demo: tuple[Session, CheckResult]) -> None:
    hits = demo[1].hits
    assert hits.verdict.tolist() == [hit.verdict for hit in hits]
    asked = {"weight_not_changed", "gradient_vanishing"}
    failing = (Verdict.FINDING, Verdict.BLOCKED)
    assert hits.found_by(asked).tolist() == [
        any(each.condition in asked and each.verdict in failing for each in hit.results) for hit in hits
    ]
    errors: dict[int, list[ErrorBits]] = {}
    for hit in hits:
        for each in hit.results:
            if each.verdict is Verdict.BLOCKED:
                errors.setdefault(each.watchpoint, []).append(each.error)
    for number, blocked in hits.blocked().items():
        bits = ErrorBits.NONE
        for error in errors[number]:
            bits |= error & (ErrorBits.NAN | ErrorBits.INF)
        assert blocked == Blocked(len(errors[number]), bits)
    assert errors.keys() == hits.blocked().keys()


def test_what_found_something_comes_first(demo: tuple[Session, CheckResult]) -> None:
    hit = next(each for each in demo[1].hits if each.key.node == "head.weight" and each.key.step == 3)
    names = [abbr for abbr, _ in abbreviations(hit)]
    assert names[0] == "TO"
    assert said_words(hit) == "TO"
