"""The path upstream from a bad tensor to where it begins, hop by hop: what it consists of, and how to ask for it.

``tracer`` walks, ``upstream`` looks around in one rank, ``exchange`` at other ranks, ``words`` puts it into words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from tui_debugger.model import Hit, ProgressFn, TensorKey, Verdict, Watchpoint, no_progress
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.search import OVERFLOW_ANYWHERE, Fed, Origin
from tui_debugger.session.types import TensorRow
from tui_debugger.session.undisturbed import undisturbed

if TYPE_CHECKING:
    from tui_debugger.session.session import Session


class Link(Enum):
    """How the value of a hop came into the hop before it."""

    START = "start"
    """It is what was asked about."""
    INPUT = "input"
    """A node made the hop before from it."""
    WEIGHT = "weight"
    """The same, and it is the value that a parameter had after the step before."""
    UPDATE = "update"
    """The optimizer's node wrote the parameter (the hop before) with its help."""
    BEFORE = "before"
    """It is the parameter itself before that update."""
    RESULT = "result"
    """It is what the optimizer's node put out, though what went into that is not bad."""
    COPY = "copy"
    """It is what was written; the hop before is an input file that should hold the same."""
    SENT = "sent"
    """Another rank gave it to the node."""
    NEAREST = "nearest"
    """It has nothing to do with the hop before: that is clean, and this is the nearest origin of the run."""


class Ending(Enum):
    """Why a path ends."""

    ORIGIN = "origin"
    """The last hop is bad although nothing that it was made from is."""
    SOURCE = "source"
    """Nothing in the run makes the last hop: a graph input, or a node without inputs."""
    FIRST_STEP = "first_step"
    """It was bad already before the first dumped step."""
    CONSTANT = "constant"
    """It comes from a constant of the graph."""
    FROZEN = "frozen"
    """A weight that did not change, because nothing updated it."""
    DESIGNED = "by_design"
    """An operator was told to write the Inf of the last hop."""
    NOT_DUMPED = "not_dumped"
    """What lies between the last hop and clean tensors was not dumped, or cannot be read."""
    RANKS = "ranks"
    """Another rank may have sent it, whose tensors are not there."""
    UNKNOWN = "unknown"
    """Nobody says what the last hop was made from."""
    CLEAN = "clean"
    """The tensor that was asked about is not bad."""
    NO_VALUE = "no_value"
    """The tensor that was asked about cannot be judged."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a tensor goes into the next one downstream.

    Attributes:
        link: in which way.
        into: the node that took it in.
        slots: its input slots there; for ``RESULT`` the output slots.
        hidden: nodes between, nearest to ``into`` first, whose tensors were not dumped.
        certain: False when it is only likely: a sending node found by what it sent.
    """

    link: Link
    into: str = ""
    slots: tuple[int, ...] = ()
    hidden: tuple[str, ...] = ()
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Branch:
    """Another bad tensor that went into a hop: a path of its own can be asked for.

    Attributes:
        way: how it went in.
        tensor: with statistics.
        row: its node's row in its rank's node table.
    """

    way: Way
    tensor: TensorRow
    row: int


