"""The history of a tensor: its statistics at every dumped step, as columns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from tui_debugger.arrays import Float64, Int64, UInt8
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.optimizers import relatives
from tui_debugger.model import Hit, Progress, ProgressFn, Side, TensorKey, TensorMeta, TensorStats, Verdict, no_progress
from tui_debugger.session.flow import Flow
from tui_debugger.session.hits import is_overflow
from tui_debugger.session.session import Session
from tui_debugger.session.types import TensorRow
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.fields import METRICS, Form
from tui_debugger.stats.health import Health
from tui_debugger.text.hits import said_words

TOGETHER: Final = 256
"""Steps that are listed and measured together."""


_COLUMN: Final = {metric: number for number, metric in enumerate(METRICS)}


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


Point = tuple[int, int]
"""(step, round)."""


@dataclass(frozen=True, eq=False)
class Series:
    """One tensor over some steps: a point for every run that wrote it, in the order in which they ran. Immutable.

    Attributes:
        key: the tensor, at whatever step.
        row: row of its node in its rank's table.
        steps: dumped steps of the rank, whether or not the tensor is in them; twice where it was written twice.
        rounds: which writing of the step each point is: see ``TensorKey.round``.
        turns: the turn of the run of each point: ascending.
        values: [metric, point] in the order of ``METRICS``; NaN where there is no such value or it is not known.
        state: ``State`` by point.
        health: ``analysis.health.Health`` by point, as far as the session has checked.
        said: what the hits say, by (step, round): abbreviations of their conditions.
        errors: why the tensor could not be read, by (step, round).
        meta: element type and shape at the last point at which they are known.
    """

    key: TensorKey
    row: int
    steps: Int64
    rounds: Int64
    turns: Int64
    values: Float64
    state: UInt8
    health: UInt8
    said: Mapping[Point, str]
    errors: Mapping[Point, str]
    meta: TensorMeta | None = None

    def of(self, metric: str) -> Float64:
        """One metric by step."""
        column: Float64 = self.values[_COLUMN[metric]]
        return column

    def at(self, step: int, round: int = 0) -> int:  # noqa: A002 - see TensorKey
        """Where a step is in the columns, of several rounds that one or the newest; -1 where it is not."""
        found = np.flatnonzero((self.steps == step) & ((self.rounds == round) if round else True))
        return int(found[-1]) if len(found) else -1

    def point(self, index: int) -> Point:
        """The step and round of a point."""
        return int(self.steps[index]), int(self.rounds[index])

    def key_at(self, step: int, round: int = 0) -> TensorKey:  # noqa: A002 - see TensorKey
        """The tensor at one step."""
        return dataclasses.replace(self.key, step=step, round=round)

    @property
    def known(self) -> int:
        """Steps with statistics."""
        return int(((self.state == State.MEASURED) | (self.state == State.RECORDED)).sum())

    def count(self, state: State) -> int:
        """Steps in a state."""
        return int((self.state == state).sum())


def trend(session: Session, key: TensorKey, steps: Sequence[int], progress: ProgressFn = no_progress) -> Series:
    """The history of a tensor over some steps of its rank; what was measured before is not read again.

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
    """One history of parts with different steps; of several with one step the last counts."""
    steps, turns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "turns"))
    number = np.repeat(np.arange(len(parts)), [len(part.steps) for part in parts])
    newest = {step: of for step, of in zip(steps.tolist(), number.tolist(), strict=True)}  # noqa: C416 - the last one
    chosen = np.flatnonzero(number == np.array([newest[step] for step in steps.tolist()], np.int64))
    chosen = chosen[np.argsort(turns[chosen], kind="stable")]
    said, errors = dict[Point, str](), dict[Point, str]()
    for at, part in enumerate(parts):
        said |= {point: text for point, text in part.said.items() if newest[point[0]] == at}
        errors |= {point: text for point, text in part.errors.items() if newest[point[0]] == at}
    return Series(
        key=parts[-1].key,
        row=parts[-1].row,
        steps=steps[chosen],
        rounds=np.concatenate([part.rounds for part in parts])[chosen],
        turns=turns[chosen],
        values=np.concatenate([part.values for part in parts], axis=1)[:, chosen],
        state=np.concatenate([part.state for part in parts])[chosen],
        health=np.concatenate([part.health for part in parts])[chosen],
        said=said,
        errors=errors,
        meta=next((part.meta for part in reversed(parts) if part.meta is not None), None),
    )


