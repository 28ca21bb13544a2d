"""Quick looks: which quantities of a tensor watchpoints need, and one or two reductions that give them on its device.

They never decide that a watchpoint hits. They tell which tensors might, with room for rounding (see ``verdicts``), and
those alone are looked at element by element, in float64, by ``exact``: on a healthy run that is none.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch

from tui_debugger.live.client.judging import ClientJudge
from tui_debugger.model import OperandState, TensorMeta, Watchpoint
from tui_debugger.stats.records import Bounds, Record, RequiredStats
from tui_debugger.torch import exact, internals
from tui_debugger.torch.exact import HostNumbers, Waiting, wide_type
from tui_debugger.torch.internals import (
    Counter,
    address_of,
    counting,
    dense,
    freed,
    is_simple,
    local,
    meta_of,
    numeric,
    part_of,
    storage_of,
    version_of,
)
from tui_debugger.torch.structure import NO_GRAD
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
class WatchPlan:
    """Everything about the watchpoints of nodes that are watched alike.

    Attributes:
        plans: how each watchpoint is judged; the one on initial values, and what values do not decide, left out.
        single: quantities of a tensor of float16 that is looked at by itself: its norms cost more than extremes.
        many: quantities of any other.
        ranges: ranges whose elements are counted at every step.
        need: what a record has to hold.
        few: these quantities decide of any tensor whether it has to be looked at.
        one_number: the root of Σx² alone does.
        exactly: an expression wants all statistics, in one batch with the quick numbers.
    """

    plans: tuple[JudgingPlan, ...]
    single: int
    many: int
    ranges: tuple[Bounds, ...]
    need: RequiredStats
    few: bool
    one_number: bool
    exactly: bool = False


_MOST: Final = Quick.EXTREMES | Quick.MAGNITUDE | Quick.TOTAL | Quick.ZEROS
EVERYTHING: Final = WatchPlan((), _MOST, _MOST, (), RequiredStats(), few=True, one_number=False)
"""For a tensor that is seen before there are watchpoints: what its record can be made of if it does not last."""


def kind_in(name: str) -> str:
    """The operator type that the name of a node ends with."""
    return name.rpartition("/")[2].partition("#")[0]


def foreseen(name: str) -> WatchPlan:
    """``EVERYTHING``, and the ranges that are recommended for what a node makes."""
    return _foreseen(kind_in(name))


class UnknownWatchpoints(ClientJudge):
    """Stands for watchpoints as long as there are none: everything is asked for that may be, and nothing is found."""

    def need(self, name: str) -> RequiredStats | None:
        """See ``foreseen``."""
        return foreseen(name).need


@functools.cache
def _foreseen(kind: str) -> WatchPlan:
    needs = [judging_plan(each).need.ranges for each in activation_ranges(kind)]
    ranges = frozenset[Bounds]().union(*needs)
    return replace(EVERYTHING, ranges=tuple(sorted(ranges)), need=RequiredStats(ranges)) if ranges else EVERYTHING


class Plans:
    """The plans of nodes by name; nodes with the same watchpoints share one.

    A node that the debugger did not know when it set the watchpoints is watched like its nearest relative: a pass
    without gradients like the one with them, a second call like the first, another one like any of the same kind. One
    that has no relatives is watched by what watches all nodes of the forward pass.
    """

    def __init__(self, judge: ClientJudge, known: Collection[str] = (), forward: Collection[str] = ()) -> None:
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
        self._by_name: dict[str, WatchPlan | None] = {}
        self._shared: dict[tuple[int, ...], WatchPlan | None] = {}

    def __bool__(self) -> bool:
        """Tells whether anything is watched."""
        return bool(self.judge)

    def of(self, name: str) -> WatchPlan | None:
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
        """Tells whether it cannot be said how a node is to be watched: some of the others are, in different ways."""
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

    def _find(self, name: str) -> WatchPlan | None:
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
    return plan.condition.initial_only or plan.condition.is_device_overflow


def _plan(plans: list[JudgingPlan]) -> WatchPlan | None:
    if not plans:
        return None
    quick, need = 0, RequiredStats()
    for plan in plans:
        need |= replace(plan.need, previous_stats=False)
        for quantity, threshold, holds in plan.checks:
            if holds:
                quick |= _quantities(quantity, threshold, holds)
    decided = quick & Quick.FINITE
    single, many = (quick, quick) if decided else (quick | Quick.EXTREMES, quick | Quick.ENERGY)
    exactly = any(plan.expression is not None for plan in plans)
    few = not need.ranges and not need.previous and not exactly
    return WatchPlan(
        tuple(plans),
        single,
        many,
        tuple(sorted(need.ranges)),
        need,
        few=few,
        one_number=few and many == Quick.ENERGY,
        exactly=exactly,
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
    """Returns the bits of ``Quick`` that may decide a check; 0: ``Quick.FINITE`` tells enough, or nothing quick does.

    Args:
        quantity: the parameter of the condition without its sign: ``abs_mean``.
        threshold: its value.
        holds: its sign: ``lt``.
    """
    if quantity == "abs_mean" and holds == "lt" and threshold <= VANISHING:
        return Quick.ENERGY
    if quantity == "zero_percentage":
        return Quick.ZEROS if 0 < threshold < 100 else 0
    return _QUICK.get(quantity, 0)


_REDUCED: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
"""Element types that reductions take as they are, in every version of PyTorch and on every device."""
_EXACT_IN_SINGLE: Final = 2
"""Bytes of an element up to which float32 holds all values of a type."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that reductions take: fp8, small integers and bool as float32, other integers as float64, |complex|."""
    if tensor.dtype in _REDUCED:
        return tensor
    if tensor.is_complex():
        return tensor.abs()
    return tensor.to(torch.float32 if tensor.element_size() <= _EXACT_IN_SINGLE else wide_type(tensor.device))


