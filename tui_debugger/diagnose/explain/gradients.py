"""Causes of gradients that vanish or explode: norms layer by layer, and what multiplies a gradient on its way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tui_debugger.diagnose.explain.evidence import Evidence, OperandEvidence, WeightAndGradient, size_of
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing, weighed
from tui_debugger.model import TensorStats
from tui_debugger.stats.blocks import ENDS, peak
from tui_debugger.text.phrases import HALVES, every, finite_words, limits_of, log10_ratio, num, part_of, tail, times
from tui_debugger.watch.recommended import activation_family

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def _split_inputs(evidence: Evidence) -> tuple[list[OperandEvidence], list[OperandEvidence]]:
    """Returns the known inputs that are gradients, and those from the forward pass, without constants."""
    known = [operand for operand in evidence.known_inputs if not operand.constant]
    return [each for each in known if each.gradient], [each for each in known if not each.gradient]


# -- too small -------------------------------------------------------------------------------------


def lost_by_loss_scale(evidence: Evidence) -> Iterator[Cause]:
    """Yields that a half type rounded this gradient, or one that it was made from, to 0."""
    incoming, _forward = _split_inputs(evidence)
    for row in (evidence.tensor, *(operand.row for operand in incoming)):
        limits, found = limits_of(row.meta), row.stats
        if limits is not None and limits.name in HALVES and found is not None and found.count == found.zero > 0:
            words = f"{every(found)} of {tail(row.key.node)} are 0; {limits.name} holds nothing below "
            words += f"{num(limits.normal * limits.eps)}: loss scaling keeps small gradients above it"
            yield Cause(f"it falls below the range of {limits.name}: the loss scale is too small", words, LIKELY)
            return


def _dead(stats: TensorStats, dead_percent: float) -> Standing:
    if not stats.counted:
        return UNKNOWN
    return LIKELY if stats.zero_percentage >= dead_percent else RULED_OUT


def came_in_small(evidence: Evidence, *, factor: float) -> Iterator[Cause]:
    """Yields whether the gradient came in small: the incoming one is less than ``factor`` times as large."""
    incoming, forward = _split_inputs(evidence)
    now = size_of(evidence.stats) or 0.0
    title = "it came in small: a later layer lost it"
    if not incoming and not forward:
        yield Cause(title, "no input of its node was dumped", UNKNOWN)
        return
    for operand in incoming:
        size = size_of(operand.stats)
        if size is None:
            continue
        words = f"the gradient {operand.label} from {operand.source} has mean |x| {num(size)}, this one {num(now)}"
        small = not size or (now > 0 and size / now < factor)
        yield weighed(title, words, small)


def small_factor(evidence: Evidence, *, dead_percent: float, near_end: float, tiny: float) -> Iterator[Cause]:
    """Yields whether a forward value that the gradient is multiplied with makes it small.

    ``dead_percent``: zeros from which a ReLU lets too little through. ``near_end``: mean distance of a saturated
    activation from an end. ``tiny``: a factor whose greatest magnitude is below is too small.
    """
    for operand in _split_inputs(evidence)[1]:
        stats = operand.stats
        if stats is None or not stats.count:
            continue
        family = activation_family(evidence.flow.nodes.op_type(operand.producer) if operand.producer >= 0 else "")
        where = f"{operand.label} from {operand.source}"
        gate = evidence.producer_type.lower().endswith("grad") or evidence.producer_type.lower().startswith("threshold")
        if family == "relu" and gate:
            words = f"{part_of(stats, 'zero')} of {where} are 0, and let nothing through"
            yield Cause("dead ReLU units", words, _dead(stats, dead_percent))
        elif stats.zero == stats.count:
            yield Cause("what it is multiplied with is all 0", f"{where}: {every(stats)} are 0", LIKELY)
        elif family in ENDS and gate and stats.abs_mean is not None and stats.maximum is not None:
            words = f"{where} is {finite_words(stats)}, mean |x| {num(stats.abs_mean)}"
            near = stats.abs_mean > 1 - near_end or (family != "tanh" and stats.abs_mean < near_end)
            yield weighed(f"a saturated {family}", words, near)
        else:
            words = f"{where} is {finite_words(stats)}"
            small = (peak(stats) or 0.0) < tiny
            yield weighed("what it is multiplied with is tiny", words, small)


def below_range(evidence: Evidence) -> Iterator[Cause]:
    limits, size = limits_of(evidence.tensor.meta), size_of(evidence.stats)
    if limits is None or not size:
        return
    words = f"mean |x| is {num(size)}, {limits.name} loses digits below {num(limits.normal)}"
    if limits.name in HALVES:
        words += ": loss scaling keeps small gradients above it"
    yield weighed(f"it falls below the range of {limits.name}", words, size < limits.normal)


# -- too large -------------------------------------------------------------------------------------


def came_in_large(evidence: Evidence, *, factor: float) -> Iterator[Cause]:
    """Yields whether the gradient came in large, or its node made it ``factor`` times larger."""
    incoming, forward = _split_inputs(evidence)
    now = size_of(evidence.stats)
    if not incoming and not forward:
        yield Cause("it came in large", "no input of its node was dumped", UNKNOWN)
    for operand in incoming:
        size = size_of(operand.stats)
        if not size or not now:
            continue
        words = f"the gradient {operand.label} from {operand.source} has mean |x| {num(size)}, this one {num(now)}"
        made = now >= factor * size
        yield weighed("it came in large: a later layer, or the loss, made it so", words, not made)
        yield weighed("this node makes it larger", words, made)


def large_factor(evidence: Evidence, *, large: float) -> Iterator[Cause]:
    """Yields whether a forward value that the gradient is multiplied with exceeds ``large``."""
    for operand in _split_inputs(evidence)[1]:
        top = peak(operand.stats) or 0.0
        words = f"{operand.label} from {operand.source} reaches {num(top)}"
        title = "large activations or weights that it is multiplied with"
        yield weighed(title, words, top > large)


def summed_loss(evidence: Evidence) -> Iterator[Cause]:
    """Yields that a loss may be summed, for a gradient right behind it, which has no gradient as an input."""
    incoming, forward = _split_inputs(evidence)
    now = size_of(evidence.stats)
    if not incoming and forward and now:
        words = f"mean |x| right behind the loss is {num(now)}"
        yield Cause("the loss is summed over the batch instead of averaged", words, POSSIBLE)


# -- layer by layer --------------------------------------------------------------------------------


def one_steep_place(evidence: Evidence, *, factor: float) -> Iterator[Cause]:
    """Yields whether the norm changes by ``factor`` or more between two neighbouring layers."""
    steepest = _steepest([layer for layer in evidence.layers if layer.norm is not None])
    if steepest is None:
        return
    later, earlier, found = steepest
    words = f"norm {num(later.norm)} at {later.name}, {num(earlier.norm)} at {earlier.name}"
    steep = found >= factor
    yield weighed("one place between two layers changes it", words + ("" if steep else " is the steepest step"), steep)


def layer_facts(evidence: Evidence) -> Iterator[str]:
    known = [layer for layer in evidence.layers if layer.norm is not None]
    if len(known) < 2:
        return
    if len(known) <= 8:
        shown = ", ".join(f"{layer.name} {num(layer.norm)}" for layer in reversed(known))
    else:
        ends = [*reversed(known[-3:]), None, *reversed(known[:3])]
        shown = ", ".join("…" if layer is None else f"{layer.name} {num(layer.norm)}" for layer in ends)
    yield f"norms of the gradients, from the last layer back to the first: {shown}"
    steepest = _steepest(known)
    if steepest is not None:
        later, earlier, factor = steepest
        word = "vanishes to 0" if not earlier.norm else "shrinks" if (later.norm or 0) > earlier.norm else "grows"
        by = "" if not earlier.norm else f" by {times(factor)}"
        yield f"steepest between {later.name} and {earlier.name} before it: it {word}{by}"


def _steepest(known: Sequence[WeightAndGradient]) -> tuple[WeightAndGradient, WeightAndGradient, float] | None:
    """Returns (later, earlier, factor) of the neighbours whose norms differ most; a drop to 0 counts most."""
    best: tuple[WeightAndGradient, WeightAndGradient, float] | None = None
    for earlier, later in pairwise(known):
        if not later.norm:
            continue
        factor = 10 ** min(log10_ratio(later.norm, earlier.norm), 300) if earlier.norm else float("inf")
        if best is None or factor > best[2]:
            best = (later, earlier, factor)
    return best


# -- where to look next ----------------------------------------------------------------------------


def see_incoming_gradient(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    incoming, forward = _split_inputs(evidence)
    if incoming:
        text = "Go one layer up the backward pass: explain the gradient that came in."
        yield Advice(text, "explain", incoming[0].upstream)
    for operand in forward[:1]:
        text = f"See the forward value that it is multiplied with ({operand.label})."
        yield Advice(text, "distribution", operand.row.key)
