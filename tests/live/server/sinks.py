"""Receivers of values for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tui_debugger.stats.dtypes import dtype_of


class Arrays:
    """Keeps every tensor as an array; ``log`` says in which order it was told what."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}
        self.complete: dict[int, bool] = {}
        self.log: list[tuple[str, int]] = []
        self._kinds: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._chunks: dict[int, list[bytes]] = {}

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        self.log.append(("begin", number))
        self._kinds[number] = (dtype, shape)
        self._chunks[number] = []
        return True

    def write(self, number: int, chunk: bytes) -> None:
        self.log.append(("write", number))
        self._chunks[number].append(bytes(chunk))

    def end(self, number: int, complete: bool) -> None:
        self.log.append(("end", number))
        self.complete[number] = complete
        if complete:
            name, shape = self._kinds[number]
            dtype = dtype_of(name)
            assert dtype is not None
            self.arrays[number] = np.frombuffer(b"".join(self._chunks[number]), dtype).reshape(shape)
