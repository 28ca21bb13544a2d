"""Operators that multiply and sum up: products of matrices and attention.

Each is computed twice: the product itself, and the product of the squares, whose root is the size before cancelling.
"""

# ruff: noqa: A002, A006, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Shape
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, Expected, OutputJudge, doubles, unit_of, wide
from tui_debugger.diagnose.recompute.probing import (
    LARGE,
    ROWS_SIZE,
    ProbedBlock,
    ProbedOutput,
    block_of,
    group_of,
    passes,
    probes_for,
    take_blocks,
)
from tui_debugger.diagnose.recompute.table import Alternatives, ByShape, CannotBindError, choices_of, operator
from tui_debugger.stats.kernel.probes import RightFactor

MOST_WORK: Final = 1 << 36
"""Multiplications beyond which an operator is not recomputed: minutes of one core."""


def product_of(
    left: Array, right: Array, bias: Any = None, alpha: float = 1.0, beta: float = 1.0, *, exact: bool = False
) -> Any:
    """``alpha * left @ right + beta * bias`` with numpy's batches; a ``LargeProduct`` if large and not ``exact``."""
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[-2 if right.ndim > 1 else 0]:
        raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
    work = left.size * (right.shape[-1] if right.ndim > 1 else 1)
    known = all(unit_of(each.dtype) is not None for each in (left, right))
    if (
        known
        and not exact
        and work >= LARGE
        and left.ndim > 1
        and right.ndim > 1
        and (right.ndim == 2 or left.ndim > 2)
    ):
        return LargeProduct(left, right, bias, alpha, beta)
    if work > MOST_WORK:
        raise CannotBindError("too large")
    if all(each.dtype.kind in "iu" for each in (left, right)):
        return _whole_product(left, right, bias, alpha, beta)
    left, right = doubles(left), doubles(right)
    terms = left.shape[-1]
    value = alpha * np.matmul(left, right)
    squares = alpha * alpha * np.matmul(_squares(left), _squares(right))
    partial = 0.0 if bias is None else np.abs(value)
    if bias is not None:
        added = beta * doubles(bias)
        value, squares, terms = value + added, squares + _squares(added), terms + 1
    return Expected(value, np.sqrt(squares), terms, partial=partial, peak=peak_of(left, right), cast=True)


def _squares(values: Array) -> Float64:
    """The squares of numbers, of complex ones those of their sizes."""
    found: Float64 = np.square(values if values.dtype.kind != "c" else np.abs(values))
    return found


def _whole_product(left: Array, right: Array, bias: Any, alpha: float, beta: float) -> Expected:
    """The product of whole numbers; overflow wraps around, as in any sum of them."""
    factors = (alpha, *(() if bias is None else (beta,)))
    if any(each != int(each) for each in factors) or (bias is not None and bias.dtype.kind not in "iu"):
        raise CannotBindError("whole numbers times fractions")
    value = int(alpha) * np.matmul(wide(left), wide(right))
    return Expected(value if bias is None else value + int(beta) * wide(bias), exact=True)


