"""What is known of bad tensors and of the values that their nodes were made from: one row for each, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.model import Hit, Side, Verdict, Watchpoint
from tui_debugger.stats.records import Records, RequiredStats
from tui_debugger.stats.records import RecordState as RowState
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, needs


class OriginKind(Enum):
    """How something bad starts at a tensor, or why it does not."""

    MADE = "made"
    """A node made it from clean inputs."""
    UNSEEN = "unseen"
    """The same, but the node's output was not dumped: it was seen in the input of a consumer."""
    CHANGED = "changed"
    """An input file is bad although its producer's output is clean."""
    SOURCE = "source"
    """Nothing in this run makes it: a graph input such as the data, or an operator without inputs."""
    UPDATED = "updated"
    """A parameter after its update, though what the update was made from is clean."""
    BEFORE = "before"
    """A parameter that was bad already before the first dumped step."""
    CONSTANT = "constant"
    """Not here: it comes from a constant of the graph, such as the -Inf of a mask."""
    DESIGNED = "by_design"
    """Not here: an operator was told to write this Inf. What became of it may be where it starts."""
    TAINTED = "fed"
    """Not here: something that it was made from is bad."""
    UNKNOWN = "unknown"
    """Not judged: not everything that it was made from is known."""

    @classmethod
    def origins(cls) -> frozenset[OriginKind]:
        return _ORIGINS

    @property
    def code(self) -> int:
        return _CODES[self]

    def is_origin(self, step: int) -> bool:
        """Tells whether a tensor of a step is an origin. Bad before the first dumped step: only if that is step 0."""
        return self in _ORIGINS and (self is not OriginKind.BEFORE or step == 0)


STARTS: Final = tuple(OriginKind)
"""Every kind, by its number in columns."""
_CODES: Final = {each: code for code, each in enumerate(STARTS)}
_ORIGINS = frozenset(
    {OriginKind.MADE, OriginKind.UNSEEN, OriginKind.CHANGED, OriginKind.SOURCE, OriginKind.UPDATED, OriginKind.BEFORE}
)


class InputState(Enum):
    """The state of a value that a tensor was made from, as far as it is known."""

    CLEAN = "clean"
    BAD = "bad"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        return STATES.index(self)


STATES: Final = tuple(InputState)
CLEAN, BAD, UNKNOWN = (np.int8(number) for number in range(3))


@dataclass(frozen=True, slots=True, eq=False)
class Criterion:
    """The criterion by which a tensor is bad: a watchpoint would have a finding; its selection is not asked."""

    watchpoint: Watchpoint

    @property
    def need(self) -> RequiredStats:
        return needs(self.watchpoint)

    @property
    def overflow(self) -> bool:
        """Tells whether it asks for NaN and Inf, which are wrong in a constant too."""
        return CONDITIONS[self.watchpoint.condition].is_overflow

    @property
    def unchanged(self) -> bool:
        """Tells whether it asks for what hardly changes: of a constant or a graph input that says nothing."""
        return CONDITIONS[self.watchpoint.condition].is_small_change

    def states(self, records: Records, rows: Sequence[int] | Int64) -> npt.NDArray[np.int8]:
        """The states of some tensors, by their rows, as far as their records answer the criterion."""
        at = np.asarray(rows, np.int64)
        # Whether a step came before tells apart only why nothing is known.
        verdict = ColumnEvaluator(records, at).evaluate(self.watchpoint, first_step=False).verdict
        known = (records.rows["state"][at] == RowState.MEASURED) & records.covers(self.need, at)
        found = np.full(len(at), UNKNOWN, np.int8)
        found[known & (verdict == SILENT)] = CLEAN
        # A tensor that NaN or Inf kept from being judged is bad as well: what is made of it may be a finding.
        found[known & ((verdict == Verdict.FINDING) | (verdict == Verdict.BLOCKED))] = BAD
        return found

    def state(self, records: Records, row: int) -> InputState:
        return STATES[int(self.states(records, [row])[0])]


OVERFLOW: Final = Criterion(Watchpoint(0, "tensor_overflow"))
"""Any NaN or Inf."""


def criterion_of(watchpoint: Watchpoint) -> Criterion:
    """The criterion of a watchpoint; all conditions on NaN and Inf share one."""
    return OVERFLOW if CONDITIONS[watchpoint.condition].is_overflow else Criterion(watchpoint)


TENSOR: Final = np.dtype(
    [
        *((name, "<i8") for name in ("row", "slot", "round", "index")),
        ("side", "u1"),
        ("start", "i1"),
        *((name, "<i8") for name in ("named", "other", "node", "parameter")),
        ("exchanged", "?"),
    ]
)
"""A bad tensor, and what made it.

row, side, slot, round, index: the tensor; ``index`` in the table of its step, -1 where it was not dumped.
start: the kind of start, if nothing that it was made from is bad.
named: row of the node to be named: what made it, or where it was changed.
other: row of the node that has to be named beside it, or -1: the producer of an input that was changed, the consumer
    that saw an output that was not dumped, the node that updates a parameter.
node: row of the node whose inputs its values are; -1 where they are no node's inputs.
parameter: row of the parameter whose value it is, or -1.
exchanged: other ranks may have had a part in it.
"""

