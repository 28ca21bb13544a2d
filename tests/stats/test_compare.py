"""How two tensors differ: against plain numpy on whole arrays in float64."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.stats.plain import stats_of
from tests.thorough import examples
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress
from tui_debugger.stats.compare import Differences, OddCounts, compare
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Pairs, count_outside, outside_mask
from tui_debugger.stats.compare_pairs import PIECE as BLOCK

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
NAN, INF = math.nan, math.inf
KINDS = ("f2", "f4", "f8", ">f4", "i4", "u1", "?", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 3.5, 1e-3, -7.0, 100.0, NAN, INF, -INF])
TOLERANCES = (EXACT, Boundary(rtol=0.1), Boundary(atol=0.5), Boundary(0.01, 0.01), Boundary(percent=30))


def arrays() -> st.SearchStrategy[tuple[Array, Array]]:
    """Two arrays of any types and one shape, with everything that is odd."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)

    def both(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Array, Array]]:
        values = hnp.arrays(np.float64, shape, elements=SPECIAL)
        return st.tuples(values, values, st.sampled_from(KINDS), st.sampled_from(KINDS)).map(
            lambda drawn: (_cast(drawn[0], drawn[2]), _cast(drawn[1], drawn[3]))
        )

    return shapes.flatmap(both)


def _cast(values: Array, kind: Any) -> Array:
    dtype = np.dtype(kind)
    with np.errstate(all="ignore"):
        if dtype.kind in "iu?b":
            return np.where(np.isfinite(values), np.abs(values), 3).astype(dtype)
        return values.astype(dtype)


def near(found: float | None, wanted: float) -> bool:
    """Equal but for the order of additions."""
    return found is not None and (found == wanted or math.isclose(found, wanted, rel_tol=1e-12))


def check(found: Differences, here: Array, there: Array) -> None:
    """Every number against numpy's."""
    with np.errstate(all="ignore"):
        a, b = here.astype(np.float64).ravel(), there.astype(np.float64).ravel()
        ok = np.isfinite(a) & np.isfinite(b)
        d = np.where(a == b, 0.0, a - b)
        x, y, e = a[ok], b[ok], np.abs(d[ok])
        same_inf = np.isinf(a) & (a == b)
        assert found.odd == OddCounts(
            both_nan=int((np.isnan(a) & np.isnan(b)).sum()),
            nan_here=int((np.isnan(a) & ~np.isnan(b)).sum()),
            nan_there=int((~np.isnan(a) & np.isnan(b)).sum()),
            same_inf=int(same_inf.sum()),
            opposite_inf=int((np.isinf(a) & np.isinf(b) & (a != b)).sum()),
            inf_here=int((np.isinf(a) & np.isfinite(b)).sum()),
            inf_there=int((np.isfinite(a) & np.isinf(b)).sum()),
        )
        assert (found.count, found.finite, found.equal) == (a.size, int(ok.sum()), int((a == b).sum()))
        assert found.different == int((~((a == b) | (np.isnan(a) & np.isnan(b)))).sum())
        assert found.sign_flips == int((np.sign(a[ok]) * np.sign(b[ok]) == -1).sum())
        assert found.from_zero == int(((y == 0) & (x != 0)).sum())
        for name, array in (("here", here), ("there", there), ("difference", d)):
            close_stats(getattr(found, name), stats_of(array))
        if not ok.any():
            assert found.max_abs is found.mean_abs is found.max_rel is found.norm is found.cosine is None
            return
        assert found.max_abs == e.max()
        assert near(found.mean_abs, float(e.mean()))
        assert found.max_rel == (e[y != 0] / np.abs(y[y != 0])).max(initial=0.0)
        assert near(found.norm, float(np.sqrt((e * e).sum())))
        size, other = np.sqrt((x * x).sum()), np.sqrt((y * y).sum())
        assert near(found.relative_norm, float(np.sqrt((e * e).sum()) / other)) if other else not found.relative_norm
        if size and other:
            assert found.cosine == pytest.approx((x * y).sum() / size / other, rel=1e-12, abs=1e-12)
        else:
            assert found.cosine is None


