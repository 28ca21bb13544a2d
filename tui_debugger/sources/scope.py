"""The part of a run that PATH names: only what lies at and below it is judged and shown.

The graph, the order of runs and the step before may be read from the run around it. Every list of ranks, steps, tensors
or doubts for people asks the source's scope.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from tui_debugger.errors import NotADumpError
from tui_debugger.model import GraphRun, UnreadablePart
from tui_debugger.sources.paths import is_inside, ways_to

_SPEAK_OF_ALL: Final = (".json", ".jsonl", ".csv")
"""Files of recorders that describe all tensors beside them: such a file stands for its directory."""


class ListedRun(Protocol):
    """The lists of a source that a scope narrows: see ``base.Source``."""

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""

    def steps(self, rank: int) -> Sequence[int]:
        """Steps of a rank."""

    def history(self, rank: int) -> Sequence[GraphRun]:
        """Runs of graphs."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """A rank, or one step or one root graph of it."""

    rank: int
    step: int | None = None
    graph: int | None = None


@dataclass(frozen=True)
class Scope:
    """The part of a run that is asked about."""

    paths: tuple[str, ...]
    """Given paths, absolute; several where several directories are one run. Links are kept."""
    root: str
    """The directory of the run, the first one of several."""
    places: tuple[RunPart, ...] | None = None
    """The parts of the run that lie there; None: all of it; empty: nothing of it lies there."""
    files: bool = False
    """Only tensors in files at or below ``paths`` count: others of the same step lie elsewhere."""
    name: str = ""
    """Words for people, ``checkpoint-6 of run/, one of 5``; empty: the whole run."""

    @property
    def text(self) -> str:
        """Words for people, ``checkpoint-6 of run/, one of 5: give run/ for all``; empty: the whole run."""
        near = os.path.relpath(self.root)
        return f"{self.name}: give {self.root if near.startswith('..') else near}/ for all" if self.name else ""

    @property
    def path(self) -> str:
        return self.paths[0]

    @property
    def whole(self) -> bool:
        return self.places is None

    @cached_property
    def _by_rank(self) -> dict[int, tuple[RunPart, ...]]:
        found: dict[int, list[RunPart]] = {}
        for place in self.places or ():
            found.setdefault(place.rank, []).append(place)
        return {rank: tuple(of) for rank, of in found.items()}

    def ranks(self, run: ListedRun) -> Sequence[int]:
        there = run.ranks()
        return there if self.whole else [rank for rank in there if rank in self._by_rank]

    def steps(self, run: ListedRun, rank: int) -> Sequence[int]:
        there = run.steps(rank)
        if self.whole:
            return there
        wanted: set[int] = set()
        for place in self._by_rank.get(rank, ()):
            if place.step is not None:
                wanted.add(place.step)
            elif place.graph is None:
                return there
            else:
                ran = run.history(rank)
                wanted |= {each.step for each in ran if each.has_data and each.root_graph == place.graph}
        return [step for step in there if step in wanted]

    def holds(self, rank: int | None = None, step: int | None = None) -> bool:
        """Whether the scope may hold something of a rank and a step; None: unknown."""
        if self.places is None:
            return True
        return any(
            rank in {None, place.rank} and (None in {step, place.step} or step == place.step) for place in self.places
        )

    def holds_path(self, path: str) -> bool:
        """Whether a path, absolute or relative to the run, lies at or below the scope's paths."""
        if self.whole:
            return True
        path = os.path.normpath(os.path.join(self.root, path))  # noqa: PTH118 - text all the way
        return any(is_inside(path, each) for each in self._walked)

    @cached_property
    def _walked(self) -> tuple[str, ...]:
        """The paths as given, and with links resolved."""
        return tuple(dict.fromkeys((*self.paths, *map(os.path.realpath, self.paths))))

    def covers(self, part: UnreadablePart) -> bool:
        """Whether a part that could not be looked at may hold something of the scope.

        Graph files always count: they say which nodes there are.
        """
        if self.whole or part.unrecorded:
            return True
        if not self.holds(part.rank, part.step):
            return False
        where = os.path.normpath(os.path.join(self.root, part.where))  # noqa: PTH118 - text all the way
        return part.graph or self.holds_path(where) or any(is_inside(each, where) for each in self._walked)

    def graphs(self, rank: int) -> set[int] | None:
        """The root graphs of a rank in the scope; None: all."""
        places = self._by_rank.get(rank, ())
        graphs = {place.graph for place in places if place.graph is not None}
        return graphs if graphs and all(place.graph is not None for place in places) else None

    def joined(self, others: Sequence[Scope]) -> Scope:
        """The scope of several runs that are opened as one; each rank belongs to one of them."""
        every = (self, *others)
        if all(each.whole for each in every):
            return whole_run(*(path for each in every for path in each.paths), root=self.root)
        return Scope(
            tuple(path for each in every for path in each.paths),
            self.root,
            tuple(place for each in every for place in each.places or ()),
            any(each.files for each in every),
            "; ".join(each.name for each in every if each.name),
        )


