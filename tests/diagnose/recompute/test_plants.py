"""A thousand planted errors, in ten kinds of operators and three types: at least 999 are named.

What is planted is above the floor that the manual states: more than six times what rounding explains, as a norm, or of
one element more than 64 times (200 times in large products). The floor is computed here, in PyTorch's float64, from
the formulas of the manual, and not by what is tested.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch.nn import functional as fn  # noqa: E402 - needs torch

from tests.diagnose.recompute.recording import Call, record, session_of  # noqa: E402 - as above
from tui_debugger.diagnose.recompute.check import OperatorCheck, check_operator  # noqa: E402 - as above

Tensor = torch.Tensor
UNITS = {torch.float32: 2.0**-24, torch.float16: 2.0**-12, torch.bfloat16: 2.0**-9}
ACCUMULATED = 2.0**-24
LIMIT, ELEMENT_LIMIT, LARGE_ELEMENT_LIMIT = 6.0, 64.0, 200.0
LARGE = 1 << 23


@dataclass
class Case:
    """An operator with its arguments.

    Attributes:
        name: as msprobe writes it.
        function, args: the call.
        size: what its terms come to, as a root of squares, by element; 0 where nothing is summed up.
        terms: how many.
        again: what else it rounds to its type, by element.
        partial: what it may round to its type as well, which tells of single elements only.
        work: multiplications.
    """

    name: str
    function: Callable[..., Tensor]
    args: tuple[object, ...]
    size: Callable[[Tensor], Tensor | float] = lambda _: 0.0
    terms: float = 1.0
    again: Callable[[Tensor], Tensor | float] = lambda _: 0.0
    partial: Callable[[Tensor], Tensor | float] = lambda _: 0.0
    work: int = 0

    def exact(self) -> Tensor:
        return self.function(*(each.double() if _is_float(each) else each for each in self.args))

    def explained(self, y: Tensor, unit: float) -> Tensor:
        """What rounding explains, by element."""
        size = torch.as_tensor(self.size(y), dtype=torch.float64)
        inside = ACCUMULATED * math.sqrt(self.terms) * torch.sqrt(size * size + y * y / 4 * bool(size.any()))
        return unit * (y.abs() + self.again(y)) + inside


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class Draw:
    """Draws operators and plants."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def of(self, dtype: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=self.random) * scale).to(dtype)

    def case(self, kind: str, dtype: torch.dtype) -> Case:  # noqa: PLR0911 - one of each kind
        rows, width = self.number(4, 40), self.number(9, 64)
        x, y = self.of(dtype, rows, width), self.of(dtype, rows, width)
        if kind in {"linear", "matmul"}:
            if self.number(0, 3) == 0:
                rows, width, made = 260, 192, 200
            else:
                made = self.number(6, 48)
            x, other = self.of(dtype, rows, width), self.of(dtype, width, made, scale=width**-0.5)
            squares = (x.double() ** 2) @ (other.double() ** 2)
            if kind == "matmul":
                return Case(
                    "Torch.matmul", torch.matmul, (x, other), lambda _: squares.sqrt(), width, work=x.numel() * made
                )
            bias = self.of(dtype, made)
            size = (squares + bias.double() ** 2).sqrt()
            args = (x, other.T.contiguous(), bias)
            before = x.double() @ other.double()
            more = {"partial": lambda _: before.abs(), "work": x.numel() * made}
            return Case("Functional.linear", fn.linear, args, lambda _: size, width + 1, **more)
        if kind == "conv":
            maps, kernel = self.of(dtype, 2, 3, 9, 8), self.of(dtype, 4, 3, 3, 3, scale=0.2)
            squares = fn.conv2d(maps.double() ** 2, kernel.double() ** 2)
            return Case("Functional.conv2d", fn.conv2d, (maps, kernel), lambda _: squares.sqrt(), 28)
        if kind == "layer norm":
            gain, shift = self.of(dtype, width) + 1, self.of(dtype, width)

            def size_of_norm(_: Tensor) -> Tensor:
                wide = x.double()
                inverse = 1 / (wide.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
                root = wide.square().mean(-1, keepdim=True).sqrt()
                lost = 2 + root * root * inverse * inverse
                plain = (wide - wide.mean(-1, keepdim=True)) * inverse
                return ((wide.abs() + root) * inverse + plain.abs() * lost) * gain.double().abs() + shift.double().abs()

            args = (x, (width,), gain, shift, 1e-5)
            terms = max(width / 16, 1)
            again = lambda y: (y - shift.double()).abs()  # noqa: E731 - beside the other one
            return Case("Functional.layer_norm", fn.layer_norm, args, size_of_norm, terms, again=again)
        if kind == "softmax":
            far = (x.double().max(-1, keepdim=True).values - x.double()).abs() + 3 + math.sqrt(width) / 4
            return Case("Torch.softmax", torch.softmax, (x, -1), lambda y: y * far)
        if kind == "sum":
            squares = x.double().square().sum(-1)
            return Case("Torch.sum", torch.sum, (x, -1), lambda _: squares.sqrt(), width)
        if kind == "gelu":
            near = x.double().abs().clamp(max=8)
            return Case("Functional.gelu", fn.gelu, (x,), lambda y: near + y.abs())
        if kind == "silu":
            return Case("Functional.silu", fn.silu, (x,), lambda y: y.abs() * (2 + x.double().abs()))
        if kind == "add":
            return Case("Torch.add", torch.add, (x, y))
        return Case("Torch.mul", torch.mul, (x, y))


KINDS = ("linear", "matmul", "conv", "layer norm", "softmax", "sum", "gelu", "silu", "add", "mul")
PLANTS = (
    *("scale", "offset", "one element", "one row", "nan", "sign", "stale", "accumulator", "transposed", "wrong axis"),
)


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype)


