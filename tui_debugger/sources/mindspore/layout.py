"""What one ``rank_N`` directory holds: nets, root graphs and steps, found by listing three levels of names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

AUXILIARY = frozenset({".dump_metadata", "graphs", "execution_order", "debug_files"})
"""Directories of a rank that are no nets."""

Stamp = tuple[int, int, int, int]
"""(modification and change time in ns, inode, size): changes when a name appears in a directory or a file grows."""

NEVER: Stamp = (-1, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class GraphDirectory:
    """``NET/GRAPH`` of a rank: the data of one root graph.

    Attributes:
        net: net name.
        root_graph: number of the root graph; its sub-graphs share the directory.
        path: the directory.
        steps: step directories by step number.
        constants: the directory of constants, or None.
    """

    net: str
    root_graph: int
    path: Path
    steps: dict[int, Path]
    constants: Path | None = None


@dataclass(frozen=True)
class RankLayout:
    """All graph directories of a rank, sorted by net and root graph."""

    path: Path
    graphs: tuple[GraphDirectory, ...] = ()

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


def read_layout(rank: Path) -> RankLayout:
    """Lists the nets, graphs and steps of a rank; what cannot be listed counts as empty."""
    graphs: list[GraphDirectory] = []
    for net in sorted(subdirectories(rank)):
        if net in AUXILIARY:
            continue
        names = [name for name in subdirectories(rank / net) if _is_number(name)]
        graphs += [_read_graph(net, int(name), rank / net / name) for name in names]
    graphs.sort(key=lambda graph: (graph.net, graph.root_graph))
    return RankLayout(rank, tuple(graphs))


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


def subdirectories(path: Path) -> list[str]:
    """Names of the directories in a directory; empty when it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if _is_directory(entry)]
    except OSError:
        return []


def _read_graph(net: str, root_graph: int, path: Path) -> GraphDirectory:
    names = subdirectories(path)
    steps = {int(name): path / name for name in sorted(names) if _is_number(name)}
    return GraphDirectory(net, root_graph, path, steps, path / "constants" if "constants" in names else None)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 9


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