class LargeProduct(ProbedOutput):
    """A product of matrices that is checked with random vectors: n² operations in place of n³.

    The columns of a row are taken in groups. The error of a group is multiplied by ``PROBES`` vectors of random signs;
    the mean square of the results estimates its squared norm. A group is right where this is at most twice what
    rounding explains: a fault of six times that passes with a chance of one in a thousand for each group that it
    touches.
    """

    def __init__(self, left: Array, right: Array, bias: Any, alpha: float, beta: float) -> None:
        self.left, self.right, self.bias, self.alpha, self.beta = left, right, bias, alpha, beta
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        self.shape = (*batch, left.shape[-2], right.shape[-1])
        self.work = math.prod(self.shape) * left.shape[-1]

    def exact(self) -> Expected:
        made: Expected = product_of(self.left, self.right, self.bias, self.alpha, self.beta, exact=True)
        return made

    def judge(self, judge: OutputJudge, found: Array) -> bool:
        unit = unit_of(found.dtype)
        bias = None if self.bias is None else np.asarray(self.bias)
        if unit is None or found.shape != self.shape or (bias is not None and bias.shape not in {self.shape[-1:], ()}):
            return False
        rows, width = self.shape[-2:]
        blocks: list[ProbedBlock] = []
        if self.right.ndim == 2:
            flat = self.left.reshape(-1, self.left.shape[-1]), found.reshape(-1, width)
            blocks += self._blocks((flat[0], self.right, bias), flat[1], 0, judge.widest)
        else:
            batch = self.shape[:-2]
            left, right = (np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (self.left, self.right))
            for number, at in enumerate(np.ndindex(batch)):
                part = left[at], right[at], bias
                blocks += self._blocks(part, found[at], number * rows * width, judge.widest)
        take_blocks(judge, blocks)
        return True

    def _blocks(
        self, factors: tuple[Array, Array, Array | None], found: Array, start: int, widest: float
    ) -> Iterator[ProbedBlock]:
        left, right, bias = factors
        terms, width = right.shape
        unit = unit_of(found.dtype) or 0.0
        group = group_of(width)
        probes = probes_for((left, right, found), width, group)
        probed, squares = probes.of_columns(right)
        added, added_squares = np.zeros(probed.shape[1]), np.zeros(squares.shape[1])
        if bias is not None:
            wide_bias = self.beta * np.broadcast_to(bias.astype(np.float64), (1, width))
            added, added_squares = (each[0] for each in probes.of_rows(np.ascontiguousarray(wide_bias)))
        factor = RightFactor(probed, None if unit > ACCUMULATED else squares, added, added_squares, self.alpha)
        error, size, value = probes.distances(left, factor, found)
        inside = ACCUMULATED * math.sqrt(terms + (bias is not None))
        explained = _explained(unit, inside, size, value, widest)
        if factor.squares is None and not passes(error, explained):
            size = probes.distances(left, factor._replace(squares=squares), found).size
            explained = _explained(unit, inside, size, value, widest)
        step = max(min(ROWS_SIZE // max(terms, width), len(left)), 1)
        for begin in range(0, len(left), step):
            part = slice(begin, begin + step)

            def exact(at: Array | None = None, begin: int = begin) -> tuple[Expected, Array]:
                rows = slice(begin, begin + step) if at is None else begin + at
                made: Expected = product_of(left[rows], right, bias, self.alpha, self.beta, exact=True)
                return made, found[rows]

            off, sizes = (error[part], explained[part]), (inside, size[part])
            yield block_of(start + begin * width, off, (unit, value[part]), sizes, exact)


def _explained(unit: float, inside: float, size: Float64, value: Float64, widest: float) -> Float64:
    explained: Float64 = unit * np.sqrt(value) + inside * np.sqrt(size + value / 4)
    return explained + unit * np.sqrt(size) if widest < unit else explained


def peak_of(left: Float64, right: Float64) -> float:
    """A bound of partial sums, from finite numbers only."""
    largest: list[float] = [float(np.max(np.abs(each), initial=0.0, where=np.isfinite(each))) for each in (left, right)]
    return largest[0] * largest[1] * max(int(left.shape[-1]), 1)


@operator("linear", "linear", modules="Linear Dense")
def linear(input: Array, weight: Array, bias: Array | None = None) -> Any:
    return product_of(input, np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight, bias)


@operator("matmul", "matmul mm bmm mv dot npu_bmmV2")
def matmul(input: Array, mat2: Array) -> Any:
    return product_of(input, mat2)


operator("matmul", "__rmatmul__ rmatmul")(lambda input, other: product_of(other, input))


@operator("addmm", "addmm addmv baddbmm")
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Any:
    return product_of(mat1, mat2, input, alpha, beta)


operator("outer", "outer ger")(lambda input, vec2: Expected(np.outer(doubles(input), doubles(vec2))))


@operator("einsum", "einsum")
def einsum(equation: str, *operands: Any) -> Expected:
    arrays = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple) else operands
    wides = [doubles(each) for each in arrays]
    try:
        value = np.einsum(equation.replace(" ", ""), *wides, optimize=True)
        squares = np.einsum(equation.replace(" ", ""), *(each * each for each in wides), optimize=True)
    except ValueError as error:
        raise CannotBindError(f"equation not understood: {error}") from error
    return Expected(np.asarray(value), np.sqrt(squares), _inner(equation, wides), cast=True)


def _inner(equation: str, arrays: Sequence[Float64]) -> int:
    """The number of terms that are summed up; 1 where the letters do not tell."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes = {
        letter: size
        for letters, array in zip(inputs.split(","), arrays, strict=False)
        if len(letters) == array.ndim
        for letter, size in zip(letters, array.shape, strict=True)
    }
    return math.prod(size for letter, size in sizes.items() if letter not in output)


# -- attention ---------------------------------------------------------------------------------------------


@operator(
    "attention",
    "scaled_dot_product_attention",
    aten="ScaledDotProductFlashAttentionForCpu",
    split="batches",
    single=True,
)
def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expected:
    if dropout_p:
        raise CannotBindError("random: dropout inside the attention")
    q, k, v = doubles(query), doubles(key), doubles(value)
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    if q.shape[:-1] != (*k.shape[:-2], q.shape[-2]) and q.ndim != k.ndim:
        raise CannotBindError("shapes do not fit")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if q.size * k.shape[-2] > MOST_WORK:
        raise CannotBindError("too large")
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * factor
    if is_causal:
        scores += np.triu(np.full(scores.shape[-2:], -np.inf, scores.dtype), 1)
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + doubles(mask)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    parts = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = parts.sum(axis=-1, keepdims=True)
    shares = parts / total
    empty = ~np.isfinite(top) & np.all(np.isneginf(scores), axis=-1, keepdims=True)
    result = np.matmul(shares, v)
    if np.any(empty):  # rows without any key: NaN in some kernels, zeros in others
        raise CannotBindError("rows that attend to nothing: kernels differ in their result")

    def whole() -> Expected:
        return _attention_sizes((q, k, v), abs(factor), scores, shares, result)

    return Expected(result, whole=whole)


def _attention_sizes(
    given: tuple[Float64, Float64, Float64], factor: float, scores: Float64, shares: Float64, result: Float64
) -> Expected:
    q, k, v = (each.astype(np.float32) for each in given)
    sizes = np.sqrt(np.matmul(q * q, np.swapaxes(k * k, -1, -2))) * factor
    # Errors of the scores, in units of u √d |q·k|, move each share; the shares are rounded to the type as well.
    shift = np.max(
        np.where(shares > 0, sizes * math.sqrt(q.shape[-1]) + np.abs(np.where(np.isfinite(scores), scores, 0)), 0),
        axis=-1,
        keepdims=True,
    )
    terms = k.shape[-2]
    parts = shares.astype(np.float32)
    spread = np.sqrt(np.matmul(parts * parts, v * v)).astype(np.float64)
    size = spread + np.matmul(parts, np.abs(v)) * shift / math.sqrt(terms) * 2
    odd = ~np.isfinite(result)  # kernels leave out what is masked, where 0 times infinity is NaN
    return Expected(result, size, terms, narrow=spread, cast=True, ignored=odd if np.any(odd) else None)


# -- MindSpore's graphs ------------------------------------------------------------------------------------


def _turned(array: Array, turn: bool) -> Array:
    return np.swapaxes(array, -1, -2) if turn else array


def _matrices(
    left: Array, right: Array, turns: tuple[Any, Any], bias: Array | None = None, *, exact: bool = False
) -> ByShape:
    """A product whose operands may be transposed; where that was not recorded, all forms that fit."""

    def made(shape: Shape) -> Any:
        choices = []
        for first, second in product(*([each] if isinstance(each, bool) else [False, True] for each in turns)):
            one, other = left, right
            if len(shape) == 2 and min(shape):
                # A reshape may have been removed: the output tells one dimension of each operand.
                one = _as_matrix(left, shape[0], last=first)
                other = _as_matrix(right, shape[1], last=not second)
            one, other = _turned(one, first), _turned(other, second)
            if one.ndim > 1 and other.ndim > 1 and one.shape[-1] == other.shape[-2]:
                choices.append(product_of(one, other, bias, exact=exact))
        if not choices:
            raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
        return choices[0] if len(choices) == 1 else Alternatives(*choices)

    return ByShape(made)


def _as_matrix(array: Array, size: int, *, last: bool) -> Array:
    if array.ndim == 2 and array.shape[last] == size:
        return array
    if array.size % size:
        raise CannotBindError(f"shape {array.shape} does not fit")
    return array.reshape((-1, size) if last else (size, -1))


operator("matmul", graphs="MatMul BatchMatMul MatMulV2 BatchMatMulV2")(
    lambda x1, x2, transpose_a=None, transpose_b=None: _matrices(x1, x2, (transpose_a, transpose_b))
)


@operator("linear", graphs="MatMulBiasAddFusion Dense")
def graph_linear(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    return _matrices(x1, x2, (transpose_a, transpose_b), bias)


@operator("linear", graphs="MatMulBiasAddReluFusion")
def graph_linear_relu(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    inner = _matrices(x1, x2, (transpose_a, transpose_b), bias, exact=True)

    def made(shape: Shape) -> Any:
        found = inner.function(shape)
        for each in choices_of(found):
            each.value, each.either = np.maximum(each.value, 0), np.fmax(each.value, 0)  # NaN may become 0
        return found

    return ByShape(made)
