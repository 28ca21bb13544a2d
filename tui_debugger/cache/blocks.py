"""Records of tensors as bytes and back, without trust in the bytes: they may be damaged, or of another program.

A block is a header (``_HEAD``), the rows as they lie in memory, the columns of ranges (8 bytes a row each) and of
closeness (1 byte a row each), and JSON: element types with shapes, errors, and the meaning of the columns, with floats
as hexadecimal text, which keeps every bit and infinity.
"""

from __future__ import annotations

import hashlib
import json
import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.model import TensorMeta
from tui_debugger.stats.fields import VERSIONS
from tui_debugger.stats.records import (
    BEFORE_WORDS,
    CHANGE_ASKED,
    CHANGE_KNOWN,
    NOT_KNOWN,
    ROW,
    Bounds,
    Closeness,
    Records,
    RecordState,
)

_HEAD: Final = struct.Struct("<4sI8sQII")
"""Magic, version of this layout, digest of ``ROW``, number of rows, number of columns of ranges and of closeness."""
_MAGIC: Final = b"tdbR"
_VERSION: Final = 2
_ROW_DIGEST: Final = hashlib.blake2b(
    repr((ROW.descr, VERSIONS, BEFORE_WORDS, RecordState.COUNT)).encode(), digest_size=8
).digest()
"""Rejects blocks of a program with other statistics, or another way to compute them."""
_LARGEST: Final = 2**63


class _Tail(NamedTuple):
    metas: tuple[TensorMeta, ...]
    errors: dict[int, str]
    ranges: tuple[Bounds, ...]
    close: tuple[Closeness, ...]


def pack(records: Records) -> bytes:
    """Packs records, with only those element types and shapes that they use."""
    rows, metas = _compact(records)
    head = _HEAD.pack(_MAGIC, _VERSION, _ROW_DIGEST, len(rows), len(records.ranges), len(records.close))
    tail = {
        "metas": [(meta.dtype, meta.shape, meta.nbytes) for meta in metas],
        "errors": list(records.errors.items()),
        "ranges": [(start.hex(), end.hex()) for start, end in _floats(records.ranges)],
        "close": [(rtol.hex(), atol.hex(), bool(nan)) for rtol, atol, nan in _floats(records.close)],
    }
    counts = [column.astype("<i8", copy=False).tobytes() for column in records.ranges.values()]
    answers = [column.astype("i1", copy=False).tobytes() for column in records.close.values()]
    return b"".join((head, rows.tobytes(), *counts, *answers, json.dumps(tail, separators=(",", ":")).encode("ascii")))


def unpack(payload: bytes, n: int) -> Records | None:
    """The records of ``n`` tensors, or None when the bytes are anything else."""
    if len(payload) < _HEAD.size:
        return None
    magic, version, digest, count, ranges, closes = _HEAD.unpack_from(payload)
    end = _HEAD.size + n * (ROW.itemsize + 8 * ranges + closes)
    if (magic, version, digest, count) != (_MAGIC, _VERSION, _ROW_DIGEST, n) or end > len(payload):
        return None
    tail = _tail(payload[end:])
    if tail is None or (len(tail.ranges), len(tail.close)) != (ranges, closes):
        return None
    found = Records(0)
    at = _HEAD.size + n * ROW.itemsize
    # As bytes: numpy copies structured rows field by field, which takes ten times as long.
    found.rows = np.frombuffer(payload, np.uint8, n * ROW.itemsize, _HEAD.size).copy().view(ROW)
    counts = np.frombuffer(payload, "<i8", ranges * n, at).reshape(ranges, n).astype(np.int64)
    answers = np.frombuffer(payload, "i1", closes * n, at + counts.nbytes).reshape(closes, n).astype(np.int8)
    for meta in tail.metas:
        found.meta_number(meta)
    found.errors = dict(tail.errors)
    found.ranges = dict(zip(tail.ranges, counts, strict=True))
    found.close = dict(zip(tail.close, answers, strict=True))
    return found if _is_sound(found, counts, answers) else None


def _compact(records: Records) -> tuple[Array, list[TensorMeta]]:
    """Rows, and the element types and shapes that they use: parts of a large table share one list."""
    rows = records.rows
    used = np.zeros(len(records.metas) + 1, np.bool_)
    used[rows["meta"]] = True  # index -1 is an unused sentinel
    if used[:-1].all():
        return rows, records.metas
    numbers = np.cumsum(used, dtype=np.int32) - 1
    numbers[-1] = -1
    rows = rows.copy()
    rows["meta"] = numbers[rows["meta"]]
    return rows, [records.metas[at] for at in np.flatnonzero(used[:-1]).tolist()]


def _floats(keys: Any) -> list[tuple[Any, ...]]:
    return [(float(first), float(second), *rest) for first, second, *rest in keys]


def _is_sound(records: Records, counts: Array, answers: Array) -> bool:
    rows = records.rows
    meta, n = rows["meta"], len(rows)
    if n and not (
        int(rows["state"].max()) < RecordState.COUNT
        and int(rows["before"].max()) < len(BEFORE_WORDS)
        and int(rows["asked"].max()) <= CHANGE_ASKED | CHANGE_KNOWN
        and int(meta.min()) >= -1
        and int(meta.max()) < len(records.metas)
        and int(counts.min(initial=0)) >= NOT_KNOWN
        and int(answers.min(initial=0)) >= NOT_KNOWN
        and int(answers.max(initial=0)) <= 1
    ):
        return False
    return all(index < n for index in records.errors)


@lru_cache(maxsize=64)
def _tail(text: bytes) -> _Tail | None:
    """Reads the JSON, which is usually the same for the steps of a run."""
    try:
        tail = json.loads(text)
        metas = tuple(
            TensorMeta(_text(dtype), tuple(map(_whole, shape)), _whole(size)) for dtype, shape, size in tail["metas"]
        )
        errors = {_whole(index): _text(why) for index, why in tail["errors"]}
        ranges = tuple((float.fromhex(start), float.fromhex(end)) for start, end in tail["ranges"])
        close = tuple((float.fromhex(rtol), float.fromhex(atol), bool(nan)) for rtol, atol, nan in tail["close"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    distinct = len(set(metas)) == len(metas) and len(set(ranges)) == len(ranges) and len(set(close)) == len(close)
    return _Tail(metas, errors, ranges, close) if distinct else None


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError
    return value
