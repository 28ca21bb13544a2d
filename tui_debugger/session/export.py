"""Writing what the user asked for, and never into the dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import TdbgError


def save_npy(values: npt.NDArray[Any], path: Path, dump: Path) -> Path:
    """Writes an array as .npy and returns the path written.

    bfloat16 and fp8 arrays, which .npy has no name for, are written as float32 (exact for all of them).

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    target = path.expanduser()
    if target.suffix != ".npy":
        target = target.with_name(target.name + ".npy")
    if dump.resolve() in (target.resolve(), *target.resolve().parents):
        raise TdbgError("a dump is never written to", where=str(target), hint="choose a path outside the dump")
    if values.dtype.kind == "V" or values.dtype.isbuiltin != 1:
        values = values.astype(np.float32)
    try:
        with target.open("xb") as file:
            np.save(file, values, allow_pickle=False)
    except FileExistsError:
        raise TdbgError("the file exists already", where=str(target), hint="choose another name") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise TdbgError(
            f"the tensor could not be written: {reason}", where=str(target), hint="choose another directory"
        ) from None
    return target
