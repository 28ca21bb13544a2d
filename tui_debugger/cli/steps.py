"""``tdbg steps PATH``: the run history, and what was dumped of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tui_debugger.cli.options import add_command, add_where, chosen, open_session
from tui_debugger.cli.output import documented, interruptible, note, print_json, print_table, progress_bar
from tui_debugger.cli.unseen import unseen
from tui_debugger.errors import TdbgError
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import brief

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session

COUNTED = 100
"""So many (rank, step) pairs are counted without being asked: counting lists the directories."""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "steps",
        "list steps and run history",
        "Lists which root graph ran at which step, whether its tensors were dumped, and how many.",
    )
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--count",
        action="store_true",
        default=None,
        help=f"count the dumped tensors, whatever it takes (default: up to {COUNTED} steps)",
    )
    count.add_argument("--no-count", dest="count", action="store_false", help="do not count tensors")
    add_where(parser)
    parser.set_defaults(run=_run)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a root graph; ``tensors`` is None when they were not counted."""

    rank: int
    step: int
    root_graph: int
    graph: str
    has_data: bool
    tensors: int | None = None
    unreadable: bool = False


def _run(arguments: argparse.Namespace) -> int:
    with documented("steps", arguments):
        return _told(arguments)


def _told(arguments: argparse.Namespace) -> int:
    from tui_debugger.session.unreadable import is_closed

    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        ranks = chosen(arguments.rank, session.ranks(), "rank")
        runs = _runs(session, ranks, arguments, progress)
        pairs = sorted({(run.rank, run.step) for run in runs if run.has_data})
        counted = len(pairs) <= COUNTED if arguments.count is None else bool(arguments.count)
        tensors = _count(session, pairs, progress) if counted else {}
        missing = unseen(session)
    runs = [
        replace(
            run,
            tensors=_of(run, tensors) if counted else None,
            unreadable=is_closed(missing.parts, run.rank, run.root_graph, run.step),
        )
        for run in runs
    ]
    missing.tell()
    if not runs:
        raise TdbgError("no graph ran", where=str(arguments.path), hint="choose other ranks, steps or nodes")
    notices = session.info.notices
    if arguments.json:
        summary = [{"rank": rank, "root_graph": root, "graph": name, "ran": ran, "dumped": dumped}
                   for (rank, root, name), (ran, dumped) in _summary(runs).items()]  # fmt: skip
        rows = [asdict(run) for run in runs]
        head = {"command": "steps", "path": str(arguments.path), "exit_code": missing.code(0)}
        print_json({**head, "runs": rows, "graphs": summary, "notices": list(notices), **missing.rows})
        return missing.code(0)
    _print(runs, counted)
    for part in missing.parts:
        print(clean(f"cannot be listed: {part.where} ({part.why})"))
    for notice in notices:
        note(notice)
    if not counted and arguments.count is None:
        note(f"tensors of {len(pairs):,} steps were not counted; --count does it, --step chooses fewer")
    return missing.code(0)


def _runs(session: Session, ranks: Iterable[int], arguments: argparse.Namespace, progress: ProgressFn) -> list[_Run]:
    """The chosen runs by step, then rank, then root graph."""
    found = []
    for rank in ranks:
        nodes = session.nodes(rank, progress)  # before the history: it knows the graphs' names only then
        of_rank = [_Run(rank, run.step, run.root_graph, run.graph, run.has_data) for run in session.history(rank)]
        if arguments.filter is not None or arguments.graph is not None:
            graphs = set(nodes.graph[session.in_scope(rank)].tolist())
            roots = {nodes.graphs[index].root_id for index in graphs}
            of_rank = [run for run in of_rank if run.root_graph in roots]
        found += of_rank
    steps = set(chosen(arguments.step, (run.step for run in found), "step"))
    return sorted(
        (run for run in found if run.step in steps), key=lambda run: (run.step, run.rank, run.root_graph, run.graph)
    )


def _count(session: Session, pairs: Sequence[tuple[int, int]], progress: ProgressFn) -> dict[tuple[int, int, int], int]:
    """Number of tensors by (rank, step, root graph), constants aside; lists directories, reads no tensor."""
    import numpy as np

    from tui_debugger.model import Progress
    from tui_debugger.sources.base import TensorFlag

    found: dict[tuple[int, int, int], int] = {}
    for done, (rank, step) in enumerate(pairs):
        progress(Progress(done, len(pairs), f"rank {rank} step {step}"))
        flow = session.flow(rank)
        table = flow.table(step)
        nodes = flow.nodes
        of_step = (table.flags & int(TensorFlag.CONSTANT)) == 0
        rows = table.node[of_step & session.in_scope(rank)[table.node]]
        by_graph = np.bincount(nodes.graph[rows], minlength=len(nodes.graphs))
        for info, count in zip(nodes.graphs, by_graph.tolist(), strict=True):
            key = (rank, step, info.root_id)
            found[key] = found.get(key, 0) + count
    return found


def _of(run: _Run, tensors: dict[tuple[int, int, int], int]) -> int:
    return tensors.get((run.rank, run.step, run.root_graph), 0) if run.has_data else 0


def _summary(runs: Iterable[_Run]) -> dict[tuple[int, int, str], tuple[str, str]]:
    """The steps that ran and that were dumped, in brief, by (rank, root graph, graph name)."""
    steps: dict[tuple[int, int, str], tuple[list[int], list[int]]] = {}
    for run in runs:
        ran, dumped = steps.setdefault((run.rank, run.root_graph, run.graph), ([], []))
        ran.append(run.step)
        if run.has_data:
            dumped.append(run.step)
    return {key: (brief(ran), brief(dumped)) for key, (ran, dumped) in sorted(steps.items())}


def _data(run: _Run) -> str:
    if run.unreadable:
        return "unreadable"
    return "yes" if run.has_data else "no"


def _print(runs: Sequence[_Run], counted: bool) -> None:
    titles = ["rank", "step", "root", "data", *(["tensors"] if counted else []), "graph"]
    rows = []
    for run in runs:
        count = [f"{run.tensors:,}"] if counted else []
        cells = [str(run.rank), str(run.step), str(run.root_graph), _data(run)]
        rows.append([*cells, *count, run.graph])
    print_table(titles, rows, right=("rank", "step", "root", "tensors"))
    print()
    summary = [[str(rank), ran, dumped or "–", name] for (rank, _, name), (ran, dumped) in _summary(runs).items()]
    print_table(("rank", "ran at steps", "dumped", "graph"), summary, right=("rank",))
