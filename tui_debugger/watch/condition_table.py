"""The one table of watch conditions, for the form on screen, the command line, the API classes and the wire format.

Ids, abbreviations, parameters, their order, defaults, ranges and wire numbers are those of MindInsight r1.1 to r2.3;
wire numbers from ``FIRST_OWN`` on are ours: ``expression`` alone. ``watch.evaluate`` judges the conditions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tui_debugger.errors import BadWatchpointError, did_you_mean
from tui_debugger.model import ErrorBits, ParamValue, words
from tui_debugger.watch.expression import Fact, Quantity
from tui_debugger.watch.expression import parse as parse_expression

Value = ParamValue

WIRE_OPERATOR_OVERFLOW: Final = 2
WIRE_OVERFLOW: Final = 13
WIRE_INITIALIZATION: Final = 14
WIRE_CHANGE_TOO_LARGE: Final = 18
WIRE_CHANGE_TOO_SMALL: Final = 19
WIRE_NOT_CHANGED: Final = 20
WIRE_RANGE: Final = 21
FIRST_OWN: Final = 1000
"""From this wire number on conditions are ours: MindSpore's clients do not know them, and are not sent them."""
WIRE_EXPRESSION: Final = 1000
EXPRESSION: Final = "expression"
"""The one parameter of the condition of that name."""

EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter of a condition, with everything a form needs.

    Attributes:
        name: as on the wire; the text after the last ``_`` is the inequality.
        kind: ``float``, ``bool`` or ``expression``.
        default: initial value in a form; None leaves the field empty (the parameter is off).
        required: cannot be switched off: its default applies when it is not set.
        visible: shown in a form; other parameters can only be written as text.
        check: it decides; False when it only supports another parameter (range bounds).
        needs: names of the supporting parameters that must be set together with this one.
        low, high: bounds of the value, inclusive unless ``low_open``; the value must be finite.
    """

    name: str
    kind: str
    label: str
    help: str
    default: Value | None = None
    required: bool = False
    visible: bool = True
    check: bool = True
    needs: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False

    @property
    def range_text(self) -> str:
        """The allowed values in words, for a form: ``0 to 100``, ``above 0``, ``a finite number``."""
        if self.kind == "expression":
            return "a comparison"
        if self.kind == "bool":
            return "yes or no"
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{self.low:g} to {self.high:g}"
        if math.isfinite(self.low):
            return f"above {self.low:g}" if self.low_open else f"{self.low:g} or more"
        return "a finite number"

    def check_value(self, value: object) -> Value:
        """Returns the value to store, or raises BadWatchpointError."""
        if self.kind == "expression":
            if isinstance(value, str):
                return parse_expression(value).text
        elif self.kind == "bool":
            if isinstance(value, bool):
                return value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
            above = number > self.low if self.low_open else number >= self.low
            if math.isfinite(number) and above and number <= self.high:
                return number
        msg = f"{self.name} must be {self.range_text}, not {value!r}"
        raise BadWatchpointError(msg)

    def parse(self, text: str) -> Value:
        """Reads a typed number, bool (yes, no, true, false, on, off, 1, 0) or expression; or BadWatchpointError."""
        if self.kind == "expression":
            return self.check_value(text)
        word = text.strip().lower()
        value: object = text.strip()
        if self.kind == "bool":
            value = _WORDS.get(word, value)
        else:
            with contextlib.suppress(ValueError):
                value = float(word)
        return self.check_value(value)


_SYMBOLS: Final = {"gt": ">", "lt": "<", "ge": "≥", "le": "≤"}
_WORDS: Final = dict.fromkeys(words("true yes 1 on"), True) | dict.fromkeys(words("false no 0 off"), False)


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the condition table, such as ``tensor_too_large``, abbreviated ``TL``.

    Attributes:
        target: category of nodes: ``tensor``, ``weight``, ``activation`` or ``gradient``.
        wire: number on the wire; conditions with the same number differ only in their target.
        params: in definition order, which is also the wire order.
        platforms: devices it works on; empty means all.
        initial_only: judged on initial values only, never on a step.
            feature: for a condition of ours, the bit of ``Metadata.features`` (see ``live.wire``) of clients that judge
                it. Other live trainings are not sent it, and a report says that it was not judged.
    """

    id: str
    abbr: str
    target: str
    wire: int
    summary: str
    params: tuple[ParamSpec, ...] = ()
    platforms: tuple[str, ...] = ()
    initial_only: bool = False
    feature: int = 0

    @property
    def own(self) -> bool:
        return self.wire >= FIRST_OWN

    @property
    def is_expression(self) -> bool:
        return self.wire == WIRE_EXPRESSION

    @property
    def is_overflow(self) -> bool:
        """Tells whether it looks for NaN and Inf in the values."""
        return self.wire == WIRE_OVERFLOW

    @property
    def is_device_overflow(self) -> bool:
        """Tells whether it looks for overflows that a device recorded."""
        return self.wire == WIRE_OPERATOR_OVERFLOW

    @property
    def is_not_changed(self) -> bool:
        """Tells whether it compares each element with the previous step."""
        return self.wire == WIRE_NOT_CHANGED

    @property
    def is_change_ratio(self) -> bool:
        """Tells whether it compares the mean change since the previous step with the previous mean."""
        return self.wire in (WIRE_CHANGE_TOO_LARGE, WIRE_CHANGE_TOO_SMALL)

    @property
    def is_small_change(self) -> bool:
        """Tells whether it hits on a tensor that hardly changed since the previous step, or not at all."""
        return self.wire in (WIRE_NOT_CHANGED, WIRE_CHANGE_TOO_SMALL)

    @property
    def is_stillness(self) -> bool:
        """Tells whether it hits on zero, tiny or unchanged values: no finding where nothing was to happen."""
        return self.is_small_change or any(param.name == IN_A_ROW for param in self.params)

    @property
    def title(self) -> str:
        return self.id.replace("_", " ").capitalize()

    def param(self, name: str) -> ParamSpec:
        """Returns a parameter by name, or raises BadWatchpointError."""
        for spec in self.params:
            if spec.name == name:
                return spec
        names = ", ".join(spec.name for spec in self.params)
        msg = f"{self.id} has no parameter {name!r}"
        raise BadWatchpointError(msg, hint=f"it has {names}" if names else "it takes no parameters")

    def available(self, device: str) -> bool:
        """Tells whether the condition can be judged on a run of this device (``""``: unknown)."""
        return not self.platforms or device in self.platforms


