"""What the steps of a rank that were matched so far decided about names: two numbers for each."""

from __future__ import annotations

import numpy as np

from tui_debugger.sources.mindspore.groups import Groups
from tui_debugger.sources.mindspore.match import NOWHERE, Match

_NEVER = NOWHERE - 1
"""Row of a name that was not matched."""


class Decided:
    """The results of matches by prefix; of several about one name the last counts."""

    def __init__(self) -> None:
        """Nothing was matched."""
        self._row = np.zeros(0, np.int32)
        self._doubtful = np.zeros(0, np.bool_)
        self._open: dict[int, dict[int, tuple[int, ...]]] = {}

    @property
    def open(self) -> bool:
        """Whether another step could decide more."""
        return any(self._open.values())

    def open_in(self, root: int) -> bool:
        """Whether another step could decide more about a root graph."""
        return bool(self._open.get(root))

    def earlier(self, groups: Groups) -> Match | None:
        """What is decided about some groups, as the matcher takes it; None when nothing is."""
        self._grow(groups)
        known = np.flatnonzero(self._row[groups.prefixes] != _NEVER)
        if not len(known):
            return None
        numbers = groups.prefixes[known]
        left_open = self._open.get(groups.root, {})
        rows = ((at, left_open.get(number)) for at, number in enumerate(numbers.tolist()))
        return Match(
            keys=tuple([groups.keys[group] for group in known.tolist()]),
            node=self._row[numbers],
            uncertain=self._doubtful[numbers],
            open={at: possible for at, possible in rows if possible is not None} if left_open else {},
        )

    def take(self, groups: Groups, match: Match) -> None:
        """Takes a result."""
        self._grow(groups)
        self._row[groups.prefixes], self._doubtful[groups.prefixes] = match.node, match.uncertain
        numbers, left_open = groups.prefixes.tolist(), self._open.setdefault(groups.root, {})
        for number in numbers if left_open else ():
            left_open.pop(number, None)
        left_open.update((numbers[group], rows) for group, rows in match.open.items())

    def _grow(self, groups: Groups) -> None:
        more = int(groups.prefixes.max(initial=-1)) + 1 - len(self._row)
        if more > 0:
            self._row = np.append(self._row, np.full(more, _NEVER, np.int32))
            self._doubtful = np.append(self._doubtful, np.zeros(more, np.bool_))
