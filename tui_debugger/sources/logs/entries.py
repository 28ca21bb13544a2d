"""The entries of a log about the tensors of one step: numbers of each, and which operation made it.

A log says less than a measured tensor: no counts, often no shape. ``LogNumbers.stats`` says as much as
follows from its numbers and not more; the rest cannot be judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tui_debugger.model import AtLeast, Frame, Side, TensorStats
from tui_debugger.sources.base import MOST_ROUNDS

MOST_ELEMENTS: Final = 1 << 62
"""Elements of a tensor: a shape with more is no shape."""


@dataclass(slots=True)
class LogNumbers:
    """The statistics of a tensor that a log has; None is what it does not have, or not exactly enough.

    Attributes:
        minimum, maximum, mean, std, l1, l2: of all elements, so that one NaN or Inf shows in them.
        peak: largest magnitude.
        nan: how many elements are NaN.
        tiny: the log has numbers that are 0 to its last decimal: they are not known, but no NaN or Inf is among the
            values.
        negative: where only a norm is infinite: what it was made from says that it is -Inf. Else it counts as +Inf.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    l1: float | None = None
    l2: float | None = None
    peak: float | None = None
    nan: int | None = None
    tiny: bool = False
    negative: bool = False

    @property
    def infinite(self) -> tuple[bool, bool]:
        """Tells whether +Inf and -Inf are in it."""
        _, pos_inf, neg_inf = self._not_finite(1)
        return pos_inf > 0, neg_inf > 0

    @classmethod
    def exact(cls, found: Mapping[str, float]) -> LogNumbers:
        """Returns what a log says, by the names of these attributes."""
        numbers = cls()
        for name, value in found.items():
            setattr(numbers, name, value)
        return numbers

    @classmethod
    def rounded(cls, found: Mapping[str, float]) -> LogNumbers:
        """Returns what a log with few decimals says: its zeros are not known."""
        numbers = cls.exact({name: value for name, value in found.items() if value != 0})
        zeros = {name for name, value in found.items() if value == 0}
        both = {"minimum", "maximum"} <= found.keys()
        numbers.tiny = bool(zeros & {"mean", "l1", "l2", "peak"}) or bool(both and zeros & {"minimum", "maximum"})
        return numbers

    @property
    def known(self) -> bool:
        """Tells whether it is known that the values are finite, or that they are not.

        No NaN among them is not enough, and one finite extreme is not: there may be an Inf.
        """
        if self.tiny or self.nan or any(each is not None for each in (self.mean, self.l1, self.l2, self.peak)):
            return True
        extremes = [each for each in (self.minimum, self.maximum) if each is not None]
        return len(extremes) == 2 or not all(map(math.isfinite, extremes))

    def stats(self, count: int | None) -> TensorStats:
        """Returns what follows of a tensor with ``count`` elements; None: the count is not known, one stands for all.

        Where NaN were counted, and it is not known of how many, there are these, and one for the extremes.

        A NaN or Inf among the numbers counts as one such element, or as all of them where both extremes are that Inf.
        """
        size = count if count is not None else max(1, (self.nan or 0) + (_finite(self.minimum) is not None))
        nan, pos_inf, neg_inf = self._not_finite(size)
        bad = nan or pos_inf or neg_inf
        low, high, mean = (_finite(each) for each in (self.minimum, self.maximum, self.mean))
        one_sign = low is not None and high is not None and not bad and (low > 0 or high < 0)
        zeros = not bad and (low == high == 0 or self.l1 == 0 or self.peak == 0)
        absolute = None
        if not bad:
            if count and self.l1 is not None:
                absolute = self.l1 / count
            elif one_sign and mean is not None:
                absolute = abs(mean)
        l2, std = _finite(self.l2), _finite(self.std)
        # Where it is known how many elements there are, each extreme is one of them.
        ends = [each for each in (low, high) if each is not None] if count else []
        return TensorStats(
            count=size,
            nan=nan,
            pos_inf=pos_inf,
            neg_inf=neg_inf,
            zero=size if zeros else int(0 in ends),
            negative=size if one_sign and high is not None and high < 0 else int(any(each < 0 for each in ends)),
            positive=size if one_sign and low is not None and low > 0 else int(any(each > 0 for each in ends)),
            minimum=0.0 if zeros else low,
            maximum=0.0 if zeros else high,
            mean=0.0 if zeros else mean,
            abs_mean=absolute,
            variance=None if std is None else _finite(std * std),
            sum_squares=0.0 if l2 is None or not math.isfinite(l2 * l2) else l2 * l2,
            at_least=self._at_least(count, nan, pos_inf + neg_inf),
        )

    def _at_least(self, count: int | None, nan: int, inf: int) -> AtLeast:
        """The counts that are lower bounds."""
        found = AtLeast.COUNT if count is None else AtLeast.NONE
        if nan and self.nan is None and nan != count:
            found |= AtLeast.NAN
        hidden = nan and nan != count and (_finite(self.minimum) is None or _finite(self.maximum) is None)
        return found | AtLeast.INF if hidden or (inf and inf != count) else found

    def _not_finite(self, size: int) -> tuple[int, int, int]:
        """Elements that are NaN, +Inf and -Inf.

        A mean is NaN also where Infs of both signs meet, and norms of large numbers are infinite without any: the
        extremes decide where they are known.
        """
        low, high = self.minimum, self.maximum
        if self.nan:
            nan = min(self.nan, size)
            left = size - nan
            up = min(int(high == math.inf), left)
            return nan, up, min(int(low == -math.inf), left - up)
        numbers = [each for each in (low, high, self.l1, self.l2, self.peak) if each is not None]
        if any(math.isnan(each) for each in numbers):
            return min(1, size), 0, 0
        if low is not None and high is not None:
            return (
                0,
                0 if high != math.inf else size if low == math.inf else min(1, size),
                0 if low != -math.inf else size if high == -math.inf else min(1, size),
            )
        if self.mean is not None and math.isnan(self.mean) and not any(map(math.isinf, numbers)):
            return min(1, size), 0, 0
        if low == -math.inf or (self.mean == -math.inf and high is None):
            return 0, 0, min(1, size)
        exact = [each for each in (high, self.mean, self.l1, self.peak) if each is not None]
        infinite = any(math.isinf(each) for each in exact) or (not exact and self.l2 == math.inf)
        found = min(1, size) if infinite else 0
        return (0, 0, found) if self.negative else (0, found, 0)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


