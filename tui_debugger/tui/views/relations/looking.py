"""The work of the relations view: what is asked of the session beside the event loop, and put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tui_debugger.model import ProgressFn, TensorKey
from tui_debugger.session.diagnosis.relations import Related, Relations, consumers, producers, relations
from tui_debugger.session.types import TensorRow
from tui_debugger.tui.views.relations.branches import Side

if TYPE_CHECKING:
    from tui_debugger.session import Session


def look_again(
    session: Session, key: TensorKey, sides: Mapping[str, Side], progress: ProgressFn
) -> tuple[Relations, Mapping[str, Side]]:
    """What is around a tensor, and what was opened beside it."""
    found = relations(session, key, progress)
    looks = (("producers", producers, found.producers), ("consumers", consumers, found.consumers))
    anew = {name: sides[name].anew(first, partial(_keys_of, look, session, progress)) for name, look, first in looks}
    return found, anew


def _keys_of(
    look: Callable[[Session, TensorKey, ProgressFn], Sequence[Related]],
    session: Session,
    progress: ProgressFn,
    related: Related,
) -> Sequence[Related]:
    return look(session, related.key, progress)


def measured(session: Session, rows: Sequence[TensorRow], progress: ProgressFn) -> tuple[TensorRow, ...]:
    """Rows with statistics."""
    return session.measure(rows, progress)


def with_rows(found: Relations, row: Callable[[Related], TensorRow]) -> Relations:
    """The same with rows that are known by now."""

    def known(related: Sequence[Related]) -> tuple[Related, ...]:
        return tuple(replace(each, tensor=row(each)) for each in related)

    (centre,) = known((found.centre,))
    return replace(
        found,
        centre=centre,
        siblings=known(found.siblings),
        producers=known(found.producers),
        consumers=known(found.consumers),
    )
