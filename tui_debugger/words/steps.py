"""Steps as people read them."""

from __future__ import annotations

BEFORE_FIRST = "start"
"""What is shown in place of the number of the stop before the first step."""


def step_text(step: int) -> str:
    """``3``; ``start`` for what stood before the first step of a training that runs."""
    return BEFORE_FIRST if step < 0 else str(step)
