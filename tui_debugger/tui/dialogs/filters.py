"""Filters of the node list and of the hit list: switches in sections; typing finds a switch, Enter applies all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.graph.search import NodeQuery
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category
from tui_debugger.text.clean import clean
from tui_debugger.tui.cells import CATEGORY_LABELS
from tui_debugger.tui.dialogs.modal import LIST_KEYS, InputLine, ListDialog
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.tui.theme import DIM, STRONG, WATCHED
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class FilterSwitch:
    """One line of a filter dialog.

    ``key`` is its value in the result. ``single``: turning it on turns the other switches of its section off.
    """

    section: str
    key: Hashable
    label: str
    single: bool = False


class FindField(InputLine):
    """An input line for everything but blanks: Space turns a switch."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key != "space" and super().check_consume_key(key, character)


class TogglesScreen(ListDialog[ResultT]):
    """Base of the filter dialogs: subclasses make a result from the switches that are on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *LIST_KEYS,
        Binding("space", "turn", show=False, priority=True),
        Binding("backspace", "rub_out", show=False, priority=True),
    ]
    hints = (("Space", "turn"), ("Enter", "apply"), ("type", "to find"), ("Backspace", "all off"), ("Esc", "back"))

    def __init__(self, switches: Sequence[FilterSwitch], on_keys: Iterable[tuple[str, Hashable]]) -> None:
        """``on_keys`` are the (section, key) of the switches that are on at first."""
        super().__init__()
        self.switches = switches
        self.turned: set[tuple[str, Hashable]] = set(on_keys)

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> ResultT:
        """Returns the dialog's result; ``chosen`` has the keys that are on, by section."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        yield FindField(placeholder="type to find", id="find")
        yield VirtualTable(
            (TableColumn("", 1), TableColumn("", 10, elastic=1)), header=False, empty="nothing matches", id="switches"
        )

    def on_mount(self) -> None:
        table = self.table
        table.can_focus = False
        self._show("")
        table.styles.height = max(1, min(table.row_count, self.app.size.height - 5))
        if table.row_count > 1:
            self.call_after_refresh(table.move_to, 1)
        self.field.focus()

    def _show(self, needle: str) -> None:
        words = needle.lower().split()
        rows: list[tuple[Cell, Cell]] = []
        keys: list[Hashable] = []
        section = ""
        for number, switch in enumerate(self.switches):
            if not all(word in f"{switch.section} {switch.label}".lower() for word in words):
                continue
            if switch.section != section:
                section = switch.section
                rows.append(("", Text(section, STRONG)))
                keys.append(section)
            turned = (switch.section, switch.key) in self.turned
            rows.append((Text("●" if turned else "○", WATCHED if turned else DIM), Text(switch.label)))
            keys.append(number)
        self.table.set_rows(ListRows(rows, keys))

    @on(Input.Changed, "#find")
    def _find(self, event: Input.Changed) -> None:
        self._show(event.value)
        table = self.table
        if event.value and isinstance(table.cursor_key, str):
            table.action_cursor_down()

    def action_list(self, action: str) -> None:
        """Moves the cursor, past headings."""
        table = self.table
        super().action_list(action)
        if isinstance(table.cursor_key, str):
            if table.cursor_row == 0 or "down" in action:
                table.action_cursor_down()
            else:
                table.action_cursor_up()

    def action_turn(self) -> None:
        key = self.table.cursor_key
        if not isinstance(key, int):
            return
        switch = self.switches[key]
        name = (switch.section, switch.key)
        turned = name in self.turned
        if switch.single:
            self.turned = {each for each in self.turned if each[0] != switch.section}
        self.turned.discard(name) if turned else self.turned.add(name)
        self._show(self.field.value)

    def action_rub_out(self) -> None:
        """Deletes a letter; in an empty find line turns all switches off."""
        if self.field.value:
            self.field.action_delete_left()
        else:
            self.turned.clear()
            self._show("")

    @on(Input.Submitted, "#find")
    def _apply(self) -> None:
        chosen: dict[str, frozenset[Hashable]] = {}
        for section, key in self.turned:
            chosen[section] = chosen.get(section, frozenset()) | {key}
        self.dismiss(self.result(chosen))


ONLY, ALSO = "Only", "Also"
WATCHED_BY, CATEGORY, GRAPH, TYPE = "Watched by", "Category", "Graph", "Operator type"
WATCHPOINT, RANK, SCOPE = "Watchpoint", "Rank", "Scope"
HIT, LINE, STRUCTURAL, QUIET, ORIGIN, HERE = "hit", "line", "structural", "quiet", "origin", "here"


