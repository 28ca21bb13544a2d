"""The table of statistics: how each is computed, merged, stored, sent and shown.

All code that goes through the statistics one by one follows ``FIELDS``: records and cache, remote workers, the live
protocol, measurement on a device, JSON, CSV, ``--sort``, ``--metric`` and tables on screen; not watch conditions
(``watch.condition_table``) and MindSpore's ``statistic.csv``.

To add a statistic: an attribute of ``model.TensorStats`` that is None by default, before ``at_least``; a row at the end
of ``FIELDS`` with its ``Recipe``; its name in the lists at the end of this file that should show it; its column in
``docs/json.md``. Code that computes it fast, together with the others (``Recipe.fast``), can follow. This file must not
import numpy: the command line reads it at start-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tui_debugger.model import TensorStats

Sums = tuple[Any, ...]
"""The partial sums of one statistic over a part of a tensor."""
Number = float | int | None


class Form(Enum):
    """The kind of number of a statistic: how it is stored, sent, and printed."""

    COUNT = "i8"
    """A number of elements; 0 when not known."""
    REAL = "f8"
    """A float64, or None: no finite element, or not known."""
    PERCENT = ""
    """Never stored: it follows from counts."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a statistic is computed from values, in its simplest form.

    Attributes:
        identity: the sums of no elements, neutral in ``merge``.
            part: the sums of one block, a non-empty 1-D float64 array (complex elements: magnitudes), by operations
                that numpy's arrays and torch's tensors share.
        every: ``part`` gets NaN and Inf, too; else only finite elements.
            fast: ``kernel/moments.c``, ``blocks.plain_moments`` and ``torch.exact`` compute it together with others in
                one pass; tests compare them with ``part``. Otherwise it costs a call for every block and tensor.
        version: raise it when results change: cached results of an earlier version are measured again.
    """

    identity: Sums
    part: Callable[[Any], Sums]
    merge: Callable[[Sums, Sums], Sums]
    result: Callable[[Sums], Number]
    every: bool = False
    fast: bool = False
    version: int = 1


@dataclass(frozen=True, slots=True)
class StatisticsPlace:
    """The place of a statistic in a ``Statistics`` message of the live protocol.

    Fields with a ``number`` below ``OURS`` are MindSpore's; only our client sends the others. Numbers are never reused.
    ``rounded`` is MindSpore's float32 field for the same statistic, and ``nothing`` its value without finite elements.
    """

    number: int
    name: str
    rounded: str = ""
    nothing: float = 0.0

    @property
    def ours(self) -> bool:
        """Tells whether only our own client sends it."""
        return self.number >= OURS


OURS: Final = 100
"""The first field number that is ours, not MindSpore's."""


@dataclass(frozen=True, slots=True)
class StatisticField:
    """One statistic of a tensor.

    Attributes:
        name: name in the program, and attribute of ``TensorStats`` if it is stored.
        help: a few words for users.
        column: name in JSON, CSV and ``--sort``; empty where only derived statistics are shown.
        title: heading in printed tables; ``label``: name on screen, if different.
        made: how it is computed from values; None: ``of`` derives it from others.
        sent: how it is sent; None: it is not.
        unknown: value in ``TensorStats`` when not known: an older client, a dump of statistics.
        alarm: a number above 0 is a finding in itself.
    """

    name: str
    form: Form
    help: str
    column: str = ""
    title: str = ""
    label: str = ""
    made: Recipe | None = None
    sent: StatisticsPlace | None = None
    of: Callable[[TensorStats], Number] | None = None
    unknown: Number = None
    alarm: bool = False

    def value(self, stats: TensorStats) -> Number:
        found: Number = getattr(stats, self.name) if self.of is None else self.of(stats)
        return found

    @property
    def on_screen(self) -> str:
        return self.label or self.title


def _sums_added(one: Sums, other: Sums) -> Sums:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _extreme(part: Callable[[Any], Any], merge: Callable[[Any, Any], Any], identity: float) -> Recipe:
    def result(sums: Sums) -> Number:
        return float(sums[0]) if math.isfinite(sums[0]) else None

    return Recipe((identity,), lambda x: (part(x),), lambda one, other: (merge(one[0], other[0]),), result, fast=True)


def _mean(part: Callable[[Any], Any]) -> Recipe:
    """Returns the recipe of a mean; its sums are the number of elements and their mean."""

    def merge(one: Sums, other: Sums) -> Sums:
        n = one[0] + other[0]
        return (n, one[1] + (other[1] - one[1]) * (other[0] / n)) if n else one

    return Recipe(
        (0, 0.0),
        lambda x: (len(x), part(x)),
        merge,
        lambda sums: float(sums[1]) if sums[0] else None,
        fast=True,
    )


