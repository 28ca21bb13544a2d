"""Applies the watchpoints that a debugger sent: what to measure of a tensor, and their results, as offline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.errors import BadWatchpointError
from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.model import TensorStats, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import PreviousStats, Record, Records, RequiredStats
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, Condition, Value
from tui_debugger.watch.evaluate import ColumnEvaluator, Facts, needs

_GRAPH_SEPARATOR = "/"


class StepMemory:
    """What expressions use besides a tensor: the step (-1: unknown), the rank, and its previous statistics.

    It outlives lists of watchpoints. If a tensor comes several times in a step, the last one counts.
    """

    def __init__(self, rank: int | None = None) -> None:
        self.step = -1
        self.rank = rank
        self._before: dict[tuple[str, int], TensorStats] = {}
        self._now: dict[tuple[str, int], TensorStats] = {}
        self._known: set[tuple[str, int]] = set()

    def first(self, name: str, slot: int) -> bool:
        """Tells whether no earlier step had a tensor, as far as expressions looked at it."""
        return (name, slot) not in self._known

    def previous(self, name: str, slot: int) -> PreviousStats:
        stats = self._before.get((name, slot))
        return PreviousStats("none" if stats is None else "ok", stats)

    def keep(self, name: str, slot: int, record: Record) -> None:
        if record.stats is not None:
            self._now[name, slot] = record.stats

    def next_step(self) -> None:
        """The step is over; the caller also sets the number of the next one."""
        self._known |= self._now.keys()
        self._before, self._now = self._now, {}


class ClientJudge:
    """The watchpoints on each tensor; looking up a known name costs one dictionary access."""

    def __init__(self, watchpoints: Iterable[tuple[Watchpoint, Iterable[str]]] = ()) -> None:
        """Watches nodes by their full names; ``watched`` makes a judge from the debugger's list."""
        self._by_name: dict[str, list[Watchpoint]] = {}
        self._scopes: list[tuple[str, Watchpoint]] = []
        self._needs: dict[str, RequiredStats] = {}
        self._nodes: dict[str, tuple[str, int]] = {}
        self.patience: ConsecutiveSteps | None = None  # None: a condition that holds is a finding at once
        self.memory: StepMemory | None = None  # None: expressions on previous statistics cannot be judged
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

    def know(self, name: str, kind: str, category: int) -> None:
        """Takes the operator type of a node, and its ``model.Category`` (-1: unknown), for expressions."""
        known = self._nodes.get(name, ("", -1))
        self._nodes[name] = (kind or known[0], category if category >= 0 else known[1])

    def __bool__(self) -> bool:
        return bool(self._by_name or self._scopes)

    def watchpoints(self, name: str) -> Sequence[Watchpoint]:
        found = list(self._by_name.get(name, ()))
        if self._scopes:
            found += [each for scope, each in self._scopes if name.startswith(scope) and each not in found]
        return sorted(found, key=lambda each: each.id)

    def need(self, name: str) -> RequiredStats | None:
        """What a record of this node's tensors must hold, without previous statistics; None when it is not watched."""
        if name not in self._needs:
            found = self.watchpoints(name)
            if not found:
                return None
            need = RequiredStats()
            for each in found:
                need |= _measured(each)
            self._needs[name] = need
        return self._needs[name]

    def results(self, name: str, record: Record, *, initial: bool = False) -> list[WatchResult]:
        (found,) = self.evaluate([(name, record)], initial=initial)
        return found

    def evaluate(
        self,
        tensors: Sequence[tuple[str, Record]],
        *,
        slots: Sequence[int] = (),
        initial: bool = False,
        covered_only: bool = False,
    ) -> list[list[WatchResult]]:
        """Judges tensors, all at once; returns the results for each tensor by watchpoint id.

        ``tensors`` are (node, record that covers at least ``need(node)``), in the order of time, with output ``slots``
        (all 0 when empty). ``initial``: no step has run: only conditions on initial values are judged.
        ``covered_only``: watchpoints that need more than a record holds leave it out. A comparison without a previous
        tensor is not reported.
        """
        first = np.ones(len(tensors), np.bool_)
        if not initial and any(needs(each).previous_stats for each in self._watchpoints_of(tensors)):
            tensors, first = self._with_previous(tensors, slots or [0] * len(tensors))
        records = Records.of([record for _, record in tensors])
        evaluators: dict[tuple[int, ...], ColumnEvaluator] = {}
        found: list[list[tuple[Watchpoint, WatchResult]]] = [[] for _ in tensors]
        for watchpoint, rows in self._rows_by_watchpoint(tensors, covered_only=covered_only):
            own = tuple(rows)
            if own not in evaluators:
                names = [tensors[row][0] for row in rows]
                evaluators[own] = ColumnEvaluator(records, np.array(rows), partial(self._facts, names))
            results = evaluators[own].results(watchpoint, first[rows], initial=initial)
            for row, result in zip(rows, results, strict=True):
                if result is not None and result.verdict is not Verdict.NOT_COMPARABLE:
                    found[row].append((watchpoint, result))
        return [
            [result for watchpoint, result in each if initial or self._stands(name, watchpoint, result)]
            for (name, _), each in zip(tensors, found, strict=True)
        ]

    def _watchpoints_of(self, tensors: Sequence[tuple[str, Record]]) -> set[Watchpoint]:
        return {each for name in {name for name, _ in tensors} for each in self.watchpoints(name)}

    def _with_previous(
        self, tensors: Sequence[tuple[str, Record]], slots: Sequence[int]
    ) -> tuple[list[tuple[str, Record]], Mask]:
        """Adds the statistics of the step before to records; also returns which tensors are new.

        Without ``memory`` nothing is known about the step before, which counts as a doubt.
        """
        found: list[tuple[str, Record]] = []
        first = np.ones(len(tensors), np.bool_)
        asking = {name: any(needs(each).previous_stats for each in self.watchpoints(name)) for name, _ in tensors}
        for at, ((name, record), slot) in enumerate(zip(tensors, slots, strict=True)):
            previous = PreviousStats("none")
            if asking[name] and self.memory is None:
                first[at] = False
            elif asking[name] and self.memory is not None:
                previous, first[at] = self.memory.previous(name, slot), self.memory.first(name, slot)
                self.memory.keep(name, slot, record)
            found.append((name, replace(record, previous_stats=previous if asking[name] else None)))
        return found, first

    def _facts(self, names: Sequence[str]) -> Facts:
        nodes = [self._nodes.get(name, ("", -1)) for name in names]
        memory = self.memory or StepMemory()
        return Facts(
            step=np.full(len(names), memory.step, np.int64),
            rank=memory.rank,
            name=lambda: names,
            type=lambda: [kind for kind, _ in nodes],
            category=lambda: np.array([category for _, category in nodes], np.int64),
        )

    def _rows_by_watchpoint(
        self, tensors: Sequence[tuple[str, Record]], *, covered_only: bool
    ) -> list[tuple[Watchpoint, list[int]]]:
        known: dict[str, Sequence[Watchpoint]] = {}
        rows: dict[int, tuple[Watchpoint, list[int]]] = {}
        for row, (name, record) in enumerate(tensors):
            if name not in known:
                known[name] = self.watchpoints(name)
            need = self.need(name) if covered_only else None
            whole = need is None or record.need.covers(need)
            for each in known[name]:
                if whole or record.need.covers(_measured(each)):
                    rows.setdefault(id(each), (each, []))[1].append(row)
        return sorted(rows.values(), key=lambda each: each[0].id)

    def _stands(self, name: str, watchpoint: Watchpoint, result: WatchResult) -> bool:
        return self.patience is None or self.patience.stands(name, watchpoint, result)


