"""What a view hands out to the clipboard and to files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tui_debugger.words.tensors import shape_text

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.session.types import TensorRow

Cells = Sequence[object]
TENSOR_HEADER = ("dtype", "shape", "nan", "inf", "min", "max")
"""The titles of ``tensor_fields``."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The content of a view, in the forms that it has.

    Attributes:
        stem: file name without suffix, of safe characters only.
        text: everything the view says as plain text, not only what fits on the screen; control characters are gone.
        one: what is under the cursor, for the clipboard: a value, a name, a line.
        header, rows: a table for .csv; no header means that there is no table. Numbers stay numbers: they are written
            with all their digits. ``rows`` may be lazy.
        array: values for .npy; None where the view shows none.
    """

    stem: str
    text: str
    one: str = ""
    header: tuple[str, ...] = ()
    rows: Sequence[Cells] = ()
    array: Callable[[], npt.NDArray[Any]] | None = None


def stem_of(key: TensorKey, view: str = "") -> str:
    """A file name without suffix for what a view says about a tensor; without a view: for its values."""
    node = re.sub(r"[^A-Za-z0-9._-]+", "_", key.node.rpartition("/")[2] or key.node)[:80]
    number = f".round{key.round}" if key.round else ""
    return f"{node}.{key.side.label}{key.slot}.rank{key.rank}.step{key.step}{number}" + (f".{view}" if view else "")


def tensor_fields(row: TensorRow) -> tuple[object, ...]:
    """Type, shape and statistics of a tensor in a table for .csv."""
    meta, stats = row.meta, row.stats
    kind = (meta.dtype, shape_text(meta.shape)) if meta is not None else ("", "")
    return (*kind, *((stats.nan, stats.inf, stats.minimum, stats.maximum) if stats is not None else (None,) * 4))
