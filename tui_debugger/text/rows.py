"""Hits, tensors, statistics and coverage as plain dicts for JSON, CSV and pandas; NaN and Inf are texts."""

from __future__ import annotations

from collections.abc import Iterable

from tui_debugger.model import (
    Coverage,
    Frame,
    Hit,
    ParamResult,
    TensorKey,
    TensorMeta,
    TensorStats,
    UnreadablePart,
    Watchpoint,
    WatchResult,
)
from tui_debugger.stats.fields import COLUMNS, Form
from tui_debugger.text.documents import Row, plain, row_of
from tui_debugger.watch.condition_table import CONDITIONS, reasons
from tui_debugger.watch.text import format_watch


def key_row(key: TensorKey) -> Row:
    """Returns rank, step, graph, node, side (``input``, ``output``), slot, round (0: once)."""
    return {
        "rank": key.rank,
        "step": key.step,
        "graph": key.graph,
        "node": key.node,
        "side": key.side.name.lower(),
        "slot": key.slot,
        "round": key.round,
    }


def meta_row(meta: TensorMeta | None) -> Row:
    if meta is None:
        return {"dtype": None, "shape": None, "nbytes": None}
    return {"dtype": meta.dtype, "shape": list(meta.shape), "nbytes": meta.nbytes}


STATS_COLUMNS = tuple(field.column for field in COLUMNS)


def stats_row(stats: TensorStats | None) -> Row:
    """Counts and moments (over finite elements); ``std`` has divisor n, ``norm`` is the root of the sum of squares."""
    if stats is None:
        return dict.fromkeys(STATS_COLUMNS)
    bounds = at_least(stats)
    found = {field.column: plain(field.value(stats)) for field in COLUMNS}
    return {**found, "at_least": bounds} if bounds else found


def at_least(stats: TensorStats) -> list[str]:
    """Returns the counts of ``stats_row`` that are lower bounds, because the recorder wrote less."""
    if stats.counted and not stats.at_least:
        return []  # as of nearly all, and asking for each takes as long as writing it
    return [field.column for field in COLUMNS if field.form is Form.COUNT and stats.is_lower_bound(field.name)]


def hit_row(hit: Hit) -> Row:
    return {
        **key_row(hit.key),
        "verdict": hit.verdict.name.lower(),
        "origin": hit.origin,
        "results": [result_row(result) for result in hit.results],
        "stats": stats_row(hit.stats) if hit.stats is not None else None,
        "detail": hit.detail,
    }


FLAT_HIT_COLUMNS = (
    *("rank", "step", "graph", "node", "side", "slot", "round"),
    *("origin", "watchpoint", "condition", "abbr", "verdict"),
    *("error", "reasons", "parameter", "threshold", "hit", "actual", "detail"),
)


def flat_hit_rows(hit: Hit) -> list[Row]:
    """One row per parameter of each result (at least one row a result): for CSV and data frames."""
    rows = []
    for result in hit.results:
        base = {**key_row(hit.key), "origin": hit.origin, **result_row(result)}
        params = base.pop("params")
        base["reasons"] = ", ".join(base["reasons"])
        for param in params or [{"name": None, "value": None, "hit": None, "actual": None}]:
            renamed = {"parameter": param["name"], "threshold": param["value"], "hit": param["hit"]}
            rows.append({**base, **renamed, "actual": param["actual"], "detail": hit.detail})
    return rows


def result_row(result: WatchResult) -> Row:
    return {
        "watchpoint": result.watchpoint,
        "condition": result.condition,
        "abbr": CONDITIONS[result.condition].abbr,
        "verdict": result.verdict.name.lower(),
        "error": int(result.error),
        "reasons": list(reasons_of(result)),
        "params": [param_row(param) for param in result.params],
    }


def reasons_of(result: WatchResult) -> tuple[str, ...]:
    return reasons(result.error, result.condition, ((param.name, param.value) for param in result.params))


def param_row(param: ParamResult) -> Row:
    row: Row = {"name": param.name, "value": plain(param.value), "hit": param.hit, "actual": plain(param.actual)}
    if param.quantities:
        row["quantities"] = {name: plain(value) for name, value in param.quantities}
    return row


def coverage_row(coverage: Coverage) -> Row:
    return {
        **row_of(coverage, "checked", "unreadable", "not_comparable", "skipped", "by_design", "constants"),
        "pairs": [{"rank": rank, "step": step} for rank, step in coverage.steps],
    }


def part_rows(parts: Iterable[UnreadablePart]) -> list[Row]:
    """Parts of a run that could not be looked at; None for a rank or step means unknown, or all of them."""
    return [
        {
            **row_of(part, "where", "why", "rank", "step", "graph"),
            **{name: True for name in ("unrecorded", "incomplete", "unclaimed") if getattr(part, name)},
        }
        for part in parts
    ]


def watch_row(watchpoint: Watchpoint, watched: int | None = None) -> Row:
    """A watchpoint; ``text`` is its ``--watch`` text, ``tensors`` the number of tensors it looked at."""
    row = {
        **row_of(watchpoint, "id", "name", "condition"),
        "abbr": CONDITIONS[watchpoint.condition].abbr,
        "text": format_watch(watchpoint),
    }
    return row if watched is None else {**row, "tensors": watched}


def frame_row(frame: Frame) -> Row:
    return {"file": frame.path, "line": frame.line, "code": frame.code, "framework": frame.framework}
