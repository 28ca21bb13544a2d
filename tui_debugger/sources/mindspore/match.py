"""Matches dump files with the nodes of the graph.

Names tell the possible nodes of a group of files. Each generation spells an operator differently (see ``names``).
Scope-less names and names with ``--`` tell the node exactly. Names of 2.7 to 2.10 do not: ``/`` became ``_``, and
inside one scope and operator type the ``-opN`` numbers of files and graph can be permuted or shifted. So all nodes of
one scope and type are ``Candidates`` for all groups of that scope and type.

Where names leave a choice, data flow decides: the bytes of an input file equal the bytes of its producer's output file
(``assign``). Then timestamps decide, as far as a consumer cannot have run before its producer. Groups that are still
open get a consistent choice by name and order, and are marked uncertain.

One step may not tell everything: gradients of a dead layer are all zero, after a NaN everything is NaN. Groups whose
bytes are all alike are interchangeable at that step, which is neither doubt nor knowledge: ``GroupMatch.open`` names
them, and ``match_names`` with ``earlier`` decides them by another step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Generic, TypeVar

import numpy as np

from tui_debugger.arrays import Int32, Int64, Mask
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.sources.mindspore.assign import (
    IN,
    OUT,
    UNKNOWN,
    ContentNumbers,
    DigestStore,
    Load,
    NetFlow,
    Pool,
    Solution,
    Solver,
    TimeBounds,
    VariableNet,
    build_flow,
    ranks,
)

Key = tuple[str, str]
Rows = tuple[int, ...]
Spelling = TypeVar("Spelling", bound=Hashable)

_NUMBER = re.compile(r"-op\d+$")
_DATA = re.compile(r"data-\d+$")
_FLATTENED = re.compile(r"--|[/.\\ ]")


def flatten(name: str) -> str:
    """A full name as 2.7 to 2.10 spell it in files: scope separators and dots become ``_``."""
    return _FLATTENED.sub("_", name)


def stem(name: str) -> str:
    """A flattened name without its number: equal for all operators of one scope and type."""
    return _NUMBER.sub("", flatten(name))


@dataclass(slots=True)
class Candidates:
    """Nodes and file groups that belong together, but not yet pair by pair."""

    rows: Rows
    """Candidate node rows, each takes at most one group."""
    groups: list[int] = field(default_factory=list)
    """Indices of file groups, each goes to at most one row."""
    named: dict[int, int] = field(default_factory=dict)
    """By group, the row whose name the group's name spells exactly."""

    @property
    def settled(self) -> bool:
        """Whether names alone decide: one node, one group, spelled alike."""
        return len(self.rows) == 1 == len(self.groups) and self.named.get(self.groups[0]) == self.rows[0]


class _Spelled(Generic[Spelling]):
    """Rows by spelling; nearly all spellings have one row."""

    def __init__(self, pairs: Iterable[tuple[Spelling, int]]) -> None:
        self._first: dict[Spelling, int] = {}
        self._all: dict[Spelling, list[int]] = {}
        for spelling, row in pairs:
            first = self._first.setdefault(spelling, row)
            if first != row:
                self._all.setdefault(spelling, [first]).append(row)

    def get(self, spelling: Spelling) -> Rows:
        rows = self._all.get(spelling)
        if rows is not None:
            return tuple(rows)
        first = self._first.get(spelling)
        return () if first is None else (first,)


_KERNEL: Final = re.compile(r"aclnn(?:Inplace)?([A-Za-z0-9]+?)(?:V\d+)?(?:_.*)?", re.DOTALL)
"""A kernel of the vendor's operator library, whose name tells only the type of its operator: ``aclnnMatmul_0_L0``."""
_MOST_ALIKE: Final = 256
"""Largest number of nodes of one type for which such a name is used."""


