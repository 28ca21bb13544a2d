"""Histories as plots, legends and table rows: what the screen and the command both show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Float64, UInt8
from tui_debugger.session.diagnosis.trend import Point, Series, State
from tui_debugger.session.naming import place_text
from tui_debugger.stats.fields import METRICS, Form
from tui_debugger.stats.health import WORTH_A_LOOK, Health
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS
from tui_debugger.text.numbers import NONE, number, percent, plural
from tui_debugger.text.plot import BRAILLE, Axes, Curve, Dots, Plot, axis_of, draw, x_axis_of
from tui_debugger.text.tensors import shape_text, step_text

MARKS: Final = "○△□▽◇+×*"
"""Of one curve each; none of them means anything else."""
MOST: Final = len(MARKS)
"""So many tensors can be told apart."""
TITLES: Final = ("step", "", "min", "mean", "max", "norm", "NaN", "Inf", "hits")


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics that are drawn into one plot.

    Attributes:
        metrics: ids, the first one on top.
        marks: what tells them apart where one tensor is drawn.
    """

    metrics: tuple[str, ...]
    marks: str

    @property
    def title(self) -> str:
        """``max, mean, min``."""
        return ", ".join(METRICS[metric].on_screen for metric in self.metrics)


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
    """The plots of so many tensors."""
    return ONE if count == 1 else SEVERAL


@dataclass(frozen=True, slots=True)
class Legend:
    """What a curve is.

    Attributes:
        mark: its glyph.
        text: its words.
    """

    mark: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """A plot with what is said beside it.

    Attributes:
        group: what it shows.
        plot: the plot.
        marks: the worst at each of its columns, ABSENT where there is nothing to see.
        legend: by curve.
        log: whether the axis is logarithmic.
        empty: whether there is no value to draw.
    """

    group: Group
    plot: Plot
    marks: UInt8
    legend: tuple[Legend, ...]
    log: bool
    empty: bool

    @property
    def mark_line(self) -> str:
        """The marks as glyphs, blank where there is nothing."""
        return "".join(GLYPHS[Health(code)] for code in self.marks.tolist())

    @property
    def lines(self) -> list[str]:
        """Everything as text."""
        keys = "  ".join(f"{each.mark} {each.text}" for each in self.legend)
        note = "  (nothing to draw)" if self.empty else ""
        return [f"{self.title}   {keys}{note}", *self.plot.lines(self.mark_line)]

    @property
    def title(self) -> str:
        """What is drawn, and how."""
        return self.group.title + (" (log)" if self.log else "")


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where and how plots are drawn.

    Attributes:
        width: cells of a line, labels included.
        height: lines, ticks included.
        log: on a logarithmic axis.
        dots: see ``plot.draw``.
        margin: see ``plot.draw``.
    """

    width: int
    height: int
    log: bool = False
    dots: Dots = BRAILLE
    margin: int = 0


def drawing(series: Sequence[Series], group: Group, canvas: Canvas) -> Drawing:
    """Draws a group of metrics, of ``groups_for(len(series))``, of one or several tensors."""
    curves, legend = [], []
    ranks = [each.key.rank for each in series]
    graphs = len({each.key.graph for each in series}) > 1
    for number_, each in enumerate(series):
        for metric, mark in zip(group.metrics, group.marks or MARKS[number_], strict=True):
            by_number = np.argsort(each.steps, kind="stable")  # the axis is that of step numbers
            curves.append(Curve(each.steps[by_number].astype(np.float64), each.of(metric)[by_number], mark))
            legend.append(
                Legend(mark, METRICS[metric].on_screen if len(series) == 1 else name(each, ranks, with_graph=graphs))
            )
    steps = np.concatenate([each.steps for each in series]).astype(np.float64)
    values = np.concatenate([curve.y for curve in curves])
    axes = Axes(x_axis_of(np.sort(steps)), axis_of(values, log=canvas.log))
    plot = draw(curves, axes, canvas.width, canvas.height, canvas.dots, margin=canvas.margin)
    marks = np.zeros(plot.width, np.uint8)
    for each in series:
        codes = worth_marking(each)
        at = np.flatnonzero(codes)
        np.maximum.at(marks, plot.columns(each.steps[at].astype(np.float64)), codes[at])
    return Drawing(group, plot, marks, tuple(legend), canvas.log, not np.isfinite(values).any())


def worth_marking(series: Series) -> UInt8:
    """By step what is bad there: by the checks, and by the statistics themselves; else ABSENT."""
    codes = np.where(series.health >= WORTH_A_LOOK, series.health, Health.ABSENT).astype(np.uint8)
    for code, bad in (
        (Health.UNREADABLE, series.state == State.UNREADABLE),
        (Health.INF, series.of("inf") > 0),
        (Health.NAN, series.of("nan") > 0),
    ):
        np.maximum(codes, np.where(bad, code, Health.ABSENT).astype(np.uint8), out=codes)
    return codes


def name(series: Series, ranks: Sequence[int] = (), *, with_graph: bool = False) -> str:
    """The tensor; with its rank where there are several, with its graph where that is asked for."""
    rank = f"rank {series.key.rank} " if len(set(ranks)) > 1 else ""
    return rank + clean(place_text(series.key, with_graph=with_graph))


def about(series: Series) -> str:
    """``float32 8×10, 6 steps: 5 measured, 1 not dumped``."""
    meta = f"{clean(series.meta.dtype)} {shape_text(series.meta.shape)}, " if series.meta is not None else ""
    words = {
        State.MEASURED: "measured",
        State.RECORDED: "with recorded statistics only",
        State.NO_NUMBERS: "without numbers",
        State.UNREADABLE: "unreadable",
        State.ABSENT: "not dumped",
    }
    counts = [f"{series.count(state):,} {word}" for state, word in words.items() if series.count(state)]
    return f"{meta}{plural(len(series.steps), 'step')}: {', '.join(counts) or 'none'}"


def cells(series: Series, index: int) -> tuple[str, ...]:
    """A row of the table, in the order of ``TITLES``."""
    point = series.point(index)
    codes = worth_marking_at(series, index)
    state = State(int(series.state[index]))
    if state in (State.ABSENT, State.UNREADABLE):
        said = series.errors.get(point, "unreadable" if state is State.UNREADABLE else "not dumped")
        return (_place(point), GLYPHS[codes], clean(said.partition("\n")[0]))
    values = [shown(metric, float(series.of(metric)[index])) for metric in ("min", "mean", "max", "norm", "nan", "inf")]
    notes = [series.said.get(point, "")]
    notes += ["recorded"] if state is State.RECORDED else ["no numbers"] if state is State.NO_NUMBERS else []
    return (_place(point), GLYPHS[codes], *values, " ".join(filter(None, notes)))


def _place(point: Point) -> str:
    """``4``, or ``4#2`` for the second of several writings in one step."""
    step, number = point
    return f"{step_text(step)}#{number}" if number else step_text(step)


