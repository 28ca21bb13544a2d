"""Where something bad starts: bad outputs of nodes that were fed with clean inputs only."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.analysis.record import Need
from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, TensorKey, TensorStats, no_progress
from tui_debugger.session.flow import Located
from tui_debugger.session.measuring import Measurements


def find_origins(
    measurements: Measurements, step: int, hits: Sequence[Hit], progress: ProgressFn = no_progress
) -> set[TensorKey]:
    """The bad tensors of one step whose node had only clean inputs.

    An input that nothing on disk tells about does not count; a node without any known input is no origin,
    except a parameter that no optimizer changes or that was bad before the first dumped step.

    Raises:
        CancelledError: from ``progress``.
    """
    return _Finder(measurements).find(step, hits, progress)


class _Finder:
    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.flow = measurements.flow

    def find(self, step: int, hits: Sequence[Hit], progress: ProgressFn) -> set[TensorKey]:
        bad = [hit for hit in hits if hit.stats is not None and hit.stats.bad]
        makers = {hit.key: self._maker(hit) for hit in bad}
        inputs = {row: self._inputs(step, row) for row in set(makers.values())}
        wanted = {(at.step, at.index): Need() for found in inputs.values() for at in found}
        self.measurements.ensure(wanted, progress, f"rank {self.flow.rank} step {step}: origins")
        return {key for key, row in makers.items() if self._starts_here(step, row, inputs[row])}

    def _maker(self, hit: Hit) -> int:
        """The node that made a tensor: for an input file the producer, when the graph knows it."""
        if hit.key.side is Side.OUTPUT:
            return hit.row
        holder = self.flow.holder(hit.row, hit.key.slot).row
        return holder if holder >= 0 else hit.row

    def _inputs(self, step: int, row: int) -> list[Located]:
        table = self.flow.table(step)
        slots = {int(table.slot[i]) for i in table.of_node(row) if int(table.side[i]) == Side.INPUT}
        slots |= set(range(len(self.flow.holders(row))))
        return [at for slot in sorted(slots) if (at := self.flow.locate_input(step, row, slot)) is not None]

    def _starts_here(self, step: int, row: int, inputs: Sequence[Located]) -> bool:
        if self.flow.nodes.category_of(row) in PARAMETERS:
            # An optimizer made a later value; before the first dumped step, and for graph inputs, nobody here did.
            return not self.flow.updated(row) or self.flow.previous_step(row, step) is None
        stats = [self._clean_input(step, row, at) for at in inputs]
        known = [s for s in stats if s is not None]
        return bool(known) and not any(s.bad for s in known)

    def _clean_input(self, step: int, row: int, at: Located) -> TensorStats | None:
        record = self.measurements.record(at.step, at.index)
        if record is None or record.stats is None:
            return None
        if at.side is Side.INPUT and record.stats.bad and self._overwritten(step, row, record.stats):
            held = self.flow.locate_held(step, self.flow.holder(row, at.slot))
            before = self.measurements.record(held.step, held.index) if held is not None else None
            if before is not None and before.stats is not None:
                return before.stats
        return record.stats

    def _overwritten(self, step: int, row: int, stats: TensorStats) -> bool:
        """Whether an input file shows the node's own result: in-place operators are dumped after the kernel."""
        table = self.flow.table(step)
        for index in table.of_node(row):
            if int(table.side[index]) == Side.OUTPUT:
                record = self.measurements.record(step, int(index))
                if record is not None and record.stats == stats:
                    return True
        return False
