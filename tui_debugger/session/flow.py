"""What flows into a node: the one answer that checks, origin and the tensor table share.

Input of a node = its own dumped input file when there is one; else the output of its producer; for a
parameter its value of the *previous* step, because parameter files are written after the optimizer ran.
"""

from __future__ import annotations

from dataclasses import dataclass

from tui_debugger.errors import RenumberedError
from tui_debugger.graph.edges import real_consumers, real_inputs
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import PARAMETERS, TRAINABLE, Category, ProgressFn, Side, no_progress
from tui_debugger.sources.base import Source, TensorFlag, TensorTable


@dataclass(frozen=True, slots=True)
class Holder:
    """The tensor that an input slot is fed with: an output of the node that really made it; row -1 = unknown."""

    row: int
    slot: int


@dataclass(frozen=True, slots=True)
class Located:
    """A tensor of some step: index into that step's table, -1 when it has no file."""

    step: int
    index: int
    row: int
    side: Side
    slot: int


class Flow:
    """The data flow of one rank: nodes plus the files of its steps, as they were when first looked at.

    Make one per question: what it has given stays as it is whatever a refresh brings meanwhile, so that rows and
    indices fit together. Not for use from several threads at once.

    Attributes:
        nodes: the rank's node table; grows when a step has files of nodes that were unknown.
    """

    def __init__(self, source: Source, rank: int, progress: ProgressFn = no_progress) -> None:
        """Reads the nodes; ``progress`` is told when directories have to be listed."""
        self.rank = rank
        self.nodes: NodeTable = source.nodes(rank, progress)
        self._source = source
        self._progress = progress
        self._tables: dict[int, TensorTable] = {}
        self._previous: dict[tuple[int, int, int], tuple[int, int] | None] = {}
        self._holders: dict[int, list[Holder]] = {}

    def table(self, step: int) -> TensorTable:
        """The files of a step.

        Raises:
            CancelledError: from ``progress``.
            RenumberedError: the nodes were read anew since this object was made.
        """
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

    def previous_run(self, row: int, step: int, round: int = 0) -> tuple[int, int] | None:  # noqa: A002 - see TensorKey
        """(step, round) of the run before, of the node's own root graph: see ``Source.previous_run``."""
        key = (self.nodes.graph_of(row).root_id, step, round)
        if key not in self._previous:
            self._previous[key] = self._source.previous_run(self.rank, *key)
        return self._previous[key]

    def previous_step(self, row: int, step: int) -> int | None:
        """The step of the run before, of the node's own root graph: ``step`` itself when it holds several runs."""
        before = self.previous_run(row, step)
        return before[0] if before is not None else None

    def holders(self, row: int) -> list[Holder]:
        """What feeds each input slot of a node; empty without a graph."""
        found = self._holders.get(row)
        if found is None:
            found = self._holders[row] = [Holder(node, slot) for node, slot in real_inputs(self.nodes, row)]
        return found

    def consumers(self, row: int) -> list[tuple[int, int]]:
        """(node row, input slot) of the nodes that really read any output of a node."""
        return real_consumers(self.nodes, row)

    def holder(self, row: int, slot: int) -> Holder:
        """What feeds one input slot; row -1 when the graph does not say."""
        found = self.holders(row)
        return found[slot] if slot < len(found) else Holder(-1, 0)

    def locate_input(self, step: int, row: int, slot: int) -> Located | None:
        """Where the value that entered a node stands on disk, or None."""
        own = self.table(step).find(row, Side.INPUT, slot)
        if own >= 0:
            return Located(step, own, row, Side.INPUT, slot)
        return self.locate_held(step, self.holder(row, slot))

    def locate_held(self, step: int, holder: Holder) -> Located | None:
        """Where the value of a held tensor *before or during* a step stands, or None."""
        if holder.row < 0:
            return None
        at: int | None = step
        if self.nodes.category_of(holder.row) in PARAMETERS and self.updated(holder.row):
            at = self.previous_step(holder.row, step)
        if at is None:
            return None
        index = self.table(at).find(holder.row, Side.OUTPUT, holder.slot)
        return Located(at, index, holder.row, Side.OUTPUT, holder.slot) if index >= 0 else None

    def updated(self, row: int) -> bool:
        """Whether a parameter's file shows its value after the step: graph inputs such as labels do not change."""
        return self.nodes.category_of(row) in TRAINABLE | {Category.OPTIMIZER_STATE}

    def is_constant(self, row: int) -> bool:
        """Whether a node is a graph constant."""
        return row >= 0 and self.nodes.category_of(row) is Category.CONSTANT

    def has_values(self, table: TensorTable, index: int) -> bool:
        """Whether a table row has a file with values."""
        return not int(table.flags[index]) & TensorFlag.STAT_ONLY
