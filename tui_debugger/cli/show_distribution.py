"""``tdbg show --distribution``: how the values of a node's tensors are spread."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui_debugger.cli import show_print
from tui_debugger.cli.output import note, print_json, print_table
from tui_debugger.cli.show_look import Shown
from tui_debugger.cli.unseen import Unseen
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.diagnosis.distribution import Bars, Spread, bars, choose_bins, percentiles, spread_of
from tui_debugger.session.naming import Found
from tui_debugger.session.tables import plain
from tui_debugger.stats.quantiles import PERCENTS, Fate, Headroom
from tui_debugger.text.clean import clean
from tui_debugger.text.distribution import (
    bin_text,
    bins_text,
    counts_items,
    headroom_items,
    moments_items,
    percentile_items,
    share,
    taken_text,
)
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import round_text, shape_text

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
    return [_look_at(session, each, arguments, progress) for each in rows]


def print_spreads(
    session: Session, found: Found, seen: Sequence[Seen], arguments: argparse.Namespace, missing: Unseen
) -> int:
    """Prints them, or the document, and returns the exit code: 2 when there is nothing to show, or more is missing."""
    answered = any(each.spread is not None for each in seen)
    code = missing.code(0 if answered else 2)
    rows = [each.shown for each in seen]
    if arguments.json:
        document = show_print.document(session, found, rows)
        tensors = [{**row, **_document(each)} for row, each in zip(document["tensors"], seen, strict=True)]
        about = {"command": "show", "path": str(arguments.path), "exit_code": code}
        print_json({**about, **document, "tensors": tensors, **missing.rows})
    else:
        show_print.print_head(session, found, rows)
        for each in seen:
            _print(each, several=len(found.rows) > 1)
    if not answered:
        note("nothing of what was asked for can be shown")
    return code


def _look_at(session: Session, shown: Shown, arguments: argparse.Namespace, progress: ProgressFn) -> Seen:
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
    print(f"\nstep {each.shown.step}{rank}  {slot}  {about}".rstrip())
    if spread is None:
        print(f"  {clean(each.error)}")
        return
    for line in _lines(spread):
        print(f"  {line}")
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
    print(f"  {bins_text(found.bins, log=found.log)}")
    top, count = max(found.counts), stats.count if stats is not None else sum(found.counts)
    table = [
        ["", bin_text(each), f"{amount:,}", share(amount, count), "█" * max(_BAR * amount // max(top, 1), amount > 0)]
        for each, amount in zip(found.bins, found.counts, strict=True)
    ]
    print_table(("", "values", "count", "share", ""), table, right=("count", "share"))


# -- as JSON ---------------------------------------------------------------------------------------


def _document(each: Seen) -> dict[str, Any]:
    """What is added to the document of a tensor."""
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
        "types": [_fate(fate) for fate in room.fates],
    }


def _fate(fate: Fate) -> dict[str, Any]:
    limits = fate.limits
    return {
        "dtype": limits.name,
        "max": limits.largest,
        "least_normal": limits.normal,
        "least": limits.smallest,
        "overflow": fate.overflowing,
        "become_zero": fate.vanishing,
        "subnormal": fate.subnormal,
    }
