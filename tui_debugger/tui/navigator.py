"""Where we are: ranks, steps, graphs, nodes, hits, and what restricts the node list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.check.results import is_closed, part_text
from tui_debugger.graph.search import NodeQuery
from tui_debugger.model import Category, GraphRun, Hit, TensorKey
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import short_names
from tui_debugger.tui.answers import NodesFiltered, NodesLoaded
from tui_debugger.tui.labels import CATEGORIES
from tui_debugger.tui.messages import Settled
from tui_debugger.tui.work import Report

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.session import Session
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.main_screen import MainScreen


class Navigator:
    """Moves through the run."""

    def __init__(self, desk: MainScreen, rank: int | None, step: int | None) -> None:
        """``rank`` and ``step`` are where to start, when the run has them."""
        self._desk = desk
        self._first_rank = rank
        self._first_step = step
        self._graphs: set[str] = set()
        self._shape: tuple[bool, dict[str, str]] = (False, {})

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {
            "step": self.ask_step,
            "step_back": lambda: self.step_by(-1),
            "step_forward": lambda: self.step_by(1),
            "rank_back": lambda: self.rank_by(-1),
            "rank_forward": lambda: self.rank_by(1),
            "graph_back": lambda: self.graph_by(-1),
            "graph_forward": lambda: self.graph_by(1),
            "history": self.show_history,
            "next_hit": lambda: self.hit_by(1),
            "previous_hit": lambda: self.hit_by(-1),
            "next_origin": self.next_origin,
            "filter_nodes": self.ask_filter,
            "clear_filter": self.clear_filter,
            "notices": self.show_notices,
        }

    @property
    def _session(self) -> Session:
        return self._desk.opened_session

    # -- opening and growing ---------------------------------------------------------------------

    def opened(self) -> None:
        """The session is there: goes to the first rank and step."""
        state, session = self._desk.state, self._session
        ranks = session.ranks()
        near_rank, near_step = session.source.focus
        state.rank = first_of(ranks, self._first_rank, near_rank) or 0
        steps = session.steps(state.rank)
        state.step = first_of(steps, self._first_step, near_step)
        missing = [
            f"{word} {wanted}"
            for word, wanted, found in (("rank", self._first_rank, ranks), ("step", self._first_step, steps))
            if wanted is not None and wanted not in found
        ]
        if missing:
            self._desk.say(f"{' and '.join(missing)} not in this dump", bad=True)
        self.show_run()
        if ranks:
            self.load_nodes()

    def load_nodes(self) -> None:
        """Reads the nodes of the current rank."""
        session, rank = self._session, self._desk.state.rank

        def work(report: Report) -> NodesLoaded:
            nodes = session.nodes(rank, report)
            tree = session.tree(rank)
            return NodesLoaded(
                rank, nodes, tree, node_notes(nodes), ~tree.any_below(nodes.category != Category.CONSTANT)
            )

        self._desk.bridge.run("nodes", work)

    def nodes_loaded(self, message: NodesLoaded) -> None:
        """Nodes are there: applies the filter, marks, and goes to a hit that waited for them."""
        desk = self._desk
        desk.nodes_pane.show(message)
        self.show_run()
        steps = [run.step for run in self._session.history(message.rank)]
        desk.state.unordered = any(later < earlier for earlier, later in pairwise(steps))
        self.apply_query()
        desk.watcher.mark()
        goal, desk.state.goal = desk.state.goal, None
        if goal is not None:
            self.go_to_tensor(*goal)
        elif desk.nodes_pane.current_row >= 0:
            desk.inspector.show_node(desk.nodes_pane.current_row)
        desk.inspector.search_stack(desk.stack_pane.search_text)
        desk.post_message(Settled())

    def show_run(self) -> None:
        """Tells the hit list which ranks and graphs there are to tell apart."""
        desk = self._desk
        nodes = desk.nodes_pane.nodes
        self._graphs |= {info.name for info in nodes.graphs} if nodes is not None else set()
        shape = len(self._session.ranks()) > 1, short_names(self._graphs) if len(self._graphs) > 1 else {}
        if shape != self._shape:
            self._shape = shape
            desk.hits_pane.set_run(many_ranks=shape[0], graphs=shape[1])

    def refreshed(self, changes: Changes) -> None:
        """The dump grew. Nothing moves under the cursor."""
        desk = self._desk
        state = desk.state
        if changes.new_ranks:
            self.show_run()
        if changes.new_nodes:
            self.load_nodes()
        if state.step is None:
            self.opened()
            desk.checker.opened()
            return
        if (state.rank, state.step) in changes.grown_steps and state.row >= 0:
            desk.inspector.show_node(state.row)
        desk.checker.changed()

    # -- steps, ranks, graphs --------------------------------------------------------------------

    def set_step(self, step: int) -> None:
        """Step reset: goes to a step and shows its hits when they are known or quick."""
        self.place(self._desk.state.rank, step)
        self._desk.checker.step_reset()

    def place(self, rank: int, step: int | None) -> None:
        """Changes the position without touching the hit list."""
        desk, state = self._desk, self._desk.state
        new_rank, state.rank, state.step = rank != state.rank, rank, step
        if new_rank:
            state.row = -1
            desk.inspector.forget()
            self.load_nodes()
        elif state.row >= 0:
            desk.inspector.show_node(state.row)
        if not new_rank and state.query.hit:
            self.apply_query()
        desk.watcher.mark()
        desk.update_header()

    def step_by(self, by: int) -> None:
        """To a neighbouring dumped step, in the order in which they ran."""
        steps, step = self._session.steps(self._desk.state.rank), self._desk.state.step
        later = after(steps, step) if by > 0 else after(steps[::-1], step, down=True)
        if later:
            self.set_step(later[0])
        else:
            self._desk.say(f"this is the {'last' if by > 0 else 'first'} {self._desk.KEPT} step")

    def rank_by(self, by: int) -> None:
        """To a neighbouring rank; the step stays when that rank has it."""
        ranks, state = list(self._session.ranks()), self._desk.state
        index = ranks.index(state.rank) + by if state.rank in ranks else 0
        if not 0 <= index < len(ranks):
            self._desk.say("this is the last rank" if by > 0 else "this is the first rank")
            return
        steps = self._session.steps(ranks[index])
        step = state.step
        if step not in steps:
            step = min(steps, key=lambda s: abs(s - (step or 0))) if steps else None
        changed = step != state.step
        self.place(ranks[index], step)
        if changed and step is not None:
            self._desk.checker.step_reset()

    def graph_by(self, by: int) -> None:
        """Restricts nodes and hits to the next graph; before the first one come all graphs."""
        nodes = self._desk.nodes_pane.nodes
        names = [info.name for info in nodes.graphs] if nodes is not None else []
        if len(names) < 2:
            self._desk.say("this rank has one graph")
            return
        current = self._desk.state.query.graphs
        index = names.index(next(iter(current))) + 1 if len(current) == 1 and set(current) <= set(names) else 0
        index = (index + by) % (len(names) + 1)
        chosen = frozenset({names[index - 1]} if index else ())
        self.set_query(replace(self._desk.state.query, graphs=chosen))
        self._desk.checker.show_graphs(chosen)
        self._desk.say(f"graph {clean(names[index - 1])}; Backspace shows all" if index else "all graphs")

    def ask_step(self) -> None:
        """The prompt that knows the dumped steps and the run history."""
        from tui_debugger.tui.dialogs.prompts import StepPrompt

        state, session = self._desk.state, self._session
        steps = session.steps(state.rank)
        if not steps or state.step is None:
            self._desk.say(f"no step is {self._desk.KEPT}", bad=True)
            return
        prompt = StepPrompt(steps, state.step, session.history(state.rank))
        self._desk.app.push_screen(prompt, lambda step: None if step is None else self.set_step(step))

    def show_history(self) -> None:
        """Runs of root graphs; choosing one is a step reset to it."""
        from tui_debugger.tui.dialogs.history import HistoryScreen

        state = self._desk.state

        def go(run: GraphRun | None) -> None:
            if run is not None and run.step in self._session.steps(state.rank):
                self.set_step(run.step)

        runs, parts = self._session.history(state.rank), self._session.unreadable()
        closed = frozenset(
            (run.step, run.root_graph)
            for run in runs
            if parts and is_closed(parts, state.rank, run.root_graph, run.step)
        )
        self._desk.app.push_screen(HistoryScreen(runs, state.step or 0, closed), go)

    def show_notices(self) -> None:
        """What was missing or odd."""
        from tui_debugger.tui.dialogs.history import NoticesScreen

        parts = self._session.unreadable()
        closed = [f"{'not recorded' if part.unrecorded else 'cannot be listed'}: {part_text(part)}" for part in parts]
        self._desk.app.push_screen(NoticesScreen([*closed, *self._session.info.notices]))

    # -- nodes -----------------------------------------------------------------------------------

    def go_to_row(self, row: int) -> None:
        """Selects a node, even when a filter hides it."""
        pane = self._desk.nodes_pane
        if row < 0 or pane.nodes is None:
            return
        if not pane.reveal(row):
            self._show_all_nodes()
            self._desk.state.goal = None
            pane.tree_widget.set_keep(None)
            pane.reveal(row)
        self._desk.inspector.show_node(row)

    def go_to_hit(self, hit: Hit) -> None:
        """Goes to the rank, step, node and tensor of a hit; the hit list stays as it is."""
        self.go_to_tensor(hit.key, hit.row)

    def go_to_tensor(self, key: TensorKey, row: int) -> None:
        """Goes to the rank, step, node and slot of a tensor; ``row`` is that of its node."""
        desk, state = self._desk, self._desk.state
        if key.rank != state.rank:
            state.goal = (key, row)
            self.place(key.rank, key.step)
            return
        desk.inspector.wanted = (key.side.label, key.slot, key.round)
        moved = key.step != state.step
        if moved:
            self.place(key.rank, key.step)
        self.go_to_row(row)

    def hit_by(self, by: int) -> None:
        """The next or previous finding of the hit list, from the row under its cursor."""
        rows = self._desk.hits_pane.rows
        self._walk(by, rows.findings if rows is not None else (), "hit")

    def next_origin(self) -> None:
        """The next origin, starting again after the last one."""
        rows = self._desk.hits_pane.rows
        self._walk(1, rows.origins if rows is not None else (), "origin", around=True)

    def _walk(self, by: int, stops: Sequence[int] | Int64, word: str, *, around: bool = False) -> None:
        """Goes to one of some rows of the hit list, which rise."""
        desk = self._desk
        pane, table = desk.hits_pane, desk.hits_pane.table
        if pane.rows is None or not len(stops):
            desk.say(f"no {word} in the list", bad=True)
            return
        current = pane.current
        here = table.cursor_row
        if current is not None and not self._stands_on(current):
            here -= by > 0  # the row under the cursor was not visited yet
            here += by < 0
        at = int(np.searchsorted(stops, here, "right")) if by > 0 else int(np.searchsorted(stops, here)) - 1
        if around:
            at %= len(stops)
        if not 0 <= at < len(stops):
            desk.say(f"this is the {'last' if by > 0 else 'first'} {word}")
            return
        row = int(stops[at])
        table.move_to(row)
        self.go_to_hit(pane.rows.hit(row))
        desk.say(f"{word} {at + 1} of {len(stops)}")

    def _stands_on(self, hit: Hit) -> bool:
        state = self._desk.state
        return (hit.key.rank, hit.key.step, hit.row) == (state.rank, state.step, state.row)

    # -- what restricts the node list ------------------------------------------------------------

    def set_query(self, query: NodeQuery) -> None:
        """Replaces the query."""
        self._desk.state.query = query
        self.apply_query()
        self._desk.update_header()

    def search(self, text: str) -> None:
        """Text of the search box; a leading ~ means a regular expression."""
        regex = text.startswith("~")
        self.set_query(replace(self._desk.state.query, text=text[1:] if regex else text, regex=regex))

    def restrict_to_line(self, path: str, line: int) -> None:
        """Only the nodes of a source line; the same line again takes the restriction away."""
        query = self._desk.state.query
        same = query.line == (path, line)
        self.set_query(replace(query, line=None if same else (path, line)))
        if not same:
            self._desk.say(f"nodes of {path.rpartition('/')[2]}:{line}; Backspace in the node list clears")

    def clear_filter(self) -> None:
        """Everything again, in the hit list every graph."""
        if self._desk.state.query.graphs == self._desk.hits_pane.filter.graphs:
            self._desk.checker.show_graphs(frozenset())
        self._show_all_nodes()

    def _show_all_nodes(self) -> None:
        self._desk.nodes_pane.clear_search()
        self.set_query(NodeQuery())

    def apply_query(self) -> None:
        """Asks for the nodes that the query keeps."""
        desk, session = self._desk, self._session
        state = desk.state
        rank, step, query = state.rank, state.step, state.query
        desk.nodes_pane.show_query(query, desk.watcher.names())

        def work(_: Report) -> NodesFiltered:
            rows = session.select(rank, query, step)
            keep = None if bool(rows.all()) else session.tree(rank).keep_mask(rows)
            return NodesFiltered(rank, keep, int(rows.sum()))

        desk.bridge.run("filter", work)

    def nodes_filtered(self, message: NodesFiltered) -> None:
        """The answer."""
        pane, tree = self._desk.nodes_pane, self._desk.nodes_pane.scopes
        if tree is None or (message.keep is not None and len(message.keep) != len(tree.row)):
            return
        pane.mark_search(wrong=False)
        pane.filter(message, self._desk.state.query, self._desk.watcher.names())

    def bad_query(self, error: Exception) -> None:
        """A broken regular expression: the list stays, the box says so."""
        self._desk.nodes_pane.mark_search(wrong=True)
        self._desk.say(str(getattr(error, "what", error)), bad=True)

    def ask_filter(self) -> None:
        """The filter dialog."""
        from tui_debugger.tui.dialogs.filters import FilterScreen

        nodes = self._desk.nodes_pane.nodes
        if nodes is None:
            return
        screen = FilterScreen(self._desk.state.query, nodes, self._desk.watcher.names())
        self._desk.app.push_screen(screen, lambda query: None if query is None else self.set_query(query))


def first_of(there: Sequence[int], *wanted: int | None) -> int | None:
    """The first wanted number that is there, else the first that is there, else None."""
    return next((number for number in wanted if number in there), there[0] if there else None)


def after(steps: Sequence[int], step: int | None, *, down: bool = False) -> Sequence[int]:
    """The steps that come after one in the given order; where it is not among them, those of greater number.

    Args:
        steps: in the order in which they ran, or backwards.
        step: where we are; None for before the first one.
        down: smaller numbers instead.
    """
    if step is None:
        return steps
    if step in steps:
        return steps[list(steps).index(step) + 1 :]
    return [each for each in steps if (each < step if down else each > step)]


def node_notes(nodes: NodeTable) -> tuple[str, ...]:
    """Dim text after each label: the operator type where the name does not say it, the category of parameters."""
    types, categories, paths = nodes.types, nodes.category.tolist(), nodes.paths
    words = {int(category): word for category, word in CATEGORIES.items() if category}
    notes = []
    for row, type_id in enumerate(nodes.type_id.tolist()):
        name = types[type_id]
        label = paths[row].rpartition("/")[2]
        said = label.startswith(name) or name in {"Parameter", "Constant"}
        kind = words.get(categories[row], "")
        notes.append(" ".join(part for part in ("" if said else name, kind) if part))
    return tuple(notes)
