"""What has to be looked at quickly at every step, for the watchpoints on each node."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tui_debugger.live.client.judging import Judge
from tui_debugger.model import Watchpoint
from tui_debugger.stats.records import Bounds, RequiredStats
from tui_debugger.torch.naming import NO_GRAD
from tui_debugger.watch.condition_table import WIRE_OPERATOR_OVERFLOW
from tui_debugger.watch.evaluate import JudgingPlan, judging_plan
from tui_debugger.watch.recommended import activation_ranges


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
        few: these quantities decide of any tensor whether it has to be looked at.
        one_number: the root of Σx² alone does.
    """

    plans: tuple[JudgingPlan, ...]
    single: int
    many: int
    ranges: tuple[Bounds, ...]
    need: RequiredStats
    few: bool
    one_number: bool


_MOST: Final = Quick.EXTREMES | Quick.MAGNITUDE | Quick.TOTAL | Quick.ZEROS
EVERYTHING: Final = Plan((), _MOST, _MOST, (), RequiredStats(), few=True, one_number=False)
"""For a tensor that is seen before there are watchpoints: what its record can be made of if it does not last."""


def kind_in(name: str) -> str:
    """The operator type that the name of a node ends with."""
    return name.rpartition("/")[2].partition("#")[0]


def foreseen(name: str) -> Plan:
    """``EVERYTHING``, and the ranges that are recommended for what a node makes."""
    return _foreseen(kind_in(name))


class Foresight(Judge):
    """Stands for watchpoints as long as there are none: everything is asked for that may be, and nothing is found."""

    def need(self, name: str) -> RequiredStats | None:
        """See ``foreseen``."""
        return foreseen(name).need


@functools.cache
def _foreseen(kind: str) -> Plan:
    needs = [judging_plan(each).need.ranges for each in activation_ranges(kind)]
    ranges = frozenset[Bounds]().union(*needs)
    return replace(EVERYTHING, ranges=tuple(sorted(ranges)), need=RequiredStats(ranges)) if ranges else EVERYTHING


class Plans:
    """The plans of nodes by name; nodes with the same watchpoints share one.

    A node that the debugger did not know when it set the watchpoints is watched like its nearest relative: a pass
    without gradients like the one with them, a second call like the first, another one like any of the same kind. One
    that has no relatives is watched by what watches all nodes of the forward pass.
    """

    def __init__(self, judge: Judge, known: Collection[str] = (), forward: Collection[str] = ()) -> None:
        """Looks names up when they are asked for.

        Args:
            judge: the watchpoints.
            known: names of everything that the debugger knew.
            forward: those of nodes of the forward pass.
        """
        self.judge = judge
        self._known = frozenset(known)
        self._forward = forward
        self._general: list[Watchpoint] | None = None
        self._kinds = {kind_in(each): each for each in self._known}
        self._by_name: dict[str, Plan | None] = {}
        self._shared: dict[tuple[int, ...], Plan | None] = {}

    def __bool__(self) -> bool:
        """Tells whether anything is watched."""
        return bool(self.judge)

    def of(self, name: str) -> Plan | None:
        """The plan of a node, None when nothing has to be looked at there."""
        try:
            return self._by_name[name]
        except KeyError:
            plan = self._by_name[name] = self._find(name)
            return plan

    def knows(self, name: str) -> bool:
        """Tells whether the debugger knew a node: hits of others are reported when the graph was sent again."""
        return name in self._known or not self._known

    def strange(self, name: str) -> bool:
        """Tells whether nobody can say how a node is to be watched: some of the others are, in different ways."""
        if not self.judge or self.knows(name) or self._relative(name) or self._common():
            return False
        return any(self.judge.watchpoints(each) for each in self._forward)

    def _relative(self, name: str) -> str:
        alone = name.partition("#")[0]
        trained = name.removeprefix(f"{NO_GRAD}/")
        for each in (alone, trained, trained.partition("#")[0]):
            if each in self._known:
                return each
        return self._kinds.get(kind_in(name), "")

    def _common(self) -> list[Watchpoint]:
        """Returns what watches all nodes of the forward pass."""
        if self._general is None:
            every = [self.judge.watchpoints(each) for each in self._forward]
            self._general = [each for each in every[0] if all(each in some for some in every)] if every else []
        return self._general

    def _find(self, name: str) -> Plan | None:
        if not self.knows(name):
            relative = self._relative(name)
            for each in self.judge.watchpoints(relative) if relative else self._common():
                self.judge.add(each, name)
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
    quick, need = 0, RequiredStats()
    for plan in plans:
        need |= plan.need
        for quantity, threshold, holds in plan.checks:
            if holds:
                quick |= _quantities(quantity, threshold, holds)
    decided = quick & Quick.FINITE
    single, many = (quick, quick) if decided else (quick | Quick.EXTREMES, quick | Quick.ENERGY)
    few = not need.ranges and not need.previous
    return Plan(
        tuple(plans), single, many, tuple(sorted(need.ranges)), need, few=few, one_number=few and many == Quick.ENERGY
    )


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
    """Returns what decides a check. Whether *all* elements are zero shows in any of them."""
    if quantity == "abs_mean" and holds == "lt" and threshold <= VANISHING:
        return Quick.ENERGY
    if quantity == "zero_percentage":
        return Quick.ZEROS if 0 < threshold < 100 else 0
    return _QUICK.get(quantity, 0)
