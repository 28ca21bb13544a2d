"""Assigns groups of files to nodes by their contents and time stamps.

Contents of files are small numbers: equal numbers mean equal bytes. A net is a set of pins (row, side, slot) at which
one tensor was written to disk: the output file of an operator, and the input files of all operators that read it. A
parameter has several values within a step, so its pins fall into several nets:

- Its own file is written at the end of the step. It equals the values of all readers when nothing updates it, and the
  input of the operator that updates it in place (inputs of in-place operators are written after the kernel).
- Readers behind Loads of one memory state (the second input of Load) saw one value, usually of the previous step.

``TimeBounds`` compares timestamps with the graph: no operator runs before those it waits for.

Variables are nodes. The nodes of a ``Pool`` share a stock of choices; a choice is one *content* (the bytes of all files
of a group) and exists as often as groups have it, so that equal groups do not multiply the search. A ``VariableNet``
says that several variables hold equal bytes at certain places.

Propagation (arc consistency over nets, counting over pools) narrows the choices; the rest is searched: a choice stays
possible only when a complete assignment with it exists. The search has a budget; choices that it does not reach stay
possible, which errs on the side of doubt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from tui_debugger.arrays import Array, Int64, Mask
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.table import PARAMETER, NodeTable, edges

Load = Callable[[int], "Array"]
UNKNOWN = -1
"""Number of a file that cannot be read."""

WHOLE = 1 << 18
"""Largest size in bytes of tensors that are read whole; larger ones are sampled first."""
SAMPLES, SAMPLE = 16, 1 << 12
"""Number of blocks of a sample, spread evenly, and bytes of one block."""


class Digest(NamedTuple):
    """The contents of one file."""

    text: bytes
    """Digest of the bytes of the values, or of samples of them."""
    size: int
    """Bytes of the values; negative for a file that never holds an array."""
    whole: bool
    """The digest covers all values."""


NO_ARRAY = Digest(bytes(16), -1, whole=True)


class DigestStore(Protocol):
    """Digests that are remembered."""

    def get(self, index: int, whole: bool) -> Digest | None:
        """The digest of all values of a file when ``whole``, else the one that ``ContentNumbers`` would compute."""

    def put(self, index: int, digest: Digest) -> None:
        """Takes the digest of a file that was read."""


class ContentNumbers:
    """Numbers for contents, each file read once.

    Shapes are not compared: files of Reshape keep the shape before the reshape.
    """

    def __init__(self, load: Load, *, whole: bool = False, known: DigestStore | None = None) -> None:
        """``load`` returns the array of a file; an UnreadableTensorError makes its number ``UNKNOWN``.

        With ``whole`` nothing is sampled; files in ``known`` are not read. Numbers of different objects are unrelated.
        """
        self._load, self._whole, self._known = load, whole, known
        self._number: dict[int, int] = {}
        self._digest: dict[bytes, int] = {}
        self._sampled: dict[int, int] = {}

    def of(self, index: int) -> int:
        number = self._number.get(index)
        if number is None:
            number = self._number[index] = self._number_of(index)
        return number

    def sampled(self, index: int) -> int:
        """Bytes of a file whose number is of a sample, so that files with this number may still differ; else 0."""
        return self._sampled.get(index, 0)

    def _number_of(self, index: int) -> int:
        digest = self._known.get(index, self._whole) if self._known is not None else None
        if digest is None:
            digest = self._read(index)
            if digest is None:
                return UNKNOWN
            if self._known is not None:
                self._known.put(index, digest)
        if digest.size < 0:
            return UNKNOWN
        if not digest.whole:
            self._sampled[index] = digest.size
        return self._digest.setdefault(digest.text, len(self._digest))

    def _read(self, index: int) -> Digest | None:
        try:
            array = self._load(index)
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        except UnreadableTensorError as problem:
            return None if problem.__cause__ is not None else NO_ARRAY  # a cause may be gone another time
        except OSError:
            return None
        hasher = blake2b(content.size.to_bytes(8, "little"), digest_size=16)
        whole = self._whole or content.size <= WHOLE
        if whole:
            hasher.update(content.data)
        else:
            for start in np.linspace(0, content.size - SAMPLE, SAMPLES).astype(np.int64):
                hasher.update(content[start : start + SAMPLE].data)
        return Digest(hasher.digest(), content.size, whole)


IN, OUT = 0, 1
Pin = tuple[int, int, int]
"""(node row, side, slot)."""
_DIRECT, _INITIAL = -1, -2
"""In place of a memory state's row: read without Load, and through a Load without a state."""
_MAX_HOPS = 10_000


