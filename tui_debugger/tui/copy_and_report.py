"""What leaves the main screen: text for the clipboard, a picture of the screen, a report in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.session.export_files import checked_target, fresh_text
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE
from tui_debugger.tui.widgets.text import Cell, Place

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn, TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.main_screen import MainScreen


class Copier:
    """Copies from any pane: whole names, not what fits into a column."""

    def __init__(self, desk: MainScreen) -> None:
        """For one screen."""
        self._desk = desk

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {"copy_here": self.copy, "screenshot": self.screenshot}

    def copy(self) -> None:
        """What is under the cursor, to the clipboard."""
        from tui_debugger.tui.views import export

        text = self.text_here()
        if not text:
            self._desk.say("nothing under the cursor", bad=True)
            return
        try:
            self._desk.say(export.put(self._desk.app, text))
        except TdbgError as error:
            self._desk.say(error.what, bad=True)

    def screenshot(self) -> None:
        """A picture of the screen, into the working directory."""
        from tui_debugger.tui.views.export import screenshot

        screenshot(self._desk.app, self._desk.say, lambda text: self._desk.say(text, bad=True))

    def text_here(self) -> str:
        """The name of the node or scope, the source line, the watchpoint as --watch takes it, the row of a table."""
        desk = self._desk
        pane = desk.current_pane
        if pane == "nodes":
            return self._name()
        if pane == "stack":
            frame = desk.stack_pane.frame
            return "" if frame is None else clean(f"{frame.path}:{frame.line}  {frame.code}".rstrip())
        if pane == "watchpoints":
            return self._watchpoint()
        table = desk.panes[pane].table
        if not table.row_count:
            return ""
        row = row_text([column.title for column in table.columns], table.rows.cells(table.cursor_row))
        tensor = desk.tensors_pane.current
        return f"{self._node_of(tensor.key)}  {row}" if pane == "tensors" and tensor is not None else row

    def _node_of(self, key: TensorKey) -> str:
        """The node of a tensor, of several graphs with its own before it."""
        graph = f"{key.graph}/" if self._desk.opened_session.graph_names([key.rank]) else ""
        return clean(f"{graph}{key.node}")

    def _name(self) -> str:
        pane = self._desk.nodes_pane
        if pane.nodes is None or pane.scopes is None or pane.current < 0:
            return ""
        row = pane.current_row
        if row < 0:
            return clean(pane.scopes.path(pane.current))
        graph = f"{pane.nodes.graph_of(row).name}/" if len(pane.nodes.graphs) > 1 else ""
        return clean(f"{graph}{pane.nodes.names[row]}")

    def _watchpoint(self) -> str:
        from tui_debugger.watch.text import format_watch

        number = self._desk.watchpoints_pane.current
        found = None if number is None else self._desk.opened_session.watchpoints.get(number)
        return "" if found is None else format_watch(found)


def row_text(titles: Sequence[str], cells: Sequence[Cell]) -> str:
    """``step 3  node Default/net/Log-op1  …``: a row with its titles; without what is empty, and without marks."""
    words = []
    for title, cell in zip(titles, cells, strict=False):
        text = _whole(cell).strip()
        if title and text not in {"", NONE}:
            words.append(f"{title} {text}")
    return "  ".join(words)


def _whole(cell: Cell) -> str:
    """A cell as text; a name with its scope before it, as the run spells it."""
    if isinstance(cell, Place):
        name = cell.name.plain
        return clean(f"{cell.scope}/{name}" if cell.scope else name)
    return clean(cell if isinstance(cell, str) else cell.plain)


LANE = "report"
NAME = "tdbg-report.md"


class Reporter:
    """Asks for a file name and writes the report there; nothing is checked again."""

    def __init__(self, desk: MainScreen) -> None:
        """For one screen."""
        self._desk = desk

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {"report": self.ask}

    def ask(self) -> None:
        """Asks where to write it."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        result = self._desk.state.result
        if result is None or not result.pairs or not result.watchpoints:
            self._desk.say("nothing was checked yet: r checks this step, R everything; w makes a watchpoint", bad=True)
            return
        dump = Path(self._desk.opened_session.info.path)

        def given(text: str | None) -> None:
            if text is not None:
                self._write(result, Path(text.strip()).expanduser(), dump)

        note = "Markdown, for a bug report; of what the hit list shows; nothing is overwritten"
        self._desk.app.push_screen(
            TextPrompt("Write a report", NAME, lambda text: problem(text, dump), note=note), given
        )

    def _write(self, result: CheckResult, path: Path, dump: Path) -> None:
        desk = self._desk
        session, typed = desk.opened_session, desk.run_title

        def work(progress: ProgressFn) -> Path:
            from tui_debugger.check.verdicts import judge
            from tui_debugger.diagnose.report import gather, markdown
            from tui_debugger.session.live import LiveSession

            found_by = "" if isinstance(session, LiveSession) else typed
            text = markdown(gather(session, found_by, result, judge(result), progress))
            with fresh_text(path, dump) as file:
                file.write(text)
            return path

        self._told(None)
        desk.ask_in(LANE, work, self._done, self._failed, self._told)

    def _told(self, progress: Progress | None) -> None:
        """Shows how far it is, and lets Esc stop it."""
        from tui_debugger.model import Progress as Snapshot

        self._desk.progress[LANE] = progress or Snapshot(0, 0, "report")
        self._desk.update_header()

    def _ended(self) -> None:
        self._desk.progress.pop(LANE, None)
        self._desk.update_header()

    def _done(self, path: Path) -> None:
        self._ended()
        self._desk.say(f"wrote {path}")

    def _failed(self, error: Exception) -> None:
        self._ended()
        if isinstance(error, CancelledError):
            self._desk.say("stopped: no report was written")
        else:
            self._desk.show_error(error)


def problem(text: str, dump: Path) -> str | None:
    """What is wrong with a path for the report."""
    from tui_debugger.tui.views.export import check_path

    wrong = check_path(text)
    if wrong:
        return wrong
    try:
        checked_target(Path(text.strip()), dump)
    except TdbgError as error:
        return error.what
    return None
