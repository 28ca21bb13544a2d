"""Dumps for benchmarks, made from a real one: bigger tensors, more steps, or one tensor that fills a disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.demo import DEMO, unpack

Array = npt.NDArray[Any]

NET: Final = "rank_0/TinyTrans/0"
HEALTHY: Final = 2
"""The last step of the real dump before it breaks."""
_STAMP: Final = re.compile(r"\.(\d{16})\.")


def big_tensors(folder: Path, tensors: int, elements: int) -> Path:
    """Two steps of ``tensors`` files each, every one of ``elements`` float32, with the graph of the real dump.

    The values are those of the real tensors, over and over again with a little noise: what is zero stays zero, and what
    is a copy of another tensor stays one.
    """
    real, root = _copied(folder, "big", (1, HEALTHY))
    noise = 1 + 1e-3 * np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    for step in (1, HEALTHY):
        for file in _ordered(real / NET / str(step))[:tensors]:
            values = np.resize(np.load(file).astype(np.float32), elements)
            np.save(root / NET / str(step) / file.name, values * noise)
    return root


def many_steps(folder: Path, steps: int) -> Path:
    """The first steps of the real dump, then more of the same: every tensor walks on at random, copies stay copies."""
    real, root = _copied(folder, "many", range(steps))
    last = {_stem(file): (file, np.load(file)) for file in _ordered(real / NET / str(HEALTHY))}
    sources = _sources(real, last)
    rng = np.random.default_rng(0)
    before: dict[str, Array] = {}
    for step in range(steps):
        if step <= HEALTHY:
            for file in (real / NET / str(step)).iterdir():
                shutil.copy(file, root / NET / str(step) / file.name)
        now = dict(_walked(last, before, rng)) if step > HEALTHY else {stem: array for stem, (_, array) in last.items()}
        for stem, (file, array) in last.items() if step > HEALTHY else ():
            kind, source = sources.get(stem, ("own", stem))
            values = before[source] if kind == "before" else now[source]
            np.save(root / NET / str(step) / _later(file.name, step - HEALTHY), values.astype(array.dtype))
        before = now
    return root


def break_steps(root: Path) -> None:
    """Makes ``many_steps`` a run that broke: from the first step that is not the real one's, every tensor has a NaN."""
    for file in files_of(root):
        if int(file.parent.name) > HEALTHY and (values := np.load(file)).dtype.kind == "f" and values.size:
            values.flat[0] = np.nan
            np.save(file, values)


def one_tensor(folder: Path, elements: int) -> Path:
    """A dump of a single float32 tensor; a hole in the file where the disk has no room for the values."""
    step = folder / "huge" / NET / "0"
    step.mkdir(parents=True)
    block = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    room = shutil.disk_usage(folder).free > 2 * block.itemsize * elements
    with (step / "MatMul.MatMul-op1.0.0.1700000000000000.output.0.DefaultFormat.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (elements // 1024, 1024)}
        np.lib.format.write_array_header_1_0(file, header)
        end = file.tell() + elements // 1024 * 1024 * block.itemsize
        while room and file.tell() < end:
            file.write(block[: (end - file.tell()) // block.itemsize].data)
        file.truncate(end)
    return folder / "huge"


def files_of(root: Path) -> list[Path]:
    """Every tensor file of a dump."""
    return sorted(root.glob("rank_0/*/*/*/*.npy"))


def _copied(folder: Path, name: str, steps: Any) -> tuple[Path, Path]:
    """The real dump, and a new one with its graph and empty folders for some steps."""
    real, root = unpack(DEMO, folder / "real"), folder / name
    for part in (".dump_metadata", "graphs", "execution_order"):
        shutil.copytree(real / "rank_0" / part, root / "rank_0" / part)
    history = root / "rank_0/execution_order/ms_global_execution_order_graph_0.csv"
    history.write_text("".join(f"{step}\n" for step in steps))
    for step in steps:
        (root / NET / str(step)).mkdir(parents=True)
    return real, root


def _ordered(step: Path) -> list[Path]:
    """The files of a step, outputs first: the same ones of every step."""
    return sorted(step.iterdir(), key=lambda file: (".input." in file.name, _stem(file)))


def _stem(file: Path) -> str:
    return _STAMP.sub(".", file.name)


def _later(name: str, steps: int) -> str:
    return _STAMP.sub(lambda match: f".{int(match[1]) + steps * 1_000_000}.", name)


def _sources(real: Path, last: dict[str, tuple[Path, Array]]) -> dict[str, tuple[str, str]]:
    """For each input the output of the same step that it is a copy of, or the parameter of the step before."""
    outputs = {_key(array): stem for stem, (_, array) in reversed(last.items()) if ".output." in stem}
    parameters = {
        _key(np.load(file)): _stem(file) for file in (real / NET / str(HEALTHY - 1)).glob("Parameter.*.output.*")
    }
    sources = {}
    for stem, (_, array) in last.items():
        if ".input." in stem:
            key = _key(array)
            if key in outputs:
                sources[stem] = ("same", outputs[key])
            elif key in parameters:
                sources[stem] = ("before", parameters[key])
    return sources


def _key(array: Array) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def _walked(
    last: dict[str, tuple[Path, Array]], before: dict[str, Array], rng: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    """Every tensor a step later: each element changes by some percent of itself, whole numbers stay."""
    for stem, (_, array) in last.items():
        old = before[stem]
        yield stem, old * (1 + 0.02 * rng.standard_normal(old.shape)) if array.dtype.kind == "f" else old
