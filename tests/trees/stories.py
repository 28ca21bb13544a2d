"""Trees that are bad in a way of their own: what an index names, what a recorder was killed in, links, second dumps."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from tests.sources.arrays import write_safetensors
from tests.trees import layouts, leaves
from tests.trees.foreign import put
from tests.trees.layouts import LAYOUTS, array, save, values
from tests.trees.leaves import BAD

NAN: Final = torch.from_numpy(BAD.copy())


@dataclass(frozen=True)
class Ground:
    """Where a story is told.

    Attributes:
        root: PATH of the check; it is not there yet.
        outside: a directory that is not below PATH.
        chance: what to draw from.
    """

    root: Path
    outside: Path
    chance: random.Random


Story = Callable[[Ground], str]
"""Writes a tree, and returns what is bad in it."""


def poison(path: Path) -> bool:
    """Puts a NaN into the first tensor of floats in a file; tells whether there is one."""
    if path.suffix == ".npy":
        found = np.load(path)
        if found.dtype.kind != "f" or not found.size:
            return False
        found.reshape(-1)[0] = np.nan
        array(path, found)
        return True
    if path.suffix in {".pt", ".pth"}:
        content = torch.load(path, weights_only=False)
        first = next(_floats(content), None)
        if first is None:
            return False
        first.view(-1)[0] = float("nan")
        save(path, content)
        return True
    if path.name.startswith("model") and path.suffix == ".safetensors":
        data = bytearray(path.read_bytes())
        data[-4:] = np.float32("nan").tobytes()
        path.write_bytes(data)
        return True
    return False


def _floats(content: Any) -> Iterator[torch.Tensor]:
    if isinstance(content, torch.Tensor) and content.is_floating_point() and content.numel():
        yield content
    elif isinstance(content, Mapping):
        for each in content.values():
            yield from _floats(each)


def poison_one(root: Path, chance: random.Random) -> str:
    """Puts a NaN into one of the files of a dump, and returns which."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return next(f"{path.relative_to(root)}" for path in chance.sample(files, len(files)) if poison(path))


WITH_VALUES: Final = (
    *("mindspore 2.0", "mindspore 2.10", "msprobe L0", "msprobe L1", "msprobe mix", "sglang dumper", "sglang passes"),
    *("megatron", "ranks", "trainer", "model", "sharded", "saved"),
)
"""The layouts whose files ``poison`` knows."""


# -- dumps ---------------------------------------------------------------------------------------------------------


def own_file(ground: Ground) -> str:
    """A dump one of whose own tensors is bad."""
    name = ground.chance.choice(WITH_VALUES)
    LAYOUTS[name](ground.root)
    return f"{name}: {poison_one(ground.root, ground.chance)}"


def two_dumps(ground: Ground) -> str:
    """Two dumps side by side, of which one is bad."""
    good, bad = ground.chance.choice(list(LAYOUTS)), ground.chance.choice(WITH_VALUES)
    names = ground.chance.sample(["a", "b", "old", "zz run"], 2)
    LAYOUTS[good](ground.root / names[0])
    LAYOUTS[bad](ground.root / names[1])
    return f"{good} beside {bad}: {names[1]}/{poison_one(ground.root / names[1], ground.chance)}"


def inner_dump(ground: Ground) -> str:
    """A second dump, which is bad, inside another one's directory."""
    outer, inner = ground.chance.choice(list(LAYOUTS)), ground.chance.choice(WITH_VALUES)
    LAYOUTS[outer](ground.root)
    above = ground.chance.choice([ground.root, *sorted(path for path in ground.root.rglob("*") if path.is_dir())])
    place = above / ground.chance.choice(["again", "dump_2", ".old", "eval/run"])
    LAYOUTS[inner](place)
    where = place.relative_to(ground.root)
    return f"{inner} inside {outer}: {where}/{poison_one(place, ground.chance)}"


