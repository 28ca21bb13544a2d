"""Which dump files hang on which graph node.

Names say which nodes a group of files may belong to (``candidates``). Where that leaves a choice, as with every
operator of MindSpore 2.7 to 2.10 that shares scope and type with another, data flow decides: the bytes of an input
file equal the bytes of its producer's output file (``flow``, ``values``, ``assign``). What data flow leaves open
is decided by timestamps, as far as a consumer cannot have run before its producer. What is still open then
keeps a consistent choice by name and order, and is marked uncertain.

One step may not tell everything: gradients of a dead layer are all zero, after a NaN everything is NaN. Groups whose
bytes are all alike are interchangeable at that step, which is no doubt but no knowledge either;
``Match.open`` names them, and ``match_files`` with ``earlier`` decides them by another step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.table import PARAMETER, NodeTable
from tui_debugger.sources.mindspore.assign import Net, Pool, Solution, Solver
from tui_debugger.sources.mindspore.ballot import Ballot, GroupFacts, number_at
from tui_debugger.sources.mindspore.candidates import Key, NameIndex, Slate, by_names
from tui_debugger.sources.mindspore.flow import OUT, Flow, build_flow
from tui_debugger.sources.mindspore.ordering import Bounds
from tui_debugger.sources.mindspore.values import UNKNOWN, Known, Load, Values

NOWHERE = -1
"""Row of a group that belongs to no node of the graph."""
READ_AGAIN = 1 << 30
"""Tensors that samples do not tell apart are read whole up to this many bytes together; more are in doubt."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All files of one name in one step and one root graph.

    Attributes:
        op_type, op_name: as in the file name, undecodable bytes as surrogates.
        files: (side, slot, index) of each file; ``index`` is what ``load`` takes. One file per side and slot.
        timestamp: of the group's first file; 0 when unknown.
    """

    op_type: str
    op_name: str
    files: tuple[tuple[int, int, int], ...]
    timestamp: int = 0

    @property
    def key(self) -> Key:
        """What names the group in every step."""
        return self.op_type, self.op_name


@dataclass(frozen=True)
class Match:
    """Where the groups of one call hang.

    Attributes:
        keys: (op_type, op_name) per group.
        node: node row per group, NOWHERE (-1) when the graph has no node for it.
        uncertain: whether other nodes are as consistent and the files differ, or the values contradict the graph.
        open: rows that a group could still be exchanged with, for groups that are uncertain or whose bytes equal
            another's at this step. Another step can decide them (``match_files`` with ``earlier``).
    """

    keys: tuple[Key, ...]
    node: npt.NDArray[np.int32]
    uncertain: npt.NDArray[np.bool_]
    open: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def match_files(
    table: NodeTable,
    groups: Sequence[FileGroup],
    load: Load,
    *,
    root: int | None = None,
    earlier: Match | None = None,
    known: Known | None = None,
) -> Match:
    """Decides which node each group belongs to.

    Reads files only where names leave a choice, and of big ones a sample first.

    Args:
        table: nodes, with edges.
        groups: the groups of one step and one root graph.
        load: array of a file by index; UnreadableTensorError makes it evidence for nothing.
        root: id of that root graph; None for all graphs of the table.
        earlier: what another step of the same root graph gave: its decided groups stay, its open ones are
            decided among what it left possible.
        known: digests of files that need not be read; takes those of files that were.
    """
    keys = tuple([group.key for group in groups])
    return match_names(table, keys, lambda: groups, Reading(load, known), root=root, earlier=earlier)


@dataclass(frozen=True, slots=True)
class Reading:
    """How contents of files are learned: see ``match_files``."""

    load: Load
    known: Known | None = None


def match_names(
    table: NodeTable,
    keys: tuple[Key, ...],
    groups: Callable[[], Sequence[FileGroup]],
    reading: Reading,
    *,
    root: int | None = None,
    earlier: Match | None = None,
) -> Match:
    """``match_files`` for hundreds of thousands of names: groups are made (in the order of ``keys``) only if needed."""
    settled, slates = by_names(NameIndex(table, root), keys)
    if not slates:
        return _result(keys, settled, {})
    matching = _Matching(table, (keys, groups()), reading, earlier)
    matching.settle(settled)
    for slate in slates:
        matching.enter(slate)
    matching.run()
    return matching.result()


def _result(keys: tuple[Key, ...], settled: Mapping[int, int], proposed: Mapping[int, int]) -> Match:
    """A match without doubts; ``settled`` are groups by row, ``proposed`` rows by group."""
    node = np.full(len(keys), NOWHERE, np.int32)
    groups = np.fromiter(settled.values(), np.int64, len(settled))
    node[groups] = np.fromiter(settled, np.int32, len(settled))
    for group, row in proposed.items():
        node[group] = row
    return Match(keys, node, np.zeros(len(keys), np.bool_))


class _Matching:
    """The state of one call: settled groups, and slates that shrink round by round."""

    def __init__(
        self,
        table: NodeTable,
        files: tuple[tuple[Key, ...], Sequence[FileGroup]],
        reading: Reading,
        earlier: Match | None,
    ) -> None:
        self._table, self._reading = table, reading
        self._keys, groups = files
        self._facts = [
            GroupFacts({(side, slot): index for side, slot, index in group.files}, group.timestamp) for group in groups
        ]
        self._earlier = _Earlier(earlier)
        self._order: Sequence[int] = table.order.tolist()
        self._outputs: Sequence[int] = table.outputs.tolist()
        self._slates: list[Slate] = []
        self._settled: dict[int, int] = {}  # group by row
        self._proposed: dict[int, int] = {}  # row by group
        self._open: dict[int, tuple[int, ...]] = {}
        self._doubted: set[int] = set()
        self._strained: set[int] = set()

    def settle(self, groups: Mapping[int, int]) -> None:
        """Takes groups by row that names alone decide."""
        self._settled.update(groups)

    def enter(self, slate: Slate) -> None:
        """Takes a slate: what names or an earlier step decide is settled at once."""
        rows = dict.fromkeys(slate.rows)
        waiting = []
        for group in slate.groups:
            before = self._earlier.rows(self._keys[group])
            if len(before) == 1 and before[0] in rows:
                del rows[before[0]]
                self._settled[before[0]] = group
            else:
                waiting.append(group)
                if before:
                    self._facts[group] = replace(self._facts[group], allowed=frozenset(before))
        left = Slate(tuple(rows), waiting, slate.named)
        if left.settled:
            self._settled[left.rows[0]] = left.groups[0]
        elif left.rows and left.groups:
            self._slates.append(left)

    def run(self) -> None:
        """Data flow by samples, then by whole files where samples leave a choice, then timestamps."""
        if not self._slates:
            return
        flow = self._table.memo(build_flow)
        values = Values(self._reading.load, known=self._reading.known)
        self._round(flow, values)
        if 0 < self._sampled_bytes(values) <= READ_AGAIN:
            values = Values(self._reading.load, whole=True, known=self._reading.known)
            self._round(flow, values)
        if self._slates and self._filter_by_time():
            self._round(flow, values)
        if self._sampled_bytes(values):  # alike by samples only
            self._doubted.update(group for slate in self._slates for group in slate.groups)

    def result(self) -> Match:
        """What came out."""
        match = _result(self._keys, self._settled, self._proposed)
        match.uncertain[list(self._doubted)] = True
        match.uncertain[:] |= np.isin(match.node, list(self._strained)) & (match.node != NOWHERE)
        for group, key in enumerate(self._keys) if self._earlier.doubts else ():
            match.uncertain[group] |= self._earlier.doubted(key) and (
                group in self._open or len(self._earlier.rows(key)) == 1
            )
        return replace(match, open=self._open)

    def _sampled_bytes(self, values: Values) -> int:
        """Bytes of what is open and known by samples only."""
        groups = (group for slate in self._slates for group in slate.groups)
        return sum(values.sampled(index) for group in groups for index in self._facts[group].files.values())

    def _filter_by_time(self) -> bool:
        """Drops rows whose producers ran later, or consumers earlier, than a group; whether that dropped any."""
        times = {
            row: [self._facts[group].timestamp]
            for row, group in self._settled.items()
            if self._table.op_type(row) != PARAMETER
        }
        for slate in self._slates:
            if len(slate.rows) > len(slate.groups):
                continue  # a row without files may have run at any time
            for row in slate.rows:
                able = (facts for group in slate.groups if row in (facts := self._facts[group]).allowed_in(slate.rows))
                times[row] = sorted(facts.timestamp for facts in able)
        bounds = Bounds(self._table, {row: stamps for row, stamps in times.items() if all(stamps)})
        dropped = False
        for slate in self._slates:
            for group in slate.groups:
                facts = self._facts[group]
                rows = facts.allowed_in(slate.rows)
                fitting = frozenset(row for row in rows if row == NOWHERE or bounds.fits(row, facts.timestamp))
                if fitting and fitting != rows:
                    self._facts[group] = replace(facts, allowed=fitting)
                    dropped = True
        return dropped

    def _round(self, flow: Flow, values: Values) -> None:
        ballots: list[Ballot] = []
        pools: list[Pool] = []
        first = 0
        for slate in self._slates:
            ballots.append(Ballot(slate, first, self._facts, values))
            pools.append(ballots[-1].pool(flow, self._outputs, self._order))
            first += pools[-1].size
        solution = Solver(pools, self._nets(flow, values, ballots)).solve()
        self._open.clear()
        self._proposed.clear()
        self._doubted.clear()
        self._slates = [left for ballot in ballots if (left := self._take(ballot, solution)).groups]

    def _nets(self, flow: Flow, values: Values, ballots: Sequence[Ballot]) -> list[Net]:
        voting = {row: (ballot.first + at, ballot) for ballot in ballots for at, row in enumerate(ballot.slate.rows)}
        nets = []
        for index in sorted({net for row in voting for net in flow.of_row.get(row, ())}):
            pins, known = [], set()
            first_row, first_side, _ = flow.nets[index][0]
            computed = first_side == OUT and self._table.op_type(first_row) != PARAMETER
            for row, side, slot in flow.nets[index]:
                in_place = computed and row in flow.effects
                if row in voting:
                    variable, ballot = voting[row]
                    numbers = ballot.numbers(side, slot, in_place=in_place)
                    if (numbers != UNKNOWN).any():
                        pins.append((variable, numbers))
                elif row in self._settled:
                    files = self._facts[self._settled[row]].files
                    known.add(number_at(files, side, slot, values, in_place=in_place))
            known.discard(UNKNOWN)
            if pins and (known or len(pins) > 1):
                nets.append(Net(tuple(pins), frozenset(known) or None))
        return nets

    def _take(self, ballot: Ballot, solution: Solution) -> Slate:
        """Settles what the solution decides about one slate; what is left of it."""
        slate = ballot.slate
        variables = range(ballot.first, ballot.first + ballot.size)
        row_of = dict(zip(variables, slate.rows, strict=False))  # further variables mean: no node
        sure = {variable for variable in variables if solution.possible[variable].sum() == 1}
        decided = {variable for variable in variables if ballot.decided(solution.possible[variable])}
        self._strained.update(row for variable, row in row_of.items() if variable in solution.strained)
        for choice, groups in enumerate(ballot.holders):
            able = [variable for variable in variables if solution.possible[variable][choice]]
            takers = [row for variable, row in row_of.items() if solution.chosen[variable] == choice]
            given = ballot.hand_out(groups, takers, self._order)
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
            if variable in sure and not ballot.holders[solution.chosen[variable]]
        }
        rows = tuple(row for row in slate.rows if row not in self._settled and row not in idle)
        return Slate(rows, [group for group in slate.groups if group in self._open], slate.named)


class _Earlier:
    """What an earlier step knows, by name."""

    def __init__(self, match: Match | None) -> None:
        self._rows: dict[Key, tuple[int, ...]] = {}
        self._doubted: set[Key] = set()
        if match is None:
            return
        for group, key in enumerate(match.keys):
            self._rows[key] = match.open.get(group, (int(match.node[group]),))
            if match.uncertain[group]:
                self._doubted.add(key)

    @property
    def doubts(self) -> bool:
        """Whether any name was uncertain."""
        return bool(self._doubted)

    def rows(self, key: Key) -> tuple[int, ...]:
        """Rows that remained for a name; one when it was decided, none when the name is new."""
        return self._rows.get(key, ())

    def doubted(self, key: Key) -> bool:
        """Whether the name was uncertain."""
        return key in self._doubted
