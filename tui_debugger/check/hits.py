"""The hits of a check as columns; a ``Hit`` object is made when it is shown or asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, overload

import numpy as np

from tui_debugger.arrays import Array, Int8, Int16, Int32, Int64, Integers, Mask, UInt8, UInt16
from tui_debugger.graph.table import NodeTable, holders
from tui_debugger.model import ErrorBits, Hit, Side, TensorKey, Verdict, Watchpoint, WatchResult
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.records import Record, Records, RecordState, holds_bad, holds_inf
from tui_debugger.watch.condition_table import CONDITIONS, NOT_FINITE
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, Facts

_TOGETHER: Final = 128
"""Hits that are evaluated together when one of them is looked at."""


def facts_of(nodes: NodeTable, at: tuple[int, int | Int64], node: Integers, side: Integers, slot: Integers) -> Facts:
    """The facts about tensors of a rank at one step, or at the step of each; an input gets its producer's facts."""
    held, is_input = node.astype(np.int64), side == int(Side.INPUT)
    found, _ = holders(nodes, held[is_input], slot[is_input].astype(np.int64))
    held[is_input] = np.where(found >= 0, found, held[is_input])
    return Facts(
        step=np.full(len(held), at[1], np.int64),
        rank=at[0],
        name=lambda: [nodes.names[row] for row in held.tolist()],
        type=lambda: [nodes.op_type(row) for row in held.tolist()],
        category=lambda: nodes.category[held].astype(np.int64),
    )


def overflowed(table: TensorTable, rows: Array) -> Mask:
    """Returns a mask of the rows whose operator overflowed on the device, as the device recorded."""
    marked: Mask = (table.flags[rows] & np.uint8(TensorFlag.OVERFLOWED)) != 0
    return marked


def overflowed_nodes(table: TensorTable, nodes: int) -> Mask | None:
    """Returns a mask of the nodes that overflowed on the device; None if the device does not record it."""
    if not table.tells_overflow:
        return None
    marked = np.zeros(nodes, np.bool_)
    rows = table.node[overflowed(table, np.arange(len(table)))]
    marked[rows[rows < nodes]] = True
    return marked


def overflow_text(table: TensorTable, index: int) -> str:
    return f"overflowed on the device: {', '.join(map(str, table.overflows(index)))}"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The number of tensors that a watchpoint could not judge, and their NaN, Inf or both."""

    tensors: int = 0
    error: ErrorBits = ErrorBits.NONE


class NodeName(NamedTuple):
    """A node's names, which are the same on every rank: graph, name, and path in the tree of the graph."""

    graph: str
    name: str
    path: str


class FoundByNode(NamedTuple):
    """Masks over node rows of a rank: findings and origins at one step, and at the other steps."""

    here: Mask
    origin_here: Mask
    elsewhere: Mask
    origin_elsewhere: Mask


