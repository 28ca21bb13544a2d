"""Products by random vectors are those that numpy makes; what makes no sense is refused."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.stats.kernel import address, available, described, function, probes
from tui_debugger.stats.kernel.probes import BEYOND, PROBES, RightFactor

pytestmark = pytest.mark.skipif(not available(), reason="the kernel is not built")

RANDOM = np.random.default_rng(6)


def signs_of(count: int) -> np.ndarray:
    return RANDOM.choice(np.array([-1, 1], np.float32), (count, PROBES))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "width", "group"), [(5, 300, 128), (300, 5, 128), (3, 2500, 512), (1, 1, 128)])
def test_sums_with_signs(dtype: type, rows: int, width: int, group: int) -> None:
    matrix = RANDOM.normal(size=(rows, width)).astype(dtype)
    wide, close = matrix.astype(np.float64), {"rtol": 1e-5, "atol": 1e-4}
    signs = signs_of(width)
    sums, squares = probes.signed_rows(matrix, group, signs)
    for number, at in enumerate(range(0, width, group)):
        part = slice(at, at + group)
        own = slice(number * PROBES, (number + 1) * PROBES)
        assert np.allclose(sums[:, own], wide[:, part] @ signs[part], **close)
        assert np.allclose(squares[:, number], np.square(wide[:, part]).sum(1), **close)
    signs = signs_of(rows)
    sums, squares = probes.signed_columns(matrix, group, signs)
    for number, at in enumerate(range(0, rows, group)):
        part = slice(at, at + group)
        assert np.allclose(sums[number * PROBES : (number + 1) * PROBES], signs[part].T @ wide[part], **close)
        assert np.allclose(squares[number], np.square(wide[part]).sum(0), **close)


def right_of(terms: int, groups: int) -> RightFactor:
    """Any numbers."""
    columns, squares = (
        RANDOM.normal(size=(terms, groups * PROBES)).astype(np.float32),
        RANDOM.random((terms, groups)).astype(np.float32),
    )
    return RightFactor(columns, squares, RANDOM.normal(size=groups * PROBES), RANDOM.random(groups), 0.7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int16])
@pytest.mark.parametrize(
    ("rows", "terms", "width", "group"),
    [
        (1, 1, 1, 128),
        (5, 64, 64, 128),
        (6, 65, 300, 128),
        (13, 200, 5, 2),
        (64, 3, 1300, 128),
        (3, 0, 4, 3),
        (0, 3, 4, 4),
    ],
)
def test_products(dtype: type, rows: int, terms: int, width: int, group: int) -> None:
    left = (4 * RANDOM.normal(size=(rows, terms))).astype(dtype)
    recorded = RANDOM.normal(size=(rows, width)).astype(np.float32)
    groups = -(-width // group)
    right, signs = right_of(terms, groups), signs_of(width)
    wide, sums = left.astype(np.float64), right.columns.astype(np.float64)
    seen = np.empty((rows, groups, PROBES))
    value = np.empty((rows, groups))
    for number in range(groups):
        part = slice(number * group, (number + 1) * group)
        seen[:, number] = recorded[:, part].astype(np.float64) @ signs[part]
        value[:, number] = np.square(recorded[:, part].astype(np.float64)).sum(1)
    made = (0.7 * (wide @ sums) + right.added).reshape(rows, groups, PROBES)
    size = 0.49 * (wide**2 @ right.squares) + right.added_squares
    found = probes.probed(left, right, recorded, group, signs)
    lost = 2.0**-20 * (np.abs(wide) @ np.abs(sums) + 1).reshape(rows, groups, PROBES).sum(-1)
    assert np.all(np.abs(np.sqrt(found.error) - np.sqrt(np.square(made - seen).mean(-1))) <= lost)
    assert np.allclose(found.size, size, rtol=1e-5)
    assert np.allclose(found.value, value, rtol=1e-12)
    plain = probes.probed(left, right._replace(squares=None), recorded, group, signs)
    assert np.array_equal(plain.error, found.error)
    assert np.array_equal(plain.size, np.broadcast_to(right.added_squares, plain.size.shape))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row_of_a_product(bad: float) -> None:
    left, right, recorded = np.ones((9, 70), np.float32), right_of(70, 2), np.ones((9, 9), np.float32)
    signs = signs_of(9)
    plain = probes.probed(left, right, recorded, 5, signs)
    left[2, 67] = bad
    found = probes.probed(left, right, recorded, 5, signs)
    assert not np.isfinite(found.error[2]).any()
    assert np.array_equal(np.delete(found.error, 2, axis=0), np.delete(plain.error, 2, axis=0))
    recorded[3, 8] = bad
    found = probes.probed(left, right, recorded, 5, signs)
    assert np.isfinite(found.error[3]).tolist() == [True, False]


def test_what_float32_does_not_hold_is_not_multiplied() -> None:
    one, signs = np.ones((2, 2)), signs_of(2)
    with pytest.raises(ValueError, match="no sense"):
        probes.probed(one, right_of(2, 1), one, 128, signs)
    with pytest.raises(ValueError, match="no sense"):
        probes.probed(one.astype(np.float32), right_of(3, 1), one, 128, signs)
    assert not probes.is_single(np.dtype(np.float32), np.dtype(np.int32))
    assert probes.is_single(np.dtype(">f2"), np.dtype(ml_dtypes.bfloat16), np.dtype(bool))


@pytest.mark.parametrize(("rows", "width"), [(-1, 4), (4, -1), (1 << 40, 1 << 40), (1 << 62, 3), ((1 << 63) - 1, 1)])
def test_lengths_that_make_no_sense_are_refused(rows: int, width: int) -> None:
    """Nothing is read: products of lengths would be larger than any address."""
    x, to = np.zeros(16, np.float32), np.zeros(16)
    what, where = described(x), address(to)
    assert function("signed_rows", "pqqqppp")(what, rows, width, 4, where, where, where) == -1
    assert function("signed_columns", "pqqqppp")(what, rows, width, 4, where, where, where) == -1
    for sizes in ((rows, width, 1), (rows, 1, width), (1, rows, width)):
        call = struct.pack("=qqqq", *sizes, 4) + what + what + struct.pack("=d9q", 1.0, *[where] * 9)
        assert function("probed", "p")(call) == -1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_elements_in_float32(dtype: type) -> None:
    values = RANDOM.normal(size=(7, 30)).astype(dtype)
    assert np.array_equal(probes.singles(values), values.astype(np.float32))


@pytest.mark.parametrize(
    ("terms", "places", "groups"), [(1, 1, 1), (64, 32, 1), (65, 300, 2), (200, 1000, 3), (0, 5, 1)]
)
def test_convolutions(terms: int, places: int, groups: int) -> None:
    planes = np.zeros(3 * places + BEYOND, np.float32)
    planes[: 3 * places] = RANDOM.normal(size=3 * places)
    offsets = RANDOM.integers(0, 2 * places + 1, terms)
    filters = RANDOM.normal(size=(groups, terms, PROBES)).astype(np.float32)
    squares = RANDOM.random((groups, terms)).astype(np.float32)
    seen = np.array([planes[at : at + places] for at in offsets], np.float64).reshape(terms, places)
    made, sizes = probes.convolved(planes, offsets, filters, squares, places)
    lost = 2.0**-20 * np.einsum("gtp,tx->gpx", np.abs(filters, dtype=np.float64), np.abs(seen))
    assert np.all(np.abs(made - np.einsum("gtp,tx->gpx", filters.astype(np.float64), seen)) <= lost)
    assert np.allclose(sizes, squares @ np.square(seen), rtol=1e-5)
    plain, nothing = probes.convolved(planes, offsets, filters, None, places)
    assert np.array_equal(plain, made)
    assert not nothing.any()


def test_a_term_that_looks_beyond_the_planes_is_refused() -> None:
    planes, filters, squares = np.zeros(10 + BEYOND, np.float32), np.zeros((1, 1, PROBES), np.float32), np.zeros((1, 1))
    for wrong, places in ((-1, 4), (7, 4), (1 << 62, 4), (0, 11)):
        with pytest.raises(ValueError, match="no sense"):
            probes.convolved(planes, np.array([wrong]), filters, squares.astype(np.float32), places)