def odd_rank(ground: Ground) -> str:
    """A rank whose directory is not called as those of the other ranks."""
    name = ground.chance.choice(["mindspore 2.10", "ranks"])
    LAYOUTS[name](ground.root)
    ranks = sorted(path for path in ground.root.rglob("rank_0") if path.is_dir())
    rank = ground.chance.choice(ranks)
    odd = rank.with_name(ground.chance.choice(["rank2", "Rank_2", "RANK_2", "rank-2", "rank_2.bak", "rank_02_copy"]))
    shutil.copytree(rank, odd)
    return f"{name}: {odd.relative_to(ground.root)}/{poison_one(odd, ground.chance)}"


def killed(ground: Ground) -> str:
    """msprobe was killed before it had flushed ``dump.json``: files without an entry."""
    level = ground.chance.choice(["L0", "L1", "mix"])
    layouts.msprobe(level)(ground.root)
    index = ground.root / f"step{layouts.STEPS[-1]}" / "rank0" / "dump.json"
    dump = json.loads(index.read_text())
    for call in list(dump["data"])[1:]:
        for file in index.parent.glob(f"dump_tensor_data/{call}.*"):
            assert poison(file)
        del dump["data"][call]
    how = ground.chance.choice(["shorter", "gone", "empty"])
    if how == "shorter":
        index.write_text(json.dumps(dump))
    elif how == "gone":
        index.unlink()
    else:
        index.write_text("")
    return f"{level}, dump.json {how}"


# -- models --------------------------------------------------------------------------------------------------------

BESIDE: Final = (
    *("mm_projector.bin", "best.ckpt", "checkpoint.pth.tar", "diffusion_pytorch_model.bin", "ema.pt", "final.model"),
    *(
        "consolidated.00.pth",
        "adapter_model.bin",
        "pytorch_model.bin",
        "optimizer_state",
        "teacher.t7",
        "weights.pt.bak",
    ),
)


def weights_beside(ground: Ground) -> str:
    """Weights of another program beside a clean model."""
    name, layout = ground.chance.choice(BESIDE), ground.chance.choice(["model", "sharded", "trainer"])
    LAYOUTS[layout](ground.root)
    place = ground.chance.choice([ground.root, *sorted(path for path in ground.root.iterdir() if path.is_dir())])
    archive = ground.chance.random() < 0.7
    torch.save({"w": NAN}, place / name, _use_new_zipfile_serialization=archive)
    return f"{layout}: {(place / name).relative_to(ground.root)}, archive {archive}"


def side_state(ground: Ground) -> str:
    """A tensor in a file that is called as the state that trainers save beside the weights."""
    name = ground.chance.choice(
        ["scaler.pt", "sampler.pt", "rng_state.pth", "scheduler.pt", "training_args.bin", "random_states_0.pkl"]
    )
    layout = ground.chance.choice(["trainer", "ranks", "saved"])
    LAYOUTS[layout](ground.root)
    inner = sorted(path for path in ground.root.iterdir() if path.is_dir())
    place = ground.chance.choice(inner or [ground.root])
    save(place / name, {"w": NAN})
    return f"{layout}: {(place / name).relative_to(ground.root)}"


INDEXES: Final = {
    "model.safetensors.index.json": "model-{:05}-of-{:05}.safetensors",
    "adapter_model.safetensors.index.json": "adapter_model-{:05}-of-{:05}.safetensors",
    "diffusion_pytorch_model.safetensors.index.json": "diffusion_pytorch_model-{:05}-of-{:05}.safetensors",
    "model.safetensors.index.fp16.json": "model.fp16-{:05}-of-{:05}.safetensors",
    "pytorch_model.bin.index.json": "pytorch_model-{:05}-of-{:05}.bin",
    "consolidated.safetensors.index.json": "consolidated-{:05}-of-{:05}.safetensors",
}
"""Patterns of the names of shards by the name of their index."""


def missing_shard(ground: Ground) -> str:
    """An index names a shard that is not there, beside one that is."""
    index, pattern = ground.chance.choice(list(INDEXES.items()))
    ground.root.mkdir(parents=True)
    first, second = (pattern.format(at, 2) for at in (1, 2))
    if first.endswith(".safetensors"):
        write_safetensors(ground.root / first, {"a": values()["embed.weight"]})
    else:
        save(ground.root / first, {"a": torch.ones(3)})
    put(ground.root / index, json.dumps({"metadata": {}, "weight_map": {"a": first, "b": second}}))
    return f"{index}: {second} is missing"