@dataclass(frozen=True)
class NetFlow:
    """The nets of a table."""

    nets: list[tuple[Pin, ...]]
    """Each has two pins or more."""
    of_row: Mapping[int, list[int]]
    """Indices of the nets that touch a row."""
    effects: frozenset[int]
    """Rows of operators with a memory state among their inputs, as all have that write in place."""
    slots: Mapping[int, int]
    """Number of input files that a row can have."""


def build_flow(table: NodeTable) -> NetFlow:
    """Builds all nets of a table. Use as ``table.memo(build_flow)``."""
    states = _memory_states(table)
    effects = frozenset(row for row in range(len(table)) if any(source in states for source, _ in table.inputs(row)))
    nets: dict[tuple[int, int], list[Pin]] = defaultdict(list)
    uses: dict[int, list[Pin]] = defaultdict(list)
    slots: dict[int, int] = {}
    data = edges(table)
    pointers, sources, outputs = data.in_ptr.tolist(), data.in_node.tolist(), data.in_slot.tolist()
    for row in range(len(table)):
        span = range(pointers[row], pointers[row + 1])
        slots[row] = len(span)
        for slot, at in enumerate(span):
            source = sources[at]
            if source < 0 or source in states:
                continue
            if table.op_type(source) == PARAMETER:
                uses[source].append((row, IN, slot))
            else:
                nets[source, outputs[at]].append((row, IN, slot))
    full = [((source, OUT, slot), *pins) for (source, slot), pins in nets.items()]
    for parameter, pins in uses.items():
        full += _parameter_nets(table, parameter, pins, effects)
    return _index(full, effects, slots)


def _memory_states(table: NodeTable) -> set[int]:
    """Rows that stand for a state of memory: UpdateState, and the constant that the first one starts from."""
    states: set[int] = set()
    for row in range(len(table)):
        op_type = table.op_type(row).lower()
        if op_type == "updatestate":
            states.update((row, *(source for source, _ in table.inputs(row)[:1])))
        elif op_type == "load":
            states.update(source for source, _ in table.inputs(row)[1:2])
    return states


def _parameter_nets(
    table: NodeTable, parameter: int, pins: Iterable[Pin], effects: frozenset[int]
) -> list[tuple[Pin, ...]]:
    own: Pin = (parameter, OUT, 0)
    read: dict[int, list[Pin]] = defaultdict(list)
    for pin in pins:
        read[_memory(table, pin[0], parameter)].append(pin)
    direct = read.pop(_DIRECT, [])
    updates = [pin for pin in direct if pin[0] in effects]
    if not updates:
        return [(own, *direct, *(pin for pins in read.values() for pin in pins))]
    nets = [tuple(pins) for pins in read.values()]
    if len(updates) == 1:  # several may each leave another value: which of them saw the last one is not known
        nets.append((own, *updates))
    return nets


def _memory(table: NodeTable, row: int, parameter: int) -> int:
    """Row of the memory state in which an operator reads a parameter; ``_DIRECT`` without Load."""
    for source, _ in table.inputs(row):
        memory = _DIRECT
        for _ in range(_MAX_HOPS):
            if source == parameter:
                return memory
            op_type = table.op_type(source).lower() if source >= 0 else ""
            inputs = table.inputs(source) if op_type in ("load", "depend") else []
            if not inputs:
                break
            if op_type == "load" and memory == _DIRECT:
                memory = inputs[1][0] if len(inputs) > 1 else _INITIAL
            source = inputs[0][0]  # noqa: PLW2901 (the walk starts at an input)
    return _INITIAL


