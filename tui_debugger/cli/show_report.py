"""The output of ``tdbg show``: the tensors of a node, their values as numbers or as a heat map, distributions."""

from __future__ import annotations

import math
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.check.types import Pair, TensorRow
from tui_debugger.cli.output import Answer, outcome_of, print_table, print_text
from tui_debugger.diagnose.distribution import (
    HistogramBars,
    TensorDistribution,
    bars,
    choose_bins,
    distribution_of_row,
    percentiles,
)
from tui_debugger.errors import BadSliceError, UnreadableTensorError
from tui_debugger.model import Category, Progress, ProgressFn, ReadSpec
from tui_debugger.session import Session
from tui_debugger.session.naming import FoundNode, no_such_tensor
from tui_debugger.stats.distribution import Histogram, histogram
from tui_debugger.stats.fields import COLUMNS
from tui_debugger.stats.npy import TensorFile, open_window, read_meta
from tui_debugger.stats.quantiles import PERCENTS, CastResult, Headroom
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import (
    bin_text,
    bins_text,
    counts_items,
    elements_text,
    headroom_items,
    moments_items,
    percentile_items,
    statistic_cells,
    statistic_columns,
    taken_text,
)
from tui_debugger.text.documents import Row, plain, plain_values, row_of
from tui_debugger.text.heat_map import (
    ColoredText,
    Colors,
    DrawArea,
    HeatPage,
    HeatPainter,
    Scale,
    colors_named,
    halves,
    heat_table_of,
    is_drawable,
    zooms,
)
from tui_debugger.text.numbers import NONE, share
from tui_debugger.text.rows import key_row, meta_row, stats_row
from tui_debugger.text.tables import Column, Cut, width_of
from tui_debugger.text.tensors import aligned, flags, round_text, shape_text, tensor_parts, type_text
from tui_debugger.text.values import (
    Family,
    NumberFormat,
    Slice,
    ValueTable,
    apply,
    default_slice,
    family,
    format_window,
    parse_slice,
)
from tui_debugger.text.writer import Meaning, Meant, Pieces, meant, terminal_of, write_colored, write_lines

WHOLE, WHOLE_LINES = 100, 12
"""Tensors of at most so many elements, in at most so many lines, are printed whole."""
EDGES = (3, 3, 3, 2)
"""The number of elements at both ends of each dimension in an excerpt, by number of dimensions; 1 for more of them."""
MOST_ELEMENTS = 1_000_000
"""The most elements of a slice."""
JSON_WHOLE = 1000
"""Tensors of at most so many elements are in a JSON document even without a slice."""
WIDTH = 78


def chosen_window(shape: Sequence[int], text: str) -> Slice:
    """Parses a slice. Raises BadSliceError if it does not fit the tensor, or chooses too many elements."""
    window = parse_slice(text, shape)
    size = math.prod(window.shape)
    if size > MOST_ELEMENTS:
        msg = f"{window.text} has {size:,} elements: at most {MOST_ELEMENTS:,} are printed"
        raise BadSliceError(msg, where=text, hint="choose fewer, or write the tensor to a file with `tdbg export`")
    return window


def cut(array: Array, text: str) -> tuple[Array, Slice]:
    """Returns a view of the chosen window, and the slice. Raises BadSliceError as ``chosen_window``."""
    window = chosen_window(array.shape, text)
    return apply(array, window), window


def window_text(window: Array, precision: int) -> str:
    return _brackets(_texts(np.asarray(window), precision))


def excerpt_text(array: Array, precision: int) -> str:
    """All elements of a small tensor; for a larger one the ends of each dimension, with dots between."""
    if array.size <= WHOLE and math.prod(array.shape[:-1]) <= WHOLE_LINES:
        return window_text(array, precision)
    edge = EDGES[array.ndim] if array.ndim < len(EDGES) else 1
    # One element more than is printed marks where numpy has to put its dots: all others are never read.
    kept = [_ends(length, edge) for length in array.shape]
    return _brackets(_texts(array[np.ix_(*kept)], precision), edge)


