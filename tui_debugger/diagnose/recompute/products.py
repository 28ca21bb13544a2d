"""Operators that multiply and sum up: products of matrices, convolutions, attention.

Every one is computed twice: the product itself, and that of the squares, whose root is the size before cancelling.
"""

# ruff: noqa: A002, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, Expected, Judge, doubles, unit_of
from tui_debugger.diagnose.recompute.quick import signs_of
from tui_debugger.diagnose.recompute.table import ByShape, CannotBindError, Either, call, graph, module
from tui_debugger.stats.kernel import expected, is_known, native
from tui_debugger.stats.kernel.expected import PROBES, Squared

_MOST_WORK: Final = 1 << 36
"""Multiplications beyond which an operator is not recomputed: minutes of one core."""


def product_of(
    left: Array, right: Array, bias: Any = None, alpha: float = 1.0, beta: float = 1.0, *, exact: bool = False
) -> Any:
    """``alpha * left @ right + beta * bias``, with batches as ``numpy.matmul`` takes them.

    Of a large one the result is a ``LargeProduct``, unless it has to be ``exact``.
    """
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[-2 if right.ndim > 1 else 0]:
        raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
    work = left.size * (right.shape[-1] if right.ndim > 1 else 1)
    if not exact and work >= _LARGE and left.ndim > 1 and right.ndim > 1 and (right.ndim == 2 or left.ndim > 2):
        return LargeProduct(left, right, bias, alpha, beta)
    if work > _MOST_WORK:
        raise CannotBindError("too large")
    left, right = doubles(left), doubles(right)
    terms = left.shape[-1]
    value = alpha * np.matmul(left, right)
    squares = alpha * alpha * np.matmul(left * left, right * right)
    partial = 0.0 if bias is None else np.abs(value)
    if bias is not None:
        added = beta * doubles(bias)
        value, squares, terms = value + added, squares + added * added, terms + 1
    return Expected(value, np.sqrt(squares), terms, partial=partial, peak=_peak(left, right), cast=True)


MOST_TO_TELL: Final = 1 << 32
"""Multiplications beyond which it is not told how a wrong output follows from the right one: seconds of one core."""


class Probed(ABC):
    """What is held against random vectors.

    Attributes:
        shape: of the output.
        work: multiplications that computing all of it takes.
    """

    shape: tuple[int, ...]
    work: int = 0

    @abstractmethod
    def exact(self) -> Expected:
        """All of it, computed."""

    @abstractmethod
    def judge(self, judge: Judge, found: Array) -> bool:
        """Takes in the output; returns False, and nothing has happened, where it cannot be probed."""


