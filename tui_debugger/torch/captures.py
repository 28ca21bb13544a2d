"""What was seen of one step: a line for each tensor, its numbers, and its values as long as that is affordable."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from tui_debugger.model import TensorMeta
from tui_debugger.stats.records import Bounds, Record, RequiredStats
from tui_debugger.torch import exact, quick
from tui_debugger.torch.elements import dense, local, meta_of, numeric
from tui_debugger.torch.internals import Counter, counting, freed, part_of, version_of
from tui_debugger.torch.plans import EVERYTHING, Plan, Quick
from tui_debugger.torch.transfer import Fetched, Waiting

Key = tuple[str, int]
"""Node name and slot."""
NOWHERE = -1
_ORDER: Final = itertools.count()


@dataclass(slots=True, eq=False)
class Capture:
    """One tensor of the step. Places lead into ``Step.waiting``.

    Attributes:
        name, slot: the node that made it.
        meta: of the tensor.
        plan: the watchpoints on the node, None when it is not watched (or was not when the tensor was seen).
        tensor: its values, when they are held; valid only while ``intact``.
        version: of the values, when they were seen.
        counter: what counts changes of the values, where they do not by themselves.
        extremes, magnitude, energy, total, zeros: places of quick numbers.
        ranges: place of the count of each range.
        difference, reference: places of Σ|cur − prev| and Σ|prev|, piece by piece.
        between: what Σ|prev| lies between, where that is known from the steps before.
        previous: values of the step before, of weights that are compared.
        look: the exact look that was begun when the tensor was seen, because its values would not stay.
        record: what an exact look found.
        rough: the record says whether there are NaN, Inf or anything but zeros, not how many.
        told: it was judged, and its hits were reported, when it was made.
        fetched: its quick numbers, where they were fetched then, before those of the step.
        order: grows from one tensor to the next.
    """

    name: str
    slot: int
    meta: TensorMeta
    plan: Plan | None = None
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
    look: exact.Look | None = None
    record: Record | None = None
    rough: bool = False
    told: bool = False
    fetched: Fetched | None = None
    order: int = field(default_factory=_ORDER.__next__)

    @property
    def intact(self) -> bool:
        """Whether the values are there and still what they were."""
        counter = self.counter() if isinstance(self.counter, weakref.ref) else self.counter
        if counter is None and self.counter is None:
            counter = self.tensor
        if self.tensor is None or counter is None:
            return False
        return version_of(counter) == self.version and not freed(self.tensor)

    @property
    def screened(self) -> bool:
        """Whether quick numbers were asked for."""
        return self.extremes >= 0 or self.magnitude >= 0 or self.energy >= 0


class Room:
    """Bytes of values that may be held at a time, beside weights and gradients, which live anyway.

    Attributes:
        left: bytes that are free.
        make: lets go of what is needed least; called when there is no room.
    """

    def __init__(self, budget: int) -> None:
        """All of it is free."""
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
    """Weights, gradients or optimizer state that are watched alike, with one quick number each.

    A step has hundreds of them and on a healthy run nobody looks at one: they become lines when somebody does.

    Attributes:
        names: of the nodes; the slot is 0.
        tensors: their values, which live as long as the step.
        versions: of the values, when they were seen.
        plan: the watchpoints on all of them.
        energy: place of the root of Σx² of the first one; those of the others follow.
        order: as of ``Capture``.
    """

    names: list[str]
    tensors: list[torch.Tensor]
    versions: list[int]
    plan: Plan
    energy: int
    order: int = field(default_factory=_ORDER.__next__)

    def capture(self, number: int) -> Capture:
        """One of them as a line of its own."""
        tensor = local(self.tensors[number])
        return Capture(
            self.names[number],
            0,
            meta_of(tensor),
            self.plan,
            tensor,
            self.versions[number],
            energy=self.energy + number,
            order=self.order,
        )


class Step:
    """The tensors of one step, or of one pass, in the order in which they were made."""

    def __init__(self, room: Room | int, volatile: set[Key] | None = None) -> None:
        """Empty.

        Args:
            room: for values that are held; or how much there is.
            volatile: see there; shared with another one.
        """
        self.entries: list[Capture | TensorGroup] = []
        self.starts: list[int] = []
        """When calls of the model began, as ``Capture.order``."""
        self.waiting = Waiting()
        self.volatile: set[Key] = set() if volatile is None else volatile
        """Tensors that were changed in place after they had been seen, in this step or one before."""
        self.fetched: Fetched | None = None
        self._by_key: dict[Key, Capture] = {}
        self._room = room if isinstance(room, Room) else Room(room)
        self._taken = 0
        self._held: set[int] = set()
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], Capture]] = {}

    def __iter__(self) -> Iterator[Capture]:
        """All tensors in order, each as a line."""
        if any(isinstance(each, TensorGroup) for each in self.entries):
            self._take_apart()
        return (each for each in self.entries if isinstance(each, Capture))

    def __len__(self) -> int:
        """How many lines and groups there are: what bounds a step."""
        return len(self.entries)

    def names(self) -> Iterator[str]:
        """Of all tensors; those of groups stay together."""
        for each in self.entries:
            if isinstance(each, Capture):
                yield each.name
            else:
                yield from each.names

    def _take_apart(self) -> None:
        entries, self.entries = self.entries, []
        for each in entries:
            if isinstance(each, Capture):
                self.entries.append(each)
            else:
                for number in range(len(each.names)):
                    self.add(each.capture(number))

    def get(self, key: Key) -> Capture | None:
        """What was seen last under a name."""
        if key not in self._by_key:
            self._take_apart()
        return self._by_key.get(key)

    def clear(self) -> None:
        """Forgets the step; what is volatile stays known."""
        for capture in self.entries:
            if isinstance(capture, Capture) and capture.tensor is not None and not capture.intact:
                self.volatile.add((capture.name, capture.slot))
        self.drop_values()
        self.entries.clear()
        self.starts.clear()
        self._by_key.clear()
        self._known.clear()
        self.waiting = Waiting()
        self.fetched = None

    def drop_values(self) -> None:
        """Holds no values any more; what was found out about them stays."""
        for each in self.entries:
            if isinstance(each, Capture):
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
        self._by_key[capture.name, capture.slot] = capture

    def adopt(self, captures: Sequence[Capture]) -> None:
        """Takes lines of passes of their own in, at their place in time. What was known first under a name stays."""
        for capture in captures:
            self._by_key.setdefault((capture.name, capture.slot), capture)
        self.entries += captures
        self.entries.sort(key=lambda each: each.order)

    def see(
        self,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: Plan | None,
        *,
        look: bool = False,
        exactly: bool = False,
        screen: bool = False,
        mutated: bool = False,
        alone: Waiting | None = None,
        counter: Counter | None = None,
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
        """
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        counts = counter if isinstance(counter, torch.Tensor) else values if counter is None else tensor
        capture.version = version_of(counts) + (mutated and not values.is_inference())
        same = self._same(tensor) if alone is None else None
        waiting = self.waiting if alone is None else alone
        if alone is None:
            self._known[id(tensor)] = (weakref.ref(tensor), capture)
        held = self._hold(capture, values, for_now=alone is not None)
        if held and not values.is_inference():
            capture.counter = counting(part_of(counter)) if isinstance(counter, torch.Tensor) else counter
        if not numeric(tensor):
            return capture
        if same is not None and same.plan is plan and (held or same.look is not None):
            copy_numbers(same, capture)
        elif held and not exactly and (plan is not None or screen):
            measure(capture, values, waiting, plan or EVERYTHING)
        elif exactly or (not held and (plan is not None or look)):
            capture.look = exact.begin(values, plan.need if plan is not None else RequiredStats(), waiting)
        return capture

    @property
    def room(self) -> int:
        """Bytes of values for which there is room."""
        return self._room.left

    def glance(self, name: str, slot: int, tensor: torch.Tensor, plan: Plan | None, *, look: bool = False) -> Capture:
        """As ``see``, of a tensor whose memory is used for something else soon: its quick numbers have to do."""
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        if numeric(tensor) and look:  # memory that NumPy has seen can be resized no more, which FSDP does
            capture.look = exact.on_device(values, plan.need if plan is not None else RequiredStats(), self.waiting)
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
        """The node that was seen last to make this very tensor as it is now, empty for others."""
        same = self._same(tensor)
        return same.name if same is not None else ""

    def _take(self, size: int) -> bool:
        taken = self._room.take(size)
        self._taken += size if taken else 0
        return taken

    def _same(self, tensor: torch.Tensor) -> Capture | None:
        """An earlier line about the very same tensor: what a container returns is what its last module made."""
        seen = self._known.get(id(tensor))
        if seen is None or seen[0]() is not tensor or tensor.is_inference():
            return None
        return seen[1] if seen[1].version == version_of(tensor) else None


def copy_numbers(source: Capture, target: Capture) -> None:
    """Lets one line refer to the numbers of another."""
    for name in ("extremes", "magnitude", "energy", "total", "zeros", "ranges", "look"):
        setattr(target, name, getattr(source, name))


def measure(capture: Capture, values: torch.Tensor, waiting: Waiting, plan: Plan, *, many: bool = False) -> None:
    """Begins the quick numbers that a plan asks for, but the norms of ``many``."""
    if not values.numel():
        return
    x = quick.plain(dense(values))
    kinds = plan.many if many or x.dtype != torch.float16 else plan.single
    if kinds & Quick.EXTREMES:
        capture.extremes = quick.extremes(x, waiting)
    if kinds & Quick.MAGNITUDE and not many:
        capture.magnitude = waiting.add(quick.norm(x, 1))
    if kinds & Quick.ENERGY and not many:
        capture.energy = waiting.add(quick.norm(x, 2))
    if kinds & Quick.TOTAL:
        capture.total = waiting.add(quick.total(x))
    if kinds & Quick.ZEROS:
        capture.zeros = waiting.add((x == 0).sum())
    for bounds in plan.ranges:
        capture.ranges[bounds] = waiting.add(quick.inside(x, bounds))
