"""``statistic.csv``: statistics that the training process computed, beside the values or instead of them.

MindSpore has two generations: 1.6 – 2.2 write twenty fixed columns; 2.3 and newer write the configured categories in
the configured order, and rows with an extra trailing comma. msprobe and devices give some columns other titles. One
reader finds the columns of all by title. A device writes a file for each operator, named after it.
"""

from __future__ import annotations

import csv
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Int16, Int32, Int64, Mask, UInt8
from tui_debugger.model import AtLeast, Progress, ProgressFn, TensorMeta, no_progress
from tui_debugger.opener import LINE_LIMIT, FileTooLargeError, read_lines, read_regular
from tui_debugger.sources.mindspore.names import MAX_SLOT, MAX_TIMESTAMP, SIDES, logical_dtype
from tui_debugger.stats.kernel import available, csv_columns
from tui_debugger.stats.records import ROW, RecordedColumns, RecordState, mean_tells_nan
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
_OTHER_TITLES: Final = {"input/output": "io", "index": "slot", "l2norm": "l2norm value"}
"""Titles of msprobe and of devices, and the usual ones."""
_OF_OPERATOR: Final = re.compile(r"input/output\s*,\s*index\s*,.*", re.IGNORECASE)
"""The header in the file of an operator."""
_IDENTITY = ("op type", "op name", "timestamp", "io", "slot")
_ROLES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("op type", "op name"), csv_columns.NAME),
    **dict.fromkeys(("timestamp", "slot"), csv_columns.WHOLE),
    **dict.fromkeys(("io", "data type"), csv_columns.WORD),
    "shape": csv_columns.QUOTED_WORD,
    **dict.fromkeys(_NUMBERS, csv_columns.NUMBER),
}
"""How the kernel reads each column."""
_FIRST_COUNT = len(_VALUES)
_FIXED_COLUMNS = 20
_WRONG_MEAN_FROM = 20_000
"""Number of elements from which ``Avg Value`` of MindSpore 1.6 to 2.3 covers only the first part of a tensor."""

_AT_ONCE = 1 << 28
"""Bytes up to which a file is read at once."""
_BATCH = 1 << 24
"""Bytes of the lines that the kernel splits together."""

_SAW_NAN, _SAW_POS_INF, _SAW_NEG_INF = 1, 2, 4


