"""A training whose workers are forked while a debugger is attached, as data loaders do."""

from __future__ import annotations

import os
import sys

import numpy as np

from tests.live.client.training import say
from tui_debugger.live.client import Recorder


def child(recorder: Recorder) -> None:
    """What a worker does that was given everything of its parent."""
    for _ in range(3):
        recorder.record("of a child", np.ones(3))
        recorder.step()
    say("child attached" if recorder.attached else "child off")
    sys.exit(0)  # atexit functions run, unlike in os._exit


def main() -> None:
    """Two steps, a child between them."""
    recorder = Recorder()
    recorder.record("x", np.ones(3))
    recorder.step()
    if (pid := os.fork()) == 0:
        child(recorder)
    _, status = os.waitpid(pid, 0)
    say(f"child ended with {status}")
    recorder.record("x", np.ones(3))
    recorder.step()
    recorder.close()
    say("trained")


if __name__ == "__main__":
    main()
