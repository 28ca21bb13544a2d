"""The watchpoint list: offer, create, edit, delete, which nodes a watchpoint covers, and the marks of the node tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Verdict, Watchpoint
from tui_debugger.text.numbers import plural
from tui_debugger.tui.answers import NodesMarked, Saved
from tui_debugger.tui.work import Report

if TYPE_CHECKING:
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.dialogs.watchpoint_form import WatchDraft
    from tui_debugger.tui.main_screen import MainScreen


@dataclass(frozen=True)
class Marks:
    """What the glyphs of the tree say, over tree indices.

    Attributes:
        watch: 0 none, 1 some, 2 all nodes below are watched.
        hit: something below has a finding.
        origin: something below is an origin.
        uncertain, file_only: marks of single nodes.
    """

    watch: npt.NDArray[np.uint8]
    hit: Mask
    origin: Mask
    uncertain: Mask
    file_only: Mask

    def same(self, other: Marks) -> bool:
        """Whether two sets of marks draw the same."""
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in (
                (self.watch, other.watch),
                (self.hit, other.hit),
                (self.origin, other.origin),
                (self.uncertain, other.uncertain),
                (self.file_only, other.file_only),
            )
        )

    @classmethod
    def none(cls, size: int) -> Marks:
        """Nothing marked."""
        no = np.zeros(size, np.bool_)
        return cls(np.zeros(size, np.uint8), no, no, no, no)


def make_marks(
    nodes: NodeTable,
    tree: Tree,
    watched: npt.NDArray[np.uint8] | None,
    result: CheckResult | None,
    rank: int,
) -> Marks:
    """Marks over tree indices, from columns over node rows and the hits of a check."""
    hit, origin = np.zeros(len(nodes), np.bool_), np.zeros(len(nodes), np.bool_)
    if result is not None:
        hits = result.hits
        # A table that was just built anew may be shorter than the last check's.
        found = (hits.node < len(nodes)) & (hits.rank == rank) & (hits.verdict == Verdict.FINDING)
        hit[hits.node[found]] = True
        origin[hits.node[found & hits.origin]] = True
    leaves = np.asarray(tree.row)
    flags = np.where(leaves >= 0, nodes.flags[leaves], 0) if len(nodes) else np.zeros(len(leaves), np.uint8)
    return Marks(
        watch=tree.spread(watched > 0 if watched is not None else np.zeros(len(nodes), np.bool_)),
        hit=tree.any_below(hit),
        origin=tree.any_below(origin),
        uncertain=(flags & NodeFlag.UNCERTAIN) > 0,
        file_only=(flags & NodeFlag.FILE_ONLY) > 0,
    )


@dataclass(frozen=True)
class Selecting:
    """Edits selections in terms of one rank's nodes."""

    nodes: NodeTable
    tree: Tree

    def selector(self, index: int) -> NodeSelector:
        """What names a tree entry: a node by its id, a scope by its path."""
        row = int(self.tree.row[index])
        if row >= 0:
            return NodeSelector(NodeKind.NODE, self.nodes.names[row])
        return NodeSelector(NodeKind.SCOPE, self.tree.path(index))

    def without(self, selection: NodeSelection, index: int) -> NodeSelection:
        """The entry taken out: what names it or something below it goes, what still covers it gets an exception."""
        include = tuple(each for each in selection.include if not self._inside(each, index))
        exclude = tuple(each for each in selection.exclude if not self._inside(each, index))
        return NodeSelection(include, (*exclude, self.selector(index)) if include else ())

    def having(self, selection: NodeSelection, index: int) -> NodeSelection:
        """The entry put in: exceptions about it go, exceptions around it shrink to what is beside it."""
        exclude: list[NodeSelector] = []
        for each in selection.exclude:
            if self._inside(each, index):
                continue
            around = self._scope_around(each, index)
            exclude += [each] if around < 0 else self._beside(around, index)
        include = tuple(each for each in selection.include if not self._inside(each, index))
        return NodeSelection((*include, self.selector(index)), tuple(dict.fromkeys(exclude)))

    def _inside(self, selector: NodeSelector, index: int) -> bool:
        """Whether a selector names the entry or something below it."""
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
        """Everything in a scope but the way down to an entry."""
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


