"""Compares the outputs of one node with arithmetic in float64 on its own recorded inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.recompute import (
    aten,
    convolutions,
    data_movement,
    elementwise,
    modules,
    products,
    reductions,
    updates,
)
from tui_debugger.diagnose.recompute.judge import (
    NOT_UPDATED,
    Expected,
    OutputCheck,
    OutputJudge,
    in_single_precision,
)
from tui_debugger.diagnose.recompute.kernel_checks import kernel_checks_of
from tui_debugger.diagnose.recompute.outcomes import (
    SURELY_MEANT,
    NotChecked,
    OperatorCheck,
    badness,
    fits_mostly,
    judged,
    not_checked,
    shape_of,
)
from tui_debugger.diagnose.recompute.parts import PART, checked_by_kernel, difference_of, in_parts, is_narrow, parts_of
from tui_debugger.diagnose.recompute.probing import ProbedOutput
from tui_debugger.diagnose.recompute.reader import GRADIENTS_SCOPE, OF_ANOTHER_RUN, RecordedNode, ReplacedValues, bound
from tui_debugger.diagnose.recompute.table import (
    ALL_REDUCE,
    ATEN,
    COMPLEX_TOO,
    Alternatives,
    BoundCall,
    ByShape,
    CannotBindError,
    Operator,
    choices_of,
    find_operator,
)
from tui_debugger.diagnose.recompute.trained import of_training
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    is_backward,
    is_collective,
    makes_random_numbers,
    plain_type,
)
from tui_debugger.graph.table import CONSTANT, PARAMETER
from tui_debugger.sources.base import CallArguments, OtherArgument

__all__ = ["NotChecked", "OperatorCheck", "OutputCheck", "check_operator"]

_ENTERED: Final = (aten, convolutions, data_movement, elementwise, modules, products, reductions, updates)
"""These modules fill the operator tables when they are imported."""
_ALL_REDUCE: Final = "allreduce"


def check_operator(
    run: DiagnosedRun,
    rank: int,
    step: int,
    row: int,
    *,
    round: int = 0,  # noqa: A002 - see TensorKey
    instead: ReplacedValues | None = None,
) -> OperatorCheck | NotChecked:
    """Recomputes a node, and compares its recorded outputs with the result.

    ``row`` is that of the rank's node table, ``round`` counts the node's runs in the step back from the newest (0).
    ``instead`` replaces recorded values, by role (``in``, ``out``) and slot, for what-if questions.
    """
    op_type, at = run.nodes(rank).op_type(row), (rank, step, row, round)
    call = run.arguments(rank, step, row, round)
    if (result := of_training(run, at, call, instead)) is not None:
        return result
    refused = _refused(op_type)
    if call is None or (refused and (not call.aten or op_type not in ATEN)):
        return NotChecked(refused or "arguments not recorded")
    operator = None if is_collective(op_type) else _operator(op_type, call)
    all_reduce = plain_type(op_type) == _ALL_REDUCE
    if operator is None and not all_reduce:
        what = "module" if call.parameters is not None else "operator"
        return NotChecked(f"{what} not known: {op_type}")
    kind = operator.kind if operator is not None else ALL_REDUCE
    try:
        writes, complex_too = (operator.writes, kind in COMPLEX_TOO) if operator is not None else ((), False)
        reader = RecordedNode(run, at, writes, instead, complex_too=complex_too)
        found = reader.outputs()
        if not found:
            raise CannotBindError(reader.why_no_output())
        outputs = _all_reduce(reader, call, found) if operator is None else _computed(operator, call, reader, found)
        if operator is not None and any(each.wrong for each in outputs):
            _require_these_values(operator, call, reader, found, outputs)
        return OperatorCheck(kind, outputs, reader.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return not_checked(error, kind)


def _require_these_values(
    operator: Operator,
    call: CallArguments,
    reader: RecordedNode,
    found: Mapping[int, TensorRow],
    outputs: Sequence[OutputCheck],
) -> None:
    """Raises CannotBindError unless the recorded values are those that the node used, before the node is accused.

    Our client records values once for a step, and weights at its end. Where a node was called several times, or where
    the program may have changed weights meanwhile (modules), the node may have used other values; then nearly all of
    the output differs.
    """
    if call.doubt:
        raise CannotBindError(call.doubt)
    if not call.several and (call.aten or call.parameters is None or "input" not in call.keywords):
        return
    if call.several and reader.run.nodes(reader.rank).names[reader.row].startswith(GRADIENTS_SCOPE):
        # It goes through the last forward pass first: of either the first values of a step were recorded.
        raise CannotBindError(OF_ANOTHER_RUN)
    choices = choices_of(bound(operator, call, reader).result())
    for check in outputs:
        if not check.wrong:
            continue
        expected = [each[check.slot] if isinstance(each, tuple) else each for each in choices]
        out = reader.output(check.slot, found[check.slot])
        with np.errstate(all="ignore"):
            expected = [each.function(out.shape) if isinstance(each, ByShape) else each for each in expected]
        wholes = [each.exact() if isinstance(each, ProbedOutput) else each for each in expected]
        if not any(isinstance(each, Expected) and fits_mostly(each, out, SURELY_MEANT) for each in wholes):
            raise CannotBindError("most of its output does not fit: what was recorded may be of another call")


def _refused(op_type: str) -> str:
    """Tells why nodes of a type are never recomputed; empty where they may be."""
    if op_type in {PARAMETER, CONSTANT}:
        return "no operator"
    if is_backward(op_type):
        return "backward: what was recorded is of another node of the gradient's graph"
    return "random" if makes_random_numbers(op_type) else ""


def _operator(op_type: str, call: CallArguments) -> Operator | None:
    is_module, is_graph = call.parameters is not None, call.attributes is not None
    return find_operator(op_type, is_module=is_module, is_graph=is_graph, is_aten=call.aten)


def _computed(
    operator: Operator, call: CallArguments, reader: RecordedNode, found: Mapping[int, TensorRow]
) -> tuple[OutputCheck, ...]:
    made_by = bound(operator, call, reader)
    positional = made_by.args[: len(call.positional)]
    outputs = reader.values(found)
    if _overwritten(reader, positional, outputs, call):
        raise CannotBindError("written over in place: the input that was recorded is the output")
    if len(outputs) == 1 and (check := _one_output(made_by, reader, outputs)) is not None:
        return (check,)
    out = next(iter(outputs.values()))
    result = made_by.result(out.shape)
    choices = choices_of(result)
    every = [judged(each, outputs, reader.widest, reshaped=operator.graph) for each in choices]
    fitting = [each for each in every if each]
    if not fitting:
        raise CannotBindError(
            f"shapes do not fit: expected {shape_of(choices[0])}, recorded {[each.shape for each in outputs.values()]}"
        )
    best = min(fitting, key=badness)
    if isinstance(result, Alternatives) and result.guessed and any(each.wrong for each in best):
        made = choices[every.index(best)]
        if not fits_mostly(made[0] if isinstance(made, tuple) else made, out):
            raise CannotBindError(result.guessed)
    return tuple(_not_updated(each, operator, positional, outputs) if each.wrong else each for each in best)


def _one_output(call: BoundCall, reader: RecordedNode, outputs: Mapping[int, Array]) -> OutputCheck | None:
    """Checks the only output in the quickest way that is sure; None where it has to be computed as a whole."""
    ((slot, out),) = outputs.items()
    judge = OutputJudge(out.dtype, out.shape, reader.widest)
    by_kernel = kernel_checks_of(call, out)
    parts = parts_of(call, out) if call.operator.split else None
    if (checked := checked_by_kernel(by_kernel, parts, judge, slot, out)) is not None:
        return checked
    if parts is not None:
        check = in_parts(call.operator, parts, judge, slot, by_kernel)
        return replace(check, difference=difference_of(call, out)) if check.wrong else check
    if call.operator.single and out.size > PART and is_narrow((out, *call.values)):
        with in_single_precision():
            made = call.result()
        if isinstance(made, Expected) and judge.take_right(made, out):
            return judge.result(slot)
    return None


def _not_updated(
    check: OutputCheck, operator: Operator, positional: Sequence[Any], outputs: Mapping[int, Array]
) -> OutputCheck:
    """Marks a wrong output as not updated where the parameter equals its value before the update."""
    if check.slot >= len(operator.writes) or operator.writes[check.slot] >= len(positional):
        return check
    before, after = positional[operator.writes[check.slot]], outputs[check.slot]
    if not isinstance(before, np.ndarray) or before.shape != after.shape or not np.array_equal(before, after):
        return check
    return replace(check, difference=(NOT_UPDATED, "it is what it was before the update"))


_IN_PLACE: Final = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "pow", "and", "or")
)


def _overwritten(
    reader: RecordedNode, positional: Sequence[Any], outputs: Mapping[int, Array], call: CallArguments
) -> bool:
    """Tells whether the recorded input is really the output, because the call wrote in place before recording."""
    leaf = reader.run.nodes(reader.rank).names[reader.row].rpartition("/")[2]
    function = next((part for part in reversed(leaf.split(".")) if not part.isdigit()), "")
    last = call.attributes is None and call.positional[-1:] == (True,) and call.positional[-1] is True
    asked = call.keywords.get("inplace") is True or last or call.keywords.get("out")
    in_place = asked or function in _IN_PLACE or (function.endswith("_") and not function.endswith("__"))
    if not in_place or not positional or not isinstance(positional[0], np.ndarray) or 0 not in outputs:
        return False
    one, other = positional[0], outputs[0]
    return one.shape == other.shape and one.dtype == other.dtype and bool(one.tobytes() == other.tobytes())


# -- between ranks -----------------------------------------------------------------------------------------


def _all_reduce(reader: RecordedNode, call: CallArguments, found: Mapping[int, TensorRow]) -> tuple[OutputCheck, ...]:
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
        inputs.append(RecordedNode(run, (rank, reader.step, row, reader.round)).input(0))
    reduction = _reduction(call)
    result = updates.all_reduced(inputs, reduction)
    outputs = reader.values(found)
    choices = choices_of(result)
    every = [checks for checks in (judged(each, outputs, reader.widest) for each in choices) if checks]
    if not every:
        raise CannotBindError("shapes do not fit")
    best = min(every, key=badness)
    if not call.aten or not any(each.wrong for each in best):
        return best
    if call.doubt or not all(fits_mostly(choices[0], outputs[each.slot], SURELY_MEANT) for each in best):
        raise CannotBindError(call.doubt or "most of it does not fit: something else may have been reduced")
    return best


def _reduction(call: CallArguments) -> str:
    """The reduction, empty if not recorded; CannotBindError if the result may have changed since."""
    if call.aten:
        if call.keywords.get("unwritten") is not True:
            raise CannotBindError("the program wrote to it after it was reduced")
        return str(call.keywords.get("reduction", ""))
    operation = call.positional[1] if len(call.positional) > 1 else call.keywords.get("op")
    text = operation.text if isinstance(operation, OtherArgument) else operation
    return "sum" if operation is None else _REDUCTIONS.get(str(text).rpartition(".")[2].lower(), "")


_REDUCTIONS: Final = {"sum": "sum", "avg": "mean", "mean": "mean", "max": "max", "min": "min"}
