"""Compares a weight with what the optimizer's update makes of it."""

from __future__ import annotations

from typing import NamedTuple

from tui_debugger.diagnose.recompute.check import OperatorCheck, check_operator
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.graph.categories import OPTIMIZER_UPDATE
from tui_debugger.graph.table import real_consumers


class WeightUpdate(NamedTuple):
    """The comparison of a weight with what the optimizer makes of it.

    Attributes:
        fits: None where it could not be compared.
        why: the reason that it does not fit or could not be compared; empty where arithmetic alone says that it is
            wrong.
        written: the program writes to the weight itself.
    """

    fits: bool | None
    why: str = ""
    written: bool = False

    @property
    def told(self) -> bool:
        """Tells whether the recording says why the weight does not fit."""
        return self.fits is False and (self.written or not self.why)


def weight_update(run: DiagnosedRun, rank: int, step: int, row: int) -> WeightUpdate:
    """Compares the weight of a node table's ``row`` as a step left it; see ``check_operator``."""
    nodes = run.nodes(rank)
    readers = real_consumers(nodes, row) if row >= 0 else ()
    updates = [each for each, slot in readers if not slot and nodes.op_type(each) == OPTIMIZER_UPDATE]
    if len(updates) != 1:
        return WeightUpdate(None, "its update was not recorded")
    call = run.arguments(rank, step, updates[0])
    check = check_operator(run, rank, step, updates[0])
    written = call is not None and bool(call.doubt)
    if isinstance(check, OperatorCheck):
        return WeightUpdate(not check.wrong, written=written)
    return WeightUpdate(False if check.unlike else None, check.reason, written)
