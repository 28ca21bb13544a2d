"""Writes one .npy file piece by piece: a tensor that arrives in chunks need not fit into memory."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from tui_debugger.stats.dtypes import canonical_name, dtype_of

PART: Final = ".part"
"""Ends the name of a file that is not complete: nobody takes it for a tensor."""
_STORED: Final = {"bfloat16": "<E2"}
"""How MindSpore spells types that numpy has no name for; the others are raw bytes whose type the file name declares."""


class NpyFile:
    """A file that is being written: ``write`` what comes, then ``close`` it; until then it has no name of its own.

    Attributes:
        path: what it is called when it is complete.
        written: bytes of values so far.
        nbytes: bytes of values that were declared; more are refused.
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        """Opens it and writes the header; the directory is made where it is missing.

        Raises:
            OSError: no room, no rights ...
            ValueError: an element type that cannot be stored, or an impossible shape.
        """
        descr, nbytes = descr_of(dtype), size_of(dtype, shape)
        if descr is None or nbytes is None:
            msg = f"{dtype} {shape} cannot be stored"
            raise ValueError(msg)
        self.path, self.nbytes, self.written = path, nbytes, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part = path.with_name(path.name[:-4][:200] + PART)
        self._file = self._part.open("wb")
        try:
            self._file.write(header(descr, shape))
        except BaseException:
            self.discard()
            raise

    def write(self, chunk: bytes | memoryview) -> None:
        """Adds bytes.

        Raises:
            OSError: no room.
            ValueError: more than were declared.
        """
        if self.written + len(chunk) > self.nbytes:
            msg = f"more than the declared {self.nbytes} bytes"
            raise ValueError(msg)
        self._file.write(chunk)
        self.written += len(chunk)

    def close(self) -> bool:
        """Gives the file its name when everything is there, else discards it; whether it is there.

        Raises:
            OSError: what was written could not be kept.
        """
        if self.written != self.nbytes:
            self.discard()
            return False
        try:
            self._file.close()
            os.replace(self._part, self.path)  # noqa: PTH105 - the same for bytes that are no text
        except BaseException:
            self.discard()
            raise
        return True

    def discard(self) -> None:
        """Removes it. Never raises."""
        with suppress(OSError, ValueError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


def descr_of(dtype: str) -> str | None:
    """How a header spells an element type; None for one that cannot be stored."""
    name = canonical_name(dtype)
    stored = dtype_of(name) if name else None
    if stored is None:
        return None
    if name in _STORED:
        return _STORED[name]
    if stored.isbuiltin == 2:  # of ml_dtypes
        return f"|V{stored.itemsize}"
    return str(stored.newbyteorder("<").str)


def size_of(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of the values; None for a type that cannot be stored or an impossible shape."""
    stored = dtype_of(dtype)
    if stored is None or len(shape) > 32 or any(size < 0 for size in shape):
        return None
    if math.prod(size for size in shape if size) * stored.itemsize >= 1 << 62:
        return None
    return math.prod(shape) * stored.itemsize


@lru_cache(maxsize=1024)
def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of version 1.0, in C order."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    length = -(-(10 + len(text) + 1) // 64) * 64
    body = text.ljust(length - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("latin-1")
