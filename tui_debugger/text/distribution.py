"""The distribution of a tensor's values as text: counts, moments, percentiles, bins, headroom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tui_debugger.model import TensorStats
from tui_debugger.stats.distribution import Bin
from tui_debugger.stats.fields import DISTRIBUTION_COUNTS, DISTRIBUTION_MOMENTS, TENSOR_TABLE, Form, StatisticField
from tui_debugger.stats.quantiles import CastResult, Headroom, Quantiles, capacity
from tui_debugger.text.numbers import NONE, number, percent, plural, share
from tui_debugger.text.tables import Column
from tui_debugger.text.tensors import amount, grouped, short
from tui_debugger.text.writer import Meaning, meant


def counts_of(stats: TensorStats) -> tuple[tuple[str, int, str], ...]:
    """Returns name, number and text of each kind of element, in ascending order; each element is of one kind."""
    return tuple(
        (field.on_screen, int(field.value(stats) or 0), amount(stats, field.name, grouped))
        for field in DISTRIBUTION_COUNTS
    )


def moments_of(stats: TensorStats) -> tuple[tuple[str, float | None], ...]:
    return tuple((field.on_screen, field.value(stats)) for field in DISTRIBUTION_MOMENTS)


def bin_text(each: Bin) -> str:
    """Returns ``[-2, -1)``, or a single value."""
    if each.low == each.high:
        return number(each.low)
    opening, closing = "[" if each.with_low else "(", "]" if each.with_high else ")"
    return f"{opening}{_edge(each.low)}, {_edge(each.high)}{closing}"


def _edge(value: float) -> str:
    """Returns six digits, so that neighbouring edges differ."""
    return f"{value:.6g}" if math.isfinite(value) else number(value)


def taken_text(dtype: str, greatest: float | None) -> str:
    """Returns how the numbers differ from the elements; empty if they are the same."""
    if dtype.startswith("complex"):
        return "magnitudes of complex values"
    if dtype in {"int64", "uint64"} and (greatest or 0) > 2**53:
        return "as float64: whole numbers above 2^53 are rounded"
    return ""


def range_text(greatest: float | None, dtype: str) -> str:
    """Returns ``max |x| 59600 is 91 % of float16's range (65504)``; empty without a limit."""
    most = capacity(dtype)
    if most is None or not greatest:
        return ""
    part = 100 * greatest / most
    if part >= 0.1:
        return f"max |x| {short(greatest)} is {percent(min(part, 100.0))} % of {dtype}'s range ({short(most)})"
    return f"max |x| {short(greatest)} is {_times(most / greatest)} below {dtype}'s greatest, {short(most)}"


def floor_text(room: Headroom) -> str:
    """Returns ``least |x| 3e-08 is below its least normal, 6.104e-05``."""
    if room.own is None or room.least is None:
        return ""
    said, normal = f"least |x| above 0, {short(room.least)}, is", room.own.normal
    if room.least >= normal:
        return f"{said} {_times(room.least / normal)} its least normal"
    return f"{said} below its least normal, {short(normal)}"


def conversion_items(conversion: CastResult, finite: int) -> list[str]:
    """Returns ``0.3 % overflow (12)``, ``2.1 % become 0 (84)``, ``5 % are subnormal (200)``; empty if all fit."""
    parts = (
        (conversion.overflowing, "overflow"),
        (conversion.vanishing, "become 0"),
        (conversion.subnormal, "are subnormal"),
    )
    return [f"{share(count, finite)} {what} ({count:,})" for count, what in parts if count]


def counts_items(stats: TensorStats, *, shares: bool = True) -> list[str]:
    exact = stats.sized and not stats.at_least and stats.counted
    return [
        f"{name} {text}" + (f" ({share(count, stats.count)})" if shares and count and exact else "")
        for name, count, text in counts_of(stats)
    ]


def elements_text(stats: TensorStats) -> str:
    return plural(stats.count, "element") if stats.sized else "elements not counted"


def moments_items(stats: TensorStats) -> list[str]:
    return [f"{name} {number(value)}" for name, value in moments_of(stats)]


