"""The graph of a model as the protocol wants it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch

from tui_debugger.analysis.recommend import BIAS_GRADIENT
from tui_debugger.live.client.graph import GraphBuilder
from tui_debugger.model import BIAS
from tui_debugger.torch.elements import readable
from tui_debugger.torch.naming import Tree, gradient_of, update_of
from tui_debugger.torch.structure import Node, Structure, slot_of, unique

UPDATE = "OptimizerUpdate"
"""Operator type of what updates a parameter: weight, gradient, learning rate, what the optimizer keeps."""
RATE = "LearningRate"
"""Operator type of what hands the learning rate of a group to the optimizer."""
PARAMETER_GRADIENT = "ParameterGrad"
_BIAS = re.compile(BIAS)


def draw(
    tree: Tree,
    structure: Structure,
    optimizers: Iterable[torch.optim.Optimizer],
    buffers: Iterable[str],
    *,
    frozen: Container[str] = (),
    learned: bool,
) -> bytes:
    """A serialized ``GraphProto``.

    Args:
        tree: the model. Before a step has run there are its modules in the order of their registration, unconnected.
        structure: what was seen of a step.
        optimizers: what updates its parameters.
        buffers: names of the buffers that are worth looking at.
        frozen: parameters that are not to be trained, although an optimizer may hold them: nothing updates them.
        learned: a step has run.
    """
    graph = GraphBuilder()
    for name, slot in structure.inputs.items():
        graph.add_parameter(name, slot)
    for name, parameter in tree.parameters.items():
        graph.add_parameter(name, slot_of(parameter))
    for name in buffers:
        graph.add_parameter(name, slot_of(tree.buffers[name]))
    nodes = structure.nodes
    if not learned:
        nodes = nodes or {place.name: Node(place.kind) for place in tree.places}
    consumers = structure.consumers()
    backward = {node.forward: name for name, node in nodes.items() if node.forward}
    for name, node in nodes.items():
        inputs = _of_gradient(node, consumers, backward) if node.forward else node.inputs
        slots = [node.outputs[slot] for slot in sorted(node.outputs)]
        graph.add_node(name, node.kind, inputs, slots, node.source)
    states = states_of(tree, optimizers)
    for name, parameter in tree.parameters.items():
        if name not in frozen:
            made = _of_parameter_gradient(name, nodes, consumers, backward)
            kind = BIAS_GRADIENT if _BIAS.search(name) else PARAMETER_GRADIENT
            graph.add_node(gradient_of(name), kind, made, [slot_of(parameter)])
    rates = {}
    for place, group in rates_of(optimizers):
        graph.add_node(place, RATE, [], [("float64", ())])
        rates.update(dict.fromkeys(map(id, group["params"]), place))
    for name, kept in states.items():
        for state, tensor in kept.items():
            graph.add_parameter(state, slot_of(tensor))
        if name in frozen:
            continue
        inputs = [name, gradient_of(name), rates.get(id(tree.parameters[name]), ""), *kept]
        graph.add_node(update_of(name), UPDATE, inputs, [slot_of(tree.parameters[name])])
    return graph.serialize()


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


def rates_of(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(node that hands out its learning rate, group) of every group, numbered through all optimizers."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    for number, group in enumerate(groups):
        yield f"Optimizer/learning_rate/{number}", group


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _is_state(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and readable(value)


def _of_gradient(node: Node, consumers: Mapping[str, list[str]], backward: Mapping[str, str]) -> list[str]:
    """Gradients come from those of the consumers, and from the values at which a function is differentiated."""
    if node.inputs:
        return node.inputs
    later = (backward.get(consumer, "") for consumer in consumers.get(node.forward, ()))
    return unique([*later, node.forward])


def _of_parameter_gradient(
    name: str, nodes: Mapping[str, Node], consumers: Mapping[str, list[str]], backward: Mapping[str, str]
) -> list[str]:
    known = nodes.get(gradient_of(name))
    if known is not None:
        return known.inputs
    users = consumers.get(name, ())
    fed = (each for user in users for each in nodes[user].inputs if each in nodes)
    return unique([*(backward.get(user, "") for user in users), *fed])
