"""Small nets of every unusual kind, trained one after another: ``python -m tests.live.torch.nets ADDRESS LEVEL NAME``.

There may be several names. Each net goes wrong in one place at step 2, and is a rank of its own, so that one debugger
sees all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

import tui_debugger.torch as tdbg

WIDTH = 8
BAD = 2
STEPS = 4
RIVALS = "two optimizers"


class Fault:
    """The step that runs, by which nets go wrong."""

    step = 0
    lasting = False

    @classmethod
    def now(cls) -> bool:
        return cls.step == BAD or (cls.lasting and cls.step > BAD)


def broken(x: torch.Tensor) -> torch.Tensor:
    """Logarithms, at the bad step those of zeros."""
    healthy = 0 if Fault.now() else 1
    return torch.log(x.abs() * healthy + healthy)


class RootOfZero(torch.autograd.Function):
    """Hands on its input; at the bad step its gradient is infinite."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / 0 if Fault.now() else gradient


class Broken(nn.Module):
    """A layer that goes wrong by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return broken(self.layer(x))


class BrokenBackward(nn.Module):
    """A layer whose gradient goes wrong behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return RootOfZero.apply(self.layer(x))


class Scaled(nn.Module):
    """A layer that is all right, in a module that hands on what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Experts(nn.Module):
    """Every row goes to one of four experts; ``late``: the last one is used from the bad step on only."""

    def __init__(self, kind: type[nn.Module] = Broken, *, late: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        plain = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        self.experts = nn.ModuleList([*plain, kind()])
        self.head = nn.Linear(WIDTH, 4)
        self.late = late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = self.router(x).softmax(-1)
        chosen = torch.arange(len(x)) % (3 if self.late and Fault.step < BAD else 4)
        weight = gates.gather(1, chosen[:, None])
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows])
        return self.head(x + out)


class Recurrent(nn.Module):
    """The last step of an LSTM, or its last state."""

    def __init__(self, *, state: bool = False) -> None:
        super().__init__()
        self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 4)
        self.state = state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (last, _) = self.rnn(x)
        return self.head(broken(last[-1]) if self.state else out[:, -1])


class Residual(nn.Module):
    """A sum that overflows though both parts are finite, or not at all."""

    def __init__(self, *, overflows: bool = False) -> None:
        super().__init__()
        self.overflows = overflows
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = self.overflows and Fault.now()
        y = self.first(x * (1e30 if large else 1))
        x = y + y * (1e10 if large else 1)
        return self.head(x + self.second(self.norm(x)))


class Tied(nn.Module):
    """An embedding whose weight is that of the head."""

    def __init__(self, kind: type[nn.Module] = Broken) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, WIDTH)
        self.middle = kind()
        self.head = nn.Linear(WIDTH, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.embedding(ids)))


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self, *, backward: bool = False) -> None:
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        self.backward = backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = RootOfZero.apply if self.backward else broken
        return self.head(self.shared(between(self.shared(x))))


class Checkpointed(nn.Module):
    """Blocks whose inside is computed anew for the backward pass."""

    def __init__(self, kind: type[nn.Module], *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([nn.Linear(WIDTH, WIDTH), kind(), nn.Linear(WIDTH, WIDTH)])
        self.head = nn.Linear(WIDTH, 4)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = torch.tanh(x + checkpoint(block, x, use_reentrant=self.reentrant))
        return self.head(x)


class Masks(nn.Module):
    """Masks of every kind, whose infinities are no findings."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.softmax = nn.Softmax(-1)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, 4)
        self.mask = torch.triu(torch.full((3, 3), float("-inf")), 1)
        self.register_buffer("additive", self.mask.clone())

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(3)
        x = self.encoder(x, mask=causal, src_key_padding_mask=padding)
        x = x + self.attention(x, x, x, attn_mask=self.mask)[0]
        scores = x @ x.transpose(1, 2) / 3
        x = self.dropout(self.softmax(scores + self.additive)) @ x
        x = self.softmax((x @ x.transpose(1, 2)).masked_fill(padding[:, None], float("-inf"))) @ x
        x = self.dropout(F.softmax((x @ x.transpose(1, 2)) + self.mask, -1)) @ x
        return self.head(x[:, 0])


