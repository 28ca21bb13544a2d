"""Causes of NaN and Inf: what came in bad, what a parameter was updated with, what the device recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tui_debugger.diagnose.explain.evidence import Evidence, OperandEvidence, Optimizer, culprit_of
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing, weighed
from tui_debugger.diagnose.explain.operators import QUOTIENTS, type_name
from tui_debugger.model import Category, Side
from tui_debugger.stats.blocks import peak
from tui_debugger.text.numbers import and_more, are
from tui_debugger.text.phrases import (
    HALVES,
    bad_counts,
    bad_of_all,
    every,
    finite_words,
    limits_of,
    num,
    of_all,
    part_of,
    range_words,
    tail,
)
from tui_debugger.text.tensors import amount, grouped, run_text, step_text

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
_NAMED = 3
"""The most inputs that are named in a sentence."""
_MOST_STEPS_BACK = 100
"""The most steps that a bad parameter is followed back."""
_PRODUCTS = frozenset({"mul", "multiply", "matmul", "batchmatmul", "mm", "bmm", "linear"})
"""Operators that make NaN of 0 × Inf, by ``type_name``."""
_DIFFERENCES = frozenset({"sub", "subtract", "add", "addn", "biasadd"})
"""Operators that make NaN of Inf - Inf, by ``type_name``."""


def found_counts(evidence: Evidence) -> str:
    stats = evidence.stats
    if stats is None:
        return "its values are not known"
    if not stats.sized:
        return f"{bad_counts(stats)}; the number of elements is not known"
    if stats.count == 1:
        return f"its only element is {bad_counts(stats).partition(' ')[2]}"
    none = "" if stats.finite or stats.at_least else ": none is finite"
    return f"{bad_counts(stats)} among {stats.count:,} elements{none}"


# -- what came in ----------------------------------------------------------------------------------


def bad_inputs(evidence: Evidence) -> tuple[OperandEvidence, ...]:
    """Returns the inputs with NaN or Inf, without constants and values by design such as masks."""
    return tuple(operand for operand in evidence.inputs if operand.bad and not operand.constant)


def bad_input(evidence: Evidence) -> Iterator[Cause]:
    bad = bad_inputs(evidence)
    named = [
        f"{operand.label} from {_source(evidence, operand)} ({bad_counts(operand.stats)})"
        for operand in bad
        if operand.stats
    ]
    yield Cause("it does not start here: an input is bad already", and_more(named, _NAMED), LIKELY)


def _source(evidence: Evidence, operand: OperandEvidence) -> str:
    step = "" if operand.row.key.step == evidence.key.step else f" of step {step_text(operand.row.key.step)}"
    return operand.source + step


def inf_turned_nan(evidence: Evidence) -> Iterator[Cause]:
    stats = evidence.stats
    bad = [operand for operand in evidence.inputs if (operand.bad and not operand.constant) or operand.designed]
    if stats is None or not stats.nan or not bad or any(operand.stats and operand.stats.nan for operand in bad):
        return
    title, kind, infinite = "Inf turns into NaN here", type_name(evidence.producer_type), bad[0]
    zeros = next(
        (
            operand
            for operand in evidence.known_inputs
            if operand is not infinite and operand.stats and operand.stats.zero
        ),
        None,
    )
    if kind in _PRODUCTS and zeros is not None and zeros.stats is not None:
        zero = part_of(zeros.stats, "zero")
        some = f"{zero} of {zeros.label} ({zeros.source}) {are(zeros.stats.zero)} 0"
        words = f"{some}, {infinite.label} has Inf: 0 × Inf is NaN"
    elif kind in QUOTIENTS and len(bad) > 1:
        words = "Inf in both inputs: Inf / Inf is NaN"
    elif kind in _DIFFERENCES and len(bad) > 1:
        words = "Inf in several inputs: Inf - Inf is NaN"
    else:
        words = f"{infinite.label} has Inf but no NaN, the output has {amount(stats, 'nan', grouped)}"
    yield Cause(title, words, LIKELY)


def nothing_known_of_inputs(evidence: Evidence) -> Iterator[Cause]:
    """Leaves open whether an input is bad or the operator itself makes the bad values."""
    what = "no graph or file tells what it was made from" if not evidence.inputs else "its inputs were not dumped"
    yield Cause("bad inputs, or the operator itself", what, UNKNOWN)


def large_loss_scale(evidence: Evidence) -> Iterator[Cause]:
    """Yields that a gradient in float16 overflowed, which usually means a loss scale that is too large."""
    stats, limits = evidence.stats, limits_of(evidence.tensor.meta)
    if stats is None or limits is None or not stats.inf:
        return
    if limits.name == "float16" and evidence.category is Category.GRADIENT:
        words = f"{bad_of_all(stats)} in a gradient, and {limits.name} holds {num(limits.largest)}"
        yield Cause("the loss scale is too large, or the loss itself", words, LIKELY)


def other_inputs(evidence: Evidence) -> Iterator[Cause]:
    """Rules out bad inputs, where all inputs are known."""
    known = evidence.known_inputs
    unknown = len(evidence.inputs) - len(known)
    if unknown:
        words = f"{unknown} of {len(evidence.inputs)} inputs are unknown"
        yield Cause("a bad input that was not dumped", words, UNKNOWN)
    else:
        words = "; ".join(f"{operand.label} has {_found_in(operand)}" for operand in known[:_NAMED])
        more = "; and so on" if len(known) > _NAMED else ""
        yield Cause("inputs with NaN or Inf", f"{words}{more}", RULED_OUT)


def _found_in(operand: OperandEvidence) -> str:
    return f"{bad_counts(operand.stats)} by design" if operand.designed and operand.stats else "none"


def by_design(evidence: Evidence) -> Iterator[Cause]:
    """Yields that an operator was told to write an Inf; its readers decide whether that is wrong."""
    stats = evidence.stats
    if stats is not None:
        made = evidence.producer >= 0
        words = "its operator was told to write it, or to pass it on" if made else "it came in as a mask"
        yield Cause("it is by design", f"{bad_counts(stats)}: {words}", LIKELY)


# -- parameters ------------------------------------------------------------------------------------


def bad_parameter(evidence: Evidence) -> Iterator[Cause]:
    before = evidence.before if evidence.carried else None
    if before is not None and before.stats is not None:
        earlier = before.stats
        step, when = before.key.step, run_text(before.key)
        if earlier.bad:
            since = bad_since(evidence)
            more = f"; {since.text}" if since is not None and since.step != step else ""
            words = f"at step {when} it had {bad_counts(earlier)} already{more}"
            yield Cause("it does not start here: it was bad before", words, LIKELY)
            return
        words = f"at step {when} {every(earlier)} were finite"
        if evidence.adjacent:
            yield Cause("it was bad before", words, RULED_OUT)
        else:
            yield Cause("it was bad before", f"{words}; the steps in between were not dumped", UNKNOWN)
    optimizer = evidence.optimizer
    if optimizer is None:
        yield _without_update(evidence)
        return
    yield from _bad_gradient(evidence, optimizer)
    for state in optimizer.states:
        # An update operator writes its state in place: its file holds the value after the step.
        earlier_state = evidence.stats_before(state.key)
        if earlier_state is not None and earlier_state.bad:
            name = state.origin_text.rpartition(":")[0] or state.key.node
            yield Cause("bad optimizer state", f"{name} had {bad_counts(earlier_state)} before", LIKELY)


def _without_update(evidence: Evidence) -> Cause:
    if evidence.updated_in is None:
        title = "bad initial values" if evidence.initial else "it was bad before the first dumped step"
        return Cause(title, "this is its value before the first dumped step", LIKELY)
    if not evidence.trained and evidence.updater[0] < 0:
        words = "nothing in the graph writes this parameter"
        return Cause("it came in bad from outside", words, LIKELY)
    return Cause("a bad update", "no graph tells which operator updates it", UNKNOWN)


def _bad_gradient(evidence: Evidence, optimizer: Optimizer) -> Iterator[Cause]:
    gradient = optimizer.gradient
    if gradient is None or gradient.stats is None:
        yield Cause("a bad gradient", f"the gradient that {tail(optimizer.name)} got was not dumped", UNKNOWN)
        return
    if gradient.stats.bad:
        came = f" ({gradient.origin_text.rpartition('/')[2]})" if gradient.origin_text else ""
        words = (
            f"the gradient{came} that {tail(optimizer.name)} used at step {optimizer.step} has "
            f"{bad_of_all(gradient.stats)}"
        )
        yield Cause("a bad gradient", words, LIKELY)
        return
    top = peak(gradient.stats) or 0.0
    yield Cause("a bad gradient", f"the gradient is finite, {num(top)} at most", RULED_OUT)
    limits = limits_of(evidence.tensor.meta)
    if limits is not None and optimizer.rate is not None and not optimizer.normalised:
        size = abs(optimizer.rate) * top
        words = (
            f"learning rate {num(optimizer.rate)} × gradient {num(top)} = {num(size)}; {limits.name} holds "
            f"{num(limits.largest)}"
        )
        title = f"a step beyond the range of {limits.name}"
        yield weighed(title, words, size > limits.largest)


@dataclass(frozen=True, slots=True)
class BadSince:
    """Since when a parameter is bad: the first ``step`` of consecutive bad dumped steps.

    ``clean`` is the last dumped step before, at which the parameter was clean; None when unknown.
    """

    step: int
    clean: int | None

    @property
    def exact(self) -> bool:
        return self.clean == self.step - 1

    @property
    def text(self) -> str:
        """``it is bad since step 3``, with what is unknown."""
        if self.exact:
            return f"it is bad since step {step_text(self.step)}"
        if self.clean is None:
            return f"it is bad since step {step_text(self.step)} or longer: nothing is known from before"
        return f"it turned bad after step {step_text(self.clean)}, at step {step_text(self.step)} at the latest"


def bad_since(evidence: Evidence) -> BadSince | None:
    """Follows a bad parameter back through the dumped steps before this one; None when it was not bad before."""
    found, key = None, evidence.key
    if not evidence.carried:
        return None
    for _ in range(_MOST_STEPS_BACK):
        earlier = evidence.session.before(key)
        row = evidence.at(earlier) if earlier is not None else None
        if earlier is None or row is None or row.stats is None:
            break
        if not row.stats.bad:
            return None if found is None else BadSince(found, earlier.step)
        found, key = earlier.step, earlier
    return None if found is None else BadSince(found, None)


# -- what the device recorded ----------------------------------------------------------------------


def found_recorded(evidence: Evidence) -> str:
    """Returns the overflows that a device recorded; they say nothing about the values."""
    table, key = evidence.flow.table(evidence.key.step), evidence.key
    index = table.find(evidence.row, key.side, key.slot, key.round)
    said = [f"{each}{each.meaning and ': '}{each.meaning}" for each in (table.overflows(index) if index >= 0 else ())]
    records = ", ".join(said)
    return "the device recorded an overflow of this operator" + (f": {records}" if records else "")


def written_in(evidence: Evidence) -> Iterator[str]:
    """Yields the line of the user's program that the operator comes from, where the graph has stacks."""
    stack = evidence.flow.nodes.stack(evidence.row)
    for frame in [frame for frame in stack if not frame.framework][:1] or stack[:1]:
        yield f"written in {frame.path}:{frame.line}"


