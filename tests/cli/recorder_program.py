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
            shown before the first step; ``product``: a node reads the weight; ``grow``: the step from which on there
            is one more tensor; ``note``: a text that is noted with the mean and the number of the step; ``beside``: a
            second ``Recorder`` at the same time shows a tensor that is bad in these steps; ``before``: one of which
            the tensor is bad in these steps has recorded and is closed.
    """
    if "before" in options:
        with Recorder(address) as earlier:
            for step in range(steps):
                _show_another(earlier, step, options["before"])
    beside = Recorder(address) if "beside" in options else None
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
        before, weight = weight, weight * np.float32(0.9)
        recorder.record("x", x)
        recorder.record("net/log", log, kind="log", inputs=("x",))
        if "product" in options:  # a weight that is read: its value of before the step
            with np.errstate(divide="ignore", invalid="ignore"):
                product = np.log(x * before)
            recorder.record("net/product", product, kind="matmul", inputs=("x", "fc.weight"))
        recorder.record("net/sum", log.sum(keepdims=True), kind="sum", inputs=("net/log",))
        if step >= grow:
            recorder.record("net/late", log + 1, kind="add", inputs=("net/log",))
        recorder.record("fc.weight", weight, kind="weight")
        if "note" in options:
            recorder.note(loss=float(log.mean()), batch=step, phase=options["note"])
        recorder.step()
        if beside is not None:
            _show_another(beside, step, options["beside"])
    recorder.close()
    if beside is not None:
        beside.close()


def _show_another(recorder: Recorder, step: int, bad: str) -> None:
    recorder.record("other/x", np.full(3, np.nan if str(step) in bad.split(",") else 1.0))
    recorder.step()


if __name__ == "__main__":
    where, number, *more = sys.argv[1:]
    main(where, int(number), **dict(each.split("=", 1) for each in more))
