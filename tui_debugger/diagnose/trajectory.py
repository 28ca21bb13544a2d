"""Follows the weights of a run over its steps: which move and how far, never move, grow, or lose rank.

The steps are those of a dump or of a directory of checkpoints. A weight is read step by step in blocks, together with
its two values before: memory does not grow with the steps or with the weight.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float64, Int64, Mask, UInt8
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.progress import retry_when_renumbered, scaled
from tui_debugger.check.types import Pair
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.diagnose.trend import Point, PointState
from tui_debugger.errors import TdbgError
from tui_debugger.model import TRAINABLE, Progress, ProgressFn, Side, TensorKey, TensorMeta, no_progress
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.compare_pairs import wide
from tui_debugger.stats.dtypes import is_numeric, name_of
from tui_debugger.stats.health import even_bounds
from tui_debugger.stats.npy import open_lazily
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import plain
from tui_debugger.text.numbers import NONE, and_more, number, plural
from tui_debugger.text.tensors import BARS, shape_text, step_text, steps_text

_BLOCK: Final = 1 << 14
"""The number of elements that are processed at once."""
MOST_ROWS: Final = 256
MOST_COLUMNS: Final = 1024
"""A larger matrix is sampled evenly to so many rows and columns before its singular values are computed."""
_EVERY_STEP: Final = 1 << 22
"""Up to so many multiplications the rank is taken at each step; else where the weight is first and last finite."""
GROWN: Final = 2.0
"""The factor by which a norm must grow or shrink for a remark."""
COLLAPSED: Final = 0.5
"""The part of its effective rank below which a weight gets a remark."""
_KIND: Final = 6
"""The fewest weights of a kind that tell what is usual for it."""
UNLIKE: Final = 3.5
"""A weight is unlike its kind from this robust z of log(|update| / |weight|) on, in both directions."""
_TIMES: Final = 3.0
"""It must also move so many times as far as the median of its kind, or so many times less."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Comparison of one weight at two successive points.

    Attributes:
        square: sum of squares of the later values.
        step: sum of squares of the difference; NaN without earlier values.
        dot: inner product of this difference and the previous one; NaN without a previous one.
        equal: all bits are the same; for different element types, all values.
        finite: no later value is NaN or Inf.
    """

    square: float
    step: float
    dot: float
    equal: bool
    finite: bool


def moved(values: Array, before: Array | None, earlier: Array | None, progress: ProgressFn = no_progress) -> Moved:
    """Compares a weight with its values one point and two points ``before`` and ``earlier``, in float64."""
    flat = values.reshape(-1)
    then, first = (None if each is None else each.reshape(-1) for each in (before, earlier))
    square, step, dot, equal, finite = 0.0, math.nan, math.nan, before is not None, True
    if then is not None:
        step, dot = 0.0, 0.0 if first is not None else math.nan
    count = values.size
    with np.errstate(all="ignore"):
        for start in range(0, count, _BLOCK):
            progress(Progress(start, count))
            piece = slice(start, start + _BLOCK)
            now = np.asarray(flat[piece])
            x = wide(now)
            found = _squares(x)
            square += found
            finite = finite and (math.isfinite(found) or bool(np.isfinite(x).all()))
            if then is None:
                continue
            old = np.asarray(then[piece])
            same = old.dtype == now.dtype and old.tobytes() == now.tobytes()
            if same and math.isfinite(found):
                continue
            y = wide(old)
            difference = x - y
            equal = equal and (same or (old.dtype != now.dtype and not difference.any()))
            step += _squares(difference)
            if first is not None:
                other = y - wide(np.asarray(first[piece]))
                dot += float(np.einsum("i,i", difference.conj(), other).real)
    return Moved(square, step, dot, equal, finite)


def _squares(x: Array) -> float:
    return float(
        np.einsum("i,i", x, x.conj()).real
    )  # no BLAS: on such small blocks its threads only wait for each other


def effective_rank(values: Array) -> float:
    """Returns exp of the entropy of the normalised singular values (Roy and Vetterli, 2007) of a matrix.

    Further dimensions count as columns; large matrices are sampled (see ``thinned_to``). 0 for zeros; NaN where an
    element is not finite, or for fewer than two dimensions.
    """
    if values.ndim < 2 or not values.size:
        return math.nan
    matrix = values.reshape(values.shape[0], -1)
    kept = [_evenly(length, most) for length, most in zip(matrix.shape, (MOST_ROWS, MOST_COLUMNS), strict=True)]
    if kept[0] is not None:
        matrix = np.stack([np.asarray(matrix[row]) for row in kept[0].tolist()])
    part = wide(np.asarray(matrix if kept[1] is None else np.asarray(matrix)[:, kept[1]]))
    if not np.isfinite(part).all():
        return math.nan
    try:
        singular = np.linalg.svd(part, compute_uv=False)
    except np.linalg.LinAlgError:
        return math.nan
    total = float(singular.sum())
    if not total:
        return 0.0
    shares = singular[singular > 0] / total
    return math.exp(-float((shares * np.log(shares)).sum()))


def thinned_to(shape: Sequence[int]) -> tuple[int, int] | None:
    """Returns the rows and columns that the effective rank of a weight is taken of; None where it is all of them."""
    if len(shape) < 2:
        return None
    rows, columns = shape[0], math.prod(shape[1:])
    kept = min(rows, MOST_ROWS), min(columns, MOST_COLUMNS)
    return None if kept == (rows, columns) else kept


def _evenly(count: int, most: int) -> Int64 | None:
    return None if count <= most else np.arange(most, dtype=np.int64) * count // most


def _cheap(shape: Sequence[int]) -> bool:
    rows, columns = thinned_to(shape) or (shape[0], math.prod(shape[1:]))
    return min(rows, columns) * rows * columns <= _EVERY_STEP


class Stillness(Enum):
    """Whether a weight never moves, and how that is known."""

    MOVES = "moves"
    BYTES = "never moves"
    DIGESTS = "never moves (recorded digests)"
    STATISTICS = "its statistics never change"
    UNKNOWN = "nothing to compare"


@dataclass(frozen=True, slots=True, eq=False)
class WeightPath:
    """A weight over the steps: a point for each write, in the order in which they ran.

    Attributes:
        key: the weight at its last point.
        row: of its node in the node table of its rank.
        kind: the last part of the name, and matrix or vector; weights of one kind are compared with each other.
        state: ``PointState`` of each point.
        norm: L2 norm; NaN where unknown, or where an element is NaN or Inf.
        ratio: norm of the update since the last point with values, by the norm there; NaN without one; 0 / 0 is 0.
        cosine: between this update and the one before.
        rank: effective rank; NaN where it was not taken.
        finite: no NaN and no Inf, as far as known.
        errors: why points could not be read.
    """

    key: TensorKey
    row: int
    kind: str
    meta: TensorMeta | None
    steps: Int64
    rounds: Int64
    state: UInt8
    norm: Float64
    ratio: Float64
    cosine: Float64
    rank: Float64
    finite: Mask
    still: Stillness
    errors: Mapping[Point, str] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return int(np.isin(self.state, (PointState.MEASURED, PointState.RECORDED)).sum())

    @property
    def with_values(self) -> int:
        return int((self.state == PointState.MEASURED).sum())

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite norm; NaN for fewer than two."""
        known = self.norm[np.isfinite(self.norm)]
        return (float(known[0]), float(known[-1])) if len(known) > 1 else (math.nan, math.nan)

    @property
    def growth(self) -> float:
        """The last finite norm / the first; Inf for growth from 0."""
        first, last = self.ends
        return last / first if first else math.inf if last else 1.0

    @property
    def rank_ends(self) -> tuple[float, float]:
        """The first and the last effective rank; NaN without one."""
        known = self.rank[~np.isnan(self.rank)]
        return (float(known[0]), float(known[-1])) if len(known) else (math.nan, math.nan)

    @property
    def usual(self) -> float:
        """The median of |update| / |weight|; NaN without one."""
        return _median(self.ratio)

    @property
    def last(self) -> float:
        return float(self.ratio[-1]) if len(self.ratio) else math.nan

    @property
    def direction(self) -> float:
        """The median cosine of successive updates: 1 means one direction, -1 back and forth."""
        return _median(self.cosine)

    @property
    def first_bad(self) -> int | None:
        bad = np.flatnonzero(~self.finite)
        return int(self.steps[bad[0]]) if len(bad) else None


