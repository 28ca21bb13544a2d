"""The main screen's part of the views: opens them for what is under the cursor, and works for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tui_debugger.model import Side, TensorKey
from tui_debugger.tui.views.registry import VIEW_BY_ID, VIEWS, About, Focus
from tui_debugger.tui.views.view import View

if TYPE_CHECKING:
    from tui_debugger.model import Hit, Progress, ProgressFn
    from tui_debugger.session import Session, TensorRow
    from tui_debugger.tui.main_screen import MainScreen
    from tui_debugger.tui.views.view import ViewChanges

NOWHERE = TensorKey(-1, "", "", Side.OUTPUT, 0, -1)
"""The tensor of a view that is about the run, when nothing is selected."""


class Views:
    """Opens views above the main screen. See ``view.Host``."""

    def __init__(self, desk: MainScreen) -> None:
        """Nothing open."""
        self._desk = desk

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {view.id: partial(self.open_here, view.id) for view in VIEWS}

    @property
    def session(self) -> Session:
        """The open session."""
        return self._desk.opened_session

    # -- what is under the cursor --------------------------------------------------------------------

    def here(self) -> Focus | None:
        """The tensor under the cursor: of the hit, of the tensor table, else the first one of the selected node."""
        desk = self._desk
        if desk.current_pane == "hits":
            hit = desk.hits_pane.current
            return Focus.of_hit(hit) if hit is not None else None
        if desk.current_pane == "nodes" and desk.nodes_pane.current_row < 0:
            return None  # a scope: what the tensor table still shows is another node's
        if not desk.inspector.up_to_date:
            return self._selected()
        row = desk.tensors_pane.current
        if desk.current_pane == "nodes" and (row is None or row.role != Side.OUTPUT.label):
            row = next((each for each in desk.tensors_pane.rows_shown if each.role == Side.OUTPUT.label), row)
        return self.of_row(row) if row is not None else None

    def of_row(self, row: TensorRow) -> Focus | None:
        """The tensor of a row of the tensor table."""
        nodes = self._desk.nodes_pane.nodes
        at = nodes.find(row.key.node, row.key.graph) if nodes is not None else -1
        if at < 0:
            return None
        return Focus(row.key, at, self._hit(row.key, at) if row.hit else None)

    def _selected(self) -> Focus | None:
        """The tensor that the tensor table is about to show: a fast typist is ahead of it."""
        state, nodes = self._desk.state, self._desk.nodes_pane.nodes
        if nodes is None or state.step is None or not 0 <= state.row < len(nodes):
            return None
        label, slot, number = self._desk.inspector.wanted or (Side.OUTPUT.label, 0, 0)
        side = Side.OUTPUT if label == Side.OUTPUT.label else Side.INPUT
        key = TensorKey(
            state.rank, nodes.graph_of(state.row).name, nodes.names[state.row], side, slot, state.step, number
        )
        return Focus(key, state.row, self._hit(key, state.row))

    def _hit(self, key: TensorKey, row: int) -> Hit | None:
        """What the hit list says about a tensor."""
        result = self._desk.state.result
        found = result.hits.of_nodes([row]) if result is not None else ()
        return next((hit for hit in found if hit.key == key), None)

    def open_here(self, view: str) -> None:
        """Opens a view of what is under the cursor."""
        focus = self.here()
        if focus is None and VIEW_BY_ID[view].about is About.TENSOR:
            self._desk.say("no tensor under the cursor: choose a node, a hit or a tensor", bad=True)
            return
        self.open(view, focus or Focus(NOWHERE, -1))

    def tell(self, news: ViewChanges) -> None:
        """The run changed, or more of it was checked: every open view takes in what concerns it."""
        for screen in self._desk.app.screen_stack:
            if isinstance(screen, View):
                screen.tell(news)

    # -- for the views -------------------------------------------------------------------------------

    def open(self, view: str, focus: Focus) -> None:
        """See ``view.Host``."""
        focus = self._placed(focus)
        if view == "values":
            self._desk.inspector.open_values(focus)
        elif focus.row < 0 and VIEW_BY_ID[view].about is About.TENSOR:
            self._desk.say("no tensor under the cursor", bad=True)
        else:
            self._desk.app.push_screen(VIEW_BY_ID[view].load()(self, focus))

    def _placed(self, focus: Focus) -> Focus:
        """The same with the row that its node has now: a graph that came late numbers the nodes anew."""
        key, row = focus.key, focus.row
        if row < 0:
            return focus
        nodes = self.session.nodes(key.rank)
        there = row < len(nodes) and nodes.names[row] == key.node and nodes.graph_of(row).name == key.graph
        return focus if there else replace(focus, row=nodes.find(key.node, key.graph))

    def go_to(self, focus: Focus) -> None:
        """See ``view.Host``."""
        desk = self._desk
        while desk.app.screen is not desk and len(desk.app.screen_stack) > 1:
            desk.app.pop_screen()
        focus = self._placed(focus)
        if focus.row >= 0:
            desk.navigator.go_to_tensor(focus.key, focus.row)
            desk.focus_pane("tensors")

    def run(
        self,
        view: View,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        told: Callable[[Progress], None],
    ) -> None:
        """See ``view.Host``."""
        self._desk.ask_in(self._lane(view), work, done, failed, told)

    def stop(self, view: View) -> bool:
        """See ``view.Host``."""
        return self._desk.bridge.cancel(self._lane(view))

    def _lane(self, view: View) -> str:
        """One lane for every place in the pile of screens: what a view below works on goes on."""
        pile = self._desk.app.screen_stack
        return f"view {pile.index(view) if view in pile else len(pile)}"
