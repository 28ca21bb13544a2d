"""Puts parts of one tensor on several ranks together, before they are compared with the other run's whole.

The shapes allow some layouts (see ``layouts``); values prove one of them. A layout is proven where its whole is near
the other run's and no other layout's is. A proven layout is believed for other tensors of the same shapes, where values
differ too much to tell. Where nothing is proven the tensor is not compared, which is a doubt.

Where both runs have several ranks, the layouts of both that make wholes of one shape are compared with each other.
Recorded dimensions and places of ranks are used before anything is tried.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.diagnose.runs.distance import Distance, Tolerance, Types, distance, not_compared
from tui_debugger.diagnose.runs.layouts import (
    GivenDims,
    PartRelation,
    Parts,
    PartsLayout,
    RecordedParts,
    TensorKind,
    fits,
    possible_layouts,
    possible_shapes,
    put_together_as_recorded,
    wholes_of,
)
from tui_debugger.stats.dtypes import name_of

NEAR: Final = 0.02
"""A layout is proven at this distance of its whole; wrong layouts have distances near 1."""
_CLEARER: Final = 0.2
"""Or where all other layouts are five times as far."""
_ROUNDING: Final = 1e-3
"""A less likely layout is taken where its distance is this part of the likely layout's."""
_MOST: Final = 1 << 22
"""For larger wholes, no more layouts are tried once one fits."""
_SAMPLED: Final = 2048
"""The number of elements by which layouts of both runs are first compared."""
_MOST_PAIRS: Final = 12
"""The most pairs of layouts that are compared in full."""
_MOST_AXES: Final = 3
"""The most axes of ranks whose orders are tried."""


_Sides = tuple[Parts, Parts]
_WholesOfBoth = tuple[list[Array], list[Array]]


