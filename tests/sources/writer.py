"""Writes dumps as MindSpore does, from the specification: every generation of names, in small."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.messages import message_class

Array = npt.NDArray[Any]

_OLD_COLUMNS = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count"),
    *("NaN Count", "Negative Inf Count", "Positive Inf Count", "Zero Count"),
)
_DATA_TYPES = {"bool": 1, "int32": 4, "int64": 5, "float16": 10, "float32": 11, "float64": 12, "bfloat16": 46}
_TENSOR = 14


START = 1_700_000_000_000_000
"""When writing begins, in microseconds since the epoch."""


class Generation(Enum):
    """Which MindSpore writes: (version, separator of scopes, dtype token)."""

    V2_0 = "2.0.0"
    V2_3 = "2.3.0"
    V2_5 = "2.5.0"
    V2_10 = "2.10.0"


@dataclass(frozen=True)
class Node:
    """One operator of a graph to write: full name, type, inputs (full name or parameter name, slot)."""

    name: str
    type: str
    inputs: Sequence[tuple[str, int]] = ()
    shape: tuple[int, ...] = (2, 3)
    source: str = ""


@dataclass
class Graph:
    """A graph to write: operators in execution order, parameters, constants (``cst1``: ``Default--data-0``)."""

    nodes: Sequence[Node] = ()
    parameters: Sequence[str] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    id: int = 0
    root: int = 0


class DumpWriter:
    """Writes one dump, step by step, as a training process would; timestamps increase with every file."""

    def __init__(self, root: Path, generation: Generation = Generation.V2_10, *, net: str = "Net") -> None:
        self.root = root
        self.generation = generation
        self.net = net
        self.clock = START

    def rank(self, rank: int = 0) -> Path:
        path = self.root / f"rank_{rank}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def step(self, step: int, *, rank: int = 0, graph: int = 0) -> Path:
        path = self.rank(rank) / self.net / str(graph) / str(step)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def metadata(self, *, rank: int = 0, device: str = "CPU") -> None:
        directory = self.rank(rank) / ".dump_metadata"
        directory.mkdir(exist_ok=True)
        settings = {"common_dump_settings": {"net_name": self.net, "iteration": "all", "saved_data": "tensor"}}
        (directory / "data_dump.json").write_text(json.dumps(settings))
        (directory / "config.json").write_text(
            json.dumps({"device_target": device, "ms_version": self.generation.value})
        )

    def history(self, steps: Sequence[int], *, rank: int = 0, graph: int = 0) -> None:
        directory = self._directory(rank, "execution_order")
        with (directory / f"ms_global_execution_order_graph_{graph}.csv").open("a") as file:
            file.writelines(f"{step}\n" for step in steps)

    def graph(self, graph: Graph, *, rank: int = 0, order: bool = True) -> Path:
        """The .pb and, unless switched off, the execution-order file."""
        model = message_class("ModelProto")(ir_version=0)
        proto = model.graph
        separator = "" if self.generation is Generation.V2_10 else "_"
        proto.name = f"kernel_graph{separator}{graph.id}".encode()
        proto.root_name = str(graph.root).encode()
        index = {node.name: str(number) for number, node in enumerate(graph.nodes, 1)}
        for name in graph.parameters:
            _tensor_type(proto.parameters.add(name=name.encode()).type, (2, 3))
        for node in graph.nodes:
            message = proto.node.add(
                name=index[node.name].encode(),
                op_type=node.type.encode(),
                scope=node.name.rpartition("/")[0].encode(),
                full_name=node.name.encode(),
                source_address=node.source.encode(),
            )
            _tensor_type(message.output_type, node.shape)
            for producer, _ in node.inputs:
                message.input.add(name=index.get(producer, producer).encode())
        for key, full_name in graph.constants.items():
            proto.const_vals.add(key=key.encode(), full_name=full_name.encode()).value.SetInParent()
        path = self._directory(rank, "graphs") / f"ms_output_trace_code_graph_{graph.id}.pb"
        path.write_bytes(model.SerializeToString())
        if order:
            csv = self._directory(rank, "execution_order") / f"ms_execution_order_graph_{graph.id}.csv"
            csv.write_text("\n".join(["NodeExecutionOrder-FullNameWithScope", *(n.name for n in graph.nodes), ""]))
        return path

    def file_name(self, op_type: str, name: str, side: str, slot: int, *, dtype: str = "float32") -> str:
        """The name of the next file; advances the clock."""
        self.clock += 100
        if op_type == "Parameter":
            spelled = name.replace(".", "_") if self.generation is Generation.V2_10 else name
        elif self.generation is Generation.V2_0:
            spelled = name.rpartition("/")[2]
        else:
            spelled = name.replace("/", "_" if self.generation is Generation.V2_10 else "--")
        token = {Generation.V2_5: f".{dtype}", Generation.V2_10: f".{_capital(dtype)}"}.get(self.generation, "")
        return f"{op_type}.{spelled}.0.0.{self.clock}.{side}.{slot}.DefaultFormat{token}.npy"

    def tensor(
        self,
        step: int,
        op_type: str,
        name: str,
        values: Array,
        *,
        at: tuple[str, int] = ("output", 0),
        rank: int = 0,
        graph: int = 0,
        dtype: str = "",
    ) -> Path:
        """One tensor at (side, slot); ``dtype`` is the declared type when it is not the stored one (``bfloat16``)."""
        name = self.file_name(op_type, name, *at, dtype=dtype or values.dtype.name)
        path = self.step(step, rank=rank, graph=graph) / name
        np.save(path, values)
        return path

    def raw_bfloat16(self, step: int, op_type: str, name: str, values: Array, *, rank: int = 0) -> Path:
        """One output as raw ``<E2``: the upper halves of float32, under a header numpy itself does not write."""
        path = self.step(step, rank=rank) / self.file_name(op_type, name, "output", 0, dtype="bfloat16")
        bits = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
        text = f"{{'descr': '<E2', 'fortran_order': False, 'shape': {bits.shape}, }}"
        header = text.ljust(117) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bits.tobytes())
        return path

    def constant(self, number: int, values: Array, *, rank: int = 0, graph: int = 0) -> Path:
        directory = self.rank(rank) / self.net / str(graph) / "constants"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.file_name("Parameter", f"data-{number}", "output", 0)
        np.save(path, values)
        return path

    def mapped(self, step: int, digits: str, original: str, values: Array, *, rank: int = 0) -> Path:
        """A tensor whose name was too long: a file of digits and a row in mapping.csv."""
        directory = self.step(step, rank=rank)
        with (directory / "mapping.csv").open("a") as file:
            file.write(f"{digits}.npy,{original}\n")
        path = directory / f"{digits}.npy"
        np.save(path, values)
        return path

    def statistics(
        self,
        step: int,
        rows: Sequence[tuple[str, str, str, int, Array]],
        *,
        rank: int = 0,
        columns: Sequence[str] = _OLD_COLUMNS,
        trailing_comma: bool = False,
    ) -> Path:
        """Appends rows (type, name, io, slot, values) to statistic.csv; the header only into a new file."""
        path = self.step(step, rank=rank) / "statistic.csv"
        lines = [] if path.exists() else [",".join(columns)]
        for op_type, name, side, slot, values in rows:
            self.clock += 100
            identity = {
                "Op Type": op_type,
                "Op Name": name,
                "IO": side,
                "Slot": str(slot),
                "Timestamp": str(self.clock),
            }
            recorded = identity | statistic_row(values)
            lines.append(",".join(recorded[column] for column in columns) + ("," if trailing_comma else ""))
        with path.open("a") as file:
            file.writelines(line + "\n" for line in lines)
        return path

    def _directory(self, rank: int, name: str) -> Path:
        path = self.rank(rank) / name
        path.mkdir(exist_ok=True)
        return path


def statistic_row(values: Array) -> dict[str, str]:
    finite = values[np.isfinite(values)].astype(np.float64)
    shape = ",".join(map(str, values.shape))
    return {
        "Task ID": "0",
        "Stream ID": "0",
        "Data Size": str(values.nbytes),
        "Data Type": values.dtype.name,
        "Shape": f'"({shape})"',
        "Max Value": f"{finite.max(initial=-1.79769e308):.6g}",
        "Min Value": f"{finite.min(initial=1.79769e308):.6g}",
        "Avg Value": f"{finite.mean() if len(finite) else 0:.6g}",
        "Count": str(values.size),
        "Negative Zero Count": str(int((finite < 0).sum())),
        "Positive Zero Count": str(int((finite > 0).sum())),
        "NaN Count": str(int(np.isnan(values).sum())),
        "Negative Inf Count": str(int((values == -np.inf).sum())),
        "Positive Inf Count": str(int((values == np.inf).sum())),
        "Zero Count": str(int((finite == 0).sum())),
        "L2Norm Value": f"{np.sqrt((values.astype(np.float64) ** 2).sum()):.6g}",
        "MD5": "d41d8cd98f00b204e9800998ecf8427e",
    }


def _tensor_type(message: Any, shape: Sequence[int]) -> None:
    message.data_type = _TENSOR
    message.tensor_type.elem_type = _DATA_TYPES["float32"]
    for size in shape:
        message.tensor_type.shape.dim.add(size=size)


def _capital(dtype: str) -> str:
    return {"bfloat16": "BFloat16", "uint8": "UInt8"}.get(dtype, dtype.capitalize())


MLP = Graph(
    nodes=(
        Node("Default/network-Net/fc1-Dense/MatMul-op1", "MatMul", (("x", 0), ("fc1.weight", 0))),
        Node("Default/network-Net/act-ReLU/ReLU-op2", "ReLU", (("Default/network-Net/fc1-Dense/MatMul-op1", 0),)),
        Node("Default/optimizer-SGD/ApplyMomentum-op3", "ApplyMomentum", (("fc1.weight", 0), ("accum.fc1.weight", 0))),
    ),
    parameters=("x", "fc1.weight", "accum.fc1.weight"),
)
"""A network of three operators and three parameters."""


def write_step(writer: DumpWriter, step: int, graph: Graph = MLP, *, rank: int = 0, seed: int = 0) -> dict[str, Array]:
    """One complete step of a graph: every node's output, its inputs as their producers' outputs, the parameters.

    Returns:
        Output values by canonical node id.
    """
    random = np.random.default_rng((seed, step, rank))
    names = [*graph.parameters, *(node.name for node in graph.nodes)]
    values = {name: random.standard_normal((2, 3)).astype(np.float32) for name in names}
    tensor = partial(writer.tensor, step, rank=rank, graph=graph.root)
    for node in graph.nodes:
        for slot, (producer, _) in enumerate(node.inputs):
            tensor(node.type, node.name, values[producer], at=("input", slot))
        tensor(node.type, node.name, values[node.name])
    for name in graph.parameters:
        tensor("Parameter", name, values[name])
    return values


def write_run(
    writer: DumpWriter, step: int, graph: Graph = MLP, *, at: int, rank: int = 0, seed: int = 0
) -> dict[str, Array]:
    """``write_step`` at a time of its own, in microseconds after ``START``: another run when the step has one."""
    writer.clock = START + at
    return write_step(writer, step, graph, rank=rank, seed=seed)


def write_dump(
    root: Path,
    generation: Generation = Generation.V2_10,
    *,
    steps: Sequence[int] = (0, 1, 2),
    ranks: Sequence[int] = (0,),
) -> DumpWriter:
    """A complete healthy dump of ``MLP``: metadata, graph, order, history, tensors."""
    writer = DumpWriter(root, generation)
    for rank in ranks:
        writer.metadata(rank=rank)
        writer.graph(MLP, rank=rank)
        for step in steps:
            write_step(writer, step, rank=rank)
        writer.history(steps, rank=rank)
    return writer


def age(root: Path) -> None:
    """Makes everything look an hour old, directories after what is in them."""
    for path in sorted((*root.rglob("*"), root), reverse=True):
        then = path.lstat().st_mtime_ns - 3600 * 10**9
        os.utime(path, ns=(then, then))


def write_bare_rank(root: Path) -> DumpWriter:
    """A dump of steps 0 and 2 whose rank 1 has a graph but neither metadata nor history.

    As a real run of two processes with MindSpore 2.10 leaves it; rank 0's history then has both ranks' rows.
    """
    writer = write_dump(root, ranks=(0,))
    writer.history((0, 1, 2))
    writer.graph(MLP, rank=1)
    for step in (0, 2):
        write_step(writer, step, rank=1)
    return writer


def overwrite(path: Path, content: bytes | None) -> None:
    """Puts something else in a file's place; None: a directory."""
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


def huge_file(path: Path) -> Path:
    """A tensor that takes minutes to read: nobody waits for it. Its file has a hole where the values would be."""
    elements = 1 << 38
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (elements,)})
        file.truncate(file.tell() + 4 * elements)
    return path
