"""The tables of guidance: what explains a hit of a condition, and NaN and Inf made by an operator.

To add a cause, write a function beside its like (``overflow.py``, ``values.py``, ``weights.py``, ``gradients.py``; for
operators ``operators.py``), and name it in its row here. All thresholds of causes are here.

- ``CONDITION_RULES``: by condition and kind of tensor; the first row that fits counts.
- ``OPERATOR_RULES``: by type of operator, for NaN and Inf made from finite inputs.
- ``ERROR_RULES``: by what kept a condition from being judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.explain import gradients, operators, overflow, values, weights
from tui_debugger.diagnose.explain.evidence import (
    Evidence,
    change_facts,
    expression_facts,
    expression_words,
    found_words,
    sudden_change,
)
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing
from tui_debugger.diagnose.explain.operators import BadOperator, Domain
from tui_debugger.model import Category, ErrorBits
from tui_debugger.text.phrases import bad_of_all
from tui_debugger.text.tensors import run_text, shape_text
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.recommended import activation_family

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing

# -- operators -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """One row: why operators of one family make NaN or Inf from finite inputs.

    ``types`` are spelled like ``operators.type_name``, separated by spaces; ``beginnings`` are prefixes of further
    types.
    """

    types: str
    causes: Callable[[BadOperator], Iterator[Cause]]
    beginnings: tuple[str, ...] = ()


OPERATOR_RULES: Final[tuple[OperatorRule, ...]] = (
    OperatorRule("log log2 log10 loge ln", Domain("the logarithm", zero="-Inf", negative="NaN")),
    OperatorRule("log1p", Domain("log(1 + x)", low=-1.0, open_ends=True)),
    OperatorRule("sqrt", Domain("the square root", negative="NaN")),
    OperatorRule("rsqrt", Domain("1/√x", zero="Inf", negative="NaN")),
    OperatorRule("sqrtgrad", Domain("1/(2·√x)", zero="Inf")),
    OperatorRule("rsqrtgrad", Domain("the gradient of 1/√x", zero="Inf")),
    OperatorRule("reciprocal inv reciprocalgrad invgrad", operators.reciprocal),
    OperatorRule("acos asin", Domain("the inverse of sine and cosine", low=-1.0, high=1.0)),
    OperatorRule("acosh", Domain("the inverse of cosh", low=1.0)),
    OperatorRule("atanh erfinv", Domain("this function", low=-1.0, high=1.0, open_ends=True)),
    OperatorRule("div realdiv truediv divide floordiv truncatediv mod floormod fmod remainder", operators.divide),
    OperatorRule("exp expm1 exp2 sinh cosh", operators.exponential),
    OperatorRule("pow power", operators.power),
    OperatorRule("mul multiply", operators.product),
    OperatorRule("square l2loss", operators.square),
    OperatorRule("mm bmm linear dense addmm batchmatmul", operators.matmul, ("matmul", "conv")),
    OperatorRule("reducesum sum sumd reducemean mean cumsum", operators.total),
    OperatorRule("add addn sub biasadd subtract addext", operators.addition),
    OperatorRule("cast to tocopy", operators.cast),
    OperatorRule(
        "layernorm batchnorm batchnormgrad rmsnorm instancenorm groupnorm l2normalize", operators.normalisation
    ),
    OperatorRule("softmax logsoftmax maskedsoftmax scaledmaskedsoftmax", operators.softmax),
    OperatorRule(
        "sparsesoftmaxcrossentropywithlogits crossentropyloss nllloss softmaxcrossentropywithlogits",
        operators.cross_entropy,
    ),
    OperatorRule("binarycrossentropy bceloss", operators.binary_entropy),
    OperatorRule("gather embedding embeddinglookup", operators.lookup),
)
_BY_TYPE: Final = {name: rule for rule in OPERATOR_RULES for name in rule.types.split()}
_BY_BEGINNING: Final = tuple((beginning, rule) for rule in OPERATOR_RULES for beginning in rule.beginnings)


def operator_causes(operation: BadOperator) -> tuple[Cause, ...]:
    name = operation.name
    rule = _BY_TYPE.get(name) or next((rule for start, rule in _BY_BEGINNING if name.startswith(start)), None)
    return tuple(rule.causes(operation)) if rule is not None else ()


def likely_operator_causes(operation: BadOperator) -> list[str]:
    return [f"{cause.title}: {cause.evidence}" for cause in operator_causes(operation) if cause.standing is LIKELY]


def made_by_operator(evidence: Evidence) -> Iterator[Cause]:
    """Yields the causes of the operator's rule; where none is possible, the operator itself remains."""
    if evidence.stats is None:
        return
    inputs = [operand.row for operand in evidence.inputs]
    operation = BadOperator(evidence.producer_type, inputs, evidence.tensor.meta, evidence.stats)
    found = operator_causes(operation)
    yield from found
    if not any(cause.standing in (LIKELY, POSSIBLE) for cause in found):
        yield operators.no_rule_says(operation)


