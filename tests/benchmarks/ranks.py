"""Many ranks: a dump of statistics of 64 ranks x 5,000 nodes x 3 steps, how long the grid takes to open and to move.

``python -m tests.benchmarks.ranks FOLDER [RANKS NODES STEPS]`` writes one and measures.
"""

from __future__ import annotations

import asyncio
import csv
import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.timing import Result, best
from tests.tui.screens_host import opened
from tests.tui.views.host import PlainHost
from tui_debugger.session import Session
from tui_debugger.session.session import open_dump
from tui_debugger.tui.view_opener import NOWHERE
from tui_debugger.tui.views.ranks import RanksView
from tui_debugger.tui.views.registry import ViewTarget

RANKS, NODES, STEPS = 64, 5_000, 3
ODD: Final = 37
"""The rank whose statistics are others from step 1 on."""
_TITLES: Final = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
    "L2Norm Value,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)
_PER_LAYER: Final = 25


def write_ranks(root: Path, ranks: int = RANKS, nodes: int = NODES, steps: int = STEPS) -> Path:
    """Writes the statistics that MindSpore records of every node of every rank, without values."""
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0.1, 100.0, nodes)
    names = [f"Default_network-Net_layer-{at // _PER_LAYER}_block_MatMul-op{at}" for at in range(nodes)]
    for rank in range(ranks):
        metadata = root / f"rank_{rank}/.dump_metadata"
        metadata.mkdir(parents=True)
        (metadata / "data_dump.json").write_text('{"common_dump_settings": {"saved_data": "statistic"}}')
        for step in range(steps):
            folder = root / f"rank_{rank}/Net/0/{step}"
            folder.mkdir(parents=True)
            scale = sizes * (1 + 1e-4 * rank + 0.01 * step) * (2 if rank == ODD and step else 1)
            with (folder / "statistic.csv").open("w") as file:
                file.write(_TITLES + "\n")
                when = 1_700_000_000_000_000 + step * 10**7
                file.writelines(
                    f'MatMul,{name},0,0,{when + at},output,0,4096,float32,"(32,32)",{size:.6g},{-size:.6g},'
                    f"{size / 100:.6g},{size * 10:.6g},0,0,0,0\n"
                    for at, (name, size) in enumerate(zip(names, scale.tolist(), strict=True))
                )
    return root


_KEYS: Final = (
    *["down"] * 20, *["right"] * 20, *["pagedown"] * 5, "end", "home", "t", *["down"] * 20, *["pagedown"] * 20, "f",
    *["right"] * 20,
)  # fmt: skip


async def _measure(session: Session) -> tuple[list[float], list[float]]:
    """Seconds until each part of the ranks is seen, and of each key."""
    parts: list[float] = []
    started = time.process_time()

    class Watched(RanksView):
        def _arrange(self) -> None:
            super()._arrange()
            parts.append(time.process_time() - started)

    view = Watched(PlainHost(session), ViewTarget(NOWHERE, -1))
    async with opened(view, (200, 50)) as screen:
        seen = list(parts)
        keys = []
        for key in _KEYS:
            before = time.process_time()
            await screen.press(key)
            keys.append(time.process_time() - before)
    return seen, keys


def run(scale: float, folder: Path) -> list[Result]:
    """Opens the grid on a written dump, and presses keys."""
    ranks, nodes = max(int(RANKS * scale), 2), max(int(NODES * scale), 2 * _PER_LAYER)
    root = write_ranks(folder / "dump", ranks, nodes)
    plain = best(lambda: _plain_rows(root), 1)
    with closing(open_dump(root)) as session:
        parts, keys = asyncio.run(_measure(session))
    size = f"{ranks} ranks of {nodes:,} nodes, {STEPS} steps"
    return [
        Result("the first ranks are seen, of csv.reader", parts[0] / plain, 1.0, at_most=True, note=size),
        Result("all ranks are seen, of csv.reader", parts[-1] / plain, 3.0, at_most=True, note=size),
        Result("a key", 1e3 * float(np.median(keys)), 10.0, unit="ms", at_most=True, note="processor time, the median"),
    ]


def _plain_rows(root: Path) -> int:
    """What a plain script takes for the same files: every row, and its numbers as numbers."""
    count = 0
    for path in sorted(root.rglob("statistic.csv")):
        with path.open(newline="") as file:
            for row in islice(csv.reader(file), 1, None):
                count += len([float(cell) for cell in row[10:]])
    return count


def main(folder: Path, *sizes: int) -> None:
    """Writes a dump unless it is there, and prints what opening and keys cost."""
    root = folder if folder.exists() else write_ranks(folder, *sizes)
    session = open_dump(root)
    parts, keys = asyncio.run(_measure(session))
    session.close()
    median, most = 1e3 * float(np.median(keys)), 1e3 * max(keys)
    print(  # noqa: T201 - a program
        f"the first ranks are seen after {parts[0]:.2f} s, all after {parts[-1]:.2f} s; "
        f"a key takes {median:.1f} ms, at most {most:.1f} ms (processor time)"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
