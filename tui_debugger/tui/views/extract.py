"""What a view hands out to the clipboard and to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Cells = Sequence[object]


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
