"""A path with its branches as lines: what is opened stands below what it went into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tui_debugger.session.origin.path import Branch, Hop, Path
from tui_debugger.session.types import TensorRow

Place = tuple[int, ...]
"""Hop, branch of that hop, hop of the branch's own path, ...: what identifies a line."""


@dataclass(frozen=True, slots=True)
class PathLine:
    """One line.

    Attributes:
        place: which one it is: hops have an odd number of parts, branches an even one.
        path: the path that the hop (or the hop that the branch goes into) belongs to.
        item: a hop, or a branch that was not followed (yet).
        opened: what is below it is shown.
    """

    place: Place
    path: Path
    item: Hop | Branch
    opened: bool = False

    @property
    def depth(self) -> int:
        """How far it is indented."""
        return len(self.place) - 1

    @property
    def tensor(self) -> TensorRow:
        """The tensor."""
        return self.item.tensor

    @property
    def row(self) -> int:
        """Its node's row in its rank's node table."""
        return self.item.row

    @property
    def hop(self) -> Hop | None:
        """The hop; None for a branch."""
        return self.item if isinstance(self.item, Hop) else None

    @property
    def inner(self) -> int:
        """How many lines can be opened below it: other inputs of a hop, one path of a branch."""
        return len(self.item.others) if isinstance(self.item, Hop) else 1

    @property
    def is_end(self) -> bool:
        """Whether its path ends there."""
        return self.item is self.path.end


@dataclass(frozen=True)
class Opened:
    """What is shown beside the path itself.

    Attributes:
        places: hops whose other inputs are shown, branches whose path is shown.
        paths: the paths of branches that were followed.
    """

    places: frozenset[Place] = frozenset()
    paths: Mapping[Place, Path] = field(default_factory=dict)

    def toggled(self, place: Place) -> Opened:
        """With one more place opened, or closed."""
        return Opened(self.places ^ {place}, self.paths)

    def followed(self, place: Place, path: Path) -> Opened:
        """With the path of a branch, opened."""
        return Opened(self.places | {place}, {**self.paths, place: path})


def lines_of(path: Path, opened: Opened) -> tuple[PathLine, ...]:
    """All lines, from the tensor that was asked about upstream."""
    return tuple(_lines(path, opened, (), 0))


def _lines(path: Path, opened: Opened, above: Place, first: int) -> Iterator[PathLine]:
    for number, hop in enumerate(path.hops[first:], first):
        place = (*above, number)
        yield PathLine(place, path, hop, place in opened.places)
        if place not in opened.places:
            continue
        for at, branch in enumerate(hop.others):
            inner = (*place, at)
            followed = opened.paths.get(inner) if inner in opened.places else None
            yield PathLine(inner, path, branch, followed is not None)
            if followed is not None:
                yield from _lines(followed, opened, inner, 1)  # its first hop is the branch itself
    if path.nearest is not None:
        yield PathLine((*above, len(path.hops), 0), path, path.nearest)
