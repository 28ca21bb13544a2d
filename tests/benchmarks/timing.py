"""What the benchmarks are made of: a result with its bar, the best of several runs, memory of a process tree."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SAMPLE_SECONDS: Final = 0.005
"""How often the memory of a process tree is looked at."""


@dataclass(frozen=True)
class Result:
    """One number of a benchmark.

    Attributes:
        name: what was measured.
        value: the number, a ratio where the machine must not matter.
        bar: what it has to reach; None for a number that only informs.
        unit: what the number counts, ``x`` for a ratio.
        at_most: the bar is a limit from above.
        note: how it came about, a few words.
    """

    name: str
    value: float
    bar: float | None = None
    unit: str = "x"
    at_most: bool = False
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the bar is reached; without a bar it is."""
        return self.bar is None or (self.value <= self.bar if self.at_most else self.value >= self.bar)


Clock = Callable[[], float]


def best(run: Callable[[], object], repeat: int = 3, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of several runs: what else the machine does only ever adds to the time."""
    seconds = []
    for _ in range(repeat):
        start = clock()
        run()
        seconds.append(clock() - start)
    return min(seconds)


def best_of_each(*runs: Callable[[], object], repeat: int = 3, clock: Clock = time.perf_counter) -> list[float]:
    """The best time of each of several runs, taken in turn, so that a busy moment of the machine meets all alike.

    Of runs that only compute, in one thread, ``time.process_time`` as the clock leaves out when others ran meanwhile.
    """
    rounds = [[best(run, 1, clock) for run in runs] for _ in range(repeat)]
    return [min(times) for times in zip(*rounds, strict=True)]


def anonymous_peak(command: Sequence[str]) -> tuple[int, int]:
    """Runs a command and watches the anonymous memory (RssAnon) of it and all its descendants together.

    Pages of files do not count: the kernel takes them back when it needs them. Needs Linux.

    Returns:
        The greatest sum that was seen, in bytes, and the exit code.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        family, peak = {process.pid}, 0
        while True:
            peak = max(peak, _anonymous_bytes(family))
            try:
                return peak, process.wait(SAMPLE_SECONDS)
            except subprocess.TimeoutExpired:
                continue


def _anonymous_bytes(family: set[int]) -> int:
    """RssAnon of all processes in a family; adds those that were born into it since the last time."""
    parents, sizes = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "status").read_text()
            except OSError:  # it has just ended
                continue
            fields = dict(line.split(":", 1) for line in status.splitlines())
            parents[int(entry.name)] = int(fields["PPid"])
            sizes[int(entry.name)] = int(fields.get("RssAnon", "0 kB").split()[0]) << 10
    size = 0
    while len(family) > size:  # a child may have a lower number than its parent
        size = len(family)
        family.update(pid for pid, parent in parents.items() if parent in family)
    return sum(sizes.get(pid, 0) for pid in family)