FILE = "watchpoints.toml"
"""The name that is suggested for a file of watchpoints."""


class Watcher:
    """Edits the session's watchpoints and marks the nodes they cover."""

    def __init__(self, desk: MainScreen, recommended: bool | None) -> None:
        """``recommended``: True adds the set, False does not offer it, None asks once."""
        self._desk = desk
        self._recommended = recommended
        self._deleted: list[tuple[Watchpoint, ...]] = []
        self._covered: dict[int, int] = {}
        self._turned: tuple[int, int, int] | None = None

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {
            "new_watchpoint": lambda: self.create(self._under_cursor()),
            "add_recommended": self.add_recommended,
            "edit_watchpoint": self.edit,
            "toggle_enabled": self.toggle_enabled,
            "delete_watchpoint": self.delete,
            "undelete_watchpoint": self.undelete,
            "clear_watchpoints": self.clear,
            "show_covered": self.show_covered,
            "save_watchpoints": self.save,
            "load_watchpoints": self.load,
            "toggle_watch": self.toggle_watch,
        }

    @property
    def _session(self) -> Session:
        return self._desk.opened_session

    @property
    def _current(self) -> Watchpoint | None:
        identifier = self._desk.state.watchpoint
        return None if identifier is None else self._session.watchpoints.get(identifier)

    def names(self) -> dict[int, str]:
        """``TO #3`` by id, for chips and filters."""
        if self._desk.session is None:
            return {}
        return {w.id: f"{_abbr(w)} #{w.id}" for w in self._session.watchpoints.items()}

    # -- opening ---------------------------------------------------------------------------------

    def opened(self, then: Callable[[], None]) -> None:
        """Offers the recommended watchpoints once, and goes on."""
        watchpoints = self._session.watchpoints
        if self._recommended:
            watchpoints.offered = True
            self._session.add_recommended()
        if self._recommended is not None or watchpoints.offered or watchpoints.items():
            then()
            return
        found = self._session.recommended()
        if not found:
            then()
            return
        from tui_debugger.tui.dialogs.watchpoint_form import OfferScreen

        def answered(use: bool | None) -> None:
            watchpoints.offered = True
            if use:
                self._session.add_recommended()
            self.show_list()
            then()

        self._desk.app.push_screen(OfferScreen(found), answered)

    def add_recommended(self) -> None:
        """Adds those that are missing."""
        added = self._session.add_recommended()
        self._changed()
        self._desk.say(f"added {plural(added, 'watchpoint')}" if added else "the recommended ones are all there")

    # -- editing ---------------------------------------------------------------------------------

    def create(self, suggestion: NodeSelection | None = None) -> None:
        """The form for a new one."""

        def done(draft: WatchDraft | None) -> None:
            if draft is not None:
                added = self._session.watchpoints.add(draft.condition, draft.params, draft.selection, draft.name)
                self._changed()
                self._desk.watchpoints_pane.table.move_to_key(added.id)

        self._form(None, suggestion, done)

    def edit(self) -> None:
        """The form for the one under the cursor."""
        current = self._current
        if current is None:
            self.create(self._under_cursor())
            return

        def done(draft: WatchDraft | None) -> None:
            if draft is not None:
                self._replace(
                    replace(
                        current,
                        condition=draft.condition,
                        params=draft.params,
                        selection=draft.selection,
                        name=draft.name,
                    )
                )

        self._form(current, self._under_cursor(), done)

    def _form(
        self,
        initial: Watchpoint | None,
        suggestion: NodeSelection | None,
        done: Callable[[WatchDraft | None], None],
    ) -> None:
        from tui_debugger.tui.dialogs.watchpoint_form import WatchpointForm

        self._desk.app.push_screen(WatchpointForm(initial, suggestion, self._session.watched_count), done)

    def _under_cursor(self) -> NodeSelection | None:
        selecting, index = self._selecting(), self._desk.nodes_pane.current
        return None if selecting is None or index < 0 else NodeSelection((selecting.selector(index),))

    def toggle_enabled(self) -> None:
        """A disabled watchpoint stays in the list and is not checked."""
        current = self._current
        if current is not None:
            self._session.watchpoints.set_enabled(current.id, not current.enabled)
            self._changed()

    def delete(self) -> None:
        """Deletes one; ``u`` brings it back."""
        current = self._current
        if current is not None:
            self._deleted.append((current,))
            self._session.watchpoints.delete(current.id)
            self._changed()
            self._desk.say(f"deleted {_abbr(current)} #{current.id}: u brings it back")

    def clear(self) -> None:
        """Deletes all; ``u`` brings them back."""
        items = self._session.watchpoints.items()
        if items:
            self._deleted.append(items)
            self._session.watchpoints.clear()
            self._changed()
            self._desk.say(f"deleted {plural(len(items), 'watchpoint')}: u brings them back")

    def undelete(self) -> None:
        """Brings back what was deleted last, with new numbers."""
        if not self._deleted:
            self._desk.say("nothing was deleted")
            return
        watchpoints = self._session.watchpoints
        for old in self._deleted.pop():
            new = watchpoints.add(old.condition, old.params, old.selection, old.name)
            if not old.enabled:
                watchpoints.set_enabled(new.id, False)
        self._changed()

    # -- files -----------------------------------------------------------------------------------

    def save(self) -> None:
        """The list as a file for ``--watch-file``."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt
        from tui_debugger.tui.views.export import check_path

        items, dump = self._session.watchpoints.items(), Path(self._session.info.path)
        if not items:
            self._desk.say("there is no watchpoint to save", bad=True)
            return

        def write(text: str | None) -> None:
            if text is not None:
                from tui_debugger.session.watchpoints import write_watch_file

                path = Path(text.strip())
                self._desk.bridge.run("save", lambda _: Saved(write_watch_file(items, path, dump)))

        self._desk.app.push_screen(TextPrompt("Save watchpoints as", FILE, check_path), write)

    def load(self) -> None:
        """Adds what a file holds and the list does not."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        def read(text: str | None) -> None:
            if text is not None:
                from tui_debugger.session.watchpoints import read_watch_file

                path = Path(text.strip()).expanduser()
                self._desk.ask(lambda: read_watch_file(path), self._loaded, self._desk.show_error)

        self._desk.app.push_screen(TextPrompt("Load watchpoints from", FILE, check_file), read)

    def _loaded(self, watchpoints: tuple[Watchpoint, ...]) -> None:
        added = self._session.watchpoints.add_missing(watchpoints)
        if added:
            self._changed()
        there = f", {len(watchpoints) - added} there already" if added < len(watchpoints) else ""
        self._desk.say(f"added {plural(added, 'watchpoint')}{there}")

    def _replace(self, watchpoint: Watchpoint) -> None:
        self._session.watchpoints.replace(watchpoint)
        self._changed()

    # -- nodes -----------------------------------------------------------------------------------

    def _selecting(self) -> Selecting | None:
        pane = self._desk.nodes_pane
        return None if pane.nodes is None or pane.scopes is None else Selecting(pane.nodes, pane.scopes)

    def toggle_watch(self) -> None:
        """Space: the node or scope under the cursor into the selected watchpoint, or out of it."""
        selecting, index, current = self._selecting(), self._desk.nodes_pane.current, self._current
        if selecting is None or index < 0:
            return
        if current is None:
            self.create(NodeSelection((selecting.selector(index),)))
            return
        rank, tree = self._desk.state.rank, selecting.tree
        covered = self._session.watch_state(rank, current.id) > 0
        state = int(tree.spread(covered)[index])
        rows = tree.rows_below(index)
        if not bool(tree.watchable[rows].any()):
            self._desk.say("nothing here can be watched: constants have no values that change", bad=True)
            return
        out = state == 2
        selection = selecting.without(current.selection, index) if out else selecting.having(current.selection, index)
        self._turned = (current.id, index, 0 if out else 2)
        self._replace(replace(current, selection=selection))

    def show_covered(self) -> None:
        """Restricts the node list to the nodes of the watchpoint, or takes that back."""
        current, state = self._current, self._desk.state
        if current is not None:
            same = state.query.watched == current.id
            self._desk.navigator.set_query(replace(state.query, watched=None if same else current.id))
            self._desk.say("all nodes" if same else f"nodes of {_abbr(current)} #{current.id}")

    # -- showing ---------------------------------------------------------------------------------

    def _changed(self) -> None:
        """The list changed: hits are outdated, marks are drawn again."""
        self.show_list()
        self._desk.checker.changed()
        self.mark()
        if self._desk.state.query.watched is not None:
            self._desk.navigator.apply_query()

    def show_list(self) -> None:
        """Draws the pane."""
        desk = self._desk
        if desk.session is None:
            return
        outdated = desk.state.result is not None and not desk.checker.fresh
        items = self._session.watchpoints.items()
        desk.watchpoints_pane.show(items, self._covered, desk.state.tally, outdated=outdated)

    def selected(self, watchpoint: int | None) -> None:
        """The cursor came to a watchpoint."""
        if watchpoint != self._desk.state.watchpoint:
            self._desk.state.watchpoint = watchpoint
            self.mark()

    def mark(self) -> None:
        """Asks for the marks of the node tree."""
        desk, session = self._desk, self._session
        state = desk.state
        rank, watchpoint, result = state.rank, state.watchpoint, state.result
        if desk.nodes_pane.scopes is None:
            return

        def work(_: Report) -> NodesMarked:

            nodes, tree = session.nodes(rank), session.tree(rank)
            known = watchpoint is not None and session.watchpoints.get(watchpoint) is not None
            watched = session.watch_state(rank, watchpoint) if known else None
            covered = {w.id: session.watched_count(w.selection) for w in session.watchpoints.items()}
            return NodesMarked(rank, make_marks(nodes, tree, watched, result, rank), covered)

        desk.bridge.run("marks", work)

    def marked(self, message: NodesMarked) -> None:
        """The answer."""
        if message.rank != self._desk.state.rank:
            return
        self._desk.nodes_pane.mark(message)
        self._say_exceptions(message)
        if message.covered != self._covered:
            self._covered = message.covered
            self.show_list()

    def _say_exceptions(self, message: NodesMarked) -> None:
        """Whether the entry that Space turned on or off is now watched as a whole, or not at all."""
        turned, self._turned = self._turned, None
        if turned is None or turned[0] != self._desk.state.watchpoint or turned[1] >= len(message.marks.watch):
            return
        if int(message.marks.watch[turned[1]]) != turned[2]:
            self._desk.say("part of it is excluded by category or regular expression: W edits", bad=True)


def _abbr(watchpoint: Watchpoint) -> str:
    from tui_debugger.watch.conditions import CONDITIONS

    condition = CONDITIONS.get(watchpoint.condition)
    return condition.abbr if condition else "?"


def check_file(text: str) -> str | None:
    """What is wrong with a path to read from."""
    if not text.strip():
        return "a file name is needed"
    try:
        path = Path(text.strip()).expanduser()
        return None if path.is_file() else "there is no such file"
    except (OSError, ValueError, RuntimeError) as error:
        return f"not a usable path: {error}"
