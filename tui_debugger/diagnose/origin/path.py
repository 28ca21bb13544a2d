"""The path upstream from a bad tensor to where it begins, hop by hop."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from tui_debugger.causes.table import Examined, InputState, OriginKind
from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.evidence import Evidence
from tui_debugger.diagnose.explain.rules import likely_causes
from tui_debugger.diagnose.explain.weights import Stalling, stalled_by
from tui_debugger.diagnose.origin.search import OVERFLOW_ANYWHERE, Origin, OriginInput, findings
from tui_debugger.diagnose.origin.upstream import (
    BadInput,
    Began,
    HopLink,
    NodeTensorRef,
    OtherRankInputs,
    Upstream,
    Way,
    exchanged,
    exchanges,
)
from tui_debugger.model import (
    PARAMETERS,
    Hit,
    NodeKind,
    NodeSelection,
    NodeSelector,
    Progress,
    ProgressFn,
    Side,
    TensorKey,
    Verdict,
    Watchpoint,
    no_progress,
)
from tui_debugger.watch.condition_table import CONDITIONS, validate

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


class PathEnd(Enum):
    """Why a path ends."""

    ORIGIN = "origin"
    """The last hop is bad, but nothing that it was made from is."""
    SOURCE = "source"
    """Nothing in the run makes the last hop: a graph input, or a node without inputs."""
    FIRST_STEP = "first_step"
    """The tensor was bad before the first dumped step."""
    CONSTANT = "constant"
    """The value comes from a constant of the graph."""
    FROZEN = "frozen"
    """A weight that did not change, because nothing updated it."""
    DESIGNED = "by_design"
    """An operator was told to write the Inf of the last hop."""
    NOT_DUMPED = "not_dumped"
    """The tensors between the last hop and clean ones were not dumped, or cannot be read."""
    RANKS = "ranks"
    """Another rank, whose tensors are missing, may have sent it."""
    UNKNOWN = "unknown"
    """The inputs of the last hop are not known."""
    CLEAN = "clean"
    """The tensor that was asked about is not bad."""
    NO_VALUE = "no_value"
    """The tensor that was asked about cannot be judged."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Another bad tensor that went into a hop; ``row`` is its node's row in its rank's node table."""

    way: Way
    tensor: TensorRow
    row: int


@dataclass(frozen=True, slots=True)
class PathHop:
    """One tensor of the path.

    Attributes:
        way: how it went into the hop before it.
        row: its node's row in its rank's node table.
        origin: the node that made it, its inputs and source line; also for a clean tensor.
        others: the other bad tensors that went into it, the first to become bad first.
        peers: for a node that exchanges values between ranks, the inputs on the other ranks.
    """

    way: Way
    tensor: TensorRow
    row: int
    origin: Origin
    others: tuple[Branch, ...] = ()
    peers: tuple[OriginInput, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """The path from a tensor upstream.

    Attributes:
        question: what is bad.
        hops: starts with the tensor that was asked about.
        suspects: for ``NOT_DUMPED``, nodes of which one began it; their tensors were not dumped.
        outside: for ``NOT_DUMPED``, undumped values from outside the step, in words.
        clean: for ``NOT_DUMPED``, the clean tensors at the other end.
        absent: for ``RANKS``, the ranks that took part and are missing; empty: unknown.
        nearest: for ``CLEAN``, the nearest known origin.
        reasons: for a weight that hardly changed, the likely reasons in words.
        graphs: the names of the run's graphs if there are several, so that a name alone may mean two nodes.
        advice: how to make the run's recorder write more inputs and outputs; empty: unknown.
    """

    question: Watchpoint
    hops: tuple[PathHop, ...]
    ending: PathEnd
    suspects: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    clean: tuple[TensorRow, ...] = ()
    absent: tuple[int, ...] = ()
    nearest: Branch | None = None
    reasons: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()
    advice: str = ""

    @property
    def start(self) -> PathHop:
        return self.hops[0]

    @property
    def end(self) -> PathHop:
        return self.hops[-1]

    @property
    def ends_at_origin(self) -> bool:
        """Whether it ends at an origin of the search, or where a bad value comes in from outside."""
        return self.ending is PathEnd.ORIGIN or (self.ending is PathEnd.SOURCE and self.end.origin.starts_here)

    @property
    def state(self) -> InputState:
        known = {PathEnd.CLEAN: InputState.CLEAN, PathEnd.NO_VALUE: InputState.UNKNOWN}
        return known.get(self.ending, InputState.BAD)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(hop.tensor.key.rank for hop in self.hops))


