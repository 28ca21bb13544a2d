"""What has to be known about which tensors: a column over the table of each step, no object per tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16
from tui_debugger.sources.base import TensorTable
from tui_debugger.stats.records import RequiredStats

Rows = npt.NDArray[np.integer[Any]]


class Wants:
    """Questions about tensors, several of one tensor joined into one."""

    def __init__(self) -> None:
        """Nothing is asked."""
        self._needs: list[RequiredStats] = []
        self._numbers: dict[RequiredStats, int] = {}
        self._columns: dict[int, Int16] = {}

    def ask(self, step: int, table: TensorTable, rows: Rows, need: RequiredStats) -> None:
        """Adds a question about rows of a step's table."""
        if not len(rows):
            return
        column = self._columns.get(step)
        if column is None:
            column = self._columns[step] = np.zeros(len(table), np.int16)
        asked = column[rows]
        joined = np.zeros(len(self._needs) + 1, np.int16)
        for number in np.flatnonzero(np.bincount(asked)).tolist():
            joined[number] = self._number(self._needs[number - 1] | need if number else need)
        column[rows] = joined[asked]

    def steps(self) -> list[int]:
        """The steps that something is asked about, ascending."""
        return sorted(self._columns)

    def of_step(self, step: int) -> Iterator[tuple[RequiredStats, Rows]]:
        """The distinct needs of a step, each with the rows that have it."""
        column = self._columns[step]
        for number in np.flatnonzero(np.bincount(column)[1:]).tolist():
            yield self._needs[number], np.flatnonzero(column == number + 1)

    def _number(self, need: RequiredStats) -> int:
        number = self._numbers.get(need)
        if number is None:
            self._needs.append(need)
            number = self._numbers[need] = len(self._needs)
        return number
