"""The graph of a step: which nodes there are, in which order they run, and what each was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from tui_debugger.torch.elements import type_name
from tui_debugger.torch.internals import part_of

Slot = tuple[str, tuple[int, ...]]
"""Element type and shape."""

UNKNOWN: Final = ""
"""Stands among the inputs of a node for what was not recorded: the graph says that the node has such an input."""


@dataclass(slots=True)
class Node:
    """One operator, module or gradient.

    Attributes:
        kind: operator type.
        inputs: outputs of nodes (see ``output_of``), parameters, and ``UNKNOWN``.
        outputs: type and shape by slot.
        source: stack text.
        forward: the node whose gradient this is, empty for others.
    """

    kind: str
    inputs: list[str] = field(default_factory=list)
    outputs: dict[int, Slot] = field(default_factory=dict)
    source: str = ""
    forward: str = ""


def slot_of(tensor: torch.Tensor) -> Slot:
    """Element type and shape of a tensor: of a distributed one those of the part that is here."""
    return type_name(tensor.dtype), tuple(part_of(tensor).shape)


def output_of(name: str, slot: int) -> str:
    """Returns what stands for one output of a node where it is an input of another one."""
    return f"{name}:{slot}" if slot else name


def split_output(output: str) -> tuple[str, int]:
    """The node and the slot of what ``output_of`` made."""
    name, _, slot = output.rpartition(":")
    return (name, int(slot)) if name and slot.isdecimal() else (output, 0)


class Structure:
    """All nodes that were seen, in the order in which they run.

    Attributes:
        nodes: by name.
        inputs: tensors that the model was called with.
        gradients: by the node of a parameter's gradient what that was made of.
        losses: nodes of losses: what ``backward`` is called on.
        scaled: those of them that a gradient scaler made.
        fed: by name of a buffer or an input of the model what its values were made of in a step.
        doubted: nodes that ran in an order that was not known, while nobody looked at what they were made of.
        gradients_doubted: the same of the gradients of all parameters.
        changed: something changed since this was reset.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.inputs: dict[str, Slot] = {}
        self.gradients: dict[str, list[str]] = {}
        self.losses: set[str] = set()
        self.scaled: set[str] = set()
        self.fed: dict[str, list[str]] = {}
        self.doubted: set[str] = set()
        self.gradients_doubted = False
        self.changed = False

    def add(self, name: str, node: Node, after: str = "") -> None:
        """A node that was not known. It stands behind the one that ran before it."""
        self.changed = True
        if after not in self.nodes or after == next(reversed(self.nodes)):
            self.nodes[name] = node
            return
        nodes: dict[str, Node] = {}
        for each, known in self.nodes.items():
            nodes[each] = known
            if each == after:
                nodes[name] = node
        self.nodes = nodes

    def add_slot(self, name: str, slot: int, tensor: torch.Tensor) -> None:
        """An output of a known node."""
        if slot not in self.nodes[name].outputs:
            self.nodes[name].outputs[slot] = slot_of(tensor)
            self.changed = True

    def add_inputs(self, name: str, inputs: Iterable[str]) -> None:
        """Returns what a known node was made of in this step, beside what it was made of in others."""
        node = self.nodes[name]
        merged = without(unique([*node.inputs, *inputs]), name)
        if merged != node.inputs:
            node.inputs = merged
            self.changed = True
        if name in self.doubted:
            self.doubted.discard(name)
            self.changed = True

    def add_gradient(self, name: str, inputs: Iterable[str]) -> None:
        """Returns what the gradient of a parameter was made of in this step."""
        merged = without(unique([*self.gradients.get(name, ()), *inputs]), name)
        if merged != self.gradients.get(name):
            self.gradients[name] = merged
            self.changed = True

    def feed(self, name: str, sources: Iterable[str]) -> None:
        """Returns what a buffer, or an input of the model, holds was made in the step itself."""
        merged = unique([*self.fed.get(name, ()), *sources])
        if merged != self.fed.get(name):
            self.fed[name] = merged
            self.changed = True

    def doubt(self, name: str) -> None:
        """A node ran, and nobody looked at what it was made of."""
        if name not in self.doubted:
            self.doubted.add(name)
            self.changed = True

    def inputs_of(self, name: str) -> list[str]:
        """Returns what a node was made of, as far as that is known."""
        known = self.nodes[name].inputs
        return unique([*known, UNKNOWN]) if name in self.doubted else known

    def inputs_of_gradient(self, name: str) -> list[str]:
        """Returns what the gradient of a parameter was made of, as far as that is known."""
        known = self.gradients.get(name)
        if known is None or self.gradients_doubted:
            return unique([*(known or ()), UNKNOWN])
        return known

    def used(self) -> set[str]:
        """Everything that some node was made of."""
        made = [*(node.inputs for node in self.nodes.values()), *self.gradients.values()]
        return {each for inputs in made for each in inputs}


def unique(names: Iterable[str]) -> list[str]:
    """Names in order, each once."""
    return list(dict.fromkeys(names))


def without(inputs: Sequence[str], name: str) -> list[str]:
    """Inputs but the outputs of a node itself: what it made of them is still its own work."""
    return [each for each in inputs if each != name and split_output(each)[0] != name]