class NameIndex:
    """Nodes of one root graph by every spelling that their files can have; indexes are made on demand."""

    def __init__(self, table: NodeTable, root: int | None) -> None:
        """Indexes the graphs under ``root``; all graphs for None, or when no graph has that root."""
        self._type_of: list[int] = table.type_id.tolist()
        self._types = table.types
        self._folded = [name.lower() for name in table.types]
        held = {number for number, name in enumerate(table.types) if name in (PARAMETER, CONSTANT)}
        self._names, self._file_names = table.names, table.file_names
        rows = _rows(table, root)
        self._operators = [row for row in rows if self._type_of[row] not in held]
        self._held = [row for row in rows if self._type_of[row] in held]

    def candidates(self, op_type: str, op_name: str) -> tuple[str, Rows]:
        """(key of the candidates, candidate rows) for one file name; no rows when the graph does not know it."""
        if op_type == PARAMETER:
            rows = self._parameter.get(op_name) or self._parameter.get(flatten(op_name))
            return f"parameter {op_name}", rows
        rows = self._exact.get(op_name) or self._leaf.get(op_name)
        if rows:
            folded = op_type.lower()
            return f"name {op_name}", tuple([r for r in rows if self._folded[self._type_of[r]] == folded]) or rows
        base = stem(op_name)
        for known_type in (op_type, ""):
            rows = self._stem.get((known_type, base))
            if rows:
                return f"stem {known_type} {base}", rows
        for name in (op_type, op_name):
            kernel = _KERNEL.fullmatch(name)
            rows = self._kind.get(kernel[1].lower()) if kernel else ()
            if 0 < len(rows) <= _MOST_ALIKE:
                return f"kind {kernel and kernel[1].lower()}", rows
        return "", ()

    def flattened(self, op_name: str) -> Rows:
        return self._flat.get(flatten(op_name))

    @cached_property
    def _exact(self) -> _Spelled[str]:
        return _Spelled((self._names[row].replace("/", "--"), row) for row in self._operators)

    @cached_property
    def _leaf(self) -> _Spelled[str]:
        return _Spelled((self._names[row].rpartition("/")[2], row) for row in self._operators)

    @cached_property
    def _parameter(self) -> _Spelled[str]:
        spellings = []
        for row in self._held:
            name = self._file_names.get(row, self._names[row])
            each = {name, flatten(name)}
            if self._types[self._type_of[row]] == CONSTANT:
                each.update(_DATA.findall(name))
            spellings += [(spelling, row) for spelling in each]
        return _Spelled(spellings)

    @cached_property
    def _flat(self) -> _Spelled[str]:
        names = ((self._file_names.get(row, self._names[row]), row) for row in (*self._operators, *self._held))
        return _Spelled((flatten(name), row) for name, row in names)

    @cached_property
    def _kind(self) -> _Spelled[str]:
        return _Spelled((self._folded[self._type_of[row]], row) for row in self._operators)

    @cached_property
    def _stem(self) -> _Spelled[Key]:
        bases = ((stem(self._names[row]), row) for row in self._operators)
        both = ((key, row) for base, row in bases for key in ((self._types[self._type_of[row]], base), ("", base)))
        return _Spelled(both)


def _rows(table: NodeTable, root: int | None) -> list[int]:
    """Rows that can have files; of a parameter in several graphs the first one, root graphs before others."""
    known = {info.root_id for info in table.graphs}
    wanted = [root is None or root not in known or info.root_id == root for info in table.graphs]
    first = [not info.is_root for info in table.graphs]
    skip = int(NodeFlag.FILE_ONLY | NodeFlag.STRUCTURAL)
    able = np.array([*wanted, False])[table.graph] & ((table.flags & skip) == 0)
    order = np.argsort(np.array([*first, False])[table.graph], kind="stable")
    rows: list[int] = order[able[order]].tolist()
    parameter = np.array([name == PARAMETER for name in (*table.types, "")])[table.type_id]
    shared: dict[str, int] = {}
    for at in np.flatnonzero(parameter[rows]).tolist() if len(table.graphs) > 1 else ():
        shared.setdefault(table.names[rows[at]], at)
    if not shared:
        return rows
    kept = set(shared.values())
    return [row for at, row in enumerate(rows) if at in kept or not parameter[row]]


def by_names(index: NameIndex, keys: Sequence[Key]) -> tuple[dict[int, int], list[Candidates]]:
    """The group of each row that names alone decide, and the candidates of the other groups.

    ``keys`` are (op_type, op_name) per group. Names that the graph does not know are in neither.
    """
    settled: dict[int, int] = {}
    found: dict[str, Candidates] = {}
    often = Counter([op_name for _, op_name in keys])
    for group, (op_type, op_name) in enumerate(keys):
        key, rows = index.candidates(op_type, op_name)
        if not rows:
            continue
        alone = len(rows) == 1 and not key.startswith(("stem", "kind"))
        if alone and often[op_name] == 1 and settled.setdefault(rows[0], group) == group:
            continue
        candidates = found.get(key)
        if candidates is None:
            candidates = found[key] = Candidates(rows)
        candidates.groups.append(group)
        spelled = rows if alone else tuple([row for row in index.flattened(op_name) if row in rows])
        if len(spelled) == 1:
            candidates.named[group] = spelled[0]
    candidate_sets = list(found.values())
    for row in [row for candidates in candidate_sets for row in candidates.rows if row in settled]:
        group = settled.pop(row, -1)
        if group >= 0:  # several spellings claim a node: the last of them has it
            candidate_sets.append(Candidates((row,), [group], {group: row}))
    return settled, sorted(candidate_sets, key=lambda candidates: candidates.groups[0])


