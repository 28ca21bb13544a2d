"""The pages that are only read: keys, conditions, run history, notices, source."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.check.types import SourceExcerpt
from tui_debugger.model import CATEGORY_WORDS, Frame, GraphRun
from tui_debugger.text.clean import clean
from tui_debugger.text.old_words import OLD, OLD_WORDS
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import Action
from tui_debugger.tui.dialogs.modal import LIST_KEYS, InputLine, ListDialog, PlainLine, Run, plain_lines
from tui_debugger.tui.dialogs.prompts import ChoiceScreen
from tui_debugger.tui.theme import DIM, DOUBT, GREY, STRONG
from tui_debugger.tui.widgets.text import Cell, shorten
from tui_debugger.tui.widgets.virtual_table import LazyRows, ListRows, TableColumn, VirtualTable
from tui_debugger.watch.condition_table import CONDITIONS, Condition, ParamSpec
from tui_debugger.watch.text import format_value


class Entry(NamedTuple):
    """A line of the help: ``action`` is what Enter does there."""

    heading: str
    term: str
    text: str
    action: Action | None = None

    def has(self, needle: Iterable[str]) -> bool:
        more = self.action.words if self.action is not None else ""
        text = f"{self.heading} {self.term} {self.text} {more}".lower()
        return all(word in text for word in needle)


KEY_WIDTH = 14
EXAMPLES: tuple[tuple[str, str], ...] = (
    ("TO", "NaN or Inf anywhere"),
    ("WCL abs_mean_update_ratio_gt=1", "weights that changed by more than their own size"),
    ("TL max_gt=100 @ type=MatMul", "large values, only in outputs of MatMul"),
    ("TZ @ scope=Default/network, -re=bias$", "all zeros in one scope, without names that end in bias"),
    ("GV abs_mean_lt=1e-9 @ category=gradient", "vanishing gradients"),
)


def key_entries(actions: Iterable[Action]) -> list[Entry]:
    """Returns an entry for each action, by group, in the order of the groups' first actions."""
    found: dict[str, list[Entry]] = {}
    for action in actions:
        entry = Entry(action.group, action.label or ":", f"{action.title}: {action.help}", action)
        found.setdefault(action.group, []).append(entry)
    return [entry for entries in found.values() for entry in entries]


def old_entries(actions: Iterable[Action]) -> list[Entry]:
    """Returns the words of MindInsight that no action has, with the feature that replaces them."""
    there = {action.id for action in actions}
    return [Entry(f"{word.old} ({OLD})", "", word.plain) for word in OLD_WORDS if there.isdisjoint(word.actions)]


def mark_entries() -> list[Entry]:
    """Returns the meanings of the marks at nodes, tensors and hits."""
    nodes, shown, elsewhere = "Before nodes, tensors and hits", "at the step that is shown", "at another step"
    return [
        Entry(nodes, theme.HIT_GLYPH, f"a finding, {shown}; before a scope: somewhere in it"),
        Entry(nodes, theme.ORIGIN_GLYPH, f"an origin, {shown}: everything that the node was made from is clean"),
        Entry(nodes, theme.HIT_ELSEWHERE_GLYPH, f"a finding {elsewhere}"),
        Entry(nodes, theme.ORIGIN_ELSEWHERE_GLYPH, f"an origin {elsewhere}"),
        Entry(nodes, theme.OVERFLOW_GLYPH, f"the device recorded that the operator overflowed, {shown} (Ascend dumps)"),
        Entry(nodes, theme.WATCH_GLYPHS[2], "the selected watchpoint covers it"),
        Entry(nodes, theme.WATCH_GLYPHS[1], "the selected watchpoint covers a part of it"),
        Entry("After nodes", theme.UNCERTAIN_GLYPH, "its files may belong to another node"),
        Entry("After nodes", theme.FILE_GLYPH, "known from the names of files only"),
    ]


def condition_entries() -> list[Entry]:
    """Returns all conditions with their parameters, and the text form of a watchpoint."""
    entries: list[Entry] = []
    for condition in CONDITIONS.values():
        heading = _condition_heading(condition)
        entries += [Entry(heading, spec.name, _param_text(spec)) for spec in condition.params]
        if not condition.params:
            entries.append(Entry(heading, "", ""))
    heading = "As text: --watch 'CONDITION [parameter=value ...] [@ nodes]'"
    rows = (
        *(("", f"{text}: {meaning}") for text, meaning in EXAMPLES),
        ("nodes", "clauses between commas: a regular expression, or one of the following"),
        ("category=", ", ".join(CATEGORY_WORDS)),
        ("type= node=", "operator type, exact node name"),
        ("scope= re=", "scope with everything in it, regular expression"),
        ("-…", "a minus before a clause leaves its nodes out"),
    )
    return [*entries, *(Entry(heading, term, text) for term, text in rows)]


