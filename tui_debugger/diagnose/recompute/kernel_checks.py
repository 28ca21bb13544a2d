"""Checks outputs with the compiled kernel first: most are surely right, so numpy need not compute them.

A numpy function of this package computes each of these operators as well. It decides where the kernel is not sure, and
does all the work where there is no kernel. Both explain the same differences by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, ONE_STEP, SURE, smallest, unit_of
from tui_debugger.diagnose.recompute.table import BoundCall
from tui_debugger.stats.kernel import available, expected, kind_of, native, probes
from tui_debugger.stats.kernel.expected import ByRow, Elementwise, ErrorLimits, KernelOperand, OperatorCall, ScaledTerms
from tui_debugger.stats.kernel.probes import PROBES

_LIMIT: Final = SURE[np.dtype(np.float64)]
USUAL_EPSILONS: Final = (1e-5, 1e-6, 1e-12, 1e-7, 1e-8, 1e-4, 1e-3)
"""Epsilons to try for layer norms whose epsilon was not recorded."""


class KernelResult(NamedTuple):
    """Whether a part of an output is surely right, and the arguments of ``OutputJudge.take_norms`` for it."""

    right: bool
    norms: tuple[float, float, float, float, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """An operator whose output the kernel checks part by part; ``width`` elements (a row) are one to the kernel."""

    call: OperatorCall
    unit: float
    width: int = 1

    def check(self, start: int, count: int) -> KernelResult:
        """Checks ``count`` elements of the output from a flat index on."""
        found = self.call.check(start // self.width, count // self.width)
        known = math.isfinite(found.error) and math.isfinite(found.inside) and math.isfinite(found.value)
        error, value, inside = (math.sqrt(each) if known else 0.0 for each in (found.error, found.value, found.inside))
        value *= self.unit
        size = inside / _LIMIT if found.state != 1 else 0.0
        tiny = self.call.limits.tiny * math.sqrt(count)
        pair = (found.first, found.recorded)
        return KernelResult(known and found.state > 0, (error, value, size, tiny, pair))


def kernel_checks_of(call: BoundCall, out: Array) -> KernelChecks:
    """Returns the kernel's checks of an output, one for each form that may be meant; none where it cannot check."""
    unit = unit_of(out.dtype)
    describe = DESCRIBED.get(call.operator.kind)
    if describe is None or not call.args or unit is None or out.dtype.itemsize > 4 or not out.size or not available():
        return ()
    if not _is_plain(out):
        return ()
    return describe(_RecordedCall(call, out, unit))


def _is_plain(array: Array) -> bool:
    return array.flags.c_contiguous and kind_of(array.dtype) is not None


class _RecordedCall:
    def __init__(self, call: BoundCall, out: Array, unit: float) -> None:
        self.operator, self.args, self.named = call
        self.out, self.unit = out, unit

    def argument(self, at: int, name: str, default: Any = None) -> Any:
        return self.args[at] if len(self.args) > at else self.named.get(name, default)

    def limits(self, terms: float = 1.0) -> ErrorLimits:
        inside = min(ACCUMULATED, self.unit) * math.sqrt(max(terms, 1.0))
        value = _LIMIT * self.unit - expected.ERROR
        return ErrorLimits(value, _LIMIT * inside, _LIMIT * self.unit, smallest(self.out.dtype))

    def operand(self, value: Any) -> KernelOperand | None:
        if isinstance(value, (bool, complex)) or not isinstance(value, (int, float, np.ndarray)):
            return None
        array = np.asarray(value, np.float64).reshape(1) if not isinstance(value, np.ndarray) else value
        if not _is_plain(array) or (unit_of(array.dtype) is None and array.dtype != np.bool_):
            return None
        if array.shape == self.out.shape:
            return KernelOperand(array)
        if array.size == 1:
            return KernelOperand(array.reshape(1), 1, 1)
        shape, whole = [1] * (self.out.ndim - array.ndim) + list(array.shape), self.out.shape
        inner = [at for at, size in enumerate(shape) if size != 1]
        if len(shape) != len(whole) or tuple(shape[inner[0] : inner[-1] + 1]) != whole[inner[0] : inner[-1] + 1]:
            return None
        return KernelOperand(array, math.prod(whole[inner[-1] + 1 :]), array.size)

    def elementwise(
        self,
        operator: Elementwise,
        values: Sequence[Any],
        limits: ErrorLimits | None = None,
        bounds: tuple[float, float] = (0.0, 0.0),
    ) -> KernelChecks:
        operands = [self.operand(each) for each in values]
        found = [each for each in operands if each is not None]
        if len(found) < len(operands) or not any(isinstance(each, np.ndarray) for each in values):
            return ()
        limits = limits or self.limits()
        return (KernelCheck(expected.elementwise(operator, found, self.out, limits, bounds), self.unit),)