_MEANING: Final = {"gt": "above", "lt": "below"}


def _bound(quantity: str, meaning: str, suffix: str) -> ParamSpec:
    label = "mean |x|" if quantity == "abs_mean" else quantity
    text = f"Hits when the {meaning} is {_MEANING[suffix]} this."
    low = 0 if quantity == "abs_mean" else -math.inf
    return ParamSpec(f"{quantity}_{suffix}", "float", f"{label} {_SYMBOLS[suffix]}", text, low=low)


IN_A_ROW: Final = "in_a_row"
_IN_A_ROW = ParamSpec(
    IN_A_ROW,
    "float",
    "steps in a row",
    "Live PyTorch trainings: hits from so many steps in a row on; those in which nothing was to happen do not count.",
    low=1,
    visible=False,
)
_ZERO = ParamSpec(
    "zero_percentage_ge",
    "float",
    "zeros ≥ %",
    "Hits when at least this share of the elements is zero.",
    100.0,
    low=0,
    high=100,
)
_QUANTITIES = {"abs_mean": "mean magnitude", "max": "largest element", "min": "smallest element", "mean": "mean"}
_LARGE = tuple(_bound(*each, "gt") for each in _QUANTITIES.items())
_SMALL = (*(_bound(*each, "lt") for each in _QUANTITIES.items()), _IN_A_ROW)
_EPSILON = ParamSpec(
    "epsilon",
    "float",
    "epsilon",
    "Added to the divisor, so that a zero tensor has a ratio.",
    EPSILON,
    required=True,
    visible=False,
)
BOUND_NAMES = ("range_start_inclusive", "range_end_inclusive")
_RANGE = (
    ParamSpec("range_start_inclusive", "float", "range from", "First value inside the range.", check=False),
    ParamSpec("range_end_inclusive", "float", "range to", "Last value inside the range.", check=False),
    *(
        ParamSpec(
            f"range_percentage_{suffix}",
            "float",
            f"share in range {_SYMBOLS[suffix]} %",
            f"Hits when {word} than this share of the elements is inside the range.",
            needs=BOUND_NAMES,
            low=0,
            high=100,
        )
        for suffix, word in (("lt", "less"), ("gt", "more"))
    ),
    ParamSpec(
        "max_min_lt", "float", "max − min <", "Hits when the elements span less than this.", low=0, low_open=True
    ),
    ParamSpec("max_min_gt", "float", "max − min >", "Hits when the elements span more than this.", low=0),
)
_NOT_CHANGED = (
    ParamSpec("rtol", "float", "rtol", "Allowed change, relative to the previous value.", 1e-5, low=0),
    ParamSpec("atol", "float", "atol", "Allowed change, absolute.", 1e-8, required=True, visible=False),
    ParamSpec(
        "equal_nan",
        "bool",
        "equal_nan",
        "NaN in the same place counts as unchanged.",
        False,
        required=True,
        visible=False,
    ),
    _IN_A_ROW,
)