class Functions(nn.Module):
    """Functions that cut or bend the flow: softmax, argmax, detach, where, indices, views."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Embedding(WIDTH, WIDTH)
        self.middle = Broken()
        self.split = nn.Flatten()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.softmax(self.first(x), -1)
        picked = self.table(x.argmax(-1))
        y = self.middle(x.detach())
        return self.head(self.split(torch.where(y > 0, y, picked)).clone())


class Frozen(nn.Module):
    """A backbone that runs without gradients, and a norm with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), Broken())
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(self.norm(x))


class Normed(nn.Module):
    """A norm that keeps statistics, whose data goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.relu(self.norm(self.layer(x)) + x))


@dataclass
class Pair:
    """What a module may return."""

    clean: torch.Tensor
    bad: dict[str, torch.Tensor]


class Splits(nn.Module):
    """Returns one good and one bad tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: torch.Tensor) -> Pair:
        left, right = self.layer(x).chunk(2, -1)
        return Pair(left, {"right": broken(right)})


class Structured(nn.Module):
    """Modules that return data classes with dicts in them."""

    def __init__(self) -> None:
        super().__init__()
        self.splits = Splits()
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        pair = self.splits(x)
        return {"out": self.head(self.left(pair.clean) + self.right(pair.bad["right"]))}


class Sometimes(nn.Module):
    """A function that runs between two layers in the bad step only, in which the same modules run."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.head(self.second(broken(x) if Fault.now() else x))


class Branch(nn.Module):
    """Hands on its input; at the bad step it takes a branch that never ran before."""

    def __init__(self, *, healthy: bool = False) -> None:
        super().__init__()
        self.healthy = healthy

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not Fault.now():
            return x
        return x.abs().add(1).log() if self.healthy else broken(x)


class Branching(nn.Module):
    """A branch between two layers."""

    def __init__(self, *, healthy: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.branch = Branch(healthy=healthy)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.branch(self.first(x))))


class Elsewhere(nn.Module):
    """A function, or the loss, is given what another layer made than in the steps before."""

    def __init__(self, *, loss: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = Broken()
        self.head = nn.Linear(WIDTH, 4)
        self.other = nn.Linear(WIDTH, 4)
        self.loss = loss

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.first(x)
        y = self.second(x)
        z = y if Fault.now() else x
        return {"out": self.head(x if self.loss else x + z), "other": self.other(y)}


def of_another(out: dict[str, torch.Tensor]) -> torch.Tensor:
    """At the bad step the loss of the other output."""
    return cross_entropy(out["other" if Fault.now() else "out"]) * 2


class Divided(nn.Module):
    """Divides what two layers make, at the bad step zero by zero; what reads that takes no notice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.quotient = Quotient()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.nan_to_num(self.quotient(self.first(x), self.second(x).exp())))


class Quotient(nn.Module):
    """A division."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        factor = 0 if Fault.now() else 1
        return (x * factor) / (y * factor)


class OwnKernel(torch.autograd.Function):
    """Fills memory as no operator does."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape)
        out.numpy()[...] = x.detach().numpy() * 2
        return out

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Kernel(nn.Module):
    """Runs a kernel of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return OwnKernel.apply(x)


class Rival(nn.Module):
    """Two nets with an optimizer each, one of which is fed with what the other makes."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.judge = nn.Sequential(Scaled(), nn.LeakyReLU(0.2, inplace=True), Broken(), nn.Linear(WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.judge(self.maker(x))


class Averaged(nn.Module):
    """A frozen layer, whose weights are averages of those of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.fast = nn.Linear(WIDTH, WIDTH)
        self.slow = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for new, old in zip(self.fast.parameters(), self.slow.parameters(), strict=True):
                old.data = old.data * 0.9 + new.data * 0.1
        return self.head(self.fast(x) + self.slow(x))


class Dropped(nn.Module):
    """Layers that are left out in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH), Broken(), nn.Linear(WIDTH, WIDTH)])
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number != 1 or Fault.step % 2 == 0:
                x = layer(x)
        return self.head(x)


def numbers(step: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(step))


def rows(step: int) -> tuple[torch.Tensor, ...]:
    return (numbers(step, 8, WIDTH),)


def bad_rows(step: int) -> tuple[torch.Tensor, ...]:
    (x,) = rows(step)
    if step == BAD:
        x[0, 0] = float("nan")
    return (x,)


def sequences(step: int) -> tuple[torch.Tensor, ...]:
    return (numbers(step, 8, 3, WIDTH),)


def bad_sequences(step: int) -> tuple[torch.Tensor, ...]:
    (x,) = sequences(step)
    if step == BAD:
        x[0, 0, 0] = float("nan")
    return (x,)


