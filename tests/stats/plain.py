"""What a look has to find, computed by plain numpy on whole arrays: slow and obvious."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.records import Closeness, Record, RequiredStats, StepChange

Array = npt.NDArray[Any]
EPSILON = 1e-9


def record_of(now: Array, before: Array | None, need: RequiredStats, dtype: str = "") -> Record:
    """The record of an array; ``before`` was read for comparison."""
    x = doubles(now)
    with np.errstate(all="ignore"):
        ranges = {(low, high): int(((x >= low) & (x <= high)).sum()) for low, high in need.ranges}
        change, close, previous = None, dict[Closeness, bool](), "none"
        if before is not None and need.previous:
            previous = "ok" if before.shape == now.shape else "shape"
            if previous == "ok":
                change, close = change_of(now, before), {each: is_close(now, before, each) for each in need.closeness}
    meta = TensorMeta(dtype or now.dtype.name, now.shape, now.nbytes)
    return Record(meta, stats_of(now), ranges, change, close, previous, need=need)


def doubles(array: Array) -> npt.NDArray[np.float64]:
    """Elements as float64, complex ones by their magnitude."""
    return np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)


def stats_of(array: Array) -> TensorStats:
    """Statistics with sums in the longest floats that there are."""
    x = doubles(array).ravel()
    finite = x[np.isfinite(x)]
    long = finite.astype(np.longdouble)
    some = len(finite) > 0
    with np.errstate(all="ignore"):
        return TensorStats(
            count=x.size,
            nan=int(np.isnan(x).sum()),
            pos_inf=int((x == np.inf).sum()),
            neg_inf=int((x == -np.inf).sum()),
            zero=int((finite == 0).sum()),
            negative=int((finite < 0).sum()),
            positive=int((finite > 0).sum()),
            minimum=float(finite.min()) if some else None,
            maximum=float(finite.max()) if some else None,
            mean=float(long.mean()) if some else None,
            abs_mean=float(np.abs(long).mean()) if some else None,
            variance=float(long.var()) if some else None,
            sum_squares=float((long * long).sum()),
        )


def change_of(now: Array, before: Array) -> StepChange:
    """Mean |cur − prev| and mean |prev|, NaN for empty tensors."""
    x, y = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (now, before))
    if not x.size:
        return StepChange(math.nan, math.nan)
    return StepChange(float(np.abs(x - y).mean()), float(np.abs(y).mean()))


def is_close(now: Array, before: Array, closeness: Closeness) -> bool:
    """numpy's allclose, but that no tensor without elements is close."""
    rtol, atol, equal_nan = closeness
    x, y = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (now, before))
    return bool(x.size) and bool(np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan))


def assert_same(found: Record | None, wanted: Record, what: object = "") -> None:
    """Counts, extremes, ranges and verdicts are equal; means and sums within 1e-9 of the magnitudes they come from."""
    assert found is not None, what
    assert (found.meta, found.ranges, found.close) == (wanted.meta, wanted.ranges, wanted.close), what
    assert (found.previous, found.error, found.need) == (wanted.previous, wanted.error, wanted.need), what
    assert (found.stats is None) == (wanted.stats is None), what
    if found.stats is not None and wanted.stats is not None:
        scale = wanted.stats.abs_mean or 0.0
        scales = {"mean": scale, "abs_mean": scale, "variance": scale * scale, "sum_squares": wanted.stats.sum_squares}
        for name in TensorStats.__slots__:
            _assert_near(getattr(found.stats, name), getattr(wanted.stats, name), scales.get(name, 0.0), (what, name))
    assert (found.change is None) == (wanted.change is None), what
    if found.change is not None and wanted.change is not None:
        for name in StepChange.__slots__:
            value = getattr(wanted.change, name)
            _assert_near(getattr(found.change, name), value, abs(value), (what, name))


def _assert_near(found: float | None, wanted: float | None, scale: float, what: object) -> None:
    if found is None or wanted is None or not math.isfinite(wanted):
        assert found == wanted or str(found) == str(wanted), what
    else:
        assert abs(found - wanted) <= EPSILON * scale, (what, found, wanted)
