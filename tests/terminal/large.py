"""``python -m tests.terminal.large NODES STEPS``: the screen on a large run that lives in memory.

Every node has one tensor per step, known by its statistics alone, so that neither writing nor reading values
is part of what the screen does; every 100th is NaN somewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.sources.memory import GRAPH, MemorySource, Recorded
from tui_debugger.graph.table import GraphInfo, NodeTable
from tui_debugger.model import Category, Frame, NodeKind, NodeSelection, NodeSelector, ProgressFn, Side, TensorStats
from tui_debugger.session import Session
from tui_debugger.tui.app import run_app

TYPES = ("MatMul", "Add", "ReLU", "LayerNorm", "Softmax", "Mul", "Cast", "Reshape")
BLOCK, LAYER = 25, 500
"""Nodes in an inner and in an outer scope."""


def node_table(nodes: int) -> NodeTable:
    """A chain of nodes in nested scopes, with a stack each block."""
    types = [number % len(TYPES) for number in range(nodes)]
    names = [
        f"Default/network-Net/layer{number // LAYER}-Layer/block{number // BLOCK % (LAYER // BLOCK)}-Block"
        f"/{TYPES[kind]}-op{number}"
        for number, kind in enumerate(types)
    ]
    stacks = [
        tuple(Frame(f"/train/model/part{part}.py", line, f"x = self.block{part}(x)") for line in range(10, 15))
        for part in range(64)
    ]
    counts = np.minimum(np.arange(nodes), 1)
    return NodeTable(
        graphs=(GraphInfo(GRAPH, 0),),
        names=names,
        paths=names,
        types=TYPES,
        graph=np.zeros(nodes, np.int16),
        type_id=np.array(types, np.int32),
        category=np.full(nodes, Category.ACTIVATION, np.uint8),
        flags=np.zeros(nodes, np.uint8),
        order=np.arange(nodes, dtype=np.int32),
        outputs=np.ones(nodes, np.int16),
        in_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        in_node=np.arange(max(nodes - 1, 0), dtype=np.int32),
        in_slot=np.zeros(max(nodes - 1, 0), np.int16),
        stack_id=(np.arange(nodes) // BLOCK % len(stacks)).astype(np.int32),
        stacks=stacks,
    )


def large_run(nodes: int, steps: int) -> MemorySource:
    """A run of so many nodes and steps."""
    table = node_table(nodes)
    kinds = [
        Recorded(TensorStats(64, nan, 0, 0, 3, 20, 41 - nan, -1.5, 2.5, 0.25, 0.75, 0.5, 40.0), shape=(8, 8))
        for nan in (0, 2)
    ]
    tensors = {
        step: {(name, Side.OUTPUT, 0): kinds[number % 100 == 0] for number, name in enumerate(table.names)}
        for step in range(steps)
    }
    return MemorySource({0: tensors}, table=table, title="large")


def open_large(nodes: int, steps: int, kind: type[Session] = Session) -> Session:
    """A session on a large run, with a watchpoint that hits on every tensor."""
    session = kind(large_run(nodes, steps))
    everything = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
    session.watchpoints.add("tensor_too_large", (("abs_mean_gt", 0.5),), everything)
    return session


def main(arguments: Sequence[str]) -> int:
    """Opens the screen."""
    nodes, steps = (int(argument) for argument in arguments)

    def open_session(progress: ProgressFn) -> Session:
        session = open_large(nodes, steps)
        session.open(progress)
        return session

    return run_app(open_session, title=str(Path("large")), recommended=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
