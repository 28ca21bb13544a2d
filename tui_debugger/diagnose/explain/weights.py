"""Weights that change too much, too little or not at all: what the update was made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tui_debugger.check.provenance import updater_of
from tui_debugger.diagnose.explain.evidence import GROWN, Evidence, Optimizer, found_words, norm
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Section, Standing
from tui_debugger.model import TensorKey, TensorStats, WatchResult
from tui_debugger.text.clean import clean
from tui_debugger.text.phrases import bad_counts, limits_of, num, tail, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import CONDITIONS

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
USUAL = 1e-3
"""Part of a weight that a step moves in training that goes well, as a rule of thumb."""
LEAST = 1e-4
"""Part below which a weight hardly moves; what ``weight_change_too_small`` starts with."""
SMALL_GRADIENT = 1e-3
"""Part of the weight's size below which it is the gradient that is small."""
SMALL_WEIGHT = 1e-4
"""Mean magnitude below which any step is a large one in relation."""


def changed(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a weight that changed too much."""
    return _section(evidence, result, tuple(_too_much(evidence)))


def stayed(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a weight that changed too little, or not at all."""
    return _section(evidence, result, tuple(_too_little(evidence, result)))


def _section(evidence: Evidence, result: WatchResult, weighed: tuple[Cause, ...]) -> Section:
    condition = CONDITIONS[result.condition]
    words = found_words(result)
    found = f"{condition.summary.rstrip('.')}: {words}" if words else _unchanged(evidence)
    return Section(
        (result.condition,),
        condition.title,
        found,
        weighed,
        tuple(_advice(evidence, weighed)),
        tuple(facts(evidence)),
    )


def _unchanged(evidence: Evidence) -> str:
    change = evidence.change
    before = f" since step {run_text(evidence.before.key)}" if evidence.before is not None else ""
    if change is None:
        return f"no element changed beyond the tolerance{before}"
    moved = "no element changed at all" if not change.moved else f"mean |Δw| is {num(change.moved)} only"
    return f"{moved}{before}; mean |w| is {num(change.before)}"


# -- too much --------------------------------------------------------------------------------------


def _too_much(evidence: Evidence) -> Iterator[Cause]:
    optimizer = evidence.optimizer
    before = _before_stats(evidence)
    if optimizer is None:
        yield _no_optimizer(evidence)
    else:
        yield from _rate_too_high(evidence, optimizer)
        yield from _gradient_too_large(evidence, optimizer, before)
        yield from _more_than_the_gradient(evidence, optimizer)
    if before is not None and before.abs_mean is not None:
        words = f"mean |w| was {num(before.abs_mean)} before"
        if before.abs_mean < SMALL_WEIGHT:
            yield Cause("the weight was almost 0, so that any step is large in relation", words, LIKELY)
        else:
            yield Cause("the weight was almost 0, so that any step is large in relation", words, RULED_OUT)


def _rate_too_high(evidence: Evidence, optimizer: Optimizer) -> Iterator[Cause]:
    """The learning rate is to blame where a gradient of usual size moves the weight that far."""
    title = "the learning rate is too high"
    if optimizer.rate is None:
        yield Cause(title, f"no dumped input of {optimizer.label} says what it is", UNKNOWN)
        return
    words = f"{optimizer.label} used {num(optimizer.rate)}"
    plain, size = plain_step(optimizer), _size_before(evidence)
    if plain is None or not size:
        yield Cause(title, words, POSSIBLE)
        return
    ratio = plain / size
    words += f": {_plain_words(optimizer)} = {num(float(f'{ratio:.3g}'))}; about {num(USUAL)} a step is usual"
    gradient = norm(optimizer.gradient.stats) if optimizer.gradient is not None else None
    weight = norm(_before_stats(evidence))
    usual = optimizer.normalised or optimizer.rate >= 1 or (gradient or 0.0) <= (weight or 0.0)
    far, near = ratio > 100 * USUAL, ratio > 10 * USUAL
    yield Cause(title, words, LIKELY if far and usual else POSSIBLE if near else RULED_OUT)


def _plain_words(optimizer: Optimizer) -> str:
    """Returns what a step is by the gradient alone, in relation to the weight."""
    return "learning rate / mean |w|" if optimizer.normalised else "learning rate × mean |gradient| / mean |w|"


def _gradient_too_large(evidence: Evidence, optimizer: Optimizer, before: TensorStats | None) -> Iterator[Cause]:
    title = "the gradient is too large"
    gradient = optimizer.gradient.stats if optimizer.gradient is not None else None
    size, weight = norm(gradient), norm(before)
    if gradient is None or size is None:
        yield Cause(title, _no_gradient(optimizer), UNKNOWN)
        return
    earlier = gradient_before(evidence, optimizer)
    if earlier is not None and norm(earlier):
        ratio = size / (norm(earlier) or 1.0)
        since = "within a step" if evidence.adjacent else "since the dumped step before"
        words = f"its norm went from {num(norm(earlier))} to {num(size)} {since}"
        yield Cause("the gradient jumped", words, LIKELY if ratio >= GROWN else RULED_OUT)
    if weight:
        words = f"its norm, {num(size)}, is {times(size / weight)} that of the weight, {num(weight)}"
        if optimizer.normalised:
            yield Cause(title, f"{words}; {optimizer.type} divides by its running size anyway", RULED_OUT)
        else:
            yield Cause(title, words, LIKELY if size > weight else RULED_OUT if size < 0.1 * weight else POSSIBLE)


def _more_than_the_gradient(evidence: Evidence, optimizer: Optimizer) -> Iterator[Cause]:
    """Tells whether learning rate times gradient explains the change; the rest is momentum, decay and the like.

    Nothing is said where steps in between were not dumped: the change is then the work of several updates.
    """
    change = evidence.change
    plain = plain_step(optimizer)
    if not evidence.adjacent or change is None or plain is None or not change.moved or optimizer.normalised:
        return
    words = f"learning rate × mean |gradient| = {num(plain)}, the weight moved by {num(change.moved)} on average"
    title = "momentum, weight decay or another term of the optimizer adds to the gradient"
    extra = f"; momentum is {num(optimizer.momentum)}" if optimizer.momentum is not None else ""
    yield Cause(title, words + extra, LIKELY if change.moved > 1.5 * plain else RULED_OUT)


# -- too little ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stalling:
    """An input of a weight's update that by itself keeps the weight as it is.

    Attributes:
        words: what is wrong with it.
        tensor: where to go on upstream; None where its value stands in the graph.
        slot: input slot at the update operator; None where it is not one of its inputs.
        optimizer: the update.
    """

    words: str
    tensor: TensorKey | None
    slot: int | None
    optimizer: Optimizer


def stalled_by(evidence: Evidence) -> list[Stalling]:
    """The inputs of a weight's update of which each alone keeps the weight as it is: a learning rate of 0, no gradient.

    That is what both this guidance and the path upstream say of a weight that does not change.
    """
    optimizer = evidence.optimizer
    if optimizer is None:
        return [] if evidence.training is None else stalled_by(evidence.training)
    found = []
    name = optimizer.label
    if optimizer.rate == 0:
        row = optimizer.rate_row
        slot = row.slot if row is not None and row.role == "in" else None
        tensor = None if row is None else evidence.source_of(optimizer, row)
        found.append(Stalling(f"the learning rate that {name} used is 0", tensor, slot, optimizer))
    gradient = optimizer.gradient
    if gradient is not None and all_zero(gradient.stats):
        words = f"all elements of the gradient that {name} got are 0"
        found.append(Stalling(words, optimizer.made or gradient.key, gradient.slot, optimizer))
    return found


def all_zero(stats: TensorStats | None) -> bool:
    """Tells whether a tensor has elements, and all of them are 0."""
    return stats is not None and bool(stats.count) and stats.zero == stats.count


def likely_causes(evidence: Evidence, result: WatchResult) -> list[str]:
    """Why a weight changed too little, as far as anything speaks for it, in words."""
    return [f"{each.title}: {each.evidence}" for each in _too_little(evidence, result) if each.standing is LIKELY]


def _too_little(evidence: Evidence, result: WatchResult) -> Iterator[Cause]:
    optimizer = evidence.optimizer
    if optimizer is None and evidence.training is not None:
        yield from _too_little(evidence.training, result)
        return
    if optimizer is None:
        yield _no_optimizer(evidence)
        return
    yield Cause("the weight is frozen", f"{optimizer.label} ({optimizer.type}) updates it", RULED_OUT)
    gradient = optimizer.gradient.stats if optimizer.gradient is not None else None
    if gradient is None:
        yield _without_gradient(optimizer)
    else:
        if all_zero(evidence.stats) and all_zero(gradient):
            words = "the weight is 0 and its gradient is 0: layers of zeros hand each other nothing but zeros"
            yield Cause("it is initialised with 0 and never leaves it", words, LIKELY)
        yield from _small_gradient(evidence, optimizer, gradient)
    yield from _rounded_away(evidence, optimizer)
    yield from _rate_too_low(evidence, optimizer, gradient, _limit(result))


def _without_gradient(optimizer: Optimizer) -> Cause:
    """A gradient that nobody has: of PyTorch's training itself we know that there was none."""
    if optimizer.ours:
        words = "it has none: it is cut off from the loss (detach, no_grad, .item()), or its module did not run"
        return Cause("no gradient reaches the weight", words, LIKELY)
    return Cause("the gradient is 0 or too small", _no_gradient(optimizer), UNKNOWN)


def _limit(result: WatchResult) -> float | None:
    return next((float(param.value) for param in result.params if param.name == "abs_mean_update_ratio_lt"), None)


def _small_gradient(evidence: Evidence, optimizer: Optimizer, gradient: TensorStats) -> Iterator[Cause]:
    title = "the gradient is 0 or too small"
    if gradient.bad:
        words = f"the gradient has {bad_counts(gradient)}: with loss scaling such a step is left out"
        yield Cause("the step was skipped", words, LIKELY)
        return
    if all_zero(gradient):
        words = f"all {gradient.count:,} elements of the gradient that {optimizer.label} got are 0"
        yield Cause(title, words, LIKELY)
        return
    size, weight = gradient.abs_mean or 0.0, _size_before(evidence)
    if weight:
        words = f"mean |gradient| / mean |w| = {num(size)} / {num(weight)} = {num(float(f'{size / weight:.3g}'))}"
        small = size < SMALL_GRADIENT * weight
        if optimizer.normalised and size:
            yield Cause(title, f"{words}; the optimizer divides by its running size anyway", RULED_OUT)
            return
        yield Cause(title, words, RULED_OUT if not small else POSSIBLE if optimizer.rate == 0 else LIKELY)
    else:
        yield Cause(title, f"mean |gradient| is {num(size)}", RULED_OUT if size > 1e-8 else LIKELY)


def _rate_too_low(
    evidence: Evidence, optimizer: Optimizer, gradient: TensorStats | None, limit: float | None
) -> Iterator[Cause]:
    title = "the learning rate is too low"
    if optimizer.rate is None:
        yield Cause(title, f"no dumped input of {optimizer.label} says what it is", UNKNOWN)
        return
    if not optimizer.rate:
        yield Cause(title, f"{optimizer.label} used 0", LIKELY)
        return
    if all_zero(gradient):
        words = f"it is {num(optimizer.rate)}; with a gradient of 0 no learning rate changes anything"
        yield Cause(title, words, RULED_OUT)
        return
    weight, plain = _size_before(evidence), plain_step(optimizer)
    if plain is None or not weight:
        yield Cause(title, f"it is {num(optimizer.rate)}", POSSIBLE)
        return
    expected, limit = plain / weight, limit or LEAST
    words = f"it is {num(optimizer.rate)}: {_plain_words(optimizer)} = {num(float(f'{expected:.3g}'))}"
    needed = limit / expected * optimizer.rate if expected else 0.0
    if expected < limit and needed:
        words += f", {num(limit)} would take {num(float(f'{needed:.2g}'))}"
    small = gradient is not None and (gradient.abs_mean or 0.0) < SMALL_GRADIENT * weight
    blamed = expected < limit and (optimizer.normalised or not small)
    yield Cause(title, words, LIKELY if blamed else RULED_OUT)


def _rounded_away(evidence: Evidence, optimizer: Optimizer) -> Iterator[Cause]:
    """Tells whether the step is less than half the distance to the next number the type can hold."""
    limits, plain, weight = limits_of(evidence.tensor.meta), plain_step(optimizer), _size_before(evidence)
    if limits is None or plain is None or not weight or not plain:
        return
    spacing = limits.eps * weight
    step, gap = num(float(f"{plain:.3g}")), num(float(f"{spacing:.3g}"))
    words = f"a step of about {step} against {gap}, the spacing of {limits.name} at mean |w|"
    title = f"the step is lost in the rounding of {limits.name}"
    yield Cause(title, words, LIKELY if plain < spacing / 2 else RULED_OUT)


# -- what both need --------------------------------------------------------------------------------


def plain_step(optimizer: Optimizer) -> float | None:
    """Tells how far an average element moves by the gradient alone; None where rate or gradient is unknown."""
    gradient = optimizer.gradient.stats if optimizer.gradient is not None else None
    if optimizer.rate is None or gradient is None or gradient.abs_mean is None or gradient.bad:
        return None
    if optimizer.normalised:
        return abs(optimizer.rate) if gradient.abs_mean else 0.0
    return abs(optimizer.rate) * gradient.abs_mean


def gradient_before(evidence: Evidence, optimizer: Optimizer) -> TensorStats | None:
    """Statistics of the same gradient one step earlier."""
    row = optimizer.gradient
    if row is None or row.index < 0:
        return None
    return evidence.stats_before(row.key)


def _before_stats(evidence: Evidence) -> TensorStats | None:
    return evidence.before.stats if evidence.before is not None else None


def _size_before(evidence: Evidence) -> float | None:
    """Mean |w| before the step; without a step before, what it is now."""
    before = _before_stats(evidence) or evidence.stats
    return before.abs_mean if before is not None else None


def _no_optimizer(evidence: Evidence) -> Cause:
    if evidence.parameter >= 0 and evidence.trained_in >= 0 and evidence.updater[0] < 0:
        nodes = evidence.flow.nodes
        operator, _ = updater_of(evidence.flow, evidence.trained_in)
        graph = clean(nodes.graph_of(evidence.trained_in).name)
        words = f"{tail(nodes.names[operator])} of {graph} updates it; that did not run since this graph ran before"
        return Cause("nothing updated the weight in between", words, LIKELY)
    if evidence.parameter >= 0 and evidence.wants_gradient and evidence.updater[0] < 0:
        words = "it wants a gradient (requires_grad is on), but it is not among the optimizer's parameters"
        return Cause("no optimizer updates the weight", words, LIKELY)
    if evidence.parameter >= 0 and evidence.has_graph and evidence.updater[0] < 0:
        words = (
            "no operator of the graph updates it: it is not among the optimizer's parameters, or requires_grad is off"
        )
        return Cause("the weight is frozen", words, LIKELY)
    return Cause("learning rate, gradient and optimizer", "no graph tells which operator updates it", UNKNOWN)


def _no_gradient(optimizer: Optimizer) -> str:
    return f"the gradient that {optimizer.label} got was not dumped"


def facts(evidence: Evidence) -> Iterator[str]:
    """The update in numbers."""
    optimizer, change = evidence.optimizer, evidence.change
    if change is not None and change.ratio is not None:
        yield f"update ratio: mean |Δw| / mean |w| = {num(change.moved)} / {num(change.before)} = {num(change.ratio)}"
    if optimizer is None:
        return
    parts = [f"learning rate {num(optimizer.rate)}"] if optimizer.rate is not None else []
    parts += [f"momentum {num(optimizer.momentum)}"] if optimizer.momentum is not None else []
    parts += [f"weight decay {num(optimizer.decay)}"] if optimizer.decay is not None else []
    gradient = optimizer.gradient.stats if optimizer.gradient is not None else None
    if gradient is not None and norm(gradient) is not None:
        parts.append(f"norm of the gradient {num(norm(gradient))}")
    if norm(_before_stats(evidence)) is not None:
        parts.append(f"norm of the weight before {num(norm(_before_stats(evidence)))}")
    if parts:
        yield f"{optimizer.label} ({optimizer.type}) at step {optimizer.step}: " + ", ".join(parts)


def _advice(evidence: Evidence, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
    optimizer = evidence.optimizer
    gradient = optimizer.gradient if optimizer is not None else None
    yield Advice("See weight and change over all steps.", "trend")
    if optimizer is not None and gradient is not None and gradient.index >= 0:
        key = optimizer.made or gradient.key
        yield Advice("Explain the gradient: what made it so on its way back.", "explain", key)
        yield Advice("See the gradient over all steps.", "trend", key)
    if optimizer is not None and optimizer.rate_row is not None:
        yield Advice("See the learning rate over all steps.", "trend", optimizer.rate_row.key)
    if evidence.before is not None:
        yield Advice("Compare with the step before, element by element.", "compare")
    if optimizer is None and any(cause.standing is LIKELY for cause in weighed):
        yield Advice("Look for where the optimizer gets its parameters, and for stop_gradient or requires_grad.")
