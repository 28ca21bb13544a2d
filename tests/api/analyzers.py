"""What the tests of the API share: analyzers on real and written dumps, tensors as the recorded answers name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tui_debugger import DebuggerTensor, Node

Id = list[Any]
"""[rank, graph, node] or [rank, graph, node, slot, iteration], as in the recorded answers."""


def node_id(node: Node) -> Id:
    """A node as the recorded answers name it."""
    return [node.rank, node.graph_name, node.name]


def tensor_id(tensor: DebuggerTensor) -> Id:
    """A tensor as the recorded answers name it."""
    return [*node_id(tensor.node), tensor.slot, tensor.iteration]


def short(tensors: Iterable[DebuggerTensor]) -> list[tuple[str, int, int]]:
    """(last part of the node's name, slot, iteration)."""
    return [(tensor.node.name.rpartition("/")[2], tensor.slot, tensor.iteration) for tensor in tensors]
