"""``tdbg ls PATH --steps``: the run history, and the steps that were dumped."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tui_debugger.cli.options import chosen, open_session
from tui_debugger.cli.output import Answer, Unseen, note, print_table, print_text, unseen
from tui_debugger.errors import TdbgError
from tui_debugger.text.numbers import brief
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.writer import Meaning, meant, write_lines

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.notes import ShownNote
    from tui_debugger.session import Session

_NOTES_ROOM = 60
"""Cells for the notes of a step in the table."""
_Place = tuple[int, int, int, int]
"""(rank, step, root graph, round)."""
COUNTED = 100
"""The number of (rank, step) pairs that are counted without --count: counting lists their directories."""


@dataclass(frozen=True, slots=True)
class _GraphRunRow:
    """One run of a graph that has its own files.

    ``is_root`` is False for a graph that others call. ``tensors`` is None if not counted. ``notes``: scalars.
    Other fields: see ``model.GraphRun``.
    """

    rank: int
    step: int
    root_graph: int
    graph: str
    has_data: bool
    round: int = 0
    is_root: bool = True
    turn: int = 0
    tensors: int | None = None
    unreadable: bool = False
    notes: tuple[ShownNote, ...] = ()

    def row(self) -> dict[str, object]:
        """For JSON; rows come in the order of the runs."""
        from tui_debugger.text.notes import notes_row

        plain = {name: value for name, value in asdict(self).items() if name not in {"turn", "notes"}}
        return {**plain, **notes_row(self.notes)}


def steps(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.check.results import is_closed

    session = open_session(arguments, progress)
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    runs = _runs(session, ranks, arguments, progress)
    pairs = sorted({(run.rank, run.step) for run in runs if run.has_data})
    counted = len(pairs) <= COUNTED if arguments.count is None else bool(arguments.count)
    tensors = _count(session, pairs, progress) if counted else {}
    if counted:
        session.find_losses(pairs, progress)
    missing = unseen(session)
    runs = [
        replace(
            run,
            tensors=_of(run, tensors) if counted else None,
            unreadable=is_closed(missing.parts, run.rank, run.root_graph, run.step),
            notes=session.notes_at(run.rank, run.step),
        )
        for run in runs
    ]
    if not runs:
        missing.print_note()
        raise TdbgError("no graph ran", where=str(arguments.path), hint="choose other ranks, steps or nodes")
    notices = session.info.notices

    def show(_: int) -> None:
        _print(runs, counted, missing)
        for notice in notices:
            note(notice)
        if not counted and arguments.count is None:
            note(f"tensors of {len(pairs):,} steps were not counted; --count does it, --step chooses fewer")

    return Answer(
        missing=missing,
        show=show,
        document=lambda: {
            "runs": [run.row() for run in runs],
            "graphs": [asdict(each) for each in _summary(runs)],
            "notices": list(notices),
        },
    )


def _runs(session: Session, ranks: Iterable[int], arguments: Namespace, progress: ProgressFn) -> list[_GraphRunRow]:
    """The chosen runs in the order in which they ran, ranks side by side."""
    found = []
    for rank in ranks:
        nodes = session.nodes(rank, progress)  # before the history: it knows the graphs' names only then
        roots = {info.name: info.is_root for info in nodes.graphs}
        of_rank = [
            _GraphRunRow(
                rank, run.step, run.root_graph, run.graph, run.has_data, run.round, roots.get(run.graph, True), run.turn
            )
            for run in session.history(rank)
        ]
        if arguments.filter is not None or arguments.graph is not None:
            graphs = set(nodes.graph[session.in_scope(rank)].tolist())
            wanted = {nodes.graphs[index].root_id for index in graphs}
            of_rank = [run for run in of_rank if run.root_graph in wanted]
        found += of_rank
    steps = set(chosen(arguments.step, (run.step for run in found), "step"))
    return sorted((run for run in found if run.step in steps), key=lambda run: (run.turn, run.rank))


def _count(session: Session, pairs: Sequence[tuple[int, int]], progress: ProgressFn) -> dict[_Place, int]:
    """Number of tensors by (rank, step, root graph, round) without constants; lists directories, reads no tensor."""
    import numpy as np

    from tui_debugger.model import Progress
    from tui_debugger.sources.base import TensorFlag

    found: Counter[_Place] = Counter()
    for done, (rank, step) in enumerate(pairs):
        progress(Progress(done, len(pairs), f"rank {rank} step {step}"))
        flow = session.flow(rank)
        table = flow.table(step)
        nodes = flow.nodes
        of_step = (table.flags & int(TensorFlag.CONSTANT)) == 0
        kept = np.flatnonzero(of_step & session.in_scope(rank)[table.node])
        roots = np.array([info.root_id for info in nodes.graphs] or [0], np.int64)[nodes.graph[table.node[kept]]]
        pair, count = np.unique(np.stack([roots, table.round[kept].astype(np.int64)]), axis=1, return_counts=True)
        for (root, number), tensors in zip(pair.T.tolist(), count.tolist(), strict=True):
            found[rank, step, root, number] += tensors
    return dict(found)


def _of(run: _GraphRunRow, tensors: dict[_Place, int]) -> int:
    if not run.has_data:
        return 0
    place = run.rank, run.step, run.root_graph
    if run.round:
        return tensors.get((*place, run.round), 0)
    return sum(count for (*of, _), count in tensors.items() if tuple(of) == place)  # micro-batches are no runs


@dataclass(frozen=True, slots=True)
class _Summary:
    """One graph: its run steps and dumped steps, in brief and in the order in which they ran."""

    rank: int
    root_graph: int
    graph: str
    is_root: bool
    ran: str
    dumped: str
    in_order: bool


def _summary(runs: Iterable[_GraphRunRow]) -> list[_Summary]:
    """One summary a graph, by rank, then graph."""
    by_graph: dict[tuple[int, int, str], list[_GraphRunRow]] = {}
    for run in runs:
        by_graph.setdefault((run.rank, run.root_graph, run.graph), []).append(run)
    found = []
    for (rank, root, name), of in sorted(by_graph.items()):
        ran = [run.step for run in of]
        dumped = [run.step for run in of if run.has_data and not run.unreadable]
        found.append(_Summary(rank, root, name, of[0].is_root, brief(ran), brief(dumped), ran == sorted(ran)))
    return found


def _data(run: _GraphRunRow) -> str:
    if run.unreadable:
        return meant("unreadable", Meaning.DOUBT)
    return "yes" if run.has_data else "no"


_COLUMNS = {
    "rank": Column("rank", right=True, weight=6),
    "step": Column("step", right=True, weight=9),
    "root": Column("root", right=True, weight=3),
    "data": Column("data", weight=7),
    "tensors": Column("tensors", right=True, weight=5),
    "graph": Column("graph", cut=Cut.END, weight=8),
    "notes": Column("notes", cut=Cut.END, weight=2),
}


def _print(runs: Sequence[_GraphRunRow], counted: bool, missing: Unseen) -> None:
    from tui_debugger.check.results import part_words
    from tui_debugger.text.notes import notes_text
    from tui_debugger.text.tensors import round_text

    summary = _summary(runs)
    noted = any(run.notes for run in runs)
    titles = ["rank", "step", "root", "data", *(["tensors"] if counted else []), "graph", *(["notes"] if noted else [])]
    rows = []
    for run in runs:
        count = [f"{run.tensors:,}"] if counted else []
        step = f"{run.step}{round_text(run.round)}"
        cells = [str(run.rank), step, str(run.root_graph), _data(run)]
        notes = [notes_text(run.notes, _NOTES_ROOM)] if noted else []
        rows.append([*cells, *count, run.graph + _kind(run.is_root), *notes])
    print_table([_COLUMNS[title] for title in titles], rows)
    write_lines("")
    table = [[str(each.rank), each.ran, each.dumped or "–", each.graph + _kind(each.is_root)] for each in summary]
    ran = [Column(title, cut=Cut.FOLD, weight=8) for title in ("ran at steps", "dumped")]
    print_table([_COLUMNS["rank"], *ran, _COLUMNS["graph"]], table)
    if any(later.rank == earlier.rank and later.step < earlier.step for earlier, later in pairwise(runs)):
        print_text("", "runs are listed in the order in which they ran, which is not that of their steps")
    if not all(each.is_root for each in summary):
        print_text("", "sub graph: part of another graph, such as a branch or the body of a loop")
    print_text(*(meant(part_words(part), Meaning.DOUBT) for part in missing.parts))


def _kind(is_root: bool) -> str:
    return "" if is_root else "  sub graph"
