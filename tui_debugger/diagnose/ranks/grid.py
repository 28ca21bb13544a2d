"""The rank grid: ranks across, scopes and nodes down, and in each cell a verdict or a statistic of one step.

Verdicts are those of the health map, and whether ranks differ that must be equal. Statistics are of a node's first
output, else of its first input; a scope has the one that is largest in magnitude below it (the smallest for minima). A
cell's level is its distance from the median of the ranks, relative to the median.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Int64, Mask
from tui_debugger.check.plan import RequiredByStep
from tui_debugger.diagnose.health import HealthMap, tree_indices
from tui_debugger.diagnose.ranks.layout import Ranks
from tui_debugger.diagnose.ranks.results import Replicas
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.graph.build import together
from tui_debugger.graph.table import NodeTable
from tui_debugger.last_result import LastResult
from tui_debugger.model import Progress, ProgressFn, Side, no_progress
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.health import Codes
from tui_debugger.stats.records import RecordState, RequiredStats, holds_bad

Floats = npt.NDArray[np.float64]
Rows = Array

VERDICT, REPLICAS = "verdict", "replicas"
"""The quantities that cells can show beside statistics."""


def _zeros(rows: Rows) -> Floats:
    """NaN where the dump did not count zeros: then the counts do not add up."""
    shares: Floats = np.divide(100.0 * rows["zero"], rows["count"], out=np.zeros(len(rows)), where=rows["count"] > 0)
    return np.where(rows["zero"] + rows["negative"] + rows["positive"] == _finite(rows), shares, np.nan)


def _norm(rows: Rows) -> Floats:
    """NaN where the dump did not record it: only zeros have a sum of squares of 0. See ``TensorStats.norm``."""
    zeros = (rows["minimum"] == 0) & (rows["maximum"] == 0)
    known = (_finite(rows) > 0) & ((rows["sum_squares"] != 0) | zeros)
    return np.where(known, np.sqrt(rows["sum_squares"]), np.nan)


def _column(name: str) -> Callable[[Rows], Floats]:
    return lambda rows: rows[name].astype(np.float64)


def _finite(rows: Rows) -> Floats:
    found: Floats = rows["count"] - rows["nan"] - rows["pos_inf"] - rows["neg_inf"]
    return found


STATISTICS: Final[dict[str, tuple[str, Callable[[Rows], Floats]]]] = {
    "norm": ("norm", _norm),
    "mean": ("mean", _column("mean")),
    "abs_mean": ("mean of magnitudes", _column("abs_mean")),
    "std": ("standard deviation", lambda rows: np.sqrt(rows["variance"])),
    "min": ("minimum", _column("minimum")),
    "max": ("maximum", _column("maximum")),
    "zero_percentage": ("zeros in percent", _zeros),
    "nan": ("number of NaN", _column("nan")),
    "inf": ("number of Inf", lambda rows: (rows["pos_inf"] + rows["neg_inf"]).astype(np.float64)),
}
"""By name: words for it, and its values from rows of records."""

SHOWN: Final = (VERDICT, REPLICAS, *STATISTICS)

ABSENT, NOT_FINITE, NOT_READ = 0, 1, 2
"""Levels of cells without a number: nothing was dumped; NaN or Inf; it could not be read, or was not recorded."""
LEAST: Final = 3
"""The level of cells that equal the median. Each level above stands for a distance ten times as large."""
LEVELS: Final = 9
"""The number of levels of distance: at most 1e-6 of the median, 1e-5 ... 1, 10, more."""
LEVEL_GLYPHS: Final = " !?·▁▂▃▄▅▆▇█"
"""One character for each level."""


@dataclass(frozen=True, eq=False)
class RankValues:
    """One statistic of all nodes and scopes at one step.

    Attributes:
        name: of ``STATISTICS``.
        ranks: of the columns.
        numbers: of shape (tree index, rank); NaN where there is none.
        marks: of the same shape: ``ABSENT``, ``NOT_FINITE``, ``NOT_READ``, or ``LEAST`` where there is a number.
    """

    step: int
    name: str
    ranks: Ranks
    numbers: Floats
    marks: Codes

    def levels(self, entries: Int64, ranks: Sequence[int] | None = None) -> Codes:
        """Levels of shape (entry, rank): distances from the median of all ranks."""
        columns = self._columns(ranks)
        numbers, marks = self.numbers[entries], self.marks[entries]
        if not numbers.shape[1]:
            return marks
        known = np.where(np.isfinite(numbers), numbers, np.nan)
        levels: Codes = marks.copy()
        some = np.flatnonzero(np.isfinite(known).any(axis=1))
        if len(some):
            middle = _medians(known[some])
            with np.errstate(divide="ignore", invalid="ignore"):
                distance = np.abs(known[some] - middle) / np.abs(middle)
                tens = np.ceil(np.log10(np.where(distance > 0, distance, 1e-99)) + 6.0)
            steps = np.clip(np.nan_to_num(tens, nan=0.0, posinf=LEVELS - 1), 0, LEVELS - 1).astype(np.uint8)
            plain = marks[some] == LEAST
            levels[some] = np.where(plain, LEAST + steps, marks[some])
        chosen: Codes = levels if columns is None else levels[:, columns]
        return chosen

    def _columns(self, ranks: Sequence[int] | None) -> list[int] | None:
        if ranks is None or tuple(ranks) == self.ranks:
            return None
        place = {rank: at for at, rank in enumerate(self.ranks)}
        return [place[rank] for rank in ranks]


def _medians(rows: Floats) -> Floats:
    """The median of each row without NaN; each row needs a number. Ten times as fast as ``np.nanmedian``."""
    ordered, count = np.sort(rows, axis=1), np.isfinite(rows).sum(axis=1)
    at = np.arange(len(rows))
    low, high = ordered[at, (count - 1) // 2], ordered[at, count // 2]
    medians: Floats = np.where(low == high, low, low / 2 + high / 2)[:, None]
    return medians


@dataclass(frozen=True, eq=False)
class RankColumn:
    """The column of one rank of ``RankValues``."""

    numbers: Floats
    marks: Codes


def rank_column(  # noqa: PLR0917 - which one
    run: DiagnosedRun, map_: HealthMap, rank: int, step: int, name: str, progress: ProgressFn = no_progress
) -> RankColumn:
    """Returns a statistic of a step of one rank; measures what is not known, and keeps it when cancelled."""
    tree = map_.tree
    numbers, marks = np.full(len(tree), np.nan), np.zeros(len(tree), np.uint8)
    if step in run.steps(rank):
        measurements = run.measurements(rank, progress)
        table = measurements.flow.table(step)
        index = _first_tensors(table)
        required = RequiredByStep()
        required.ask(step, table, index, RequiredStats())
        measurements.ensure_all(required, progress)
        rows = np.take(measurements.records(step).rows, index)
        at = _places(map_, measurements.flow.nodes)[table.node[index]]
        rows, at = rows[at >= 0], at[at >= 0]
        measured = rows["state"] == RecordState.MEASURED
        bad = holds_bad(rows)
        numbers[at] = np.where(measured, STATISTICS[name][1](rows), np.nan)
        unknown = ~measured | (np.isnan(numbers[at]) & ~bad & (rows["count"] > 0))
        marks[at] = np.where(unknown, NOT_READ, np.where(bad, NOT_FINITE, LEAST))
        _fill_scopes(numbers, marks, tree.row, tree.size, smallest=name == "min")
    return RankColumn(numbers, marks)


def stacked(step: int, name: str, columns: Mapping[int, RankColumn], entries: int) -> RankValues:
    """Returns the columns of several ranks side by side; ``entries`` is the number of rows where there is no rank."""
    numbers, marks = np.zeros((entries, len(columns))), np.zeros((entries, len(columns)), np.uint8)
    for at, each in enumerate(columns.values()):
        numbers[:, at], marks[:, at] = each.numbers, each.marks
    return RankValues(step, name, tuple(columns), numbers, marks)


def rank_values(
    run: DiagnosedRun, map_: HealthMap, step: int, name: str, progress: ProgressFn = no_progress
) -> RankValues:
    columns: dict[int, RankColumn] = {}
    for number, rank in enumerate(map_.ranks):
        progress(Progress(number, len(map_.ranks), f"rank {rank} step {step}"))
        columns[rank] = rank_column(run, map_, rank, step, name, progress)
    return stacked(step, name, columns, len(map_.tree))


def _places(map_: HealthMap, nodes: NodeTable) -> Int64:
    """The tree index of each node of a rank; -1 for nodes that the map does not have."""
    at = tree_indices(map_.nodes)
    _, rows = together({0: map_.nodes, 1: nodes})
    known = rows[1]
    if known is None and len(nodes) == len(at):
        return at
    own = np.arange(len(nodes)) if known is None else np.asarray(known, np.int64)
    return np.where(own < len(at), at[np.minimum(own, len(at) - 1)], -1) if len(at) else np.full(len(nodes), -1)


_first: Final = LastResult[Int64]()


def _first_tensors(table: TensorTable) -> Int64:
    """The row of the first output (else input) of each node in its newest round; constants are left out."""
    columns = table.node, table.side, table.slot, table.round, table.flags
    return _first.of(*columns, make=lambda: _first_rows(*columns))


def _first_rows(node: Rows, side: Rows, slot: Rows, round_: Rows, flags: Rows) -> Int64:
    rows = np.flatnonzero((flags & int(TensorFlag.CONSTANT)) == 0)
    keys = (-round_[rows].astype(np.int64), slot[rows], side[rows] == int(Side.INPUT), node[rows])
    ordered = rows[np.lexsort(keys)]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = node[ordered[1:]] != node[ordered[:-1]]
    found: Int64 = np.sort(ordered[first])
    return found


def _fill_scopes(numbers: Floats, marks: Codes, row: Rows, size: Rows, *, smallest: bool) -> None:
    scopes = np.flatnonzero(row < 0)
    if not len(scopes):
        return
    bounds = np.stack([scopes, scopes + size[scopes]], axis=1).ravel()
    # A scope shows NaN and Inf before unread cells, and unread cells before numbers.
    worth = np.array([0, 3, 2, *([1] * LEVELS)], np.uint8)
    ranked = np.maximum.reduceat(np.append(worth[marks], np.uint8(0)), bounds)[::2]
    values = np.append(np.where(np.isfinite(numbers), numbers, np.nan), np.nan)
    high, low = np.fmax.reduceat(values, bounds)[::2], np.fmin.reduceat(values, bounds)[::2]
    marks[scopes] = np.array([ABSENT, LEAST, NOT_READ, NOT_FINITE], np.uint8)[ranked]
    numbers[scopes] = low if smallest else np.where(np.abs(low) > np.abs(high), low, high)


DIFFERS, OUTLIER, EQUAL = 3, 4, 2
"""Codes of ``replica_codes``: differs from another rank; differs from more than half of the ranks; equal."""
REPLICA_GLYPHS: Final = "  ·≠×"
REPLICA_WORDS: Final = ("", "", "nothing differs", "differs from other ranks", "differs from most ranks")


def replica_codes(map_: HealthMap, replicas: Replicas, step: int) -> Codes:
    """Codes of shape (tree index, rank) for tensors that must be equal on several ranks; scopes have the worst."""
    tree = map_.tree
    codes = np.full((len(tree), len(map_.ranks)), EQUAL, np.uint8)
    column = {rank: at for at, rank in enumerate(map_.ranks)}
    at_tree = tree_indices(map_.nodes)
    marked = np.full_like(codes, EQUAL)
    found = [(each.key, each.outliers or each.group, each.outliers) for each in replicas.differences]
    found += [(each.key, each.group, ()) for each in replicas.not_reduced]
    for key, ranks, outliers in found:
        row = map_.nodes.find(key.node, key.graph) if key.step == step else -1
        for rank in ranks if row >= 0 else ():
            if rank in column:
                place = at_tree[row], column[rank]
                marked[place] = max(marked[place], OUTLIER if rank in outliers else DIFFERS)
    for place in np.flatnonzero((marked > EQUAL).any(axis=1)).tolist():
        around = (np.arange(len(tree)) <= place) & (np.arange(len(tree)) + tree.size > place)
        codes[around] = np.maximum(codes[around], marked[place])
    return codes


def verdict_codes(map_: HealthMap, entries: Int64, step: int, ranks: Sequence[int]) -> Codes:
    nothing = np.zeros((len(entries), 0), np.uint8)
    return np.concatenate([nothing, *(map_.cells(entries, (step,), (rank,)) for rank in ranks)], axis=1)


def noteworthy(map_: HealthMap, replicas: Replicas | None) -> Mask:
    """Mask over tree indices: nodes with findings, or that differ between ranks, and the scopes around them."""
    found = map_.noteworthy(map_.ranks)
    if replicas is not None:
        rows = np.zeros(len(map_.nodes), np.bool_)
        keys = [each.key for each in replicas.differences] + [each.key for each in replicas.not_reduced]
        for key in keys:
            row = map_.nodes.find(key.node, key.graph)
            rows[[row] if row >= 0 else []] = True
        found |= map_.tree.keep_mask(rows)
    return found
