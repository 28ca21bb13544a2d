"""The statistics of whole files through ``look_all``, against a bare scan of one thread and against plain numpy."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from contextlib import closing
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.benchmarks.timing import Result, best_of_each
from tests.stats.requests import requests_for, watch
from tui_debugger.stats import kernel
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.records import RequiredStats
from tui_debugger.stats.workers import MeasureWorkers
from tui_debugger.watch.evaluate import needs

ELEMENTS: Final = 437_000
"""Of one tensor: 1,170 float32 tensors are 2 GB."""
TENSORS: Final = 117
STEPS: Final = 10
JOBS: Final = 2
SHARES: Final = 32
SEVEN: Final = reduce(
    or_,
    (
        needs(watch(*each))
        for each in (
            ("tensor_overflow",),
            ("tensor_too_large", {"abs_mean_gt": 10.0}),
            ("tensor_all_zero", {"zero_percentage_ge": 100.0}),
            ("tensor_range", {"range_start_inclusive": -1.0, "range_end_inclusive": 1.0, "range_percentage_lt": 50.0}),
            ("weight_not_changed", {"rtol": 1e-5}),
            ("weight_change_too_large", {"abs_mean_update_ratio_gt": 0.1}),
            ("tensor_too_small", {"abs_mean_lt": 1e-9}),
        )
    ),
)
"""What overflow, too large, all zero, range, unchanged, change above and too small need together."""


def run(scale: float, folder: Path) -> list[Result]:
    """Full statistics and seven watchpoints of float32; statistics of other element types for information."""
    tensors, elements = max(1, round(TENSORS * scale)), ELEMENTS if scale > 0.05 else 20_000
    files = write_steps(folder, tensors, STEPS, elements)
    part = files[: max(1, len(files) // 10)]
    with closing(MeasureWorkers(JOBS)) as workers:
        executor = ready(workers)
        scanned, measured, watched, shared = best_of_each(
            lambda: scan(files),
            lambda: statistics(files),
            lambda: seven(files, tensors),
            lambda: statistics_by(executor, files),
            repeat=5,
        )
    by_numpy, of_part = best_of_each(lambda: plain(part), lambda: statistics(part), repeat=5)
    size = f"{len(files)} tensors of {elements} elements"
    against_numpy = by_numpy / of_part
    results = [
        Result("full statistics / isfinite scan", scanned / measured, 0.7, note=f"{size}, one core"),
        Result("full statistics / plain numpy", against_numpy, note=f"{len(part)} of these tensors, one core"),
        Result(
            "seven watchpoints / isfinite scan", scanned / watched, 0.35, note="each against the step before, one core"
        ),
        Result(f"full statistics, {JOBS} workers / isfinite scan", scanned / shared, 1.0, note=size),
        Result(f"full statistics, {JOBS} workers / plain numpy", against_numpy * measured / shared, 8.0),
        Result("isfinite scan", elements * len(files) * 4e-9 / scanned, unit="GB/s", note="of memory-mapped files"),
    ]
    others = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, np.int32, np.float64)
    results += [other_type(folder, np.dtype(kind), part, elements) for kind in others]
    return results + in_memory(max(1 << 16, round((1 << 24) * scale)))


IN_MEMORY: Final = (
    (np.float32, 1.0, 0.23),
    (np.float16, 0.5, 0.15),
    (ml_dtypes.bfloat16, 0.5, 0.25),
    (ml_dtypes.float8_e4m3fn, 0.4, 0.17),
    (np.int8, 0.4, 0.26),
    (np.int32, None, 0.22),
    (np.float64, None, 0.18),
)
"""Element types, what their statistics have to reach, and what numpy alone reached before there was a kernel."""


def in_memory(elements: int) -> list[Result]:
    """Elements per second of each type, as a part of what the isfinite scan of float32 does in the same memory."""
    noise = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    arrays = [(noise * np.float32(8)).astype(kind) for kind, _, _ in IN_MEMORY]
    scanned, *measured = processor_times(
        lambda: np.isfinite(noise).all(), *(partial(measure_stats, array) for array in arrays), repeat=7
    )
    how = "kernel" if kernel.available() else "numpy"
    return [
        Result(
            f"statistics in memory, {array.dtype.name} / isfinite scan",
            scanned / seconds,
            bar,
            note=f"one core, {how}, {elements} elements; without a kernel it was {before:g}",
        )
        for array, seconds, (_, bar, before) in zip(arrays, measured, IN_MEMORY, strict=True)
    ]


def processor_times(*runs: Callable[[], object], repeat: int) -> list[float]:
    """The least processor time of each of several runs, taken in turn: others on the machine count for nothing."""
    found = [math.inf] * len(runs)
    for _ in range(repeat):
        for number, run in enumerate(runs):
            start = time.process_time()
            run()
            found[number] = min(found[number], time.process_time() - start)
    return found


def ready(workers: MeasureWorkers) -> Executor:
    """The worker processes, once they are there."""
    executor = workers.executor(1 << 62)
    assert executor is not None
    wait([executor.submit(os.getpid) for _ in range(JOBS)])
    return executor


def write_steps(folder: Path, tensors: int, steps: int, elements: int) -> list[Path]:
    """Noise that changes a little from step to step: all steps of one tensor, then those of the next one."""
    rng = np.random.default_rng(0)
    noise, change = rng.standard_normal((2, elements)).astype(np.float32)
    files = []
    for tensor in range(tensors):
        start = np.roll(noise, 101 * tensor)
        for step in range(steps):
            files.append(folder / f"{tensor}-{step}.npy")
            np.save(files[-1], start + np.roll(change, 7 * tensor) * np.float32(1e-3 * step))
    return files


def scan(files: Sequence[Path]) -> None:
    """The reference: the least that any check for NaN and Inf has to do."""
    for file in files:
        assert np.isfinite(np.load(file, mmap_mode="r")).all()


def plain(files: Sequence[Path]) -> None:
    """The same statistics as whole-array numpy in double precision."""
    for file in files:
        plain_statistics(np.load(file).astype(np.float64))


def plain_statistics(x: npt.NDArray[np.float64]) -> tuple[Any, ...]:
    """What ``Accumulator`` finds, as one writes it down."""
    counts = (x.size, np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum())
    x = x[np.isfinite(x)]
    signs = ((x == 0).sum(), (x < 0).sum(), (x > 0).sum())
    return (*counts, *signs, x.min(), x.max(), x.mean(), np.abs(x).mean(), x.var(), np.square(x).sum())


def statistics(files: Sequence[Path], declared: str = "") -> None:
    """Every file by itself."""
    read_all(requests_for(files, [-1] * len(files), RequiredStats(), declared))


def statistics_by(executor: Executor, files: Sequence[Path]) -> None:
    """The same, spread over workers."""
    for future in [executor.submit(statistics, files[start::SHARES]) for start in range(SHARES)]:
        future.result()


def seven(files: Sequence[Path], tensors: int) -> None:
    """Every file against the step before."""
    steps = len(files) // tensors
    read_all(requests_for(files, [row - 1 if row % steps else -1 for row in range(len(files))], SEVEN))


def other_type(folder: Path, dtype: np.dtype[Any], files: Sequence[Path], elements: int) -> Result:
    """Elements per second of another element type, as a part of what the scan does on float32."""
    others = []
    for file in files:
        others.append(folder / f"{dtype.name}-{file.name}")
        values = np.load(file) * np.float32(8)
        np.save(others[-1], values.astype(dtype).view(f"V{dtype.itemsize}" if dtype.kind == "V" else dtype))
    declared = dtype.name if dtype.kind not in "biuf" or dtype.type.__module__ == "ml_dtypes" else ""
    scanned, measured = best_of_each(lambda: scan(files), lambda: statistics(others, declared), repeat=5)
    for other in others:
        other.unlink()
    speed = elements * len(files) / measured * dtype.itemsize / 1e9
    note = f"{speed:.2f} GB/s; elements per second against the scan of float32"
    return Result(f"full statistics of {dtype.name}", scanned / measured, note=note)
