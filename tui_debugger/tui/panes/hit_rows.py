"""The rows of the hit list: numbers of hits; a hit is made when it is drawn or chosen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from rich.text import Text

from tui_debugger.arrays import Int64
from tui_debugger.model import Hit, TensorKey, Verdict
from tui_debugger.session.hits import HitList
from tui_debugger.tui import theme
from tui_debugger.tui.kinds import VERDICTS
from tui_debugger.tui.panes.hit_text import abbreviations, details
from tui_debugger.tui.widgets.text import Cell, Place
from tui_debugger.words.clean import clean
from tui_debugger.words.steps import step_text
from tui_debugger.words.tensors import slot_text


@dataclass(frozen=True, eq=False)
class HitRows:
    """See ``widgets.rows.Rows``; the key of a row is its tensor.

    Attributes:
        all: every hit there is.
        shown: which of them are rows, rising.
        many_ranks: whether a row says its rank.
        graphs: what a row calls its graph, by name; empty where there is one graph.
    """

    all: HitList
    shown: Int64
    many_ranks: bool
    graphs: Mapping[str, str] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.shown)

    @cached_property
    def findings(self) -> Int64:
        """Rows that are findings."""
        return np.flatnonzero(self.all.verdict[self.shown] == Verdict.FINDING)

    @cached_property
    def origins(self) -> Int64:
        """Rows that are origins."""
        return np.flatnonzero(self.all.origin[self.shown])

    def hit(self, index: int) -> Hit:
        """The hit of a row."""
        return self.all[int(self.shown[index])]

    def key(self, index: int) -> Hashable:
        """The tensor of a row."""
        return self.hit(index).key

    def find(self, key: Hashable) -> int:
        """Row of a tensor, -1 when it is not shown."""
        at = self.all.find(key) if isinstance(key, TensorKey) else -1
        row = int(np.searchsorted(self.shown, at))
        return row if at >= 0 and row < len(self.shown) and int(self.shown[row]) == at else -1

    def cells(self, index: int) -> Sequence[Cell]:
        """Mark, place and findings."""
        hit = self.hit(index)
        glyph, style = VERDICTS[hit.verdict]
        mark = Text(theme.ORIGIN_GLYPH if hit.origin else glyph, theme.FINDING if hit.origin else style)
        rank = [Text(str(hit.key.rank), theme.DIM)] if self.many_ranks else []
        graph = [Text(clean(self.graphs.get(hit.key.graph, hit.key.graph)), theme.DIM)] if self.graphs else []
        scope, _, name = hit.key.node.rpartition("/")
        name_style = theme.NORMAL if hit.verdict is Verdict.FINDING else theme.DIM
        return [
            mark,
            step_text(hit.key.step),
            *rank,
            *graph,
            Place(Text(clean(name), name_style), scope, theme.DIM),
            Text(slot_text(hit.key), theme.DIM),
            abbreviations(hit),
            details(hit),
        ]