class Joiner:
    """Compares wholes with parts, and remembers proven layouts; ``counts`` are joined tensors by word."""

    def __init__(self, dims: GivenDims, tolerance: Tolerance | None = None) -> None:
        self._dims, self._tolerance = dims, tolerance
        self.counts: Counter[str] = Counter()
        self._proven: Counter[tuple[Any, PartsLayout]] = Counter()
        self._of_tensor: dict[tuple[str, Any], PartsLayout] = {}
        self._proven_both: Counter[tuple[Any, _ShardOption]] = Counter()
        self._of_both_sides: dict[tuple[str, Any], _ShardOption] = {}
        self._alike: set[tuple[str, Any]] = set()

    def compare(
        self,
        sides: tuple[Sequence[Array], Sequence[Array]],
        tensor: str,
        node: str,
        *,
        backward: bool,
        weight: bool = False,
        recorded: tuple[RecordedParts, RecordedParts] = (RecordedParts(), RecordedParts()),
    ) -> Distance:
        """Compares the parts that ranks of both runs have of one tensor; ``sides`` are arrays by rank.

        A ``tensor`` (its name) keeps its layout at all steps; the user may give layouts for a ``node``. A ``weight``
        has copies or slices on ranks, never terms.
        """
        if all(len(each) == 1 for each in sides):
            return distance(sides[0][0], sides[1][0], tolerance=self._tolerance)
        both = name_of(sides[0][0].dtype), name_of(sides[1][0].dtype)
        shapes = tuple(each[0].shape for each in sides)
        if any(len({str(part.dtype) for part in parts}) > 1 for parts in sides):
            return not_compared("parts of one tensor have other types", shapes, both)
        given = self._dims.of(node)
        made = [
            put_together_as_recorded(own, facts) if given is None else None
            for own, facts in zip(sides, recorded, strict=True)
        ]
        parts = [Parts.of_ranks(own) if put is None else put for own, put in zip(sides, made, strict=True)]
        if not any(made):
            for each, facts in zip(parts, recorded, strict=True):
                each.places = facts.places
        of = TensorKind(backward, weight)
        if all(len(each.arrays) == 1 for each in parts):
            found = self._apart(parts[0].arrays[0], parts[1].arrays[0], both)
        elif 1 in (len(parts[0].arrays), len(parts[1].arrays)):
            found = self._with_whole((parts[0], parts[1]), tensor, given, both, of)
        else:
            found = self._of_both((parts[0], parts[1]), tensor, given, both, of)
        texts = [
            f"{len(own)} ranks{f' of {name}' if len(sides[0]) > 1 < len(sides[1]) else ''}, {each.how}"
            for name, own, each in zip("AB", sides, parts, strict=True)
            if each.how
        ]
        if not found.compared:
            return replace(found, shapes=shapes)
        for each in parts:
            if each.word:
                self.counts[each.word] += 1
        told = bool(texts) and all(each.replicas or len(each.arrays) == 1 for each in parts)
        joined = "; ".join([*texts, *([found.joined] if found.joined and not told else [])])
        return replace(found, joined=joined, shapes=shapes)

    def _with_whole(
        self,
        sides: _Sides,
        tensor: str,
        given: PartsLayout | None,
        both: Types,
        of: TensorKind,
    ) -> Distance:
        """Compares one array with several parts of the other run."""
        many = 0 if len(sides[0].arrays) > 1 else 1
        whole, parts = sides[1 - many].arrays[0], sides[many].arrays
        known = whole.shape, tuple(part.shape for part in parts)
        given = PartsLayout() if given is None and sides[many].replicas else given
        layouts = [given] if given is not None else list(possible_layouts(*known, of))
        made = {layout: wholes for layout in layouts if (wholes := wholes_of(layout, parts, whole.shape)) is not None}
        if not made:
            why = "given with --dims, does not fit" if given is not None else "that fits"
            return not_compared(f"of parts of {len(parts)} ranks no layout {why}", (), both)
        layout = given or self._best(whole, made, (tensor, known), of)
        if layout is None:
            why = f"how the parts of {len(parts)} ranks make the whole is not proven (--dims may say it)"
            return not_compared(why, (), both)
        self.counts[layout.word] += 1
        found = [
            self._apart(each, whole, both) if many == 0 else self._apart(whole, each, both) for each in made[layout]
        ]
        worst = max(range(len(found)), key=lambda at: found[at].relative)
        result = _of_terms(found[worst], layout, parts)
        made_of = ([whole], made[layout]) if many else (made[layout], [whole])
        option = _ShardOption.in_order(whole.shape, (PartsLayout(), layout) if many else (layout, PartsLayout()), sides)
        return replace(self._with_unlike(result, option, sides, made_of, both), joined=layout.text(len(parts)))

    def _of_both(
        self,
        sides: _Sides,
        tensor: str,
        given: PartsLayout | None,
        both: Types,
        of: TensorKind,
    ) -> Distance:
        """Compares parts with parts, where no rank of either run has the whole."""
        key = (tensor, tuple(tuple(part.shape for part in side.arrays) for side in sides))
        counts = tuple(len(side.arrays) for side in sides)
        options = list(_options(sides, given, of))
        if not options:
            why = "given with --dims, fits both" if given is not None else "fits both"
            return not_compared(f"no layout of parts of {counts[0]} and of {counts[1]} ranks {why}", (), both)
        certain = given is not None or all(side.replicas for side in sides)
        found = self._best_of_both(sides, options, key, of, certain=certain)
        if found is None:
            why = f"how the parts of {counts[0]} ranks and of {counts[1]} make one whole is not proven"
            return not_compared(f"{why} (--dims may say it)", (), both)
        option, wholes = found
        self.counts[option.words] += 1
        pairs = [(0, at) for at in range(len(wholes[1]))] + [(at, 0) for at in range(1, len(wholes[0]))]
        apart = [self._apart(wholes[0][one], wholes[1][other], both) for one, other in pairs]
        worst = max(range(len(apart)), key=lambda at: apart[at].relative)
        result = apart[worst]
        for layout, side in zip(option.layouts, sides, strict=True):
            result = _of_terms(result, layout, side.arrays)
        result = self._with_unlike(result, option, sides, wholes, both)
        texts = (layout.text(count) for layout, count in zip(option.layouts, counts, strict=True))
        joined = "; ".join(
            text.replace(" ranks", f" ranks of {name}", 1) for text, name in zip(texts, "AB", strict=True)
        )
        return replace(result, joined=joined)

    def _best_of_both(
        self,
        sides: _Sides,
        options: Sequence[_ShardOption],
        key: tuple[str, Any],
        of: TensorKind,
        *,
        certain: bool,
    ) -> tuple[_ShardOption, _WholesOfBoth] | None:
        """Returns the proven or believed layouts with their wholes; None where unknown."""
        made = _Wholes(sides)
        believed = [option for option in options if self._proven_both[key[1], option]]
        found = self._known_of_both(sides, options, key, made, believed)
        if found is not None:
            return found
        near = made.nearest(options)
        if certain and near:
            return near[0][1], near[0][2]
        near = [each for each in near if not made.prove_nothing(each[1])]
        scores = {option: far for far, option, _ in near}
        good = [option for option in options if scores.get(option, math.inf) <= NEAR]
        if not any(option.copies for option in good) and (copies := made.copies(options, of)) is not None:
            terms = min((scores[option] for option in good), default=math.inf)
            if not good or not _are_clearer(terms, *copies[1]):
                return copies
        if good:
            best, nearest = good[0], min(good, key=lambda each: scores[each])
            if scores[nearest] <= _ROUNDING * scores[best]:
                best = nearest  # as for one whole: the likely one with an error, not one that halves it
            self._proven_both[key[1], best] += 1
            if len(good) == 1 or scores[best] <= _ROUNDING**2:
                self._keep(key, best, sides)
            return best, next(wholes for _, option, wholes in near if option == best)
        replicas = next((option for option in options if option.layouts == (PartsLayout(), PartsLayout())), None)
        wholes = made.of(replicas) if replicas is not None else None
        if replicas is not None and wholes is not None and (key in self._alike or all(map(_are_alike, wholes))):
            return replicas, wholes
        cuts = [option for option in believed if not option.both_terms and any(each.cut for each in option.layouts)]
        wholes = made.of(cuts[0]) if len(cuts) == 1 else None
        return (cuts[0], wholes) if wholes is not None else None

    def _known_of_both(
        self,
        sides: _Sides,
        options: Sequence[_ShardOption],
        key: tuple[str, Any],
        made: _Wholes,
        believed: Sequence[_ShardOption],
    ) -> tuple[_ShardOption, _WholesOfBoth] | None:
        """Returns layouts that were proven at an earlier step, or for other tensors if they fit exactly."""
        known = self._of_both_sides.get(key)
        if known is not None and known in options and (wholes := made.of(known)) is not None:
            return known, wholes  # another order at a later step is a difference, not another layout
        for option in believed:
            wholes = made.of(option)
            if wholes is not None and _far_apart(*wholes) <= _ROUNDING**2 and not made.prove_nothing(option):
                self._keep(key, option, sides)
                return option, wholes
        return None

    def _keep(self, key: tuple[str, Any], option: _ShardOption, sides: _Sides) -> None:
        """Remembers the layouts of a tensor for later steps, if its values exclude other layouts."""
        if option.tells(sides):
            self._of_both_sides[key] = option
        elif option.layouts == (PartsLayout(), PartsLayout()) and _tells(sides[0].arrays[0]):
            self._alike.add(key)

    def _apart(self, one: Array, other: Array, types: Types) -> Distance:
        return distance(one, other, types, self._tolerance)

    def _with_unlike(
        self,
        found: Distance,
        option: _ShardOption,
        sides: _Sides,
        wholes: _WholesOfBoth,
        types: Types,
    ) -> Distance:
        """Adds to a distance which rank it comes from, where ranks have copies of a tensor or of its slices."""
        if found.equal or not option.copies or any(layout.flat for layout in option.layouts):
            return found
        spread = [max((self._apart(own[0], each, types).relative for each in own[1:]), default=0.0) for own in wholes]
        side = 0 if spread[0] > spread[1] else 1
        far = [self._apart(each, wholes[1 - side][0], types).relative for each in wholes[side]]
        copies = [
            of.positions(option.layouts[number], option.orders[number], option.shape) for number, of in enumerate(sides)
        ]
        odd, like = copies[side][far.index(max(far))], copies[side][far.index(min(far))]
        unlike = -1, -1
        if spread[side]:
            parts = sides[side].parts
            apart = [
                self._apart(parts[one], parts[other], types).relative for one, other in zip(odd, like, strict=True)
            ]
            unlike = side, odd[apart.index(max(apart))]
        if any(len(own[0]) > 1 for own in copies):
            return replace(found, unlike=unlike)
        both = (odd[0], copies[1][0][0]) if side == 0 else (copies[0][0][0], odd[0])
        return replace(found, unlike=unlike, replicas=both)

    def _best(
        self, whole: Array, made: dict[PartsLayout, list[Array]], key: tuple[str, Any], of: TensorKind
    ) -> PartsLayout | None:
        """Returns the proven or believed layout; None where unknown."""
        if not whole.size:
            return next(iter(made))
        if key in self._of_tensor and self._of_tensor[key] in made:
            return self._of_tensor[key]  # another order at a later step is a difference, not another layout
        scores: dict[PartsLayout, float] = {}
        for layout in sorted(made, key=lambda each: -self._proven[key[1], each]):
            scores[layout] = max(_far(whole, each) for each in made[layout])
            if scores[layout] <= NEAR and whole.size > _MOST:
                break
        order = sorted(scores, key=lambda each: scores[each])
        near = [layout for layout in made if scores.get(layout, math.inf) <= NEAR]
        copies = [layout for layout in made if not layout.terms]
        if not any(layout in near for layout in copies):
            terms = min((scores[layout] for layout in near), default=math.inf)
            if not _are_clearer(terms, [whole], [each for layout in copies for each in made[layout]]):
                some = next((layout for layout in copies if _agree([whole], made[layout], of)), None)
                if some is not None or near:
                    return some  # none: one term is the whole, the others are nothing, or they are copies and wrong
        clear = len(order) > 1 and scores[order[0]] < _CLEARER * scores[order[1]]
        if not near and not clear:
            return self._most_plausible(made, key)
        best = order[0]
        if near and scores[best] > _ROUNDING * scores[near[0]]:
            best = near[0]  # the likely one with an error, not one that halves it: a mean is near replicas
        self._proven[key[1], best] += 1
        if len(near) == 1 or (clear and best is order[0]):
            self._of_tensor[key] = best
        if best == PartsLayout() and _tells(whole):
            self._alike.add(key)
        return best

    def _most_plausible(self, made: dict[PartsLayout, list[Array]], key: tuple[str, Any]) -> PartsLayout | None:
        """Returns a layout by other tensors, for a tensor that is far from the whole in all layouts."""
        replicas = made.get(PartsLayout(), ())
        if replicas and (key in self._alike or _are_alike(replicas)):
            return PartsLayout()
        if len(made) == 1 and self._of_ranks(next(iter(made))):
            return next(iter(made))
        cuts = [layout for layout in made if layout.axes or layout.flat]  # shapes do not tell replicas from terms
        proven = [layout for layout in cuts if self._proven[key[1], layout]]
        return proven[0] if len(proven) == 1 else None

    def _of_ranks(self, layout: PartsLayout) -> bool:
        """Tells whether all tensors proven so far are put together in the order of ranks, and some are."""
        plain = {each for (_, each), _ in self._proven.items() if each.axes}
        return layout.axes != () and bool(plain) and all(not each.zigzag and each.groups == 1 for each in plain)


