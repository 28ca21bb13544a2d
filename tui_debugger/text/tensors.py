"""Tensors, their steps and their graphs as text: type, shape, range of values, and defects."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE, brief, count, number, percent, runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tui_debugger.model import Frame, TensorKey, TensorMeta, TensorStats
    from tui_debugger.stats.distribution import Histogram


BEFORE_FIRST = "start"
"""The word for the stop before the first step, in place of a number."""


def step_text(step: int, round: int = 0) -> str:  # noqa: A002 - see TensorKey
    """Returns ``3``; ``3#2`` for its second run; ``start`` for values before the first step of a live training."""
    return BEFORE_FIRST if step < 0 else f"{step}{round_text(round)}"


def steps_text(steps: Collection[int]) -> str:
    """Returns ``step 3``, ``steps 0–5``, ``steps start, 0–3, 5``."""
    return f"step{'' if len(steps) == 1 else 's'} {', '.join(_spans(steps)) or 'none'}"


def ranks_text(ranks: Collection[int]) -> str:
    """Returns ``3``, ``0–7``, ``0–3,5``."""
    return ",".join(_spans(ranks))


def _spans(numbers: Collection[int]) -> list[str]:
    spans = runs(sorted(each for each in numbers if each >= 0))
    before = [BEFORE_FIRST for each in numbers if each < 0]
    return [*before, *(str(first) if first == last else f"{first}–{last}" for first, last in spans)]


def run_text(key: TensorKey) -> str:
    """Returns the step of a tensor with its round: ``3``, ``3#2``."""
    return step_text(key.step, key.round)


def order_text(steps: Sequence[int], most: int = 0) -> str:
    """Returns steps in the order in which they ran, ``2,1,4,3``; at most the first ``most`` (0: all)."""
    if most and len(steps) > most:
        return f"{brief(steps[:most])},…"
    return brief(steps)


_NUMBER = re.compile(r"\d+$")


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the shortest text that tells graphs apart: the number at the end (as for ``--graph``), or the name."""
    every = sorted(set(names))
    numbers = [match[0] for name in every if (match := _NUMBER.search(name)) is not None]
    if len(numbers) == len(every) == len(set(numbers)):
        return dict(zip(every, numbers, strict=True))
    return {name: clean(name) for name in every}


def stack_text(stack: Sequence[Frame], of: str = "", node: str = "", *, lines: int = 2) -> tuple[str, ...]:
    """Returns ``train.py:53  e = self.log(x)``: the user's own lines, innermost first, else the framework's.

    The first line names ``of``, the node of the stack, if it differs from ``node``.
    """
    frames = [frame for frame in stack if not frame.context]
    own = [frame for frame in frames if not frame.framework] or frames
    said = [
        f"{clean(frame.path.rpartition('/')[2])}:{frame.line}  {clean(frame.code).strip()}" for frame in own[:lines]
    ]
    if said and of and of != node:
        said[0] = f"source of {clean(of.rpartition('/')[2])}: {said[0]}"
    return tuple(said)


BARS = "▁▂▃▄▅▆▇█"


def slot_text(key: TensorKey) -> str:
    """Returns ``out:0``; ``out:0#2`` for the second writing of a tensor within its step."""
    return f"{key.side.label}:{key.slot}{round_text(key.round)}"


def place_text(key: TensorKey, *, with_graph: bool = False) -> str:
    """Returns a tensor as ``find_node`` takes it: ``NODE:out:0``, if needed ``GRAPH/NODE:out:0#1``."""
    graph = f"{key.graph}/" if with_graph else ""
    return f"{graph}{key.node}:{slot_text(key)}"


def round_text(round: int, rounds: int = 0) -> str:  # noqa: A002 - see TensorKey
    """Returns ``#2``, or ``#2 of 3`` with ``rounds``; empty for a tensor that was written once."""
    return (f"#{round} of {rounds}" if rounds else f"#{round}") if round else ""


def sparkline(counts: Sequence[int]) -> str:
    """Returns one bar per count, the tallest for the greatest. The lowest is kept for 0: an outlier stays visible."""
    top = max(counts, default=0)
    steps = len(BARS) - 1
    return "".join(BARS[1 + min(steps - 1, steps * count // top)] if count else BARS[0] for count in counts)


def short(value: float | None) -> str:
    """Returns four significant digits; whole numbers below a million exactly."""
    if value is None or not math.isfinite(value) or (abs(value) < 1e6 and value == int(value)):
        return number(value)
    return number(float(f"{value:.4g}"))


def index_text(index: Sequence[int]) -> str:
    return f"[{', '.join(map(str, index))}]"


def shape_text(shape: Sequence[int]) -> str:
    """Returns ``8×10`` or ``scalar``."""
    return "×".join(map(str, shape)) or "scalar"


def type_text(meta: TensorMeta | None) -> str:
    return f"{clean(meta.dtype)} {shape_text(meta.shape)}" if meta is not None else ""


def amount(stats: TensorStats, name: str, shown: Callable[[int], str] = count) -> str:
    """Returns a count of a tensor: ``3``; ``≥ 3`` for a lower bound, ``–`` if unknown."""
    value = int(getattr(stats, name))
    if not stats.is_lower_bound(name):
        return shown(value)
    return f"≥ {shown(value)}" if value else NONE


def grouped(value: int) -> str:
    """Returns a count with every digit: ``1,234``."""
    return f"{value:,}"


NOT_FINITE: Final = (("NaN", "nan"), ("+Inf", "pos_inf"), ("-Inf", "neg_inf"))


def flags(stats: TensorStats) -> str:
    """Returns ``NaN! 3 +Inf! 1``; empty for a finite tensor."""
    return " ".join(f"{word}! {amount(stats, name, grouped)}" for word, name in NOT_FINITE if getattr(stats, name))


def tensor_parts(meta: TensorMeta | None, stats: TensorStats | None, spread: Histogram | None) -> tuple[str, ...]:
    """Returns the eight pieces of a line: type, shape, count, bars, range, mean, deviation, remarks; some empty."""
    dtype, shape = (clean(meta.dtype), shape_text(meta.shape)) if meta is not None else ("", "")
    if stats is None:
        elements = f"n={math.prod(meta.shape):,}" if meta is not None else ""
        return (dtype, shape, elements, "", "", "", "", "")
    bars = sparkline(spread.counts) if spread is not None else ""
    head = (dtype, shape, f"n={stats.count:,}" if stats.sized else "", bars)
    if stats.minimum is None:
        return (*head, flags(stats), "", "", "")
    rest = [f"zeros {percent(stats.zero_percentage)}%"] if stats.zero and stats.counted else []
    return (
        *head,
        f"x∈[{short(stats.minimum)}, {short(stats.maximum)}]",
        "" if stats.mean is None else f"μ={short(stats.mean)}",
        "" if stats.variance is None else f"σ={short(math.sqrt(stats.variance))}",
        " ".join([*rest, flags(stats)]).strip(),
    )


def tensor_line(meta: TensorMeta | None, stats: TensorStats | None) -> str:
    return " ".join(part for part in tensor_parts(meta, stats, None) if part)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns aligned lines of pieces, one blank between them; empty columns take no room."""
    columns = max(map(len, rows), default=0)
    widths = [max((len(row[i]) for row in rows if i < len(row) - 1), default=0) for i in range(columns)]
    kept = [i for i in range(columns) if any(i < len(row) and row[i] for row in rows)]
    return [" ".join(row[i].ljust(widths[i]) for i in kept if i < len(row)).rstrip() for row in rows]