def trace(
    session: DiagnosedRun, key: TensorKey, question: Watchpoint = OVERFLOW_ANYWHERE, progress: ProgressFn = no_progress
) -> Path:
    """The path from a tensor to where its badness begins; ``question`` is the watchpoint that says what is bad.

    Looks only at tensors along the way and their neighbours, and reads what is not known yet. Raises
    UnreadableTensorError where the run has no such node, and CancelledError from ``progress``.
    """
    path = retry_when_renumbered(lambda: Tracer(session, question, progress).trace(key))
    if path.ending is not PathEnd.CLEAN:
        return path
    return with_nearest(session, path, _nearest_origin(session, key))


def with_nearest(session: DiagnosedRun, path: Path, hit: Hit | None) -> Path:
    if hit is None:
        return path
    (tensor,) = session.measure([session.row_of(hit.key)])
    return replace(path, nearest=Branch(Way(HopLink.NEAREST), replace(tensor, hit=True), hit.row))


def questions_about(session: DiagnosedRun, hit: Hit | None) -> tuple[Watchpoint, ...]:
    """Returns watchpoints that a path can follow: NaN or Inf first, then other findings on the tensor."""
    origin = [result for result in findings(hit) if result.verdict is Verdict.FINDING] if hit is not None else []
    found = [session.watchpoints.get(result.watchpoint) for result in origin]
    asked = [
        each
        for each in found
        if each is not None
        and not CONDITIONS[each.condition].is_overflow
        and not CONDITIONS[each.condition].initial_only  # nothing was computed before initial values
    ]
    bad = hit is None or hit.stats is None or hit.stats.bad
    return (OVERFLOW_ANYWHERE, *asked) if bad or not asked else tuple(asked)


def _nearest_origin(session: DiagnosedRun, key: TensorKey) -> Hit | None:
    checked = [result for pair in session.pairs() if (result := session.known([pair])) is not None]
    origins = [hit for result in checked for hit in result.hits.chosen(result.hits.origin)]

    def far(hit: Hit) -> tuple[int, bool, tuple[int, int]]:
        return abs(hit.key.step - key.step), hit.key.rank != key.rank, hit.order

    return min(origins, key=far, default=None)


