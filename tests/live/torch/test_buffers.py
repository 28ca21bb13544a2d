"""Buffers that become NaN: by a module, by the program, registered late, read by nothing until evaluation.

Each program with a fault stands beside its healthy twin; what is saved has the same findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from torch import nn  # noqa: E402 - torch first

from tests.session.opened import checked, found, opened  # noqa: E402 - likewise
from tests.zoo.watched import Seen, watch  # noqa: E402 - likewise

LEVELS: Final = ("module", "op")
BAD: Final = 2
STEPS: Final = 4


class Statistics(nn.Module):
    """Averages the spread of its inputs, which it reads in evaluation only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("spread", torch.ones(4))
        self.by = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.spread.copy_(0.9 * self.spread + 0.1 * (x.std(0) / self.by).detach())
        self.by = 1.0
        made: torch.Tensor = self.linear(x)
        return made


class Unread(nn.Module):
    """Has a buffer that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("spread", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.linear(x)
        return made


class Late(nn.Module):
    """Counts in a buffer that comes after the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "spread"):
            self.spread.add_(1.0)
        made: torch.Tensor = self.linear(x)
        return made


class Growing(nn.Module):
    """Registers its mask and a table in the first step, and anew when they have to be longer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.longest = nn.Linear(4, 4), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.longest:
            self.longest = len(x)
            self.register_buffer("mask", torch.full((len(x), len(x)), -math.inf).triu(1), persistent=False)
            self.register_buffer("table", torch.arange(len(x)).cos())
        hidden = self.linear(x) * self.table[: len(x), None]
        made: torch.Tensor = (hidden @ hidden.T + self.mask[: len(x), : len(x)]).softmax(-1) @ hidden
        return made


def divided(model: Any, fault: bool) -> None:
    model.by = 0.0 if fault else 1.0


def multiplied(model: Any, fault: bool) -> None:
    model.spread.mul_(math.nan if fault else 1.0)


def late(model: Any, fault: bool) -> None:
    model.spread[0] = math.nan if fault else 0.0


PROGRAMS: Final[dict[str, tuple[Callable[[], nn.Module], Callable[[Any, bool], None], str]]] = {
    "by its module": (Statistics, divided, "spread"),
    "that nothing reads": (Unread, multiplied, "spread"),
    "that comes later": (Late, late, "spread"),
    "of a batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        lambda model, fault: model[1].running_mean.data.mul_(math.nan if fault else 1.0),
        "1.running_mean",
    ),
}


def seen_of(name: str, level: str, dump: Path, *, fault: bool) -> Seen:
    """What a session saw; what it saved has the same findings."""
    make, write, _ = PROGRAMS[name]

    def training(attach: Callable[..., Any]) -> None:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for step in range(STEPS):
            if step == 1 and isinstance(model, Late):
                model.register_buffer("spread", torch.zeros(3))
            if step == BAD:
                write(model, fault)
            loss = model(torch.randn(6, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        handle.detach()

    seen = watch(training, level, "TO", 0, dump)
    assert (seen.trouble, seen.unrecorded) == ([], [])
    session = opened(dump, "TO")
    saved = {(step, node) for node, step in found(checked(session))}
    session.close()
    assert saved == {(step, node) for step, nodes in seen.findings.items() for node in nodes}
    return seen


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bad_buffer_is_found_in_the_step_in_which_it_became_bad(name: str, level: str, tmp_path: Path) -> None:
    seen = seen_of(name, level, tmp_path / "dump", fault=True)
    assert min(seen.findings) == BAD
    assert PROGRAMS[name][2] in seen.findings[BAD]
    assert sum(map(len, seen.origins.values())) <= 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_healthy_twin_is_clean(name: str, level: str, tmp_path: Path) -> None:
    assert seen_of(name, level, tmp_path / "dump", fault=False).findings == {}


@pytest.mark.parametrize("level", LEVELS)
def test_a_mask_that_is_registered_anew_is_no_finding(level: str) -> None:
    def training(attach: Callable[..., Any]) -> None:
        model = Growing()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = attach(model, optimizer)
        for length in (3, 3, 5, 6):
            loss = model(torch.randn(length, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        handle.detach()

    assert watch(training, level, "TO").findings == {}
