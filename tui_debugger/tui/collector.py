"""The garbage collector of a process that does nothing but show one run: out of the way of the first frame and of keys.

Whoever starts the process switches the collector off until ``settle`` is called, at the first frame.

Nothing is kept that the collector would have found: it looks at the same objects, when nobody waits for the screen
rather than in the middle of a key. Only what never becomes quiet, a key that is held or a long check, still makes it
run by itself.
"""

from __future__ import annotations

import asyncio
import gc

THRESHOLDS = (1_000, 2, 1_000)
"""When the collector runs by itself: often, on little (below 1 ms), and hardly ever on everything (a page or two)."""
FULL_WHEN_QUIET = 30
"""Collections of the middle generation between two of everything, where nobody waits."""
QUIET = 0.15
"""Seconds without output that make a quiet moment: longer than the panes take to follow the cursor."""


def settle() -> None:
    """What is there now stays: the collector need not look at it ever again.

    That is the screen itself, and later the names of hundreds of thousands of nodes. What was set aside before and is
    garbage since, such as a dialog that was open then, is found first.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def tidy() -> None:
    """Looks for garbage among what is new, and from time to time among all that did not stay for good."""
    gc.collect(2 if gc.get_count()[2] >= FULL_WHEN_QUIET else 1)


class Tidying:
    """Calls ``tidy`` once after each burst of output."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._due: asyncio.TimerHandle | None = None

    def written(self) -> None:
        """Something was written by the event loop: the quiet begins anew."""
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(QUIET, tidy)
