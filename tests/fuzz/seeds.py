"""Small dumps, one for each kind of file that is read, and the file in each that is damaged."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.ascend_files import write_device_dump
from tests.conftest import archive
from tests.sources.writer import DumpWriter, write_dump
from tui_debugger.demo import unpack


@dataclass(frozen=True)
class Seed:
    """A dump on disk.

    Attributes:
        name: the kind of file.
        root: the dump.
        file: the file in it that is damaged.
        command: what reads it, behind the path.
    """

    name: str
    root: Path
    file: Path
    command: tuple[str, ...]


CHECK: Final = ("check", "--watch", "TO", "--json", "--jobs", "1")
ORIGIN: Final = ("origin", "--json", "--jobs", "1")


def _mindspore(pattern: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        write_dump(root, steps=(0, 1))
        return _first(root, pattern)

    return make


def _recorded(name: str, pattern: str, part: str = "") -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        whole = unpack(archive(name), root.parent / "unpacked")
        shutil.copytree(whole / part, root)
        return _first(root, pattern)

    return make


def _first(root: Path, pattern: str) -> Path:
    found = sorted(path for path in root.rglob(pattern) if path.is_file())
    assert found, f"{root} has no {pattern}"
    return found[0]


def _statistics(root: Path) -> Path:
    writer = DumpWriter(root)
    values = np.linspace(-3, 4, 12, dtype=np.float32).reshape(3, 4)
    for step in range(2):
        writer.statistics(step, [("Log", f"Log-op{n}", "output", 0, values + n) for n in range(4)])
    return _first(root, "statistic.csv")


def _array(root: Path) -> Path:
    root.mkdir()
    for layer in range(2):
        np.save(root / f"step0_layer{layer}.npy", np.ones((3, 4), np.float32))
    return _first(root, "*.npy")


def _archive(root: Path) -> Path:
    root.mkdir()
    np.savez_compressed(root / "step0.npz", one=np.ones((3, 4), np.float32), two=np.arange(6))
    return _first(root, "*.npz")


def _safetensors(root: Path) -> Path:
    root.mkdir()
    header = json.dumps(
        {
            "a.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
            "b.bias": {"dtype": "BF16", "shape": [4], "data_offsets": [48, 56]},
        }
    ).encode()
    (root / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(56))
    return root / "model.safetensors"


def _device(root: Path) -> Path:
    write_device_dump(root, steps=(0, 1))
    return next(path for path in sorted(root.rglob("MatMul*")) if path.is_file())


SEEDS: Final[dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]]] = {
    "MindSpore graph": (_mindspore("*.pb"), ORIGIN),
    "MindSpore execution order": (_mindspore("ms_execution_order_graph_*.csv"), ORIGIN),
    "MindSpore history": (_mindspore("ms_global_execution_order_graph_*.csv"), ("ls", "--steps", "--json")),
    "MindSpore settings": (_mindspore("data_dump.json"), CHECK),
    "statistic.csv": (_statistics, CHECK),
    "msprobe dump.json": (_recorded("msprobe-xor", "dump.json", "dump"), CHECK),
    "msprobe stack.json": (_recorded("msprobe-xor", "stack.json", "dump"), ORIGIN),
    "msprobe construct.json": (_recorded("msprobe-structure", "construct.json", "dump"), ORIGIN),
    "msprobe debug.json": (_recorded("msprobe-debug-save", "debug.json", "dump"), CHECK),
    "msprobe trend database": (_recorded("msprobe-monitor", "*.trend.db", "dump-db"), CHECK),
    "torchtitan log": (_recorded("torchtitan-numerics", "*.log", "good"), CHECK),
    "DebugMode log": (_recorded("pytorch-debugmode", "*", "good"), CHECK),
    "npy": (_array, CHECK),
    "npz": (_archive, CHECK),
    "safetensors": (_safetensors, CHECK),
    "pt": (_recorded("sglang-megatron", "*.pt", "sglang-tp/tp2"), CHECK),
    "checkpoint index": (_recorded("checkpoints", ".metadata", "ckpt-dcp/dcp/step-2"), CHECK),
    "Ascend": (_device, CHECK),
}
"""By kind of file: what makes a dump and returns the file, and the command."""


def planted(name: str, folder: Path) -> Seed:
    """Makes the dump of a kind in a directory of its own."""
    make, command = SEEDS[name]
    root = folder / name.replace(" ", "-") / "dump"
    root.parent.mkdir(parents=True)
    file = make(root)
    return Seed(name, root, file, (command[0], str(root), *command[1:]))
