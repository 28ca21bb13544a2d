"""A step of a rank of two runs: which nodes are the same, what goes into both, and how far apart all tensors are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array
from tui_debugger.check.flow import Flow, Located
from tui_debugger.diagnose.run import Run
from tui_debugger.diagnose.runs.distance import Distance, Tolerance, distance_of_files, distance_of_statistics
from tui_debugger.diagnose.runs.matching import Match, Matching, NodesOfRun, Rule, Shapes, containers, match_nodes
from tui_debugger.diagnose.runs.results import Options, Place
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Category, Progress, ProgressFn, ReadSpec, Side, TensorStats, no_progress
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.npy import open_array, read_meta
from tui_debugger.stats.workers import Workers

_BATCH: Final = 1 << 24
"""Bytes that are handed to a worker at once."""


class RunTensors:
    """Tensors of one rank of one run."""

    def __init__(self, run: Run, rank: int, steps: Iterable[int], progress: ProgressFn) -> None:
        self.run, self.rank = run, rank
        listed = run.flow(rank, progress)
        for step in steps:
            listed.table(step)  # which may bring nodes that nobody knew: the flow is looked at after that
        self.flow: Flow = run.flow(rank, progress)
        self.sizes: dict[tuple[int, int], float] = {}

    def spec(self, at: Located) -> ReadSpec | None:
        """Returns how to read a tensor; None without values."""
        table = self.flow.table(at.step)
        return None if int(table.flags[at.index]) & TensorFlag.STAT_ONLY else table.spec(at.index)

    def array(self, at: Located) -> Array | None:
        """Returns the values; None where they cannot be read."""
        spec = self.spec(at)
        try:
            return open_array(spec) if spec is not None else self.run.read(self.flow.key(at))
        except (TdbgError, OSError, ValueError):
            return None

    def statistics(self, at: Located) -> tuple[TensorStats | None, tuple[str, tuple[int, ...]] | None]:
        """Returns the statistics of a tensor, recorded or measured, and (type, shape); None where nobody knows."""
        table = self.flow.table(at.step)
        if int(table.flags[at.index]) & TensorFlag.STAT_ONLY:
            return table.recorded(at.index), table.recorded_meta(at.index)
        (row,) = self.run.measure((self.run.row_of(self.flow.key(at)),))
        try:
            meta = read_meta(table.spec(at.index))
        except TdbgError:
            return row.stats, None
        return row.stats, (meta.dtype, meta.shape)

    def size(self, at: Located) -> float:
        """Returns the norm of a tensor, over what is finite."""
        key = (at.step, at.index)
        if key not in self.sizes:
            array = self.array(at)
            wide = np.zeros(0) if array is None else np.ravel(array).astype(np.float64)
            self.sizes[key] = float(np.linalg.norm(wide[np.isfinite(wide)]))
        return self.sizes[key]

    def shapes(self, step: int, row: int) -> Shapes | None:
        """Returns the shapes of a node's dumped outputs."""
        table = self.flow.table(step)
        found = []
        for index in table.of_node(row).tolist():
            if int(table.side[index]) != int(Side.OUTPUT):
                continue
            try:
                meta = table.recorded_meta(index)
                if meta is None and not int(table.flags[index]) & TensorFlag.STAT_ONLY:
                    meta = "", read_meta(table.spec(index)).shape
            except TdbgError:
                return None
            if meta is None:
                return None
            found.append(meta[1])
        return tuple(found) or None


class Feed(NamedTuple):
    """What goes into both nodes of a pair at one input.

    Attributes:
        slot: its number in the first run.
        at: where its values stand, in each run; None where they were not dumped.
        holders: the rows that made them, -1 where that is not known.
        own: whether both have a file of their own for it.
    """

    slot: int
    at: tuple[Located | None, Located | None]
    holders: tuple[int, int]
    own: bool


class Entry(NamedTuple):
    """A pair of nodes at a step.

    Attributes:
        match: the nodes.
        rounds: in which they ran.
        outputs: slot and place of every output that both have.
        missing: how many outputs only one of them has.
        feeds: what goes into both.
        order: position in the execution order of the first run.
    """

    match: Match
    rounds: tuple[int, int]
    outputs: list[tuple[int, Located, Located]]
    missing: int
    feeds: list[Feed]
    order: float


PairKey = tuple[tuple[int, int], tuple[int, int]]


