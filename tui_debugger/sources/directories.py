"""Finds a dump by the names of directories and files, and what belongs to which of its steps. Nothing is read.

Light: it is imported before the first frame. A layout says what a directory of it looks like; the walk around a path,
the bounds, and what is said of several dumps are the same for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, SeveralDumpsError
from tui_debugger.opener import why_not
from tui_debugger.sources.registry import Recognised, Shows, Sureness

if TYPE_CHECKING:
    from tui_debugger.cache.store import DiskCache
    from tui_debugger.model import UnreadablePart
    from tui_debugger.sources.base import Source

MOST_ENTRIES: Final = 20_000
"""Entries of a directory that are looked at to recognise a dump."""
_MOST_DIRECTORIES: Final = 2_000
"""Directories below a path that are looked at."""

U = TypeVar("U")
"""The place of one step of one rank: a directory, a file, several of them."""


@dataclass(slots=True)
class DumpLayout(Generic[U]):
    """The steps of a dump.

    Attributes:
        root: its directory.
        units: what holds a step, by rank and step.
        parameters: the steps of a rank that recorded parameters, where these have a graph of their own.
        parts: what could not be looked at.
        directories: those in which steps, ranks or files appear.
        notices: what was assumed.
        beside: files seen in a listing that say something of the steps beside them; one that is gone is a doubt.
        final: the step that stands for what lies outside of all others; None: nothing does.
        places: by rank its place along each axis that names tell of, and how many ranks that has.
    """

    root: str
    units: dict[int, dict[int, U]] = field(default_factory=dict)
    parameters: dict[int, set[int]] = field(default_factory=dict)
    parts: list[UnreadablePart] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    beside: set[str] = field(default_factory=set)
    final: int | None = None
    places: dict[int, dict[str, tuple[int, int]]] = field(default_factory=dict)

    def sort(self) -> None:
        """Puts ranks and steps in ascending order."""
        self.units = {rank: dict(sorted(steps.items())) for rank, steps in sorted(self.units.items())}

    def miss(self, path: str, why: str, rank: int | None = None, step: int | None = None) -> None:
        """Notes what cannot be looked at."""
        from tui_debugger.model import UnreadablePart  # not for the first frame, which recognises the dump

        self.parts.append(UnreadablePart(os.path.relpath(path, self.root), why, rank, step))

    def names(self, path: str, rank: int | None = None, step: int | None = None) -> list[str]:
        """Returns all names in a directory, sorted, and takes it for one in which more appears.

        A directory that cannot be listed is ``missed``; it belongs to that rank and step.
        """
        try:
            with opener.scandir(path) as entries:
                found = sorted(entry.name for entry in entries)
        except OSError as error:
            self.miss(path, why_not(path, error), rank, step)
            return []
        self.directories.append(path)
        return found

    def listable(self, path: str, named: Callable[[str], object], rank: int | None = None) -> list[str]:
        """Returns the directories of some names in a directory; one that cannot be listed is ``missed``.

        Args:
            path: the directory.
            named: tells by the name whether it should be a directory of the dump.
            rank: the rank that they belong to.
        """
        found = []
        for name in sorted(filter(named, names_in(path, None))):
            try:
                with opener.scandir(f"{path}/{name}"):
                    found.append(name)
            except OSError as error:  # noqa: PERF203 - each by itself
                self.miss(f"{path}/{name}", why_not(f"{path}/{name}", error), rank)
        return found


# -- looking ------------------------------------------------------------------------------------------------


def names_in(directory: str | Path, most: int | None = MOST_ENTRIES) -> Iterator[str]:
    """Yields names in a directory, hidden ones left out; of what is none nothing.

    Args:
        directory: where to look.
        most: the number of entries to read, or None for every entry. The default is enough to recognise a dump.
    """
    try:
        with opener.scandir(directory) as entries:
            for entry in islice(entries, most):
                if not entry.name.startswith("."):
                    yield entry.name
    except OSError:
        return


def directories_in(directory: str | Path, most: int | None = MOST_ENTRIES) -> Iterator[str]:
    """Yields the names of directories in a directory, likewise."""
    try:
        with opener.scandir(directory) as entries:
            for entry in islice(entries, most):
                if not entry.name.startswith((".", "__")) and is_directory(entry):
                    yield entry.name
    except OSError:
        return


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Tells whether an entry is a directory, or leads to one; one that cannot be asked is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def directory_of(path: Path) -> Path:
    """Returns the directory that a path is, or that a file lies in; links are kept."""
    start = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    return start if opener.isdir(start) else start.parent


def dumps_below(start: Path, holds: Callable[[str], bool], names: Callable[[str], Iterable[str]]) -> list[Path]:
    """Returns the dumps one or two levels below a directory, not looking inside one that was found.

    A link to one of them (``latest``) is no second dump.

    Args:
        start: the directory.
        holds: tells whether a dump lies in a directory.
        names: returns the directories in one that may be dumps, or hold them.
    """
    found: list[Path] = []
    budget = _MOST_DIRECTORIES
    for name in islice(names(os.fspath(start)), budget):
        here = f"{start}/{name}"
        if holds(here):
            found.append(start / name)
            continue
        children = list(islice(names(here), budget))
        budget -= len(children)
        found += [start / name / child for child in children if holds(f"{here}/{child}")]
    if len(found) > 1:
        real = {os.path.realpath(path) for path in found if not opener.islink(path)}
        found = [path for path in found if not opener.islink(path) or os.path.realpath(path) not in real]
    return sorted(found)


def find_dump(
    path: Path,
    around: Callable[[Path], Path | None],
    holds: Callable[[str], bool],
    names: Callable[[str], Iterable[str]] = directories_in,
) -> Recognised | None:
    """Returns the dump at or around a path, or below a directory, with a refusal where there are several.

    Args:
        path: where to look.
        around: returns the dump that a directory is or lies in; None where it does not.
        holds: see ``dumps_below``.
        names: as well.
    """
    start = directory_of(path)
    root = around(start)
    if root is not None:
        return Recognised(root, Sureness.SURE)
    below = dumps_below(start, holds, names) if opener.isdir(path) else []  # a file is asked about alone
    if len(below) > 1:
        return Recognised(start, Sureness.SURE, SeveralDumpsError(start, below))
    return Recognised(below[0], Sureness.SURE) if below else None


@dataclass(frozen=True, slots=True)
class NamesReader:
    """A layout that names alone tell, and no other layout has these: see ``registry.QuickReader``.

    Attributes:
        name, looked_for, shows: see ``registry.Reader``.
        source: the class that reads it, as entry points are written; it is imported to open a dump.
        holds: tells whether such a dump lies in this very directory.
        around: returns the dump that a directory is or lies in; None where it does not.
    """

    name: str
    looked_for: str
    shows: Shows
    source: str
    holds: Callable[[str], bool]
    around: Callable[[Path], Path | None]

    def recognises(self, path: Path) -> Recognised | None:
        """Returns where the dump is."""
        return find_dump(path, self.around, self.holds)

    def is_dump(self, directory: Path) -> bool:
        """Tells whether such a dump lies in this very directory."""
        return self.holds(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        """Opens the dump at, around or below a path; listing names costs too little to remember it."""
        module, _, name = self.source.partition(":")
        source: Source = getattr(import_module(module), name)(self.root_of(path), path, notices)
        return source

    def root_of(self, path: Path) -> Path:
        """Returns the directory of the dump that was recognised.

        Raises:
            NotADumpError: it is gone.
        """
        return root_of(self.recognises(path), path)


def root_of(found: Recognised | None, path: Path) -> Path:
    """Returns the directory of the dump that was recognised at a path.

    Raises:
        NotADumpError: it is gone.
    """
    if found is None or found.refusal is not None:
        raise NotADumpError("The dump is gone", where=str(path), hint="open it again")
    return found.root