@dataclass(frozen=True, eq=False)
class StepHits:
    """The hits of one step of one rank, in execution order.

    Attributes:
        order: the place of the tensor in the step; ``turn``: the run that wrote it, see ``model.turns``.
        verdicts: [watchpoint, hit]: a ``Verdict`` or ``SILENT``.
        origin: see ``Hit.origin``.
    """

    rank: int
    step: int
    nodes: NodeTable  # ``node`` holds its rows
    node: Int64
    side: UInt8
    slot: Int16
    order: Int32
    round: UInt16
    turn: Int64
    records: Records
    watchpoints: tuple[tuple[Watchpoint, bool], ...]  # with a flag: whether it judged initial values
    verdicts: Int8
    first: Mask  # whether no step came before
    origin: Mask
    overflows: Mapping[int, str] = field(default_factory=dict)  # the device's records, by hit
    designed: dict[int, frozenset[str]] = field(default_factory=dict)  # operator types that absorb an Inf, by hit
    _made: dict[int, Hit] = field(default_factory=dict, repr=False)
    _evaluated: dict[int, tuple[tuple[int, WatchResult], ...]] = field(default_factory=dict, init=False, repr=False)
    """(row of ``verdicts``, result) of the hits that were evaluated so far."""

    def __len__(self) -> int:
        return len(self.node)

    def get(self, index: int) -> Hit:
        """A hit; the same object every time."""
        hit = self._made.get(index)
        if hit is None:
            hit = self._made[index] = self.make(index)
        return hit

    def make(self, index: int) -> Hit:
        record = self.records.get(index)
        return Hit(
            key=self.key(index),
            row=int(self.node[index]),
            results=self.results_of(index),
            order=(int(self.turn[index]), int(self.order[index])),
            stats=record.stats if record is not None else None,
            origin=bool(self.origin[index]),
            detail=self._detail(index, record),
            overflow=self.overflows.get(index, ""),
        )

    def key(self, index: int) -> TensorKey:
        side, slot, number = Side(int(self.side[index])), int(self.slot[index]), int(self.round[index])
        return self.nodes.key(self.rank, self.step, int(self.node[index]), side, slot, round=number)

    def _detail(self, index: int, record: Record | None) -> str:
        if index in self.designed:
            return f"by design: absorbed by {', '.join(sorted(self.designed[index]))}"
        error = record.error if record is not None else ""
        return "; ".join(text for text in (error, self.overflows.get(index, "")) if text)

    def results_of(self, index: int) -> tuple[WatchResult, ...]:
        """The results of the watchpoints on a hit; an Inf that is by design is no finding."""
        results = self._results(index)
        if index not in self.designed:
            return results
        return tuple(
            replace(result, verdict=Verdict.BY_DESIGN)
            if CONDITIONS[result.condition].is_overflow or result.error & NOT_FINITE
            else result
            for result in results
        )

    def counted(self, verdict: Verdict) -> tuple[tuple[int, int], ...]:
        """(watchpoint id, hits with this verdict of it), by id, for counts above 0."""
        counts = zip(self.watchpoints, (self.verdicts == verdict).sum(axis=1).tolist(), strict=True)
        return tuple(sorted((watchpoint.id, count) for (watchpoint, _), count in counts if count))

    def bad(self) -> Mask:
        return holds_bad(self.records.rows)

    def not_finite(self) -> Int16:
        rows = self.records.rows
        bits: Int16 = np.where(rows["nan"] > 0, np.int16(ErrorBits.NAN), np.int16(0))
        bits[holds_inf(rows)] |= int(ErrorBits.INF)
        return bits

    def overflow(self) -> Mask:
        """Returns a mask of the hits about NaN or Inf, like ``is_overflow`` for one hit."""
        named = [CONDITIONS[each.condition].is_overflow for each, _ in self.watchpoints]
        told: Mask = (self.verdicts[np.array(named, np.bool_)] == Verdict.FINDING).any(axis=0)
        return told | (self.not_finite() > 0)

    def evaluate(self, indices: Sequence[int]) -> None:
        wanted = np.array([index for index in indices if index not in self._evaluated], np.int64)
        if not len(wanted):
            return
        found: list[list[tuple[int, WatchResult]]] = [[] for _ in range(len(wanted))]
        overflowed = np.array([index in self.overflows for index in wanted.tolist()], np.bool_)
        evaluator = ColumnEvaluator(self.records, wanted, lambda: self._facts(wanted), overflowed)
        for number in np.flatnonzero((self.verdicts[:, wanted] != SILENT).any(axis=1)).tolist():
            watchpoint, initial = self.watchpoints[number]
            results = evaluator.results(watchpoint, self.first[wanted] | initial, initial=initial)
            for at in np.flatnonzero(self.verdicts[number, wanted] != SILENT).tolist():
                result = results[at]
                if result is not None:
                    found[at].append((number, result))
        for index, each in zip(wanted.tolist(), found, strict=True):
            self._evaluated[index] = tuple(sorted(each, key=lambda pair: pair[1].watchpoint))

    def _facts(self, indices: Int64) -> Facts:
        pair = (self.rank, self.step)
        return facts_of(self.nodes, pair, self.node[indices], self.side[indices], self.slot[indices])

    def _results(self, index: int) -> tuple[WatchResult, ...]:
        if index not in self._evaluated:
            start = index - index % _TOGETHER
            self.evaluate(range(start, min(start + _TOGETHER, len(self))))
        results = []
        for number, result in self._evaluated[index]:  # the column knows what consumers change
            verdict = Verdict(int(self.verdicts[number, index]))
            results.append(result if result.verdict is verdict else replace(result, verdict=verdict))
        return tuple(results)


