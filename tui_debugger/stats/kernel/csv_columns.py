"""The cells of CSV lines of a recorder, by column: the call of ``csv_columns.c``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Float64, Int32, Int64
from tui_debugger.stats.kernel import NO_SENSE, address, checked, function

SKIPPED, NUMBER, WHOLE, WORD, QUOTED_WORD, NAME = range(6)
"""The results for the cells of a column; see ``CsvCells``."""
_MOST_WORDS: Final = 4096
_SLOTS: Final = 1 << 14
_MOST_ODD: Final = 4096
_ODD: Final = -2


class CsvCells(NamedTuple):
    """The cells of some lines; ``cells`` is the number in each line, untitled cells included.

    ``odd`` has (row, column of ``numbers``, text) of cells that only Python may understand as numbers. ``wholes`` have
    at most 18 digits. ``words`` index into ``texts``, the distinct texts of each ``WORD`` and ``QUOTED_WORD`` column.
    ``names`` has the ``NAME`` columns of each line joined by dots, without blanks.
    """

    cells: int
    odd: list[tuple[int, int, str]]
    wholes: Int64
    words: Int32
    texts: list[list[str]]
    names: bytes


def columns_of(
    content: bytes, roles: Sequence[int], places: Sequence[int], numbers: Float64, longest: int
) -> CsvCells | None:
    """Splits lines of printable ASCII; None where they are not alike, or odd.

    ``roles`` are of the titled columns; further cells must be empty. ``places`` has for each ``NUMBER`` its column in
    ``numbers``, which receives a row for each line (unchanged for empty cells). ``longest`` limits the bytes of a line.
    """
    counts = [0] * 6
    placed = []
    for role, place in zip(roles, places, strict=True):
        kind = WORD if role == QUOTED_WORD else role
        placed.append(place if role == NUMBER else counts[kind])
        counts[kind] += 1
    lines, width = numbers.shape
    if any(not 0 <= place < width for role, place in zip(roles, places, strict=True) if role == NUMBER):
        raise ValueError(NO_SENSE)
    role_column, place_column = np.array(roles, np.int64), np.array(placed, np.int64)
    wholes = np.zeros((lines, counts[WHOLE]), np.int64)
    words = np.zeros((lines, counts[WORD]), np.int32)
    spans, used = np.zeros((counts[WORD], _MOST_WORDS, 2), np.int64), np.zeros(counts[WORD], np.int64)
    slots = np.full((counts[WORD], _SLOTS), -1, np.int32)
    names = np.empty(len(content), np.uint8)
    odd = np.zeros((_MOST_ODD, 4), np.int64)
    table = np.array(
        [
            *(address(role_column), address(place_column), len(roles), lines),
            *(address(numbers), address(wholes), address(words)),
            *(width, counts[WHOLE], counts[WORD]),
            *(address(spans), address(used), address(slots)),
            *(_MOST_WORDS, _SLOTS, address(names), 0),
            *(address(odd), 0, _MOST_ODD, 0),
        ],
        np.int64,
    )
    done = int(function("csv_columns", "pqpq", "q")(content, len(content), address(table), longest))
    if done == _ODD:
        return None
    if checked(done) != lines:
        raise ValueError(NO_SENSE)
    *_, named, _, odd_count, _, cells = table.tolist()
    return CsvCells(
        cells,
        [(row, at, _text(content, start, n)) for row, at, start, n in odd[:odd_count].tolist()],
        wholes,
        words,
        [[_text(content, *span) for span in spans[at, :count].tolist()] for at, count in enumerate(used.tolist())],
        names[:named].tobytes(),
    )


def _text(content: bytes, start: int, length: int) -> str:
    return content[start : start + length].decode("ascii")