def _median(column: Float64) -> float:
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else math.nan


class RemarkKind(Enum):
    """The subject of a remark, as a word for documents."""

    NOT_FINITE = "not_finite"
    STILL = "still"
    GROWS = "grows"
    SHRINKS = "shrinks"
    MORE = "moves_more"
    LESS = "moves_less"
    RANK = "rank"


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that sets a weight apart; ``size`` is a factor, or the step from which on it holds."""

    about: RemarkKind
    weight: int
    size: float
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """All weights over the steps.

    Attributes:
        pairs: (rank, step) that were asked for.
        weights: those with at least one point, by rank, in the order of the node table.
        remarks: by kind in the order of ``RemarkKind``, the strongest first.
        absent: (rank, name) of weights that were dumped at none of the steps.
    """

    pairs: tuple[Pair, ...]
    weights: tuple[WeightPath, ...]
    remarks: tuple[Remark, ...]
    absent: tuple[tuple[int, str], ...]

    @property
    def steps(self) -> list[int]:
        return sorted({step for _, step in self.pairs})

    @property
    def several_ranks(self) -> bool:
        return len({each.key.rank for each in self.weights}) > 1

    def name(self, weight: WeightPath) -> str:
        return (f"rank {weight.key.rank} " if self.several_ranks else "") + clean(weight.key.node)

    def remarks_of(self, weight: int) -> list[Remark]:
        return [each for each in self.remarks if each.weight == weight]

    def known(self) -> int:
        """Number of weights with two points to compare, maybe by recorded norms only."""
        return sum(each.points > 1 for each in self.weights)

    @property
    def unreadable(self) -> int:
        return sum(int((each.state == PointState.UNREADABLE).sum()) for each in self.weights)

    @property
    def exit_code(self) -> int:
        """0, or 2 where nothing could be compared or something could not be read."""
        return 0 if self.known() and not self.unreadable else 2


# -- reading -----------------------------------------------------------------------------------------


def trajectory(session: DiagnosedRun, pairs: Sequence[Pair], progress: ProgressFn = no_progress) -> Trajectory:
    steps: dict[int, list[int]] = {}
    for rank, step in pairs:
        steps.setdefault(rank, []).append(step)
    paths: list[WeightPath] = []
    absent: list[tuple[int, str]] = []
    lists: list[tuple[DataFlow, list[tuple[int, list[Located]]]]] = []
    for rank, of_rank in steps.items():
        ask = partial(_weights, session, rank, of_rank, progress)
        lists.append(retry_when_renumbered(ask))
    total, done = sum(len(places) for _, found in lists for _, places in found), 0
    for flow, found in lists:
        for row, places in found:
            if not places:
                absent.append((flow.rank, flow.nodes.names[row]))
                continue
            paths.append(_follow(flow, row, places, scaled(progress, done, total, len(places))))
            done += len(places)
    return Trajectory(tuple(pairs), tuple(paths), tuple(_remarks(paths)), tuple(absent))


def _weights(
    session: DiagnosedRun, rank: int, steps: Sequence[int], progress: ProgressFn
) -> tuple[DataFlow, list[tuple[int, list[Located]]]]:
    """Each weight of a rank, by its row in the graph that updates it, with its writes in the order of time."""
    flow = session.flow(rank, progress)
    for step in steps:
        flow.table(step)  # it may bring nodes
    nodes, scope = flow.nodes, session.in_scope(flow.rank)
    seen: set[int] = set()
    found = []
    for row in range(len(nodes)):
        if nodes.category_of(row) not in TRAINABLE or row in seen or not scope[row : row + 1].all():
            continue
        mates = flow.shared(row) or (row,)
        seen.update(mates)
        own = [each for each in mates if not flow.updated_elsewhere(each)] or list(mates)
        places = [at for step in steps for each in own for at in flow.written(step, each, Side.OUTPUT, 0)]
        places.sort(key=lambda at: (flow.turn(at.row, at.step, at.round), at.step, at.round))
        found.append((own[0], places))
    return flow, found


def _follow(flow: DataFlow, row: int, places: Sequence[Located], progress: ProgressFn) -> WeightPath:
    columns = _PointColumns(flow)
    name = flow.nodes.names[row]
    for number_, place in enumerate(places):

        def tell(_: Progress, number_: int = number_) -> None:
            progress(Progress(number_, len(places), name))

        columns.add(place, tell)
    columns.end_rank()
    last = places[columns.kept[-1]]
    return columns.path(flow.key(last), last.row, [places[at] for at in columns.kept])


class _PointNumbers(NamedTuple):
    """The columns of ``WeightPath`` at one point."""

    state: PointState
    norm: float = math.nan
    ratio: float = math.nan
    cosine: float = math.nan
    rank: float = math.nan
    finite: bool = True


class _PointColumns:
    """Collects the points of one weight while it is read."""

    def __init__(self, flow: DataFlow) -> None:
        self._flow = flow
        self.kept: list[int] = []
        self._count = 0
        self._rows: list[_PointNumbers] = []
        self._errors: dict[Point, str] = {}
        self._window: deque[Array] = deque(maxlen=2)
        self._length = math.nan
        """The norm of the last update."""
        self._before = math.nan
        """The norm of the last values."""
        self._rank_of: int | None = None
        """The point of the newest finite values, while its rank is not taken."""
        self._equal: list[bool] = []
        self._recorded: list[tuple[int, Any]] = []
        self._step = -1
        self.meta: TensorMeta | None = None

    def add(self, place: Located, progress: ProgressFn) -> None:
        at, self._count = self._count, self._count + 1
        progress(Progress(0, 0))
        table = self._flow.table(place.step)
        flags = TensorFlag(int(table.flags[place.index]))
        if flags & TensorFlag.STAT_ONLY:
            self._take(at, self._of_record(table, place.index, flags))
        else:
            try:
                values = open_lazily(table.spec(place.index))
                found = self._of_values(place, values, progress)
            except (TdbgError, OSError, ValueError) as error:
                what = error.what if isinstance(error, TdbgError) else str(error)
                self._errors[place.step, place.round] = what
                found = _PointNumbers(PointState.UNREADABLE)
            if found is not None:
                self._take(at, found)
        self._step = place.step

    def _take(self, at: int, found: _PointNumbers) -> None:
        self.kept.append(at)
        self._rows.append(found)

    def _of_record(self, table: TensorTable, index: int, flags: TensorFlag) -> _PointNumbers:
        stats, described = table.recorded(index), table.recorded_meta(index)
        if described is not None:
            self.meta = TensorMeta(described[0], described[1], 0)
        if stats is None or flags & TensorFlag.UNKNOWN:
            return _PointNumbers(PointState.NO_NUMBERS)
        self._recorded.append((table.hashed(index), stats))
        norm = stats.norm if not stats.bad else None
        return _PointNumbers(PointState.RECORDED, math.nan if norm is None else norm, finite=not stats.bad)

    def _of_values(self, place: Located, values: Array, progress: ProgressFn) -> _PointNumbers | None:
        """The numbers of a point; None for a second write in one step that changes nothing."""
        self.meta = TensorMeta(name_of(values.dtype), tuple(values.shape), values.nbytes)
        if not is_numeric(values.dtype):
            return _PointNumbers(PointState.NO_NUMBERS)
        before = self._window[-1] if self._window else None
        if before is not None and before.shape != values.shape:
            self._errors[place.step, place.round] = (
                f"shape changed from {shape_text(before.shape)} to {shape_text(values.shape)}"
            )
            self.end_rank()
            self._window.clear()
            self._length = self._before = math.nan
            self._equal.append(False)
            before = None
        earlier = self._window[-2] if len(self._window) > 1 else None
        found = moved(values, before, earlier, progress)
        if before is not None and found.equal and place.step == self._step:
            return None
        norm = math.sqrt(found.square) if found.finite else math.nan
        length = math.sqrt(found.step) if found.finite and found.step >= 0 else math.nan
        ratio = length / self._before if self._before else math.inf if length else length
        both = length * self._length
        cosine = max(-1.0, min(1.0, found.dot / both)) if both > 0 and math.isfinite(both) else math.nan
        if before is not None:
            self._equal.append(found.equal)
        rank = self._rank(values, finite=found.finite)
        self._window.append(values)
        self._length, self._before = length, norm
        return _PointNumbers(PointState.MEASURED, norm, ratio, cosine, rank, found.finite)

    def _rank(self, values: Array, *, finite: bool) -> float:
        if values.ndim < 2 or not values.size:
            return math.nan
        if not finite:
            self.end_rank()
            return math.nan
        first = all(math.isnan(each.rank) for each in self._rows)
        if first or _cheap(values.shape):
            self._rank_of = None
            return effective_rank(values)
        self._rank_of = len(self._rows)
        return math.nan

    def end_rank(self) -> None:
        """Takes the postponed rank of the newest finite values."""
        if self._rank_of is not None and self._window:
            self._rows[self._rank_of] = self._rows[self._rank_of]._replace(rank=effective_rank(self._window[-1]))
        self._rank_of = None

    def path(self, key: TensorKey, row: int, places: Sequence[Located]) -> WeightPath:
        state, *columns, finite = zip(*self._rows, strict=True)
        norm, ratio, cosine, rank = (np.array(each, np.float64) for each in columns)
        return WeightPath(
            key=key,
            row=row,
            kind=_kind(key.node, self.meta),
            meta=self.meta,
            steps=np.array([place.step for place in places], np.int64),
            rounds=np.array([place.round for place in places], np.int64),
            state=np.array(state, np.uint8),
            norm=norm,
            ratio=ratio,
            cosine=cosine,
            rank=rank,
            finite=np.array(finite, np.bool_),
            still=self._still(),
            errors=self._errors,
        )

    def _still(self) -> Stillness:
        recorded = self._recorded
        if self._equal and not all(self._equal):
            return Stillness.MOVES
        if self._equal:
            return Stillness.BYTES
        if len(recorded) < 2:
            return Stillness.UNKNOWN
        digests = {digest for digest, _ in recorded}
        if 0 not in digests:
            return Stillness.DIGESTS if len(digests) == 1 else Stillness.MOVES
        return Stillness.STATISTICS if all(stats == recorded[0][1] for _, stats in recorded) else Stillness.MOVES


_LAST_PART: Final = re.compile(r"[^./]+$")


def _kind(name: str, meta: TensorMeta | None) -> str:
    """``weight matrix``, ``weight vector``, ``embedding``: the weights that a weight is compared with."""
    if re.search(r"(^|[._/])\w*(emb|wte|wpe)\w*([._/]|$)", name, re.IGNORECASE):
        return "embedding"
    found = _LAST_PART.search(name)
    form = "" if meta is None else " matrix" if len(meta.shape) > 1 else " vector"
    return (found[0] if found is not None else name) + form


# -- what sets a weight apart ------------------------------------------------------------------------


def unlike_their_kind(paths: Sequence[WeightPath]) -> dict[int, tuple[float, float]]:
    """Returns weights that move much more or less than their kind: robust z of log ratios, and factor to the median.

    The usual spread is 1.4826 times the median distance from the median, at least 5 %.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for place, each in enumerate(paths):
        if each.usual > 0:
            groups.setdefault((each.key.rank, each.kind), []).append(place)
    found = {}
    for places in groups.values():
        if len(places) < _KIND:
            continue
        logs = np.log([paths[place].usual for place in places])
        off = logs - np.median(logs)
        z = off / max(1.4826 * float(np.median(np.abs(off))), 0.05)
        for place, score, distance in zip(places, z.tolist(), off.tolist(), strict=True):
            if abs(score) >= UNLIKE and abs(distance) >= math.log(_TIMES):
                found[place] = score, math.exp(distance)
    return found


