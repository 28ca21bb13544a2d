"""Where the update operators of optimizers get their learning rate, momentum and weight decay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tui_debugger.graph.categories import Update, update_of
from tui_debugger.graph.edges import real_consumers, real_inputs
from tui_debugger.graph.table import NodeTable


@dataclass(frozen=True, slots=True)
class Settings:
    """Input slots of an update operator; None for what it takes from elsewhere.

    Attributes:
        rate: the learning rate.
        momentum: the share of the last change that is kept.
        decay: the weight decay.
        normalised: the step is divided by a running size of the gradient, so that it hardly depends on that size.
    """

    rate: int | None = None
    momentum: int | None = None
    decay: int | None = None
    normalised: bool = False


_SETTINGS: Final[dict[str, Settings]] = {
    "momentum": Settings(2, 4),
    "kerasmomentum": Settings(2, 4),
    "sparseapplymomentum": Settings(2, 5),
    "fusedscaleapplymomentum": Settings(3, 5),
    "fusedweightapplymomentum": Settings(3, 5, 0),
    "fusedweightscaleapplymomentum": Settings(4, 6, 0),
    "combinescalemomentum": Settings(3, 5),
    "combineweightdecayscalemomentum": Settings(4, 6, 0),
    "sgd": Settings(2, 4),
    "gradientdescent": Settings(1),
    "proximalgradientdescent": Settings(1),
    "adam": Settings(5, 6, normalised=True),
    "fusedsparseadam": Settings(5, 6, normalised=True),
    "fusedsparselazyadam": Settings(5, 6, normalised=True),
    "adamweightdecay": Settings(3, 4, 7, normalised=True),
    "fusedcastadamweightdecay": Settings(3, 4, 7, normalised=True),
    "fusedadam": Settings(5, 0, normalised=True),
    "fusedadamweightdecay": Settings(5, 0, normalised=True),
    "adamw": Settings(5, 7, 6, normalised=True),
    "adamwithamsgrad": Settings(6, normalised=True),
    "adamwithamsgradv2": Settings(6, 7, normalised=True),
    "adamax": Settings(4, 5, normalised=True),
    "lamb": Settings(3, 4, 7, normalised=True),
    "adadelta": Settings(3, normalised=True),
    "sparseapplyadadelta": Settings(3, normalised=True),
    "adagrad": Settings(2, normalised=True),
    "adagradv2": Settings(2, normalised=True),
    "adagradda": Settings(4, normalised=True),
    "sparseapplyadagradda": Settings(5, normalised=True),
    "proximaladagrad": Settings(2, normalised=True),
    "sparseapplyproximaladagrad": Settings(2, normalised=True),
    "fusedsparseproximaladagrad": Settings(2, normalised=True),
    "ftrl": Settings(4, normalised=True),
    "ftrlv2": Settings(4, normalised=True),
    "rmsprop": Settings(3, normalised=True),
    "centeredrmsprop": Settings(5, normalised=True),
    "sparseapplyrmsprop": Settings(3, normalised=True),
    "sparseapplycenteredrmsprop": Settings(4, 6, normalised=True),
    "addsign": Settings(2, normalised=True),
    "powersign": Settings(2, normalised=True),
    "optimizerupdate": Settings(2),  # whether it is normalised shows in what the optimizer keeps: see ``divides``
}
"""By the names of ``graph.categories.UPDATES``. Slots: the operators' signatures in mindspore.ops (1.3 to 2.10)."""
_NONE: Final = Settings()
_RATE_NAME: Final = re.compile(r"(?:^|[._/])(?:learning_?rate|lr)(?:$|[._/\d])", re.IGNORECASE)


def settings_of(op_type: str) -> Settings:
    """The slots of an update operator; all None for another operator, and for one that takes them as attributes."""
    name = op_type.lower()
    for each in (name, name.removesuffix("d")):
        for spelling in (each, each.removeprefix("apply")):
            if spelling in _SETTINGS:
                return _SETTINGS[spelling]
    return _NONE


_SIZES: Final = re.compile(r"(?:exp_avg_sq|square_avg|exp_inf|sum|acc_delta)(?:$|[._])")


def divides(states: Iterable[str]) -> bool:
    """Whether an optimizer of PyTorch that keeps these keeps a running size of the gradient, which it divides by."""
    return any(_SIZES.match(name) is not None for name in states)


def is_learning_rate(name: str) -> bool:
    """Tells whether a parameter is a learning rate by its name."""
    return _RATE_NAME.search(name) is not None


def group_start(update: Update, slot: int) -> int:
    """First slot of the group that an input slot belongs to, of operators that update many parameters at once."""
    return slot - slot % update.stride if update.stride else 0


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
    """Returns what the graph says that a parameter is made of in the step; None where it says nothing.

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