def _condition_heading(condition: Condition) -> str:
    return f"{condition.abbr}  {condition.id}: {condition.summary} For each {condition.target}."


def _param_text(spec: ParamSpec) -> str:
    parts = [spec.help, f"Allowed: {spec.range_text}."]
    if spec.default is not None:
        parts.append(f"Default {format_value(spec.default)}.")
    if not spec.visible:
        parts.append("Only as text, not in the form.")
    return " ".join(parts)


class HelpScreen(ListDialog[Action]):
    """Keys by group, conditions, and marks; typing filters, and Enter runs the action under the cursor."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [*LIST_KEYS, Binding("tab", "other_page", show=False, priority=True)]

    def __init__(self, actions: Sequence[Action], *, conditions: bool = True, heading: str = "Help: keys") -> None:
        """``conditions`` adds the pages of conditions and marks, which Tab shows."""
        super().__init__()
        self.heading = heading
        self._pages = [(heading, key_entries(actions), KEY_WIDTH)]
        self._old = old_entries(actions)
        if conditions:
            width = max(len(spec.name) for condition in CONDITIONS.values() for spec in condition.params)
            self._pages.append(("Help: conditions of watchpoints", condition_entries(), width))
            self._pages.append(("Help: marks", mark_entries(), 2))
        self._page = 0
        self._at: dict[int, Action] = {}
        self.hints = (
            ("Esc", "back"),
            ("Enter", "run"),
            ("type", "to find"),
            *((("Tab", "keys / conditions / marks"),) if conditions else ()),
            ("↑ ↓ PgUp PgDn", "move"),
        )

    def body(self) -> Iterable[Widget]:
        yield InputLine(placeholder="type to find an action by any of its words", id="filter")
        yield VirtualTable(header=False, empty="nothing matches", id="lines")

    def on_mount(self) -> None:
        self.table.can_focus = False
        self.field.focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        heading, entries, term_width = self._pages[self._page]
        table = self.table
        room = max(20, table.size.width - term_width - 6)
        needle = self.field.value.lower().split()
        rows: list[tuple[Cell, Cell]] = []
        self._at = {}
        last, said = "", set[tuple[str, str]]()
        for entry in [*entries, *(self._old if needle and not self._page else ())]:
            group, term, text, action = entry
            if not entry.has(needle) or (term, text) in said:
                continue
            said.add((term, text))
            if group != last:
                rows += _heading_rows(group, table.size.width - 4, blank=bool(rows))
                last = group
            for i, line in enumerate(textwrap.wrap(text, room) or ([""] if term else [])):
                term_cell = Text(f"{term if i == 0 else '':<{term_width}} ", STRONG)
                if action is not None:
                    self._at[len(rows)] = action
                rows.append(("", Text.assemble(term_cell, line)))
        table.set_columns((TableColumn("", 0), TableColumn("", 10, elastic=1)))
        table.set_rows(ListRows(rows), keep=False)
        if needle and self._at:
            asked = " ".join(needle)
            named = (row for row, action in self._at.items() if action.title.lower().startswith(asked))
            table.move_to(next(named, min(self._at)))
        self.set_heading(heading)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self._show()

    @on(Input.Submitted, "#filter")
    @on(VirtualTable.RowSelected)
    def _run(self, event: Input.Submitted | VirtualTable.RowSelected) -> None:
        event.stop()
        action = self._at.get(self.table.cursor_row)
        if action is not None:
            self.dismiss(action)

    def action_other_page(self) -> None:
        self._page = (self._page + 1) % len(self._pages)
        self.set_field("")
        self._show()


def _heading_rows(text: str, width: int, *, blank: bool) -> list[tuple[Cell, Cell]]:
    lines = textwrap.wrap(text, max(20, width))
    rows: list[tuple[Cell, Cell]] = [("", Text(line, STRONG if i == 0 else DIM)) for i, line in enumerate(lines)]
    return [("", ""), *rows] if blank else rows


class HistoryScreen(ListDialog[GraphRun]):
    """Lists runs; Enter goes to the step of a run that has data."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "data_only", show=False),
        Binding("f", "graph", show=False),
        Binding("backspace", "clear", show=False),
    ]
    heading = "Run history"
    hints = (
        ("Enter", "go to step"),
        ("d", "with data only"),
        ("f", "graph"),
        ("Backspace", "all"),
        ("Esc", "back"),
    )

    def __init__(
        self, runs: Sequence[GraphRun], current_step: int, closed: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        """Shows runs in the given order; ``closed``: (step, root graph) whose files cannot be listed."""
        super().__init__()
        self.runs = self._shown = runs
        self.closed = closed
        self.current_step = current_step
        self.unordered = any(later.step < earlier.step for earlier, later in pairwise(runs))
        self.data_only = False
        self.graph: str | None = None

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="shown")
        yield VirtualTable(
            (
                TableColumn("", 1),
                TableColumn("step", 10, right=True),
                TableColumn("data", 12),
                TableColumn("graph", 16, elastic=1),
            ),
            empty="no run matches",
            id="runs",
        )

    def on_mount(self) -> None:
        self._show()
        self.table.focus()
        if self.runs:
            at = min(range(len(self.runs)), key=lambda number: abs(self.runs[number].step - self.current_step))
            self.call_after_refresh(self.table.move_to, at)

    def _show(self) -> None:
        runs = self.runs
        if self.data_only or self.graph is not None:
            runs = [
                run
                for run in runs
                if (run.has_data or not self.data_only) and (self.graph is None or run.graph == self.graph)
            ]
        self._shown = runs
        rows = LazyRows(runs, self._cells, lambda run: (run.step, run.root_graph, run.round))
        self.table.set_rows(rows)
        parts = [f"{len(runs)} of {len(self.runs)} runs"]
        parts += ["in the order in which they ran"] if self.unordered else []
        parts += ["with data only"] if self.data_only else []
        parts += [f"graph {clean(self.graph)}"] if self.graph is not None else []
        self.show_line("shown", ", ".join(parts))
        self.say("")

    def _cells(self, run: GraphRun) -> Sequence[Cell]:
        here = run.step == self.current_step
        style = STRONG if here else "" if run.has_data else DIM
        closed = (run.step, run.root_graph) in self.closed
        data = "? unreadable" if closed else "● dumped" if run.has_data else "○ no data"
        step = step_text(run.step, run.round)
        return Text("▶" if here else " ", STRONG), Text(step, style), Text(data, style), Text(run.graph, style)

    def action_data_only(self) -> None:
        self.data_only = not self.data_only
        self._show()

    def action_clear(self) -> None:
        self.data_only, self.graph = False, None
        self._show()

    def action_graph(self) -> None:
        graphs = sorted({run.graph for run in self.runs})
        current = graphs.index(self.graph) + 1 if self.graph in graphs else 0

        def chosen(index: int) -> None:
            self.graph = graphs[index - 1] if index else None
            self._show()

        ChoiceScreen("Runs of which graph?", ["all graphs", *graphs], current).ask(self.app, chosen)

    @on(VirtualTable.RowSelected)
    def _go(self, event: VirtualTable.RowSelected) -> None:
        run = self._shown[event.row]
        if run.has_data:
            self.dismiss(run)
        else:
            self.say(f"nothing was dumped of {run.graph} at step {run.step}")


