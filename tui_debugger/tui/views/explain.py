"""Shows usual causes of a tensor's findings, with this tensor's numbers, and what to look at next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.widget import Widget

from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Advice, Guidance, GuidanceLine, LineKind, lines
from tui_debugger.model import Hit
from tui_debugger.text.phrases import tail
from tui_debugger.text.tensors import slot_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, Action, view_actions
from tui_debugger.tui.export import Extract, file_stem
from tui_debugger.tui.views.registry import VIEW_BY_ID, ViewTarget
from tui_debugger.tui.views.view import CHECKED, SeenResults, View, ViewChanges, ViewHost
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

STYLES: dict[LineKind, Style] = {
    LineKind.NAME: theme.STRONG,
    LineKind.TENSOR: theme.DIM,
    LineKind.TITLE: theme.STRONG,
    LineKind.FOUND: theme.FINDING,
    LineKind.HEADING: theme.HEADING,
    LineKind.LIKELY: theme.FINDING,
    LineKind.UNKNOWN: theme.DOUBT,
    LineKind.RULED_OUT: theme.DIM,
    LineKind.ADVICE: theme.WATCHED,
    LineKind.MISSING: theme.DOUBT,
}
WIDEST = 120
"""Most cells of a line: longer lines are hard to read."""
_GROUP = "Explain"
OWN: tuple[Action, ...] = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        _GROUP,
        ("advice(1)", "n", "Next", "Goes to the next line of advice; Enter follows it."),
        ("advice(-1)", "N", "Previous", "Goes to the line of advice before."),
    ),
)


class ExplainView(View):
    """Explains one tensor. Enter opens the view that the advice at or below the cursor names."""

    OWN_ACTIONS = OWN
    DEFAULT_CSS = "ExplainView VirtualTable { height: 1fr; }"
    hints = (("n N", "advice"), ("Enter", "follow it"), ("o", "origin"), ("?", "keys"), ("Esc", "back"))

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        key = about.key
        node = shorten(tail(key.node), 40)
        self.heading = (
            f"Explain  step {step_text(key.step)}  rank {key.rank}{self.graph_words(key)}  {node}:{slot_text(key)}"
        )
        self.guidance: Guidance | None = None
        self._lines: list[GuidanceLine] = []
        self._advice: dict[int, Advice] = {}
        self._width = -1
        self._results = SeenResults(host.session)

    def body(self) -> Iterable[Widget]:
        yield VirtualTable((TableColumn("", 10, elastic=1),), header=False, empty="", id="explanation")

    def on_mount(self) -> None:
        self.query_one(VirtualTable).focus()
        self._look(self.about.hit, self.work)

    def look_again(self) -> None:
        self._look(None, self.work_anew)

    def _look(self, hit: Hit | None, work: Callable[..., None]) -> None:
        session, key = self.session, self.about.key
        self._results.note([(key.rank, key.step)])
        work("gathering evidence", lambda progress: explain(session, key, hit, progress), self._show)

    def outdated_by(self, changes: ViewChanges) -> str:
        """Counts changes upstream, and new check results of the tensor."""
        return super().outdated_by(changes) or (CHECKED if changes.results and self._results.newer else "")

    def _show(self, guidance: Guidance) -> None:
        self.guidance = guidance
        self._lines = list(lines(guidance))
        self._width = -1
        self._lay_out()

    def on_resize(self, _: events.Resize) -> None:
        self.call_after_refresh(self._lay_out)

    def _lay_out(self) -> None:
        table = self.query_one(VirtualTable)
        width = min(table.line_width - 1, WIDEST)  # without the cursor bar
        if width == self._width or not self._lines or not table.line_width:
            return
        self._width = width
        rows: list[tuple[Text]] = []
        keys: list[tuple[int, int]] = []
        self._advice = {}
        for number, line in enumerate(self._lines):
            for part, text in enumerate(self._shown(line).wrapped(width)):
                if line.advice is not None and line.advice.view:
                    self._advice[len(rows)] = line.advice
                rows.append((Text(text, STYLES.get(line.kind, theme.NORMAL)),))
                keys.append((number, part))
        table.set_rows(ListRows(rows, keys))

    @staticmethod
    def _shown(line: GuidanceLine) -> GuidanceLine:
        """Returns a line with the key that follows its advice."""
        advice = line.advice
        if advice is None or not advice.view:
            return line
        view = VIEW_BY_ID.get(advice.view)
        key = view.key if view is not None and advice.about is None else "↵"
        return GuidanceLine(line.kind, f"{key} {line.text}", line.indent, line.hang, advice)

    # -- following advice --------------------------------------------------------------------------

    def action_advice(self, by: int) -> None:
        table = self.query_one(VirtualTable)
        starts = [row for row in self._advice if self._advice.get(row - 1) is not self._advice[row]]
        ahead = [row for row in starts if (row > table.cursor_row if by > 0 else row < table.cursor_row)]
        if ahead:
            table.move_to(min(ahead) if by > 0 else max(ahead))
        else:
            self.say("no advice that opens a view in that direction", note=True)

    @on(VirtualTable.RowSelected)
    def _follow(self, event: VirtualTable.RowSelected) -> None:
        advice = self._advice.get(min((row for row in self._advice if row >= event.row), default=-1))
        if advice is None:
            self.say("no advice from here on that opens a view", note=True)
            return
        target = self.about if advice.about is None else self.target_of(advice.about)
        if target.row < 0:
            self.say("the run has no such node any more")
        else:
            self.host.open(advice.view, target)

    @on(VirtualTable.RowHighlighted)
    def _moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        if not (self.working or isinstance(event, VirtualTable.RowSelected)):
            self.say("")

    @property
    def target_here(self) -> ViewTarget:
        """The tensor of the advice under the cursor, else the view's own."""
        advice = self._advice.get(self.query_one(VirtualTable).cursor_row)
        return self.about if advice is None or advice.about is None else self.target_of(advice.about)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        if self.guidance is None:
            return None
        key = self.about.key
        text = [part for line in self._lines for part in line.wrapped(WIDEST)]
        rows = [
            (", ".join(section.conditions), cause.title, cause.standing.word, cause.evidence)
            for section in self.guidance.sections
            for cause in section.causes
        ]
        return Extract(
            stem=file_stem(key, "explain"),
            text="\n".join(text),
            one=self._under_cursor(),
            header=("conditions", "cause", "standing", "evidence") if rows else (),
            rows=rows,
        )

    def _under_cursor(self) -> str:
        table = self.query_one(VirtualTable)
        at = table.cursor_key
        return self._lines[at[0]].text if isinstance(at, tuple) and at[0] < len(self._lines) else ""
