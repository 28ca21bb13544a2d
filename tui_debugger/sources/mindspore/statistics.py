"""``statistic.csv``: statistics that the training process computed, beside the values or instead of them.

Two generations of headers (1.6 – 2.2: twenty fixed columns; 2.3 and newer: the configured categories in the
configured order, rows with an extra trailing comma). Columns are found by their title, so both are one reader.
"""

from __future__ import annotations

import csv
import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tui_debugger.model import AtLeast, Progress, ProgressFn, TensorStats, no_progress
from tui_debugger.opener import read_lines
from tui_debugger.sources.mindspore.names import MAX_SLOT, MAX_TIMESTAMP, SIDES, logical_dtype
from tui_debugger.text.clean import clean

FILE = "statistic.csv"
_log = logging.getLogger("tui_debugger")

_VALUES = ("max value", "min value", "avg value", "l2norm value")
_COUNTS = (
    "count",
    "negative zero count",  # a misnomer: elements below 0
    "positive zero count",  # a misnomer: elements above 0
    "nan count",
    "negative inf count",
    "positive inf count",
    "zero count",
)
_NUMBERS = _VALUES + _COUNTS
_IDENTITY = ("op type", "op name", "timestamp", "io", "slot")
_FIRST_COUNT = len(_VALUES)
_FIXED_COLUMNS = 20
_WRONG_MEAN_FROM = 20_000
"""Elements from which ``Avg Value`` of MindSpore 1.6 to 2.3 is that of the first part of a tensor alone."""

_SAW_NAN, _SAW_POS_INF, _SAW_NEG_INF = 1, 2, 4


@dataclass(frozen=True)
class Statistics:
    """The rows of one or several statistic files as columns.

    Attributes:
        prefixes: ``type.name`` as bytes, the first part of a tensor file's name; ``prefix`` indexes into it.
        prefix, side, slot, timestamp: which tensor.
        numbers: float64[n, 11]: max, min, avg, l2norm, then the counts; NaN where not recorded or not finite.
        seen: bits of non-finite values among the extremes (1 NaN, 2 +Inf, 4 -Inf).
        fixed: rows of the older generation.
        dtypes, shapes: distinct values; ``dtype`` and ``shape`` index into them.
        broken: lines that could not be understood, or are missing behind a header.
    """

    prefixes: tuple[bytes, ...]
    prefix: npt.NDArray[np.int32]
    side: npt.NDArray[np.uint8]
    slot: npt.NDArray[np.int16]
    timestamp: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    seen: npt.NDArray[np.uint8]
    fixed: npt.NDArray[np.bool_]
    dtypes: tuple[str, ...]
    dtype: npt.NDArray[np.int16]
    shapes: tuple[tuple[int, ...], ...]
    shape: npt.NDArray[np.int32]
    broken: int = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.prefix)

    def meta(self, row: int) -> tuple[str, tuple[int, ...]]:
        """(element type, shape) of a row."""
        return self.dtypes[int(self.dtype[row])], self.shapes[int(self.shape[row])]

    def doubtful_mean(self, row: int, *, right_mean: bool = False) -> float | None:
        """Returns a recorded mean that ``stats`` does not believe, else None; ``right_mean`` as there."""
        count = _count(self.numbers[row, _FIRST_COUNT])
        size = math.prod(self.shapes[int(self.shape[row])]) if count is None else count
        return _finite(self.numbers[row, 2]) if self._is_doubtful(row, size, right_mean=right_mean) else None

    def _is_doubtful(self, row: int, count: int, *, right_mean: bool) -> bool:
        return count >= _WRONG_MEAN_FROM and (bool(self.fixed[row]) or not right_mean)

    def stats(self, row: int, *, right_mean: bool = False) -> TensorStats:
        """A row as TensorStats: what was not recorded is 0 or None.

        NaN and Inf among the recorded extremes count as one such element where no count was recorded, so
        that a bad tensor is known to be bad.

        Args:
            row: row number.
            right_mean: the mean can be believed whatever the size (MindSpore 2.4 and newer).
        """
        maximum, minimum, mean, norm = (_finite(value) for value in self.numbers[row, :_FIRST_COUNT])
        counts = [_count(value) for value in self.numbers[row, _FIRST_COUNT:]]
        count, negative, positive, nan, neg_inf, pos_inf, zero = (value or 0 for value in counts)
        seen = int(self.seen[row])
        nan = max(nan, 1) if seen & _SAW_NAN else nan
        pos_inf = max(pos_inf, 1) if seen & _SAW_POS_INF else pos_inf
        neg_inf = max(neg_inf, 1) if seen & _SAW_NEG_INF else neg_inf
        if counts[0] is None:
            count = int(np.prod(self.shapes[int(self.shape[row])], dtype=np.int64))
        if None not in counts and negative + positive + zero + nan + pos_inf + neg_inf > count:
            # 2.4 and newer count -Inf among the elements below 0 and +Inf among those above.
            negative, positive = max(negative - neg_inf, 0), max(positive - pos_inf, 0)
        if maximum is not None and minimum is not None and maximum < minimum:
            maximum = minimum = mean = None  # 2.3 and older write ∓1.8e308 for a tensor without a finite element
        if self._is_doubtful(row, count, right_mean=right_mean):
            mean = None
        return TensorStats(
            count=count,
            nan=nan,
            pos_inf=pos_inf,
            neg_inf=neg_inf,
            zero=zero,
            negative=negative,
            positive=positive,
            minimum=minimum,
            maximum=maximum,
            mean=mean,
            abs_mean=None,
            variance=None,
            sum_squares=norm * norm if norm is not None else 0.0,
            at_least=_at_least(
                seen,
                [counts[at] is None for at in (3, 4, 5)],
                told=norm is not None or (right_mean and maximum is not None and minimum is not None),
            ),
        )


