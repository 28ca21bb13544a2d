"""A session on trainings that run: listens for them, drives them, and keeps what they send."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.causes.made_from import may_read_later
from tui_debugger.causes.rule import mark_hits
from tui_debugger.check.hits import HitList
from tui_debugger.check.pipeline import Checks
from tui_debugger.check.received import GivenWatchpoints, LiveChecker
from tui_debugger.check.results import combined, repeated
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import CheckResult, TensorRow
from tui_debugger.errors import (
    CancelledError,
    NotStoppedError,
    TdbgError,
    UnreadableTensorError,
    UnsupportedError,
    reason_of,
)
from tui_debugger.graph.build import observed_order
from tui_debugger.graph.categories import assigned, changed_by_modules
from tui_debugger.graph.table import real_consumers
from tui_debugger.live import wire
from tui_debugger.live.dump_writer import DumpWriter, TensorName
from tui_debugger.live.graph import LiveRankGraph
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.source import LiveSource
from tui_debugger.live.spool import LIMIT, Spool
from tui_debugger.live.table import ReceivedStep, ReceivedValues, said_clean
from tui_debugger.live.wire import START, Event, Phase
from tui_debugger.model import (
    TRAINABLE,
    Category,
    Coverage,
    Progress,
    ProgressFn,
    Side,
    TensorKey,
    TensorMeta,
    TensorStats,
    UnreadablePart,
    Watchpoint,
    no_progress,
)
from tui_debugger.said import Said, doubt_line
from tui_debugger.session.live_driver import Driver, HitStops, unknown_rank
from tui_debugger.session.live_events import LiveEvent, LiveState
from tui_debugger.session.live_evidence import Budget, evidence, outputs, statistics, values
from tui_debugger.session.live_left_out import left_out
from tui_debugger.session.session import Session
from tui_debugger.sources.base import Changes, TensorFlag
from tui_debugger.stats.workers import MeasureWorkers
from tui_debugger.text.numbers import plural

if TYPE_CHECKING:
    from tui_debugger.live.server import Server

__all__ = ["LiveEvent", "LiveSession", "LiveState"]


_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - recognised, not bound to
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def waiting_text(address: str, *, encrypted: bool = False) -> str:
    """The environment variables to copy, a line for each kind of training; MindSpore's client does not speak TLS."""
    if address.startswith("unix:"):
        return f"PyTorch and others:  TDBG_HOST={address}"
    host, _, port = address.rpartition(":")
    token = "" if host in _LOCAL else " TDBG_TOKEN=..."
    token += " TDBG_TLS_CA=..." if encrypted else ""
    host = this_machine() if host in _EVERYWHERE else host
    lines = []
    if ":" not in host and not encrypted:
        there = "127.0.0.1" if host == "localhost" else host
        lines.append(f"MindSpore 1.1 to 2.3:  ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST={there} MS_DEBUGGER_PORT={port}")
    lines.append(f"PyTorch and others:    TDBG_HOST={host} TDBG_PORT={port}{token}")
    return "\n".join(lines)


def this_machine() -> str:
    """The address of this machine, or a placeholder when its name does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "ADDRESS-OF-THIS-MACHINE"


Recorded = tuple[TensorName, TensorMeta | None, TensorStats | None]


LeftOut = Callable[[LiveRank, int], Mapping[int, frozenset[str]]]
"""Returns by place the NaN or Inf that is no finding in a step of a training: see ``live_left_out``."""


def save_dump(
    source: LiveSource,
    directory: Path,
    left_out: LeftOut,
    progress: ProgressFn = no_progress,
    ends: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Writes graphs, the steps that were stopped at, values and statistics; returns what was written, in words.

    Args:
        source: what is kept.
        directory: a new one, or an empty one.
        left_out: asked of every step.
        progress: receives snapshots.
        ends: by rank how its training ended before its time.

    Raises:
        TdbgError: the directory exists and is not empty, cannot be written, or there is nothing to write.
        CancelledError: from ``progress``; what was written so far stays.
    """
    ranks = [live for live in source.all() if live.graph is not None]
    if not ranks:
        raise TdbgError("there is nothing to save", hint="no training has sent its graph yet")
    counts = _Counts(source.spool)
    rest = "the rest of the training"
    lost = [
        *source.unreadable(),
        *(UnreadablePart(f"rank {at}: {rest}", f"it {how}", rank=at) for at, how in ends.items()),
    ]
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise TdbgError("the directory exists and is not empty", where=str(directory), hint="choose another one")
        for live in ranks:
            lacks = [part for part in lost if part.rank == live.number]
            _save_rank(live, directory, counts, left_out, progress, lacks)
    except OSError as error:
        raise TdbgError(f"the dump could not be written: {reason_of(error)}", where=str(directory)) from error
    return counts.text(len(ranks))


