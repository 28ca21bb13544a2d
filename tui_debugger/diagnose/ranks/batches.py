"""Batches that several data-parallel ranks read: each of them has its own, or some of the work is done twice.

Asked only where a wrapper reduces all gradients over a group of ranks, and what goes into the model was recorded. All
inputs of a step have to be equal by bytes: masks and positions are the same on all ranks by nature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.check.contents import Content, KnownBy
from tui_debugger.check.types import Pair
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.model import ProgressFn, Side, TensorKey

_INPUTS: Final = "inputs."
"""The beginning of what our client for PyTorch calls what goes into the model."""


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """A batch that several ranks read.

    Attributes:
        key: the first of its tensors, on the first of the ranks, at the first such step.
        ranks: those that read it.
        steps: at how many steps several ranks read one batch.
    """

    key: TensorKey
    ranks: tuple[int, ...]
    steps: int


def shared_batches(
    run: DiagnosedRun, pairs: Sequence[Pair], groups: Sequence[tuple[int, ...]], progress: ProgressFn
) -> Iterator[SharedBatch]:
    """Yields for each group of data-parallel ranks the first batch that several of them read.

    Raises:
        CancelledError: from ``progress``.
    """
    for group in (group for group in groups if len(group) > 1):
        read = {pair: batch for pair in pairs if pair[0] in group and (batch := _batch(run, *pair, progress))}
        found: list[tuple[int, tuple[int, ...]]] = []
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
    """Returns what goes into the model in a step; nothing where that is not known by bytes, or says nothing."""
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
