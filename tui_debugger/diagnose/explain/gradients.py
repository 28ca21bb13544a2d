"""Gradients that vanish or explode: norms layer by layer, and what multiplies a gradient on its way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from tui_debugger.check.provenance import in_place
from tui_debugger.diagnose.explain.evidence import GROWN, Evidence, Given, course, found_words, norm, suddenly
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Section, Standing
from tui_debugger.graph.categories import update_of
from tui_debugger.graph.optimizers import group_start
from tui_debugger.model import TRAINABLE, WatchResult
from tui_debugger.stats.blocks import peak
from tui_debugger.stats.saturation import ENDS
from tui_debugger.text.phrases import HALVES, finite_words, limits_of, log10_ratio, num, of_all, tail, times
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.recommended import BIAS_GRADIENT, activation_family

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
MOST_LAYERS: Final = 48
"""Layers whose gradients are measured: of more, so many with the same distance."""
STEEP: Final = 100.0
"""A gradient that becomes so many times smaller or larger from one layer to the next."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A weight and the gradient that the optimizer got for it.

    Attributes:
        name: the weight.
        norm: of the gradient; None where it was not dumped or holds nothing finite.
    """

    name: str
    norm: float | None


def layers(evidence: Evidence) -> tuple[Layer, ...]:
    """Weights of two and more dimensions with the norms of their gradients, in the order of the forward pass."""
    nodes, step = evidence.flow.nodes, evidence.key.step
    updates = [update_of(name) for name in nodes.types]
    rows_of_updates = np.flatnonzero(np.array([update is not None for update in (*updates, None)])[nodes.type_id])
    found: list[tuple[int, str, int, int]] = []
    for row in rows_of_updates.tolist():
        update = updates[int(nodes.type_id[row])]
        if update is None:
            continue
        for slot in sorted(in_place(evidence.flow, row)):
            start = group_start(update, slot)
            held = evidence.flow.holder(row, slot).row
            if slot - start == update.weight and held >= 0 and nodes.category_of(held) in TRAINABLE:
                first = min((int(nodes.order[each]) for each, _ in evidence.flow.consumers(held)), default=0)
                found.append((first, nodes.names[held], row, start + update.gradient))
    found = [each for each in sorted(found) if not _is_bias(evidence, each[2], each[3])]
    if len(found) > MOST_LAYERS:
        found = [found[round(at * (len(found) - 1) / (MOST_LAYERS - 1))] for at in range(MOST_LAYERS)]
    rows = []
    for _, _, row, slot in found:
        listed = evidence.session.tensor_rows(evidence.key.rank, step, row)
        rows.append(next((each for each in listed if each.role == "in" and each.slot == slot), None))
    measured = iter(evidence.measured([row for row in rows if row is not None]))
    norms = [norm(next(measured).stats) if row is not None else None for row in rows]
    return tuple(Layer(name, size) for (_, name, _, _), size in zip(found, norms, strict=True))


def _is_bias(evidence: Evidence, row: int, slot: int) -> bool:
    made = evidence.flow.holder(row, slot).row
    return made >= 0 and evidence.flow.nodes.op_type(made) == BIAS_GRADIENT


def layer_facts(found: Sequence[Layer]) -> Iterator[str]:
    """First and last layer, the steepest change between neighbours."""
    known = [layer for layer in found if layer.norm is not None]
    if len(known) < 2:
        return
    if len(known) <= 8:
        shown = ", ".join(f"{layer.name} {num(layer.norm)}" for layer in reversed(known))
    else:
        ends = [*reversed(known[-3:]), None, *reversed(known[:3])]
        shown = ", ".join("…" if layer is None else f"{layer.name} {num(layer.norm)}" for layer in ends)
    yield f"norms of the gradients, from the last layer back to the first: {shown}"
    steepest = steepest_of(known)
    if steepest is not None:
        later, earlier, factor = steepest
        word = "vanishes to 0" if not earlier.norm else "shrinks" if (later.norm or 0) > earlier.norm else "grows"
        by = "" if not earlier.norm else f" by {times(factor)}"
        yield f"steepest between {later.name} and {earlier.name} before it: it {word}{by}"


def steepest_of(known: Sequence[Layer]) -> tuple[Layer, Layer, float] | None:
    """(later, earlier, factor) of the neighbours whose norms differ most; a drop to 0 counts most."""
    best: tuple[Layer, Layer, float] | None = None
    for earlier, later in pairwise(known):
        if not later.norm:
            continue
        factor = 10 ** min(log10_ratio(later.norm, earlier.norm), 300) if earlier.norm else float("inf")
        if best is None or factor > best[2]:
            best = (later, earlier, factor)
    return best


# -- causes ----------------------------------------------------------------------------------------


def vanishing(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a gradient that is too small."""
    found = layers(evidence)
    return _section(evidence, result, found, (*zeroed(evidence), *_range_of_type(evidence), *_by_layers(found)))


