"""Makes the graph that a training sends: MindSpore's ``GraphProto``, from names, types and inputs.

Categories follow from names and types as in MindSpore's graphs (see ``graph.categories``): operators below
``Gradients/`` are gradients, operators of an activation's type are activations, and parameters that an optimizer's
update operator takes are weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tui_debugger.graph.messages import RANKS
from tui_debugger.live import wire
from tui_debugger.live.client.elements import type_number

GRADIENTS: Final = "Gradients/"
"""How the full names of gradients begin."""
ACTIVATION: Final = "Activation"
"""Operator type of an activation of which nothing more is known."""
UPDATE: Final = "WeightUpdate"
"""Operator type of what updates weights: inputs are pairs of a weight and its gradient. It has no values."""
ITEM: Final = "TupleGetItem"
"""Operator type of what takes one output of a node that has several."""
GRAPH_NAME: Final = "kernel_graph_0"
TENSOR: Final = 14
"""``DataType`` of a tensor."""
TUPLE: Final = 31
NONE: Final = 34

Slot = tuple[str, Sequence[int]]
"""Element type by name, and shape."""


class GraphBuilder:
    """One graph while it grows. Nodes are numbered in the order in which they come: the order of execution.

    An input that is not (or not yet) a node or parameter of the graph stays unknown.
    """

    def __init__(self, name: str = GRAPH_NAME) -> None:
        """Starts an empty graph that is its own root."""
        self._graph: Any = wire.message("GraphProto")(name=name.encode(), root_name=b"0")
        self._keys: dict[str, bytes] = {}
        self._inputs: list[tuple[Any, Sequence[str]]] = []

    def add_parameter(self, name: str, slot: Slot, placement: str = "") -> None:
        """A parameter: weight, optimizer state or input of the graph. The first one of a name counts.

        Args:
            name: its bare name.
            slot: type and shape of what this process has.
            placement: which part of a larger tensor that is, in words.
        """
        if name in self._keys:
            return
        self._keys[name] = name.encode()
        parameter = self._graph.parameters.add(name=name.encode())
        _set_type(parameter.type, slot)
        if placement:
            parameter.placement = placement.encode()

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
        """An operator or module. The first one of a name counts.

        Args:
            name: full name with ``/`` between scopes.
            op_type: ``Linear``, ``ReLU``, ``aten.mm`` ...
            inputs: names of nodes and parameters, empty where not known.
            outputs: one per slot; more than one makes a tuple. None: nobody sees what it makes.
            source: stack text in MindSpore's form, see ``stack_text``.
            ranks: of a collective operation the ranks that take part, where that is known.
        """
        if name in self._keys:
            return
        self._keys[name] = str(len(self._graph.node) + 1).encode()
        node = self._graph.node.add(
            name=self._keys[name],
            op_type=op_type.encode(),
            scope=name.rpartition("/")[0].encode(),
            full_name=name.encode(),
        )
        if source:
            node.source_address = source.encode("utf-8", "replace")
        if ranks:
            node.attribute.add(name=RANKS.encode()).value.int_vals.extend(ranks)
        if outputs is None:
            node.output_type.data_type = NONE
        elif len(outputs) == 1:
            _set_type(node.output_type, outputs[0])
        elif outputs:
            node.output_type.data_type = TUPLE
            for slot in outputs:
                _set_type(node.output_type.sequence_type.elem_types.add(), slot)
        self._inputs.append((node, inputs))

    def add_item(self, name: str, node: str, slot: int) -> None:
        """What takes one output out of the tuple that a node has. It has no values of its own."""
        if name in self._keys:
            return
        self.add_node(name, ITEM, [node])
        index = self._graph.node[-1].attribute.add(name=b"index")
        index.value.int_val = slot

    def add_update(self, weights: Iterable[tuple[str, str]], name: str = "optimizer/WeightUpdate") -> None:
        """What updates weights, so that they are known for weights.

        Args:
            weights: (name of the parameter, name of its gradient's node or empty).
            name: full name of the operator.
        """
        pairs = [each for pair in weights for each in pair]
        if pairs:
            self.add_node(name, UPDATE, pairs)

    def serialize(self) -> bytes:
        """The graph as a ``GraphProto``."""
        for node, inputs in self._inputs:
            del node.input[:]
            for name in inputs:
                node.input.add(name=self._keys.get(name, b""), type=0)
        data: bytes = self._graph.SerializeToString()
        return data


def stack_text(frames: Iterable[tuple[str, int, str]]) -> str:
    """A source stack in the form that graphs carry.

    Args:
        frames: (path, line, code), innermost first.
    """
    return "\n".join(f"# In file {path}:{line}/        {' '.join(code.split())}/" for path, line, code in frames)


def _set_type(proto: Any, slot: Slot) -> None:
    dtype, shape = slot
    proto.data_type = TENSOR
    proto.tensor_type.elem_type = type_number(dtype)
    proto.tensor_type.shape.SetInParent()
    for size in shape:
        proto.tensor_type.shape.dim.add(size=int(size))
