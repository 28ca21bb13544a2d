"""The health of a tensor, a node or a scope as one number: the worst finding in it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.model import Verdict

Codes = npt.NDArray[np.uint8]


class Health(IntEnum):
    """Greater is worse. Combining takes the maximum, so that no NaN is ever hidden."""

    ABSENT = 0
    """Nothing was dumped."""
    NOT_JUDGED = 1
    """Dumped, but under no enabled watchpoint, or without anything to compare with."""
    CLEAN = 2
    """Judged without a finding; combined with NOT_JUDGED it means: no finding so far."""
    UNCHECKED = 3
    """The step was not checked with the current watchpoints."""
    UNREADABLE = 4
    """A watchpoint covers it, but could not judge it."""
    HIT = 5
    """A finding on finite values."""
    NOT_FINITE = 6
    """NaN or Inf; a live training does not say which before its values are read."""
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
    """Returns the health of tensors from strongest verdict, origins, and counts of NaN and Inf.

    ``bad`` marks NaN or Inf without counts. A tensor that only lacked a tensor to compare with is ABSENT.
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

    ``places`` are ascending, with repetitions, and have a code each. Ranges may be nested.
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
    """Returns bounds that divide ``count`` columns into at most ``room`` groups of nearly one size."""
    groups = max(min(count, room), 1)
    return np.arange(groups + 1, dtype=np.int64) * count // groups
