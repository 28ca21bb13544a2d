"""Run history: which root graph ran at which step, and which graphs are roots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tui_debugger.model import GraphRun, UnreadablePart, turns
from tui_debugger.opener import read_regular, why_not
from tui_debugger.sources.mindspore.layout import RankLayout, Stamp, stamp
from tui_debugger.sources.mindspore.run_order import RunOrder
from tui_debugger.sources.mindspore.run_times import RunTimes

DIRECTORY = "execution_order"
FILE = re.compile(r"ms_global_execution_order_graph_(\d{1,9})\.csv")


@dataclass(frozen=True)
class History:
    """The steps at which every root graph ran, as the history files of one rank tell.

    Attributes:
        lines: steps by root graph, as they stand in its file. A second run into the same directory repeats lines, and
            rank 0's file can hold the lines of all ranks: see ``run_order`` for what they mean.
        notices: broken lines, unreadable files.
        parts: the files that cannot be read.
    """

    lines: Mapping[int, Sequence[int]]
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()

    @cached_property
    def steps(self) -> Mapping[int, frozenset[int]]:
        """Set of steps by root graph."""
        return {root: frozenset(lines) for root, lines in self.lines.items()}


def read_history(rank: Path) -> History:
    """Reads ``ms_global_execution_order_graph_N.csv``: one step per line, no header."""
    steps: dict[int, tuple[int, ...]] = {}
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    for root, path in _files(rank):
        name = f"{rank.name}/{DIRECTORY}/{path.name}"
        lines = _lines(path)
        if lines is None:
            notices.append(f"{name} cannot be read")
            parts.append(UnreadablePart(name, why_not(path, wanted="a file"), graph=True))
            continue
        values = [line.strip().rstrip(b",") for line in lines]
        good = [int(value) for value in values if value.isdigit() and len(value) <= 9]
        broken = sum(1 for value in values if value) - len(good)
        if broken:
            notices.append(f"{name}: {broken} broken lines ignored")
        if good:
            steps[root] = tuple(good)
    return History(steps, tuple(notices), tuple(parts))


def history_signature(rank: Path) -> tuple[tuple[str, Stamp], ...]:
    """What changes when a history file appears or grows."""
    return tuple((path.name, stamp(path)) for _, path in _files(rank))


def _files(rank: Path) -> list[tuple[int, Path]]:
    """(root graph, path) of the history files."""
    try:
        found = [(FILE.fullmatch(path.name), path) for path in (rank / DIRECTORY).iterdir()]
    except OSError:
        return []
    return sorted((int(match[1]), path) for match, path in found if match)


def _lines(path: Path) -> list[bytes] | None:
    try:
        return read_regular(path).split(b"\n")
    except OSError:
        return None


def check_history(history: History, layout: RankLayout) -> list[str]:
    """Notices about a history that is missing or contradicts the dumped steps."""
    notices: list[str] = []
    name = layout.path.name
    mains = root_graphs(history, layout)
    roots = sorted({graph.root_graph for graph in layout.graphs if mains is None or graph.root_graph in mains})
    missing = [root for root in roots if root not in history.steps]
    if missing and missing == roots:
        notices.append(f"{name} has no run history: derived from the dumped steps")
    elif missing:
        graphs = ", ".join(map(str, missing))
        notices.append(f"{name} has no run history of graph {graphs}: derived from the dumped steps")
    for root in roots:
        extra = sorted(layout.dumped(root) - history.steps.get(root, layout.dumped(root)))
        if extra:
            steps = ", ".join(map(str, extra[:5])) + (", …" if len(extra) > 5 else "")
            notices.append(f"{name}: steps {steps} of graph {root} are dumped but not in the run history")
    return notices


def root_graphs(history: History, layout: RankLayout) -> frozenset[int] | None:
    """Numbers of the graphs that training starts, as far as a rank tells; None when it does not.

    Only those have a history file. A graph that has none is called by others (control flow), unless it ran at a step at
    which none of those did: then its history is missing.
    """
    if not history.lines:
        return None
    ran = frozenset[int]().union(*history.steps.values())
    others = {graph.root_graph for graph in layout.graphs if not ran.issuperset(graph.steps)}
    return frozenset(history.lines) | others


def graph_runs(order: RunOrder, times: RunTimes, names: Mapping[int, str]) -> tuple[GraphRun, ...]:
    """Every run in the order in which they ran.

    Args:
        order: the order.
        times: may know more exactly when runs began.
        names: graph name by number of its directory; MindSpore's own naming where it is missing.
    """
    turn_of = turns([run.step for run in order.runs])
    return tuple(
        GraphRun(
            run.step,
            run.root,
            names.get(run.root, f"kernel_graph_{run.root}"),
            run.dumped,
            run.round,
            times.began(run.root, run.step) or run.began,
            turn,
        )
        for run, turn in zip(order.runs, turn_of, strict=True)
    )
