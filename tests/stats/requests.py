"""Short ways to batches of requests, and to a record of arrays for tests that are about judging."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import CancelledError
from tui_debugger.model import ReadSpec, Watchpoint, WatchResult
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.records import ONLY_COMPARED, ReadRequests, ReadSpecs, Record, Records, RequiredStats
from tui_debugger.watch.condition_table import by_abbr, validate
from tui_debugger.watch.evaluate import ColumnEvaluator, needs

Array = npt.NDArray[Any]

CLOSE = frozenset({(1e-5, 1e-8, False), (0.0, 0.0, True)})
EVERYTHING = RequiredStats(frozenset({(-1.0, 1.0), (0.0, float("inf"))}), change=True, closeness=CLOSE)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def watch(condition: str, params: Mapping[str, float | bool] | None = None, number: int = 1) -> Watchpoint:
    return Watchpoint(number, by_abbr(condition).id, validate(condition, params or {}))


def requests_for(
    files: Sequence[Path | ReadSpec],
    previous: Iterable[int],
    need: RequiredStats | Sequence[RequiredStats | None],
    default: str = "",
) -> ReadRequests:
    """A batch of files.

    Args:
        files: what to read.
        previous: for each the number of what it is compared with, -1 without one.
        need: of all of them, or of each; None: only compared with.
        default: the element type that the names of files declare.
    """
    specs = [file if isinstance(file, ReadSpec) else ReadSpec(str(file), dtype=default) for file in files]
    wanted = [need] * len(specs) if isinstance(need, RequiredStats) else list(need)
    needs = tuple(dict.fromkeys(each for each in wanted if each is not None))
    return ReadRequests(
        ReadSpecs.of(specs),
        np.fromiter(previous, np.int32),
        needs,
        np.array([ONLY_COMPARED if each is None else needs.index(each) for each in wanted], np.int16),
    )


def chains(root: Path) -> tuple[list[Path], list[int]]:
    """The files of a dump tensor by tensor, each through its steps, and what each is compared with."""
    by_tensor: dict[str, list[Path]] = {}
    for path in sorted(root.glob("rank_0/*/*/[0-9]*/*.npy"), key=lambda path: int(path.parent.name)):
        name = ".".join(part for part in path.name.split(".") if not (part.isdecimal() and len(part) == 16))
        by_tensor.setdefault(name, []).append(path)
    files, previous = [], []
    for steps in by_tensor.values():
        previous += [-1, *range(len(files), len(files) + len(steps) - 1)]
        files += steps
    return files, previous


def look(file: Path | ReadSpec, previous: Path | ReadSpec | None = None, need: RequiredStats | None = None) -> Record:
    """A record of one file."""
    files = [file] if previous is None else [previous, file]
    requests = requests_for(files, [-1, 0][: len(files)], [None, need or RequiredStats()][-len(files) :])
    record = read_all(requests).get(len(files) - 1)
    assert record is not None
    return record


def look_at(current: Array, previous: Array | None = None, need: RequiredStats | None = None) -> Record:
    """A record made the way the program makes it: from files."""
    with tempfile.TemporaryDirectory() as folder:
        now, before = Path(folder) / "now.npy", Path(folder) / "before.npy"
        np.save(now, current)
        if previous is not None:
            np.save(before, previous)
        return look(now, None if previous is None else before, need)


def evaluate(watchpoint: Watchpoint, record: Record, *, first_step: bool, initial: bool = False) -> WatchResult | None:
    """What the program says of one record."""
    evaluator = ColumnEvaluator(Records.of([record]), np.array([0]))
    (result,) = evaluator.results(watchpoint, first_step, initial=initial)
    return result


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


def stopping(at: int = 5) -> Callable[..., None]:
    """A receiver of progress that cancels when it is called for the fifth time."""
    calls = count(1)

    def tell(*_: object) -> None:
        if next(calls) == at:
            raise CancelledError("stopped")

    return tell
