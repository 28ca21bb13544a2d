"""Evidence around one tensor: its inputs, its optimizer, the same tensor one step before, the quantities that hit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.causes.by_design_steps import StepDesigns
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain.guidance import Cause, Standing, weighed
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BIAS_ADD_GRADIENT,
    OPTIMIZER_UPDATE,
    divides,
    gradient_of,
    group_start,
    is_learning_rate,
    update_of,
)
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import (
    PARAMETERS,
    TRAINABLE,
    Category,
    ParamResult,
    ProgressFn,
    Side,
    TensorKey,
    TensorStats,
    Verdict,
    WatchResult,
    no_progress,
)
from tui_debugger.stats.fields import QUANTITIES
from tui_debugger.stats.side_by_side import compare
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import param_words, quantity_text, quantity_texts
from tui_debugger.text.phrases import num, tail, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.evaluate import PLAIN
from tui_debugger.watch.expression import NUMBER_FACTS, TEXT_FACTS, filled_in, pretty

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


MOST_BYTES = 1 << 28
"""Larger tensors are not read again for details such as changes and saturation."""
MOST_LAYERS = 48
"""The most layers whose gradients are measured; of more layers, evenly spaced ones."""
MOST_INPUTS = 64
"""The most inputs of a node that are measured: an AddN or Concat may have thousands."""


@dataclass(frozen=True, slots=True)
class OperandEvidence:
    """One of the inputs of the node that made the tensor.

    Attributes:
        producer: row of the node that made it, -1 when unknown.
        source: the end of the producer's name, or of the tensor's own node when that is unknown.
        constant: its producer is a graph constant.
        gradient: its producer is a node of the backward pass.
        upstream: the producer's output, where an explanation goes on; the input itself when that was not dumped.
        designed: it has an Inf that an operator was told to write, such as the -Inf of a mask.
    """

    slot: int
    row: TensorRow
    producer: int
    source: str
    constant: bool
    gradient: bool
    upstream: TensorKey
    designed: bool = False

    @property
    def stats(self) -> TensorStats | None:
        return self.row.stats

    @property
    def label(self) -> str:
        return f"in:{self.slot}"

    @property
    def bad(self) -> bool:
        return self.stats is not None and self.stats.bad and not self.designed


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The update of a parameter, in the step that made the value. Unknown settings are None.

    Attributes:
        name, type: of the update operator.
        rate_row: the tensor that holds the learning rate.
        gradient_upstream: the output of the operator that made the gradient, where an explanation goes on.
        states: the optimizer's own parameters, such as momenta.
        normalised: see ``Settings``.
    """

    name: str
    type: str
    step: int
    rate: float | None
    rate_row: TensorRow | None
    momentum: float | None
    decay: float | None
    gradient: TensorRow | None
    gradient_upstream: TensorKey | None
    states: tuple[TensorRow, ...]
    normalised: bool

    @property
    def of_pytorch(self) -> bool:
        """Our client for PyTorch recorded the update: a gradient that was not recorded does not exist."""
        return self.type == OPTIMIZER_UPDATE

    @property
    def label(self) -> str:
        return "the optimizer" if self.of_pytorch else tail(self.name)


@dataclass(frozen=True, slots=True)
class WeightChange:
    """The change of a weight: mean |Δw|, and mean |w| before."""

    moved: float
    before: float

    @property
    def ratio(self) -> float | None:
        return self.moved / self.before if self.before else None


@dataclass(frozen=True, slots=True)
class WeightAndGradient:
    """A weight's name and the norm of its gradient; None where that was not dumped or nothing is finite."""

    name: str
    norm: float | None


OVERFLOW = WatchResult(0, "tensor_overflow", Verdict.FINDING)