def extremes(x: torch.Tensor, waiting: Waiting) -> int:
    """Starts to find the least and the greatest element; two places. NaN when an element is."""
    low, high = torch.aminmax(x)
    place = waiting.add(low)
    waiting.add(high)
    return place


def norm(x: torch.Tensor, order: int) -> torch.Tensor:
    """Σ|x| or the root of Σx²; half types are summed in float32."""
    found: torch.Tensor = torch.linalg.vector_norm(x, order, dtype=_summed_as(x))
    return found


def total(x: torch.Tensor) -> torch.Tensor:
    """Σx; half types are summed in float32."""
    return x.sum(dtype=_summed_as(x))


def inside(x: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """Tells how many elements lie in a range, exactly as if they had been cast to double first."""
    if x.element_size() <= _EXACT_IN_SINGLE:
        x = x.to(torch.float32)
    start, end = (float(each) for each in single_bounds(*bounds)) if x.dtype == torch.float32 else bounds
    tests = [x >= start] if start > -math.inf else []
    tests += [x <= end] if end < math.inf else []
    if not tests:
        return (~x.isnan()).sum()
    return (tests[0].logical_and_(tests[1]) if len(tests) > 1 else tests[0]).sum()


@functools.lru_cache(maxsize=256)
def single_bounds(start: float, end: float) -> tuple[np.float32, np.float32]:
    """Returns the least float32 that is not below a bound and the greatest one not above the other.

    A float32 lies between them exactly when, cast to double, it lies between the bounds.
    """
    with np.errstate(all="ignore"):
        first, last = np.float32(start), np.float32(end)
        if float(first) < start:
            first = np.nextafter(first, np.float32(math.inf))
        if float(last) > end:
            last = np.nextafter(last, np.float32(-math.inf))
    return first, last


def _summed_as(x: torch.Tensor) -> torch.dtype | None:
    return torch.float32 if x.element_size() <= _EXACT_IN_SINGLE else None


def norms(tensors: Sequence[torch.Tensor], order: int) -> list[torch.Tensor]:
    """``norm`` of many tensors, in as few kernels as there can be."""
    found = [torch.empty(0)] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.numel():
            groups.setdefault((tensor.device, tensor.dtype), []).append(number)
        else:
            found[number] = torch.zeros((), device=tensor.device)
    for members in groups.values():
        group = [tensors[number] for number in members]
        for number, each in zip(members, internals.norms(group, order, _summed_as(group[0])), strict=True):
            found[number] = each
    return found


def magnitudes(scratch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Σ|x| of tensors that nobody needs afterwards. On a CPU two passes are faster than the norm's one."""
    if not scratch or scratch[0].device.type != "cpu":
        return norms(scratch, 1)
    return [x.abs_().sum(dtype=_summed_as(x)) for x in scratch]


Key = tuple[str, int]
"""Node name and slot."""
NOWHERE = -1
OVERWRITTEN: Final = -1
"""The version of values that were changed in a way that versions do not count: no tensor has it."""
_ORDER: Final = itertools.count()


def time_now() -> int:
    """A point in time, among those at which the lines of a step were made: see ``Capture.order``."""
    return next(_ORDER)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedOperand:
    """What a node read, as it was when the node ran.

    Attributes:
        sources: what it was made of.
        seen: the line of this very tensor; None where there is none.
        place: of its extremes in ``CapturedStep.waiting``, where no line tells.
        extremes: themselves, of what was written over.
        state: once it is known.
    """

    sources: Sequence[str]
    seen: Capture | None = None
    place: int = NOWHERE
    extremes: tuple[torch.Tensor, torch.Tensor] | None = None
    state: OperandState | None = None


@dataclass(slots=True, eq=False)
class Capture:
    """One tensor of the step. Places lead into ``CapturedStep.waiting``.

    Attributes:
        name, slot: the node that made it.
        meta: of the tensor.
        plan: the watchpoints on the node, None when it is not watched (or was not when the tensor was seen).
        tensor: its values, when they are held; valid only while ``intact``.
        version: of the values, when they were seen; ``OVERWRITTEN`` when it is known that they are no longer the same.
        counter: what counts changes of the values, where they do not by themselves.
        extremes, magnitude, energy, total, zeros: places of quick numbers.
        ranges: place of the count of each range.
        difference, reference: places of Σ|cur − prev| and Σ|prev|, piece by piece.
        between: what Σ|prev| lies between, where that is known from the steps before.
        previous: values of the step before, of weights that are compared.
        pending: the exact look that was begun when the tensor was seen, because its values would not stay.
        record: what an exact look found.
        rough: the record says whether there are NaN, Inf or anything but zeros, not how many.
        told: it was judged, and its hits were reported, when it was made.
        hit: a watchpoint had something to say of it.
        operands: what its node read, as far as that was looked at.
        fetched: its quick numbers, where they were fetched then, before those of the step.
        order: grows from one tensor to the next.
    """

    name: str
    slot: int
    meta: TensorMeta
    plan: WatchPlan | None = None
    tensor: torch.Tensor | None = None
    version: int = 0
    counter: Counter | None = None
    extremes: int = NOWHERE
    magnitude: int = NOWHERE
    energy: int = NOWHERE
    total: int = NOWHERE
    zeros: int = NOWHERE
    ranges: dict[Bounds, int] = field(default_factory=dict)
    difference: tuple[int, ...] = ()
    reference: tuple[int, ...] = ()
    between: tuple[float, float] | None = None
    previous: torch.Tensor | None = None
    pending: exact.PendingRecord | None = None
    record: Record | None = None
    rough: bool = False
    told: bool = False
    hit: bool = False
    operands: Sequence[CapturedOperand] = ()
    fetched: HostNumbers | None = None
    order: int = field(default_factory=_ORDER.__next__)

    @property
    def intact(self) -> bool:
        """Tells whether the values are there and still what they were."""
        counter = self.counter() if isinstance(self.counter, weakref.ref) else self.counter
        if counter is None and self.counter is None:
            counter = self.tensor
        if self.tensor is None or counter is None:
            return False
        return version_of(counter) == self.version and not freed(self.tensor)

    @property
    def screened(self) -> bool:
        """Tells whether quick numbers were asked for."""
        return self.extremes >= 0 or self.magnitude >= 0 or self.energy >= 0

    def lead_to(self, kinds: int, start: int) -> None:
        """Notes where quick numbers of some kinds are, which lie one after the other as ``begin_numbers`` left them."""
        for name, at in offsets(kinds).items():
            setattr(self, name, start + at)


class MemoryBudget:
    """Bytes of values that may be held at a time, beside weights and gradients, which live anyway.

    Attributes:
        left: bytes that are free.
        make: lets go of what is needed least; called when there is no room.
    """

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.make: Callable[[], None] | None = None

    def take(self, size: int) -> bool:
        """Takes some if it is there."""
        if size > self.left and self.make is not None:
            self.make()
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(slots=True, eq=False)
class TensorGroup:
    """Tensors of one element type that are watched alike, by the same few quick numbers.

    A step has hundreds of them and on a healthy run none is shown: they become lines when they are asked for.

    Attributes:
        plan: the watchpoints on all of them, None when they are not watched.
        kinds: their quick numbers (see ``Quick``).
        lasting: weights, gradients and optimizer state, which outlive the step.
        names, slots: the nodes that made them.
        tensors: their values.
        versions: of the values, when they were seen.
        places: of the first number of each; its others follow.
        orders: as ``Capture.order``.
        lines: those that were asked for.
    """

    plan: WatchPlan | None
    kinds: int
    lasting: bool
    names: list[str] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    lines: dict[int, Capture] = field(default_factory=dict)

    @property
    def order(self) -> int:
        """The order of the first one."""
        return self.orders[0]

    def capture(self, number: int) -> Capture:
        """One of them as a line of its own: always the same one."""
        if number in self.lines:
            return self.lines[number]
        tensor = local(self.tensors[number])
        capture = self.lines[number] = Capture(
            self.names[number],
            self.slots[number],
            meta_of(tensor),
            self.plan,
            tensor,
            self.versions[number],
            order=self.orders[number],
        )
        if self.kinds:
            capture.lead_to(self.kinds, self.places[number])
        return capture

    def changed(self) -> Iterator[Key]:
        """Returns the captures whose values changed since, or are gone. Weights are meant to change."""
        for number, tensor in enumerate(() if self.lasting else self.tensors):
            if version_of(tensor) != self.versions[number] or not tensor.untyped_storage().nbytes():
                yield self.names[number], self.slots[number]

    def overwrite(self, memory: Container[int]) -> bool:
        """Marks the tensors in some storages as changed; tells whether there were any."""
        found = [at for at, tensor in enumerate(self.tensors) if address_of(tensor.untyped_storage()) in memory]
        for number in found:
            self.versions[number] = OVERWRITTEN
            if number in self.lines:
                self.lines[number].version = OVERWRITTEN
        return bool(found)


@dataclass(slots=True)
class _SeenTensor:
    """A tensor that was seen in this step: the object, the version of its values, and where its line is.

    ``name`` is the node that made it; the nodes that only return it have lines of their own.
    """

    tensor: weakref.ref[torch.Tensor]
    version: int
    name: str
    entry: Capture | TensorGroup
    number: int = 0

    def capture(self) -> Capture:
        return self.entry if isinstance(self.entry, Capture) else self.entry.capture(self.number)

    @property
    def overwritten(self) -> bool:
        """Tells whether the values are known to be others now."""
        entry = self.entry
        return (entry.version if isinstance(entry, Capture) else entry.versions[self.number]) == OVERWRITTEN


class CapturedStep:
    """The tensors of one step, or of one pass, in the order in which they were made."""

    def __init__(self, room: MemoryBudget | int, volatile: set[Key] | None = None) -> None:
        """Empty.

        Args:
            room: for values that are held; or how much there is.
            volatile: see there; shared with another one.
        """
        self.entries: list[Capture | TensorGroup] = []
        self.starts: list[int] = []
        """The times at which calls of the model began, as ``Capture.order``."""
        self.waiting = Waiting()
        self.volatile: set[Key] = set() if volatile is None else volatile
        """Tensors that were changed in place after they had been seen, in this step or one before."""
        self.fetched: HostNumbers | None = None
        self.bad: set[str] = set()
        """Nodes in which NaN or Inf was found."""
        self.collected: dict[str, CapturedOperand] = {}
        """What the gradients of parameters are, by their nodes, as far as it has a line of its own."""
        self._by_key: dict[Key, Capture] = {}
        self._groups: dict[tuple[int, torch.dtype, bool], TensorGroup] = {}
        self._grouped = 0
        self._room = room if isinstance(room, MemoryBudget) else MemoryBudget(room)
        self._taken = 0
        self._held: set[int] = set()
        self._known: dict[int, _SeenTensor] = {}

    def __iter__(self) -> Iterator[Capture]:
        """All tensors in order, each as a line."""
        self._take_apart()
        return (each for each in self.entries if isinstance(each, Capture))

    def __len__(self) -> int:
        """Tells how many tensors there are: what bounds a step."""
        return len(self.entries) + self._grouped

    def names(self) -> Iterator[str]:
        """Of all tensors; those of groups stay together."""
        for each in self.entries:
            if isinstance(each, Capture):
                yield each.name
            else:
                yield from each.names

    def _take_apart(self) -> None:
        """Makes lines of all groups."""
        groups = [each for each in self.entries if isinstance(each, TensorGroup)]
        if not groups:
            return
        made = {id(group): [group.capture(number) for number in range(len(group.names))] for group in groups}
        for seen in self._known.values():
            if isinstance(seen.entry, TensorGroup):
                seen.entry = made[id(seen.entry)][seen.number]
        lines = sorted((each for some in made.values() for each in some), key=lambda each: each.order)
        for each in lines:
            known = self._by_key.get((each.name, each.slot))
            if known is None or (known.order < each.order and not known.hit):
                self._by_key[each.name, each.slot] = each
        lines += (each for each in self.entries if isinstance(each, Capture))
        lines.sort(key=lambda each: each.order)
        self.entries[:] = lines
        self._groups.clear()
        self._grouped = 0

    def get(self, key: Key) -> Capture | None:
        """Returns what was seen last under a name."""
        if key not in self._by_key:
            self._take_apart()
        return self._by_key.get(key)

    def has(self, name: str) -> bool:
        """Tells whether a node has a line of its own by now."""
        return (name, 0) in self._by_key

    def clear(self) -> None:
        """Forgets the step; what is volatile stays known."""
        for each in self.entries:
            if isinstance(each, TensorGroup):
                self.volatile.update(each.changed())
            elif each.tensor is not None and not each.intact:
                self.volatile.add((each.name, each.slot))
        for each in self.entries:
            for line in (each,) if isinstance(each, Capture) else each.lines.values():
                line.tensor = line.counter = None  # another step may have adopted it
        self.entries.clear()
        self._groups.clear()
        self._grouped = 0
        self.drop_values()
        self.starts.clear()
        self.bad.clear()
        self.collected.clear()
        self._by_key.clear()
        self._known.clear()
        self.waiting = Waiting()
        self.fetched = None

    def drop_values(self) -> None:
        """Holds no values any more; what was found out about them stays."""
        for each in self:
            each.tensor = each.counter = None
        self._held.clear()
        self._room.left += self._taken
        self._taken = 0

    def begin_call(self) -> None:
        """The model is called."""
        self.starts.append(next(_ORDER))

    def add(self, capture: Capture) -> None:
        """A line of its own making."""
        self.entries.append(capture)
        self._show(capture)

    def _show(self, capture: Capture) -> None:
        """The last line of a name stands for it; of several calls in a step the first one that hit."""
        known = self._by_key.get((capture.name, capture.slot))
        if known is None or not known.hit:
            self._by_key[capture.name, capture.slot] = capture

    def found(self, capture: Capture) -> None:
        """A watchpoint had something to say of a line."""
        self._show(capture)
        capture.hit = True
        if capture.record is not None and capture.record.stats is not None and capture.record.stats.bad:
            self.bad.add(capture.name)

    def adopt(self, captures: Sequence[Capture]) -> None:
        """Takes lines of passes of their own in, at their place in time. What was known first under a name stays."""
        for capture in captures:
            self._by_key.setdefault((capture.name, capture.slot), capture)
        self.entries += captures
        self.entries.sort(key=lambda each: each.order)

    def note(self, name: str, slot: int, tensor: torch.Tensor, plan: WatchPlan | None) -> bool:
        """As ``see``, in a third of the time: of a plain tensor that a few numbers decide on and that can be held.

        Returns:
            Whether that could be done; if not, ``see`` has to.
        """
        if (name, slot) in self.volatile or (plan is not None and not plan.few) or not is_simple(tensor):
            return False
        version = version_of(tensor)
        same = self._known.get(id(tensor))
        if same is not None and (same.tensor() is not tensor or same.version != version):
            same = None
        if tensor.is_inference():
            return False
        if same is not None and same.entry is not self._groups.get((id(plan), tensor.dtype, False)):
            return False
        if same is None and not self._take(tensor.nbytes):
            return False
        group = self._group(plan, tensor.dtype)
        if same is not None:
            place, values = group.places[same.number], group.tensors[same.number]
        else:
            values = tensor.detach()
            place = begin_numbers(values, self.waiting, group.kinds) if group.kinds else NOWHERE
        maker = name if same is None else same.name
        self._known[id(tensor)] = _SeenTensor(weakref.ref(tensor), version, maker, group, len(group.names))
        group.names.append(name)
        group.slots.append(slot)
        group.tensors.append(values)
        group.versions.append(version)
        group.places.append(place)
        group.orders.append(next(_ORDER))
        self._grouped += 1
        return True

    def note_all(
        self, names: list[str], tensors: list[torch.Tensor], plan: WatchPlan, energies: Sequence[torch.Tensor]
    ) -> None:
        """Adds what outlives the step: weights, gradients or optimizer state, of one element type, by their norms."""
        group = self._group(plan, tensors[0].dtype, lasting=True)
        first, order = self.waiting.add_each(energies), next(_ORDER)
        group.names += names
        group.slots += [0] * len(names)
        group.tensors += tensors
        group.versions += map(version_of, tensors)
        group.places += range(first, first + len(names))
        group.orders += [order] * len(names)
        self._grouped += len(names)

    def _group(self, plan: WatchPlan | None, dtype: torch.dtype, *, lasting: bool = False) -> TensorGroup:
        key = id(plan), dtype, lasting
        group = self._groups.get(key)
        if group is None:
            kinds = 0 if plan is None else plan.single if dtype is torch.float16 and not lasting else plan.many
            group = self._groups[key] = TensorGroup(plan, kinds, lasting)
            self.entries.append(group)
        return group

    def see(
        self,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: WatchPlan | None,
        *,
        look: bool = False,
        exactly: bool = False,
        screen: bool = False,
        mutated: bool = False,
        alone: Waiting | None = None,
        counter: Counter | None = None,
        unwatched: WatchPlan = EVERYTHING,
    ) -> Capture:
        """A tensor was made: its quick numbers are begun, and its values are held when there is room for them.

        Where the values cannot be held, or are known to be changed in place later, everything about the tensor is
        found out now.

        Args:
            name: of the node.
            slot: of the output.
            tensor: the values.
            plan: its watchpoints.
            exactly: find everything out now, whatever becomes of the values.
            look: find everything out also where nothing is watched (yet), if the values are not held.
            screen: begin quick numbers also where nothing is watched yet: the values may be changed before that.
            mutated: it was changed in place just now, which its version does not say yet.
            alone: where its numbers wait when they are fetched before all others.
            counter: what counts its changes, where it does not do that by itself yet.
            unwatched: what is found out where nothing is watched yet.
        """
        exactly = exactly or (plan is not None and plan.exactly)
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        counts = counter if isinstance(counter, torch.Tensor) else values if counter is None else tensor
        capture.version = version_of(counts) + (mutated and not values.is_inference())
        seen = self._same(tensor) if alone is None and not mutated else None
        same = None if seen is None else seen.capture()
        waiting = self.waiting if alone is None else alone
        if alone is None:
            maker = name if seen is None else seen.name
            self._known[id(tensor)] = _SeenTensor(weakref.ref(tensor), version_of(tensor) + mutated, maker, capture)
        held = self._hold(capture, values, for_now=alone is not None)
        if held and not values.is_inference():
            capture.counter = counting(part_of(counter)) if isinstance(counter, torch.Tensor) else counter
        if not numeric(tensor):
            return capture
        if same is not None and same.plan is plan and (held or same.pending is not None):
            copy_numbers(same, capture)
        elif held and not exactly and (plan is not None or screen):
            measure(capture, values, waiting, plan or unwatched)
        elif exactly or (not held and (plan is not None or look)):
            capture.pending = exact.begin(values, (plan or unwatched).need, waiting)
        return capture

    def line_of(self, tensor: torch.Tensor) -> Capture | None:
        """The line of this very tensor as it is now, if it has one."""
        seen = self._same(tensor)
        return None if seen is None else seen.capture()

    def read_and_written(
        self, tensor: torch.Tensor, sources: Sequence[str], *, by_a_node: bool
    ) -> CapturedOperand | None:
        """What an operator is about to read and to write over, which is looked at now where no line tells.

        A line that is judged later has to know whether what will be gone by then is finite.

        Args:
            tensor: of numbers.
            sources: what it was made of.
            by_a_node: somebody will ask for it.
        """
        line = self.line_of(tensor)
        if line is not None and line.told and line.plan is not None:
            return CapturedOperand(sources, line)
        later = line is not None and line.screened and line.extremes < 0 and line.pending is None
        if not (by_a_node or later):
            return None
        low, high = torch.aminmax(plain(dense(local(tensor))))
        if line is not None and later:
            line.extremes = self.waiting.add(low)
            self.waiting.add(high)
        return CapturedOperand(sources, extremes=(low, high))

    def line_at(self, key: Key, tensor: torch.Tensor) -> Capture | None:
        """The line under a name, if a tensor shows the same memory: autograd gives operators what it saved."""
        line = self._by_key.get(key)
        if line is None or line.tensor is None or not line.intact or line.meta != meta_of(tensor):
            return None
        values = local(tensor)
        same = values.layout is torch.strided and values.stride() == line.tensor.stride()
        return line if same and values.data_ptr() == line.tensor.data_ptr() else None

    @property
    def room(self) -> int:
        """Bytes of values for which there is room."""
        return self._room.left

    def glance(
        self, name: str, slot: int, tensor: torch.Tensor, plan: WatchPlan | None, *, look: bool = False
    ) -> Capture:
        """As ``see``, of a tensor whose memory is used for something else soon: its quick numbers have to do."""
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        look = look or (plan is not None and plan.exactly)
        if numeric(tensor) and look:  # memory that NumPy has seen can be resized no more, which FSDP does
            capture.pending = exact.on_device(values, plan.need if plan is not None else RequiredStats(), self.waiting)
        elif numeric(tensor) and plan is not None:
            measure(capture, values, self.waiting, plan)
        return capture

    def _hold(self, capture: Capture, values: torch.Tensor, *, for_now: bool) -> bool:
        """Holds the values if there is room. What lies in memory that is held already takes none.

        ``for_now``: they are looked at before they can be changed.
        """
        if (capture.name, capture.slot) in self.volatile and not for_now:
            return False
        if values.is_inference():  # does not count its changes: a copy is what it was
            if not self._take(capture.meta.nbytes):
                return False
            capture.tensor = values.clone()
            return True
        where = values.untyped_storage().data_ptr() if values.layout is torch.strided else id(values)
        if where not in self._held:
            if not self._take(capture.meta.nbytes):
                return False
            self._held.add(where)
        capture.tensor = values
        return True

    def seen_as(self, tensor: torch.Tensor) -> str:
        """The node that made this very tensor as it is now, empty for others. Others may have returned it since."""
        seen = self._same(tensor)
        return "" if seen is None else seen.name

    def overwrite(self, memory: Container[int]) -> None:
        """Values in some storages (see ``internals.storage_of``) are changed now, which their versions need not say."""
        found = False
        for each in self.entries:
            if isinstance(each, TensorGroup):
                found |= each.overwrite(memory)
            elif each.tensor is not None and storage_of(each.tensor) in memory:
                each.version, found = OVERWRITTEN, True
        if found:
            self._known = {key: seen for key, seen in self._known.items() if not seen.overwritten}

    def _take(self, size: int) -> bool:
        taken = self._room.take(size)
        self._taken += size if taken else 0
        return taken

    def _same(self, tensor: torch.Tensor) -> _SeenTensor | None:
        """An earlier sight of the very same tensor: what a container returns is what its last module made."""
        seen = self._known.get(id(tensor))
        if seen is None or seen.tensor() is not tensor or tensor.is_inference():
            return None
        return seen if seen.version == version_of(tensor) else None


def copy_numbers(source: Capture, target: Capture) -> None:
    """Lets one line refer to the numbers of another."""
    for name in ("extremes", "magnitude", "energy", "total", "zeros", "ranges", "pending"):
        setattr(target, name, getattr(source, name))


def measure(capture: Capture, values: torch.Tensor, waiting: Waiting, plan: WatchPlan, *, many: bool = False) -> None:
    """Begins the quick numbers that a plan asks for, but the norms of ``many``."""
    if not values.numel():
        return
    x = plain(dense(values))
    kinds = plan.many if many or x.dtype != torch.float16 else plan.single
    if many:
        kinds &= ~(Quick.MAGNITUDE | Quick.ENERGY)
    if kinds:
        capture.lead_to(kinds, begin_numbers(x, waiting, kinds))
    for bounds in plan.ranges:
        capture.ranges[bounds] = waiting.add(inside(x, bounds))


def begin_numbers(x: torch.Tensor, waiting: Waiting, kinds: int) -> int:
    """Begins some quick numbers of a tensor that reductions take. They lie one after the other; the first place."""
    if kinds == Quick.ENERGY:
        return waiting.add(norm(x, 2))
    start = len(waiting)
    if kinds & Quick.EXTREMES:
        extremes(x, waiting)
    if kinds & Quick.MAGNITUDE:
        waiting.add(norm(x, 1))
    if kinds & Quick.ENERGY:
        waiting.add(norm(x, 2))
    if kinds & Quick.TOTAL:
        waiting.add(total(x))
    if kinds & Quick.ZEROS:
        waiting.add((x == 0).sum())
    return start


@functools.cache
def offsets(kinds: int) -> dict[str, int]:
    """Returns the distance from the first number at which ``begin_numbers`` leaves each, by its name in ``Capture``."""
    found: dict[str, int] = {}
    at = 0
    for kind, name in _NUMBERS:
        if kinds & kind:
            found[name] = at
            at += 2 if kind == Quick.EXTREMES else 1
    return found


_NUMBERS: Final = (
    (Quick.EXTREMES, "extremes"),
    (Quick.MAGNITUDE, "magnitude"),
    (Quick.ENERGY, "energy"),
    (Quick.TOTAL, "total"),
    (Quick.ZEROS, "zeros"),
)
