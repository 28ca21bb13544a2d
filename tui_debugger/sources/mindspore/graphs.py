"""The graph and execution-order files of one rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tui_debugger.errors import BadGraphError
from tui_debugger.graph.reader import ParsedGraph, read_graph
from tui_debugger.model import Progress, ProgressFn, no_progress

DIRECTORY = "graphs"
FILE = re.compile(r"ms_output_trace_code_graph_(\d{1,9})\.pb")
ORDER_DIRECTORY = "execution_order"
ORDER_FILE = re.compile(r"ms_execution_order_graph_(\d{1,9})\.csv")
_ORDER_HEADER = "NodeExecutionOrder"

Signature = tuple[tuple[str, int, int], ...]
"""(name, size, modification time) of every graph file: changes when one arrives or is rewritten."""


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """What the graph and order files of a rank say.

    Attributes:
        graphs: by number of the file; broken ones are left out.
        orders: full names in execution order by root graph number.
        notices: what is missing or broken.
    """

    graphs: tuple[ParsedGraph, ...] = ()
    orders: Mapping[int | str, tuple[str, ...]] | None = None
    notices: tuple[str, ...] = ()


def graph_paths(rank: Path) -> list[Path]:
    """Graph files of a rank by number; empty when there are none."""
    return _numbered(rank / DIRECTORY, FILE)


def graph_signature(rank: Path) -> Signature:
    """What changes when a graph or order file of a rank arrives or is rewritten."""
    signature: list[tuple[str, int, int]] = []
    for path in graph_paths(rank) + _numbered(rank / ORDER_DIRECTORY, ORDER_FILE):
        try:
            status = path.stat()
        except OSError:
            continue
        signature.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(signature)


def read_graphs(rank: Path, progress: ProgressFn = no_progress) -> GraphFiles:
    """Reads the graph and order files of a rank; broken ones become notices.

    Raises:
        CancelledError: from ``progress``.
    """
    notices: list[str] = []
    graphs: list[ParsedGraph] = []
    paths = graph_paths(rank)
    for number, path in enumerate(paths):
        progress(Progress(number, len(paths), f"reading {path.name}"))
        try:
            graphs.append(read_graph(path))
        except BadGraphError as problem:
            notices.append(f"{rank.name}/{DIRECTORY}/{path.name}: {problem.what}")
    orders: dict[int | str, tuple[str, ...]] = {}
    for path in _numbered(rank / ORDER_DIRECTORY, ORDER_FILE):
        names = read_order(path)
        if names is None:
            notices.append(f"{rank.name}/{ORDER_DIRECTORY}/{path.name} cannot be read")
        else:
            orders[_number(path, ORDER_FILE)] = names
    if graphs and not any(orders.values()):
        notices.append(f"{rank.name} has no execution order: nodes are in the order of the graph file")
    return GraphFiles(tuple(graphs), orders, tuple(notices))


def read_order(path: Path) -> tuple[str, ...] | None:
    """Full names of an execution-order file, without its header and blanks; None when it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    names = [line.strip().rstrip(",") for line in text.splitlines()]
    return tuple([name for name in names if name and not name.startswith(_ORDER_HEADER)])


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        paths = [path for path in directory.iterdir() if pattern.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(paths, key=lambda path: _number(path, pattern))


def _number(path: Path, pattern: re.Pattern[str]) -> int:
    match = pattern.fullmatch(path.name)
    return int(match[1]) if match else -1
