"""Finds a dump, and the parts of each of its steps, by names of directories and files. Nothing is read.

Imported before the first frame, so without NumPy. Each layout tells its own directories; the walk around a path, its
bounds, and the refusal of several dumps are shared here.
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
"""Number of entries of a directory that are looked at to recognise a dump."""
_MOST_DIRECTORIES: Final = 2_000
"""Number of directories below a path that are looked at."""

U = TypeVar("U")
"""The place of one step of one rank: a directory, a file, or several files."""


@dataclass(slots=True)
class DumpLayout(Generic[U]):
    """The steps of a dump."""

    root: str
    units: dict[int, dict[int, U]] = field(default_factory=dict)
    """By rank and step, the place of the step."""
    parameters: dict[int, set[int]] = field(default_factory=dict)
    """Steps of a rank that recorded parameters, where parameters have a graph of their own."""
    parts: list[UnreadablePart] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    """Directories in which steps, ranks or files appear."""
    notices: list[str] = field(default_factory=list)
    """Assumptions about the layout."""
    beside: set[str] = field(default_factory=set)
    """Files seen in a listing that describe the steps beside them; a missing one is a doubt."""
    final: int | None = None
    """The step that stands for entries outside of all other steps; None without such entries."""
    places: dict[int, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """By rank its place along each axis that names tell of, and the number of ranks along that axis."""

    def sort(self) -> None:
        self.units = {rank: dict(sorted(steps.items())) for rank, steps in sorted(self.units.items())}

    def miss(self, path: str, why: str, rank: int | None = None, step: int | None = None) -> None:
        """Notes an entry that cannot be looked at."""
        from tui_debugger.model import UnreadablePart  # not for the first frame, which recognises the dump

        self.parts.append(UnreadablePart(os.path.relpath(path, self.root), why, rank, step))

    def names(self, path: str, rank: int | None = None, step: int | None = None) -> list[str]:
        """Returns all names in a directory, sorted, and takes it for one in which more appear.

        A directory that cannot be listed is noted by ``miss``, for that rank and step.
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
        """Returns directories with ``named`` names in a directory; one that cannot be listed is noted by ``miss``."""
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
    """Yields names in a directory without hidden ones, nothing without it; ``most`` entries are read, None: all."""
    return (entry.name for entry in _entries(directory, most) if not entry.name.startswith("."))


def directories_in(directory: str | Path, most: int | None = MOST_ENTRIES) -> Iterator[str]:
    """Yields the names of directories in a directory, as ``names_in`` does."""
    every = _entries(directory, most)
    return (entry.name for entry in every if not entry.name.startswith((".", "__")) and is_directory(entry))


def _entries(directory: str | Path, most: int | None) -> Iterator[os.DirEntry[str]]:
    try:
        with opener.scandir(directory) as entries:
            yield from islice(entries, most)
    except OSError:
        return


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory or a link to one; False when it cannot be asked."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def directory_of(path: Path) -> Path:
    """The directory itself, or the directory of a file; links are kept."""
    start = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
    return start if opener.isdir(start) else start.parent


def dumps_below(start: Path, holds: Callable[[str], bool], names: Callable[[str], Iterable[str]]) -> list[Path]:
    """Returns the dumps one or two levels below a directory, not looking inside a dump that was found.

    A link to one of them (``latest``) is no second dump. ``names`` returns the directories in a directory that may be
    dumps or hold dumps.
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

    ``around`` returns the dump that a directory is or lies in, else None; ``holds`` and ``names``: see ``dumps_below``.
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
    """A layout that names alone tell, with names that no other layout has: see ``registry.QuickReader``."""

    name: str
    looked_for: str
    shows: Shows
    source: str
    """The class that reads it, written as an entry point; it is imported to open a dump."""
    holds: Callable[[str], bool]
    """Whether such a dump lies in this very directory."""
    around: Callable[[Path], Path | None]
    """Returns the dump that a directory is or lies in, else None."""

    def recognises(self, path: Path) -> Recognised | None:
        return find_dump(path, self.around, self.holds)

    def is_dump(self, directory: Path) -> bool:
        return self.holds(os.fspath(directory))

    def open(self, path: Path, store: DiskCache | None = None, notices: Sequence[str] = ()) -> Source:  # noqa: ARG002
        """Opens the dump at, around or below a path. ``store`` is unused: listing names is cheap."""
        module, _, name = self.source.partition(":")
        source: Source = getattr(import_module(module), name)(self.root_of(path), path, notices)
        return source

    def root_of(self, path: Path) -> Path:
        return root_of(self.recognises(path), path)


def root_of(found: Recognised | None, path: Path) -> Path:
    """Returns the directory of a recognised dump, or raises NotADumpError when it is gone."""
    if found is None or found.refusal is not None:
        raise NotADumpError("The dump is gone", where=str(path), hint="open it again")
    return found.root
