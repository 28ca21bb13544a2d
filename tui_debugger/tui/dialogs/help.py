"""The ``?`` page: every key, and the condition table as a cheat sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.model import CATEGORY_WORDS
from tui_debugger.tui.actions import Action
from tui_debugger.tui.dialogs.modal import Field, Modal
from tui_debugger.tui.dialogs.prompts import LIST_KEYS
from tui_debugger.tui.theme import DIM, STRONG
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable
from tui_debugger.watch.condition_table import CONDITIONS, Condition, ParamSpec
from tui_debugger.watch.text import format_value

Entry = tuple[str, str, str]
"""(heading, term, explanation)."""
KEY_WIDTH = 14
EXAMPLES: tuple[tuple[str, str], ...] = (
    ("TO", "NaN or Inf anywhere"),
    ("WCL abs_mean_update_ratio_gt=1", "weights that changed by more than their own size"),
    ("TL max_gt=100 @ type=MatMul", "large values, only in outputs of MatMul"),
    ("TZ @ scope=Default/network, -re=bias$", "all zeros in one scope, without names that end in bias"),
    ("GV abs_mean_lt=1e-9 @ category=gradient", "vanishing gradients"),
)


def key_entries(actions: Iterable[Action]) -> list[Entry]:
    """Returns one entry per action, groups together in the order in which they first appear."""
    found: dict[str, list[Entry]] = {}
    for action in actions:
        found.setdefault(action.group, []).append((action.group, action.label, action.help))
    return [entry for entries in found.values() for entry in entries]


def condition_entries() -> list[Entry]:
    """Returns all conditions with all their parameters, then the text form of a watchpoint."""
    entries: list[Entry] = []
    for condition in CONDITIONS.values():
        heading = _condition_heading(condition)
        entries += [(heading, spec.name, _param_text(spec)) for spec in condition.params]
        if not condition.params:
            entries.append((heading, "", ""))
    heading = "As text: --watch 'CONDITION [parameter=value ...] [@ nodes]'"
    entries += [(heading, "", f"{text}: {meaning}") for text, meaning in EXAMPLES]
    entries.append((heading, "nodes", "clauses between commas: a regular expression, or one of the following"))
    entries.append((heading, "category=", ", ".join(CATEGORY_WORDS)))
    entries.append((heading, "type= node=", "operator type, exact node name"))
    entries.append((heading, "scope= re=", "scope with everything in it, regular expression"))
    entries.append((heading, "-…", "a minus before a clause leaves its nodes out"))
    return entries


def _condition_heading(condition: Condition) -> str:
    return f"{condition.abbr}  {condition.id}: {condition.summary} For each {condition.target}."


def _param_text(spec: ParamSpec) -> str:
    parts = [spec.help, f"Allowed: {spec.range_text}."]
    if spec.default is not None:
        parts.append(f"Default {format_value(spec.default)}.")
    if not spec.visible:
        parts.append("Only as text, not in the form.")
    return " ".join(parts)


class HelpScreen(Modal[None]):
    """Keys by group, and conditions; typing filters."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [*LIST_KEYS, Binding("tab", "other_page", show=False, priority=True)]

    def __init__(self, actions: Sequence[Action], *, conditions: bool = True, heading: str = "Help: keys") -> None:
        """Shows keys first.

        Args:
            actions: what the page of keys lists.
            conditions: whether Tab leads to the page of conditions.
            heading: title of the page of keys.
        """
        super().__init__()
        self.heading = heading
        self._pages = [(heading, key_entries(actions), KEY_WIDTH)]
        if conditions:
            width = max(len(spec.name) for condition in CONDITIONS.values() for spec in condition.params)
            self._pages.append(("Help: conditions of watchpoints", condition_entries(), width))
        self._page = 0
        self.hints = (
            ("Esc", "back"),
            ("type", "to filter"),
            ("↑ ↓ PgUp PgDn", "move"),
            *((("Tab", "keys / conditions"),) if conditions else ()),
        )

    def body(self) -> Iterable[Widget]:
        """Lays out filter line and text."""
        yield Field(placeholder="type to filter", id="filter")
        yield VirtualTable(header=False, empty="nothing matches", id="lines")

    def on_mount(self) -> None:
        """Letters go to the filter, arrows to the list."""
        self.query_one(VirtualTable).can_focus = False
        self.query_one(Field).focus()

    def on_resize(self) -> None:
        """Text is wrapped to the new width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        heading, entries, term_width = self._pages[self._page]
        table = self.query_one(VirtualTable)
        room = max(20, table.size.width - term_width - 6)
        needle = self.query_one(Field).value.lower().split()
        rows: list[tuple[Cell, Cell]] = []
        last = ""
        for group, term, text in entries:
            if not all(word in f"{group} {term} {text}".lower() for word in needle):
                continue
            if group != last:
                rows += _heading_rows(group, table.size.width - 4, blank=bool(rows))
                last = group
            for i, line in enumerate(textwrap.wrap(text, room) or ([""] if term else [])):
                term_cell = Text(f"{term if i == 0 else '':<{term_width}} ", STRONG)
                rows.append(("", Text.assemble(term_cell, line)))
        table.set_columns((Column("", 0), Column("", 10, elastic=1)))
        table.set_rows(ListRows(rows), keep=False)
        self.set_heading(heading)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self._show()

    @on(Input.Submitted, "#filter")
    def _ignore_enter(self, event: Input.Submitted) -> None:
        event.stop()

    def action_list(self, action: str) -> None:
        """Arrow and page keys."""
        getattr(self.query_one(VirtualTable), f"action_{action}")()

    def action_other_page(self) -> None:
        """Tab: keys or conditions."""
        self._page = (self._page + 1) % len(self._pages)
        with self.prevent(Input.Changed):
            self.query_one(Field).value = ""
        self._show()


def _heading_rows(text: str, width: int, *, blank: bool) -> list[tuple[Cell, Cell]]:
    lines = textwrap.wrap(text, max(20, width))
    rows: list[tuple[Cell, Cell]] = [("", Text(line, STRONG if i == 0 else DIM)) for i, line in enumerate(lines)]
    return [("", ""), *rows] if blank else rows