def recorded_overflow(evidence: Evidence) -> Iterator[Cause]:
    """Yields whether the result overflowed, or something inside the operator, or an input before."""
    stats, title = evidence.stats, "the result itself overflowed"
    if stats is None:
        yield Cause(title, "the output was not dumped", UNKNOWN)
    elif stats.bad:
        yield Cause(title, f"{bad_of_all(stats)}", LIKELY)
    else:
        yield Cause(title, f"the output is finite: {finite_words(stats)}", RULED_OUT)
        words = "the output is finite, so something inside overflowed and was cut off or overwritten"
        yield Cause("an intermediate value of the kernel", words, POSSIBLE)
    bad = [operand for operand in evidence.inputs if operand.bad]
    for operand in bad[:_NAMED]:
        if operand.stats is not None:
            yield Cause("an input is bad already", f"{operand.label} has {bad_counts(operand.stats)}", LIKELY)


# -- numbers, and where to look next ---------------------------------------------------------------


def overflow_facts(evidence: Evidence) -> Iterator[str]:
    stats = evidence.stats
    if stats is None:
        return
    near = range_words(evidence.tensor.meta, stats, only_near=True)
    if near:
        yield near
    if evidence.key.side is Side.INPUT and evidence.producer >= 0:
        producer = tail(evidence.name(evidence.producer))
        yield f"this is what in:{evidence.key.slot} of {tail(evidence.key.node)} read; {producer} made it"
    if stats.finite and stats.bad and not stats.at_least:
        yield f"{of_all(stats.finite, stats.count)} {are(stats.finite)} finite"


