"""Steps as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui_debugger.words.numbers import brief
from tui_debugger.words.tensors import round_text

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey

BEFORE_FIRST = "start"
"""What is shown in place of the number of the stop before the first step."""


def step_text(step: int, round: int = 0) -> str:  # noqa: A002 - see TensorKey
    """``3``; ``3#2`` for its second run; ``start`` for what stood before the first step of a training that runs."""
    return BEFORE_FIRST if step < 0 else f"{step}{round_text(round)}"


def run_text(key: TensorKey) -> str:
    """``3``, ``3#2``: the step of a tensor, and which writing of it."""
    return step_text(key.step, key.round)


def order_text(steps: Sequence[int], most: int = 0) -> str:
    """``2,1,4,3``: steps in the order in which they ran; of more than ``most`` (0: all) the first ones."""
    if most and len(steps) > most:
        return f"{brief(steps[:most])},…"
    return brief(steps)
