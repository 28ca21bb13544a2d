"""Two runs side by side: calls of many small tensors, nearly all of which differ by more than rounding explains."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.timing import Result
from tests.session.opened import opened
from tests.sources.msprobe.written import forward, tensor, write
from tui_debugger.diagnose.runs.comparison import compare_runs

CALLS: Final = 408
"""Each with one input and one output: 816 pairs of tensors."""
_SHAPES: Final = ((4, 8, 16), (4, 8, 50), (32, 64), (16, 16), (16,), (4, 1))
_AGREE: Final = 10
"""Calls that are the same in both runs, bit by bit."""


def run(scale: float, folder: Path) -> list[Result]:
    """The comparison against reading the same files, with numpy and as ``torch.load`` does."""
    roots = folder / "a", folder / "b"
    save, load = saver()
    calls = max(20, round(CALLS * scale))
    files = [
        path for root, noise in zip(roots, (0.0, 1e-6), strict=True) for path in write_run(root, calls, noise, save)
    ]
    ways = [partial(compare, *roots), partial(read, files, lambda path: np.fromfile(path, np.uint8))]
    compared, plain, *rest = processor_seconds(*ways, *([partial(read, files, load)] if load else []))
    note = f"{2 * calls:,} pairs, {1e6 * compared / calls / 2:.0f} µs each; opening both runs included"
    results = [Result("two runs: comparing / reading both with numpy.fromfile", compared / plain, note=note)]
    if rest:
        name = "two runs: comparing / reading both with torch.load"
        results.append(Result(name, compared / rest[0], 1.5, at_most=True, note="all in one process"))
    return results


def compare(a: Path, b: Path) -> None:
    """Opens both and compares them."""
    sessions = opened(a), opened(b)
    report = compare_runs(*sessions)
    for session in sessions:
        session.close()
    assert report.exit_code == 1
    assert sum(len(step.compared) for step in report.steps) == 1  # all by their values


def read(files: list[Path], load: Callable[[Path], object]) -> None:
    """Reads every file once."""
    for path in files:
        load(path)


def processor_seconds(*runs: Callable[[], object], repeat: int = 5) -> list[float]:
    """The least processor time of each of several runs, taken in turn."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for times, each in zip(found, runs, strict=True):
            start = time.process_time()
            each()
            times.append(time.process_time() - start)
    return [min(times) for times in found]


def saver() -> tuple[Callable[[Path, Any], object], Callable[[Path], object] | None]:
    """What writes a tensor, and what of PyTorch reads it: files of numpy where there is no PyTorch."""
    try:
        import torch
    except ImportError:
        return lambda path, values: np.save(path.with_suffix(".npy"), values), None
    return (
        lambda path, values: torch.save(torch.from_numpy(np.array(values)), path),
        lambda path: torch.load(path, weights_only=True),
    )


def write_run(root: Path, calls: int, noise: float, save: Callable[[Path, Any], object]) -> list[Path]:
    """Writes one step of a run, as msprobe does: what one call returns is the input of the next one of its shape."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    records: dict[str, Any] = {}
    values = {shape: rng.normal(size=shape).astype(np.float32) for shape in _SHAPES}
    tensors: dict[str, Any] = {}
    ending = "pt" if saver()[1] else "npy"
    for number in range(calls):
        shape = _SHAPES[number % len(_SHAPES)]
        name = f"Functional.relu.{number}.forward"
        off = 1 + noise * other.normal(size=shape) * (number >= _AGREE)
        before, values[shape] = values[shape], (np.tanh(values[shape]) * off).astype(np.float32)
        at = f"{name}.input.0.{ending}", f"{name}.output.0.{ending}"
        tensors |= {at[0]: before, at[1]: values[shape]}
        records[name] = forward(*([tensor(number, shape, data_name=each)] for each in at))
    folder = write(root, records, task="tensor") / "dump_tensor_data"
    folder.mkdir()
    for file, each in tensors.items():
        save(folder / file, each)
    return [folder / file for file in tensors]
