"""Which run of its graph wrote a file: a directory may hold several runs of one step.

MindSpore 2.10 writes two runs of one number into one directory, a loop writes the tensors of its graph once a round,
and a whole training may be written over another. Only time stamps tell the runs apart:

* A directory holds as many runs as more than half of its operators' tensors were written times. A file that was copied
  by hand, or a run that was cut off early, does not make a run.
* A run begins where, among the tensors that every run wrote, the next writings begin. What lies between the last of
  these writings and the first of the next belongs to the run before when parameters follow it (they are written when a
  run ends), else the widest pause decides.
* A writing belongs to the run in whose time it lies. Where that gives two writings of one tensor to one run, and where
  the directory holds one run but a tensor was written several times, its writings are numbered by time alone.
* Time 0 means that the time is not known: such a writing is the oldest. Stamps more than a day away from the middle of
  their run say nothing about when that run began.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tui_debugger.arrays import Int64, Mask, UInt16

MOST_ROUNDS = 2**16 - 1
"""What the column of rounds holds."""
DAY = 24 * 3600 * 10**6
"""In microseconds: stamps further from the middle of their run are not believed."""


class Span(NamedTuple):
    """When a run's operators were written: microseconds since the epoch; 0, 0 when no time is known.

    Attributes:
        began, ended: first and last stamp of operators; of parameters where there is nothing else.
        parameters: first stamp of parameters, 0 without.
    """

    began: int
    ended: int
    parameters: int = 0


NO_SPAN = Span(0, 0)


def begins(key: Int64, time: Int64, operator: Mask) -> Int64:
    """The times at which the second and every later run of a directory began, ascending; empty: it holds one run.

    Args:
        key: what tensor a writing is of.
        time: of each writing.
        operator: whether it is an operator's; where none is, parameters count.
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
    """Where a run begins, given the sorted times of the same tensors in the run before and in it."""
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
    """The round of every writing: its run, or its number among the writings of its tensor; 0 where it is the only one.

    Files and recorded rows of one tensor are numbered from the newest, so that the newest belong together.

    Args:
        key: what tensor a writing is of.
        time: of each writing.
        run: in whose time it lies.
        several: whether its directory holds several runs.
        recorded: whether it is a row of recorded statistics, not a file.
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
    """When one run was written."""
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
