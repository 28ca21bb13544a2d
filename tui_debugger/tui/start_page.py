"""The start page: recent dumps and the dumps below a directory, with what is known of each; Enter opens one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType

from tui_debugger.text.clean import clean
from tui_debugger.text.markdown import with_tilde
from tui_debugger.text.numbers import age, plural
from tui_debugger.text.tensors import steps_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import START, START_ACTIONS, methods_of_keys, start_actions, start_bindings, start_footer
from tui_debugger.tui.panes.pane import Pane, PanesScreen
from tui_debugger.tui.widgets.text import Cell, ScopedName, shorten
from tui_debugger.tui.widgets.virtual_table import LazyRows, TableColumn, VirtualTable
from tui_debugger.tui.work import MIN_INTERVAL, JobProgress, JobRunner, one_line

if TYPE_CHECKING:
    from tui_debugger.model import Progress
    from tui_debugger.session.dumps import KnownDump, LastVerdict, Overview

COLUMNS: Final = (
    TableColumn("dump", 24, elastic=3, frozen=True),
    TableColumn("last verdict", 22, elastic=4, searched=False),
    TableColumn("written", 7, right=True, searched=False),
    TableColumn("steps", 9, right=True, searched=False),
    TableColumn("ranks", 5, right=True, searched=False),
    TableColumn("opened", 6, right=True, searched=False),
    TableColumn("framework", 16),
    TableColumn("layout", 10, elastic=2),
)
VERDICTS: Final = {"finding": ("✗", theme.FINDING), "clean": ("●", theme.GOOD)}
"""Glyph and style by a verdict's outcome."""
_BESIDE: Final = 55
"""Cells of the first line that are not for the directory."""
_LEAST_PATH: Final = 16
_UNSURE: Final = ("?", theme.DOUBT)
NOTHING: Final = "no dump found; tdbg listen waits for a training process, tdbg demo shows an example"


class DumpsPane(Pane):
    """The list of dumps; ``dumps`` has all of them, a search shows fewer."""

    PANE = START

    def __init__(self, start: Path) -> None:
        """Paths below ``start`` are shown relative to it."""
        super().__init__()
        self.table = VirtualTable(COLUMNS, empty="looking …", id="dump-table")
        self.start = os.fspath(start)
        self.dumps: tuple[KnownDump, ...] = ()
        self._shown: tuple[KnownDump, ...] = ()

    def set_count(self, text: str) -> None:
        self._count = text
        self._upper.show("Dumps", text)

    def show(self, dumps: tuple[KnownDump, ...]) -> None:
        """Shows dumps; the cursor stays on its dump."""
        if dumps != self.dumps:
            self.dumps = dumps
            self.refresh_rows()

    def refresh_rows(self) -> None:
        pattern = self.pattern
        self._shown = tuple(each for each in self.dumps if pattern is None or pattern.test(self._search_text(each)))
        self.table.set_rows(LazyRows(self._shown, self._cells, lambda each: each.path))
        self.show_row()

    @property
    def current(self) -> KnownDump | None:
        return self._shown[self.table.cursor_row] if self.table.cursor_row < len(self._shown) else None

    def resized(self) -> None:
        """Draws the detail again, of which more or less fits now."""
        self.call_after_refresh(self.show_row)

    def show_row(self) -> None:
        dump = self.current
        self.set_count("" if dump is None else with_tilde(dump.path))
        self.set_detail("" if dump is None else self._detail_of(dump))

    def _detail_of(self, dump: KnownDump) -> str:
        """Returns the last verdict, and other facts if there is room."""
        words = details_of(dump, time.time())
        whole = " · ".join(words)
        return whole if not words or cell_len(whole) <= self.size.width - 2 else words[0]

    def _search_text(self, dump: KnownDump) -> str:
        facts = dump.facts
        more = "" if facts is None else f"{facts.framework} {facts.layout} {facts.title}"
        return f"{shown_path(dump.path, self.start)} {more}"

    def _cells(self, dump: KnownDump) -> list[Cell]:
        facts, recent, now = dump.facts, dump.recent, time.time()
        broken = dump.gone or (facts is not None and bool(facts.problem))
        style = theme.DIM if broken else theme.NORMAL
        path = ScopedName(Text(clean(shown_path(dump.path, self.start)), style, no_wrap=True))
        verdict = _verdict_cell(recent.verdict if recent is not None else None, dim=broken or dump.outdated)
        opened = Text("" if recent is None else age(now - recent.opened), theme.DIM)
        if dump.gone:
            return [path, verdict, Text("gone", theme.DOUBT), "", "", opened, "", ""]
        if facts is None:
            return [path, verdict, Text("…", theme.DIM), "", "", opened, "", ""]
        if facts.problem:
            return [path, verdict, Text("?", theme.DOUBT), "", "", opened, Text(clean(facts.problem), theme.DOUBT)]
        written = theme.NONE if facts.written is None else age(now - facts.written)
        ranks = str(len(facts.ranks)) if facts.ranks else theme.NONE
        return [path, verdict, written, _steps(facts.steps), ranks, opened, clean(facts.framework), clean(facts.layout)]


