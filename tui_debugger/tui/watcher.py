"""The watchpoint list: edits it, finds the nodes that watchpoints cover, and marks them in the node tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.check.hits import overflowed_nodes
from tui_debugger.config import in_use
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.sources.base import Capability
from tui_debugger.text.hits import long_watchpoint_name, selection_words, watch_line, watchpoint_name
from tui_debugger.text.numbers import plural
from tui_debugger.tui.actions import key_of, watchpoint_keys
from tui_debugger.tui.cells import CATEGORY_LABELS
from tui_debugger.tui.context import Context, Controller, NodeFilter
from tui_debugger.tui.dialogs.prompts import ConfirmScreen, TextPrompt, path_check, typed_path
from tui_debugger.tui.export import check_path
from tui_debugger.tui.inspector import CursorFollower
from tui_debugger.tui.panes.nodes import SpaceTarget, TreeMarks, make_marks
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.tui.work import JobProgress
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.text import target_selection

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.arrays import Mask
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import ScopeTree
    from tui_debugger.session import Session


@dataclass(frozen=True)
class SelectionEditor:
    """Edits selections in terms of one rank's nodes; an "entry" is an index into ``tree``, a node or a scope.

    ``shown`` has the entries that a search or filter keeps (None: all); a scope then stands for its kept nodes only.
    """

    nodes: NodeTable
    tree: ScopeTree
    shown: Mask | None = None

    def part(self, index: int) -> Mask | None:
        """Returns the mask of the entries below a scope that count; None: all of them."""
        return self.shown if self.tree.is_scope(index) else None

    def named(self, index: int) -> NodeSelection:
        """Returns a selection of exactly the entry (its kept nodes, if a filter hides some)."""
        part = self.part(index)
        if part is None:
            return NodeSelection((self.selector(index),))
        return self.having_nodes(NodeSelection(), self.tree.rows_below(index, part).tolist())

    def selector(self, index: int) -> NodeSelector:
        """Returns a selector for an entry: a node by its name, a scope by its path."""
        row = int(self.tree.row[index])
        if row >= 0:
            return NodeSelector(NodeKind.NODE, self.nodes.names[row])
        return NodeSelector(NodeKind.SCOPE, self.tree.path(index))

    def toggled(self, selection: NodeSelection, index: int, target: SpaceTarget) -> NodeSelection:
        """Returns the selection after Space on an entry: see ``SpaceTarget.change``."""
        part = self.part(index)
        adds, _ = target.change(self.tree, index, part)
        if part is None:
            return self.having(selection, index) if adds else self.without(selection, index)
        rows = self.tree.rows_below(index, part)
        changed = rows[(target.addable if adds else target.covered)[rows]].tolist()
        return self.having_nodes(selection, changed) if adds else self.without_nodes(selection, changed)

    def without(self, selection: NodeSelection, index: int) -> NodeSelection:
        """Returns the selection without the entry: removes selectors of it or below it, else excludes it."""
        include = tuple(each for each in selection.include if not self._inside(each, index))
        exclude = tuple(each for each in selection.exclude if not self._inside(each, index))
        return NodeSelection(include, (*exclude, self.selector(index)) if include else ())

    def having(self, selection: NodeSelection, index: int) -> NodeSelection:
        """Returns the selection with the entry; an excluded scope around it is replaced by its other parts."""
        exclude: list[NodeSelector] = []
        for each in selection.exclude:
            if self._inside(each, index):
                continue
            around = self._scope_around(each, index)
            exclude += [each] if around < 0 else self._beside(around, index)
        include = tuple(each for each in selection.include if not self._inside(each, index))
        return NodeSelection((*include, self.selector(index)), tuple(dict.fromkeys(exclude)))

    def having_nodes(self, selection: NodeSelection, rows: Iterable[int]) -> NodeSelection:
        """Returns the selection with some nodes; an excluded scope around them is replaced by its other nodes."""
        named = {row: NodeSelector(NodeKind.NODE, self.nodes.names[row]) for row in rows}
        exclude: list[NodeSelector] = []
        for each in selection.exclude:
            at = self._find(each)
            below = self.tree.rows_below(at).tolist() if at >= 0 else []
            others = [NodeSelector(NodeKind.NODE, self.nodes.names[row]) for row in below if row not in named]
            exclude += [each] if len(others) == len(below) else others
        include = dict.fromkeys((*selection.include, *named.values()))
        return NodeSelection(tuple(include), tuple(dict.fromkeys(exclude)))

    def without_nodes(self, selection: NodeSelection, rows: Iterable[int]) -> NodeSelection:
        """Returns the selection without some nodes: removes their selectors and excludes them from all others."""
        named = dict.fromkeys(NodeSelector(NodeKind.NODE, self.nodes.names[row]) for row in rows)
        include = tuple(each for each in selection.include if each not in named)
        return NodeSelection(include, tuple(dict.fromkeys((*selection.exclude, *named))) if include else ())

    def _inside(self, selector: NodeSelector, index: int) -> bool:
        """Tells whether a selector names the entry or an entry below it."""
        at = self._find(selector)
        return index <= at < index + int(self.tree.size[index])

    def _scope_around(self, selector: NodeSelector, index: int) -> int:
        at = self._find(selector)
        return at if 0 <= at < index < at + int(self.tree.size[at]) else -1

    def _find(self, selector: NodeSelector) -> int:
        if selector.kind is NodeKind.SCOPE:
            return self.tree.index_of_scope(selector.text)
        if selector.kind is NodeKind.NODE:
            row = self.nodes.find(selector.text)
            return self.tree.index_of_row(row) if row >= 0 else -1
        return -1

    def _beside(self, around: int, index: int) -> Iterator[NodeSelector]:
        """Yields selectors for everything in the scope ``around`` except the entry."""
        child = around + 1
        end = around + int(self.tree.size[around])
        while child < end:
            after = child + int(self.tree.size[child])
            if child <= index < after:
                if child != index:
                    yield from self._beside(child, index)
            else:
                yield self.selector(child)
            child = after


@dataclass(frozen=True, eq=False)
class _Marked:
    """Marks of a rank's nodes, the number of overflowed nodes, the effect of Space, covered nodes by watchpoint id."""

    rank: int
    step: int | None
    nodes: NodeTable
    marks: TreeMarks
    overflowed: int
    target: SpaceTarget | None
    covered: Mapping[int, int]


