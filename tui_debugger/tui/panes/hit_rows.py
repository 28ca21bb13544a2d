"""The rows of the hit list: what restricts them, which of them a search finds, and how a hit reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.text import Text

from tui_debugger.arrays import Int64
from tui_debugger.check.hits import HitList, StepHits
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Hit, TensorKey, Verdict
from tui_debugger.text import hits
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import Emphasis, abbreviations
from tui_debugger.text.tensors import slot_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.cells import VERDICT_GLYPHS
from tui_debugger.tui.widgets.text import Cell, ScopedName

_QUIET: Final = (Verdict.NOT_COMPARABLE, Verdict.BY_DESIGN)


@dataclass(frozen=True)
class HitFilter:
    """Restricts the rows of the hit list. Empty parts do not filter.

    Attributes:
        watchpoints: ids.
        graphs: graph names.
        ranks: ranks.
        quiet: also rows where nothing could be compared for a good reason, and those with Inf by design.
        here: only those of the step and rank that are shown.
    """

    watchpoints: frozenset[int] = frozenset()
    graphs: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    quiet: bool = False
    here: bool = False

    def __bool__(self) -> bool:
        """Tells whether it can hide findings."""
        return bool(self.watchpoints or self.graphs or self.ranks or self.here)

    def mask(self, hits: HitList, place: tuple[int, int | None]) -> npt.NDArray[np.bool_]:
        """Returns which hits pass; ``place`` is the rank and step that are shown."""
        kept = np.ones(len(hits), np.bool_) if self.quiet else ~np.isin(hits.verdict, _QUIET)
        if self.watchpoints:
            kept &= hits.reported_by(self.watchpoints)
        if self.graphs:
            kept &= hits.of_graphs(self.graphs)
        if self.ranks:
            kept &= np.isin(hits.rank, list(self.ranks))
        if self.here:
            kept &= hits.at(*place)
        return kept


_WAYS = len(Verdict) + 1
"""A verdict, or none."""
_CODES = int(62 // math.log2(_WAYS))
"""Watchpoints whose verdicts fit into one number."""


def found_in(hits: HitList, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Marks the hits of which ``NODE ABBREVIATIONS`` passes a test, of several graphs also ``GRAPH/NODE …``."""
    words: dict[str, int] = {}
    tables: dict[int, int] = {}
    keys = np.zeros((3, len(hits)), np.int64)
    nodes: list[NodeTable] = []
    for part, places, at in hits.by_step():
        number = tables.setdefault(id(part.nodes), len(tables))
        if number == len(nodes):
            nodes.append(part.nodes)
        keys[0, places] = number
        keys[1, places] = part.node[at]
        keys[2, places] = _words(part, at, words)
    texts, inverse = _unique(keys)
    said = list(words)
    answers = [
        any(test(f"{name} {said[word]}") for name in _names(nodes[table], row)) for table, row, word in texts.T.tolist()
    ]
    return np.array(answers, np.bool_)[inverse]


def _names(nodes: NodeTable, row: int) -> list[str]:
    """Returns the names that a search for a node looks at."""
    name = nodes.names[row]
    return [name, f"{nodes.graph_of(row).name}/{name}"] if len(nodes.graphs) > 1 else [name]


def _words(part: StepHits, at: Int64, words: dict[str, int]) -> Int64:
    """Returns for each hit the index of its watchpoints' names in ``words``; new names are added there."""
    codes = np.zeros(len(at), np.int64)
    for number, row in enumerate(part.verdicts, 1):
        codes = codes * _WAYS + row[at] + 1  # no verdict is -1
        if number % _CODES == 0:
            codes = np.unique(codes, return_inverse=True)[1]
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    part.evaluate(at[first].tolist())
    texts = [" ".join(abbr for abbr, _ in abbreviations(part.make(index))) for index in at[first].tolist()]
    return np.array([words.setdefault(text, len(words)) for text in texts], np.int64)[inverse]