class Evidence:
    """Measures the surroundings of one tensor, on first access. One object per question; not thread-safe."""

    def __init__(
        self,
        session: DiagnosedRun,
        key: TensorKey,
        progress: ProgressFn = no_progress,
        result: WatchResult = OVERFLOW,
    ) -> None:
        """Lists the step; UnreadableTensorError where the run has no such node. ``result`` is to be explained."""
        self.session = session
        self.key = key
        self.progress = progress
        self.result = result
        self._plain = session.row_of(key)
        self.flow = session.flow(key.rank, progress)
        self.flow.table(key.step)
        self.row = self.flow.nodes.find(key.node, key.graph)
        self.type = self.flow.nodes.op_type(self.row)
        self._designs: dict[int, StepDesigns] = {}

    def asked(self, result: WatchResult) -> Evidence:
        """The same evidence, to explain another result."""
        found = copy(self)
        found.result = result
        return found

    # -- the tensor --------------------------------------------------------------------------------

    @cached_property
    def tensor(self) -> TensorRow:
        return self.measured([self._plain])[0]

    @property
    def stats(self) -> TensorStats | None:
        return self.tensor.stats

    @cached_property
    def designed(self) -> bool:
        return self.is_designed(self.tensor)

    @cached_property
    def before(self) -> TensorRow | None:
        earlier = self.session.before(self.key)
        return None if earlier is None else self.at(earlier)

    @property
    def stats_of_before(self) -> TensorStats | None:
        return self.before.stats if self.before is not None else None

    @property
    def adjacent(self) -> bool:
        """The dumped step before is this step or the one directly before it."""
        earlier = self.session.before(self.key)
        return earlier is not None and self.key.step - earlier.step in (0, 1)

    @cached_property
    def change(self) -> WeightChange | None:
        """The change since the dumped step before; None unless both have values that can be read."""
        now, before = self.tensor, self.before
        if before is None or not (self.readable(now) and self.readable(before)):
            return None
        try:
            change, _ = compare(self.session.read(now.key), self.session.read(before.key))
        except (TdbgError, ValueError, TypeError):  # the file broke meanwhile, another shape, or no numbers
            return None
        return WeightChange(change.mean_abs_difference, change.mean_abs_previous)

    @staticmethod
    def readable(row: TensorRow) -> bool:
        """Tells whether the values are local and small enough to be read for a few numbers."""
        return row.has_value and not row.remote and row.meta is not None and row.meta.nbytes <= MOST_BYTES

    @property
    def category(self) -> Category:
        return self.flow.nodes.category_of(self.row)

    @property
    def has_graph(self) -> bool:
        """The node is known from a graph, not only from file names."""
        return not int(self.flow.nodes.flags[self.row]) & NodeFlag.FILE_ONLY

    def name(self, row: int) -> str:
        return self.flow.nodes.names[row]

    # -- what it was made from ---------------------------------------------------------------------

    @cached_property
    def producer(self) -> int:
        """Row of the operator that made it, -1 for a parameter and where unknown."""
        if self.parameter >= 0:
            return -1
        return self.maker if self.maker >= 0 and not self.flow.is_constant(self.maker) else -1

    @property
    def maker(self) -> int:
        """Row of the operator, parameter or constant that it comes from; -1 where no graph names it."""
        return self.row if self.key.side is Side.OUTPUT else self.flow.holder(self.row, self.key.slot).row

    @property
    def producer_type(self) -> str:
        return self.flow.nodes.op_type(self.producer) if self.producer >= 0 else ""

    @cached_property
    def inputs(self) -> tuple[OperandEvidence, ...]:
        return self.inputs_of(self.producer, self.key.step, self.key.round) if self.producer >= 0 else ()

    def inputs_of(self, row: int, step: int, round: int = 0) -> tuple[OperandEvidence, ...]:  # noqa: A002 - see TensorKey
        """Returns the inputs of a node by slot, at most ``MOST_INPUTS``."""
        listed = [each for each in self.session.tensor_rows(self.key.rank, step, row, round) if each.role == "in"]
        found = []
        for each in self.measured(listed[:MOST_INPUTS]):
            producer = self.flow.holder(row, each.slot).row
            known = producer >= 0
            constant = self.flow.is_constant(producer)
            source = tail(self.name(producer) if known else each.key.node)
            gradient = known and self.flow.nodes.category_of(producer) is Category.GRADIENT
            upstream, designed = self.upstream_of(row, each), self.is_designed(each)
            found.append(OperandEvidence(each.slot, each, producer, source, constant, gradient, upstream, designed))
        return tuple(found)

    def is_designed(self, tensor: TensorRow) -> bool:
        stats, key = tensor.stats, tensor.key
        if stats is None or not stats.bad:
            return False
        if key.step not in self._designs:
            measurements = self.session.measurements(self.key.rank, self.progress)
            self._designs[key.step] = StepDesigns(measurements, key.step, self.progress)
        row = self.flow.nodes.find(key.node, key.graph)
        return self._designs[key.step].of_round(key.round).intended_at(row, key.side, key.slot, nan=stats.nan > 0)

    def upstream_of(self, row: int, operand: TensorRow) -> TensorKey:
        """Returns the operator output that an input of a node reads; the input itself when that was not dumped."""
        holder, nodes = self.flow.holder(row, operand.slot), self.flow.nodes
        if holder.row < 0 or nodes.category_of(holder.row) in PARAMETERS or self.flow.is_constant(holder.row):
            return operand.key
        made = self.flow.located(operand.key.step, holder.row, Side.OUTPUT, holder.slot, operand.key.round)
        return operand.key if made.index < 0 else self.flow.key(made)

    @property
    def known_inputs(self) -> tuple[OperandEvidence, ...]:
        return tuple(operand for operand in self.inputs if operand.stats is not None)

    # -- a parameter -------------------------------------------------------------------------------

    @cached_property
    def parameter(self) -> int:
        """Row of the parameter whose value this is, -1 for other tensors."""
        return self.maker if self.maker >= 0 and self.flow.nodes.category_of(self.maker) in PARAMETERS else -1

    @property
    def trained(self) -> bool:
        return self.parameter >= 0 and self.flow.nodes.category_of(self.parameter) in TRAINABLE

    @property
    def wants_gradient(self) -> bool:
        """The graph of our client for PyTorch names a gradient of this parameter."""
        nodes = self.flow.nodes
        return nodes.find(gradient_of(nodes.names[self.parameter]), nodes.graph_of(self.parameter).name) >= 0

    @property
    def carried(self) -> bool:
        """An update keeps its value from step to step, unlike that of a graph input such as the data."""
        return self.parameter >= 0 and self.flow.updated(self.parameter)

    @cached_property
    def updated_in(self) -> int | None:
        """The step whose update made this value of a parameter; None for an initial value.

        A node reads what the step before left in a parameter, unless the node updates the parameter itself.
        """
        if self.key.side is Side.OUTPUT or self.updater[0] == self.row:
            return self.key.step
        return self.flow.previous_step(self.parameter, self.key.step, self.key.round)

    @property
    def initial(self) -> bool:
        """It is a parameter's value before any step of the training, not only before the first dumped step."""
        return self.updated_in is None and self.key.step <= 0

    @cached_property
    def updater(self) -> tuple[int, int]:
        """The row of the node that updates the parameter (-1 when none does), and its input slot."""
        return self.flow.updater(self.parameter) if self.parameter >= 0 else (-1, 0)

    @cached_property
    def trained_in(self) -> int:
        """Row of the same parameter in another graph of the rank, where an operator updates it; -1 when none does."""
        if self.parameter < 0:
            return -1
        rows = (row for row in self.flow.shared(self.parameter) if row != self.parameter)
        return next((row for row in rows if self.flow.updater(row)[0] >= 0), -1)

    @cached_property
    def training(self) -> Evidence | None:
        """The weight after the latest update by another graph since this graph ran before; None without one."""
        if self.trained_in < 0:
            return None
        root = self.flow.nodes.graph_of(self.trained_in).root_id
        own = self.flow.nodes.graph_of(self.row).root_id
        runs = self.session.history(self.key.rank)
        mine = [at for at, run in enumerate(runs) if run.root_graph == own and run.step == self.key.step]
        last = mine[-1] if mine else len(runs) - 1
        before = [at for at, run in enumerate(runs[:last]) if run.root_graph == own]
        first = before[-1] if before else -1
        between = [run for run in runs[first + 1 : last + (root == own)] if run.root_graph == root and run.has_data]
        if not between:
            return None
        key = self.flow.nodes.key(self.key.rank, between[-1].step, self.trained_in)
        return Evidence(self.session, key, self.progress, self.result)

    @cached_property
    def optimizer(self) -> Optimizer | None:
        row, slot = self.updater
        step = self.updated_in
        if row < 0 or step is None:
            return None
        op_type = self.flow.nodes.op_type(row)
        update = update_of(op_type)
        if update is None:
            return None
        start = group_start(update, slot)
        number = self.key.round if step == self.key.step and self.key.side is Side.OUTPUT else 0
        rows = self.session.tensor_rows(self.key.rank, step, row, number)
        listed = {each.slot: each for each in rows if each.role == "in"}
        wanted = [*(update.states), update.gradient, update.rate, update.momentum, update.decay]
        slots = [start + each for each in dict.fromkeys(wanted) if each is not None and start + each in listed]
        at = dict(zip(slots, self.measured([listed[each] for each in slots]), strict=True))

        def input_at(offset: int | None) -> TensorRow | None:
            return None if offset is None else at.get(start + offset)

        gradient = input_at(update.gradient)
        rate_row = input_at(update.rate)
        rate = self._scalar(rate_row, row, start, update.rate)
        if rate is None:
            rate_row = self._rate_by_name(step)
            rate = _only_value(rate_row)
        return Optimizer(
            name=self.name(row),
            type=op_type,
            step=step,
            rate=rate,
            rate_row=rate_row if rate_row is not None and rate_row.index >= 0 else None,
            momentum=self._scalar(input_at(update.momentum), row, start, update.momentum),
            decay=self._scalar(input_at(update.decay), row, start, update.decay),
            gradient=gradient,
            gradient_upstream=self.upstream_of(row, gradient) if gradient is not None else None,
            states=tuple(each for slot in update.states if (each := input_at(slot)) is not None and each.index >= 0),
            normalised=update.normalised or divides(self._names_of(row, [start + each for each in update.states])),
        )

    @property
    def gradient(self) -> TensorStats | None:
        """The statistics of the gradient that the optimizer got."""
        row = self.optimizer.gradient if self.optimizer is not None else None
        return row.stats if row is not None else None

    def _names_of(self, row: int, slots: Sequence[int]) -> Iterator[str]:
        holders = (self.flow.holder(row, slot).row for slot in slots)
        return (self.name(each) for each in holders if each >= 0)

    def source_of(self, optimizer: Optimizer, row: TensorRow) -> TensorKey:
        """Returns the output that an input of the update was read from; the input itself when that was not dumped."""
        node = self.updater[0]
        if row.role != "in" or node < 0:
            return row.key
        holder, nodes = self.flow.holder(node, row.slot), self.flow.nodes
        if holder.row < 0 or self.flow.table(optimizer.step).find(holder.row, Side.OUTPUT, holder.slot) < 0:
            return row.key
        return nodes.key(self.key.rank, optimizer.step, holder.row, slot=holder.slot)

    def _scalar(self, row: TensorRow | None, node: int, start: int, slot: int | None) -> float | None:
        """The single value of an input, from the dump or from the constant that feeds it."""
        value = _only_value(row)
        if value is not None or slot is None:
            return value
        holder = self.flow.holder(node, start + slot).row
        text = self.flow.nodes.constants.get(holder, "") if holder >= 0 else ""
        try:
            found = float(text)
        except ValueError:
            return None
        return found if math.isfinite(found) else None

    def _rate_by_name(self, step: int) -> TensorRow | None:
        """The only parameter of the graph that is named like a learning rate; None when there are several."""
        nodes = self.flow.nodes
        plain = np.flatnonzero(nodes.category == int(Category.PARAMETER)).tolist()
        rows = [row for row in plain if is_learning_rate(nodes.names[row])]
        return self.at(nodes.key(self.key.rank, step, rows[0])) if len(rows) == 1 else None

    # -- all weights -------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> tuple[WeightAndGradient, ...]:
        """Weights (no biases) with the norms of their gradients, in forward order, at most ``MOST_LAYERS``."""
        nodes, step = self.flow.nodes, self.key.step
        updates = [update_of(name) for name in nodes.types]
        rows_of_updates = np.flatnonzero(np.array([update is not None for update in (*updates, None)])[nodes.type_id])
        found: list[tuple[int, str, int, int]] = []
        for row in rows_of_updates.tolist():
            update = updates[int(nodes.type_id[row])]
            if update is None:
                continue
            for slot in sorted(self.flow.in_place(row)):
                start = group_start(update, slot)
                held = self.flow.holder(row, slot).row
                if slot - start == update.weight and held >= 0 and nodes.category_of(held) in TRAINABLE:
                    first = min((int(nodes.order[each]) for each, _ in self.flow.consumers(held)), default=0)
                    found.append((first, nodes.names[held], row, start + update.gradient))
        found = [each for each in sorted(found) if not self._is_bias(each[2], each[3])]
        if len(found) > MOST_LAYERS:
            found = [found[round(at * (len(found) - 1) / (MOST_LAYERS - 1))] for at in range(MOST_LAYERS)]
        rows = []
        for _, _, row, slot in found:
            listed = self.session.tensor_rows(self.key.rank, step, row)
            rows.append(next((each for each in listed if each.role == "in" and each.slot == slot), None))
        measured = iter(self.measured([row for row in rows if row is not None]))
        norms = [norm(next(measured).stats) if row is not None else None for row in rows]
        return tuple(WeightAndGradient(name, size) for (_, name, _, _), size in zip(found, norms, strict=True))

    def _is_bias(self, row: int, slot: int) -> bool:
        made = self.flow.holder(row, slot).row
        return made >= 0 and self.flow.nodes.op_type(made) == BIAS_ADD_GRADIENT

    # -- measuring ---------------------------------------------------------------------------------

    def measured(self, rows: Sequence[TensorRow]) -> tuple[TensorRow, ...]:
        return self.session.measure(rows, self.progress)

    def at(self, key: TensorKey) -> TensorRow | None:
        row = self.session.row_of(key)
        return self.measured([row])[0] if row.index >= 0 else None

    def stats_before(self, key: TensorKey) -> TensorStats | None:
        earlier = self.session.before(key)
        found = self.at(earlier) if earlier is not None else None
        return found.stats if found is not None else None


