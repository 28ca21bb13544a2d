"""One side of a tensor as a list: its producers or consumers, and theirs below them where they are opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tui_debugger.model import TensorKey
from tui_debugger.session.diagnosis.relations import Related

Place = tuple[int, ...]
"""Which one of the side, which one of its own, ..."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line.

    Attributes:
        place: what identifies it.
        related: the tensor; what it is tied to is the item above it, or the tensor in the middle.
        opened: its own producers (or consumers) stand below it.
    """

    place: Place
    related: Related
    opened: bool = False

    @property
    def depth(self) -> int:
        """How many hops it is beyond the first."""
        return len(self.place) - 1


@dataclass(frozen=True)
class Side:
    """Producers or consumers.

    Attributes:
        first: one hop away.
        inner: further ones, by the place that they were opened at; kept when it is closed.
        opened: the places that are open.
    """

    first: Sequence[Related] = ()
    inner: Mapping[Place, Sequence[Related]] = field(default_factory=dict)
    opened: frozenset[Place] = frozenset()

    def with_inner(self, place: Place, related: Sequence[Related]) -> Side:
        """With what is one hop beyond an item, opened."""
        return Side(self.first, {**self.inner, place: related}, self.opened | {place})

    def toggled(self, place: Place) -> Side:
        """With an item opened or closed that was opened before."""
        return Side(self.first, self.inner, self.opened ^ {place})

    def anew(self, first: Sequence[Related], look: Callable[[Related], Sequence[Related]]) -> Side:
        """Other contents, with the same items opened; those of which nothing is left are closed."""
        side = Side(first)
        for place in sorted(self.inner, key=len):
            at = {item.place: item for item in replace(side, opened=frozenset(side.inner)).items()}.get(place)
            found = look(at.related) if at is not None else ()
            if found:
                side = side.with_inner(place, found)
        return replace(side, opened=side.opened & self.opened)

    def items(self) -> tuple[Item, ...]:
        """All lines."""
        return tuple(self._items(self.first, ()))

    def _items(self, related: Sequence[Related], above: Place) -> Iterator[Item]:
        for number, each in enumerate(related):
            place = (*above, number)
            opened = place in self.opened
            yield Item(place, each, opened)
            if opened:
                yield from self._items(self.inner.get(place, ()), place)


@dataclass(frozen=True, slots=True)
class Trail:
    """The tensors that were in the middle, in the order in which they were visited.

    Attributes:
        visited: never empty.
        at: which one is shown.
    """

    visited: tuple[tuple[TensorKey, int], ...]
    at: int = 0

    @property
    def here(self) -> tuple[TensorKey, int]:
        """Tensor and node row."""
        return self.visited[self.at]

    def walked(self, key: TensorKey, row: int) -> Trail:
        """One further; what was ahead is forgotten."""
        if key == self.here[0]:
            return self
        return Trail((*self.visited[: self.at + 1], (key, row)), self.at + 1)

    def moved(self, by: int) -> Trail:
        """Back or forward, as far as it goes."""
        return Trail(self.visited, max(0, min(self.at + by, len(self.visited) - 1)))