class _Counts:
    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.steps: set[int] = set()
        self.tensors = self.statistics = self.early = 0

    def text(self, ranks: int) -> str:
        parts = [plural(self.tensors, "tensor"), f"statistics of {self.statistics:,} more"]
        text = f"{plural(len(self.steps), 'step')} of {plural(ranks, 'rank')}: {', '.join(parts)}"
        early = f"; {plural(self.early, 'tensor')} from before the first step left out: a dump has no place for them"
        return text + (early if self.early else "")


def _save_rank(  # noqa: PLR0917 - a rank, and where it goes
    live: LiveRank,
    directory: Path,
    counts: _Counts,
    left_out: LeftOut,
    progress: ProgressFn,
    lost: Sequence[UnreadablePart],
) -> None:
    graph, info = live.graph, live.training.info
    if graph is None:
        return
    writer = DumpWriter(directory, rank=live.number, program=info.program, device=info.backend)
    writer.metadata()
    steps = sorted(step for step in {*live.steps(), *live.judged()} if live.kept(step) is not None)
    said = [(step, kept) for step in steps if step >= 0 and (kept := live.kept(step)) is not None]
    found = [[int(graph.node[place]) for place in kept.by_design] for _, kept in said]  # in the order in which they ran
    writer.graphs(graph.data, [graph.nodes.names[row] for row in observed_order(graph.nodes, found)])
    told = ((step, _said(graph, kept, left_out(live, step))) for step, kept in said)
    lines = [line for step, each in told for line in each.lines(step, graph.name)]
    writer.said([*lines, *map(doubt_line, lost)])
    for root in sorted({each.root_id for each in graph.nodes.graphs if each.is_root}):
        writer.history([step for step in steps if live.root(step) in (None, root)], root)
    writer.notes(live.training.notes.all())
    begins = {root: step for root in graph.roots if (step := live.first_run(root)) is not None and step in steps}
    initial: dict[int, list[Recorded]] = {}
    for number, step in enumerate(steps):
        kept = live.kept(step)
        if kept is None:
            continue
        if step < 0:
            initial = _save_initial(writer, graph, kept, counts, begins)
            continue
        progress(Progress(number, len(steps), f"rank {live.number}: saving step {step}"))
        _save_step(writer, graph, step, kept, counts, initial.get(step, ()))


def _save_initial(
    writer: DumpWriter, graph: LiveRankGraph, kept: ReceivedStep, counts: _Counts, begins: Mapping[int, int]
) -> dict[int, list[Recorded]]:
    """Writes values from before the first step as the inputs of the nodes that read them in that step.

    ``begins`` is the first saved step of each root graph. Returns the statistics to write with these steps for values
    that are not kept.
    """
    recorded: dict[int, list[Recorded]] = {}
    for place in _judged_places(graph, kept):
        step = begins.get(graph.root_of(place))
        if step is None or not _changes(graph, place):
            continue  # the first step does not change it
        recorded.setdefault(step, []).extend((name, *_said_clean(graph, place)) for name in _readers(graph, place))
    for place, fetched in kept.values.items():
        step = begins.get(graph.root_of(place))
        readers = _readers(graph, place) if step is not None and graph.parameter[place] else []
        counts.early += not readers
        placed = sum(_place(writer, step or 0, name, fetched) for name in readers) > 0
        counts.tensors += placed
        if readers and not placed:
            counts.spool.gone((writer.rank, START))
    return recorded


def _changes(graph: LiveRankGraph, place: int) -> bool:
    """Tells whether a step changes a parameter: the client calls no other parameter clean before the first step."""
    nodes, row = graph.nodes, int(graph.node[place])
    return nodes.category_of(row) in TRAINABLE | {Category.OPTIMIZER_STATE} or changed_by_modules(nodes, row)