Files = Mapping[tuple[int, int], int]
"""File index by (side, slot)."""
_MANY = 2**15


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts about one group before it is matched."""

    files: Files
    timestamp: int
    allowed: frozenset[int] | None = None
    """Rows that remain from earlier evidence; None: all candidates."""

    def allowed_in(self, rows: Sequence[int]) -> frozenset[int]:
        return frozenset(rows) if self.allowed is None else self.allowed

    def last(self, side: int) -> int:
        """Highest slot of a side that has a file, -1 for none."""
        return max((slot for at, slot in self.files if at == side), default=-1)


def number_at(files: Files, side: int, slot: int, values: ContentNumbers, *, in_place: bool) -> int:
    """Number of the contents at a place; UNKNOWN for an input that its own operator may have overwritten.

    Input files of in-place operators (``in_place``) are written after the kernel: they equal the output then.
    """
    index = files.get((side, slot))
    number = UNKNOWN if index is None else values.of(index)
    result = files.get((OUT, slot)) if in_place and side == IN else None
    return UNKNOWN if result is not None and values.of(result) == number else number


class CandidatePool:
    """One set of candidates as a pool.

    It has a variable per row in the order of ``candidates.rows``, then one per surplus group (no node).
    """

    def __init__(self, candidates: Candidates, first: int, facts: Sequence[GroupFacts], values: ContentNumbers) -> None:
        """``facts`` by group index; ``first`` is the number of the pool's first variable."""
        self.candidates, self.first, self._facts, self._values = candidates, first, facts, values
        self.size = max(len(candidates.rows), len(candidates.groups))
        choices: dict[object, list[int]] = {}
        for group in candidates.groups:
            choices.setdefault((self._content(group), facts[group].allowed), []).append(group)
        self.holders = list(choices.values())
        """Groups of each choice; the choice without groups means: no files."""
        alike: dict[object, int] = {}
        self._alike = [alike.setdefault(self._content(groups[0]), len(alike)) for groups in self.holders]
        stock = [len(groups) for groups in self.holders]
        self._missing = len(candidates.rows) - len(candidates.groups)
        if self._missing > 0:
            self.holders.append([])
            self._alike.append(-1)
            stock.append(self._missing)
        self.choice_of = {group: choice for choice, groups in enumerate(self.holders) for group in groups}
        """Choice of each group."""
        self._stock = np.array(stock, np.int64)
        self._numbers: dict[tuple[int, int, bool], Int64] = {}

    def _content(self, group: int) -> object:
        facts = self._facts[group]
        content = []
        for place, index in sorted(facts.files.items()):
            number = self._values.of(index)
            content.append((place, (group,) if number == UNKNOWN else number))  # unreadable ones may all differ
        return tuple(content)

    def decided(self, possible: Mask) -> bool:
        """Whether all possible choices hold the same bytes."""
        return len({self._alike[choice] for choice in np.flatnonzero(possible)}) == 1

    def numbers(self, side: int, slot: int, *, in_place: bool) -> Int64:
        """The number of each choice at a place."""
        key = side, slot, in_place
        if key not in self._numbers:
            found = [
                number_at(self._facts[groups[0]].files, side, slot, self._values, in_place=in_place)
                if groups
                else UNKNOWN
                for groups in self.holders
            ]
            self._numbers[key] = np.array(found, np.int64)
        return self._numbers[key]

    def pool(self, flow: NetFlow, outputs: Sequence[int], order: Sequence[int]) -> Pool:
        """The pool for the solver. ``outputs`` by row is the number of output slots, 0 when unknown."""
        rows = self.candidates.rows
        slots = {
            IN: np.array([flow.slots.get(row, 0) for row in rows]),
            OUT: np.array([outputs[row] or _MANY for row in rows]),
        }
        domains = np.ones((self.size, len(self.holders)), np.bool_)
        for choice, groups in enumerate(self.holders):
            if not groups:
                continue
            facts = self._facts[groups[0]]
            masks = [slots[side] > facts.last(side) for side in (IN, OUT)]
            if facts.allowed is not None:
                masks.append(np.array([row in facts.allowed for row in rows], np.bool_))
            for mask in masks:
                if (domains[: len(rows), choice] & mask).any():  # else the graph's counts are not to be trusted
                    domains[: len(rows), choice] &= mask
        domains[~domains.any(axis=1)] = True
        return Pool(self.first, self.size, self._stock, domains, self._ranking(order))

    def _ranking(self, order: Sequence[int]) -> Callable[[int], list[int]]:
        """Choices by row, best first: the named one, then by distance between order in time and in the graph."""
        rows, groups = self.candidates.rows, self.candidates.groups
        row_rank = ranks({row: order[row] for row in rows})
        group_rank = ranks({group: self._facts[group].timestamp for group in groups})
        place = np.array([group_rank[group] for group in groups])
        choice = np.array([self.choice_of[group] for group in groups])
        named = {row: self.choice_of[group] for group, row in self.candidates.named.items() if group in self.choice_of}

        def ranking(at: int) -> list[int]:
            cost = np.full(len(self.holders), self.size)
            if at < len(rows):
                np.minimum.at(cost, choice, np.abs(place - row_rank[rows[at]]))
                if rows[at] in named:
                    cost[named[rows[at]]] = -1
            ranked: list[int] = np.argsort(cost, kind="stable").tolist()
            return ranked

        return ranking

    def rows_of(self, groups: Sequence[int], rows: Sequence[int], order: Sequence[int]) -> dict[int, int]:
        """Row of each group among rows that took the same choice: by name, then by time against order."""
        given = {
            group: row for group in groups if (row := self.candidates.named.get(group)) in rows and row is not None
        }
        taken = set(given.values())
        late = sorted((g for g in groups if g not in given), key=lambda g: (self._facts[g].timestamp, g))
        free = sorted((row for row in rows if row not in taken), key=lambda row: (order[row], row))
        return given | dict(zip(late, free, strict=False))


