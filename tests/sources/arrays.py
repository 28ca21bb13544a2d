"""Directories of tensor files, as programs write them: with numpy, with torch, as .safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    np.dtype(dtype): name
    for dtype, name in (
        *(("?", "BOOL"), ("i1", "I8"), ("i2", "I16"), ("i4", "I32"), ("i8", "I64"), ("f2", "F16"), ("f4", "F32")),
        *(("u1", "U8"), ("u2", "U16"), ("u4", "U32"), ("u8", "U64"), ("f8", "F64"), ("c8", "C64")),
        *((ml_dtypes.bfloat16, "BF16"), (ml_dtypes.float8_e4m3fn, "F8_E4M3"), (ml_dtypes.float8_e5m2, "F8_E5M2")),
    )
}
"""Element types by their names in .safetensors files."""


def write_arrays(step: Path, values: Mapping[str, Any], form: str = "npy") -> None:
    """Writes the arrays of one step.

    Args:
        step: its directory; with ``archives`` the name of its only file, without a suffix.
        values: by name, with directories.
        form: ``npy``: a file each; ``npz`` and ``packed``: an archive in the directory; ``archives``: an archive alone;
            ``pt``, ``safetensors``: such a file in the directory.
    """
    step.parent.mkdir(parents=True, exist_ok=True)
    if form == "archives":
        np.savez(step.with_name(f"{step.name}.npz"), **values)
        return
    step.mkdir(exist_ok=True)
    if form == "npy":
        for name, value in values.items():
            path = step / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, value)
    elif form == "pt":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        torch.save({name: torch.from_numpy(np.array(value)) for name, value in values.items()}, step / "model.pt")
    elif form == "safetensors":
        write_safetensors(step / "model.safetensors", values)
    else:
        (np.savez if form == "npz" else np.savez_compressed)(step / "values.npz", **values)


def write_safetensors(path: Path, values: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> None:
    """Writes a .safetensors file."""
    path.write_bytes(safetensors_bytes(values, notes))


def safetensors_bytes(values: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> bytes:
    """Returns the content of a .safetensors file."""
    header: dict[str, Any] = {"__metadata__": dict(notes)} if notes is not None else {}
    at = 0
    for name, value in values.items():
        array = np.asarray(value)
        header[name] = {"dtype": TYPES[array.dtype], "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    text = json.dumps(header).encode()
    content = b"".join(np.asarray(value).tobytes() for value in values.values())
    return len(text).to_bytes(8, "little") + text + content
