"""The selected node: its tensors, its stack, values, export, source."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tui_debugger.model import TensorKey
from tui_debugger.text.tensors import short_names, step_text
from tui_debugger.tui.context import Context, Controller
from tui_debugger.tui.dialogs.prompts import TextPrompt
from tui_debugger.tui.export import check_path, file_stem
from tui_debugger.tui.work import JobProgress

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.session import TensorRow


@dataclass(frozen=True, eq=False)
class _ShownTensors:
    """The tensors of a node; ``measured`` is False before their statistics were computed."""

    rank: int
    step: int
    row: int
    rows: tuple[TensorRow, ...]
    measured: bool


@dataclass(eq=False)
class _UnmeasuredTensors:
    """The tensors of a node without statistics, to be shown first if measuring takes long.

    Attributes:
        found: the tensors, once they are listed.
        wanted: show them as soon as they are listed.
    """

    found: _ShownTensors | None = None
    wanted: bool = False


QUIET = 0.06
"""Seconds: cursor keys closer together mean a held key, and panes follow only when the cursor rests."""
SOON = 0.005
"""Seconds until the panes follow a single key: the cursor is drawn first, all panes in the next frame."""
SLOW = 0.02
"""Seconds of measuring after which a node's tensors are shown without their statistics."""
_FOLLOWING: Final = frozenset({"tensors", "stack"})
"""Panes that show the selected node."""
WAIT = 0.004
"""Seconds that the event loop waits for a node's tensors, so that tensors in memory are drawn with the cursor."""


class CursorFollower:
    """Calls ``follow`` soon after a single cursor key, but with a held key only once the cursor rests.

    Over a slow line a held key must stay cheap: only the cursor is drawn.
    """

    def __init__(
        self, context: Context, follow: Callable[[], None], *, at_once: Callable[[], bool] = lambda: False
    ) -> None:
        """Calls nothing yet.

        ``follow`` is called on the event loop. If ``at_once`` returns True after a single key, ``follow`` runs in the
        same frame as the cursor; use it for quick work on visible panes.
        """
        self._context = context
        self._follow = follow
        self._at_once = at_once
        self._next = False
        self._due: asyncio.TimerHandle | None = None
        self._moved = -math.inf

    def moved(self) -> None:
        if self._next:
            return
        now = asyncio.get_running_loop().time()
        held = now - self._moved < QUIET
        self._moved = now
        self.stop()
        if not held and self._at_once():
            self._next = True
            self._context.call_next(self._call)
        else:
            self._due = self._context.call_in(QUIET if held else min(SOON, QUIET), self._call)

    def hurry(self) -> None:
        """Makes a pending call before the next frame."""
        if self._due is not None:
            self.stop()
            self._next = True
            self._context.call_next(self._call)

    @property
    def pending(self) -> bool:
        """Tells whether a call is due."""
        return self._next or self._due is not None

    def stop(self) -> None:
        self._next = False
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _call(self) -> None:
        if self.pending:  # nobody stopped it
            self.stop()
            self._follow()


