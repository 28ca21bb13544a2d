"""Answers that follow from what was measured already, so that a recheck with other thresholds reads nothing."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.stats.records import (
    CHANGE_ASKED,
    CHANGE_KNOWN,
    NOT_ASKED,
    NOT_KNOWN,
    Before,
    Bounds,
    Closeness,
    Records,
    RequiredStats,
    State,
)

Rows = npt.NDArray[np.integer[Any]]

MARGIN: Final = 1e-6
"""Sums of differences are rounded; a conclusion is drawn only where that cannot matter."""
HUGE: Final = 1e280
"""Below this the differences of close values cannot overflow, however many there are."""


def derive(records: Records, need: RequiredStats, rows: Rows) -> None:
    """Fills in what a need asks of measured rows where their statistics leave only one answer.

    Args:
        records: the table.
        need: what is going to be asked.
        rows: rows whose statistics come from values, each once.
    """
    rows = rows[records.rows["state"][rows] == State.MEASURED]
    for bounds in need.ranges:
        _derive_range(records, bounds, rows)
    for closeness in need.closeness:
        _derive_closeness(records, closeness, rows)


def _derive_range(records: Records, bounds: Bounds, rows: Rows) -> None:
    """All finite elements lie inside, or none does."""
    column = records.range_column(bounds)
    rows = rows[column[rows] == NOT_ASKED]
    table, (start, end) = np.take(records.rows, rows), bounds
    infinite = np.where(end == math.inf, table["pos_inf"], 0) + np.where(start == -math.inf, table["neg_inf"], 0)
    finite = table["count"] - table["nan"] - table["pos_inf"] - table["neg_inf"]
    inside = (finite == 0) | ((table["minimum"] >= start) & (table["maximum"] <= end))
    outside = (finite > 0) & ((table["maximum"] < start) | (table["minimum"] > end))
    column[rows[inside]] = (finite + infinite)[inside]
    column[rows[outside]] = infinite[outside]


def _derive_closeness(records: Records, closeness: Closeness, rows: Rows) -> None:
    """No element can differ by more than all together; some element differs at least as much as the mean."""
    column = records.close_column(closeness)
    rows = rows[column[rows] == NOT_ASKED]
    table, (rtol, atol, equal_nan) = np.take(records.rows, rows), closeness
    infinite = (table["pos_inf"] > 0) | (table["neg_inf"] > 0)
    asked = (table["asked"] & CHANGE_ASKED) != 0
    # NaN and Inf are reported instead of any comparison: see ``conditions.evaluate``.
    idle = infinite | ((table["nan"] > 0) & (not equal_nan))
    column[rows[asked & (idle | (table["before"] != Before.OK))]] = NOT_KNOWN
    if not 0 <= rtol <= 0.5 or not 0 <= atol < HUGE:
        return
    compared = asked & (table["before"] == Before.OK) & ((table["asked"] & CHANGE_KNOWN) != 0) & (table["count"] > 0)
    compared &= ~infinite & (table["nan"] == 0)
    with np.errstate(all="ignore"):
        most = table["difference"] * table["count"] * (1 + MARGIN)
        allowed = (atol + rtol * table["reference"]) * (1 + MARGIN)
        # A sum that is not finite comes from NaN or Inf that is gone: close values of this size do not add up to Inf.
        small = np.maximum(np.abs(table["minimum"]), np.abs(table["maximum"])) < HUGE
        far = (~np.isfinite(table["difference"]) & small) | (table["difference"] > allowed)
    close = (table["difference"] == 0) | (most <= atol)
    column[rows[compared & close]] = 1
    column[rows[compared & ~close & far]] = 0
