"""Both node trees as one: common and one-sided nodes, the worst state of each scope, and where differences go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask, UInt8
from tui_debugger.diagnose.runs.results import (
    DiffFinding,
    JudgedNode,
    NodeJudgement,
    OneSided,
    RunsReport,
    StepPlace,
    StepReport,
)
from tui_debugger.diagnose.runs.text import times_text
from tui_debugger.graph.table import NodeTable, real_consumers
from tui_debugger.graph.tree import ScopeTree, tree_of, tree_paths
from tui_debugger.model import Side, TensorKey


class TreeState(IntEnum):
    """The state of an entry; a scope has the greatest below it."""

    NOTHING = 0
    SAME = 1
    NOT_COMPARED = 2
    ONE_SIDED = 3
    """Only one run has the node, and it makes no difference."""
    ROUNDING = 4
    INHERITED = 5
    INSIDE = 6
    DOUBT = 7
    INTRODUCED = 8


GLYPHS: Final = dict(zip(TreeState, " =-+~↓◇?◆", strict=True))
_WORDS: Final = (
    "",
    "same",
    "not compared",
    "one run only",
    "rounding",
    "inherited",
    "inside it",
    "doubt",
    "introduced",
)
WORDS: Final = dict(zip(TreeState, _WORDS, strict=True))
_STATES: Final = {
    each: TreeState.DOUBT if each is NodeJudgement.UNPROVEN else TreeState[each.name] for each in NodeJudgement
}
BOTH: Final = 0
"""Which run has a node: both, else 1 for A, 2 for B."""
_MIXED: Final = 3


class Show(IntEnum):
    """Which entries are shown."""

    FINDINGS = 1
    DIFFERENCES = 2
    ALL = 3
    ONE_SIDED = 4
    DOUBTS = 5

    @property
    def words(self) -> str:
        return {
            Show.FINDINGS: "where differences begin",
            Show.DIFFERENCES: "what differs",
            Show.ALL: "all nodes",
            Show.ONE_SIDED: "in one run only",
            Show.DOUBTS: "doubts",
        }[self]


class TreeHop(NamedTuple):
    """A node that a difference was passed on to; ``others`` counts further nodes that it went to."""

    row: int
    others: int


@dataclass(frozen=True, eq=False)
class StepTree:
    """A step of both runs as one tree.

    Attributes:
        items: the node of each row.
        tree: the scopes of the first run, with additional ones of the second.
        state: ``TreeState`` of each row.
        side: which run has each row.
        notes: by row, why it is a doubt, or why it makes no difference.
    """

    report: RunsReport
    step: StepReport
    items: Sequence[JudgedNode | OneSided]
    tree: ScopeTree
    state: UInt8
    side: UInt8
    notes: Mapping[int, str]

    @classmethod
    def of(cls, report: RunsReport, step: StepReport) -> StepTree:
        tables = report.runs[0].nodes(step.place.rank_a), report.runs[1].nodes(step.place.rank_b)
        items: list[JudgedNode | OneSided] = [*step.judged, *step.one_sided]
        paths = _paths(step, tables)
        tree = tree_of(paths, _order(step, tables), np.ones(len(items), np.bool_))
        side = np.zeros(len(items), np.uint8)
        side[len(step.judged) :] = [1 + one.side for one in step.one_sided]
        state, notes = _states(step, tables[0])
        found = cls(report, step, items, tree, state, side, notes)
        for finding in found.findings:
            row = found.row_of(finding)
            if row >= 0:
                state[row] = TreeState.INTRODUCED
        return found

    # -- rows --------------------------------------------------------------------------------------

    @property
    def place(self) -> StepPlace:
        return self.step.place

    @cached_property
    def findings(self) -> tuple[DiffFinding, ...]:
        return tuple(each for each in self.report.findings if each.place == self.place)

    @cached_property
    def _rows(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first row of the tree by node row, for each run."""
        found: tuple[dict[int, int], dict[int, int]] = {}, {}
        for row, item in enumerate(self.items):
            if isinstance(item, OneSided):
                found[item.side].setdefault(item.row, row)
            else:
                found[0].setdefault(item.match.a, row)
                found[1].setdefault(item.match.b, row)
        return found

    def row_of(self, finding: DiffFinding) -> int:
        """Returns the row where a difference begins, or its first reader; -1 without one."""
        for side, row in enumerate((finding.row_a, finding.row_b)):
            if row in self._rows[side]:
                return self._rows[side][row]
        reader = self.report.runs[0].nodes(self.place.rank_a).find(finding.consumer) if finding.consumer else -1
        return self._rows[0].get(reader, -1)

    def row_of_node(self, node: int) -> int:
        return self._rows[0].get(node, -1)

    @cached_property
    def _finding_of(self) -> dict[int, DiffFinding]:
        return {self.row_of(finding): finding for finding in reversed(self.findings)}

    def finding_at(self, row: int) -> DiffFinding | None:
        return self._finding_of.get(row) if row >= 0 else None

    def name(self, row: int) -> str:
        item = self.items[row]
        if isinstance(item, OneSided):
            return item.name
        return self.report.runs[0].nodes(self.place.rank_a).names[item.match.a]

    def keys(self, row: int, finding: DiffFinding | None = None) -> tuple[TensorKey | None, TensorKey | None]:
        """Returns the tensors of a finding, else the output that differs most, in both runs."""
        item = self.items[row]
        if finding is not None and all(finding.keys):
            return finding.keys
        if isinstance(item, OneSided):
            key = self._output(item.side, item.row, None, 0)
            return (key, None) if item.side == 0 else (None, key)
        nth = sum(isinstance(each, JudgedNode) and each.match.a == item.match.a for each in self.items[:row])
        return self._output(0, item.match.a, item.slot, nth), self._output(1, item.match.b, item.slot, nth)

    def _output(self, side: int, row: int, slot: int | None, nth: int) -> TensorKey | None:
        """Returns an output (slot None: the first) of the ``nth`` run of a node within the step."""
        flow, step = self.report.runs[side].flow(self.place[side]), self.place[2 + side]
        table = flow.table(step)
        rounds = sorted(set(table.round[table.of_node(row, every=True)].tolist())) or [0]
        of = rounds[min(nth, len(rounds) - 1)]
        slots = flow.slots(step, row, Side.OUTPUT, of)
        if slot is None:
            slot = slots[0] if slots else None
        return None if slot not in slots else flow.key(flow.located(step, row, Side.OUTPUT, slot, of))

    # -- entries of the tree -------------------------------------------------------------------------

    @cached_property
    def states(self) -> UInt8:
        found: UInt8 = self._below(self.state, np.maximum)
        return found

    @cached_property
    def sides(self) -> UInt8:
        """Which run has an entry: 0 both, 1 only the first, 2 only the second."""
        bits = np.where(self.side == BOTH, _MIXED, self.side).astype(np.uint8)
        found = self._below(bits, np.bitwise_or)
        return np.where(found == _MIXED, BOTH, found).astype(np.uint8)

    def _below(self, values: UInt8, join: np.ufunc) -> UInt8:
        tree = self.tree
        if not len(tree):
            return np.zeros(0, np.uint8)
        own = np.where(tree.row >= 0, values[tree.row], 0).astype(np.uint8)
        first = np.arange(len(tree))
        ends = np.stack([first, first + tree.size], axis=1).ravel()
        joined: UInt8 = join.reduceat(np.append(own, np.uint8(0)), ends)[::2]
        return joined

    def shown(self, show: Show) -> Mask | None:
        """Mask over entries; None: all."""
        if show is Show.ALL:
            return None
        rows = {
            Show.FINDINGS: self.state == TreeState.INTRODUCED,
            Show.DIFFERENCES: (self.state >= TreeState.INHERITED) | (self.side != BOTH),
            Show.ONE_SIDED: self.side != BOTH,
            Show.DOUBTS: self.state == TreeState.DOUBT,
        }[show]
        return self.tree.keep_mask(rows)

    def count(self, show: Show) -> int:
        mask = self.shown(show)
        return len(self.items) if mask is None else int(np.count_nonzero(mask & (self.tree.row >= 0)))

    def judgement_words(self, row: int) -> str:
        item, note = self.items[row], self.notes.get(row, "")
        state = TreeState(int(self.state[row]))
        if state is TreeState.INTRODUCED:
            finding = self.finding_at(row)
            return WORDS[state] if finding is None else finding.kind.word
        if isinstance(item, OneSided):
            return f"only in {'AB'[item.side]}: {note}"
        return f"{WORDS[state]}: {note}" if note else WORDS[state]

    # -- where a difference goes ---------------------------------------------------------------------

    def path_from(self, finding: DiffFinding) -> list[TreeHop]:
        """Follows a difference, each time to the first differing reader."""
        nodes = self.report.runs[0].nodes(self.place.rank_a)
        rows, hops = self._rows[0], list[TreeHop]()
        here = finding.row_a
        if here < 0:
            here = nodes.find(finding.consumer) if finding.consumer else -1
        seen = {here}
        while here >= 0:
            readers = {reader for reader, _ in real_consumers(nodes, here) if reader in rows} - seen
            bad = sorted(
                (rows[reader], reader) for reader in readers if self.state[rows[reader]] >= TreeState.INHERITED
            )
            if not bad:
                break
            row, here = bad[0]
            seen.add(here)
            hops.append(TreeHop(row, len(bad) - 1))
        return hops