def nested(window: Array) -> Any:
    """Elements as nested lists, with every digit; NaN and Inf as text, complex numbers as [real, imaginary]."""
    kind = family(window.dtype)
    if kind is Family.COMPLEX:
        wide = window.astype(np.complex128)
        return plain_values(np.stack([wide.real, wide.imag], axis=-1).tolist())
    if kind is Family.FLOAT:
        found = window.astype(np.float64)
        return found.tolist() if np.isfinite(found).all() else plain_values(found.tolist())
    if kind is Family.INT:
        return window.astype(np.int64 if window.dtype.kind not in "iu" else window.dtype).tolist()
    if kind is Family.BOOL:
        return window.tolist()
    return np.vectorize(str, otypes=[object])(window).tolist() if window.size else window.tolist()


def _ends(length: int, edge: int) -> list[int]:
    if length <= 2 * edge:
        return list(range(length))
    return [*range(edge + 1), *range(length - edge, length)]


def _texts(values: Array, precision: int) -> npt.NDArray[np.str_]:
    cells = format_window(values.reshape(1, -1), NumberFormat(precision))[0]
    width = max((len(text) for text, _ in cells), default=0)
    return np.array([text.rjust(width) for text, _ in cells], dtype=np.str_).reshape(values.shape)


def _room() -> int:
    """Cells for values, beside the indent."""
    terminal = terminal_of()
    return WIDTH if terminal is None else max(min(WIDTH, terminal.columns - INDENT), 10)


def _brackets(texts: npt.NDArray[np.str_], edge: int = 0) -> str:
    """Brackets around all elements; with ``edge`` dots replace the middle of dimensions longer than twice that."""
    return np.array2string(
        texts,
        max_line_width=_room(),
        separator=" ",
        formatter={"all": str},
        threshold=0 if edge else sys.maxsize,
        edgeitems=edge or 1,
    )


BAR: Final = 23
INDENT: Final = 2
OTHER_LINES: Final = 8
"""Lines of a terminal that are left for text around a map."""
LEAST_LINES, MOST_LINES = 8, 40
"""The least and the most lines of a map."""


@dataclass(frozen=True, slots=True)
class MapCanvas:
    """The size and colours of a map; ``colors`` are none for a file or a pipe. ``progress`` may raise to stop."""

    lines: int
    columns: int
    colors: Colors
    progress: ProgressFn


@dataclass(frozen=True, slots=True)
class Heat:
    """A map: ``text`` for people, ``cells`` with the same as numbers for JSON, or ``error``.

    ``window`` is the canonical text of its slice.
    """

    window: str = ""
    text: str = ""
    cells: Row | None = None
    error: str = ""