class LargeProduct(Probed):
    """A product of matrices that is held against random vectors: n² operations in place of n³.

    Outputs of a row are taken in groups (``group_of``). The error of a group is multiplied by ``PROBES`` vectors of
    random signs; the mean square of the results is its square norm, on average. Where it is at most twice what rounding
    explains, the group is right: a fault of six times that passes with a chance of one in a thousand for each group
    that it touches. What does not pass is computed, until that tells for sure that the output is wrong.
    """

    def __init__(self, left: Array, right: Array, bias: Any, alpha: float, beta: float) -> None:
        """``alpha * left @ right + beta * bias``."""
        self.left, self.right, self.bias, self.alpha, self.beta = left, right, bias, alpha, beta
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        self.shape = (*batch, left.shape[-2], right.shape[-1])
        self.work = math.prod(self.shape) * left.shape[-1]

    def exact(self) -> Expected:
        """All of it."""
        made: Expected = product_of(self.left, self.right, self.bias, self.alpha, self.beta, exact=True)
        return made

    def judge(self, judge: Judge, found: Array) -> bool:
        """Takes in the output; returns False, and nothing has happened, where it cannot be probed."""
        unit = unit_of(found.dtype)
        bias = None if self.bias is None else np.asarray(self.bias)
        if unit is None or found.shape != self.shape or (bias is not None and bias.shape not in {self.shape[-1:], ()}):
            return False
        rows, width = self.shape[-2:]
        blocks: list[_Block] = []
        if self.right.ndim == 2:
            flat = self.left.reshape(-1, self.left.shape[-1]), found.reshape(-1, width)
            blocks += self._blocks((flat[0], self.right, bias), flat[1], 0, judge.widest)
        else:
            batch = self.shape[:-2]
            left, right = (np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (self.left, self.right))
            for number, at in enumerate(np.ndindex(batch)):
                part = left[at], right[at], bias
                blocks += self._blocks(part, found[at], number * rows * width, judge.widest)
        _take_blocks(judge, blocks)
        return True

    def _blocks(
        self, factors: tuple[Array, Array, Array | None], found: Array, start: int, widest: float
    ) -> Iterator[_Block]:
        left, right, bias = factors
        terms, width = right.shape
        unit = unit_of(found.dtype) or 0.0
        group = group_of(width)
        probes = _probes((left, right, found), width, group)
        probed, squares = probes.of_columns(right)
        added, added_squares = np.zeros(probed.shape[1]), np.zeros(squares.shape[1])
        if bias is not None:
            wide_bias = self.beta * np.broadcast_to(bias.astype(np.float64), (1, width))
            added, added_squares = (each[0] for each in probes.of_rows(np.ascontiguousarray(wide_bias)))
        step = max(min(_ROWS_SIZE // max(terms, width), len(left)), 1)
        inside = ACCUMULATED * math.sqrt(terms + (bias is not None))
        for begin in range(0, len(left), step):
            rows = left[begin : begin + step]
            seen, value = probes.of_rows(found[begin : begin + step])
            error = probes.times(rows, probed)
            error *= self.alpha
            error += added
            error -= seen
            error = error.reshape(len(rows), -1, PROBES)
            error = np.einsum("ijk,ijk->ij", error, error) / PROBES
            size = self.alpha * self.alpha * probes.times(rows, squares, squared=Squared.LEFT) + added_squares
            explained = unit * np.sqrt(value) + inside * np.sqrt(size + value / 4)
            if widest < unit:
                explained += unit * np.sqrt(size)

            def exact(at: Array | None = None, begin: int = begin) -> tuple[Expected, Array]:
                rows = slice(begin, begin + step) if at is None else begin + at
                made: Expected = product_of(left[rows], right, bias, self.alpha, self.beta, exact=True)
                return made, found[rows]

            yield _block(start + begin * width, (error, explained), (unit, value), (inside, size), exact)


class _Block(NamedTuple):
    """A part of an output that was held against random vectors.

    Attributes:
        start: its first element.
        ratio: of the group that is farthest off, in what rounding explains; inf where that is not known.
        beyond: rows of groups that did not pass.
        error: the distance of all as a norm, about.
        value, size: norms of what rounding explains.
        exact: computes all, or some rows; and what was recorded of them.
    """

    start: int
    ratio: float
    beyond: Array
    error: float
    value: float
    size: float
    exact: Callable[[Array | None], tuple[Expected, Array]]


def _block(
    start: int,
    error_and_explained: tuple[Float64, Float64],
    unit_and_value: tuple[float, Float64],
    inside_and_size: tuple[float, Float64],
    exact: Callable[[Array | None], tuple[Expected, Array]],
) -> _Block:
    """A block of squared errors, what explains them, and squared norms of values and sizes: by row and group."""
    error, explained = error_and_explained
    with np.errstate(all="ignore"):
        ratios = np.sqrt(error) / explained
    ratio = float(np.max(ratios, initial=0.0, where=(error > 0) | ~(explained >= 0)))
    beyond = np.flatnonzero((ratios > _PASSED).any(axis=1))
    whole, value, size = (float(each.sum()) for each in (error, unit_and_value[1], inside_and_size[1]))
    if not all(map(math.isfinite, (whole, value, size, ratio))):
        return _Block(start, math.inf, beyond, 0.0, 0.0, 0.0, exact)
    value, size = unit_and_value[0] * math.sqrt(value), inside_and_size[0] * math.sqrt(size)
    return _Block(start, ratio, beyond, math.sqrt(whole), value, size, exact)


def _take_blocks(judge: Judge, blocks: Sequence[_Block]) -> None:
    """Takes in what is right by its norms; computes the others, the worst first, until the output is surely wrong."""
    explained = math.sqrt(sum((each.value + each.size) ** 2 for each in blocks))
    for each in sorted(blocks, key=lambda block: -block.ratio):
        known = math.isfinite(each.ratio)
        if known and (each.ratio <= _PASSED or judge.is_surely_wrong(explained) or _few_are_right(each, judge)):
            judge.take_norms(each.error, each.value, each.size)
        else:
            judge.take(*each.exact(None), each.start)


def _few_are_right(block: _Block, judge: Judge) -> bool:
    """Tells whether there are few rows beyond, and all of them are right: by chance, of so many, some are."""
    if len(block.beyond) > _FEW:
        return False
    made, found = block.exact(block.beyond)
    alone = Judge(found.dtype, found.shape, judge.widest)
    alone.take(made, found)
    return not alone.result(0).wrong


def group_of(width: int) -> int:
    """How many outputs are held against one set of random vectors."""
    return min(max(_GROUP, _GROUP * (width // 1024)), 4 * _GROUP)


def _probes(arrays: Sequence[Array], width: int, group: int) -> _Probes:
    """Random signs for outputs of a width; the kernel works with them where it knows the types of all arrays."""
    kernel = is_known(*(each.dtype for each in arrays))
    single = all(each.dtype.itemsize <= (4 if kernel else 2) for each in arrays)
    return _Probes(signs_of(width), group, np.dtype(np.float32 if single else np.float64), kernel)


@dataclass(frozen=True, slots=True)
class _Probes:
    """Random vectors of signs.

    What is multiplied is in float32 where float32 holds it: the sums of it err as those that are looked at.

    Attributes:
        signs: for every output ``PROBES`` of them, in rows.
        group: outputs that are taken together.
        kind: the type to multiply in.
        kernel: whether the kernel does what it can.
    """

    signs: Float64
    group: int
    kind: np.dtype[Any]
    kernel: bool

    def of_rows(self, matrix: Array) -> tuple[Float64, Float64]:
        """For each row of a matrix: sums with signs of each group of columns, and their sums of squares."""
        if self.kernel:
            return expected.signed_rows(native(matrix), self.group, self.signs)
        wide = matrix.astype(self.kind)
        sums, squares = [], []
        for at in range(0, matrix.shape[1], self.group):
            part = wide[:, at : at + self.group]
            sums.append(part @ self.signs.T[at : at + self.group].astype(self.kind))
            squares.append(np.einsum("ij,ij->i", part, part))
        return np.concatenate(sums, axis=1).astype(np.float64), np.stack(squares, axis=1).astype(np.float64)

    def of_columns(self, matrix: Array, *, wide: bool = False) -> tuple[Array, Array]:
        """The same of a factor whose columns are the outputs, to be multiplied (see ``kind``), or in float64."""
        if self.kernel and matrix.T.flags.c_contiguous and not matrix.flags.c_contiguous:
            turned = expected.signed_columns(native(matrix.T), self.group, np.ascontiguousarray(self.signs.T))
            sums, squares = turned[0].T, turned[1].T
        else:
            sums, squares = self.of_rows(matrix)
        kind = np.float64 if wide else self.kind
        return np.ascontiguousarray(sums, kind), np.ascontiguousarray(squares, kind)

    def times(self, left: Array, right: Array, *, squared: Squared = Squared.NEITHER) -> Float64:
        """A product of matrices; of squares of the elements of one."""
        if self.kernel and self.kind == np.float32 and expected.is_single(left.dtype, right.dtype):
            return expected.product(native(left), native(right), squared)
        left, right = left.astype(self.kind, copy=False), right.astype(self.kind, copy=False)
        left = np.square(left) if squared is Squared.LEFT else left
        right = np.square(right) if squared is Squared.RIGHT else right
        return (left @ right).astype(np.float64, copy=False)


_LARGE: Final = 1 << 23
"""Multiplications from which a product is held against random vectors."""
_GROUP: Final = 128
_PASSED: Final = 2.0
_FEW: Final = 32
"""Rows that are computed by themselves."""
_ROWS_SIZE: Final = 1 << 18
"""Elements of rows that are taken at once."""


def _peak(left: Float64, right: Float64) -> float:
    """A bound of partial sums, as far as finite numbers make them."""
    with np.errstate(all="ignore"):
        largest: list[float] = [
            float(np.max(np.abs(each), initial=0.0, where=np.isfinite(each))) for each in (left, right)
        ]
        return largest[0] * largest[1] * max(int(left.shape[-1]), 1)


@module("linear", "Linear", "Dense")
@call("linear", "linear")
def linear(input: Array, weight: Array, bias: Array | None = None) -> Any:
    """``input @ weight.T + bias``."""
    return product_of(input, np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight, bias)


@call("matmul", "matmul", "mm", "bmm", "mv", "dot", "npu_bmmV2")
def matmul(input: Array, other: Array) -> Any:
    """``input @ other``."""
    return product_of(input, other)


@call("matmul", "__rmatmul__", "rmatmul")
def rmatmul(input: Array, other: Array) -> Any:
    """``other @ input``."""
    return product_of(other, input)


@call("addmm", "addmm", "addmv")
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input + alpha * mat1 @ mat2``."""
    return product_of(mat1, mat2, input, alpha, beta)


@call("addmm", "baddbmm")
def baddbmm(input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * input + alpha * batch1 @ batch2``."""
    return product_of(batch1, batch2, input, alpha, beta)


@call("outer", "outer", "ger")
def outer(input: Array, vec2: Array) -> Expected:
    """All products of two vectors."""
    return Expected(np.outer(doubles(input), doubles(vec2)))


@call("einsum")
def einsum(equation: str, *operands: Any) -> Expected:
    """A sum of products by letters."""
    arrays = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple) else operands
    wides = [doubles(each) for each in arrays]
    try:
        value = np.einsum(equation.replace(" ", ""), *wides, optimize=True)
        squares = np.einsum(equation.replace(" ", ""), *(each * each for each in wides), optimize=True)
    except ValueError as error:
        raise CannotBindError(f"equation not understood: {error}") from error
    return Expected(np.asarray(value), np.sqrt(squares), _inner(equation, wides), cast=True)


def _inner(equation: str, arrays: Sequence[Float64]) -> int:
    """The number of terms that are summed up; 1 where it cannot be told from the letters."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes = {
        letter: size
        for letters, array in zip(inputs.split(","), arrays, strict=False)
        if len(letters) == array.ndim
        for letter, size in zip(letters, array.shape, strict=True)
    }
    return math.prod(size for letter, size in sizes.items() if letter not in output)


# -- convolutions ------------------------------------------------------------------------------------------


def per_dimension(value: Any, count: int) -> tuple[int, ...]:
    """One number for each dimension."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(each) for each in (values * count if len(values) == 1 else values))


def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Expected:
    """A convolution, one position of the kernel after the other."""
    count = weight.ndim - 2
    batched = input.ndim == weight.ndim
    data = doubles(input if batched else input[None])
    if data.ndim != weight.ndim or data.shape[1] != weight.shape[1] * groups or weight.shape[0] % max(groups, 1):
        raise CannotBindError(f"shapes {input.shape} and {weight.shape} do not fit")
    data = np.pad(data, [(0, 0), (0, 0), *padding])
    kernel = weight.shape[2:]
    out = tuple((data.shape[2 + at] - dilation[at] * (kernel[at] - 1) - 1) // stride[at] + 1 for at in range(count))
    if min(out, default=1) < 1:
        raise CannotBindError("the kernel is larger than its input")
    per_in, per_out = weight.shape[1], weight.shape[0] // groups
    filters = doubles(weight).reshape(groups, per_out, per_in, *kernel)
    value = np.zeros((len(data), groups, per_out, math.prod(out)))
    squares = np.zeros_like(value)
    if value.size * per_in * math.prod(kernel) > _MOST_WORK:
        raise CannotBindError("too large")
    for position in product(*(range(size) for size in kernel)):
        part = data[_seen(position, out, stride, dilation)]
        part = part.reshape(len(data), groups, per_in, -1)
        place: tuple[Any, ...] = (..., *position)
        tap = filters[place]
        value += np.matmul(tap, part)
        squares += np.matmul(tap * tap, part * part)
    shape = (len(data), weight.shape[0], *out)
    value, squares = value.reshape(shape), squares.reshape(shape)
    partial = np.abs(value) if bias is not None else np.zeros_like(value)
    if bias is not None:
        added = doubles(bias).reshape(-1, *[1] * count)
        value, squares = value + added, squares + added * added
    terms = per_in * math.prod(kernel) + 1
    if not batched:
        value, squares, partial = value[0], squares[0], partial[0]
    return Expected(
        value, np.sqrt(squares), terms, partial=partial, peak=_peak(data, filters) * math.prod(kernel), cast=True
    )


class LargeConvolution(Probed):
    """A convolution that is held against random vectors, as ``LargeProduct``.

    Channels of the output take the place of outputs of a row: a few sums of filters are convolved in place of all.
    """

    def __init__(self, input: Array, weight: Array, bias: Array | None, how: tuple[Any, Any, Any]) -> None:
        """``how``: strides, padding, dilation."""
        self.input, self.weight, self.bias, self.how = input, weight, bias, how
        steps, around, apart = how
        sizes = zip(input.shape[2:], around, apart, weight.shape[2:], steps, strict=True)
        out = ((size + sum(pad) - hole * (width - 1) - 1) // step + 1 for size, pad, hole, width, step in sizes)
        self.shape = (len(input), len(weight), *out)
        self.work = math.prod(self.shape) * math.prod(weight.shape[1:])

    def exact(self) -> Expected:
        """All of it."""
        return convolution(self.input, self.weight, self.bias, *self.how, 1)

    def judge(self, judge: Judge, found: Array) -> bool:
        """Takes in the output; returns False, and nothing has happened, where it cannot be probed."""
        unit = unit_of(found.dtype)
        if unit is None or found.shape != self.shape or min(found.shape) < 1:
            return False
        channels = len(self.weight)
        group = group_of(channels)
        probes = _probes((self.input, self.weight, found), channels, group)
        shape = self.weight.shape[1:]
        sums, squares = (each.T.reshape(-1, *shape) for each in probes.of_columns(self.weight.reshape(channels, -1).T))
        terms = math.prod(shape) + 1
        inside = ACCUMULATED * math.sqrt(terms)
        offset = None
        if self.bias is not None:
            offset = [each.T for each in probes.of_rows(self.bias.astype(np.float64)[None])]
        blocks = []
        for at, image in enumerate(self.input):
            seen, value = (each.T for each in probes.of_columns(found[at].reshape(channels, -1).T, wide=True))
            padded = np.pad(image, [(0, 0), *self.how[1]])
            error = seen - self._convolved(padded, sums, probes.times)
            size = self._convolved(padded, squares, partial(probes.times, squared=Squared.RIGHT))
            if offset is not None:
                error -= offset[0]
                size += offset[1]
            error = np.square(error).reshape(len(size), PROBES, -1).mean(axis=1)
            explained = unit * np.sqrt(value) + inside * np.sqrt(size + value / 4)
            if judge.widest < unit:
                explained += unit * np.sqrt(size)

            def exact(places: Array | None = None, at: int = at) -> tuple[Expected, Array]:
                return self._exact(found, at, places)

            start = at * math.prod(self.shape[1:])
            blocks.append(_block(start, (error.T, explained.T), (unit, value), (inside, size), exact))
        _take_blocks(judge, blocks)
        return True

    def _convolved(self, padded: Array, filters: Array, times: Callable[[Array, Array], Float64]) -> Float64:
        """What a few filters make of an image, without groups and bias.

        Every position of the kernel is multiplied with all of it, and what that makes is shifted: no copies of it.
        """
        stride, _, dilation = self.how
        flat, out = padded.reshape(len(padded), -1), self.shape[2:]
        value = np.zeros((len(filters), *out))
        positions = list(product(*(range(size) for size in filters.shape[2:])))
        most = max(_ROWS_SIZE // max(len(filters) * flat.shape[1], 1), 1)
        for begin in range(0, len(positions), most):
            some = positions[begin : begin + most]
            places: list[tuple[Any, ...]] = [(Ellipsis, *position) for position in some]
            made = times(np.concatenate([filters[place] for place in places]), flat)
            made = made.reshape(len(some), len(filters), *padded.shape[1:])
            for number, position in enumerate(some):
                window: tuple[Any, ...] = (number, slice(None), *_window(position, out, stride, dilation))
                value += made[window]
        return value.reshape(len(filters), -1)

    def _exact(self, found: Array, at: int, places: Array | None) -> tuple[Expected, Array]:
        """One image, or some places of it, and what was recorded."""
        steps, around, apart = self.how
        if places is None:
            return convolution(self.input[at : at + 1], self.weight, self.bias, *self.how, 1), found[at : at + 1]
        where = np.unravel_index(places, self.shape[2:])
        data = np.pad(self.input[at], [(0, 0), *around])
        seen = tuple(hole * (size - 1) + 1 for hole, size in zip(apart, self.weight.shape[2:], strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(data, seen, axis=tuple(range(1, data.ndim)))
        seen_from: tuple[Any, ...] = (slice(None), *(each * step for each, step in zip(where, steps, strict=True)))
        holes: tuple[Any, ...] = (Ellipsis, *(slice(None, None, hole) for hole in apart))
        some = windows[seen_from][holes]
        patches = np.moveaxis(some, 1, 0).reshape(len(places), -1)
        made: Expected = product_of(patches, self.weight.reshape(len(self.weight), -1).T, self.bias, exact=True)
        recorded: tuple[Any, ...] = (slice(None), *where)
        return made, found[at][recorded].T


def _window(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """What one position of the kernel sees of every place of the output."""
    return tuple(
        slice(at * apart, at * apart + (size - 1) * step + 1, step)
        for at, size, step, apart in zip(position, out, stride, dilation, strict=True)
    )


def _seen(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """The same with all of the batch and of the channels."""
    return slice(None), slice(None), *_window(position, out, stride, dilation)


def _padded(
    padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after, as PyTorch understands it."""
    if padding == "valid":
        return [(0, 0) for _ in kernel]
    if padding == "same":
        total = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
        return [(each // 2, each - each // 2) for each in total]
    if isinstance(padding, str):
        raise CannotBindError(f"padding not known: {padding}")
    del stride
    return [(each, each) for each in per_dimension(padding, len(kernel))]


@call("conv", "conv1d", "conv2d", "conv3d", "npu_conv2d")
def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """PyTorch's convolutions."""
    count = weight.ndim - 2
    steps, apart = per_dimension(stride, count), per_dimension(dilation, count)
    around = _padded(padding, weight.shape[2:], steps, apart)
    if groups == 1 and input.ndim == weight.ndim and len(weight) >= 2 * PROBES and input.size * len(weight) >= _LARGE:
        return LargeConvolution(input, weight, bias, (steps, around, apart))
    return convolution(input, weight, bias, steps, around, apart, groups)


# -- attention ---------------------------------------------------------------------------------------------


@call("attention", "scaled_dot_product_attention", split="batches", single=True)
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
    """``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout_p:
        raise CannotBindError("random: dropout inside the attention")
    q, k, v = doubles(query), doubles(key), doubles(value)
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    if q.shape[:-1] != (*k.shape[:-2], q.shape[-2]) and q.ndim != k.ndim:
        raise CannotBindError("shapes do not fit")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if q.size * k.shape[-2] > _MOST_WORK:
        raise CannotBindError("too large")
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * factor
    if is_causal:
        scores += np.triu(np.full(scores.shape[-2:], -np.inf, scores.dtype), 1)
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + doubles(mask)
    with np.errstate(all="ignore"):
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        parts = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = parts.sum(axis=-1, keepdims=True)
        shares = parts / total
    empty = ~np.isfinite(top) & np.all(np.isneginf(scores), axis=-1, keepdims=True)
    result = np.matmul(shares, v)
    if np.any(empty):  # nothing is attended to: NaN in some kernels, zeros in others
        raise CannotBindError("rows that attend to nothing: kernels differ in what that is")

    def whole() -> Expected:
        return _attention_sizes((q, k, v), abs(factor), scores, shares, result)

    return Expected(result, whole=whole)


def _attention_sizes(
    given: tuple[Float64, Float64, Float64], factor: float, scores: Float64, shares: Float64, result: Float64
) -> Expected:
    """The result of an attention with what explains a difference; sizes are exact enough in float32."""
    q, k, v = (each.astype(np.float32) for each in given)
    sizes = np.sqrt(np.matmul(q * q, np.swapaxes(k * k, -1, -2))) * factor
    # What the scores are off by moves every share, in units of u √d |q·k|; the shares are rounded to the type as well.
    shift = np.max(
        np.where(shares > 0, sizes * math.sqrt(q.shape[-1]) + np.abs(np.where(np.isfinite(scores), scores, 0)), 0),
        axis=-1,
        keepdims=True,
    )
    terms = k.shape[-2]
    parts = shares.astype(np.float32)
    spread = np.sqrt(np.matmul(parts * parts, v * v)).astype(np.float64)
    size = spread + np.matmul(parts, np.abs(v)) * shift / math.sqrt(terms) * 2
    return Expected(result, size, terms, narrow=spread, cast=True)


# -- MindSpore's graphs ------------------------------------------------------------------------------------


def _turned(array: Array, turn: bool) -> Array:
    return np.swapaxes(array, -1, -2) if turn else array


def _matrices(
    left: Array, right: Array, turns: tuple[Any, Any], bias: Array | None = None, *, exact: bool = False
) -> ByShape:
    """A product whose operands may be transposed; where that was not recorded, all that fit."""

    def made(shape: tuple[int, ...]) -> Any:
        choices = []
        for first, second in product(*([each] if isinstance(each, bool) else [False, True] for each in turns)):
            one, other = left, right
            if len(shape) == 2 and min(shape):
                # A reshape may have been taken out: the output tells the other dimension of both.
                one = _as_matrix(left, shape[0], last=first)
                other = _as_matrix(right, shape[1], last=not second)
            one, other = _turned(one, first), _turned(other, second)
            if one.ndim > 1 and other.ndim > 1 and one.shape[-1] == other.shape[-2]:
                choices.append(product_of(one, other, bias, exact=exact))
        if not choices:
            raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
        return choices[0] if len(choices) == 1 else Either(*choices)

    return ByShape(made)


def _as_matrix(array: Array, size: int, *, last: bool) -> Array:
    """A matrix of which one dimension is known."""
    if array.ndim == 2 and array.shape[last] == size:
        return array
    if array.size % size:
        raise CannotBindError(f"shape {array.shape} does not fit")
    return array.reshape((-1, size) if last else (size, -1))


@graph("matmul", "MatMul", "BatchMatMul", "MatMulV2", "BatchMatMulV2")
def graph_matmul(x1: Array, x2: Array, transpose_a: Any = None, transpose_b: Any = None) -> Any:
    """MindSpore's products of matrices."""
    return _matrices(x1, x2, (transpose_a, transpose_b))


@graph("linear", "MatMulBiasAddFusion", "Dense")
def graph_linear(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    """A product of matrices and a bias, fused."""
    return _matrices(x1, x2, (transpose_a, transpose_b), bias)


@graph("linear", "MatMulBiasAddReluFusion")
def graph_linear_relu(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    """A product of matrices, a bias and a ReLU, fused."""
    inner = _matrices(x1, x2, (transpose_a, transpose_b), bias, exact=True)

    def made(shape: tuple[int, ...]) -> Any:
        found = inner.function(shape)
        for each in found.choices if isinstance(found, Either) else (found,):
            each.value, each.either = np.maximum(each.value, 0), np.fmax(each.value, 0)  # some make a zero of NaN
        return found

    return ByShape(made)


def graph_padding(
    mode: Any, pad: Any, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after, as MindSpore understands it."""
    word = str(mode).lower() if mode is not None else ""
    if word in {"valid", "2"}:
        return [(0, 0) for _ in kernel]
    if word in {"same", "1"}:
        found = []
        for size, width, step, apart in zip(shape, kernel, stride, dilation, strict=True):
            total = max((-(-size // step) - 1) * step + apart * (width - 1) + 1 - size, 0)
            found.append((total // 2, total - total // 2))
        return found
    around = per_dimension(pad if pad is not None else 0, 2 * len(kernel))
    return [(around[2 * at], around[2 * at + 1]) for at in range(len(kernel))]


def spatial(value: Any, count: int) -> tuple[int, ...]:
    """Strides and the like: MindSpore writes them with or without the first two dimensions."""
    return per_dimension(1 if value is None else value, count)[-count:]


@graph("conv", "Conv2D", "Conv3D", "Conv2DBiasAddFusion", "DepthwiseConv2dNative")
def graph_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> Expected:
    """MindSpore's convolutions."""
    if format not in {"NCHW", "NCDHW"} or (pad_mode is None and pad is None):
        raise CannotBindError("layout or padding not known")
    count = w.ndim - 2
    steps, apart = spatial(stride, count), spatial(dilation, count)
    around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, x.shape[2:], w.shape[2:], steps, apart)
    return convolution(x, w, bias, steps, around, apart, group)


@graph("conv gradient", "Conv2DBackpropFilter", unneeded=("w_size",))
def graph_conv_filter(
    dout: Array,
    x: Array,
    w_size: Any = None,
    *,
    kernel_size: Any = None,
    filter_sizes: Any = None,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> ByShape:
    """The gradient of a convolution's weights: products of what came in with what is seen of it."""
    del w_size, kernel_size, filter_sizes
    if group != 1 or format != "NCHW" or (pad_mode is None and pad is None):
        raise CannotBindError("layout, groups or padding not known")
    steps, apart = spatial(stride, 2), spatial(dilation, 2)

    def made(shape: tuple[int, ...]) -> Expected:
        if len(shape) != 4 or shape[0] != dout.shape[1]:
            raise CannotBindError("shapes do not fit")
        kernel = shape[2:]
        around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, x.shape[2:], kernel, steps, apart)
        data, came = np.pad(doubles(x), [(0, 0), (0, 0), *around]), doubles(dout)
        flat = came.transpose(1, 0, 2, 3).reshape(came.shape[1], -1)
        value = np.zeros((came.shape[1], data.shape[1], *kernel))
        squares = np.zeros_like(value)
        for position in product(*(range(size) for size in kernel)):
            part = data[_seen(position, came.shape[2:], steps, apart)]
            part = part.transpose(0, 2, 3, 1).reshape(-1, data.shape[1])
            value[:, :, position[0], position[1]] = flat @ part
            squares[:, :, position[0], position[1]] = (flat * flat) @ (part * part)
        return Expected(value, np.sqrt(squares), flat.shape[1], cast=True)

    return ByShape(made)


@graph("conv gradient", "Conv2DBackpropInput")
def graph_conv_input(
    dout: Array,
    w: Array,
    x_size: Any = None,
    *,
    input_sizes: Any = None,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> Expected:
    """The gradient of a convolution's input: every product goes back to where it was seen."""
    shape = x_size if isinstance(x_size, tuple) else input_sizes
    if group != 1 or format != "NCHW" or (pad_mode is None and pad is None) or not isinstance(shape, tuple):
        raise CannotBindError("layout, groups, size or padding not known")
    steps, apart = spatial(stride, 2), spatial(dilation, 2)
    around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, shape[2:], w.shape[2:], steps, apart)
    came, filters = doubles(dout), doubles(w)
    padded = [size + sum(both) for size, both in zip(shape[2:], around, strict=True)]
    value = np.zeros((shape[0], shape[1], *padded))
    squares = np.zeros_like(value)
    flat = came.reshape(len(came), came.shape[1], -1)
    for position in product(*(range(size) for size in w.shape[2:])):
        place: tuple[Any, ...] = (..., *position)
        tap = filters[place].T
        at = _seen(position, came.shape[2:], steps, apart)
        part = (len(came), shape[1], *came.shape[2:])
        value[at] += np.matmul(tap, flat).reshape(part)
        squares[at] += np.matmul(tap * tap, flat * flat).reshape(part)
    inside = (
        slice(None),
        slice(None),
        *(slice(low, low + size) for (low, _), size in zip(around, shape[2:], strict=True)),
    )
    return Expected(value[inside], np.sqrt(squares[inside]), w.shape[0] * math.prod(w.shape[2:]), cast=True)