ALL_ZERO: Final = Watchpoint(
    1,
    "tensor_all_zero",
    validate("tensor_all_zero", {"zero_percentage_ge": 100}),
    NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)),
)
"""The question to ask upstream of a gradient or learning rate of 0."""
MOST_HIDDEN = 2000
"""The most undumped tensors that are searched for a bad tensor behind them."""
_ENDINGS = {
    OriginKind.SOURCE: PathEnd.SOURCE,
    OriginKind.BEFORE: PathEnd.FIRST_STEP,
    OriginKind.CONSTANT: PathEnd.CONSTANT,
    OriginKind.DESIGNED: PathEnd.DESIGNED,
    OriginKind.TAINTED: PathEnd.UNKNOWN,  # only by itself, in a cycle
    OriginKind.UNKNOWN: PathEnd.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class _Inputs:
    examined: Examined
    bad_inputs: tuple[BadInput, ...]
    exchange: OtherRankInputs | None = None


@dataclass(frozen=True, slots=True)
class _Behind:
    """The tensors behind undumped ones."""

    bad_inputs: tuple[BadInput, ...]
    suspects: tuple[str, ...]
    outside: tuple[str, ...]
    clean: tuple[NodeTensorRef, ...]


class Tracer:
    """Finds paths; several paths of one run share what they have in common. ``question`` says what is bad."""

    def __init__(
        self, session: DiagnosedRun, question: Watchpoint = OVERFLOW_ANYWHERE, progress: ProgressFn = no_progress
    ) -> None:
        self._session = session
        self.question = question
        self._progress = progress
        self._hops = 0
        self._ranks: dict[int, Upstream] = {}
        self._inputs_of: dict[NodeTensorRef, _Inputs] = {}
        self._known_hops: dict[NodeTensorRef, PathHop] = {}

    def state(self, key: TensorKey) -> InputState:
        """Tells whether a tensor is bad; reads it when unknown. Raises the errors of ``trace``, and RenumberedError."""
        return self._rank(key.rank).state(self._ref(key))

    def trace(self, key: TensorKey) -> Path:
        ref = self._ref(key)
        state = self._rank(key.rank).state(ref)
        if state is InputState.BAD:
            path = self._walk(ref)
        else:
            ending = PathEnd.CLEAN if state is InputState.CLEAN else PathEnd.NO_VALUE
            path = Path(self.question, (self._hop(ref, Way(HopLink.START)),), ending)
        return replace(path, graphs=self._session.graph_names(path.ranks), advice=self._session.info.tensors_advice)

    def _ref(self, key: TensorKey) -> NodeTensorRef:
        here = self._rank(key.rank)
        row = here.flow.row_of(key)
        return here.ref(here.flow.located(key.step, row, key.side, key.slot, key.round))

    def _walk(self, ref: NodeTensorRef) -> Path:
        hops, way = list[PathHop](), Way(HopLink.START)
        seen = {ref}
        while True:
            self._hops = len(hops)
            self._tell("hops")
            if self._is_kept_weight(ref):
                return self._unchanged(ref, way, hops)
            inputs = self._inputs(ref)
            bad_inputs = [bad_input for bad_input in inputs.bad_inputs if bad_input.ref not in seen]
            behind = None if bad_inputs else self._behind(ref)
            if behind is not None:
                bad_inputs = [bad_input for bad_input in behind.bad_inputs if bad_input.ref not in seen]
            branches = tuple(self._branch(each.ref, each.way) for each in bad_inputs[1:])
            hops.append(replace(self._hop(ref, way), others=branches, peers=self._peers(inputs)))
            if not bad_inputs:
                return self._ended(hops, inputs, behind)
            ref, way = bad_inputs[0].ref, bad_inputs[0].way
            seen.add(ref)

    # -- a weight that hardly changed ----------------------------------------------------------------

    def _is_kept_weight(self, ref: NodeTensorRef) -> bool:
        """Tells whether the question is why a parameter did not change: its update is the reason."""
        if not CONDITIONS[self.question.condition].is_small_change:
            return False
        flow = self._rank(ref.rank).flow
        row = ref.row if ref.side is Side.OUTPUT else flow.holder(ref.row, ref.slot).row
        return row >= 0 and flow.nodes.category_of(row) in PARAMETERS and flow.updated(row)

    def _unchanged(self, ref: NodeTensorRef, way: Way, hops: list[PathHop]) -> Path:
        """Returns the path to what kept a weight unchanged, and on upstream to what made the gradient 0."""
        here = self._rank(ref.rank)
        evidence = Evidence(self._session, here.key(ref), self._progress)
        hop = self._hop(ref, way)
        stalling = [each for each in stalled_by(evidence) if each.tensor is not None]
        reasons = tuple(each.words for each in stalled_by(evidence))
        if not stalling or stalling[0].tensor is None:
            result = next(iter(hop.origin.results), None)
            causes = tuple(likely_causes(evidence.asked(result))) if result is not None else ()
            known = evidence.optimizer is not None or evidence.training is not None
            ending = PathEnd.ORIGIN if known else PathEnd.FROZEN
            return Path(self.question, (*hops, hop), ending, reasons=reasons or causes)
        first, *others = stalling
        path = Tracer(self._session, ALL_ZERO, self._progress).trace(stalling[0].tensor)
        branches = tuple(
            self._branch(self._ref(each.tensor), self._into(each)) for each in others if each.tensor is not None
        )
        into = replace(path.hops[0], way=self._into(first))
        return replace(
            path,
            question=self.question,
            hops=(*hops, replace(hop, others=branches), into, *path.hops[1:]),
            reasons=(*reasons, *path.reasons),
        )

    @staticmethod
    def _into(stalling: Stalling) -> Way:
        slots = () if stalling.slot is None else (stalling.slot,)
        return Way(HopLink.UPDATE, stalling.optimizer.name, slots)

    def _ended(self, hops: list[PathHop], inputs: _Inputs, behind: _Behind | None) -> Path:
        start = inputs.examined.start
        path = Path(self.question, tuple(hops), _ENDINGS.get(start, PathEnd.ORIGIN))
        if behind is not None and (behind.suspects or behind.outside):
            clean = tuple(self._tensor(ref) for ref in behind.clean)
            return replace(
                path, ending=PathEnd.NOT_DUMPED, suspects=behind.suspects, outside=behind.outside, clean=clean
            )
        exchange = inputs.exchange
        if exchange is not None and (exchange.absent or not exchange.inputs):
            return replace(path, ending=PathEnd.RANKS, absent=exchange.absent)
        if exchange is not None and start in (OriginKind.SOURCE, OriginKind.UNKNOWN) and not inputs.examined.missing:
            # All that was sent is clean: all ranks together can judge what one rank could not.
            here = replace(hops[-1], origin=replace(hops[-1].origin, start=OriginKind.MADE))
            return replace(path, hops=(*hops[:-1], here), ending=PathEnd.ORIGIN)
        return path

    # -- one tensor ----------------------------------------------------------------------------------

    def _rank(self, rank: int) -> Upstream:
        if rank not in self._ranks:
            self._ranks[rank] = Upstream(self._session, rank, self.question, self._tell_of_work)
        return self._ranks[rank]

    def _tell(self, text: str) -> None:
        self._progress(Progress(self._hops, 0, f"{self._hops} {text}"))

    def _tell_of_work(self, snapshot: Progress) -> None:
        self._progress(Progress(self._hops, 0, f"{self._hops} hops, {snapshot.text}"))

    def _tensor(self, ref: NodeTensorRef) -> TensorRow:
        return self._rank(ref.rank).tensor(ref)

    def _branch(self, ref: NodeTensorRef, way: Way) -> Branch:
        return Branch(way, self._tensor(ref), ref.row)

    def _hop(self, ref: NodeTensorRef, way: Way) -> PathHop:
        found = self._known_hops.get(ref)
        if found is None:
            here = self._rank(ref.rank)
            tensor, examined = here.tensor(ref), here.examined(ref)
            found = PathHop(way, tensor, ref.row, here.describer(ref.step).describe([examined]))
            self._known_hops[ref] = found
        return replace(found, way=way)

    def _peers(self, inputs: _Inputs) -> tuple[OriginInput, ...]:
        found = list[OriginInput]()
        for at in inputs.exchange.inputs if inputs.exchange is not None else ():
            there = self._rank(at.rank)
            found += there.describer(at.step).describe([there.examined(at)]).inputs
        return tuple(found)

    # -- what went into it ---------------------------------------------------------------------------

    def _inputs(self, ref: NodeTensorRef) -> _Inputs:
        found = self._inputs_of.get(ref)
        if found is None:
            here = self._rank(ref.rank)
            examined, bad_inputs = here.examined(ref), here.bad_inputs(ref)
            exchange = self._exchange(ref, examined)
            if exchange is not None and exchange.bad_inputs:
                bad_inputs = self._by_rank([*bad_inputs, *exchange.bad_inputs])
            found = self._inputs_of[ref] = _Inputs(examined, tuple(bad_inputs), exchange)
        return found

    def _exchange(self, ref: NodeTensorRef, examined: Examined) -> OtherRankInputs | None:
        nodes = self._rank(ref.rank).flow.nodes
        if examined.node < 0 or examined.parameter >= 0 or not exchanges(nodes.op_type(examined.node)):
            return None
        around = self._session.around  # the inputs of other ranks count, whatever was asked about
        ranks = [rank for rank in around.ranks() if ref.step in around.steps(rank)]
        return exchanged(ref, examined.node, ranks, self._rank)

    def _by_rank(self, bad_inputs: list[BadInput]) -> list[BadInput]:
        """Sorts bad inputs of several ranks by when they became bad in their rank."""
        if len({bad_input.ref.rank for bad_input in bad_inputs}) < 2:
            return bad_inputs
        began = {bad_input.ref: self._beginning(bad_input.ref) for bad_input in bad_inputs}
        return sorted(bad_inputs, key=lambda bad_input: (began[bad_input.ref], bad_input.began, bad_input.ref.rank))

    def _beginning(self, ref: NodeTensorRef) -> Began:
        """When a tensor became bad in its own rank: where its path ends, or meets another exchange between ranks."""
        here, seen = self._rank(ref.rank), {ref}
        turn = here.flow.turn(ref.row, ref.step, ref.round)
        began = (turn, int(here.flow.nodes.order[ref.row]), ref.slot)
        while True:
            self._tell("hops, comparing ranks")
            node = here.examined(ref).node
            if node >= 0 and exchanges(here.flow.nodes.op_type(node)):
                return began
            bad_input = next((each for each in here.bad_inputs(ref) if each.ref not in seen), None)
            if bad_input is None:
                return began
            ref, began = bad_input.ref, bad_input.began
            seen.add(ref)

    # -- what was not dumped -------------------------------------------------------------------------

    @staticmethod
    def _hidden_way(bad_input: BadInput, ref: NodeTensorRef, hidden: tuple[str, ...]) -> Way:
        link = bad_input.way.link if bad_input.ref.rank == ref.rank else HopLink.SENT
        return replace(bad_input.way, link=link, hidden=hidden)

    def _behind(self, ref: NodeTensorRef) -> _Behind:
        """Looks through undumped tensors for bad ones behind them; else tells between which tensors it began."""
        bad_inputs: dict[NodeTensorRef, BadInput] = {}
        suspects, outside, clean = dict[str, None](), dict[str, None](), dict[NodeTensorRef, None]()
        pending = deque([(ref, tuple[str, ...]())])
        seen = {ref}
        while pending and len(seen) < MOST_HIDDEN:
            at, hidden = pending.popleft()
            here = self._rank(at.rank)
            inputs = self._inputs(at)
            if at != ref:
                suspects[here.flow.nodes.names[at.row]] = None
                for bad_input in inputs.bad_inputs:
                    bad_inputs.setdefault(
                        bad_input.ref, replace(bad_input, way=self._hidden_way(bad_input, ref, hidden))
                    )
            for each in (at, *(inputs.exchange.inputs if inputs.exchange is not None else ())):
                there = self._rank(each.rank)
                refs, words = there.hidden(each)
                outside.update(dict.fromkeys(words))
                clean.update(dict.fromkeys(there.clean_sources(each)))
                for up in refs:
                    if up not in seen:
                        seen.add(up)
                        pending.append((up, (*hidden, there.flow.nodes.names[up.row])))
        ordered = sorted(bad_inputs.values(), key=lambda bad_input: bad_input.began)
        return _Behind(tuple(ordered), tuple(suspects), tuple(outside), tuple(clean))
