"""The contents of dump files as small numbers: equal numbers, equal bytes."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

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


class Digest(NamedTuple):
    """The contents of one file.

    Attributes:
        text: digest of the values' bytes, or of samples of them.
        size: bytes of the values; negative for a file that holds no array, whoever reads it.
        whole: whether all of them are in the digest.
    """

    text: bytes
    size: int
    whole: bool


NO_ARRAY = Digest(bytes(16), -1, whole=True)


class Known(Protocol):
    """Digests that someone remembers."""

    def get(self, index: int, whole: bool) -> Digest | None:
        """The digest of a file, of all its values when ``whole``, else as ``Values`` would take it."""

    def put(self, index: int, digest: Digest) -> None:
        """Takes the digest of a file that was read."""


class Values:
    """Numbers for contents, each file read once.

    Shapes are not compared: files of Reshape keep the shape before the reshape.
    """

    def __init__(self, load: Load, *, whole: bool = False, known: Known | None = None) -> None:
        """``load`` gives the array of a file; UnreadableTensorError makes its value unknown.

        With ``whole`` nothing is sampled. What is ``known`` is not read. Numbers of different objects have nothing to
        do with each other.
        """
        self._load, self._whole, self._known = load, whole, known
        self._number: dict[int, int] = {}
        self._digest: dict[bytes, int] = {}
        self._sampled: dict[int, int] = {}

    def of(self, index: int) -> int:
        """Number of a file's contents, UNKNOWN when it cannot be read."""
        number = self._number.get(index)
        if number is None:
            number = self._number[index] = self._look(index)
        return number

    def sampled(self, index: int) -> int:
        """Bytes of a file whose number stands for a sample, so that others with it may still differ; else 0."""
        return self._sampled.get(index, 0)

    def _look(self, index: int) -> int:
        digest = self._known.get(index, self._whole) if self._known is not None else None
        if digest is None:
            digest = self._read(index)
            if digest is None:
                return UNKNOWN
            if self._known is not None:
                self._known.put(index, digest)
        if digest.size < 0:
            return UNKNOWN
        if not digest.whole:
            self._sampled[index] = digest.size
        return self._digest.setdefault(digest.text, len(self._digest))

    def _read(self, index: int) -> Digest | None:
        try:
            array = self._load(index)
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        except UnreadableTensorError as problem:
            return None if problem.__cause__ is not None else NO_ARRAY  # a cause may be gone another time
        except OSError:
            return None
        hasher = blake2b(content.size.to_bytes(8, "little"), digest_size=16)
        whole = self._whole or content.size <= WHOLE
        if whole:
            hasher.update(content.data)
        else:
            for start in np.linspace(0, content.size - SAMPLE, SAMPLES).astype(np.int64):
                hasher.update(content[start : start + SAMPLE].data)
        return Digest(hasher.digest(), content.size, whole)
