"""Two runs side by side: where the first real difference begins, both node trees in one, where a difference goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.content import Content
from textual.widget import Widget

from tui_debugger.arrays import Mask
from tui_debugger.diagnose.compare import ComparedTensor
from tui_debugger.diagnose.runs.results import DiffFinding, JudgedNode, OneSided, RunsReport, StepPlace
from tui_debugger.diagnose.runs.text import (
    ROW_TITLES,
    counts_text,
    coverage_text,
    headline_lines,
    headline_text,
    markdown_lines,
    node_cells,
    options_text,
    times_text,
    values_text,
    verdict_text,
)
from tui_debugger.diagnose.runs.tree import GLYPHS, WORDS, Show, StepTree, TreeHop, TreeState, pair_text, steps_of
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress
from tui_debugger.session.comparison import ComparedRun, RunComparison, check_comparable
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE, named, number, plural
from tui_debugger.text.tensors import index_text, place_text, shape_text, slot_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.dialogs.prompts import ChoiceScreen
from tui_debugger.tui.export import Extract, RowsOnDemand
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import RUN_CHANGED, View, ViewChanges
from tui_debugger.tui.widgets.open_tree import OpenTree, Visible, same_entry
from tui_debugger.tui.widgets.text import Cell, ScopedName, shorten
from tui_debugger.tui.widgets.virtual_table import LazyRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.session.dumps import Overview
    from tui_debugger.tui.views.view import ViewHost

GROUP: Final = "Two runs"
CHOOSE: Final = "w chooses another run"


ACTIONS: Final[tuple[Action, ...]] = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        GROUP,
        ("other", "w", "Other side", "Chooses the run to compare with."),
        ("finding(1)", "n", "Next", "To where the next difference begins, at any step and rank."),
        ("finding(-1)", "N", "Previous", "To where the difference before begins."),
        ("filter", "f", "Filter", "Chooses which nodes are shown: where differences begin, what differs, all ..."),
        ("step(-1)", "[", "Step back", "One compared step back."),
        ("step(1)", "]", "Step forward", "One compared step forward."),
        ("rank(-1)", "<", "Previous rank", "One compared rank back."),
        ("rank(1)", ">", "Next rank", "One compared rank on."),
        ("fold", "space", "Open, close", "Opens or closes the scope under the cursor; Enter does the same."),
        ("fold_all", "*", "Open all", "Opens or closes everything below the cursor."),
        ("switch", "tab", "Next pane", "Between the tree and the path of the difference."),
        ("map", "t", "Other form", "Nodes down, steps across: error ÷ expected in colours."),
        ("values", "v", "Values", "The values of the tensor under the cursor, in this run."),
        ("doubts", "!", "Notices", "Lists what could not be judged, and other notices."),
    ),
)
HINTS: Final = (
    *(("n", "next"), ("Enter", "compare"), ("f", "filter"), ("[ ]", "step"), ("t", "map"), ("w", "other run")),
    *(("e", "report"), ("?", "keys"), ("Esc", "back")),
)
STYLES: Final[dict[TreeState, Style]] = {
    TreeState.NOTHING: theme.NORMAL,
    TreeState.SAME: theme.WATCHED,
    TreeState.NOT_COMPARED: theme.DIM,
    TreeState.ONE_SIDED: theme.NORMAL,
    TreeState.ROUNDING: theme.WATCHED,
    TreeState.INHERITED: theme.DIM,
    TreeState.INSIDE: theme.DOUBT,
    TreeState.DOUBT: theme.DOUBT,
    TreeState.INTRODUCED: theme.FINDING,
}
_SIDES: Final = (Text(" "), Text("A", theme.GOOD), Text("B", theme.FINDING))
_LEGEND: Final = (
    TreeState.INTRODUCED,
    TreeState.INHERITED,
    TreeState.INSIDE,
    TreeState.ROUNDING,
    TreeState.SAME,
    TreeState.DOUBT,
)
COLUMNS: Final = (
    TableColumn("", 1, frozen=True),
    TableColumn("", 1, frozen=True),
    TableColumn("node", 20, elastic=5),
    TableColumn("dx inputs", 9, right=True, searched=False),
    TableColumn("dy output", 9, right=True, searched=False),
    TableColumn("÷ expected", 10, right=True, searched=False),
    TableColumn("judgement", 12, elastic=3, searched=False),
)
PATH_COLUMNS: Final = (
    TableColumn("", 1, frozen=True),
    TableColumn("passed on to", 20, elastic=5),
    *COLUMNS[3:6],
    TableColumn("also", 12, elastic=1, searched=False),
)
_INDENT: Final = 2
_WIDE: Final = 100
"""Columns from which the whole legend fits."""
_LOW: Final = 30
"""Lines of the screen below which the headline is shorter."""


def _quiet(both: StepTree) -> Mask | None:
    """Returns the mask of scopes without a difference; None if no scope has one."""
    quiet: Mask = (both.states < TreeState.INHERITED) & (both.states != TreeState.ONE_SIDED)
    return None if quiet.all() else quiet


class TreeRows(Visible):
    """Entries of a tree as rows; only visible ones are made."""

    def __init__(self, tree: StepTree, opened: OpenTree) -> None:
        super().__init__(opened.visible().indices)
        self.tree = tree
        self.opened = opened.opened

    def cells(self, index: int) -> Sequence[Cell]:
        entry, both = self.key(index), self.tree
        tree = both.tree
        state, side, row = TreeState(int(both.states[entry])), int(both.sides[entry]), int(tree.row[entry])
        style = theme.DIM if state in {TreeState.INHERITED, TreeState.NOT_COMPARED} else theme.NORMAL
        if state is TreeState.INTRODUCED and row >= 0:
            style = theme.FINDING
        text = Text(" " * _INDENT * int(tree.depth[entry]), no_wrap=True)
        if row < 0:
            text.append(f"{theme.OPEN_GLYPH if self.opened[entry] else theme.CLOSED_GLYPH} ", theme.DIM)
        text.append(clean(tree.label[entry]) + ("/" if row < 0 else ""), style)
        head: list[Cell] = [Text(GLYPHS[state], STYLES[state]), _SIDES[side], text]
        if row < 0:
            return [*head, "", "", "", Text(_scope_words(both, entry), theme.DIM)]
        return [*head, *_numbers(both.items[row], style), Text(clean(both.judgement_words(row)), STYLES[state])]


class TreeTable(VirtualTable):
    """The tree; a search looks at whole paths."""

    def row_text(self, row: int) -> str:
        rows = self.rows
        return clean(rows.tree.tree.path(rows.key(row))) if isinstance(rows, TreeRows) else super().row_text(row)


def _scope_words(both: StepTree, entry: int) -> str:
    counts = np.bincount(both.state[both.tree.rows_below(entry)], minlength=len(TreeState))
    told = (TreeState.INTRODUCED, TreeState.DOUBT, TreeState.INHERITED, TreeState.INSIDE, TreeState.ONE_SIDED)
    words = [f"{counts[state]:,} {WORDS[state]}" for state in told if counts[state]]
    return ", ".join(words) or WORDS[TreeState(int(both.states[entry]))]


def _numbers(item: JudgedNode | OneSided, style: Style) -> list[Cell]:
    if isinstance(item, OneSided) or item.worst is None:
        return [Text(NONE, theme.DIM)] * 3
    return [Text(text, style) for text in (number(item.dx), number(item.dy), times_text(item.times))]


class RunsView(View):
    """Both runs: the headline, the tree, the path."""

    OWN_ACTIONS = ACTIONS
    DEFAULT_CSS = """
    RunsView {
        #answer { text-style: bold; max-height: 3; }
        #why { color: $text-muted; max-height: 6; text-wrap: nowrap; text-overflow: ellipsis; }
        #where, #legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; color: $text-muted; }
        #tree { height: 1fr; min-height: 4; }
        #node { height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        #path { height: 25%; min-height: 3; }
        &.-no-path #path { display: none; }
        &.-empty-handed #path, &.-empty-handed #node, &.-empty-handed #legend { display: none; }
    }
    """
    heading = "Two runs"
    hints = HINTS

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        """Shows the comparison that the host keeps, or asks for another run."""
        super().__init__(host, about)
        self.at: StepPlace | None = None
        self.show_only = Show.ALL
        self._trees: dict[StepPlace, StepTree] = {}
        self._opened: OpenTree | None = None
        self._both: StepTree | None = None
        self._hops: Sequence[TreeHop] = ()
        self._origin: DiffFinding | None = None
        self._seen: DiffFinding | None = None
        self._led_to: DiffFinding | None = None

    # -- contents ----------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("answer", "why", "where")
        yield TreeTable(COLUMNS, id="tree")
        yield PlainLine(id="node")
        yield VirtualTable(PATH_COLUMNS, id="path")
        yield PlainLine(id="legend")

    def on_mount(self) -> None:
        self.table.focus()
        self.set_class(True, "-empty-handed")
        if self.comparison is None:
            self.action_other()
        elif self.comparison.report is None:
            self._compare()
        else:
            self._show_report()
            if not self.comparison.whole:
                self.say(f"stopped: {LOOK_AGAIN.main_key} compares all steps", note=True)

    def on_resize(self, _: events.Resize) -> None:
        self._show_head()
        self._show_node()

    @property
    def comparison(self) -> RunComparison | None:
        return self.host.comparison

    @property
    def report(self) -> RunsReport | None:
        return self.comparison.report if self.comparison is not None else None

    @property
    def table(self) -> VirtualTable:
        return self.query_one("#tree", VirtualTable)

    @property
    def path_table(self) -> VirtualTable:
        """The path along which the difference is passed on."""
        return self.query_one("#path", VirtualTable)

    def outdated_by(self, changes: ViewChanges) -> str:
        return RUN_CHANGED if changes.anywhere else ""

    # -- the other run -----------------------------------------------------------------------------

    def action_other(self) -> None:
        from tui_debugger.tui.dialogs.prompts import RunPrompt, look_for_dumps

        try:
            check_comparable(self.session)
        except TdbgError as error:
            self.failed(error)
            return
        if self.working:
            self.action_cancel()
        this = self.session.info.path
        known: list[Overview] = []
        prompt = RunPrompt(this)

        def show(_: object = None) -> None:
            if known:
                prompt.show(known[-1])

        def given(text: str | None) -> None:
            self.host.stop(self)
            if text is not None:
                self.compare_with(text)
            elif self.comparison is None:
                self.dismiss(None)

        self.app.push_screen(prompt, given)
        job = partial(look_for_dumps, this, known.append)
        self.host.run(self, job, prompt.show, lambda _: None, show)

    def compare_with(self, path: str) -> None:
        """Compares with a run; names, steps and ranks are mapped as in the last comparison."""
        before = self.comparison
        against = ComparedRun(path) if before is None else ComparedRun(path, before.options, before.repeat)
        self.host.comparison = RunComparison(self.session, against)
        if before is not None:
            before.close()
        self._forget()
        self._compare()

    def _forget(self) -> None:
        self.at = self._both = self._opened = self._origin = self._seen = None
        self._led_to = None
        self._trees.clear()

    def look_again(self) -> None:
        if self.comparison is None:
            self.action_other()
        else:
            self._compare()

    def _compare(self) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        self.say("comparing …  Esc stops", note=True)

        def done(found: tuple[RunsReport, Sequence[tuple[str, str]]]) -> None:
            self.say("")
            self.mark_outdated("")
            comparison.report, comparison.kinds = found
            comparison.whole = True
            self._trees.clear()
            self._show_report()

        def progressed(progress: Progress) -> None:
            part = f" {100 * progress.done // progress.total} %" if progress.total else ""
            self.say(f"comparing {clean(progress.text)}{part} …  Esc stops", note=True)
            self._take_so_far()

        self._start(comparison.run, done, progressed)
        self._show_head()

    def _take_so_far(self) -> None:
        if self.comparison is not None and not self.comparison.whole and self.comparison.take_so_far():
            self._trees.clear()
            self._show_report()

    def failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError) or self.report is not None or not isinstance(error, TdbgError):
            super().failed(error)
            return
        self.say("")
        self.set_class(True, "-empty-handed")
        where = f"\n{clean(error.where)}" if error.where else ""
        hint = f"{clean(error.hint)}  ·  " if error.hint else ""
        self.show_line("answer", Content.styled(f"{theme.UNCERTAIN_GLYPH} {clean(error.what)}{where}", theme.ORANGE))
        self.show_line("why", Content(f"{hint}{CHOOSE}" if self.comparison is not None else hint.removesuffix("  ·  ")))
        self.table.set_empty("nothing was compared")

    def action_cancel(self) -> None:
        asked = self.working
        super().action_cancel()
        if asked:
            self._take_so_far()
            self._show_head()
            if self.report is None:
                self.table.set_empty("nothing was compared yet")
            self.say(f"stopped: {LOOK_AGAIN.main_key} compares all steps", note=True)

    # -- what is shown -------------------------------------------------------------------------------

    def _show_report(self) -> None:
        report = self.report
        if report is None or not report.steps:
            return
        self.set_class(False, "-empty-handed")
        first, led_to = report.headline, self._led_to
        if first is not None and (led_to is None or (first is not led_to and self.finding_here is led_to)):
            self._led_to = first  # an earlier difference was found, and the cursor was not moved
            self._go_to(first)
        else:
            places = [step.place for step in report.steps]
            self._show_place(self.at if self.at in places else places[0])
        self._show_head()

    def _tree_of(self, place: StepPlace) -> StepTree:
        report = self.report
        if place not in self._trees and report is not None:
            step = next(step for step in report.steps if step.place == place)
            self._trees[place] = StepTree.of(report, step)
        return self._trees[place]

    def _show_place(self, place: StepPlace) -> None:
        both, old = self._tree_of(place), self._both
        if both is not old:
            entry = self.table.cursor_key
            before = self._opened
            quiet = _quiet(both)
            self._opened = OpenTree.fresh(both.tree, quiet) if before is None else before.carried_to(both.tree, quiet)
            self._both, self.at = both, place
            self._arrange()
            if old is not None and isinstance(entry, int) and 0 <= entry < len(old.tree):
                self.table.move_to_key(same_entry(old.tree, entry, both.tree))
        self._show_where()
        self._show_node()

    def _arrange(self) -> None:
        if self._both is None or self._opened is None:
            return
        self._opened.keep(self._both.shown(self.show_only), expand=self.show_only is not Show.ALL)
        self.table.set_empty(f"nothing at this step: {self.show_only.words}; f chooses others")
        self.table.set_rows(TreeRows(self._both, self._opened))
        self._show_where()
        self._show_node()

    def _go_to(self, finding: DiffFinding) -> None:
        self._seen = finding
        self._show_place(finding.place)
        row = self._both.row_of(finding) if self._both is not None else -1
        self._go_to_row(row, f"{finding.name} has no line of its own at this step")

    def _go_to_row(self, row: int, without: str) -> None:
        """Moves the cursor to a row, and shows the row if hidden; ``without`` is the message for row -1."""
        both, opened = self._both, self._opened
        if both is None or opened is None or row < 0:
            self.say(without, note=True)
            return
        entry = both.tree.index_of_row(row)
        if opened.hides(entry):
            self.show_only = Show.ALL
            self._arrange()
        if opened.open_around(entry):
            self._arrange()
        self._move_to(entry)

    def _move_to(self, entry: int) -> None:
        """Moves the cursor; lines before and after it stay visible."""
        table = self.table
        table.move_to_key(entry)
        table.show_from(table.cursor_row - table.page // 3)

    def _show_head(self) -> None:
        comparison, report = self.comparison, self.report
        if comparison is None:
            return
        asked = shorten(options_text(comparison.options, comparison.repeat), max(self.size.width // 3, 16))
        room = max(self.size.width - 30 - len(asked), 16)
        self.set_heading(
            f"Two runs: A is {shorten(self.session.info.path, room // 2)}, "
            f"B is {shorten(comparison.path, room // 2)}" + (f"; {asked}" if asked else "")
        )
        if report is None:
            return
        low = self.app.size.height < _LOW
        so_far = "" if comparison.whole else "so far: "
        code = report.exit_code
        state = {0: TreeState.SAME, 1: TreeState.INTRODUCED}.get(code, TreeState.DOUBT)
        kinds = comparison.kinds or [("", "")] * len(report.findings)
        lines = headline_lines(report, kinds) or [verdict_text(report)]
        colour = theme.BLUE if state is TreeState.SAME else theme.ORANGE
        if not comparison.whole and not report.findings:
            lines, colour = ["nothing that differs by more than rounding"], theme.GREY
        self.show_line("answer", Content.styled(f"{GLYPHS[state]} {so_far}{lines[0]}", colour))
        more = [line.strip() for line in lines[1:]]
        told = [*more[:4], counts_text(report), coverage_text(report)]
        if low:
            told = ["  ".join(more[:2]), f"{counts_text(report)}; {coverage_text(report)}"]
        self.show_line("why", Content("\n".join(filter(None, map(clean, told)))))

    def _show_where(self) -> None:
        both, report = self._both, self.report
        if both is None or report is None or self.at is None:
            return
        place, steps = self.at, steps_of(report)[self.at[:2]]
        number_of = [step.place for step in steps].index(place) + 1
        words = [pair_text("step", place.step_a, place.step_b) + f" ({number_of} of {len(steps)})"]
        ranks = both.step.ranks
        if max(map(len, ranks)) > 1:
            words.append(
                ", ".join(f"{named('rank', sorted(of))} of {name}" for of, name in zip(ranks, "AB", strict=True))
            )
        elif len(steps_of(report)) > 1 or place.rank_a != place.rank_b:
            words.append(pair_text("rank", place.rank_a, place.rank_b))
        total = plural(len(both.items), "node")
        part = f"{self.show_only.words}: {both.count(self.show_only):,} of {total}"
        words.append(f"all {total}" if self.show_only is Show.ALL else part)
        words += [plural(len(report.findings), "difference") + " (n)"] if report.findings else []
        words += [plural(len(report.doubts), "doubt") + " (!)"] if report.doubts else []
        self.put_line("where", "  ·  ".join(words))
        words = [f"{GLYPHS[state]} {WORDS[state]}" for state in _LEGEND]
        wide = self.size.width >= _WIDE
        self.put_line(
            "legend", ("  " if wide else " ").join([*words, "A B only in one run" if wide else "A B only there"])
        )

    # -- the node under the cursor -------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The node under the cursor (its row in the tree of both runs); -1 for a scope."""
        both = self._both
        if both is None:
            return -1
        if self.path_table.has_focus and self.path_table.cursor_row < len(self._hops):
            return self._hops[self.path_table.cursor_row].row
        entry = self.table.cursor_key
        return int(both.tree.row[entry]) if isinstance(entry, int) and 0 <= entry < len(both.tree) else -1

    @property
    def finding_here(self) -> DiffFinding | None:
        """The difference that begins at the node under the cursor; of several, the one that was gone to."""
        both, row, seen = self._both, self.row, self._seen
        if both is None or row < 0:
            return None
        return seen if seen in both.findings and seen is not None and both.row_of(seen) == row else both.finding_at(row)

    @on(VirtualTable.RowHighlighted)
    def _highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self._show_node()

    @on(events.DescendantFocus)
    def _focused(self, _: events.DescendantFocus) -> None:
        self._show_node()

    def _show_node(self) -> None:
        both, row = self._both, self.row
        if both is None:
            return
        finding = self.finding_here if not self.path_table.has_focus else self._origin
        self._show_path(finding or self._origin_here(both))
        if row < 0:
            entry = self.table.cursor_key
            path = clean(both.tree.path(entry)) if isinstance(entry, int) and 0 <= entry < len(both.tree) else ""
            self.put_line("node", path)
            return
        room = max(self.size.width - 4, 20)
        self.put_line("node", f"{shorten(self._names(both, row), room)}\n{clean(self._details(both, row))}")

    def _origin_here(self, both: StepTree) -> DiffFinding | None:
        """Returns the difference whose path is shown while the cursor is on none: the last one, else the first."""
        found = both.findings
        return self._origin if self._origin in found else found[0] if found else None

    def _names(self, both: StepTree, row: int) -> str:
        item, name = both.items[row], both.name(row)
        if isinstance(item, OneSided):
            return f"only in {'AB'[item.side]}: {name}"
        other = both.report.runs[1].nodes(both.place.rank_b).names[item.match.b]
        return name if other == name else f"{name}  in B: {other} ({item.match.rule.word})"

    def _details(self, both: StepTree, row: int) -> str:
        item, finding = both.items[row], self.finding_here
        words = [both.judgement_words(row)]
        if finding is not None and self.comparison is not None and finding is not both.report.headline:
            words = [headline_text(finding, self.comparison.words(finding))]
        worst = item.worst if isinstance(item, JudgedNode) else None
        which = f"out:{item.slot}" if isinstance(item, JudgedNode) else ""
        key = finding.keys[0] if finding is not None and all(finding.keys) else None
        if finding is not None and key is not None:  # for a parameter, the operand of the node that reads it first
            worst = finding.distance
            which = place_text(key) if key.node != both.name(row) else slot_text(key)
        if worst is not None and worst.compared:
            shape = shape_text(worst.shapes[0]) if worst.shapes else ""
            words.append(" ".join(filter(None, (which, "/".join(dict.fromkeys(worst.types)), shape))))
            words += [worst.joined] if worst.joined else []
            if worst.values is not None and worst.worst:
                words.append(f"at {index_text(worst.worst)} {values_text(worst)}")
        return "  ".join(filter(None, words))

    def _show_path(self, finding: DiffFinding | None) -> None:
        both = self._both
        if both is None or (finding is self._origin and self._hops):
            return
        self._origin = finding
        self._hops = both.path_from(finding) if finding is not None else ()
        self.set_class(not self._hops, "-no-path")
        self.path_table.set_rows(
            LazyRows(list(enumerate(self._hops)), partial(_hop_cells, both), lambda each: each[0]), keep=False
        )

    # -- keys ----------------------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        both, row = self._both, self.row
        key = both.keys(row, self.finding_here)[0] if both is not None and row >= 0 else None
        if key is None:
            return self.about
        return self.target_of(key)

    @on(VirtualTable.RowSelected)
    def _selected(self) -> None:
        """Handles Enter: opens a scope, or compares both tensors of a node."""
        both, row, comparison = self._both, self.row, self.comparison
        if both is None or comparison is None:
            return
        if row < 0:
            self.action_fold()
            return
        here, there = both.keys(row, self.finding_here)
        if here is None or there is None:
            only = "A" if here is not None else "B"
            known = here is not None or there is not None
            self.say(f"only {only} has this tensor" if known else "this node was not dumped at this step", note=True)
            return
        self.host.open(
            "compare", ViewTarget(here, self.target_here.row, against=ComparedTensor(there, comparison.path))
        )

    def action_search(self) -> None:
        """Opens every scope first, so that the search finds all nodes."""
        opened = self._opened
        if self.table.has_focus and opened is not None and not opened.expanded and not self.list_searched:
            opened.opened[:] = True
            self._arrange()
        super().action_search()

    def action_open(self, view: str) -> None:
        """Opens another view; ``D`` again asks for another run."""
        if view == "runs":
            self.action_other()
        else:
            super().action_open(view)

    def action_values(self) -> None:
        target = self.target_here
        if target.row < 0:
            self.say("this run has no tensor here", note=True)
        else:
            self.host.open("values", target)

    def action_finding(self, by: int) -> None:
        report, both = self.report, self._both
        if report is None or both is None or not report.findings:
            self.say("no difference begins anywhere" if report is not None else "nothing is compared yet", note=True)
            return
        here = self.finding_here if not self.path_table.has_focus else None
        found = list(report.findings)
        at = next((place for place, each in enumerate(found) if each is (here or self._seen)), -1 if by > 0 else 0)
        at = (at + by) % len(found)
        self._go_to(found[at])
        self.say(f"difference {at + 1:,} of {len(found):,}", note=True)

    def action_filter(self) -> None:
        def chosen(index: int) -> None:
            self.show_only = list(Show)[index]
            self._arrange()

        words = [show.words for show in Show]
        ChoiceScreen("Show which nodes?", words, list(Show).index(self.show_only)).ask(self.app, chosen)

    def action_step(self, by: int) -> None:
        report, place = self.report, self.at
        if report is None or place is None:
            return
        places = [step.place for step in steps_of(report)[place[:2]]]
        at = places.index(place) + by
        if 0 <= at < len(places):
            self._show_place(places[at])
        else:
            self.say(f"no compared step comes {'after' if by > 0 else 'before'} this one", note=True)

    def action_rank(self, by: int) -> None:
        report, place = self.report, self.at
        if report is None or place is None:
            return
        by_rank = steps_of(report)
        ranks = sorted(by_rank)
        if len(ranks) < 2:
            self.say("one rank only is compared", note=True)
            return
        steps = by_rank[ranks[(ranks.index(place[:2]) + by) % len(ranks)]]
        self._show_place(min((step.place for step in steps), key=lambda each: abs(each.step_a - place.step_a)))

    def action_fold(self) -> None:
        entry, opened = self.table.cursor_key, self._opened
        if opened is not None and isinstance(entry, int) and opened.is_scope(entry) and not opened.expanded:
            opened.opened[entry] = not opened.opened[entry]
            self._arrange()
        elif opened is not None and opened.expanded:
            self.say("all scopes are open here: f chooses others", note=True)

    def action_fold_all(self) -> None:
        entry, opened = self.table.cursor_key, self._opened
        if opened is not None and isinstance(entry, int) and opened.is_scope(entry) and not opened.expanded:
            opened.toggle_below(entry)
            self._arrange()

    def action_switch(self) -> None:
        if self.table.has_focus and self._hops:
            self.path_table.focus()
        else:
            self.table.focus()

    def action_map(self) -> None:
        from tui_debugger.tui.views.runs_map import RunsMapView

        report, place, both, row = self.report, self.at, self._both, self.row
        if report is None or place is None or both is None:
            self.say("nothing is compared yet", note=True)
            return
        item = both.items[row] if row >= 0 else None
        node = item.match.a if isinstance(item, JudgedNode) else -1
        self.app.push_screen(RunsMapView(self.host, self.about, report, place, node, self._chosen_on_map))

    def _chosen_on_map(self, place: StepPlace, node: int) -> None:
        self._show_place(place)
        row = self._both.row_of_node(node) if self._both is not None else -1
        self._go_to_row(row, "this node was not compared at this step")

    def action_doubts(self) -> None:
        from tui_debugger.tui.dialogs.pages import NoticesScreen

        report = self.report
        self.app.push_screen(NoticesScreen((*report.notes, *report.doubts) if report is not None else ()))

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        """Returns the Markdown report, and a row for every pair of nodes and step."""
        comparison, report = self.comparison, self.report
        if comparison is None or report is None:
            return None
        kinds = comparison.kinds or [("", "")] * len(report.findings)
        text = list(markdown_lines(report, kinds, (self.session.info.path, comparison.path)))
        one = self._names(self._both, self.row) if self._both is not None and self.row >= 0 else ""
        return Extract("tdbg-diff", "\n".join(text) + "\n", clean(one), ROW_TITLES, _node_rows(report), markdown=True)


def _hop_cells(both: StepTree, numbered: tuple[int, TreeHop]) -> Sequence[Cell]:
    _, hop = numbered
    state = TreeState(int(both.state[hop.row]))
    style = theme.FINDING if state is TreeState.INTRODUCED else theme.NORMAL
    more = f"+{hop.others:,} more" if hop.others else ""
    scope, _, name = both.name(hop.row).rpartition("/")
    mark = Text(GLYPHS[state], STYLES[state])
    path = ScopedName(Text(clean(name), no_wrap=True), scope, theme.DIM)
    return [mark, path, *_numbers(both.items[hop.row], style), Text(more, theme.DIM)]


def _node_rows(report: RunsReport) -> RowsOnDemand:
    """Returns a row for every pair of nodes and step."""
    pairs = [(step, judged) for step in report.steps for judged in step.judged]

    def row(at: int) -> Sequence[object]:
        step, judged = pairs[at]
        runs = zip(report.runs, step.place[:2], (judged.match.a, judged.match.b), strict=True)
        one, other = (run.nodes(rank).names[row] for run, rank, row in runs)
        return node_cells(step, judged, (one, other))

    return RowsOnDemand(len(pairs), row)
