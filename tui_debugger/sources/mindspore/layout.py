"""The directories of a dump by names only: ranks, graphs, steps.

Step directories can hold a million files, so nothing here lists one.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import opener
from tui_debugger.opener import why_not
from tui_debugger.sources.directories import MOST_ENTRIES, directories_in, is_directory
from tui_debugger.sources.registry import SHOWS_NOTHING, Edges, Has, Order

if TYPE_CHECKING:
    from tui_debugger.model import UnreadablePart


AUXILIARY = frozenset({".dump_metadata", "graphs", "execution_order", "debug_files"})
"""Directories of a rank that are no nets."""

Stamp = tuple[int, int, int, int]
"""(modification and change time in ns, inode, size): changes when a name appears in a directory or a file grows."""

NEVER: Stamp = (-1, -1, -1, -1)


@dataclass(frozen=True)
class GraphDirectory:
    """``NET/GRAPH`` of a rank: the data of one root graph."""

    net: str
    root_graph: int
    """Number of the root graph; its sub-graphs share the directory."""
    path: Path
    steps: dict[int, Path]
    """Step directories by step number, also entries in their place that cannot be listed."""
    constants: Path | None = None
    is_around: bool = False
    """Other graphs may lie in its steps."""

    @cached_property
    def ascending(self) -> list[int]:
        return sorted(self.steps)


@dataclass(frozen=True)
class RankLayout:
    """All graph directories of a rank, sorted by net and root graph."""

    path: Path
    graphs: tuple[GraphDirectory, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()
    """Unreadable nets, graphs and steps, as far as that shows without listing a step."""
    auxiliary: frozenset[str] = frozenset()
    """Which of ``AUXILIARY`` it has."""

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Dumped steps over all graphs, ascending."""
        return tuple(sorted({step for graph in self.graphs for step in graph.steps}))

    def graphs_at(self, step: int) -> list[GraphDirectory]:
        return [graph for graph in self.graphs if step in graph.steps]

    def dumped(self, root_graph: int) -> set[int]:
        return {step for graph in self.graphs if graph.root_graph == root_graph for step in graph.steps}


def read_layout(rank: Path, number: int | None = None, nets: Collection[str] = ()) -> RankLayout:
    """Lists the nets, graphs and steps of a rank.

    ``nets`` are known net names of the dump: a file of that name stands in the place of a net.
    """
    found = DirectoryReader(rank.parent, number)
    graphs: list[GraphDirectory] = []
    entries = found.entries(rank)
    for net in entries:
        path = rank / net.name
        if _may_be_net(net, nets) and found.directory(net, path):
            inside = found.entries(path, numbers=True)
            numbers = [entry for entry in inside if is_number(entry.name)]
            there = [path / entry.name for entry in numbers if found.directory(entry, path / entry.name)]
            graphs += [_read_graph(found, net.name, graph) for graph in there]
    graphs.sort(key=lambda graph: (graph.net, graph.root_graph))
    auxiliary = AUXILIARY.intersection(entry.name for entry in entries)
    return RankLayout(rank, tuple(graphs), tuple(sorted(found.parts, key=lambda part: part.where)), auxiliary)


def relative(path: Path, root: Path) -> str:
    return os.path.relpath(path, root)


def stamp(path: Path | str) -> Stamp:
    """What changes when entries appear in a directory, or a file is rewritten."""
    try:
        status = opener.stat(path)
    except (OSError, ValueError):
        return NEVER
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)


def _read_graph(found: DirectoryReader, net: str, path: Path) -> GraphDirectory:
    steps: dict[int, Path] = {}
    constants: Path | None = None
    for entry in found.entries(path, numbers=True):
        here = path / entry.name
        if entry.name == "constants":
            constants = here
            found.directory(entry, here)
        elif is_number(entry.name):
            step = int(entry.name)
            if step in steps:
                found.miss(here, OSError(0, f"the same step as {steps[step].name}"), step)
            else:
                steps[step] = here
                found.directory(entry, here, step)
    return GraphDirectory(net, int(path.name), path, steps, constants)


class DirectoryReader:
    """Lists directories, and notes those that cannot be listed."""

    def __init__(self, root: Path, rank: int | None) -> None:
        self.parts: list[UnreadablePart] = []
        self._root, self._rank = root, rank

    def entries(self, path: Path, *, numbers: bool = False) -> list[os.DirEntry[str]]:
        """Entries of a directory of ``numbers`` or of names; ``3`` comes before ``03``."""
        found: list[os.DirEntry[str]] = []
        try:
            with opener.scandir(path) as entries:
                found.extend(entries)
        except OSError as error:
            self.miss(path, error)
        return self._in_order(path, found, numbers=numbers)

    def _in_order(self, path: Path, found: list[os.DirEntry[str]], *, numbers: bool) -> list[os.DirEntry[str]]:
        for entry in found if numbers else ():
            if is_digits(entry.name) and not is_number(entry.name):
                self.miss(path / entry.name, OSError(0, f"a number of more than {_DIGITS} digits"))
        return sorted(found, key=lambda entry: (len(entry.name) if is_number(entry.name) else 0, entry.name))

    def inside(
        self, path: Path, named: re.Pattern[str] | None = None, *, numbers: bool = False
    ) -> tuple[list[Path], bool]:
        """The directories in a directory, and whether it has a file with a ``named`` name."""
        has_file = False
        found: list[os.DirEntry[str]] = []
        try:
            with opener.scandir(path) as entries:
                for entry in entries:  # there may be a million files
                    if is_directory(entry):
                        found.append(entry)
                    elif named is not None and not has_file:
                        has_file = named.fullmatch(entry.name) is not None
        except OSError as error:
            self.miss(path, error)
        directories = self._in_order(path, found, numbers=numbers)
        return [path / each.name for each in directories if self.directory(each, path / each.name)], has_file

    def directory(self, entry: os.DirEntry[str], path: Path, step: int | None = None) -> bool:
        """Whether an entry is a directory that may be listed; otherwise notes it as unreadable."""
        if not is_directory(entry):
            self.miss(path, None, step)
        elif not opener.may_list(path):
            self.miss(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)), step)
        else:
            return True
        return False

    def miss(self, path: Path, error: OSError | None, step: int | None = None) -> None:
        self._note(path, why_not(path, error), step)

    def _note(self, path: Path, why: str, step: int | None = None) -> None:
        from tui_debugger.model import UnreadablePart  # not for the first frame, which finds the dump

        self.parts.append(UnreadablePart(relative(path, self._root), why, self._rank, step))


