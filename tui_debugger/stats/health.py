"""The health of a tensor, a node or a whole scope as one number: the worst that was found there."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.model import Verdict

Codes = npt.NDArray[np.uint8]


class Health(IntEnum):
    """The greater the worse. Where several are put together the worst stands, so that no NaN is ever hidden."""

    ABSENT = 0
    """Nothing was dumped."""
    NOT_JUDGED = 1
    """Dumped, but under no enabled watchpoint, or there was nothing to compare with."""
    CLEAN = 2
    """Judged, and nothing found. Beside others that were not judged it says: nothing was found so far."""
    UNCHECKED = 3
    """The step was not checked with the watchpoints as they are."""
    UNREADABLE = 4
    """A watchpoint covers it, but could not judge it."""
    HIT = 5
    """A finding on finite values."""
    NOT_FINITE = 6
    """NaN or Inf: a training that runs says no more before its values are looked at."""
    INF = 7
    NAN = 8
    ORIGIN = 9
    """NaN or Inf in an output whose inputs are clean."""


WORTH_A_LOOK: Final = Health.UNREADABLE
"""From here on a person should look."""


def codes_of(
    verdict: npt.NDArray[np.int8],
    origin: Mask,
    nan: npt.NDArray[Any],
    inf: npt.NDArray[Any],
    bad: npt.NDArray[Any],
) -> Codes:
    """Returns the health of tensors by their strongest verdict, whether they are origins, and their NaN and Inf counts.

    ``bad`` says where there is NaN or Inf of which no counts are known.

    Tensors that could only not be compared are ABSENT: they say nothing of their own.
    """
    finding = verdict == Verdict.FINDING
    codes = np.where(verdict == Verdict.CANNOT_JUDGE, Health.UNREADABLE, Health.ABSENT).astype(np.uint8)
    codes[finding] = Health.HIT
    codes[finding & bad] = Health.NOT_FINITE
    codes[finding & (inf > 0)] = Health.INF
    codes[finding & (nan > 0)] = Health.NAN
    codes[finding & origin] = Health.ORIGIN
    return codes


def worst_within(places: Int64, codes: Codes, first: Int64, size: Int64) -> Codes:
    """Returns for each range ``first .. first + size - 1`` the worst code at places inside it; ABSENT without any.

    Args:
        places: ascending; a place may occur several times.
        codes: one for each place.
        first: where each range begins; ranges may lie inside each other.
        size: how long each is.
    """
    start, stop = np.searchsorted(places, first), np.searchsorted(places, first + size)
    found = np.zeros(len(first), np.uint8)
    some = np.flatnonzero(stop > start)
    if len(some):
        bounds = np.stack([start[some], stop[some]], axis=1).ravel()
        found[some] = np.maximum.reduceat(np.append(codes, np.uint8(Health.ABSENT)), bounds)[::2]
    return found


def worst_of_groups(cells: Codes, bounds: Int64) -> Codes:
    """Merges neighbouring columns: column j of the result is the worst of columns bounds[j] .. bounds[j + 1] - 1."""
    merged: Codes = np.maximum.reduceat(cells, bounds[:-1], axis=1)
    return merged


def even_bounds(count: int, room: int) -> Int64:
    """Shares ``count`` columns among at most ``room`` groups of nearly one size: bounds of the groups."""
    groups = max(min(count, room), 1)
    return np.arange(groups + 1, dtype=np.int64) * count // groups