def _measured(watchpoint: Watchpoint) -> RequiredStats:
    return replace(needs(watchpoint), previous_stats=False)


def _in_a_row(watchpoint: Watchpoint) -> int:
    return next((int(value) for name, value in watchpoint.params if name == IN_A_ROW), 1)


EXCUSED: Final = 20
"""The number of steps in a row in which "nothing changed" may be excused; later ones count all the same.

A gradient scaler that halves its scale whenever it skips a step has come down to a millionth by then.
"""


def _never(_: str, __: WatchResult) -> bool:
    return False


class ConsecutiveSteps:
    """Counts in how many steps in a row a condition held, for watchpoints with ``in_a_row``.

    A step without the tensor neither counts nor ends the row. A step in which nothing was to happen (an optimizer that
    skipped the step, an expert without input) is excused: only ``EXCUSED`` of them are a finding.
    """

    def __init__(self, excused: Callable[[str, WatchResult], bool] = _never) -> None:
        """``excused`` tells whether a node had a reason not to change in this step."""
        self._excused = excused
        self._held: dict[tuple[str, Watchpoint], tuple[int, int]] = {}
        self._now: dict[tuple[str, Watchpoint], tuple[int, int]] = {}

    def stands(self, name: str, watchpoint: Watchpoint, result: WatchResult) -> bool:
        """Tells whether a result on a node is a finding by now. May be asked several times in a step."""
        excused, in_a_row = self._excused(name, result), _in_a_row(watchpoint)
        if in_a_row <= 1 and not excused:
            return True
        key = name, watchpoint
        count, excuses = self._held.get(key, (0, 0))
        count, excuses = (count, excuses + 1) if excused else (count + 1, excuses)
        self._now[key] = count, excuses
        return count >= in_a_row or excuses >= EXCUSED

    def next_step(self, seen: Iterable[str]) -> None:
        """The step is over: counts of ``seen`` nodes whose condition did not hold any more start again."""
        if self._held:
            names = set(seen)
            self._held = {key: counts for key, counts in self._held.items() if key[0] not in names}
        self._held |= self._now
        self._now.clear()