@dataclass(frozen=True)
class Statistics:
    """The rows of one or several statistic files as columns."""

    prefixes: tuple[bytes, ...]
    """``type.name`` as bytes, the first part of a tensor file's name; ``prefix`` indexes into it."""
    prefix: Int32
    side: UInt8
    slot: Int16
    timestamp: Int64
    numbers: tuple[Float64, ...]
    """11 columns: max, min, avg, l2norm, then the counts; NaN where not recorded or not finite. A column of equal
    numbers is broadcast from one.
    """
    seen: UInt8
    """Bits of non-finite values among the extremes (1 NaN, 2 +Inf, 4 -Inf)."""
    fixed: Mask
    """Rows of the older generation."""
    dtypes: tuple[str, ...]
    """Distinct values; ``dtype`` indexes into them."""
    dtype: Int16
    shapes: tuple[tuple[int, ...], ...]
    """Distinct values; ``shape`` indexes into them."""
    shape: Int32
    broken: int = 0
    """Number of lines that made no sense, or are missing after a header."""

    def __len__(self) -> int:
        return len(self.prefix)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without columns that are shared with other files."""
        columns: list[Array] = [*self.numbers, self.timestamp, self.seen]
        return sum(column.nbytes for column in columns if column.strides != (0,))

    def meta(self, row: int) -> tuple[str, tuple[int, ...]]:
        return self.dtypes[int(self.dtype[row])], self.shapes[int(self.shape[row])]

    def doubtful_mean(self, row: int, *, right_mean: bool = False) -> float | None:
        """Returns a recorded mean that ``columns`` does not believe, else None."""
        mean, count = float(self.numbers[2][row]), float(self.numbers[_FIRST_COUNT][row])
        size = count if 0 <= count < math.inf else math.prod(self.shapes[int(self.shape[row])])
        believed = right_mean and not self.fixed[row]
        return mean if size >= _WRONG_MEAN_FROM and not believed and math.isfinite(mean) else None

    def columns(self, rows: Int64, *, right_mean: bool = False) -> RecordedColumns:
        """The statistics of some rows; not right for counts that a float64 cannot hold exactly.

        Fields that were not recorded are 0 or NaN. NaN and Inf among the recorded extremes count as one such element
        where no count was recorded. ``right_mean``: the mean can be believed whatever the size (MindSpore 2.4 and
        newer).
        """
        numbers, seen = np.stack([column[rows] for column in self.numbers], axis=1), self.seen[rows]
        values = np.where(np.isfinite(numbers), numbers, np.nan)
        with np.errstate(invalid="ignore", over="ignore"):
            known: Mask = np.greater_equal(values[:, _FIRST_COUNT:], 0)
            right: Mask = np.asarray(~(values[:, _FIRST_COUNT:] >= _INEXACT).any(axis=1))
            counts = np.where(known, np.minimum(values[:, _FIRST_COUNT:], _MOST_ELEMENTS), 0).astype(np.int64)
            maximum, minimum, mean, norm = values[:, :_FIRST_COUNT].T.copy()
            inverted: Mask = np.less(maximum, minimum)
            sum_squares = np.where(np.isnan(norm), 0.0, norm * norm)
        count, negative, positive, nan, neg_inf, pos_inf, zero = counts.T
        saw_nan, saw_pos_inf, saw_neg_inf = ((seen & bit) != 0 for bit in (_SAW_NAN, _SAW_POS_INF, _SAW_NEG_INF))
        nan, pos_inf, neg_inf = (
            np.where(saw, np.maximum(each, 1), each)
            for each, saw in ((nan, saw_nan), (pos_inf, saw_pos_inf), (neg_inf, saw_neg_inf))
        )
        sizes = np.array([int(np.prod(shape, dtype=np.int64)) for shape in self.shapes], np.int64)
        count = np.where(known[:, 0], count, sizes[self.shape[rows]])
        right &= (count >= 0) & (count < _INEXACT)
        every = np.sum((negative, positive, zero, nan, pos_inf, neg_inf), axis=0, dtype=np.float64)
        # 2.4 and newer count -Inf among the elements below 0 and +Inf among those above.
        signed = known.all(axis=1) & (every > count)
        negative = np.where(signed, np.maximum(negative - neg_inf, 0), negative)
        positive = np.where(signed, np.maximum(positive - pos_inf, 0), positive)
        doubtful = (count >= _WRONG_MEAN_FROM) & (self.fixed[rows] | (not right_mean))
        # 2.3 and older write ∓1.8e308 for a tensor without a finite element.
        maximum[inverted] = minimum[inverted] = mean[inverted | doubtful] = np.nan
        # A finite norm tells of any NaN or Inf; extremes do so if they are over all elements (2.4 and newer).
        told = ~np.isnan(norm) | (right_mean & ~np.isnan(maximum) & ~np.isnan(minimum))
        no_nan, no_neg_inf, no_pos_inf = ~known[:, 3:6].T
        open_nan = no_nan & (saw_nan | ~told)
        open_inf = (no_neg_inf & saw_neg_inf) | (no_pos_inf & saw_pos_inf)
        open_inf |= (no_neg_inf | no_pos_inf) & (saw_nan | ~told)
        found = np.zeros(len(rows), ROW)
        for name, column in (
            ("count", count), ("nan", nan), ("pos_inf", pos_inf), ("neg_inf", neg_inf), ("zero", zero),
            ("negative", negative), ("positive", positive), ("minimum", minimum), ("maximum", maximum), ("mean", mean),
            ("abs_mean", np.nan), ("variance", np.nan), ("sum_squares", sum_squares), ("state", RecordState.MEASURED),
            ("at_least", int(AtLeast.NAN) * open_nan + int(AtLeast.INF) * open_inf),
        ):  # fmt: skip
            found[name] = column
        _, first, number = np.unique(
            self.dtype[rows].astype(np.int64) * len(self.shapes) + self.shape[rows],
            return_index=True,
            return_inverse=True,
        )
        found["meta"] = number
        return RecordedColumns(found, tuple(TensorMeta(*self.meta(int(rows[at])), 0) for at in first), right)


_INEXACT = 1 << 53
_MOST_ELEMENTS = 1 << 62
"""No tensor has as many."""


def read_statistics(path: Path, progress: ProgressFn = no_progress) -> Statistics:
    """Reads a statistic file or raises OSError; lines that make no sense are counted and skipped."""
    if not available():
        return read_line_by_line(path, progress)
    try:
        content = read_regular(path, _AT_ONCE)
    except FileTooLargeError:
        return read_line_by_line(path, progress)
    rows, start, done = _StatisticRows(), 0, 0
    while start < len(content):
        stop = content.rfind(b"\n", start, start + _BATCH) + 1
        if not stop or start + _BATCH >= len(content) > stop:  # a long line, or a last one without its end
            return read_line_by_line(path, progress)
        done += rows.add_lines(content[start:stop])
        start = stop
        if start < len(content):
            progress(Progress(done, 0, "reading statistics"))
    return rows.columns()


def read_line_by_line(path: Path, progress: ProgressFn = no_progress) -> Statistics:
    """``read_statistics`` without the kernel, and of files that are too large or too odd to be read as columns."""
    rows = _StatisticRows()
    for number, line in enumerate(read_lines(path, cut=True, ends=True)):
        rows.add(line.decode("utf-8", "surrogateescape").strip(), whole=line.endswith(b"\n"))
        if number % 4096 == 4095:
            progress(Progress(number + 1, 0, "reading statistics"))
    return rows.columns()


class OperatorFiles:
    """Takes in the files of statistics that a device writes, one for each run of an operator."""

    def __init__(self) -> None:
        self.count = 0
        self._rows = _StatisticRows()

    def take(self, path: Path, prefix: bytes, timestamp: int) -> bool:
        """Takes in a file or raises OSError; returns False when it holds no statistics of an operator.

        ``prefix`` is ``type.name`` of the operator, ``timestamp`` when it ran, in microseconds since the epoch.
        """
        op_type, _, op_name = prefix.decode("utf-8", "surrogateescape").partition(".")
        head = ""
        for line in read_lines(path, cut=True, ends=True):
            text = line.decode("utf-8", "surrogateescape").strip()
            if not head:
                if _OF_OPERATOR.fullmatch(text) is None:
                    return False
                text, head = f"Op Type,Op Name,Timestamp,{text}", f"{op_type},{op_name},{timestamp},"
            elif text:
                text = head + text
            self._rows.add(text, whole=line.endswith(b"\n"))
        self.count += bool(head)
        return bool(head)

    def statistics(self) -> Statistics:
        return self._rows.columns()


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yields rows as text by column title, without rows that name no tensor; nothing if the file cannot be read.

    A second run appends its rows, with a new header where a new process wrote it: that header counts from there on.
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


class _RowBlock(NamedTuple):
    """Rows as columns: see ``Statistics``. ``numbers`` are ``_UNKNOWN`` where nothing was recorded."""

    prefix: Int32
    side: UInt8
    slot: Int16
    timestamp: Int64
    dtype: Int16
    shape: Int32
    fixed: Mask
    numbers: Float64

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> _RowBlock:
        """Makes columns of the right types."""
        return cls(*map(np.ascontiguousarray, columns, _TYPES))

    @classmethod
    def joined(cls, blocks: Sequence[_RowBlock]) -> _RowBlock:
        return blocks[0] if len(blocks) == 1 else cls(*map(np.concatenate, zip(*blocks, strict=True)))


_TYPES: Final = (np.int32, np.uint8, np.int16, np.int64, np.int16, np.int32, np.bool_, np.float64)
"""Of the columns of a ``_RowBlock``."""


class _Named(NamedTuple):
    """The names in the first lines of a file, and the numbers made of them."""

    names: bytes
    """``type.name``, a line each."""
    prefixes: tuple[bytes, ...]
    numbers: Int32
    """By line, index into ``prefixes``."""


_latest_names: list[_Named] = []
_latest_block: list[_RowBlock] = []
"""Of the file that was read last: steps and ranks of a run share names, slots and shapes, which are then kept once."""


class _StatisticRows:
    """Collects rows; the header may come again when a second run appended to the file."""

    def __init__(self) -> None:
        self._header: dict[str, int] = {}
        self._width = 0
        self._identity: tuple[int, ...] = ()
        """The columns of the titles of ``_IDENTITY``; empty where one is missing."""
        self._numbered: tuple[int, ...] = ()
        """The columns of the titles of ``_NUMBERS``; -1 where one is missing."""
        self._sides: dict[str, int | None] = {}
        self._shape_texts: dict[str, int] = {}
        self._dtype_texts: dict[str, int] = {}
        """Numbers of texts, sides and shapes by text, because texts come again."""
        self._prefixes: dict[bytes, int] = {}
        self._dtypes: dict[str, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}
        self._named: _Named | None = None
        """The names of the first lines, until there are others."""
        self._ids: list[tuple[int, int, int, int, int, int]] = []
        self._fixed: list[bool] = []
        self._numbers: list[list[float]] = []
        self._blocks: list[_RowBlock] = []
        """Finished blocks; their rows come before the rows in ``_ids``, ``_fixed`` and ``_numbers``."""
        self._broken = 0
        self._ends_early = True
        """No line followed the last header: its writer was stopped."""

    def add_lines(self, content: bytes) -> int:
        """Takes whole lines, as columns where they are all alike: fifteen times as fast as one by one."""
        lines = content.count(b"\n")
        first, _, others = content.partition(b"\n")
        if first[:7].lower() == b"op type":
            self._add_whole(first)
            content = others
        block = self._alike(content, lines - (content is others)) if content and self._identity else None
        if block is not None:
            self._flush()
            self._blocks.append(block)
            self._ends_early = False
        else:
            for line in content.split(b"\n")[:-1]:
                self._add_whole(line)
        return lines

    def _add_whole(self, line: bytes) -> None:
        text = line[: LINE_LIMIT + 1].decode("utf-8", "surrogateescape").strip()
        self.add(text, whole=len(line) <= LINE_LIMIT)

    def _alike(self, content: bytes, lines: int) -> _RowBlock | None:
        """The rows of lines with equally many cells, none of them odd; else None."""
        header = self._header
        if header["op type"] > header["op name"]:
            return None
        roles, places = [csv_columns.SKIPPED] * self._width, [0] * self._width
        for title, at in header.items():
            roles[at] = _ROLES.get(title, csv_columns.SKIPPED)
            places[at] = _NUMBERS.index(title) if title in _NUMBERS else 0
        numbers = np.full((lines, len(_NUMBERS)), _UNKNOWN)
        found = csv_columns.columns_of(content, roles, places, numbers, LINE_LIMIT)
        if found is None:
            return None
        for row, place, text in found.odd:
            numbers[row, place] = _number(text)
        wholes = dict(zip(_in_file(header, "slot", "timestamp"), found.wholes.T, strict=True))
        words = dict(
            zip(_in_file(header, "io", "data type", "shape"), zip(found.words.T, found.texts, strict=True), strict=True)
        )
        sides = [self._side(text) for text in words["io"][1]]
        if wholes["slot"].max() > MAX_SLOT or None in sides:
            return None
        dtype, shape = (
            np.array([number(text) for text in words[title][1]], np.int32)[words[title][0]]
            if title in words
            else np.full(lines, number(""))
            for title, number in (("data type", self._dtype_number), ("shape", self._shape_number))
        )
        prefix = self._prefix_numbers(found.names)
        if prefix is None:
            return None
        side = np.array(sides, np.uint8)[words["io"][0]]
        fixed = np.full(lines, self._is_fixed(found.cells))
        return _RowBlock.of(prefix, side, wholes["slot"], wholes["timestamp"], dtype, shape, fixed, numbers)

    def _is_fixed(self, cells: int) -> bool:
        return self._width == _FIXED_COLUMNS and "l2norm value" not in self._header and cells == self._width

    def _prefix_numbers(self, names: bytes) -> Int32 | None:
        """Numbers of the prefixes of some rows, new ones entered; None where a row is a header."""
        first = not self._prefixes
        latest = next(iter(_latest_names), None) if first else None
        if latest is not None and latest.names == names:
            self._prefixes = dict(zip(latest.prefixes, range(len(latest.prefixes)), strict=True))
            self._named = latest
            return latest.numbers
        if b"op type." in names.lower():
            return None
        texts = names.split(b"\n")
        texts.pop()
        for text in texts:
            self._prefixes.setdefault(text, len(self._prefixes))
        numbers = np.fromiter(map(self._prefixes.__getitem__, texts), np.int32, len(texts))
        if first:
            self._named = _Named(names, tuple(self._prefixes), numbers)
            _latest_names[:] = [self._named]
        return numbers

    def _flush(self) -> None:
        if self._ids:
            self._blocks.append(_RowBlock.of(*np.array(self._ids, np.int64).T, self._fixed, self._numbers))
            self._ids, self._fixed, self._numbers = [], [], []

    def add(self, line: str, *, whole: bool = True) -> None:
        if not line:
            return
        if not whole:  # the last number may be cut as well
            self._broken, self._ends_early = self._broken + 1, False
            return
        try:
            fields = _fields(line)
        except csv.Error:
            self._broken += 1
            return
        self._ends_early = fields[0].strip().lower() == "op type"
        if self._ends_early:
            self._start(fields)
        elif not self._row(fields):
            self._broken += 1

    def _start(self, fields: list[str]) -> None:
        titles = [_OTHER_TITLES.get(title, title) for title in (field.strip().lower() for field in fields)]
        while titles and not titles[-1]:
            titles.pop()
        header = self._header = {title: i for i, title in enumerate(titles)}
        self._width = len(titles)
        known = all(title in header for title in _IDENTITY)
        self._identity = tuple(header[title] for title in _IDENTITY) if known else ()
        self._numbered = tuple(header.get(title, -1) for title in _NUMBERS)

    def _row(self, fields: list[str]) -> bool:
        header, width = self._header, self._width
        if len(fields) < width or not self._identity or (len(fields) > width and any(fields[width:])):
            return False
        op_type, op_name, timestamp, side, slot = [fields[at].strip() for at in self._identity]
        when, index, at = _integer(timestamp), _integer(slot), self._side(side)
        if at is None or not op_type or not op_name or not 0 <= when <= MAX_TIMESTAMP or not 0 <= index <= MAX_SLOT:
            return False
        prefix = f"{op_type}.{op_name}".encode("utf-8", "surrogateescape")
        shape = self._shape_number(fields[header["shape"]] if "shape" in header else "")
        dtype = self._dtype_number(fields[header["data type"]] if "data type" in header else "")
        self._ids.append((self._prefixes.setdefault(prefix, len(self._prefixes)), at, index, when, dtype, shape))
        self._fixed.append(self._is_fixed(len(fields)))
        try:
            numbers = [float(fields[at]) if at >= 0 else _UNKNOWN for at in self._numbered]
        except ValueError:
            numbers = [_number(fields[at]) if at >= 0 else _UNKNOWN for at in self._numbered]
        self._numbers.append(numbers)
        return True

    def _side(self, text: str) -> int | None:
        if text not in self._sides:
            self._sides[text] = SIDES.get(text.lower().encode("utf-8", "replace"))
        return self._sides[text]

    def _shape_number(self, text: str) -> int:
        number = self._shape_texts.get(text)
        if number is None:
            number = self._shape_texts[text] = self._shapes.setdefault(_shape(text), len(self._shapes))
        return number

    def _dtype_number(self, text: str) -> int:
        number = self._dtype_texts.get(text)
        if number is None:
            name = logical_dtype(text.strip().removeprefix("DT_")) if text else ""
            number = self._dtype_texts[text] = self._dtypes.setdefault(name, len(self._dtypes))
        return number

    def columns(self) -> Statistics:
        self._flush()
        block = _RowBlock.joined(self._blocks or [_NO_ROWS])
        latest = next(iter(_latest_block), _NO_ROWS)
        block = block._replace(
            **{
                name: old
                for name in ("prefix", "side", "slot", "dtype", "shape")
                if np.array_equal(old := getattr(latest, name), getattr(block, name))
            }
        )
        _latest_block[:] = [block._replace(timestamp=_NO_ROWS.timestamp, numbers=_NO_ROWS.numbers)]
        numbers = block.numbers
        unknown = numbers == _UNKNOWN
        nans = np.isnan(numbers[:, :_FIRST_COUNT])
        # Before 2.4 a NaN reaches the mean and the norm, but not the extremes.
        said = np.where(unknown[:, :_FIRST_COUNT], np.nan, numbers[:, :_FIRST_COUNT])
        by_mean = nans[:, 2] & mean_tells_nan(said[:, 0], said[:, 1], said[:, 3])
        saw_nan = nans[:, :2].any(axis=1) | nans[:, 3] | by_mean
        saw_pos_inf = (numbers[:, :2] == np.inf).any(axis=1)
        saw_neg_inf = (numbers[:, :2] == -np.inf).any(axis=1)
        seen = _SAW_NAN * saw_nan + _SAW_POS_INF * saw_pos_inf + _SAW_NEG_INF * saw_neg_inf
        numbers[unknown] = np.nan
        named = self._named
        return Statistics(
            prefixes=named.prefixes
            if named is not None and len(named.prefixes) == len(self._prefixes)
            else tuple(self._prefixes),
            prefix=block.prefix,
            side=block.side,
            slot=block.slot,
            timestamp=block.timestamp,
            numbers=tuple(map(_column, numbers.T)),
            seen=seen.astype(np.uint8),
            fixed=block.fixed,
            dtypes=tuple(self._dtypes),
            dtype=block.dtype,
            shapes=tuple(self._shapes),
            shape=block.shape,
            broken=self._broken + self._ends_early,
        )


_NO_ROWS: Final = _RowBlock.of(*[()] * 7, np.zeros((0, len(_NUMBERS))))


def _column(numbers: Float64) -> Float64:
    """A copy of a column; broadcast from one number where all bits are equal."""
    bits = numbers.view(np.int64)
    same = len(bits) > 0 and bool((bits == bits[0]).all())
    return np.broadcast_to(numbers[0], numbers.shape) if same else numbers.copy()


def _in_file(header: Mapping[str, int], *titles: str) -> list[str]:
    return sorted((title for title in titles if title in header), key=header.__getitem__)


def _fields(line: str) -> list[str]:
    """The cells of a line; raises csv.Error without any. A lone quoted cell is cut out by hand: thrice as fast."""
    if '"' not in line:
        return line.split(",")
    parts = line.split('"')
    if len(parts) == 3 and parts[0].endswith(",") and parts[2].startswith(","):
        return [*parts[0][:-1].split(","), parts[1], *parts[2][1:].split(",")]
    try:
        return next(csv.reader((line,)))
    except StopIteration:
        raise csv.Error("no cell") from None


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