# -- conditions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConditionRule:
    """One row: what explains a hit of some conditions on one kind of tensor.

    Attributes:
        conditions: ids in the condition table.
        fits: tells whether the row is for this tensor.
        causes: each weighs one cause or a few that belong together.
        advice: what to look at next; functions where that depends on the tensor.
        found: returns the sentence on what hit.
        facts: numbers worth knowing that are no cause.
        otherwise: the only cause where ``causes`` yield nothing.
        about: the evidence to weigh, where another graph knows more.
    """

    conditions: tuple[str, ...]
    fits: Callable[[Evidence], bool]
    causes: tuple[Callable[[Evidence], Iterable[Cause]], ...]
    advice: tuple[Advice | Callable[[Evidence, Sequence[Cause]], Iterable[Advice]], ...]
    found: Callable[[Evidence], str] = found_words
    facts: tuple[Callable[[Evidence], Iterable[str]], ...] = ()
    otherwise: Cause | None = None
    about: Callable[[Evidence], Evidence] | None = None

    def weigh(self, evidence: Evidence) -> tuple[Cause, ...]:
        """Returns the causes without duplicates, likely ones first."""
        about = self.about(evidence) if self.about is not None else evidence
        found: dict[tuple[str, str], Cause] = {}
        for weigh in self.causes:
            for cause in weigh(about):
                found.setdefault((cause.title, cause.evidence), cause)
        if not found and self.otherwise is not None:
            return (self.otherwise,)
        return tuple(sorted(found.values(), key=lambda cause: cause.standing))

    def advise(self, evidence: Evidence, causes: Sequence[Cause]) -> Iterator[Advice]:
        for each in self.advice:
            if isinstance(each, Advice):
                yield each
            else:
                yield from each(evidence, causes)


def any_tensor(_: Evidence) -> bool:
    return True


def _parameter(evidence: Evidence) -> bool:
    return evidence.parameter >= 0


def _gradient(evidence: Evidence) -> bool:
    made = evidence.producer
    return evidence.parameter < 0 <= made and evidence.flow.nodes.category_of(made) is Category.GRADIENT


def _relu(evidence: Evidence) -> bool:
    return activation_family(evidence.producer_type) == "relu"


def _activation(evidence: Evidence) -> bool:
    return bool(activation_family(evidence.producer_type))


def _bad_input(evidence: Evidence) -> bool:
    return bool(overflow.bad_inputs(evidence))


def _designed(evidence: Evidence) -> bool:
    return evidence.designed


def _no_known_input(evidence: Evidence) -> bool:
    return not evidence.known_inputs


OVERFLOW: Final = tuple(condition.id for condition in CONDITIONS.values() if condition.is_overflow)
"""Conditions on NaN and Inf; these are explained on each tensor that has some, whatever was asked."""
JUMP: Final = 10.0
"""A quantity that becomes so many times as large or small, in a step or in an operator, changed abruptly."""
STEEP: Final = 100.0
"""A gradient that becomes so many times smaller or larger from one layer to the next."""
FLAT_BEYOND: Final = {"tanh": 3.8, "sigmoid": 6.9}
"""Magnitude of the argument beyond which the output is within ``stats.blocks.NEAR`` of an end."""
SMALL_GRADIENT: Final = 1e-3
"""Part of the weight's size below which the gradient is small."""

