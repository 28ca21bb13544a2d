"""The run as a diagnosis sees it: the part of ``Session`` that diagnoses use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.check.contents import Contents
from tui_debugger.check.flow import DataFlow
from tui_debugger.check.measure import Measurements
from tui_debugger.check.pipeline import Checks
from tui_debugger.check.types import CheckResult, Pair, TensorRow
from tui_debugger.diagnose.origin.search import OriginReport
from tui_debugger.errors import TdbgError
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import (
    GraphRun,
    ProgressFn,
    ReadSpec,
    RunInfo,
    TensorKey,
    UnreadablePart,
    Watchpoint,
    no_progress,
)
from tui_debugger.notes import RunNotes, ShownNote
from tui_debugger.sources.base import CallArguments, RankPlaces
from tui_debugger.sources.scope import ListedRun
from tui_debugger.stats.workers import MeasureWorkers


class WatchpointsOfRun(Protocol):
    """The watchpoints of a run, as far as a diagnosis needs them."""

    @property
    def version(self) -> int:
        """Changes with each change of the list."""
        ...

    def enabled(self) -> tuple[Watchpoint, ...]: ...

    def get(self, watchpoint_id: int) -> Watchpoint | None: ...


class DiagnosedRun(Protocol):
    """A run: its steps, nodes, tensors, and what checks found. See ``Session`` for each member."""

    @property
    def watchpoints(self) -> WatchpointsOfRun: ...

    @property
    def info(self) -> RunInfo: ...

    @property
    def contents(self) -> Contents:
        """Tells whether two tensors hold the same."""
        ...

    @property
    def workers(self) -> MeasureWorkers: ...

    # -- what there is

    def open(self, progress: ProgressFn = no_progress) -> None: ...

    def close(self) -> None: ...

    def another(self, path: Path) -> DiagnosedRun: ...

    @property
    def around(self) -> ListedRun:
        """Lists the whole run; ``ranks`` and ``steps`` of this class list the part below the opened path."""
        ...

    def ranks(self) -> Sequence[int]: ...

    def steps(self, rank: int) -> Sequence[int]: ...

    def pairs(self, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> tuple[Pair, ...]: ...

    def history(self, rank: int) -> Sequence[GraphRun]: ...

    def notes(self, rank: int) -> RunNotes: ...

    def run_notes(self, rank: int) -> RunNotes: ...

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]: ...

    def notes_at(self, rank: int, step: int) -> tuple[ShownNote, ...]: ...

    def before(self, key: TensorKey) -> TensorKey | None: ...

    def turn_spans(self, rank: int) -> dict[int, tuple[int, int]]: ...

    def steps_before(self, rank: int, steps: Collection[int]) -> set[int]: ...

    def unreadable(self, pairs: Sequence[Pair] | None = None, *, graph: bool = True) -> tuple[UnreadablePart, ...]: ...

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]: ...

    # -- nodes

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable: ...

    def flow(self, rank: int, progress: ProgressFn = no_progress) -> DataFlow: ...

    def graph_names(self, ranks: Iterable[int] | None = None) -> tuple[str, ...]: ...

    def in_scope(self, rank: int) -> Mask: ...

    def watch_state(self, rank: int, watchpoint_id: int | None = None) -> npt.NDArray[np.uint8]: ...

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> CallArguments | None: ...

    # -- tensors

    def tensor_rows(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see TensorKey
        *,
        every: bool = False,
    ) -> tuple[TensorRow, ...]: ...

    def row_of(self, key: TensorKey) -> TensorRow: ...

    def measure(self, rows: Sequence[TensorRow], progress: ProgressFn = no_progress) -> tuple[TensorRow, ...]: ...

    def measurements(self, rank: int, progress: ProgressFn = no_progress) -> Measurements: ...

    def read(self, key: TensorKey, progress: ProgressFn = no_progress) -> npt.NDArray[Any]: ...

    def spec(self, key: TensorKey) -> ReadSpec | None: ...

    # -- what checks found

    def checks(self, others: Sequence[Watchpoint] | None = None) -> Checks: ...

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None: ...

    def fresh(self, pairs: Sequence[Pair]) -> bool: ...

    def find_origin(
        self,
        pairs: Sequence[Pair],
        watchpoints: Sequence[Watchpoint] = (),
        progress: ProgressFn = no_progress,
        spread: int = 5,
    ) -> OriginReport: ...


def ranks_of(run: DiagnosedRun) -> list[int]:
    """Returns the ranks of a run; TdbgError where there is none, for example where its directory cannot be listed."""
    ranks = list(run.ranks())
    if not ranks:
        why = "".join(f": {part.where} ({part.why})" for part in run.unreadable()[:1])
        what = f"no rank of the run can be read{why}"
        raise TdbgError(what, where=str(run.info.path), hint="see that its directories can be listed")
    return ranks
