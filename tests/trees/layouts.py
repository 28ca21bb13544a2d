"""One small healthy dump of each kind that the program reads."""

from __future__ import annotations

import json
import logging
import random
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from tests.ascend_files import write_device_dump
from tests.sources import test_statistics_only as statistics
from tests.sources.arrays import write_arrays, write_safetensors
from tests.sources.msprobe.written import backward, forward, tensor, write
from tests.sources.test_old_tree import write_iteration
from tests.sources.writer import Generation, write_dump

Array = npt.NDArray[Any]
Writer = Callable[[Path], object]
STEPS: Final = (1, 2)
NAMES: Final = ("embed.weight", "layers.0.fc.weight", "layers.0.fc.bias")


def values(seed: int = 0) -> dict[str, Array]:
    """Healthy weights by name; other ones for another seed."""
    chance = np.random.default_rng(seed)
    return {name: chance.standard_normal((3, 4)).astype(np.float32) for name in NAMES}


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Healthy weights as torch has them."""
    return {name: torch.from_numpy(value) for name, value in values(seed).items()}


def save(path: Path, content: object) -> None:
    """``torch.save``, its directory included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


def array(path: Path, content: Array) -> None:
    """``numpy.save``, its directory included; the name stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.save(file, content)


# -- recorders -----------------------------------------------------------------------------------------------------


def msprobe(level: str) -> Writer:
    """A dump of msprobe with values, of a level."""

    def written(root: Path) -> None:
        calls = {
            "L0": ["Module.fc.Linear.forward.0", "Module.fc.Linear.backward.0"],
            "L1": ["Functional.linear.0.forward", "Functional.linear.0.backward"],
            "mix": ["Functional.linear.0.forward", "Module.fc.Linear.forward.0"],
        }[level]
        parents = {"Functional.linear.0.forward": "Module.fc.Linear.forward.0"} if level == "mix" else {}
        for step in STEPS:
            chance = np.random.default_rng(step)
            files: dict[str, Array] = {}

            def record(file: str, chance: np.random.Generator = chance, files: dict[str, Array] = files) -> Any:
                files[file] = found = chance.standard_normal((2, 3)).astype(np.float32)
                numbers = {
                    "Max": float(found.max()),
                    "Min": float(found.min()),
                    "Mean": float(found.mean()),
                    "Norm": float(np.linalg.norm(found)),
                }
                return tensor(0, data_name=file) | numbers

            data = {
                call: (backward if "backward" in call else forward)(
                    [record(f"{call}.input.0.pt")], [record(f"{call}.output.0.pt")]
                )
                for call in calls
            }
            construct = {call: parents.get(call) for call in calls}
            directory = write(root, data, construct, step=step, task="tensor", level=level)
            for file, content in files.items():
                save(directory / "dump_tensor_data" / file, torch.from_numpy(content))

    return written


def sglang_dumper(root: Path) -> None:
    """Files of SGLang's dumper: one for each tensor, called after what it is."""
    for step in STEPS:
        for index, (name, value) in enumerate(tensors(step).items(), 1):
            tags = {"step": step, "rank": 0, "dump_index": index, "name": f"param__{name}"}
            file = "___".join(f"{tag}={each}" for tag, each in tags.items()) + ".pt"
            save(root / "dump_20261122_030546_680785" / file, {"value": value, "meta": tags})


def sglang_passes(root: Path) -> None:
    """SGLang's files of passes."""
    for step in range(3):
        found = {"model.embed_tokens": torch.ones(2, 3), "model.layers.0.fc": torch.full((2, 3), 0.5)}
        save(root / "TP0_PP0_Rank0_pid27712" / f"Pass{step:05}.pt", found)


def megatron(root: Path) -> None:
    """Megatron-LM's gradients and activations of two iterations."""
    for step in STEPS:
        for kind, name in (("wgrads", "decoder.fc.weight"), ("activations", "decoder.fc/output0")):
            save(root / kind / f"iter_{step:07}" / "mp_rank_00.pth", {"model_chunk0": {name: torch.ones(2, 3)}})


# -- tensor files --------------------------------------------------------------------------------------------------


def ranks(root: Path) -> None:
    """Arrays of NumPy of two ranks, a directory for each step."""
    for step in STEPS:
        for rank in (0, 1):
            for name, value in values(step).items():
                array(root / f"step_{step}" / f"rank_{rank}" / f"{name}.npy", value)


def archives(root: Path) -> None:
    """An archive of NumPy for each step."""
    for step in STEPS:
        write_arrays(root / f"step_{step}", values(step), "archives")


