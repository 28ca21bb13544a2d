"""Trees that people have, and places that were once passed over: each bad one beside its healthy twin."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch

from tests.cli.running import run
from tests.sources.arrays import safetensors_bytes, write_safetensors
from tests.trees import layouts, leaves
from tests.trees.foreign import put
from tests.trees.layouts import LAYOUTS, array, save, states
from tests.trees.leaves import BAD

Write = Callable[[Path, torch.Tensor], object]
"""Writes a tree into a directory, with the one tensor given somewhere in it."""
GOOD: Final = np.ones((2, 3), np.float32)
ONES: Final = torch.ones(2, 3)
CACHE: Final = "Signature: 8a477f597d28d172789f06886806bc55\n"


def accelerate(root: Path, tensor: torch.Tensor) -> None:
    for number in (0, 1):
        folder = root / f"checkpoint_{number}"
        save(folder / "optimizer.bin", {"state": {0: {"exp_avg": tensor}}, "param_groups": []})
        write_safetensors(folder / "model.safetensors", {"fc.weight": GOOD})
        states(folder, number)


def deepspeed(root: Path, tensor: torch.Tensor) -> None:
    folder = root / "global_step100"
    save(folder / "mp_rank_00_model_states.pt", {"module": {"fc.weight": ONES}, "global_steps": 100})
    for rank in (0, 1):
        part = {"optimizer_state_dict": {"single_partition_of_fp32_groups": [tensor if rank else ONES]}}
        save(folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", part)
    put(root / "latest", "global_step100")


def lightning(root: Path, tensor: torch.Tensor) -> None:
    for step in (10, 20):
        content = {"state_dict": {"w": tensor}, "epoch": 0, "global_step": step, "hyper_parameters": {"lr": 1e-3}}
        save(root / f"lightning_logs/version_0/checkpoints/epoch=0-step={step}.ckpt", content)
    put(root / "lightning_logs/version_0/hparams.yaml", "lr: 0.001\n")


def verl(root: Path, tensor: torch.Tensor) -> None:
    actor = root / "global_step_10" / "actor"
    for rank in (0, 1):
        save(actor / f"model_world_size_2_rank_{rank}.pt", {"model.w": tensor if rank else ONES})
        save(actor / f"extra_state_world_size_2_rank_{rank}.pt", {"rng": {"random": random.getstate()}})
    put(actor / "huggingface" / "config.json", "{}")


def adapters(root: Path, tensor: torch.Tensor) -> None:
    write_safetensors(root / "adapter_model.safetensors", {"base.lora_A.weight": tensor.numpy()})
    put(root / "adapter_config.json", json.dumps({"peft_type": "LORA"}))


def snapshot(root: Path, tensor: torch.Tensor) -> None:
    """A model in a cache of the Hugging Face hub: links to files that are called after their content."""
    put(root / "refs" / "main", "rev1")
    put(root / "blobs" / "3f1d5c8e", safetensors_bytes({"w": tensor.numpy()}))
    put(root / "snapshots" / "rev1" / "config.json", "{}")
    (root / "snapshots" / "rev1" / "model.safetensors").symlink_to("../../blobs/3f1d5c8e")


def annexed(root: Path, tensor: torch.Tensor) -> None:
    """A tensor whose file lies in the object store of a repository."""
    layouts.ranks(root)
    put(root / ".git" / "HEAD", "ref: refs/heads/main\n")
    (root / ".git" / "refs").mkdir()
    file, place = root / ".git/annex/objects/x.npy", root / "step_1/rank_0/embed.weight.npy"
    (root / ".git/objects").mkdir()
    array(file, tensor.numpy())
    place.unlink()
    place.symlink_to("../../.git/annex/objects/x.npy")


PEOPLE: Final[dict[str, Write]] = {
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "lightning": lightning,
    "verl": verl,
    "adapters": adapters,
    "hub": snapshot,
    "git-annex": annexed,
}


@pytest.mark.parametrize("name", PEOPLE)
def test_trees_that_people_have(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, tensor in ((0, ONES), (1, torch.from_numpy(BAD.copy()))):
        root = tmp_path / str(code)
        root.mkdir()
        PEOPLE[name](root, tensor)
        assert run(capsys, "check", root, "--watch", "TO", "--no-cache").code == code


class TestWhatIsNotEntered:
    @pytest.fixture(params=["msprobe L1", "ranks", "model", "mindspore 2.10"])
    def root(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """A dump beside a cache with a bad array that nobody asked about."""
        LAYOUTS[request.param](tmp_path / "run")
        put(tmp_path / "run" / "cache" / "CACHEDIR.TAG", CACHE)
        array(tmp_path / "run" / "cache" / "deep" / "x.npy", BAD)
        return tmp_path / "run"

    def test_is_named(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        answer = run(capsys, "check", root, "--watch", "TO", "--no-cache")
        assert answer.code == 0
        assert "cache (CACHEDIR.TAG)" in answer.err

    @pytest.mark.parametrize("target", ["cache/deep/x.npy", "cache/deep"])
    def test_is_looked_at_where_a_link_leads_into_it(
        self, root: Path, target: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (root / ("grads" + Path(target).suffix)).symlink_to(target)
        assert run(capsys, "check", root, "--watch", "TO", "--no-cache").code in {1, 2}


class TestLinks:
    def test_one_that_nobody_claimed_claims_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        layouts.msprobe("L1")(tmp_path / "run")
        put(tmp_path / "outside", leaves.msgpack())
        (tmp_path / "run/step2/rank0/flax_model.msgpack").symlink_to(tmp_path / "outside")
        assert run(capsys, "check", tmp_path / "run", "--watch", "TO", "--no-cache").code == 2

    @pytest.mark.parametrize("layout", ["sglang dumper", "ranks", "trainer", "msprobe mix"])
    def test_to_the_latest_is_no_second_dump(
        self, layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        LAYOUTS[layout](tmp_path / "run")
        last = max(path for path in (tmp_path / "run").iterdir() if path.is_dir())
        (tmp_path / "run" / "latest").symlink_to(last.name)
        assert run(capsys, "check", tmp_path / "run", "--watch", "TO", "--no-cache").code == 0


@pytest.mark.parametrize("place", ["rank_0", "rank_1", "rank_1/graphs", "rank_1/Net/0", "rank_1/Net/0/grads"])
def test_entries_of_every_rank_are_accounted_for(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks are looked at one after the other: until then each is claimed as a whole."""
    LAYOUTS["mindspore 2.10"](tmp_path)
    put(tmp_path / place / "x.gguf", leaves.gguf())
    assert run(capsys, "check", tmp_path, "--watch", "TO", "--no-cache").code == 2


