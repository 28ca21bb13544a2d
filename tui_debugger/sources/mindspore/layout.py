"""What one ``rank_N`` directory holds: nets, root graphs and steps, found by listing three levels of names."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.opener import why_not

if TYPE_CHECKING:
    from tui_debugger.model import UnreadablePart

AUXILIARY = frozenset({".dump_metadata", "graphs", "execution_order", "debug_files"})
"""Directories of a rank that are no nets."""

Stamp = tuple[int, int, int, int]
"""(modification and change time in ns, inode, size): changes when a name appears in a directory or a file grows."""

NEVER: Stamp = (-1, -1, -1, -1)
_TENSOR: Final = ".npy"


@dataclass(frozen=True, slots=True)
class GraphDirectory:
    """``NET/GRAPH`` of a rank: the data of one root graph.

    Attributes:
        net: net name.
        root_graph: number of the root graph; its sub-graphs share the directory.
        path: the directory.
        steps: step directories by step number; what lies in the place of one, and cannot be listed, is there too.
        constants: the directory of constants, or None.
    """

    net: str
    root_graph: int
    path: Path
    steps: dict[int, Path]
    constants: Path | None = None


@dataclass(frozen=True)
class RankLayout:
    """All graph directories of a rank, sorted by net and root graph.

    Attributes:
        path: the rank's directory.
        graphs: the graph directories.
        parts: what cannot be listed of nets, graphs and steps, as far as that shows without listing a step.
    """

    path: Path
    graphs: tuple[GraphDirectory, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Dumped steps over all graphs, ascending."""
        return tuple(sorted({step for graph in self.graphs for step in graph.steps}))

    def graphs_at(self, step: int) -> list[GraphDirectory]:
        """Graph directories that hold a step."""
        return [graph for graph in self.graphs if step in graph.steps]

    def dumped(self, root_graph: int) -> set[int]:
        """Steps dumped for a root graph."""
        return {step for graph in self.graphs if graph.root_graph == root_graph for step in graph.steps}


def read_layout(rank: Path, number: int | None = None, nets: Collection[str] = ()) -> RankLayout:
    """Lists the nets, graphs and steps of a rank; what cannot be listed is a part of its own.

    Args:
        rank: the directory.
        number: the number of the rank.
        nets: names of nets that the dump is known to have: a file of that name is in the place of one.
    """
    found = _Reader(rank.parent, number)
    graphs: list[GraphDirectory] = []
    for net in found.entries(rank):
        path = rank / net.name
        if _may_be_net(net, nets) and found.directory(net, path):
            inside = found.entries(path, numbers=True)
            numbers = [entry for entry in inside if _is_number(entry.name)]
            if numbers or net.name in nets:
                found.strays([entry for entry in inside if not _is_digits(entry.name)], path)
            there = [path / entry.name for entry in numbers if found.directory(entry, path / entry.name)]
            graphs += [_read_graph(found, net.name, graph) for graph in there]
    graphs.sort(key=lambda graph: (graph.net, graph.root_graph))
    return RankLayout(rank, tuple(graphs), tuple(sorted(found.parts, key=lambda part: part.where)))


def relative(path: Path, root: Path) -> str:
    """The path below a directory, as people read it."""
    return os.path.relpath(path, root)


def stamp(path: Path) -> Stamp:
    """What changes when entries appear in a directory (or a file is rewritten)."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return NEVER
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)


def is_directory(path: Path) -> bool:
    """Whether a path is a directory that we may know of; never raises, unlike ``Path.is_dir`` before Python 3.14."""
    return os.path.isdir(path)  # noqa: PTH112 - see above


def may_hold_tensors(path: Path | bytes) -> bool:
    """Whether something in a directory that is none of a dump looks like a tensor's file, or it cannot be listed."""
    try:
        with os.scandir(os.fsdecode(path)) as entries:
            return any(entry.name.endswith(_TENSOR) or entry.name == "statistic.csv" for entry in entries)
    except OSError:
        return True


def _read_graph(found: _Reader, net: str, path: Path) -> GraphDirectory:
    steps: dict[int, Path] = {}
    constants: Path | None = None
    strays: list[os.DirEntry[str]] = []
    for entry in found.entries(path, numbers=True):
        here = path / entry.name
        if entry.name == "constants":
            constants = here
            found.directory(entry, here)
        elif _is_number(entry.name):
            step = int(entry.name)
            if step in steps:
                found.miss(here, OSError(0, f"the same step as {steps[step].name}"), step)
            else:
                steps[step] = here
                found.directory(entry, here, step)
        elif not _is_digits(entry.name):
            strays.append(entry)
    found.strays(strays, path)
    return GraphDirectory(net, int(path.name), path, steps, constants)


class _Reader:
    """Lists directories, and notes what cannot be listed."""

    def __init__(self, root: Path, rank: int | None) -> None:
        self.parts: list[UnreadablePart] = []
        self._root, self._rank = root, rank

    def entries(self, path: Path, *, numbers: bool = False) -> list[os.DirEntry[str]]:
        """What lies in a directory of ``numbers`` or of names; ``3`` comes before ``03``."""
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(path) as entries:
                found.extend(entries)
        except OSError as error:
            self.miss(path, error)
        for entry in found if numbers else ():
            if _is_digits(entry.name) and not _is_number(entry.name):
                self.miss(path / entry.name, OSError(0, f"a number of more than {_DIGITS} digits"))
        return sorted(found, key=lambda entry: (len(entry.name) if _is_number(entry.name) else 0, entry.name))

    def directory(self, entry: os.DirEntry[str], path: Path, step: int | None = None) -> bool:
        """Whether an entry is a directory that may be listed; if not, that is noted."""
        if not _is_directory(entry):
            self.miss(path, None, step)
        elif not os.access(path, os.R_OK | os.X_OK):
            self.miss(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), step)
        else:
            return True
        return False

    def strays(self, entries: Sequence[os.DirEntry[str]], path: Path) -> None:
        """Notes tensors where none should be: nobody knows at which step they were written."""
        loose = sum(entry.name.endswith(_TENSOR) and not entry.name.startswith(".") for entry in entries)
        if loose:
            why = f"{loose:,} {'file' if loose == 1 else 'files'} outside a step"
            self._note(path / f"*{_TENSOR}", why)
        for entry in entries:
            if _is_directory(entry) and not entry.name.endswith(_TENSOR) and may_hold_tensors(path / entry.name):
                self.miss(path / entry.name, OSError(0, "tensors in a directory whose name is no number"))

    def miss(self, path: Path, error: OSError | None, step: int | None = None) -> None:
        """Notes what cannot be looked at."""
        self._note(path, why_not(path, error), step)

    def _note(self, path: Path, why: str, step: int | None = None) -> None:
        from tui_debugger.model import UnreadablePart  # not for the first frame, which finds the dump

        self.parts.append(UnreadablePart(relative(path, self._root), why, self._rank, step))


def _may_be_net(entry: os.DirEntry[str], nets: Collection[str]) -> bool:
    """Whether an entry of a rank is a net's directory, or in the place of one; other files are none of ours."""
    name = entry.name
    if name in nets:
        return True
    # A link that leads nowhere and whose name starts with a dot is the lock of an editor.
    return name not in AUXILIARY and not name.startswith(".") and not os.path.isfile(entry.path)  # noqa: PTH113


_DIGITS = 9


def _is_number(name: str) -> bool:
    return _is_digits(name) and len(name) <= _DIGITS


def _is_digits(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
