"""Causes of values that are too large, too small, out of a range, saturated, dead or all 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tui_debugger.diagnose.explain.evidence import Evidence, OperandEvidence, culprit_of, found_words, size_of
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing, weighed
from tui_debugger.diagnose.explain.operators import QUOTIENTS, type_name
from tui_debugger.errors import TdbgError
from tui_debugger.model import WatchResult
from tui_debugger.stats.blocks import ENDS, peak, saturation, silent_units
from tui_debugger.text.numbers import are, share
from tui_debugger.text.phrases import every, finite_words, limits_of, num, part_of, range_words, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import BOUND_NAMES
from tui_debugger.watch.recommended import activation_family

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


# -- size ------------------------------------------------------------------------------------------


def size_of_inputs(evidence: Evidence, *, large: bool, factor: float) -> Iterator[Cause]:
    """Yields whether the tensor's size came in with an input, or its operator changed it by ``factor`` or more."""
    quotient = type_name(evidence.producer_type) in QUOTIENTS  # a denominator does not pass its size on
    known = [
        operand for operand in evidence.known_inputs if not operand.constant and not (quotient and operand.slot == 1)
    ]
    now = size_of(evidence.stats)
    word = "large" if large else "small"
    came = f"it came in {word} already"
    if not known or now is None:
        what = "no node of the graph makes this tensor" if evidence.producer < 0 else "its inputs were not dumped"
        yield Cause(came, what, UNKNOWN)
        return
    sizes = [(size, operand) for operand in known if (size := size_of(operand.stats)) is not None]
    if not sizes:
        yield Cause(came, "its inputs have no finite value", LIKELY)
        return
    size, operand = max(sizes, key=lambda each: each[0]) if large else min(sizes, key=lambda each: each[0])
    words = f"{operand.label} from {operand.source} has mean |x| {num(size)}, the output {num(now)}"
    ratio = now / size if size else math.inf
    found = ratio if large else 1 / ratio if ratio else math.inf
    if math.isfinite(found) and found > 1:
        words += f" ({times(found)} {'that' if large else 'less'})"
    made = found >= factor
    yield weighed(came, words, not made)
    title = f"{evidence.producer_type or 'its node'} makes it {'larger' if large else 'smaller'}"
    yield weighed(title, words, made)


def close_to_overflow(evidence: Evidence, *, part: float) -> Iterator[Cause]:
    """Yields whether the values exceed ``part`` of the range of their element type."""
    limits, top = limits_of(evidence.tensor.meta), peak(evidence.stats)
    if limits is not None and top:
        words = f"{num(top)} is {share(top, limits.largest)} of {num(limits.largest)}"
        standing = LIKELY if top > part * limits.largest else RULED_OUT
        yield Cause(f"it is about to overflow {limits.name}", words, standing)


def below_range(evidence: Evidence) -> Iterator[Cause]:
    """Yields whether all values are below the smallest normal number of their element type."""
    limits, top = limits_of(evidence.tensor.meta), peak(evidence.stats)
    if limits is not None and top is not None:
        words = f"the greatest magnitude is {num(top)}, {limits.name} loses digits below {num(limits.normal)}"
        yield weighed(f"it falls below the range of {limits.name}", words, top < limits.normal)


# -- range -----------------------------------------------------------------------------------------


def place_in_range(evidence: Evidence, *, deviations: float) -> Iterator[Cause]:
    """Yields how the values lie beside the hit's range; ``deviations`` from the mean make an outlier."""
    stats, bounds = evidence.stats, _bounds(evidence.result)
    if stats is None or stats.mean is None or stats.variance is None:
        return
    deviation = math.sqrt(stats.variance)
    words = f"values are {finite_words(stats)}, mean {num(stats.mean)}, deviation {num(deviation)}"
    if len(bounds) < 2:
        far = deviation > 0 and (peak(stats) or 0.0) > abs(stats.mean) + deviations * deviation
        yield weighed("a few outliers span the range", words, far)
        return
    low, high = (bounds[name] for name in BOUND_NAMES)
    outside = stats.mean < low or stats.mean > high
    yield weighed("the values as a whole are shifted out of the range", words, outside)
    wide = deviation > (high - low) / 2
    words = f"deviation {num(deviation)}, half the range is {num((high - low) / 2)}"
    yield weighed("the values spread wider than the range", words, wide)


def _bounds(result: WatchResult) -> dict[str, float]:
    return {param.name: float(param.value) for param in result.params if param.name in BOUND_NAMES}


def found_with_range(evidence: Evidence) -> str:
    words, bounds = found_words(evidence), _bounds(evidence.result)
    if len(bounds) < 2:
        return words
    return f"{words} (the range is {num(bounds[BOUND_NAMES[0]])} to {num(bounds[BOUND_NAMES[1]])})"


