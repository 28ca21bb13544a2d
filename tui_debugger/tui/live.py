"""The control of live trainings: their state on the screen, the page that waits for them, and the commands to them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from tui_debugger.errors import CancelledError
from tui_debugger.live.wire import Event, Phase, TrainingStop
from tui_debugger.session.live_events import LiveEvent
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of, methods_of_keys
from tui_debugger.tui.context import ScreenState
from tui_debugger.tui.dialogs.modal import Modal, PlainLine
from tui_debugger.tui.header import Status, answer_cells, checking_text, coverage_text, position_text
from tui_debugger.tui.theme import GREY, ORANGE
from tui_debugger.tui.views.view import ViewChanges, notify_views
from tui_debugger.tui.widgets.bars import HeaderLines, progress_line
from tui_debugger.tui.work import MIN_INTERVAL, JobProgress, one_line

if TYPE_CHECKING:
    from textual.timer import Timer

    from tui_debugger.check.types import Pair
    from tui_debugger.model import Progress
    from tui_debugger.session import Session
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.live_events import LiveState
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.checker import CheckController
    from tui_debugger.tui.context import Context
    from tui_debugger.tui.navigator import Navigator


COUNTING = 2.0
"""Seconds between two counts of the steps that a training finished without a hit."""
ENDED_HINT = "what was kept can be looked at; S saves it, q leaves"
"""The hint for a training that is gone."""

_PHASE_GLYPHS = {
    Phase.RECEIVING: ("↓", theme.GOOD),
    Phase.STOPPED: ("■", theme.GOOD),
    Phase.RUNNING: ("▶", theme.GOOD),
    Phase.MISMATCH: ("≠", theme.FINDING),
    Phase.LOST: ("✗", theme.FINDING),
    Phase.DONE: ("●", theme.NORMAL),
}


def training_status(state: LiveState) -> Status:
    glyph, style = _PHASE_GLYPHS[state.phase]
    return glyph, _status_text(state), style


def _status_text(state: LiveState) -> str:
    if state.phase is Phase.STOPPED:
        return f"stopped {stop_text(state)}"
    if state.phase is Phase.RUNNING:
        left = "until a hit" if state.remaining is None else f"{state.remaining:,} left" if state.remaining else ""
        done = "" if state.passed is None or state.passed < 0 else f", step {state.passed} done"
        return f"running{done}" + (f", {left}" if left else "")
    if state.phase is Phase.MISMATCH:
        return "another version: T terminates it"
    if state.phase is Phase.LOST:
        return f"lost, may come back: {ENDED_HINT}"
    return f"finished: {ENDED_HINT}" if state.phase is Phase.DONE else state.phase.value


def stop_text(state: LiveState) -> str:
    """Returns the place where a training stopped: ``after step 3``."""
    stop = state.stop
    if stop is None:
        return ""
    if stop.node:
        return f"in step {step_text(stop.step)} at {clean(stop.node)}"
    if stop.step < 0:
        return "before the first step"
    return f"after step {stop.step}" + (", before the first run of another network" if stop.opens else "")


def other_trainings(states: Sequence[LiveState], rank: int) -> str:
    counts = Counter(state.phase for state in states if state.rank != rank)
    return ", ".join(f"{plural(count, 'other')} {phase.value}" for phase, count in counts.items())


def training_name(state: LiveState) -> str:
    """Returns the name of a training: ``rank 0 · MindSpore 2.0.0 · GPU 0 · 127.0.0.1:4711``."""
    info = state.info
    parts = (f"rank {state.rank}", info.program, f"{info.backend} {info.device}".strip(), info.address)
    return " · ".join(clean(part) for part in parts if part)


def why_refused(state: LiveState | None) -> str:
    """Returns why a command cannot go to a training now."""
    if state is None:
        return "no training has come yet"
    name = f"rank {state.rank}"
    return {
        Phase.RECEIVING: f"{name} is still sending its graph",
        Phase.STOPPED: f"{name} is not running",
        Phase.RUNNING: f"{name} is running: p stops it at the end of its step",
        Phase.MISMATCH: f"{name} speaks another version: T terminates it",
        Phase.LOST: f"{name} is lost: {ENDED_HINT}",
        Phase.DONE: f"{name} has finished: {ENDED_HINT}",
    }[state.phase]


def waiting_lines(title: str, trainings: int) -> HeaderLines:
    words = f"○ {plural(trainings, 'training')} connected, no graph yet" if trainings else "○ waiting for a training"
    left = Text(no_wrap=True).append("tdbg", theme.GOOD).append("  " + clean(title))
    nothing = Text(no_wrap=True)
    return (left, nothing), (nothing, nothing), (Text(words, theme.GOOD, no_wrap=True), nothing)


def live_lines(
    session: LiveSession, state: ScreenState, progress: Mapping[str, Progress], check: Status, *, one_rank: bool
) -> HeaderLines:
    """Returns the header for the rank that is shown; the session has at least one graph.

    ``progress``: of long work, by lane. ``check``: the state of the hits. ``one_rank``: commands go to this rank only.
    """
    states = session.trainings()
    here = next((each for each in states if each.rank == state.rank), None)
    place = position_text(session, state, "kept")
    if one_rank and len(states) > 1:
        place.append("  this rank only", theme.DOUBT)
    if here is None:
        nothing = Text(no_wrap=True)
        return (
            (Text("tdbg", theme.GOOD, no_wrap=True), place),
            (nothing, nothing),
            (nothing, coverage_text(session, state)),
        )
    doing = progress_line(progress) if progress else _status_cell(states, here, check)
    found = answer_cells(session, state, checking_text(progress, check))
    return (_training_cell(here), place), found, (doing, coverage_text(session, state))


def _training_cell(state: LiveState) -> Text:
    info = state.info
    text = Text(no_wrap=True).append("tdbg", theme.GOOD)
    text.append("  " + clean(info.program), theme.STRONG)
    text.append("  " + clean(f"{info.backend} {info.device}".strip()))
    text.append("  " + clean(info.address), theme.DIM)
    if state.fetched:
        text.append(f"  {size(state.fetched)} fetched", theme.DIM)
    return text


def _status_cell(states: tuple[LiveState, ...], here: LiveState, check: Status) -> Text:
    glyph, words, style = training_status(here)
    text = Text(f"{glyph} {words}", style, no_wrap=True)
    mark, about, check_style = check
    if mark != "●":  # fresh hits need no words
        text.append(f"  {mark} {about}", check_style)
    others = other_trainings(states, here.rank)
    return text.append(f"  {others}", theme.DIM) if others else text


ATTACH = "import tui_debugger.torch as tdbg; tdbg.attach(model, optimizer)"
"""The line that a PyTorch program needs."""


class WaitingScreen(Modal[None]):
    """The page with the settings that a training needs, the trainings that came and the refusals."""

    FULL = True
    DEFAULT_CSS = "WaitingScreen #page { height: 1fr; scrollbar-size-vertical: 1; }"
    heading = "Waiting for a training"
    hints = (("Esc q", "leave"), ("T", "terminate"), ("↑ ↓", "scroll"), ("Shift+mouse", "select"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "cancel", show=False),
        Binding("T", "terminate", show=False),
    ]

    def __init__(
        self, text: Callable[[], str], warning: str, leave: Callable[[], None], terminate: Callable[[], None]
    ) -> None:
        """Takes texts and the actions of Esc (``leave``) and T (``terminate``).

        ``text`` returns the settings and is called at each drawing; ``warning`` is about the listening address, or
        empty.
        """
        super().__init__()
        self._text = text
        self._warning = warning
        self._leave = leave
        self._terminate = terminate
        self._over = False
        self._trainings: Sequence[LiveState] = ()
        self._refusals: Sequence[str] = ()

    def body(self) -> Iterable[Widget]:
        """Lays out the text without frames at its sides, so that it can be selected with the mouse."""
        with VerticalScroll(id="page"):
            yield PlainLine(id="lines")

    def on_mount(self) -> None:
        self.query_one("#page").focus()
        self._draw()

    def show(self, trainings: Sequence[LiveState], refusals: Sequence[str]) -> None:
        if (tuple(trainings), tuple(refusals)) != (tuple(self._trainings), tuple(self._refusals)):
            self._trainings, self._refusals = tuple(trainings), tuple(refusals)
            if self.query("#lines"):  # before mounting, ``on_mount`` draws
                self._draw()

    def leave(self) -> None:
        """Closes the page because a graph came; a dialog above the page is answered first."""
        self._over = True
        self._go()

    def on_screen_resume(self) -> None:
        """Closes the page after a dialog above it, if ``leave`` was called meanwhile."""
        if self._over:
            self._go()

    def _go(self) -> None:
        # The resume event may arrive after the page was closed: ``dismiss`` would close another screen then.
        if self.app.screen is self:
            self.dismiss(None)

    def _draw(self) -> None:
        lines: list[Content | str] = ["", *how_to_connect(self._text())]
        if self._warning:
            lines += ["", Content.styled(f"! {clean(self._warning)}", ORANGE)]
        for state in self._trainings:
            glyph, words, _ = training_status(state)
            lines += ["", Content.styled(f"{glyph} {training_name(state)}: {words}", "bold")]
            if state.info.warning:
                lines.append(Content.styled(f"! {clean(state.info.warning)}", ORANGE))
        for refusal in reversed(self._refusals):
            lines += ["", Content.styled(f"✗ refused: {clean(refusal)}", f"bold {ORANGE}")]
        parts = [Content(line) if isinstance(line, str) else line for line in lines]
        self.show_line("lines", Content("\n").join(parts))

    def action_cancel(self) -> None:
        self._leave()

    def action_terminate(self) -> None:
        self._terminate()


def how_to_connect(text: str) -> list[Content | str]:
    """Returns the settings for each kind of training, from lines ``kind:  VARIABLE=value ...``."""
    lines: list[Content | str] = [Content.styled("Start the training with this in its environment:", "bold")]
    for line in text.splitlines():
        kind, _, variables = clean(line).partition(":  ")
        lines += ["", Content.styled(kind, GREY), f"  {variables.strip()}"]
    return [*lines, Content.styled("  and in a PyTorch program:", GREY), f"  {ATTACH}"]


MOST_STEPS = 2**31 - 1
EVENTS = 1000
"""Most events that wait for the screen; the oldest are dropped, which loses no state: the session is asked for states.
"""
COUNTED = frozenset({Event.RUNNING, Event.FETCHED})
"""Events that change nothing but the header."""
REFUSALS = 20
"""Refusals that the waiting page lists."""


class LiveControl:
    """The part of the main screen that exists only for live trainings.

    Attributes:
        all_ranks: commands go to all ranks, else to the rank that is shown.
        staying: the user left, and this program must go on answering trainings.
    """

    def __init__(self, session: LiveSession, *, warning: str = "", stays: bool = False) -> None:
        """``session`` listens already. ``stays``: this program outlives the screen while a training depends on it."""
        self.session = session
        self.all_ranks = True
        self.staying = False
        self._warning = warning
        self._stays = stays
        self._context: Context | None = None
        self._navigator: Navigator | None = None
        self._checker: CheckController | None = None
        self._start: Callable[[Session], None] = lambda _: None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._waiting_page: WaitingScreen | None = None
        self._opening = False
        self._stops: dict[int, TrainingStop] = {}
        self._events: deque[LiveEvent] = deque(maxlen=EVENTS)
        self._last_taken = 0.0
        self._delayed: Timer | None = None
        self._ticker: Timer | None = None
        self._taking_in, self._more_came = False, False
        self._arrived: set[int] = set()
        self._new_hits = False
        self._ran_from: tuple[int, int | None] | None = None
        self._newest: dict[int, int] = {}
        self._counted = 0.0

    def handlers(self) -> dict[str, Callable[[], None]]:
        return methods_of_keys(self) | {"continue": lambda: self.run(None), "next_node": lambda: self.run_to(None)}

    def handlers_of_waiting(self) -> dict[str, Callable[[], None]]:
        return {"pause": self.act_pause, "quit": self.act_quit}

    @property
    def _screen(self) -> Context:
        if self._context is None:
            msg = "there is no screen yet"
            raise RuntimeError(msg)
        return self._context

    @property
    def busy(self) -> bool:
        return bool(self._events) or self._taking_in

    # -- waiting for the first training ------------------------------------------------------------

    def wait(self, context: Context, start: Callable[[Session], None]) -> None:
        self._context, self._start = context, start
        self._unsubscribe = self.session.subscribe(self._happened)
        page = WaitingScreen(self.session.waiting_text, self._warning, self.act_quit, self.act_terminate)
        self._waiting_page = page
        context.app.push_screen(page)
        self.show_past_events()  # events from before the subscription

    def connect(self, navigator: Navigator, checker: CheckController) -> None:
        """Takes the controllers of the panes, which exist from the first graph on."""
        self._navigator, self._checker = navigator, checker

    def show_past_events(self) -> None:
        """Handles events from before the controllers existed."""
        self._follow()
        self._tick()

    def close(self) -> None:
        """Closes the session, or releases the trainings that go on; the caller of the screen answers those."""
        self._unsubscribe()
        if self.staying:
            self.session.release()
        else:
            self.session.close()

    def header_lines(self, title: str) -> HeaderLines:
        """Returns the header; ``title`` is the address where the session listens."""
        if self._checker is None:
            return waiting_lines(title, len(self.session.trainings()))
        context, status = self._screen, self._checker.status()
        return live_lines(self.session, context.state, context.work.progress, status, one_rank=not self.all_ranks)

    def _open_run(self) -> None:
        """Opens the session as soon as a training has sent its graph."""
        session = self.session
        self._show_waiting()
        if session.ranks() and not self._opening:
            self._opening = True

            def job(report: JobProgress) -> Session:
                session.refresh()
                session.open(report)
                return session

            self._screen.work.run("open", job, self._opened, self._unreadable)

    def _opened(self, session: Session) -> None:
        if self._waiting_page is not None:
            self._waiting_page.leave()
            self._waiting_page = None
        self._start(session)

    def _unreadable(self, error: Exception) -> None:
        """Shows the error and goes on waiting: another training may come."""
        self._opening = False
        self._screen.show_error(error)

    def _refused(self, text: str) -> None:
        if text:
            self._screen.say(f"refused: {text}", bad=True)
            self._show_waiting()

    def _show_waiting(self) -> None:
        if self._waiting_page is not None:
            self._waiting_page.show(self.session.trainings(), self.session.refusals[-REFUSALS:])

    # -- where trainings stand ---------------------------------------------------------------------

    @property
    def at_newest(self) -> bool:
        state = self._screen.state
        steps = self.session.steps(state.rank)
        return not steps or state.step is None or state.step >= steps[-1]

    def newest(self) -> tuple[Pair, ...]:
        return tuple((rank, steps[-1]) for rank in self.session.ranks() if (steps := self.session.steps(rank)))

    def waiting(self) -> list[int]:
        states = {state.rank: state for state in self.session.trainings()}
        return [rank for rank in self.session.ranks() if states[rank].phase is Phase.STOPPED]

    def why_not(self) -> str:
        return why_refused(self.here)

    def recheck(self, ranks: Sequence[int], report: JobProgress) -> None:
        self.session.recheck(ranks, report)

    @property
    def here(self) -> LiveState | None:
        states = self.session.trainings()
        if self._navigator is None:
            return states[0] if states else None
        rank = self._screen.state.rank
        return next((state for state in states if state.rank == rank), None)

    def _among(self, *phases: Phase) -> list[int]:
        """Returns the ranks that a command goes to and whose training is in one of ``phases``."""
        states = self.session.trainings()
        if not self.all_ranks:
            states = tuple(state for state in states if state.rank == self._screen.state.rank)
        return [state.rank for state in states if state.phase in phases]

    def act_all_ranks(self) -> None:
        self.all_ranks = not self.all_ranks
        self._screen.update_header()
        self._screen.say("commands go to all ranks" if self.all_ranks else "commands go to the rank that is shown only")

    def _refuse(self) -> None:
        self._screen.say(self.why_not(), bad=True)

    # -- commands ----------------------------------------------------------------------------------

    def _order(self, work: Callable[[JobProgress], None]) -> None:
        """Sends a command from a worker; ignores a second one while the first is sent (a key pressed twice)."""
        if not self._screen.work.busy("order"):
            self._screen.work.run("order", work, lambda _: None, self._order_failed)

    def _order_failed(self, error: Exception) -> None:
        if self._checker is None:
            self._screen.show_error(error)
        elif isinstance(error, CancelledError):
            self._checker.stopped()
        else:
            self._screen.say(one_line(error), bad=True)
            self._checker.changed()

    def act_step_forward(self) -> None:
        """Goes to the next kept step; from the newest step runs one step of the training."""
        if self._navigator is None or self.at_newest:
            self.run(1)
        else:
            self._navigator.step_by(1)

    def act_forward(self) -> None:
        from tui_debugger.tui.dialogs.prompts import NumberPrompt

        if not self._among(Phase.STOPPED):
            self._refuse()
            return
        prompt = NumberPrompt("Steps to run", 1, low=1, high=MOST_STEPS, note="stops early at a hit")
        prompt.ask(self._screen.app, self.run)

    def run(self, steps: int | None) -> None:
        ranks = self._among(Phase.STOPPED)
        if not ranks:
            self._refuse()
            return
        self._ran_from = self._position

        def work(report: JobProgress) -> None:
            self.session.run(steps, ranks, stop_at_inf=False, progress=report)

        self._order(work)

    def act_run_to_node(self) -> None:
        """Runs to the selected node, or to the first operator of the selected scope."""
        row, pane = self._screen.state.row, self._screen.nodes_pane
        in_tree = self._screen.current_pane() == "nodes" or row < 0
        self.run_to(pane.first_operator() if in_tree and pane.current_row < 0 else row)

    def run_to(self, row: int | None) -> None:
        """Runs to a node (its row), or with None to the next node."""
        here, rank = self.here, self._screen.state.rank
        if here is None or here.phase is not Phase.STOPPED:
            self._refuse()
        elif not self.session.can_run_to_nodes(rank):
            self._screen.say(f"{here.info.program} stops at the end of steps only: ] runs one", bad=True)
        elif row is not None and row < 0:
            self._screen.say("no operator is selected", bad=True)
        else:
            self._ran_from = self._position

            self._order(lambda _: self.session.run_to_node(rank, row))

    def act_go_to_stop(self) -> None:
        here = self.here
        if self._navigator is None or here is None or here.stop is None:
            self._refuse()
            return
        self._go_to_stop(self._navigator)
        self._screen.say(f"rank {here.rank}: {training_status(here)[1]}")

    def act_pause(self) -> None:
        """Stops trainings at the end of their step, else stops a job of this program."""
        ranks = self._among(Phase.RUNNING)
        if ranks:
            self.session.pause(ranks)
            self._screen.say("stops at the end of the step")
        elif not self._screen.work.cancel_shown():
            self._screen.say("nothing is running")

    def act_terminate(self) -> None:
        from tui_debugger.tui.dialogs.prompts import ConfirmScreen

        ranks = self._among(Phase.STOPPED, Phase.RUNNING, Phase.RECEIVING, Phase.MISMATCH)
        if not ranks:
            self._refuse()
            return
        states = [state for state in self.session.trainings() if state.rank in ranks]
        screen = ConfirmScreen(
            "Terminate",
            [f"Ends {plural(len(ranks), 'training')}:", *map(training_name, states)],
            (("n", "no", "no"), ("y", "terminate", "yes")),
        )
        self._screen.app.push_screen(screen, lambda answer: self._terminate(ranks) if answer == "yes" else None)

    def _terminate(self, ranks: Sequence[int]) -> None:
        self._screen.work.run(
            "end",
            lambda _: self.session.terminate(ranks),
            lambda _: self._screen.say("told to end"),
            self._order_failed,
        )

    def act_save_dump(self) -> None:
        from tui_debugger.tui.dialogs.prompts import TextPrompt, path_check, typed_path

        session = self.session

        def save(text: str) -> None:
            path = typed_path(text)
            self._screen.work.run(
                "save",
                lambda report: session.save(path, report),
                lambda written: self._screen.say(f"wrote {path}: {written}"),
            )

        check = path_check(_unusable_directory, "a directory name is needed")
        prompt = TextPrompt("Save what was kept as dump directory", time.strftime("tdbg-%Y%m%d-%H%M%S"), check)
        prompt.ask(self._screen.app, save)

    # -- what happens ------------------------------------------------------------------------------

    def _happened(self, event: LiveEvent) -> None:
        """Takes an event; called in a thread of the session."""
        if event.kind not in COUNTED:
            self._events.append(event)
        self._screen.work.call(self._take_events_soon, "trainings")

    def _take_events_soon(self) -> None:
        """Handles events at once, but events that only bring counters or hits at most four times a second."""
        if self._delayed is not None:
            return
        wait = self._last_taken + MIN_INTERVAL - time.monotonic()
        if wait > 0 and all(event.kind is Event.HITS for event in tuple(self._events)):
            self._delayed = self._screen.set_timer(wait, self._take_events)
        else:
            self._take_events()

    def _take_events(self) -> None:
        if self._delayed is not None:
            self._delayed.stop()
            self._delayed = None
        self._last_taken = time.monotonic()
        events = [self._events.popleft() for _ in range(len(self._events))]
        self._say(events)
        self._arrived |= {event.rank for event in events if event.kind is Event.STOPPED and event.rank is not None}
        self._new_hits |= any(event.kind is Event.HITS for event in events)
        if any(event.kind is not Event.REFUSED for event in events):
            self._follow()
        self._tick()

    def _say(self, events: Sequence[LiveEvent]) -> None:
        for event in events:
            name = "a training" if event.rank is None else f"rank {event.rank}"
            if event.kind is Event.REFUSED:
                self._refused(event.text)
            elif event.kind is Event.LOST:
                self._screen.say(f"{name} is lost: {ENDED_HINT}", bad=True)
            elif event.kind is Event.BACK:
                self._screen.say(f"{name} is back")
            elif event.kind is Event.DONE:
                self._screen.say(f"{name} has finished: {ENDED_HINT}")
            elif event.kind in {Event.HITS, Event.LISTED} and event.text:
                self._screen.say(event.text)

    def _tick(self) -> None:
        """Updates the header, regularly as long as some training runs."""
        running = any(state.phase is Phase.RUNNING for state in self.session.trainings())
        if running and self._ticker is None:
            self._ticker = self._screen.set_interval(MIN_INTERVAL, self._tick)
        elif not running and self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        if running:
            self._count_silent()
        self._screen.update_header()

    def _count_silent(self) -> None:
        """Counts finished steps every ``COUNTING`` seconds: steps without a hit send no event."""
        result, checker = self._screen.state.result, self._checker
        due = time.monotonic() - self._counted >= COUNTING
        if checker is not None and due and not (result is not None and result.hits.findings):
            self._counted = time.monotonic()
            checker.changed()

    def _follow(self) -> None:
        """Has the session read new data, one refresh at a time, so that no change is reported twice."""
        if self._navigator is None:
            self._open_run()
        elif self._taking_in:
            self._more_came = True
        else:
            self._taking_in = True
            session = self.session
            self._screen.work.run("follow", lambda _: session.refresh(), self._followed, self._follow_failed)

    def _followed(self, changes: Changes) -> None:
        context, navigator, checker = self._screen, self._navigator, self._checker
        self._taking_in = False
        if navigator is None or checker is None:
            return
        arrived, self._arrived = self._arrived, set()
        navigator.show_run()
        if changes.new_nodes or changes.rebuilt:
            navigator.load_nodes()
        here, following = context.state.rank in arrived, self._following()
        if here and following:
            self._go_to_stop(navigator)
        elif here:
            context.say(f"rank {context.state.rank} stopped: {key_of('step')} goes to its step")
        elif arrived:
            context.say(f"{', '.join(f'rank {rank}' for rank in sorted(arrived))} stopped: < and > go there")
        hits, self._new_hits = self._new_hits and not context.work.busy("check"), False
        if (arrived or hits) and (following or not here):
            checker.arrived()
        else:
            checker.changed()
        self._newest = dict(self.newest())
        if self._more_came:
            self._more_came = False
            self._follow()
        notify_views(context.app, ViewChanges.of(changes, self._renewed()))

    def _follow_failed(self, error: Exception) -> None:
        self._taking_in = False
        if isinstance(error, CancelledError) and self._checker is not None:
            self._checker.stopped()
        else:
            self._screen.show_error(error)

    def _renewed(self) -> list[Pair]:
        """Returns the pairs in which a training moved within its step since the last call: values may be different."""
        stops = {state.rank: state.stop for state in self.session.trainings() if state.stop is not None}
        before, self._stops = self._stops, stops
        both = ((rank, before.get(rank), stop) for rank, stop in stops.items())
        return [(rank, stop.step) for rank, old, stop in both if old and old.step == stop.step and old != stop]

    @property
    def _position(self) -> tuple[int, int | None]:
        return self._screen.state.rank, self._screen.state.step

    def _following(self) -> bool:
        """Tells whether a stop may move the screen: not away from an older step that the user chose meanwhile."""
        rank, step = self._position
        return (rank, step) == self._ran_from or step is None or step >= self._newest.get(rank, step)

    def _go_to_stop(self, navigator: Navigator) -> None:
        context, here = self._screen, self.here
        steps = self.session.steps(context.state.rank)
        if steps:
            navigator.place(context.state.rank, steps[-1])
        nodes = context.nodes_pane.nodes
        if here is not None and here.stop is not None and here.stop.node and nodes is not None:
            row = nodes.find(here.stop.node)
            if row >= 0:
                navigator.go_to_row(row)

    # -- leaving -----------------------------------------------------------------------------------

    def act_quit(self) -> None:
        """Leaves; asks first if trainings wait or depend on this program: let them go on, or terminate them."""
        from tui_debugger.tui.dialogs.prompts import ConfirmScreen

        depends = self.session.dependents() if self._stays else ()
        held = {
            state.rank: state
            for state in self.session.trainings()
            if state.phase in {Phase.STOPPED, Phase.MISMATCH} or state.rank in depends
        }
        if not held:
            self._screen.app.exit()
            return
        lines = [f"{training_name(state)}: {training_status(state)[1]}" for state in held.values()]
        if depends:
            lines.append("MindSpore ends a training that gets no answer: tdbg stays, without the screen, until its end")
        it = "it" if len(held) == 1 else "them"
        answers = (("g", f"let {it} go on", "go"), ("t", f"terminate {it}", "terminate"))
        screen = ConfirmScreen(f"Leave {plural(len(held), 'training')}", lines, answers)
        screen.ask(self._screen.app, lambda answer: self._leave(answer, tuple(held), stay=bool(depends)))

    def _leave(self, answer: str, ranks: Sequence[int], *, stay: bool) -> None:
        if answer == "terminate":
            self.session.terminate(ranks)
        self.staying = stay and answer == "go"
        self._screen.app.exit()  # closing the session lets all trainings go on


def _unusable_directory(path: Path) -> str | None:
    if path.is_dir():
        return "this directory is not empty" if any(path.iterdir()) else None
    return "this is a file" if path.exists() else None if path.parent.is_dir() else "its parent does not exist"
