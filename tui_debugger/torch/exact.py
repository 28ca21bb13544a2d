"""Statistics of tensors on their own device, element by element and in float64, as offline checks compute them.

Tensors in host memory are measured by the functions of offline checks. On other devices ``begin`` starts the work and
returns at once; ``finish`` makes records of many tensors from one transfer. Tensors are measured in pieces of
``PIECE`` elements, which bounds the memory to a few float64 copies of a piece; Chan's formula joins the pieces' sums.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from tui_debugger.live.client.recorded import measure
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.fields import OTHERS, Recipe, Sums
from tui_debugger.stats.records import Bounds, Closeness, Record, RequiredStats, StepChange
from tui_debugger.torch.internals import as_array, dense, flat_pieces, local, meta_of, numeric

Doubles = npt.NDArray[np.float64]


def wide_type(device: torch.device) -> torch.dtype:
    """The type of sums: float64, or float32 on Apple's GPUs, which have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


class Waiting:
    """Collects results without looking at them, so that nothing waits for the device until ``fetch``."""

    def __init__(self) -> None:
        self._values: list[torch.Tensor] = []
        self._apart: list[int] = []
        """For each result its number of places: 1, or one for each of its numbers."""
        self._places = 0

    def __len__(self) -> int:
        return self._places

    def may_be_bad(self, since: int) -> bool:
        """Tells whether results after the first ``since`` places are not finite, as far as they are on the CPU."""
        place = self._places
        for values, apart in zip(reversed(self._values), reversed(self._apart), strict=True):
            place -= apart
            if place < since:
                return False
            if values.device.type == "cpu" and not bool(values.isfinite().all()):
                return True
        return False

    def add(self, values: torch.Tensor) -> int:
        """Adds a result of one or several numbers; returns its place after ``fetch``."""
        return self._add(values, 1)

    def add_each(self, numbers: Sequence[torch.Tensor]) -> int:
        """Adds many numbers of one device and type; returns the place of the first, the others follow."""
        return self._add(torch.stack(list(numbers)), len(numbers))

    def _add(self, values: torch.Tensor, places: int) -> int:
        self._values.append(values)
        self._apart.append(places)
        self._places += places
        return self._places - places

    def fetch(self, before: HostNumbers | None = None) -> HostNumbers:
        """Fetches all results by one transfer from each device, behind the results ``before``."""
        values, self._values = self._values, []
        apart, self._apart = self._apart, []
        if before is not None and not values:
            return before
        numbers, start = _fetch(values)
        found = HostNumbers(numbers, _starts(start, np.array(apart, np.int64)))
        return found if before is None else before.followed_by(found)


class HostNumbers:
    """The numbers on the host."""

    def __init__(self, numbers: Doubles, start: npt.NDArray[np.int64]) -> None:
        """``start`` says where each result starts in ``numbers``, with one entry more than results."""
        self._numbers = numbers
        self._start = start

    def followed_by(self, others: HostNumbers) -> HostNumbers:
        start = np.concatenate((self._start[:-1], others._start + len(self._numbers)))
        return HostNumbers(np.concatenate((self._numbers, others._numbers)), start)

    @property
    def are_finite(self) -> bool:
        """Tells whether no number is NaN or Inf."""
        return bool(np.isfinite(self._numbers).all())

    def all(self, place: int) -> Doubles:
        return self._numbers[self._start[place] : self._start[place + 1]]

    def first(self, places: npt.NDArray[np.int64]) -> Doubles:
        found = np.full(len(places), np.nan)
        known = places >= 0
        found[known] = self._numbers[self._start[places[known]]]
        return found


def _starts(start: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if not len(places) or int(places.max()) == 1:
        return start
    first = np.repeat(start[:-1], places)
    within = np.arange(len(first)) - np.repeat(np.cumsum(places) - places, places)
    return np.append(first + within, start[-1])


def _join(values: list[torch.Tensor]) -> torch.Tensor:
    if all(not each.dim() for each in values):
        return torch.stack(values)
    return torch.cat([each.reshape(-1) for each in values])


def _fetch(values: list[torch.Tensor]) -> tuple[Doubles, npt.NDArray[np.int64]]:
    """The numbers of all results one after the other, and the start of each, with one entry more."""
    sizes = np.fromiter((each.numel() for each in values), np.int64, len(values))
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, each in enumerate(values):
        groups.setdefault((each.device, each.dtype), []).append(number)
    order: list[int] = []
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for (device, _), members in sorted(groups.items(), key=lambda item: str(item[0][0])):
        order += members
        joined = _join([values[number] for number in members])
        by_device.setdefault(device, []).append(joined.to(wide_type(device)))
    hosts: list[Any] = [torch.cat(parts).cpu().to(torch.float64).numpy() for parts in by_device.values()]
    numbers = np.concatenate(hosts) if hosts else np.empty(0)
    placed = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes[order], out=placed[1:])
    found = np.empty(len(numbers))
    start = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    target = np.repeat(start[order], sizes[order]) + np.arange(len(numbers)) - np.repeat(placed[:-1], sizes[order])
    found[target] = numbers
    return found, start


