"""What ``tdbg show`` finds out about the tensors of a node, and how it prints it: lines, values, distributions."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from tui_debugger.check.types import Pair, TensorRow
from tui_debugger.cli.output import Unseen, note, print_json, print_table, print_text
from tui_debugger.cli.show_values import JSON_WHOLE, Canvas, cut, excerpt_text, heat_of, nested, window_text
from tui_debugger.diagnose.distribution import Bars, Spread, bars, choose_bins, percentiles, spread_of
from tui_debugger.errors import BadSliceError, UnreadableTensorError
from tui_debugger.model import Category, Progress, ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.naming import Found, no_such_tensor
from tui_debugger.stats.distribution import Histogram, histogram
from tui_debugger.stats.fields import COLUMNS
from tui_debugger.stats.quantiles import PERCENTS, Conversion, Headroom
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import (
    bin_text,
    bins_text,
    counts_items,
    headroom_items,
    moments_items,
    percentile_items,
    statistic_cell,
    statistic_columns,
    taken_text,
)
from tui_debugger.text.documents import plain
from tui_debugger.text.numbers import NONE, plural, share
from tui_debugger.text.rows import key_row, meta_row, stats_row
from tui_debugger.text.tables import Column, Cut, width_of
from tui_debugger.text.tensors import aligned, flags, round_text, shape_text, tensor_parts
from tui_debugger.text.writer import Meaning, Meant, Pieces, meant, terminal_of, write_colored, write_lines

_ROLES = ("in", "out", "param")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of every tensor.

    Attributes:
        values: the values themselves.
        spread: a histogram.
        slice: which values; None for an excerpt.
        precision: digits after the point.
        json: values as nested lists, not as text.
        heat: where heat maps go that take the place of the values; None for none.
    """

    values: bool
    spread: bool
    slice: str | None
    precision: int
    json: bool
    heat: Canvas | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A tensor and what is said about it.

    Attributes:
        row: with statistics.
        step: the step looked at; the tensor itself may be of the one before.
        histogram: None where there is no finite value, or only recorded statistics.
        window: canonical text of the slice that ``values`` or ``text`` holds; empty without one.
        values: nested lists; None when they were not wanted, or are too many.
        text: values for people.
        cells: a heat map for JSON.
        error: why the tensor, or the values that were asked for, cannot be shown.
    """

    row: TensorRow
    step: int
    histogram: Histogram | None = None
    window: str = ""
    values: Any = None
    text: str = ""
    cells: dict[str, Any] | None = None
    error: str = ""

    @property
    def constant(self) -> str:
        """What the graph says about the value of a constant: for an output the value, for an input ``cst1 = 2``."""
        text = self.row.origin_text
        return text if self.row.role == "out" or " = " in text else ""

    @property
    def answers(self) -> bool:
        """Whether it says what was asked: values, statistics, or a constant of the graph."""
        return not self.error or bool(self.row.index < 0 and self.constant)


def look(session: Session, found: Found, pairs: Sequence[Pair], wish: Wish, progress: ProgressFn) -> list[Shown]:
    """Everything about the wanted tensors of a node.

    Returns:
        With values: by step, rank, then as in the tensor table. Without: by role and slot, then step and rank.

    Raises:
        TdbgError: the node has no such slot.
        BadSliceError: the slice fits none of the tensors.
        CancelledError: from ``progress``.
    """
    places = _measured(session, found, pairs, progress)
    shown: list[Shown] = []
    refused: list[BadSliceError] = []
    for done, (row, step) in enumerate(places):
        progress(Progress(done, len(places), "values"))
        try:
            shown.append(_look_at(session, row, step, wish))
        except UnreadableTensorError as error:
            shown.append(Shown(row, step, error=error.what))
        except BadSliceError as error:
            refused.append(error)
            shape = row.meta.shape if row.meta is not None else ()
            shown.append(Shown(row, step, error=f"{error.what}: the shape is {tuple(shape)}"))
    if refused and len(refused) == sum(1 for each in shown if each.row.has_value):
        raise refused[0]
    if wish.values:
        return shown
    return sorted(shown, key=lambda each: (_ROLES.index(each.row.role), each.row.slot))


def _measured(
    session: Session, found: Found, pairs: Sequence[Pair], progress: ProgressFn
) -> list[tuple[TensorRow, int]]:
    """The wanted tensors with their statistics, and the step they were asked for, in the order of ``pairs``."""
    there: list[TensorRow] = []
    wanted: dict[int, list[tuple[TensorRow, int]]] = {}
    for rank, step in pairs:
        progress(Progress(0, 0, f"rank {rank} step {step}"))
        rows = session.tensor_rows(rank, step, found.rows[rank], found.asked.round)
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


def _look_at(session: Session, row: TensorRow, step: int, wish: Wish) -> Shown:
    """One tensor.

    Raises:
        UnreadableTensorError: its file is broken.
        BadSliceError: the slice does not fit.
    """
    if row.index < 0 or row.error:
        return Shown(row, step, error=row.error or "not dumped")
    if not row.has_value:
        wanted = wish.slice is not None or wish.heat is not None
        return Shown(row, step, error="only statistics were dumped, no values" if wanted else "")
    if not (wish.spread or wish.values):
        return Shown(row, step)
    array = session.read(row.key)
    shown = Shown(row, step, _spread(row, array))
    return _with_values(shown, array, wish) if wish.values else shown


def _spread(row: TensorRow, array: npt.NDArray[Any]) -> Histogram | None:
    stats = row.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return histogram(array, stats.minimum, stats.maximum)


def _with_values(shown: Shown, array: npt.NDArray[Any], wish: Wish) -> Shown:
    if wish.heat is not None:
        heat = heat_of(array, wish.slice, wish.heat)
        return replace(shown, window=heat.window, text=heat.text, cells=heat.cells, error=heat.error)
    if wish.slice is not None:
        part, window = cut(array, wish.slice)
        if wish.json:
            return replace(shown, window=window.text, values=nested(part))
        return replace(shown, window=window.text, text=window_text(part, wish.precision))
    if wish.json:
        return replace(shown, window="[...]", values=nested(array)) if array.size <= JSON_WHOLE else shown
    return replace(shown, text=excerpt_text(array, wish.precision))


_RECORDED = "(recorded in the dump)"
_ABOUT = 3
"""The first pieces of a line, which say what a tensor is, not what it holds: type, shape, number of elements."""


def print_head(session: Session, found: Found, shown: Sequence[Shown]) -> None:
    """Two lines about the node."""
    words = [*_about(session, found).values(), found.graph]
    slots = {_slot(each.row) for each in shown}
    print_text(found.node, ", ".join([*words, *(slots if len(slots) == 1 else ())]))


def print_values(shown: Sequence[Shown], *, several: bool) -> None:
    """For every step (and rank, when there are ``several``) each tensor's line and its values."""
    place = None
    for each in shown:
        row = each.row
        here = (each.step, row.key.rank)
        if here != place:
            write_lines("", f"step {each.step}" + (f" rank {row.key.rank}" if several else ""))
        place = here
        parts = [part for part in _parts(each) if part]
        recorded = _RECORDED if row.recorded and parts else ""
        said = [*parts, recorded] if parts else [meant(_why(each), Meaning.DOUBT)]
        print_text(_side_by_side([_slot(row), *said]))
        about = (row.placement, _source(each), _why(each) if parts else "", each.window)
        print_text(*(f"  {text}" for text in about if text))
        write = write_lines if each.cells is None else write_colored
        write(*(f"  {text}".rstrip() for text in each.text.splitlines()))


