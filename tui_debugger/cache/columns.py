"""Columns of numbers and texts as one payload of the store."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array


class StoredColumns:
    """The form of a payload: its columns by type, behind their lengths; a ``u1`` column takes text as bytes."""

    def __init__(self, name: bytes, *types: npt.DTypeLike) -> None:
        """``name`` tells the form and its version: a payload of another one is not read."""
        self._name, self._types = name, [np.dtype(each) for each in types]
        self._head = struct.Struct(f"<16s{len(types)}q")

    def pack(self, *columns: npt.ArrayLike) -> bytes:
        blobs = [
            column if isinstance(column, bytes) else np.asarray(column, dtype).tobytes()
            for column, dtype in zip(columns, self._types, strict=True)
        ]
        return b"".join([self._head.pack(self._name, *map(len, blobs)), *blobs])

    def unpack(self, payload: bytes | None) -> list[Array] | None:
        """Returns the columns; None without a payload, for another form, or for lengths that make no sense."""
        if payload is None or len(payload) < self._head.size:
            return None
        name, *sizes = self._head.unpack_from(payload)
        counts = [size // dtype.itemsize for size, dtype in zip(sizes, self._types, strict=True)]
        whole = [count * dtype.itemsize for count, dtype in zip(counts, self._types, strict=True)] == sizes
        starts = np.cumsum([self._head.size, *sizes]).tolist()
        if name.rstrip(b"\0") != self._name or min(sizes) < 0 or not whole or starts[-1] != len(payload):
            return None
        return [np.frombuffer(payload, *each) for each in zip(self._types, counts, starts, strict=False)]