NOWHERE = -1
"""Row of a group that belongs to no node of the graph."""
READ_AGAIN = 1 << 30
"""Total bytes up to which tensors that samples do not tell apart are read whole; with more, they stay in doubt."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All files of one name in one step and one root graph."""

    op_type: str
    op_name: str
    """``op_type`` and ``op_name`` are spelled as in the file name, undecodable bytes as surrogates."""
    files: tuple[tuple[int, int, int], ...]
    """(side, slot, index) of each file; ``load`` takes the index. One file per side and slot."""
    timestamp: int = 0
    """Timestamp of the group's first file; 0 when unknown."""

    @property
    def key(self) -> Key:
        return self.op_type, self.op_name


@dataclass(frozen=True)
class GroupMatch:
    """The nodes that the groups of one call belong to."""

    keys: tuple[Key, ...]
    """(op_type, op_name) per group."""
    node: Int32
    """Node row per group, ``NOWHERE`` when the graph has no node for it."""
    uncertain: Mask
    """Other nodes are as consistent and the files differ, or the values contradict the graph."""
    open: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Rows that a group could be exchanged with, for groups that are uncertain or whose bytes equal another's at this
    step. Another step can decide them (``match_names`` with ``earlier``).
    """


@dataclass(frozen=True, slots=True)
class ContentReading:
    """How the contents of files are read."""

    load: Load
    """Returns the array of a file by index; a file with an UnreadableTensorError is no evidence."""
    known: DigestStore | None = None
    """Digests of files that need not be read; takes those of files that were."""


def match_names(
    table: NodeTable,
    keys: tuple[Key, ...],
    groups: Callable[[], Sequence[FileGroup]],
    reading: ContentReading,
    *,
    root: int | None = None,
    earlier: GroupMatch | None = None,
) -> GroupMatch:
    """Decides which node each group of files belongs to.

    Reads files only where names leave a choice, and of big ones a sample first. ``groups`` makes the groups in the
    order of ``keys``, only if needed: there may be hundreds of thousands. ``root`` is the id of their root graph; None:
    all graphs. ``earlier``: the match of another step; its decided groups stay, its open ones keep only the rows that
    it left.
    """
    settled, candidate_sets = by_names(NameIndex(table, root), keys)
    if not candidate_sets:
        return _result(keys, settled, {})
    matching = _GroupMatching(table, (keys, groups()), reading, earlier)
    matching.settle(settled)
    for candidates in candidate_sets:
        matching.enter(candidates)
    matching.run()
    return matching.result()


def _result(keys: tuple[Key, ...], settled: Mapping[int, int], proposed: Mapping[int, int]) -> GroupMatch:
    """A match without doubts; ``settled`` are groups by row, ``proposed`` rows by group."""
    node = np.full(len(keys), NOWHERE, np.int32)
    groups = np.fromiter(settled.values(), np.int64, len(settled))
    node[groups] = np.fromiter(settled, np.int32, len(settled))
    for group, row in proposed.items():
        node[group] = row
    return GroupMatch(keys, node, np.zeros(len(keys), np.bool_))


class _GroupMatching:
    """The state of one call: settled groups, and sets of candidates that shrink round by round."""

    def __init__(
        self,
        table: NodeTable,
        files: tuple[tuple[Key, ...], Sequence[FileGroup]],
        reading: ContentReading,
        earlier: GroupMatch | None,
    ) -> None:
        self._table, self._reading = table, reading
        self._keys, groups = files
        self._facts = [
            GroupFacts({(side, slot): index for side, slot, index in group.files}, group.timestamp) for group in groups
        ]
        before = [] if earlier is None else list(enumerate(earlier.keys))
        self._before = {key: earlier.open.get(at, (int(earlier.node[at]),)) for at, key in before if earlier}
        """Rows that an earlier step left to a name; one where it decided."""
        self._doubted_before = {key for at, key in before if earlier and earlier.uncertain[at]}
        self._order: Sequence[int] = table.order.tolist()
        self._outputs: Sequence[int] = table.outputs.tolist()
        self._candidate_sets: list[Candidates] = []
        self._settled: dict[int, int] = {}  # group by row
        self._proposed: dict[int, int] = {}  # row by group
        self._open: dict[int, tuple[int, ...]] = {}
        self._doubted: set[int] = set()
        self._strained: set[int] = set()

    def settle(self, groups: Mapping[int, int]) -> None:
        self._settled.update(groups)

    def enter(self, candidates: Candidates) -> None:
        """Takes a set of candidates; settles those that names or an earlier step decide."""
        rows = dict.fromkeys(candidates.rows)
        waiting = []
        for group in candidates.groups:
            before = self._before.get(self._keys[group], ())
            if len(before) == 1 and before[0] in rows:
                del rows[before[0]]
                self._settled[before[0]] = group
            else:
                waiting.append(group)
                if before:
                    self._facts[group] = replace(self._facts[group], allowed=frozenset(before))
        left = Candidates(tuple(rows), waiting, candidates.named)
        if left.settled:
            self._settled[left.rows[0]] = left.groups[0]
        elif left.rows and left.groups:
            self._candidate_sets.append(left)

    def run(self) -> None:
        """Data flow by samples, then by whole files where samples leave a choice, then timestamps."""
        if not self._candidate_sets:
            return
        flow = self._table.memo(build_flow)
        values = ContentNumbers(self._reading.load, known=self._reading.known)
        self._round(flow, values)
        if 0 < self._sampled_bytes(values) <= READ_AGAIN:
            values = ContentNumbers(self._reading.load, whole=True, known=self._reading.known)
            self._round(flow, values)
        if self._candidate_sets and self._filter_by_time():
            self._round(flow, values)
        if self._sampled_bytes(values):  # equal by samples only
            self._doubted.update(group for candidates in self._candidate_sets for group in candidates.groups)

    def result(self) -> GroupMatch:
        match = _result(self._keys, self._settled, self._proposed)
        match.uncertain[list(self._doubted)] = True
        match.uncertain[:] |= np.isin(match.node, list(self._strained)) & (match.node != NOWHERE)
        for group, key in enumerate(self._keys) if self._doubted_before else ():
            match.uncertain[group] |= key in self._doubted_before and (
                group in self._open or len(self._before[key]) == 1
            )
        return replace(match, open=self._open)

    def _sampled_bytes(self, values: ContentNumbers) -> int:
        """Bytes of files of open groups that are known by samples only."""
        groups = (group for candidates in self._candidate_sets for group in candidates.groups)
        return sum(values.sampled(index) for group in groups for index in self._facts[group].files.values())

    def _filter_by_time(self) -> bool:
        """Drops rows whose producers ran later, or consumers earlier, than a group; returns whether it dropped any."""
        times = {
            row: [self._facts[group].timestamp]
            for row, group in self._settled.items()
            if self._table.op_type(row) != PARAMETER
        }
        for candidates in self._candidate_sets:
            if len(candidates.rows) > len(candidates.groups):
                continue  # a row without files may have run at any time
            for row in candidates.rows:
                able = (
                    facts
                    for group in candidates.groups
                    if row in (facts := self._facts[group]).allowed_in(candidates.rows)
                )
                times[row] = sorted(facts.timestamp for facts in able)
        bounds = TimeBounds(self._table, {row: stamps for row, stamps in times.items() if all(stamps)})
        dropped = False
        for candidates in self._candidate_sets:
            for group in candidates.groups:
                facts = self._facts[group]
                rows = facts.allowed_in(candidates.rows)
                fitting = frozenset(row for row in rows if row == NOWHERE or bounds.fits(row, facts.timestamp))
                if fitting and fitting != rows:
                    self._facts[group] = replace(facts, allowed=fitting)
                    dropped = True
        return dropped

    def _round(self, flow: NetFlow, values: ContentNumbers) -> None:
        choice_sets: list[CandidatePool] = []
        pools: list[Pool] = []
        first = 0
        for candidates in self._candidate_sets:
            choice_sets.append(CandidatePool(candidates, first, self._facts, values))
            pools.append(choice_sets[-1].pool(flow, self._outputs, self._order))
            first += pools[-1].size
        solution = Solver(pools, self._nets(flow, values, choice_sets)).solve()
        self._open.clear()
        self._proposed.clear()
        self._doubted.clear()
        self._candidate_sets = [left for choices in choice_sets if (left := self._take(choices, solution)).groups]

    def _nets(self, flow: NetFlow, values: ContentNumbers, choice_sets: Sequence[CandidatePool]) -> list[VariableNet]:
        undecided = {
            row: (choices.first + at, choices)
            for choices in choice_sets
            for at, row in enumerate(choices.candidates.rows)
        }
        nets = []
        for index in sorted({net for row in undecided for net in flow.of_row.get(row, ())}):
            pins, known = [], set()
            first_row, first_side, _ = flow.nets[index][0]
            computed = first_side == OUT and self._table.op_type(first_row) != PARAMETER
            for row, side, slot in flow.nets[index]:
                in_place = computed and row in flow.effects
                if row in undecided:
                    variable, choices = undecided[row]
                    numbers = choices.numbers(side, slot, in_place=in_place)
                    if (numbers != UNKNOWN).any():
                        pins.append((variable, numbers))
                elif row in self._settled:
                    files = self._facts[self._settled[row]].files
                    known.add(number_at(files, side, slot, values, in_place=in_place))
            known.discard(UNKNOWN)
            if pins and (known or len(pins) > 1):
                nets.append(VariableNet(tuple(pins), frozenset(known) or None))
        return nets

    def _take(self, choices: CandidatePool, solution: Solution) -> Candidates:
        """Settles the decided groups of one set of candidates; returns the rest."""
        candidates = choices.candidates
        variables = range(choices.first, choices.first + choices.size)
        row_of = dict(zip(variables, candidates.rows, strict=False))  # further variables mean: no node
        sure = {variable for variable in variables if solution.possible[variable].sum() == 1}
        decided = {variable for variable in variables if choices.decided(solution.possible[variable])}
        self._strained.update(row for variable, row in row_of.items() if variable in solution.strained)
        for choice, groups in enumerate(choices.holders):
            able = [variable for variable in variables if solution.possible[variable][choice]]
            takers = [row for variable, row in row_of.items() if solution.chosen[variable] == choice]
            given = choices.rows_of(groups, takers, self._order)
            for group in groups:
                if len(able) == len(groups) == 1 and sure.issuperset(able) and given:
                    self._settled[given[group]] = group
                    continue
                rows = tuple(dict.fromkeys(row_of.get(variable, NOWHERE) for variable in able))
                self._open[group] = rows
                self._proposed[group] = given.get(group, NOWHERE)
                self._facts[group] = replace(self._facts[group], allowed=frozenset(rows))
                if not decided.issuperset(able):
                    self._doubted.add(group)
        idle = {
            row
            for variable, row in row_of.items()
            if variable in sure and not choices.holders[solution.chosen[variable]]
        }
        rows = tuple(row for row in candidates.rows if row not in self._settled and row not in idle)
        return Candidates(rows, [group for group in candidates.groups if group in self._open], candidates.named)
