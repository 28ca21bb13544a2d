"""Compares the arguments of two calls of an operator or a module.

Versions of a program spell texts and lists differently, so only numbers count, and texts where PyTorch was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tui_debugger.sources.base import Argument, CallArguments

_ABSENT: Final = object()


def other_arguments(one: CallArguments | None, other: CallArguments | None) -> str:
    """Returns which arguments of two calls differ, in words; empty where none is known to."""
    if one is None or other is None:
        return ""
    torch = one.aten and other.aten
    counts = _is_told if torch or (one.parameters is not None and other.parameters is not None) else _is_number
    return ", ".join(
        f"{name} is {_in_words(here)} in A and {_in_words(there)} in B"
        for name, here, there in (_of_schema(one.keywords, other.keywords) if torch else _in_both(one, other))
        if here != there and all(each is _ABSENT or counts(each) for each in (here, there))
    )


def _of_schema(one: Mapping[str, Argument], other: Mapping[str, Argument]) -> Iterator[tuple[str, object, object]]:
    """Arguments of an operator of PyTorch, which leaves out those that are the default."""
    for name in {**one, **other}:
        yield name, one.get(name, _ABSENT), other.get(name, _ABSENT)


def _in_both(one: CallArguments, other: CallArguments) -> Iterator[tuple[str, object, object]]:
    if len(one.positional) == len(other.positional):
        for number, (here, there) in enumerate(zip(one.positional, other.positional, strict=True)):
            yield f"argument {number}", here, there
    for of_one, of_other in ((one.keywords, other.keywords), (one.attributes or {}, other.attributes or {})):
        for name in of_one:
            if name in of_other:
                yield name, of_one[name], of_other[name]


def _in_words(argument: object) -> str:
    return "the default" if argument is _ABSENT else repr(argument)


def _is_number(argument: object) -> bool:
    return isinstance(argument, int | float)


def _is_told(argument: object) -> bool:
    return isinstance(argument, int | float | str) or (isinstance(argument, tuple) and all(map(_is_told, argument)))