def _verdict_cell(verdict: LastVerdict | None, *, dim: bool) -> Text:
    if verdict is None:
        return Text(theme.NONE, theme.DIM)
    glyph, style = VERDICTS.get(verdict.outcome, _UNSURE)
    words: Style = theme.DIM if dim else theme.NORMAL
    return Text(f"{glyph} ", theme.DIM if dim else style, no_wrap=True).append(clean(verdict.words), words)


def _steps(steps: tuple[int, ...]) -> str:
    """Returns ``0–5``, or the number of steps if they have gaps or the text is too long."""
    if not steps:
        return theme.NONE
    whole = steps[-1] - steps[0] + 1 == len(steps)
    span = f"{steps[0]}–{steps[-1]}" if len(steps) > 1 else str(steps[0])
    return span if whole and len(span) <= 9 else f"{len(steps):,}"


def details_of(dump: KnownDump, now: float) -> list[str]:
    """Returns lines about a dump, the last verdict first."""
    facts, recent = dump.facts, dump.recent
    words = []
    if recent is not None and recent.verdict is not None:
        verdict = recent.verdict
        since = "; more was written since" if dump.outdated else ""
        words.append(f"{verdict.words} (exit code {verdict.exit_code}, {_ago(now - verdict.when)}{since})")
    elif recent is not None:
        words.append(f"opened {_ago(now - recent.opened)}, not checked")
    if dump.gone:
        words.append(f"gone: {START_ACTIONS[2].main_key} forgets it")
    elif facts is not None and facts.problem:
        words.append(facts.problem)
    elif facts is not None:
        steps = steps_text(facts.steps) if facts.steps else "no step"
        ranks = plural(len(facts.ranks), "rank")
        words.append(
            " · ".join(filter(None, (facts.title, facts.framework or facts.layout, facts.device, steps, ranks)))
        )
    return [clean(word) for word in words if word]


def _ago(seconds: float) -> str:
    text = age(seconds)
    return "just now" if text == "now" else f"{text} ago"


def shown_path(path: str, start: str) -> str:
    """Returns a path relative to ``start``, else with ``~`` for the home directory."""
    if path == start:
        return "."
    if path.startswith(start.rstrip("/") + "/"):
        return path[len(start.rstrip("/")) + 1 :]
    return with_tilde(path)


