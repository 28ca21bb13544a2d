"""Running trainings as a Source: each is a rank; what they sent is kept, what they hold can be fetched."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.errors import BadGraphError, TdbgError, reason_of
from tui_debugger.graph.build import build_table, directory_names
from tui_debugger.graph.table import NodeTable
from tui_debugger.live.graph import LiveRankGraph
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.spool import LIMIT, Key, Spool
from tui_debugger.live.table import LiveTable, ReceivedStep
from tui_debugger.live.wire import Event, Phase, TrainingStop, Unrecorded
from tui_debugger.model import GraphRun, ProgressFn, RunInfo, UnreadablePart, no_progress, turns
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.sources.base import Capability, Changes, Source, TensorTable
from tui_debugger.sources.scope import Scope, whole_run
from tui_debugger.text.numbers import plural

if TYPE_CHECKING:
    from tui_debugger.live.server import Server
    from tui_debugger.live.server.training import RemoteTraining


_NOTICES: Final = 50
"""The number of different notices that are kept."""


class LiveSource(Source):
    """A ``base.Source``. A training gets a rank at its first contact, and is listed once its graph is there."""

    def __init__(self, trainings: Server, *, limit: int = LIMIT) -> None:
        """Takes in the present trainings; later events come through ``apply``. TdbgError: no place for values."""
        self._lock = threading.RLock()
        self._dropped: deque[Key] = deque()
        try:
            self.spool = Spool(limit, self._dropped.append)
        except OSError as error:
            raise TdbgError(
                f"there is no place for values: {reason_of(error)}",
                where=str(error.filename or ""),
                hint="let TMPDIR name a directory that you may write to",
            ) from error
        self._trainings = trainings
        self._scope = whole_run(self.spool.path)
        self._ranks: dict[int, LiveRank] = {}
        self._notices: dict[str, None] = {}
        self._unjudged: dict[tuple[int, str], tuple[int, str]] = {}
        self._listed: set[int] = set()
        self._known: dict[int, set[int]] = {}
        self._rebuilt: set[int] = set()
        self._longer: set[int] = set()
        self._empty = build_table(())
        self._no_tensors = LiveTable(LiveRankGraph(()), np.zeros(0, np.bool_), ReceivedStep())
        self.sync()

    # -- trainings ---------------------------------------------------------------------------------

    def sync(self) -> None:
        for training in self._trainings.all():
            self.apply(training, Event.GRAPH)
            stop = training.stop
            if stop is not None:
                self.stopped(self.rank_of(training), stop)
            if training.phase in (Phase.LOST, Phase.DONE):
                self.apply(training, Event.LOST)

    def apply(self, training: RemoteTraining, event: Event) -> LiveRank:
        """Takes in an event of a training, except for stops (see ``stopped``); returns its rank."""
        rank = self.rank_of(training)
        if event is Event.GRAPH and training.graphs:
            self._read_graph(rank)
        elif event in (Event.LOST, Event.DONE):
            rank.gone()
        elif event is Event.BACK and rank.stop is not None and training.phase is Phase.STOPPED:
            rank.stopped(rank.stop)
        return rank

    def stopped(self, rank: LiveRank, stop: TrainingStop) -> None:
        if rank.graph is None and rank.training.graphs:
            self._read_graph(rank)
        rank.stopped(stop)

    def rank_of(self, training: RemoteTraining) -> LiveRank:
        """The rank of a training: its own, or the next free one when another training has that."""
        with self._lock:
            for rank in self._ranks.values():
                if rank.training is training:
                    return rank
            wanted = max(training.info.rank, 0)
            number = wanted
            while number in self._ranks:
                number += 1
            if number != wanted:
                self.notice(f"training {training.info.number} says it is rank {wanted} too: it is rank {number} here")
            rank = self._ranks[number] = LiveRank(number, training, self.spool)
            return rank

    def live(self, rank: int) -> LiveRank | None:
        with self._lock:
            return self._ranks.get(rank)

    def all(self) -> list[LiveRank]:
        with self._lock:
            return [self._ranks[number] for number in sorted(self._ranks)]

    def notice(self, text: str) -> None:
        with self._lock:
            if len(self._notices) < _NOTICES:
                self._notices[text] = None

    def unjudged(self, rank: int, what: str, count: int, detail: str = "") -> None:
        """Counts things that a training ran and nobody judged, by kind (``what``, in the plural).

        ``detail`` describes the first.
        """
        with self._lock:
            before, first = self._unjudged.get((rank, what), (0, detail))
            self._unjudged[rank, what] = before + count, first

    def dropped(self) -> list[Key]:
        gone = []
        while self._dropped:
            rank, step = self._dropped.popleft()
            gone.append((rank, step))
            live = self.live(rank)
            if live is not None:
                live.dropped(step)
                self.notice(f"the spool is full ({self.spool.limit:,} bytes): oldest values are dropped")
        return gone

    def _read_graph(self, rank: LiveRank) -> None:
        before = rank.graph
        try:
            graph = LiveRankGraph(rank.training.graphs, before)
        except BadGraphError as error:
            self.notice(f"rank {rank.number}: {error.what}")
            return
        if rank.set_graph(graph) and before is not None:
            with self._lock:
                (self._longer if graph.extends(before) else self._rebuilt).add(rank.number)

    # -- Source ------------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        ranks = self.all()
        first = ranks[0].training.info if ranks else None
        notices = [rank.training.info.warning for rank in ranks] + list(self._notices)
        notices += [
            f"values of {plural(count, 'tensor')} were not kept: {why}" for why, count in self.spool.lost.items()
        ]
        return RunInfo(
            path=str(self.spool.path),
            layout="live training",
            title=first.program if first else "",
            device=first.backend if first else "",
            notices=tuple(dict.fromkeys(filter(None, notices))),
        )

    @property
    def capabilities(self) -> Capability:
        graph = any(rank.graph is not None and len(rank.graph.nodes.in_node) for rank in self.all())
        return Capability.GROWS | (Capability.GRAPH if graph else Capability.NONE)

    @property
    def scope(self) -> Scope:
        return self._scope

    @property
    def focus(self) -> tuple[int | None, int | None]:
        for rank in self.all():
            if rank.graph is not None and rank.stop is not None:
                return rank.number, rank.stop.step
        return None, None

    def ranks(self) -> Sequence[int]:
        return [rank.number for rank in self.all() if rank.graph is not None]

    def steps(self, rank: int) -> Sequence[int]:
        live = self.live(rank)
        return live.steps() if live is not None and live.graph is not None else []

    def history(self, rank: int) -> Sequence[GraphRun]:
        """The run of each step; a run of every root graph where it is unknown which of them ran."""
        live, roots = self.live(rank), directory_names(self.nodes(rank).graphs)
        if live is None:
            return ()
        ran = [(step, live.root(step)) for step in self.steps(rank)]
        runs = [(step, each) for step, root in ran for each in (sorted(roots) if root is None else [root])]
        order = turns([step for step, _ in runs])
        return tuple(
            GraphRun(step, root, roots.get(root, ""), has_data=True, turn=turn)
            for (step, root), turn in zip(runs, order, strict=True)
        )

    def previous_run(
        self,
        rank: int,
        root_graph: int,
        step: int,
        round: int = 0,  # noqa: A002, ARG002 - see history
    ) -> tuple[int, int] | None:
        """The previous run, if anything of it is known: an older one would be wrong."""
        live = self.live(rank)
        if live is None:
            return None
        before = live.run_before(root_graph, step)
        return (before, 0) if before in self.steps(rank) or before in live.judged() else None

    def unreadable(self) -> Sequence[UnreadablePart]:
        """What trainings ran and nobody judged: unrecorded by a client, or missed here."""
        with self._lock:
            missed = dict(self._unjudged)
        rows = [(live.number, *each) for live in self.all() for each in map(_unrecorded_row, live.training.unrecorded)]
        rows += [(rank, what, count, detail) for (rank, what), (count, detail) in missed.items()]
        return tuple(
            UnreadablePart(
                f"rank {rank}: {what}", ", ".join(filter(None, (f"{count:,}", detail))), rank=rank, unrecorded=True
            )
            for rank, what, count, detail in rows
        )

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:  # noqa: ARG002 - read when it came
        live = self.live(rank)
        return live.graph.nodes if live is not None and live.graph is not None else self._empty

    def tensors(self, rank: int, step: int, progress: ProgressFn = no_progress) -> TensorTable:  # noqa: ARG002 - as above
        self.dropped()
        table = self.table(rank, step)
        return table if table is not None else self._no_tensors

    def table(self, rank: int, step: int) -> LiveTable | None:
        """Like ``tensors``, but None without a graph."""
        live = self.live(rank)
        return live.table(step) if live is not None else None

    def notes(self, rank: int) -> RunNotes:
        live = self.live(rank)
        return live.training.notes if live is not None else NO_NOTES

    def refresh(self) -> Changes:
        self.dropped()
        new_ranks, new_steps, grown = [], [], []
        with self._lock:
            rebuilt, self._rebuilt = self._rebuilt, set()
            longer, self._longer = self._longer, set()
        for number in self.ranks():
            live = self.live(number)
            if live is None:
                continue
            changed, now = live.changed(), set(live.steps())
            before = self._known.get(number, set())
            if number not in self._listed:
                new_ranks.append(number)
                self._listed.add(number)
            new_steps += [(number, step) for step in sorted(now - before)]
            again = now & before if number in rebuilt else (changed & before)
            grown += [(number, step) for step in sorted(again)]
            self._known[number] = now
        return Changes(tuple(new_steps), tuple(grown), bool(rebuilt | longer), tuple(new_ranks), tuple(sorted(rebuilt)))

    def close(self) -> None:
        """Removes the kept values. The trainings are closed by the caller that opened them."""
        self.spool.close()


def _unrecorded_row(each: Unrecorded) -> tuple[str, int, str]:
    name = f"{each.example} " if each.example else ""
    return each.what, each.count, f"first {name}at step {each.step}"
