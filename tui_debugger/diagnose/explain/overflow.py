"""Sections that are no matter of one family: initial values, what a device recorded, what nobody could compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tui_debugger.diagnose.explain.evidence import Evidence, Given, Optimizer, culprit_of, found_words
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Section, Standing
from tui_debugger.diagnose.explain.operators import QUOTIENTS, Case, causes, type_name, untold
from tui_debugger.model import Category, ErrorBits, Side, TensorStats, WatchResult
from tui_debugger.stats.blocks import peak
from tui_debugger.text.phrases import HALVES, bad_counts, finite_words, limits_of, num, of_all, range_words, tail
from tui_debugger.text.tensors import run_text, step_text
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.conditions import reasons

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def initial(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for initial values that look wrong."""
    stats = evidence.stats
    weighed: list[Cause] = []
    if stats is not None and stats.variance is not None and stats.mean is not None and stats.count:
        spread = math.sqrt(stats.variance)
        words = f"the values are {finite_words(stats)}, mean {num(stats.mean)}, deviation {num(spread)}"
        zero = stats.zero == stats.count
        weighed.append(
            Cause(
                "every unit starts alike and learns alike: initialised with a constant",
                words,
                RULED_OUT if spread else LIKELY,
            )
        )
        usual = _usual(evidence)
        if usual is not None and spread:
            ratio = spread / usual
            words = f"deviation {num(spread)}; √(2 / inputs) of this shape is {num(float(f'{usual:.3g}'))}"
            title = "the initialiser does not fit the size of the layer"
            weighed.append(Cause(title, words, LIKELY if not 0.1 <= ratio <= 10 else RULED_OUT))
        loaded = "a checkpoint that was not loaded, or whose names do not fit, leaves such values"
        weighed.append(Cause("a checkpoint was not loaded", loaded, POSSIBLE if zero or not spread else UNKNOWN))
    else:
        weighed.append(Cause("its initial values", "they cannot be read", UNKNOWN))
    advice = (
        Advice("See how the values are distributed.", "distribution"),
        Advice("See whether training changes it.", "trend"),
        Advice("Look for the initialiser of this parameter, and for the checkpoint that should replace it."),
    )
    return Section((result.condition,), CONDITIONS[result.condition].title, found_words(result), tuple(weighed), advice)


def _usual(evidence: Evidence) -> float | None:
    """Deviation of He's initialisation: √(2 / inputs of a unit); None for vectors and scalars."""
    shape = evidence.tensor.meta.shape if evidence.tensor.meta is not None else ()
    if len(shape) < 2:
        return None
    inputs = math.prod(shape[1:])
    return math.sqrt(2 / inputs) if inputs else None


def operator_overflow(evidence: Evidence, result: WatchResult) -> Section:
    """Guidance for an overflow that the device itself recorded."""
    stats = evidence.stats
    room = range_words(evidence.tensor.meta, stats)
    weighed: list[Cause] = []
    if stats is not None:
        words = (
            bad_counts(stats) + f" of {stats.count:,}" if stats.bad else f"the output is finite: {finite_words(stats)}"
        )
        weighed.append(Cause("the result itself overflowed", words, LIKELY if stats.bad else RULED_OUT))
        if not stats.bad:
            words = "the output is finite, so something inside overflowed and was cut off or overwritten"
            weighed.append(Cause("an intermediate value of the kernel", words, POSSIBLE))
    else:
        weighed.append(Cause("the result itself overflowed", "the output was not dumped", UNKNOWN))
    bad = [given for given in evidence.inputs if given.bad and given.stats is not None]
    weighed += [
        Cause("an input is bad already", f"{given.label} has {bad_counts(given.stats)}", LIKELY)
        for given in bad[:3]
        if given.stats is not None
    ]
    advice = (
        Advice("See where NaN and Inf begin.", "origin"),
        Advice("See what went into the operator.", "relations"),
    )
    title = CONDITIONS[result.condition].title
    found = "the device recorded an overflow of this operator"
    return Section((result.condition,), title, found, tuple(weighed), advice, (room,) if room else ())


