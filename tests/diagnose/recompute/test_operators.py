"""Operators below autograd, of every type, with arguments as PyTorch writes them: right ones are never accused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch.nn import functional as fn  # noqa: E402 - needs torch

from tests.diagnose.recompute.cases import Cases  # noqa: E402 - as above
from tests.diagnose.recompute.operator_calls import Checks, OperatorCall, OperatorCalls, planted  # noqa: E402 - as above
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck  # noqa: E402 - as above
from tui_debugger.sources.base import OtherArgument  # noqa: E402 - as above

Two = Callable[[torch.Tensor, torch.Tensor], Any]
FRACTIONS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
TYPES = (*FRACTIONS, *WHOLE, torch.bool, *COMPLEX)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
SPELLINGS: dict[str, Two] = {
    "permute": lambda x, _: torch.permute(x, dims=(1, 0)),
    "flip": lambda x, _: torch.flip(x, dims=(0, 1)),
    "roll": lambda x, _: torch.roll(x, (1, 2), (0, 1)),
    "roll flat": lambda x, _: torch.roll(x, 3),
    "repeat": lambda x, _: x.repeat(2, 1),
    "view": lambda x, _: x.clone().view(-1),
    "sum as": lambda x, _: torch.sum(x, dim=1, dtype=torch.float64),
    "sum as whole": lambda x, _: torch.sum(x, dtype=torch.int32),
    "sum as narrow": lambda x, _: torch.sum(x, 1, dtype=torch.bfloat16),
    "mean as": lambda x, _: torch.mean(x, dim=0, keepdim=True, dtype=torch.float32),
    "prod as": lambda x, _: torch.prod(x, dim=1, dtype=torch.float64),
    "cumsum as": lambda x, _: torch.cumsum(x, dim=1, dtype=torch.float64),
    **{f"norm {p}": lambda x, _, p=p: torch.linalg.vector_norm(x, p, dim=1) for p in (0, 0.5, 1, 2, 3)},
    **{f"norm {p}": lambda x, _, p=p: torch.linalg.vector_norm(x, p) for p in (float("inf"), -float("inf"))},
    "norm as": lambda x, _: torch.linalg.vector_norm(x, dtype=torch.float64),
    "old norm": lambda x, _: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [1], True),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "addmv": lambda x, y: torch.addmv(x[:, 0], x, y[0], beta=2),
    "addmm": lambda x, y: torch.addmm(x @ y.T, x, y.T, beta=2, alpha=3),
    "turned": lambda x, y: x @ y.mH,
    "full": lambda x, _: torch.full_like(x, 2),
    "fraction filled": lambda x, _: x.clone().fill_(1.7),
    "copied": lambda x, y: torch.zeros(x.shape).copy_(y),
    "beside fractions": lambda x, _: x + torch.full((6, 4), 0.1),
    "beside whole numbers": lambda x, _: x * torch.full((6, 4), 300),
    "compared with fractions": lambda x, _: x > torch.full((6, 4), 0.1),
    "a number outside of uint8": lambda x, _: x.clone().clamp_(-1, 3),
    "at least": lambda x, _: x.clamp_min(1),
    "chosen": lambda x, y: torch.where(x == y, x, 1),
    "not": lambda x, _: torch.logical_not(x),
    "bits": lambda x, _: torch.bitwise_not(x),
    "selu": lambda x, _: fn.selu(x),
    "rounded down": lambda x, _: torch.div(x, 3, rounding_mode="floor"),
    "half of the softmax": lambda x, _: fn.softmax(x, 0, dtype=torch.float32),
    "pairs": lambda x, _: torch.view_as_real(torch.view_as_complex(x.reshape(6, 2, 2)) * 2),
    "turned round": lambda x, _: x.conj() * x,
}
GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(fn, name) for name in ("gelu", "silu", "leaky_relu", "softplus", "hardtanh", "relu")},
    **{name: getattr(torch, name) for name in ("sigmoid", "tanh", "abs", "exp", "square")},
    "softmax": lambda x: fn.softmax(x, 1),
    "log softmax": lambda x: fn.log_softmax(x, 0),
    "layer norm": lambda x: fn.layer_norm(x, (4,)),
    "cross entropy": lambda x: fn.cross_entropy(x, torch.arange(6) % 4),
    "mse": lambda x: fn.mse_loss(x, torch.zeros(6, 4, dtype=x.dtype)),
    "dropout": lambda x: fn.dropout(x, 0.3),
    "embedding": lambda x: fn.embedding(torch.tensor([1, 2, 1]), x),
    "parts": lambda x: x[2] * x[:, 1:3].sum() * x.flip(0)[1],
    "product": lambda x: x @ x.mH,
    "size": lambda x: x * x.conj(),
}
NOT_KNOWN = {
    *("complex values", "random", "division that rounds", "integers to negative powers", "a product in another type"),
    "whole numbers made of others: how they are rounded is not known",
    *("a number outside of the type of the tensor", "whole numbers times fractions"),
}
"""Reasons why an operator of a known kind is not checked, of those that are recorded here."""


ODD = torch.tensor([float("inf"), float("nan"), -0.0, -float("inf"), 1e-40, 1e30])


class Drawn(Cases):
    """Complex numbers have both parts, and those without a sign fit into every type."""

    odd = False

    def tensor(self, *shape: int, scale: float | None = None) -> torch.Tensor:
        if self.odd and len(shape) > 1:
            found = super().tensor(*shape, scale=scale).reshape(-1)
            found[: len(ODD)] = ODD[: len(found)].to(self._dtype)
            return found.reshape(shape)
        if self._dtype is torch.uint8:
            return self.integers(9, *shape).to(torch.uint8)
        if not self._dtype.is_complex:
            return super().tensor(*shape, scale=scale)
        real = torch.randn((*shape, 2), generator=self._random, dtype=torch.float64)
        return torch.view_as_complex(real).to(self._dtype)


def recorded(dtype: torch.dtype, *, odd: bool = False) -> list[OperatorCall]:
    """One of every operator, argument spelling and type of inputs and outputs."""
    calls, whole = OperatorCalls(), not (dtype.is_floating_point or dtype.is_complex)
    cases = Drawn(7, dtype, 5.0 if whole else 1.0)
    cases.odd = odd
    parts = [cases.elementwise, cases.two, cases.products, cases.reductions, cases.layout]
    for part in parts if whole else [*parts, cases.norms_and_losses]:
        with suppress(RuntimeError):  # PyTorch has no kernel for what a case needs
            for call in part():
                calls.of(call.name, lambda call=call: call.function(*call.args, **call.kwargs))
    x, y = cases.tensor(6, 4), cases.tensor(6, 4)
    for name, function in SPELLINGS.items():
        calls.of(name, lambda function=function: function(x, y))
    small = x.abs() if not dtype.is_complex and dtype is not torch.bool else x  # inside of every type
    for other in (*TYPES, *FLOAT8):
        calls.of(f"to {other}", lambda other=other: small.to(other))
    for name, gradient in GRADIENTS.items() if not whole else ():
        leaf = x.clone().requires_grad_()
        calls.of(f"gradient of {name}", lambda leaf=leaf, of=gradient: _real(of(leaf)).backward())
    kinds = {}
    for call in calls.calls:
        types = tuple(each.dtype.name for each in (*call.inputs, *call.outputs))
        kinds.setdefault((call.kind, types, str(sorted(call.arguments.items(), key=str))), call)
    return list(kinds.values())


def _real(made: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(made.resolve_conj()) if made.is_complex() else made
    return (parts.double() * torch.arange(parts.numel()).reshape(parts.shape)).sum()


@pytest.fixture(scope="module", params=TYPES, ids=str)
def checks(request: pytest.FixtureRequest) -> Iterator[Checks]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own
        calls = recorded(request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a part of a complex number that is lost
        yield Checks(calls)


def test_an_operator_that_computed_right_is_not_accused(checks: Checks) -> None:
    found = list(checks.all())
    assert [str(call) for _, call, result in found if isinstance(result, OperatorCheck) and result.wrong] == []
    left = [(call, result) for _, call, result in found if isinstance(result, NotChecked) and result.kind]
    assert {
        result.reason for call, result in left if OtherArgument("complex") not in call.arguments.values()
    } <= NOT_KNOWN
    known = [result for _, _, result in found if isinstance(result, OperatorCheck) or result.kind]
    assert sum(isinstance(each, OperatorCheck) for each in known) > 0.75 * len(known)


@pytest.mark.parametrize("dtype", FRACTIONS, ids=str)
def test_nor_is_one_of_numbers_that_are_not_finite(dtype: torch.dtype) -> None:
    checks = Checks(recorded(dtype, odd=True))
    assert [str(call) for _, call, result in checks.all() if isinstance(result, OperatorCheck) and result.wrong] == []


def test_one_wrong_element_is_seen(checks: Checks) -> None:
    """Not of indices: of several elements that are equal any is right."""
    missed = []
    for row, call, result in checks.all():
        for output in result.outputs if isinstance(result, OperatorCheck) and result.kind != "argmax" else ():
            values = planted(call.outputs[output.slot])
            other = checks.of(row, output.slot, values) if values is not None else None
            if other is not None and not (isinstance(other, OperatorCheck) and other.wrong):
                missed.append(str(call))
    assert missed == []


@pytest.mark.parametrize("dtype", FRACTIONS, ids=str)
@pytest.mark.parametrize("made", WHOLE, ids=str)
def test_what_becomes_of_numbers_outside_of_a_type_is_left_to_the_device(dtype: torch.dtype, made: torch.dtype) -> None:
    calls = OperatorCalls()
    values = torch.tensor([3.9, 2.2, -3.9 if made.is_signed else 0.4, 1e30, float("nan")], dtype=torch.float64).to(
        dtype
    )
    calls.of("outside", lambda: values.to(made))
    checks, right = Checks(calls.calls), calls.calls[0].outputs[0]
    for at, expected in ((0, True), (1, True), (2, True), (3, False), (4, False)):
        other = np.array(right)
        other[at] ^= 1
        result = checks.of(0, 0, other)
        assert isinstance(result, OperatorCheck)
        assert result.wrong == expected


@pytest.mark.parametrize("dtype", [*FRACTIONS[:3], *FLOAT8], ids=str)
def test_a_number_is_converted_to_one_beside_it(dtype: torch.dtype) -> None:
    """Rounded up or down, and not much farther."""
    calls, values = OperatorCalls(), torch.arange(1.0, 9.0, dtype=torch.float64) * 1.06
    calls.of("to", lambda: values.to(dtype))
    checks, right = Checks(calls.calls), calls.calls[0].outputs[0]
    bits = np.dtype(f"i{right.dtype.itemsize}")
    for steps, wrong in ((0, False), (5, True), (-5, True)):
        other = np.array(right)
        other.view(bits)[5] += steps
        result = checks.of(0, 0, other)
        assert isinstance(result, OperatorCheck)
        assert result.wrong == wrong
