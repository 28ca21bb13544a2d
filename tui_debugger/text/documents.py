"""Results as JSON, in one way for every command, for live events and for exported files."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SCHEMA: Final = 1
"""The version of the documents, their first key. Keys may be added under the same number; it goes up when a key is
renamed, taken away, or means something else."""


def plain(value: float | bool | str | None) -> float | bool | str | None:
    """Returns a number as JSON can hold it: NaN and Inf are the texts ``nan``, ``inf`` and ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def plain_values(value: Any) -> Any:
    """Returns nested dicts and lists with every number as JSON can hold it."""
    if isinstance(value, dict):
        return {key: plain_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    return plain(_unwrapped(value) if hasattr(value, "dtype") else value)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Returns a value as JSON in plain ASCII, keys in their order: it can be printed whatever the names in it are."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, default=_unwrapped)
    except ValueError:  # NaN or Inf
        text = json.dumps(plain_values(value), indent=indent, allow_nan=False, default=_unwrapped)
    return text.replace("\x7f", "\\u007f")  # DEL is ASCII, and the one control character that JSON leaves alone


def document(content: Mapping[str, Any]) -> str:
    """Returns one document, laid out for reading, with the line break at its end."""
    return to_json({"schema": SCHEMA, **content}, indent=1) + "\n"


def document_line(content: Mapping[str, Any]) -> str:
    """Returns one document on a line of its own, for a stream of them."""
    return to_json({"schema": SCHEMA, **content}) + "\n"


def document_of_rows(
    head: Mapping[str, Any],
    name: str,
    rows: Iterable[Mapping[str, Any]],
    tail: Callable[[], Mapping[str, Any]] = dict,
) -> Iterator[str]:
    """Yields the pieces of one document with a long list, row by row.

    Args:
        head: what stands before the list.
        name: the key of the list.
        rows: the list; a row is a line.
        tail: makes what stands after the list, when that is known.
    """
    yield to_json({"schema": SCHEMA, **head}, indent=1).removesuffix("\n}") + f",\n {to_json(name)}: ["
    separator = "\n  "
    for row in rows:
        yield separator + to_json(row)
        separator = ",\n  "
    after = tail()
    yield "\n ]" + ("," + to_json(after, indent=1).removeprefix("{") if after else "\n}") + "\n"


def _unwrapped(value: Any) -> Any:
    """Returns a numpy scalar as the number of Python that it is."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        return value.item()
    msg = f"{type(value).__name__} has no place in a document"
    raise TypeError(msg)