def _readers(graph: LiveRankGraph, place: int) -> list[TensorName]:
    """The inputs that a tensor from before the first step is fed into, as far as nothing overwrote it before."""
    nodes, held = graph.nodes, int(graph.node[place])
    if assigned(nodes, held) == []:  # only the program itself assigns it
        return []
    readers = [
        (row, slot)
        for row, slot in real_consumers(nodes, held, int(graph.slot[place]))
        if not may_read_later(nodes, held, row)
    ]
    return [
        TensorName(nodes.op_type(row), nodes.names[row], slot, nodes.graph_of(row).root_id, side="input")
        for row, slot in readers
    ]


def _said(graph: LiveRankGraph, kept: ReceivedStep, left_out: Mapping[int, frozenset[str]]) -> Said:
    return Said(kept.inputs_unknown, graph.operands(kept.operands), graph.outputs({**kept.by_design, **left_out}))


def _judged_places(graph: LiveRankGraph, kept: ReceivedStep) -> list[int]:
    """Places that the training called clean without sending values or statistics."""
    if kept.clean is None:
        return []
    clean: list[int] = np.flatnonzero(kept.clean & (graph.flags == 0)).tolist()
    return [place for place in clean if place not in kept.values and kept.sent.get(place) is None]


def _said_clean(graph: LiveRankGraph, place: int) -> tuple[TensorMeta | None, TensorStats]:
    dtype, shape = graph.type(place)
    meta = TensorMeta(dtype, shape, graph.nbytes(place) or 0) if shape is not None else None
    return meta, said_clean(graph, place)


def _save_step(  # noqa: PLR0917 - a step, and where it goes
    writer: DumpWriter,
    graph: LiveRankGraph,
    step: int,
    kept: ReceivedStep,
    counts: _Counts,
    initial: Sequence[Recorded] = (),
) -> None:
    before = counts.tensors + counts.statistics
    placed = set()
    for place, fetched in kept.values.items():
        if graph.flags[place] & TensorFlag.CONSTANT:
            counts.tensors += _place_constant(writer, graph, place, fetched)
            continue
        if _place(writer, step, _name(graph, place), fetched):
            placed.add(place)
        else:
            counts.spool.gone((writer.rank, step))
    counts.tensors += len(placed)
    recorded: dict[int, list[Recorded]] = {}
    judged = [(_name(graph, place), *_said_clean(graph, place)) for place in _judged_places(graph, kept)]
    for each in (*initial, *judged):
        recorded.setdefault(each[0].root_graph, []).append(each)
        counts.statistics += 1
    for place, sent_stats in kept.sent.items():
        if place not in placed and sent_stats.stats is not None and not graph.flags[place] & TensorFlag.CONSTANT:
            name = _name(graph, place)
            recorded.setdefault(name.root_graph, []).append((name, sent_stats.meta, sent_stats.stats))
            counts.statistics += 1
    for root, rows in recorded.items():
        writer.statistics(step, sorted(rows, key=lambda row: (row[0].node, row[0].slot)), root)
    if counts.tensors + counts.statistics > before:  # a directory without tensors would be a step that cannot be read
        counts.steps.add(step)


def _place_constant(writer: DumpWriter, graph: LiveRankGraph, place: int, fetched: ReceivedValues) -> bool:
    """Saves the value of a constant, which is the same in every step; False when its file is gone."""
    nodes, row = graph.nodes, int(graph.node[place])
    of = nodes.graph_of(row)
    constants = np.flatnonzero((nodes.category == Category.CONSTANT) & (nodes.graph == nodes.graph[row])).tolist()
    with suppress(FileNotFoundError):
        writer.constant(constants.index(row), fetched.kept.dtype, fetched.kept.path, of.root_id)
        return True
    return False


def _place(writer: DumpWriter, step: int, name: TensorName, fetched: ReceivedValues) -> bool:
    """Saves the fetched values of a tensor; False when the spool has dropped their file, as it does with the oldest."""
    try:
        writer.place(step, name, fetched.kept.dtype, fetched.kept.path)
    except FileNotFoundError:
        if fetched.kept.path.exists():
            raise  # the target directory is gone, not the fetched file
        return False
    return True


def _name(graph: LiveRankGraph, place: int) -> TensorName:
    row = int(graph.node[place])
    nodes = graph.nodes
    return TensorName(nodes.op_type(row), nodes.names[row], int(graph.slot[place]), nodes.graph_of(row).root_id)


