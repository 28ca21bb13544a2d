"""Cuts many looks into batches that take about as long as each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tui_debugger.analysis.looks import ONLY_COMPARED, Looks, Specs
from tui_debugger.arrays import Int64

LIKE_BYTES: Final = 1 << 14
"""What a file costs beyond its bytes, in bytes: opening it takes as long as measuring so many."""
MOST: Final = 1 << 25
"""Bytes of the biggest batch (a bigger file has one of its own): some 20 ms of work, which nobody minds waiting for."""
LEAST: Final = 1 << 22
"""Bytes of the smallest batch that is worth handing over: 256 small files."""
SHARES: Final = 6
"""Batches for each worker, at least, so that they end at about the same time."""


def costs(sizes: Int64) -> Int64:
    """What looking at files costs, in bytes, by their sizes; -1 stands for a missing file."""
    cost: Int64 = np.maximum(sizes, 0) + LIKE_BYTES
    return cost


def compared_with(looks: Looks) -> Int64:
    """For each file the number of the one that it is compared with, -1 where nothing is asked about that."""
    asking = np.array([*(need.previous for need in looks.needs), False])  # ONLY_COMPARED is the last one
    return np.where(asking[looks.need], looks.previous, -1).astype(np.int64)


def cuts(looks: Looks, sizes: Int64, workers: int) -> Iterator[tuple[int, int]]:
    """First file and end of every batch.

    The steps of a tensor stay together, unless they are too much for one batch.

    Args:
        looks: neighbours that are steps of one tensor stand one after the other.
        sizes: bytes of each file.
        workers: how many work at the same time.
    """
    ends = np.cumsum(costs(sizes))
    if not len(ends):
        return
    most = min(max(int(ends[-1]) // (SHARES * workers), LEAST), MOST)
    compared = compared_with(looks)
    follows = (compared >= 0) & (compared == np.arange(len(looks)) - 1)
    chains = np.append(np.flatnonzero(~follows), len(looks))
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + most, "right")), start + 1)
        chain = int(chains[np.searchsorted(chains, end, "right") - 1])
        end = chain if chain > start else end
        yield start, end
        start = end


def part(looks: Looks, rows: Int64) -> tuple[Looks, Int64]:
    """Some looks by themselves, and the row of each of their files in the whole.

    What they are compared with comes along: files that are not among them are read once more, only for that.

    Args:
        looks: the whole.
        rows: ascending.
    """
    compared = compared_with(looks)[rows] if len(rows) else rows
    more = np.setdiff1d(compared[compared >= 0], rows)
    every = np.sort(np.concatenate([rows, more]))
    previous = np.full(len(every), -1, np.int32)
    mine = np.searchsorted(every, rows)
    previous[mine] = np.where(compared >= 0, np.searchsorted(every, compared), -1)
    need = np.full(len(every), ONLY_COMPARED, np.int16)
    need[mine] = looks.need[rows]
    paths = looks.specs.paths
    specs = Specs([paths[row] for row in every.tolist()], looks.specs.kinds, looks.specs.kind[every])
    return Looks(specs, previous, looks.needs, need), every
