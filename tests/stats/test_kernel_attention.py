"""A head of an attention is what numpy makes of it in float64, as far as float32 goes."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.stats.kernel import address, available, described, function
from tui_debugger.stats.kernel.expected import ATTENTION_COLUMNS, attended

pytestmark = pytest.mark.skipif(not available(), reason="the kernel is not built")

RANDOM = np.random.default_rng(8)


def columns_of(keys: int) -> np.ndarray:
    columns = np.ones((keys, ATTENTION_COLUMNS), np.float32)
    columns[:, :-1] = RANDOM.normal(size=(keys, ATTENTION_COLUMNS - 1))
    return columns


def scores_of(query: np.ndarray, key: np.ndarray, mask: np.ndarray | None, *, causal: bool) -> np.ndarray:
    scores = query.astype(np.float64) @ key.astype(np.float64).T * 0.3
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
    return np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf) if causal else scores


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("masked", [None, np.bool_, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 70, 64), (70, 13, 5), (5, 200, 130), (0, 3, 2)])
def test_a_head(dtype: type, masked: type | None, causal: bool, shape: tuple[int, int, int]) -> None:
    rows, keys, width = shape
    query, key = (RANDOM.normal(size=(count, width)).astype(dtype) for count in (rows, keys))
    mask = None if masked is None else np.asarray(RANDOM.normal(size=(rows, keys)) > -1).astype(masked)
    if mask is not None and masked is np.bool_:
        mask[:, 0] = True
    columns = columns_of(keys)
    made, top = attended(query, key, columns, mask, causal=causal, factor=0.3)
    wide = None if mask is None else mask if mask.dtype == np.bool_ else mask.astype(np.float64)
    scores = scores_of(query, key, wide, causal=causal)
    shares = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
    shares /= shares.sum(1, keepdims=True)
    size = shares @ np.abs(columns, dtype=np.float64)
    lost = 2.0**-22 * (8 + np.abs(query, dtype=np.float64) @ np.abs(key, dtype=np.float64).T).max(1, initial=0)
    assert np.all(np.abs(made - shares @ columns.astype(np.float64)) <= lost[:, None] * size)
    assert np.all(np.abs(top - scores.max(1, initial=-np.inf)) <= lost)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_not_averaged_away(bad: float) -> None:
    query, key = RANDOM.normal(size=(20, 8)).astype(np.float32), RANDOM.normal(size=(30, 8)).astype(np.float32)
    columns = columns_of(30)
    query[3, 2] = bad
    made, _ = attended(query, key, columns, None, causal=False, factor=1.0)
    assert np.flatnonzero(np.isnan(made).any(1)).tolist() == [3]
    query[3, 2], columns[7, 4] = 0, bad
    made, _ = attended(query, key, columns, None, causal=False, factor=1.0)
    assert not np.isfinite(made[:, 4]).any()
    assert np.isfinite(np.delete(made, 4, axis=1)).all()


def test_a_row_that_sees_nothing_is_not_a_number() -> None:
    query, key = np.ones((3, 4), np.float32), np.ones((5, 4), np.float32)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    made, _ = attended(query, key, columns_of(5), mask, causal=False, factor=1.0)
    assert np.isnan(made).all(1).tolist() == [False, True, False]


def test_arguments_that_make_no_sense_are_refused() -> None:
    x, columns = np.ones((2, 2), np.float32), columns_of(2)
    for query, key, its_columns, mask in (
        (x, x.astype(np.float64), columns, None),
        (x.astype(np.int32), x, columns, None),
        (x, np.ones((2, 3), np.float32), columns, None),
        (x, x, columns[:1], None),
        (x, x, columns, np.ones((2, 3), bool)),
        (x, x, columns, x.astype(np.float64)),
        (x, np.ones((0, 2), np.float32), columns[:0], None),
    ):
        with pytest.raises(ValueError, match="no sense"):
            attended(query, key, its_columns, mask, causal=False, factor=1.0)
    what, where = described(x), address(columns)
    for sizes in ((-1, 2, 2), (2, -1, 2), (2, 2, -1), (1 << 62, 2, 3), (2, 1 << 40, 1 << 40), (2, 1 << 62, 1)):
        call = struct.pack("=5q", *sizes, 0, 0) + 3 * what + struct.pack("=d4q", 1.0, *[where] * 4)
        assert function("attended", "p")(call) == -1
