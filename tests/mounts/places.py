"""Puts a copy of a dump where the operating system has no directories."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import fsspec
import numpy as np

from tests.sources.arrays import write_arrays
from tests.sources.ascend_trees import Planted, atb, single_save, torchair_fx
from tests.sources.test_old_tree import write_iteration
from tests.sources.writer import Generation, write_dump

Dumps = Callable[[str], Path]
WRITTEN = {"torchair-fx": torchair_fx, "single-save": single_save, "atb": atb}
LAYOUTS = (
    *("mindspore", "mindspore-1.1", "npy", "npz", "packed", "safetensors", "pt"),
    *("msprobe-mix/nan", "msprobe-debug-save", "msprobe-mix-2rank-mb-md5", "sglang-megatron/sglang-hooks"),
    *("sglang-megatron/sglang-pass", "sglang-megatron/megatron-tp2/bad", "torchtitan-numerics/bad"),
    *(
        "pytorch-debugmode/bad",
        "te-logs",
        "msprobe-monitor/v2",
        "mindspore-2.10-multi-gan",
    ),
    *WRITTEN,
)
"""Layouts whose files can be read in ranges: all but databases."""


def local(layout: str, folder: Path, dumps: Dumps) -> Path:
    """A dump of a layout as a directory: a small one that is written, or a real one."""
    if layout == "mindspore":
        write_dump(folder, Generation.V2_0, steps=(0, 1, 2), ranks=(0, 1))
    elif layout == "mindspore-1.1":
        for step in range(3):
            write_iteration(folder / "Net" / f"iteration_{step}", step)
    elif layout in {"npy", "npz", "packed", "safetensors", "pt"}:
        random = np.random.default_rng(1)
        for step in range(3):
            values = {f"layer.{n}.weight": random.normal(size=(40, n + 30)).astype("f4") for n in range(3)}
            write_arrays(folder / f"step_{step}", values, layout)
    elif layout in WRITTEN:
        WRITTEN[layout](folder, Planted())
    else:
        name, _, part = layout.partition("/")
        return dumps(name) / part
    return folder


def pack(directory: Path, target: Path, form: int = tarfile.PAX_FORMAT) -> Path:
    """A tar of what is in a directory."""
    with tarfile.open(target, "w", format=form) as tar:
        tar.add(directory, arcname=directory.name)
    return target


_numbers = itertools.count()


def to_memory(directory: Path) -> Path:
    """A copy of a directory in fsspec's store in memory, as commands take its URL."""
    store = fsspec.filesystem("memory")
    place = f"/tdbg-{next(_numbers)}/{directory.name}"
    for path in directory.rglob("*"):
        if path.is_file():
            store.pipe_file(f"{place}/{path.relative_to(directory).as_posix()}", path.read_bytes())
    return Path(f"memory:/{place}")


def tar_of(target: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    """A tar of given members, which may be any."""
    with tarfile.open(target, "w", format=form) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return target
