"""Programs that carry what was bad from one step into the next, or out of the model: each with its fault or healthy.

Run as ``python -m tests.live.torch.carrying ADDRESS LEVEL NAME ...``: one training for each name, one after the other.
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

LOW = -math.inf


class Kept(nn.Module):
    """Reads a buffer, and puts new values there: in the bad step those of a division by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.register_buffer("kept", torch.ones(8))

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        made = self.first(x)
        read = self.kept.clone()
        with torch.no_grad():
            self.kept.copy_(made.mean(0) / (0 if bad else 1))
        found: torch.Tensor = self.last(made + (read - made).detach())
        return found


def buffer() -> tuple[nn.Module, Any, Step]:
    model = Kept()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        model(torch.randn(6, 4), bad).square().mean().backward()
        optimizer.step()

    return model, optimizer, step


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRUCell(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.cell(x, state)
        return self.last(state), state


def state() -> tuple[nn.Module, Any, Step]:
    """The program spoils the state of a network once, and carries it over from then on."""
    model = Cell()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    carried = [torch.zeros(6, 8)]

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        made, after = model(torch.randn(6, 4), carried[0] / (0 if bad else 1))
        made.square().mean().backward()
        optimizer.step()
        carried[0] = after.detach() * 0.9

    return model, optimizer, step


Loss = Callable[[torch.Tensor, bool], torch.Tensor]


def lost(loss: Loss) -> Program:
    """A loss that functions compute outside of the model."""

    def program() -> tuple[nn.Module, Any, Step]:
        model = rewriting.two_layers()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(bad: bool) -> None:
            optimizer.zero_grad()
            loss(model(torch.randn(6, 4)), bad).backward()
            optimizer.step()

        return model, optimizer, step

    return program


def labels(bad: bool) -> torch.Tensor:
    found = torch.randn(6, 1)
    found[2] = math.nan if bad else found[2]
    return found


def weighed(made: torch.Tensor, bad: bool) -> torch.Tensor:
    """Weights that are all zero: 0/0 is the work of the loss."""
    weights = torch.rand(6, 1) * (0 if bad else 1)
    return (F.mse_loss(made, torch.randn(6, 1), reduction="none") * weights).sum() / weights.sum()


class Policy(nn.Module):
    """Returns scores of actions, those that are not allowed at -Inf; in the bad step no action is allowed once."""

    def __init__(self, lay: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.scores = nn.Linear(4, 5)
        self.lay = lay

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        return self.lay(self.scores(x), allowed)


def categorical(scores: torch.Tensor) -> torch.Tensor:
    actions = torch.distributions.Categorical(logits=scores, validate_args=False)
    return -(actions.log_prob(torch.zeros(6, dtype=torch.long)) + 0.01 * actions.entropy()).mean()


def masked(
    lay: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], loss: Callable[[torch.Tensor], torch.Tensor]
) -> Program:
    """A policy that is asked without gradients, and then trained."""

    def program() -> tuple[nn.Module, Any, Step]:
        policy = Policy(lay)
        optimizer = torch.optim.SGD(policy.parameters(), 0.01)

        def step(bad: bool) -> None:
            allowed = torch.rand(6, 5) > 0.4
            allowed[:, 0] = True
            with torch.no_grad():
                policy(torch.randn(6, 4), allowed).softmax(-1).argmax(-1)
            if bad:
                allowed[1] = False
            optimizer.zero_grad()
            loss(policy(torch.randn(6, 4), allowed)).backward()
            optimizer.step()

        return policy, optimizer, step

    return program


def filled(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~allowed, LOW)


def put(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    scores = scores.clone()
    scores[~allowed] = LOW
    return scores


def added(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(6, 5)
    mask[~allowed] = LOW
    return scores + mask


def selected(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return torch.where(allowed, scores, torch.tensor(LOW))


PROGRAMS: dict[str, Program] = {
    "a buffer that the next step reads": buffer,
    "a state that is carried over": state,
    "a label": lost(lambda made, bad: F.smooth_l1_loss(made, labels(bad))),
    "a label of a difference": lost(lambda made, bad: (made - labels(bad)).square().mean()),
    "weights of nothing": lost(weighed),
    "actions of a distribution": masked(filled, categorical),
    "actions of a softmax": masked(filled, lambda scores: F.cross_entropy(scores, torch.zeros(6, dtype=torch.long))),
    "actions that are selected": masked(selected, categorical),
    "actions put out by an index": masked(put, categorical),
    "actions under a mask that is added": masked(added, categorical),
    "actions under a logarithm that is added": masked(lambda scores, on: scores + on.float().log(), categorical),
    "actions that are copied": masked(lambda scores, allowed: filled(scores, allowed).clone(), categorical),
    "actions that nothing weighs": masked(filled, lambda scores: (scores * scores.isfinite()).sum()),
}


if __name__ == "__main__":
    rewriting.main(PROGRAMS)