def too_large(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for a gradient that is too large."""
    found = layers(evidence)
    sudden = suddenly(evidence, "the gradient")
    weighed = (*_grown(evidence), *([sudden] if sudden is not None else []), *_by_layers(found))
    return _section(evidence, result, found, weighed)


def _section(evidence: Evidence, result: WatchResult, found: Sequence[Layer], weighed: tuple[Cause, ...]) -> Section:
    return Section(
        (result.condition,),
        CONDITIONS[result.condition].title,
        found_words(result),
        weighed or (Cause("what this gradient was made from", "its inputs were not dumped", UNKNOWN),),
        tuple(_advice(evidence)),
        (*course(evidence, result), *layer_facts(found)),
    )


def _came_in(evidence: Evidence) -> tuple[list[Given], list[Given]]:
    """The inputs that are gradients, and those that come from the forward pass."""
    known = [given for given in evidence.dumped if not given.constant]
    return [each for each in known if each.gradient], [each for each in known if not each.gradient]


def zeroed(evidence: Evidence) -> Iterator[Cause]:
    """Why a gradient is 0 or tiny: it came in so, or what it is multiplied with is."""
    incoming, forward = _came_in(evidence)
    for row in (evidence.tensor, *(given.row for given in incoming)):
        limits, found = limits_of(row.meta), row.stats
        if limits is not None and limits.name in HALVES and found is not None and found.count == found.zero > 0:
            words = f"all {found.count:,} elements of {tail(row.key.node)} are 0; {limits.name} holds nothing below "
            words += f"{num(limits.normal * limits.eps)}: loss scaling keeps small gradients above it"
            yield Cause(f"it falls below the range of {limits.name}: the loss scale is too small", words, LIKELY)
            break
    stats = evidence.stats
    now = stats.abs_mean if stats is not None and stats.abs_mean is not None else 0.0
    title = "it came in small: a later layer lost it"
    if not incoming and not forward:
        yield Cause(title, "no input of its node was dumped", UNKNOWN)
        return
    for given in incoming:
        size = given.stats.abs_mean if given.stats is not None else None
        if size is None:
            continue
        words = f"the gradient {given.label} from {given.source} has mean |x| {num(size)}, this one {num(now)}"
        small = not size or (now and size / now < STEEP)
        yield Cause(title, words, LIKELY if small else RULED_OUT)
    for given in forward:
        yield from _multiplied(evidence, given)


def _multiplied(evidence: Evidence, given: Given) -> Iterator[Cause]:
    """Returns what a forward value makes of the gradient that meets it."""
    stats = given.stats
    if stats is None or not stats.count:
        return
    producer = evidence.flow.nodes.op_type(given.producer) if given.producer >= 0 else ""
    family = activation_family(producer)
    where = f"{given.label} from {given.source}"
    gate = evidence.maker_type.lower().endswith("grad") or evidence.maker_type.lower().startswith("threshold")
    if family == "relu" and gate:
        words = f"{of_all(stats.zero, stats.count)} of {where} are 0, and let nothing through"
        yield Cause("dead ReLU units", words, LIKELY if stats.zero_percentage >= 90 else RULED_OUT)
    elif stats.zero == stats.count:
        yield Cause("what it is multiplied with is all 0", f"{where}: all {stats.count:,} elements are 0", LIKELY)
    elif family in ENDS and gate and stats.abs_mean is not None and stats.maximum is not None:
        words = f"{where} is {finite_words(stats)}, mean |x| {num(stats.abs_mean)}"
        near = stats.abs_mean > 0.99 if family == "tanh" else stats.abs_mean > 0.99 or stats.abs_mean < 0.01
        yield Cause(f"a saturated {family}", words, LIKELY if near else RULED_OUT)
    else:
        top = peak(stats) or 0.0
        words = f"{where} is {finite_words(stats)}"
        yield Cause("what it is multiplied with is tiny", words, LIKELY if top < 1e-4 else RULED_OUT)


def _range_of_type(evidence: Evidence) -> Iterator[Cause]:
    limits, stats = limits_of(evidence.tensor.meta), evidence.stats
    if limits is None or stats is None or stats.abs_mean is None or not stats.abs_mean:
        return
    words = f"mean |x| is {num(stats.abs_mean)}, {limits.name} loses digits below {num(limits.normal)}"
    if limits.name in HALVES:
        words += ": loss scaling keeps small gradients above it"
    low = stats.abs_mean < limits.normal
    yield Cause(f"it falls below the range of {limits.name}", words, LIKELY if low else RULED_OUT)


def _grown(evidence: Evidence) -> Iterator[Cause]:
    """Why a gradient is large: it came in so, or this node made it larger."""
    incoming, forward = _came_in(evidence)
    stats = evidence.stats
    now = stats.abs_mean if stats is not None else None
    if not incoming and not forward:
        yield Cause("it came in large", "no input of its node was dumped", UNKNOWN)
        return
    for given in incoming:
        size = given.stats.abs_mean if given.stats is not None else None
        if not size or not now:
            continue
        words = f"the gradient {given.label} from {given.source} has mean |x| {num(size)}, this one {num(now)}"
        yield Cause(
            "it came in large: a later layer, or the loss, made it so",
            words,
            LIKELY if now < GROWN * size else RULED_OUT,
        )
        yield Cause("this node makes it larger", words, LIKELY if now >= GROWN * size else RULED_OUT)
    for given in forward:
        top = peak(given.stats) or 0.0
        words = f"{given.label} from {given.source} reaches {num(top)}"
        yield Cause(
            "large activations or weights that it is multiplied with", words, LIKELY if top > 100 else RULED_OUT
        )
    if not incoming and now:
        yield Cause(
            "the loss is summed over the batch instead of averaged",
            f"mean |x| right behind the loss is {num(now)}",
            POSSIBLE,
        )


def _by_layers(found: Sequence[Layer]) -> Iterator[Cause]:
    known = [layer for layer in found if layer.norm is not None]
    steepest = steepest_of(known)
    if steepest is None:
        return
    later, earlier, factor = steepest
    words = f"norm {num(later.norm)} at {later.name}, {num(earlier.norm)} at {earlier.name}"
    if factor >= STEEP:
        yield Cause("one place between two layers changes it", words, LIKELY)
    else:
        yield Cause("one place between two layers changes it", f"{words} is the steepest step", RULED_OUT)


def _advice(evidence: Evidence) -> Iterator[Advice]:
    incoming, forward = _came_in(evidence)
    if incoming:
        key = incoming[0].made
        yield Advice("Go one layer up the backward pass: explain the gradient that came in.", "explain", key)
    for given in forward[:1]:
        yield Advice(
            f"See the forward value that it is multiplied with ({given.label}).", "distribution", given.row.key
        )
    yield Advice("See the gradient over all steps: was it ever larger?", "trend")
    yield Advice("See which layers and steps look like this.", "health")