def _remarks(paths: Sequence[WeightPath]) -> Iterator[Remark]:
    bad = [(each.first_bad, place) for place, each in enumerate(paths) if each.first_bad is not None]
    for step, place in sorted(bad):
        yield Remark(RemarkKind.NOT_FINITE, place, float(step), f"NaN or Inf from step {step_text(step)}")
    for place, each in enumerate(paths):
        if each.still in _STILL and each.first_bad is None:
            yield Remark(RemarkKind.STILL, place, 0.0, each.still.value)
    growth = [(each.growth, place) for place, each in enumerate(paths)]
    for factor, place in sorted((each for each in growth if GROWN <= each[0] < math.inf), reverse=True):
        yield Remark(RemarkKind.GROWS, place, factor, f"grows {times(factor)}")
    for factor, place in sorted(each for each in growth if each[0] <= 1 / GROWN):
        text = f"shrinks to 1/{number(float(f'{1 / factor:.3g}'))}" if factor else "shrinks to 0"
        yield Remark(RemarkKind.SHRINKS, place, factor, text)
    unlike = sorted(unlike_their_kind(paths).items(), key=lambda each: -abs(each[1][0]))
    for about, more in ((RemarkKind.MORE, True), (RemarkKind.LESS, False)):
        for place, (score, factor) in unlike:
            if (score > 0) is more:
                ratio = number(float(f"{factor if more else 1 / factor:.3g}"))
                than = "more" if more else "less"
                yield Remark(about, place, factor, f"changes {ratio} times {than} than its kind")
    for place, each in enumerate(paths):
        first, last = each.rank_ends
        if last < COLLAPSED * first:
            yield Remark(RemarkKind.RANK, place, last / first, f"effective rank {_rank(first)} to {_rank(last)}")


