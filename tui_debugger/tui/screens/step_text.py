"""Step text: ``12``, ``+3``, ``-2``, ``first``, ``last``: which dumped step is meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RELATIVE = re.compile(r"([+-])\s*(\d{0,18})")
_NUMBER = re.compile(r"\d{1,18}")


class NoSuchStepError(ValueError):
    """The text names no dumped step. The message says which ones are near."""

    def __init__(self, message: str, nearest: int | None = None) -> None:
        """``nearest`` is the dumped step closest to what was meant."""
        super().__init__(message)
        self.nearest = nearest


def find_step(text: str, steps: Sequence[int], current: int) -> int:
    """The dumped step that a person means.

    Args:
        text: a step number; ``+3`` or ``-2`` for so many *dumped* steps on or back (``+`` alone is one); ``first``
            or ``last``, or the beginning of these words.
        steps: dumped steps in the order in which they ran: that is what on, back, first and last mean.
        current: where relative text starts; need not be dumped itself.

    Raises:
        NoSuchStepError: no such step, or no such text; the message names the neighbours.
    """
    word = text.strip().lower()
    if not steps:
        msg = "no step is dumped"
        raise NoSuchStepError(msg)
    if word and "first".startswith(word):
        return steps[0]
    if word and "last".startswith(word):
        return steps[-1]
    if match := _RELATIVE.fullmatch(word):
        return _relative(match[1], int(match[2] or 1), steps, current)
    if not _NUMBER.fullmatch(word):
        msg = f"{text.strip()!r} is no step: write a number, +3, -2, first or last"
        raise NoSuchStepError(msg)
    step = int(word)
    if step in steps:
        return step
    raise NoSuchStepError(*_neighbours(step, steps))


def _relative(sign: str, count: int, steps: Sequence[int], current: int) -> int:
    ahead = _ahead(steps, current) if sign == "+" else _ahead(steps[::-1], current, back=True)
    if count == 0:
        return nearest_step(current, steps)
    if count <= len(ahead):
        return ahead[count - 1]
    where = "after" if sign == "+" else "before"
    if not ahead:
        msg = f"no dumped step comes {where} step {current}"
        raise NoSuchStepError(msg, nearest_step(current, steps))
    noun = "step comes" if len(ahead) == 1 else "steps come"
    msg = f"only {len(ahead)} dumped {noun} {where} step {current}: {'last' if sign == '+' else 'first'} is {ahead[-1]}"
    raise NoSuchStepError(msg, ahead[-1])


def _ahead(steps: Sequence[int], current: int, *, back: bool = False) -> Sequence[int]:
    """The steps behind the current one; where that is not dumped, those of greater (``back``: smaller) number."""
    if current in steps:
        return steps[steps.index(current) + 1 :]
    return [step for step in steps if (step < current if back else step > current)]


def _neighbours(step: int, steps: Sequence[int]) -> tuple[str, int]:
    """By number, whatever the order of the runs."""
    before = max((each for each in steps if each < step), default=None)
    after = min((each for each in steps if each > step), default=None)
    if before is None:
        lowest = min(steps)
        return f"step {step} is not dumped: the first is {lowest}", lowest
    if after is None:
        return f"step {step} is not dumped: the last is {before}", before
    near = before if step - before <= after - step else after
    return f"step {step} is not dumped: {before} comes before, {after} after it", near


def nearest_step(step: int, steps: Sequence[int]) -> int:
    """The dumped step closest to ``step``, the earlier one of two."""
    return min(steps, key=lambda each: (abs(each - step), each))
