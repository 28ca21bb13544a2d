"""What the views and commands compute of whole tensors, ``diff`` and ``show --distribution``, against a bare scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.benchmarks.engine import JOBS, scan
from tests.benchmarks.timing import Result, best_of_each
from tui_debugger.model import ReadSpec
from tui_debugger.stats.compare import compare
from tui_debugger.stats.compare_pairs import Pairs
from tui_debugger.stats.distribution import count_bins, count_classes, linear_bins
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.quantiles import PERCENTS, headroom, quantiles
from tui_debugger.stats.spans import SharedArrays
from tui_debugger.stats.workers import MeasureWorkers

Array = npt.NDArray[Any]
ELEMENTS: Final = 50_000_000
"""Of one tensor: 200 MB of float32, a dozen spans for the workers."""
PART: Final = 10
"""One part in so many of them is enough to see what plain numpy takes."""
BINS: Final = 20
BARS: Final = {"equal": 0.8, "nearly equal": 0.6, "noise": 0.6, "with NaN": 0.25}
"""Parts of the speed of a scan of two float32 files, one core."""
BEFORE: Final = {"equal": 0.62, "nearly equal": 0.11, "noise": 0.09, "with NaN": 0.07, "distribution": 0.11}
"""The same before there was a kernel."""


def run(scale: float, folder: Path) -> list[Result]:
    """Pairs of float32 that are more and more different, other types, and one tensor's distribution."""
    size = max(int(ELEMENTS * scale), 1000)
    files = write(folder, size)
    with closing(MeasureWorkers(JOBS)) as workers:
        like = files["tensor"]
        results = [difference(name, (like, files[name]), workers, like, bar) for name, bar in BARS.items()]
        for dtype in map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float64)):
            others = [converted(files[name], dtype) for name in ("tensor", "nearly equal")]
            results.append(difference(f"nearly equal {dtype.name}", others, workers, like))
        results += distribution(files["tensor"], workers)
    return results + against_numpy(files["tensor"], files["noise"])


def write(folder: Path, size: int) -> dict[str, Path]:
    """A tensor, and others to compare it with."""
    rng = np.random.default_rng(0)
    tensor, other = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    near = tensor * (1 + np.float32(1e-6) * other)
    values = {"tensor": tensor, "equal": tensor, "nearly equal": near, "noise": other}
    values["with NaN"] = np.where(np.arange(size) % 1000 == 7, np.float32(np.nan), other)
    files = {name: folder / f"{name.replace(' ', '-')}.npy" for name in values}
    for name, array in values.items():
        np.save(files[name], array)
    return files


def converted(file: Path, dtype: np.dtype[Any]) -> Path:
    """The same values in another type."""
    found = file.with_name(f"{file.stem}-{dtype.name}.npy")
    values = np.load(file).astype(dtype)
    np.save(found, values.view("V2") if dtype.kind == "V" else values)
    return found


def spec_of(file: Path) -> ReadSpec:
    """How to read one of the files."""
    return ReadSpec(str(file), dtype="bfloat16" if "bfloat16" in file.name else "")


def difference(
    name: str, files: Sequence[Path], workers: MeasureWorkers, like: Path, bar: float | None = None
) -> Result:
    """How fast two tensors are compared, on one core and on several; ``like``: a float32 file of the same size."""
    specs = tuple(spec_of(file) for file in files)
    here, there = (open_array(spec) for spec in specs)
    scanned, alone, shared = best_of_each(
        lambda: scan([like, like]),
        lambda: compare(Pairs(here, there)),
        lambda: compare(Pairs(here, there, workers)),
    )
    note = f"{here.size / alone / 1e6:.0f} M pairs/s; with {JOBS} workers {scanned / shared:.2g} x"
    if name in BEFORE:
        note += f"; without the kernel {BEFORE[name]} x"
    return Result(f"diff, {name} / isfinite scan", scanned / alone, bar, note=note)


def distribution(file: Path, workers: MeasureWorkers) -> list[Result]:
    """Counts by class, headroom, percentiles and bars of one tensor."""
    spec = spec_of(file)
    array = open_array(spec)
    low, high = float(array.min()), float(array.max())

    def everything(values: Array | SharedArrays) -> None:
        classes = count_classes(values)
        headroom(values, classes, "float32")
        quantiles(values, classes)
        count_bins(values, classes, linear_bins(low, high, BINS))

    scanned, alone, shared = best_of_each(
        lambda: scan([file]),
        lambda: everything(array),
        lambda: everything(SharedArrays((array,), array.size, workers)),
    )
    note = f"{array.size / alone / 1e6:.0f} M elements/s; without the kernel {BEFORE['distribution']} x"
    return [
        Result("distribution / isfinite scan", scanned / alone, 0.3, note=note),
        Result(f"distribution, {JOBS} workers / isfinite scan", scanned / shared),
    ]


def against_numpy(here: Path, there: Path) -> list[Result]:
    """The same as one writes it down, whole arrays at a time."""
    files = [np.load(file, mmap_mode="r") for file in (here, there)]
    part = [np.array(array[: max(len(array) // PART, 1)]) for array in files]
    low, high = float(part[0].min()), float(part[0].max())

    def everything() -> None:
        classes = count_classes(part[0])
        headroom(part[0], classes, "float32")
        quantiles(part[0], classes)
        count_bins(part[0], classes, linear_bins(low, high, BINS))

    measure: Sequence[Callable[[], object]] = (
        lambda: plain_difference(*part),
        lambda: compare(Pairs(*part)),
        lambda: plain_distribution(part[0]),
        everything,
    )
    by_numpy, compared, plain, spread = best_of_each(*measure)
    note = f"{part[0].size} elements, one core"
    return [
        Result("diff / plain numpy", by_numpy / compared, note=note),
        Result("distribution / plain numpy", plain / spread, note=note),
    ]


def plain_difference(here: Array, there: Array) -> tuple[Any, ...]:
    """What ``compare`` finds but for units in the last place, as one writes it down."""
    x, y = here.astype(np.float64), there.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    change = x - y
    error = np.abs(change)
    with np.errstate(all="ignore"):
        relative = np.where(y != 0, error / np.abs(y), 0)
    sums = [(each.min(), each.max(), each.mean(), each.var(), np.abs(each).mean()) for each in (x, y, change)]
    best = [np.argpartition(-each, 99)[:100] if len(each) > 100 else each for each in (error, relative)]
    flips = ((x < 0) & (y > 0) | (x > 0) & (y < 0)).sum()
    return (*sums, *best, flips, (error == 0).sum(), (x * y).sum(), (x * x).sum(), (y * y).sum(), relative.max())


def plain_distribution(values: Array) -> tuple[Any, ...]:
    """Percentiles, bars, and how many overflow or vanish in float16."""
    x = values.astype(np.float64)
    x = x[np.isfinite(x)]
    magnitudes = np.abs(x)
    room = (magnitudes.max(), magnitudes[magnitudes > 0].min(), (magnitudes >= 65520).sum(), (magnitudes < 6e-5).sum())
    return (*np.percentile(x, PERCENTS), *np.histogram(x, BINS)[0], *room)
