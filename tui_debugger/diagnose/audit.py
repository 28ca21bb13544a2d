"""Audits a run: is each recorded output what arithmetic makes of the recorded inputs?

No second run is needed. Each known operator is computed again from its own recorded inputs (``recompute``). Where
rounding does not explain the recorded output, the operator is named with what is known of the fault: a wrong kernel, a
tensor overwritten before it was saved, the value of an earlier step, a missing update.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.check.flow import DataFlow
from tui_debugger.check.types import Pair, TensorRow
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck, OutputCheck, check_operator
from tui_debugger.diagnose.recompute.judge import NOT_UPDATED, unit_of
from tui_debugger.diagnose.recompute.reader import EARLIER, NO_OUTPUT, ONLY_STATISTICS
from tui_debugger.diagnose.recompute.table import kinds
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.graph.categories import BUFFER_UPDATE, INPUT_UPDATE, OPTIMIZER_UPDATE, gradient_of, update_of
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable
from tui_debugger.model import Progress, ProgressFn, Side, TensorKey, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE, plural
from tui_debugger.text.phrases import tail
from tui_debugger.text.tensors import index_text, stack_text

_CHUNK: Final = 64
"""The number of operators that a worker gets at once."""
_LOOKED_AT: Final = 64
"""The most tensors before and after a wrong node that are tried in place of its own."""
_MOST_TRIED: Final = 1 << 21
"""The most elements of all tried tensors: each trial takes as long as the check itself."""
UPDATE: Final = "update of a parameter"
"""The kind of updates that no node of the dump makes."""


class Fault(Enum):
    """The kind of fault of an output, as a word for tables and documents."""

    WRONG = "wrong"
    """The output is not what the inputs make."""
    OVERWRITTEN = "overwritten"
    """The output was overwritten before it was saved: its reader had the right values."""
    INPUT_OVERWRITTEN = "input_overwritten"
    """An input was overwritten before it was saved: with its producer's output, the node's output is right."""
    STALE = "stale"
    """The output is that of an earlier step."""
    NOT_UPDATED = "not_updated"
    """A parameter was not updated."""


class AuditItem(NamedTuple):
    """A node in a run of its graph; the name verifies that ``row`` is still its row. ``round``: see ``TensorKey``."""

    rank: int
    step: int
    row: int
    round: int
    name: str


Result = OperatorCheck | NotChecked
Elsewhere = Callable[[tuple[AuditItem, ...]], "Future[list[Result] | None] | None"]
"""Gives operators of a rank and step to a worker. None, or a result of None: this process checks them."""


_Batch = tuple[int, tuple[AuditItem, ...]]
"""Operators of a rank and step, with the place of the first operator in the step."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A wrong output.

    Attributes:
        place: in the order of the audit: steps, then execution order, then ranks.
        row: of the node in the node table of its rank.
        kind: of operator.
        key: of the output; None where it is not a tensor of its own.
        text: the fault in a sentence, without the name of the node.
        sound: no input of the node was made by a node that is wrong itself.
        shown_by: other nodes with the same recorded output, such as the module around a function.
    """

    rank: int
    step: int
    place: tuple[int, int, int]
    row: int
    name: str
    kind: str
    check: OutputCheck
    key: TensorKey | None
    fault: Fault
    text: str
    sound: bool = True
    shown_by: tuple[str, ...] = ()


@dataclass(slots=True)
class KindCoverage:
    """The numbers of audited operators of one kind.

    Attributes:
        kind: of operator; the name of the type for unknown ones.
        known: the audit knows how to compute it.
        checked: runs of nodes.
        largest: the largest r among the right ones.
        left: number of runs that were not checked, by reason.
    """

    kind: str
    known: bool = True
    checked: int = 0
    wrong: int = 0
    largest: float = 0.0
    left: Counter[str] = field(default_factory=Counter)

    @property
    def not_checked(self) -> int:
        return sum(self.left.values())

    @property
    def missing(self) -> int:
        """How many were not checked that could have been, had more been dumped."""
        return sum(count for reason, count in self.left.items() if reason not in _NOTHING_MISSING)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The findings and the coverage of an audit.

    ``doubts`` tell why an audit without findings is not clean; ``missing`` has required kinds that could not all be
    checked.
    """

    pairs: tuple[Pair, ...]
    findings: tuple[AuditFinding, ...]
    coverage: tuple[KindCoverage, ...]
    doubts: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    nbytes: int = 0

    @property
    def checked(self) -> int:
        return sum(each.checked for each in self.coverage)

    @property
    def not_checked(self) -> int:
        return sum(each.not_checked for each in self.coverage)

    @property
    def headline(self) -> AuditFinding | None:
        """The first finding whose inputs are sound, else the first one."""
        return next((each for each in self.findings if each.sound), next(iter(self.findings), None))

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong; 1: something is; 2: nothing, or not all that was required, could be audited."""
        if self.findings:
            return 1
        return 2 if not self.checked or self.doubts or self.missing else 0


NO_STEP_BEFORE: Final = "nothing was dumped before the update: the first step"
_CONTAINER: Final = "contains calls that are audited by themselves"
_BACKWARD: Final = "backward"
_NOTHING_MISSING: Final = frozenset({NO_STEP_BEFORE, _CONTAINER, "random"})
"""Reasons that another dump would not remove."""


def audit(
    run: DiagnosedRun,
    pairs: Sequence[Pair],
    progress: ProgressFn = no_progress,
    *,
    nodes: Collection[str] | None = None,
    required: Collection[str] = (),
    elsewhere: Elsewhere | None = None,
) -> AuditReport:
    """Audits (rank, step) pairs of a run; TdbgError where a ``required`` kind of operator does not exist.

    ``nodes`` names the only nodes to look at; all operators of the ``required`` kinds have to be checked; ``elsewhere``
    gives work to others.
    """
    wrong = sorted(set(required) - set(kinds()))
    if wrong:
        raise TdbgError(
            f"no kind of operator is called {wrong[0]!r}",
            where=f"--require {','.join(required)}",
            hint="one of " + ", ".join(kinds()),
        )
    audited = _Audit(run, pairs, progress)
    items = [each for each in audited.items() if nodes is None or each.name in nodes]
    audited.take_all(items, elsewhere)
    if nodes is None:
        audited.look_at_updates()
    return audited.report(required)


def check_items(run: DiagnosedRun, items: Sequence[AuditItem]) -> list[Result] | None:
    """Checks some nodes of a step; None where this run lists its nodes differently or cannot be read fully."""
    rank, step = items[0][:2]
    run.flow(rank).table(step)
    found: list[Result] = []
    for item in items:
        nodes = run.nodes(rank)
        if item.row >= len(nodes) or nodes.names[item.row] != item.name:
            return None
        found.append(_check(run, item))
    return None if run.unreadable([(rank, step)]) else found


def _check(run: DiagnosedRun, item: AuditItem, instead: Mapping[tuple[str, int], Array] | None = None) -> Result:
    return check_operator(run, item.rank, item.step, item.row, round=item.round, instead=instead)


class _Audit:
    def __init__(self, run: DiagnosedRun, pairs: Sequence[Pair], progress: ProgressFn) -> None:
        self.run, self.pairs, self.progress = run, tuple(pairs), progress
        self.coverage: dict[str, KindCoverage] = {}
        self.findings: list[AuditFinding] = []
        self.doubts: list[str] = []
        self.nbytes = 0
        self.done = self.total = 0

    def take_all(self, items: Sequence[AuditItem], elsewhere: Elsewhere | None) -> None:
        self.total = len(items)
        work = []
        for _, group in groupby(items, key=lambda item: item[:2]):
            of_step = tuple(group)
            work += [(start, of_step[start : start + _CHUNK]) for start in range(0, len(of_step), _CHUNK)]
        for start, batch, results in self._results(work, elsewhere):
            self._take(start, batch, results)

    def report(self, required: Collection[str]) -> AuditReport:
        for part in self.run.unreadable(self.pairs):
            self.doubts.append(f"{part.where} ({part.why})")
        findings = self._ordered()
        order = sorted(self.coverage.values(), key=lambda each: (not each.known, -each.checked - each.not_checked))
        return AuditReport(
            self.pairs, findings, tuple(order), tuple(self.doubts), tuple(self._missing(required)), self.nbytes
        )

    # -- what there is -----------------------------------------------------------------------------

    def items(self) -> Iterator[AuditItem]:
        for rank, step in self.pairs:
            yield from self._items(rank, step)

    def _items(self, rank: int, step: int) -> list[AuditItem]:
        """The nodes of a step in execution order; nodes that only write parameters come last."""
        table = self.run.flow(rank, self.progress).table(step)
        nodes, scope = self.run.nodes(rank), self.run.in_scope(rank)
        places = dict.fromkeys(zip(table.node.tolist(), table.round.tolist(), strict=True))
        there = {row for row, _ in places}
        updating = np.isin(
            nodes.type_id, [at for at, name in enumerate(nodes.types) if update_of(name) or name in _WRITE_ONLY]
        )
        late = sorted((int(nodes.order[row]), row) for row in np.flatnonzero(updating).tolist() if row not in there)
        found = [*places, *((row, 0) for _, row in late)]
        types = [name in _NOTHING_COMPUTED for name in nodes.types]
        return [
            AuditItem(rank, step, row, of, nodes.names[row])
            for row, of in found
            if not types[int(nodes.type_id[row])] and (row >= len(scope) or scope[row])
        ]

    def _results(
        self, work: Sequence[_Batch], elsewhere: Elsewhere | None
    ) -> Iterator[tuple[int, tuple[AuditItem, ...], Iterable[Result]]]:
        """Checks all work, and yields results in order, also those of others."""
        waiting: deque[tuple[_Batch, Future[list[Result] | None] | None]] = deque()
        most = 2 * self.run.workers.parallel
        left = deque(work)
        while left or waiting:
            while left and len(waiting) < most:
                future = elsewhere(left[0][1]) if elsewhere is not None else None
                waiting.append((left.popleft(), future))
                if future is None:
                    break
            (start, items), future = waiting.popleft()
            results = _answer(future, self._tick) if future is not None else None
            yield start, items, results if results is not None else self._here(items)

    def _here(self, items: Iterable[AuditItem]) -> Iterator[Result]:
        for item in items:
            self._tick(item.name)
            yield _check(self.run, item)

    def _tick(self, name: str = "") -> None:
        self.progress(Progress(self.done, self.total, tail(name) or "checking operators"))

    # -- what came out -----------------------------------------------------------------------------

    def _take(self, start: int, items: Sequence[AuditItem], results: Iterable[Result]) -> None:
        for at, (item, result) in enumerate(zip(items, results, strict=True), start):
            self.done += 1
            if isinstance(result, NotChecked):
                self._leave(item, result)
                continue
            self.nbytes += result.nbytes
            row = self._kind(result.kind)
            row.checked += 1
            row.wrong += result.wrong
            if not result.wrong:
                row.largest = max([row.largest, *(each.r for each in result.outputs)])
                continue
            for output in result.outputs:
                if output.wrong:
                    self._find(at, item, result.kind, output)

    def _kind(self, kind: str, *, known: bool = True) -> KindCoverage:
        return self.coverage.setdefault(kind, KindCoverage(kind, known))

    def _leave(self, item: AuditItem, result: NotChecked) -> None:
        nodes = self.run.nodes(item.rank)
        reason, op_type = result.reason, nodes.op_type(item.row)
        if reason.startswith(EARLIER) and list(self.run.around.steps(item.rank))[:1] == [item.step]:
            reason = NO_STEP_BEFORE
        if result.kind in _VIEWS and reason in _NO_OUTPUT:
            return  # a view shows the memory of a tensor that is audited by itself
        if result.failed:
            self.doubts.append(f"rank {item.rank} step {item.step}: {item.name}: {reason}")
        known = bool(result.kind)
        if not known and reason.startswith(("module not known", "operator not known")):
            # A function called outside any module has a scope beside the module, not in it.
            scope = nodes.paths[item.row].rpartition("/")[0]
            inside = reason.startswith("module") and scope in nodes.memo(_inner_scopes)
            reason = _CONTAINER if inside else "not known"
        if reason.startswith(_BACKWARD):
            op_type = "backward"
        self._kind(result.kind or ("module" if reason == _CONTAINER else op_type), known=known).left[reason] += 1

    def _find(self, at: int, item: AuditItem, kind: str, output: OutputCheck) -> None:
        rank, step = item[:2]
        for number, other in enumerate(self.findings):
            same = (other.rank, other.step, other.kind) == (rank, step, kind) and other.name != item.name
            if same and _is_alike(other.check, output):
                self.findings[number] = replace(other, shown_by=(*other.shown_by, item.name))
                return
        search = _CauseSearch(self.run, item, output)
        fault, text = search.fault()
        place, key = (self.pairs.index((rank, step)), at, rank), search.row.key if search.row is not None else None
        self.findings.append(AuditFinding(rank, step, place, item.row, item.name, kind, output, key, fault, text))

    def _ordered(self) -> tuple[AuditFinding, ...]:
        """All findings in order, with ``sound`` set."""
        steps: dict[int, int] = {}
        for _, step in self.pairs:
            steps.setdefault(step, len(steps))
        found = sorted(self.findings, key=lambda each: (steps[each.step], each.place[1], each.rank))
        wrong = {(each.rank, each.step, each.row) for each in found}
        return tuple(replace(each, sound=not self._holders_of(each) & wrong) for each in found)

    def _holders_of(self, finding: AuditFinding) -> set[tuple[int, int, int]]:
        held = self.run.flow(finding.rank).holders(finding.row) if finding.row >= 0 else []
        return {(finding.rank, finding.step, each.row) for each in held if each.row != finding.row}

    def _missing(self, required: Collection[str]) -> Iterator[tuple[str, str]]:
        for kind in required:
            row = self.coverage.get(kind)
            if row is None:
                yield kind, "none is in what was audited"
            elif row.missing or not row.checked:
                worst = row.left.most_common(1)
                yield kind, f"{row.not_checked} of {row.checked + row.not_checked} not checked: {worst[0][0]}"

    # -- updates that no node makes ------------------------------------------------------------------

    def look_at_updates(self) -> None:
        """Looks for parameters that stay unchanged although others move and their gradients are not small."""
        for rank in dict.fromkeys(rank for rank, _ in self.pairs):
            steps = [step for of, step in self.pairs if of == rank]
            for step in steps:
                self.progress(Progress(self.done, self.total, f"updates of step {step}"))
                moves = list(_moves(self.run, rank, step))
                if not moves:
                    continue
                row = self._kind(UPDATE)
                row.checked += len(moves)
                for move in _stuck(moves):
                    row.wrong += 1
                    check = OutputCheck(0, math.inf, (), math.inf, move.expected, 0.0, (NOT_UPDATED, ""))
                    text = (
                        f"it was not updated: step {move.key.step} has what step {step} had, although its gradient's "
                        f"norm is {move.gradient:.4g}; parameters beside it moved"
                    )
                    at = (self.pairs.index((rank, step)), 1 << 30, rank)
                    node = self.run.nodes(rank).find(move.key.node, move.key.graph)
                    self.findings.append(
                        AuditFinding(
                            rank, step, at, node, move.key.node, UPDATE, check, move.key, Fault.NOT_UPDATED, text
                        )
                    )


_VIEWS: Final = frozenset({"reshape", "transpose", "expand", "split"})
"""Kinds of operators that compute nothing."""
_NO_OUTPUT: Final = frozenset({ONLY_STATISTICS, NO_OUTPUT})
_NOTHING_COMPUTED: Final = frozenset({PARAMETER, CONSTANT, "LearningRate", BUFFER_UPDATE, INPUT_UPDATE})
"""Types of nodes that stand for an existing value."""
_WRITE_ONLY: Final = frozenset({"Assign", "AssignAdd", "AssignSub", OPTIMIZER_UPDATE})


def _is_alike(one: OutputCheck, other: OutputCheck) -> bool:
    """Tells whether two checks are of the same output, recorded twice."""
    found = one.found == other.found or (math.isnan(one.found) and math.isnan(other.found))
    return found and (one.worst, one.r, one.expected) == (other.worst, other.r, other.expected)


def _inner_scopes(nodes: NodeTable) -> set[str]:
    """Scopes with other scopes or several nodes below: a module there may be made of them."""
    counts: Counter[str] = Counter()
    for path in nodes.paths:
        scope = path.rpartition("/")[0]
        counts[scope] += 1
        while "/" in scope:
            scope = scope.rpartition("/")[0]
            counts[scope] += 2
    return {scope for scope, count in counts.items() if count > 1}


def _answer(future: Future[list[Result] | None], tick: Callable[[], None]) -> list[Result] | None:
    while True:
        tick()
        try:
            return future.result(timeout=0.1)
        except TimeoutError:
            if future.done():
                return None
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever became of the worker, the items are checked here
            return None


class _CauseSearch:
    """Looks for the cause of a wrong output: tensors around it that would make it right."""

    def __init__(self, run: DiagnosedRun, item: AuditItem, output: OutputCheck) -> None:
        self.run, self.item, self.output = run, item, output
        self.rows = run.tensor_rows(*item[:4])
        self.row = self._output_row()

    def _output_row(self) -> TensorRow | None:
        """The tensor of the output; for operators that overwrite parameters, the parameter."""
        slot, update = self.output.slot, update_of(self.run.nodes(self.item.rank).op_type(self.item.row))
        outputs = [row for row in self.rows if row.role == "out" and row.slot == slot and row.has_value]
        parameters = [row for row in self.rows if row.role == "param"]
        if update is not None or (not outputs and parameters):
            return parameters[min(slot, len(parameters) - 1)] if parameters else None
        return outputs[0] if outputs else None

    def fault(self) -> tuple[Fault, str]:
        word, text = self.output.difference
        if word == NOT_UPDATED:
            return Fault.NOT_UPDATED, f"it was not updated: {text}"
        row = self.row
        if row is not None and row.role == "out":
            try:
                found = self._stale(row) or self._output_overwritten(row) or self._input_overwritten()
            except (TdbgError, OSError, ValueError):
                found = None
            if found is not None:
                return found
        detail = f": {text}" if text else ""
        return Fault.WRONG, f"its output is not what its inputs make{detail}"

    def _stale(self, row: TensorRow) -> tuple[Fault, str] | None:
        before = self.run.before(row.key)
        if before is None or self.run.spec(before) is None:
            return None
        now, then = self.run.read(row.key), self.run.read(before)
        if now.shape != then.shape or now.size < 2 or not np.array_equal(now, then) or not np.any(now != now.flat[0]):
            return None
        return Fault.STALE, f"its output is that of step {before.step}, although its inputs are others"

    def _output_overwritten(self, row: TensorRow) -> tuple[Fault, str] | None:
        recorded = self.run.read(row.key)
        for name, other in self._others("in", recorded):
            if self._may_be_right(other) and self._is_right({("out", self.output.slot): other}):
                detail = f" ({self.output.difference[1]})" if self.output.difference[1] else ""
                text = f"its output was written over before it was saved{detail}: {name} read the right one"
                return Fault.OVERWRITTEN, text
        return None

    def _input_overwritten(self) -> tuple[Fault, str] | None:
        for row in self.rows:
            if row.role != "in" or not row.has_value:
                continue
            recorded = self.run.read(row.key)
            for name, other in self._others("out", recorded):
                if self._is_right({("in", row.slot): other}):
                    made = f"with the output of {name} it is right"
                    text = f"its input {row.slot} was written over before it was saved: {made}"
                    return Fault.INPUT_OVERWRITTEN, text
        return None

    def _may_be_right(self, other: Array) -> bool:
        """A quick check: whether a tensor has about the right value where the output is farthest off."""
        check = self.output
        if not check.worst and other.ndim:
            return True
        off = abs(float(other[check.worst]) - check.expected)
        return off <= max(
            64 * (unit_of(other.dtype) or 0.0) * abs(check.expected), abs(check.found - check.expected) / 8
        )

    def _is_right(self, instead: dict[tuple[str, int], Array]) -> bool:
        check = _check(self.run, self.item, instead)
        return isinstance(check, OperatorCheck) and not any(
            each.wrong for each in check.outputs if each.slot == self.output.slot
        )

    def _others(self, role: str, like: Array) -> Iterator[tuple[str, Array]]:
        """Tensors of the same type and shape that later nodes read (``in``), or earlier nodes made (``out``)."""
        if not 1 < like.size <= _MOST_TRIED or like.dtype.kind in "biuc":
            return
        rank, step = self.item[:2]
        flow = self.run.flow(rank)
        table, nodes = flow.table(step), flow.nodes
        mine = np.flatnonzero(table.node == self.item.row)
        if not len(mine):
            return
        side = Side.INPUT if role == "in" else Side.OUTPUT
        around = np.arange(mine[-1] + 1, len(table)) if role == "in" else np.arange(mine[0] - 1, -1, -1)
        around = around[table.side[around] == int(side)][:_LOOKED_AT]
        left = _MOST_TRIED
        for index in around.tolist():
            row = int(table.node[index])
            if row == self.item.row or not flow.has_values(table, index) or nodes.op_type(row) in {PARAMETER, CONSTANT}:
                continue
            key = nodes.key(rank, step, row, side, int(table.slot[index]), round=int(table.round[index]))
            found = self.run.read(key)
            if found.shape != like.shape or found.dtype != like.dtype or np.array_equal(found, like):
                continue
            yield nodes.names[row], found
            left -= found.size if role == "out" else 0
            if left <= 0:
                return


class _Move(NamedTuple):
    """A parameter between two steps.

    Attributes:
        key: of the parameter in the later step.
        moved, per_element: root mean squares of the change, and of the gradient in the earlier step.
        unit: how large a change rounding may hide.
        expected: how far it should have moved; set for parameters that did not.
    """

    key: TensorKey
    moved: float
    gradient: float
    per_element: float
    unit: float
    expected: float = 0.0


def _moves(run: DiagnosedRun, rank: int, step: int) -> Iterator[_Move]:
    """Each parameter with a recorded gradient, and how far it moved until the next dumped step."""
    flow: DataFlow = run.flow(rank)
    nodes, steps = flow.nodes, list(run.steps(rank))
    later = steps[steps.index(step) + 1 :][:1] if step in steps else []
    if not later or any(update_of(name) for name in nodes.types):
        return  # the update is a node of its own, and audited as one
    flow.table(step)
    flow.table(later[0])
    parameters = nodes.types.index(PARAMETER) if PARAMETER in nodes.types else -1
    for row in np.flatnonzero(nodes.type_id == parameters).tolist():
        slope = nodes.find(gradient_of(nodes.names[row]), nodes.graph_of(row).name)
        keys = [nodes.key(rank, at, row, Side.OUTPUT) for at in (step, later[0])]
        if slope < 0 or any(run.spec(key) is None for key in keys):
            continue
        come = nodes.key(rank, step, slope, Side.OUTPUT)
        if run.spec(come) is None:
            continue
        try:
            before, after, gradient = (np.asarray(run.read(each)) for each in (*keys, come))
        except (TdbgError, OSError):
            continue
        unit = unit_of(before.dtype)
        if unit is None or before.shape != after.shape or not before.size:
            continue
        one, other, came = (each.astype(np.float64) for each in (before, after, gradient))
        with np.errstate(all="ignore"):
            moved = math.sqrt(float(np.mean((other - one) ** 2)))
            size = float(np.linalg.norm(came))
            hidden = 4 * unit * float(np.max(np.abs(one)))
        if math.isfinite(moved) and math.isfinite(size):
            yield _Move(keys[1], moved, size, size / math.sqrt(came.size), hidden)


def _stuck(moves: Sequence[_Move]) -> Iterator[_Move]:
    """Parameters that stayed although a quarter of their expected move exceeds what rounding hides.

    The expected move is the smaller of two: the least move of the others (optimizers that normalise), and the least
    move by gradient times its own gradient (optimizers that do not).
    """
    went = [each for each in moves if each.moved > 0]
    if len(went) < 2:
        return  # no update between these steps, or too few moves to tell its size
    least = min(each.moved for each in went)
    rate = min((each.moved / each.per_element for each in went if each.per_element), default=0.0)
    for each in moves:
        expected = min(least, rate * each.per_element) / 4
        if not each.moved and expected > each.unit:
            yield each._replace(expected=4 * expected)


_REASONS: Final = 2
"""The most reasons that are listed for a kind of operator."""


def headline_text(finding: AuditFinding) -> str:
    rank = f"rank {finding.rank} " if finding.rank else ""
    return f"{finding.name} at {rank}step {finding.step}: {finding.text}"


def headline_lines(report: AuditReport, run: DiagnosedRun) -> list[str]:
    """Returns the headline with distance, position, expected and found value, and source lines."""
    finding = report.headline
    if finding is None:
        return []
    check = finding.check
    lines = [headline_text(finding)]
    if math.isfinite(check.r) or check.worst:
        lines.append(f"  {finding.kind}, output {check.slot}: r = {r_text(check.r)} (rounding explains 6)")
        lines.append(f"  at {index_text(check.worst)}: {check.expected:.9g} expected, {check.found:.9g} found")
    if finding.shown_by:
        lines.append(f"  the same output is that of {', '.join(finding.shown_by)}")
    lines += [f"  {text}" for text in stack_text(run.nodes(finding.rank).stack(finding.row))]
    return [clean(line) for line in lines]


def r_text(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "inf"


def verdict_text(report: AuditReport) -> str:
    if report.findings:
        nodes = len(report.findings) + sum(len(finding.shown_by) for finding in report.findings)
        counted = f", recorded of {nodes:,} nodes" if nodes > len(report.findings) else ""  # the table counts nodes
        return f"{plural(len(report.findings), 'output')} wrong{counted}"
    if not report.checked:
        return "cannot judge: no operator could be checked"
    if report.missing:
        kind, why = report.missing[0]
        return f"cannot judge: {kind} was required: {why}"
    if report.doubts:
        return f"cannot judge: {report.doubts[0]}"
    return "no known operator is wrong"


def coverage_text(report: AuditReport) -> str:
    ranks, steps = {rank for rank, _ in report.pairs}, {step for _, step in report.pairs}
    unknown = sum(each.not_checked for each in report.coverage if not each.known)
    known = report.not_checked - unknown
    why = [f"{known} lack a recorded value"] * bool(known) + [f"{unknown} have no known rule"] * bool(unknown)
    of = report.checked + report.not_checked
    checked = f"{plural(report.checked, 'operator')} checked of {of}" + f": {', '.join(why)}" * bool(why)
    return f"{checked}; {plural(len(steps), 'step')} of {plural(len(ranks), 'rank')}"


def finding_cells(finding: AuditFinding) -> tuple[str, ...]:
    check = finding.check
    return (
        str(finding.step),
        str(finding.rank),
        finding.kind,
        r_text(check.r),
        index_text(check.worst),
        f"{check.expected:.6g}",
        f"{check.found:.6g}",
        finding.fault.value,
        finding.name,
    )


def coverage_cells(row: KindCoverage) -> tuple[str, ...]:
    why = "; ".join(f"{reason} ({count})" for reason, count in row.left.most_common(_REASONS))
    more = len(row.left) - _REASONS
    return (
        row.kind,
        str(row.checked) if row.known else NONE,
        str(row.wrong) if row.known else NONE,
        f"{row.largest:.2f}" if row.checked else NONE,
        str(row.not_checked),
        why + (f"; {more} more reasons" if more > 0 else ""),
    )


def check_text(check: OperatorCheck | NotChecked) -> str:
    if isinstance(check, NotChecked):
        return f"its arithmetic was not checked: {check.reason}"
    if not check.wrong:
        return f"its arithmetic is right: r up to {r_text(max(each.r for each in check.outputs))} (wrong from 6 on)"
    worst = max(check.outputs, key=lambda each: (each.wrong, each.r))
    detail = f"; {worst.difference[1]}" if worst.difference[1] else ""
    return (
        f"its arithmetic is wrong: r = {r_text(worst.r)}, at {index_text(worst.worst)} {worst.expected:.6g} expected, "
        f"{worst.found:.6g} found{detail}"
    )
