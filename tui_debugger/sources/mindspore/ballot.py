"""From groups and rows to a pool of choices: groups with the same bytes in every file become one choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tui_debugger.sources.mindspore.assign import Mask, Numbers, Pool
from tui_debugger.sources.mindspore.candidates import Slate
from tui_debugger.sources.mindspore.flow import IN, OUT, Flow
from tui_debugger.sources.mindspore.ordering import ranks
from tui_debugger.sources.mindspore.values import UNKNOWN, Values

Files = Mapping[tuple[int, int], int]
"""File index by (side, slot)."""


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
        self._numbers: dict[tuple[int, int, bool], Numbers] = {}

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

    def numbers(self, side: int, slot: int, *, in_place: bool) -> Numbers:
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
        size = self.size
        domains = np.ones((size, len(self.holders)), np.bool_)
        for choice, groups in enumerate(self.holders):
            if not groups:
                continue
            facts = self._facts[groups[0]]
            fits = np.array([_fits(facts, flow.slots.get(row, 0), outputs[row]) for row in rows], np.bool_)
            allowed = np.array([facts.allowed is None or row in facts.allowed for row in rows], np.bool_)
            for mask in (fits, allowed):
                if (domains[: len(rows), choice] & mask).any():  # else the graph's counts are not to be trusted
                    domains[: len(rows), choice] &= mask
        starved = ~domains.any(axis=1)
        domains[starved] = True
        return Pool(self.first, size, self._stock, domains, self._preference(size, order))

    def _preference(self, size: int, order: Sequence[int]) -> Numbers:
        """Choices by row, best first: the name it spells, then the same place in time as in execution order."""
        row_rank = ranks({row: order[row] for row in self.slate.rows})
        group_rank = ranks({group: self._facts[group].timestamp for group in self.slate.groups})
        cost = np.full((size, len(self.holders)), float(size))
        for place, row in enumerate(self.slate.rows):
            for choice, groups in enumerate(self.holders):
                for group in groups:
                    gap = -1.0 if self.slate.named.get(group) == row else abs(row_rank[row] - group_rank[group])
                    cost[place, choice] = min(cost[place, choice], gap)
        ranked: Numbers = np.argsort(cost, axis=1, kind="stable")
        return ranked

    def hand_out(self, groups: Sequence[int], rows: Sequence[int], order: Sequence[int]) -> dict[int, int]:
        """Row of each group among rows that took the same choice: by name, then by time against order."""
        given = {group: row for group in groups if (row := self.slate.named.get(group)) in rows and row is not None}
        taken = set(given.values())
        late = sorted((g for g in groups if g not in given), key=lambda g: (self._facts[g].timestamp, g))
        free = sorted((row for row in rows if row not in taken), key=lambda row: (order[row], row))
        return given | dict(zip(late, free, strict=False))


def _fits(facts: GroupFacts, inputs: int, outputs: int) -> bool:
    """Whether a row has every slot that a group has files for."""
    slots = {side: max((slot for at, slot in facts.files if at == side), default=-1) for side in (IN, OUT)}
    return slots[IN] < inputs and (outputs == 0 or slots[OUT] < outputs)
