"""Causes of weights that change too much, too little or not at all, are too large or too small, or start off wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tui_debugger.diagnose.explain.evidence import Evidence, Optimizer, found_words, norm, size_of
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing, weighed
from tui_debugger.model import TensorKey, TensorStats, WatchResult
from tui_debugger.text.clean import clean
from tui_debugger.text.phrases import bad_counts, every, finite_words, limits_of, num, tail, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import CONDITIONS

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def found_change(evidence: Evidence) -> str:
    words = found_words(evidence)
    summary = CONDITIONS[evidence.result.condition].summary.rstrip(".")
    if evidence.before is not None and not evidence.adjacent:
        summary = summary.replace("the previous step", f"step {run_text(evidence.before.key)}, the last dumped before")
    return f"{summary}: {words}" if words else _unchanged(evidence)


def _unchanged(evidence: Evidence) -> str:
    change = evidence.change
    before = f" since step {run_text(evidence.before.key)}" if evidence.before is not None else ""
    if change is None:
        return f"no element changed beyond the tolerance{before}"
    moved = "no element changed at all" if not change.moved else f"mean |Δw| is {num(change.moved)} only"
    return f"{moved}{before}; mean |w| is {num(change.before)}"


# -- too much --------------------------------------------------------------------------------------


def rate_too_high(evidence: Evidence, *, usual: float, likely: float, possible: float) -> Iterator[Cause]:
    """Yields whether the learning rate alone, with a gradient of usual size, moves the weight too far.

    ``usual`` is the part of a weight that a step moves in healthy training; the rate is ``likely`` or ``possible`` to
    blame for a step so many times as long.
    """
    title, optimizer = "the learning rate is too high", evidence.optimizer
    if optimizer is None:
        return
    if optimizer.rate is None:
        yield Cause(title, f"no dumped input of {optimizer.label} says what it is", UNKNOWN)
        return
    words = f"{optimizer.label} used {num(optimizer.rate)}"
    plain, size = _plain_step(evidence), _size_before(evidence)
    if plain is None or not size:
        yield Cause(title, words, POSSIBLE)
        return
    ratio = plain / size
    words += f": {_plain_words(optimizer)} = {num(float(f'{ratio:.3g}'))}; about {num(usual)} a step is usual"
    gradient, weight = norm(evidence.gradient), norm(evidence.stats_of_before)
    of_usual_size = optimizer.normalised or optimizer.rate >= 1 or (gradient or 0.0) <= (weight or 0.0)
    far, near = ratio > likely * usual, ratio > possible * usual
    yield Cause(title, words, LIKELY if far and of_usual_size else POSSIBLE if near else RULED_OUT)


def _plain_words(optimizer: Optimizer) -> str:
    return "learning rate / mean |w|" if optimizer.normalised else "learning rate × mean |gradient| / mean |w|"


def gradient_too_large(evidence: Evidence, *, jump: float, harmless: float) -> Iterator[Cause]:
    """Yields whether the gradient is to blame: its norm grew by ``jump`` within a step, or exceeds the weight's norm.

    A gradient below ``harmless`` times the weight's norm is ruled out.
    """
    title, optimizer = "the gradient is too large", evidence.optimizer
    if optimizer is None:
        return
    size, weight = norm(evidence.gradient), norm(evidence.stats_of_before)
    if size is None:
        yield Cause(title, _no_gradient(optimizer), UNKNOWN)
        return
    earlier = norm(_gradient_before(evidence, optimizer))
    if earlier:
        since = "within a step" if evidence.adjacent else "since the dumped step before"
        words = f"its norm went from {num(earlier)} to {num(size)} {since}"
        yield weighed("the gradient jumped", words, size / earlier >= jump)
    if weight:
        words = f"its norm, {num(size)}, is {times(size / weight)} that of the weight, {num(weight)}"
        if optimizer.normalised:
            yield Cause(title, f"{words}; {optimizer.type} divides by its running size anyway", RULED_OUT)
        else:
            small = RULED_OUT if size < harmless * weight else POSSIBLE
            yield Cause(title, words, LIKELY if size > weight else small)


def more_than_gradient(evidence: Evidence, *, factor: float) -> Iterator[Cause]:
    """Yields whether an adjacent step moved the weight ``factor`` times further than rate times gradient explains."""
    optimizer, change, plain = evidence.optimizer, evidence.change, _plain_step(evidence)
    if optimizer is None or not evidence.adjacent or change is None or plain is None:
        return
    if not change.moved or optimizer.normalised:
        return
    words = f"learning rate × mean |gradient| = {num(plain)}, the weight moved by {num(change.moved)} on average"
    title = "momentum, weight decay or another term of the optimizer adds to the gradient"
    extra = f"; momentum is {num(optimizer.momentum)}" if optimizer.momentum is not None else ""
    yield weighed(title, words + extra, change.moved > factor * plain)


def almost_zero_before(evidence: Evidence, *, tiny: float) -> Iterator[Cause]:
    """Yields whether mean |w| was below ``tiny``, so that any step is large in relation."""
    before = size_of(evidence.stats_of_before)
    if before is not None:
        title = "the weight was almost 0, so that any step is large in relation"
        yield weighed(title, f"mean |w| was {num(before)} before", before < tiny)


# -- too little ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stalling:
    """An input of a weight's update that by itself keeps the weight unchanged.

    ``tensor`` is None for a constant of the graph; ``slot`` is None where it is not an input of the update operator.
    """

    words: str
    tensor: TensorKey | None
    slot: int | None
    optimizer: Optimizer


def stalled_by(evidence: Evidence) -> list[Stalling]:
    """Returns each input of a weight's update that alone keeps it unchanged: a rate of 0, a gradient of zeros."""
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
    if gradient is not None and _all_zero(evidence.gradient):
        words = f"all elements of the gradient that {name} got are 0"
        found.append(Stalling(words, optimizer.gradient_upstream or gradient.key, gradient.slot, optimizer))
    return found


