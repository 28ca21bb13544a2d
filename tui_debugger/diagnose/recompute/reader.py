"""Reads the recorded tensors of one node, and binds them to the arguments of an operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.recompute.judge import (
    Expected,
    unit_of,
)
from tui_debugger.diagnose.recompute.table import (
    ATEN,
    COMPLEX,
    BoundCall,
    CannotBindError,
    MissingArgument,
    Operator,
)
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.graph.table import real_inputs
from tui_debugger.model import Side, TensorKey
from tui_debugger.sources.base import NOT_RECORDED, Argument, CallArguments, OtherArgument, TensorSlot

NodeCall = tuple[int, int, int, int]
"""Rank, step, row and round of a node that ran."""
ReplacedValues = Mapping[tuple[str, int], Array]
"""Values in place of recorded ones, by role (``in``, ``out``) and slot."""


class RecordedNode:
    """The recorded tensors of one node; ``widest`` is the unit of rounding of the most exact input read so far.

    ``written`` are slots of the inputs that the node overwrites, in the order of its outputs.
    """

    def __init__(
        self,
        run: DiagnosedRun,
        at: NodeCall,
        writes: tuple[int, ...] = (),
        instead: ReplacedValues | None = None,
        depth: int = 0,
        *,
        own: bool = False,
        complex_too: bool = False,
    ) -> None:
        """Reads the node ``at`` (rank, step, row, round); ``instead``: see ``check_operator``.

        ``depth`` counts the moves between this node and the checked node; with ``own``, inputs were recorded before the
        node ran; with ``complex_too``, complex numbers are read.
        """
        self.depth, self._own, self._complex_too = depth, own, complex_too
        self.run = run
        self.rank, self.step, self.row, self.round = at
        self.rows = run.tensor_rows(*at)
        self._inputs = {each.slot: each for each in self.rows if each.role == "in"}
        self.widest = math.inf
        self.written = writes
        self.nbytes = 0
        self._instead = instead or {}

    def input(self, slot: int) -> Array:
        """The values of an input; CannotBindError where they were not recorded."""
        if (given := self._instead.get(("in", slot))) is not None:
            return self._taken(given)
        row = self._inputs.get(slot)
        if row is None or not row.has_value:
            if (moved := self._moved(slot)) is not None:
                return self._taken(moved)
            only = row is not None and row.recorded
            raise CannotBindError(
                f"of input {slot} there are only statistics" if only else f"input {slot} was not dumped"
            )
        if row.uncertain:
            raise CannotBindError(f"which file holds input {slot} is not certain")
        before = slot in self.written and not self._own
        return self._taken(self.run.read(self._before(slot) if before else row.key))

    def _moved(self, slot: int) -> Array | None:
        """An unrecorded input, recomputed from its producer's inputs; None unless the producer only moves values."""
        nodes = self.run.nodes(self.rank)
        holders = real_inputs(nodes, self.row)
        producer, made = holders[slot] if slot < len(holders) else (-1, 0)
        call = self.run.arguments(self.rank, self.step, producer, self.round) if producer >= 0 else None
        operator = ATEN.get(nodes.op_type(producer)) if call is not None and call.aten else None
        if call is None or operator is None or operator.kind not in _MOVES or self.depth >= _DEEPEST:
            return None
        if call.doubt:
            raise CannotBindError(call.doubt)
        at = (self.rank, self.step, producer, self.round)
        reader = RecordedNode(self.run, at, depth=self.depth + 1, complex_too=self._complex_too)
        result = bound(operator, call, reader).result()
        found = result[made] if isinstance(result, tuple) and made < len(result) else result
        return np.asarray(found.value) if isinstance(found, Expected) and found.exact else None

    def _taken(self, found: Array) -> Array:
        self._count(found)
        unit = unit_of(found.dtype)
        if unit is not None and found.ndim:
            self.widest = min(self.widest, unit)
        return found

    def output(self, slot: int, row: TensorRow) -> Array:
        given = self._instead.get(("out", slot))
        found = self.run.read(row.key) if given is None else given
        self._count(found)
        return found

    def values(self, rows: Mapping[int, TensorRow]) -> dict[int, Array]:
        """The values of outputs, by slot."""
        return {slot: self.output(slot, row) for slot, row in rows.items()}

    def _count(self, found: Array) -> None:
        self.nbytes += found.nbytes
        if found.dtype.kind == "c" and not self._complex_too:
            raise CannotBindError(COMPLEX)

    def _before(self, slot: int) -> TensorKey:
        """The key of an overwritten parameter's earlier value; its own input was recorded after the write."""
        after = next((each.key for each in self.rows if each.role == "param" and each.slot == slot), None)
        unknown = CannotBindError(f"{EARLIER}input {slot} was not dumped")
        flow = self.run.flow(self.rank)
        row = flow.nodes.find(after.node, after.graph) if after is not None else -1
        if after is None or row < 0:
            raise unknown
        at = flow.before(row, Side.OUTPUT, after.slot, self.step, self.round)
        if at is None or not flow.is_left_by(at, row, self.step, self.round):
            raise unknown
        return flow.key(at)

    def argument(self, value: Argument) -> Any:
        """An argument with its tensors read; ``MissingArgument`` for what was not recorded."""
        if isinstance(value, TensorSlot):
            try:
                return self.input(value.slot)
            except CannotBindError as error:
                return MissingArgument(str(error))
        if isinstance(value, tuple):
            return tuple([self.argument(each) for each in value])
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        if isinstance(value, OtherArgument) and value.kind == NOT_RECORDED:
            return MissingArgument(f"an argument {value.text}")
        return Ellipsis if isinstance(value, OtherArgument) and value.kind == "ellipsis" else value

    def outputs(self) -> dict[int, TensorRow]:
        """The recorded outputs by slot; the updated parameters where the operator overwrites them."""
        if self.written:
            after = {each.slot: each for each in self.rows if each.role == "param" and each.has_value}
            return {at: after[slot] for at, slot in enumerate(self.written) if slot in after}
        return {each.slot: each for each in self.rows if each.role == "out" and each.has_value and not each.uncertain}

    def why_no_output(self) -> str:
        out = [each for each in self.rows if each.role == "out"]
        if any(each.uncertain for each in out):
            return "which file holds the output is not certain"
        return ONLY_STATISTICS if any(each.recorded for each in out) else NO_OUTPUT


