"""Programs whose steps differ: other operators, numbers or inputs in the bad step, and what runs around the model.

Run as ``python -m tests.live.torch.differing ADDRESS LEVEL NAME ...``: one training for each name, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's users know
from torch import nn

from tests.live.torch import rewriting
from tests.live.torch.rewriting import Program, Step


class Attention(nn.Module):
    """Divides, as the program does outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.inner(x)
        below = torch.ones(3, 3, dtype=torch.bool).tril()
        found: torch.Tensor = torch.where(below, made @ made.transpose(1, 2) / 2.0, -math.inf).softmax(-1) @ made
        return found


def advantages() -> tuple[nn.Module, Any, Step]:
    """Rewards that are all equal have no spread: 0/0 before the model runs, whose mask is by design."""
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        rewards = torch.ones(2) if bad else torch.rand(2)
        advantage = (rewards - rewards.mean()) / rewards.std()
        optimizer.zero_grad()
        (model(torch.randn(2, 3, 4)).sum((1, 2)) * advantage).mean().backward()
        optimizer.step()

    return model, optimizer, step


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        made = torch.log(self.inner(x).square() * (0 if bad else 1) + (0 if bad else 1))
        return self.scale * made


def clamped() -> tuple[nn.Module, Any, Step]:
    """The program clamps a weight after each step, also when its optimizer has just made it bad."""
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        model(torch.randn(5, 4), bad).mean().backward()
        optimizer.step()
        with torch.no_grad():
            model.scale.clamp_(0, 4.0)

    return model, optimizer, step


def decayed() -> tuple[nn.Module, Any, Step]:
    """An average by hand, with a number of the program: only that of the bad step is infinite."""
    student, teacher = nn.Linear(4, 1), nn.Linear(4, 1).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), 0.01)

    def step(bad: bool) -> None:
        with torch.no_grad():
            for weight, other in zip(teacher.parameters(), student.parameters(), strict=True):
                weight.mul_(math.inf if bad else 0.9).add_(other, alpha=0.1)
            made = teacher(torch.ones(6, 4))
        optimizer.zero_grad()
        F.mse_loss(student(torch.ones(6, 4)), made).backward()
        optimizer.step()

    return nn.ModuleDict({"student": student, "teacher": teacher}), optimizer, step


class Experts(nn.Module):
    """Switches some rows off in the bad step only: their weights are 0/0."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        if bad:
            weights = weights * torch.tensor([1.0, 0.0, 1.0])[:, None]
        weights = weights / weights.sum(-1, keepdim=True)
        parts = [expert(x) * weights[:, at, None] for at, expert in enumerate(self.experts)]
        return torch.stack(parts).sum(0)


def experts() -> tuple[nn.Module, Any, Step]:
    """What a branch of the bad step reads is an input of the module in the graphs that come after it."""
    model = Experts()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        model(torch.randn(3, 4), bad).square().mean().backward()
        optimizer.step()

    return model, optimizer, step


def spoiled(write: Callable[[torch.Tensor], object]) -> Program:
    """A program that writes to the running statistics of a batch norm, which an evaluation reads."""

    def program() -> tuple[nn.Module, Any, Step]:
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(bad: bool) -> None:
            model.train()
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
            if bad:
                statistics = model.get_buffer("1.running_mean")
                write(statistics)
            model.eval()
            with torch.no_grad():
                model(torch.randn(6, 4))

        return model, optimizer, step

    return program


def validated() -> tuple[nn.Module, Any, Step]:
    """An evaluation after every second step, whose batch norm has a negative variance once."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps: list[bool] = []

    def step(bad: bool) -> None:
        steps.append(bad)
        model.train()
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
        if len(steps) % 2:
            model.eval()
            if bad:
                model.get_buffer("1.running_var")[3] = -5.0
            with torch.no_grad():
                model(torch.randn(6, 4))

    return model, optimizer, step


class Counting(nn.Module):
    """Writes to a buffer of its own while it runs, and reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.register_buffer("factor", torch.ones(3))

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        with torch.no_grad():
            self.factor.mul_(math.nan if bad else 0.9)
        found: torch.Tensor = self.inner(x) * self.factor
        return found


def counting() -> tuple[nn.Module, Any, Step]:
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        model(torch.randn(6, 4), bad).square().mean().backward()
        optimizer.step()

    return model, optimizer, step


def multiplied() -> tuple[nn.Module, Any, Step]:
    """The bad step multiplies once more: its first product is not that of the other steps, which is bad as well."""
    model = rewriting.two_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        made = model(torch.randn(6, 4))
        if bad:
            made = made * 1e30 * 1e30
        (F.mse_loss(made, torch.randn(6, 1)) * 2.0).backward()
        optimizer.step()

    return model, optimizer, step


def left() -> tuple[nn.Module, Any, Step]:
    """Another model's loss adds to gradients that an optimizer has used: those of the last step nobody uses."""
    judge, maker = rewriting.two_layers(), nn.Linear(3, 4)
    judges = torch.optim.SGD(judge.parameters(), 0.1)
    makers = torch.optim.SGD(maker.parameters(), 0.1)

    def step(bad: bool) -> None:
        judges.zero_grad()
        likely = torch.sigmoid(judge(torch.randn(6, 4)) + judge(torch.randn(6, 4)))
        torch.log(1 - likely * (0 if bad else 1) - (1 if bad else 0)).mean().backward()
        judges.step()
        makers.zero_grad()
        judge(maker(torch.randn(6, 3))).mean().backward()
        makers.step()

    return judge, judges, step


PROGRAMS: dict[str, Program] = {
    "a gradient that nothing uses": left,
    "a division around the model": advantages,
    "a product more": multiplied,
    "a weight that is clamped": clamped,
    "an average by a number": decayed,
    "rows that are switched off": experts,
    "an evaluation now and then": validated,
    "a buffer that its module spoils": counting,
    "a statistic times NaN": spoiled(lambda statistics: statistics.mul_(math.nan)),
}


if __name__ == "__main__":
    rewriting.main(PROGRAMS)
