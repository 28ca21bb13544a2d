"""The distribution of a tensor: counts, moments, percentiles, and a histogram with a cursor on a bin."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.diagnose.distribution import (
    BinOptions,
    HistogramBars,
    Histograms,
    TensorDistribution,
    histograms_of,
    percentiles,
)
from tui_debugger.errors import CancelledError
from tui_debugger.model import ProgressFn, TensorKey
from tui_debugger.session import Session
from tui_debugger.stats.distribution import Bin
from tui_debugger.stats.quantiles import Quantiles
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import (
    bin_text,
    bins_text,
    counts_items,
    counts_of,
    elements_text,
    headroom_items,
    moments_items,
    packed,
    percentile_items,
    range_text,
    taken_text,
)
from tui_debugger.text.numbers import number, plural, share, size
from tui_debugger.text.plot import labels
from tui_debugger.text.tensors import BARS, run_text, shape_text, slot_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine
from tui_debugger.tui.export import Extract, file_stem
from tui_debugger.tui.theme import ORANGE
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import Files, ValuesView, ViewHost, files_of
from tui_debugger.tui.widgets.line_window import PaintedLines
from tui_debugger.tui.widgets.text import fit, shorten

_GAP = 2
"""Fewest cells between two labels of the axis."""
_WIDEST = 12
"""Most cells of a bar: a few very wide bars are hard to read."""


def bar_width(bins: int, room: int) -> int:
    return max(1, min(_WIDEST, room // max(bins, 1)))


def bar_rows(counts: Sequence[int], height: int, cells: int, *, top: int, log: bool) -> list[str]:
    """Returns the bars line by line, the uppermost line first; ``log``: heights are logarithms of counts.

    ``height``: lines. ``cells``: width of a bar; from 3 on, one cell is the gap to the next bar. ``top``: the count of
    a bar of full height.
    """
    eighths = [_eighths(count, height, top, log) for count in counts]
    gap = " " if cells > 2 else ""
    lines = []
    for line in range(height - 1, -1, -1):
        glyphs = [_glyph(each - 8 * line) for each in eighths]
        lines.append("".join(glyph * (cells - len(gap)) + gap for glyph in glyphs))
    return lines


def _eighths(count: int, height: int, top: int, log: bool) -> int:
    """Returns the height of a bar in eighths of a line; at least 1 for a count above 0."""
    if not count or not top:
        return 0
    part = math.log1p(count) / math.log1p(top) if log else count / top
    return max(1, round(8 * height * part))


def _glyph(eighths: int) -> str:
    return " " if eighths <= 0 else BARS[min(eighths, 8) - 1]


def height_label(line: int, height: int, top: int, *, log: bool) -> str:
    """Returns the label of the count axis: the greatest count at the top, half of it in the middle.

    On a logarithmic axis the middle is half of the logarithm.
    """
    if line == 0:
        return f"{top:,}" if top < 1e6 else number(float(top))
    if height > 4 and line == height // 2:
        part = (height - line) / height
        value = math.expm1(part * math.log1p(top)) if log else part * top
        return number(float(f"{value:.3g}"))
    return ""


def axis_line(bins: int, cells: int, cursor: int, ticks: Sequence[int]) -> str:
    """Returns the line below the bars: a tick above each label, and the cursor."""
    line = ["─"] * (bins * cells)
    for tick in ticks:
        line[tick] = "┬"
    if 0 <= cursor < bins:
        middle = cursor * cells + max(cells - 1, 0) // 2
        line[middle] = "▲"
    return "".join(line)


def axis_labels(bins: Sequence[Bin], cells: int, room: int) -> tuple[str, list[int]]:
    """Returns the labels of bins' lower edges, as many as fit, 0 first; and the places of their ticks."""
    taken: list[tuple[int, int, str]] = []
    texts = labels([each.low for each in bins])
    for index in _by_worth(bins):
        start = index * cells
        text = texts[index]
        end = start + len(text)
        if end <= room and all(end + _GAP <= other or start >= stop + _GAP for other, stop, _ in taken):
            taken.append((start, end, text))
    line = ""
    for start, _, text in sorted(taken):
        line = line.ljust(start) + text
    return line, sorted(start for start, _, _ in taken)


