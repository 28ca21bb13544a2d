"""Pane 4: the hit list, in execution order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.model import Hit, Verdict
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane, matcher, pane_bindings
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable
from tui_debugger.words.clean import clean

if TYPE_CHECKING:
    from tui_debugger.session import CheckResult


@dataclass(frozen=True)
class HitFilter:
    """Which rows of the hit list are shown. Empty parts do not filter.

    Attributes:
        watchpoints: ids.
        graphs: graph names.
        ranks: ranks.
        quiet: also rows where nothing could be compared for a good reason.
    """

    watchpoints: frozenset[int] = frozenset()
    graphs: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    quiet: bool = False

    def __bool__(self) -> bool:
        """Whether it can hide findings."""
        return bool(self.watchpoints or self.graphs or self.ranks)

    def keeps(self, hit: Hit) -> bool:
        """Whether a row is shown."""
        if not self.quiet and hit.verdict is Verdict.NOT_COMPARABLE:
            return False
        if self.watchpoints and self.watchpoints.isdisjoint(result.watchpoint for result in hit.results):
            return False
        if self.graphs and hit.key.graph not in self.graphs:
            return False
        return not self.ranks or hit.key.rank in self.ranks


class HitsPane(Pane):
    """One row per tensor with everything that hit on it."""

    PANE = "hits"
    BINDINGS: ClassVar[list[BindingType]] = pane_bindings("hits")

    class HitChosen(Message):
        """Go to the node of a hit."""

        def __init__(self, hit: Hit) -> None:
            """The row."""
            super().__init__()
            self.hit = hit

    def __init__(self) -> None:
        """Nothing checked."""
        super().__init__()
        self.table = VirtualTable(_columns(many_ranks=False), empty="nothing checked yet: r checks this step")
        self._result: CheckResult | None = None
        self._shown: tuple[Hit, ...] = ()
        self._state = ""
        self._where = ""
        self._many_ranks = False
        self.filter = HitFilter()

    def set_ranks(self, many: bool) -> None:
        """A rank column when there are several ranks."""
        self._many_ranks = many
        self.table.set_columns(_columns(many_ranks=many))

    def show(self, result: CheckResult | None, *, where: str, state: str, empty: str) -> None:
        """Shows the findings of a check.

        Args:
            result: what was found; None when nothing was checked.
            where: which steps, for the title.
            state: ``outdated``, ``checking …`` or empty.
            empty: the line for an empty list.
        """
        same = result is self._result
        self._result, self._where, self._state = result, where, state
        self.table.set_empty(empty)
        if same:
            self._title()
        else:
            self.refresh_rows()

    def set_filter(self, hit_filter: HitFilter, names: dict[int, str]) -> None:
        """Replaces the filter."""
        self.filter = hit_filter
        parts = [names.get(i, f"watchpoint {i}") for i in sorted(hit_filter.watchpoints)]
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
        from tui_debugger.tui.panes.hit_rows import HitRows  # with the condition table: not before there are hits

        test = matcher(self.search_text)
        self.mark_search(test is None)
        hits = self._result.hits if self._result is not None else ()
        shown = tuple(hit for hit in hits if self.filter.keeps(hit) and (test is None or _matches(hit, test)))
        self._shown = shown
        self.table.set_rows(HitRows(shown, self._many_ranks, {hit.key: i for i, hit in enumerate(shown)}))
        self._title()

    def _title(self) -> None:
        if self._result is None:
            self.set_count(self._state)
            return
        findings = sum(hit.verdict is Verdict.FINDING for hit in self._shown)
        parts = [f"{findings:,}", self._where, self._state]
        parts += [f"{self.hidden:,} rows hidden"] if self.hidden and (self.filter or self.search_text) else []
        self.set_count(" · ".join(part for part in parts if part))

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The rows shown."""
        return self._shown

    @property
    def hidden(self) -> int:
        """Rows that filter and search leave out."""
        return (len(self._result.hits) if self._result is not None else 0) - len(self.hits)

    @property
    def current(self) -> Hit | None:
        """The row under the cursor."""
        return self.hits[self.table.cursor_row] if self.table.cursor_row < len(self.hits) else None

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Shows the whole name."""
        event.stop()
        hit = self.current
        self.set_detail("" if hit is None else hit.key.node)

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter goes to the node."""
        event.stop()
        hit = self.current
        if hit is not None:
            self.post_message(self.HitChosen(hit))


def _matches(hit: Hit, test: Callable[[str], bool]) -> bool:
    from tui_debugger.tui.panes.hit_text import abbreviations

    return test(f"{hit.key.node} {abbreviations(hit).plain}")


def _columns(*, many_ranks: bool) -> tuple[Column, ...]:
    return (
        Column("", 1, frozen=True),
        Column("step", 4, right=True, frozen=True),
        *((Column("rank", 4, right=True, frozen=True),) if many_ranks else ()),
        Column("node", 18, elastic=4),
        Column("slot", 5),
        Column("hit", 8, elastic=1),
        Column("set → actual", 20, elastic=4),
    )
