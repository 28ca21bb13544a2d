"""Trainings as people write them: ``python -m tests.live.torch.programs NAME --address=...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tui_debugger.torch as tdbg

WIDTH = 16
WORDS = 50


class Block(nn.Module):
    """Attention and a feed-forward layer with residual sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        attended, _ = self.attention(h, h, h, need_weights=False)
        x = x + attended
        return x + self.feed(x)


class Transformer(nn.Module):
    """Two blocks; ``reuse``: the first one is called twice."""

    def __init__(self, *, checkpointed: str = "", reuse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WORDS)
        self.checkpointed = checkpointed
        self.reuse = reuse

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in [self.blocks[0], *self.blocks] if self.reuse else self.blocks:
            x = checkpoint(block, x, use_reentrant=self.checkpointed == "reentrant") if self.checkpointed else block(x)
        return self.head(x)


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def batch(step: int, rank: int = 0) -> torch.Tensor:
    """The same words for the same step, everywhere."""
    return torch.randint(0, WORDS, (4, 8), generator=torch.Generator().manual_seed(1000 * rank + step))


def loss_of(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Predicts the words it was given."""
    return nn.functional.cross_entropy(out.reshape(-1, WORDS).float(), ids.reshape(-1))


def spoil(model: nn.Module) -> None:
    """Plants a NaN in one weight."""
    with torch.no_grad():
        model.get_parameter("blocks.1.feed.0.weight")[0, 0] = float("nan")


def loop(model: nn.Module, options: argparse.Namespace, forward: Callable[..., Any] | None = None) -> None:
    """An ordinary training loop: the only line about the debugger is ``attach``."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    flight = tdbg.Flight(options.flight) if options.flight else None
    tdbg.attach(
        model,
        optimizer,
        options.address,
        level=options.level,
        keep=options.keep,
        memory=options.memory,
        flight=flight,
    )
    for step in range(options.steps):
        if step == options.spoil:
            spoil(model)
        if step == options.grow:
            model.reuse = True
        if step == options.fail:
            raise ValueError("the data ended")
        ids = batch(step)
        loss = loss_of((forward or model)(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(f"step {step} loss {loss.item():.6f}")


def plain(options: argparse.Namespace) -> None:
    loop(Transformer(reuse=options.reuse), options)


def checkpointed(options: argparse.Namespace) -> None:
    loop(Transformer(checkpointed=options.kind, reuse=options.reuse), options)


def autocast(options: argparse.Namespace) -> None:
    model = Transformer()

    def forward(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(ids)

    loop(model, options, forward)


def with_steps(options: argparse.Namespace) -> None:
    """No optimizer is given; evaluates without gradients between the steps; sums gradients of two batches."""
    model = Transformer()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    tdbg.attach(model, address=options.address, level=options.level)
    for step in range(options.steps):
        with tdbg.step():
            for part in range(2):
                ids = batch(2 * step + part)
                loss_of(model(ids), ids).backward()
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                model(batch(100)[:1])
            model.train()
        say(f"step {step}")


def parallel(options: argparse.Namespace) -> None:
    """Two processes with gloo: this one starts the other."""
    import torch.multiprocessing as mp

    mp.start_processes(_one_of_two, (options,), nprocs=2, start_method="spawn")


def _one_of_two(rank: int, options: argparse.Namespace) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{options.file}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Transformer()
    parallel_model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel_model.parameters(), lr=1e-2)
    tdbg.attach(parallel_model, optimizer, options.address)
    for step in range(options.steps):
        ids = batch(step, rank)
        loss = loss_of(parallel_model(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


PROGRAMS = {each.__name__: each for each in (plain, checkpointed, autocast, with_steps, parallel)}


def main() -> None:
    """Runs one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=sorted(PROGRAMS))
    parser.add_argument("--address", default="")
    parser.add_argument("--level", default="module")
    parser.add_argument("--keep", default="values")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--spoil", type=int, default=-1)
    parser.add_argument("--fail", type=int, default=-1)
    parser.add_argument("--flight", default="")
    parser.add_argument("--grow", type=int, default=-1)
    parser.add_argument("--kind", default="")
    parser.add_argument("--reuse", type=int, default=0)
    parser.add_argument("--file", default="")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PROGRAMS[options.program](options)


if __name__ == "__main__":
    main()
