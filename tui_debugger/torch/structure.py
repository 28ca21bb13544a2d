"""The graph of a step: which nodes there are, in which order, and what feeds them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from tui_debugger.torch.elements import type_name
from tui_debugger.torch.internals import part_of

Slot = tuple[str, tuple[int, ...]]
"""Element type and shape."""

SEARCHED: Final = 5000
"""Functions of the autograd graph that are looked at for one tensor at most."""


@dataclass(slots=True)
class Node:
    """One operator, module or gradient.

    Attributes:
        kind: operator type.
        inputs: names of nodes and parameters.
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


class Structure:
    """All nodes that were seen, in the order in which they first ran.

    Attributes:
        nodes: by name.
        inputs: tensors that the model was called with.
        changed: nodes came since ``changed`` was reset.
    """

    def __init__(self) -> None:
        """Knows nothing."""
        self.nodes: dict[str, Node] = {}
        self.inputs: dict[str, Slot] = {}
        self.changed = False

    def add(self, name: str, node: Node) -> None:
        """A node that was not known."""
        self.nodes[name] = node
        self.changed = True

    def add_slot(self, name: str, slot: int, tensor: torch.Tensor) -> None:
        """An output of a known node."""
        if slot not in self.nodes[name].outputs:
            self.nodes[name].outputs[slot] = slot_of(tensor)
            self.changed = True

    def consumers(self) -> dict[str, list[str]]:
        """By name of a node or parameter the nodes that it feeds, in order."""
        found: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            if not node.forward:
                for each in node.inputs:
                    found.setdefault(each, []).append(name)
        return found


class Flow:
    """Who made which tensor in this step: by the tensor itself, by its memory, and by the autograd graph.

    Functions between two modules (a residual sum, a reshape) are no nodes at module level; the autograd graph leads
    through them. Nothing is kept alive for longer than the step.
    """

    def __init__(self) -> None:
        """Knows no tensor."""
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._memory: dict[tuple[object, ...], tuple[weakref.ref[torch.Tensor], str]] = {}
        self._functions: dict[Any, str] = {}
        self._parameters: dict[int, str] = {}

    def clear(self) -> None:
        """Forgets the step."""
        self._tensors.clear()
        self._memory.clear()
        self._functions.clear()

    def know_parameters(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Weights and buffers make themselves."""
        self._parameters = {id(tensor): name for name, tensor in parameters}

    def made(self, tensor: torch.Tensor, name: str) -> None:
        """A node made a tensor. What an inner module made stays its own when an outer one returns it."""
        reference = weakref.ref(tensor)
        if self._alive(self._tensors.get(id(tensor))) is not tensor:
            self._tensors[id(tensor)] = (reference, name)
        self._memory[_memory_of(tensor)] = (reference, name)
        if tensor.grad_fn is not None:
            self._functions.setdefault(tensor.grad_fn, name)

    def replaced(self, tensor: torch.Tensor, name: str) -> None:
        """A node changed a tensor in place: from now on it is its own."""
        self._tensors.pop(id(tensor), None)
        self.made(tensor, name)

    def maker(self, tensor: torch.Tensor) -> str:
        """The node or parameter that made this very tensor (or one in the same memory), empty when not known."""
        known = self._parameters.get(id(tensor))
        if known is not None:
            return known
        entry = self._tensors.get(id(tensor))
        if self._alive(entry) is tensor and entry is not None:
            return entry[1]
        entry = self._memory.get(_memory_of(tensor))
        return entry[1] if entry is not None and self._alive(entry) is not None else ""

    def sources(self, tensor: torch.Tensor) -> list[str]:
        """The nearest nodes and parameters that a tensor was made of, itself included when it is known."""
        maker = self.maker(tensor)
        return [maker] if maker else self.behind(tensor)

    def behind(self, tensor: torch.Tensor) -> list[str]:
        """The nearest nodes and parameters by the autograd graph."""
        found: dict[str, None] = {}
        seen: set[Any] = set()
        pending = [tensor.grad_fn]
        while pending and len(seen) < SEARCHED:
            function = pending.pop(0)
            if function is None or function in seen:
                continue
            seen.add(function)
            name = self._functions.get(function, "")
            variable = getattr(function, "variable", None)
            if not name and isinstance(variable, torch.Tensor):
                name = self._parameters.get(id(variable), "")
            if name:
                found.setdefault(name)
            else:
                pending += [each for each, _ in function.next_functions]
        return list(found)

    @staticmethod
    def _alive(entry: tuple[weakref.ref[torch.Tensor], str] | None) -> torch.Tensor | None:
        return entry[0]() if entry is not None else None


def _memory_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """What tells apart tensors in memory: those of equal memory, place and shape hold the same values."""
    tensor = part_of(tensor)
    if tensor.layout is not torch.strided or tensor.is_meta:
        return (id(tensor),)
    pointer = tensor.untyped_storage().data_ptr()
    if not pointer:
        return (id(tensor),)
    return (pointer, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def unique(names: Iterable[str], but: Sequence[str] = ()) -> list[str]:
    """Names in order, each once, without some and without empty ones."""
    return [name for name in dict.fromkeys(names) if name and name not in but]
