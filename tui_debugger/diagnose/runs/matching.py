"""Pairs the nodes of two runs, for one rank and step.

Strict rules come first: the full name, the name without version-specific spelling, the weight that feeds a fused
operator, the parameter that an optimizer updates, and the inputs of a node. The rest, between paired nodes, is aligned
by operator, shapes and direction. Counters in names count least, because one missing call shifts all that follow.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from tui_debugger.arrays import Shape, Shapes
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BACKWARD,
    PARAMETER_GRADIENTS,
    gradient_of,
    is_collective,
    plain_type,
    update_of,
    without_wrappers,
)
from tui_debugger.graph.table import NodeTable, real_consumers, real_inputs
from tui_debugger.model import PARAMETERS, Category

Rows = tuple[int, ...]
RowPair = tuple[int, int]
"""A row of each run."""
ShapesOf = Callable[[int], Shapes | None]
"""Returns the shapes of a node's outputs; None where unknown."""

GRADIENTS: Final = "Gradients/"
_COUNTER = re.compile(r"(?:-op\d+|\.\d+)$")
_CALL = re.compile(r"[.#]\d+$")
_GRADIENT_SCOPE = re.compile(r"^grad(?=[A-Z])|^Grad_")
_EXPANDED = re.compile(r"-(?:expand|meta)$")
_NAMES_NOTHING: Final = frozenset(
    ("", "weight", "bias", "kernel", "gamma", "beta", "scale", "running", "mean", "var", "num", "batches", "tracked")
)
"""Words that parameters of any module end with: common words of this kind do not make two names the same parameter."""
_MOST_CELLS: Final = 400_000
"""Larger gaps (in pairs) are aligned by nodes that are unique in them."""
_MOST_VOTES: Final = 8
_MOST_BEFORE: Final = 2
"""The most operators of a chain that may run before the one that reads a weight."""


class Rule(Enum):
    """Why two nodes are taken for the same."""

    GIVEN = "given"
    NAME = "name"
    NORMALISED = "normalised name"
    FUSED = "fused operator, by its weight"
    UPDATE = "parameter that it updates"
    GRADIENT = "parameter whose gradient it is"
    SUFFIX = "end of the name"
    VALUE = "values that only these two have"
    INPUTS = "what feeds it"
    ALIGNED = "place in the order"

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def basis(self) -> str:
        """What pairs the nodes: name, order or value; names of neighbours are names as well."""
        return {Rule.ALIGNED: "order", Rule.VALUE: "value"}.get(self, "name")


@dataclass(frozen=True, slots=True)
class NameMaps:
    """The user's mapping of names.

    Attributes:
        substitutions: pattern, replacement and count (0: all), applied to names of the first run, in order.
        pairs: name in the first run, name in the second.
    """

    substitutions: tuple[tuple[re.Pattern[str], str, int], ...] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)

    def apply(self, name: str) -> str:
        for pattern, replacement, count in self.substitutions:
            name = pattern.sub(replacement, name, count=count)
        return name


def parse_substitution(text: str) -> tuple[re.Pattern[str], str, int]:
    """Parses ``s/OLD/NEW/`` or ``s/OLD/NEW/g``, with any delimiter; TdbgError where it is not of that form."""
    hint = "such as 's/^model\\.//' or 's|encoder|enc|g'"
    parts = re.split(r"(?<!\\)" + re.escape(text[1]), text) if len(text) > 3 and text[0] == "s" else []
    if len(parts) != 4 or parts[0] != "s" or parts[3] not in {"", "g"} or not parts[1]:
        raise TdbgError(f"{text!r} is no substitution", where=f"--map-name {text}", hint=hint)
    old, new = (part.replace("\\" + text[1], text[1]) for part in parts[1:3])
    try:
        pattern = re.compile(old)
        pattern.sub(new, "")
    except (re.error, IndexError) as error:
        raise TdbgError(f"{text!r} cannot be used: {error}", where=f"--map-name {text}", hint=hint) from None
    return pattern, new, 0 if parts[3] else 1


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """Two nodes that are the same.

    Attributes:
        a, b: their rows.
        doubtful: other pairs would have fitted as well.
        within_a, within_b: the other nodes of a chain that the other run executes as one fused operator.
    """

    a: int
    b: int
    rule: Rule
    doubtful: bool = False
    within_a: Rows = ()
    within_b: Rows = ()

    @property
    def rows(self) -> RowPair:
        return self.a, self.b


