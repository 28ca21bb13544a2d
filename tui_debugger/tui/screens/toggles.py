"""A list of switches in sections, for filters: typing finds one, space turns it, Enter applies all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.tui.screens.modal import Field, Modal
from tui_debugger.tui.screens.prompts import LIST_KEYS
from tui_debugger.tui.theme import DIM, STRONG, WATCHED
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Switch:
    """One line.

    Attributes:
        section: heading it stands under.
        key: what it stands for.
        label: text beside it.
        single: turning it on turns the other switches of its section off.
    """

    section: str
    key: Hashable
    label: str
    single: bool = False


class FindField(Field):
    """A line in which one types everything but blanks: space turns a switch."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Leaves space to the screen."""
        return key != "space" and super().check_consume_key(key, character)


class TogglesScreen(Modal[ResultT]):
    """Base of the filter screens: subclasses make a result from the switches that are on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *LIST_KEYS,
        Binding("space", "turn", show=False, priority=True),
        Binding("backspace", "rub_out", show=False, priority=True),
    ]
    hints = (("Space", "turn"), ("Enter", "apply"), ("type", "to find"), ("Backspace", "all off"), ("Esc", "back"))

    def __init__(self, switches: Sequence[Switch], on_keys: Iterable[tuple[str, Hashable]]) -> None:
        """``on_keys`` are (section, key) of the switches that are on at first."""
        super().__init__()
        self.switches = switches
        self.turned: set[tuple[str, Hashable]] = set(on_keys)

    def result(self, chosen: Mapping[str, frozenset[Hashable]]) -> ResultT:
        """What the screen returns, from the keys that are on by section."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        """Find line and list."""
        yield FindField(placeholder="type to find", id="find")
        yield VirtualTable(
            (Column("", 1), Column("", 10, elastic=1)), header=False, empty="nothing matches", id="switches"
        )

    def on_mount(self) -> None:
        """As high as the list needs."""
        table = self.query_one(VirtualTable)
        table.can_focus = False
        self._show("")
        table.styles.height = max(1, min(table.row_count, self.app.size.height - 5))
        if table.row_count > 1:
            self.call_after_refresh(table.move_to, 1)
        self.query_one(Field).focus()

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
        self.query_one(VirtualTable).set_rows(ListRows(rows, keys))

    @on(Input.Changed, "#find")
    def _find(self, event: Input.Changed) -> None:
        self._show(event.value)
        table = self.query_one(VirtualTable)
        if event.value and isinstance(table.cursor_key, str):
            table.action_cursor_down()

    def action_list(self, action: str) -> None:
        """Arrow and page keys; headings are jumped over."""
        table = self.query_one(VirtualTable)
        getattr(table, f"action_{action}")()
        if isinstance(table.cursor_key, str):
            if table.cursor_row == 0 or "down" in action:
                table.action_cursor_down()
            else:
                table.action_cursor_up()

    def action_turn(self) -> None:
        """Space."""
        key = self.query_one(VirtualTable).cursor_key
        if not isinstance(key, int):
            return
        switch = self.switches[key]
        name = (switch.section, switch.key)
        turned = name in self.turned
        if switch.single:
            self.turned = {each for each in self.turned if each[0] != switch.section}
        self.turned.discard(name) if turned else self.turned.add(name)
        self._show(self.query_one(Field).value)

    def action_rub_out(self) -> None:
        """Backspace: in an empty find line it turns everything off."""
        field = self.query_one(Field)
        if field.value:
            field.action_delete_left()
        else:
            self.turned.clear()
            self._show("")

    @on(Input.Submitted, "#find")
    def _apply(self, event: Input.Submitted) -> None:
        event.stop()
        chosen: dict[str, frozenset[Hashable]] = {}
        for section, key in self.turned:
            chosen[section] = chosen.get(section, frozenset()) | {key}
        self.dismiss(self.result(chosen))