def clean(evidence: Evidence, judged: str) -> Section:
    """Returns what can be said about a tensor without a finding."""
    stats = evidence.stats
    if stats is None:
        why = evidence.tensor.error or "it was not dumped at this step"
        return Section((), "Nothing is known about its values", why, (), (Advice("See its neighbours.", "relations"),))
    room = range_words(evidence.tensor.meta, stats, only_near=True)
    source = " (by the statistics that the dump recorded)" if evidence.tensor.recorded else ""
    are = "is" if stats.count == 1 else "are"
    found = f"{of_all(stats.count, stats.count)} {are} finite{source}, {finite_words(stats)}"
    if not stats.count:
        found = "the tensor has no elements"
    advice = (
        Advice("See how the values are distributed.", "distribution"),
        Advice("See it over all steps.", "trend"),
    )
    facts = [
        judged,
        *([f"{of_all(stats.zero, stats.count)} are 0"] if stats.zero > 1 else []),
        *([room] if room else []),
    ]
    return Section((), "No NaN or Inf", found, (), advice, tuple(fact for fact in facts if fact))


# -- what could not be compared --------------------------------------------------------------------


def not_compared(evidence: Evidence, results: list[WatchResult]) -> Section:
    """Guidance for watchpoints that could not be judged, all for the same reasons."""
    error = results[0].error
    names = ", ".join(CONDITIONS[result.condition].abbr for result in results)
    words = ", ".join(reasons(error)) or "nothing to compare with"
    return Section(
        tuple(result.condition for result in results),
        "Not compared",
        f"{names} could not be judged: {words}",
        tuple(_reasons(evidence, error)),
        tuple(_ways_out(error)),
    )


def _reasons(evidence: Evidence, error: ErrorBits) -> Iterator[Cause]:
    stats = evidence.stats
    if error & (ErrorBits.NAN | ErrorBits.INF):
        counts = f"{bad_counts(stats)} of {stats.count:,}" if stats is not None and stats.bad else "see its statistics"
        words = f"{counts}: means, ratios and differences with them say nothing, so they count as a finding instead"
        yield Cause("NaN or Inf in the tensor", words, LIKELY)
    if error & ErrorBits.NO_PREVIOUS:
        last = evidence.session.before(evidence.key)
        earlier = last.step if last is not None else None
        words = (
            "this is the first dumped step of its graph"
            if earlier is None
            else f"the tensor was not dumped at step {earlier}, the one before"
        )
        yield Cause("no previous step", words, LIKELY)
    if error & ErrorBits.SHAPE_CHANGED:
        before = evidence.before
        shapes = [_shape(evidence.tensor), _shape(before)]
        words = f"it is {shapes[0]} now" + (
            f" and was {shapes[1]} at step {run_text(before.key)}" if before is not None else ""
        )
        yield Cause(
            "another shape than one step earlier", words + ": a last smaller batch, or variable lengths", LIKELY
        )
    if error & ErrorBits.UNREADABLE:
        yield Cause(
            "a file that cannot be read", evidence.tensor.error or "the file of the step before is broken", LIKELY
        )
    if error & ErrorBits.NO_VALUE:
        words = "only statistics were dumped, and they do not hold what this condition needs"
        yield Cause("no values", words, LIKELY)
    if error & ErrorBits.NO_HISTORY:
        yield Cause("no run history", "nobody says which step came before this one", LIKELY)
    if error & ErrorBits.OUT_OF_MEMORY:
        yield Cause("memory", "the tensor exceeds the limit that was set for the check", LIKELY)


def _shape(row: object) -> str:
    from tui_debugger.check.types import TensorRow
    from tui_debugger.text.tensors import shape_text

    meta = row.meta if isinstance(row, TensorRow) else None
    return shape_text(meta.shape) if meta is not None else "of unknown shape"


def _ways_out(error: ErrorBits) -> Iterator[Advice]:
    if error & (ErrorBits.NAN | ErrorBits.INF):
        yield Advice("Find where NaN and Inf begin.", "origin")
    if error & (ErrorBits.NO_PREVIOUS | ErrorBits.NO_HISTORY):
        yield Advice("See which steps hold this tensor.", "trend", None, ("steps",))
    if error & ErrorBits.SHAPE_CHANGED:
        yield Advice("See its shape and values in both steps.", "compare")
    if error & ErrorBits.NO_VALUE:
        yield Advice("Dump values: saved_data tensor, or full, in the dump configuration.")
    if error & ErrorBits.UNREADABLE:
        yield Advice("Check the disk and whether the dump was still being written; r checks again.")
    if error & ErrorBits.OUT_OF_MEMORY:
        yield Advice("Raise the limit, or watch fewer tensors.")


LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing
_NAMED = 3
LOOKED_BACK = 100
"""Steps that a bad parameter is followed back."""
PRODUCTS = frozenset({"mul", "multiply", "matmul", "batchmatmul", "mm", "bmm", "linear"})
DIFFERENCES = frozenset({"sub", "subtract", "add", "addn", "biasadd"})


def overflow(evidence: Evidence, conditions: tuple[str, ...]) -> Section:
    """Returns what is known about the NaN and Inf of a tensor that has some."""
    stats = evidence.stats
    if stats is None:
        msg = "only for a tensor whose statistics are known"
        raise ValueError(msg)
    found = f"{bad_counts(stats)} among {stats.count:,} elements" + ("" if stats.finite else ": none is finite")
    if stats.count == 1:
        found = f"its only element is {bad_counts(stats).partition(' ')[2]}"
    weighed = tuple(_causes(evidence, stats))
    title = CONDITIONS[conditions[0]].title if conditions else "NaN or Inf"
    return Section(
        conditions,
        title,
        found,
        weighed,
        tuple(_advice(evidence, weighed)),
        tuple(_facts(evidence, stats)),
    )


def bad_inputs(evidence: Evidence) -> tuple[Given, ...]:
    """The inputs that have NaN or Inf themselves; constants such as the -Inf of a mask are none."""
    return tuple(given for given in evidence.inputs if given.bad and not given.constant)


def _causes(evidence: Evidence, stats: TensorStats) -> Iterator[Cause]:
    if evidence.parameter >= 0:
        yield from _of_parameter(evidence)
        return
    bad = bad_inputs(evidence)
    if bad:
        yield _fed(evidence, bad)
        yield from _turned(evidence, stats, bad)
        return
    yield from _of_operator(evidence, stats)


def _fed(evidence: Evidence, bad: tuple[Given, ...]) -> Cause:
    """The values came in bad: it does not start here."""
    named = [
        f"{given.label} from {_source(evidence, given)} ({bad_counts(given.stats)})"
        for given in bad[:_NAMED]
        if given.stats
    ]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return Cause("it does not start here: an input is bad already", ", ".join(named) + more, LIKELY)


def _source(evidence: Evidence, given: Given) -> str:
    step = "" if given.row.key.step == evidence.key.step else f" of step {step_text(given.row.key.step)}"
    return given.source + step


def _turned(evidence: Evidence, stats: TensorStats, bad: tuple[Given, ...]) -> Iterator[Cause]:
    """Tells how this operator made NaN of Inf."""
    if not stats.nan or any(given.stats is not None and given.stats.nan for given in bad):
        return
    kind = type_name(evidence.maker_type)
    infinite = bad[0]
    zeros = next(
        (given for given in evidence.dumped if given is not infinite and given.stats and given.stats.zero), None
    )
    if kind in PRODUCTS and zeros is not None and zeros.stats is not None:
        zero = of_all(zeros.stats.zero, zeros.stats.count)
        are = "is" if zeros.stats.zero == 1 else "are"
        words = f"{zero} of {zeros.label} ({zeros.source}) {are} 0, {infinite.label} has Inf: 0 × Inf is NaN"
        yield Cause("Inf turns into NaN here", words, LIKELY)
    elif kind in QUOTIENTS and len(bad) > 1:
        yield Cause("Inf turns into NaN here", "Inf in both inputs: Inf / Inf is NaN", LIKELY)
    elif kind in DIFFERENCES and len(bad) > 1:
        yield Cause("Inf turns into NaN here", "Inf in several inputs: Inf - Inf is NaN", LIKELY)
    else:
        yield Cause(
            "Inf turns into NaN here", f"{infinite.label} has Inf but no NaN, the output has {stats.nan:,}", LIKELY
        )