def plant(  # noqa: PLR0911 - one of each kind
    draw: Draw, what: str, case: Case, made: Tensor, other: Case
) -> Tensor | None:
    """What would have been recorded; None where this cannot go wrong so."""
    dtype, exact = made.dtype, case.exact()
    explained = case.explained(exact, UNITS[dtype])
    times = math.exp(math.log(8) + draw.number(0, 1000) / 1000 * math.log(100))
    if what == "scale":
        return rounded(made.double() * (1 + times * float(explained.norm() / exact.norm())), dtype)
    if what == "offset":
        return rounded(made.double() + times * float(explained.norm()) / math.sqrt(made.numel()), dtype)
    spoilt = made.clone()
    flat = spoilt.reshape(-1)
    at = draw.number(0, len(flat) - 1)
    if what == "one element":
        limit = LARGE_ELEMENT_LIMIT if case.work >= LARGE else ELEMENT_LIMIT
        flat[at] = float(exact.reshape(-1)[at]) + (1.2 * limit + times) * float(explained.reshape(-1)[at])
        flat[at] += (
            1.2 * limit * UNITS[dtype] * float(torch.as_tensor(case.partial(exact)).expand_as(exact).reshape(-1)[at])
        )
        return spoilt
    if what == "one row":
        row = draw.number(0, len(made) - 1)
        spoilt[row] = rounded(made[row].double() + 4 * times * explained[row] * math.sqrt(len(made)), dtype)
        return spoilt
    if what == "nan":
        flat[at] = math.nan
        return spoilt
    if what == "sign":
        return -made
    if what == "stale":
        late = other.function(*other.args)
        return late if late.shape == made.shape else None
    if what == "accumulator":
        return low_precision(case, dtype)
    if what == "transposed":
        last = made.shape[-2:]
        return made.transpose(-1, -2).contiguous() if made.dim() > 1 and last[0] == last[1] else made.flip(0)
    if case.name == "Torch.sum":
        wrong = torch.sum(case.args[0], 0)  # type: ignore[call-overload]  # a tensor
        return wrong[: len(made)] if len(wrong) >= len(made) else None
    if case.name == "Torch.softmax":
        return torch.softmax(case.args[0], 0)  # type: ignore[call-overload]  # a tensor
    return made.roll(1, -1)


