"""The rules for a row of ``statistic.csv``, for one row at a time: the columns of the reader are held against them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tui_debugger.model import AtLeast, TensorStats
from tui_debugger.sources.mindspore.statistics import Statistics

_SAW_NAN, _SAW_POS_INF, _SAW_NEG_INF = 1, 2, 4


def stats_of(statistics: Statistics, row: int, *, right_mean: bool = False) -> TensorStats:
    """A row as TensorStats; fields that were not recorded are 0 or None.

    NaN and Inf among the recorded extremes count as one such element where no count was recorded. ``right_mean``:
    the mean can be believed whatever the size (MindSpore 2.4 and newer).
    """
    maximum, minimum, mean, norm = (_finite(column[row]) for column in statistics.numbers[:4])
    counts = [_count(column[row]) for column in statistics.numbers[4:]]
    count, negative, positive, nan, neg_inf, pos_inf, zero = (value or 0 for value in counts)
    seen = int(statistics.seen[row])
    nan = max(nan, 1) if seen & _SAW_NAN else nan
    pos_inf = max(pos_inf, 1) if seen & _SAW_POS_INF else pos_inf
    neg_inf = max(neg_inf, 1) if seen & _SAW_NEG_INF else neg_inf
    if counts[0] is None:
        count = int(np.prod(statistics.shapes[int(statistics.shape[row])], dtype=np.int64))
    if None not in counts and negative + positive + zero + nan + pos_inf + neg_inf > count:
        # 2.4 and newer count -Inf among the elements below 0 and +Inf among those above.
        negative, positive = max(negative - neg_inf, 0), max(positive - pos_inf, 0)
    if maximum is not None and minimum is not None and maximum < minimum:
        maximum = minimum = mean = None  # 2.3 and older write ∓1.8e308 for a tensor without a finite element
    if count >= 20_000 and (bool(statistics.fixed[row]) or not right_mean):
        mean = None
    return TensorStats(
        count=count,
        nan=nan,
        pos_inf=pos_inf,
        neg_inf=neg_inf,
        zero=zero,
        negative=negative,
        positive=positive,
        minimum=minimum,
        maximum=maximum,
        mean=mean,
        abs_mean=None,
        variance=None,
        sum_squares=norm * norm if norm is not None else 0.0,
        at_least=_at_least(
            seen,
            [counts[at] is None for at in (3, 4, 5)],
            told=norm is not None or (right_mean and maximum is not None and minimum is not None),
        ),
    )


def _at_least(seen: int, uncounted: Sequence[bool], *, told: bool) -> AtLeast:
    """Counts that are lower bounds: an extreme, a mean or a norm shows NaN or Inf that was not counted.

    ``seen`` has the bits of the shown values. ``told``: the row would show any NaN or Inf, by a finite norm or by
    extremes over all elements (2.4 and newer); extremes over finite elements do not show them.
    """
    nan, neg_inf, pos_inf = uncounted
    found = AtLeast.NAN if nan and (seen & _SAW_NAN or not told) else AtLeast.NONE
    inf = (neg_inf and seen & _SAW_NEG_INF) or (pos_inf and seen & _SAW_POS_INF)
    hidden = (neg_inf or pos_inf) and (seen & _SAW_NAN or not told)
    return found | AtLeast.INF if inf or hidden else found


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _count(value: float) -> int | None:
    return int(value) if np.isfinite(value) and value >= 0 else None