def percentile_items(found: Quantiles) -> list[str]:
    return [f"{part:g} %: {short(value)}" for part, value in zip(found.percents, found.values, strict=True)]


def headroom_items(room: Headroom, dtype: str) -> list[list[str]]:
    """Returns the losses in the tensor's own type, in each other type, and the types without losses."""
    lines = [[text for text in (range_text(room.greatest, dtype), floor_text(room)) if text]]
    fitting = []
    for conversion in room.conversions if room.finite else ():
        name, own = conversion.limits.name, conversion.limits == room.own
        items = conversion_items(conversion, room.finite)
        if items:
            lines.append([f"{'as' if own else 'in'} {name}: {items[0]}", *items[1:]])
        elif not own:
            fitting.append(name)
    if fitting:
        lines.append([f"in {', '.join(fitting)}: all in normal range or 0"])
    return [line for line in lines if line]


def bins_text(bins: Sequence[Bin], *, log: bool) -> str:
    if not log:
        return f"{plural(len(bins), 'bin')} of equal width"
    first = next((each for each in bins if each.low > 0 or each.high < 0), None)
    said = f"{plural(len(bins), 'bin')} by magnitude"
    if first is None:
        return said
    inner, outer = sorted((abs(first.low), abs(first.high)))
    ratio = math.log2(outer) - math.log2(inner) if 0 < inner < outer < math.inf else 0
    if ratio >= 1:
        return f"{said}, {plural(round(ratio), 'octave')} each"
    octave = math.ldexp(1.0, math.frexp(inner)[1] - 1)
    return f"{said}, {round(octave / (outer - inner)):,} an octave" if outer < math.inf and inner else said


def packed(head: str, items: Sequence[str], width: int, separator: str = " · ") -> list[str]:
    """Returns lines with as many items side by side as fit; an item is broken only if wider than a line."""
    lines: list[str] = []
    line = head
    for item in items:
        longer = f"{line}{separator if line and line != head else ''}{item}"
        if len(longer) > width and line not in {"", head}:
            lines.append(line)
            longer = item
        line = longer
    return [*lines, line] if line else lines


def _times(factor: float) -> str:
    if factor < 1e4:
        return f"{factor:.3g}×"
    digit, _, exponent = f"{factor:.0e}".partition("e")
    return f"{digit}e{int(exponent)}×"


_WEIGHTS: Final = {"nan": 8, "inf": 8, "pos_inf": 7, "neg_inf": 7, "minimum": 6, "maximum": 6, "mean": 5, "std": 4}
"""The weights of statistics by name: on a narrow terminal the least go first, others before these."""


def statistic_columns(fields: Sequence[StatisticField]) -> list[Column]:
    return [Column(field.title, right=True, weight=_WEIGHTS.get(field.name, 1)) for field in fields]


def statistic_cell(field: StatisticField, value: float | None, *, at_least: bool = False) -> str:
    """Returns a statistic for a table, counts with every digit; ``at_least``: the value is a lower bound."""
    if value is None:
        return NONE
    text = str(value) if isinstance(value, int) else str(int(value)) if field.form is Form.COUNT else number(value)
    if at_least:
        text = f"≥ {text}" if value else NONE
    return meant(text, Meaning.FINDING if field.alarm and value else None)


def statistic_cells(fields: Sequence[StatisticField], stats: TensorStats | None) -> list[str]:
    if stats is None:
        return [NONE] * len(fields)
    return [
        statistic_cell(
            field, field.value(stats), at_least=field.form is Form.COUNT and stats.is_lower_bound(field.name)
        )
        for field in fields
    ]


STATISTIC_TITLES: Final = tuple(field.title for field in TENSOR_TABLE)


def statistic_texts(stats: TensorStats | None) -> list[str]:
    if stats is None:
        return [NONE] * len(STATISTIC_TITLES)
    return [_statistic_text(field, stats) for field in TENSOR_TABLE]


def _statistic_text(field: StatisticField, stats: TensorStats) -> str:
    if field.form is Form.COUNT:
        return amount(stats, field.name)
    value = field.value(stats)
    if value is None:
        return NONE
    return short(value) if field.form is Form.REAL else f"{percent(value)}%"
