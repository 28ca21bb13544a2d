"""A graph around a box as characters: boxes in layers from left to right, and unambiguous lines.

A line leaves its box at the name, runs along one column between two layers, and ends at a row of its own of the box
it feeds. The vertical one of crossing lines is on top; lines of different boxes never touch. Parts without room are
left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tui_debugger.arrays import Int16
from tui_debugger.text.tables import CUT, cut_end, cut_middle, split_name, width_of

LEAST: Final = 8
"""Cells of the narrowest box: its two sides, and the shortest name."""
_MOST: Final = 12
_GAP: Final = 7
"""Cells between two layers, if there is room."""
_BEYOND: Final = 2
"""The most layers on a side besides one for each hop: a box stands before the neighbours that it feeds."""
_WORDS: Final = "producers", "consumers"
_SWEEPS: Final = 6
_SHIFTS: Final = (0, 1, -1, 2, -2, 3, -3)


@dataclass(frozen=True, slots=True)
class SketchBox:
    """A box with ``mark`` and ``note`` in its upper edge, ``foot`` in its lower; ``important``: the last to go."""

    name: str
    mark: str = ""
    note: str = ""
    foot: str = ""
    important: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A line between two boxes, by number; ``label`` stands at its end."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class SketchGraph:
    """A graph that is to be drawn.

    The distance over ``edges`` to ``centre`` decides the layer of a box; ``hops`` is the greatest one. ``hidden``
    counts related nodes without a box by distance: -1 is one hop before the middle. ``layers`` (of each box, 0 for
    the middle) replaces the distances. A box narrower than ``comfortable`` has no layer farther away.
    """

    boxes: Sequence[SketchBox]
    edges: Sequence[Edge]
    centre: int = 0
    hidden: Mapping[int, int] = field(default_factory=dict)
    hops: int = 2
    layers: Sequence[int] = ()
    comfortable: int = 11


@dataclass(frozen=True, eq=False)
class Ink:
    """The characters of a sketch.

    ``edge``: corners clockwise from the upper left, a horizontal and a vertical edge, the exit of lines; ``centre``:
    the same for the middle box. ``lines``: by the sum of their arms. ``marks``: replacements for missing characters.
    """

    edge: str
    centre: str
    lines: str
    arrow: str
    cut: str
    marks: Mapping[str, str] = field(default_factory=dict)


UNICODE: Final = Ink("┌┐┘└─│├", "╔╗╝╚═║╟", " ╴╶─╷┐┌┬╵┘└┴│┤├┼", "▶", CUT)
ASCII: Final = Ink("++++-|+", "####=##", " ---|+++|+++|+++", ">", "..", {"◆": "*", "✗": "x"})
HEAVY: Final = str.maketrans("┌┐┘└─│├╔╗╝╚═║╟", "┏┓┛┗━┃┣" * 2)
"""Makes the edges of the box under a cursor heavy."""
LEFT, RIGHT, DOWN, UP = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """The first column and row of a box, its size, and its layer (0 in the middle, producers below)."""

    box: int
    x: int
    y: int
    width: int
    height: int
    layer: int


@dataclass(frozen=True, eq=False)
class Sketch:
    """A drawn graph.

    ``cells`` are rows of cells; a wide character is followed by an empty cell. ``owners``: the box of each cell, -1 for
    lines and blanks. ``links``: the boxes that drawn edges connect. ``left_out``: undrawn edges that lead backwards.
    ``beyond`` counts farther boxes without room.
    """

    cells: tuple[tuple[str, ...], ...]
    owners: Int16
    boxes: tuple[PlacedBox, ...]
    edges: tuple[int, ...]
    links: frozenset[tuple[int, int]]
    left_out: tuple[int, ...]
    beyond: int

    @property
    def rows(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    def box(self, number: int) -> PlacedBox | None:
        return next((each for each in self.boxes if each.box == number), None)

    def at(self, x: int, y: int) -> int:
        """Returns the number of the box at a cell, or -1."""
        inside = 0 <= y < self.owners.shape[0] and 0 <= x < self.owners.shape[1]
        return int(self.owners[y, x]) if inside else -1

    def beside(self, number: int, layers: int, rows: int) -> int:
        """Returns the box of an arrow key (``rows``: -1 up, 1 down), or the same box.

        ``layers``: -1 to a box that feeds it, 1 to a box that it feeds.
        """
        here = self.box(number)
        if here is None:
            return number
        if not layers:
            column = sorted((each for each in self.boxes if each.layer == here.layer), key=lambda each: each.y)
            at = column.index(here) + rows
            return column[at].box if 0 <= at < len(column) else number
        there = [each for each in self.boxes if (number, each.box)[::layers] in self.links]
        if not there:
            return number
        return min(there, key=lambda each: (abs(each.layer - here.layer), abs(each.y - here.y), each.y)).box


# -- which boxes, in which layers ------------------------------------------------------------------


def layers_of(count: int, edges: Sequence[Edge], centre: int, deepest: int) -> dict[int, int]:
    """Returns the layer of every box that leads to the middle (below 0), or is fed by it (above 0).

    A box stands before everything that it feeds, if that needs no more than ``deepest`` layers on a side.
    """
    found = {centre: 0}
    for sign in (-1, 1):
        ways = [(each.target, each.source) if sign < 0 else (each.source, each.target) for each in edges]
        side, reached = {centre: 0}, {centre}
        while reached:
            reached = {to for start, to in ways if start in reached and to not in side and to not in found}
            depth = max(side.values()) + 1
            side |= dict.fromkeys(reached, depth)
        for _ in range(count):
            moved = False
            for start, to in ways:
                if start in side and to in side and to != centre and side[to] <= side[start] < deepest:
                    side[to], moved = side[start] + 1, True
            if not moved:
                break
        found |= {box: sign * min(depth, deepest) for box, depth in side.items()}
    return found


@dataclass(slots=True)
class _LayerItem:
    """An item with rows in a layer: a box, a passing line (``box`` -1), or the words about left-out boxes."""

    box: int
    layer: int
    height: int
    source: int = -1
    words: str = ""
    ports: list[tuple[_LayerItem, int]] = field(default_factory=list)
    """The feeding items and the number of the edge (-1 for a passing line), from the top."""
    y: int = 0

    @property
    def exit(self) -> int:
        return self.y + (1 if self.box >= 0 else 0)

    def port(self, at: int) -> int:
        return self.y + (1 + at if self.box >= 0 else 0)


@dataclass(slots=True)
class _LineNet:
    """All lines from one item to the next layer, and their column (-1: straight on)."""

    source: _LayerItem
    targets: list[tuple[_LayerItem, int]]
    track: int = -1

    @property
    def rows(self) -> list[int]:
        return [item.port(at) for item, at in self.targets]

    @property
    def straight(self) -> bool:
        return self.rows == [self.source.exit]

    @property
    def span(self) -> tuple[int, int]:
        rows = [self.source.exit, *self.rows]
        return min(rows), max(rows)


def draw_sketch(graph: SketchGraph, width: int, height: int, *, ink: Ink = UNICODE) -> Sketch:
    """Draws boxes around the one in the middle, never wider or higher than asked (``height`` at least three lines)."""
    layers: Mapping[int, int] = dict(enumerate(graph.layers))
    layers = layers or layers_of(len(graph.boxes), graph.edges, graph.centre, graph.hops + _BEYOND)
    left, right = min(layers.values()), max(layers.values())
    names: dict[int, int] = {}
    for box, layer in layers.items():
        name = width_of(graph.boxes[box].name)
        names[layer] = min(names.get(layer, name), name)
    for comfortable in (graph.comfortable, LEAST):
        first, last = left, right
        while True:
            span = range(first, last + 1)  # two cells between layers at least
            fits = sum(min(max(names.get(at, 0) + 2, LEAST), comfortable) + 2 for at in span) <= width + 2
            for most in range(_MOST if fits else 0, 0, -1):
                plan = _SketchPlan(graph, layers, (first, last), most, ink)
                if plan.place(height):
                    if plan.fit(width, comfortable):
                        return plan.draw()
                    break
            if first == last:
                break
            if last >= -first:
                last -= 1
            else:
                first += 1
    alone = _SketchPlan(SketchGraph(graph.boxes, (), graph.centre), {graph.centre: 0}, (0, 0), 1, ink)
    alone.place(max(height, 3))
    alone.fit(max(width, 3), 3)
    return alone.draw()


class _SketchPlan:
    """One try, with fixed numbers of layers and of boxes in each."""

    def __init__(
        self, graph: SketchGraph, layers: Mapping[int, int], span: tuple[int, int], most: int, ink: Ink
    ) -> None:
        self.boxes, self.all_edges, self.centre, self.ink = graph.boxes, graph.edges, graph.centre, ink
        self.by_distance, edges = not graph.layers, graph.edges
        self.first, self.last = span
        more = dict(graph.hidden)
        shown = self._chosen(layers, most, more)
        self.edges = [n for n, e in enumerate(edges) if e.source in shown and e.target in shown]
        self.drawn = [n for n in self.edges if shown[edges[n].source] < shown[edges[n].target]]
        self.left_out = [n for n in self.edges if n not in set(self.drawn)]
        self.beyond = sum(not self.first <= layer <= self.last for layer in layers.values())
        self.layers: dict[int, list[_LayerItem]] = {layer: [] for layer in range(self.first, self.last + 1)}
        self.nets: dict[int, list[_LineNet]] = {}
        self.widths: dict[int, int] = {}
        self.gaps: dict[int, int] = {}
        self._items = {box: _LayerItem(box, layer, 3) for box, layer in shown.items()}
        for item in self._items.values():
            self.layers[item.layer].append(item)
        self._connect()
        self._order()
        for layer, items in self.layers.items():
            if more.get(layer, 0) > 0:
                items.append(_LayerItem(-1, layer, 1, words=f"{more[layer]:,}"))

    def _chosen(self, layers: Mapping[int, int], most: int, more: dict[int, int]) -> dict[int, int]:
        """Returns the drawn boxes by layer from the middle outwards; counts the others in ``more``."""
        shown = {self.centre: 0}
        for layer in sorted(range(self.first, self.last + 1), key=lambda layer: (layer > 0, abs(layer))):
            there = [box for box, at in layers.items() if at == layer and self._leads(box, shown, layer)]
            kept = sorted(there, key=lambda box: (box != self.centre, not self.boxes[box].important))[:most]
            if len(there) > len(kept):
                more[layer] = more.get(layer, 0) + len(there) - len(kept)
            shown |= {box: layer for box in there if box in kept}
        return shown

    def _leads(self, box: int, shown: Mapping[int, int], layer: int) -> bool:
        if not layer or not self.by_distance:
            return True
        sign = 1 if layer > 0 else -1
        ends = ((e.source, e.target) if sign < 0 else (e.target, e.source) for e in self.all_edges)
        return any(mine == box and shown.get(other, sign) * sign >= 0 and other in shown for mine, other in ends)

    def _connect(self) -> None:
        passing: dict[tuple[int, int], _LayerItem] = {}
        for number in self.drawn:
            edge = self.all_edges[number]
            before, target = self._items[edge.source], self._items[edge.target]
            for layer in range(before.layer + 1, target.layer):
                key = (edge.source, layer)
                if key not in passing:
                    passing[key] = _LayerItem(-1, layer, 1, source=edge.source, ports=[(before, -1)])
                    self.layers[layer].append(passing[key])
                before = passing[key]
            target.ports.append((before, number))
        for item in self._items.values():
            item.height = 2 + max(len(item.ports), 1)

    # -- order within layers -------------------------------------------------------------------------

    def _order(self) -> None:
        """Orders layers by their neighbours, forth and back, and keeps the order with fewest crossings."""
        best = self._snapshot()
        fewest = self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            forward = sweep % 2 == 0
            for layer in range(self.first, self.last + 1) if forward else range(self.last, self.first - 1, -1):
                self._sort(layer, forward=forward)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = self._snapshot(), crossings
        self.layers = best
        places = {id(item): at for items in best.values() for at, item in enumerate(items)}
        for items in best.values():
            for item in items:
                item.ports.sort(key=lambda port: (places[id(port[0])], port[1]))

    def _snapshot(self) -> dict[int, list[_LayerItem]]:
        return {layer: list(items) for layer, items in self.layers.items()}

    def _sort(self, layer: int, *, forward: bool) -> None:
        beside = self.layers.get(layer - 1 if forward else layer + 1, [])
        place = {id(item): at for at, item in enumerate(beside)}
        wanted: dict[int, float] = {}
        for at, item in enumerate(self.layers[layer]):
            if forward:
                found = [place[id(source)] for source, _ in item.ports]
            else:
                found = [place[id(other)] for other in beside for source, _ in other.ports if source is item]
            wanted[id(item)] = sum(found) / len(found) if found else float(at)
        self.layers[layer].sort(key=lambda item: wanted[id(item)])

    def _crossings(self) -> int:
        total = 0
        for layer in range(self.first + 1, self.last + 1):
            place = {id(item): at for at, item in enumerate(self.layers[layer - 1])}
            lines = [(place[id(s)], at) for at, item in enumerate(self.layers[layer]) for s, _ in item.ports]
            total += sum((a - c) * (b - d) < 0 for n, (a, b) in enumerate(lines) for c, d in lines[:n])
        return total

    # -- rows ----------------------------------------------------------------------------------------

    def place(self, height: int) -> bool:
        """Gives every item its row; False if a layer does not fit."""
        if any(sum(item.height for item in items) > height for items in self.layers.values()):
            return False
        self._stack(0, {}, height)
        middle = self._items[self.centre]
        for layer in range(-1, self.first - 1, -1):
            fed = self.layers[layer + 1]
            self._stack(layer, {id(s): [] for s in self.layers[layer]} | _output_rows(fed), height)
        for layer in range(1, self.last + 1):
            rows = {id(item): [source.exit for source, _ in item.ports] for item in self.layers[layer]}
            self._stack(layer, rows, height)
        base = middle.y + middle.height // 2 - height // 2
        for items in self.layers.values():
            _clamp(items, base, height)
        if not self._route(base, height):
            return False
        top = min(item.y for items in self.layers.values() for item in items)
        for items in self.layers.values():
            for item in items:
                item.y -= top
        self.height = max(item.y + item.height for items in self.layers.values() for item in items)
        return True

    def _stack(self, layer: int, rows: Mapping[int, list[int]], height: int) -> None:
        """Stacks items, each as near as can be to the rows of its connected items."""
        items = self.layers[layer]
        spare = height - sum(item.height for item in items)
        space = 1 if spare >= len(items) - 1 else 0
        wanted: list[float] = []
        offset, starts = 0, []
        for item in items:
            near = rows.get(id(item), [])
            shift = (1 if item.box >= 0 else 0) + (len(item.ports) - 1) / 2 * (layer > 0)
            previous = wanted[-1] if wanted else 0.0
            starts.append(offset)
            wanted.append(sum(near) / len(near) - shift - offset if near else previous)
            offset += item.height + space
        for item, start, row in zip(items, starts, _rising(wanted), strict=True):
            item.y = round(row) + start

    # -- lines ---------------------------------------------------------------------------------------

    def _route(self, base: int, height: int) -> bool:
        """Gives lines their columns; moves a layer a little where lines would overlap."""
        order = [*range(-1, self.first - 1, -1), *range(self.last)]
        for gap in order:  # gap n lies between the layers n and n + 1; the layer farther from the middle moves
            movable = self.layers[gap if gap < 0 else gap + 1]
            rows = [item.y for item in movable]
            for shift in _SHIFTS:
                for item, y in zip(movable, rows, strict=True):
                    item.y = y + shift
                inside = all(base <= item.y and item.y + item.height <= base + height for item in movable)
                nets = self._nets(gap) if inside else None
                if nets is not None and _assign(nets):
                    self.nets[gap] = nets
                    break
            else:
                return False
        return True

    def _nets(self, gap: int) -> list[_LineNet]:
        found: dict[int, _LineNet] = {}
        for item in self.layers[gap + 1]:
            for at, (source, _) in enumerate(item.ports):
                found.setdefault(id(source), _LineNet(source, [])).targets.append((item, at))
        return list(found.values())

    # -- columns -------------------------------------------------------------------------------------

    def fit(self, width: int, comfortable: int) -> bool:
        """Shares the width among boxes and gaps; False if boxes get less than asked for, or than they need."""
        for gap in range(self.first, self.last):
            tracks = max((net.track for net in self.nets[gap]), default=-1) + 1
            self.gaps[gap] = tracks + 2
        wanted = {
            layer: max((self._wanted(item) for item in items), default=LEAST) for layer, items in self.layers.items()
        }
        room = width - sum(self.gaps.values())
        least = sum(min(each, comfortable) for each in wanted.values())
        if room < least:
            return False
        cap = max(wanted.values())
        while sum(min(each, cap) for each in wanted.values()) > room:
            cap -= 1
        self.widths = {layer: min(each, cap) for layer, each in wanted.items()}
        spare = room - sum(self.widths.values())
        for gap in sorted(self.gaps, key=lambda gap: self.gaps[gap]):
            extra = min(max(_GAP - self.gaps[gap], 0), spare // max(len(self.gaps), 1), spare)
            self.gaps[gap] += extra
        return True

    def _wanted(self, item: _LayerItem) -> int:
        if item.box < 0:
            return max(LEAST, len(f"and {item.words} more")) if item.words else LEAST
        box = self.boxes[item.box]
        name = width_of(box.name) + self._labels(item)
        edges = max(width_of(box.mark + box.note), width_of(box.foot))
        return max(name, edges, LEAST - 2) + 2

    def _labels(self, item: _LayerItem) -> int:
        return max((width_of(self.all_edges[n].label) + 1 for _, n in item.ports if self.all_edges[n].label), default=0)

    # -- drawing -------------------------------------------------------------------------------------

    def draw(self) -> Sketch:
        x: dict[int, int] = {}
        at = 0
        for layer in range(self.first, self.last + 1):
            x[layer] = at
            at += self.widths[layer] + self.gaps.get(layer, 0)
        canvas = _SketchCanvas(at, self.height, self.ink)
        for gap, nets in self.nets.items():
            start = x[gap] + self.widths[gap]
            for net in nets:
                canvas.net(net, start, start + self.gaps[gap] - 1)
        placed = []
        for layer, items in self.layers.items():
            for item in items:
                width = self.widths[layer]
                if item.words:
                    canvas.write(x[layer], item.y, self._more(item, width))
                elif item.box < 0:
                    canvas.through(x[layer], item.y, width)
                else:
                    self._draw_box(canvas, item, x[layer])
                    placed.append(PlacedBox(item.box, x[layer], item.y, width, item.height, layer))
        links = frozenset((self.all_edges[n].source, self.all_edges[n].target) for n in self.drawn)
        drawn, left_out = tuple(self.drawn), tuple(self.left_out)
        return Sketch(canvas.cells, canvas.owners, tuple(placed), drawn, links, left_out, self.beyond)

    def _more(self, item: _LayerItem, width: int) -> str:
        what = (f" {_WORDS[item.layer > 0]}",) if self.by_distance else ()
        texts = (*(f"and {item.words} more{word}" for word in (*what, "")), f"+{item.words}")
        return next((text for text in texts if len(text) <= width), cut_end(texts[-1], width, self.ink.cut))

    def _draw_box(self, canvas: _SketchCanvas, item: _LayerItem, x: int) -> None:
        box, ink, width = self.boxes[item.box], self.ink, self.widths[item.layer]
        edge, inner = ink.centre if item.box == self.centre else ink.edge, width - 2
        mark = ink.marks.get(box.mark, box.mark)
        head = cut_end(mark + box.note, inner, ink.cut)
        foot = box.foot if width_of(box.foot) <= inner else ""
        canvas.write(x, item.y, edge[0] + head + edge[4] * (inner - width_of(head)) + edge[1], item.box)
        rows = item.height - 2
        labels = self._labels(item)
        if width_of(box.name) + labels > inner and (rows < 2 or inner - labels < LEAST - 2):
            labels = 0  # the name comes first
        names = self._name_rows(box.name, inner - labels, rows)
        for row in range(rows):
            label = self.all_edges[item.ports[row][1]].label if labels and row < len(item.ports) else ""
            text = label + " " * (labels - width_of(label)) + names[row]
            canvas.write(x, item.y + 1 + row, edge[5] + text + " " * (inner - width_of(text)) + edge[5], item.box)
        last = item.y + item.height - 1
        canvas.write(x, last, edge[3] + edge[4] * (inner - width_of(foot)) + foot + edge[2], item.box)
        if any(net.source is item for net in self.nets.get(item.layer, ())):
            canvas.write(x + width - 1, item.exit, edge[6], item.box)

    def _name_rows(self, name: str, width: int, rows: int) -> list[str]:
        """Returns a name in one row, or in two if one is too short."""
        head, tail = split_name(name)
        if width_of(name) <= width or rows < 2 or not head or not 0 < width_of(tail) <= width:
            return [cut_middle(name, width, self.ink.cut), *[""] * (rows - 1)]
        return [cut_middle(head, width, self.ink.cut), tail, *[""] * (rows - 2)]


def _output_rows(items: Iterable[_LayerItem]) -> dict[int, list[int]]:
    """Returns the rows at which each item feeds others."""
    rows: dict[int, list[int]] = {}
    for item in items:
        for at, (source, _) in enumerate(item.ports):
            rows.setdefault(id(source), []).append(item.port(at))
    return rows


def _rising(wanted: Sequence[float]) -> list[float]:
    """Returns the nearest numbers that never fall (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in wanted:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, many), (two, more) = pools[-2:]
            pools[-2:] = [((one * many + two * more) / (many + more), many + more)]
    return [value for value, count in pools for _ in range(count)]


