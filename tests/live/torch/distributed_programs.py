"""Trainings of several processes (gloo), as people write them: ``python -m tests.live.torch.distributed_programs``.

Every line of the input is a JSON object (see ``Job``) and one training from its beginning to its end, in all processes
at once; a line of output answers it with the losses. So tests share what costs most: that PyTorch starts.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import sys
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import tui_debugger.torch as tdbg
from tests.live.torch.spoiling import wait_for
from tui_debugger.torch import internals

WIDTH = 8


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        kind: one of ``KINDS``.
        address: of the debugger.
        level: of ``attach``.
        bad: what is bad in one process: ``batch``, ``weight``, ``head``; ``drift``: a weight is another one after the
            step, and no number is bad; or empty.
        at: the step in which it is.
        steps: how many there are.
        parts: batches of one step.
        again: trains twice with the same seeds, first while nobody watches.
    """

    kind: str
    address: str
    level: str = "module"
    bad: str = ""
    at: int = 1
    steps: int = 3
    parts: int = 1
    again: bool = False


class Block(nn.Module):
    """A feed-forward layer with a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.ReLU()
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Head(nn.Linear):
    """A layer with weights of its own that may compute nonsense."""

    broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out * float("nan") if self.broken else out


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = Head(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def bucket_views(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def fsdp1(model: nn.Module) -> nn.Module:
    return _fsdp1(model, original=True)


def fsdp1_flat(model: nn.Module) -> nn.Module:
    return _fsdp1(model, original=False)


def _fsdp1(model: nn.Module, *, original: bool) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=original, device_id=torch.device("cpu")
    )


def fsdp2(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:  # type: ignore[union-attr] # a Sequential
        fully_shard(block)
    return fully_shard(model)


def hybrid(model: nn.Module) -> nn.Module:
    """Each process has whole shards of its own, and gradients are summed up over both."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:  # type: ignore[union-attr] # a Sequential
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def not_understood(model: nn.Module) -> nn.Module:
    """As with a PyTorch that keeps its shards elsewhere: see ``losses``."""
    return fsdp2(model)


def no_shards(_: nn.Module) -> list[internals.Shard]:
    raise AttributeError("_get_fsdp_state")


def sequence_parallel(model: nn.Module) -> nn.Module:
    """Inputs of the parallel layers are put together, and what they make is taken apart again."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    plan = {f"blocks.{at}.up": ColwiseParallel(input_layouts=Shard(0)) for at in (0, 1)}
    plan |= {f"blocks.{at}.down": RowwiseParallel(output_layouts=Shard(0)) for at in (0, 1)}
    return parallelize_module(model, mesh, plan)


def tensor_parallel(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    plan = {f"blocks.{at}.up": ColwiseParallel() for at in (0, 1)}
    plan |= {f"blocks.{at}.down": RowwiseParallel() for at in (0, 1)}
    return parallelize_module(model, mesh, plan)


def two_d(model: nn.Module) -> nn.Module:
    """Tensor-parallel in pairs of processes, with shards over those that have the same part."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("shard", "part"))
    plan = {f"blocks.{at}.up": ColwiseParallel() for at in (0, 1)}
    plan |= {f"blocks.{at}.down": RowwiseParallel() for at in (0, 1)}
    parallelize_module(model, mesh["part"], plan)
    for block in model.blocks:  # type: ignore[union-attr] # a Sequential
        fully_shard(block, mesh=mesh["shard"])
    return fully_shard(model, mesh=mesh["shard"])


class Summed(nn.Module):
    """The sum over all processes of what a model makes: a copy of that, into which the others are added."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.distributed.nn.functional import all_reduce

        made = self.model(x)
        own = torch.stack([made * (rank == dist.get_rank()) for rank in range(dist.get_world_size())])
        whole: torch.Tensor = all_reduce(own)  # type: ignore[no-untyped-call]  # no annotations there
        return whole[dist.get_rank()]


def summed(model: nn.Module) -> nn.Module:
    return Summed(model)


def manual(model: nn.Module) -> nn.Module:
    """Gradients are summed by the loop itself."""
    return model


_WHOLE = (ddp, bucket_views, manual, fsdp1, fsdp1_flat, fsdp2, hybrid, not_understood)
_PARTS = (tensor_parallel, two_d)
"""Pairs of processes compute parts from the same batch."""
_ALL = (*_WHOLE, *_PARTS, sequence_parallel, summed)
KINDS = {each.__name__: each for each in _ALL}


def average(parameters: Iterable[nn.Parameter]) -> None:
    """What a loop without DDP does."""
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def spoil(model: nn.Module, number: float = float("nan")) -> None:
    """Plants a NaN, or another number, in what this process has of one weight."""
    with torch.no_grad():
        name, weight = next(
            (name, each) for name, each in model.named_parameters() if "blocks.1" in name and each.numel() > WIDTH
        )
        part = getattr(weight, "_local_tensor", weight)
        part.view(-1)[:1] = number
    sys.stderr.write(f"spoilt {name}\n")


def leave_nothing_in_memory() -> None:
    """What is allocated is NaN until somebody fills it: what a run finds there is no matter of luck."""
    torch.use_deterministic_algorithms(True)  # fills what operators allocate
    storages = torch.UntypedStorage
    original = storages.resize_

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        grows = size > storage.nbytes()
        original(storage, size)
        if grows:  # no operator does
            ctypes.memset(storage.data_ptr(), 0xFF, size)
        return storage

    storages.resize_ = resize_


def batch(job: Job, step: int, part: int) -> torch.Tensor:
    """What this process trains with: made beforehand, so that no operator of the training is to blame for it."""
    rank = dist.get_rank()
    data = rank // 2 if KINDS[job.kind] in _PARTS else rank
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1000 * step + 10 * part + data))
    if job.bad == "batch" and (step, rank, part) == (job.at, 1, 0):
        x[0, 0] = float("nan")
    return x


def losses(job: Job, address: str) -> list[str]:
    """Trains, and returns the losses."""
    torch.manual_seed(0)
    before = torch.UntypedStorage.resize_
    understood = internals.shards
    if job.kind == "not_understood":
        internals.shards = no_shards
    model = KINDS[job.kind](Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = [[batch(job, step, part) for part in range(job.parts)] for step in range(job.steps)]
    handle = tdbg.attach(model, optimizer, address, level=job.level)
    found = []
    for step, xs in enumerate(batches):
        bad = step == job.at and dist.get_rank() == 1
        if bad and job.bad == "weight":
            spoil(model)
        Head.broken = bad and job.bad == "head"
        for x in xs:
            with nullcontext() if x is xs[-1] or not hasattr(model, "no_sync") else model.no_sync():
                loss = model(x).square().mean()
                loss.backward()
        if job.kind == "manual":
            average(model.parameters())
        optimizer.step()
        if bad and job.bad == "drift":
            spoil(model, 9.0)
        optimizer.zero_grad()
        found.append(loss.item().hex())
    handle.detach()
    internals.shards = understood
    assert torch.UntypedStorage.resize_ is before
    return found


def main() -> None:
    """One process of several: reads lines until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--store", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    leave_nothing_in_memory()
    warnings.simplefilter("ignore")
    patience = dt.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=options.store, rank=options.rank, world_size=options.ranks, timeout=patience
    )
    for line in sys.stdin:
        job = Job(**json.loads(line))
        answer = [losses(job, address) for address in ([""] if job.again else [])]
        wait_for(job.address)
        answer.append(losses(job, job.address))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