def _are_alike(arrays: Sequence[Array]) -> bool:
    return all(_far(arrays[0], each) <= NEAR for each in arrays[1:])


def _agree(ones: Sequence[Array], others: Sequence[Array], of: TensorKind) -> bool:
    """Tells whether ranks of one side have copies, and most ranks of the other side (for a weight, any) have the same.

    Then the other side has copies as well, some of them wrong. One of two ranks proves nothing where ranks have shares
    of a batch.
    """
    for own, its in ((ones, others), (others, ones)):
        if _are_alike(own) and (of.weight or _tells(own[0])):
            near = sum(_far(own[0], each) <= NEAR for each in its)
            if near and (of.weight or 2 * near > len(its)):
                return True
    return False


def _are_clearer(terms: float, ones: Sequence[Array], others: Sequence[Array]) -> bool:
    """Tells whether a sum of terms (at distance ``terms``) is clearly nearer to the other side than any term."""
    return terms < _CLEARER * min((_far(one, other) for one in ones for other in others), default=math.inf)


def _tells(array: Array) -> bool:
    """Tells whether an array has different values; a constant array proves nothing."""
    return bool(array.size) and not bool(np.all(array == array.reshape(-1)[0]))


def _square(part: Array) -> float:
    wide = np.abs(part).astype(np.float64).reshape(-1)
    wide = wide[np.isfinite(wide)]
    return float(np.dot(wide, wide))


