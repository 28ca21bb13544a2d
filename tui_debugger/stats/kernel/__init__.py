"""The compiled part: loops over the elements of arrays, in C, loaded with ctypes, which lets go of Python's lock.

``build`` compiles it. Where there is no library, or one that was made of other sources, or ``TDBG_KERNEL=off`` is set,
``shared_library()`` is None and numpy does the same work: who calls the kernel has a plain way beside it, which tests
hold the kernel against.

Neither numpy nor ctypes is imported before something is measured.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tui_debugger.environment import switch_of

if TYPE_CHECKING:
    import ctypes

    import numpy as np
    import numpy.typing as npt

    from tui_debugger.arrays import Array, Float32, Int64, UInt8
    from tui_debugger.stats.dtypes import DType

FOLDER: Final = Path(__file__).parent
SWITCH: Final = "TDBG_KERNEL"
"""The environment variable that turns the kernel off when it is ``off``."""

KINDS: Final = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int16": 4,
    "uint16": 5,
    "int32": 6,
    "uint32": 7,
    "int64": 8,
    "uint64": 9,
}
"""The numbers of the element types, as in ``kernel.h``; types of 8 bits have ``TABLE8``, and complex ones none."""
TABLE8: Final = 10


def shared_library_path() -> Path:
    """Returns where the library lies that was made of these sources: its name has their checksum."""
    number = 0
    for path in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        number = zlib.crc32(path.read_bytes(), number)
    return FOLDER / f"kernel-{number:08x}.so"


class Library:
    """The loaded library."""

    def __init__(self, loaded: ctypes.CDLL, level: int) -> None:
        self._loaded = loaded
        self.level = level

    def function(self, name: str, arguments: str, result: str = "i") -> Any:
        """Returns the function of a name, made for this processor.

        Args:
            name: as in ``EXPORTED(name)``.
            arguments: a letter each: ``p`` pointer (int, bytes or None), ``i`` int, ``q`` int64_t, ``d`` double.
            result: the same, or empty for none.
        """
        import ctypes

        types: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int, "q": ctypes.c_int64, "d": ctypes.c_double}
        found = self._loaded[f"{name}_{self.level}"]
        found.argtypes = [types[letter] for letter in arguments]
        found.restype = types.get(result)
        return found


def shared_library() -> Library | None:
    """Returns the kernel; None where numpy has to do."""
    return None if is_off() else _load()


def is_off() -> bool:
    """Tells whether numpy is to do all."""
    return switch_of(SWITCH).off


def available() -> bool:
    """Tells whether the kernel measures."""
    return shared_library() is not None


def forget() -> None:
    """Looks for the library anew when it is next asked for: it was built meanwhile."""
    _load.cache_clear()


@lru_cache(maxsize=1)
def _load() -> Library | None:
    import ctypes

    try:
        loaded = ctypes.CDLL(os.fspath(shared_library_path()))
        level = int(loaded.tdbg_level())
        while level and not hasattr(loaded, f"moments_{level}"):  # the compiler did not know it
            level -= 1
        return Library(loaded, level) if hasattr(loaded, f"moments_{level}") else None
    except (OSError, AttributeError):
        return None


class ElementKind(NamedTuple):
    """The kind of elements, as the kernel names it.

    Attributes:
        number: of ``enum kind`` in ``kernel.h``.
        size: bytes of an element.
        values: those of the 256 bytes, for elements of 8 bits.
        table: where these are.
    """

    number: int
    size: int
    values: Float32 | None = None
    table: int | None = None


@lru_cache(maxsize=256)
def kind_of(dtype: DType) -> ElementKind | None:
    """Returns the kind of the elements of a type.

    None: the kernel does not know it (complex, another byte order); its elements have to be cast first.
    """
    import numpy as np

    if not dtype.isnative or dtype.kind == "c":
        return None
    if dtype.itemsize == 1:
        with np.errstate(all="ignore"):
            values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        return ElementKind(TABLE8, 1, values, address(values))
    number = KINDS.get(dtype.name)
    return None if number is None else ElementKind(number, dtype.itemsize)


def address(array: Array) -> int:
    """Returns where the elements of a contiguous array begin.

    Raises:
        ValueError: it is not contiguous, or not in memory at all: the caller copies such arrays, block by
            block.
    """
    import numpy as np

    if not (isinstance(array, np.ndarray) and array.flags.c_contiguous):
        msg = "the kernel reads contiguous arrays only"
        raise ValueError(msg)
    return int(array.ctypes.data)


def bytes_at(place: int, size: int) -> UInt8:
    """Returns memory as an array, which the owner of the place holds."""
    import ctypes

    import numpy as np

    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(place)), np.uint8)


def is_known(*dtypes: DType) -> bool:
    """Tells whether there is a kernel, and it knows the elements of these types, once they are in native byte order."""
    return shared_library() is not None and all(kind_of(dtype.newbyteorder("=")) is not None for dtype in dtypes)


def native(array: Array) -> Array:
    """Returns an array as the kernel reads it: contiguous, in native byte order; itself where it is that already."""
    import numpy as np

    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def described(array: Array) -> bytes:
    """Returns a ``struct elements`` of a native array of a known type. The caller holds the array."""
    kind = kind_of(array.dtype)
    if kind is None:
        raise ValueError(NO_SENSE)
    return struct.pack("=qqq", address(array), kind.table or 0, kind.number)


def function(name: str, arguments: str, result: str = "i") -> Any:
    """Returns a function of the kernel; see ``Library.function``.

    Raises:
        ValueError: there is no kernel.
    """
    kernel = shared_library()
    if kernel is None:
        msg = "there is no kernel"
        raise ValueError(msg)
    return _function(kernel, name, arguments, result)


@lru_cache(maxsize=32)
def _function(kernel: Library, name: str, arguments: str, result: str) -> Any:
    return kernel.function(name, arguments, result)


def checked(answer: int) -> int:
    """Returns the answer of a function that gives less than 0 where its arguments make no sense.

    Raises:
        ValueError: that is the case.
    """
    if answer < 0:
        raise ValueError(NO_SENSE)
    return answer


NO_SENSE: Final = "the kernel was called with arguments that make no sense"


def pointers(values: Sequence[bytes]) -> Any:
    """Returns where each of some byte strings lies, for a function of the kernel; it holds them as long as it lives."""
    import ctypes

    return (ctypes.c_char_p * len(values))(*values)


class Kinds(NamedTuple):
    """The kinds of the elements of many arrays, as columns. The caller holds the kinds.

    Attributes:
        number: of ``enum kind``.
        table: where the tables of their values are, 0 without one.
    """

    number: Int64
    table: npt.NDArray[np.uintp]

    @classmethod
    def of(cls, kinds: Sequence[ElementKind]) -> Kinds:
        """Returns kinds as columns."""
        import numpy as np

        numbers, tables = [kind.number for kind in kinds], [kind.table or 0 for kind in kinds]
        return cls(np.array(numbers, np.int64), np.array(tables, np.uintp))

    def at(self, which: Int64) -> Kinds:
        """Returns some of them, each as often as it is named."""
        return Kinds(self.number[which], self.table[which])

    def addresses(self) -> tuple[int, int]:
        """Returns where the columns are."""
        return address(self.number), address(self.table)
