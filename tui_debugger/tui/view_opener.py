"""Opens views for the tensor under the cursor of the main screen, and runs their work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tui_debugger.model import Side, TensorKey, Verdict
from tui_debugger.tui import actions
from tui_debugger.tui.context import Context, Controller
from tui_debugger.tui.views.registry import VIEW_BY_ID, VIEWS, ViewSubject, ViewTarget
from tui_debugger.tui.views.view import View

if TYPE_CHECKING:
    from tui_debugger.model import Hit, Progress, ProgressFn
    from tui_debugger.session import TensorRow
    from tui_debugger.session.comparison import ComparedRun, RunComparison
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.navigator import Navigator

NOWHERE = TensorKey(-1, "", "", Side.OUTPUT, 0, -1)
"""The key of a view that is about the whole run, when no tensor is selected."""


class ViewOpener(Controller):
    """Opens views above the main screen; implements ``view.ViewHost``."""

    def __init__(self, context: Context, inspector: Inspector, navigator: Navigator) -> None:
        super().__init__(context)
        self._inspector = inspector
        self._navigator = navigator
        self.comparison: RunComparison | None = None

    def handlers(self) -> dict[str, Callable[[], None]]:
        return {view.id: partial(self.open_here, view.id) for view in VIEWS} | actions.methods_of_keys(self)

    # -- what is under the cursor --------------------------------------------------------------------

    def here(self) -> ViewTarget | None:
        """Returns the tensor under the cursor: of a hit, of a table row, or the worst tensor of a node."""
        context = self._context
        if context.current_pane() == "hits":
            hit = context.hits_pane.current
            return ViewTarget.of_hit(hit) if hit is not None else None
        if context.current_pane() == "nodes":
            return self._of_entry()
        if not self._inspector.up_to_date:
            return self._selected()
        row = context.tensors_pane.current
        return self.of_row(row) if row is not None else None

    def _of_entry(self) -> ViewTarget | None:
        """Returns the tensor of the first origin below the cursor of the node tree, else of the first finding.

        Findings at the current step come first; only a scope falls back to other steps. A node without a finding stands
        for its first output, else its current row in the tensor table. A scope without a finding gives None.
        """
        context = self._context
        pane, state = context.nodes_pane, context.state
        if pane.scopes is None or pane.current < 0:
            return None
        hits = state.result.hits if state.result is not None else None
        if hits is not None:
            below = pane.scopes.rows_below(pane.current)
            mine = np.isin(hits.node, below) & (hits.rank == state.rank) & (hits.verdict == Verdict.FINDING)
            here = mine & hits.at(state.rank, state.step)
            chosen = mine if not here.any() and pane.current_row < 0 else here
            found = np.flatnonzero(chosen & hits.origin) if (chosen & hits.origin).any() else np.flatnonzero(chosen)
            if len(found):
                return ViewTarget.of_hit(hits[int(found[0])])
        if pane.current_row < 0:
            return None
        if not self._inspector.up_to_date:
            return self._selected()
        outputs = (each for each in context.tensors_pane.rows_shown if each.role == Side.OUTPUT.label)
        row = next(outputs, context.tensors_pane.current)
        return self.of_row(row) if row is not None else None

    def _scope_here(self) -> ViewTarget | None:
        """Returns the scope under the cursor of the node tree, with its first operator."""
        pane, state = self._context.nodes_pane, self.state
        if self._context.current_pane() != "nodes" or pane.current_row >= 0 or state.step is None:
            return None
        row = pane.first_operator()
        if row < 0 or pane.nodes is None or pane.scopes is None:
            return None
        return ViewTarget(pane.nodes.key(state.rank, state.step, row), row, scope=pane.scopes.path(pane.current))

    def of_row(self, row: TensorRow) -> ViewTarget | None:
        nodes = self._context.nodes_pane.nodes
        at = nodes.find(row.key.node, row.key.graph) if nodes is not None else -1
        if at < 0:
            return None
        return ViewTarget(row.key, at, self._hit(row.key, at) if row.hit else None)

    def _selected(self) -> ViewTarget | None:
        """Returns the tensor that the tensor table will show for the selected node, while the table is being filled."""
        state, nodes = self.state, self._context.nodes_pane.nodes
        if nodes is None or state.step is None or not 0 <= state.row < len(nodes):
            return None
        label, slot, number = self._inspector.wanted_slot or (Side.OUTPUT.label, 0, 0)
        side = Side.OUTPUT if label == Side.OUTPUT.label else Side.INPUT
        key = TensorKey(
            state.rank, nodes.graph_of(state.row).name, nodes.names[state.row], side, slot, state.step, number
        )
        return ViewTarget(key, state.row, self._hit(key, state.row))

    def _hit(self, key: TensorKey, row: int) -> Hit | None:
        result = self.state.result
        found = result.hits.of_nodes([row]) if result is not None else ()
        return next((hit for hit in found if hit.key == key), None)

    def open_here(self, view: str) -> None:
        target = (self._scope_here() if view == "relations" else None) or self.here()
        if target is None and VIEW_BY_ID[view].about is ViewSubject.TENSOR:
            self.say("no tensor under the cursor: choose a node, a hit or a tensor", bad=True)
            return
        self.open(view, target or ViewTarget(NOWHERE, -1))

    def act_loss(self) -> None:
        from tui_debugger.tui.views.trend import TrendView

        target = self.here()
        if target is None or not self.session.run_notes(target.key.rank).names():
            self.say("no loss is known: the program noted none, and none was recognised in the steps checked", bad=True)
        else:
            self._context.app.push_screen(TrendView(self, self._with_current_row(target), notes_first=True))

    def compare_with(self, against: ComparedRun) -> None:
        from tui_debugger.session import comparison  # imported only when needed: the first frame does without

        self.comparison = comparison.RunComparison(self.session, against)
        self.open("runs", ViewTarget(NOWHERE, -1))

    def close(self) -> None:
        if self.comparison is not None:
            self.comparison.close()

    # -- values --------------------------------------------------------------------------------------

    def show_values(self, row: TensorRow, target: ViewTarget | None = None) -> None:
        """Opens the values of a tensor; ``target`` is needed for a tensor that is not in the tensor table."""
        if not row.has_value:
            why = "only its statistics were recorded" if row.recorded else "it was not dumped at this step"
            self.say(f"no values to show: {row.error or why}", bad=True)
            return
        from tui_debugger.tui.values.screen import ValuesScreen

        target = target or self.of_row(row) or ViewTarget(row.key, -1)
        previous = self.session.before(row.key) if row.has_previous and target.row >= 0 else None
        self._context.app.push_screen(ValuesScreen(self, target, row, previous))

    def open_values(self, target: ViewTarget) -> None:
        session = self.session
        self.work.run(
            "values",
            lambda progress: session.measure((session.row_of(target.key),), progress)[0],
            lambda row: self.show_values(row, target),
            self._context.show_error,
            lambda _: None,
        )

    # -- for the views -------------------------------------------------------------------------------

    def open(self, view: str, target: ViewTarget) -> None:
        target = self._with_current_row(target)
        if view == "values":
            self.open_values(target)
        elif target.row < 0 and VIEW_BY_ID[view].about is ViewSubject.TENSOR:
            self.say("no tensor under the cursor", bad=True)
        else:
            self._context.app.push_screen(VIEW_BY_ID[view].load()(self, target))

    def _with_current_row(self, target: ViewTarget) -> ViewTarget:
        """Returns the target with its node's current row: a graph that is loaded later renumbers the nodes."""
        key, row = target.key, target.row
        if row < 0:
            return target
        nodes = self.session.nodes(key.rank)
        there = row < len(nodes) and nodes.names[row] == key.node and nodes.graph_of(row).name == key.graph
        return target if there else replace(target, row=nodes.find(key.node, key.graph))

    def go_to(self, target: ViewTarget) -> None:
        context = self._context
        while len(context.app.screen_stack) > 1:
            context.app.pop_screen()
        target = self._with_current_row(target)
        if target.row >= 0:
            self._navigator.go_to_tensor(target.key, target.row)
            context.focus_pane("tensors")

    def run(
        self,
        view: View,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        progressed: Callable[[Progress], None],
    ) -> None:
        self.work.run(self._lane(view), work, done, failed, progressed)

    def stop(self, view: View) -> bool:
        return self.work.cancel(self._lane(view))

    def _lane(self, view: View) -> str:
        """Returns a lane for each place in the stack of screens, so that the work of a view below goes on."""
        screens = self._context.app.screen_stack
        return f"view {screens.index(view) if view in screens else len(screens)}"
