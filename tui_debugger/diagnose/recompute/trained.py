"""Checks what training computes for modules: gradients that came back through them, and updates of weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute import (
    updates,
)
from tui_debugger.diagnose.recompute.back_through import (
    INPUTS,
    WEIGHTS,
    Ran,
    forward_name,
    gradient_into,
    only_reader,
    parameter_of,
)
from tui_debugger.diagnose.recompute.judge import unit_of
from tui_debugger.diagnose.recompute.outcomes import (
    SURELY_MEANT,
    NotChecked,
    OperatorCheck,
    fits_mostly,
    judged,
    not_checked,
    why,
)
from tui_debugger.diagnose.recompute.probing import ProbedOutput
from tui_debugger.diagnose.recompute.products import product_of
from tui_debugger.diagnose.recompute.reader import (
    GRADIENTS_SCOPE,
    OF_ANOTHER_RUN,
    NodeCall,
    RecordedNode,
    ReplacedValues,
)
from tui_debugger.diagnose.recompute.table import (
    GRADIENTS,
    LINEAR_GRADIENT,
    UPDATE_OF_OPTIMIZER,
    WEIGHT_GRADIENT,
    CannotBindError,
    MissingArgument,
    UnlikeError,
)
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BACKWARD,
    OPTIMIZER_UPDATE,
    is_collective,
)
from tui_debugger.graph.table import NodeTable, real_inputs
from tui_debugger.sources.base import CallArguments, TensorSlot


def of_training(
    run: DiagnosedRun,
    at: NodeCall,
    call: CallArguments | None,
    instead: ReplacedValues | None,
) -> OperatorCheck | NotChecked | None:
    """Checks a node ``at`` (rank, step, row, round) that is a gradient or an update; None for any other node."""
    rank, _, row, _ = at
    op_type = run.nodes(rank).op_type(row)
    if op_type in LINEAR_BACKWARD and (forward := forward_of(run, rank, row)) >= 0:
        return linear_gradient(RecordedNode(run, at, instead=instead), forward)
    if call is not None and UNCHANGED in call.keywords and not is_collective(op_type):
        return came_back(run, at, call, instead)
    return update(run, at, call, instead) if call is not None and op_type == OPTIMIZER_UPDATE else None


def update(
    run: DiagnosedRun,
    at: NodeCall,
    call: CallArguments,
    instead: ReplacedValues | None,
) -> OperatorCheck | NotChecked:
    """Compares a weight and its optimizer states with what the optimizer makes of the earlier values."""
    name = str(call.keywords.get("optimizer", ""))
    try:
        slots = {key: each.slot for key, each in call.keywords.items() if isinstance(each, TensorSlot)}
        written = [slots[each] for each in ("parameter", *updates.STATES.get(name, ())) if each in slots]
        reader = RecordedNode(run, at, tuple(written), instead, own=True)
        found = reader.outputs()
        if 0 not in found:
            raise CannotBindError("the weight after the update was not dumped")
        named = {key: reader.argument(each) for key, each in call.keywords.items()}
        for each in named.values():
            if isinstance(each, MissingArgument):
                raise CannotBindError(each.reason)
        outputs = reader.values(found)
        before = [reader.input(slot) for slot in written]
        if all(np.array_equal(before[slot], each) for slot, each in outputs.items()):
            raise CannotBindError("it is what it was: the optimizer may have left this step out")
        with np.errstate(all="ignore"):
            result = updates.optimizer_update(after=outputs[0], **named)
        checks = judged(result, outputs, reader.widest)
        if not checks:
            raise CannotBindError("shapes do not fit")
        for check in checks:
            if check.wrong and call.doubt:
                raise UnlikeError(call.doubt)
            if check.wrong and not fits_mostly(result[check.slot], outputs[check.slot], SURELY_MEANT):
                raise UnlikeError("most of it does not fit: something else may have changed it")
        return OperatorCheck(UPDATE_OF_OPTIMIZER, checks, reader.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return not_checked(error, UPDATE_OF_OPTIMIZER)


def came_back(
    run: DiagnosedRun,
    at: NodeCall,
    call: CallArguments,
    instead: ReplacedValues | None,
) -> OperatorCheck | NotChecked:
    """Compares a gradient with what the only module that reads its tensor makes of the output's gradient."""
    rank, step, row, round_ = at
    nodes, kind = run.nodes(rank), ""
    try:
        weight = parameter_of(nodes, row)
        graph = nodes.graph_of(row).name
        tensor = weight if weight >= 0 else nodes.find(forward_name(nodes.names[row]), graph)
        kind = WEIGHT_GRADIENT if weight >= 0 else "gradient"
        if call.keywords.get(UNCHANGED) is not True or tensor < 0:
            raise CannotBindError("something else changed it after the backward pass, or came to it")
        reader = only_reader(nodes, tensor)
        kind = kind if weight >= 0 else GRADIENTS.get(nodes.op_type(reader), kind)
        ran = run.arguments(rank, step, reader, round_)
        if ran is None or ran.parameters is None:
            raise CannotBindError("what reads it is no module of PyTorch's own, or reads it with others")
        source = gradient_into(nodes, row, reader)
        own, module = (
            RecordedNode(run, (rank, step, each, round_), (), instead if each == row else None)
            for each in (row, reader)
        )
        found, came = own.outputs(), RecordedNode(run, (rank, step, source, round_))
        if 0 not in found or 0 not in (made := came.outputs()):
            raise CannotBindError(own.why_no_output() if 0 not in found else came.why_no_output())
        gradient = came.output(0, made[0])
        rule = _rule(nodes, ran, (reader, tensor), is_weight=weight >= 0)
        of = {key: module.argument(each) for key, each in {**ran.keywords, **ran.parameters}.items()}
        if 0 in (outputs := module.outputs()):
            of["output"] = module.output(0, outputs[0])
        with np.errstate(all="ignore"):
            expected = rule(Ran(gradient, of, ran.attributes or {}))
        out = _narrowed(own.output(0, found[0]), gradient)
        widest = min(module.widest, unit_of(gradient.dtype) or math.inf)
        checks = judged(expected, {0: out}, widest)
        if not checks:
            raise CannotBindError("shapes do not fit")
        if checks[0].wrong:
            doubt = call.doubt or ran.doubt
            whole = expected.exact() if isinstance(expected, ProbedOutput) else expected
            if ran.several or call.several:
                raise CannotBindError(doubt or OF_ANOTHER_RUN)
            if doubt or not fits_mostly(whole, out, SURELY_MEANT):
                raise CannotBindError(doubt or "most of it does not fit: something else may have come to it")
        return OperatorCheck(kind, checks, own.nbytes + module.nbytes)
    except (CannotBindError, TdbgError, MemoryError, ValueError, IndexError) as error:
        return NotChecked(why(error), kind, failed=not isinstance(error, CannotBindError | ValueError | IndexError))


