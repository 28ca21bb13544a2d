"""Fills in what bad tensors were made from: which node made each, and where the values stand that went into it.

This is done in columns, but for parameters, which have a value of before, and steps in which a tensor was written
several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Integers, Mask
from tui_debugger.causes.by_design_table import MOVES, kinds_of
from tui_debugger.causes.table import TENSOR, VALUE, Causes, OriginKind
from tui_debugger.check.flow import DataFlow, Holder, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import (
    BUFFER_UPDATE,
    DRAWN_UPDATES,
    INPUT_UPDATE,
    assigned,
    change_of,
    draws_updates,
    is_collective,
    is_receiving,
    may_be_written,
    outlives_steps,
    plain_type,
    update_of,
)
from tui_debugger.graph.table import MONADS, NodeFlag, NodeTable, edges, holders
from tui_debugger.model import TRAINABLE, Category, OperandState, Side
from tui_debugger.stats.records import RecordState as RowState
from tui_debugger.stats.records import RequiredStats, holds_bad

Rows = npt.NDArray[np.void]

_OF_TWO: Final = kinds_of("""
    Add AddV2 Sub Mul Div RealDiv FloorDiv FloorMod DivNoNan Xdivy Xlogy Pow Maximum Minimum Atan2
    SquaredDifference MatMul MatMulV2 BatchMatMul BatchMatMulV2 BiasAdd Conv2D Conv3D SqrtGrad RsqrtGrad
    ReciprocalGrad TanhGrad SigmoidGrad ReluGrad ReluGradV2 GeLUGrad
""")
"""MindSpore's operators of two inputs or more: without a graph, an input that was not dumped is missing."""


def made_from(  # noqa: PLR0917 - the columns that name a tensor
    measurements: Measurements,
    step: int,
    row: Integers,
    side: Integers,
    slot: Integers,
    round: Integers,  # noqa: A002 - see TensorKey
) -> Causes:
    """The tensors of a step with what they were made from; they need not have been dumped themselves."""
    filling = _Filling(measurements, step)
    tensors = np.zeros(len(row), TENSOR)
    for name, column in (("row", row), ("side", side), ("slot", slot), ("round", round)):
        tensors[name] = column
    filling.fill(tensors)
    return Causes(measurements, step, tensors, filling.joined())


