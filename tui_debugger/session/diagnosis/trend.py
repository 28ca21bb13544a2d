"""The history of a tensor: its statistics at every dumped step, as columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.health import Health
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.updates import relatives
from tui_debugger.model import Hit, Progress, ProgressFn, Side, TensorKey, TensorMeta, TensorStats, Verdict, no_progress
from tui_debugger.session.flow import Flow
from tui_debugger.session.hits import is_overflow
from tui_debugger.session.session import Session
from tui_debugger.session.types import TensorRow
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.sources.base import TensorFlag
from tui_debugger.words.hits import said_words

Int64 = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
UInt8 = npt.NDArray[np.uint8]

TOGETHER: Final = 256
"""Steps that are listed and measured together."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What can be drawn over the steps.

    Attributes:
        id: as ``--metric`` takes it.
        title: as tables print it.
        help: in a few words.
    """

    id: str
    title: str
    help: str


METRICS: Final = (
    Metric("min", "min", "smallest finite value"),
    Metric("mean", "mean", "mean of the finite values"),
    Metric("max", "max", "greatest finite value"),
    Metric("norm", "norm", "root of the sum of squares of the finite values"),
    Metric("abs_mean", "mean |x|", "mean of the finite magnitudes"),
    Metric("std", "σ", "deviation of the finite values, divisor n"),
    Metric("nan", "NaN", "number of NaN"),
    Metric("inf", "Inf", "number of +Inf and -Inf"),
    Metric("zero", "zero %", "percentage of zeros"),
)
METRIC_BY_ID: Final[Mapping[str, Metric]] = {metric.id: metric for metric in METRICS}
_COLUMN: Final = {metric.id: number for number, metric in enumerate(METRICS)}


class State(IntEnum):
    """What is known of a tensor at a step."""

    ABSENT = 0
    """It was not dumped then."""
    MEASURED = 1
    RECORDED = 2
    """The dump has statistics only; what they leave out is not known."""
    NO_NUMBERS = 3
    """Its elements are no numbers."""
    UNREADABLE = 4


@dataclass(frozen=True, eq=False)
class Series:
    """One tensor over some steps. Immutable.

    Attributes:
        key: the tensor, at whatever step; its round is the one that is looked at in every step, 0 for the newest.
        row: row of its node in its rank's table.
        steps: ascending: dumped steps of the rank, whether or not the tensor is in them.
        values: [metric, step] in the order of ``METRICS``; NaN where there is no such value or it is not known.
        state: ``State`` by step.
        health: ``analysis.health.Health`` by step, as far as the session has checked.
        said: what the hits say, by step: abbreviations of their conditions.
        errors: why the tensor could not be read, by step.
        meta: element type and shape at the last step at which they are known.
    """

    key: TensorKey
    row: int
    steps: Int64
    values: Reals
    state: UInt8
    health: UInt8
    said: Mapping[int, str]
    errors: Mapping[int, str]
    meta: TensorMeta | None = None

    def of(self, metric: str) -> Reals:
        """One metric by step."""
        column: Reals = self.values[_COLUMN[metric]]
        return column

    def at(self, step: int) -> int:
        """Where a step is in the columns, or -1."""
        index = int(np.searchsorted(self.steps, step))
        return index if index < len(self.steps) and int(self.steps[index]) == step else -1

    def key_at(self, step: int) -> TensorKey:
        """The tensor at one step."""
        return self.key.at_step(step)

    @property
    def known(self) -> int:
        """Steps with statistics."""
        return int(((self.state == State.MEASURED) | (self.state == State.RECORDED)).sum())

    def count(self, state: State) -> int:
        """Steps in a state."""
        return int((self.state == state).sum())


def trend(session: Session, key: TensorKey, steps: Sequence[int], progress: ProgressFn = no_progress) -> Series:
    """The history of a tensor over some steps (ascending) of its rank; what was measured before is not read again.

    Raises:
        UnreadableTensorError: the run has no such node.
        CancelledError: from ``progress``; what was measured is kept by the session.
    """
    parts = []
    for start in range(0, len(steps), TOGETHER):
        part = steps[start : start + TOGETHER]
        tell = _within(progress, start, len(part), len(steps))
        tell(Progress(0, 0))
        parts.append(_part(session, key, part, tell))
    return joined(parts) if parts else _part(session, key, (), progress)


def joined(parts: Sequence[Series]) -> Series:
    """One history of parts with different steps, each ascending; of several with one step the last counts."""
    steps = np.concatenate([part.steps for part in parts])
    # The last of equal ones: sorted backwards and stably, it is the first.
    _, last = np.unique(steps[::-1], return_index=True)
    chosen = len(steps) - 1 - last
    said, errors = dict[int, str](), dict[int, str]()
    for part in parts:
        for step in part.steps.tolist() if part.said or part.errors or said or errors else ():
            said.pop(step, None)
            errors.pop(step, None)
        said |= part.said
        errors |= part.errors
    return Series(
        key=parts[-1].key,
        row=parts[-1].row,
        steps=steps[chosen],
        values=np.concatenate([part.values for part in parts], axis=1)[:, chosen],
        state=np.concatenate([part.state for part in parts])[chosen],
        health=np.concatenate([part.health for part in parts])[chosen],
        said=said,
        errors=errors,
        meta=next((part.meta for part in reversed(parts) if part.meta is not None), None),
    )


def with_hits(session: Session, series: Series) -> Series:
    """The same with what the session has found by now."""
    health, said = _health(session, series.key, series.row, series.steps.tolist(), series.state)
    return dataclasses.replace(series, health=health, said=said)


def unchecked(session: Session, series: Series) -> list[tuple[int, int]]:
    """The (rank, step) pairs at which a tensor was dumped and that the watchpoints as they are did not judge yet."""
    rank, there = series.key.rank, series.steps[series.state != State.ABSENT]
    return [(rank, step) for step in there.tolist() if not session.fresh([(rank, step)])]


def related(session: Session, key: TensorKey) -> tuple[tuple[str, TensorKey], ...]:
    """The weight, gradient and optimizer state that an output belongs to, where the graph tells: (word, tensor)."""
    nodes = session.nodes(key.rank)
    row = nodes.find(key.node, key.graph)
    if row < 0 or key.side is not Side.OUTPUT:
        return ()
    found = []
    for each in relatives(nodes, row, key.slot):
        graph, name = nodes.graph_of(each.row).name, nodes.names[each.row]
        found.append((each.word, TensorKey(key.rank, graph, name, Side.OUTPUT, each.slot, key.step)))
    return tuple(found)


def _part(session: Session, key: TensorKey, steps: Sequence[int], progress: ProgressFn) -> Series:
    listed = undisturbed(lambda: _listed(session.flow(key.rank, progress), key, steps))
    row, rows = listed
    measured = session.measure([each for each in rows if each.index >= 0], progress)
    found = {each.key.step: each for each in measured}
    shown = [found.get(each.key.step, each) for each in rows]
    values = np.full((len(METRICS), len(steps)), np.nan)
    state = np.zeros(len(steps), np.uint8)
    errors: dict[int, str] = {}
    for number, each in enumerate(shown):
        state[number] = _state(each)
        if each.error:
            errors[each.key.step] = each.error
        if each.stats is not None:
            values[:, number] = _values(each.stats, whole=not each.recorded)
    health, said = _health(session, key, row, steps, state)
    return Series(
        key=key,
        row=row,
        steps=np.array(steps, np.int64),
        values=values,
        state=state,
        health=health,
        said=said,
        errors=errors,
        meta=next((each.meta for each in reversed(shown) if each.meta is not None), None),
    )


def _listed(flow: Flow, key: TensorKey, steps: Sequence[int]) -> tuple[int, list[TensorRow]]:
    """The node's row, and the tensor at each step; index -1 where it was not dumped."""
    rows: list[TensorRow] = []
    tables = [flow.table(step) for step in steps]  # first: they may bring the node
    row = flow.nodes.find(key.node, key.graph)
    if row < 0:
        raise UnreadableTensorError(
            "the run has no such node", where=f"rank {key.rank} {key.node}", hint="`tdbg ls` lists the nodes"
        )
    for step, table in zip(steps, tables, strict=True):
        at = flow.located(step, row, key.side, key.slot, key.round)
        index = at.index
        flags = TensorFlag(int(table.flags[index])) if index >= 0 else TensorFlag.NONE
        stat_only = bool(flags & TensorFlag.STAT_ONLY)
        remote = bool(flags & TensorFlag.REMOTE)
        rows.append(
            TensorRow(
                key=dataclasses.replace(key, step=step, round=at.round),
                role=key.side.label,
                slot=key.slot,
                index=index,
                has_value=index >= 0 and (remote or not stat_only),
                has_previous=False,
                recorded=stat_only and not flags & (TensorFlag.UNKNOWN | TensorFlag.EXACT),
                remote=remote,
            )
        )
    return row, rows


