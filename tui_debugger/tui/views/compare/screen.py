"""The comparison: a tensor, another one, and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import events, on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget

from tui_debugger.analysis.difference.differences import Differences
from tui_debugger.analysis.difference.pairs import Fit
from tui_debugger.analysis.difference.tolerance import EXACT, Tolerance
from tui_debugger.errors import CancelledError
from tui_debugger.session.diagnosis.comparing import Comparer, Couple, DifferentShapesError, Side
from tui_debugger.tui.screens.modal import Line, clean_lines
from tui_debugger.tui.screens.prompts import TextPrompt
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.plane import Plane
from tui_debugger.tui.values.window import WindowView
from tui_debugger.tui.views.compare.choosing import Chooser, ask_shape
from tui_debugger.tui.views.compare.handing import extract_of
from tui_debugger.tui.views.compare.head import answer, sides
from tui_debugger.tui.views.compare.keys import COMPARE_ACTIONS, HINTS, MAP_HINTS
from tui_debugger.tui.views.compare.largest import LargestPane
from tui_debugger.tui.views.compare.sheets import Rule, Shown
from tui_debugger.tui.views.compare.table import CompareTable
from tui_debugger.tui.views.extract import stem_of
from tui_debugger.tui.views.focus import Focus
from tui_debugger.tui.views.keys import bindings
from tui_debugger.tui.views.values_view import Files, files_of
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import VirtualTable
from tui_debugger.words.tensors import slot_text
from tui_debugger.words.tolerance import format_tolerance, parse_tolerance

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.tui.actions import Action
    from tui_debugger.tui.views.extract import Extract
    from tui_debugger.tui.views.view import Host

WIDE: Final = 150
"""Columns from which table and list stand side by side."""
CHOOSE: Final = "w chooses another step, rank, tensor or file"
SLIDER: Final = (0.0, 1.0, 2.0, 5.0, *(10.0 * tenth for tenth in range(1, 11)))


class CompareView(WindowView):
    """See ``kinds.VIEWS``.

    Attributes:
        other: what the tensor is compared with; None before the first one was found.
        couple: both, once they are read.
        found: how they differ, once that is known.
    """

    OWN_ACTIONS: ClassVar[tuple[Action, ...]] = COMPARE_ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(COMPARE_ACTIONS))
    DEFAULT_CSS = """
    CompareView {
        #sides { height: 2; }
        #answer { height: auto; }
        #main { height: 1fr; }
        LargestPane { display: none; }
        &.-list LargestPane { display: block; }
        &.-list CompareTable { display: none; }
        &.-wide LargestPane { display: block; margin-left: 2; width: 2fr; }
        &.-wide CompareTable { display: block; width: 3fr; }
    }
    """
    hints = HINTS

    def __init__(self, host: Host, about: Focus) -> None:
        """Begins with the previous step."""
        super().__init__(host, about)
        self.comparer = Comparer(host.session)
        self.other: Side | None = None
        self.couple: Couple | None = None
        self.found: Differences | None = None
        self.hint = ""
        self.tolerance = EXACT
        self._unfinished: Callable[[], None] | None = None
        self.heading = f"Compare {slot_text(about.key)}  {shorten(about.key.node, 60)}"

    def body(self) -> Iterable[Widget]:
        """Which tensors, the answer, table and list."""
        yield Line(id="sides")
        yield Line(id="answer")
        with Horizontal(id="main"):
            yield CompareTable(self._work_of_heat)
            yield LargestPane()

    def on_mount(self) -> None:
        """Against the previous step."""
        self.table.front.focus()
        self.largest.show(None)
        self.work("looking", lambda _: self.comparer.previous(self.about.key), self._against)
        self._draw_head()

    def on_unmount(self) -> None:
        """Closes other runs."""
        self.comparer.close()

    def on_resize(self, event: events.Resize) -> None:
        """Side by side where there is room."""
        self.set_class(event.size.width >= WIDE, "-wide")
        key = self.about.key
        room = max(20, event.size.width - 24)
        self.set_heading(f"Compare {slot_text(key)}  {shorten(key.node, room)}")

    @property
    def table(self) -> CompareTable:
        """Numbers or colours."""
        return self.query_one(CompareTable)

    @property
    def bar_shows(self) -> bool:
        """Not beside the list alone."""
        return self.has_class("-wide") or not self.has_class("-list")

    @property
    def largest(self) -> LargestPane:
        """Statistics and list."""
        return self.query_one(LargestPane)

    @property
    def focus_here(self) -> Focus:
        """The tensor; the other one while its values are shown, when it is of this run."""
        other = self.other.key if self.other is not None and not self.other.path else None
        if other is None or self.table.shown is not Shown.THERE:
            return self.about
        row = self.host.session.nodes(other.rank).find(other.node, other.graph)
        return Focus(other, row) if row >= 0 else self.about

    # -- reading and comparing ---------------------------------------------------------------------

    def look_again(self) -> None:
        """Reads both anew and compares them; slice and cursor stay."""
        if self.other is None:
            self.on_mount()
        else:
            self._against(self.other, reshape=self.couple is not None and self.couple.fit is not Fit.SAME)

    def _against(self, side: Side, *, reshape: bool = False) -> None:
        """Another other side."""
        key, self.other, session = self.about.key, side, self.host.session
        keys = [key] if side.path or side.key is None else [key, side.key]
        self.couple = self.found = self._unfinished = None
        self.hint = ""
        self.largest.show(None)
        self._draw_head()

        def job(progress: ProgressFn) -> tuple[Couple, Files]:
            before = files_of(session, keys)
            return self.comparer.couple(key, side, progress, reshape=reshape), files_of(session, keys, before)

        self.work_anew("reading", job, self._read)

    def _read(self, found: tuple[Couple, Files]) -> None:
        """Both are there: the table first, the numbers of the whole tensor when they are known."""
        couple, self.files = found
        self.couple, self.other = couple, couple.there.side
        self.table.set_couple(couple, Rule(self.tolerance))
        self._draw_head()
        self._compare(couple)

    def _compare(self, couple: Couple) -> None:
        tolerance = self.tolerance

        def done(result: tuple[Differences, str]) -> None:
            self._unfinished = None
            self.found, self.hint = result
            self._show_found()

        self._unfinished = lambda: self._compare(couple)
        self.work("comparing", lambda progress: couple.compare(tolerance, progress=progress), done)

    def _show_found(self) -> None:
        found = self.found
        if found is not None:
            self.largest.show(found)
            self.table.set_rule(Rule(found.tolerance, found.boundary))
        self._draw_head()

    def _work_of_heat(self, what: str, job: Callable[[ProgressFn], Any], done: Callable[[Any], None]) -> None:
        """Work of the heat map comes first; the comparison that it takes the place of begins again."""

        def finished(result: Any) -> None:
            done(result)
            if self._unfinished is not None:
                self._unfinished()

        self.work(what, job, finished)

    def failed(self, error: Exception) -> None:
        """No tensor to compare with: says why, and what to press."""
        self._unfinished = None
        if isinstance(error, DifferentShapesError) and self.other is not None:
            self.say("")
            other = self.other
            self.table.show_text(f"The shapes differ: {error.where}\n\n{CHOOSE}")
            ask_shape(self, error, lambda: self._against(other, reshape=True))
        elif self.couple is None and not isinstance(error, CancelledError):
            self.say("")
            reason = clean_lines(str(error)) or type(error).__name__
            self.table.show_text(f"Nothing to compare with:\n\n{reason}\n\n{CHOOSE}")
        else:
            super().failed(error)
        self._draw_head()

    def action_cancel(self) -> None:
        """Esc: ends editing, else stops what is under way, else goes back."""
        stopped = self.working and not self.bar.editing
        super().action_cancel()
        if stopped:
            self._unfinished = None
            self._draw_head()

    # -- the head ----------------------------------------------------------------------------------

    def _draw_head(self) -> None:
        self.query_one("#sides", Line).show(sides(self.about.key, self.other, self.couple, working=self.working))
        line = self.query_one("#answer", Line)
        if self.found is not None:
            line.show(answer(self.found, self.hint, max(40, self.size.width - 4)))
        else:
            idle = self.couple is not None and self._unfinished is None
            line.show(Content.styled("the whole tensors are not compared yet: c compares them" if idle else "", GREY))

    # -- keys --------------------------------------------------------------------------------------

    def action_other(self) -> None:
        """Chooses the other side."""
        Chooser(self, self.comparer, self._against).ask(self.about.key, self.other)

    def action_again(self) -> None:
        """Compares the whole tensors, after that was stopped."""
        if self.couple is not None and self.found is None and not self.working:
            self._compare(self.couple)

    def action_other_step(self, by: int) -> None:
        """The other side at its next dumped step in a direction."""
        side = self.other or Side(self.about.key)
        if side.key is None:
            self.say("a file has no steps", note=True)
            return

        def found(beside: Side | None) -> None:
            if beside is None:
                self.say(f"no {'later' if by > 0 else 'earlier'} step has it", note=True)
            else:
                self._against(beside)

        self.work("looking", lambda _: self.comparer.beside(side, by), found)

    def action_other_rank(self, by: int) -> None:
        """The other side in the next rank."""
        side = self.other or Side(self.about.key)
        ranks = list(self.host.session.ranks()) if not side.path else []
        if side.key is None or side.key.rank not in ranks or len(ranks) < 2:
            self.say("there is no other rank", note=True)
            return
        rank = ranks[(ranks.index(side.key.rank) + by) % len(ranks)]
        self._against(replace(side, key=replace(side.key, rank=rank)))

    def action_show(self, name: str) -> None:
        """What the cells hold."""
        self.table.set_shown(Shown[name])
        self.say(self.table.shown.value, note=True)

    def action_heat(self) -> None:
        """Heat map on and off."""
        self._show_table()
        super().action_heat()

    @on(Plane.Switched)
    def _switched(self) -> None:
        self.set_hints(MAP_HINTS if self.table.mapped else HINTS)

    def action_tolerance(self) -> None:
        """Asks for a tolerance."""

        def given(text: str | None) -> None:
            tolerance = parse_tolerance(text) if text is not None else None
            if isinstance(tolerance, Tolerance):
                self._tolerate(tolerance)

        def check(text: str) -> str | None:
            parsed = parse_tolerance(text)
            return parsed if isinstance(parsed, str) else None

        note = "rtol=1e-5 atol=1e-8, or 5% of the greatest difference, or exact"
        self.app.push_screen(TextPrompt("Tolerance", format_tolerance(self.tolerance), check, note=note), given)

    def action_slide(self, by: int) -> None:
        """The slider one notch further."""
        now = self.tolerance.percent
        notches = [notch for notch in SLIDER if (notch - now) * by > 0]
        if notches:
            self._tolerate(replace(self.tolerance, percent=notches[0] if by > 0 else notches[-1]))

    def _tolerate(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        couple, found = self.couple, self.found
        if couple is None:
            return
        if found is None:
            self._compare(couple)
            return

        def done(result: Differences) -> None:
            self.found = result
            self._show_found()

        self.work("counting", lambda progress: couple.within(found, tolerance, progress), done)

    def action_measure(self) -> None:
        """Another order of the list."""
        self.largest.next_measure()

    def action_largest(self, by: int) -> None:
        """Along the list, in the table."""
        table = self.largest.table
        if not table.row_count:
            self.say("no element differs" if self.found is not None else "not compared yet", note=True)
            return
        if self.table.cursor_index == table.cursor_key:
            table.move_to((table.cursor_row + by) % table.row_count)
        self._go_to_listed()

    @on(VirtualTable.RowSelected)
    def _listed(self, event: VirtualTable.RowSelected) -> None:
        event.stop()
        self._go_to_listed()

    def _go_to_listed(self) -> None:
        index = self.largest.table.cursor_key
        if isinstance(index, tuple):
            self._show_table()
            self.table.go_to(index)
            self.table.front.focus()

    def _show_table(self) -> None:
        self.remove_class("-list")

    def action_switch(self) -> None:
        """Between table and list."""
        if self.has_class("-wide"):
            to_list = not self.largest.table.has_focus
        else:
            self.toggle_class("-list")
            to_list = self.has_class("-list")
        if to_list:
            self.largest.table.focus()
        else:
            self.table.front.focus()

    def action_values(self) -> None:
        """From a cell of the heat map to its element; from there to the values of the tensor that is shown."""
        if self.table.mapped:
            self.table.to_element()
        else:
            self.host.open("values", replace(self.focus_here, at=self.table.cursor_index))

    def action_slice(self) -> None:
        """Edits the slice."""
        self._show_table()
        super().action_slice()

    @on(CompareTable.Refused)
    def _refused(self, event: CompareTable.Refused) -> None:
        event.stop()
        self.say(event.text)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        """See ``View``."""
        if self.couple is None:
            return None
        entries = self.largest.measure.entries(self.found) if self.found is not None else ()
        one = self.table.cell_parts(exact=True)
        head = [str(self.query_one(name, Line).content) for name in ("#sides", "#answer")]
        stem = stem_of(self.about.key, "compare")
        return extract_of(stem, head, self.found, entries, one=one, window=self.table.window)
