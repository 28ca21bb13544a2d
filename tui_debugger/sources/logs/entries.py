"""The entries of a log about the tensors of one step: the numbers of each, and the operation that made it.

A log says less than a measured tensor: no counts, often no shape. ``LogNumbers.stats`` says only as much as follows
from the numbers; the rest cannot be judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tui_debugger.model import AtLeast, Frame, Side, TensorStats
from tui_debugger.sources.base import MOST_ROUNDS

MOST_ELEMENTS: Final = 1 << 62
"""Largest number of elements: a shape with more is invalid."""


@dataclass(slots=True)
class LogNumbers:
    """The statistics of a tensor in a log; None: not logged, or not exactly enough.

    Extremes, mean, std and norms are of all elements, so that one NaN or Inf shows in them.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    l1: float | None = None
    l2: float | None = None
    peak: float | None = None
    """Largest magnitude."""
    nan: int | None = None
    """Number of NaN elements."""
    tiny: bool = False
    """Some numbers are 0 to the last decimal: their values are unknown, but there is no NaN or Inf."""
    negative: bool = False
    """Sign of an Inf that only a norm shows, taken from the inputs; False counts as +Inf."""

    @property
    def infinite(self) -> tuple[bool, bool]:
        """Whether +Inf and -Inf are in it."""
        _, pos_inf, neg_inf = self._not_finite(1)
        return pos_inf > 0, neg_inf > 0

    @classmethod
    def exact(cls, found: Mapping[str, float]) -> LogNumbers:
        numbers = cls()
        for name, value in found.items():
            setattr(numbers, name, value)
        return numbers

    @classmethod
    def rounded(cls, found: Mapping[str, float]) -> LogNumbers:
        """Takes the numbers of a log with few decimals: its zeros are unknown."""
        numbers = cls.exact({name: value for name, value in found.items() if value != 0})
        zeros = {name for name, value in found.items() if value == 0}
        both = {"minimum", "maximum"} <= found.keys()
        numbers.tiny = bool(zeros & {"mean", "l1", "l2", "peak"}) or bool(both and zeros & {"minimum", "maximum"})
        return numbers

    @property
    def known(self) -> bool:
        """Whether it is certain that the values are finite, or that they are not.

        A NaN count of zero is not enough, nor is one finite extreme: there may be an Inf.
        """
        if self.tiny or self.nan or any(each is not None for each in (self.mean, self.l1, self.l2, self.peak)):
            return True
        extremes = [each for each in (self.minimum, self.maximum) if each is not None]
        return len(extremes) == 2 or not all(map(math.isfinite, extremes))

    def stats(self, count: int | None) -> TensorStats:
        """Statistics that follow for a tensor with ``count`` elements; None: unknown, one element stands for all.

        With an unknown count, counted NaN elements are all there, and one for the extremes. A NaN or Inf among the
        numbers counts as one such element, or as all of them where both extremes are that Inf.
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
        # With a known count, each extreme is an element.
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
        found = AtLeast.COUNT if count is None else AtLeast.NONE
        if nan and self.nan is None and nan != count:
            found |= AtLeast.NAN
        hidden = nan and nan != count and (_finite(self.minimum) is None or _finite(self.maximum) is None)
        return found | AtLeast.INF if hidden or (inf and inf != count) else found

    def _not_finite(self, size: int) -> tuple[int, int, int]:
        """Number of NaN, +Inf and -Inf elements.

        A mean is NaN also where Infs of both signs meet, and norms of large finite numbers are infinite: the extremes
        decide where they are known.
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
    """One tensor of a step, by side and slot of its operation."""

    side: Side
    slot: int
    numbers: LogNumbers | None
    """Statistics; None: unreadable."""
    dtype: str = ""
    """Empty where unknown."""
    shape: tuple[int, ...] | None = None
    """None where unknown."""
    file: tuple[str, str] | None = None
    """(path, place in the file) of its values; None without values."""
    others: dict[str, str] = field(default_factory=dict)
    """Further statistics, unchanged, by the names of the log."""
    round: int = 0
    """Which recording of it in the step, from 1; 0 where there is one only."""

    @property
    def count(self) -> int | None:
        return None if self.shape is None else math.prod(self.shape)

    def stats(self) -> TensorStats | None:
        """Statistics; None where nothing is known."""
        return self.numbers.stats(self.count) if self.numbers is not None and self.numbers.known else None


NO_TRACE: Final = (-2, 0)
"""An input whose number fits any tensor, such as one that is all NaN: other steps may tell its producer."""


@dataclass(slots=True)
class LogOperation:
    """One operation of a step: a node."""

    name: str
    """Unique in its step, the same in other steps."""
    path: str
    """The name with ``/``, in the tree of modules."""
    type: str
    """Operator type; ``table.PARAMETER`` for a weight."""
    inputs: list[tuple[int, int] | str] = field(default_factory=list)
    """Producer of each input, as (number of the operation in the step, slot); (-1, 0) where unknown, ``NO_TRACE`` where
    this step's numbers do not tell; a text is the value of an argument that is no tensor.
    """
    tensors: list[LogTensor] = field(default_factory=list)
    stack: tuple[Frame, ...] = ()
    inferred: int = 0
    """Number of ``inputs`` that were found by equal hashes."""
    flows: bool = True
    """Whether the log tells producers of inputs at all."""
    partial: bool = False
    """Whether the operation may read more than its recorded inputs, such as weights."""


@dataclass(slots=True)
class LoggedStep:
    """The operations of one step in the order in which they ran, and problems of its log."""

    operations: list[LogOperation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def shape_of(text: str) -> tuple[int, ...] | None:
    """Parses ``4, 8, 32``; None for anything else."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    words = words[:-1] if words and not words[-1] else words
    if len(words) > 64 or not all(word.isdecimal() and len(word) < 20 for word in words):
        return None
    shape = tuple(map(int, words))
    return shape if math.prod(shape) < MOST_ELEMENTS else None


def sign_from(numbers: LogNumbers | None, sources: Sequence[LogNumbers | None]) -> None:
    """Gives an Inf that only a norm shows the sign of the Infs in its sources, if they have one sign."""
    if numbers is not None:
        signs = [each.infinite for each in sources if each is not None]
        numbers.negative = any(down for _, down in signs) and not any(up for up, _ in signs)


def unique(name: str, seen: dict[str, int]) -> str:
    """The name itself when it is new, else with a number behind it: ``mul#2``."""
    seen[name] = number = seen.get(name, 0) + 1
    return name if number == 1 else unique(f"{name}#{number}", seen)


class Hashes:
    """The outputs of a step by their hashes, for inputs of unknown producers.

    An input with the hash of an earlier output is most likely that output, or a view of it.
    """

    def __init__(self) -> None:
        self._last: dict[object, tuple[int, int]] = {}

    def made(self, operation: int, slot: int, value: object) -> None:
        """Notes an output; the newest one of a hash counts."""
        self._last[value] = operation, slot

    def find(self, value: object) -> tuple[int, int]:
        """The output with this hash; (-1, 0) without one, and for zeros and NaN, which are all alike."""
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
    """Numbers repeated tensors of one place, such as those of micro-batches, in their order."""
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
