"""Run history: which root graph ran at which step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tui_debugger.model import GraphRun, UnreadablePart, turns
from tui_debugger.opener import read_regular, why_not
from tui_debugger.sources.mindspore.layout import RankLayout, Stamp, stamp

DIRECTORY = "execution_order"
FILE = re.compile(r"ms_global_execution_order_graph_(\d{1,9})\.csv")


@dataclass(frozen=True, slots=True)
class History:
    """The steps at which every root graph ran, as the history files of one rank tell.

    Attributes:
        steps: set of steps by root graph. A second run into the same directory repeats lines, and rank 0's
            file can hold the lines of all ranks: only the set means something.
        notices: broken lines, unreadable files.
        parts: the files that cannot be read.
    """

    steps: Mapping[int, frozenset[int]]
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()


def read_history(rank: Path) -> History:
    """Reads ``ms_global_execution_order_graph_N.csv``: one step per line, no header."""
    steps: dict[int, frozenset[int]] = {}
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
            steps[root] = frozenset(good)
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
    roots = sorted({graph.root_graph for graph in layout.graphs})
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


def graph_runs(history: History, layout: RankLayout, names: Mapping[int, str]) -> tuple[GraphRun, ...]:
    """Every run by step, then root graph: the history united with the dumped steps.

    Args:
        history: what the files say.
        layout: what is dumped.
        names: graph name by root graph number; MindSpore's own naming where it is missing.
    """
    runs: list[GraphRun] = []
    for root in sorted({*history.steps, *(graph.root_graph for graph in layout.graphs)}):
        dumped = layout.dumped(root)
        name = names.get(root, f"kernel_graph_{root}")
        runs += [GraphRun(step, root, name, step in dumped) for step in {*history.steps.get(root, ()), *dumped}]
    runs.sort(key=lambda run: (run.step, run.root_graph))
    return tuple(replace(run, turn=turn) for run, turn in zip(runs, turns([r.step for r in runs]), strict=True))


def dumped_runs(history: History, layout: RankLayout, root_graph: int) -> list[int]:
    """Dumped steps in which a root graph ran, ascending: each one's previous step is the one before it.

    A history that lacks dumped steps contradicts the disk and does not count.
    """
    dumped = layout.dumped(root_graph)
    ran = history.steps.get(root_graph)
    return sorted(dumped & ran if ran is not None and dumped <= ran else dumped)
