"""Element types by name: their names in files and file names, and the numpy type that reads them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.model import word_pairs, words

DType = np.dtype[Any]

_NUMPY: Final = words("""
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
    """)
_EXTENSIONS: Final = words("""
    bfloat16 float8_e3m4 float8_e4m3 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2 float8_e5m2fnuz
    float8_e8m0fnu
    """)
# getattr: older versions of ml_dtypes lack some fp8 types.
_TYPES: Final[dict[str, DType]] = {name: np.dtype(name) for name in _NUMPY} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENSIONS if hasattr(ml_dtypes, name)
}
NAMES: Final = tuple(_TYPES)
"""The names of the types that numpy reads."""
UNITS: Final = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-12, "bfloat16": 2.0**-9}
"""Relative rounding error of a type, as measured against kernels and in real runs."""
_STORED_WIDER: Final = word_pairs("int4 int8  int2 int8  int1 int8  uint4 uint8  uint2 uint8  uint1 uint8")
"""Types without a numpy counterpart, and the type that holds their values in MindSpore's files."""
_ALIASES: Final = word_pairs("""
    bf16 bfloat16  half float16  float float32  double float64  f16 float16  f32 float32  f64 float64  int int32
    float8e4m3 float8_e4m3fn  float8e4m3fn float8_e4m3fn  float8e4m3fnuz float8_e4m3fnuz  float8e5m2 float8_e5m2
    float8e5m2fnuz float8_e5m2fnuz  float8e8m0 float8_e8m0fnu  float8e8m0fnu float8_e8m0fnu
    """)


@lru_cache(maxsize=256)
def canonical_name(token: str) -> str:
    """Returns the name of an element type, or ``""`` when the token is none.

    Accepts numpy's names, MindSpore's tokens (``Float32``, ``BFloat16``, ``Int4``), ``torch.float32`` and the short
    forms ``bf16``, ``f32``, ``half`` ...
    """
    word = token.strip().lower().removeprefix("torch.")
    if word in _TYPES or word in _STORED_WIDER:
        return word
    return _ALIASES.get(word.replace("_", ""), "")


def dtype_of(token: str) -> DType | None:
    """Returns the numpy type that reads a named type (int4 as int8, as MindSpore stores it); None for others."""
    name = canonical_name(token)
    return _TYPES.get(_STORED_WIDER.get(name, name))


@lru_cache(maxsize=256)
def name_of(dtype: DType) -> str:
    """Returns the name of a numpy type, the same for every byte order."""
    return str(dtype.name if dtype.kind not in "SUV" or dtype in _TYPES.values() else dtype.str)


def is_numeric(dtype: DType) -> bool:
    """Tells whether statistics are defined: bool, integers, floats of every width, complex."""
    return dtype.kind in "biufc" or dtype in _TYPES.values()


def has_no_name(token: str) -> bool:
    """Tells whether headers of .npy files cannot state an element type, so that another place has to declare it."""
    name = canonical_name(token)
    return name in _EXTENSIONS or name in _STORED_WIDER


@lru_cache(maxsize=256)
def declared_view(stored: DType, token: str) -> tuple[DType, str]:
    """Returns the type to read elements as, and the name to show, from a header and a declared type (``token``).

    ``V1`` and ``V2`` in the header are raw elements (numpy writes ml_dtypes so). MindSpore stores bfloat16 as float32
    and int4 as int8: their values stay as stored under the declared name. In other contradictions the header is right.
    """
    name = canonical_name(token)
    wanted = _TYPES.get(name)
    if name in _STORED_WIDER and stored == _TYPES[_STORED_WIDER[name]]:
        return stored, name
    if wanted is not None and name in _EXTENSIONS:
        if stored.kind in "Vu" and stored.itemsize == wanted.itemsize:
            return wanted, name
        if stored == np.float32:
            return stored, name
    if stored.kind == "V" and wanted is not None and stored.itemsize == wanted.itemsize:
        return wanted, name
    return stored, name_of(stored)
