"""Trainings as people write them: ``python -m tests.live.torch.programs NAME --address=...``."""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import tui_debugger.torch as tdbg
from tui_debugger.torch.internals import leaves
from tui_debugger.torch.operators import kind_of

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


def by_hand(options: argparse.Namespace) -> None:
    """Has no optimizer: updates the weights itself, and clears the gradients before the step is over."""
    model = small()
    tdbg.attach(model, address=options.address, level=options.level)
    for step in range(options.steps):
        with tdbg.step():
            for part in range(2):
                model(numbers(options, "train", step, part)).square().mean().backward()
            with torch.no_grad():
                for each in model.parameters():
                    each.sub_(0.1 * each.grad.nan_to_num())
                    if options.kind == "zeros":
                        each.grad.zero_()
                    else:
                        each.grad = None


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


def small() -> nn.Sequential:
    """A net on numbers, so that a batch can be bad."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, 4))


def numbers(options: argparse.Namespace, *place: object) -> torch.Tensor:
    """A batch; bad at the place that ``--bad`` names: ``train.2``, ``eval.1.3``."""
    x = torch.randn(8, WIDTH)
    if place and ".".join(map(str, place)) == options.bad:
        x[0, 0] = float("nan")
    return x


def learn(model: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """One step, which skips what is not finite: a NaN does not spread to the next one."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    if not loss.isfinite():
        optimizer.zero_grad()
    optimizer.step()


def evaluate(model: nn.Module, options: argparse.Namespace, step: int) -> None:
    """Three batches without gradients; ``step`` as in ``numbers``."""
    model.eval()
    with torch.inference_mode() if options.kind == "inference" else torch.no_grad():
        for part in range(3):
            model(numbers(options, "eval", step, part)).mean()
    model.train()


def evaluating(options: argparse.Namespace) -> None:
    """Evaluates before the first step, after each, and once more after the loop."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    evaluate(model, options, -1)
    for step in range(options.steps):
        learn(model, optimizer, numbers(options, "train", step))
        evaluate(model, options, step)
    evaluate(model, options, options.steps)
    say(f"unrecorded {handle.unrecorded}")


def evaluating_late(options: argparse.Namespace) -> None:
    """Evaluates for the first time when the graph is known; in blocks, or when the loop is over."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tdbg.attach(model, None if options.kind == "blocks" else optimizer, options.address, level=options.level)
    for step in range(options.steps):
        with tdbg.step():
            learn(model, optimizer, numbers(options, "train", step))
            if options.kind == "blocks" and step == 1:
                evaluate(model, options, step)
    if options.kind != "blocks":
        evaluate(model, options, options.steps)


def reference(options: argparse.Namespace) -> None:
    """A policy, and a frozen reference that is called 300 times a step without gradients."""
    pair = nn.ModuleDict({"policy": small(), "reference": small()})
    pair["reference"].requires_grad_(False)
    optimizer = torch.optim.Adam(pair["policy"].parameters(), lr=1e-3)
    tdbg.attach(pair, optimizer, options.address, level=options.level, memory=options.memory)
    for step in range(options.steps):
        x = numbers(options, "train", step)
        for part in range(300):
            with torch.no_grad():
                target = pair["reference"](numbers(options, "eval", step, part))
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        learn(lambda x, target=target: pair["policy"](x) - target.nan_to_num(), optimizer, x)
        say(f"step {step} held {held}")


class Frozen(nn.Module):
    """A backbone that runs without gradients inside a pass with gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


def frozen(options: argparse.Namespace) -> None:
    """Trains a head on a frozen backbone, which it also calls by itself."""
    model = Frozen()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        with torch.no_grad():
            model.backbone(numbers(options, "eval", step))
        learn(model, optimizer, numbers(options, "train", step))
    say(f"unrecorded {handle.unrecorded}")


def unfinished(options: argparse.Namespace) -> None:
    """A bad batch in a step that never ends."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        learn(model, optimizer, numbers(options))
        say(f"step {step}")
    optimizer.zero_grad()
    model(numbers(options, "train", options.steps)).square().mean().backward()
    if options.kind == "raise":
        raise ValueError("the loss is not finite")
    if options.kind == "exit":
        sys.exit(3)
    if options.kind == "detach":
        handle.detach()
    say("the end")


def filled(options: argparse.Namespace) -> None:
    """Writes into every batch, a NaN in step ``bad``; the last step, one more than ``steps``, never ends."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        learn(model, optimizer, written(options, step))
    model(written(options, options.steps)).square().mean().backward()


def written(options: argparse.Namespace, step: int) -> torch.Tensor:
    x = numbers(options)
    x[0, 0] = float("nan") if options.bad == str(step) else 1.0
    return x


class MaskedLayer(nn.Module):
    """A layer with a mask of -Inf over what it returns, and a softmax behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x)
        return (scores + torch.full((len(x), 4), float("-inf")).triu(1)).softmax(-1)


def masked_layer(options: argparse.Namespace) -> None:
    """Has -Inf in every step, between a layer and what follows; nothing behind that is bad."""
    model = MaskedLayer()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps = options.kind == "steps"
    tdbg.attach(model, None if steps else optimizer, options.address, level=options.level)
    for _ in range(options.steps):
        with tdbg.step() if steps else contextlib.nullcontext():
            learn(model, optimizer, numbers(options))


