"""The history of a tensor: its statistics at each dumped step, as columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Float64, Int64, UInt8
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.hits import is_overflow
from tui_debugger.check.progress import retry_when_renumbered, scaled
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.graph.categories import relatives
from tui_debugger.model import Hit, Progress, ProgressFn, Side, TensorKey, TensorMeta, TensorStats, Verdict, no_progress
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.fields import METRICS, Form
from tui_debugger.stats.health import WORTH_A_LOOK, Health
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import plain_values
from tui_debugger.text.health import GLYPHS
from tui_debugger.text.hits import said_words
from tui_debugger.text.numbers import NONE, number, percent, plural
from tui_debugger.text.plot import BRAILLE, Axes, Curve, Dots, Plot, axis_of, count_axis, draw, x_axis_of
from tui_debugger.text.tensors import place_text, step_text, type_text

TOGETHER: Final = 256
"""The number of steps that are listed and measured together."""


_COLUMN: Final = {metric: number for number, metric in enumerate(METRICS)}


class PointState(IntEnum):
    """What is known of a tensor at a step."""

    ABSENT = 0
    """The tensor was not dumped at that step."""
    MEASURED = 1
    RECORDED = 2
    """The dump has statistics only, maybe not all."""
    NO_NUMBERS = 3
    """Its elements are no numbers."""
    UNREADABLE = 4


Point = tuple[int, int]
"""(step, round)."""


@dataclass(frozen=True, eq=False)
class Series:
    """One tensor over some steps: a point for each run that wrote it, in the order in which they ran. Immutable.

    Attributes:
        key: the tensor, at any step.
        row: row of its node in its rank's table.
        steps: dumped steps of the rank, with or without the tensor; repeated where it was written several times.
        rounds: see ``TensorKey.round``.
        turns: the turn of the run of each point, ascending.
        values: of shape (metric, point), in the order of ``METRICS``; NaN where unknown.
        state: ``PointState`` by point.
        health: ``stats.health.Health`` by point, as far as the session has checked.
        hit_texts: by (step, round), the abbreviations of conditions that hit.
        errors: by (step, round), why the tensor could not be read.
        meta: element type and shape at the last point where known.
        at_least: by (step, round), the metrics that are lower bounds.
    """

    key: TensorKey
    row: int
    steps: Int64
    rounds: Int64
    turns: Int64
    values: Float64
    state: UInt8
    health: UInt8
    hit_texts: Mapping[Point, str]
    errors: Mapping[Point, str]
    meta: TensorMeta | None = None
    at_least: Mapping[Point, frozenset[str]] = dataclasses.field(default_factory=dict)

    def of(self, metric: str) -> Float64:
        column: Float64 = self.values[_COLUMN[metric]]
        return column

    def at(self, step: int, round: int = 0) -> int:  # noqa: A002 - see TensorKey
        """The index of a step's point, of its newest one for round 0; -1 where there is none."""
        found = np.flatnonzero((self.steps == step) & ((self.rounds == round) if round else True))
        return int(found[-1]) if len(found) else -1

    def point(self, index: int) -> Point:
        return int(self.steps[index]), int(self.rounds[index])

    def key_at(self, step: int, round: int = 0) -> TensorKey:  # noqa: A002 - see TensorKey
        return dataclasses.replace(self.key, step=step, round=round)

    @property
    def known(self) -> int:
        """Number of points with statistics."""
        return int(((self.state == PointState.MEASURED) | (self.state == PointState.RECORDED)).sum())

    def count(self, state: PointState) -> int:
        return int((self.state == state).sum())


def trend(session: DiagnosedRun, key: TensorKey, steps: Sequence[int], progress: ProgressFn = no_progress) -> Series:
    """The history of a tensor over some steps of its rank; what was measured before is not read again.

    UnreadableTensorError where the run has no such node. The session keeps measurements when ``progress`` cancels.
    """
    parts = []
    for start in range(0, len(steps), TOGETHER):
        part = steps[start : start + TOGETHER]
        tell = scaled(progress, start, len(steps), len(part))
        tell(Progress(0, 0))
        parts.append(_part(session, key, part, tell))
    return joined(parts) if parts else _part(session, key, (), progress)