def tensor_not_in_its_shard(ground: Ground) -> str:
    """An index names a tensor that its shard lacks."""
    shards = layouts.sharded(ground.root)
    path = ground.root / "model.safetensors.index.json"
    lost = ground.chance.choice(list(shards.values()))
    path.write_text(json.dumps({"metadata": {}, "weight_map": {**shards, "layers.9.weight": lost}}))
    return f"layers.9.weight is not in {lost}"


def lone_shard(ground: Ground) -> str:
    """One of two shards, without an index."""
    pattern = ground.chance.choice(list(INDEXES.values()))
    ground.root.mkdir(parents=True)
    there = ground.chance.choice([1, 2])
    path = ground.root / pattern.format(there, 2)
    if path.suffix == ".bin":
        save(path, {"a": torch.ones(3)})
    else:
        write_safetensors(path, values())
    return f"{path.name} alone"


def shard_beside(ground: Ground) -> str:
    """A shard that no index names, which is bad, beside those that the index names."""
    layouts.sharded(ground.root)
    name = ground.chance.choice(
        ["model-00003-of-00003.safetensors", "model-00001-of-00003.safetensors", "extra.safetensors"]
    )
    write_safetensors(ground.root / name, {"embed.weight": BAD})
    return name


def pieces(ground: Ground) -> str:
    """Pieces of a distributed checkpoint and its index do not belong together."""
    layouts.distributed(ground.root)
    step = ground.root / f"step_{ground.chance.choice(layouts.STEPS)}"
    how = ground.chance.choice(["a piece more", "a piece less", "no index", "a piece by another name"])
    piece = step / "__0_0.distcp"
    if how == "a piece more":
        save(step / "__7_0.distcp", NAN)
    elif how == "a piece less":
        piece.unlink()
    elif how == "no index":
        (step / ".metadata").unlink()
        save(piece, NAN)
    else:
        save(step / "__1_0.DISTCP", NAN)
    return f"{step.name}: {how}"


# -- links and markers ---------------------------------------------------------------------------------------------


def linked(ground: Ground) -> str:
    """A bad file that only a link leads to, or that has several names."""
    layout = ground.chance.choice(list(LAYOUTS))
    LAYOUTS[layout](ground.root)
    folders = [ground.root, *sorted(path for path in ground.root.rglob("*") if path.is_dir())]
    place = ground.chance.choice(folders)
    found = ground.outside / "store" / "3f1d5c8e0b7a4f26"
    form = ground.chance.choice(leaves.ALONE)
    leaves.write(found, form.write())
    name = form.stem + form.suffix
    how = ground.chance.choice(["a link", "a link to its directory", "a hard link", "two links", "a loop beside"])
    if how == "a hard link":
        os.link(found, place / name)
    elif how == "a link to its directory":
        (place / "store").symlink_to(found.parent)
    else:
        (place / name).symlink_to(found)
    if how == "two links":
        (place / f"again{form.suffix}").symlink_to(name)
    if how == "a loop beside":
        (place / "loop").symlink_to(place)
    return f"{layout}: {how} to {form.name} in {place.relative_to(ground.root)}"


def beside_a_marker(ground: Ground) -> str:
    """A bad file directly beside what says that its directory is a cache, an environment or a repository."""
    layout = ground.chance.choice(list(LAYOUTS))
    LAYOUTS[layout](ground.root)
    place = ground.chance.choice([ground.root, ground.root / "extra"])
    marker, content = ground.chance.choice(
        [
            ("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n"),
            ("pyvenv.cfg", "home = /usr/bin\n"),
            (".git/HEAD", "ref: refs/heads/main\n"),
        ]
    )
    put(place / marker, content)
    form = ground.chance.choice(leaves.ALONE)
    leaves.write(place / (form.stem + form.suffix), form.write())
    return f"{layout}: {form.name} beside {(place / marker).relative_to(ground.root)}"


STORIES: Final[tuple[Story, ...]] = (
    *(own_file, two_dumps, inner_dump, odd_rank, killed, weights_beside, side_state, missing_shard),
    *(tensor_not_in_its_shard, lone_shard, shard_beside, pieces, linked, beside_a_marker),
)
