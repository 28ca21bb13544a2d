"""The condition table, its validation rules, and how records are judged.

Answers marked "oracle" were measured from the released MindSpore 2.0.0 offline debugger.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.stats.requests import evaluate, f32, judge, look, look_at, watch
from tui_debugger.errors import BadWatchpointError
from tui_debugger.live import wire
from tui_debugger.model import ErrorBits, ReadSpec, TensorStats, Verdict, WatchResult
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.records import Record, RequiredStats, StepChange
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, Value, by_abbr, reasons, validate
from tui_debugger.watch.evaluate import needs

Array = npt.NDArray[Any]
WCL, WCS, WNC = "weight_change_too_large", "weight_change_too_small", "weight_not_changed"


class TestTable:
    def test_there_are_17_conditions_and_one_of_ones_own_in_listing_order(self) -> None:
        order = "EX OO TZ TO TR TL TS WCL WCS WI WNC WO WL WS AR GE GL GV"
        assert [c.abbr for c in CONDITIONS.values()] == order.split()
        for target in ("tensor", "weight", "activation", "gradient"):
            ids = [c.id for c in CONDITIONS.values() if c.target == target]
            assert ids == sorted(ids)

    def test_wire_numbers_and_parameter_order_are_those_of_the_protocol(self) -> None:
        known = {c.abbr: (c.wire, [p.name for p in c.params if p.name != IN_A_ROW]) for c in CONDITIONS.values()}
        assert all(p.name != IN_A_ROW for c in CONDITIONS.values() for p in c.params[:-1])  # ours is last
        assert known["TL"] == (15, ["abs_mean_gt", "max_gt", "min_gt", "mean_gt"])
        assert known["GV"] == (16, ["abs_mean_lt", "max_lt", "min_lt", "mean_lt"])
        assert known["WNC"] == (20, ["rtol", "atol", "equal_nan"])
        assert known["WCL"] == (18, ["abs_mean_update_ratio_gt", "epsilon"])
        assert known["WCS"] == (19, ["abs_mean_update_ratio_lt", "epsilon"])
        assert known["WI"] == (14, ["zero_percentage_ge", "max_gt", "min_lt"])
        assert known["AR"] == known["TR"]
        assert known["TR"][1][:2] == ["range_start_inclusive", "range_end_inclusive"]
        assert {known[a][0] for a in ("WO", "TO", "GE")} == {13}
        assert known["OO"] == (2, [])

    def test_each_condition_of_ours_has_a_bit_of_its_own_by_which_clients_say_that_they_judge_it(self) -> None:
        own = [condition for condition in CONDITIONS.values() if condition.own]
        assert own == [condition for condition in CONDITIONS.values() if condition.feature]
        other = wire.RUNS_TO_NODES | wire.FULL_STATISTICS | wire.ANY_PREVIOUS | wire.RUNS_AHEAD
        assert all(condition.feature.bit_count() == 1 and not condition.feature & other for condition in own)
        assert wire.OWN_CONDITIONS.bit_count() == len(own)

    def test_only_hidden_parameters_are_required_and_all_have_defaults(self) -> None:
        for condition in CONDITIONS.values():
            for param in condition.params:
                assert param.required == (not param.visible) or param.name == IN_A_ROW
                assert param.name == IN_A_ROW or param.visible or param.default is not None
                assert param.label
                assert param.help.endswith(".")

    @pytest.mark.parametrize("text", ["TL", "tl", " tensor_too_large ", "Tensor_Too_Large"])
    def test_a_condition_is_found_by_abbreviation_or_id(self, text: str) -> None:
        assert by_abbr(text).id == "tensor_too_large"

    def test_operator_overflow_works_on_ascend_only(self) -> None:
        assert not by_abbr("OO").available("GPU")
        assert by_abbr("OO").available("Ascend")
        assert by_abbr("TO").available("CPU")


class TestValidation:
    def test_parameters_come_back_in_definition_order_as_floats(self) -> None:
        assert validate("TL", {"mean_gt": 2, "abs_mean_gt": 1}) == (("abs_mean_gt", 1.0), ("mean_gt", 2.0))

    @pytest.mark.parametrize(
        ("condition", "params", "part"),
        [
            ("nonsense", {}, "no condition"),
            ("TO", {"max_gt": 1.0}, "no parameter"),
            ("TL", {"max_lt": 1.0}, "no parameter"),
            ("TL", {}, "at least one value"),
            ("TZ", {"zero_percentage_ge": 100.5}, "0 to 100"),
            ("TZ", {"zero_percentage_ge": -1}, "0 to 100"),
            ("TZ", {"zero_percentage_ge": True}, "0 to 100"),
            ("TZ", {"zero_percentage_ge": "5"}, "0 to 100"),
            ("TL", {"max_gt": math.inf}, "finite"),
            ("TL", {"max_gt": math.nan}, "finite"),
            ("TL", {"abs_mean_gt": -0.1}, "0 or more"),
            ("TR", {"max_min_lt": 0}, "above 0"),
            ("WNC", {"rtol": -1.0}, "0 or more"),
            ("WNC", {"equal_nan": 1}, "yes or no"),
            ("WNC", {"atol": math.inf}, "finite"),
            ("TR", {"range_percentage_lt": 10.0}, "both ends"),
            ("TR", {"range_percentage_lt": 10.0, "range_start_inclusive": 0.0}, "both ends"),
            ("TR", {"max_min_gt": 1.0, "range_start_inclusive": 0.0, "range_end_inclusive": 1.0}, "no effect"),
            ("TR", {"range_percentage_gt": 1, "range_start_inclusive": 2, "range_end_inclusive": 1}, "above its end"),
        ],
    )
    def test_broken_rules_are_refused(self, condition: str, params: dict[str, Any], part: str) -> None:
        with pytest.raises(BadWatchpointError, match=part):
            validate(condition, params)

    def test_ends_of_ranges_of_values_are_allowed(self) -> None:
        for value in (0, 100):
            assert validate("TZ", {"zero_percentage_ge": value})
        assert validate("TR", {"max_min_gt": 0})
        equal = {"range_percentage_gt": 0, "range_start_inclusive": 1, "range_end_inclusive": 1}
        assert len(validate("TR", equal)) == 3

    def test_several_deciding_parameters_are_allowed(self) -> None:
        assert len(validate("TL", {"max_gt": 1.0, "mean_gt": 1.0})) == 2

    def test_without_a_deciding_parameter_the_default_decides(self) -> None:
        assert validate("TZ", {}) == (("zero_percentage_ge", 100.0),)
        assert validate("WCL", {"epsilon": 5.0}) == (("abs_mean_update_ratio_gt", 0.1), ("epsilon", 5.0))
        assert validate("WNC", {}) == (("rtol", 1e-5),)

    def test_text_of_a_form_is_read_by_the_parameter(self) -> None:
        assert by_abbr("TZ").param("zero_percentage_ge").parse(" 5e1 ") == 50.0
        assert by_abbr("WNC").param("equal_nan").parse("Yes") is True
        for word in ("", "x", "nan", "101"):
            with pytest.raises(BadWatchpointError):
                by_abbr("TZ").param("zero_percentage_ge").parse(word)

    def test_needs_say_what_a_record_must_hold(self) -> None:
        assert needs(watch("TO")) == RequiredStats()
        assert needs(watch(WCL)) == RequiredStats(change=True)
        assert needs(watch(WNC)) == RequiredStats(closeness=frozenset({(1e-5, 1e-8, False)}))
        bounds = {"range_percentage_lt": 1, "range_start_inclusive": -1, "range_end_inclusive": 2}
        assert needs(watch("TR", bounds)) == RequiredStats(ranges=frozenset({(-1.0, 2.0)}))
        assert needs(watch("TR", {"max_min_gt": 1})) == RequiredStats()


def outcome(result: WatchResult | None) -> str:
    """A result the way the oracle table writes it: ``err N``, ``hit`` or ``-``."""
    if result is None:
        return "-"
    return f"err {int(result.error)}" if result.error else "hit"


NAN, INF = math.nan, math.inf
CHANGES = [  # previous, current, not changed, change > 0.1, change < 1e-4
    (f32(INF, 1), f32(INF, 1), "err 2", "err 2", "err 2"),
    (f32(NAN, 1), f32(NAN, 1), "err 1", "err 1", "err 1"),
    (f32(0, 0), f32(0, 0), "hit", "-", "hit"),
    (f32(1, 2), f32(1, 2), "hit", "-", "hit"),
    (f32(1e-10, 0), f32(2e-10, 0), "hit", "-", "-"),
    (f32(-3, -4, 0, 5), f32(1, 1, 1, 1), "-", "hit", "-"),
    (f32(), f32(), "-", "-", "-"),
    (None, f32(1, 2), "err 4", "err 4", "err 4"),
    (f32(1, 2, 4), f32(1, 2, 3), "-", "hit", "-"),
    (None, f32(INF, 1), "err 6", "err 6", "err 6"),
    (None, f32(NAN, 1), "err 5", "err 5", "err 5"),
    (f32(NAN, 1), f32(1, 1), "-", "-", "-"),
]
PLAIN = [
    (np.ones(4, np.float32), "-", "-", {"abs_mean": 1, "max": 1, "min": 1, "mean": 1}),
    (np.array([65504, 1], np.float16), "-", "-", {"abs_mean": 32752.5, "max": 65504, "min": 1, "mean": 32752.5}),
    (np.array([INF], np.float16), "hit", "err 2", None),
    (
        np.array([2**62, -(2**62), 0]),
        "-",
        "hit",
        {"abs_mean": 3.074457345618259e18, "max": 2.0**62, "min": None, "mean": None},
    ),
    (np.array([True, False]), "-", "hit", {"abs_mean": None, "max": 1, "min": 0, "mean": 0.5}),
    (f32(0.1, -0.0, 0, NAN, INF, -INF), "hit", "err 3", None),
]


class TestOracle:
    @pytest.mark.parametrize(("previous", "current", "unchanged", "large", "small"), CHANGES)
    def test_change_conditions(
        self, previous: Array | None, current: Array, unchanged: str, large: str, small: str
    ) -> None:
        assert outcome(judge(WNC, {}, current, previous)) == unchanged
        assert outcome(judge(WCL, {"abs_mean_update_ratio_gt": 0.1}, current, previous)) == large
        assert outcome(judge(WCS, {"abs_mean_update_ratio_lt": 1e-4}, current, previous)) == small

    @pytest.mark.parametrize(
        ("previous", "current", "actual"),
        [
            (f32(-3, -4, 0, 5), f32(1, 1, 1, 1), 1.1666666662777778),
            (f32(1, 2, 4), f32(1, 2, 3), 0.14285714279591835),
            (  # published with MindSpore's own tests: fc2.bias from step 2 to 3
                f32(-5.016735e-06, 1.2509107e-05, -4.3148934e-06, 8.1415592e-06, 2.1177532e-07, 2.9952851e-06),
                f32(2.9060817e-07, -5.1009415e-06, -2.8662325e-06, 2.6036503e-06, -5.1546101e-07, 6.0798648e-06),
                1.0156775705209766,
            ),
        ],
    )
    def test_update_ratio(self, previous: Array, current: Array, actual: float) -> None:
        result = judge(WCL, {"abs_mean_update_ratio_gt": 0.0}, current, previous)
        assert result is not None
        assert result.params[0].actual == pytest.approx(actual, rel=1e-9)

    def test_not_changed_hits_with_a_larger_tolerance(self) -> None:
        for params in ({"rtol": 0.5}, {"atol": 1.0}):
            assert outcome(judge(WNC, params, f32(1, 2, 3), f32(1, 2, 4))) == "hit"

    @pytest.mark.parametrize(("current", "overflow", "zeros", "large"), PLAIN)
    def test_plain_conditions(
        self, current: Array, overflow: str, zeros: str, large: dict[str, float | None] | None
    ) -> None:
        assert outcome(judge("TO", {}, current)) == overflow
        assert outcome(judge("TZ", {"zero_percentage_ge": 25}, current)) == zeros
        params = {"abs_mean_gt": 0.5, "max_gt": 0, "min_gt": -10, "mean_gt": 0}
        result = judge("TL", params, current)
        assert result is not None
        if large is None:
            assert outcome(result) == zeros
            return
        hits = {p.name.removesuffix("_gt"): p.actual for p in result.params if p.hit}
        assert hits == {name: pytest.approx(value) for name, value in large.items() if value is not None}

    @pytest.mark.parametrize(
        ("current", "hits"),
        [
            (np.ones(4, np.float32), {"range_percentage_lt": 0, "max_min_lt": 0}),
            (np.array([65504, 1], np.float16), {"range_percentage_lt": 0, "max_min_gt": 65503}),
            (
                np.array([2**62, -(2**62), 0]),
                {"range_percentage_lt": 100 / 3, "range_percentage_gt": 100 / 3, "max_min_gt": 9.223372036854776e18},
            ),
            (np.array([True, False]), {"range_percentage_gt": 50, "range_percentage_lt": 50, "max_min_lt": 1}),
        ],
    )
    def test_range(self, current: Array, hits: dict[str, float]) -> None:
        params = {"range_start_inclusive": -3, "range_end_inclusive": 0, "range_percentage_gt": 10}
        params |= {"range_percentage_lt": 60, "max_min_lt": 100, "max_min_gt": 1}
        result = judge("TR", params, current)
        assert result is not None
        assert {p.name: p.actual for p in result.params if p.hit} == {k: pytest.approx(v) for k, v in hits.items()}

    def test_range_includes_both_ends(self) -> None:
        params = {"range_start_inclusive": 1, "range_end_inclusive": 2, "range_percentage_gt": 50}
        result = judge("TR", params, f32(1, 2, 3))
        assert result is not None
        assert [p.actual for p in result.params] == [None, None, pytest.approx(66.66666666666667)]

    def test_a_percentage_of_a_range_without_bounds_never_hits(self) -> None:
        unchecked = watch("TR", {"max_min_gt": 1}).__class__(1, "tensor_range", (("range_percentage_gt", 0.0),))
        assert evaluate(unchecked, look_at(f32(1, 2)), first_step=False) is None

    def test_comparisons_are_strict_except_for_the_zero_percentage(self) -> None:
        assert judge("TL", {"max_gt": 1}, f32(1)) is None
        assert judge("TS", {"min_lt": 1}, f32(1)) is None
        assert judge("TZ", {"zero_percentage_ge": 50}, f32(0, 1)) is not None


class TestErrorsInsteadOfValues:
    def test_no_previous_step_is_not_comparable_at_the_first_dumped_step(self) -> None:
        result = judge(WNC, {}, f32(1), first_step=True)
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.NOT_COMPARABLE, ErrorBits.NO_PREVIOUS)

    def test_no_previous_step_later_cannot_be_judged(self) -> None:
        result = judge(WCL, {}, f32(1), first_step=False)
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.NO_PREVIOUS)

    @pytest.mark.parametrize("first", [True, False])
    def test_nan_outranks_a_missing_previous_step(self, *, first: bool) -> None:
        result = judge(WCL, {}, f32(NAN), first_step=first)
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.BLOCKED, ErrorBits.NAN | ErrorBits.NO_PREVIOUS)
        assert reasons(result.error) == ("contains NaN", "no previous step")

    @pytest.mark.parametrize(("value", "error"), [(NAN, ErrorBits.NAN), (-INF, ErrorBits.INF)])
    def test_what_nan_or_inf_blocks_is_no_hit(self, value: float, error: ErrorBits) -> None:
        for condition, params in ((WCL, {}), (WNC, {}), ("TL", {"max_gt": 0}), ("TZ", {}), ("GV", {"max_lt": 9})):
            result = judge(condition, params, f32(1, value), f32(1, value))
            assert result is not None
            assert (result.verdict, result.error) == (Verdict.BLOCKED, error)

    def test_a_changed_shape_is_a_finding_beside_nan(self) -> None:
        result = judge(WNC, {}, f32(1, NAN), f32(1))
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.FINDING, ErrorBits.NAN | ErrorBits.SHAPE_CHANGED)

    def test_nothing_is_compared_beside_an_error(self) -> None:
        result = judge("TL", {"max_gt": 0}, f32(5, INF))
        assert result is not None
        assert [(p.hit, p.actual) for p in result.params] == [(False, None)]

    def test_an_unreadable_tensor_cannot_be_judged(self) -> None:
        record = look(ReadSpec("/nonexistent/x.npy"))
        for condition in ("TO", "TZ", WNC):
            result = evaluate(watch(condition), record, first_step=False)
            assert result is not None
            assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.UNREADABLE)

    def test_what_a_statistics_file_does_not_hold_cannot_be_judged(self) -> None:
        recorded = dataclasses.replace(measure_stats(np.array([1.0, 2.0]))[0], abs_mean=None, variance=None)
        record = Record(None, recorded, need=needs(watch("TL", {"abs_mean_gt": 1.55, "max_gt": 5})))
        missing = evaluate(watch("TL", {"abs_mean_gt": 1.55, "max_gt": 5}), record, first_step=False)
        assert missing is not None
        assert (missing.verdict, missing.error) == (Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE)
        beyond_the_maximum = evaluate(watch("TL", {"abs_mean_gt": 5, "max_gt": 5}), record, first_step=False)
        assert beyond_the_maximum is None
        known = evaluate(watch("TL", {"abs_mean_gt": 1.55, "max_gt": 1}), record, first_step=False)
        assert known is not None
        assert known.verdict is Verdict.FINDING
        assert evaluate(watch("TL", {"max_gt": 5}), record, first_step=False) is None
        bounds = {"range_start_inclusive": 0, "range_end_inclusive": 1, "range_percentage_lt": 1}
        counted = evaluate(watch("TR", bounds), record, first_step=False)
        assert counted is not None
        assert counted.error is ErrorBits.NO_VALUE

    @pytest.mark.parametrize(
        ("expression", "needed"),
        [
            ("max > 1", ("needs tensor values",)),
            ("zero > 1", ("needs counts",)),
            ("size > 100", ("needs the shape",)),
            ("dtype == 'float16' and ndim > 1", ("needs the element type", "needs the shape")),
            ("zero > size / 2", ("needs counts", "needs the shape")),
            ("max > 1 and dtype == 'float16'", ("needs tensor values", "needs the element type")),
            ("max > 1 and step > 3", ("needs tensor values",)),
        ],
    )
    def test_what_a_log_of_statistics_lacks_is_named(self, expression: str, needed: tuple[str, ...]) -> None:
        assert reasons(ErrorBits.NO_VALUE, "expression", [("expression", expression)]) == needed

    def test_an_unreadable_previous_tensor_cannot_be_judged(self) -> None:
        stats = look_at(f32(1)).stats
        record = Record(None, stats, previous="unreadable", need=RequiredStats(change=True))
        result = evaluate(watch(WCL), record, first_step=False)
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.UNREADABLE)
        assert evaluate(watch("TO"), record, first_step=False) is None

    def test_an_empty_tensor_is_never_reported(self) -> None:
        for condition in CONDITIONS.values():
            params: dict[str, Value] = {p.name: 1.0 for p in condition.params if p.check and p.visible and not p.needs}
            if condition.id == "expression":
                params = {"expression": "max > 1 or zero_pct >= 0"}
            assert judge(condition.id, params, f32()) is None
            assert judge(condition.id, params, f32(), f32(1)) is None

    def test_elements_without_numbers_are_never_reported(self) -> None:
        text = np.array(["a", "b"])
        assert judge("TO", {}, text) is None
        assert judge("TZ", {}, text) is None
        assert judge(WNC, {}, text, text) is None

    def test_counts_without_extremes_decide_nothing_but_overflow_and_zeros(self) -> None:
        recorded = TensorStats(4, 0, 0, 0, 0, 0, 4, None, None, None, None, None, 0.0)
        assert evaluate(watch("TZ", {"zero_percentage_ge": 1}), Record(None, recorded), first_step=False) is None
        for text, params in (("TL", {"max_gt": 0}), ("TR", {"max_min_gt": 1})):
            result = evaluate(watch(text, params), Record(None, recorded), first_step=False)
            assert result is not None
            assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE)
        assert evaluate(watch("TO"), Record(None, recorded), first_step=False) is None


class TestSpecialConditions:
    def test_weight_initialization_is_judged_on_initial_values_only(self) -> None:
        zeros = f32(0, 0)
        assert judge("WI", {}, zeros) is None
        assert judge("WI", {}, zeros, first_step=True) is None
        assert outcome(judge("WI", {}, zeros, initial=True)) == "hit"

    def test_nothing_else_is_judged_on_initial_values(self) -> None:
        assert judge("TZ", {}, f32(0, 0), initial=True) is None

    def test_operator_overflow_is_not_decided_by_values(self) -> None:
        assert judge("OO", {}, f32(NAN)) is None

    def test_overflow_reports_neither_parameters_nor_error_bits(self) -> None:
        result = judge("GE", {}, f32(NAN, INF))
        assert result == WatchResult(1, "gradient_exploding", Verdict.FINDING)


class TestDeliberateDifferences:
    """Where MindInsight answers otherwise, and why ours is right."""

    def test_inf_that_became_finite_is_not_unchanged(self) -> None:
        """The old tool hits: |5 − Inf| ≤ rtol·Inf holds as Inf ≤ Inf."""
        assert judge(WNC, {}, f32(5, 1), f32(INF, 1)) is None
        assert judge(WNC, {"rtol": 1.0, "atol": 1.0}, f32(5, 1), f32(-INF, 1)) is None

    def test_inf_that_became_finite_has_no_update_ratio(self) -> None:
        assert judge(WCL, {}, f32(5, 1), f32(INF, 1)) is None
        assert judge(WCS, {}, f32(5, 1), f32(INF, 1)) is None

    def test_epsilon_is_used(self) -> None:
        """The old tool always adds 1e-9 and ignores the parameter."""
        plain = judge(WCL, {"abs_mean_update_ratio_gt": 0.5}, f32(2), f32(1))
        assert plain is not None
        assert plain.params[0].actual == 1 / (1 + 1e-9)
        assert judge(WCL, {"abs_mean_update_ratio_gt": 0.5, "epsilon": 1.0}, f32(2), f32(1)) is None

    def test_equal_nan_is_used(self) -> None:
        """The old tool never reads it, and reports the NaN instead of comparing."""
        same = f32(NAN, 1)
        assert outcome(judge(WNC, {"equal_nan": False}, same, same)) == "err 1"
        assert outcome(judge(WNC, {"equal_nan": True}, same, same)) == "hit"
        assert judge(WNC, {"equal_nan": True}, same, f32(1, NAN)) is None

    def test_a_changed_shape_is_reported(self) -> None:
        """The old tool is silent: it takes the previous tensor for NaN."""
        for condition in (WNC, WCL, WCS):
            result = judge(condition, {}, f32(1, 2), f32(1, 2, 3))
            assert result is not None
            assert (result.verdict, result.error) == (Verdict.FINDING, ErrorBits.SHAPE_CHANGED)
        assert reasons(ErrorBits.SHAPE_CHANGED) == ("shape changed",)

    def test_complex_tensors_are_judged_by_magnitude(self) -> None:
        """The old tool stops with an exception."""
        result = judge("TL", {"max_gt": 4}, np.array([3 + 4j, 1], np.complex64))
        assert result is not None
        assert result.params[0].actual == 5.0

    def test_bfloat16_in_its_own_type_is_judged(self) -> None:
        import ml_dtypes

        record = look_at(np.array([0, 0], np.uint16).view(ml_dtypes.bfloat16).astype(np.float32))
        assert evaluate(watch("TZ"), record, first_step=False) is not None


def test_the_ratio_of_a_change_uses_the_given_epsilon() -> None:
    assert StepChange(1.0, 3.0).ratio(1.0) == 0.25
