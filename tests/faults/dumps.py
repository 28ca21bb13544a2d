"""Small clean dumps of seven layouts, most of them recorded ones that are cut down to a few tensors.

Each call of each command on them can fail in some ways: a dump of ten files has thousands of faults.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from tests.sources.writer import Generation, write_dump
from tui_debugger.notes import NOTES_FILE, notes_line
from tui_debugger.session.convert import convert
from tui_debugger.session.session import open_dump

Dumps = Callable[[str], Path]


_OPERATORS: Final = ("BiasAdd.*fc1-Dense*", "ReLU.*act1*", "Parameter.fc1_*")
"""Files of a step of MindSpore's that are kept: an operator, what it reads, what reads it."""
_CALLS: Final = ("Functional.linear.0.", "Module.b.0.q.Linear.", "Tensor.__add__.0.")
"""Calls of msprobe's that are kept: a module and what it calls, and one beside them."""


def mindspore(root: Path, dumps: Dumps) -> None:
    """Two steps of two operators and their parameters, with the graph of all."""
    shutil.copytree(dumps("mindspore-2.10-mlp"), root)
    for step in (root / "rank_0" / "MLP" / "0").iterdir():
        if int(step.name) > 1:
            shutil.rmtree(step)
            continue
        kept = {path for pattern in _OPERATORS for path in step.glob(pattern)}
        for path in set(step.iterdir()) - kept:
            path.unlink()


def msprobe(root: Path, dumps: Dumps) -> None:
    """A step of a few calls and a module, with stacks."""
    shutil.copytree(dumps("msprobe-mix") / "good" / "step0", root / "step0")
    (rank,) = (root / "step0").iterdir()
    for path in (rank / "dump_tensor_data").iterdir():
        if not path.name.startswith(_CALLS):
            path.unlink()
    said = json.loads((rank / "dump.json").read_text("utf-8"))
    said["data"] = {name: call for name, call in said["data"].items() if name.startswith(_CALLS)}
    (rank / "dump.json").write_text(json.dumps(said), "utf-8")


def sglang(root: Path, dumps: Dumps) -> None:
    """Five tensors of two ranks of tensor parallelism."""
    shutil.copytree(dumps("sglang-megatron") / "sglang-tp" / "tp2", root)
    for path in root.iterdir():
        if not re.search(r"dump_index=(3[1-4]|47)_", path.name):
            path.unlink()


def megatron(root: Path, dumps: Dumps) -> None:
    """Activations and their gradients of two ranks."""
    shutil.copytree(dumps("sglang-megatron") / "megatron-tp2" / "good", root)
    shutil.rmtree(root / "wgrads")


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


def converted(root: Path, _: Dumps) -> None:
    """What ``tdbg convert`` made of a dump of two steps, with nodes and notes beside them."""
    made = root.with_name(f"{root.name} of before")
    writer = write_dump(made, Generation.V2_0, steps=(0, 1))
    notes = [notes_line(step, {"loss": 1.0 / (step + 1)}) for step in (0, 1)]
    (writer.root / "rank_0" / NOTES_FILE).write_text("".join(notes), "utf-8")
    session = open_dump(made, remember=False)
    session.open()
    convert(session, session.pairs(), root)
    session.close()
    shutil.rmtree(made)


LAYOUTS: Final[dict[str, Callable[[Path, Dumps], None]]] = {
    made.__name__: made for made in (mindspore, msprobe, sglang, megatron, checkpoint, converted, arrays)
}
