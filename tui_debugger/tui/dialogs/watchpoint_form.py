"""The form for a watchpoint, made from the condition table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.errors import BadWatchpointError, TdbgError
from tui_debugger.model import NodeSelection, ParamValue, Watchpoint
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.numbers import plural
from tui_debugger.tui.dialogs.modal import InputLine, ListDialog, PlainLine
from tui_debugger.tui.theme import DIM, GREY, STRONG
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable
from tui_debugger.watch.condition_table import CONDITIONS, Condition, ParamSpec, validate
from tui_debugger.watch.text import (
    format_selection,
    format_value,
    format_watch,
    parse_selection,
    parse_watch,
    target_selection,
)


def visible_params(condition: Condition) -> tuple[ParamSpec, ...]:
    return tuple(spec for spec in condition.params if spec.visible)


def default_text(spec: ParamSpec) -> str:
    """Returns the text that a field starts with: the default, or nothing (the parameter is off)."""
    return "" if spec.default is None else format_value(spec.default)


def make_draft(
    condition: Condition, fields: Mapping[str, str], nodes: str, name: str, hidden: Mapping[str, ParamValue]
) -> Watchpoint:
    """Reads a form; returns a watchpoint with the id 0.

    ``fields``: text by parameter name; an empty text switches the parameter off. ``nodes``: as for ``--watch``.
    ``hidden``: parameters of the edited watchpoint that the form does not show.

    Raises:
        BadWatchpointError: the first broken rule, in the words of the command line.
    """
    given: dict[str, ParamValue] = {
        key: value for key, value in hidden.items() if any(spec.name == key for spec in condition.params)
    }
    for spec in visible_params(condition):
        text = fields.get(spec.name, "").strip()
        if text:
            given[spec.name] = spec.parse(text)
    return Watchpoint(0, condition.id, validate(condition.id, given), parse_selection(nodes), name=name.strip())


def option_of(watchpoint: Watchpoint) -> str:
    """Returns the option of the command line for a watchpoint."""
    return f"--watch {shlex.quote(format_watch(watchpoint))}"


def hidden_params(watchpoint: Watchpoint | None) -> dict[str, ParamValue]:
    if watchpoint is None or watchpoint.condition not in CONDITIONS:
        return {}
    shown = {spec.name for spec in visible_params(CONDITIONS[watchpoint.condition])}
    return {name: value for name, value in watchpoint.params if name not in shown}


_OFFERED = tuple(dict.fromkeys(condition.target for condition in CONDITIONS.values()))
"""The categories of nodes that F2 offers."""
MAX_PARAMS = max(len(visible_params(condition)) for condition in CONDITIONS.values())
COUNT_AFTER = 0.15
"""Seconds without typing before nodes are counted: a regular expression over 100,000 names takes time."""


class WatchpointForm(ListDialog[Watchpoint]):
    """Condition, parameters, nodes, name; mistakes are shown while they are made.

    The form always shows the command-line option for the same watchpoint, so that users learn it.
    """

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "up", show=False),
        Binding("down", "down", show=False),
        Binding("pageup", "list('page_up')", show=False),
        Binding("pagedown", "list('page_down')", show=False),
        Binding("f2", "suggest", show=False),
    ]
    DEFAULT_CSS = """
    WatchpointForm {
        .row { height: 1; }
        .label { width: 19; }
        .row:focus-within .label { text-style: bold; color: $primary; }
        .row InputLine { width: 14; background: $panel; }
        .row .hint { margin-left: 2; color: $text-muted; width: 1fr; height: 1; }
        .row .hint, #summary { text-wrap: nowrap; text-overflow: ellipsis; }
        #condition-row InputLine, #nodes-row InputLine, #name-row InputLine { width: 1fr; }
        .-long InputLine { width: 1fr; }
        .-long .hint { display: none; }
        #conditions { height: 1fr; min-height: 3; max-height: 17; }
        #summary { text-style: bold; height: 1; }
        #count { padding-left: 16; height: 1; color: $text-muted; }
        #count.-none { color: $warning; text-style: bold; }
        #option { color: $text-muted; max-height: 3; }
    }
    """
    hints = (
        ("Enter", "save"),
        ("Tab ↑ ↓", "move"),
        ("F2", "other nodes"),
        ("Esc", "back"),
    )

    def __init__(
        self,
        initial: Watchpoint | None,
        suggestion: NodeSelection | None,
        count_nodes: Callable[[NodeSelection], int],
    ) -> None:
        """Edits ``initial``, or with None makes a new watchpoint.

        ``suggestion``: the nodes under the cursor, which F2 offers in place of the condition's own category.
        ``count_nodes`` returns how many nodes a selection covers; it may raise TdbgError (bad regular expression).
        """
        super().__init__()
        self.initial = initial
        self.suggestion = suggestion
        self.heading = f"Watchpoint {initial.id}" if initial is not None else "New watchpoint"
        self._count_nodes = count_nodes
        first = initial.condition if initial is not None and initial.condition in CONDITIONS else "tensor_overflow"
        self.condition: Condition = CONDITIONS[first]
        self._hidden = hidden_params(initial)
        self._own_nodes = initial is None  # nodes follow the condition until the user edits them
        self._asked = False  # no mistake is shown before a value was typed, or Enter pressed
        self._timer: Timer | None = None

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="condition-row", classes="row"):
            yield PlainLine("condition", classes="label")
            yield InputLine(placeholder="type a name or max > 100, ↑ ↓ to choose", id="filter")
        yield VirtualTable(
            (TableColumn("", 4, frozen=True), TableColumn("", 24), TableColumn("", 20, elastic=1)),
            header=False,
            empty="no condition matches",
            id="conditions",
        )
        yield PlainLine(id="summary")
        with Vertical(id="params", classes="params"):
            for number in range(MAX_PARAMS):
                with Horizontal(classes="row param-row", id=f"param-row-{number}"):
                    yield PlainLine(classes="label")
                    yield InputLine(placeholder="off", id=f"param-{number}")
                    yield PlainLine(classes="hint")
        with Horizontal(id="nodes-row", classes="row"):
            yield PlainLine("nodes", classes="label")
            yield InputLine(
                placeholder="category=weight, type=ReLU, scope=…, a regular expression, -… leaves out", id="nodes"
            )
        yield PlainLine(id="count")
        with Horizontal(id="name-row", classes="row"):
            yield PlainLine("name", classes="label")
            yield InputLine(self.initial.name if self.initial else "", placeholder="optional", id="name")
        yield PlainLine(id="option")

    def on_mount(self) -> None:
        self.query_one("#params").styles.height = "auto"
        table = self.table
        table.can_focus = False
        self._list("")
        nodes = self.initial.selection if self.initial else target_selection(self.condition)
        with self.prevent(Input.Changed):
            self._input("nodes").value = format_selection(nodes)
        self._show_params(dict(self.initial.params) if self.initial else None)
        self._recount()
        fields = self._param_fields()
        (fields[0] if self.initial and fields else self._input("nodes" if self.initial else "filter")).focus()

    def _input(self, name: str) -> InputLine:
        return self.query_one(f"#{name}", InputLine)

    # -- condition ---------------------------------------------------------------------------------

    def _list(self, needle: str) -> None:
        words = needle.lower().split()
        rows: list[tuple[Cell, ...]] = []
        keys: list[str] = []
        for condition in CONDITIONS.values():
            text = f"{condition.abbr} {condition.id} {condition.title} {condition.target} {condition.summary}".lower()
            if all(word in text for word in words):
                rows.append((Text(condition.abbr, STRONG), condition.title, Text(condition.summary, DIM)))
                keys.append(condition.id)
        # An exact abbreviation comes first: "to" finds TO before names with "to" in them.
        exact = next((i for i, key in enumerate(keys) if CONDITIONS[key].abbr.lower() == needle.strip().lower()), 0)
        if exact:
            rows.insert(0, rows.pop(exact))
            keys.insert(0, keys.pop(exact))
        table = self.table
        table.set_rows(ListRows(rows, keys))
        if needle and keys:
            table.move_to(0)
        else:
            table.move_to_key(self.condition.id)

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        try:
            condition, params, selection = parse_watch(event.value)
        except BadWatchpointError:
            self._list(event.value)
            self._choose()
            return
        self._list(CONDITIONS[condition].abbr)
        self._choose()
        if "@" in event.value:
            self._set_nodes(format_selection(selection))
        if params:
            self._show_params(dict(params))

    def _set_nodes(self, text: str) -> None:
        """Fills the line of the nodes; they follow the condition as long as they are those that it looks for."""
        field = self._input("nodes")
        self._own_nodes = text == format_selection(target_selection(self.condition))
        with self.prevent(Input.Changed):
            field.value = text
        field.action_end()
        self._check()
        self._recount()

    def action_list(self, action: str) -> None:
        if self.focused is self._input("filter"):
            super().action_list(action)
            self._choose()

    def action_up(self) -> None:
        if self.focused is self._input("filter"):
            self.action_list("cursor_up")
        else:
            self.focus_previous(InputLine)

    def action_down(self) -> None:
        if self.focused is self._input("filter"):
            self.action_list("cursor_down")
        elif self.focused is not self._input("name"):
            self.focus_next(InputLine)

    @on(VirtualTable.RowSelected)
    def _clicked(self) -> None:
        self._choose()

    def _choose(self) -> None:
        key = self.table.cursor_key
        if not isinstance(key, str) or key == self.condition.id:
            return
        self.condition = CONDITIONS[key]
        if self._own_nodes:
            self._set_nodes(format_selection(target_selection(self.condition)))
        initial = self.initial
        self._asked = False
        self._show_params(dict(initial.params) if initial and initial.condition == key else None)

    # -- parameters --------------------------------------------------------------------------------

    def _param_fields(self) -> list[InputLine]:
        return [self._input(f"param-{i}") for i in range(len(visible_params(self.condition)))]

    def _show_params(self, values: Mapping[str, ParamValue] | None) -> None:
        """Fills the rows with the condition's parameters; ``values`` None: the defaults."""
        specs = visible_params(self.condition)
        for number in range(MAX_PARAMS):
            row = self.query_one(f"#param-row-{number}")
            row.display = number < len(specs)
            if number < len(specs):
                spec = specs[number]
                row.set_class(spec.kind == "expression", "-long")
                text = default_text(spec)
                if values is not None:
                    text = format_value(values[spec.name]) if spec.name in values else ""
                row.query_one(".label", PlainLine).show(spec.label)
                with self.prevent(Input.Changed):
                    self._input(f"param-{number}").value = text
                row.query_one(".hint", PlainLine).show(f"{spec.range_text}. {spec.help}")
        self._summarise()
        self._check()

    @on(DescendantFocus)
    def _summarise(self) -> None:
        """Explains the focused parameter, else the condition."""
        fields = self._param_fields()
        if isinstance(self.focused, InputLine) and self.focused in fields:
            spec = visible_params(self.condition)[fields.index(self.focused)]
            default = f"default {default_text(spec)}" if spec.default is not None else "empty: off"
            self.show_line("summary", f"{self.condition.abbr}  {spec.name} ({default}): {spec.help}")
        elif self.focused is self._input("nodes"):
            self.show_line("summary", f"F2: the nodes under the cursor, then category={'  '.join(_OFFERED)}")
        else:
            none = "" if fields else "  It has no parameters."
            self.show_line("summary", f"{self.condition.abbr}  {self.condition.title}: {self.condition.summary}{none}")

    # -- nodes -------------------------------------------------------------------------------------

    def action_suggest(self) -> None:
        """F2: the next of the nodes of the condition, the suggested nodes, and every category."""
        listed = [format_selection(target_selection(self.condition))]
        listed += [] if self.suggestion is None else [format_selection(self.suggestion)]
        offered = list(dict.fromkeys((*listed, *(f"category={word}" for word in _OFFERED))))
        now = self._input("nodes").value
        self._set_nodes(offered[(offered.index(now) + 1) % len(offered) if now in offered else 0])

    @on(Input.Changed, "#nodes")
    def _nodes_typed(self) -> None:
        self._own_nodes, self._asked = False, True
        self._check()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(COUNT_AFTER, self._recount)

    def _recount(self) -> None:
        line = self.text_line("count")
        draft = self._draft_or_error()
        if not isinstance(draft, Watchpoint):
            line.show("")
            return
        try:
            count = self._count_nodes(draft.selection)
        except TdbgError as error:
            line.show("")
            self.say(error.what)
            return
        line.set_class(count == 0, "-none")
        line.show(plural(count, "node") if count else "! no node is covered")

    # -- checking ----------------------------------------------------------------------------------

    @on(Input.Changed, ".param-row InputLine")
    @on(Input.Changed, "#name")
    def _typed(self) -> None:
        self._asked = True
        self._check()

    def _draft_or_error(self) -> Watchpoint | TdbgError:
        specs = visible_params(self.condition)
        fields = {spec.name: field.value for spec, field in zip(specs, self._param_fields(), strict=True)}
        try:
            return make_draft(
                self.condition, fields, self._input("nodes").value, self._input("name").value, self._hidden
            )
        except TdbgError as error:
            return error

    def _check(self, *, refuse: bool = False) -> None:
        """Shows what is wrong (as an error after Enter, else as a note), or the text form."""
        draft = self._draft_or_error()
        if isinstance(draft, Watchpoint):
            self.say("")
            self.show_line("option", Content.assemble(("as text  ", GREY), clean(option_of(draft))))
        else:
            hint = f" ({draft.hint})" if draft.hint else ""
            if "\n" in draft.hint:  # a hint with lines marks the place of a mistake
                hint = f"\n{draft.hint}"
            self.say(f"{draft.what}{hint}" if self._asked else "", note=not refuse)
            self.show_line("option", "")

    @on(Input.Submitted)
    def _accept(self, event: Input.Submitted) -> None:
        if event.input.id == "filter" and self.table.row_count == 0:
            return
        draft = self._draft_or_error()
        if isinstance(draft, Watchpoint):
            try:
                self._count_nodes(draft.selection)
            except TdbgError as error:
                self.say(clean_lines(str(error)))
                self._input("nodes").focus()
            else:
                self.dismiss(draft)
        elif event.input.id == "filter":
            # The condition has parameters without defaults: go to its fields.
            self._asked = True
            self._check()
            (self._param_fields() or [self._input("nodes")])[0].focus()
        else:
            self._check(refuse=True)