def watched(watchpoints: Iterable[RemoteWatchpoint], names: Iterable[str]) -> ClientJudge:
    """The watchpoints from the debugger, on the present nodes; unknown conditions are left out.

    A node is named by its full name, with or without graph, or by its last component, as MindSpore's client does.
    """
    known = set(names)
    last = _last_components(known)
    judge = ClientJudge()
    for remote in watchpoints:
        watchpoint = as_watchpoint(remote)
        if watchpoint is None:
            continue
        for name, kind, _ in remote.nodes:
            if kind == "scope":
                judge.add(watchpoint, name, scope=True)
            else:
                own = resolve(name, known, last)
                judge.add(watchpoint, own)
                judge.know(own, kind, remote.categories.get(name, -1))
    return judge


def resolve(name: str, known: Iterable[str], last: dict[str, str] | None = None) -> str:
    """The node of this graph that a debugger means by a name; the name itself when there is none."""
    names = known if isinstance(known, set | frozenset | dict) else set(known)
    if name in names:
        return name
    rest = name.partition(_GRAPH_SEPARATOR)[2]
    if rest in names:
        return rest
    ends = _last_components(names) if last is None else last
    return ends.get(name.rpartition(_GRAPH_SEPARATOR)[2], name)


def _last_components(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name in names:
        end = name.rpartition(_GRAPH_SEPARATOR)[2]
        if end in found:
            twice.add(end)
        found[end] = name
    return {end: name for end, name in found.items() if end not in twice}


def as_watchpoint(remote: RemoteWatchpoint) -> Watchpoint | None:
    """A watchpoint from the debugger in the form of offline checks; None for an unknown condition."""
    condition = _by_wire().get(remote.condition)
    if condition is None:
        return None
    specs = {spec.name: spec for spec in condition.params}
    given: dict[str, Value] = {}
    for name, value, disabled in remote.params:
        if name not in specs or disabled:
            continue
        if isinstance(value, str):
            try:
                given[name] = specs[name].check_value(value)
            except BadWatchpointError:
                return None
        elif math.isfinite(value) and specs[name].kind != "expression":
            given[name] = bool(value) if specs[name].kind == "bool" else float(value)
    params = tuple((spec.name, given[spec.name]) for spec in condition.params if spec.name in given)
    if condition.is_expression and not params:
        return None
    return Watchpoint(remote.id, condition.id, params)


@lru_cache(maxsize=1)
def _by_wire() -> dict[int, Condition]:
    """Conditions by their number on the wire; of several with one number the first."""
    return {condition.wire: condition for condition in reversed(tuple(CONDITIONS.values()))}