KernelChecks = Sequence["KernelCheck | AttentionCheck"]
Described = Callable[[_RecordedCall], KernelChecks]


def _unary(operator: Elementwise) -> Described:
    def describe(given: _RecordedCall) -> KernelChecks:
        return given.elementwise(operator, given.args[:1]) if np.shape(given.args[0]) == given.out.shape else ()

    return describe


def _cast(given: _RecordedCall) -> KernelChecks:
    if np.shape(given.args[0]) != given.out.shape:
        return ()
    one_step = given.limits()._replace(value=min(_LIMIT, ONE_STEP) * given.unit - expected.ERROR)
    return given.elementwise(Elementwise.SAME, given.args[:1], one_step)


def _binary(operator: Elementwise) -> Described:
    def describe(given: _RecordedCall) -> KernelChecks:
        if len(given.args) != 2 or given.named:
            return ()
        turned = given.operator.function.__name__ == "rdiv"
        return given.elementwise(operator, given.args[::-1] if turned else given.args)

    return describe


def _sum_of_two(given: _RecordedCall, sign: int = 1) -> KernelChecks:
    if len(given.args) != 2 or set(given.named) - {"alpha"}:
        return ()
    sign *= given.named.get("alpha", 1) if given.named.get("alpha", 1) in {1, -1} else 0
    one, other = given.args
    if given.operator.function.__name__ == "rsub":
        one, other = other, one
    if not sign:
        return ()
    scalar = not isinstance(other, np.ndarray) or not other.ndim  # scalars may be rounded first
    limits = given.limits()
    limits = limits._replace(size=limits.narrow if scalar else 0.0)
    return given.elementwise(Elementwise.ADD if sign > 0 else Elementwise.SUBTRACT, (one, other), limits)


def _gelu(given: _RecordedCall) -> KernelChecks:
    if given.operator.function.__name__ != "gelu":  # the form was not recorded
        return (*_unary(Elementwise.GELU)(given), *_unary(Elementwise.GELU_TANH)(given))
    form = given.argument(1, "approximate", "none")
    operators = {"none": Elementwise.GELU, "tanh": Elementwise.GELU_TANH}
    return _unary(operators[form])(given) if form in operators else ()


def _clamp(given: _RecordedCall) -> KernelChecks:
    cut = given.operator.kind == "hardtanh"
    low = given.argument(1, "min_val" if cut else "min", -1.0 if cut else None)
    high = given.argument(2, "max_val" if cut else "max", 1.0 if cut else None)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if not all(isinstance(each, (int, float)) for each in (low, high)) or low > high:
        return ()
    return given.elementwise(Elementwise.CLAMP, given.args[:1], None, (float(low), float(high)))


def _leaky_relu(given: _RecordedCall) -> KernelChecks:
    slope = given.argument(1, "negative_slope", 0.01)
    if not isinstance(slope, (int, float)):
        return ()
    return given.elementwise(Elementwise.LEAKY_RELU, given.args[:1], None, (float(slope), 0.0))


def _dropout(given: _RecordedCall) -> KernelChecks:
    chance, training = given.argument(1, "p", 0.5), given.argument(2, "training", True)
    if not isinstance(chance, (int, float)) or not 0 <= chance < 1:
        return ()
    if not training or not chance:
        return given.elementwise(Elementwise.SAME, given.args[:1])
    return given.elementwise(Elementwise.DROPOUT, given.args[:1], None, (1.0 - chance, 0.0))


def _where(given: _RecordedCall) -> KernelChecks:
    if len(given.args) != 3:
        return ()
    condition, one, other = given.args
    if getattr(one, "dtype", None) == np.bool_ and getattr(condition, "dtype", None) != np.bool_:
        condition, one = one, condition
    return _chosen(given, condition, one, other)


