"""Numbers as text: what a cell of the values window shows, and what the status line says exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.words.clean import clean

MAX_PRECISION = 10
LARGE = 1e6
"""From here on a decimal number is wider than its scientific form and harder to read."""


class Family(Enum):
    """How the elements of an array are written."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"
    OTHER = "other"


class CellKind(IntEnum):
    """What a cell holds, for its colour. The text says it too: colour is never the only sign."""

    NORMAL = 0
    ZERO = 1
    NAN = 2
    INF = 3
    OUTSIDE = 4
    """A difference beyond what is allowed."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How floating-point cells are written.

    Attributes:
        precision: digits after the point, 0 to 10.
        scientific: always with an exponent.
    """

    precision: int = 4
    scientific: bool = False

    def finer(self, by: int) -> NumberFormat:
        """The format with ``by`` more digits, kept within 0 to 10."""
        return replace(self, precision=min(MAX_PRECISION, max(0, self.precision + by)))

    def toggled(self) -> NumberFormat:
        """The other of decimal and scientific."""
        return replace(self, scientific=not self.scientific)


def family(dtype: np.dtype[Any]) -> Family:
    """The family of an element type; the types of ``ml_dtypes`` (bfloat16, fp8 ...) are floats or ints."""
    if dtype.kind in "biufc":
        return {"b": Family.BOOL, "i": Family.INT, "u": Family.INT, "f": Family.FLOAT, "c": Family.COMPLEX}[dtype.kind]
    if dtype.type.__module__.startswith("ml_dtypes"):
        return Family.INT if "int" in dtype.name else Family.FLOAT
    return Family.OTHER


def float_text(value: float, form: NumberFormat) -> str:
    """One number. A value that is not zero never reads as zero, so tiny ones go scientific by themselves."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    if form.scientific:
        return f"{value:.{form.precision}e}"
    decimal = f"{value:.{form.precision}f}" if abs(value) < LARGE else ""
    if not decimal.strip("-0."):
        return f"{value:.{min(form.precision, 3)}e}"
    return decimal


def complex_text(value: complex, form: NumberFormat) -> str:
    """Real and imaginary part, ``1.5+2j``."""
    imaginary = float_text(value.imag, form)
    sign = "" if imaginary.startswith(("+", "-")) else "+"
    return f"{float_text(value.real, form)}{sign}{imaginary}j"


def _float_kind(value: float) -> CellKind:
    if math.isfinite(value):
        return CellKind.NORMAL if value else CellKind.ZERO
    return CellKind.NAN if math.isnan(value) else CellKind.INF


def _complex_kind(value: complex) -> CellKind:
    return max(_float_kind(value.real), _float_kind(value.imag)) if value else CellKind.ZERO


def format_window(window: Array, form: NumberFormat) -> list[list[tuple[str, CellKind]]]:
    """Texts and kinds of a 2-D window, row by row.

    Args:
        window: the visible cells only, shape (rows, columns); any element type.
        form: for floating-point and complex elements.
    """
    kind = family(window.dtype)
    if kind is Family.FLOAT:
        wide = window.astype(np.float64)
        return [[(float_text(v, form), _float_kind(v)) for v in row] for row in wide.tolist()]
    if kind is Family.COMPLEX:
        wide = window.astype(np.complex128)
        return [[(complex_text(v, form), _complex_kind(v)) for v in row] for row in wide.tolist()]
    if kind is Family.INT:
        return [[(str(int(v)), CellKind.NORMAL if v else CellKind.ZERO) for v in row] for row in window]
    if kind is Family.BOOL:
        return [[(str(v), CellKind.NORMAL if v else CellKind.ZERO) for v in row] for row in window.tolist()]
    return [[(clean(str(v)), CellKind.NORMAL) for v in row] for row in window]


def exact_text(value: Any) -> str:
    """A scalar with every digit it has: the shortest text that reads back to the same value of its own type."""
    text = str(value)
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, clean(text))
