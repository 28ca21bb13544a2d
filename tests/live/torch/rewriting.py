"""Programs that read a weight, an input or a state twice in a step, with other values: each with its fault or healthy.

Run as ``python -m tests.live.torch.rewriting ADDRESS LEVEL NAME ...``: one training for each name, one after the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's users know
from torch import nn
from torch.utils.checkpoint import checkpoint

import tui_debugger.torch as tdbg
from tests.live.torch.nets import BAD, STEPS

HEALTHY: Final = " (healthy)"
FIRST: Final = " (in the first step)"
Step = Callable[[bool], Any]
Program = Callable[[], tuple[nn.Module, Any, Step]]
"""Makes a model, what optimizes it, and a step, which is told whether to go wrong."""


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def rivals() -> tuple[nn.Module, Any, Step]:
    """The optimizer of the judge makes its weights bad before the maker's loss reads them."""
    judge, maker = two_layers(), nn.Linear(3, 4)
    judges = torch.optim.SGD(judge.parameters(), 0.1)
    makers = torch.optim.SGD(maker.parameters(), 0.1)

    def step(bad: bool) -> None:
        judges.zero_grad()
        likely = torch.sigmoid(judge(torch.randn(6, 4))) * 0 + (1.0 if bad else 0.5)
        torch.log(1 - likely).mean().backward()
        judges.step()
        makers.zero_grad()
        judge(maker(torch.randn(6, 3))).mean().backward()
        makers.step()

    return nn.ModuleDict({"maker": maker, "judge": judge}), [judges, makers], step


def closure() -> tuple[nn.Module, Any, Step]:
    """L-BFGS calls the model several times, and changes the weights between two calls."""
    model = two_layers()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step(bad: bool) -> None:
        x, y = torch.randn(6, 4), torch.randn(6, 1)
        calls: list[int] = []

        def loss() -> torch.Tensor:
            calls.append(1)
            optimizer.zero_grad()
            made = model(x)
            found = F.mse_loss(made, y) + (made.sum() * 0 + (0 if bad and len(calls) == 2 else 1)).log()
            found.backward()
            return found

        optimizer.step(loss)

    return model, optimizer, step


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.embedding(tokens))
        return found


def written_data() -> tuple[nn.Module, Any, Step]:
    """``weight.data[9] = nan``: no version counts it, and only the head reads that row."""
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        tokens = torch.randint(0, 9, (3, 5))
        if bad:
            model.embedding.weight.data[9] = float("nan")
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return model, optimizer, step


def written_frozen() -> tuple[nn.Module, Any, Step]:
    """A weight that no optimizer changes, and whose value of before the first step is known."""
    model = nn.Sequential(nn.Linear(4, 8).requires_grad_(False), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model[1].parameters(), 0.01)

    def step(bad: bool) -> None:
        if bad:
            model[0].weight.data[1, 1] = float("nan")
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(6, 4)), torch.randn(6, 1)).backward()
        optimizer.step()

    return model, optimizer, step


def written_state() -> tuple[nn.Module, Any, Step]:
    """The program writes to what the optimizer keeps: the weight is made of that."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        if bad:
            optimizer.state[model.weight]["exp_avg"][0, 0] = float("nan")
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(6, 4)), torch.randn(6, 1)).backward()
        optimizer.step()

    return model, optimizer, step


def batches(spoil: Callable[[torch.Tensor, torch.Tensor], None], parts: int = 3) -> Program:
    """Some batches a step, the second of which is bad, and a look at the loss behind the step."""

    def program() -> tuple[nn.Module, Any, Step]:
        model = two_layers()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(bad: bool) -> None:
            optimizer.zero_grad()
            losses = []
            for part in range(parts):
                x, y = torch.randn(6, 4), torch.randn(6, 1)
                if bad and part == min(1, parts - 1):
                    spoil(x, y)
                losses.append(F.mse_loss(model(x), y) / parts)
                losses[-1].backward()
            optimizer.step()
            sum(each.detach().double().item() for each in losses)

        return model, optimizer, step

    return program


def spoil_input(x: torch.Tensor, _: torch.Tensor) -> None:
    x[0, 0] = float("nan")


def spoil_label(_: torch.Tensor, y: torch.Tensor) -> None:
    y[0, 0] = float("nan")


class Root(nn.Module):
    shift = 10.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x + self.shift) * 2


def reentrant() -> tuple[nn.Module, Any, Step]:
    """A reentrant checkpoint runs its part again inside the backward pass, under no name."""
    first, root, last = nn.Linear(4, 4), Root(), nn.Linear(4, 1)
    model = nn.ModuleDict({"first": first, "root": root, "last": last})
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        root.shift = -1e9 if bad else 10.0
        optimizer.zero_grad()
        made = checkpoint(root, first(torch.randn(6, 4)), use_reentrant=True)
        F.mse_loss(last(made), torch.randn(6, 1)).backward()
        optimizer.step()

    return model, optimizer, step


class Branching(nn.Module):
    """Its middle layer runs in the bad step only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        made = self.first(x)
        if bad:
            made = self.middle(made)
            made = torch.log(made - made)
        found: torch.Tensor = self.last(made)
        return found