# -- saturated and dead activations ----------------------------------------------------------------


def _inputs_are_finite(evidence: Evidence) -> bool:
    return evidence.stats is not None and not any(operand.bad for operand in evidence.inputs)


def _argument(evidence: Evidence) -> OperandEvidence | None:
    return evidence.inputs[0] if len(evidence.inputs) == 1 else None


def bad_argument(evidence: Evidence) -> Iterator[Cause]:
    bad = next((operand for operand in evidence.inputs if operand.bad), None)
    if evidence.stats is not None and bad is not None:
        words = f"{bad.label} from {bad.source} has NaN or Inf, so zeros and saturation here follow from them"
        yield Cause("it does not start here: an input is bad already", words, LIKELY)


def dead_units(evidence: Evidence, *, dead_percent: float, some_percent: float) -> Iterator[Cause]:
    """Yields whether the units of a ReLU are dead, and since when; the limits are percentages of zeros."""
    stats, argument = evidence.stats, _argument(evidence)
    if stats is None or not _inputs_are_finite(evidence):
        return
    title = "the units are dead: their argument is above 0 for no sample"
    if argument is not None and argument.stats is not None and argument.stats.maximum is not None:
        some = POSSIBLE if stats.zero_percentage >= some_percent or not stats.counted else RULED_OUT
        words = f"the argument {argument.label} is {finite_words(argument.stats)}"
        yield Cause(title, words, LIKELY if argument.stats.maximum <= 0 else some)
    else:
        zeros = part_of(stats, "zero")
        words = f"{zeros} of the output are 0; the argument is inside the fused operator and was not dumped"
        yield Cause(title, words, LIKELY if stats.zero_percentage >= dead_percent else POSSIBLE)
    yield from _dead_since(evidence, dead_percent)


def _dead_since(evidence: Evidence, dead_percent: float) -> Iterator[Cause]:
    before = evidence.before
    already = "it was dead before: its initial values or an earlier step did it"
    if before is not None and before.stats is not None:
        words = f"{share(before.stats.zero, before.stats.count or 1)} were 0 at step {run_text(before.key)}"
        if not before.stats.counted:
            yield Cause(already, f"its zeros were not counted at step {run_text(before.key)}", UNKNOWN)
        elif before.stats.zero_percentage >= dead_percent:
            yield Cause(already, words, LIKELY)
        else:
            update = "the last step of the optimizer" if evidence.adjacent else "the optimizer"
            yield Cause(f"{update} pushed it there (learning rate too high)", words, POSSIBLE)
    elif evidence.key.step <= 0:
        words = "this is the first step, so no update of this run is to blame"
        yield Cause("its initial values, or the bias, are off", words, LIKELY)
    else:
        yield Cause(already, "how it was at the step before is not known", UNKNOWN)


def large_argument(evidence: Evidence, *, flat_beyond: Mapping[str, float], deviations: float) -> Iterator[Cause]:
    """Yields whether a saturated activation's argument is too large, or its mean too many ``deviations`` from 0.

    ``flat_beyond``: magnitude of the argument beyond which each activation hardly changes.
    """
    if not _inputs_are_finite(evidence):
        return
    argument, family = _argument(evidence), activation_family(evidence.producer_type)
    stats = argument.stats if argument is not None else None
    if argument is None or stats is None or stats.abs_mean is None:
        yield Cause("its argument is too large", "the argument was not dumped", UNKNOWN)
        return
    limit = flat_beyond[family]
    words = (
        f"the argument {argument.label} has mean |x| {num(stats.abs_mean)} ({finite_words(stats)}); "
        f"{family} is flat beyond ±{num(limit)}"
    )
    yield weighed("its argument is too large", words, stats.abs_mean > limit)
    if stats.mean is not None and stats.variance is not None:
        deviation = stats.variance**0.5
        words = f"mean {num(stats.mean)}, deviation {num(deviation)}"
        shifted = abs(stats.mean) > max(deviations * deviation, limit)
        yield weighed("its argument is shifted to one side", words, shifted)


def parts_of_fused(evidence: Evidence) -> Iterator[Cause]:
    """Yields which of data, weight and bias is out of line, where an activation is fused with the layer before it."""
    inputs = evidence.inputs
    if len(inputs) < 3 or not _inputs_are_finite(evidence):
        return
    for each, name in zip(inputs[:3], ("data", "weight", "bias"), strict=True):
        stats = each.stats
        if stats is None:
            continue
        if stats.count and stats.zero == stats.count and name != "bias":
            yield Cause(f"the {name} is all 0", f"{each.label} ({each.source}): {every(stats)}", LIKELY)
        elif name == "bias" and stats.maximum is not None and stats.maximum < 0 and stats.abs_mean is not None:
            size = size_of(inputs[1].stats)
            ratio = f", {num(stats.abs_mean / size)} times mean |weight|" if size else ""
            words = f"{each.label} ({each.source}) is {finite_words(stats)}{ratio}"
            yield Cause("a bias that is negative throughout", words, LIKELY)


