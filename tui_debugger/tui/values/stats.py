"""The statistics of a whole tensor in one or two lines."""

from __future__ import annotations

import math

from tui_debugger.session.types import TensorRow
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import number


def stats_text(row: TensorRow) -> str:
    """Minimum, maximum, mean, deviation and counts of the whole tensor, never of the slice.

    Truth values have counts only. A row that could not be measured says why.
    """
    stats = row.stats
    if stats is None:
        return clean(row.error) if row.error else "statistics: not computed"
    if row.meta is not None and row.meta.dtype == "bool":
        true = stats.count - stats.zero
        return f"count {stats.count}  True {true}  False {stats.zero}"
    deviation = None if stats.variance is None else math.sqrt(stats.variance)
    places = [
        f"min {number(stats.minimum)}",
        f"max {number(stats.maximum)}",
        f"mean {number(stats.mean)}",
        f"σ {number(deviation)}",
    ]
    counts = [
        f"count {stats.count}",
        f"zero {stats.zero}",
        f"negative {stats.negative}",
        f"positive {stats.positive}",
        f"NaN {stats.nan}",
        f"+Inf {stats.pos_inf}",
        f"-Inf {stats.neg_inf}",
    ]
    source = ["(from statistic.csv)"] if row.recorded else []
    return "  ".join(places + source) + "\n" + "  ".join(counts)