def _of_operator(evidence: Evidence, stats: TensorStats) -> Iterator[Cause]:
    known = evidence.dumped
    if not known:
        what = "no graph or file tells what it was made from" if not evidence.inputs else "its inputs were not dumped"
        yield Cause("bad inputs, or the operator itself", what, UNKNOWN)
        return
    limits = limits_of(evidence.tensor.meta)
    if stats.inf and limits is not None and limits.name == "float16" and evidence.category is Category.GRADIENT:
        words = f"{bad_counts(stats)} of {stats.count:,} in a gradient, and {limits.name} holds {num(limits.largest)}"
        yield Cause("the loss scale is too large, or the loss itself", words, LIKELY)
    case = Case(evidence.maker_type, [given.row for given in evidence.inputs], evidence.tensor.meta, stats)
    told = causes(case)
    yield from told
    if not any(cause.standing in (LIKELY, POSSIBLE) for cause in told):
        yield untold(case)
    silent = len(evidence.inputs) - len(known)
    if silent:
        yield Cause(
            "a bad input that was not dumped", f"{silent} of {len(evidence.inputs)} inputs are unknown", UNKNOWN
        )
    else:
        words = "; ".join(f"{given.label} has none" for given in known[:_NAMED])
        more = "; and so on" if len(known) > _NAMED else ""
        yield Cause("inputs with NaN or Inf", f"{words}{more}", RULED_OUT)


def _of_parameter(evidence: Evidence) -> Iterator[Cause]:
    """A weight, momentum or the like: what it was before, what it was updated with."""
    optimizer = evidence.optimizer
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
        words = f"at step {when} all {earlier.count:,} elements were finite"
        if evidence.adjacent:
            yield Cause("it was bad before", words, RULED_OUT)
        else:
            yield Cause("it was bad before", f"{words}; the steps in between were not dumped", UNKNOWN)
    if optimizer is None:
        if evidence.made_in is None:
            title = "bad initial values" if evidence.initial else "it was bad before the first dumped step"
            yield Cause(title, "this is its value before the first dumped step", LIKELY)
        elif not evidence.trained and evidence.updater[0] < 0:
            yield Cause(
                "it was fed in bad", "nothing in the graph writes this parameter: it comes from outside", LIKELY
            )
        else:
            yield Cause("a bad update", "no graph tells which operator updates it", UNKNOWN)
        return
    yield from _of_gradient(evidence, optimizer)
    for state in optimizer.states:
        # An update operator writes its state in place: what its file shows is of after the step.
        earlier_state = evidence.stats_before(state.key)
        if earlier_state is not None and earlier_state.bad:
            name = state.origin_text.rpartition(":")[0] or state.key.node
            yield Cause("bad optimizer state", f"{name} had {bad_counts(earlier_state)} before", LIKELY)


@dataclass(frozen=True, slots=True)
class Since:
    """Since when a parameter is bad, as far as the dump knows.

    Attributes:
        step: the earliest of the dumped steps at which it is bad without a break.
        clean: the dumped step before that, at which it was not bad; None when there is none that is known.
    """

    step: int
    clean: int | None

    @property
    def exact(self) -> bool:
        """Whether it turned bad in that very step."""
        return self.clean == self.step - 1

    @property
    def text(self) -> str:
        """``it is bad since step 3``, with what is not known about that."""
        if self.exact:
            return f"it is bad since step {step_text(self.step)}"
        if self.clean is None:
            return f"it is bad since step {step_text(self.step)} or longer: nothing is known from before"
        return f"it turned bad after step {step_text(self.clean)}, at step {step_text(self.step)} at the latest"


def bad_since(evidence: Evidence) -> Since | None:
    """Follows a bad parameter back through the dumped steps before this one; None when it was not bad before."""
    found, key = None, evidence.key
    if not evidence.carried:
        return None
    for _ in range(LOOKED_BACK):
        earlier = evidence.session.before(key)
        row = evidence.at(earlier) if earlier is not None else None
        if earlier is None or row is None or row.stats is None:
            break
        if not row.stats.bad:
            return None if found is None else Since(found, earlier.step)
        found, key = earlier.step, earlier
    return None if found is None else Since(found, None)