def padded(step: int) -> tuple[torch.Tensor, ...]:
    padding = torch.zeros(8, 3, dtype=torch.bool)
    padding[step:, 2] = True
    return (*sequences(step), padding)


def ids(step: int) -> tuple[torch.Tensor, ...]:
    return (torch.arange(8) + step,)


def cross_entropy(out: Any) -> torch.Tensor:
    values = out["out"] if isinstance(out, dict) else out
    return F.cross_entropy(values, torch.arange(len(values)) % 4)


def log_of_zero(out: torch.Tensor) -> torch.Tensor:
    chances = F.softmax(out, -1)
    return -(torch.log(chances * (0 if Fault.now() else 1)) * chances).sum()


def root_of_zero(out: torch.Tensor) -> torch.Tensor:
    """Is finite; at the bad step its gradient is not."""
    return RootOfZero.apply(cross_entropy(out) * 2)


def not_a_number(out: torch.Tensor) -> torch.Tensor:
    """At the bad step NaN, with the gradients that it always has."""
    return cross_entropy(out) + (float("nan") if Fault.now() else 0)


def large(out: torch.Tensor) -> torch.Tensor:
    """At the bad step so large that a scale of 2^120 is too much for it."""
    return cross_entropy(out) * (1e6 if Fault.now() else 1)


class Judged(nn.Module):
    """Returns its loss, which a module inside computes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 4)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        classes = torch.full((len(x),), -100 if Fault.now() else 1)  # the mean over no row at all
        return self.loss(self.head(x), classes)


class Derived(nn.Module):
    """Adds a derivative that it computes itself, of something that is infinite there."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        energy = (y.square() + float("inf")).sum()
        (force,) = torch.autograd.grad(energy, y, create_graph=True)
        return self.head(force)


class AsFound(nn.Module):
    """Works in memory that it allocates as it finds it: NaN, until somebody fills it."""

    def __init__(self) -> None:
        super().__init__()
        torch.use_deterministic_algorithms(True)  # fills what is allocated with NaN
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = broken(x.detach())
        copied = torch.empty_like(y).copy_(y)
        copied.view(-1)
        written = torch.empty(y.shape)
        torch.sub(y, 1, out=written)
        by_row = y.new_empty(y.shape)
        by_row.t()
        by_row[torch.arange(len(y))] = y
        by_row.unsqueeze(0)
        by_row.neg()
        by_row.squeeze()
        half = torch.empty_strided(y.shape, y.stride())
        half[:1].copy_(y[:1])
        half.expand(2, *half.shape)
        half[:1].square()
        torch.empty(3).fill_(1).unflatten(0, (3, 1))
        torch.empty(3, 2).t_().diagonal()
        return self.head(x)


@dataclass
class Net:
    """One training."""

    build: Callable[[], nn.Module]
    data: Callable[[int], tuple[torch.Tensor, ...]] = rows
    loss: Callable[[Any], torch.Tensor] = cross_entropy
    lasting: bool = False
    learns: bool = True
    clip: bool = False
    parts: int = 1
    spoiled: str = ""
    replaced: str = ""
    hooked: str = ""
    zeros: bool = False
    scale: float = 0
    fused: bool = False


