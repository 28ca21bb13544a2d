"""The graph and execution-order files of one rank."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tui_debugger.errors import BadGraphError
from tui_debugger.graph.messages import ParsedGraph, read_graph
from tui_debugger.model import Progress, ProgressFn, UnreadablePart, no_progress
from tui_debugger.opener import read_regular, why_not
from tui_debugger.sources.mindspore.layout import NEVER, Stamp, stamp

DIRECTORY = "graphs"
FILE = re.compile(r"ms_output_trace_code_graph_(\d{1,9})\.pb")
ORDER_DIRECTORY = "execution_order"
ORDER_FILE = re.compile(r"ms_execution_order_graph_(\d{1,9})\.csv")
_ORDER_HEADER = "NodeExecutionOrder"

Signature = tuple[tuple[str, Stamp], ...]
"""(name, how it looks) of every graph file: changes when one arrives, is rewritten, or may be read now."""


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """What the graph and order files of a rank say.

    Attributes:
        graphs: by number of the file; broken ones are left out.
        orders: full names in execution order by root graph number.
        notices: what is missing or broken.
        parts: the files that are broken or cannot be read.
    """

    graphs: tuple[ParsedGraph, ...] = ()
    orders: Mapping[int | str, tuple[str, ...]] | None = None
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()


def graph_paths(rank: Path) -> list[Path]:
    """Graph files of a rank by number; empty when there are none."""
    return _numbered(rank / DIRECTORY, FILE)


def graph_signature(rank: Path) -> Signature:
    """What changes when a graph or order file of a rank arrives or is rewritten."""
    paths = graph_paths(rank) + _numbered(rank / ORDER_DIRECTORY, ORDER_FILE)
    return tuple((path.name, looks) for path in paths if (looks := stamp(path)) != NEVER)


def read_graphs(rank: Path, progress: ProgressFn = no_progress) -> GraphFiles:
    """Reads the graph and order files of a rank; broken ones become notices.

    Raises:
        CancelledError: from ``progress``.
    """
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    graphs: list[ParsedGraph] = []
    paths = graph_paths(rank)
    for number, path in enumerate(paths):
        progress(Progress(number, len(paths), f"reading {path.name}"))
        try:
            graphs.append(read_graph(path))
        except BadGraphError as problem:
            where = f"{rank.name}/{DIRECTORY}/{path.name}"
            notices.append(f"{where}: {problem.what}")
            cause = problem.__cause__
            why = why_not(path, cause, wanted="a file") if isinstance(cause, OSError) else problem.what
            parts.append(UnreadablePart(where, why, graph=True))
    orders: dict[int | str, tuple[str, ...]] = {}
    for path in _numbered(rank / ORDER_DIRECTORY, ORDER_FILE):
        names = read_order(path)
        if names is None:
            where = f"{rank.name}/{ORDER_DIRECTORY}/{path.name}"
            notices.append(f"{where} cannot be read")
            parts.append(UnreadablePart(where, why_not(path, wanted="a file"), graph=True))
        else:
            orders[_number(path, ORDER_FILE)] = names
    if graphs and not any(orders.values()):
        notices.append(f"{rank.name} has no execution order: nodes are in the order of the graph file")
    return GraphFiles(tuple(graphs), orders, tuple(notices), tuple(parts))


def unreadable_directories(rank: Path) -> list[UnreadablePart]:
    """The directories of graphs and orders, where something is in their place that cannot be listed."""
    parts = []
    for name in (DIRECTORY, ORDER_DIRECTORY):
        path = rank / name
        try:
            os.listdir(path)  # noqa: PTH208 - only whether it can be
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or path.is_symlink():
                parts.append(UnreadablePart(f"{rank.name}/{name}", why_not(path, error), graph=True))
    return parts


def read_order(path: Path) -> tuple[str, ...] | None:
    """Full names of an execution-order file, without its header and blanks; None when it cannot be read."""
    try:
        text = read_regular(path).decode("utf-8", "replace")
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
