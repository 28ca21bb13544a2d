"""A step of a rank in both runs: which nodes are the same, their inputs, and the distances of all tensors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import cache, cached_property, partial
from typing import Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Shapes
from tui_debugger.cache.store import DiskCache
from tui_debugger.check.flow import DataFlow, Holder, Located
from tui_debugger.diagnose.ranks.layout import read_dims
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.diagnose.runs.distance import (
    Distance,
    Tolerance,
    TypeAndShape,
    above_noise,
    distance_of_files,
    distance_of_statistics,
    not_compared,
    pack_distance,
    unpack_distance,
)
from tui_debugger.diagnose.runs.layouts import RecordedParts
from tui_debugger.diagnose.runs.matching import (
    NodeMatch,
    NodesOfRun,
    Rule,
    RunMatching,
    containers,
    match_nodes,
)
from tui_debugger.diagnose.runs.results import Options, StepPlace
from tui_debugger.diagnose.runs.shards import Joiner
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.graph.categories import is_scratch
from tui_debugger.graph.table import NodeFlag, NodeTable
from tui_debugger.model import Category, Progress, ProgressFn, ReadSpec, Side, TensorStats, no_progress
from tui_debugger.sources.base import CallArguments, TensorFlag
from tui_debugger.stats.npy import open_array, read_meta
from tui_debugger.stats.workers import MeasureWorkers

_BATCH: Final = 1 << 24
"""The number of bytes that a worker gets at once."""
_TOLD_EVERY: Final = 0.25
"""Seconds between two progress reports while workers work."""
KIND: Final = "distances"
"""The kind of entries in the index."""
_VERSION: Final = 2
"""Changes whenever distances are measured differently."""


class RunTensors:
    """Tensors of one rank of one run.

    Attributes:
        mates: other ranks with parts of the same tensors, where one rank of the other run holds all of them.
        only: names of the nodes that count here; None: all.
        others: names of nodes that count in a group with another first rank.
        elsewhere: nodes that were compared with those of other ranks, and their distance.
        seen: (step, index) of the tensors that were read as parts.
    """

    def __init__(
        self, run: DiagnosedRun, rank: int, steps: Iterable[int], progress: ProgressFn, mates: Sequence[RunTensors] = ()
    ) -> None:
        self.run, self.rank = run, rank
        self.mates = tuple(mates)
        self.only: frozenset[str] | None = None
        self.others: set[str] = set()
        self.elsewhere: dict[int, float] = {}
        self.seen: set[tuple[int, int]] = set()
        self.steps = tuple(steps)
        listed = run.flow(rank, progress)
        for step in self.steps:
            listed.table(step)  # which may bring nodes that nobody knew: the flow is looked at after that
        self.flow: DataFlow = run.flow(rank, progress)
        self.sizes: dict[tuple[int, int], float] = {}

    @cached_property
    def place(self) -> Mapping[str, tuple[int, int]]:
        """The recorded place along each axis with several ranks; empty where not recorded."""
        return {axis: at for axis, at in self.run.parallel_places(self.rank)[0].items() if at[1] > 1}

    def spec(self, at: Located) -> ReadSpec | None:
        return None if self.is_stat_only(at) else self.flow.table(at.step).spec(at.index)

    def is_stat_only(self, at: Located) -> bool:
        return bool(int(self.flow.table(at.step).flags[at.index]) & TensorFlag.STAT_ONLY)

    def dumped(self, step: int) -> list[int]:
        """The rows of the nodes with tensors at a step, without constants."""
        table = self.flow.table(step)
        found: list[int] = np.unique(table.node[(table.flags & int(TensorFlag.CONSTANT)) == 0]).tolist()
        return found

    def array(self, at: Located | None) -> Array | None:
        """Returns the values; None where they were not dumped or cannot be read."""
        if at is None or at.index < 0:
            return None
        spec = self.spec(at)
        try:
            return open_array(spec) if spec is not None else self.run.read(self.flow.key(at))
        except CancelledError:
            raise
        except (TdbgError, OSError, ValueError):
            return None

    def parts(self, at: Located) -> list[tuple[RunTensors, Located]]:
        """Returns where a tensor is on this rank, and on those of its mates that have it; marks it as seen there."""
        found = [(self, at)]
        name, graph = self.flow.nodes.names[at.row], self.flow.nodes.graph_of(at.row).name
        for mate in self.mates:
            row = mate.flow.nodes.find(name, graph)
            if at.step not in mate.run.steps(mate.rank):
                continue
            there = mate.flow.located(at.step, row, at.side, at.slot, at.round)
            if there.index >= 0:
                found.append((mate, there))
                mate.seen.add((at.step, there.index))
        return found

    def nodes_like(self, nodes: NodeTable, row: int) -> Iterator[tuple[RunTensors, int]]:
        """Yields a node of this rank, and the same node of its mates."""
        yield self, row
        for mate in self.mates:
            there = mate.flow.nodes.find(nodes.names[row], nodes.graph_of(row).name)
            if there >= 0:
                yield mate, there

    def named(self) -> set[str]:
        names = self.flow.nodes.names
        return {names[row] for step in self.steps for row in self.dumped(step)}

    def not_seen(self, lead: RunTensors) -> list[str]:
        """Returns the nodes that have tensors on this rank, but not on the first rank of its group."""
        names, others, only = self.flow.nodes.names, lead.flow.nodes, lead.only
        found: dict[str, None] = {}
        for step in self.steps:
            table = self.flow.table(step)
            for index in np.flatnonzero((table.flags & int(TensorFlag.CONSTANT)) == 0).tolist():
                row = int(table.node[index])
                if (step, index) in self.seen or names[row] in found or names[row] in lead.others:
                    continue
                if only is not None and names[row] not in only:
                    continue
                there = others.find(names[row], self.flow.nodes.graph_of(row).name)
                if there < 0 or not len(lead.flow.table(step).of_node(there)):
                    found[names[row]] = None
        return list(found)

    def statistics(self, at: Located) -> tuple[TensorStats | None, TypeAndShape | None]:
        """Returns the recorded or measured statistics of a tensor, and (type, shape)."""
        table = self.flow.table(at.step)
        if self.is_stat_only(at):
            return table.recorded(at.index), table.recorded_meta(at.index)
        (row,) = self.run.measure((self.run.row_of(self.flow.key(at)),))
        try:
            meta = read_meta(table.spec(at.index))
        except CancelledError:
            raise
        except TdbgError:
            return row.stats, None
        return row.stats, (meta.dtype, meta.shape)

    def size(self, at: Located) -> float:
        """Returns the norm over finite elements."""
        key = (at.step, at.index)
        if key not in self.sizes:
            array = self.array(at)
            wide = np.zeros(0) if array is None else np.ravel(array).astype(np.float64)
            with np.errstate(over="ignore"):  # squares of float64 beyond 1e154
                self.sizes[key] = float(np.linalg.norm(wide[np.isfinite(wide)]))
        return self.sizes[key]

    def shapes(self, step: int, row: int) -> Shapes | None:
        table = self.flow.table(step)
        found = []
        for index in table.of_node(row).tolist():
            if int(table.side[index]) != int(Side.OUTPUT):
                continue
            try:
                meta = table.recorded_meta(index)
                if meta is None and not int(table.flags[index]) & TensorFlag.STAT_ONLY:
                    meta = "", read_meta(table.spec(index)).shape
            except CancelledError:
                raise
            except TdbgError:
                return None
            if meta is None:
                return None
            found.append(meta[1])
        return tuple(found) or None


Places = tuple[Located | None, Located | None]
"""Where a tensor is in both runs; None where it was not dumped."""


class Feed(NamedTuple):
    """The tensors that both nodes of a pair read at one input.

    Attributes:
        slot: of the first run.
        at: where the values are, in each run; None where not dumped.
        holders: the rows that made them, -1 where unknown.
        own: both nodes have an input file of their own.
    """

    slot: int
    at: Places
    holders: tuple[int, int]
    own: bool


class NodePair(NamedTuple):
    """A pair of nodes at a step.

    Attributes:
        rounds: of both runs.
        outputs: slot and places of each output that both have.
        missing: number of outputs that only one has.
        order: position in the execution order of the first run.
    """

    match: NodeMatch
    rounds: tuple[int, int]
    outputs: list[tuple[int, Located, Located]]
    missing: int
    feeds: list[Feed]
    order: float

    @property
    def a(self) -> int:
        return self.match.a

    @property
    def b(self) -> int:
        return self.match.b

    @property
    def only_output(self) -> tuple[Located, Located] | None:
        """The places of its output; None where there are several, or none."""
        return self.outputs[0][1:] if len(self.outputs) == 1 else None


Noise = Mapping[tuple[int, int, int], Distance]
"""Distances between the first run and its repeat, by rank, step and index in the table."""
PairKey = tuple[tuple[int, int], tuple[int, int]]


def key_of(one: Located, other: Located) -> PairKey:
    return (one.step, one.index), (other.step, other.index)


class Asked(NamedTuple):
    """The step to judge: the tensors of both runs, place, options and progress."""

    files: tuple[RunTensors, RunTensors]
    place: StepPlace
    options: Options
    progress: ProgressFn


class StepTensors:
    """The tensors of one step of one rank in both runs.

    ``ranks`` is how many ranks of one run hold what one rank of the other does; ``noise`` is by a repeat of the first
    run.
    """

    def __init__(self, asked: Asked, before: StepTensors | None) -> None:
        files, place, options, progress = asked
        self.files, self.place, self.options = files, place, options
        self.noise: Noise = {}
        self.progress = progress
        self.steps = place.step_a, place.step_b
        self.flows = files[0].flow, files[1].flow
        for flow, step in zip(self.flows, self.steps, strict=True):
            flow.table(step)
        self.sides = self._nodes(0), self._nodes(1)
        self.ranks = max(1 + len(of.mates) for of in files)
        self.joiner: Joiner = before.joiner if before is not None else Joiner(options.dims, options.tolerance)
        self.matching = self._matching(before)
        self.distances: dict[PairKey, Distance] = {}

    # -- which nodes -------------------------------------------------------------------------------

    def _nodes(self, side: int) -> NodesOfRun:
        files, step = self.files[side], self.steps[side]
        nodes, there = files.flow.nodes, set(files.dumped(step))
        unsure = int(NodeFlag.INFERRED | NodeFlag.FILE_ONLY | NodeFlag.STRUCTURAL)
        from_graph = np.flatnonzero((nodes.flags & unsure) == 0).tolist()
        rows = [row for row in there | set(from_graph) if nodes.category_of(row) is not Category.CONSTANT]
        rows = [row for row in rows if row in there or not nodes.orders_only(row)]
        scope = files.run.in_scope(files.rank)
        rows = [row for row in rows if (row >= len(scope) or scope[row]) and row not in files.elsewhere]
        if files.only is not None or files.others:
            only, others = files.only, files.others
            rows = [
                row for row in rows if nodes.names[row] not in others and (only is None or nodes.names[row] in only)
            ]
        return NodesOfRun(nodes, rows, lambda row: files.shapes(step, row), self.options.maps if side == 0 else None)

    def _matching(self, before: StepTensors | None) -> RunMatching:
        if before is not None and all(
            one.rows == other.rows and one.nodes is other.nodes
            for one, other in zip(self.sides, before.sides, strict=True)
        ):
            return before.matching
        return match_nodes(*self.sides, self.options.maps, ranks=self.ranks)

    @cached_property
    def containers(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        found = [containers(of, partial(self._is_call, side)) for side, of in enumerate(self.sides)]
        return found[0], found[1]

    @property
    def names(self) -> tuple[Sequence[str], Sequence[str]]:
        return self.flows[0].nodes.names, self.flows[1].nodes.names

    def is_parameter(self, row: int) -> bool:
        """Tells whether a row of the first run is a parameter."""
        return self.sides[0].is_parameter(row)

    def is_backward(self, row: int) -> bool:
        return self.sides[0].backward(row)

    def op_type(self, row: int) -> str:
        return self.flows[0].nodes.op_type(row)

    def call(self, side: int, row: int, of: int = 0) -> CallArguments | None:
        """The arguments of a node's call in a round."""
        files = self.files[side]
        return files.run.arguments(files.rank, self.steps[side], row, of)

    def calls(self, rows: Iterable[int], rounds: Sequence[int] = (0, 0)) -> list[CallArguments | None]:
        """The calls of a pair of nodes."""
        return [self.call(side, row, rounds[side]) for side, row in enumerate(rows)]

    def slots(self, side: int, row: int, of: int = 0) -> list[int]:
        return self.flows[side].slots(self.steps[side], row, Side.OUTPUT, of)

    def output(self, side: int, row: int, slot: int = 0, of: int = 0) -> Located:
        return self.flows[side].located(self.steps[side], row, Side.OUTPUT, slot, of)

    def outputs(self, side: int, row: int) -> list[Located]:
        return [self.output(side, row, slot) for slot in self.slots(side, row)]

    def arrays(self, at: Sequence[Located | None]) -> list[Array | None]:
        """The values of a pair of tensors."""
        return [files.array(each) for files, each in zip(self.files, at, strict=True)]

    def _is_call(self, side: int, row: int) -> bool:
        """Tells whether the recorder says that a node is the call of an operator, not of a module."""
        call = self.call(side, row)
        return call is not None and call.parameters is None and (call.aten or call.attributes is not None)

    def _dumped(self, side: int, row: int) -> bool:
        return bool(len(self.flows[side].table(self.steps[side]).of_node(row)))

    # -- what belongs together ---------------------------------------------------------------------

    def _entries(self) -> list[NodePair]:
        return [
            self._entry(match, rounds)
            for match in self.matching.matches
            for rounds in zip(self._rounds(0, match.a), self._rounds(1, match.b), strict=False)
        ]

    def _rounds(self, side: int, row: int) -> list[int]:
        table = self.flows[side].table(self.steps[side])
        index = table.of_node(row, every=True)
        return sorted(set(table.round[index].tolist())) or [0]

    def _entry(self, match: NodeMatch, rounds: tuple[int, int]) -> NodePair:
        slots = [
            {slot for slot in self.slots(side, row, of) if not is_scratch(self.flows[side].nodes.op_type(row), slot)}
            for side, (row, of) in enumerate(zip(match.rows, rounds, strict=True))
        ]
        outputs = [
            (slot, self.output(0, match.a, slot, rounds[0]), self.output(1, match.b, slot, rounds[1]))
            for slot in sorted(slots[0] & slots[1])
        ]
        feeds = [] if self.is_parameter(match.a) else list(self._feeds(match, rounds))
        order = float(self.flows[0].nodes.order[match.a])
        return NodePair(match, rounds, outputs, len(slots[0] ^ slots[1]), feeds, order)

    def _feeds(self, match: NodeMatch, rounds: tuple[int, int]) -> Iterator[Feed]:
        if match.rule is Rule.FUSED:
            yield from self._feeds_of_chain(match, rounds)
            return
        own = [
            set(flow.slots(step, row, Side.INPUT, of))
            for flow, step, row, of in zip(self.flows, self.steps, match.rows, rounds, strict=True)
        ]
        held = [flow.holders(row) for flow, row in zip(self.flows, match.rows, strict=True)]
        for slots in self._paired_slots(own, [[holder.row for holder in each] for each in held]):
            made = [each[slot] if 0 <= slot < len(each) else None for each, slot in zip(held, slots, strict=True)]
            holders = tuple(-1 if each is None else each.row for each in made)
            if any(self._is_scratch(side, each) for side, each in enumerate(made)):
                continue
            at = tuple(
                flow.locate_input(step, row, slot, of) if slot >= 0 else None
                for flow, step, row, slot, of in zip(self.flows, self.steps, match.rows, slots, rounds, strict=True)
            )
            if any(
                flow.is_constant(row) and other is None
                for flow, row, other in zip(self.flows, holders, at[::-1], strict=True)
            ):
                continue  # a flag that versions write down as an input, or the text of a constant
            if any(row >= 0 and flow.nodes.orders_only(row) for flow, row in zip(self.flows, holders, strict=True)):
                continue
            if min(holders) >= 0 and self._is_other_input(holders):
                at = at[0], None
            if any(slot in each for slot, each in zip(slots, own, strict=True)) or max(holders) >= 0:
                both = all(slot in each for slot, each in zip(slots, own, strict=True))
                yield Feed(max(slots[0], 0), (at[0], at[1]), (holders[0], holders[1]), both)

    def _is_scratch(self, side: int, made: Holder | None) -> bool:
        return made is not None and made.row >= 0 and is_scratch(self.flows[side].nodes.op_type(made.row), made.slot)

    def _is_other_input(self, holders: Sequence[int]) -> bool:
        """Tells whether a parameter of one run stands where the other run has something else."""
        return len({of.is_parameter(row) for of, row in zip(self.sides, holders, strict=True)}) > 1

    def _paired_slots(self, own: Sequence[set[int]], held: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Pairs inputs by slot, unless paired producers show that the nodes take them in another order."""
        slots = [sorted(each | set(range(len(rows)))) for each, rows in zip(own, held, strict=True)]
        same = sorted({*slots[0], *slots[1]})
        to_b = self.matching.to_b
        fed = {row: slot for slot, row in enumerate(held[1]) if row >= 0}
        known = [
            (slot, fed[to_b[row]])
            for slot, row in enumerate(held[0])
            if held[0].count(row) == 1 and to_b.get(row, -1) in fed and held[1].count(to_b[row]) == 1
        ]
        if all(one == other for one, other in known):
            return [(slot if slot in slots[0] else -1, slot if slot in slots[1] else -1) for slot in same]
        taken = [set(each) for each in zip(*known, strict=True)]
        left = [[slot for slot in each if slot not in of] for each, of in zip(slots, taken, strict=True)]
        most = max(map(len, left))
        rest = zip(*([*each, *[-1] * (most - len(each))] for each in left), strict=True)
        return [*known, *((one, other) for one, other in rest)]

    def _feeds_of_chain(self, match: NodeMatch, rounds: tuple[int, int]) -> Iterator[Feed]:
        """The inputs of a fused operator, and of the whole chain that the other run has for it."""
        rows = (match.a, *match.within_a), (match.b, *match.within_b)
        inputs: list[dict[int, Located | None]] = []
        for side, chain in enumerate(rows):
            found: dict[int, Located | None] = {}
            for row in chain:
                for slot, holder in enumerate(self.flows[side].holders(row)):
                    if holder.row >= 0 and holder.row not in chain and not self.flows[side].is_constant(holder.row):
                        found[holder.row] = self.flows[side].locate_input(self.steps[side], row, slot, rounds[side])
            inputs.append(found)
        for number, (row, at) in enumerate(sorted(inputs[0].items())):
            other = self.matching.to_b.get(row, -1)
            yield Feed(number, (at, inputs[1].get(other)), (row, other), at is not None and other in inputs[1])

    # -- measuring ---------------------------------------------------------------------------------

    def _measure(self, entries: Iterable[NodePair], before: StepTensors | None) -> None:
        wanted: dict[PairKey, tuple[Located, Located]] = {}
        for entry in entries:
            pairs = [(one, other) for _, one, other in entry.outputs]
            pairs += [(feed.at[0], feed.at[1]) for feed in entry.feeds if feed.at[0] and feed.at[1]]
            for one, other in pairs:
                wanted[key_of(one, other)] = (one, other)
        known = before.distances if before is not None else {}
        files: _Pairs = {}
        for key, (one, other) in wanted.items():
            if key in known:
                self.distances[key] = known[key]
            elif self.ranks > 1:
                self.distances[key] = self._of_parts(one, other)
            elif (specs := self._specs(one, other)) is not None:
                files[key] = specs
            else:
                self.distances[key] = self._by_statistics(one, other)
        run = self.files[0].run
        self.distances.update(measure(files, self.options.tolerance, run.workers, self.progress, run.contents.store))
        if self.noise:
            for key in wanted:
                floor = self.noise.get((self.files[0].rank, *key[0]))
                if floor is not None and key not in known:
                    self.distances[key] = above_noise(self.distances[key], floor)

    def _of_parts(self, one: Located, other: Located) -> Distance:
        places = self.files[0].parts(one), self.files[1].parts(other)
        if all(len(each) == 1 for each in places) and all(
            files.spec(at) is None for files, at in zip(self.files, (one, other), strict=True)
        ):
            return self._by_statistics(one, other)
        arrays = [[files.array(at) for files, at in each] for each in places]
        if any(array is None for each in arrays for array in each):
            return not_compared("not all of its parts on several ranks can be read")
        name = self.names[0][one.row]
        whole = [array for array in arrays[0] if array is not None], [array for array in arrays[1] if array is not None]
        backward, weight = self.is_backward(one.row), self.is_parameter(one.row)
        recorded = self._recorded(0, places[0], one), self._recorded(1, places[1], other)
        tensor = f"{name}:{one.side.name}{one.slot}"
        return self.joiner.compare(whole, tensor, name, backward=backward, weight=weight, recorded=recorded)

    def _recorded(self, side: int, places: Sequence[tuple[RunTensors, Located]], at: Located) -> RecordedParts:
        if len(places) < 2:
            return RecordedParts()
        told = self.files[side].flow.nodes.placements.get(at.row, "")
        return RecordedParts(
            [files.place for files, _ in places], read_dims(told) if told.startswith("dims ") else None
        )

    def _by_statistics(self, one: Located, other: Located) -> Distance:
        stats, metas, hashes, sums = [], [], [], False
        for files, at in zip(self.files, (one, other), strict=True):
            found, meta = files.statistics(at)
            stats.append(found)
            metas.append(meta)
            table = files.flow.table(at.step)
            hashes.append(table.hashed(at.index))
            sums = sums or table.hashes_are_sums
        return distance_of_statistics(stats[0], stats[1], (metas[0], metas[1]), (hashes[0], hashes[1]), sums=sums)

    def measured(self, one: Located, other: Located) -> Distance:
        """Measures the distance of two tensors that may not belong together, without keeping it."""
        if self.ranks > 1:
            return self._of_parts(one, other)
        specs = self._specs(one, other)
        return self._by_statistics(one, other) if specs is None else distance_of_files(specs, self.options.tolerance)

    def _specs(self, one: Located, other: Located) -> tuple[ReadSpec, ReadSpec] | None:
        """How to read two tensors; None unless both runs have values."""
        here, there = self.files[0].spec(one), self.files[1].spec(other)
        return None if here is None or there is None else (here, there)

    def distances_of(self, entry: NodePair) -> list[Distance]:
        """Returns the distances of the outputs that both runs dumped."""
        found = (self.distance(one, other) for _, one, other in entry.outputs)
        return [each for each in found if each is not None]

    def distance(self, one: Located | None, other: Located | None) -> Distance | None:
        """Returns a measured distance; None where one was not dumped."""
        if one is None or other is None or one.index < 0 or other.index < 0:
            return None
        return self.distances.get(key_of(one, other))


def measure(
    files: _Pairs,
    tolerance: Tolerance | None,
    workers: MeasureWorkers,
    progress: ProgressFn = no_progress,
    store: DiskCache | None = None,
) -> dict[PairKey, Distance]:
    """Compares pairs of files, with worker processes where there is much to read.

    ``store`` keeps distances until one of the files changes, also those finished before an interruption.
    """
    states = {key: tuple(map(_state, pair)) for key, pair in files.items()}
    digests = _digests(files, states, tolerance) if store is not None else {}
    payloads = store.get_many(KIND, digests.values()) if store is not None else {}
    known = {key: unpack_distance(payloads[digest]) for key, digest in digests.items() if digest in payloads}
    found = {key: distance for key, distance in known.items() if distance is not None}
    keys = [key for key in files if key not in found]
    sizes = [sum(size for size, _ in states[key]) for key in keys]
    executor = workers.executor(sum(sizes))
    fresh: dict[PairKey, Distance] = {}
    try:
        if executor is None:
            for number, key in enumerate(keys):
                tell = partial(progress, Progress(number, len(keys), "comparing"))
                if not number % 64 or sizes[number] > _BATCH:
                    tell()
                fresh[key] = distance_of_files(files[key], tolerance, tell)
            return {**found, **fresh}
        batches: list[list[PairKey]] = [[]]
        full = 0
        for key, size in zip(keys, sizes, strict=True):
            if full > _BATCH:
                batches.append([])
                full = 0
            batches[-1].append(key)
            full += size
        waiting = [
            (batch, executor.submit(distances_of_files, [files[key] for key in batch], tolerance)) for batch in batches
        ]
        for number, (batch, future) in enumerate(waiting):
            tell = partial(progress, Progress(number, len(waiting), "comparing"))
            tell()
            while not wait((future,), _TOLD_EVERY).done:
                tell()
            fresh.update(zip(batch, future.result(), strict=True))
        return {**found, **fresh}
    finally:  # what was finished before it was stopped, too; pairs that could not be compared are tried again next time
        if store is not None:
            kept = {key: each for key, each in fresh.items() if each.compared and key in digests}
            store.put_many(KIND, {digests[key]: pack_distance(each) for key, each in kept.items()})


def distances_of_files(
    pairs: Sequence[tuple[ReadSpec, ReadSpec]], tolerance: Tolerance | None = None
) -> list[Distance]:
    return [distance_of_files(pair, tolerance) for pair in pairs]


_State = tuple[int, int]
"""Size of a file in bytes, and ``opener.state_of``: 0 where it cannot tell changes."""
_Pairs = dict[PairKey, tuple[ReadSpec, ReadSpec]]


def _state(spec: ReadSpec) -> _State:
    try:
        status = opener.stat(spec.path)
    except OSError:
        return 0, 0
    return status.st_size, opener.state_of(status)


def _digests(
    files: _Pairs, states: Mapping[PairKey, Sequence[_State]], tolerance: Tolerance | None
) -> dict[PairKey, bytes]:
    """Returns the index keys of pairs, except for files whose changes would not be noticed."""
    real = cache(os.path.realpath)  # a file itself that is a link to another has another state
    sure = [key for key in files if all(state for _, state in states[key])]
    return {key: _digest(files[key], states[key], tolerance, real) for key in sure}


def _digest(
    pair: tuple[ReadSpec, ReadSpec],
    states: Sequence[_State],
    tolerance: Tolerance | None,
    real: Callable[[str], str],
) -> bytes:
    told = hashlib.blake2b(repr((_VERSION, states, tolerance)).encode(), digest_size=16)
    for spec in pair:
        directory, name = os.path.split(spec.path)
        told.update(os.fsencode(f"{real(directory)}/{name}") + b"\0")
        told.update(repr(spec.at("")).encode("utf-8", "surrogateescape") + b"\0")
    return told.digest()
