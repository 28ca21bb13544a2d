"""Records calls of PyTorch as msprobe does: values in .pt files, arguments in dump.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tui_debugger.session.session import Session
from tui_debugger.sources import open_source


@dataclass
class Call:
    """A call to record: ``name`` as msprobe writes it, without counter (``Functional.linear``)."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    spoil: Callable[[torch.Tensor], torch.Tensor] | None = None
    module: dict[str, torch.Tensor] | None = None


class Recorder:
    """Writes the calls of one step."""

    def __init__(self, root: Path, *, step: int = 0, rank: int = 0) -> None:
        self._directory = root / f"step{step}" / f"rank{rank}"
        (self._directory / "dump_tensor_data").mkdir(parents=True)
        self._data: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def run(self, call: Call) -> str:
        """Calls the function, and records it; returns the key of the call."""
        number = self._counts[call.name] = self._counts.get(call.name, -1) + 1
        parts = call.name, str(number)
        key = f"{parts[0]}.forward.{parts[1]}" if call.module is not None else f"{parts[0]}.{parts[1]}.forward"
        recorded = {
            "input_args": [self._taken(each, f"{key}.input.{at}") for at, each in enumerate(call.args)],
            "input_kwargs": {name: self._taken(each, f"{key}.input.{name}") for name, each in call.kwargs.items()},
        }
        if call.module is not None:
            own = call.module.items()
            recorded["parameters"] = {name: self._taken(each, f"{key}.parameters.{name}") for name, each in own}
        with torch.no_grad():
            made = call.function(*call.args, **call.kwargs)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        if call.spoil is not None:
            outputs = [call.spoil(each.clone()) for each in outputs]
        recorded["output"] = [self._taken(each, f"{key}.output.{at}") for at, each in enumerate(outputs)]
        self._data[key] = recorded
        return key

    def _taken(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            file = f"{name}.pt"
            torch.save(value.detach().clone(), self._directory / "dump_tensor_data" / file)
            numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), 0.5)
            kind = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
            return {**kind, **numbers, "requires_grad": False, "data_name": file}
        if isinstance(value, (list, tuple)):
            return [self._taken(each, f"{name}.{at}") for at, each in enumerate(value)]
        if isinstance(value, slice):
            return {"type": "slice", "value": [value.start, value.stop, value.step]}
        if isinstance(value, torch.dtype):
            return {"type": "torch.dtype", "value": str(value)}
        return None if value is None else {"type": type(value).__name__, "value": value}

    def write(self) -> None:
        """Writes dump.json; nothing is called after that."""
        head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        (self._directory / "dump.json").write_text(json.dumps({**head, "data": self._data}))
        for name in ("construct", "stack"):
            (self._directory / f"{name}.json").write_text("{}")


def record(root: Path, calls: Iterable[Call]) -> list[str]:
    """Records calls as one step; returns the names of their nodes."""
    recorder = Recorder(root)
    keys = [recorder.run(call) for call in calls]
    recorder.write()
    return [key.removesuffix(".forward") for key in keys]


def session_of(root: Path) -> Session:
    """Opens a recorded run."""
    session = Session(open_source(root))
    session.open()
    return session