def _clamp(items: Sequence[_LayerItem], base: int, height: int) -> None:
    """Moves a layer into the given rows; the caller makes sure that it fits."""
    least = base
    for item in items:
        item.y = max(item.y, least)
        least = item.y + item.height
    most = base + height
    for item in reversed(items):
        item.y = min(item.y, most - item.height)
        most = item.y


def _assign(nets: Sequence[_LineNet]) -> bool:
    """Gives lines columns without overlaps; False if that cannot be.

    A line that leaves on the row where another arrives has to turn before the other one comes.
    """
    before: dict[int, set[int]] = {n: set() for n in range(len(nets))}
    exits = {net.source.exit: n for n, net in enumerate(nets)}
    for n, net in enumerate(nets):
        for row in net.rows:
            other = exits.get(row, n)
            if other == n:
                continue
            if net.straight or nets[other].straight:
                return False
            before[n].add(other)
    waiting = {n for n, net in enumerate(nets) if not net.straight}
    spans = [net.span for net in nets]
    while waiting:
        ready = [n for n in waiting if not before[n] & waiting]
        if not ready:
            return False
        for n in sorted(ready, key=spans.__getitem__):
            low, high = spans[n]
            track = max((nets[other].track + 1 for other in before[n]), default=0)
            while any(
                other.track == track and spans[at][0] <= high and low <= spans[at][1]
                for at, other in enumerate(nets)
                if at != n and at not in waiting
            ):
                track += 1
            nets[n].track = track
            waiting.discard(n)
    return True


