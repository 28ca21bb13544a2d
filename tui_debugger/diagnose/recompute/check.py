"""Holds the outputs of one node against arithmetic in float64 of its own recorded inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.recompute import (
    aten,
    convolutions,
    data_movement,
    elementwise,
    products,
    reductions,
    updates,
)
from tui_debugger.diagnose.recompute.judge import (
    ACCUMULATED,
    NOT_UPDATED,
    Expected,
    Judge,
    OutputCheck,
    in_single_precision,
    unit_of,
)
from tui_debugger.diagnose.recompute.kernel_checks import AttentionCheck, KernelCheck, kernel_checks_of
from tui_debugger.diagnose.recompute.probing import MOST_TO_TELL, Probed
from tui_debugger.diagnose.recompute.products import product_of
from tui_debugger.diagnose.recompute.table import (
    ALL_REDUCE,
    ATEN,
    LINEAR_GRADIENT,
    UPDATE_OF_OPTIMIZER,
    Alternatives,
    ByShape,
    CannotBindError,
    Missing,
    Operator,
    find_operator,
)
from tui_debugger.diagnose.run import Run
from tui_debugger.diagnose.runs.kinds import MOST, kind_of_difference
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BACKWARD,
    OPTIMIZER_UPDATE,
    is_backward,
    is_collective,
    makes_random_numbers,
    plain_type,
)
from tui_debugger.graph.table import CONSTANT, PARAMETER, real_inputs
from tui_debugger.model import Side, TensorKey
from tui_debugger.sources.base import NOT_RECORDED, Argument, CallArguments, OtherArgument, TensorSlot

__all__ = ["NotChecked", "OperatorCheck", "OutputCheck", "check_operator"]

_ENTERED: Final = (aten, convolutions, data_movement, elementwise, products, reductions, updates)
"""The modules that fill the table when they are imported."""
_PART: Final = 1 << 15
"""Elements of an output that are computed at once, where an operator can be taken part by part: all that is made of
them on the way stays in the cache of a core."""
_ALL_REDUCE: Final = "allreduce"


@dataclass(frozen=True, slots=True)
class OperatorCheck:
    """The outputs of a node, each held against arithmetic.

    Attributes:
        kind: of operator, by the same word for every framework: ``linear``, ``layer norm`` ...
        outputs: those that were recorded and are known.
        nbytes: of the recorded inputs and outputs that were read.
    """

    kind: str
    outputs: tuple[OutputCheck, ...]
    nbytes: int = 0

    @property
    def wrong(self) -> bool:
        """Tells whether any output is wrong."""
        return any(each.wrong for each in self.outputs)


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A node that was not recomputed.

    Attributes:
        reason: why: ``operator not known: foo``, ``input 1 was not dumped`` ...
        kind: of operator, where that is known; else empty.
        failed: what was recorded could not be read.
    """

    reason: str
    kind: str = ""
    failed: bool = False


