"""Tensors whose values are too large, too small, or spread wrongly: where the size comes from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tui_debugger.diagnose.explain.evidence import (
    GROWN,
    Advice,
    Evidence,
    Section,
    course,
    culprit_of,
    found_words,
    suddenly,
)
from tui_debugger.diagnose.explain.operator_rules import QUOTIENTS, Cause, Standing, type_name
from tui_debugger.diagnose.explain.weights import facts as update_facts
from tui_debugger.diagnose.explain.weights import plain_step
from tui_debugger.model import WatchResult
from tui_debugger.stats.blocks import peak
from tui_debugger.text.numbers import share
from tui_debugger.text.phrases import finite_words, limits_of, num, range_words, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.condition_table import BOUND_NAMES, CONDITIONS

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
        tuple(_advice(evidence, weighed)),
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


def _advice(evidence: Evidence, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
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
