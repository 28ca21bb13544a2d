"""The runs of a rank: which of them wrote a file, and in which order they ran.

A directory may hold several runs of one step: MindSpore 2.10 writes two runs of one number into one directory, a loop
writes the tensors of its graph once a round, and a training may be written over another. Only time stamps tell the runs
apart:

- The number of runs in a directory is the number of times that more than half of its operators' tensors were written.
  A file copied by hand, or a run that was cut off early, makes no run.
- A run begins where, among the tensors that every run wrote, the next writings begin. Files between the last of these
  writings and the first of the next belong to the earlier run when parameters follow them (they are written when a run
  ends), else the widest pause decides.
- A writing belongs to the run in whose time it lies. If a run then has two writings of one tensor, or the directory
  holds one run but several writings of a tensor, the tensor's writings are numbered by time alone.
- Time 0 means unknown: such a writing is the oldest. Stamps more than a day from the middle of their run do not count
  for its beginning.

Time stamps also order the runs: MindSpore 2.10 numbers the runs of each root graph in its own way (``2,1,4,3``), and
the graphs of a step run in any order. Other facts count where time stamps make no sense:

- A graph whose history file names its dumped steps in ascending order ran in that order, also if clocks step back or
  files were copied. The longest series of runs with ascending stamps is believed; runs between take the time before.
- Otherwise the history file only tells which runs there were: it can hold the lines of several ranks.
- Runs without a known time (0), at the same time, or not dumped come by step number.
- Two trainings into one directory: the graph that ran first came back to its first step after other steps, and so did
  every other graph. A run of one training is never the previous run of another's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from typing import NamedTuple

import numpy as np

from tui_debugger.arrays import Int64, Mask, UInt16
from tui_debugger.sources.base import MOST_ROUNDS

DAY = 24 * 3600 * 10**6
"""In microseconds: stamps further from the middle of their run are not believed."""


class Span(NamedTuple):
    """The time in which a run's operators were written: microseconds since the epoch; 0, 0 when unknown."""

    began: int
    """Stamp of the first operator; of the first parameter where there is nothing else."""
    ended: int
    parameters: int = 0
    """First stamp of parameters, 0 without."""


NO_SPAN = Span(0, 0)