def _index(
    nets: Iterable[tuple[Pin, ...]],
    effects: frozenset[int],
    slots: Mapping[int, int],
) -> NetFlow:
    useful = [pins for pins in nets if len(pins) > 1]
    of_row: dict[int, list[int]] = defaultdict(list)
    for index, pins in enumerate(useful):
        for row in dict.fromkeys(pin[0] for pin in pins):
            of_row[row].append(index)
    return NetFlow(useful, of_row, effects, slots)


_LATEST = 2**63 - 1
_MAX_PASSES = 16  # rows come nearly in execution order, so two passes do, but for damaged graphs


class TimeBounds:
    """Bounds of the timestamp of each operator.

    An operator waits for its inputs and, through its memory state, for earlier operators on that memory. Operators
    without a timestamp, and nodes that only route values, pass on their own bounds.
    """

    def __init__(self, table: NodeTable, times: Mapping[int, Sequence[int]]) -> None:
        """``times`` are the possible timestamps of each operator by row, ascending.

        Parameters must not be in it: they are written when the step ends.
        """
        self._times = times
        consumers = np.repeat(np.arange(len(table)), np.diff(table.in_ptr)).tolist()
        links = [link for link in zip(table.in_node.tolist(), consumers, strict=True) if 0 <= link[0] != link[1]]
        self._low = self._spread([0] * len(table), links, self._earliest)
        backward = [(consumer, producer) for producer, consumer in reversed(links)]
        self._high = self._spread([-_LATEST] * len(table), backward, self._latest)

    def _spread(self, bound: list[int], links: list[tuple[int, int]], own: Callable[[int, int], int]) -> list[int]:
        """Raises the bound of every target to the own time of its sources, until nothing changes."""
        for _ in range(_MAX_PASSES):
            changed = False
            for source, target in links:
                time = own(source, bound[source])
                if time > bound[target]:
                    bound[target] = time
                    changed = True
            if not changed:
                break
        return bound

    def _earliest(self, row: int, low: int) -> int:
        times = self._times.get(row, ())
        at = bisect_right(times, low)
        return times[at] if at < len(times) else low

    def _latest(self, row: int, negative_high: int) -> int:
        times = self._times.get(row, ())
        at = bisect_left(times, -negative_high) - 1
        return -times[at] if at >= 0 else negative_high

    def fits(self, row: int, timestamp: int) -> bool:
        """Whether a row may have run at a time; an unknown time (0) fits."""
        return not timestamp or self._low[row] < timestamp < -self._high[row]


def ranks(order: Mapping[int, int]) -> dict[int, int]:
    """Position of each key when sorted by value, to compare execution order with timestamps."""
    return {key: place for place, key in enumerate(sorted(order, key=lambda key: (order[key], key)))}


Domains = MutableMapping[int, Mask]
"""The choices that each variable may still take."""

BUDGET = 30_000
"""Number of net and pool checks that the search of one problem may cost: about a second."""
LARGEST = 300
"""Largest number of variables of a component that is searched; larger components stay open."""
LARGEST_FREE = 24
"""The same where no net ties the variables: there counting alone nearly always leaves only possible choices."""


@dataclass(frozen=True)
class Pool:
    """Variables ``first`` to ``first + size - 1``, which share a stock of choices."""

    first: int
    size: int
    stock: Int64
    """How often each choice exists; sums to ``size``."""
    domains: Mask
    """Bool[size, choices]: the choices that each variable may take."""
    ranking: Callable[[int], list[int]]
    """Returns the choices of a variable (by its place in the pool), best first."""


@dataclass(frozen=True)
class VariableNet:
    """Variables that hold equal numbers."""

    pins: tuple[tuple[int, Int64], ...]
    """(variable, number of each of its choices at this place); ``UNKNOWN`` fits everything."""
    known: frozenset[int] | None
    """Numbers that settled nodes hold at the other pins; None without any."""


