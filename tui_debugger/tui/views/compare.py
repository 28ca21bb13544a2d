"""Compares a tensor with another tensor: which, where they differ, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from textual import events, on
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget

from tui_debugger.arrays import Array
from tui_debugger.diagnose.compare import ComparedTensor, Comparer, Couple, DifferentShapesError, is_file
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.graph.search import NodeQuery, match
from tui_debugger.model import TensorKey
from tui_debugger.session.naming import find_in, split_slot
from tui_debugger.stats.compare import Differences, DifferingElement
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Fit
from tui_debugger.stats.dtypes import DType
from tui_debugger.text import differences as words
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.differences import format_tolerance, parse_tolerance, stats_lines
from tui_debugger.text.distribution import packed
from tui_debugger.text.numbers import NONE
from tui_debugger.text.tensors import (
    BEFORE_FIRST,
    aligned,
    index_text,
    round_text,
    slot_text,
    step_text,
    type_text,
)
from tui_debugger.text.values import Index, exact_text
from tui_debugger.tui.actions import DIGITS, FINE, LOOK_AGAIN, MOVES, SEARCHING, SLICING, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.dialogs.prompts import ChoiceScreen, ConfirmScreen, PathPrompt, TextPrompt, path_check, typed_path
from tui_debugger.tui.export import Extract, file_stem
from tui_debugger.tui.theme import BLUE, GREY, HIT_GLYPH, ORANGE, UNCERTAIN_GLYPH
from tui_debugger.tui.values.search import DifferenceElements, ElementLine, elements_of
from tui_debugger.tui.values.window import TableOrMap, WindowView
from tui_debugger.tui.views.compare_panes import (
    TITLES,
    CellContent,
    CompareTable,
    ComparisonRule,
    LargestPane,
    entry_cells,
)
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import Files, files_of
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import TensorRow
    from tui_debugger.tui.views.view import View, ViewHost


GROUP = "Compare (C on a tensor)"


COMPARE_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
    *view_actions(
        GROUP,
        ("other", "w", "Other side", "Chooses the other side: a step, rank, tensor, .npy file or another run."),
        ("other_step(-1)", "(", "Other's step before", "The other side one dumped step earlier."),
        ("other_step(1)", ")", "Other's next step", "The other side one dumped step later."),
        ("other_rank(-1)", "", "Other's rank before", "The other side in the rank before."),
        ("other_rank(1)", "", "Other's next rank", "The other side in the next rank."),
        ("more", "m", "More", "The next form of the numbers: both and difference, difference, this, the other."),
        ("heat", "t", "Other form", "The difference as a heat map, and back to numbers."),
        ("tolerance", "T", "Boundary", "Relative and absolute tolerance, or percent of the greatest difference."),
        ("slide(1)", "a", "Allow more", "A higher percentage of the greatest difference counts as equal."),
        ("slide(-1)", "A", "Allow less", "A lower percentage of the greatest difference counts as equal."),
        ("measure", "comma", "Sort", "Lists the largest differences by absolute error, relative error, or ULP."),
        ("largest(1)", "n", "Next", "To the next one of the largest differences, in the table."),
        ("largest(-1)", "N", "Previous", "To the one before."),
        ("switch", "tab", "Next pane", "Between the table and the list of the largest differences."),
        *MOVES,
        *SLICING,
        *SEARCHING,
        *DIGITS,
        FINE,
        ("values", "enter", "Open", "From list or heat map to the element, from there to the values."),
    ),
)
MAP_HINTS: tuple[tuple[str, str], ...] = (
    ("w ( )", "with"),
    ("m", "show"),
    ("t", "table"),
    ("+ -", "zoom"),
    ("Enter", "element"),
    ("?", "keys"),
    ("Esc", "back"),
)
HINTS: tuple[tuple[str, str], ...] = (
    ("w ( )", "with"),
    ("m", "show"),
    ("t", "heat"),
    ("T", "allow"),
    ("n", "next"),
    ("Tab", "list"),
    ("?", "keys"),
    ("Esc", "back"),
)

EQUAL_GLYPH = "="
_GAP = "   "


def sides(key: TensorKey, other: ComparedTensor | None, couple: Couple | None, *, working: bool = False) -> Content:
    """Returns two lines: this tensor, and whatever distinguishes the other one; ``…`` while the other is looked for."""
    step = step_text(key.step)
    here = [step if step == BEFORE_FIRST else f"step {step}", f"rank {key.rank}", clean(key.graph)]
    there = [other.text(key) if other is not None else "…" if working else NONE]
    if couple is not None:
        here.append(type_text(couple.here.meta))
        there.append(type_text(couple.there.meta))
        if couple.fit is not Fit.SAME:
            there.append(f"({couple.fit.value})")
    lines = (("here   ", here), ("there  ", there))
    return Content("\n").join([Content.assemble((name, GREY), "  ".join(parts)) for name, parts in lines])


def answer(found: Differences, hint: str, width: int) -> Content:
    """Returns whether the tensors are equal, and every measure, in as few lines as possible."""
    glyph, colour = (HIT_GLYPH, ORANGE) if found.outside else (EQUAL_GLYPH, BLUE)
    if found.nothing_to_compare:
        glyph, colour = UNCERTAIN_GLYPH, ORANGE
    tolerance = words.tolerance_text(found.tolerance, found.boundary)
    verdict = (f"{glyph} {words.verdict(found)}", f"bold {colour}")
    beside = f"{_GAP}tolerance {tolerance}"
    fits = len(verdict[0]) + len(beside) <= width
    first = Content.assemble(verdict, (beside, GREY)) if fits else Content.styled(*verdict)
    rest = [words.counts_text(found), words.error_text(found), words.vector_text(found), words.ulp_text(found)]
    items = ["" if fits else beside.strip(), *rest, f"note: {hint}" if hint else ""]
    lines = packed("", [*filter(None, items)], width, _GAP)
    return Content("\n").join([first, *(Content(line) for line in lines)])


MOST_NODES: Final = 500
"""Most nodes that are offered if several have the name."""


@dataclass(frozen=True, slots=True)
class ReferenceOption:
    """A line of the list of tensors to compare with."""

    text: str
    choose: Callable[[], None]
    current: bool = False


def ask_shape(view: View, error: DifferentShapesError, agreed: Callable[[], None]) -> None:
    """Asks whether tensors of different shapes are to be compared anyway."""
    how = "element by element, in C order" if error.fit is Fit.RESHAPED else "by stretching one over the other"

    def answered(answer: str | None) -> None:
        if answer == "yes":
            agreed()

    lines = (f"The shapes are {error.where}.", f"They can be compared {how}.", "Is that what you mean?")
    answers = (("n", "no", "no"), ("y", "compare them so", "yes"))
    view.app.push_screen(ConfirmScreen("Different shapes", lines, answers), answered)


def _row_text(row: TensorRow) -> str:
    return f"{row.role}:{row.slot}{round_text(row.key.round)}  {row.origin_text or row.key.node}"


MOST_ELEMENTS: Final = 1 << 27
"""Most elements of the difference that are written."""


def extract_of(
    stem: str,
    head: Sequence[str],
    found: Differences | None,
    entries: Sequence[DifferingElement],
    *,
    one: tuple[str, str] | None,
    window: Callable[[], Array | None],
) -> Extract:
    """Returns the comparison as text, the largest differences as a table, the difference in the slice as an array.

    ``one``: index and numbers of the element under the cursor. ``window`` returns the difference in the slice.
    """
    lines = [*head]
    if found is not None:
        lines += ["", *stats_lines(found)]
    if entries:
        lines += ["", *aligned([TITLES, *(entry_cells(entry) for entry in entries)])]

    def array() -> Array:
        values = window()
        if values is None or values.size > MOST_ELEMENTS:
            raise TdbgError(
                "this difference is too big to be written at once",
                where="the slice that is shown",
                hint="choose a smaller slice with s",
            )
        return values

    return Extract(
        stem=stem,
        text="\n".join(lines),
        one=" ".join(one) if one is not None else "",
        header=TITLES if entries else (),
        rows=[_row(entry) for entry in entries],
        array=array,
    )


def _row(entry: DifferingElement) -> tuple[object, ...]:
    relative = "" if entry.relative is None else entry.relative
    apart = "" if entry.ulp is None else entry.ulp
    numbers = (exact_text(value) for value in (entry.here, entry.there, entry.difference))
    return (index_text(entry.index), *numbers, "inf" if relative == math.inf else relative, apart)


WIDE: Final = 150
"""Columns from which table and list stand side by side."""
CHOOSE: Final = "w chooses another step, rank, tensor or file"
SLIDER: Final = (0.0, 1.0, 2.0, 5.0, *(10.0 * tenth for tenth in range(1, 11)))


class CompareView(WindowView):
    """Shows two tensors side by side, or their difference, through one slice.

    Attributes:
        other: the tensor to compare with; None until the first is found.
        couple: both tensors; None until they are read.
        found: their differences; None until they are computed.
    """

    OWN_ACTIONS = COMPARE_ACTIONS
    DEFAULT_CSS = """
    CompareView {
        #sides { height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
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

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.comparer = Comparer(host.session)
        self.other: ComparedTensor | None = None
        self.couple: Couple | None = None
        self.found: Differences | None = None
        self.hint = ""
        self.tolerance = EXACT
        self._unfinished: Callable[[], None] | None = None
        self.heading = f"Compare {slot_text(about.key)}  {shorten(about.key.node, 60)}"

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("sides", "answer")
        with Horizontal(id="main"):
            yield CompareTable(self._work_of_heat)
            yield LargestPane()

    def on_mount(self) -> None:
        self.table.front.focus()
        self.largest.show(None)
        if self.about.against is not None:
            self._against(self.about.against)
        else:
            self.work("looking", lambda _: self.comparer.previous(self.about.key), self._against)
        self._draw_head()

    def on_unmount(self) -> None:
        self.comparer.close()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "-wide")
        key = self.about.key
        room = max(20, event.size.width - 24)
        self.set_heading(f"Compare {slot_text(key)}  {shorten(key.node, room)}")

    @property
    def table(self) -> CompareTable:
        return self.query_one(CompareTable)

    @property
    def bar_shows(self) -> bool:
        """Tells whether the slice is visible: not beside the list alone."""
        return self.has_class("-wide") or not self.has_class("-list")

    @property
    def largest(self) -> LargestPane:
        return self.query_one(LargestPane)

    @property
    def target_here(self) -> ViewTarget:
        """This tensor; or the other one while its values are shown, if it is of this run."""
        other = self.other.key if self.other is not None and not self.other.path else None
        if other is None or self.table.shown is not CellContent.THERE:
            return self.about
        target = self.target_of(other)
        return target if target.row >= 0 else self.about

    # -- reading and comparing ---------------------------------------------------------------------

    def look_again(self) -> None:
        if self.other is None:
            self.on_mount()
        else:
            self._against(self.other, reshape=self.couple is not None and self.couple.fit is not Fit.SAME)

    def _against(self, side: ComparedTensor, *, reshape: bool = False) -> None:
        key, self.other, session = self.about.key, side, self.session
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
        """Shows the table at once; the differences of the whole tensors follow."""
        couple, self.files = found
        self.couple, self.other = couple, couple.there.side
        self.table.set_couple(couple, ComparisonRule(self.tolerance))
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
            self.table.set_rule(ComparisonRule(found.tolerance, found.boundary))
        self._draw_head()

    def _work_of_heat(self, what: str, job: Callable[[ProgressFn], Any], done: Callable[[Any], None]) -> None:
        """Runs work of the heat map first; a comparison that it replaces starts again afterwards."""

        def finished(result: Any) -> None:
            done(result)
            if self._unfinished is not None:
                self._unfinished()

        self.work(what, job, finished)

    def failed(self, error: Exception) -> None:
        self._unfinished = None
        if isinstance(error, DifferentShapesError) and self.other is not None:
            self.say("")
            other = self.other
            self.table.show_text(f"The shapes differ: {error.where}\n\n{CHOOSE}")
            ask_shape(self, error, lambda: self._against(other, reshape=True))
        elif self.couple is None and not isinstance(error, CancelledError):
            self.say("")
            reason = clean_lines(str(error)) or type(error).__name__
            session = self.session
            if session.ongoing and self.other is not None and self.other.key == session.before(self.about.key):
                reason = f"{session.why_no_previous(self.about.key)}\n\n{reason}"
            self.table.show_text(f"Nothing to compare with:\n\n{reason}\n\n{CHOOSE}")
        else:
            super().failed(error)
        self._draw_head()

    def action_cancel(self) -> None:
        stopped = self.working and not self.bar.editing
        super().action_cancel()
        if stopped:
            self._unfinished = None
            self._draw_head()

    # -- the head ----------------------------------------------------------------------------------

    def _draw_head(self) -> None:
        self.show_line("sides", sides(self.about.key, self.other, self.couple, working=self.working))
        line = self.text_line("answer")
        if self.found is not None:
            line.show(answer(self.found, self.hint, max(40, self.size.width - 4)))
        else:
            idle = self.couple is not None and self._unfinished is None
            line.show(
                Content.styled(
                    f"the whole tensors are not compared yet: {LOOK_AGAIN.main_key} compares them" if idle else "", GREY
                )
            )

    # -- keys --------------------------------------------------------------------------------------

    def action_other(self) -> None:
        self._ask_other(self.about.key, self.other)

    def action_other_step(self, by: int) -> None:
        side = self.other or ComparedTensor(self.about.key)
        if side.key is None:
            self.say("a file has no steps", note=True)
            return

        def found(beside: ComparedTensor | None) -> None:
            if beside is None:
                self.say(f"no {'later' if by > 0 else 'earlier'} step has it", note=True)
            else:
                self._against(beside)

        self.work("looking", lambda _: self.comparer.beside(side, by), found)

    def action_other_rank(self, by: int) -> None:
        side = self.other or ComparedTensor(self.about.key)
        ranks = list(self.session.ranks()) if not side.path else []
        if side.key is None or side.key.rank not in ranks or len(ranks) < 2:
            self.say("there is no other rank", note=True)
            return
        rank = ranks[(ranks.index(side.key.rank) + by) % len(ranks)]
        self._against(replace(side, key=replace(side.key, rank=rank)))

    def action_more(self) -> None:
        contents = list(CellContent)
        self.table.set_shown(contents[(contents.index(self.table.shown) + 1) % len(contents)])
        self.say(self.table.shown.value, note=True)

    def action_heat(self) -> None:
        self._show_table()
        super().action_heat()

    @on(TableOrMap.Switched)
    def _switched(self) -> None:
        self.set_hints(MAP_HINTS if self.table.mapped else HINTS)

    def action_tolerance(self) -> None:

        def given(text: str) -> None:
            tolerance = parse_tolerance(text)
            if isinstance(tolerance, Boundary):
                self._tolerate(tolerance)

        def check(text: str) -> str | None:
            parsed = parse_tolerance(text)
            return parsed if isinstance(parsed, str) else None

        note = "rtol=1e-5 atol=1e-8, or 5% of the greatest difference, or exact"
        TextPrompt("Boundary", format_tolerance(self.tolerance), check, note=note).ask(self.app, given)

    def action_slide(self, by: int) -> None:
        now = self.tolerance.percent
        notches = [notch for notch in SLIDER if (notch - now) * by > 0]
        if notches:
            self._tolerate(replace(self.tolerance, percent=notches[0] if by > 0 else notches[-1]))

    def _tolerate(self, tolerance: Boundary) -> None:
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
        self.largest.next_measure()

    def action_largest(self, by: int) -> None:
        """Moves through the list of the largest differences; during a search, through its matches."""
        if self.element_query is not None:
            self.next_sought(by)
            return
        table = self.largest.table
        if not table.row_count:
            self.say("no element differs" if self.found is not None else "not compared yet", note=True)
            return
        if self.table.cursor_index == table.cursor_key:
            table.move_to((table.cursor_row + by) % table.row_count)
        self._go_to_listed()

    @on(VirtualTable.RowSelected)
    def _listed(self) -> None:
        self._go_to_listed()

    def _go_to_listed(self) -> None:
        index = self.largest.table.cursor_key
        if isinstance(index, tuple):
            self._show_table()
            self.table.go_to(index)
            self.table.front.focus()

    def elements_shown(self) -> ElementLine | None:
        couple, shown = self.couple, self.table.shown
        if couple is None:
            return None
        if shown in {CellContent.HERE, CellContent.THERE}:
            return elements_of(couple.pairs.here if shown is CellContent.HERE else couple.pairs.there)
        return DifferenceElements(couple.pairs, self.table.rule.settled)

    @property
    def type_shown(self) -> DType:
        couple, shown = self.couple, self.table.shown
        if couple is None or shown not in {CellContent.HERE, CellContent.THERE}:
            return super().type_shown
        return (couple.pairs.here if shown is CellContent.HERE else couple.pairs.there).dtype

    def show_element(self, index: Index) -> None:
        self._show_table()
        self.table.go_to(index)

    def _show_table(self) -> None:
        self.remove_class("-list")

    def action_switch(self) -> None:
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
        """Goes from a cell of the heat map to its element, from an element to the values of the shown tensor."""
        if self.table.mapped:
            self.table.to_element()
        else:
            self.host.open("values", replace(self.target_here, at=self.table.cursor_index))

    def action_slice(self) -> None:
        self._show_table()
        super().action_slice()

    @on(CompareTable.Refused)
    def _refused(self, event: CompareTable.Refused) -> None:
        self.say(event.text)

    # -- the other tensor --------------------------------------------------------------------------

    def _ask_other(self, key: TensorKey, other: ComparedTensor | None) -> None:
        options = self._options(key, other)
        current = next((i for i, option in enumerate(options) if option.current), None)
        screen = ChoiceScreen("Compare with", [option.text for option in options], current)
        screen.ask(self.app, lambda index: options[index].choose())

    def _options(self, key: TensorKey, other: ComparedTensor | None) -> list[ReferenceOption]:
        session = self.session
        now = other if other is not None and other.key is not None and not other.path else None
        base = now.key if now is not None and now.key is not None else key
        found = [
            ReferenceOption("another tensor, by name …", lambda: self._ask_name(key)),
            ReferenceOption("a .npy file …", self._ask_file),
            ReferenceOption("another run …", lambda: self._ask_run(key)),
        ]
        for step in session.steps(base.rank):
            side = ComparedTensor(base.at_step(step))
            if side.key != key:
                found.append(ReferenceOption(f"step {step_text(step)}", self._take(side), side == other))
        for rank in session.ranks():
            side = ComparedTensor(replace(base, rank=rank))
            if rank != base.rank and side.key != key:
                found.append(ReferenceOption(f"rank {rank}", self._take(side), side == other))
        return found

    def _take(self, side: ComparedTensor) -> Callable[[], None]:
        return lambda: self._against(side)

    # -- another tensor ----------------------------------------------------------------------------

    def _ask_name(self, key: TensorKey) -> None:
        note = "id of a node, the end or any part of it; :0 is output 0, :in1 input 1"
        prompt = TextPrompt("Compare with which tensor?", check=lambda text: None if text.strip() else "", note=note)
        prompt.ask(self.app, lambda text: self._again(key, text.strip())())

    def _find(self, key: TensorKey, text: str) -> list[tuple[str, ComparedTensor | Callable[[], None]]]:
        """Returns (words, tensor) of the possible tensors; if several nodes match, (words, function that asks on).

        Raises:
            TdbgError: no node has this name, or the node has no such tensor.
        """
        session = self.session
        try:
            found = find_in(session, [key.rank], text)
        except TdbgError:
            name, _ = split_slot(text)
            nodes = session.nodes(key.rank)
            rows = np.flatnonzero(match(nodes, NodeQuery(text=name)) & ~nodes.structural)[:MOST_NODES].tolist()
            if not rows:
                raise
            slot = text[len(name) :]
            several = len(nodes.graphs) > 1
            names = [f"{nodes.graph_of(row).name}/" * several + nodes.names[row] + slot for row in rows]
            return [(name, self._again(key, name)) for name in names]
        rows_of = session.tensor_rows(key.rank, key.step, found.rows[key.rank], found.asked.round)
        meant = [row for row in rows_of if found.asked.covers(row)]
        if not found.asked.role:
            meant = [row for row in meant if row.role == "out"] or meant
        if not meant:
            there = ", ".join(f":{row.role}{row.slot}" for row in rows_of)
            raise TdbgError(
                f"this node has no tensor {found.asked}".rstrip() + f" at step {step_text(key.step)}",
                where=found.node,
                hint=f"it has {there}" if there else "choose another step first",
            )
        return [(_row_text(row), ComparedTensor(row.key)) for row in meant]

    def _again(self, key: TensorKey, name: str) -> Callable[[], None]:
        return lambda: self.work("looking", lambda _: self._find(key, name), self._choose_among)

    def _choose_among(self, found: Sequence[tuple[str, ComparedTensor | Callable[[], None]]]) -> None:
        def chosen(index: int) -> None:
            side = found[index][1]
            if isinstance(side, ComparedTensor):
                self._against(side)
            else:
                side()

        if len(found) == 1:
            chosen(0)
        else:
            ChoiceScreen("Which one?", [text for text, _ in found]).ask(self.app, chosen)

    # -- files and runs ----------------------------------------------------------------------------

    def _ask_file(self) -> None:
        def check(path: Path) -> str | None:
            return None if is_file(str(path)) else "this is a directory" if path.is_dir() else "there is no such file"

        prompt = PathPrompt("Compare with which file?", path_check(check), suffix=".npy")
        prompt.ask(self.app, lambda text: self._against(ComparedTensor(path=text.strip())))

    def _ask_run(self, key: TensorKey) -> None:
        def check(path: Path) -> str | None:
            return None if path.is_dir() else "there is no such directory"

        note = "the same node, slot, rank and step there; , and . lead to other steps"
        prompt = PathPrompt("Compare with which run?", path_check(check), suffix="/", note=note)
        prompt.ask(self.app, lambda text: self._against(ComparedTensor(key, str(typed_path(text)))))

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        if self.couple is None:
            return None
        entries = self.largest.measure.entries(self.found) if self.found is not None else ()
        one = self.table.cell_parts(exact=True)
        head = [str(self.query_one(name, PlainLine).content) for name in ("#sides", "#answer")]
        stem = file_stem(self.about.key, "compare")
        return extract_of(stem, head, self.found, entries, one=one, window=self.table.window)