def joined(parts: Sequence[Series]) -> Series:
    """Joins parts of a history; where several have the same step, the last part counts."""
    steps, turns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "turns"))
    number = np.repeat(np.arange(len(parts)), [len(part.steps) for part in parts])
    newest = {step: of for step, of in zip(steps.tolist(), number.tolist(), strict=True)}  # noqa: C416 - the last one
    chosen = np.flatnonzero(number == np.array([newest[step] for step in steps.tolist()], np.int64))
    chosen = chosen[np.argsort(turns[chosen], kind="stable")]

    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts], axis=-1)[..., chosen]

    def by_point(name: str) -> dict[Point, Any]:
        places = [(at, *each) for at, part in enumerate(parts) for each in getattr(part, name).items()]
        return {point: value for at, point, value in places if newest[point[0]] == at}

    merged = {name: column(name) for name in ("steps", "rounds", "turns", "values", "state", "health")}
    merged |= {name: by_point(name) for name in ("hit_texts", "errors", "at_least")}
    meta = next((part.meta for part in reversed(parts) if part.meta is not None), None)
    return dataclasses.replace(parts[-1], **merged, meta=meta)


def with_hits(session: DiagnosedRun, series: Series) -> Series:
    points = [series.point(index) for index in range(len(series.steps))]
    health, hit_texts = _health(session, series.key, series.row, points, series.state)
    return dataclasses.replace(series, health=health, hit_texts=hit_texts)


def unchecked(session: DiagnosedRun, series: Series) -> list[tuple[int, int]]:
    """The (rank, step) pairs at which a tensor was dumped, but not judged by the present watchpoints."""
    rank, there = series.key.rank, series.steps[series.state != PointState.ABSENT]
    return [(rank, step) for step in dict.fromkeys(there.tolist()) if not session.fresh([(rank, step)])]


def related(session: DiagnosedRun, key: TensorKey) -> tuple[tuple[str, TensorKey], ...]:
    """The weight, gradient and optimizer state that an output belongs to, as (word, tensor), where the graph tells."""
    nodes = session.nodes(key.rank)
    row = nodes.find(key.node, key.graph)
    if row < 0 or key.side is not Side.OUTPUT:
        return ()
    found = []
    for each in relatives(nodes, row, key.slot):
        graph, name = nodes.graph_of(each.row).name, nodes.names[each.row]
        found.append((each.word, TensorKey(key.rank, graph, name, Side.OUTPUT, each.slot, key.step)))
    return tuple(found)


def _part(session: DiagnosedRun, key: TensorKey, steps: Sequence[int], progress: ProgressFn) -> Series:
    listed = retry_when_renumbered(lambda: _listed(session.flow(key.rank, progress), key, steps))
    row, rows, turns = listed
    measured = session.measure([each for each in rows if each.index >= 0], progress)
    found = {each.key: each for each in measured}
    shown = [found.get(each.key, each) for each in rows]
    points = [(each.key.step, each.key.round) for each in rows]
    values = np.full((len(METRICS), len(points)), np.nan)
    state = np.zeros(len(points), np.uint8)
    errors: dict[Point, str] = {}
    at_least: dict[Point, frozenset[str]] = {}
    for place, each in enumerate(shown):
        state[place] = _state(each)
        if each.error:
            errors[points[place]] = each.error
        if each.stats is not None:
            values[:, place] = _values(each.stats)
            bounds = [metric for metric, field in _COUNTS if each.stats.is_lower_bound(field.name)]
            at_least |= {points[place]: frozenset(bounds)} if bounds else {}
    health, hit_texts = _health(session, key, row, points, state)
    return Series(
        key=key,
        row=row,
        steps=np.array([step for step, _ in points], np.int64),
        rounds=np.array([writing for _, writing in points], np.int64),
        turns=turns,
        values=values,
        state=state,
        health=health,
        hit_texts=hit_texts,
        errors=errors,
        meta=next((each.meta for each in reversed(shown) if each.meta is not None), None),
        at_least=at_least,
    )


