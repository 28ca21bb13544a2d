"""Why an operator makes NaN or Inf: what the rules say agrees with what numpy computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.thorough import examples
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.guidance import Cause, Standing
from tui_debugger.diagnose.explain.operators import BadOperator, no_rule_says
from tui_debugger.diagnose.explain.rules import likely_operator_causes as likely
from tui_debugger.diagnose.explain.rules import operator_causes as causes
from tui_debugger.model import Side, TensorKey, TensorMeta
from tui_debugger.stats.blocks import measure_stats

Array = npt.NDArray[Any]
LIKELY, RULED_OUT = Standing.LIKELY, Standing.RULED_OUT


def operand(slot: int, array: Array | None) -> TensorRow:
    row = TensorRow(TensorKey(0, "g", "n", Side.INPUT, slot, 0), "in", slot, 0, has_value=True, has_previous=False)
    if array is None:
        return row
    meta = TensorMeta(array.dtype.name, array.shape, array.nbytes)
    return dataclasses.replace(row, meta=meta, stats=measure_stats(array)[0])


def case(op_type: str, out: Array, *inputs: Array | None) -> BadOperator:
    meta = TensorMeta(out.dtype.name, out.shape, out.nbytes)
    return BadOperator(
        op_type, [operand(slot, array) for slot, array in enumerate(inputs)], meta, measure_stats(out)[0]
    )


def standings(found: tuple[Cause, ...]) -> dict[str, Standing]:
    return {cause.title: cause.standing for cause in found}


UNARY: dict[str, Callable[[Array], Array]] = {
    "Log": np.log,
    "Log2": np.log2,
    "Log1p": np.log1p,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "Reciprocal": lambda x: (1 / x).astype(x.dtype),
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Exp2": np.exp2,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Acos": np.arccos,
    "Asin": np.arcsin,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Square": np.square,
}
VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, -0.5, 11.0, 12.5, -12.5, 15.5, 16.5, 200.0, -200.0, 255.0, 300.0]),
    st.floats(-1024, 1024, width=16),
)
ARRAYS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=5), elements=VALUES)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("op_type", sorted(UNARY))
@examples(40)
@given(array=ARRAYS)
def test_what_numpy_makes_nan_or_inf_of_has_a_likely_cause_and_nothing_else_has(
    op_type: str, dtype: type[np.floating[Any]], array: Array
) -> None:
    array = array.astype(dtype)
    with np.errstate(all="ignore"):
        out = UNARY[op_type](array)
    if op_type == "Reciprocal":  # how close to 0 values of both signs come, no statistics tell
        assume(not ((array > 0).any() and (array < 0).any()))
    found = causes(case(op_type, out, array))
    assert bool(np.isfinite(out).all()) == all(cause.standing is not LIKELY for cause in found), found


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Div": np.divide,
    "RealDiv": np.divide,
    "aten::div": np.divide,
    "FloorMod": np.mod,
}
NUMBERS = hnp.arrays(np.float32, 4, elements=st.sampled_from([-1e20, -200.0, -0.5, 0.0, 0.5, 1.0, 89.0, 700.0]))


@pytest.mark.parametrize("op_type", sorted(BINARY))
@given(above=NUMBERS, below=NUMBERS)
def test_a_division_has_a_likely_cause_exactly_when_it_fails(op_type: str, above: Array, below: Array) -> None:
    with np.errstate(all="ignore"):
        out = BINARY[op_type](above, below)
    assert bool(likely(case(op_type, out, above, below))) == (not np.isfinite(out).all())


@given(
    above=hnp.arrays(np.float32, (3, 4), elements=st.sampled_from([0.0, 1.0, -2.5])),
    below=hnp.arrays(np.float32, (3, 1), elements=st.sampled_from([0.0, 2.0, -4.0])),
)
def test_a_division_by_0_is_likely_exactly_when_the_denominator_has_one(above: Array, below: Array) -> None:
    with np.errstate(all="ignore"):
        out = above / below
    found = causes(case("Div", out, above, below))
    (cause,) = [cause for cause in found if cause.title == "division by 0"]
    zeros = int((below == 0).sum())
    assert cause.standing is (LIKELY if zeros else RULED_OUT)
    if zeros:
        assert f"{zeros} of 3 elements" in cause.evidence or "all 3 elements" in cause.evidence
        whole = f"{4 * zeros} elements are divided by 0 (each divides several elements): that is every bad one"
        assert whole in cause.evidence


def test_a_denominator_of_both_signs_may_come_close_to_0() -> None:
    below = np.array([1e-5, -2.0], np.float16)
    with np.errstate(all="ignore"):
        found = causes(case("Div", np.ones(2, np.float16) / below, np.ones(2, np.float16), below))
    assert standings(found) == {"division by 0": RULED_OUT, "a denominator close to 0": Standing.POSSIBLE}


def test_a_count_that_explains_every_bad_value_is_said_to() -> None:
    array = np.array([0, 1, -1, -2], np.float32)
    with np.errstate(all="ignore"):
        found = causes(case("Log", np.log(array), array))
    assert [cause.title for cause in found] == ["the logarithm of 0", "the logarithm of a negative number"]
    assert "1 of 4 elements of in:0 is 0" in found[0].evidence
    assert "that is every Inf of the output" in found[0].evidence
    assert "2 of 4 elements of in:0 are negative (down to -2)" in found[1].evidence
    assert "that is every NaN of the output" in found[1].evidence


@pytest.mark.parametrize(
    ("op_type", "inputs", "title"),
    [
        ("Pow", ([-1.0, 2.0], [0.5, 0.5]), "a negative base with a fractional exponent"),
        ("Pow", ([0.0, 2.0], [-1.0, -1.0]), "0 to a negative power"),
        ("Pow", ([300.0], [2.0]), "a power beyond the range of float16"),
        ("Mul", ([300.0], [300.0]), "a product beyond the range of float16"),
        ("Add", ([60000.0], [60000.0]), "a sum beyond the range of float16"),
        ("Softmax", ([-np.inf, -np.inf],), "a row that is masked as a whole"),
        ("LayerNorm", ([2.0, 2.0],), "a variance of 0"),
        ("BinaryCrossEntropy", ([0.0, 0.5], [1.0, 1.0]), "a probability of exactly 0 or 1"),
        ("BinaryCrossEntropy", ([1.5, 0.5], [1.0, 1.0]), "predictions that are no probabilities"),
        ("SparseSoftmaxCrossEntropyWithLogits", ([0.1, 0.2], [2.0]), "a label that is no class"),
        ("Gather", ([0.1, 0.2], [2.0]), "an index outside the table"),
        ("ReduceSum", ([60000.0, 60000.0],), "a sum beyond the range of float16"),
    ],
)
def test_reasons_of_operators_with_several_inputs(op_type: str, inputs: tuple[list[float], ...], title: str) -> None:
    arrays = [np.array(values, np.float16) for values in inputs]
    found = standings(causes(case(op_type, np.array([np.nan], np.float16), *arrays)))
    assert found[title] is LIKELY


def test_a_matrix_product_in_half_precision_is_judged_by_its_worst_sum() -> None:
    small, large = np.full((8, 64), 1.0, np.float16), np.full((64, 8), 1.0, np.float16)
    out = np.full((8, 8), np.inf, np.float16)
    assert set(standings(causes(case("MatMul", out, small, large))).values()) == {RULED_OUT}
    assert set(standings(causes(case("MatMul", out, small * 100, large * 100))).values()) == {Standing.POSSIBLE}
    assert set(standings(causes(case("MatMul", out, small * 1000, large * 1000))).values()) == {LIKELY}


def test_a_product_has_two_factors_whatever_is_fused_with_it() -> None:
    large, small = np.full((8, 8), 1000.0, np.float16), np.full((8, 8), 1e-3, np.float16)
    out = np.full((8, 8), np.inf, np.float16)
    for op_type in ("MatMul", "MatMulV2", "MatMulBiasAddFusion", "MatMulSomethingNew"):
        assert likely(case(op_type, out, large, large)), op_type
        assert not likely(case(op_type, out, large, small, large)), f"{op_type}: a bias is no factor"
        assert not likely(case(op_type, out, large, None)), f"{op_type}: the other factor is not known"


def test_a_convolution_adds_as_many_products_as_a_filter_has_elements() -> None:
    data, filters = np.full((1, 512, 4, 4), 5.0, np.float16), np.full((8, 512, 3, 3), 5.0, np.float16)
    (cause,) = causes(case("Conv2D", np.full((1, 8, 2, 2), np.inf, np.float16), data, filters))
    assert cause.standing is Standing.POSSIBLE, "4608 x 25 is more than 65504"
    assert "4,608 products" in cause.evidence


def test_a_running_sum_adds_up_a_whole_dimension() -> None:
    ones = np.full((2, 1000), 100.0, np.float16)
    with np.errstate(all="ignore"):
        (cause,) = causes(case("CumSum", np.cumsum(ones, axis=1, dtype=np.float16), ones))
    assert cause.standing is LIKELY
    assert "1,000 elements are added" in cause.evidence


def test_the_remainder_of_a_division_by_0_is_nan_whatever_is_divided() -> None:
    above, below = np.array([1.0, 2.0], np.float32), np.array([0.0, 2.0], np.float32)
    with np.errstate(all="ignore"):
        (cause,) = causes(case("FloorMod", np.mod(above, below), above, below))
    assert cause.standing is LIKELY
    assert "the remainder is NaN there" in cause.evidence
    assert "0 is divided by 0" not in cause.evidence


def test_the_ends_of_a_domain_and_what_lies_beyond_are_told_apart() -> None:
    for value, gives in ((-1.0, "an infinity at -1"), (-2.0, "NaN beyond -1")):
        array = np.array([value, 1.0], np.float32)
        with np.errstate(all="ignore"):
            (cause,) = causes(case("Log1p", np.log1p(array), array))
        assert gives in cause.evidence


def test_a_cast_to_a_narrower_type_overflows() -> None:
    wide = np.array([1e5, 1.0], np.float32)
    with np.errstate(all="ignore"):
        found = causes(case("Cast", wide.astype(np.float16), wide))
    assert standings(found) == {"a value beyond the range of float16": LIKELY}
    assert "1e5 of float32" in found[0].evidence or "100000 of float32" in found[0].evidence
    assert "65504" in found[0].evidence


@pytest.mark.parametrize("op_type", ["Log", "aclnnLog", "LogExt", "LogV2", "aten.log.default", "torch::log", "log_"])
def test_a_type_is_known_however_a_framework_spells_it(op_type: str) -> None:
    array = np.array([0.0], np.float32)
    assert causes(case(op_type, np.array([-np.inf], np.float32), array))[0].standing is LIKELY


def test_an_input_that_was_not_dumped_leaves_the_reason_open() -> None:
    found = causes(case("Log", np.array([-np.inf], np.float32), None))
    assert [cause.standing for cause in found] == [Standing.UNKNOWN]


def test_a_type_without_a_rule_says_so_with_what_is_known() -> None:
    strange = case("MyKernel", np.array([np.nan], np.float32), np.array([1.0, 2.0], np.float32))
    assert causes(strange) == ()
    assert "its inputs are finite (in:0 from 1 to 2), yet it made 1 NaN" in no_rule_says(strange).evidence
    assert "MyKernel" in no_rule_says(strange).evidence


def test_the_likely_causes_stand_for_themselves_in_a_sentence_each() -> None:
    array = np.array([0, 1, -1], np.float32)
    with np.errstate(all="ignore"):
        found = likely(case("Log", np.log(array), array))
    zero, negative = found
    assert zero.startswith("the logarithm of 0: 1 of 3 elements of in:0 is 0, where the logarithm gives -Inf: ")
    assert zero.endswith("that is every Inf of the output")
    assert negative.startswith("the logarithm of a negative number: 1 of 3 elements of in:0 is negative (down to -1)")


@pytest.mark.parametrize(
    "op_type",
    ["Log", "Div", "Mod", "Sqrt", "Exp", "Cosh", "Pow", "Cast", "MatMul", "Square", "Add", "Gather", "Nosuch"],
)
def test_nothing_is_likely_where_nothing_is_known(op_type: str) -> None:
    out, empty = np.array([np.nan], np.float32), np.zeros(0, np.float32)
    for inputs in ((), (None, None), (empty, empty)):
        assert likely(case(op_type, out, *inputs)) == []
