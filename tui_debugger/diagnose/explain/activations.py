"""Activations that saturate or die, and tensors that are all 0: what made them so."""

from __future__ import annotations

from collections.abc import Iterator

from tui_debugger.diagnose.explain.evidence import Advice, Evidence, Given, Section, course, culprit_of, found_words
from tui_debugger.diagnose.explain.gradients import vanishing
from tui_debugger.diagnose.explain.operator_rules import Cause, Standing
from tui_debugger.errors import TdbgError
from tui_debugger.model import Category, TensorStats, WatchResult
from tui_debugger.stats.blocks import ENDS, saturation, silent_units
from tui_debugger.text.numbers import share
from tui_debugger.text.phrases import finite_words, num, of_all
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import BOUND_NAMES, CONDITIONS
from tui_debugger.watch.recommended import activation_family

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
        tuple(_advice(evidence, family, weighed)),
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
        tuple(_advice(evidence, family, weighed)),
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
    from tui_debugger.diagnose.explain.sizes import amplified

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


def _advice(evidence: Evidence, family: str, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
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
