"""What a debugger costs a PyTorch training: the time of a step attached, off and detached, in turns in one run.

The debugger is a real server in another process. It sets the recommended watchpoints and answers every stop with "run".
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.timing import Result

ROUNDS: Final = 6
STEPS: Final = 6
"""Steps of one block; the first ones, in which hooks are installed and the graph is learned, are not counted."""
WARM: Final = 3
ENOUGH: Final = 0.1
"""Seconds that a step takes at least, without a debugger."""
BARS: Final = {"cpu": 1.25, "cuda": 1.05}
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Size:
    """A transformer and its batch."""

    layers: int
    width: int
    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.layers} layers, width {self.width}, batch {self.batch} x {self.length}"


def run(scale: float, folder: Path) -> list[Result]:  # noqa: ARG001 - no files
    """Ratios on the CPU, and on a GPU when there is one."""
    if importlib.util.find_spec("torch") is None:
        return [Result("PyTorch is not installed: nothing was measured", 0.0, unit="", note="an extra: torch-tests")]
    import torch

    results = on_device("cpu", scale)
    if torch.cuda.is_available():
        results += on_device("cuda", scale)
    return results


def on_device(device: str, scale: float) -> list[Result]:
    """The ratios on one device."""
    size = calibrated(device) if scale > 0.05 else Size(1, 16, 2, 8)
    rounds, steps = (max(2, round(ROUNDS * scale)), STEPS) if scale > 0.05 else (1, 1)
    with debugger() as address:
        modes = {
            "detached": None,
            "off": {"address": ""},
            "module": {"address": address},
            "op": {"address": address, "level": "op"},
        }
        times: dict[str, list[float]] = {mode: [] for mode in modes}
        loop, sick = Loop(size, device), Loop(size, device, bad=True)
        bad: list[float] = []
        for _ in range(rounds):
            for mode, options in modes.items():
                times[mode] += loop.block(options, steps)
            bad += sick.block(modes["op"], steps)
    base = min(times["detached"])
    spread = statistics.median(times["detached"]) / base
    note = f"{size}; {base * 1e3:.0f} ms a step (median {spread:.2f}x)"

    def ratio(mode: str, name: str, bar: float | None = None) -> Result:
        return Result(f"{device}: {name}", min(times[mode]) / base, bar, at_most=True, note=note)

    judged = scale > 0.05
    return [
        ratio("module", "recommended watchpoints, module level / detached", BARS[device] if judged else None),
        ratio("op", "recommended watchpoints, op level / detached"),
        ratio("off", "no address / detached", 1.05 if judged else None),
        Result(f"{device}: op level, a step that is all NaN / a healthy one", min(bad) / min(times["op"]), note=note),
    ]


class Loop:
    """A training that goes on from block to block; ``bad``: all that it computes is NaN."""

    def __init__(self, size: Size, device: str, *, bad: bool = False) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(size.width, max(1, size.width // 64), 4 * size.width, batch_first=True)
        self.model = nn.Sequential(
            nn.Embedding(1000, size.width),
            nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False),
            nn.Linear(size.width, 1000),
        ).to(device)
        if bad:
            nn.init.constant_(self.model[0].weight, math.nan)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.words = torch.randint(0, 1000, (size.batch, size.length), device=device)
        self.loss = nn.CrossEntropyLoss()
        self._wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None

    def block(self, options: dict[str, Any] | None, steps: int) -> list[float]:
        """Seconds of some steps; ``options`` of ``attach``, None: without it."""
        import tui_debugger.torch as tdbg

        handle = None if options is None else tdbg.attach(self.model, self.optimizer, **options)
        if handle is not None and options and options["address"]:
            self.step()
            if not handle.attached:
                raise RuntimeError("the debugger did not come")
        for _ in range(WARM if steps > 1 else 0):
            self.step()
        times = [self.step() for _ in range(steps)]
        if handle is not None:
            handle.detach()
        return times

    def step(self) -> float:
        """One step, and how long it took."""
        self._wait()
        start = time.perf_counter()
        out = self.model(self.words)
        loss = self.loss(out.flatten(0, 1), self.words.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self._wait()
        return time.perf_counter() - start


def calibrated(device: str) -> Size:
    """A size whose step takes long enough on this machine: the batch is doubled until it does."""
    layers, width, length = (4, 256, 128) if device == "cpu" else (12, 1024, 512)
    batch = 4
    while True:
        size = Size(layers, width, batch, length)
        loop = Loop(size, device)
        if min(loop.block(None, 5)) >= ENOUGH:
            return size
        batch *= 2


@contextmanager
def debugger() -> Iterator[str]:
    """A debugger in another process; its address."""
    command = [sys.executable, "-m", "tests.benchmarks.live_overhead"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(20)


def drive() -> None:
    """The debugger: serves until the standard input is closed."""
    from tests.live.torch.watching import recommended_watchpoints
    from tui_debugger.live.server import serve
    from tui_debugger.live.server.training import RemoteTraining
    from tui_debugger.live.wire import Event

    server = serve("127.0.0.1", 0)
    known: dict[int, int] = {}

    def heard(training: RemoteTraining | None, event: Event) -> None:
        if training is None or event is not Event.STOPPED:
            return
        if known.get(training.info.number) != len(training.graphs[0]):
            known[training.info.number] = len(training.graphs[0])
            training.set_watchpoints(recommended_watchpoints(training))
        training.run(None, stop_on_hit=False)

    server.listen(heard)
    sys.stdout.write(server.address + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    drive()