def _masked_fill(given: _RecordedCall) -> KernelChecks:
    return _chosen(given, given.args[1], given.args[2], given.args[0]) if len(given.args) == 3 else ()


def _chosen(given: _RecordedCall, condition: Any, one: Any, other: Any) -> KernelChecks:
    if getattr(condition, "dtype", None) != np.bool_:
        return ()
    return given.elementwise(Elementwise.WHERE, (one, other, condition))


def _along(given: _RecordedCall, axes: Sequence[int]) -> tuple[Array, int] | None:
    """The operator's input and the number of elements along ``axes``; None unless these are its last dimensions."""
    values = given.args[0]
    if not isinstance(values, np.ndarray) or not _is_plain(values) or unit_of(values.dtype) is None or not values.size:
        return None
    if sorted(axes) != list(range(values.ndim - len(axes), values.ndim)):
        return None
    return values, math.prod(values.shape[values.ndim - len(axes) :])


def _axes(dim: Any, ndim: int) -> tuple[int, ...] | None:
    dim = tuple(dim.reshape(-1).tolist()) if isinstance(dim, np.ndarray) else dim
    dims = dim if isinstance(dim, tuple) else (dim,)
    if not all(isinstance(each, int) and -ndim <= each < ndim for each in dims):
        return None
    return tuple(each % ndim for each in dims)


def _softmax(operator: ByRow) -> Described:
    def describe(given: _RecordedCall) -> KernelChecks:
        values = given.args[0]
        axes = _axes(given.argument(1, "dim"), np.ndim(values))
        found = _along(given, axes) if axes is not None and len(axes) == 1 else None
        if found is None or values.shape != given.out.shape:
            return ()
        return (_rows(given, operator, found, given.limits()),)

    return describe


def _rows(
    given: _RecordedCall,
    operator: ByRow,
    found: tuple[Array, int],
    limits: ErrorLimits,
    scaled: ScaledTerms | None = None,
) -> KernelCheck:
    call = expected.by_row(operator, found, given.out, limits, scaled)
    return KernelCheck(call, given.unit, found[1] if operator < ByRow.SUM else 1)


def _layer_norm(given: _RecordedCall) -> KernelChecks:
    name = given.operator.function.__name__
    if name == "layer_norm":
        shape, factors = given.argument(1, "normalized_shape"), _scale_and_shift(given, 2)
        return _normalised(given, ByRow.LAYER_NORM, shape, factors, (given.argument(4, "eps", 1e-5),))
    if name == "module_layer_norm":
        scale, shift = _scale_and_shift(given, 1)
        if scale is None:
            scale, shift = given.argument(3, "gamma"), given.argument(4, "beta")
        shape = scale.shape if isinstance(scale, np.ndarray) else None
        return _normalised(given, ByRow.LAYER_NORM, shape, (scale, shift), USUAL_EPSILONS)
    return ()


def _scale_and_shift(given: _RecordedCall, at: int) -> tuple[Any, Any]:
    return given.argument(at, "weight"), given.argument(at + 1, "bias")


def _rms_norm(given: _RecordedCall) -> KernelChecks:
    if given.operator.function.__name__ != "rms_norm":
        return ()
    shape, scale = given.argument(1, "normalized_shape"), given.argument(2, "weight")
    return _normalised(given, ByRow.RMS_NORM, shape, (scale, None), (given.argument(3, "eps"),))


def _normalised(
    given: _RecordedCall, operator: ByRow, shape: Any, scale_and_shift: tuple[Any, Any], epsilons: Sequence[Any]
) -> KernelChecks:
    values = given.args[0]
    shape = (shape,) if isinstance(shape, int) else shape
    if not isinstance(shape, tuple) or not shape or np.shape(values)[-len(shape) :] != shape:
        return ()
    found = _along(given, tuple(range(values.ndim - len(shape), values.ndim)))
    pairs = zip(scale_and_shift, (1.0, 0.0), strict=True)
    factors = [np.full(1, default) if each is None else np.asarray(each) for each, default in pairs]
    if found is None or values.shape != given.out.shape or not all(isinstance(each, float) for each in epsilons):
        return ()
    if any(each.shape not in {shape, (1,)} or unit_of(each.dtype) is None for each in factors):
        return ()
    one, other = (np.ascontiguousarray(np.broadcast_to(each, shape)) for each in factors)
    limits = given.limits(found[1] / VARIANCE_SHARE)
    return tuple([_rows(given, operator, found, limits, ScaledTerms(one, other, each)) for each in epsilons])