def _state(row: TensorRow) -> State:
    if row.error:
        return State.UNREADABLE
    if row.index < 0:
        return State.ABSENT
    if row.stats is None:
        return State.NO_NUMBERS if row.meta is not None else State.UNREADABLE
    return State.RECORDED if row.recorded else State.MEASURED


def _values(stats: TensorStats, *, whole: bool) -> list[float]:
    """By ``METRICS``.

    Args:
        stats: of one tensor.
        whole: they were taken from all values; else what reads 0 may just not have been recorded.
    """
    counted = whole or stats.finite == stats.negative + stats.positive + stats.zero
    zero = stats.zero_percentage if counted or stats.zero else math.nan
    return [
        _real(stats.minimum),
        _real(stats.mean),
        _real(stats.maximum),
        _real(stats.norm),
        _real(stats.abs_mean),
        math.nan if stats.variance is None else math.sqrt(stats.variance),
        float(stats.nan) if counted or stats.nan else math.nan,
        float(stats.inf) if counted or stats.inf else math.nan,
        zero,
    ]


def _real(value: float | None) -> float:
    return math.nan if value is None else value


def _health(
    session: Session, key: TensorKey, row: int, steps: Sequence[int], state: UInt8
) -> tuple[UInt8, dict[int, str]]:
    health = np.where(state == State.ABSENT, Health.ABSENT, Health.UNCHECKED).astype(np.uint8)
    said: dict[int, str] = {}
    book, version = session.checks().book, session.watchpoints.version
    for number in np.flatnonzero(health).tolist():
        step = steps[number]
        result = book.fresh((key.rank, step), version)
        if result is None:
            continue
        at = result.hits.find(dataclasses.replace(key, step=step))
        if at < 0:
            health[number] = Health.CLEAN if _bit(result.judged, row) else Health.NOT_JUDGED
        else:
            hit = result.hits[at]
            health[number] = _of_hit(hit)
            words = said_words(hit) or ("NaN or Inf" if hit.verdict is Verdict.FINDING else "")
            if words:
                said[step] = words
    return health, said


def _bit(bits: UInt8, row: int) -> bool:
    """One of ``np.packbits``."""
    return row // 8 < len(bits) and bool(int(bits[row // 8]) >> (7 - row % 8) & 1)


def _of_hit(hit: Hit) -> Health:
    if hit.verdict is Verdict.CANNOT_JUDGE:
        return Health.UNREADABLE
    if hit.verdict is Verdict.BY_DESIGN:
        return Health.CLEAN
    if hit.verdict is not Verdict.FINDING:
        return Health.NOT_JUDGED
    if hit.origin:
        return Health.ORIGIN
    if hit.stats is not None and hit.stats.bad:
        return Health.NAN if hit.stats.nan else Health.INF
    return Health.NOT_FINITE if is_overflow(hit) else Health.HIT


def _within(progress: ProgressFn, start: int, count: int, total: int) -> ProgressFn:
    def tell(snapshot: Progress) -> None:
        inside = count * min(snapshot.done / snapshot.total, 1.0) if snapshot.total else 0
        progress(Progress(start + int(inside), total, snapshot.text))

    return tell
