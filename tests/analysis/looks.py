"""Short ways to a record of arrays, for tests that are about judging."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.conditions import by_abbr, evaluate, needs, validate
from tui_debugger.analysis.measure import look
from tui_debugger.analysis.record import Job, Need, Record
from tui_debugger.model import ReadSpec, Watchpoint, WatchResult

Array = npt.NDArray[Any]


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def watch(condition: str, params: Mapping[str, float | bool] | None = None, number: int = 1) -> Watchpoint:
    return Watchpoint(number, by_abbr(condition).id, validate(condition, params or {}))


def look_at(current: Array, previous: Array | None = None, need: Need | None = None) -> Record:
    """A record made the way the program makes it: from files."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "now.npy", current)
        before = None
        if previous is not None:
            np.save(Path(folder) / "before.npy", previous)
            before = ReadSpec(str(Path(folder) / "before.npy"))
        return look(Job(0, ReadSpec(str(Path(folder) / "now.npy")), before, need or Need()))


def judge(
    condition: str,
    params: Mapping[str, float | bool],
    current: Array,
    previous: Array | None = None,
    *,
    first_step: bool = False,
    initial: bool = False,
) -> WatchResult | None:
    watchpoint = watch(condition, params)
    record = look_at(current, previous, needs(watchpoint))
    return evaluate(watchpoint, record, first_step=first_step, initial=initial)
