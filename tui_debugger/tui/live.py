"""Trainings that run: what drives them, checks them and shows them on the main screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.timer import Timer

from tui_debugger.errors import CancelledError
from tui_debugger.live.wire import Phase, Stop
from tui_debugger.session.live_driver import LiveEvent, LiveKind
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import actions, live_status, messages
from tui_debugger.tui.actions import Action
from tui_debugger.tui.answers import Checked
from tui_debugger.tui.app import TdbgApp, settle
from tui_debugger.tui.checker import Checker, check_parts, counted
from tui_debugger.tui.live_answers import Followed, Noted, Ordered, Stirred
from tui_debugger.tui.live_status import live_lines, training_name, training_status, waiting_lines
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.views.view import ViewChanges
from tui_debugger.tui.work import MIN_INTERVAL, Report

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.live_driver import LiveState
    from tui_debugger.tui.live_status import WaitingScreen
    from tui_debugger.tui.widgets.bars import HeaderLines


class LiveChecker(Checker):
    """Keeps the hits of all ranks in one list."""

    def __init__(self, desk: LiveScreen) -> None:
        """Nothing checked."""
        super().__init__(desk)
        self._live: LiveSession = desk.live
        self._announced = True

    @property
    def at_newest(self) -> bool:
        """Whether the newest step of the rank is shown."""
        steps, step = self._live.steps(self._desk.state.rank), self._desk.state.step
        return not steps or step is None or step >= steps[-1]

    def _pairs(self) -> tuple[Pair, ...]:
        """The newest stop of every rank, which need not be the same step; of an older step the ranks that kept it."""
        if not self.at_newest:
            return super()._pairs()
        return tuple((rank, steps[-1]) for rank in self._live.ranks() if (steps := self._live.steps(rank)))

    def opened(self) -> None:
        """The first graph is there."""
        self.arrived(announce=False)

    def arrived(self, *, announce: bool = True) -> None:
        """A training stopped: shows what it found."""
        session, pairs = self._live, self._pairs()
        if not pairs:
            self._show(None)
            return
        self._announced = not announce
        self._desk.bridge.run(
            "check", lambda report: counted(session.known(pairs) or check_parts(session, pairs, report))
        )

    def recheck(self) -> None:
        """At the newest stop the trainings that wait look again; earlier steps are judged here."""
        session, pairs, desk = self._live, self._pairs(), self._desk
        states = {state.rank: state for state in session.trainings()}
        waiting = [rank for rank in session.ranks() if states[rank].phase is Phase.STOPPED]
        if not self.at_newest or not pairs or self._nothing_to_check:
            super().recheck()
        elif not waiting:
            desk.say(live_status.why_refused(states.get(desk.state.rank)), bad=True)
        else:

            def work(report: Report) -> Checked:
                session.recheck(waiting, report)
                return counted(session.known(pairs) or check_parts(session, pairs, report))

            desk.bridge.run("check", work)

    def checked(self, message: Checked) -> None:
        """Says how many hits a stop has."""
        super().checked(message)
        if not message.final or self._announced:
            return
        self._announced = True
        shown = self._desk.hits_pane.shown
        if shown and message.result.pairs:
            steps = {step for _, step in message.result.pairs}
            place = f"step {step_text(min(steps))}" if len(steps) == 1 else plural(len(message.result.pairs), "rank")
            self._desk.say(f"{place}: {plural(shown, 'hit')}, n goes to the first")

    def _empty(self, result: CheckResult | None) -> str:
        """The words of an empty list."""
        if self._nothing_to_check or result is None or not result.pairs:
            return super()._empty(result) if self._pairs() else "nothing to check yet: ] runs a step"
        return f"no hit in {self._where(result)}: c runs to the next step with one"


MOST_STEPS = 2**31 - 1
EVENTS = 1000
"""Most events that wait for the screen; of more the oldest are dropped, states are asked for anyway."""
COUNTED = frozenset({LiveKind.RUNNING, LiveKind.FETCHED})
"""What changes nothing but the header."""


class Runner:
    """The commands to trainings, and what comes back."""

    def __init__(self, desk: LiveScreen) -> None:
        """Listens from now on; ``close`` ends that."""
        self._desk = desk
        self._session: LiveSession = desk.live
        self._events: deque[LiveEvent] = deque(maxlen=EVENTS)
        self._last = 0.0
        self._due: Timer | None = None
        self._ticker: Timer | None = None
        self._asked, self._again = False, False
        self._arrived: set[int] = set()
        self._hits = False
        self._from: tuple[int, int | None] | None = None
        self._newest: dict[int, int] = {}
        self.all_ranks = True
        self.close = self._session.subscribe(self._happened)

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {
            "step_forward": self.step_forward,
            "forward": self.ask_steps,
            "continue": lambda: self.run(None),
            "pause": self.pause,
            "run_to_node": lambda: self.run_to(self._desk.state.row),
            "next_node": lambda: self.run_to(None),
            "all_ranks": self.toggle_ranks,
            "save_dump": self.ask_save,
            "terminate": self.ask_terminate,
        }

    # -- who ---------------------------------------------------------------------------------------

    @property
    def here(self) -> LiveState | None:
        """The training of the rank that is shown."""
        states = self._session.trainings()
        if self._desk.session is None:
            return states[0] if states else None
        rank = self._desk.state.rank
        return next((state for state in states if state.rank == rank), None)

    def _among(self, *phases: Phase) -> list[int]:
        """Ranks that a command goes to, as far as they are in one of some phases."""
        states = self._session.trainings()
        if not self.all_ranks:
            states = tuple(state for state in states if state.rank == self._desk.state.rank)
        return [state.rank for state in states if state.phase in phases]

    def toggle_ranks(self) -> None:
        """Commands for all, or for one."""
        self.all_ranks = not self.all_ranks
        self._desk.update_header()
        self._desk.say("commands go to all ranks" if self.all_ranks else "commands go to the rank that is shown only")

    def _refuse(self) -> None:
        self._desk.say(live_status.why_refused(self.here), bad=True)

    # -- commands ----------------------------------------------------------------------------------

    def _order(self, work: Callable[[Report], None]) -> None:
        """Sends a command from a worker; a second one before the first was taken is a key pressed twice."""

        def ordered(report: Report) -> Ordered:
            work(report)
            return Ordered()

        if not self._desk.bridge.busy("order"):
            self._desk.bridge.run("order", ordered)

    def step_forward(self) -> None:
        """The next kept step; from the newest one a step of the training."""
        if self._desk.live_checker.at_newest:
            self.run(1)
        else:
            self._desk.navigator.step_by(1)

    def ask_steps(self) -> None:
        """How many steps."""
        from tui_debugger.tui.dialogs.prompts import NumberPrompt

        if not self._among(Phase.STOPPED):
            self._refuse()
            return
        prompt = NumberPrompt("Steps to run", 1, low=1, high=MOST_STEPS, note="stops early at a hit")
        self._desk.app.push_screen(prompt, lambda count: None if count is None else self.run(count))

    def run(self, steps: int | None) -> None:
        """Runs steps, or until a hit."""
        ranks = self._among(Phase.STOPPED)
        if not ranks:
            self._refuse()
            return
        self._from = self._position

        def work(report: Report) -> None:
            self._session.run(steps, ranks, progress=report)

        self._order(work)

    def run_to(self, row: int | None) -> None:
        """To a node, or to the next one."""
        here, rank = self.here, self._desk.state.rank
        if here is None or here.phase is not Phase.STOPPED:
            self._refuse()
        elif not self._session.can_run_to_nodes(rank):
            self._desk.say(f"{here.info.program} stops at the end of steps only: ] runs one", bad=True)
        elif row is not None and row < 0:
            self._desk.say("no node is selected", bad=True)
        else:
            self._from = self._position

            self._order(lambda _: self._session.run_to_node(rank, row))

    def pause(self) -> None:
        """Stops trainings at the end of their step; else the work of this program."""
        ranks = self._among(Phase.RUNNING)
        if ranks:
            self._session.pause(ranks)
            self._desk.say("stops at the end of the step")
        elif not self._desk.stop_work():
            self._desk.say("nothing is running")

    def ask_terminate(self) -> None:
        """Asks once, and ends the processes."""
        from tui_debugger.tui.dialogs.prompts import ConfirmScreen

        ranks = self._among(Phase.STOPPED, Phase.RUNNING, Phase.RECEIVING, Phase.MISMATCH)
        if not ranks:
            self._refuse()
            return
        states = [state for state in self._session.trainings() if state.rank in ranks]
        screen = ConfirmScreen(
            "Terminate",
            [f"Ends {plural(len(ranks), 'training')}:", *map(live_status.training_name, states)],
            (("n", "no", "no"), ("y", "terminate", "yes")),
        )
        self._desk.app.push_screen(screen, lambda answer: self._terminate(ranks) if answer == "yes" else None)

    def _terminate(self, ranks: Sequence[int]) -> None:
        def work(_: Report) -> Ordered:
            self._session.terminate(ranks)
            return Ordered("told to end")

        self._desk.bridge.run("end", work)

    def ask_save(self) -> None:
        """Where to."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        session = self._session

        def save(text: str | None) -> None:
            if text is not None:
                path = Path(text.strip()).expanduser()
                self._desk.bridge.run("save", lambda report: Ordered(f"wrote {path}: {session.save(path, report)}"))

        prompt = TextPrompt(
            "Save what was kept as dump directory", time.strftime("tdbg-%Y%m%d-%H%M%S"), check_directory
        )
        self._desk.app.push_screen(prompt, save)

    # -- what happens ------------------------------------------------------------------------------

    def _happened(self, event: LiveEvent) -> None:
        """Called in a thread of the session."""
        if event.kind not in COUNTED:
            self._events.append(event)
        self._desk.post_message(Stirred())

    def stirred(self) -> None:
        """Takes in what happened: at once what one waits for, counters at most four times a second."""
        if self._due is not None:
            return
        wait = self._last + MIN_INTERVAL - time.monotonic()
        if wait > 0 and all(event.kind is LiveKind.HITS for event in tuple(self._events)):
            self._due = self._desk.set_timer(wait, self._take_in)
        else:
            self._take_in()

    def _take_in(self) -> None:
        if self._due is not None:
            self._due.stop()
            self._due = None
        self._last = time.monotonic()
        events = [self._events.popleft() for _ in range(len(self._events))]
        self._say(events)
        self._arrived |= {event.rank for event in events if event.kind is LiveKind.STOPPED and event.rank is not None}
        self._hits |= any(event.kind is LiveKind.HITS for event in events)
        if any(event.kind is not LiveKind.REFUSED for event in events):
            self._follow()
        self._tick()

    def _say(self, events: Sequence[LiveEvent]) -> None:
        """What the header does not say."""
        for event in events:
            name = "a training" if event.rank is None else f"rank {event.rank}"
            if event.kind is LiveKind.REFUSED:
                self._desk.refused(event.text)
            elif event.kind is LiveKind.LOST:
                self._desk.say(f"{name} is lost: {live_status.WAY_OUT}", bad=True)
            elif event.kind is LiveKind.BACK:
                self._desk.say(f"{name} is back")
            elif event.kind is LiveKind.DONE:
                self._desk.say(f"{name} has finished: {live_status.WAY_OUT}")
            elif event.kind in {LiveKind.DROPPED, LiveKind.HITS} and event.text:
                self._desk.say(event.text)

    def _tick(self) -> None:
        """Counters move while something runs; nothing is drawn while nothing does."""
        running = any(state.phase is Phase.RUNNING for state in self._session.trainings())
        if running and self._ticker is None:
            self._ticker = self._desk.set_interval(MIN_INTERVAL, self._tick)
        elif not running and self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        self._desk.update_header()

    def _follow(self) -> None:
        """Has the session take in what came. One at a time: what an answer says is said once."""
        if self._desk.session is None:
            self._desk.open_run()
        elif self._asked:
            self._again = True
        else:
            self._asked = True
            session = self._session
            self._desk.bridge.run("follow", lambda _: Followed(session.refresh()))

    def followed(self, message: Followed) -> None:
        """The answer: new nodes are read; the screen goes where the training stopped, if it was at its newest step."""
        desk, changes = self._desk, message.changes
        self._asked = False
        arrived, self._arrived = self._arrived, set()
        desk.navigator.show_run()
        if changes.new_nodes or changes.rebuilt:
            desk.navigator.load_nodes()
        here, following = desk.state.rank in arrived, self._following()
        if here and following:
            self._go_to_stop()
        elif here:
            desk.say(f"rank {desk.state.rank} stopped: s goes to its step")
        elif arrived:
            desk.say(f"{', '.join(f'rank {rank}' for rank in sorted(arrived))} stopped: < and > go there")
        hits, self._hits = self._hits and not desk.bridge.busy("check"), False
        if (arrived or hits) and (following or not here):
            desk.live_checker.arrived()
        else:
            desk.checker.changed()
        self._newest = {rank: steps[-1] for rank in self._session.ranks() if (steps := self._session.steps(rank))}
        if self._again:
            self._again = False
            self._follow()

    @property
    def _position(self) -> tuple[int, int | None]:
        return self._desk.state.rank, self._desk.state.step

    def _following(self) -> bool:
        """Whether a stop may take the screen along: not away from an older step that the user went to meanwhile."""
        rank, step = self._position
        return (rank, step) == self._from or step is None or step >= self._newest.get(rank, step)

    def opened(self) -> None:
        """Somebody looks now: takes in what happened before."""
        self._follow()
        self._tick()

    def failed(self) -> None:
        """Taking in went wrong; what was said, the next event tries again."""
        self._asked = False

    def _go_to_stop(self) -> None:
        desk, here = self._desk, self.here
        steps = self._session.steps(desk.state.rank)
        if steps:
            desk.navigator.place(desk.state.rank, steps[-1])
        nodes = desk.nodes_pane.nodes
        if here is not None and here.stop is not None and here.stop.node and nodes is not None:
            row = nodes.find(here.stop.node)
            if row >= 0:
                desk.navigator.go_to_row(row)