class TrainingArguments:
    """The settings that the Trainer saves: an object of a class that only its library has."""

    __module__ = "transformers.training_args"

    def __init__(self) -> None:
        self.learning_rate, self.max_grad_norm, self.output_dir = 1e-3, 1.0, "run"
        self.betas, self.resume_from_checkpoint = (0.9, 0.999), None


def states(folder: Path, step: int) -> None:
    """The state that trainers save beside the weights."""
    kept = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}  # noqa: NPY002 - that state is saved
    save(folder / "rng_state.pth", kept)
    save(
        folder / "random_states_0.pkl", {"step": step, "random_state": kept["python"], "torch_manual_seed": kept["cpu"]}
    )
    save(folder / "scheduler.pt", {"last_epoch": step, "_last_lr": [1e-3], "base_lrs": [1e-3], "_step_count": step + 1})
    save(folder / "scaler.pt", {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "_growth_tracker": 7})
    library = types.ModuleType(TrainingArguments.__module__)
    library.__dict__["TrainingArguments"] = TrainingArguments
    with mock.patch.dict(sys.modules, {"transformers": types.ModuleType("transformers"), library.__name__: library}):
        save(folder / "training_args.bin", TrainingArguments())
    log = [{"step": at, "loss": 1.0 / at, "grad_norm": 0.5, "learning_rate": 1e-3} for at in range(1, step, 50)]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": log}))


def trainer(root: Path) -> None:
    """Checkpoints of Hugging Face's Trainer."""
    for step in (100, 200):
        folder = root / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", values(step), {"format": "pt"})
        state = {at: {"step": torch.tensor(float(step)), "exp_avg": torch.ones(3, 4)} for at in range(len(NAMES))}
        groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(range(len(NAMES)))}]
        save(folder / "optimizer.pt", {"state": state, "param_groups": groups})
        states(folder, step)
        (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 4}))


def model(root: Path) -> None:
    """One model as a file of safetensors, with its settings."""
    root.mkdir(parents=True)
    write_safetensors(root / "model.safetensors", values(), {"format": "pt"})
    (root / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], "n_embd": 4}))


def sharded(root: Path, pattern: str = "model-{:05}-of-{:05}.safetensors") -> dict[str, str]:
    """One model in two files of safetensors; returns which file its index names for each tensor."""
    root.mkdir(parents=True)
    found = values()
    shards = {name: pattern.format(1 + (at > 0), 2) for at, name in enumerate(found)}
    for shard in sorted(set(shards.values())):
        write_safetensors(root / shard, {name: found[name] for name in found if shards[name] == shard})
    index = {"metadata": {"total_size": sum(value.nbytes for value in found.values())}, "weight_map": shards}
    (root / f"{pattern.split('-', 1)[0]}.safetensors.index.json").write_text(json.dumps(index))
    return shards


def saved(root: Path) -> None:
    """Checkpoints of ``torch.save``."""
    for step in STEPS:
        save(root / f"step_{step}.pt", {"model": tensors(step), "step": step, "loss": 0.5})


def distributed(root: Path) -> None:
    """Checkpoints of torch.distributed.checkpoint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()  # it tells every file
        for step in STEPS:
            save_distributed({"model": tensors(step)}, checkpoint_id=root / f"step_{step}", no_dist=True)
        logging.disable(logging.NOTSET)


LAYOUTS: Final[Mapping[str, Writer]] = {
    "mindspore 2.0": lambda root: write_dump(root, Generation.V2_0, steps=STEPS),
    "mindspore 2.10": lambda root: write_dump(root, Generation.V2_10, steps=STEPS, ranks=(0, 1)),
    "mindspore 1.1": lambda root: [write_iteration(root / "Net" / f"iteration_{step}", step) for step in STEPS],
    "mindspore statistics": statistics.counted,
    "ascend": lambda root: write_device_dump(root, steps=STEPS),
    "msprobe L0": msprobe("L0"),
    "msprobe L1": msprobe("L1"),
    "msprobe mix": msprobe("mix"),
    "msprobe statistics": statistics.msprobe,
    "sglang dumper": sglang_dumper,
    "sglang passes": sglang_passes,
    "megatron": megatron,
    "torchtitan": statistics.torchtitan,
    "debug mode": statistics.debug_mode,
    "te logs": statistics.te_logs,
    "monitor 1": statistics.monitor_1,
    "monitor 2": statistics.monitor_2,
    "trend": statistics.trend,
    "ranks": ranks,
    "archives": archives,
    "trainer": trainer,
    "model": model,
    "sharded": sharded,
    "saved": saved,
    "distributed": distributed,
}
"""What writes a dump of each kind into a directory that is not there yet."""
FOUND_AT_PATH_ONLY: Final = ("model", "sharded")
"""Those that nothing tells from other files in a directory below PATH: no name holds a step."""
