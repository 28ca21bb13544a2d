"""Small runs in which a test says what is NaN: written as a training would, with every copy alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.sources.writer import DumpWriter, Graph, Node

Array = npt.NDArray[Any]
Bad = Mapping[tuple[int, int], Collection[str]]
"""(rank, step): the nodes and parameters whose values are NaN after that step."""

MATMUL, LOG, REDUCE, MOMENTUM = (
    "Default/net-Net/MatMul-op1",
    "Default/net-Net/Log-op2",
    "Default/grad-Net/AllReduce-op3",
    "Default/optimizer-Momentum/ApplyMomentum-op4",
)
TRAINING = Graph(
    nodes=(
        Node(MATMUL, "MatMul", (("x", 0), ("w", 0))),
        Node(LOG, "Log", ((MATMUL, 0),)),
        Node(REDUCE, "AllReduce", ((LOG, 0),)),
        Node(MOMENTUM, "ApplyMomentum", (("w", 0), ("accum.w", 0), ("rate", 0), (REDUCE, 0))),
    ),
    parameters=("x", "w", "accum.w", "rate"),
)
"""A weight, what is made of it, the sum over the ranks, the update."""
UPDATED = frozenset({"w", "accum.w"})


def write_run(
    root: Path,
    bad: Bad,
    *,
    graph: Graph = TRAINING,
    steps: Sequence[int] = (0,),
    ranks: Sequence[int] = (0,),
    hidden: Collection[str] = (),
    inputs: bool = True,
    graph_of: Callable[[int], Graph] | None = None,
) -> Path:
    """Writes a dump.

    Args:
        root: where.
        bad: what is NaN.
        graph: what every rank runs; ``UPDATED`` are the parameters that a step changes.
        steps, ranks: which.
        hidden: nodes and parameters of which nothing is dumped, also not as an input.
        inputs: whether input files are dumped as well.
        graph_of: the graph of a rank, where they differ.
    """
    writer = DumpWriter(root)
    for rank in ranks:
        runs = graph_of(rank) if graph_of is not None else graph
        writer.metadata(rank=rank)
        writer.graph(runs, rank=rank)
        before = {name: _values(name, rank, -1, bad=False) for name in runs.parameters}
        for step in steps:
            before = _step(writer, runs, (rank, step), bad.get((rank, step), ()), before, hidden=hidden, inputs=inputs)
        writer.history(steps, rank=rank)
    return root


def _step(
    writer: DumpWriter,
    graph: Graph,
    pair: tuple[int, int],
    bad: Collection[str],
    before: dict[str, Array],
    *,
    hidden: Collection[str],
    inputs: bool,
) -> dict[str, Array]:
    rank, step = pair
    after = {name: _values(name, rank, step, bad=name in bad) for name in graph.parameters}
    now = {name: before[name] if name in UPDATED else after[name] for name in graph.parameters}
    for node in graph.nodes:
        for slot, (source, _) in enumerate(node.inputs):
            written = node.type == "ApplyMomentum" and source in UPDATED
            if inputs and source not in hidden and node.name not in hidden:
                values = after[source] if written else now[source]
                writer.tensor(step, node.type, node.name, values, at=("input", slot), rank=rank)
        now[node.name] = _values(node.name, rank, step, bad=node.name in bad)
        if node.name not in hidden:
            writer.tensor(step, node.type, node.name, now[node.name], rank=rank)
    for name in graph.parameters:
        if name not in hidden:
            writer.tensor(step, "Parameter", name, after[name], rank=rank)
    return after


def _values(name: str, rank: int, step: int, *, bad: bool) -> Array:
    values = np.random.default_rng((sum(name.encode()), rank, step + 1)).standard_normal((2, 3)).astype(np.float32)
    if bad:
        values[0, 0] = np.nan
    return values
