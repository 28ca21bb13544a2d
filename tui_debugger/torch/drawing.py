"""Builds the graph of a step as the protocol sends it, with the collective operations between processes.

A collective operation whose result was not seen has no outputs: tensors made from it may come from another process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from tui_debugger.graph.categories import (
    ALL_GATHER,
    ALL_REDUCE,
    BIAS_ADD_GRADIENT,
    BUFFER_UPDATE,
    DRAWN_UPDATES,
    INPUT_UPDATE,
    LEARNING_RATE,
    OPTIMIZER_UPDATE,
    PARAMETER_GRADIENT,
    REDUCE_SCATTER,
    STEP_FACTOR,
    is_collective,
)
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.client.messages import Slot as DrawnSlot
from tui_debugger.model import BIAS
from tui_debugger.torch.arguments import AS_IT_CAME, update_call
from tui_debugger.torch.distributed import Collective, Distribution
from tui_debugger.torch.internals import readable
from tui_debugger.torch.node_calls import NodeCall
from tui_debugger.torch.structure import (
    UNKNOWN,
    ModelTree,
    Slot,
    Structure,
    TracedNode,
    change_of,
    constant_text,
    gathered_of,
    gradient_of,
    is_constant,
    local_of,
    local_output_of,
    slot_of,
    split_output,
    update_of,
)


class ExchangeGraph(GraphBuilder):
    """A ``GraphBuilder`` that adds the collective operations around each node."""

    def __init__(self, tree: ModelTree, structure: Structure, distribution: Distribution) -> None:
        super().__init__()
        self._structure = structure
        self._parameters = tree.parameters
        self._seen = structure.nodes
        self._distribution = distribution
        self._gathered = {gathered_of(name): each for name, each in distribution.gathered.items()}
        self._of_weight: dict[str, list[str]] = {}
        for reading in distribution.readings:
            self._of_weight.setdefault(reading.parameter, []).append(gathered_of(reading.name))
        parallel = {id(place.module): place.name for place in tree.places}
        self._parallel = {parallel[each]: found for each, found in distribution.parallel.items() if each in parallel}
        self._parts = {local_output_of(name) for name in self._parallel}
        self._reduced = {gradient_of(name): name for name in distribution.gradients}
        self._parts |= {local_of(name) for name in distribution.gradients}
        self._drawn: dict[str, list[str]] = {}

    def add_parameter(self, name: str, slot: DrawnSlot, placement: str = "") -> None:
        known = self._distribution.placements
        kept_for = name.partition(".")[2]  # optimizer state is placed like its parameter
        super().add_parameter(name, slot, placement or known.get(name) or known.get(kept_for, ""))

    def add_node(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[str] = (),
        outputs: Sequence[DrawnSlot] | None = (),
        source: str = "",
        *,
        ranks: Sequence[int] = (),
    ) -> None:
        """See ``GraphBuilder``; adds the collective operations before and after the node."""
        if name in self._parts:
            return  # it is added with its sum or gathered weight
        if not outputs and is_collective(op_type):
            outputs = None
        if op_type in DRAWN_UPDATES:  # of a weight as it lies here
            super().add_node(name, op_type, inputs, outputs, source)
            return
        if self._distribution.unknown:
            inputs = [*inputs, UNKNOWN]
        if name in self._gathered:
            super().add_node(name, op_type, inputs, outputs, source, ranks=self._gathered[name].ranks)
            return
        # Modules read a weight as it was put together.
        inputs = [found for each in inputs for found in self._of_weight.get(each, (each,))]
        if name in self._reduced:
            self._add_gradient(self._reduced[name], op_type, inputs, outputs)
            return
        made = self._through(name, inputs)
        self._drawn[name] = made
        if name in self._parallel:
            self._add_parallel(name, op_type, made, outputs, source)
        else:
            super().add_node(name, op_type, made, outputs, source, ranks=ranks)

    def _through(self, name: str, inputs: Iterable[str]) -> list[str]:
        """The inputs of a node after their sums over processes; shards are not computed with."""
        backward = name in self._seen and bool(self._seen[name].forward)
        left_out = {local_output_of(name), *self._of_weight}
        made = [each for each in inputs if each not in left_out]
        return [self._summed(each) for each in made] if backward else made

    def _summed(self, gradient: str) -> str:
        """The sum over processes of the input gradient of a module that computes with its part of a weight."""
        forward = self._seen[gradient].forward if gradient in self._seen else ""
        if forward not in self._parallel or forward not in self._distribution.shared_inputs:
            return gradient
        summed = f"{gradient}/AllReduce"
        super().add_node(summed, ALL_REDUCE, [gradient], None, ranks=self._parallel[forward].ranks)
        return summed

    def _add_parallel(
        self, name: str, op_type: str, inputs: list[str], outputs: Sequence[DrawnSlot] | None, source: str
    ) -> None:
        part_name, before = local_output_of(name), f"{name}/AllGather"
        ranks, part = self._parallel[name].ranks, self._seen.get(part_name)
        if name in self._distribution.gathered_inputs:
            if part is not None:
                inputs = self._structure.inputs_of(part_name)
            super().add_node(before, ALL_GATHER, inputs, None, ranks=ranks)
            inputs = [before]
        if part is None:
            super().add_node(name, op_type, inputs, outputs, source)
            return
        inputs = [before] if name in self._distribution.gathered_inputs else self._structure.inputs_of(part_name)
        super().add_node(part_name, op_type, inputs, _slots(part), source)
        kind = REDUCE_SCATTER if outputs and _elements(outputs) < _elements(_slots(part)) else ALL_REDUCE
        super().add_node(name, kind, [part_name], outputs, source, ranks=ranks)

    def _add_gradient(
        self, parameter: str, op_type: str, inputs: Sequence[str], outputs: Sequence[DrawnSlot] | None
    ) -> None:
        """Adds the gradient that an optimizer uses, and before it the gradient of this process."""
        exchange: Collective = self._distribution.gradients[parameter]
        part, node = self._seen.get(local_of(parameter)), gradient_of(parameter)
        made = self._through(node, [each for each in inputs if each not in self._parts])
        local = local_of(parameter)
        if part is not None:
            made = self._through(node, self._structure.inputs_of(local))
        elif parameter in self._of_weight:
            made = self._of_readers(self._of_weight[parameter])
        super().add_node(local, op_type, made, _slots(part) if part is not None else None)
        if part is not None and len(getattr(self._parameters[parameter], "_backward_hooks", None) or ()) <= 1:
            self.add_call(local, made, self._structure.text_of(AS_IT_CAME, local, made))  # no hooks but ours
        super().add_node(node, exchange.kind, [local], outputs, ranks=exchange.ranks)
        known = self._structure.calls.get(node)
        if exchange.reduction and known is not None:
            call = NodeCall({**known.arguments, "reduction": exchange.reduction})
            self.add_call(node, [local], self._structure.text_of(call, node, [local]))

    def _of_readers(self, weights: Sequence[str]) -> list[str]:
        """The inputs of the gradient of gathered weights: inputs and output gradients of the modules that read them."""
        readers = [name for name, inputs in self._drawn.items() if any(weight in inputs for weight in weights)]
        came = [name for name, node in self._seen.items() if node.forward in readers]
        fed = [each for name in readers for each in self._drawn[name] if each not in self._gathered]
        return _but([*came, *fed])


def _slots(node: TracedNode) -> list[DrawnSlot]:
    return [node.outputs[slot] for slot in sorted(node.outputs)]


def _elements(slots: Iterable[DrawnSlot]) -> int:
    return sum(math.prod(shape) for _, shape in slots)


def _but(names: Iterable[str], left_out: Container[str] = ()) -> list[str]:
    return [name for name in dict.fromkeys(names) if name not in left_out]


_BIAS = re.compile(BIAS)


def draw(
    tree: ModelTree,
    structure: Structure,
    optimizers: Iterable[torch.optim.Optimizer],
    buffers: Iterable[str],
    distribution: Distribution,
    *,
    constants: Iterable[str] = (),
    frozen: Container[str] = (),
    learned: bool,
) -> bytes:
    """A serialized ``GraphProto``.

    Before a step has run (``learned``) it has the modules in the order of registration, unconnected. ``buffers`` are
    worth looking at; ``constants`` cannot hold NaN or Inf and are left out as inputs; ``frozen`` parameters are not
    trained, although an optimizer may hold them.
    """
    drawing = _ModelGraph(ExchangeGraph(tree, structure, distribution), structure, constants)
    graph = drawing.graph
    known = {name: tree.buffers[name] for name in buffers if name in tree.buffers}
    for name, tensor in (*tree.parameters.items(), *known.items()):
        graph.add_parameter(name, slot_of(tensor))
    for name, slot in structure.inputs.items():
        graph.add_parameter(name, slot)
    if learned or structure.nodes:
        for name in structure.nodes:
            drawing.add_node(name)
    else:
        for place in tree.places:
            graph.add_node(place.name, place.kind, [UNKNOWN])
    states = states_of(tree, optimizers)
    for name, parameter in tree.parameters.items():
        if name not in frozen:
            drawing.add_parameter_gradient(name, parameter)
    rates = drawing.add_rates(optimizers)
    for name, kept in states.items():
        for state, tensor in kept.items():
            graph.add_parameter(state, slot_of(tensor))
        if name in frozen:
            continue
        inputs = [name, gradient_of(name), rates.get(id(tree.parameters[name]), ""), *kept]
        graph.add_node(update_of(name), OPTIMIZER_UPDATE, inputs, [slot_of(tree.parameters[name])])
        drawing.add_update_call(name, update_call(tree.parameters[name], optimizers, inputs, kept), inputs)
    for name, sources in structure.fed.items():
        kind = INPUT_UPDATE if name in structure.inputs else BUFFER_UPDATE
        drawing.add(change_of(name), kind, [name, *sources])
    return graph.serialize()


class _ModelGraph:
    def __init__(self, graph: ExchangeGraph, structure: Structure, constants: Iterable[str]) -> None:
        self.graph = graph
        self._structure = structure
        self._constants = frozenset(constants)
        self._numbers: dict[str, str] = {}

    def add_node(self, name: str) -> None:
        node = self._structure.nodes[name]
        # A gradient may have come of the second output only: the first one still has its place.
        forward = self._structure.nodes.get(node.forward)
        like = {} if forward is None else forward.outputs
        slots = [node.outputs.get(slot, like.get(slot, _NOTHING)) for slot in range(max(node.outputs, default=-1) + 1)]
        self.add(name, node.kind, self._structure.inputs_of(name), slots, node.source)
        if name not in self._structure.doubted:
            self._add_call(name, self._structure.inputs_of(name))

    def add_parameter_gradient(self, parameter: str, tensor: torch.Tensor) -> None:
        name = gradient_of(parameter)
        kind = BIAS_ADD_GRADIENT if _BIAS.search(parameter) else PARAMETER_GRADIENT
        inputs = self._structure.inputs_of_gradient(name)
        self.add(name, kind, inputs, [slot_of(tensor)])
        self._add_call(name, inputs)

    def add_rates(self, optimizers: Iterable[torch.optim.Optimizer]) -> dict[int, str]:
        """Adds the learning rates; returns the node of each by ``id`` of its parameters."""
        nodes: dict[int, str] = {}
        searching = {id(group) for each in optimizers if _searches(each) for group in each.param_groups}
        for name, group in rates_of(optimizers):
            kind = STEP_FACTOR if id(group) in searching else LEARNING_RATE
            self.graph.add_node(name, kind, [], [("float64", ())])
            nodes.update(dict.fromkeys(map(id, group["params"]), name))
        return nodes

    def add(self, name: str, kind: str, inputs: Iterable[str], slots: Sequence[Slot] = (), source: str = "") -> None:
        """Adds a node, and a node for each input that is a later output of another node."""
        made = [self._drawn(each) for each in inputs if each not in self._constants]
        for each in made:
            node, slot = split_output(each)
            if slot and node in self._structure.nodes:
                self.graph.add_item(each, node, slot)
        self.graph.add_node(name, kind, made, slots, source)

    def _add_call(self, name: str, inputs: Sequence[str]) -> None:
        structure = self._structure
        call = structure.calls.get(name)
        if call is not None and call.arguments:
            made = [self._drawn(each) for each in inputs if each not in self._constants]
            self.graph.add_call(name, made, structure.text_of(call, name, inputs, self._constants))

    def add_update_call(self, parameter: str, call: NodeCall | None, inputs: Sequence[str]) -> None:
        if call is not None:
            self.graph.add_call(update_of(parameter), inputs, self._structure.text_of(call, "", inputs))

    def _drawn(self, each: str) -> str:
        """The name of an input in the graph, where constants have numbers."""
        if not is_constant(each):
            return each
        text = constant_text(each)
        if text not in self._numbers:
            self._numbers[text] = f"cst{len(self._numbers) + 1}"
            self.graph.add_constant(self._numbers[text], _number(text))
        return self._numbers[text]


def _number(text: str) -> bool | int | float | str | Sequence[int]:
    if _WHOLE.fullmatch(text):
        return [int(each) for each in text[1:-1].split(", ")]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return {"True": True, "False": False}[text] if text in ("True", "False") else float(text)
    except ValueError:
        return text


_WHOLE: Final = re.compile(r"\(-?\d{1,18}(, -?\d{1,18})*\)")
_NOTHING: Final[Slot] = ("float32", (0,))
"""Stands for an output that was never seen."""


def states_of(tree: ModelTree, optimizers: Iterable[torch.optim.Optimizer]) -> Mapping[str, Mapping[str, torch.Tensor]]:
    """By parameter the tensors that an optimizer keeps for it, by name, without counters."""
    names = {id(parameter): name for name, parameter in tree.parameters.items()}
    found: dict[str, dict[str, torch.Tensor]] = {}
    for optimizer in optimizers:
        for parameter in parameters_of(optimizer):
            name = names.get(id(parameter))
            if name is not None:
                kept = optimizer.state.get(parameter, {})
                found[name] = {f"{key}.{name}": value for key, value in kept.items() if _is_state(value)}
    return found


class States:
    """The states of optimizers, by name; looked up again only when they differ."""

    def __init__(self) -> None:
        self._tree: ModelTree | None = None
        self._known: list[tuple[torch.optim.Optimizer, torch.Tensor, Any, tuple[Any, ...]]] = []
        self._named: list[tuple[str, torch.Tensor]] = []

    def of(self, tree: ModelTree, optimizers: Sequence[torch.optim.Optimizer]) -> list[tuple[str, torch.Tensor]]:
        if self._tree is not tree or not self._same(optimizers):
            self._tree = tree
            pairs = [(each, parameter) for each in optimizers for parameter in parameters_of(each)]
            kept = [(each, parameter, each.state.get(parameter)) for each, parameter in pairs]
            self._known = [(each, parameter, state, tensors_of(state)) for each, parameter, state in kept]
            self._named = [pair for state in states_of(tree, optimizers).values() for pair in state.items()]
        return self._named

    def _same(self, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        if sum(1 for each in optimizers for _ in parameters_of(each)) != len(self._known):
            return False
        for optimizer, parameter, state, tensors in self._known:
            now = optimizer.state.get(parameter)
            if now is not state or tuple(map(id, tensors_of(now))) != tuple(map(id, tensors)):
                return False
        return True

    def clear(self) -> None:
        self._tree, self._known, self._named = None, [], []


def _searches(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.LBFGS)


def rates_of(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(node of its learning rate, group) of every group, numbered through all optimizers."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    for number, group in enumerate(groups):
        yield f"Optimizer/learning_rate/{number}", group


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def tensors_of(state: Any) -> tuple[Any, ...]:
    """The tensors that an optimizer keeps for a parameter; the same objects as long as they are only written to."""
    return tuple(each for each in state.values() if isinstance(each, torch.Tensor)) if state else ()


def _is_state(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and readable(value)