def is_overflow(hit: Hit) -> bool:
    """Tells whether a hit is about NaN or Inf; a running training may not have sent the statistics."""
    if hit.stats is not None:
        return hit.stats.bad
    return any(
        each.error & NOT_FINITE or (each.verdict is Verdict.FINDING and CONDITIONS[each.condition].is_overflow)
        for each in hit.results
    )


class HitList(Sequence[Hit]):
    """Hits of any number of steps, as a sequence.

    ``verdict`` is the strongest verdict of each hit: a blocked condition counts as a finding. ``node`` is its row in
    the node table of its rank. ``parts`` are the steps, each with all of its hits.
    """

    __slots__ = (
        "_across",
        "_at",
        "_found",
        "_found_by_node",
        "_names",
        "_part",
        "_places",
        "node",
        "origin",
        "parts",
        "rank",
        "step",
        "verdict",
    )

    def __init__(self, parts: Iterable[StepHits] = ()) -> None:
        self.parts = [part for part in parts if len(part)]
        part = np.repeat(np.arange(len(self.parts)), [len(each) for each in self.parts])
        at = _joined([np.arange(len(each)) for each in self.parts])
        order = _joined([each.order for each in self.parts])
        turn = _joined([each.turn for each in self.parts])
        ranks = np.array([each.rank for each in self.parts], np.int64)
        by = np.lexsort((ranks[part], order, turn))
        verdict = _joined([each.verdicts.max(axis=0, initial=SILENT) for each in self.parts])
        verdict[verdict == Verdict.BLOCKED] = Verdict.FINDING
        self._choose(part[by], at[by], verdict[by].astype(np.int8))

    def _choose(self, part: Int64, at: Int64, verdict: Int8) -> None:
        self._part, self._at, self.verdict = part, at, verdict
        starts = np.cumsum([0, *(len(each) for each in self.parts)])[:-1]
        self.node: Int64 = _joined([each.node for each in self.parts])[starts[part] + at]
        self.origin: Mask = _joined([each.origin for each in self.parts])[starts[part] + at].astype(np.bool_)
        self.rank: Int64 = np.array([each.rank for each in self.parts], np.int64)[part]
        self.step: Int64 = np.array([each.step for each in self.parts], np.int64)[part]
        self._names: tuple[Int64, tuple[NodeName, ...]] | None = None
        self._across: Int64 | None = None
        self._places: list[Int64] | None = None
        self._found: tuple[Mask, int] | None = None
        self._found_by_node: dict[tuple[int, int], Int64] = {}

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> HitList: ...
    def __getitem__(self, index: int | slice) -> Hit | HitList:
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        return self.parts[int(self._part[index])].get(int(self._at[index]))

    def __iter__(self) -> Iterator[Hit]:
        for part, at in zip(self._part.tolist(), self._at.tolist(), strict=True):
            yield self.parts[part].get(at)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (HitList, tuple, list)):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash either

    def __repr__(self) -> str:
        return f"HitList({len(self)} hits)"

    def chosen(self, which: Array) -> HitList:
        other = HitList()
        other.parts = self.parts
        other._choose(self._part[which], self._at[which], self.verdict[which])
        return other

    def at(self, rank: int, step: int | None) -> Mask:
        there = np.zeros(len(self), np.bool_)
        there[self.places_at(rank, step)] = True
        return there

    def places_at(self, rank: int, step: int | None) -> Int64:
        return _joined([places for part, places, _ in self.by_step() if (part.rank, part.step) == (rank, step)])

    def found_by_node(self, rank: int, step: int | None, nodes: int) -> FoundByNode:
        """Tells which of the first ``nodes`` node rows of a rank have findings: at a step, and at others."""
        here = self._count_found(self.places_at(rank, step), nodes)
        if (rank, nodes) not in self._found_by_node:
            self._found_by_node[rank, nodes] = self._count_found(np.flatnonzero(self.rank == rank), nodes)
        elsewhere = self._found_by_node[rank, nodes] - here
        return FoundByNode(*(here > 0), *(elsewhere > 0))

    def _count_found(self, places: Int64, nodes: int) -> Int64:
        found = places[self.found()[places] & (self.node[places] < nodes)]
        origins = found[self.origin[found]]
        return np.stack([np.bincount(self.node[each], minlength=nodes) for each in (found, origins)])

    def count_by_step(self, among: Mask) -> dict[int, int]:
        counts = Counter[int]()
        for part, places, _ in self.by_step():
            counts[part.step] += int(among[places].sum())
        return dict(+counts)

    def with_verdict(self, verdict: Verdict) -> HitList:
        """The hits whose strongest verdict is this one."""
        return self.chosen(self.verdict == verdict)

    def found(self, watchpoints: Collection[int] = ()) -> Mask:
        """Returns a mask of the findings, of the run or of some watchpoints (by id); every screen counts these.

        NaN and Inf that keep a watchpoint from judging are a finding of the run, but not of that watchpoint.
        """
        if not watchpoints:
            return self._every_found()[0]
        return self._any(Verdict.FINDING, lambda each: each.id in watchpoints)

    def not_judged(self, watchpoints: Collection[int] = ()) -> Mask:
        """Hits that NaN or Inf kept watchpoints (by id; none: all) from judging, without a finding of one."""

        def is_wanted(watchpoint: Watchpoint) -> bool:
            return not watchpoints or watchpoint.id in watchpoints

        return self._any(Verdict.BLOCKED, is_wanted) & ~self._any(Verdict.FINDING, is_wanted)

    @property
    def findings(self) -> int:
        return self._every_found()[1]

    def _every_found(self) -> tuple[Mask, int]:
        """Cached, because every key press asks for it."""
        if self._found is None:
            found: Mask = self.verdict == Verdict.FINDING
            found.flags.writeable = False
            self._found = found, int(found.sum())
        return self._found

    def with_any(self, verdict: Verdict) -> HitList:
        """The hits for which some watchpoint has this verdict."""
        return self.chosen(self._any(verdict, lambda _: True))

    def measured(self) -> Mask:
        return self._mask(lambda part, at: part.records.rows["state"][at] == RecordState.MEASURED)

    def found_by(self, conditions: Collection[str]) -> Mask:
        """Returns a mask of the findings of some conditions, including NaN and Inf that keep them from judging."""

        def is_wanted(watchpoint: Watchpoint) -> bool:
            return watchpoint.condition in conditions

        return self._any(Verdict.FINDING, is_wanted) | self._any(Verdict.BLOCKED, is_wanted)

    def by_step(self) -> Iterator[tuple[StepHits, Int64, Int64]]:
        """Each step, with the positions of its hits in this list and in the step."""
        if self._places is None:
            by_part = np.argsort(self._part, kind="stable")
            self._places = np.split(by_part, np.searchsorted(self._part[by_part], np.arange(1, len(self.parts))))
        for part, places in zip(self.parts, self._places, strict=False):
            yield part, places, self._at[places]

    def reported_by(self, watchpoints: Collection[int]) -> Mask:
        """Returns a mask of the hits on which one of these watchpoints (by id) has any verdict."""
        return self._among(lambda verdicts: verdicts != SILENT, lambda each: each.id in watchpoints)

    def of_graphs(self, names: Collection[str]) -> Mask:
        def is_wanted(part: StepHits, at: Int64) -> Mask:
            wanted = np.array([info.name in names for info in part.nodes.graphs], np.bool_)
            return wanted[part.nodes.graph[part.node[at]]]

        return self._mask(is_wanted)

    def overflow(self) -> Mask:
        return self._mask(lambda part, at: part.overflow()[at])

    def not_finite(self) -> ErrorBits:
        """NaN, Inf or both, over the hits about them; both where a training did not say."""
        found = 0
        for part, _, at in self.by_step():
            bits = part.not_finite()[at]
            told = (part.records.rows["state"][at] == RecordState.MEASURED) & (bits > 0)
            found |= int(np.bitwise_or.reduce(np.where(told, bits, int(NOT_FINITE)), initial=0))
        return ErrorBits(found)

    def elements(self) -> Int64:
        """The number of elements of each hit's tensor, 0 if unknown."""
        counts = np.zeros(len(self), np.int64)
        for part, places, at in self.by_step():
            counts[places] = np.maximum(part.records.rows["count"][at], 0)
        return counts

    def node_names(self) -> tuple[Int64, tuple[NodeName, ...]]:
        """For each hit the number of its node, which is the same on all ranks, and the nodes by these numbers."""
        if self._names is None:
            numbers = np.zeros(len(self), np.int64)
            known: dict[NodeName, int] = {}
            rows: dict[int, dict[int, int]] = {}
            for part, places, at in self.by_step():
                table = part.nodes
                of_row = rows.setdefault(id(table), {})
                present, inverse = np.unique(part.node[at], return_inverse=True)
                for row in present.tolist():
                    if row not in of_row:
                        name = NodeName(table.graph_of(row).name, table.names[row], table.paths[row])
                        of_row[row] = known.setdefault(name, len(known))
                numbers[places] = np.array([of_row[row] for row in present.tolist()], np.int64)[inverse]
            self._names = numbers, tuple(known)
        return self._names

    def across_ranks(self) -> Int64:
        """For each hit a rising number, equal on all ranks for the same tensor, step and verdicts."""
        if self._across is None:
            if len({part.rank for part in self.parts}) < 2:
                self._across = np.arange(len(self))
            else:
                self._across = _numbered([*self._tensor_columns(), *self._verdict_columns()], len(self))
        return self._across

    def _tensor_columns(self) -> Iterator[Array]:
        yield self.node_names()[0]
        yield self.step
        yield self.origin
        starts = np.cumsum([0, *(len(each) for each in self.parts)])[:-1]
        rows = starts[self._part] + self._at
        for columns in ("side", "slot", "round"):
            yield _joined([getattr(part, columns) for part in self.parts])[rows]

    def _verdict_columns(self) -> Iterator[Array]:
        steps = list(self.by_step())
        for number in sorted({each.id for part in self.parts for each, _ in part.watchpoints}):
            column = np.full(len(self), SILENT, np.int8)
            for part, places, at in steps:
                for row, (each, _) in enumerate(part.watchpoints):
                    if each.id == number:
                        column[places] = part.verdicts[row][at]
            yield column

    def find(self, key: TensorKey) -> int:
        """The position of a tensor's hit, or -1; with several rounds the given round, or the newest."""
        for number, part in enumerate(self.parts):
            if (part.rank, part.step) == (key.rank, key.step):
                row = part.nodes.find(key.node, key.graph)
                mine = (part.node == row) & (part.side == key.side) & (part.slot == key.slot)
                if key.round:
                    mine &= (part.round == key.round) | (part.round == 0)
                at = np.flatnonzero(mine)
                newest = at[np.argmax(part.round[at])] if len(at) else -1
                places = np.flatnonzero((self._part == number) & (self._at == newest))
                return int(places[0]) if len(places) else -1
        return -1

    def of_nodes(self, rows: Sequence[int]) -> HitList:
        return self.chosen(np.isin(self.node, rows))

    def tensors_found(self, rows: Sequence[int]) -> frozenset[TensorKey]:
        """The tensors of some node rows that have a finding, without evaluating it."""
        among = np.zeros(len(self), np.bool_)
        for row in set(rows):  # faster than np.isin for a few rows
            among |= self.node == row
        places = np.flatnonzero(among)
        places = places[self.verdict[places] == Verdict.FINDING]
        parts, at = self._part[places].tolist(), self._at[places].tolist()
        return frozenset(self.parts[part].key(index) for part, index in zip(parts, at, strict=True))

    def _any(self, verdict: Verdict, among: Callable[[Watchpoint], bool]) -> Mask:
        return self._among(lambda verdicts: verdicts == verdict, among)

    def _among(self, wanted: Callable[[Int8], Mask], among: Callable[[Watchpoint], bool]) -> Mask:
        """Selects the hits on which a given watchpoint came to a wanted verdict."""

        def is_wanted(part: StepHits, at: Int64) -> Mask:
            rows = [row for row, (each, _) in enumerate(part.watchpoints) if among(each)]
            found: Mask = np.any(wanted(part.verdicts[rows][:, at]), axis=0)
            return found

        return self._mask(is_wanted)

    def _mask(self, of: Callable[[StepHits, Int64], Mask]) -> Mask:
        """Asks ``of`` about the hits of each step, by their positions in it."""
        mask = np.zeros(len(self), np.bool_)
        for part, places, at in self.by_step():
            mask[places] = of(part, at)
        return mask

    def counts(self) -> Counter[tuple[int, Verdict]]:
        counts = Counter[tuple[int, Verdict]]()
        for number, part in enumerate(self.parts):
            verdicts = part.verdicts[:, self._at[self._part == number]]
            for (watchpoint, _), row in zip(part.watchpoints, verdicts, strict=True):
                for verdict in Verdict:
                    counts[watchpoint.id, verdict] += int((row == verdict).sum())
        return +counts

    def blocked(self) -> dict[int, Blocked]:
        """What NaN or Inf kept watchpoints from judging, by id; watchpoints that judged everything are left out."""
        tensors, errors = Counter[int](), dict[int, int]()
        for part, _, at in self.by_step():
            bits = part.not_finite()[at]
            for (watchpoint, _), row in zip(part.watchpoints, part.verdicts[:, at], strict=True):
                kept = bits[row == Verdict.BLOCKED]
                if len(kept):
                    tensors[watchpoint.id] += len(kept)
                    found = int(np.bitwise_or.reduce(kept))
                    errors[watchpoint.id] = errors.get(watchpoint.id, 0) | found
        return {number: Blocked(count, ErrorBits(errors[number])) for number, count in tensors.items()}

    @staticmethod
    def merged(lists: Iterable[HitList]) -> HitList:
        return HitList(part for each in lists for part in each.parts)


def _joined(columns: Sequence[Array]) -> Array:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


_CODES: Final = 1 << 62
"""Numbers below this fit into a column."""


def _numbered(columns: Iterable[Array], rows: int) -> Int64:
    """A number for each row that equal rows share; numbers rise in the order of first appearance."""
    codes, size = np.zeros(rows, np.int64), 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if size * (high - low + 1) >= _CODES:
            codes = np.unique(codes, return_inverse=True)[1]
            size = rows
        codes = codes * (high - low + 1) + (column.astype(np.int64) - low)
        size *= high - low + 1
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    places = np.empty(len(first), np.int64)
    places[np.argsort(first)] = np.arange(len(first))
    numbers: Int64 = places[inverse]
    return numbers
