"""What one look at one tensor yields, and what a look is asked for.

A condition is judged from a Record alone, so numpy (offline), torch (live, on the device) and a
statistic.csv only have to produce records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tui_debugger.model import TensorMeta, TensorStats

Bounds = tuple[float, float]
"""Inclusive (start, end) of a range; ±inf when a bound is not set."""
Closeness = tuple[float, float, bool]
"""(rtol, atol, equal_nan) of |cur − prev| ≤ atol + rtol·|prev|."""


@dataclass(frozen=True, slots=True)
class Need:
    """The quantities that the watchpoints on a tensor need beyond plain statistics."""

    ranges: frozenset[Bounds] = frozenset()
    change: bool = False
    closeness: frozenset[Closeness] = frozenset()

    @property
    def previous(self) -> bool:
        """Whether the previous step's tensor must be read as well."""
        return self.change or bool(self.closeness)

    def __or__(self, other: Need) -> Need:
        """Everything that either needs."""
        return Need(self.ranges | other.ranges, self.change or other.change, self.closeness | other.closeness)

    def covers(self, other: Need) -> bool:
        """Whether a record made for this need answers the other one too."""
        return self.ranges >= other.ranges and (self.change or not other.change) and self.closeness >= other.closeness


@dataclass(frozen=True, slots=True)
class Change:
    """Comparison with the previous step's tensor of the same shape, all in float64.

    Attributes:
        mean_abs_difference: mean |cur − prev| (NaN when either side has NaN, or Inf meets the same Inf).
        mean_abs_previous: mean |prev|.
    """

    mean_abs_difference: float
    mean_abs_previous: float

    def ratio(self, epsilon: float) -> float:
        """abs_mean_update_ratio: mean |cur − prev| / (mean |prev| + epsilon)."""
        return self.mean_abs_difference / (self.mean_abs_previous + epsilon)


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one look.

    Attributes:
        meta: dtype and shape; None when unreadable.
        stats: None when unreadable, or when the elements are no numbers (text, dates).
        ranges: number of elements inside each asked range (NaN is outside).
        change: None when not asked, or no previous tensor, or another shape.
        close: for each asked closeness whether *all* elements are close.
        previous: ``none`` (not asked or not dumped), ``ok``, ``shape`` (other shape), ``unreadable``, ``no value``
            (of this tensor or the previous one only statistics were dumped).
        error: why the tensor could not be read, one sentence; empty when it could.
        need: what this record answers.
    """

    meta: TensorMeta | None
    stats: TensorStats | None
    ranges: dict[Bounds, int] = field(default_factory=dict)
    change: Change | None = None
    close: dict[Closeness, bool] = field(default_factory=dict)
    previous: str = "none"
    error: str = ""
    need: Need = field(default_factory=Need)
