"""Sections that are no matter of one family: initial values, what a device recorded, what nobody could compare."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tui_debugger.model import ErrorBits, WatchResult
from tui_debugger.session.guidance.evidence import Evidence
from tui_debugger.session.guidance.measures import found_words
from tui_debugger.session.guidance.types import Advice, Section
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.text.phrases import bad_counts, finite_words, num, of_all, range_words
from tui_debugger.text.tensors import run_text
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
    """What can be said about a tensor without a finding."""
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
    from tui_debugger.session.types import TensorRow
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