def _rule(nodes: NodeTable, ran: CallArguments, at: tuple[int, int], *, is_weight: bool) -> Callable[[Ran], Any]:
    """Returns the rule for the gradient of the tensor that the module read; ``at`` is (module, tensor)."""
    (reader, tensor), inputs = at, real_inputs(nodes, at[0])
    kind = nodes.op_type(reader)
    given = {**(ran.parameters or {}), **ran.keywords}
    names = [name for name, each in given.items() if isinstance(each, TensorSlot) and inputs[each.slot][0] == tensor]
    rule = WEIGHTS.get((kind, names[0])) if is_weight and len(names) == 1 else None
    if not is_weight and names == ["input"]:
        rule = INPUTS.get(kind)
    if rule is None:
        raise CannotBindError(f"what comes back through {kind} is not known")
    return rule


UNCHANGED: Final = "unchanged"
"""The keyword by which our client tells that a gradient is still what the backward pass left."""
LINEAR_BACKWARD: Final = frozenset(name + BACKWARD for name in ("Linear", "Dense"))
"""Backward nodes of modules that record the gradients of output and input, whatever ran inside the module."""


def _narrowed(made: Array, came: Array) -> Array:
    """A gradient in the type in which it was computed: under autocast it was widened to the input's type afterwards."""
    units = unit_of(made.dtype), unit_of(came.dtype)
    if units[0] is None or units[1] is None or units[0] >= units[1]:
        return made
    narrow = made.astype(came.dtype)
    return narrow if np.array_equal(narrow.astype(made.dtype), made, equal_nan=True) else made


def forward_of(run: DiagnosedRun, rank: int, row: int) -> int:
    nodes = run.nodes(rank)
    name = nodes.names[row]
    if not name.startswith(GRADIENTS_SCOPE):
        return -1
    return nodes.find(name.removeprefix(GRADIENTS_SCOPE), nodes.graph_of(row).name)


def linear_gradient(reader: RecordedNode, forward: int) -> OperatorCheck | NotChecked:
    """Compares the gradient of a linear module's input with the output's gradient times the weight."""
    try:
        call = reader.run.arguments(reader.rank, reader.step, forward, reader.round)
        weight = (call.parameters or {}).get("weight") if call is not None else None
        if not isinstance(weight, TensorSlot):
            raise CannotBindError("the weight was not recorded")
        found = reader.outputs()
        if not found:
            raise CannotBindError(reader.why_no_output())
        module = RecordedNode(reader.run, (reader.rank, reader.step, forward, reader.round))
        came, values = reader.input(0), module.input(weight.slot)
        widest = min(reader.widest, module.widest)
        outputs = {slot: _narrowed(reader.output(slot, row), came) for slot, row in found.items() if slot == 0}
        with np.errstate(all="ignore"):
            checks = judged(product_of(came, values), outputs, widest)
        if not checks:
            raise CannotBindError("shapes do not fit")
        return OperatorCheck(LINEAR_GRADIENT, checks, reader.nbytes + module.nbytes)
    except (CannotBindError, TdbgError, MemoryError) as error:
        return not_checked(error, LINEAR_GRADIENT)