def _of_gradient(evidence: Evidence, optimizer: Optimizer) -> Iterator[Cause]:
    """Tells whether the gradient that the optimizer used is to blame."""
    gradient = optimizer.gradient
    if gradient is None or gradient.stats is None:
        yield Cause("a bad gradient", f"the gradient that {tail(optimizer.name)} got was not dumped", UNKNOWN)
    elif gradient.stats.bad:
        came = f" ({gradient.origin_text.rpartition('/')[2]})" if gradient.origin_text else ""
        yield Cause(
            "a bad gradient",
            f"the gradient{came} that {tail(optimizer.name)} used at step {optimizer.step} has "
            f"{bad_counts(gradient.stats)} of {gradient.stats.count:,}",
            LIKELY,
        )
    else:
        top = peak(gradient.stats) or 0.0
        yield Cause("a bad gradient", f"the gradient is finite, {num(top)} at most", RULED_OUT)
        limits = limits_of(evidence.tensor.meta)
        if limits is not None and optimizer.rate is not None and not optimizer.normalised:
            size = abs(optimizer.rate) * top
            standing = LIKELY if size > limits.largest else RULED_OUT
            yield Cause(
                f"a step beyond the range of {limits.name}",
                f"learning rate {num(optimizer.rate)} × gradient {num(top)} = {num(size)}; {limits.name} holds "
                f"{num(limits.largest)}",
                standing,
            )


def _advice(evidence: Evidence, weighed: tuple[Cause, ...]) -> Iterator[Advice]:
    bad = bad_inputs(evidence)
    if evidence.parameter >= 0:
        since = bad_since(evidence)
        if since is not None:
            where = "where it turned bad" if since.exact else "the earliest at which it is known to be bad"
            about = replace(evidence.key, step=since.step)
            yield Advice(f"Explain it at step {step_text(since.step)}, {where}.", "explain", about)
        optimizer = evidence.optimizer
        gradient = optimizer.gradient if optimizer is not None else None
        if since is None and optimizer is not None and gradient is not None and gradient.stats and gradient.stats.bad:
            about = optimizer.made or gradient.key
            yield Advice("Follow the gradient upstream to where it turned bad.", "origin", about)
        yield Advice("See at which step it turned bad, and what its size did before.", "trend", None)
        yield Advice("Find the first origin of the whole run.", "origin", None, ("origin",))
        return
    if bad:
        made = evidence.at(bad[0].made)  # what was changed on its way is bad only in the file of who read it
        about = bad[0].made if made is not None and made.stats and made.stats.bad else bad[0].row.key
        yield Advice("Walk upstream to the node where the bad values begin.", "origin")
        yield Advice(f"Explain the bad input {bad[0].label} itself.", "explain", about)
        return
    likely = [cause for cause in weighed if cause.standing is LIKELY]
    culprit = culprit_of(evidence, likely)
    if culprit is not None:
        yield Advice(
            f"See which elements of {culprit.label} it is, and whether it is a whole sample or channel.",
            "values",
            culprit.row.key,
        )
    yield Advice("See how far it spread, and that its inputs are clean.", "origin")
    yield Advice("See the producers of its inputs and who uses it.", "relations", None)
    if (limits := limits_of(evidence.tensor.meta)) is not None and limits.name in HALVES:
        yield Advice(f"Compute this operator in float32 instead of {limits.name}, or scale the loss down.")
    if any("0" in cause.title or "negative" in cause.title for cause in likely):
        yield Advice("Keep the argument away from there: add an epsilon, clamp it, or mask those samples.")


def _facts(evidence: Evidence, stats: TensorStats) -> Iterator[str]:
    room = range_words(evidence.tensor.meta, stats, only_near=True)
    if room:
        yield room
    if evidence.key.side is Side.INPUT and evidence.maker >= 0:
        maker = tail(evidence.name(evidence.maker))
        yield f"this is what in:{evidence.key.slot} of {tail(evidence.key.node)} read; {maker} made it"
    if stats.finite and stats.bad:
        yield f"{of_all(stats.finite, stats.count)} {'is' if stats.finite == 1 else 'are'} finite"
