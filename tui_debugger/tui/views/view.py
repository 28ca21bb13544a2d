"""The base of the views: work beside the event loop, keys of the other views, copy and export, changes of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from textual.binding import BindingType

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import percent
from tui_debugger.tui.actions import LOOK_AGAIN, VIEW_ACTIONS, bindings, opening_bindings, shown_key
from tui_debugger.tui.dialogs.modal import Modal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import App
    from textual.content import Content

    from tui_debugger.check.types import Pair
    from tui_debugger.model import Progress, ProgressFn, TensorKey
    from tui_debugger.session import Session
    from tui_debugger.session.comparison import RunComparison
    from tui_debugger.session.following import FileState
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.actions import Action
    from tui_debugger.tui.export import Extract
    from tui_debugger.tui.views.registry import ViewTarget
    from tui_debugger.tui.widgets.search import ListSearch, SearchBar


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Changes of the run that open views have to take in. Nothing of them is read yet.

    Attributes:
        pairs: (rank, step) of which there are tensors that were not there before, or others.
        rewritten: those of them in which tensors that were there may have other values now.
        ranks: ranks that appeared, or whose nodes were read anew.
        results: checks found something out, or what they found does not hold any more.
    """

    pairs: frozenset[Pair] = frozenset()
    rewritten: frozenset[Pair] = frozenset()
    ranks: frozenset[int] = frozenset()
    results: bool = False

    @classmethod
    def of_dump(cls, changes: Changes) -> ViewChanges:
        """Files appeared: it is not known which of them take the place of others."""
        pairs = frozenset((*changes.new_steps, *changes.grown_steps))
        return cls(pairs, pairs, frozenset((*changes.new_ranks, *changes.rebuilt)))

    @classmethod
    def of_training(cls, changes: Changes, renewed: Iterable[Pair]) -> ViewChanges:
        """Returns the changes of a training that went on: only the step that it is still in may have other values."""
        pairs = frozenset((*changes.new_steps, *changes.grown_steps))
        return cls(pairs, frozenset(renewed), frozenset((*changes.new_ranks, *changes.rebuilt)))

    def __or__(self, other: ViewChanges) -> ViewChanges:
        """Joins both."""
        return ViewChanges(
            self.pairs | other.pairs,
            self.rewritten | other.rewritten,
            self.ranks | other.ranks,
            self.results or other.results,
        )

    def __bool__(self) -> bool:
        """Tells whether there is any."""
        return bool(self.pairs or self.rewritten or self.ranks or self.results)

    def up_to(self, step: int) -> bool:
        """Tells whether something before or at a step may be different, of any rank."""
        return bool(self.ranks) or any(at <= step for _, at in self.rewritten)

    def steps_of(self, rank: int) -> list[int]:
        """Returns the steps of a rank, ascending."""
        return sorted(step for of, step in self.pairs if of == rank)


