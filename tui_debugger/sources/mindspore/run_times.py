"""What is known about when the runs of one rank were written, and the order that follows from it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tui_debugger.sources.mindspore.layout import RankLayout
from tui_debugger.sources.mindspore.peek import Glimpse, glimpse, looks_of
from tui_debugger.sources.mindspore.rounds import NO_SPAN, Span
from tui_debugger.sources.mindspore.run_order import RunOrder, is_ascending, run_order
from tui_debugger.sources.mindspore.steps import young

_Place = tuple[int, int]
"""(number of the graph's directory, step)."""


class RunTimes:
    """Looks briefly at the directories of a rank, and takes exact times from those who list one.

    A directory is read to its end where it may hold several runs: a tensor was seen twice, the history repeats the
    step, or it was written while another one was. Nothing is looked at where the order is certain without: one graph
    whose history names every dumped step once, ascending. Safe to call from any thread.
    """

    def __init__(self) -> None:
        """Nothing was looked at."""
        self._lock = threading.RLock()
        self._glimpses: dict[Path, Glimpse] = {}
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
        """Whether a run that began earlier than was seen, or when nobody knew, still stands where it stood."""
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
            seen = self._glimpses.get(path)
            if seen is None or (path not in self._fresh and (seen.looks != looks_of(path) or young(seen.looks))):
                self._glimpses[path] = glimpse(path)
            self._fresh.add(path)
        often = {root: Counter(lines) for root, lines in history.items()}
        partly = [(place, path) for place, path in _places(layout) if self._is_partly_known(place, path)]
        crossing = self._crossing(layout) if partly else set()
        for (root, step), path in partly:
            if (root, step) in crossing or often.get(root, Counter())[step] > 1:
                self._glimpses[path] = glimpse(path, whole=True)

    def _is_partly_known(self, place: _Place, path: Path) -> bool:
        return place not in self._exact and not self._glimpses[path].whole

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
            seen = self._glimpses.get(path)
            spans = self._exact.get((root, step)) or (seen.spans if seen is not None else (NO_SPAN,))
            steps = found.setdefault(root, {})
            steps[step] = max(steps.get(step, ()), spans, key=_tells)
        return found


def _is_certain(layout: RankLayout, history: Mapping[int, Sequence[int]]) -> bool:
    """Whether the order of the runs is known without a look at any directory."""
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
