"""What clients say of types and sizes, checked. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from tui_debugger.graph.messages import type_name
from tui_debugger.live.types import RemoteStats
from tui_debugger.live.wire import OWN_TYPES
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.dtypes import dtype_of

_OWN_NAMES: Final = {number: name for name, number in OWN_TYPES.items()}
_MOST_DIMS: Final = 64
_MOST_BYTES: Final = 1 << 60
_NO_DIMS: Final[Sequence[int]] = ()


@lru_cache(maxsize=256)
def element(number: int) -> tuple[str, int] | None:
    """Name and size of an element type by its number; None when its values cannot be read."""
    name = _OWN_NAMES.get(number) or type_name(number)
    dtype = dtype_of(name)
    return None if dtype is None else (name, dtype.itemsize)


def meta_of(data_type: int, dims: Sequence[int] = _NO_DIMS) -> TensorMeta | None:
    """Type, shape and the bytes that follow from them; None when they make no sense."""
    kind = element(data_type)
    if kind is None or len(dims) > _MOST_DIMS or any(dim < 0 for dim in dims):
        return None
    nbytes = math.prod(dims) * kind[1]
    return TensorMeta(kind[0], tuple(dims), nbytes) if nbytes < _MOST_BYTES else None


def stats_of(base: Any, statistics: Any | None, *, full: bool) -> RemoteStats:
    """What a client says of a tensor.

    Args:
        base: its ``TensorBase``.
        statistics: its ``Statistics``, None when only the base was asked for.
        full: the client sends our additions.
    """
    meta = meta_of(int(base.data_type), base.shape)
    if meta is None or statistics is None:
        return RemoteStats(meta)
    stats = _stats(statistics, full)
    return RemoteStats(meta, stats, complete=full and stats is not None)


def stats_beside_hit(hit: Any) -> tuple[TensorMeta | None, TensorStats | None]:
    """What our own client sends along with a hit."""
    meta = meta_of(int(hit.base.data_type), hit.base.shape) if hit.HasField("base") else None
    return meta, _stats(hit.statistics, full=True) if meta and hit.HasField("statistics") else None


def _stats(sent: Any, full: bool) -> TensorStats | None:
    count, nan = int(sent.count), int(sent.nan_count)
    negative_inf, positive_inf = int(sent.neg_inf_count), int(sent.pos_inf_count)
    if full and not (count or sent.HasField("count")):
        return None  # its elements are no numbers
    finite = count - nan - negative_inf - positive_inf
    if full:
        minimum, maximum, mean = (_given(sent, name) for name in ("minimum", "maximum", "mean"))
    else:
        # All-NaN is told as lowest and highest number there is, and zero is not written at all.
        minimum, maximum, mean = (
            _finite(value) if finite > 0 else None for value in (sent.min_value, sent.max_value, sent.avg_value)
        )
    return TensorStats(
        count=count,
        nan=nan,
        pos_inf=positive_inf,
        neg_inf=negative_inf,
        zero=int(sent.zero_count),
        negative=int(sent.neg_zero_count),
        positive=int(sent.pos_zero_count),
        minimum=minimum,
        maximum=maximum,
        mean=mean,
        abs_mean=_given(sent, "abs_mean") if full else None,
        variance=_given(sent, "variance") if full else None,
        sum_squares=float(sent.sum_squares) if full else math.nan,
    )


def _given(sent: Any, name: str) -> float | None:
    return float(getattr(sent, name)) if sent.HasField(name) else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) and abs(value) < _LOWEST else None


_LOWEST: Final = 3.4e38
"""Just below the largest float32: what an all-NaN tensor's extremes are given as."""