# -- zeros -----------------------------------------------------------------------------------------


def found_with_zeros(evidence: Evidence) -> str:
    stats = evidence.stats
    words = found_words(evidence)
    if stats is None:
        return words
    return f"{words}: {part_of(stats, 'zero')} {are(stats.zero)} 0"


def zero_parameter(evidence: Evidence) -> Iterator[Cause]:
    before, gradient = evidence.before, evidence.gradient
    if before is not None and before.stats is not None:
        zero = before.stats.zero == before.stats.count
        words = f"{part_of(before.stats, 'zero')} were 0 at step {run_text(before.key)}"
        yield weighed("it was 0 before: it is initialised with 0 and never changes", words, zero)
    if gradient is not None:
        zero = gradient.zero == gradient.count
        words = f"{part_of(gradient, 'zero')} of its gradient are 0"
        yield weighed("its gradient is 0", words, zero)
    elif evidence.optimizer is None and evidence.updated_in is None:
        title = "it is initialised with 0" if evidence.initial else "it was 0 before the first dumped step"
        yield Cause(title, "this is its value before the first dumped step", LIKELY)
    else:
        yield Cause("its gradient is 0", "the gradient was not dumped, or no graph tells which it is", UNKNOWN)


def zero_inputs(evidence: Evidence) -> Iterator[Cause]:
    known = [(operand, operand.stats) for operand in evidence.known_inputs if operand.stats is not None]
    zero = [(operand, stats) for operand, stats in known if stats.count == stats.zero]
    if not evidence.inputs:
        yield Cause("zeros that come in from outside", "no node of the graph makes this tensor", POSSIBLE)
    elif not known:
        yield Cause("an input that is all 0", "its inputs were not dumped", UNKNOWN)
    for operand, stats in zero:
        words = f"{operand.label} ({operand.source}): {every(stats)}"
        yield Cause("an input that is all 0", words, LIKELY)
    if known and not zero:
        words = "; ".join(f"{operand.label} {finite_words(stats)}" for operand, stats in known[:3])
        yield Cause("an input that is all 0", words, RULED_OUT)
        yield Cause(f"{evidence.producer_type or 'the operator'} makes zeros of what it gets", words, POSSIBLE)


# -- numbers, and where to look next ---------------------------------------------------------------


def near_limit(evidence: Evidence, *, only_near: bool) -> Iterator[str]:
    """Yields how near the values come to the limits of their type; with ``only_near``, only if they are near."""
    words = range_words(evidence.tensor.meta, evidence.stats, only_near=only_near)
    if words:
        yield words


def saturation_facts(evidence: Evidence) -> Iterator[str]:
    """Yields the shares at the ends of an activation, and the units that are 0 for every sample."""
    row, family = evidence.tensor, activation_family(evidence.producer_type)
    if not family or not evidence.readable(row):
        return
    try:
        array = evidence.session.read(row.key)
        counted = saturation(array, family)
        silent = silent_units(array) if family == "relu" else None
    except (TdbgError, TypeError, ValueError):
        return
    if family != "relu" and counted.count:
        ends = ", ".join(
            f"{share(at, counted.count)} at {num(end)}" for at, end in zip(counted.at, ENDS[family], strict=True)
        )
        yield f"saturated (within 0.001 of an end): {ends}"
    if silent is not None and silent[1]:
        yield f"dead units (0 for every sample of this step): {silent[0]:,} of {silent[1]:,}"


def see_values(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    if activation_family(evidence.producer_type):
        yield Advice("See how the values are distributed.", "distribution")
    else:
        yield Advice("See the values.", "values")


def see_input(evidence: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
    culprit = culprit_of(evidence, causes)
    if culprit is not None:
        text = f"See what went in: {culprit.label} from {culprit.source}."
        yield Advice(text, "distribution", culprit.row.key)


def see_downstream(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    """Advises to look downstream, unless it is a weight with an optimizer, which tells more."""
    if evidence.optimizer is None or evidence.parameter < 0:
        yield Advice("See what else this makes 0 downstream: its gradient, and the weights before it.", "relations")


def explain_input(evidence: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
    culprit = culprit_of(evidence, causes)
    if culprit is not None:
        yield Advice(f"Go upstream: explain the input {culprit.label}.", "explain", culprit.upstream)