def _listed(flow: DataFlow, key: TensorKey, steps: Sequence[int]) -> tuple[int, list[TensorRow], Int64]:
    """The node's row, and the tensor in each run with its turn; index -1 where it was not dumped."""
    rows: list[TensorRow] = []
    for step in steps:
        flow.table(step)  # it may bring the node
    row = flow.row_of(key)
    absent = Located(-1, -1, row, key.side, key.slot)
    places = sorted(
        (flow.turn(row, step, at.round), step, at.round, at.index)
        for step in steps
        for at in flow.written(step, row, key.side, key.slot) or [absent]
    )
    for _, step, writing, index in places:
        flags = TensorFlag(int(flow.table(step).flags[index])) if index >= 0 else TensorFlag.NONE
        stat_only = bool(flags & TensorFlag.STAT_ONLY)
        remote = bool(flags & TensorFlag.REMOTE)
        rows.append(
            TensorRow(
                key=dataclasses.replace(key, step=step, round=writing),
                role=key.side.label,
                slot=key.slot,
                index=index,
                has_value=index >= 0 and (remote or not stat_only),
                has_previous=False,
                recorded=stat_only and not flags & (TensorFlag.UNKNOWN | TensorFlag.EXACT),
                remote=remote,
            )
        )
    return row, rows, np.array([turn for turn, *_ in places], np.int64)


def _state(row: TensorRow) -> PointState:
    if row.error:
        return PointState.UNREADABLE
    if row.index < 0:
        return PointState.ABSENT
    if row.stats is None:
        return PointState.NO_NUMBERS if row.meta is not None else PointState.UNREADABLE
    return PointState.RECORDED if row.recorded else PointState.MEASURED


_COUNTS: Final = tuple((metric, field) for metric, field in METRICS.items() if field.form is Form.COUNT)
"""The metrics that are numbers of elements."""


def _values(stats: TensorStats) -> list[float]:
    """Values in the order of ``METRICS``; a count with the lower bound 0 is unknown."""
    found = []
    for field in METRICS.values():
        value = field.value(stats)
        unknown = field.form is Form.COUNT and not value and stats.is_lower_bound(field.name)
        found.append(math.nan if value is None or unknown else float(value))
    return found


def _health(
    session: DiagnosedRun, key: TensorKey, row: int, points: Sequence[Point], state: UInt8
) -> tuple[UInt8, dict[Point, str]]:
    health = np.where(state == PointState.ABSENT, Health.ABSENT, Health.UNCHECKED).astype(np.uint8)
    hit_texts: dict[Point, str] = {}
    known_results, version = session.checks().known_results, session.watchpoints.version
    for place in np.flatnonzero(health).tolist():
        step, of = points[place]
        result = known_results.fresh((key.rank, step), version)
        if result is None:
            continue
        at = result.hits.find(dataclasses.replace(key, step=step, round=of))
        if at < 0:
            health[place] = Health.CLEAN if _bit(result.judged, row) else Health.NOT_JUDGED
        else:
            hit = result.hits[at]
            health[place] = _of_hit(hit)
            words = said_words(hit) or ("NaN or Inf" if hit.verdict is Verdict.FINDING else "")
            if words:
                hit_texts[step, of] = words
    return health, hit_texts


def _bit(bits: UInt8, row: int) -> bool:
    return row // 8 < len(bits) and bool(int(bits[row // 8]) >> (7 - row % 8) & 1)


def _of_hit(hit: Hit) -> Health:
    if hit.verdict is Verdict.CANNOT_JUDGE:
        return Health.UNREADABLE
    if hit.verdict is Verdict.BY_DESIGN:
        return Health.CLEAN
    if hit.verdict is not Verdict.FINDING:
        return Health.NOT_JUDGED
    if hit.origin:
        return Health.ORIGIN
    if hit.stats is not None and hit.stats.bad:
        return Health.NAN if hit.stats.nan else Health.INF
    return Health.NOT_FINITE if is_overflow(hit) else Health.HIT


