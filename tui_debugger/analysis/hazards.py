"""Why an operator can make NaN or Inf out of clean inputs: what their statistics say about that."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.analysis.spread.headroom import limits_of
from tui_debugger.model import TensorStats


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known about one input or output.

    Attributes:
        stats: its statistics.
        dtype: element type by name; empty when unknown.
    """

    stats: TensorStats
    dtype: str = ""

    @property
    def low(self) -> float:
        """Smallest finite element; NaN without one."""
        return math.nan if self.stats.minimum is None else self.stats.minimum

    @property
    def high(self) -> float:
        """Greatest finite element; NaN without one."""
        return math.nan if self.stats.maximum is None else self.stats.maximum

    @property
    def size(self) -> float:
        """Greatest magnitude."""
        return max(abs(self.low), abs(self.high))


Facts = Sequence["Fact | None"]
"""By slot; None where nothing is known."""
Rule = Callable[[Facts, str], str]
"""(inputs, element type of the output): a sentence, or nothing when the inputs do not explain it."""
BOTH_WAYS: Final = ("sinh", "cosh")
"""Exponentials that grow on both sides of 0."""


def hazard(op_type: str, inputs: Facts, made: str = "") -> str:
    """One sentence about what in the inputs gives NaN or Inf; empty when nothing known does.

    Args:
        op_type: operator type, whichever way a framework spells it (``Log``, ``aten.log``, ``RealDiv``).
        inputs: clean inputs by slot.
        made: element type of the output, for what is too large for it; empty when unknown.
    """
    name = plain_type(op_type)
    rule = _RULES.get(name, _product if name.startswith(("matmul", "conv")) else None)
    return rule(inputs, made) if rule is not None else ""


def plain_type(op_type: str) -> str:
    """An operator's type without what differs between frameworks: ``log`` of ``aten.log_.default``."""
    name = op_type.rpartition("::")[2].lower()
    name = name.removeprefix("aten.").partition(".")[0] if name.startswith("aten.") else name
    return re.sub(r"[^a-z0-9]", "", name)


def _largest(dtype: str) -> float | None:
    limits = limits_of(dtype) if dtype else None
    return None if limits is None else limits.largest


def _number(value: float) -> str:
    return f"{value:.4g}"


def _first(inputs: Facts) -> Fact | None:
    return inputs[0] if inputs else None


def _log(inputs: Facts, _made: str, shift: float = 0.0) -> str:
    given = _first(inputs)
    if given is None or not given.low <= -shift:
        return ""
    said = f"in:0 min = {_number(given.low)}: "
    if given.low < -shift:
        return said + (f"it is NaN below {_number(-shift)}" if shift else "the logarithm of a negative number is NaN")
    return said + (f"it is -Inf at {_number(-shift)}" if shift else "the logarithm of 0 is -Inf")


def _zeros_below(inputs: Facts) -> str:
    by = inputs[1] if len(inputs) > 1 else None
    if by is None or not by.stats.zero:
        return ""
    return f"in:1 has {by.stats.zero:,} zeros" if by.stats.zero > 1 else "in:1 has a zero"


def _remainder(inputs: Facts, _made: str) -> str:
    zeros = _zeros_below(inputs)
    return f"{zeros} to divide by: the remainder of a division by 0 is NaN" if zeros else ""


def _divide(inputs: Facts, _made: str) -> str:
    over, zeros = _first(inputs), _zeros_below(inputs)
    if not zeros:
        return ""
    if over is not None and over.stats.zero:
        return f"{zeros} to divide by: 0 / 0 is NaN, anything else / 0 is Inf"
    return f"{zeros} to divide by: a division by 0 is Inf"


def _inverse(inputs: Facts, _made: str) -> str:
    given = _first(inputs)
    return f"in:0 has {given.stats.zero:,} × 0: 1 / 0 is Inf" if given is not None and given.stats.zero else ""


def _root(inputs: Facts, _made: str) -> str:
    given = _first(inputs)
    if given is None or not given.low < 0:
        return ""
    return f"in:0 min = {_number(given.low)}: the root of a negative number is NaN"


def _inverse_root(inputs: Facts, made: str) -> str:
    return _root(inputs, made) or _inverse(inputs, made)


