"""Quick looks: one or two reductions of a tensor on its device, for the quantities that watchpoints need.

They tell which tensors might hit, with room for rounding (see ``verdicts``). Only those are measured element by
element, in float64, by ``exact``: on a healthy run none.
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
    """Quantities of a quick look, as bits (plain numbers: this runs for every tensor of every step)."""

    EXTREMES: Final = 1  # least and greatest element, which are NaN or Inf when an element is
    MAGNITUDE: Final = 2  # Σ|x|, which is not finite when an element is not
    ENERGY: Final = 4  # √Σx², the fastest on a CPU; Σ|x| is between it and √n times it: enough for tiny thresholds
    TOTAL: Final = 8  # Σx
    ZEROS: Final = 16  # the number of zeros
    FINITE: Final = EXTREMES | MAGNITUDE | ENERGY
    """Any of them shows NaN and Inf, and whether all elements are zero."""


@dataclass(frozen=True, slots=True, eq=False)
class WatchPlan:
    """The plan for nodes with the same watchpoints."""

    plans: tuple[JudgingPlan, ...]  # of the watchpoints that values decide, without those on initial values
    single: int  # quantities of a float16 tensor that is measured alone: its norms cost more than extremes
    many: int  # quantities of any other tensor
    ranges: tuple[Bounds, ...]
    need: RequiredStats
    few: bool  # the quantities decide for any tensor whether it has to be measured exactly
    one_number: bool  # √Σx² alone decides that
    exactly: bool = False  # an expression needs all statistics, in one batch with the quick numbers


_MOST: Final = Quick.EXTREMES | Quick.MAGNITUDE | Quick.TOTAL | Quick.ZEROS
EVERYTHING: Final = WatchPlan((), _MOST, _MOST, (), RequiredStats(), few=True, one_number=False)
"""For a tensor that is seen before there are watchpoints: enough for its record if its values do not last."""


def kind_in(name: str) -> str:
    return name.rpartition("/")[2].partition("#")[0]


def foreseen(name: str) -> WatchPlan:
    """``EVERYTHING``, plus the recommended ranges for outputs of a node."""
    return _foreseen(kind_in(name))


class UnknownWatchpoints(ClientJudge):
    """Stands for watchpoints before there are any: needs everything that may be needed, and finds nothing."""

    def need(self, name: str) -> RequiredStats | None:
        return foreseen(name).need


@functools.cache
def _foreseen(kind: str) -> WatchPlan:
    needs = [judging_plan(each).need.ranges for each in activation_ranges(kind)]
    ranges = frozenset[Bounds]().union(*needs)
    return replace(EVERYTHING, ranges=tuple(sorted(ranges)), need=RequiredStats(ranges)) if ranges else EVERYTHING


class Plans:
    """The plans of nodes by name; nodes with the same watchpoints share one.

    A node that the debugger did not know when it set the watchpoints is watched like its nearest relative: a pass
    without gradients like the one with them, a second call like the first, else any node of the same kind, else by the
    watchpoints that cover all nodes of the forward pass.
    """

    def __init__(self, judge: ClientJudge, known: Collection[str] = (), forward: Collection[str] = ()) -> None:
        """``known`` are the names that the debugger knew, ``forward`` those of nodes of the forward pass."""
        self.judge = judge
        self._known = frozenset(known)
        self._forward = forward
        self._general: list[Watchpoint] | None = None
        self._kinds = {kind_in(each): each for each in self._known}
        self._by_name: dict[str, WatchPlan | None] = {}
        self._shared: dict[tuple[int, ...], WatchPlan | None] = {}

    def __bool__(self) -> bool:
        return bool(self.judge)

    def of(self, name: str) -> WatchPlan | None:
        try:
            return self._by_name[name]
        except KeyError:
            plan = self._by_name[name] = self._find(name)
            return plan

    def knows(self, name: str) -> bool:
        """Tells whether the debugger knew a node: hits on others are reported after the graph was sent again."""
        return name in self._known or not self._known

    def strange(self, name: str) -> bool:
        """Tells whether it is unclear how to watch a node: it has no relative, and other nodes' watchpoints differ."""
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
"""Mean magnitude up to which a tensor counts as vanished; a larger one shows in Σx² as well."""