def _all_zero(stats: TensorStats | None) -> bool:
    return stats is not None and bool(stats.count) and stats.zero == stats.count


def where_updated(evidence: Evidence) -> Evidence:
    while evidence.optimizer is None and evidence.training is not None:
        evidence = evidence.training
    return evidence


def not_updated(evidence: Evidence) -> Iterator[Cause]:
    if evidence.optimizer is None:
        yield _no_optimizer(evidence)


def not_frozen(evidence: Evidence) -> Iterator[Cause]:
    optimizer = evidence.optimizer
    if optimizer is not None:
        yield Cause("the weight is frozen", f"{optimizer.label} ({optimizer.type}) updates it", RULED_OUT)


def no_gradient(evidence: Evidence) -> Iterator[Cause]:
    """Yields why the gradient is missing: in PyTorch's training it did not exist, elsewhere it was not dumped."""
    optimizer = evidence.optimizer
    if optimizer is None or evidence.gradient is not None:
        return
    if optimizer.of_pytorch:
        words = "it has none: it is cut off from the loss (detach, no_grad, .item()), or its module did not run"
        yield Cause("no gradient reaches the weight", words, LIKELY)
    else:
        yield Cause("the gradient is 0 or too small", _no_gradient(optimizer), UNKNOWN)


def small_gradient(evidence: Evidence, *, small: float, tiny: float) -> Iterator[Cause]:
    """Yields whether the gradient is 0, too small, or had NaN or Inf (a skipped step).

    Small: below ``small`` times mean |weight| unless the optimizer normalises; for a weight of 0, up to ``tiny``.
    """
    title, optimizer, gradient = "the gradient is 0 or too small", evidence.optimizer, evidence.gradient
    if optimizer is None or gradient is None:
        return
    if _all_zero(evidence.stats) and _all_zero(gradient):
        words = "the weight is 0 and its gradient is 0: layers of zeros hand each other nothing but zeros"
        yield Cause("it is initialised with 0 and never leaves it", words, LIKELY)
    if gradient.bad:
        words = f"the gradient has {bad_counts(gradient)}: with loss scaling such a step is left out"
        yield Cause("the step was skipped", words, LIKELY)
        return
    if _all_zero(gradient):
        words = f"{every(gradient)} of the gradient that {optimizer.label} got are 0"
        yield Cause(title, words, LIKELY)
        return
    size, weight = gradient.abs_mean or 0.0, _size_before(evidence)
    if not weight:
        yield Cause(title, f"mean |gradient| is {num(size)}", RULED_OUT if size > tiny else LIKELY)
        return
    words = f"mean |gradient| / mean |w| = {num(size)} / {num(weight)} = {num(float(f'{size / weight:.3g}'))}"
    if optimizer.normalised and size:
        yield Cause(title, f"{words}; the optimizer divides by its running size anyway", RULED_OUT)
        return
    blamed = POSSIBLE if optimizer.rate == 0 else LIKELY
    yield Cause(title, words, blamed if size < small * weight else RULED_OUT)


