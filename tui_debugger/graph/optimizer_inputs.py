"""Where the update operators of optimizers get their learning rate, momentum and weight decay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tui_debugger.graph.categories import Update


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
    """Whether a parameter is a learning rate by its name."""
    return _RATE_NAME.search(name) is not None


def group_start(update: Update, slot: int) -> int:
    """First slot of the group that an input slot belongs to, of operators that update many parameters at once."""
    return slot - slot % update.stride if update.stride else 0