def low_precision(case: Case, dtype: torch.dtype) -> Tensor | None:
    """The sum with an accumulator of 16 bits."""
    narrow = torch.float16 if dtype is torch.float16 else torch.bfloat16
    if case.name == "Torch.sum":
        terms = case.args[0].to(narrow)  # type: ignore[attr-defined]  # a tensor
        total = torch.zeros(len(terms), dtype=narrow)
        for at in range(terms.shape[1]):
            total = total + terms[:, at]
        return total.to(dtype)
    if case.name not in {"Torch.matmul", "Functional.linear"}:
        return None
    left, right = (each.to(narrow) for each in case.args[:2])  # type: ignore[attr-defined]  # tensors
    right = right.T if case.name == "Functional.linear" else right
    total = torch.zeros(len(left), right.shape[1], dtype=narrow)
    for at in range(left.shape[1]):
        total = total + left[:, at : at + 1] * right[at : at + 1]
    return (total + case.args[2].to(narrow) if len(case.args) > 2 else total).to(dtype)  # type: ignore[attr-defined]


def is_above_the_floor(case: Case, made: Tensor, spoilt: Tensor) -> bool:
    """Tells whether what was planted is more than the manual says that rounding explains."""
    exact = case.exact()
    explained = case.explained(exact, UNITS[made.dtype])
    error = (spoilt.double() - exact).abs()
    if not error.isfinite().all():
        return True
    limit = LARGE_ELEMENT_LIMIT if case.work >= LARGE else ELEMENT_LIMIT
    size = explained + UNITS[made.dtype] * case.partial(exact) + torch.finfo(made.dtype).tiny
    return bool(error.norm() > LIMIT * 1.05 * explained.norm()) or bool((error > 1.05 * limit * size).any())


def plants(seed: int) -> Iterator[tuple[str, Call]]:
    """Draws without end: what was planted, and the call."""
    draw = Draw(seed)
    while True:
        for what in PLANTS:
            for kind in KINDS:
                dtype = (torch.float32, torch.float16, torch.bfloat16)[draw.number(0, 2)]
                case, other = draw.case(kind, dtype), draw.case(kind, dtype)
                made = case.function(*case.args)
                spoilt = plant(draw, what, case, made, other)
                if spoilt is None or spoilt.shape != made.shape or not is_above_the_floor(case, made, spoilt):
                    continue
                yield (
                    f"{what} in {kind}, {dtype}",
                    Call(case.name, case.function, case.args, spoil=lambda _, it=spoilt: it),
                )


def missed(directory: Path, count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """Plants that were not named, and how many were planted of each kind."""
    source = plants(seed)
    drawn = [next(source) for _ in range(count)]
    names = record(directory, [call for _, call in drawn])
    session = session_of(directory)
    nodes, found = session.nodes(0), []
    for (what, _), name in zip(drawn, names, strict=True):
        check = check_operator(session, 0, 0, nodes.find(name))
        if not isinstance(check, OperatorCheck) or not check.wrong:
            found.append(f"{what}: {check}")
    session.close()
    return found, Counter(what.partition(",")[0] for what, _ in drawn)


def test_what_is_planted_is_named(tmp_path: Path) -> None:
    found, _ = missed(tmp_path, 100, 11)
    assert found == []


@pytest.mark.thorough
def test_of_a_thousand_plants_nearly_all_are_named(tmp_path: Path) -> None:
    found, counts = missed(tmp_path, 1000, 12)
    assert len(found) <= 1, found
    assert {what.partition(" in ")[0] for what in counts} == set(PLANTS)
    assert {what.partition(" in ")[2] for what in counts} == set(KINDS)


def test_what_is_not_planted_is_right(tmp_path: Path) -> None:
    """The same operators as they are."""
    draw, calls = Draw(13), []
    for kind in KINDS:
        for dtype in UNITS:
            case = draw.case(kind, dtype)
            calls.append(Call(case.name, case.function, case.args))
    names = record(tmp_path, calls)
    session = session_of(tmp_path)
    nodes = session.nodes(0)
    for name in names:
        check = check_operator(session, 0, 0, nodes.find(name))
        assert isinstance(check, OperatorCheck)
        assert not check.wrong
    session.close()