class FilterScreen(TogglesScreen[NodeQuery]):
    """Filters nodes. Search text and its options stay as they are."""

    heading = "Filter nodes"

    def __init__(self, current: NodeQuery, nodes: NodeTable, watchpoints: Mapping[int, str]) -> None:
        """Turns on the switches of ``current``; ``watchpoints`` maps ids to texts."""
        self.current = current
        switches = [FilterSwitch(ONLY, HIT, "nodes with a hit")]
        if current.line is not None:
            switches.append(FilterSwitch(ONLY, LINE, f"nodes of {clean(current.line[0])}:{current.line[1]}"))
        switches += [FilterSwitch(WATCHED_BY, 0, "any enabled watchpoint", single=True)]
        switches += [FilterSwitch(WATCHED_BY, number, text, single=True) for number, text in watchpoints.items()]
        present = {Category(int(value)) for value in np.unique(nodes.category)} | current.categories
        switches += [
            FilterSwitch(CATEGORY, category, CATEGORY_LABELS[category]) for category in Category if category in present
        ]
        if len(nodes.graphs) > 1:
            switches += [FilterSwitch(GRAPH, info.name, info.name) for info in nodes.graphs]
        shown = {nodes.types[int(number)] for number in np.unique(nodes.type_id)}
        switches += [FilterSwitch(TYPE, name.lower(), name) for name in sorted(shown, key=str.lower)]
        switches += [FilterSwitch(ALSO, STRUCTURAL, "nodes that only pass values on (Depend, MakeTuple …)")]
        super().__init__(switches, _turned(current))

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> NodeQuery:
        only = chosen.get(ONLY, frozenset())
        return replace(
            self.current,
            categories=frozenset(key for key in chosen.get(CATEGORY, ()) if isinstance(key, Category)),
            types=frozenset(map(str, chosen.get(TYPE, ()))),
            graphs=frozenset(map(str, chosen.get(GRAPH, ()))),
            watched=next(iter(_numbers(chosen.get(WATCHED_BY))), None),
            hit=HIT in only,
            line=self.current.line if LINE in only else None,
            structural=ALSO in chosen,
        )


def _turned(query: NodeQuery) -> set[tuple[str, Hashable]]:
    turned: set[tuple[str, Hashable]] = {(CATEGORY, category) for category in query.categories}
    turned |= {(TYPE, name) for name in query.types} | {(GRAPH, graph) for graph in query.graphs}
    turned |= {(WATCHED_BY, query.watched)} if query.watched is not None else set()
    turned |= {(ONLY, HIT)} if query.hit else set()
    turned |= {(ONLY, LINE)} if query.line is not None else set()
    return turned | ({(ALSO, STRUCTURAL)} if query.structural else set())


class HitFilterScreen(TogglesScreen[HitFilter]):
    """Filters hits."""

    heading = "Filter hits"

    def __init__(
        self,
        current: HitFilter,
        watchpoints: Mapping[int, str],
        graphs: Sequence[str],
        ranks: Sequence[int],
        scope: str = "",
    ) -> None:
        """Turns on the switches of ``current``; the other arguments are the choices."""
        self.current = current
        switches = [FilterSwitch(ONLY, ORIGIN, "origins"), FilterSwitch(ONLY, HERE, "this step")]
        scopes = [each for each in dict.fromkeys((current.scope, scope)) if each]
        switches += [FilterSwitch(SCOPE, each, clean(each), single=True) for each in scopes]
        switches += [FilterSwitch(WATCHPOINT, number, text) for number, text in watchpoints.items()]
        if len(ranks) > 1:
            switches += [FilterSwitch(RANK, rank, f"rank {rank}") for rank in ranks]
        if len(graphs) > 1:
            switches += [FilterSwitch(GRAPH, graph, graph) for graph in graphs]
        switches += [FilterSwitch(ALSO, QUIET, "rows where there was nothing to compare with")]
        turned: set[tuple[str, Hashable]] = {(WATCHPOINT, number) for number in current.watchpoints}
        turned |= {(RANK, rank) for rank in current.ranks} | {(GRAPH, graph) for graph in current.graphs}
        turned |= {(SCOPE, current.scope)} if current.scope else set()
        turned |= {(ONLY, key) for key, on in ((ORIGIN, current.origins), (HERE, current.here)) if on}
        super().__init__(switches, turned | ({(ALSO, QUIET)} if current.quiet else set()))

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> HitFilter:
        return replace(
            self.current,
            watchpoints=_numbers(chosen.get(WATCHPOINT)),
            graphs=frozenset(map(str, chosen.get(GRAPH, ()))),
            ranks=_numbers(chosen.get(RANK)),
            quiet=ALSO in chosen,
            here=HERE in chosen.get(ONLY, ()),
            origins=ORIGIN in chosen.get(ONLY, ()),
            scope=next(map(str, chosen.get(SCOPE, ())), ""),
        )


def _numbers(keys: frozenset[Hashable] | None) -> frozenset[int]:
    return frozenset(key for key in keys or () if isinstance(key, int))
