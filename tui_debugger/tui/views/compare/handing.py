"""What the comparison hands out to clipboard and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tui_debugger.analysis.difference.differences import Differences, Entry
from tui_debugger.errors import TdbgError
from tui_debugger.tui.values.sheet import Array
from tui_debugger.tui.views.compare.largest import TITLES, entry_cells, index_text
from tui_debugger.tui.views.extract import Extract
from tui_debugger.words.differences import stats_lines
from tui_debugger.words.tensors import aligned
from tui_debugger.words.values import exact_text

MOST: Final = 1 << 27
"""Elements of the difference that are written at most."""


def extract_of(
    stem: str,
    head: Sequence[str],
    found: Differences | None,
    entries: Sequence[Entry],
    *,
    one: tuple[str, str] | None,
    window: Callable[[], Array | None],
) -> Extract:
    """The comparison as text, the largest differences as a table, the difference in the slice as an array.

    Args:
        stem: see ``Extract``.
        head: what stands on top.
        found: how the tensors differ, when that is known.
        entries: the largest differences, as they are listed.
        one: index and numbers of the element under the cursor.
        window: the difference in the slice that is shown.
    """
    lines = [*head]
    if found is not None:
        lines += ["", *stats_lines(found)]
    if entries:
        lines += ["", *aligned([TITLES, *(entry_cells(entry) for entry in entries)])]

    def array() -> Array:
        values = window()
        if values is None or values.size > MOST:
            raise TdbgError(
                "this difference is too big to be written at once",
                where="the slice that is shown",
                hint="choose a smaller slice with s",
            )
        return values

    return Extract(
        stem=stem,
        text="\n".join(lines),
        one=" ".join(one) if one is not None else "",
        header=TITLES if entries else (),
        rows=[_row(entry) for entry in entries],
        array=array,
    )


def _row(entry: Entry) -> tuple[object, ...]:
    relative = "" if entry.relative is None else entry.relative
    apart = "" if entry.ulp is None else entry.ulp
    numbers = (exact_text(value) for value in (entry.here, entry.there, entry.difference))
    return (index_text(entry.index), *numbers, "inf" if relative == math.inf else relative, apart)
