"""A path upstream as text, to be read in a terminal of 80 columns or pasted into a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tui_debugger.session.origin.blocks import WIDTH, origin_lines, wrapped
from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.path import Ending, Hop, Path
from tui_debugger.session.origin.words import (
    explanation,
    headline,
    is_overflow,
    last_part,
    length_words,
    nearest_words,
    question_words,
    tensor_name,
    way_words,
)
from tui_debugger.text.clean import clean
from tui_debugger.text.tensors import STATISTIC_TITLES, shape_text, short_names, statistic_texts

_TITLES = ("", "step", "rank", "graph", "tensor", *STATISTIC_TITLES[:4], "dtype, shape")
_NAME = _TITLES.index("tensor")
_SHORTEST = 20
"""Characters of a name that are left in any case."""
_BRANCHES = 3
"""Other bad inputs of a hop that are named."""


def path_lines(path: Path) -> Iterator[str]:
    """Everything that is known about a path."""
    if not is_overflow(path):
        yield from wrapped(f"bad means: a finding of {question_words(path)}")
    if path.state is State.BAD:
        yield f"path: {length_words(path)}"
        yield from _table(path)
        heads = {Ending.ORIGIN: "origin", Ending.UNKNOWN: "first known bad"}
        head = heads.get(path.ending, "last hop")
        yield from origin_lines(path.end.told, head, overflow=is_overflow(path), graphs=path.graphs)
        yield ""
        for line in explanation(path):
            yield from wrapped(line)
    elif path.state is State.CLEAN:
        yield from wrapped(nearest_words(path))
    yield headline(path)


def _table(path: Path) -> Iterator[str]:
    left_out = {*(() if len(path.ranks) > 1 else ("rank",)), *(() if path.graphs else ("graph",))}
    rows = [_cells(path, hop) for hop in path.hops]
    kept = [at for at in range(len(_TITLES)) if _TITLES[at] not in left_out]
    widths = [max(len(row[at]) for row in [_TITLES, *rows]) for at in range(len(_TITLES))]
    over = sum(widths[at] + 2 for at in kept) - 2 - WIDTH
    if over > 0:  # a line that a terminal breaks is none: types and shapes go first, then the middle of long names
        over -= widths[kept.pop()] + 2
    widths[_NAME] -= min(max(over, 0), max(widths[_NAME] - _SHORTEST, 0))

    def line(cells: Sequence[str]) -> str:
        left = {0, _NAME, len(_TITLES) - 1}
        texts = [cells[at].ljust(widths[at]) if at in left else cells[at].rjust(widths[at]) for at in kept]
        return "  ".join(texts).rstrip()

    yield line(_TITLES)
    for hop, cells in zip(path.hops, rows, strict=True):
        if hop is not path.start:
            yield from wrapped(f"↑ {way_words(hop)}", indent="     ", hang="       ")
        cells[_NAME] = _ends(cells[_NAME], widths[_NAME])
        yield line(cells)
        yield from _others(hop)


def _ends(name: str, width: int) -> str:
    """A name without its middle: operators of one type differ in the number at the end."""
    if len(name) <= width:
        return name
    tail = (width - 1) * 2 // 3
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def _cells(path: Path, hop: Hop) -> list[str]:
    row = hop.tensor
    mark = "✗" if hop is not path.end else "◆" if path.ends_at_origin else "?"
    numbers = statistic_texts(row.stats)[:4]
    kind = f"{clean(row.meta.dtype)} {shape_text(row.meta.shape)}" if row.meta is not None else ""
    name = tensor_name(row)
    graph = short_names(path.graphs).get(row.key.graph, clean(row.key.graph)) if path.graphs else ""
    return [mark, str(row.key.step), str(row.key.rank), graph, name, *numbers, kind]


def _others(hop: Hop) -> Iterator[str]:
    if not hop.others:
        return
    names = [f"{last_part(branch.tensor.key.node)} ({way_words(branch)})" for branch in hop.others[:_BRANCHES]]
    more = f", and {len(hop.others) - _BRANCHES:,} more" if len(hop.others) > _BRANCHES else ""
    yield from wrapped(f"also bad: {', '.join(names)}{more}", indent="       ")
