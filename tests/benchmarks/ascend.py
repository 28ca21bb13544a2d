"""Undoing the order in which a device holds its tensors, against copying as many bytes in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests.ascend_files import BITS, Written, block_of, file_bytes, numpy_type, to_device, write
from tests.benchmarks.timing import Result, best_of_each
from tui_debugger.model import ReadSpec
from tui_debugger.stats import kernel
from tui_debugger.stats.device_order import SharedBytes, device_order
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.npy import TensorFile
from tui_debugger.stats.records import ReadRequests, ReadSpecs, RequiredStats

Shape = tuple[int, ...]
CASES: Final[tuple[tuple[str, str, Shape], ...]] = (
    ("NC1HWC0", "float32", (32, 250, 56, 56)),
    ("NC1HWC0", "float16", (64, 250, 56, 56)),
    *(("NC1HWC0", dtype, (128, 250, 56, 56)) for dtype in ("int8", "int4", "int2", "uint1")),
    ("NC1HWC0_C04", "float32", (128, 3, 224, 224)),
    ("NC1HWC0_C04", "int8", (512, 3, 224, 224)),
    ("NDC1HWC0", "float32", (8, 64, 16, 56, 56)),
    ("NDC1HWC0", "int4", (32, 64, 16, 56, 56)),
    ("FRACTAL_NZ", "float32", (4000, 8000)),
    ("FRACTAL_NZ", "float16", (8000, 8000)),
    *(("FRACTAL_NZ", dtype, (12000, 8000)) for dtype in ("int8", "int4", "int2", "uint1")),
    ("FRACTAL_Z", "float32", (2048, 1000, 3, 3)),
    ("FRACTAL_Z", "float16", (8192, 5000, 1, 1)),
    *(("FRACTAL_Z", dtype, (8192, 1000, 3, 3)) for dtype in ("int8", "int4", "int2", "uint1")),
    ("FRACTAL_Z", "float16", (8192, 2000, 1, 3)),
    *(("FRACTAL_Z", dtype, (16384, 2000, 1, 3)) for dtype in ("int8", "int4", "int2", "uint1")),
    ("FRACTAL_Z_3D", "float32", (1024, 700, 3, 3, 3)),
    *(("FRACTAL_Z_3D", dtype, (4096, 700, 3, 3, 3)) for dtype in ("int8", "int4", "int2", "uint1")),
    ("C1HWNCoC0", "float32", (64, 2048, 7, 7)),
)
"""Format, type and shape: 70 to 100 MB (C1HWNCoC0: its file 400), which no cache holds."""
BAR: Final = 0.3
"""Of the speed of a memory copy. Of C1HWNCoC0, whose files are sixteen times as long as their tensors, one element of
each line of the cache is wanted: there the bytes of the file count, of the others those of the tensor."""


def run(scale: float, folder: Path) -> list[Result]:
    """Conversions in memory; then a long file: all of its statistics, and a slice."""
    results = [conversion(*case, scale) for case in CASES if kernel.available() or case[1] not in BITS]
    return results + long_file(folder, scale)


def conversion(fmt: str, dtype: str, shape: Shape, scale: float) -> Result:
    """One tensor in memory."""
    shape = (max(1, round(shape[0] * scale)), *shape[1:])
    values = np.ones(shape, numpy_type(dtype))
    device = np.ascontiguousarray(to_device(values, fmt, block_of(dtype, fmt)))
    order = device_order(fmt, device.shape, shape)
    assert order is not None
    stored, target = (each.reshape(-1).view(f"u{values.itemsize}") for each in (device, values))
    bits = BITS.get(dtype)
    if bits:  # nobody wrote pages of zeros: they are one in memory
        stored = np.random.default_rng(0).integers(0, 256, stored.size * bits // 8, np.uint8)
    buffer = SharedBytes(stored, bits, signed=dtype.startswith("int")) if bits else stored
    source = target.copy()
    copied, converted = best_of_each(
        lambda: np.copyto(target, source), lambda: order.copy(buffer, 0, target), repeat=9, clock=time.process_time
    )
    of_tensor = copied / converted
    of_file = of_tensor * stored.nbytes / values.nbytes
    note = (
        f"{values.nbytes / converted / 1e9:.1f} GB/s; {values.nbytes / 1e6:.0f} MB of {stored.nbytes / 1e6:.0f} MB, "
        f"of whose bytes {of_file:.2f}"
    )
    name = f"{fmt} of {dtype} {'x'.join(map(str, shape))} / memory copy"
    if fmt == "C1HWNCoC0":
        return Result(f"{name}, bytes of the file", of_file, BAR, note=f"{note}; of the tensor's {of_tensor:.3f}")
    return Result(name, of_tensor, BAR, note=note)


def long_file(folder: Path, scale: float) -> list[Result]:
    """A file of 1 GB at full scale."""
    shape = (max(1, round(256 * scale)), 256, 64, 64)
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    path = write(folder / "Conv2D.Default_conv.1.1.1", file_bytes(outputs=[Written(values, format="NC1HWC0")]))
    np.save(folder / "plain.npy", values)
    specs = ReadSpec(str(path), "ascend", member="output.0"), ReadSpec(str(folder / "plain.npy"))
    device, plain = best_of_each(statistics(specs[0]), statistics(specs[1]), repeat=3)
    with TensorFile(specs[0]) as file:
        count = math.prod(shape)
        (piece,) = best_of_each(lambda: file.read(count // 2 + 5, 1000))
    size = f"{values.nbytes / 1e6:.0f} MB"
    return [
        Result("full statistics of a NC1HWC0 file / of the same .npy", plain / device, note=size),
        Result("1,000 elements out of the middle of it", piece * 1e3, unit="ms", note=size),
    ]


def statistics(spec: ReadSpec) -> Callable[[], Any]:
    """Measures one tensor."""
    need: npt.NDArray[np.int16] = np.zeros(1, np.int16)
    requests = ReadRequests(ReadSpecs.of([spec]), np.full(1, -1, np.int32), (RequiredStats(),), need)
    return lambda: read_all(requests)
