"""A tensor's relations as text of 80 columns where names allow it, and as plain dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tui_debugger.model import Side
from tui_debugger.session.diagnosis.relations import Related, Relations, tie_words, watch_words
from tui_debugger.session.origin.rows import tensor_dict
from tui_debugger.session.tables import hit_row, key_row
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE
from tui_debugger.text.tensors import shape_text, short_names, slot_text, statistic_texts, step_text

Row = dict[str, Any]
_TITLES = ("", "graph", "tensor", "step", "NaN", "Inf", "min", "max", "watched")
_GRAPH = _TITLES.index("graph")
"""Left out where there is only one."""


@dataclass(frozen=True, slots=True)
class Around:
    """A tensor beside another, and what lies beyond it.

    Attributes:
        related: the tensor, with statistics.
        beyond: one hop further; empty where nobody looked.
    """

    related: Related
    beyond: tuple[Around, ...] = ()


def around(related: Sequence[Related]) -> tuple[Around, ...]:
    """Tensors with nothing beyond them."""
    return tuple(Around(each) for each in related)


def relations_lines(
    found: Relations, up: Sequence[Around] | None = None, down: Sequence[Around] | None = None
) -> Iterator[str]:
    """Everything that is known about the relations of a tensor.

    Args:
        found: the relations, with statistics.
        up: the producers where there are further hops; None: one hop.
        down: the consumers, likewise.
    """
    ups = [*_entries(around(found.producers) if up is None else up, upstream=True)]
    downs = [*_entries(around(found.consumers) if down is None else down, upstream=False)]
    middle = [(related, 0, "") for related in (found.centre, *found.siblings)]
    names = short_names(found.graphs)
    rows = [_cells(related, depth, names) for related, depth, _ in (*ups, *middle, *downs)]
    widths = [max(len(row[at]) for row in [_TITLES, *rows]) for at in range(len(_TITLES))]
    if not names:
        widths[_GRAPH] = 0

    def block(entries: Sequence[tuple[Related, int, str]]) -> Iterator[str]:
        for related, depth, how in entries:
            yield _line(_cells(related, depth, names), widths)
            if how:
                yield f"    {'  ' * depth}{how}"

    maker = clean(found.maker.rpartition("/")[2])
    yield _line(_TITLES, widths)
    made = "taken" if found.centre.key.side is Side.INPUT else f"made by {maker}" if maker else "made"
    yield f"{made} from:" + ("" if ups else " nothing that the graph knows")
    yield from block(ups)
    yield "tensor:"
    yield from block(middle)
    yield "used by:" + ("" if downs else " nothing, as far as the graph says")
    yield from block(downs)


def _entries(items: Sequence[Around], depth: int = 0, *, upstream: bool) -> Iterator[tuple[Related, int, str]]:
    for item in items:
        yield item.related, depth, tie_words(item.related, upstream=upstream)
        yield from _entries(item.beyond, depth + 1, upstream=upstream)


def _cells(related: Related, depth: int, graphs: Mapping[str, str]) -> tuple[str, ...]:
    row, stats = related.tensor, related.tensor.stats
    mark = (
        "◆"
        if related.hit is not None and related.hit.origin
        else "✗"
        if row.hit or (stats is not None and stats.bad)
        else ""
    )
    name = f"{'  ' * depth}{clean(related.key.node.rpartition('/')[2])}:{slot_text(related.key)}"
    graph = graphs.get(related.key.graph, clean(related.key.graph)) if graphs else ""
    if stats is None:
        why = clean(row.error) or ("not dumped" if row.index < 0 else NONE)
        step = NONE if related.ahead else step_text(related.key.step)
        return (mark, graph, name, step, why, "", "", "", watch_words(related))
    return (mark, graph, name, step_text(related.key.step), *statistic_texts(stats)[:4], watch_words(related))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = {0, _GRAPH + 1, len(widths) - 1}
    texts = [
        text.ljust(width) if at in left else text.rjust(width)
        for at, (text, width) in enumerate(zip(cells, widths, strict=True))
        if width or at != _GRAPH
    ]
    return "  ".join(texts).rstrip()


# -- for machines ------------------------------------------------------------------------------------


def related_row(item: Around, *, upstream: bool | None = None) -> Row:
    """A tensor as a dict; ``upstream`` None for the one in the middle."""
    related, row = item.related, item.related.tensor
    found: Row = {
        "tensor": key_row(related.key),
        "seen_at": key_row(row.key) if row.key != related.key else None,
        "type": related.type,
        "tie": related.tie.value,
        "node": related.node or None,
        "slots": list(related.slots),
        "text": None if upstream is None else tie_words(related, upstream=upstream),
        **{key: value for key, value in tensor_dict(row).items() if key not in {"role", "index", "tensor", "from"}},
        "dumped": row.index >= 0,
        "after_last_step": related.ahead,
        "shape_text": shape_text(row.meta.shape) if row.meta is not None else None,
        "watched": list(related.watched),
        "hit": hit_row(related.hit) if related.hit is not None else None,
    }
    if upstream is not None:
        found["producers" if upstream else "consumers"] = [related_row(each, upstream=upstream) for each in item.beyond]
    return found
