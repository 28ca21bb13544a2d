"""What the lines of the three lists look like, and what stands below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.content import Content

from tui_debugger.model import Side, TensorKey
from tui_debugger.session.diagnosis.relations import Related, Tie, tie_words, watch_words
from tui_debugger.session.types import TensorRow
from tui_debugger.tui import theme
from tui_debugger.tui.views.relations.branches import Item
from tui_debugger.tui.widgets.stat_cells import count_cells
from tui_debugger.tui.widgets.text import Cell, Place
from tui_debugger.tui.widgets.virtual_table import Column
from tui_debugger.words.clean import clean
from tui_debugger.words.hits import hit_text, said_words
from tui_debugger.words.steps import run_text, step_text
from tui_debugger.words.tensors import slot_text, tensor_line


def columns(title: str, *, rounds: bool = False) -> tuple[Column, ...]:
    """The columns of one list."""
    return (
        Column("", 1, frozen=True),
        Column(title, 12, elastic=5, frozen=True),
        Column("at", 8 if rounds else 5),
        Column("NaN", 4, right=True),
        Column("Inf", 4, right=True),
        Column("watched", 7, elastic=2),
    )


def cells(item: Item, row: TensorRow, *, middle: TensorKey, graphs: Mapping[str, str]) -> Sequence[Cell]:
    """One line.

    Args:
        item: which one.
        row: its tensor, measured or not yet.
        middle: the tensor in the middle; another step, another run of its step and another graph are said.
        graphs: what graphs are called, by name; none for a single graph.
    """
    related, key = item.related, item.related.key
    scope, _, name = key.node.rpartition("/")
    text = Text("  " * item.depth, no_wrap=True)
    text.append(f"{theme.OPEN_GLYPH} " if item.opened else "", theme.DIM)
    elsewhere = key.step != middle.step or (key.round and middle.round and key.round != middle.round)
    if elsewhere:
        text.append(f"@{'next' if related.ahead else run_text(key)} ", theme.WATCHED)
    if key.graph != middle.graph:
        text.append(f"graph {graphs.get(key.graph, clean(key.graph))} ", theme.WATCHED)
    text.append(clean(name), theme.DIM if row.index < 0 else theme.NORMAL)
    if row.origin_text:  # a constant's value
        text.append(f" = {clean(row.origin_text)}", theme.DIM)
    at = f"in:{related.slots[0]}" if related.slots else slot_text(key)
    more = "+" if len(related.slots) > 1 else ""
    return [
        _mark(related, row),
        Place(text, scope, theme.DIM),
        Text(at + more, theme.DIM),
        *_counts(row),
        _watched(related),
    ]


def _mark(related: Related, row: TensorRow) -> Text:
    hit = related.hit
    if hit is not None and hit.origin:
        return Text(theme.ORIGIN_GLYPH, theme.FINDING)
    if related.tensor.hit or (row.stats is not None and row.stats.bad):
        return Text(theme.HIT_GLYPH, theme.FINDING)
    return Text(theme.UNCERTAIN_GLYPH if related.tensor.uncertain else " ", theme.DOUBT)


def _counts(row: TensorRow) -> list[Cell]:
    waiting = row.index >= 0 and not row.error and row.meta is None
    return count_cells(row.stats, "…" if waiting else theme.NONE)


def _watched(related: Related) -> Text:
    text = Text(no_wrap=True)
    for word in watch_words(related).split():
        text.append(" " if text.plain else "")
        text.append(word, theme.FINDING if word.startswith(theme.HIT_GLYPH) else theme.DIM)
    return text


def where_words(related: Related) -> str:
    """``  out:0  step 3  rank 0``: what follows the name of a node."""
    key = related.key
    step = "no step yet" if related.ahead else f"step {step_text(key.step)}"
    return f"  {slot_text(key)}  {step}  rank {key.rank}"


def detail(related: Related, row: TensorRow, head: tuple[str, str], *, upstream: bool, maker: str) -> Content:
    """Four lines about a tensor: which one, how it is tied, its values, what was found.

    Args:
        related: the tensor.
        row: measured or not yet.
        head: its node, as much of it as fits, and where that is.
        upstream: it is a producer.
        maker: the node that made the tensor in the middle.
    """
    (name, where), key = head, related.key
    kind = f"{clean(related.type)}  " if related.type else ""
    lines: list[Content | str | tuple[str, str]] = [(name, "bold"), where, "\n", kind]
    tie = tie_words(related, upstream=upstream)
    if related.tie is Tie.SELF:
        tie += _made(key.side, clean(maker.rpartition("/")[2]))
    values = "no later step was dumped" if related.ahead else _values(row)
    lines += [tie, "\n", values, "\n", _found(related)]
    return Content.assemble(*lines)


def _made(side: Side, maker: str) -> str:
    if side is Side.INPUT:
        return f", taken from {maker}" if maker else ", taken from a node that no graph names"
    return f", made by {maker}" if maker else ", made by nothing in the run"


def _values(row: TensorRow) -> str:
    if row.error:
        return clean(row.error)
    if row.index < 0:
        value = f": {clean(row.origin_text)}" if row.origin_text else ""
        return f"not dumped at step {step_text(row.key.step)}{value}"
    if row.stats is None and row.meta is None:
        return "not measured yet"
    said = tensor_line(row.meta, row.stats)
    constant = f"  constant {clean(row.origin_text)}" if row.origin_text else ""
    seen = f"  (seen at in:{row.key.slot})" if row.key.side is Side.INPUT and row.role == "in" else ""
    return said + constant + seen + ("  recorded, no values" if row.recorded else "")


def _found(related: Related) -> str:
    if related.hit is not None:
        said = [word if word.endswith("?") else f"{theme.HIT_GLYPH}{word}" for word in said_words(related.hit).split()]
        return clean(f"{' '.join(said)}: {hit_text(related.hit)}" if said else hit_text(related.hit))
    watched = watch_words(related)
    if not watched:
        return "no watchpoint covers it"
    if related.tensor.index < 0:
        return f"watched by {watched}: not dumped"
    return f"watched by {watched}: {'nothing found' if related.checked else 'not checked'}"
