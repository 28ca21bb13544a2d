"""What the watchpoints need to know of one NumPy array."""

from __future__ import annotations

from tui_debugger.arrays import Array
from tui_debugger.model import TensorMeta
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.dtypes import is_numeric, name_of
from tui_debugger.stats.records import Record, RequiredStats
from tui_debugger.stats.side_by_side import compare


def meta_of(array: Array) -> TensorMeta:
    """Element type, shape and bytes of an array."""
    return TensorMeta(name_of(array.dtype), array.shape, array.nbytes)


def measure(array: Array, need: RequiredStats, previous: Array | None = None) -> Record:
    """A record of an array, from the same arithmetic as offline checks.

    Args:
        array: the values.
        need: what watchpoints need beyond statistics.
        previous: the values of the step before, None when there are none.
    """
    meta = meta_of(array)
    if not is_numeric(array.dtype):
        return Record(meta, None, need=need)
    stats, ranges = measure_stats(array, need.ranges)
    if not need.previous or previous is None:
        return Record(meta, stats, ranges, need=need)
    if previous.shape != array.shape:
        return Record(meta, stats, ranges, previous="shape", need=need)
    change, close = compare(array, previous, need.closeness)
    return Record(meta, stats, ranges, change, close, previous="ok", need=need)
