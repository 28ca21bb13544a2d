"""The base of the views: work beside the event loop, keys of the other views, copy and export, changes of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from textual.binding import BindingType

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.session.export_files import save_npy
from tui_debugger.session.export_graph import write_table, write_text
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import percent
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH, VIEW_ACTIONS, bindings, opening_actions, shown_key
from tui_debugger.tui.dialogs.modal import Modal
from tui_debugger.tui.dialogs.prompts import TextPrompt, typed_path
from tui_debugger.tui.export import (
    Extract,
    copy_to_clipboard,
    export_problem,
    listed,
    screenshot,
    suffixes,
    svg_of,
    write_picture,
)
from tui_debugger.tui.views.registry import ViewTarget

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
    from tui_debugger.tui.widgets.search import ListSearch, SearchBar


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Changes of the run that open views must handle; no changed tensor was read yet.

    Attributes:
        pairs: (rank, step) pairs with new or replaced tensors.
        rewritten: the pairs in which tensors that existed before may have other values now.
        ranks: ranks that appeared, or whose nodes were read again.
    """

    pairs: frozenset[Pair] = frozenset()
    rewritten: frozenset[Pair] = frozenset()
    ranks: frozenset[int] = frozenset()
    results: bool = False

    @classmethod
    def of(cls, changes: Changes, renewed: Iterable[Pair] | None = None) -> ViewChanges:
        """Returns the changes; only tensors of the ``renewed`` pairs of a live training may have other values.

        In a dump (None) a new file may replace a file that was read before.
        """
        pairs = frozenset((*changes.new_steps, *changes.grown_steps))
        rewritten = pairs if renewed is None else frozenset(renewed)
        return cls(pairs, rewritten, frozenset((*changes.new_ranks, *changes.rebuilt)))

    def __or__(self, other: ViewChanges) -> ViewChanges:
        return ViewChanges(
            self.pairs | other.pairs,
            self.rewritten | other.rewritten,
            self.ranks | other.ranks,
            self.results or other.results,
        )

    def __bool__(self) -> bool:
        return bool(self.pairs or self.rewritten or self.ranks or self.results)

    @property
    def anywhere(self) -> bool:
        return bool(self.pairs or self.ranks)

    def up_to(self, step: int) -> bool:
        """Tells whether tensors at ``step`` or before it may be different, on any rank."""
        return bool(self.ranks) or any(at <= step for _, at in self.rewritten)

    def steps_of(self, rank: int) -> list[int]:
        return sorted(step for of, step in self.pairs if of == rank)