class _Filling:
    def __init__(self, measurements: Measurements, step: int) -> None:
        self._measurements = measurements
        self._flow: DataFlow = measurements.flow
        self._step = step
        self._table = self._flow.table(step)
        self._nodes: NodeTable = self._flow.nodes
        self._repeated = bool(self._table.round.any())
        self._values: list[Rows] = []
        self._held: dict[tuple[int, int, int, int], Located | None] = {}

    def joined(self) -> Rows:
        if not self._values:
            return np.zeros(0, VALUE)
        values = np.concatenate(self._values)
        return values[np.argsort(values["of"], kind="stable")]

    # -- tensors -------------------------------------------------------------------------------------

    def fill(self, tensors: Rows) -> None:
        row, slot, round_ = tensors["row"], tensors["slot"], tensors["round"]
        tensors["index"] = self._located(row, tensors["side"], slot, round_)
        tensors["named"], tensors["node"], tensors["parameter"], tensors["other"] = row, -1, -1, -1
        tensors["start"] = OriginKind.UNKNOWN.code
        inputs = tensors["side"] == int(Side.INPUT)
        parameters = self._nodes.are_parameters(row) & ~inputs
        node = np.where(inputs | parameters, -1, row)
        self._inputs_that_differ(tensors, np.flatnonzero(inputs), node)
        made = np.flatnonzero((node >= 0) & (tensors["parameter"] < 0))
        seen = inputs[made]
        tensors["other"][made[seen]] = row[made[seen]]
        tensors["start"][made] = np.where(seen, OriginKind.UNSEEN.code, OriginKind.MADE.code)
        tensors["named"][made] = tensors["node"][made] = node[made]
        tensors["exchanged"][made] = self._by_type(_exchanges, node[made])
        for number in np.flatnonzero(parameters).tolist():
            self._parameter(tensors, number, int(row[number]), node)
        self._written_while_others_were_bad(tensors)
        self._fed(tensors, np.flatnonzero(node >= 0), node)
        self._updated_by_states(tensors)

    def _inputs_that_differ(self, tensors: Rows, of: Int64, node: Int64) -> None:
        """Input files that differ from their producer's output; sets ``node`` where that was not dumped."""
        row, slot = tensors["row"][of], tensors["slot"][of]
        holder, made = (column.astype(np.int64) for column in holders(self._nodes, row, slot))
        known = holder >= 0
        parameter = self._nodes.are_parameters(holder) & known
        constant = (self._nodes.category[holder] == Category.CONSTANT) & known
        updated = np.zeros(len(of), np.bool_)
        for at in np.flatnonzero(parameter).tolist():
            if self._flow.updated(int(holder[at])):
                updated[at] = True
                self._parameter_input(tensors, int(of[at]), Holder(int(holder[at]), int(made[at])), node)
        step, index = self._located_held(holder, made, tensors["round"][of], row)
        wrote = known & ~updated & (index >= 0)
        wrote[wrote] = self._readable(step[wrote], index[wrote])
        changed = of[wrote]
        # What a training says of an input is no copy: in between was work that the graph does not show.
        start = OriginKind.UNKNOWN if draws_updates(self._nodes) else OriginKind.CHANGED
        tensors["start"][changed], tensors["other"][changed] = start.code, holder[wrote]
        values = self._rows(changed, row[wrote], slot[wrote])
        values["step"], values["index"], values["holder"] = step[wrote], index[wrote], holder[wrote]
        values["constant"] = constant[wrote]
        self._values.append(values)
        for start, mask in ((OriginKind.CONSTANT, constant), (OriginKind.SOURCE, parameter)):
            mask = mask & ~wrote & ~updated  # noqa: PLW2901 - of the kind, and not written
            at = of[mask]
            tensors["start"][at], tensors["named"][at], tensors["other"][at] = start.code, holder[mask], row[mask]
            if start is OriginKind.SOURCE:
                tensors["parameter"][at] = holder[mask]
        operator = known & ~wrote & ~parameter & ~constant
        node[of[operator]] = holder[operator]

    def _parameter_input(self, tensors: Rows, number: int, holder: Holder, node: Int64) -> None:
        """An input file that shows a parameter which the step changes."""
        of, row, slot, flow = tensors[number], int(tensors["row"][number]), int(tensors["slot"][number]), self._flow
        round_ = int(of["round"])
        if slot in self._flow.in_place(row):
            self._parameter(tensors, number, holder.row, node)
            return
        of["parameter"], of["named"], of["other"] = holder.row, holder.row, row
        now = flow.located(self._step, holder.row, Side.OUTPUT, holder.slot, round_)
        if self._starts(holder.row, round_):
            of["start"] = OriginKind.BEFORE.code
            if now.index >= 0 and may_read_later(self._nodes, holder.row, row):
                self._add(number, row, slot, [now], holder=holder.row)
            return
        # A consumer that runs after the optimizer reads the new value: only a value that is neither was changed.
        places = (flow.locate_held(self._step, holder, round_), now if now.index >= 0 else None)
        self._add(number, row, slot, places, holder=holder.row)
        if all(places):
            of["start"], of["named"], of["other"] = OriginKind.CHANGED.code, row, holder.row

    def _parameter(self, tensors: Rows, number: int, row: int, node: Int64) -> None:
        of, flow = tensors[number], self._flow
        round_ = int(of["round"])
        made = self._assigned(row)
        of["parameter"], of["named"], of["other"], of["start"] = row, row, -1, OriginKind.SOURCE.code
        if made == []:  # the program itself wrote it
            at = flow.before(row, Side.OUTPUT, 0, self._step, round_)
            if at is not None and at.index >= 0:
                self._add(number, row, 0, [at], holder=row)
                self._values[-1]["before"] = self._values[-1]["initial"] = at.step < 0
            return
        if made is not None and self._nodes.category_of(row) not in TRAINABLE:
            self._made_by_modules(of, number, row)
            return
        if not flow.updated(row):
            return
        updater, _ = flow.updater(row)
        if updater < 0:
            of["start"] = OriginKind.UNKNOWN.code
            self._add_before(number, row, row, 0, round_)
            return
        of["start"], of["other"], of["node"], node[number] = OriginKind.UPDATED.code, updater, updater, updater
        for each in flow.slots(self._step, updater, Side.OUTPUT, round_):
            at = flow.located(self._step, updater, Side.OUTPUT, each, round_)
            self._add(number, updater, each, [at], side=Side.OUTPUT)

    def _assigned(self, row: int) -> list[int] | None:
        """``assigned``, without producers of later steps."""
        made, change = assigned(self._nodes, row), change_of(self._nodes, row)
        if made is None or change is None or not self._table.operands:
            return made
        if self._came_later(change, 0):  # the step itself had no such node
            return None if self._nodes.category_of(row) in TRAINABLE else []
        return [each for slot, each in enumerate(made, 1) if not self._came_later(change, slot)]

    def _came_later(self, change: int, slot: int) -> bool:
        return self._table.operands.get((change, slot)) == OperandState.CLEAN

    def _made_by_modules(self, of: Any, number: int, row: int) -> None:
        """A buffer that modules change in the step, or an input of the model that the program made of their outputs."""
        of["start"] = OriginKind.UPDATED.code
        if outlives_steps(self._nodes, row):
            self._add_before(number, row, row, 0, int(of["round"]))
        for change, at in self._flow.consumers(row):
            if at or self._nodes.op_type(change) not in {BUFFER_UPDATE, INPUT_UPDATE}:
                continue
            of["other"] = change
            for slot, holder in enumerate(self._flow.holders(change)):
                if slot and not self._came_later(change, slot):
                    value = self._flow.locate_input(self._step, change, slot, int(of["round"]))
                    self._add(number, change, slot, [value], holder=holder.row)

    def _written_while_others_were_bad(self, tensors: Rows) -> None:
        """A program may have made what it wrote of what was bad then: an average of weights, a recurrent state."""
        start = tensors["start"] == OriginKind.SOURCE.code
        for number in np.flatnonzero(start & (tensors["parameter"] >= 0)).tolist():
            row = int(tensors["parameter"][number])
            if may_be_written(self._nodes, row):
                bad = self._bad_before(tensors, number, every=False)[:1]
            elif draws_updates(self._nodes):
                bad = self._bad_before(tensors, number, every=True)
            else:
                continue
            values = self._rows(np.full(len(bad), number), np.full(len(bad), row), np.zeros(len(bad), np.int64))
            values["step"], values["index"], values["after"] = [at for at, _ in bad], [at for _, at in bad], True
            self._values.append(values)

    def _bad_before(self, tensors: Rows, number: int, *, every: bool) -> list[tuple[int, int]]:
        """The parameters (or ``every`` tensor) that were bad when the run of a tensor began, by step and index."""
        row, round_ = int(tensors["parameter"][number]), int(tensors["round"][number])
        if every:
            run = self._flow.previous_run(row, self._step, round_)
            if run is None:
                return []
            table = self._flow.table(run[0])
            known = [(run[0], at) for at in np.flatnonzero(table.node >= 0).tolist() if table.round[at] in {0, run[1]}]
            return self._bad(known)
        rows = np.flatnonzero(self._nodes.are_parameters(np.arange(len(self._nodes))))
        zeros = np.zeros(len(rows), np.int64)
        before, index = self._flow.befores(self._step, rows, zeros + int(Side.OUTPUT), zeros, zeros)
        return self._bad([(int(before[at]), int(index[at])) for at in np.flatnonzero(index >= 0).tolist()])

    def _updated_by_states(self, tensors: Rows) -> None:
        """Bad optimizer states count as inputs of a weight's update: an optimizer changes its states first."""
        flow = self._flow
        updated = np.flatnonzero((tensors["start"] == OriginKind.UPDATED.code) & (tensors["parameter"] >= 0)).tolist()
        states: list[tuple[int, int, int, Located]] = []
        for number in updated:
            row, updater = int(tensors["parameter"][number]), int(tensors["node"][number])
            if updater < 0 or self._nodes.category_of(row) not in TRAINABLE:
                continue
            for slot in flow.in_place(updater):
                held = flow.holder(updater, slot)
                if held.row != row and held.row >= 0 and self._nodes.category_of(held.row) is Category.OPTIMIZER_STATE:
                    at = flow.located(self._step, held.row, Side.OUTPUT, held.slot, int(tensors["round"][number]))
                    if at.index >= 0:
                        states.append((number, updater, slot, at))
        bad = set(self._bad([(self._step, at.index) for *_, at in states]))
        for number, updater, slot, at in states:
            if (self._step, at.index) in bad:
                self._add(number, updater, slot, [at], holder=at.row)

    def _bad(self, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        self._measurements.ensure(dict.fromkeys(places, RequiredStats()))
        with self._measurements.locked():
            return [at for at in places if holds_bad(self._measurements.records(at[0]).rows[[at[1]]])[0]]

    def _starts(self, row: int, round_: int) -> bool:
        """Tells whether no earlier run left a value in a parameter."""
        return self._flow.before(row, Side.OUTPUT, 0, self._step, round_) is None

    # -- the inputs of nodes -------------------------------------------------------------------------

    def _fed(self, tensors: Rows, of: Int64, node: Int64) -> None:
        """Adds the inputs of the nodes that made tensors; the tensors of a node share its inputs."""
        if not len(of):
            return
        pairs, which = np.unique(node[of] << 16 | tensors["round"][of], return_inverse=True)
        nodes, rounds = pairs >> 16, pairs & 0xFFFF
        inputs = self._inputs(nodes, rounds)
        counts = np.bincount(inputs["of"], minlength=len(pairs))
        starts = np.cumsum(counts) - counts
        repeated = counts[which]
        at = np.repeat(starts[which] - np.cumsum(repeated) + repeated, repeated) + np.arange(repeated.sum())
        values = inputs[at]
        values["of"] = np.repeat(of, repeated)
        parameter = tensors["parameter"][values["of"]]
        values["before"] &= values["holder"] == parameter
        self._values.append(values)
        nothing = of[repeated == 0]
        in_graph = (self._nodes.flags[node[nothing]] & int(NodeFlag.FILE_ONLY)) == 0
        in_graph &= ~self._are_unknown(node[nothing])
        made = tensors["start"][nothing] != OriginKind.UPDATED.code
        tensors["start"][nothing[made]] = np.where(in_graph, OriginKind.SOURCE.code, OriginKind.UNKNOWN.code)[made]

    def _inputs(self, nodes: Int64, rounds: Int64) -> Rows:
        number, slot = self._input_slots(nodes, rounds)
        values = self._rows(number, nodes[number], slot)
        node, round_ = values["node"], rounds[number]
        holder, made = (column.astype(np.int64) for column in holders(self._nodes, node, slot))
        known = holder >= 0
        parameter = self._nodes.are_parameters(holder) & known
        own = self._located(node, np.zeros(len(node)), slot, round_)
        held_step, held = self._located_held(holder, made, round_, node)
        values["own"], values["holder"] = own >= 0, holder
        values["step"], values["index"] = self._step, own
        values["held_step"] = np.where(values["own"], held_step, -1)
        values["held_index"] = np.where(values["own"], held, -1)
        absent = ~values["own"]
        values["step"][absent], values["index"][absent] = held_step[absent], held[absent]
        values["constant"] = known & (self._nodes.category[holder] == Category.CONSTANT)
        stated = np.fromiter(self._nodes.constants, np.int64, len(self._nodes.constants))
        values["stated"] = values["constant"] & np.isin(holder, stated)
        for at in np.flatnonzero(parameter & absent).tolist():
            self._parameter_read(values[at], Holder(int(holder[at]), int(made[at])), int(node[at]), int(round_[at]))
        updating = np.flatnonzero(self._by_type(_updates, node)).tolist()
        for at in updating:
            if int(slot[at]) in self._flow.in_place(int(node[at])):
                self._updated_input(values, at, int(round_[at]))
        unknown = self._are_unknown(node)
        for name in ("index", "held_index", "later"):
            values[name][unknown] = -1
        for name in ("own", "constant", "stated", "after"):
            values[name][unknown] = False
        told = self._table.operands
        if told:
            places = zip(node.tolist(), slot.tolist(), strict=True)
            values["told"] = [told.get(place, 0) for place in places]
        return values

    def _are_unknown(self, node: Int64) -> Mask:
        """Marks the nodes whose inputs in this step may differ from the inputs in the graph."""
        return np.isin(node, np.array(sorted(self._table.inputs_unknown), np.int64))

    def _parameter_read(self, value: Any, holder: Holder, reader: int, round_: int) -> None:
        """A parameter without an input file; where a node may have got either value, before or after, both count."""
        updated = self._flow.updated(holder.row)
        now = self._flow.located(self._step, holder.row, Side.OUTPUT, holder.slot, round_)
        if self._table.unfinished:
            value["step"], value["index"] = now.step, now.index
            return
        value["later"] = now.index if updated else -1
        if (value["index"] >= 0 or not updated) and not may_read_later(self._nodes, holder.row, reader):
            return
        value["held_step"], value["held_index"] = value["step"], value["index"]
        value["step"], value["index"] = now.step, now.index
        value["after"] = assigned(self._nodes, holder.row) != [] and now.index >= 0

    def _updated_input(self, values: Rows, at: int, round_: int) -> None:
        """A parameter that the node itself updates: its input file shows the new value."""
        node, slot = int(values["node"][at]), int(values["slot"][at])
        holder = int(values["holder"][at])
        values[at] = self._before(int(values["of"][at]), holder, node, slot, round_)
        if values["index"][at] < 0:
            own = self._flow.located(self._step, node, Side.INPUT, slot, round_)
            values["step"][at], values["index"][at], values["after"][at] = own.step, own.index, True
        values["holder"][at] = holder

    def _input_slots(self, nodes: Int64, rounds: Int64) -> tuple[Int64, Int64]:
        """(number of the node, slot) of all inputs: those that were dumped, and those that the graph knows."""
        flow = edges(self._nodes)
        first = flow.in_ptr[nodes].astype(np.int64)
        counts = flow.in_ptr[nodes + 1] - first
        number = np.repeat(np.arange(len(nodes)), counts)
        slot = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
        fed_by = flow.in_node[np.repeat(first, counts) + slot]
        real = ~np.isin(fed_by, self._nodes.memo(_monads))
        pairs = [number[real] << 17 | slot[real], *self._dumped_slots(nodes, rounds, counts == 0)]
        both = np.unique(np.concatenate(pairs))
        return both >> 17, both & 0x1FFFF

    def _dumped_slots(self, nodes: Int64, rounds: Int64, unknown: Mask) -> list[Int64]:
        """Slots of input files as ``number << 17 | slot``; of ``unknown`` nodes those that may be missing, too."""
        found = self._slots_in(self._step, nodes, rounds)
        number, slot = found >> 17, found & 0x1FFFF
        most = np.full(len(nodes), -1, np.int64)
        np.maximum.at(most, number, slot)
        without = np.flatnonzero(unknown & (most >= 0))
        if not len(without):
            return [found]
        counts = most[without]
        below = np.repeat(without, counts) << 17 | (
            np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        )
        partial = without[(self._nodes.flags[nodes[without]] & int(NodeFlag.PARTIAL)) != 0]
        of_two = without[self._by_type(_OF_TWO.__contains__, nodes[without])]
        pairs = [found, below, partial << 17 | (most[partial] + 1), of_two << 17, of_two << 17 | 1]
        runs: dict[tuple[int, int], list[int]] = {}
        for each in without.tolist():
            run = self._flow.previous_run(int(nodes[each]), self._step, int(rounds[each]))
            if run is not None:
                runs.setdefault(run, []).append(each)
        for (step, round_), those in runs.items():
            there = self._slots_in(step, nodes[those], np.full(len(those), round_))
            pairs.append(np.array(those, np.int64)[there >> 17] << 17 | there & 0x1FFFF)
        return pairs

    def _slots_in(self, step: int, nodes: Int64, rounds: Int64) -> Int64:
        """Input files of nodes in a step, as ``number << 17 | slot``."""
        table = self._flow.table(step)
        if table.round.any():
            pairs = enumerate(zip(nodes.tolist(), rounds.tolist(), strict=True))
            found = [
                number << 17 | slot
                for number, (node, round_) in pairs
                for slot in self._flow.slots(step, node, Side.INPUT, round_)
            ]
            return np.array(found, np.int64)
        number = np.full(len(self._nodes) + 1, -1, np.int64)
        number[nodes] = np.arange(len(nodes))
        files = np.flatnonzero((table.side == int(Side.INPUT)) & (number[table.node] >= 0))
        if len(np.unique(nodes)) < len(nodes):  # several runs of a node, of a step that was written once
            return np.concatenate(
                [
                    each << 17 | table.slot[files[table.node[files] == node]].astype(np.int64)
                    for each, node in enumerate(nodes.tolist())
                ]
            )
        found_: Int64 = number[table.node[files]] << 17 | table.slot[files].astype(np.int64)
        return found_

    # -- where values stand --------------------------------------------------------------------------

    def _located(self, node: Integers, side: npt.ArrayLike, slot: Integers, round_: Integers) -> Int64:
        """``DataFlow.located`` of this step in columns: indices, -1 where there is no file."""
        if not self._repeated:
            return self._table.find_all(node, side, slot)
        sides = np.broadcast_to(np.asarray(side), np.shape(node)).tolist()
        places = zip(node.tolist(), sides, slot.tolist(), round_.tolist(), strict=True)
        found = [self._flow.located(self._step, n, Side(int(s)), t, r).index for n, s, t, r in places]
        return np.array(found, np.int64)

    def _located_held(self, holder: Int64, slot: Int64, round_: Int64, reader: Int64) -> tuple[Int64, Int64]:
        """``DataFlow.locate_held`` in columns: step and index, -1 where the value does not stand anywhere."""
        step = np.full(len(holder), self._step, np.int64)
        index = np.full(len(holder), -1, np.int64)
        known = holder >= 0
        single = known & self._nodes.are_parameters(holder)
        if self._repeated:
            single = known
        plain = known & ~single
        index[plain] = self._table.find_all(holder[plain], int(Side.OUTPUT), slot[plain])
        for at in np.flatnonzero(single).tolist():
            place = int(holder[at]), int(slot[at]), int(round_[at]), int(reader[at]) if self._repeated else -1
            if place not in self._held:
                self._held[place] = self._flow.locate_held(self._step, Holder(*place[:2]), *place[2:])
            found = self._held[place]
            if found is not None:
                step[at], index[at] = found.step, found.index
        return step, index

    def _before(self, number: int, row: int, node: int, slot: int, round_: int) -> Any:
        """The value of a parameter before this step; at the first dumped step what a consumer was fed with."""
        (value,) = self._rows(np.array([number]), np.array([node]), np.array([slot]))
        value["before"], value["holder"] = True, row
        held = self._flow.locate_held(self._step, Holder(row, 0), round_) if row >= 0 else None
        if held is not None:
            value["step"], value["index"], value["initial"] = held.step, held.index, held.step < 0
        elif row >= 0 and self._starts(row, round_):
            for consumer, at in self._flow.consumers(row):
                if at in self._flow.in_place(consumer) or may_read_later(self._nodes, row, consumer):
                    continue
                seen = self._flow.located(self._step, consumer, Side.INPUT, at, round_)
                if seen.index >= 0:
                    value["step"], value["index"], value["initial"] = seen.step, seen.index, True
                    break
        return value

    def _add_before(self, number: int, row: int, node: int, slot: int, round_: int) -> None:
        value = self._before(number, row, node, slot, round_)
        if value["index"] >= 0:
            self._values.append(np.array([value], VALUE))

    def _add(
        self,
        number: int,
        node: int,
        slot: int,
        places: Sequence[Located | None],
        *,
        side: Side = Side.INPUT,
        holder: int = -1,
    ) -> None:
        count = len(places)
        values = self._rows(np.full(count, number), np.full(count, node), np.full(count, slot))
        values["step"] = [self._step if at is None else at.step for at in places]
        values["index"] = [-1 if at is None else at.index for at in places]
        values["side"], values["holder"] = int(side), holder
        self._values.append(values)

    @staticmethod
    def _rows(of: Int64, node: Int64, slot: Int64) -> Rows:
        values = np.zeros(len(of), VALUE)
        values["of"], values["node"], values["slot"] = of, node, slot
        for name in ("step", "index", "held_step", "held_index", "holder", "later"):
            values[name] = -1
        return values

    def _readable(self, step: Int64, index: Int64) -> Mask:
        """Tells which values can be read, and measures them: answers must not depend on earlier questions."""
        places = zip(step.tolist(), index.tolist(), strict=True)
        self._measurements.ensure(dict.fromkeys(places, RequiredStats()))
        found = np.ones(len(step), np.bool_)
        with self._measurements.locked():
            for each in np.unique(step).tolist():
                of = step == each
                state = self._measurements.records(each).rows["state"][index[of]]
                found[of] = (state == RowState.UNKNOWN) | (state == RowState.MEASURED)
        return found

    def _by_type(self, is_of: Any, rows: Int64) -> Mask:
        kinds = self._nodes.type_id[rows]
        answers = {
            kind: bool(is_of(self._nodes.types[kind] if kind >= 0 else "")) for kind in np.unique(kinds).tolist()
        }
        return np.array([answers[kind] for kind in kinds.tolist()], np.bool_)


def may_read_later(nodes: NodeTable, row: int, reader: int) -> bool:
    """Tells whether a node may have read a parameter after its change in the step: nothing tells which value it got."""
    if nodes.op_type(reader) in DRAWN_UPDATES:
        return False
    made = assigned(nodes, row)
    if made is not None and (nodes.category_of(row) in TRAINABLE or reader not in made):
        return True
    # A program may read a weight again after its optimizer: what only moves elements shows that it did.
    return draws_updates(nodes) and plain_type(nodes.op_type(reader)) in MOVES


def _exchanges(op_type: str) -> bool:
    return is_collective(op_type) or is_receiving(op_type)


def _updates(op_type: str) -> bool:
    return update_of(op_type) is not None


def _monads(nodes: NodeTable) -> Int64:
    """Rows of constants that only state an order, and never have a value."""
    return np.array([row for row, text in nodes.constants.items() if text in MONADS], np.int64)
