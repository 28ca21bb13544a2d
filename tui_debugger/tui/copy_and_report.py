"""Everything that leaves the main screen: text for the clipboard, a picture of the screen, a report in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress
from tui_debugger.session.export_files import checked_target, fresh_text
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.widgets.text import Cell, ScopedName

if TYPE_CHECKING:
    from tui_debugger.model import Progress, TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.context import Context
    from tui_debugger.tui.work import Report


class Copier:
    """Copies from any pane: whole names, not what fits into a column."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Returns actions by id."""
        return {"copy_here": self.copy, "screenshot": self.screenshot}

    def copy(self) -> None:
        """Copies what is under the cursor."""
        from tui_debugger.tui.views import export

        text = self.text_here()
        if not text:
            self._context.say("nothing under the cursor", bad=True)
            return
        try:
            self._context.say(export.copy_to_clipboard(self._context.app, text))
        except TdbgError as error:
            self._context.say(error.what, bad=True)

    def screenshot(self) -> None:
        """Writes a picture of the screen into the working directory."""
        from tui_debugger.tui.views.export import screenshot

        context = self._context
        dump = Path(context.session.info.path)
        screenshot(context.app, context.current_pane(), dump, context.say, lambda text: context.say(text, bad=True))

    def text_here(self) -> str:
        """Returns the name of the node or scope, the source line, the watchpoint for --watch, or the row of a table."""
        context = self._context
        pane = context.current_pane()
        if pane == "nodes":
            return self._name()
        if pane == "stack":
            frame = context.stack_pane.frame
            return "" if frame is None else clean(f"{frame.path}:{frame.line}  {frame.code}".rstrip())
        if pane == "watchpoints":
            return self._watchpoint()
        table = (context.hits_pane if pane == "hits" else context.tensors_pane).table
        if not table.row_count:
            return ""
        row = row_text([column.title for column in table.columns], table.rows.cells(table.cursor_row))
        tensor = context.tensors_pane.current
        return f"{self._node_of(tensor.key)}  {row}" if pane == "tensors" and tensor is not None else row

    def _node_of(self, key: TensorKey) -> str:
        """Returns the node of a tensor, of several graphs with its own before it."""
        graph = f"{key.graph}/" if self._context.session.graph_names([key.rank]) else ""
        return clean(f"{graph}{key.node}")

    def _name(self) -> str:
        pane = self._context.nodes_pane
        if pane.nodes is None or pane.scopes is None or pane.current < 0:
            return ""
        row = pane.current_row
        if row < 0:
            return clean(pane.scopes.path(pane.current))
        graph = f"{pane.nodes.graph_of(row).name}/" if len(pane.nodes.graphs) > 1 else ""
        return clean(f"{graph}{pane.nodes.names[row]}")

    def _watchpoint(self) -> str:
        from tui_debugger.watch.text import format_watch

        number = self._context.watchpoints_pane.current
        found = None if number is None else self._context.session.watchpoints.get(number)
        return "" if found is None else format_watch(found)


def row_text(titles: Sequence[str], cells: Sequence[Cell]) -> str:
    """Returns a row with its titles, without empty cells and marks: ``step 3  node Default/net/Log-op1  …``."""
    words = []
    for title, cell in zip(titles, cells, strict=False):
        text = _whole(cell).strip()
        if title and text not in {"", NONE}:
            words.append(f"{title} {text}")
    return "  ".join(words)


def _whole(cell: Cell) -> str:
    """Returns a cell as text; a name with its scope before it, as the run spells it."""
    if isinstance(cell, ScopedName):
        name = cell.name.plain
        return clean(f"{cell.scope}/{name}" if cell.scope else name)
    return clean(cell if isinstance(cell, str) else cell.plain)


NAME = "tdbg-report.md"


class Reporter:
    """Asks for a file name and writes the report there; nothing is checked again."""

    def __init__(self, context: Context, typed: str) -> None:
        """``typed`` is the path as the user typed it, for the command that reproduces the report."""
        self._context = context
        self._typed = typed

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Returns actions by id."""
        return {"report": self.ask}

    def ask(self) -> None:
        """Asks where to write it."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        result = self._context.state.result
        if result is None or not result.pairs or not result.watchpoints:
            self._context.say(
                f"nothing was checked yet: {key_of('recheck')} checks this step, {key_of('recheck_all')} everything; "
                f"{key_of('new_watchpoint')} makes a watchpoint",
                bad=True,
            )
            return
        dump = Path(self._context.session.info.path)

        def given(text: str | None) -> None:
            if text is not None:
                self._write(result, Path(text.strip()).expanduser(), dump)

        note = "Markdown, for a bug report; of what the hit list shows; nothing is overwritten"
        self._context.app.push_screen(
            TextPrompt("Write a report", NAME, lambda text: problem(text, dump), note=note), given
        )

    def _write(self, result: CheckResult, path: Path, dump: Path) -> None:
        session, typed = self._context.session, self._typed

        def job(progress: Report) -> Path:
            from tui_debugger.check.verdicts import judge
            from tui_debugger.diagnose.report import gather, markdown
            from tui_debugger.session.live import LiveSession

            found_by = "" if isinstance(session, LiveSession) else typed
            text = markdown(gather(session, found_by, result, judge(result), progress))
            with fresh_text(path, dump) as file:
                file.write(text)
            return path

        work = self._context.work
        work.run("report", job, lambda written: self._context.say(f"wrote {written}"), self._failed)
        work.show_progress("report", Progress(0, 0, "report"))  # so that Esc stops it from the beginning

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError):
            self._context.say("stopped: no report was written")
        else:
            self._context.show_error(error)


def problem(text: str, dump: Path) -> str | None:
    """Says what is wrong with a path for the report."""
    from tui_debugger.tui.views.export import check_path

    wrong = check_path(text)
    if wrong:
        return wrong
    try:
        checked_target(Path(text.strip()), dump)
    except TdbgError as error:
        return error.what
    return None