MARKS: Final = "○△□▽◇+×*"
"""One mark for each curve, without other meanings."""
MOST: Final = len(MARKS)
"""The most tensors that can be told apart."""
TITLES: Final = ("step", "", "min", "mean", "max", "norm", "NaN", "Inf", "hits")


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics (the first on top) that are drawn into one plot, or a ``note`` instead."""

    metrics: tuple[str, ...]
    marks: str
    note: str = ""

    @property
    def title(self) -> str:
        """``max, mean, min``, or ``note loss``."""
        if self.note:
            return f"note {clean(self.note)}"
        return ", ".join(METRICS[metric].on_screen for metric in self.metrics)


_COUNTED: Final = frozenset({"nan", "inf"})
"""Metrics that are drawn as bars: a count at one step tells nothing about the steps between."""
_ORDER: Final = ("norm", "mean", "max", "min", "abs_mean", "std", "nan", "inf", "zero")
_LATER: Final = tuple(metric for metric in METRICS if metric not in _ORDER)
ONE: Final = (
    Group(("max", "mean", "min"), "▽○△"),
    Group(("norm",), "○"),
    Group(("nan", "inf"), GLYPHS[Health.NAN] + GLYPHS[Health.INF]),
    Group(("abs_mean",), "○"),
    Group(("std",), "○"),
    Group(("zero",), "○"),
    *(Group((metric,), "○") for metric in _LATER),
)
"""The plots of one tensor."""
SEVERAL: Final = tuple(Group((metric,), "") for metric in (*_ORDER, *_LATER))
"""The plots of several tensors on top of each other."""


def groups_for(count: int) -> tuple[Group, ...]:
    return ONE if count == 1 else SEVERAL


def note_groups(notes: RunNotes) -> tuple[Group, ...]:
    """The plots of the noted scalars that are numbers."""
    return tuple(Group((), "○", name) for name in notes.curves())


@dataclass(frozen=True, slots=True)
class Legend:
    """The glyph and the words of a curve."""

    mark: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class TrendPlot:
    """A plot with title and legend; ``marks`` has the worst health by column, ABSENT where nothing is bad."""

    group: Group
    plot: Plot
    marks: UInt8
    legend: tuple[Legend, ...]
    log: bool
    empty: bool

    @property
    def mark_line(self) -> str:
        return "".join(GLYPHS[Health(code)] for code in self.marks.tolist())

    @property
    def lines(self) -> list[str]:
        keys = "  ".join(f"{each.mark} {each.text}" for each in self.legend)
        note = "  (nothing to draw)" if self.empty else ""
        return [f"{self.title}   {keys}{note}", *self.plot.lines(self.mark_line)]

    @property
    def title(self) -> str:
        return self.group.title + (" (log)" if self.log else "")


@dataclass(frozen=True, slots=True)
class PlotArea:
    """The room for plots (with labels and ticks), and how they are drawn: see ``plot.draw``."""

    width: int
    height: int
    log: bool = False
    dots: Dots = BRAILLE
    margin: int = 0


def drawing(series: Sequence[Series], group: Group, canvas: PlotArea, notes: RunNotes = NO_NOTES) -> TrendPlot:
    """Draws a group of ``groups_for(len(series))`` for one or several tensors, or a group of ``note_groups``."""
    if group.note:
        return _note_drawing(series, group, canvas, notes)
    curves, legend = [], []
    bars = _COUNTED.issuperset(group.metrics)
    names = _names(series)
    for number_, each in enumerate(series):
        for metric, mark in zip(group.metrics, group.marks or MARKS[number_], strict=True):
            by_number = np.argsort(each.steps, kind="stable")  # the axis has step numbers
            curves.append(Curve(each.steps[by_number].astype(np.float64), each.of(metric)[by_number], mark, bars))
            legend.append(Legend(mark, METRICS[metric].on_screen if len(series) == 1 else names[number_]))
    steps = np.concatenate([each.steps for each in series]).astype(np.float64)
    values = np.concatenate([curve.y for curve in curves])
    y_axis = count_axis(values, log=canvas.log) if bars else axis_of(values, log=canvas.log)
    marks = [(each.steps, worth_marking(each)) for each in series]
    return _plotted(group, canvas, curves, Axes(x_axis_of(np.sort(steps)), y_axis), marks=marks, legend=legend)


def _plotted(
    group: Group,
    canvas: PlotArea,
    curves: Sequence[Curve],
    axes: Axes,
    *,
    marks: Iterable[tuple[npt.NDArray[Any], npt.NDArray[Any]]],
    legend: Sequence[Legend] = (),
) -> TrendPlot:
    """Draws curves; ``marks`` are steps and their health."""
    plot = draw(curves, axes, canvas.width, canvas.height, canvas.dots, margin=canvas.margin)
    worst = np.zeros(plot.width, np.uint8)
    for steps, codes in marks:
        at = np.flatnonzero(codes)
        np.maximum.at(worst, plot.columns(steps[at].astype(np.float64)), codes[at].astype(np.uint8))
    empty = not any(np.isfinite(curve.y).any() for curve in curves)
    return TrendPlot(group, plot, worst, tuple(legend), canvas.log, empty)


def _note_drawing(series: Sequence[Series], group: Group, canvas: PlotArea, notes: RunNotes) -> TrendPlot:
    """Draws a note over the steps of the tensors, to fit below their plots; without tensors over its own steps."""
    noted, found = notes.curve(group.note)
    steps, values = np.array(noted, np.float64), np.array(found, np.float64)
    axis = np.concatenate([each.steps for each in series]).astype(np.float64) if series else steps
    if series and len(axis):
        inside = (steps >= axis.min()) & (steps <= axis.max())
        steps, values = steps[inside], values[inside]
    axes = Axes(x_axis_of(np.sort(axis)), axis_of(values, log=canvas.log))
    codes = np.where(np.isnan(values), Health.NAN, np.where(np.isinf(values), Health.INF, Health.ABSENT))
    return _plotted(group, canvas, [Curve(steps, values, group.marks)], axes, marks=[(steps, codes)])


def note_rows(notes: RunNotes) -> list[dict[str, object]]:
    return [{"step": step, "notes": plain_values(dict(of_step))} for step, of_step in notes.all()]


def worth_marking(series: Series) -> UInt8:
    """By point what is bad there, by the checks and by the statistics themselves; else ABSENT."""
    codes = np.where(series.health >= WORTH_A_LOOK, series.health, Health.ABSENT).astype(np.uint8)
    for code, bad in (
        (Health.UNREADABLE, series.state == PointState.UNREADABLE),
        (Health.INF, series.of("inf") > 0),
        (Health.NAN, series.of("nan") > 0),
    ):
        np.maximum(codes, np.where(bad, code, Health.ABSENT).astype(np.uint8), out=codes)
    return codes


def name(series: Series, ranks: Sequence[int] = (), *, with_graph: bool = False) -> str:
    rank = f"rank {series.key.rank} " if len(set(ranks)) > 1 else ""
    return rank + clean(place_text(series.key, with_graph=with_graph))


def _names(series: Sequence[Series]) -> list[str]:
    ranks, graphs = [each.key.rank for each in series], {each.key.graph for each in series}
    return [name(each, ranks, with_graph=len(graphs) > 1) for each in series]


def about(series: Series) -> str:
    """``float32 8×10, 6 steps: 5 measured, 1 not dumped``."""
    meta = f"{type_text(series.meta)}, " if series.meta is not None else ""
    words = {
        PointState.MEASURED: "measured",
        PointState.RECORDED: "with recorded statistics only",
        PointState.NO_NUMBERS: "without numbers",
        PointState.UNREADABLE: "unreadable",
        PointState.ABSENT: "not dumped",
    }
    counts = [f"{series.count(state):,} {word}" for state, word in words.items() if series.count(state)]
    return f"{meta}{plural(len(series.steps), 'step')}: {', '.join(counts) or 'none'}"


def cells(series: Series, index: int) -> tuple[str, ...]:
    """A row of the table, in the order of ``TITLES``."""
    point = series.point(index)
    codes = worth_marking_at(series, index)
    state = PointState(int(series.state[index]))
    if state in (PointState.ABSENT, PointState.UNREADABLE):
        reason = series.errors.get(point, "unreadable" if state is PointState.UNREADABLE else "not dumped")
        return (_place(point), GLYPHS[codes], clean(reason.partition("\n")[0]))
    values = [_shown_at(series, metric, index) for metric in ("min", "mean", "max", "norm", "nan", "inf")]
    notes = [series.hit_texts.get(point, "")]
    notes += ["recorded"] if state is PointState.RECORDED else ["no numbers"] if state is PointState.NO_NUMBERS else []
    return (_place(point), GLYPHS[codes], *values, " ".join(filter(None, notes)))


def _place(point: Point) -> str:
    """``4``, or ``4#2`` for the second write in one step."""
    step, number = point
    return f"{step_text(step)}#{number}" if number else step_text(step)