@pytest.mark.parametrize("place", ["rank_0/graphs", "rank_0/Net/0/grads", "rank_0/optimizer"])
def test_a_file_in_a_dump_that_is_no_part_of_it_is_the_question(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LAYOUTS["mindspore 2.10"](tmp_path)
    array(tmp_path / place / "x.npy", BAD)
    assert run(capsys, "check", tmp_path / place / "x.npy", "--watch", "TO", "--no-cache").code in {1, 2}


def test_a_socket_is_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts.ranks(tmp_path / "run")
    os.mkfifo(tmp_path / "run" / "pipe")
    monkeypatch.chdir(tmp_path / "run")  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    assert run(capsys, "check", tmp_path / "run", "--watch", "TO", "--no-cache").code == 0


@pytest.mark.parametrize(("more", "code"), [({}, 0), ({"extra": "pytorch_model-00002-of-00002.bin"}, 2)])
def test_an_index_of_a_form_that_was_not_fetched_names_nothing_new(
    more: dict[str, str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = layouts.sharded(tmp_path / "run")
    other = {name: f"pytorch_{file}".replace(".safetensors", ".bin") for name, file in files.items()}
    put(tmp_path / "run" / "pytorch_model.bin.index.json", json.dumps({"weight_map": {**other, **more}}))
    assert run(capsys, "check", tmp_path / "run", "--watch", "TO", "--no-cache").code == code