def _far(whole: Array, joined: Array) -> float:
    """Returns the relative distance of two arrays over elements that are finite in both."""
    if whole.dtype.kind in "biu" and joined.dtype.kind in "biu":
        return float(np.count_nonzero(whole != joined)) / max(whole.size, 1)
    x, y = (each.astype(np.complex128 if each.dtype.kind == "c" else np.float64) for each in (whole, joined))
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(y)
        size = max(float(np.linalg.norm(x[finite])), float(np.linalg.norm(y[finite])))
        return float(np.linalg.norm((x - y)[finite])) / size if size else 0.0


def _of_terms(found: Distance, layout: PartsLayout, parts: Sequence[Array]) -> Distance:
    """Scales the distance of a sum to the size of its terms, which may cancel."""
    if not layout.terms or not math.isfinite(found.relative) or not found.size:
        return found
    terms = math.sqrt(sum(_square(part) for part in parts)) / (len(parts) if layout.among is PartRelation.MEAN else 1)
    return replace(found, relative=found.relative * min(1.0, found.size / terms if terms else 1.0))


# -- parts against parts ---


@dataclass(frozen=True, slots=True)
class _ShardOption:
    """A way in which the parts of both runs may make a whole of ``shape``; ``orders`` are the orders of the parts."""

    shape: Shape
    layouts: tuple[PartsLayout, PartsLayout]
    orders: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def in_order(cls, shape: Shape, layouts: tuple[PartsLayout, PartsLayout], sides: _Sides) -> _ShardOption:
        return cls(shape, layouts, (tuple(range(len(sides[0].arrays))), tuple(range(len(sides[1].arrays)))))

    @property
    def copies(self) -> bool:
        """No parts are terms."""
        return all(not layout.terms for layout in self.layouts)

    @property
    def both_terms(self) -> bool:
        """Parts of both sides are terms: no rank has the whole, and only sums agree."""
        return all(layout.terms for layout in self.layouts)

    @property
    def words(self) -> str:
        found = {layout.word for layout in self.layouts}
        return next(word for word in ("split", "sum", "mean", "replicated") if word in found)

    def tells(self, sides: _Sides) -> bool:
        """Tells whether ranks hold different values, so that another layout would make another whole."""
        return any(
            _far(side.arrays[0], each) > NEAR
            for side in sides
            for each in side.arrays[1:]
            if each.shape == side.arrays[0].shape
        )

    @property
    def unlikely(self) -> int:
        """A sort key, larger for less likely options."""
        terms = sum(layout.terms for layout in self.layouts)
        odd = sum(layout.zigzag or layout.groups > 1 or layout.factor > 1 for layout in self.layouts)
        return 4 * terms + 2 * odd + any(layout.cut for layout in self.layouts)