def _may_be_net(entry: os.DirEntry[str], nets: Collection[str]) -> bool:
    """Whether an entry of a rank is a net's directory, or in the place of one."""
    name = entry.name
    if name in nets:
        return True
    # A dangling link whose name starts with a dot is the lock of an editor.
    return name not in AUXILIARY and not name.startswith(".") and not opener.isfile(entry.path)


_DIGITS = 9


def is_number(name: str) -> bool:
    """Whether a name is a number that is not too long for a step, a graph or a rank."""
    return is_digits(name) and len(name) <= _DIGITS


def is_digits(name: str) -> bool:
    return name.isascii() and name.isdigit()


RANK = re.compile(r"rank_(\d{1,9})")
_TOO_LONG = re.compile(r"rank_\d+")
_NEARLY = re.compile("rank", re.IGNORECASE)
RANK_MARKS = (".dump_metadata", "graphs", "execution_order")
"""Any of these entries makes a ``rank_N`` directory a rank of a dump; a net directory does as well."""


@dataclass(frozen=True, slots=True)
class RunLocation:
    """The place of a run, and the part of it that was named."""

    root: Path
    """Directory that holds the ``rank_N`` directories."""
    given: Path
    """The path as the user wrote it."""
    inside: str = ""
    """The part of the given path below ``root``, empty when it is not inside."""
    rank: int | None = None
    """``rank`` and ``step`` that the given path points into; None when it does not tell."""
    step: int | None = None
    beside: bool = False
    """The path lies next to the ranks, not in one."""
    by_device: bool = False
    """``root`` is a tree of devices in place of ranks: see ``device_tree``."""


SHOWS: Final = replace(
    SHOWS_NOTHING,
    values=Has.SOME,
    statistics=Has.SOME,
    order=Order.EXECUTION,
    edges=Edges.KNOWN,
    stacks=Has.YES,
    gradients=Has.YES,
    record=(
        "tdbg dump-config --yes --path /data/dump -o dump.json",
        "export MINDSPORE_DUMP_CONFIG=$PWD/dump.json",
        "python train.py",
    ),
    recorded_in="statistic.csv",
    values_advice="MindSpore: in data_dump.json saved_data tensor, or full",
    tensors_advice="MindSpore: in data_dump.json input_output 0, with all kernels or these in kernels",
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a dump."""

    directories: dict[int, Path]
    """By number, ascending."""
    nets: frozenset[str]
    """Names of the directories in them that may be nets."""
    parts: tuple[UnreadablePart, ...]
    """Entries that look like a rank, and cannot be listed or have another name."""


def list_ranks(root: Path) -> Ranks:
    parts: list[UnreadablePart] = []
    found: dict[int, Path] = {}
    holds: dict[int, set[str]] = {}

    def miss(path: Path, error: OSError, rank: int | None = None) -> None:
        from tui_debugger.model import UnreadablePart  # not for the first frame, which finds the dump

        parts.append(UnreadablePart(relative(path, root), why_not(path, error), rank))

    try:
        names = sorted(opener.listdir(root), key=lambda name: (len(name), name))
    except OSError as error:
        miss(root, error)
        names = []
    for name in names:
        match = RANK.fullmatch(name)
        if match is None:
            if _TOO_LONG.fullmatch(name):
                miss(root / name, OSError(0, "a number of more than 9 digits"))
            elif _NEARLY.match(name) and is_rank(root / name):
                miss(root / name, OSError(0, "left out: a rank is called rank_N, so rename it to look at it"))
            continue
        number, path = int(match[1]), root / name
        try:
            inner = {entry for entry in opener.listdir(path) if _is_visible(entry)}
        except OSError as error:
            miss(path, error, number)
            continue
        if number in found:
            miss(path, OSError(0, f"the same rank as {found[number].name}"), number)
        else:
            found[number], holds[number] = path, inner
    sure = {number for number, path in found.items() if is_rank(path)}
    nets = {name for number in sure for name in holds[number] if opener.isdir(found[number] / name)}
    kept = {
        number: path
        for number, path in sorted(found.items())
        if number in sure or holds[number] & nets or any(_holds_numbers(path / name) for name in holds[number])
    }
    return Ranks(kept, frozenset(nets), tuple(parts))


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and name not in AUXILIARY


def _holds_numbers(path: Path) -> bool:
    """Whether a directory has graphs, or cannot be looked at."""
    if opener.isfile(path):
        return False
    try:
        with opener.scandir(path) as entries:
            return any(entry.name.isdigit() for entry in islice(entries, MOST_ENTRIES))
    except OSError:
        return True


def is_rank(directory: Path) -> bool:
    """Whether a ``rank_N`` directory looks like part of a dump; one without metadata counts."""
    if any(opener.isdir(directory / mark) for mark in RANK_MARKS):
        return True
    return any(
        graph.isdigit() for net in islice(directories_in(directory), 50) for graph in directories_in(directory / net)
    )
