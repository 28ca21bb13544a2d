"""The rows of the hit list: their filter and order, the search in them, and their words.

Hits of one tensor on several ranks are one row, which unfolds into a row for each rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.text import Text

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.hits import HitList, NodeName, StepHits
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Hit, TensorKey, Verdict
from tui_debugger.text import hits
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import Emphasis, abbreviations, conditions_of
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import ranks_text, slot_text, step_text
from tui_debugger.tui import theme
from tui_debugger.tui.cells import VERDICT_GLYPHS
from tui_debugger.tui.widgets.text import Cell, ScopedName

_QUIET: Final = (Verdict.NOT_COMPARABLE, Verdict.BY_DESIGN)


@dataclass(frozen=True)
class HitFilter:
    """Restricts the rows of the hit list. Empty parts do not filter.

    Attributes:
        quiet: also show hits that are not comparable or have Inf by design.
        here: only hits of the step that is shown.
        scope: only hits of nodes below this path of the node tree.
    """

    watchpoints: frozenset[int] = frozenset()
    graphs: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    quiet: bool = False
    here: bool = False
    origins: bool = False
    scope: str = ""

    def __bool__(self) -> bool:
        """Tells whether the filter can hide findings."""
        return bool(self.watchpoints or self.graphs or self.ranks or self.here or self.origins or self.scope)

    @property
    def only_here(self) -> bool:
        """Tells whether the filter restricts nothing but the step."""
        return not replace(self, here=False)

    def mask(self, hits: HitList, step: int | None) -> Mask:
        kept = np.ones(len(hits), np.bool_) if self.quiet else ~np.isin(hits.verdict, _QUIET)
        if self.watchpoints:
            kept &= hits.reported_by(self.watchpoints)
        if self.graphs:
            kept &= hits.of_graphs(self.graphs)
        if self.ranks:
            kept &= np.isin(hits.rank, list(self.ranks))
        if self.here:
            kept &= hits.step == step if step is not None else False
        if self.origins:
            kept &= hits.origin
        if self.scope:
            kept &= _below(hits, self.scope)
        return kept


def _below(hits: HitList, scope: str) -> Mask:
    """Returns which hits are of nodes below a path of the node tree; with several graphs it begins with the graph."""
    numbers, names = hits.node_names()
    inside = [f"{each.path}/".startswith(f"{scope}/") or _tree_path(each).startswith(f"{scope}/") for each in names]
    return np.array(inside, np.bool_)[numbers]


def _tree_path(name: NodeName) -> str:
    return f"{name.graph}/{name.path}/"


class HitOrder(Enum):
    """The orders of the hit list, in words."""

    STEP = "step"
    SEVERITY = "severity"
    NAME = "name"
    SIZE = "size"

    @property
    def next(self) -> HitOrder:
        """The order after one press of the sort key."""
        orders = list(HitOrder)
        return orders[(orders.index(self) + 1) % len(orders)]

    def keys(self, hits: HitList) -> Int64:
        """Returns a sort key for each hit, ascending; hits with equal keys stay in the order of execution."""
        if self is HitOrder.SEVERITY:
            bad, found = hits.overflow(), hits.found()
            return np.select([hits.origin, found & bad, found], [0, 1, 2], 3)
        if self is HitOrder.NAME:
            numbers, names = hits.node_names()
            return _places([_by_name(each) for each in names])[numbers]
        return -hits.elements() if self is HitOrder.SIZE else np.zeros(len(hits), np.int64)


_DIGITS: Final = re.compile(r"(\d+)")


def _by_name(name: NodeName) -> tuple[list[tuple[int, str]], str, str]:
    """Returns the sort key of a node: the last part of its name, numbers as numbers (``op9``, ``op10``); its scope."""
    scope, _, last = name.name.rpartition("/")
    parts = _DIGITS.split(last.lower())
    return [(int(part[:18]), "") if at % 2 else (-1, part) for at, part in enumerate(parts)], scope, name.graph


def _places(keys: Sequence[tuple[list[tuple[int, str]], str, str]]) -> Int64:
    places = np.zeros(len(keys), np.int64)
    places[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return places


_WAYS = len(Verdict) + 1
"""Number of verdicts, and one for no verdict."""
_CODES = int(62 // math.log2(_WAYS))
"""Number of watchpoints whose verdicts fit into one int64."""


def found_in(hits: HitList, test: Callable[[str], bool], *, conditions: bool = False) -> npt.NDArray[np.bool_]:
    """Returns which hits pass a test of ``NODE ABBREVIATIONS``; if a rank has several graphs, also of ``GRAPH/NODE …``.

    ``conditions`` appends the names of the conditions. Equal texts are tested once.
    """
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
        keys[2, places] = _words(part, at, words, conditions=conditions)
    texts, inverse = _unique(keys)
    said = list(words)
    answers = [
        any(test(f"{name} {said[word]}") for name in _names(nodes[table], row)) for table, row, word in texts.T.tolist()
    ]
    return np.array(answers, np.bool_)[inverse]


def _names(nodes: NodeTable, row: int) -> list[str]:
    name = nodes.names[row]
    return [name, f"{nodes.graph_of(row).name}/{name}"] if len(nodes.graphs) > 1 else [name]


def _words(part: StepHits, at: Int64, words: dict[str, int], *, conditions: bool) -> Int64:
    """Returns for each hit the index of its watchpoints' names in ``words``; adds new names there."""
    codes = np.zeros(len(at), np.int64)
    for number, row in enumerate(part.verdicts, 1):
        codes = codes * _WAYS + row[at] + 1  # no verdict is -1
        if number % _CODES == 0:
            codes = np.unique(codes, return_inverse=True)[1]
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    part.evaluate(at[first].tolist())
    said = [abbreviations, conditions_of] if conditions else [abbreviations]
    made = [part.make(index) for index in at[first].tolist()]
    texts = [" ".join(text for name in said for text, _ in name(hit)) for hit in made]
    return np.array([words.setdefault(text, len(words)) for text in texts], np.int64)[inverse]


