"""The watchpoints a debugger sent, at work: what has to be measured of a tensor, and what they say about it.

The arithmetic is that of offline checks: a framework makes a ``Record`` of a tensor, ``watch.evaluate`` judges it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.model import Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import Record, Records, RequiredStats
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, Condition, Value
from tui_debugger.watch.evaluate import ColumnEvaluator, needs

_GRAPH_SEPARATOR = "/"


class Judge:
    """Which tensors are watched, and by what. Looking a name up costs one dictionary access once it is known.

    Attributes:
        patience: for how long what held; None: what holds is a finding at once.
    """

    def __init__(self, watchpoints: Iterable[tuple[Watchpoint, Iterable[str]]] = ()) -> None:
        """Watches nodes by their full names; ``watched`` makes this of what came over the wire."""
        self._by_name: dict[str, list[Watchpoint]] = {}
        self._scopes: list[tuple[str, Watchpoint]] = []
        self._needs: dict[str, RequiredStats] = {}
        self.patience: Patience | None = None
        for watchpoint, names in watchpoints:
            for name in names:
                self.add(watchpoint, name)

    def add(self, watchpoint: Watchpoint, name: str, *, scope: bool = False) -> None:
        """Also watches a node, or everything below a scope."""
        if scope:
            self._scopes.append((name.rstrip("/") + "/", watchpoint))
        elif watchpoint not in (known := self._by_name.setdefault(name, [])):
            known.append(watchpoint)
        self._needs.clear()

    def __bool__(self) -> bool:
        """Tells whether anything is watched."""
        return bool(self._by_name or self._scopes)

    def watchpoints(self, name: str) -> Sequence[Watchpoint]:
        """The watchpoints on a node, by id, each once."""
        found = list(self._by_name.get(name, ()))
        if self._scopes:
            found += [each for scope, each in self._scopes if name.startswith(scope) and each not in found]
        return sorted(found, key=lambda each: each.id)

    def need(self, name: str) -> RequiredStats | None:
        """What a record of this node's tensors must hold beyond statistics; None when it is not watched at all."""
        if name not in self._needs:
            found = self.watchpoints(name)
            if not found:
                return None
            need = RequiredStats()
            for each in found:
                need |= needs(each)
            self._needs[name] = need
        return self._needs[name]

    def results(self, name: str, record: Record, *, initial: bool = False) -> list[WatchResult]:
        """Returns what the watchpoints on a node say about one of its tensors: see ``evaluate``, for many at once."""
        (found,) = self.evaluate([(name, record)], initial=initial)
        return found

    def evaluate(
        self, tensors: Sequence[tuple[str, Record]], *, initial: bool = False, covered_only: bool = False
    ) -> list[list[WatchResult]]:
        """Judges tensors, all at once.

        A comparison with a step before which there was nothing to compare with is nothing to report.

        Args:
            tensors: (node, record that is made for at least ``need(node)``) of each, in the order of time.
            initial: no step has run: only the condition on initial values is judged.
            covered_only: records may hold less; watchpoints that need more than a record holds leave it out.

        Returns:
            For each tensor what the watchpoints on its node say about it, by watchpoint id.
        """
        records = Records.of([record for _, record in tensors])
        evaluators: dict[tuple[int, ...], ColumnEvaluator] = {}
        found: list[list[tuple[Watchpoint, WatchResult]]] = [[] for _ in tensors]
        for watchpoint, rows in self._rows_by_watchpoint(tensors, covered_only=covered_only):
            own = tuple(rows)
            if own not in evaluators:
                evaluators[own] = ColumnEvaluator(records, np.array(rows))
            results = evaluators[own].results(watchpoint, first_step=True, initial=initial)
            for row, result in zip(rows, results, strict=True):
                if result is not None and result.verdict is not Verdict.NOT_COMPARABLE:
                    found[row].append((watchpoint, result))
        return [
            [result for watchpoint, result in each if initial or self._stands(name, watchpoint, result)]
            for (name, _), each in zip(tensors, found, strict=True)
        ]

    def _rows_by_watchpoint(
        self, tensors: Sequence[tuple[str, Record]], *, covered_only: bool
    ) -> list[tuple[Watchpoint, list[int]]]:
        """Returns which of some tensors each watchpoint judges, by watchpoint id."""
        known: dict[str, Sequence[Watchpoint]] = {}
        rows: dict[int, tuple[Watchpoint, list[int]]] = {}
        for row, (name, record) in enumerate(tensors):
            if name not in known:
                known[name] = self.watchpoints(name)
            need = self.need(name) if covered_only else None
            whole = need is None or record.need.covers(need)
            for each in known[name]:
                if whole or record.need.covers(needs(each)):
                    rows.setdefault(id(each), (each, []))[1].append(row)
        return sorted(rows.values(), key=lambda each: each[0].id)

    def _stands(self, name: str, watchpoint: Watchpoint, result: WatchResult) -> bool:
        return self.patience is None or self.patience.stands(name, watchpoint, result)


