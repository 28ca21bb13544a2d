"""NaN by design: data with missing values, which the program leaves out of all that it computes.

Such a NaN is in the data or was written by the program, and all that reads it leaves it out: asks where it is, selects
other elements, or writes others over it. Where it goes on, into a loss or a gradient, it begins where it was written. A
NaN that an operator made of numbers is never by design here.
"""

from __future__ import annotations

from collections.abc import Callable

from tui_debugger.causes.by_design_readers import DEPTH, ElementCounts, Readers, has_signs
from tui_debugger.causes.by_design_table import (
    COMPARES,
    CONVERTS,
    DECIDES,
    FRESH,
    LEAVES_OUT,
    MOVES,
    NOTHING,
    OPERATORS,
    OVERWRITES,
    PASSES_ON,
    PICKS,
    SELECTS,
)
from tui_debugger.graph.categories import draws_updates, is_backward
from tui_debugger.graph.table import NodeTable, real_consumers, real_inputs
from tui_debugger.model import Category


class Missing(Readers):
    """Says of the tensors of a step which NaN stands for a missing value, and what leaves it out."""

    def __init__(self, nodes: NodeTable, contents: Callable[[int, int], ElementCounts | None]) -> None:
        super().__init__(nodes, contents)
        self._holding: dict[tuple[int, int], bool] = {}
        self._leaving: dict[tuple[int, int], frozenset[str]] = {}

    def may_be_missing(self, row: int) -> bool:
        if row < 0 or self._is_backward(row):
            return False
        kind = self._kind(row)
        fed = self._category(row) in {Category.PARAMETER, Category.CONSTANT}
        return fed or kind in OPERATORS or kind in PASSES_ON

    def left_out_by(self, row: int, slot: int) -> frozenset[str]:
        """The operator types that leave out the NaN of missing values; empty where it goes on, or nothing read it."""
        found = self._leaving_out(row, slot, 0) if self._holds_missing(row, slot, 0) else frozenset()
        return found if found - {NOTHING} else frozenset()

    def _holds_missing(self, row: int, slot: int, depth: int) -> bool:
        """Tells whether every NaN of a tensor is in the data, or was written by the program."""
        place = row, slot
        if place not in self._holding:
            self._holding[place] = False  # in a circle nobody wrote it
            out = self._contents(row, slot) if depth < DEPTH and self.may_be_missing(row) else None
            self._holding[place] = out is not None and bool(out.nan) and self._is_written_nan(row, out, depth)
        return self._holding[place]

    def _is_written_nan(self, row: int, out: ElementCounts, depth: int) -> bool:
        kind = self._kind(row)
        if self._category(row) is Category.CONSTANT:
            return True
        if self._category(row) is Category.PARAMETER or (kind in FRESH and not self._is_made_of_others(row)):
            return not out.infinite
        held, given = self._given(row)
        bad = [at for at, each in enumerate(given) if each is not None and each.bad and not self._read_clean(row, at)]
        numbers = any(each >= 0 and self._category(each) is Category.CONSTANT for each, _ in (held[at] for at in bad))
        return (
            bool(bad)
            and (kind in OPERATORS or kind in MOVES | PASSES_ON)
            and not (numbers and kind in PASSES_ON)  # nobody computes with NaN to say that a value is missing
            and has_signs(out, [given[at] for at in bad])
            and all(self._holds_missing(*held[at], depth + 1) for at in bad)
        )

    def _leaving_out(self, row: int, slot: int, depth: int) -> frozenset[str]:
        place = row, slot
        if place not in self._leaving:
            self._leaving[place] = frozenset()
            self._leaving[place] = self._found_leaving_out(row, slot, depth) if depth < DEPTH else frozenset()
        return self._leaving[place]

    def _found_leaving_out(self, row: int, slot: int, depth: int) -> frozenset[str]:
        if self._is_unread_view(row):
            shown = (each for each in real_inputs(self._nodes, row) if each[0] >= 0)
            sources = (each for each in shown if self._holds_missing(*each, depth))
            return next((self._leaving_out(*each, depth + 1) for each in sources), frozenset())
        if any(self._is_bad_backward(each) for each, _ in real_consumers(self._nodes, row, slot)):
            return frozenset()
        readers = self._readers(row, slot)
        found = [self._reader_leaving_out(each, depth) for each, _ in readers]
        if not readers and self._is_unread_number(row, slot):
            return frozenset({NOTHING})
        return frozenset().union(*found) if all(found) else frozenset()

    def _reader_leaving_out(self, row: int, depth: int) -> frozenset[str]:
        """Like ``_leaving_out``, for one reader; for a node that changes a buffer, asks about the buffer."""
        if self._is_change(row):
            changed = real_inputs(self._nodes, row)[0]
            if self._category(changed[0]) is not Category.PARAMETER:
                return frozenset()  # a weight
            if self._is_clean(changed[0]):
                return frozenset({NOTHING})
            return self._leaving_out(*changed, depth + 1) if self._holds_missing(*changed, depth) else frozenset()
        bad = [at for at, each in self._outputs(row).items() if each.bad]
        if self._is_clean(row):
            return self._clean_leaving_out(row)
        found = [self._leaving_out(row, at, depth + 1) for at in bad if self._holds_missing(row, at, depth)]
        return frozenset().union(*found) if bad and len(found) == len(bad) and all(found) else frozenset()

    def _is_bad_backward(self, row: int) -> bool:
        backward = is_backward(self._nodes.op_type(row)) or self._is_backward(row)
        return backward and any(each.bad for each in self._outputs(row).values())

    def _clean_leaving_out(self, row: int) -> frozenset[str]:
        """Like ``_leaving_out``, for a clean reader: most operators are clean only if they read another tensor."""
        kind = self._kind(row)
        another = draws_updates(self._nodes) and kind not in CONVERTS and not DECIDES.fullmatch(kind)
        is_module = another and kind not in OPERATORS  # its own operators may leave the NaN out
        if is_module or kind in COMPARES | SELECTS | OVERWRITES | PICKS | LEAVES_OUT:
            return frozenset({self._nodes.op_type(row)})
        return frozenset({NOTHING} if another else ())
