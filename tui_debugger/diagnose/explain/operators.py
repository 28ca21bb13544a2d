"""Reasons why an operator makes NaN or Inf from finite inputs.

Each function uses statistics only. It states what is certain (``3 of 1,024 inputs are 0: their logarithm is -Inf``),
and leaves open what only the elements themselves could tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.guidance import Cause, Standing, weighed
from tui_debugger.graph.categories import plain_type
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.blocks import peak
from tui_debugger.stats.quantiles import FloatLimits
from tui_debugger.text.numbers import are
from tui_debugger.text.phrases import bad_counts, finite_words, limits_of, may_be_zero, num, part_of


@dataclass(frozen=True, slots=True)
class BadOperator:
    """An operator that made NaN or Inf: its inputs by slot, and the type and statistics of its output."""

    type: str
    inputs: Sequence[TensorRow]
    meta: TensorMeta | None
    out: TensorStats

    def stats(self, slot: int) -> TensorStats | None:
        return next((row.stats for row in self.inputs if row.slot == slot), None)

    @property
    def name(self) -> str:
        return type_name(self.type)

    @property
    def limits(self) -> FloatLimits | None:
        return limits_of(self.meta)


LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
KEEP_AWAY: Final = "Keep the argument away from there: add an epsilon, clamp it, or mask those samples."
"""The remedy for arguments where a function has no finite value."""
QUOTIENTS: Final = frozenset({"div", "realdiv", "truediv", "divide"})
"""Divisions in:0 / in:1, by ``type_name``."""


def type_name(op_type: str) -> str:
    """Returns an operator type as the rules spell it: lower case, without version and vendor suffixes."""
    name = plain_type(op_type).removeprefix("aclnn")
    for suffix in ("ext", "v2", "v3"):
        name = name.removesuffix(suffix)
    return name


def accounts(expected: int, made: int, kind: str, *of: TensorStats) -> str:
    """Tells whether ``expected`` results are all bad ones that were ``made``, where ``of`` were counted exactly."""
    if expected == made and made and _are_counted(*of):
        return f": that is every {kind.lstrip('+-')} of the output"
    return ""


def _are_counted(*of: TensorStats) -> bool:
    return all(each.counted and not each.at_least for each in of)


def overflow_cause(limits: FloatLimits, size: float, how: str, what: str) -> Cause:
    beyond = size > limits.largest
    words = f"{how} {'exceeds' if beyond else 'stays below'} what {limits.name} can hold, {num(limits.largest)}"
    return weighed(f"a {what} beyond the range of {limits.name}", words, beyond)


BOTH_WAYS: Final = ("sinh", "cosh")
"""Exponentials that grow on both sides of 0."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The arguments for which a function has no finite value, as far as counts and extremes tell.

    Attributes:
        function: its name in a sentence.
        slot: input that is the argument.
        zero, negative: the function's value for 0 and for negative numbers; empty: something finite.
        low, high: the function is finite between these; also at the ends unless ``open_ends``.
    """

    function: str
    slot: int = 0
    zero: str = ""
    negative: str = ""
    low: float = -math.inf
    high: float = math.inf
    open_ends: bool = False

    def __call__(self, operation: BadOperator) -> Iterator[Cause]:
        stats = operation.stats(self.slot)
        title = f"an argument that {self.function} is not defined for"
        if stats is None:
            yield Cause(title, f"its input in:{self.slot} was not dumped", UNKNOWN)
            return
        found = list(self._outside(operation, stats))
        yield from found
        if not found and not stats.bad and ((self.zero and may_be_zero(stats)) or stats.minimum is None):
            words = f"in:{self.slot} is {finite_words(stats)}, and its zeros and negative values were not counted"
            yield Cause(title, words, UNKNOWN if stats.finite else RULED_OUT)
        elif not found and not stats.bad:
            yield Cause(title, f"in:{self.slot} is {finite_words(stats)}: {self.function} is finite there", RULED_OUT)

    def _outside(self, operation: BadOperator, stats: TensorStats) -> Iterator[Cause]:
        if self.zero and stats.zero:
            made = operation.out.nan if self.zero == "NaN" else operation.out.inf
            yield Cause(
                f"{self.function} of 0",
                f"{part_of(stats, 'zero')} of in:{self.slot} {are(stats.zero)} 0, where {self.function} gives "
                f"{self.zero}{accounts(stats.zero, made, self.zero, stats, operation.out)}",
                LIKELY,
                KEEP_AWAY,
            )
        if self.negative and stats.negative:
            yield Cause(
                f"{self.function} of a negative number",
                f"{part_of(stats, 'negative')} of in:{self.slot} {are(stats.negative)} negative (down to "
                f"{num(stats.minimum)}), where {self.function} gives {self.negative}"
                f"{accounts(stats.negative, operation.out.nan, self.negative, stats, operation.out)}",
                LIKELY,
                KEEP_AWAY,
            )
        if stats.minimum is None or stats.maximum is None:
            return
        for beyond, end, value in (
            (stats.minimum < self.low, self.low, stats.minimum),
            (stats.maximum > self.high, self.high, stats.maximum),
        ):
            if beyond or (self.open_ends and value == end):
                gives = "an infinity at" if value == end else "NaN beyond"
                yield Cause(
                    f"{self.function} outside its domain",
                    f"in:{self.slot} reaches {num(value)}; {self.function} gives {gives} {num(end)}",
                    LIKELY,
                )


def _no_zero(where: str, below: TensorStats) -> Cause:
    if may_be_zero(below):
        return Cause("division by 0", f"the zeros of {where} were not counted: it is {finite_words(below)}", UNKNOWN)
    return Cause("division by 0", f"{where} has no 0: it is {finite_words(below)}", RULED_OUT)


def divide(operation: BadOperator) -> Iterator[Cause]:
    """Division by element; a broadcast denominator counts as often as it is used."""
    below, above = operation.stats(1), operation.stats(0)
    remainder = operation.name.endswith(("mod", "remainder"))
    title = "division by 0"
    if below is None:
        yield Cause(title, "the denominator, in:1, was not dumped", UNKNOWN)
        return
    if below.zero:
        whole = below.zero * (operation.out.count // below.count if below.count else 0)
        bad = operation.out.nan + operation.out.inf
        spread = " (each divides several elements)" if whole > below.zero else ""
        all_of_them = whole == bad and bad and _are_counted(below, operation.out)
        total = f"; {whole:,} elements are divided by 0{spread}: that is every bad one" if all_of_them else ""
        kind = "; the remainder is NaN there" if remainder else _quotient(operation.out, above)
        yield Cause(
            title,
            f"{part_of(below, 'zero')} of the denominator in:1 {are(below.zero)} 0{kind}{total}",
            LIKELY,
            KEEP_AWAY,
        )
    elif not below.bad:
        yield _no_zero("the denominator in:1", below)
    if not remainder:
        yield from _tiny(operation, below, "in:1", peak(above))


def _tiny(operation: BadOperator, below: TensorStats, label: str, top: float | None) -> Iterator[Cause]:
    """Yields whether a denominator without 0 is so small that the quotient exceeds the type."""
    limits = operation.limits
    if limits is None or not top or below.zero or below.minimum is None or below.maximum is None:
        return
    if below.negative and below.positive:
        if top / limits.smallest > limits.largest:
            words = f"{label} is {finite_words(below)}; how close to 0 its values come, the statistics do not tell"
            yield Cause("a denominator close to 0", words, POSSIBLE)
        return
    least = min(abs(below.minimum), abs(below.maximum))
    yield overflow_cause(limits, top / least, f"{num(top)} / {num(least)}", "quotient")


def _quotient(out: TensorStats, above: TensorStats | None) -> str:
    if out.nan and not out.inf:
        zeros = f" (in:0 has {above.zero:,})" if above is not None and above.zero else ""
        return f"; NaN without Inf means that 0 is divided by 0 there{zeros}"
    if out.inf and not out.nan:
        return "; Inf without NaN means that something else than 0 is divided by it"
    return "; 0/0 gives NaN and everything else Inf"


def reciprocal(operation: BadOperator) -> Iterator[Cause]:
    below = operation.stats(0)
    if below is None:
        yield Cause("division by 0", "its input in:0 was not dumped", UNKNOWN)
        return
    if below.zero:
        words = f"{part_of(below, 'zero')} of in:0 {are(below.zero)} 0, where 1 / x gives Inf"
        words += accounts(below.zero, operation.out.inf, "Inf", below, operation.out)
        yield Cause("division by 0", words, LIKELY, KEEP_AWAY)
    elif not below.bad:
        yield _no_zero("in:0", below)
    yield from _tiny(operation, below, "in:0", 1.0)


def exponential(operation: BadOperator) -> Iterator[Cause]:
    stats, limits = operation.stats(0), operation.limits
    title = "an exponent that is too large"
    if stats is None or limits is None:
        yield Cause(title, "its input was not dumped" if stats is None else "the element type is unknown", UNKNOWN)
        return
    kind = operation.name
    largest = _exponent_limit(kind, limits.largest)
    top = peak(stats) if kind in BOTH_WAYS else stats.maximum
    if top is None:
        return
    if top > largest:
        words = f"in:0 reaches {num(top)}; above {num(largest)} the exponential exceeds what {limits.name} can hold"
        yield Cause(title, words, LIKELY)
    elif not stats.bad:
        yield Cause(title, f"in:0 reaches {num(top)}; {limits.name} overflows above {num(largest)} only", RULED_OUT)


def _exponent_limit(kind: str, largest: float) -> float:
    """The argument above which an exponential exceeds the largest number of a type."""
    if kind == "exp2":
        return math.log2(largest)
    # sinh and cosh are half the difference and sum of e^x and e^-x.
    return math.log(largest) + (math.log(2) if kind in BOTH_WAYS else 0.0)


def power(operation: BadOperator) -> Iterator[Cause]:
    base, exponent, limits = operation.stats(0), operation.stats(1), operation.limits
    if base is None or exponent is None:
        missing = "base in:0" if base is None else "exponent in:1"
        yield Cause("a power that is not defined", f"the {missing} was not dumped", UNKNOWN)
        return
    if base.negative and not _whole(exponent):
        yield Cause(
            "a negative base with a fractional exponent",
            f"{part_of(base, 'negative')} of the base in:0 {are(base.negative)} negative and the exponent in:1 "
            f"is {finite_words(exponent)}",
            LIKELY,
            KEEP_AWAY,
        )
    if base.zero and exponent.negative:
        yield Cause(
            "0 to a negative power",
            f"{part_of(base, 'zero')} of the base {are(base.zero)} 0, the exponent is {finite_words(exponent)}",
            LIKELY,
            KEEP_AWAY,
        )
    top = peak(base)
    if limits is not None and top and top > 1 and exponent.maximum is not None and exponent.maximum > 0:
        power = exponent.maximum * math.log(top)
        size = math.exp(power) if power < 700 else math.inf
        yield overflow_cause(limits, size, f"{num(top)} to the power of {num(exponent.maximum)}", "power")


def _whole(stats: TensorStats) -> bool:
    """Tells whether an exponent is a single whole number; statistics do not tell it for several values."""
    same = stats.minimum is not None and stats.minimum == stats.maximum
    return same and float(stats.minimum or 0.0).is_integer()


def product(operation: BadOperator) -> Iterator[Cause]:
    tops, limits = [peak(operation.stats(slot)) for slot in (0, 1)], operation.limits
    if limits is None or tops[0] is None or tops[1] is None:
        return
    yield overflow_cause(limits, tops[0] * tops[1], f"{num(tops[0])} × {num(tops[1])}", "product")


def square(operation: BadOperator) -> Iterator[Cause]:
    top, limits = peak(operation.stats(0)), operation.limits
    if limits is not None and top is not None:
        yield overflow_cause(limits, top * top, f"{num(top)} squared", "square")


def matmul(operation: BadOperator) -> Iterator[Cause]:
    first, second, limits = operation.stats(0), operation.stats(1), operation.limits
    length = _inner_length(operation)
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


def _inner_length(operation: BadOperator) -> int | None:
    """The number of products per element of the output: the smallest upper bound that the shapes give."""
    shapes = [row.meta.shape for row in operation.inputs[:2] if row.meta is not None]
    if len(shapes) < 2 or not all(shapes):
        return None
    if operation.name.startswith("conv"):  # the weight's dimensions without output channels
        return math.prod(shapes[1][1:])
    common = set(shapes[0][-2:]) & set(shapes[1][-2:])
    return max(common) if common else max(shapes[0])


def total(operation: BadOperator) -> Iterator[Cause]:
    stats, limits = operation.stats(0), operation.limits
    if stats is None or limits is None or stats.abs_mean is None or not (stats.sized and operation.out.sized):
        unknown = stats is not None and limits is not None
        what = "how large its input is was not recorded" if unknown else "its input was not dumped"
        yield Cause("a sum that is too large", what, UNKNOWN)
        return
    each = max(stats.count // operation.out.count, 1) if operation.out.count else stats.count
    meta = operation.inputs[0].meta
    if operation.name == "cumsum" and meta is not None:  # its last elements are sums over a whole dimension
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


def addition(operation: BadOperator) -> Iterator[Cause]:
    tops = [top for row in operation.inputs if (top := peak(row.stats)) is not None]
    if operation.limits is not None and len(tops) > 1:
        yield overflow_cause(operation.limits, sum(tops), " + ".join(map(num, tops[:4])), "sum")


def cast(operation: BadOperator) -> Iterator[Cause]:
    stats, limits = operation.stats(0), operation.limits
    source = limits_of(operation.inputs[0].meta) if operation.inputs else None
    top = peak(stats)
    if stats is None or limits is None or top is None:
        yield Cause("a value that the new type cannot hold", "its input or its types are not known", UNKNOWN)
        return
    of = f" of {source.name}" if source is not None else ""
    beyond = top > limits.largest
    words = f"in:0 reaches {num(top)}{of}; {limits.name} {'ends at' if beyond else 'holds'} {num(limits.largest)}"
    yield weighed(f"a value beyond the range of {limits.name}", words, beyond)


# -- normalisations, losses, tables ----------------------------------------------------------------


def normalisation(operation: BadOperator) -> Iterator[Cause]:
    stats = operation.stats(0)
    if stats is None or stats.variance is None:
        yield Cause("a variance of 0", "its input was not dumped", UNKNOWN)
        return
    spread = math.sqrt(stats.variance)
    if not spread:
        yield Cause(
            "a variance of 0",
            f"in:0 is {finite_words(stats)}, so nothing but epsilon stays below the line",
            LIKELY,
            KEEP_AWAY,
        )
    elif operation.out.bad and operation.limits is not None and operation.limits.largest < 1e5:
        size = peak(stats) or 0.0
        yield overflow_cause(
            operation.limits, size * size, f"{num(size)} squared, on the way to the variance,", "square"
        )
    else:
        yield Cause(
            "a group with a variance of 0",
            f"in:0 as a whole spreads by {num(spread)}; a constant row or channel in it would give 0/0 without epsilon",
            POSSIBLE,
        )


def softmax(operation: BadOperator) -> Iterator[Cause]:
    stats = operation.stats(0)
    if stats is None:
        yield Cause("a row that is masked as a whole", "its input was not dumped", UNKNOWN)
    elif stats.neg_inf:
        yield Cause(
            "a row that is masked as a whole",
            f"{part_of(stats, 'neg_inf')} of in:0 {are(stats.neg_inf)} -Inf: a row of nothing else has no "
            "probabilities, only NaN",
            LIKELY,
        )
    elif not stats.bad:
        yield Cause(
            "logits that overflow",
            f"in:0 is {finite_words(stats)}, which the maximum that is subtracted first keeps harmless",
            RULED_OUT,
        )


def cross_entropy(operation: BadOperator) -> Iterator[Cause]:
    logits, labels = operation.stats(0), operation.stats(1)
    meta = next((row.meta for row in operation.inputs if row.slot == 0), None)
    if labels is not None and labels.maximum is not None and meta is not None and meta.shape:
        classes = meta.shape[-1]
        wrong = labels.maximum >= classes or (labels.minimum or 0) < 0
        words = f"the labels in:1 are {finite_words(labels)}, the logits have {classes:,} classes"
        yield weighed("a label that is no class", words, wrong)
    if logits is not None and not logits.bad:
        yield Cause("extreme logits", f"in:0 is {finite_words(logits)}", POSSIBLE)


def binary_entropy(operation: BadOperator) -> Iterator[Cause]:
    stats = operation.stats(0)
    if stats is None or stats.minimum is None or stats.maximum is None:
        yield Cause("a probability of exactly 0 or 1", "the predictions, in:0, were not dumped", UNKNOWN)
        return
    outside = stats.minimum < 0 or stats.maximum > 1
    ends = stats.zero > 0 or stats.maximum == 1
    words = f"the predictions in:0 are {finite_words(stats)}, {part_of(stats, 'zero')} {are(stats.zero)} 0"
    if outside:
        yield Cause("predictions that are no probabilities", words, LIKELY)
    yield Cause(
        "a probability of exactly 0 or 1",
        f"{words}; the loss takes the logarithm of p and of 1 - p",
        LIKELY if ends else RULED_OUT,
        KEEP_AWAY,
    )


def lookup(operation: BadOperator) -> Iterator[Cause]:
    table, indices = operation.inputs[0].meta if operation.inputs else None, operation.stats(1)
    if table is None or not table.shape or indices is None or indices.maximum is None:
        yield Cause("an index outside the table", "the table or the indices were not dumped", UNKNOWN)
        return
    wrong = indices.maximum >= table.shape[0] or (indices.minimum or 0) < 0
    words = f"the indices in:1 are {finite_words(indices)}, the table in:0 has {table.shape[0]:,} rows"
    yield weighed("an index outside the table", words, wrong)


def no_rule_says(operation: BadOperator) -> Cause:
    """The cause where no rule explains the operator, and its inputs are finite or infinite by design."""
    finite = not any(row.stats is not None and row.stats.bad for row in operation.inputs)
    inputs = "its inputs are finite" if finite else "its inputs have no Inf but those by design"
    tops = [f"in:{row.slot} {finite_words(row.stats)}" for row in operation.inputs if row.stats is not None]
    return Cause(
        "the operator itself, or its kernel",
        f"{inputs} ({'; '.join(tops[:4])}), yet it made {bad_counts(operation.out)}; no rule for the type "
        f"{operation.type} says why",
        POSSIBLE,
    )