def rate_too_low(evidence: Evidence, *, least: float, small: float) -> Iterator[Cause]:
    """Yields whether the learning rate is to blame, as a step is less than ``least`` (or the hit's limit) of mean |w|.

    A gradient below ``small`` times the weight's mean magnitude is to blame instead.
    """
    title, optimizer, gradient = "the learning rate is too low", evidence.optimizer, evidence.gradient
    if optimizer is None:
        return
    if optimizer.rate is None:
        yield Cause(title, f"no dumped input of {optimizer.label} says what it is", UNKNOWN)
        return
    if not optimizer.rate:
        yield Cause(title, f"{optimizer.label} used 0", LIKELY)
        return
    if _all_zero(gradient):
        words = f"it is {num(optimizer.rate)}; with a gradient of 0 no learning rate changes anything"
        yield Cause(title, words, RULED_OUT)
        return
    weight, plain = _size_before(evidence), _plain_step(evidence)
    if plain is None or not weight:
        yield Cause(title, f"it is {num(optimizer.rate)}", POSSIBLE)
        return
    expected, limit = plain / weight, _asked_ratio(evidence.result) or least
    words = f"it is {num(optimizer.rate)}: {_plain_words(optimizer)} = {num(float(f'{expected:.3g}'))}"
    needed = limit / expected * optimizer.rate if expected else 0.0
    if expected < limit and needed:
        words += f", {num(limit)} would take {num(float(f'{needed:.2g}'))}"
    of_gradient = gradient is not None and (gradient.abs_mean or 0.0) < small * weight
    blamed = expected < limit and (optimizer.normalised or not of_gradient)
    yield weighed(title, words, blamed)


def _asked_ratio(result: WatchResult) -> float | None:
    return next((float(param.value) for param in result.params if param.name == "abs_mean_update_ratio_lt"), None)


def rounded_away(evidence: Evidence) -> Iterator[Cause]:
    """Yields whether the step is less than half the distance to the next number of the type."""
    limits, weight, plain = limits_of(evidence.tensor.meta), _size_before(evidence), _plain_step(evidence)
    if limits is None or not weight or not plain:
        return
    spacing = limits.eps * weight
    step, gap = num(float(f"{plain:.3g}")), num(float(f"{spacing:.3g}"))
    words = f"a step of about {step} against {gap}, the spacing of {limits.name} at mean |w|"
    title = f"the step is lost in the rounding of {limits.name}"
    yield weighed(title, words, plain < spacing / 2)


# -- too large, too small --------------------------------------------------------------------------


def size_before(evidence: Evidence, *, large: bool, factor: float) -> Iterator[Cause]:
    """Yields whether the weight was as large (or small) before the step; within ``factor`` counts as the same."""
    before, earlier, now = evidence.before, size_of(evidence.stats_of_before), evidence.stats
    word = "large" if large else "small"
    if before is not None and earlier is not None and now is not None:
        size = now.abs_mean or 0.0
        words = f"mean |w| was {num(earlier)} at step {run_text(before.key)}, now it is {num(size)}"
        same = 1 / factor <= size / earlier <= factor if earlier else size == earlier
        title = f"it was as {word} before this step: initial values, or many steps"
        yield weighed(title, words, same)
        update = "this step's update" if evidence.adjacent else "an update since then"
        yield weighed(f"{update} made it so", words, not same)
    elif evidence.updated_in is None:
        title = f"its initial values are as {word}" if evidence.initial else f"it was as {word} before the dump began"
        yield Cause(title, "this is its value before the first dumped step", LIKELY)
    else:
        words = "its values at the step before are not known"
        yield Cause(f"it was as {word} before this step", words, UNKNOWN)


def size_by_update(evidence: Evidence, *, part: float) -> Iterator[Cause]:
    """Yields whether a step moves an element by more than ``part`` of the weight's mean magnitude."""
    if evidence.optimizer is None:
        unmoved = evidence.has_graph and evidence.updater[0] < 0
        words = "no operator of the graph updates it" if unmoved else "no graph tells which operator updates it"
        yield Cause("the optimizer", words, RULED_OUT if unmoved else UNKNOWN)
        return
    plain, weight = _plain_step(evidence), size_of(evidence.stats_of_before)
    if plain is not None and weight:
        words = f"one step moves an element by about {num(float(f'{plain:.3g}'))}, mean |w| was {num(weight)}"
        title = "learning rate times gradient is large beside the weight"
        yield weighed(title, words, plain > part * weight)


def no_decay(evidence: Evidence) -> Iterator[Cause]:
    yield from _decay(evidence, "nothing shrinks it: there is no weight decay", lambda decay: decay == 0)


def strong_decay(evidence: Evidence, *, strong: float) -> Iterator[Cause]:
    yield from _decay(evidence, "weight decay shrinks it", lambda decay: decay > strong)


def _decay(evidence: Evidence, title: str, fits: Callable[[float], bool]) -> Iterator[Cause]:
    decay = evidence.optimizer.decay if evidence.optimizer is not None else None
    if decay is not None:
        yield Cause(title, f"weight decay is {num(decay)}", POSSIBLE if fits(decay) else RULED_OUT)


# -- initial values --------------------------------------------------------------------------------