def step_words(series: Series, index: int, notes: str = "") -> str:
    """Returns what the table omits at one step: ``notes``, other statistics, or why there are none."""
    point = series.point(index)
    words = [f"step {_place(point)}", *([notes] if notes else [])]
    if int(series.state[index]) in (PointState.MEASURED, PointState.RECORDED):
        more = ("abs_mean", "std", "zero", *_LATER)
        words += [f"{METRICS[each].on_screen} {_shown_at(series, each, index)}" for each in more]
    else:
        words.append(cells(series, index)[-1])
    words += [series.hit_texts[point]] if point in series.hit_texts else []
    return "  ".join(words)


def worth_marking_at(series: Series, index: int) -> Health:
    """Like ``worth_marking``, with health as it is, for one point."""
    code = int(series.health[index])
    nan, inf = float(series.of("nan")[index]), float(series.of("inf")[index])
    shown_ = [code, Health.NAN if nan > 0 else 0, Health.INF if inf > 0 else 0]
    if series.state[index] == PointState.UNREADABLE:
        shown_.append(Health.UNREADABLE)
    return Health(max(shown_))


def _shown_at(series: Series, metric: str, index: int) -> str:
    bound = metric in series.at_least.get(series.point(index), ())
    text = shown(metric, float(series.of(metric)[index]))
    return f"≥ {text}" if bound and text != NONE else text