def canvas(progress: ProgressFn) -> MapCanvas:
    """Returns the room on the terminal; colours only when the output goes to a terminal."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    system = Console(file=sys.stdout).color_system if sys.stdout.isatty() else None
    colors = colors_named(system, plain="NO_COLOR" in os.environ)
    lines = max(LEAST_LINES, min(MOST_LINES, size.lines - OTHER_LINES))
    return MapCanvas(lines, max(16, size.columns - INDENT), colors, progress)


def heat_of(array: Array, wanted: str | None, on: MapCanvas) -> Heat:
    """Draws a slice of a tensor, usually a memory map; ``wanted`` None draws the first plane.

    Raises BadSliceError if the slice does not fit.
    """
    if wanted is None and not array.size:
        return Heat(error="no elements")
    window = parse_slice(wanted or default_slice(array.shape), array.shape)
    value_table = ValueTable(array, window)
    if value_table.empty:
        return Heat(window.text, error="no elements")
    if not is_drawable(array):
        return Heat(window.text, error=f"{array.dtype.name} elements are no numbers: there is no heat map of them")
    table = heat_table_of(value_table)
    area = DrawArea(on.lines - 2, on.columns - table.margin, halves(on.colors))
    zoom = zooms(table.shape, area, folded=table.folded)[0]
    picture = table.picture(zoom.window(table.shape, (0, 0), area), on.progress)
    page = HeatPage(table, picture, zoom, area, HeatPainter(Scale(*(picture.bounds or (0.0, 0.0))), on.colors))
    narrow = on.columns if terminal_of() is not None else None
    return Heat(window.text, _text(page, on.colors, narrow), _cells(page, value_table))


def _text(page: HeatPage, colors: Colors, narrow: int | None) -> str:
    """Returns a map and its legend; the legend takes several lines if ``narrow`` cells are too few."""

    def write(piece: ColoredText) -> str:
        return _colored(piece, colors)

    scale, rest = page.scale(BAR), [ColoredText(f"  {page.size_text}  "), *page.bad_legend()]
    legends = [[*scale, *rest]]
    if narrow is not None and sum(width_of(piece.text) for piece in legends[0]) > narrow:
        first, *others = rest
        legends = [list(scale), [replace(first, text=first.text.strip())], others]
    return "\n".join([*page.text(write), *("".join(map(write, legend)).rstrip() for legend in legends)])


def _colored(piece: ColoredText, colors: Colors) -> str:
    """Text with its escape sequences, or bare without colours."""
    if colors is Colors.NONE or not (piece.ink or piece.ground):
        return piece.text
    from rich.color import ColorSystem
    from rich.style import Style

    system = {Colors.TRUE: ColorSystem.TRUECOLOR, Colors.MANY: ColorSystem.EIGHT_BIT}.get(colors, ColorSystem.STANDARD)
    style = Style(color=piece.ink or None, bgcolor=piece.ground or None)
    return style.render(piece.text, color_system=system)


def _cells(page: HeatPage, value_table: ValueTable) -> Row:
    """Rows of cells for JSON: first index, number of covered elements, shown value."""
    picture, lines = page.picture, value_table.lines
    window = picture.window
    down = lines[0] if len(lines) == 2 else range(1)
    across = lines[-1] if lines else range(1)
    shown = np.where(picture.kinds > 0, np.nan, picture.values)
    return {
        "rows": [down[at] for at in window.rows],
        "columns": [across[at] for at in window.columns],
        "cell": [window.rows.step, window.columns.step],
        "values": nested(shown),
        "nan": picture.nan.tolist(),
        "pos_inf": picture.pos_inf.tolist(),
        "neg_inf": picture.neg_inf.tolist(),
        "bounds": None if picture.bounds is None else list(picture.bounds),
    }


_ROLES = ("in", "out", "param")


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The wanted output for every tensor.

    ``slice`` None: an excerpt. ``precision``: digits after the point. ``json``: values as nested lists, not text.
    ``heat``: heat maps replace the values and are drawn on this canvas.
    """

    values: bool
    distribution: bool
    slice: str | None
    precision: int
    json: bool
    heat: MapCanvas | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A tensor and its answers.

    Attributes:
        step: the step looked at; the tensor may come from the step before.
        histogram: None without finite values, or with only recorded statistics.
        window: canonical text of the slice in ``values`` or ``text``; empty without a slice.
        values: nested lists; None if not wanted, or too many.
        error: why the tensor, or its values, cannot be shown.
        unreadable: whether the reason is an unreadable file.
    """

    row: TensorRow
    step: int
    histogram: Histogram | None = None
    window: str = ""
    values: Any = None
    text: str = ""
    cells: Row | None = None
    error: str = ""
    unreadable: bool = False

    @property
    def constant(self) -> str:
        """The value of a constant of the graph: for an output the value, for an input ``cst1 = 2``."""
        text = self.row.origin_text
        return text if self.row.role == "out" or " = " in text else ""

    @property
    def answers(self) -> bool:
        """Tells whether the question has an answer: values, statistics, or a constant of the graph."""
        return not self.error or bool(self.row.index < 0 and self.constant)


def look(
    session: Session, found: FoundNode, pairs: Sequence[Pair], options: ShowOptions, progress: ProgressFn
) -> list[Shown]:
    """Looks at the wanted tensors of a node; with values by step, then rank, without by slot, then step and rank.

    Raises TdbgError for an unknown slot, BadSliceError if the slice fits no tensor, CancelledError.
    """
    places = _measured(session, found, pairs, progress)
    shown: list[Shown] = []
    refused: list[BadSliceError] = []
    for done, (row, step) in enumerate(places):
        progress(Progress(done, len(places), "values"))
        try:
            shown.append(_look_at(session, row, step, options))
        except UnreadableTensorError as error:
            shown.append(Shown(row, step, error=error.what, unreadable=True))
        except BadSliceError as error:
            refused.append(error)
            shape = row.meta.shape if row.meta is not None else ()
            shown.append(Shown(row, step, error=f"{error.what}: the shape is {tuple(shape)}"))
    if refused and len(refused) == sum(1 for each in shown if each.row.has_value):
        raise refused[0]
    if options.values:
        return shown
    return sorted(shown, key=lambda each: (_ROLES.index(each.row.role), each.row.slot))


def _measured(
    session: Session, found: FoundNode, pairs: Sequence[Pair], progress: ProgressFn
) -> list[tuple[TensorRow, int]]:
    """The wanted tensors with statistics, each with the step it was asked for, in the order of ``pairs``."""
    there: list[TensorRow] = []
    wanted: dict[int, list[tuple[TensorRow, int]]] = {}
    for rank, step in pairs:
        progress(Progress(0, 0, f"rank {rank} step {step}"))
        rows = found.tensors(session, rank, step)
        there += rows
        wanted.setdefault(rank, []).extend((row, step) for row in rows if found.asked.covers(row))
    if not any(wanted.values()):
        raise no_such_tensor(found, there)
    places = []
    for of_rank in wanted.values():
        rows = session.measure([row for row, _ in of_rank], progress)
        places += [(row, step) for row, (_, step) in zip(rows, of_rank, strict=True)]
    order = {pair: number for number, pair in enumerate(pairs)}
    return sorted(places, key=lambda place: order[place[0].key.rank, place[1]])


def _look_at(session: Session, row: TensorRow, step: int, options: ShowOptions) -> Shown:
    """Looks at one tensor. Raises UnreadableTensorError for a broken file, BadSliceError if the slice does not fit."""
    if row.index < 0 or row.error:
        return Shown(row, step, error=row.error or "not dumped", unreadable=row.index >= 0)
    if not row.has_value:
        wanted = options.slice is not None or options.heat is not None
        return Shown(row, step, error="only statistics were dumped, no values" if wanted else "")
    if not (options.distribution or options.values):
        return Shown(row, step)
    spec = session.spec(row.key)
    if options.slice is not None and options.heat is None and spec is not None and not row.remote:
        window = chosen_window(read_meta(spec).shape, options.slice)  # no more of the file is read than it needs
        shown = Shown(row, step, _spread(row, _pieces_of(spec)))
        return _with_window(shown, window, open_window(spec, window.entries), options)
    array = session.read(row.key)
    shown = Shown(row, step, _spread(row, [array]))
    return _with_values(shown, array, options) if options.values else shown


def _spread(row: TensorRow, pieces: Iterable[Array]) -> Histogram | None:
    """Counts the elements of pieces, so that a file is never in memory as a whole."""
    stats = row.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    found = histogram(np.zeros(0), stats.minimum, stats.maximum)
    for piece in pieces:
        more = histogram(piece, stats.minimum, stats.maximum)
        found = replace(found, counts=tuple(map(sum, zip(found.counts, more.counts, strict=True))))
    return found


def _pieces_of(spec: ReadSpec) -> Iterator[Array]:
    with TensorFile(spec) as file:
        for start in range(0, file.layout.count, _PIECE):
            yield file.read(start, min(_PIECE, file.layout.count - start))


def _with_window(shown: Shown, window: Slice, part: Array, options: ShowOptions) -> Shown:
    if options.json:
        return replace(shown, window=window.text, values=nested(part))
    return replace(shown, window=window.text, text=window_text(part, options.precision))


def _with_values(shown: Shown, array: Array, options: ShowOptions) -> Shown:
    if options.heat is not None:
        heat = heat_of(array, options.slice, options.heat)
        return replace(shown, window=heat.window, text=heat.text, cells=heat.cells, error=heat.error)
    if options.slice is not None:
        part, window = cut(array, options.slice)
        return _with_window(shown, window, part, options)
    if options.json:
        return replace(shown, window="[...]", values=nested(array)) if array.size <= JSON_WHOLE else shown
    return replace(shown, text=excerpt_text(array, options.precision))


_PIECE: Final = 1 << 22
"""The number of elements that are counted at once."""
_RECORDED = "(recorded in the dump)"
_ABOUT = 3
"""The number of pieces at the start of a line that describe the tensor: type, shape, number of elements."""


def tensors(session: Session, found: FoundNode, shown: Sequence[Shown], *, stats: bool, values: bool) -> Answer:
    """Answers with ``values``, or with a line for each tensor and step; with ``stats`` with a table of statistics."""

    def show(_: int) -> None:
        print_head(session, found, shown)
        layout = print_stats if stats else print_values if values else print_history
        layout(shown, several=len(found.rows) > 1)

    answered = any(each.answers for each in shown)
    return _answer(shown, answered, lambda: values_document(session, found, shown), show)


def _answer(shown: Iterable[Shown], answered: bool, document: Callable[[], Row], show: Callable[[int], None]) -> Answer:
    return Answer(
        code=outcome_of(doubt=not answered or any(each.unreadable for each in shown)),
        notices=() if answered else ["nothing of what was asked for can be shown"],
        document=document,
        show=show,
    )


def print_head(session: Session, found: FoundNode, shown: Sequence[Shown]) -> None:
    words = [*_about(session, found).values(), found.graph]
    slots = {_slot(each.row) for each in shown}
    print_text(found.node, ", ".join([*words, *(slots if len(slots) == 1 else ())]))


def print_values(shown: Sequence[Shown], *, several: bool) -> None:
    """Prints the line and the values of each tensor, by step, and by rank when there are ``several``."""
    place = None
    for each in shown:
        row = each.row
        here = (each.step, row.key.rank)
        if here != place:
            write_lines("", f"step {each.step}" + (f" rank {row.key.rank}" if several else ""))
        place = here
        parts = [part for part in _parts(each) if part]
        recorded = _RECORDED if row.recorded and parts else ""
        pieces = [*parts, recorded] if parts else [meant(_why(each), Meaning.DOUBT)]
        print_text(_side_by_side([_slot(row), *pieces]))
        about = (row.placement, _source(each), row.remark, _why(each) if parts else "", each.window)
        print_text(*(f"  {text}" for text in about if text))
        write = write_lines if each.cells is None else write_colored
        write(*(f"  {text}".rstrip() for text in each.text.splitlines()))


def print_history(shown: Sequence[Shown], *, several: bool) -> None:
    """Prints one line per tensor and step; with the slot if there are ``several``."""
    by_slot = len({_slot(each.row) for each in shown}) > 1
    pieces = [_pieces(each) for each in shown]
    shared = {tuple(parts[:_ABOUT]) for parts in pieces if len(parts) > 1}
    once = not by_slot and len(shared) == 1
    if once:  # type, shape and count once: leaves room for NaN on a narrow screen
        print_text(" ".join(filter(None, shared.pop())))
        pieces = [parts[_ABOUT:] if len(parts) > 1 else parts for parts in pieces]
    if terminal_of() is not None:
        left_out = [*([] if by_slot else ["slot"]), *([] if several else ["rank"])]
        _print_history_table([_history_row(each, parts) for each, parts in zip(shown, pieces, strict=True)], left_out)
        return
    lines = [
        [*([_slot(each.row)] if by_slot else []), *_where(each, several), *parts]
        for each, parts in zip(shown, pieces, strict=True)
    ]
    titles = [*(["slot"] if by_slot else []), "step", *(["rank"] if several else [])]
    width = max(len(line) for line in lines)
    write_lines(*aligned([[*titles, *[""] * (width - len(titles))], *lines]))


_HISTORY = (
    Column("slot", weight=10),
    Column("step", weight=10),
    Column("rank", weight=8),
    Column("", weight=3, label="dtype"),
    Column("", weight=4, label="shape"),
    Column("", weight=2, label="count"),
    Column("", weight=6, label="values"),
    Column("", weight=7, label="range"),
    Column("", weight=5, label="mean"),
    Column("", weight=4, label="std"),
    Column("", weight=9, label="zeros, NaN, Inf"),
    Column("", weight=9, cut=Cut.END, label="remark"),
)
"""The columns of a history on a terminal: slot, step, rank, the pieces of a line, and remarks."""
_RANGE, _BAD = 4, 7
"""Positions in a line: a tensor without a finite value has NaN and Inf in place of its range."""


def _history_row(each: Shown, parts: Sequence[str]) -> list[str]:
    place = [_slot(each.row), str(each.step), str(each.row.key.rank)]
    if len(parts) == 1:
        return [*place, *[""] * (len(_HISTORY) - len(place) - 1), meant(parts[0], Meaning.DOUBT)]
    row = [*[""] * (len(_HISTORY) - len(place) - len(parts)), *parts]
    if isinstance(row[_RANGE], Meant):
        row[_RANGE], row[_BAD] = row[_BAD], row[_RANGE]
    return [*place, *row]


def _print_history_table(rows: Sequence[Sequence[str]], left_out: Sequence[str]) -> None:
    """Prints a table for a terminal, without columns that are empty in all rows."""
    there = [any(row[at] for row in rows) for at in range(len(_HISTORY))]
    kept = [at for at, column in enumerate(_HISTORY) if there[at] and column.called not in left_out]
    print_table([_HISTORY[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _pieces(each: Shown) -> list[str]:
    row = each.row
    if row.meta is None and row.stats is None:
        return [_why(each)]
    remark = each.error or row.remark
    return [*_parts(each), _RECORDED if row.recorded and not row.remark else meant(remark, Meaning.DOUBT)]


def _parts(each: Shown) -> list[str]:
    row = each.row
    bad = flags(row.stats) if row.stats is not None else ""
    parts = tensor_parts(row.meta, row.stats, each.histogram)
    return [meant(part, Meaning.FINDING if bad and bad in part else None) for part in parts]


def _side_by_side(parts: Iterable[str]) -> Pieces:
    found: list[str] = []
    for part in filter(None, parts):
        found += [" ", part] if found else [part]
    return tuple(found)


def print_stats(shown: Sequence[Shown], *, several: bool) -> None:
    """Prints a table of statistics, and unreadable tensors below it."""
    table, errors = [], []
    for each in shown:
        row = each.row
        if row.meta is None and row.stats is None:
            rank = f" rank {row.key.rank}" if several else ""
            errors.append(meant(f"{_slot(row)} step {each.step}{rank} {_why(each)}", Meaning.DOUBT))
            continue
        about = (row.meta.dtype, shape_text(row.meta.shape)) if row.meta is not None else (NONE, NONE)
        table.append([_slot(row), *_where(each, several), *about, *statistic_cells(COLUMNS, row.stats)])
    columns = [
        Column("slot", weight=9),
        Column("step", right=True, weight=9),
        *([Column("rank", right=True, weight=8)] if several else []),
        Column("dtype", right=True, weight=2),
        Column("shape", right=True, weight=3),
        *statistic_columns(COLUMNS),
    ]
    if table:
        print_table(columns, table)
    print_text(*errors)


def values_document(session: Session, found: FoundNode, shown: Iterable[Shown]) -> Row:
    return {
        **row_of(found, "node", "graph"),
        "ranks": list(found.rows),
        **_about(session, found),
        "tensors": [_tensor(each) for each in shown],
    }


def _tensor(each: Shown) -> Row:
    row, distribution = each.row, each.histogram
    return {
        "rank": row.key.rank,
        "step": each.step,
        **row_of(row, "role", "slot"),
        "round": row.key.round,
        "rounds": row.rounds,
        "key": key_row(row.key),
        "from": row.origin_text if row.role != "out" and row.origin_text else None,
        "constant": each.constant or None,
        **meta_row(row.meta),
        "placement": row.placement or None,
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "histogram": None if distribution is None else row_of(distribution, "edges", "counts"),
        "slice": each.window or None,
        "values": each.values,
        **({"heat": each.cells} if each.cells is not None else {}),
        "recorded": row.recorded,
        "remark": row.remark or None,
        "uncertain": row.uncertain,
        "error": each.error,
    }


def _about(session: Session, found: FoundNode) -> dict[str, str]:
    rank, row = next(iter(found.rows.items()))
    nodes = session.nodes(rank)
    return {"type": nodes.op_type(row), "category": Category(int(nodes.category[row])).name.lower()}


def _slot(row: TensorRow) -> str:
    return f"{row.role}:{row.slot}{round_text(row.key.round, row.rounds)}"


def _where(each: Shown, several: bool) -> list[str]:
    return [str(each.step), *([str(each.row.key.rank)] if several else [])]


def _why(each: Shown) -> str:
    """Says why a tensor is not shown; without a file, adds the graph's information."""
    origin = each.row.origin_text if each.row.index < 0 else ""
    if origin and each.constant:
        return clean(f"constant {origin}, {each.error}")
    return clean(f"{each.error} (from {origin})" if origin else each.error)


