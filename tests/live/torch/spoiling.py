"""Trains small models, one after the other, and makes one tensor of each bad: ``python -m tests.live.torch.spoiling``.

Every line of the input is a JSON object (see ``Plant``) and one training from its beginning to its end; a line of
output answers it. With ``--store`` two of these processes train together (DistributedDataParallel over gloo).
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import tui_debugger.torch as tdbg

STEPS = 3
WIDTH = 4
FORWARD = ("embed", "act", "head")
"""Modules whose output, or whose output's gradient, can be made bad."""


@dataclass(frozen=True)
class Plant:
    """What is made bad.

    Attributes:
        address: of the debugger.
        how: ``forward``, ``backward``, ``weight``, ``gradient``, ``evaluation`` (without gradients), ``inference``,
            ``after`` (an evaluation after the last step), ``unfinished`` (a step without an optimizer's), or empty.
        where: name of the module or parameter.
        step: when.
        rank: of which process.
        level: of ``attach``.
        blocks: steps are ``with tdbg.step()`` blocks.
    """

    address: str
    how: str = ""
    where: str = ""
    step: int = 0
    rank: int = 0
    level: str = "module"
    blocks: bool = False


class Spoiled(torch.autograd.Function):
    """Passes a tensor on; makes one element of it, or of its gradient, NaN."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, backward: bool) -> torch.Tensor:
        ctx.backward_too = backward
        out = x.clone()
        if not backward:
            out.view(-1)[0] = float("nan")
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        out = gradient.clone()
        if ctx.backward_too:
            out.view(-1)[0] = float("nan")
        return out, None


class Spoiling(nn.Module):
    """A linear layer or a ReLU whose output can be spoiled inside, and its gradient outside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.weight = getattr(inner, "weight", None)
        self.bias = getattr(inner, "bias", None)
        self.now = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.relu() if self.weight is None else nn.functional.linear(x, self.weight, self.bias)
        return Spoiled.apply(out, False) if self.now == "forward" else out


class Net(nn.Module):
    """Two linear layers and a ReLU between them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Spoiling(nn.Linear(WIDTH, WIDTH))
        self.act = Spoiling(nn.ReLU())
        self.head = Spoiling(nn.Linear(WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in FORWARD:
            part = self.get_submodule(name)
            x = part(x)
            if part.now == "backward":
                x = Spoiled.apply(x, True)
        return x


class SpoilingSGD(torch.optim.SGD):
    """Makes a gradient bad that changes nothing any more, or a weight that was just updated."""

    plant = Plant("")
    names: Sequence[str] = ()

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        for name, parameter in zip(self.names, self.param_groups[0]["params"], strict=True):
            if self.plant.how == "weight" and name == self.plant.where:
                with torch.no_grad():
                    parameter.view(-1)[0] = float("nan")
        return result


def train(plant: Plant, rank: int, parallel: bool) -> None:
    """One training."""
    torch.manual_seed(0)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net) if parallel else net
    optimizer = SpoilingSGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer.names = [name for name, _ in net.named_parameters()]
    handle = tdbg.attach(model, None if plant.blocks else optimizer, plant.address, level=plant.level)
    mine = plant.rank == rank
    for step in range(STEPS):
        now = plant if mine and step == plant.step else Plant(plant.address)
        with tdbg.step() if plant.blocks else nullcontext():
            one_step(model, net, optimizer, now, step)
    if mine and plant.how == "after":
        evaluate(net, plant)
    if mine and plant.how == "unfinished":
        with torch.enable_grad():
            net.get_submodule(plant.where).now = "forward"
            model(data(STEPS)).sum().backward()
    handle.detach()


def one_step(model: nn.Module, net: Net, optimizer: SpoilingSGD, plant: Plant, step: int) -> None:
    """A training pass with an evaluation behind it."""
    in_the_pass = plant.how in ("forward", "backward")
    if in_the_pass:
        net.get_submodule(plant.where).now = plant.how
    out = model(data(step))
    if in_the_pass:
        net.get_submodule(plant.where).now = ""
    optimizer.zero_grad()
    out.square().mean().backward()
    if plant.how == "gradient":
        net.get_parameter(plant.where).grad.view(-1)[0] = float("nan")
    evaluate(net, plant)
    optimizer.plant = plant
    optimizer.step()


def evaluate(net: Net, plant: Plant) -> None:
    """Two passes without gradients; the first one of them may be bad."""
    guard = torch.inference_mode if plant.how == "inference" else torch.no_grad
    with guard():
        bad = plant.how in ("evaluation", "inference", "after")
        part = net.get_submodule(plant.where if bad else "head")
        part.now = "forward" if bad else ""
        net(data(100))
        part.now = ""
        net(data(101))


def data(step: int) -> torch.Tensor:
    """The batch of a step."""
    return torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(step))


def wait_for(address: str) -> None:
    """Until a debugger listens there."""
    path = address.removeprefix("unix:")
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError:
                time.sleep(0.005)  # a program of its own: the test waits for its answer
                continue
        return


def main() -> None:
    """Reads lines until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="")
    parser.add_argument("--rank", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.store:
        torch.distributed.init_process_group("gloo", init_method=options.store, rank=options.rank, world_size=2)
    for line in sys.stdin:
        plant = Plant(**json.loads(line))
        wait_for(plant.address)
        train(plant, options.rank, bool(options.store))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    if options.store:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