class SeenResults:
    """The check results that existed when a view was filled, to tell when there are newer ones."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[Pair, object] = {}

    def note(self, pairs: Iterable[Pair]) -> None:
        self._seen = {pair: self._now(pair) for pair in pairs}

    @property
    def newer(self) -> bool:
        """Tells whether a pair that is shown has another result now; a result that vanished does not count."""
        return any(
            now is not None and now is not seen for pair, seen in self._seen.items() for now in [self._now(pair)]
        )

    def _now(self, pair: Pair) -> object:
        return self._session.checks().known_results.fresh(pair, self._session.watchpoints.version)


T = TypeVar("T")
RUN_CHANGED = "the run has changed"
CHECKED = "new check results"
_NOTHING = "there is nothing here yet"


class ViewHost(Protocol):
    """Opens views and runs their work; implemented by ``view_opener.ViewOpener``."""

    comparison: RunComparison | None
    """The other run that this run is compared with."""

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
        """Runs ``work`` in a thread; newer work of the same view replaces it.

        ``done``, ``failed`` and ``progressed`` are called on the event loop, ``progressed`` at most 4 times a second.
        The progress function that ``work`` gets raises CancelledError once the work was cancelled or replaced.
        """

    def stop(self, view: View) -> bool:
        """Cancels the work of a view; False when there is none."""


class View(Modal[None]):
    """A screen about one tensor (``about``) or the run. Esc stops work, then goes back."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(opening_actions()), *bindings(VIEW_ACTIONS)]
    OWN_ACTIONS: ClassVar[tuple[Action, ...]] = ()
    """The keys of this view alone."""

    def __init_subclass__(cls, **named: Any) -> None:
        if "OWN_ACTIONS" in vars(cls):
            cls.BINDINGS = [*bindings(cls.OWN_ACTIONS)]
        super().__init_subclass__(**named)

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        """A subclass reads nothing here: it starts :meth:`work` in ``on_mount``."""
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
    def session(self) -> Session:
        return self.host.session

    @property
    def target_here(self) -> ViewTarget:
        """The tensor under the cursor, on which other views open; by default ``about``."""
        return self.about

    def target_of(self, key: TensorKey) -> ViewTarget:
        return ViewTarget(key, self.session.nodes(key.rank).find(key.node, key.graph))

    def graph_words(self, key: TensorKey) -> str:
        """Returns the graph's name after two blanks if the tensor's rank has several graphs, else an empty string."""
        session = self.session
        several = key.rank in session.ranks() and len(session.nodes(key.rank).graphs) > 1
        return f"  {clean(key.graph)}" if several else ""

    @property
    def dump(self) -> Path:
        """The directory of the run; nothing may be written into it."""
        return Path(self.session.info.path)

    def extract(self) -> Extract | None:
        """Returns the content for copy and export; None while there is none."""
        return None

    def take_in(self, changes: ViewChanges) -> None:
        """Handles changes of the run. By default the view marks itself outdated; see also ``work_quietly``."""
        if not self._outdated:
            self.mark_outdated(self.outdated_by(changes))

    def outdated_by(self, changes: ViewChanges) -> str:
        """Returns why the view may be outdated, or an empty string. By default changes at later steps do not count."""
        return RUN_CHANGED if changes.up_to(self.about.key.step) else ""

    # -- work beside the event loop ----------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Tells whether work runs that the user asked for (not ``work_quietly``)."""
        return self._job is not None and not self._quiet

    def work(self, what: str, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Runs ``job`` in a thread and hands its result to ``done`` on the event loop.

        ``done`` is not called if newer work was started or Esc was pressed. ``job`` gets a progress function and
        touches no widget. ``what``, two or three words, is shown with the progress.
        """
        self.say(f"{what} …  Esc stops", note=True)

        def finished(result: T) -> None:
            self.say("")
            done(result)

        def show_progress(progress: Progress) -> None:
            self.say(f"{what} {_how_far(progress)} …  Esc stops", note=True)

        self._start(job, finished, show_progress)

    def work_anew(self, what: str, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Like ``work``; afterwards the view is no longer marked as outdated."""

        def finished(result: T) -> None:
            self.mark_outdated("")
            done(result)

        self.work(what, job, finished)

    def work_quietly(self, job: Callable[[ProgressFn], T], done: Callable[[T], None]) -> None:
        """Like ``work``, but without a message; Esc leaves the view, and work that the user starts replaces it."""
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
            self._pending |= self._following  # the replaced work is done again later, by ``_catch_up``
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
        self.say("stopped" if isinstance(error, CancelledError) else str(error), note=isinstance(error, CancelledError))

    def action_cancel(self) -> None:
        """Stops the work that the user asked for, else ends a search, else closes the view."""
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
        return bool(self._outdated)

    def run_changed(self, changes: ViewChanges) -> None:
        """Collects changes; the view handles them once it is in front and no work runs."""
        self._pending |= changes
        self._catch_up()

    def on_screen_resume(self) -> None:
        self._catch_up()

    def _catch_up(self) -> None:
        if self._job is not None or not self.is_open or self.app.screen is not self:
            return  # ``is_current`` is also true for a view below a dialog
        edition = self.session.results_edition
        changes, self._pending = self._pending | ViewChanges(results=edition != self._edition), ViewChanges()
        self._edition = edition
        if changes:
            self._following = changes
            self.take_in(changes)

    def mark_outdated(self, why: str) -> None:
        """Shows ``why`` the view is outdated among its key hints; an empty text removes that hint."""
        if why != self._outdated:
            self._outdated = why
            self.set_hints(self.hints)

    # -- a search in one of its lists: it marks the rows that match -----------------------------------

    @property
    def list_searched(self) -> bool:
        return self._list_search is not None and self._list_search.pattern is not None

    def action_search(self) -> None:
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
        self.query_one("#box").mount(bar, before="#message")

    def look_for(self, search: ListSearch) -> None:
        search.look_through()
        self.set_hints(self.hints)

    def rows_changed(self, search: ListSearch) -> None:
        search.look_through()

    def tell_search_error(self, why: str) -> None:
        self.say(why)

    def search_changed(self) -> None:
        self.set_hints(self.hints)

    def place(self, search: ListSearch) -> object:
        return search.table.place()

    def go_back(self, search: ListSearch, place: object) -> None:
        search.table.go_back(place)

    def _hints(self, hints: Sequence[tuple[str, str]]) -> Content:
        hints = [(shown_key(text), word) for text, word in hints]
        mark = ((f"○ {self._outdated}: {LOOK_AGAIN.main_key}", "looks again"),) if self._outdated else ()
        if self.list_searched:
            others = (hint for hint in hints if hint[0] not in {"n", "n N", "Esc"})
            hints = (("n N", "matches"), ("Esc", "back to before"), *others)
        return super()._hints((*mark, *hints))

    def look_again(self) -> None:
        """Computes the view again, in the same place: see ``work_anew``. Only views with the key ``r`` override it."""

    def action_look_again(self) -> None:
        if not self.working:
            self.look_again()

    # -- keys of every view ------------------------------------------------------------------------

    def action_open(self, view: str) -> None:
        self.host.open(view, self.target_here)

    def action_values(self) -> None:
        self.host.open("values", self.target_here)

    def action_keys(self) -> None:
        from tui_debugger.tui.actions import view_help_actions
        from tui_debugger.tui.dialogs.pages import HelpScreen

        shown = view_help_actions(self.OWN_ACTIONS, searched=self.list_searched)
        HelpScreen(shown, conditions=False, heading=f"Keys: {self.heading}").ask(self.app, self.run_listed)

    def run_listed(self, action: Action) -> None:
        """Does an action that was chosen in a list of actions."""
        on = "focused." if action.where == SEARCH else ""
        self.call_next(self.run_action, f"{on}{action.id}")

    def keys_here(self) -> list[Action]:
        """Returns the actions that are in reach, most useful first."""
        return [*self.OWN_ACTIONS, *opening_actions(), *VIEW_ACTIONS]

    def action_palette(self) -> None:
        self.app.action_command_palette()

    def action_copy(self) -> None:
        extract = self.extract()
        self._copy(extract, "" if extract is None else extract.one)

    def action_copy_all(self) -> None:
        extract = self.extract()
        self._copy(extract, "" if extract is None else extract.text)

    def _copy(self, extract: Extract | None, text: str) -> None:
        if not text:
            nothing = f"nothing under the cursor; {shown_key(':')} Copy all copies everything"
            self.say(_NOTHING if extract is None else nothing, note=True)
            return
        try:
            self.say(copy_to_clipboard(self.app, text), note=True)
        except TdbgError as error:
            self.say(f"{error.what}: {shown_key('e')} {error.hint}")

    def action_export(self) -> None:
        """Asks for a path and writes the view there, in the format of the suffix."""
        extract = self.extract()
        if extract is None:
            self.say(_NOTHING, note=True)
            return
        if self.working:
            self.say("something is still under way: wait for it, or stop it with Esc", note=True)
            return
        forms = suffixes(extract)
        note = f"the suffix decides: {listed(forms)}; nothing is overwritten"
        check = partial(export_problem, forms, self.dump)
        prompt = TextPrompt("Export this view", extract.stem + forms[0], check, note=note)
        prompt.ask(self.app, lambda text: self._write(extract, typed_path(text)))

    def _write(self, extract: Extract, path: Path) -> None:
        suffix, array, dump = path.suffix.lower(), extract.array, self.dump

        def work(job: Callable[[ProgressFn], Path]) -> None:
            self.work("writing", job, lambda written: self.say(f"wrote {written}", note=True))

        def draw() -> None:
            picture = svg_of(self.app)
            work(lambda _: write_picture(picture, path, dump))

        if suffix == ".svg":
            self.say("")
            self.call_after_refresh(draw)  # the prompt and the last message must not be in the picture
        elif suffix == ".npy" and array is not None:
            work(lambda progress: save_npy(array(), path, dump, progress=progress))
        elif suffix == ".csv":
            work(lambda progress: write_table(extract.header, extract.rows, path, dump, progress))
        else:
            work(lambda _: write_text(extract.text.splitlines(), path, dump))

    def action_screenshot(self) -> None:
        if not self.working:
            self.say("")  # old messages do not belong in the picture
        name = type(self).__name__.removesuffix("Screen").removesuffix("View").lower()
        self.call_after_refresh(screenshot, self.app, name, self.dump, lambda text: self.say(text, note=True), self.say)


def notify_views(app: App[Any], changes: ViewChanges) -> None:
    """Tells every open view that the run changed or that there are new check results."""
    for screen in app.screen_stack:
        if isinstance(screen, View):
            screen.run_changed(changes)


def _how_far(progress: Progress) -> str:
    return progress.text if progress.part is None else f"{percent(100 * progress.part)} %"


Files = Mapping["TensorKey", "FileState | None"]


class ValuesView(View):
    """A view of tensor values: when their step changes, it looks at the files of its own tensors only."""

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.files: Files = {}

    def take_in(self, changes: ViewChanges) -> None:
        """Marks the view outdated if files of its tensors changed; most tensors of a growing step do not."""
        files = {key: file for key, file in self.files.items() if _may_concern(changes, key)}
        if files and not self.outdated:
            session = self.session
            self.work_quietly(lambda _: rewritten(session, files), self._answered)

    def _answered(self, others: frozenset[TensorKey]) -> None:
        if others.intersection(self.shown_keys):
            self.mark_outdated(RUN_CHANGED)
        self.forget_tensors(others.difference(self.shown_keys))

    @property
    def shown_keys(self) -> Collection[TensorKey]:
        """The tensors that are shown; other tensors of ``files`` are only cached."""
        return self.files.keys()

    def forget_tensors(self, keys: Collection[TensorKey]) -> None:
        """Drops cached data of tensors whose values have changed."""


def files_of(session: Session, keys: Sequence[TensorKey], before: Files | None = None, *, anew: bool = False) -> Files:
    """Returns the state of the tensors' files; call it before reading them, and again for files that had to be fetched.

    ``before`` has the states before the read, which stay unless None. ``anew`` drops what the session knows of the
    tensors.
    """
    for key in keys if anew else ():
        session.forget(key)
    known = before or {}
    return {key: known.get(key) or session.file_state(key) for key in keys}


def rewritten(session: Session, files: Files) -> frozenset[TensorKey]:
    """Returns the tensors whose files have changed since ``files``; reads from disk, so call it in a worker."""
    return frozenset(key for key, file in files.items() if _is_other(session, key, file))


def _is_other(session: Session, key: TensorKey, file: FileState | None) -> bool:
    now = session.file_state(key)
    if now is not None or file is None or file.spec.format != "raw":
        return now != file
    try:  # a live training: the tensor's values are new if the training holds it again
        return session.row_of(key).remote
    except TdbgError:
        return False


def _may_concern(changes: ViewChanges, key: TensorKey) -> bool:
    return (key.rank, key.step) in changes.pairs or key.rank in changes.ranks
