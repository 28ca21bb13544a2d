"""What the bytes of files and their time stamps say about which node they belong to.

The contents of files are small numbers: equal numbers, equal bytes. Nets are the places where one tensor was written to
disk more than once: the output file of an operator and the input files of everything that reads it hold the same bytes.
Such a set of places is a net, each place a pin (row, side, slot). A parameter has several values within one step, so
its pins fall into several nets:

* Its own file is written at the end of the step. It equals what every reader saw when nothing updates it, and
  what the operator that updates it in place saw (inputs of in-place operators are written after the kernel).
* Readers behind Loads of one memory state (the second input of Load) saw one value, usually the previous step's.

``TimeBounds`` holds timestamps against the graph: nothing runs before what it waits for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.edges import edges
from tui_debugger.graph.table import PARAMETER, NodeTable

Load = Callable[[int], "npt.NDArray[Any]"]
UNKNOWN = -1
"""Number of a file that cannot be read."""

WHOLE = 1 << 18
"""Up to this many bytes a tensor is read whole, bigger ones are sampled first."""
SAMPLES, SAMPLE = 16, 1 << 12
"""Blocks of a sample, spread evenly, and bytes of one block."""


class Digest(NamedTuple):
    """The contents of one file.

    Attributes:
        text: digest of the values' bytes, or of samples of them.
        size: bytes of the values; negative for a file that holds no array, whoever reads it.
        whole: whether all of them are in the digest.
    """

    text: bytes
    size: int
    whole: bool


NO_ARRAY = Digest(bytes(16), -1, whole=True)


class Known(Protocol):
    """Digests that someone remembers."""

    def get(self, index: int, whole: bool) -> Digest | None:
        """The digest of a file, of all its values when ``whole``, else as ``ContentNumbers`` would take it."""

    def put(self, index: int, digest: Digest) -> None:
        """Takes the digest of a file that was read."""


class ContentNumbers:
    """Numbers for contents, each file read once.

    Shapes are not compared: files of Reshape keep the shape before the reshape.
    """

    def __init__(self, load: Load, *, whole: bool = False, known: Known | None = None) -> None:
        """``load`` gives the array of a file; UnreadableTensorError makes its value unknown.

        With ``whole`` nothing is sampled. What is ``known`` is not read. Numbers of different objects have nothing to
        do with each other.
        """
        self._load, self._whole, self._known = load, whole, known
        self._number: dict[int, int] = {}
        self._digest: dict[bytes, int] = {}
        self._sampled: dict[int, int] = {}

    def of(self, index: int) -> int:
        """Number of a file's contents, UNKNOWN when it cannot be read."""
        number = self._number.get(index)
        if number is None:
            number = self._number[index] = self._look(index)
        return number

    def sampled(self, index: int) -> int:
        """Bytes of a file whose number stands for a sample, so that others with it may still differ; else 0."""
        return self._sampled.get(index, 0)

    def _look(self, index: int) -> int:
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
"""In place of the row of a memory state: read without Load, through a Load that names no state."""
_MAX_HOPS = 10_000


@dataclass(frozen=True)
class Flow:
    """The nets of a table.

    Attributes:
        nets: sets of pins that hold equal bytes, each with two pins or more.
        of_row: indices of the nets that touch a row.
        effects: rows of operators that the graph orders by memory states, as it does all that write in place.
        slots: number of input files that a row can have.
    """

    nets: list[tuple[Pin, ...]]
    of_row: Mapping[int, list[int]]
    effects: frozenset[int]
    slots: Mapping[int, int]


def build_flow(table: NodeTable) -> Flow:
    """All nets of a table. Use as ``table.memo(build_flow)``."""
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
    """Rows that stand for a state of memory: UpdateState and the constant that the first one starts from."""
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
    """Row of the memory state in which an operator reads a parameter; _DIRECT when it takes it without Load."""
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
) -> Flow:
    useful = [pins for pins in nets if len(pins) > 1]
    of_row: dict[int, list[int]] = defaultdict(list)
    for index, pins in enumerate(useful):
        for row in dict.fromkeys(pin[0] for pin in pins):
            of_row[row].append(index)
    return Flow(useful, of_row, effects, slots)


_LATEST = 2**63 - 1
_MAX_PASSES = 16  # rows come nearly in execution order, so two passes do, but for damaged graphs


class TimeBounds:
    """Between which timestamps each operator must have run.

    An operator waits for its inputs and, through its memory state, for what came before it in that memory. Operators
    without a timestamp and nodes that only route values pass on what they wait for themselves.
    """

    def __init__(self, table: NodeTable, times: Mapping[int, Sequence[int]]) -> None:
        """``times`` are the timestamps that each operator may have, by row, ascending.

        Parameters must not be in it: they are written when the step ends.
        """
        self._times = times
        consumers = np.repeat(np.arange(len(table)), np.diff(table.in_ptr)).tolist()
        links = [link for link in zip(table.in_node.tolist(), consumers, strict=True) if 0 <= link[0] != link[1]]
        self._low = self._spread([0] * len(table), links, self._earliest)
        backward = [(consumer, producer) for producer, consumer in reversed(links)]
        self._high = self._spread([-_LATEST] * len(table), backward, self._latest)

    def _spread(self, bound: list[int], links: list[tuple[int, int]], own: Callable[[int, int], int]) -> list[int]:
        """Raises the bound of every target to the own time of its sources, until nothing moves."""
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
        """Tells whether a row may have run at a time; an unknown time (0) fits."""
        return not timestamp or self._low[row] < timestamp < -self._high[row]


def ranks(order: Mapping[int, int]) -> dict[int, int]:
    """Position of each key when sorted by its value: compares execution order with timestamps."""
    return {key: place for place, key in enumerate(sorted(order, key=lambda key: (order[key], key)))}