def _source(each: Shown) -> str:
    """Names the source of a tensor if it is not the node at this step."""
    row = each.row
    if row.index < 0:
        return ""
    words = [f"{'constant' if each.constant else 'from'} {row.origin_text}"] if row.origin_text else []
    words += [f"value of step {row.key.step}"] if row.key.step != each.step else []
    words += ["the file may belong to another node"] if row.uncertain else []
    return clean(", ".join(words))


_BAR = 40
"""Cells of the longest bar."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A tensor that was looked at; its results are None on failure."""

    shown: Shown
    distribution: TensorDistribution | None = None
    bars: HistogramBars | None = None
    error: str = ""


def distributions_of(
    session: Session, rows: Sequence[Shown], arguments: Namespace, progress: ProgressFn
) -> list[Inspected]:
    """Looks at the values of every tensor. Raises CancelledError."""
    return [_distribution_at(session, each, arguments, progress) for each in rows]


def spreads(session: Session, found: FoundNode, seen: Sequence[Inspected]) -> Answer:
    """Answers with distributions."""
    rows = [each.shown for each in seen]

    def document() -> Row:
        values = values_document(session, found, rows)
        tensors = [{**row, **_document(each)} for row, each in zip(values["tensors"], seen, strict=True)]
        return {**values, "tensors": tensors}

    def show(_: int) -> None:
        print_head(session, found, rows)
        for each in seen:
            _print(each, several=len(found.rows) > 1)

    return _answer(rows, any(each.distribution is not None for each in seen), document, show)