def _change(suffix: str, default: float) -> tuple[ParamSpec, ...]:
    text = f"Hits when mean |change| / mean |previous| is {_MEANING[suffix]} this."
    name = f"abs_mean_update_ratio_{suffix}"
    return ParamSpec(name, "float", f"update ratio {_SYMBOLS[suffix]}", text, default, low=0), _EPSILON


_TABLE: Final = (
    Condition(
        "expression",
        "EX",
        "tensor",
        WIRE_EXPRESSION,
        "A condition of one's own holds.",
        (
            ParamSpec(
                EXPRESSION,
                "expression",
                "holds",
                "Hits when this holds, for example max > 6*std and zero_pct < 50, or norm > 10*prev.norm.",
            ),
        ),
        feature=16,
    ),
    Condition(
        "operator_overflow",
        "OO",
        "tensor",
        WIRE_OPERATOR_OVERFLOW,
        "The device recorded an overflow of the operator (asynchronous Ascend dumps only).",
        platforms=("Ascend",),
    ),
    Condition("tensor_all_zero", "TZ", "tensor", 17, "Too many elements are zero.", (_ZERO, _IN_A_ROW)),
    Condition("tensor_overflow", "TO", "tensor", WIRE_OVERFLOW, "Contains NaN or Inf."),
    Condition("tensor_range", "TR", "tensor", WIRE_RANGE, "Elements leave, or crowd into, a range.", _RANGE),
    Condition("tensor_too_large", "TL", "tensor", 15, "Values are too large.", _LARGE),
    Condition("tensor_too_small", "TS", "tensor", 16, "Values are too small.", _SMALL),
    Condition(
        "weight_change_too_large",
        "WCL",
        "weight",
        WIRE_CHANGE_TOO_LARGE,
        "Changed too much since the previous step.",
        _change("gt", 0.1),
    ),
    Condition(
        "weight_change_too_small",
        "WCS",
        "weight",
        WIRE_CHANGE_TOO_SMALL,
        "Changed too little since the previous step.",
        _change("lt", 1e-4),
    ),
    Condition(
        "weight_initialization",
        "WI",
        "weight",
        WIRE_INITIALIZATION,
        "Initial values look wrong.",
        (_ZERO, _LARGE[1], _SMALL[2]),
        initial_only=True,
    ),
    Condition(
        "weight_not_changed", "WNC", "weight", WIRE_NOT_CHANGED, "Did not change since the previous step.", _NOT_CHANGED
    ),
    Condition("weight_overflow", "WO", "weight", WIRE_OVERFLOW, "Contains NaN or Inf."),
    Condition("weight_too_large", "WL", "weight", 15, "Values are too large.", _LARGE),
    Condition("weight_too_small", "WS", "weight", 16, "Values are too small.", _SMALL),
    Condition("activation_range", "AR", "activation", WIRE_RANGE, "Elements leave, or crowd into, a range.", _RANGE),
    Condition("gradient_exploding", "GE", "gradient", WIRE_OVERFLOW, "Contains NaN or Inf."),
    Condition("gradient_too_large", "GL", "gradient", 15, "Values are too large.", _LARGE),
    Condition("gradient_vanishing", "GV", "gradient", 16, "Values are too small.", _SMALL),
)