def constant_values(evidence: Evidence) -> Iterator[Cause]:
    stats = evidence.stats
    if stats is None or stats.variance is None or stats.mean is None or not stats.count:
        yield Cause("its initial values", "they cannot be read", UNKNOWN)
        return
    deviation = math.sqrt(stats.variance)
    words = f"the values are {finite_words(stats)}, mean {num(stats.mean)}, deviation {num(deviation)}"
    title = "every unit starts alike and learns alike: initialised with a constant"
    yield weighed(title, words, not deviation)


def initialiser_misfits(evidence: Evidence, *, factor: float) -> Iterator[Cause]:
    """Yields whether the values' deviation is within ``factor`` of He's initialisation, √(2 / inputs of a unit)."""
    stats = evidence.stats
    shape = evidence.tensor.meta.shape if evidence.tensor.meta is not None else ()
    inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
    if stats is None or not stats.variance or stats.mean is None or not inputs:
        return
    deviation, usual = math.sqrt(stats.variance), math.sqrt(2 / inputs)
    words = f"deviation {num(deviation)}; √(2 / inputs) of this shape is {num(float(f'{usual:.3g}'))}"
    title = "the initialiser does not fit the size of the layer"
    fits = 1 / factor <= deviation / usual <= factor
    yield weighed(title, words, not fits)


def checkpoint_not_loaded(evidence: Evidence) -> Iterator[Cause]:
    """Yields that constant or zero values may be left by a checkpoint that was not loaded."""
    stats = evidence.stats
    if stats is None or stats.variance is None or stats.mean is None or not stats.count:
        return
    words = "a checkpoint that was not loaded, or whose names do not fit, leaves such values"
    same = stats.zero == stats.count or not stats.variance
    yield Cause("a checkpoint was not loaded", words, POSSIBLE if same else UNKNOWN)


# -- what the causes share -------------------------------------------------------------------------


def _plain_step(evidence: Evidence) -> float | None:
    """How far an average element moves by the gradient alone; None where rate or gradient is unknown."""
    optimizer, gradient = evidence.optimizer, evidence.gradient
    if optimizer is None or optimizer.rate is None or gradient is None or gradient.abs_mean is None or gradient.bad:
        return None
    if optimizer.normalised:
        return abs(optimizer.rate) if gradient.abs_mean else 0.0
    return abs(optimizer.rate) * gradient.abs_mean


def _gradient_before(evidence: Evidence, optimizer: Optimizer) -> TensorStats | None:
    row = optimizer.gradient
    if row is None or row.index < 0:
        return None
    return evidence.stats_before(row.key)


def _size_before(evidence: Evidence) -> float | None:
    """Mean |w| before the step; the present one where there is no step before."""
    return size_of(evidence.stats_of_before or evidence.stats)


def _no_optimizer(evidence: Evidence) -> Cause:
    if evidence.parameter >= 0 and evidence.trained_in >= 0 and evidence.updater[0] < 0:
        nodes = evidence.flow.nodes
        operator, _ = evidence.flow.updater(evidence.trained_in)
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


def update_facts(evidence: Evidence) -> Iterator[str]:
    optimizer, change = evidence.optimizer, evidence.change
    if change is not None and change.ratio is not None:
        yield f"update ratio: mean |Δw| / mean |w| = {num(change.moved)} / {num(change.before)} = {num(change.ratio)}"
    if optimizer is None:
        return
    numbers = {
        "learning rate": optimizer.rate,
        "momentum": optimizer.momentum,
        "weight decay": optimizer.decay,
        "norm of the gradient": norm(evidence.gradient),
        "norm of the weight before": norm(evidence.stats_of_before),
    }
    parts = [f"{name} {num(value)}" for name, value in numbers.items() if value is not None]
    if parts:
        yield f"{optimizer.label} ({optimizer.type}) at step {optimizer.step}: " + ", ".join(parts)


def see_gradient(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    optimizer = evidence.optimizer
    gradient = optimizer.gradient if optimizer is not None else None
    if optimizer is not None and gradient is not None and gradient.index >= 0:
        key = optimizer.gradient_upstream or gradient.key
        yield Advice("Explain the gradient: what made it so on its way back.", "explain", key)
        yield Advice("See the gradient over all steps.", "trend", key)


def see_learning_rate(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    optimizer = evidence.optimizer
    if optimizer is not None and optimizer.rate_row is not None:
        yield Advice("See the learning rate over all steps.", "trend", optimizer.rate_row.key)


def compare_with_before(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    if evidence.before is not None:
        yield Advice("Compare with the step before, element by element.", "compare")


def look_at_program(evidence: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
    if evidence.optimizer is None and any(cause.standing is LIKELY for cause in causes):
        yield Advice("Look for where the optimizer gets its parameters, and for stop_gradient or requires_grad.")
