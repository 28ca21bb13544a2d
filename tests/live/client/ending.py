"""A training that goes wrong in one step and ends there: ``python -m tests.live.client.ending HOW DIRECTORY``."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

from tests.live.client.training import say
from tui_debugger.live.client import Flight, Recorder

BAD = 3
STATUS = {
    "break": 0,
    "exit": 3,
    "raise": 1,
    "caught": 0,
    "in a thread": 0,
    "SIGTERM": -signal.SIGTERM,
    "SIGHUP": -signal.SIGHUP,
    "SIGINT": -signal.SIGINT,
    "own handler": 7,
    "handler that goes on": 0,
    "ignored": 0,
    "fork": 0,
}
"""Exit status by how it ends: that of a program without a flight recorder."""


def main() -> None:
    """Records a NaN and ends in the same step."""
    how, directory = sys.argv[1:]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup, which has it ignored
    if how == "own handler":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    elif how == "handler that goes on":
        signal.signal(signal.SIGTERM, lambda *_: say("heard"))
    elif how == "ignored":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    recorder = Recorder("", flight=Flight(directory, steps=3, watch=["WNC"]))
    if how == "in a thread":
        thread = threading.Thread(target=train, args=(recorder, how))
        thread.start()
        thread.join()
    else:
        train(recorder, how)
    say("trained")


def train(recorder: Recorder, how: str) -> None:
    """Ends in the step that is bad."""
    weight = np.ones(4)
    for step in range(BAD + 2):
        recorder.record("x", np.ones(4) * step)
        recorder.record("h", np.full(4, np.nan if step == BAD else 1.0), kind="log", inputs=("x",))
        if step == BAD:
            if how == "break":
                break
            end(how)
        weight = weight + 1
        recorder.record("w", weight, kind="weight")
        recorder.step()


def end(how: str) -> None:
    """Ends the program, or something like it."""
    if how == "exit":
        sys.exit(3)
    elif how == "caught":
        try:
            raise ValueError("the loss is no number")
        except ValueError:
            pass
    elif how in ("raise", "in a thread"):
        raise ValueError("the loss is no number")
    elif how == "fork":
        if (pid := os.fork()) == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
    else:
        os.kill(os.getpid(), getattr(signal, how, signal.SIGTERM))


if __name__ == "__main__":
    main()
