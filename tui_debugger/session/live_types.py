"""What a live session tells its front ends: where each training is, and what happened. Immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tui_debugger.live.types import Phase, Stop, TrainingInfo
from tui_debugger.session.checking import PairResult


@dataclass(frozen=True, slots=True)
class LiveState:
    """Where one training is, as far as its events were worked through.

    Attributes:
        rank: its rank in this session: its own, or the next free number when another has that.
        info: who it is.
        phase: what it is doing.
        stop: where it stopped last; None before the first stop.
        graph: whether its graph is there: only then it has nodes.
        remaining: steps that it was told to run and has not run yet; None: until a hit; 0 when it stands.
        passed: the last step that it ended and that was worked through, also while it runs; None before the first stop.
        fetched: bytes of values and statistics that came from it so far.
        kept: bytes of them that are still in the spool.
    """

    rank: int
    info: TrainingInfo
    phase: Phase
    stop: Stop | None = None
    graph: bool = False
    remaining: int | None = 0
    fetched: int = 0
    kept: int = 0
    passed: int | None = None

    @property
    def step(self) -> int | None:
        """The step that it stands after (or in); ``types.START`` before the first, None before the first stop."""
        return self.stop.step if self.stop is not None else None


class LiveKind(Enum):
    """What happened to a training."""

    CONNECTED = "connected"
    GRAPH = "graph"
    """Its nodes are there, or were read anew: ``LiveSession.ranks`` has it."""
    STOPPED = "stopped"
    """It waits at a new stop; the results of its step are in ``known``."""
    HITS = "hits"
    """Hits came while it goes on, or in a recheck; they are in ``known`` as well."""
    RUNNING = "running"
    LOST = "lost"
    BACK = "back"
    DONE = "done"
    REFUSED = "refused"
    """A client was turned away; ``text`` says why."""
    FETCHED = "fetched"
    """Values or statistics came in: tables of its steps grew."""
    DROPPED = "dropped"
    """The spool was full: its oldest values are gone; ``text`` says which."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something happened.

    Attributes:
        kind: what.
        rank: of which training; None when it is of none that has a rank here.
        text: one line for people, may be empty.
        step: for ``STOPPED`` and ``HITS`` the step whose result is there.
        count: for ``STOPPED`` the number of the stop: see ``Stop.count``.
        result: for ``STOPPED`` and ``HITS`` what was found in that step so far; None when nobody judged it.
    """

    kind: LiveKind
    rank: int | None = None
    text: str = ""
    step: int | None = None
    count: int = 0
    result: PairResult | None = field(default=None, repr=False, compare=False)
