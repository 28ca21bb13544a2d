"""What has to be looked at quickly at every step, for the watchpoints on each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tui_debugger.analysis.condition_table import CONDITIONS, WIRE_OPERATOR_OVERFLOW, WIRE_OVERFLOW
from tui_debugger.analysis.conditions import JudgingPlan, judging_plan
from tui_debugger.analysis.record import Bounds, Need
from tui_debugger.live.client.judging import Judge


class Quick:
    """Quantities of a quick look, as bits (plain numbers: this runs for every tensor of every step).

    Attributes:
        EXTREMES: least and greatest element, which are NaN or Inf when an element is.
        MAGNITUDE: Σ|x|, which is not finite when an element is not.
        ENERGY: root of Σx²: costs least on a CPU. Σ|x| lies between it and √n of it: enough for tiny thresholds.
        TOTAL: Σx.
        ZEROS: how many are zero.
    """

    EXTREMES: Final = 1
    MAGNITUDE: Final = 2
    ENERGY: Final = 4
    TOTAL: Final = 8
    ZEROS: Final = 16
    FINITE: Final = EXTREMES | MAGNITUDE | ENERGY
    """Any of them shows NaN and Inf, and whether all elements are zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything about the watchpoints of nodes that are watched alike.

    Attributes:
        plans: how each watchpoint is judged; the one on initial values, and what values do not decide, left out.
        single: quantities of a tensor of float16 that is looked at by itself: its norms cost more than extremes.
        many: quantities of any other.
        ranges: ranges whose elements are counted at every step.
        need: what a record has to hold.
    """

    plans: tuple[JudgingPlan, ...]
    single: int
    many: int
    ranges: tuple[Bounds, ...]
    need: Need


class Plans:
    """The plans of nodes by name; nodes with the same watchpoints share one."""

    def __init__(self, judge: Judge) -> None:
        """Looks names up when they are asked for."""
        self.judge = judge
        self._by_name: dict[str, Plan | None] = {}
        self._shared: dict[tuple[int, ...], Plan | None] = {}

    def __bool__(self) -> bool:
        """Whether anything is watched."""
        return bool(self.judge)

    def copy_overflow(self, source: str, target: str) -> None:
        """A node that the debugger does not know yet is watched for NaN and Inf where another one is."""
        for each in self.judge.watchpoints(source):
            if CONDITIONS[each.condition].wire == WIRE_OVERFLOW:
                self.judge.add(each, target)
        self._by_name.pop(target, None)

    def of(self, name: str) -> Plan | None:
        """The plan of a node, None when nothing has to be looked at there."""
        try:
            return self._by_name[name]
        except KeyError:
            plan = self._by_name[name] = self._find(name)
            return plan

    def _find(self, name: str) -> Plan | None:
        watchpoints = self.judge.watchpoints(name)
        key = tuple(each.id for each in watchpoints)
        if key not in self._shared:
            judged = [judging_plan(each) for each in watchpoints]
            self._shared[key] = _plan([each for each in judged if not _idle(each)])
        return self._shared[key]


def _idle(plan: JudgingPlan) -> bool:
    return plan.condition.initial_only or plan.condition.wire == WIRE_OPERATOR_OVERFLOW


def _plan(plans: list[JudgingPlan]) -> Plan | None:
    if not plans:
        return None
    quick, need = 0, Need()
    for plan in plans:
        need |= plan.need
        for quantity, threshold, holds in plan.checks:
            if holds:
                quick |= _quantities(quantity, threshold, holds)
    decided = quick & Quick.FINITE
    single, many = (quick, quick) if decided else (quick | Quick.EXTREMES, quick | Quick.ENERGY)
    return Plan(tuple(plans), single, many, tuple(sorted(need.ranges)), need)


_QUICK: Final = {
    "max": Quick.EXTREMES,
    "min": Quick.EXTREMES,
    "max_min": Quick.EXTREMES,
    "abs_mean": Quick.MAGNITUDE,
    "mean": Quick.TOTAL | Quick.MAGNITUDE,
}


VANISHING: Final = 1e-9
"""Mean magnitude up to which a tensor is as good as lost: one that is not shows in Σx² as well."""


def _quantities(quantity: str, threshold: float, holds: str) -> int:
    """What decides a check. Whether *all* elements are zero shows in any of them."""
    if quantity == "abs_mean" and holds == "lt" and threshold <= VANISHING:
        return Quick.ENERGY
    if quantity == "zero_percentage":
        return Quick.ZEROS if 0 < threshold < 100 else 0
    return _QUICK.get(quantity, 0)