HOST: Final = {"cpu"}
"""Devices whose memory NumPy reads."""
PIECE: Final = 1 << 22
"""Elements that are measured together."""
_FAST: Final = 13
"""Numbers of a piece for the statistics of ``fields.FAST``: see ``_piece``."""
_STATISTICS: Final = _FAST + sum(len(made.identity) for _, made in OTHERS)
"""Numbers of a piece for all statistics."""
_COMPARED: Final = 2


@dataclass(frozen=True, slots=True)
class PendingRecord:
    """A measurement of one tensor that is under way."""

    meta: TensorMeta
    need: RequiredStats
    places: tuple[int, ...] = ()  # of the results in ``Waiting``, one for each piece
    previous: str = "none"  # as ``Record.previous``
    record: Record | None = None  # the result, if known at once


def begin(
    tensor: torch.Tensor, need: RequiredStats, waiting: Waiting, previous: torch.Tensor | None = None
) -> PendingRecord:
    """Starts to measure a tensor of any element type, shape and order; results go to ``waiting``."""
    described = meta_of(tensor)
    if not numeric(tensor):
        return PendingRecord(described, need, record=Record(described, None, need=need))
    if tensor.device.type in HOST:
        return PendingRecord(described, need, record=_on_host(tensor, need, previous, described))
    return on_device(tensor, need, waiting, previous)


def on_device(
    tensor: torch.Tensor, need: RequiredStats, waiting: Waiting, previous: torch.Tensor | None = None
) -> PendingRecord:
    """``begin`` for numbers on any device."""
    described = meta_of(tensor)
    plain, word = dense(local(tensor)), "none"
    others: Iterator[torch.Tensor] = iter(())
    if need.previous and previous is not None:
        before = dense(local(previous))
        word = "ok" if before.shape == plain.shape else "shape"
        if word == "ok":
            plain = plain.contiguous()  # weights usually are contiguous: nothing is copied
            others = flat_pieces(before.contiguous(), PIECE)
    ranges, closeness = sorted(need.ranges), sorted(need.closeness)
    places = [waiting.add(_piece(part, next(others, None), ranges, closeness)) for part in flat_pieces(plain, PIECE)]
    return PendingRecord(described, need, tuple(places), word)


def finish(pending: Sequence[PendingRecord], fetched: HostNumbers) -> list[Record]:
    return [_record(pending_record, fetched) for pending_record in pending]


def records(tensors: Sequence[tuple[torch.Tensor, RequiredStats, torch.Tensor | None]]) -> list[Record]:
    """Records of (values, what is needed, values of the step before)."""
    waiting = Waiting()
    pending = [begin(tensor, need, waiting, previous) for tensor, need, previous in tensors]
    return finish(pending, waiting.fetch())


def _on_host(tensor: torch.Tensor, need: RequiredStats, previous: torch.Tensor | None, meta: TensorMeta) -> Record:
    record = measure(as_array(tensor), need, None if previous is None else as_array(previous))
    return replace(record, meta=meta)


def _piece(
    part: torch.Tensor, before: torch.Tensor | None, ranges: Sequence[Bounds], closeness: Sequence[Closeness]
) -> torch.Tensor:
    """All numbers of one piece, as one row of float64 on its device."""
    wide = wide_type(part.device)
    x = _magnitudes(part, wide)
    finite = torch.isfinite(x)
    numbers = [finite.sum(), x.isnan().sum(), (x == math.inf).sum(), (x == -math.inf).sum()]
    inside = [((x >= start) & (x <= end)).sum() for start, end in ranges]
    low, high = torch.where(finite, x, math.inf).amin(), torch.where(finite, x, -math.inf).amax()
    zero = torch.zeros((), dtype=wide, device=x.device)
    others = [number for _, made in OTHERS for number in _sums(made, x, finite)]
    x = torch.where(finite, x, zero)
    numbers += [(x < 0).sum(), (x > 0).sum()]
    total = x.sum()
    mean = total / numbers[0].clamp(min=1)
    spread = torch.where(finite, x - mean, zero).square_().sum()
    reals = [low, high, total, x.abs().sum(), x.square().sum(), spread]
    count = torch.full((), part.numel(), dtype=wide, device=x.device)
    changes = [] if before is None else _changes(part, before, wide, closeness)
    return torch.stack([each.to(wide) for each in (count, *numbers, *reals, *others, *inside, *changes)])


