"""How much weights change: what L-BFGS does is its own matter, and a step without an optimizer changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

import tui_debugger.torch as tdbg  # noqa: E402 - likewise
from tests.session.opened import checked, found, opened  # noqa: E402 - likewise
from tests.zoo.watched import watch  # noqa: E402 - likewise

LEVELS: Final = ("module", "op")
STEPS: Final = 4
EVERYTHING: Final = "TL max_gt=-1000"
"""A condition that holds of all tensors, so that all are saved."""
STILL: Final = "WNC rtol=0 atol=0 @ category=trainable"
Attach = Callable[..., tdbg.Handle]


def fitted(attach: Attach, make: Callable[[nn.Module], torch.optim.Optimizer], batches: int = STEPS) -> None:
    """Fits a product, step by step, with a closure."""
    model = nn.Linear(4, 1)
    optimizer = make(model)
    handle = attach(model, optimizer)
    for _ in range(batches):
        x = torch.randn(16, 4)

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
            loss.backward()
            return loss

        optimizer.step(closure)
    handle.detach()


def searching(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)


@pytest.mark.parametrize("level", LEVELS)
def test_how_far_lbfgs_goes_is_no_finding(level: str) -> None:
    seen = watch(lambda attach: fitted(attach, searching), level)
    assert (seen.trouble, seen.findings, seen.last) == ([], {}, STEPS - 1)


@pytest.mark.parametrize("level", LEVELS)
def test_a_learning_rate_that_is_too_high_is_a_finding(level: str) -> None:
    seen = watch(lambda attach: fitted(attach, lambda model: torch.optim.SGD(model.parameters(), lr=10.0)), level)
    assert 0 in seen.first("weight_change_too_large").values()


@pytest.mark.parametrize("level", LEVELS)
def test_weights_of_lbfgs_that_stand_still_are_found(level: str, tmp_path: Path) -> None:
    def idle(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(model.parameters(), lr=0.0, max_iter=1)

    watch(lambda attach: fitted(attach, idle), level, EVERYTHING, save=tmp_path / "dump")
    session = opened(tmp_path / "dump", STILL)
    assert ("weight", STEPS - 1) in found(checked(session))
    session.close()


def averaged(attach: Attach, *, broken: bool) -> None:
    """Averages the weights after each step; a ``broken`` training has a rate of 0 from its third step on."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    average = [each.detach().clone() for each in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        if broken and step == 2:
            optimizer.param_groups[0]["lr"] = 0.0
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for kept, each in zip(average, model.parameters(), strict=True):
                kept.lerp_(each, 0.1)
    handle.detach()


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_weights_do_not_change_after_the_last_step(level: str, broken: bool, tmp_path: Path) -> None:
    watch(lambda attach: averaged(attach, broken=broken), level, EVERYTHING, save=tmp_path / "dump")
    session = opened(tmp_path / "dump", STILL)
    still = {step for _, step in found(checked(session))}
    session.close()
    assert still == ({2, 3} if broken else set())