class SeenResults:
    """The results that checks had when a view looked, so that it can tell when they found something else."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[Pair, object] = {}

    def note(self, pairs: Iterable[Pair]) -> None:
        """Remembers what is known now of the pairs that are shown."""
        self._seen = {pair: self._now(pair) for pair in pairs}

    @property
    def newer(self) -> bool:
        """Tells whether there is a result now that was not there then."""
        return any(
            now is not None and now is not seen for pair, seen in self._seen.items() for now in [self._now(pair)]
        )

    def _now(self, pair: Pair) -> object:
        return self._session.checks().known_results.fresh(pair, self._session.watchpoints.version)


T = TypeVar("T")
RUN_CHANGED = "the run has changed"
CHECKED = "new check results"


class ViewHost(Protocol):
    """Opens views and works for them: ``view_opener``, or a test."""

    comparison: RunComparison | None
    """The other run that this one is compared with."""

    @property
    def session(self) -> Session:
        """The open session."""

    def open(self, view: str, target: ViewTarget) -> None:
        """Opens a view (an id of ``registry.VIEWS``, or ``values``) above the current one."""

    def go_to(self, target: ViewTarget) -> None:
        """Closes every view and shows the tensor on the main screen: its rank, step, node and slot."""

    def run(
        self,
        view: View,
        work: Callable[[ProgressFn], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        progressed: Callable[[Progress], None],
    ) -> None:
        """Does ``work`` beside the event loop; newer work of the same view replaces it.

        ``done``, ``failed`` and ``progressed`` (how far it is) are called on the event loop, ``progressed`` at most 4
        times a second. The function that ``work`` gets raises CancelledError once nobody waits any more.
        """

    def stop(self, view: View) -> bool:
        """Cancels the work of a view; False when there is none."""


class View(Modal[None]):
    """A screen about one tensor (or the run). Esc stops work, then goes back.

    Attributes:
        host: who opened it.
        about: the tensor it is about.
    """

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [*opening_bindings(), *bindings(VIEW_ACTIONS)]
    OWN_ACTIONS: ClassVar[tuple[Action, ...]] = ()
    """The keys of this view alone, for its help page; bind them with ``actions.bindings``."""

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        """Nothing is read before the view shows: start with :meth:`work` in ``on_mount``."""
        super().__init__()
        self.host = host
        self.about = about
        self._job: object = None
        self._quiet = False
        self._pending = ViewChanges()
        self._following = ViewChanges()
        self._edition = host.session.results_edition
        self._outdated = ""
        self._list_search: ListSearch | None = None

    # -- what a view may override ------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The tensor under the cursor, which the other views open on. By default the one it is about."""
        return self.about

    def graph_words(self, key: TensorKey) -> str:
        """``  kernel_graph_1`` where the rank of a tensor has several graphs; else nothing."""
        session = self.host.session
        several = key.rank in session.ranks() and len(session.nodes(key.rank).graphs) > 1
        return f"  {clean(key.graph)}" if several else ""

    @property
    def dump(self) -> Path:
        """The directory that nothing is written into."""
        return Path(self.host.session.info.path)

    def extract(self) -> Extract | None:
        """Returns what can be copied and exported; None while there is nothing."""
        return None

    def take_in(self, changes: ViewChanges) -> None:
        """Takes changes in. By default a view says that it is outdated where it is; see also ``work_quietly``."""
        if not self._outdated:
            self.mark_outdated(self.outdated_by(changes))

    def outdated_by(self, changes: ViewChanges) -> str:
        """Says why the view may be outdated, or nothing. By default changes at later steps do not count."""
        return RUN_CHANGED if changes.up_to(self.about.key.step) else ""

    # -- work beside the event loop ----------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Tells whether work is under way that the user asked for."""
        return self._job is not None and not self._quiet

    def work(self, what: str, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Runs ``job`` and hands its result to ``done``, unless newer work was started or Esc pressed.

        Args:
            what: two or three words, shown with the progress.
            job: called in a worker with a function to be called with progress; touches no widget.
            done: called on the event loop.
        """
        self.say(f"{what} …  Esc stops", note=True)

        def finished(result: T) -> None:
            self.say("")
            done(result)

        def show_progress(progress: Progress) -> None:
            self.say(f"{what} {_how_far(progress)} …  Esc stops", note=True)

        self._start(job, finished, show_progress)

    def work_anew(self, what: str, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Like ``work``; once it is done the view is not outdated any more."""

        def finished(result: T) -> None:
            self.mark_outdated("")
            done(result)

        self.work(what, job, finished)

    def work_quietly(self, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Like ``work``, for changes of the run: nothing is said, Esc leaves the view, and other work comes first."""
        self._start(job, done, lambda _: None, quiet=True)

    def _start(
        self,
        job: Callable[[ProgressFn], T],
        done: Callable[[T], None],
        progressed: Callable[[Progress], None],
        *,
        quiet: bool = False,
    ) -> None:
        if self._quiet and not quiet:
            self._pending |= self._following  # it is taken in later
        mine = self._job = object()
        self._quiet = quiet

        def current() -> bool:
            return self._job is mine and self.is_open

        def finished(result: T) -> None:
            if current():
                self._ended()
                done(result)
                self._catch_up()

        def failed(error: Exception) -> None:
            if current():
                self._ended()
                self.failed(error)
                self._catch_up()

        def tell(progress: Progress) -> None:
            if current():
                progressed(progress)

        self.host.run(self, job, finished, failed, tell)

    def _ended(self) -> None:
        self._job = None
        self._quiet = False

    def failed(self, error: Exception) -> None:
        """Says why the work ended without a result."""
        self.say("stopped" if isinstance(error, CancelledError) else str(error), note=isinstance(error, CancelledError))

    def action_cancel(self) -> None:
        """Esc: stops what is under way, else goes back."""
        asked = self.working
        if self._job is not None:
            self._ended()
            self.host.stop(self)
        if not asked and self._list_search is not None and self._list_search.end(back=True):
            return
        if asked:
            again = LOOK_AGAIN in self.OWN_ACTIONS
            self.say(f"stopped{f': {LOOK_AGAIN.main_key} looks again' if again else ''}", note=True)
            self.call_after_refresh(self._catch_up)
        else:
            self.dismiss(None)

    # -- a run that changes ------------------------------------------------------------------------

    @property
    def outdated(self) -> bool:
        """Tells whether it says that what is shown is not what the run is now."""
        return bool(self._outdated)

    def run_changed(self, changes: ViewChanges) -> None:
        """The run changed: the view takes that in as soon as it is in front and nothing is under way."""
        self._pending |= changes
        self._catch_up()

    def on_screen_resume(self) -> None:
        """Takes in changes once the view is in front again."""
        self._catch_up()

    def _catch_up(self) -> None:
        if self._job is not None or not self.is_open or self.app.screen is not self:
            return  # ``is_current`` would be true below a dialog as well
        edition = self.host.session.results_edition
        changes, self._pending = self._pending | ViewChanges(results=edition != self._edition), ViewChanges()
        self._edition = edition
        if changes:
            self._following = changes
            self.take_in(changes)

    def mark_outdated(self, why: str) -> None:
        """Says among the key hints that what is shown is not what the run is now; an empty text takes that back."""
        if why != self._outdated:
            self._outdated = why
            self.set_hints(self.hints)

    # -- a search in one of its lists: it marks the rows that match -----------------------------------

    @property
    def list_searched(self) -> bool:
        """Tells whether one of its lists is searched."""
        return self._list_search is not None and self._list_search.pattern is not None

    def action_search(self) -> None:
        """Opens the search box of the list that has the focus."""
        from tui_debugger.tui.widgets.search import ListSearch
        from tui_debugger.tui.widgets.virtual_table import VirtualTable

        table = self.focused
        if not isinstance(table, VirtualTable):
            return
        if self._list_search is not None and self._list_search.table is not table:
            self._list_search.end(back=False)
        known = table.search
        self._list_search = known if isinstance(known, ListSearch) else ListSearch(table, self)
        self._list_search.open()

    def mount_search(self, bar: SearchBar) -> None:
        """Puts the box below the lists."""
        self.query_one("#box").mount(bar, before="#message")

    def look_for(self, search: ListSearch) -> None:
        """Looks through the rows."""
        search.look_through()
        self.set_hints(self.hints)

    def rows_changed(self, search: ListSearch) -> None:
        """Looks again; the cursor stays, unless it is still to go to the first match."""
        search.look_through()

    def refuse_search(self, why: str) -> None:
        """Says what is wrong with the text."""
        self.say(why)

    def accept_search(self) -> None:
        """Takes that back."""
        self.say("")

    def search_changed(self) -> None:
        """Other keys work."""
        self.set_hints(self.hints)

    def place(self, search: ListSearch) -> object:
        """Returns where the cursor is."""
        return search.table.place()

    def go_back(self, search: ListSearch, place: object) -> None:
        """Moves the cursor back."""
        search.table.go_back(place)

    def _hints(self, hints: Sequence[tuple[str, str]]) -> Content:
        hints = [(shown_key(text), word) for text, word in hints]
        mark = ((f"○ {self._outdated}: {LOOK_AGAIN.main_key}", "looks again"),) if self._outdated else ()
        if self.list_searched:
            others = (hint for hint in hints if hint[0] not in {"n", "n N", "Esc"})
            hints = (("n N", "matches"), ("Esc", "back to before"), *others)
        return super()._hints((*mark, *hints))

    def look_again(self) -> None:
        """Works out anew what is shown, in the same place: see ``work_anew``. For views that have the key."""

    def action_look_again(self) -> None:
        """``r``, unless something is under way."""
        if not self.working:
            self.look_again()

    # -- keys of every view ------------------------------------------------------------------------

    def action_open(self, view: str) -> None:
        """Opens another view of the tensor under the cursor."""
        self.host.open(view, self.target_here)

    def action_keys(self) -> None:
        """Lists all keys of this view."""
        from tui_debugger.tui.actions import view_help_actions
        from tui_debugger.tui.dialogs.pages import HelpScreen

        shown = view_help_actions(self.OWN_ACTIONS, searched=self.list_searched)
        self.app.push_screen(HelpScreen(shown, conditions=False, heading=f"Keys: {self.heading}"))

    def action_copy(self) -> None:
        """Copies what is under the cursor."""
        from tui_debugger.tui.export import copy

        copy(self, everything=False)

    def action_copy_all(self) -> None:
        """Copies everything."""
        from tui_debugger.tui.export import copy

        copy(self, everything=True)

    def action_export(self) -> None:
        """Writes the view to a file."""
        from tui_debugger.tui.export import export

        export(self)

    def action_screenshot(self) -> None:
        """Writes a picture of the screen."""
        from tui_debugger.tui.export import screenshot

        if not self.working:
            self.say("")  # what was said before is no part of the picture
        name = type(self).__name__.removesuffix("Screen").removesuffix("View").lower()
        self.call_after_refresh(screenshot, self.app, name, self.dump, lambda text: self.say(text, note=True), self.say)


def notify_views(app: App[Any], changes: ViewChanges) -> None:
    """The run changed, or more of it was checked: every open view takes in what concerns it."""
    for screen in app.screen_stack:
        if isinstance(screen, View):
            screen.run_changed(changes)


def _how_far(progress: Progress) -> str:
    return progress.text if progress.part is None else f"{percent(100 * progress.part)} %"


Files = Mapping["TensorKey", "FileState | None"]


class ValuesView(View):
    """Asks for the files of its tensors, and for no others, when their step changed."""

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.files: Files = {}

    def take_in(self, changes: ViewChanges) -> None:
        """Asks whether the changes concern these tensors: a step that grows leaves most as they are."""
        files = {key: file for key, file in self.files.items() if _may_concern(changes, key)}
        if files and not self.outdated:
            session = self.host.session
            self.work_quietly(lambda _: rewritten(session, files), self._answered)

    def _answered(self, others: frozenset[TensorKey]) -> None:
        if others.intersection(self.shown_keys):
            self.mark_outdated(RUN_CHANGED)
        self.forget_tensors(others.difference(self.shown_keys))

    @property
    def shown_keys(self) -> Collection[TensorKey]:
        """The tensors that are shown; others of ``files`` are only kept."""
        return self.files.keys()

    def forget_tensors(self, keys: Collection[TensorKey]) -> None:
        """Forgets what is kept of these tensors: their values are different now."""


def files_of(session: Session, keys: Sequence[TensorKey], before: Files | None = None, *, anew: bool = False) -> Files:
    """Returns the state of the files of tensors: before they are read, and after for those that had to be fetched.

    Args:
        session: the run.
        keys: the tensors.
        before: how they looked before they were read.
        anew: they are to be measured again, whatever is known of them.
    """
    for key in keys if anew else ():
        session.forget(key)
    known = before or {}
    return {key: known.get(key) or session.file_state(key) for key in keys}


def rewritten(session: Session, files: Files) -> frozenset[TensorKey]:
    """Returns the tensors that have other values now. For workers."""
    return frozenset(key for key, file in files.items() if _is_other(session, key, file))


def _is_other(session: Session, key: TensorKey, file: FileState | None) -> bool:
    now = session.file_state(key)
    if now is not None or file is None or file.spec.format != "raw":
        return now != file
    try:  # a training went on: whether it holds the tensor anew, or has let it go
        return session.row_of(key).remote
    except TdbgError:
        return False


def _may_concern(changes: ViewChanges, key: TensorKey) -> bool:
    return (key.rank, key.step) in changes.pairs or key.rank in changes.ranks