@dataclass(frozen=True, slots=True)
class Hop:
    """One tensor of the path.

    Attributes:
        way: how it went into the hop before it.
        tensor: with statistics.
        row: its node's row in its rank's node table.
        told: which node made it, from what, on which source line. For a clean tensor too.
        others: the other bad tensors that went into it, in the order in which they became bad.
        peers: for a node that exchanges values between ranks what went in on the other ranks.
    """

    way: Way
    tensor: TensorRow
    row: int
    told: Origin
    others: tuple[Branch, ...] = ()
    peers: tuple[Fed, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """The answer.

    Attributes:
        question: what is bad.
        hops: from the tensor that was asked about upstream; empty only when that has no node.
        ending: why it ends.
        suspects: for ``NOT_DUMPED`` the nodes of which one began it, as their tensors were not dumped.
        outside: for ``NOT_DUMPED`` what went in from elsewhere and was not dumped, in words.
        clean: for ``NOT_DUMPED`` the clean tensors at the other end.
        absent: for ``RANKS`` the ranks that took part and are not there; empty: nobody knows which.
        nearest: for ``CLEAN`` the nearest origin that is known.
        reasons: for a weight that hardly changed what speaks for why, in words.
        graphs: the names of the run's graphs where there are several, so that a name alone may mean two nodes.
    """

    question: Watchpoint
    hops: tuple[Hop, ...]
    ending: Ending
    suspects: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    clean: tuple[TensorRow, ...] = ()
    absent: tuple[int, ...] = ()
    nearest: Branch | None = None
    reasons: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()

    @property
    def start(self) -> Hop:
        """What was asked about."""
        return self.hops[0]

    @property
    def end(self) -> Hop:
        """Where it ends."""
        return self.hops[-1]

    @property
    def ends_at_origin(self) -> bool:
        """Whether it ends where the search for origins finds one too: what is fed in bad is one as well."""
        return self.ending is Ending.ORIGIN or (self.ending is Ending.SOURCE and self.end.told.starts_here)

    @property
    def state(self) -> State:
        """What the tensor is that was asked about."""
        known = {Ending.CLEAN: State.CLEAN, Ending.NO_VALUE: State.UNKNOWN}
        return known.get(self.ending, State.BAD)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it goes through, in its order."""
        return tuple(dict.fromkeys(hop.tensor.key.rank for hop in self.hops))


def trace(
    session: Session, key: TensorKey, question: Watchpoint = OVERFLOW_ANYWHERE, progress: ProgressFn = no_progress
) -> Path:
    """The path from a tensor to where its badness begins.

    Looks at the tensors along the way and their neighbours only, and reads what is not known yet.

    Args:
        session: the run.
        key: the tensor.
        question: what is bad; its selection is not asked. The default: NaN or Inf.
        progress: is told how many hops were found.

    Raises:
        UnreadableTensorError: the run has no such node.
        CancelledError: from ``progress``.
    """
    from tui_debugger.session.origin.tracer import Tracer

    path = undisturbed(lambda: Tracer(session, question, progress).trace(key))
    if path.ending is not Ending.CLEAN:
        return path
    return with_nearest(session, path, _nearest_origin(session, key))


def with_nearest(session: Session, path: Path, hit: Hit | None) -> Path:
    """The path of a clean tensor with where an origin is instead."""
    if hit is None:
        return path
    (tensor,) = session.measure([session.row_of(hit.key)])
    return replace(path, nearest=Branch(Way(Link.NEAREST), replace(tensor, hit=True), hit.row))


def questions_about(session: Session, hit: Hit | None) -> tuple[Watchpoint, ...]:
    """What is bad about a tensor: NaN or Inf before all, then what else watchpoints found on it."""
    from tui_debugger.session.origin.telling import findings
    from tui_debugger.watch.condition_table import CONDITIONS, WIRE_OVERFLOW

    told = [result for result in findings(hit) if result.verdict is Verdict.FINDING] if hit is not None else []
    found = [session.watchpoints.get(result.watchpoint) for result in told]
    asked = [
        each
        for each in found
        if each is not None
        and CONDITIONS[each.condition].wire != WIRE_OVERFLOW
        and not CONDITIONS[each.condition].initial_only  # nothing was computed before those values
    ]
    bad = hit is None or hit.stats is None or hit.stats.bad
    return (OVERFLOW_ANYWHERE, *asked) if bad or not asked else tuple(asked)


def _nearest_origin(session: Session, key: TensorKey) -> Hit | None:
    """The origin that is nearest by step, then rank, among the steps that were checked."""
    checked = [result for pair in session.pairs() if (result := session.known([pair])) is not None]
    origins = [hit for result in checked for hit in result.hits.chosen(result.hits.origin)]

    def far(hit: Hit) -> tuple[int, bool, tuple[int, int]]:
        return abs(hit.key.step - key.step), hit.key.rank != key.rank, hit.order

    return min(origins, key=far, default=None)