@dataclass(frozen=True, slots=True)
class _NumberedNet:
    """A net whose numbers are replaced by small ones, so that sets of them are masks."""

    pins: tuple[tuple[int, Int64], ...]
    """See ``VariableNet``; ``UNKNOWN`` (-1) indexes the last element of a mask, which is always True."""
    known: Mask
    """Mask of the numbers that the settled pins allow."""
    narrows: bool
    """``known`` excludes a number."""

    @classmethod
    def of(cls, net: VariableNet) -> _NumberedNet:
        distinct = np.unique(np.concatenate([numbers for _, numbers in net.pins]))
        distinct = distinct[distinct != UNKNOWN]
        known = np.ones(len(distinct) + 1, np.bool_)
        if net.known is not None:
            known[:-1] = np.isin(distinct, np.fromiter(net.known, np.int64, len(net.known)))
        pins = tuple(
            (variable, np.where(numbers == UNKNOWN, UNKNOWN, np.searchsorted(distinct, numbers)))
            for variable, numbers in net.pins
        )
        return cls(pins, known, net.known is not None)


@dataclass
class Solution:
    """The result of the search."""

    chosen: Int64
    possible: list[Mask]
    """Choices of each variable that some complete assignment has."""
    strained: set[int] = field(default_factory=set)
    """Variables with a pin that fits no assignment: their values contradict the graph."""


class _Trial(dict[int, Mask]):
    """The changed domains; all others are the problem's, which may have a hundred thousand."""

    __slots__ = ("_others",)

    def __init__(self, others: Mapping[int, Mask], changed: Mapping[int, Mask]) -> None:
        super().__init__(changed)
        self._others = others

    def __missing__(self, variable: int) -> Mask:
        return self._others[variable]

    def trial(self) -> _Trial:
        """A copy that can be changed without changing this one."""
        return _Trial(self._others, self)


