"""The graph of a model as the protocol wants it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from tui_debugger.graph.optimizers import BUFFER_UPDATE, INPUT_UPDATE
from tui_debugger.model import BIAS
from tui_debugger.torch.distributed import Distribution
from tui_debugger.torch.elements import readable
from tui_debugger.torch.exchange_graph import UPDATE, ExchangeGraph
from tui_debugger.torch.naming import Tree, change_of, gradient_of, update_of
from tui_debugger.torch.structure import UNKNOWN, Slot, Structure, slot_of, split_output
from tui_debugger.watch.recommended import BIAS_GRADIENT

RATE = "LearningRate"
"""Operator type of what hands the learning rate of a group to the optimizer."""
PARAMETER_GRADIENT = "ParameterGrad"
_BIAS = re.compile(BIAS)


def draw(
    tree: Tree,
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

    Args:
        tree: the model. Before a step has run there are its modules in the order of their registration, unconnected.
        structure: what was seen of a step.
        optimizers: what updates its parameters.
        buffers: names of the buffers that are worth looking at.
        distribution: what lies between processes.
        constants: names of those that cannot hold anything bad: what is made of them is not told.
        frozen: parameters that are not to be trained, although an optimizer may hold them: nothing updates them.
        learned: a step has run.
    """
    drawing = _Drawing(ExchangeGraph(tree, structure, distribution), structure, constants)
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
        graph.add_node(update_of(name), UPDATE, inputs, [slot_of(tree.parameters[name])])
    for name, sources in structure.fed.items():
        kind = INPUT_UPDATE if name in structure.inputs else BUFFER_UPDATE
        drawing.add(change_of(name), kind, [name, *sources])
    return graph.serialize()


class _Drawing:
    """The graph while it is drawn."""

    def __init__(self, graph: ExchangeGraph, structure: Structure, constants: Iterable[str]) -> None:
        self.graph = graph
        self._structure = structure
        self._constants = frozenset(constants)

    def add_node(self, name: str) -> None:
        """A node that was seen."""
        node = self._structure.nodes[name]
        # A gradient may have come of the second output only: the first one still has its place.
        forward = self._structure.nodes.get(node.forward)
        like = {} if forward is None else forward.outputs
        slots = [node.outputs.get(slot, like.get(slot, _NOTHING)) for slot in range(max(node.outputs, default=-1) + 1)]
        self.add(name, node.kind, self._structure.inputs_of(name), slots, node.source)

    def add_parameter_gradient(self, parameter: str, tensor: torch.Tensor) -> None:
        """What an optimizer will use as the gradient of a parameter."""
        name = gradient_of(parameter)
        kind = BIAS_GRADIENT if _BIAS.search(parameter) else PARAMETER_GRADIENT
        self.add(name, kind, self._structure.inputs_of_gradient(name), [slot_of(tensor)])

    def add_rates(self, optimizers: Iterable[torch.optim.Optimizer]) -> dict[int, str]:
        """The learning rates. Returns the node of each by ``id`` of the parameters that it is for."""
        nodes: dict[int, str] = {}
        for name, group in rates_of(optimizers):
            self.graph.add_node(name, RATE, [], [("float64", ())])
            nodes.update(dict.fromkeys(map(id, group["params"]), name))
        return nodes

    def add(self, name: str, kind: str, inputs: Iterable[str], slots: Sequence[Slot] = (), source: str = "") -> None:
        """A node. A later output of another one is taken out of its tuple by a node between."""
        made = [each for each in inputs if each not in self._constants]
        for each in made:
            node, slot = split_output(each)
            if slot and node in self._structure.nodes:
                self.graph.add_item(each, node, slot)
        self.graph.add_node(name, kind, made, slots, source)


_NOTHING: Final[Slot] = ("float32", (0,))
"""Stands for an output that was never seen."""


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


class States:
    """What optimizers keep, by name: mostly the same tensors in every step, looked for anew only when they are not."""

    def __init__(self) -> None:
        """Knows nothing."""
        self._tree: Tree | None = None
        self._known: list[tuple[torch.optim.Optimizer, torch.Tensor, Any, tuple[Any, ...]]] = []
        self._named: list[tuple[str, torch.Tensor]] = []

    def of(self, tree: Tree, optimizers: Sequence[torch.optim.Optimizer]) -> list[tuple[str, torch.Tensor]]:
        """As ``states_of``, in one list."""
        if self._tree is not tree or not self._same(optimizers):
            self._tree = tree
            pairs = [(each, parameter) for each in optimizers for parameter in parameters_of(each)]
            kept = [(each, parameter, each.state.get(parameter)) for each, parameter in pairs]
            self._known = [(each, parameter, state, _tensors(state)) for each, parameter, state in kept]
            self._named = [pair for state in states_of(tree, optimizers).values() for pair in state.items()]
        return self._named

    def _same(self, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Whether every parameter has what it had, and there is no other one."""
        if sum(1 for each in optimizers for _ in parameters_of(each)) != len(self._known):
            return False
        for optimizer, parameter, state, tensors in self._known:
            now = optimizer.state.get(parameter)
            if now is not state or tuple(map(id, _tensors(now))) != tuple(map(id, tensors)):
                return False
        return True

    def clear(self) -> None:
        """Holds nothing."""
        self._tree, self._known, self._named = None, [], []


def rates_of(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(node that hands out its learning rate, group) of every group, numbered through all optimizers."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    for number, group in enumerate(groups):
        yield f"Optimizer/learning_rate/{number}", group


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(state: Any) -> tuple[Any, ...]:
    """The tensors of what an optimizer keeps for a parameter; the same ones as long as they are only written to."""
    return tuple(each for each in state.values() if isinstance(each, torch.Tensor)) if state else ()


def _is_state(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and readable(value)