CONDITIONS: Final[Mapping[str, Condition]] = {condition.id: condition for condition in _TABLE}
"""All conditions by id, in listing order: tensor, weight, activation, gradient; by id inside."""
_BY_ABBR: Final = {condition.abbr: condition for condition in _TABLE}


def is_condition(word: str) -> bool:
    """Tells whether ``by_abbr`` knows a word."""
    return word.upper() in _BY_ABBR or word.lower() in CONDITIONS


def by_abbr(text: str) -> Condition:
    """Returns a condition by abbreviation or id, in any case, or raises BadWatchpointError."""
    word = text.strip()
    found = _BY_ABBR.get(word.upper()) or CONDITIONS.get(word.lower())
    if found is None:
        msg = f"no condition is called {word!r}"
        alike = did_you_mean(word.lower().replace(" ", "_"), CONDITIONS)
        raise BadWatchpointError(msg, hint=alike or "one of " + " ".join(_BY_ABBR))
    return found


Params = tuple[tuple[str, Value], ...]
"""(name, value) in definition order."""

REASONS: Final[Mapping[ErrorBits, str]] = {
    ErrorBits.NAN: "contains NaN",
    ErrorBits.INF: "contains Inf",
    ErrorBits.NO_PREVIOUS: "no previous step",
    ErrorBits.OUT_OF_MEMORY: "exceeds the memory limit",
    ErrorBits.NO_HISTORY: "no run history",
    ErrorBits.NO_VALUE: "needs tensor values",
    ErrorBits.SHAPE_CHANGED: "shape changed",
    ErrorBits.UNREADABLE: "unreadable",
}
"""The reasons why a condition could not be judged, in words for people."""


NOT_FINITE: Final = ErrorBits.NAN | ErrorBits.INF
"""The bits that make a tensor a finding by itself and keep every other condition from being judged."""


NEEDS_COUNTS: Final = "needs counts"
NEEDS_SHAPE: Final = "needs the shape"
NEEDS_DTYPE: Final = "needs the element type"
NO_VALUE_WORDS: Final = (REASONS[ErrorBits.NO_VALUE], NEEDS_COUNTS, NEEDS_SHAPE, NEEDS_DTYPE)
"""Words for ``NO_VALUE``: where counts or facts, which some recorders write, would be enough, these words say so."""
_NEEDED_FACTS: Final = {"size": NEEDS_SHAPE, "ndim": NEEDS_SHAPE, "dtype": NEEDS_DTYPE}
_COUNTS: Final = frozenset(words("count nan inf pos_inf neg_inf zero zero_pct negative positive"))


def reasons(error: ErrorBits, condition: str = "", params: Iterable[tuple[str, Value]] = ()) -> tuple[str, ...]:
    """Returns the bits of an error in words, lowest bit first; the condition decides the words for ``NO_VALUE``."""
    if not error:
        return ()
    words: dict[ErrorBits, tuple[str, ...]] = {bit: (text,) for bit, text in REASONS.items()}
    if error & ErrorBits.NO_VALUE:
        words[ErrorBits.NO_VALUE] = _needed(condition, dict(params))
    return tuple(text for bit, texts in words.items() if error & bit for text in texts)