def _at_least(seen: int, uncounted: Sequence[bool], *, told: bool) -> AtLeast:
    """The counts that are lower bounds: an extreme, a mean or a norm tells of NaN or Inf that nobody counted.

    Args:
        seen: what they tell of.
        uncounted: whether NaN, -Inf and +Inf were not counted.
        told: they would tell: a norm that is finite, or extremes of all elements (2.4 and newer). Extremes of finite
            elements do not.
    """
    nan, neg_inf, pos_inf = uncounted
    found = AtLeast.NAN if nan and (seen & _SAW_NAN or not told) else AtLeast.NONE
    inf = (neg_inf and seen & _SAW_NEG_INF) or (pos_inf and seen & _SAW_POS_INF)
    hidden = (neg_inf or pos_inf) and (seen & _SAW_NAN or not told)
    return found | AtLeast.INF if inf or hidden else found


def read_statistics(path: Path, progress: ProgressFn = no_progress) -> Statistics:
    """Reads a statistic file; lines that make no sense are counted and skipped.

    Raises:
        OSError: the file cannot be read.
    """
    rows = _Rows()
    for number, line in enumerate(read_lines(path, cut=True, ends=True)):
        rows.add(line.decode("utf-8", "surrogateescape").strip(), whole=line.endswith(b"\n"))
        if number % 4096 == 4095:
            progress(Progress(number + 1, 0, "reading statistics"))
    return rows.columns()


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a ``statistic.csv`` as text by column title; lines without a tensor's name are left out.

    A second run appends its rows, and its header where a new process wrote it: that header counts from there on.
    Empty if the file cannot be read.
    """
    titles: list[str] = []
    try:
        texts = (line.decode("utf-8", "surrogateescape").replace("\0", "") for line in read_lines(path, cut=True))
        for line in csv.reader(texts):
            cells = [cell.strip() for cell in line]
            if cells and cells[0].lower() == "op type":
                titles = cells
                continue
            row = dict(zip(titles, cells, strict=False))
            row.pop("", None)  # newer files end every line with a comma
            if all(row.get(title) for title in ("Op Name", "IO", "Slot")):
                yield row
    except (OSError, csv.Error) as error:
        _log.warning("%s cannot be read to its end: %s", clean(str(path)), clean(str(error)))


class _Rows:
    """Collects rows; the header may come again when a second run appended to the file."""

    def __init__(self) -> None:
        self._header: dict[str, int] = {}
        self._width = 0
        self._prefixes: dict[bytes, int] = {}
        self._dtypes: dict[str, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}
        self._ids: list[tuple[int, int, int, int, int, int]] = []
        self._fixed: list[bool] = []
        self._numbers: list[list[float]] = []
        self._broken = 0
        self._ends_early = True
        """No line followed the last header: who wrote it was stopped."""

    def add(self, line: str, *, whole: bool = True) -> None:
        if not line:
            return
        if not whole:  # the last number may be cut as well
            self._broken, self._ends_early = self._broken + 1, False
            return
        try:
            fields = next(csv.reader((line,))) if '"' in line else line.split(",")
        except (csv.Error, StopIteration):
            self._broken += 1
            return
        self._ends_early = fields[0].strip().lower() == "op type"
        if self._ends_early:
            self._start(fields)
        elif not self._row(fields):
            self._broken += 1

    def _start(self, fields: list[str]) -> None:
        titles = [field.strip().lower() for field in fields]
        while titles and not titles[-1]:
            titles.pop()
        self._header = {title: i for i, title in enumerate(titles)}
        self._width = len(titles)

    def _row(self, fields: list[str]) -> bool:
        """Takes a row; False when it makes no sense."""
        header = self._header
        short = len(fields) < self._width or any(fields[self._width :])
        if short or any(title not in header for title in _IDENTITY):
            return False
        op_type, op_name, timestamp, side, slot = (fields[header[title]].strip() for title in _IDENTITY)
        when, index, at = _integer(timestamp), _integer(slot), SIDES.get(side.lower().encode("utf-8", "replace"))
        if at is None or not op_type or not op_name or not 0 <= when <= MAX_TIMESTAMP or not 0 <= index <= MAX_SLOT:
            return False
        prefix = f"{op_type}.{op_name}".encode("utf-8", "surrogateescape")
        shape = _shape(fields[header["shape"]]) if "shape" in header else ()
        dtype = logical_dtype(fields[header["data type"]].strip()) if "data type" in header else ""
        self._ids.append(
            (
                self._prefixes.setdefault(prefix, len(self._prefixes)),
                at,
                index,
                when,
                self._dtypes.setdefault(dtype, len(self._dtypes)),
                self._shapes.setdefault(shape, len(self._shapes)),
            )
        )
        self._fixed.append(self._width == _FIXED_COLUMNS and "l2norm value" not in header and not fields[self._width :])
        self._numbers.append([_number(fields[header[t]]) if t in header else _UNKNOWN for t in _NUMBERS])
        return True

    def columns(self) -> Statistics:
        ids = np.array(self._ids, dtype=np.int64).reshape(-1, 6)
        numbers = np.array(self._numbers, dtype=np.float64).reshape(-1, len(_NUMBERS))
        unknown = numbers == _UNKNOWN
        nans = np.isnan(numbers[:, :_FIRST_COUNT])
        # A mean can be NaN because +Inf met -Inf: it speaks only where the extremes were not recorded. A norm cannot;
        # before 2.4 NaN gets into it and not into the extremes.
        saw_nan = nans[:, :2].any(axis=1) | nans[:, 3] | (unknown[:, :2].all(axis=1) & nans.any(axis=1))
        saw_pos_inf = (numbers[:, :2] == np.inf).any(axis=1)
        saw_neg_inf = (numbers[:, :2] == -np.inf).any(axis=1)
        seen = _SAW_NAN * saw_nan + _SAW_POS_INF * saw_pos_inf + _SAW_NEG_INF * saw_neg_inf
        numbers[unknown] = np.nan
        return Statistics(
            prefixes=tuple(self._prefixes),
            prefix=ids[:, 0].astype(np.int32),
            side=ids[:, 1].astype(np.uint8),
            slot=ids[:, 2].astype(np.int16),
            timestamp=ids[:, 3].copy(),
            numbers=numbers,
            seen=seen.astype(np.uint8),
            fixed=np.array(self._fixed, dtype=np.bool_),
            dtypes=tuple(self._dtypes),
            dtype=ids[:, 4].astype(np.int16),
            shapes=tuple(self._shapes),
            shape=ids[:, 5].astype(np.int32),
            broken=self._broken + self._ends_early,
        )


_UNKNOWN = -1.7976931348623157e308
"""Stands for "not recorded" while rows are collected; as a maximum it is the mark of an empty tensor anyway."""


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _UNKNOWN  # null, an empty field, or a word


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.findall(r"\d{1,18}", text))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _count(value: float) -> int | None:
    return int(value) if np.isfinite(value) and value >= 0 else None
