"""Pane 4: the hit list, one row per tensor, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import ranks_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.panes.pane import Pane
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.model import Hit, TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.panes.hit_rows import HitFilter, HitOrder, HitRows


class HitsPane(Pane):
    """The hit list.

    Attributes:
        highlighted: called with the hit under the cursor after it moved.
        notes_of: returns the program's notes on the step of a hit.
    """

    PANE = "hits"
    CLEARS_SEARCH = True

    @dataclass
    class HitChosen(Message):
        """Asks to go to the node of a hit."""

        hit: Hit

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(
            _columns(rank=0, graphs={}, rounds=False),
            empty=f"nothing checked yet: {key_of('recheck')} checks this step",
            id="hit-table",
        )
        self.table.sampled = 48
        self.rows: HitRows | None = None
        self.highlighted: Callable[[Hit], None] = lambda _: None
        self.notes_of: Callable[[Hit], str] = lambda _: ""
        self._result: CheckResult | None = None
        self._found: npt.NDArray[np.bool_] | None = None
        self._final = True
        self._grows = False
        self._state = self._empty = ""
        self._place: tuple[int, int | None] = (0, None)
        self._many_ranks = False
        self._graphs: Mapping[str, str] = {}
        self._only_graph = ""
        self._columns_for: tuple[int, bool, Mapping[str, str]] = (0, False, {})
        self._rank_width = 0
        self._rounds = False
        self._names = 0
        self._filter: HitFilter | None = None
        self._order: HitOrder | None = None
        self._unfolded: set[TensorKey] = set()
        self._all_unfolded = False
        self._left: TensorKey | None = None

    def set_run(self, *, many_ranks: bool, graphs: Mapping[str, str]) -> None:
        self._many_ranks, self._graphs = many_ranks, graphs
        self._rank_width = _RANK_WIDTH if many_ranks else 0
        self._set_columns()
        if self.rows is not None:
            self.refresh_rows()

    def _set_columns(self) -> None:
        self._columns_for = self._rank_width, self._rounds, self._graphs_shown
        self.table.set_columns(_columns(rank=self._rank_width, graphs=self._graphs_shown, rounds=self._rounds))

    @property
    def _graphs_shown(self) -> Mapping[str, str]:
        """The graphs that have a column: none where all rows are of one graph."""
        return {} if self._only_graph else self._graphs

    def on_resize(self) -> None:
        names = NAMES_WIDTH if self.size.width >= _NAMED_FROM else 0
        if names != self._names:
            self._names = names
            self._set_columns()
            self.refresh_rows()
        self.update_detail()

    def show(
        self,
        result: CheckResult | None,
        *,
        place: tuple[int, int | None],
        state: str,
        empty: str,
        final: bool = True,
    ) -> None:
        """Shows the check results of the run.

        ``place``: current rank and step. ``state``: a word for the title, ``checking`` for example. ``empty``: the line
        of an empty list. ``final``: False for partial results.
        """
        other_rank = self._many_ranks and place[0] != self._place[0]  # merged rows show the hit of the current rank
        same = result is self._result and not other_rank and (place == self._place or not self.filter.here)
        self._grows, self._final = not self._final, final
        self._result, self._place, self._state = result, place, state
        self._empty = empty
        if same:
            self._show_empty()
            self._title()
        elif self.search_text:
            self.ask()  # the answer fills the rows
        else:
            self.refresh_rows()

    def follow(self, rank: int, step: int | None) -> None:
        """Moves the cursor to the first finding of a step, unless it is on a hit of that step already."""
        current = self.current
        if self.rows is None or (current is not None and (current.key.rank, current.key.step) == (rank, step)):
            return
        row = self.rows.first_at(rank, step)
        if row >= 0:
            self.lead_to(row)

    def stands_on(self, rank: int, step: int | None, node: int) -> bool:
        """Tells whether the cursor is on a hit of a node (its row in the node table)."""
        hit = self.current
        return hit is not None and (hit.key.rank, hit.key.step, hit.row) == (rank, step, node)

    def lead_to(self, row: int) -> None:
        """Moves the cursor to a row and scrolls it into the upper half of the list: later findings stand below it."""
        table = self.table
        there = table.top <= row < table.top + table.page // 2
        table.move_to(row)
        if not there:
            table.show_above(_ABOVE)

    def show_found(self, result: CheckResult | None, found: npt.NDArray[np.bool_] | None) -> None:
        """Shows the hits that a search found (None: all), unless ``result`` is outdated."""
        if result is self._result:
            self._found = found
            self.refresh_rows()

    @property
    def filter(self) -> HitFilter:
        if self._filter is None:
            from tui_debugger.tui.panes.hit_rows import HitFilter

            self._filter = HitFilter()
        return self._filter

    def set_filter(self, hit_filter: HitFilter, names: dict[int, str]) -> None:
        self._filter = hit_filter
        parts = [("this step", key_of("this_step_only"))] if hit_filter.here else []
        parts += [("origins", key_of("origins_only"))] if hit_filter.origins else []
        parts += [(shorten(hit_filter.scope, _SCOPE_WIDTH), key_of("scope_only"))] if hit_filter.scope else []
        listed = [names.get(number, f"watchpoint {number}") for number in sorted(hit_filter.watchpoints)]
        listed += [*sorted(hit_filter.graphs), *(f"rank {rank}" for rank in sorted(hit_filter.ranks))]
        parts += [(text, key_of("filter_hits")) for text in listed]
        text = Text(" ", no_wrap=True, overflow="ellipsis").append(f"{key_of('clear_hit_filter')} clears ", theme.DIM)
        for part, key in parts:
            text.append(f" {clean(part)} ", theme.CHIP).append(f" {key}  ", theme.DIM)
        self.set_filters(text if parts else None)
        self.refresh_rows()

    @property
    def order(self) -> HitOrder:
        if self._order is None:
            from tui_debugger.tui.panes.hit_rows import HitOrder

            self._order = HitOrder.STEP
        return self._order

    def sort(self, order: HitOrder) -> None:
        self._order = order
        self.refresh_rows()

    def unfold(self) -> bool:
        """Shows or hides the ranks of the row under the cursor; False if it has only one rank."""
        key = self.rows.folder(self.table.cursor_row) if self.rows is not None and self.rows.row_count else None
        if key is None or self.rows is None:
            return False
        if self._all_unfolded:
            self._all_unfolded, self._unfolded = False, set(self.rows.folders())
        self._unfolded ^= {key}
        self.refresh_rows()
        if key not in self._unfolded:
            self.table.move_to_key(key)  # the cursor may have been on one of the hidden ranks
        return True

    def unfold_all(self) -> bool:
        """Shows or hides the ranks of every row; False if no row has several."""
        if self.rows is None or not self.rows.merged:
            return False
        current = self.rows.folder(self.table.cursor_row)
        self._all_unfolded, self._unfolded = not (self._all_unfolded or self._unfolded), set()
        self.refresh_rows()
        if current is not None and not self._all_unfolded:
            self.table.move_to_key(current)
        return True

    def _show_empty(self) -> None:
        """Sets the line of an empty list; if filters or search hide everything, it says how to clear them."""
        findings = self._result.hits.findings if self._result is not None else 0
        if findings and self.filter.here and self.filter.only_here:
            self.table.set_empty(
                f"no hit at this step, {findings:,} in the run: {key_of('this_step_only')} shows all steps"
            )
        elif findings and (self.filter or self.search_text):
            clears = f"{key_of('clear_hit_filter')} clears filters and search"
            self.table.set_empty(f"nothing in the list, {findings:,} findings in the run: {clears}")
        else:
            self.table.set_empty(self._empty)

    def refresh_rows(self) -> None:
        """Applies filter, search and order; once an empty list has rows again, the cursor goes to its old hit."""
        self._show_empty()
        before = self.current
        if self._result is None:
            self.rows = None
            self.table.set_rows(ListRows(()))
        else:
            import numpy as np

            from tui_debugger.tui.panes.hit_rows import (  # with the condition table: not before hits
                HitRows,
                ranks_width,
            )

            hits = self._result.hits
            rounds = any(bool(part.round.any()) for part in hits.parts)
            kept = self.filter.mask(hits, self._place[1])
            if self._found is not None and len(self._found) == len(hits):
                kept &= self._found
            several = [name for name in self._graphs if (kept & hits.of_graphs({name})).any()]
            self._only_graph = several[0] if len(several) == 1 else ""
            self.rows = HitRows(
                hits,
                np.flatnonzero(kept),
                self._many_ranks,
                self._graphs_shown,
                rank=self._place[0],
                order=self.order,
                watchpoints=self.filter.watchpoints,
                names=self._names,
                unfolded=None if self._all_unfolded else frozenset(self._unfolded),
            )
            width = 0 if not self._many_ranks else _RANK_WIDTH
            if self._many_ranks and self.rows.merged:
                width = ranks_width({rank for rank, _ in self._result.pairs})
            if (width, rounds, self._graphs_shown) != self._columns_for:
                self._rank_width, self._rounds = width, rounds
                self._set_columns()
            # While a check runs, a cursor on the first row stays on the first row, even if earlier hits are found.
            self.table.set_rows(self.rows, keep=not (self._grows and self.table.cursor_row == 0))
            if before is not None:
                self._left = None if self.rows.row_count else before.key
            elif self._left is not None and self.rows.row_count and not self.table.move_to_key(self._left):
                self._left = None
            self._grows = False
        self._title()

    def _title(self) -> None:
        if self.rows is None:
            self.set_count(self._state)
            return
        self.set_count(" · ".join(part for part in self._counts() if part))

    def _counts(self) -> list[str]:
        """Returns the parts of the title: ``12 of 914``, ``at step 3: 4 of 314``, ``by step``; they count findings."""
        if self._result is None or self.rows is None:
            return []
        rows, step = self.rows, self._place[1]
        filtered = self.filter or self.search_text

        def of(counts: Iterable[tuple[int, int]]) -> str:
            mine, every = (sum(each) for each in zip((0, 0), *counts, strict=True))
            return f"{mine:,} of {every:,}" if filtered else f"{every:,}"

        named = self.filter.graphs or ({self._only_graph} if self._only_graph else ())
        graphs = sorted(self._graphs.get(name, clean(name)) for name in named)
        merged = f"in {rows.tensors:,} rows" if rows.merged else ""
        parts = [" ".join(filter(None, (of(rows.counted.values()), "" if rows.others else merged)))]
        if step is not None and not self.filter.here and len(rows.counted) > 1:
            parts.append(f"at step {step_text(step)}: {of([rows.counted.get(step, (0, 0))])}")
        parts += [f"{rows.not_judged:,} not judged"] if self.filter.watchpoints and rows.not_judged else []
        parts += [f"{rows.others:,} without a finding", f"all {merged}" if merged else ""] if rows.others else []
        return [*parts, f"graph {', '.join(graphs)}" if graphs else "", self._state, f"by {self.order.value}"]

    @property
    def findings(self) -> str:
        """The number of findings in the run, for the tab; before a check its state."""
        return self._state if self._result is None else f"{self._result.hits.findings:,}"

    @property
    def hits(self) -> Sequence[Hit]:
        """The shown hits, in execution order."""
        return () if self.rows is None else self.rows.all.chosen(self.rows.shown)

    @property
    def shown(self) -> int:
        return 0 if self.rows is None else self.rows.row_count

    @property
    def hidden(self) -> int:
        return 0 if self.rows is None else len(self.rows.all) - len(self.rows.shown)

    @property
    def current(self) -> Hit | None:
        return self.rows.hit(self.table.cursor_row) if self.table.cursor_row < self.shown and self.rows else None

    def show_row(self) -> None:
        """Shows the detail of the row; the other panes follow the hit."""
        self.update_detail()
        if (hit := self.current) is not None and hit.key != self._left:
            self._left = None
            self.highlighted(hit)

    def update_detail(self) -> None:
        """Shows node, ranks and conditions of the hit under the cursor, and notes on its step if there is room."""
        hit = self.current
        if hit is None or self.rows is None:
            self.set_detail("")
            return
        from tui_debugger.text.hits import condition_names  # with the condition table: not before there are hits

        graph = f"{hit.key.graph}/" if self._graphs else ""
        ranks = self.rows.ranks(self.table.cursor_row)
        folded = f" · ranks {ranks_text(ranks)}" if len(ranks) > 1 else ""
        said = f"{folded} · {condition_names(hit)}"
        notes = self.notes_of(hit)
        operator = hit.key.node.rpartition("/")[2]
        room = self.detail_room - len(said)
        if len(operator) > room:  # shorten the operator's name; its scope has no room
            self.set_detail(shorten(operator, max(room, _OPERATOR)) + said)
            return
        noted = f" · {notes}" if notes and len(f"…/{operator} · {notes}") <= room else ""
        self.set_detail(f"{graph}{hit.key.node}{said}{noted}")

    def on_virtual_table_row_selected(self) -> None:
        hit = self.current
        if hit is not None:
            self.post_message(self.HitChosen(hit))


_OPERATOR = 12
"""Fewest cells to which an operator's name is shortened."""
_ABOVE = 2
"""Rows that stay visible above a row that the screen leads to."""
_RANK_WIDTH = 4
"""Cells of the rank column if every row stands for one rank."""
NAMES_WIDTH = 24
"""Cells for the names of conditions: one more than the longest name."""
_NAMED_FROM = 110
"""Least width of the pane for the names of conditions."""
_SCOPE_WIDTH = 40
"""Most cells of a scope in the filter line."""


def _columns(*, rank: int, graphs: Mapping[str, str], rounds: bool) -> tuple[TableColumn, ...]:
    widest = max(map(len, graphs.values()), default=0)
    return (
        TableColumn("", 1, frozen=True, searched=False),
        TableColumn("step", 4, right=True, frozen=True, searched=False),
        *((TableColumn("rank", rank, right=rank == _RANK_WIDTH, frozen=True, searched=False),) if rank else ()),
        *((TableColumn("graph", min(max(widest, 5), 16), right=True, frozen=True),) if graphs else ()),
        TableColumn("node", 18, elastic=4),
        TableColumn("slot", 8 if rounds else 5, searched=False),
        TableColumn("hit", 5, elastic=1),
        TableColumn("set → actual", 14, elastic=2, searched=False),
    )
