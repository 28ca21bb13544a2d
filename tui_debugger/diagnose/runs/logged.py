"""Compares numbers that are no tensors: logged losses and the like, and settings and scores in checkpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tui_debugger.notes import Notes, RunNotes
from tui_debugger.stats.names_of_numbers import is_of_settings
from tui_debugger.text.numbers import number

_OF_MACHINES: Final = re.compile(r"time|second|speed|throughput|flos|flops|memory|elapsed|duration", re.IGNORECASE)
"""Names of numbers that differ between healthy repeats."""
_STEADY: Final = re.compile(r"loss|learning_rate|(?:^|[_/])lr(?:$|[_/])", re.IGNORECASE)
_CLOSE: Final = 0.01
"""The relative difference allowed for a loss or a learning rate."""
_LOOSE: Final = 0.1
"""The relative difference allowed for other numbers, such as norms of gradients that nearly cancel."""


_SAME_SETTING: Final = 1e-6
"""The relative difference allowed for a setting, which one program may have kept as a float32."""


def saved_differences(a: Mapping[str, float], b: Mapping[str, float]) -> list[tuple[str, str]]:
    """Returns the numbers that differ between two checkpoints: name, and both numbers in words."""
    return [
        (name, f"B has {number(b[name])}, A {number(value)}")
        for name, value in a.items()
        if name in b and _saved_otherwise(name, value, b[name])
    ]


def _saved_otherwise(name: str, one: float, other: float) -> bool:
    if is_of_settings(name) or (isinstance(one, int) and isinstance(other, int)):
        return not (_OF_MACHINES.search(name) or abs(one - other) <= _SAME_SETTING * max(abs(one), abs(other)))
    return _differ(name, one, other)


class LoggedDifference(NamedTuple):
    """The first step at which the programs logged different numbers under one name."""

    step: int
    name: str
    values: tuple[float, float]

    @property
    def text(self) -> str:
        one, other = map(number, self.values)
        return f"at step {self.step} the log of B says {other}, that of A {one}"


def logged_differences(a: RunNotes, b: RunNotes) -> list[LoggedDifference]:
    return sorted(_differences(dict(a.all()), dict(b.all())))


def _differences(a: dict[int, Notes], b: dict[int, Notes]) -> Iterator[LoggedDifference]:
    found: set[str] = set()
    for step in sorted(a.keys() & b.keys()):
        for name in a[step].keys() & b[step].keys() - found:
            one, other = a[step][name], b[step][name]
            if isinstance(one, int | float) and isinstance(other, int | float) and _differ(name, one, other):
                found.add(name)
                yield LoggedDifference(step, name, (float(one), float(other)))


def _differ(name: str, one: float, other: float) -> bool:
    if _OF_MACHINES.search(name) or one == other:
        return False
    if not (math.isfinite(one) and math.isfinite(other)):
        return not (math.isnan(one) and math.isnan(other))
    close = _CLOSE if _STEADY.search(name) else _LOOSE
    return abs(one - other) > close * max(abs(one), abs(other))