def step_words(series: Series, index: int) -> str:
    """What the table leaves out of one step: the other statistics, or why there are none."""
    point = series.point(index)
    words = [f"step {_place(point)}"]
    if int(series.state[index]) in (State.MEASURED, State.RECORDED):
        more = ("abs_mean", "std", "zero", *_LATER)
        words += [f"{METRICS[each].on_screen} {shown(each, float(series.of(each)[index]))}" for each in more]
    else:
        words.append(cells(series, index)[-1])
    words += [series.said[point]] if point in series.said else []
    return "  ".join(words)


def worth_marking_at(series: Series, index: int) -> Health:
    """Health of one step, with what the statistics show."""
    code = int(series.health[index])
    nan, inf = float(series.of("nan")[index]), float(series.of("inf")[index])
    shown_ = [code, Health.NAN if nan > 0 else 0, Health.INF if inf > 0 else 0]
    if series.state[index] == State.UNREADABLE:
        shown_.append(Health.UNREADABLE)
    return Health(max(shown_))


def shown(metric: str, value: float) -> str:
    """A value of a metric as tables print it."""
    if np.isnan(value):
        return NONE
    form = METRICS[metric].form
    if form is Form.COUNT:
        return f"{int(value):,}"
    return percent(value) if form is Form.PERCENT else number(value)


def rows(series: Series) -> list[dict[str, object]]:
    """Every step with every metric, for JSON and CSV: numbers, None where there is none."""
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
                "state": State(int(series.state[index])).name.lower(),
                **metrics,
                "hits": series.said.get(series.point(index), ""),
                "error": series.errors.get(series.point(index), ""),
            }
        )
    return found


def full_text(series: Sequence[Series], drawings: Sequence[Drawing]) -> str:
    """Everything: the tensors, the plots, every row of every table."""
    ranks = [each.key.rank for each in series]
    graphs = len({each.key.graph for each in series}) > 1
    lines = [line for each in series for line in (name(each, ranks, with_graph=graphs), f"  {about(each)}")]
    for drawn in drawings:
        lines += ["", *drawn.lines]
    for each in series:
        lines += ["", name(each, ranks, with_graph=graphs), "\t".join(TITLES)]
        lines += ["\t".join(cells(each, index)) for index in range(len(each.steps))]
    return "\n".join(lines) + "\n"
