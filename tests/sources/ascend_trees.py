"""Writes the directory trees of the recorders on Ascend servers, small ones, with a NaN in one of their tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tests.ascend_files import Written, file_bytes, write

TIME: Final = "20240102030405"
Array = npt.NDArray[Any]


@dataclass
class Planted:
    """Gives the values of the tensors of a tree, one after the other.

    Attributes:
        bad: the number of the tensor that has a NaN; -1: none.
        written: the number of tensors so far.
    """

    bad: int = -1
    written: int = 0

    def values(self) -> Array:
        """The values of the next tensor."""
        found = np.arange(1, 7, dtype=np.float32).reshape(2, 3) / (8 + self.written)
        if self.written == self.bad:
            found[1, 1] = np.nan
        self.written += 1
        return found

    def device_file(self, directory: Path, name: str = "MatMul.Default_MatMul_1.11.2") -> Path:
        """A file of a device with one output."""
        written = [Written(self.values())]
        return write(directory / f"{name}.{1_700_000_000_000_000 + 100 * self.written}", file_bytes((), written))

    def array(self, path: Path) -> None:
        """A file of NumPy."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, self.values())

    def operators(self, directory: Path) -> None:
        """Files of two operators."""
        self.device_file(directory)
        self.device_file(directory, "ReLU.Default_ReLU_2.12.2")


def graph_mode_o2(root: Path, plant: Planted) -> None:
    """MindSpore 2.3 and newer, O2."""
    for step in (0, 1):
        for device in (0, 1):
            plant.operators(root / f"{step}/{TIME}/{device}/ge_default/1/0")
    (root / "acl_dump_0.json").write_text("{}")


def graph_mode_o2_without_model(root: Path, plant: Planted) -> None:
    """The same, as the page of 2.3 prints it."""
    for step in (0, 1):
        plant.operators(root / f"{step}/{TIME}/0/1/0")


def operators_and_communication(root: Path, plant: Planted) -> None:
    """MindSpore 2.3, O0 and O1, asynchronously."""
    for step in (0, 1):
        plant.operators(root / f"{step}/{TIME}/0")
        plant.device_file(root / f"{step}/{TIME}/0/hccl_world_group/7/0", "AllReduce.Default_AllReduce_3.13.2")


def without_step(root: Path, plant: Planted) -> None:
    """ACL, GE, TensorFlow's adapter."""
    for index in (0, 1, 2):
        plant.operators(root / f"{TIME}/0/ge_default/1/{index}")
    plant.operators(root / "20240102030406/1/ge_default/1/0")


def operator_by_operator(root: Path, plant: Planted) -> None:
    """ACL, single operators."""
    plant.operators(root / f"{TIME}/0")


def operator_by_operator_old(root: Path, plant: Planted) -> None:
    """The same, of old versions."""
    plant.device_file(root / "0/MatMul_1")
    plant.device_file(root / "0/ReLU_2", "ReLU.Default_ReLU_2.12.2")


def kernels_of_msprobe(root: Path, plant: Planted) -> None:
    """Msprobe at level L2."""
    for step in (0, 1):
        plant.operators(root / f"step{step}/{TIME}/0")
        (root / f"step{step}/kernel_config_0.json").write_text("{}")


def adump_of_msprobe(root: Path, plant: Planted) -> None:
    """Msprobe for O2 of MindSpore 2.5 and newer."""
    for rank in (0, 1):
        for step in (0, 1):
            for name in ("MatMul.Default_MatMul_1.11.2", "ReLU.Default_ReLU_2.12.2"):
                time = 1_700_000_000_000_000 + 100 * plant.written
                name_of_file = f"{name}.{time}.output.0.ND.FLOAT.npy"
                plant.array(root / f"rank_{rank}/{TIME}/step_{step}/{name_of_file}")
    (root / "acl_dump_0.json").write_text("{}")


def torchair_ge(root: Path, plant: Planted) -> None:
    """TorchAir, GE."""
    for rank in (0, 1):
        top = root / f"msprobe_ge_dump/worldsize2_global_rank{rank}"
        for token in (0, 1):
            plant.operators(top / f"{TIME}/{rank}/graph_1/1/{token}")
        (top / f"dynamo_original_graph_1_rank_{rank}_pid_5_ts_1.txt").write_text("name: x")


def torchair_ge_old(root: Path, plant: Planted) -> None:
    """The same without the level of ranks."""
    for token in (0, 1):
        plant.operators(root / f"msprobe_ge_dump/{TIME}/0/graph_1/1/{token}")


def msit_offline(root: Path, plant: Planted) -> None:
    """Msit, offline models."""
    plant.operators(root / f"dump_data/npu/{TIME}/0/model/1/0")


Tree = Callable[[Path, Planted], None]
TREES: Final[tuple[Tree, ...]] = (
    graph_mode_o2,
    graph_mode_o2_without_model,
    operators_and_communication,
    without_step,
    operator_by_operator,
    operator_by_operator_old,
    kernels_of_msprobe,
    adump_of_msprobe,
    torchair_ge,
    torchair_ge_old,
    msit_offline,
)
