"""The distribution of the values of one tensor: what is read for it, and what is known where there are no values."""

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
"""Elements up to which percentiles are found at once, without being asked for."""
_FEWEST = 16
"""Bins that are worth making however few values there are."""


@dataclass(frozen=True, slots=True)
class TensorDistribution:
    """The numbers that are known about one tensor.

    Attributes:
        row: with its statistics.
        classes: where its values lie; None where only statistics are known.
        headroom: how far they are from the limits of types; None likewise.
        quantiles: None until they were asked for.
    """

    row: TensorRow
    classes: ClassCounts | None = None
    headroom: Headroom | None = None
    quantiles: Quantiles | None = None

    @property
    def stats(self) -> TensorStats | None:
        """Its statistics."""
        return self.row.stats

    @property
    def dtype(self) -> str:
        """Name of its element type."""
        return self.row.meta.dtype if self.row.meta is not None else ""

    @property
    def whole(self) -> bool:
        """Tells whether its values are whole numbers (or true and false)."""
        return canonical_name(self.dtype).startswith(("int", "uint", "bool"))

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and greatest finite value; None without values to count or without a finite one."""
        return None if self.classes is None else _extremes(self.row.stats)


@dataclass(frozen=True, slots=True)
class HistogramBars:
    """A histogram.

    Attributes:
        bins: ascending.
        counts: elements in each.
        log: bins by magnitude, not of equal width.
    """

    bins: tuple[Bin, ...]
    counts: tuple[int, ...]
    log: bool = False


def distribution_of(session: DiagnosedRun, key: TensorKey, progress: ProgressFn = no_progress) -> TensorDistribution:
    """Statistics, and where values are, their classes, headroom and, for up to ``QUICK`` elements, percentiles.

    Raises:
        UnreadableTensorError: the tensor was not dumped, or its file is broken.
        CancelledError: from ``progress``.
    """
    (row,) = session.measure((session.row_of(key),), progress)
    return distribution_of_row(session, row, progress)


def distribution_of_row(
    session: DiagnosedRun, row: TensorRow, progress: ProgressFn = no_progress
) -> TensorDistribution:
    """See ``distribution_of``; of a row that was measured already."""
    key = row.key
    if row.error or not (row.has_value or row.stats is not None):
        reason = row.error or "this tensor was not dumped at this step"
        raise UnreadableTensorError(reason, where=f"rank {key.rank} step {key.step} {key.node}")
    if not row.has_value:
        return TensorDistribution(row)
    shared = _values(session, key, progress)
    if row.remote or row.stats is None:  # the values are here now, and say more than what the training said
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
    """The exact percentiles of a tensor with values, of any size.

    Raises:
        UnreadableTensorError: only statistics are known, or the file is broken.
        CancelledError: from ``progress``.
    """
    if found.classes is None:
        raise UnreadableTensorError("only statistics of this tensor are known", where=found.row.key.node)
    return quantiles(_values(session, found.row.key, progress), found.classes, percents, progress)


def _extremes(stats: TensorStats | None) -> tuple[float, float] | None:
    """The smallest and the greatest finite element; None without one."""
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return stats.minimum, stats.maximum


def _values(session: DiagnosedRun, key: TensorKey, progress: ProgressFn) -> SharedArrays:
    """The values of a tensor, and who can go through them.

    Raises:
        UnreadableTensorError: its file is broken.
    """
    array = session.read(key, progress)
    return SharedArrays((array,), array.size, session.workers)


def choose_bins(
    distributions: Sequence[TensorDistribution], room: int, *, log: bool, between: tuple[float, float] | None = None
) -> tuple[Bin, ...]:
    """Bins for the values of one tensor, or of several together.

    Args:
        distributions: the tensors.
        room: greatest number of bins.
        log: by magnitude.
        between: only values between these; None for all.
    """
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
    """Tells how many bins, of those that there is room for, say something: few values in many bins are a mere comb."""
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
    """Counts the values of a tensor in bins; reads them only where the bins need it.

    Raises:
        UnreadableTensorError: the file is broken.
        CancelledError: from ``progress``.
    """
    if found.classes is None or not bins:
        return HistogramBars((), (), log)
    values = _values(session, found.row.key, progress)
    return HistogramBars(bins, count_bins(values, found.classes, bins, progress), log)


@dataclass(frozen=True, slots=True)
class Histograms:
    """The histograms that a picture of the values needs.

    Attributes:
        distributions: the tensor, and those it is shown with.
        bars: of each, in the same bins.
    """

    distributions: tuple[TensorDistribution, ...]
    bars: tuple[HistogramBars, ...]


@dataclass(frozen=True, slots=True)
class BinOptions:
    """How the bars are wanted.

    Attributes:
        room: greatest number of bins.
        log: by magnitude.
        between: only values between these; None for all.
    """

    room: int
    log: bool = False
    between: tuple[float, float] | None = None


def histograms_of(
    session: DiagnosedRun,
    tensors: Sequence[TensorKey | TensorDistribution],
    options: BinOptions,
    progress: ProgressFn = no_progress,
) -> Histograms:
    """Returns distributions and bars of tensors; those whose distribution is given are not measured again.

    Raises:
        UnreadableTensorError: one was not dumped, or its file is broken.
        CancelledError: from ``progress``.
    """
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