def _states(step: StepReport, nodes: NodeTable) -> tuple[UInt8, dict[int, str]]:
    state = np.zeros(len(step.judged) + len(step.one_sided), np.uint8)
    notes: dict[int, str] = {}
    failed = dict(step.failed)
    of_node = {name.rpartition(":")[0]: why for name, why in failed.items()} | failed
    doubtful = {match.rows for match in step.doubtful}
    for row, judged in enumerate(step.judged):
        found = _STATES[judged.judgement]
        why = judged.why
        if found is TreeState.DOUBT:
            why = "not all of its inputs are known"
        elif judged.match.rows in doubtful:
            found, why = max(found, TreeState.DOUBT), "another node may be its partner"
        elif of_node and (name := nodes.names[judged.match.a]) in of_node and found is not TreeState.INTRODUCED:
            found, why = TreeState.DOUBT, of_node[name]
        state[row] = found
        if why:
            notes[row] = why
    for row, one in enumerate(step.one_sided, len(step.judged)):
        state[row] = TreeState.ONE_SIDED if one.covered else TreeState.DOUBT
        notes[row] = one.covered or "nothing around it tells"
    return state, notes


def _paths(step: StepReport, tables: tuple[NodeTable, NodeTable]) -> list[str]:
    """The path of each row; nodes of the second run only go into the matching scope of the first."""
    paths = tree_paths(tables[0]), tree_paths(tables[1])
    found = [paths[0][judged.match.a] for judged in step.judged]
    scopes: dict[str, str] = {}
    for judged, path in zip(step.judged, found, strict=True) if any(one.side for one in step.one_sided) else ():
        one, other = path.rpartition("/")[0], paths[1][judged.match.b].rpartition("/")[0]
        while other and other not in scopes:
            scopes[other] = one
            (one, _, last), (other, _, last_of_other) = one.rpartition("/"), other.rpartition("/")
            if last != last_of_other:
                break
    for each in step.one_sided:
        path = paths[each.side][each.row]
        found.append(path if each.side == 0 else _moved(path, scopes))
    return found


