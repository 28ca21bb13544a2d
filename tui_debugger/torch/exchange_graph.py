"""A graph into which the collective operations between processes are drawn, see ``distributed``.

Whoever draws names nodes and their inputs as one process sees them. A collective operation whose result nobody saw is a
node without outputs: what is made of it may come from another process.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Final

from tui_debugger.graph.operator_types import is_collective
from tui_debugger.graph.optimizers import BUFFER_UPDATE, INPUT_UPDATE
from tui_debugger.live.client.graph import GraphBuilder, Slot
from tui_debugger.torch.distributed import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Distribution, Exchange
from tui_debugger.torch.naming import Tree, gathered_of, gradient_of, local_of, local_output_of
from tui_debugger.torch.structure import UNKNOWN, Node, Structure

UPDATE: Final = "OptimizerUpdate"
"""Operator type of what updates a parameter: weight, gradient, learning rate, what the optimizer keeps."""


class ExchangeGraph(GraphBuilder):
    """See the module."""

    def __init__(self, tree: Tree, structure: Structure, distribution: Distribution) -> None:
        """An empty graph of a model.

        Args:
            tree: the model by names.
            structure: what was seen of a step.
            distribution: what lies between processes.
        """
        super().__init__()
        self._structure = structure
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

    def add_parameter(self, name: str, slot: Slot, placement: str = "") -> None:
        """See ``GraphBuilder``."""
        known = self._distribution.placements
        kept_for = name.partition(".")[2]  # what an optimizer keeps for a parameter lies as that does
        super().add_parameter(name, slot, placement or known.get(name) or known.get(kept_for, ""))

    def add_node(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[str] = (),
        outputs: Sequence[Slot] | None = (),
        source: str = "",
        *,
        ranks: Sequence[int] = (),
    ) -> None:
        """See ``GraphBuilder``; draws the collective operations before and after it too."""
        if name in self._parts:
            return  # it is drawn with what is put together of it
        if not outputs and is_collective(op_type):
            outputs = None
        if op_type in (UPDATE, BUFFER_UPDATE, INPUT_UPDATE):  # of a weight as it lies here
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
        """What a node got, by way of what sums it up over processes. Nobody computes with the shards of a weight."""
        backward = name in self._seen and bool(self._seen[name].forward)
        made = _but(inputs, {local_output_of(name), *self._of_weight})
        return [self._summed(each) for each in made] if backward else made

    def _summed(self, gradient: str) -> str:
        """The sum over processes of what comes back from a module that computes with its part of a weight."""
        forward = self._seen[gradient].forward if gradient in self._seen else ""
        if forward not in self._parallel or forward not in self._distribution.shared_inputs:
            return gradient
        summed = f"{gradient}/AllReduce"
        super().add_node(summed, ALL_REDUCE, [gradient], None, ranks=self._parallel[forward].ranks)
        return summed

    def _add_parallel(
        self, name: str, op_type: str, inputs: list[str], outputs: Sequence[Slot] | None, source: str
    ) -> None:
        """A module that computes with its part of a weight."""
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
        self, parameter: str, op_type: str, inputs: Sequence[str], outputs: Sequence[Slot] | None
    ) -> None:
        """The gradient that an optimizer uses, and before it what this process puts into it."""
        exchange: Exchange = self._distribution.gradients[parameter]
        part, node = self._seen.get(local_of(parameter)), gradient_of(parameter)
        made = self._through(node, [each for each in inputs if each not in self._parts])
        if part is not None:
            made = self._through(node, self._structure.inputs_of(local_of(parameter)))
        elif parameter in self._of_weight:
            made = self._of_readers(self._of_weight[parameter])
        super().add_node(local_of(parameter), op_type, made, _slots(part) if part is not None else None)
        super().add_node(node, exchange.kind, [local_of(parameter)], outputs, ranks=exchange.ranks)

    def _of_readers(self, weights: Sequence[str]) -> list[str]:
        """What the gradient of gathered weights is made of: what modules that read them got and got back."""
        readers = [name for name, inputs in self._drawn.items() if any(weight in inputs for weight in weights)]
        came = [name for name, node in self._seen.items() if node.forward in readers]
        fed = [each for name in readers for each in self._drawn[name] if each not in self._gathered]
        return _but([*came, *fed])


def _slots(node: Node) -> list[Slot]:
    return [node.outputs[slot] for slot in sorted(node.outputs)]


def _elements(slots: Iterable[Slot]) -> int:
    return sum(math.prod(shape) for _, shape in slots)


def _but(names: Iterable[str], left_out: Container[str] = ()) -> list[str]:
    """Names in order, each once, without some."""
    return [name for name in dict.fromkeys(names) if name not in left_out]
