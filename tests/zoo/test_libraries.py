"""Trainings with transformers, accelerate, lightning, peft and timm: silent while healthy, and a fault has one origin.

They need an extra of their own (``pip install tui_debugger[zoo-tests]``): what is missing is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402 - torch first
from tests.zoo.libraries import BAD, PROGRAMS, STEPS, Plant, healthy, load_vision, planted  # noqa: E402 - likewise
from tests.zoo.watched import STOPS, Seen, watch  # noqa: E402 - likewise

OVERFLOW = "TO"
LAST = STEPS - 1


@pytest.fixture(scope="module", autouse=True)
def _vision() -> None:
    load_vision()


def programs(*, broken: Mapping[str, str] | None = None) -> Iterator[Any]:
    """All programs as parameters. ``broken``: why a test of one fails."""
    for name, each in PROGRAMS.items():
        missing = f"not installed: {' or '.join(each.libraries)} (pip install tui_debugger[zoo-tests])"
        marks = [pytest.mark.skipif(not each.installed, reason=missing)]
        if broken and name in broken:
            marks.append(pytest.mark.xfail(strict=True, reason=broken[name]))
        yield pytest.param(name, marks=marks)


@dataclass(frozen=True)
class Trained:
    """A training under a debugger.

    Attributes:
        seen: what the debugger saw.
        losses: of the training.
        alone: the losses of the same training without a debugger.
    """

    seen: Seen
    losses: list[float]
    alone: list[float]

    @property
    def origins(self) -> dict[int, list[str]]:
        """Nodes that were marked as origins, by step; steps without any are left out."""
        return {step: nodes for step, nodes in self.seen.origins.items() if nodes}

    def is_unharmed(self) -> bool:
        """Tells whether the losses have the same bits with a debugger and without."""
        return [each.hex() for each in self.losses] == [each.hex() for each in self.alone]


def trained(name: str, plant: Plant, level: str, only: str = "", stops: int = STOPS) -> Trained:
    """Trains twice, once without a debugger. The rest is as for ``watch``."""
    training = PROGRAMS[name].training
    torch.manual_seed(0)
    alone = training(lambda *_: tdbg.Handle(), plant)
    losses: list[float] = []
    seen = watch(lambda attach: losses.extend(training(attach, plant)), level, only, stops)
    assert seen.trouble == []
    return Trained(seen, losses, alone)


def fault(name: str, step: int = BAD) -> Plant:
    """A fault in the last call of the module in a step."""
    calls = PROGRAMS[name].calls
    return planted(PROGRAMS[name].module, calls * step + calls - 1)


def nothing_found(run: Trained) -> bool:
    """Tells whether every step was looked at, and nothing found."""
    seen = run.seen
    return (seen.findings, seen.stops, seen.unrecorded, seen.last) == ({}, [], [], LAST)


def place_of(node: str) -> str:
    """The module of a node."""
    return node.rpartition("/")[0].replace("/", ".")


@pytest.mark.parametrize("only", ["", OVERFLOW])
@pytest.mark.parametrize("name", programs())
def test_nothing_is_found_in_a_healthy_training(name: str, only: str) -> None:
    run = trained(name, healthy, "module", only)
    assert run.is_unharmed()
    assert nothing_found(run)


@pytest.mark.parametrize("name", programs())
def test_nothing_is_found_at_the_level_of_operators_either(name: str) -> None:
    run = trained(name, healthy, "op")
    assert run.is_unharmed()
    assert nothing_found(run)


@pytest.mark.parametrize("name", programs())
def test_the_module_with_the_fault_is_the_only_origin(name: str) -> None:
    run = trained(name, fault(name), "module")
    assert run.is_unharmed()
    assert run.seen.stops[0] == BAD
    (node,) = run.origins[BAD]
    assert place_of(node) == PROGRAMS[name].module
    assert run.origins.keys() == {BAD}


@pytest.mark.parametrize("name", programs())
def test_the_operator_with_the_fault_is_the_only_origin(name: str) -> None:
    run = trained(name, fault(name, LAST), "op", OVERFLOW, stops=0)
    assert run.is_unharmed()
    (node,) = run.origins[LAST]
    assert (place_of(node), node.rpartition("/")[2]) == (PROGRAMS[name].module, "Div")
    assert run.origins.keys() == {LAST}
