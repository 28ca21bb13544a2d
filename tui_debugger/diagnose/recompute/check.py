"""Holds the outputs of one node against arithmetic in float64 of its own recorded inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.recompute import elementwise, layout, products, reductions, updates
from tui_debugger.diagnose.recompute.judge import Expected, Judge, OutputCheck, unit_of
from tui_debugger.diagnose.recompute.table import ByShape, CannotBindError, Either, Missing, Operator, find_operator
from tui_debugger.diagnose.run import Run
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BACKWARD,
    PARAMETER_GRADIENTS,
    is_collective,
    plain_type,
)
from tui_debugger.graph.table import CONSTANT, PARAMETER
from tui_debugger.model import TensorKey
from tui_debugger.sources.base import Argument, CallArguments, OtherArgument, TensorSlot

__all__ = ["NotChecked", "OperatorCheck", "OutputCheck", "check_operator"]

_ENTERED: Final = (elementwise, layout, products, reductions, updates)
"""The modules that fill the table when they are imported."""
_PART: Final = 1 << 20
"""Elements of an output that are computed at once, where an operator can be taken part by part."""
_RANDOM: Final = frozenset(
    {
        *("rand", "randn", "randint", "randperm", "randlike", "randnlike", "normal", "uniform", "bernoulli"),
        *("multinomial", "exponential", "dropoutgenmask", "standardnormal", "uniformreal", "truncatednormal"),
    }
)
_ALL_REDUCE: Final = "allreduce"


@dataclass(frozen=True, slots=True)
class OperatorCheck:
    """The outputs of a node, each held against arithmetic.

    Attributes:
        kind: of operator, by the same word for every framework: ``linear``, ``layer norm`` ...
        outputs: those that were recorded and are known.
    """

    kind: str
    outputs: tuple[OutputCheck, ...]

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
    """

    reason: str
    kind: str = ""


def check_operator(
    run: Run,
    rank: int,
    step: int,
    row: int,
    *,
    round: int = 0,  # noqa: A002 - see TensorKey
) -> OperatorCheck | NotChecked:
    """Recomputes a node, and holds what was recorded of its outputs against that.

    Args:
        run: the run.
        rank: of the node.
        step: of the run.
        row: of the node, in the rank's node table.
        round: which run of the node in the step; 0 is the newest one.
    """
    op_type = run.nodes(rank).op_type(row)
    refused = _refused(op_type)
    call = run.arguments(rank, step, row, round) if not refused else None
    if call is None:
        return NotChecked(refused or "arguments not recorded")
    operator = None if is_collective(op_type) else _operator(op_type, call)
    all_reduce = plain_type(op_type) == _ALL_REDUCE
    if operator is None and not all_reduce:
        what = "module" if call.parameters is not None else "operator"
        return NotChecked(f"{what} not known: {op_type}")
    kind = operator.kind if operator is not None else "all reduce"
    try:
        reader = _Reader(run, (rank, step, row, round), operator.writes if operator is not None else ())
        found = reader.outputs()
        if not found:
            raise CannotBindError(reader.why_no_output())
        if operator is None:
            return OperatorCheck(kind, _all_reduce(reader, call, found))
        return OperatorCheck(kind, _computed(operator, call, reader, found))
    except (CannotBindError, TdbgError, MemoryError) as error:
        return NotChecked(_why(error), kind)