def bound(operator: Operator, call: CallArguments, reader: RecordedNode) -> BoundCall:
    """The call with which an operator is computed; CannotBindError unless all of its arguments are known."""
    positional = [reader.argument(each) for each in call.positional]
    keywords = {key: reader.argument(each) for key, each in call.keywords.items()}
    parameters = {key: reader.argument(each) for key, each in (call.parameters or {}).items()}
    attributes = {key: each for key, each in (call.attributes or {}).items() if not isinstance(each, OtherArgument)}
    found = operator.bind(positional, keywords, attributes, parameters)
    for each in found.values:
        if isinstance(each, OtherArgument) and operator.kind not in _TYPES_DO_NOT_MATTER:
            raise CannotBindError(f"an argument that was not recorded: {each.kind or each.text}")
    return found


_MOVES: Final = frozenset({"reshape", "transpose", "expand", "copy", "index", "split", "gather"})
"""Kinds of operators that only move values."""
_DEEPEST: Final = 8
"""The longest chain of moves that is followed."""
ONLY_STATISTICS: Final = "only statistics"
NO_OUTPUT: Final = "output was not dumped"
"""Reasons why something was not checked."""
OF_ANOTHER_RUN: Final = "what was recorded may be of another run in the step"
"""Reason why a node that ran several times in a step is not accused."""
GRADIENTS_SCOPE: Final = "Gradients/"
"""The prefix of the names of nodes of the backward pass."""
EARLIER: Final = "the earlier value of "
"""The prefix of the reason that an earlier value of a parameter is missing."""
_TYPES_DO_NOT_MATTER: Final = frozenset(
    {
        *("cast", "copy", "sum", "mean", "prod", "cumsum", "fill", "softmax", "log softmax", "norm"),
        *("gradient of softmax", "gradient of log softmax"),
    }
)
"""Kinds whose unrecorded arguments can only be the output's type, which the output shows."""
