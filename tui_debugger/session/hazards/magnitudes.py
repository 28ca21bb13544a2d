"""Operators whose results can be too large for the element type: products, sums, casts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tui_debugger.session.hazards.cases import Case, overflow_cause
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.stats.blocks import peak
from tui_debugger.text.phrases import limits_of, num

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def product(case: Case) -> Iterator[Cause]:
    """A product, element by element."""
    tops, limits = [peak(case.stats(slot)) for slot in (0, 1)], case.limits
    if limits is None or tops[0] is None or tops[1] is None:
        return
    yield overflow_cause(limits, tops[0] * tops[1], f"{num(tops[0])} × {num(tops[1])}", "product")


def square(case: Case) -> Iterator[Cause]:
    """A square."""
    top, limits = peak(case.stats(0)), case.limits
    if limits is not None and top is not None:
        yield overflow_cause(limits, top * top, f"{num(top)} squared", "square")


def matmul(case: Case) -> Iterator[Cause]:
    """Matrix products and convolutions: sums of products."""
    first, second, limits = case.stats(0), case.stats(1), case.limits
    length = _inner_length(case)
    if first is None or second is None or limits is None or length is None:
        yield Cause("a sum of products that is too large", "an input was not dumped", UNKNOWN)
        return
    one, other = peak(first), peak(second)
    if one is None or other is None:
        return
    worst = one * other * length
    title = f"a sum of products beyond the range of {limits.name}"
    how = f"{length:,} products of up to {num(one)} × {num(other)} come to {num(worst)} at most"
    if worst <= limits.largest:
        yield Cause(title, f"{how}; {limits.name} holds {num(limits.largest)}", RULED_OUT)
    elif one * other > limits.largest:
        yield Cause(title, f"{how}; even one of them can exceed {num(limits.largest)}", LIKELY)
    else:
        yield Cause(title, f"{how}, more than {limits.name} can hold, {num(limits.largest)}", POSSIBLE)


def _inner_length(case: Case) -> int | None:
    """Products per element of the output: its smallest upper bound that shapes alone give."""
    shapes = [row.meta.shape for row in case.inputs[:2] if row.meta is not None]
    if len(shapes) < 2 or not all(shapes):
        return None
    if case.name.startswith("conv"):  # every output channel has a filter of its own
        return math.prod(shapes[1][1:])
    common = set(shapes[0][-2:]) & set(shapes[1][-2:])
    return max(common) if common else max(shapes[0])


def total(case: Case) -> Iterator[Cause]:
    """A sum or mean over many elements."""
    stats, limits = case.stats(0), case.limits
    if stats is None or limits is None or stats.abs_mean is None:
        yield Cause("a sum that is too large", "its input was not dumped", UNKNOWN)
        return
    each = max(stats.count // case.out.count, 1) if case.out.count else stats.count
    meta = case.inputs[0].meta
    if case.name == "cumsum" and meta is not None:  # its last elements are sums over a whole dimension
        each = max(meta.shape, default=1)
    top = peak(stats) or 0.0
    title = f"a sum beyond the range of {limits.name}"
    how = f"{each:,} elements are added, of {num(stats.abs_mean)} on average and {num(top)} at most"
    if each * top <= limits.largest:
        yield Cause(title, f"{how}: at most {num(each * top)}, {limits.name} holds {num(limits.largest)}", RULED_OUT)
    elif each * stats.abs_mean > limits.largest:
        yield Cause(title, f"{how}: about {num(each * stats.abs_mean)}, above {num(limits.largest)}", LIKELY)
    else:
        yield Cause(title, f"{how}; {limits.name} holds {num(limits.largest)}", POSSIBLE)


def addition(case: Case) -> Iterator[Cause]:
    """A sum, element by element."""
    tops = [top for row in case.inputs if (top := peak(row.stats)) is not None]
    if case.limits is not None and len(tops) > 1:
        yield overflow_cause(case.limits, sum(tops), " + ".join(map(num, tops[:4])), "sum")


def cast(case: Case) -> Iterator[Cause]:
    """A change of the element type."""
    stats, limits = case.stats(0), case.limits
    source = limits_of(case.inputs[0].meta) if case.inputs else None
    top = peak(stats)
    if stats is None or limits is None or top is None:
        yield Cause("a value that the new type cannot hold", "its input or its types are not known", UNKNOWN)
        return
    of = f" of {source.name}" if source is not None else ""
    if top > limits.largest:
        evidence = f"in:0 reaches {num(top)}{of}; {limits.name} ends at {num(limits.largest)}"
        yield Cause(f"a value beyond the range of {limits.name}", evidence, LIKELY)
    else:
        evidence = f"in:0 reaches {num(top)}{of}; {limits.name} holds {num(limits.largest)}"
        yield Cause(f"a value beyond the range of {limits.name}", evidence, RULED_OUT)
