"""Two tensors as tables of numbers: their difference, or both and the difference below each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

import numpy as np

from tui_debugger.analysis.difference.pairs import Pairs, difference
from tui_debugger.analysis.difference.tolerance import EXACT, Tolerance, outside_mask
from tui_debugger.analysis.slicing import Slice
from tui_debugger.tui.values.sheet import Array, Index, Sheet, Texts
from tui_debugger.words.values import CellKind, NumberFormat, format_window

MARK = "!"
"""Stands behind a difference that is not allowed: colour is never the only sign."""


class Shown(Enum):
    """What the cells hold."""

    ALL = "both and difference"
    DIFFERENCE = "difference"
    HERE = "this tensor"
    THERE = "the other one"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is allowed: a tolerance with its boundary for the whole tensor."""

    tolerance: Tolerance = EXACT
    boundary: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class DifferenceSheet(Sheet):
    """here − there, computed for what is on the screen only.

    Attributes:
        pairs: both tensors; ``array`` is the first of them.
        rule: differences up to its boundary show as 0, those that are not allowed with a mark.
    """

    pairs: Pairs
    rule: Rule = Rule()

    def windows(self, top: int, left: int, height: int, width: int) -> tuple[Array, Array]:
        """The same window of both."""
        here, there = (
            Sheet(array, self.view, self.fold).cells(top, left, height, width)
            for array in (self.pairs.here, self.pairs.there)
        )
        return here, there

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        """See ``Sheet``."""
        return self._differences(*self.windows(top, left, height, width), form)

    def _differences(self, here: Array, there: Array, form: NumberFormat) -> Texts:
        found = self.settled(here, there)
        whole = here.dtype.kind in "biu" and there.dtype.kind in "biu"
        texts = format_window(found.astype(np.int64) if whole and abs(found).max() < 2**53 else found, form)
        marked = outside_mask(here, there, self.rule.tolerance, self.rule.boundary)
        if self.rule.tolerance.exact:  # then everything that differs is outside: only what is odd stands out
            marked = marked & ~np.isfinite(found)
        return [
            [_cell(text, kind, bool(mark)) for (text, kind), mark in zip(line, marks, strict=True)]
            for line, marks in zip(texts, marked.tolist(), strict=True)
        ]

    def settled(self, here: Array, there: Array) -> Array:
        """The difference of two windows, 0 where it is within the boundary."""
        found = difference(here, there)
        if self.rule.boundary:
            found[np.abs(found) <= self.rule.boundary] = 0
        return found

    def part(self, parts: tuple[range, ...]) -> Array:
        """The difference at these indices of the free dimensions."""
        here, there = (Sheet(array, self.view).part(parts) for array in (self.pairs.here, self.pairs.there))
        return self.settled(here, there)


def _cell(text: str, kind: CellKind, marked: bool) -> tuple[str, CellKind]:
    if marked:
        return text + MARK, CellKind.OUTSIDE
    # NaN on both sides is no difference: it is there to be seen, not to stand out.
    return f"{text} ", CellKind.ZERO if kind is CellKind.NAN else kind


@dataclass(frozen=True, eq=False, kw_only=True)
class TripleSheet(DifferenceSheet):
    """Three lines a row: here, there, difference, so that digits stand below each other."""

    stride: ClassVar[int] = 3

    @cached_property
    def rows(self) -> int:
        """Lines."""
        return self._plain.rows * self.stride

    @property
    def _plain(self) -> Sheet:
        return Sheet(self.array, self.view, self.fold)

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        """See ``Sheet``."""
        first, last = top // self.stride, -(-(top + height) // self.stride)
        here, there = self.windows(first, left, min(last, self._plain.rows) - first, width)
        parts = (_padded(format_window(here, form)), _padded(format_window(there, form)))
        lines = [line for row in zip(*parts, self._differences(here, there, form), strict=True) for line in row]
        return lines[top - first * self.stride :][:height]

    def index(self, row: int, column: int) -> Index | None:
        """See ``Sheet``."""
        return super().index(row // self.stride, column)

    def place(self, index: Index) -> tuple[int, int] | None:
        """The line of the difference."""
        found = super().place(index)
        return None if found is None else (found[0] * self.stride + self.stride - 1, found[1])

    def row_label(self, row: int) -> str:
        """Index, then a sign for the other tensor and for the difference."""
        line, part = divmod(row, self.stride)
        index = super().row_label(line)
        width = max(1, len(super().row_label(self._plain.rows - 1)))
        return index.rjust(width) if not part else ("·" if part == 1 else "Δ").rjust(width)


def _padded(texts: Texts) -> Texts:
    """Room for the mark, so that digits stand below each other."""
    return [[(f"{text} ", kind) for text, kind in line] for line in texts]


def sheet_of(pairs: Pairs, view: Slice, shown: Shown, rule: Rule) -> Sheet:
    """What is to be shown of two tensors."""
    if shown is Shown.HERE:
        return Sheet(pairs.here, view)
    if shown is Shown.THERE:
        return Sheet(pairs.there, view)
    kind: type[DifferenceSheet] = TripleSheet if shown is Shown.ALL else DifferenceSheet
    return kind(array=pairs.here, view=view, pairs=pairs, rule=rule)