def exponent_limit(kind: str, largest: float) -> float:
    """The argument above which an exponential exceeds a type's greatest number.

    Args:
        kind: ``plain_type`` of the operator: ``exp``, ``expm1``, ``exp2``, ``sinh``, ``cosh``.
        largest: that number.
    """
    if kind == "exp2":
        return math.log2(largest)
    # Of those two each is half the sum or difference of e^x and e^-x.
    return math.log(largest) + (math.log(2) if kind in BOTH_WAYS else 0.0)


def _exponential(kind: str) -> Rule:
    base = "2" if kind == "exp2" else "e"

    def rule(inputs: Facts, made: str) -> str:
        given, most = _first(inputs), _largest(made or (inputs[0].dtype if inputs and inputs[0] is not None else ""))
        if given is None or most is None:
            return ""
        edge, both = exponent_limit(kind, most), kind in BOTH_WAYS
        if not (given.size if both else given.high) > edge:
            return ""
        where = f" in {made}" if made else ""
        if both:
            return f"in:0 reaches {_number(given.size)}: {kind} beyond ±{_number(edge)} is Inf{where}"
        return f"in:0 max = {_number(given.high)}: {base} to the power of more than {_number(edge)} is Inf{where}"

    return rule


def _arc(inputs: Facts, _made: str) -> str:
    given = _first(inputs)
    if given is None or not given.size > 1:
        return ""
    return f"in:0 goes from {_number(given.low)} to {_number(given.high)}: beyond ±1 it is NaN"


def _power(inputs: Facts, _made: str) -> str:
    base, by = (inputs[0], inputs[1]) if len(inputs) > 1 else (None, None)
    if base is None or by is None:
        return ""
    if base.stats.zero and by.low < 0:
        return f"in:0 has {base.stats.zero:,} × 0 and in:1 min = {_number(by.low)}: 0 to a negative power is Inf"
    if base.low < 0 and not (float(by.low).is_integer() and by.low == by.high):
        return f"in:0 min = {_number(base.low)}: a fractional power of a negative number is NaN"
    return ""


def _cast(inputs: Facts, made: str) -> str:
    given, most = _first(inputs), _largest(made)
    if given is None or most is None or not given.size > most:
        return ""
    return f"in:0 reaches {_number(given.size)}: more than {_number(most)}, the greatest {made}"


def _square(inputs: Facts, made: str) -> str:
    given, most = _first(inputs), _largest(made)
    if given is None or most is None or not given.size**2 > most:
        return ""
    return f"in:0 reaches {_number(given.size)}: its square passes {_number(most)} ({made})"


def _product(inputs: Facts, made: str) -> str:
    """Whether the greatest factors can make a product that is too large: whether they meet, statistics do not tell."""
    most, factors = _largest(made), inputs[:2]
    sizes = [fact.size for fact in factors if fact is not None]
    if most is None or len(sizes) < 2 or not math.prod(sizes) > most:
        return ""
    reach = " and ".join(f"in:{slot} {_number(size)}" for slot, size in enumerate(sizes))
    return f"{reach} at most: a product of such factors passes {_number(most)} ({made})"


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("log", "log2", "log10", "ln"), _log),
    "log1p": lambda inputs, made: _log(inputs, made, 1.0),
    **dict.fromkeys(("div", "realdiv", "divnonan", "truediv", "divide", "floordiv"), _divide),
    **dict.fromkeys(("mod", "floormod", "fmod", "remainder"), _remainder),
    **dict.fromkeys(("reciprocal", "inv"), _inverse),
    "sqrt": _root,
    "rsqrt": _inverse_root,
    **{kind: _exponential(kind) for kind in ("exp", "expm1", "exp2", *BOTH_WAYS)},
    **dict.fromkeys(("asin", "acos", "atanh"), _arc),
    **dict.fromkeys(("pow", "power"), _power),
    **dict.fromkeys(("cast", "tocopy", "to"), _cast),
    **dict.fromkeys(("square", "l2loss"), _square),
    **dict.fromkeys(("mul", "batchmatmul", "bmm", "mm", "linear", "dense"), _product),
}
