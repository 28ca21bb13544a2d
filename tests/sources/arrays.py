"""Directories of .npy and .npz files, as programs write them with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_arrays(step: Path, values: Mapping[str, Any], form: str = "npy") -> None:
    """Writes the arrays of one step.

    Args:
        step: its directory; with ``archives`` the name of its only file, without a suffix.
        values: by name, with directories.
        form: ``npy``: a file each; ``npz`` and ``packed``: an archive in the directory; ``archives``: an archive alone.
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
    else:
        (np.savez if form == "npz" else np.savez_compressed)(step / "values.npz", **values)