ANY = "tensor"
"""The target of conditions that suit every kind of node."""
_LABEL = 20
"""Most cells for a node's name in a message, so that action, name and undo key fit into 80 cells."""
FILE = "watchpoints.toml"
"""The suggested name of a file of watchpoints."""


class Watcher(Controller):
    """Edits the session's watchpoints and marks the nodes they cover."""

    def __init__(
        self,
        context: Context,
        node_filter: NodeFilter,
        recommended: bool | None,
        changed: Callable[[], None],
        grew: Callable[[], None],
    ) -> None:
        """Shows nothing yet.

        ``recommended``: as for ``TdbgApp``. ``changed`` is called after a change of the list, which may outdate the
        hits; ``grew`` when the session has read more nodes of the rank than the node list shows.
        """
        super().__init__(context)
        self._grew = grew
        self._node_filter = node_filter
        self._changed_list = changed
        self._recommended = recommended
        self._covered: Mapping[int, int] = {}
        self._saved: Watchpoint | None = None
        self._follower = CursorFollower(context, self.mark)

    def act_new_watchpoint(self) -> None:
        self.create(self._under_cursor())

    @property
    def _current(self) -> Watchpoint | None:
        identifier = self.state.watchpoint
        return None if identifier is None else self.session.watchpoints.get(identifier)

    # -- opening ---------------------------------------------------------------------------------

    def opened(self, then: Callable[[], None]) -> None:
        """Adds the recommended watchpoints to a new run, or asks about them if configured; then calls ``then``."""
        watchpoints = self.session.watchpoints
        first = self._recommended is None and not watchpoints.offered and not watchpoints.items()
        if self._recommended:
            watchpoints.offered = True
            self.session.add_recommended()
        watchpoints.forget_changes()  # undo must not remove watchpoints that the user did not make
        if first and in_use().asks and (offered := self.session.recommended()):
            self._offer(offered, then)
            return
        if first:
            self._add_first()
        then()

    def _offer(self, offered: Sequence[Watchpoint], then: Callable[[], None]) -> None:
        """Asks whether to add recommended watchpoints; after yes or no, this run is never asked about again."""

        def answered(answer: str | None) -> None:
            if answer == "add":
                self._add_first()
            else:
                self.session.watchpoints.offered |= answer == "leave"
                self.say(f"no watchpoint: {watchpoint_keys()}")
            then()

        lines = [f"{plural(len(offered), 'watchpoint')} are recommended for this run:", *map(watch_line, offered)]
        answers = (("n", "without them", "leave"), ("y", "add them", "add"))
        self._context.app.push_screen(ConfirmScreen("Recommended watchpoints", lines, answers), answered)

    def _add_first(self) -> None:
        self.session.watchpoints.offered = True
        if added := self.session.add_recommended():
            words = plural(added, "recommended watchpoint")
            later = f"; {key_of('add_recommended')} adds those of nodes that come later" if self._may_grow() else ""
            self.say(f"{words} added; {key_of('undo')} takes {'it' if added == 1 else 'them'} away{later}")
        self.show_list()

    def _may_grow(self) -> bool:
        """Tells whether later steps may bring unknown nodes: there is no graph that lists all nodes."""
        session = self.session
        some = any(len(session.steps(rank)) > 1 for rank in session.ranks()[:1])
        return some and not session.capabilities & Capability.GRAPH

    def act_add_recommended(self) -> None:
        if self.session.add_recommended():
            self._changed()
        else:
            self.say("the recommended ones are all there")

    # -- editing ---------------------------------------------------------------------------------

    def create(self, suggestion: NodeSelection | None = None) -> None:

        def done(draft: Watchpoint) -> None:
            self._saved = self.session.watchpoints.add(draft.condition, draft.params, draft.selection, draft.name)
            self._changed()

        self._form(None, suggestion, done)

    def act_edit_watchpoint(self) -> None:
        current = self._current
        if current is None:
            self.create(self._under_cursor())
            return

        def done(draft: Watchpoint) -> None:
            self._saved = replace(draft, id=current.id, enabled=current.enabled)
            self._replace(self._saved)

        self._form(current, self._under_cursor(), done)

    def _form(
        self, initial: Watchpoint | None, suggestion: NodeSelection | None, done: Callable[[Watchpoint], None]
    ) -> None:
        from tui_debugger.tui.dialogs.watchpoint_form import WatchpointForm

        WatchpointForm(initial, suggestion, self.session.watched_count).ask(self._context.app, done)

    def _under_cursor(self) -> NodeSelection | None:
        selecting, index = self._selecting(), self._context.nodes_pane.current
        return None if selecting is None or index < 0 else selecting.named(index)

    def tell_saved(self) -> None:
        """Says what came of the watchpoint that the form saved last, once it was checked."""
        saved, tally, change = self._saved, self.state.tally, self.session.watchpoints.last_change
        if saved is None or tally is None or change is None or self.state.outdated:
            return
        self._saved = None
        nodes = plural(self.session.watched_count(saved.selection), "node")
        hits = plural(tally.by_watchpoint.get(saved.id, 0), "hit")
        self.say(f"{change.words}: {nodes}, {hits}; {key_of('undo')} undoes")

    def act_toggle_enabled(self) -> None:
        current = self._current
        if current is not None:
            self.session.watchpoints.set_enabled(current.id, not current.enabled)
            self._changed()

    def act_delete_watchpoint(self) -> None:
        current = self._current
        if current is not None:
            self.session.watchpoints.delete(current.id)
            self._changed()

    def act_clear_watchpoints(self) -> None:
        if self.session.watchpoints.items():
            self.session.watchpoints.clear()
            self._changed()

    def act_undo(self) -> None:
        """Undoes the last change of the list, including changes not made in the pane."""
        change = self.session.watchpoints.undo()
        if change is None:
            self.say("nothing to undo: there is no earlier change of a watchpoint")
        else:
            self._show_change(f"undone: {change.words}; {key_of('redo')} redoes", change.after, change.before)

    def act_redo(self) -> None:
        change = self.session.watchpoints.redo()
        if change is None:
            self.say("nothing to do again: nothing was undone since the last change")
        else:
            self._show_change(f"done again: {change.words}; {key_of('undo')} undoes", change.before, change.after)

    # -- files -----------------------------------------------------------------------------------

    def act_save_watchpoints(self) -> None:
        items, dump = self.session.watchpoints.items(), Path(self.session.info.path)
        if not items:
            self.say("there is no watchpoint to save", bad=True)
            return

        from tui_debugger.session.watchpoints import write_watch_file

        prompt = TextPrompt("Save watchpoints as", FILE, check_path)
        self.ask_and_write(prompt, lambda path: write_watch_file(items, path, dump))

    def act_load_watchpoints(self) -> None:
        def read(text: str) -> None:
            from tui_debugger.session.watchpoints import read_watch_file

            path = typed_path(text)
            self._context.ask(lambda: read_watch_file(path), self._loaded, self._context.show_error)

        check = path_check(_missing_file, "a file name is needed")
        TextPrompt("Load watchpoints from", FILE, check).ask(self._context.app, read)

    def _loaded(self, watchpoints: tuple[Watchpoint, ...]) -> None:
        added = self.session.watchpoints.add_missing(watchpoints)
        there = f"{len(watchpoints) - added} there already" if added < len(watchpoints) else ""
        if added:
            self._changed(there)
        else:
            self.say(f"nothing added: {there or 'the file holds no watchpoint'}")

    def _replace(self, watchpoint: Watchpoint, words: str = "", more: str = "") -> None:
        before = self.session.watchpoints.version
        self.session.watchpoints.replace(watchpoint, words)
        if self.session.watchpoints.version != before:
            self._changed(more)

    # -- nodes -----------------------------------------------------------------------------------

    def _selecting(self) -> SelectionEditor | None:
        pane = self._context.nodes_pane
        return (
            None if pane.nodes is None or pane.scopes is None else SelectionEditor(pane.nodes, pane.scopes, pane.shown)
        )

    def act_toggle_watch(self) -> None:
        """Handles Space: adds the node or scope under the cursor to the selected watchpoint, or removes it.

        If a search or filter hides a part of the scope, only the nodes that are shown change.
        """
        selecting, index, current = self._selecting(), self._context.nodes_pane.current, self._current
        if selecting is None or index < 0:
            return
        if current is None:
            self.create(selecting.named(index))
            return
        part = selecting.part(index)
        target = space_target(self.session, self.state.rank, current)
        adds, count = target.change(selecting.tree, index, part)
        rows = selecting.tree.rows_below(index, part)
        if not count:
            excluded = bool(target.excluded[rows].any())
            self.say(
                f"nothing here can be added: a category or an expression of {target.name} leaves it out; "
                f"{key_of('edit_watchpoint')} edits"
                if excluded
                else "nothing here can be watched: constants have no values that change",
                bad=True,
            )
            return
        edited = replace(current, selection=selecting.toggled(current.selection, index, target))
        what = plural(count, "node") if selecting.tree.is_scope(index) else shorten(selecting.tree.label[index], _LABEL)
        words = f"{what} added to {target.long_name}" if adds else f"{what} taken out of {target.long_name}"
        out = int(target.excluded[rows].sum()) if adds else 0
        more = f"{plural(out, 'node')} left out by its categories or expressions" if out else ""
        foreign = rows[target.addable[rows] & target.foreign[rows]]
        if adds and len(foreign) and selecting.tree.is_scope(index):
            lines = _foreign_lines(selecting.nodes, foreign, current, target, count)
            self._ask(target.name, lines, lambda: self._replace(edited, words, more))
        else:
            self._replace(edited, words, more)

    def _ask(self, name: str, lines: Sequence[str], yes: Callable[[], None]) -> None:
        screen = ConfirmScreen(
            f"Add nodes of another kind to {name}?",
            lines,
            (("n", "leave it as it is", "no"), ("y", "add all of them", "yes")),
        )
        self._context.app.push_screen(screen, lambda answer: yes() if answer == "yes" else None)

    def act_show_covered(self) -> None:
        current, state = self._current, self.state
        if current is not None:
            same = state.query.watched == current.id
            self._node_filter.set_query(replace(state.query, watched=None if same else current.id))
            self.say("all nodes" if same else f"nodes of {watchpoint_name(current)}")

    # -- showing ---------------------------------------------------------------------------------

    def _changed(self, more: str = "") -> None:
        """Shows the list after a change made here, and says how to undo it; ``more`` is added in brackets."""
        change = self.session.watchpoints.last_change
        if change is not None:
            aside = f" ({more})" if more else ""
            self._show_change(f"{change.words}; {key_of('undo')} undoes{aside}", change.before, change.after)

    def _show_change(self, said: str, before: tuple[Watchpoint, ...], after: tuple[Watchpoint, ...]) -> None:
        """Shows a changed list: checks again, marks again, and moves the cursor to the first new watchpoint."""
        self.show_list()
        known = {each.id for each in before}
        new = [each.id for each in after if each.id not in known]
        if before and new:
            self._context.watchpoints_pane.table.move_to_key(new[0])
        self._changed_list()
        self.mark()
        if self.state.query.watched is not None:
            self._node_filter.apply_query()
        self.say(said)

    def show_list(self) -> None:
        context = self._context
        outdated = context.state.outdated
        items = self.session.watchpoints.items()
        context.watchpoints_pane.show(items, self._covered, context.state.tally, outdated=outdated)

    def selected(self, watchpoint: int | None) -> None:
        if watchpoint != self.state.watchpoint:
            self.state.watchpoint = watchpoint
            self.mark()

    def mark_soon(self) -> None:
        """Asks for the marks a moment later: see ``CursorFollower``."""
        self._follower.moved()

    @property
    def pending(self) -> bool:
        return self._follower.pending

    def mark(self) -> None:
        self._follower.stop()
        context, session = self._context, self.session
        state = context.state
        rank, step, watchpoint, result = state.rank, state.step, state.watchpoint, state.result
        if context.nodes_pane.scopes is None:
            return

        def work(_: JobProgress) -> _Marked:
            nodes, tree = session.nodes(rank), session.tree(rank)
            current = session.watchpoints.get(watchpoint) if watchpoint is not None else None
            target = space_target(session, rank, current) if current is not None else None
            covered = {w.id: session.watched_count(w.selection) for w in session.watchpoints.items()}
            watched = target.covered if target is not None else None
            device = None if step is None else overflowed_nodes(session.flow(rank).table(step), len(nodes))
            marks = make_marks(nodes, tree, watched, result, (rank, step), overflowed=device)
            return _Marked(rank, step, nodes, marks, 0 if device is None else int(device.sum()), target, covered)

        context.work.run("marks", work, self._marked, in_header=False)

    def _marked(self, found: _Marked) -> None:
        state = self.state
        if found.rank != state.rank:
            return
        overflowed = found.overflowed if found.step == state.step else 0
        if overflowed != state.overflowed:
            state.overflowed = overflowed
            self._context.update_header()
        shown = self._context.nodes_pane.nodes
        if shown is not None and shown.lineage is found.nodes.lineage and len(shown) < len(found.nodes):
            self._grew()  # loads the new nodes, then asks for marks again
        self._context.nodes_pane.mark(found.marks)
        self._context.nodes_pane.show_target(found.target)
        if found.covered != self._covered:
            self._covered = found.covered
            self.show_list()