def _only_value(row: TensorRow | None) -> float | None:
    stats = row.stats if row is not None else None
    return stats.mean if stats is not None and stats.count == 1 and stats.sized and stats.finite else None


def norm(stats: TensorStats | None) -> float | None:
    """Returns the L2 norm of the finite elements; None when there are none, or it is not known."""
    return stats.norm if stats is not None else None


def size_of(stats: TensorStats | None) -> float | None:
    """Returns mean |x| of the finite elements; None when there are none, or it is not known."""
    return stats.abs_mean if stats is not None else None


_SIGN = re.compile("[<>≥≤]")


def found_words(evidence: Evidence) -> str:
    """``mean |x| is 0.73 (watched for: > 0.5), 1.5 times the limit``, for every parameter that hit."""
    return "; ".join(_one(evidence.result.condition, param) for param in hit_params(evidence))


def hit_params(evidence: Evidence) -> tuple[ParamResult, ...]:
    return tuple(param for param in evidence.result.params if param.hit)


def expression_words(evidence: Evidence) -> str:
    """``max > 6·std holds: 12.3 > 6·0.5``."""
    return "; ".join(
        f"{pretty(str(each.value))} holds: {clean(filled_in(str(each.value), quantity_texts(each)))}"
        for each in hit_params(evidence)
    )