class NoticesScreen(ListDialog[None]):
    """A scrollable list of sentences: notices, then what the header counts or names elsewhere."""

    FULL = True
    hints = (("Esc", "back"), ("↑ ↓", "scroll"))

    def __init__(self, notices: Sequence[str], others: Sequence[str] = ()) -> None:
        super().__init__()
        self.marked = [*(("!", notice) for notice in notices), *(("·", other) for other in others)]
        self.heading = f"Notices ({len(notices)})" if notices else "Notices"

    def body(self) -> Iterable[Widget]:
        yield VirtualTable(
            (TableColumn("", 1), TableColumn("", 10, elastic=1)),
            header=False,
            empty="nothing to report: everything that was looked for is there",
        )

    def on_mount(self) -> None:
        self.table.focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        table = self.table
        rows: list[tuple[Cell, Cell]] = []
        for mark, sentence in self.marked:
            lines = textwrap.wrap(clean(sentence), max(20, table.size.width - 6)) or [""]
            rows += [(Text(mark if i == 0 else " ", DOUBT), line) for i, line in enumerate(lines)]
        table.set_rows(ListRows(rows), keep=False)


NOT_HERE = (
    "This file is not on this machine (or shorter than the line number).\n"
    "Where the sources have moved: tdbg open … --source-map OLD=NEW"
)