def _why(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too large for the memory"
    return f"cannot be read: {error.what}" if isinstance(error, TdbgError) else str(error)


def _refused(op_type: str) -> str:
    """Tells why nothing of a type is ever recomputed; empty where it may be."""
    if op_type in {PARAMETER, CONSTANT}:
        return "no operator"
    if op_type.endswith(BACKWARD) or op_type in PARAMETER_GRADIENTS:
        return "backward: what was recorded is of another node of the gradient's graph"
    return "random" if plain_type(op_type) in _RANDOM else ""


def _operator(op_type: str, call: CallArguments) -> Operator | None:
    is_module, is_graph = call.parameters is not None, call.attributes is not None
    return find_operator(op_type, is_module=is_module, is_graph=is_graph)


class _Reader:
    """The recorded tensors of one node.

    Attributes:
        widest: the unit of rounding of the most exact input that was read.
        written: the inputs that it writes over, in the order of its outputs.
    """

    def __init__(self, run: Run, at: tuple[int, int, int, int], writes: tuple[int, ...] = ()) -> None:
        """``at`` is rank, step, row and round."""
        self.run = run
        self.rank, self.step, self.row, self.round = at
        self.rows = run.tensor_rows(*at)
        self._inputs = {each.slot: each for each in self.rows if each.role == "in"}
        self.widest = math.inf
        self.written = writes

    def input(self, slot: int) -> Array:
        """The values of an input.

        Raises:
            CannotBindError: they were not recorded.
        """
        row = self._inputs.get(slot)
        if row is None or not row.has_value:
            only = row is not None and row.recorded
            raise CannotBindError(
                f"of input {slot} there are only statistics" if only else f"input {slot} was not dumped"
            )
        if row.uncertain:
            raise CannotBindError(f"which file holds input {slot} is not certain")
        found = self.run.read(row.key if slot not in self.written else self._before(slot))
        unit = unit_of(found.dtype)
        if unit is not None and found.ndim:
            self.widest = min(self.widest, unit)
        return found

    def _before(self, slot: int) -> TensorKey:
        """A parameter that is written over as it was before: its own input was recorded when that had happened.

        Raises:
            CannotBindError: that was not recorded.
        """
        after = next((each.key for each in self.rows if each.role == "param" and each.slot == slot), None)
        before = self.run.before(after) if after is not None else None
        if before is None:
            raise CannotBindError(f"what input {slot} was before was not dumped")
        return before

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


def _computed(
    operator: Operator, call: CallArguments, reader: _Reader, found: Mapping[int, TensorRow]
) -> tuple[OutputCheck, ...]:
    """Binds the arguments, computes, and judges."""
    positional = [reader.argument(each) for each in call.positional]
    keywords = {key: reader.argument(each) for key, each in call.keywords.items()}
    parameters = {key: reader.argument(each) for key, each in (call.parameters or {}).items()}
    attributes = {key: each for key, each in (call.attributes or {}).items() if not isinstance(each, OtherArgument)}
    args, named = operator.bind(positional, keywords, attributes, parameters)
    for each in (*args, *named.values()):
        if isinstance(each, OtherArgument) and operator.kind not in _TYPES_DO_NOT_MATTER:
            raise CannotBindError(f"an argument that was not recorded: {each.kind or each.text}")
    outputs = {slot: reader.run.read(row.key) for slot, row in found.items()}
    if _overwritten(reader, positional, outputs, call):
        raise CannotBindError("written over in place: the input that was recorded is the output")
    if operator.split and len(outputs) == 1 and (parts := _parts(operator, args, named, outputs)):
        return (_in_parts(operator, parts, reader.widest, *next(iter(outputs.items()))),)
    with np.errstate(all="ignore"):
        try:
            result = operator.function(*args, **named)
            if isinstance(result, ByShape):
                result = result.function(next(iter(outputs.values())).shape)
        except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise CannotBindError(f"arguments do not fit: {error}") from error
    choices = result.choices if isinstance(result, Either) else (result,)
    judged = [_judged(each, outputs, reader.widest, reshaped=operator.graph) for each in choices]
    fitting = [each for each in judged if each]
    if not fitting:
        raise CannotBindError(
            f"shapes do not fit: expected {_shape_of(choices[0])}, recorded {[each.shape for each in outputs.values()]}"
        )
    return min(fitting, key=_badness)


_TYPES_DO_NOT_MATTER: Final = frozenset({"cast", "copy", "sum", "mean", "fill", "softmax", "log softmax", "norm"})
"""Kinds of operators whose arguments of other types say which type the output has, which the output shows."""


def _badness(checks: Sequence[OutputCheck]) -> tuple[bool, float]:
    return any(each.wrong for each in checks), max(each.r for each in checks)


def _shape_of(result: Any) -> Any:
    return [
        np.shape(each.value)
        for each in (result if isinstance(result, tuple) else (result,))
        if isinstance(each, Expected)
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
        fitted = _fitted(each, found.shape, reshaped=reshaped)
        if fitted is None:
            return ()
        checks.append(_judge(fitted, found, slot, widest))
    return tuple(checks)


def _fitted(expected: Expected, shape: tuple[int, ...], *, reshaped: bool) -> Expected | None:
    """What is expected in the shape of what was recorded, where that differs by dimensions of size 1, or a reshape."""
    value = np.asarray(expected.value)
    if value.shape == shape:
        return expected
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
    return judge.result(slot)


_IN_PLACE: Final = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "pow", "and", "or")
)


