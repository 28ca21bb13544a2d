"""The selected node: its tensors, its stack, values, export, source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.timer import Timer

from tui_debugger.model import Side, TensorKey
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import short_names, step_text
from tui_debugger.tui.answers import Saved, StackIndexed, TensorsListed
from tui_debugger.tui.views.export import check_path, stem_of
from tui_debugger.tui.views.registry import Focus
from tui_debugger.tui.work import Report

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.session import Session, TensorRow
    from tui_debugger.tui.main_screen import MainScreen


QUIET = 0.06
"""Seconds without a cursor key before the other panes follow: holding a key must stay cheap over a slow line."""


class Inspector:
    """Fills the tensor table and the stack list for the selected node."""

    def __init__(self, desk: MainScreen) -> None:
        """Nothing selected."""
        self._desk = desk
        self._timer: Timer | None = None
        self._shown: tuple[int, int] | None = None
        self._listed: tuple[int, int | None, int] | None = None
        self.wanted: tuple[str, int, int] | None = None

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {
            "stack_mode": self._desk.stack_pane.toggle_mode,
            "source": self.show_source,
            "export": self.export_tensor,
            "export_hit": self.export_hit,
            "producer": self.go_to_producer,
            "consumers": self.go_to_consumer,
        }

    @property
    def _session(self) -> Session:
        return self._desk.opened_session

    # -- tensors and stack -----------------------------------------------------------------------

    def show_node(self, row: int) -> None:
        """Selects a node; the panes follow after a short quiet."""
        self._desk.state.row = row
        self._stop_timer()
        self._timer = self._desk.set_timer(QUIET, self._load)

    @property
    def pending(self) -> bool:
        """Whether the panes have yet to follow the cursor."""
        return self._timer is not None

    @property
    def up_to_date(self) -> bool:
        """Whether the tensor table shows the selected node at the current step."""
        state = self._desk.state
        return self._listed == (state.rank, state.step, state.row)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def forget(self) -> None:
        """The rank changed: no node is selected."""
        self._stop_timer()
        self._shown = self._listed = None
        self._desk.tensors_pane.show("", (), measured=True, empty="no node selected")
        self._desk.stack_pane.show_node((), "no node selected")

    def _load(self) -> None:
        self._timer = None
        desk, session = self._desk, self._session
        state, nodes = desk.state, desk.nodes_pane.nodes
        rank, step, row = state.rank, state.step, state.row
        if nodes is None or not 0 <= row < len(nodes):
            return
        self._show_stack(row)
        if step is None:
            desk.tensors_pane.show(self._named(nodes, row), (), measured=True, empty=f"no step is {desk.KEPT}")
            return

        def work(report: Report) -> TensorsListed:
            rows = session.tensor_rows(rank, step, row, every=True)
            if (rank, row) != self._shown:
                report.tell(TensorsListed(rank, step, row, rows, measured=False))
            return TensorsListed(rank, step, row, session.measure(rows, report), measured=True)

        desk.bridge.run("tensors", work)

    def _show_stack(self, row: int) -> None:
        nodes = self._desk.nodes_pane.nodes
        if nodes is None or self._shown == (self._desk.state.rank, row):
            return
        reason = "this node has no source stack" if len(nodes.stacks) else "there are no source stacks"
        self._desk.stack_pane.show_node(nodes.stack(row), reason)

    def listed(self, message: TensorsListed) -> None:
        """Tensors are there, first without, then with statistics."""
        desk, nodes = self._desk, self._desk.nodes_pane.nodes
        state = desk.state
        if nodes is None or (message.rank, message.step, message.row) != (state.rank, state.step, state.row):
            return
        self._shown = (message.rank, message.row)
        self._listed = (message.rank, message.step, message.row)
        empty = f"nothing of this node is {desk.KEPT} at step {step_text(message.step)}"
        pane = desk.tensors_pane
        pane.show(self._named(nodes, message.row), message.rows, measured=message.measured, empty=empty)
        if self.wanted is not None and pane.move_to_slot(*self.wanted):
            self.wanted = None if message.measured else self.wanted

    @staticmethod
    def _named(nodes: NodeTable, row: int) -> str:
        """The node's name; with its graph before it where there are several."""
        graph = short_names(info.name for info in nodes.graphs)[nodes.graph_of(row).name]
        return f"graph {graph} · {nodes.names[row]}" if len(nodes.graphs) > 1 else nodes.names[row]

    # -- values ----------------------------------------------------------------------------------

    def show_values(self, row: TensorRow, focus: Focus | None = None) -> None:
        """The values of a tensor; ``focus`` says where to look, for one that is not in the tensor table."""
        if not row.has_value:
            why = "only its statistics were recorded" if row.recorded else "it was not dumped at this step"
            self._desk.say(f"no values to show: {row.error or why}", bad=True)
            return
        from tui_debugger.tui.values.screen import ValuesScreen

        focus = focus or self._desk.views.of_row(row) or Focus(row.key, -1)
        self._desk.app.push_screen(ValuesScreen(self._desk.views, focus, row, self._previous(row, focus.row)))

    def open_values(self, focus: Focus) -> None:
        """The values of a tensor that is not in the tensor table."""
        session = self._session
        self._desk.ask_in(
            "values",
            lambda progress: session.measure((session.row_of(focus.key),), progress)[0],
            lambda row: self.show_values(row, focus),
            self._desk.show_error,
        )

    def _previous(self, row: TensorRow, at: int) -> TensorKey | None:
        """The tensor at the step before; ``at`` is its node's row."""
        return self._session.before(row.key) if row.has_previous and at >= 0 else None

    def export_tensor(self) -> None:
        """The tensor under the cursor as .npy."""
        row = self._desk.tensors_pane.current
        if row is None or not row.has_value:
            self._desk.say("no values to write here", bad=True)
        else:
            self._export(row.key)

    def export_hit(self) -> None:
        """The tensor of the hit under the cursor as .npy."""
        hit = self._desk.hits_pane.current
        if hit is not None:
            self._export(hit.key)

    def _export(self, key: TensorKey) -> None:
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        session = self._session

        def save(text: str | None) -> None:
            if text is not None:
                path = Path(text.strip()).expanduser()
                self._desk.bridge.run("save", lambda _: Saved(session.save_npy(key, path)))

        prompt = TextPrompt("Write as .npy", f"{stem_of(key)}.npy", check_path)
        self._desk.app.push_screen(prompt, save)

    # -- source ----------------------------------------------------------------------------------

    def search_stack(self, text: str) -> None:
        """The source lines of the run, once the pane shows them."""
        desk = self._desk
        if not desk.stack_pane.whole_run or desk.session is None:
            return
        from tui_debugger.graph.stacks import search
        from tui_debugger.tui.panes.stack import RunRows

        session, rank = self._session, desk.state.rank

        def work(_: Report) -> StackIndexed:
            index = session.stack_index(rank)
            return StackIndexed(rank, RunRows.of(search(index, text) if text else index))

        desk.bridge.run("stack", work)

    def indexed(self, message: StackIndexed) -> None:
        """The answer."""
        self._desk.stack_pane.show_run(message.rows)

    def show_source(self) -> None:
        """The frames of the node (or the line of the run) with the source around them."""
        from tui_debugger.tui.dialogs.source import SourceScreen

        desk, pane, session = self._desk, self._desk.stack_pane, self._session
        frame = pane.frame
        if frame is None:
            desk.say("no source line here", bad=True)
            return
        nodes, row = desk.nodes_pane.nodes, desk.state.row
        whole = pane.whole_run or nodes is None or row < 0
        frames = (frame,) if whole or nodes is None else nodes.stack(row)
        title = f"{frame.path}:{frame.line}" if whole or nodes is None else nodes.names[row]
        focus = 0 if whole else min(pane.table.cursor_row, len(frames) - 1)
        desk.app.push_screen(SourceScreen(title, frames, session.excerpt, focus=focus, run=desk.ask))

    # -- the data flow ---------------------------------------------------------------------------

    def go_to_producer(self) -> None:
        """The node that made the input under the cursor."""
        desk, row = self._desk, self._desk.tensors_pane.current
        if row is None or row.role == "out":
            desk.say("put the cursor on an input", bad=True)
            return
        producers = self._session.producers(desk.state.rank, desk.state.row)
        producer, slot = producers[row.slot] if row.slot < len(producers) else (-1, 0)
        if producer < 0:
            desk.say("the graph does not say where this input comes from", bad=True)
            return
        self.wanted = (Side.OUTPUT.label, slot, 0)
        desk.navigator.go_to_row(producer)

    def go_to_consumer(self) -> None:
        """One of the nodes that use this node's outputs."""
        from tui_debugger.tui.dialogs.prompts import ChoiceScreen

        desk, nodes = self._desk, self._desk.nodes_pane.nodes
        if nodes is None or desk.state.row < 0:
            return
        consumers = self._session.consumers(desk.state.rank, desk.state.row)
        if not consumers:
            desk.say("nothing uses this node's outputs, as far as the graph says", bad=True)
            return

        def go(index: int | None) -> None:
            if index is not None:
                consumer, slot = consumers[index]
                self.wanted = (Side.INPUT.label, slot, 0)
                desk.navigator.go_to_row(consumer)

        if len(consumers) == 1:
            go(0)
            return
        # The name first: a long scope must not push it out of the dialog.
        parts = [(nodes.names[consumer].rpartition("/"), slot) for consumer, slot in consumers]
        options = [f"{name}  in:{slot}  {scope}" for (scope, _, name), slot in parts]
        desk.app.push_screen(ChoiceScreen(f"{plural(len(consumers), 'use')} of this node", options), go)
