"""From groups and rows to a pool of choices: groups with the same bytes in every file become one choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.sources.mindspore.assign import Pool
from tui_debugger.sources.mindspore.candidates import Slate
from tui_debugger.sources.mindspore.flow import IN, OUT, Flow
from tui_debugger.sources.mindspore.ordering import ranks
from tui_debugger.sources.mindspore.values import UNKNOWN, Values

Files = Mapping[tuple[int, int], int]
"""File index by (side, slot)."""
_MANY = 2**15


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known about one group before it is matched."""

    files: Files
    timestamp: int
    allowed: frozenset[int] | None = None
    """Rows that remain from earlier evidence; None for all of the slate."""

    def allowed_in(self, rows: Sequence[int]) -> frozenset[int]:
        """Rows that remain of a slate's."""
        return frozenset(rows) if self.allowed is None else self.allowed

    def last(self, side: int) -> int:
        """Highest slot of a side that has a file, -1 for none."""
        return max((slot for at, slot in self.files if at == side), default=-1)


def number_at(files: Files, side: int, slot: int, values: Values, *, in_place: bool) -> int:
    """Number of the contents at a place; UNKNOWN for an input that its own operator may have overwritten.

    Input files of in-place operators (``in_place``) are written after the kernel: they equal the output then.
    """
    index = files.get((side, slot))
    number = UNKNOWN if index is None else values.of(index)
    result = files.get((OUT, slot)) if in_place and side == IN else None
    return UNKNOWN if result is not None and values.of(result) == number else number


class Ballot:
    """One slate as a pool.

    Attributes:
        slate: the rows and groups.
        first, size: variables: one per row in the order of ``slate.rows``, then one per group too many (no node).
        holders: groups of each choice; the choice without groups means: no files.
        choice_of: choice of each group.
    """

    def __init__(self, slate: Slate, first: int, facts: Sequence[GroupFacts], values: Values) -> None:
        """``facts`` by group index; ``first`` is the number of the pool's first variable."""
        self.slate, self.first, self._facts, self._values = slate, first, facts, values
        self.size = max(len(slate.rows), len(slate.groups))
        choices: dict[object, list[int]] = {}
        for group in slate.groups:
            choices.setdefault((self._content(group), facts[group].allowed), []).append(group)
        self.holders = list(choices.values())
        alike: dict[object, int] = {}
        self._alike = [alike.setdefault(self._content(groups[0]), len(alike)) for groups in self.holders]
        stock = [len(groups) for groups in self.holders]
        self._missing = len(slate.rows) - len(slate.groups)
        if self._missing > 0:
            self.holders.append([])
            self._alike.append(-1)
            stock.append(self._missing)
        self.choice_of = {group: choice for choice, groups in enumerate(self.holders) for group in groups}
        self._stock = np.array(stock, np.int64)
        self._numbers: dict[tuple[int, int, bool], Int64] = {}

    def _content(self, group: int) -> object:
        facts = self._facts[group]
        content = []
        for place, index in sorted(facts.files.items()):
            number = self._values.of(index)
            content.append((place, (group,) if number == UNKNOWN else number))  # unreadable ones may all differ
        return tuple(content)

    def decided(self, possible: Mask) -> bool:
        """Whether all choices that are possible hold the same bytes."""
        return len({self._alike[choice] for choice in np.flatnonzero(possible)}) == 1

    def numbers(self, side: int, slot: int, *, in_place: bool) -> Int64:
        """What each choice holds at a place."""
        key = side, slot, in_place
        if key not in self._numbers:
            found = [
                number_at(self._facts[groups[0]].files, side, slot, self._values, in_place=in_place)
                if groups
                else UNKNOWN
                for groups in self.holders
            ]
            self._numbers[key] = np.array(found, np.int64)
        return self._numbers[key]

    def pool(self, flow: Flow, outputs: Sequence[int], order: Sequence[int]) -> Pool:
        """The pool for the solver.

        Args:
            flow: for the number of inputs of a row.
            outputs: number of output slots by row, 0 when unknown.
            order: position in execution order by row.
        """
        rows = self.slate.rows
        slots = {
            IN: np.array([flow.slots.get(row, 0) for row in rows]),
            OUT: np.array([outputs[row] or _MANY for row in rows]),
        }
        domains = np.ones((self.size, len(self.holders)), np.bool_)
        for choice, groups in enumerate(self.holders):
            if not groups:
                continue
            facts = self._facts[groups[0]]
            masks = [slots[side] > facts.last(side) for side in (IN, OUT)]
            if facts.allowed is not None:
                masks.append(np.array([row in facts.allowed for row in rows], np.bool_))
            for mask in masks:
                if (domains[: len(rows), choice] & mask).any():  # else the graph's counts are not to be trusted
                    domains[: len(rows), choice] &= mask
        domains[~domains.any(axis=1)] = True
        return Pool(self.first, self.size, self._stock, domains, self._ranking(order))

    def _ranking(self, order: Sequence[int]) -> Callable[[int], list[int]]:
        """Choices by row, best first: the name it spells, then the same place in time as in execution order."""
        rows, groups = self.slate.rows, self.slate.groups
        row_rank = ranks({row: order[row] for row in rows})
        group_rank = ranks({group: self._facts[group].timestamp for group in groups})
        place = np.array([group_rank[group] for group in groups])
        choice = np.array([self.choice_of[group] for group in groups])
        named = {row: self.choice_of[group] for group, row in self.slate.named.items() if group in self.choice_of}

        def ranking(at: int) -> list[int]:
            cost = np.full(len(self.holders), self.size)
            if at < len(rows):
                np.minimum.at(cost, choice, np.abs(place - row_rank[rows[at]]))
                if rows[at] in named:
                    cost[named[rows[at]]] = -1
            ranked: list[int] = np.argsort(cost, kind="stable").tolist()
            return ranked

        return ranking

    def hand_out(self, groups: Sequence[int], rows: Sequence[int], order: Sequence[int]) -> dict[int, int]:
        """Row of each group among rows that took the same choice: by name, then by time against order."""
        given = {group: row for group in groups if (row := self.slate.named.get(group)) in rows and row is not None}
        taken = set(given.values())
        late = sorted((g for g in groups if g not in given), key=lambda g: (self._facts[g].timestamp, g))
        free = sorted((row for row in rows if row not in taken), key=lambda row: (order[row], row))
        return given | dict(zip(late, free, strict=False))
