"""The values of one tensor: a scrollable window of at most two of its dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.analysis.slicing import Slice, default_slice, parse_slice
from tui_debugger.errors import BadSliceError
from tui_debugger.session.types import TensorRow
from tui_debugger.tui.screens.help import HelpScreen
from tui_debugger.tui.screens.modal import Field, Line, Modal, Run, clean_lines, run_here
from tui_debugger.tui.theme import GREY, ORANGE
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.keys import HINTS, VALUE_ACTIONS
from tui_debugger.tui.values.search import Found, Wanted, can_be_bad, find_bad, find_extreme
from tui_debugger.tui.values.sheet import Array, Index
from tui_debugger.tui.values.stats import stats_text
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.words.clean import clean
from tui_debugger.words.steps import step_text
from tui_debugger.words.values import exact_text

QUICK = 1 << 22
"""Up to this many elements a search is done at once (some 10 ms); above, in the background."""


class ValuesScreen(Modal[None]):
    """Shows an N-D tensor. The array is usually a memory map: a tensor of any size opens at once."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), action.id, action.title, show=False) for action in VALUE_ACTIONS
    ]
    DEFAULT_CSS = """
    ValuesScreen {
        #facts { color: $text-muted; height: 1; }
        #slice-line { height: 1; }
        #slice-edit { display: none; height: 1; }
        &.-editing #slice-line { display: none; }
        &.-editing #slice-edit { display: block; }
        #cell { height: 1; text-style: bold; }
    }
    """
    hints = HINTS

    def __init__(
        self,
        row: TensorRow,
        load: Callable[[], Array],
        *,
        previous: Callable[[], Array] | None = None,
        run: Run[object] = run_here,
    ) -> None:
        """Nothing is read before the screen shows.

        Args:
            row: the tensor, with its statistics when they are known.
            load: returns the whole tensor, usually memory-mapped; may raise UnreadableTensorError.
            previous: the same for the previous step; None when there is none.
            run: how ``load`` and long searches get done beside the event loop.
        """
        super().__init__()
        self.row = row
        self._load = load
        self._load_previous = previous
        self._run = run
        self._job: object = None
        self._array: Array | None = None
        self._arrays: dict[bool, Array] = {}
        self._showing_previous = False
        self._view: Slice | None = None
        self._dimension = 0
        self._note = ""
        self.heading = f"{row.role}:{row.slot}  {shorten(row.key.node, 60)}"

    def body(self) -> Iterable[Widget]:
        """Facts, statistics, slice, numbers, the cursor's value."""
        yield Line(id="facts")
        yield Line(id="stats")
        yield Line(id="slice-line")
        yield Field(id="slice-edit")
        yield ValueGrid(id="grid")
        yield Line(id="cell")

    def on_mount(self) -> None:
        """Starts reading."""
        self.grid.focus()
        self._show_facts()
        self._start("reading", lambda _: self._load(), lambda array: self._show_array(array, previous=False))

    def on_resize(self) -> None:
        """The node's name takes the room there is."""
        self.set_heading(
            f"{self.row.role}:{self.row.slot}  {shorten(self.row.key.node, max(20, self.size.width - 16))}"
        )

    @property
    def grid(self) -> ValueGrid:
        """The window of numbers."""
        return self.query_one(ValueGrid)

    def _line(self, name: str) -> Line:
        return self.query_one(f"#{name}", Line)

    def say(self, text: str, *, note: bool = False) -> None:
        """Notes go beside the slice: a line that comes and goes would redraw every number."""
        beside = note and not self.has_class("-editing")
        super().say("" if beside else text, note=note)
        self._note = text if beside else ""
        self._show_slice()

    def _forget_note(self) -> None:
        if self._note and self._job is None:
            self.say("")

    # -- work beside the event loop ----------------------------------------------------------------

    def _start(self, what: str, work: Callable[[Wanted], object], done: Callable[[object], None]) -> None:
        """Runs ``work`` and hands its result to ``done``, unless something newer was started or Esc pressed.

        ``work`` gets a function that says whether anybody still waits for it.
        """
        job = object()
        self._job = job
        self.say(f"{what} …  Esc cancels", note=True)

        def finished(result: object) -> None:
            if self._job is job and self.is_attached:
                self._job = None
                self.say("")
                done(result)

        def failed(error: Exception) -> None:
            if self._job is job and self.is_attached:
                self._job = None
                self._show_failure(error)

        self._run(lambda: work(lambda: self._job is job), finished, failed)

    def _show_failure(self, error: Exception) -> None:
        self.say("")
        reason = clean_lines(str(error)) or type(error).__name__
        if self._array is None:
            self.grid.show_text(f"These values cannot be read:\n\n{reason}")
        else:
            self.say(str(error))

    def action_cancel(self) -> None:
        """Esc: ends editing, else a search, else the screen."""
        if self.has_class("-editing"):
            self._end_editing()
        elif self._job is not None and self._array is not None:
            self._job = None
            self.say("cancelled", note=True)
        else:
            self._job = None
            self.dismiss(None)

    # -- what is shown -----------------------------------------------------------------------------

    def _show_array(self, result: object, *, previous: bool) -> None:
        array = np.asanyarray(result)
        same_shape = self._array is not None and self._array.shape == array.shape
        self._arrays[previous] = array
        self._array = array
        self._showing_previous = previous
        if not same_shape or self._view is None:
            self._dimension = 0
            self._set_slice(default_slice(array.shape))
        else:
            self._set_view(self._view)
        self._show_facts()

    def _set_slice(self, text: str) -> bool:
        """Shows another slice; says why not when the text is wrong."""
        if self._array is None:
            return False
        try:
            view = parse_slice(text, self._array.shape)
        except BadSliceError as error:
            if not self._array.size and self._view is None:
                self.grid.show_text(f"This tensor has no elements: its shape is {self._array.shape}.")
            else:
                self.say(str(error))
            return False
        self._note = ""
        self._set_view(view)
        super().say("")
        return True

    def _set_view(self, view: Slice) -> None:
        if self._array is None:
            return
        self._view = view
        self._show_slice()
        self.grid.set_view(self._array, view)
        sheet = self.grid.sheet
        if sheet is not None and sheet.empty:
            self.grid.show_text(f"No elements in {view.text} of shape {self._array.shape}.")
            self._line("cell").show("")

    def _show_facts(self) -> None:
        key, array = self.row.key, self._array
        words = [f"{array.dtype.name} {array.shape}" if array is not None else "", f"step {step_text(key.step)}"]
        words += [f"rank {key.rank}", clean(key.graph)]
        step: list[str | tuple[str, str]] = []
        if self._showing_previous:
            step = [("  ◀ PREVIOUS STEP", f"bold reverse {ORANGE}")]
        self._line("facts").show(Content.assemble("  ".join(filter(None, words)), *step))
        if self._showing_previous:
            self._line("stats").show(Content.styled("statistics are those of the current step: p", GREY))
        else:
            self._line("stats").show(Content(stats_text(self.row)))

    def _words(self) -> list[str]:
        """The slice text, one word per dimension."""
        return self._view.text[1:-1].split(", ") if self._view and self._view.entries else []

    def _fixed(self) -> list[int]:
        """Dimensions with one index, which ``[`` and ``]`` move along."""
        return [i for i, entry in enumerate(self._view.entries) if isinstance(entry, int)] if self._view else []

    def _show_slice(self) -> None:
        fixed = self._fixed()
        chosen = fixed[self._dimension % len(fixed)] if fixed else -1
        parts: list[str | tuple[str, str]] = ["slice [" if self._view else ""]
        for i, word in enumerate(self._words()):
            parts += [", " if i else "", (word, "bold underline") if i == chosen else word]
        parts.append("]" if self._view else "")
        aside = self._note
        if not aside and chosen >= 0 and self._array is not None:
            aside = f"[ ] moves dimension {chosen} (0 to {self._array.shape[chosen] - 1})"
        parts.append((f"   {clean(aside)}", "bold" if self._note else GREY))
        self._line("slice-line").show(Content.assemble(*parts))

    @on(ValueGrid.CursorMoved)
    def _show_cell(self) -> None:
        grid = self.grid
        index, sheet = grid.cursor_index, grid.sheet
        if index is None or sheet is None:
            return
        value = exact_text(sheet.array[index])
        place = f"row {grid.row + 1}/{sheet.rows}  column {grid.column + 1}/{sheet.columns}"
        text = Content.assemble(f"[{', '.join(map(str, index))}] = ", value, (f"   {place}", f"not bold {GREY}"))
        self._line("cell").show(text)

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, rows: int, columns: int) -> None:
        """Arrow keys."""
        self._forget_note()
        self.grid.move_by(rows, columns)

    def action_page(self, rows: int, columns: int) -> None:
        """A page of rows or columns."""
        self._forget_note()
        grid = self.grid
        grid.move_to(grid.row + rows * grid.page_rows, grid.column + columns * grid.page_columns)

    def action_column_first(self) -> None:
        """To the first column."""
        self.grid.move_to(self.grid.row, 0)

    def action_column_last(self) -> None:
        """To the last column."""
        sheet = self.grid.sheet
        self.grid.move_to(self.grid.row, sheet.columns - 1 if sheet else 0)

    def action_row_first(self) -> None:
        """To the first row."""
        self.grid.move_to(0, self.grid.column)

    def action_row_last(self) -> None:
        """To the last row."""
        sheet = self.grid.sheet
        self.grid.move_to(sheet.rows - 1 if sheet else 0, self.grid.column)

    def action_precision(self, by: int) -> None:
        """More or fewer digits."""
        self.grid.set_format(self.grid.form.finer(by))
        self.say(f"{self.grid.form.precision} digits", note=True)

    def action_scientific(self) -> None:
        """Scientific notation on and off."""
        self.grid.set_format(self.grid.form.toggled())

    def action_choose(self, by: int) -> None:
        """Another fixed dimension for ``[`` and ``]``."""
        fixed = self._fixed()
        if fixed:
            self._dimension = (self._dimension + by) % len(fixed)
            self.say("")
        else:
            self.say("no dimension is fixed in this slice", note=True)

    def action_fixed(self, by: int) -> None:
        """Along the chosen fixed dimension."""
        fixed = self._fixed()
        if not fixed or self._view is None or self._array is None:
            self.say("no dimension is fixed in this slice", note=True)
            return
        dimension = fixed[self._dimension % len(fixed)]
        entry = self._view.entries[dimension]
        if isinstance(entry, int) and 0 <= entry + by < self._array.shape[dimension]:
            words = self._words()
            words[dimension] = str(entry + by)
            self._set_slice(f"[{', '.join(words)}]")
        else:
            self.say(f"this is the {'last' if by > 0 else 'first'} index of dimension {dimension}", note=True)

    def action_slice(self) -> None:
        """Edits the slice text."""
        if self._array is None:
            return
        edit = self.query_one("#slice-edit", Field)
        edit.value = self._view.text if self._view else default_slice(self._array.shape)
        self.add_class("-editing")
        edit.focus()
        edit.cursor_position = max(0, len(edit.value) - 1)
        self.say("Enter shows it, Esc keeps the old one", note=True)

    @on(Input.Submitted, "#slice-edit")
    def _slice_given(self, event: Input.Submitted) -> None:
        event.stop()
        if self._set_slice(event.value.strip() or "[...]"):
            self._end_editing()

    def _end_editing(self) -> None:
        self.remove_class("-editing")
        self.say("")
        self.grid.focus()

    def action_previous(self) -> None:
        """The previous step's values in the same place, and back."""
        wanted = not self._showing_previous
        if wanted and self._load_previous is None:
            self.say("this tensor has no previous step", note=True)
        elif wanted in self._arrays:
            self._show_array(self._arrays[wanted], previous=wanted)
        elif (load := self._load_previous) is not None:
            self._start("reading the previous step", lambda _: load(), lambda a: self._show_array(a, previous=True))

    def action_keys(self) -> None:
        """All keys of this screen."""
        self.app.push_screen(HelpScreen(VALUE_ACTIONS, conditions=False, heading="Keys of the values"))

    # -- jumps -------------------------------------------------------------------------------------

    def action_bad(self, direction: int) -> None:
        """To the next or previous NaN or Inf of the whole tensor, whatever slice shows it."""
        array = self._array
        if array is None or not array.size:
            return
        stats = None if self._showing_previous else self.row.stats
        if not can_be_bad(array) or (stats is not None and not stats.bad):
            self.say("no NaN or Inf in this tensor", note=True)
            return
        origin = self.grid.cursor_index or (0,) * array.ndim
        self._search(lambda wanted: find_bad(array, origin, direction, wanted), "no NaN or Inf in this tensor")

    def action_extreme(self, largest: bool) -> None:
        """To the largest or smallest finite value."""
        array = self._array
        if array is not None and array.size:
            self._search(lambda wanted: find_extreme(array, largest, wanted), "no finite value in this tensor")

    def _search(self, find: Callable[[Wanted], Found | None], nothing: str) -> None:
        def done(found: object) -> None:
            if isinstance(found, Found):
                self._go_to(found.index)
                if found.wrapped:
                    self.say("went on from the other end", note=True)
            else:
                self.say(nothing, note=True)

        if self._array is not None and self._array.size <= QUICK:
            done(find(lambda: True))
        else:
            self._start("searching", find, done)

    def _go_to(self, index: Index) -> None:
        """Shows an element: other fixed indices where needed, and wider ranges when a range leaves it out."""
        if not self.grid.go_to(index) and self._view is not None:
            words = self._words()
            for i, (entry, wanted) in enumerate(zip(self._view.entries, index, strict=True)):
                if isinstance(entry, int):
                    words[i] = str(wanted)
                elif wanted not in entry:
                    words[i] = ":"
            if self._set_slice(f"[{', '.join(words)}]"):
                self.grid.go_to(index)