class SourceScreen(ListDialog[None]):
    """Frames above, source lines of the frame under the cursor below."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "own(1)", show=False),
        Binding("N", "own(-1)", show=False),
    ]
    DEFAULT_CSS = """
    SourceScreen {
        #frames { height: auto; max-height: 50%; min-height: 2; }
        #where { color: $primary; text-style: bold; height: 1; margin-top: 1; }
        #lines { height: 1fr; }
    }
    """
    hints = (("↑ ↓", "frame"), ("n N", "next frame of your own code"), ("Esc", "back"))

    def __init__(
        self,
        title: str,
        frames: Sequence[Frame],
        excerpt: Callable[[Frame, int], SourceExcerpt | None],
        *,
        focus: int = 0,
        run: Run[object],
    ) -> None:
        """Shows a stack, innermost frame first.

        ``excerpt`` reads a number of lines around a frame (None: the file is not on this machine), by means of ``run``.
        ``focus``: index of the frame under the cursor at first.
        """
        super().__init__()
        self.heading = f"Source of {shorten(title, 60)}"
        self.frames = frames
        self._excerpt = excerpt
        self._first = focus
        self._run = run
        self._wanted: object = None

    def body(self) -> Iterable[Widget]:
        yield VirtualTable(
            (TableColumn("", 1), TableColumn("place", 26), TableColumn("code", 20, elastic=1)),
            ListRows([_frame_cells(frame) for frame in self.frames]),
            empty="this node has no source stack",
            id="frames",
        )
        yield from plain_lines("where", "lines")

    def on_mount(self) -> None:
        table = self.table
        table.styles.height = len(self.frames) + 1 if self.frames else 2
        table.focus()
        if 0 < self._first < len(self.frames):
            table.move_to(self._first)

    def action_own(self, direction: int) -> None:
        """Goes to the next frame that is neither a framework's nor only an enclosing function."""
        table = self.table
        count = len(self.frames)
        for step in range(1, count + 1):
            at = (table.cursor_row + direction * step) % count
            if not (self.frames[at].framework or self.frames[at].context):
                table.move_to(at)
                return
        self.say("no frame outside the framework", note=True)

    @on(VirtualTable.RowHighlighted)
    def _read(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        if event.row < len(self.frames):
            self._show(self.frames[event.row])

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_current)

    def _show_current(self) -> None:
        row = self.table.cursor_row
        if row < len(self.frames):
            self._show(self.frames[row])

    def _show(self, frame: Frame) -> None:
        self._wanted = wanted = object()
        lines = self.text_line("lines")
        context = max(2, (lines.size.height - 1) // 2) if lines.size.height else 4

        def done(found: object) -> None:
            if self._wanted is wanted and self.is_open:
                self._show_excerpt(frame, found if isinstance(found, SourceExcerpt) else None)

        self._run(lambda: self._excerpt(frame, context), done, lambda _: done(None))

    def _show_excerpt(self, frame: Frame, found: SourceExcerpt | None) -> None:
        where, lines = self.text_line("where"), self.text_line("lines")
        if found is None:
            where.show(f"{shorten(frame.path, 60)}:{frame.line}")
            lines.show(Content.assemble(f"{clean(frame.code.strip())}\n\n", (NOT_HERE, GREY)))
            return
        where.show(f"{shorten(found.path, 60)}:{frame.line}")
        parts: list[str | tuple[str, str]] = []
        digits = len(str(found.first + len(found.lines)))
        last = max(frame.line, frame.end_line)
        for number, line in enumerate(found.lines, found.first):
            hot = frame.line <= number <= last if frame.context is False else number == frame.line
            parts.append((f"{'▶' if hot else ' '} {number:>{digits}} ", "bold" if hot else GREY))
            parts.append((f"{clean(line)}\n", "bold") if hot else f"{clean(line)}\n")
        lines.show(Content.assemble(*parts))


def _frame_cells(frame: Frame) -> tuple[Cell, Cell, Cell]:
    """Returns a row. Marks: ◀ forward node's frame, ⋯ enclosing function, └ nested below the frame above."""
    style = DIM if frame.framework or frame.context else ""
    mark = "◀" if frame.forward else "⋯" if frame.context else "·" if frame.framework else "●"
    place = f"{shorten(PurePath(frame.path).name, 20)}:{frame.line}"
    nested = "└ " * min(frame.depth, 3)
    code = Text(nested, DIM)
    if frame.forward:
        code.append("forward: ", DIM)
    if frame.context:
        code.append("in: ", DIM)
    code.append(clean(frame.code.strip()), style)
    return Text(mark, STRONG if not style else DIM), Text(place, style), code
