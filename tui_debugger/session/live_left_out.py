"""Gradients of steps that a gradient scaler skipped: the training judged them, and accepted their NaN and Inf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import draws_updates
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.table import LiveTable
from tui_debugger.model import Category, ProgressFn, no_progress
from tui_debugger.stats.records import RequiredStats, holds_bad

SCALER: Final = frozenset({"GradScaler"})


def left_out(
    live: LiveRank, measurements: Measurements, step: int, progress: ProgressFn = no_progress
) -> Mapping[int, frozenset[str]]:
    """The places of a step that hold NaN or Inf without being findings, because a gradient scaler skipped the step.

    Our client for PyTorch knows skipped steps and reports no findings of them. So bad gradients that came without a
    finding reveal such a step; then bad values that the scaler and the program computed from the gradients are no
    findings either.
    """
    kept, graph, flow = live.kept(step), live.graph, measurements.flow
    table = flow.table(step) if kept is not None else None
    if kept is None or kept.clean is None or graph is None or not isinstance(table, LiveTable):
        return {}
    if not draws_updates(graph.nodes):
        return {}
    came = np.zeros(len(graph), np.bool_)
    came[[*kept.values, *kept.sent]] = True
    rows = np.flatnonzero((kept.clean & came)[table.places])
    gradient = graph.nodes.category[table.node[rows]] == Category.GRADIENT
    found = _bad(measurements, step, rows[gradient], progress)
    if len(found):
        found = np.concatenate([found, _bad(measurements, step, rows[~gradient], progress)])
    return dict.fromkeys(table.places[found].tolist(), SCALER)


def _bad(measurements: Measurements, step: int, rows: Int64, progress: ProgressFn) -> Int64:
    wanted = dict.fromkeys(((step, at) for at in rows.tolist()), RequiredStats())
    measurements.ensure(wanted, progress, f"rank {measurements.flow.rank} step {step}: what a scaler left out")
    with measurements.locked():
        return rows[holds_bad(measurements.records(step).rows[rows])]
