"""The contents of dump files as small numbers: equal numbers, equal bytes."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import UnreadableTensorError

Load = Callable[[int], "npt.NDArray[Any]"]
UNKNOWN = -1
"""Number of a file that cannot be read."""

WHOLE = 1 << 18
"""Up to this many bytes a tensor is read whole, bigger ones are sampled first."""
SAMPLES, SAMPLE = 16, 1 << 12
"""Blocks of a sample, spread evenly, and bytes of one block."""


class Values:
    """Numbers for contents, each file read once.

    Shapes are not compared: files of Reshape keep the shape before the reshape.
    """

    def __init__(self, load: Load, *, whole: bool = False) -> None:
        """``load`` gives the array of a file; UnreadableTensorError makes its value unknown.

        With ``whole`` nothing is sampled. Numbers of different objects have nothing to do with each other.
        """
        self._load, self._whole = load, whole
        self._number: dict[int, int] = {}
        self._digest: dict[bytes, int] = {}
        self._sampled: dict[int, int] = {}

    def of(self, index: int) -> int:
        """Number of a file's contents, UNKNOWN when it cannot be read."""
        if index not in self._number:
            self._number[index] = self._read(index)
        return self._number[index]

    def sampled(self, index: int) -> int:
        """Bytes of a file whose number stands for a sample, so that others with it may still differ; else 0."""
        return self._sampled.get(index, 0)

    def _read(self, index: int) -> int:
        try:
            array = self._load(index)
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        except (UnreadableTensorError, OSError):
            return UNKNOWN
        hasher = blake2b(content.size.to_bytes(8, "little"), digest_size=16)
        if self._whole or content.size <= WHOLE:
            hasher.update(content.data)
        else:
            self._sampled[index] = content.size
            for start in np.linspace(0, content.size - SAMPLE, SAMPLES).astype(np.int64):
                hasher.update(content[start : start + SAMPLE].data)
        return self._digest.setdefault(hasher.digest(), len(self._digest))