def with_hits(session: Session, series: Series) -> Series:
    """The same with what the session has found by now."""
    points = [series.point(index) for index in range(len(series.steps))]
    health, said = _health(session, series.key, series.row, points, series.state)
    return dataclasses.replace(series, health=health, said=said)


def unchecked(session: Session, series: Series) -> list[tuple[int, int]]:
    """The (rank, step) pairs at which a tensor was dumped and that the watchpoints as they are did not judge yet."""
    rank, there = series.key.rank, series.steps[series.state != State.ABSENT]
    return [(rank, step) for step in dict.fromkeys(there.tolist()) if not session.fresh([(rank, step)])]


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
    row, rows, turns = listed
    measured = session.measure([each for each in rows if each.index >= 0], progress)
    found = {each.key: each for each in measured}
    shown = [found.get(each.key, each) for each in rows]
    points = [(each.key.step, each.key.round) for each in rows]
    values = np.full((len(METRICS), len(points)), np.nan)
    state = np.zeros(len(points), np.uint8)
    errors: dict[Point, str] = {}
    for number, each in enumerate(shown):
        state[number] = _state(each)
        if each.error:
            errors[points[number]] = each.error
        if each.stats is not None:
            values[:, number] = _values(each.stats, whole=not each.recorded)
    health, said = _health(session, key, row, points, state)
    return Series(
        key=key,
        row=row,
        steps=np.array([step for step, _ in points], np.int64),
        rounds=np.array([number for _, number in points], np.int64),
        turns=turns,
        values=values,
        state=state,
        health=health,
        said=said,
        errors=errors,
        meta=next((each.meta for each in reversed(shown) if each.meta is not None), None),
    )


def _listed(flow: Flow, key: TensorKey, steps: Sequence[int]) -> tuple[int, list[TensorRow], Int64]:
    """The node's row, and the tensor in each run, with the turns of these; index -1 where it was not dumped."""
    rows: list[TensorRow] = []
    tables = [flow.table(step) for step in steps]  # first: they may bring the node
    row = flow.nodes.find(key.node, key.graph)
    if row < 0:
        raise UnreadableTensorError(
            "the run has no such node", where=f"rank {key.rank} {key.node}", hint="`tdbg ls` lists the nodes"
        )
    places = []
    for step, table in zip(steps, tables, strict=True):
        mine = table.of_node(row, every=True)
        mine = mine[(table.side[mine] == int(key.side)) & (table.slot[mine] == key.slot)]
        for index in mine.tolist() or [-1]:
            number = int(table.round[index]) if index >= 0 else 0
            places.append((flow.turn(row, step, number), step, number, index, table))
    places.sort(key=lambda place: place[:3])
    for _, step, number, index, table in places:
        flags = TensorFlag(int(table.flags[index])) if index >= 0 else TensorFlag.NONE
        stat_only = bool(flags & TensorFlag.STAT_ONLY)
        remote = bool(flags & TensorFlag.REMOTE)
        rows.append(
            TensorRow(
                key=dataclasses.replace(key, step=step, round=number),
                role=key.side.label,
                slot=key.slot,
                index=index,
                has_value=index >= 0 and (remote or not stat_only),
                has_previous=False,
                recorded=stat_only and not flags & (TensorFlag.UNKNOWN | TensorFlag.EXACT),
                remote=remote,
            )
        )
    return row, rows, np.array([place[0] for place in places], np.int64)


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
    found = []
    for field in METRICS.values():
        value = field.value(stats)
        missing = value is None or not (value or counted or field.form is Form.REAL)
        found.append(math.nan if value is None or missing else float(value))
    return found


def _health(
    session: Session, key: TensorKey, row: int, points: Sequence[Point], state: UInt8
) -> tuple[UInt8, dict[Point, str]]:
    health = np.where(state == State.ABSENT, Health.ABSENT, Health.UNCHECKED).astype(np.uint8)
    said: dict[Point, str] = {}
    book, version = session.checks().book, session.watchpoints.version
    for number in np.flatnonzero(health).tolist():
        step, of = points[number]
        result = book.fresh((key.rank, step), version)
        if result is None:
            continue
        at = result.hits.find(dataclasses.replace(key, step=step, round=of))
        if at < 0:
            health[number] = Health.CLEAN if _bit(result.judged, row) else Health.NOT_JUDGED
        else:
            hit = result.hits[at]
            health[number] = _of_hit(hit)
            words = said_words(hit) or ("NaN or Inf" if hit.verdict is Verdict.FINDING else "")
            if words:
                said[step, of] = words
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
