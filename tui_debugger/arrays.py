"""Names for array types by element type, for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]
Integers = npt.NDArray[np.integer[Any]]
Int8 = npt.NDArray[np.int8]
UInt16 = npt.NDArray[np.uint16]
UInt8 = npt.NDArray[np.uint8]