class _SketchCanvas:
    def __init__(self, width: int, height: int, ink: Ink) -> None:
        self._ink = ink
        self._cells = [[" "] * width for _ in range(height)]
        self._arms = np.zeros((height, width), np.uint8)
        self._nets = np.full((height, width), -1, np.int32)
        self.owners = np.full((height, width), -1, np.int16)
        self._number = 0

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        return tuple(map(tuple, self._cells))

    def write(self, x: int, y: int, text: str, owner: int = -1) -> None:
        """Writes text; a wide character takes two cells, a combining mark joins the character before it."""
        row = self._cells[y]
        for character in text:
            cells = width_of(character)
            if not cells:
                row[x - 1] += character
                continue
            row[x : x + cells] = [character, *[""] * (cells - 1)]
            self.owners[y, x : x + cells] = owner
            x += cells

    def through(self, x: int, y: int, width: int) -> None:
        """Draws a line that passes a layer."""
        for at in range(x, x + width):
            self._cells[y][at] = self._ink.lines[LEFT | RIGHT]

    def net(self, net: _LineNet, start: int, end: int) -> None:
        """Draws all lines from one item; ``start`` and ``end`` are the first and the last cell between the layers."""
        self._number += 1
        turn = start + 1 + net.track if net.track >= 0 else end
        self._across(start, turn, net.source.exit, (True, net.track < 0))
        low, high = net.span
        for y in range(low, high + 1) if net.track >= 0 else ():
            self._put(turn, y, (UP if y > low else 0) | (DOWN if y < high else 0))
        for item, at in net.targets:
            row = item.port(at)
            if net.track >= 0:
                self._across(turn, end, row, (False, True))
            if item.box >= 0:
                self._cells[row][end] = self._ink.arrow

    def _across(self, start: int, end: int, y: int, goes_on: tuple[bool, bool]) -> None:
        """Draws a horizontal line; ``goes_on``: it continues left of the first cell, right of the last one."""
        for x in range(start, end + 1):
            left, right = x > start or goes_on[0], x < end or goes_on[1]
            self._put(x, y, (LEFT if left else 0) | (RIGHT if right else 0))

    def _put(self, x: int, y: int, arms: int) -> None:
        mine = self._nets[y, x] in (-1, self._number)
        if mine:
            arms |= int(self._arms[y, x])
        elif not arms & (UP | DOWN):
            return  # the vertical line of another one lies on top
        self._arms[y, x], self._nets[y, x] = arms, self._number
        self._cells[y][x] = self._ink.lines[arms]
