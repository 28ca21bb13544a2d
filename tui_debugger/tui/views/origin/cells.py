"""What the lines of a path and of a node's inputs and outputs look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from tui_debugger.session.origin.examine import State
from tui_debugger.session.origin.path import Ending, Hop, Link
from tui_debugger.session.origin.search import Fed
from tui_debugger.session.origin.words import last_part, way_words
from tui_debugger.session.types import TensorRow
from tui_debugger.tui import theme
from tui_debugger.tui.views.origin.lines import PathLine
from tui_debugger.tui.widgets.stat_cells import COUNTS, ENDS, STATISTICS, count_cells, end_cells, statistic_cells
from tui_debugger.tui.widgets.text import Cell, Place
from tui_debugger.tui.widgets.virtual_table import Column
from tui_debugger.words.clean import clean
from tui_debugger.words.steps import run_text, step_text
from tui_debugger.words.tensors import round_text, shape_text, slot_text


@dataclass(frozen=True, slots=True)
class Shape:
    """What tells the tensors of a run apart.

    Attributes:
        many_ranks: a rank column.
        graphs: what graphs are called in a column, by name; none for a single graph.
        rounds: some tensor was written several times within its step.
    """

    many_ranks: bool = False
    graphs: Mapping[str, str] = field(default_factory=dict)
    rounds: bool = False


def path_columns(shape: Shape = Shape()) -> tuple[Column, ...]:
    """The columns of the path."""
    more = shape.many_ranks + bool(shape.graphs)
    return (
        Column("", 1, frozen=True),
        Column("step", 4, right=True, frozen=True),
        *((Column("rank", 4, right=True, frozen=True),) if shape.many_ranks else ()),
        *((Column("graph", 5, right=True, frozen=True),) if shape.graphs else ()),
        Column("tensor", 18, elastic=3),
        Column("slot", 8 if shape.rounds else 5),
        *COUNTS,
        Column("into the one above", 32 - 5 * more, elastic=4),
        *ENDS,
        Column("dtype", 8),
        Column("shape", 9, elastic=1),
    )


def path_cells(line: PathLine, shape: Shape) -> Sequence[Cell]:
    """One line of the path."""
    row = line.tensor
    scope, _, name = row.key.node.rpartition("/")
    text = Text("  " * line.depth, no_wrap=True)
    if line.inner:
        text.append(f"{theme.OPEN_GLYPH if line.opened else theme.CLOSED_GLYPH} ", theme.DIM)
    text.append(clean(name), theme.NORMAL if line.hop is not None else theme.DIM)
    rank = [Text(str(row.key.rank), theme.DIM)] if shape.many_ranks else []
    graph = [Text(shape.graphs.get(row.key.graph, clean(row.key.graph)), theme.DIM)] if shape.graphs else []
    meta = row.meta
    return [
        _mark(line),
        step_text(row.key.step),
        *rank,
        *graph,
        Place(text, scope, theme.DIM, words_only=True),
        Text(slot_text(row.key), theme.DIM),
        *count_cells(row.stats),
        _way(line),
        *end_cells(row.stats),
        clean(meta.dtype) if meta is not None else "",
        shape_text(meta.shape) if meta is not None else "",
    ]


def _mark(line: PathLine) -> Text:
    if line.item.way.link is Link.NEAREST or (line.is_end and line.path.ends_at_origin):
        return Text(theme.ORIGIN_GLYPH, theme.FINDING)
    if line.path.ending is Ending.CLEAN:
        return Text(" ")
    if line.is_end:  # it goes on, but nobody sees where
        return Text(theme.UNCERTAIN_GLYPH, theme.DOUBT)
    return Text(theme.HIT_GLYPH, theme.FINDING)


def _way(line: PathLine) -> Text:
    text = Text(no_wrap=True)
    if line.hop is None and line.item.way.link is not Link.NEAREST:
        text.append("also ", theme.DIM)
    elsewhere = line.item.way.link in (Link.SENT, Link.WEIGHT, Link.BEFORE)
    text.append(way_words(line.item), theme.WATCHED if elsewhere else theme.NORMAL)
    if isinstance(line.item, Hop) and line.item.others and not line.opened:
        text.append(f"  +{len(line.item.others)} more bad", theme.DIM)
    return text


# -- inputs and outputs of the node ------------------------------------------------------------------

NODE_COLUMNS: tuple[Column, ...] = (
    Column("", 1, frozen=True),
    Column("io", 8, frozen=True),
    *STATISTICS[:4],
    Column("dtype", 8),
    Column("shape", 9, elastic=1),
    Column("from", 12, elastic=3),
    *STATISTICS[4:],  # 80 columns end before them
)


def tensors_of(hop: Hop) -> list[tuple[TensorRow, Fed | None]]:
    """Inputs, what the other ranks put in, outputs; for inputs what is known about them."""
    fed = [*hop.told.inputs, *hop.peers]
    return [*((each.row, each) for each in fed), *((row, None) for row in hop.told.outputs)]


def node_cells(row: TensorRow, fed: Fed | None, here: int) -> Sequence[Cell]:
    """One input or output; ``here`` is the rank of the node."""
    rank = f" r{row.key.rank}" if row.key.rank != here else ""
    head: list[Cell] = [_state(row, fed), Text(f"{row.role}:{row.slot}{round_text(row.key.round)}{rank}", theme.STRONG)]
    if row.index < 0:
        return [*head, Text(f"not dumped  {clean(row.origin_text)}", theme.DIM)]
    if row.error:
        return [*head, Text(clean(row.error), theme.DOUBT)]
    meta = row.meta
    kind = [clean(meta.dtype), shape_text(meta.shape)] if meta is not None else ["", ""]
    numbers = statistic_cells(row.stats)
    return [*head, *numbers[:4], *kind, _from(row, fed), *numbers[4:]]


def _state(row: TensorRow, fed: Fed | None) -> Text:
    bad = row.hit if fed is None else fed.state is State.BAD
    if bad:
        return Text(theme.HIT_GLYPH, theme.FINDING)
    return Text(theme.UNCERTAIN_GLYPH if fed is not None and fed.state is State.UNKNOWN else " ", theme.DOUBT)


def _from(row: TensorRow, fed: Fed | None) -> Text:
    words = [last_part(row.origin_text)] if row.origin_text else []
    if fed is not None:
        words += ["constant"] if fed.constant else []
        words += [f"value before, of step {run_text(row.key)}"] if fed.before else []
    return Text("  ".join(words), theme.DIM, no_wrap=True)