def explain_beginning(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    since, optimizer = bad_since(evidence), evidence.optimizer
    if since is not None:
        where = "where it turned bad" if since.exact else "the earliest at which it is known to be bad"
        about = replace(evidence.key, step=since.step)
        yield Advice(f"Explain it at step {step_text(since.step)}, {where}.", "explain", about)
        return
    gradient = optimizer.gradient if optimizer is not None else None
    if optimizer is not None and gradient is not None and gradient.stats and gradient.stats.bad:
        text = "Follow the gradient upstream to where it turned bad."
        yield Advice(text, "origin", optimizer.gradient_upstream or gradient.key)


def explain_bad_input(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    first = bad_inputs(evidence)[0]
    made = evidence.at(first.upstream)  # a tensor that changed on its way is bad only in the reader's file
    about = first.upstream if made is not None and made.stats and made.stats.bad else first.row.key
    yield Advice(f"Explain the bad input {first.label} itself.", "explain", about)


def see_elements(evidence: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
    culprit = culprit_of(evidence, causes)
    if culprit is not None:
        text = f"See which elements of {culprit.label} it is, and whether it is a whole sample or channel."
        yield Advice(text, "values", culprit.row.key)


def wider_type(evidence: Evidence, _: Sequence[Cause]) -> Iterator[Advice]:
    limits = limits_of(evidence.tensor.meta)
    if limits is not None and limits.name in HALVES:
        yield Advice(f"Compute this operator in float32 instead of {limits.name}, or scale the loss down.")


def remedies(_: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
    for text in dict.fromkeys(cause.remedy for cause in causes if cause.standing is LIKELY and cause.remedy):
        yield Advice(text)
