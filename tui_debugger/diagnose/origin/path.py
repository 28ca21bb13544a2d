"""Walks upstream from a bad tensor, hop by hop, until nothing bad goes into it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tui_debugger.check.origins import Examined, State
from tui_debugger.check.provenance import Start
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.evidence import Evidence
from tui_debugger.diagnose.explain.rules import likely_causes
from tui_debugger.diagnose.explain.weights import Stalling, stalled_by
from tui_debugger.diagnose.origin.search import OVERFLOW_ANYWHERE, OriginInput
from tui_debugger.diagnose.origin.upstream import (
    Began,
    Branch,
    Ending,
    Exchange,
    Hop,
    Lead,
    Link,
    Path,
    Spot,
    Upstream,
    Way,
    exchanged,
    exchanges,
)
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import (
    PARAMETERS,
    NodeKind,
    NodeSelection,
    NodeSelector,
    Progress,
    ProgressFn,
    Side,
    TensorKey,
    Watchpoint,
    no_progress,
)
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_CHANGE_TOO_SMALL, WIRE_NOT_CHANGED, validate

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import Run

ALL_ZERO: Final = Watchpoint(
    1,
    "tensor_all_zero",
    validate("tensor_all_zero", {"zero_percentage_ge": 100}),
    NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)),
)
"""What is asked upstream of a gradient or a learning rate that is 0."""
MOST_HIDDEN = 2000
"""Tensors that were not dumped and are looked through for a bad one behind them, at most."""
_ENDINGS = {
    Start.SOURCE: Ending.SOURCE,
    Start.BEFORE: Ending.FIRST_STEP,
    Start.CONSTANT: Ending.CONSTANT,
    Start.DESIGNED: Ending.DESIGNED,
    Start.TAINTED: Ending.UNKNOWN,  # by itself, in a circle
    Start.UNKNOWN: Ending.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class _Look:
    """A tensor and what went into it."""

    examined: Examined
    leads: tuple[Lead, ...]
    exchange: Exchange | None = None


@dataclass(frozen=True, slots=True)
class _Behind:
    """What lies behind tensors that were not dumped."""

    leads: tuple[Lead, ...]
    suspects: tuple[str, ...]
    outside: tuple[str, ...]
    clean: tuple[Spot, ...]


class Tracer:
    """Finds paths; several of one run share what they have in common."""

    def __init__(
        self, session: Run, question: Watchpoint = OVERFLOW_ANYWHERE, progress: ProgressFn = no_progress
    ) -> None:
        """``question`` says what is bad."""
        self._session = session
        self.question = question
        self._progress = progress
        self._hops = 0
        self._ranks: dict[int, Upstream] = {}
        self._looks: dict[Spot, _Look] = {}
        self._told: dict[Spot, Hop] = {}

    def state(self, key: TensorKey) -> State:
        """Tells whether a tensor is bad; reads it when that is not known.

        Raises:
            UnreadableTensorError, CancelledError, RenumberedError: as for ``trace``.
        """
        return self._rank(key.rank).state(self._spot(key))

    def trace(self, key: TensorKey) -> Path:
        """The path from a tensor. See ``path.trace``.

        Raises:
            UnreadableTensorError, CancelledError, RenumberedError: see ``path.trace`` and ``Flow``.
        """
        spot = self._spot(key)
        state = self._rank(key.rank).state(spot)
        if state is State.BAD:
            path = self._walk(spot)
        else:
            ending = Ending.CLEAN if state is State.CLEAN else Ending.NO_VALUE
            path = Path(self.question, (self._hop(spot, Way(Link.START)),), ending)
        return replace(path, graphs=self._session.graph_names(path.ranks))

    def _spot(self, key: TensorKey) -> Spot:
        here = self._rank(key.rank)
        row = here.flow.nodes.find(key.node, key.graph)
        if row < 0:
            where = f"rank {key.rank} {key.node}"
            raise UnreadableTensorError("the run has no such node", where=where, hint="`tdbg ls` lists the nodes")
        return here.spot(here.located(Spot(key.rank, key.step, row, key.side, key.slot, key.round)))

    def _walk(self, spot: Spot) -> Path:
        hops, way = list[Hop](), Way(Link.START)
        seen = {spot}
        while True:
            self._hops = len(hops)
            self._tell("hops")
            if self._is_kept_weight(spot):
                return self._unchanged(spot, way, hops)
            look = self._look(spot)
            leads = [lead for lead in look.leads if lead.spot not in seen]
            behind = None if leads else self._behind(spot)
            if behind is not None:
                leads = [lead for lead in behind.leads if lead.spot not in seen]
            branches = tuple(Branch(lead.way, self._tensor(lead.spot), lead.spot.row) for lead in leads[1:])
            hops.append(replace(self._hop(spot, way), others=branches, peers=self._peers(look)))
            if not leads:
                return self._ended(hops, look, behind)
            spot, way = leads[0].spot, leads[0].way
            seen.add(spot)

    # -- a weight that hardly changed ----------------------------------------------------------------

    def _is_kept_weight(self, spot: Spot) -> bool:
        """Whether it is a parameter of which it is asked why it stayed as it was: that is a matter of its update."""
        if CONDITIONS[self.question.condition].wire not in (WIRE_NOT_CHANGED, WIRE_CHANGE_TOO_SMALL):
            return False
        flow = self._rank(spot.rank).flow
        row = spot.row if spot.side is Side.OUTPUT else flow.holder(spot.row, spot.slot).row
        return row >= 0 and flow.nodes.category_of(row) in PARAMETERS and flow.updated(row)

    def _unchanged(self, spot: Spot, way: Way, hops: list[Hop]) -> Path:
        """What kept a weight as it is, as guidance says, and upstream from there: what made the gradient zero."""
        here = self._rank(spot.rank)
        evidence = Evidence(self._session, here.key(spot), self._progress)
        hop = self._hop(spot, way)
        stalling = [each for each in stalled_by(evidence) if each.tensor is not None]
        reasons = tuple(each.words for each in stalled_by(evidence))
        if not stalling or stalling[0].tensor is None:
            result = next(iter(hop.told.results), None)
            causes = tuple(likely_causes(evidence, result)) if result is not None else ()
            known = evidence.optimizer is not None or evidence.training is not None
            ending = Ending.ORIGIN if known else Ending.FROZEN
            return Path(self.question, (*hops, hop), ending, reasons=reasons or causes)
        first, *others = stalling
        path = Tracer(self._session, ALL_ZERO, self._progress).trace(stalling[0].tensor)
        branches = tuple(
            Branch(self._into(each), self._tensor(self._spot(each.tensor)), self._spot(each.tensor).row)
            for each in others
            if each.tensor is not None
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
        return Way(Link.UPDATE, stalling.optimizer.name, slots)

    def _ended(self, hops: list[Hop], look: _Look, behind: _Behind | None) -> Path:
        start = look.examined.start
        path = Path(self.question, tuple(hops), _ENDINGS.get(start, Ending.ORIGIN))
        if behind is not None and (behind.suspects or behind.outside):
            clean = tuple(self._tensor(spot) for spot in behind.clean)
            return replace(
                path, ending=Ending.NOT_DUMPED, suspects=behind.suspects, outside=behind.outside, clean=clean
            )
        exchange = look.exchange
        if exchange is not None and (exchange.absent or not exchange.inputs):
            return replace(path, ending=Ending.RANKS, absent=exchange.absent)
        if exchange is not None and start in (Start.SOURCE, Start.UNKNOWN) and not look.examined.missing:
            # All that was sent is clean: what one rank alone could not judge, all of them together can.
            here = replace(hops[-1], told=replace(hops[-1].told, start=Start.MADE))
            return replace(path, hops=(*hops[:-1], here), ending=Ending.ORIGIN)
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

    def _tensor(self, spot: Spot) -> TensorRow:
        return self._rank(spot.rank).tensor(spot)

    def _hop(self, spot: Spot, way: Way) -> Hop:
        found = self._told.get(spot)
        if found is None:
            here = self._rank(spot.rank)
            tensor, examined = here.tensor(spot), here.examined(spot)
            found = Hop(way, tensor, spot.row, here.teller(spot.step).tell([examined]))
            self._told[spot] = found
        return replace(found, way=way)

    def _peers(self, look: _Look) -> tuple[OriginInput, ...]:
        """Returns what went in on the other ranks of an exchange."""
        found = list[OriginInput]()
        for at in look.exchange.inputs if look.exchange is not None else ():
            there = self._rank(at.rank)
            found += there.teller(at.step).tell([there.examined(at)]).inputs
        return tuple(found)

    # -- what went into it ---------------------------------------------------------------------------

    def _look(self, spot: Spot) -> _Look:
        found = self._looks.get(spot)
        if found is None:
            here = self._rank(spot.rank)
            examined, leads = here.examined(spot), here.leads(spot)
            exchange = self._exchange(spot, examined)
            if exchange is not None and exchange.leads:
                leads = self._by_rank([*leads, *exchange.leads])
            found = self._looks[spot] = _Look(examined, tuple(leads), exchange)
        return found

    def _exchange(self, spot: Spot, examined: Examined) -> Exchange | None:
        provenance, nodes = examined.provenance, self._rank(spot.rank).flow.nodes
        if provenance.node < 0 or provenance.parameter >= 0 or not exchanges(nodes.op_type(provenance.node)):
            return None
        ranks = [rank for rank in self._session.ranks() if spot.step in self._session.steps(rank)]
        return exchanged(spot, provenance.node, ranks, self._rank)

    def _by_rank(self, leads: list[Lead]) -> list[Lead]:
        """The leads of several ranks: first that of the rank where it became bad first."""
        if len({lead.spot.rank for lead in leads}) < 2:
            return leads
        began = {lead.spot: self._beginning(lead.spot) for lead in leads}
        return sorted(leads, key=lambda lead: (began[lead.spot], lead.began, lead.spot.rank))

    def _beginning(self, spot: Spot) -> Began:
        """When it became bad in its own rank: where that path ends, or meets another exchange between ranks."""
        here, seen = self._rank(spot.rank), {spot}
        turn = here.flow.turn(spot.row, spot.step, spot.round)
        began = (turn, int(here.flow.nodes.order[spot.row]), spot.slot)
        while True:
            self._tell("hops, comparing ranks")
            provenance = here.examined(spot).provenance
            if provenance.node >= 0 and exchanges(here.flow.nodes.op_type(provenance.node)):
                return began
            lead = next((each for each in here.leads(spot) if each.spot not in seen), None)
            if lead is None:
                return began
            spot, began = lead.spot, lead.began
            seen.add(spot)

    # -- what was not dumped -------------------------------------------------------------------------

    @staticmethod
    def _hidden_way(lead: Lead, spot: Spot, hidden: tuple[str, ...]) -> Way:
        link = lead.way.link if lead.spot.rank == spot.rank else Link.SENT
        return replace(lead.way, link=link, hidden=hidden)

    def _behind(self, spot: Spot) -> _Behind:
        """Looks through tensors that were not dumped for bad ones behind them; else says between which it began."""
        leads: dict[Spot, Lead] = {}
        suspects, outside, clean = dict[str, None](), dict[str, None](), dict[Spot, None]()
        pending = deque([(spot, tuple[str, ...]())])
        seen = {spot}
        while pending and len(seen) < MOST_HIDDEN:
            at, hidden = pending.popleft()
            here = self._rank(at.rank)
            look = self._look(at)
            if at != spot:
                suspects[here.flow.nodes.names[at.row]] = None
                for lead in look.leads:
                    leads.setdefault(lead.spot, replace(lead, way=self._hidden_way(lead, spot, hidden)))
            for each in (at, *(look.exchange.inputs if look.exchange is not None else ())):
                there = self._rank(each.rank)
                spots, words = there.hidden(each)
                outside.update(dict.fromkeys(words))
                clean.update(dict.fromkeys(there.clean_sources(each)))
                for up in spots:
                    if up not in seen:
                        seen.add(up)
                        pending.append((up, (*hidden, there.flow.nodes.names[up.row])))
        ordered = sorted(leads.values(), key=lambda lead: lead.began)
        return _Behind(tuple(ordered), tuple(suspects), tuple(outside), tuple(clean))
