"""Writes what a live session keeps as a dump directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tui_debugger.errors import TdbgError
from tui_debugger.graph.build import observed_order
from tui_debugger.graph.edges import real_consumers
from tui_debugger.live.dump_writer import DumpWriter, TensorName
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.keeping import StepKept
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.source import LiveSource
from tui_debugger.model import Progress, ProgressFn, TensorMeta, TensorStats, no_progress
from tui_debugger.sources.base import TensorFlag
from tui_debugger.text.numbers import plural

Recorded = tuple[TensorName, TensorMeta | None, TensorStats]


def save_dump(
    source: LiveSource,
    directory: Path,
    progress: ProgressFn = no_progress,
    *,
    ran: Mapping[int, Sequence[Sequence[int]]] | None = None,
) -> str:
    """Writes graphs, the steps that were stopped at, values and statistics; returns what was written, in words.

    Args:
        source: what is kept.
        directory: a new one, or an empty one.
        progress: receives snapshots.
        ran: by rank the rows of the nodes that something was found at, in the order in which they ran, step by step.

    Raises:
        TdbgError: the directory exists and is not empty, cannot be written, or there is nothing to write.
        CancelledError: from ``progress``; what was written so far stays.
    """
    ranks = [live for live in source.all() if live.graph is not None]
    if not ranks:
        raise TdbgError("there is nothing to save", hint="no training has sent its graph yet")
    counts = _Counts()
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise TdbgError("the directory exists and is not empty", where=str(directory), hint="choose another one")
        for live in ranks:
            _save_rank(live, directory, counts, progress, (ran or {}).get(live.number, ()))
    except OSError as error:
        raise TdbgError(f"the dump could not be written: {error.strerror or error}", where=str(directory)) from error
    return counts.text(len(ranks))


class _Counts:
    """What was written."""

    def __init__(self) -> None:
        self.steps: set[int] = set()
        self.tensors = self.statistics = self.early = 0

    def text(self, ranks: int) -> str:
        """In words."""
        parts = [plural(self.tensors, "tensor"), f"statistics of {self.statistics:,} more"]
        text = f"{plural(len(self.steps), 'step')} of {plural(ranks, 'rank')}: {', '.join(parts)}"
        early = f"; {plural(self.early, 'tensor')} from before the first step left out: a dump has no place for them"
        return text + (early if self.early else "")


def _save_rank(
    live: LiveRank, directory: Path, counts: _Counts, progress: ProgressFn, ran: Sequence[Sequence[int]]
) -> None:
    graph, info = live.graph, live.training.info
    if graph is None:
        return
    writer = DumpWriter(directory, rank=live.number, program=info.program, device=info.backend)
    writer.metadata()
    writer.graphs(graph.data, [graph.nodes.names[row] for row in observed_order(graph.nodes, ran)])
    steps = [step for step in live.steps() if live.kept(step) is not None]
    for root in sorted({each.root_id for each in graph.nodes.graphs if each.is_root}):
        writer.history(steps, root)
    for number, step in enumerate(steps):
        kept = live.kept(step)
        if kept is None:
            continue
        if step < 0:
            _save_initial(writer, graph, kept, counts, first_step=0 in steps)
            continue
        progress(Progress(number, len(steps), f"rank {live.number}: saving step {step}"))
        _save_step(writer, graph, step, kept, counts)


def _save_initial(writer: DumpWriter, graph: RankGraph, kept: StepKept, counts: _Counts, *, first_step: bool) -> None:
    """Values from before the first step: a dump has them as what the nodes of that step were fed with."""
    nodes = graph.nodes
    for place, fetched in kept.values.items():
        row = int(graph.node[place])
        readers = real_consumers(nodes, row, int(graph.slot[place])) if first_step and graph.parameter[place] else []
        counts.early += not readers
        counts.tensors += bool(readers)
        for reader, slot in readers:
            root = nodes.graph_of(reader).root_id
            name = TensorName(nodes.op_type(reader), nodes.names[reader], slot, root, side="input")
            with suppress(FileNotFoundError):  # the spool had to let it go meanwhile
                writer.place(0, name, fetched.kept.dtype, fetched.kept.path)


def _save_step(writer: DumpWriter, graph: RankGraph, step: int, kept: StepKept, counts: _Counts) -> None:
    before = counts.tensors + counts.statistics
    for place, fetched in kept.values.items():
        if graph.flags[place] & TensorFlag.CONSTANT:
            continue
        try:
            writer.place(step, _name(graph, place), fetched.kept.dtype, fetched.kept.path)
        except FileNotFoundError:  # the spool had to let it go meanwhile
            continue
        counts.tensors += 1
    recorded: dict[int, list[Recorded]] = {}
    for place, said in kept.told.items():
        if place not in kept.values and said.stats is not None and not graph.flags[place] & TensorFlag.CONSTANT:
            name = _name(graph, place)
            recorded.setdefault(name.root_graph, []).append((name, said.meta, said.stats))
            counts.statistics += 1
    for root, rows in recorded.items():
        writer.statistics(step, sorted(rows, key=lambda row: (row[0].node, row[0].slot)), root)
    if counts.tensors + counts.statistics > before:  # a directory without tensors would be a step that cannot be read
        counts.steps.add(step)


def _name(graph: RankGraph, place: int) -> TensorName:
    row = int(graph.node[place])
    nodes = graph.nodes
    return TensorName(nodes.op_type(row), nodes.names[row], int(graph.slot[place]), nodes.graph_of(row).root_id)