def _overwritten(reader: _Reader, positional: Sequence[Any], outputs: Mapping[int, Array], call: CallArguments) -> bool:
    """Tells whether the call wrote over its input before that was recorded: then they are the same."""
    leaf = reader.run.nodes(reader.rank).names[reader.row].rpartition("/")[2]
    function = next((part for part in reversed(leaf.split(".")) if not part.isdigit()), "")
    asked = call.keywords.get("inplace") is True or call.positional[-1:] == (True,) or call.keywords.get("out")
    in_place = asked or function in _IN_PLACE or (function.endswith("_") and not function.endswith("__"))
    if not in_place or not positional or not isinstance(positional[0], np.ndarray) or 0 not in outputs:
        return False
    one, other = positional[0], outputs[0]
    return one.shape == other.shape and one.dtype == other.dtype and bool(one.tobytes() == other.tobytes())


# -- part by part ------------------------------------------------------------------------------------------

_Part = tuple[int, int, tuple[Any, ...], dict[str, Any]]
"""Where a part of the output begins and ends, and the arguments that make it."""


def _parts(
    operator: Operator, args: Sequence[Any], named: Mapping[str, Any], outputs: Mapping[int, Array]
) -> Callable[[], Iterator[_Part]] | None:
    """Returns what cuts a large call into parts; None for a small one, and where that cannot be done."""
    shape = next(iter(outputs.values())).shape
    size = math.prod(shape)
    if size <= _PART or not args or not isinstance(args[0], np.ndarray):
        return None
    if operator.split == "elements":
        return _element_parts(args, named, shape)
    first = args[0]
    if first.ndim < 2 or first.shape[:-1] != shape[:-1] or _norm_dims(operator, args, named) != 1:
        return None
    rows, width, made = math.prod(shape[:-1]), first.shape[-1], shape[-1]
    flat = np.reshape(first, (rows, width))
    step = max(_PART // max(width, made), 1)

    def cut() -> Iterator[_Part]:
        for start in range(0, rows, step):
            end = min(start + step, rows)
            yield start * made, end * made, (flat[start:end], *args[1:]), dict(named)

    return cut


def _norm_dims(operator: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """How many dimensions a row of an operator has: those that a normalisation goes over."""
    if "norm" not in operator.kind:
        return 1
    shape = args[1] if len(args) > 1 else named.get("normalized_shape")
    return len(shape) if isinstance(shape, tuple) else 1


def _element_parts(
    args: Sequence[Any], named: Mapping[str, Any], shape: tuple[int, ...]
) -> Callable[[], Iterator[_Part]] | None:
    tensors = [each for each in (*args, *named.values()) if isinstance(each, np.ndarray)]
    if any(each.shape != shape and each.size != 1 for each in tensors):
        return None
    size = math.prod(shape)

    def part(value: Any, start: int, end: int) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return np.reshape(value, -1)[start:end] if value.shape == shape else value.reshape(())

    def cut() -> Iterator[_Part]:
        for start in range(0, size, _PART):
            end = min(start + _PART, size)
            yield (
                start,
                end,
                tuple(part(each, start, end) for each in args),
                {key: part(each, start, end) for key, each in named.items()},
            )

    return cut


def _in_parts(
    operator: Operator, parts: Callable[[], Iterator[_Part]], widest: float, slot: int, found: Array
) -> OutputCheck:
    """Computes and judges part by part; of several forms that may have been meant the one that fits best."""
    judges: list[Judge] = []
    flat = np.reshape(found, -1)
    for start, end, args, named in parts():
        with np.errstate(all="ignore"):
            try:
                result = operator.function(*args, **named)
            except (ValueError, IndexError, TypeError) as error:
                raise CannotBindError(f"arguments do not fit: {error}") from error
        choices = result.choices if isinstance(result, Either) else (result,)
        judges = judges or [Judge(found.dtype, found.shape, widest) for _ in choices]
        for judge, each in zip(judges, choices, strict=True):
            fitted = _fitted(each, (end - start,), reshaped=True)
            if fitted is None:
                raise CannotBindError("shapes do not fit")
            judge.take(fitted, np.asarray(flat[start:end]), start)
    return min((judge.result(slot) for judge in judges), key=lambda check: (check.wrong, check.r))


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
    outputs = {slot: run.read(row.key) for slot, row in found.items()}
    choices = result.choices if isinstance(result, Either) else (result,)
    judged = [checks for checks in (_judged(each, outputs, reader.widest) for each in choices) if checks]
    if not judged:
        raise CannotBindError("shapes do not fit")
    return min(judged, key=_badness)


_REDUCTIONS: Final = {"sum": "sum", "avg": "mean", "mean": "mean", "max": "max", "min": "min"}
