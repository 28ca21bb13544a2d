"""A tensor that is too big for one worker: its spans are measured apart, and their sums put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.npy import Layout, TensorFile
from tui_debugger.analysis.record import Need
from tui_debugger.analysis.records import Before, Records, State
from tui_debugger.analysis.sides import (
    Compared,
    FileState,
    Other,
    SideBySide,
    compared,
    file_state,
    put_asked,
    put_compared,
    put_file,
    put_stats,
)
from tui_debugger.analysis.spans import SPAN, Checkpoint, Sums, spans
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec


@dataclass(slots=True)
class SpanSums:
    """What one span of a tensor adds up to, and what was found of the files when it was read."""

    layout: Layout
    state: FileState
    sums: Sums
    answer: Compared


def spans_of(spec: ReadSpec, before: ReadSpec | None) -> tuple[tuple[int, int], ...]:
    """The spans of a tensor that is worth sharing; none for any other, and for one that is odd in any way.

    Args:
        spec: the tensor.
        before: what it is compared with.
    """
    try:
        with TensorFile(spec) as file:
            layout = file.layout
        if before is not None:
            with TensorFile(before) as other:
                if other.layout.fortran != layout.fortran:
                    return ()
    except UnreadableTensorError:
        return ()
    return tuple(spans(layout.count)) if layout.count > SPAN and is_numeric(layout.dtype) else ()


def look_span(
    spec: ReadSpec,
    before: ReadSpec | None,
    need: Need,
    span: tuple[int, int],
    checkpoint: Checkpoint | None = None,
) -> SpanSums | None:
    """Measures one span; None when that is not possible, for whatever reason: the whole tensor then says why."""
    state = file_state(spec.path)
    sides = SideBySide(spec, Other(before) if before is not None else None, need, checkpoint, span)
    try:
        with TensorFile(spec) as file, np.errstate(all="ignore"):
            if span[1] > file.layout.count or not is_numeric(file.layout.dtype):
                return None
            return SpanSums(file.layout, state, *sides.measure(file))
    except (UnreadableTensorError, MemoryError):
        return None


def joined(parts: Sequence[SpanSums | None], need: Need) -> Records | None:
    """One row from all spans of a tensor, in order; None when they are not of one and the same state of its files."""
    first = parts[0]
    if first is None:
        return None
    total = first.sums
    for part in parts[1:]:
        if part is None or (part.layout, part.state) != (first.layout, first.state):
            return None
        if (part.answer.before, part.answer.state) != (first.answer.before, first.answer.state):
            return None
        total.merge(part.sums)
    if total.stats.count != first.layout.count:
        return None
    records = Records(1)
    put_asked(records, np.ones(1, np.bool_), need)
    put_file(records, 0, State.MEASURED, first.layout, first.state)
    put_stats(records, 0, total)
    answer = compared(total, first.answer.state) if first.answer.before == Before.OK else first.answer
    put_compared(records, 0, answer)
    return records