def expression_facts(evidence: Evidence) -> Iterator[str]:
    """Yields the value and meaning of each name: ``std = 0.5: deviation of the finite values, divisor n``."""
    for param in hit_params(evidence):
        for name, value in param.quantities:
            plain_name = name.removeprefix("prev.")
            field = QUANTITIES.get(plain_name)
            meaning = field.help if field is not None else {**NUMBER_FACTS, **TEXT_FACTS}[plain_name]
            before = " at the previous step" if name != plain_name else ""
            shown = "not known" if value is None else quantity_text(value)
            yield f"{name} = {shown}: {meaning}{before}"


def _one(condition: str, param: ParamResult) -> str:
    label, limit = _split(condition, param)
    if param.actual is None:
        return f"{label} {limit}".strip()
    percent = " %" if limit.endswith("%") else ""
    factor = "" if percent else _factor(param)
    return f"{label} is {num(param.actual)}{percent} (watched for: {limit})" + (f", {factor}" if factor else "")


def _split(condition: str, param: ParamResult) -> tuple[str, str]:
    """Returns a parameter in words, split into quantity and limit: ``mean |x|`` and ``< 1e-12``."""
    words = param_words(condition, param.name, param.value)
    found = _SIGN.search(words)
    return (words[: found.start()].strip(), words[found.start() :]) if found is not None else (words, "")


