"""Pane 4: the hit list, in execution order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.panes.pane import Pane, pane_bindings
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.model import Hit
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.panes.hit_rows import HitFilter, HitRows


class HitsPane(Pane):
    """One row per tensor with everything that hit on it."""

    PANE = "hits"
    CLEARS_SEARCH = True
    BINDINGS: ClassVar[list[BindingType]] = pane_bindings("hits")

    class HitChosen(Message):
        """Go to the node of a hit."""

        def __init__(self, hit: Hit) -> None:
            super().__init__()
            self.hit = hit

    class HitHighlighted(Message):
        """The cursor came to a hit."""

        def __init__(self, hit: Hit) -> None:
            super().__init__()
            self.hit = hit

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(
            _columns(many_ranks=False, graphs={}, rounds=False),
            empty=f"nothing checked yet: {key_of('recheck')} checks this step",
            id="hit-table",
        )
        self.rows: HitRows | None = None
        self._result: CheckResult | None = None
        self._found: npt.NDArray[np.bool_] | None = None
        self._final = True
        self._grows = False
        self._state = ""
        self._place: tuple[int, int | None] = (0, None)
        self._many_ranks = False
        self._graphs: Mapping[str, str] = {}
        self._rounds = False
        self._filter: HitFilter | None = None

    def set_run(self, *, many_ranks: bool, graphs: Mapping[str, str]) -> None:
        """Makes room for what tells the tensors of this run apart.

        Args:
            many_ranks: a rank column.
            graphs: what graphs are called in a column, by name; none for a single graph.
        """
        self._many_ranks, self._graphs = many_ranks, graphs
        self._set_columns()
        if self.rows is not None:
            self.refresh_rows()

    def _set_columns(self) -> None:
        self.table.set_columns(_columns(many_ranks=self._many_ranks, graphs=self._graphs, rounds=self._rounds))

    def show(
        self,
        result: CheckResult | None,
        *,
        place: tuple[int, int | None],
        state: str,
        empty: str,
        final: bool = True,
    ) -> None:
        """Shows the findings of the run.

        Args:
            result: what was found; None when nothing was checked.
            place: the rank and step that are shown.
            state: ``outdated``, ``checking …`` or empty.
            empty: the line for an empty list.
            final: False for a part of a running check.
        """
        same = result is self._result and (place == self._place or not self.filter.here)
        self._grows, self._final = not self._final, final
        self._result, self._place, self._state = result, place, state
        self.table.set_empty(empty)
        if same:
            self._title()
        elif self.search_text:
            self.ask()  # its rows come with the answer
        else:
            self.refresh_rows()

    def follow(self, rank: int, step: int | None) -> None:
        """Puts the cursor on the first finding of a step, unless it is on one of that step already."""
        current = self.current
        if self.rows is None or (current is not None and (current.key.rank, current.key.step) == (rank, step)):
            return
        row = self.rows.first_at(rank, step)
        if row >= 0:
            self.table.move_to(row)

    def show_found(self, result: CheckResult | None, found: npt.NDArray[np.bool_] | None) -> None:
        """Shows the answer to a search: which hits of a result it found, None for all."""
        if result is self._result:
            self._found = found
            self.refresh_rows()

    @property
    def filter(self) -> HitFilter:
        """The filter of the list."""
        if self._filter is None:
            from tui_debugger.tui.panes.hit_rows import HitFilter

            self._filter = HitFilter()
        return self._filter

    def set_filter(self, hit_filter: HitFilter, names: dict[int, str]) -> None:
        """Replaces the filter."""
        self._filter = hit_filter
        parts = ["this step"] if hit_filter.here else []
        parts += [names.get(i, f"watchpoint {i}") for i in sorted(hit_filter.watchpoints)]
        parts += sorted(hit_filter.graphs) + [f"rank {rank}" for rank in sorted(hit_filter.ranks)]
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        for part in parts:
            text.append(f" {clean(part)} ", theme.CHIP)
            text.append(" ")
        text.append("⌫ clears", theme.DIM)
        self.set_filters(text if parts else None)
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Applies filter and search."""
        if self._result is None:
            self.rows = None
            self.table.set_rows(ListRows(()))
        else:
            import numpy as np

            from tui_debugger.tui.panes.hit_rows import HitRows  # with the condition table: not before there are hits

            hits = self._result.hits
            rounds = any(bool(part.round.any()) for part in hits.parts)
            if rounds != self._rounds:
                self._rounds = rounds
                self._set_columns()
            kept = self.filter.mask(hits, self._place)
            if self._found is not None and len(self._found) == len(hits):
                kept &= self._found
            self.rows = HitRows(hits, np.flatnonzero(kept), self._many_ranks, self._graphs)
            # Nobody has moved the cursor from the first hit yet: an earlier one that is found later takes its place.
            self.table.set_rows(self.rows, keep=not (self._grows and self.table.cursor_row == 0))
        self._title()

    def _title(self) -> None:
        if self.rows is None:
            self.set_count(self._state)
            return
        self.set_count(" · ".join(part for part in self._counts() if part))

    def _counts(self) -> list[str]:
        """Returns ``12 of 914``, ``at step 3: 4 of 314`` ...: findings; rows that are none are counted apart."""
        if self._result is None or self.rows is None:
            return []
        import numpy as np

        from tui_debugger.model import Verdict

        hits = self._result.hits
        finding = hits.verdict == Verdict.FINDING
        rank, step = self._place
        at_step = hits.at(rank, step)
        of_rows = np.zeros(len(hits), np.bool_)
        of_rows[self.rows.shown] = True
        others = int((of_rows & ~finding).sum())
        graphs = sorted(self._graphs.get(name, clean(name)) for name in self.filter.graphs)
        filtered = self.filter or self.search_text

        def counted(of: npt.NDArray[np.bool_]) -> str:
            every, shown = int(of.sum()), int((of & of_rows).sum())
            return f"{shown:,} of {every:,}" if filtered else f"{every:,}"

        parts = [counted(finding)]
        if step is not None and not self.filter.here and len(np.unique(hits.step[finding])) > 1:
            parts.append(f"at step {step_text(step)}: {counted(finding & at_step)}")
        parts += [f"{others:,} without a finding"] if others else []
        return [*parts, f"graph {', '.join(graphs)}" if graphs else "", self._state]

    @property
    def hits(self) -> Sequence[Hit]:
        """The hits shown."""
        return () if self.rows is None else self.rows.all.chosen(self.rows.shown)

    @property
    def shown(self) -> int:
        """Number of rows."""
        return 0 if self.rows is None else self.rows.row_count

    @property
    def hidden(self) -> int:
        """Rows that filter and search leave out."""
        return 0 if self.rows is None else len(self.rows.all) - self.rows.row_count

    @property
    def current(self) -> Hit | None:
        """The hit under the cursor."""
        return self.rows.hit(self.table.cursor_row) if self.table.cursor_row < self.shown and self.rows else None

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Shows the whole name, and the conditions without abbreviations."""
        event.stop()
        hit = self.current
        if hit is None:
            self.set_detail("")
            return
        from tui_debugger.text.hits import condition_names  # with the condition table: not before there are hits

        graph = f"{hit.key.graph}/" if self._graphs else ""
        self.set_detail(f"{graph}{hit.key.node} · {condition_names(hit)}")
        self.post_message(self.HitHighlighted(hit))

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter goes to the node."""
        event.stop()
        hit = self.current
        if hit is not None:
            self.post_message(self.HitChosen(hit))


def _columns(*, many_ranks: bool, graphs: Mapping[str, str], rounds: bool) -> tuple[Column, ...]:
    widest = max(map(len, graphs.values()), default=0)
    return (
        Column("", 1, frozen=True, searched=False),
        Column("step", 4, right=True, frozen=True, searched=False),
        *((Column("rank", 4, right=True, frozen=True, searched=False),) if many_ranks else ()),
        *((Column("graph", min(max(widest, 5), 16), right=True, frozen=True),) if graphs else ()),
        Column("node", 18, elastic=4),
        Column("slot", 8 if rounds else 5, searched=False),
        Column("hit", 8, elastic=1),
        Column("set → actual", 20, elastic=4, searched=False),
    )