def _needed(condition: str, params: Mapping[str, Value]) -> tuple[str, ...]:
    """Returns the missing inputs of a condition in words."""
    named = parse_expression(str(params[EXPRESSION])).names if EXPRESSION in params else ()
    facts = tuple(dict.fromkeys(_NEEDED_FACTS[each.name] for each in named if each.name in _NEEDED_FACTS))
    if named and all(isinstance(each, Fact) for each in named):
        return facts or (REASONS[ErrorBits.NO_VALUE],)
    return (NEEDS_COUNTS if _judges_counts(condition, params) else REASONS[ErrorBits.NO_VALUE], *facts)


def _judges_counts(condition: str, params: Mapping[str, Value]) -> bool:
    """Tells whether a condition is judged by counts alone."""
    if EXPRESSION in params:
        names = [each.name for each in parse_expression(str(params[EXPRESSION])).names if isinstance(each, Quantity)]
        return bool(names) and all(name in _COUNTS for name in names)
    found = CONDITIONS.get(condition)
    if found is not None and found.is_overflow:
        return True
    specs = found.params if found is not None else ()
    deciding = {spec.name for spec in specs if spec.check and spec.name in params}
    return bool(deciding - {IN_A_ROW}) and deciding <= {_ZERO.name, IN_A_ROW}


def not_finite_words(error: ErrorBits) -> str:
    """Returns ``NaN``, ``Inf`` or ``NaN or Inf``."""
    return " or ".join(name for bit, name in ((ErrorBits.NAN, "NaN"), (ErrorBits.INF, "Inf")) if error & bit)


def validate(condition_id: str, params: Mapping[str, Value]) -> Params:
    """Returns the checked parameters in definition order, numbers as float; or raises BadWatchpointError.

    Unset hidden parameters stay unset (their defaults apply when the condition is judged). When no deciding parameter
    is set, those with a default are set to it; a condition without such a default is refused, because it could never
    hit. With several deciding parameters a watchpoint hits when any of them does, as in MindInsight's Python API.
    """
    condition = by_abbr(condition_id)
    given = {name: condition.param(name).check_value(value) for name, value in params.items()}
    checks = [spec for spec in condition.params if spec.check and spec.name in given]
    if not any(spec.visible for spec in checks):
        checks += _fill_defaults(condition, given)
    _check_bounds(condition, given, checks)
    return tuple((spec.name, given[spec.name]) for spec in condition.params if spec.name in given)


def _fill_defaults(condition: Condition, given: dict[str, Value]) -> list[ParamSpec]:
    visible = [spec for spec in condition.params if spec.check and spec.visible]
    filled = [spec for spec in visible if spec.default is not None]
    if visible and not filled:
        msg = f"{condition.id} needs at least one value to compare with"
        hint = "set one of " + ", ".join(spec.name for spec in visible)
        if condition.is_expression:
            msg, hint = "the expression is missing", "write it like: EX max > 6*std"
        raise BadWatchpointError(msg, where=condition.id, hint=hint)
    for spec in filled:
        if spec.default is not None:
            given[spec.name] = spec.default
    return filled


def _check_bounds(condition: Condition, given: Mapping[str, Value], checks: list[ParamSpec]) -> None:
    needed = {name for spec in checks for name in spec.needs}
    present = {spec.name for spec in condition.params if not spec.check and spec.name in given}
    if needed - present:
        msg = "a range percentage needs both ends of the range"
        raise BadWatchpointError(
            msg, where=condition.id, hint="set " + " and ".join(sorted(needed - present, reverse=True))
        )
    if present - needed:
        msg = "the ends of a range have no effect without a range percentage"
        raise BadWatchpointError(msg, where=condition.id, hint="set range_percentage_lt or range_percentage_gt")
    if present and float(given[BOUND_NAMES[0]]) > float(given[BOUND_NAMES[1]]):
        msg = "the range starts above its end"
        raise BadWatchpointError(msg, where=condition.id, hint="exchange the two")
