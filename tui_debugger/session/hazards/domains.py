"""Operators that are not defined everywhere: logarithms, roots, divisions, powers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tui_debugger.model import TensorStats
from tui_debugger.session.hazards.cases import Case, accounts, are, overflow_cause
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.stats.blocks import peak
from tui_debugger.text.phrases import finite_words, num, of_all

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
BOTH_WAYS: Final = ("sinh", "cosh")
"""Exponentials that grow on both sides of 0."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Which arguments a function has no finite value for, as far as counts and extremes tell.

    Attributes:
        function: its name in a sentence.
        slot: input that is the argument.
        zero, negative: what it makes of 0 and of negative numbers; empty: something finite.
        low, high: finite values lie within, the ends included unless ``open_ends``.
        open_ends: the ends give an infinity.
    """

    function: str
    slot: int = 0
    zero: str = ""
    negative: str = ""
    low: float = -math.inf
    high: float = math.inf
    open_ends: bool = False

    def __call__(self, case: Case) -> Iterator[Cause]:
        """What of the argument lies outside."""
        stats = case.stats(self.slot)
        title = f"an argument that {self.function} is not defined for"
        if stats is None:
            yield Cause(title, f"its input in:{self.slot} was not dumped", UNKNOWN)
            return
        found = list(self._outside(case, stats))
        yield from found
        if not found and not stats.bad:
            yield Cause(title, f"in:{self.slot} is {finite_words(stats)}: {self.function} is finite there", RULED_OUT)

    def _outside(self, case: Case, stats: TensorStats) -> Iterator[Cause]:
        if self.zero and stats.zero:
            made = case.out.nan if self.zero == "NaN" else case.out.inf
            yield Cause(
                f"{self.function} of 0",
                f"{of_all(stats.zero, stats.count)} of in:{self.slot} {are(stats.zero)} 0, where {self.function} gives "
                f"{self.zero}{accounts(stats.zero, made, self.zero)}",
                LIKELY,
            )
        if self.negative and stats.negative:
            yield Cause(
                f"{self.function} of a negative number",
                f"{of_all(stats.negative, stats.count)} of in:{self.slot} {are(stats.negative)} negative (down to "
                f"{num(stats.minimum)}), where {self.function} gives {self.negative}"
                f"{accounts(stats.negative, case.out.nan, self.negative)}",
                LIKELY,
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


def divide(case: Case, numerator: int = 0, denominator: int = 1) -> Iterator[Cause]:
    """Division, element by element; what is broadcast counts as often as it is used."""
    below, above = case.stats(denominator), case.stats(numerator)
    remainder = case.name.endswith(("mod", "remainder"))
    title = "division by 0"
    if below is None:
        yield Cause(title, f"the denominator, in:{denominator}, was not dumped", UNKNOWN)
        return
    if below.zero:
        whole = below.zero * (case.out.count // below.count if below.count else 0)
        bad = case.out.nan + case.out.inf
        spread = " (each divides several elements)" if whole > below.zero else ""
        total = f"; {whole:,} elements are divided by 0{spread}: that is every bad one" if whole == bad and bad else ""
        kind = "; the remainder is NaN there" if remainder else _quotient(case.out, above, numerator)
        yield Cause(
            title,
            f"{of_all(below.zero, below.count)} of the denominator in:{denominator} {are(below.zero)} 0{kind}{total}",
            LIKELY,
        )
    elif not below.bad:
        yield Cause(title, f"the denominator in:{denominator} has no 0: it is {finite_words(below)}", RULED_OUT)
    if not remainder:
        yield from _tiny(case, below, f"in:{denominator}", peak(above))


def _tiny(case: Case, below: TensorStats, label: str, top: float | None) -> Iterator[Cause]:
    """Whether a denominator without 0 is so small that the quotient exceeds the type."""
    limits = case.limits
    if limits is None or not top or below.zero or below.minimum is None or below.maximum is None:
        return
    if below.negative and below.positive:
        if top / limits.smallest > limits.largest:
            words = f"{label} is {finite_words(below)}; how close to 0 its values come, the statistics do not tell"
            yield Cause("a denominator close to 0", words, POSSIBLE)
        return
    least = min(abs(below.minimum), abs(below.maximum))
    yield overflow_cause(limits, top / least, f"{num(top)} / {num(least)}", "quotient")


def _quotient(out: TensorStats, above: TensorStats | None, slot: int) -> str:
    if out.nan and not out.inf:
        zeros = f" (in:{slot} has {above.zero:,})" if above is not None and above.zero else ""
        return f"; NaN without Inf means that 0 is divided by 0 there{zeros}"
    if out.inf and not out.nan:
        return "; Inf without NaN means that something else than 0 is divided by it"
    return "; 0/0 gives NaN and everything else Inf"


def reciprocal(case: Case) -> Iterator[Cause]:
    """One divided by the input."""
    below = case.stats(0)
    if below is None:
        yield Cause("division by 0", "its input in:0 was not dumped", UNKNOWN)
        return
    if below.zero:
        words = f"{of_all(below.zero, below.count)} of in:0 {are(below.zero)} 0, where 1 / x gives Inf"
        yield Cause("division by 0", words + accounts(below.zero, case.out.inf, "Inf"), LIKELY)
    elif not below.bad:
        yield Cause("division by 0", f"in:0 has no 0: it is {finite_words(below)}", RULED_OUT)
    yield from _tiny(case, below, "in:0", 1.0)


def exponential(case: Case) -> Iterator[Cause]:
    """Powers of e or 2."""
    stats, limits = case.stats(0), case.limits
    title = "an exponent that is too large"
    if stats is None or limits is None:
        yield Cause(title, "its input was not dumped" if stats is None else "the element type is unknown", UNKNOWN)
        return
    kind = case.name
    largest = _exponent_limit(kind, limits.largest)
    top = peak(stats) if kind in BOTH_WAYS else stats.maximum
    if top is None:
        return
    if top > largest:
        yield Cause(
            title,
            f"in:0 reaches {num(top)}; above {num(largest)} the exponential exceeds what {limits.name} can hold",
            LIKELY,
        )
    elif not stats.bad:
        yield Cause(title, f"in:0 reaches {num(top)}; {limits.name} overflows above {num(largest)} only", RULED_OUT)


def _exponent_limit(kind: str, largest: float) -> float:
    """The argument above which an exponential exceeds the greatest number of a type."""
    if kind == "exp2":
        return math.log2(largest)
    # Of those two each is half the sum or difference of e^x and e^-x.
    return math.log(largest) + (math.log(2) if kind in BOTH_WAYS else 0.0)


def power(case: Case) -> Iterator[Cause]:
    """A power of two inputs."""
    base, exponent, limits = case.stats(0), case.stats(1), case.limits
    if base is None or exponent is None:
        missing = "base in:0" if base is None else "exponent in:1"
        yield Cause("a power that is not defined", f"the {missing} was not dumped", UNKNOWN)
        return
    if base.negative and not _whole(exponent):
        yield Cause(
            "a negative base with a fractional exponent",
            f"{of_all(base.negative, base.count)} of the base in:0 {are(base.negative)} negative and the exponent in:1 "
            f"is {finite_words(exponent)}",
            LIKELY,
        )
    if base.zero and exponent.negative:
        yield Cause(
            "0 to a negative power",
            f"{of_all(base.zero, base.count)} of the base {are(base.zero)} 0, the exponent is {finite_words(exponent)}",
            LIKELY,
        )
    top = peak(base)
    if limits is not None and top and top > 1 and exponent.maximum is not None and exponent.maximum > 0:
        power = exponent.maximum * math.log(top)
        size = math.exp(power) if power < 700 else math.inf
        yield overflow_cause(limits, size, f"{num(top)} to the power of {num(exponent.maximum)}", "power")


def _whole(stats: TensorStats) -> bool:
    """Whether an exponent is a single whole number: of several values the statistics do not tell."""
    same = stats.minimum is not None and stats.minimum == stats.maximum
    return same and float(stats.minimum or 0.0).is_integer()
