"""Windows of tables, for the tests of pictures."""

from __future__ import annotations

from tui_debugger.stats.heat import HeatWindow


def whole(shape: tuple[int, int], most: tuple[int, int]) -> HeatWindow:
    """Returns all of a table in at most so many rows and columns of cells.

    Args:
        shape: rows and columns of the table.
        most: rows and columns of cells, at least 1.
    """
    rows, columns = (range(0, count, max(1, -(-count // limit))) for count, limit in zip(shape, most, strict=True))
    return HeatWindow(rows, columns)
