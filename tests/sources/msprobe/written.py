"""Writes small dumps as msprobe does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
