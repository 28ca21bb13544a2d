"""Drives trainings: run, pause, terminate, save; and takes in what happens to them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.timer import Timer

from tui_debugger.live.wire import Phase
from tui_debugger.session.live_driver import LiveEvent, LiveKind
from tui_debugger.text.numbers import plural
from tui_debugger.tui import live_words
from tui_debugger.tui.bridge import MIN_INTERVAL, Report
from tui_debugger.tui.live_answers import Followed, Ordered, Stirred

if TYPE_CHECKING:
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.live_driver import LiveState
    from tui_debugger.tui.live_desk import LiveDesk

MOST_STEPS = 2**31 - 1
EVENTS = 1000
"""Most events that wait for the screen; of more the oldest are dropped, states are asked for anyway."""
COUNTED = frozenset({LiveKind.RUNNING, LiveKind.FETCHED})
"""What changes nothing but the header."""


class Runner:
    """The commands to trainings, and what comes back."""

    def __init__(self, desk: LiveDesk) -> None:
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
        self._desk.say(live_words.refusal(self.here), bad=True)

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
            [f"Ends {plural(len(ranks), 'training')}:", *map(live_words.who, states)],
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
                self._desk.say(f"{name} is lost: {live_words.WAY_OUT}", bad=True)
            elif event.kind is LiveKind.BACK:
                self._desk.say(f"{name} is back")
            elif event.kind is LiveKind.DONE:
                self._desk.say(f"{name} has finished: {live_words.WAY_OUT}")
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
