"""Where the thumb of a scroll bar is, and where a click on the bar leads. All in whole lines."""

from __future__ import annotations


def thumb(rows: int, page: int, top: int) -> range:
    """Lines of the bar that the thumb covers; empty when everything fits.

    Args:
        rows: number of rows.
        page: rows that fit on the screen, and lines of the bar.
        top: first row on the screen.
    """
    if rows <= page:
        return range(0)
    size = max(page * page // rows, 1)
    room, last = page - size, rows - page
    # Only at the very ends it touches the ends: it says truly whether there is more.
    first = 0 if top <= 0 else room if top >= last else max(min(round(room * top / last), room - 1), min(1, room))
    return range(first, first + size)


def row_at(line: int, rows: int, page: int) -> int:
    """The first row on the screen when the thumb is brought to a line of the bar."""
    size = max(page * page // rows, 1) if rows else 1
    room, last = max(page - size, 1), max(rows - page, 0)
    return min(max(round((line - size // 2) * last / room), 0), last)
