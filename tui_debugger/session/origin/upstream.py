"""What a tensor of one rank was made from, and which of that is bad: one look, remembered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, TensorKey, Watchpoint
from tui_debugger.session.flow import Flow, Located
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.origin.examine import Examined, Examiner, Judged, State, question_of
from tui_debugger.session.origin.making import Makings
from tui_debugger.session.origin.path import Link, Way
from tui_debugger.session.origin.telling import Teller
from tui_debugger.session.tensors import measured, tensor_row
from tui_debugger.session.types import TensorRow
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.records import Record
from tui_debugger.watch.conditions import evaluate

if TYPE_CHECKING:
    from tui_debugger.session.session import Session

Began = tuple[int, int, int]
"""(turn of the run, place of the node in execution order, slot): the earlier, the smaller."""
BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor by numbers: it may or may not have been dumped."""

    rank: int
    step: int
    row: int
    side: Side
    slot: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class Lead:
    """A bad tensor that another one was made from.

    Attributes:
        spot: the tensor.
        way: how it went into the other one.
        began: when it was made.
    """

    spot: Spot
    way: Way
    began: Began


class Upstream:
    """Looks around in one rank, with one question."""

    def __init__(self, session: Session, rank: int, watchpoint: Watchpoint, progress: ProgressFn) -> None:
        """Reads nothing yet."""
        self.rank = rank
        self._session = session
        self._watchpoint = watchpoint
        self._question = question_of(watchpoint)
        self._progress = progress
        self._fetched: set[Spot] = set()
        self._begin()

    def _begin(self) -> None:
        self.measurements: Measurements = self._session.measurements(self.rank, self._progress)
        self.flow: Flow = self.measurements.flow
        self._examined: dict[Spot, Examined] = {}

    # -- one tensor ----------------------------------------------------------------------------------

    def located(self, spot: Spot) -> Located:
        """Where a tensor stands; index -1 when it was not dumped."""
        return self.flow.located(spot.step, spot.row, spot.side, spot.slot, spot.round)

    def spot(self, at: Located) -> Spot:
        """A place of this rank as a spot."""
        return Spot(self.rank, at.step, at.row, at.side, at.slot, at.round)

    def key(self, spot: Spot) -> TensorKey:
        """The handle of a tensor."""
        return self.flow.key(self.located(spot))

    def record(self, spot: Spot) -> Record | None:
        """What is known about a tensor after looking at it; None when it was not dumped."""
        self._fetch([spot])
        at = self.located(spot)
        if at.index < 0:
            return None
        self.measurements.ensure({(at.step, at.index): self._question.need}, self._progress)
        return self.measurements.record(at.step, at.index)

    def state(self, spot: Spot) -> State:
        """Whether a tensor is bad."""
        record = self.record(spot)
        if record is None or not record.need.covers(self._question.need):
            return State.UNKNOWN
        held = self._question.holds(record, self._is_first(spot))
        return State.UNKNOWN if held is None else State.BAD if held else State.CLEAN

    def tensor(self, spot: Spot) -> TensorRow:
        """A tensor with its statistics."""
        self._fetch([spot])
        row = tensor_row(self.flow, self.located(spot), (spot.side.label, spot.slot, ""), self._is_bad)
        return measured(self.measurements, [row], self._progress)[0]

    def _is_first(self, spot: Spot) -> bool:
        return self.flow.is_first(self.located(spot))

    def _is_bad(self, key: TensorKey) -> bool:
        row = self.flow.nodes.find(key.node, key.graph)
        at = self.flow.located(key.step, row, key.side, key.slot, key.round)
        record = self.measurements.record(key.step, at.index) if at.index >= 0 else None
        if record is None or not record.need.covers(self._question.need):
            return False
        return self._question.holds(record, self.flow.is_first(at)) is True

    def _fetch(self, spots: Iterable[Spot]) -> None:
        """Gets statistics of tensors of which nothing but their existence is known: a training has them."""
        wanted = [spot for spot in dict.fromkeys(spots) if spot not in self._fetched and self._is_unknown(spot)]
        if wanted:
            self._fetched.update(wanted)
            rows = [tensor_row(self.flow, self.located(each), ("", each.slot, ""), self._is_bad) for each in wanted]
            self._session.measure(rows, self._progress)
            self._begin()  # what a data flow has given stays as it is

    def _is_unknown(self, spot: Spot) -> bool:
        at = self.located(spot)
        return at.index >= 0 and bool(int(self.flow.table(spot.step).flags[at.index]) & TensorFlag.UNKNOWN)

    # -- what it was made from -----------------------------------------------------------------------

    def examined(self, spot: Spot) -> Examined:
        """What a tensor was made from and what is bad about that; the tensor itself need not have been dumped."""
        found = self._examined.get(spot)
        if found is None:
            making = Makings(self.measurements, spot.step).of(self._bare_hit(spot))
            self._fetch(self.spot(source.at) for source in making.sources if source.at is not None)
            asked = [(self._hit(spot), (self._question,))]
            (found,) = Examiner(self.measurements).examine(spot.step, asked, self._progress)
            self._examined[spot] = found
        return found

    def _bare_hit(self, spot: Spot) -> Hit:
        return Hit(self.key(spot), spot.row, (), (self._turn(spot), 0))

    def _turn(self, spot: Spot) -> int:
        return self.flow.turn(spot.row, spot.step, spot.round)

    def _hit(self, spot: Spot) -> Hit:
        record, at = self.record(spot), self.located(spot)
        result = evaluate(self._watchpoint, record, first_step=self._is_first(spot)) if record is not None else None
        order = int(self.flow.table(spot.step).order[at.index]) if at.index >= 0 else 0
        return Hit(
            key=self.key(spot),
            row=spot.row,
            results=() if result is None else (result,),
            order=(self._turn(spot), order),
            stats=record.stats if record is not None else None,
            detail=record.error if record is not None else "",
        )

    def teller(self, step: int) -> Teller:
        """Puts what is known about tensors of a step together."""
        return Teller(self.measurements, step, self._is_bad, self._progress)

    def leads(self, spot: Spot) -> list[Lead]:
        """The bad tensors of this rank that a tensor was made from, the first one to become bad first."""
        examined = self.examined(spot)
        found: dict[Spot, Lead] = {}
        for judged in examined.sources:
            if judged.state is not State.BAD or judged.constant or judged.source.initial or judged.at is None:
                continue
            up = self._written(judged, judged.at)
            if up == spot:
                continue
            before = found.get(up)
            slots = (*(before.way.slots if before is not None else ()), judged.source.slot)
            way = Way(self._link(examined, judged, up), self.flow.nodes.names[judged.source.node], slots)
            found[up] = Lead(up, way, self._began(up))
        if any(lead.way.link is not Link.RESULT for lead in found.values()):
            found = {up: lead for up, lead in found.items() if lead.way.link is not Link.RESULT}
        # What a parameter was before comes before what else its update took from that step.
        return sorted(found.values(), key=lambda lead: (lead.began[0], lead.way.link is not Link.BEFORE, lead.began))

    def _written(self, judged: Judged, at: Located) -> Spot:
        """Where a bad source was first written: what its producer wrote, unless that is clean or not there."""
        held = judged.source.held
        if held is not None and judged.source.own:
            written = self.spot(held)
            if self.state(written) is State.BAD:
                return written
        return self.spot(at)

    def _link(self, examined: Examined, judged: Judged, up: Spot) -> Link:
        making, key = examined.making, examined.hit.key
        if judged.source.side is Side.OUTPUT:
            return Link.RESULT
        if making.parameter >= 0 and making.node >= 0:
            itself = up.row == making.parameter or up.row in self.flow.shared(making.parameter)
            return Link.BEFORE if itself and up.side is Side.OUTPUT else Link.UPDATE
        if making.parameter >= 0 and making.before is judged.source:
            return Link.BEFORE  # of a weight that this graph only reads
        if (up.step, up.round) != (key.step, key.round) and self._is_parameter(up.row) and self.flow.updated(up.row):
            return Link.WEIGHT
        return Link.COPY if key.side is Side.INPUT and making.node < 0 else Link.INPUT

    def _began(self, spot: Spot) -> Began:
        """When a tensor came to be what it is."""
        row, turn = spot.row, self._turn(spot)
        if spot.side is Side.INPUT:
            holder = self.flow.holder(row, spot.slot)
            written = self.flow.locate_held(spot.step, holder, spot.round, row)
            if holder.row >= 0 and written is None:  # nobody saw what was written: it is as old as that
                row = holder.row
                if self._is_parameter(row) and self.flow.updated(row):
                    before = self.flow.before(row, Side.OUTPUT, holder.slot, spot.step, spot.round)
                    turn = BEFORE_ALL if before is None else self._turn(self.spot(before))
        if self._is_parameter(row) and not self.flow.updated(row):
            return (turn, BEFORE_ALL, spot.slot)
        return (turn, int(self.flow.nodes.order[row]), spot.slot)

    def _is_parameter(self, row: int) -> bool:
        return self.flow.nodes.category_of(row) in PARAMETERS

    # -- what was not dumped -------------------------------------------------------------------------

    def hidden(self, spot: Spot) -> tuple[list[Spot], list[str]]:
        """What a tensor was made from and nobody can judge: tensors that were not dumped, and words for the rest."""
        examined, spots, outside = self.examined(spot), list[Spot](), list[str]()
        nodes = self.flow.nodes
        for judged in examined.sources:
            source = judged.source
            if judged.state is not State.UNKNOWN or judged.constant or source.side is Side.OUTPUT:
                continue
            holder = self.flow.holder(source.node, source.slot)
            if holder.row < 0 or self.flow.is_constant(holder.row):
                continue
            if not self._is_parameter(holder.row):
                spots.append(Spot(self.rank, spot.step, holder.row, Side.OUTPUT, holder.slot, spot.round))
            elif not self.flow.updated(holder.row):
                outside.append(f"the graph input {nodes.names[holder.row]}")
            elif (at := self.flow.before(holder.row, Side.OUTPUT, holder.slot, spot.step, spot.round)) is None:
                outside.append(f"{nodes.names[holder.row]} before step {spot.step}")
            else:
                spots.append(self.spot(at))
        return [each for each in dict.fromkeys(spots) if each != spot], outside

    def clean_sources(self, spot: Spot) -> list[Spot]:
        """The clean tensors that a tensor was made from."""
        judged = self.examined(spot).sources
        return [self.spot(each.at) for each in judged if each.state is State.CLEAN and each.at and not each.constant]

    def statistics_alike(self, spot: Spot, other: Record | None) -> bool:
        """Whether a tensor has the very statistics of another one."""
        record = self.record(spot)
        return record is not None and other is not None and record.stats is not None and record.stats == other.stats
