"""A digest of the elements of a tensor, to find equal tensors."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from tui_debugger.arrays import Array

_PIECE: Final = 1 << 22
"""Elements that are read at once."""


def digest_of(values: Array, *about: object) -> tuple[bytes, bool]:
    """Returns a digest of the elements and of ``about``, and whether all elements have the same bytes."""
    digest = blake2b(repr(about).encode(), digest_size=16)
    flat = values.reshape(-1)
    first, constant = flat[:1].tobytes(), len(flat) > 0
    for start in range(0, len(flat), _PIECE):
        data = flat[start : start + _PIECE].tobytes()
        digest.update(data)
        constant = constant and data == first * (len(data) // len(first))
    return digest.digest(), constant