def _factor(param: ParamResult) -> str:
    """Tells how far a value is beyond the limit: ``46 times the limit``, ``46 times smaller than the limit``."""
    actual, limit = param.actual, float(param.value)
    if actual is None or not math.isfinite(actual) or not limit or actual * limit <= 0 or actual == limit:
        return ""
    ratio = actual / limit
    above = abs(ratio) > 1
    factor = ratio if above else 1 / ratio
    if factor < 1.005:
        return "hardly beyond the limit"
    return f"{times(factor)} the limit" if above else f"{times(factor)} smaller than the limit"


def quantity(stats: TensorStats | None, name: str) -> float | None:
    """Returns a quantity of a condition's parameter (``abs_mean_gt``) from plain statistics."""
    what = name.rpartition("_")[0]
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    if what == "max_min":
        return stats.maximum - stats.minimum
    if what == "zero_percentage":
        return stats.zero_percentage
    return getattr(stats, PLAIN[what]) if what in PLAIN else None


def change_facts(evidence: Evidence) -> Iterator[str]:
    """Yields how large the quantities that hit were one step earlier."""
    before = evidence.before
    for param in hit_params(evidence):
        earlier = quantity(evidence.stats_of_before, param.name)
        if before is None or earlier is None or param.actual is None:
            continue
        label, limit = _split(evidence.result.condition, param)
        percent = " %" if limit.endswith("%") else ""
        words = change_words(earlier, param.actual, share=bool(percent))
        yield f"{label} was {num(earlier)}{percent} at step {run_text(before.key)}: {words}"