def close_stats(found: Any, wanted: Any) -> None:
    for name in wanted.__slots__:
        one, other = getattr(found, name), getattr(wanted, name)
        assert one == other or one == pytest.approx(other, rel=1e-9, abs=1e-9), name


@given(arrays())
def test_every_number_is_numpys(pair: tuple[Array, Array]) -> None:
    here, there = pair
    for one, other in ((here, there), (here, here.copy()), (there, there)):
        check(compare(Pairs(one, other)), one, other)


@given(arrays(), st.sampled_from(TOLERANCES))
def test_what_is_outside_of_a_tolerance(pair: tuple[Array, Array], tolerance: Boundary) -> None:
    here, there = pair
    found = compare(Pairs(here, there), tolerance=tolerance)
    with np.errstate(all="ignore"):
        a, b = here.astype(np.float64).ravel(), there.astype(np.float64).ravel()
        d = np.abs(np.where(a == b, 0.0, a - b))
        finite = d[np.isfinite(d)]
        boundary = finite.max(initial=0.0) * (tolerance.percent / 100)
        inside = (a == b) | (np.isnan(a) & np.isnan(b))
        ok = np.isfinite(a) & np.isfinite(b)
        inside |= ok & ((d <= boundary) | (d <= tolerance.atol + tolerance.rtol * np.abs(b)))
    assert (found.boundary, found.outside) == (boundary, int((~inside).sum()))
    assert count_outside(Pairs(here, there), tolerance, found.boundary) == found.outside
    mask = outside_mask(here, there, tolerance, found.boundary)
    assert np.array_equal(np.asarray(mask).ravel(), ~inside)