def _moved(path: str, scopes: Mapping[str, str]) -> str:
    scope, _, rest = path.rpartition("/")
    while scope:
        if scope in scopes:
            return f"{scopes[scope]}/{rest}" if scopes[scope] else rest
        scope, _, last = scope.rpartition("/")
        rest = f"{last}/{rest}"
    return path


def _order(step: StepReport, tables: tuple[NodeTable, NodeTable]) -> Int64:
    """A unique number for each row: the first run's order, with one-sided nodes after their predecessors."""
    count, total = len(step.judged), len(step.judged) + len(step.one_sided)
    place = np.arange(total, dtype=np.float64)
    for side in (0, 1):
        own = [judged.match.rows[side] for judged in step.judged]
        order = tables[side].order[np.array(own, np.int64)].astype(np.int64)
        there = np.flatnonzero(order >= 0)
        by_order = there[np.argsort(order[there], kind="stable")]
        for row, one in enumerate(step.one_sided, count):
            if one.side != side:
                continue
            before = int(np.searchsorted(order[by_order], one.order, side="right")) if one.order >= 0 else len(by_order)
            place[row] = by_order[before - 1] + 0.5 if before else -0.5
    keys = np.empty(total, np.int64)
    keys[np.argsort(place, kind="stable")] = np.arange(total)
    return keys


# -- all steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TimesMap:
    """Error over what is expected, of shape (node, step), for common nodes; NaN where nothing was compared."""

    places: tuple[StepPlace, ...]
    nodes: tuple[int, ...]
    names: tuple[str, ...]
    times: npt.NDArray[np.float64]

    @classmethod
    def of(cls, report: RunsReport, ranks: tuple[int, int]) -> TimesMap:
        steps = steps_of(report).get(ranks, [])
        table = report.runs[0].nodes(ranks[0])
        rows: dict[int, int] = {}
        for step in steps:
            for judged in step.judged:
                rows.setdefault(judged.match.a, len(rows))
        times = np.full((len(rows), len(steps)), np.nan)
        for column, step in enumerate(steps):
            for judged in step.judged:
                if judged.worst is not None:
                    row = rows[judged.match.a]
                    times[row, column] = np.fmax(times[row, column], judged.times)
        names = tuple(table.names[node] for node in rows)
        return cls(tuple(step.place for step in steps), tuple(rows), names, times)

    @property
    def levels(self) -> npt.NDArray[np.float64]:
        """log10 of ``times``, at least 0."""
        with np.errstate(divide="ignore"):
            found: npt.NDArray[np.float64] = np.log10(np.maximum(self.times, 1.0))
        return found

    def cell_text(self, row: int, column: int) -> str:
        times, step = float(self.times[row, column]), self.places[column].step_a
        how = "not compared" if np.isnan(times) else f"error ÷ expected {times_text(times)}"
        return f"step {step}  {how}  {self.names[row]}"


def steps_of(report: RunsReport) -> dict[tuple[int, int], list[StepReport]]:
    """Returns the steps by pair of ranks; a rank may be in several pairs, one for each stage."""
    found: dict[tuple[int, int], list[StepReport]] = defaultdict(list)
    for step in report.steps:
        found[step.place.rank_a, step.place.rank_b].append(step)
    return dict(found)


def pair_text(word: str, a: int, b: int) -> str:
    """Returns ``step 3``, or ``step 3 of A, 4 of B``."""
    return f"{word} {a}" if a == b else f"{word} {a} of A, {b} of B"
