"""How ``tdbg show`` says what it found: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tui_debugger.cli.output import print_table
from tui_debugger.cli.show_look import Shown
from tui_debugger.model import Category
from tui_debugger.session import Session
from tui_debugger.session.naming import Found
from tui_debugger.session.tables import STATS_COLUMNS, key_row, meta_row, stats_row
from tui_debugger.session.types import TensorRow
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE, number
from tui_debugger.text.tensors import aligned, round_text, shape_text, tensor_line, tensor_parts

_STATS = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "positive", *STATS_COLUMNS[7:])
_STAT_TITLES = (
    *("dtype", "shape", "count", "NaN", "+Inf", "-Inf", "zero", "neg", "pos"),
    *("min", "max", "mean", "mean |x|", "std", "norm"),
)
_RECORDED = "(recorded in the dump)"
_ABOUT = 3
"""The first pieces of a line, which say what a tensor is, not what it holds: type, shape, number of elements."""


def print_head(session: Session, found: Found, shown: Sequence[Shown]) -> None:
    """Two lines about the node."""
    words = [*_about(session, found).values(), found.graph]
    slots = {_slot(each.row) for each in shown}
    print(clean(found.node))
    print(clean(", ".join([*words, *(slots if len(slots) == 1 else ())])))


def print_values(shown: Sequence[Shown], *, several: bool) -> None:
    """For every step (and rank, when there are ``several``) each tensor's line and its values."""
    place = None
    for each in shown:
        row = each.row
        here = (each.step, row.key.rank)
        if here != place:
            print(f"\nstep {each.step}" + (f" rank {row.key.rank}" if several else ""))
        place = here
        line = tensor_line(row.meta, row.stats, each.histogram)
        print(" ".join(filter(None, (_slot(row), line or _why(each), _RECORDED if row.recorded and line else ""))))
        for text in (clean(row.placement), _source(each), _why(each) if line else "", each.window, each.text):
            for part in text.splitlines():
                print(f"  {part}".rstrip())


def print_history(shown: Sequence[Shown], *, several: bool) -> None:
    """One line per tensor and step; the slot stands in each line when there are several."""
    by_slot = len({_slot(each.row) for each in shown}) > 1
    pieces = [_pieces(each) for each in shown]
    shared = {tuple(parts[:_ABOUT]) for parts in pieces if len(parts) > 1}
    if not by_slot and len(shared) == 1:  # type, shape and count once: leaves room for NaN on a narrow screen
        print(" ".join(filter(None, shared.pop())))
        pieces = [parts[_ABOUT:] if len(parts) > 1 else parts for parts in pieces]
    lines = [
        [*([_slot(each.row)] if by_slot else []), *_where(each, several), *parts]
        for each, parts in zip(shown, pieces, strict=True)
    ]
    titles = [*(["slot"] if by_slot else []), "step", *(["rank"] if several else [])]
    width = max(len(line) for line in lines)
    print("\n".join(aligned([[*titles, *[""] * (width - len(titles))], *lines])))


def _pieces(each: Shown) -> list[str]:
    row = each.row
    if row.meta is None and row.stats is None:
        return [_why(each)]
    return [*tensor_parts(row.meta, row.stats, each.histogram), _RECORDED if row.recorded else each.error]


def print_stats(shown: Sequence[Shown], *, several: bool) -> None:
    """A table of statistics; what cannot be read stands below it."""
    table, errors = [], []
    for each in shown:
        row = each.row
        if row.meta is None and row.stats is None:
            rank = f" rank {row.key.rank}" if several else ""
            errors.append(f"{_slot(row)} step {each.step}{rank} {_why(each)}")
            continue
        about = (row.meta.dtype, shape_text(row.meta.shape)) if row.meta is not None else (NONE, NONE)
        stats = stats_row(row.stats)
        cells = [str(stats[name]) if isinstance(stats[name], int) else _number(stats[name]) for name in _STATS]
        table.append([_slot(row), *_where(each, several), *about, *cells])
    titles = ("slot", "step", *(("rank",) if several else ()), *_STAT_TITLES)
    if table:
        print_table(titles, table, right=titles[1:])
    for error in errors:
        print(error)


def document(session: Session, found: Found, shown: Iterable[Shown]) -> dict[str, Any]:
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


def _number(value: float | str | None) -> str:
    return number(float(value) if isinstance(value, str) else value)  # "inf" is a number that JSON cannot spell


def _why(each: Shown) -> str:
    """Why a tensor is not shown; when there is no file, with what the graph says about it."""
    origin = each.row.origin_text if each.row.index < 0 else ""
    if origin and each.constant:
        return clean(f"constant {origin}, {each.error}")
    return clean(f"{each.error} (from {origin})" if origin else each.error)


def _source(each: Shown) -> str:
    """Where a tensor comes from, when that is not the node at this step itself."""
    row = each.row
    if row.index < 0:
        return ""
    words = [f"{'constant' if each.constant else 'from'} {row.origin_text}"] if row.origin_text else []
    words += [f"value of step {row.key.step}"] if row.key.step != each.step else []
    words += ["the file may belong to another node"] if row.uncertain else []
    return clean(", ".join(words))
