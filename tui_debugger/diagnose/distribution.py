"""The distribution of the values of one tensor: classes, percentiles, histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tui_debugger.check.progress import scaled
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ProgressFn, TensorKey, TensorStats, no_progress
from tui_debugger.stats.distribution import Bin, ClassCounts, count_bins, count_classes, linear_bins, log_bins
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.stats.quantiles import PERCENTS, Headroom, Quantiles, headroom, quantiles
from tui_debugger.stats.spans import SharedArrays

QUICK = 1 << 26
"""Elements up to which percentiles are computed at once."""
_FEWEST = 16
"""The number of bins that even few values get."""


@dataclass(frozen=True, slots=True)
class TensorDistribution:
    """What is known about the values of one tensor.

    ``classes`` and ``headroom`` are None where only statistics are known; ``quantiles`` until they are computed.
    """

    row: TensorRow
    classes: ClassCounts | None = None
    headroom: Headroom | None = None
    quantiles: Quantiles | None = None

    @property
    def stats(self) -> TensorStats | None:
        return self.row.stats

    @property
    def dtype(self) -> str:
        return self.row.meta.dtype if self.row.meta is not None else ""

    @property
    def whole(self) -> bool:
        return canonical_name(self.dtype).startswith(("int", "uint", "bool"))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and greatest finite value; None without values to count or without a finite one."""
        return None if self.classes is None else _extremes(self.row.stats)


@dataclass(frozen=True, slots=True)
class HistogramBars:
    """A histogram: ascending bins with counts; ``log`` bins are by magnitude."""

    bins: tuple[Bin, ...]
    counts: tuple[int, ...]
    log: bool = False


def distribution_of(session: DiagnosedRun, key: TensorKey, progress: ProgressFn = no_progress) -> TensorDistribution:
    """Statistics, and where there are values, classes, headroom and (up to ``QUICK`` elements) percentiles."""
    (row,) = session.measure((session.row_of(key),), progress)
    return distribution_of_row(session, row, progress)


def distribution_of_row(
    session: DiagnosedRun, row: TensorRow, progress: ProgressFn = no_progress
) -> TensorDistribution:
    """Like ``distribution_of``, for a measured row; UnreadableTensorError where it cannot be read."""
    key = row.key
    if row.error or not (row.has_value or row.stats is not None):
        reason = row.error or "this tensor was not dumped at this step"
        raise UnreadableTensorError(reason, where=f"rank {key.rank} step {key.step} {key.node}")
    if not row.has_value:
        return TensorDistribution(row)
    shared = _values(session, key, progress)
    if row.remote or row.stats is None:  # the values are here now, and tell more than the training's statistics
        (row,) = session.measure((session.row_of(key),), progress)
    classes = count_classes(shared, scaled(progress, 0, 3))
    dtype = row.meta.dtype if row.meta is not None else shared.arrays[0].dtype.name
    room = headroom(shared, classes, dtype, scaled(progress, 1, 3), extremes=_extremes(row.stats))
    found = quantiles(shared, classes, PERCENTS, scaled(progress, 2, 3)) if shared.count <= QUICK else None
    return TensorDistribution(row, classes, room, found)


def percentiles(
    session: DiagnosedRun,
    found: TensorDistribution,
    percents: Sequence[float] = PERCENTS,
    progress: ProgressFn = no_progress,
) -> Quantiles:
    """The exact percentiles of a tensor of any size; UnreadableTensorError where only statistics are known."""
    if found.classes is None:
        raise UnreadableTensorError("only statistics of this tensor are known", where=found.row.key.node)
    return quantiles(_values(session, found.row.key, progress), found.classes, percents, progress)


def _extremes(stats: TensorStats | None) -> tuple[float, float] | None:
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return stats.minimum, stats.maximum


def _values(session: DiagnosedRun, key: TensorKey, progress: ProgressFn) -> SharedArrays:
    array = session.read(key, progress)
    return SharedArrays((array,), array.size, session.workers)


def choose_bins(
    distributions: Sequence[TensorDistribution], room: int, *, log: bool, between: tuple[float, float] | None = None
) -> tuple[Bin, ...]:
    """At most ``room`` bins for the values of all tensors (``log``: by magnitude), limited to ``between``."""
    bounds = [each.bounds for each in distributions if each.bounds is not None]
    if not bounds:
        return ()
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    if between is not None:
        low, high = max(low, between[0]), min(high, between[1])
        if low > high:
            return ()
    if not log:
        return linear_bins(low, high, max(room, 1), whole=all(each.whole for each in distributions))
    least = [
        each.headroom.least for each in distributions if each.headroom is not None and each.headroom.least is not None
    ]
    return log_bins(low, high, min(least, default=None), max(room, 5))


def fitting_bins(distributions: Sequence[TensorDistribution], room: int) -> int:
    """Limits the number of bins, as few values in many bins look like a comb."""
    most = max((each.classes.finite for each in distributions if each.classes is not None), default=0)
    return min(room, max(_FEWEST, 4 * math.isqrt(most)))


def bars(
    session: DiagnosedRun,
    found: TensorDistribution,
    bins: tuple[Bin, ...],
    progress: ProgressFn = no_progress,
    *,
    log: bool = False,
) -> HistogramBars:
    """Counts the values of a tensor in bins; reads them only where the bins need it."""
    if found.classes is None or not bins:
        return HistogramBars((), (), log)
    values = _values(session, found.row.key, progress)
    return HistogramBars(bins, count_bins(values, found.classes, bins, progress), log)


@dataclass(frozen=True, slots=True)
class Histograms:
    """The histograms of one or several tensors, all in the same bins."""

    distributions: tuple[TensorDistribution, ...]
    bars: tuple[HistogramBars, ...]


@dataclass(frozen=True, slots=True)
class BinOptions:
    """The most bins, whether they are by magnitude, and limits of the values."""

    room: int
    log: bool = False
    between: tuple[float, float] | None = None


def histograms_of(
    session: DiagnosedRun,
    tensors: Sequence[TensorKey | TensorDistribution],
    options: BinOptions,
    progress: ProgressFn = no_progress,
) -> Histograms:
    """Returns distributions and bars of tensors; given distributions are not measured again."""
    parts = 2 * len(tensors)
    distributions = tuple(
        each if isinstance(each, TensorDistribution) else distribution_of(session, each, scaled(progress, i, parts))
        for i, each in enumerate(tensors)
    )
    bins = choose_bins(
        distributions, fitting_bins(distributions, options.room), log=options.log, between=options.between
    )
    found = tuple(
        bars(session, each, bins, scaled(progress, len(tensors) + i, parts), log=options.log)
        for i, each in enumerate(distributions)
    )
    return Histograms(distributions, found)