SMALL: Final = 1 << 18
"""Bytes up to which a tensor is fetched whole when its row is shown: its statistics are exact then."""
TOGETHER: Final = 1 << 23
"""Bytes that the small tensors of one look may have together."""
LARGEST_LOOK: Final = 1 << 26
"""Bytes up to which a tensor is fetched whole from a client that cannot be asked for statistics."""


class LiveSession(Session):
    """A ``Session`` whose ranks are trainings that sent a graph, and whose steps are those that stopped or were kept.

    The step before the first is ``wire.START`` (-1). ``check`` of the step at which a training waits gives what the
    client found (it rechecks when the list changed since); ``check`` of earlier steps judges the fetched values.
    ``measure`` fetches statistics (small tensors whole), ``read`` and ``save_npy`` fetch values.
    """

    def __init__(
        self,
        trainings: Server,
        *,
        spool_limit: int = LIMIT,
        source_map: Sequence[tuple[str, str]] = (),
        workers: MeasureWorkers | None = None,
    ) -> None:
        """Starts to listen; ``spool_limit`` bounds the bytes of fetched values on disk."""
        self.live = LiveSource(trainings, limit=spool_limit)
        super().__init__(self.live, source_map=source_map, workers=workers)
        self._trainings = trainings
        self._subscribers: dict[object, Callable[[LiveEvent], None]] = {}
        self._subscribing = threading.Lock()
        self._closed = False
        self._checks = Checks(
            self.watchpoints.snapshot, self._live_checker, self._workers, self._look_ahead, self.unreadable
        )
        self._driver = Driver(
            self.live,
            trainings,
            self._checks.known_results,
            self._watched_now,
            self._notify,
            measurements=self.measurements,
        )
        self.watchpoints.on_change = self._driver.renew_lists

    # -- trainings ---------------------------------------------------------------------------------

    @property
    def focus(self) -> tuple[int | None, int | None]:
        return self.live.focus

    @property
    def refusals(self) -> Sequence[str]:
        """The reasons why clients were turned away, the newest last; bounded."""
        return self._trainings.refusals

    @property
    def address(self) -> str:
        return self._trainings.address

    @property
    def idle(self) -> bool:
        """Whether all messages of trainings were handled and their events delivered."""
        return self._driver.idle

    def wait_until_idle(self, limit: float) -> None:
        """Waits for ``idle``, at most ``limit`` seconds; not from a callback of ``subscribe``."""
        self._driver.wait_until_idle(limit)

    @property
    def ongoing(self) -> bool:
        return any(live.training.phase not in (Phase.LOST, Phase.DONE) for live in self.live.all())

    def trainings(self) -> tuple[LiveState, ...]:
        """Every training that came, by rank, including trainings without a graph, lost ones and done ones."""
        return tuple(self._driver.state(live) for live in self.live.all())

    def state(self, rank: int) -> LiveState:
        """The state of one training; raises TdbgError when no training has that rank."""
        return self._driver.state(self._live(rank))

    def run(
        self,
        steps: int | None = 1,
        ranks: Sequence[int] | None = None,
        *,
        stop_on_hit: bool = True,
        stop_at_nodes: bool = True,
        stop_at_inf: bool = True,
        progress: ProgressFn = no_progress,
    ) -> tuple[int, ...]:
        """Lets stopped trainings run some steps (None: until a hit or ``pause``), and returns the ranks that run now.

        Initial values under watchpoints and steps that no list judged yet are judged first. If they have a finding, the
        training stays and ``Event.HITS`` is sent; the next ``run`` lets it go. ``stop_at_nodes``: see
        ``RemoteTraining.run``. Without ``stop_at_inf``, a training whose only findings in a step are Inf that may
        be by design runs on to the end of the step, and stops there if they are not by design. NotStoppedError: no
        training stands; CancelledError and LostError come from judging.
        """
        standing = self._standing(ranks)
        stops = HitStops(stop_on_hit, stop_at_nodes, stop_at_inf)
        return tuple(live.number for live in standing if self._driver.run(live, steps, stops, progress))

    def can_run_to_nodes(self, rank: int) -> bool:
        return bool(self._live(rank).training.info.features & wire.RUNS_TO_NODES)

    def run_to_node(self, rank: int, row: int | None = None) -> None:
        """Lets one training run to a node (None: the next node), at most to the end of the step."""
        self._driver.run_to_node(self._live(rank), "" if row is None else self.nodes(rank).names[row])

    def pause(self, ranks: Sequence[int] | None = None) -> None:
        """Stops trainings at the end of the step that they run."""
        for live in self._chosen(ranks):
            self._driver.pause(live)

    def terminate(self, ranks: Sequence[int] | None = None) -> None:
        for live in self._chosen(ranks):
            live.training.terminate()

    def release(self, ranks: Sequence[int] | None = None) -> None:
        """Lets trainings go on by themselves until their end, without watchpoints."""
        for live in self._chosen(ranks):
            self._driver.release(live)

    def recheck(self, ranks: Sequence[int] | None = None, progress: ProgressFn = no_progress) -> None:
        """Has the trainings that stand judge their current values by the current list; ``known`` has the results."""
        for live in self._standing(ranks):
            self._driver.recheck(live, progress)

    def dependents(self) -> tuple[int, ...]:
        """Ranks of MindSpore's client, which ends when nobody answers; our own client goes on by itself."""
        return tuple(
            live.number
            for live in self.live.all()
            if not live.training.info.own_client
            and live.training.phase in (Phase.STOPPED, Phase.RUNNING, Phase.RECEIVING)
        )

    def silent(self) -> list[tuple[int, int, Coverage]]:
        """(rank, steps, coverage of each) of the steps that ran without a hit and have no result of their own."""
        return self._driver.silent()

    def why_no_previous(self, key: TensorKey) -> str:
        if key.step <= START + 1:
            return super().why_no_previous(key)
        return f"only parameters are kept: look at it in step {key.step - 1}, too"

    def so_far(self) -> CheckResult | None:
        """Like ``Session.so_far``, plus the silent steps under the current list, which have no result of their own."""
        self._driver.settle()
        result, (version, watchpoints) = super().so_far(), self.watchpoints.snapshot()
        silent = self._driver.silent(version)
        if result is not None:
            every = sum(count for _, count, _ in self._driver.silent())
            result = replace(result, silent_before=every - sum(count for _, count, _ in silent))
        if not silent:
            return result
        if result is None:
            nothing = replace(combined([]), parts=tuple(self.unreadable()))
            result = CheckResult((), HitList(()), nothing, watchpoints, version)
        kept = self._driver.judged_silently(self.pairs(), version)
        again = Counter(rank for rank, _ in kept & set(result.pairs))  # steps with a result by now
        covers, steps = [result.coverage], 0
        for rank, count, coverage in silent:
            alone = count - min(again[rank], count)
            again[rank] -= count - alone
            covers.append(repeated(coverage, alone))
            steps += alone
        return replace(result, coverage=combined(covers), silent=steps, silent_pairs=kept - set(result.pairs))

    def settle(self) -> None:
        """Makes ``silent`` and ``ended`` include the steps that running trainings have ended so far."""
        self._driver.settle()

    def latest(self, rank: int, step: int) -> PairResult | None:
        """Returns the last result of a step, whatever the list is now."""
        return self._checks.known_results.latest((rank, step))

    def keep(self, rank: int, step: int, hits: HitList, budget: Budget, progress: ProgressFn = no_progress) -> None:
        """Fetches the evidence of the findings of the step at which a training stands, the most wanted tensors first.

        The order is: origins with all their inputs, other findings with their inputs, then all other watched tensors.
        Values are fetched as far as there is room, statistics of the rest.
        """
        live = self._live(rank)
        rest = [place for row in np.flatnonzero(self.watch_state(rank)).tolist() for place in outputs(live, step, row)]
        wanted = list(dict.fromkeys([*evidence(live, self.measurements(rank), step, hits), *rest]))
        statistics(live, wanted, budget, progress)
        values(live, wanted, budget, progress)
        self._notify(LiveEvent(Event.FETCHED, rank))

    def ended(self) -> dict[int, int]:
        """By rank the last step that ended, -1 before the first step ended."""
        return self._driver.ended()

    def subscribe(self, callback: Callable[[LiveEvent], None]) -> Callable[[], None]:
        """Calls back for every event, from a thread of the session; the returned function ends the subscription."""
        token = object()
        with self._subscribing:
            self._subscribers[token] = callback

        def end() -> None:
            with self._subscribing:
                self._subscribers.pop(token, None)

        return end

    def on_new_nodes(self, do: Callable[[int], None]) -> None:
        """Has ``do(rank)`` called, from a thread of the session, when a training that follows a list named new nodes.

        ``do`` may add to the list: the step with the new nodes is judged by the list after the call.
        """
        self._driver.on_new_nodes(do)

    def waiting_text(self) -> str:
        return waiting_text(self._trainings.address, encrypted=self._trainings.encrypted)

    def save(self, directory: Path, progress: ProgressFn = no_progress, *, early: Collection[int] | None = None) -> str:
        """Writes all that is kept as a dump directory, which ``tdbg open`` reads; returns what was written, in words.

        Args:
            directory: a new one, or an empty one.
            progress: receives snapshots.
            early: ranks of the trainings that ended before their time; None: of all that did.

        Raises:
            TdbgError: the directory exists and is not empty, or cannot be written.
        """
        self._driver.keep_last()

        def no_findings(live: LiveRank, step: int) -> Mapping[int, frozenset[str]]:
            return left_out(live, self.measurements(live.number), step, progress)

        states = [each for each in self.trainings() if early is None or each.rank in early]
        ends = {each.rank: each.ending for each in states if each.ending}
        return save_dump(self.live, directory, no_findings, progress, ends)

    # -- tensors -----------------------------------------------------------------------------------

    def measure(self, rows: Sequence[TensorRow], progress: ProgressFn = no_progress) -> tuple[TensorRow, ...]:
        """The rows (all of one rank) with dtype, shape, and statistics or an error; fetches missing statistics."""
        if not rows:
            return ()
        problem = self._fetch_missing(rows, progress)
        return tuple(self._current_row(row, problem) for row in super().measure(rows, progress))

    def fetch(self, rows: Sequence[TensorRow], progress: ProgressFn = no_progress) -> int:
        """Fetches the values of rows (all of one rank) that are only at the training; returns how many came."""
        came = 0
        for live, step, places in self._remote(rows, TensorFlag.REMOTE):
            came += live.fetch_values(step, places, progress)
        if came:
            self._notify(LiveEvent(Event.FETCHED, rows[0].key.rank))
        return came

    def read(self, key: TensorKey, progress: ProgressFn = no_progress) -> Array:
        """See ``Session.read``; fetches values that are only at the training. Errors: see ``LiveRank.fetch_values``."""
        row = TensorRow(key, "out", key.slot, 0, has_value=True, has_previous=False)
        if self._remote([row], TensorFlag.REMOTE) and not self.fetch([row], progress):
            raise UnreadableTensorError(
                "the training does not have this tensor",
                where=f"rank {key.rank} step {key.step} {key.node} {key.side.label}:{key.slot}",
                hint="some operators keep no output, and before the first step there are parameters only",
            )
        return super().read(key)

    def refresh(self) -> Changes:
        """Takes in news since the last call. Results of trainings stay known: fetching values does not change them."""
        changes = self.live.refresh()
        for rank in changes.rebuilt:
            self._checks.known_results.drop_from(rank, START)
        return changes

    def close(self) -> None:
        """Lets every training go on, closes the server, removes fetched values. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._trainings.close()
        finally:
            self._driver.close()
            super().close()

    # -- how ---------------------------------------------------------------------------------------

    def _fetch_missing(self, rows: Sequence[TensorRow], progress: ProgressFn) -> str:
        """Fetches statistics of rows without any, small tensors whole; returns why that failed, or nothing."""
        try:
            for live, step, places in self._remote(rows, TensorFlag.UNKNOWN):
                small, large = _by_size(live, places)
                live.fetch_values(step, small, progress)
                try:
                    live.fetch_statistics(step, large, progress)
                except UnsupportedError:
                    live.fetch_values(step, [each for each in large if _size(live, each) <= LARGEST_LOOK], progress)
        except CancelledError:
            raise
        except TdbgError as error:
            return error.what
        return ""

    def _remote(self, rows: Sequence[TensorRow], flag: TensorFlag) -> list[tuple[LiveRank, int, list[int]]]:
        """(training, step, places) of the rows whose flags currently hold REMOTE and ``flag``."""
        found: dict[int, list[int]] = {}
        live = self.live.live(rows[0].key.rank) if rows else None
        if live is None or live.graph is None:
            return []
        for row in rows:
            key = row.key
            table, node = live.table(key.step), live.graph.nodes.find(key.node, key.graph)
            index = table.find(node, Side.OUTPUT, key.slot) if table is not None and key.side is Side.OUTPUT else -1
            wanted = int(TensorFlag.REMOTE | flag)
            if table is not None and index >= 0 and int(table.flags[index]) & wanted == wanted:
                found.setdefault(key.step, []).append(int(table.places[index]))
        return [(live, step, list(dict.fromkeys(places))) for step, places in found.items()]

    def _current_row(self, row: TensorRow, problem: str) -> TensorRow:
        """Updates a measured row, which was listed before values were fetched, to the present state of its tensor."""
        live = self.live.live(row.key.rank)
        if live is None or live.graph is None or row.index < 0:
            return row
        node = live.graph.nodes.find(row.key.node, row.key.graph)
        table = live.table(row.key.step)
        index = table.find(node, row.key.side, row.key.slot) if table is not None else -1
        if table is None or index < 0:
            return replace(row, has_value=False, remote=False, error=row.error or problem)
        flags = int(table.flags[index])
        error = row.error
        if flags & TensorFlag.UNKNOWN:
            missing = live.missing(row.key.step, node, row.key.slot)
            error = "the training does not have this tensor" if missing else problem
        return replace(
            row,
            error=error,
            remote=bool(flags & TensorFlag.REMOTE),
            has_value=not flags & TensorFlag.STAT_ONLY or bool(flags & TensorFlag.REMOTE),
            recorded=bool(flags & TensorFlag.STAT_ONLY) and not flags & (TensorFlag.UNKNOWN | TensorFlag.EXACT),
        )

    def _live_checker(self, rank: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn) -> LiveChecker:
        measurements = self.measurements(rank, progress)
        checker = LiveChecker(
            measurements,
            watchpoints,
            lambda w: self._selections.selected(measurements.flow.nodes, w.selection),
            lambda: self._selections.in_scope(measurements.flow.nodes),
            mark=mark_hits,
        )
        checker.ask = lambda step, tell: self._judged_there(rank, step, watchpoints, tell)
        return checker

    def _judged_there(
        self, rank: int, step: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn
    ) -> PairResult | None:
        """Returns what the client finds at ``step``; None when the training does not stand there."""
        live = self.live.live(rank)
        stop = live.standing if live is not None else None
        if live is None or stop is None or stop.step != step or live.training.phase is not Phase.STOPPED:
            return None
        return self._driver.recheck(live, progress) if watchpoints else None

    def _watched_now(self, live: LiveRank) -> GivenWatchpoints:
        version, watchpoints = self.watchpoints.snapshot()
        graph = live.graph
        if graph is None:
            raise NotStoppedError("the graph of the training did not come yet", where=f"rank {live.number}")
        masks = tuple(self._selections.mask(graph.nodes, each.selection) for each in watchpoints)
        return GivenWatchpoints(version, watchpoints, masks, graph, live.training.info)

    def _live(self, rank: int) -> LiveRank:
        live = self.live.live(rank)
        if live is None:
            raise unknown_rank(rank, (each.number for each in self.live.all()))
        return live

    def _chosen(self, ranks: Sequence[int] | None) -> list[LiveRank]:
        return self.live.all() if ranks is None else [self._live(rank) for rank in ranks]

    def _standing(self, ranks: Sequence[int] | None) -> list[LiveRank]:
        chosen = self._chosen(ranks)
        standing = [live for live in chosen if live.training.phase is Phase.STOPPED and live.graph is not None]
        if not standing:
            phases = ", ".join(f"rank {live.number}: {live.training.phase.value}" for live in chosen)
            raise NotStoppedError("no training stands", where=phases, hint="pause one, or wait for one to come")
        return standing

    def _notify(self, event: LiveEvent) -> None:
        with self._subscribing:
            callbacks = list(self._subscribers.values())
        for callback in callbacks:
            callback(event)


def _by_size(live: LiveRank, places: Sequence[int]) -> tuple[list[int], list[int]]:
    """Splits places into those to fetch whole, and those to ask statistics of."""
    small: list[int] = []
    left = TOGETHER
    for place in places:
        size = _size(live, place)
        if size <= min(SMALL, left):
            small.append(place)
            left -= size
    return small, [place for place in places if place not in small]


def _size(live: LiveRank, place: int) -> int:
    size = live.graph.nbytes(place) if live.graph is not None else None
    return 1 << 62 if size is None else size