def begins(key: Int64, time: Int64, operator: Mask) -> Int64:
    """The times at which the second and every later run of a directory began, ascending; empty: it holds one run.

    ``key`` identifies the tensor of each writing. Only writings of operators count, unless there are none.
    """
    counted = operator if operator.any() else np.ones(len(key), np.bool_)
    keys, times = key[counted], time[counted]
    by = np.lexsort((times, keys))
    keys, times = keys[by], times[by]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, len(keys)))
    runs = min(int(np.sort(counts)[::-1][len(counts) // 2]), MOST_ROUNDS) if len(counts) else 1
    if runs < 2:
        return np.zeros(0, np.int64)
    every = times[starts[counts == runs][:, None] + np.arange(runs)]
    stamps, ends = np.unique(time), np.unique(time[~operator])
    found = [_begin(np.sort(every[:, at - 1]), np.sort(every[:, at]), stamps, ends) for at in range(1, runs)]
    return np.maximum.accumulate(np.array(found, np.int64))


def _begin(before: Int64, after: Int64, stamps: Int64, ends: Int64) -> int:
    """The beginning of a run, given the sorted times of the same tensors in the run before and in it."""
    low, high = int(before[-1]), int(after[0])
    if low >= high:  # files were lost or added: the time that is right for most
        tried = np.unique(np.append(before, after))
        right = np.searchsorted(before, tried) + len(after) - np.searchsorted(after, tried)
        return int(tried[int(np.argmax(right))])
    last = int(np.searchsorted(ends, high)) - 1
    low = max(low, int(ends[last])) if last >= 0 else low
    between = stamps[np.searchsorted(stamps, low) : np.searchsorted(stamps, high, side="right")]
    return int(between[int(np.argmax(np.diff(between))) + 1])


def runs_at(time: Int64, begins: Int64) -> UInt16:
    """The run, from 1, in whose time each writing lies."""
    return (np.searchsorted(begins, time, side="right") + 1).astype(np.uint16)


def numbered(key: Int64, time: Int64, run: UInt16, several: Mask, recorded: Mask) -> UInt16:
    """The round of every writing: its run, or its number among the writings of its tensor; 0 for the only one.

    Files and ``recorded`` rows of one tensor are numbered from the newest, so that the newest belong together.
    ``several``: the directory of the writing holds several runs.
    """
    by = np.lexsort((time, recorded, key))
    keys, rows = key[by], recorded[by]
    tensor = np.append(True, keys[1:] != keys[:-1])
    group = tensor | np.append(True, rows[1:] != rows[:-1])
    starts = np.flatnonzero(group)
    counts = np.diff(np.append(starts, len(by)))
    tensors = np.cumsum(tensor) - 1
    most = np.zeros(int(tensors[-1]) + 1, np.int64)
    np.maximum.at(most, tensors[starts], counts)
    behind = np.repeat(starts + counts, counts) - 1 - np.arange(len(by))
    by_number = np.where(most[tensors] > 1, most[tensors] - behind, 0)
    twice = np.zeros(len(most), np.bool_)
    same = ~group[1:] & (run[by][1:] == run[by][:-1])
    twice[tensors[1:][same]] = True
    rounds = np.empty(len(by), np.uint16)
    rounds[by] = np.where(several[by] & ~twice[tensors], run[by], np.minimum(by_number, MOST_ROUNDS))
    return rounds


def span(time: Int64, operator: Mask) -> Span:
    operators, parameters = _sane(time[operator]), _sane(time[~operator])
    if not len(operators):
        operators = parameters
    if not len(operators):
        return NO_SPAN
    first = int(parameters.min()) if len(parameters) else 0
    return Span(int(operators.min()), int(operators.max()), first)


def _sane(time: Int64) -> Int64:
    """The stamps that can be believed: known ones, at most a day from the middle one."""
    known = time[time > 0]
    if len(known) < 3 or int(known.max()) - int(known.min()) <= DAY:
        return known
    middle = int(np.partition(known, len(known) // 2)[len(known) // 2])
    return known[np.abs(known - middle) <= DAY]


Spans = Mapping[int, Sequence[Span]]
"""By dumped step of a graph, the spans of its runs."""


class OrderedRun(NamedTuple):
    """One run of a graph."""

    step: int
    root: int
    """Number of the graph's directory."""
    round: int
    """Which run of the step, from 1; 0 when there is one."""
    began: int
    """First stamp of its operators, 0 when unknown."""
    dumped: bool
    """Whether it has a directory."""


class _PlacedRun(NamedTuple):
    """A run, and the time at which it is taken to have run."""

    time: int
    run: OrderedRun


@dataclass(frozen=True, eq=False)
class RunOrder:
    """The runs of a rank in the order in which they ran."""

    runs: tuple[OrderedRun, ...]
    begins: tuple[int, ...] = (0,)
    """Indices of the runs that begin a training; the first is 0."""

    @cached_property
    def steps(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run.step for run in self.runs if run.dumped))

    @cached_property
    def places(self) -> dict[tuple[int, int], int]:
        """Index of the newest run of every dumped step of a graph."""
        return {(run.root, run.step): number for number, run in enumerate(self.runs) if run.dumped}

    @cached_property
    def graphs(self) -> tuple[int, ...]:
        """Numbers of the graphs' directories, as they ran; a graph of some steps only stands behind its predecessor."""
        found: list[int] = []
        step, ran = -1, set[int]()
        for run in self.runs:
            if not run.dumped:
                continue
            if run.step != step:
                step, ran = run.step, set()
            if run.root not in found:
                place = max((at + 1 for at, root in enumerate(found) if root in ran), default=len(found))
                found.insert(place, run.root)
            ran.add(run.root)
        return tuple(found)

    def previous(self, root: int, step: int, round: int) -> tuple[int, int] | None:  # noqa: A002 - see TensorKey
        """(step, round) of the dumped run of a graph before the named one: see ``Source.previous_run``.

        For a step that is not dumped: the newest run of a smaller step number. A round that is no run, but one of
        several writings of a tensor in a run, follows the writing before.
        """
        mine = self._rounds.get((root, step))
        if mine is None:
            return self._newest_below(root, step)
        most = max(mine[-1], 1)
        if round > most:
            return step, round - 1
        return self._before[root, step, mine[-1] if round == 0 or most == 1 else round]

    @cached_property
    def _rounds(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for run in self.runs:
            if run.dumped:
                found.setdefault((run.root, run.step), []).append(run.round)
        return found

    @cached_property
    def _before(self) -> dict[tuple[int, int, int], tuple[int, int] | None]:
        found: dict[tuple[int, int, int], tuple[int, int] | None] = {}
        last: dict[int, tuple[int, int]] = {}
        first = set(self.begins)
        for number, run in enumerate(self.runs):
            if number in first:
                last = {}
            if run.dumped:
                found[run.root, run.step, run.round] = last.get(run.root)
                last[run.root] = run.step, run.round
        return found

    @cached_property
    def _newest(self) -> dict[int, tuple[list[int], list[int]]]:
        """By graph: dumped steps, ascending, and for each the index of the newest run of it or a smaller one."""
        places: dict[int, dict[int, int]] = {}
        for number, run in enumerate(self.runs):
            if run.dumped:
                places.setdefault(run.root, {})[run.step] = number
        found = {}
        for root, at in places.items():
            steps = sorted(at)
            newest: list[int] = []
            for step in steps:
                newest.append(max(at[step], newest[-1] if newest else -1))
            found[root] = steps, newest
        return found

    def _newest_below(self, root: int, step: int) -> tuple[int, int] | None:
        steps, newest = self._newest.get(root, ([], []))
        below = bisect_left(steps, step)
        if not below:
            return None
        run = self.runs[newest[below - 1]]
        return run.step, run.round


def run_order(dumped: Mapping[int, Spans], history: Mapping[int, Sequence[int]]) -> RunOrder:
    """Puts runs in order. ``dumped``: spans of each graph; ``history``: lines of each graph's history file."""
    in_graph = {root: _in_graph(root, spans, history.get(root, ())) for root, spans in dumped.items()}
    timed = sorted((each.run.step, each.time) for sequence in in_graph.values() for each in sequence if each.time)
    sequences = []
    for root in sorted({*dumped, *history}):
        sequence = in_graph.get(root, [])
        missing = sorted(set(history.get(root, ())) - {each.run.step for each in sequence})
        sequences.append(_with_missing(root, sequence, missing, _Clock(timed)))
    runs = tuple(each.run for each in merge(*sequences, key=lambda each: (each.time, each.run.step, each.run.root)))
    return RunOrder(runs, _trainings(runs, history))


def is_ascending(lines: Sequence[int], steps: set[int]) -> bool:
    """Whether a history file names all of these steps in ascending order."""
    named = [line for line in lines if line in steps]
    return set(named) == steps and named == sorted(named)


def _in_graph(root: int, spans: Spans, lines: Sequence[int]) -> list[_PlacedRun]:
    """The dumped runs of one graph in order, with times that never descend; 0 where none is known."""
    runs = [
        OrderedRun(step, root, number if len(spans[step]) > 1 else 0, each.began, True)
        for step in sorted(spans)
        for number, each in enumerate(spans[step], 1)
    ]
    if not is_ascending(lines, set(spans)):
        runs.sort(key=_TimedRuns(runs))
    known = [number for number, run in enumerate(runs) if run.began]
    believed = [known[at] for at in _ascending([runs[number].began for number in known])]
    times, time = [0] * len(runs), runs[believed[0]].began if believed else 0
    sure = set(believed)
    for number, run in enumerate(runs):
        time = run.began if number in sure else time
        times[number] = time
    return [_PlacedRun(time, run) for time, run in zip(times, runs, strict=True)]


class _TimedRuns:
    """Sort key by time; a run without a time stands behind the previous step of its graph."""

    def __init__(self, runs: Sequence[OrderedRun]) -> None:
        self._time: dict[OrderedRun, int] = {}
        time = 0
        for run in runs:  # by step
            time = run.began or time
            self._time[run] = time

    def __call__(self, run: OrderedRun) -> tuple[int, int, int]:
        return self._time[run], run.step, run.round


def _ascending(times: Sequence[int]) -> list[int]:
    """Positions of the longest series that never descends."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for position, time in enumerate(times):
        place = bisect_right(tails, time)
        before.append(ends[place - 1] if place else -1)
        if place == len(tails):
            tails.append(time)
            ends.append(position)
        else:
            tails[place], ends[place] = time, position
    series, position = [], ends[-1] if ends else -1
    while position >= 0:
        series.append(position)
        position = before[position]
    return series[::-1]


class _Clock:
    """The time at which a step ran, by the times of steps with numbers up to its own."""

    def __init__(self, timed: Sequence[tuple[int, int]]) -> None:
        """``timed`` are (step, time) of the dumped runs of all graphs, ascending."""
        self._steps = [step for step, _ in timed]
        self._times: list[int] = []
        for _, time in timed:
            self._times.append(max(time, self._times[-1] if self._times else 0))

    def __call__(self, step: int) -> int:
        upto = bisect_right(self._steps, step)
        return self._times[upto - 1] if upto else 0


def _with_missing(root: int, sequence: list[_PlacedRun], missing: Sequence[int], clock: _Clock) -> list[_PlacedRun]:
    """Adds the runs that were not dumped to those of a graph: behind every run of a smaller step."""
    timeless = not any(each.time for each in sequence)
    placed = [each._replace(time=clock(each.run.step)) for each in sequence] if timeless else sequence
    by_step = sorted((each.run.step, number) for number, each in enumerate(placed))
    steps = [step for step, _ in by_step]
    behind: list[int] = []
    for _, number in by_step:
        behind.append(max(number + 1, behind[-1] if behind else 0))
    found: list[_PlacedRun] = []
    at = 0
    for step in missing:
        below = bisect_left(steps, step)
        stop = behind[below - 1] if below else 0
        found += placed[at:stop]
        at = max(at, stop)
        low = found[-1].time if found else 0
        high = placed[at].time if at < len(placed) else None
        time = max(clock(step), low)
        found.append(_PlacedRun(min(time, high) if high is not None else time, OrderedRun(step, root, 0, 0, False)))
    return found + placed[at:]


def _trainings(runs: Sequence[OrderedRun], history: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    dumped = [(number, run) for number, run in enumerate(runs) if run.dumped]
    if not any(run.round > 1 for _, run in dumped):
        return (0,)
    first = dumped[0][1]
    lines = history.get(first.root, ())
    found, others = [0], 0
    alone = len({run.step for _, run in dumped}) == 1 and _repeats(lines, sum(r.root == first.root for _, r in dumped))
    for number, run in dumped[1:]:
        if run.root != first.root:
            continue
        if run.step != first.step:
            others += 1
        elif others or alone:
            found.append(number)
            others = 0
    told = lines.count(first.step) if first.step in lines else len(found)
    return tuple(found) if told >= len(found) and _alike(dumped, found) else (0,)


def _alike(dumped: Sequence[tuple[int, OrderedRun]], begins: Sequence[int]) -> bool:
    """Whether every graph began each training in which it ran with the same step."""
    first: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for number, run in dumped:
        training = bisect_right(begins, number)
        if (training, run.root) not in seen:
            seen.add((training, run.root))
            if first.setdefault(run.root, run.step) != run.step:
                return False
    return True


def _repeats(lines: Sequence[int], times: int) -> bool:
    """Whether the lines are one sequence repeated ``times`` times."""
    length, rest = divmod(len(lines), times)
    return times > 1 and bool(length) and not rest and all(lines[at] == lines[at % length] for at in range(len(lines)))