@dataclass(slots=True)
class LogTensor:
    """One tensor of a step.

    Attributes:
        side, slot: which input or output of its operation it is.
        numbers: what is known of its values; None: that cannot be read.
        dtype: empty where not known.
        shape: None where not known.
        file: where its values lie, as (path, place in the file); None where there are none.
        others: further statistics as they stand, by the names of the log.
        round: which of several times in its step it is, from 1; 0 where there is one only.
    """

    side: Side
    slot: int
    numbers: LogNumbers | None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    file: tuple[str, str] | None = None
    others: dict[str, str] = field(default_factory=dict)
    round: int = 0

    @property
    def count(self) -> int | None:
        """Number of elements; None where not known."""
        return None if self.shape is None else math.prod(self.shape)

    def stats(self) -> TensorStats | None:
        """Returns what is known; None where that is nothing."""
        return self.numbers.stats(self.count) if self.numbers is not None and self.numbers.known else None


NO_TRACE: Final = (-2, 0)
"""An input that looks like any other, such as one that is all NaN: other steps may tell what made it."""


@dataclass(slots=True)
class LogOperation:
    """One operation of a step: a node.

    Attributes:
        name: unique in its step, the same in other steps.
        path: the same with ``/``, in the tree of modules.
        type: of operator; ``table.PARAMETER`` for a weight.
        inputs: what made each input, as (number of the operation in the step, slot); (-1, 0) where it is not known,
            ``NO_TRACE`` where this step's numbers do not tell; a text is the value of an argument that is no tensor.
        tensors: its inputs and outputs.
        stack: innermost frame first.
        inferred: inputs in ``inputs`` that were found by equal hashes.
        flows: whether the log says what feeds operations at all.
        partial: it may be made of more than its recorded inputs, such as weights.
    """

    name: str
    path: str
    type: str
    inputs: list[tuple[int, int] | str] = field(default_factory=list)
    tensors: list[LogTensor] = field(default_factory=list)
    stack: tuple[Frame, ...] = ()
    inferred: int = 0
    flows: bool = True
    partial: bool = False


@dataclass(slots=True)
class LoggedStep:
    """The operations of one step in the order in which they ran, and what of its log could not be read."""

    operations: list[LogOperation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def shape_of(text: str) -> tuple[int, ...] | None:
    """``4, 8, 32`` as a shape; None when it is none."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    words = words[:-1] if words and not words[-1] else words
    if len(words) > 64 or not all(word.isdecimal() and len(word) < 20 for word in words):
        return None
    shape = tuple(map(int, words))
    return shape if math.prod(shape) < MOST_ELEMENTS else None


def sign_from(numbers: LogNumbers | None, sources: Sequence[LogNumbers | None]) -> None:
    """Takes the sign of an Inf of which only a norm tells from the tensors that it was made from, where that is one."""
    if numbers is not None:
        signs = [each.infinite for each in sources if each is not None]
        numbers.negative = any(down for _, down in signs) and not any(up for up, _ in signs)


def unique(name: str, seen: dict[str, int]) -> str:
    """The name itself when it is new, else with a number behind it: ``mul#2``."""
    seen[name] = number = seen.get(name, 0) + 1
    return name if number == 1 else unique(f"{name}#{number}", seen)


class Hashes:
    """The outputs of a step by their hashes, for inputs of which it is not known what made them.

    An input with the hash of an output before it is most likely that output, or a view of it.
    """

    def __init__(self) -> None:
        self._last: dict[object, tuple[int, int]] = {}

    def made(self, operation: int, slot: int, value: object) -> None:
        """Notes an output; the newest one of a hash counts."""
        self._last[value] = operation, slot

    def find(self, value: object) -> tuple[int, int]:
        """The output with this hash; (-1, 0) where there is none. Zeros are like any other zeros, NaN like any NaN."""
        try:
            number = float(str(value))
            if number == 0 or math.isnan(number):
                return -1, 0
        except ValueError:
            pass
        return self._last.get(value, (-1, 0))


def scope(module: str, leaf: str, *, backward: bool = False) -> str:
    """The path of an operation below its module: ``layers.0.mlp`` and ``gelu`` are ``layers/0/mlp/gelu``."""
    parts: Sequence[str] = [part for part in module.replace("/", ".").split(".") if part]
    return "/".join((*(("Gradients",) if backward else ()), *parts, leaf.replace("/", "_") or "_"))


def number_rounds(operations: Sequence[LogOperation]) -> None:
    """Numbers tensors of one place in the order in which they stand, where there are several: micro-batches."""
    for operation in operations:
        places: dict[tuple[Side, int], list[LogTensor]] = {}
        for entry in operation.tensors:
            places.setdefault((entry.side, entry.slot), []).append(entry)
        for entries in places.values():
            if len(entries) > 1:
                del entries[MOST_ROUNDS:]
                for number, entry in enumerate(entries, 1):
                    entry.round = number
        if any(entry.round for entry in operation.tensors):
            operation.tensors = [entry for entries in places.values() for entry in entries]