_STILL: Final = frozenset({Stillness.BYTES, Stillness.DIGESTS, Stillness.STATISTICS})


def times(factor: float) -> str:
    return f"{number(float(f'{factor:.3g}'))}×"


# -- words -------------------------------------------------------------------------------------------

_NAMED: Final = 4
"""The most weights that the headline names for one kind of remark."""


def headline(found: Trajectory) -> str:
    """The answer in a sentence: what sets weights apart, else how far they move."""
    total, steps = len(found.weights), len(found.steps)
    if not total:
        return "no weight was dumped at these steps"
    if not found.known():
        return f"nothing to compare: no weight of {total} has two steps"
    parts = [_remarks_text(found, about) for about in RemarkKind]
    said = [each for each in parts if each]
    if said:
        said[0] = said[0].replace(" ", f" of {plural(total, 'weight')} ", 1)
    usual = [each.usual for each in found.weights if not math.isnan(each.usual)]
    if not said and usual:
        many = "the weight moves" if total == 1 else f"all {total} weights move"
        said.append(f"{many} over {plural(steps, 'step')}, none grows or shrinks {number(GROWN)}×")
    if usual:
        said.append(f"an update is {_number(float(np.median(usual)))} of its weight (median)")
    elif not any(each.with_values > 1 for each in found.weights):
        said.append("only statistics were recorded: nothing but norms is known")
    return "; ".join(said)


