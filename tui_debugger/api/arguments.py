"""Checks what callers of the API pass, by MindInsight's rules."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import TypeVar

from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError

T = TypeVar("T")

LEAST_MB, MOST_MB = 2 * 1024, 2**31 - 1

Numbers = int | list[int] | set[int] | None
"""What names iterations or ranks: one, several, or (None) all."""


def checked(value: object, name: str, kind: type[T], text: str) -> T:
    """The value, if it is of a kind.

    Raises:
        DebuggerParamTypeError: it is of another one.
    """
    if isinstance(value, kind):
        return value
    raise wrong_type(value, name, text)


def wrong_type(value: object, name: str, text: str) -> DebuggerParamTypeError:
    """The error for a value of a wrong type: ``text`` says what was expected."""
    return DebuggerParamTypeError(f"{name} should be {text}, not {type(value).__name__}", where=repr(value)[:200])


def number(value: object, name: str) -> float:
    """A threshold as float; MindInsight takes any int or float, whatever its size.

    Raises:
        DebuggerParamTypeError: it is neither.
        DebuggerParamValueError: nothing compares with it: NaN, or an int beyond every float.
    """
    if not isinstance(value, Real):  # NumPy's numbers are registered as such; so is bool, a kind of int
        raise wrong_type(value, name, "a number")
    try:
        converted = float(value)
    except OverflowError:
        raise DebuggerParamValueError(f"{name} is too large for a float", hint="pass a smaller number") from None
    if math.isnan(converted):
        raise DebuggerParamValueError(f"{name} is NaN: no comparison with it ever holds", hint="pass a number")
    return converted


def numbers(value: Numbers, name: str, there: Collection[int], *, strict: bool = True) -> list[int]:
    """Iterations or ranks as a list, in the order given.

    Args:
        value: one number, a list or set of them, or None for all.
        name: how the parameter is called.
        there: what there is; when that is nothing, everything is let through.
        strict: refuse what is not there instead of leaving it out.

    Raises:
        DebuggerParamTypeError: something is no int.
        DebuggerParamValueError: something is not there.
    """
    if value is None:
        return list(there)
    chosen: list[int] = []
    given: list[object] = list(value) if isinstance(value, list | set) else [value]
    for each in given:
        if not isinstance(each, Integral):
            raise wrong_type(each, name, "an int, a list of ints, or None")
        if not there or int(each) in there:
            chosen.append(int(each))
        elif strict:
            raise DebuggerParamValueError(
                f"{name} has no {each}", where=f"{name}={value!r}", hint=f"there is {list(there)}"
            )
    return chosen


def slot_numbers(value: list[int] | None) -> list[int] | None:
    """Slots as they were given.

    Raises:
        DebuggerParamTypeError: neither None nor a list of ints.
    """
    if value is None:
        return None
    given: list[object] = list(checked(value, "slots", list, "a list of ints or None"))
    for each in given:
        if not isinstance(each, Integral):
            raise wrong_type(each, "slots", "a list of ints or None")
    return value


def memory_limit(value: object) -> int | None:
    """A limit in MB that MindInsight takes, or None; 0 means none there.

    Raises:
        DebuggerParamTypeError: no int.
        DebuggerParamValueError: outside the range.
    """
    if value is None:
        return None
    limit = checked(value, "mem_limit", int, "an int or None")
    if limit and not LEAST_MB <= limit <= MOST_MB:
        raise DebuggerParamValueError(f"mem_limit is {limit} MB", hint=f"it may be None, or {LEAST_MB} to {MOST_MB}")
    return limit