@dataclass(frozen=True)
class RunMatching:
    """The paired nodes of two runs, in the order of the first run; unpaired ones are in execution order."""

    matches: tuple[NodeMatch, ...]
    only_a: Rows
    only_b: Rows

    @cached_property
    def to_b(self) -> dict[int, int]:
        return {match.a: match.b for match in self.matches}

    @cached_property
    def to_a(self) -> dict[int, int]:
        return {match.b: match.a for match in self.matches}

    @property
    def partner(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """By run, the nodes of the other run by those of the run."""
        return self.to_b, self.to_a

    @property
    def only(self) -> tuple[Rows, Rows]:
        return self.only_a, self.only_b


class NodesOfRun:
    """The nodes of one run that may have partners; ``rows`` are in execution order."""

    def __init__(self, nodes: NodeTable, rows: Iterable[int], shapes: ShapesOf, maps: NameMaps | None = None) -> None:
        self.nodes = nodes
        order = nodes.order
        self.rows = sorted(rows, key=lambda row: (int(order[row]), row))
        self.place = {row: place for place, row in enumerate(self.rows)}
        self._shapes = shapes
        self._maps = maps
        self._known: dict[int, Shapes | None] = {}
        self._producers: dict[int, frozenset[int]] = {}
        self._types: dict[str, str] = {}

    def shapes(self, row: int) -> Shapes | None:
        """Returns the shapes of a node's outputs, sorted by slot; None where unknown."""
        if row not in self._known:
            self._known[row] = self._shapes(row)
        return self._known[row]

    def is_parameter(self, row: int) -> bool:
        return self._categories[row] in PARAMETERS

    @cached_property
    def _categories(self) -> list[Category]:
        return [Category(number) for number in self.nodes.category.tolist()]

    def type_of(self, row: int) -> str:
        """The operator type, spelled the same for all frameworks."""
        found = self.nodes.op_type(row)
        if found not in self._types:
            self._types[found] = plain_type(found)
        return self._types[found]

    def backward(self, row: int) -> bool:
        return self._categories[row] is Category.GRADIENT

    def name(self, row: int) -> str:
        name = self.nodes.names[row]
        return self._maps.apply(name) if self._maps is not None else name

    def parts(self, row: int) -> tuple[str, ...]:
        """The parts of the name, without call counters and version-specific spelling."""
        name = self.name(row)
        if self.is_parameter(row):
            return tuple(without_wrappers(name).replace("_", ".").split("."))
        scopes = _COUNTER.sub("", name.removeprefix(GRADIENTS)).split("/")
        return tuple(_EXPANDED.sub("", _GRADIENT_SCOPE.sub("Grad_", scope)) for scope in scopes)

    def called(self, row: int) -> Hashable:
        """The name without call counters, with the direction."""
        return self.kind(row), _CALL.sub("", self.name(row))

    def calls_around(self, row: int) -> Counter[Hashable]:
        """Counts the calls in the scope of an operator, by name."""
        return self._calls[self.name(row).rpartition("/")[0]]

    @cached_property
    def _calls(self) -> Mapping[str, Counter[Hashable]]:
        found: dict[str, Counter[Hashable]] = defaultdict(Counter)
        for row in self.rows:
            found[self.name(row).rpartition("/")[0]][self.called(row)] += 1
        return found

    def kind(self, row: int) -> tuple[bool, bool]:
        return self.is_parameter(row), self.backward(row)

    def producers(self, row: int) -> frozenset[int]:
        """The known nodes that feed a node, without constants."""
        found = self._producers.get(row)
        if found is None:
            category = self.nodes.category_of
            producers = {made for made, _ in real_inputs(self.nodes, row) if made >= 0}
            found = self._producers[row] = frozenset(
                each for each in producers if category(each) is not Category.CONSTANT
            )
        return found

    def weights(self, row: int) -> frozenset[int]:
        return frozenset(each for each in self.producers(row) if self.is_parameter(each))

    def consumers(self, row: int) -> list[int]:
        return sorted({node for node, _ in real_consumers(self.nodes, row) if node in self.place})


def match_nodes(a: NodesOfRun, b: NodesOfRun, maps: NameMaps | None = None, *, ranks: int = 1) -> RunMatching:
    """Pairs the nodes of two runs.

    Shapes of partners may differ if several ``ranks`` of one run share the tensors of one rank of the other.
    """
    return _Matcher(a, b, maps or NameMaps(), ranks).run()


class _Matcher:
    def __init__(self, a: NodesOfRun, b: NodesOfRun, maps: NameMaps, ranks: int) -> None:
        self.a, self.b, self.maps, self.ranks = a, b, maps, ranks
        self.found: dict[int, NodeMatch] = {}
        self.sides = a, b
        self.to_b: dict[int, int] = {}
        self.to_a: dict[int, int] = {}
        self.partner = self.to_b, self.to_a
        self.within: tuple[set[int], set[int]] = set(), set()
        self.graphs = _matching_graphs(a, b)

    def run(self) -> RunMatching:
        self._take_given()
        self._by_key(Rule.NAME, lambda side, row: (side.kind(row), side.name(row)), parameters=True)
        self._by_key(Rule.NORMALISED, _full_key, parameters=True)
        self._by_suffix(parameters=True)
        self._take_fused()
        self._by_key(Rule.NAME, _counted_key)
        self._by_key(Rule.NORMALISED, _full_key)
        self._by_key(Rule.NORMALISED, _shaped_key)
        self._take_updates()
        self._take_gradients()
        self._by_suffix()
        self._by_inputs()
        self._align()
        self._by_inputs()
        matches = sorted(self.found.values(), key=lambda match: self.a.place[match.a])
        return RunMatching(tuple(matches), tuple(self._left(0)), tuple(self._left(1)))

    # -- the book ----------------------------------------------------------------------------------

    def _left(self, side: int) -> list[int]:
        partner, within = self.partner[side], self.within[side]
        return [row for row in self.sides[side].rows if row not in partner and row not in within]

    def _left_of(self, side: int, *, parameters: bool) -> list[int]:
        is_parameter = self.sides[side].is_parameter
        return [row for row in self._left(side) if is_parameter(row) == parameters]

    def _add(self, match: NodeMatch) -> None:
        self.found[match.a] = match
        self.to_b[match.a], self.to_a[match.b] = match.b, match.a
        self.within[0].update(match.within_a)
        self.within[1].update(match.within_b)

    def _contradict(self, a: int, b: int) -> bool:
        """Tells whether different nodes feed the two, as far as known."""
        producers, other = self._partners(0, self.a.producers(a)), self.b.producers(b) & self.to_a.keys()
        weights, others = self._partners(0, self.a.weights(a)), self.b.weights(b) & self.to_a.keys()
        if weights and others:
            return not weights & others
        return bool(producers and other and not producers & other)

    def _agree(self, a: int, b: int) -> bool:
        return not self._partners(0, self.a.producers(a)).isdisjoint(self.b.producers(b))

    def _partners(self, side: int, rows: Iterable[int]) -> set[int]:
        partner = self.partner[side]
        return {partner[each] for each in rows if each in partner}

    def _may_be_other_calls(self, a: int, b: int) -> bool:
        """Tells whether two operators of one name do not fit, in a scope in which the runs call other operators.

        Then the counter in a name (``Transpose#2``) does not tell which calls are the same. Two operators do not fit
        where their shapes differ; or, where the runs call them different numbers of times, where paired nodes feed only
        one of the two.
        """
        calls = self.a.calls_around(a), self.b.calls_around(b)
        if calls[0] == calls[1] or self._agree(a, b):
            return False
        fed = {bool(self.a.producers(a) & self.to_b.keys()), bool(self.b.producers(b) & self.to_a.keys())}
        several = calls[0][self.a.called(a)] != calls[1][self.b.called(b)]
        return (several and len(fed) > 1) or not self._same_shapes(a, b)

    def _same_shapes(self, a: int, b: int) -> bool:
        one, other = self.a.shapes(a), self.b.shapes(b)
        if one is None or other is None or one == other:
            return True
        return self.ranks > 1 and len(one) == len(other) and all(map(_may_be_part, one, other))

    # -- rules -------------------------------------------------------------------------------------

    def _take_given(self) -> None:
        for one, other in self.maps.pairs.items():
            a, b = self.a.nodes.find(one), self.b.nodes.find(other)
            if a in self.a.place and b in self.b.place:
                self._add(NodeMatch(a, b, Rule.GIVEN))

    def _by_key(
        self, rule: Rule, key: Callable[[NodesOfRun, int], Hashable | None], *, parameters: bool = False
    ) -> None:
        """Pairs the nodes of one key in order, if both runs have as many and nothing contradicts."""
        of_b = _grouped(self.b, self._left_of(1, parameters=parameters), key)
        of_a = _grouped(self.a, self._left_of(0, parameters=parameters), key, self.graphs)
        for each, rows in of_a.items():
            others = of_b.get(each, [])
            pairs = list(zip(rows, others, strict=False))
            if len(rows) != len(others) or any(self._contradict(*pair) for pair in pairs):
                continue
            if len(rows) > 1 and not all(self._same_shapes(*pair) for pair in pairs):
                continue
            if not parameters and any(self._may_be_other_calls(*pair) for pair in pairs):
                continue
            for a, b in pairs:
                self._add(NodeMatch(a, b, rule))

    def _by_suffix(self, *, parameters: bool = False) -> None:
        """Pairs nodes whose names differ in a prefix, such as a wrapper around the model or another scope."""
        left_a, left_b = self._left_of(0, parameters=parameters), self._left_of(1, parameters=parameters)
        for old, new in _prefix_changes(self.a, left_a, self.b, left_b, parameters=parameters):

            def key(side: NodesOfRun, row: int, old: tuple[str, ...] = old, new: tuple[str, ...] = new) -> Hashable:
                parts = side.parts(row)
                if side is self.a:
                    if parts[: len(old)] != old:
                        return None
                    parts = (*new, *parts[len(old) :])
                return side.kind(row), parts, side.type_of(row)

            self._by_key(Rule.SUFFIX, key, parameters=parameters)

    def _take_fused(self) -> None:
        """Pairs an operator that one run fuses with the last operator of the chain in the other run."""
        for side in (0, 1):
            for row in self._left(side):
                if not (chain := self._chain(side, row)):
                    continue
                *within, last = chain
                if side == 0:
                    self._add(NodeMatch(row, last, Rule.FUSED, within_b=tuple(within)))
                else:
                    self._add(NodeMatch(last, row, Rule.FUSED, within_a=tuple(within)))

    def _chain(self, side: int, row: int) -> Rows:
        own, other, partner = self.sides[side], self.sides[1 - side], self.partner[side]
        name = own.type_of(row).removesuffix("fusion").removeprefix("fused")
        if name == own.type_of(row):
            return ()
        for weight in sorted(own.weights(row)):
            readers = other.consumers(partner[weight]) if weight in partner else []
            for start in dict.fromkeys([*readers, *_made_before(other, readers)]):
                chain = _chain_of(other, start, name, self.partner[1 - side])
                if not set(readers).isdisjoint(chain) and self._last_fits(own, row, other, chain[-1]):
                    return chain
        return ()

    def _last_fits(self, own: NodesOfRun, row: int, other: NodesOfRun, last: int) -> bool:
        one, two = own.shapes(row), other.shapes(last)
        return own.backward(row) == other.backward(last) and (self.ranks > 1 or None in (one, two) or one == two)

    def _take_updates(self) -> None:
        by_weight = {weight: row for row in self._left(1) if (weight := _updated(self.b, row)) is not None}
        for row in self._left(0):
            weight = _updated(self.a, row)
            other = by_weight.get(self.to_b[weight]) if weight is not None and weight in self.to_b else None
            if other is not None and other not in self.to_a:
                self._add(NodeMatch(row, other, Rule.UPDATE))

    def _take_gradients(self) -> None:
        found = [row for row in self.to_b if self.a.is_parameter(row)]
        for row in found:
            names = self.a.nodes.names[row], self.b.nodes.names[self.to_b[row]]
            a, b = self.a.nodes.find(gradient_of(names[0])), self.b.nodes.find(gradient_of(names[1]))
            if a in self.a.place and b in self.b.place and a not in self.to_b and b not in self.to_a:
                self._add(NodeMatch(a, b, Rule.GRADIENT))

    def _by_inputs(self) -> None:
        """Pairs nodes of one type and shape that paired nodes feed, where only one fits."""
        changed = True
        while changed:
            changed = False
            for row in self._left(0):
                fits = [each for each in self._fed_alike(0, row) or () if self._alike(row, each)]
                if len(fits) != 1:
                    continue
                rivals = self._fed_alike(1, fits[0])
                if sum(self._alike(each, fits[0]) for each in ({row} if rivals is None else rivals)) == 1:
                    self._add(NodeMatch(row, fits[0], Rule.INPUTS))
                    changed = True

    def _fed_alike(self, side: int, row: int) -> set[int] | None:
        """The unpaired nodes of the other run that read from the partners of all paired producers; None without any."""
        other, taken = self.sides[1 - side], self.partner[1 - side]
        read = [set(other.consumers(each)) for each in self._partners(side, self.sides[side].producers(row))]
        return set.intersection(*read) - taken.keys() - self.within[1 - side] if read else None

    def _alike(self, a: int, b: int) -> bool:
        return (
            self.a.kind(a) == self.b.kind(b)
            and self.a.type_of(a) == self.b.type_of(b)
            and self._same_shapes(a, b)
            and not self._contradict(a, b)
        )

    # -- what is left between agreed nodes ---------------------------------------------------------

    def _align(self) -> None:
        left_a, left_b = self._left(0), self._left(1)
        for rows, others in _gaps(self, left_a, left_b):
            if not rows or not others:
                continue
            for a, b in self._aligned(rows, others):
                self._add(NodeMatch(a, b, Rule.ALIGNED, doubtful=self._is_doubtful(a, b, rows, others)))

    def _aligned(self, rows: Sequence[int], others: Sequence[int]) -> list[RowPair]:
        if len(rows) * len(others) > _MOST_CELLS:
            return self._by_what_is_unique(rows, others)
        names = {row: self.b.parts(row) for row in others}
        best = [[0] * (len(others) + 1) for _ in range(len(rows) + 1)]
        scores: dict[tuple[int, int], int] = {}
        for i, a in enumerate(rows, 1):
            parts, above, line = self.a.parts(a), best[i - 1], best[i]
            for j, b in enumerate(others, 1):
                value = max(above[j], line[j - 1])
                score = self._score(a, b, same_name=parts == names[b])
                if score:
                    scores[i, j] = score
                    value = max(value, above[j - 1] + score)
                line[j] = value
        return _traced(rows, others, best, scores)

    def _by_what_is_unique(self, rows: Sequence[int], others: Sequence[int]) -> list[RowPair]:
        def key(side: NodesOfRun, row: int) -> Hashable:
            return side.kind(row), side.type_of(row), side.shapes(row)

        of_a, of_b = _grouped(self.a, rows, key), _grouped(self.b, others, key)
        single = [
            (found[0], of_b[each][0]) for each, found in of_a.items() if len(found) == len(of_b.get(each, ())) == 1
        ]
        return _rising([pair for pair in single if self._alike(*pair)], self.b.place)

    def _score(self, a: int, b: int, *, same_name: bool) -> int:
        """Returns how well two nodes fit; 0 where they cannot be the same."""
        if not self._alike(a, b):
            return 0
        stacks = self.a.nodes.stack(a), self.b.nodes.stack(b)
        same_stack = bool(stacks[0]) and [each.code for each in stacks[0]] == [each.code for each in stacks[1]]
        return 8 + 6 * self._agree(a, b) + 2 * same_name + 2 * same_stack

    def _is_doubtful(self, a: int, b: int, rows: Sequence[int], others: Sequence[int]) -> bool:
        """Tells whether other nodes of the gap would have fitted as well, because one run has more of them."""
        if self._agree(a, b):
            return False
        fits = sum(1 for each in others if self._alike(a, each)), sum(1 for each in rows if self._alike(each, b))
        return fits[0] != fits[1] and max(fits) > 1


def _may_be_part(one: Shape, other: Shape) -> bool:
    """Tells whether tensors of two shapes may be a whole and a part of it."""
    if len(one) != len(other):
        return 1 in {len(one), len(other)}
    pairs = [(max(pair), min(pair)) for pair in zip(one, other, strict=True)]
    return sum(large != small for large, small in pairs) <= 2


def _full_key(side: NodesOfRun, row: int) -> Hashable:
    return side.kind(row), side.parts(row), "" if side.is_parameter(row) else side.type_of(row)


def _counted_key(side: NodesOfRun, row: int) -> Hashable:
    """The name without its counter: all calls of a name are paired together, or none."""
    return side.kind(row), _COUNTER.sub("", side.name(row)), side.type_of(row)


def _shaped_key(side: NodesOfRun, row: int) -> Hashable:
    shapes = side.shapes(row)
    return None if shapes is None else (_full_key(side, row), tuple(sorted(shapes)))


def _grouped(
    side: NodesOfRun,
    rows: Iterable[int],
    key: Callable[[NodesOfRun, int], Hashable | None],
    graphs: Mapping[int, int] | None = None,
) -> dict[Hashable, list[int]]:
    """Rows by graph and key; with ``graphs``, by the matching graph of the second run."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for row in rows:
        of = key(side, row)
        graph = int(side.nodes.graph[row])
        if of is not None:
            groups[graph if graphs is None else graphs.get(graph, -1 - graph), of].append(row)
    return groups


def _matching_graphs(a: NodesOfRun, b: NodesOfRun) -> dict[int, int]:
    """Returns the graph of the second run for each graph of the first: the one with most names in common."""
    keys: list[dict[int, set[Hashable]]] = []
    for side in (a, b):
        of_graph: dict[int, set[Hashable]] = {graph: set() for graph in range(len(side.nodes.graphs))}
        if len(a.nodes.graphs) + len(b.nodes.graphs) > 2:
            for row in side.rows:
                of_graph[int(side.nodes.graph[row])].add(_full_key(side, row))
        keys.append(of_graph)
    pairs = sorted(
        ((-len(one & other), abs(i - j), i, j) for i, one in keys[0].items() for j, other in keys[1].items()),
    )
    found: dict[int, int] = {}
    for _, _, i, j in pairs:
        if i not in found and j not in found.values():
            found[i] = j
    return found


def _prefix_changes(
    a: NodesOfRun, left_a: Sequence[int], b: NodesOfRun, left_b: Sequence[int], *, parameters: bool
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Returns the pairs of prefixes before equal ends of names, most frequent first.

    The common end of parameters' names has to name a module, unless it is the whole name in one of the runs.
    """
    ends: dict[Hashable, list[tuple[str, ...]]] = defaultdict(list)
    for row in left_b:
        parts = b.parts(row)
        for start in range(len(parts)):
            ends[b.kind(row), parts[start:]].append(parts)
    votes: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    for row in left_a:
        parts = a.parts(row)
        for start in range(len(parts)):
            found = dict.fromkeys(ends.get((a.kind(row), parts[start:]), ()))
            if found:
                of_module = not parameters or not start or any(map(names_module, parts[start:]))
                for other in found if len(found) <= _MOST_VOTES else ():
                    before = other[: len(other) - len(parts) + start]
                    if of_module or not before:
                        votes[parts[:start], before] += 1
                break
    rows = len(left_a) + len(left_b)
    most = max(_MOST_VOTES, _MOST_CELLS // max(rows, 1)) if parameters else _MOST_VOTES  # each layer may have its own
    return [change for change, _ in votes.most_common(most)]


def names_module(word: str) -> bool:
    """Tells whether a word of a name tells one module from others."""
    return not word.isdigit() and word not in _NAMES_NOTHING


def renamed_scope(one: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what precedes the equal end of two names, given in parts."""
    same = 0
    while same < min(len(one), len(other)) and one[-1 - same] == other[-1 - same]:
        same += 1
    return tuple(one[: len(one) - same]), tuple(other[: len(other) - same])


def _made_before(side: NodesOfRun, rows: Iterable[int]) -> list[int]:
    """The operators up to ``_MOST_BEFORE`` levels before the given rows: a chain may begin before a weight is read."""
    found: list[int] = []
    level = list(rows)
    for _ in range(_MOST_BEFORE):
        level = [
            each
            for row in level
            for each in sorted(side.producers(row))
            if each in side.place and not side.is_parameter(each)
        ]
        found += level
    return found


def _chain_of(side: NodesOfRun, start: int, name: str, taken: Mapping[int, int]) -> Rows:
    """The nodes from ``start`` on whose types, joined, spell the name of a fused operator; empty without one."""
    chain, spelled, row = [], "", start
    while row not in taken:
        spelled += side.type_of(row)
        chain.append(row)
        if spelled == name:
            return tuple(chain)
        after = [each for each in side.consumers(row) if not side.backward(each)]
        following = [each for each in after if name.startswith(spelled + side.type_of(each))]
        if not name.startswith(spelled) or len(following) != 1:
            break
        row = following[0]
    return ()


def _updated(side: NodesOfRun, row: int) -> int | None:
    """The parameter that an optimizer's update operator writes; None for other nodes."""
    update = update_of(side.nodes.op_type(row))
    if update is None or update.stride or side.is_parameter(row):
        return None
    inputs = real_inputs(side.nodes, row)
    return inputs[update.weight][0] if update.weight < len(inputs) and inputs[update.weight][0] >= 0 else None


def _gaps(matcher: _Matcher, left_a: Sequence[int], left_b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the unpaired nodes of both runs between paired nodes that have the same order in both."""
    a, b = matcher.a, matcher.b
    agreed = [(row, matcher.to_b[row]) for row in a.rows if row in matcher.to_b and not a.is_parameter(row)]
    anchors = _rising(agreed, b.place)
    ends_a, ends_b = [a.place[one] for one, _ in anchors], [b.place[other] for _, other in anchors]
    of_a, of_b = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for row in left_a:
        if not a.is_parameter(row):
            of_a[bisect_left(ends_a, a.place[row])].append(row)
    for row in left_b:
        if not b.is_parameter(row):
            of_b[bisect_left(ends_b, b.place[row])].append(row)
    for gap in sorted(of_a.keys() & of_b.keys()):
        yield of_a[gap], of_b[gap]


def _rising(pairs: Sequence[RowPair], place: Mapping[int, int]) -> list[RowPair]:
    """The longest subsequence of pairs, in the order of the first run, that is in the order of the second as well."""
    tails: list[int] = []
    last: list[int] = []
    before = [-1] * len(pairs)
    for number, (_, b) in enumerate(pairs):
        length = bisect_right(tails, place[b])
        before[number] = last[length - 1] if length else -1
        if length == len(tails):
            tails.append(place[b])
            last.append(number)
        else:
            tails[length], last[length] = place[b], number
    found, number = [], last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _traced(
    rows: Sequence[int],
    others: Sequence[int],
    best: Sequence[Sequence[int]],
    scores: Mapping[tuple[int, int], int],
) -> list[RowPair]:
    """The pairs of the best alignment; of equal alignments, one that leaves out the last nodes."""
    found = []
    i, j = len(rows), len(others)
    while i and j:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            if (i, j) in scores:
                found.append((rows[i - 1], others[j - 1]))
            i, j = i - 1, j - 1
    return found[::-1]


def containers(side: NodesOfRun, is_operator: Callable[[int], bool] = lambda _: False) -> dict[int, list[int]]:
    """Returns the modules that other calls run inside of, with those calls.

    Parameters of inner calls are not among the recorded inputs of a module: its inputs may agree and its outputs differ
    without a fault. A module may also be a row in its own scope, named after its class, as operators are named after
    their type. It ends after all inner calls, while an operator may run anywhere. ``is_operator`` tells which rows are
    known to be operators.
    """
    of_scope: dict[str, list[int]] = defaultdict(list)
    operators = [row for row in side.rows if not side.is_parameter(row)]
    gradients = {row for row in operators if side.nodes.op_type(row) in PARAMETER_GRADIENTS}
    for row in operators:
        scope = side.nodes.paths[row].rpartition("/")[0]
        while scope:
            of_scope[scope].append(row)
            scope = scope.rpartition("/")[0]
    found: dict[int, list[int]] = {}
    for row in operators:
        if is_collective(side.nodes.op_type(row)):
            continue  # what a rank puts into it may have its name in front
        path = side.nodes.paths[row]
        inner = of_scope.get(path, [])
        scope = path.rpartition("/")[0]
        if scope and row not in gradients and _has_name_of_type(side, row):
            others = [each for each in of_scope[scope] if each != row and each not in gradients]
            if others and _is_outermost(side, row, others) and not is_operator(row):
                inner = [*inner, *others]
        if inner:
            found[row] = inner
    return found


def _has_name_of_type(side: NodesOfRun, row: int) -> bool:
    leaf = side.nodes.names[row].rpartition("/")[2]
    return _CALL.sub("", leaf) == side.nodes.op_type(row).removesuffix(BACKWARD)


def _is_outermost(side: NodesOfRun, row: int, others: Iterable[int]) -> bool:
    """Tells whether a row, or a call of its module, runs after all others (backward also: before them)."""
    if side.nodes.order[row] < 0:
        return True
    kind, scope = side.nodes.op_type(row), side.nodes.paths[row].rpartition("/")[0]
    calls = [side.place[row]]
    inside: list[int] = []
    for each in others:
        same = side.nodes.op_type(each) == kind and side.nodes.paths[each].rpartition("/")[0] == scope
        (calls if same else inside).append(side.place[each])
    return not inside or max(calls) > max(inside) or (side.backward(row) and min(calls) < min(inside))