def _remarks_text(found: Trajectory, about: RemarkKind) -> str:
    """``3 never move: a, b, c``."""
    remarks = [each for each in found.remarks if each.about is about]
    if not remarks:
        return ""
    names = and_more([found.name(found.weights[each.weight]) for each in remarks], _NAMED)
    one = len(remarks) == 1
    strongest = remarks[0].text
    alike = remarks[0].size == remarks[-1].size
    bad = strongest if alike else f"NaN or Inf, the first {strongest.removeprefix('NaN or Inf ')}"
    words = {
        RemarkKind.NOT_FINITE: f"{'holds' if one else 'hold'} {bad}",
        RemarkKind.STILL: "never moves" if one else "never move",
        RemarkKind.GROWS: strongest if one else f"grow, up to {strongest.removeprefix('grows ')}",
        RemarkKind.SHRINKS: strongest if one else f"shrink, the most {strongest.removeprefix('shrinks ')}",
        RemarkKind.MORE: strongest if one else f"change more than their kind, up to {strongest.split()[1]} times",
        RemarkKind.LESS: strongest if one else f"change less than their kind, up to {strongest.split()[1]} times",
        RemarkKind.RANK: f"{'loses' if one else 'lose'} rank ({strongest.removeprefix('effective ')})",
    }
    return f"{len(remarks)} {words[about]}: {names}"


