"""A record from quick numbers alone, for values that were changed in place before they could be looked at.

That happens once to a tensor: from the next step on everything about it is found out when it is made.
"""

from __future__ import annotations

import math

from tui_debugger.model import TensorStats
from tui_debugger.stats.records import Record
from tui_debugger.torch.captures import Capture
from tui_debugger.torch.transfer import Fetched


def rough_record(capture: Capture, fetched: Fetched) -> Record:
    """What the quick numbers of a screened line tell. Its counts say whether there are some, not how many."""

    def number(place: int) -> float:
        return float(fetched.all(place)[0]) if place >= 0 else math.nan

    count = math.prod(capture.meta.shape)
    low, high = number(capture.extremes), number(capture.extremes + 1) if capture.extremes >= 0 else math.nan
    energy = number(capture.energy)
    magnitude, total, zeros = number(capture.magnitude), number(capture.total), number(capture.zeros)
    if magnitude == 0 or energy == 0:
        low = high = 0.0
    nan = (capture.extremes >= 0 and math.isnan(low)) or (capture.magnitude >= 0 and math.isnan(magnitude))
    nan |= capture.energy >= 0 and math.isnan(energy)
    above = high == math.inf or (magnitude == math.inf and capture.extremes < 0)
    finite = math.isfinite(low) and math.isfinite(high)
    all_zero = finite and low == high == 0
    stats = TensorStats(
        count=count,
        nan=int(nan),
        pos_inf=int(above),
        neg_inf=int(low == -math.inf),
        zero=count if all_zero else 0 if math.isnan(zeros) else int(zeros),
        negative=int(low < 0),
        positive=int(high > 0),
        minimum=low if finite else None,
        maximum=high if finite else None,
        mean=total / count if finite and math.isfinite(total) else None,
        abs_mean=magnitude / count if math.isfinite(magnitude) else None,
        variance=None,
        sum_squares=0.0,
    )
    ranges = {bounds: int(number(place)) for bounds, place in capture.ranges.items()}
    return Record(capture.meta, stats, ranges)
