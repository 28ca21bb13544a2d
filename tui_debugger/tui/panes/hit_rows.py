"""The rows of the hit list."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from tui_debugger.model import Hit, TensorKey, Verdict
from tui_debugger.tui import theme
from tui_debugger.tui.panes.hit_text import abbreviations, details
from tui_debugger.tui.widgets.text import Cell, Place
from tui_debugger.words.clean import clean


@dataclass(frozen=True)
class HitRows:
    """See ``widgets.rows.Rows``; the key of a row is its tensor."""

    hits: tuple[Hit, ...]
    many_ranks: bool
    places: dict[TensorKey, int] = field(repr=False)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.hits)

    def key(self, index: int) -> Hashable:
        """The tensor of a row."""
        return self.hits[index].key

    def find(self, key: Hashable) -> int:
        """Row of a tensor, -1 when it is not shown."""
        return self.places.get(key, -1) if isinstance(key, TensorKey) else -1

    def cells(self, index: int) -> Sequence[Cell]:
        """Mark, place and findings."""
        hit = self.hits[index]
        glyph, style = theme.VERDICTS[hit.verdict]
        mark = Text(theme.ORIGIN_GLYPH if hit.origin else glyph, theme.FINDING if hit.origin else style)
        rank = [Text(str(hit.key.rank), theme.DIM)] if self.many_ranks else []
        scope, _, name = hit.key.node.rpartition("/")
        name_style = theme.NORMAL if hit.verdict is Verdict.FINDING else theme.DIM
        return [
            mark,
            str(hit.key.step),
            *rank,
            Place(Text(clean(name), name_style), scope, theme.DIM),
            Text(f"{hit.key.side.label}:{hit.key.slot}", theme.DIM),
            abbreviations(hit),
            details(hit),
        ]
