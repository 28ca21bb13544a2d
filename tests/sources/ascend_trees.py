"""Writes the directory trees of the recorders on Ascend servers, small ones, with a NaN in one of their tensors."""

from __future__ import annotations

import json
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
    plant.operators(root / f"{TIME}/dump_data/npu/{TIME}/0/model/1/0")


def torchair_fx(root: Path, plant: Planted) -> None:
    """TorchAir, FX."""
    for rank in (0, 1):
        for token in (1, 2):
            directory = root / f"msprobe_fx_dump/worldsize2_global_rank{rank}/graph_1/{token}"
            for name in (
                "mm-aten.mm.default.INPUT.0",
                "mm-aten.mm.default.OUTPUT.0",
                "relu-aten.relu.default.OUTPUT.0",
            ):
                plant.array(directory / f"{name}.{20240125031118787351 + plant.written}.npy")


def torchair_fx_old(root: Path, plant: Planted) -> None:
    """The same, of old versions."""
    for token in (1, 2):
        directory = root / f"msprobe_fx_dump/data_dump/{token}/gm_{TIME}_dump"
        plant.array(directory / f"mm-aten.mm.default.OUTPUT.0.{20240125031118787351 + plant.written}.npy")


def single_save(root: Path, plant: Planted) -> None:
    """Msprobe's SingleSave: a directory for each thing that the program names."""
    for key in ("loss", "grad"):
        for step in (0, 1):
            for rank in (0, 1):
                directory = root / f"data/{key}/step{step}/rank{rank}/micro_step0"
                plant.array(directory / f"{key}.npy")
                (directory / f"{key}.json").write_text('{"data": {"max": 1.0, "min": 0.5, "mean": 0.7, "norm": 2.0}}')
    (root / "configurations.json").write_text("{}")


def atb_bytes(values: Array) -> bytes:
    """A file of ATB with one tensor."""
    data = values.tobytes()
    lines = ("$Version=1.0", "$Object.Count=1", f"$Object.Length={len(data)}", "format=2", "dtype=0")
    dims = ",".join(map(str, values.shape))
    head = "\n".join((*lines, f"dims={dims}", f"$Object.data=0,{len(data)}", "$End=1", ""))
    return head.encode() + data


def atb(root: Path, plant: Planted) -> None:
    """ATB: MindIE, vLLM for Ascend."""
    for rank in (0, 1):
        for token in (0, 1):
            layer = root / f"atb_dump_data/data/{rank}_{4711 + rank}/{token}/0_Decoder_layer"
            for name in (
                "0_Linear/after/outtensor0",
                "0_Linear/0_MatMulKernel/before/intensor0",
                "1_Norm/after/outtensor1",
            ):
                write(layer / f"{name}.bin", atb_bytes(plant.values()))
            (layer / "0_Linear/op_param.json").write_text("{}")
    write(root / "atb_dump_data/info/layer/0_4711/Decoder_layer_0.json", b"{}")


def aclgraph_tensors(root: Path, plant: Planted) -> None:
    """Msprobe's AclGraphDumper, task tensor."""
    import torch

    for step in (0, 1):
        for process in ("rank0", "rank1"):
            directory = root / f"step{step}/{process}/dump_tensor_data"
            directory.mkdir(parents=True)
            for name in ("Aten.mm.0.output", "Module.fc.Linear.0.input_kwargs.x"):
                torch.save(torch.from_numpy(plant.values()), directory / f"{name}.pt")
            (root / "dump_tensor_data" / process).mkdir(parents=True, exist_ok=True)  # where a step is collected


def aclgraph_statistics(root: Path, plant: Planted) -> None:
    """Msprobe's AclGraphDumper, task statistics, without a process group."""
    for step in (0, 1):
        directory = root / f"step{step}/pid77"
        directory.mkdir(parents=True)
        calls = {}
        for call in ("Aten.mm.0.forward", "Module.fc.Linear.forward.0"):
            values = plant.values()
            norm = float(np.sqrt((values.astype(np.float64) ** 2).sum()))
            numbers = {"Max": values.max(), "Min": values.min(), "Mean": values.mean(), "Norm": norm}
            said = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape)}
            calls[call] = {"output": [said | {name: float(number) for name, number in numbers.items()}]}
        content = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": calls}
        (directory / "dump.json").write_text(json.dumps(content))


ATB_TITLES: Final = (
    "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,Mean,Norm,"
    "Tensor Path"
)


def atb_statistics(root: Path, plant: Planted) -> None:
    """ATB, statistics alone."""
    for token in (0, 1):
        rows = [ATB_TITLES]
        for name, number in (("Decoder_layer/Linear", "0_0"), ("Decoder_layer/Norm", "0_1")):
            values = plant.values()
            norm = np.sqrt((values.astype(np.float64) ** 2).sum())
            cells = f"{np.nanmax(values)},{np.nanmin(values)},{values.mean()},{norm},N/A"
            rows.append(f"0_4711,{token},{name},LinearOperation,{number},Output,0,float,nd,2x3,{cells}")
        write(root / f"atb_dump_data/data/0_4711/{token}/statistic.csv", "\n".join([*rows, ""]).encode())


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
    torchair_fx,
    torchair_fx_old,
    single_save,
    atb,
    aclgraph_tensors,
    aclgraph_statistics,
    atb_statistics,
)
