"""The search for the first origin of something bad, step by step over all ranks, and what it reports.

Steps are looked at in the order in which they began to run, and the origin is the one in the earliest run. A step can
hold runs that began long after others of a later number: the search ends where a run has an origin, once every step of
every rank was looked at that holds an earlier run, or one at the same time: that is what makes "rank 3 was first" true.
It also ends at a run without an origin that leaves bad parameters behind: what comes later is made from them, so no
later one can say where it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tui_debugger.errors import CancelledError
from tui_debugger.model import (
    Frame,
    Hit,
    NodeKind,
    NodeSelection,
    NodeSelector,
    ProgressFn,
    Watchpoint,
    WatchResult,
    no_progress,
    turn_of,
)
from tui_debugger.session.checking import PairResult
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.making import Start
from tui_debugger.session.progress import scaled
from tui_debugger.session.results import merged
from tui_debugger.session.types import CheckResult, Pair, TensorRow

OVERFLOW_ANYWHERE = Watchpoint(
    1, "tensor_overflow", selection=NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
)
"""What is looked for when nobody says what: NaN or Inf in any tensor."""


@dataclass(frozen=True, slots=True)
class Fed:
    """One of the tensors that the origin was made from.

    Attributes:
        row: the tensor with its statistics; without a value when it was not dumped.
        state: what it is, by the watchpoints that the origin is one of.
        constant: the value of a graph constant, or an operator's attribute.
        before: the value of before the node wrote over it, or before the step changed it.
        designed: its Inf was written by intent: see ``by_design``.
    """

    row: TensorRow
    state: State
    constant: bool = False
    before: bool = False
    designed: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that a node was made from and that nobody knows: so nobody can say that something starts there.

    Attributes:
        slot: input slot of the node.
        name: what the graph says feeds it, as ``node:slot``; empty where it does not say.
        why: ``not dumped``, ``cannot be read``, ``only known after its update``.
        node: the node that has to be dumped to know it; the node itself where the producer is no operator.
    """

    slot: int
    name: str
    why: str
    node: str


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A node that may be where something bad starts, and may not: some of what it was made from is not known.

    Attributes:
        graph, node, type: the node.
        row: its row in the rank's node table.
        hits: its bad tensors, in order.
        missing: what is not known; empty where nothing is, or where other ranks had a part in it.
        exchanged: other ranks had a part in it.
    """

    graph: str
    node: str
    type: str
    row: int
    hits: tuple[Hit, ...]
    missing: tuple[Missing, ...]
    exchanged: bool = False

    @property
    def hit(self) -> Hit:
        """The first bad tensor."""
        return self.hits[0]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something bad starts, or the first bad tensor of a step that has no origin.

    Attributes:
        start: how it starts, or why it does not start here.
        graph, node, type: the node that made it, or at which it changed.
        row: that node's row in the rank's node table.
        other: the node to be named beside it: the producer of an input that was changed, the consumer that saw a
            tensor that was not dumped, the node that updates a parameter; or empty.
        hits: the bad tensors, in order; the first one is where it starts.
        results: what the watchpoints that start here found on the first one.
        inputs: what it was made from.
        outputs: what came out: the outputs of the node, or the bad tensors where they were seen.
        stack: source lines, innermost first; entries of enclosing functions are left out.
        stack_of: the node whose stack it is.
        missing: what it was made from and nobody knows.
        exchanged: other ranks had a part in it.
    """

    start: Start
    graph: str
    node: str
    type: str
    row: int
    other: str
    hits: tuple[Hit, ...]
    results: tuple[WatchResult, ...]
    inputs: tuple[Fed, ...]
    outputs: tuple[TensorRow, ...]
    stack: tuple[Frame, ...]
    stack_of: str
    missing: tuple[Missing, ...] = ()
    exchanged: bool = False

    @property
    def hit(self) -> Hit:
        """The first bad tensor."""
        return self.hits[0]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.hit.key.rank

    @property
    def step(self) -> int:
        """The step."""
        return self.hit.key.step

    @property
    def starts_here(self) -> bool:
        """Whether it is an origin. What was bad before the first dumped step is one only if that is step 0."""
        return self.start in Start.origins() and (self.start is not Start.BEFORE or self.step == 0)