_DEAD_UNITS: Final = (
    values.bad_argument,
    partial(values.dead_units, dead_percent=99.9, some_percent=50.0),
    values.parts_of_fused,
)
_TREND = Advice("See at which step it began, and whether it recovers.", "trend")
_OVERFLOW_ADVICE: Final = (
    overflow.see_elements,
    Advice("See that its inputs are clean, and what it spread to.", "origin"),
    Advice("See how far it spread, scope by scope and step by step.", "health"),
    Advice("See the producers of its inputs and who uses it.", "relations"),
    overflow.wider_type,
    overflow.remedies,
)
_UNKNOWN_INPUT_ADVICE: Final = (
    overflow.see_elements,
    Advice("See what has to be dumped to know whether it begins here.", "origin"),
    Advice("See how far it spread, scope by scope and step by step.", "health"),
    Advice("See what made it and who uses it, as far as the dump tells.", "relations"),
    overflow.wider_type,
    overflow.remedies,
)
_SIZE_ADVICE: Final = (
    Advice("See how the values are distributed: all of them, or a few outliers.", "distribution"),
    Advice("See when it began to grow or shrink.", "trend"),
)
_OUT_OF_RANGE: Final = (
    partial(values.place_in_range, deviations=6.0),
    partial(values.size_of_inputs, large=True, factor=JUMP),
    partial(sudden_change, factor=JUMP),
)
_CHANGE_ADVICE: Final = (
    Advice("See weight and change over all steps.", "trend"),
    weights.see_gradient,
    weights.see_learning_rate,
    weights.compare_with_before,
    weights.look_at_program,
)
_VANISHING: Final = (
    gradients.lost_by_loss_scale,
    partial(gradients.came_in_small, factor=STEEP),
    partial(gradients.small_factor, dead_percent=90.0, near_end=0.01, tiny=1e-4),
    gradients.below_range,
    partial(gradients.one_steep_place, factor=STEEP),
)
_overflow_rule: Final = partial(ConditionRule, OVERFLOW, found=overflow.found_counts, facts=(overflow.overflow_facts,))
_activation_rule: Final = partial(
    ConditionRule,
    advice=(values.see_values, _TREND, values.see_input, values.see_downstream),
    facts=(values.saturation_facts, change_facts),
)
_zeros_rule: Final = partial(_activation_rule, ("tensor_all_zero",), found=values.found_with_zeros)
_range_rule: Final = partial(_activation_rule, ("activation_range",), found=values.found_with_range)
_size_rule: Final = partial(
    ConditionRule,
    fits=any_tensor,
    advice=(*_SIZE_ADVICE, values.explain_input),
    facts=(change_facts, partial(values.near_limit, only_near=True)),
    otherwise=Cause("where the size comes from", "nothing that it was made from was dumped", UNKNOWN),
)
_weight_size_rule: Final = partial(
    _size_rule,
    fits=_parameter,
    advice=(*_SIZE_ADVICE, weights.see_learning_rate),
    facts=(change_facts, partial(values.near_limit, only_near=True), weights.update_facts),
)
_gradient_rule: Final = partial(
    ConditionRule,
    advice=(
        gradients.see_incoming_gradient,
        Advice("See the gradient over all steps: was it ever larger?", "trend"),
        Advice("See which layers and steps look like this.", "health"),
    ),
    facts=(change_facts, gradients.layer_facts),
    otherwise=Cause("what this gradient was made from", "its inputs were not dumped", UNKNOWN),
)


