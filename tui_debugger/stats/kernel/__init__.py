"""The compiled loops over elements, in C, loaded with ctypes, which releases the GIL.

``build`` compiles the library. If it is missing or made from other sources, or ``TDBG_KERNEL=off`` is set,
``shared_library()`` is None and callers use numpy instead; tests compare both ways. Neither numpy nor ctypes is
imported before something is measured.
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
from tui_debugger.model import words

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
    name: number
    for number, name in enumerate(
        words("float32 float64 float16 bfloat16 int16 uint16 int32 uint32 int64 uint64"),
    )
}
"""Element types by name, as in ``kernel.h``; 8-bit types are ``TABLE8``, complex types have no number."""
TABLE8: Final = 10


def shared_library_path() -> Path:
    """Returns the path of the library for these sources: its name has their checksum."""
    number = 0
    for path in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        number = zlib.crc32(path.read_bytes(), number)
    return FOLDER / f"kernel-{number:08x}.so"


class Library:
    """The loaded library, and the processor level of its functions."""

    def __init__(self, loaded: ctypes.CDLL, level: int) -> None:
        self._loaded = loaded
        self.level = level

    def function(self, name: str, arguments: str, result: str = "i") -> Any:
        """Returns the variant of an exported function for this processor.

        ``arguments`` has a letter each: ``p`` pointer (int, bytes or None), ``i`` int, ``q`` int64_t, ``d`` double.
        ``result`` likewise, or empty for void.
        """
        import ctypes

        types: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int, "q": ctypes.c_int64, "d": ctypes.c_double}
        found = self._loaded[f"{name}_{self.level}"]
        found.argtypes = [types[letter] for letter in arguments]
        found.restype = types.get(result)
        return found


def shared_library() -> Library | None:
    """Returns the kernel; None where numpy must do the work."""
    return None if is_off() else _load()


def is_off() -> bool:
    return switch_of(SWITCH).off


def available() -> bool:
    return shared_library() is not None


def forget() -> None:
    """Makes the next call look for the library anew, after a build."""
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
    """The kernel's kind of elements.

    ``number`` is of ``enum kind``, ``size`` in bytes. For 8-bit elements ``values`` has the numbers of all 256 bytes,
    and ``table`` is its address.
    """

    number: int
    size: int
    values: Float32 | None = None
    table: int | None = None


@lru_cache(maxsize=256)
def kind_of(dtype: DType) -> ElementKind | None:
    """Returns the kind of an element type; None for complex types and foreign byte order: cast such elements first."""
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
    """Returns the address of an array; raises ValueError unless it is contiguous and in memory."""
    import numpy as np

    if not (isinstance(array, np.ndarray) and array.flags.c_contiguous):
        msg = "the kernel reads contiguous arrays only"
        raise ValueError(msg)
    return int(array.ctypes.data)


def bytes_at(place: int, size: int) -> UInt8:
    """Returns memory as an array, without keeping its owner alive."""
    import ctypes

    import numpy as np

    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(place)), np.uint8)


def is_known(*dtypes: DType) -> bool:
    """Tells whether there is a kernel that knows these types, once they are in native byte order."""
    return shared_library() is not None and all(kind_of(dtype.newbyteorder("=")) is not None for dtype in dtypes)


def native(array: Array) -> Array:
    """Returns the array, or a copy that is contiguous and in native byte order."""
    import numpy as np

    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def described(array: Array) -> bytes:
    """Returns a ``struct elements`` of a native array of a known type. The caller keeps the array alive."""
    kind = kind_of(array.dtype)
    if kind is None:
        raise ValueError(NO_SENSE)
    return struct.pack("=qqq", address(array), kind.table or 0, kind.number)


def function(name: str, arguments: str, result: str = "i") -> Any:
    """Returns a function of the kernel (see ``Library.function``); raises ValueError when there is no kernel."""
    kernel = shared_library()
    if kernel is None:
        msg = "there is no kernel"
        raise ValueError(msg)
    return _function(kernel, name, arguments, result)


@lru_cache(maxsize=32)
def _function(kernel: Library, name: str, arguments: str, result: str) -> Any:
    return kernel.function(name, arguments, result)


def call(name: str, arguments: str, *values: Any, result: str = "i") -> Any:
    """Returns the answer of a kernel function; raises ValueError if it is negative: wrong arguments.

    Letters as for ``Library.function``, and ``e`` for an array as ``struct elements``. Arrays are given as they are.
    """
    import numpy as np

    given = [
        described(value) if letter == "e" else address(value) if isinstance(value, np.ndarray) else value
        for letter, value in zip(arguments, values, strict=True)
    ]
    return checked(function(name, arguments.replace("e", "p"), result)(*given))


def checked(answer: float) -> float:
    if answer < 0:
        raise ValueError(NO_SENSE)
    return answer


NO_SENSE: Final = "the kernel was called with arguments that make no sense"


def pointers(values: Sequence[bytes]) -> Any:
    """Returns an array of pointers to byte strings, which it keeps alive."""
    import ctypes

    return (ctypes.c_char_p * len(values))(*values)


class Kinds(NamedTuple):
    """The kinds of many arrays as columns: ``number``, and address of the value table (0: none)."""

    number: Int64
    table: npt.NDArray[np.uintp]

    @classmethod
    def of(cls, kinds: Sequence[ElementKind]) -> Kinds:
        import numpy as np

        numbers, tables = [kind.number for kind in kinds], [kind.table or 0 for kind in kinds]
        return cls(np.array(numbers, np.int64), np.array(tables, np.uintp))

    def at(self, which: Int64) -> Kinds:
        return Kinds(self.number[which], self.table[which])
