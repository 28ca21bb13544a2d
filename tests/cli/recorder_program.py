"""A training loop with a ``Recorder``: ``python -m tests.cli.recorder_program ADDRESS STEPS [OPTION=VALUE ...]``."""

from __future__ import annotations

import sys

import numpy as np

from tui_debugger.live.client import Recorder


def main(address: str, steps: int, **options: str) -> None:
    """Trains.

    Args:
        address: of the debugger.
        steps: how many.
        options: ``bad``: steps (comma-separated) whose Log of ``x`` is of a zero; ``begin``: the initial weights are
            shown before the first step; ``grow``: the step from which on there is one more tensor.
    """
    bad = {int(step) for step in options.get("bad", "").split(",") if step}
    grow = int(options.get("grow", steps))
    recorder = Recorder(address)
    weight = np.ones((2, 3), np.float32)
    if "begin" in options:
        recorder.record("fc.weight", weight, kind="weight")
        recorder.begin()
    for step in range(steps):
        x = np.full((2, 3), float(step not in bad), np.float32)
        with np.errstate(divide="ignore"):
            log = np.log(x)
        weight = weight * np.float32(0.9)
        recorder.record("x", x)
        recorder.record("net/log", log, kind="log", inputs=("x",))
        recorder.record("net/sum", log.sum(keepdims=True), kind="sum", inputs=("net/log",))
        if step >= grow:
            recorder.record("net/late", log + 1, kind="add", inputs=("net/log",))
        recorder.record("fc.weight", weight, kind="weight")
        recorder.step()
    recorder.close()


if __name__ == "__main__":
    where, number, *more = sys.argv[1:]
    main(where, int(number), **dict(each.split("=", 1) for each in more))
