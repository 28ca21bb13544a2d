"""The tensors of a training loop as a ``Probe``; a training with unrecorded tensors is never called clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.live.client.judging import ClientJudge, ConsecutiveSteps, StepMemory, resolve, watched
from tui_debugger.live.client.messages import GRADIENTS, GraphBuilder, type_number
from tui_debugger.live.client.probe import ClientHit, ClientValue, Identity
from tui_debugger.live.client.unpacking import DEPTH, MOST
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import ErrorBits, TensorMeta, TensorStats, Verdict, WatchResult
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.dtypes import is_numeric, name_of
from tui_debugger.stats.records import Record, RequiredStats
from tui_debugger.stats.side_by_side import compare
from tui_debugger.watch.condition_table import CONDITIONS


class UnrecordedCounts:
    """Counts by kind, since the process began."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Unrecorded] = {}

    def add(self, what: str, step: int, example: str = "", count: int = 1) -> None:
        known = self._by_kind.get(what)
        if known is None:
            self._by_kind[what] = Unrecorded(what, count, example, max(step, 0))
        else:
            self._by_kind[what] = replace(known, count=known.count + count)

    def all(self) -> Sequence[Unrecorded]:
        return tuple(self._by_kind.values())


def meta_of(array: Array) -> TensorMeta:
    return TensorMeta(name_of(array.dtype), array.shape, array.nbytes)


def measure(array: Array, need: RequiredStats, previous: Array | None = None) -> Record:
    """A record of an array, from the same arithmetic as offline checks; ``previous``: its value one step before."""
    meta = meta_of(array)
    if not is_numeric(array.dtype):
        return Record(meta, None, need=need)
    stats, ranges = measure_stats(array, need.ranges)
    if not need.previous or previous is None:
        return Record(meta, stats, ranges, need=need)
    if previous.shape != array.shape:
        return Record(meta, stats, ranges, previous="shape", need=need)
    change, close = compare(array, previous, need.closeness)
    return Record(meta, stats, ranges, change, close, previous="ok", need=need)


PARAMETER_KINDS: Final = frozenset({"weight", "parameter"})
NODES: Final = 100_000
"""The most nodes; values of further ones are not kept."""
AGAIN: Final = 10_000
"""Tensors of one step that are kept besides a later one of the same name, until a debugger sends watchpoints."""
EVIDENCE: Final = 8 << 20
"""Bytes of small tensors of a step, and of bad ones, that are kept for a dump of the flight recorder."""
_SMALL: Final = 1 << 20
_TOGETHER: Final = 1000
"""Tensors with repeated names that wait for being judged at most."""
_PIECE: Final = 1 << 20
"""Elements of a strided array that are copied at once when it is sent."""
NOT_TAKEN: Final = "tensors that could not be converted to NumPy, or copied"
NO_NAME: Final = "tensors whose names could not be written as text"
TOO_NESTED: Final = f"values beyond the first {MOST:,} of one record, or below {DEPTH} levels of it"
NO_NODE: Final = f"tensors under names beyond the first {NODES:,}"
NOT_ANNOUNCED: Final = "names that came after the graph had been sent too often"
NO_ROOM: Final = "tensors that found no room to be kept until watchpoints on them came (keep_bytes)"
NOT_COMPARED: Final = "tensors whose values of the step before found no room (keep_bytes)"
REPEATED: Final = f"tensors of the first step beyond {AGAIN:,} that were recorded under the same names again"