def _variance_part(x: Any) -> Sums:
    mean = x.mean()
    away = x - mean
    return len(x), mean, (away * away).sum()


def _variance_merged(one: Sums, other: Sums) -> Sums:
    """Merges (number, mean, sum of squared distances from the mean) by Chan's formula."""
    n = one[0] + other[0]
    if not n:
        return one
    delta = other[1] - one[1]
    share = other[0] / n
    return n, one[1] + delta * share, one[2] + other[2] + delta * delta * one[0] * share


def _count(
    name: str,
    help_: str,
    title: str,
    part: Callable[[Any], Any],
    sent: StatisticsPlace,
    *,
    label: str = "",
    every: bool = False,
    alarm: bool = False,
) -> StatisticField:
    made = Recipe((0,), lambda x: (part(x),), _sums_added, lambda sums: int(sums[0]), every=every, fast=True)
    return StatisticField(name, Form.COUNT, help_, name, title, label, made, sent, unknown=0, alarm=alarm)


FIELDS: Final = (
    _count("count", "number of elements", "count", len, StatisticsPlace(5, "count"), every=True),
    _count(
        "nan",
        "number of NaN",
        "NaN",
        lambda x: (x != x).sum(),  # noqa: PLR0124 - only NaN differs from itself
        StatisticsPlace(8, "nan_count"),
        every=True,
        alarm=True,
    ),
    StatisticField(
        "inf",
        Form.COUNT,
        "number of +Inf and -Inf",
        title="Inf",
        of=lambda stats: stats.inf,
        unknown=0,
        alarm=True,
    ),
    _count(
        "pos_inf",
        "number of +Inf",
        "+Inf",
        lambda x: (x == math.inf).sum(),
        StatisticsPlace(10, "pos_inf_count"),
        every=True,
        alarm=True,
    ),
    _count(
        "neg_inf",
        "number of -Inf",
        "-Inf",
        lambda x: (x == -math.inf).sum(),
        StatisticsPlace(9, "neg_inf_count"),
        every=True,
        alarm=True,
    ),
    _count("zero", "number of zeros, -0 included", "zero", lambda x: (x == 0).sum(), StatisticsPlace(11, "zero_count")),
    _count(
        "negative",
        "number of finite values below 0",
        "neg",
        lambda x: (x < 0).sum(),
        StatisticsPlace(6, "neg_zero_count"),
        label="negative",
    ),
    _count(
        "positive",
        "number of finite values above 0",
        "pos",
        lambda x: (x > 0).sum(),
        StatisticsPlace(7, "pos_zero_count"),
        label="positive",
    ),
    StatisticField(
        "minimum",
        Form.REAL,
        "smallest finite value",
        column="min",
        title="min",
        made=_extreme(lambda x: x.min(), min, math.inf),
        sent=StatisticsPlace(100, "minimum", "min_value", math.inf),
    ),
    StatisticField(
        "maximum",
        Form.REAL,
        "greatest finite value",
        column="max",
        title="max",
        made=_extreme(lambda x: x.max(), max, -math.inf),
        sent=StatisticsPlace(101, "maximum", "max_value", -math.inf),
    ),
    StatisticField(
        "mean",
        Form.REAL,
        "mean of the finite values",
        column="mean",
        title="mean",
        made=_mean(lambda x: x.mean()),
        sent=StatisticsPlace(102, "mean", "avg_value"),
    ),
    StatisticField(
        "abs_mean",
        Form.REAL,
        "mean of the finite magnitudes",
        column="abs_mean",
        title="mean |x|",
        made=_mean(lambda x: abs(x).mean()),
        sent=StatisticsPlace(103, "abs_mean"),
    ),
    StatisticField(
        "variance",
        Form.REAL,
        "variance of the finite values, divisor n",
        made=Recipe(
            (0, 0.0, 0.0),
            _variance_part,
            _variance_merged,
            lambda sums: float(sums[2] / sums[0]) if sums[0] else None,
            fast=True,
        ),
        sent=StatisticsPlace(104, "variance"),
    ),
    StatisticField(
        "std",
        Form.REAL,
        "deviation of the finite values, divisor n",
        column="std",
        title="std",
        label="σ",
        of=lambda stats: None if stats.variance is None else math.sqrt(stats.variance),
    ),
    StatisticField(
        "sum_squares",
        Form.REAL,
        "sum of squares of the finite values",
        made=Recipe((0.0,), lambda x: ((x * x).sum(),), _sums_added, lambda sums: float(sums[0]), fast=True),
        sent=StatisticsPlace(105, "sum_squares"),
        unknown=math.nan,
    ),
    StatisticField(
        "norm",
        Form.REAL,
        "root of the sum of squares of the finite values",
        column="norm",
        title="norm",
        of=lambda stats: stats.norm,
    ),
    StatisticField(
        "zero_percentage",
        Form.PERCENT,
        "percentage of zeros",
        title="zeros",
        label="zero %",
        of=lambda stats: stats.zero_percentage if stats.counted and (stats.sized or stats.finite) else None,
    ),
)
"""All statistics, in the order of the columns of JSON and CSV."""

