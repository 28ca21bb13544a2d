"""Causes of values that are too large, too small, saturated, dead or all 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tui_debugger.diagnose.explain.evidence import GROWN, Evidence, Given, course, culprit_of, found_words, suddenly
from tui_debugger.diagnose.explain.gradients import vanishing
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Section, Standing
from tui_debugger.diagnose.explain.operators import QUOTIENTS, type_name
from tui_debugger.diagnose.explain.weights import facts as update_facts
from tui_debugger.diagnose.explain.weights import plain_step
from tui_debugger.errors import TdbgError
from tui_debugger.model import Category, TensorStats, WatchResult
from tui_debugger.stats.blocks import peak
from tui_debugger.stats.saturation import ENDS, saturation, silent_units
from tui_debugger.text.numbers import share
from tui_debugger.text.phrases import finite_words, limits_of, num, of_all, range_words, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import BOUND_NAMES, CONDITIONS
from tui_debugger.watch.recommended import activation_family

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def too_large(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for values that are too large."""
    weighed = _weight(evidence, large=True) if evidence.parameter >= 0 else _tensor(evidence, large=True)
    return _section(evidence, result, tuple(weighed))


def too_small(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for values that are too small."""
    weighed = _weight(evidence, large=False) if evidence.parameter >= 0 else _tensor(evidence, large=False)
    return _section(evidence, result, tuple(weighed))


def out_of_range(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a tensor whose elements leave, or crowd into, a range."""
    bounds = {param.name: float(param.value) for param in result.params if param.name in BOUND_NAMES}
    weighed = [*_place_in(evidence, bounds), *amplified(evidence, large=True)]
    sudden = suddenly(evidence)
    weighed += [sudden] if sudden is not None else []
    return _section(evidence, result, tuple(weighed))


def _section(evidence: Evidence, result: WatchResult, weighed: tuple[Cause, ...]) -> Section:
    room = range_words(evidence.tensor.meta, evidence.stats, only_near=True)
    update = tuple(update_facts(evidence)) if evidence.parameter >= 0 else ()
    return Section(
        (result.condition,),
        CONDITIONS[result.condition].title,
        found_words(result),
        weighed or (Cause("where the size comes from", "nothing that it was made from was dumped", UNKNOWN),),
        tuple(_size_advice(evidence, weighed)),
        (*course(evidence, result), *([room] if room else []), *update),
    )


def _place_in(evidence: Evidence, bounds: dict[str, float]) -> Iterator[Cause]:
    """Tells how the values lie beside the asked range."""
    stats = evidence.stats
    if stats is None or stats.mean is None or stats.variance is None:
        return
    spread = math.sqrt(stats.variance)
    words = f"values are {finite_words(stats)}, mean {num(stats.mean)}, deviation {num(spread)}"
    if len(bounds) < 2:
        title = "a few outliers span the range"
        far = spread and (peak(stats) or 0.0) > abs(stats.mean) + 6 * spread
        yield Cause(title, words, LIKELY if far else RULED_OUT)
        return
    low, high = (bounds[name] for name in BOUND_NAMES)
    outside = stats.mean < low or stats.mean > high
    yield Cause("the values as a whole are shifted out of the range", words, LIKELY if outside else RULED_OUT)
    wide = spread > (high - low) / 2
    words = f"deviation {num(spread)}, half the range is {num((high - low) / 2)}"
    yield Cause("the values spread wider than the range", words, LIKELY if wide else RULED_OUT)


# -- operators -------------------------------------------------------------------------------------


def _tensor(evidence: Evidence, *, large: bool) -> Iterator[Cause]:
    yield from amplified(evidence, large=large)
    sudden = suddenly(evidence)
    if sudden is not None:
        yield sudden
    limits, top = limits_of(evidence.tensor.meta), peak(evidence.stats)
    if large and limits is not None and top:
        words = f"{num(top)} is {share(top, limits.largest)} of {num(limits.largest)}"
        standing = LIKELY if top > 0.5 * limits.largest else RULED_OUT
        yield Cause(f"it is about to overflow {limits.name}", words, standing)
    elif limits is not None and top is not None:
        words = f"the greatest magnitude is {num(top)}, {limits.name} loses digits below {num(limits.normal)}"
        yield Cause(f"it falls below the range of {limits.name}", words, LIKELY if top < limits.normal else RULED_OUT)


def amplified(evidence: Evidence, *, large: bool) -> Iterator[Cause]:
    """Tells whether the size came in with an input, or was made here."""
    quotient = type_name(evidence.maker_type) in QUOTIENTS  # what is divided by does not come out again
    known = [given for given in evidence.dumped if not given.constant and not (quotient and given.slot == 1)]
    now = evidence.stats.abs_mean if evidence.stats is not None else None
    word = "large" if large else "small"
    came = f"it came in {word} already"
    if not known or now is None:
        what = "no node of the graph makes this tensor" if evidence.maker < 0 else "its inputs were not dumped"
        yield Cause(came, what, UNKNOWN)
        return
    sizes = [
        (given.stats.abs_mean, given) for given in known if given.stats is not None and given.stats.abs_mean is not None
    ]
    if not sizes:
        yield Cause(came, "its inputs have no finite value", LIKELY)
        return
    size, given = max(sizes, key=lambda each: each[0]) if large else min(sizes, key=lambda each: each[0])
    words = f"{given.label} from {given.source} has mean |x| {num(size)}, the output {num(now)}"
    ratio = now / size if size else math.inf
    factor = ratio if large else 1 / ratio if ratio else math.inf
    if math.isfinite(factor) and factor > 1:
        words += f" ({times(factor)} {'that' if large else 'less'})"
    made = factor >= GROWN
    yield Cause(came, words, RULED_OUT if made else LIKELY)
    title = f"{evidence.maker_type or 'its node'} makes it {'larger' if large else 'smaller'}"
    yield Cause(title, words, LIKELY if made else RULED_OUT)


# -- weights ---------------------------------------------------------------------------------------


def _weight(evidence: Evidence, *, large: bool) -> Iterator[Cause]:
    optimizer, before, now = evidence.optimizer, evidence.before, evidence.stats
    word = "large" if large else "small"
    if before is not None and before.stats is not None and before.stats.abs_mean is not None and now is not None:
        earlier, size = before.stats.abs_mean, now.abs_mean or 0.0
        words = f"mean |w| was {num(earlier)} at step {run_text(before.key)}, now it is {num(size)}"
        same = 0.5 <= size / earlier <= 2 if earlier else size == earlier
        yield Cause(
            f"it was as {word} before this step: initial values, or many steps", words, LIKELY if same else RULED_OUT
        )
        update = "this step's update" if evidence.adjacent else "an update since then"
        yield Cause(f"{update} made it so", words, RULED_OUT if same else LIKELY)
    elif evidence.made_in is None:
        title = f"its initial values are as {word}" if evidence.initial else f"it was as {word} before the dump began"
        yield Cause(title, "this is its value before the first dumped step", LIKELY)
    else:
        words = "its values at the step before are not known"
        yield Cause(f"it was as {word} before this step", words, UNKNOWN)
    if optimizer is None:
        unmoved = evidence.has_graph and evidence.updater[0] < 0
        words = "no operator of the graph updates it" if unmoved else "no graph tells which operator updates it"
        yield Cause("the optimizer", words, RULED_OUT if unmoved else UNKNOWN)
        return
    plain = plain_step(optimizer)
    weight = before.stats.abs_mean if before is not None and before.stats is not None else None
    if plain is not None and weight:
        words = f"one step moves an element by about {num(float(f'{plain:.3g}'))}, mean |w| was {num(weight)}"
        yield Cause(
            "learning rate times gradient is large beside the weight",
            words,
            LIKELY if plain > 0.1 * weight else RULED_OUT,
        )
    if optimizer.decay is not None:
        words = f"weight decay is {num(optimizer.decay)}"
        strong = optimizer.decay > 0.1 if not large else optimizer.decay == 0
        title = "weight decay shrinks it" if not large else "nothing shrinks it: there is no weight decay"
        yield Cause(title, words, POSSIBLE if strong else RULED_OUT)


def _size_advice(evidence: Evidence, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
    yield Advice("See how the values are distributed: all of them, or a few outliers.", "distribution")
    yield Advice("See when it began to grow or shrink.", "trend")
    if evidence.parameter >= 0:
        optimizer = evidence.optimizer
        if optimizer is not None and optimizer.rate_row is not None:
            yield Advice("See the learning rate over all steps.", "trend", optimizer.rate_row.key)
        return
    culprit = culprit_of(evidence, [cause for cause in weighed if cause.standing is LIKELY])
    if culprit is not None:
        key = culprit.made
        yield Advice(f"Go upstream: explain the input {culprit.label}.", "explain", key)


LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
FLAT = {"tanh": 3.8, "sigmoid": 6.9}
"""Magnitude of the argument beyond which the output is within ``saturation.NEAR`` of an end."""
_DEAD = 99.9


def activation_range(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for an activation whose values leave, or crowd into, a range."""
    family = activation_family(evidence.maker_type)
    weighed = tuple(_saturated(evidence, family)) if family else tuple(_plain_range(evidence))
    words = found_words(result)
    bounds = {param.name: float(param.value) for param in result.params if param.name in BOUND_NAMES}
    inside = (
        f" (the range is {num(bounds[BOUND_NAMES[0]])} to {num(bounds[BOUND_NAMES[1]])})" if len(bounds) > 1 else ""
    )
    return Section(
        (result.condition,),
        CONDITIONS[result.condition].title,
        words + inside,
        weighed,
        tuple(_activation_advice(evidence, family, weighed)),
        (*saturation_facts(evidence, family), *course(evidence, result)),
    )


def all_zero(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a tensor with too many zeros."""
    if (
        evidence.parameter < 0
        and evidence.maker >= 0
        and evidence.flow.nodes.category_of(evidence.maker) is Category.GRADIENT
    ):
        return vanishing(evidence, result)
    stats = evidence.stats
    counted = f": {of_all(stats.zero, stats.count)} {'is' if stats.zero == 1 else 'are'} 0" if stats is not None else ""
    family = activation_family(evidence.maker_type)
    if family == "relu":
        weighed = tuple(_saturated(evidence, family))
    elif evidence.parameter >= 0:
        weighed = tuple(_zero_parameter(evidence))
    else:
        weighed = tuple(_zero_inputs(evidence))
    return Section(
        (result.condition,),
        CONDITIONS[result.condition].title,
        found_words(result) + counted,
        weighed,
        tuple(_activation_advice(evidence, family, weighed)),
        (*saturation_facts(evidence, family), *course(evidence, result)),
    )


# -- saturation ------------------------------------------------------------------------------------


def saturation_facts(evidence: Evidence, family: str) -> Iterator[str]:
    """Shares at the ends of an activation, and the units that never answer."""
    row = evidence.tensor
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


def _saturated(evidence: Evidence, family: str) -> Iterator[Cause]:
    """Returns what speaks for a shifted or too wide argument, by family."""
    stats = evidence.stats
    if stats is None:
        return
    given = evidence.inputs
    argument = given[0] if len(given) == 1 else None
    bad = [each for each in given if each.bad]
    if bad:
        words = f"{bad[0].label} from {bad[0].source} has NaN or Inf: what became of them says little"
        yield Cause("it does not start here: an input is bad already", words, LIKELY)
        return
    if family == "relu":
        yield from _dead(evidence, argument, stats)
    else:
        yield from _flat(family, argument)
    yield from _into_fused(given)


def _dead(evidence: Evidence, argument: Given | None, stats: TensorStats) -> Iterator[Cause]:
    title = "the units are dead: their argument is above 0 for no sample"
    if argument is not None and argument.stats is not None and argument.stats.maximum is not None:
        top = argument.stats.maximum
        words = f"the argument {argument.label} is {finite_words(argument.stats)}"
        yield Cause(title, words, LIKELY if top <= 0 else POSSIBLE if stats.zero_percentage >= 50 else RULED_OUT)
    else:
        zeros = of_all(stats.zero, stats.count)
        words = f"{zeros} of the output are 0; the argument is inside the fused operator and was not dumped"
        yield Cause(title, words, LIKELY if stats.zero_percentage >= _DEAD else POSSIBLE)
    before = evidence.before
    if before is not None and before.stats is not None:
        earlier = before.stats.zero_percentage
        words = f"{share(before.stats.zero, before.stats.count or 1)} were 0 at step {run_text(before.key)}"
        if earlier >= _DEAD:
            yield Cause("it was dead before: its initial values or an earlier step did it", words, LIKELY)
        else:
            title = "the last step of the optimizer" if evidence.adjacent else "the optimizer"
            yield Cause(f"{title} pushed it there (learning rate too high)", words, POSSIBLE)
    elif evidence.key.step <= 0:
        words = "this is the first step, so no update of this run is to blame"
        yield Cause("its initial values, or the bias, are off", words, LIKELY)
    else:
        words = "how it was at the step before is not known"
        yield Cause("it was dead before: its initial values or an earlier step did it", words, UNKNOWN)


def _flat(family: str, argument: Given | None) -> Iterator[Cause]:
    title = "its argument is too large"
    if argument is None or argument.stats is None or argument.stats.abs_mean is None:
        yield Cause(title, "the argument was not dumped", UNKNOWN)
        return
    limit = FLAT[family]
    words = (
        f"the argument {argument.label} has mean |x| {num(argument.stats.abs_mean)} ({finite_words(argument.stats)}); "
        f"{family} is flat beyond ±{num(limit)}"
    )
    yield Cause(title, words, LIKELY if argument.stats.abs_mean > limit else RULED_OUT)
    mean = argument.stats.mean
    if mean is not None and argument.stats.variance is not None:
        spread = argument.stats.variance**0.5
        words = f"mean {num(mean)}, deviation {num(spread)}"
        yield Cause(
            "its argument is shifted to one side", words, LIKELY if abs(mean) > max(2 * spread, limit) else RULED_OUT
        )


def _into_fused(given: tuple[Given, ...]) -> Iterator[Cause]:
    """The parts of a fused operator: data, weight and bias tell which one is out of line."""
    if len(given) < 3:
        return
    for each, name in zip(given[:3], ("data", "weight", "bias"), strict=True):
        stats = each.stats
        if stats is None or stats.bad:
            continue
        if stats.count and stats.zero == stats.count and name != "bias":
            yield Cause(
                f"the {name} is all 0",
                f"{each.label} ({each.source}): all {stats.count:,} elements",
                LIKELY,
            )
        elif name == "bias" and stats.maximum is not None and stats.maximum < 0 and stats.abs_mean is not None:
            weight = given[1].stats
            size = weight.abs_mean if weight is not None else None
            ratio = f", {num(stats.abs_mean / size)} times mean |weight|" if size else ""
            words = f"{each.label} ({each.source}) is {finite_words(stats)}{ratio}"
            yield Cause("a bias that is negative throughout", words, LIKELY)


def _plain_range(evidence: Evidence) -> Iterator[Cause]:

    yield from amplified(evidence, large=True)


# -- zeros -----------------------------------------------------------------------------------------


def _zero_parameter(evidence: Evidence) -> Iterator[Cause]:
    optimizer, before = evidence.optimizer, evidence.before
    if before is not None and before.stats is not None:
        zero = before.stats.zero == before.stats.count
        words = f"{of_all(before.stats.zero, before.stats.count)} were 0 at step {run_text(before.key)}"
        yield Cause("it was 0 before: it is initialised with 0 and never changes", words, LIKELY if zero else RULED_OUT)
    gradient = optimizer.gradient.stats if optimizer is not None and optimizer.gradient is not None else None
    if gradient is not None:
        zero = gradient.zero == gradient.count
        words = f"{of_all(gradient.zero, gradient.count)} of its gradient are 0"
        yield Cause("its gradient is 0", words, LIKELY if zero else RULED_OUT)
    elif optimizer is None and evidence.made_in is None:
        title = "it is initialised with 0" if evidence.initial else "it was 0 before the first dumped step"
        yield Cause(title, "this is its value before the first dumped step", LIKELY)
    else:
        yield Cause("its gradient is 0", "the gradient was not dumped, or no graph tells which it is", UNKNOWN)


def _zero_inputs(evidence: Evidence) -> Iterator[Cause]:
    known = evidence.dumped
    zero = [given for given in known if given.stats is not None and given.stats.count == given.stats.zero]
    if not evidence.inputs:
        yield Cause("zeros that come in from outside", "no node of the graph makes this tensor", POSSIBLE)
    elif not known:
        yield Cause("an input that is all 0", "its inputs were not dumped", UNKNOWN)
    for given in zero:
        count = given.stats.count if given.stats is not None else 0
        words = f"{given.label} ({given.source}): all {count:,} elements"
        yield Cause("an input that is all 0", words, LIKELY)
    if known and not zero:
        words = "; ".join(
            f"{given.label} {finite_words(given.stats)}" for given in known[:3] if given.stats is not None
        )
        yield Cause("an input that is all 0", words, RULED_OUT)
        yield Cause(f"{evidence.maker_type or 'the operator'} makes zeros of what it gets", words, POSSIBLE)


def _activation_advice(evidence: Evidence, family: str, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
    if family:
        yield Advice("See how the values are distributed.", "distribution")
    else:
        yield Advice("See the values.", "values")
    yield Advice("See at which step it began, and whether it recovers.", "trend")
    culprit = culprit_of(evidence, [cause for cause in weighed if cause.standing is LIKELY])
    if culprit is not None:
        yield Advice(f"See what went in: {culprit.label} from {culprit.source}.", "distribution", culprit.row.key)
    if evidence.optimizer is None or evidence.parameter < 0:
        yield Advice("See what else this makes 0 downstream: its gradient, and the weights before it.", "relations")