@given(arrays(), st.integers(0, 12))
def test_the_largest_differences_stand_in_order(pair: tuple[Array, Array], top: int) -> None:
    here, there = pair
    found = compare(Pairs(here, there), top=top)
    with np.errstate(all="ignore"):
        a, b = here.astype(np.float64), there.astype(np.float64)
        one_nan, d = np.isnan(a) ^ np.isnan(b), np.abs(np.where(a == b, 0.0, a - b))
        relative = np.where(b == 0, np.where(d > 0, INF, 0.0), d / np.abs(b))

    def order(size: Array) -> list[tuple[int, ...]]:
        """NaN on one side, infinities (half of the list at most), then by size; equal ones as they stand."""
        places = [place for place in np.ndindex(a.shape) if one_nan[place] or d[place] > 0]
        odd = [place for place in places if one_nan[place]]
        odd += [place for place in places if not one_nan[place] and not np.isfinite(d[place])]
        rest = [place for place in places if np.isfinite(d[place])]
        numbers = sorted(rest, key=lambda place: -size[place])[:top]
        return (odd[: max(top - len(numbers), (top + 1) // 2)] + numbers)[:top]

    if here.flags.c_contiguous:
        assert [entry.index for entry in found.by_abs] == order(d)
        assert [entry.index for entry in found.by_rel] == order(relative)
    for entry in found.by_abs:
        assert str(entry.here) == str(here[entry.index])
        assert str(entry.there) == str(there[entry.index])
        if entry.relative is not None:
            assert abs(entry.difference) == d[entry.index]
            assert entry.relative == relative[entry.index]


@examples(20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["f2", "f4", "f8", ml_dtypes.bfloat16]))
def test_ulps_of_neighbours(seed: int, kind: Any) -> None:
    random = np.random.default_rng(seed)
    here = random.normal(size=50).astype(kind)
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[here.dtype.itemsize]
    steps = random.integers(0, 4, 50)
    there = (here.view(bits) + steps.astype(bits)).view(here.dtype)
    found = compare(Pairs(here, there))
    assert found.ulps is not None
    assert (found.ulps.measured, found.ulps.greatest) == (50, steps.max())
    assert found.ulps.within_one == int((steps <= 1).sum())
    assert [entry.ulp for entry in found.by_ulp] == sorted(steps[steps > 0].tolist(), reverse=True)


def test_many_blocks_are_as_one() -> None:
    random = np.random.default_rng(5)
    here = random.normal(size=(3, BLOCK)).astype(np.float32)
    there = here + random.normal(size=here.shape).astype(np.float32) * np.float32(1e-3)
    here[0, 7], there[2, 9], there[1, 1], here[2, 0] = NAN, NAN, INF, -INF
    found = compare(Pairs(here, there), top=5)
    check(found, here, there)
    assert [entry.index for entry in found.by_abs][:3] == [(0, 7), (2, 9), (1, 1)]
    check(compare(Pairs(np.asfortranarray(here), np.asfortranarray(there))), here, there)
    mixed = compare(Pairs(np.asfortranarray(here), there), top=5)
    assert mixed.by_rel[4].index == found.by_rel[4].index


def test_the_same_list_whatever_comes_first() -> None:
    """Ascending differences fill the list anew with every block."""
    here = np.arange(3 * BLOCK, dtype=np.float64)
    found = compare(Pairs(here, np.zeros_like(here)), top=3)
    assert [entry.index for entry in found.by_abs] == [(3 * BLOCK - 1 - i,) for i in range(3)]
    equal = compare(Pairs(np.ones(2 * BLOCK), np.zeros(2 * BLOCK)), top=3)
    assert [entry.index for entry in equal.by_abs] == [(0,), (1,), (2,)]


def test_unsigned_numbers_do_not_wrap_and_bools_count_as_0_and_1() -> None:
    found = compare(Pairs(np.array([0, 255], np.uint8), np.array([1, 0], np.uint8)))
    assert (found.max_abs, found.difference.minimum) == (255, -1)
    found = compare(Pairs(np.array([True, False]), np.array([True, True])))
    assert (found.equal, found.max_abs, found.ulps, found.by_abs[0].difference) == (1, 1, None, -1)
    assert "floating-point" in found.no_ulps


def test_64_bit_integers_that_float64_cannot_tell_apart_are_not_equal() -> None:
    here = np.array([2**53 + 1, -(2**63), 2**63 - 1])
    found = compare(Pairs(here, np.array([2**53, 2**63 - 1, 2**63 - 1])))
    assert (found.equal, found.max_abs) == (1, 2.0**64)
    assert found.by_abs[1].difference == 1


def test_complex_numbers_by_the_magnitude_of_their_difference() -> None:
    here, there = np.array([3 + 4j, 1j, NAN]), np.array([0j, 1j, 1j])
    found = compare(Pairs(here, there))
    assert (found.max_abs, found.finite, found.equal, found.odd.nan_here) == (5, 2, 1, 1)
    assert found.sign_flips == 0
    assert near(found.cosine, 1 / math.sqrt(26))


def test_bfloat16_in_float32_is_measured_in_bfloat16() -> None:
    here = np.array([1.0, 2.0], np.float32)
    there = np.array([1.0078125, 2.0], np.float32)
    meant = np.dtype(ml_dtypes.bfloat16)
    found = compare(Pairs(here, there), types=(meant, meant))
    assert found.ulps is not None
    assert (found.ulps.type, found.ulps.greatest) == ("bfloat16", 1)


def test_a_float16_copy_is_measured_in_float16_and_what_it_cannot_hold_is_not() -> None:
    here = np.array([1e6, 0.1, 0.2], np.float32)
    with np.errstate(over="ignore"):
        found = compare(Pairs(here, here.astype(np.float16)))
    assert found.ulps is not None
    assert (found.ulps.type, found.ulps.greatest, found.ulps.measured) == ("float16", 0, 2)
    assert found.odd.inf_there == 1


def test_nothing_to_compare_says_nothing() -> None:
    found = compare(Pairs(np.zeros((0, 3)), np.zeros((0, 3))))
    assert (found.count, found.outside, found.max_abs, found.by_abs) == (0, 0, None, ())


def test_text_is_no_number() -> None:
    with pytest.raises(TdbgError, match="only numbers"):
        compare(Pairs(np.array(["a"]), np.array(["a"])))


def test_progress_counts_both_passes_and_can_stop() -> None:
    here = np.zeros(3 * BLOCK, np.int8)
    told: list[Progress] = []
    compare(Pairs(here, here), tolerance=Boundary(percent=5), progress=told.append)
    assert [each.done / each.total for each in told] == pytest.approx([i / 6 for i in range(6)])

    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        compare(Pairs(here, here), progress=stop)