def _options(sides: _Sides, given: PartsLayout | None, of: TensorKind) -> Iterator[_ShardOption]:
    """Yields how parts of both sides may make wholes of one shape, likely ones first."""
    shapes = [[part.shape for part in side.arrays] for side in sides]
    found: list[_ShardOption] = []
    for shape in dict.fromkeys(each for own in shapes for each in possible_shapes(own)):
        own = []
        for side, parts in zip(sides, shapes, strict=True):
            layouts: Sequence[PartsLayout] = [given] if given is not None else list(possible_layouts(shape, parts, of))
            if given is None and side.replicas:
                layouts = [layout for layout in layouts if layout == PartsLayout()]
            orders = _orders(side)
            own.append(
                [
                    (layout, order)
                    for layout in layouts
                    for order in (orders if layout.cut and not layout.flat else orders[:1])
                    if fits(layout, side.arrays, shape)
                ]
            )
        for one, other in product(*own):
            option = _ShardOption(shape, (one[0], other[0]), (one[1], other[1]))
            if not option.both_terms or one[0].among is other[0].among:
                found.append(option)
    yield from sorted(found, key=lambda each: each.unlikely)


def _orders(side: Parts) -> list[tuple[int, ...]]:
    """Returns possible orders of ranks: by number, and by their places along each axis."""
    count = len(side.arrays)
    found = {tuple(range(count)): None}
    if len(side.places) == count and all(side.places):
        axes = sorted({axis for each in side.places for axis in each})[:_MOST_AXES]
        for order in permutations(axes):
            places = [tuple(each.get(axis, (-1, 0))[0] for axis in order) for each in side.places]
            found[tuple(sorted(range(count), key=lambda at: (places[at], at)))] = None
    return list(found)


