"""Finds the steps of a graph that lack tensors which the steps beside them have.

A graph runs the same operators in every step. A run that was killed, a disk that was full and a copy that was cut leave
a step without some of its files, and every file that is there can be read: without this the step would be clean.

A step is compared with the two nearest ones of its graph, earlier ones first. A tensor is lacking where both have it:
an operator behind a condition, or an optimizer that runs in every fourth step, is not missed in the steps between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.model import Side
from tui_debugger.sources.base import tensor_keys
from tui_debugger.sources.mindspore.listing import Listing
from tui_debugger.sources.mindspore.names import KnownNames, Pattern, decode
from tui_debugger.text.numbers import plural

COMPARED_WITH: Final = 2
"""The number of steps that a step is compared with."""


@dataclass(frozen=True, slots=True)
class StepContents:
    """The tensors in the directory of a graph's step.

    Attributes:
        files: names of the tensor files.
        recorded: keys of the rows of ``statistic.csv``, ascending; None where there is no such file.
    """

    files: Pattern
    recorded: Int64 | None


class ContentsOfSteps:
    """Keeps what was in the directories of the steps that were listed; equal contents are kept once."""

    def __init__(self) -> None:
        """Knows no step."""
        self._recorded: dict[bytes, Int64] = {}
        self._of: dict[int, dict[bytes, StepContents]] = {}

    def of(self, step: int) -> Mapping[bytes, StepContents] | None:
        """Returns what a step's directories have, by their paths; None where it was not listed."""
        return self._of.get(step)

    def learn(self, step: int, listing: Listing) -> Mapping[bytes, StepContents]:
        """Takes in the listing of a step, and returns what ``of`` does from now on."""
        rows = {each.path.rpartition(b"/")[0]: each for each in listing.statistics}
        found = self._of[step] = {}
        for part in listing.parts:
            if part.missing:  # what cannot be looked at is said without this
                continue
            recorded, keys = rows.get(part.directory), None
            if recorded is not None:
                unique = np.unique(tensor_keys(recorded.prefix, recorded.rows.side, recorded.rows.slot))
                keys = self._recorded.setdefault(unique.tobytes(), unique)
            found[part.directory] = StepContents(part.pattern, keys)
        return found

    def forget(self, step: int) -> None:
        """Makes a step one that was never listed."""
        self._of.pop(step, None)


def nearest(steps: Sequence[int], step: int) -> list[int]:
    """Returns the steps that one is compared with: the two before it, else the nearest; ``steps`` ascend."""
    at = bisect_left(steps, step)
    first = min(max(at - COMPARED_WITH, 0), max(len(steps) - COMPARED_WITH - 1, 0))
    return [each for each in steps[first : first + COMPARED_WITH + 1] if each != step]


def lacking(known: KnownNames, mine: StepContents, others: Mapping[int, StepContents]) -> str:
    """Returns what a step lacks that all others have, as words; empty where that is nothing.

    Args:
        known: what the numbers of the names mean.
        mine: what the step has.
        others: by step.
    """
    kept = [each.recorded for each in others.values()]
    if mine.recorded is not None and all(each is not None for each in kept):
        have: Int64 = mine.recorded
        theirs = [each for each in kept if each is not None]
    else:  # statistics of some steps only: those of the others are in their files
        if mine.recorded is not None or any(each.files is mine.files for each in others.values()):
            return ""
        have, theirs = _keys(known, mine.files), [_keys(known, each.files) for each in others.values()]
    if any(each is have for each in theirs):
        return ""
    missed = np.setdiff1d(theirs[0], have, assume_unique=True)
    for each in theirs[1:]:
        missed = np.intersect1d(missed, each, assume_unique=True)
    if not len(missed):
        return ""
    first = _name(known, int(missed[0]))
    more = f" and of {plural(len(missed) - 1, 'more tensor')}" if len(missed) > 1 else ""
    return f"nothing of {first}{more} that steps {' and '.join(map(str, others))} have: was the dump cut?"


def _keys(known: KnownNames, files: Pattern) -> Int64:
    return np.unique(tensor_keys(files.prefix, known.sides()[files.ending], known.slots()[files.ending]))


def _name(known: KnownNames, key: int) -> str:
    prefix, side, slot = key >> 17, key >> 16 & 1, key & 0xFFFF
    return f"{decode(known.prefixes[prefix])} {Side(side).name.lower()} {slot}"