FIELD_BY_NAME: Final[Mapping[str, StatisticField]] = {field.name: field for field in FIELDS}


def made_of(field: StatisticField) -> Recipe:
    if field.made is None:
        msg = f"{field.name} is not stored"
        raise TypeError(msg)
    return field.made


def sums_of(made: Recipe, x: Any) -> Sums:
    """Returns the sums of a block, which may be empty."""
    return made.part(x) if len(x) else made.identity


FAST: Final = tuple(field for field in FIELDS if field.made is not None and field.made.fast)
"""The statistics that one pass computes together, in the order of the attributes of ``TensorStats``."""
OTHERS: Final = tuple((field.name, field.made) for field in FIELDS if field.made is not None and not field.made.fast)
"""The other statistics computed from values, one by one."""
STORED: Final = (*FAST, *(FIELD_BY_NAME[name] for name, _ in OTHERS))
"""The statistics that are measured and kept in records, in this order."""
STORED_NAMES: Final = tuple(field.name for field in STORED)
VERSIONS: Final = tuple((field.name, made_of(field).version) for field in STORED)
"""The versions that decide whether cached results are still valid."""
SENT: Final = tuple((field, field.sent) for field in STORED if field.sent is not None)
COLUMNS: Final = tuple(field for field in FIELDS if field.column)
"""The statistics in JSON, CSV and ``--sort``."""


def _named(names: str) -> tuple[StatisticField, ...]:
    return tuple(FIELD_BY_NAME[name] for name in names.split())


# -- where statistics are shown, and in which order --------------------------------------------------

STAT_TABLE: Final = _named("count nan pos_inf neg_inf zero minimum maximum mean abs_mean std norm")
"""The columns that ``tdbg stat`` prints."""
TENSOR_TABLE: Final = _named("nan inf minimum maximum mean zero_percentage")
"""The columns of lists of tensors, on screen and in reports. Narrow places show only the first four."""
TENSOR_MOMENTS: Final = _named("minimum maximum mean std")
"""Above the values of a tensor on screen, first line."""
TENSOR_COUNTS: Final = _named("count zero negative positive nan pos_inf neg_inf")
"""Above the values of a tensor on screen, second line."""
DISTRIBUTION_MOMENTS: Final = _named("minimum maximum mean std abs_mean norm")
"""Above the distribution of a tensor."""
DISTRIBUTION_COUNTS: Final = _named("nan neg_inf negative zero positive pos_inf")
"""Every element is in exactly one of these counts, from the least to the greatest value."""
COMPARED: Final = _named("minimum maximum mean abs_mean std norm")
"""Shown for two tensors and for their difference."""
COMPARED_COUNTS: Final = _named("zero nan pos_inf neg_inf")
"""Shown there, too, where a count is not 0."""
METRICS: Final[Mapping[str, StatisticField]] = {
    "min": FIELD_BY_NAME["minimum"],
    "mean": FIELD_BY_NAME["mean"],
    "max": FIELD_BY_NAME["maximum"],
    "norm": FIELD_BY_NAME["norm"],
    "abs_mean": FIELD_BY_NAME["abs_mean"],
    "std": FIELD_BY_NAME["std"],
    "nan": FIELD_BY_NAME["nan"],
    "inf": FIELD_BY_NAME["inf"],
    "zero": FIELD_BY_NAME["zero_percentage"],
}
"""The statistics that ``tdbg trend --metric`` takes, and the trend view draws."""
QUANTITIES: Final[Mapping[str, StatisticField]] = {
    **{field.column: field for field in COLUMNS},
    "inf": FIELD_BY_NAME["inf"],
    "zero_pct": FIELD_BY_NAME["zero_percentage"],
    "variance": FIELD_BY_NAME["variance"],
}
"""The statistics that an expression may name: those of JSON and CSV, and a few more."""
