"""What ``tdbg show`` finds out about the tensors of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from tui_debugger.cli.show_heat import Canvas, heat_of
from tui_debugger.cli.show_values import JSON_WHOLE, cut, excerpt_text, nested, window_text
from tui_debugger.errors import BadSliceError, UnreadableTensorError
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.naming import Found, no_such_tensor
from tui_debugger.session.types import Pair, TensorRow
from tui_debugger.stats.distribution import Histogram, histogram

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
