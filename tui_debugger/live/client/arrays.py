"""Arrays of any library as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tui_debugger.arrays import Array


def to_numpy(value: Any) -> Array:
    """A NumPy array of the same values, without a copy where that is possible.

    Takes NumPy arrays, whatever has ``__array__`` (JAX, TensorFlow, CPU tensors of PyTorch, MindSpore ...) or
    ``__dlpack__``, numbers, and nested lists of numbers.

    Raises:
        Exception: whatever the library raises for an array that does not convert, for example one on a device.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a tensor of PyTorch that requires a gradient refuses to convert
        value = value.detach()
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)