class StepTensors:
    """The tensors of one step of one rank of both runs.

    Attributes:
        files: the tensors of each run.
        place: which step.
        flows: what feeds what, in each run.
        sides: the nodes of each run.
        matching: which nodes are the same.
        distances: of all pairs of tensors that were compared.
    """

    def __init__(
        self,
        files: tuple[RunTensors, RunTensors],
        place: Place,
        options: Options,
        before: StepTensors | None,
        progress: ProgressFn,
    ) -> None:
        self.files, self.place, self.options = files, place, options
        self.progress = progress
        self.steps = place.step_a, place.step_b
        self.flows = files[0].flow, files[1].flow
        for flow, step in zip(self.flows, self.steps, strict=True):
            flow.table(step)
        self.sides = self._nodes(0), self._nodes(1)
        self.matching = self._matching(before)
        self.distances: dict[PairKey, Distance] = {}

    # -- which nodes -------------------------------------------------------------------------------

    def _nodes(self, side: int) -> NodesOfRun:
        files, step = self.files[side], self.steps[side]
        nodes, table = files.flow.nodes, files.flow.table(step)
        there = set(np.unique(table.node[(table.flags & int(TensorFlag.CONSTANT)) == 0]).tolist())
        unsure = int(NodeFlag.INFERRED | NodeFlag.FILE_ONLY | NodeFlag.STRUCTURAL)
        from_graph = np.flatnonzero((nodes.flags & unsure) == 0).tolist()
        rows = [row for row in there | set(from_graph) if nodes.category_of(row) is not Category.CONSTANT]
        rows = [row for row in rows if row in there or not nodes.orders_only(row)]
        scope = files.run.in_scope(files.rank)
        rows = [row for row in rows if row >= len(scope) or scope[row]]
        return NodesOfRun(nodes, rows, lambda row: files.shapes(step, row), self.options.maps if side == 0 else None)

    def _matching(self, before: StepTensors | None) -> Matching:
        if before is not None and all(
            one.rows == other.rows and one.nodes is other.nodes
            for one, other in zip(self.sides, before.sides, strict=True)
        ):
            return before.matching
        return match_nodes(*self.sides, self.options.maps)

    @cached_property
    def containers(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Modules with what runs inside of them, for each run."""
        return containers(self.sides[0]), containers(self.sides[1])

    def _dumped(self, side: int, row: int) -> bool:
        return bool(len(self.flows[side].table(self.steps[side]).of_node(row)))

    # -- what belongs together ---------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        return [
            self._entry(match, rounds)
            for match in self.matching.matches
            for rounds in zip(self._rounds(0, match.a), self._rounds(1, match.b), strict=False)
        ]

    def _rounds(self, side: int, row: int) -> list[int]:
        table = self.flows[side].table(self.steps[side])
        index = table.of_node(row, every=True)
        return sorted(set(table.round[index].tolist())) or [0]

    def _entry(self, match: Match, rounds: tuple[int, int]) -> Entry:
        slots = [
            set(flow.slots(step, row, Side.OUTPUT, of))
            for flow, step, row, of in zip(self.flows, self.steps, (match.a, match.b), rounds, strict=True)
        ]
        outputs = [
            (
                slot,
                self.flows[0].located(self.steps[0], match.a, Side.OUTPUT, slot, rounds[0]),
                self.flows[1].located(self.steps[1], match.b, Side.OUTPUT, slot, rounds[1]),
            )
            for slot in sorted(slots[0] & slots[1])
        ]
        feeds = [] if self.sides[0].is_parameter(match.a) else list(self._feeds(match, rounds))
        order = float(self.flows[0].nodes.order[match.a])
        return Entry(match, rounds, outputs, len(slots[0] ^ slots[1]), feeds, order)

    def _feeds(self, match: Match, rounds: tuple[int, int]) -> Iterator[Feed]:
        if match.rule is Rule.FUSED:
            yield from self._feeds_of_chain(match, rounds)
            return
        own = [
            set(flow.slots(step, row, Side.INPUT, of))
            for flow, step, row, of in zip(self.flows, self.steps, (match.a, match.b), rounds, strict=True)
        ]
        held = [flow.holders(row) for flow, row in zip(self.flows, (match.a, match.b), strict=True)]
        for slots in self._paired_slots(own, [[holder.row for holder in each] for each in held]):
            holders = tuple(
                each[slot].row if 0 <= slot < len(each) else -1 for each, slot in zip(held, slots, strict=True)
            )
            at = tuple(
                flow.locate_input(step, row, slot, of) if slot >= 0 else None
                for flow, step, row, slot, of in zip(
                    self.flows, self.steps, (match.a, match.b), slots, rounds, strict=True
                )
            )
            if any(
                flow.is_constant(row) and other is None
                for flow, row, other in zip(self.flows, holders, at[::-1], strict=True)
            ):
                continue  # a flag that versions write down as an input, or the text of a constant
            if any(row >= 0 and flow.nodes.orders_only(row) for flow, row in zip(self.flows, holders, strict=True)):
                continue
            if any(slot in each for slot, each in zip(slots, own, strict=True)) or max(holders) >= 0:
                both = all(slot in each for slot, each in zip(slots, own, strict=True))
                yield Feed(max(slots[0], 0), (at[0], at[1]), (holders[0], holders[1]), both)

    def _paired_slots(self, own: Sequence[set[int]], held: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Returns which inputs are the same: those of one number, unless the nodes take them in another order."""
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

    def _feeds_of_chain(self, match: Match, rounds: tuple[int, int]) -> Iterator[Feed]:
        """The inputs of a fused operator, by what feeds the chain that the other run has in its stead."""
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

    def _measure(self, entries: Iterable[Entry], before: StepTensors | None) -> None:
        wanted: dict[PairKey, tuple[Located, Located]] = {}
        for entry in entries:
            pairs = [(one, other) for _, one, other in entry.outputs]
            pairs += [(feed.at[0], feed.at[1]) for feed in entry.feeds if feed.at[0] and feed.at[1]]
            for one, other in pairs:
                wanted[(one.step, one.index), (other.step, other.index)] = (one, other)
        known = before.distances if before is not None else {}
        files: dict[PairKey, tuple[ReadSpec, ReadSpec]] = {}
        for key, (one, other) in wanted.items():
            if key in known:
                self.distances[key] = known[key]
                continue
            specs = self.files[0].spec(one), self.files[1].spec(other)
            if specs[0] is not None and specs[1] is not None:
                files[key] = (specs[0], specs[1])
            else:
                self.distances[key] = self._by_statistics(one, other)
        self.distances.update(measure(files, self.options.tolerance, self.files[0].run.workers, self.progress))

    def _by_statistics(self, one: Located, other: Located) -> Distance:
        stats, metas, hashes = [], [], []
        for files, at in zip(self.files, (one, other), strict=True):
            found, meta = files.statistics(at)
            stats.append(found)
            metas.append(meta)
            hashes.append(files.flow.table(at.step).hashed(at.index))
        return distance_of_statistics(stats[0], stats[1], (metas[0], metas[1]), (hashes[0], hashes[1]))

    def distance(self, one: Located | None, other: Located | None) -> Distance | None:
        """Returns the distance of two tensors; None where one was not dumped."""
        if one is None or other is None or one.index < 0 or other.index < 0:
            return None
        return self.distances.get(((one.step, one.index), (other.step, other.index)))


def measure(
    files: dict[PairKey, tuple[ReadSpec, ReadSpec]],
    tolerance: Tolerance | None,
    workers: Workers,
    progress: ProgressFn = no_progress,
) -> dict[PairKey, Distance]:
    """Compares pairs of files, each file once; other processes help where there is much to read."""
    keys = list(files)
    sizes = [_bytes(files[key]) for key in keys]
    executor = workers.executor(sum(sizes))
    found: dict[PairKey, Distance] = {}
    if executor is None:
        for number, key in enumerate(keys):
            if not number % 64:
                progress(Progress(number, len(keys), "comparing"))
            found[key] = distance_of_files(files[key], tolerance)
        return found
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
        progress(Progress(number, len(waiting), "comparing"))
        found.update(zip(batch, future.result(), strict=True))
    return found


def distances_of_files(
    pairs: Sequence[tuple[ReadSpec, ReadSpec]], tolerance: Tolerance | None = None
) -> list[Distance]:
    """``distance_of_files`` of several pairs, for another process."""
    return [distance_of_files(pair, tolerance) for pair in pairs]


def _bytes(pair: tuple[ReadSpec, ReadSpec]) -> int:
    total = 0
    for spec in pair:
        with contextlib.suppress(OSError):
            total += opener.stat(spec.path).st_size
    return total
