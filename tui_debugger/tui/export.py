"""Everything that leaves the screen: the clipboard, files, pictures of the screen, a report in Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy.typing as npt

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress
from tui_debugger.session.export_files import checked_target, fresh_text
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.numbers import NONE, plural
from tui_debugger.text.phrases import tail
from tui_debugger.text.tensors import shape_text
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.context import Context, Controller
from tui_debugger.tui.dialogs.prompts import TextPrompt, path_check, typed_path
from tui_debugger.tui.widgets.text import Cell, ScopedName

if TYPE_CHECKING:
    from textual.app import App

    from tui_debugger.check.types import TensorRow
    from tui_debugger.model import TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.work import JobProgress


Cells = Sequence[object]
TENSOR_HEADER = ("dtype", "shape", "nan", "inf", "min", "max")
"""The column titles of ``tensor_fields``."""


class RowsOnDemand(Sequence[Cells]):
    """Rows of a table that are made when they are written: ``row`` makes one of ``count`` rows."""

    def __init__(self, count: int, row: Callable[[int], Cells]) -> None:
        self._numbers = range(count)
        self._row = row

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Cells: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Cells]: ...
    def __getitem__(self, at: int | slice) -> Cells | Sequence[Cells]:
        return [*map(self._row, self._numbers[at])] if isinstance(at, slice) else self._row(self._numbers[at])


@dataclass(frozen=True, slots=True)
class Extract:
    """The content of a view for copy and export.

    Attributes:
        stem: file name without suffix, of safe characters only.
        text: everything that the view says, without control characters; Markdown if ``markdown``.
        one: the thing under the cursor, for the clipboard: a value, a name, a line.
        header, rows: a table for .csv; an empty header: no table. Numbers stay numbers. ``rows`` may be lazy.
        array: returns the values for .npy; None if the view shows none.
    """

    stem: str
    text: str
    one: str = ""
    header: tuple[str, ...] = ()
    rows: Sequence[Cells] = ()
    array: Callable[[], npt.NDArray[Any]] | None = None
    markdown: bool = False


def file_stem(key: TensorKey, view: str = "") -> str:
    """Returns a safe file name without suffix for a tensor and the name of a view; without a view, for its values."""
    node = re.sub(r"[^A-Za-z0-9._-]+", "_", tail(key.node))[:80]
    number = f".round{key.round}" if key.round else ""
    return f"{node}.{key.side.label}{key.slot}.rank{key.rank}.step{key.step}{number}" + (f".{view}" if view else "")


def tensor_fields(row: TensorRow) -> tuple[object, ...]:
    """Returns dtype, shape and statistics of a tensor for a table: see ``TENSOR_HEADER``."""
    meta, stats = row.meta, row.stats
    kind = (meta.dtype, shape_text(meta.shape)) if meta is not None else ("", "")
    return (*kind, *((stats.nan, stats.inf, stats.minimum, stats.maximum) if stats is not None else (None,) * 4))


LIMIT = 74_994
"""Most bytes of UTF-8. Base64 makes 99,992 of them; some terminals cut or drop sequences above 100,000."""


def copy_to_clipboard(app: App[object], text: str) -> str:
    """Sends cleaned text to the terminal's clipboard (OSC 52); returns the message for the user.

    Terminals do not answer, so the message names the condition under which the copy works.

    Raises:
        TdbgError: the text is longer than ``LIMIT``; nothing was copied.
    """
    safe = clean_lines(text)
    size = len(safe.encode())
    if size > LIMIT:
        raise TdbgError(
            f"{size:,} bytes are too much for the clipboard of a terminal (at most {LIMIT:,})",
            hint="export to a file instead",
        )
    app.copy_to_clipboard(safe)
    condition = "tmux needs set-clipboard on" if os.environ.get("TMUX") else "the terminal must allow OSC 52"
    return f"copied {plural(len(safe), 'character')} ({condition})"


_WEB_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_TRIES = 100


def svg_of(app: App[object]) -> str:
    """Returns a picture of the screen as it is now, without the web font that Textual's SVG would load."""
    return _WEB_FONT.sub("", app.export_screenshot(title="tdbg"))


def save_picture(app: App[object], name: str, dump: Path) -> Path:
    """Writes ``tdbg-NAME-TIME.svg`` into the working directory; a second picture within a second gets a number.

    Raises:
        TdbgError: the working directory lies inside the dump, or cannot be written to.
    """
    picture = svg_of(app)
    stem = f"tdbg-{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in range(1, _TRIES):
        path = Path.cwd() / f"{stem}{'' if number == 1 else f'-{number}'}.svg"
        if not path.exists():
            with fresh_text(path, dump) as file:
                file.write(picture)
            return path
    raise TdbgError("there are too many pictures of this second", where=f"{stem}.svg", hint="wait a second")


def _unwritable(path: Path) -> str | None:
    if path.is_dir():
        return "this is a directory"
    if path.exists():
        return "this file exists; nothing is overwritten"
    return None if path.parent.is_dir() else "its directory does not exist"