CONDITION_RULES: Final[tuple[ConditionRule, ...]] = (
    # NaN and Inf
    _overflow_rule(
        _designed,
        causes=(overflow.by_design,),
        advice=(Advice("See who reads it, and what becomes of it there.", "relations"), overflow.see_elements),
    ),
    _overflow_rule(
        _parameter,
        causes=(overflow.bad_parameter,),
        advice=(
            overflow.explain_beginning,
            Advice("See at which step it turned bad, and what its size did before.", "trend"),
            Advice("Find the first origin of the whole run.", "origin", None, ("origin",)),
        ),
    ),
    _overflow_rule(
        _bad_input,
        causes=(overflow.bad_input, overflow.inf_turned_nan),
        advice=(Advice("Walk upstream to the node where the bad values begin.", "origin"), overflow.explain_bad_input),
    ),
    _overflow_rule(
        _no_known_input,
        causes=(overflow.nothing_known_of_inputs,),
        advice=_UNKNOWN_INPUT_ADVICE,
    ),
    _overflow_rule(
        any_tensor,
        causes=(overflow.large_loss_scale, overflow.inf_turned_nan, made_by_operator, overflow.other_inputs),
        advice=_OVERFLOW_ADVICE,
    ),
    ConditionRule(
        ("operator_overflow",),
        any_tensor,
        causes=(overflow.recorded_overflow,),
        advice=(
            Advice("See where NaN and Inf begin.", "origin"),
            Advice("See what went into the operator.", "relations"),
        ),
        found=overflow.found_recorded,
        facts=(overflow.written_in, partial(values.near_limit, only_near=False)),
    ),
    # zeros, and activations
    _gradient_rule(
        ("tensor_all_zero",),
        _gradient,
        causes=_VANISHING,
    ),
    _zeros_rule(
        _relu,
        causes=_DEAD_UNITS,
    ),
    _zeros_rule(
        _parameter,
        causes=(values.zero_parameter,),
    ),
    _zeros_rule(
        any_tensor,
        causes=(values.zero_inputs,),
    ),
    _range_rule(
        _relu,
        causes=_DEAD_UNITS,
    ),
    _range_rule(
        _activation,
        causes=(
            values.bad_argument,
            partial(values.large_argument, flat_beyond=FLAT_BEYOND, deviations=2.0),
            values.parts_of_fused,
        ),
    ),
    _range_rule(
        any_tensor,
        causes=(partial(values.size_of_inputs, large=True, factor=JUMP),),
    ),
    # sizes
    _weight_size_rule(
        ("tensor_too_large", "weight_too_large"),
        causes=(
            partial(weights.size_before, large=True, factor=2.0),
            partial(weights.size_by_update, part=0.1),
            weights.no_decay,
        ),
    ),
    _weight_size_rule(
        ("tensor_too_small", "weight_too_small"),
        causes=(
            partial(weights.size_before, large=False, factor=2.0),
            partial(weights.size_by_update, part=0.1),
            partial(weights.strong_decay, strong=0.1),
        ),
    ),
    _size_rule(
        ("tensor_too_large", "weight_too_large"),
        causes=(
            partial(values.size_of_inputs, large=True, factor=JUMP),
            partial(sudden_change, factor=JUMP),
            partial(values.close_to_overflow, part=0.5),
        ),
    ),
    _size_rule(
        ("tensor_too_small", "weight_too_small"),
        causes=(
            partial(values.size_of_inputs, large=False, factor=JUMP),
            partial(sudden_change, factor=JUMP),
            values.below_range,
        ),
    ),
    _weight_size_rule(
        ("tensor_range",),
        causes=_OUT_OF_RANGE,
    ),
    _size_rule(
        ("tensor_range",),
        causes=_OUT_OF_RANGE,
    ),
    ConditionRule(
        ("expression",),
        any_tensor,
        causes=(partial(sudden_change, factor=JUMP),),
        advice=(*_SIZE_ADVICE, values.explain_input),
        found=expression_words,
        facts=(expression_facts, change_facts),
        otherwise=Cause("why it holds", "no rule knows conditions of one's own: the numbers are below", UNKNOWN),
    ),
    # weights
    ConditionRule(
        ("weight_change_too_large",),
        any_tensor,
        causes=(
            weights.not_updated,
            partial(weights.rate_too_high, usual=1e-3, likely=100.0, possible=10.0),
            partial(weights.gradient_too_large, jump=JUMP, harmless=0.1),
            partial(weights.more_than_gradient, factor=1.5),
            partial(weights.almost_zero_before, tiny=1e-4),
        ),
        advice=_CHANGE_ADVICE,
        found=weights.found_change,
        facts=(weights.update_facts,),
    ),
    ConditionRule(
        ("weight_change_too_small", "weight_not_changed"),
        any_tensor,
        causes=(
            weights.not_updated,
            weights.not_frozen,
            weights.no_gradient,
            partial(weights.small_gradient, small=SMALL_GRADIENT, tiny=1e-8),
            weights.rounded_away,
            partial(weights.rate_too_low, least=1e-4, small=SMALL_GRADIENT),
        ),
        advice=_CHANGE_ADVICE,
        found=weights.found_change,
        facts=(weights.update_facts,),
        about=weights.where_updated,
    ),
    ConditionRule(
        ("weight_initialization",),
        any_tensor,
        causes=(
            weights.constant_values,
            partial(weights.initialiser_misfits, factor=10.0),
            weights.checkpoint_not_loaded,
        ),
        advice=(
            Advice("See how the values are distributed.", "distribution"),
            Advice("See whether training changes it.", "trend"),
            Advice("Look for the initialiser of this parameter, and for the checkpoint that should replace it."),
        ),
    ),
    # gradients
    _gradient_rule(
        ("gradient_too_large",),
        any_tensor,
        causes=(
            partial(gradients.came_in_large, factor=JUMP),
            partial(gradients.large_factor, large=100.0),
            gradients.summed_loss,
            partial(sudden_change, what="the gradient", factor=JUMP),
            partial(gradients.one_steep_place, factor=STEEP),
        ),
    ),
    _gradient_rule(
        ("gradient_vanishing",),
        any_tensor,
        causes=_VANISHING,
    ),
)


