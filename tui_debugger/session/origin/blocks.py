"""One origin as text: the node, why it starts there, its inputs and outputs side by side, the user's line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tui_debugger.model import Frame
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.search import Fed, Origin
from tui_debugger.session.origin.words import row_label, when_words, why
from tui_debugger.session.types import TensorRow
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import STATISTIC_TITLES, shape_text, statistic_texts

WIDTH = 80
"""Columns that the tables keep to."""
_TITLES = ("", *STATISTIC_TITLES)
_FRAMES = 6
"""Framework lines that are shown above the user's own."""


def wrapped(text: str, indent: str = "", hang: str | None = None) -> list[str]:
    """A paragraph in lines of ``WIDTH``; names are never broken. Lines after the first begin with ``hang``."""
    return textwrap.wrap(
        text,
        WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
    )


def origin_lines(origin: Origin, head: str, *, overflow: bool, graphs: Sequence[str] = ()) -> Iterator[str]:
    """The lines of one origin, after a blank line.

    Args:
        origin: what to show.
        head: the word it begins with.
        overflow: it is about NaN and Inf, and "clean" says enough.
        graphs: the run's graphs where there are several: then its own is said.
    """
    yield ""
    yield f"{head}: rank {origin.rank}, {when_words(origin, graphs)}  ({clean(origin.type)})"
    yield f"  {clean(origin.node)}"
    yield f"  {why(origin, overflow=overflow)}"
    yield from _table(origin)
    yield from _stack(origin)


def _table(origin: Origin) -> Iterator[str]:
    marks = [(fed.row, "*" if fed.before else "", _remark(fed)) for fed in origin.inputs]
    marks += [(row, "", "") for row in origin.outputs]
    rows = [(row_label(row, origin) + mark, row, remark) for row, mark, remark in marks]
    cells = [[label, *statistic_texts(row.stats)] for label, row, _ in rows]
    lines = _aligned([list(_TITLES), *cells])
    kinds = ["dtype, shape", *(_kind(row, remark) for _, row, remark in rows)]
    wide = [f"  {line}  {kind}".rstrip() for line, kind in zip(lines, kinds, strict=True)]
    if max(map(len, wide)) <= WIDTH:
        yield from wide
    else:
        yield from (f"  {line}".rstrip() for line in lines)
        yield from (f"  {label}: {_kind(row, remark)}" for label, row, remark in rows)
    if any(fed.before for fed in origin.inputs):
        yield "  * the value of before it was written over"


def _remark(fed: Fed) -> str:
    words = ["const"] if fed.constant else []
    words += ["by design"] if fed.designed else []
    return " ".join([*words, *(["bad"] if fed.state is State.BAD else [])])


def _kind(row: TensorRow, remark: str) -> str:
    if row.index < 0:
        return "not dumped"
    if row.error:
        return clean(row.error)
    words = [row.meta.dtype, shape_text(row.meta.shape)] if row.meta is not None else []
    words += [remark] if remark else []
    words += ["(may belong to another node)"] if row.uncertain else []
    return clean(" ".join(words))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _stack(origin: Origin) -> Iterator[str]:
    """The lines down to the user's own; a program without any of those shows the innermost ones."""
    if not origin.stack:
        return
    if origin.stack_of != origin.node:
        yield f"  source of {clean(origin.stack_of)}:"
    own = next((number for number, frame in enumerate(origin.stack) if not frame.framework), None)
    last = own if own is not None else min(len(origin.stack), _FRAMES) - 1
    first = max(0, last - _FRAMES)
    if first:
        yield f"    … {first} inner framework lines"
    for number, frame in enumerate(origin.stack[first : last + 1], first):
        yield from _frame(frame, mine=number == own)


def _frame(frame: Frame, *, mine: bool) -> Iterator[str]:
    yield f"  {'>' if mine else ' '} {clean(frame.path)}:{frame.line}{' (forward)' if frame.forward else ''}"
    if frame.code:
        yield f"      {clean(frame.code)}"