def shown(metric: str, value: float) -> str:
    if np.isnan(value):
        return NONE
    form = METRICS[metric].form
    if form is Form.COUNT:
        return f"{int(value):,}"
    return percent(value) if form is Form.PERCENT else number(value)


def rows(series: Series) -> list[dict[str, object]]:
    found = []
    for index, step in enumerate(series.steps.tolist()):
        values: Float64 = series.values[:, index]
        metrics = {
            metric: None if np.isnan(value) else int(value) if field.form is Form.COUNT else float(value)
            for (metric, field), value in zip(METRICS.items(), values.tolist(), strict=True)
        }
        found.append(
            {
                "step": step,
                **({"round": int(series.rounds[index])} if series.rounds[index] else {}),
                "state": PointState(int(series.state[index])).name.lower(),
                **metrics,
                **({"at_least": sorted(bounds)} if (bounds := series.at_least.get(series.point(index))) else {}),
                "hits": series.hit_texts.get(series.point(index), ""),
                "error": series.errors.get(series.point(index), ""),
            }
        )
    return found


def full_text(series: Sequence[Series], drawings: Sequence[TrendPlot]) -> str:
    names = _names(series)
    lines = [line for title, each in zip(names, series, strict=True) for line in (title, f"  {about(each)}")]
    for drawn in drawings:
        lines += ["", *drawn.lines]
    for title, each in zip(names, series, strict=True):
        lines += ["", title, "\t".join(TITLES)]
        lines += ["\t".join(cells(each, index)) for index in range(len(each.steps))]
    return "\n".join(lines) + "\n"