def _in_a_row(watchpoint: Watchpoint) -> int:
    return next((int(value) for name, value in watchpoint.params if name == IN_A_ROW), 1)


EXCUSED: Final = 20
"""So many steps in a row may have a reason why nothing was to happen; from then on it counts all the same.

A gradient scaler that halves its scale whenever it leaves a step out has come down to a millionth by then.
"""


def _never(_: str, __: WatchResult) -> bool:
    return False


class Patience:
    """For how many steps in a row something held, where a watchpoint asks for several (``in_a_row``).

    A step in which the tensor was not seen neither counts nor ends the row. One in which nothing was to happen (an
    optimizer that left the step out, an expert that got nothing) is excused: only ``EXCUSED`` of them are a finding.
    """

    def __init__(self, excused: Callable[[str, WatchResult], bool] = _never) -> None:
        """``excused``: whether there is a reason why nothing else was to be expected of a node in this step."""
        self._excused = excused
        self._held: dict[tuple[str, Watchpoint], tuple[int, int]] = {}
        self._now: dict[tuple[str, Watchpoint], tuple[int, int]] = {}

    def stands(self, name: str, watchpoint: Watchpoint, result: WatchResult) -> bool:
        """Tells whether what a watchpoint says of a node is a finding by now. May be asked several times in a step."""
        excused, in_a_row = self._excused(name, result), _in_a_row(watchpoint)
        if in_a_row <= 1 and not excused:
            return True
        key = name, watchpoint
        count, excuses = self._held.get(key, (0, 0))
        count, excuses = (count, excuses + 1) if excused else (count + 1, excuses)
        self._now[key] = count, excuses
        return count >= in_a_row or excuses >= EXCUSED

    def next_step(self, seen: Iterable[str]) -> None:
        """The step is over. What did not hold any more on nodes that were seen begins anew."""
        if self._held:
            names = set(seen)
            self._held = {key: counts for key, counts in self._held.items() if key[0] not in names}
        self._held |= self._now
        self._now.clear()


def watched(watchpoints: Iterable[RemoteWatchpoint], names: Iterable[str]) -> Judge:
    """The watchpoints that came over the wire, on the nodes that there are.

    A node is meant by its full name, by its full name behind a graph's name, or by the last component of it: the last
    is how MindSpore's client finds parameters. Conditions that are not known here are left out.

    Args:
        watchpoints: the whole list.
        names: nodes of the graph that was sent.
    """
    known = set(names)
    last = _last_components(known)
    judge = Judge()
    for remote in watchpoints:
        watchpoint = as_watchpoint(remote)
        if watchpoint is None:
            continue
        for name, kind, _ in remote.nodes:
            if kind == "scope":
                judge.add(watchpoint, name, scope=True)
            else:
                judge.add(watchpoint, resolve(name, known, last))
    return judge


def resolve(name: str, known: Iterable[str], last: dict[str, str] | None = None) -> str:
    """The name of a node of this graph that a debugger means by a name; the name itself when there is none."""
    names = known if isinstance(known, set | frozenset | dict) else set(known)
    if name in names:
        return name
    rest = name.partition(_GRAPH_SEPARATOR)[2]
    if rest in names:
        return rest
    ends = _last_components(names) if last is None else last
    return ends.get(name.rpartition(_GRAPH_SEPARATOR)[2], name)


def _last_components(names: Iterable[str]) -> dict[str, str]:
    """Names by their last component, where that is enough to tell them apart."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name in names:
        end = name.rpartition(_GRAPH_SEPARATOR)[2]
        if end in found:
            twice.add(end)
        found[end] = name
    return {end: name for end, name in found.items() if end not in twice}


def as_watchpoint(remote: RemoteWatchpoint) -> Watchpoint | None:
    """A watchpoint that came over the wire as offline checks know it; None for a condition that is not known."""
    condition = _by_wire().get(remote.condition)
    if condition is None:
        return None
    specs = {spec.name: spec for spec in condition.params}
    given: dict[str, Value] = {}
    for name, value, disabled in remote.params:
        if name in specs and not disabled and math.isfinite(value):
            given[name] = bool(value) if specs[name].kind == "bool" else float(value)
    params = tuple((spec.name, given[spec.name]) for spec in condition.params if spec.name in given)
    return Watchpoint(remote.id, condition.id, params)


@lru_cache(maxsize=1)
def _by_wire() -> dict[int, Condition]:
    """Conditions by their number on the wire. Those that share one differ in what they are meant for only."""
    return {condition.wire: condition for condition in reversed(tuple(CONDITIONS.values()))}