check_path = path_check(_unwritable, "a file name is needed")
"""Returns the problem with a path to write to; None if it can be written."""


ShowMessage = Callable[[str], object]


def screenshot(app: App[object], name: str, dump: Path, say: ShowMessage, failed: ShowMessage | None = None) -> None:
    """Writes a picture of the screen into the working directory; ``failed`` shows an error (default: ``say``)."""
    try:
        path = save_picture(app, name, dump)
    except TdbgError as error:
        (failed or say)(str(error))
    else:
        say(f"wrote {path}")


def suffixes(extract: Extract) -> tuple[str, ...]:
    """Returns the formats of a view's content, the default format first."""
    has = {
        ".md": extract.markdown,
        ".npy": extract.array is not None,
        ".csv": bool(extract.header),
        ".txt": not extract.markdown,
        ".svg": True,
    }
    return tuple(suffix for suffix, there in has.items() if there)


def listed(forms: tuple[str, ...]) -> str:
    return f"{', '.join(forms[:-1])} or {forms[-1]}"


def export_problem(forms: tuple[str, ...], dump: Path, text: str) -> str | None:
    wrong = check_path(text)
    if wrong is None and typed_path(text).suffix.lower() not in forms:
        wrong = f"this view can be written as {listed(forms)}"
    return wrong or report_path_problem(text, dump)


def write_picture(picture: str, path: Path, dump: Path) -> Path:
    with fresh_text(path, dump) as file:
        file.write(picture)
    return path


class Copier(Controller):
    """Copies from any pane, with whole names."""

    def act_copy_here(self) -> None:
        text = self.text_here()
        if not text:
            self.say("nothing under the cursor", bad=True)
            return
        try:
            self.say(copy_to_clipboard(self._context.app, text))
        except TdbgError as error:
            self.say(error.what, bad=True)

    def act_screenshot(self) -> None:
        context = self._context
        dump = Path(context.session.info.path)
        screenshot(context.app, context.current_pane(), dump, context.say, lambda text: context.say(text, bad=True))

    def text_here(self) -> str:
        """Returns the node or scope, the source line, the watchpoint as for --watch, or the row of a table."""
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
        """Returns the tensor's node, after its graph's name if the rank has several graphs."""
        graph = f"{key.graph}/" if self.session.graph_names([key.rank]) else ""
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
        found = None if number is None else self.session.watchpoints.get(number)
        return "" if found is None else format_watch(found)


def row_text(titles: Sequence[str], cells: Sequence[Cell]) -> str:
    """Returns a row with its column titles, without empty cells: ``step 3  node Default/net/Log-op1  …``."""
    words = []
    for title, cell in zip(titles, cells, strict=False):
        text = _whole(cell).strip()
        if title and text not in {"", NONE}:
            words.append(f"{title} {text}")
    return "  ".join(words)


def _whole(cell: Cell) -> str:
    """Returns a cell as text; a scoped name as ``scope/name``."""
    if isinstance(cell, ScopedName):
        name = cell.name.plain
        return clean(f"{cell.scope}/{name}" if cell.scope else name)
    return clean(cell if isinstance(cell, str) else cell.plain)


REPORT_NAME = "tdbg-report.md"


class ReportExporter(Controller):
    """Asks for a file name and writes the report there; nothing is checked again."""

    def __init__(self, context: Context, typed: str) -> None:
        """``typed``: the path as typed, for the command in the report; empty: the report has no command."""
        super().__init__(context)
        self._typed = typed

    def act_report(self) -> None:
        result = self.state.result
        if result is None or not result.pairs or not result.watchpoints:
            self.say(
                f"nothing was checked yet: {key_of('recheck')} checks this step, {key_of('recheck_all')} everything; "
                f"{key_of('new_watchpoint')} makes a watchpoint",
                bad=True,
            )
            return
        dump = Path(self.session.info.path)

        note = "Markdown, for a bug report; of what the hit list shows; nothing is overwritten"
        prompt = TextPrompt("Write a report", REPORT_NAME, lambda text: report_path_problem(text, dump), note=note)
        prompt.ask(self._context.app, lambda text: self._write(result, typed_path(text), dump))

    def _write(self, result: CheckResult, path: Path, dump: Path) -> None:
        session, typed = self.session, self._typed

        def job(progress: JobProgress) -> Path:
            from tui_debugger.check.verdicts import judge
            from tui_debugger.diagnose.report import gather, markdown

            text = markdown(gather(session, typed, result, judge(result), progress))
            with fresh_text(path, dump) as file:
                file.write(text)
            return path

        work = self.work
        work.run("report", job, lambda written: self.say(f"wrote {written}"), self._failed)
        work.show_progress("report", Progress(0, 0, "report"))  # Esc can stop it from the beginning

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError):
            self.say("stopped: no report was written")
        else:
            self._context.show_error(error)


def report_path_problem(text: str, dump: Path) -> str | None:
    """Returns the problem with a path for the report; None if it can be written."""
    wrong = check_path(text)
    if wrong:
        return wrong
    try:
        checked_target(typed_path(text), dump)
    except TdbgError as error:
        return error.what
    return None
