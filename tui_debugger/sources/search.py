"""The search for dumps below a directory, by names only, and facts about a dump without reading a tensor.

``facts_of`` opens the dump, which needs NumPy; everything else is light.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import TdbgError, reason_of
from tui_debugger.model import Progress, ProgressFn, UnreadablePart, no_progress
from tui_debugger.opener import why_not
from tui_debugger.sources.directories import MOST_ENTRIES
from tui_debugger.sources.registry import Recogniser, dump_around, layout_of, open_source
from tui_debugger.text.numbers import plural

MOST_DIRECTORIES: Final = 10_000
"""Number of directories that are looked at."""
DEPTH: Final = 6
"""Number of levels of directories that are looked at."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages"})
"""Directories of thousands of others, none of them a dump. Hidden ones and ``__pycache__`` are left out as well."""


class DumpSearch:
    """A search at and below a directory, the nearest dumps first. It does not look into a dump that it found."""

    def __init__(self, start: Path, *, most: int = MOST_DIRECTORIES, depth: int = DEPTH) -> None:
        """``most`` directories are looked at, ``depth`` levels of them."""
        self.start = Path(os.path.abspath(start))  # noqa: PTH100 - keeps links
        self.looked = 0
        """Number of directories that were looked at so far."""
        self.unlisted: list[UnreadablePart] = []
        """Directories that could not be listed completely, with the reason."""
        self.too_deep = 0
        """Number of directories that were left out because they lie too deep."""
        self.left = 0
        """Number of directories that were left out after ``most`` others."""
        self._most, self._depth = most, depth
        self._recogniser = Recogniser()

    def dumps(self, progress: ProgressFn = no_progress) -> Iterator[Path]:
        """Yields the directories of dumps as they are found; a directory that many links lead to is looked at once."""
        around = dump_around(self.start)
        if around is not None:
            self.looked += 1
            yield around
            return
        waiting = deque([(self.start, 0)])
        seen: set[tuple[int, int]] = set()
        while waiting:
            if self.looked >= self._most:
                self.left = len(waiting)
                return
            directory, depth = waiting.popleft()
            progress(Progress(self.looked, 0, f"{plural(self.looked, 'directory', 'directories')} looked at"))
            try:
                status = opener.stat(directory)
            except FileNotFoundError:
                continue  # it vanished meanwhile
            except (OSError, ValueError) as error:
                self._miss(directory, error)
                continue
            if (status.st_dev, status.st_ino) in seen:
                continue  # a link led here before
            seen.add((status.st_dev, status.st_ino))
            self.looked += 1
            if next(self._recogniser.layouts_in(directory), None) is not None:
                yield directory
                continue
            below = self._below(directory)
            if depth < self._depth:
                waiting.extend((path, depth + 1) for path in below)
            else:
                self.too_deep += len(below)

    @property
    def complete(self) -> bool:
        """Whether everything was looked at that is not too deep."""
        return not (self.left or self.unlisted or self._recogniser.problems)

    @property
    def notices(self) -> tuple[str, ...]:
        found = []
        if self.left:
            found.append(
                f"stopped after {plural(self.looked, 'directory', 'directories')}: "
                f"{self.left:,} more and those below were left out; name one that is nearer to the dumps"
            )
        if self.unlisted:
            first, others = self.unlisted[0], len(self.unlisted) - 1
            where = os.path.relpath(first.where, self.start)
            found.append(f"{where} cannot be listed: {first.why}" + (f" (and {others:,} more)" if others else ""))
        if self.too_deep:
            found.append(
                f"left out {plural(self.too_deep, 'directory', 'directories')} more than {self._depth} levels below"
            )
        return (*found, *self._recogniser.problems)

    def _below(self, directory: Path) -> list[Path]:
        found = []
        try:
            with opener.scandir(directory) as entries:
                found += [directory / each.name for each in islice(entries, MOST_ENTRIES) if _may_hold_dumps(each)]
                if next(entries, None) is not None:
                    why = f"more than {MOST_ENTRIES:,} entries"
                    self.unlisted.append(UnreadablePart(str(directory), why))
        except (OSError, ValueError) as error:
            self._miss(directory, error)
        return sorted(found)

    def _miss(self, directory: Path, error: Exception) -> None:
        why = why_not(directory, error if isinstance(error, OSError) else None)
        self.unlisted.append(UnreadablePart(str(directory), why))


def _may_hold_dumps(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith((".", "__")) or entry.name in _SKIPPED:
        return False
    try:
        return entry.is_dir()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class DumpFacts:
    """The facts about a dump that its names and its metadata tell."""

    layout: str = ""
    framework: str = ""
    """What ran the training, with its version; empty where unknown."""
    device: str = ""
    """``CPU``, ``GPU``, ``Ascend`` or empty."""
    title: str = ""
    """Net name."""
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    """Steps of all ranks, ascending."""
    written: float | None = None
    """Last change, in seconds since 1970; None where unknown."""
    problem: str = ""
    """Why it cannot be opened; empty when it can."""


def facts_of(path: Path, progress: ProgressFn = no_progress) -> DumpFacts:
    """The facts about a dump; lists no step and reads no tensor. Errors become ``problem``."""
    try:
        layout = layout_of(path)
        source = open_source(path)
    except (TdbgError, OSError) as error:
        return DumpFacts(problem=_words(error))
    with closing(source):
        ranks = tuple(source.ranks())
        steps: set[int] = set()
        problem = ""
        for done, rank in enumerate(ranks):
            progress(Progress(done, len(ranks), path.name))
            try:
                steps.update(source.steps(rank))
            except (TdbgError, OSError) as error:
                problem = _words(error)
        info = source.info
        return DumpFacts(
            layout,
            info.framework,
            info.device,
            info.title,
            ranks,
            tuple(sorted(steps)),
            _written(source.watch_paths()),
            problem,
        )


def _words(error: TdbgError | OSError) -> str:
    return error.what if isinstance(error, TdbgError) else reason_of(error)


def _written(directories: Sequence[Path]) -> float | None:
    times = []
    for directory in directories:
        with suppress(OSError, ValueError):
            times.append(opener.stat(directory).st_mtime)
    return max(times, default=None)
