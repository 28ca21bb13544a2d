"""Several dumps as one run: each host wrote its own ranks into a directory of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import GraphRun, ProgressFn, ReadSpec, RunInfo, UnreadablePart, no_progress, sorted_parts
from tui_debugger.notes import RunNotes
from tui_debugger.sources.base import (
    CallArguments,
    Capability,
    Changes,
    NumbersSource,
    ParallelSource,
    RankPlaces,
    Source,
    TensorTable,
    Writer,
)
from tui_debugger.sources.registry import Shows, open_source, shown_by
from tui_debugger.sources.scope import RunPart, Scope
from tui_debugger.text.numbers import named

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.graph.messages import ParsedGraph


T = TypeVar("T")


def open_sources(paths: Sequence[Path], store: DiskCache | None = None) -> Source:
    """Opens the dumps at some paths as one run; raises TdbgError when two have the same rank."""
    with ExitStack() as opened:
        sources = []
        for path in paths:
            sources.append(open_source(path, store))
            opened.callback(sources[-1].close)
        joined = JoinedSource(sources)
        opened.pop_all()
    return joined


class JoinedSource:
    """A ``base.Source`` of several sources; each rank belongs to one of them, which answers for it."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Takes over open sources; the first one names the run. Raises TdbgError for a rank in two sources."""
        self.sources = tuple(sources)
        self._paths = tuple(os.path.abspath(source.info.path) for source in sources)  # noqa: PTH100 - keeps links
        self.hosts = _apart(self._paths)
        """By source, the part of its path in which the paths differ."""
        self._owner: dict[int, int] = {}
        self._take_in()

    def _take_in(self) -> None:
        owner: dict[int, int] = {}
        for number, source in enumerate(self.sources):
            for rank in source.scope.ranks(source):
                if rank in owner:
                    one, other = self._paths[owner[rank]], self._paths[number]
                    raise TdbgError(
                        f"rank {rank} is in two of the dumps",
                        where=f"{one} and {other}",
                        hint="name the directories of one run, each with ranks of its own; tdbg diff compares two runs",
                    )
                owner[rank] = number
        self._owner = owner

    def _of(self, rank: int) -> Source:
        return self.sources[self._owner.get(rank, 0)]

    def hosts_of_ranks(self) -> dict[int, str]:
        return {rank: self.hosts[number] for rank, number in sorted(self._owner.items())}

    # -- the run -------------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        """The first dump's facts with the notices of all; the first notice says which ranks lie where."""
        infos = [source.info for source in self.sources]
        notices = [self._places()]
        for host, info in zip(self.hosts, infos, strict=True):
            notices += [each if all(each in i.notices for i in infos) else f"{host}: {each}" for each in info.notices]
        layouts = dict.fromkeys(info.layout for info in infos)
        return replace(infos[0], layout=" and ".join(layouts), notices=tuple(dict.fromkeys(notices)))

    def _places(self) -> str:
        ranks: dict[int, list[int]] = {}
        for rank, number in sorted(self._owner.items()):
            ranks.setdefault(number, []).append(rank)
        told = [f"{named('rank', of)} in {self.hosts[number]}" for number, of in sorted(ranks.items())]
        return f"{len(self.sources)} directories are one run: {'; '.join(told)}"

    @property
    def shows(self) -> Shows:
        """The abilities of the first dump: the others are of the same recorder."""
        return next(filter(None, map(shown_by, self.sources)), Shows())

    @property
    def capabilities(self) -> Capability:
        return reduce(or_, (source.capabilities for source in self.sources))

    @property
    def scope(self) -> Scope:
        first, *others = (self._scope_of(number) for number in range(len(self.sources)))
        return first.joined(others)

    def _scope_of(self, number: int) -> Scope:
        """A source's scope; its ranks instead of None (all of it) where another source's scope is narrower."""
        source = self.sources[number]
        if not source.scope.whole or all(each.scope.whole for each in self.sources):
            return source.scope
        return replace(source.scope, places=tuple(RunPart(rank) for rank in source.ranks()))

    def ranks(self) -> Sequence[int]:
        return sorted(self._owner)

    def steps(self, rank: int) -> Sequence[int]:
        return self._of(rank).steps(rank)

    def history(self, rank: int) -> Sequence[GraphRun]:
        return self._of(rank).history(rank)

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> tuple[int, int] | None:
        return self._of(rank).previous_run(rank, root_graph, step, round)

    def unreadable(self) -> Sequence[UnreadablePart]:
        return sorted_parts(
            replace(part, where=os.path.relpath(os.path.join(path, part.where), self._paths[0]))  # noqa: PTH118 - text
            for path, source in zip(self._paths, self.sources, strict=True)
            for part in source.unreadable()
            if source.scope.covers(part)
        )

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        source = self._of(rank)
        return source.parallel_places(rank) if isinstance(source, ParallelSource) else ({}, "")

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]:
        source = self._of(rank)
        return source.saved_numbers(rank, step) if isinstance(source, NumbersSource) else {}

    # -- nodes and tensors -----------------------------------------------------------------------------

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        return self._of(rank).nodes(rank, progress)

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:
        return self._of(rank).tensors(rank, step, progress)

    def graphs(self, rank: int) -> Sequence[ParsedGraph]:
        return self._of(rank).graphs(rank)

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see base.Source
    ) -> CallArguments | None:
        return self._of(rank).arguments(rank, step, row, round)

    def recorded_rows(self, rank: int, step: int) -> Iterator[dict[str, str]] | None:
        return self._of(rank).recorded_rows(rank, step)

    def notes(self, rank: int) -> RunNotes:
        return self._of(rank).notes(rank)

    def written_by(self, spec: ReadSpec) -> Writer | None:
        return next((found for source in self.sources if (found := source.written_by(spec)) is not None), None)

    # -- a run that grows ------------------------------------------------------------------------------

    def refresh(self) -> Changes:
        """Changes of all; raises TdbgError when a rank appeared in two."""
        found = [source.refresh() for source in self.sources]
        self._take_in()
        return Changes(
            new_steps=_all(each.new_steps for each in found),
            grown_steps=_all(each.grown_steps for each in found),
            new_nodes=any(each.new_nodes for each in found),
            new_ranks=_all(each.new_ranks for each in found),
            rebuilt=_all(each.rebuilt for each in found),
        )

    def watch_paths(self) -> Sequence[Path]:
        return [path for source in self.sources for path in source.watch_paths()]

    def close(self) -> None:
        for source in self.sources:
            source.close()


def _all(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(each for part in parts for each in part)


def _apart(paths: Sequence[str]) -> tuple[str, ...]:
    """The parts of paths between their common start and their common end."""
    parts = [Path(path).parts for path in paths]
    shortest = min(map(len, parts))
    start = next((at for at in range(shortest) if len({each[at] for each in parts}) > 1), shortest - 1)
    end = next((at for at in range(shortest - start) if len({each[-1 - at] for each in parts}) > 1), 0)
    return tuple("/".join(each[start : len(each) - end]) or path for each, path in zip(parts, paths, strict=True))
