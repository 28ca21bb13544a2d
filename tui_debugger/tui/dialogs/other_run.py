"""Asks for another run: a path, or one of the dumps that were opened before or lie beside this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import steps_text
from tui_debugger.tui import theme
from tui_debugger.tui.dialogs.modal import Field
from tui_debugger.tui.dialogs.prompts import LIST_KEYS, PathPrompt
from tui_debugger.tui.widgets.text import Cell, ScopedName
from tui_debugger.tui.widgets.virtual_table import Column, LazyRows, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session.dumps import KnownDump, Overview

NOTE: Final = "the list has dumps that were opened before, and those beside this one"


class RunPrompt(PathPrompt):
    """Typing completes a path and filters the list; the arrow keys pick from it."""

    BINDINGS: ClassVar[list[BindingType]] = LIST_KEYS
    DEFAULT_CSS = "RunPrompt VirtualTable { height: auto; max-height: 12; min-height: 3; }"
    hints = (("Tab Enter", "complete, accept"), ("↑ ↓", "pick"), ("Esc", "back"))

    def __init__(self, this: str) -> None:
        """``this`` is the path of the run that is open: it is not offered."""
        super().__init__("Compare with which run?", _problem, suffix="/", note=NOTE)
        self._this = os.path.realpath(this)
        self._dumps: tuple[KnownDump, ...] = ()
        self._shown: tuple[KnownDump, ...] = ()
        self._picked = False
        self._found: Overview | None = None
        self._laid_out = False

    def body(self) -> Iterable[Widget]:
        """Lays out the input line and the list."""
        yield from super().body()
        columns = (
            Column("dump", 24, elastic=3),
            Column("last verdict", 16, elastic=2),
            Column("steps", 10),
            Column("layout", 10),
        )
        yield VirtualTable(columns, empty="looking …", id="dumps")

    def on_mount(self) -> None:
        """The keys go into the input line."""
        super().on_mount()
        table = self.query_one(VirtualTable)
        table.can_focus = False
        table.styles.height = max(3, min(13, self.app.size.height - 8))
        self._laid_out = True
        if self._found is not None:
            self.show(self._found)

    def show(self, found: Overview) -> None:
        """Shows the dumps that were found until now, once there is a list to show them in."""
        self._found = found
        if not self._laid_out or not self.is_attached:
            return
        self._dumps = tuple(each for each in found.dumps if not each.gone and os.path.realpath(each.path) != self._this)
        self.query_one(VirtualTable).set_empty("no other dump is known: type its path" if found.ended else "looking …")
        self._filter(self.query_one(Field).value if not self._picked else "")

    def _filter(self, text: str) -> None:
        words = text.strip().lower()
        self._shown = tuple(each for each in self._dumps if words in each.path.lower()) if words else self._dumps
        self.query_one(VirtualTable).set_rows(LazyRows(self._shown, _cells, lambda each: each.path))

    @on(Input.Changed, "#text")
    def _typed_more(self, event: Input.Changed) -> None:
        self._picked = False
        self._filter(event.value)

    def action_list(self, action: str) -> None:
        """Arrow and page keys: what they reach is what Enter takes."""
        table = self.query_one(VirtualTable)
        if self._picked or action != "cursor_down" or table.cursor_row:
            getattr(table, f"action_{action}")()
        if self._shown:
            self._picked = True
            with self.prevent(Input.Changed):
                field = self.query_one(Field)
                field.value = self._shown[table.cursor_row].path
                field.action_end()
            self.say("")

    @on(Input.Submitted, "#text")
    def _accept(self, event: Input.Submitted) -> None:
        event.stop()
        event.prevent_default()  # of the prompt for any path
        text = event.value.strip()
        named = "/" in text or text.startswith((".", "~"))
        if not named and self._shown:  # a part of a path that the list has
            self.dismiss(self._shown[self.query_one(VirtualTable).cursor_row].path)
            return
        wrong = _problem(text)
        if wrong:
            self.say(wrong)
        else:
            self.dismiss(os.path.expanduser(text))  # noqa: PTH111 - ~ of nobody stays

    @on(VirtualTable.RowSelected)
    def _clicked(self, event: VirtualTable.RowSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.row].path)


def look_for_dumps(this: str, found: Callable[[Overview], None], progress: ProgressFn) -> Overview:
    """Returns the dumps that were opened before, and those beside a run; ``found`` gets what is known until then."""
    from tui_debugger.session.dumps import Overview, RecentDumps, overview

    known = Overview(os.path.dirname(this))  # noqa: PTH120 - text; a URL stays one
    for known in overview(Path(this).parent, RecentDumps(), progress):
        found(known)
    return known


def _cells(dump: KnownDump) -> Sequence[Cell]:
    facts, recent = dump.facts, dump.recent
    scope, _, name = dump.path.rpartition("/")
    path = ScopedName(Text(clean(name), no_wrap=True), scope, theme.DIM)
    verdict = recent.verdict.words if recent is not None and recent.verdict is not None else theme.NONE
    if facts is None:
        return [path, Text(clean(verdict), theme.DIM), "", ""]
    if facts.problem:
        return [path, Text(clean(facts.problem), theme.DOUBT)]
    return [path, Text(clean(verdict), theme.DIM), steps_text(facts.steps), clean(facts.layout)]


def _problem(text: str) -> str | None:
    if not text.strip():
        return "type a path, or pick a dump with ↑ and ↓"
    return "no path has a zero byte" if "\0" in text else None
