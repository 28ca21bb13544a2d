"""The search for dumps below a directory, by names only; and what is known of a dump without reading a tensor.

Light until ``facts_of`` is called: it opens the dump, which needs NumPy.
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
from tui_debugger.sources.registry import Recogniser, dump_around, layout_of, open_source
from tui_debugger.text.numbers import plural

MOST_DIRECTORIES: Final = 10_000
"""Directories that are looked at."""
DEPTH: Final = 6
"""Directories below each other that are looked at."""
MOST_ENTRIES: Final = 20_000
"""Entries of one directory that are looked at."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages"})
"""Directories of thousands of others, none of which is a dump. Hidden ones and ``__pycache__`` are left out as well."""


class DumpSearch:
    """A search at and below a directory, the nearest dumps first. It does not look into a dump that it found.

    Attributes:
        start: where it begins.
        looked: directories that it has looked at so far.
        unlisted: directories that could not be listed, or not as a whole, with the reason.
        too_deep: directories that it left out because they lie too deep.
        left: directories that it left out because it had looked at so many.
    """

    def __init__(self, start: Path, *, most: int = MOST_DIRECTORIES, depth: int = DEPTH) -> None:
        """``most`` directories are looked at, ``depth`` levels of them."""
        self.start = Path(os.path.abspath(start))  # noqa: PTH100 - keeps links
        self.looked = 0
        self.unlisted: list[UnreadablePart] = []
        self.too_deep = 0
        self.left = 0
        self._most, self._depth = most, depth
        self._recogniser = Recogniser()

    def dumps(self, progress: ProgressFn = no_progress) -> Iterator[Path]:
        """Yields the directories of dumps as they are found; a directory that many links lead to is looked at once.

        Raises:
            CancelledError: from ``progress``.
        """
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
        """Tells whether all was looked at that is not too deep."""
        return not (self.left or self.unlisted or self._recogniser.problems)

    @property
    def notices(self) -> tuple[str, ...]:
        """Says what was not looked at, one sentence each."""
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
    """The facts about a dump that its names and its metadata tell.

    Attributes:
        layout: name of the layout.
        framework: what ran the training, with its version; empty where nothing tells.
        device: ``CPU``, ``GPU``, ``Ascend`` or empty.
        title: net name.
        ranks: their numbers.
        steps: those of all ranks, ascending.
        written: when something new appeared in it last, in seconds since 1970; None where that cannot be told.
        problem: why it cannot be opened; empty when it can.
    """

    layout: str = ""
    framework: str = ""
    device: str = ""
    title: str = ""
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    written: float | None = None
    problem: str = ""


def facts_of(path: Path, progress: ProgressFn = no_progress) -> DumpFacts:
    """Returns what is known of a dump; lists no step and reads no tensor. Whatever goes wrong is said in the answer.

    Raises:
        CancelledError: from ``progress``.
    """
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
