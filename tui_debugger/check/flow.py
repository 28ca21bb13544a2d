"""The data flow of a rank: which tensor feeds an input, and which tensor holds the previous value.

An input of a node is its own dumped input file, if there is one. Else it is the output of its producer as it was when
the node ran, or for a parameter its *previous* value, because parameter files are written after the optimizer ran.
The previous run is the last earlier run of the same root graph. For a weight that several root graphs share (training
and evaluation, generator and discriminator), it is the last earlier run of any of them: the weight is one tensor in
memory, but a separate parameter in every graph.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64, Integers, Mask
from tui_debugger.errors import RenumberedError, TdbgError, UnreadableTensorError
from tui_debugger.graph.categories import changed_by_modules, in_place_slots, rates
from tui_debugger.graph.table import NodeTable, real_consumers, real_inputs
from tui_debugger.model import (
    PARAMETERS,
    TRAINABLE,
    Category,
    GraphRun,
    ProgressFn,
    Side,
    TensorKey,
    no_progress,
    turn_of,
)
from tui_debugger.sources.base import Source, TensorFlag, TensorTable, tensor_keys
from tui_debugger.stats.npy import TensorFile, open_array

_NEAREST: Final = 16
"""Steps that are looked at to learn which learning rates a run records."""
_ARGUMENT: Final = "▸"
"""Marks a parameter of a sub graph that stands for a parameter of its caller."""
_MOST_BYTES: Final = 1 << 24
"""Larger tensors are not read only to find out whether two names mean one weight."""
_CHANGED: Final = TRAINABLE | {Category.OPTIMIZER_STATE}


class SharedWeights:
    """The parameters of different root graphs that may be one weight, which some graph updates.

    Attributes:
        groups: for each row the rows of the same name; parameters without such a partner are left out.
        updated: rows that an optimizer of their own graph updates.
        likely: rows whose names differ by a prefix, such as an optimizer's: they need equal values to count as one.
        proven: whether two rows of a group are one weight, by (rank, row, row), as far as it was found out.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.groups: dict[int, tuple[int, ...]] = {}
        self.updated: set[int] = set()
        self.likely: set[int] = set()
        self.proven: dict[tuple[int, int, int], bool] = {}
        roots = [info.root_id for info in nodes.graphs]
        if len(set(roots)) < 2:
            return
        named = defaultdict[str, list[int]](list)
        for row in np.flatnonzero(nodes.are_parameters(np.arange(len(nodes)))).tolist():
            named[nodes.names[row].removeprefix(_ARGUMENT)].append(row)
        for rows in named.values():
            self._add(nodes, rows)
        for name, rows in named.items():
            partners = named.get(name.partition(".")[2], ())
            both = [row for row in (*rows, *partners) if row not in self.groups]
            if partners and len({nodes.category_of(row) for row in both}) == 1 and self._add(nodes, both):
                self.likely.update(both)

    def _add(self, nodes: NodeTable, rows: Sequence[int]) -> bool:
        if len({nodes.graph_of(row).root_id for row in rows}) < 2:
            return False
        if not any(nodes.category_of(row) in _CHANGED for row in rows):
            return False  # a graph input such as the data: every graph has its own
        updated = {row for row in rows if is_updated(nodes, row)}
        if updated:
            self.updated |= updated
            self.groups.update(dict.fromkeys(rows, tuple(rows)))
        return bool(updated)


def is_updated(nodes: NodeTable, row: int) -> bool:
    return any(
        slot in in_place_slots(nodes.op_type(node), len(real_inputs(nodes, node)))
        for node, slot in real_consumers(nodes, row)
    )


