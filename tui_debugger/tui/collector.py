"""The garbage collector of a process that does nothing but show one run: out of the way of the first frame and of keys.

Whoever starts the process switches the collector off until ``settle`` is called, at the first frame.
"""

from __future__ import annotations

import gc

FULL = 100
"""Collections of the middle generation between two of the oldest, each of which takes as long as drawing two pages."""


def settle() -> None:
    """What is there now stays: the collector need not look at it ever again.

    That is the screen itself, and later the names of hundreds of thousands of nodes.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL)
    gc.enable()