def _unique(keys: Int64) -> tuple[Int64, Int64]:
    """Returns the distinct columns of three rows of numbers, and for each column its index among them."""
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


def abbreviation_text(hit: Hit, room: int = 0) -> Text:
    """Returns each condition of a hit once: names if they fit into ``room`` cells, else abbreviations.

    A condition that NaN or Inf blocked is dimmed. A mark before them says that the operator overflowed on the device.
    """
    named = conditions_of(hit)
    in_full = len(", ".join(name for name, _ in named)) <= room
    text = Text(no_wrap=True)
    if hit.overflow:
        text.append(f"{theme.OVERFLOW_GLYPH} ", theme.FINDING)
    for number, (abbr, verdict) in enumerate(named if in_full else abbreviations(hit)):
        text.append((", " if in_full else " ") if number else "", theme.DIM)
        text.append(abbr, theme.FINDING if verdict is Verdict.FINDING else theme.DIM)
    return text


def detail_text(hit: Hit) -> Text:
    """Returns the set and the actual value of every parameter, ``mean |x| > 0.5 → 0.73``, else the reasons."""
    text = Text(no_wrap=True)
    for part in hits.hit_parts(hit):
        if text.plain:
            text.append(hits.SEPARATOR if part.apart else "  ", theme.DIM if part.apart else "")
        if part.text == hit.detail and hit.overflow:
            text.append(f"{theme.OVERFLOW_GLYPH} ", theme.FINDING)
        text.append(part.text, _STYLES[part.emphasis])
        if part.actual:
            text.append(" → ", theme.DIM)
            text.append(part.actual, theme.FINDING)
    return text


_APART: Final = "apart"
"""The key of the heading above the hits that could not be judged."""


