"""The position in the run: moves through ranks, steps, graphs, nodes, hits and the data flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.results import is_closed, part_words
from tui_debugger.check.verdicts import Outcome
from tui_debugger.model import Category, GraphRun, Hit, Side, TensorKey, Verdict
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import short_names
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.cells import CATEGORY_LABELS
from tui_debugger.tui.context import Context, Controller, NodeFilter
from tui_debugger.tui.dialogs.prompts import ChoiceScreen, StepPrompt, steps_after
from tui_debugger.tui.work import JobProgress

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import ScopeTree
    from tui_debugger.session import CheckResult
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.checker import CheckController
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.watcher import Watcher


class Navigator(Controller):
    """Moves through the run."""

    def __init__(
        self,
        context: Context,
        inspector: Inspector,
        watcher: Watcher,
        checker: CheckController,
        node_filter: NodeFilter,
        *,
        first_rank: int | None,
        first_step: int | None,
    ) -> None:
        """Goes nowhere yet; ``first_rank`` and ``first_step`` are shown first if the run has them."""
        super().__init__(context)
        self._inspector = inspector
        self._watcher = watcher
        self._checker = checker
        self._node_filter = node_filter
        self._first_rank = first_rank
        self._first_step = first_step
        self._led_to: tuple[TensorKey, int] | None = None
        self._led_nowhere = False
        self._listed: tuple[int, frozenset[int]] = (0, frozenset())
        self._graphs: set[str] = set()
        self._shape: tuple[bool, dict[str, str]] = (False, {})

    def handlers(self) -> dict[str, Callable[[], None]]:
        return super().handlers() | {
            "step_back": lambda: self.step_by(-1),
            "step_forward": lambda: self.step_by(1),
            "rank_back": lambda: self.rank_by(-1),
            "rank_forward": lambda: self.rank_by(1),
            "graph_back": lambda: self.graph_by(-1),
            "graph_forward": lambda: self.graph_by(1),
            "next_hit": lambda: self.hit_by(1),
            "previous_hit": lambda: self.hit_by(-1),
        }

    # -- opening and growing ---------------------------------------------------------------------

    def opened(self) -> None:
        state, session = self.state, self.session
        ranks = session.ranks()
        near_rank, near_step = session.focus
        state.rank = first_of(ranks, self._first_rank, near_rank) or 0
        steps = session.steps(state.rank)
        self._listed = state.rank, frozenset(steps)
        state.step = first_of(steps, self._first_step, near_step)
        missing = [
            f"{word} {wanted}"
            for word, wanted, found in (("rank", self._first_rank, ranks), ("step", self._first_step, steps))
            if wanted is not None and wanted not in found
        ]
        if missing:
            self.say(f"{' and '.join(missing)} not in this dump", bad=True)
        self.show_run()
        if ranks:
            self.load_nodes()
        work = self.work
        work.run("inventory", session.take_inventory, lambda _: self._context.update_header())

    def load_nodes(self) -> None:
        session, rank = self.session, self.state.rank

        def work(report: JobProgress) -> tuple[NodeTable, ScopeTree, tuple[str, ...], Mask]:
            nodes = session.nodes(rank, report)
            tree = session.tree(rank)
            only_constants = ~tree.keep_mask(nodes.category != Category.CONSTANT)
            return nodes, tree, node_notes(nodes), only_constants

        def done(loaded: tuple[NodeTable, ScopeTree, tuple[str, ...], Mask]) -> None:
            self._context.nodes_pane.show(*loaded)
            self._nodes_shown(rank, loaded[0])

        self.work.run("nodes", work, done)

    def _nodes_shown(self, rank: int, nodes: NodeTable) -> None:
        """Shows filter and marks of loaded nodes, then goes to ``state.pending_tensor`` if there is one."""
        context = self._context
        self.show_run()
        steps = [run.step for run in self.session.history(rank)]
        context.state.unordered = any(later < earlier for earlier, later in pairwise(steps))
        self._node_filter.apply_query()
        self._watcher.mark()
        pending, context.state.pending_tensor = context.state.pending_tensor, None
        if pending is not None and pending[1] < len(nodes):
            self.go_to_tensor(*pending)
        elif context.nodes_pane.current_row >= 0:
            context.state.row = context.nodes_pane.current_row
            self._inspector.show_anew()
        elif self._led_nowhere and not context.state.touched:
            self._stand_on_a_node()
        self._inspector.search_stack()
        context.settled()

    def show_run(self) -> None:
        context = self._context
        nodes = context.nodes_pane.nodes
        self._graphs |= {info.name for info in nodes.graphs} if nodes is not None else set()
        shape = len(self.session.ranks()) > 1, short_names(self._graphs) if len(self._graphs) > 1 else {}
        if shape != self._shape:
            self._shape = shape
            context.hits_pane.set_run(many_ranks=shape[0], graphs=shape[1])

    def refreshed(self, changes: Changes) -> None:
        """Takes in new files of the dump without moving the cursor."""
        context = self._context
        state = context.state
        if changes.new_ranks:
            self.show_run()
        if changes.new_nodes:
            self.load_nodes()
        if state.step is None:
            self.opened()
            self._checker.opened()
            return
        if (state.rank, state.step) in changes.grown_steps and state.row >= 0:
            self._inspector.show_anew()
        self._take_away_lost_steps(state.step)
        self._checker.changed(changes.new_steps)

    def _take_away_lost_steps(self, here: int) -> None:
        """Notes which steps of the rank are gone; goes to the nearest step if the one that is shown is gone."""
        rank, steps = self.state.rank, self.session.steps(self.state.rank)
        listed, self._listed = self._listed, (rank, frozenset(steps))
        if listed[0] == rank and not self.session.ongoing:
            self.state.gone = (self.state.gone | listed[1]).difference(steps)
        if here not in steps:
            self.place(rank, min(steps, key=lambda step: abs(step - here), default=None))

    # -- steps, ranks, graphs --------------------------------------------------------------------

    def set_step(self, step: int) -> None:
        """Goes to a step, and shows or checks its hits if that is quick."""
        self.place(self.state.rank, step)
        self._checker.step_reset()

    def place(self, rank: int, step: int | None) -> None:
        """Changes the position; checks nothing."""
        state = self.state
        new_rank, state.rank, state.step = rank != state.rank, rank, step
        if new_rank:
            self._listed, state.gone = (rank, frozenset(self.session.steps(rank))), frozenset()
            state.row = -1
            self._inspector.forget()
            self.load_nodes()
        elif state.row >= 0:
            self._inspector.show_node(state.row)
        if not new_rank and state.query.hit:
            self._node_filter.apply_query()
        self._watcher.mark_soon()
        self._checker.moved()

    def step_by(self, by: int) -> None:
        """Goes to a neighbouring step, in the order in which the steps ran."""
        steps, step = self.session.steps(self.state.rank), self.state.step
        later = steps_after(steps, step) if by > 0 else steps_after(steps[::-1], step, down=True)
        if later:
            self.set_step(later[0])
        else:
            self.say(f"this is the {'last' if by > 0 else 'first'} {self._context.kept} step")

    def rank_by(self, by: int) -> None:
        """Goes to a neighbouring rank; keeps the step if that rank has it, else goes to the nearest step."""
        ranks, state = list(self.session.ranks()), self.state
        index = ranks.index(state.rank) + by if state.rank in ranks else 0
        if not 0 <= index < len(ranks):
            self.say("this is the last rank" if by > 0 else "this is the first rank")
            return
        steps = self.session.steps(ranks[index])
        step = state.step
        if step not in steps:
            step = min(steps, key=lambda s: abs(s - (step or 0))) if steps else None
        changed = step != state.step
        self.place(ranks[index], step)
        if changed and step is not None:
            self._checker.step_reset()

    def graph_by(self, by: int) -> None:
        """Restricts nodes and hits to the next graph; before the first graph, all graphs are shown."""
        nodes = self._context.nodes_pane.nodes
        names = [info.name for info in nodes.graphs] if nodes is not None else []
        if len(names) < 2:
            self.say("this rank has one graph")
            return
        current = self.state.query.graphs
        index = names.index(next(iter(current))) + 1 if len(current) == 1 and set(current) <= set(names) else 0
        index = (index + by) % (len(names) + 1)
        chosen = frozenset({names[index - 1]} if index else ())
        self._node_filter.set_query(replace(self.state.query, graphs=chosen))
        self._node_filter.show_graphs_of_hits(chosen)
        self.say(f"graph {clean(names[index - 1])}; {key_of('clear_filter')} shows all" if index else "all graphs")

    def act_step(self) -> None:
        state, session = self.state, self.session
        steps = session.steps(state.rank)
        if not steps or state.step is None:
            self.say(f"no step is {self._context.kept}", bad=True)
            return
        found = dict[int, int]()
        if state.result is not None:
            hits = state.result.hits
            found = {step: 0 for rank, step in state.result.pairs if rank == state.rank}
            found |= hits.count_by_step(hits.found() & (hits.rank == state.rank))
        StepPrompt(steps, state.step, session.history(state.rank), found).ask(self._context.app, self.set_step)

    def act_history(self) -> None:
        from tui_debugger.tui.dialogs.pages import HistoryScreen

        state = self.state

        def go(run: GraphRun) -> None:
            if run.step in self.session.steps(state.rank):
                self.set_step(run.step)

        runs, parts = self.session.history(state.rank), self.session.unreadable()
        closed = frozenset(
            (run.step, run.root_graph)
            for run in runs
            if parts and is_closed(parts, state.rank, run.root_graph, run.step)
        )
        HistoryScreen(runs, state.step or 0, closed).ask(self._context.app, go)

    def act_notices(self) -> None:
        from tui_debugger.tui.dialogs.pages import NoticesScreen

        info = self.session.info
        closed = [part_words(part) for part in self.session.unreadable()]
        self._context.app.push_screen(NoticesScreen(info.notices, (*closed, *info.limits)))

    # -- nodes -----------------------------------------------------------------------------------

    def go_to_row(self, row: int) -> None:
        """Selects a node, even if a filter hides it."""
        pane = self._context.nodes_pane
        if row < 0 or pane.nodes is None or row >= len(pane.nodes):
            return
        if not pane.reveal(row):
            self._node_filter.show_all()
            self.state.pending_tensor = None
            pane.tree_widget.set_keep(None)
            pane.reveal(row)
        self._inspector.show_node(row)

    def go_to_hit(self, hit: Hit) -> None:
        self.go_to_tensor(hit.key, hit.row)

    def preview(self, hit: Hit) -> None:
        """Shows tensors and stack of a hit; the cursor of the node list stays, so that a key costs little.

        Ignores hits of another rank, whose nodes would have to be read: Enter goes there.
        """
        state = self.state
        if hit.key.rank != state.rank or (hit.key.step, hit.row) == (state.step, state.row):
            return
        self._inspector.wanted_slot = (hit.key.side.label, hit.key.slot, hit.key.round)
        if hit.key.step != state.step:
            self.place(hit.key.rank, hit.key.step)
        self._inspector.show_node(hit.row)

    def reveal_selected(self) -> None:
        """Moves the cursor of the node list to the node that the other panes show."""
        pane, row = self._context.nodes_pane, self.state.row
        if pane.nodes is not None and 0 <= row < len(pane.nodes) and pane.current_row != row:
            pane.reveal(row)

    def go_to_tensor(self, key: TensorKey, row: int) -> None:
        """Goes to the rank, step, node (``row`` of the rank's node table) and slot of a tensor."""
        state = self.state
        if key.rank != state.rank:
            state.pending_tensor = (key, row)
            self.place(key.rank, key.step)
            return
        self._inspector.wanted_slot = (key.side.label, key.slot, key.round)
        moved = key.step != state.step
        if moved:
            self.place(key.rank, key.step)
        nodes = self._context.nodes_pane.nodes
        if nodes is None or row >= len(nodes):  # not loaded yet, or a later step brought new nodes
            state.pending_tensor = (key, row)
            if nodes is not None or not self.work.busy("nodes"):
                self.load_nodes()
            return
        self.go_to_row(row)

    def lead(self, result: CheckResult, hit: Hit | None) -> None:
        """Goes to the finding of the headline, or to the first finding at the rank and step that the user asked for.

        Without a finding it goes to the first tensor that could not be judged, else to the first node, so that keys
        have a tensor. During a training the cursor then stays on the scope, which will stand for the worst tensor
        below.
        """
        if self._first_step is not None or self._first_rank is not None or self.session.focus[1] is not None:
            state = self.state
            there = result.hits.chosen(result.hits.at(state.rank, state.step) & result.hits.found())
            origins = there.chosen(there.origin)
            hit = origins[0] if len(origins) else there[0] if len(there) else None
        headline = self.state.headline
        if hit is None and headline is not None and headline.outcome is Outcome.CANNOT_JUDGE:
            unjudged = np.flatnonzero(result.hits.verdict == Verdict.CANNOT_JUDGE)
            hit = result.hits[int(unjudged[0])] if len(unjudged) else None
        if not result.hits.findings and hit is None and not self.session.ongoing:
            self._led_nowhere = True
            self._stand_on_a_node()
        if hit is None or (hit.key, hit.row) == self._led_to:
            return
        self._led_to = hit.key, hit.row
        self.go_to_hit(hit)
        pane = self._context.hits_pane
        row = pane.rows.find(hit.key) if pane.rows is not None else -1
        if row >= 0:
            pane.lead_to(row)
        if self._context.one_pane():
            self._context.focus_pane("hits")

    def _stand_on_a_node(self) -> None:
        row = self._context.nodes_pane.first_node()
        if self.state.row < 0 <= row:
            self.go_to_row(row)

    def hit_by(self, by: int) -> None:
        """Goes to the next or previous finding of the hit list, counted from the row under its cursor."""
        rows = self._context.hits_pane.rows
        self._walk(by, rows.findings if rows is not None else (), "hit")

    def act_next_origin(self) -> None:
        """Goes to the next origin; after the last origin, to the first."""
        rows = self._context.hits_pane.rows
        self._walk(1, rows.origins if rows is not None else (), "origin", around=True)

    def _walk(self, by: int, stops: Sequence[int] | Int64, word: str, *, around: bool = False) -> None:
        """Goes to the next of ``stops``, ascending rows of the hit list; ``around`` starts again after the last."""
        context = self._context
        pane, table = context.hits_pane, context.hits_pane.table
        if pane.rows is None or not len(stops):
            why = f"no {word} in the list" if pane.shown else pane.table.empty
            context.say(why, bad=True)
            return
        current = pane.current
        here = table.cursor_row
        state = context.state
        if current is not None and not pane.stands_on(state.rank, state.step, state.row):
            here -= by > 0  # also stop at the row under the cursor: the screen does not show its hit yet
            here += by < 0
        at = int(np.searchsorted(stops, here, "right")) if by > 0 else int(np.searchsorted(stops, here)) - 1
        if around:
            at %= len(stops)
        if not 0 <= at < len(stops):
            context.say(f"this is the {'last' if by > 0 else 'first'} {word}")
            return
        row = int(stops[at])
        hit = pane.rows.hit(row)
        table.move_to(row)
        if hit is not None:
            self.go_to_hit(hit)
        rows = " rows" if word == "hit" and pane.rows.merged else ""
        context.say(f"{word} {at + 1:,} of {len(stops):,}{rows}")

    # -- the data flow ----------------------------------------------------------------------------------

    def act_producer(self) -> None:
        context, row = self._context, self._context.tensors_pane.current
        if row is None or row.role == "out":
            context.say("put the cursor on an input", bad=True)
            return
        producers = self.session.producers(context.state.rank, context.state.row)
        producer, slot = producers[row.slot] if row.slot < len(producers) else (-1, 0)
        if producer < 0:
            context.say("the graph does not say where this input comes from", bad=True)
            return
        self._inspector.wanted_slot = (Side.OUTPUT.label, slot, 0)
        self.go_to_row(producer)

    def act_consumers(self) -> None:
        """Goes to a node that uses the outputs of this node; asks which if there are several."""
        context, nodes = self._context, self._context.nodes_pane.nodes
        if nodes is None or context.state.row < 0:
            return
        consumers = self.session.consumers(context.state.rank, context.state.row)
        if not consumers:
            unknown = not len(nodes.in_node)
            context.say(
                "no graph was recorded: what uses this node's outputs is not known"
                if unknown
                else "nothing uses this node's outputs, as far as the graph says",
                bad=True,
            )
            return

        def go(index: int) -> None:
            consumer, slot = consumers[index]
            self._inspector.wanted_slot = (Side.INPUT.label, slot, 0)
            self.go_to_row(consumer)

        if len(consumers) == 1:
            go(0)
            return
        # The name comes first, so that a long scope does not push it out of the dialog.
        parts = [(nodes.names[consumer].rpartition("/"), slot) for consumer, slot in consumers]
        options = [f"{name}  in:{slot}  {scope}" for (scope, _, name), slot in parts]
        ChoiceScreen(f"{plural(len(consumers), 'use')} of this node", options).ask(context.app, go)


def first_of(there: Sequence[int], *wanted: int | None) -> int | None:
    """Returns the first of ``wanted`` that is in ``there``, else the first of ``there``, else None."""
    return next((number for number in wanted if number in there), there[0] if there else None)


def node_notes(nodes: NodeTable) -> tuple[str, ...]:
    """Returns the text after each node's label: the type if the name does not begin with it, and the category."""
    types, categories, paths = nodes.types, nodes.category.tolist(), nodes.paths
    words = {int(category): word for category, word in CATEGORY_LABELS.items() if category}
    notes = []
    for row, type_id in enumerate(nodes.type_id.tolist()):
        name = types[type_id]
        label = paths[row].rpartition("/")[2]
        said = label.startswith(name) or name in {"Parameter", "Constant"}
        kind = words.get(categories[row], "")
        notes.append(" ".join(part for part in ("" if said else name, kind) if part))
    return tuple(notes)
