"""Trainings that go wrong while nobody watches: ``python -m tests.live.torch.flights HOW DIRECTORY``."""

from __future__ import annotations

import os
import signal
import sys

import torch
from torch import nn

import tui_debugger.torch as tdbg

BAD = 3
STATUS = {"with": 0, "exit": 3, "raise": 1, "SIGTERM": -signal.SIGTERM}
"""Exit status by how it ends: that of a program without a flight recorder."""


class Log(nn.Module):
    """Of what may be negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x)


class Net(nn.Module):
    """``bad``: the logarithm is taken of negative numbers."""

    def __init__(self, bad: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.positive = nn.Softplus()
        self.log = Log()
        self.last = nn.Linear(16, 1)
        self.bad = bad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.positive(self.first(x))
        with torch.no_grad():
            h -= 100 * self.bad  # in place
        return self.last(self.log(h))


def main() -> None:
    """Trains until the step that goes wrong."""
    how, directory = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handle = tdbg.attach(net, optimizer, "", flight=tdbg.Flight(directory, steps=3))
    if how == "with":
        with handle:
            train(net, optimizer, how)
    else:
        train(net, optimizer, how)


def train(net: Net, optimizer: torch.optim.Optimizer, how: str) -> None:
    """The loss of step ``BAD`` is NaN, and the program ends before the gradients are computed."""
    for step in range(BAD + 2):
        net.bad = step == BAD
        loss = net(torch.randn(4, 8)).square().mean()
        if loss.isnan():
            if how == "with":
                break
            if how == "exit":
                sys.exit(3)
            if how == "raise":
                raise FloatingPointError("the loss is no number")
            os.kill(os.getpid(), signal.SIGTERM)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
