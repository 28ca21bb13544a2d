"""Tells whether two tensors are equal: by a digest of their bytes, else a recorded digest, else by statistics."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from hashlib import blake2b
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.cache.store import DiskCache
from tui_debugger.check.flow import DataFlow
from tui_debugger.errors import TdbgError
from tui_debugger.model import Progress, ProgressFn, ReadSpec, TensorStats, no_progress
from tui_debugger.sources.base import ZEROS_DIGEST, TensorFlag, TensorTable, made_once
from tui_debugger.stats.digests import digest_of
from tui_debugger.stats.npy import open_array


class KnownBy(IntEnum):
    """How a content is known; the greater, the surer it is that equal contents are equal tensors."""

    NOTHING = 0
    """The tensor could not be read, or nothing was recorded of it."""
    STATISTICS = 1
    DIGEST = 2
    """The recorder of the dump wrote a digest."""
    BYTES = 3


BY_WORDS: Final = {
    KnownBy.STATISTICS: "by their statistics",
    KnownBy.DIGEST: "by recorded digests",
    KnownBy.BYTES: "by their bytes",
}


@dataclass(frozen=True, slots=True)
class Content:
    """A content, comparable with contents of the same ``by``; when it is ``constant``, equality says little."""

    by: KnownBy
    value: bytes = b""
    constant: bool = False  # all elements are equal, or there is none, or NaN or Inf hides them
    error: str = ""  # why nothing is known


KIND: Final = "contents"
"""The kind of these entries in the index."""
_LAYOUT: Final = struct.Struct("<16s?")
_YOUNG_NS: Final = 2 * 10**9
"""A file younger than this may have been written to after its time was looked at."""


class Contents:
    """The contents of a run's tensors; ``store`` keeps digests by the state of files, so that each is read once."""

    def __init__(self, store: DiskCache | None = None) -> None:
        self._store = store
        self._known: dict[bytes, Content] = {}

    @property
    def store(self) -> DiskCache | None:
        return self._store

    def of(
        self, flow: DataFlow, step: int, rows: Sequence[int] | Int64, progress: ProgressFn = no_progress
    ) -> list[Content]:
        """Returns the contents of some rows of a step's table; reads files that neither dump nor index knows."""
        table, wanted = flow.table(step), np.asarray(rows, np.int64)
        found = [made_once(table, (Content, at), partial(_recorded, table, at)) for at in wanted.tolist()]
        left = [at for at, each in enumerate(found) if each is None]
        if left:
            for at, content in zip(left, self._files(flow, step, wanted[left], progress), strict=True):
                found[at] = content
        return [each for each in found if each is not None]

    def _files(self, flow: DataFlow, step: int, rows: Int64, progress: ProgressFn) -> list[Content]:
        table = flow.table(step)
        sizes, times = table.file_states(rows)
        keys = [_key(table.spec(row), *state) for row, state in zip(rows.tolist(), _pairs(sizes, times), strict=True)]
        self._recall([key for key in keys if key not in self._known])
        found: list[Content] = []
        fresh: dict[bytes, bytes] = {}
        for at, (index, key) in enumerate(zip(rows.tolist(), keys, strict=True)):
            content = self._known.get(key)
            if content is None:
                progress(Progress(at, len(keys), f"comparing ranks: rank {flow.rank} step {step}"))
                content = _read(table.spec(index))
                if content.by is KnownBy.BYTES and int(times[at]) > 0:
                    self._known[key] = content
                    fresh[key] = _LAYOUT.pack(content.value, content.constant)
            found.append(content)
        if self._store is not None and table.digest:
            self._store.put_many(KIND, fresh)
        return found

    def _recall(self, keys: Sequence[bytes]) -> None:
        payloads = self._store.get_many(KIND, keys) if self._store is not None else {}
        for key, payload in payloads.items():
            if len(payload) == _LAYOUT.size:
                value, constant = _LAYOUT.unpack(payload)
                self._known[key] = Content(KnownBy.BYTES, value, constant)


def _recorded(table: TensorTable, index: int) -> Content | None:
    """Returns the content that the dump recorded of a tensor; None where its file has to be read."""
    valueless = bool(int(table.flags[index]) & int(TensorFlag.STAT_ONLY))
    digest = table.hashed(index)
    if not digest and not valueless:
        return None
    stats, meta = table.recorded(index), table.recorded_meta(index)
    constant = digest == ZEROS_DIGEST or (stats is not None and _constant(stats))
    if digest:
        return Content(KnownBy.DIGEST, repr((digest, meta)).encode(), constant)
    if stats is None:
        return Content(KnownBy.NOTHING, error="nothing of it was recorded")
    return Content(KnownBy.STATISTICS, repr((stats, meta)).encode(), constant)


def _pairs(sizes: Int64, times: Int64) -> list[tuple[int, int]]:
    return list(zip(sizes.tolist(), times.tolist(), strict=True))


def _key(spec: ReadSpec, size: int, modified: int) -> bytes:
    where = os.fsencode(os.path.realpath(spec.path))
    text = repr((spec.at(""), size, modified)).encode("utf-8", "surrogateescape")
    return blake2b(where + b"\0" + text, digest_size=16).digest()


def _constant(stats: TensorStats) -> bool:
    return stats.bad or (stats.minimum is not None and stats.minimum == stats.maximum)


def _read(spec: ReadSpec) -> Content:
    try:
        values = open_array(spec)
        digest, constant = digest_of(values, values.dtype.str, values.dtype.name, values.shape)
    except (TdbgError, OSError, ValueError, TypeError) as error:
        return Content(KnownBy.NOTHING, error=error.what if isinstance(error, TdbgError) else str(error))
    return Content(KnownBy.BYTES, digest, constant or not values.size)