NETS = {
    "experts with bad data": Net(lambda: Experts(Scaled), bad_rows, clip=True),
    "a bad expert": Net(Experts, clip=True),
    "an expert with a bad gradient": Net(lambda: Experts(BrokenBackward), clip=True),
    "an expert that is new and bad": Net(lambda: Experts(late=True), lasting=True, learns=False),
    "an LSTM with bad data": Net(Recurrent, bad_sequences),
    "the state of an LSTM": Net(lambda: Recurrent(state=True), sequences),
    "a sum": Net(lambda: Residual(overflows=True)),
    "tied weights": Net(Tied, ids),
    "a bad tied weight": Net(lambda: Tied(Scaled), ids, spoiled="embedding.weight"),
    "a weight that got other data": Net(Residual, replaced="head.weight"),
    "the gradient of a weight": Net(Residual, hooked="second.bias"),
    "the gradient of a weight among clipped ones": Net(Residual, hooked="second.bias", clip=True),
    "averages of bad weights": Net(Averaged, bad_rows),
    "a bad average": Net(Averaged, spoiled="slow.weight"),
    "a layer that is called twice": Net(Twice, zeros=True),
    "the gradient of a layer that is called twice": Net(lambda: Twice(backward=True), parts=2),
    "a checkpoint": Net(lambda: Checkpointed(Broken, reentrant=False)),
    "a reentrant checkpoint": Net(lambda: Checkpointed(Broken, reentrant=True)),
    "the gradient in a checkpoint": Net(lambda: Checkpointed(BrokenBackward, reentrant=False)),
    "the gradient in a reentrant checkpoint": Net(lambda: Checkpointed(BrokenBackward, reentrant=True)),
    "masks": Net(Masks, padded),
    "functions between modules": Net(Functions),
    "a frozen backbone": Net(Frozen),
    "statistics of a norm": Net(Normed, bad_rows),
    "data classes": Net(Structured),
    "layers that are left out": Net(Dropped),
    "a function that runs now and then": Net(Sometimes, learns=False),
    "a branch that runs for the first time": Net(Branching),
    "a branch that runs for the first time and is healthy": Net(lambda: Branching(healthy=True)),
    "a branch, with a fused optimizer": Net(Branching, fused=True),
    "a branch that is healthy, with a fused optimizer": Net(lambda: Branching(healthy=True), fused=True),
    "a sum of something else": Net(lambda: Elsewhere(loss=False), learns=False),
    "a loss of something else": Net(lambda: Elsewhere(loss=True), loss=of_another, learns=False),
    "a division of zero by zero": Net(Divided),
    "memory that a kernel fills": Net(lambda: nn.Sequential(Broken(), Kernel(), nn.Linear(WIDTH, 4))),
    "memory as it was found": Net(AsFound),
    "a loss": Net(Residual, loss=log_of_zero),
    "a loss whose gradients are finite": Net(Residual, loss=not_a_number),
    "a loss of two batches": Net(Residual, loss=not_a_number, parts=2),
    "a loss that is scaled": Net(Residual, loss=not_a_number, scale=4),
    "a loss that is scaled too far": Net(Residual, loss=large, scale=2.0**120),
    "the gradient of a loss": Net(Residual, loss=root_of_zero),
    "a loss that a module computes": Net(Judged, loss=lambda loss: loss),
    "a derivative in a model": Net(Derived),
}


def batches(net: Net, step: int) -> Iterator[tuple[torch.Tensor, ...]]:
    data = net.data(step)
    yield from zip(*(each.chunk(net.parts) for each in data), strict=True)


def train(net: Net, address: str, level: str) -> None:
    """An ordinary training loop."""
    torch.manual_seed(0)
    model = net.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=net.fused)
    handle = tdbg.attach(model, optimizer, address, level=level)
    scaler = torch.amp.GradScaler("cpu", init_scale=net.scale or 1, enabled=bool(net.scale))
    Fault.lasting = net.lasting
    if net.hooked:
        model.get_parameter(net.hooked).register_hook(lambda gradient: gradient / (0 if Fault.now() else 1))
    for step in range(STEPS):
        Fault.step = step
        if net.spoiled and Fault.now():
            with torch.no_grad():
                model.get_parameter(net.spoiled)[3, 0] = float("nan")
        if net.replaced and Fault.now():
            weight = model.get_parameter(net.replaced)
            weight.data = weight.data / 0
        optimizer.zero_grad(set_to_none=not net.zeros)
        for part in batches(net, step):
            scaler.scale(net.loss(model(*part))).backward()
        if net.clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not net.learns:
            optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
    handle.detach()


def train_rivals(address: str, level: str) -> None:
    """Two optimizers take turns within one step."""
    torch.manual_seed(0)
    model = Rival()
    makers = torch.optim.Adam(model.maker.parameters(), lr=1e-3)
    judges = torch.optim.Adam(model.judge.parameters(), lr=1e-3)
    handle = tdbg.attach(model, [judges, makers], address, level=level)
    for step in range(STEPS):
        Fault.step = step
        (noise,) = rows(step)
        judges.zero_grad()
        real = F.softplus(-model.judge(noise + 1)).mean()
        (real + F.softplus(model.judge(model.maker(noise).detach())).mean()).backward()
        judges.step()
        makers.zero_grad()
        F.softplus(-model(noise)).mean().backward()
        makers.step()
    handle.detach()


def main() -> None:
    """Trains some of them."""
    torch.set_num_threads(1)
    address, level, *names = sys.argv[1:]
    for rank, name in enumerate(names):
        os.environ["RANK"] = str(rank)
        if name == RIVALS:
            train_rivals(address, level)
        else:
            train(NETS[name], address, level)


if __name__ == "__main__":
    main()