class _Wholes:
    """The wholes that parts of both sides make, by layout."""

    def __init__(self, sides: _Sides) -> None:
        self._sides = sides
        self._samples: dict[tuple[int, Shape, PartsLayout, Shape], Array | None] = {}

    def of(self, option: _ShardOption) -> _WholesOfBoth | None:
        found = []
        for number, side in enumerate(self._sides):
            parts = [side.arrays[at] for at in option.orders[number]]
            wholes = wholes_of(option.layouts[number], parts, option.shape)
            if wholes is None:
                return None
            found.append(wholes)
        return found[0], found[1]

    def prove_nothing(self, option: _ShardOption) -> bool:
        """Tells whether terms may be something else, though their sums agree.

        If terms of one side are also terms of the other, they are parts of one whole, maybe in another order. If one
        term is the whole, or most terms are equal, they may be copies, some of them wrong.
        """
        if option.copies:
            return False
        one, other = (replace(layout, among=PartRelation.REPLICAS) for layout in option.layouts)
        terms = self.of(replace(option, layouts=(one, other)))
        if terms is None:
            return False
        if not option.both_terms:
            many = 0 if option.layouts[0].terms else 1
            wholes = self.of(option)
            near = min(_far(terms[1 - many][0], term) for term in terms[many])
            return wholes is not None and near <= NEAR and not _are_clearer(_far_apart(*wholes), *terms)
        if _are_alike(terms[0]):  # as losses are: no wonder that one of them is one of the others
            same = sum(_far(terms[0][0], term) <= _ROUNDING**2 for term in terms[1])
            nothing = sum(not term.any() for term in terms[1])
            return same < len(terms[1]) and (2 * same > len(terms[1]) or 0 < same == len(terms[1]) - nothing)
        return any(own.any() and _far(own, its) <= NEAR for own in terms[0] for its in terms[1])

    def copies(self, options: Sequence[_ShardOption], of: TensorKind) -> tuple[_ShardOption, _WholesOfBoth] | None:
        """Returns the likeliest layouts by which ranks have copies, some of which differ; None without one."""
        for option in options:
            some = self._sample(0, option), self._sample(1, option)
            if (
                option.copies
                and some[0] is not None
                and some[1] is not None
                and _agree(list(some[0]), list(some[1]), of)
            ):
                wholes = self.of(option)
                if wholes is not None and _agree(*wholes, of):
                    return option, wholes
        return None

    def nearest(self, options: Sequence[_ShardOption]) -> list[tuple[float, _ShardOption, _WholesOfBoth]]:
        """Returns the options with the nearest wholes, chosen by a sample of elements, with their distances."""
        scores: list[tuple[float, _ShardOption]] = []
        for option in options:
            one, other = self._sample(0, option), self._sample(1, option)
            if one is None or other is None:
                continue
            far = _far_apart(list(one), list(other))
            scores.append((far, option))
            if far <= _ROUNDING**2 and not option.both_terms and (wholes := self.of(option)) is not None:
                whole = _far_apart(*wholes)
                if whole <= _ROUNDING**2:
                    return [(whole, option, wholes)]
        best = sorted(range(len(scores)), key=lambda at: scores[at][0])[:_MOST_PAIRS]
        likely = [at for at in range(len(scores)) if scores[at][0] <= NEAR][:_MOST_PAIRS]
        found = []
        for at in dict.fromkeys((*likely, *best)):
            wholes = self.of(scores[at][1])
            if wholes is not None:
                found.append((_far_apart(*wholes), scores[at][1], wholes))
        return found

    def _sample(self, number: int, option: _ShardOption) -> Array | None:
        """Returns some elements of each whole of a side, the same ones for all layouts of a shape."""
        key = number, option.shape, option.layouts[number], option.orders[number]
        if key not in self._samples:
            parts = [self._sides[number].arrays[at] for at in key[3]]
            wholes = wholes_of(key[2], parts, option.shape)
            size = math.prod(option.shape)
            step = max(size // _SAMPLED, 1) | 1  # odd: it meets all rows and columns of what is a power of two
            self._samples[key] = None if wholes is None else np.stack([each.reshape(-1)[::step] for each in wholes])
        return self._samples[key]


def _far_apart(ones: Sequence[Array], others: Sequence[Array]) -> float:
    """Returns the distance of the wholes of both sides, of the replicas that differ most."""
    if not ones[0].size:
        return 0.0
    far = [_far(ones[0], each) for each in others] + [_far(each, others[0]) for each in ones[1:]]
    return max(far)
