"""A training whose workers are forked while a debugger is attached, as data loaders do.

``python -m tests.live.client.forking [records] [DIRECTORY]``: the child records, unless it only exits; a directory is
that of a flight recorder, which finds a NaN in the child.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from tests.live.client.training import say
from tui_debugger.live.client import Flight, Recorder


def child(recorder: Recorder, *, records: bool, bad: bool) -> None:
    """What a worker does that was given everything of its parent."""
    for step in range(3 if records else 0):
        recorder.record("of a child", np.full(3, np.nan if bad and step == 1 else 1.0))
        recorder.step()
    say("child attached" if recorder.attached else "child off")
    sys.exit(0)  # atexit functions run, unlike in os._exit


def main(records: str = "", directory: str = "") -> None:
    """Two steps, a child in the middle of the second one."""
    recorder = Recorder(flight=Flight(directory) if directory else None)
    recorder.record("x", np.ones(3))
    recorder.step()
    recorder.record("x", np.ones(3))
    if (pid := os.fork()) == 0:
        child(recorder, records=bool(records), bad=bool(directory))
    _, status = os.waitpid(pid, 0)
    say(f"child ended with {status}")
    recorder.step()
    recorder.close()
    say("trained")


if __name__ == "__main__":
    main(*sys.argv[1:])
