"""What was seen of one step: a line for each tensor, its numbers, and its values as long as that is affordable."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from tui_debugger.analysis.record import Bounds, Need, Record
from tui_debugger.model import TensorMeta
from tui_debugger.torch import exact, quick
from tui_debugger.torch.elements import dense, local, meta_of, numeric
from tui_debugger.torch.internals import freed, version_of
from tui_debugger.torch.plans import Plan, Quick
from tui_debugger.torch.transfer import Fetched, Waiting

Key = tuple[str, int]
"""Node name and slot."""
NOWHERE = -1


@dataclass(slots=True, eq=False)
class Capture:
    """One tensor of the step. Places lead into ``Step.waiting``.

    Attributes:
        name, slot: the node that made it.
        meta: of the tensor.
        plan: the watchpoints on the node, None when it is not watched (or was not when the tensor was seen).
        tensor: its values, when they are held; valid only while ``intact``.
        version: of the values, when they were seen.
        extremes, magnitude, energy, total, zeros: places of quick numbers.
        ranges: place of the count of each range.
        difference, reference: places of Σ|cur − prev| and Σ|prev|, piece by piece.
        between: what Σ|prev| lies between, where that is known from the steps before.
        previous: values of the step before, of weights that are compared.
        look: the exact look that was begun when the tensor was seen, because its values would not stay.
        record: what an exact look found.
        rough: the record says whether there are NaN, Inf or anything but zeros, not how many.
        told: it was judged, and its hits were reported, when it was made.
    """

    name: str
    slot: int
    meta: TensorMeta
    plan: Plan | None = None
    tensor: torch.Tensor | None = None
    version: int = 0
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

    @property
    def intact(self) -> bool:
        """Whether the values are there and still what they were."""
        return self.tensor is not None and version_of(self.tensor) == self.version and not freed(self.tensor)

    @property
    def screened(self) -> bool:
        """Whether quick numbers were asked for."""
        return self.extremes >= 0 or self.magnitude >= 0 or self.energy >= 0


class Step:
    """The tensors of one step in the order in which they were made."""

    def __init__(self, budget: int) -> None:
        """Empty. ``budget``: bytes of values that may be held, beside weights and gradients, which live anyway."""
        self.captures: list[Capture] = []
        self.waiting = Waiting()
        self.volatile: set[Key] = set()
        """Tensors that were changed in place after they had been seen, in this step or one before."""
        self.fetched: Fetched | None = None
        self._by_key: dict[Key, Capture] = {}
        self._budget = budget
        self._left = budget
        self._held: set[int] = set()
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], Capture]] = {}

    def __iter__(self) -> Iterator[Capture]:
        """In order."""
        return iter(self.captures)

    def get(self, key: Key) -> Capture | None:
        """What was seen last under a name."""
        return self._by_key.get(key)

    def clear(self) -> None:
        """Forgets the step; what is volatile stays known."""
        for capture in self.captures:
            if capture.tensor is not None and not capture.intact:
                self.volatile.add((capture.name, capture.slot))
        self.captures.clear()
        self._by_key.clear()
        self._held.clear()
        self._known.clear()
        self.waiting = Waiting()
        self.fetched = None
        self._left = self._budget

    def add(self, capture: Capture) -> None:
        """A line of its own making."""
        self.captures.append(capture)
        self._by_key[capture.name, capture.slot] = capture

    def see(
        self,
        name: str,
        slot: int,
        tensor: torch.Tensor,
        plan: Plan | None,
        *,
        look: bool = False,
        mutated: bool = False,
    ) -> Capture:
        """A tensor was made: its quick numbers are begun, and its values are held when there is room for them.

        Where the values cannot be held, or are known to be changed in place later, everything about the tensor is
        found out now.

        Args:
            name: of the node.
            slot: of the output.
            tensor: the values.
            plan: its watchpoints.
            look: find everything out also where nothing is watched (yet).
            mutated: it was changed in place just now, which its version does not say yet.
        """
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        capture.version = version_of(values) + mutated
        same = self._same(tensor)
        self._known[id(tensor)] = (weakref.ref(tensor), capture)
        held = self._hold(capture, values)
        if not numeric(tensor):
            return capture
        if same is not None and same.plan is plan and (held or same.look is not None):
            copy_numbers(same, capture)
        elif held and plan is not None:
            measure(capture, values, self.waiting)
        elif not held and (plan is not None or look):
            capture.look = exact.begin(values, plan.need if plan is not None else Need(), self.waiting)
        return capture

    @property
    def room(self) -> int:
        """Bytes of values for which there is room."""
        return self._left

    def glance(self, name: str, slot: int, tensor: torch.Tensor, plan: Plan | None, *, look: bool = False) -> Capture:
        """As ``see``, of a tensor whose memory is used for something else soon: its quick numbers have to do."""
        capture = Capture(name, slot, meta_of(tensor), plan)
        self.add(capture)
        values = local(tensor)
        if numeric(tensor) and look:
            capture.look = exact.begin(values, plan.need if plan is not None else Need(), self.waiting)
        elif numeric(tensor):
            measure(capture, values, self.waiting)
        return capture

    def _hold(self, capture: Capture, values: torch.Tensor) -> bool:
        """Holds the values if there is room. What lies in memory that is held already takes none."""
        if (capture.name, capture.slot) in self.volatile:
            return False
        where = values.untyped_storage().data_ptr() if values.layout is torch.strided else id(values)
        if where not in self._held:
            if capture.meta.nbytes > self._left:
                return False
            self._left -= capture.meta.nbytes
            self._held.add(where)
        capture.tensor = values
        return True

    def _same(self, tensor: torch.Tensor) -> Capture | None:
        """An earlier line about the very same tensor: what a container returns is what its last module made."""
        seen = self._known.get(id(tensor))
        if seen is None or seen[0]() is not tensor:
            return None
        return seen[1] if seen[1].version == version_of(tensor) else None


def copy_numbers(source: Capture, target: Capture) -> None:
    """Lets one line refer to the numbers of another."""
    for name in ("extremes", "magnitude", "energy", "total", "zeros", "ranges", "look"):
        setattr(target, name, getattr(source, name))


def measure(capture: Capture, values: torch.Tensor, waiting: Waiting, *, many: bool = False) -> None:
    """Begins the quick numbers that the plan of a line asks for, but the norms of ``many``."""
    plan = capture.plan
    if plan is None or not values.numel():
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
