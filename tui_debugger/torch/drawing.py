"""The graph of a model as the protocol wants it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

from tui_debugger.analysis.recommend import BIAS, BIAS_GRADIENT
from tui_debugger.live.client.graph import GraphBuilder
from tui_debugger.torch.distributed import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Distribution
from tui_debugger.torch.elements import readable
from tui_debugger.torch.naming import Tree, gathered_of, gradient_of, local_of, local_output_of, update_of
from tui_debugger.torch.structure import Node, Structure, slot_of, unique

UPDATE = "OptimizerUpdate"
"""Operator type of what updates a parameter: weight, gradient, what the optimizer keeps (``graph.categories``)."""
PARAMETER_GRADIENT = "ParameterGrad"
_BIAS = re.compile(BIAS)


def draw(
    tree: Tree,
    structure: Structure,
    optimizers: Iterable[torch.optim.Optimizer],
    buffers: Iterable[str],
    distribution: Distribution,
    *,
    learned: bool,
) -> bytes:
    """A serialized ``GraphProto``.

    Args:
        tree: the model. Before a step has run there are its modules in the order of their registration, unconnected.
        structure: what was seen of a step.
        optimizers: what updates its parameters.
        buffers: names of the buffers that are worth looking at.
        distribution: what lies between processes.
        learned: a step has run.
    """
    graph = GraphBuilder()
    for name, slot in structure.inputs.items():
        graph.add_parameter(name, slot)
    for name, parameter in tree.parameters.items():
        graph.add_parameter(name, slot_of(parameter), distribution.placements.get(name, ""))
    for name in buffers:
        graph.add_parameter(name, slot_of(tree.buffers[name]))
    nodes = structure.nodes
    if not learned:
        nodes = nodes or {place.name: Node(place.kind) for place in tree.places}
    _Drawing(graph, tree, structure, nodes, distribution).draw(states_of(tree, optimizers))
    return graph.serialize()


class _Drawing:
    """Draws nodes, and the collective operations between them."""

    def __init__(
        self,
        graph: GraphBuilder,
        tree: Tree,
        structure: Structure,
        nodes: Mapping[str, Node],
        distribution: Distribution,
    ) -> None:
        self.graph, self.tree, self.structure, self.nodes = graph, tree, structure, nodes
        self.distribution = distribution
        self.consumers = structure.consumers()
        self.backward = {node.forward: name for name, node in nodes.items() if node.forward}
        self.gathered = {gathered_of(name): each for name, each in distribution.gathered.items()}
        self.shards = tuple(dict.fromkeys(reading.parameter for reading in distribution.readings))
        self.parallel = {
            place.name: distribution.parallel[id(place.module)]
            for place in tree.places
            if id(place.module) in distribution.parallel
        }
        parts = {local_of(name) for name in distribution.gradients}
        self.parts = parts | {local_output_of(name) for name in self.parallel}

    def draw(self, states: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        for name, node in self.nodes.items():
            if name not in self.parts:
                self._draw_node(name, node)
        for name, parameter in self.tree.parameters.items():
            if parameter.requires_grad:
                self._draw_parameter_gradient(name, parameter)
        for name, kept in states.items():
            for state, tensor in kept.items():
                self.graph.add_parameter(state, slot_of(tensor))
            inputs = [name, gradient_of(name), *kept]
            self.graph.add_node(update_of(name), UPDATE, inputs, [slot_of(self.tree.parameters[name])])

    def _draw_node(self, name: str, node: Node) -> None:
        kind, ranks = node.kind, self.gathered[name].ranks if name in self.gathered else ()
        inputs = _of_gradient(node, self.consumers, self._backward_of) if node.forward else node.inputs
        part = self.nodes.get(local_output_of(name)) if name in self.parallel else None
        if name not in self.gathered:
            inputs = unique(inputs, [local_output_of(name), *self.shards])
        if name in self.structure.gathered_inputs:
            before = f"{name}/AllGather"
            self.graph.add_node(before, ALL_GATHER, inputs, None, ranks=self.parallel[name].ranks)
            inputs = [before]
        if part is not None:
            kind, ranks = _put_together(part, node), self.parallel[name].ranks
            self.graph.add_node(local_output_of(name), part.kind, inputs, list(part.outputs.values()), node.source)
            inputs = [local_output_of(name)]
        slots = [node.outputs[slot] for slot in sorted(node.outputs)]
        self.graph.add_node(name, kind, inputs, slots, node.source, ranks=ranks)
        if node.forward in self.parallel and node.forward in self.structure.shared_inputs:
            self.graph.add_node(_summed(name), ALL_REDUCE, [name], None, ranks=self.parallel[node.forward].ranks)

    def _draw_parameter_gradient(self, name: str, parameter: torch.Tensor) -> None:
        """The gradient that the optimizer uses, and what this process puts into it where several sum theirs up."""
        made = _of_parameter_gradient(name, self.nodes, self._readers, self.backward)
        made = unique(made, [*self.gathered, *self.parts])
        kind = BIAS_GRADIENT if _BIAS.search(name) else PARAMETER_GRADIENT
        exchange = self.distribution.gradients.get(name)
        if exchange is None:
            self.graph.add_node(gradient_of(name), kind, made, [slot_of(parameter)])
            return
        part = self.nodes.get(local_of(name))
        self.graph.add_node(local_of(name), kind, made, list(part.outputs.values()) if part is not None else None)
        inputs, slots = [local_of(name)], [slot_of(parameter)]
        self.graph.add_node(gradient_of(name), exchange.kind, inputs, slots, ranks=exchange.ranks)

    def _backward_of(self, consumer: str) -> str:
        """The node of the gradient that comes back from a consumer."""
        name = self.backward.get(consumer, "")
        summed = consumer in self.parallel and consumer in self.structure.shared_inputs
        return _summed(name) if name and summed else name

    def _readers(self, parameter: str) -> list[str]:
        """The nodes that read a parameter, or what was put together from it."""
        found: list[str] = []
        for name in self.consumers.get(parameter, ()):
            found += self.consumers.get(name, ()) if name in self.gathered else [name]
        return found


def _put_together(part: Node, whole: Node) -> str:
    """How a module puts its output together, by what this process had before and has after."""
    before, after = ([math.prod(shape) for _, shape in node.outputs.values()] for node in (part, whole))
    return REDUCE_SCATTER if sum(after) < sum(before) else ALL_REDUCE


def _summed(gradient: str) -> str:
    """The node that sums up over processes what comes back through a module that computes with a part of its weight."""
    return f"{gradient}/AllReduce"


def states_of(tree: Tree, optimizers: Iterable[torch.optim.Optimizer]) -> Mapping[str, Mapping[str, torch.Tensor]]:
    """By parameter what an optimizer keeps for it, by name; counters of steps left out."""
    names = {id(parameter): name for name, parameter in tree.parameters.items()}
    found: dict[str, dict[str, torch.Tensor]] = {}
    for optimizer in optimizers:
        for parameter in parameters_of(optimizer):
            name = names.get(id(parameter))
            if name is not None:
                kept = optimizer.state.get(parameter, {})
                found[name] = {f"{key}.{name}": value for key, value in kept.items() if _is_state(value)}
    return found


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _is_state(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and readable(value)


def _of_gradient(node: Node, consumers: Mapping[str, list[str]], backward: Callable[[str], str]) -> list[str]:
    """Gradients come from those of the consumers, and from the values at which a function is differentiated."""
    if node.inputs:
        return node.inputs
    later = (backward(consumer) for consumer in consumers.get(node.forward, ()))
    return unique([*later, node.forward])


def _of_parameter_gradient(
    name: str, nodes: Mapping[str, Node], readers: Callable[[str], list[str]], backward: Mapping[str, str]
) -> list[str]:
    known = nodes.get(gradient_of(name))
    if known is not None:
        return known.inputs
    users = readers(name)
    fed = (each for user in users for each in nodes[user].inputs if each in nodes)
    return unique([*(backward.get(user, "") for user in users), *fed])
