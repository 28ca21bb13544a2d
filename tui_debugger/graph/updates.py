"""What belongs together because an optimizer's update operator brings it together: weight, gradient, state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tui_debugger.graph.categories import Update, update_of
from tui_debugger.graph.edges import real_consumers, real_inputs
from tui_debugger.graph.table import NodeTable

BUFFER_UPDATE: Final = "BufferUpdate"
"""Operator type of our client for PyTorch: a parameter or buffer, and what it is made of in the step."""
INPUT_UPDATE: Final = "InputUpdate"
"""The same for an input of the model: it had no values before the step."""


@dataclass(frozen=True, slots=True)
class Relative:
    """A tensor that belongs to another one.

    Attributes:
        word: what it is: ``weight``, ``gradient`` or ``state``.
        row, slot: the node that makes it, and which output of it.
    """

    word: str
    row: int
    slot: int


def relatives(nodes: NodeTable, row: int, slot: int = 0) -> tuple[Relative, ...]:
    """The weight, the gradient and the optimizer's state that an output of a node belongs to, itself left out.

    Empty where no update operator reads it directly: a gradient that is clipped or summed on its way is another tensor.
    """
    found: dict[tuple[int, int], Relative] = {}
    for operator, at in real_consumers(nodes, row, slot):
        update = update_of(nodes.op_type(operator))
        if update is None:
            continue
        inputs = real_inputs(nodes, operator)
        start = at - at % update.stride if update.stride else 0
        group = _group(update, start)
        if at not in (place for _, place in group):
            continue
        for word, place in group:
            if place != at and place < len(inputs) and inputs[place][0] >= 0:
                found.setdefault(inputs[place], Relative(word, *inputs[place]))
    found.pop((row, slot), None)
    return tuple(found.values())


def assigned(nodes: NodeTable, row: int) -> list[int] | None:
    """What the graph says that a parameter is made of in the step; None where it says nothing.

    Returns:
        Rows, -1 for what is not known: a buffer that a module changes is made by that module. Empty: the program
        itself put the values there.
    """
    for consumer, at in real_consumers(nodes, row):
        if at == 0 and nodes.op_type(consumer) in {BUFFER_UPDATE, INPUT_UPDATE}:
            return [made for made, _ in real_inputs(nodes, consumer)[1:]]
    return None


def outlives_steps(nodes: NodeTable, row: int) -> bool:
    """Whether a parameter that is made of something in the step had values before it, which the step may have used."""
    return not any(at == 0 and nodes.op_type(consumer) == INPUT_UPDATE for consumer, at in real_consumers(nodes, row))


def _group(update: Update, start: int) -> list[tuple[str, int]]:
    slots = [("weight", update.weight), ("gradient", update.gradient), *(("state", each) for each in update.states)]
    return [(word, start + slot) for word, slot in slots]
