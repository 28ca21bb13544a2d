"""The audit: bytes of recorded inputs and outputs over processor time of one core, by kind of operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from tests.benchmarks.runs import processor_seconds
from tests.benchmarks.timing import Result
from tests.session.opened import opened
from tests.sources.msprobe.written import forward, scalar, tensor, write
from tui_debugger.diagnose.recompute.check import OperatorCheck, check_operator
from tui_debugger.diagnose.recompute.elementwise import erf
from tui_debugger.session import Session

BAR: Final = 1.0
"""GB/s."""
ROWS, WIDTH = 2048, 1024
"""Of a matrix at full size: 8 MB of float32."""
Values = Any


class Case(NamedTuple):
    """An operator that is right.

    Attributes:
        kind: what it is called in the results.
        name: as msprobe writes it.
        function: of the inputs in float64, makes the output.
        inputs: tensors, in the type that is tried; others as they are.
        bar: GB/s that are wanted.
    """

    kind: str
    name: str
    function: Callable[..., Values]
    inputs: tuple[Any, ...]
    bar: float = BAR


def run(scale: float, folder: Path) -> list[Result]:
    """Every kind with float32 and with 16 bits."""
    results = []
    for dtype in (np.dtype(np.float32), np.dtype(np.float16 if _torch() is None else ml_dtypes.bfloat16)):
        root = folder / dtype.name
        speeds = measured(root, list(cases(scale)), dtype)
        for case, (speed, milliseconds) in zip(cases(scale), speeds, strict=True):
            note = f"{milliseconds:.1f} ms"
            results.append(Result(f"audit: {case.kind}, {dtype.name}", speed, case.bar, "GB/s", note=note))
        results.append(Result(f"audit: reading alone, {dtype.name}", read_alone(root), BAR, "GB/s"))
    return results


def measured(root: Path, those: list[Case], dtype: np.dtype[Any]) -> list[tuple[float, float]]:
    """GB/s and milliseconds of every case."""
    names = recorded(root, those, dtype)
    session = opened(root)
    nodes, found = session.nodes(0), []
    rows = [nodes.find(name) for name in names]
    for case, row in zip(those, rows, strict=True):
        check = check_operator(session, 0, 0, row)
        assert isinstance(check, OperatorCheck), (case.kind, check)
        assert not check.wrong, (case.kind, check)
        (seconds,) = processor_seconds(partial(_checked, session, row), repeat=3)
        found.append((check.nbytes / seconds / 1e9, seconds * 1e3))
    session.close()
    return found


def read_alone(root: Path) -> float:
    """GB/s of reading what an addition needs: what no kind of so many bytes can exceed."""
    session = opened(root)
    nodes = session.nodes(0)
    row = next(at for at, name in enumerate(nodes.names) if "Torch.add." in name)
    keys = [each.key for each in session.tensor_rows(0, 0, row, 0) if each.has_value]
    nbytes = sum(session.read(key).nbytes for key in keys)
    (seconds,) = processor_seconds(lambda: [session.read(key) for key in keys], repeat=3)
    session.close()
    return nbytes / seconds / 1e9


def _checked(session: Session, row: int) -> None:
    check_operator(session, 0, 0, row)


def recorded(root: Path, those: list[Case], dtype: np.dtype[Any]) -> list[str]:
    """Writes the calls of a step; returns the names of their nodes."""
    records: dict[str, Any] = {}
    files: dict[str, Values] = {}
    for number, case in enumerate(those):
        name = f"{case.name}.{number}.forward"
        inputs = [_typed(each, dtype) for each in case.inputs]
        wide = [each.astype(np.float64) if _is_float(each) else each for each in inputs]
        with np.errstate(all="ignore"):
            made = np.asarray(case.function(*wide))
        out = made.astype(dtype) if made.dtype.kind == "f" else made
        arguments = []
        for at, each in enumerate(inputs):
            if isinstance(each, np.ndarray):
                files[f"{name}.input.{at}"] = each
                arguments.append(_record(number + at / 10, each, f"{name}.input.{at}"))
            else:
                arguments.append(_plain(each))
        files[f"{name}.output.0"] = out
        records[name] = forward(arguments, [_record(number + 0.05, out, f"{name}.output.0")])
    folder = write(root, records, task="tensor") / "dump_tensor_data"
    folder.mkdir()
    for file, each in files.items():
        _save(folder / file, each)
    return [name.removesuffix(".forward") for name in records]


def _plain(value: Any) -> Any:
    return [scalar(each) for each in value] if isinstance(value, tuple) else None if value is None else scalar(value)


def _record(number: float, values: Values, file: str) -> dict[str, Any]:
    ending = "npy" if _torch() is None else "pt"
    return tensor(number, values.shape, f"torch.{values.dtype.name}", data_name=f"{file}.{ending}")


def _save(path: Path, values: Values) -> None:
    torch = _torch()
    if torch is None:
        np.save(f"{path}.npy", values)
    elif values.dtype == ml_dtypes.bfloat16:
        torch.save(torch.from_numpy(values.view(np.uint16).copy()).view(torch.bfloat16), f"{path}.pt")
    else:
        torch.save(torch.from_numpy(values.copy()), f"{path}.pt")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype == ml_dtypes.bfloat16)


def _typed(value: Any, dtype: np.dtype[Any]) -> Any:
    return value.astype(dtype) if _is_float(value) else value


def cases(scale: float) -> Iterator[Case]:
    """One operator of each kind; the same values every time."""
    rng = np.random.default_rng(7)
    rows, width = max(int(ROWS * scale), 8), WIDTH if scale >= 0.5 else 128

    def of(*shape: int, size: float = 1.0) -> Values:
        return rng.standard_normal(shape, np.float32) * np.float32(size)

    x, y = of(rows, width), of(rows, width)
    gain, shift = 1 + of(width, size=0.1), of(width, size=0.1)
    mask = rng.random((rows, width)) < 0.3
    yield Case("reshape", "Tensor.reshape", lambda x, *_: x.reshape(width, rows), (x, width, rows))
    yield Case("transpose", "Tensor.transpose", lambda x, *_: x.T, (x, 0, 1))
    yield Case("add", "Torch.add", np.add, (x, y))
    yield Case("add a row", "Torch.add", np.add, (x, gain))
    yield Case("mul", "Torch.mul", np.multiply, (x, y))
    yield Case("mul by a number", "Torch.mul", np.multiply, (x, 0.3))
    yield Case("div", "Torch.div", np.divide, (x, np.abs(y) + np.float32(0.1)))
    yield Case("relu", "Functional.relu", lambda x: np.maximum(x, 0), (x,))
    yield Case("exp", "Torch.exp", np.exp, (x,))
    yield Case("tanh", "Torch.tanh", np.tanh, (x,))
    yield Case("sigmoid", "Torch.sigmoid", lambda x: 1 / (1 + np.exp(-x)), (x,))
    yield Case("silu", "Functional.silu", lambda x: x / (1 + np.exp(-x)), (x,))
    yield Case("gelu", "Functional.gelu", lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))), (x,))
    yield Case("gelu with tanh", "Functional.gelu", _gelu_tanh, (x, "tanh"))
    yield Case("dropout", "Functional.dropout", lambda x, *_: np.where(mask, 0, x / 0.7), (x, 0.3, True))
    lowest = np.where(mask, np.float32(-np.inf), x)
    yield Case("masked fill", "Tensor.masked_fill", lambda x, *_: np.where(mask, -np.inf, x), (x, mask, -math.inf))
    yield Case("where", "Torch.where", np.where, (mask, x, y))
    yield Case("add a mask", "Torch.add", np.add, (x, np.where(mask, np.float32(-np.inf), np.float32(0))))
    yield Case("sum", "Torch.sum", lambda x, _: x.sum(-1), (x, -1))
    yield Case("mean of all", "Torch.mean", np.mean, (x,))
    yield Case("softmax", "Torch.softmax", _softmax, (x, -1))
    yield Case("softmax, masked", "Torch.softmax", _softmax, (lowest, -1))
    yield Case("log softmax", "Torch.log_softmax", lambda x, _: np.log(_softmax(x, -1)), (x, -1))
    yield Case("layer norm", "Functional.layer_norm", _layer_norm, (x, (width,), gain, shift, 1e-5))
    yield Case("rms norm", "Functional.rms_norm", _rms_norm, (x, (width,), gain, 1e-6))
    target = rng.integers(0, width, rows)
    yield Case("cross entropy", "Functional.cross_entropy", _cross_entropy, (x, target))
    table, index = of(4096, width // 4), rng.integers(0, 4096, 2 * rows)
    yield Case("embedding", "Functional.embedding", lambda index, table: table[index], (index, table))
    square = of(width, width, size=width**-0.5)
    yield Case("linear", "Functional.linear", lambda x, w, b: x @ w.T + b, (x, square, shift))
    yield Case("matmul", "Torch.matmul", np.matmul, (x, square))
    four = of(width, 4 * width, size=width**-0.5)
    yield Case("matmul, 4 times as wide", "Torch.matmul", np.matmul, (x, four))
    batches = of(16, rows // 8, 64), of(16, 64, rows // 4)
    yield Case("matmul, in batches", "Torch.matmul", np.matmul, batches)
    maps, filters = of(max(rows // 256, 1), 64, 56, 56), of(64, 64, 3, 3, size=0.04)
    yield Case("conv", "Functional.conv2d", _conv, (maps, filters, None, 1, 1))
    for length in (256, 1024) if scale >= 0.5 else (64,):
        heads = tuple(of(1, 4096 // length, length, 64) for _ in range(3))
        yield Case(f"attention, {length} long", "Functional.scaled_dot_product_attention", _attention, heads, 0.2)


def _gelu_tanh(x: Values, _: str) -> Values:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x: Values, _: int) -> Values:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _layer_norm(x: Values, _: Any, gain: Values, shift: Values, eps: float) -> Values:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + shift


def _rms_norm(x: Values, _: Any, gain: Values, eps: float) -> Values:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * gain


def _cross_entropy(x: Values, target: Values) -> Values:
    return -np.mean(np.log(_softmax(x, -1))[np.arange(len(x)), target])


def _conv(x: Values, filters: Values, *_: Any) -> Values:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, filters, optimize=True)


def _attention(q: Values, k: Values, v: Values) -> Values:
    return _softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -1) @ v
