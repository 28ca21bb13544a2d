"""The TensorTable of one (rank, step): a listing, resolved to node rows, without duplicates, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable
from tui_debugger.model import ReadSpec, TensorStats
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.columns import Columns, latest, tensor_keys
from tui_debugger.sources.mindspore.listing import Listing
from tui_debugger.sources.mindspore.names import logical_dtype

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_OPERATOR, _PARAMETER, _CONSTANT = 0, 1, 2
_KINDS = {PARAMETER: _PARAMETER, CONSTANT: _CONSTANT}


class StepTable(Columns):
    """Tensors of one step. See ``base.TensorTable``."""

    def __init__(self, listing: Listing, rows: _Rows, flags: npt.NDArray[np.uint8], right_mean: bool) -> None:
        """Keeps the listing (names, statistics) and the sorted rows; made by ``step_table``."""
        super().__init__(rows.node, rows.side, rows.slot, flags, rows.timestamp)
        self._listing = listing
        self._right_mean = right_mean
        self._file = rows.file.astype(np.int32)
        self._stat = rows.stat.astype(np.int32)
        self._stat_starts = np.cumsum([0, *(len(entry.rows) for entry in listing.statistics)])

    def spec(self, index: int) -> ReadSpec:
        """How to read the values; for a STAT_ONLY row the path of its statistic file, which is no tensor."""
        listing = self._listing
        file = int(self._file[index])
        if file < 0:
            at = self._recorded_at(index)
            return ReadSpec(os.fsdecode(listing.statistics[at[0]].path) if at else "")
        token = listing.dtypes[int(listing.dtype[file])]
        return ReadSpec(listing.path(file), dtype=logical_dtype(token, unknown=""))

    def recorded(self, index: int) -> TensorStats | None:
        """Statistics from ``statistic.csv``, else None."""
        at = self._recorded_at(index)
        return self._listing.statistics[at[0]].rows.stats(at[1], right_mean=self._right_mean) if at else None

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) from ``statistic.csv``, else None."""
        at = self._recorded_at(index)
        return self._listing.statistics[at[0]].rows.meta(at[1]) if at else None

    def _recorded_at(self, index: int) -> tuple[int, int] | None:
        """(number of the statistic file, row in it)."""
        row = int(self._stat[index])
        if row < 0:
            return None
        number = int(np.searchsorted(self._stat_starts, row, side="right")) - 1
        return number, row - int(self._stat_starts[number])


@dataclass
class _Rows:
    """Tensor rows while they are joined: -1 in ``file`` or ``stat`` means there is none."""

    node: Int32
    side: npt.NDArray[np.uint8]
    slot: npt.NDArray[np.int16]
    timestamp: Int64
    prefix: Int32
    file: Int64
    stat: Int64

    def keys(self) -> Int64:
        return tensor_keys(self.node, self.side, self.slot)

    def take(self, which: npt.NDArray[Any]) -> _Rows:
        columns = (self.node, self.side, self.slot, self.timestamp, self.prefix, self.file, self.stat)
        node, side, slot, timestamp, prefix, file, stat = (column[which] for column in columns)
        return _Rows(node, side, slot, timestamp, prefix, file, stat)


def step_table(listing: Listing, node_of: Int32, doubtful: Bools, nodes: NodeTable, *, right_mean: bool) -> StepTable:
    """Joins files and statistic rows of a step.

    Args:
        listing: what the directories hold.
        node_of: node row by prefix, -1 for a prefix to leave out.
        doubtful: by prefix, whether it is uncertain that the files are that node's.
        nodes: the node table the rows belong to.
        right_mean: recorded means can be believed (MindSpore 2.4 and newer).
    """
    constant = np.array([is_constant for _, is_constant, _ in listing.prefixes], np.bool_)
    rows = _join(_latest(_files(listing, node_of)), _latest(_statistics(listing, node_of)))
    rows = rows.take(_in_order(nodes, rows, constant[rows.prefix]))
    flags = (
        TensorFlag.CONSTANT * constant[rows.prefix]
        + TensorFlag.STAT_ONLY * (rows.file < 0)
        + TensorFlag.UNCERTAIN * doubtful[rows.prefix]
    )
    return StepTable(listing, rows, flags.astype(np.uint8), right_mean)


def _files(listing: Listing, node_of: Int32) -> _Rows:
    count = len(listing)
    return _Rows(
        node=node_of[listing.prefix],
        side=listing.side,
        slot=listing.slot,
        timestamp=listing.timestamp,
        prefix=listing.prefix,
        file=np.arange(count),
        stat=np.full(count, -1),
    )


def _statistics(listing: Listing, node_of: Int32) -> _Rows:
    entries = listing.statistics
    prefix = _joined((entry.prefix for entry in entries), np.int32)
    return _Rows(
        node=node_of[prefix],
        side=_joined((entry.rows.side for entry in entries), np.uint8),
        slot=_joined((entry.rows.slot for entry in entries), np.int16),
        timestamp=_joined((entry.rows.timestamp for entry in entries), np.int64),
        prefix=prefix,
        file=np.full(len(prefix), -1),
        stat=np.arange(len(prefix)),
    )


def _joined(columns: Iterable[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *columns])


def _latest(rows: _Rows) -> _Rows:
    """Of several rows of one (node, side, slot) the one with the latest timestamp; sorted by that key."""
    kept = latest(rows.keys(), rows.timestamp)
    return rows.take(kept[rows.node[kept] >= 0])


def _join(files: _Rows, statistics: _Rows) -> _Rows:
    """Files with their statistic row, then statistic rows without a file; both sorted by key and unique."""
    keys, others = files.keys(), statistics.keys()
    at = np.minimum(np.searchsorted(others, keys), max(len(others) - 1, 0))
    if len(others):
        files.stat = np.where(others[at] == keys, statistics.stat[at], -1)
    alone = statistics.take(~np.isin(others, keys))
    pairs = [
        np.concatenate([getattr(files, name), getattr(alone, name)])
        for name in ("node", "side", "slot", "timestamp", "prefix", "file", "stat")
    ]
    return _Rows(*pairs)


def _in_order(nodes: NodeTable, rows: _Rows, constant: Bools) -> Int64:
    """Row numbers by operators, parameters, constants; within by execution order, then time; inputs first."""
    used, of = np.unique(rows.node, return_inverse=True)
    when = np.full(len(used), np.iinfo(np.int64).max)
    np.minimum.at(when, of, rows.timestamp)
    kinds = np.array([_KINDS.get(name, _OPERATOR) for name in nodes.types], np.int64)
    kind = kinds[nodes.type_id[used]] if len(used) else np.zeros(0, np.int64)
    kind[of[constant]] = _CONSTANT
    order = _gaps_by_time(nodes.order[used], when, kind == _OPERATOR)
    by: Int64 = np.lexsort((rows.slot, rows.side, rows.node, when[of], order[of], kind[of]))
    return by


def _gaps_by_time(order: Int32, when: Int64, operator: Bools) -> Int32:
    """Gives operators of unknown order the place of the operator dumped last before them."""
    known = operator & (order >= 0)
    gaps = operator & (order < 0)
    if not gaps.any() or not known.any():
        return order
    by_time = np.argsort(when[known], kind="stable")
    before = np.searchsorted(when[known][by_time], when[gaps], side="right") - 1
    filled: Int32 = order.copy()
    filled[gaps] = np.where(before >= 0, order[known][by_time[np.maximum(before, 0)]], -1)
    return filled