def condition_rule(evidence: Evidence) -> ConditionRule:
    condition = evidence.result.condition
    return next(rule for rule in CONDITION_RULES if condition in rule.conditions and rule.fits(evidence))


def likely_causes(evidence: Evidence) -> list[str]:
    causes = condition_rule(evidence).weigh(evidence)
    return [f"{each.title}: {each.evidence}" for each in causes if each.standing is LIKELY]


# -- what kept a condition from being judged -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """One row: why a condition was not judged; it applies to any of the bits of ``error``."""

    error: ErrorBits
    title: str
    evidence: Callable[[Evidence], str]
    advice: Advice


def _not_finite(evidence: Evidence) -> str:
    stats = evidence.stats
    counts = f"{bad_of_all(stats)}" if stats is not None and stats.bad else "see its statistics"
    return f"{counts}: means, ratios and differences with them say nothing, so they count as a finding instead"


def _no_previous(evidence: Evidence) -> str:
    last = evidence.session.before(evidence.key)
    if last is None:
        return "this is the first dumped step of its graph"
    return f"the tensor was not dumped at step {last.step}, the one before"


def _another_shape(evidence: Evidence) -> str:
    before = evidence.before
    words = f"it is {_shape(evidence.tensor)} now"
    if before is not None:
        words += f" and was {_shape(before)} at step {run_text(before.key)}"
    return f"{words}: a last smaller batch, or variable lengths"


def _shape(row: TensorRow) -> str:
    return shape_text(row.meta.shape) if row.meta is not None else "of unknown shape"


def _unreadable(evidence: Evidence) -> str:
    return evidence.tensor.error or "the file of the step before is broken"


_SEE_STEPS: Final = Advice("See which steps hold this tensor.", "trend", None, ("steps",))
DUMP_VALUES: Final = Advice("Dump values.")
"""Shown with the recorder's own way of doing it: see ``RunInfo.values_advice``."""

ERROR_RULES: Final[tuple[ErrorRule, ...]] = (
    ErrorRule(
        ErrorBits.NAN | ErrorBits.INF,
        "NaN or Inf in the tensor",
        _not_finite,
        Advice("Find where NaN and Inf begin.", "origin"),
    ),
    ErrorRule(ErrorBits.NO_PREVIOUS, "no previous step", _no_previous, _SEE_STEPS),
    ErrorRule(
        ErrorBits.SHAPE_CHANGED,
        "another shape than one step earlier",
        _another_shape,
        Advice("See its shape and values in both steps.", "compare"),
    ),
    ErrorRule(
        ErrorBits.UNREADABLE,
        "a file that cannot be read",
        _unreadable,
        Advice("Check the disk and whether the dump was still being written; r checks again."),
    ),
    ErrorRule(
        ErrorBits.NO_VALUE,
        "no values",
        lambda _: "only statistics were dumped, and they do not hold what this condition needs",
        DUMP_VALUES,
    ),
    ErrorRule(
        ErrorBits.NO_HISTORY,
        "no run history",
        lambda _: "no file says which step came before this one",
        _SEE_STEPS,
    ),
    ErrorRule(
        ErrorBits.OUT_OF_MEMORY,
        "memory",
        lambda _: "the tensor exceeds the limit that was set for the check",
        Advice("Raise the limit, or watch fewer tensors."),
    ),
)