class Solver:
    """Solves one problem; use once."""

    def __init__(self, pools: Sequence[Pool], nets: Sequence[VariableNet]) -> None:
        self._pools, self._nets, self._budget = pools, nets, BUDGET
        self._pool_of = [index for index, pool in enumerate(pools) for _ in range(pool.size)]
        self._nets_of: list[list[int]] = [[] for _ in self._pool_of]
        self._ignored: set[tuple[int, int]] = set()
        self._strained: set[int] = set()
        for index, net in enumerate(nets):
            for variable, _ in net.pins:
                self._nets_of[variable].append(index)
        self._wires = [_NumberedNet.of(net) for net in nets]

    def solve(self) -> Solution:
        domains: Domains = dict(enumerate(mask.copy() for pool in self._pools for mask in pool.domains))
        self._propagate(domains, range(len(self._nets)), range(len(self._pools)), relax=True)
        self._budget = BUDGET
        chosen = np.full(len(domains), -1, np.int64)
        possible = list(domains.values())
        for component in self._components(domains):
            self._search_component(domains, component, possible)
        for variable, mask in enumerate(possible):
            if mask.sum() == 1:
                chosen[variable] = int(mask.argmax())
        self._choose(chosen, possible)
        return Solution(chosen, possible, self._strained)

    # --- propagation -------------------------------------------------------------------------------------------

    def _propagate(self, domains: Domains, nets: Iterable[int], pools: Iterable[int], *, relax: bool = False) -> bool:
        """Narrows ``domains`` in place. False: no assignment is left; ``relax`` drops evidence instead."""
        net_queue, pool_queue = deque(nets), dict.fromkeys(pools)
        queued = set(net_queue)
        while net_queue or pool_queue:
            if net_queue:
                index = net_queue.popleft()
                queued.discard(index)
                changed = self._tighten(index, domains, relax=relax)
            else:
                pool = next(iter(pool_queue))
                del pool_queue[pool]
                changed = self._count(pool, domains)
                if changed is None and relax:
                    changed = self._give_up(pool, domains)
            if changed is None:
                return False
            for variable in changed:
                pool_queue[self._pool_of[variable]] = None
                fresh = [net for net in self._nets_of[variable] if net not in queued]
                net_queue.extend(fresh)
                queued.update(fresh)
        return True

    def _tighten(self, index: int, domains: Domains, *, relax: bool) -> list[int] | None:
        """Makes one net consistent; returns the variables that lost choices, None when nothing fits."""
        self._budget -= 1
        wires = self._wires[index]
        allowed = wires.known
        narrowed = wires.narrows
        pins = [(*pin, place) for place, pin in enumerate(wires.pins) if (index, place) not in self._ignored]
        pins.sort(key=lambda pin: int(np.count_nonzero(domains[pin[0]])))
        holding = []
        for variable, places, place in pins:
            seen = np.zeros_like(allowed)
            seen[places[domains[variable]]] = True
            if not seen[UNKNOWN]:
                seen[UNKNOWN] = True
                common = allowed & seen
                if np.count_nonzero(common) == 1:
                    if not relax:
                        return None
                    self._ignored.add((index, place))
                    self._strained.add(variable)
                    continue
                allowed, narrowed = common, True
            holding.append((variable, places))
        if not narrowed:
            return []
        changed = []
        for variable, places in holding:
            keep = domains[variable] & allowed[places]
            if np.count_nonzero(keep) < np.count_nonzero(domains[variable]):
                domains[variable] = keep
                changed.append(variable)
        return changed

    def _count(self, index: int, domains: Domains) -> list[int] | None:
        """Compares demand with stock; returns the variables that lost choices, None when they cannot match."""
        self._budget -= 1
        pool = self._pools[index]
        span = range(pool.first, pool.first + pool.size)
        matrix = np.stack([domains[variable] for variable in span])
        before = matrix.sum(axis=1)
        while True:
            open_rows = matrix.sum(axis=1) > 1
            taken, wanted = matrix[~open_rows].sum(axis=0), matrix.sum(axis=0)
            if not matrix.any(axis=1).all() or (taken > pool.stock).any() or (wanted < pool.stock).any():
                return None
            sold_out = (taken == pool.stock) & (wanted > taken)
            only = (wanted == pool.stock) & (wanted > taken) & ~sold_out
            if sold_out.any():
                matrix[np.ix_(open_rows, sold_out)] = False
            elif only.any():
                columns = np.flatnonzero(only)
                takers = np.flatnonzero(matrix[:, columns].any(axis=1))
                taking = columns[matrix[np.ix_(takers, columns)].argmax(axis=1)]
                matrix[takers] = False
                matrix[takers, taking] = True  # a choice that two others claim starves the other: seen in the next turn
            else:
                break
        changed = np.flatnonzero(matrix.sum(axis=1) < before)
        for row in changed.tolist():
            domains[span[row]] = matrix[row].copy()
        return [span[row] for row in changed.tolist()]

    def _give_up(self, index: int, domains: Domains) -> list[int]:
        """Frees a pool whose evidence contradicts itself: all its choices are possible, and its pins are ignored."""
        pool = self._pools[index]
        span = range(pool.first, pool.first + pool.size)
        for variable in span:
            domains[variable] = pool.stock > 0
            self._strained.add(variable)
        for net in {net for variable in span for net in self._nets_of[variable]}:
            places = enumerate(self._nets[net].pins)
            self._ignored.update((net, place) for place, (variable, _) in places if variable in span)
        return []

    # --- search ------------------------------------------------------------------------------------------------

    def _components(self, domains: Domains) -> list[list[int]]:
        """Open variables that depend on each other: through a net that is still open, or through their pool."""
        parent = list(range(len(domains)))

        def top(variable: int) -> int:
            while parent[variable] != variable:
                parent[variable] = variable = parent[parent[variable]]
            return variable

        bundles: dict[tuple[str, int], list[int]] = defaultdict(list)
        for variable, mask in domains.items():
            if mask.sum() > 1:
                bundles["pool", self._pool_of[variable]].append(variable)
        for index, net in enumerate(self._nets):
            for place, (variable, numbers) in enumerate(net.pins):
                if (index, place) not in self._ignored and len(set(numbers[domains[variable]].tolist())) > 1:
                    bundles["net", index].append(variable)
        for members in bundles.values():
            for other in members[1:]:
                parent[top(other)] = top(members[0])
        components: dict[int, list[int]] = defaultdict(list)
        for variable, mask in domains.items():
            if mask.sum() > 1:
                components[top(variable)].append(variable)
        return list(components.values())

    def _tied(self, component: list[int], domains: Domains) -> bool:
        """Whether a net makes the choice of one variable depend on another's."""
        members = set(component)
        for index in {net for variable in component for net in self._nets_of[variable]}:
            pins = [pin for pin in self._wires[index].pins if pin[0] in members]
            if sum(len(set(places[domains[variable]].tolist())) > 1 for variable, places in pins) > 1:
                return True
        return False

    def _free(self, component: list[int], domains: Domains) -> bool:
        """Whether the variables share one domain and one pool, and no net ties them."""
        first = domains[component[0]]
        alike = all(np.array_equal(domains[variable], first) for variable in component[1:])
        return alike and len({self._pool_of[v] for v in component}) == 1 and not self._tied(component, domains)

    def _search_component(self, domains: Domains, component: list[int], possible: list[Mask]) -> None:
        """Finds the choices of a component that some complete assignment has, within the budget."""
        if self._free(component, domains):
            return
        if len(component) > (LARGEST if self._tied(component, domains) else LARGEST_FREE):
            return
        proven = {variable: np.zeros_like(domains[variable]) for variable in component}
        before = {variable: domains[variable] for variable in component}
        for variable in component:
            for choice in self._ranked(variable, domains[variable]):
                if proven[variable][choice]:
                    continue
                found = self._attempt(domains, component, (variable, choice))
                if found is None and self._budget <= 0:
                    for member in component:
                        possible[member] = domains[member]
                    return
                if found is None:
                    domains[variable] = domains[variable].copy()
                    domains[variable][choice] = False
                    continue
                for member in component:
                    proven[member] |= found[member]
            if not proven[variable].any():  # no assignment at all: choices excluded on the way come back
                self._strained.update(component)
                for member in component:
                    possible[member] = domains[member] = before[member]
                return
        for variable in component:
            possible[variable] = proven[variable]

    def _attempt(self, domains: Domains, component: list[int], fixed: tuple[int, int] | None) -> Domains | None:
        """A complete assignment of a component (depth first, fewest choices first); None when there is none."""
        trial = domains.trial() if isinstance(domains, _Trial) else _Trial(domains, {})
        touched: list[int] = []
        if fixed is not None:
            variable, choice = fixed
            trial[variable] = np.zeros_like(trial[variable])
            trial[variable][choice] = True
            touched = [variable]
        nets = [net for variable in touched for net in self._nets_of[variable]]
        if self._budget <= 0 or not self._propagate(trial, nets, {self._pool_of[variable] for variable in component}):
            return None
        still_open = [variable for variable in component if trial[variable].sum() > 1]
        if not still_open:
            return trial
        variable = min(still_open, key=lambda member: int(trial[member].sum()))
        for choice in self._ranked(variable, trial[variable]):
            found = self._attempt(trial, component, (variable, choice))
            if found is not None:
                return found
        return None

    def _ranked(self, variable: int, mask: Mask) -> list[int]:
        pool = self._pools[self._pool_of[variable]]
        return [choice for choice in pool.ranking(variable - pool.first) if mask[choice]]

    def _choose(self, chosen: Int64, possible: list[Mask]) -> None:
        """Chooses for open variables: a consistent assignment by preference, or at least one that fits the stock."""
        open_variables = [variable for variable, mask in enumerate(possible) if mask.sum() != 1]
        if not open_variables:
            return
        self._budget = BUDGET // 4
        domains = dict(enumerate(mask if mask.any() else np.ones_like(mask) for mask in possible))
        for component in self._components(domains):
            if len(component) > LARGEST or self._free(component, domains):
                continue  # any choice in stock is as good: by preference
            found = self._attempt(domains, component, None)
            for variable in component:
                if found is not None:
                    chosen[variable] = int(found[variable].argmax())
        for pool in self._pools:
            _fill(pool, chosen, possible)


def _fill(pool: Pool, chosen: Int64, possible: list[Mask]) -> None:
    """Gives the rest of a pool's stock to its variables without a choice, by preference."""
    left = pool.stock.copy()
    waiting = []
    for variable in range(pool.first, pool.first + pool.size):
        if chosen[variable] >= 0:
            left[chosen[variable]] -= 1
        else:
            waiting.append(variable)
    for strict in (True, False):
        for variable in list(waiting):
            ranked = pool.ranking(variable - pool.first)
            best = next((c for c in ranked if left[c] > 0 and (possible[variable][c] or not strict)), -1)
            if best >= 0:
                chosen[variable] = best
                left[best] -= 1
                waiting.remove(variable)