def _by_worth(bins: Sequence[Bin]) -> Iterator[int]:
    """Yields the bins by priority of their labels: zero, then from the left."""
    zero = next((i for i, each in enumerate(bins) if each.low == 0), None)
    if zero is not None:
        yield zero
    yield from (i for i in range(len(bins)) if i != zero)


GUTTER = 9
"""Cells of the count axis, with the blank behind it."""


@dataclass(frozen=True, slots=True)
class HistogramLayer:
    """A histogram with its title."""

    title: str
    bars: HistogramBars


class Chart(PaintedLines, can_focus=True):
    """One histogram, or several in the same bins and on the same scale, one above the other."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; min-height: 4; }"

    class CursorMoved(Message):
        """The cursor came to another bin, or the bins were replaced."""

    def __init__(self) -> None:
        super().__init__(id="chart")
        self._layers: tuple[HistogramLayer, ...] = ()
        self._log_counts = False
        self._text = ""
        self._lines: list[Strip] = []
        self.cursor = 0

    # -- what it shows ---------------------------------------------------------------------------

    def show(self, layers: Sequence[HistogramLayer], *, log_counts: bool, cursor: int) -> None:
        """Replaces everything; all layers have the same bins."""
        self._layers, self._log_counts, self._text = tuple(layers), log_counts, ""
        self.cursor = max(0, min(cursor, self.bins - 1))
        self._draw()
        self.post_message(self.CursorMoved())

    def show_text(self, text: str) -> None:
        self._layers, self._text = (), text
        self._draw()
        self.post_message(self.CursorMoved())

    @property
    def bins(self) -> int:
        return len(self._layers[0].bars.bins) if self._layers else 0

    def move_to(self, index: int) -> None:
        index = max(0, min(index, self.bins - 1))
        if index != self.cursor:
            self.cursor = index
            self._draw_axis()
            self.post_message(self.CursorMoved())

    # -- drawing ---------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._draw()

    def render_line(self, y: int) -> Strip:
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width, self.base_style)

    @property
    def _cells(self) -> int:
        return bar_width(self.bins, self.size.width - GUTTER)

    def _draw(self) -> None:
        if self._layers and self.bins:
            self._lines = self._picture()
        else:
            self._lines = [self._line("", f" {clean(text)}", theme.NORMAL) for text in ["", *self._text.split("\n")]]
        self.refresh()

    def _picture(self) -> list[Strip]:
        room = self.size.width - GUTTER
        titles = len(self._layers) > 1
        top = max(max(layer.bars.counts, default=0) for layer in self._layers)
        height = max(1, (self.size.height - 2) // len(self._layers) - titles)
        lines: list[Strip] = []
        for place, layer in enumerate(self._layers):
            style = theme.WATCHED if place == 0 else theme.DIM
            if titles:
                lines.append(self._line("", clean(layer.title), theme.STRONG if place == 0 else theme.DIM))
            rows = bar_rows(layer.bars.counts, height, self._cells, top=top, log=self._log_counts)
            for y, row in enumerate(rows):
                lines.append(self._line(height_label(y, height, top, log=self._log_counts), row, style))
        labels, _ = axis_labels(self._layers[0].bars.bins, self._cells, room)
        return [*lines, self._axis(), self._line("", labels, theme.DIM)]

    def _axis(self) -> Strip:
        bins = self._layers[0].bars.bins
        _, ticks = axis_labels(bins, self._cells, self.size.width - GUTTER)
        before, cursor, after = axis_line(len(bins), self._cells, self.cursor, ticks).partition("▲")
        base = self.base_style
        parts = [Segment("0".rjust(GUTTER - 1) + " ", base + theme.DIM), Segment(before, base + theme.DIM)]
        parts += [Segment(cursor, base + theme.STRONG), Segment(after, base + theme.DIM)]
        return Strip(fit(parts, self.size.width, base))

    def _draw_axis(self) -> None:
        if len(self._lines) > 1:
            y = len(self._lines) - 2
            self._lines[y] = self._axis()
            self.refresh(Region(0, y, self.size.width, 1))

    def _line(self, label: str, text: str, style: Style) -> Strip:
        base = self.base_style
        gutter = " " * max(GUTTER - 1 - cell_len(label), 0) + label + " " if self._layers else ""
        return Strip(fit([Segment(gutter, base + theme.DIM), Segment(text, base + style)], self.size.width, base))


_GROUP = "Distribution"


DISTRIBUTION_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
    *view_actions(
        _GROUP,
        ("move(-1)", "left h", "Left", "To the bin on the left; the line below says its edges."),
        ("move(1)", "right l", "Right", "To the bin on the right."),
        ("move(-10)", "pageup", "Page up", "Ten bins to the left."),
        ("move(10)", "pagedown", "Page down", "Ten bins to the right."),
        ("end(False)", "home g", "First", "To the first bin."),
        ("end(True)", "end G", "Last", "To the last bin."),
        ("zoom_in", "+ =", "More detail", "Shows the third of the range around the cursor in finer bins."),
        ("zoom_out", "-", "Less detail", "Back to the wider range before."),
        ("zoom_all", "", "Whole range", "Shows all finite values."),
        ("bins", "t", "Other form", "Bins of equal width, or by powers of two on both sides of 0."),
        ("counts", "y", "Logarithmic", "The height of the bars: the count, or its logarithm."),
        ("numbers", "z", "Zoom", "Hides the numbers above, which makes the bars higher, or shows them again."),
        ("percentiles", "m", "More", "Finds the percentiles of a large tensor: exact, with several passes."),
        ("previous", "p", "Previous step", "The previous step below it, in the same bins, or not."),
        ("step(-1)", "[", "Step back", "The same tensor one dumped step back."),
        ("step(1)", "]", "Step forward", "The same tensor one dumped step forward."),
        ("values", "enter", "Open", "The values themselves."),
    ),
)

UNLIMITED = 1 << 20
_BAD = frozenset({"NaN", "-Inf", "+Inf"})


def counts_line(distribution: TensorDistribution, width: int) -> Content:
    lines = _counts(distribution, width)
    if len(lines) > 1:
        lines = _counts(distribution, width, shares=False)
    text = "\n".join(lines)
    content = Content(text)
    for name, count, shown in counts_of(distribution.stats) if distribution.stats is not None else ():
        if count and name in _BAD:
            word = f"{name} {shown}"
            at = text.index(word)
            content = content.stylize(f"bold {ORANGE}", at, at + len(word))
    return content


def _counts(distribution: TensorDistribution, width: int, *, shares: bool = True) -> list[str]:
    stats = distribution.stats
    if stats is None:
        return ["no statistics are known"]
    return packed(f"{elements_text(stats)}: ", counts_items(stats, shares=shares), width)


def moments_lines(distribution: TensorDistribution, width: int) -> list[str]:
    stats = distribution.stats
    if stats is None:
        return []
    items = moments_items(stats)
    one_line = packed("", items, width, "  ")
    return one_line if len(one_line) == 1 else packed("", items, width)


def percentile_lines(distribution: TensorDistribution, width: int) -> list[str]:
    if distribution.classes is None:
        return []
    found = distribution.quantiles
    if found is None:
        nbytes = distribution.row.meta.nbytes if distribution.row.meta is not None else 0
        return [f"percentiles: m finds them, exactly, reading {size(nbytes)} a few times"]
    if not found.values:
        return ["no percentiles: no element is finite"]
    return packed("exact percentiles: ", percentile_items(found), width, "  ")


def headroom_lines(distribution: TensorDistribution, width: int) -> list[str]:
    if distribution.headroom is not None:
        return [
            line
            for items in headroom_items(distribution.headroom, distribution.dtype)
            for line in packed("", items, width)
        ]
    stats = distribution.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return []
    text = range_text(max(abs(stats.minimum), abs(stats.maximum)), distribution.dtype)
    return [text] if text else []


def all_lines(distribution: TensorDistribution) -> list[str]:
    return [
        *_counts(distribution, UNLIMITED),
        *moments_lines(distribution, UNLIMITED),
        *percentile_lines(distribution, UNLIMITED),
        *headroom_lines(distribution, UNLIMITED),
    ]


_NUMBERS = ("counts", "moments", "percentiles", "headroom")
_RECORDED = "Only statistics of this tensor are known, not its values:\nno percentiles, no shares, no bars."


@dataclass(frozen=True, slots=True)
class _HistogramRequest:
    """The histogram that is shown, or asked for.

    Attributes:
        log: bins by magnitude.
        log_counts: bars as high as the logarithm of the count.
        ranges: the ranges zoomed into, each inside the one before; empty: the whole range.
        previous: also show the previous step, below.
    """

    about: ViewTarget
    log: bool = False
    log_counts: bool = False
    ranges: tuple[tuple[float, float], ...] = ()
    previous: bool = False


class DistributionView(ValuesView):
    """Numbers above, bars below; everything is computed in a worker."""

    OWN_ACTIONS = DISTRIBUTION_ACTIONS
    DEFAULT_CSS = """
    DistributionView {
        #facts, #mode { color: $text-muted; }
        #mode { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #bin { height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: bold; }
        .-empty { display: none; }
    }
    """
    hints = (
        *(("+ -", "zoom"), ("t", "log x"), ("y", "log y"), ("p", "previous"), ("[ ]", "step")),
        *(("z", "bars"), ("?", "keys"), ("Esc", "back")),
    )

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self._shown = self._wanted = _HistogramRequest(about)
        self._known: dict[TensorKey, TensorDistribution] = {}
        self._histograms: Histograms | None = None
        self._room = 0
        self.heading = "Distribution"

    def body(self) -> Iterable[Widget]:
        yield PlainLine(id="facts")
        for name in _NUMBERS:
            yield PlainLine(id=name, classes="-empty")
        yield PlainLine(id="mode")
        yield Chart()
        yield PlainLine(id="bin")

    def on_mount(self) -> None:
        self._chart.focus()
        self._show_heading()
        self._update()

    def on_resize(self) -> None:
        self._show_heading()
        self._show_numbers()
        if self._histograms is not None and self._room != self._bins_that_fit() and not self.working:
            self._update()

    @property
    def _chart(self) -> Chart:
        return self.query_one(Chart)

    def _show_heading(self) -> None:
        key = self.about.key
        name = shorten(key.node, max(20, self.app.size.width - 30))
        self.set_heading(f"Distribution  {slot_text(key)}  {name}{self.graph_words(key)}")

    # -- work ------------------------------------------------------------------------------------

    def _bins_that_fit(self) -> int:
        return max(self.app.size.width - 2 - GUTTER, 8)

    @property
    def _now(self) -> _HistogramRequest:
        """The request that the next key changes: the pending one, so that no key is lost, else the shown one."""
        return self._wanted if self.working else self._shown

    def look_again(self) -> None:
        self._update(anew=True)

    def _update(self, wanted: _HistogramRequest | None = None, *, anew: bool = False) -> None:
        """Computes and shows a request; if that is stopped, the old picture stays."""
        wanted = self._wanted = wanted or self._now
        about, previous, session = wanted.about, wanted.previous, self.session
        known = {} if anew else dict(self._known)
        room = self._bins_that_fit()
        options = BinOptions(room, wanted.log, wanted.ranges[-1] if wanted.ranges else None)
        cursor = _middle(self._histograms, self._chart.cursor)

        def job(progress: ProgressFn) -> tuple[Histograms, Files] | None:
            tensors = _tensors(session, about, previous)
            new = [key for key in tensors if key not in known]
            before = files_of(session, new, anew=anew)
            found = (
                histograms_of(session, [known.get(key, key) for key in tensors], options, progress) if tensors else None
            )
            return (found, files_of(session, new, before)) if found is not None else None

        def done(answer: tuple[Histograms, Files] | None) -> None:
            if answer is None:
                self.say(session.why_no_previous(about.key), note=True)
                return
            found, files = answer
            if anew:
                self._known.clear()
            self.files = {**self.files, **files}
            self._shown, self.about, self._room, self._histograms = self._wanted, about, room, found
            self._known |= {each.row.key: each for each in found.distributions} | {about.key: found.distributions[0]}
            self._show(cursor)
            if room != self._bins_that_fit():
                self._update()

        (self.work_anew if anew else self.work)("counting", job, done)

    @property
    def shown_keys(self) -> Collection[TensorKey]:
        """The tensors that are shown; tensors of earlier steps stay in ``files``."""
        return [each.row.key for each in self._histograms.distributions] if self._histograms is not None else []

    def forget_tensors(self, keys: Collection[TensorKey]) -> None:
        for key in keys:
            self._known.pop(key, None)

    @property
    def _distribution(self) -> TensorDistribution | None:
        return self._histograms.distributions[0] if self._histograms is not None else None

    def failed(self, error: Exception) -> None:
        super().failed(error)
        if isinstance(error, CancelledError) or (self._histograms is not None and self._wanted.about is self.about):
            return
        self._shown, self.about, self._histograms = self._wanted, self._wanted.about, None
        key = self.about.key
        self.show_line("facts", f"step {step_text(key.step)}  rank {key.rank}  {clean(key.graph)}")
        for name in (*_NUMBERS, "mode"):
            self.show_line(name, "")
        self._chart.show_text("There is nothing to show at this step.")

    # -- what is shown ---------------------------------------------------------------------------

    def _show(self, cursor: float | None) -> None:
        found = self._histograms
        if found is None:
            return
        self._show_numbers()
        self._show_mode()
        if not found.bars[0].bins:
            recorded = found.distributions[0].classes is None
            self._chart.show_text(_RECORDED if recorded else "No finite value, so there are no bars.")
            return
        at = self._chart.cursor if cursor is None else _bin_of(found.bars[0], cursor)
        layers = [
            HistogramLayer(f"{_run(distribution)}{_amount(bars, distribution)}", bars)
            for distribution, bars in zip(found.distributions, found.bars, strict=True)
        ]
        self._chart.show(layers, log_counts=self._shown.log_counts, cursor=at)

    def _show_numbers(self) -> None:
        distribution = self._distribution
        if distribution is None:
            return
        width = self.app.size.width - 2
        self.show_line("facts", self._facts(distribution))
        self.show_line("counts", counts_line(distribution, width))
        self.show_line("moments", "\n".join(moments_lines(distribution, width)))
        self.show_line("percentiles", "\n".join(percentile_lines(distribution, width)))
        self.show_line("headroom", "\n".join(headroom_lines(distribution, width)))

    def _facts(self, distribution: TensorDistribution) -> str:
        row, key = distribution.row, distribution.row.key
        words = [f"{clean(distribution.dtype)} {shape_text(row.meta.shape)}" if row.meta is not None else ""]
        words += [_run(distribution), f"rank {key.rank}", clean(key.graph)]
        greatest = distribution.headroom.greatest if distribution.headroom is not None else None
        how = "statistics as recorded" if distribution.classes is None else taken_text(distribution.dtype, greatest)
        return "\n".join(packed("", [*filter(None, [*words, how])], self.app.size.width - 2, "  "))

    def _show_mode(self) -> None:
        shown, found = self._shown, self._histograms
        if found is None or not found.bars[0].bins:
            self.show_line("mode", "")
            return
        bins = found.bars[0].bins
        words = [bins_text(bins, log=shown.log), "log counts" if shown.log_counts else "counts"]
        if shown.ranges:
            words.append(f"from {number(bins[0].low)} to {number(bins[-1].high)}: - zooms out")
        stats = found.distributions[0].stats
        if stats is not None and stats.bad:
            words.append(f"{stats.count - stats.finite:,} not finite, in no bar")
        self.show_line("mode", " · ".join(words))

    @on(Chart.CursorMoved)
    def _show_bin(self) -> None:
        self.show_line("bin", self._bin_text())

    def _bin_text(self) -> str:
        found, at = self._histograms, self._chart.cursor
        if found is None or not self._chart.bins:
            return ""
        parts = []
        for distribution, bars in zip(found.distributions, found.bars, strict=True):
            stats = distribution.stats
            of_all = f" ({share(bars.counts[at], stats.count)})" if stats is not None and bars.counts[at] else ""
            step = f"{_run(distribution)}: " if len(found.bars) > 1 else ""
            parts.append(f"{step}{plural(bars.counts[at], 'element')}{of_all}")
        return f"{bin_text(found.bars[0].bins[at])}   {'   '.join(parts)}"

    # -- keys ------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self._chart.move_to(self._chart.cursor + by)

    def action_end(self, last: bool) -> None:
        self._chart.move_to(self._chart.bins if last else 0)

    def action_zoom_in(self) -> None:
        bins = self._histograms.bars[0].bins if self._histograms is not None else ()
        if not bins:
            return
        at, reach = self._chart.cursor, max(len(bins) // 6, 1)
        low, high = bins[max(at - reach, 0)].low, bins[min(at + reach, len(bins) - 1)].high
        if len(bins) == 1 or (low, high) == (bins[0].low, bins[-1].high):
            self.say("this is as near as it gets", note=True)
            return
        self._update(replace(self._now, ranges=(*self._now.ranges, (low, high))))

    def action_zoom_out(self) -> None:
        if not self._now.ranges:
            self.say("this is the whole range", note=True)
            return
        self._update(replace(self._now, ranges=self._now.ranges[:-1]))

    def action_zoom_all(self) -> None:
        self._update(replace(self._now, ranges=()))

    def action_bins(self) -> None:
        self._update(replace(self._now, log=not self._now.log))

    def action_counts(self) -> None:
        log_counts = not self._now.log_counts
        self._wanted = replace(self._wanted, log_counts=log_counts)
        self._shown = replace(self._shown, log_counts=log_counts)
        self._show(None)

    def action_numbers(self) -> None:
        for name in _NUMBERS:
            line = self.text_line(name)
            line.display = not line.display

    def action_previous(self) -> None:
        self._update(replace(self._now, previous=not self._now.previous))

    def action_step(self, by: int) -> None:
        about = self._now.about
        steps = list(self.session.steps(about.key.rank))
        at = steps.index(about.key.step) + by if about.key.step in steps else -1
        if not 0 <= at < len(steps):
            self.say(f"step {step_text(about.key.step)} is the {'last' if by > 0 else 'first'} one", note=True)
            return
        self._update(replace(self._now, about=about.at_step(steps[at]), ranges=()))

    def action_percentiles(self) -> None:
        distribution, session = self._distribution, self.session
        if distribution is None or distribution.classes is None:
            self.say("there are no values to take percentiles of", note=True)
        elif distribution.quantiles is None:
            self._wanted = self._shown
            self.work("percentiles", lambda progress: percentiles(session, distribution, progress=progress), self._have)

    def _have(self, found: Quantiles) -> None:
        distribution = self._distribution
        if distribution is not None and self._histograms is not None:
            known = replace(distribution, quantiles=found)
            self._known[self.about.key] = known
            self._histograms = replace(self._histograms, distributions=(known, *self._histograms.distributions[1:]))
            self._show_numbers()

    # -- what can be handed out --------------------------------------------------------------------

    def extract(self) -> Extract | None:
        found, distribution = self._histograms, self._distribution
        if found is None or distribution is None:
            return None
        stem = file_stem(self.about.key, "distribution")
        header = (
            "low",
            "low included",
            "high",
            "high included",
            *(f"count {_run(each)}" for each in found.distributions),
        )
        columns = [bars.counts for bars in found.bars]
        rows = [
            (each.low, each.with_low, each.high, each.with_high, *(counts[i] for counts in columns))
            for i, each in enumerate(found.bars[0].bins)
        ]
        text = [f"Distribution  {slot_text(self.about.key)}  {clean(self.about.key.node)}"]
        for each in found.distributions:
            text += [self._facts(each), *all_lines(each), ""]
        text += [
            f"{bin_text(each)}  {'  '.join(f'{counts[i]:,}' for counts in columns)}"
            for i, each in enumerate(found.bars[0].bins)
        ]
        return Extract(stem, "\n".join(text), self._bin_text() or self.heading, header if rows else (), rows)


def _tensors(session: Session, about: ViewTarget, previous: bool) -> list[TensorKey]:
    """Returns the tensor, and if wanted the tensor of the step before; empty if that does not exist."""
    if not previous:
        return [about.key]
    before = session.before(about.key)
    return [] if before is None else [about.key, before]


def _bin_of(bars: HistogramBars, value: float) -> int:
    return next((i for i, each in enumerate(bars.bins) if value <= each.high), len(bars.bins) - 1)


def _middle(found: Histograms | None, at: int) -> float | None:
    bins = found.bars[0].bins if found is not None else ()
    return bins[at].low / 2 + bins[at].high / 2 if at < len(bins) else None


def _run(distribution: TensorDistribution) -> str:
    return f"step {run_text(distribution.row.key)}"


def _amount(bars: HistogramBars, distribution: TensorDistribution) -> str:
    """Returns how many elements the bars show, if not all."""
    shown, stats = sum(bars.counts), distribution.stats
    return f": {shown:,} of {stats.count:,}" if stats is not None and shown != stats.count else ""
