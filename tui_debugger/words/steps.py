"""Steps as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.words.numbers import brief

BEFORE_FIRST = "start"
"""What is shown in place of the number of the stop before the first step."""


def step_text(step: int) -> str:
    """``3``; ``start`` for what stood before the first step of a training that runs."""
    return BEFORE_FIRST if step < 0 else str(step)


def order_text(steps: Sequence[int], most: int = 0) -> str:
    """``2,1,4,3``: steps in the order in which they ran; of more than ``most`` (0: all) the first ones."""
    if most and len(steps) > most:
        return f"{brief(steps[:most])},…"
    return brief(steps)