def check_operator(
    run: Run,
    rank: int,
    step: int,
    row: int,
    *,
    round: int = 0,  # noqa: A002 - see TensorKey
    instead: Mapping[tuple[str, int], Array] | None = None,
) -> OperatorCheck | NotChecked:
    """Recomputes a node, and holds what was recorded of its outputs against that.

    Args:
        run: the run.
        rank: of the node.
        step: of the run.
        row: of the node, in the rank's node table.
        round: which run of the node in the step; 0 is the newest one.
        instead: values to take in place of recorded ones, by role (``in``, ``out``) and slot: what if it had read that?
    """
    op_type = run.nodes(rank).op_type(row)
    if op_type in _LINEAR_BACKWARD and (forward := _forward_of(run, rank, row)) >= 0:
        return _linear_gradient(_Reader(run, (rank, step, row, round), instead=instead), forward)
    call = run.arguments(rank, step, row, round)
    if (refused := _refused(op_type)) and (call is None or not call.aten or op_type not in ATEN):
        return NotChecked(refused)
    if call is None:
        return NotChecked("arguments not recorded")
    if op_type == OPTIMIZER_UPDATE:
        return _update(run, (rank, step, row, round), call, instead)
    operator = None if is_collective(op_type) else _operator(op_type, call)
    all_reduce = plain_type(op_type) == _ALL_REDUCE
    if operator is None and not all_reduce:
        what = "module" if call.parameters is not None else "operator"
        return NotChecked(f"{what} not known: {op_type}")
    kind = operator.kind if operator is not None else ALL_REDUCE
    try:
        reader = _Reader(run, (rank, step, row, round), operator.writes if operator is not None else (), instead)
        found = reader.outputs()
        if not found:
            raise CannotBindError(reader.why_no_output())
        outputs = _all_reduce(reader, call, found) if operator is None else _computed(operator, call, reader, found)
        if operator is not None and any(each.wrong for each in outputs):
            _require_these_values(operator, call, reader, found, outputs)
        return OperatorCheck(kind, outputs, reader.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return NotChecked(_why(error), kind, failed=not isinstance(error, CannotBindError))


def _require_these_values(
    operator: Operator,
    call: CallArguments,
    reader: _Reader,
    found: Mapping[int, TensorRow],
    outputs: Sequence[OutputCheck],
) -> None:
    """Checks that a node of our own client read and made the values that were recorded, before it is accused.

    Values are recorded once for a step, weights at its end. Where there were several calls, or where nobody saw what
    the program did to weights meanwhile (modules), others may be meant: with those nearly all of the output differs.

    Raises:
        CannotBindError: the program writes to one of them, or most of the output does not fit them.
    """
    if call.doubt:
        raise CannotBindError(call.doubt)
    if not call.several and (call.aten or not call.parameters or "input" not in call.keywords):
        return
    args, named = _bound(operator, call, reader)
    made = _called(operator, args, named)
    choices = made.choices if isinstance(made, Alternatives) else (made,)
    for check in outputs:
        if not check.wrong:
            continue
        expected = [each[check.slot] if isinstance(each, tuple) else each for each in choices]
        out = reader.output(check.slot, found[check.slot])
        expected = [each.function(out.shape) if isinstance(each, ByShape) else each for each in expected]
        wholes = [each.exact() if isinstance(each, Probed) else each for each in expected]
        if not any(isinstance(each, Expected) and _fits_mostly(each, out, _SURELY_MEANT) for each in wholes):
            raise CannotBindError("most of its output does not fit: what was recorded may be of another call")


_SURELY_MEANT: Final = 0.8
"""The share of elements beside zeros that fit where the recorded values are those that were read."""


def _update(
    run: Run,
    at: tuple[int, int, int, int],
    call: CallArguments,
    instead: Mapping[tuple[str, int], Array] | None,
) -> OperatorCheck | NotChecked:
    """Holds a weight, and what an optimizer keeps for it, against what the optimizer makes of what they were before."""
    name = str(call.keywords.get("optimizer", ""))
    try:
        slots = {key: each.slot for key, each in call.keywords.items() if isinstance(each, TensorSlot)}
        written = [slots[each] for each in ("parameter", *updates.STATES.get(name, ())) if each in slots]
        reader = _Reader(run, at, tuple(written), instead, own=True)
        found = reader.outputs()
        if 0 not in found:
            raise CannotBindError("the weight after the update was not dumped")
        named = {key: reader.argument(each) for key, each in call.keywords.items()}
        for each in named.values():
            if isinstance(each, Missing):
                raise CannotBindError(each.reason)
        outputs = {slot: reader.output(slot, row) for slot, row in found.items()}
        before = [reader.input(slot) for slot in written]
        if all(np.array_equal(before[slot], each) for slot, each in outputs.items()):
            raise CannotBindError("it is what it was: the optimizer may have left this step out")
        result = updates.optimizer_update(after=outputs[0], **named)
        checks = _judged(result, outputs, reader.widest)
        if not checks:
            raise CannotBindError("shapes do not fit")
        for check in checks:
            if check.wrong and call.doubt:
                raise CannotBindError(call.doubt)
            if check.wrong and not _fits_mostly(result[check.slot], outputs[check.slot], _SURELY_MEANT):
                raise CannotBindError("most of it does not fit: something else may have changed it")
        return OperatorCheck(UPDATE_OF_OPTIMIZER, checks, reader.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return NotChecked(_why(error), UPDATE_OF_OPTIMIZER, failed=not isinstance(error, CannotBindError))


_LINEAR_BACKWARD: Final = frozenset(name + BACKWARD for name in ("Linear", "Dense"))
"""Backward passes of modules, of which the gradients of outputs and inputs are recorded, whatever ran inside."""


def _narrowed(made: Array, came: Array) -> Array:
    """A gradient in the type in which it was computed: under autocast it is widened to that of the input afterwards."""
    units = unit_of(made.dtype), unit_of(came.dtype)
    if units[0] is None or units[1] is None or units[0] >= units[1]:
        return made
    narrow = made.astype(came.dtype)
    return narrow if np.array_equal(narrow.astype(made.dtype), made, equal_nan=True) else made


_GRADIENTS: Final = "Gradients/"
"""The prefixes of the names of backward nodes."""


def _forward_of(run: Run, rank: int, row: int) -> int:
    """The node of the forward pass that a node of the backward pass belongs to; -1 where there is none."""
    nodes = run.nodes(rank)
    name = nodes.names[row]
    return nodes.find(name.removeprefix(_GRADIENTS), nodes.graph_of(row).name) if name.startswith(_GRADIENTS) else -1


def _linear_gradient(reader: _Reader, forward: int) -> OperatorCheck | NotChecked:
    """Holds the gradient of a linear module's input against that of its output times the weight."""
    try:
        call = reader.run.arguments(reader.rank, reader.step, forward, reader.round)
        weight = (call.parameters or {}).get("weight") if call is not None else None
        if not isinstance(weight, TensorSlot):
            raise CannotBindError("the weight was not recorded")
        found = reader.outputs()
        if not found:
            raise CannotBindError(reader.why_no_output())
        module = _Reader(reader.run, (reader.rank, reader.step, forward, reader.round))
        came, values = reader.input(0), module.input(weight.slot)
        widest = min(reader.widest, module.widest)
        outputs = {slot: _narrowed(reader.output(slot, row), came) for slot, row in found.items() if slot == 0}
        with np.errstate(all="ignore"):
            checks = _judged(product_of(came, values), outputs, widest)
        if not checks:
            raise CannotBindError("shapes do not fit")
        return OperatorCheck(LINEAR_GRADIENT, checks, reader.nbytes + module.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return NotChecked(_why(error), LINEAR_GRADIENT, failed=not isinstance(error, CannotBindError))


def _why(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too large for the memory"
    return f"cannot be read: {error.what}" if isinstance(error, TdbgError) else str(error)


def _refused(op_type: str) -> str:
    """Tells why nothing of a type is ever recomputed; empty where it may be."""
    if op_type in {PARAMETER, CONSTANT}:
        return "no operator"
    if is_backward(op_type):
        return "backward: what was recorded is of another node of the gradient's graph"
    return "random" if makes_random_numbers(op_type) else ""


def _operator(op_type: str, call: CallArguments) -> Operator | None:
    is_module, is_graph = call.parameters is not None, call.attributes is not None
    return find_operator(op_type, is_module=is_module, is_graph=is_graph, is_aten=call.aten)


class _Reader:
    """The recorded tensors of one node.

    Attributes:
        widest: the unit of rounding of the most exact input that was read.
        written: the inputs that it writes over, in the order of its outputs.
        nbytes: of what was read.
    """

    def __init__(
        self,
        run: Run,
        at: tuple[int, int, int, int],
        writes: tuple[int, ...] = (),
        instead: Mapping[tuple[str, int], Array] | None = None,
        depth: int = 0,
        *,
        own: bool = False,
    ) -> None:
        """Reads the tensors of one node.

        Args:
            run: the run.
            at: rank, step, row and round.
            writes: the inputs that it writes over.
            instead: see ``check_operator``.
            depth: of moves behind it.
            own: our own client recorded them: inputs are as they were before the node ran.
        """
        self.depth, self._own = depth, own
        self.run = run
        self.rank, self.step, self.row, self.round = at
        self.rows = run.tensor_rows(*at)
        self._inputs = {each.slot: each for each in self.rows if each.role == "in"}
        self.widest = math.inf
        self.written = writes
        self.nbytes = 0
        self._instead = instead or {}

    def input(self, slot: int) -> Array:
        """The values of an input.

        Raises:
            CannotBindError: they were not recorded.
        """
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
        if row.key.step != self.step:
            self._require_whole(row.key)
        before = slot in self.written and not self._own
        return self._taken(self.run.read(self._before(slot) if before else row.key))

    def _require_whole(self, key: TensorKey) -> None:
        """Checks that no step in between, of which nothing was dumped, may have changed what an earlier step left.

        Raises:
            CannotBindError: one may.
        """
        flow = self.run.flow(self.rank)
        row = flow.nodes.find(key.node, key.graph)
        at = flow.before(row, key.side, key.slot, self.step, self.round) if row >= 0 else None
        if at is not None and not flow.is_left_by(at, row, self.step, self.round):
            raise CannotBindError(f"{EARLIER}{key.node} was not dumped")

    def _moved(self, slot: int) -> Array | None:
        """An input that was not recorded, made of what was: its producer only moves values. None where it does more."""
        nodes = self.run.nodes(self.rank)
        holders = real_inputs(nodes, self.row)
        producer, made = holders[slot] if slot < len(holders) else (-1, 0)
        call = self.run.arguments(self.rank, self.step, producer, self.round) if producer >= 0 else None
        operator = ATEN.get(nodes.op_type(producer)) if call is not None and call.aten else None
        if call is None or operator is None or operator.kind not in _MOVES or self.depth >= _DEEPEST:
            return None
        if call.doubt:
            raise CannotBindError(call.doubt)
        reader = _Reader(self.run, (self.rank, self.step, producer, self.round), depth=self.depth + 1)
        result = _called(operator, *_bound(operator, call, reader))
        found = result[made] if isinstance(result, tuple) and made < len(result) else result
        return np.asarray(found.value) if isinstance(found, Expected) and found.exact else None

    def _taken(self, found: Array) -> Array:
        self.nbytes += found.nbytes
        unit = unit_of(found.dtype)
        if unit is not None and found.ndim:
            self.widest = min(self.widest, unit)
        return found

    def output(self, slot: int, row: TensorRow) -> Array:
        """The values of an output."""
        given = self._instead.get(("out", slot))
        found = self.run.read(row.key) if given is None else given
        self.nbytes += found.nbytes
        return found

    def _before(self, slot: int) -> TensorKey:
        """A parameter that is written over as it was before: its own input was recorded when that had happened.

        Raises:
            CannotBindError: that was not recorded.
        """
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
        """An argument with its tensors read, ``Missing`` where they were not recorded."""
        if isinstance(value, TensorSlot):
            try:
                return self.input(value.slot)
            except CannotBindError as error:
                return Missing(str(error))
        if isinstance(value, tuple):
            return tuple([self.argument(each) for each in value])
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        if isinstance(value, OtherArgument) and value.kind == NOT_RECORDED:
            return Missing(f"an argument {value.text}")
        return Ellipsis if isinstance(value, OtherArgument) and value.kind == "ellipsis" else value

    def outputs(self) -> dict[int, TensorRow]:
        """The recorded outputs by slot; of operators that write over parameters, the parameters afterwards.

        Such an operator has outputs of its own that nobody fills.
        """
        if self.written:
            after = {each.slot: each for each in self.rows if each.role == "param" and each.has_value}
            return {at: after[slot] for at, slot in enumerate(self.written) if slot in after}
        return {each.slot: each for each in self.rows if each.role == "out" and each.has_value and not each.uncertain}

    def why_no_output(self) -> str:
        """Tells why there is no output."""
        out = [each for each in self.rows if each.role == "out"]
        if any(each.uncertain for each in out):
            return "which file holds the output is not certain"
        return "only statistics" if any(each.recorded for each in out) else "output was not dumped"


def _bound(operator: Operator, call: CallArguments, reader: _Reader) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which an operator is computed.

    Raises:
        CannotBindError: not all are known.
    """
    positional = [reader.argument(each) for each in call.positional]
    keywords = {key: reader.argument(each) for key, each in call.keywords.items()}
    parameters = {key: reader.argument(each) for key, each in (call.parameters or {}).items()}
    attributes = {key: each for key, each in (call.attributes or {}).items() if not isinstance(each, OtherArgument)}
    args, named = operator.bind(positional, keywords, attributes, parameters)
    for each in (*args, *named.values()):
        if isinstance(each, OtherArgument) and operator.kind not in _TYPES_DO_NOT_MATTER:
            raise CannotBindError(f"an argument that was not recorded: {each.kind or each.text}")
    return args, named


_MOVES: Final = frozenset({"reshape", "transpose", "expand", "copy", "index", "split", "gather"})
"""Kinds of operators that only move values."""
_DEEPEST: Final = 8
"""The most moves one behind the other."""


def _computed(
    operator: Operator, call: CallArguments, reader: _Reader, found: Mapping[int, TensorRow]
) -> tuple[OutputCheck, ...]:
    """Binds the arguments, computes, and judges."""
    args, named = _bound(operator, call, reader)
    positional = args[: len(call.positional)]
    outputs = {slot: reader.output(slot, row) for slot, row in found.items()}
    if _overwritten(reader, positional, outputs, call):
        raise CannotBindError("written over in place: the input that was recorded is the output")
    slot, out = next(iter(outputs.items()))
    by_kernel = kernel_checks_of(operator, args, named, out) if len(outputs) == 1 else ()
    parts = _parts(operator, args, named, out) if operator.split and len(outputs) == 1 else None
    if (
        checked := _checked_by_kernel(by_kernel, parts, Judge(out.dtype, out.shape, reader.widest), slot, out)
    ) is not None:
        return (checked,)
    if parts is not None:
        check = _in_parts(operator, parts, reader.widest, slot, out, by_kernel)
        return (replace(check, difference=_difference_of(operator, args, named, out)) if check.wrong else check,)
    if operator.single and len(outputs) == 1 and out.size > _PART and _is_narrow((out, *args, *named.values())):
        judge = Judge(out.dtype, out.shape, reader.widest)
        with in_single_precision():
            made = _called(operator, args, named)
        if isinstance(made, Expected) and judge.take_right(made, out):
            return (judge.result(slot),)
    with np.errstate(all="ignore"):
        try:
            result = operator.function(*args, **named)
            if isinstance(result, ByShape):
                result = result.function(next(iter(outputs.values())).shape)
        except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise CannotBindError(f"arguments do not fit: {error}") from error
    choices = result.choices if isinstance(result, Alternatives) else (result,)
    judged = [_judged(each, outputs, reader.widest, reshaped=operator.graph) for each in choices]
    fitting = [each for each in judged if each]
    if not fitting:
        raise CannotBindError(
            f"shapes do not fit: expected {_shape_of(choices[0])}, recorded {[each.shape for each in outputs.values()]}"
        )
    best = min(fitting, key=_badness)
    if isinstance(result, Alternatives) and result.guessed and any(each.wrong for each in best):
        made = choices[judged.index(best)]
        if not _fits_mostly(made[0] if isinstance(made, tuple) else made, out):
            raise CannotBindError(result.guessed)
    return tuple(_not_updated(each, operator, positional, outputs) if each.wrong else each for each in best)


def _not_updated(
    check: OutputCheck, operator: Operator, positional: Sequence[Any], outputs: Mapping[int, Array]
) -> OutputCheck:
    """Says of a parameter that was to be updated that it is what it was before."""
    if check.slot >= len(operator.writes) or operator.writes[check.slot] >= len(positional):
        return check
    before, after = positional[operator.writes[check.slot]], outputs[check.slot]
    if not isinstance(before, np.ndarray) or before.shape != after.shape or not np.array_equal(before, after):
        return check
    return replace(check, difference=(NOT_UPDATED, "it is what it was before the update"))


EARLIER: Final = "the earlier value of "
"""The beginning of a reason why something was not checked."""
_TYPES_DO_NOT_MATTER: Final = frozenset({"cast", "copy", "sum", "mean", "fill", "softmax", "log softmax", "norm"})
"""Kinds of operators whose arguments of other types say which type the output has, which the output shows."""


def _badness(checks: Sequence[OutputCheck]) -> tuple[bool, float]:
    return any(each.wrong for each in checks), max(each.r for each in checks)


def _shape_of(result: Any) -> Any:
    return [
        each.shape if isinstance(each, Probed) else np.shape(each.value)
        for each in (result if isinstance(result, tuple) else (result,))
        if isinstance(each, Expected | Probed)
    ]


def _judged(
    result: Any, outputs: Mapping[int, Array], widest: float, *, reshaped: bool = False
) -> tuple[OutputCheck, ...]:
    """Holds outputs against what is expected of them; nothing where no shape fits.

    Args:
        result: of the operator.
        outputs: by slot.
        widest: see ``Judge``.
        reshaped: outputs may have another shape of the same size: a compiler took out what reshaped them.
    """
    expected = result if isinstance(result, tuple) else (result,)
    checks = []
    for slot, found in outputs.items():
        each = expected[slot] if slot < len(expected) else None
        if each is None:
            continue
        if isinstance(each, Probed):
            judge = Judge(found.dtype, found.shape, widest)
            if each.judge(judge, np.asarray(found)):
                check = judge.result(slot)
                told = check.wrong and found.size <= MOST and each.work <= MOST_TO_TELL
                checks.append(replace(check, difference=_difference(each.exact(), found)) if told else check)
                continue
            each = each.exact()
        fitted = _fitted(each, found.shape, reshaped=reshaped)
        if fitted is None:
            return ()
        checks.append(_judge(fitted, found, slot, widest))
    return tuple(checks)


def _fitted(expected: Expected, shape: tuple[int, ...], *, reshaped: bool) -> Expected | None:
    """Returns what is expected, in the recorded shape where that differs by dimensions of size 1, or a reshape."""
    value = np.asarray(expected.value)
    if value.shape == shape:
        return expected
    expected = expected.complete()
    plain = [size for size in value.shape if size != 1], [size for size in shape if size != 1]
    if value.size != math.prod(shape) or not (reshaped or plain[0] == plain[1]):
        return None

    def shaped(part: Any) -> Any:
        return np.broadcast_to(part, value.shape).reshape(shape) if np.ndim(part) else part

    either = None if expected.either is None else shaped(expected.either)
    return Expected(
        value.reshape(shape),
        shaped(expected.size),
        expected.terms,
        shaped(expected.narrow),
        shaped(expected.partial),
        exact=expected.exact,
        peak=expected.peak,
        either=either,
        ignored=None if expected.ignored is None else shaped(expected.ignored),
        cast=expected.cast,
    )


def _judge(expected: Expected, found: Array, slot: int, widest: float) -> OutputCheck:
    judge = Judge(found.dtype, found.shape, widest)
    judge.take(expected, np.asarray(found))
    check = judge.result(slot)
    return replace(check, difference=_difference(expected, np.asarray(found))) if check.wrong else check


def _difference_of(operator: Operator, args: Sequence[Any], named: Mapping[str, Any], out: Array) -> tuple[str, str]:
    """Tells the same of an output that was judged part by part, if it is not too large to be looked at as a whole."""
    if out.size > MOST:
        return "", ""
    result = _called(operator, args, named)
    first = result.choices[0] if isinstance(result, Alternatives) else result
    fitted = _fitted(first, out.shape, reshaped=True) if isinstance(first, Expected) else None
    return _difference(fitted, out) if fitted is not None else ("", "")


def _fits_mostly(expected: Expected, found: Array, beside_zeros: float = 0.0) -> bool:
    """Tells whether most elements are right: then the form is the one that was meant, and what is wrong is a fault.

    ``beside_zeros``: the share of those that are not zero in both, which must be right; 0: half of all.
    """
    whole, unit = expected.complete(), unit_of(found.dtype) or 0.0
    if np.shape(whole.value) != found.shape:
        return False
    with np.errstate(all="ignore"):
        inside = min(ACCUMULATED, unit) * math.sqrt(max(whole.terms, 1.0))
        explained = unit * (np.abs(whole.value) + whole.narrow) + inside * np.asarray(whole.size)
        off = np.abs(found.astype(np.float64) - whole.value)
        near = off <= 8 * explained
        if whole.either is not None:
            near |= np.abs(found.astype(np.float64) - whole.either) <= 8 * explained
    if not beside_zeros:
        return bool(np.mean(near) > 0.5)
    some = np.isfinite(off) & ((found != 0) | (np.asarray(whole.value) != 0))
    return bool(np.any(some)) and float(np.mean(near[some])) >= beside_zeros


def _difference(expected: Expected, found: Array) -> tuple[str, str]:
    """Tells how what was recorded follows from what is expected, in a word and a sentence."""
    unit, expected = unit_of(found.dtype) or 0.0, expected.complete()
    with np.errstate(all="ignore"):
        right, seen = (np.asarray(each).astype(np.float64) for each in (expected.value, found))
        right = np.broadcast_to(right, seen.shape)
        inside = min(ACCUMULATED, unit) * math.sqrt(max(expected.terms, 1.0))
        rounding = unit * (np.abs(right) + expected.narrow) + inside * np.asarray(expected.size)
        near = np.abs(seen - right) <= 4 * rounding  # that says nothing here
        word, text = kind_of_difference(right, np.where(near, right, seen), unit)
    if word == "rounding":
        return "values", "more than rounding explains"
    named = {"A": "what is expected", "B": "what was recorded"}
    return word, re.sub(r"\b[AB]\b", lambda match: named[match[0]], text)


_IN_PLACE: Final = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "pow", "and", "or")
)


def _overwritten(reader: _Reader, positional: Sequence[Any], outputs: Mapping[int, Array], call: CallArguments) -> bool:
    """Tells whether the call wrote over its input before that was recorded: then they are the same."""
    leaf = reader.run.nodes(reader.rank).names[reader.row].rpartition("/")[2]
    function = next((part for part in reversed(leaf.split(".")) if not part.isdigit()), "")
    last = call.attributes is None and call.positional[-1:] == (True,) and call.positional[-1] is True
    asked = call.keywords.get("inplace") is True or last or call.keywords.get("out")
    in_place = asked or function in _IN_PLACE or (function.endswith("_") and not function.endswith("__"))
    if not in_place or not positional or not isinstance(positional[0], np.ndarray) or 0 not in outputs:
        return False
    one, other = positional[0], outputs[0]
    return one.shape == other.shape and one.dtype == other.dtype and bool(one.tobytes() == other.tobytes())


# -- part by part ------------------------------------------------------------------------------------------

_Part = tuple[int, Array, tuple[Any, ...], dict[str, Any]]
"""The first element of a part of the output, the part, and the arguments that make it."""


def _parts(
    operator: Operator, args: Sequence[Any], named: Mapping[str, Any], found: Array
) -> Callable[[], Iterator[_Part]] | None:
    """Returns what cuts a large call into parts that stay in the cache; None where that cannot or need not be done."""
    if not args or not isinstance(args[0], np.ndarray):
        return None
    if operator.split == "sums":
        return _row_sums(args, named, found) if args[0].size > _PART else None
    if found.size <= _PART:
        return None
    if operator.split == "elements":
        return _element_parts(args, named, found)
    if operator.split == "batches":
        return _batch_parts(args, named, found)
    return _row_parts(operator, args, named, found)


def _row_parts(
    operator: Operator, args: Sequence[Any], named: Mapping[str, Any], found: Array
) -> Callable[[], Iterator[_Part]] | None:
    first, shape = args[0], found.shape
    if first.ndim < 2 or first.shape[:-1] != shape[:-1] or _norm_dims(operator, args, named) != 1:
        return None
    if operator.split == "last" and not _is_last(args, named, first.ndim):
        return None
    rows, width, made = math.prod(shape[:-1]), first.shape[-1], shape[-1]
    flat, out = np.reshape(first, (rows, width)), np.reshape(found, (rows, made))
    step = max(_PART // max(width, made), 1)
    if operator.split == "last":  # the dimension is that of a row
        args = (first, -1, *args[2:]) if len(args) > 1 else args
        named = {**named, "dim": -1} if "dim" in named else named

    def cut() -> Iterator[_Part]:
        for start in range(0, rows, step):
            end = min(start + step, rows)
            yield start * made, out[start:end], (flat[start:end], *args[1:]), dict(named)

    return cut


def _batch_parts(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[_Part]] | None:
    """Cuts an attention into its heads, where there are as many of each tensor."""
    tensors = [each for each in (*args, *named.values()) if isinstance(each, np.ndarray) and each.ndim]
    before = found.shape[:-2]
    if not before or any(each.shape[:-2] not in {before, ()} for each in tensors):
        return None
    size = math.prod(found.shape[-2:])

    def cut() -> Iterator[_Part]:
        for number, at in enumerate(np.ndindex(before)):

            def part(value: Any, at: tuple[int, ...] = at) -> Any:
                return value[at] if isinstance(value, np.ndarray) and value.shape[:-2] == before else value

            yield number * size, found[at], tuple(part(each) for each in args), {k: part(v) for k, v in named.items()}

    return cut


def _row_sums(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[_Part]] | None:
    """Cuts what is reduced along its last dimension into rows."""
    first = args[0]
    if first.ndim < 2 or not _is_last(args, named, first.ndim):
        return None
    before = first.shape[:-1]
    if found.shape not in {before, (*before, 1)}:
        return None
    rows, width = math.prod(before), first.shape[-1]
    flat, out = np.reshape(first, (rows, width)), np.reshape(found, (rows, *found.shape[len(before) :]))
    step = max(_PART // max(width, 1), 1)
    rest = (-1, *args[2:]) if len(args) > 1 else ()
    more = {**named, "dim": -1} if "dim" in named else dict(named)

    def cut() -> Iterator[_Part]:
        for start in range(0, rows, step):
            yield start, out[start : start + step], (flat[start : start + step], *rest), more

    return cut


def _is_last(args: Sequence[Any], named: Mapping[str, Any], ndim: int) -> bool:
    """Tells whether an operator goes along the last dimension."""
    dim = args[1] if len(args) > 1 else named.get("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    return len(dims) == 1 and dims[0] in {-1, ndim - 1}


def _norm_dims(operator: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """Returns how many dimensions a row of an operator has: those that a normalisation goes over."""
    if "norm" not in operator.kind:
        return 1
    shape = args[1] if len(args) > 1 else named.get("normalized_shape")
    return len(shape) if isinstance(shape, tuple) else 1


def _element_parts(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[_Part]] | None:
    shape = found.shape
    tensors = [each for each in (*args, *named.values()) if isinstance(each, np.ndarray)]
    if all(each.shape == shape or not each.ndim for each in tensors):
        flat = [np.reshape(each, -1) if each.shape == shape else each for each in tensors]
        return _cut(args, named, np.reshape(found, -1), dict(zip(map(id, tensors), flat, strict=True)))
    try:
        broad = {id(each): np.broadcast_to(each, shape) if each.ndim else each for each in tensors}
    except ValueError:
        return None
    return _cut(args, named, found, broad)


def _cut(
    args: Sequence[Any], named: Mapping[str, Any], found: Array, whole: Mapping[int, Array]
) -> Callable[[], Iterator[_Part]]:
    """Cuts tensors of one shape, along one dimension and everything before it."""
    shape = found.shape
    depth = next(at for at in range(len(shape)) if math.prod(shape[at + 1 :]) <= _PART)
    inner = math.prod(shape[depth + 1 :])
    step = max(_PART // max(inner, 1), 1)

    def cut() -> Iterator[_Part]:
        start = 0
        for outer in np.ndindex(shape[:depth]):
            for begin in range(0, shape[depth], step):
                at = (*outer, slice(begin, begin + step))

                def part(value: Any, at: Any = at) -> Any:
                    taken = whole.get(id(value)) if isinstance(value, np.ndarray) else None
                    return value if taken is None or not taken.ndim else taken[at]

                yield start, found[at], tuple(part(each) for each in args), {k: part(v) for k, v in named.items()}
                start += min(step, shape[depth] - begin) * inner

    return cut


def _checked_by_kernel(
    by_kernel: Sequence[KernelCheck | AttentionCheck],
    parts: Callable[[], Iterator[_Part]] | None,
    judge: Judge,
    slot: int,
    found: Array,
) -> OutputCheck | None:
    """Checks an output with the kernel; None where that is not sure of all of it, or one part may be judged so."""
    for kernel_check in by_kernel if parts is None or len(by_kernel) > 1 else ():
        each = replace(judge)
        places = [(0, found.size)] if parts is None else ((start, out.size) for start, out, _, _ in parts())
        for place in places:
            result = kernel_check.check(*place)
            if not result.right:
                break
            each.take_norms(*result.norms)
        else:
            return each.result(slot)
    return None


def _in_parts(  # noqa: PLR0917 - one call
    operator: Operator,
    parts: Callable[[], Iterator[_Part]],
    widest: float,
    slot: int,
    found: Array,
    by_kernel: Sequence[KernelCheck | AttentionCheck] = (),
) -> OutputCheck:
    """Computes and judges part by part; of several forms that may have been meant the one that fits best."""
    if len(by_kernel) == 1:
        return _checked_by_kernel_in_parts(operator, parts, Judge(found.dtype, found.shape, widest), slot, by_kernel[0])
    judges: list[Judge] = []
    single = operator.single and found.dtype.itemsize <= 2 and unit_of(found.dtype) is not None
    for start, out, args, named in parts():
        if single and len(judges) <= 1 and _is_narrow((*args, *named.values())):
            with in_single_precision():
                judges = judges or [Judge(found.dtype, found.shape, widest)]
                expected = _called(operator, args, named)
            if isinstance(expected, Expected) and judges[0].take_right(expected, out):
                continue
        result = _called(operator, args, named)
        choices = result.choices if isinstance(result, Alternatives) else (result,)
        if len(judges) != len(choices):  # one was enough so far, for parts that are right in every form
            judges = [*judges, *(Judge(found.dtype, found.shape, widest) for _ in choices)][: len(choices)]
        for judge, each in zip(judges, choices, strict=True):
            fitted = _fitted(each, out.shape, reshaped=True)
            if fitted is None:
                raise CannotBindError("shapes do not fit")
            judge.take(fitted, out, start)
    checks = (judge.result(slot) for judge in judges)
    return min(checks, key=lambda check: (check.wrong, check.r))


def _checked_by_kernel_in_parts(
    operator: Operator,
    parts: Callable[[], Iterator[_Part]],
    judge: Judge,
    slot: int,
    kernel_check: KernelCheck | AttentionCheck,
) -> OutputCheck:
    """Checks every part with the kernel; computes those that are not surely right."""
    for start, out, args, named in parts():
        result = kernel_check.check(start, out.size)
        if result.right:
            judge.take_norms(*result.norms)
            continue
        expected = _called(operator, args, named)
        fitted = _fitted(expected, out.shape, reshaped=True)
        if fitted is None:
            raise CannotBindError("shapes do not fit")
        judge.take(fitted, out, start)
    return judge.result(slot)


def _called(operator: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        try:
            return operator.function(*args, **named)
        except (ValueError, IndexError, TypeError) as error:
            raise CannotBindError(f"arguments do not fit: {error}") from error


def _is_narrow(values: Sequence[Any]) -> bool:
    """Tells whether float32 holds all tensors among some arguments exactly, and more."""
    return all(each.dtype.itemsize <= 2 or each.dtype == np.bool_ for each in values if isinstance(each, np.ndarray))


# -- between ranks -----------------------------------------------------------------------------------------


def _all_reduce(reader: _Reader, call: CallArguments, found: Mapping[int, TensorRow]) -> tuple[OutputCheck, ...]:
    """Holds the output of an all-reduce against the inputs of all ranks of its group."""
    if call.keywords.get("async_op") is True or call.positional[3:4] == (True,):
        raise CannotBindError("asynchronous: the output was recorded before it was there")
    run, nodes = reader.run, reader.run.nodes(reader.rank)
    name = nodes.names[reader.row]
    ranks = nodes.group_ranks.get(reader.row) or tuple(run.ranks())
    if len(ranks) < 2:
        raise CannotBindError("inputs of other ranks are not in this run")
    inputs = []
    for rank in ranks:
        if rank == reader.rank:
            inputs.append(reader.input(0))
            continue
        row = run.nodes(rank).find(name, nodes.graph_of(reader.row).name) if rank in run.ranks() else -1
        if row < 0 or reader.step not in run.steps(rank):
            raise CannotBindError(f"input of rank {rank} was not dumped")
        inputs.append(_Reader(run, (rank, reader.step, row, reader.round)).input(0))
    operation = call.positional[1] if len(call.positional) > 1 else call.keywords.get("op")
    text = operation.text if isinstance(operation, OtherArgument) else operation
    reduction = "sum" if operation is None else _REDUCTIONS.get(str(text).rpartition(".")[2].lower(), "")
    result = updates.all_reduced(inputs, reduction)
    outputs = {slot: reader.output(slot, row) for slot, row in found.items()}
    choices = result.choices if isinstance(result, Alternatives) else (result,)
    judged = [checks for checks in (_judged(each, outputs, reader.widest) for each in choices) if checks]
    if not judged:
        raise CannotBindError("shapes do not fit")
    return min(judged, key=_badness)


_REDUCTIONS: Final = {"sum": "sum", "avg": "mean", "mean": "mean", "max": "max", "min": "min"}
