"""Estimates the size of a dump, from an existing dump or from the size of the model, with the assumptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tui_debugger.errors import TdbgError
from tui_debugger.text.numbers import plural, size

ROW: Final = 250
"""Bytes of a row of statistics: in statistic.csv, or of a tensor in dump.json."""
TENSORS: Final = 20_000
"""Default number of tensors of a step: inputs and outputs of a model of some 80 layers."""
ELEMENT: Final = 4
"""Bytes of an element: float32."""
INPUTS: Final = 6
"""How often a parameter is an input in a step: forward, backward, gradient, and three of the optimizer (Adam)."""
OUTPUTS: Final = 7
"""How often it is an output: gradient, three of the optimizer, and three as parameter files after it."""
ACTIVATION_INPUTS: Final = 2
"""How often an activation is an input: of the next operator, and of the backward pass."""
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


@dataclass(frozen=True, slots=True)
class StepSize:
    """One step of one rank on disk; ``inputs`` and ``outputs`` are bytes."""

    inputs: int
    outputs: int
    tensors: tuple[int, int]
    """Numbers of inputs and of outputs."""
    of: str
    """Source of the numbers."""
    assumes: tuple[str, ...] = ()
    """Assumptions, as sentences."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The size of a dump."""

    per_step: int
    """Bytes of one step of one rank."""
    steps: int | None
    """Number of steps; None: all, however many there will be."""
    ranks: int
    assumes: tuple[str, ...] = field(default=())
    """Assumptions, as sentences."""

    @property
    def total(self) -> int | None:
        """Bytes of the whole dump; None for an unknown number of steps."""
        return None if self.steps is None else self.per_step * self.steps * self.ranks

    @property
    def text(self) -> str:
        each = f"{size(self.per_step)} for a step of a rank"
        if self.total is None:
            return f"{each}, for every step of {plural(self.ranks, 'rank')}: say with --steps how many there will be"
        return f"about {size(self.total)}: {each}, {plural(self.steps or 0, 'step')}, {plural(self.ranks, 'rank')}"


def amount(text: str, what: str) -> int:
    """The number in ``7B``, ``350M``, ``1.5G`` or ``1000``; raises TdbgError for any other text."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kKmMgGbBtT]?)", text.strip())
    number = float(match[1]) * _UNITS[match[2].lower()] if match is not None else 0
    if not 1 <= number <= 10**18:
        raise TdbgError(
            f"{text!r} is no number of {what}", where=f"--{what}", hint=f"such as --{what} 7B, 350M or 1000"
        )
    return round(number)


def from_model(parameters: int, activations: int | None, *, optimizer: bool = True) -> StepSize:
    """The size of a step from the number of parameters that one rank holds.

    ``activations``: bytes of all activations of a step of one rank; None: as many as of the parameters. ``optimizer``:
    the recorder sees the tensors of the optimizer.
    """
    weights = parameters * ELEMENT
    made = weights if activations is None else activations
    inputs, outputs = (INPUTS, OUTPUTS) if optimizer else (3, 1)
    assumes = [
        f"{ELEMENT} bytes an element (float32), and every rank holds all {parameters:,} parameters",
        f"each parameter is written {inputs} times as an input and {outputs} times as an output of a step "
        + ("(forward, backward, gradient, Adam, parameter files)" if optimizer else "(forward, backward, gradient)"),
        f"activations: {size(made)} a step, written once as an output and {ACTIVATION_INPUTS} times as an input"
        + (" (a guess: as large as the parameters; --activations says it)" if activations is None else ""),
        f"{TENSORS:,} tensors a step, {ROW} bytes for the statistics of one",
    ]
    tensors = TENSORS // 2
    return StepSize(
        inputs * weights + ACTIVATION_INPUTS * made,
        outputs * weights + made,
        (tensors, tensors),
        "the number of parameters",
        tuple(assumes),
    )


def estimate(
    step: StepSize,
    *,
    steps: int | None,
    ranks: int,
    sides: str = "both",
    saves: str = "tensor",
    chosen: bool = False,
    sample: Mapping[str, int] | None = None,
) -> Estimate:
    """Estimates a dump of ``steps`` like ``step`` on each of ``ranks``.

    ``sides`` is ``both``, ``input`` or ``output``; ``saves`` is ``tensor``, ``statistic`` or ``full``. ``chosen``: only
    some operators are recorded, and the estimate is for all. ``sample``: at most ``elements`` of each tensor.
    """
    assumes = list(step.assumes) or [f"each step is as large as one of {step.of}"]
    wanted = [(step.inputs, step.tensors[0])] * (sides != "output") + [(step.outputs, step.tensors[1])] * (
        sides != "input"
    )
    values, rows = sum(each for each, _ in wanted), sum(count for _, count in wanted)
    if sample is not None:
        values = min(values, rows * (sample["elements"] * ELEMENT + 128))
        assumes.append(f"at most {sample['elements']:,} elements of a tensor")
    total = values * (saves != "statistic") + ROW * rows * (saves != "tensor")
    if chosen:
        assumes.append("all operators, although only some are chosen: it will be less")
    return Estimate(total, steps, ranks, tuple(assumes))
