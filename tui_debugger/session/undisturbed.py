"""Questions that are put again when what they are about changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tui_debugger.errors import RenumberedError

T = TypeVar("T")

ATTEMPTS = 3
"""So often a step is judged whose files change meanwhile; the last answer then stands, but is not kept as known."""
RENUMBERINGS = 20
"""So often a question is put whose node numbers change meanwhile: there is no answer that could stand instead."""


def undisturbed(ask: Callable[[], T]) -> T:
    """The answer to a question, which is put again when the nodes were read anew in the middle of it."""
    for _ in range(RENUMBERINGS):
        with suppress(RenumberedError):
            return ask()
    return ask()
