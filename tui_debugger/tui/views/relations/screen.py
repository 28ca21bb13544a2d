"""A tensor in the middle, what it was made from on the left, what uses it on the right; Enter walks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual import on
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from tui_debugger.model import ProgressFn, TensorKey
from tui_debugger.session.diagnosis.relations import (
    Related,
    Relations,
    consumers,
    producers,
    relations,
    tie_words,
    watch_words,
)
from tui_debugger.session.types import TensorRow
from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.views.extract import TENSOR_HEADER, Extract, stem_of, tensor_fields
from tui_debugger.tui.views.focus import Focus
from tui_debugger.tui.views.keys import LOOK_AGAIN, bindings, view_action
from tui_debugger.tui.views.lazy_rows import LazyRows
from tui_debugger.tui.views.news import News, SeenResults
from tui_debugger.tui.views.relations.branches import Item, Side, Trail
from tui_debugger.tui.views.relations.cells import cells, detail, where_words
from tui_debugger.tui.views.relations.column import RelatedList
from tui_debugger.tui.views.relations.looking import look_again, measured, with_rows
from tui_debugger.tui.views.stack_text import stack_text
from tui_debugger.tui.views.view import CHECKED, RUN_CHANGED, View
from tui_debugger.tui.widgets.text import Cell, shorten
from tui_debugger.tui.widgets.virtual_table import VirtualTable
from tui_debugger.words.graphs import short_names
from tui_debugger.words.steps import step_text
from tui_debugger.words.tensors import slot_text

if TYPE_CHECKING:
    from tui_debugger.session import Session
    from tui_debugger.session.types import Pair
    from tui_debugger.tui.views.view import Host

NARROW = 150
"""Cells below which the lists stand one above the other."""
_FRAMES = 5
_LISTS = ("producers", "centre", "consumers")
_GROUP = "Relations (L)"
_ACTIONS = (
    LOOK_AGAIN,
    view_action("walk_back", "Back", "backspace [", "The tensor that was in the middle before.", _GROUP),
    view_action("walk_forward", "Forward", "]", "Forward again.", _GROUP),
    view_action("expand", "One hop more", "space", "Opens or closes what lies one hop beyond the cursor.", _GROUP),
    view_action("values", "Values", "v", "The values of the tensor under the cursor.", _GROUP),
    view_action("main", "Show in the panes", "t", "Goes to the tensor under the cursor on the main screen.", _GROUP),
)
_NOTHING_OPENED: Mapping[str, Side] = {name: Side() for name in _LISTS}
_HEADER = (
    "side",
    "hop",
    "step",
    "node",
    "slot",
    "type",
    "how",
    "watchpoints",
    *TENSOR_HEADER,
)


class RelationsView(View):
    """Three lists with a cursor each; what is under the cursor is described below."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(_ACTIONS)]
    OWN_ACTIONS = _ACTIONS
    AUTO_FOCUS = "#centre"
    DEFAULT_CSS = """
    RelationsView {
        #lists { layout: horizontal; height: 1fr; }
        RelatedList { width: 1fr; height: 1fr; padding-right: 1; }
        #centre { width: 0.8fr; }
        #centre, #consumers { border-left: solid $border; }
        &.-stacked #lists { layout: vertical; }
        &.-stacked RelatedList { width: 1fr; padding-right: 0; }
        &.-stacked #centre { width: 1fr; height: 3; }
        &.-stacked #centre, &.-stacked #consumers { border-left: none; }
        &.-stacked #source { height: 1; }
        #detail { height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
        #source { color: $text-muted; height: 5; text-wrap: nowrap; text-overflow: ellipsis; }
        #message.-empty { display: block; height: 1; }
    }
    """
    heading = "Relations"
    hints = (
        *(("← →", "lists"), ("Enter", "walk there"), ("[ ]", "back, forward"), ("Space", "one hop more")),
        *(("v", "values"), ("?", "keys"), ("Esc", "back")),
    )

    def __init__(self, host: Host, about: Focus) -> None:
        """Nothing is looked at yet."""
        super().__init__(host, about)
        self._trail = Trail(((about.key, about.row),))
        self._shown: Relations | None = None
        self._sides: dict[str, Side] = {name: Side() for name in _LISTS}
        self._items: dict[str, tuple[Item, ...]] = dict.fromkeys(_LISTS, ())
        self._measured: dict[TensorKey, TensorRow] = {}
        self._results = SeenResults(host.session)

    def body(self) -> Iterable[Widget]:
        """The lists, and what is under the cursor."""
        with Container(id="lists"):
            yield RelatedList("made from", "nothing makes it", id="producers")
            yield RelatedList("tensor", "", id="centre")
            yield RelatedList("used by", "nothing uses it, as far as the graph says", id="consumers")
        yield Line(id="detail")
        yield Line(id="source")

    def on_mount(self) -> None:
        """Starts to look."""
        self.table("centre").focus()
        self._walk_to(self._trail)

    def on_resize(self) -> None:
        """Side by side where there is room."""
        self.set_class(self.size.width < NARROW, "-stacked")
        self._describe()

    def table(self, name: str) -> RelatedList:
        """One of the lists."""
        return self.query_one(f"#{name}", RelatedList)

    @property
    def side(self) -> str:
        """The list that has the focus."""
        return next((name for name in _LISTS if self.table(name).has_focus), "centre")

    @property
    def item(self) -> Item | None:
        """What is under the cursor of that list."""
        items, at = self._items[self.side], self.table(self.side).cursor_row
        return items[at] if at < len(items) else None

    # -- walking -------------------------------------------------------------------------------------

    def _walk_to(self, trail: Trail) -> None:
        key, _ = trail.here
        if self.outdated:
            self._measured.clear()
        self.work_anew("looking around", partial(relations, self.host.session, key), partial(self._arrived, trail))

    def _arrived(self, trail: Trail, found: Relations) -> None:
        self._trail = trail
        self._take(found, _NOTHING_OPENED)
        for name in _LISTS:
            self._show(name, keep=False)
        self._results.note(self._pairs())
        self.table("centre").focus()
        self._describe()
        self._measure()

    def look_again(self) -> None:
        """The same tensor; what was opened and where the cursor is stay, as far as they are there."""
        job = partial(look_again, self.host.session, self._trail.here[0], dict(self._sides))
        self.work_anew("looking around", job, self._arrived_again)

    def _arrived_again(self, found: tuple[Relations, Mapping[str, Side]]) -> None:
        self._measured.clear()
        self._take(*found)
        for name in _LISTS:
            self._show(name)
        self._results.note(self._pairs())
        self._describe()
        self._measure()

    def outdated_by(self, news: News) -> str:
        """The steps of what is shown count, the next one where that reads a parameter, and what checks found there."""
        rank, steps = self._trail.here[0].rank, {step for _, step in self._pairs()}
        waits = any(item.related.ahead for item in self._items["consumers"])
        later = waits and any(step > self._trail.here[0].step for step in news.steps_of(rank))
        if later or rank in news.ranks or any(of == rank and step in steps for of, step in news.rewritten):
            return RUN_CHANGED
        return CHECKED if news.results and self._results.newer else ""

    def _pairs(self) -> set[Pair]:
        """(rank, step) of everything that is shown, also where nothing was dumped yet."""
        rank = self._trail.here[0].rank
        return {(rank, item.related.key.step) for items in self._items.values() for item in items}

    def _take(self, found: Relations, inner: Mapping[str, Side]) -> None:
        """Other contents; ``inner`` is what is opened in the lists."""
        self._shown, trail = found, self._trail
        self._sides = {
            "producers": replace(inner["producers"], first=found.producers),
            "centre": Side((found.centre, *found.siblings)),
            "consumers": replace(inner["consumers"], first=found.consumers),
        }
        number = f"  {trail.at + 1} of {len(trail.visited)} visited" if len(trail.visited) > 1 else ""
        key = found.centre.key
        where = f"{slot_text(key)}  step {step_text(key.step)}  rank {key.rank}{self.graph_words(key)}{number}"
        name = shorten(key.node, max(self.size.width - len(where) - 22, 16))
        self.set_heading(f"Relations of {name}  {where}")
        titles = {"producers": f"made from {len(found.producers):,}", "centre": "tensor"}
        titles["consumers"] = f"used by {len(found.consumers):,}"
        for side, title in titles.items():
            first = self._sides[side].first
            rounds = any(bool(each.key.round) for each in first if not each.slots)
            self.table(side).set_title(title, rounds=rounds)

    def action_walk_back(self) -> None:
        """The tensor that was in the middle before."""
        self._move(-1, "nothing was visited before")

    def action_walk_forward(self) -> None:
        """Forward again."""
        self._move(1, "this is the last one visited")

    def _move(self, by: int, at_end: str) -> None:
        moved = self._trail.moved(by)
        if moved.at == self._trail.at:
            self.say(at_end, note=True)
        else:
            self._walk_to(moved)

    @on(VirtualTable.RowSelected)
    def _chosen(self, event: VirtualTable.RowSelected) -> None:
        event.stop()
        item = self.item
        if item is not None and item.related.ahead:
            self.say("no later step was dumped: there is nothing to go to", note=True)
        elif item is None or item.related.key == self._trail.here[0]:
            self.host.open("values", self.focus_here)
        else:
            self._walk_to(self._trail.walked(item.related.key, item.related.row))

    @on(RelatedList.Left)
    def _change_list(self, event: RelatedList.Left) -> None:
        event.stop()
        at = _LISTS.index(self.side) + event.by
        if 0 <= at < len(_LISTS) and self._items[_LISTS[at]]:
            self.table(_LISTS[at]).focus()

    def on_descendant_focus(self) -> None:
        """Another list has the cursor now."""
        self._describe()

    def action_expand(self) -> None:
        """What lies one hop beyond the cursor."""
        item, name = self.item, self.side
        if item is None or name == "centre":
            self.say("one hop more: put the cursor on a producer or a consumer", note=True)
        elif item.place in self._sides[name].inner:
            self._open(name, self._sides[name].toggled(item.place))
        else:
            look: Callable[[Session, TensorKey, ProgressFn], tuple[Related, ...]]
            look = producers if name == "producers" else consumers
            job = partial(look, self.host.session, item.related.key)
            self.work("looking around", job, partial(self._expanded, name, item))

    def _expanded(self, name: str, item: Item, found: Sequence[Related]) -> None:
        if not found:
            self.say(
                "nothing makes it" if name == "producers" else "nothing uses it, as far as the graph says", note=True
            )
            return
        self._open(name, self._sides[name].with_inner(item.place, found))

    def _open(self, name: str, side: Side) -> None:
        self._sides[name] = side
        self._show(name)
        self._describe()
        self._measure()

    # -- what is shown -------------------------------------------------------------------------------

    def _show(self, name: str, *, keep: bool = True) -> None:
        items = self._items[name] = self._sides[name].items()
        middle = self._shown.centre.key if self._shown is not None else self._trail.here[0]
        graphs = short_names(self._shown.graphs) if self._shown is not None else {}

        def drawn(item: Item) -> Sequence[Cell]:
            return cells(item, self._row(item.related), middle=middle, graphs=graphs)

        self.table(name).set_rows(LazyRows(items, drawn, lambda item: item.place), keep=keep)

    def _row(self, related: Related) -> TensorRow:
        return self._measured.get(related.tensor.key, related.tensor)

    @on(VirtualTable.RowHighlighted)
    def _moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self._describe()
        self._measure()

    def _describe(self) -> None:
        item = self.item
        if item is None or self._shown is None:
            return
        row = self._row(item.related)
        key = item.related.key
        where = where_words(item.related) + self.graph_words(key)
        name = shorten(key.node, max(self.size.width - cell_len(where) - 4, 16))
        text = detail(item.related, row, (name, where), upstream=self.side == "producers", maker=self._shown.maker)
        self.query_one("#detail", Line).show(text)
        self.query_one("#source", Line).show(Content("\n".join(self._source(item))))

    def _source(self, item: Item) -> Sequence[str]:
        if self._shown is not None and self.side == "centre":
            return stack_text(self._shown.stack, lines=_FRAMES)
        nodes, row = self.host.session.nodes(item.related.key.rank), item.related.row
        return stack_text(nodes.stack(row), lines=_FRAMES) if 0 <= row < len(nodes) else ()

    # -- statistics of what is in sight --------------------------------------------------------------

    def _in_sight(self) -> list[TensorRow]:
        """Tensors on the screen that were not measured yet."""
        found: dict[TensorKey, TensorRow] = {}
        for name in _LISTS:
            table = self.table(name)
            for item in self._items[name][table.top : table.top + table.page]:
                row = item.related.tensor
                if row.index >= 0 and row.key not in self._measured:
                    found[row.key] = row
        return [*found.values()]

    def _measure(self) -> None:
        if self.working:
            return
        rows = self._in_sight()
        if rows:
            self.work("statistics", partial(measured, self.host.session, rows), self._told)

    def _told(self, rows: tuple[TensorRow, ...]) -> None:
        self._measured.update((row.key, row) for row in rows)
        for name in _LISTS:
            self._show(name)
        self._describe()
        self._measure()  # what came into sight meanwhile

    # -- other keys ----------------------------------------------------------------------------------

    @property
    def focus_here(self) -> Focus:
        """The tensor under the cursor."""
        item = self.item
        if item is None:
            key, row = self._trail.here
            return self.about if key == self.about.key else Focus(key, row)
        related, key = item.related, item.related.tensor.key
        if key == self.about.key:
            return self.about
        row = related.row if key == related.key else self.host.session.nodes(key.rank).find(key.node, key.graph)
        return Focus(key, row, related.hit)

    def action_values(self) -> None:
        """The values of the tensor under the cursor."""
        self.host.open("values", self.focus_here)

    def action_main(self) -> None:
        """The tensor under the cursor on the main screen."""
        self.host.go_to(self.focus_here)

    # -- what it hands out ---------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        """The three lists as text and as a table."""
        found = self._shown
        if found is None:
            return None
        item = self.item
        from tui_debugger.session.diagnosis.relations_text import relations_lines

        stem = stem_of(found.centre.key, "relations")
        known = with_rows(found, self._row)
        one = item.related.key.node if item is not None else ""
        rows = [self._export(name, each) for name in _LISTS for each in self._items[name]]
        return Extract(stem, "\n".join(relations_lines(known)), one, _HEADER, rows)

    def _export(self, name: str, item: Item) -> tuple[object, ...]:
        related, row = item.related, self._row(item.related)
        key = related.key
        how = tie_words(related, upstream=name == "producers")
        place = (name, item.depth + (name != "centre"), key.step, key.node, slot_text(key))
        return (*place, related.type, how, watch_words(related), *tensor_fields(row))