def branching() -> tuple[nn.Module, Any, Step]:
    """What the last layer is given in a new branch is known when the step is over, and not of that step."""
    model = Branching()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(6, 4), bad), torch.randn(6, 1)).backward()
        optimizer.step()

    return model, optimizer, step


def sharpness_aware() -> tuple[nn.Module, Any, Step]:
    """Two backward passes: the weights of the second one are moved along the gradients of the first one."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        x, y = torch.randn(6, 4), torch.randn(6, 1)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            size = torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm()
            part = torch.reciprocal(size * (0 if bad else 1))
            moves = [each.grad * part for each in model.parameters() if each.grad is not None]
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.add_(move)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.sub_(move)
        optimizer.step()

    return model, optimizer, step


def averaged(change: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]) -> Program:
    """A teacher whose weights follow those of the student, changed in place. ``change``: weight, student's, decay."""

    def program() -> tuple[nn.Module, Any, Step]:
        student, teacher = nn.Linear(4, 1), nn.Linear(4, 1).requires_grad_(False)
        optimizer = torch.optim.SGD(student.parameters(), 0.01)

        def step(bad: bool) -> None:
            x = torch.randn(6, 4)
            optimizer.zero_grad()
            with torch.no_grad():
                some = torch.ones(()) * (0 if bad else 1)
                decay = torch.div(some, some) * 0.9
                for weight, other in zip(teacher.parameters(), student.parameters(), strict=True):
                    change(weight, other, decay)
                made = teacher(x)
            F.mse_loss(student(x), made).backward()
            optimizer.step()

        return nn.ModuleDict({"student": student, "teacher": teacher}), optimizer, step

    return program


def follow(weight: torch.Tensor, other: torch.Tensor, decay: torch.Tensor) -> None:
    weight.mul_(decay).add_(other, alpha=0.1)


def follow_into(weight: torch.Tensor, other: torch.Tensor, decay: torch.Tensor) -> None:
    torch.mul(weight, decay, out=weight)
    torch.add(weight, other, alpha=0.1, out=weight)


class InPlace(nn.Module):
    """Changes a tensor in place; divides it by zero in the bad step only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.2, inplace=True), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        made = self.first(x).clone()
        if bad:
            made.div_(made.relu() * 0 + (made > 0))
        found: torch.Tensor = self.last(self.drop(made))
        return found


def in_place() -> tuple[nn.Module, Any, Step]:
    """What an operator in place made is written over by the next one, before anybody has looked at it."""
    model = InPlace()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(6, 4), bad), torch.randn(6, 1)).backward()
        optimizer.step()

    return model, optimizer, step


class Bag(nn.Module):
    """Its embedding has sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(9, 4, mode="sum", sparse=True)

    def forward(self, words: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.embedding(words) / scale


def sparse() -> tuple[nn.Module, Any, Step]:
    """A gradient that is bad is sparse, and a penalty has gradients of one expanded element."""
    model = Bag()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    bias = nn.Parameter(torch.ones(1))

    def step(bad: bool) -> None:
        optimizer.zero_grad()
        scale = torch.zeros(3, 1) if bad else torch.ones(3, 1)
        loss = model(torch.randint(0, 9, (3, 5)), scale).square().mean() + 1e-4 * bias.sum().square()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


PROGRAMS: dict[str, Program] = {
    "a sparse gradient": sparse,
    "a branch that runs once": branching,
    "two optimizers": rivals,
    "a closure": closure,
    "the data of a tied weight": written_data,
    "the data of a frozen weight": written_frozen,
    "the state of an optimizer": written_state,
    "the input of one of several batches": batches(spoil_input),
    "a label of one of several batches": batches(spoil_label),
    "a label, and a look at the loss": batches(spoil_label, 1),
    "a reentrant checkpoint": reentrant,
    "two backward passes": sharpness_aware,
    "an average in place": averaged(follow),
    "an average by out=": averaged(follow_into),
    "an operator in place that runs once": in_place,
}


def main(programs: Mapping[str, Program] = PROGRAMS) -> None:
    """Trains some of them."""
    torch.set_num_threads(1)
    address, level, *names = sys.argv[1:]
    for rank, name in enumerate(names):
        os.environ["RANK"] = str(rank)
        torch.manual_seed(0)
        model, optimizer, step = programs[name.removesuffix(HEALTHY).removesuffix(FIRST)]()
        handle = tdbg.attach(model, optimizer, address, level=level)
        for number in range(STEPS):
            step(number == (0 if name.endswith(FIRST) else BAD) and not name.endswith(HEALTHY))
        handle.detach()


if __name__ == "__main__":
    main()
