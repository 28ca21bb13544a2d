"""A tensor in one line: type, shape, how its values are spread, and what is wrong with it.

After the idea of lovely-tensors: ``float32 8×10 n=80 ▁▂▅█▇▅▃▂▁▂ x∈[-2.9, 3.1] μ=0.012 σ=0.98 NaN! 3``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import NONE, count, number, percent

if TYPE_CHECKING:
    from tui_debugger.analysis.spread.distribution import Histogram
    from tui_debugger.model import TensorKey, TensorMeta, TensorStats

BARS = "▁▂▃▄▅▆▇█"


def slot_text(key: TensorKey) -> str:
    """``out:0``; ``out:0#2`` for the second writing of a tensor within its step."""
    return f"{key.side.label}:{key.slot}{round_text(key.round)}"


def round_text(round: int, rounds: int = 0) -> str:  # noqa: A002 - see TensorKey
    """``#2``, ``#2 of 3`` where it is said how many there are; empty for a tensor that was written once."""
    return (f"#{round} of {rounds}" if rounds else f"#{round}") if round else ""


def sparkline(counts: Sequence[int]) -> str:
    """One bar per count, the tallest for the greatest. The lowest bar is kept for 0: one outlier stays visible."""
    top = max(counts, default=0)
    steps = len(BARS) - 1
    return "".join(BARS[1 + min(steps - 1, steps * count // top)] if count else BARS[0] for count in counts)


def short(value: float | None) -> str:
    """Four significant digits; whole numbers below a million exactly."""
    if value is None or not math.isfinite(value) or (abs(value) < 1e6 and value == int(value)):
        return number(value)
    return number(float(f"{value:.4g}"))


def shape_text(shape: Sequence[int]) -> str:
    """``8×10``, ``scalar``."""
    return "×".join(map(str, shape)) or "scalar"


def flags(stats: TensorStats) -> str:
    """``NaN! 3 +Inf! 1``: what should not be there; empty for a finite tensor."""
    found = (("NaN!", stats.nan), ("+Inf!", stats.pos_inf), ("-Inf!", stats.neg_inf))
    return " ".join(f"{name} {amount:,}" for name, amount in found if amount)


STATISTIC_TITLES: Final = ("NaN", "Inf", "min", "max", "mean", "zeros")
"""What ``statistic_texts`` are."""


def statistic_texts(stats: TensorStats | None) -> list[str]:
    """The statistics that the tables of commands and reports have; a dash each when nothing is known."""
    if stats is None:
        return [NONE] * len(STATISTIC_TITLES)
    ends = [short(value) for value in (stats.minimum, stats.maximum, stats.mean)]
    return [count(stats.nan), count(stats.inf), *ends, f"{percent(stats.zero_percentage)}%"]


def tensor_parts(meta: TensorMeta | None, stats: TensorStats | None, spread: Histogram | None) -> tuple[str, ...]:
    """The pieces of the line: type, shape, count, bars, range, mean, deviation, and what else there is to say.

    There are always eight, so that several tensors can stand below each other. Unknown ones are empty.
    """
    dtype, shape = (clean(meta.dtype), shape_text(meta.shape)) if meta is not None else ("", "")
    if stats is None:
        elements = f"n={math.prod(meta.shape):,}" if meta is not None else ""
        return (dtype, shape, elements, "", "", "", "", "")
    bars = sparkline(spread.counts) if spread is not None else ""
    head = (dtype, shape, f"n={stats.count:,}", bars)
    if stats.minimum is None:
        return (*head, flags(stats), "", "", "")
    rest = [f"zeros {percent(stats.zero_percentage)}%"] if stats.zero else []
    return (
        *head,
        f"x∈[{short(stats.minimum)}, {short(stats.maximum)}]",
        "" if stats.mean is None else f"μ={short(stats.mean)}",
        "" if stats.variance is None else f"σ={short(math.sqrt(stats.variance))}",
        " ".join([*rest, flags(stats)]).strip(),
    )


def tensor_line(meta: TensorMeta | None, stats: TensorStats | None, spread: Histogram | None = None) -> str:
    """The line as text; safe to print."""
    return " ".join(part for part in tensor_parts(meta, stats, spread) if part)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of pieces below each other, one blank between them; columns that are empty everywhere take no room."""
    columns = max(map(len, rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row) - 1), default=0) for i in range(columns)]
    kept = [i for i in range(columns) if any(i < len(row) and row[i] for row in rows)]
    return [" ".join(row[i].ljust(widths[i]) for i in kept if i < len(row)).rstrip() for row in rows]