def _quantities(quantity: str, threshold: float, holds: str) -> int:
    """The bits of ``Quick`` that may decide a check; 0: ``Quick.FINITE`` is enough, or no quick number decides."""
    if quantity == "abs_mean" and holds == "lt" and threshold <= VANISHING:
        return Quick.ENERGY
    if quantity == "zero_percentage":
        return Quick.ZEROS if 0 < threshold < 100 else 0
    return _QUICK.get(quantity, 0)


_REDUCED: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
"""Element types that reductions take without a cast, in every version of PyTorch and on every device."""
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
    """Starts to find the least and the greatest element (NaN when an element is); takes two places."""
    low, high = torch.aminmax(x)
    place = waiting.add(low)
    waiting.add(high)
    return place


def norm(x: torch.Tensor, order: int) -> torch.Tensor:
    """Σ|x| or √Σx²; half types are summed in float32."""
    found: torch.Tensor = torch.linalg.vector_norm(x, order, dtype=_summed_as(x))
    return found


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dtype=_summed_as(x))


def inside(x: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """The number of elements in a range, exactly as if they had been cast to double first."""
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
    """The least float32 not below ``start`` and the greatest not above ``end``: exact bounds for a float32."""
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
    """Σ|x| of tensors that are not needed afterwards. On a CPU two passes are faster than the norm's one."""
    if not scratch or scratch[0].device.type != "cpu":
        return norms(scratch, 1)
    return [x.abs_().sum(dtype=_summed_as(x)) for x in scratch]


Key = tuple[str, int]
"""Node name and slot."""
NOWHERE = -1
OVERWRITTEN: Final = -1
"""The version of values that were changed without a new version: no tensor has it."""
_ORDER: Final = itertools.count()


def time_now() -> int:
    """A point in time, among those at which the lines of a step were made: see ``Capture.order``."""
    return next(_ORDER)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedOperand:
    """An operand of a node, as it was when the node ran."""

    sources: Sequence[str]  # what it was made of
    seen: Capture | None = None  # the capture of this very tensor
    place: int = NOWHERE  # of its extremes in ``CapturedStep.waiting``, without a capture
    extremes: tuple[torch.Tensor, torch.Tensor] | None = None  # of an operand that was written over
    state: OperandState | None = None


@dataclass(slots=True, eq=False)
class Capture:
    """One tensor of the step. Places are positions in ``CapturedStep.waiting``.

    Attributes:
        tensor: its values, when they are held; valid only while ``intact``.
        version: of the values when they were seen; ``OVERWRITTEN`` when they are known to have changed.
        counter: the object that counts changes of the values, if the tensor itself does not.
        difference, reference: places of Σ|cur − prev| and Σ|prev|, piece by piece; other places are of quick numbers.
        between: bounds of Σ|prev|, if known from the steps before.
        pending: the exact look that was begun when the tensor was seen, because its values would not stay.
        record: the result of an exact look; ``rough``: it only tells whether there are NaN, Inf or non-zeros.
        told: its hits were reported when it was made.
        fetched: its quick numbers, if they were fetched before those of the step.
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
        counter = self.counter() if isinstance(self.counter, weakref.ref) else self.counter
        if counter is None and self.counter is None:
            counter = self.tensor
        if self.tensor is None or counter is None:
            return False
        return version_of(counter) == self.version and not freed(self.tensor)

    @property
    def screened(self) -> bool:
        return self.extremes >= 0 or self.magnitude >= 0 or self.energy >= 0

    def lead_to(self, kinds: int, start: int) -> None:
        """Notes the places of quick numbers in the order of ``begin_numbers``."""
        for name, at in offsets(kinds).items():
            setattr(self, name, start + at)


class MemoryBudget:
    """Bytes of values that may be held, besides weights and gradients; ``make`` frees the least needed values."""

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.make: Callable[[], None] | None = None

    def take(self, size: int) -> bool:
        if size > self.left and self.make is not None:
            self.make()
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(slots=True, eq=False)
class TensorGroup:
    """Tensors of one element type with the same plan; on a healthy run none of them gets a ``Capture``."""

    plan: WatchPlan | None  # None when they are not watched
    kinds: int  # their quick numbers (see ``Quick``)
    lasting: bool  # weights, gradients and optimizer state, which outlive the step
    names: list[str] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)  # of the values when they were seen
    places: list[int] = field(default_factory=list)  # of the first number of each; its others follow
    orders: list[int] = field(default_factory=list)
    lines: dict[int, Capture] = field(default_factory=dict)  # captures that were asked for

    @property
    def order(self) -> int:
        return self.orders[0]

    def capture(self, number: int) -> Capture:
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
        """The tensors whose values changed since, or are gone, except for weights, which are meant to change."""
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
    """A tensor seen in this step, with its version, its maker (``name``), and its capture or group."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    name: str
    entry: Capture | TensorGroup
    number: int = 0

    def capture(self) -> Capture:
        return self.entry if isinstance(self.entry, Capture) else self.entry.capture(self.number)

    @property
    def overwritten(self) -> bool:
        entry = self.entry
        return (entry.version if isinstance(entry, Capture) else entry.versions[self.number]) == OVERWRITTEN


class CapturedStep:
    """The tensors of one step, or of one pass, in the order in which they were made."""

    def __init__(self, room: MemoryBudget | int, volatile: set[Key] | None = None) -> None:
        self.entries: list[Capture | TensorGroup] = []
        self.starts: list[int] = []
        """The times at which calls of the model began, as ``Capture.order``."""
        self.waiting = Waiting()
        self.volatile: set[Key] = set() if volatile is None else volatile
        """Tensors that were changed in place after they had been seen, in this step or one before."""
        self.fetched: HostNumbers | None = None
        self.bad: set[str] = set()
        """Nodes with NaN or Inf."""
        self.collected: dict[str, CapturedOperand] = {}
        """Gradients of parameters, by their nodes, as far as they have a capture."""
        self._by_key: dict[Key, Capture] = {}
        self._groups: dict[tuple[int, torch.dtype, bool], TensorGroup] = {}
        self._grouped = 0
        self._room = room if isinstance(room, MemoryBudget) else MemoryBudget(room)
        self._taken = 0
        self._held: set[int] = set()
        self._known: dict[int, _SeenTensor] = {}

    def __iter__(self) -> Iterator[Capture]:
        self._take_apart()
        return (each for each in self.entries if isinstance(each, Capture))

    def __len__(self) -> int:
        return len(self.entries) + self._grouped

    def names(self) -> Iterator[str]:
        for each in self.entries:
            if isinstance(each, Capture):
                yield each.name
            else:
                yield from each.names

    def _take_apart(self) -> None:
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
        if key not in self._by_key:
            self._take_apart()
        return self._by_key.get(key)

    def has(self, name: str) -> bool:
        return (name, 0) in self._by_key

    def clear(self) -> None:
        """Forgets the step, except for the volatile tensors."""
        for each in self.entries:
            if isinstance(each, TensorGroup):
                self.volatile.update(each.changed())
            elif each.tensor is not None and not each.intact:
                self.volatile.add((each.name, each.slot))
        for each in self.entries:
            for line in (each,) if isinstance(each, Capture) else each.lines.values():
                line.tensor = line.counter = None  # another step may have adopted the capture
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
        for each in self:
            each.tensor = each.counter = None
        self._held.clear()
        self._room.left += self._taken
        self._taken = 0

    def begin_call(self) -> None:
        self.starts.append(next(_ORDER))

    def add(self, capture: Capture) -> None:
        self.entries.append(capture)
        self._show(capture)

    def _show(self, capture: Capture) -> None:
        """The last capture of a name is found by that name; of several calls in a step the first capture that hit."""
        known = self._by_key.get((capture.name, capture.slot))
        if known is None or not known.hit:
            self._by_key[capture.name, capture.slot] = capture

    def found(self, capture: Capture) -> None:
        self._show(capture)
        capture.hit = True
        if capture.record is not None and capture.record.stats is not None and capture.record.stats.bad:
            self.bad.add(capture.name)

    def adopt(self, captures: Sequence[Capture]) -> None:
        """Takes captures of separate passes in, at their place in time. Earlier captures of a name stay."""
        for capture in captures:
            self._by_key.setdefault((capture.name, capture.slot), capture)
        self.entries += captures
        self.entries.sort(key=lambda each: each.order)

    def note(self, name: str, slot: int, tensor: torch.Tensor, plan: WatchPlan | None) -> bool:
        """A faster ``see``, for a plain tensor that few numbers decide and that can be held; False: call ``see``."""
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
        """Adds weights, gradients or optimizer state, of one element type, by their norms."""
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
        """A tensor was made: begins its quick numbers, and holds its values when there is room for them.

        If the values cannot be held, or are known to be changed in place later, the tensor is measured exactly now.

        Args:
            name: of the node.
            slot: of the output.
            tensor: the values.
            plan: its watchpoints; ``unwatched`` is used if nothing is watched yet.
            exactly: measure exactly now, whatever becomes of the values.
            look: measure exactly even without a plan, if the values are not held.
            screen: begin quick numbers even without a plan: the values may be changed before that.
            mutated: it was changed in place just now, which its version does not say yet.
            alone: the ``Waiting`` of its numbers when they are fetched before all others.
            counter: the object that counts its changes, if it does not do that by itself yet.
            unwatched: see ``plan``.
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
        """The capture of this very tensor in its present state, if any."""
        seen = self._same(tensor)
        return None if seen is None else seen.capture()

    def read_and_written(
        self, tensor: torch.Tensor, sources: Sequence[str], *, by_a_node: bool
    ) -> CapturedOperand | None:
        """The extremes of an operand that is about to be overwritten; a capture that is judged later needs them."""
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
        """The capture of a name, if a tensor shows the same memory: autograd gives operators the tensors it saved."""
        line = self._by_key.get(key)
        if line is None or line.tensor is None or not line.intact or line.meta != meta_of(tensor):
            return None
        values = local(tensor)
        same = values.layout is torch.strided and values.stride() == line.tensor.stride()
        return line if same and values.data_ptr() == line.tensor.data_ptr() else None

    @property
    def room(self) -> int:
        return self._room.left

    def glance(
        self, name: str, slot: int, tensor: torch.Tensor, plan: WatchPlan | None, *, look: bool = False
    ) -> Capture:
        """Like ``see``, for a tensor whose memory is reused soon: quick numbers have to suffice."""
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        look = look or (plan is not None and plan.exactly)
        if numeric(tensor) and look:  # FSDP resizes memory, which is impossible after NumPy has seen it
            capture.pending = exact.on_device(values, plan.need if plan is not None else RequiredStats(), self.waiting)
        elif numeric(tensor) and plan is not None:
            measure(capture, values, self.waiting, plan)
        return capture

    def _hold(self, capture: Capture, values: torch.Tensor, *, for_now: bool) -> bool:
        """Holds the values if there is room; ``for_now``: they are looked at before they can be changed."""
        if (capture.name, capture.slot) in self.volatile and not for_now:
            return False
        if values.is_inference():  # inference tensors do not count changes: keep a copy
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
        """The node that made this very tensor in its present state, or empty. Others may have returned it since."""
        seen = self._same(tensor)
        return "" if seen is None else seen.name

    def overwrite(self, memory: Container[int]) -> None:
        """Values in some storages (see ``internals.storage_of``) change now, maybe without a new version."""
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
        seen = self._known.get(id(tensor))
        if seen is None or seen.tensor() is not tensor or tensor.is_inference():
            return None
        return seen if seen.version == version_of(tensor) else None


def copy_numbers(source: Capture, target: Capture) -> None:
    for name in ("extremes", "magnitude", "energy", "total", "zeros", "ranges", "pending"):
        setattr(target, name, getattr(source, name))


def measure(capture: Capture, values: torch.Tensor, waiting: Waiting, plan: WatchPlan, *, many: bool = False) -> None:
    """Begins the quick numbers of a plan, except for the norms if ``many``."""
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
    """Begins some quick numbers of a tensor, in consecutive places; returns the first place."""
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
    """The distance of each number from the first place of ``begin_numbers``, by its name in ``Capture``."""
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
