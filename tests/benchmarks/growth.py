"""How processor time grows with each size of a dump: the exponent of ``tdbg check``, 1 where it is linear.

Each size is doubled twice. The time of a dump with next to nothing in it is taken off, so that what every start costs
hides no square. Processor time, too, is more on a busy machine: what is short is measured several times.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.ranks import write_ranks
from tests.benchmarks.timing import Result
from tests.mounts.attacks import page, text
from tests.mounts.web import serving
from tests.sources.arrays import write_safetensors

BAR: Final = 1.1
"""The greatest exponent; what is linear measures a little more than 1 on a busy machine."""
DOUBLED: Final = (1, 2, 4)
TIMES: Final = 3
"""How often a command runs at most; the least counts."""
LONG: Final = 4.0
"""Seconds of a command that runs once, at most of all its runs but the last."""


def _tensors(form: str) -> Callable[[Path, int], list[str]]:
    def write(root: Path, count: int) -> list[str]:
        values = {f"layers.{at}.weight": np.ones(4, np.float32) for at in range(count)}
        path = root / "step_1" / f"x.{form}"
        path.parent.mkdir(parents=True)
        if form == "safetensors":
            write_safetensors(path, values)
        elif form == "npz":
            np.savez(path, **values)  # type: ignore[arg-type] # numpy's stub takes names for other arguments
        else:
            import torch  # the benchmark of its files only

            torch.save({name: torch.from_numpy(value) for name, value in values.items()}, path)
        return ["check", str(root), "--watch", "TO"]

    return write


def _files(root: Path, count: int) -> list[str]:
    (root / "step_1").mkdir(parents=True)
    for at in range(count):
        np.save(root / "step_1" / f"t{at}.npy", np.ones(4, np.float32))
    return ["check", str(root), "--watch", "TO"]


def _steps(root: Path, count: int) -> list[str]:
    for step in range(count):
        (root / f"step_{step}").mkdir(parents=True)
        for at in range(20):
            np.save(root / f"step_{step}" / f"t{at}.npy", np.full(4, 1.0 + step, np.float32))
    return ["check", str(root), "--watch", "TO", "--watch", "WNC"]


def _checkpoints(root: Path, count: int) -> list[str]:
    for step in range(count):
        (root / f"step_{step}").mkdir(parents=True)
        values = {f"layers.{at}.weight": np.full(4, 1.0 + step, np.float32) for at in range(100)}
        write_safetensors(root / f"step_{step}" / "x.safetensors", values)
    return ["trend", str(root)]


def _ranks(root: Path, count: int) -> list[str]:
    return ["ranks", str(write_ranks(root, count, nodes=60, steps=1))]


def _equal_ranks(root: Path, count: int) -> list[str]:
    """Statistics of msprobe that are the same on all ranks but one."""
    weight = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 8], "requires_grad": True}
    calls = {
        f"Module.layers.{at}.Linear.forward.0": {
            "input_args": [_numbers(weight, at)],
            "parameters": {"weight": _numbers(weight, at + 0.5)},
            "output": [_numbers(weight, at + 1)],
        }
        for at in range(60)
    }
    for rank in range(count):
        own = calls | ({"Module.odd.Linear.forward.0": {"output": [_numbers(weight, 0.1)]}} if rank == 1 else {})
        folder = root / "step0" / f"rank{rank}"
        folder.mkdir(parents=True)
        head = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
        (folder / "dump.json").write_text(json.dumps({**head, "data": own}))
        (folder / "construct.json").write_text("{}")
    return ["ranks", str(root)]


def _numbers(tensor: dict[str, object], mean: float) -> dict[str, object]:
    return {**tensor, "Max": mean + 1, "Min": mean - 1, "Mean": mean, "Norm": 9 + mean}


def _notices(root: Path, count: int) -> list[str]:
    """Ranks each of which has a step that was cut off in the middle, which is a notice of its own."""
    _equal_ranks(root, count)
    for calls in root.rglob("dump.json"):
        calls.write_bytes(calls.read_bytes()[:-200])
    return ["check", str(root), "--watch", "TO"]


def _operators(root: Path, count: int) -> list[str]:
    """A step of calls of operators, each of which passes NaN on."""
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 8], "requires_grad": True}
    calls = {
        f"Torch.add.{at}.forward": {"input_args": [_numbers(tensor, math.nan)], "output": [_numbers(tensor, math.nan)]}
        for at in range(count)
    }
    folder = root / "step0" / "rank0"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({**head, "data": calls}))
    (folder / "construct.json").write_text("{}")
    return ["check", str(root), "--watch", "TO"]


def _names_at_a_url(root: Path, count: int) -> list[str]:
    """A web server that lists files, and has none of them."""
    np.save(_step_of(root) / "there.npy", np.ones(4, np.float32))
    web = _servers.enter_context(serving(root))
    web.answers[r"^GET /run/step_1/$"] = text(page([f"t{at}.npy" for at in range(count)]))
    return ["check", f"{web.url}/run", "--watch", "TO"]


def _step_of(root: Path) -> Path:
    path = root / "run" / "step_1"
    path.mkdir(parents=True)
    return path


_servers: Final = ExitStack()


def _nodes(root: Path, count: int) -> list[str]:
    return ["check", str(write_ranks(root, 1, nodes=count, steps=1)), "--watch", "TO"]


def _hits(form: str) -> Callable[[Path, int], list[str]]:
    def write(root: Path, count: int) -> list[str]:
        values = {f"layers.{at}.weight": np.full(4, np.nan, np.float32) for at in range(count)}
        (root / "step_1").mkdir(parents=True)
        write_safetensors(root / "step_1" / "x.safetensors", values)
        return ["check", str(root), "--watch", "TO", *([form] if form else [])]

    return write


def _watchpoints(root: Path, count: int) -> list[str]:
    (root / "step_1").mkdir(parents=True)
    write_safetensors(root / "step_1" / "x.safetensors", {f"t{at}": np.ones(4, np.float32) for at in range(2_000)})
    return ["check", str(root), *(word for at in range(count) for word in ("--watch", f"TL max_gt={at + 2}"))]


SIZES: Final[Mapping[str, tuple[Callable[[Path, int], list[str]], int]]] = {
    "tensors in one .safetensors": (_tensors("safetensors"), 10_000),
    "tensors in one .npz": (_tensors("npz"), 10_000),
    "tensors in one .pt": (_tensors("pt"), 10_000),
    "files": (_files, 10_000),
    "steps": (_steps, 200),
    "checkpoints": (_checkpoints, 100),
    "ranks": (_ranks, 128),
    "ranks that are equal": (_equal_ranks, 256),
    "ranks, each with a notice": (_notices, 128),
    "nodes": (_nodes, 10_000),
    "operators of a step that pass NaN on": (_operators, 10_000),
    "names at a URL, of which nothing is there": (_names_at_a_url, 20_000),
    "hits": (_hits(""), 10_000),
    "hits as JSON": (_hits("--json"), 10_000),
    "watchpoints": (_watchpoints, 500),
}
"""What is doubled: what writes a dump of a size and says how it is asked about, and the first size."""


def run(scale: float, folder: Path) -> list[Result]:
    """Measures every size; those that need torch, or a client for URLs, where they are installed."""
    lacking = [ending for ending, needed in ((".pt", "torch"), (" is there", "aiohttp")) if not find_spec(needed)]
    names = [name for name in SIZES if not name.endswith(tuple(lacking))]
    with _servers:
        return [_exponent(name, *SIZES[name], scale, folder / "dump") for name in names]


def _exponent(name: str, write: Callable[[Path, int], list[str]], first: int, scale: float, root: Path) -> Result:
    sizes = [1, *(max(int(first * scale), 1) * times for times in DOUBLED)]
    seconds = []
    for size in sizes:
        shutil.rmtree(root, ignore_errors=True)
        arguments, runs = write(root, size), [0.0]
        while len(runs) <= TIMES and sum(runs) < LONG:
            runs.append(_seconds(arguments))
        seconds.append(min(runs[1:]))
    start, *grown = seconds
    own = [max(each - start, 1e-3) for each in grown]
    exponent = max(math.log(own[-1] / own[0]) / math.log(DOUBLED[-1] / DOUBLED[0]), 0.0)
    each = own[-1] / sizes[-1] * 1e6
    return Result(name, exponent, BAR, "", at_most=True, note=f"{sizes[1]:,} to {sizes[-1]:,}; {each:.0f} µs each")


def _seconds(arguments: list[str]) -> float:
    """Processor seconds of a command, of this process's children together."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tui_debugger", *arguments, "--no-cache", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "NO_COLOR": "1"})
    if not done.stdout or done.returncode not in (0, 1, 2):
        raise RuntimeError(json.dumps([command, done.returncode, done.stderr.decode()[-2000:]]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