class StartPage(PanesScreen):
    """Lists dumps while it searches for more.

    Attributes:
        work: runs the search, and tests whether a chosen path can be opened.
        overview: the dumps found so far; None before the search.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(start_bindings())

    def __init__(self, directory: Path, chosen: Callable[[Path], None], *, with_recent: bool) -> None:
        """Searches nothing before ``look``; ``chosen`` is called with the path to open."""
        super().__init__()
        self.work = JobRunner(self.post_message, self.show_error)
        self.overview: Overview | None = None
        self._directory = Path(os.path.abspath(directory))  # noqa: PTH100 - keeps links
        self._chosen = chosen
        self._with_recent = with_recent
        self._progress = ""
        self._before: tuple[KnownDump, ...] = ()
        self._forgotten: set[str] = set()
        self.dumps_pane = DumpsPane(self._directory)
        self.dumps_pane.detail_changed = lambda: self.footer.show_detail(self.dumps_pane.detail)
        self.handlers = methods_of_keys(self) | {"look_for_dumps": self.look, "search": self.dumps_pane.open_search}

    @property
    def pane(self) -> Pane:
        return self.dumps_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.dumps_pane
        yield self.footer

    def on_mount(self) -> None:
        self.set_focus(self.dumps_pane.table)
        self._draw()

    def on_resize(self, _: events.Resize) -> None:
        """Draws again; the detail of the row under the cursor stands in the footer."""
        self.dumps_pane.set_frame(active=True, single=True)
        self.dumps_pane.resized()
        self.call_after_refresh(self._draw)

    # -- searching -------------------------------------------------------------------------------

    def look(self) -> None:
        """Searches again; dumps of the last search stay in the list until the new one ends."""
        directory, with_recent = self._directory, self._with_recent

        def work(report: JobProgress) -> Overview:
            from tui_debugger.session.dumps import Overview, RecentDumps, overview

            found = told = Overview(os.fspath(directory))
            due = 0.0

            def tell(progress: Progress | None = None) -> None:
                """Reports new dumps at most every ``MIN_INTERVAL`` seconds, also while the search finds none."""
                nonlocal told, due
                if found is not told and time.monotonic() >= due:
                    report.partial(found)
                    told, due = found, time.monotonic() + MIN_INTERVAL
                if progress is not None:
                    report(progress)

            for more in overview(directory, RecentDumps(), tell, with_recent=with_recent):
                found = more
                tell()
            return found

        self._progress = ""
        self._before = self.dumps_pane.dumps
        self._forgotten.clear()
        self.work.run("dumps", work, self._take, self._search_failed, progressed=self._progressed)
        self._draw()

    def _search_failed(self, error: Exception) -> None:
        """Ends the search after an unexpected error; what it found stays."""
        from tui_debugger.session.dumps import Overview

        found = self.overview or Overview(os.fspath(self._directory))
        self._take(replace(found, ended=True, notices=("the search ended with an error", *found.notices)))
        self.show_error(error)

    def _progressed(self, progress: Progress) -> None:
        self._progress = progress.text
        self._draw()

    def _take(self, found: Overview) -> None:
        self.overview = found
        self._show_dumps()

    def _show_dumps(self) -> None:
        found = self.overview
        if found is None:
            return
        again = {each.path for each in found.dumps}
        before = () if found.ended else (each for each in self._before if each.path not in again)
        left = (self._without_recent(each) for each in (*found.dumps, *before))
        self.dumps_pane.table.set_empty(NOTHING if found.ended else "looking …")
        self.dumps_pane.show(tuple(each for each in left if each is not None))
        self._draw()

    def _without_recent(self, dump: KnownDump) -> KnownDump | None:
        """Removes the entry of recent dumps from a dump that the user forgot meanwhile; None if nothing is left."""
        if dump.recent is None or dump.recent.path not in self._forgotten:
            return dump
        return replace(dump, recent=None) if dump.here else None

    @property
    def _looking(self) -> bool:
        return self.overview is None or not self.overview.ended or self.work.busy("dumps")

    def _draw(self) -> None:
        found = self.overview
        where = shorten(with_tilde(os.fspath(self._directory)), max(self.size.width - _BESIDE, _LEAST_PATH))
        title = Text("tdbg", theme.GOOD, no_wrap=True).append(f"  dumps below {where}", theme.NORMAL)
        hint = Text("tdbg listen", theme.STRONG, no_wrap=True).append(" waits for training", theme.DIM)
        here = sum(each.here for each in self.dumps_pane.dumps)
        recent = sum(each.recent is not None for each in self.dumps_pane.dumps)
        looked = 0 if found is None else found.looked
        directories = f", {plural(looked, 'directory', 'directories')} looked at" if looked else ""
        answer = Text(no_wrap=True)
        if self._looking:
            far = f", {clean(self._progress)}" if self._progress else directories
            answer.append("▶ looking", theme.GOOD).append(f"{far}  Esc stops", theme.DIM)
        else:
            answer.append(plural(here, "dump") + " found", theme.STRONG).append(directories, theme.DIM)
        counts = Text(f"{recent:,} opened before" if recent else "", theme.DIM, no_wrap=True)
        notices = found.notices if found is not None else ()
        more = f" (and {len(notices) - 1:,} more)" if len(notices) > 1 else ""
        notice = Text(f"! {clean(notices[0])}{more}" if notices else "", theme.DOUBT, no_wrap=True)
        self.header.show((title, hint), (answer, counts), (notice, Text(no_wrap=True)))
        self.update_footer()

    # -- keys ------------------------------------------------------------------------------------

    def action_act(self, action: str) -> None:
        self.footer.clear_notice()
        self.handlers[action]()

    def on_key(self, _: events.Key) -> None:
        self.footer.clear_notice()

    def on_virtual_table_row_selected(self) -> None:
        dump = self.dumps_pane.current
        if dump is not None:
            self.open(Path(dump.path))

    def open(self, path: Path) -> None:
        """Opens the dump at a path; if there are several, lists the dumps below it."""
        from tui_debugger.errors import SeveralDumpsError, TdbgError

        def work(_: JobProgress) -> None:
            from tui_debugger.sources.registry import find_run

            find_run(path)

        def failed(error: Exception) -> None:
            if isinstance(error, SeveralDumpsError):
                self._look_below(path)
            elif isinstance(error, TdbgError):
                self.footer.say(one_line(error), bad=True)
            else:
                self.show_error(error)

        self.work.run("choose", work, lambda _: self._leave_to(path), failed, progressed=lambda _: None)

    def _leave_to(self, path: Path) -> None:
        self.work.close(0)
        self._chosen(path)

    def _look_below(self, path: Path) -> None:
        self._directory = Path(os.path.abspath(path))  # noqa: PTH100 - keeps links
        self._with_recent = False
        self.dumps_pane.start = os.fspath(self._directory)
        self.dumps_pane.clear_search()
        self.overview = None
        self.dumps_pane.show(())
        self.look()

    def act_open_path(self) -> None:
        from tui_debugger.tui.dialogs.prompts import PathPrompt, text_problem

        def given(text: str) -> None:
            self.open(self._directory / os.path.expanduser(text.strip()))  # noqa: PTH111 - the ~name of an unknown user stays

        note = "a dump, a directory in or above one, or one with several below it"
        PathPrompt("Open which path?", partial(text_problem, needed="type a path"), suffix="/", note=note).ask(
            self.app, given
        )

    def act_forget_dump(self) -> None:
        dump = self.dumps_pane.current
        if dump is None or dump.recent is None:
            self.footer.say("it is not one of the recent dumps", bad=True)
            return
        path = dump.recent.path

        def work(_: JobProgress) -> str:
            from tui_debugger.session.dumps import RecentDumps

            recent = RecentDumps()
            recent.forget(path)
            return "; ".join(recent.problems)

        def done(problem: str) -> None:
            self.footer.say(problem or f"forgotten: {path}", bad=bool(problem))

        self._forgotten.add(path)
        self._show_dumps()
        self.work.run(f"forget {path}", work, done, progressed=lambda _: None)

    def act_leave_start(self) -> None:
        if self.overview is not None and self._looking and self.work.cancel("dumps"):
            return
        if not self.dumps_pane.clear_search(back=True):
            self.act_quit()

    def act_quit(self) -> None:
        self.app.exit()

    def act_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    def act_help(self) -> None:
        from tui_debugger.tui.actions import ACTIONS, SEARCH, SEARCH_BOX
        from tui_debugger.tui.dialogs.pages import HelpScreen

        listed = (action for action in ACTIONS if action.where in {"list", SEARCH, SEARCH_BOX})
        screen = HelpScreen((*start_actions(), *listed), conditions=False)
        screen.ask(self.app, lambda action: self.run_action_of(action.id, action.where))

    # -- what others tell ------------------------------------------------------------------------

    def on_pane_searched(self, event: Pane.Searched) -> None:
        event.pane.asked()
        self.dumps_pane.refresh_rows()
        self.dumps_pane.searched()
        self.update_footer()

    def on_descendant_focus(self, _: events.DescendantFocus) -> None:
        self.update_footer()

    def update_footer(self) -> None:
        shown = start_footer(self.dumps_pane.search_keys)
        self.footer.show([(action.main_key, action.title, action.id) for action in shown])
        self.footer.show_detail(self.dumps_pane.detail)