def _sums(made: Recipe, x: torch.Tensor, finite: torch.Tensor) -> list[torch.Tensor]:
    chosen = x if made.every else x[finite]
    sums: Sums = made.part(chosen) if len(chosen) else made.identity
    return [torch.as_tensor(number, dtype=x.dtype, device=x.device) for number in sums]


def _changes(
    part: torch.Tensor, before: torch.Tensor, wide: torch.dtype, closeness: Sequence[Closeness]
) -> list[torch.Tensor]:
    """Sums of |cur − prev| and |prev|, and for each closeness how many elements are not close."""
    if part.is_complex() or before.is_complex():
        kind = torch.complex128 if wide is torch.float64 else torch.complex64
    else:
        kind = wide
    now, then = part.to(kind), before.to(kind)
    difference, magnitude = (now - then).abs(), then.abs()
    found = [difference.sum(), magnitude.sum()]
    if closeness:
        same = now == then
        for rtol, atol, equal_nan in closeness:
            close = ((difference <= magnitude * rtol + atol) & torch.isfinite(then)) | same
            if equal_nan:
                close |= torch.isnan(now) & torch.isnan(then)
            found.append((~close).sum())
    return found


def _magnitudes(part: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    if part.is_complex():
        return part.to(torch.complex128 if wide is torch.float64 else torch.complex64).abs()
    return part.to(wide)


def _record(pending_record: PendingRecord, fetched: HostNumbers) -> Record:
    if pending_record.record is not None:
        return pending_record.record
    ranges, closeness = sorted(pending_record.need.ranges), sorted(pending_record.need.closeness)
    rows = [fetched.all(place) for place in pending_record.places]
    stats = _stats(rows)
    inside = {bounds: int(sum(row[_STATISTICS + at] for row in rows)) for at, bounds in enumerate(ranges)}
    change, close = None, {}
    if pending_record.previous == "ok":
        at = _STATISTICS + len(ranges)
        change = _change(rows, at, stats.count)
        far = [sum(row[at + _COMPARED + number] for row in rows) for number in range(len(closeness))]
        close = {each: stats.count > 0 and not found for each, found in zip(closeness, far, strict=True)}
    return Record(pending_record.meta, stats, inside, change, close, pending_record.previous, need=pending_record.need)


def _change(rows: Sequence[Doubles], at: int, count: int) -> StepChange:
    if not count:
        return StepChange(math.nan, math.nan)
    return StepChange(float(sum(row[at] for row in rows)) / count, float(sum(row[at + 1] for row in rows)) / count)


def _stats(rows: Sequence[Doubles]) -> TensorStats:
    """Joins pieces: counts and sums add up, spreads by Chan's formula."""
    others = _others(rows)
    count, finite, nan, above, below, negative, positive = (int(sum(row[at] for row in rows)) for at in range(7))
    counts = (count, nan, above, below, finite - negative - positive, negative, positive)
    if not finite:
        return TensorStats(*counts, None, None, None, None, None, 0.0, **others)
    total, magnitudes, squares = (math.fsum(row[at] for row in rows) for at in (9, 10, 11))
    mean, spread = total / finite, 0.0
    for row in rows:
        if row[1]:
            spread += float(row[12]) + float(row[1]) * (float(row[9]) / float(row[1]) - mean) ** 2
    low, high = float(min(row[7] for row in rows)), float(max(row[8] for row in rows))
    return TensorStats(*counts, low, high, mean, magnitudes / finite, spread / finite, squares, **others)


def _others(rows: Sequence[Doubles]) -> dict[str, Any]:
    found, at = dict[str, Any](), _FAST
    for name, made in OTHERS:
        parts = (tuple(row[at : at + len(made.identity)].tolist()) for row in rows)
        found[name] = made.result(functools.reduce(made.merge, parts, made.identity))
        at += len(made.identity)
    return found
