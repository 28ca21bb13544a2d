"""When the runs in a step's directory were written, from a look at a few of its names.

Opening a dump asks for the order of its runs, and a dump may have thousands of directories with thousands of files. So
each is looked at briefly. A directory that turns out to be small is known whole then. Of a big one some time stamps are
known, which is enough to tell when it ran; where it may hold several runs, it is read to its end.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.sources.mindspore.layout import Stamp, stamp
from tui_debugger.sources.mindspore.listing import MAPPING, read_mapping
from tui_debugger.sources.mindspore.names import MAX_TIMESTAMP, SUFFIX
from tui_debugger.sources.mindspore.rounds import DAY, NO_SPAN, Span, begins, runs_at, span
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS
from tui_debugger.sources.mindspore.statcsv import read_statistics

GLANCE: Final = 32
"""So many names are looked at first."""

_PARAMETER: Final = b"Parameter."

Key = tuple[bytes, bytes, bytes]
"""(``type.name``, side, slot)."""


class Glimpse(NamedTuple):
    """What a look at a directory found.

    Attributes:
        spans: of its runs, oldest first; of a big directory only as far as it was seen.
        whole: whether all of it was seen.
        looks: of the directory and its statistics, before it was looked at.
    """

    spans: tuple[Span, ...]
    whole: bool
    looks: tuple[Stamp, Stamp]


def looks_of(path: Path) -> tuple[Stamp, Stamp]:
    """What changes when a glimpse would."""
    return stamp(path), stamp(path / STATISTICS)


def glimpse(path: Path, *, whole: bool = False) -> Glimpse:
    """Looks at some names of a directory, or at all; one that cannot be listed holds one run of unknown time."""
    looks = looks_of(path)
    names, complete = _names(path, None if whole else GLANCE)
    seen = _parsed(path, names)
    keys = [key for key, _ in seen]
    if not complete and len(set(keys)) < len(keys):
        names, complete = _names(path, None)
        seen = _parsed(path, names)
    if not seen and complete and STATISTICS.encode() in names:
        return Glimpse(_recorded(path / STATISTICS), True, looks)
    return Glimpse(_spans(seen), complete, looks)


def _names(path: Path, most: int | None) -> tuple[list[bytes], bool]:
    """Names of a directory, and whether these are all."""
    try:
        with os.scandir(os.fsencode(path)) as entries:
            names = [entry.name for entry in islice(entries, most)]
            return names, most is None or len(names) < most or next(entries, None) is None
    except OSError:
        return [], True


def _parsed(path: Path, names: list[bytes]) -> list[tuple[Key, int]]:
    """(tensor, time) of the names of tensor files."""
    found, others = [], []
    for name in names:
        parsed = _parts(name)
        if parsed is not None:
            found.append(parsed)
        elif name.removesuffix(SUFFIX).isdigit():
            others.append(name.removesuffix(SUFFIX))
    if others:
        mapping = _mapping(path)
        originals = (_parts(mapping[digits].removesuffix(SUFFIX) + SUFFIX) for digits in others if digits in mapping)
        found += [parsed for parsed in originals if parsed is not None]
    return found


def _mapping(path: Path) -> dict[bytes, bytes]:
    """Original names by name on disk; none where they cannot be read: whoever lists the directory says so."""
    try:
        return read_mapping(path / MAPPING)[0]
    except OSError:
        return {}


def _parts(name: bytes) -> tuple[Key, int] | None:
    """(tensor, time) of a name; None when it is no tensor file's. Half a microsecond: thousands are looked at."""
    if not name.endswith(SUFFIX):
        return None
    side = b".output."
    left, mark, right = name.rpartition(side)
    if not mark:
        side = b".input."
        left, mark, right = name.rpartition(side)
    fields = left.rsplit(b".", 3)
    if len(fields) < 4 or not fields[3].isdigit() or len(fields[3]) > 19:
        return None
    time = int(fields[3])
    return ((fields[0], side, right.partition(b".")[0]), time) if time <= MAX_TIMESTAMP else None


def _spans(seen: list[tuple[Key, int]]) -> tuple[Span, ...]:
    """The runs among some writings."""
    if not seen:
        return (NO_SPAN,)
    numbers: dict[Key, int] = {}
    key = [numbers.setdefault(each, len(numbers)) for each, _ in seen]
    if len(numbers) == len(seen):
        return (_span(seen),)
    time = np.array([each for _, each in seen], np.int64)
    operator = np.array([not text.startswith(_PARAMETER) for (text, _, _), _ in seen], np.bool_)
    return _divided(np.array(key, np.int64), time, operator)


def _span(seen: list[tuple[Key, int]]) -> Span:
    """``rounds.span`` without arrays, for the few names of a brief look."""
    operators = [time for (text, _, _), time in seen if time and not text.startswith(_PARAMETER)]
    parameters = [time for (text, _, _), time in seen if time and text.startswith(_PARAMETER)]
    first, last = min(operators, default=0), max(operators, default=0)
    if not operators or last - first > DAY or (parameters and max(parameters) - min(parameters) > DAY):
        times = np.array([*operators, *parameters], np.int64)
        return span(times, np.arange(len(times)) < len(operators))
    return Span(first, last, min(parameters, default=0))


def _divided(key: Int64, time: Int64, operator: Mask) -> tuple[Span, ...]:
    began = begins(key, time, operator)
    run = runs_at(time, began)
    return tuple([span(time[run == at], operator[run == at]) for at in range(1, len(began) + 2)])


def _recorded(path: Path) -> tuple[Span, ...]:
    """The runs that a ``statistic.csv`` tells of."""
    try:
        rows = read_statistics(path)
    except OSError:
        return (NO_SPAN,)
    key = (rows.prefix.astype(np.int64) << 17) | (rows.side.astype(np.int64) << 16) | rows.slot
    operator = np.array([not text.startswith(_PARAMETER) for text in rows.prefixes] or [False])[rows.prefix]
    return _divided(key, rows.timestamp, operator)