def coverage_text(found: Trajectory) -> str:
    values = sum(each.with_values > 1 for each in found.weights)
    recorded = sum(each.points > 1 and each.with_values < 2 for each in found.weights)
    alone = sum(each.points < 2 for each in found.weights)
    words = [f"{plural(values, 'weight')} followed by values over {steps_text(found.steps)}"]
    if recorded:
        words.append(f"{recorded} by recorded statistics: norms only")
    if alone:
        words.append(f"{alone} with less than two steps")
    if found.absent:
        words.append(f"{len(found.absent)} dumped at none of these steps")
    if found.unreadable:
        words.append(f"{plural(found.unreadable, 'tensor')} unreadable")
    thinned = sum(each.meta is not None and thinned_to(each.meta.shape) is not None for each in found.weights)
    if thinned:
        words.append(f"effective rank of {thinned} from {MOST_ROWS} rows, {MOST_COLUMNS} columns at most")
    return ", ".join(words)


def doubts(found: Trajectory) -> list[str]:
    """Returns the reasons for exit code 2."""
    said = []
    for each in found.weights:
        bad = [point for point in each.errors if _state_at(each, point) is PointState.UNREADABLE]
        for why in dict.fromkeys(each.errors[point] for point in bad):
            steps = [point[0] for point in bad if each.errors[point] == why]
            said.append(f"{found.name(each)}: {clean(why)} at {steps_text(steps)}")
    if not found.known():
        said.append(headline(found))
    return said