def check_directory(text: str) -> str | None:
    """What is wrong with a directory to save to."""
    if not text.strip():
        return "a directory name is needed"
    try:
        path = Path(text.strip()).expanduser()
        if path.is_dir():
            return "this directory is not empty" if any(path.iterdir()) else None
        return "this is a file" if path.exists() else None if path.parent.is_dir() else "its parent does not exist"
    except (OSError, ValueError, RuntimeError) as error:
        return f"not a usable path: {error}"


REFUSALS = 20
"""Refusals that the waiting page lists."""


class LiveScreen(MainScreen):
    """See ``MainScreen``.

    Attributes:
        live: the session, there from the beginning; ``session`` only once the first graph is.
        staying: the user left, and trainings depend on somebody who answers them.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(actions.added_bindings())
    KEPT = "kept"

    def __init__(self, live: LiveSession, *, warning: str = "", stays: bool = False, **given: Any) -> None:
        """Shows empty panes until ``wait``.

        Args:
            live: the session.
            warning: what the waiting page warns of.
            stays: the program goes on without the screen as long as a training depends on it.
            given: what ``MainScreen`` takes.
        """
        super().__init__(**given)
        self.live = live
        self.tensors_pane.absent = "not kept"
        self.runner: Runner | None = None
        self._warning = warning
        self._opening = False
        self._stays = stays
        self.staying = False
        self._waiting_page: WaitingScreen | None = None
        self._stops: dict[int, Stop] = {}

    # -- waiting for the first training --------------------------------------------------------------

    def wait(self) -> None:
        """The first frame is there: listens, and shows where trainings find this program."""
        from tui_debugger.tui.live_status import WaitingScreen

        self.runner = Runner(self)
        self.handlers |= {"pause": self.runner.pause, "quit": self._quit}
        terminate = self.runner.ask_terminate
        self._waiting_page = WaitingScreen(self.live.waiting_text, self._warning, self._quit, terminate)
        self.app.push_screen(self._waiting_page)
        self.runner.opened()  # what came before anybody listened

    def open_run(self) -> None:
        """A training came: its graph is read as soon as it is there."""
        live = self.live
        self._show_waiting()
        if live.ranks() and not self._opening:
            self._opening = True

            def work(report: Any) -> messages.Opened:
                live.refresh()
                live.open(report)
                return messages.Opened(live)

            self.bridge.run("open", work)

    def start(self, session: Session) -> None:
        """The first graph is there."""
        if self._waiting_page is not None:
            self._waiting_page.leave()
            self._waiting_page = None
        super().start(session)
        if self.runner is not None:
            self.handlers |= self.runner.handlers()
            self.runner.opened()

    def refused(self, text: str) -> None:
        """A client was turned away."""
        if text:
            self.say(f"refused: {text}", bad=True)
            self._show_waiting()

    def _show_waiting(self) -> None:
        if self._waiting_page is not None:
            self._waiting_page.show(self.live.trainings(), self.live.refusals[-REFUSALS:])

    # -- what is different from a dump ---------------------------------------------------------------

    @property
    def live_checker(self) -> LiveChecker:
        """The checker of trainings."""
        if not isinstance(self.checker, LiveChecker):
            msg = "no training is there"
            raise TypeError(msg)
        return self.checker

    def make_checker(self) -> LiveChecker:
        """The trainings themselves say what hits."""
        return LiveChecker(self)

    def keys_here(self) -> list[Action]:
        """With those that drive trainings."""
        return actions.live_reachable(self.current_pane)

    def keys_of_footer(self) -> list[Action]:
        """Likewise."""
        return actions.live_footer(self.current_pane)

    def keys_of_help(self) -> tuple[Action, ...]:
        """Likewise."""
        return actions.live_help()

    def update_header(self) -> None:
        """Who and where; what the training does."""
        if self.session is None:
            self.header.show(*waiting_lines(self.run_title, len(self.live.trainings())))
            self._update_tabs()
        else:
            super().update_header()

    def header_text(self) -> HeaderLines:
        """The lines of the rank that is shown."""
        one = self.runner is not None and not self.runner.all_ranks
        return live_lines(self.live, self.state, self.progress, self.checker.status(), one_rank=one)

    # -- answers -------------------------------------------------------------------------------------

    def on_stirred(self, _: Stirred) -> None:
        """Something happened to a training."""
        if self.runner is not None:
            self.runner.stirred()

    def on_noted(self, message: Noted) -> None:
        """Whoever plays the training says something."""
        self.say(message.text)

    def on_ordered(self, message: Ordered) -> None:
        """A command was taken."""
        self._route(message, lambda ordered: self.say(ordered.text) if ordered.text else None)

    def on_followed(self, message: Followed) -> None:
        """What trainings sent was taken in."""
        if self.runner is not None:
            self._route(message, self.runner.followed)
            if self.session is not None:
                self.views.tell(ViewChanges.of_training(message.changes, self._renewed()))

    def _renewed(self) -> list[Pair]:
        """Where trainings went on within a step since the last call: what they hold of it may be different."""
        stops = {state.rank: state.stop for state in self.live.trainings() if state.stop is not None}
        before, self._stops = self._stops, stops
        both = ((rank, before.get(rank), stop) for rank, stop in stops.items())
        return [(rank, stop.step) for rank, old, stop in both if old and old.step == stop.step and old != stop]

    def on_failed(self, message: messages.Failed) -> None:
        """A graph that cannot be read ends nothing: another training may come."""
        message.prevent_default()  # Textual would call the handler that this one calls once more
        if message.lane == "open" and self.bridge.fresh(message):
            self._opening = False
            self.show_error(message.error)
        else:
            super().on_failed(message)

    def _failed(self, message: messages.Failed) -> None:
        if message.lane == "follow" and self.runner is not None:
            self.runner.failed()
        if message.lane in {"order", "end", "check"} and not isinstance(message.error, CancelledError):
            error = messages.presentable(message.error)
            self.say(" — ".join(part for part in (error.what, error.hint) if part), bad=True)
            self.checker.changed()
        else:
            super()._failed(message)

    # -- leaving -------------------------------------------------------------------------------------

    def _quit(self) -> None:
        """Asks once what becomes of trainings that wait, or that end with this program."""
        from tui_debugger.tui.dialogs.prompts import ConfirmScreen

        depends = self.live.dependents() if self._stays else ()
        held = {
            state.rank: state
            for state in self.live.trainings()
            if state.phase in {Phase.STOPPED, Phase.MISMATCH} or state.rank in depends
        }
        if not held:
            self.app.exit()
            return
        lines = [f"{training_name(state)}: {training_status(state)[1]}" for state in held.values()]
        if depends:
            lines.append("MindSpore ends a training that nobody answers: tdbg stays, without the screen, until its end")
        it = "it" if len(held) == 1 else "them"
        answers = (("g", f"let {it} go on", "go"), ("t", f"terminate {it}", "terminate"))
        screen = ConfirmScreen(f"Leave {plural(len(held), 'training')}", lines, answers)
        self.app.push_screen(screen, lambda answer: self._leave(answer, tuple(held), stay=bool(depends)))

    def _leave(self, answer: str | None, ranks: Sequence[int], *, stay: bool) -> None:
        if answer is None:
            return
        if answer == "terminate":
            self.live.terminate(ranks)
        self.staying = stay and answer == "go"
        self.app.exit()  # then the session lets everything go on


class LiveApp(TdbgApp):
    """Shows the waiting page, then the panes."""

    def __init__(
        self, session: LiveSession, *, title: str = "", warning: str = "", stays: bool = False, **given: Any
    ) -> None:
        """The session listens already.

        Args:
            session: is closed with the screen: every training that waits goes on.
            title: where it listens.
            warning: what the waiting page warns of.
            stays: whoever runs this goes on answering trainings that depend on it, see ``LiveScreen.staying``; the
                session is then let go, and closed by them.
            given: what ``TdbgApp`` takes.
        """
        self._live = session
        self._warning, self._stays = warning, stays
        super().__init__(self._opened, title=title, **given)

    def _opened(self, _: ProgressFn) -> Session:
        return self._live

    def make_desk(self, **given: Any) -> LiveScreen:
        """The screen of trainings."""
        return LiveScreen(self._live, warning=self._warning, stays=self._stays, **given)

    @property
    def live_desk(self) -> LiveScreen:
        """The main screen, as what it is."""
        if not isinstance(self.desk, LiveScreen):
            msg = "not the screen of trainings"
            raise TypeError(msg)
        return self.desk

    def note(self, text: str) -> None:
        """One line in the footer; may be called from any thread."""
        self.desk.post_message(Noted(text))

    def _start(self) -> None:
        self._settle()
        self.live_desk.wait()

    def shut(self) -> None:
        """Stops threads and lets go of trainings."""
        desk = self.live_desk
        if desk.runner is not None:
            desk.runner.close()
        desk.bridge.close()
        if desk.staying:
            self._live.release()
        else:
            self._live.close()


def run_live(
    session: LiveSession,
    *,
    title: str,
    warning: str = "",
    recommended: bool | None = None,
    mouse: bool = True,
    started: Callable[[LiveApp], None] | None = None,
    stay: Callable[[LiveSession], None] | None = None,
) -> int:
    """Runs the screen and returns the exit code.

    Args:
        session: see ``LiveApp``.
        title: where it listens.
        warning: what the waiting page warns of.
        recommended: True adds the recommended watchpoints, False does not offer them, None asks once.
        mouse: whether the screen takes the mouse.
        started: called with the program before its first frame.
        stay: answers trainings that depend on it, once the screen was left, until they end; None: nobody does.
    """
    app = LiveApp(session, title=title, warning=warning, stays=stay is not None, recommended=recommended, settle=settle)
    if started is not None:
        started(app)
    try:
        app.run(mouse=mouse)
        if stay is not None and app.live_desk.staying:
            stay(session)
    finally:
        session.close()
    return app.return_code or 0