def print_history(shown: Sequence[Shown], *, several: bool) -> None:
    """One line per tensor and step; the slot stands in each line when there are several."""
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
"""The columns of a history on a terminal: slot, step, rank, the pieces of a line, and what there is to remark."""
_RANGE, _BAD = 4, 7
"""Pieces of a line: of a tensor without a finite value NaN and Inf stand where its range would be."""


def _history_row(each: Shown, parts: Sequence[str]) -> list[str]:
    place = [_slot(each.row), str(each.step), str(each.row.key.rank)]
    if len(parts) == 1:
        return [*place, *[""] * (len(_HISTORY) - len(place) - 1), meant(parts[0], Meaning.DOUBT)]
    row = [*[""] * (len(_HISTORY) - len(place) - len(parts)), *parts]
    if isinstance(row[_RANGE], Meant):
        row[_RANGE], row[_BAD] = row[_BAD], row[_RANGE]
    return [*place, *row]


def _print_history_table(rows: Sequence[Sequence[str]], left_out: Sequence[str]) -> None:
    """A table for a terminal, without columns that are empty in all rows."""
    there = [any(row[at] for row in rows) for at in range(len(_HISTORY))]
    kept = [at for at, column in enumerate(_HISTORY) if there[at] and column.called not in left_out]
    print_table([_HISTORY[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _pieces(each: Shown) -> list[str]:
    row = each.row
    if row.meta is None and row.stats is None:
        return [_why(each)]
    return [*_parts(each), _RECORDED if row.recorded else meant(each.error, Meaning.DOUBT)]


def _parts(each: Shown) -> list[str]:
    """The pieces of the line of a tensor; NaN and Inf are findings."""
    row = each.row
    bad = flags(row.stats) if row.stats is not None else ""
    parts = tensor_parts(row.meta, row.stats, each.histogram)
    return [meant(part, Meaning.FINDING if bad and bad in part else None) for part in parts]


def _side_by_side(parts: Iterable[str]) -> Pieces:
    """A line of pieces with blanks between them."""
    found: list[str] = []
    for part in filter(None, parts):
        found += [" ", part] if found else [part]
    return tuple(found)


def print_stats(shown: Sequence[Shown], *, several: bool) -> None:
    """A table of statistics; what cannot be read stands below it."""
    table, errors = [], []
    for each in shown:
        row = each.row
        if row.meta is None and row.stats is None:
            rank = f" rank {row.key.rank}" if several else ""
            errors.append(meant(f"{_slot(row)} step {each.step}{rank} {_why(each)}", Meaning.DOUBT))
            continue
        about = (row.meta.dtype, shape_text(row.meta.shape)) if row.meta is not None else (NONE, NONE)
        cells = [statistic_cell(field, None if row.stats is None else field.value(row.stats)) for field in COLUMNS]
        table.append([_slot(row), *_where(each, several), *about, *cells])
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


def values_document(session: Session, found: Found, shown: Iterable[Shown]) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "node": found.node,
        "graph": found.graph,
        "ranks": list(found.rows),
        **_about(session, found),
        "tensors": [_tensor(each) for each in shown],
    }


def _tensor(each: Shown) -> dict[str, Any]:
    row, spread = each.row, each.histogram
    return {
        "rank": row.key.rank,
        "step": each.step,
        "role": row.role,
        "slot": row.slot,
        "round": row.key.round,
        "rounds": row.rounds,
        "key": key_row(row.key),
        "from": row.origin_text if row.role != "out" and row.origin_text else None,
        "constant": each.constant or None,
        **meta_row(row.meta),
        "placement": row.placement or None,
        "stats": stats_row(row.stats) if row.stats is not None else None,
        "histogram": None if spread is None else {"edges": list(spread.edges), "counts": list(spread.counts)},
        "slice": each.window or None,
        "values": each.values,
        **({"heat": each.cells} if each.cells is not None else {}),
        "recorded": row.recorded,
        "uncertain": row.uncertain,
        "error": each.error,
    }


def _about(session: Session, found: Found) -> dict[str, str]:
    rank, row = next(iter(found.rows.items()))
    nodes = session.nodes(rank)
    return {"type": nodes.op_type(row), "category": Category(int(nodes.category[row])).name.lower()}


def _slot(row: TensorRow) -> str:
    return f"{row.role}:{row.slot}{round_text(row.key.round, row.rounds)}"


def _where(each: Shown, several: bool) -> list[str]:
    return [str(each.step), *([str(each.row.key.rank)] if several else [])]


def _why(each: Shown) -> str:
    """Why a tensor is not shown; when there is no file, with what the graph says about it."""
    origin = each.row.origin_text if each.row.index < 0 else ""
    if origin and each.constant:
        return clean(f"constant {origin}, {each.error}")
    return clean(f"{each.error} (from {origin})" if origin else each.error)


def _source(each: Shown) -> str:
    """Tells where a tensor comes from, when that is not the node at this step itself."""
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
class Seen:
    """A tensor that was looked at; what was found is None when that failed."""

    shown: Shown
    spread: Spread | None = None
    bars: Bars | None = None
    error: str = ""


def spreads_of(
    session: Session, rows: Sequence[Shown], arguments: argparse.Namespace, progress: ProgressFn
) -> list[Seen]:
    """Looks at the values of every tensor.

    Raises:
        CancelledError: from ``progress``.
    """
    return [_distribution_at(session, each, arguments, progress) for each in rows]


def print_spreads(
    session: Session, found: Found, seen: Sequence[Seen], arguments: argparse.Namespace, missing: Unseen
) -> int:
    """Prints them, or the document, and returns the exit code: 2 when there is nothing to show, or more is missing."""
    answered = any(each.spread is not None for each in seen)
    code = missing.code(0 if answered else 2)
    rows = [each.shown for each in seen]
    if arguments.json:
        document = values_document(session, found, rows)
        tensors = [{**row, **_document(each)} for row, each in zip(document["tensors"], seen, strict=True)]
        about = {"command": "show", "path": str(arguments.path), "exit_code": code}
        print_json({**about, **document, "tensors": tensors, **missing.rows})
    else:
        print_head(session, found, rows)
        for each in seen:
            _print(each, several=len(found.rows) > 1)
    if not answered:
        note("nothing of what was asked for can be shown")
    return code


def _distribution_at(session: Session, shown: Shown, arguments: argparse.Namespace, progress: ProgressFn) -> Seen:
    if shown.error or shown.row.index < 0:
        return Seen(shown, error=shown.error or "not dumped")
    try:
        spread = spread_of(session, shown.row, progress)
        if spread.classes is not None and spread.quantiles is None:
            spread = replace(spread, quantiles=percentiles(session, spread, PERCENTS, progress))
        bins = choose_bins([spread], arguments.bins, log=arguments.log)
        return Seen(shown, spread, bars(session, spread, bins, progress, log=arguments.log))
    except UnreadableTensorError as error:
        return Seen(shown, error=error.what)


# -- for people ------------------------------------------------------------------------------------


def _print(each: Seen, *, several: bool) -> None:
    row, spread = each.shown.row, each.spread
    rank = f" rank {row.key.rank}" if several else ""
    about = f"{clean(row.meta.dtype)} {shape_text(row.meta.shape)}" if row.meta is not None else ""
    slot = f"{row.role}:{row.slot}{round_text(row.key.round, row.rounds)}"
    print_text("", f"step {each.shown.step}{rank}  {slot}  {about}".rstrip())
    if spread is None:
        print_text(meant(f"  {each.error}", Meaning.DOUBT))
        return
    print_text(*(f"  {line}" for line in _lines(spread)))
    if each.bars is not None and each.bars.bins:
        _print_bars(each.bars, spread)


def _lines(spread: Spread) -> list[str]:
    stats = spread.stats
    lines = []
    if stats is not None:
        lines.append(f"{plural(stats.count, 'element')}: {' · '.join(counts_items(stats))}")
        lines.append(" · ".join(moments_items(stats)))
    if spread.classes is None:
        lines.append("only statistics are known, no values: no percentiles, no shares, no bars")
    greatest = spread.headroom.greatest if spread.headroom is not None else None
    if taken := taken_text(spread.dtype, greatest):
        lines.insert(0, taken)
    if spread.quantiles is not None and spread.quantiles.values:
        lines.append(f"exact percentiles: {'  '.join(percentile_items(spread.quantiles))}")
    if spread.headroom is not None:
        lines += [" · ".join(items) for items in headroom_items(spread.headroom, spread.dtype)]
    return lines


def _print_bars(found: Bars, spread: Spread) -> None:
    stats = spread.stats
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


def _document(each: Seen) -> dict[str, Any]:
    """Returns what is added to the document of a tensor."""
    spread = each.spread
    if spread is None:
        return {"distribution": None, "error": each.error}
    found = spread.quantiles
    pairs = [] if found is None else zip(found.percents, found.values, strict=False)
    return {
        "distribution": {
            "values_known": spread.classes is not None,
            "percentiles": [{"percent": part, "value": plain(value)} for part, value in pairs],
            "exact": found is not None,
            "headroom": None if spread.headroom is None else _headroom(spread.headroom),
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


def _headroom(room: Headroom) -> dict[str, Any]:
    return {
        "finite": room.finite,
        "max_abs": plain(room.greatest),
        "least_abs": plain(room.least),
        "types": [_conversion(conversion) for conversion in room.conversions],
    }


def _conversion(conversion: Conversion) -> dict[str, Any]:
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