def _distribution_at(session: Session, shown: Shown, arguments: Namespace, progress: ProgressFn) -> Inspected:
    if shown.error or shown.row.index < 0:
        return Inspected(shown, error=shown.error or "not dumped")
    try:
        distribution = distribution_of_row(session, shown.row, progress)
        if distribution.classes is not None and distribution.quantiles is None:
            distribution = replace(distribution, quantiles=percentiles(session, distribution, PERCENTS, progress))
        bins = choose_bins([distribution], arguments.bins, log=arguments.log)
        return Inspected(shown, distribution, bars(session, distribution, bins, progress, log=arguments.log))
    except UnreadableTensorError as error:
        return Inspected(replace(shown, unreadable=True), error=error.what)


# -- for people ------------------------------------------------------------------------------------


def _print(each: Inspected, *, several: bool) -> None:
    row, distribution = each.shown.row, each.distribution
    rank = f" rank {row.key.rank}" if several else ""
    about = type_text(row.meta)
    print_text("", f"step {each.shown.step}{rank}  {_slot(row)}  {about}".rstrip())
    if distribution is None:
        print_text(meant(f"  {each.error}", Meaning.DOUBT))
        return
    print_text(*(f"  {line}" for line in _lines(distribution)))
    if each.bars is not None and each.bars.bins:
        _print_bars(each.bars, distribution)