@dataclass(frozen=True, slots=True)
class Look:
    """What one step of one rank showed.

    Attributes:
        pair: (rank, step).
        result: the check behind it.
        origins: in execution order.
        before: what was bad already before the first dumped step, when that is not step 0.
        first: the first bad tensor when there is no origin; None when there is an origin, or nothing bad.
        not_judged: nodes that may be where it starts, in execution order: not everything about them is known.
        bad: number of bad tensors.
        parameters: number of bad values of parameters that the next run starts with.
        carried: the turn of the first run that leaves such a value behind; None without one.
        spread: the next bad tensors after the first origin.
        by_graph: ``spread`` follows the graph, not only the order of execution.
    """

    pair: Pair
    result: PairResult
    origins: tuple[Origin, ...] = ()
    before: tuple[Origin, ...] = ()
    first: Origin | None = None
    bad: int = 0
    parameters: int = 0
    carried: int | None = None
    spread: tuple[Hit, ...] = ()
    by_graph: bool = False
    not_judged: tuple[NotJudged, ...] = ()

    @property
    def beginning(self) -> Origin | None:
        """The first origin, or else the first bad tensor."""
        return self.origins[0] if self.origins else self.first


class End(Enum):
    """Why the search ended where it did."""

    ORIGIN = "origin"
    """The step has an origin."""
    CARRIED = "carried"
    """The step has no origin, but leaves bad parameters behind."""
    ALL = "all"
    """Every step was looked at."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class OriginReport:
    """What the search found.

    Attributes:
        origins: those of the earliest run and of its step, in the order of time, then by rank.
        looks: every step of every rank that has something bad, in the order in which they began, then by rank.
        check: the checks behind it as one: hits, coverage, watchpoints, time.
        left: (rank, step) pairs that were not looked at.
        end: why the search ended.
        graphs: the names of the run's graphs where there are several, so that a name alone may mean two nodes.
    """

    origins: tuple[Origin, ...]
    looks: tuple[Look, ...]
    check: CheckResult
    left: tuple[Pair, ...]
    end: End
    graphs: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is anything bad."""
        return bool(self.looks)

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """The nodes of all steps that may be where it starts, and may not, in execution order, then by rank."""
        found = [each for look in self.looks for each in look.not_judged]
        return tuple(sorted(found, key=lambda each: (each.hit.order, each.hit.key.rank)))

    @property
    def first_known(self) -> Origin | None:
        """The earliest bad tensor where no origin is as early: it did not start there, or nobody can say so."""
        first = [look.first for look in self.looks if look.first is not None]
        earliest = min(first, key=lambda each: (each.hit.order, each.rank), default=None)
        if earliest is None or any(origin.hit.order <= earliest.hit.order for origin in self.origins):
            return None
        return earliest

    @property
    def first_looks(self) -> tuple[Look, ...]:
        """For every rank with something bad the look that answers best, the earliest rank first.

        That is the step with an origin, or else the first bad step.
        """
        best: dict[int, Look] = {}
        for look in self.looks:
            kept = best.get(look.pair[0])
            if kept is None or _place(look) < _place(kept):
                best[look.pair[0]] = look
        return tuple(sorted(best.values(), key=_place))

    @property
    def earlier(self) -> tuple[Look, ...]:
        """The looks without an origin that began to be bad in an earlier run than the first origin's, in that order."""
        until = self.origins[0].hit.order[0] if self.origins else None
        found = [
            (look.first.hit.order[0], look.pair[0], number)
            for number, look in enumerate(self.looks)
            if look.first is not None and (until is None or look.first.hit.order[0] < until)
        ]
        return tuple(self.looks[number] for *_, number in sorted(found))

    @property
    def shown_look(self) -> Look | None:
        """The look whose spread is told: the first one with an origin, else the first one."""
        return next((look for look in self.first_looks if look.origins), self.looks[0] if self.looks else None)

    @property
    def leading(self) -> tuple[Look, ...]:
        """The looks of ``first_looks`` that begin with the same tensor at the same step: no rank leads."""
        looks = self.first_looks
        return tuple(look for look in looks if _same(look, looks[0])) if looks else ()


