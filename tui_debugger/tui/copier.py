"""What leaves the main screen: what is under the cursor to the clipboard, the screen as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui_debugger.errors import TdbgError
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE
from tui_debugger.tui.widgets.text import Cell, Place

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.tui.desk import Desk


class Copier:
    """Copies from any pane: whole names, not what fits into a column."""

    def __init__(self, desk: Desk) -> None:
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