def _state_at(weight: WeightPath, point: Point) -> PointState:
    at = np.flatnonzero((weight.steps == point[0]) & (weight.rounds == point[1]))
    return PointState(int(weight.state[at[-1]])) if len(at) else PointState.ABSENT


TITLES: Final = (
    *("weight", "shape", "first norm", "last norm", "growth", "update", "last update", "cosine", "eff. rank"),
    *("steps", "remarks"),
)
"""Titles of the table."""


def cells(found: Trajectory, place: int, room: int) -> tuple[str, ...]:
    """A row of the table, in the order of ``TITLES``; ``room`` is the width of the bars."""
    each = found.weights[place]
    first, last = each.ends
    ranks = each.rank_ends
    known = each.norm[~np.isnan(each.norm)]
    return (
        found.name(each),
        shape_text(each.meta.shape) if each.meta is not None else NONE,
        _number(first if len(known) != 1 else float(known[0])),
        "NaN" if not each.finite[-1:].all() else _number(last),
        NONE if math.isnan(each.growth) else times(each.growth) if each.growth < math.inf else "from 0",
        _number(each.usual),
        "from 0" if each.last == math.inf else _number(each.last),
        NONE if math.isnan(each.direction) else f"{each.direction:.2f}",
        NONE if math.isnan(ranks[0]) else f"{_rank(ranks[0])}→{_rank(ranks[1])}",
        bars(found, each, room),
        ", ".join(remark.text for remark in found.remarks_of(place)),
    )


def _number(value: float) -> str:
    return NONE if math.isnan(value) else number(float(f"{value:.3g}"))