def space_target(session: Session, rank: int, watchpoint: Watchpoint) -> SpaceTarget:
    """Returns what Space does to the nodes of a rank, for a watchpoint."""
    selection, condition = watchpoint.selection, CONDITIONS.get(watchpoint.condition)
    by_kind = tuple(each for each in selection.exclude if each.kind not in (NodeKind.NODE, NodeKind.SCOPE))
    kinds = [each for each in selection.include if each.kind is NodeKind.CATEGORY]
    if condition is not None and (condition.target != ANY or not kinds):
        kinds += target_selection(condition).include
    covered = session.selection_mask(rank, selection)
    excluded = session.selection_mask(rank, NodeSelection(by_kind)) & ~covered
    looked_for = session.selection_mask(rank, NodeSelection(tuple(kinds)))
    free = session.nodes(rank).watchable & session.in_scope(rank) & ~covered
    return SpaceTarget(
        name=watchpoint_name(watchpoint),
        long_name=long_watchpoint_name(watchpoint),
        covered=covered,
        addable=free & ~excluded,
        excluded=free & excluded,
        foreign=~looked_for,
    )


def _foreign_lines(
    nodes: NodeTable, rows: npt.NDArray[np.int32], watchpoint: Watchpoint, target: SpaceTarget, count: int
) -> list[str]:
    """Returns the question whether to add nodes (``rows``) of other kinds than the watchpoint looks for."""
    kinds = Counter(CATEGORY_LABELS[nodes.category_of(int(row))] for row in rows)
    listed = ", ".join(plural(number, kind) for kind, number in kinds.most_common())
    what = selection_words(watchpoint.selection, raw=False) if watchpoint.selection.include else "nothing yet"
    return [
        f"{target.long_name} looks at {plural(int(target.covered.sum()), 'node')}: {what}.",
        f"Of the {plural(count, 'node')} to be added {len(rows):,} are of another kind: {listed}.",
    ]


def _missing_file(path: Path) -> str | None:
    return None if path.is_file() else "there is no such file"