def _lines(distribution: TensorDistribution) -> list[str]:
    stats = distribution.stats
    lines = []
    if stats is not None:
        lines.append(f"{elements_text(stats)}: {' · '.join(counts_items(stats))}")
        lines.append(" · ".join(moments_items(stats)))
    if distribution.classes is None:
        lines.append("only statistics are known, no values: no percentiles, no shares, no bars")
    greatest = distribution.headroom.greatest if distribution.headroom is not None else None
    if taken := taken_text(distribution.dtype, greatest):
        lines.insert(0, taken)
    if distribution.quantiles is not None and distribution.quantiles.values:
        lines.append(f"exact percentiles: {'  '.join(percentile_items(distribution.quantiles))}")
    if distribution.headroom is not None:
        lines += [" · ".join(items) for items in headroom_items(distribution.headroom, distribution.dtype)]
    return lines


def _print_bars(found: HistogramBars, distribution: TensorDistribution) -> None:
    stats = distribution.stats
    print_text(f"  {bins_text(found.bins, log=found.log)}")
    top, count = max(found.counts), stats.count if stats is not None else sum(found.counts)
    cells = [
        ["", bin_text(each), f"{amount:,}", share(amount, count)]
        for each, amount in zip(found.bins, found.counts, strict=True)
    ]
    terminal = terminal_of()
    longest = _BAR
    if terminal is not None:
        titles = ("", "values", "count", "share")
        others = sum(max(map(width_of, column)) + 2 for column in zip(titles, *cells, strict=True))
        longest = max(min(_BAR, terminal.columns - others), 1)
    table = [
        [*row, "█" * max(longest * amount // max(top, 1), amount > 0)]
        for row, amount in zip(cells, found.counts, strict=True)
    ]
    columns = [
        Column(""),
        Column("values", weight=9),
        Column("count", right=True, weight=8),
        Column("share", right=True, weight=6),
        Column("", weight=7),
    ]
    print_table(columns, table)


# -- as JSON ---------------------------------------------------------------------------------------


def _document(each: Inspected) -> Row:
    """Returns the distribution's keys for the document of a tensor."""
    distribution = each.distribution
    if distribution is None:
        return {"distribution": None, "error": each.error}
    found = distribution.quantiles
    pairs = [] if found is None else zip(found.percents, found.values, strict=False)
    return {
        "distribution": {
            "values_known": distribution.classes is not None,
            "percentiles": [{"percent": part, "value": plain(value)} for part, value in pairs],
            "exact": found is not None,
            "headroom": None if distribution.headroom is None else _headroom(distribution.headroom),
            "log_bins": each.bars.log if each.bars is not None else False,
            "bins": []
            if each.bars is None
            else [
                {
                    "low": plain(each_bin.low),
                    "low_included": each_bin.with_low,
                    "high": plain(each_bin.high),
                    "high_included": each_bin.with_high,
                    "count": amount,
                }
                for each_bin, amount in zip(each.bars.bins, each.bars.counts, strict=True)
            ],
        }
    }


def _headroom(room: Headroom) -> Row:
    return {
        "finite": room.finite,
        "max_abs": plain(room.greatest),
        "least_abs": plain(room.least),
        "types": [_conversion(conversion) for conversion in room.conversions],
    }


def _conversion(conversion: CastResult) -> Row:
    limits = conversion.limits
    return {
        "dtype": limits.name,
        "max": limits.largest,
        "least_normal": limits.normal,
        "least": limits.smallest,
        "overflow": conversion.overflowing,
        "become_zero": conversion.vanishing,
        "subnormal": conversion.subnormal,
    }
