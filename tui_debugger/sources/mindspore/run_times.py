"""When the runs in a step's directory were written, from a look at a few of its names.

Opening a dump asks for the order of its runs, and a dump may have thousands of directories with thousands of files. So
each is looked at briefly. A directory that turns out to be small is known whole then. Of a big one some time stamps are
known, which is enough to tell when it ran; where it may hold several runs, it is read to its end.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.sources.mindspore.layout import RankLayout, Stamp, stamp
from tui_debugger.sources.mindspore.listing import MAPPING, read_mapping
from tui_debugger.sources.mindspore.names import MAX_TIMESTAMP, SUFFIX
from tui_debugger.sources.mindspore.run_order import (
    DAY,
    NO_SPAN,
    RunOrder,
    Span,
    begins,
    is_ascending,
    run_order,
    runs_at,
    span,
)
from tui_debugger.sources.mindspore.statistics import FILE as STATISTICS
from tui_debugger.sources.mindspore.statistics import read_statistics
from tui_debugger.sources.mindspore.steps import young

GLANCE: Final = 32
"""So many names are looked at first."""

_PARAMETER: Final = b"Parameter."

Key = tuple[bytes, bytes, bytes]
"""(``type.name``, side, slot)."""


class FirstLook(NamedTuple):
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
    """Returns what changes when a first look would."""
    return stamp(path), stamp(path / STATISTICS)


def first_look(path: Path, *, whole: bool = False) -> FirstLook:
    """Looks at some names of a directory, or at all; one that cannot be listed holds one run of unknown time."""
    looks = looks_of(path)
    names, complete = _names(path, None if whole else GLANCE)
    seen = _parsed(path, names)
    keys = [key for key, _ in seen]
    if not complete and len(set(keys)) < len(keys):
        names, complete = _names(path, None)
        seen = _parsed(path, names)
    if not seen and complete and STATISTICS.encode() in names:
        return FirstLook(_recorded(path / STATISTICS), True, looks)
    return FirstLook(_spans(seen), complete, looks)


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


_Place = tuple[int, int]
"""(number of the graph's directory, step)."""


class RunTimes:
    """Looks briefly at the directories of a rank, and takes exact times from those who list one.

    A directory is read to its end where it may hold several runs: a tensor was seen twice, the history repeats the
    step, or it was written while another one was. Nothing is looked at where the order is certain without: one graph
    whose history names every dumped step once, ascending. Safe to call from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._first_looks: dict[Path, FirstLook] = {}
        self._fresh: set[Path] = set()
        self._exact: dict[_Place, tuple[Span, ...]] = {}
        self._order: RunOrder | None = None
        self._certain = False
        self._assumed: dict[int, dict[int, Sequence[Span]]] = {}
        self._began: dict[_Place, int] = {}

    def order(self, layout: RankLayout, history: Mapping[int, Sequence[int]]) -> RunOrder:
        """The order of the runs, as long as nothing says otherwise the same object."""
        with self._lock:
            if self._order is None:
                self._certain = _is_certain(layout, history)
                if not self._certain:
                    self._look(layout, history)
                self._assumed = self._spans(layout)
                self._began = {}
                self._order = run_order(self._assumed, history)
            return self._order

    def began(self, root: int, step: int) -> int:
        """When the only run of a step began, where a listing told more exactly than the order knows; else 0."""
        return self._began.get((root, step), 0)

    def learn(self, step: int, spans: Mapping[int, tuple[Span, ...]]) -> None:
        """Takes what the listing of a step says about its runs."""
        with self._lock:
            for root, exact in spans.items():
                self._exact[root, step] = exact
                assumed = self._assumed[root].get(step) if root in self._assumed else None
                if self._order is None or assumed == exact:
                    continue
                if assumed is not None and len(assumed) == len(exact) == 1 and self._stays(root, step, exact[0]):
                    self._began[root, step] = exact[0].began
                else:
                    self._order = None

    def forget(self, steps: Iterable[int]) -> None:
        """Forgets what the listings of some steps said."""
        with self._lock:
            gone = set(steps)
            self._exact = {place: spans for place, spans in self._exact.items() if place[1] not in gone}
            self.look_again()

    def look_again(self) -> None:
        """Directories that look different now are looked at again when the order is asked for."""
        with self._lock:
            self._fresh.clear()
            self._order = None

    def _stays(self, root: int, step: int, exact: Span) -> bool:
        """Tells whether a run that began earlier than was seen, or when nobody knew, still stands where it stood."""
        if self._certain:
            return True
        order = self._order
        number = order.places.get((root, step), -1) if order is not None else -1
        if order is None or number < 0 or not exact.began:
            return False
        before = max((run.began for run in order.runs[max(number - 1, 0) : number]), default=0)
        return before < exact.began <= order.runs[number].began

    def _look(self, layout: RankLayout, history: Mapping[int, Sequence[int]]) -> None:
        for _, path in _places(layout):
            seen = self._first_looks.get(path)
            if seen is None or (path not in self._fresh and (seen.looks != looks_of(path) or young(seen.looks))):
                self._first_looks[path] = first_look(path)
            self._fresh.add(path)
        often = {root: Counter(lines) for root, lines in history.items()}
        partly = [(place, path) for place, path in _places(layout) if self._is_partly_known(place, path)]
        crossing = self._crossing(layout) if partly else set()
        for (root, step), path in partly:
            if (root, step) in crossing or often.get(root, Counter())[step] > 1:
                self._first_looks[path] = first_look(path, whole=True)

    def _is_partly_known(self, place: _Place, path: Path) -> bool:
        return place not in self._exact and not self._first_looks[path].whole

    def _crossing(self, layout: RankLayout) -> set[_Place]:
        """Directories of which one was written while the other was."""
        known = [
            (each.began, each.ended, (root, step))
            for root, steps in self._spans(layout).items()
            for step, spans in steps.items()
            for each in spans
            if each.began
        ]
        found: set[_Place] = set()
        latest, holder = -1, (-1, -1)
        for began, ended, place in sorted(known):
            if began < latest and place != holder:
                found |= {place, holder}
            if ended > latest:
                latest, holder = ended, place
        return found

    def _spans(self, layout: RankLayout) -> dict[int, dict[int, Sequence[Span]]]:
        """The runs of every step of every graph, as far as they are known; of several nets those that tell most."""
        found: dict[int, dict[int, Sequence[Span]]] = {}
        for (root, step), path in _places(layout):
            seen = self._first_looks.get(path)
            spans = self._exact.get((root, step)) or (seen.spans if seen is not None else (NO_SPAN,))
            steps = found.setdefault(root, {})
            steps[step] = max(steps.get(step, ()), spans, key=_tells)
        return found


def _is_certain(layout: RankLayout, history: Mapping[int, Sequence[int]]) -> bool:
    """Tells whether the order of the runs is known without a look at any directory."""
    if len(layout.graphs) != 1 or len(history) != 1:
        return False
    graph = layout.graphs[0]
    lines = history.get(graph.root_graph, ())
    return len(set(lines)) == len(lines) and is_ascending(lines, set(graph.steps))


def _tells(spans: Sequence[Span]) -> tuple[int, bool, int]:
    return len(spans), bool(spans) and spans[0].began > 0, -spans[0].began if spans else 0


def _places(layout: RankLayout) -> Iterator[tuple[_Place, Path]]:
    for graph in layout.graphs:
        for step, path in graph.steps.items():
            yield (graph.root_graph, step), path
