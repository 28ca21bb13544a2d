"""What inputs have to do with NaN and Inf: whenever numpy makes them from clean inputs, the sentence says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.analysis.collectives import is_collective, is_receiving, is_sending
from tui_debugger.analysis.hazards import Fact, hazard
from tui_debugger.analysis.stats import measure_stats

Array = npt.NDArray[Any]
UNARY: dict[str, Callable[[Array], Array]] = {
    "Log": np.log,
    "aten.log.default": np.log,
    "Log1p": np.log1p,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Reciprocal": lambda x: 1 / x,
    "Exp": np.exp,
    "Exp2": np.exp2,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Square": np.square,
    "Asin": np.arcsin,
    "ACos": np.arccos,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Div": np.divide,
    "RealDiv": np.divide,
    "aten::div": np.divide,
    "FloorMod": np.mod,
}
numbers = st.lists(
    st.sampled_from([-1e20, -200.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 88.0, 89.0, 89.3, 127.0, 129.0, 700.0]),
    min_size=1,
    max_size=5,
)


def fact(values: Array) -> Fact:
    return Fact(measure_stats(values)[0], values.dtype.name)


@given(op=st.sampled_from(sorted(UNARY)), values=numbers)
def test_a_unary_operator_is_explained_exactly_when_it_fails(op: str, values: list[float]) -> None:
    given_ = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        made = UNARY[op](given_).astype(np.float32)
    assert bool(hazard(op, [fact(given_)], "float32")) == (not np.isfinite(made).all())


@given(op=st.sampled_from(sorted(BINARY)), over=numbers, by=numbers)
def test_a_division_is_explained_exactly_when_it_fails(op: str, over: list[float], by: list[float]) -> None:
    size = min(len(over), len(by))
    above, below = np.array(over[:size], np.float32), np.array(by[:size], np.float32)
    with np.errstate(all="ignore"):
        made = BINARY[op](above, below)
    assert bool(hazard(op, [fact(above), fact(below)], "float32")) == (not np.isfinite(made).all())


def test_the_sentences() -> None:
    zeros = fact(np.array([0, 0, 3], np.float32))
    assert hazard("Log", [zeros]) == "in:0 min = 0: the logarithm of 0 is -Inf"
    assert hazard("Log", [fact(np.array([-2.5]))]) == "in:0 min = -2.5: the logarithm of a negative number is NaN"
    assert hazard("Div", [fact(np.ones(3)), zeros]) == "in:1 has 2 zeros to divide by: a division by 0 is Inf"
    assert "0 / 0 is NaN" in hazard("Div", [zeros, zeros])
    assert (
        hazard("Cast", [fact(np.array([7e4]))], "float16")
        == "in:0 reaches 7e+04: more than 6.55e+04, the greatest float16"
    )
    assert "passes 6.55e+04 (float16)" in hazard("MatMul", [fact(np.array([3e2])), fact(np.array([3e2]))], "float16")
    assert "remainder of a division by 0 is NaN" in hazard("Mod", [fact(np.ones(3)), zeros])
    assert "fractional power" in hazard("Pow", [fact(np.array([-1.0])), fact(np.array([0.5]))])
    assert "negative power" in hazard("Pow", [zeros, fact(np.array([-1.0]))])


def test_a_product_is_of_two_factors() -> None:
    large, small = fact(np.array([3e2], np.float16)), fact(np.array([2.0], np.float16))
    assert hazard("MatMul", [large, None], "float16") == "", "the other factor is not known"
    assert hazard("MatMulBiasAddFusion", [large, small, large], "float16") == "", "a bias is no factor"


@pytest.mark.parametrize(
    "op", ["Log", "Div", "Mod", "Sqrt", "Exp", "Cosh", "Pow", "Cast", "MatMul", "Square", "Nosuch"]
)
def test_nothing_is_said_of_what_is_not_known(op: str) -> None:
    assert hazard(op, []) == ""
    assert hazard(op, [None, None], "float32") == ""
    assert hazard(op, [fact(np.zeros(0, np.float32))] * 2, "float32") == ""


def test_operators_that_exchange_values_between_ranks() -> None:
    for name in (
        "AllReduce",
        "HcomAllReduce",
        "c10d::allreduce_",
        "_c10d_functional.all_reduce.default",
        "AlltoAll",
        "Broadcast",
    ):
        assert is_collective(name), name
    for name in ("BroadcastTo", "ReduceSum", "ReduceMean", "Gather", "ScatterNd", "Add", "Reducescatters"):
        assert not is_collective(name), name
    assert (is_sending("Send"), is_receiving("Receive"), is_receiving("c10d::recv_")) == (True, True, True)
    assert not is_sending("Receive")