def whole_run(*paths: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Scope:
    found = tuple(os.path.abspath(path) for path in paths)  # noqa: PTH100 - keeps links
    return Scope(found, found[0] if root is None else os.path.abspath(root))  # noqa: PTH100 - as above


def scope_at(
    root: str | os.PathLike[str], given: str | os.PathLike[str], places: Iterable[tuple[RunPart, str]]
) -> Scope:
    """Returns the part of a run that a path names.

    ``given`` is the path as the user wrote it; ``places`` are the parts of the run, each with a file or directory that
    holds it or something of it.
    """
    top, path = (os.path.abspath(each) for each in (root, given))  # noqa: PTH100 - keeps links
    ways = ways_to(top, path)
    if not ways:
        return whole_run(path, root=top)
    every = [(place, os.path.abspath(of)) for place, of in places]  # noqa: PTH100 - keeps links
    for here in ways:
        below = [(place, of) for place, of in every if is_inside(of, here)]
        around = [(place, of) for place, of in every if of != here and is_inside(here, of)]
        if below or around:
            found = {place for place, _ in (*below, *around)}
            apart = bool(around) or any(place in found and not is_inside(of, here) for place, of in every)
            return part_of_run(top, here, found, files=apart, alike=[of for _, of in every])
    return part_of_run(top, path, ())


def part_of_run(
    root: str | os.PathLike[str],
    path: str,
    places: Iterable[RunPart],
    *,
    files: bool = False,
    alike: Iterable[str] = (),
) -> Scope:
    """Returns the scope of a part of a run; ``places`` lie at ``path``.

    ``files``: some of their tensors lie elsewhere: see ``Scope.files``. ``alike``: paths to count for "one of 5".
    """
    top = os.path.abspath(root)  # noqa: PTH100 - keeps links
    files = files and not path.endswith(_SPEAK_OF_ALL)
    return Scope((path,), top, tuple(sorted(places, key=_in_order)), files, _words(top, path, alike))


def _in_order(place: RunPart) -> tuple[int, ...]:
    return place.rank, -1 if place.step is None else place.step, -1 if place.graph is None else place.graph


def _words(top: str, path: str, alike: Iterable[str]) -> str:
    """``checkpoint-6 of run/, one of 5``."""
    name = os.path.relpath(path, top) if is_inside(path, top) else path
    depth = name.count("/") + 1
    beside = {tuple(os.path.relpath(each, top).split("/")[:depth]) for each in alike}
    beside = {each for each in beside if len(each) == depth and _suffix(each[-1]) == _suffix(name)}
    number = f", one of {len(beside):,}" if tuple(name.split("/")) in beside and len(beside) > 1 else ""
    return f"{name} of {os.path.basename(top) or top}/{number}"  # noqa: PTH119 - text


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1]  # noqa: PTH122 - text


def refusal(scope: Scope) -> NotADumpError:
    """The error of a path without a part of the run around it."""
    return NotADumpError(
        "No tensor of the run around it lies here",
        where=scope.path,
        hint=f"name {scope.root} for the whole run, or a part of it that holds tensors",
    )
