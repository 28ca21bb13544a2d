"""Weights and buffers that are bad when they are read, and need not be when the step ends: they are no clean inputs.

Each program with a fault stands beside its healthy twin; live and saved have one answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

from tests.live.torch.test_live_and_saved import (  # noqa: E402 - likewise
    BAD,
    LEVELS,
    STEPS,
    Attach,
    Place,
    Program,
    both,
    trained,
)

Write = Callable[[torch.Tensor, float], object]


def in_place(values: torch.Tensor, by: float) -> None:
    values.mul_(by)


def by_data(values: torch.Tensor, by: float) -> None:
    values.data.mul_(by)


def in_numpy(values: torch.Tensor, by: float) -> None:
    array = values.detach().numpy()
    array *= by


def standing_in(write: Write, bad: int = BAD, *, then_fails: bool = False) -> Program:
    """Other values stand in a weight while the model is evaluated, and only then; in one step they are bad.

    ``then_fails``: the model itself fails in a later step.
    """

    def program(attach: Attach, fault: bool) -> None:
        model = nn.Sequential(nn.Linear(4, 2), Root())
        weight: Any = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for step in range(STEPS):
            model[1].shift = -100.0 if fault and then_fails and step == BAD else 100.0
            loss = model(torch.randn(5, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                own = weight.clone()
                write(weight, math.nan if fault and step == bad - 1 else 0.5)
                model(torch.randn(3, 4))
                weight.copy_(own)
        handle.detach()

    return program


def perturbed(fails_before: bool) -> Program:
    """The weight is moved between two forward passes of a step, and back; the first pass itself may go wrong before."""

    def program(attach: Attach, fault: bool) -> None:
        model = nn.Sequential(nn.Linear(4, 2), Root())
        weight: Any = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for step in range(STEPS):
            bad, x = fault and step == BAD, torch.randn(5, 4)
            model[1].shift = -100.0 if bad and fails_before else 100.0
            model(x).square().mean().backward()
            with torch.no_grad():
                own = weight.clone()
                weight.add_(weight.grad * (math.inf if bad and not fails_before else 0.05))
            optimizer.zero_grad()
            model[1].shift = 100.0
            model(x).square().mean().backward()
            with torch.no_grad():
                weight.copy_(own)
            optimizer.step()
            optimizer.zero_grad()
        handle.detach()

    return program


class Root(nn.Module):
    shift = 100.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x + self.shift)


class Spectral(nn.Module):
    """Finds the direction of its weight step by step, in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.register_buffer("direction", torch.ones(3) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            other = self.weight.t() @ self.direction
            self.direction.copy_(self.weight @ (other / other.norm()))
            self.direction.div_(self.direction.norm())
        return x @ self.weight.t() / (self.direction @ self.weight).norm()


def direction(write: Write) -> Program:
    """The program breaks a buffer that its module reads, and then writes itself."""

    def program(attach: Attach, fault: bool) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Spectral())

        def loss(step: int) -> torch.Tensor:
            if step == BAD:
                write(model[1].direction, math.nan if fault else 1.0)
            return model(torch.randn(5, 4)).square().mean()

        trained(attach, model, loss)

    return program


class Statistics(nn.Module):
    """Divides by a buffer that it averages in each of several passes of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.ones(()))

    def forward(self, x: torch.Tensor, by: float) -> torch.Tensor:
        made = x / self.size.clone() + (torch.ones(()) * by).log() * 0
        with torch.no_grad():
            self.size.mul_(0.9).add_(0.1 * made.abs().mean())
        return made


class Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.statistics = nn.Linear(4, 2), Statistics()

    def forward(self, x: torch.Tensor, by: float) -> torch.Tensor:
        made: torch.Tensor = self.statistics(self.first(x), by)
        return made


def averages(attach: Attach, fault: bool) -> None:
    """A module goes wrong in the first batch of a step: its buffer is bad from then on, not before."""
    model = Averaging()

    def loss(step: int) -> torch.Tensor:
        batches = (model(torch.randn(5, 4), -1.0 if fault and step == BAD and not at else 1.0) for at in range(3))
        return torch.stack([each.square().mean() for each in batches]).mean()

    trained(attach, model, loss)


PROGRAMS: Final[dict[str, tuple[Program, dict[str, set[Place]]]]] = {
    "a weight, while the model is evaluated": (standing_in(in_place), {"op": {(BAD, "NoGrad/Mul")}}),
    "a weight by its data, while the model is evaluated": (standing_in(by_data), {"op": {(BAD, "NoGrad/Mul")}}),
    "a weight in NumPy, while the model is evaluated": (standing_in(in_numpy), {}),
    "a weight, and later the model": (
        standing_in(in_place, BAD - 1, then_fails=True),
        {
            "module": {(BAD, "1/Root")},
            "op": {(BAD - 1, "NoGrad/Mul"), (BAD, "1/Sqrt")},
        },
    ),
    "a weight between two passes": (
        perturbed(fails_before=False),
        {"module": {(BAD, "0.weight")}, "op": {(BAD, "NoGrad/Mul")}},
    ),
    # Two passes went through each module, and the second one is bad from its first module on.
    "a weight that is made of bad gradients": (perturbed(fails_before=True), {"op": {(BAD, "1/Sqrt")}}),
    "a buffer": (direction(in_place), {"module": {(BAD, "1.direction")}, "op": {(BAD, "Mul")}}),
    "a buffer in NumPy": (direction(in_numpy), {level: {(BAD, "1.direction")} for level in LEVELS}),
    "a buffer that its module makes bad": (
        averages,
        {"module": {(BAD, "statistics/Statistics")}, "op": {(BAD, "statistics/Log")}},
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_bad_when_it_was_read_is_the_only_origin(name: str, level: str, tmp_path: Path) -> None:
    program, true = PROGRAMS[name]
    seen, live, saved = both(lambda attach: program(attach, True), level, tmp_path / "dump")
    assert live == saved == true.get(level, set())
    assert BAD in seen.findings


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_is_clean(name: str, level: str, tmp_path: Path) -> None:
    seen, live, saved = both(lambda attach: PROGRAMS[name][0](attach, False), level, tmp_path / "dump")
    assert (seen.findings, live, saved) == ({}, set(), set())