VALUE: Final = np.dtype(
    [
        *(
            (name, "<i8")
            for name in ("of", "node", "slot", "step", "index", "held_step", "held_index", "holder", "later")
        ),
        ("side", "u1"),
        ("told", "u1"),
        *((name, "?") for name in ("own", "constant", "stated", "initial", "before", "after")),
    ]
)
"""A value that a tensor was made from.

of: number of the tensor.
node, slot, side: the input of the node that made the tensor; an output of the node that updates a parameter; for the
    value of a parameter itself its own row.
step, index: where the value stands: a row in the table of a step; -1 where it was not dumped.
held_step, held_index: where the value of before the node ran stands, of an input that may have been written over; of
    what is judged by its value ``after`` where that of before stands.
holder: row of the node that the graph says it comes from; -1 where the graph does not say.
later: where the value of a parameter after its update stands, in the table of the tensors' step: where that is clean,
    the value of before was it, too, for nothing that an optimizer does takes a NaN away; -1 where it was not dumped.
told: what the training said of it as it was when the node ran: an ``OperandState``, or 0.
own: it stands in the node's own input file.
constant: it is the value of a graph constant.
stated: the graph itself says what that is.
initial: it is the value that a parameter had before the first dumped step.
before: it is the parameter's own value of before.
after: it is the parameter after its update: see ``later``.
"""


@dataclass(frozen=True, slots=True)
class JudgedValue:
    """A value that a tensor was made from, with the verdict on it."""

    node: int  # as ``slot``, ``side``, ``own``, ``initial`` and ``after`` of ``VALUE``
    slot: int
    side: Side
    at: Located | None  # where the value stands that was judged
    held: Located | None  # where that of before the node ran stands
    state: InputState
    own: bool
    constant: bool  # it is a constant of the graph, or an operator's attribute
    missing: bool  # it is not known, so that something may start elsewhere
    initial: bool
    after: bool
    before: bool  # it is the parameter's own value of before
    overwritten: bool  # ``at`` is the value of before the node wrote over it
    designed: bool  # it has an Inf that an operator was told to write: what is made from it counts it as clean


@dataclass(frozen=True, slots=True)
class Examined:
    """A bad tensor, and why it is (or is not) where things start."""

    hit: Hit
    start: OriginKind  # for the first criterion by which it starts here, else for the first one
    criteria: tuple[int, ...]  # numbers of those by which it starts here; without any, of all
    values: tuple[JudgedValue, ...]
    made_by: int  # the node that made it, or where it was changed
    beside: int  # ``other`` of ``TENSOR``, as ``node``, ``parameter`` and ``exchanged`` are those of it
    node: int
    parameter: int
    exchanged: bool

    @property
    def missing(self) -> tuple[JudgedValue, ...]:
        """The unknown values that keep a tensor from being an origin, without values of other ranks."""
        return tuple(each for each in self.values if each.missing)

    @property
    def row(self) -> int:
        updated = self.start is OriginKind.UPDATED and self.parameter >= 0
        return self.parameter if updated else self.made_by

    @property
    def other(self) -> int:
        """The node to be named beside it, or -1."""
        return self.beside if self.row == self.made_by else self.made_by


class Causes:
    """The bad tensors of a step and the values that they were made from."""

    def __init__(
        self, measurements: Measurements, step: int, tensors: npt.NDArray[np.void], values: npt.NDArray[np.void]
    ) -> None:
        self.measurements = measurements
        self.flow: DataFlow = measurements.flow
        self.step = step
        self.tensors = tensors  # rows of ``TENSOR``
        self.values = values  # rows of ``VALUE``, sorted by tensor, then as their node has them

    def __len__(self) -> int:
        return len(self.tensors)

    def some(self, chosen: Int64) -> Causes:
        number = np.full(len(self), -1, np.int64)
        number[chosen] = np.arange(len(chosen))
        kept = number[self.values["of"]] >= 0
        values = self.values[kept]
        values["of"] = number[values["of"]]
        return Causes(self.measurements, self.step, self.tensors[chosen], values)

    def any_of(self, mask: Mask) -> Mask:
        """Tells which tensors have a value that a mask over the values marks."""
        found = np.zeros(len(self), np.bool_)
        found[self.values["of"][mask]] = True
        return found

    def located(self, step: int, index: int) -> Located | None:
        """The tensor of a row of a step's table; None for row -1."""
        if index < 0:
            return None
        table: Any = self.flow.table(step)
        side = Side(int(table.side[index]))
        return Located(step, index, int(table.node[index]), side, int(table.slot[index]), int(table.round[index]))
