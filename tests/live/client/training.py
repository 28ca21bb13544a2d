"""A training loop in NumPy, as people write them: two layers, mean squared error, gradient descent.

With ``explode`` the learning rate is so high that values overflow after some steps. Run as a program it prints a line
for every step, so that tests see it going on.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

from tui_debugger.live.client import Flight, Recorder, TrainingTerminated


class Network:
    """Weights, and a step of gradient descent that shows everything to a recorder."""

    def __init__(self, rate: float = 0.01, width: int = 16) -> None:
        random = np.random.default_rng(1)
        self.rate = rate
        self.w1 = random.normal(0, 0.3, (8, width)).astype(np.float32)
        self.w2 = random.normal(0, 0.3, (width, 1)).astype(np.float32)
        self.x = random.normal(0, 1, (32, 8)).astype(np.float32)
        self.y = self.x.sum(axis=1, keepdims=True) ** 2

    def step(self, recorder: Recorder) -> float:
        """One step, without ``recorder.step()``."""
        with np.errstate(all="ignore"):
            z = self.x @ self.w1
            h = np.maximum(z, 0)
            out = h @ self.w2
            error = out - self.y
            loss = float((error * error).mean())
            d_out = 2 * error / len(error)
            d_w2 = h.T @ d_out
            d_h = (d_out @ self.w2.T) * (z > 0)
            d_w1 = self.x.T @ d_h
        recorder.record("input", self.x)
        recorder.record("fc1/matmul", z, kind="matmul", inputs=("input", "fc1.weight"))
        recorder.record("fc1/relu", h, kind="relu", inputs=("fc1/matmul",))
        recorder.record("fc2/matmul", out, kind="matmul", inputs=("fc1/relu", "fc2.weight"))
        recorder.record("loss", loss, kind="loss", inputs=("fc2/matmul",))
        recorder.record("fc2.weight", d_w2, kind="gradient", inputs=("fc1/relu", "loss"))
        recorder.record("fc1.weight", d_w1, kind="gradient", inputs=("input", "fc2.weight"))
        with np.errstate(all="ignore"):
            self.w1 -= np.float32(self.rate) * d_w1
            self.w2 -= np.float32(self.rate) * d_w2
        recorder.record("fc1.weight", self.w1, kind="weight")
        recorder.record("fc2.weight", self.w2, kind="weight")
        return loss


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Trains and prints ``step N`` after every step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a step takes besides")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--flight")
    parser.add_argument("--wait-for", type=int, default=-1, help="waits for a line of input before this step")
    options = parser.parse_args()
    extra: dict[str, Any] = {"flight": Flight(options.flight, steps=5)} if options.flight else {}
    network = Network(options.rate, options.width)
    recorder = Recorder(timeout=options.timeout, program="NumPy", **extra)
    try:
        for number in range(options.steps):
            if number == options.wait_for:
                sys.stdin.readline()
            network.step(recorder)
            recorder.step()
            say(f"step {number}")
            time.sleep(options.pause)
    except TrainingTerminated:
        say("terminated")
        raise
    say("trained")


if __name__ == "__main__":
    main()