def _rank(value: float) -> str:
    return f"{value:.3g}"


LEVELS: Final = (" ", "?", "·", *BARS, "!")
"""For each step: no update known, not read, no update, the bars, NaN or Inf."""
_BOUNDS: Final = tuple(10.0**power for power in range(-6, 1))
LEGEND: Final = (
    "steps: |update| / |weight|  · none  ▁ below 1e-6  ▃ from 1e-5  ▅ from 1e-3  ▇ from 0.1  █ from 1  "
    "! NaN, Inf  ? not read"
)


def levels(found: Trajectory, weight: WeightPath) -> UInt8:
    """Index into ``LEVELS`` for each of ``found.steps``; the largest of several writes in a step."""
    codes = np.zeros(len(found.steps), np.uint8)
    sizes = np.where(weight.ratio > 0, 3 + np.searchsorted(_BOUNDS, weight.ratio, side="right"), 2)
    sizes = np.where(np.isnan(weight.ratio), 0, sizes)
    sizes = np.where(weight.state == PointState.UNREADABLE, 1, sizes)
    sizes = np.where(~weight.finite, len(LEVELS) - 1, sizes).astype(np.uint8)
    np.maximum.at(codes, np.searchsorted(found.steps, weight.steps), sizes)
    return codes


def bars(found: Trajectory, weight: WeightPath, room: int) -> str:
    """|update| / |weight| by step as ``LEVELS``, the largest of joined ones."""
    codes = levels(found, weight)
    merged = np.maximum.reduceat(codes, even_bounds(len(codes), room)[:-1])
    return "".join(LEVELS[code] for code in merged.tolist())


def row(found: Trajectory, place: int) -> dict[str, Any]:
    each = found.weights[place]
    points = [
        {
            "step": int(each.steps[at]),
            **({"round": int(each.rounds[at])} if each.rounds[at] else {}),
            "state": PointState(int(each.state[at])).name.lower(),
            **{key: _plain(float(getattr(each, name)[at])) for key, name in _COLUMNS.items()},
            "finite": bool(each.finite[at]),
            "error": each.errors.get((int(each.steps[at]), int(each.rounds[at])), ""),
        }
        for at in range(len(each.steps))
    ]
    return {**summary(found, place), "steps": points}


_COLUMNS: Final = {"norm": "norm", "update_ratio": "ratio", "cosine": "cosine", "effective_rank": "rank"}
SUMMARY: Final = (
    *("rank", "graph", "node", "kind", "dtype", "shape", "norm_first", "norm_last", "growth", "update_ratio_median"),
    *("update_ratio_last", "cosine_median", "effective_rank_first", "effective_rank_last", "effective_rank_of"),
    *("still", "first_bad", "remarks"),
)
"""The columns of the table for programs."""


def summary(found: Trajectory, place: int) -> dict[str, Any]:
    """A weight for JSON and CSV without its steps: the keys are ``SUMMARY``."""
    each = found.weights[place]
    norms, ranks = each.ends, each.rank_ends
    sampled = thinned_to(each.meta.shape) if each.meta is not None else None
    values = (
        *(each.key.rank, each.key.graph, each.key.node, each.kind),
        *((each.meta.dtype, list(each.meta.shape)) if each.meta is not None else (None, None)),
        *map(_plain, (*norms, each.growth, each.usual, each.last, each.direction, *ranks)),
        list(sampled) if sampled is not None and not math.isnan(ranks[0]) else None,
        each.still.name.lower(),
        each.first_bad,
        [remark.text for remark in found.remarks_of(place)],
    )
    return dict(zip(SUMMARY, values, strict=True))


def _plain(value: float) -> Any:
    return None if math.isnan(value) else plain(value)


def point_in(weight: WeightPath, step: int) -> TensorKey:
    """The weight at a step; its last point where it was not dumped there."""
    at = np.flatnonzero(weight.steps == step)
    if not len(at):
        return weight.key
    return dataclasses.replace(weight.key, step=step, round=int(weight.rounds[at[-1]]))