def change_words(earlier: float, now: float, *, share: bool) -> str:
    """``it grew to 1.7 times that``; a ``share`` is a percentage, not a magnitude."""
    if earlier == now:
        return "unchanged"
    if earlier * now <= 0 or not earlier:
        return "it rose since" if now > earlier else "it fell since"
    ratio = now / earlier
    if 0.99 <= ratio <= 1.01:
        return f"almost the same ({(ratio - 1) * 100:+.2g} %)"
    it = "it" if share or now > 0 else "its magnitude"
    if ratio > 1:
        return f"{it} grew to {times(ratio)} that"
    return f"{it} shrank by a factor of {times(1 / ratio).removesuffix(' times')}"


def sudden_change(evidence: Evidence, *, what: str = "it", factor: float) -> Iterator[Cause]:
    """Yields whether the mean magnitude changed by ``factor`` or more since the step before."""
    before, now = evidence.before, evidence.stats
    earlier = size_of(evidence.stats_of_before)
    if before is None or not earlier or now is None or now.abs_mean is None:
        return
    ratio = now.abs_mean / earlier
    words = f"mean |x| went from {num(earlier)} at step {run_text(before.key)} to {num(now.abs_mean)}"
    title = f"{what} changed abruptly " + (
        "with this step" if evidence.adjacent else f"since step {run_text(before.key)}"
    )
    abrupt = ratio >= factor or ratio <= 1 / factor
    yield weighed(title, words, abrupt)


def culprit_of(evidence: Evidence, causes: Sequence[Cause]) -> OperandEvidence | None:
    """Returns the input that the likely causes name, the last of several; else the first that is no constant."""
    text = " ".join(cause.evidence for cause in causes if cause.standing is Standing.LIKELY)
    named = [operand for operand in evidence.known_inputs if f"{operand.label} " in f"{text} "]
    return named[-1] if named else next((each for each in evidence.known_inputs if not each.constant), None)