def _place(look: Look) -> tuple[bool, tuple[int, int], int]:
    beginning = look.beginning
    order = beginning.hit.order if beginning is not None else (turn_of(look.pair[1]), 0)
    return (not look.origins, order, look.pair[0])


def _same(one: Look, other: Look) -> bool:
    a, b = one.beginning, other.beginning
    if a is None or b is None or a.starts_here != b.starts_here:
        return False
    return (a.graph, a.node, replace(a.hit.key, rank=b.rank)) == (b.graph, b.node, b.hit.key)


LookAt = Callable[[Pair, Sequence[Watchpoint], ProgressFn], Look]
Span = Callable[[Pair], tuple[int, int]]
"""The turns of the first and the last run of a step of a rank: see ``model.turns``."""


def one_run(pair: Pair) -> tuple[int, int]:
    """The span of a step that is one run, in ascending order."""
    return turn_of(pair[1]), turn_of(pair[1])


def search(
    pairs: Sequence[Pair],
    watchpoints: Sequence[Watchpoint],
    look_at: LookAt,
    progress: ProgressFn = no_progress,
    span: Span = one_run,
) -> OriginReport:
    """Looks for the first origin.

    ``progress`` may raise CancelledError: the report then holds what was finished and says so.

    Args:
        pairs: where to look; any order.
        watchpoints: what is bad; none: NaN or Inf anywhere.
        look_at: looks at one (rank, step).
        progress: receives snapshots.
        span: when a step ran.
    """
    started = time.monotonic()
    asked = tuple(watchpoints) or (OVERFLOW_ANYWHERE,)
    ordered = sorted(dict.fromkeys(pairs), key=lambda pair: (span(pair)[0], pair))
    looks: list[Look] = []
    end = End.ALL
    try:
        for look in _looks(ordered, asked, look_at, progress):
            looks.append(look)
            found = _end(looks)
            # Every step that holds a run before or beside the one that was found has to be looked at.
            if found is not None and (len(looks) == len(ordered) or span(ordered[len(looks)])[0] > found[1]):
                end = found[0]
                break
    except CancelledError:
        end = End.CANCELLED
    seconds, cancelled = time.monotonic() - started, end is End.CANCELLED
    results = [(look.pair, look.result) for look in looks]
    origins = [origin for look in looks for origin in look.origins]
    return OriginReport(
        origins=_earliest(origins),
        looks=tuple(look for look in looks if look.bad),
        check=merged(results, asked, 0, seconds, cancelled),
        left=tuple(ordered[len(looks) :]),
        end=end,
    )


def _end(looks: Sequence[Look]) -> tuple[End, int] | None:
    """Why no later run can be where it began, and the turn of the run that says so; None: it still can."""
    origins = [origin.hit.order[0] for look in looks for origin in look.origins]
    carried = [look.carried for look in looks if look.carried is not None]
    if not origins and not carried:
        return None
    return End.ORIGIN if origins else End.CARRIED, min(origins + carried)


def _earliest(origins: Sequence[Origin]) -> tuple[Origin, ...]:
    """The origins of the earliest run, the others of its step and those at the same time on other ranks."""
    ordered = sorted(origins, key=lambda origin: (origin.hit.order, origin.rank))
    if not ordered:
        return ()
    first = ordered[0]
    return tuple(each for each in ordered if each.step == first.step or each.hit.order[0] == first.hit.order[0])


def _looks(
    pairs: Sequence[Pair], watchpoints: Sequence[Watchpoint], look_at: LookAt, progress: ProgressFn
) -> Iterator[Look]:
    for number, pair in enumerate(pairs):
        yield look_at(pair, watchpoints, scaled(progress, number, len(pairs)))
