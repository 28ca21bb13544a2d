"""Finds batches that several data-parallel ranks read, so that work is done twice.

Only where a wrapper reduces all gradients over a group of ranks, and the inputs of the model were recorded. All inputs
of a step must be equal by bytes, because masks and positions alone are the same on all ranks anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.check.contents import Content, KnownBy
from tui_debugger.check.types import Pair
from tui_debugger.diagnose.ranks.layout import Ranks
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.model import ProgressFn, Side, TensorKey

_INPUTS: Final = "inputs."
"""The prefix that our client for PyTorch gives to inputs of the model."""


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """A batch that several ranks read; ``key`` is its first tensor at the first of ``steps`` such steps."""

    key: TensorKey
    ranks: Ranks
    steps: int


def shared_batches(
    run: DiagnosedRun, pairs: Sequence[Pair], groups: Sequence[Ranks], progress: ProgressFn
) -> Iterator[SharedBatch]:
    """Yields for each group of data-parallel ranks the first batch that several of them read."""
    for group in (group for group in groups if len(group) > 1):
        read = {pair: batch for pair in pairs if pair[0] in group and (batch := _batch(run, *pair, progress))}
        found: list[tuple[int, Ranks]] = []
        for step in dict.fromkeys(step for _, step in read):
            alike: dict[tuple[bytes, ...], list[int]] = {}
            for rank in group:
                if (rank, step) in read:
                    alike.setdefault(tuple(content.value for _, content in read[rank, step]), []).append(rank)
            found += [(step, tuple(ranks)) for ranks in alike.values() if len(ranks) > 1]
        if found:
            step, ranks = found[0]
            yield SharedBatch(read[ranks[0], step][0][0], ranks, len({step for step, _ in found}))


def _batch(run: DiagnosedRun, rank: int, step: int, progress: ProgressFn) -> list[tuple[TensorKey, Content]]:
    """Returns the model's inputs of a step; empty where they are not known by bytes or all are constant."""
    flow = run.flow(rank, progress)
    table, nodes = flow.table(step), flow.nodes
    rows = [
        row
        for row in np.flatnonzero(table.side == int(Side.OUTPUT)).tolist()
        if nodes.names[int(table.node[row])].startswith(_INPUTS)
    ]
    contents = run.contents.of(flow, step, rows, progress)
    if any(each.by is not KnownBy.BYTES for each in contents) or all(each.constant for each in contents):
        return []
    found = []
    for row, content in zip(rows, contents, strict=True):
        key = nodes.key(
            rank, step, int(table.node[row]), Side.OUTPUT, int(table.slot[row]), round=int(table.round[row])
        )
        found.append((key, content))
    return found
