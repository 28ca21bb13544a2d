"""Files that are read and measured without the GIL: the calls of ``files.c``."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int64, UInt8
from tui_debugger.stats.kernel import ElementKind, address, call, pointers
from tui_debugger.stats.kernel.elements import MOMENTS, Bounds, Moments, bounds_table
from tui_debugger.stats.kernel.pairs import CLOSENESS

_STORED: Final = struct.Struct("=qqqqqq")


def look_at_files(names: Sequence[bytes], directory: int | None = None) -> Int64 | None:
    """Returns [file, 4]: size (-1: missing), times of modification and change (ns), inode; symbolic links are followed.

    The files must be in no mount. ``names`` are relative to the open ``directory``, or paths without one. None where a
    name is impossible for a file.
    """
    joined = b"\0".join([*names, b""])
    if joined.count(b"\0") != len(names):
        return None
    found = np.empty((len(names), 4), np.int64)
    call("look_at_files", "qpqip", len(names), joined, len(joined), -1 if directory is None else directory, found)
    return found


def read_files(paths: Sequence[bytes], most: int, buffer: UInt8) -> Int64:
    """Reads regular files of at most ``most`` bytes until the buffer is full.

    Returns [file, 5] of the first files, at least one: offset in the buffer, size (-1: not read), times of modification
    and change (ns), inode. Files in mounts, and impossible paths, are not read. ``most`` is at most the buffer's size.
    """
    if opener.is_any_mounted(paths) or b"".join(paths).count(b"\0"):
        return np.tile(np.array([0, -1, 0, 0, 0]), (len(paths), 1))
    for path in paths:
        sys.audit("open", path, None, opener.OPEN_FLAGS)  # as os.open does
    found = np.empty((len(paths), 5), np.int64)
    flags, room = opener.OPEN_FLAGS, (most, buffer, len(buffer))
    return found[: call("read_files", "qpiqpqp", len(paths), pointers(paths), flags, *room, found, result="q")]


class Stored(NamedTuple):
    """Elements in an open file, or in memory.

    ``buffer`` holds them, or receives them from the file ``descriptor`` (-1: in memory) at offset ``first``. ``kept``:
    each element is read to its own place, rather than every piece to the same place.
    """

    kind: ElementKind
    buffer: UInt8
    descriptor: int = -1
    first: int = 0
    kept: bool = False

    def packed(self) -> bytes:
        """Returns a ``struct stored``; the caller keeps this object alive."""
        where = address(self.buffer), self.kind.table or 0, self.kind.number
        return _STORED.pack(*where, self.descriptor, self.first, self.kept)

    def has_room(self, count: int, piece: int) -> bool:
        """Tells whether the buffer holds, or has room for, ``count`` elements."""
        whole = self.kept or self.descriptor < 0
        return len(self.buffer) >= self.kind.size * (count if whole else min(count, piece))


class StoredSums:
    """Sums of stored elements so far, and of their changes.

    ``ranges`` are inclusive. A test is (rtol, atol, NaN is close to NaN).
    """

    def __init__(self, ranges: Sequence[Bounds], tests: Sequence[tuple[float, float, bool]]) -> None:
        self._bounds, self._inside = bounds_table(ranges), np.zeros(2 * len(ranges), np.int64)
        self._sums, self._moments = np.zeros(2), np.zeros((), MOMENTS)
        self._moments["minimum"], self._moments["maximum"] = math.inf, -math.inf
        self._tests = np.array([(*test, True) for test in tests], CLOSENESS)

    def add(self, now: Stored, before: Stored | None, count: int, piece: int) -> bool:
        """Adds ``count`` elements, ``piece`` at a time, and their change against ``before``.

        False where they cannot be read to the end: the sums are then void. ValueError for a buffer that is too small.
        """
        if not all(each is None or each.has_room(count, piece) for each in (now, before)):
            raise ValueError("the kernel reads no more than a buffer takes")
        asked = self._bounds, len(self._bounds), self._inside, self._moments
        tests = self._sums, self._tests, len(self._tests)
        other = None if before is None else before.packed()
        return not call("measure_stored", "ppqqpqppppq", now.packed(), other, count, piece, *asked, *tests)

    def moments(self) -> tuple[Moments, list[int]]:
        """Returns the statistics, and how many elements are inside each range."""
        return Moments(*self._moments.item()), self._inside[: len(self._bounds)].tolist()

    def change(self) -> tuple[float, float, list[bool]]:
        """Returns the sums of |now - before| and |before|, and for each test whether all elements pass."""
        return float(self._sums[0]), float(self._sums[1]), [bool(close) for close in self._tests["close"]]
