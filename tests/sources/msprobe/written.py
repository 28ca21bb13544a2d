"""Writes small dumps as msprobe does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Calls = Mapping[str, Any]


def tensor(
    number: float, shape: Sequence[int] = (2, 3), dtype: str = "torch.float32", **more: object
) -> dict[str, Any]:
    """The record of a tensor that looks like no other one of another number."""
    numbers = {"Max": number + 1.5, "Min": number - 1.5, "Mean": number, "Norm": abs(number) * 3 + 1}
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), **numbers, "requires_grad": True, **more}


def scalar(value: object) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


def forward(inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {"input_args": list(inputs), "input_kwargs": {}, "output": list(outputs), **more}


def backward(inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    return {"input": list(inputs), "output": list(outputs)}


def write(
    root: Path,
    calls: Calls,
    construct: Mapping[str, str | None] | None = None,
    *,
    step: int = 0,
    unit: str = "rank0",
    task: str = "statistics",
    level: str = "mix",
) -> Path:
    """Writes the calls of one step; returns the directory that they are in."""
    directory = root / f"step{step}" / unit
    directory.mkdir(parents=True)
    head = {"task": task, "level": level, "framework": "pytorch", "dump_data_dir": None}
    (directory / "dump.json").write_text(json.dumps({**head, "data": calls}))
    (directory / "construct.json").write_text(json.dumps(construct or {}))
    (directory / "stack.json").write_text("{}")
    return directory


Arrays = Sequence[npt.NDArray[Any]]


def held(values: npt.NDArray[Any], file: str = "") -> dict[str, Any]:
    """The record of a tensor with these values: one NaN makes all four numbers NaN, as PyTorch's are."""
    with np.errstate(invalid="ignore"):
        numbers = {
            "Max": float(values.max()),
            "Min": float(values.min()),
            "Mean": float(values.mean()),
            "Norm": float(np.sqrt(np.square(values).sum())),
        }
    kind = f"torch.{values.dtype}"
    named = {"data_name": file} if file else {}
    return {"type": "torch.Tensor", "dtype": kind, "shape": list(values.shape), **numbers, **named}


def write_values(
    root: Path,
    calls: Mapping[str, tuple[Arrays, Arrays]],
    *,
    step: int = 0,
    files: bool = True,
    lost: Sequence[str] = (),
    construct: Mapping[str, str | None] | None = None,
    level: str = "L1",
) -> Path:
    """Writes calls, each with its inputs and outputs; returns the directory of the dump.

    Args:
        root: the directory of the dump.
        calls: by key.
        step: the step.
        files: the values are in files, beside the statistics.
        lost: names of files that were deleted since, such as ``Torch.add.0.forward.input.0.npy``.
        construct: the module around each call.
        level: as the recorder says it.
    """
    directory = root / f"step{step}" / "rank0"
    records: dict[str, Any] = {}
    written: dict[str, npt.NDArray[Any]] = {}
    for key, (inputs, outputs) in calls.items():
        sides = []
        for side, arrays in (("input", inputs), ("output", outputs)):
            named = {f"{key}.{side}.{at}.npy": values for at, values in enumerate(arrays)}
            written |= named
            sides.append([held(values, file if files else "") for file, values in named.items()])
        records[key] = forward(*sides)
    task = "tensor" if files else "statistics"
    write(root, records, construct or dict.fromkeys(calls), step=step, task=task, level=level)
    if files:
        (directory / "dump_tensor_data").mkdir()
        for file in written.keys() - set(lost):
            np.save(directory / "dump_tensor_data" / file, written[file])
    return root
