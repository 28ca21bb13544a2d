"""Data flow as nets: the places where one tensor was written to disk more than once.

The output file of an operator and the input files of everything that reads it hold the same bytes. Such a set of
places is a net, each place a pin (row, side, slot). A parameter has several values within one step, so
its pins fall into several nets:

* Its own file is written at the end of the step. It equals what every reader saw when nothing updates it, and
  what the operator that updates it in place saw (inputs of in-place operators are written after the kernel).
* Readers behind Loads of one memory state (the second input of Load) saw one value, usually the previous step's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tui_debugger.graph.edges import edges
from tui_debugger.graph.table import PARAMETER, NodeTable

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