@dataclass(frozen=True, eq=False)
class HitRows:
    """The rows of a ``VirtualTable`` of hits; the key of a row is the ``TensorKey`` of its first hit.

    Hits with the same number of ``HitList.across_ranks`` ("a tensor" in this class) are one row. Hits that could not be
    judged because of NaN or Inf come last, below a heading.

    Attributes:
        shown: ascending indices into ``all``.
        many_ranks: rows have a cell for their ranks.
        graphs: short name of each graph; empty if there is one graph.
        rank: a row of several ranks shows its hit on this rank, else its first hit.
        watchpoints: ids of the watchpoints that count; empty: all.
        names: cells for the names of conditions; 0: show abbreviations.
        unfolded: first tensors of the rows that show their ranks below; None: all rows.
    """

    all: HitList
    shown: Int64
    many_ranks: bool
    graphs: Mapping[str, str] = field(default_factory=dict)
    rank: int = 0
    order: HitOrder = HitOrder.STEP
    watchpoints: frozenset[int] = frozenset()
    names: int = 0
    unfolded: Collection[TensorKey] | None = frozenset()

    # -- columns over the tensors: what one row stands for ---------------------------------------

    @cached_property
    def _tensor(self) -> Int64:
        """The tensor number of each shown hit; tensors are numbered in the order of their first hits."""
        numbers = self.all.across_ranks()[self.shown]
        places = np.full(len(self.all), -1, np.int64)
        places[numbers[::-1]] = np.arange(len(numbers))[::-1]
        present = places[places >= 0]
        places[numbers[np.sort(present)]] = np.arange(len(present))
        return places[numbers]

    @cached_property
    def _starts(self) -> Int64:
        """Bounds in ``_members``: the hits of tensor i are ``_members[_starts[i]:_starts[i + 1]]``."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._tensor))]).astype(np.int64)

    @cached_property
    def _members(self) -> Int64:
        """The shown hits, grouped by tensor, ascending by rank."""
        return self.shown[np.argsort(self._tensor, kind="stable")]

    @cached_property
    def _first(self) -> Int64:
        return self._members[self._starts[:-1]]

    @cached_property
    def _shown_hits(self) -> Int64:
        hits: Int64 = self._first.copy()
        there = np.flatnonzero(self.all.rank[self.shown] == self.rank)
        hits[self._tensor[there]] = self.shown[there]
        return hits

    @cached_property
    def _apart(self) -> Mask:
        """Which tensors could not be judged; if no watchpoint is chosen, origins never count among them."""
        blocked = self.all.not_judged(self.watchpoints)
        return (blocked if self.watchpoints else blocked & ~self.all.origin)[self._first]

    # -- columns over the rows -------------------------------------------------------------------

    @cached_property
    def _rows(self) -> Int64:
        """Shape (2, rows): tensor (-1: heading), and index among its ranks (-1: the row of the tensor itself)."""
        count = len(self._first)
        tensors = np.lexsort((self.order.keys(self.all)[self._first], self._apart))
        rows = np.stack([tensors, np.full(count, -1)])
        judged = count - int(self._apart.sum())
        if judged < count:
            rows = np.insert(rows, judged, -1, axis=1)
        open_ = np.flatnonzero(self._is_unfolded[rows[0]] & (rows[0] >= 0))
        if not len(open_):
            return rows
        sizes = np.diff(self._starts)[rows[0, open_]]
        below = np.stack([np.repeat(rows[0, open_], sizes), np.concatenate([np.arange(size) for size in sizes])])
        return np.insert(rows, np.repeat(open_ + 1, sizes), below, axis=1)

    @cached_property
    def _is_unfolded(self) -> Mask:
        several = np.diff(self._starts) > 1
        mask = np.zeros(max(len(self._first), 1), np.bool_)
        if self.unfolded is None:
            mask[: len(several)] = several
        else:
            found = [tensor for key in self.unfolded if (tensor := self._tensor_of(key)) >= 0 and several[tensor]]
            mask[found] = True
        return mask

    @cached_property
    def _row_of(self) -> Int64:
        rows = np.zeros(len(self._first), np.int64)
        at = np.flatnonzero((self._rows[0] >= 0) & (self._rows[1] < 0))
        rows[self._rows[0, at]] = at
        return rows

    @cached_property
    def _row_of_hit(self) -> Int64:
        rows = np.full(len(self.all), -1, np.int64)
        rows[self.shown] = self._row_of[self._tensor]
        return rows

    def _tensor_of(self, key: TensorKey) -> int:
        """Returns the tensor number of a hit, -1 if it is not shown."""
        at = self.all.find(key)
        if at < 0:
            return -1
        return int(self._of_number[self.all.across_ranks()[at]])

    @cached_property
    def _of_number(self) -> Int64:
        tensors = np.full(len(self.all), -1, np.int64)
        tensors[self.all.across_ranks()[self.shown]] = self._tensor
        return tensors

    @property
    def row_count(self) -> int:
        return len(self._rows[0])

    @cached_property
    def tensors(self) -> int:
        """Number of rows without headings and ranks below other rows."""
        return len(self._first)

    @cached_property
    def merged(self) -> bool:
        return len(self._first) < len(self.shown)

    @cached_property
    def findings(self) -> Int64:
        return self._stops(self.all.found(self.watchpoints))

    @cached_property
    def origins(self) -> Int64:
        return self._stops(self.all.origin)

    def _stops(self, hits: Mask) -> Int64:
        return np.sort(self._row_of[hits[self._first]])

    @cached_property
    def counted(self) -> Mapping[int, tuple[int, int]]:
        """Findings by step: (in the list, in the run); steps without findings are left out."""
        listed = np.zeros(len(self.all), np.bool_)
        listed[self.shown] = True
        mine = self.all.count_by_step(self.all.found(self.watchpoints) & listed)
        return {step: (mine.get(step, 0), every) for step, every in self.all.count_by_step(self.all.found()).items()}

    @cached_property
    def others(self) -> int:
        """Number of listed hits that are no findings; without ``not_judged`` ones if watchpoints are chosen."""
        listed = len(self.shown) - sum(mine for mine, _ in self.counted.values())
        return listed - (self.not_judged if self.watchpoints else 0)

    @cached_property
    def not_judged(self) -> int:
        return int(self._apart[self._tensor].sum())

    def first_at(self, rank: int, step: int | None) -> int:
        """Returns the row of the first finding at a step of a rank, else its first row, else -1."""
        places = self.all.places_at(rank, step)
        rows = self._row_of_hit[places]
        found = rows[(rows >= 0) & self.all.found(self.watchpoints)[places]]
        rows = found if len(found) else rows[rows >= 0]
        return int(rows.min()) if len(rows) else -1

    def hit(self, index: int) -> Hit | None:
        """Returns the hit that a row shows; None for a heading."""
        tensor, member = self._rows[:, index].tolist()
        if tensor < 0:
            return None
        return self.all[int(self._shown_hits[tensor] if member < 0 else self._members[self._starts[tensor] + member])]

    def ranks(self, index: int) -> list[int]:
        tensor, member = self._rows[:, index].tolist()
        if tensor < 0:
            return []
        hits = self._members[self._starts[tensor] : self._starts[tensor + 1]]
        return [int(rank) for rank in self.all.rank[hits if member < 0 else hits[member : member + 1]]]

    def folder(self, index: int) -> TensorKey | None:
        """Returns the first tensor of the row that unfolds, for it and for its ranks below; None if nothing unfolds."""
        tensor = int(self._rows[0, index])
        if tensor < 0 or self._starts[tensor + 1] - self._starts[tensor] < 2:
            return None
        return self.all[int(self._first[tensor])].key

    def folders(self) -> list[TensorKey]:
        return [self.all[int(self._first[tensor])].key for tensor in np.flatnonzero(np.diff(self._starts) > 1)]

    def key(self, index: int) -> Hashable:
        """Returns the first tensor of a row; for a rank below another row ``("rank", tensor)``."""
        tensor, member = self._rows[:, index].tolist()
        if tensor < 0:
            return _APART
        key = self.all[int(self._members[self._starts[tensor] + max(member, 0)])].key
        return key if member < 0 else ("rank", key)

    def find(self, key: Hashable) -> int:
        if key == _APART:
            heading = np.flatnonzero(self._rows[0] < 0)
            return int(heading[0]) if len(heading) else -1
        below = isinstance(key, tuple) and len(key) == 2 and key[0] == "rank"
        wanted = key[1] if isinstance(key, tuple) and below else key
        tensor = self._tensor_of(wanted) if isinstance(wanted, TensorKey) else -1
        if tensor < 0:
            return -1
        row = int(self._row_of[tensor])
        if below and isinstance(wanted, TensorKey) and self._is_unfolded[tensor]:
            ranks = self.ranks(row)
            return row + 1 + ranks.index(wanted.rank) if wanted.rank in ranks else row
        return row

    def cells(self, index: int) -> Sequence[Cell]:
        tensor, member = self._rows[:, index].tolist()
        hit = self.hit(index)
        if hit is None:
            count = plural(self.not_judged, "tensor")
            return ["", Text(f"NaN or Inf kept {count} from being judged:", theme.HEADING)]
        apart = bool(self._apart[tensor])
        glyph, style = VERDICT_GLYPHS[hit.verdict]
        mark = Text(theme.ORIGIN_GLYPH if hit.origin else glyph, theme.FINDING if hit.origin else style)
        rank = [self._rank_cell(index, tensor, member)] if self.many_ranks else []
        graph = [Text(clean(self.graphs.get(hit.key.graph, hit.key.graph)), theme.DIM)] if self.graphs else []
        scope, _, name = hit.key.node.rpartition("/")
        name_style = theme.NORMAL if hit.verdict is Verdict.FINDING and not apart else theme.DIM
        return [
            Text(theme.NONE, theme.DIM) if apart else mark,
            step_text(hit.key.step),
            *rank,
            *graph,
            ScopedName(Text(clean(name), name_style), scope, theme.DIM),
            Text(slot_text(hit.key), theme.DIM),
            self._conditions(index, hit),
            Text(detail_text(hit).plain, theme.DIM, no_wrap=True) if apart else detail_text(hit),
        ]

    def _conditions(self, index: int, hit: Hit) -> Text:
        """Returns the conditions of a hit; nothing if the row above has the same."""
        above = self.hit(index - 1) if index else None
        said = abbreviation_text(hit, self.names)
        same = above is not None and above.key.step == hit.key.step and abbreviation_text(above, self.names) == said
        return Text() if same else said

    def _rank_cell(self, index: int, tensor: int, member: int) -> Text:
        ranks = self.ranks(index)
        if len(ranks) < 2:
            return Text(f"└ {ranks[0]}" if member >= 0 else str(ranks[0]), theme.DIM)
        glyph = theme.OPEN_GLYPH if self._is_unfolded[tensor] else theme.CLOSED_GLYPH
        text = ranks_text(ranks)
        return Text(f"{glyph}{text if len(text) < RANKS_WIDTH else f'{len(ranks)} ranks'}", theme.DIM)


RANKS_WIDTH: Final = 10
"""Most cells for the ranks of a row that stands for several."""
_LEAST_RANKS: Final = 5
"""Fewest cells for the ranks of a row: two ranks of one digit, a comma, a glyph and a blank."""


def ranks_width(ranks: Collection[int]) -> int:
    return min(max(1 + len(",".join(map(str, ranks))), _LEAST_RANKS), RANKS_WIDTH)
