"""Numbers for tables: short, and of the same width at any size. Lists and counts for sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

NONE = "–"
"""Shown where there is no value."""


def number(value: float | None) -> str:
    """Returns a number in at most ten cells: ``0``, ``0.0417``, ``1.25e-24``, ``–`` for None."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    size = abs(value)
    if size < 1e6 and value == int(value):
        return str(int(value))
    if 1e-3 <= size < 99999.5:  # above it, five digits round to six and %g changes to an exponent
        return f"{value:.5g}"
    if 1 <= size < 1e6:
        return f"{value:.0f}"
    # Three digits after the point; two where a negative exponent of three digits needs the cell.
    digits, _, exponent = f"{value:.{3 if size >= 1e-99 or value > 0 else 2}e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def percent(part: float) -> str:
    """Returns a percentage that never rounds to 0 or 100 by itself: ``0``, ``<0.1``, ``37.5``, ``100``."""
    if part in (0.0, 100.0):
        return str(int(part))
    if part < 0.1:
        return "<0.1"
    if part > 99.9:
        return ">99.9"
    return f"{part:.1f}"


def share(part: float, whole: float) -> str:
    """Returns ``91 %`` or ``<0.1 %``; empty if ``whole`` is 0."""
    return f"{percent(100 * part / whole)} %" if whole else ""


def count(value: int) -> str:
    """Returns a count in at most six cells: ``0``, ``12,345``, ``1.2M``."""
    for limit, unit in ((1e5, ""), (1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T")):
        if value < limit:
            scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]
            return f"{value:,}" if not unit else f"{value / scale:.4g}{unit}"
    return f"{value:.1e}"


def size(value: int) -> str:
    """Returns a number of bytes as ``512 B`` or ``1.5 MB``."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.4g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1000
    return str(value)


def age(seconds: float) -> str:
    """Returns an age: ``now``, ``5 min``, ``3 h``, ``12 d``, ``2 y``."""
    for limit, unit, length in ((3600, "min", 60), (86400, "h", 3600), (2 * 365 * 86400, "d", 86400)):
        if seconds < limit:
            return f"{int(seconds // length)} {unit}" if seconds >= 60 else "now"
    return f"{int(seconds // (365 * 86400))} y"


def moment(seconds: float | None) -> str | None:
    """Returns a moment in local time, ISO 8601; None if out of range, as in a damaged file."""
    if seconds is None:
        return None
    from datetime import datetime  # not for every command

    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def plural(count_: int, word: str, several: str = "") -> str:
    """Returns ``1 step``, ``3 steps``; ``several`` is an irregular plural."""
    return f"{count_:,} {word if count_ == 1 else several or word + 's'}"


def are(count_: int) -> str:
    return "is" if count_ == 1 else "are"


def first_of(texts: Sequence[str], most: int, gap: str = ", ") -> str:
    """Returns the first texts, ``a, b, …``; without the mark if there are no more."""
    return gap.join([*texts[:most], "…"] if len(texts) > most else texts)


def and_more(texts: Sequence[str], most: int) -> str:
    """Returns the first texts and the number of others: ``a, b and 3 more``."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the first and last number of each gapless run of ascending numbers."""
    found: list[tuple[int, int]] = []
    for each in numbers:
        if found and found[-1][1] == each - 1:
            found[-1] = found[-1][0], each
        else:
            found.append((each, each))
    return found


def brief(numbers: Iterable[int]) -> str:
    """Returns ascending numbers as ``0-5,8``."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first},{last}"
        for first, last in runs(numbers)
    )


def named(word: str, numbers: Sequence[int]) -> str:
    """Returns ``steps 0-5``, ``rank 0``, ``steps none``."""
    return f"{word}{'' if len(numbers) == 1 else 's'} {brief(numbers) or 'none'}"


_RANK: Final = re.compile(r"\brank[_ ]?(\d{1,9})\b")
_VERBS: Final = {" has ": " have ", " is ": " are ", " was ": " were ", " lacks ": " lack "}


@lru_cache(maxsize=4)
def grouped_notices(notices: tuple[str, ...]) -> tuple[str, ...]:
    """Merges notices that differ only in the number of the rank: ``ranks 0-999 have no run history: ...``."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for notice in notices:
        mention = _RANK.search(notice)
        if mention is None:
            found.setdefault((notice,), {})
        else:
            alike = notice[: mention.start()], notice[mention.end() :]
            found.setdefault(alike, {})[int(mention[1])] = notice
    return tuple([_merged(alike, ranks) for alike, ranks in found.items()])


def _merged(alike: tuple[str, ...], ranks: dict[int, str]) -> str:
    if len(ranks) < 2:
        return next(iter(ranks.values()), alike[0])
    before, after = alike
    first, *others = sorted(ranks)
    if before.endswith(("/", "\\")) or after.startswith(("/", "\\")):  # a part of a path stays as it is
        return f"{ranks[first]} (the same of {named('rank', others)})"
    return before + named("rank", [first, *others]) + _of_several(after)


def _of_several(text: str) -> str:
    for one, several in _VERBS.items():
        if text.startswith(one):
            return several + text[len(one) :]
    if re.match(r": \d", text):  # a count of things: the count applies to each rank
        return f", each{text}"
    return text
