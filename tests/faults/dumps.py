"""Small clean dumps of five layouts, recorded ones cut down to a step or two, and the commands tried on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

Dumps = Callable[[str], Path]


def mindspore(root: Path, dumps: Dumps) -> None:
    """Two steps with their graph."""
    shutil.copytree(dumps("mindspore-2.10-mlp"), root)
    for step in (root / "rank_0" / "MLP" / "0").iterdir():
        if int(step.name) > 1:
            shutil.rmtree(step)


def msprobe(root: Path, dumps: Dumps) -> None:
    """A step of calls and modules, with stacks."""
    shutil.copytree(dumps("msprobe-mix") / "good" / "step0", root / "step0")


def sglang(root: Path, dumps: Dumps) -> None:
    """Two ranks of tensor parallelism."""
    shutil.copytree(dumps("sglang-megatron") / "sglang-tp" / "tp2", root)


def megatron(root: Path, dumps: Dumps) -> None:
    """Activations and gradients of two ranks."""
    shutil.copytree(dumps("sglang-megatron") / "megatron-tp2" / "good", root)


def checkpoint(root: Path, dumps: Dumps) -> None:
    """Sharded safetensors with their index."""
    shutil.copytree(dumps("checkpoints") / "ckpt-dcp" / "dcp_hf_consolidated", root)


def arrays(root: Path, _: Dumps) -> None:
    """A directory of .npy files."""
    root.mkdir()
    for step in range(2):
        for layer in range(3):
            values = np.linspace(0.1 + step, 1 + layer, 60, dtype=np.float32).reshape(5, 12)
            np.save(root / f"step{step}_layer{layer}.npy", values)


LAYOUTS: Final[dict[str, Callable[[Path, Dumps], None]]] = {
    made.__name__: made for made in (mindspore, msprobe, sglang, megatron, checkpoint, arrays)
}
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "check": ("check", "DUMP", "--watch", "TO", "--json", "--jobs", "1"),
    "origin": ("origin", "DUMP", "--json", "--jobs", "1"),
    "stat": ("stat", "DUMP", "--csv", "--jobs", "1"),
    "report": ("report", "DUMP", "--watch", "TO", "--jobs", "1", "-o", "OUT/report.md"),
    "export to one file": ("export", "DUMP", "tensors", "-o", "OUT/tensors.npz"),
    "export to files": ("export", "DUMP", "tensors", "-o", "OUT/tensors/"),
    "diff": ("diff", "DUMP", "DUMP", "--json"),
    "audit": ("audit", "DUMP", "--json", "--jobs", "1"),
    "screen": ("screen", "DUMP"),
}
WRITING: Final = ("report", "export to one file", "export to files")
"""Commands that write files."""
REMEMBERING: Final = ("check", "origin", "stat")
"""Commands that fill the index of earlier sessions."""
AUDITED: Final = ("mindspore", "msprobe")
"""Layouts that say what operator made a tensor: only those can be audited."""


def words(command: str, dump: Path, out: Path) -> list[str]:
    """A command line."""
    return [word.replace("DUMP", str(dump)).replace("OUT", str(out)) for word in COMMANDS[command]]