VARIANCE_SHARE: Final = 16
"""K terms of a sum inside a normalisation count as K / 16: these sums err a quarter as much as random terms."""


def _reduced(operator: ByRow) -> Described:
    def describe(given: _RecordedCall) -> KernelChecks:
        values, dim = given.args[0], given.argument(1, "dim")
        every = dim is None or np.size(dim) == 0
        axes = tuple(range(np.ndim(values))) if every else _axes(dim, np.ndim(values))
        found = _along(given, axes) if axes else None
        if found is None or given.out.size * found[1] != values.size or given.argument(3, "skip_mode", False):
            return ()
        return (_rows(given, operator, found, given.limits(found[1])),)

    return describe


# -- attention ---------------------------------------------------------------------------------------------

_LONGEST: Final = 512
"""The most elements of a row of an attention's output."""
_PASSED: Final = 2.0
"""Ratio up to which a difference is right; errors of rows are only estimated by random vectors."""


@dataclass(frozen=True, slots=True)
class AttentionCheck:
    """An attention that was checked with random vectors; a head has ``size`` elements of the output.

    For each head: ``ratio`` is the error of its worst row by what rounding explains (inf: unknown), ``error`` and
    ``explained`` are squared norms.
    """

    size: int
    ratio: Float64
    error: Float64
    explained: Float64

    def check(self, start: int, count: int) -> KernelResult:
        heads = slice(start // self.size, (start + count) // self.size)
        worst = float(np.max(self.ratio[heads], initial=0.0))
        known = math.isfinite(worst)
        norms = (math.sqrt(float(np.sum(each[heads]))) if known else 0.0 for each in (self.error, self.explained))
        error, explained = norms
        return KernelResult(worst <= _PASSED, (error, explained, 0.0, 0.0, (0.0, 0.0)))


@dataclass(frozen=True, slots=True)
class _Heads:
    """An attention whose tensors the kernel reads, in heads.

    All scores are computed, but only a few random sums of the values are multiplied by the shares. All arithmetic is in
    float32, which errs like the kernels under test. A ``mask`` has booleans (what is seen), or numbers to add to
    scores.
    """

    query: Array
    key: Array
    value: Array
    out: Array
    mask: Array | None
    causal: bool
    factor: float

    def averages(self, columns: Float32) -> tuple[Float64, Float64]:
        """For each row: averages of ``columns`` over its keys, weighted by its shares, and its largest score."""
        before, (rows, keys) = self.out.shape[:-2], (self.out.shape[-2], self.key.shape[-2])
        heads = math.prod(before)
        made, top = np.empty((heads, rows, expected.ATTENTION_COLUMNS)), np.empty((heads, rows))
        masks = None if self.mask is None else np.broadcast_to(self.mask, (*before, rows, keys))
        for number, at in enumerate(np.ndindex(before)):
            mask = None if masks is None else np.ascontiguousarray(masks[at])
            if mask is not None and mask.dtype != np.bool_:
                mask = mask.astype(np.float32, copy=False)
            made[number], top[number] = expected.attended(
                self.query[at], self.key[at], columns[number], mask, causal=self.causal, factor=self.factor
            )
        return made, top

    def check(self, unit: float) -> AttentionCheck:
        keys, width = self.key.shape[-2], self.out.shape[-1]
        signs, values = signs_of(width), self.value.reshape(-1, width)
        columns = np.ones((len(values), expected.ATTENTION_COLUMNS), np.float32)
        columns[:, :PROBES], squares = probes.signed_rows(values, width, signs)
        columns[:, PROBES] = np.sqrt(squares[:, 0])
        np.sum(np.abs(single(values)), axis=1, out=columns[:, PROBES + 1])
        made, top = self.averages(columns.reshape(-1, keys, expected.ATTENTION_COLUMNS))
        found = probes.signed_rows(self.out.reshape(-1, width), width, signs)
        recorded, square = (each.reshape(*top.shape, -1) for each in found)
        error = made[..., :PROBES] - recorded
        error = np.einsum("hij,hij->hi", error, error) / PROBES
        root, size = made[..., PROBES], made[..., PROBES + 1] / math.sqrt(width)
        inside = min(ACCUMULATED, unit)
        # Lower bounds of the norms of the shares and of their errors: see ``products.attention``.
        explained = unit * (np.sqrt(square[..., 0]) + root / math.sqrt(keys))
        explained += inside * (root + 2 * size * np.minimum(2 * np.abs(top), 1e4))
        explained *= explained
        with np.errstate(all="ignore"):
            off = np.where((error > 0) | ~(explained >= 0), np.sqrt(error / explained), 0.0).max(axis=1, initial=0.0)
        error, explained = error.sum(axis=1), explained.sum(axis=1)
        known = np.isfinite(off) & np.isfinite(error) & np.isfinite(explained)
        return AttentionCheck(math.prod(self.out.shape[-2:]), np.where(known, off, np.inf), error, explained)


def single(array: Array) -> Float32:
    return array.copy() if array.dtype == np.float32 else probes.singles(native(array))


@lru_cache(maxsize=8)
def signs_of(width: int) -> Float32:
    """Random signs of shape (width, ``PROBES``): the same every time."""
    signs = np.random.default_rng(width).integers(0, 2, (PROBES, width)).T * np.float32(2) - np.float32(1)
    signs = np.ascontiguousarray(signs, np.float32)
    signs.flags.writeable = False
    return signs


def _attention(given: _RecordedCall) -> tuple[AttentionCheck, ...]:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    query, key, value, mask, chance, causal, scale, grouped = (
        given.argument(at, name) for at, name in enumerate(names)
    )
    heads = (query, key, value)
    if chance or grouped or not all(isinstance(each, np.ndarray) and _is_plain(each) for each in heads):
        return ()
    if any(unit_of(each.dtype) is None or each.dtype.itemsize > 4 or each.ndim < 2 for each in heads):
        return ()
    before, (rows, width) = query.shape[:-2], query.shape[-2:]
    inner, made = key.shape[-2], value.shape[-1]
    shapes = (*before, rows, made), (*before, inner, width), (*before, inner, made)
    if (given.out.shape, key.shape, value.shape) != shapes or not 0 < made <= _LONGEST or not inner:
        return ()
    if mask is not None and (not isinstance(mask, np.ndarray) or mask.ndim > query.ndim or mask.dtype.kind in "iu"):
        return ()
    factor = 1 / math.sqrt(width) if scale is None else scale
    if not isinstance(factor, (int, float)):
        return ()
    with np.errstate(all="ignore"):
        return (_Heads(query, key, value, given.out, mask, bool(causal), float(factor)).check(given.unit),)


_UNARY: Final = {
    "neg": Elementwise.NEGATIVE,
    "abs": Elementwise.MAGNITUDE,
    "relu": Elementwise.RELU,
    "exp": Elementwise.EXP,
    "tanh": Elementwise.TANH,
    "sigmoid": Elementwise.SIGMOID,
    "silu": Elementwise.SILU,
    "sqrt": Elementwise.SQRT,
    "rsqrt": Elementwise.RSQRT,
    "reciprocal": Elementwise.RECIPROCAL,
    "square": Elementwise.SQUARE,
}
DESCRIBED: Final[dict[str, Described]] = {
    **{kind: _unary(each) for kind, each in _UNARY.items()},
    "cast": _cast,
    "gelu": _gelu,
    "clamp": _clamp,
    "hardtanh": _clamp,
    "leaky relu": _leaky_relu,
    "dropout": _dropout,
    "add": _sum_of_two,
    "sub": partial(_sum_of_two, sign=-1),
    "mul": _binary(Elementwise.MULTIPLY),
    "div": _binary(Elementwise.DIVIDE),
    "maximum": _binary(Elementwise.LARGER),
    "minimum": _binary(Elementwise.SMALLER),
    "where": _where,
    "masked fill": _masked_fill,
    "softmax": _softmax(ByRow.SOFTMAX),
    "log softmax": _softmax(ByRow.LOG_SOFTMAX),
    "layer norm": _layer_norm,
    "rms norm": _rms_norm,
    "sum": _reduced(ByRow.SUM),
    "mean": _reduced(ByRow.MEAN),
    "attention": _attention,
}
"""Describes a call to the kernel, by kind of operator."""
