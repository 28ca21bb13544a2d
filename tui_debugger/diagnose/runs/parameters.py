"""The parameters of two runs: which are the same, which are made of others, and which only one run has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import PurePath
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.check.flow import Located
from tui_debugger.diagnose.runs.adapters import adapters, merged_weights
from tui_debugger.diagnose.runs.axes import with_other_axes
from tui_debugger.diagnose.runs.conversions import (
    OF_RANK,
    Learned,
    WeightConversion,
    conversions,
    is_embedding,
    is_norm,
    parsed,
)
from tui_debugger.diagnose.runs.distance import INTRODUCED, WITHOUT_ONE, Distance, distance, not_compared
from tui_debugger.diagnose.runs.exchanged import held_against_names
from tui_debugger.diagnose.runs.kinds import kind_of_difference
from tui_debugger.diagnose.runs.matching import Rule, RunMatching, names_module, renamed_scope
from tui_debugger.diagnose.runs.results import ACTIVATION_SCALE, DiffFinding, DiffKind, OneSided
from tui_debugger.diagnose.runs.scaled import (
    OF_ACTIVATIONS,
    CastMisses,
    ScaledWeight,
    Wide,
    cast_apart,
    cast_misses,
    may_be_scaled,
    meant_apart,
    scale_names,
    scaled,
)
from tui_debugger.diagnose.runs.shards import NEAR
from tui_debugger.diagnose.runs.step import Asked, NodePair, PairKey, key_of
from tui_debugger.diagnose.runs.unmatched import UnmatchedNodes
from tui_debugger.diagnose.runs.unrecorded import UnrecordedTensors
from tui_debugger.graph.table import ARRAY
from tui_debugger.sources.rank_names import read_rank
from tui_debugger.stats.dtypes import name_of
from tui_debugger.text.tensors import shape_text

_FEW: Final = 3
"""The most names that a sentence lists."""
_DIMENSIONS_OF_A_MATRIX: Final = 2
_MOST_PARTS: Final = 4
"""The most weights in a fused one: q, k and v."""
_LEAST_RENAMED: Final = 2
"""The fewest parameters with values of another name for two runs to have other names for the same parameters."""
_STRAIGHT: Final = "it is square, and not transposed as all other matrices are: nothing tells whether it should be"
_COUNTED: Final = "it differs, and only one run has others like it: ranks may count their layers from other numbers on"
_NO_CASTS: Final = "are not the rounding of those of the other run, as all of most other weights are"
_Renamed = tuple[tuple[str, ...], tuple[str, ...]]
"""The prefixes of parameters in both runs, where names differ in them."""


_Casts = dict[int, tuple[NodePair, CastMisses]]
"""By row of the first run."""


class ParameterPairs(UnmatchedNodes):
    """The parameters of a step.

    Attributes:
        findings: where differences begin.
        proven: renamed scopes with a parameter of equal values.
        unproven: rows of the first run of parameters that are paired only by the end of the name.
        converted: parameters that are made of other parameters.
        others: the last judged steps of other ranks.
        learned: how weights are cut, shared with other ranks.
        scaled: for each run, weights with scales by row.
        fused: for each run, weights with a scale for each of their sources, by row.
        scale_texts: how a scaled or cast weight differs, by row of the first run.
        copied: one run may be a copy of the other run in a smaller type.
    """

    def __init__(self, asked: Asked, before: UnrecordedTensors | None) -> None:
        super().__init__(asked, before)
        self.findings: list[DiffFinding] = []
        self.proven: set[_Renamed] = set()
        self.unproven: set[int] = set()
        self.converted: list[WeightConversion] = []
        self.others: Sequence[ParameterPairs] = ()
        self.learned = Learned()
        self.scaled: tuple[dict[int, ScaledWeight], dict[int, ScaledWeight]] = {}, {}
        self.fused: tuple[dict[int, tuple[Array, Wide]], dict[int, tuple[Array, Wide]]] = {}, {}
        self.scale_texts: dict[int, str] = {}
        self.copied = before is None

    def with_proof(self, entries: Sequence[NodePair]) -> list[NodePair]:
        """Returns the pairs without those that values disprove; unproven pairs become doubtful."""
        found = self._prove_renames(self._with_scales(entries))
        casts = self._casts(found) if self.options.tolerance is None else {}
        taken = self._convert(found, casts)
        self._look_at_norms(found)
        self._look_at_casts({row: cast for row, cast in casts.items() if row not in taken})
        self._find_ties()
        found = [each for each in found if each.match.a not in taken]
        if all(len(files.run.ranks()) > 1 for files in self.files):
            self._doubt_numbers(found)
        return found

    def _doubt_numbers(self, entries: Sequence[NodePair]) -> None:
        """Marks layers as not compared that differ, if only one run has similar names: stages may count from zero."""
        names = [{name for rank in files.run.ranks() for name in files.run.nodes(rank).names} for files in self.files]
        others = {parsed(name).template for name in names[0] ^ names[1]}
        for entry in entries:
            name = self.names[0][entry.a]
            if not self.is_parameter(entry.a) or parsed(name).template not in others:
                continue
            if self._differs(entry):
                self._leave_out(entry, _COUNTED)

    def _leave_out(self, entry: NodePair, why: str) -> None:
        """Marks the outputs of a pair as not compared."""
        for _, one, other in entry.outputs:
            found = self.distance(one, other)
            self.distances[key_of(one, other)] = not_compared(why, found.shapes if found is not None else ())

    def _with_scales(self, entries: Sequence[NodePair]) -> list[NodePair]:
        """Compares weights with scales by their meaning; returns the pairs without the scales."""
        scales = self._find_scales(0), self._find_scales(1)
        if not any(scales):
            return list(entries)
        for entry in entries:
            rows, at = entry.match.rows, entry.only_output
            if at is None or not any(row in of.values() for row, of in zip(rows, scales, strict=True)):
                continue
            found = self.distance(*at)
            if found is None or len(set(found.shapes)) > 1:
                continue
            sides = [self.scaled[side].get(row, self.files[side].array(at[side])) for side, row in enumerate(rows)]
            types = [may_be_scaled(each) for each in found.types]
            key = key_of(*at)
            unread = any(
                row in scales[n].values() and types[n] and row not in self.scaled[n] for n, row in enumerate(rows)
            )
            if unread or sides[0] is None or sides[1] is None:
                self.distances[key] = not_compared("the shape of its scale does not fit", found.shapes, found.types)
            elif any(isinstance(each, ScaledWeight) for each in sides):
                apart = meant_apart(sides[0], sides[1])
                self.distances[key] = apart.distance
                if apart.distance.relative > INTRODUCED * apart.distance.unit:
                    whole = [each.whole() if isinstance(each, ScaledWeight) else each for each in (sides[0], sides[1])]
                    kind = kind_of_difference(whole[0], whole[1])[1]
                    self.scale_texts[rows[0]] = apart.text or f"as its scale means it: {kind}"
        return [each for each in entries if each.match.a not in scales[0] or each.match.b not in scales[1]]

    def _casts(self, entries: Sequence[NodePair]) -> _Casts:
        """Returns how far weights are from casts that one run keeps in a smaller type, by rows of the first run."""
        casts = {}
        for entry in entries:
            at = entry.only_output
            if at is None or not self.is_parameter(entry.a):
                continue
            found = self.distance(*at)
            if found is None or not found.compared or found.meant or len(set(found.types)) == 1 or found.exact:
                continue
            if not 0 < found.relative <= INTRODUCED * found.unit:
                continue
            one, other = self.arrays(at)
            if one is not None and other is not None and (misses := cast_misses(one, other)) is not None:
                casts[entry.a] = entry, misses
        if not all(self.is_parameter(entry.a) for entry in entries) or (
            casts and not any(misses.cut for _, misses in casts.values())
        ):
            self.copied = False
        return casts

    def _are_copies(self, casts: _Casts, found: Sequence[WeightConversion]) -> bool:
        """Tells whether most weights of a checkpoint are exactly those of the other one in a smaller type."""
        exact = [not misses.rounded for _, misses in casts.values()]
        exact += [not each.uncast for each in found if each.uncast is not None]
        return self.copied and 2 * sum(exact) > len(exact)

    def _look_at_casts(self, casts: _Casts) -> None:
        """Finds weights that are no casts where most are, and single wrong elements of those that nearly are."""
        copies = self._are_copies(casts, self.converted)
        for row, (entry, misses) in casts.items():
            at = entry.only_output
            found = self.distance(*at) if at is not None else None
            if not misses.rounded or found is None or at is None:
                continue
            key = key_of(*at)
            if copies:
                self.distances[key] = replace(found, unit=0.0)
                self.scale_texts[row] = f"{misses.rounded} of its {found.count} elements {_NO_CASTS}"
                continue
            one, other = self.arrays(at)
            apart = cast_apart(one, other) if one is not None and other is not None else None
            if apart is not None and apart.distance.relative > INTRODUCED * apart.distance.unit:
                wrong = apart.distance
                self.distances[key] = replace(found, unit=wrong.unit, worst=wrong.worst, values=wrong.values)
                self.scale_texts[row] = "nearly all of it is a cast, and some elements are not"

    def _look_at_norms(self, entries: Sequence[NodePair]) -> None:
        """Compares the weights of norms as one run keeps them without 1, if it keeps all of them so."""
        if self.options.tolerance is not None or any(files.mates for files in self.files):
            return
        shifted: dict[PairKey, Distance] = {}
        less = -1
        for entry in entries:
            name = self.names[0][entry.a]
            at = entry.only_output
            if at is None or not self.is_parameter(entry.a) or not is_norm(name):
                continue
            both = self.arrays(at)
            found = self.distance(*at)
            if found is None or any(each is None or each.ndim != 1 or each.dtype.kind in "biu" for each in both):
                continue
            wide = [each.astype(np.float64) for each in both if each is not None]
            if len(wide[0]) != len(wide[1]) or not len(wide[0]):
                return
            less = int(wide[0].mean() > wide[1].mean()) if less < 0 else less
            wide[less] = wide[less] + 1.0
            apart = distance(wide[0], wide[1], found.types)
            if not found.compared or apart.relative > INTRODUCED * apart.unit:
                return
            shifted[key_of(*at)] = replace(apart, meant=WITHOUT_ONE)
        if len(shifted) >= _LEAST_RENAMED:
            self.distances.update(shifted)

    def _find_scales(self, side: int) -> dict[int, int]:
        """Finds the scales of weights; returns rows of weights by rows of scales."""
        names = self.names[side]
        rows = {names[row]: row for row in self.sides[side].rows}
        found: dict[int, int] = {}
        for name, row in rows.items() if self._holds_wholes(side) else ():
            scale = next((rows[each] for each in scale_names(name) if each in rows), -1)
            values, scales = (self._values(side, each) if scale >= 0 else None for each in (row, scale))
            if values is None or scales is None or not may_be_scaled(name_of(values.dtype)):
                continue
            found[scale] = row
            self.finished[side, scale] = f"the scale of {names[row]}"
            if (weight := scaled(values, scales)) is not None:
                self.scaled[side][row] = weight
            elif scales.ndim == 1 and len(scales) <= _MOST_PARTS:
                self.fused[side][row] = values, scales.astype(np.float64)
        for name, row in rows.items() if found else ():
            if name.rpartition(".")[2] in OF_ACTIVATIONS:
                self.finished[side, row] = ACTIVATION_SCALE
        return found

    def _values(self, side: int, row: int) -> Array | None:
        return self.files[side].array(self._only_tensor(side, row))

    def _only_tensor(self, side: int, row: int) -> Located | None:
        """Returns where the values of a parameter are; None unless there is exactly one tensor."""
        outputs = self.outputs(side, row)
        return outputs[0] if len(outputs) == 1 and outputs[0].index >= 0 else None

    def _convert(self, entries: Sequence[NodePair], casts: _Casts) -> set[int]:
        """Finds out which parameters make which; returns rows of pairs that are given up for that."""
        self.learned = next((each.learned for each in self.others), self.learned)
        split = [side for side in (0, 1) if self.files[side].mates]
        if len(split) > 1 or not self._may_convert(split):
            return set()
        entries = [entry for entry in entries if self.is_parameter(entry.a)]
        merged = self._may_be_merged()
        unlike = {entry.a: gap for entry in entries if (gap := self._unlike_shapes(entry)) is not None}
        turned = any(gap.shapes[0] == gap.shapes[1][::-1] for gap in unlike.values())
        loose = {
            entry.a: entry.b
            for entry in entries
            if entry.a in self.unproven | unlike.keys()
            or (turned and self._is_square(entry))
            or (entry.match.rule is Rule.SUFFIX and self._differs(entry))
        }
        parted = [side for side, files in enumerate(self.files) if files.mates or files.only is not None]
        moved = self._may_be_renumbered(parted, entries, loose.keys() | merged)
        given_up = {entry.a: entry.b for entry in entries if entry.a in merged | moved.keys()} | loose
        alone = self.matching.only
        rows = [
            [row for row in left if self._may_be_weight(side, row) and self._dumped(side, row)]
            for side, left in enumerate(alone)
        ]
        rows = [[*rows[0], *given_up], [*rows[1], *given_up.values()]]
        if not all(rows):
            return set()
        weights = [self._weights(side, of) for side, of in enumerate(rows)]
        by_name = given_up.keys() - loose.keys() - moved.keys()
        pairs = [(self.names[0][row], self.names[1][loose[row]]) for row in unlike]
        found = self._made_of(weights, rows, split, (by_name, {given_up[row] for row in by_name}), pairs)
        if turned:
            found = self._without_straight(found, entries)
        there = {(each.side, weights[each.side][each.made][0]) for each in found if each.renumbered}
        wrong = {(side, pair[side]) for pair in moved.items() for side in (0, 1)} - there
        if split:  # of parts on several ranks all have to be known
            known = Counter(weights[each.side][each.made][0] for each in found)
            parts = Counter(row for row, _ in weights[split[0]].values())
            wrong |= {(split[0], row) for row in parts if known[row] < parts[row]}
        found = [each for each in found if (each.side, weights[each.side][each.made][0]) not in wrong]
        if self._are_copies({row: cast for row, cast in casts.items() if row not in given_up}, found):
            found = [
                replace(
                    each,
                    wrong=each.uncast,
                    text=f"some of its elements {_NO_CASTS}",
                    distance=replace(each.distance, unit=0.0),
                )
                if each.uncast and not each.wrong
                else each
                for each in found
            ]
        used = self._book(found, weights)
        self.converted = found
        return self._give_up({a for a, b in given_up.items() if a in used[0] or b in used[1]}, entries)

    def _may_be_renumbered(
        self, parted: Sequence[int], entries: Sequence[NodePair], others: Collection[int]
    ) -> dict[int, int]:
        """Returns pairs by name that differ, where the other run has more: one may count layers from zero."""
        alone = self.matching.only
        more = [bool(self.unproven) or any(map(self.sides[side].is_parameter, alone[side])) for side in (0, 1)]
        if not (more[1 - parted[0]] if len(parted) == 1 else all(more)):
            return {}
        pairs = [entry.match for entry in entries if entry.a not in others and self._differs(entry)]
        return {match.a: match.b for match in pairs}

    def _made_of(
        self,
        weights: Sequence[Mapping[str, tuple[int, Array]]],
        rows: Sequence[Sequence[int]],
        split: Sequence[int],
        by_name: tuple[Collection[int], Collection[int]],
        pairs: Sequence[tuple[str, str]],
    ) -> list[WeightConversion]:
        """Returns the conversions.

        Rows in ``by_name`` have a partner, and count only for merged updates. ``pairs`` are names of paired weights
        of different shapes.
        """
        arrays = [{name: array for name, (_, array) in of.items()} for of in weights]
        found = [*merged_weights(arrays[0], arrays[1], 1), *merged_weights(arrays[1], arrays[0], 0)]
        found += with_other_axes(arrays, [] if split else pairs)
        used = {name for each in found for name in (each.made, *each.sources)}
        left = [
            {name: array for name, (row, array) in of.items() if name not in used and row not in by_name[side]}
            for side, of in enumerate(weights)
        ]
        fp8 = [self._small_type(side, of) for side, of in enumerate(rows)]
        names = self.names
        scales = {names[side][row]: of for side, fused in enumerate(self.fused) for row, (_, of) in fused.items()}
        made = conversions(
            left[0],
            left[1],
            made=split[0] if split else None,
            fp8=(fp8[0], fp8[1]),
            scales=scales,
            learned=self.learned,
            proven=bool(self.proven) or self._named_alike,
        )
        made = self._without_foreign(made)
        if not made:
            return found
        paired = [match for match in self.matching.matches if self.is_parameter(match.a)]
        known = {names[1][match.b]: names[0][match.a] for match in paired}
        if made[0].side == 0:
            known = {source: name for name, source in known.items()}
        return [*found, *held_against_names(made, arrays, known)]

    def _book(
        self, found: Sequence[WeightConversion], weights: Sequence[Mapping[str, tuple[int, Array]]]
    ) -> tuple[set[int], set[int]]:
        """Records conversions and their findings; returns the explained rows of both runs."""
        used: tuple[set[int], set[int]] = set(), set()
        for each in found:
            row = weights[each.side][each.made][0]
            used[each.side].add(row)
            sources = [weights[1 - each.side][name][0] for name in each.sources]
            used[1 - each.side].update(sources)
            self.finished[each.side, row] = f"{each.text}: proven by values"
            self.finished.update({(1 - each.side, of): f"{each.made} is made of it" for of in sources})
            if each.wrong:
                wrong = weights[1 - each.side][each.wrong][0]
                pair = (row, wrong) if each.side == 0 else (wrong, row)
                order = float(self.flows[0].nodes.order[pair[0]])
                self.findings.append(self._difference(*pair, each.text, each.distance, order))
                self.blamed.update({(0, pair[0]), (1, pair[1])})
        return used

    def _give_up(self, given_up: set[int], entries: Sequence[NodePair]) -> set[int]:
        for entry in entries:
            for _, one, other in entry.outputs if entry.a in given_up else ():
                self.distances.pop(key_of(one, other), None)
        if given_up:
            gone = [match for match in self.matching.matches if match.a in given_up]
            self.matching = RunMatching(
                tuple(match for match in self.matching.matches if match.a not in given_up),
                (*self.matching.only_a, *(match.a for match in gone)),
                (*self.matching.only_b, *(match.b for match in gone)),
            )
            self.unproven -= given_up
        return given_up

    def _may_be_merged(self) -> set[int]:
        """Returns rows of the first run of weights that may be merged with an update, or be the base of one."""
        tables = [self.flows[side].nodes for side in (0, 1)]
        names = [[tables[side].names[row] for row in self.sides[side].rows] for side in (0, 1)]
        found = {tables[0].find(each.merged) for each in adapters(names[1], names[0])}
        return found | {tables[0].find(each.base) for each in adapters(names[0], names[1])}

    def _without_straight(
        self, found: Sequence[WeightConversion], entries: Sequence[NodePair]
    ) -> list[WeightConversion]:
        """Leaves out square matrices that are not transposed while all others are: nothing tells which is right.

        Embeddings and heads are exempt: they keep their layout in all programs.
        """
        squares: dict[str, NodePair] = {}
        for entry in entries:
            name = self.names[0][entry.a]
            shapes = [each.shapes for each in self.distances_of(entry) if len(each.shapes) > 1]
            if len(shapes) != 1 or len(shapes[0][0]) != _DIMENSIONS_OF_A_MATRIX or is_embedding(name):
                continue
            if shapes[0][0] == shapes[0][1] == shapes[0][0][::-1]:
                squares[name] = entry
            elif shapes[0][0] == shapes[0][1]:
                return list(found)  # other matrices keep their layout, too
        for name in {name for each in found if each.turned for name in (each.made, *each.sources)}:
            squares.pop(name, None)
        for entry in squares.values():
            self._leave_out(entry, _STRAIGHT)
        return [each for each in found if squares.keys().isdisjoint((each.made, *each.sources))]

    def _may_convert(self, split: Sequence[int]) -> bool:
        """Tells whether weights of one run may make those of the other: both hold wholes, or parts cut alike."""
        whole = [self._holds_wholes(side) for side in (0, 1) if side not in split]
        ranks = [len(files.run.ranks()) for files in self.files]
        return all(whole) or (not split and not any(whole) and ranks[0] == ranks[1])

    def _find_ties(self) -> None:
        """Finds one-sided weights that are copies: the other run keeps tied weights once."""
        for side, alone in enumerate(self.matching.only):
            rows = [row for row in alone if self.sides[side].is_parameter(row) and (side, row) not in self.finished]
            if not rows or not self._holds_wholes(side):
                continue
            paired = self.matching.partner[side]
            proven = [row for of, row in self.finished if of == side]
            others = [row for row in (*paired, *proven) if self.sides[side].is_parameter(row)]
            shapes = {row: self.files[side].shapes(self.steps[side], row) for row in (*rows, *others)}
            known = {shapes[row] for row in rows}
            both: dict[bytes, int] = {}
            for other in others:
                if shapes[other] in known and (content := self._content(side, other)):
                    both.setdefault(content, other)
            for row in rows if both else ():
                if (tied := both.get(self._content(side, row))) is not None:
                    name = self.names[side][tied]
                    self.finished[side, row] = f"it has the values of {name}, which both runs have: tied weights"

    def _content(self, side: int, row: int) -> bytes:
        """Returns a digest of the type, shape and values of a matrix; empty where these are all the same."""
        array = self._values(side, row)
        if array is None or array.ndim < _DIMENSIONS_OF_A_MATRIX or not array.size:
            return b""
        if not bool((array != array.flat[0]).any()):
            return b""
        kind = f"{name_of(array.dtype)} {array.shape}".encode()
        return kind + blake2b(np.ascontiguousarray(array).data.cast("B"), digest_size=16).digest()

    def _may_be_weight(self, side: int, row: int) -> bool:
        """Tells whether a node is a parameter, or an array of which the file does not tell what it is."""
        nodes = self.flows[side].nodes
        return self.sides[side].is_parameter(row) or (
            nodes.op_type(row) == ARRAY and not self.sides[side].producers(row)
        )

    def _without_foreign(self, made: Sequence[WeightConversion]) -> list[WeightConversion]:
        """Leaves out weights with the values of another name, though both runs name parameters alike.

        A name that both runs have is of one parameter in both. One new name that shares no word with the old one may
        be of a stranger, whatever values it has; of several the runs have different words for the same parameters.
        """
        if not self._named_alike:
            return list(made)
        names = [{of.nodes.names[row] for row in of.rows} for of in self.sides]
        foreign: list[WeightConversion] = []
        found: list[WeightConversion] = []
        for each in made:
            own, source = each.made.partition(OF_RANK)[0], each.sources[0].partition(OF_RANK)[0]
            alike = own == source or (each.renumbered and parsed(own).template == parsed(source).template)
            if len(each.sources) > 1 or each.turned or alike:
                found.append(each)
            elif own not in names[1 - each.side] and source not in names[each.side]:
                foreign.append(each)
        lone = sum(not each.wrong for each in foreign) < _LEAST_RENAMED
        return found + [
            replace(each, doubt=f"it has the values of {each.sources[0]}, and no word of that name")
            if lone and not _share_word(each.made, each.sources[0])
            else each
            for each in foreign
        ]

    @property
    def _named_alike(self) -> bool:
        return any(
            each.rule in {Rule.NAME, Rule.NORMALISED} and self.is_parameter(each.a) for each in self.matching.matches
        )

    def _weights(self, side: int, rows: Sequence[int]) -> Mapping[str, tuple[int, Array]]:
        """Returns readable parameters by name, with row and values; those of several ranks separately."""
        found: dict[str, tuple[int, Array]] = {}
        for row in rows:
            name = self.names[side][row]
            if row in self.scaled[side]:
                found[name] = row, self.scaled[side][row].whole()
                continue
            if row in self.fused[side]:
                found[name] = row, self.fused[side][row][0].astype(np.float32)
                continue
            at = self._only_tensor(side, row)
            parts = self.files[side].parts(at) if at is not None else []
            for files, place in parts:
                array = files.array(place)
                if array is not None and array.ndim:
                    found[f"{name}{OF_RANK}{files.rank}" if self.files[side].mates else name] = row, array
        return found

    def _small_type(self, side: int, rows: Sequence[int]) -> str:
        kept = {row: each.values for row, each in self.scaled[side].items()}
        kept |= {row: values for row, (values, _) in self.fused[side].items()}
        return next((name_of(kept[row].dtype) for row in rows if row in kept), "")

    def _unlike_shapes(self, entry: NodePair) -> Distance | None:
        """Returns the distance of a parameter whose shapes differ; else None."""
        found = self.distances_of(entry)
        return next((each for each in found if not each.compared and len(set(each.shapes)) > 1), None)

    def _differs(self, entry: NodePair) -> bool:
        return any(each.compared and each.relative > INTRODUCED * each.unit for each in self.distances_of(entry))

    def _is_square(self, entry: NodePair) -> bool:
        shapes = [shape for each in self.distances_of(entry) for shape in each.shapes]
        return any(len(shape) == _DIMENSIONS_OF_A_MATRIX and shape[0] == shape[1] for shape in shapes)

    def _difference(self, a: int, b: int, text: str, distance: Distance | None, order: float) -> DiffFinding:
        name, other = (self.names[side][row] if row >= 0 else "" for side, row in enumerate((a, b)))
        keys = [self.output_key(side, row) if row >= 0 else None for side, row in enumerate((a, b))]
        kind = DiffKind.PARAMETER if b >= 0 else DiffKind.MISSING
        return DiffFinding(kind, self.place, order, a, b, name, other, (keys[0], keys[1]), distance, text=text)

    def _prove_renames(self, entries: Sequence[NodePair]) -> list[NodePair]:
        """Marks parameters as doubtful that are paired only by the end of their names.

        A renamed scope is proven where values of one of its parameters agree; constant parameters prove nothing.
        """
        renamed = {
            entry.a: renamed_scope(self.sides[0].parts(entry.a), self.sides[1].parts(entry.b))
            for entry in entries
            if entry.match.rule is Rule.SUFFIX and self.is_parameter(entry.a)
        }
        for entry in entries:
            scope = renamed.get(entry.a)
            if scope is not None and scope not in self.proven and self._have_telling_values(entry):
                self.proven.add(scope)
        self.unproven = {row for row, scope in renamed.items() if scope not in self.proven}
        return [
            entry._replace(match=replace(entry.match, doubtful=True)) if entry.a in self.unproven else entry
            for entry in entries
        ]

    def _have_telling_values(self, entry: NodePair) -> bool:
        """Tells whether values agree in both runs and vary enough; the scales of norms are near one in all layers."""
        for _, one, other in entry.outputs:
            found = self.distance(one, other)
            if found is None or not found.compared or found.relative > max(NEAR, 3 * found.unit * bool(found.meant)):
                continue
            array = self.files[0].array(one)
            if array is None or _tells(array, found):
                return True
        return False

    def _constant(self, side: int, row: int) -> tuple[Shape, float] | None:
        """Returns the shape of a parameter and its one value; None of one with several."""
        array = self._values(side, row)
        if array is None or not array.size or bool((array != array.flat[0]).any()):
            return None
        return array.shape, float(array.flat[0])

    def other_shape(self, entry: NodePair) -> DiffFinding | None:
        """Returns the finding for a whole parameter with different shapes; None where it may be a part."""
        rows = entry.match.rows
        if rows[0] in self.unproven or any(map(self._may_be_part, (0, 1), rows)):
            return None
        found = self._unlike_shapes(entry)
        if found is None:
            return None
        shapes = [shape_text(shape) for shape in found.shapes]
        text = f"its shape is {shapes[0]} in A and {shapes[1]} in B"
        return self._difference(entry.a, entry.b, text, found, entry.order)

    def _holds_wholes(self, side: int) -> bool:
        """Tells whether nothing indicates that ranks of a run share parameters."""
        files = self.files[side]
        if files.only is not None:
            return not files.mates  # no other rank has these nodes: they are of a stage of their own
        return not files.mates and not files.place and files.rank == 0 and len(files.run.ranks()) == 1

    def _may_be_part(self, side: int, row: int) -> bool:
        """Tells whether a parameter may be a part, by its run or the name of its file."""
        at = self._only_tensor(side, row)
        spec = self.files[side].spec(at) if at is not None else None
        return not self._holds_wholes(side) or (spec is not None and read_rank(PurePath(spec.path).stem) is not None)

    def note_missing(self, one_sided: Sequence[OneSided]) -> None:
        """Makes one-sided parameters a finding, where the other run has different ones in their place.

        Only if some parameters have the same name in both runs, and both lack equally many: else one may be fused of
        several.
        """
        alone = [
            [
                one
                for one in one_sided
                if one.side == side and not one.covered and self.sides[side].is_parameter(one.row)
            ]
            for side in (0, 1)
        ]
        constants = [{one.row: self._constant(side, one.row) for one in of} for side, of in enumerate(alone)]
        both = set(constants[0].values()) & set(constants[1].values()) - {None}  # they may be the same: nothing tells
        alone = [[one for one in of if constants[side][one.row] not in both] for side, of in enumerate(alone)]
        fused = len(alone[0]) != len(alone[1])
        if not all(alone) or not self._named_alike or fused:
            return
        first = alone[0][0]
        if any(self._may_be_part(side, alone[side][0].row) for side in (0, 1)):
            return
        text = f"{_listed(alone[0])} only in A, and {_listed(alone[1])} only in B: no other name fits"
        found = self._difference(first.row, -1, text, None, float(first.order))
        self.findings.append(found)
        self.blamed.update((one.side, one.row) for of in alone for one in of)


def _share_word(one: str, other: str) -> bool:
    """Tells whether two names share a word that names a module; the first of several words is that of the model."""
    words = [[each for each in re.split(r"[^A-Za-z]+", name) if names_module(each)] for name in (one, other)]
    return not set(words[0][len(words[0]) > 1 :]).isdisjoint(words[1][len(words[1]) > 1 :])


def _tells(array: Array, found: Distance) -> bool:
    """Tells whether a distance is small beside the spread of the elements, or explained by rounding."""
    wide = array.astype(np.float64)
    spread = float(np.linalg.norm(wide - wide.mean())) if wide.size else 0.0
    apart = found.relative * float(np.linalg.norm(wide))
    return spread > 0 and (apart <= NEAR * spread or found.relative <= INTRODUCED * found.unit)


def _listed(alone: Sequence[OneSided]) -> str:
    names = ", ".join(one.name for one in alone[:_FEW])
    more = f" and {len(alone) - _FEW} more" if len(alone) > _FEW else ""
    return f"{names}{more} {'is' if len(alone) == 1 else 'are'}"
