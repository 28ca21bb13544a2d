"""Results as JSON, in one way for every command, for live events and for exported files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Row = dict[str, Any]
SCHEMA: Final = 1
"""The version of the documents, their first key. It rises when a key is renamed, removed, or changes its meaning."""


def plain(value: float | bool | str | None) -> float | bool | str | None:
    """Returns a number as JSON can hold it: NaN and Inf are the texts ``nan``, ``inf`` and ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def plain_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    return plain(_unwrapped(value) if hasattr(value, "dtype") else value)


def row_of(holder: object, *names: str) -> Row:
    """Returns attributes by name as JSON can hold them: tuples as lists, members of enumerations as their values."""
    return {name: _encoded(getattr(holder, name)) for name in names}


def rows_of(holders: Iterable[object], *names: str) -> list[Row]:
    return [row_of(holder, *names) for holder in holders]


def _encoded(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else plain_values(value)


def to_json(value: Any) -> str:
    """Returns a value as JSON in plain ASCII, so that it can be printed whatever names it has."""
    return _finite(_PLAIN.encode, value)


def document(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pieces of one indented document; a value that is an iterator becomes a list, one item at a time."""
    separator = "{\n "
    for name, value in {"schema": SCHEMA, **content}.items():
        yield f"{separator}{to_json(name)}: "
        if isinstance(value, Iterator):
            yield from _list(value)
        else:
            yield _finite(_laid_out, value)
        separator = ",\n "
    yield "\n}\n"


def document_line(content: Mapping[str, Any]) -> str:
    return to_json({"schema": SCHEMA, **content}) + "\n"


def document_of_rows(
    head: Mapping[str, Any],
    name: str,
    rows: Iterable[Mapping[str, Any]],
    tail: Callable[[], Mapping[str, Any]] = dict,
) -> Iterator[str]:
    """Yields the pieces of one document with a long list, row by row; ``tail`` is called after the last row."""
    yield "".join(document(head)).removesuffix("\n}\n") + f",\n {to_json(name)}: ["
    separator = "\n  "
    for row in rows:
        yield separator + to_json(row)
        separator = ",\n  "
    after = tail()
    yield "\n ]" + ("," + _finite(_laid_out, after, 1).removeprefix("{") if after else "\n}") + "\n"


def _list(items: Iterator[Any]) -> Iterator[str]:
    separator = "[\n  "
    for item in items:
        yield separator + _finite(_laid_out, item, 2)
        separator = ",\n  "
    yield "[]" if separator[0] == "[" else "\n ]"


def _finite(encode: Callable[..., str], value: Any, *more: int) -> str:
    """Encodes a value; encodes it again with texts if it holds NaN or Inf."""
    try:
        text = encode(value, *more)
    except ValueError:
        text = encode(plain_values(value), *more)
    return text.replace("\x7f", "\\u007f")  # DEL is ASCII, and the one control character that JSON leaves alone


def _laid_out(value: Any, level: int = 1) -> str:
    """Returns ``json.dumps(value, indent=1)`` at a level of a document, faster than Python's encoder with indents."""
    text = _MARKED.encode(value)
    for mark in _MARKS:
        text = text.replace(mark.replace("\0", ""), mark)
    pieces = []
    for part in text.split("\0"):
        rest = part.lstrip("[{")
        inner = rest.rstrip("]}")
        begun, ended = part[: len(part) - len(rest)], rest[len(inner) :]
        if begun and ended and not inner:  # what is empty stays on its line
            begun, inner, ended = begun[:-1], begun[-1] + ended[0], ended[1:]
        for bracket in begun:
            level += 1
            pieces.append(f"{bracket}\n{' ' * level}")
        pieces.append(inner.replace("\n", ",\n" + " " * level))
        for bracket in ended:
            level -= 1
            pieces.append(f"\n{' ' * level}{bracket}")
    return "".join(pieces).replace("\t", ": ")


def _unwrapped(value: Any) -> Any:
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        return value.item()
    msg = f"{type(value).__name__} has no place in a document"
    raise TypeError(msg)


_PLAIN: Final = json.JSONEncoder(allow_nan=False, default=_unwrapped)
_MARKED: Final = json.JSONEncoder(allow_nan=False, default=_unwrapped, separators=("\n", "\t"))
"""Separates items by line breaks and keys by tabs: JSON texts hold no raw ones, so brackets next to them are syntax."""
_MARKS: Final = ("\t\0[", "\t\0{", "\n\0[", "\n\0{", "]\0\n", "}\0\n")
