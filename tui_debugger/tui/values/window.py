"""What the keys do in every view that shows a window of a tensor: moving, slicing, digits, table or heat map."""

from __future__ import annotations

from tui_debugger.tui.values.plane import Plane
from tui_debugger.tui.values.slice_bar import SliceBar
from tui_debugger.tui.views.view import ValuesView


class WindowView(ValuesView):
    """A view with a slice of a tensor that its keys move through; see ``keys.moves`` and what follows there."""

    @property
    def plane(self) -> Plane:
        """The elements."""
        return self.query_one(Plane)

    @property
    def bar(self) -> SliceBar:
        """Which part of the tensor shows."""
        return self.query_one(SliceBar)

    @property
    def bar_shows(self) -> bool:
        """Whether the slice is in sight."""
        return True

    # -- what is said ------------------------------------------------------------------------------

    def say(self, text: str, *, note: bool = False) -> None:
        """Notes go beside the slice: a line that comes and goes would redraw every number."""
        beside = note and self.bar_shows and not self.bar.editing
        super().say("" if beside else text, note=note)
        self.bar.note(text if beside else "")

    def forget_note(self) -> None:
        """Takes back what was noted, unless it says what is under way."""
        if not self.working:
            self.bar.note("")

    def action_cancel(self) -> None:
        """Esc: ends editing, else what is under way, else the screen."""
        if self.bar.editing:
            self.bar.end_editing()
        else:
            super().action_cancel()

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, rows: int, columns: int) -> None:
        """Arrow keys."""
        self.forget_note()
        self.plane.front.move_by(rows, columns)

    def action_page(self, rows: int, columns: int) -> None:
        """A page of rows or columns."""
        self.forget_note()
        self.plane.front.page(rows, columns)

    def action_to_end(self, axis: int, last: bool) -> None:
        """To the first or last row or column."""
        self.forget_note()
        self.plane.front.to_end(axis, last)

    def action_finer(self, by: int) -> None:
        """More or fewer digits; in the heat map zoom."""
        said = self.plane.finer(by)
        if said:
            self.say(said, note=True)
        else:
            self.forget_note()

    def action_scientific(self) -> None:
        """Scientific notation on and off."""
        self.plane.grid.set_format(self.plane.grid.form.toggled())

    def action_fine(self) -> None:
        """The smallest cells there are, or those that cost little."""
        if self.plane.mapped:
            self.plane.heat.toggle_fine()
        else:
            self.say("d is for the heat map: t", note=True)

    def action_choose(self, by: int) -> None:
        """Another fixed dimension for ``[`` and ``]``."""
        self.bar.choose(by)

    def action_fixed(self, by: int) -> None:
        """Along the chosen fixed dimension."""
        self.bar.step(by)

    def action_slice(self) -> None:
        """Edits the slice text."""
        if self.bar.view is not None:
            self.bar.edit()
            self.say("Enter shows it, Esc keeps the old one", note=True)

    def action_heat(self) -> None:
        """Table or heat map; the cursor stays on its element."""
        wrong = self.plane.switch()
        if wrong:
            self.say(wrong, note=True)