@dataclass(frozen=True, slots=True)
class RecordedName:
    """A name that was recorded: a node of the graph."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    meta: TensorMeta


@dataclass(slots=True)
class RecordedTensor:
    """One tensor of this step, as far as it is kept."""

    meta: TensorMeta
    order: int = 0  # how many tensors of this step came before
    record: Record | None = None  # measured when it came, if it was wanted then
    values: Array | None = None  # a copy; None when there was no room, or nobody could ask for it
    awaited: bool = False  # a debugger is there, or about to be: the tensor has to be judged


@dataclass(frozen=True, slots=True)
class ToJudge:
    """A tensor with its record and its judge; ``order`` as in ``RecordedTensor``."""

    judge: ClientJudge
    name: str
    record: Record
    order: int


@dataclass(slots=True)
class CopyBudget:
    """Bytes of copies that may be kept."""

    most: int
    used: int = 0

    def take(self, nbytes: int) -> bool:
        """Counts bytes if there is room for them; False if not."""
        if self.used + nbytes > self.most:
            return False
        self.used += nbytes
        return True


@dataclass(slots=True)
class Recordings:
    """The nodes seen so far and the tensors of this step.

    Attributes:
        flight_judge: the watchpoints of the flight recorder; None without one, or before it knows the graph.
        parts: by the full name of a value that is no array the full names of its arrays, in order.
        forked: returns the recordings of forked processes, which have no debugger.
    """

    who: Identity
    room: CopyBudget  # for copies of values, of this step and the one before
    flight_judge: ClientJudge | None = None
    measuring: bool = False  # statistics of every tensor are wanted
    keeping: bool = False  # values are kept: a debugger is there, or will be in a moment
    copying: bool = False  # values are kept for the flight recorder
    evidence: bool = False  # small tensors, and bad ones, are kept as long as the step lasts
    unstarted: bool = False  # for the debugger no step has run yet: there are no values
    step: int = 0
    forked: Callable[[], Sequence[Unrecorded]] = tuple
    _lost: UnrecordedCounts = field(default_factory=UnrecordedCounts)
    full: bool = False  # there were more than ``NODES`` names
    nodes: dict[str, RecordedName] = field(default_factory=dict)
    parts: dict[str, dict[str, None]] = field(default_factory=dict)
    held: dict[str, RecordedTensor] = field(default_factory=dict)
    before: dict[str, Array] = field(default_factory=dict)
    judge: ClientJudge = field(default_factory=ClientJudge)
    patience: ConsecutiveSteps = field(default_factory=ConsecutiveSteps)
    memory: StepMemory = field(default_factory=StepMemory)
    _watched: bool = False
    """The debugger has sent its watchpoints."""
    _count: int = 0
    _earlier: list[tuple[str, RecordedTensor]] = field(default_factory=list)
    """Tensors whose names came again in this step, as long as they cannot be judged."""
    _hits: list[tuple[int, ClientHit]] = field(default_factory=list)
    _flight_hits: list[tuple[int, ClientHit]] = field(default_factory=list)
    """Hits on tensors with repeated names, with their order."""
    _repeated: list[ToJudge] = field(default_factory=list)
    """Such tensors that can be judged and were not yet: many at once are faster than one by one."""
    _flight_repeated: list[ToJudge] = field(default_factory=list)
    _bad_earlier: dict[str, RecordedTensor] = field(default_factory=dict)
    """The first bad tensor of each such name."""
    _unkept: set[str] = field(default_factory=set)
    """Names whose values of the step before are needed, but were not kept."""
    _evidence: CopyBudget = field(default_factory=lambda: CopyBudget(EVIDENCE))

    # -- recording -----------------------------------------------------------------------------------

    def wanted(self, name: str, kind: str) -> bool:
        """Tells whether a tensor has to be converted at all: without listeners only for a new name."""
        full = _full_name(name, kind)
        return self.keeping or self.measuring or self.copying or (full not in self.nodes and full not in self.parts)

    def lose(self, what: str, name: str, count: int = 1) -> None:
        """Counts something wanted that cannot be recorded."""
        if self.keeping or self.measuring:
            self._lost.add(what, self.step, name, count)

    def consists_of(self, name: str, kind: str, parts: Sequence[str]) -> None:
        """Names the arrays of a value that is no array itself: names below its own, or its own."""
        self.parts.setdefault(_full_name(name, kind), {}).update((_full_name(each, kind), None) for each in parts)

    def add(self, name: str, kind: str, array: Array, inputs: Sequence[str] = ()) -> None:
        """Takes a tensor of this step. Two tensors of one name are both judged; only the later can be looked at."""
        name = _full_name(name, kind)
        if name not in self.nodes and not self._add_node(name, kind, array, inputs):
            self.lose(NO_NODE, name)
            return
        earlier = self.held.pop(name, None)
        if earlier is not None:
            self._set_aside(name, earlier)
        held = RecordedTensor(meta_of(array), self._count, awaited=self.keeping)
        self._count += 1
        need = self._need(name)
        if need is not None:
            held.record = measure(array, need, self.before.get(name))
            if name in self._unkept and (watched := self.judge.need(name)) is not None and watched.previous:
                self.lose(NOT_COMPARED, name)
        if self._takes_values(need, held):
            held.values = np.array(array, copy=True, order="C")
        elif self.keeping and held.record is None:
            held.record = measure(array, RequiredStats())  # no room for the values: at least statistics are kept
        self.held[name] = held

    def _set_aside(self, name: str, held: RecordedTensor) -> None:
        """A name came again: its earlier tensor is judged now, or later if the watchpoints are not known yet."""
        if held.record is not None and held.record.stats is not None and held.record.stats.bad:
            self._bad_earlier.setdefault(name, held)
        untold = (self.keeping and not self._watched) or (self.measuring and self.flight_judge is None)
        if untold and len(self._earlier) < AGAIN:
            self._earlier.append((name, held))
            return
        if untold:
            self.lose(REPEATED, name)
        for judge, repeated in ((self.judge, self._repeated), (self.flight_judge, self._flight_repeated)):
            tensor = self._to_judge(judge, name, held, again=True) if judge is not None else None
            if tensor is not None:
                repeated.append(tensor)
        if len(self._repeated) + len(self._flight_repeated) >= _TOGETHER:
            self._judge_repeated()
        if held.values is not None:
            self.room.used = max(self.room.used - held.values.nbytes, 0)

    def in_order(self) -> list[tuple[str, RecordedTensor]]:
        """The tensors of this step, one for each name: the first bad tensor, else the last tensor."""
        found = [(name, self._bad_earlier.get(name, held)) for name, held in self.held.items()]
        return sorted(found, key=lambda each: (self.nodes[each[0]].kind in PARAMETER_KINDS, each[1].order))

    def _add_node(self, name: str, kind: str, array: Array, inputs: Sequence[str]) -> bool:
        if len(self.nodes) >= NODES:
            self.full = True
            return False
        self.nodes[name] = RecordedName(name, kind, tuple(inputs), meta_of(array))
        return True

    def _need(self, name: str) -> RequiredStats | None:
        wanted = self.judge.need(name)
        other = self.flight_judge.need(name) if self.flight_judge is not None else None
        if wanted is None and other is None:
            return RequiredStats() if self.measuring else None
        return (wanted or RequiredStats()) | (other or RequiredStats())

    def _takes_values(self, need: RequiredStats | None, held: RecordedTensor) -> bool:
        """Tells whether to copy the values, given room: all with a debugger, else for comparisons and flight dumps."""
        if (self.keeping or self.copying or (need is not None and need.previous)) and self.room.take(held.meta.nbytes):
            return True
        if not self.evidence:
            return False
        bad = held.record is not None and held.record.stats is not None and held.record.stats.bad
        if (bad or held.meta.nbytes <= _SMALL) and self._evidence.take(held.meta.nbytes):
            self.room.used += held.meta.nbytes
            return True
        return False

    def next_step(self) -> None:
        """Drops this step's tensors, except for those that the next step's are compared with."""
        compared = {name for name in self.held if self._wants_previous(name)}
        self.before = {
            name: held.values for name, held in self.held.items() if held.values is not None and name in compared
        }
        needs = {name: self.judge.need(name) for name in compared - self.before.keys()}
        self._unkept = {name for name, need in needs.items() if need is not None and need.previous}
        self._judge_repeated()
        self.patience.next_step(self.held)
        self.memory.next_step()
        self.held.clear()
        self._earlier.clear()
        self._bad_earlier.clear()
        self._hits.clear()
        self._flight_hits.clear()
        self._count = self._evidence.used = 0
        self.room.used = sum(array.nbytes for array in self.before.values())

    def _wants_previous(self, name: str) -> bool:
        """Previous values of parameters can be looked at, as in MindSpore; others serve conditions on changes only."""
        need = self._need(name)
        return (need is not None and need.previous) or (self.keeping and self.nodes[name].kind in PARAMETER_KINDS)

    # -- what the protocol asks for --------------------------------------------------------------------

    def identity(self) -> Identity:
        return self.who

    def attached(self) -> None:
        self.keeping = True

    def detached(self) -> None:
        """Copies are dropped at the end of the step."""
        self._judge_repeated()
        self.keeping = self._watched = False
        self.judge = ClientJudge()
        self._hits.clear()

    def unrecorded(self) -> Sequence[Unrecorded]:
        return (*self._lost.all(), *self.forked())

    def graphs(self) -> Sequence[bytes]:
        """One graph: operators in the order in which they were first recorded, parameters, and their update."""
        builder = GraphBuilder()
        for node in self.nodes.values():
            if node.kind in PARAMETER_KINDS:
                builder.add_parameter(node.name, (node.meta.dtype, node.meta.shape))
        for node in self.nodes.values():
            if node.kind not in PARAMETER_KINDS:
                inputs = [full for each in node.inputs for full in self._input(each)]
                outputs = [(node.meta.dtype, node.meta.shape)]
                builder.add_node(node.name, node.kind[:1].upper() + node.kind[1:], inputs, outputs)
        weights = [node.name for node in self.nodes.values() if node.kind == "weight"]
        builder.add_update((name, GRADIENTS + name if GRADIENTS + name in self.nodes else "") for name in weights)
        return [builder.serialize()]

    def _input(self, name: str) -> Sequence[str]:
        own = next((each for each in (name, GRADIENTS + name) if each in self.nodes or each in self.parts), name)
        return list(self.parts.get(own, ())) or [own]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        self.judge = watched(watchpoints, self.nodes)
        self.judge.patience, self.judge.memory = self.patience, self.memory
        self._watched = True

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:
        """Judges tensors by the records made when they came: they may have changed since."""
        del recheck  # everything is judged anew each time
        return self._without_initial() if self.unstarted else self.judged(self.judge, initial=initial)

    def unfinished(self) -> bool:
        return bool(self.held)

    def rest(self) -> Sequence[ClientHit]:
        self.unstarted = False
        return self.judged(self.judge)

    def judged(self, judge: ClientJudge, *, initial: bool = False) -> list[ClientHit]:
        """The hits of one list of watchpoints, in the order of recording, parameters last."""
        self._judge_repeated()
        found = list(self._hits if judge is self.judge else self._flight_hits)
        waiting = [self._to_judge(judge, name, held, again=True) for name, held in self._earlier]
        waiting += [self._to_judge(judge, name, held) for name, held in self.held.items()]
        found += _judged([each for each in waiting if each is not None], initial=initial)
        found.sort(key=lambda each: (self.nodes[each[1].node].kind in PARAMETER_KINDS, each[0]))
        first: dict[tuple[str, int], ClientHit] = {}
        for _, hit in found:
            first.setdefault((hit.node, hit.result.watchpoint), hit)
        return list(first.values())

    def _to_judge(self, judge: ClientJudge, name: str, held: RecordedTensor, *, again: bool = False) -> ToJudge | None:
        """A tensor as it is judged, None when it has no record for a watchpoint.

        If its name came ``again`` later in the step, no change is judged: the later tensor is the result of the step.
        """
        need = judge.need(name)
        record = self._record(name, held, need) if need is not None else None
        if record is not None and again:
            record = replace(record, change=None, close={}, previous="none")
        return None if record is None else ToJudge(judge, name, record, held.order)

    def _judge_repeated(self) -> None:
        self._hits += _judged(self._repeated)
        self._flight_hits += _judged(self._flight_repeated)
        self._repeated.clear()
        self._flight_repeated.clear()

    def _record(self, name: str, held: RecordedTensor, need: RequiredStats) -> Record | None:
        """The record of a tensor, measured now from its copy when the watchpoints are newer."""
        if held.record is not None and held.record.need.covers(need):
            return held.record
        if held.values is None:
            if held.awaited:
                self.lose(NO_ROOM, name)
            return held.record
        held.record = measure(
            held.values, need | (held.record.need if held.record else RequiredStats()), self.before.get(name)
        )
        return held.record

    def _without_initial(self) -> list[ClientHit]:
        """Initial values were not recorded: conditions on them cannot be judged."""
        return [
            ClientHit(name, 0, WatchResult(each.id, each.condition, Verdict.NOT_COMPARABLE, ErrorBits.NO_PREVIOUS))
            for name, node in self.nodes.items()
            if node.kind in PARAMETER_KINDS
            for each in self.judge.watchpoints(name)
            if CONDITIONS[each.condition].initial_only
        ]

    def describe(self, tensor: RemoteTensor) -> TensorMeta | None:
        name = resolve(tensor.node, self.nodes)
        if tensor.slot or self.unstarted:
            return None
        if tensor.previous:
            return meta_of(self.before[name]) if name in self.before else None
        return self.held[name].meta if name in self.held else None

    def statistics(self, tensor: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        meta = self.describe(tensor)
        if meta is None:
            return None
        name = resolve(tensor.node, self.nodes)
        if tensor.previous:
            return meta, measure(self.before[name], RequiredStats()).stats
        held = self.held[name]
        if held.record is None and held.values is None:
            return None
        record = self._record(name, held, RequiredStats())
        return None if record is None else (meta, record.stats)

    def value(self, tensor: RemoteTensor) -> ClientValue | None:
        name = resolve(tensor.node, self.nodes)
        array = self.before.get(name) if tensor.previous else self.held[name].values if name in self.held else None
        if array is None or tensor.slot or self.unstarted or not type_number(name_of(array.dtype)):
            return None  # texts, objects and numbers of 80 bits have no number in the protocol
        return ClientValue(name_of(array.dtype), array.shape, _bytes(array))


def _judged(tensors: Sequence[ToJudge], *, initial: bool = False) -> list[tuple[int, ClientHit]]:
    """Results on tensors, with their order; an incomplete record is judged as far as its numbers go."""
    hits: list[tuple[int, ClientHit]] = []
    for _, group in groupby(tensors, key=lambda each: id(each.judge)):
        own = list(group)
        results = own[0].judge.evaluate([(each.name, each.record) for each in own], initial=initial, covered_only=True)
        for each, found in zip(own, results, strict=True):
            record = each.record
            hits += [(each.order, ClientHit(each.name, 0, result, record.meta, record.stats)) for result in found]
    return hits


def _full_name(name: str, kind: str) -> str:
    return name if kind != "gradient" or name.startswith(GRADIENTS) else GRADIENTS + name


def _bytes(array: Array) -> Iterator[bytes]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        yield piece.astype(piece.dtype.newbyteorder("<"), copy=False).tobytes()