def _unique(keys: Int64) -> tuple[Int64, Int64]:
    """Returns the different columns of three rows of numbers, and which of them each column is."""
    size = keys.max(axis=1, initial=0) + 1
    codes = np.ravel_multi_index(tuple(keys), tuple(size)) if keys.size else keys[0]
    found, inverse = np.unique(codes, return_inverse=True)
    return np.array(np.unravel_index(found, tuple(size)), np.int64), inverse


_STYLES = {
    Emphasis.PLAIN: theme.NORMAL,
    Emphasis.DIM: theme.DIM,
    Emphasis.DOUBT: theme.DOUBT,
    Emphasis.FINDING: theme.FINDING,
}


def abbreviation_text(hit: Hit) -> Text:
    """Returns each watchpoint's abbreviation once, coloured by its verdict: what NaN or Inf blocked is dimmed."""
    text = Text(no_wrap=True)
    for abbr, verdict in hits.abbreviations(hit):
        text.append(" " if text.plain else "")
        text.append(abbr, theme.FINDING if verdict is Verdict.FINDING else theme.DIM)
    return text


def detail_text(hit: Hit) -> Text:
    """``mean |x| > 0.5 → 0.73``: for every hit parameter the set and the actual value; else the reasons."""
    text = Text(no_wrap=True)
    for part in hits.hit_parts(hit):
        if text.plain:
            text.append(hits.SEPARATOR if part.apart else "  ", theme.DIM if part.apart else "")
        text.append(part.text, _STYLES[part.emphasis])
        if part.actual:
            text.append(" → ", theme.DIM)
            text.append(part.actual, theme.FINDING)
    return text


@dataclass(frozen=True, eq=False)
class HitRows:
    """See ``widgets.rows.Rows``; the key of a row is its tensor.

    Attributes:
        all: every hit there is.
        shown: which of them are rows, rising.
        many_ranks: whether a row says its rank.
        graphs: what a row calls its graph, by name; empty where there is one graph.
    """

    all: HitList
    shown: Int64
    many_ranks: bool
    graphs: Mapping[str, str] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.shown)

    @cached_property
    def findings(self) -> Int64:
        """Rows that are findings."""
        return np.flatnonzero(self.all.verdict[self.shown] == Verdict.FINDING)

    @cached_property
    def origins(self) -> Int64:
        """Rows that are origins."""
        return np.flatnonzero(self.all.origin[self.shown])

    def first_at(self, rank: int, step: int | None) -> int:
        """Returns the first finding at a step of a rank, else its first row, else -1."""
        there = np.flatnonzero(self.all.at(rank, step)[self.shown])
        found = there[self.all.verdict[self.shown[there]] == Verdict.FINDING]
        return int(found[0]) if len(found) else int(there[0]) if len(there) else -1

    def hit(self, index: int) -> Hit:
        """Returns the hit of a row."""
        return self.all[int(self.shown[index])]

    def key(self, index: int) -> Hashable:
        """Returns the tensor of a row."""
        return self.hit(index).key

    def find(self, key: Hashable) -> int:
        """Returns the row of a tensor, -1 when it is not shown."""
        at = self.all.find(key) if isinstance(key, TensorKey) else -1
        row = int(np.searchsorted(self.shown, at))
        return row if at >= 0 and row < len(self.shown) and int(self.shown[row]) == at else -1

    def cells(self, index: int) -> Sequence[Cell]:
        """Returns mark, place and findings."""
        hit = self.hit(index)
        glyph, style = VERDICT_GLYPHS[hit.verdict]
        mark = Text(theme.ORIGIN_GLYPH if hit.origin else glyph, theme.FINDING if hit.origin else style)
        rank = [Text(str(hit.key.rank), theme.DIM)] if self.many_ranks else []
        graph = [Text(clean(self.graphs.get(hit.key.graph, hit.key.graph)), theme.DIM)] if self.graphs else []
        scope, _, name = hit.key.node.rpartition("/")
        name_style = theme.NORMAL if hit.verdict is Verdict.FINDING else theme.DIM
        return [
            mark,
            step_text(hit.key.step),
            *rank,
            *graph,
            ScopedName(Text(clean(name), name_style), scope, theme.DIM),
            Text(slot_text(hit.key), theme.DIM),
            abbreviation_text(hit),
            detail_text(hit),
        ]