def may_be_one(one: tuple[TensorTable, int], other: tuple[TensorTable, int], *, equal: bool) -> bool:
    """Tells whether two files can be of one weight; ``equal`` compares values. Unreadable files disprove nothing."""
    metas = [_meta(*place) for place in (one, other)]
    if metas[0] is None or metas[1] is None:
        return True
    if metas[0] != metas[1]:
        return False
    if not equal or any(int(table.flags[at]) & TensorFlag.STAT_ONLY for table, at in (one, other)):
        return True
    try:
        values = [open_array(table.spec(at)) for table, at in (one, other)]
    except (TdbgError, OSError, ValueError):
        return True
    if values[0].nbytes > _MOST_BYTES:
        return True
    return values[0].tobytes() == values[1].tobytes()


def _meta(table: TensorTable, index: int) -> tuple[str, tuple[int, ...]] | None:
    if int(table.flags[index]) & TensorFlag.STAT_ONLY:
        return table.recorded_meta(index)
    try:
        with TensorFile(table.spec(index)) as file:
            return file.layout.meta.dtype, file.layout.meta.shape
    except (TdbgError, OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Holder:
    """The tensor that feeds an input slot: an output of the node that really made it; row -1 = unknown."""

    row: int
    slot: int


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor of some step: index into that step's table, -1 when it has no file; ``round`` as in ``TensorKey``."""

    step: int
    index: int
    row: int
    side: Side
    slot: int
    round: int = 0


def holds_tensors(table: TensorTable) -> bool:
    """Tells whether a step has a tensor besides the constants, which are in every step."""
    return bool(((table.flags & int(TensorFlag.CONSTANT)) == 0).any())


class DataFlow:
    """The data flow of one rank: nodes plus the files of its steps, as they were when first looked at.

    Make one per question: a refresh does not change what it has returned, so that rows and indices fit together. Not
    for use from several threads at once. ``nodes`` grows when a step has files of unknown nodes.
    """

    def __init__(self, source: Source, rank: int, progress: ProgressFn = no_progress, *, sharing: bool = True) -> None:
        """With ``sharing``, a weight that several root graphs use is one weight; else every graph has its own."""
        self.rank = rank
        self.nodes: NodeTable = source.nodes(rank, progress)
        self._source = source
        self._progress = progress
        self._sharing = sharing
        self._tables: dict[int, TensorTable] = {}
        self._previous: dict[tuple[int, int, int], tuple[int, int] | None] = {}
        self._holders: dict[int, list[Holder]] = {}
        self._history: _Runs | None = None
        self._mates: dict[int, tuple[int, ...]] = {}
        self._before_shared: dict[tuple[int, int, int], Located | None] = {}

    def table(self, step: int) -> TensorTable:
        """The files of a step; RenumberedError when the nodes were read anew since this object was made."""
        table = self._tables.get(step)
        if table is None:
            table = self._source.tensors(self.rank, step, self._progress)
            nodes = self._source.nodes(self.rank)
            if nodes.lineage is not self.nodes.lineage:
                raise RenumberedError(
                    "the graph of this rank was just read anew", where=f"rank {self.rank}", hint="try again"
                )
            self.nodes = nodes
            self._tables[step] = table
        return table

    # -- one tensor ----------------------------------------------------------------------------------

    def located(self, step: int, row: int, side: Side, slot: int, round: int = 0) -> Located:  # noqa: A002
        """Finds a tensor and the round of its file; a tensor that was written once belongs to every round."""
        table = self.table(step)
        index = table.find(row, side, slot, round) if row >= 0 else -1
        if index < 0 and round and row >= 0:
            index = table.find(row, side, slot)
            index = index if index >= 0 and not int(table.round[index]) else -1
        return Located(step, index, row, side, slot, int(table.round[index]) if index >= 0 else round)

    def slots(self, step: int, row: int, side: Side, round: int = 0) -> list[int]:  # noqa: A002
        table = self.table(step)
        rows = table.of_node(row, every=bool(round))
        rows = rows[(table.side[rows] == int(side)) & (not round or np.isin(table.round[rows], (0, round)))]
        return sorted({int(slot) for slot in table.slot[rows]})

    def row_of(self, key: TensorKey) -> int:
        """The row of a tensor's node; UnreadableTensorError where the run has no such node."""
        row = self.nodes.find(key.node, key.graph)
        if row < 0:
            where = f"rank {key.rank} {key.node}"
            raise UnreadableTensorError("the run has no such node", where=where, hint="`tdbg ls` lists the nodes")
        return row

    def written(self, step: int, row: int, side: Side, slot: int) -> list[Located]:
        """A tensor in each run of a step that wrote it."""
        table = self.table(step)
        there = table.of_node(row, every=True)
        there = there[(table.side[there] == int(side)) & (table.slot[there] == slot)]
        return [Located(step, index, row, side, slot, int(table.round[index])) for index in there.tolist()]

    def key(self, at: Located) -> TensorKey:
        return self.nodes.key(self.rank, at.step, at.row, at.side, at.slot, round=at.round)

    # -- the order of runs ---------------------------------------------------------------------------

    def previous_run(self, row: int, step: int, round: int = 0) -> tuple[int, int] | None:  # noqa: A002 - see TensorKey
        """(step, round) of the previous run of the node's own root graph: see ``Source.previous_run``."""
        return self._run_before(self.nodes.graph_of(row).root_id, step, round)

    def _run_before(self, root: int, step: int, round: int) -> tuple[int, int] | None:  # noqa: A002
        key = (root, step, round)
        if key not in self._previous:
            self._previous[key] = self._source.previous_run(self.rank, *key)
        return self._previous[key]

    def previous_step(self, row: int, step: int, round: int = 0) -> int | None:  # noqa: A002
        """The step of ``before``, which is ``step`` itself when that holds several runs."""
        if self.shared(row):
            at = self.before(row, Side.OUTPUT, 0, step, round)
            return None if at is None else at.step
        before = self.previous_run(row, step, round)
        return before[0] if before is not None else None

    def turn(self, row: int, step: int, round: int = 0) -> int:  # noqa: A002
        """The turn of the run in which a node's tensor was written: see ``model.turns``."""
        return self._runs.turn(self.nodes.graph_of(row).root_id, step, round)

    def turns(self, step: int, node: Int64, round: Integers) -> Int64:  # noqa: A002
        found = np.empty(len(node), np.int64)
        for of, root, number in self._by_run(node, round):
            found[of] = self._runs.turn(root, step, number)
        return found

    def runs_of(self, row: int) -> list[tuple[int, int]]:
        root = self.nodes.graph_of(row).root_id
        found = [(run.step, run.round) for run in self._runs.dumped if run.root_graph == root]
        return found or [(step, 0) for step in self._source.steps(self.rank)]

    @property
    def _runs(self) -> _Runs:
        if self._history is None:
            self._history = _Runs(self._source.history(self.rank))
        return self._history

    def _by_run(self, node: Int64, round: Integers) -> list[tuple[Int64, int, int]]:  # noqa: A002
        """Groups tensors by the run that wrote them: (places, root graph, round)."""
        if not len(node):
            return []
        roots = np.array([info.root_id for info in self.nodes.graphs], np.int64)[self.nodes.graph[node]]
        both = roots << 16 | round.astype(np.int64)
        if (both == both[0]).all():
            return [(np.arange(len(node)), int(roots[0]), int(round[0]))]
        return [(np.flatnonzero(both == each), each >> 16, each & 0xFFFF) for each in np.unique(both).tolist()]

    # -- what was before -----------------------------------------------------------------------------

    def before(self, row: int, side: Side, slot: int, step: int, round: int = 0) -> Located | None:  # noqa: A002
        """Where the previous value of a tensor stands (index -1: not dumped); None when no run came before."""
        if side is Side.OUTPUT and self.shared(row):
            return self._before_of_shared(row, slot, step, round)
        run = self.previous_run(row, step, round)
        if run is None:
            return None
        at = self.located(run[0], row, side, slot, run[1])
        own = self.table(step).find(row, side, slot, round) if at.step == step and at.index >= 0 else -1
        return Located(at.step, -1, row, side, slot, run[1]) if own >= 0 and own == at.index else at

    def befores(
        self,
        step: int,
        node: Int64,
        side: Integers,
        slot: Integers,
        round: Integers,  # noqa: A002
    ) -> tuple[Int64, Int64]:
        """``before`` of several tensors of a step, as columns of step and index; -1, -1 without previous value."""
        before, index = np.full(len(node), -1, np.int64), np.full(len(node), -1, np.int64)
        for of, root, number in self._by_run(node, round):
            run = self._run_before(root, step, number)
            if run is None:
                continue
            found = of_round(self.table(run[0]), node[of], side[of], slot[of], run[1])
            if run[0] == step:
                found = np.where(found == of_round(self.table(step), node[of], side[of], slot[of], number), -1, found)
            before[of] = np.where(found >= 0, run[0], -1)
            index[of] = found
        for place in self._are_shared(node, side):
            at = self._before_of_shared(int(node[place]), int(slot[place]), step, int(round[place]))
            known = at is not None and at.index >= 0
            before[place], index[place] = (at.step, at.index) if at is not None and known else (-1, -1)
        return before, index

    def starts(
        self,
        step: int,
        node: Int64,
        side: Integers,
        round: Integers,  # noqa: A002
    ) -> Mask:
        found = np.zeros(len(node), np.bool_)
        for of, root, number in self._by_run(node, round):
            found[of] = self._run_before(root, step, number) is None
        for place in self._are_shared(node, side):
            found[place] = self._before_of_shared(int(node[place]), 0, step, int(round[place])) is None
        return found

    def is_left_by(self, at: Located, row: int, step: int, round: int = 0) -> bool:  # noqa: A002
        """Tells whether a run found a parameter at its ``before`` value ``at``: every run in between was dumped."""
        roots = {self.nodes.graph_of(each).root_id for each in (row, at.row, *self.shared(row))}
        here = self.turn(row, step, round)
        return self._runs.is_whole(roots, (at.step, self.turn(at.row, at.step, at.round)), (step, here))

    def is_first(self, at: Located) -> bool:
        if at.side is Side.OUTPUT and self.shared(at.row):
            return self.before(at.row, at.side, at.slot, at.step, at.round) is None
        return self.previous_run(at.row, at.step, at.round) is None

    # -- weights that several graphs use -------------------------------------------------------------

    def shared(self, row: int) -> tuple[int, ...]:
        """The rows of the same weight in all root graphs, including ``row``; empty for a weight of one graph."""
        if not self._sharing or row < 0:
            return ()
        found = self._mates.get(row)
        if found is None:
            weights = self.nodes.memo(SharedWeights)
            group = weights.groups.get(row)
            if group is None:
                return ()
            rows = tuple(each for each in group if each == row or self._is_same(weights, row, each))
            roots = {self.nodes.graph_of(each).root_id for each in rows}
            found = self._mates[row] = rows if len(roots) > 1 else ()
        return found

    def updated_elsewhere(self, row: int) -> bool:
        """Tells whether only other root graphs update a weight: in its own graph it shows the values they left."""
        rows = self.shared(row)
        if not rows:
            return False
        updated = self.nodes.memo(SharedWeights).updated
        root = self.nodes.graph_of(row).root_id
        own = any(each in updated for each in rows if self.nodes.graph_of(each).root_id == root)
        return not own and any(each in updated for each in rows)

    def _are_shared(self, node: Int64, side: Integers) -> list[int]:
        groups = self.nodes.memo(SharedWeights).groups if self._sharing else {}
        if not groups:
            return []
        places = np.flatnonzero((side == int(Side.OUTPUT)) & np.isin(node, list(groups))).tolist()
        return [place for place in places if self.shared(int(node[place]))]

    def _is_same(self, weights: SharedWeights, one: int, other: int) -> bool:
        pair = (self.rank, min(one, other), max(one, other))
        if pair not in weights.proven:
            weights.proven[pair] = self._compared(weights, *pair[1:])
        return weights.proven[pair]

    def _compared(self, weights: SharedWeights, one: int, other: int) -> bool:
        """Compares the two parameters where one graph ran right after the other and only reads the weight."""
        rows = {self.nodes.graph_of(row).root_id: row for row in (one, other)}
        roots = {self.nodes.graph_of(row).root_id for row in weights.groups[one]}
        runs = [run for run in self._runs.dumped if run.root_graph in roots]
        compared = proven = False
        for earlier, later in pairwise(runs):
            first, second = rows.get(earlier.root_graph), rows.get(later.root_graph)
            if first is None or second is None or first == second:
                continue
            only_reads = second not in weights.updated
            if compared and not only_reads:
                continue
            there = self.located(earlier.step, first, Side.OUTPUT, 0, earlier.round)
            here = self.located(later.step, second, Side.OUTPUT, 0, later.round)
            if there.index < 0 or here.index < 0:
                continue
            files = (self.table(there.step), there.index), (self.table(here.step), here.index)
            if not may_be_one(*files, equal=only_reads):
                return False
            compared, proven = True, proven or only_reads
            if only_reads or weights.updated.issuperset((one, other)):
                break
        return proven or one not in weights.likely

    def _before_of_shared(self, row: int, slot: int, step: int, round: int) -> Located | None:  # noqa: A002
        key = (row, step, round)
        if key not in self._before_shared:
            self._before_shared[key] = self._last_writing(row, step, round)
        at = self._before_shared[key]
        return at if at is None or at.slot == slot else Located(at.step, -1, at.row, at.side, slot, at.round)

    def _last_writing(self, row: int, step: int, round: int) -> Located | None:  # noqa: A002
        """A shared weight as the last earlier run of any graph left it.

        The parameters of a step may be written after all of its runs: a file that was written after this run began does
        not show the previous value.
        """
        of_root: dict[int, list[int]] = {}
        for each in self.shared(row):
            of_root.setdefault(self.nodes.graph_of(each).root_id, []).append(each)
        updated = self.nodes.memo(SharedWeights).updated
        own, root = self.located(step, row, Side.OUTPUT, 0, round), self.nodes.graph_of(row).root_id
        began = self._runs.began(root, step, round)
        for run in self._runs.earlier(root, step, round):
            rows = of_root.get(run.root_graph)
            if rows is None:
                continue
            places = [self.located(run.step, each, Side.OUTPUT, 0, run.round) for each in rows]
            found = next((at for at in places if at.index >= 0 and at != own and self._is_before(at, began)), None)
            if found is not None:
                return found
            if any(each in updated for each in rows):  # this run changed it without a dump: an older value is wrong
                return replace(places[0], index=-1)
        return None

    def _is_before(self, at: Located, began: int) -> bool:
        written = int(self.table(at.step).timestamp[at.index])
        return not began or not written or written < began

    # -- what goes into a node -----------------------------------------------------------------------

    def holders(self, row: int) -> list[Holder]:
        """Returns the holder of each input slot of a node; empty without a graph."""
        found = self._holders.get(row)
        if found is None:
            found = self._holders[row] = [Holder(node, slot) for node, slot in real_inputs(self.nodes, row)]
        return found

    def consumers(self, row: int) -> list[tuple[int, int]]:
        return real_consumers(self.nodes, row)

    def holder(self, row: int, slot: int) -> Holder:
        """The holder of one input slot; row -1 when the graph does not say."""
        found = self.holders(row)
        return found[slot] if slot < len(found) else Holder(-1, 0)

    def locate_input(self, step: int, row: int, slot: int, round: int = 0) -> Located | None:  # noqa: A002
        """Where the value that entered a node stands on disk, or None."""
        own = self.located(step, row, Side.INPUT, slot, round)
        return own if own.index >= 0 else self.locate_held(step, self.holder(row, slot), round, row)

    def locate_held(
        self,
        step: int,
        holder: Holder,
        round: int = 0,  # noqa: A002
        reader: int = -1,
    ) -> Located | None:
        """Where the value of a held tensor *before or during* a run stands, or None; as ``reader`` saw it."""
        if holder.row < 0:
            return None
        if self.nodes.category_of(holder.row) in PARAMETERS:
            if not self.updated(holder.row):
                at: Located | None = self.located(step, holder.row, Side.OUTPUT, holder.slot, round)
            else:
                at = self.before(holder.row, Side.OUTPUT, holder.slot, step, round)
                at = at if at is not None and self.is_left_by(at, holder.row, step, round) else None
        else:
            at = self._made(step, holder, round, reader)
        return at if at is not None and at.index >= 0 else None

    def _made(self, step: int, holder: Holder, round: int, reader: int) -> Located:  # noqa: A002
        table = self.table(step)
        mine = table.of_node(reader, every=True) if reader >= 0 and table.round.any() else np.zeros(0, np.int64)
        mine = mine[(table.round[mine] == round) | (table.round[mine] == 0)] if round else mine[-1:]
        if not len(mine):
            return self.located(step, holder.row, Side.OUTPUT, holder.slot, round)
        earliest = mine[np.argmin(table.timestamp[mine])]
        one = np.array([holder.row]), np.array([int(Side.OUTPUT)]), np.array([holder.slot])
        index = int(read_by(table, *one, np.array([earliest]))[0])
        number = int(table.round[index]) if index >= 0 else round
        root, own = (self.nodes.graph_of(each).root_id for each in (holder.row, reader))
        read_in = (
            int(table.round[earliest]) if root == own else self._runs.last(root, step, int(table.timestamp[earliest]))
        )
        if number and read_in and number != read_in:  # the reader's input was not dumped
            return Located(step, -1, holder.row, Side.OUTPUT, holder.slot, read_in)
        return Located(step, index, holder.row, Side.OUTPUT, holder.slot, number)

    def updated(self, row: int) -> bool:
        """Tells whether a parameter's file shows its value after the run: graph inputs such as labels do not change."""
        of = self.nodes.category_of(row)
        if of in TRAINABLE | {Category.OPTIMIZER_STATE}:
            return True
        return of in PARAMETERS and (bool(self.shared(row)) or changed_by_modules(self.nodes, row))

    def at_rest(self, step: int) -> Int64:
        """The weights that no optimizer stepped with, in a graph of our client for PyTorch.

        An optimizer's step records its learning rate: a weight at rest has its rate in another step, but not in this
        one.
        """
        handed = rates(self.nodes)
        weights, rate = (np.array([*each], np.int64) for each in (handed.keys(), handed.values()))
        missing = ~np.isin(rate, self.table(step).node)
        if not missing.any():
            return weights[missing]
        others = sorted(self._source.steps(self.rank), key=lambda other: abs(other - step))[1:_NEAREST]
        recorded = [self.table(other).node for other in others]
        return weights[missing & np.isin(rate, np.concatenate(recorded) if recorded else rate[:0])]

    def in_place(self, row: int) -> frozenset[int]:
        """Input slots of an optimizer's operator that hold the parameters it updates; empty for other nodes."""
        return in_place_slots(self.nodes.op_type(row), len(self.holders(row)))

    def updater(self, row: int) -> tuple[int, int]:
        """The node that updates a parameter, and the input slot for it; row -1 when there is none."""
        return next(((node, slot) for node, slot in self.consumers(row) if slot in self.in_place(node)), (-1, 0))

    def is_constant(self, row: int) -> bool:
        return row >= 0 and self.nodes.category_of(row) is Category.CONSTANT

    def has_values(self, table: TensorTable, index: int) -> bool:
        return not int(table.flags[index]) & TensorFlag.STAT_ONLY


class _Runs:
    """The runs of a rank, in the order in which they ran; ``dumped`` has the runs with files."""

    def __init__(self, history: Sequence[GraphRun]) -> None:
        self.dumped = [run for run in history if run.has_data]
        self._place: dict[tuple[int, int, int], int] = {}
        for place, run in enumerate(self.dumped):
            self._place[run.root_graph, run.step, run.round] = place
            self._place[run.root_graph, run.step, 0] = place  # the newest one
        self._of_step: dict[tuple[int, int], list[GraphRun]] = {}
        for run in self.dumped:
            self._of_step.setdefault((run.root_graph, run.step), []).append(run)
        self._last = {run.step: run.turn for run in self.dumped}
        self._steps = sorted({run.step for run in history})
        self._missing: dict[int, list[int]] = {}
        for run in history:
            if not run.has_data:
                self._missing.setdefault(run.root_graph, []).append(run.turn)

    def is_whole(self, roots: Collection[int], first: tuple[int, int], last: tuple[int, int]) -> bool:
        """Tells whether every run of some graphs between two (step, turn) was dumped."""
        if any(first[1] < turn < last[1] for root in roots for turn in self._missing.get(root, ())):
            return False
        known = bisect_left(self._steps, last[0]) - bisect_right(self._steps, first[0])
        return known >= last[0] - first[0] - 1

    def turn(self, root: int, step: int, round: int) -> int:  # noqa: A002
        """The turn of a run; of an unknown run the turn at the end of its step."""
        place = self._at(root, step, round)
        return self.dumped[place].turn if place >= 0 else self._last.get(step, turn_of(step))

    def began(self, root: int, step: int, round: int) -> int:  # noqa: A002
        place = self._at(root, step, round)
        return self.dumped[place].began if place >= 0 else 0

    def last(self, root: int, step: int, at: int) -> int:
        """The round of the newest run of a step that had begun by the time ``at``; 0 if unknown."""
        begun = (run for run in reversed(self._of_step.get((root, step), ())) if 0 < run.began <= at)
        return next((run.round for run in begun), 0)

    def earlier(self, root: int, step: int, round: int) -> Sequence[GraphRun]:  # noqa: A002
        place = self._at(root, step, round)
        if place < 0:
            turn = self._last.get(step, turn_of(step))
            return [run for run in reversed(self.dumped) if run.turn < turn]
        return self.dumped[:place][::-1]

    def _at(self, root: int, step: int, round: int) -> int:  # noqa: A002
        place = self._place.get((root, step, round), -1)
        return place if place >= 0 else self._place.get((root, step, 0), -1)


def of_round(
    table: TensorTable,
    node: Integers,
    side: Integers,
    slot: Integers,
    round: int,  # noqa: A002
) -> Int64:
    """Indices of several tensors in one round (0: the newest), -1 if none; a single writing belongs to every round."""
    if not round or not table.round.any():
        return table.find_all(node, side, slot)
    rows = np.flatnonzero((table.round == round) | (table.round == 0))
    keys = tensor_keys(table.node[rows], table.side[rows], table.slot[rows])
    by = np.argsort(keys, kind="stable")
    keys, rows = keys[by], rows[by]
    wanted = tensor_keys(node, side, slot)
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Int64 = np.where(keys[place] == wanted, rows[place], np.int64(-1))
    return found


def read_by(
    table: TensorTable,
    node: Integers,
    side: Integers,
    slot: Integers,
    readers: Integers,
) -> Int64:
    """Indices of the writings of several tensors that their ``readers`` (table rows) had as inputs.

    That is the newest writing before the reader was written, or without times the writing of the reader's round.
    """
    found = table.find_all(node, side, slot, at=table.timestamp[readers])
    if not table.round.any():
        return found
    rounds = np.where(table.timestamp[readers] <= 0, table.round[readers].astype(np.int64), 0)
    for each in np.unique(rounds[rounds > 0]).tolist():
        of = np.flatnonzero(rounds == each)
        found[of] = of_round(table, node[of], side[of], slot[of], each)
    return found
