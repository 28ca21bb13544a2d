"""Where two runs begin to differ: on runs made in memory, whose every number is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.memory import Key, MemorySource, Op, Recorded
from tests.thorough import examples
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.distance import INTRODUCED, ComparedBy, Tolerance
from tui_debugger.diagnose.runs.results import DiffKind, NodeJudgement, Options, RunsReport
from tui_debugger.model import Category, Side
from tui_debugger.session import Session
from tui_debugger.stats.blocks import measure_stats

Array = npt.NDArray[Any]
IN, OUT = Side.INPUT, Side.OUTPUT
SHIFT = np.float32(0.25)
OPS = (
    Op("x", "Parameter", category=Category.PARAMETER),
    Op("w", "Parameter", category=Category.WEIGHT),
    Op("Custom-op1", "Custom", [("x", 0), ("w", 0)]),
    Op("Other-op2", "Other", [("Custom-op1", 0)]),
    Op("Third-op3", "Third", [("Other-op2", 0)]),
)
"""Operators that nobody knows, so that only what went in and came out can be judged."""


def forward(x: Array, w: Array, *, factor: float = 1.0) -> dict[Key, Array]:
    """One step; ``factor`` is a fault of the second operator."""
    first = x * w
    second = (first + SHIFT) * np.float32(factor)
    third = second * second
    return {
        ("x", OUT, 0): x,
        ("w", OUT, 0): w,
        ("Custom-op1", IN, 0): x,
        ("Custom-op1", IN, 1): w,
        ("Custom-op1", OUT, 0): first,
        ("Other-op2", IN, 0): first,
        ("Other-op2", OUT, 0): second,
        ("Third-op3", IN, 0): second,
        ("Third-op3", OUT, 0): third,
    }


def values(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=256).astype(np.float32)


X, W = values(0), values(1)


def compared(a: dict[Key, Any], b: dict[Key, Any], options: Options | None = None, ops: Any = OPS) -> RunsReport:
    return compared_runs({0: {0: a}}, {0: {0: b}}, options, ops=ops)


def compared_runs(
    a: Any, b: Any, options: Options | None = None, *, ops: Any = OPS, others: Any = None, repeat: Any = None
) -> RunsReport:
    sessions = [Session(MemorySource(a, ops=ops)), Session(MemorySource(b, ops=others or ops))]
    if repeat is not None:
        sessions.append(Session(MemorySource(repeat, ops=ops)))
    for session in sessions:
        session.open()
    report = compare_runs(sessions[0], sessions[1], options, repeat=sessions[2] if repeat is not None else None)
    for session in sessions:
        session.close()
    return report


def judgements(report: RunsReport) -> dict[str, NodeJudgement]:
    names = [op.name for op in OPS]
    return {names[judged.match.a]: judged.judgement for step in report.steps for judged in step.judged}


def test_a_run_is_the_same_as_itself() -> None:
    report = compared(forward(X, W), forward(X, W))
    assert (report.exit_code, report.headline, report.doubts) == (0, None, ())
    assert set(judgements(report).values()) == {NodeJudgement.SAME}


def test_rounding_is_no_difference() -> None:
    noisy = forward(X, W)
    noisy["Custom-op1", OUT, 0] = noisy["Custom-op1", OUT, 0] * np.float32(1 + 2.0**-23)
    noisy["Other-op2", IN, 0] = noisy["Custom-op1", OUT, 0]
    report = compared(forward(X, W), noisy)
    assert report.exit_code == 0
    assert judgements(report)["Custom-op1"] is NodeJudgement.ROUNDING


def test_the_operator_that_makes_the_difference_is_named_and_not_what_passes_it_on() -> None:
    report = compared(forward(X, W), forward(X, W, factor=1.01))
    (finding,) = report.findings
    assert (report.exit_code, finding.name, finding.kind) == (1, "Other-op2", DiffKind.INTRODUCED)
    assert judgements(report)["Third-op3"] is NodeJudgement.INHERITED
    assert finding.times > 1e5 > INTRODUCED


def test_the_sides_may_be_swapped() -> None:
    one, other = forward(X, W), forward(X, W, factor=1.01)
    assert [each.name for each in compared(other, one).findings] == ["Other-op2"]


def test_nan_on_one_side_is_a_difference_whichever_side() -> None:
    bad = forward(X, W)
    bad["Other-op2", OUT, 0] = np.where(np.arange(256) == 7, np.float32(np.nan), bad["Other-op2", OUT, 0])
    for pair in ((forward(X, W), bad), (bad, forward(X, W))):
        headline = compared(*pair).headline
        assert headline is not None
        assert (headline.name, headline.times) == ("Other-op2", np.inf)


def test_one_wrong_element_is_found_among_many() -> None:
    """In bfloat16 the norm says nothing of it; its own size does."""
    big = np.random.default_rng(5).normal(size=1 << 16).astype(np.float32)
    one, other = forward(big, np.ones_like(big)), forward(big, np.ones_like(big))
    other["Other-op2", OUT, 0] = other["Other-op2", OUT, 0].copy()
    other["Other-op2", OUT, 0][99] *= -1
    headline = compared(one, other).headline
    assert headline is not None
    assert headline.name == "Other-op2"
    assert headline.distance is not None
    assert headline.distance.worst == (99,)


def test_a_weight_that_differs_from_the_start_is_the_cause_and_no_operator() -> None:
    report = compared(forward(X, W), forward(X, values(9)))
    (finding,) = report.findings
    assert (finding.kind, finding.name, finding.consumer) == (DiffKind.PARAMETER, "w", "Custom-op1")


def test_another_batch_is_the_cause() -> None:
    report = compared(forward(X, W), forward(values(9), W))
    assert [(finding.kind, finding.name) for finding in report.findings] == [(DiffKind.PARAMETER, "x")]


def test_what_was_not_dumped_in_both_runs_is_a_doubt() -> None:
    fewer = forward(X, W)
    del fewer["Third-op3", OUT, 0]
    report = compared(forward(X, W), fewer)
    assert report.exit_code == 2
    assert any("Third-op3" in doubt for doubt in report.doubts)


def test_what_cannot_be_read_is_a_doubt() -> None:
    spoilt: dict[Key, Any] = {**forward(X, W), ("Third-op3", OUT, 0): b"spoilt"}
    report = compared(forward(X, W), spoilt)
    assert report.exit_code == 2


def test_another_shape_is_a_doubt_and_no_agreement() -> None:
    other = forward(X, W)
    other["Third-op3", OUT, 0] = other["Third-op3", OUT, 0].reshape(16, 16)
    report = compared(forward(X, W), other)
    assert report.exit_code == 2
    assert report.compared[ComparedBy.NOT] == 1


def test_a_difference_whose_inputs_are_not_known_is_a_doubt() -> None:
    one, other = forward(X, W), forward(X, W, factor=1.01)
    for side in (one, other):
        for key in (("Custom-op1", OUT, 0), ("Other-op2", IN, 0), ("Third-op3", IN, 0), ("Third-op3", OUT, 0)):
            del side[key]
    report = compared(one, other)
    assert report.exit_code == 2
    assert judgements(report)["Other-op2"] is NodeJudgement.UNPROVEN


def test_nan_in_one_run_only_is_a_difference_whatever_is_known_of_the_inputs() -> None:
    one, other = forward(X, W), forward(X, W)
    other["Other-op2", OUT, 0] = np.where(np.arange(256) == 7, np.float32(np.nan), other["Other-op2", OUT, 0])
    for side in (one, other):
        for key in (("Custom-op1", OUT, 0), ("Other-op2", IN, 0), ("Third-op3", IN, 0), ("Third-op3", OUT, 0)):
            del side[key]
    for pair in ((one, other), (other, one)):
        report = compared(*pair)
        (finding,) = report.findings
        assert (report.exit_code, finding.name, finding.kind) == (1, "Other-op2", DiffKind.INPUT)
        assert "the first known ones" in finding.text


def test_steps_of_other_numbers_are_paired_in_order_and_said() -> None:
    report = compared_runs({0: {0: forward(X, W)}}, {0: {5: forward(X, W)}})
    assert report.exit_code == 0
    assert "paired in order" in report.notes[0]
    mapped = compared_runs(
        {0: {0: forward(X, W)}}, {0: {0: forward(values(3), W), 5: forward(X, W)}}, Options(steps=((0, 5),))
    )
    assert [step.place.step_b for step in mapped.steps] == [5]
    assert mapped.exit_code == 0


def test_a_step_that_only_one_run_has_is_a_doubt() -> None:
    report = compared_runs({0: {0: forward(X, W), 1: forward(X, W)}}, {0: {0: forward(X, W)}})
    assert (report.exit_code, report.doubts) == (2, ("step 1 is in the first run only",))


def test_a_tolerance_replaces_the_rule() -> None:
    one, other = forward(X, W), forward(X, W, factor=1.01)
    assert compared(one, other, Options(tolerance=Tolerance(0.1, 0.1))).exit_code == 0
    strict = compared(one, other, Options(tolerance=Tolerance(1e-6, 1e-9)))
    assert strict.headline is not None
    assert strict.headline.name == "Other-op2"


def test_statistics_are_compared_as_statistics() -> None:
    def recorded(step: dict[Key, Array]) -> dict[Key, Any]:
        return {key: Recorded(measure_stats(value)[0], "float32", value.shape) for key, value in step.items()}

    same = compared(recorded(forward(X, W)), recorded(forward(X, W)))
    assert (same.exit_code, set(same.compared)) == (0, {ComparedBy.STATISTICS})
    other = compared(recorded(forward(X, W)), recorded(forward(X, W, factor=1.01)))
    assert other.headline is not None
    assert other.headline.name == "Other-op2"


def test_a_node_of_one_run_only_is_covered_by_what_reads_its_outputs() -> None:
    more = (*OPS[:4], Op("Same-op9", "Same", [("Other-op2", 0)]), Op("Third-op3", "Third", [("Same-op9", 0)]))
    inserted = forward(X, W)
    inserted["Same-op9", IN, 0] = inserted["Same-op9", OUT, 0] = inserted["Other-op2", OUT, 0]
    report = compared_runs({0: {0: forward(X, W)}}, {0: {0: inserted}}, others=more)
    assert report.exit_code == 0
    ((one,),) = [step.one_sided for step in report.steps]
    assert (one.side, one.name, one.covered) == (1, "Same-op9", "what reads its outputs agrees")


def test_a_node_of_one_run_only_that_changes_something_is_named() -> None:
    more = (*OPS[:4], Op("Twice-op9", "Twice", [("Other-op2", 0)]), Op("Third-op3", "Third", [("Twice-op9", 0)]))
    changed = forward(X, W)
    changed["Twice-op9", IN, 0] = changed["Other-op2", OUT, 0]
    changed["Twice-op9", OUT, 0] = changed["Third-op3", IN, 0] = changed["Other-op2", OUT, 0] * 2
    changed["Third-op3", OUT, 0] = changed["Third-op3", IN, 0] ** 2
    report = compared_runs({0: {0: forward(X, W)}}, {0: {0: changed}}, others=more)
    (finding,) = report.findings
    assert (finding.kind, finding.name) == (DiffKind.REGION, "Twice-op9")


# -- noise ---------------------------------------------------------------------------------------------


def shaken(seed: int, size: float = 1e-3) -> dict[Key, Array]:
    """A healthy run whose second operator adds in another order, as atomic operations do."""
    step = forward(X, W)
    second = step["Other-op2", OUT, 0] * (1 + size * values(seed)).astype(np.float32)
    third = second * second
    return step | {("Other-op2", OUT, 0): second, ("Third-op3", IN, 0): second, ("Third-op3", OUT, 0): third}


def test_what_a_repeat_differs_by_is_no_difference() -> None:
    a, b, repeat = forward(X, W), shaken(5), shaken(6)
    assert compared(a, b).exit_code == 1
    report = compared_runs({0: {0: a}}, {0: {0: b}}, repeat={0: {0: repeat}})
    assert (report.exit_code, report.findings) == (0, ())
    (judged,) = [each for step in report.steps for each in step.judged if each.order == 3]
    assert judged.worst is not None
    assert judged.worst.noise == pytest.approx(1e-3, rel=0.5)
    assert "noise between the first run and its repeat" in report.notes[0]


def test_what_is_far_above_the_noise_is_a_difference() -> None:
    fault = shaken(5)
    fault["Other-op2", OUT, 0] = fault["Other-op2", OUT, 0] * np.float32(1.01)
    report = compared_runs({0: {0: forward(X, W)}}, {0: {0: fault}}, repeat={0: {0: shaken(6)}})
    assert report.headline is not None
    assert report.headline.name == "Other-op2"


def test_noise_at_one_operator_excuses_nothing_before_it() -> None:
    fault = shaken(5)
    fault["Custom-op1", OUT, 0] = fault["Custom-op1", OUT, 0] * np.float32(1.0001)
    report = compared_runs({0: {0: forward(X, W)}}, {0: {0: fault}}, repeat={0: {0: shaken(6)}})
    assert report.headline is not None
    assert report.headline.name == "Custom-op1"


def test_nan_is_never_noise() -> None:
    def spoilt(seed: int) -> dict[Key, Array]:
        step = shaken(seed)
        step["Other-op2", OUT, 0] = np.where(np.arange(256) == 7, np.float32(np.nan), step["Other-op2", OUT, 0])
        return step

    report = compared_runs({0: {0: forward(X, W)}}, {0: {0: spoilt(5)}}, repeat={0: {0: spoilt(6)}})
    assert report.headline is not None
    assert report.headline.name == "Other-op2"
    assert "the repeat has NaN" in report.notes[1]


def test_random_whole_numbers_are_noise_and_more_of_them_are_not() -> None:
    def masks(seed: int, share: float) -> dict[Key, Array]:
        mask = (np.random.default_rng(seed).random(256) < share).astype(np.int32)
        return forward(X, W) | {("Other-op2", OUT, 0): mask, ("Third-op3", IN, 0): mask}

    a, repeat = {0: {0: masks(0, 0.02)}}, {0: {0: masks(1, 0.02)}}
    assert compared_runs(a, {0: {0: masks(2, 0.02)}}).exit_code == 1
    assert compared_runs(a, {0: {0: masks(2, 0.02)}}, repeat=repeat).exit_code == 0
    assert compared_runs(a, {0: {0: masks(2, 0.9)}}, repeat=repeat).exit_code == 1


# -- sides ---------------------------------------------------------------------------------------------

KEYS = list(forward(X, W))
FAULTS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["scale", "offset", "element", "nan", "gone", "shape", "spoilt"])),
    max_size=4,
)


def spoilt(step: dict[Key, Any], faults: list[tuple[Key, str]]) -> dict[Key, Any]:
    found = dict(step)
    for key, kind in faults:
        value = found.get(key)
        if not isinstance(value, np.ndarray) or value.shape != (256,):
            continue
        if kind == "gone":
            del found[key]
        elif kind == "spoilt":
            found[key] = b"spoilt"
        elif kind == "shape":
            found[key] = value.reshape(16, 16)
        elif kind in {"scale", "offset"}:
            found[key] = value * np.float32(1.02) if kind == "scale" else value + np.float32(0.1)
        else:
            found[key] = np.where(np.arange(256) == 9, np.float32(np.nan if kind == "nan" else 7.5), value)
    return found


@given(FAULTS, FAULTS)
@examples(300)
def test_swapped_sides_give_the_mirrored_answer(one: list[tuple[Key, str]], other: list[tuple[Key, str]]) -> None:
    a, b = spoilt(forward(X, W), one), spoilt(forward(X, W), other)
    if not all(any(isinstance(value, np.ndarray) for value in step.values()) for step in (a, b)):
        return
    there, back = compared(a, b), compared(b, a)
    assert there.exit_code == back.exit_code
    assert judgements(there) == judgements(back)
    assert len(there.doubts) == len(back.doubts)
    assert there.compared == back.compared
    for found, mirrored in zip(there.findings, back.findings, strict=True):
        assert (found.kind, found.name, found.consumer) == (mirrored.kind, mirrored.name, mirrored.consumer)
        assert (found.row_a, found.row_b) == (mirrored.row_b, mirrored.row_a)
        assert {found.side, mirrored.side} in ({-1}, {0, 1})
        assert (found.times, found.given) == (mirrored.times, mirrored.given)
        if found.distance is not None and mirrored.distance is not None:
            assert found.distance.relative == mirrored.distance.relative
            assert repr(found.distance.values) == repr((mirrored.distance.values or ())[::-1] or None)


@given(FAULTS)
@examples(300)
def test_two_runs_that_differ_are_never_the_same(faults: list[tuple[Key, str]]) -> None:
    """What is above rounding, and anywhere in one of them only, is a difference or a doubt.

    An input that one run did not dump is known by the output that it is: that is the same.
    """
    good = forward(X, W)
    bad = spoilt(good, faults)
    gone = [key for key in good if key not in bad and key[1] is OUT]
    if not gone and all(np.array_equal(bad[key], good[key]) for key in bad):
        return
    assert compared(good, bad).exit_code != 0


def test_the_forward_pass_comes_before_gradients_that_are_listed_first() -> None:
    ops = (Op("Grad-op0", "Grad", category=Category.GRADIENT), *OPS)
    runs = [forward(X, W, factor=factor) | {("Grad-op0", OUT, 0): X * np.float32(factor)} for factor in (1.0, 1.5)]
    report = compared(runs[0], runs[1], ops=ops)
    assert [finding.name for finding in report.findings] == ["Other-op2", "Grad-op0"]