class Great(nn.Module):
    """A layer with a bias that is given numbers times ``scale``."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.last = nn.Linear(WIDTH, 1)
        self.scale = 1.0
        nn.init.constant_(self.last.weight, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(x).clamp(0.5, 1.0) * self.scale)


class Masked(nn.Module):
    """Scores of which some are -Inf; ``kind`` says what becomes of them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.query(x)
        if self.kind == "sdpa":
            return nn.functional.scaled_dot_product_attention(
                q[None, None], q[None, None], q[None, None], is_causal=True, dropout_p=0.1
            )
        scores = self.masked(q @ q.transpose(-1, -2))
        if self.kind == "logsumexp":
            return (scores - scores.logsumexp(-1, keepdim=True)).exp() @ q
        return scores @ q if self.kind in {"nothing", "logarithm"} else scores.softmax(-1) @ q

    def masked(self, scores: torch.Tensor) -> torch.Tensor:
        """The scores with what must not count at -Inf."""
        places, lowest = torch.arange(8), float("-inf")
        if self.kind == "where":
            return torch.where(torch.ones(8, 8).tril().bool(), scores, lowest)
        if self.kind == "triu":
            return scores + torch.full((8, 8), lowest).triu(1)
        if self.kind == "topk":
            values, chosen = scores.topk(2, -1)
            return torch.full_like(scores, lowest).scatter(-1, chosen, values)
        if self.kind == "buckets":
            return scores + torch.where(places > 0, places.log(), 0.0)
        if self.kind == "logarithm":  # not selected away
            return scores + places.log()
        return scores.masked_fill(torch.ones(8, 8).triu(1).bool(), lowest)


def masked(options: argparse.Namespace) -> None:
    """Every step has -Inf by design, unless ``kind`` is something else."""
    model = Masked(options.kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tdbg.attach(model, optimizer, options.address, level=options.level)
    for _ in range(options.steps):
        learn(model, optimizer, numbers(options))


def overflowing(options: argparse.Namespace) -> None:
    """In step ``bad`` the sum of the last layer overflows; the step is made, and leaves NaN in all weights."""
    model = Great()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        model.scale = 3e38 if options.bad == str(step) else 1.0
        loss = model(numbers(options)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def counting(options: argparse.Namespace) -> None:
    """Says which operators the program itself runs in its last step; those of the optimizer left out."""
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if options.address:
        tdbg.attach(model, optimizer, options.address, level="op")
    counts = _Counts()
    optimizer.register_step_pre_hook(lambda *_: counts.pause(True))

    def passes(step: int) -> None:
        ids = batch(step)
        optimizer.zero_grad()
        out = model(ids)
        loss_of(out, ids).backward()
        with torch.no_grad():
            model(ids[:1]).argmax()
        out.detach().softmax(-1).sum()

    with contextlib.nullcontext() if options.address else counts:
        for step in range(options.steps):
            counts.found.clear()
            passes(step)
            optimizer.step()
            counts.pause(False)
    if not options.address:
        counts.found["Detach"] = _detached(lambda: passes(0))
    say(json.dumps(counts.found))


def _detached(run: Callable[[], None]) -> int:
    """How often a program detaches a tensor: what a profiler sees, and is no part of keeping a gradient."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    events = [each for each in profile.events() if each.name == "aten::detach"]
    return sum(each.cpu_parent is None or "AccumulateGrad" not in each.cpu_parent.name for each in events)


class _Counts(TorchDispatchMode):
    """A plain mode of PyTorch: operators that make tensors, but for those that detach: autograd has such of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._paused = False

    def pause(self, now: bool) -> None:
        """Counts nothing for a while."""
        self._paused = now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self._paused and leaves(out) and kind_of(func) != "Detach":
            self.found[kind_of(func)] += 1
        return out


def scaled(options: argparse.Namespace) -> None:
    """Half types with a GradScaler that begins much too high, and skips steps until it does not."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=3)
    skipped = 0
    for step in range(options.steps):
        for part in range(2):
            with torch.autocast("cpu", torch.float16):
                loss = model(numbers(options, "train", step, part)).float().square().mean()
            scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        optimizer.zero_grad()
    say(f"skipped {skipped} unrecorded {handle.unrecorded}")


def closures(options: argparse.Namespace) -> None:
    """The optimizer runs the forward and the backward pass."""
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=2)
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        x = numbers(options, "train", step)

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).nan_to_num().square().mean()
            loss.backward()
            for each in model.parameters():
                each.grad.nan_to_num_()
            return loss

        optimizer.step(closure)
    say(f"unrecorded {handle.unrecorded}")


def hidden(options: argparse.Namespace) -> None:
    """What cannot be seen: a compiled module, a module in another thread, a tensor that stands for others."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if options.kind == "compile":
        model[0] = torch.compile(model[0], backend="eager")
    if options.kind == "script":
        model[0] = torch.jit.script(model[0])
    handle = tdbg.attach(model, optimizer, options.address, level=options.level)
    for step in range(options.steps):
        learn(model, optimizer, numbers(options, "train", step))
        if options.kind == "thread":
            thread = threading.Thread(target=lambda: model(numbers(options, "other", 0)))
            thread.start()
            thread.join()
        if options.kind == "vmap":
            torch.vmap(model[2])(torch.randn(3, 2, WIDTH))
    say(f"unrecorded {handle.unrecorded}")


PROGRAMS = {
    each.__name__: each
    for each in (
        plain,
        checkpointed,
        autocast,
        by_hand,
        with_steps,
        parallel,
        evaluating,
        evaluating_late,
        reference,
        frozen,
        unfinished,
        filled,
        masked,
        overflowing,
        counting,
        scaled,
        closures,
        hidden,
        masked_layer,
    )
}


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
    parser.add_argument("--bad", default="")
    parser.add_argument("--reuse", type=int, default=0)
    parser.add_argument("--file", default="")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PROGRAMS[options.program](options)


if __name__ == "__main__":
    main()