class Inspector(Controller):
    """Fills the tensor table and the stack list for the selected node."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._follower = CursorFollower(context, self._load, at_once=self._in_sight)
        self._counter = CursorFollower(context, self.count_hits)
        self._slow: asyncio.TimerHandle | None = None
        self._listing: _UnmeasuredTensors | None = None
        self._shown: tuple[int, int] | None = None
        self._stack_of: tuple[NodeTable, int] | None = None
        self._listed: tuple[int, int | None, int] | None = None
        self._asked: tuple[int, int | None, int] | None = None
        self.wanted_slot: tuple[str, int, int] | None = None

    def act_stack_mode(self) -> None:
        self._context.stack_pane.toggle_mode()

    # -- tensors and stack -----------------------------------------------------------------------

    def show_node(self, row: int) -> None:
        """Selects a node; tensors and stack follow, see ``CursorFollower``."""
        state = self.state
        state.row = row
        if self._follower.pending or self._asked != (state.rank, state.step, row) or self.wanted_slot is not None:
            self._follower.moved()

    def _in_sight(self) -> bool:
        """Tells whether the tensor or stack pane is on the screen."""
        return not self._context.one_pane() or self._context.current_pane() in _FOLLOWING

    def came_into_sight(self, pane: str) -> None:
        """Fills a pane in time for the frame that shows it."""
        if pane in _FOLLOWING:
            self._follower.hurry()

    def show_anew(self) -> None:
        """Shows the selected node again: its tensors or their hits changed."""
        self._asked = None
        self.show_node(self.state.row)

    @property
    def pending(self) -> bool:
        """Tells whether the panes have yet to follow the cursor."""
        return self._follower.pending or self._counter.pending

    @property
    def up_to_date(self) -> bool:
        """Tells whether the tensor table shows the selected node at the current step."""
        state = self.state
        return self._listed == (state.rank, state.step, state.row)

    def forget(self) -> None:
        """Clears both panes after a change of the rank: no node is selected."""
        self._follower.stop()
        self._shown = self._stack_of = self._listed = self._asked = None
        self._context.tensors_pane.show("", (), measured=True, empty="no node selected")
        self._context.stack_pane.show_node((), "no node selected")

    def _load(self) -> None:
        context, session = self._context, self.session
        state, nodes = context.state, context.nodes_pane.nodes
        rank, step, row = state.rank, state.step, state.row
        if nodes is None or not 0 <= row < len(nodes):
            return
        self._asked = rank, step, row
        self._show_stack(row)
        if step is None:
            context.tensors_pane.show(self._named(nodes, row), (), measured=True, empty=f"no step is {context.kept}")
            return

        listing = _UnmeasuredTensors()

        def work(report: JobProgress) -> _ShownTensors:
            rows = session.tensor_rows(rank, step, row, every=True)
            listing.found = _ShownTensors(rank, step, row, rows, measured=False)
            if listing.wanted:
                report.partial(listing.found)
            return _ShownTensors(rank, step, row, session.measure(rows, report), measured=True)

        def slow() -> None:
            listing.wanted = self._listing is listing  # else this node was measured, or another node is being measured
            if listing.wanted and listing.found is not None:
                self._show_tensors(listing.found)

        self._measured()
        self._listing = listing
        if (rank, row) != self._shown:
            self._slow = context.call_in(SLOW, slow)
        context.work.run("tensors", work, self._show_tensors, in_header=False, wait=WAIT)

    def _measured(self) -> None:
        """Ends the wait for a measurement."""
        self._listing = None
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _show_stack(self, row: int) -> None:
        nodes = self._context.nodes_pane.nodes
        if nodes is None or (self._stack_of is not None and self._stack_of[0] is nodes and self._stack_of[1] == row):
            return
        self._stack_of = nodes, row
        reason = "this node has no source stack" if len(nodes.stacks) else "there are no source stacks"
        self._context.stack_pane.show_node(nodes.stack(row), reason)

    def _show_tensors(self, found: _ShownTensors) -> None:
        """Shows the tensors; called twice, first without statistics, if measuring takes long."""
        if found.measured:
            self._measured()
        context, nodes = self._context, self._context.nodes_pane.nodes
        state = context.state
        if nodes is None or (found.rank, found.step, found.row) != (state.rank, state.step, state.row):
            return
        self._shown = (found.rank, found.row)
        self._listed = (found.rank, found.step, found.row)
        empty = f"nothing of this node is {context.kept} at step {step_text(found.step)}"
        pane = context.tensors_pane
        pane.show(self._named(nodes, found.row), found.rows, measured=found.measured, empty=empty)
        if self.wanted_slot is not None and pane.move_to_slot(*self.wanted_slot):
            self.wanted_slot = None if found.measured else self.wanted_slot

    @staticmethod
    def _named(nodes: NodeTable, row: int) -> str:
        """Returns the node's name, after its graph's name if the rank has several graphs."""
        graph = short_names(info.name for info in nodes.graphs)[nodes.graph_of(row).name]
        return f"graph {graph} · {nodes.names[row]}" if len(nodes.graphs) > 1 else nodes.names[row]

    # -- export ----------------------------------------------------------------------------------

    def act_export(self) -> None:
        row = self._context.tensors_pane.current
        if row is None or not row.has_value:
            self.say("no values to write here", bad=True)
        else:
            self._export(row.key)

    def act_export_hit(self) -> None:
        hit = self._context.hits_pane.current
        if hit is not None:
            self._export(hit.key)

    def _export(self, key: TensorKey) -> None:
        session = self.session
        prompt = TextPrompt("Write as .npy", f"{file_stem(key)}.npy", check_path)
        self.ask_and_write(prompt, lambda path: session.save_npy(key, path))

    # -- source ----------------------------------------------------------------------------------

    def search_stack(self) -> None:
        """Searches the source lines of the run, if the stack pane shows them."""
        context = self._context
        pane = context.stack_pane
        if not pane.whole_run:
            pane.searched()
            return
        from tui_debugger.graph.stacks import search
        from tui_debugger.tui.panes.stack import SourceLineRows

        session, rank, pattern = self.session, context.state.rank, pane.pattern

        def work(_: JobProgress) -> SourceLineRows:
            index = session.stack_index(rank)
            return SourceLineRows.of(search(index, pattern.test) if pattern is not None else index)

        def done(rows: SourceLineRows) -> None:
            pane.show_run(rows)
            pane.searched()

        context.work.run("stack", work, done)

    def count_hits_soon(self) -> None:
        """Counts findings by source line a moment later, see ``CursorFollower``."""
        self._counter.moved()

    def count_hits(self) -> None:
        """Counts findings by source line; call it when results or the step changed."""
        from tui_debugger.tui.panes.stack import LineHits, line_hits

        context, session = self._context, self.session
        rank, step, result = context.state.rank, context.state.step, context.state.result

        def work(_: JobProgress) -> LineHits:
            if result is None or not len(result.hits):
                return LineHits()
            return line_hits(session.stack_index(rank), len(session.nodes(rank)), result, (rank, step))

        def done(found: LineHits) -> None:
            if rank == context.state.rank:
                context.stack_pane.show_hits(found)

        context.work.run("line hits", work, done, in_header=False)

    def act_source(self) -> None:
        from tui_debugger.tui.dialogs.pages import SourceScreen

        context, pane, session = self._context, self._context.stack_pane, self.session
        frame = pane.frame
        if frame is None:
            context.say("no source line here", bad=True)
            return
        nodes, row = context.nodes_pane.nodes, context.state.row
        whole = pane.whole_run or nodes is None or row < 0
        frames = (frame,) if whole or nodes is None else nodes.stack(row)
        title = f"{frame.path}:{frame.line}" if whole or nodes is None else nodes.names[row]
        focus = 0 if whole else min(pane.table.cursor_row, len(frames) - 1)
        context.app.push_screen(SourceScreen(title, frames, session.excerpt, focus=focus, run=context.ask))
