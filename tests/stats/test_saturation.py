"""Shares at the ends of activations and units that never answer, against plain numpy."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.blocks import NEAR, saturation, silent_units, unit_axis

pytestmark = pytest.mark.usefixtures("measured_by")

VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.9995, -0.9995, 0.998, np.nan, np.inf]), st.floats(-2, 2, width=16)
)
ARRAYS = hnp.arrays(np.float16, hnp.array_shapes(max_dims=4, max_side=5), elements=VALUES)


@given(ARRAYS)
def test_elements_at_the_ends_are_counted(array: npt.NDArray[Any]) -> None:
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        near = [int((np.abs(wide - end) <= NEAR).sum()) for end in (-1.0, 0.0, 1.0)]
        assert saturation(array, "tanh").at == (near[0], near[2])
        assert saturation(array, "sigmoid").at == (near[1], near[2])
        assert saturation(array, "relu").at == (int((wide <= 0).sum()),)
    assert saturation(array, "tanh").count == array.size


@given(ARRAYS)
def test_a_unit_is_silent_when_no_sample_is_above_0(array: npt.NDArray[Any]) -> None:
    axis = unit_axis(array.shape)
    found = silent_units(array)
    if axis is None:
        assert found is None
        return
    wide = np.moveaxis(array.astype(np.float64), axis, 0).reshape(array.shape[axis], -1)
    silent = sum(bool(((unit <= 0) & ~np.isnan(unit)).all()) for unit in wide)
    assert found == (silent, array.shape[axis])


def test_units_of_more_samples_than_a_block_holds() -> None:
    array = np.zeros((300, 1000), np.float32)
    array[299, 7] = 1
    assert silent_units(array) == (999, 1000)


@pytest.mark.parametrize(("shape", "axis"), [((5,), None), ((5, 3), 1), ((2, 5, 3), 2), ((2, 8, 5, 3), 1), ((), None)])
def test_channels_of_images_are_units_and_else_the_last_axis(shape: tuple[int, ...], axis: int | None) -> None:
    assert unit_axis(shape) == axis
